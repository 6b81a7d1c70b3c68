//! Products of rows and weight matrices, in the shapes of small models.
//!
//! One row waits for memory, so its rate is in bytes of packed weights; several rows are bound by arithmetic, and theirs
//! is in multiply-adds. Rows are fresh each time: turning them into integers is part of a product.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use samebit_arith::{Activations, Cpu, FloatType, Format, Matrix};
use samebit_benches::{affords, cpus, criterion, matrix, numbers};

/// Outputs and inputs. A format whose blocks are wider than a row can be divided into skips that shape, as the
/// checkpoints themselves do.
const SHAPES: [(usize, usize); 6] = [
    // SmolLM2 135M: queries, gate and up, down.
    (576, 576),
    (1536, 576),
    (576, 1536),
    // Gemma 3 270M: gate and up, down.
    (2048, 640),
    (640, 2048),
    HEAD,
];
/// SmolLM2's output head: far larger than the caches, and never multiplied by many rows.
const HEAD: (usize, usize) = (49_152, 576);
const FORMATS: [Format; 5] =
    [Format::Q4_1, Format::Q4K, Format::Q8_0, Format::Q6K, Format::Float(FloatType::F16)];
const ROWS: [usize; 5] = [1, 4, 16, 64, 512];
const MOST_ROWS_OF_HEAD: usize = 16;

fn products(c: &mut Criterion) {
    let cpus = cpus();
    for format in FORMATS {
        for shape in SHAPES {
            let (outputs, inputs) = shape;
            if !inputs.is_multiple_of(format.block().0)
                || !cpus.iter().any(|cpu| affords(cpu, outputs * inputs))
            {
                continue;
            }
            let matrix = matrix(format, outputs, inputs);
            for cpu in &cpus {
                measure(c, cpu, &matrix, if shape == HEAD { MOST_ROWS_OF_HEAD } else { usize::MAX });
            }
        }
    }
}

fn measure(c: &mut Criterion, cpu: &Cpu, matrix: &Matrix, most_rows: usize) {
    let (outputs, inputs) = (matrix.rows(), matrix.columns());
    let mut group = c.benchmark_group(format!("products/{}/{}", matrix.format(), cpu.isa()));
    for rows in ROWS {
        let multiply_adds = rows * outputs * inputs;
        if rows > most_rows || !affords(cpu, multiply_adds) {
            continue;
        }
        let x = numbers(rows * inputs);
        let mut out = vec![0.0; rows * outputs];
        group.throughput(match rows {
            1 => Throughput::Bytes(matrix.bytes() as u64),
            _ => Throughput::Elements(multiply_adds as u64),
        });
        let id = BenchmarkId::from_parameter(format_args!("{outputs}x{inputs}/rows {rows}"));
        group.bench_function(id, |b| {
            b.iter(|| cpu.matmul(matrix, &Activations::new(&x, inputs), &mut out));
        });
    }
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = products }
criterion_main!(benches);
