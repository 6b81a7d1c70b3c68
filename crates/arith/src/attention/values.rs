//! Weighted sums of the values of one block.

use super::tile::{MAX_STRIP, Strip, Tile, with_strip_length};
use crate::kv::KvPage;
use crate::kv::line::{F32Line, Line};
use crate::lanes::{LANES, Lanes};
use std::ops::Range;

/// Weights of the positions of a block.
type Weights = [f32; KvPage::POSITIONS];

/// Positions whose values are widened at once: few enough that they stay in the first cache.
const RUN: usize = 64;

/// Adds `weight * value` of the visible positions, in ascending order, to the zeros in `out`, which is
/// `[queries, lines of a value]`.
#[inline(always)]
pub(super) fn weighted_sums<L: Lanes>(
    lanes: L,
    tile: &Tile<'_>,
    strips: &[Strip<'_>],
    page: &KvPage,
    span: Range<usize>,
    weights: &[Weights],
    out: &mut [F32Line],
) {
    if L::REGISTERS >= 32 {
        weighted_sums_by::<L, 2>(lanes, tile, strips, page, span, weights, out);
    } else {
        weighted_sums_by::<L, 1>(lanes, tile, strips, page, span, weights, out);
    }
}

/// The same, taking `N` lines of a value at once.
#[inline(always)]
fn weighted_sums_by<L: Lanes, const N: usize>(
    lanes: L,
    tile: &Tile<'_>,
    strips: &[Strip<'_>],
    page: &KvPage,
    span: Range<usize>,
    weights: &[Weights],
    out: &mut [F32Line],
) {
    let row = tile.shape.kv.value_dim.div_ceil(LANES);
    let mut values = [[F32Line::ZERO; N]; RUN];
    let mut scaled = [[0.0; KvPage::POSITIONS]; MAX_STRIP];
    for first in (0..row).step_by(N) {
        // Where the row ends early, its last line is taken twice, with the same result.
        let columns: [usize; N] = std::array::from_fn(|n| (first + n).min(row - 1));
        for start in (span.start / RUN * RUN..span.end).step_by(RUN) {
            let run = start..(start + RUN).min(span.end);
            let mut scales = [None; RUN / LANES];
            for (g, group) in (start / LANES..run.end.div_ceil(LANES)).enumerate() {
                let values = &mut values[g * LANES..(g + 1) * LANES];
                scales[g] = page.widen_values(lanes, group, tile.kv_head, first, values);
            }
            for strip in strips {
                let out = &mut out[strip.first * row..];
                with_strip_length!(L, strip.visible.len(), R => {
                    let mut weights = weights[strip.first..].first_chunk::<R>().expect("weights of every query");
                    for (g, scale) in scales.iter().enumerate() {
                        let Some(scale) = scale else { break };
                        let line = start / LANES + g;
                        for r in 0..R {
                            let weight = lanes.load(&weights[r].as_chunks().0[line]);
                            let weight = lanes.mul(weight, scale.load(lanes));
                            lanes.store(weight, &mut scaled[r].as_chunks_mut().0[line]);
                        }
                    }
                    if scales[0].is_some() {
                        weights = scaled.first_chunk().expect("the most queries of a strip");
                    }
                    strip_sums::<L, R, N>(lanes, strip, &run, weights, &values, &mut out[..R * row], columns);
                });
            }
        }
    }
}

/// Adds the positions within `run` that each query of a strip sees. Those that all of them see are taken together; a
/// query takes what only it and some others see before and after them.
#[inline(always)]
fn strip_sums<L: Lanes, const R: usize, const N: usize>(
    lanes: L,
    strip: &Strip<'_>,
    run: &Range<usize>,
    weights: &[Weights; R],
    values: &[[F32Line; N]; RUN],
    out: &mut [F32Line],
    columns: [usize; N],
) {
    let together = run.start.max(strip.all.start)..run.end.min(strip.all.end);
    // Where there are none, all that a query sees counts as after them.
    let together = if together.is_empty() { run.start..run.start } else { together };
    let alone = [run.start..together.start, together.end..run.end];
    for (i, alone) in alone.into_iter().enumerate() {
        for (r, visible) in strip.visible.iter().enumerate() {
            let positions = alone.start.max(visible.start)..alone.end.min(visible.end);
            if !positions.is_empty() {
                let values = &values[positions.start - run.start..positions.end - run.start];
                let weights = [&weights[r][positions]];
                let row = out.len() / R;
                add_rows(lanes, weights, values, &mut out[r * row..(r + 1) * row], columns);
            }
        }
        if i == 0 && !together.is_empty() {
            let values = &values[together.start - run.start..together.end - run.start];
            let weights = weights.each_ref().map(|weights| &weights[together.clone()]);
            add_rows(lanes, weights, values, out, columns);
        }
    }
}

/// Adds `weight * value`, for each position in turn, to `columns` of the `R` rows of `out`.
#[inline(always)]
fn add_rows<L: Lanes, const R: usize, const N: usize>(
    lanes: L,
    weights: [&[f32]; R],
    values: &[[F32Line; N]],
    out: &mut [F32Line],
    columns: [usize; N],
) {
    let row = out.len() / R;
    let mut sums = [[lanes.splat(0.0); N]; R];
    for r in 0..R {
        assert_eq!(weights[r].len(), values.len());
        for n in 0..N {
            sums[r][n] = out[r * row + columns[n]].load(lanes);
        }
    }
    for (j, line) in values.iter().enumerate() {
        let mut value = [lanes.splat(0.0); N];
        for n in 0..N {
            value[n] = line[n].load(lanes);
        }
        for r in 0..R {
            let weight = lanes.splat(weights[r][j]);
            for n in 0..N {
                sums[r][n] = lanes.fma(weight, value[n], sums[r][n]);
            }
        }
    }
    for r in 0..R {
        for n in 0..N {
            lanes.store(sums[r][n], out[r * row + columns[n]].elements_mut());
        }
    }
}
