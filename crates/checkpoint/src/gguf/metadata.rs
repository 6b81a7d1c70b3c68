//! The key-value metadata of a GGUF file, with typed access.

use std::path::{Path, PathBuf};

use super::value::{GgufArray, GgufValue};
use crate::error::quoted;
use crate::names::NameIndex;
use crate::{CheckpointError, Strings};

/// Metadata of a GGUF file, in file order.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: PathBuf,
    entries: Vec<(String, GgufValue)>,
    index: NameIndex,
}

/// A type that a metadata value can be read as.
pub trait FromGguf<'a>: Sized {
    /// Name of the type in messages.
    const EXPECTED: &'static str;

    /// The value, when it has this type and fits.
    fn from_gguf(value: &'a GgufValue) -> Option<Self>;
}

impl Metadata {
    /// Entries in file order; an error is the name of a key that occurs twice.
    pub(super) fn new(file: &Path, entries: Vec<(String, GgufValue)>) -> Result<Self, CheckpointError> {
        let index = NameIndex::build(entries.len(), |at| &entries[at].0).map_err(|(first, second)| {
            let found =
                format!("the key {} twice, as entries {first} and {second}", quoted(&entries[first].0));
            CheckpointError::malformed(file, "metadata", found, "every key once")
        })?;
        Ok(Self { file: file.to_path_buf(), entries, index })
    }

    /// The file it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All entries in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &GgufValue)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&GgufValue> {
        let position = self.index.find(key, |at| &self.entries[at].0)?;
        Some(&self.entries[position].1)
    }

    /// The value of a key as `T`, if the key exists.
    ///
    /// # Errors
    /// When the key holds something else.
    pub fn optional<'a, T: FromGguf<'a>>(&'a self, key: &str) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match T::from_gguf(value) {
            Some(typed) => Ok(Some(typed)),
            None => {
                let found = match value.integer() {
                    Some(number) => format!("{number} ({})", value.type_name()),
                    None => value.type_name(),
                };
                Err(CheckpointError::malformed(&self.file, format!("metadata {key:?}"), found, T::EXPECTED))
            }
        }
    }

    /// The value of a key as `T`.
    ///
    /// # Errors
    /// When the key is missing or holds something else.
    pub fn required<'a, T: FromGguf<'a>>(&'a self, key: &str) -> Result<T, CheckpointError> {
        self.optional(key)?.ok_or_else(|| CheckpointError::MissingKey {
            file: self.file.clone(),
            key: key.to_owned(),
            expected: T::EXPECTED,
        })
    }

    /// A required integer of any stored width that fits `u32`.
    ///
    /// # Errors
    /// As [`Metadata::required`].
    pub fn u32(&self, key: &str) -> Result<u32, CheckpointError> {
        self.required(key)
    }

    /// A required integer of any stored width that fits `usize`.
    ///
    /// # Errors
    /// As [`Metadata::required`].
    pub fn usize(&self, key: &str) -> Result<usize, CheckpointError> {
        self.required(key)
    }

    /// A required f32 (an f64 is rounded).
    ///
    /// # Errors
    /// As [`Metadata::required`].
    pub fn f32(&self, key: &str) -> Result<f32, CheckpointError> {
        self.required(key)
    }

    /// A required boolean.
    ///
    /// # Errors
    /// As [`Metadata::required`].
    pub fn bool(&self, key: &str) -> Result<bool, CheckpointError> {
        self.required(key)
    }

    /// A required text.
    ///
    /// # Errors
    /// As [`Metadata::required`].
    pub fn str(&self, key: &str) -> Result<&str, CheckpointError> {
        self.required(key)
    }

    /// A required array of texts, such as `tokenizer.ggml.tokens`.
    ///
    /// # Errors
    /// As [`Metadata::required`].
    pub fn strings(&self, key: &str) -> Result<&Strings, CheckpointError> {
        self.required(key)
    }
}

macro_rules! integers {
    ($($kind:ty => $expected:literal),*) => {$(
        impl FromGguf<'_> for $kind {
            const EXPECTED: &'static str = $expected;

            fn from_gguf(value: &GgufValue) -> Option<Self> {
                Self::try_from(value.integer()?).ok()
            }
        }
    )*};
}

integers! {
    u16 => "an integer from 0 to 65535",
    u32 => "an integer from 0 to 4294967295",
    u64 => "an integer of at least 0",
    usize => "an integer of at least 0",
    i64 => "an integer"
}

impl FromGguf<'_> for f32 {
    const EXPECTED: &'static str = "a float";

    fn from_gguf(value: &GgufValue) -> Option<Self> {
        match *value {
            GgufValue::F32(number) => Some(number),
            GgufValue::F64(number) => Some(number as Self),
            _ => None,
        }
    }
}

impl FromGguf<'_> for f64 {
    const EXPECTED: &'static str = "a float";

    fn from_gguf(value: &GgufValue) -> Option<Self> {
        match *value {
            GgufValue::F32(number) => Some(number.into()),
            GgufValue::F64(number) => Some(number),
            _ => None,
        }
    }
}

impl FromGguf<'_> for bool {
    const EXPECTED: &'static str = "a bool";

    fn from_gguf(value: &GgufValue) -> Option<Self> {
        match *value {
            GgufValue::Bool(flag) => Some(flag),
            _ => None,
        }
    }
}

impl<'a> FromGguf<'a> for &'a str {
    const EXPECTED: &'static str = "a string";

    fn from_gguf(value: &'a GgufValue) -> Option<Self> {
        match value {
            GgufValue::String(text) => Some(text),
            _ => None,
        }
    }
}

impl<'a> FromGguf<'a> for &'a GgufArray {
    const EXPECTED: &'static str = "an array";

    fn from_gguf(value: &'a GgufValue) -> Option<Self> {
        match value {
            GgufValue::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl<'a> FromGguf<'a> for &'a Strings {
    const EXPECTED: &'static str = "an array of strings";

    fn from_gguf(value: &'a GgufValue) -> Option<Self> {
        match <&GgufArray>::from_gguf(value)? {
            GgufArray::String(strings) => Some(strings),
            _ => None,
        }
    }
}

impl<'a> FromGguf<'a> for &'a [f32] {
    const EXPECTED: &'static str = "an array of f32";

    fn from_gguf(value: &'a GgufValue) -> Option<Self> {
        match <&GgufArray>::from_gguf(value)? {
            GgufArray::F32(numbers) => Some(numbers),
            _ => None,
        }
    }
}

impl<'a> FromGguf<'a> for Vec<i64> {
    const EXPECTED: &'static str = "an array of integers";

    fn from_gguf(value: &'a GgufValue) -> Option<Self> {
        <&GgufArray>::from_gguf(value)?.to_i64()
    }
}
