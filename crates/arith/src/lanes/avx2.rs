//! AVX2 with FMA and F16C: two registers of eight, four of four for f64.
#![cfg(target_arch = "x86_64")]

use super::scalar::{MANTISSA_BITS, ONE_BITS};
use super::{Kernel, LANES, LINE, Lanes, RowBlock};
use crate::cpu::Isa;
use std::arch::x86_64::*;

/// Proof that the processor has the instructions: only [`run`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Runs `kernel` compiled for AVX2.
///
/// # Panics
/// When the processor lacks it.
#[inline]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn with_features<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx2(()))
    }
    assert!(Isa::Avx2.is_available(), "this processor has no AVX2 with FMA and F16C");
    // SAFETY: the processor has every enabled feature, as just checked.
    unsafe { with_features(kernel) }
}

/// One intrinsic call. Sound because `Avx2` proves the features and every pointer comes from a whole array.
macro_rules! simd {
    ($($body:tt)*) => {{
        // SAFETY: an `Avx2` value exists only where the features do; loads and stores go through references to
        // arrays of the full width.
        #[allow(unused_unsafe)]
        unsafe { $($body)* }
    }};
}

/// One operation on each register of its operands, written out: a closure would not always be inlined into code that
/// has the instructions.
macro_rules! each {
    (2, |$h:ident| $body:expr) => {
        simd!([each!(@ $h, 0, $body), each!(@ $h, 1, $body)])
    };
    (4, |$h:ident| $body:expr) => {
        simd!([each!(@ $h, 0, $body), each!(@ $h, 1, $body), each!(@ $h, 2, $body), each!(@ $h, 3, $body)])
    };
    (@ $h:ident, $index:literal, $body:expr) => {{
        let $h: usize = $index;
        $body
    }};
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
/// `2^52 + 2^51`: adding it to a small integral f64 leaves that integer in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// `2^52`, whose bits hold a small integer in the low part after an `or`.
const TWO_52: f64 = 4_503_599_627_370_496.0;

impl Avx2 {
    /// Adds the products of four columns.
    #[inline(always)]
    fn dot_four(self, dot: [__m256i; 4], codes: [__m256i; 2], columns: [i16; 4]) -> [__m256i; 4] {
        let four = columns.iter().rev().fold(0, |four, &column| four << 16 | i64::from(column as u16));
        // 16-bit products of pairs cannot overflow: |code * integer| * 2 <= 2 * 255 * 32639 < 2^31.
        each!(4, |r| {
            let half = codes[r / 2];
            let bytes = if r.is_multiple_of(2) {
                _mm256_castsi256_si128(half)
            } else {
                _mm256_extracti128_si256::<1>(half)
            };
            let products = _mm256_madd_epi16(_mm256_cvtepu8_epi16(bytes), _mm256_set1_epi64x(four));
            _mm256_add_epi32(dot[r], products)
        })
    }
}

impl Lanes for Avx2 {
    type Float = [__m256; 2];
    type Int = [__m256i; 2];
    type Double = [__m256d; 4];
    type Codes = [__m256i; 2];
    /// Two partial sums of each output: register `r` holds outputs `4 r .. 4 r + 4`.
    type Dot = [__m256i; 4];
    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Float {
        simd!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::Float {
        each!(2, |h| _mm256_loadu_ps(x.as_ptr().add(8 * h)))
    }
    #[inline(always)]
    fn store(self, x: Self::Float, to: &mut [f32; LANES]) {
        simd!({
            _mm256_storeu_ps(to.as_mut_ptr(), x[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), x[1]);
        });
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::Float {
        each!(2, |h| _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(8 * h).cast())))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::Float {
        each!(2, |h| {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().add(8 * h).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::Float {
        each!(2, |h| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.as_ptr().add(8 * h).cast()))))
    }
    #[inline(always)]
    fn add(self, a: Self::Float, b: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_add_ps(a[h], b[h]))
    }
    #[inline(always)]
    fn sub(self, a: Self::Float, b: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_sub_ps(a[h], b[h]))
    }
    #[inline(always)]
    fn mul(self, a: Self::Float, b: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_mul_ps(a[h], b[h]))
    }
    #[inline(always)]
    fn div(self, a: Self::Float, b: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_div_ps(a[h], b[h]))
    }
    #[inline(always)]
    fn fma(self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_fmadd_ps(a[h], b[h], c[h]))
    }
    #[inline(always)]
    fn max(self, a: Self::Float, b: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_max_ps(a[h], b[h]))
    }
    #[inline(always)]
    fn min(self, a: Self::Float, b: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_min_ps(a[h], b[h]))
    }
    #[inline(always)]
    fn abs(self, a: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_andnot_ps(_mm256_set1_ps(-0.0), a[h]))
    }
    #[inline(always)]
    fn round(self, a: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_round_ps::<NEAREST>(a[h]))
    }
    #[inline(always)]
    fn select_less(self, a: Self::Float, b: Self::Float, x: Self::Float, y: Self::Float) -> Self::Float {
        each!(2, |h| _mm256_blendv_ps(y[h], x[h], _mm256_cmp_ps::<_CMP_LT_OQ>(a[h], b[h])))
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, x: Self::Float, y: Self::Float) -> Self::Float {
        each!(2, |h| {
            let lane =
                _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * h as i32));
            let not_below = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(from.min(LANES) as i32 - 1));
            let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(to.min(LANES) as i32), lane);
            _mm256_blendv_ps(y[h], x[h], _mm256_castsi256_ps(_mm256_and_si256(not_below, below)))
        })
    }
    #[inline(always)]
    fn pow2(self, n: Self::Float) -> Self::Float {
        each!(2, |h| {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n[h]), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        })
    }

    #[inline(always)]
    fn prefetch<T>(self, x: &T) {
        simd!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(x).cast()));
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        simd!([_mm256_set1_epi32(x); 2])
    }
    #[inline(always)]
    fn to_int(self, x: Self::Float) -> Self::Int {
        each!(2, |h| _mm256_cvtps_epi32(x[h]))
    }
    #[inline(always)]
    fn to_float(self, x: Self::Int) -> Self::Float {
        each!(2, |h| _mm256_cvtepi32_ps(x[h]))
    }
    #[inline(always)]
    fn load_int(self, x: &[i32; LANES]) -> Self::Int {
        each!(2, |h| _mm256_loadu_si256(x.as_ptr().add(8 * h).cast()))
    }
    #[inline(always)]
    fn add_int(self, a: Self::Int, b: Self::Int) -> Self::Int {
        each!(2, |h| _mm256_add_epi32(a[h], b[h]))
    }
    #[inline(always)]
    fn store_int(self, x: Self::Int, to: &mut [i32; LANES]) {
        simd!({
            _mm256_storeu_si256(to.as_mut_ptr().cast(), x[0]);
            _mm256_storeu_si256(to.as_mut_ptr().add(8).cast(), x[1]);
        });
    }
    #[inline(always)]
    fn shift_left_int(self, a: Self::Int, bits: u32) -> Self::Int {
        each!(2, |h| _mm256_sll_epi32(a[h], _mm_cvtsi32_si128(bits as i32)))
    }

    #[inline(always)]
    fn splat_double(self, x: f64) -> Self::Double {
        simd!([_mm256_set1_pd(x); 4])
    }
    #[inline(always)]
    fn widen(self, x: Self::Float) -> Self::Double {
        simd!([
            _mm256_cvtps_pd(_mm256_castps256_ps128(x[0])),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[0])),
            _mm256_cvtps_pd(_mm256_castps256_ps128(x[1])),
            _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x[1])),
        ])
    }
    #[inline(always)]
    fn narrow(self, x: Self::Double) -> Self::Float {
        each!(2, |h| _mm256_set_m128(_mm256_cvtpd_ps(x[2 * h + 1]), _mm256_cvtpd_ps(x[2 * h])))
    }
    #[inline(always)]
    fn add_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_add_pd(a[h], b[h]))
    }
    #[inline(always)]
    fn sub_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_sub_pd(a[h], b[h]))
    }
    #[inline(always)]
    fn mul_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_mul_pd(a[h], b[h]))
    }
    #[inline(always)]
    fn div_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_div_pd(a[h], b[h]))
    }
    #[inline(always)]
    fn fma_double(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_fmadd_pd(a[h], b[h], c[h]))
    }
    #[inline(always)]
    fn max_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_max_pd(a[h], b[h]))
    }
    #[inline(always)]
    fn min_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_min_pd(a[h], b[h]))
    }
    #[inline(always)]
    fn abs_double(self, a: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_andnot_pd(_mm256_set1_pd(-0.0), a[h]))
    }
    #[inline(always)]
    fn round_double(self, a: Self::Double) -> Self::Double {
        each!(4, |h| _mm256_round_pd::<NEAREST>(a[h]))
    }
    #[inline(always)]
    fn select_less_double(
        self,
        a: Self::Double,
        b: Self::Double,
        x: Self::Double,
        y: Self::Double,
    ) -> Self::Double {
        each!(4, |h| _mm256_blendv_pd(y[h], x[h], _mm256_cmp_pd::<_CMP_LT_OQ>(a[h], b[h])))
    }
    #[inline(always)]
    fn pow2_double(self, n: Self::Double) -> Self::Double {
        each!(4, |h| {
            let integer = _mm256_castpd_si256(_mm256_add_pd(n[h], _mm256_set1_pd(MAGIC + 1023.0)));
            _mm256_castsi256_pd(_mm256_slli_epi64::<52>(integer))
        })
    }
    #[inline(always)]
    fn split_double(self, x: Self::Double) -> (Self::Double, Self::Double) {
        let exponent = each!(4, |h| {
            let biased = _mm256_srli_epi64::<52>(_mm256_castpd_si256(x[h]));
            let shifted = _mm256_or_si256(biased, _mm256_castpd_si256(_mm256_set1_pd(TWO_52)));
            _mm256_sub_pd(_mm256_castsi256_pd(shifted), _mm256_set1_pd(TWO_52 + 1023.0))
        });
        let mantissa = each!(4, |h| {
            let fraction =
                _mm256_and_si256(_mm256_castpd_si256(x[h]), _mm256_set1_epi64x(MANTISSA_BITS as i64));
            _mm256_castsi256_pd(_mm256_or_si256(fraction, _mm256_set1_epi64x(ONE_BITS as i64)))
        });
        (exponent, mantissa)
    }

    #[inline(always)]
    fn load_codes(self, line: &[u8; LINE]) -> Self::Codes {
        each!(2, |h| _mm256_loadu_si256(line.as_ptr().add(32 * h).cast()))
    }
    #[inline(always)]
    fn store_codes(self, codes: Self::Codes, line: &mut [u8; LINE]) {
        simd!({
            _mm256_storeu_si256(line.as_mut_ptr().cast(), codes[0]);
            _mm256_storeu_si256(line.as_mut_ptr().add(32).cast(), codes[1]);
        });
    }
    #[inline(always)]
    fn low_nibbles(self, codes: Self::Codes) -> Self::Codes {
        each!(2, |h| _mm256_and_si256(codes[h], _mm256_set1_epi8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, codes: Self::Codes) -> Self::Codes {
        each!(2, |h| _mm256_and_si256(_mm256_srli_epi16::<4>(codes[h]), _mm256_set1_epi8(15)))
    }
    #[inline(always)]
    fn crumbs(self, codes: Self::Codes, i: u32, up: u32) -> Self::Codes {
        each!(2, |h| {
            // One shift moves the two bits of every byte into place; the mask drops what came from the neighbours.
            let moved = if 2 * i >= up {
                _mm256_srl_epi16(codes[h], _mm_cvtsi32_si128((2 * i - up) as i32))
            } else {
                _mm256_sll_epi16(codes[h], _mm_cvtsi32_si128((up - 2 * i) as i32))
            };
            _mm256_and_si256(moved, _mm256_set1_epi8((3u8 << up) as i8))
        })
    }
    #[inline(always)]
    fn expand_bits(self, bits: &[u8; 8], value: u8) -> Self::Codes {
        each!(2, |h| {
            let word = i32::from_le_bytes([bits[4 * h], bits[4 * h + 1], bits[4 * h + 2], bits[4 * h + 3]]);
            // Every byte receives the byte of `word` that holds its bit, then tests that bit.
            let spread = _mm256_shuffle_epi8(
                _mm256_set1_epi32(word),
                _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303),
            );
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
            _mm256_and_si256(set, _mm256_set1_epi8(value as i8))
        })
    }
    #[inline(always)]
    fn or_codes(self, a: Self::Codes, b: Self::Codes) -> Self::Codes {
        each!(2, |h| _mm256_or_si256(a[h], b[h]))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], codes: Self::Codes) -> Self::Codes {
        each!(2, |h| {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, codes[h])
        })
    }
    const ROWS_AT_ONCE: usize = 2;
    const PANELS_AT_ONCE: usize = 1;
    #[inline(always)]
    fn dot_zero(self) -> Self::Dot {
        simd!([_mm256_setzero_si256(); 4])
    }
    #[inline(always)]
    fn dot_start(self, start: i32, bits: u32) -> Self::Dot {
        // In the first of the two partial sums.
        simd!([_mm256_set1_epi64x(i64::from((start << bits) as u32)); 4])
    }
    #[inline(always)]
    fn dot_line(self, dot: Self::Dot, codes: Self::Codes, row: &RowBlock, line: usize) -> Self::Dot {
        self.dot_four(dot, codes, std::array::from_fn(|c| row.integer[4 * line + c]))
    }
    #[inline(always)]
    fn dot_byte_line(self, dot: Self::Dot, codes: Self::Codes, plane: &[i8; 32], line: usize) -> Self::Dot {
        self.dot_four(dot, codes, std::array::from_fn(|c| i16::from(plane[4 * line + c])))
    }
    #[inline(always)]
    fn dot_finish(self, dot: Self::Dot) -> Self::Int {
        each!(2, |h| {
            let pairs = _mm256_hadd_epi32(dot[2 * h], dot[2 * h + 1]);
            _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs)
        })
    }
}
