//! A tile of one row, as decoding has it. Every stored number then meets a few queries once, so it goes from the page
//! straight into their sums, and nothing is kept on the way but scores.

use super::scores::exponentials;
use super::tile::{Part, Tile, merge, pack_queries};
use crate::kv::KvPage;
use crate::kv::line::{F32Line, Line, SCALE_BLOCK};
use crate::kv::plane::{PageVisitor, Plane};
use crate::lanes::{LANES, Lanes};
use std::ops::Range;

/// How many groups before their turn lines are asked for.
const AHEAD: usize = 8;

/// The most queries that share a walk over a page.
const MAX_QUERIES: usize = 4;

/// Attends over `blocks` with the queries of a tile of one row. In ascending order: one part for each block, or one for
/// all.
#[inline(always)]
pub(super) fn attend<L: Lanes>(lanes: L, tile: &Tile<'_>, blocks: Range<usize>, merged: bool) -> Vec<Part> {
    let bounds = tile.bounds(MAX_QUERIES);
    let queries = pack_queries(tile, &bounds);
    let mut parts: Vec<Part> = Vec::new();
    let mut spare = None;
    for block in blocks {
        let mut part = spare.take().unwrap_or_else(|| Part::new(tile));
        let visible = tile.visible_in_block(0, block);
        part.seen.fill(!visible.is_empty());
        if !visible.is_empty() {
            attend_block(lanes, tile, (block, visible), &queries, &bounds, &mut part);
        }
        match parts.last_mut() {
            Some(all) if merged => {
                merge(lanes, all, &part);
                spare = Some(part);
            }
            _ => parts.push(part),
        }
    }
    parts
}

/// Attends over the visible positions of one block.
#[inline(always)]
fn attend_block<L: Lanes>(
    lanes: L,
    tile: &Tile<'_>,
    (block, visible): (usize, Range<usize>),
    queries: &[f32],
    bounds: &[usize],
    part: &mut Part,
) {
    let page = tile.pages[block];
    page.prefetch(lanes, visible.start / LANES, tile.kv_head, false);
    for bounds in bounds.windows(2) {
        let columns = tile.shape.kv.key_dim;
        let queries = &queries[bounds[0] * columns..bounds[1] * columns];
        let (first, visible) = (bounds[0], visible.clone());
        macro_rules! walk {
            ($($R:literal)*) => {
                match bounds[1] - bounds[0] {
                    $($R => page.visit(Walk::<L, $R> { lanes, tile, visible, queries, first, part }),)*
                    count => unreachable!("a walk with {count} queries"),
                }
            };
        }
        walk!(1 2 3 4);
    }
    if let Some(next) = tile.pages.get(block + 1) {
        next.prefetch(lanes, 0, tile.kv_head, true);
    }
}

/// A walk over the visible positions of one page with `R` queries.
struct Walk<'a, L, const R: usize> {
    lanes: L,
    tile: &'a Tile<'a>,
    visible: Range<usize>,
    /// Column-major: `[key_dim, R]`.
    queries: &'a [f32],
    /// The first query's index in the tile.
    first: usize,
    part: &'a mut Part,
}

impl<L: Lanes, const R: usize> PageVisitor for Walk<'_, L, R> {
    #[inline(always)]
    fn visit<T: Line>(self, plane: &Plane<T>) {
        let Self { lanes, tile, visible, queries, first, part } = self;
        let (queries, _) = queries.as_chunks::<R>();
        let mut scores = [[0.0; KvPage::POSITIONS]; R];
        if L::REGISTERS >= 32 {
            products::<L, T, R, 4>(lanes, tile, plane, visible.clone(), queries, &mut scores);
        } else {
            products::<L, T, R, 1>(lanes, tile, plane, visible.clone(), queries, &mut scores);
        }
        for (query, scores) in scores.iter_mut().enumerate() {
            (part.max[first + query], part.sum[first + query]) =
                exponentials(lanes, tile.shape, visible.clone(), scores);
        }
        let row = tile.shape.kv.value_dim.div_ceil(LANES);
        let out = &mut part.values[first * row..(first + R) * row];
        if L::REGISTERS < 32 {
            weighted_sums::<L, T, R, 1>(lanes, tile, plane, visible, &scores, out);
        } else if T::SCALED {
            // Two lines lie in one block of 32 columns, which has one scale.
            weighted_sums::<L, T, R, 2>(lanes, tile, plane, visible, &scores, out);
        } else {
            weighted_sums::<L, T, R, 4>(lanes, tile, plane, visible, &scores, out);
        }
    }
}

/// Writes the products of `R` queries and the keys, `G` groups of sixteen keys at once.
#[inline(always)]
fn products<L: Lanes, T: Line, const R: usize, const G: usize>(
    lanes: L,
    tile: &Tile<'_>,
    plane: &Plane<T>,
    visible: Range<usize>,
    queries: &[[f32; R]],
    scores: &mut [[f32; KvPage::POSITIONS]; R],
) {
    let (shape, head) = (tile.shape.kv, tile.kv_head);
    let groups = visible.start / LANES..visible.end.div_ceil(LANES);
    for first in groups.clone().step_by(G) {
        // Where the page ends early its last group is taken again, with the same result.
        let mut group = [0; G];
        let mut keys = [plane.group(shape, first, head); G];
        for g in 0..G {
            group[g] = (first + g).min(groups.end - 1);
            keys[g] = plane.group(shape, group[g], head);
            plane.prefetch(lanes, shape, (first + g + AHEAD, head), true);
        }
        let mut sums = [[lanes.splat(0.0); G]; R];
        for (piece, queries) in queries.chunks(SCALE_BLOCK).enumerate() {
            let mut s = [[lanes.splat(0.0); G]; R];
            for (c, query) in queries.iter().enumerate() {
                let mut key = [lanes.splat(0.0); G];
                for g in 0..G {
                    key[g] = keys[g].keys[SCALE_BLOCK * piece + c].load(lanes);
                }
                for r in 0..R {
                    let query = lanes.splat(query[r]);
                    for g in 0..G {
                        s[r][g] = lanes.fma(query, key[g], s[r][g]);
                    }
                }
            }
            for g in 0..G {
                for r in 0..R {
                    sums[r][g] = if T::SCALED {
                        lanes.fma(s[r][g], keys[g].key_scales[piece].load(lanes), sums[r][g])
                    } else {
                        lanes.add(sums[r][g], s[r][g])
                    };
                }
            }
        }
        for r in 0..R {
            for g in 0..G {
                lanes.store(sums[r][g], &mut scores[r].as_chunks_mut().0[group[g]]);
            }
        }
    }
}

/// Writes the sums of `weight * value` over the visible positions in ascending order, `N` lines of a value at once, to
/// `out`: `[R, lines of a value]`.
#[inline(always)]
fn weighted_sums<L: Lanes, T: Line, const R: usize, const N: usize>(
    lanes: L,
    tile: &Tile<'_>,
    plane: &Plane<T>,
    visible: Range<usize>,
    weights: &[[f32; KvPage::POSITIONS]; R],
    out: &mut [F32Line],
) {
    let (shape, head) = (tile.shape.kv, tile.kv_head);
    let row = shape.value_dim.div_ceil(LANES);
    for first in (0..row).step_by(N) {
        // Where the row ends early its last line is taken again, with the same result.
        let mut line = [0; N];
        for n in 0..N {
            line[n] = (first + n).min(row - 1);
        }
        let mut sums = [[lanes.splat(0.0); N]; R];
        for group in visible.start / LANES..visible.end.div_ceil(LANES) {
            let stored = plane.group(shape, group, head);
            if first == 0 {
                plane.prefetch(lanes, shape, (group + AHEAD, head), false);
            }
            let mut weight = [[0.0; LANES]; R];
            for r in 0..R {
                weight[r] = weights[r].as_chunks().0[group];
                if T::SCALED {
                    let scale = stored.value_scales[first * LANES / SCALE_BLOCK].load(lanes);
                    lanes.store(lanes.mul(lanes.load(&weight[r]), scale), &mut weight[r]);
                }
            }
            let from = visible.start.saturating_sub(group * LANES);
            let to = (visible.end - group * LANES).min(LANES);
            let values = stored.values[row * from..row * to].chunks_exact(row);
            for (lane, stored) in (from..to).zip(values) {
                let mut value = [lanes.splat(0.0); N];
                for n in 0..N {
                    value[n] = stored[line[n]].load(lanes);
                }
                for r in 0..R {
                    let weight = lanes.splat(weight[r][lane]);
                    for n in 0..N {
                        sums[r][n] = lanes.fma(weight, value[n], sums[r][n]);
                    }
                }
            }
        }
        for r in 0..R {
            for n in 0..N {
                lanes.store(sums[r][n], out[r * row + line[n]].elements_mut());
            }
        }
    }
}
