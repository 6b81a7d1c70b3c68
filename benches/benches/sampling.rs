//! Choosing a token out of SmolLM2's vocabulary.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use samebit_arith::sampling::{Filter, argmax, candidates, perturbed_argmax};
use samebit_benches::{cpus, criterion};

const VOCABULARY: usize = 49_152;
const TEMPERATURE: f64 = 0.8;
const SEED: u64 = 1;
const POSITION: u64 = 100;

/// Logits whose probabilities fall as those of words do: some sixty tokens hold nine tenths of them.
fn logits() -> Vec<f32> {
    // A prime that shares no factor with the vocabulary's size, so each rank comes once.
    const STRIDE: usize = 30_011;
    (0..VOCABULARY).map(|id| -1.5 * ((id * STRIDE % VOCABULARY + 1) as f32).ln()).collect()
}

fn sampling(c: &mut Criterion) {
    let logits = logits();
    let mut group = c.benchmark_group("sampling");
    group.throughput(Throughput::Elements(VOCABULARY as u64));
    group.bench_function("greedy", |b| b.iter(|| argmax(&logits)));
    group.bench_function("whole vocabulary", |b| {
        b.iter(|| perturbed_argmax(&logits, None, TEMPERATURE, SEED, POSITION));
    });
    let filters = [
        ("top-k 40", Filter { top_k: Some(40), top_p: 1.0, min_p: 0.0 }),
        ("top-p 0.9", Filter { top_k: None, top_p: 0.9, min_p: 0.0 }),
        ("top-p 0.999", Filter { top_k: None, top_p: 0.999, min_p: 0.0 }),
        ("min-p 0.05", Filter { top_k: None, top_p: 1.0, min_p: 0.05 }),
    ];
    for cpu in &cpus() {
        for (name, filter) in &filters {
            group.bench_function(format!("{name}/{}", cpu.isa()), |b| {
                b.iter(|| {
                    let kept = candidates(cpu, &logits, filter);
                    perturbed_argmax(&logits, kept.as_deref(), TEMPERATURE, SEED, POSITION)
                });
            });
        }
    }
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = sampling }
criterion_main!(benches);
