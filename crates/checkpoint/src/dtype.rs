//! How tensors are stored, over both kinds of checkpoint.

use std::fmt;

use samebit_arith::{FloatType, Format};

use crate::gguf::{self, GgmlType};

/// Storage type of a tensor as its file declares it.
///
/// Every type that the two file formats define is named here, so that sizes can be checked and `info` can list it;
/// [`DType::format`] tells which ones a matrix product can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// Upper half of binary32.
    Bf16,
    /// Signed 64-bit.
    I64,
    /// Signed 32-bit.
    I32,
    /// Signed 16-bit.
    I16,
    /// Signed 8-bit.
    I8,
    /// Unsigned 64-bit.
    U64,
    /// Unsigned 32-bit; also the words that MLX packs codes into.
    U32,
    /// Unsigned 16-bit.
    U16,
    /// Unsigned 8-bit.
    U8,
    /// One byte, 0 or 1.
    Bool,
    /// A safetensors type that only has a name and a size here: `(name, elements, bytes)` of its smallest whole unit.
    Other(&'static str, u8, u8),
    /// A block type of ggml.
    Ggml(GgmlType),
}

/// Safetensors names of every type but the ggml ones.
const SAFETENSORS: [(&str, DType); 22] = [
    ("F64", DType::F64),
    ("F32", DType::F32),
    ("F16", DType::F16),
    ("BF16", DType::Bf16),
    ("I64", DType::I64),
    ("I32", DType::I32),
    ("I16", DType::I16),
    ("I8", DType::I8),
    ("U64", DType::U64),
    ("U32", DType::U32),
    ("U16", DType::U16),
    ("U8", DType::U8),
    ("BOOL", DType::Bool),
    ("F8_E4M3", DType::Other("F8_E4M3", 1, 1)),
    ("F8_E5M2", DType::Other("F8_E5M2", 1, 1)),
    ("F8_E8M0", DType::Other("F8_E8M0", 1, 1)),
    ("F8_E4M3FNUZ", DType::Other("F8_E4M3FNUZ", 1, 1)),
    ("F8_E5M2FNUZ", DType::Other("F8_E5M2FNUZ", 1, 1)),
    ("F4", DType::Other("F4", 2, 1)),
    ("F6_E2M3", DType::Other("F6_E2M3", 4, 3)),
    ("F6_E3M2", DType::Other("F6_E3M2", 4, 3)),
    ("C64", DType::Other("C64", 1, 8)),
];

impl DType {
    /// The type with this safetensors name.
    pub(crate) fn from_safetensors(name: &str) -> Option<Self> {
        SAFETENSORS.iter().find(|(known, _)| *known == name).map(|(_, dtype)| *dtype)
    }

    /// Safetensors name; `None` for ggml block types, which that format cannot hold.
    pub(crate) fn safetensors_name(self) -> Option<&'static str> {
        SAFETENSORS.iter().find(|(_, dtype)| *dtype == self).map(|(name, _)| *name)
    }

    /// `(elements, bytes)` of the smallest unit that is stored whole.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F64 | Self::I64 | Self::U64 => (1, 8),
            Self::F32 | Self::I32 | Self::U32 => (1, 4),
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => (1, 2),
            Self::I8 | Self::U8 | Self::Bool => (1, 1),
            Self::Other(_, elements, bytes) => (elements as usize, bytes as usize),
            Self::Ggml(kind) => kind.block(),
        }
    }

    /// The format in which a matrix product reads this type, where there is one. MLX's packed words are told apart by
    /// the tensors beside them, not by their type: see [`crate::Checkpoint::matrix`].
    pub fn format(self) -> Option<Format> {
        match self {
            Self::F32 => Some(Format::Float(FloatType::F32)),
            Self::F16 => Some(Format::Float(FloatType::F16)),
            Self::Bf16 => Some(Format::Float(FloatType::Bf16)),
            Self::Ggml(kind) => kind.format(),
            _ => None,
        }
    }

    /// The type of a tensor that stores `format` in a file of its own blocks: plain floats and ggml's types. `None` for
    /// MLX's formats, which take several tensors.
    pub fn from_format(format: Format) -> Option<Self> {
        gguf::dtype_of(format)
    }

    /// The plain float type, where it is one that arithmetic reads.
    pub(crate) fn float(self) -> Option<FloatType> {
        match self.format() {
            Some(Format::Float(float)) => Some(float),
            _ => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ggml(kind) => f.write_str(kind.name()),
            // Every other variant is in the table.
            other => f.write_str(other.safetensors_name().unwrap_or("?")),
        }
    }
}
