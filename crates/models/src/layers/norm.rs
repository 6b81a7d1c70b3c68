//! RMS norms.

use samebit_arith::{Buffer, Cpu};

use crate::ModelError;
use crate::weights::Weights;

/// `y = x / sqrt(mean(x^2) + epsilon) * weight`, over rows of `weight`'s length.
#[derive(Debug)]
pub(crate) struct RmsNorm {
    weight: Vec<f32>,
    epsilon: f32,
}

impl RmsNorm {
    /// The norm whose weight is stored as it is used.
    pub(crate) fn read(
        weights: &mut Weights<'_>,
        module: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<Self, ModelError> {
        Ok(Self { weight: weights.vector(&format!("{module}.weight"), width)?, epsilon })
    }

    /// The norm whose weight is stored less 1: zero-centred, as Gemma trains it.
    pub(crate) fn read_zero_centred(
        weights: &mut Weights<'_>,
        module: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<Self, ModelError> {
        let mut norm = Self::read(weights, module, width, epsilon)?;
        for weight in &mut norm.weight {
            *weight += 1.0;
        }
        Ok(norm)
    }

    /// Normed rows.
    pub(crate) fn forward(&self, cpu: &Cpu, x: &[f32]) -> Buffer {
        let mut out = cpu.buffer(x.len());
        cpu.rms_norm(x, &self.weight, self.epsilon, &mut out);
        out
    }

    /// Norms rows, or heads, where they are.
    pub(crate) fn in_place(&self, cpu: &Cpu, x: &mut [f32]) {
        cpu.rms_norm_in_place(x, &self.weight, self.epsilon);
    }
}
