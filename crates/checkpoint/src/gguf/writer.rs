//! Writing GGUF version 3, for tests and for converters of small models.

use super::ggml_type;
use super::value::{GgufArray, GgufValue};
use crate::tensor::TensorEntry;
use crate::{CheckpointError, DType};

const ALIGNMENT: usize = 32;

/// A GGUF file in memory, built entry by entry. Order is kept.
///
/// ```
/// use samebit_checkpoint::DType;
/// use samebit_checkpoint::gguf::{GgufValue, writer::GgufWriter};
///
/// let bytes = GgufWriter::default()
///     .value("general.architecture", GgufValue::String("llama".to_owned()))
///     .tensor("output_norm.weight", DType::F32, &[4], &[0; 16])
///     .to_bytes()?;
/// assert_eq!(&bytes[..4], b"GGUF");
/// # Ok::<(), samebit_checkpoint::CheckpointError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    metadata: Vec<(String, GgufValue)>,
    tensors: Vec<PendingTensor>,
}

#[derive(Clone, Debug)]
struct PendingTensor {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl GgufWriter {
    /// Adds a metadata entry.
    #[must_use]
    pub fn value(mut self, key: &str, value: GgufValue) -> Self {
        self.metadata.push((key.to_owned(), value));
        self
    }

    /// Adds a tensor: `shape` outermost first, `data` as stored. Sizes are checked by [`GgufWriter::to_bytes`].
    #[must_use]
    pub fn tensor(mut self, name: &str, dtype: DType, shape: &[usize], data: &[u8]) -> Self {
        let tensor =
            PendingTensor { name: name.to_owned(), dtype, shape: shape.to_vec(), data: data.to_vec() };
        self.tensors.push(tensor);
        self
    }

    /// The file.
    ///
    /// # Errors
    /// When a tensor has a type that GGUF cannot hold, or data of another size than its shape.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CheckpointError> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        put_count(&mut out, self.tensors.len());
        put_count(&mut out, self.metadata.len());
        for (key, value) in &self.metadata {
            put_text(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0usize;
        for tensor in &self.tensors {
            tensor.put_description(&mut out, offset)?;
            offset = (offset + tensor.data.len()).next_multiple_of(ALIGNMENT);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(&tensor.data);
        }
        Ok(out)
    }
}

impl PendingTensor {
    fn put_description(&self, out: &mut Vec<u8>, offset: usize) -> Result<(), CheckpointError> {
        let refuse = |found: String, expected: String| CheckpointError::Malformed {
            file: "(GGUF being written)".into(),
            place: format!("tensor {:?}", self.name),
            found,
            expected,
        };
        let Some(id) = ggml_type::id_of(self.dtype) else {
            return Err(refuse(self.dtype.to_string(), "a type that GGUF can hold".to_owned()));
        };
        let (elements, bytes) = self.dtype.block();
        match TensorEntry::sizes(self.dtype, &self.shape) {
            Ok((_, size)) if size == self.data.len() => {}
            _ => {
                let found = format!("{} bytes", self.data.len());
                let expected =
                    format!("shape {:?} of {} ({bytes} bytes per {elements})", self.shape, self.dtype);
                return Err(refuse(found, expected));
            }
        }
        put_text(out, &self.name);
        out.extend((self.shape.len() as u32).to_le_bytes());
        for &size in self.shape.iter().rev() {
            put_count(out, size);
        }
        out.extend(id.to_le_bytes());
        put_count(out, offset);
        Ok(())
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u64).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &GgufValue) {
    let mut put = |kind: u32, bytes: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        GgufValue::U8(value) => put(0, &value.to_le_bytes()),
        GgufValue::I8(value) => put(1, &value.to_le_bytes()),
        GgufValue::U16(value) => put(2, &value.to_le_bytes()),
        GgufValue::I16(value) => put(3, &value.to_le_bytes()),
        GgufValue::U32(value) => put(4, &value.to_le_bytes()),
        GgufValue::I32(value) => put(5, &value.to_le_bytes()),
        GgufValue::F32(value) => put(6, &value.to_le_bytes()),
        GgufValue::Bool(value) => put(7, &[u8::from(*value)]),
        GgufValue::String(text) => {
            put(8, &[]);
            put_text(out, text);
        }
        GgufValue::Array(array) => {
            put(9, &[]);
            put_array(out, array);
        }
        GgufValue::U64(value) => put(10, &value.to_le_bytes()),
        GgufValue::I64(value) => put(11, &value.to_le_bytes()),
        GgufValue::F64(value) => put(12, &value.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &GgufArray) {
    let kind: u32 = match array {
        GgufArray::U8(_) => 0,
        GgufArray::I8(_) => 1,
        GgufArray::U16(_) => 2,
        GgufArray::I16(_) => 3,
        GgufArray::U32(_) => 4,
        GgufArray::I32(_) => 5,
        GgufArray::F32(_) => 6,
        GgufArray::Bool(_) => 7,
        GgufArray::String(_) => 8,
        GgufArray::Array(_) => 9,
        GgufArray::U64(_) => 10,
        GgufArray::I64(_) => 11,
        GgufArray::F64(_) => 12,
    };
    out.extend(kind.to_le_bytes());
    put_count(out, array.len());
    match array {
        GgufArray::U8(values) => out.extend(values),
        GgufArray::I8(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::U16(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::I16(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::U32(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::I32(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::F32(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::Bool(values) => out.extend(values.iter().map(|&value| u8::from(value))),
        GgufArray::String(texts) => texts.iter().for_each(|text| put_text(out, text)),
        GgufArray::Array(arrays) => arrays.iter().for_each(|array| put_array(out, array)),
        GgufArray::U64(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::I64(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        GgufArray::F64(values) => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
    }
}
