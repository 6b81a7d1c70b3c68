//! Measures attention: prefill in GFLOP/s, decoding in GB/s of stored keys and values.
//!
//! `cargo run --release -p samebit-arith --example attention_rate [threads]`

use samebit_arith::{AttentionShape, AttentionSpan, Cpu, Isa, KvPage, KvShape, KvType};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::args().nth(1).map_or(Ok(1), |threads| threads.parse())?;
    for isa in [Isa::Avx512, Isa::Avx2].into_iter().filter(|isa| isa.is_available()) {
        let cpu = Cpu::new(isa, threads)?;
        for (heads, kv_heads, head_dim) in [(9, 3, 64), (4, 1, 256), (32, 8, 128)] {
            let shape = AttentionShape {
                heads,
                kv: KvShape::uniform(kv_heads, head_dim),
                scale: 0.125,
                window: None,
                soft_cap: None,
            };
            println!("{isa}, {threads} threads, {heads} heads of {head_dim} over {kv_heads}");
            prefill(&cpu, &shape, 1024);
            for ty in KvType::ALL {
                decode(&cpu, &shape, ty, 4096);
            }
        }
    }
    Ok(())
}

/// Pages of a sequence of `positions`.
fn pages(shape: KvShape, ty: KvType, positions: usize) -> Vec<KvPage> {
    let rows: Vec<f32> = (0..KvPage::POSITIONS * shape.key_width()).map(|i| (i % 17) as f32 * 0.1).collect();
    (0..positions / KvPage::POSITIONS)
        .map(|_| {
            let mut page = KvPage::new(shape, ty);
            page.push(&rows, &rows);
            page
        })
        .collect()
}

fn prefill(cpu: &Cpu, shape: &AttentionShape, positions: usize) {
    let pages = pages(shape.kv, KvType::F16, positions);
    let queries = vec![0.3; positions * shape.heads * shape.kv.key_dim];
    let mut out = vec![0.0; positions * shape.heads * shape.kv.value_dim];
    let span = AttentionSpan { first_position: 0, rows: positions, pages: pages.iter().collect() };
    let seconds = best(5, || cpu.attention(shape, &queries, std::slice::from_ref(&span), &mut out));
    let pairs = positions * (positions + 1) / 2 * shape.heads;
    let operations = 2 * pairs * (shape.kv.key_dim + shape.kv.value_dim);
    println!(
        "  prefill of {positions}: {:.2} ms, {:.1} GFLOP/s",
        seconds * 1e3,
        operations as f64 / seconds / 1e9
    );
}

fn decode(cpu: &Cpu, shape: &AttentionShape, ty: KvType, positions: usize) {
    // As many layers as it takes to be far beyond the caches.
    let layers: Vec<_> = (0..30).map(|_| pages(shape.kv, ty, positions)).collect();
    let query = vec![0.3; shape.heads * shape.kv.key_dim];
    let mut out = vec![0.0; shape.heads * shape.kv.value_dim];
    let seconds = best(3, || {
        for pages in &layers {
            let span =
                AttentionSpan { first_position: positions - 1, rows: 1, pages: pages.iter().collect() };
            cpu.attention(shape, &query, &[span], &mut out);
        }
    });
    let bytes: usize = layers.iter().flatten().map(KvPage::bytes).sum();
    println!(
        "  decode behind {positions} in {ty}: {:.2} ms for 30 layers of {:.1} MB, {:.1} GB/s",
        seconds * 1e3,
        bytes as f64 / 30e6,
        bytes as f64 / seconds / 1e9
    );
}

/// The shortest time of `runs` calls, in seconds.
fn best(runs: usize, mut call: impl FnMut()) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
