//! How checkpoints store matrices: the formats samebit computes with, and one borrowed view of an encoded matrix.

mod coded;
mod ggml;
mod kquant;
mod mlx;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use coded::{BLOCK, Coded, CodedVisitor, Group, Row, weight};

use half::{bf16, f16};
use std::fmt;

/// A plain floating-point storage type, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloatType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
}

impl FloatType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// How the elements of a matrix are stored. Names follow the checkpoints: ggml's block types, and MLX's modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Plain floats.
    Float(FloatType),
    /// ggml `Q4_0`: blocks of 32, `w = d (q - 8)`.
    Q4_0,
    /// ggml `Q4_1`: blocks of 32, `w = d q + m`.
    Q4_1,
    /// ggml `Q5_0`: blocks of 32, `w = d (q - 16)`.
    Q5_0,
    /// ggml `Q5_1`: blocks of 32, `w = d q + m`.
    Q5_1,
    /// ggml `Q8_0`: blocks of 32, `w = d q`.
    Q8_0,
    /// ggml `Q2_K`: super-blocks of 256 in 16 groups.
    Q2K,
    /// ggml `Q3_K`: super-blocks of 256 in 16 groups.
    Q3K,
    /// ggml `Q4_K`: super-blocks of 256 in 8 groups.
    Q4K,
    /// ggml `Q5_K`: super-blocks of 256 in 8 groups.
    Q5K,
    /// ggml `Q6_K`: super-blocks of 256 in 16 groups.
    Q6K,
    /// ggml `IQ4_NL`: blocks of 32, sixteen fixed levels.
    Iq4Nl,
    /// ggml `IQ4_XS`: super-blocks of 256, the same levels.
    Iq4Xs,
    /// ggml `MXFP4`: blocks of 32, E2M1 elements, E8M0 scale.
    Mxfp4,
    /// MLX `affine`: `w = scale code + bias`, `bits` per code in one little-endian bit stream per row.
    MlxAffine {
        /// Bits per code: 2, 3, 4, 5, 6 or 8.
        bits: u8,
        /// Elements that share a scale and a bias: 32, 64 or 128.
        group: u16,
        /// Type of scales and biases.
        scale: FloatType,
    },
    /// MLX `mxfp4`: E2M1 nibbles, one E8M0 scale per 32 elements in a tensor of its own.
    MlxMxfp4,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(FloatType::F32) => f.write_str("F32"),
            Self::Float(FloatType::F16) => f.write_str("F16"),
            Self::Float(FloatType::Bf16) => f.write_str("BF16"),
            Self::Q4_0 => f.write_str("Q4_0"),
            Self::Q4_1 => f.write_str("Q4_1"),
            Self::Q5_0 => f.write_str("Q5_0"),
            Self::Q5_1 => f.write_str("Q5_1"),
            Self::Q8_0 => f.write_str("Q8_0"),
            Self::Q2K => f.write_str("Q2_K"),
            Self::Q3K => f.write_str("Q3_K"),
            Self::Q4K => f.write_str("Q4_K"),
            Self::Q5K => f.write_str("Q5_K"),
            Self::Q6K => f.write_str("Q6_K"),
            Self::Iq4Nl => f.write_str("IQ4_NL"),
            Self::Iq4Xs => f.write_str("IQ4_XS"),
            Self::Mxfp4 => f.write_str("MXFP4"),
            Self::MlxAffine { bits, group, .. } => write!(f, "MLX affine {bits}-bit g{group}"),
            Self::MlxMxfp4 => f.write_str("MLX mxfp4"),
        }
    }
}

impl Format {
    /// `(elements, bytes)` of one block of `data`: rows are whole blocks, blocks are stored one after the other.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Self::Float(float) => (1, float.bytes()),
            Self::Q4_0 | Self::Iq4Nl => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2K => (256, 84),
            Self::Q3K => (256, 110),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
            Self::Iq4Xs => (256, 136),
            Self::Mxfp4 => (32, 17),
            Self::MlxAffine { bits, .. } => (32, 4 * bits as usize),
            Self::MlxMxfp4 => (32, 16),
        }
    }

    /// Elements along a row that share one entry of the separate scale tensor, and bytes of that entry; `None` where
    /// scales live inside the blocks.
    pub const fn separate_scale(self) -> Option<(usize, usize)> {
        match self {
            Self::MlxAffine { group, scale, .. } => Some((group as usize, scale.bytes())),
            Self::MlxMxfp4 => Some((32, 1)),
            _ => None,
        }
    }
}

/// Why an encoded matrix cannot be what it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodedError {
    /// The row length is not a whole number of blocks.
    #[error("rows of {columns} elements are not whole {format} blocks of {block}")]
    RaggedRows {
        /// Storage format.
        format: Format,
        /// Elements per row.
        columns: usize,
        /// Elements per block.
        block: usize,
    },
    /// A part (`data`, `scales` or `biases`) has another size than the shape asks for.
    #[error("{part} of a {rows} x {columns} {format} matrix holds {found} bytes, expected {expected}")]
    PartSize {
        /// Which part.
        part: &'static str,
        /// Storage format.
        format: Format,
        /// Rows (outputs).
        rows: usize,
        /// Columns (inputs).
        columns: usize,
        /// Bytes found.
        found: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// The shape overflows the address space.
    #[error("a {rows} x {columns} {format} matrix does not fit in memory")]
    TooLarge {
        /// Storage format.
        format: Format,
        /// Rows (outputs).
        rows: usize,
        /// Columns (inputs).
        columns: usize,
    },
    /// `bits` or `group` outside what MLX writes.
    #[error("{format} is not supported: bits must be 2, 3, 4, 5, 6 or 8 and the group 32, 64 or 128")]
    UnsupportedAffine {
        /// Storage format.
        format: Format,
    },
}

/// A borrowed matrix as the checkpoint stores it: `rows` outputs of `columns` inputs each, row-major.
///
/// Sizes were checked when it was made, so reading it cannot run out of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    format: Format,
    rows: usize,
    columns: usize,
    data: &'a [u8],
    scales: &'a [u8],
    biases: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// A matrix whose blocks hold all there is (every GGUF type, and plain floats).
    ///
    /// # Errors
    /// When the sizes contradict each other.
    pub fn new(format: Format, rows: usize, columns: usize, data: &'a [u8]) -> Result<Self, EncodedError> {
        Self::with_scales(format, rows, columns, data, &[], &[])
    }

    /// A matrix with separate `scales` (and, for MLX affine, `biases`), each `[rows, columns / group]`.
    ///
    /// # Errors
    /// When the sizes contradict each other.
    pub fn with_scales(
        format: Format,
        rows: usize,
        columns: usize,
        data: &'a [u8],
        scales: &'a [u8],
        biases: &'a [u8],
    ) -> Result<Self, EncodedError> {
        if let Format::MlxAffine { bits, group, .. } = format
            && !(matches!(bits, 2..=6 | 8) && matches!(group, 32 | 64 | 128))
        {
            return Err(EncodedError::UnsupportedAffine { format });
        }
        let (elements, bytes) = format.block();
        let group = format.separate_scale().map_or(elements, |(group, _)| group);
        if !columns.is_multiple_of(group) {
            return Err(EncodedError::RaggedRows { format, columns, block: group });
        }
        let too_large = EncodedError::TooLarge { format, rows, columns };
        let size = |per_row: usize, unit: usize| {
            per_row.checked_mul(unit).and_then(|row| row.checked_mul(rows)).ok_or_else(|| too_large.clone())
        };
        let check = |part: &'static str, found: usize, expected: usize| {
            if found == expected {
                Ok(())
            } else {
                Err(EncodedError::PartSize { part, format, rows, columns, found, expected })
            }
        };
        check("data", data.len(), size(columns / elements, bytes)?)?;
        let scale_bytes = match format.separate_scale() {
            Some((group, unit)) => size(columns / group, unit)?,
            None => 0,
        };
        check("scales", scales.len(), scale_bytes)?;
        check(
            "biases",
            biases.len(),
            if matches!(format, Format::MlxAffine { .. }) { scale_bytes } else { 0 },
        )?;
        Ok(Self { format, rows, columns, data, scales, biases })
    }

    /// Storage format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rows: the outputs of a projection, the tokens of an embedding.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns: the inputs of a projection.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes in the checkpoint, scales and biases included.
    pub fn bytes(&self) -> usize {
        self.data.len() + self.scales.len() + self.biases.len()
    }

    /// The rows `start .. start + count` as a matrix of their own (one expert of a stack, one part of a fused projection).
    ///
    /// # Panics
    /// When the range leaves the matrix.
    pub fn row_range(&self, start: usize, count: usize) -> Self {
        assert!(start + count <= self.rows, "rows {start}..{} of {}", start + count, self.rows);
        let part = |bytes: &'a [u8]| {
            let row = bytes.len() / self.rows.max(1);
            &bytes[start * row..(start + count) * row]
        };
        Self {
            rows: count,
            data: part(self.data),
            scales: part(self.scales),
            biases: part(self.biases),
            ..*self
        }
    }

    /// Writes the values of row `row` in binary32: plain floats widened, ggml's types as ggml defines them, MLX's affine
    /// codes as `scale * code + bias` with product and sum each rounded to binary32 (see PLAN.md section 3).
    ///
    /// # Panics
    /// When there is no such row, or `out` does not hold [`Encoded::columns`] elements.
    pub fn dequantize_row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(out.len(), self.columns, "a row has one value per column");
        let row = self.row(row);
        if let Format::Float(float) = self.format {
            let elements = row.data.chunks_exact(float.bytes());
            for (out, bytes) in out.iter_mut().zip(elements) {
                *out = match (float, bytes) {
                    (FloatType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
                    (FloatType::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
                    (FloatType::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
                    _ => unreachable!("chunks of the type's own size"),
                };
            }
        }
        self.format.visit_coded(coded::Dequantize { row, out });
    }
}
