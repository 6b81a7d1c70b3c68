//! Choosing the next token from a row of logits: a pure function of the row, the options, the seed, the position and
//! the ids. Nothing about how the row was computed can enter.
//!
//! The definition:
//! * *Candidate order* is logit descending, then id ascending.
//! * **Top-k** keeps the first k candidates.
//! * **Top-p** works on the plan's softmax over the whole row, at temperature 1. With `mass` the `f64` sum of the kept
//!   probabilities in candidate order (1 where top-k keeps everything), candidates are kept while the running `f64` sum
//!   of those before them is below `top_p * mass`; the first is always kept.
//! * **Min-p** drops candidates whose probability is below `min_p` times that of the first.
//! * The **choice** is the candidate with the largest `logit / temperature + gumbel(seed, position, id)` in `f64`; the
//!   first in candidate order on ties. This is an exact draw from the softmax at that temperature, and the noise of one
//!   token does not depend on the others.
//!
//! What penalties, biases and masks do to a row before that is in [`adjust`].

pub mod adjust;

use std::cmp::Ordering;

use crate::Cpu;

/// Which candidates may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter {
    /// Keep this many of the largest logits; `None` keeps all.
    pub top_k: Option<usize>,
    /// Keep the smallest set of candidates with at least this share of the probability, in `(0, 1]`; 1 keeps all.
    pub top_p: f64,
    /// Drop candidates less probable than this share of the best one's, in `[0, 1]`; 0 keeps all.
    pub min_p: f64,
}

impl Filter {
    /// Whether every candidate passes.
    pub fn keeps_all(&self) -> bool {
        self.top_k.is_none() && self.top_p >= 1.0 && self.min_p <= 0.0
    }
}

/// The id of the highest logit, the lowest id on ties; `None` for an empty row or one that holds a NaN.
pub fn argmax(logits: &[f32]) -> Option<u32> {
    let mut best: Option<(u32, f32)> = None;
    for (id, logit) in (0..).zip(logits.iter().copied()) {
        if logit.is_nan() {
            return None;
        }
        if best.is_none_or(|(_, highest)| logit > highest) {
            best = Some((id, logit));
        }
    }
    best.map(|(id, _)| id)
}

/// The noise of token `id` at absolute `position` under `seed`: one draw from the standard Gumbel distribution.
pub fn gumbel(seed: u64, position: u64, id: u32) -> f64 {
    gumbel_of(uniform_bits(position_key(seed, position), id))
}

/// The ids that `filter` keeps, in candidate order, or `None` when it keeps all (then no order is computed).
///
/// `logits` must hold no NaN.
pub fn candidates(cpu: &Cpu, logits: &[f32], filter: &Filter) -> Option<Vec<u32>> {
    if filter.keeps_all() {
        return None;
    }
    let by_probability = filter.top_p < 1.0 || filter.min_p > 0.0;
    let kept_by_rank = filter.top_k.unwrap_or(logits.len()).min(logits.len());
    if !by_probability {
        return Some(best_candidates(logits, kept_by_rank));
    }

    let mut probabilities = logits.to_vec();
    cpu.softmax(&mut probabilities, logits.len());
    // The kept set is usually small. Sorting a whole vocabulary for it would cost more than the forward pass of a small
    // model, so without top-k a growing number of the best is sorted until the cut is among them.
    let mut sorted = if filter.top_k.is_some() { kept_by_rank } else { kept_by_rank.min(256) };
    loop {
        let best = best_candidates(logits, sorted);
        let kept = cut_by_probability(&best, &probabilities, filter);
        if kept < best.len() || sorted == kept_by_rank {
            return Some(best[..kept].to_vec());
        }
        sorted = sorted.saturating_mul(8).min(kept_by_rank);
    }
}

/// The candidate with the largest `logit / temperature + gumbel(seed, position, id)`; the earliest in `kept` on ties, or
/// the first in candidate order when `kept` is `None` and every id is a candidate. `None` when there is no candidate.
///
/// `temperature` must be positive, `logits` must hold no NaN, and ids in `kept` must lie within it.
pub fn perturbed_argmax(
    logits: &[f32],
    kept: Option<&[u32]>,
    temperature: f64,
    seed: u64,
    position: u64,
) -> Option<u32> {
    let key = position_key(seed, position);
    let mut best: Option<Perturbed> = None;
    let mut consider = |id: u32, logit: f32| {
        let scaled = f64::from(logit) / temperature;
        let bits = uniform_bits(key, id);
        if best.as_ref().is_some_and(|best| scaled + gumbel_bound(bits) < best.value) {
            return;
        }
        let candidate = Perturbed { id, logit, value: scaled + gumbel_of(bits) };
        if best.as_ref().is_none_or(|best| candidate.beats(best)) {
            best = Some(candidate);
        }
    };
    match kept {
        Some(ids) => ids.iter().for_each(|id| consider(*id, logits[*id as usize])),
        None => (0..).zip(logits).for_each(|(id, logit)| consider(id, *logit)),
    }
    best.map(|best| best.id)
}

struct Perturbed {
    id: u32,
    logit: f32,
    value: f64,
}

impl Perturbed {
    fn beats(&self, other: &Self) -> bool {
        match self.value.partial_cmp(&other.value) {
            Some(Ordering::Equal) => candidate_order(self.logit, self.id, other.logit, other.id).is_lt(),
            ordering => ordering == Some(Ordering::Greater),
        }
    }
}

/// Candidate order of two tokens.
pub(crate) fn candidate_order(a_logit: f32, a_id: u32, b_logit: f32, b_id: u32) -> Ordering {
    // No NaN reaches this place, so a missing order cannot happen.
    b_logit.partial_cmp(&a_logit).unwrap_or(Ordering::Equal).then(a_id.cmp(&b_id))
}

/// The first `count` ids in candidate order.
fn best_candidates(logits: &[f32], count: usize) -> Vec<u32> {
    let order = |a: &u32, b: &u32| candidate_order(logits[*a as usize], *a, logits[*b as usize], *b);
    let mut ids: Vec<u32> = (0..).take(logits.len()).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids
}

/// How many of `best` pass top-p and min-p.
fn cut_by_probability(best: &[u32], probabilities: &[f32], filter: &Filter) -> usize {
    let probability = |id: &u32| f64::from(probabilities[*id as usize]);
    let mass: f64 = if filter.top_k.is_some() { best.iter().map(probability).sum() } else { 1.0 };
    let least = filter.min_p * best.first().map_or(0.0, probability);
    let mut before = 0.0;
    for (rank, id) in best.iter().enumerate() {
        let outside = filter.top_p < 1.0 && before >= filter.top_p * mass;
        if rank > 0 && (outside || probability(id) < least) {
            return rank;
        }
        before += probability(id);
    }
    best.len()
}

/// The finalizer of splitmix64.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The part of the noise that all tokens of one position share.
fn position_key(seed: u64, position: u64) -> u64 {
    let x = mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15));
    mix(x ^ position.wrapping_mul(0xD1B5_4A32_D192_ED03))
}

/// 53 uniform bits.
fn uniform_bits(key: u64, id: u32) -> u64 {
    mix(key ^ u64::from(id)) >> 11
}

/// `-ln(-ln u)` with `u = bits * 2^-53 + 2^-54`, which lies strictly between 0 and 1.
fn gumbel_of(bits: u64) -> f64 {
    const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
    let u = bits as f64 * UNIT + 0.5 * UNIT;
    -libm::log(-libm::log(u))
}

/// A cheap bound: `gumbel_of(bits)` is never larger.
///
/// Since `-ln u >= 1 - u`, the noise is at most `-ln(1 - u)`. `1 - u` is an odd multiple of `2^-54`; `u` rounded to
/// binary64 may be larger by one such unit, and is 1 for the largest `bits`, whose noise is infinite.
fn gumbel_bound(bits: u64) -> f64 {
    let least_complement = 2 * ((1u64 << 53) - bits) - 2;
    if least_complement == 0 {
        return f64::INFINITY;
    }
    let halvings = 54 - least_complement.ilog2();
    // The margin covers the roundings of the two logarithms and of this product.
    f64::from(halvings) * std::f64::consts::LN_2 + 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use proptest::prelude::*;

    fn cpu() -> Cpu {
        Cpu::new(Isa::Scalar, 1).unwrap()
    }

    fn filter(top_k: Option<usize>, top_p: f64, min_p: f64) -> Filter {
        Filter { top_k, top_p, min_p }
    }

    /// The definition without any shortcut.
    fn slow_choice(logits: &[f32], kept: &[u32], temperature: f64, seed: u64, position: u64) -> u32 {
        let value = |id: u32| f64::from(logits[id as usize]) / temperature + gumbel(seed, position, id);
        let mut ids = kept.to_vec();
        ids.sort_by(|a, b| candidate_order(logits[*a as usize], *a, logits[*b as usize], *b));
        let mut best = ids[0];
        for id in ids {
            if value(id) > value(best) {
                best = id;
            }
        }
        best
    }

    #[test]
    fn argmax_prefers_the_lowest_id_and_refuses_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, -1.0]), Some(1));
        assert_eq!(argmax(&[-0.0, 0.0]), Some(0));
        assert_eq!(argmax(&[f32::NEG_INFINITY; 3]), Some(0));
        assert_eq!(argmax(&[1.0, f32::NAN]), None);
        assert_eq!(argmax(&[]), None);
    }

    #[test]
    fn noise_at_known_points() {
        // Computed from the formulas in Python integers and 50-digit decimals, then rounded.
        let known = [
            (0, 0, 0, -0.4662735186548661),
            (1, 2, 3, 2.2021758640876974),
            (42, 31, 262143, 0.7864838565642874),
            (9_223_372_036_854_775_807, 1000000, 49151, 1.1114814171455283),
            (u64::MAX, 0, 4294967295, -0.8794195206601285),
        ];
        for (seed, position, id, value) in known {
            let noise = gumbel(seed, position, id);
            assert!((noise - value).abs() <= 1e-15 * value.abs().max(1.0), "{seed} {position} {id}: {noise}");
        }
    }

    #[test]
    fn noise_is_gumbel_distributed() {
        // Mean and variance of the standard Gumbel distribution are 0.5772 and pi^2/6 = 1.6449.
        let draws: Vec<f64> = (0..100_000).map(|id| gumbel(7, 3, id)).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5772).abs() < 0.02 && (variance - 1.6449).abs() < 0.05, "{mean} {variance}");
    }

    #[test]
    fn filters_keep_what_they_say() {
        let cpu = cpu();
        // Probabilities 0.4, 0.1, 0.3, 0.2.
        let logits: Vec<f32> = [0.4f32, 0.1, 0.3, 0.2].iter().map(|p| p.ln()).collect();
        let kept = |top_k, top_p, min_p| candidates(&cpu, &logits, &filter(top_k, top_p, min_p));
        assert_eq!(kept(None, 1.0, 0.0), None);
        assert_eq!(kept(Some(2), 1.0, 0.0), Some(vec![0, 2]));
        assert_eq!(kept(Some(9), 1.0, 0.0), Some(vec![0, 2, 3, 1]));
        assert_eq!(kept(None, 0.39, 0.0), Some(vec![0]));
        assert_eq!(kept(None, 0.41, 0.0), Some(vec![0, 2]));
        assert_eq!(kept(None, 0.71, 0.0), Some(vec![0, 2, 3]));
        assert_eq!(kept(None, 1e-9, 0.0), Some(vec![0]));
        // Two kept by rank hold 0.7; 0.5 of that is less than the first one's 0.4.
        assert_eq!(kept(Some(2), 0.5, 0.0), Some(vec![0]));
        assert_eq!(kept(Some(2), 0.6, 0.0), Some(vec![0, 2]));
        assert_eq!(kept(None, 1.0, 0.6), Some(vec![0, 2]));
        assert_eq!(kept(None, 0.95, 0.6), Some(vec![0, 2]));
        assert_eq!(kept(None, 1.0, 1.0), Some(vec![0]));
    }

    #[test]
    fn a_flat_row_is_cut_beyond_the_first_sorted_part() {
        let cpu = cpu();
        let logits = vec![0.0f32; 4096];
        let kept = candidates(&cpu, &logits, &filter(None, 0.5, 0.0)).unwrap();
        assert_eq!(kept, (0..2048).collect::<Vec<u32>>());
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits: Vec<f32> = [0.6f32, 0.3, 0.1].iter().map(|p| p.ln()).collect();
        let mut counts = [0u32; 3];
        for position in 0..20_000 {
            counts[perturbed_argmax(&logits, None, 1.0, 11, position).unwrap() as usize] += 1;
        }
        for (count, p) in counts.iter().zip([0.6, 0.3, 0.1]) {
            assert!((f64::from(*count) / 20_000.0 - p).abs() < 0.015, "{counts:?}");
        }
    }

    #[test]
    fn the_largest_draws_stay_below_their_bound() {
        let largest = (1u64 << 53) - 1;
        for bits in (0..4096).map(|step| largest - step).chain((0..53).map(|power| 1u64 << power)) {
            assert!(gumbel_of(bits) <= gumbel_bound(bits), "{bits}");
        }
    }

    proptest! {
        #[test]
        fn skipping_by_the_bound_changes_nothing(
            logits in proptest::collection::vec(-30.0f32..30.0, 1..300),
            temperature in 0.05f64..3.0,
            seed in any::<u64>(),
            position in 0u64..1_000_000,
        ) {
            let all: Vec<u32> = (0..logits.len() as u32).collect();
            let slow = slow_choice(&logits, &all, temperature, seed, position);
            prop_assert_eq!(perturbed_argmax(&logits, None, temperature, seed, position), Some(slow));
            let some: Vec<u32> = all.iter().copied().filter(|id| id % 3 != 1).collect();
            let slow = slow_choice(&logits, &some, temperature, seed, position);
            prop_assert_eq!(perturbed_argmax(&logits, Some(&some), temperature, seed, position), Some(slow));
        }

        #[test]
        fn noise_never_exceeds_its_bound(bits in 0u64..(1 << 53)) {
            prop_assert!(gumbel_of(bits) <= gumbel_bound(bits));
        }
    }
}
