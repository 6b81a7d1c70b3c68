//! `mixed`: random combinations of everything that must not matter.

use samebit_arith::Isa;

use super::batches::{Counts, Sizes, compare_together, draw, run_alone};
use super::{Setup, available_isas};
use crate::error::ProveError;
use crate::findings::Findings;

/// Prompt of the first sequence of every third combination, where the context has room: more than one attention block.
const LONGEST_PROMPT: usize = 262;

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("mixed");
    let combinations = if setup.quick() { 6 } else { 36 };
    let mut counts = Counts::default();
    let mut machines = Vec::new();
    for combination in 1..=combinations {
        // The scalar definition is slow: it takes part now and then, with few rows.
        let scalar = combination % 6 == 0;
        let isa = if scalar { Isa::Scalar } else { random.pick(&setup.fast_isas()) };
        let threads = random.between(1, setup.most_threads());
        let longest_prompt = match (scalar, combination % 3) {
            (true, _) => 5,
            (false, 0) => LONGEST_PROMPT,
            (false, _) => random.between(1, 90),
        };
        let short = if scalar { 3 } else { 40 };
        let sizes =
            Sizes { sequences: random.between(1, 4), longest_prompt, prompt: short, decoded: short.min(12) };
        let plans = draw(&mut random, setup.model(), &sizes);
        let alone = run_alone(setup, &plans)?;
        let (cpu, batch) = (setup.cpu(isa, threads)?, (&plans[..], &alone[..]));
        let name = format!("combination {combination}");
        compare_together(setup, findings, &cpu, &mut random, batch, true, &mut counts, &name)?;
        machines.push((isa, threads));
    }
    machines.sort_unstable();
    machines.dedup();
    findings.prove("machines (instruction set and threads)", machines.len(), 2.min(available_isas().len()));
    findings.prove("passes with several sequences", counts.several, 1);
    findings.prove("rows that were rolled back", counts.rolled_back, 1);
    Ok(())
}
