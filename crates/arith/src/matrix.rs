//! Weight matrices, packed once for the product kernels, and their products with rows.
//!
//! A packed matrix is a sequence of panels of sixteen outputs, so every instruction set computes sixteen outputs side by
//! side and no sum is ever split. `PLAN.md` sections 2 to 4 define the sums.

mod activations;
mod float;
mod integer;
pub(crate) mod layout;
mod panels;
mod scales;
#[cfg(test)]
mod tests;

pub use activations::Activations;

use crate::cpu::Cpu;
use crate::format::{Coded, CodedVisitor, Encoded, FloatType, Format};
use crate::lanes::{LANES, Lanes};
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
        let panels = match weights.format().visit_coded(integer::Pack { cpu, weights }) {
            Some(panels) => panels,
            None => float::pack(cpu, weights),
        };
        Self { format: weights.format(), rows: weights.rows(), columns: weights.columns(), panels }
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
        assert_eq!(weights.columns, rows.columns(), "columns of {weights:?} and of the rows");
        assert_eq!(
            out.len(),
            rows.len() * weights.rows,
            "size of the output of {weights:?} times {} rows",
            rows.len()
        );
        if out.is_empty() || self.broken_matmul(weights, rows, out) {
            return;
        }
        if let Format::Float(float) = weights.format {
            match float {
                FloatType::F32 => float::multiply::<f32>(self, weights, rows, out),
                FloatType::F16 => float::multiply::<f16>(self, weights, rows, out),
                FloatType::Bf16 => float::multiply::<bf16>(self, weights, rows, out),
            }
        } else {
            weights.format.visit_coded(Multiply { cpu: self, weights, rows, out });
        }
    }

    /// Panels that one task takes: a task for each thread, since the pool would give a thread its tasks in one stretch
    /// anyway.
    fn panels_per_task(&self, panels: usize) -> usize {
        panels.div_ceil(self.threads()).max(1)
    }
}

/// The product with an integer-coded matrix.
struct Multiply<'a, 'o> {
    cpu: &'a Cpu,
    weights: &'a Matrix,
    rows: &'a Activations<'a>,
    out: &'o mut [f32],
}

impl CodedVisitor for Multiply<'_, '_> {
    type Output = ();

    fn visit<F: Coded>(self) {
        integer::multiply::<F>(self.cpu, self.weights, self.rows, self.out);
    }
}

/// Rows whose inputs, at `bytes` each, stay in the second-level cache while all panels pass by; at least one tile.
fn rows_per_pass(bytes: usize) -> usize {
    const CACHED_BYTES: usize = 512 * 1024;
    (CACHED_BYTES / bytes.max(1)).next_multiple_of(activations::TILE).max(activations::TILE)
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
