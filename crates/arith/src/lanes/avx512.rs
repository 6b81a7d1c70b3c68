//! AVX-512 F, BW, DQ, VL and VNNI: one register, or two halves for f64.
#![cfg(target_arch = "x86_64")]

use super::scalar::{MANTISSA_BITS, ONE_BITS};
use super::{Kernel, LANES, LINE, Lanes, RowBlock};
use crate::cpu::Isa;
use std::arch::x86_64::*;

/// Proof that the processor has the instructions: only [`run`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// Runs `kernel` compiled for AVX-512.
///
/// # Panics
/// When the processor lacks it.
#[inline]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn with_features<K: Kernel>(kernel: K) -> K::Output {
        kernel.run(Avx512(()))
    }
    assert!(Isa::Avx512.is_available(), "this processor has no AVX-512 with VNNI");
    // SAFETY: the processor has every enabled feature, as just checked.
    unsafe { with_features(kernel) }
}

/// One intrinsic call. Sound because `Avx512` proves the features and every pointer comes from a whole array.
macro_rules! simd {
    ($($body:tt)*) => {{
        // SAFETY: an `Avx512` value exists only where the features do; loads and stores go through references to
        // arrays of the full width.
        #[allow(unused_unsafe)]
        unsafe { $($body)* }
    }};
}

const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
/// `2^52 + 2^51`: adding it to a small integral f64 leaves that integer in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// `2^n`.
#[inline(always)]
fn pow2_half(n: __m512d) -> __m512d {
    simd!({
        let integer = _mm512_castpd_si512(_mm512_add_pd(n, _mm512_set1_pd(MAGIC + 1023.0)));
        _mm512_castsi512_pd(_mm512_slli_epi64::<52>(integer))
    })
}

/// Exponent and mantissa.
#[inline(always)]
fn split_half(x: __m512d) -> (__m512d, __m512d) {
    simd!({
        let bits = _mm512_castpd_si512(x);
        let biased = _mm512_cvtepi64_pd(_mm512_srli_epi64::<52>(bits));
        let fraction = _mm512_and_si512(bits, _mm512_set1_epi64(MANTISSA_BITS as i64));
        (
            _mm512_sub_pd(biased, _mm512_set1_pd(1023.0)),
            _mm512_castsi512_pd(_mm512_or_si512(fraction, _mm512_set1_epi64(ONE_BITS as i64))),
        )
    })
}

/// The four bytes of a plane that meet line `line`.
#[inline(always)]
fn four_bytes(plane: &[i8; 32], line: usize) -> i32 {
    i32::from_le_bytes(std::array::from_fn(|c| plane[4 * line + c] as u8))
}

impl Lanes for Avx512 {
    type Float = __m512;
    type Int = __m512i;
    type Double = [__m512d; 2];
    type Codes = __m512i;
    /// Sums of the high plane and of the low plane.
    type Dot = [__m512i; 2];
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::Float {
        simd!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::Float {
        simd!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn store(self, x: Self::Float, to: &mut [f32; LANES]) {
        simd!(_mm512_storeu_ps(to.as_mut_ptr(), x));
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; LANES]) -> Self::Float {
        simd!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; LANES]) -> Self::Float {
        simd!(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(
            x.as_ptr().cast()
        )))))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::Float {
        simd!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn add(self, a: Self::Float, b: Self::Float) -> Self::Float {
        simd!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::Float, b: Self::Float) -> Self::Float {
        simd!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::Float, b: Self::Float) -> Self::Float {
        simd!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::Float, b: Self::Float) -> Self::Float {
        simd!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float {
        simd!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::Float, b: Self::Float) -> Self::Float {
        simd!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::Float, b: Self::Float) -> Self::Float {
        simd!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn abs(self, a: Self::Float) -> Self::Float {
        simd!(_mm512_abs_ps(a))
    }
    #[inline(always)]
    fn round(self, a: Self::Float) -> Self::Float {
        simd!(_mm512_roundscale_ps::<NEAREST>(a))
    }
    #[inline(always)]
    fn select_less(self, a: Self::Float, b: Self::Float, x: Self::Float, y: Self::Float) -> Self::Float {
        simd!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x))
    }
    #[inline(always)]
    fn select_range(self, from: usize, to: usize, x: Self::Float, y: Self::Float) -> Self::Float {
        let below = |n: usize| ((1u32 << n.min(LANES)) - 1) as u16;
        simd!(_mm512_mask_blend_ps(below(to) & !below(from), y, x))
    }
    #[inline(always)]
    fn pow2(self, n: Self::Float) -> Self::Float {
        simd!(_mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(
            _mm512_cvtps_epi32(n),
            _mm512_set1_epi32(127)
        ))))
    }

    #[inline(always)]
    fn prefetch<T>(self, x: &T) {
        simd!(_mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(x).cast()));
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Int {
        simd!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn to_int(self, x: Self::Float) -> Self::Int {
        simd!(_mm512_cvtps_epi32(x))
    }
    #[inline(always)]
    fn to_float(self, x: Self::Int) -> Self::Float {
        simd!(_mm512_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn load_int(self, x: &[i32; LANES]) -> Self::Int {
        simd!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn add_int(self, a: Self::Int, b: Self::Int) -> Self::Int {
        simd!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn store_int(self, x: Self::Int, to: &mut [i32; LANES]) {
        simd!(_mm512_storeu_si512(to.as_mut_ptr().cast(), x));
    }
    #[inline(always)]
    fn shift_left_int(self, a: Self::Int, bits: u32) -> Self::Int {
        simd!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(bits as i32)))
    }

    #[inline(always)]
    fn splat_double(self, x: f64) -> Self::Double {
        simd!([_mm512_set1_pd(x); 2])
    }
    #[inline(always)]
    fn widen(self, x: Self::Float) -> Self::Double {
        simd!([_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(x))])
    }
    #[inline(always)]
    fn narrow(self, x: Self::Double) -> Self::Float {
        simd!(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm512_cvtpd_ps(x[0])), _mm512_cvtpd_ps(x[1])))
    }
    #[inline(always)]
    fn add_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        simd!([_mm512_add_pd(a[0], b[0]), _mm512_add_pd(a[1], b[1])])
    }
    #[inline(always)]
    fn sub_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        simd!([_mm512_sub_pd(a[0], b[0]), _mm512_sub_pd(a[1], b[1])])
    }
    #[inline(always)]
    fn mul_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        simd!([_mm512_mul_pd(a[0], b[0]), _mm512_mul_pd(a[1], b[1])])
    }
    #[inline(always)]
    fn div_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        simd!([_mm512_div_pd(a[0], b[0]), _mm512_div_pd(a[1], b[1])])
    }
    #[inline(always)]
    fn fma_double(self, a: Self::Double, b: Self::Double, c: Self::Double) -> Self::Double {
        simd!([_mm512_fmadd_pd(a[0], b[0], c[0]), _mm512_fmadd_pd(a[1], b[1], c[1])])
    }
    #[inline(always)]
    fn max_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        simd!([_mm512_max_pd(a[0], b[0]), _mm512_max_pd(a[1], b[1])])
    }
    #[inline(always)]
    fn min_double(self, a: Self::Double, b: Self::Double) -> Self::Double {
        simd!([_mm512_min_pd(a[0], b[0]), _mm512_min_pd(a[1], b[1])])
    }
    #[inline(always)]
    fn abs_double(self, a: Self::Double) -> Self::Double {
        simd!([_mm512_abs_pd(a[0]), _mm512_abs_pd(a[1])])
    }
    #[inline(always)]
    fn round_double(self, a: Self::Double) -> Self::Double {
        simd!([_mm512_roundscale_pd::<NEAREST>(a[0]), _mm512_roundscale_pd::<NEAREST>(a[1])])
    }
    #[inline(always)]
    fn select_less_double(
        self,
        a: Self::Double,
        b: Self::Double,
        x: Self::Double,
        y: Self::Double,
    ) -> Self::Double {
        simd!([
            _mm512_mask_blend_pd(_mm512_cmp_pd_mask::<_CMP_LT_OQ>(a[0], b[0]), y[0], x[0]),
            _mm512_mask_blend_pd(_mm512_cmp_pd_mask::<_CMP_LT_OQ>(a[1], b[1]), y[1], x[1]),
        ])
    }
    #[inline(always)]
    fn pow2_double(self, n: Self::Double) -> Self::Double {
        [pow2_half(n[0]), pow2_half(n[1])]
    }
    #[inline(always)]
    fn split_double(self, x: Self::Double) -> (Self::Double, Self::Double) {
        let ((e0, m0), (e1, m1)) = (split_half(x[0]), split_half(x[1]));
        ([e0, e1], [m0, m1])
    }

    #[inline(always)]
    fn load_codes(self, line: &[u8; LINE]) -> Self::Codes {
        simd!(_mm512_loadu_si512(line.as_ptr().cast()))
    }
    #[inline(always)]
    fn store_codes(self, codes: Self::Codes, line: &mut [u8; LINE]) {
        simd!(_mm512_storeu_si512(line.as_mut_ptr().cast(), codes));
    }
    #[inline(always)]
    fn low_nibbles(self, codes: Self::Codes) -> Self::Codes {
        simd!(_mm512_and_si512(codes, _mm512_set1_epi8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, codes: Self::Codes) -> Self::Codes {
        simd!(_mm512_and_si512(_mm512_srli_epi16::<4>(codes), _mm512_set1_epi8(15)))
    }
    #[inline(always)]
    fn crumbs(self, codes: Self::Codes, i: u32, up: u32) -> Self::Codes {
        simd!({
            // One shift moves the two bits of every byte into place; the mask drops what came from the neighbours.
            let moved = if 2 * i >= up {
                _mm512_srl_epi16(codes, _mm_cvtsi32_si128((2 * i - up) as i32))
            } else {
                _mm512_sll_epi16(codes, _mm_cvtsi32_si128((up - 2 * i) as i32))
            };
            _mm512_and_si512(moved, _mm512_set1_epi8((3u8 << up) as i8))
        })
    }
    #[inline(always)]
    fn expand_bits(self, bits: &[u8; 8], value: u8) -> Self::Codes {
        simd!(_mm512_maskz_set1_epi8(u64::from_le_bytes(*bits), value as i8))
    }
    #[inline(always)]
    fn or_codes(self, a: Self::Codes, b: Self::Codes) -> Self::Codes {
        simd!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], codes: Self::Codes) -> Self::Codes {
        simd!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, codes)
        })
    }
    const ROWS_AT_ONCE: usize = 4;
    const PANELS_AT_ONCE: usize = 2;
    #[inline(always)]
    fn dot_zero(self) -> Self::Dot {
        simd!([_mm512_setzero_si512(); 2])
    }
    #[inline(always)]
    fn dot_start(self, start: i32, bits: u32) -> Self::Dot {
        // Spread first: the processor loads and spreads at once, while a shifted scalar would have to move over.
        let low = self.shift_left_int(self.splat_int(start), bits);
        simd!([_mm512_setzero_si512(), low])
    }
    #[inline(always)]
    fn dot_line(self, dot: Self::Dot, codes: Self::Codes, row: &RowBlock, line: usize) -> Self::Dot {
        simd!([
            _mm512_dpbusd_epi32(dot[0], codes, _mm512_set1_epi32(four_bytes(&row.high, line))),
            _mm512_dpbusd_epi32(dot[1], codes, _mm512_set1_epi32(four_bytes(&row.low, line))),
        ])
    }
    #[inline(always)]
    fn dot_byte_line(self, dot: Self::Dot, codes: Self::Codes, plane: &[i8; 32], line: usize) -> Self::Dot {
        simd!([dot[0], _mm512_dpbusd_epi32(dot[1], codes, _mm512_set1_epi32(four_bytes(plane, line)))])
    }
    #[inline(always)]
    fn dot_finish(self, dot: Self::Dot) -> Self::Int {
        simd!(_mm512_add_epi32(_mm512_slli_epi32::<8>(dot[0]), dot[1]))
    }
}
