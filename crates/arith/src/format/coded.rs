//! Integer-coded formats as one idea: unsigned codes in groups of columns, each group with a scale and either a zero
//! point common to the format or an offset of its own (PLAN.md section 3).
//!
//! A format says how to read this from a checkpoint's bytes ([`Coded::codes`], [`Coded::group`]) and how a packed matrix
//! keeps it ([`Coded::Layout`], [`Coded::Scales`]); dequantization, packing and the product kernels are written once.

use super::{Encoded, FloatType, Format, ggml, kquant, mlx};
use crate::matrix::layout::{self, CodeLayout, ScaleLayout, Steps};

/// Columns that are read, packed and multiplied together.
pub(crate) const BLOCK: usize = 32;

/// One row (output) of an encoded matrix.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// Its blocks.
    pub(crate) data: &'a [u8],
    /// Its entries of the separate scale tensor, empty where there is none.
    pub(crate) scales: &'a [u8],
    /// Its entries of the separate bias tensor, empty where there is none.
    pub(crate) biases: &'a [u8],
    /// log2 of the steps that share an entry of those tensors.
    pub(crate) wide: u32,
}

impl<'a> Encoded<'a> {
    /// The bytes of row `row`.
    pub(crate) fn row(&self, row: usize) -> Row<'a> {
        let part = |bytes: &'a [u8]| {
            let length = bytes.len() / self.rows.max(1);
            &bytes[row * length..(row + 1) * length]
        };
        Row {
            data: part(self.data),
            scales: part(self.scales),
            biases: part(self.biases),
            wide: self.format.wide(),
        }
    }
}

/// Scale and offset of one group. Every product below is exact in binary32.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// The stored scale; for K-quants that of the super-block.
    pub(crate) scale: f32,
    /// The group's integer factor of `scale`: 1 where the format has none.
    pub(crate) scale_factor: i8,
    /// The stored offset; for K-quants the negated minimum of the super-block.
    pub(crate) offset: f32,
    /// The group's integer factor of `offset`: 1 where the format has none.
    pub(crate) offset_factor: i8,
}

impl Group {
    /// A group with a scale alone.
    pub(crate) fn scaled(scale: f32) -> Self {
        Self::affine(scale, 0.0)
    }

    /// A group with a scale and an offset of its own.
    pub(crate) fn affine(scale: f32, offset: f32) -> Self {
        Self { scale, scale_factor: 1, offset, offset_factor: 1 }
    }

    fn weight_scale(self) -> f32 {
        self.scale * f32::from(self.scale_factor)
    }

    fn weight_offset(self) -> f32 {
        self.offset * f32::from(self.offset_factor)
    }
}

/// An integer-coded format: `w = a (q - z)`, or `w = a q + b` where the format has offsets.
pub(crate) trait Coded {
    /// How a packed matrix keeps the codes.
    type Layout: CodeLayout;
    /// How a packed matrix keeps scales and offsets.
    type Scales: ScaleLayout;
    /// The steps of its products.
    type Steps: Steps;
    /// log2 of the zero point `z`. Not used where groups have offsets.
    const ZERO_BITS: u32 = 0;
    /// `q` of every stored code, where codes are indices of levels.
    const LEVELS: Option<&'static [u8; 16]> = None;

    /// The stored codes of columns `32 block .. 32 block + 32`.
    fn codes(row: Row<'_>, block: usize) -> [u8; BLOCK];

    /// The group that step `step` of the row belongs to.
    fn group(row: Row<'_>, step: usize) -> Group;
}

/// The value of a weight with stored code `code`, in a group of this scale and offset.
pub(crate) fn weight<F: Coded>(code: u8, scale: f32, offset: f32) -> f32 {
    let q = F::LEVELS.map_or(code, |levels| levels[usize::from(code)]);
    if F::Steps::OFFSETS {
        scale * f32::from(q) + offset
    } else {
        scale * f32::from(i16::from(q) - (1 << F::ZERO_BITS))
    }
}

/// Code generic over the integer-coded format.
pub(crate) trait CodedVisitor {
    /// What it returns.
    type Output;
    /// The code.
    fn visit<F: Coded>(self) -> Self::Output;
}

impl Format {
    /// log2 of the 32-column steps in one group: above 0 for MLX's groups of 64 and 128.
    pub(crate) fn wide(self) -> u32 {
        match self {
            Self::MlxAffine { group, .. } => (usize::from(group) / BLOCK).ilog2(),
            _ => 0,
        }
    }

    /// Runs `visitor` for this format; `None` for plain floats.
    pub(crate) fn visit_coded<V: CodedVisitor>(self, visitor: V) -> Option<V::Output> {
        Some(match self {
            Self::Float(_) => return None,
            Self::Q4_0 => visitor.visit::<ggml::Q4_0>(),
            Self::Q4_1 => visitor.visit::<ggml::Q4_1>(),
            Self::Q5_0 => visitor.visit::<ggml::Q5_0>(),
            Self::Q5_1 => visitor.visit::<ggml::Q5_1>(),
            Self::Q8_0 => visitor.visit::<ggml::Q8_0>(),
            Self::Q2K => visitor.visit::<kquant::Q2K>(),
            Self::Q3K => visitor.visit::<kquant::Q3K>(),
            Self::Q4K => visitor.visit::<kquant::Q4K>(),
            Self::Q5K => visitor.visit::<kquant::Q5K>(),
            Self::Q6K => visitor.visit::<kquant::Q6K>(),
            Self::Iq4Nl => visitor.visit::<ggml::Iq4Nl>(),
            Self::Iq4Xs => visitor.visit::<kquant::Iq4Xs>(),
            Self::Mxfp4 => visitor.visit::<ggml::Mxfp4>(),
            Self::MlxAffine { bits, scale, .. } => return visit_affine(bits, scale, visitor),
            Self::MlxMxfp4 => visitor.visit::<mlx::Mxfp4>(),
        })
    }
}

/// `Encoded` lets no other widths pass, so `None` never reaches a caller.
fn visit_affine<V: CodedVisitor>(bits: u8, scale: FloatType, visitor: V) -> Option<V::Output> {
    match bits {
        2 => Some(visit_affine_scale::<2, layout::Crumbs, V>(scale, visitor)),
        3 => Some(visit_affine_scale::<3, layout::CrumbsAndBits, V>(scale, visitor)),
        4 => Some(visit_affine_scale::<4, layout::Nibbles, V>(scale, visitor)),
        5 => Some(visit_affine_scale::<5, layout::NibblesAndBits, V>(scale, visitor)),
        6 => Some(visit_affine_scale::<6, layout::NibblesAndCrumbs, V>(scale, visitor)),
        8 => Some(visit_affine_scale::<8, layout::Bytes, V>(scale, visitor)),
        _ => None,
    }
}

fn visit_affine_scale<const BITS: usize, C: CodeLayout, V: CodedVisitor>(
    scale: FloatType,
    visitor: V,
) -> V::Output {
    match scale {
        FloatType::F32 => visitor.visit::<mlx::Affine<BITS, C, f32>>(),
        FloatType::F16 => visitor.visit::<mlx::Affine<BITS, C, half::f16>>(),
        FloatType::Bf16 => visitor.visit::<mlx::Affine<BITS, C, half::bf16>>(),
    }
}

/// Writes the values of one row of an integer-coded matrix.
pub(super) struct Dequantize<'a, 'o> {
    pub(super) row: Row<'a>,
    pub(super) out: &'o mut [f32],
}

impl CodedVisitor for Dequantize<'_, '_> {
    type Output = ();

    fn visit<F: Coded>(self) {
        for (block, out) in self.out.chunks_exact_mut(BLOCK).enumerate() {
            let codes = F::codes(self.row, block);
            for (i, (out, codes)) in
                out.chunks_exact_mut(F::Steps::COLUMNS).zip(codes.chunks_exact(F::Steps::COLUMNS)).enumerate()
            {
                let group = F::group(self.row, BLOCK / F::Steps::COLUMNS * block + i);
                let (scale, offset) = (group.weight_scale(), group.weight_offset());
                for (out, &code) in out.iter_mut().zip(codes) {
                    *out = weight::<F>(code, scale, offset);
                }
            }
        }
    }
}
