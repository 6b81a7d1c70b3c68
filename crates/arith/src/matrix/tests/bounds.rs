//! Products against exact products of the dequantized weights, within the bounds of PLAN.md sections 3 and 4.

use super::samples::{Sample, column_unit, formats};
use crate::cpu::{Cpu, Isa};
use crate::format::tests::{mlx_cases, mlx_matrix};
use crate::format::{BLOCK, Coded, CodedVisitor, Encoded, Format, Row};
use crate::matrix::layout::Steps;
use crate::matrix::{Activations, Matrix};
use crate::vectors::{Random, Vectors};

/// `u` of the plan.
const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// `|a (q - z)| + |b|` of every column of a row, and how many fused steps the row has.
struct Magnitudes<'a> {
    row: Row<'a>,
    columns: usize,
}

impl CodedVisitor for Magnitudes<'_> {
    /// And how far a row's entry may be off, in integers.
    type Output = (Vec<f64>, usize, f64);

    fn visit<F: Coded>(self) -> Self::Output {
        let mut magnitudes = Vec::new();
        for column in 0..self.columns {
            let code = F::codes(self.row, column / BLOCK)[column % BLOCK];
            let q = f64::from(F::LEVELS.map_or(code, |levels| levels[usize::from(code)]));
            let group = F::group(self.row, column / F::Steps::COLUMNS);
            let scale = f64::from(group.scale) * f64::from(group.scale_factor);
            magnitudes.push(if F::Steps::OFFSETS {
                (scale * q).abs() + (f64::from(group.offset) * f64::from(group.offset_factor)).abs()
            } else {
                (scale * (q - f64::from(1 << F::ZERO_BITS))).abs()
            });
        }
        let fused = if F::Steps::OFFSETS { 2 } else { 1 };
        let row_error = if F::Steps::FINE { 0.008 } else { 0.504 };
        (magnitudes, fused * self.columns / F::Steps::COLUMNS, row_error)
    }
}

/// The bound of PLAN.md for one output and one row.
fn bound(weights: &Encoded<'_>, output: usize, values: &[f64], x: &[f32]) -> f64 {
    let columns = x.len();
    if let Format::Float(_) = weights.format() {
        let terms: f64 = values.iter().zip(x).map(|(w, x)| (w * f64::from(*x)).abs()).sum();
        let roundings = (columns.min(BLOCK) + columns.div_ceil(BLOCK)) as f64;
        return 1.01 * roundings * UNIT * terms;
    }
    let visitor = Magnitudes { row: weights.row(output), columns };
    let (magnitudes, steps, row_error) = weights.format().visit_coded(visitor).unwrap();
    let mut bound = 0.0;
    for (block, x) in x.chunks(BLOCK).enumerate() {
        let amax = x.iter().fold(0.0, |max: f64, x| max.max(f64::from(x.abs())));
        for (k, x) in x.iter().enumerate() {
            let column = BLOCK * block + k;
            bound += row_error * amax / 32639.0 * values[column].abs();
            bound += 3.0 * (steps + 2) as f64 * UNIT * magnitudes[column] * f64::from(x.abs());
        }
    }
    bound
}

/// Checks one product and returns the largest share of the bound that was used.
fn check(cpu: &Cpu, weights: &Encoded<'_>, rows: &[f32]) -> f64 {
    let (outputs, columns) = (weights.rows(), weights.columns());
    let count = rows.len() / columns;
    let mut out = vec![f32::NAN; count * outputs];
    cpu.matmul(&Matrix::pack(cpu, weights), &Activations::new(rows, columns), &mut out);
    let mut worst = 0.0;
    for output in 0..outputs {
        let mut values = vec![0.0; columns];
        weights.dequantize_row(output, &mut values);
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        for (r, x) in rows.chunks_exact(columns).enumerate() {
            let exact: f64 = values.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum();
            let bound = bound(weights, output, &values, x);
            let error = (f64::from(out[r * outputs + output]) - exact).abs();
            assert!(error <= bound, "{}: error {error:e} of {exact}, bound {bound:e}", weights.format());
            worst = f64::max(worst, error / bound);
        }
    }
    worst
}

#[test]
fn products_of_every_format_are_within_the_bound() {
    let mut random = Random(1);
    let cpu = Cpu::new(Isa::detect(), 2).unwrap();
    for format in formats() {
        let unit = column_unit(format);
        let columns = unit * (1 + random.below(1024 / unit));
        let sample = Sample::new(&mut random, format, 21, columns);
        let worst = check(&cpu, &sample.encoded(), &random.activations(5 * columns));
        // The bound means something: errors are not orders of magnitude below it.
        assert!(worst > 1e-3, "{format}: the largest error is only {worst:e} of the bound");
    }
}

#[test]
fn rows_with_one_large_value_are_within_the_bound() {
    let mut random = Random(2);
    let cpu = Cpu::new(Isa::detect(), 1).unwrap();
    for format in formats() {
        let columns = column_unit(format).next_multiple_of(32);
        let sample = Sample::new(&mut random, format, 17, columns);
        let mut rows = random.activations(3 * columns);
        for row in rows.chunks_exact_mut(columns) {
            row[random.below(columns)] *= 1e4;
        }
        check(&cpu, &sample.encoded(), &rows);
    }
}

#[test]
fn mlx_products_are_within_the_bound_of_their_f64_reference() {
    let cpu = Cpu::new(Isa::detect(), 1).unwrap();
    let mut cases = 0;
    for file in ["affine-f32", "affine-f16", "affine-bf16", "float-modes"] {
        let vectors = Vectors::open(&format!("mlx-quant/{file}.safetensors"));
        for case in mlx_cases(&vectors) {
            let Some(weights) = mlx_matrix(&vectors, &case) else { continue };
            let x = format!("{case}.x");
            let (outputs, columns) = (weights.rows(), weights.columns());
            let rows = match vectors.bytes(&x).len() / (3 * columns) {
                4 => vectors.f32(&x),
                _ => narrow(&vectors, &x, case.contains("bf16")),
            };
            let expected = vectors.f64(&format!("{case}.y_f64"));
            let mut out = vec![f32::NAN; 3 * outputs];
            cpu.matmul(&Matrix::pack(&cpu, &weights), &Activations::new(&rows, columns), &mut out);
            for output in 0..outputs {
                let mut values = vec![0.0; columns];
                weights.dequantize_row(output, &mut values);
                let values: Vec<f64> = values.into_iter().map(f64::from).collect();
                for (r, x) in rows.chunks_exact(columns).enumerate() {
                    let (found, expected) =
                        (f64::from(out[r * outputs + output]), expected[r * outputs + output]);
                    let bound = bound(&weights, output, &values, x);
                    assert!(
                        (found - expected).abs() <= bound,
                        "{case}: {found}, expected {expected} +- {bound:e}"
                    );
                }
            }
            cases += 1;
        }
    }
    assert!(cases >= 20, "only {cases} cases");
}

fn narrow(vectors: &Vectors, name: &str, bf16: bool) -> Vec<f32> {
    let halves = vectors.bytes(name).as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes));
    if bf16 {
        halves.map(|bits| half::bf16::from_bits(bits).to_f32()).collect()
    } else {
        halves.map(|bits| half::f16::from_bits(bits).to_f32()).collect()
    }
}
