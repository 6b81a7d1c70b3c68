//! How probable a model finds a text: the sums behind perplexity, in `f64`.
//!
//! This judges logits after the fact; it is no part of plan `sb1`, and no answer depends on it.

/// Natural logarithm of the sum of `exp(logit)` over a row. NaN if the row holds one; minus infinity for an empty row.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !highest.is_finite() {
        // All minus infinity, a plus infinity, or no value: the result is that infinity, unless a NaN hides among them.
        return if logits.iter().any(|logit| logit.is_nan()) { f64::NAN } else { f64::from(highest) };
    }
    let highest = f64::from(highest);
    let sum: f64 = logits.iter().map(|logit| libm::exp(f64::from(*logit) - highest)).sum();
    highest + libm::log(sum)
}

/// Mean negative log-likelihood of predicted tokens, in nats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Likelihood {
    sum: f64,
    squares: f64,
    count: u64,
}

impl Likelihood {
    /// Counts the prediction of token `next` by a row of logits; `None`, and nothing counted, if the row has no such id.
    pub fn score(&mut self, logits: &[f32], next: u32) -> Option<f64> {
        let logit = *logits.get(usize::try_from(next).ok()?)?;
        let loss = log_sum_exp(logits) - f64::from(logit);
        self.sum += loss;
        self.squares += loss * loss;
        self.count += 1;
        Some(loss)
    }

    /// How many predictions were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean negative log-likelihood in nats; NaN before the first prediction.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// `exp` of the mean.
    pub fn perplexity(&self) -> f64 {
        libm::exp(self.mean())
    }

    /// Standard error of [`perplexity`](Self::perplexity), taking the predictions as independent; NaN for fewer than two.
    pub fn perplexity_error(&self) -> f64 {
        if self.count < 2 {
            return f64::NAN;
        }
        let mean = self.mean();
        let variance = self.squares / self.count as f64 - mean * mean;
        self.perplexity() * (variance.max(0.0) / (self.count - 1) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_known_sums() {
        assert!((log_sum_exp(&[0.0; 8]) - 8f64.ln()).abs() < 1e-15);
        assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2f64.ln())).abs() < 1e-12);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY, 3.0]), 3.0);
        assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
        assert!(log_sum_exp(&[0.0, f32::NAN]).is_nan());
    }

    #[test]
    fn a_uniform_guess_over_n_has_perplexity_n() {
        let mut likelihood = Likelihood::default();
        for next in 0..10 {
            likelihood.score(&[0.5; 10], next).unwrap();
        }
        assert_eq!(likelihood.score(&[0.5; 10], 10), None);
        assert_eq!(likelihood.count(), 10);
        assert!((likelihood.perplexity() - 10.0).abs() < 1e-12);
        assert!(likelihood.perplexity_error() < 1e-6);
    }

    #[test]
    fn the_error_is_that_of_a_mean() {
        let mut likelihood = Likelihood::default();
        let row = [0.0, 2f32.ln()];
        for next in [0, 1, 0, 1] {
            likelihood.score(&row, next).unwrap();
        }
        // Losses ln 3 and ln 1.5 in equal numbers: the standard deviation is half of ln 2.
        let expected = likelihood.perplexity() * 2f64.ln() / 2.0 / 3f64.sqrt();
        assert!((likelihood.perplexity_error() - expected).abs() < 1e-6);
    }
}
