//! From hidden rows to logits.

use std::sync::Arc;

use samebit_arith::{Activations, Buffer, Cpu, Matrix};

/// The output projection, which may be the embedding's table.
#[derive(Debug)]
pub(crate) struct Head {
    weight: Arc<Matrix>,
    soft_cap: Option<f32>,
}

impl Head {
    /// From a matrix `[vocabulary, hidden]`; logits `x` become `cap * tanh(x / cap)` where there is a cap.
    pub(crate) fn new(weight: Arc<Matrix>, soft_cap: Option<f32>) -> Self {
        Self { weight, soft_cap }
    }

    /// The matrix.
    pub(crate) fn weight(&self) -> &Arc<Matrix> {
        &self.weight
    }

    /// Logits `[rows, vocabulary]` of normed rows `[rows, hidden]`.
    pub(crate) fn forward(&self, cpu: &Cpu, hidden: &[f32]) -> Buffer {
        let input = Activations::new(hidden, self.weight.columns());
        let mut logits = cpu.buffer(input.len() * self.weight.rows());
        cpu.matmul(&self.weight, &input, &mut logits);
        if let Some(cap) = self.soft_cap {
            cpu.soft_cap(&mut logits, cap);
        }
        logits
    }
}
