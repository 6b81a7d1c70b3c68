//! Weight matrices, packed once for the product kernels, and their products with rows.
//!
//! A packed matrix is a sequence of panels of sixteen outputs, so every instruction set computes sixteen outputs side by
//! side and no sum is ever split. `PLAN.md` sections 2 to 4 define the sums.

mod activations;
mod amx;
mod amx_rows;
mod bit_planes;
mod float;
mod integer;
pub(crate) mod layout;
mod pack;
mod panels;
mod scales;
#[cfg(test)]
mod tests;

pub use activations::Activations;
pub(crate) use activations::{FineBlock, QuantizedBlock};
pub(crate) use amx_rows::{FineTile, RowTile};

use crate::amx::TILE_ROWS;
use crate::cpu::Cpu;
use crate::format::{Encoded, FloatType, Format};
use crate::lanes::{LANES, Lanes};
use crate::pool::{ColumnPieces, Columns};
use half::{bf16, f16};
use panels::Panels;
use std::fmt;

/// A weight matrix of `rows` outputs by `columns` inputs, packed for [`Cpu::matmul`].
///
/// It takes about the bytes of the checkpoint, rounded up to sixteen outputs.
pub struct Matrix {
    format: Format,
    rows: usize,
    columns: usize,
    panels: Panels,
}

impl Matrix {
    /// Packs `weights`, using all threads of `cpu`.
    pub fn pack(cpu: &Cpu, weights: &Encoded<'_>) -> Self {
        Self::pack_watched(cpu, weights, &mut |_| ())
    }

    /// [`Matrix::pack`] that tells `done` how many outputs are packed, every few megabytes: for progress, and so that
    /// what was read of the checkpoint need not stay in memory beside its packed form.
    pub fn pack_watched(cpu: &Cpu, weights: &Encoded<'_>, done: &mut dyn FnMut(usize)) -> Self {
        let format = weights.format();
        let panels = match format {
            Format::Float(_) => float::pack(cpu, weights, done),
            _ => format.visit_coded(pack::Pack { cpu, weights, done }).expect("all other formats are coded"),
        };
        Self { format, rows: weights.rows(), columns: weights.columns(), panels }
    }

    /// Writes the values of row `row`: the same as [`Encoded::dequantize_row`] of what was packed.
    ///
    /// # Panics
    /// When there is no such row, or `out` does not hold [`Matrix::columns`] elements.
    pub fn dequantize_row(&self, cpu: &Cpu, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.columns, "a row has one value per column");
        match self.format {
            Format::Float(FloatType::F32) => float::unpack::<f32>(self, row, out),
            Format::Float(FloatType::F16) => float::unpack::<f16>(self, row, out),
            Format::Float(FloatType::Bf16) => float::unpack::<bf16>(self, row, out),
            format => {
                format.visit_coded(pack::Unpack { cpu, weights: self, row, out });
            }
        }
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes it takes in memory, padding included.
    pub fn bytes(&self) -> usize {
        self.panels.bytes()
    }

    /// The format of the checkpoint, which is also that of the packed codes.
    pub fn format(&self) -> Format {
        self.format
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} x {}, {})", self.rows, self.columns, self.format)
    }
}

impl Cpu {
    /// `out[r][o] = sum_k weights[o][k] * rows[r][k]` as PLAN.md sections 3 and 4 say: `out` is row-major,
    /// `[rows.len(), weights.rows()]`.
    ///
    /// # Panics
    /// When the columns of `weights` and `rows` differ, or `out` has another size.
    pub fn matmul(&self, weights: &Matrix, rows: &Activations<'_>, out: &mut [f32]) {
        self.matmul_each([(weights, out)], rows);
    }

    /// [`Cpu::matmul`] of the same rows with several matrices, in one parallel section: queries, keys and values, or
    /// gate and up.
    ///
    /// # Panics
    /// As [`Cpu::matmul`].
    pub fn matmul_each<const N: usize>(&self, products: [(&Matrix, &mut [f32]); N], rows: &Activations<'_>) {
        for (weights, out) in &products {
            assert_eq!(weights.columns, rows.columns(), "columns of {weights:?} and of the rows");
            let expected = rows.len() * weights.rows;
            assert_eq!(out.len(), expected, "size of the output of {weights:?} times {} rows", rows.len());
        }
        let weights = products.each_ref().map(|(weights, _)| *weights);
        let mut outs = products.map(|(_, out)| out);
        let mut pairs = weights.iter().zip(&mut outs);
        if self.breakage.is_some() && pairs.all(|(weights, out)| self.broken_matmul(weights, rows, out)) {
            return;
        }
        let row_bytes = weights.map(|weights| weights.prepare(self, rows)).into_iter().max().unwrap_or(0);
        let per_pass = rows_per_pass(row_bytes);
        for first_row in (0..rows.len()).step_by(per_pass) {
            let count = per_pass.min(rows.len() - first_row);
            let mut of = weights.iter();
            let parts = outs.each_mut().map(|out| {
                let weights = of.next().expect("a matrix for every output");
                let part = &mut out[first_row * weights.rows..(first_row + count) * weights.rows];
                ColumnPieces { all: part, width: weights.rows, piece: weights.outputs_per_task(self) }
            });
            self.pool().run_columns(parts, &|which, out| weights[which].multiply(self, rows, first_row, out));
        }
    }
}

impl Matrix {
    /// Makes the form of `rows` that products with this matrix need; returns its bytes for one row.
    fn prepare(&self, cpu: &Cpu, rows: &Activations<'_>) -> usize {
        match self.format.visit_coded(integer::Prepare { cpu, rows }) {
            Some(bytes) => bytes,
            None => size_of::<f32>() * self.columns,
        }
    }

    /// The outputs in `out`, whole pairs of panels but for the last, of rows from `first_row` on. The rows are prepared.
    fn multiply(&self, cpu: &Cpu, rows: &Activations<'_>, first_row: usize, out: Columns<'_, f32>) {
        match self.format {
            Format::Float(FloatType::F32) => float::multiply::<f32>(cpu, self, rows, first_row, out),
            Format::Float(FloatType::F16) => float::multiply::<f16>(cpu, self, rows, first_row, out),
            Format::Float(FloatType::Bf16) => float::multiply::<bf16>(cpu, self, rows, first_row, out),
            format => {
                format.visit_coded(integer::Multiply { cpu, weights: self, rows, first_row, out });
            }
        }
    }

    /// Outputs that one task computes: pairs of panels, several tasks a thread, so that a thread that is held up
    /// leaves little to wait for.
    fn outputs_per_task(&self, cpu: &Cpu) -> usize {
        const TASKS_PER_THREAD: usize = 4;
        let tasks = if cpu.threads() == 1 { 1 } else { TASKS_PER_THREAD * cpu.threads() };
        (self.rows.div_ceil(2 * LANES).div_ceil(tasks) * 2 * LANES).max(2 * LANES)
    }
}

/// Rows whose inputs, at `bytes` each, stay in the second-level cache while all panels pass by; whole tiles.
fn rows_per_pass(bytes: usize) -> usize {
    const CACHED_BYTES: usize = 512 * 1024;
    const WHOLE_TILES: usize = TILE_ROWS.next_multiple_of(activations::TILE);
    (CACHED_BYTES / bytes.max(1)).max(1).next_multiple_of(WHOLE_TILES)
}

/// Stores a panel's outputs at the start of `out`, as many as it has room for.
#[inline(always)]
fn store_outputs<L: Lanes>(lanes: L, outputs: L::Float, out: &mut [f32]) {
    if let Some(out) = out.first_chunk_mut() {
        lanes.store(outputs, out);
    } else {
        let mut values = [0.0; LANES];
        lanes.store(outputs, &mut values);
        out.copy_from_slice(&values[..out.len()]);
    }
}

/// Number of panels of sixteen outputs, the last of which may have fewer.
fn panel_count(rows: usize) -> usize {
    rows.div_ceil(LANES)
}
