//! Plain float weights: packing, unpacking, and products with rows in binary32 (PLAN.md section 4).
//!
//! A panel holds the sixteen outputs of column 0, then those of column 1, and so on, in the checkpoint's type.

use super::activations::Activations;
use super::layout::Stored;
use super::pack::fill;
use super::panels::Panels;
use super::{Matrix, panel_count, store_outputs};
use crate::cpu::Cpu;
use crate::format::{BLOCK, Encoded, Format};
use crate::lanes::{Kernel, LANES, Lanes};
use crate::pool::Columns;
use std::marker::PhantomData;

/// Packs a matrix of plain floats; `done` is told the outputs packed so far, every few megabytes.
pub(super) fn pack(cpu: &Cpu, weights: &Encoded<'_>, done: &mut dyn FnMut(usize)) -> Panels {
    match weights.format().block().1 {
        2 => pack_elements::<2>(cpu, weights, done),
        4 => pack_elements::<4>(cpu, weights, done),
        other => unreachable!("{} has elements of {other} bytes", weights.format()),
    }
}

fn pack_elements<const BYTES: usize>(
    cpu: &Cpu,
    weights: &Encoded<'_>,
    done: &mut dyn FnMut(usize),
) -> Panels {
    let panels = Panels::new(LANES * BYTES * weights.columns(), panel_count(weights.rows()));
    fill(cpu, panels, weights, done, &|rows, out| {
        let (out, _) = out.as_chunks_mut::<BYTES>();
        for (output, row) in rows.iter().enumerate() {
            let (row, _) = row.data.as_chunks::<BYTES>();
            for (column, element) in row.iter().enumerate() {
                out[LANES * column + output] = *element;
            }
        }
    })
}

/// Writes the values of one row.
pub(super) fn unpack<S: Stored>(weights: &Matrix, row: usize, out: &mut [f32]) {
    let panel = weights.panels.panel(row / LANES);
    for (column, out) in out.iter_mut().enumerate() {
        *out = S::read(panel, LANES * column + row % LANES);
    }
}

/// `weights` times `rows` from `first_row` on into `out`.
pub(super) fn multiply<S: Stored>(
    cpu: &Cpu,
    weights: &Matrix,
    rows: &Activations<'_>,
    first_row: usize,
    out: Columns<'_, f32>,
) {
    debug_assert!(matches!(weights.format, Format::Float(float) if float.bytes() == S::BYTES));
    let rows = &rows.rows()[first_row * weights.columns..];
    cpu.isa().run(Product::<S> { weights, rows, out, stored: PhantomData });
}

/// Some panels of a matrix times some rows.
struct Product<'a, S> {
    weights: &'a Matrix,
    /// Row-major, at least the rows of `out`.
    rows: &'a [f32],
    /// Whole panels.
    out: Columns<'a, f32>,
    stored: PhantomData<S>,
}

impl<S: Stored> Kernel for Product<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        let first_panel = self.out.first() / LANES;
        for panel in 0..panel_count(self.out.count()) {
            let mut row = 0;
            self.tiles::<L, 8, 1>(lanes, first_panel, panel, &mut row);
            self.tiles::<L, 4, 1>(lanes, first_panel, panel, &mut row);
            self.tiles::<L, 1, 4>(lanes, first_panel, panel, &mut row);
        }
    }
}

impl<S: Stored> Product<'_, S> {
    /// As many tiles of `R` rows, `B` blocks at a time, as there are from `row` on.
    #[inline(always)]
    fn tiles<L: Lanes, const R: usize, const B: usize>(
        &mut self,
        lanes: L,
        first_panel: usize,
        panel: usize,
        row: &mut usize,
    ) {
        let columns = self.weights.columns;
        let weights = &self.weights.panels.panel(first_panel + panel)[..LANES * S::BYTES * columns];
        let first = LANES * panel;
        while *row + R <= self.out.rows() {
            let rows: [&[f32]; R] = std::array::from_fn(
                #[inline(always)]
                |r| &self.rows[(*row + r) * columns..(*row + r + 1) * columns],
            );
            let sums = panel_times_rows::<L, S, R, B>(lanes, weights, rows);
            for r in 0..R {
                store_outputs(lanes, sums[r], &mut self.out.row(*row + r)[first..]);
            }
            *row += R;
        }
    }
}

/// The sixteen outputs of a panel for `R` rows. `B` blocks, whose sums do not depend on each other, run side by side.
#[inline(always)]
fn panel_times_rows<L: Lanes, S: Stored, const R: usize, const B: usize>(
    lanes: L,
    weights: &[u8],
    rows: [&[f32]; R],
) -> [L::Float; R] {
    let block_bytes = LANES * S::BYTES * BLOCK;
    let mut sums = [lanes.splat(0.0); R];
    let mut column = 0;
    let mut at_once = weights.chunks_exact(B * block_bytes);
    for weights in &mut at_once {
        let rows: [&[f32]; R] = std::array::from_fn(
            #[inline(always)]
            |r| &rows[r][column..column + B * BLOCK],
        );
        let mut block_sums = [[lanes.splat(0.0); R]; B];
        for k in 0..BLOCK {
            for b in 0..B {
                let w = S::load(lanes, &weights[b * block_bytes..(b + 1) * block_bytes], k);
                for r in 0..R {
                    block_sums[b][r] = lanes.fma(w, lanes.splat(rows[r][b * BLOCK + k]), block_sums[b][r]);
                }
            }
        }
        for block in block_sums {
            for r in 0..R {
                sums[r] = lanes.add(sums[r], block[r]);
            }
        }
        column += B * BLOCK;
    }
    for weights in at_once.remainder().chunks(block_bytes) {
        let mut block = [lanes.splat(0.0); R];
        for k in 0..weights.len() / (LANES * S::BYTES) {
            let w = S::load(lanes, weights, k);
            for r in 0..R {
                block[r] = lanes.fma(w, lanes.splat(rows[r][column + k]), block[r]);
            }
        }
        for r in 0..R {
            sums[r] = lanes.add(sums[r], block[r]);
        }
        column += BLOCK;
    }
    sums
}
