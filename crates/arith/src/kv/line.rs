//! Sixteen stored numbers of one type: what one load of a kernel reads.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::lanes::{LANES, Lanes};

/// Columns of a head that share one scale in an int8 page.
pub(crate) const SCALE_BLOCK: usize = 32;

/// Largest absolute values below this are stored as zeros, so that `1 / scale` stays finite.
const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);

/// Sixteen stored numbers, aligned so that one load never straddles two cache lines.
pub(crate) trait Line: Copy + PartialEq + Send + Sync + 'static {
    /// One stored number.
    type Element: Copy;
    /// Sixteen zeros.
    const ZERO: Self;
    /// The zero of one number.
    const ZERO_ELEMENT: Self::Element;
    /// Bytes of one number.
    const SIZE: usize;
    /// Whether the numbers are integers with a scale per [`SCALE_BLOCK`] columns.
    const SCALED: bool;

    fn elements(&self) -> &[Self::Element; LANES];
    fn elements_mut(&mut self) -> &mut [Self::Element; LANES];
    /// Rounds one row of a head as section 9 of the plan says; `scales` holds one entry per block, or none.
    fn round_row(row: &[f32], to: &mut [Self::Element], scales: &mut [f32]);
    /// The number as stored, without its scale.
    fn widen_one(element: Self::Element) -> f32;
    /// The numbers as stored, without their scales.
    fn load<L: Lanes>(&self, lanes: L) -> L::Float;
    fn to_bytes(element: Self::Element, out: &mut Vec<u8>);
    /// Reads one number from exactly [`Line::SIZE`] bytes.
    fn from_bytes(bytes: &[u8]) -> Self::Element;
}

/// Sixteen binary32.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct F32Line([f32; LANES]);

/// Sixteen IEEE binary16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub(crate) struct F16Line([u16; LANES]);

/// Sixteen bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(32))]
pub(crate) struct Bf16Line([u16; LANES]);

/// Sixteen integers in `-127 ..= 127`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub(crate) struct Int8Line([i8; LANES]);

/// Equal bits, so that a page with a NaN still equals its copy.
impl PartialEq for F32Line {
    fn eq(&self, other: &Self) -> bool {
        self.0.map(f32::to_bits) == other.0.map(f32::to_bits)
    }
}

/// The parts that all four types write alike.
macro_rules! stored_as {
    ($element:ty, $zero:expr) => {
        type Element = $element;
        const ZERO: Self = Self([$zero; LANES]);
        const ZERO_ELEMENT: $element = $zero;
        const SIZE: usize = size_of::<$element>();

        #[inline(always)]
        fn elements(&self) -> &[$element; LANES] {
            &self.0
        }
        #[inline(always)]
        fn elements_mut(&mut self) -> &mut [$element; LANES] {
            &mut self.0
        }
        fn to_bytes(element: $element, out: &mut Vec<u8>) {
            out.extend_from_slice(&element.to_le_bytes());
        }
        fn from_bytes(bytes: &[u8]) -> $element {
            let mut element = [0; size_of::<$element>()];
            element.copy_from_slice(bytes);
            <$element>::from_le_bytes(element)
        }
    };
}

impl Line for F32Line {
    stored_as!(f32, 0.0);
    const SCALED: bool = false;

    fn round_row(row: &[f32], to: &mut [f32], _: &mut [f32]) {
        to.copy_from_slice(row);
    }
    fn widen_one(element: f32) -> f32 {
        element
    }
    #[inline(always)]
    fn load<L: Lanes>(&self, lanes: L) -> L::Float {
        lanes.load(&self.0)
    }
}

impl Line for F16Line {
    stored_as!(u16, 0);
    const SCALED: bool = false;

    fn round_row(row: &[f32], to: &mut [u16], _: &mut [f32]) {
        use half::slice::HalfBitsSliceExt;
        to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(row);
    }
    fn widen_one(element: u16) -> f32 {
        f16::from_bits(element).to_f32()
    }
    #[inline(always)]
    fn load<L: Lanes>(&self, lanes: L) -> L::Float {
        lanes.load_f16(&self.0)
    }
}

impl Line for Bf16Line {
    stored_as!(u16, 0);
    const SCALED: bool = false;

    fn round_row(row: &[f32], to: &mut [u16], _: &mut [f32]) {
        for (to, &x) in to.iter_mut().zip(row) {
            *to = bf16::from_f32(x).to_bits();
        }
    }
    fn widen_one(element: u16) -> f32 {
        bf16::from_bits(element).to_f32()
    }
    #[inline(always)]
    fn load<L: Lanes>(&self, lanes: L) -> L::Float {
        lanes.load_bf16(&self.0)
    }
}

impl Line for Int8Line {
    stored_as!(i8, 0);
    const SCALED: bool = true;

    fn round_row(row: &[f32], to: &mut [i8], scales: &mut [f32]) {
        let blocks = row.chunks(SCALE_BLOCK).zip(to.chunks_mut(SCALE_BLOCK));
        for ((row, to), scale) in blocks.zip(scales) {
            *scale = round_block(row, to);
        }
    }
    fn widen_one(element: i8) -> f32 {
        f32::from(element)
    }
    #[inline(always)]
    fn load<L: Lanes>(&self, lanes: L) -> L::Float {
        lanes.load_i8(&self.0)
    }
}

/// Rounds up to 32 columns to integers and returns their scale: NaN, with zeros, where a column is not finite, so that
/// it is not lost.
fn round_block(row: &[f32], to: &mut [i8]) -> f32 {
    if row.iter().any(|x| !x.is_finite()) {
        to.fill(0);
        return f32::NAN;
    }
    let largest = row.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    if largest < SMALLEST {
        to.fill(0);
        return 0.0;
    }
    let scale = largest / 127.0;
    let inverse = 1.0 / scale;
    for (to, x) in to.iter_mut().zip(row) {
        // At most 127 and a few units in the last place before rounding.
        *to = (x * inverse).round_ties_even() as i8;
    }
    scale
}
