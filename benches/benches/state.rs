//! Keeping the state of a sequence, and the pages it is made of.

use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use samebit_arith::{Cpu, Isa, KvPage, KvShape, KvType};
use samebit_benches::{criterion, numbers, pages};
use samebit_checkpoint::Checkpoint;
use samebit_models::{LogitRows, Model, Span, Taps, TokenId};

/// Tokens of the sequence: one less than the small model's context, so that its pages are not full.
const TOKENS: u32 = 255;
const KV: KvType = KvType::F16;

/// The verbs of a state, on a small model of the repository.
fn sequence(c: &mut Criterion) {
    let cpu = Cpu::new(Isa::detect(), 1).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/llama/model");
    let model = Model::load(Arc::new(Checkpoint::open(folder).unwrap()), &cpu, &mut |_| {}).unwrap();
    let tokens: Vec<TokenId> = (0..TOKENS).map(TokenId).collect();
    let mut state = model.new_state(KV);
    let span = Span { state: &mut state, tokens: &tokens, logits: LogitRows::None };
    model.forward(&cpu, &mut [span], Taps::default()).unwrap();

    let mut group = c.benchmark_group("state");
    group.bench_function("snapshot", |b| b.iter(|| state.snapshot()));
    let snapshot = state.snapshot();
    group.bench_function("restore", |b| b.iter(|| state.restore(&snapshot)));
    // The snapshot shares the page that is taken back to, so this copies it as the next token would.
    group.bench_function("snapshot and rollback", |b| {
        b.iter(|| {
            state.rollback(state.length() - 1).unwrap();
            state.restore(&snapshot)
        });
    });
    let encoded = state.encode();
    group.throughput(Throughput::Bytes(encoded.len() as u64));
    group.bench_function("encode", |b| b.iter(|| state.encode()));
    group.bench_function("decode", |b| b.iter(|| model.decode_state(KV, &encoded).unwrap()));
    group.finish();
}

/// One full page of a layer of SmolLM2 135M, in every type.
fn page(c: &mut Criterion) {
    let shape = KvShape::uniform(3, 64);
    let (keys, values) =
        (numbers(KvPage::POSITIONS * shape.key_width()), numbers(KvPage::POSITIONS * shape.value_width()));
    for ty in KvType::ALL {
        let mut group = c.benchmark_group(format!("page/{ty}"));
        group.throughput(Throughput::Bytes(KvPage::full_bytes(shape, ty) as u64));
        group.bench_function("push", |b| {
            b.iter(|| {
                let mut page = KvPage::new(shape, ty);
                page.push(&keys, &values);
                page
            });
        });
        let full = pages(shape, ty, KvPage::POSITIONS).remove(0);
        let mut encoded = Vec::new();
        full.encode(&mut encoded);
        let mut out = Vec::with_capacity(encoded.len());
        group.bench_function("encode", |b| {
            b.iter(|| {
                out.clear();
                full.encode(&mut out);
            });
        });
        group.bench_function("decode", |b| b.iter(|| KvPage::decode(shape, ty, &encoded).unwrap()));
        group.finish();
    }
}

criterion_group! { name = benches; config = criterion(); targets = sequence, page }
criterion_main!(benches);
