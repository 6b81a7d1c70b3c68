//! ggml's K-quants (and `IQ4_XS`): super-blocks of 256 columns, a binary16 scale times a small integer per group.

use super::coded::{BLOCK, Coded, Group, Row};
use super::ggml::{IQ4_LEVELS, half_at, split_nibbles};
use crate::matrix::layout::{
    Crumbs, CrumbsAndBits, Halves, HalvesWithOffset, Levels, Nibbles, NibblesAndBits, NibblesAndCrumbs,
    SuperPairs, SuperScales, Whole, WholeWithOffset,
};

/// `Q2_K`.
pub(crate) struct Q2K;
/// `Q3_K`.
pub(crate) struct Q3K;
/// `Q4_K`.
pub(crate) struct Q4K;
/// `Q5_K`.
pub(crate) struct Q5K;
/// `Q6_K`.
pub(crate) struct Q6K;
/// `IQ4_XS`.
pub(crate) struct Iq4Xs;

/// The super-block of `BYTES` that holds piece `index` (a block or a group) of `pieces` per super-block, and the
/// piece's place in it.
fn locate<'a, const BYTES: usize>(row: Row<'a>, index: usize, pieces: usize) -> (&'a [u8; BYTES], usize) {
    let start = BYTES * (index / pieces);
    let bytes = row.data[start..start + BYTES].try_into().expect("a slice of BYTES bytes");
    (bytes, index % pieces)
}

/// Two-bit codes of block `place`: four blocks share 32 bytes, each takes two bits of every byte.
fn crumbs(bytes: &[u8], place: usize) -> [u8; BLOCK] {
    let bytes: &[u8; BLOCK] = bytes[BLOCK * (place / 4)..][..BLOCK].try_into().expect("a slice of 32 bytes");
    let shift = 2 * (place % 4);
    std::array::from_fn(|k| (bytes[k] >> shift) & 3)
}

/// Four-bit codes of block `place`: two blocks share 32 bytes, the first in the low halves.
fn nibbles(bytes: &[u8], place: usize) -> [u8; BLOCK] {
    let bytes: &[u8; BLOCK] = bytes[BLOCK * (place / 2)..][..BLOCK].try_into().expect("a slice of 32 bytes");
    let shift = 4 * (place % 2);
    std::array::from_fn(|k| (bytes[k] >> shift) & 15)
}

/// The six-bit scale and minimum factors of group `place` of `Q4_K` and `Q5_K`.
fn scale_and_minimum(packed: &[u8], place: usize) -> (u8, u8) {
    if place < 4 {
        (packed[place] & 63, packed[place + 4] & 63)
    } else {
        let low = packed[place + 4];
        ((low & 15) | (packed[place - 4] >> 6) << 4, (low >> 4) | (packed[place] >> 6) << 4)
    }
}

/// A group with a scale and a minimum, which is subtracted.
fn with_minimum(scale: f32, scale_factor: u8, minimum: f32, minimum_factor: u8) -> Group {
    Group { scale, scale_factor: scale_factor as i8, offset: -minimum, offset_factor: minimum_factor as i8 }
}

fn super_scaled(scale: f32, scale_factor: i8) -> Group {
    Group { scale, scale_factor, offset: 0.0, offset_factor: 0 }
}

impl Coded for Q2K {
    type Layout = Crumbs;
    type Scales = SuperPairs<16>;
    type Steps = HalvesWithOffset;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        let (bytes, place) = locate::<84>(row, index, 8);
        crumbs(&bytes[16..80], place)
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let (bytes, place) = locate::<84>(row, index, 16);
        with_minimum(half_at(bytes, 80), bytes[place] & 15, half_at(bytes, 82), bytes[place] >> 4)
    }
}

impl Coded for Q3K {
    type Layout = CrumbsAndBits;
    type Scales = SuperScales<16>;
    type Steps = Halves;
    const ZERO_BITS: u32 = 2;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        let (bytes, place) = locate::<110>(row, index, 8);
        let mut codes = crumbs(&bytes[32..96], place);
        for (code, high) in codes.iter_mut().zip(&bytes[..32]) {
            *code |= ((high >> place) & 1) << 2;
        }
        codes
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let (bytes, place) = locate::<110>(row, index, 16);
        let packed = &bytes[96..108];
        let low = (packed[place % 8] >> (4 * (place / 8))) & 15;
        let high = (packed[8 + place % 4] >> (2 * (place / 4))) & 3;
        super_scaled(half_at(bytes, 108), (low | high << 4) as i8 - 32)
    }
}

impl Coded for Q4K {
    type Layout = Nibbles;
    type Scales = SuperPairs<8>;
    type Steps = WholeWithOffset;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        let (bytes, place) = locate::<144>(row, index, 8);
        nibbles(&bytes[16..], place)
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let (bytes, place) = locate::<144>(row, index, 8);
        let (scale, minimum) = scale_and_minimum(&bytes[4..16], place);
        with_minimum(half_at(bytes, 0), scale, half_at(bytes, 2), minimum)
    }
}

impl Coded for Q5K {
    type Layout = NibblesAndBits;
    type Scales = SuperPairs<8>;
    type Steps = WholeWithOffset;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        let (bytes, place) = locate::<176>(row, index, 8);
        let mut codes = nibbles(&bytes[48..], place);
        for (code, high) in codes.iter_mut().zip(&bytes[16..48]) {
            *code |= ((high >> place) & 1) << 4;
        }
        codes
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let (bytes, place) = locate::<176>(row, index, 8);
        let (scale, minimum) = scale_and_minimum(&bytes[4..16], place);
        with_minimum(half_at(bytes, 0), scale, half_at(bytes, 2), minimum)
    }
}

impl Coded for Q6K {
    type Layout = NibblesAndCrumbs;
    type Scales = SuperScales<16>;
    type Steps = Halves;
    const ZERO_BITS: u32 = 5;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        let (bytes, place) = locate::<210>(row, index, 8);
        // Each half of 128 columns: 64 bytes of low nibbles (blocks 0 and 1 low, 2 and 3 high), 32 of high crumbs.
        let (half, quarter) = (place / 4, place % 4);
        let low: &[u8; BLOCK] =
            bytes[64 * half + BLOCK * (quarter % 2)..][..BLOCK].try_into().expect("a slice of 32 bytes");
        let high = crumbs(&bytes[128..192], place);
        let shift = 4 * (quarter / 2);
        std::array::from_fn(|k| ((low[k] >> shift) & 15) | high[k] << 4)
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let (bytes, place) = locate::<210>(row, index, 16);
        super_scaled(half_at(bytes, 208), bytes[192 + place] as i8)
    }
}

impl Coded for Iq4Xs {
    type Layout = Levels;
    type Scales = SuperScales<8>;
    type Steps = Whole;
    const ZERO_BITS: u32 = 7;
    const LEVELS: Option<&'static [u8; 16]> = Some(&IQ4_LEVELS);

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        let (bytes, place) = locate::<136>(row, index, 8);
        split_nibbles(&bytes[8 + 16 * place..])
    }
    fn group(row: Row<'_>, index: usize) -> Group {
        let (bytes, place) = locate::<136>(row, index, 8);
        let low = (bytes[4 + place / 2] >> (4 * (place % 2))) & 15;
        let high = (u16::from_le_bytes([bytes[2], bytes[3]]) >> (2 * place)) as u8 & 3;
        super_scaled(half_at(bytes, 0), (low | high << 4) as i8 - 32)
    }
}
