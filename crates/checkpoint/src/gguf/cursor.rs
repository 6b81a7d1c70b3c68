//! Reading a header front to back without ever leaving the file.

use std::fmt;
use std::path::Path;

use crate::CheckpointError;
use crate::error::quoted;

/// Which part of a header is being read, for messages.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// A field of the fixed head.
    Head(&'static str),
    /// The name of the n-th metadata entry.
    Key(usize),
    /// The value of a metadata key.
    Value(&'a str),
    /// The name of the n-th tensor.
    TensorName(usize),
    /// A field of a tensor's description.
    Tensor(&'a str, &'static str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head(field) => f.write_str(field),
            Self::Key(index) => write!(f, "name of metadata entry {index}"),
            Self::Value(key) => write!(f, "metadata {}", quoted(key)),
            Self::TensorName(index) => write!(f, "name of tensor {index}"),
            Self::Tensor(name, field) => write!(f, "{field} of tensor {}", quoted(name)),
        }
    }
}

/// A position in the bytes of a file.
pub(super) struct Cursor<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a Path, bytes: &'a [u8]) -> Self {
        Self { file, bytes, at: 0 }
    }

    /// Offset of the next byte to read.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, count: usize, place: Place) -> Result<&'a [u8], CheckpointError> {
        let Some(taken) = self.bytes[self.at..].get(..count) else {
            let found = format!("{} bytes left at offset {}", self.remaining(), self.at);
            return Err(self.error(place, found, format!("{count}; the file is cut short or damaged")));
        };
        self.at += count;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, place: Place) -> Result<[u8; N], CheckpointError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, place)?);
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, place: Place) -> Result<u32, CheckpointError> {
        Ok(u32::from_le_bytes(self.array(place)?))
    }

    pub(super) fn u64(&mut self, place: Place) -> Result<u64, CheckpointError> {
        Ok(u64::from_le_bytes(self.array(place)?))
    }

    /// A count of things that take at least `least` bytes each, refused when the rest of the file cannot hold them: no
    /// allocation made from it can be much larger than the file.
    pub(super) fn count(&mut self, least: usize, place: Place) -> Result<usize, CheckpointError> {
        let count = self.u64(place)?;
        let most = self.remaining() / least;
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => {
                let expected = format!(
                    "at most {most}, since {} bytes are left; the file is cut short or damaged",
                    self.remaining()
                );
                Err(self.error(place, format!("a count of {count}"), expected))
            }
        }
    }

    /// A string: a 64-bit length and UTF-8 bytes.
    pub(super) fn string(&mut self, place: Place) -> Result<&'a str, CheckpointError> {
        let length = self.count(1, place)?;
        let bytes = self.take(length, place)?;
        std::str::from_utf8(bytes).map_err(|error| {
            self.error(place, format!("text that breaks off at byte {}", error.valid_up_to()), "UTF-8")
        })
    }

    pub(super) fn error(
        &self,
        place: Place,
        found: impl ToString,
        expected: impl ToString,
    ) -> CheckpointError {
        CheckpointError::malformed(self.file, place, found, expected)
    }
}
