//! The same bits by every path: instruction sets, threads, rows together or alone, rows picked by `select`.

use super::assert_same;
use super::samples::{Sample, column_unit, formats};
use crate::cpu::{Cpu, Isa};
use crate::format::{Encoded, FloatType, Format};
use crate::matrix::{Activations, Matrix};
use crate::vectors::Random;

fn product(cpu: &Cpu, weights: &Encoded<'_>, rows: &[f32]) -> Vec<f32> {
    let columns = weights.columns();
    let mut out = vec![f32::NAN; rows.len() / columns * weights.rows()];
    cpu.matmul(&Matrix::pack(cpu, weights), &Activations::new(rows, columns), &mut out);
    out
}

fn faster_isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| *isa != Isa::Scalar && isa.is_available())
}

fn scalar() -> Cpu {
    Cpu::new(Isa::Scalar, 1).unwrap()
}

/// A random shape: columns up to about 1000, outputs up to 50, rows up to 33.
fn shape(random: &mut Random, format: Format) -> (usize, usize, usize) {
    let unit = column_unit(format);
    (unit * (1 + random.below((1000 / unit).min(40))), 1 + random.below(50), 1 + random.below(33))
}

#[test]
fn every_instruction_set_computes_the_scalar_bits() {
    let mut random = Random(3);
    for format in formats() {
        for _ in 0..4 {
            let (columns, outputs, rows) = shape(&mut random, format);
            let sample = Sample::new(&mut random, format, outputs, columns);
            let x = random.activations(rows * columns);
            let expected = product(&scalar(), &sample.encoded(), &x);
            for isa in faster_isas() {
                let found = product(&Cpu::new(isa, 2).unwrap(), &sample.encoded(), &x);
                assert_same(&found, &expected, &format!("{format}, {isa}, {rows} x {outputs} x {columns}"));
            }
        }
    }
}

#[test]
fn extreme_rows_give_the_scalar_bits() {
    const EXTREMES: [f32; 14] = [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1e-38,
        f32::MIN_POSITIVE,
        7.888_609e-31, // 2^-100
        7.888_608e-31,
        1e38,
        -3.4e38,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut random = Random(4);
    let mut not_finite = 0;
    for format in formats() {
        let columns = column_unit(format).next_multiple_of(32) * 2;
        let sample = Sample::new(&mut random, format, 18, columns);
        // Each extreme alone among ordinary values, among small ones, and everywhere.
        for extreme in EXTREMES {
            let mut x = random.activations(3 * columns);
            x[random.below(columns)] = extreme;
            for small in &mut x[columns..2 * columns] {
                *small *= 1e-36;
            }
            x[columns + random.below(columns)] = extreme;
            x[2 * columns..].fill(extreme);
            let expected = product(&scalar(), &sample.encoded(), &x);
            not_finite += expected.iter().filter(|y| !y.is_finite()).count();
            for isa in faster_isas() {
                let found = product(&Cpu::new(isa, 1).unwrap(), &sample.encoded(), &x);
                assert_same(&found, &expected, &format!("{format}, {isa}, {extreme:e}"));
            }
            if !extreme.is_finite() {
                let shown = expected.iter().filter(|y| y.is_finite()).count();
                assert_eq!(shown, 0, "{format}: an input of {extreme} must show in every output of its row");
            }
        }
    }
    assert!(not_finite > 0);
}

#[test]
fn rows_alone_are_rows_together() {
    let mut random = Random(5);
    for isa in faster_isas() {
        let cpu = Cpu::new(isa, 1).unwrap();
        for format in formats() {
            let (columns, outputs, _) = shape(&mut random, format);
            let sample = Sample::new(&mut random, format, outputs, columns);
            let weights = Matrix::pack(&cpu, &sample.encoded());
            let x = random.activations(33 * columns);
            let multiply = |x: &[f32]| {
                let mut out = vec![f32::NAN; x.len() / columns * outputs];
                cpu.matmul(&weights, &Activations::new(x, columns), &mut out);
                out
            };
            let alone: Vec<f32> = x.chunks(columns).flat_map(multiply).collect();
            for rows in 1..=33 {
                let found = multiply(&x[..rows * columns]);
                assert_same(&found, &alone[..rows * outputs], &format!("{format}, {isa}, {rows} rows"));
            }
        }
    }
}

#[test]
fn threads_and_passes_do_not_show() {
    let mut random = Random(6);
    for format in [Format::Q4K, Format::Q8_0, Format::Float(FloatType::Bf16)] {
        // Enough columns for rows to be cut into several passes, enough outputs for several tasks a thread.
        let (columns, outputs, rows) = (4096, 16 * 33 - 3, 70);
        let sample = Sample::new(&mut random, format, outputs, columns);
        let x = random.activations(rows * columns);
        let found = |threads| product(&Cpu::new(Isa::detect(), threads).unwrap(), &sample.encoded(), &x);
        let expected = found(1);
        for threads in [2, 3, 5] {
            assert_same(&found(threads), &expected, &format!("{format}, {threads} threads"));
        }
        let last = rows - 1;
        let alone = product(&Cpu::new(Isa::detect(), 1).unwrap(), &sample.encoded(), &x[last * columns..]);
        assert_same(&alone, &expected[last * outputs..], &format!("{format}, the last row alone"));
    }
}

#[test]
fn selected_rows_are_the_rows() {
    let mut random = Random(7);
    let cpu = Cpu::new(Isa::detect(), 2).unwrap();
    let (columns, outputs, rows) = (256, 20, 21);
    let picks: Vec<u32> = (0..rows as u32).map(|i| i * 8 % 21).chain([20, 20]).collect();
    for format in [Format::Q6K, Format::Float(FloatType::F32)] {
        let sample = Sample::new(&mut random, format, outputs, columns);
        let weights = Matrix::pack(&cpu, &sample.encoded());
        let x = random.activations(rows * columns);
        let all = product(&cpu, &sample.encoded(), &x);
        let expected: Vec<f32> =
            picks.iter().flat_map(|&row| &all[row as usize * outputs..][..outputs]).copied().collect();
        let activations = Activations::new(&x, columns);
        let selected = activations.select(&picks);
        let reversed: Vec<u32> = (0..selected.len() as u32).rev().collect();
        let turned = selected.select(&reversed);
        let twice = turned.select(&reversed);
        for (selected, what) in [(&selected, "picked once"), (&twice, "picked, turned round and back")] {
            assert_eq!(selected.len(), picks.len());
            let mut out = vec![f32::NAN; picks.len() * outputs];
            cpu.matmul(&weights, selected, &mut out);
            assert_same(&out, &expected, &format!("{format}, {what}"));
        }
    }
}

#[test]
fn empty_products_do_nothing() {
    let cpu = scalar();
    let weights = Matrix::pack(&cpu, &Encoded::new(Format::Q8_0, 0, 32, &[]).unwrap());
    cpu.matmul(&weights, &Activations::new(vec![0.0; 64], 32), &mut []);
    let one = Matrix::pack(&cpu, &Encoded::new(Format::Q8_0, 1, 32, &[0; 34]).unwrap());
    cpu.matmul(&one, &Activations::new(Vec::new(), 32), &mut []);
    for format in [Format::Q8_0, Format::Float(FloatType::F32)] {
        let no_columns = Matrix::pack(&cpu, &Encoded::new(format, 3, 0, &[]).unwrap());
        assert_eq!((no_columns.rows(), no_columns.columns(), no_columns.bytes()), (3, 0, 0));
    }
}

#[test]
fn packed_matrices_are_about_as_large_as_in_the_checkpoint() {
    let mut random = Random(8);
    for format in formats() {
        let sample = Sample::new(&mut random, format, 32, 1024);
        let packed = Matrix::pack(&scalar(), &sample.encoded()).bytes();
        let stored = sample.encoded().bytes();
        assert!(packed * 100 <= stored * 120, "{format}: {packed} bytes packed, {stored} stored");
    }
}

#[test]
fn packed_rows_read_back() {
    let mut random = Random(21);
    for format in formats() {
        let (columns, outputs, _) = shape(&mut random, format);
        let sample = Sample::new(&mut random, format, outputs, columns);
        let (mut told, mut expected, mut found) = (Vec::new(), vec![0.0; columns], vec![0.0; columns]);
        for cpu in Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(|isa| Cpu::new(isa, 2).unwrap())
        {
            let matrix = Matrix::pack_watched(&cpu, &sample.encoded(), &mut |outputs| told.push(outputs));
            assert_eq!(told.pop(), Some(outputs), "the last outputs are told");
            for row in 0..outputs {
                sample.encoded().dequantize_row(row, &mut expected);
                matrix.dequantize_row(&cpu, row, &mut found);
                assert_same(&found, &expected, &format!("{format}, {}, row {row}", cpu.isa()));
            }
        }
    }
}
