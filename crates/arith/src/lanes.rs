//! Sixteen lanes of arithmetic, the same at every instruction set.
//!
//! Kernels are written once, generic over [`Lanes`], and run as scalar code, AVX2 or AVX-512. Every method is one
//! IEEE operation per lane (or an exact integer one), so all implementations give equal bits; what a kernel adds is
//! only the order, and that is in its source once. A value of a `Lanes` type is the proof that the processor has the
//! instructions, so kernels themselves need no `unsafe`.

mod avx2;
mod avx512;
mod scalar;
#[cfg(test)]
mod tests;

use crate::cpu::Isa;

/// Sixteen lanes.
pub(crate) const LANES: usize = 16;

/// One 32-column block of a row in 16-bit integers, in the forms that the instruction sets read.
///
/// `integer[k] = 256 * high[k] + low[k]`, `|integer[k]| <= 32639`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct RowBlock {
    pub(crate) high: [i8; 32],
    pub(crate) low: [i8; 32],
    pub(crate) integer: [i16; 32],
}

/// A line of packed weights: four consecutive columns of sixteen outputs, output-major. Byte `4 o + c` is column `c`
/// of output `o`. This is one VPDPBUSD operand and one row of an AMX tile.
pub(crate) const LINE: usize = 64;

/// The operations of one instruction set on sixteen lanes. See the module text for the contract.
pub(crate) trait Lanes: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type Float: Copy;
    /// Sixteen i32.
    type Int: Copy;
    /// Sixteen f64.
    type Double: Copy;
    /// Sixty-four u8: a line of weight codes.
    type Codes: Copy;
    /// Exact running products of one row's block with sixteen outputs.
    type Dot: Copy;

    /// How many `Float`s the registers hold: what a kernel may keep at once (1 where that is not worth caring for).
    const REGISTERS: usize;

    // ---- f32 ----
    fn splat(self, x: f32) -> Self::Float;
    fn load(self, x: &[f32; LANES]) -> Self::Float;
    fn store(self, x: Self::Float, to: &mut [f32; LANES]);
    /// IEEE binary16 widened, exact.
    fn load_f16(self, x: &[u16; LANES]) -> Self::Float;
    /// bfloat16 widened, exact.
    fn load_bf16(self, x: &[u16; LANES]) -> Self::Float;
    /// Signed bytes to float, exact.
    fn load_i8(self, x: &[i8; LANES]) -> Self::Float;
    fn add(self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn sub(self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn mul(self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn div(self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// `a > b ? a : b`: `b` when either is NaN or both are zeros.
    fn max(self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a < b ? a : b`: `b` when either is NaN or both are zeros.
    fn min(self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// Clears the sign bit.
    fn abs(self, a: Self::Float) -> Self::Float;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::Float) -> Self::Float;
    /// `a < b ? x : y`, `y` when either is NaN.
    fn select_less(self, a: Self::Float, b: Self::Float, x: Self::Float, y: Self::Float) -> Self::Float;
    /// Lane `l` is `x` if `from <= l < to`, else `y`.
    fn select_range(self, from: usize, to: usize, x: Self::Float, y: Self::Float) -> Self::Float;
    /// `2^n` for integral `n` in `-126 ..= 127`.
    fn pow2(self, n: Self::Float) -> Self::Float;

    /// Asks for `x` to be brought into the second-level cache, from where the first is filled in time; streams of
    /// weights would push what is in use out of the first. Changes nothing else.
    fn prefetch<T>(self, x: &T);

    // ---- i32 ----
    fn splat_int(self, x: i32) -> Self::Int;
    /// Integral floats within i32 to integers (ties to even otherwise).
    fn to_int(self, x: Self::Float) -> Self::Int;
    /// To the nearest float, ties to even.
    fn to_float(self, x: Self::Int) -> Self::Float;
    fn load_int(self, x: &[i32; LANES]) -> Self::Int;
    /// Wrapping.
    fn add_int(self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn store_int(self, x: Self::Int, to: &mut [i32; LANES]);
    /// Shifts left by `bits` (0..=31), wrapping.
    fn shift_left_int(self, a: Self::Int, bits: u32) -> Self::Int;

    // ---- f64 ----
    fn splat_double(self, x: f64) -> Self::Double;
    /// Exact.
    fn widen(self, x: Self::Float) -> Self::Double;
    /// Rounded to nearest, ties to even.
    fn narrow(self, x: Self::Double) -> Self::Float;
    fn add_double(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn sub_double(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn mul_double(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn div_double(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn fma_double(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double;
    /// `a > b ? a : b`.
    fn max_double(self, a: Self::Double, b: Self::Double) -> Self::Double;
    /// `a < b ? a : b`.
    fn min_double(self, a: Self::Double, b: Self::Double) -> Self::Double;
    fn abs_double(self, a: Self::Double) -> Self::Double;
    /// To the nearest integer, ties to even.
    fn round_double(self, a: Self::Double) -> Self::Double;
    /// `a < b ? x : y`, `y` when either is NaN.
    fn select_less_double(
        self,
        a: Self::Double,
        b: Self::Double,
        x: Self::Double,
        y: Self::Double,
    ) -> Self::Double;
    /// `2^n` for integral `n` in `-1022 ..= 1023`.
    fn pow2_double(self, n: Self::Double) -> Self::Double;
    /// For a positive normal `x = m 2^e` with `1 <= m < 2`: `(e, m)`.
    fn split_double(self, x: Self::Double) -> (Self::Double, Self::Double);

    // ---- weight codes and exact products ----
    fn load_codes(self, line: &[u8; LINE]) -> Self::Codes;
    fn store_codes(self, codes: Self::Codes, line: &mut [u8; LINE]);
    /// The low four bits of every byte.
    fn low_nibbles(self, codes: Self::Codes) -> Self::Codes;
    /// The high four bits of every byte.
    fn high_nibbles(self, codes: Self::Codes) -> Self::Codes;
    /// Two bits of every byte: bits `2 i` and `2 i + 1`, moved up by `up` (`i` in `0..4`, `up` in `0..=4`).
    fn crumbs(self, codes: Self::Codes, i: u32, up: u32) -> Self::Codes;
    /// Byte `j` is `value` where bit `j` of `bits` (little endian) is set, else 0.
    fn expand_bits(self, bits: &[u8; 8], value: u8) -> Self::Codes;
    fn or_codes(self, a: Self::Codes, b: Self::Codes) -> Self::Codes;
    /// `table[code]` for codes `0..16`.
    fn lookup(self, table: &[u8; 16], codes: Self::Codes) -> Self::Codes;
    /// How many rows a product kernel should hold at once: 1, 2 or 4.
    const ROWS_AT_ONCE: usize;
    /// How many panels of sixteen outputs it should hold at once: 1 or 2.
    const PANELS_AT_ONCE: usize;
    fn dot_zero(self) -> Self::Dot;
    /// Sums that start at `start * 2^bits` (within i32) instead of zero.
    fn dot_start(self, start: i32, bits: u32) -> Self::Dot;
    /// Adds columns `4 line .. 4 line + 4` of `row`, times `codes`, to the sixteen outputs.
    fn dot_line(self, dot: Self::Dot, codes: Self::Codes, row: &RowBlock, line: usize) -> Self::Dot;
    /// The same for a plane of signed bytes.
    fn dot_byte_line(self, dot: Self::Dot, codes: Self::Codes, plane: &[i8; 32], line: usize) -> Self::Dot;
    /// The exact sums of codes times integers.
    fn dot_finish(self, dot: Self::Dot) -> Self::Int;

    // ---- fixed trees, shared by all ----
    /// Adds lanes `l` and `l + 8`, then `l + 4`, `l + 2`, `l + 1`.
    #[inline(always)]
    fn sum_tree(self, x: Self::Float) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(x, &mut lanes);
        fold_tree(lanes, |a, b| a + b)
    }

    /// The same tree with [`Lanes::max`]'s rule.
    #[inline(always)]
    fn max_tree(self, x: Self::Float) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(x, &mut lanes);
        fold_tree(lanes, |a, b| if a > b { a } else { b })
    }
}

#[inline(always)]
fn fold_tree(mut lanes: [f32; LANES], fold: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = fold(lanes[l], lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Code generic over the instruction set. `run` must be `#[inline(always)]`, so that it is compiled once per
/// instruction set with that set's instructions.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// The kernel's body.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

impl Isa {
    /// Runs `kernel` with this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Scalar => kernel.run(scalar::Scalar),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::run(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 | Self::Amx => avx512::run(kernel),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 | Self::Amx => {
                unreachable!("a Cpu is never made with an instruction set it lacks")
            }
        }
    }
}
