//! Products of integer-coded weights with many rows by integer tiles (PLAN.md section 3).
//!
//! The codes of a panel are unpacked to bytes once and its scales spread once; both stay in the first-level cache
//! while all rows pass, sixteen at a time. The tiles give the exact sums of one step, and while the next step's are
//! under way these are folded into sixteen accumulators in the plan's order.

use super::activations::FINE;
use super::amx_rows::{FineTile, RowTile};
use super::integer::{groups, scale_bytes};
use super::layout::{CodeLayout, LINES, Steps};
use super::scales::{PanelScales, SpreadScales, spread};
use super::{Activations, Matrix, store_outputs};
use crate::amx::{CodeLine, TILE_ROWS, TileSums, Tiles};
use crate::buffer::Buffer;
use crate::cpu::{Cpu, Isa};
use crate::format::{BLOCK, Coded, CodedVisitor};
use crate::lanes::{Kernel, LANES, LINE, Lanes};
use crate::pool::Columns;
use std::marker::PhantomData;

/// What is done with each of the sixteen rows, written out: as a loop this long the compiler would keep it a loop, and
/// the accumulators in memory.
macro_rules! each_row {
    ($r:ident, $body:expr) => {
        each_row!(@ $r, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $r:ident, $body:expr, $($row:literal)*) => {
        $({
            let $r: usize = $row;
            $body
        })*
    };
}

/// Whether products with `rows` rows go by tiles: where more than a quarter of the tiles' rows would stay empty, the
/// other path is faster.
pub(super) fn takes(cpu: &Cpu, rows: usize) -> bool {
    cpu.isa() == Isa::Amx && rows > 0 && 4 * rows >= 3 * rows.next_multiple_of(TILE_ROWS)
}

/// Some outputs of `weights` times `rows` from `first_row` on, a multiple of [`TILE_ROWS`], by tiles `X`.
pub(super) struct MultiplyTiles<'a, 'o, X> {
    pub(super) cpu: &'a Cpu,
    pub(super) weights: &'a Matrix,
    pub(super) rows: &'a Activations<'a>,
    pub(super) first_row: usize,
    pub(super) out: Columns<'o, f32>,
    pub(super) tiles: PhantomData<X>,
}

impl<X: Tiles> CodedVisitor for MultiplyTiles<'_, '_, X> {
    type Output = ();

    fn visit<F: Coded>(mut self) {
        let Self { cpu, weights, .. } = self;
        let blocks = weights.columns / BLOCK;
        let first_tile = self.first_row / TILE_ROWS * blocks;
        let rows = &self.rows.tiles(cpu)[first_tile..];
        let fine = F::Steps::FINE.then(|| &self.rows.fine_tiles(cpu)[first_tile..]);
        let wide = weights.format.wide();
        let groups = groups::<F>(weights.columns, wide);
        let mut spreads = cpu.buffer(groups * if F::Steps::OFFSETS { 2 } else { 1 } * LANES);
        let mut lines = Buffer::take(&cpu.shelves().lines, blocks * LINES, CodeLine([0; LINE]));
        let tiles = X::begin(F::Steps::COLUMNS);
        for first_output in (0..self.out.count()).step_by(LANES) {
            let panel = (self.out.first() + first_output) / LANES;
            let (scales, codes) = weights.panels.panel(panel).split_at(scale_bytes::<F>(groups));
            let spreads = spreads.as_chunks_mut().0;
            spread::<F::Scales, F::Steps>(cpu.isa(), scales, spreads);
            cpu.isa().run(Unpack::<F::Layout> {
                codes,
                levels: F::LEVELS.unwrap_or(&[0; 16]),
                zero: if F::Steps::OFFSETS { 0 } else { 1 << F::ZERO_BITS },
                lines: &mut lines,
                layout: PhantomData,
            });
            cpu.isa().run(TileProduct::<F::Steps, X> {
                scales: SpreadScales::new(spreads),
                wide,
                lines: &lines,
                rows,
                fine,
                blocks,
                tiles: &tiles,
                first_output,
                out: &mut self.out,
            });
        }
    }
}

/// Unpacks the codes of a panel to bytes, less their zero point.
struct Unpack<'a, C> {
    codes: &'a [u8],
    levels: &'a [u8; 16],
    zero: u8,
    lines: &'a mut [CodeLine],
    layout: PhantomData<C>,
}

impl<C: CodeLayout> Kernel for Unpack<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let (blocks, _) = self.lines.as_chunks_mut::<LINES>();
        for (block, codes) in blocks.iter_mut().zip(self.codes.chunks_exact(C::BYTES)) {
            for line in 0..LINES {
                lanes.store_codes(C::line(lanes, codes, line, self.levels), &mut block[line].0);
                for byte in &mut block[line].0 {
                    *byte = byte.wrapping_sub(self.zero);
                }
            }
        }
    }
}

/// A panel times all rows, from the first of `rows` on.
struct TileProduct<'a, 'o, T, X> {
    scales: SpreadScales<'a, T>,
    /// log2 of the steps of a group.
    wide: u32,
    lines: &'a [CodeLine],
    rows: &'a [RowTile],
    /// Where the steps have a fine part.
    fine: Option<&'a [FineTile]>,
    blocks: usize,
    tiles: &'a X,
    first_output: usize,
    out: &'a mut Columns<'o, f32>,
}

/// Exact sums of one step: of the high, the low and the fine plane.
struct StepSums {
    planes: [TileSums; 2],
    fine: TileSums,
}

impl<T: Steps, X: Tiles> Kernel for TileProduct<'_, '_, T, X> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        const ZERO: StepSums = StepSums { planes: [TileSums::ZERO; 2], fine: TileSums::ZERO };
        let mut exact = [ZERO; 2];
        for first in (0..self.out.rows()).step_by(TILE_ROWS) {
            self.tile(lanes, first, &mut exact);
        }
    }
}

impl<T: Steps, X: Tiles> TileProduct<'_, '_, T, X> {
    /// The outputs of the sixteen rows from row `first` of the output on.
    ///
    /// While a step is folded the next one's sums are stored and those of the one after it computed: steps take turns
    /// with two banks of tiles and two places in memory.
    #[inline(always)]
    fn tile<L: Lanes>(&mut self, lanes: L, first: usize, exact: &mut [StepSums; 2]) {
        let place = first / TILE_ROWS * self.blocks..(first / TILE_ROWS + 1) * self.blocks;
        let rows = Rows {
            blocks: &self.rows[place.clone()],
            fine: if T::FINE { self.fine.map(|fine| &fine[place]) } else { None },
        };
        let mut sums = [lanes.splat(0.0); TILE_ROWS];
        for step in 0..self.blocks * T::PER_BLOCK + 2 {
            if step % 2 == 0 {
                self.turn::<L, 0, 1>(lanes, &rows, step, exact, &mut sums);
            } else {
                self.turn::<L, 1, 0>(lanes, &rows, step, exact, &mut sums);
            }
        }
        let count = TILE_ROWS.min(self.out.rows() - first);
        each_row!(r, {
            if r < count {
                let out = &mut self.out.row(first + r)[self.first_output..];
                let count = LANES.min(out.len());
                store_outputs(lanes, sums[r], &mut out[..count]);
            }
        });
    }

    /// Starts step `step` in `BANK`, finishes the one before it in `OTHER`, and folds the one before that.
    #[inline(always)]
    fn turn<L: Lanes, const BANK: usize, const OTHER: usize>(
        &self,
        lanes: L,
        rows: &Rows<'_>,
        step: usize,
        exact: &mut [StepSums; 2],
        sums: &mut [L::Float; TILE_ROWS],
    ) {
        let steps = self.blocks * T::PER_BLOCK;
        if step < steps {
            let lines = &self.lines[T::COLUMNS / 4 * step..T::COLUMNS / 4 * (step + 1)];
            let block = &rows.blocks[step / T::PER_BLOCK];
            let first = T::COLUMNS * (step % T::PER_BLOCK);
            self.tiles.start::<BANK>([&block.high, &block.low], first, lines, !T::OFFSETS);
        }
        let (folded, finished) = match (exact, BANK) {
            ([folded, finished], 0) | ([finished, folded], _) => (folded, finished),
        };
        if step >= 2 {
            self.fold::<L, OTHER>(lanes, rows, step - 2, folded, finished, sums);
        } else {
            self.finish::<OTHER>(rows, step, finished);
        }
    }

    /// Stores the sums of the step before `step`, which are in `BANK`, where there is such a step.
    #[inline(always)]
    fn finish<const BANK: usize>(&self, rows: &Rows<'_>, step: usize, to: &mut StepSums) {
        if !(1..=self.blocks * T::PER_BLOCK).contains(&step) {
            return;
        }
        self.tiles.finish::<BANK>(&mut to.planes);
        if let Some(fine) = rows.fine {
            let step = step - 1;
            let lines = &self.lines[T::COLUMNS / 4 * step..T::COLUMNS / 4 * (step + 1)];
            let (plane, first) = (&fine[step / T::PER_BLOCK].plane, T::COLUMNS * (step % T::PER_BLOCK));
            self.tiles.single(plane, first, lines, !T::OFFSETS, &mut to.fine);
        }
    }

    /// Folds the exact sums of step `step` into the accumulators; half-way through, when they are ready, stores the
    /// next step's, which are in `NEXT`.
    #[inline(always)]
    fn fold<L: Lanes, const NEXT: usize>(
        &self,
        lanes: L,
        rows: &Rows<'_>,
        step: usize,
        exact: &StepSums,
        next: &mut StepSums,
        sums: &mut [L::Float; TILE_ROWS],
    ) {
        let (block, group) = (step / T::PER_BLOCK, step >> self.wide);
        let scaled = match rows.fine {
            Some(fine) => &fine[block].scaled,
            None if T::PER_BLOCK == 1 => &rows.blocks[block].whole,
            None => &rows.blocks[block].halves[step % T::PER_BLOCK],
        };
        let scale = self.scales.scale(lanes, group);
        let offset = if T::OFFSETS { self.scales.offset(lanes, group) } else { scale };
        let row_scales = &rows.blocks[block].scales;
        each_row!(r, {
            if r == TILE_ROWS / 2 {
                self.finish::<NEXT>(rows, step + 2, next);
            }
            if T::OFFSETS {
                sums[r] = lanes.fma(offset, lanes.splat(scaled[r]), sums[r]);
            }
            let high = lanes.shift_left_int(lanes.load_int(&exact.planes[0].0[r]), 8);
            let sum = lanes.add_int(high, lanes.load_int(&exact.planes[1].0[r]));
            let mut product = lanes.to_float(sum);
            if T::FINE {
                let part = lanes.to_float(lanes.load_int(&exact.fine.0[r]));
                product = lanes.fma(part, lanes.splat(FINE), product);
            }
            let value = lanes.mul(scale, lanes.splat(row_scales[r]));
            sums[r] = lanes.fma(product, value, sums[r]);
        });
    }
}

/// Sixteen rows.
struct Rows<'a> {
    blocks: &'a [RowTile],
    /// Where the steps have a fine part.
    fine: Option<&'a [FineTile]>,
}
