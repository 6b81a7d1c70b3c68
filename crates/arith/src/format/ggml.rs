//! ggml's formats of 32 columns a block: a scale (and a minimum) in binary16, then the codes.

use super::coded::{BLOCK, Coded, Group, Row};
use crate::matrix::layout::{Bytes, Levels, Nibbles, NibblesAndBits, Pairs, Singles, Whole, WholeWithOffset};
use half::{bf16, f16};

/// `Q4_0`.
pub(crate) struct Q4_0;
/// `Q4_1`.
pub(crate) struct Q4_1;
/// `Q5_0`.
pub(crate) struct Q5_0;
/// `Q5_1`.
pub(crate) struct Q5_1;
/// `Q8_0`.
pub(crate) struct Q8_0;
/// `IQ4_NL`.
pub(crate) struct Iq4Nl;
/// `MXFP4` as GGUF stores it.
pub(crate) struct Mxfp4;

/// The levels of `IQ4_NL` and `IQ4_XS`, plus 128.
pub(super) const IQ4_LEVELS: [u8; 16] =
    [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// Twice the E2M1 values (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives), plus 16.
pub(super) const E2M1_LEVELS: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

/// The binary16 at byte `at`, widened.
pub(super) fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Half of the E8M0 scale `2^(e - 127)`, for twice the E2M1 values. The byte 255, which no writer emits, is read like
/// the others, as ggml does.
pub(super) fn half_power(exponent: u8) -> f32 {
    match exponent {
        // Below the normal range: 2^-128 and 2^-127.
        0 | 1 => f32::from_bits(0x0020_0000 << exponent),
        _ => f32::from_bits((u32::from(exponent) - 1) << 23),
    }
}

/// Sixteen bytes of nibbles: columns 0 to 15 in the low halves, 16 to 31 in the high halves.
pub(super) fn split_nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    let bytes: &[u8; 16] = bytes[..16].try_into().expect("a slice of 16 bytes");
    std::array::from_fn(|k| if k < 16 { bytes[k] & 15 } else { bytes[k - 16] >> 4 })
}

/// [`split_nibbles`] with bit `k` of the leading little-endian `u32` as fifth bit of column `k`.
fn split_nibbles_and_bits(bytes: &[u8]) -> [u8; BLOCK] {
    let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut codes = split_nibbles(&bytes[4..]);
    for (k, code) in codes.iter_mut().enumerate() {
        *code |= ((bits >> k) as u8 & 1) << 4;
    }
    codes
}

fn block<'a, const BYTES: usize>(row: Row<'a>, index: usize) -> &'a [u8; BYTES] {
    row.data[BYTES * index..BYTES * (index + 1)].try_into().expect("a slice of one block")
}

impl Coded for Q4_0 {
    type Layout = Nibbles;
    type Scales = Singles<f16>;
    type Steps = Whole;
    const ZERO_BITS: u32 = 3;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        split_nibbles(&block::<18>(row, index)[2..])
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        Group::scaled(half_at(block::<18>(row, index), 0))
    }
}

impl Coded for Q4_1 {
    type Layout = Nibbles;
    type Scales = Pairs<f16>;
    type Steps = WholeWithOffset;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        split_nibbles(&block::<20>(row, index)[4..])
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let block = block::<20>(row, index);
        Group::affine(half_at(block, 0), half_at(block, 2))
    }
}

impl Coded for Q5_0 {
    type Layout = NibblesAndBits;
    type Scales = Singles<f16>;
    type Steps = Whole;
    const ZERO_BITS: u32 = 4;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        split_nibbles_and_bits(&block::<22>(row, index)[2..])
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        Group::scaled(half_at(block::<22>(row, index), 0))
    }
}

impl Coded for Q5_1 {
    type Layout = NibblesAndBits;
    type Scales = Pairs<f16>;
    type Steps = WholeWithOffset;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        split_nibbles_and_bits(&block::<24>(row, index)[4..])
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let block = block::<24>(row, index);
        Group::affine(half_at(block, 0), half_at(block, 2))
    }
}

impl Coded for Q8_0 {
    type Layout = Bytes;
    type Scales = Singles<f16>;
    type Steps = Whole;
    const ZERO_BITS: u32 = 7;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        let bytes = block::<34>(row, index);
        // Adding 128 to a signed byte flips its top bit.
        std::array::from_fn(|k| bytes[2 + k] ^ 128)
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        Group::scaled(half_at(block::<34>(row, index), 0))
    }
}

impl Coded for Iq4Nl {
    type Layout = Levels;
    type Scales = Singles<f16>;
    type Steps = Whole;
    const ZERO_BITS: u32 = 7;
    const LEVELS: Option<&'static [u8; 16]> = Some(&IQ4_LEVELS);

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        split_nibbles(&block::<18>(row, index)[2..])
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        Group::scaled(half_at(block::<18>(row, index), 0))
    }
}

impl Coded for Mxfp4 {
    type Layout = Levels;
    type Scales = Singles<bf16>;
    type Steps = Whole;
    const ZERO_BITS: u32 = 4;
    const LEVELS: Option<&'static [u8; 16]> = Some(&E2M1_LEVELS);

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        split_nibbles(&block::<17>(row, index)[1..])
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        Group::scaled(half_power(block::<17>(row, index)[0]))
    }
}
