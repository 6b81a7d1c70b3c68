//! The frequencies of a rotary embedding and their published stretchings for longer contexts.
//!
//! Formulas as in transformers' `modeling_rope_utils`, in binary64 throughout.

use crate::double::{Llama3Scaling, YarnScaling};
use std::f64::consts::PI;

/// How fast every pair of a head turns, and what its cosines and sines are multiplied with.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeFrequencies {
    /// Radians per position, one per pair; half as many as rotated elements.
    pub inverse: Vec<f64>,
    /// Factor on cosine and sine; 1 but for YaRN.
    pub attention_factor: f64,
}

impl RopeFrequencies {
    /// `base^(-2 i / rotary_dim)` for every pair `i` of `rotary_dim` elements.
    pub fn plain(rotary_dim: usize, base: f64) -> Self {
        let inverse = (0..rotary_dim / 2).map(|i| plain(i, rotary_dim, base)).collect();
        Self { inverse, attention_factor: 1.0 }
    }

    /// Every frequency divided by `factor`.
    #[must_use]
    pub fn linear(self, factor: f64) -> Self {
        self.map(|_, inverse| inverse / factor)
    }

    /// Llama 3.1's stretching: long wavelengths by the whole factor, short ones not at all, a blend between.
    #[must_use]
    pub fn llama3(self, scaling: Llama3Scaling) -> Self {
        let Llama3Scaling { factor, low_freq_factor, high_freq_factor, original_context } = scaling;
        self.map(|_, inverse| {
            let turns = original_context * inverse / (2.0 * PI);
            if turns < low_freq_factor {
                inverse / factor
            } else if turns > high_freq_factor {
                inverse
            } else {
                let kept = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                (1.0 - kept) * inverse / factor + kept * inverse
            }
        })
    }

    /// YaRN: pairs that turn seldom over the original context are stretched by the whole factor, pairs that turn often
    /// not at all, with a ramp over the pairs between.
    pub fn yarn(rotary_dim: usize, base: f64, scaling: YarnScaling) -> Self {
        let YarnScaling { factor, beta_fast, beta_slow, original_context, attention_factor, truncate } =
            scaling;
        // The pair, as a real number, that turns `turns` times over the original context.
        let pair = |turns: f64| {
            rotary_dim as f64 * libm::log(original_context / (turns * 2.0 * PI)) / (2.0 * libm::log(base))
        };
        let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(rotary_dim as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        let stretched = Self::plain(rotary_dim, base).map(|i, inverse| {
            let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            inverse / factor * ramp + inverse * (1.0 - ramp)
        });
        Self { attention_factor, ..stretched }
    }

    /// Every frequency divided by its own factor: the tensor `rope_freqs.weight` of a GGUF file.
    ///
    /// # Panics
    /// When there is not one factor per pair.
    #[must_use]
    pub fn with_factors(self, factors: &[f32]) -> Self {
        assert_eq!(self.inverse.len(), factors.len(), "one factor per pair");
        self.map(|i, inverse| inverse / f64::from(factors[i]))
    }

    fn map(mut self, f: impl Fn(usize, f64) -> f64) -> Self {
        for (i, inverse) in self.inverse.iter_mut().enumerate() {
            *inverse = f(i, *inverse);
        }
        self
    }
}

fn plain(pair: usize, rotary_dim: usize, base: f64) -> f64 {
    libm::pow(base, -2.0 * pair as f64 / rotary_dim as f64)
}
