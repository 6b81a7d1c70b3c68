//! From names and shapes to checked, packed weights.
//!
//! A family asks for its tensors in one place, by name and shape. That code runs twice: first as a survey, which looks
//! at headers only and collects everything that is wrong, then to load. So what is listed, what is checked and what is
//! loaded cannot differ.

use std::collections::BTreeSet;

use samebit_arith::{Cpu, Encoded, FloatType, Format, Matrix};
use samebit_checkpoint::{Advice, Checkpoint, CheckpointError, DType};

use crate::layers::Linear;
use crate::{LoadProgress, ModelError};

/// How many wrong tensors an error names.
const NAMED_PROBLEMS: usize = 6;
/// After so many wrong tensors, a survey ends.
const MOST_PROBLEMS: usize = 100;

/// A tensor that the model uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorUse {
    /// Name in the checkpoint.
    pub name: String,
    /// How it is stored.
    pub format: String,
    /// Shape in elements, outermost dimension first.
    pub shape: Vec<usize>,
    /// Bytes in the checkpoint, separate scales and biases of quantized matrices included.
    pub bytes: usize,
}

/// When a bias belongs to a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bias {
    /// Never.
    Absent,
    /// Always.
    Required,
    /// When the checkpoint has one: GGUF does not say it otherwise.
    IfStored,
}

impl Bias {
    /// What a flag of `config.json` says.
    pub(crate) fn from_flag(flag: bool) -> Self {
        if flag { Self::Required } else { Self::Absent }
    }
}

/// What is done with a tensor that a family asks for.
enum Purpose<'a> {
    Survey { problems: Vec<CheckpointError> },
    Load { progress: &'a mut dyn FnMut(LoadProgress), loaded: u64, total: u64 },
}

/// Hands out the tensors of a checkpoint.
pub(crate) struct Weights<'a> {
    checkpoint: &'a Checkpoint,
    cpu: &'a Cpu,
    purpose: Purpose<'a>,
    uses: Vec<TensorUse>,
}

impl<'a> Weights<'a> {
    /// Looks at headers only. What it hands out has the right type and no content.
    pub(crate) fn survey(checkpoint: &'a Checkpoint, cpu: &'a Cpu) -> Self {
        Self { checkpoint, cpu, purpose: Purpose::Survey { problems: Vec::new() }, uses: Vec::new() }
    }

    /// Reads and packs. `total` is the number of bytes that a survey found.
    pub(crate) fn load(
        checkpoint: &'a Checkpoint,
        cpu: &'a Cpu,
        total: u64,
        progress: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        Self { checkpoint, cpu, purpose: Purpose::Load { progress, loaded: 0, total }, uses: Vec::new() }
    }

    /// Whether the checkpoint has a tensor of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.checkpoint.contains(name)
    }

    /// The projection `module.weight` `[outputs, inputs]` with `module.bias` `[outputs]`.
    pub(crate) fn linear(
        &mut self,
        module: &str,
        outputs: usize,
        inputs: usize,
        bias: Bias,
    ) -> Result<Linear, ModelError> {
        let weight = self.matrix(&format!("{module}.weight"), outputs, inputs)?;
        let bias_name = format!("{module}.bias");
        let has_bias = match bias {
            Bias::Absent => false,
            Bias::Required => true,
            Bias::IfStored => self.contains(&bias_name),
        };
        let bias = if has_bias { Some(self.vector(&bias_name, outputs)?) } else { None };
        Ok(Linear::new(weight, bias))
    }

    /// The matrix `[rows, columns]` of this name.
    pub(crate) fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<Matrix, ModelError> {
        match self.checkpoint.matrix_of(name, rows, columns) {
            Ok(stored) => {
                self.pack(name, &[rows, columns], &[stored.encoded()]).map(|mut packed| packed.remove(0))
            }
            Err(error) => self.problem(error).map(|()| no_matrix(self.cpu)),
        }
    }

    /// The matrices `[rows, columns]` of a stack `[experts, rows, columns]`.
    pub(crate) fn stack(
        &mut self,
        name: &str,
        experts: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Vec<Matrix>, ModelError> {
        match self.checkpoint.experts_of(name, experts, rows, columns) {
            Ok(stored) => {
                let parts: Vec<_> = (0..experts).map(|expert| stored.expert(expert)).collect();
                self.pack(name, &[experts, rows, columns], &parts)
            }
            Err(error) => {
                self.problem(error)?;
                Ok((0..experts).map(|_| no_matrix(self.cpu)).collect())
            }
        }
    }

    /// A matrix that is only read row by row: checked here, and left in the checkpoint.
    pub(crate) fn table(&mut self, name: &str, rows: usize, columns: usize) -> Result<(), ModelError> {
        match self.checkpoint.matrix_of(name, rows, columns) {
            Ok(stored) => {
                self.note(name, &[rows, columns], &[stored.encoded()]);
                self.advance(stored.encoded().bytes());
            }
            Err(error) => self.problem(error)?,
        }
        Ok(())
    }

    /// The vector of this name and length. A survey hands out nothing.
    pub(crate) fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        let values = match self.purpose {
            Purpose::Survey { .. } => self.check_vector(name, length).map(|()| Vec::new()),
            Purpose::Load { .. } => self.checkpoint.vector_of(name, length),
        };
        match values {
            Ok(values) => {
                let tensor = self.checkpoint.tensor(name)?;
                let bytes = tensor.data().len();
                let format = tensor.dtype().to_string();
                self.uses.push(TensorUse { name: name.to_owned(), format, shape: vec![length], bytes });
                self.advance(bytes);
                Ok(values)
            }
            Err(error) => self.problem(error).map(|()| Vec::new()),
        }
    }

    /// A vector of finite numbers above zero. Only loading sees the numbers.
    pub(crate) fn positive_vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        let values = self.vector(name, length)?;
        if let Some(index) = values.iter().position(|value| !(value.is_finite() && *value > 0.0)) {
            let file = self.checkpoint.tensor(name)?.file();
            let (found, place) = (values[index], format!("tensor {name}, element {index}"));
            return Err(ModelError::field(file, &place, found, "a finite number above 0"));
        }
        Ok(values)
    }

    /// Checks a vector by its header.
    fn check_vector(&self, name: &str, length: usize) -> Result<(), CheckpointError> {
        let tensor = self.checkpoint.tensor(name)?;
        if tensor.shape() != [length] {
            return Err(CheckpointError::Shape {
                file: tensor.file().to_path_buf(),
                tensor: name.to_owned(),
                found: tensor.shape().to_vec(),
                expected: format!("[{length}]"),
            });
        }
        match tensor.dtype() {
            DType::F32 | DType::F16 | DType::Bf16 | DType::F64 => Ok(()),
            other => Err(CheckpointError::Unsupported {
                file: tensor.file().to_path_buf(),
                place: format!("tensor {name}"),
                found: other.to_string(),
                supported: "F32, F16, BF16, F64".to_owned(),
            }),
        }
    }

    /// Ends a survey: the tensors used, or what is wrong with them.
    pub(crate) fn finish(self) -> Result<Vec<TensorUse>, ModelError> {
        match self.purpose {
            Purpose::Survey { problems } if !problems.is_empty() => {
                Err(problems_of(self.checkpoint, &problems))
            }
            _ => Ok(self.uses),
        }
    }

    /// Notes the parts of a tensor, and packs them when loading.
    fn pack(
        &mut self,
        name: &str,
        shape: &[usize],
        parts: &[Encoded<'_>],
    ) -> Result<Vec<Matrix>, ModelError> {
        self.note(name, shape, parts);
        if matches!(self.purpose, Purpose::Survey { .. }) {
            return Ok(parts.iter().map(|_| no_matrix(self.cpu)).collect());
        }
        let (checkpoint, cpu) = (self.checkpoint, self.cpu);
        checkpoint.advise(name, Advice::Sequential);
        let mut packed = Vec::with_capacity(parts.len());
        for part in parts {
            let mut before = 0;
            packed.push(Matrix::pack_watched(cpu, part, &mut |outputs| {
                let done = part.row_range(0, outputs).bytes();
                self.advance(done - before);
                before = done;
                // What is packed need not stay in memory as it was.
                checkpoint.advise(name, Advice::Done);
            }));
        }
        Ok(packed)
    }

    fn note(&mut self, name: &str, shape: &[usize], parts: &[Encoded<'_>]) {
        self.uses.push(TensorUse {
            name: name.to_owned(),
            format: parts[0].format().to_string(),
            shape: shape.to_vec(),
            bytes: parts.iter().map(Encoded::bytes).sum(),
        });
    }

    /// Keeps the error for the end of a survey; ends a load.
    fn problem(&mut self, error: CheckpointError) -> Result<(), ModelError> {
        match &mut self.purpose {
            Purpose::Survey { problems } => {
                problems.push(error);
                if problems.len() < MOST_PROBLEMS {
                    Ok(())
                } else {
                    Err(problems_of(self.checkpoint, problems))
                }
            }
            Purpose::Load { .. } => Err(error.into()),
        }
    }

    fn advance(&mut self, bytes: usize) {
        if let Purpose::Load { progress, loaded, total } = &mut self.purpose {
            *loaded += bytes as u64;
            progress(LoadProgress { loaded: *loaded, total: *total });
        }
    }
}

fn problems_of(checkpoint: &Checkpoint, problems: &[CheckpointError]) -> ModelError {
    ModelError::Tensors {
        path: checkpoint.path().to_path_buf(),
        count: problems.len(),
        problems: problems.iter().take(NAMED_PROBLEMS).map(ToString::to_string).collect(),
    }
}

/// What a survey hands out in place of a matrix: one weight of zero.
fn no_matrix(cpu: &Cpu) -> Matrix {
    let zero = Encoded::new(Format::Float(FloatType::F32), 1, 1, &[0; 4]);
    Matrix::pack(cpu, &zero.expect("four bytes are one binary32"))
}

/// Tensors of a checkpoint that a model does not use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// Tensors known to carry nothing the text model needs.
    pub ignorable: Vec<String>,
    /// Tensors nobody asked for: the model may not be what its configuration says.
    pub unknown: Vec<String>,
}

impl Unused {
    /// Sorts what is left of a checkpoint. `is_ignorable` knows the family's harmless leftovers.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        uses: &[TensorUse],
        is_ignorable: impl Fn(&str) -> bool,
    ) -> Self {
        let mut used: BTreeSet<&str> = BTreeSet::new();
        for tensor in uses {
            used.insert(&tensor.name);
        }
        let mut unused = Self::default();
        for tensor in checkpoint.tensors() {
            let name = tensor.name();
            let beside = [".scales", ".biases"]
                .into_iter()
                .find_map(|ending| name.strip_suffix(ending))
                .map(|module| format!("{module}.weight"));
            if used.contains(name) || beside.is_some_and(|weight| used.contains(weight.as_str())) {
                continue;
            }
            if is_ignorable(name) || name.ends_with("rotary_emb.inv_freq") {
                unused.ignorable.push(name.to_owned());
            } else {
                unused.unknown.push(name.to_owned());
            }
        }
        unused
    }
}
