//! Measuring samebit and another program alternately, so that both see the same machine.

use super::measure::{Bench, Test};
use super::peer::Peer;
use super::rates::Rates;
use crate::failure::Failure;
use crate::progress::Bar;

/// The rates of both in one test, round by round.
pub(super) struct Comparison {
    pub(super) test: Test,
    pub(super) ours: Rates,
    pub(super) theirs: Rates,
}

impl Comparison {
    /// How many times as fast samebit was: the ratio of the medians.
    pub(super) fn ratio(&self) -> f64 {
        self.ours.median() / self.theirs.median()
    }

    /// The smallest ratio within a round.
    pub(super) fn lowest_ratio(&self) -> f64 {
        self.ours.over(&self.theirs).lowest()
    }
}

/// Runs every test `rounds` times in both programs, one after the other in each round.
pub(super) fn measure(
    bench: &Bench<'_>,
    peer: &Peer,
    tests: &[Test],
    rounds: usize,
    bar: &Bar,
) -> Result<Vec<Comparison>, Failure> {
    let mut results = Vec::with_capacity(tests.len());
    for &test in tests {
        let prepared = bench.prepare(test)?;
        let (mut ours, mut theirs) = (Rates::default(), Rates::default());
        for _ in 0..rounds {
            ours.add(prepared.tokens_per_second()?);
            bar.advance();
            theirs.add(peer.tokens_per_second(&test)?);
            bar.advance();
        }
        results.push(Comparison { test, ours, theirs });
    }
    Ok(results)
}
