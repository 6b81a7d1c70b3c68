//! Writing safetensors: results such as logits, and small checkpoints for tests.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::tensor::TensorEntry;
use crate::{CheckpointError, DType};

/// A tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewTensor<'a> {
    /// Name.
    pub name: &'a str,
    /// Storage type; no block type of ggml.
    pub dtype: DType,
    /// Shape, outermost dimension first.
    pub shape: &'a [usize],
    /// Elements, little endian.
    pub data: &'a [u8],
}

/// Writes a safetensors file with the tensors in the given order. The same input gives the same bytes.
///
/// # Errors
/// When the sink fails, or (as [`io::ErrorKind::InvalidInput`]) a tensor's data do not fit its shape or two tensors have
/// the same name.
pub fn write(out: &mut impl Write, metadata: &[(&str, &str)], tensors: &[NewTensor]) -> io::Result<()> {
    let mut header = Map::new();
    if !metadata.is_empty() {
        let texts: Map<String, Value> =
            metadata.iter().map(|(key, text)| ((*key).into(), json!(text))).collect();
        header.insert("__metadata__".to_owned(), texts.into());
    }
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.data.len();
        let described = json!({
            "dtype": tensor.checked_type()?,
            "shape": tensor.shape,
            "data_offsets": [offset, end],
        });
        if header.insert(tensor.name.to_owned(), described).is_some() {
            return Err(tensor.invalid("its name occurs twice"));
        }
        offset = end;
    }
    let mut text = serde_json::to_string(&header)?;
    // Spaces fill up to a multiple of 8, so that data are aligned in a mapping.
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    for tensor in tensors {
        out.write_all(tensor.data)?;
    }
    Ok(())
}

/// Writes a safetensors file so that it appears complete or not at all.
///
/// # Errors
/// As [`write`], and when the file cannot be created.
pub fn save(path: &Path, metadata: &[(&str, &str)], tensors: &[NewTensor]) -> Result<(), CheckpointError> {
    crate::files::replace(path, |file| {
        let mut out = BufWriter::new(file);
        write(&mut out, metadata, tensors)?;
        out.flush()
    })
    .map_err(CheckpointError::io("write", path))
}

impl NewTensor<'_> {
    fn checked_type(&self) -> io::Result<&'static str> {
        let name =
            self.dtype.safetensors_name().ok_or_else(|| self.invalid("its type is one of GGUF only"))?;
        match TensorEntry::sizes(self.dtype, self.shape) {
            Ok((_, bytes)) if bytes == self.data.len() => Ok(name),
            _ => Err(self.invalid("its data do not fit its shape")),
        }
    }

    fn invalid(&self, reason: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, format!("tensor {:?}: {reason}", self.name))
    }
}
