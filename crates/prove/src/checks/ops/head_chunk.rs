//! Attention of a few rows, as verification of drafts has them, against its passes of one row.
//!
//! Engines with one kernel for few query rows and another for many give other bits where they change over, or where
//! heads are cut into chunks to fit a kernel. Here it is one program, over the numbers of rows, heads and columns at
//! which such engines change over, and over the masks that such chunks have to respect.

use std::collections::BTreeSet;

use samebit_arith::{AttentionShape, AttentionSpan, Cpu, KvPage, KvShape};

use super::Setup;
use super::attention::{describe, splits, stored};
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::sharing::RowsCase;

/// Rows of a pass.
const ROWS: [usize; 9] = [1, 2, 3, 4, 8, 9, 16, 32, 33];
/// The most of them.
const MOST: usize = 33;
/// Query heads over key-value heads.
const HEADS: [(usize, usize); 4] = [(24, 2), (12, 1), (8, 8), (16, 2)];
/// Columns of a head.
const HEAD_DIMS: [usize; 5] = [64, 80, 96, 128, 256];
const QUICK_HEAD_DIMS: [usize; 3] = [64, 80, 256];
/// Query heads, key-value heads and columns that a quick run looks at with every mask and several spans; at the others
/// with the first two masks.
const QUICK_MASKED: (usize, usize, usize) = (24, 2, 64);
/// Consecutive rows of one sequence that are one batch: where they begin before the usual position, and how many. The
/// last ones cross the end of a block, in a quick run too.
const SPANS: [(usize, usize); 4] = [(233, 5), (91, 7), (7, 1), (1, 20)];

/// What rows may see.
#[derive(Clone, Copy)]
struct Mask {
    /// How far before the usual position, which is a multiple of sixteen, the pass begins.
    earlier: usize,
    window: Option<usize>,
    soft_cap: Option<f32>,
}

/// The masks: all before a row, windows from fewer positions than the pass has rows to nearly a whole block, and caps.
const MASKS: [Mask; 7] = [
    Mask { earlier: 0, window: None, soft_cap: None },
    Mask { earlier: 0, window: Some(100), soft_cap: None },
    Mask { earlier: 3, window: None, soft_cap: Some(20.0) },
    Mask { earlier: 0, window: Some(1), soft_cap: None },
    Mask { earlier: 0, window: Some(7), soft_cap: None },
    Mask { earlier: 0, window: Some(241), soft_cap: None },
    Mask { earlier: 5, window: Some(150), soft_cap: Some(30.0) },
];

/// Kinds of masks that [`Mask::kind`] can tell apart.
const KINDS: usize = 4;

impl Mask {
    /// What a pass of `rows` rows from `position` on sees, for people.
    fn kind(&self, position: usize, rows: usize) -> &'static str {
        match self.window {
            None => "no window",
            Some(window) if window < rows => "a window smaller than the pass",
            Some(window) if (position + 1 - window).is_multiple_of(KvPage::POSITIONS) => {
                "a window from the start of a block on"
            }
            Some(_) => "a window from inside a block on",
        }
    }
}

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let head_dims = if setup.quick() { &QUICK_HEAD_DIMS[..] } else { &HEAD_DIMS[..] };
    let shapes = HEADS
        .into_iter()
        .flat_map(|(heads, kv_heads)| head_dims.iter().map(move |&head_dim| (heads, kv_heads, head_dim)));
    run_shapes(setup, findings, &shapes.collect::<Vec<_>>())
}

/// Checks these query heads over key-value heads of so many columns.
pub(super) fn run_shapes(
    setup: &Setup<'_>,
    findings: &mut Findings,
    shapes: &[(usize, usize, usize)],
) -> Result<(), ProveError> {
    let mut random = setup.random("head_chunk");
    // The rows cross the end of an attention block.
    let depth = if setup.quick() { KvPage::POSITIONS } else { 2 * KvPage::POSITIONS } - 16;
    let (definition, machines) = (setup.definition()?, super::machines(setup)?);
    let mut kinds = BTreeSet::new();
    for &(heads, kv_heads, head_dim) in shapes {
        let kv = KvShape::uniform(kv_heads, head_dim);
        let scale = 1.0 / (head_dim as f32).sqrt();
        let mut stored = Stored {
            pages: stored(&mut random, kv, setup.kv(), depth + MOST),
            queries: random.activations(MOST * heads * head_dim),
            shape: AttentionShape { heads, kv, scale, window: None, soft_cap: None },
        };
        let all = !setup.quick() || (heads, kv_heads, head_dim) == QUICK_MASKED;
        for mask in if all { &MASKS[..] } else { &MASKS[..2] } {
            (stored.shape.window, stored.shape.soft_cap) = (mask.window, mask.soft_cap);
            let first = depth - mask.earlier;
            let expected = stored.row_by_row(&definition, &[(first, MOST)]);
            for cpu in &machines {
                for rows in ROWS {
                    let kind = mask.kind(first, rows);
                    kinds.insert(kind);
                    let detail = format!("{kind}, behind {first} keys, against {rows} passes of one row");
                    stored.compare(setup, findings, cpu, &[(first, rows)], detail, &expected);
                }
            }
            if all {
                let spans = SPANS.map(|(before, rows)| (depth - before, rows));
                let starts = spans.map(|(first, _)| first.to_string()).join(", ");
                let expected = stored.row_by_row(&definition, &spans);
                for cpu in &machines {
                    let detail = format!("spans from positions {starts} on, against passes of one row");
                    stored.compare(setup, findings, cpu, &spans, detail, &expected);
                }
            }
        }
    }
    findings.prove("kinds of masks over a few rows of attention", kinds.len(), KINDS);
    Ok(())
}

/// What there is to attend to, and to attend with.
struct Stored {
    shape: AttentionShape,
    pages: Vec<KvPage>,
    queries: Vec<f32>,
}

impl Stored {
    fn width(&self) -> usize {
        self.shape.heads * self.shape.kv.value_dim
    }

    /// One pass over these positions: where each span begins, and its rows.
    fn attend(&self, cpu: &Cpu, spans: &[(usize, usize)], queries: &[f32]) -> Vec<f32> {
        let rows: usize = spans.iter().map(|(_, rows)| rows).sum();
        let mut out = vec![0.0; rows * self.width()];
        let spans: Vec<AttentionSpan<'_>> = spans
            .iter()
            .map(|&(first_position, rows)| AttentionSpan {
                first_position,
                rows,
                pages: self.pages.iter().collect(),
            })
            .collect();
        cpu.attention(&self.shape, queries, &spans, &mut out);
        out
    }

    /// The queries of this many rows.
    fn queries_of(&self, rows: usize) -> &[f32] {
        &self.queries[..rows * self.shape.heads * self.shape.kv.key_dim]
    }

    /// The same positions in passes of one row.
    fn row_by_row(&self, cpu: &Cpu, spans: &[(usize, usize)]) -> Vec<f32> {
        let positions = spans.iter().flat_map(|&(first, rows)| first..first + rows);
        let queries = self.queries.chunks_exact(self.shape.heads * self.shape.kv.key_dim);
        positions
            .zip(queries)
            .flat_map(|(position, query)| self.attend(cpu, &[(position, 1)], query))
            .collect()
    }

    /// Compares one pass over these positions with the beginning of what is expected.
    fn compare(
        &self,
        setup: &Setup<'_>,
        findings: &mut Findings,
        cpu: &Cpu,
        spans: &[(usize, usize)],
        detail: String,
        expected: &[f32],
    ) {
        let rows: usize = spans.iter().map(|(_, rows)| rows).sum();
        let id = CaseId {
            op: "head_chunk",
            shape: describe(&self.shape),
            format: setup.kv().to_string(),
            isa: cpu.isa(),
            threads: cpu.threads(),
            rows,
            detail,
        };
        let width = self.width();
        let expected = &expected[..rows * width];
        let case = RowsCase { place: "attention", width, expected, splits: splits(cpu, rows) };
        let queries = self.queries_of(rows);
        findings.compare_run(cpu, &id, &case, &mut || self.attend(cpu, spans, queries));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_what_they_are_called() {
        let kind = |window| Mask { earlier: 0, window, soft_cap: None };
        assert_eq!(kind(None).kind(240, 33), "no window");
        assert_eq!(kind(Some(7)).kind(240, 8), "a window smaller than the pass");
        assert_eq!(kind(Some(7)).kind(240, 7), "a window from inside a block on");
        assert_eq!(kind(Some(241)).kind(240, 33), "a window from the start of a block on");
        assert_eq!(kind(Some(241)).kind(496, 33), "a window from the start of a block on");
        assert_eq!(kind(Some(100)).kind(496, 33), "a window from inside a block on");
    }

    #[test]
    fn sizes_fit_together() {
        assert_eq!(ROWS.into_iter().max(), Some(MOST));
        assert!(SPANS.iter().map(|(_, rows)| rows).sum::<usize>() <= MOST);
        // No span begins with a tile of positions, and none ends behind what is stored.
        assert!(SPANS.iter().all(|(before, rows)| before % 16 != 0 && *rows <= before + MOST));
        assert!(MASKS.iter().all(|mask| mask.window.is_none_or(|window| window + mask.earlier <= 241)));
    }
}
