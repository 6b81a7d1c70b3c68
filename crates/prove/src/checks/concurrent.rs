//! `concurrent`: sequences in one batch, each against itself alone.

use super::Setup;
use super::batches::{Counts, Sizes, draw, run_together};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};

/// Prompt of the longest sequence, where the context has room: its decoded rows cross the end of an attention block.
const LONGEST_PROMPT: usize = 253;

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("concurrent");
    let (rounds, sequences) = if setup.quick() { (1, 4) } else { (3, 5) };
    let mut counts = Counts::default();
    for round in 1..=rounds {
        let sizes = Sizes { sequences, longest_prompt: LONGEST_PROMPT, prompt: 60, decoded: 20 };
        let plans = draw(&mut random, setup.model(), &sizes);
        let cpu = setup.cpu(setup.best_isa(), setup.threads())?;
        let alone = plans.iter().map(|plan| plan.alone(setup, &cpu)).collect::<Result<Vec<_>, _>>()?;
        for (isa, threads) in setup.machines() {
            let cpu = setup.cpu(isa, threads)?;
            counts.widest = 0;
            let together = run_together(setup, &cpu, &mut random, &plans, false, &mut counts)?;
            for (index, plan) in plans.iter().enumerate() {
                let id = CaseId {
                    op: "forward",
                    shape: plan.shape(),
                    format: setup.kv().to_string(),
                    isa,
                    threads,
                    rows: counts.widest,
                    detail: format!("round {round}, sequence {index} of {sequences} against itself alone"),
                };
                findings.compare(&id, &alone[index].parts(&together[index]));
            }
        }
    }
    findings.prove("passes with several sequences", counts.several, 1);
    findings.prove("passes with sequences at different depths", counts.unequal_depths, 1);
    findings.prove("passes with rows of prompts and decoded rows", counts.prompts_and_decoded, 1);
    findings.prove("sequences that joined others", counts.joined, 1);
    findings.prove("sequences that left before others", counts.left, 1);
    Ok(())
}
