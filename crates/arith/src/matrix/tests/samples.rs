//! Random matrices of every format.

use crate::format::{Encoded, FloatType, Format};
use crate::vectors::Random;
use half::{bf16, f16};

/// Every format, the MLX ones in every width, group and scale type.
pub(super) fn formats() -> Vec<Format> {
    use Format::*;
    let mut formats =
        vec![Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Iq4Xs, Mxfp4, MlxMxfp4];
    let floats = [FloatType::F32, FloatType::F16, FloatType::Bf16];
    formats.extend(floats.map(Float));
    for bits in [2, 3, 4, 5, 6, 8] {
        for (scale, group) in floats.into_iter().zip([32, 64, 128]) {
            formats.push(MlxAffine { bits, group, scale });
            formats.push(MlxAffine { bits, group: 64, scale });
        }
    }
    formats
}

/// Columns that a row of `format` is a multiple of.
pub(super) fn column_unit(format: Format) -> usize {
    let block = format.block().0;
    format.separate_scale().map_or(block, |(group, _)| group.max(block))
}

/// An encoded matrix that owns its bytes.
pub(super) struct Sample {
    format: Format,
    rows: usize,
    columns: usize,
    data: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Sample {
    /// Random codes under scales of ordinary size, of both signs.
    pub(super) fn new(random: &mut Random, format: Format, rows: usize, columns: usize) -> Self {
        let (elements, bytes) = format.block();
        let mut data = random.bytes(rows * columns / elements * bytes);
        let halves: &[usize] = match format {
            Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::Iq4Nl | Format::Iq4Xs => &[0],
            Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
            Format::Q2K => &[80, 82],
            Format::Q3K => &[108],
            Format::Q6K => &[208],
            _ => &[],
        };
        for block in data.chunks_exact_mut(bytes) {
            for &at in halves {
                block[at..at + 2].copy_from_slice(&f16::from_f32(0.02 * random.signed()).to_le_bytes());
            }
            match format {
                Format::Mxfp4 => block[0] = 110 + random.below(20) as u8,
                Format::Float(float) => block.copy_from_slice(&float_bytes(float, random.signed())),
                _ => {}
            }
        }
        let separate = format.separate_scale().map_or(0, |(group, _)| rows * columns / group);
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        for _ in 0..separate {
            match format {
                Format::MlxAffine { scale, .. } => {
                    scales.extend(float_bytes(scale, 0.02 * random.signed()));
                    biases.extend(float_bytes(scale, random.signed()));
                }
                _ => scales.push(110 + random.below(20) as u8),
            }
        }
        Self { format, rows, columns, data, scales, biases }
    }

    /// The view that [`crate::Matrix::pack`] takes.
    pub(super) fn encoded(&self) -> Encoded<'_> {
        Encoded::with_scales(self.format, self.rows, self.columns, &self.data, &self.scales, &self.biases)
            .unwrap()
    }
}

fn float_bytes(float: FloatType, value: f32) -> Vec<u8> {
    match float {
        FloatType::F32 => value.to_le_bytes().to_vec(),
        FloatType::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
        FloatType::Bf16 => bf16::from_f32(value).to_le_bytes().to_vec(),
    }
}
