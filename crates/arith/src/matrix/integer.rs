//! Products of integer-coded weights with rows in 16-bit integers (PLAN.md section 3).
//!
//! With several rows the kernel knows how codes are stored and how columns go in steps, not the format: the scales of a
//! panel are first spread into plain binary32, sixteen outputs a group. So formats share kernels, and rows share that
//! work. A single row takes scales as they are stored: it waits for memory, and spreading would be a second walk.

use super::activations::{FINE, FineBlock, QuantizedBlock, Sums, TileRows, Tiled};
use super::layout::{CodeLayout, LINES, ScaleLayout, Steps};
use super::scales::{PanelScales, SpreadScales, StoredScales, spread};
use super::{Activations, Matrix, amx, panel_count, store_outputs};
use crate::cpu::Cpu;
use crate::format::{Coded, CodedVisitor};
use crate::lanes::{Kernel, LANES, LINE, Lanes};
use crate::pool::Columns;
use std::marker::PhantomData;

/// Groups of one output.
pub(super) fn groups<F: Coded>(columns: usize, wide: u32) -> usize {
    (columns / F::Steps::COLUMNS) >> wide
}

/// Bytes of the scales of a panel: they come first, then the codes.
pub(super) fn scale_bytes<F: Coded>(groups: usize) -> usize {
    F::Scales::bytes(groups).next_multiple_of(LINE)
}

/// Makes the integer form of `rows` that products with a format need; returns its bytes for one row.
pub(super) struct Prepare<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) rows: &'a Activations<'a>,
}

impl CodedVisitor for Prepare<'_> {
    type Output = usize;

    fn visit<F: Coded>(self) -> usize {
        if amx::takes(self.cpu, self.rows.len()) {
            let fine = if F::Steps::FINE { size_of_val(self.rows.fine_tiles(self.cpu)) } else { 0 };
            let bytes = size_of_val(self.rows.tiles(self.cpu)) + fine;
            return bytes / self.rows.len();
        }
        let fine = if F::Steps::FINE { self.rows.fine(self.cpu).row_bytes() } else { 0 };
        self.rows.quantized(self.cpu).row_bytes() + fine
    }
}

/// Some outputs of `weights` times `rows` from `first_row` on.
pub(super) struct Multiply<'a, 'o> {
    pub(super) cpu: &'a Cpu,
    pub(super) weights: &'a Matrix,
    pub(super) rows: &'a Activations<'a>,
    pub(super) first_row: usize,
    pub(super) out: Columns<'o, f32>,
}

impl CodedVisitor for Multiply<'_, '_> {
    type Output = ();

    fn visit<F: Coded>(mut self) {
        let Self { cpu, weights, .. } = self;
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if amx::takes(cpu, self.rows.len()) {
            let Self { rows, first_row, out, .. } = self;
            let tiles = PhantomData::<crate::amx::HardwareTiles>;
            return amx::MultiplyTiles { cpu, weights, rows, first_row, out, tiles }.visit::<F>();
        }
        let rows = self.rows.quantized(cpu);
        let fine = F::Steps::FINE.then(|| self.rows.fine(cpu));
        let wide = weights.format.wide();
        let groups = groups::<F>(weights.columns, wide);
        let lines = groups * if F::Steps::OFFSETS { 2 } else { 1 };
        let mut spreads = cpu.buffer(if self.out.rows() == 1 { 0 } else { PANELS * lines * LANES });
        for first in (0..self.out.count()).step_by(PANELS * LANES) {
            let panel = (self.out.first() + first) / LANES;
            let stored = std::array::from_fn::<_, PANELS, _>(|p| {
                // A last panel without a partner is its own, and the second result is dropped.
                let index = (panel + p).min(panel_count(weights.rows) - 1);
                weights.panels.panel(index).split_at(scale_bytes::<F>(groups))
            });
            let meeting = Meeting {
                next: weights.panels.panels(panel + PANELS, PANELS),
                wide,
                levels: F::LEVELS.unwrap_or(&[0; 16]),
                zero_bits: F::ZERO_BITS,
                rows,
                fine,
                first_row: self.first_row,
                first_output: first,
            };
            if self.out.rows() == 1 {
                let panels = stored
                    .map(|(scales, codes)| Panel { scales: StoredScales::<F::Scales>::new(scales), codes });
                cpu.isa().run(Product::<F::Layout, F::Steps, _>::new(panels, meeting, &mut self.out));
            } else {
                let spreads = spreads.as_chunks_mut().0;
                for (spreads, (stored, _)) in spreads.chunks_exact_mut(lines).zip(stored) {
                    spread::<F::Scales, F::Steps>(cpu.isa(), stored, spreads);
                }
                let panels = std::array::from_fn(|p| Panel {
                    scales: SpreadScales::<F::Steps>::new(&spreads[p * lines..(p + 1) * lines]),
                    codes: stored[p].1,
                });
                cpu.isa().run(Product::<F::Layout, F::Steps, _>::new(panels, meeting, &mut self.out));
            }
        }
    }
}

/// Panels that a kernel is given: two share every load of a row.
const PANELS: usize = 2;

/// One panel.
#[derive(Clone, Copy)]
struct Panel<'a, S> {
    scales: S,
    codes: &'a [u8],
}

/// What two neighbouring panels meet, and where the results go.
struct Meeting<'a> {
    /// The panels after these, to ask for while these are worked on.
    next: &'a [u8],
    /// log2 of the steps of a group.
    wide: u32,
    levels: &'a [u8; 16],
    zero_bits: u32,
    rows: &'a Tiled<QuantizedBlock>,
    /// Where the steps have a fine part.
    fine: Option<&'a Tiled<FineBlock>>,
    /// The row that the output starts with.
    first_row: usize,
    /// The first panel's place in the columns of the output.
    first_output: usize,
}

/// Two neighbouring panels times some rows.
struct Product<'a, 'o, C, T, S> {
    panels: [Panel<'a, S>; PANELS],
    with: Meeting<'a>,
    out: &'a mut Columns<'o, f32>,
    layout: PhantomData<(C, T)>,
}

impl<'a, 'o, C, T, S> Product<'a, 'o, C, T, S> {
    fn new(panels: [Panel<'a, S>; PANELS], with: Meeting<'a>, out: &'a mut Columns<'o, f32>) -> Self {
        Self { panels, with, out, layout: PhantomData }
    }
}

/// What instruction set `L` takes at once. Constants, so that tiles it does not take are never compiled.
struct Takes<L, S>(PhantomData<(L, S)>);

impl<L: Lanes, S: PanelScales> Takes<L, S> {
    const FOUR_ROWS: bool = S::FOR_MANY_ROWS && L::ROWS_AT_ONCE >= 4;
    const TWO_ROWS: bool = S::FOR_MANY_ROWS && L::ROWS_AT_ONCE >= 2;
    const BOTH_PANELS: bool = L::PANELS_AT_ONCE >= PANELS;
}

impl<C: CodeLayout, T: Steps, S: PanelScales> Kernel for Product<'_, '_, C, T, S> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        if Takes::<L, S>::BOTH_PANELS {
            self.all_rows::<L, PANELS>(lanes, 0);
        } else {
            for panel in 0..PANELS {
                self.all_rows::<L, 1>(lanes, panel);
            }
        }
    }
}

impl<C: CodeLayout, T: Steps, S: PanelScales> Product<'_, '_, C, T, S> {
    /// All rows times `P` panels from `panel` on.
    #[inline(always)]
    fn all_rows<L: Lanes, const P: usize>(&mut self, lanes: L, panel: usize) {
        let mut row = 0;
        if Takes::<L, S>::FOUR_ROWS {
            self.tiles::<L, P, 4>(lanes, panel, &mut row);
        }
        if Takes::<L, S>::TWO_ROWS {
            self.tiles::<L, P, 2>(lanes, panel, &mut row);
        }
        self.tiles::<L, P, 1>(lanes, panel, &mut row);
    }

    /// As many tiles of `R` rows as there are from `row` on.
    #[inline(always)]
    fn tiles<L: Lanes, const P: usize, const R: usize>(&mut self, lanes: L, panel: usize, row: &mut usize) {
        while *row + R <= self.out.rows() {
            let sums = self.tile::<L, P, R>(lanes, panel, self.with.first_row + *row);
            for r in 0..R {
                let out = &mut self.out.row(*row + r)[self.with.first_output..];
                for p in 0..P {
                    let first = (LANES * (panel + p)).min(out.len());
                    store_outputs(lanes, sums[r][p], &mut out[first..]);
                }
            }
            *row += R;
        }
    }

    /// The sixteen outputs of `P` panels from `panel` on, for `R` rows from `row` on.
    #[inline(always)]
    fn tile<L: Lanes, const P: usize, const R: usize>(
        &self,
        lanes: L,
        panel: usize,
        row: usize,
    ) -> [[L::Float; P]; R] {
        let rows = self.with.rows.rows_from(row);
        let fine = if T::FINE { self.with.fine.map(|fine| fine.rows_from(row)) } else { None };
        let panels: &[Panel<'_, S>; P] =
            self.panels[panel..panel + P].try_into().expect("a slice of P panels");
        let blocks = panels[0].codes.len() / C::BYTES;
        let mut next =
            self.next_lines::<P>(panel, row).chunks(self.with.next.len() / LINE / blocks.max(1) + 1);
        let mut sums = [[lanes.splat(0.0); P]; R];
        for block in 0..blocks {
            for line in next.next().unwrap_or(&[]) {
                lanes.prefetch(line);
            }
            let rows = rows.blocks::<R>(block);
            let fine = fine.map(
                #[inline(always)]
                |fine: TileRows<'_, FineBlock>| fine.blocks::<R>(block),
            );
            for part in 0..T::PER_BLOCK {
                let mut products = self.exact_sums(lanes, panels, block, part, rows);
                if let Some(fine) = fine {
                    self.add_fine_sums(lanes, panels, block, fine, &mut products);
                }
                let group = (T::PER_BLOCK * block + part) >> self.with.wide;
                for p in 0..P {
                    if T::OFFSETS {
                        let offset = panels[p].scales.offset(lanes, group);
                        for r in 0..R {
                            let step = step_sums::<T>(&rows[r], part);
                            let scaled = lanes.splat(fine.map_or(step, |fine| &fine[r].sums).scaled);
                            sums[r][p] = lanes.fma(offset, scaled, sums[r][p]);
                        }
                    }
                    let scale = panels[p].scales.scale(lanes, group);
                    for r in 0..R {
                        let value = lanes.mul(scale, lanes.splat(rows[r].scale));
                        sums[r][p] = lanes.fma(products[r][p], value, sums[r][p]);
                    }
                }
            }
        }
        sums
    }

    /// What to ask for of the next panels while `P` panels from `panel` on meet row `row`: everything once.
    #[inline(always)]
    fn next_lines<const P: usize>(&self, panel: usize, row: usize) -> &[[u8; LINE]] {
        if row > self.with.first_row {
            return &[];
        }
        let lines = self.with.next.as_chunks().0;
        &lines[lines.len() * panel / PANELS..lines.len() * (panel + P) / PANELS]
    }

    /// `S - z X` of one step, for every row and panel.
    #[inline(always)]
    fn exact_sums<L: Lanes, const P: usize, const R: usize>(
        &self,
        lanes: L,
        panels: &[Panel<'_, S>; P],
        block: usize,
        part: usize,
        rows: &[QuantizedBlock; R],
    ) -> [[L::Float; P]; R] {
        let mut dots = [[lanes.dot_zero(); P]; R];
        if !T::OFFSETS {
            for r in 0..R {
                dots[r] = [lanes.dot_start(step_sums::<T>(&rows[r], part).negated, self.with.zero_bits); P];
            }
        }
        let lines = LINES / T::PER_BLOCK;
        for line in lines * part..lines * (part + 1) {
            for p in 0..P {
                let codes = &panels[p].codes[C::BYTES * block..C::BYTES * (block + 1)];
                let codes = C::line(lanes, codes, line, self.with.levels);
                for r in 0..R {
                    dots[r][p] = lanes.dot_line(dots[r][p], codes, &rows[r].row, line);
                }
            }
        }
        let mut sums = [[lanes.splat(0.0); P]; R];
        for r in 0..R {
            for p in 0..P {
                sums[r][p] = lanes.to_float(lanes.dot_finish(dots[r][p]));
            }
        }
        sums
    }

    /// Adds the fine part of `S - z X` of a block. A pass of its own over the codes, so that the exact sums of both
    /// parts need not lie in registers at once.
    #[inline(always)]
    fn add_fine_sums<L: Lanes, const P: usize, const R: usize>(
        &self,
        lanes: L,
        panels: &[Panel<'_, S>; P],
        block: usize,
        fine: &[FineBlock; R],
        products: &mut [[L::Float; P]; R],
    ) {
        let mut dots = [[lanes.dot_zero(); P]; R];
        if !T::OFFSETS {
            for r in 0..R {
                dots[r] = [lanes.dot_start(fine[r].sums.negated, self.with.zero_bits); P];
            }
        }
        for line in 0..LINES {
            for p in 0..P {
                let codes = &panels[p].codes[C::BYTES * block..C::BYTES * (block + 1)];
                let codes = C::line(lanes, codes, line, self.with.levels);
                for r in 0..R {
                    dots[r][p] = lanes.dot_byte_line(dots[r][p], codes, &fine[r].plane, line);
                }
            }
        }
        for r in 0..R {
            for p in 0..P {
                let sum = lanes.to_float(lanes.dot_finish(dots[r][p]));
                products[r][p] = lanes.fma(sum, lanes.splat(FINE), products[r][p]);
            }
        }
    }
}

/// Sums of the columns of step `part` of a block.
#[inline(always)]
fn step_sums<T: Steps>(block: &QuantizedBlock, part: usize) -> &Sums {
    if T::PER_BLOCK == 1 { &block.whole } else { &block.halves[part] }
}
