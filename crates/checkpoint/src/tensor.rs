//! Tensors of a checkpoint: what a header declares, and a view with the bytes.

use std::ops::Range;
use std::path::Path;

use half::{bf16, f16};

use crate::error::quoted;
use crate::{CheckpointError, DType};

/// A tensor as a header declares it. The parser has checked that its bytes lie inside the file and fit its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorEntry {
    /// Name in the checkpoint.
    pub name: String,
    /// Storage type.
    pub dtype: DType,
    /// Shape, outermost dimension first in both kinds of checkpoint (GGUF stores the reverse).
    pub shape: Vec<usize>,
    /// First byte in the file.
    pub start: usize,
    /// Number of bytes.
    pub bytes: usize,
}

impl TensorEntry {
    /// Its bytes in the file.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// Checks a shape and computes the size of the tensor: `(elements, bytes)`.
    ///
    /// Rows (the last dimension) must be whole blocks of block types; smaller units may be filled by the whole tensor.
    pub(crate) fn sizes(dtype: DType, shape: &[usize]) -> Result<(usize, usize), SizeError> {
        let (block, block_bytes) = dtype.block();
        let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let elements = elements.ok_or(SizeError::TooLarge)?;
        let unit =
            if matches!(dtype, DType::Ggml(_)) { shape.last().copied().unwrap_or(1) } else { elements };
        if unit % block != 0 {
            return Err(SizeError::Ragged { unit, block });
        }
        let bytes = (elements / block).checked_mul(block_bytes).ok_or(SizeError::TooLarge)?;
        Ok((elements, bytes))
    }
}

/// Why a shape has no size.
pub(crate) enum SizeError {
    /// The product of the dimensions leaves the address space.
    TooLarge,
    /// Rows are no whole number of blocks.
    Ragged {
        /// Elements of a row.
        unit: usize,
        /// Elements of a block.
        block: usize,
    },
}

/// A tensor with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub(crate) file: &'a Path,
    pub(crate) entry: &'a TensorEntry,
    pub(crate) data: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// Name in the checkpoint.
    pub fn name(&self) -> &'a str {
        &self.entry.name
    }

    /// Storage type.
    pub fn dtype(&self) -> DType {
        self.entry.dtype
    }

    /// Shape, outermost dimension first in both kinds of checkpoint.
    pub fn shape(&self) -> &'a [usize] {
        &self.entry.shape
    }

    /// The stored bytes, little endian, last dimension contiguous. They have no particular alignment.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The file that holds it.
    pub fn file(&self) -> &'a Path {
        self.file
    }

    /// All elements of an F32, F16, BF16 or F64 tensor as f32, in storage order. F64 is rounded to nearest, the others
    /// are exact.
    ///
    /// # Errors
    /// For every other type.
    pub fn to_f32(&self) -> Result<Vec<f32>, CheckpointError> {
        Ok(match self.dtype() {
            DType::F32 => elements(self.data, f32::from_le_bytes),
            DType::F16 => elements(self.data, |bytes| f16::from_le_bytes(bytes).to_f32()),
            DType::Bf16 => elements(self.data, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            DType::F64 => elements(self.data, |bytes| f64::from_le_bytes(bytes) as f32),
            _ => return Err(self.wrong_type("F32, F16, BF16, F64")),
        })
    }

    /// All elements of an F32, F16, BF16 or F64 tensor as f64, in storage order; exact.
    ///
    /// # Errors
    /// For every other type.
    pub fn to_f64(&self) -> Result<Vec<f64>, CheckpointError> {
        Ok(match self.dtype() {
            DType::F64 => elements(self.data, f64::from_le_bytes),
            DType::F32 => elements(self.data, |bytes| f64::from(f32::from_le_bytes(bytes))),
            DType::F16 => elements(self.data, |bytes| f16::from_le_bytes(bytes).to_f64()),
            DType::Bf16 => elements(self.data, |bytes| bf16::from_le_bytes(bytes).to_f64()),
            _ => return Err(self.wrong_type("F64, F32, F16, BF16")),
        })
    }

    /// All elements of an I64, I32, I16, I8, U32, U16 or U8 tensor, in storage order.
    ///
    /// # Errors
    /// For every other type.
    pub fn to_i64(&self) -> Result<Vec<i64>, CheckpointError> {
        Ok(match self.dtype() {
            DType::I64 => elements(self.data, i64::from_le_bytes),
            DType::I32 => elements(self.data, |bytes| i32::from_le_bytes(bytes).into()),
            DType::I16 => elements(self.data, |bytes| i16::from_le_bytes(bytes).into()),
            DType::I8 => elements(self.data, |bytes| i8::from_le_bytes(bytes).into()),
            DType::U32 => elements(self.data, |bytes| u32::from_le_bytes(bytes).into()),
            DType::U16 => elements(self.data, |bytes| u16::from_le_bytes(bytes).into()),
            DType::U8 => elements(self.data, |bytes| u8::from_le_bytes(bytes).into()),
            _ => return Err(self.wrong_type("I64, I32, I16, I8, U32, U16, U8")),
        })
    }

    pub(crate) fn wrong_type(&self, supported: &str) -> CheckpointError {
        CheckpointError::Unsupported {
            file: self.file.to_path_buf(),
            place: format!("tensor {}", quoted(self.name())),
            found: self.dtype().to_string(),
            supported: supported.to_owned(),
        }
    }

    pub(crate) fn wrong_shape(&self, expected: impl Into<String>) -> CheckpointError {
        CheckpointError::Shape {
            file: self.file.to_path_buf(),
            tensor: self.name().to_owned(),
            found: self.shape().to_vec(),
            expected: expected.into(),
        }
    }
}

/// Decodes little-endian elements of `N` bytes each.
fn elements<const N: usize, T>(data: &[u8], decode: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks::<N>().0.iter().map(|bytes| decode(*bytes)).collect()
}
