//! `chunks`: one prefill against the same tokens in pieces.

use samebit_arith::KvPage;

use super::Setup;
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::passes::{random_tokens, run_fresh};

/// Tokens of the prompt, where the context has room: across the end of the first attention block.
const QUICK_TOKENS: usize = 300;
/// The same in a full run: across two ends.
const TOKENS: usize = 530;
/// Sizes of prefill chunks.
const QUICK_CHUNKS: [usize; 5] = [7, 33, 64, 255, 256];
const CHUNKS: [usize; 11] = [1, 2, 3, 8, 16, 33, 64, 128, 255, 256, 257];

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let (model, kv) = (setup.model(), setup.kv());
    let (tokens, chunks, splits) =
        if setup.quick() { (QUICK_TOKENS, &QUICK_CHUNKS[..], 3) } else { (TOKENS, &CHUNKS[..], 8) };
    let count = tokens.min(model.info().context);
    let mut random = setup.random("chunks");
    let tokens = random_tokens(&mut random, model, count);
    // Logits of some positions: of all of them they would fill memory with large vocabularies.
    let wanted = |position: usize| position.is_multiple_of(37) || position + 1 == count;

    let cpu = setup.cpu(setup.best_isa(), setup.threads())?;
    let expected = run_fresh(model, &cpu, kv, &tokens, &[count], &wanted)?;

    let of_size = |size: usize| {
        let mut pieces = vec![size; count / size];
        pieces.extend((count % size > 0).then_some(count % size));
        (format!("in chunks of {size}"), pieces)
    };
    let mut ways: Vec<(String, Vec<usize>)> =
        chunks.iter().filter(|size| **size < count).map(|size| of_size(*size)).collect();
    for split in 0..splits {
        let pieces = random.pieces(count, 90);
        ways.push((format!("in {} random pieces, split {split}", pieces.len()), pieces));
    }

    let machines = setup.machines();
    let (mut passes, mut across) = (0, 0);
    for (index, (way, pieces)) in ways.iter().enumerate() {
        let (isa, threads) = machines[index % machines.len()];
        let cpu = setup.cpu(isa, threads)?;
        let found = run_fresh(model, &cpu, kv, &tokens, pieces, &wanted)?;
        let id = CaseId {
            op: "forward",
            shape: format!("{count} tokens"),
            format: kv.to_string(),
            isa,
            threads,
            rows: pieces.iter().copied().max().unwrap_or(0),
            detail: format!("{way}, against one pass"),
        };
        findings.compare(&id, &expected.parts(&found));
        passes += pieces.len() - 1;
        across += pieces_across_blocks(pieces);
    }
    findings.prove("places where a prompt was cut", passes, 1);
    if count > KvPage::POSITIONS {
        findings.prove("pieces across the end of an attention block", across, 1);
    }
    Ok(())
}

/// How many pieces begin in one attention block and end in another.
fn pieces_across_blocks(pieces: &[usize]) -> usize {
    let mut start = 0;
    let across = pieces.iter().filter(|piece| {
        let first = start;
        start += **piece;
        first / KvPage::POSITIONS < (start - 1) / KvPage::POSITIONS
    });
    across.count()
}
