//! Attention of new rows over stored keys and values.
//!
//! One row waits for memory, so its rate is in bytes of keys and values; several rows are bound by arithmetic, and theirs
//! is in multiply-adds of the pairs of row and visible key.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use samebit_arith::{AttentionShape, AttentionSpan, Cpu, KvPage, KvShape, KvType};
use samebit_benches::{affords, cpus, criterion, numbers, pages};

/// Query heads, heads of keys and values, columns of each: SmolLM2 135M and Gemma 3 270M.
const HEADS: [(usize, usize, usize); 2] = [(9, 3, 64), (4, 1, 256)];
const ROWS: [usize; 4] = [1, 4, 64, 512];
const DEPTHS: [usize; 3] = [0, 512, 4096];
/// Decoding behind that many tokens walks the keys and values of this many layers in turn, so that no cache holds them.
const DEEP: usize = 4096;
const LAYERS: usize = 30;

fn shape((heads, kv_heads, head_dim): (usize, usize, usize)) -> AttentionShape {
    let kv = KvShape::uniform(kv_heads, head_dim);
    AttentionShape { heads, kv, scale: 0.125, window: None, soft_cap: None }
}

fn name(shape: &AttentionShape) -> String {
    format!("{} of {} over {}", shape.heads, shape.kv.key_dim, shape.kv.kv_heads)
}

/// Multiply-adds of `rows` rows behind `depth` positions.
fn multiply_adds(shape: &AttentionShape, rows: usize, depth: usize) -> usize {
    let pairs = rows * depth + rows * (rows + 1) / 2;
    pairs * shape.heads * (shape.kv.key_dim + shape.kv.value_dim)
}

/// Rows of one sequence whose keys and values are in the caches already, as those of a prompt are.
fn rows(c: &mut Criterion) {
    for cpu in &cpus() {
        for shape in HEADS.map(shape) {
            let mut group = c.benchmark_group(format!("attention/{}/{}", cpu.isa(), name(&shape)));
            for (rows, depth) in ROWS.into_iter().flat_map(|rows| DEPTHS.map(|depth| (rows, depth))) {
                let multiply_adds = multiply_adds(&shape, rows, depth);
                if !affords(cpu, multiply_adds) {
                    continue;
                }
                let pages = pages(shape.kv, KvType::F16, depth + rows);
                let queries = numbers(rows * shape.heads * shape.kv.key_dim);
                let mut out = vec![0.0; rows * shape.heads * shape.kv.value_dim];
                let span = AttentionSpan { first_position: depth, rows, pages: pages.iter().collect() };
                group.throughput(match rows {
                    1 => Throughput::Bytes(bytes(&shape, KvType::F16, depth + rows)),
                    _ => Throughput::Elements(multiply_adds as u64),
                });
                let id = BenchmarkId::from_parameter(format_args!("behind {depth}/rows {rows}"));
                group.bench_function(id, |b| {
                    b.iter(|| cpu.attention(&shape, &queries, std::slice::from_ref(&span), &mut out));
                });
            }
            group.finish();
        }
    }
}

/// One row, with keys and values in every type they can be stored in, out of memory.
fn one_row_out_of_memory(c: &mut Criterion) {
    for cpu in &cpus() {
        for shape in
            HEADS.map(shape).iter().filter(|shape| affords(cpu, LAYERS * multiply_adds(shape, 1, DEEP)))
        {
            let mut group =
                c.benchmark_group(format!("attention out of memory/{}/{}", cpu.isa(), name(shape)));
            for ty in KvType::ALL {
                let layers: Vec<Vec<KvPage>> = (0..LAYERS).map(|_| pages(shape.kv, ty, DEEP)).collect();
                group.throughput(Throughput::Bytes(LAYERS as u64 * bytes(shape, ty, DEEP)));
                group.bench_function(format!("behind {DEEP}/{ty}"), |b| walk(b, cpu, shape, &layers));
            }
            group.finish();
        }
    }
}

/// One row's attention in each layer.
fn walk(b: &mut criterion::Bencher<'_>, cpu: &Cpu, shape: &AttentionShape, layers: &[Vec<KvPage>]) {
    let query = numbers(shape.heads * shape.kv.key_dim);
    let mut out = vec![0.0; shape.heads * shape.kv.value_dim];
    b.iter(|| {
        for pages in layers {
            let span = AttentionSpan { first_position: DEEP - 1, rows: 1, pages: pages.iter().collect() };
            cpu.attention(shape, &query, &[span], &mut out);
        }
    });
}

/// What so many positions take in full pages.
fn bytes(shape: &AttentionShape, ty: KvType, positions: usize) -> u64 {
    (KvPage::full_bytes(shape.kv, ty) / KvPage::POSITIONS * positions) as u64
}

criterion_group! { name = benches; config = criterion(); targets = rows, one_row_out_of_memory }
criterion_main!(benches);
