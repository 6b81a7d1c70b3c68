//! How far logits are from the truth: KL divergence in nats over the whole vocabulary, or over 33 outcomes.

/// Natural logarithm of the sum of exponentials.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let highest = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    highest + logits.iter().map(|logit| (f64::from(*logit) - highest).exp()).sum::<f64>().ln()
}

/// `p ln(p / q) - p + q`: never negative, and the same as the terms of KL in sum when both distributions are whole. In
/// this form the rounding of the stored truth cancels.
fn term(p: f64, q: f64) -> f64 {
    if p == 0.0 { q } else { p * (p / q).ln() - p + q }
}

/// KL(reference || ours) over the whole vocabulary.
pub fn kl(reference: &[f32], ours: &[f32]) -> f64 {
    assert_eq!(reference.len(), ours.len());
    let (reference_sum, our_sum) = (log_sum_exp(reference), log_sum_exp(ours));
    reference
        .iter()
        .zip(ours)
        .map(|(p, q)| term((f64::from(*p) - reference_sum).exp(), (f64::from(*q) - our_sum).exp()))
        .sum()
}

/// KL(reference || ours) over the reference's best ids, each by itself, and all the rest as one outcome.
///
/// `best` are `(id, reference logit)`, `reference_sum` is the log of the reference's sum of exponentials.
pub fn kl_of_best(best: &[(usize, f64)], reference_sum: f64, ours: &[f32]) -> f64 {
    let our_sum = log_sum_exp(ours);
    let (mut divergence, mut reference_rest, mut our_rest) = (0.0, 1.0, 1.0);
    for (id, logit) in best {
        let p = (logit - reference_sum).exp();
        let q = (f64::from(ours[*id]) - our_sum).exp();
        divergence += term(p, q);
        reference_rest -= p;
        our_rest -= q;
    }
    // Where the rest is nearly nothing, what is left of 1 is rounding noise of either sign.
    divergence + term(f64::max(reference_rest, 1e-12), f64::max(our_rest, 1e-12))
}

/// Index of the highest logit, the lowest on ties.
pub fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    best
}
