//! The rows that meet a weight matrix: as they are, and in 16-bit integers (PLAN.md section 2).

use super::amx_rows::{FineTile, RowTile, fine_tiles, row_tiles};
use crate::buffer::{Buffer, Shelf};
use crate::cpu::Cpu;
use crate::format::BLOCK;
use crate::lanes::{Kernel, LANES, Lanes, RowBlock};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Rows that are stored together: block by block, so that a kernel reads one stream.
pub(super) const TILE: usize = 8;

/// Rows of `columns` inputs each. The integer form that integer-coded weights need is made once, when a product first
/// asks for it, and shared by all products of these rows.
pub struct Activations<'a> {
    rows: Cow<'a, [f32]>,
    columns: usize,
    /// Where these rows were picked from, and which.
    source: Option<(&'a Activations<'a>, Vec<u32>)>,
    quantized: OnceLock<Tiled<QuantizedBlock>>,
    fine: OnceLock<Tiled<FineBlock>>,
    /// The same, as integer tiles take them.
    tiles: OnceLock<Buffer<RowTile>>,
    fine_tiles: OnceLock<Buffer<FineTile>>,
}

impl<'a> Activations<'a> {
    /// Row-major `rows` of `columns` each.
    ///
    /// # Panics
    /// When `rows` is not a whole number of rows.
    pub fn new(rows: impl Into<Cow<'a, [f32]>>, columns: usize) -> Self {
        let rows = rows.into();
        assert!(
            rows.is_empty() || (columns > 0 && rows.len().is_multiple_of(columns)),
            "{} elements in rows of {columns}",
            rows.len()
        );
        Self::of(rows, columns, None)
    }

    fn of(rows: Cow<'a, [f32]>, columns: usize, source: Option<(&'a Activations<'a>, Vec<u32>)>) -> Self {
        let (quantized, fine) = (OnceLock::new(), OnceLock::new());
        Self { rows, columns, source, quantized, fine, tiles: OnceLock::new(), fine_tiles: OnceLock::new() }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len() / self.columns.max(1)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Inputs of each row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The rows as they are, row-major.
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// Rows `rows` of these, in that order (repetitions allowed), as for one expert of a mixture. All picks from these
    /// rows share one integer form.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, rows: &[u32]) -> Activations<'_> {
        let mut selected = Vec::with_capacity(rows.len() * self.columns);
        for &row in rows {
            let row = row as usize;
            selected.extend_from_slice(&self.rows[row * self.columns..(row + 1) * self.columns]);
        }
        Activations::of(Cow::Owned(selected), self.columns, Some((self, rows.to_vec())))
    }

    /// The integer form. `columns` is a multiple of 32, as all integer-coded matrices have it.
    pub(super) fn quantized(&self, cpu: &Cpu) -> &Tiled<QuantizedBlock> {
        self.quantized.get_or_init(|| match &self.source {
            Some((source, rows)) => source.quantized(cpu).select(rows, &cpu.shelves().quantized),
            None => Tiled::quantize(cpu, &self.rows, self.columns),
        })
    }

    /// What the integer form leaves over.
    pub(super) fn fine(&self, cpu: &Cpu) -> &Tiled<FineBlock> {
        self.fine.get_or_init(|| match &self.source {
            Some((source, rows)) => source.fine(cpu).select(rows, &cpu.shelves().fine),
            None => self.quantized(cpu).fine(cpu, &self.rows, self.columns),
        })
    }

    /// The integer form in tiles of sixteen rows.
    pub(super) fn tiles(&self, cpu: &Cpu) -> &[RowTile] {
        self.tiles.get_or_init(|| row_tiles(cpu, self.quantized(cpu)))
    }

    /// What the integer form leaves over, in tiles of sixteen rows.
    pub(super) fn fine_tiles(&self, cpu: &Cpu) -> &[FineTile] {
        self.fine_tiles.get_or_init(|| fine_tiles(cpu, self.fine(cpu)))
    }
}

/// One block of one row: integers, their scale, and what offsets and zero points need of their sums.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct QuantizedBlock {
    pub(super) row: RowBlock,
    /// The value of an integer.
    pub(super) scale: f32,
    /// Of all 32 columns.
    pub(super) whole: Sums,
    /// Of columns 0 to 15 and 16 to 31.
    pub(super) halves: [Sums; 2],
}

/// Of the exact sum `X` of some integers.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Sums {
    /// `-X`, to start products at `-z X`.
    pub(super) negated: i32,
    /// `scale * float(X)`, which offsets multiply.
    pub(super) scaled: f32,
}

impl Sums {
    const ZERO: Self = Self { negated: 0, scaled: 0.0 };
}

impl QuantizedBlock {
    const ZERO: Self = Self {
        row: RowBlock { high: [0; BLOCK], low: [0; BLOCK], integer: [0; BLOCK] },
        scale: 0.0,
        whole: Sums::ZERO,
        halves: [Sums::ZERO; 2],
    };
}

/// What one block of one row has beyond its integers, in 256ths of an integer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct FineBlock {
    pub(super) plane: [i8; BLOCK],
    /// Of the block with its fine part: `negated` counts 256ths, `scaled` is the sum of both parts.
    pub(super) sums: Sums,
}

impl FineBlock {
    const ZERO: Self = Self { plane: [0; BLOCK], sums: Sums::ZERO };
}

/// Blocks of rows. Rows go in tiles of [`TILE`] (the last may have fewer); in a tile the blocks of all its rows
/// at columns 0 to 31 come first, then those at 32 to 63, and so on.
pub(super) struct Tiled<B> {
    rows: usize,
    /// Of one row.
    blocks: usize,
    data: Buffer<B>,
}

/// Some rows of one tile.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a, B> {
    /// The tile, from the first of these rows on.
    data: &'a [B],
    /// Rows of the tile.
    stride: usize,
}

impl<'a, B> TileRows<'a, B> {
    /// Block `block` of `R` rows.
    #[inline(always)]
    pub(super) fn blocks<const R: usize>(&self, block: usize) -> &'a [B; R] {
        self.data[self.stride * block..][..R].try_into().expect("a slice of R blocks")
    }
}

impl Tiled<QuantizedBlock> {
    fn quantize(cpu: &Cpu, rows: &[f32], columns: usize) -> Self {
        let (rows_of_all, blocks) = (rows.len() / columns.max(1), columns / BLOCK);
        let data = Buffer::take(&cpu.shelves().quantized, rows_of_all * blocks, QuantizedBlock::ZERO);
        let mut tiled = Self { rows: rows_of_all, blocks, data };
        tiled.each_tile(cpu, rows, columns, &|_, rows, out| {
            cpu.isa().run(QuantizeTile { rows, columns, out });
        });
        tiled
    }

    /// What these integers leave of `rows`, which they came from.
    fn fine(&self, cpu: &Cpu, rows: &[f32], columns: usize) -> Tiled<FineBlock> {
        let data = Buffer::take(&cpu.shelves().fine, self.data.len(), FineBlock::ZERO);
        let mut tiled = Tiled { rows: self.rows, blocks: self.blocks, data };
        tiled.each_tile(cpu, rows, columns, &|first, rows, out| {
            let quantized = &self.data[first..first + out.len()];
            cpu.isa().run(RefineTile { rows, columns, quantized, out });
        });
        tiled
    }
}

/// Work on one tile: its first block's place among all, its rows, its blocks.
type TileTask<'a, B> = dyn Fn(usize, &[f32], &mut [B]) + Sync + 'a;

impl<B: Copy + Send> Tiled<B> {
    /// Calls `task(first block, rows, blocks)` for every tile, on all threads.
    fn each_tile(&mut self, cpu: &Cpu, rows: &[f32], columns: usize, task: &TileTask<'_, B>) {
        let (tile, piece) = (TILE * columns, TILE * self.blocks.max(1));
        cpu.pool().run_pieces(&mut self.data, piece, &|index, out| {
            task(index * piece, &rows[index * tile..(index * tile + tile).min(rows.len())], out);
        });
    }

    /// Rows.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Blocks of one row.
    pub(super) fn blocks_of_row(&self) -> usize {
        self.blocks
    }

    /// Bytes of one row.
    pub(super) fn row_bytes(&self) -> usize {
        self.blocks * size_of::<B>()
    }

    /// Row `row` and those after it in its tile.
    #[inline(always)]
    pub(super) fn rows_from(&self, row: usize) -> TileRows<'_, B> {
        let first = row - row % TILE;
        let stride = TILE.min(self.rows - first);
        TileRows {
            data: &self.data[first * self.blocks + row % TILE..(first + stride) * self.blocks],
            stride,
        }
    }

    fn select(&self, rows: &[u32], shelf: &Arc<Shelf<B>>) -> Self {
        let filler = self.data.first().copied();
        let mut data = filler
            .map_or_else(Buffer::default, |filler| Buffer::take(shelf, rows.len() * self.blocks, filler));
        for (tile, rows) in data.chunks_mut((TILE * self.blocks).max(1)).zip(rows.chunks(TILE)) {
            for (index, &from) in rows.iter().enumerate() {
                let source = self.rows_from(from as usize);
                for block in 0..self.blocks {
                    tile[block * rows.len() + index] = source.blocks::<1>(block)[0];
                }
            }
        }
        Self { rows: rows.len(), blocks: self.blocks, data }
    }
}

/// The blocks of the rows of one tile, each with its place in the tile.
#[inline(always)]
fn placed_blocks(rows: &[f32], columns: usize) -> impl Iterator<Item = (usize, &[f32; BLOCK])> {
    let stride = rows.len() / columns;
    rows.chunks_exact(columns).enumerate().flat_map(move |(index, row)| {
        let (blocks, _) = row.as_chunks::<BLOCK>();
        blocks.iter().enumerate().map(move |(block, x)| (stride * block + index, x))
    })
}

/// Quantizes the rows of one tile.
struct QuantizeTile<'a> {
    rows: &'a [f32],
    columns: usize,
    out: &'a mut [QuantizedBlock],
}

impl Kernel for QuantizeTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (place, x) in placed_blocks(self.rows, self.columns) {
            quantize_block(lanes, x, &mut self.out[place]);
        }
    }
}

/// Smallest largest magnitude that is not taken for zero: 2^-100.
const TINY: f32 = f32::from_bits((127 - 100) << 23);
/// Largest magnitude of an integer: `256 * 127 + 127`.
const LARGEST: f32 = 32639.0;

#[inline(always)]
fn quantize_block<L: Lanes>(lanes: L, x: &[f32; BLOCK], out: &mut QuantizedBlock) {
    let (halves, _) = x.as_chunks::<LANES>();
    let halves = [lanes.load(&halves[0]), lanes.load(&halves[1])];
    let infinity = lanes.splat(f32::INFINITY);
    let magnitude = halves.map(
        #[inline(always)]
        |x| {
            let magnitude = lanes.abs(x);
            // NaN is not less either, so every value that is not finite counts as infinity.
            lanes.select_less(magnitude, infinity, magnitude, infinity)
        },
    );
    let amax = lanes.max_tree(lanes.max(magnitude[0], magnitude[1]));
    *out = QuantizedBlock::ZERO;
    if amax == f32::INFINITY {
        let poison = Sums { negated: 0, scaled: f32::NAN };
        (out.scale, out.whole, out.halves) = (f32::NAN, poison, [poison; 2]);
        return;
    }
    if amax < TINY {
        return;
    }
    let scale = amax / LARGEST;
    let inverse = lanes.splat(1.0 / scale);
    let mut integers = [0; BLOCK];
    let (parts, _) = integers.as_chunks_mut::<LANES>();
    for half in 0..2 {
        lanes.store_int(lanes.to_int(lanes.mul(halves[half], inverse)), &mut parts[half]);
    }
    for k in 0..BLOCK {
        out.row.high[k] = ((integers[k] + 128) >> 8) as i8;
        out.row.low[k] = integers[k] as i8;
        out.row.integer[k] = integers[k] as i16;
    }
    let sums = |sum: i32| Sums { negated: -sum, scaled: scale * sum as f32 };
    let low: i32 = integers[..LANES].iter().sum();
    let high: i32 = integers[LANES..].iter().sum();
    (out.scale, out.whole, out.halves) = (scale, sums(low + high), [sums(low), sums(high)]);
}

/// Makes the fine part of the rows of one tile.
struct RefineTile<'a> {
    rows: &'a [f32],
    columns: usize,
    quantized: &'a [QuantizedBlock],
    out: &'a mut [FineBlock],
}

impl Kernel for RefineTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (place, x) in placed_blocks(self.rows, self.columns) {
            refine_block(lanes, x, &self.quantized[place], &mut self.out[place]);
        }
    }
}

#[inline(always)]
fn refine_block<L: Lanes>(lanes: L, x: &[f32; BLOCK], block: &QuantizedBlock, out: &mut FineBlock) {
    *out = FineBlock { sums: block.whole, ..FineBlock::ZERO };
    // Blocks taken for zero, and poisoned ones, have nothing left over.
    if block.scale.is_nan() || block.scale == 0.0 {
        out.sums.negated = 0;
        return;
    }
    let (step, inverse) = (lanes.splat(-block.scale), lanes.splat(1.0 / block.scale));
    let (halves, _) = x.as_chunks::<LANES>();
    let mut fine = [0; BLOCK];
    let (parts, _) = fine.as_chunks_mut::<LANES>();
    for half in 0..2 {
        let integers: [f32; LANES] = std::array::from_fn(|l| f32::from(block.row.integer[LANES * half + l]));
        let left = lanes.fma(step, lanes.load(&integers), lanes.load(&halves[half]));
        let parts_of_256 = lanes.round(lanes.mul(lanes.mul(left, inverse), lanes.splat(256.0)));
        lanes.store_int(lanes.to_int(lanes.min(parts_of_256, lanes.splat(127.0))), &mut parts[half]);
    }
    for k in 0..BLOCK {
        out.plane[k] = fine[k].max(-128) as i8;
    }
    let sum: i32 = out.plane.iter().map(|&part| i32::from(part)).sum();
    let whole = (sum as f32).mul_add(FINE, -block.whole.negated as f32);
    out.sums = Sums { negated: -sum, scaled: block.scale * whole };
}

/// The value of a fine part, in integers.
pub(super) const FINE: f32 = 1.0 / 256.0;
