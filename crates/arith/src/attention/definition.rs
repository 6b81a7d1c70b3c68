//! The definition: one query head at one position, one key after the other, as section 8 of the plan is written.

use super::AttentionShape;
use crate::cpu::Isa;
use crate::functions::{Exp, Function, SoftCap};
use crate::kv::KvPage;
use crate::kv::line::SCALE_BLOCK;
use crate::lanes::{Kernel, LANES, Lanes};

/// What a block of 256 positions gives to one query.
pub(super) struct Part {
    /// The largest visible score.
    pub(super) max: f32,
    /// The sum of `exp(score - max)`.
    pub(super) sum: f32,
    /// The values, each times its `exp(score - max)`.
    pub(super) values: Vec<f32>,
}

/// The result of one query head at `position`.
pub(super) fn attend(
    shape: &AttentionShape,
    query: &[f32],
    position: usize,
    kv_head: usize,
    pages: &[&KvPage],
) -> Vec<f32> {
    let blocks = shape.first_visible(position) / KvPage::POSITIONS..=position / KvPage::POSITIONS;
    let merged = blocks
        .map(|block| attend_block(shape, query, position, kv_head, block, pages[block]))
        .reduce(|merged, next| merge(&merged, &next))
        .expect("a row sees at least its own position");
    merged.values.iter().map(|value| value / merged.sum).collect()
}

fn attend_block(
    shape: &AttentionShape,
    query: &[f32],
    position: usize,
    kv_head: usize,
    block: usize,
    page: &KvPage,
) -> Part {
    let visible = shape.visible_in_block(position, block);
    let mut scores = [0.0; KvPage::POSITIONS];
    for j in visible.clone() {
        let (key, scales) = page.key(j, kv_head);
        let mut acc = 0.0;
        for (piece, (query, key)) in query.chunks(SCALE_BLOCK).zip(key.chunks(SCALE_BLOCK)).enumerate() {
            let mut s = 0.0;
            for (q, k) in query.iter().zip(key) {
                s = q.mul_add(*k, s);
            }
            acc = match &scales {
                None => acc + s,
                Some(scales) => s.mul_add(scales[piece], acc),
            };
        }
        let scaled = acc * shape.scale;
        scores[j] = match shape.soft_cap {
            None => scaled,
            Some(cap) => Isa::Scalar.run(Apply(SoftCap(cap), scaled)),
        };
    }

    let mut lanes = [f32::NEG_INFINITY; LANES];
    for j in visible.clone() {
        lanes[j % LANES] = max(lanes[j % LANES], scores[j]);
    }
    let max = tree(lanes, max);

    let mut sums = [0.0; LANES];
    for j in visible.clone() {
        scores[j] = exp(scores[j] - max);
        sums[j % LANES] += scores[j];
    }
    let sum = tree(sums, |a, b| a + b);

    let mut values = vec![0.0f32; shape.kv.value_dim];
    for j in visible {
        let (value, scales) = page.value(j, kv_head);
        for (column, (value, o)) in value.iter().zip(&mut values).enumerate() {
            let weight = match &scales {
                None => scores[j],
                Some(scales) => scores[j] * scales[column / SCALE_BLOCK],
            };
            *o = weight.mul_add(*value, *o);
        }
    }
    Part { max, sum, values }
}

fn merge(a: &Part, b: &Part) -> Part {
    let max = max(a.max, b.max);
    let (c, c_b) = (exp(a.max - max), exp(b.max - max));
    let values = a.values.iter().zip(&b.values).map(|(o, o_b)| o_b.mul_add(c_b, o * c)).collect();
    Part { max, sum: b.sum.mul_add(c_b, a.sum * c), values }
}

fn max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

fn tree(mut lanes: [f32; LANES], fold: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for l in 0..half {
            lanes[l] = fold(lanes[l], lanes[l + half]);
        }
    }
    lanes[0]
}

fn exp(x: f32) -> f32 {
    Isa::Scalar.run(Apply(Exp, x))
}

/// A function of the plan at one number.
struct Apply<F>(F, f32);

impl<F: Function> Kernel for Apply<F> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> f32 {
        let mut result = [0.0; LANES];
        lanes.store(self.0.apply(lanes, lanes.splat(self.1)), &mut result);
        result[0]
    }
}
