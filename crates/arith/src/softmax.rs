//! Softmax, and the best of many scores: sections 5 and 10 of the plan.

use crate::cpu::Cpu;
use crate::functions::exp;
use crate::lanes::{Kernel, LANES, Lanes};

/// Softmax of every row of `width`.
struct Softmax<'a> {
    rows: &'a mut [f32],
    width: usize,
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for row in self.rows.chunks_exact_mut(self.width) {
            let max = maximum(lanes, row);
            let sum = exp_of_differences(lanes, row, max);
            divide(lanes, row, sum);
        }
    }
}

/// The largest element.
#[inline(always)]
fn maximum<L: Lanes>(lanes: L, x: &[f32]) -> f32 {
    let (whole, tail) = x.as_chunks::<LANES>();
    let mut max = lanes.splat(f32::NEG_INFINITY);
    for x in whole {
        max = lanes.max(max, lanes.load(x));
    }
    if !tail.is_empty() {
        max = lanes.max(max, lanes.load(&padded(tail, f32::NEG_INFINITY)));
    }
    lanes.max_tree(max)
}

/// `x[k] = exp(x[k] - max)`; returns their sum in sixteen lanes and the tree.
#[inline(always)]
fn exp_of_differences<L: Lanes>(lanes: L, x: &mut [f32], max: f32) -> f32 {
    let (whole, tail) = x.as_chunks_mut::<LANES>();
    let max = lanes.splat(max);
    let mut sum = lanes.splat(0.0);
    for x in whole {
        let p = exp(lanes, lanes.sub(lanes.load(x), max));
        sum = lanes.add(sum, p);
        lanes.store(p, x);
    }
    if !tail.is_empty() {
        let mut last = padded(tail, f32::NEG_INFINITY);
        let p = exp(lanes, lanes.sub(lanes.load(&last), max));
        // Lanes without an element keep their sum: there p is 0, or NaN in a row without a finite maximum.
        let p = lanes.select_range(0, tail.len(), p, lanes.splat(0.0));
        sum = lanes.add(sum, p);
        lanes.store(p, &mut last);
        tail.copy_from_slice(&last[..tail.len()]);
    }
    lanes.sum_tree(sum)
}

#[inline(always)]
fn divide<L: Lanes>(lanes: L, x: &mut [f32], by: f32) {
    let (whole, tail) = x.as_chunks_mut::<LANES>();
    for x in whole {
        lanes.store(lanes.div(lanes.load(x), lanes.splat(by)), x);
    }
    for x in tail {
        *x /= by;
    }
}

#[inline(always)]
fn padded(tail: &[f32], with: f32) -> [f32; LANES] {
    let mut lanes = [with; LANES];
    lanes[..tail.len()].copy_from_slice(tail);
    lanes
}

impl Cpu {
    /// Softmax of every row of `row` elements, in place. A row with a NaN, with plus infinity, or with nothing but
    /// minus infinity becomes NaN.
    ///
    /// # Panics
    /// When `x` is not whole rows.
    pub fn softmax(&self, x: &mut [f32], row: usize) {
        if self.broken_softmax(x, row) {
            return;
        }
        self.run_rows(x, row, &|rows| self.isa().run(Softmax { rows, width: row }));
    }
}

/// The `k` best scores with their positions, best first: by score descending, then position ascending. Zeros of both
/// signs are one score; a NaN is worse than everything. Fewer than `k` where there are fewer scores.
///
/// # Panics
/// When there are more than `u32::MAX` scores.
pub fn top_k(scores: &[f32], k: usize) -> Vec<(u32, f32)> {
    let count = u32::try_from(scores.len()).expect("positions of scores fit in u32");
    let better = |&a: &u32, &b: &u32| {
        let (x, y) = (scores[a as usize], scores[b as usize]);
        y.partial_cmp(&x).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan())).then(a.cmp(&b))
    };
    let mut ids: Vec<u32> = (0..count).collect();
    if k == 0 {
        return Vec::new();
    }
    if k < ids.len() {
        ids.select_nth_unstable_by(k - 1, better);
        ids.truncate(k);
    }
    ids.sort_unstable_by(better);
    ids.into_iter().map(|id| (id, scores[id as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double;
    use crate::testing::{any_activation, any_rows, assert_same_bits, every_cpu};
    use proptest::prelude::*;

    /// Section 5 of the plan, word for word, on top of the function `exp`.
    fn definition(cpu: &Cpu, row: &[f32]) -> Vec<f32> {
        let max = row.iter().fold(f32::NEG_INFINITY, |max, x| x.max(max));
        let mut p: Vec<f32> = row.iter().map(|x| x - max).collect();
        cpu.exp(&mut p);
        let mut lanes = [0.0f32; 16];
        for (k, p) in p.iter().enumerate() {
            lanes[k % 16] += p;
        }
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                lanes[l] += lanes[l + half];
            }
        }
        p.iter().map(|p| p / lanes[0]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn rows_follow_the_plan_everywhere(
            (rows, width) in (0usize..5, 1usize..70).prop_flat_map(|(n, width)| (any_rows(n, width), Just(width))),
        ) {
            for cpu in every_cpu() {
                let expected: Vec<f32> = rows.chunks(width).flat_map(|row| definition(&cpu, row)).collect();
                let mut found = rows.clone();
                cpu.softmax(&mut found, width);
                assert_same_bits(&found, &expected, "softmax");
            }
        }

        #[test]
        fn the_best_are_those_of_a_full_sort(
            scores in prop::collection::vec(prop_oneof![any_activation(), (0u8..4).prop_map(f32::from)], 0..80),
            k in 0usize..90,
        ) {
            let mut all: Vec<(u32, f32)> = (0..).zip(scores.iter().copied()).collect();
            // A stable sort keeps positions ascending among equals.
            all.sort_by(|(_, a), (_, b)| b.partial_cmp(a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())));
            all.truncate(k);
            let found = top_k(&scores, k);
            let bits = |best: &[(u32, f32)]| best.iter().map(|(id, x)| (*id, x.to_bits())).collect::<Vec<_>>();
            prop_assert_eq!(bits(&found), bits(&all));
        }
    }

    #[test]
    fn probabilities_are_near_the_truth() {
        let row: Vec<f32> = (0..1000).map(|k| ((k * 7919) % 2003) as f32 / 100.0 - 10.0).collect();
        for cpu in every_cpu() {
            let mut found = row.clone();
            cpu.softmax(&mut found, row.len());
            let mut truth: Vec<f64> = row.iter().copied().map(f64::from).collect();
            double::softmax(&mut truth);
            for (p, truth) in found.iter().zip(truth) {
                assert!((f64::from(*p) - truth).abs() <= 2e-6 * truth, "{p} for {truth}");
            }
        }
    }

    #[test]
    fn rows_without_a_softmax() {
        let infinity = f32::INFINITY;
        for cpu in every_cpu() {
            for row in [[-infinity; 3], [1.0, infinity, 2.0], [1.0, f32::NAN, 2.0], [f32::NAN, 1.0, 2.0]] {
                let mut found = row;
                cpu.softmax(&mut found, 3);
                assert!(found.iter().all(|p| p.is_nan()), "{row:?} gave {found:?}");
            }
            let mut masked = [0.5, -infinity, 0.5];
            cpu.softmax(&mut masked, 3);
            assert_eq!(masked, [0.5, 0.0, 0.5]);
        }
    }

    #[test]
    fn ties_go_to_the_lower_position() {
        let scores = [1.0, f32::NAN, 3.0, 0.0, 3.0, -0.0, f32::NEG_INFINITY];
        let ids = |k| top_k(&scores, k).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(3), [2, 4, 0]);
        assert_eq!(ids(5), [2, 4, 0, 3, 5]);
        assert_eq!(ids(100), [2, 4, 0, 3, 5, 6, 1]);
        assert!(ids(0).is_empty());
    }
}
