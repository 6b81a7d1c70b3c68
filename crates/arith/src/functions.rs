//! The functions of the plan, each written once on sixteen lanes.
//!
//! `exp` is computed in binary32, because attention calls it once per visible key. The others are computed in binary64
//! and rounded once, so they are all but correctly rounded; next to the matrices they cost nothing. At infinities they
//! give their limits, a NaN gives a NaN.

mod double;
mod single;
#[cfg(test)]
mod tests;

pub(crate) use double::{GeluTanh, Ln, Sigmoid, Silu, Softplus, Tanh};
pub(crate) use single::Exp;

use crate::cpu::Cpu;
use crate::lanes::{Kernel, LANES, Lanes};

/// Elements that one task maps. Smaller slices are not worth waking threads for.
pub(crate) const PIECE: usize = 8192;

/// A function of one variable.
pub(crate) trait Function: Copy + Sync {
    /// `f(x)` in every lane.
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float;
}

/// `e^x`.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(lanes: L, x: L::Float) -> L::Float {
    Exp.apply(lanes, x)
}

/// `cap * tanh(x / cap)`: division, function and product each rounded.
#[derive(Clone, Copy)]
pub(crate) struct SoftCap(pub(crate) f32);

impl Function for SoftCap {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        let cap = lanes.splat(self.0);
        lanes.mul(cap, Tanh.apply(lanes, lanes.div(x, cap)))
    }
}

/// `x[i] = f(x[i])`.
struct Map<'a, F> {
    function: F,
    x: &'a mut [f32],
}

impl<F: Function> Kernel for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let (whole, tail) = self.x.as_chunks_mut::<LANES>();
        for x in whole {
            lanes.store(self.function.apply(lanes, lanes.load(x)), x);
        }
        if !tail.is_empty() {
            let mut x = [0.0; LANES];
            x[..tail.len()].copy_from_slice(tail);
            let y = self.function.apply(lanes, lanes.load(&x));
            lanes.store(y, &mut x);
            tail.copy_from_slice(&x[..tail.len()]);
        }
    }
}

impl Cpu {
    /// Replaces every element by its function value.
    pub(crate) fn map(&self, function: impl Function, x: &mut [f32]) {
        self.pool().run_pieces(x, PIECE, &|_, x| self.isa().run(Map { function, x }));
    }

    /// `e^x` of every element: within 1 ulp, exactly 1 at 0.
    pub fn exp(&self, x: &mut [f32]) {
        if !self.broken_exp(x) {
            self.map(Exp, x);
        }
    }

    /// `1 / (1 + e^-x)` of every element.
    pub fn sigmoid(&self, x: &mut [f32]) {
        self.map(Sigmoid, x);
    }

    /// `x / (1 + e^-x)` of every element, also called swish.
    pub fn silu(&self, x: &mut [f32]) {
        self.map(Silu, x);
    }

    /// `ln(1 + e^x)` of every element.
    pub fn softplus(&self, x: &mut [f32]) {
        self.map(Softplus, x);
    }

    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))` of every element.
    pub fn gelu_tanh(&self, x: &mut [f32]) {
        self.map(GeluTanh, x);
    }

    /// Hyperbolic tangent of every element.
    pub fn tanh(&self, x: &mut [f32]) {
        self.map(Tanh, x);
    }

    /// Natural logarithm of every element: minus infinity at zeros of both signs, NaN below.
    pub fn ln(&self, x: &mut [f32]) {
        self.map(Ln, x);
    }

    /// `cap * tanh(x / cap)` of every element: the soft cap of scores and logits.
    pub fn soft_cap(&self, x: &mut [f32], cap: f32) {
        self.map(SoftCap(cap), x);
    }
}
