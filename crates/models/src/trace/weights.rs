//! The weights of a small model, decoded to `f64` row by row.

use samebit_arith::Encoded;
use samebit_arith::double::{add_scaled, dot};
use samebit_checkpoint::{Checkpoint, DType};

use super::TraceError;
use super::architecture::{Architecture, BlockPlan, Family, Routing};
use super::forward::Rows;
use super::names;

/// A matrix of `[outputs, inputs]`.
pub(super) enum Matrix<'a> {
    /// Stored as F64: all values, row-major.
    Double { inputs: usize, values: Vec<f64> },
    /// Stored in anything that a matrix product reads; decoding is exact.
    Encoded(Encoded<'a>),
}

impl Matrix<'_> {
    /// One row: the embedding of a token, or the weights of one output.
    pub(super) fn row(&self, row: usize) -> Vec<f64> {
        match self {
            Self::Double { inputs, values } => values[row * inputs..(row + 1) * inputs].to_vec(),
            Self::Encoded(encoded) => {
                let mut single = vec![0.0; encoded.columns()];
                encoded.dequantize_row(row, &mut single);
                single.into_iter().map(f64::from).collect()
            }
        }
    }

    /// The product with each row of activations.
    pub(super) fn apply(&self, rows: &Rows) -> Rows {
        let outputs = match self {
            Self::Double { inputs, values } => values.len() / inputs,
            Self::Encoded(encoded) => encoded.rows(),
        };
        let mut products = vec![Vec::with_capacity(outputs); rows.len()];
        for output in 0..outputs {
            let weights = self.row(output);
            for (product, row) in products.iter_mut().zip(rows) {
                product.push(dot(&weights, row));
            }
        }
        products
    }
}

/// A projection.
pub(super) struct Linear<'a> {
    matrix: Matrix<'a>,
    bias: Option<Vec<f64>>,
}

impl Linear<'_> {
    /// `W x + b` for each row of activations.
    pub(super) fn apply(&self, rows: &Rows) -> Rows {
        let mut products = self.matrix.apply(rows);
        if let Some(bias) = &self.bias {
            products.iter_mut().for_each(|product| add_scaled(product, 1.0, bias));
        }
        products
    }
}

/// A gated feed-forward block, or one expert.
pub(super) struct Gated<'a> {
    pub(super) gate: Linear<'a>,
    pub(super) up: Linear<'a>,
    pub(super) down: Linear<'a>,
}

/// Experts and the matrix that chooses among them.
pub(super) struct Routed<'a> {
    pub(super) router: Matrix<'a>,
    pub(super) experts: Vec<Gated<'a>>,
    pub(super) plan: Routing,
}

/// The second half of a block.
pub(super) enum FeedForward<'a> {
    Dense(Gated<'a>),
    Routed(Routed<'a>),
}

/// One block.
pub(super) struct Block<'a> {
    pub(super) input_norm: Vec<f64>,
    pub(super) q: Linear<'a>,
    pub(super) k: Linear<'a>,
    pub(super) v: Linear<'a>,
    pub(super) o: Linear<'a>,
    /// Norms of each query and key head, before the rotation.
    pub(super) head_norms: Option<(Vec<f64>, Vec<f64>)>,
    /// Norms of what attention and feed-forward give, before they are added (gemma3).
    pub(super) output_norms: Option<(Vec<f64>, Vec<f64>)>,
    pub(super) feed_forward_norm: Vec<f64>,
    pub(super) feed_forward: FeedForward<'a>,
}

/// Every weight.
pub(super) struct Weights<'a> {
    pub(super) embedding: Matrix<'a>,
    pub(super) blocks: Vec<Block<'a>>,
    pub(super) final_norm: Vec<f64>,
    /// `None` where the head is the embedding.
    pub(super) head: Option<Matrix<'a>>,
}

impl<'a> Weights<'a> {
    /// Finds all weights, checking every shape.
    pub(super) fn read(checkpoint: &'a Checkpoint, architecture: &Architecture) -> Result<Self, TraceError> {
        let reader = Reader { checkpoint, architecture };
        let (vocabulary, hidden) = (architecture.vocabulary, architecture.hidden);
        let name = |module| architecture.names.module(module);
        let blocks = architecture.blocks.iter().enumerate().map(|(layer, plan)| reader.block(layer, plan));
        Ok(Self {
            embedding: reader.matrix(&name(&names::EMBEDDING), vocabulary, hidden)?,
            blocks: blocks.collect::<Result<_, _>>()?,
            final_norm: reader.vector(&format!("{}.weight", name(&names::FINAL_NORM)), hidden)?,
            head: match architecture.tied {
                true => None,
                false => Some(reader.matrix(&name(&names::HEAD), vocabulary, hidden)?),
            },
        })
    }

    /// The matrix that gives the logits.
    pub(super) fn head(&self) -> &Matrix<'a> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

struct Reader<'a, 'b> {
    checkpoint: &'a Checkpoint,
    architecture: &'b Architecture,
}

impl<'a> Reader<'a, '_> {
    fn block(&self, layer: usize, plan: &BlockPlan) -> Result<Block<'a>, TraceError> {
        let architecture = self.architecture;
        let (hidden, head_size) = (architecture.hidden, architecture.head_size);
        let (queries, keys) = (architecture.query_width(), architecture.kv_width());
        let (qkv_bias, output_bias) = (architecture.qkv_bias, architecture.output_bias);
        let name = |module| architecture.names.block_module(layer, module);
        let norm = |module, size| self.vector(&format!("{}.weight", name(module)), size);
        let has_head_norms = matches!(architecture.family, Family::Qwen3 | Family::Qwen3Moe | Family::Gemma3);
        let has_output_norms = architecture.family == Family::Gemma3;
        Ok(Block {
            input_norm: norm(&names::INPUT_NORM, hidden)?,
            q: self.linear(&name(&names::Q), queries, hidden, qkv_bias)?,
            k: self.linear(&name(&names::K), keys, hidden, qkv_bias)?,
            v: self.linear(&name(&names::V), keys, hidden, qkv_bias)?,
            o: self.linear(&name(&names::O), hidden, queries, output_bias)?,
            head_norms: match has_head_norms {
                true => Some((norm(&names::Q_NORM, head_size)?, norm(&names::K_NORM, head_size)?)),
                false => None,
            },
            output_norms: match has_output_norms {
                true => Some((
                    norm(&names::ATTENTION_OUTPUT_NORM, hidden)?,
                    norm(&names::FEED_FORWARD_OUTPUT_NORM, hidden)?,
                )),
                false => None,
            },
            feed_forward_norm: norm(&names::FEED_FORWARD_NORM, hidden)?,
            feed_forward: match plan.routing {
                Some(plan) => FeedForward::Routed(self.routed(layer, plan)?),
                None => {
                    let modules = [&names::GATE, &names::UP, &names::DOWN].map(name);
                    FeedForward::Dense(self.gated(&modules, architecture.inner)?)
                }
            },
        })
    }

    /// Experts, which are traced from folders only.
    fn routed(&self, layer: usize, plan: Routing) -> Result<Routed<'a>, TraceError> {
        let path = format!("model.layers.{layer}.mlp");
        let router = self.matrix(&format!("{path}.gate"), plan.experts, self.architecture.hidden)?;
        let expert = |id| {
            let modules = ["gate", "up", "down"].map(|part| format!("{path}.experts.{id}.{part}_proj"));
            self.gated(&modules, plan.inner)
        };
        Ok(Routed { router, experts: (0..plan.experts).map(expert).collect::<Result<_, _>>()?, plan })
    }

    fn gated(&self, [gate, up, down]: &[String; 3], inner: usize) -> Result<Gated<'a>, TraceError> {
        let (hidden, bias) = (self.architecture.hidden, self.architecture.feed_forward_bias);
        Ok(Gated {
            gate: self.linear(gate, inner, hidden, bias)?,
            up: self.linear(up, inner, hidden, bias)?,
            down: self.linear(down, hidden, inner, bias)?,
        })
    }

    fn linear(
        &self,
        module: &str,
        outputs: usize,
        inputs: usize,
        bias: bool,
    ) -> Result<Linear<'a>, TraceError> {
        let matrix = self.matrix(module, outputs, inputs)?;
        let bias = if bias { Some(self.vector(&format!("{module}.bias"), outputs)?) } else { None };
        Ok(Linear { matrix, bias })
    }

    fn matrix(&self, module: &str, outputs: usize, inputs: usize) -> Result<Matrix<'a>, TraceError> {
        let name = format!("{module}.weight");
        if self.checkpoint.tensor(&name)?.dtype() == DType::F64 {
            return Ok(Matrix::Double { inputs, values: self.plain(&name, &[outputs, inputs])? });
        }
        Ok(Matrix::Encoded(self.checkpoint.matrix_of(&name, outputs, inputs)?.encoded()))
    }

    fn vector(&self, name: &str, length: usize) -> Result<Vec<f64>, TraceError> {
        self.plain(name, &[length])
    }

    /// A tensor of plain floats.
    fn plain(&self, name: &str, shape: &[usize]) -> Result<Vec<f64>, TraceError> {
        let tensor = self.checkpoint.tensor(name)?;
        if tensor.shape() != shape {
            return Err(TraceError::Shape {
                name: name.into(),
                found: tensor.shape().into(),
                expected: shape.into(),
            });
        }
        Ok(tensor.to_f64()?)
    }
}
