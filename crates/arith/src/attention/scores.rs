//! Scores of the keys of one block, and their exponentials.

use super::AttentionShape;
use super::tile::{Strip, Tile, with_strip_length};
use crate::functions::{Function, SoftCap, exp};
use crate::kv::KvPage;
use crate::kv::line::{F32Line, Line, SCALE_BLOCK};
use crate::lanes::{LANES, Lanes};
use std::ops::Range;

/// Writes the products of queries and keys: `scores[query][j]` for the positions `j` that the query sees. What other
/// positions get means nothing.
#[inline(always)]
pub(super) fn products<L: Lanes>(
    lanes: L,
    tile: &Tile<'_>,
    strips: &[Strip<'_>],
    page: &KvPage,
    span: Range<usize>,
    scores: &mut [[f32; KvPage::POSITIONS]],
) {
    if L::REGISTERS >= 32 {
        products_by::<L, 2>(lanes, tile, strips, page, span, scores);
    } else {
        products_by::<L, 1>(lanes, tile, strips, page, span, scores);
    }
}

/// The same, taking `G` groups of sixteen keys at once.
#[inline(always)]
fn products_by<L: Lanes, const G: usize>(
    lanes: L,
    tile: &Tile<'_>,
    strips: &[Strip<'_>],
    page: &KvPage,
    span: Range<usize>,
    scores: &mut [[f32; KvPage::POSITIONS]],
) {
    let groups = span.start / LANES..span.end.div_ceil(LANES);
    let mut keys = [[F32Line::ZERO; SCALE_BLOCK]; G];
    for first in groups.clone().step_by(G) {
        let count = G.min(groups.end - first);
        let positions = first * LANES..(first + count) * LANES;
        for start in (0..tile.shape.kv.key_dim).step_by(SCALE_BLOCK) {
            let columns = start..tile.shape.kv.key_dim.min(start + SCALE_BLOCK);
            let mut scales = [None; G];
            for (g, keys) in keys.iter_mut().enumerate().take(count) {
                scales[g] = page.widen_keys(lanes, first + g, tile.kv_head, columns.clone(), keys);
            }
            for strip in strips {
                if strip.any.start >= positions.end || strip.any.end <= positions.start {
                    continue;
                }
                let scores = &mut scores[strip.first..];
                with_strip_length!(L, strip.visible.len(), R => {
                    let queries = &strip.queries.as_chunks::<R>().0[columns.clone()];
                    let sums = piece_products::<L, R, G>(lanes, queries, &keys);
                    for r in 0..R {
                        let scores = scores[r][positions.clone()].as_chunks_mut::<LANES>().0;
                        for (g, score) in scores.iter_mut().enumerate() {
                            let acc = if start == 0 { lanes.splat(0.0) } else { lanes.load(score) };
                            let acc = match scales[g] {
                                Some(scale) => lanes.fma(sums[r][g], scale.load(lanes), acc),
                                None => lanes.add(acc, sums[r][g]),
                            };
                            lanes.store(acc, score);
                        }
                    }
                });
            }
        }
    }
}

/// The products of `R` queries and `G` groups of sixteen keys over up to 32 columns: `queries` is column-major, `keys`
/// has a line per column.
#[inline(always)]
fn piece_products<L: Lanes, const R: usize, const G: usize>(
    lanes: L,
    queries: &[[f32; R]],
    keys: &[[F32Line; SCALE_BLOCK]; G],
) -> [[L::Float; G]; R] {
    let mut sums = [[lanes.splat(0.0); G]; R];
    assert!(queries.len() <= SCALE_BLOCK);
    for c in 0..queries.len() {
        let mut key = [lanes.splat(0.0); G];
        for g in 0..G {
            key[g] = keys[g][c].load(lanes);
        }
        for r in 0..R {
            let query = lanes.splat(queries[c][r]);
            for g in 0..G {
                sums[r][g] = lanes.fma(query, key[g], sums[r][g]);
            }
        }
    }
    sums
}

/// Turns the products of one query into scores and those into `exp(score - max)` at the visible positions; returns the
/// maximum and the sum.
#[inline(always)]
pub(super) fn exponentials<L: Lanes>(
    lanes: L,
    shape: &AttentionShape,
    visible: Range<usize>,
    scores: &mut [f32; KvPage::POSITIONS],
) -> (f32, f32) {
    let lines = visible.start / LANES..visible.end.div_ceil(LANES);
    let scores = &mut scores.as_chunks_mut::<LANES>().0[lines.clone()];
    // Within line `i`, lanes outside these are not visible.
    let edges = |i: usize| {
        let start = (lines.start + i) * LANES;
        (visible.start.saturating_sub(start), (visible.end - start).min(LANES))
    };

    let scale = lanes.splat(shape.scale);
    let mut max = lanes.splat(f32::NEG_INFINITY);
    for (i, line) in scores.iter_mut().enumerate() {
        let mut score = lanes.mul(lanes.load(line), scale);
        if let Some(cap) = shape.soft_cap {
            score = SoftCap(cap).apply(lanes, score);
        }
        lanes.store(score, line);
        let (from, to) = edges(i);
        max = lanes.select_range(from, to, lanes.max(max, score), max);
    }
    let max = lanes.max_tree(max);

    let shift = lanes.splat(max);
    let mut sum = lanes.splat(0.0);
    for (i, line) in scores.iter_mut().enumerate() {
        let weight = exp(lanes, lanes.sub(lanes.load(line), shift));
        lanes.store(weight, line);
        let (from, to) = edges(i);
        sum = lanes.select_range(from, to, lanes.add(sum, weight), sum);
    }
    (max, lanes.sum_tree(sum))
}
