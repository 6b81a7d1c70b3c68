//! RMS norm: section 5 of the plan.

use crate::cpu::Cpu;
use crate::lanes::{Kernel, LANES, Lanes};

/// `row = (row * r) * weight` with `r = 1 / sqrt(mean(row^2) + eps)`, for every row.
struct RmsNorm<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for row in self.rows.chunks_exact_mut(self.weight.len()) {
            let mean = sum_of_squares(lanes, row) / self.weight.len() as f32;
            let factor = 1.0 / (mean + self.eps).sqrt();
            scale_by(lanes, row, factor, self.weight);
        }
    }
}

/// Sum of `x[k]^2` in sixteen lanes and the tree.
#[inline(always)]
fn sum_of_squares<L: Lanes>(lanes: L, x: &[f32]) -> f32 {
    let (whole, tail) = x.as_chunks::<LANES>();
    let mut sum = lanes.splat(0.0);
    for x in whole {
        let x = lanes.load(x);
        sum = lanes.fma(x, x, sum);
    }
    if !tail.is_empty() {
        // A lane without an element adds +0 * +0 to a sum of squares, which changes nothing.
        let mut padded = [0.0; LANES];
        padded[..tail.len()].copy_from_slice(tail);
        let x = lanes.load(&padded);
        sum = lanes.fma(x, x, sum);
    }
    lanes.sum_tree(sum)
}

/// `x[k] = (x[k] * factor) * weight[k]`.
#[inline(always)]
fn scale_by<L: Lanes>(lanes: L, x: &mut [f32], factor: f32, weight: &[f32]) {
    let (x_whole, x_tail) = x.as_chunks_mut::<LANES>();
    let (weight_whole, weight_tail) = weight.as_chunks::<LANES>();
    for (x, weight) in x_whole.iter_mut().zip(weight_whole) {
        let scaled = lanes.mul(lanes.load(x), lanes.splat(factor));
        lanes.store(lanes.mul(scaled, lanes.load(weight)), x);
    }
    for (x, weight) in x_tail.iter_mut().zip(weight_tail) {
        *x = (*x * factor) * weight;
    }
}

impl Cpu {
    /// RMS norm of every row: `out = x / sqrt(mean(x^2) + eps) * weight`. `x` and `out` are row-major with rows of
    /// `weight.len()`.
    ///
    /// # Panics
    /// When the lengths differ or are not whole rows.
    pub fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        assert_eq!(x.len(), out.len(), "norm input and output of one length");
        out.copy_from_slice(x);
        self.rms_norm_in_place(out, weight, eps);
    }

    /// [`Cpu::rms_norm`] in place; with a head's weight it norms every head of every row.
    ///
    /// # Panics
    /// When `x` is not whole rows of `weight.len()`.
    pub fn rms_norm_in_place(&self, x: &mut [f32], weight: &[f32], eps: f32) {
        if self.broken_rms_norm(x, weight, eps) {
            return;
        }
        self.run_rows(x, weight.len(), &|rows| self.isa().run(RmsNorm { rows, weight, eps }));
    }
}

#[cfg(test)]
mod tests {
    use crate::double;
    use crate::testing::{any_rows, assert_same_bits, every_cpu};
    use proptest::prelude::*;

    /// Section 5 of the plan, word for word.
    fn definition(row: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
        let mut lanes = [0.0f32; 16];
        for (k, x) in row.iter().enumerate() {
            lanes[k % 16] = x.mul_add(*x, lanes[k % 16]);
        }
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                lanes[l] += lanes[l + half];
            }
        }
        let r = 1.0 / (lanes[0] / row.len() as f32 + eps).sqrt();
        row.iter().zip(weight).map(|(x, w)| (x * r) * w).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn rows_follow_the_plan_everywhere(
            (rows, weight) in (0usize..5, 1usize..70).prop_flat_map(|(n, width)| (any_rows(n, width), any_rows(1, width))),
        ) {
            let expected: Vec<f32> =
                rows.chunks(weight.len()).flat_map(|row| definition(row, &weight, 1e-6)).collect();
            for cpu in every_cpu() {
                let mut found = vec![0.0; rows.len()];
                cpu.rms_norm(&rows, &weight, 1e-6, &mut found);
                assert_same_bits(&found, &expected, "normed rows");
                found.copy_from_slice(&rows);
                cpu.rms_norm_in_place(&mut found, &weight, 1e-6);
                assert_same_bits(&found, &expected, "rows normed in place");
            }
        }
    }

    #[test]
    fn many_rows_are_each_as_alone_and_near_the_truth() {
        let weight: Vec<f32> = (0..96).map(|k| 0.5 + k as f32 / 64.0).collect();
        let rows: Vec<f32> = (0..300 * 96).map(|k| ((k * 7919) % 2003) as f32 / 500.0 - 2.0).collect();
        for cpu in every_cpu() {
            let mut found = rows.clone();
            cpu.rms_norm_in_place(&mut found, &weight, 1e-5);
            for (row, found) in rows.chunks(96).zip(found.chunks(96)) {
                assert_same_bits(found, &definition(row, &weight, 1e-5), "one of many rows");
                let wide = |x: &[f32]| x.iter().copied().map(f64::from).collect::<Vec<_>>();
                let truth = double::rms_norm(&wide(row), &wide(&weight), 0.0, 1e-5);
                assert!(double::max_abs_difference(&wide(found), &truth) < 2e-6);
            }
        }
    }
}
