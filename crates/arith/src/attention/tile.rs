//! A tile: the queries of consecutive rows that read one key-value head, worked on together so that what is loaded of a
//! page is used many times.

use super::AttentionShape;
use super::{row, scores, values};
use crate::functions::exp;
use crate::kv::KvPage;
use crate::kv::line::{F32Line, Line};
use crate::lanes::{Kernel, LANES, Lanes};
use std::ops::Range;

/// The queries of consecutive rows of one sequence that read one key-value head.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    pub(super) shape: &'a AttentionShape,
    pub(super) pages: &'a [&'a KvPage],
    pub(super) kv_head: usize,
    /// The absolute position of the first row.
    pub(super) position: usize,
    /// `[rows, heads * key_dim]`.
    pub(super) queries: &'a [f32],
}

impl<'a> Tile<'a> {
    /// Query heads that read one key-value head.
    pub(super) fn heads(&self) -> usize {
        self.shape.heads / self.shape.kv.kv_heads
    }

    pub(super) fn rows(&self) -> usize {
        self.queries.len() / self.shape.query_width()
    }

    /// How many queries: those of a row follow each other.
    pub(super) fn len(&self) -> usize {
        self.rows() * self.heads()
    }

    /// Where runs of about equally many queries, at most `most`, begin and the last one ends.
    pub(super) fn bounds(&self, most: usize) -> Vec<usize> {
        let runs = self.len().div_ceil(most);
        (0..=runs).map(|run| run * self.len() / runs).collect()
    }

    /// The pages that some row sees.
    pub(super) fn blocks(&self) -> Range<usize> {
        let last = self.position + self.rows() - 1;
        self.shape.first_visible(self.position) / KvPage::POSITIONS..last / KvPage::POSITIONS + 1
    }

    /// Positions of page `block` that any row sees.
    pub(super) fn span_in_block(&self, block: usize) -> Range<usize> {
        let last = self.position + self.rows() - 1;
        let first_row = self.shape.visible_in_block(self.position, block);
        let start = if first_row.is_empty() { 0 } else { first_row.start };
        start..self.shape.visible_in_block(last, block).end
    }

    fn query(&self, index: usize) -> &'a [f32] {
        let head = self.kv_head * self.heads() + index % self.heads();
        &self.queries[index / self.heads() * self.shape.query_width()..][head * self.shape.kv.key_dim..]
            [..self.shape.kv.key_dim]
    }

    pub(super) fn visible_in_block(&self, index: usize, block: usize) -> Range<usize> {
        self.shape.visible_in_block(self.position + index / self.heads(), block)
    }
}

/// What a block of 256 positions gives to the queries of a tile, or what several blocks give together.
pub(super) struct Part {
    /// Of each query: whether it sees any position of the blocks; if not, its other entries mean nothing.
    pub(super) seen: Vec<bool>,
    /// Of each query: the largest visible score.
    pub(super) max: Vec<f32>,
    /// Of each query: the sum of `exp(score - max)`.
    pub(super) sum: Vec<f32>,
    /// `[queries, lines of a value]`: the values, each times its `exp(score - max)`.
    pub(super) values: Vec<F32Line>,
}

impl Part {
    /// What no block gives.
    pub(super) fn new(tile: &Tile<'_>) -> Self {
        Self {
            seen: vec![false; tile.len()],
            max: vec![0.0; tile.len()],
            sum: vec![0.0; tile.len()],
            values: vec![F32Line::ZERO; tile.len() * tile.shape.kv.value_dim.div_ceil(LANES)],
        }
    }
}

/// Queries of a tile that one kernel call works on.
pub(super) struct Strip<'a> {
    /// The first query's index in the tile.
    pub(super) first: usize,
    /// The queries, column-major: `[key_dim, queries]`.
    pub(super) queries: &'a [f32],
    /// Of each query: the positions it sees in the block at hand.
    pub(super) visible: Vec<Range<usize>>,
    /// The positions that any of the queries sees.
    pub(super) any: Range<usize>,
    /// The positions that every query sees.
    pub(super) all: Range<usize>,
}

impl<'a> Strip<'a> {
    fn new(first: usize, queries: &'a [f32], visible: Vec<Range<usize>>) -> Self {
        let seeing = || visible.iter().filter(|visible| !visible.is_empty());
        let any = seeing().map(|visible| visible.start).min().unwrap_or(0)
            ..seeing().map(|visible| visible.end).max().unwrap_or(0);
        let all = visible.iter().map(|visible| visible.start).max().unwrap_or(0)
            ..visible.iter().map(|visible| visible.end).min().unwrap_or(0);
        Self { first, queries, visible, any, all }
    }
}

/// The most queries in a strip of any instruction set.
pub(super) const MAX_STRIP: usize = 8;

/// The most queries in a strip.
pub(super) const fn max_strip<L: Lanes>() -> usize {
    match L::REGISTERS {
        32.. => MAX_STRIP,
        8..32 => 6,
        _ => 1,
    }
}

/// Runs `$body` with the constant `$R` equal to `$count`, the length of a strip.
macro_rules! with_strip_length {
    ($L:ident, $count:expr, $R:ident => $body:expr) => {
        with_strip_length!(@ $L, $count, $R => $body, 1 2 3 4 5 6 7 8)
    };
    (@ $L:ident, $count:expr, $R:ident => $body:expr, $($n:literal)*) => {
        match $count {
            $($n if $n <= $crate::attention::tile::max_strip::<$L>() => {
                const $R: usize = $n;
                $body
            })*
            count => unreachable!("a strip of {count} queries"),
        }
    };
}
pub(super) use with_strip_length;

/// Attends with a tile over some of its blocks.
pub(super) struct Attend<'a> {
    pub(super) tile: Tile<'a>,
    pub(super) blocks: Range<usize>,
    /// Whether to merge the blocks: only right for the tile's first ones, since merging must go in ascending order.
    pub(super) merge: bool,
}

impl Kernel for Attend<'_> {
    /// In ascending order: one part for each block, or one for all.
    type Output = Vec<Part>;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Vec<Part> {
        let tile = self.tile;
        if tile.rows() == 1 {
            return row::attend(lanes, &tile, self.blocks, self.merge);
        }
        let bounds = tile.bounds(max_strip::<L>());
        let queries = pack_queries(&tile, &bounds);
        let mut scores = vec![[0.0; KvPage::POSITIONS]; tile.len()];
        let mut parts: Vec<Part> = Vec::new();
        for block in self.blocks {
            let strips: Vec<_> = bounds
                .windows(2)
                .map(|bounds| {
                    let queries =
                        &queries[bounds[0] * tile.shape.kv.key_dim..bounds[1] * tile.shape.kv.key_dim];
                    let visible = (bounds[0]..bounds[1]).map(|query| tile.visible_in_block(query, block));
                    Strip::new(bounds[0], queries, visible.collect())
                })
                .collect();
            let part = attend_block(lanes, &tile, &strips, block, &mut scores);
            match parts.last_mut() {
                Some(merged) if self.merge => merge(lanes, merged, &part),
                _ => parts.push(part),
            }
        }
        parts
    }
}

/// The queries of each strip, column-major: `[strip][key_dim][queries of the strip]`.
pub(super) fn pack_queries(tile: &Tile<'_>, bounds: &[usize]) -> Vec<f32> {
    let mut packed = vec![0.0; tile.len() * tile.shape.kv.key_dim];
    for bounds in bounds.windows(2) {
        let count = bounds[1] - bounds[0];
        let strip = &mut packed[bounds[0] * tile.shape.kv.key_dim..bounds[1] * tile.shape.kv.key_dim];
        for query in bounds[0]..bounds[1] {
            for (to, x) in strip[query - bounds[0]..].iter_mut().step_by(count).zip(tile.query(query)) {
                *to = *x;
            }
        }
    }
    packed
}

#[inline(always)]
fn attend_block<L: Lanes>(
    lanes: L,
    tile: &Tile<'_>,
    strips: &[Strip<'_>],
    block: usize,
    scores: &mut [[f32; KvPage::POSITIONS]],
) -> Part {
    let (page, span) = (tile.pages[block], tile.span_in_block(block));
    page.prefetch(lanes, span.start / LANES, tile.kv_head, false);
    scores::products(lanes, tile, strips, page, span.clone(), scores);
    let mut part = Part::new(tile);
    for strip in strips {
        for (query, visible) in (strip.first..).zip(&strip.visible) {
            if !visible.is_empty() {
                part.seen[query] = true;
                (part.max[query], part.sum[query]) =
                    scores::exponentials(lanes, tile.shape, visible.clone(), &mut scores[query]);
            }
        }
    }
    if let Some(next) = tile.pages.get(block + 1) {
        next.prefetch(lanes, 0, tile.kv_head, true);
    }
    values::weighted_sums(lanes, tile, strips, page, span, scores, &mut part.values);
    part
}

/// Merges `next` into `merged`, which covers lower positions.
#[inline(always)]
pub(super) fn merge<L: Lanes>(lanes: L, merged: &mut Part, next: &Part) {
    let lines = merged.values.len() / merged.seen.len();
    for query in 0..merged.seen.len() {
        if !next.seen[query] {
            continue;
        }
        let values = &mut merged.values[query * lines..(query + 1) * lines];
        let next_values = &next.values[query * lines..(query + 1) * lines];
        if !merged.seen[query] {
            merged.seen[query] = true;
            merged.max[query] = next.max[query];
            merged.sum[query] = next.sum[query];
            values.copy_from_slice(next_values);
            continue;
        }
        let max = lanes.max(lanes.splat(merged.max[query]), lanes.splat(next.max[query]));
        let factor = exp(lanes, lanes.sub(lanes.splat(merged.max[query]), max));
        let next_factor = exp(lanes, lanes.sub(lanes.splat(next.max[query]), max));
        let fold = |x, next| lanes.fma(next, next_factor, lanes.mul(x, factor));
        merged.max[query] = first(lanes, max);
        merged.sum[query] = first(lanes, fold(lanes.splat(merged.sum[query]), lanes.splat(next.sum[query])));
        for (value, next) in values.iter_mut().zip(next_values) {
            lanes.store(fold(value.load(lanes), next.load(lanes)), value.elements_mut());
        }
    }
}

#[inline(always)]
fn first<L: Lanes>(lanes: L, x: L::Float) -> f32 {
    let mut all = [0.0; LANES];
    lanes.store(x, &mut all);
    all[0]
}

/// Merges the parts of all blocks of a tile, in ascending order, and writes the results.
pub(super) struct Finish<'a, 'b> {
    pub(super) tile: Tile<'a>,
    pub(super) parts: Vec<Part>,
    /// Of each row: `[heads of the tile, value_dim]`.
    pub(super) out: &'b mut [&'a mut [f32]],
}

impl Kernel for Finish<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let mut parts = self.parts.into_iter();
        let mut merged = parts.next().expect("a row sees at least its own position");
        for part in parts {
            merge(lanes, &mut merged, &part);
        }
        let value_dim = self.tile.shape.kv.value_dim;
        let lines = value_dim.div_ceil(LANES);
        let heads = self.out.iter_mut().flat_map(|row| row.chunks_mut(value_dim));
        for ((head, values), sum) in heads.zip(merged.values.chunks(lines)).zip(&merged.sum) {
            let sum = lanes.splat(*sum);
            for (to, value) in head.chunks_mut(LANES).zip(values) {
                let mut result = [0.0; LANES];
                lanes.store(lanes.div(value.load(lanes), sum), &mut result);
                to.copy_from_slice(&result[..to.len()]);
            }
        }
    }
}
