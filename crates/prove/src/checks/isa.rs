//! `isa`: every instruction set against the scalar definition, on the whole model.

use samebit_arith::{Isa, KvPage};

use super::{Setup, available_isas};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::passes::{random_tokens, run_fresh};

/// Tokens of the prompt in a quick run: the definition is slow.
const QUICK_TOKENS: usize = 20;
/// The same in a full run: across the end of an attention block.
const TOKENS: usize = 272;
/// Passes after it.
const AFTER: [usize; 3] = [1, 5, 1];

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let (model, kv) = (setup.model(), setup.kv());
    let after: usize = AFTER.iter().sum();
    let most = if setup.quick() { QUICK_TOKENS } else { TOKENS };
    let prompt = most.min(model.info().context.saturating_sub(after)).max(1);
    let mut pieces = vec![prompt];
    pieces.extend(if prompt + after <= model.info().context { &AFTER[..] } else { &[] });
    let tokens = random_tokens(&mut setup.random("isa"), model, pieces.iter().sum());
    let wanted = |position: usize| position + 1 >= prompt;

    // On one thread the definition would take too long; `threads` shows that they change nothing.
    let definition = setup.cpu(Isa::Scalar, setup.threads())?;
    let expected = run_fresh(model, &definition, kv, &tokens, &pieces, &wanted)?;
    let fast: Vec<Isa> = available_isas().into_iter().filter(|isa| *isa != Isa::Scalar).collect();
    for &isa in &fast {
        let threads = setup.several_threads();
        let cpu = setup.cpu(isa, threads)?;
        let found = run_fresh(model, &cpu, kv, &tokens, &pieces, &wanted)?;
        let id = CaseId {
            op: "forward",
            shape: format!("{prompt} tokens, then {} passes", pieces.len() - 1),
            format: kv.to_string(),
            isa,
            threads,
            rows: prompt,
            detail: "against scalar".to_owned(),
        };
        findings.compare(&id, &expected.parts(&found));
    }
    if fast.is_empty() {
        // There is nothing but the definition here: it is run again, and the proof below says that nothing was shown.
        let found = run_fresh(model, &definition, kv, &tokens, &pieces, &wanted)?;
        let id = CaseId {
            op: "forward",
            shape: format!("{prompt} tokens"),
            format: kv.to_string(),
            isa: Isa::Scalar,
            threads: setup.threads(),
            rows: prompt,
            detail: "against itself: this processor has no other instruction set".to_owned(),
        };
        findings.compare(&id, &expected.recorded.parts(&found.recorded));
    }
    findings.prove("instruction sets compared with the scalar one", fast.len(), 1);
    if !setup.quick() && model.info().context > TOKENS + after {
        findings.prove("attention blocks that were merged", prompt.div_ceil(KvPage::POSITIONS), 2);
    }
    Ok(())
}
