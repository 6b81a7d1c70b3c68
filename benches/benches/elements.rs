//! What is done to single elements or rows between products: norms, softmax, functions.

use criterion::{
    BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement,
};
use samebit_arith::Cpu;
use samebit_benches::{cpus, criterion, is_measuring, numbers};

const ROWS: usize = 64;
/// Elements of a row of SmolLM2 135M and of its feed-forward network.
const WIDTHS: [usize; 2] = [576, 1536];
/// Rows of scores: a block of attention, and a vocabulary.
const SCORES: [(usize, usize); 2] = [(64, 256), (1, 49_152)];

type Map = fn(&Cpu, &mut [f32]);
const FUNCTIONS: [(&str, Map); 5] = [
    ("exp", Cpu::exp),
    ("silu", Cpu::silu),
    ("gelu_tanh", Cpu::gelu_tanh),
    ("softplus", Cpu::softplus),
    ("tanh", Cpu::tanh),
];

type Group<'a> = BenchmarkGroup<'a, measurement::WallTime>;

/// Measures `change`, each time on the same numbers.
fn in_place(group: &mut Group<'_>, name: String, x: &[f32], mut change: impl FnMut(&mut [f32])) {
    group.throughput(Throughput::Elements(x.len() as u64));
    // One at a time: the numbers were just written and are in the caches, as they are in a pass.
    group.bench_function(name, |b| b.iter_batched_ref(|| x.to_vec(), |x| change(x), BatchSize::PerIteration));
}

fn elements(c: &mut Criterion) {
    let rows = if is_measuring() { ROWS } else { 1 };
    for cpu in &cpus() {
        let mut group = c.benchmark_group(format!("elements/{}", cpu.isa()));
        for width in WIDTHS {
            let (x, weight) = (numbers(rows * width), numbers(width));
            in_place(&mut group, format!("rms_norm/{rows}x{width}"), &x, |x| {
                cpu.rms_norm_in_place(x, &weight, 1e-5);
            });
        }
        for (rows, width) in SCORES {
            let scores = numbers(rows * width);
            in_place(&mut group, format!("softmax/{rows}x{width}"), &scores, |x| cpu.softmax(x, width));
        }
        let (x, y) = (numbers(rows * WIDTHS[1]), numbers(rows * WIDTHS[1]));
        for (name, function) in FUNCTIONS {
            in_place(&mut group, format!("{name}/{}", x.len()), &x, |x| function(cpu, x));
        }
        in_place(&mut group, format!("silu_mul/{}", x.len()), &x, |x| cpu.silu_mul(x, &y));
        in_place(&mut group, format!("gelu_tanh_mul/{}", x.len()), &x, |x| cpu.gelu_tanh_mul(x, &y));
        in_place(&mut group, format!("add/{}", x.len()), &x, |x| cpu.add(x, &y));
        group.finish();
    }
}

criterion_group! { name = benches; config = criterion(); targets = elements }
criterion_main!(benches);
