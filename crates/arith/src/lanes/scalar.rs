//! The definition: one lane after the other.

use super::{LANES, LINE, Lanes, RowBlock};
use half::{bf16, f16};

/// Plain Rust, on any processor.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
fn map<A: Copy, B, const N: usize>(a: [A; N], f: impl Fn(A) -> B) -> [B; N] {
    std::array::from_fn(|l| f(a[l]))
}

#[inline(always)]
fn zip<A: Copy, B: Copy, C, const N: usize>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> C) -> [C; N] {
    std::array::from_fn(|l| f(a[l], b[l]))
}

impl Lanes for Scalar {
    type Float = [f32; LANES];
    type Int = [i32; LANES];
    type Double = [f64; LANES];
    type Codes = [u8; LINE];
    type Dot = [i32; LANES];
    const REGISTERS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Float {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::Float {
        *x
    }
    #[inline(always)]
    fn store(self, x: Self::Float, to: &mut [f32; LANES]) {
        *to = x;
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::Float {
        map(*x, |bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::Float {
        map(*x, |bits| bf16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::Float {
        map(*x, f32::from)
    }
    #[inline(always)]
    fn add(self, a: Self::Float, b: Self::Float) -> Self::Float {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::Float, b: Self::Float) -> Self::Float {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::Float, b: Self::Float) -> Self::Float {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::Float, b: Self::Float) -> Self::Float {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }
    #[inline(always)]
    fn max(self, a: Self::Float, b: Self::Float) -> Self::Float {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::Float, b: Self::Float) -> Self::Float {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, a: Self::Float) -> Self::Float {
        map(a, f32::abs)
    }
    #[inline(always)]
    fn round(self, a: Self::Float) -> Self::Float {
        map(a, f32::round_ties_even)
    }
    #[inline(always)]
    fn select_less(self, a: Self::Float, b: Self::Float, x: Self::Float, y: Self::Float) -> Self::Float {
        std::array::from_fn(|l| if a[l] < b[l] { x[l] } else { y[l] })
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, x: Self::Float, y: Self::Float) -> Self::Float {
        std::array::from_fn(|l| if from <= l && l < to { x[l] } else { y[l] })
    }
    #[inline(always)]
    fn pow2(self, n: Self::Float) -> Self::Float {
        map(n, |n| f32::from_bits(((n as i32 + 127) << 23) as u32))
    }

    #[inline(always)]
    fn prefetch<T>(self, _: &T) {}

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        [x; LANES]
    }
    #[inline(always)]
    fn to_int(self, x: Self::Float) -> Self::Int {
        map(x, |x| x.round_ties_even() as i32)
    }
    #[inline(always)]
    fn to_float(self, x: Self::Int) -> Self::Float {
        map(x, |x| x as f32)
    }
    #[inline(always)]
    fn load_int(self, x: &[i32; LANES]) -> Self::Int {
        *x
    }
    #[inline(always)]
    fn add_int(self, mut a: Self::Int, b: Self::Int) -> Self::Int {
        for l in 0..LANES {
            a[l] = a[l].wrapping_add(b[l]);
        }
        a
    }
    #[inline(always)]
    fn store_int(self, x: Self::Int, to: &mut [i32; LANES]) {
        *to = x;
    }
    #[inline(always)]
    fn shift_left_int(self, a: Self::Int, bits: u32) -> Self::Int {
        map(a, |a| a << bits)
    }

    #[inline(always)]
    fn splat_double(self, x: f64) -> Self::Double {
        [x; LANES]
    }
    #[inline(always)]
    fn widen(self, x: Self::Float) -> Self::Double {
        map(x, f64::from)
    }
    #[inline(always)]
    fn narrow(self, x: Self::Double) -> Self::Float {
        map(x, |x| x as f32)
    }
    #[inline(always)]
    fn add_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma_double(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }
    #[inline(always)]
    fn max_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        zip(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs_double(self, a: Self::Double) -> Self::Double {
        map(a, f64::abs)
    }
    #[inline(always)]
    fn round_double(self, a: Self::Double) -> Self::Double {
        map(a, f64::round_ties_even)
    }
    #[inline(always)]
    fn select_less_double(
        self,
        a: Self::Double,
        b: Self::Double,
        x: Self::Double,
        y: Self::Double,
    ) -> Self::Double {
        std::array::from_fn(|l| if a[l] < b[l] { x[l] } else { y[l] })
    }
    #[inline(always)]
    fn pow2_double(self, n: Self::Double) -> Self::Double {
        map(n, |n| f64::from_bits(((n as i64 + 1023) << 52) as u64))
    }
    #[inline(always)]
    fn split_double(self, x: Self::Double) -> (Self::Double, Self::Double) {
        let exponent = map(x, |x| (x.to_bits() >> 52) as f64 - 1023.0);
        let mantissa = map(x, |x| f64::from_bits(x.to_bits() & MANTISSA_BITS | ONE_BITS));
        (exponent, mantissa)
    }

    #[inline(always)]
    fn load_codes(self, line: &[u8; LINE]) -> Self::Codes {
        *line
    }
    #[inline(always)]
    fn store_codes(self, codes: Self::Codes, line: &mut [u8; LINE]) {
        *line = codes;
    }
    #[inline(always)]
    fn low_nibbles(self, codes: Self::Codes) -> Self::Codes {
        map(codes, |c| c & 15)
    }
    #[inline(always)]
    fn high_nibbles(self, codes: Self::Codes) -> Self::Codes {
        map(codes, |c| c >> 4)
    }
    #[inline(always)]
    fn crumbs(self, codes: Self::Codes, i: u32, up: u32) -> Self::Codes {
        map(codes, |c| ((c >> (2 * i)) & 3) << up)
    }
    #[inline(always)]
    fn expand_bits(self, bits: &[u8; 8], value: u8) -> Self::Codes {
        std::array::from_fn(|j| if bits[j / 8] >> (j % 8) & 1 == 1 { value } else { 0 })
    }
    #[inline(always)]
    fn or_codes(self, a: Self::Codes, b: Self::Codes) -> Self::Codes {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], codes: Self::Codes) -> Self::Codes {
        map(codes, |c| table[usize::from(c & 15)])
    }
    const ROWS_AT_ONCE: usize = 1;
    const PANELS_AT_ONCE: usize = 1;
    #[inline(always)]
    fn dot_zero(self) -> Self::Dot {
        [0; LANES]
    }
    #[inline(always)]
    fn dot_start(self, start: i32, bits: u32) -> Self::Dot {
        [start << bits; LANES]
    }
    // A call per line: unrolled into the kernels it takes minutes to compile and is no faster.
    #[inline(never)]
    fn dot_line(self, dot: Self::Dot, codes: Self::Codes, row: &RowBlock, line: usize) -> Self::Dot {
        std::array::from_fn(|o| {
            (0..4).fold(dot[o], |sum, c| {
                sum + i32::from(codes[4 * o + c]) * i32::from(row.integer[4 * line + c])
            })
        })
    }
    #[inline(never)]
    fn dot_byte_line(self, dot: Self::Dot, codes: Self::Codes, plane: &[i8; 32], line: usize) -> Self::Dot {
        std::array::from_fn(|o| {
            (0..4).fold(dot[o], |sum, c| sum + i32::from(codes[4 * o + c]) * i32::from(plane[4 * line + c]))
        })
    }
    #[inline(always)]
    fn dot_finish(self, dot: Self::Dot) -> Self::Int {
        dot
    }
}

/// The fraction bits of an f64.
pub(super) const MANTISSA_BITS: u64 = (1 << 52) - 1;
/// `1.0f64`.
pub(super) const ONE_BITS: u64 = 1023 << 52;
