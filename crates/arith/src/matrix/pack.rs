//! Integer-coded weights on their way into panels, and back out of them a row at a time.

use super::integer::{groups, scale_bytes};
use super::layout::{CodeLayout, ScaleLayout, Steps};
use super::panels::Panels;
use super::scales::spread;
use super::{Matrix, panel_count};
use crate::cpu::Cpu;
use crate::format::{BLOCK, Coded, CodedVisitor, Encoded, Row, weight};
use crate::lanes::LANES;

/// Packs a matrix.
pub(super) struct Pack<'a, 'd> {
    pub(super) cpu: &'a Cpu,
    pub(super) weights: &'a Encoded<'a>,
    /// Called with the outputs packed so far, every few megabytes.
    pub(super) done: &'d mut dyn FnMut(usize),
}

impl CodedVisitor for Pack<'_, '_> {
    type Output = Panels;

    fn visit<F: Coded>(self) -> Panels {
        let (weights, columns) = (self.weights, self.weights.columns());
        let groups = groups::<F>(columns, weights.format().wide());
        let scale_bytes = scale_bytes::<F>(groups);
        let panel_bytes = scale_bytes + columns / BLOCK * F::Layout::BYTES;
        let panels = Panels::new(panel_bytes, panel_count(weights.rows()));
        fill(self.cpu, panels, weights, self.done, &|rows, out| {
            let (scales, codes) = out.split_at_mut(scale_bytes);
            pack_codes::<F>(rows, codes);
            for (output, &row) in rows.iter().enumerate() {
                for group in 0..groups {
                    F::Scales::write(F::group(row, group << row.wide), scales, group, output);
                }
            }
        })
    }
}

/// Fills a panel, which holds zeros, from up to sixteen rows.
type FillPanel<'a> = dyn Fn(&[Row<'_>], &mut [u8]) + Sync + 'a;

/// Fills all panels, on all threads, a few megabytes at a time.
pub(super) fn fill(
    cpu: &Cpu,
    mut panels: Panels,
    weights: &Encoded<'_>,
    done: &mut dyn FnMut(usize),
    fill_panel: &FillPanel<'_>,
) -> Panels {
    const BYTES_AT_ONCE: usize = 4 << 20;
    let panel_bytes = panels.panel_bytes();
    if panel_bytes == 0 {
        return panels;
    }
    let at_once = (BYTES_AT_ONCE / panel_bytes).max(1);
    for (index, piece) in panels.all_mut().chunks_mut(at_once * panel_bytes).enumerate() {
        cpu.pool().run_pieces(piece, panel_bytes, &|panel, out| {
            let first = LANES * (index * at_once + panel);
            let outputs = LANES.min(weights.rows() - first);
            let mut rows = [weights.row(first); LANES];
            for (output, row) in rows.iter_mut().enumerate().take(outputs) {
                *row = weights.row(first + output);
            }
            fill_panel(&rows[..outputs], out);
        });
        done(((index + 1) * at_once * LANES).min(weights.rows()));
    }
    panels
}

/// Packs the codes of up to sixteen outputs. Outputs that do not exist keep codes and scales of zero.
fn pack_codes<F: Coded>(rows: &[Row<'_>], out: &mut [u8]) {
    let mut codes = [[0; BLOCK]; LANES];
    for (block, out) in out.chunks_exact_mut(F::Layout::BYTES).enumerate() {
        for (codes, &row) in codes.iter_mut().zip(rows) {
            *codes = F::codes(row, block);
        }
        F::Layout::write(&codes, out);
    }
}

/// Writes the values of one row, as [`Encoded::dequantize_row`] does.
pub(super) struct Unpack<'a, 'o> {
    pub(super) cpu: &'a Cpu,
    pub(super) weights: &'a Matrix,
    pub(super) row: usize,
    pub(super) out: &'o mut [f32],
}

impl CodedVisitor for Unpack<'_, '_> {
    type Output = ();

    fn visit<F: Coded>(self) {
        let Self { cpu, weights, row, out } = self;
        let (output, wide) = (row % LANES, weights.format.wide());
        let groups = groups::<F>(weights.columns, wide);
        let (scales, codes) = weights.panels.panel(row / LANES).split_at(scale_bytes::<F>(groups));
        let per_group = if F::Steps::OFFSETS { 2 } else { 1 };
        let mut spreads = cpu.buffer(groups * per_group * LANES);
        let spreads = spreads.as_chunks_mut::<LANES>().0;
        spread::<F::Scales, F::Steps>(cpu.isa(), scales, spreads);
        let blocks = codes.chunks_exact(F::Layout::BYTES);
        for (block, (out, codes)) in out.chunks_exact_mut(BLOCK).zip(blocks).enumerate() {
            for (column, out) in out.iter_mut().enumerate() {
                let group = (F::Steps::PER_BLOCK * block + column / F::Steps::COLUMNS) >> wide;
                let code = F::Layout::code(codes, output, column);
                let scale = spreads[per_group * group][output];
                let offset = if F::Steps::OFFSETS { spreads[2 * group + 1][output] } else { 0.0 };
                *out = weight::<F>(code, scale, offset);
            }
        }
    }
}
