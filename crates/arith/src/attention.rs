//! Attention over stored keys and values (plan, section 8).
//!
//! Every pair of a row and a head is computed as if alone: what runs beside it decides only which loads are shared.

mod definition;
mod row;
mod scores;
mod share;
#[cfg(test)]
mod tests;
mod tile;
mod values;

use crate::cpu::{Cpu, Isa};
use crate::kv::{KvPage, KvShape};
use crate::pool::Pool;
use std::ops::Range;

/// What the heads of one layer look like and how they weigh keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads, a multiple of the key-value heads: query head `h` reads key-value head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// The stored keys and values. A query head has `key_dim` columns, its result `value_dim`.
    pub kv: KvShape,
    /// What the product of a query and a key is multiplied by.
    pub scale: f32,
    /// The positions that a row sees, its own included, where they are limited; at least 1.
    pub window: Option<usize>,
    /// Scores `x` become `cap * tanh(x / cap)`.
    pub soft_cap: Option<f32>,
}

/// Consecutive rows of one sequence.
#[derive(Clone, Debug)]
pub struct AttentionSpan<'a> {
    /// The absolute position of the first row.
    pub first_position: usize,
    /// How many rows.
    pub rows: usize,
    /// The sequence's pages from position 0 on, in which the keys and values of these rows are already stored. Pages
    /// that lie before the window of every row are not read.
    pub pages: Vec<&'a KvPage>,
}

impl AttentionShape {
    /// The first position that a row at `position` sees.
    fn first_visible(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// The positions within page `block` that a row at `position` sees, from the page's start; empty where it sees none.
    fn visible_in_block(&self, position: usize, block: usize) -> Range<usize> {
        let start = block * KvPage::POSITIONS;
        let end = (position + 1).saturating_sub(start).min(KvPage::POSITIONS);
        self.first_visible(position).saturating_sub(start).min(end)..end
    }

    /// Columns of one row of queries.
    fn query_width(&self) -> usize {
        self.heads * self.kv.key_dim
    }

    /// Columns of one row of results.
    fn output_width(&self) -> usize {
        self.heads * self.kv.value_dim
    }

    fn check(&self) {
        assert!(
            self.kv.kv_heads > 0 && self.heads > 0 && self.heads.is_multiple_of(self.kv.kv_heads),
            "{} query heads over {} key-value heads",
            self.heads,
            self.kv.kv_heads
        );
        assert!(self.kv.key_dim > 0 && self.kv.value_dim > 0, "heads without columns");
        assert!(self.window != Some(0), "a window of no positions");
    }

    fn check_span(&self, span: &AttentionSpan<'_>) {
        if span.rows == 0 {
            return;
        }
        let last = span.first_position + span.rows - 1;
        for block in self.first_visible(span.first_position) / KvPage::POSITIONS..=last / KvPage::POSITIONS {
            let stored = span.pages.get(block).map_or(0, |page| page.len());
            let needed = (last + 1 - block * KvPage::POSITIONS).min(KvPage::POSITIONS);
            assert!(stored >= needed, "page {block} stores {stored} positions where rows need {needed}");
            assert_eq!(span.pages[block].shape(), self.kv, "page {block} stores another shape");
        }
    }
}

impl Cpu {
    /// Attends with every row of `spans`: `queries` is `[rows of all spans, heads * key_dim]`, `out` becomes
    /// `[rows of all spans, heads * value_dim]`, spans in order.
    ///
    /// # Panics
    /// When `heads` is no multiple of `kv_heads`, a slice has another length, or a page that a row sees is missing,
    /// too short or of another shape.
    pub fn attention(
        &self,
        shape: &AttentionShape,
        queries: &[f32],
        spans: &[AttentionSpan<'_>],
        out: &mut [f32],
    ) {
        shape.check();
        spans.iter().for_each(|span| shape.check_span(span));
        let rows: usize = spans.iter().map(|span| span.rows).sum();
        assert_eq!(queries.len(), rows * shape.query_width(), "queries are not [rows, heads * key_dim]");
        assert_eq!(out.len(), rows * shape.output_width(), "results are not [rows, heads * value_dim]");
        if self.broken_attention(shape, queries, spans, out) {
            return;
        }
        if self.isa() == Isa::Scalar {
            define(self.pool(), shape, queries, spans, out);
        } else {
            share::attend(self, shape, queries, spans, out);
        }
    }
}

/// The definition, row by row and head by head.
fn define(
    pool: &Pool,
    shape: &AttentionShape,
    queries: &[f32],
    spans: &[AttentionSpan<'_>],
    out: &mut [f32],
) {
    let rows: Vec<_> = spans
        .iter()
        .flat_map(|span| (0..span.rows).map(move |row| (span, span.first_position + row)))
        .collect();
    pool.run_pieces(out, shape.output_width(), &|row, out| {
        let (span, position) = rows[row];
        let queries = &queries[row * shape.query_width()..][..shape.query_width()];
        for (head, out) in out.chunks_mut(shape.kv.value_dim).enumerate() {
            let query = &queries[head * shape.kv.key_dim..][..shape.kv.key_dim];
            let kv_head = head / (shape.heads / shape.kv.kv_heads);
            out.copy_from_slice(&definition::attend(shape, query, position, kv_head, &span.pages));
        }
    });
}
