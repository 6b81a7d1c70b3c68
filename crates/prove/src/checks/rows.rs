//! `rows`: a pass of R rows against R passes of one row.

use samebit_arith::KvPage;

use super::Setup;
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::passes::{Recorded, random_tokens, run_fresh, run_pieces, state_part};

/// The most rows of a pass.
const MOST: usize = 33;
/// Rows of a pass in a quick run: those at which a kernel changes what it does at once.
const QUICK: [usize; 11] = [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33];

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let (model, kv) = (setup.model(), setup.kv());
    let context = model.info().context;
    // Just below the end of an attention block where the context has more than one.
    let depth = (KvPage::POSITIONS - MOST / 2).min(context.saturating_sub(MOST) / 2);
    let most = MOST.min(context - depth);
    let tokens = random_tokens(&mut setup.random("rows"), model, depth + most);
    let cpu = setup.cpu(setup.best_isa(), setup.threads())?;
    let mut state = model.new_state(kv);
    if depth > 0 {
        run_pieces(model, &cpu, &mut state, &tokens[..depth], &[depth], &|_| false)?;
    }

    // What each number of one-row passes leaves.
    let mut alone = state.clone();
    let mut expected = Recorded::from_position(depth);
    let mut states = Vec::new();
    for &token in &tokens[depth..] {
        let row = run_pieces(model, &cpu, &mut alone, &[token], &[1], &|_| true)?;
        expected.join(row);
        states.push(alone.encode());
    }

    let (mut together, mut across) = (0, 0);
    for (isa, threads) in setup.machines() {
        let cpu = setup.cpu(isa, threads)?;
        for rows in (1..=most).filter(|rows| !setup.quick() || QUICK.contains(rows)) {
            let mut state = state.clone();
            let tokens = &tokens[depth..depth + rows];
            let found = run_pieces(model, &cpu, &mut state, tokens, &[rows], &|_| true)?;
            let id = CaseId {
                op: "forward",
                shape: format!("at position {depth}"),
                format: kv.to_string(),
                isa,
                threads,
                rows,
                detail: format!("against {rows} passes of one row"),
            };
            let bytes = state.encode();
            let mut parts = expected.parts(&found);
            parts.push(state_part(&states[rows - 1], &bytes));
            findings.compare(&id, &parts);
            together += usize::from(rows > 1);
            across += usize::from(depth / KvPage::POSITIONS < (depth + rows - 1) / KvPage::POSITIONS);
        }
    }
    findings.prove("passes of several rows", together, 1);
    if context > KvPage::POSITIONS + MOST {
        findings.prove("passes across the end of an attention block", across, 1);
    }
    // The start of a sequence has no stored keys at all.
    let whole = run_fresh(model, &cpu, kv, &tokens[..most], &[most], &|_| true)?;
    let single = run_fresh(model, &cpu, kv, &tokens[..most], &vec![1; most], &|_| true)?;
    let id = CaseId {
        op: "forward",
        shape: "at position 0".to_owned(),
        format: kv.to_string(),
        isa: cpu.isa(),
        threads: cpu.threads(),
        rows: most,
        detail: format!("from the start, against {most} passes of one row"),
    };
    findings.compare(&id, &single.recorded.parts(&whole.recorded));
    Ok(())
}
