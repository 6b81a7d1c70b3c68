//! The driver around integer tiles, with tiles in plain Rust, so that it is tested on every processor; and the
//! processor's tiles on several threads at once where it has them.

use super::assert_same;
use super::samples::{Sample, column_unit, formats};
use crate::amx::{ModelTiles, TILE_ROWS};
use crate::cpu::{Cpu, Isa};
use crate::format::Format;
use crate::lanes::LANES;
use crate::matrix::amx::MultiplyTiles;
use crate::matrix::{Activations, Matrix};
use crate::pool::ColumnPieces;
use crate::vectors::Random;
use std::marker::PhantomData;

/// The product by [`ModelTiles`], from row `first_row` on, in tasks of one panel.
fn by_tiles(cpu: &Cpu, weights: &Matrix, rows: &Activations<'_>, first_row: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; (rows.len() - first_row) * weights.rows()];
    rows.tiles(cpu);
    if matches!(weights.format(), Format::MlxAffine { .. } | Format::MlxMxfp4) {
        rows.fine_tiles(cpu);
    }
    let all = ColumnPieces { all: &mut out, width: weights.rows(), piece: LANES };
    cpu.pool().run_columns([all], &|_, out| {
        let tiles = PhantomData::<ModelTiles>;
        weights.format().visit_coded(MultiplyTiles { cpu, weights, rows, first_row, out, tiles });
    });
    out
}

/// Rows of ordinary values; some with a largest integer everywhere, all zeros, or one entry that is not finite.
fn rows_of_all_kinds(random: &mut Random, rows: usize, columns: usize) -> Vec<f32> {
    let mut x = random.activations(rows * columns);
    for row in x.chunks_mut(columns) {
        match random.below(8) {
            0 => row.fill(0.0),
            1 => row.iter_mut().for_each(|x| *x = x.signum()),
            2 => row[random.below(columns)] = f32::NAN,
            3 => row[random.below(columns)] = f32::INFINITY,
            _ => {}
        }
    }
    x
}

#[test]
fn the_driver_around_tiles_computes_the_scalar_bits() {
    let mut random = Random(31);
    let scalar = Cpu::new(Isa::Scalar, 1).unwrap();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let cpu = Cpu::new(isa, 2).unwrap();
        for format in formats().into_iter().filter(|format| !matches!(format, Format::Float(_))) {
            let unit = column_unit(format);
            let (columns, outputs) = (unit * (1 + random.below(3)), 1 + random.below(40));
            let sample = Sample::new(&mut random, format, outputs, columns);
            let weights = Matrix::pack(&cpu, &sample.encoded());
            let rows = 1 + random.below(40);
            let x = rows_of_all_kinds(&mut random, rows, columns);
            let mut expected = vec![f32::NAN; rows * outputs];
            let plain = Matrix::pack(&scalar, &sample.encoded());
            scalar.matmul(&plain, &Activations::new(&x, columns), &mut expected);
            let what = format!("{format}, {isa}, {rows} x {outputs} x {columns}");
            let activations = Activations::new(&x, columns);
            assert_same(&by_tiles(&cpu, &weights, &activations, 0), &expected, &what);
            if rows > TILE_ROWS {
                let found = by_tiles(&cpu, &weights, &activations, TILE_ROWS);
                assert_same(
                    &found,
                    &expected[TILE_ROWS * outputs..],
                    &format!("{what}, from the second tile"),
                );
            }
        }
    }
}

#[test]
fn every_number_of_rows_computes_the_scalar_bits() {
    let mut random = Random(32);
    let scalar = Cpu::new(Isa::Scalar, 1).unwrap();
    let cpu = Cpu::new(Isa::detect(), 3).unwrap();
    let (columns, outputs) = (512, 16 * 9 - 5);
    for format in [Format::Q4_1, Format::Q8_0, Format::Q6K, Format::Q2K, Format::MlxMxfp4] {
        let sample = Sample::new(&mut random, format, outputs, columns);
        let x = rows_of_all_kinds(&mut random, 40, columns);
        let product = |cpu: &Cpu, x: &[f32]| {
            let mut out = vec![f32::NAN; x.len() / columns * outputs];
            cpu.matmul(&Matrix::pack(cpu, &sample.encoded()), &Activations::new(x, columns), &mut out);
            out
        };
        let expected = product(&scalar, &x);
        for rows in 1..=40 {
            let found = product(&cpu, &x[..rows * columns]);
            assert_same(&found, &expected[..rows * outputs], &format!("{format}, {rows} rows"));
        }
    }
}
