//! Attention against a plain softmax in binary64, and against the definition bit for bit.

use super::{AttentionShape, AttentionSpan};
use crate::cpu::{Cpu, Isa};
use crate::kv::{KvPage, KvShape, KvType};
use proptest::prelude::*;

/// Numbers about normal in size, the same for a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn float(&mut self) -> f32 {
        (0..4).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).sum()
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// One sequence of which everything is known.
struct Sequence {
    shape: AttentionShape,
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    pages: Vec<KvPage>,
}

impl Sequence {
    fn random(shape: AttentionShape, ty: KvType, positions: usize, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let keys = numbers.floats(positions * shape.kv.key_width());
        let values = numbers.floats(positions * shape.kv.value_width());
        let queries = numbers.floats(positions * shape.query_width());
        Self::new(shape, ty, keys, values, queries)
    }

    fn new(shape: AttentionShape, ty: KvType, keys: Vec<f32>, values: Vec<f32>, queries: Vec<f32>) -> Self {
        let pages = keys
            .chunks(KvPage::POSITIONS * shape.kv.key_width())
            .zip(values.chunks(KvPage::POSITIONS * shape.kv.value_width()))
            .map(|(keys, values)| {
                let mut page = KvPage::new(shape.kv, ty);
                page.push(keys, values);
                page
            })
            .collect();
        Self { shape, keys, values, queries, pages }
    }

    fn span(&self, first_position: usize, rows: usize) -> AttentionSpan<'_> {
        AttentionSpan { first_position, rows, pages: self.pages.iter().collect() }
    }

    fn queries_of(&self, first: usize, rows: usize) -> &[f32] {
        &self.queries[first * self.shape.query_width()..(first + rows) * self.shape.query_width()]
    }

    /// The result of rows `first .. first + rows` in one call.
    fn attend(&self, cpu: &Cpu, first: usize, rows: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; rows * self.shape.output_width()];
        cpu.attention(&self.shape, self.queries_of(first, rows), &[self.span(first, rows)], &mut out);
        out
    }

    /// The same in binary64 from what was pushed.
    fn in_double(&self, first: usize, rows: usize) -> Vec<f64> {
        let AttentionShape { heads, kv, scale, window, soft_cap } = self.shape;
        let mut out = Vec::new();
        for (position, head) in (first..first + rows).flat_map(|p| (0..heads).map(move |h| (p, h))) {
            let kv_head = head * kv.kv_heads / heads;
            let query = &self.queries[position * heads * kv.key_dim + head * kv.key_dim..][..kv.key_dim];
            let visible = || (0..=position).filter(|j| window.is_none_or(|window| position - j < window));
            let scores: Vec<f64> = visible()
                .map(|j| {
                    let key = &self.keys[j * kv.key_width() + kv_head * kv.key_dim..][..kv.key_dim];
                    let product: f64 =
                        query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                    let score = product * f64::from(scale);
                    soft_cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                })
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
            out.extend((0..kv.value_dim).map(|column| {
                let column = kv_head * kv.value_dim + column;
                visible()
                    .zip(&scores)
                    .map(|(j, s)| {
                        (s - max).exp() / sum * f64::from(self.values[j * kv.value_width() + column])
                    })
                    .sum::<f64>()
            }));
        }
        out
    }
}

fn shape(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionShape {
    let kv = KvShape::uniform(kv_heads, head_dim);
    AttentionShape { heads, kv, scale: 1.0 / (head_dim as f32).sqrt(), window: None, soft_cap: None }
}

fn cpus(threads: usize) -> impl Iterator<Item = Cpu> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(move |isa| Cpu::new(isa, threads).unwrap())
}

/// Bits, with every NaN made one: the plan leaves its payload open.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

/// Asserts that all of `rows` at once, at every instruction set and with one to three threads, give the bits of the
/// definition, and returns them.
fn same_everywhere(sequence: &Sequence, first: usize, rows: usize) -> Vec<f32> {
    let expected = sequence.attend(&Cpu::new(Isa::Scalar, 1).unwrap(), first, rows);
    for threads in [1, 2, 3] {
        for cpu in cpus(threads) {
            let found = sequence.attend(&cpu, first, rows);
            assert!(bits(&found) == bits(&expected), "{} with {threads} threads differs", cpu.isa());
        }
    }
    expected
}

#[test]
fn is_softmax_attention() {
    let windowed = AttentionShape { window: Some(40), ..shape(4, 2, 24) };
    let capped = AttentionShape { soft_cap: Some(1.5), ..shape(6, 2, 20) };
    let unequal = KvShape { kv_heads: 1, key_dim: 36, value_dim: 20 };
    let latent = AttentionShape { kv: unequal, ..shape(5, 1, 36) };
    for shape in [shape(3, 1, 64), shape(2, 2, 80), windowed, capped, latent] {
        for (ty, tolerance) in
            [(KvType::F32, 2e-6), (KvType::F16, 2e-3), (KvType::Bf16, 2e-2), (KvType::Int8, 4e-2)]
        {
            let sequence = Sequence::random(shape, ty, 300, 7);
            for (first, rows) in [(0, 40), (250, 50)] {
                let found = same_everywhere(&sequence, first, rows);
                for (found, expected) in found.iter().zip(sequence.in_double(first, rows)) {
                    assert!(
                        (f64::from(*found) - expected).abs() < tolerance,
                        "{shape:?} {ty}: {found} for {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn length_does_not_show() {
    // Around the ends of blocks, one decoded row and a few verified ones.
    for ty in KvType::ALL {
        let sequence = Sequence::random(shape(3, 1, 40), ty, 600, 1);
        for end in [1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 600] {
            for rows in [1, 2, 5] {
                if rows <= end {
                    same_everywhere(&sequence, end - rows, rows);
                }
            }
        }
    }
}

#[test]
fn rows_together_are_rows_alone() {
    let windowed = AttentionShape { window: Some(33), ..shape(4, 2, 16) };
    let wide_window = AttentionShape { window: Some(256), ..shape(2, 2, 48) };
    for shape in [shape(3, 1, 64), windowed, wide_window] {
        let sequence = Sequence::random(shape, KvType::F16, 530, 3);
        for cpu in cpus(2).filter(|cpu| cpu.isa() != Isa::Scalar) {
            let together = sequence.attend(&cpu, 0, 530);
            let alone: Vec<_> = (0..530).flat_map(|row| sequence.attend(&cpu, row, 1)).collect();
            assert!(bits(&together) == bits(&alone), "{}: one by one", cpu.isa());
            for piece in [2, 3, 7, 16, 100, 255, 256, 257] {
                let pieces: Vec<_> = (0..530)
                    .step_by(piece)
                    .flat_map(|first| sequence.attend(&cpu, first, piece.min(530 - first)))
                    .collect();
                assert!(bits(&together) == bits(&pieces), "{}: in pieces of {piece}", cpu.isa());
            }
        }
        same_everywhere(&sequence, 500, 30);
    }
}

#[test]
fn spans_together_are_spans_alone() {
    let shape = shape(4, 2, 32);
    let sequences: Vec<_> = (0..4).map(|seed| Sequence::random(shape, KvType::Bf16, 400, seed)).collect();
    let spans = [(0, 0, 37), (1, 399, 1), (2, 250, 12), (3, 17, 0), (3, 0, 1), (0, 37, 9)];
    for cpu in cpus(3) {
        let queries: Vec<f32> = spans
            .iter()
            .flat_map(|&(sequence, first, rows)| sequences[sequence].queries_of(first, rows).to_vec())
            .collect();
        let mut out = vec![0.0; queries.len()];
        let together: Vec<_> =
            spans.iter().map(|&(sequence, first, rows)| sequences[sequence].span(first, rows)).collect();
        cpu.attention(&shape, &queries, &together, &mut out);
        let alone: Vec<f32> = spans
            .iter()
            .flat_map(|&(sequence, first, rows)| sequences[sequence].attend(&cpu, first, rows))
            .collect();
        assert!(bits(&out) == bits(&alone), "{}", cpu.isa());
    }
}

#[test]
fn later_positions_cannot_be_seen() {
    // Poison behind a row, before its window, and in the page of another head must not reach it.
    let shape = AttentionShape { window: Some(20), ..shape(2, 2, 24) };
    let clean = Sequence::random(shape, KvType::F32, 300, 5);
    let (mut keys, mut values) = (clean.keys.clone(), clean.values.clone());
    for position in (0..300).filter(|position| !(250..270).contains(position)) {
        keys[position * 48..(position + 1) * 48].fill(f32::NAN);
        values[position * 48..(position + 1) * 48].fill(f32::INFINITY);
    }
    let poisoned = Sequence::new(shape, KvType::F32, keys, values, clean.queries.clone());
    for cpu in cpus(1) {
        let found = poisoned.attend(&cpu, 240, 60);
        let row = &found[29 * 48..30 * 48];
        assert!(row.iter().all(|x| x.is_finite()));
        assert!(bits(row) == bits(&clean.attend(&cpu, 269, 1)));
        assert!(found[30 * 48..31 * 48].iter().all(|x| x.is_nan()));
    }
    same_everywhere(&poisoned, 240, 60);
}

#[test]
fn pages_before_the_window_are_not_read() {
    let shape = AttentionShape { window: Some(100), ..shape(2, 1, 16) };
    let sequence = Sequence::random(shape, KvType::F16, 700, 5);
    let gone = KvPage::new(shape.kv, KvType::F16);
    let mut span = sequence.span(650, 2);
    span.pages[0] = &gone;
    span.pages[1] = &gone;
    for cpu in cpus(2) {
        let mut out = vec![0.0; 2 * 32];
        cpu.attention(&shape, sequence.queries_of(650, 2), std::slice::from_ref(&span), &mut out);
        assert!(bits(&out) == bits(&sequence.attend(&cpu, 650, 2)));
    }
}

#[test]
#[should_panic(expected = "page 1 stores 43 positions where rows need 44")]
fn a_missing_position_is_refused() {
    let sequence = Sequence::random(shape(1, 1, 16), KvType::F16, 299, 5);
    let span = sequence.span(297, 3);
    Cpu::new(Isa::Scalar, 1).unwrap().attention(&sequence.shape, &[0.0; 48], &[span], &mut [0.0; 48]);
}

/// Numbers that meet every special case of the arithmetic.
fn extreme() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => -4.0f32..4.0,
        1 => prop::sample::select(vec![
            0.0, -0.0, 1e-45, -1e-45, 1e-38, f32::MAX, f32::MIN, 1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN,
        ]),
        1 => any::<u32>().prop_map(f32::from_bits),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_shape_gives_the_defined_bits(
        (kv_heads, group, key_dim, value_dim) in (1usize..3, 1usize..10, 1usize..70, 1usize..70),
        window in prop::option::of(1usize..300),
        soft_cap in prop::option::of(0.5f32..60.0),
        ty in prop::sample::select(KvType::ALL.to_vec()),
        (first, rows) in (0usize..300, 1usize..20),
        seed in any::<u64>(),
    ) {
        let kv = KvShape { kv_heads, key_dim, value_dim };
        let shape = AttentionShape { heads: kv_heads * group, kv, scale: 0.3, window, soft_cap };
        same_everywhere(&Sequence::random(shape, ty, first + rows, seed), first, rows);
    }

    #[test]
    fn any_number_gives_the_defined_bits(
        ty in prop::sample::select(KvType::ALL.to_vec()),
        numbers in prop::collection::vec(extreme(), 3 * 20 * 40),
        soft_cap in prop::option::of(0.5f32..60.0),
    ) {
        let mut parts = numbers.chunks(20 * 40).map(<[f32]>::to_vec);
        let mut part = || parts.next().unwrap();
        let shape = AttentionShape { soft_cap, window: Some(7), ..shape(1, 1, 20) };
        same_everywhere(&Sequence::new(shape, ty, part(), part(), part()), 0, 40);
    }
}
