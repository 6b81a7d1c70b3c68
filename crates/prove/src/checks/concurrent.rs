//! `concurrent`: sequences in one batch, each against itself alone.

use super::Setup;
use super::batches::{Counts, Sizes, compare_together, draw, run_alone};
use crate::error::ProveError;
use crate::findings::Findings;

/// Prompt of the longest sequence, where the context has room: its decoded rows cross the end of an attention block.
const LONGEST_PROMPT: usize = 253;

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("concurrent");
    let (rounds, sequences) = if setup.quick() { (1, 4) } else { (3, 5) };
    let mut counts = Counts::default();
    for round in 1..=rounds {
        let sizes = Sizes { sequences, longest_prompt: LONGEST_PROMPT, prompt: 60, decoded: 20 };
        let plans = draw(&mut random, setup.model(), &sizes);
        let alone = run_alone(setup, &plans)?;
        for (isa, threads) in setup.machines() {
            let (cpu, batch) = (setup.cpu(isa, threads)?, (&plans[..], &alone[..]));
            let name = format!("round {round}");
            compare_together(setup, findings, &cpu, &mut random, batch, false, &mut counts, &name)?;
        }
    }
    findings.prove("passes with several sequences", counts.several, 1);
    findings.prove("passes with sequences at different depths", counts.unequal_depths, 1);
    findings.prove("passes with rows of prompts and decoded rows", counts.prompts_and_decoded, 1);
    findings.prove("sequences that joined others", counts.joined, 1);
    findings.prove("sequences that left before others", counts.left, 1);
    Ok(())
}
