//! Random matrices of every format.

use half::{bf16, f16};
use samebit_arith::{Encoded, FloatType, Format};

use crate::error::ProveError;
use crate::random::Random;

/// The plain types.
const FLOATS: [FloatType; 3] = [FloatType::F32, FloatType::F16, FloatType::Bf16];

/// Every format: in a quick run MLX's affine one in every width with some groups and scale types, else with all.
pub(super) fn formats(quick: bool) -> Vec<Format> {
    use Format::*;
    let mut formats =
        vec![Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq4Nl, Iq4Xs, Mxfp4, MlxMxfp4];
    formats.extend(FLOATS.map(Float));
    for bits in [2, 3, 4, 5, 6, 8] {
        for (index, group) in [32, 64, 128].into_iter().enumerate() {
            let some = if quick { &FLOATS[index..=index] } else { &FLOATS[..] };
            formats.extend(some.iter().map(|&scale| MlxAffine { bits, group, scale }));
        }
    }
    formats
}

/// Its name, with the type of separate scales where there is a choice.
pub(super) fn name(format: Format) -> String {
    match format {
        Format::MlxAffine { scale, .. } => format!("{format} {}", Format::Float(scale)),
        _ => format.to_string(),
    }
}

/// Columns that a row of `format` is a multiple of.
pub(super) fn column_unit(format: Format) -> usize {
    let block = format.block().0;
    format.separate_scale().map_or(block, |(group, _)| group.max(block))
}

/// An encoded matrix that owns its bytes.
pub(super) struct Weights {
    format: Format,
    rows: usize,
    columns: usize,
    data: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Weights {
    /// Random codes under scales of ordinary size, of both signs. `columns` is a multiple of [`column_unit`].
    pub(super) fn random(random: &mut Random, format: Format, rows: usize, columns: usize) -> Self {
        let (elements, bytes) = format.block();
        let mut data = random.bytes(rows * columns / elements * bytes);
        for block in data.chunks_exact_mut(bytes) {
            for &at in scale_offsets(format) {
                block[at..at + 2].copy_from_slice(&f16::from_f32(0.02 * random.signed()).to_le_bytes());
            }
            match format {
                Format::Mxfp4 => block[0] = power(random),
                Format::Float(float) => store(float, 0.1 * random.signed(), block),
                _ => {}
            }
        }
        let separate = format.separate_scale().map_or(0, |(group, _)| rows * columns / group);
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        match format {
            Format::MlxAffine { scale, .. } => {
                (scales, biases) = (vec![0; separate * scale.bytes()], vec![0; separate * scale.bytes()]);
                scales
                    .chunks_exact_mut(scale.bytes())
                    .for_each(|to| store(scale, 0.02 * random.signed(), to));
                biases.chunks_exact_mut(scale.bytes()).for_each(|to| store(scale, random.signed(), to));
            }
            _ => scales.extend((0..separate).map(|_| power(random))),
        }
        Self { format, rows, columns, data, scales, biases }
    }

    /// A matrix of `rows` outputs, which are these over and over.
    pub(super) fn repeated(&self, rows: usize) -> Self {
        let repeated = |bytes: &[u8]| {
            let length = bytes.len() / self.rows * rows;
            let mut all = Vec::with_capacity(length);
            while all.len() < length {
                all.extend_from_slice(&bytes[..bytes.len().min(length - all.len())]);
            }
            all
        };
        Self {
            format: self.format,
            rows,
            columns: self.columns,
            data: repeated(&self.data),
            scales: repeated(&self.scales),
            biases: repeated(&self.biases),
        }
    }

    /// The view that can be packed.
    pub(super) fn encoded(&self) -> Result<Encoded<'_>, ProveError> {
        Encoded::with_scales(self.format, self.rows, self.columns, &self.data, &self.scales, &self.biases)
            .map_err(|error| ProveError::Internal { reason: error.to_string() })
    }
}

/// Where the binary16 scales of a block are.
fn scale_offsets(format: Format) -> &'static [usize] {
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::Iq4Nl | Format::Iq4Xs => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4K | Format::Q5K => &[0, 2],
        Format::Q2K => &[80, 82],
        Format::Q3K => &[108],
        Format::Q6K => &[208],
        Format::Float(_) | Format::Mxfp4 | Format::MlxAffine { .. } | Format::MlxMxfp4 => &[],
    }
}

/// An E8M0 scale of ordinary size.
fn power(random: &mut Random) -> u8 {
    random.between(110, 129) as u8
}

fn store(float: FloatType, value: f32, to: &mut [u8]) {
    match float {
        FloatType::F32 => to.copy_from_slice(&value.to_le_bytes()),
        FloatType::F16 => to.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        FloatType::Bf16 => to.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
    }
}
