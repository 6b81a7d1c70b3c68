//! The rows that meet a weight matrix: as they are, and in 16-bit integers (PLAN.md section 2).

use crate::cpu::Cpu;
use crate::format::BLOCK;
use crate::lanes::{Kernel, LANES, Lanes, RowBlock};
use std::borrow::Cow;
use std::sync::OnceLock;

/// Rows that are stored together: block by block, so that a kernel reads one stream.
pub(super) const TILE: usize = 8;

/// Rows of `columns` inputs each. The integer form that integer-coded weights need is made once, when a product first
/// asks for it, and shared by all products of these rows.
pub struct Activations<'a> {
    rows: Cow<'a, [f32]>,
    columns: usize,
    /// Where these rows were picked from, and which.
    source: Option<(&'a Activations<'a>, Vec<u32>)>,
    quantized: OnceLock<Quantized>,
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
        Self { rows, columns, source: None, quantized: OnceLock::new() }
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
        Activations {
            rows: Cow::Owned(selected),
            columns: self.columns,
            source: Some((self, rows.to_vec())),
            quantized: OnceLock::new(),
        }
    }

    /// The integer form. `columns` is a multiple of 32, as all integer-coded matrices have it.
    pub(super) fn quantized(&self, cpu: &Cpu) -> &Quantized {
        self.quantized.get_or_init(|| match &self.source {
            Some((source, rows)) => source.quantized(cpu).select(rows),
            None => Quantized::new(cpu, &self.rows, self.columns),
        })
    }
}

/// One block of one row: integers, their scale, and what offsets and zero points need of their sums.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct QuantizedBlock {
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
pub(super) struct Sums {
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

/// Rows in 16-bit integers. Rows go in tiles of [`TILE`] (the last may have fewer); in a tile the blocks of all its rows
/// at columns 0 to 31 come first, then those at 32 to 63, and so on.
pub(super) struct Quantized {
    rows: usize,
    /// Of one row.
    blocks: usize,
    data: Vec<QuantizedBlock>,
}

/// Some rows of one tile.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a> {
    /// The tile, from the first of these rows on.
    data: &'a [QuantizedBlock],
    /// Rows of the tile.
    stride: usize,
}

impl<'a> TileRows<'a> {
    /// Block `block` of `R` rows.
    #[inline(always)]
    pub(super) fn blocks<const R: usize>(&self, block: usize) -> &'a [QuantizedBlock; R] {
        self.data[self.stride * block..][..R].try_into().expect("a slice of R blocks")
    }
}

impl Quantized {
    fn new(cpu: &Cpu, rows: &[f32], columns: usize) -> Self {
        let blocks = columns / BLOCK;
        let mut data = vec![QuantizedBlock::ZERO; rows.len() / BLOCK];
        let tile = TILE * columns;
        cpu.pool().run_pieces(&mut data, TILE * blocks.max(1), &|index, out| {
            let rows = &rows[index * tile..(index * tile + tile).min(rows.len())];
            cpu.isa().run(QuantizeTile { rows, columns, out });
        });
        Self { rows: rows.len() / columns.max(1), blocks, data }
    }

    /// Bytes of one row.
    pub(super) fn row_bytes(&self) -> usize {
        self.blocks * size_of::<QuantizedBlock>()
    }

    /// Row `row` and those after it in its tile.
    #[inline(always)]
    pub(super) fn rows_from(&self, row: usize) -> TileRows<'_> {
        let first = row - row % TILE;
        let stride = TILE.min(self.rows - first);
        TileRows {
            data: &self.data[first * self.blocks + row % TILE..(first + stride) * self.blocks],
            stride,
        }
    }

    fn select(&self, rows: &[u32]) -> Self {
        let mut data = vec![QuantizedBlock::ZERO; rows.len() * self.blocks];
        for (to, &from) in rows.iter().enumerate() {
            let source = self.rows_from(from as usize);
            let first = to - to % TILE;
            let stride = TILE.min(rows.len() - first);
            let tile = &mut data[first * self.blocks..(first + stride) * self.blocks];
            for block in 0..self.blocks {
                tile[stride * block + to % TILE] = source.blocks::<1>(block)[0];
            }
        }
        Self { rows: rows.len(), blocks: self.blocks, data }
    }
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
        let stride = self.rows.len() / self.columns;
        for (index, row) in self.rows.chunks_exact(self.columns).enumerate() {
            let (blocks, _) = row.as_chunks::<BLOCK>();
            for (block, x) in blocks.iter().enumerate() {
                quantize_block(lanes, x, &mut self.out[stride * block + index]);
            }
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
