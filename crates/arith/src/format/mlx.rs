//! MLX's formats: codes in one little-endian bit stream per row, scales (and biases) in tensors of their own.
//!
//! The value of an affine weight is `scale * code + bias` in binary32, product and sum each rounded, whatever type the
//! scales are stored in. MLX itself rounds to the stored type when it dequantizes bfloat16 or binary16 matrices, but not
//! when it multiplies by them, so its products are products of these values. Nor does it round rows, so rows bring their
//! fine part to these formats.

use super::coded::{BLOCK, Coded, Group, Row};
use super::ggml::{E2M1_LEVELS, half_power};
use crate::matrix::layout::{CodeLayout, FineWhole, FineWholeWithOffset, Levels, Pairs, Singles, Stored};
use half::bf16;
use std::marker::PhantomData;

/// Affine codes of `BITS` bits, scales and biases stored as `S`.
pub(crate) struct Affine<const BITS: usize, C, S>(PhantomData<(C, S)>);

/// E2M1 nibbles with an E8M0 scale per 32 columns.
pub(crate) struct Mxfp4;

/// Codes of `BITS` bits from the bit stream `stream` of one block.
fn bit_stream<const BITS: usize>(stream: &[u8]) -> [u8; BLOCK] {
    // Eight codes fill exactly BITS bytes.
    let mut codes = [0; BLOCK];
    for (bytes, codes) in stream.chunks_exact(BITS).zip(codes.chunks_exact_mut(8)) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        for (k, code) in codes.iter_mut().enumerate() {
            *code = (word >> (BITS * k)) as u8 & (255 >> (8 - BITS));
        }
    }
    codes
}

fn block<const BITS: usize>(row: Row<'_>, index: usize) -> &[u8] {
    &row.data[4 * BITS * index..4 * BITS * (index + 1)]
}

impl<const BITS: usize, C: CodeLayout, S: Stored> Coded for Affine<BITS, C, S> {
    type Layout = C;
    type Scales = Pairs<S>;
    type Steps = FineWholeWithOffset;

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        bit_stream::<BITS>(block::<BITS>(row, index))
    }
    fn group(row: Row<'_>, step: usize) -> Group {
        let entry = step >> row.wide;
        Group::affine(S::read(row.scales, entry), S::read(row.biases, entry))
    }
}

impl Coded for Mxfp4 {
    type Layout = Levels;
    type Scales = Singles<bf16>;
    type Steps = FineWhole;
    const ZERO_BITS: u32 = 4;
    const LEVELS: Option<&'static [u8; 16]> = Some(&E2M1_LEVELS);

    fn codes(row: Row<'_>, index: usize) -> [u8; BLOCK] {
        bit_stream::<4>(block::<4>(row, index))
    }
    fn group(row: Row<'_>, step: usize) -> Group {
        Group::scaled(half_power(row.scales[step]))
    }
}
