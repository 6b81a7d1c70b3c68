//! How probable a model finds a text: the sums behind perplexity and log-probabilities, in `f64`.
//!
//! This judges logits after the fact; it is no part of plan `sb1`, and no answer depends on it.

use crate::sampling::candidate_order;

/// Most candidates that [`log_probabilities`] lists.
pub const MAX_TOP: usize = 20;

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

/// How probable a row found a token, and which tokens it found most probable.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbabilities {
    /// Natural logarithm of the token's probability, at most 0; minus infinity for a probability of 0.
    pub chosen: f32,
    /// The most probable ids with theirs, in candidate order: logit descending, then id ascending.
    pub top: Vec<(u32, f32)>,
}

/// The log-probability of token `id` under the softmax of the row at temperature 1, and those of the `top` most probable
/// tokens (at most [`MAX_TOP`], and as many as there are).
///
/// Given the logits of the forward pass, this is what the model itself says, before bias, penalties, masks and
/// temperature. `None` if the row has no such id, or has no softmax: a NaN, a plus infinity, or nothing but minus
/// infinities.
///
/// The probabilities are [`log_sum_exp`]'s, one `f64` sum in ascending order of ids; each result is rounded to `f32` once.
pub fn log_probabilities(logits: &[f32], id: u32, top: usize) -> Option<LogProbabilities> {
    let chosen = *logits.get(id as usize)?;
    let whole = log_sum_exp(logits);
    if !whole.is_finite() {
        return None;
    }
    // Rounding may leave a certain token the least bit above 0.
    let relative = |logit: f32| (f64::from(logit) - whole).min(0.0) as f32;
    let top = best(logits, top.min(MAX_TOP));
    Some(LogProbabilities {
        chosen: relative(chosen),
        top: top.into_iter().map(|(id, logit)| (id, relative(logit))).collect(),
    })
}

/// The first `count` ids in candidate order with their logits, in one pass: few enough are kept for a sorted list.
fn best(logits: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(count + 1);
    for (id, logit) in (0..).zip(logits.iter().copied()) {
        // A later id of the same logit comes after those that are there.
        if best.len() == count && best.last().is_none_or(|(_, lowest)| logit <= *lowest) {
            continue;
        }
        let rank = best.partition_point(|(other, kept)| candidate_order(*kept, *other, logit, id).is_lt());
        best.insert(rank, (id, logit));
        best.truncate(count);
    }
    best
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
    use proptest::prelude::*;

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

    #[test]
    fn log_probabilities_of_a_known_row() {
        let logits: Vec<f32> = [0.5f32, 0.125, 0.125, 0.25].iter().map(|p| p.ln() + 3.0).collect();
        let found = log_probabilities(&logits, 2, 3).unwrap();
        let near = |found: f32, p: f32| (found - p.ln()).abs() < 1e-6;
        assert!(near(found.chosen, 0.125), "{found:?}");
        assert_eq!(found.top.iter().map(|(id, _)| *id).collect::<Vec<u32>>(), [0, 3, 1]);
        assert!(found.top.iter().zip([0.5, 0.25, 0.125]).all(|((_, found), p)| near(*found, p)));
        assert_eq!(log_probabilities(&logits, 0, 0).unwrap().top, []);
        assert_eq!(log_probabilities(&logits, 0, 9).unwrap().top.len(), 4);
        assert_eq!(log_probabilities(&logits, 4, 1), None);
    }

    #[test]
    fn rows_at_the_edges() {
        const NONE: f32 = f32::NEG_INFINITY;
        let certain = log_probabilities(&[NONE, 7.0], 1, 2).unwrap();
        assert_eq!((certain.chosen, &certain.top[..]), (0.0, &[(1, 0.0), (0, NONE)][..]));
        assert_eq!(log_probabilities(&[NONE, 7.0], 0, 0).unwrap().chosen, NONE);
        for row in [[NONE, NONE], [0.0, f32::NAN], [f32::INFINITY, 0.0]] {
            assert_eq!(log_probabilities(&row, 0, 1), None);
        }
        assert_eq!(log_probabilities(&[0.0; 64], 0, 64).unwrap().top.len(), MAX_TOP);
    }

    proptest! {
        #[test]
        fn the_best_are_those_of_a_sort(
            logits in proptest::collection::vec((-3i8..3).prop_map(f32::from), 0..80),
            count in 0usize..=MAX_TOP,
        ) {
            let mut sorted: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
            sorted.sort_by(|a, b| candidate_order(a.1, a.0, b.1, b.0));
            sorted.truncate(count);
            prop_assert_eq!(best(&logits, count), sorted);
        }
    }
}
