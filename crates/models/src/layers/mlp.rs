//! Dense feed-forward blocks.

use samebit_arith::{Activations, Buffer, Cpu};

use super::Linear;
use crate::ModelError;
use crate::weights::{Bias, Weights};

/// The non-linear function of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `x sigmoid(x)`.
    Silu,
    /// GELU in its tanh form.
    GeluTanh,
}

impl Activation {
    /// `gate = f(gate) * up`, element by element.
    pub(crate) fn gate(self, cpu: &Cpu, gate: &mut [f32], up: &[f32]) {
        match self {
            Self::Silu => cpu.silu_mul(gate, up),
            Self::GeluTanh => cpu.gelu_tanh_mul(gate, up),
        }
    }

    /// Name for people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::GeluTanh => "gelu (tanh)",
        }
    }
}

/// Module names of a gated feed-forward block, below the block's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedMlpNames {
    pub(crate) gate: &'static str,
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
}

/// `down(f(gate x) * up x)`.
#[derive(Debug)]
pub(crate) struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
}

impl GatedMlp {
    /// Reads a block of width `hidden` with `inner` columns inside.
    pub(crate) fn read(
        weights: &mut Weights<'_>,
        block: &str,
        names: GatedMlpNames,
        (hidden, inner): (usize, usize),
        activation: Activation,
        bias: Bias,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            gate: weights.linear(&format!("{block}.{}", names.gate), inner, hidden, bias)?,
            up: weights.linear(&format!("{block}.{}", names.up), inner, hidden, bias)?,
            down: weights.linear(&format!("{block}.{}", names.down), hidden, inner, bias)?,
            activation,
        })
    }

    /// Rows `[rows, hidden]` from rows `[rows, hidden]`.
    pub(crate) fn forward(&self, cpu: &Cpu, x: &[f32]) -> Buffer {
        let input = Activations::new(x, self.gate.inputs());
        let [mut inner, up] = Linear::forward_each(cpu, [&self.gate, &self.up], &input);
        self.activation.gate(cpu, &mut inner, &up);
        self.down.forward(cpu, &Activations::new(&inner[..], self.down.inputs()))
    }
}
