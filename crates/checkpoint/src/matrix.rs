//! Weight matrices under the checkpoint's own names, whatever they are stored as.

use samebit_arith::{Encoded, Format};

use crate::checkpoint::{Checkpoint, Source};
use crate::error::short;
use crate::mmap::Advice;
use crate::packed::Packed;
use crate::quantization::{Quantization, supported_methods};
use crate::tensor::Tensor;
use crate::{CheckpointError, DType, gguf};

/// A weight matrix `[rows, columns]` (outputs, inputs), or a stack of them `[experts, rows, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    name: &'a str,
    /// `None` for a matrix that is no stack.
    experts: Option<usize>,
    rows: usize,
    /// All experts' rows below each other.
    encoded: Encoded<'a>,
}

impl<'a> Matrix<'a> {
    /// Name of the tensor.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Storage format.
    pub fn format(&self) -> Format {
        self.encoded.format()
    }

    /// Number of stacked matrices; 1 for a matrix that is no stack.
    pub fn experts(&self) -> usize {
        self.experts.unwrap_or(1)
    }

    /// Whether the tensor has an outer dimension of experts.
    pub fn is_stacked(&self) -> bool {
        self.experts.is_some()
    }

    /// Rows (outputs) of one matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns (inputs).
    pub fn columns(&self) -> usize {
        self.encoded.columns()
    }

    /// One matrix of the stack.
    ///
    /// # Panics
    /// When `index` is not below [`Matrix::experts`].
    pub fn expert(&self, index: usize) -> Encoded<'a> {
        assert!(index < self.experts(), "expert {index} of {}", self.experts());
        self.encoded.row_range(index * self.rows, self.rows)
    }

    /// The whole tensor as one matrix; the experts of a stack lie below each other.
    pub fn encoded(&self) -> Encoded<'a> {
        self.encoded
    }

    /// Shape, outermost dimension first, in elements (not in packed words).
    pub fn shape(&self) -> Vec<usize> {
        self.experts.into_iter().chain([self.rows, self.columns()]).collect()
    }
}

impl Checkpoint {
    /// The matrix (or stack of expert matrices) under the name of its weight tensor.
    ///
    /// For MLX-quantized modules that is `<module>.weight`; its `.scales` and `.biases` are found by themselves. Where
    /// bits and group size follow neither from shapes nor from `config.json`, [`Checkpoint::matrix_of`] can still tell.
    ///
    /// # Errors
    /// When there is no such tensor, or it is not 2- or 3-dimensional, or arithmetic does not read its type, or shapes
    /// contradict each other or `config.json`.
    pub fn matrix(&self, name: &str) -> Result<Matrix<'_>, CheckpointError> {
        self.matrix_with(name, None)
    }

    /// [`Checkpoint::matrix`], which must be `[rows, columns]`.
    ///
    /// # Errors
    /// As [`Checkpoint::matrix`], and when the shape is another one.
    pub fn matrix_of(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix<'_>, CheckpointError> {
        let matrix = self.matrix_with(name, Some(columns))?;
        self.expect_shape(matrix, &[rows, columns])
    }

    /// [`Checkpoint::matrix`], which must be a stack `[experts, rows, columns]`.
    ///
    /// # Errors
    /// As [`Checkpoint::matrix`], and when the shape is another one.
    pub fn experts_of(
        &self,
        name: &str,
        experts: usize,
        rows: usize,
        columns: usize,
    ) -> Result<Matrix<'_>, CheckpointError> {
        let matrix = self.matrix_with(name, Some(columns))?;
        self.expect_shape(matrix, &[experts, rows, columns])
    }

    /// A norm weight or bias: a 1-dimensional tensor of plain floats, as f32 (exact, but for F64).
    ///
    /// # Errors
    /// When there is no such tensor, or it has another rank or type.
    pub fn vector(&self, name: &str) -> Result<Vec<f32>, CheckpointError> {
        let tensor = self.tensor(name)?;
        if tensor.shape().len() != 1 {
            return Err(tensor.wrong_shape("one dimension"));
        }
        tensor.to_f32()
    }

    /// [`Checkpoint::vector`], which must have `length` elements.
    ///
    /// # Errors
    /// As [`Checkpoint::vector`], and when the length is another one.
    pub fn vector_of(&self, name: &str, length: usize) -> Result<Vec<f32>, CheckpointError> {
        let tensor = self.tensor(name)?;
        if tensor.shape() != [length] {
            return Err(tensor.wrong_shape(format!("[{length}]")));
        }
        tensor.to_f32()
    }

    /// Tells the system how a tensor (and the scales and biases beside it) is going to be used. Only speed and memory
    /// depend on it; unknown names are ignored.
    pub fn advise(&self, name: &str, advice: Advice) {
        self.advise_tensor(name, advice);
        if let Some(module) = name.strip_suffix(".weight") {
            self.advise_tensor(&format!("{module}.scales"), advice);
            self.advise_tensor(&format!("{module}.biases"), advice);
        }
    }

    fn matrix_with(&self, name: &str, columns: Option<usize>) -> Result<Matrix<'_>, CheckpointError> {
        if let Quantization::Unsupported { method } = self.quantization() {
            return Err(CheckpointError::Unsupported {
                file: self.config().map_or(self.path(), |config| config.file()).to_path_buf(),
                place: "quantization_config.quant_method".to_owned(),
                found: short(method),
                supported: supported_methods(),
            });
        }
        let weight = self.tensor(name)?;
        match self.scales_of(name) {
            Some((module, scales)) => self.packed_matrix(module, weight, scales, columns),
            None => self.plain_matrix(weight),
        }
    }

    /// Module path and scales of an MLX-quantized module.
    fn scales_of<'a>(&self, name: &'a str) -> Option<(&'a str, Tensor<'_>)> {
        if self.source() != Source::Safetensors {
            return None;
        }
        let module = name.strip_suffix(".weight")?;
        Some((module, self.find(&format!("{module}.scales"))?))
    }

    fn plain_matrix<'a>(&self, tensor: Tensor<'a>) -> Result<Matrix<'a>, CheckpointError> {
        let (experts, rows, columns) = matrix_shape(tensor)?;
        let Some(format) = tensor.dtype().format() else {
            if tensor.dtype() == DType::U32 {
                let module = tensor.name().strip_suffix(".weight").unwrap_or(tensor.name());
                let place = format!("module {module}");
                let expected = format!("{module}.scales beside them");
                return Err(CheckpointError::malformed(tensor.file(), place, "packed U32 words", expected));
            }
            let supported = match self.source() {
                Source::Gguf => gguf::supported_names(),
                Source::Safetensors => supported_methods(),
            };
            return Err(tensor.wrong_type(&supported));
        };
        stack(tensor, experts, rows, |all_rows| Encoded::new(format, all_rows, columns, tensor.data()))
    }

    fn packed_matrix<'a>(
        &'a self,
        module: &str,
        weight: Tensor<'a>,
        scales: Tensor<'a>,
        columns: Option<usize>,
    ) -> Result<Matrix<'a>, CheckpointError> {
        let (experts, rows, words) = matrix_shape(weight)?;
        let (_, _, scales_per_row) = matrix_shape(scales)?;
        if weight.dtype() != DType::U32 {
            return Err(weight.wrong_type(&format!("U32 words, since there is {}", scales.name())));
        }
        same_but_last(weight, scales)?;
        let packed = Packed { module, weight, scales, words, scales_per_row };
        let (format, columns) = packed.resolve(self.config(), self.quantization(), columns)?;
        let biases_name = format!("{module}.biases");
        let biases = if matches!(format, Format::MlxAffine { .. }) {
            let biases = self.tensor(&biases_name)?;
            if biases.dtype() != scales.dtype() {
                return Err(biases.wrong_type(&format!("{}, as its scales have", scales.dtype())));
            }
            if biases.shape() != scales.shape() {
                return Err(biases.wrong_shape(format!("{:?}, as its scales have", scales.shape())));
            }
            biases.data()
        } else if let Some(biases) = self.find(&biases_name) {
            let place = format!("module {module}");
            let expected = format!("none, since it is stored as {format}");
            return Err(CheckpointError::malformed(biases.file(), place, biases_name, expected));
        } else {
            &[]
        };
        stack(weight, experts, rows, |all_rows| {
            Encoded::with_scales(format, all_rows, columns, weight.data(), scales.data(), biases)
        })
    }

    fn expect_shape<'a>(
        &self,
        matrix: Matrix<'a>,
        expected: &[usize],
    ) -> Result<Matrix<'a>, CheckpointError> {
        if matrix.shape() == expected {
            return Ok(matrix);
        }
        Err(CheckpointError::Shape {
            file: self.tensor(matrix.name)?.file().to_path_buf(),
            tensor: matrix.name.to_owned(),
            found: matrix.shape(),
            expected: format!("{expected:?}"),
        })
    }
}

/// `(experts, rows, columns)` of a 2- or 3-dimensional tensor, none of them zero.
fn matrix_shape(tensor: Tensor) -> Result<(Option<usize>, usize, usize), CheckpointError> {
    match *tensor.shape() {
        [rows, columns] if rows > 0 && columns > 0 => Ok((None, rows, columns)),
        [experts, rows, columns] if experts > 0 && rows > 0 && columns > 0 => {
            Ok((Some(experts), rows, columns))
        }
        _ => Err(tensor.wrong_shape("[rows, columns] or [experts, rows, columns], none of them zero")),
    }
}

/// Checks that scales have the outer dimensions of their weight.
fn same_but_last(weight: Tensor, scales: Tensor) -> Result<(), CheckpointError> {
    let outer = |tensor: Tensor<'_>| tensor.shape()[..tensor.shape().len() - 1].to_vec();
    if outer(weight) == outer(scales) {
        return Ok(());
    }
    let expected = format!("{:?} but for the last dimension, as {} has", weight.shape(), weight.name());
    Err(scales.wrong_shape(expected))
}

fn stack<'a>(
    tensor: Tensor<'a>,
    experts: Option<usize>,
    rows: usize,
    encode: impl FnOnce(usize) -> Result<Encoded<'a>, samebit_arith::EncodedError>,
) -> Result<Matrix<'a>, CheckpointError> {
    let Some(all_rows) = experts.unwrap_or(1).checked_mul(rows) else {
        return Err(tensor.wrong_shape("a size that fits in memory"));
    };
    let encoded = encode(all_rows).map_err(|source| CheckpointError::Encoded {
        file: tensor.file().to_path_buf(),
        tensor: tensor.name().to_owned(),
        source,
    })?;
    Ok(Matrix { name: tensor.name(), experts, rows, encoded })
}
