//! Operations on elements that know nothing of their neighbours.

use crate::cpu::Cpu;
use crate::functions::{Function, GeluTanh, PIECE, Silu};
use crate::lanes::{Kernel, LANES, Lanes};

/// An operation on two elements.
trait Binary: Copy + Sync {
    fn apply<L: Lanes>(self, lanes: L, x: L::Float, y: L::Float) -> L::Float;
}

/// `x + y`.
#[derive(Clone, Copy)]
struct Add;

impl Binary for Add {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float, y: L::Float) -> L::Float {
        lanes.add(x, y)
    }
}

/// `fma(weight, y, x)`.
#[derive(Clone, Copy)]
struct AddScaled(f32);

impl Binary for AddScaled {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float, y: L::Float) -> L::Float {
        lanes.fma(lanes.splat(self.0), y, x)
    }
}

/// `f(x) * y`.
#[derive(Clone, Copy)]
struct Gate<F>(F);

impl<F: Function> Binary for Gate<F> {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float, y: L::Float) -> L::Float {
        lanes.mul(self.0.apply(lanes, x), y)
    }
}

/// `x * factor`.
#[derive(Clone, Copy)]
struct Scale(f32);

impl Function for Scale {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        lanes.mul(x, lanes.splat(self.0))
    }
}

/// `x[i] = operation(x[i], y[i])`; both have one length.
struct Zip<'a, B> {
    operation: B,
    x: &'a mut [f32],
    y: &'a [f32],
}

impl<B: Binary> Kernel for Zip<'_, B> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let (x_whole, x_tail) = self.x.as_chunks_mut::<LANES>();
        let (y_whole, y_tail) = self.y.as_chunks::<LANES>();
        for (x, y) in x_whole.iter_mut().zip(y_whole) {
            lanes.store(self.operation.apply(lanes, lanes.load(x), lanes.load(y)), x);
        }
        if !x_tail.is_empty() {
            let (mut x, mut y) = ([0.0; LANES], [0.0; LANES]);
            x[..x_tail.len()].copy_from_slice(x_tail);
            y[..x_tail.len()].copy_from_slice(y_tail);
            let result = self.operation.apply(lanes, lanes.load(&x), lanes.load(&y));
            lanes.store(result, &mut x);
            x_tail.copy_from_slice(&x[..x_tail.len()]);
        }
    }
}

impl Cpu {
    fn zip(&self, operation: impl Binary, x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "two arrays of one length");
        self.pool().run_pieces(x, PIECE, &|index, x| {
            let y = &y[index * PIECE..][..x.len()];
            self.isa().run(Zip { operation, x, y });
        });
    }

    /// `x[i] = x[i] + y[i]`: a residual.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn add(&self, x: &mut [f32], y: &[f32]) {
        self.zip(Add, x, y);
    }

    /// `x[i] = fma(weight, y[i], x[i])`: one expert's share.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn add_scaled(&self, x: &mut [f32], weight: f32, y: &[f32]) {
        self.zip(AddScaled(weight), x, y);
    }

    /// Adds `bias` to every row of `rows`, a row-major matrix with rows of `bias.len()`.
    ///
    /// # Panics
    /// When `rows` is not whole rows.
    pub fn add_bias(&self, rows: &mut [f32], bias: &[f32]) {
        self.run_rows(rows, bias.len(), &|rows| {
            for x in rows.chunks_exact_mut(bias.len()) {
                self.isa().run(Zip { operation: Add, x, y: bias });
            }
        });
    }

    /// `x[i] = x[i] * factor`.
    pub fn scale(&self, x: &mut [f32], factor: f32) {
        self.map(Scale(factor), x);
    }

    /// `gate[i] = silu(gate[i]) * up[i]`: the gated feed-forward of Llama and most since.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn silu_mul(&self, gate: &mut [f32], up: &[f32]) {
        self.zip(Gate(Silu), gate, up);
    }

    /// `gate[i] = gelu_tanh(gate[i]) * up[i]`: the gated feed-forward of Gemma.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gelu_tanh_mul(&self, gate: &mut [f32], up: &[f32]) {
        self.zip(Gate(GeluTanh), gate, up);
    }

    /// Calls `task` with runs of whole rows of `rows`, rows of `width`, on all threads where there is enough to do.
    ///
    /// # Panics
    /// When `rows` is not whole rows, or a task panics.
    pub(crate) fn run_rows(&self, rows: &mut [f32], width: usize, task: &(dyn Fn(&mut [f32]) + Sync)) {
        if rows.is_empty() {
            return;
        }
        assert!(width > 0 && rows.len().is_multiple_of(width), "{} elements in rows of {width}", rows.len());
        let rows_at_once = (PIECE / width).max(1);
        self.pool().run_pieces(rows, rows_at_once * width, &|_, rows| task(rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_rows, assert_same_bits, every_cpu};
    use proptest::prelude::*;

    /// An operation on two arrays and its definition on two elements.
    type Case = (&'static str, fn(&Cpu, &mut [f32], &[f32]), fn(&Cpu, f32, f32) -> f32);

    const CASES: [Case; 5] = [
        ("add", Cpu::add, |_, x, y| x + y),
        ("add_scaled", |cpu, x, y| cpu.add_scaled(x, 0.37, y), |_, x, y| 0.37f32.mul_add(y, x)),
        ("scale", |cpu, x, _| cpu.scale(x, -1.7), |_, x, _| x * -1.7),
        ("silu_mul", Cpu::silu_mul, |cpu, x, y| one(cpu, Cpu::silu, x) * y),
        ("gelu_tanh_mul", Cpu::gelu_tanh_mul, |cpu, x, y| one(cpu, Cpu::gelu_tanh, x) * y),
    ];

    fn one(cpu: &Cpu, map: fn(&Cpu, &mut [f32]), x: f32) -> f32 {
        let mut x = [x];
        map(cpu, &mut x);
        x[0]
    }

    fn assert_defined(x: &[f32], y: &[f32]) {
        for cpu in every_cpu() {
            for (name, operation, definition) in CASES {
                let mut found = x.to_vec();
                operation(&cpu, &mut found, y);
                let expected: Vec<f32> = x.iter().zip(y).map(|(&x, &y)| definition(&cpu, x, y)).collect();
                assert_same_bits(&found, &expected, &format!("{name} on {}", cpu.isa()));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn elements_follow_their_definition(
            (x, y) in (0usize..70).prop_flat_map(|n| (any_rows(1, n), any_rows(1, n))),
        ) {
            assert_defined(&x, &y);
        }

        #[test]
        fn a_bias_is_added_to_every_row(
            (rows, bias) in (0usize..5, 1usize..40).prop_flat_map(|(n, width)| (any_rows(n, width), any_rows(1, width))),
        ) {
            let expected: Vec<f32> =
                rows.chunks(bias.len()).flat_map(|row| row.iter().zip(&bias).map(|(x, b)| x + b)).collect();
            for cpu in every_cpu() {
                let mut found = rows.clone();
                cpu.add_bias(&mut found, &bias);
                assert_same_bits(&found, &expected, "rows with a bias");
            }
        }
    }

    #[test]
    fn long_arrays_are_shared_by_threads() {
        let x: Vec<f32> = (0..2 * PIECE + 7).map(|k| (k % 1000) as f32 * 0.013 - 6.0).collect();
        let y: Vec<f32> = x.iter().rev().copied().collect();
        assert_defined(&x, &y);
    }

    #[test]
    #[should_panic(expected = "two arrays of one length")]
    fn lengths_must_agree() {
        every_cpu().next().unwrap().add(&mut [0.0; 3], &[0.0; 4]);
    }
}
