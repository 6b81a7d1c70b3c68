//! The tokens per second of several runs.

use serde_json::{Value, json};

/// Tokens per second, in the order they were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates(Vec<f64>);

impl Rates {
    /// One more.
    pub(super) fn add(&mut self, rate: f64) {
        self.0.push(rate);
    }

    /// The middle one; the mean of the middle two. Not a number when there are none.
    pub(super) fn median(&self) -> f64 {
        median(&self.0)
    }

    /// The lowest.
    pub(super) fn lowest(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The highest.
    pub(super) fn highest(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// These rates over those of `others` that were measured in the same rounds.
    pub(super) fn over(&self, others: &Self) -> Self {
        Self(self.0.iter().zip(&others.0).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// The fields that say all of it.
    pub(super) fn as_json(&self) -> Value {
        json!({
            "tok_s": self.median(),
            "tok_s_min": self.lowest(),
            "tok_s_max": self.highest(),
            "tok_s_rounds": self.0,
        })
    }
}

/// The middle one; the mean of the middle two. Not a number when there are none.
pub(super) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn ratios_are_of_one_round() {
        let (mut ours, mut theirs) = (Rates::default(), Rates::default());
        for (our_rate, their_rate) in [(30.0, 10.0), (20.0, 10.0), (10.0, 2.0)] {
            ours.add(our_rate);
            theirs.add(their_rate);
        }
        let ratios = ours.over(&theirs);
        assert_eq!((ratios.lowest(), ratios.median(), ratios.highest()), (2.0, 3.0, 5.0));
        assert_eq!(ours.median() / theirs.median(), 2.0);
    }
}
