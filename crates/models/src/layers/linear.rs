//! Projections.

use samebit_arith::{Activations, Buffer, Cpu, Matrix};

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
    pub(crate) fn forward(&self, cpu: &Cpu, input: &Activations<'_>) -> Buffer {
        let [out] = Self::forward_each(cpu, [self], input);
        out
    }

    /// [`Linear::forward`] of several projections of the same rows, side by side.
    pub(crate) fn forward_each<const N: usize>(
        cpu: &Cpu,
        linears: [&Self; N],
        input: &Activations<'_>,
    ) -> [Buffer; N] {
        let mut outs = linears.map(|linear| cpu.buffer(input.len() * linear.weight.rows()));
        let mut of = linears.iter();
        let products =
            outs.each_mut().map(|out| (&of.next().expect("one for every output").weight, &mut **out));
        cpu.matmul_each(products, input);
        for (linear, out) in linears.iter().zip(&mut outs) {
            if let Some(bias) = &linear.bias {
                cpu.add_bias(out, bias);
            }
        }
        outs
    }

    /// Number of inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.weight.columns()
    }
}
