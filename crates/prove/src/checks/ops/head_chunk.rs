//! Attention of a few rows, as verification of drafts has them, against its passes of one row.
//!
//! Engines with one kernel for few query rows and another for many give other bits where they change over, or where
//! heads are cut into chunks to fit a kernel. Here it is one program, over the numbers of rows, heads and columns at
//! which such engines change over.

use samebit_arith::{AttentionShape, AttentionSpan, Cpu, KvPage, KvShape};

use super::Setup;
use super::attention::{describe, stored};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings, Part};

/// Rows of a pass.
const ROWS: [usize; 9] = [1, 2, 3, 4, 8, 9, 16, 32, 33];
/// Query heads over key-value heads.
const HEADS: [(usize, usize); 4] = [(24, 2), (12, 1), (8, 8), (16, 2)];
/// Columns of a head.
const HEAD_DIMS: [usize; 5] = [64, 80, 96, 128, 256];
const QUICK_HEAD_DIMS: [usize; 3] = [64, 80, 256];
/// Without a mask, and with one of as many positions.
const WINDOWS: [Option<usize>; 2] = [None, Some(100)];

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let mut random = setup.random("head_chunk");
    // The rows cross the end of an attention block.
    let depth = if setup.quick() { KvPage::POSITIONS } else { 2 * KvPage::POSITIONS } - 16;
    let most = ROWS[ROWS.len() - 1];
    let head_dims = if setup.quick() { &QUICK_HEAD_DIMS[..] } else { &HEAD_DIMS[..] };
    let (definition, machines) = (setup.definition()?, super::machines(setup)?);
    for (heads, kv_heads) in HEADS {
        for &head_dim in head_dims {
            let kv = KvShape::uniform(kv_heads, head_dim);
            let pages = stored(&mut random, kv, setup.kv(), depth + most);
            let width = heads * head_dim;
            let queries = random.activations(most * width);
            for window in WINDOWS {
                let shape = AttentionShape {
                    heads,
                    kv,
                    scale: 1.0 / (head_dim as f32).sqrt(),
                    window,
                    soft_cap: None,
                };
                // One row of each of many spans is what the definition computes for one row after the other.
                let expected =
                    attend(&definition, &shape, &pages, &queries, depth, &[1; ROWS[ROWS.len() - 1]]);
                for cpu in &machines {
                    for rows in ROWS {
                        let found = attend(cpu, &shape, &pages, &queries[..rows * width], depth, &[rows]);
                        let id = CaseId {
                            op: "head_chunk",
                            shape: describe(&shape),
                            format: setup.kv().to_string(),
                            isa: cpu.isa(),
                            threads: cpu.threads(),
                            rows,
                            detail: format!("behind {depth} keys, against {rows} passes of one row"),
                        };
                        findings.compare(
                            &id,
                            &[Part::rows("attention", width, &expected[..rows * width], &found)],
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

/// Passes of these numbers of rows, one after the other, of a sequence that has `depth` keys before them.
fn attend(
    cpu: &Cpu,
    shape: &AttentionShape,
    pages: &[KvPage],
    queries: &[f32],
    depth: usize,
    passes: &[usize],
) -> Vec<f32> {
    let (query_width, width) = (shape.heads * shape.kv.key_dim, shape.heads * shape.kv.value_dim);
    let mut out = vec![0.0; queries.len() / query_width * width];
    let mut done = 0;
    for &rows in passes {
        let span = AttentionSpan { first_position: depth + done, rows, pages: pages.iter().collect() };
        let queries = &queries[done * query_width..(done + rows) * query_width];
        cpu.attention(shape, queries, &[span], &mut out[done * width..(done + rows) * width]);
        done += rows;
    }
    out
}
