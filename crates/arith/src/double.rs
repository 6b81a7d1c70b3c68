//! Plain `f64` arithmetic: the yardstick that the `f32` plan is measured with.
//!
//! Nothing here is fast and nothing here is part of plan `sb1`. These are the textbook formulas of a transformer in
//! double precision, so that the `trace` verb can show every intermediate of a small model, and so that tests have a
//! second opinion which shares no code with the kernels. `exp`, `tanh`, `sin`, `cos`, `pow` and `ln` come from `libm`,
//! which is compiled Rust: the results are the same on every machine.

mod rope;

pub use rope::{Llama3Scaling, Rope, RopeScaling, YarnScaling};

/// Sum of `a[i] * b[i]` over the shorter length.
///
/// Eight partial sums by `i mod 8`, added as `((0+4)+(2+6)) + ((1+5)+(3+7))`: a fixed order, and one that compilers turn
/// into vector code without being allowed to change it.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a_chunks, b_chunks) = (a.chunks_exact(8), b.chunks_exact(8));
    let shorter = a.len().min(b.len());
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..8 {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    for (lane, index) in (shorter - shorter % 8..shorter).enumerate() {
        lanes[lane] += a[index] * b[index];
    }
    add_lanes(lanes)
}

fn add_lanes(lanes: [f64; 8]) -> f64 {
    let four = [lanes[0] + lanes[4], lanes[1] + lanes[5], lanes[2] + lanes[6], lanes[3] + lanes[7]];
    (four[0] + four[2]) + (four[1] + four[3])
}

/// `into[i] += scale * values[i]`: one residual add (`scale` 1), or one step of an attention or expert mixture.
pub fn add_scaled(into: &mut [f64], scale: f64, values: &[f64]) {
    for (sum, value) in into.iter_mut().zip(values) {
        *sum += scale * value;
    }
}

/// Sum of `values`, in the order of [`dot`].
pub fn sum(values: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    for chunk in values.chunks(8) {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value;
        }
    }
    add_lanes(lanes)
}

/// Root of the mean square; 0 for no values.
pub fn root_mean_square(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { (dot(values, values) / values.len() as f64).sqrt() }
}

/// Euclidean length.
pub fn euclidean_norm(values: &[f64]) -> f64 {
    dot(values, values).sqrt()
}

/// Largest `|a[i] - b[i]|` over the shorter length; 0 for no values, NaN where one of the differences is NaN.
pub fn max_abs_difference(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, |max, d| if d > max || d.is_nan() { d } else { max })
}

/// RMS norm of one row: `x / sqrt(mean(x^2) + eps) * (weight + offset)`. `offset` is 1 for the families that store their
/// norm weights zero-centred (Gemma), else 0.
pub fn rms_norm(x: &[f64], weight: &[f64], offset: f64, eps: f64) -> Vec<f64> {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter().zip(weight).map(|(value, weight)| value * scale * (weight + offset)).collect()
}

/// Softmax in place. Entries of minus infinity get exactly 0; a row of nothing else stays without a finite value.
pub fn softmax(scores: &mut [f64]) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for score in scores.iter_mut() {
        *score = libm::exp(*score - max);
    }
    let total = sum(scores);
    for score in scores.iter_mut() {
        *score /= total;
    }
}

/// `x * sigmoid(x)`.
pub fn silu(x: f64) -> f64 {
    x / (1.0 + libm::exp(-x))
}

/// GELU in its tanh form: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
pub fn gelu_tanh(x: f64) -> f64 {
    let root = (2.0 / std::f64::consts::PI).sqrt();
    0.5 * x * (1.0 + libm::tanh(root * (x + 0.044715 * x * x * x)))
}

/// `cap * tanh(x / cap)`: the soft cap of attention scores and logits.
pub fn soft_cap(x: f64, cap: f64) -> f64 {
    cap * libm::tanh(x / cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_covers_whole_chunks_and_tails() {
        for length in 0..40 {
            let a: Vec<f64> = (0..length).map(|i| f64::from(i) + 1.0).collect();
            let b: Vec<f64> = (0..length).map(|i| f64::from(i) - 7.0).collect();
            let exact: f64 = (0..length).map(|i| f64::from((i + 1) * (i - 7))).sum();
            assert_eq!(dot(&a, &b), exact, "{length} values");
            assert_eq!(sum(&a), f64::from(length * (length + 1) / 2), "{length} values");
        }
    }

    #[test]
    fn dot_keeps_its_written_order() {
        // Lane 0 holds 1e16, lane 4 takes it away: the one in lane 2 survives only because 0 and 4 meet first.
        let mut values = [0.0; 8];
        (values[0], values[4], values[2]) = (1e16, -1e16, 1.0);
        assert_eq!(dot(&values, &[1.0; 8]), 1.0);
    }

    #[test]
    fn masked_scores_get_exactly_nothing() {
        let mut scores = [0.5, f64::NEG_INFINITY, 0.5, -1000.0];
        softmax(&mut scores);
        assert_eq!(scores, [0.5, 0.0, 0.5, 0.0]);
    }

    #[test]
    fn norms_and_activations_at_known_points() {
        assert_eq!(rms_norm(&[3.0, -3.0], &[2.0, 0.0], 0.0, 0.0), [2.0, 0.0]);
        assert_eq!(rms_norm(&[3.0, -3.0], &[1.0, 0.0], 1.0, 0.0), [2.0, -1.0]);
        assert_eq!(root_mean_square(&[3.0, -3.0]), 3.0);
        assert_eq!(euclidean_norm(&[3.0, 4.0]), 5.0);
        assert_eq!(max_abs_difference(&[1.0, 5.0], &[2.0, 2.0]), 3.0);
        assert!(max_abs_difference(&[f64::NAN, 5.0], &[2.0, 2.0]).is_nan());
        // Reference values with 30 digits of precision, rounded.
        assert!((silu(1.5) - 1.226_361_714_290_465_5).abs() < 1e-15);
        assert!((gelu_tanh(1.5) - 1.399_571_576_980_232_9).abs() < 1e-15);
        assert_eq!(soft_cap(0.0, 30.0), 0.0);
        assert!((soft_cap(1e9, 30.0) - 30.0).abs() < 1e-12);
    }
}
