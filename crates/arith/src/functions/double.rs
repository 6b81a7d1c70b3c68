//! Functions computed in binary64 and rounded once.
//!
//! The binary64 values are within about 1e-13 of the truth (relative), so the one rounding decides all but a few cases
//! in a million the way the exact value would.

use super::Function;
use crate::lanes::Lanes;
use std::f64::consts::{FRAC_2_PI, LN_2, LOG2_E, SQRT_2};

/// `1 / k!` for `k` in `0..=11`.
const EXP: [f64; 12] = {
    let mut series = [1.0; 12];
    let mut k = 1;
    while k < 12 {
        series[k] = series[k - 1] / k as f64;
        k += 1;
    }
    series
};

/// Arguments of [`exp`] are held within this: `e^±200` is far outside binary32, far inside binary64.
const EXP_RANGE: f64 = 200.0;

/// Beyond the range of binary32 and finite, so that `x / (1 + e^-x)` has a limit at minus infinity.
const LOWEST: f64 = -1e39;

/// `e^x` for `x` held within ±200: `2^n e^r` with `|r| <= ln 2 / 2`, `e^r` by its series.
#[inline(always)]
fn exp<L: Lanes>(lanes: L, x: L::Double) -> L::Double {
    // `x` is the second operand, the one that survives a comparison with NaN.
    let x = lanes.max_double(lanes.splat_double(-EXP_RANGE), x);
    let x = lanes.min_double(lanes.splat_double(EXP_RANGE), x);
    let n = lanes.round_double(lanes.mul_double(x, lanes.splat_double(LOG2_E)));
    // |n| < 2^9 and ln 2 is off by 2^-54 of itself: what one part of ln 2 costs is below 1e-14.
    let r = lanes.fma_double(n, lanes.splat_double(-LN_2), x);
    lanes.mul_double(polynomial(lanes, &EXP, r), lanes.pow2_double(n))
}

/// `sum_k coefficients[k] x^k`, by Horner's rule.
#[inline(always)]
fn polynomial<L: Lanes, const N: usize>(lanes: L, coefficients: &[f64; N], x: L::Double) -> L::Double {
    let mut sum = lanes.splat_double(coefficients[N - 1]);
    for k in (0..N - 1).rev() {
        sum = lanes.fma_double(sum, x, lanes.splat_double(coefficients[k]));
    }
    sum
}

/// `1 / (2 k + 1)` for `k` in `0..=8`: `atanh(s) = s sum_k s^2k / (2 k + 1)`.
const ATANH: [f64; 9] = {
    let mut series = [1.0; 9];
    let mut k = 1;
    while k < 9 {
        series[k] = 1.0 / (2 * k + 1) as f64;
        k += 1;
    }
    series
};

/// `ln(1 + t)` as `2 atanh(t / (2 + t))`, for `1 + t` between `sqrt(1/2)` and `sqrt(2)`.
#[inline(always)]
fn ln_near_one<L: Lanes>(lanes: L, t: L::Double) -> L::Double {
    let s = lanes.div_double(t, lanes.add_double(lanes.splat_double(2.0), t));
    let series = polynomial(lanes, &ATANH, lanes.mul_double(s, s));
    lanes.mul_double(lanes.add_double(s, s), series)
}

/// `x / (1 + e^-z)`, minus zero at minus infinity.
#[inline(always)]
fn times_sigmoid<L: Lanes>(lanes: L, x: L::Double, z: L::Double) -> L::Double {
    let x = lanes.max_double(lanes.splat_double(LOWEST), x);
    let power = exp(lanes, lanes.sub_double(lanes.splat_double(0.0), z));
    lanes.div_double(x, lanes.add_double(lanes.splat_double(1.0), power))
}

/// `1 / (1 + e^-x)`.
#[derive(Clone, Copy)]
pub(crate) struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        lanes.narrow(times_sigmoid(lanes, lanes.splat_double(1.0), lanes.widen(x)))
    }
}

/// `x / (1 + e^-x)`.
#[derive(Clone, Copy)]
pub(crate) struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        let x = lanes.widen(x);
        lanes.narrow(times_sigmoid(lanes, x, x))
    }
}

/// `x / 2 * (1 + tanh(z / 2))`, which is `x / (1 + e^-z)`, with `z = 2 sqrt(2 / pi) (x + 0.044715 x^3)`.
#[derive(Clone, Copy)]
pub(crate) struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        let x = lanes.widen(x);
        let square = lanes.mul_double(x, x);
        let inner = lanes.fma_double(square, lanes.splat_double(0.044_715), lanes.splat_double(1.0));
        let z = lanes.mul_double(lanes.mul_double(lanes.splat_double(2.0 * SQRT_2_PI), x), inner);
        lanes.narrow(times_sigmoid(lanes, x, z))
    }
}

/// `sqrt(2 / pi)`.
const SQRT_2_PI: f64 = 0.797_884_560_802_865_4;
const _: () = assert!(SQRT_2_PI * SQRT_2_PI - FRAC_2_PI < 1e-15 && FRAC_2_PI - SQRT_2_PI * SQRT_2_PI < 1e-15);

/// `ln(1 + e^x)` as `max(x, 0) + ln(1 + e^-|x|)`: nothing cancels, on either side.
#[derive(Clone, Copy)]
pub(crate) struct Softplus;

impl Function for Softplus {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        let x = lanes.widen(x);
        let zero = lanes.splat_double(0.0);
        let power = exp(lanes, lanes.sub_double(zero, lanes.abs_double(x)));
        // Above sqrt(2) - 1 take ln(1 + power) = ln 2 + ln(1 + (power - 1) / 2).
        let limit = lanes.splat_double(SQRT_2 - 1.0);
        let halved =
            lanes.mul_double(lanes.sub_double(power, lanes.splat_double(1.0)), lanes.splat_double(0.5));
        let t = lanes.select_less_double(power, limit, power, halved);
        let base = lanes.select_less_double(power, limit, zero, lanes.splat_double(LN_2));
        let ln = lanes.add_double(base, ln_near_one(lanes, t));
        lanes.narrow(lanes.add_double(lanes.max_double(zero, x), ln))
    }
}

/// Hyperbolic tangent: `(1 - u) / (1 + u)` with `u = e^-2|x|`, and its series where that cancels.
#[derive(Clone, Copy)]
pub(crate) struct Tanh;

impl Function for Tanh {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        let x = lanes.widen(x);
        let (zero, one) = (lanes.splat_double(0.0), lanes.splat_double(1.0));
        let size = lanes.abs_double(x);
        let u = exp(lanes, lanes.mul_double(lanes.splat_double(-2.0), size));
        let far = lanes.div_double(lanes.sub_double(one, u), lanes.add_double(one, u));
        let far = lanes.select_less_double(x, zero, lanes.sub_double(zero, far), far);
        let near = lanes.mul_double(x, polynomial(lanes, &TANH, lanes.mul_double(x, x)));
        lanes.narrow(lanes.select_less_double(size, lanes.splat_double(1.0 / 256.0), near, far))
    }
}

/// `tanh(x) = x sum_k TANH[k] x^2k`; the next term is below 2^-52 for `|x| < 2^-8`.
const TANH: [f64; 3] = [1.0, -1.0 / 3.0, 2.0 / 15.0];

/// Natural logarithm: `e ln 2 + ln(m)` with `m` between `sqrt(1/2)` and `sqrt(2)`, so nothing cancels near 1.
#[derive(Clone, Copy)]
pub(crate) struct Ln;

impl Function for Ln {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        let x = lanes.widen(x);
        let (zero, one) = (lanes.splat_double(0.0), lanes.splat_double(1.0));
        // Every positive binary32, subnormals too, is a normal binary64.
        let (exponent, mantissa) = lanes.split_double(x);
        let root = lanes.splat_double(SQRT_2);
        let halved = lanes.mul_double(mantissa, lanes.splat_double(0.5));
        let m = lanes.select_less_double(mantissa, root, mantissa, halved);
        let e = lanes.select_less_double(mantissa, root, exponent, lanes.add_double(exponent, one));
        let ln = ln_near_one(lanes, lanes.sub_double(m, one));
        let ln = lanes.fma_double(e, lanes.splat_double(LN_2), ln);

        let ln = lanes.select_less_double(zero, x, ln, lanes.splat_double(f64::NEG_INFINITY));
        let ln = lanes.select_less_double(x, zero, lanes.splat_double(f64::NAN), ln);
        // Infinity and NaN are their own logarithms.
        lanes.narrow(lanes.select_less_double(x, lanes.splat_double(f64::INFINITY), ln, x))
    }
}
