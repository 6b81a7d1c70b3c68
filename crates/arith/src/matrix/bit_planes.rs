//! Bit planes: how the codes of 32 columns and sixteen outputs lie in lines of [`LINE`] bytes.
//!
//! * nibbles: stored line `i` of four holds line `i` in its low and line `i + 4` in its high halves;
//! * crumbs: stored line `i` of two holds lines `i`, `i + 2`, `i + 4`, `i + 6`, two bits each from the lowest;
//! * bits: eight bytes per line, bit `j` for byte `j`.

use super::layout::LINES;
use crate::format::BLOCK;
use crate::lanes::{LANES, LINE, Lanes};

#[inline(always)]
pub(super) fn stored_line(block: &[u8], line: usize) -> &[u8; LINE] {
    block[LINE * line..LINE * (line + 1)].try_into().expect("a slice of one line")
}

/// Columns `4 line .. 4 line + 4` of one output, as they lie in a line.
pub(super) fn four_codes(codes: &[u8; BLOCK], line: usize) -> u32 {
    u32::from_le_bytes([codes[4 * line], codes[4 * line + 1], codes[4 * line + 2], codes[4 * line + 3]])
}

/// The four bytes of every output in stored line `line`.
pub(super) fn outputs_of(block: &mut [u8], line: usize) -> &mut [[u8; 4]; LANES] {
    let (outputs, _) = block[LINE * line..LINE * (line + 1)].as_chunks_mut();
    outputs.try_into().expect("a line has four bytes an output")
}

/// The byte of column `column` of output `output` in stored line `line`.
pub(super) fn stored_byte(block: &[u8], line: usize, output: usize, column: usize) -> u8 {
    block[LINE * line + 4 * output + column % 4]
}

/// Every byte of `bytes` masked to its `width` bits from bit `from`.
fn bits_of_each(bytes: u32, from: u32, width: u32) -> u32 {
    (bytes >> from) & (0x0101_0101 * ((1 << width) - 1))
}

/// The lowest four bits of every code.
pub(super) fn write_nibbles(codes: &[[u8; BLOCK]; LANES], block: &mut [u8]) {
    for line in 0..LINES / 2 {
        for (to, codes) in outputs_of(block, line).iter_mut().zip(codes) {
            let low = bits_of_each(four_codes(codes, line), 0, 4);
            let high = bits_of_each(four_codes(codes, line + LINES / 2), 0, 4);
            *to = (low | high << 4).to_le_bytes();
        }
    }
}

pub(super) fn nibble(block: &[u8], output: usize, column: usize) -> u8 {
    let line = column / 4;
    (stored_byte(block, line % 4, output, column) >> (4 * (line / 4))) & 15
}

/// Two bits of every code, from bit `from`.
pub(super) fn write_crumbs(codes: &[[u8; BLOCK]; LANES], from: u32, block: &mut [u8]) {
    for line in 0..LINES / 4 {
        for (to, codes) in outputs_of(block, line).iter_mut().zip(codes) {
            let mut crumbs = 0;
            for part in 0..4 {
                crumbs |= bits_of_each(four_codes(codes, line + 2 * part), from, 2) << (2 * part);
            }
            *to = crumbs.to_le_bytes();
        }
    }
}

pub(super) fn crumb(block: &[u8], output: usize, column: usize) -> u8 {
    let line = column / 4;
    (stored_byte(block, line % 2, output, column) >> (2 * (line / 2))) & 3
}

/// Bit `from` of every code.
pub(super) fn write_bits(codes: &[[u8; BLOCK]; LANES], from: u32, block: &mut [u8]) {
    for (line, block) in block.chunks_exact_mut(LANES / 2).enumerate().take(LINES) {
        for (to, codes) in block.iter_mut().zip(codes.as_chunks::<2>().0) {
            // The product moves the lowest bits of the four bytes next to each other.
            let four_bits = |codes: &[u8; BLOCK]| {
                (bits_of_each(four_codes(codes, line), from, 1).wrapping_mul(0x0102_0408) >> 24) as u8 & 15
            };
            *to = four_bits(&codes[0]) | four_bits(&codes[1]) << 4;
        }
    }
}

pub(super) fn bit(block: &[u8], output: usize, column: usize) -> u8 {
    let (line, bit) = (column / 4, 4 * output + column % 4);
    (block[8 * line + bit / 8] >> (bit % 8)) & 1
}

#[inline(always)]
pub(super) fn nibble_line<L: Lanes>(lanes: L, block: &[u8], line: usize) -> L::Codes {
    let stored = lanes.load_codes(stored_line(block, line % 4));
    if line < 4 { lanes.low_nibbles(stored) } else { lanes.high_nibbles(stored) }
}

/// Crumbs moved up by `up` bits.
#[inline(always)]
pub(super) fn crumb_line<L: Lanes>(lanes: L, block: &[u8], line: usize, up: u32) -> L::Codes {
    lanes.crumbs(lanes.load_codes(stored_line(block, line % 2)), (line / 2) as u32, up)
}

/// Bits as bytes of 0 and `value`.
#[inline(always)]
pub(super) fn bit_line<L: Lanes>(lanes: L, block: &[u8], line: usize, value: u8) -> L::Codes {
    let bits = block[8 * line..8 * (line + 1)].try_into().expect("a slice of eight bytes");
    lanes.expand_bits(bits, value)
}
