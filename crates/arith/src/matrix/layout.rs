//! How packed panels keep codes and scales. A panel is sixteen outputs; within it everything goes in column order, so a
//! product reads its two parts from front to back.
//!
//! Codes of 32 columns make eight *lines* of [`LINE`] bytes, stored as bit planes (`bit_planes.rs`). Odd widths are sums of planes, the low bits first: 3 = 2 + 1, 5 = 4 + 1, 6 = 4 + 2.

use super::bit_planes::{
    bit, bit_line, crumb, crumb_line, four_codes, nibble, nibble_line, outputs_of, stored_byte, stored_line,
    write_bits, write_crumbs, write_nibbles,
};
use crate::format::{BLOCK, Group};
use crate::lanes::{LANES, LINE, Lanes};
use half::{bf16, f16};
use std::marker::PhantomData;

/// Lines of one block: 32 columns, four a line.
pub(crate) const LINES: usize = BLOCK / 4;

/// Storage of the codes of one block of 32 columns of a panel.
pub(crate) trait CodeLayout {
    /// Bytes of a block, whole lines.
    const BYTES: usize;

    /// Stores `codes[output][column]` in `block`, which holds zeros.
    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]);

    /// The stored code of column `column` of output `output`.
    fn code(block: &[u8], output: usize, column: usize) -> u8;

    /// `q` of columns `4 line .. 4 line + 4`. Formats whose codes are indices give their `levels`.
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, levels: &[u8; 16]) -> L::Codes;
}

/// Codes of 8 bits.
pub(crate) struct Bytes;

impl CodeLayout for Bytes {
    const BYTES: usize = 8 * LINE;

    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
        for line in 0..LINES {
            for (to, codes) in outputs_of(block, line).iter_mut().zip(codes) {
                *to = four_codes(codes, line).to_le_bytes();
            }
        }
    }
    fn code(block: &[u8], output: usize, column: usize) -> u8 {
        stored_byte(block, column / 4, output, column)
    }
    #[inline(always)]
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, _: &[u8; 16]) -> L::Codes {
        lanes.load_codes(stored_line(block, line))
    }
}

/// Codes of 2 bits.
pub(crate) struct Crumbs;

impl CodeLayout for Crumbs {
    const BYTES: usize = 2 * LINE;

    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
        write_crumbs(codes, 0, block);
    }
    fn code(block: &[u8], output: usize, column: usize) -> u8 {
        crumb(block, output, column)
    }
    #[inline(always)]
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, _: &[u8; 16]) -> L::Codes {
        crumb_line(lanes, block, line, 0)
    }
}

/// Codes of 3 bits.
pub(crate) struct CrumbsAndBits;

impl CodeLayout for CrumbsAndBits {
    const BYTES: usize = 3 * LINE;

    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
        let (crumbs, bits) = block.split_at_mut(2 * LINE);
        write_crumbs(codes, 0, crumbs);
        write_bits(codes, 2, bits);
    }
    fn code(block: &[u8], output: usize, column: usize) -> u8 {
        let (crumbs, bits) = block.split_at(2 * LINE);
        crumb(crumbs, output, column) | bit(bits, output, column) << 2
    }
    #[inline(always)]
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, _: &[u8; 16]) -> L::Codes {
        let (crumbs, bits) = block.split_at(2 * LINE);
        lanes.or_codes(crumb_line(lanes, crumbs, line, 0), bit_line(lanes, bits, line, 4))
    }
}

/// Codes of 4 bits.
pub(crate) struct Nibbles;

impl CodeLayout for Nibbles {
    const BYTES: usize = 4 * LINE;

    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
        write_nibbles(codes, block);
    }
    fn code(block: &[u8], output: usize, column: usize) -> u8 {
        nibble(block, output, column)
    }
    #[inline(always)]
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, _: &[u8; 16]) -> L::Codes {
        nibble_line(lanes, block, line)
    }
}

/// Codes of 4 bits that are indices of levels.
pub(crate) struct Levels;

impl CodeLayout for Levels {
    const BYTES: usize = Nibbles::BYTES;

    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
        write_nibbles(codes, block);
    }
    fn code(block: &[u8], output: usize, column: usize) -> u8 {
        nibble(block, output, column)
    }
    #[inline(always)]
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, levels: &[u8; 16]) -> L::Codes {
        lanes.lookup(levels, nibble_line(lanes, block, line))
    }
}

/// Codes of 5 bits.
pub(crate) struct NibblesAndBits;

impl CodeLayout for NibblesAndBits {
    const BYTES: usize = 5 * LINE;

    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
        let (nibbles, bits) = block.split_at_mut(4 * LINE);
        write_nibbles(codes, nibbles);
        write_bits(codes, 4, bits);
    }
    fn code(block: &[u8], output: usize, column: usize) -> u8 {
        let (nibbles, bits) = block.split_at(4 * LINE);
        nibble(nibbles, output, column) | bit(bits, output, column) << 4
    }
    #[inline(always)]
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, _: &[u8; 16]) -> L::Codes {
        let (nibbles, bits) = block.split_at(4 * LINE);
        lanes.or_codes(nibble_line(lanes, nibbles, line), bit_line(lanes, bits, line, 16))
    }
}

/// Codes of 6 bits.
pub(crate) struct NibblesAndCrumbs;

impl CodeLayout for NibblesAndCrumbs {
    const BYTES: usize = 6 * LINE;

    fn write(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
        let (nibbles, crumbs) = block.split_at_mut(4 * LINE);
        write_nibbles(codes, nibbles);
        write_crumbs(codes, 4, crumbs);
    }
    fn code(block: &[u8], output: usize, column: usize) -> u8 {
        let (nibbles, crumbs) = block.split_at(4 * LINE);
        nibble(nibbles, output, column) | crumb(crumbs, output, column) << 4
    }
    #[inline(always)]
    fn line<L: Lanes>(lanes: L, block: &[u8], line: usize, _: &[u8; 16]) -> L::Codes {
        let (nibbles, crumbs) = block.split_at(4 * LINE);
        lanes.or_codes(nibble_line(lanes, nibbles, line), crumb_line(lanes, crumbs, line, 4))
    }
}

/// How a product goes through the columns. Each step is one exact integer sum per output.
pub(crate) trait Steps {
    /// Columns of a step: 32, or 16 where groups have 16 columns.
    const COLUMNS: usize;
    /// Steps of a block of 32 columns.
    const PER_BLOCK: usize = BLOCK / Self::COLUMNS;
    /// Whether groups have offsets.
    const OFFSETS: bool;
    /// Whether rows bring their fine part along. Only with steps of 32 columns.
    const FINE: bool = false;
}

/// Steps of 32 columns.
pub(crate) struct Whole;
/// Steps of 32 columns with offsets.
pub(crate) struct WholeWithOffset;
/// Steps of 32 columns, rows with their fine part.
pub(crate) struct FineWhole;
/// Steps of 32 columns with offsets, rows with their fine part.
pub(crate) struct FineWholeWithOffset;
/// Steps of 16 columns.
pub(crate) struct Halves;
/// Steps of 16 columns with offsets.
pub(crate) struct HalvesWithOffset;

impl Steps for Whole {
    const COLUMNS: usize = 32;
    const OFFSETS: bool = false;
}

impl Steps for WholeWithOffset {
    const COLUMNS: usize = 32;
    const OFFSETS: bool = true;
}

impl Steps for FineWhole {
    const COLUMNS: usize = 32;
    const OFFSETS: bool = false;
    const FINE: bool = true;
}

impl Steps for FineWholeWithOffset {
    const COLUMNS: usize = 32;
    const OFFSETS: bool = true;
    const FINE: bool = true;
}

impl Steps for Halves {
    const COLUMNS: usize = 16;
    const OFFSETS: bool = false;
}

impl Steps for HalvesWithOffset {
    const COLUMNS: usize = 16;
    const OFFSETS: bool = true;
}

/// A float type as checkpoints and panels store it.
pub(crate) trait Stored {
    /// Bytes of an element.
    const BYTES: usize;
    /// Element `index` of `bytes`, widened.
    fn read(bytes: &[u8], index: usize) -> f32;
    /// Writes `value`, which came from this type, to element `index`.
    fn write(value: f32, bytes: &mut [u8], index: usize);
    /// Elements `16 index .. 16 index + 16`, widened.
    fn load<L: Lanes>(lanes: L, bytes: &[u8], index: usize) -> L::Float;
}

impl Stored for f32 {
    const BYTES: usize = 4;

    fn read(bytes: &[u8], index: usize) -> f32 {
        Self::from_le_bytes(bytes[4 * index..4 * index + 4].try_into().expect("a slice of four bytes"))
    }
    fn write(value: f32, bytes: &mut [u8], index: usize) {
        bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
    }
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, bytes: &[u8], index: usize) -> L::Float {
        let bytes: &[u8; 64] = bytes[64 * index..64 * (index + 1)].try_into().expect("a slice of 64 bytes");
        lanes.load(&std::array::from_fn(|l| {
            Self::from_le_bytes([bytes[4 * l], bytes[4 * l + 1], bytes[4 * l + 2], bytes[4 * l + 3]])
        }))
    }
}

/// The sixteen little-endian `u16` at `16 index`.
#[inline(always)]
fn sixteen_halves(bytes: &[u8], index: usize) -> [u16; LANES] {
    let bytes: &[u8; 32] = bytes[32 * index..32 * (index + 1)].try_into().expect("a slice of 32 bytes");
    std::array::from_fn(|l| u16::from_le_bytes([bytes[2 * l], bytes[2 * l + 1]]))
}

impl Stored for f16 {
    const BYTES: usize = 2;

    fn read(bytes: &[u8], index: usize) -> f32 {
        Self::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
    }
    fn write(value: f32, bytes: &mut [u8], index: usize) {
        bytes[2 * index..2 * index + 2].copy_from_slice(&Self::from_f32(value).to_le_bytes());
    }
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, bytes: &[u8], index: usize) -> L::Float {
        lanes.load_f16(&sixteen_halves(bytes, index))
    }
}

impl Stored for bf16 {
    const BYTES: usize = 2;

    fn read(bytes: &[u8], index: usize) -> f32 {
        Self::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]).to_f32()
    }
    fn write(value: f32, bytes: &mut [u8], index: usize) {
        bytes[2 * index..2 * index + 2].copy_from_slice(&Self::from_f32(value).to_le_bytes());
    }
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, bytes: &[u8], index: usize) -> L::Float {
        lanes.load_bf16(&sixteen_halves(bytes, index))
    }
}

/// Storage of the scales and offsets of a panel.
pub(crate) trait ScaleLayout {
    /// Bytes for `groups` groups per output.
    fn bytes(groups: usize) -> usize;

    /// Stores group `index` of output `output`.
    fn write(group: Group, scales: &mut [u8], index: usize, output: usize);

    /// The scales of group `index`.
    fn scale<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float;

    /// The offsets of group `index`.
    fn offset<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float;
}

/// A scale per group.
pub(crate) struct Singles<S>(PhantomData<S>);

impl<S: Stored> ScaleLayout for Singles<S> {
    fn bytes(groups: usize) -> usize {
        LANES * S::BYTES * groups
    }
    fn write(group: Group, scales: &mut [u8], index: usize, output: usize) {
        S::write(group.scale, scales, LANES * index + output);
    }
    #[inline(always)]
    fn scale<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float {
        S::load(lanes, scales, index)
    }
    #[inline(always)]
    fn offset<L: Lanes>(lanes: L, _: &[u8], _: usize) -> L::Float {
        lanes.splat(0.0)
    }
}

/// A scale and an offset per group.
pub(crate) struct Pairs<S>(PhantomData<S>);

impl<S: Stored> ScaleLayout for Pairs<S> {
    fn bytes(groups: usize) -> usize {
        2 * LANES * S::BYTES * groups
    }
    fn write(group: Group, scales: &mut [u8], index: usize, output: usize) {
        S::write(group.scale, scales, LANES * (2 * index) + output);
        S::write(group.offset, scales, LANES * (2 * index + 1) + output);
    }
    #[inline(always)]
    fn scale<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float {
        S::load(lanes, scales, 2 * index)
    }
    #[inline(always)]
    fn offset<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float {
        S::load(lanes, scales, 2 * index + 1)
    }
}

/// Sixteen binary16 numbers, in bytes.
const HALVES: usize = 2 * LANES;

#[inline(always)]
fn sixteen_bytes(bytes: &[u8], index: usize) -> [i8; LANES] {
    let bytes: &[u8; LANES] =
        bytes[LANES * index..LANES * (index + 1)].try_into().expect("a slice of sixteen bytes");
    bytes.map(|byte| byte as i8)
}

/// Super-blocks of `N` groups: a scale, then an integer factor per group.
pub(crate) struct SuperScales<const N: usize>;

impl<const N: usize> SuperScales<N> {
    const BYTES: usize = HALVES + LANES * N;
}

impl<const N: usize> ScaleLayout for SuperScales<N> {
    fn bytes(groups: usize) -> usize {
        Self::BYTES * groups.div_ceil(N)
    }
    fn write(group: Group, scales: &mut [u8], index: usize, output: usize) {
        let block = &mut scales[Self::BYTES * (index / N)..][..Self::BYTES];
        f16::write(group.scale, block, output);
        block[HALVES + LANES * (index % N) + output] = group.scale_factor as u8;
    }
    #[inline(always)]
    fn scale<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float {
        let block = &scales[Self::BYTES * (index / N)..][..Self::BYTES];
        let factors = sixteen_bytes(&block[HALVES..], index % N);
        lanes.mul(f16::load(lanes, block, 0), lanes.load_i8(&factors))
    }
    #[inline(always)]
    fn offset<L: Lanes>(lanes: L, _: &[u8], _: usize) -> L::Float {
        lanes.splat(0.0)
    }
}

/// Super-blocks of `N` groups: a scale and an offset, then an integer factor of each per group.
pub(crate) struct SuperPairs<const N: usize>;

impl<const N: usize> SuperPairs<N> {
    const BYTES: usize = 2 * HALVES + 2 * LANES * N;
}

impl<const N: usize> ScaleLayout for SuperPairs<N> {
    fn bytes(groups: usize) -> usize {
        Self::BYTES * groups.div_ceil(N)
    }
    fn write(group: Group, scales: &mut [u8], index: usize, output: usize) {
        let block = &mut scales[Self::BYTES * (index / N)..][..Self::BYTES];
        f16::write(group.scale, block, output);
        f16::write(group.offset, block, LANES + output);
        let factors = &mut block[2 * HALVES + 2 * LANES * (index % N)..][..2 * LANES];
        factors[output] = group.scale_factor as u8;
        factors[LANES + output] = group.offset_factor as u8;
    }
    #[inline(always)]
    fn scale<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float {
        let block = &scales[Self::BYTES * (index / N)..][..Self::BYTES];
        let factors = sixteen_bytes(&block[2 * HALVES..], 2 * (index % N));
        lanes.mul(f16::load(lanes, block, 0), lanes.load_i8(&factors))
    }
    #[inline(always)]
    fn offset<L: Lanes>(lanes: L, scales: &[u8], index: usize) -> L::Float {
        let block = &scales[Self::BYTES * (index / N)..][..Self::BYTES];
        let factors = sixteen_bytes(&block[2 * HALVES..], 2 * (index % N) + 1);
        lanes.mul(f16::load(lanes, block, 1), lanes.load_i8(&factors))
    }
}
