//! `exp` in binary32.

use super::Function;
use crate::lanes::Lanes;

/// `e^x`, within 1 ulp.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2` and `e^x = 2^n (1 + r + r^2 q(r))`. The power is applied in two steps, both
/// normal numbers, so only the last one rounds when the result is subnormal.
#[derive(Clone, Copy)]
pub(crate) struct Exp;

/// Below it the result is nearer to 0 than to the smallest subnormal.
const LOWEST: f32 = -104.0;
/// Above it the result is infinite.
const HIGHEST: f32 = 89.0;
/// `ln 2` in two parts. The upper one has 10 significant bits, so its product with `n` is exact.
const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// `q(r) = (e^r - 1 - r) / r^2` interpolated at the Chebyshev nodes of the interval, ascending powers.
const Q: [f32; 6] = [0.5, 0.166_666_67, 0.041_666_463, 0.008_333_31, 0.001_393_382_1, 0.000_198_911_8];

impl Function for Exp {
    #[inline(always)]
    fn apply<L: Lanes>(self, lanes: L, x: L::Float) -> L::Float {
        // `x` is the second operand, the one that survives a comparison with NaN.
        let x = lanes.min(lanes.splat(HIGHEST), lanes.max(lanes.splat(LOWEST), x));
        let n = lanes.round(lanes.mul(x, lanes.splat(std::f32::consts::LOG2_E)));
        let r = lanes.fma(n, lanes.splat(-LN2_HIGH), x);
        let r = lanes.fma(n, lanes.splat(-LN2_LOW), r);
        let mut q = lanes.splat(Q[5]);
        for k in (0..5).rev() {
            q = lanes.fma(q, r, lanes.splat(Q[k]));
        }
        let power = lanes.add(lanes.splat(1.0), lanes.fma(lanes.mul(r, r), q, r));
        let half = lanes.round(lanes.mul(n, lanes.splat(0.5)));
        lanes.mul(lanes.mul(power, lanes.pow2(half)), lanes.pow2(lanes.sub(n, half)))
    }
}
