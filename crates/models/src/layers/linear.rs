//! Projections.

use samebit_arith::{Activations, Cpu, Matrix};

/// `y = W x + b`.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Matrix,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// From a matrix `[outputs, inputs]` and a bias `[outputs]`.
    pub(crate) fn new(weight: Matrix, bias: Option<Vec<f32>>) -> Self {
        Self { weight, bias }
    }

    /// Rows `[rows, outputs]` from rows `[rows, inputs]`.
    pub(crate) fn forward(&self, cpu: &Cpu, input: &Activations<'_>) -> Vec<f32> {
        let mut out = vec![0.0; input.len() * self.weight.rows()];
        cpu.matmul(&self.weight, input, &mut out);
        if let Some(bias) = &self.bias {
            cpu.add_bias(&mut out, bias);
        }
        out
    }

    /// Number of inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.weight.columns()
    }
}
