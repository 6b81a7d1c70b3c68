//! Turning rows into integers, seen through the smallest product that needs them: one panel of 16 outputs.
//!
//! `kept` is that product alone, of rows whose integers were made before; what `fresh` takes beyond it is the making.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use samebit_arith::{Activations, FloatType, Format};
use samebit_benches::{affords, cpus, criterion, matrix, numbers};

const COLUMNS: [usize; 2] = [576, 1536];
const ROWS: [usize; 3] = [1, 16, 512];
const PANEL: usize = 16;
/// Two planes of bytes, and three.
const FORMATS: [Format; 2] = [Format::Q8_0, Format::MlxAffine { bits: 8, group: 32, scale: FloatType::Bf16 }];

fn rows(c: &mut Criterion) {
    let cpus = cpus();
    for (format, columns) in FORMATS.into_iter().flat_map(|format| COLUMNS.map(|columns| (format, columns))) {
        let matrix = matrix(format, PANEL, columns);
        for cpu in &cpus {
            let mut group = c.benchmark_group(format!("rows/{format}/{}", cpu.isa()));
            for rows in ROWS.into_iter().filter(|rows| affords(cpu, rows * PANEL * columns)) {
                let x = numbers(rows * columns);
                let mut out = vec![0.0; rows * PANEL];
                group.throughput(Throughput::Elements((rows * columns) as u64));
                group.bench_function(format!("fresh/{rows}x{columns}"), |b| {
                    b.iter(|| cpu.matmul(&matrix, &Activations::new(&x, columns), &mut out));
                });
                let kept = Activations::new(&x, columns);
                group.bench_function(format!("kept/{rows}x{columns}"), |b| {
                    b.iter(|| cpu.matmul(&matrix, &kept, &mut out));
                });
            }
            group.finish();
        }
    }
}

criterion_group! { name = benches; config = criterion(); targets = rows }
criterion_main!(benches);
