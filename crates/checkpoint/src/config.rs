//! `config.json` and its neighbours: a JSON object with typed access and errors that name the key.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::error::{quoted, short};
use crate::{CheckpointError, files, json};

/// Largest text that is read: published files have up to a few hundred kilobytes, and a parsed text can take forty
/// times its size.
const LARGEST: u64 = 4 << 20;

/// A JSON file of a model folder.
#[derive(Clone, Debug)]
pub struct Config {
    file: PathBuf,
    object: Map<String, Value>,
    size: u64,
    sha256: [u8; 32],
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is larger than 4 MiB, is not JSON, or holds something else than an object.
    pub fn read(file: &Path) -> Result<Self, CheckpointError> {
        let bytes = files::read(file, LARGEST)?;
        Self::parse(file, &bytes)
    }

    /// Parses the text of a file. `file` is only used in messages.
    ///
    /// # Errors
    /// When it is not JSON, or holds something else than an object.
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let malformed = |place: &str, found: String| {
            CheckpointError::malformed(file, place, found, "a JSON object with every key once")
        };
        let text = std::str::from_utf8(bytes)
            .map_err(|error| malformed("text", format!("no UTF-8 at byte {}", error.valid_up_to())))?;
        let value = json::parse(text).map_err(|error| malformed("JSON", short(&error)))?;
        let Value::Object(object) = value else {
            return Err(malformed("JSON", kind(&value).to_owned()));
        };
        let size = bytes.len() as u64;
        Ok(Self { file: file.to_path_buf(), object, size, sha256: Sha256::digest(bytes).into() })
    }

    /// The file it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The whole object. Numbers that JSON cannot write stand as `{"__float__": "Infinity"}`.
    pub fn object(&self) -> &Map<String, Value> {
        &self.object
    }

    /// Typed access to the top level.
    pub fn root(&self) -> Section<'_> {
        Section { file: &self.file, path: String::new(), object: &self.object }
    }

    /// Size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// SHA-256 of the file.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        self.sha256
    }
}

/// An object inside a [`Config`], with typed access. A key whose value is `null` counts as absent.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    file: &'a Path,
    /// Keys that lead here, each followed by a dot.
    path: String,
    object: &'a Map<String, Value>,
}

impl<'a> Section<'a> {
    /// The file it was read from.
    pub fn file(&self) -> &'a Path {
        self.file
    }

    /// The object itself.
    pub fn object(&self) -> &'a Map<String, Value> {
        self.object
    }

    /// The value of a key that is present and not null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// The value of a key as `T`, if it is present and not null.
    ///
    /// # Errors
    /// When it has another type.
    pub fn optional<T: FromJson<'a>>(&self, key: &str) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match T::from_json(value) {
            Some(typed) => Ok(Some(typed)),
            None => Err(self.error(key, kind_and_value(value), T::EXPECTED)),
        }
    }

    /// The value of a key as `T`.
    ///
    /// # Errors
    /// When it is absent, null, or has another type.
    pub fn required<T: FromJson<'a>>(&self, key: &str) -> Result<T, CheckpointError> {
        self.optional(key)?.ok_or_else(|| CheckpointError::MissingKey {
            file: self.file.to_path_buf(),
            key: format!("{}{key}", self.path),
            expected: T::EXPECTED,
        })
    }

    /// The object under a key, if it is present and not null.
    ///
    /// # Errors
    /// When it is something else than an object.
    pub fn section(&self, key: &str) -> Result<Option<Self>, CheckpointError> {
        let object = self.optional::<&Map<String, Value>>(key)?;
        Ok(object.map(|object| Self { file: self.file, path: format!("{}{key}.", self.path), object }))
    }

    /// A required integer that fits `usize`.
    ///
    /// # Errors
    /// As [`Section::required`].
    pub fn usize(&self, key: &str) -> Result<usize, CheckpointError> {
        self.required(key)
    }

    /// A required number.
    ///
    /// # Errors
    /// As [`Section::required`].
    pub fn f64(&self, key: &str) -> Result<f64, CheckpointError> {
        self.required(key)
    }

    /// A required boolean.
    ///
    /// # Errors
    /// As [`Section::required`].
    pub fn bool(&self, key: &str) -> Result<bool, CheckpointError> {
        self.required(key)
    }

    /// A required text.
    ///
    /// # Errors
    /// As [`Section::required`].
    pub fn str(&self, key: &str) -> Result<&'a str, CheckpointError> {
        self.required(key)
    }

    /// An error about the value of a key, for checks that only the caller can make.
    pub fn error(&self, key: &str, found: impl ToString, expected: impl ToString) -> CheckpointError {
        CheckpointError::malformed(self.file, short(&format!("{}{key}", self.path)), found, expected)
    }
}

/// A type that a JSON value can be read as.
pub trait FromJson<'a>: Sized {
    /// Name of the type in messages.
    const EXPECTED: &'static str;

    /// The value, when it has this type and fits.
    fn from_json(value: &'a Value) -> Option<Self>;
}

macro_rules! integers {
    ($($kind:ty => $expected:literal),*) => {$(
        impl FromJson<'_> for $kind {
            const EXPECTED: &'static str = $expected;

            fn from_json(value: &Value) -> Option<Self> {
                Self::try_from(integer(value)?).ok()
            }
        }

        impl FromJson<'_> for Vec<$kind> {
            const EXPECTED: &'static str = concat!("an array, each ", $expected);

            fn from_json(value: &Value) -> Option<Self> {
                value.as_array()?.iter().map(FromJson::from_json).collect()
            }
        }
    )*};
}

integers! {
    u32 => "an integer from 0 to 4294967295",
    u64 => "an integer of at least 0",
    usize => "an integer of at least 0",
    i64 => "an integer"
}

/// An integer, also one that was written as `1.0`.
fn integer(value: &Value) -> Option<i128> {
    /// Beyond this, not every integer is an f64, so `1e300` is not taken for one.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_number()?;
    if let Some(number) = number.as_i128() {
        return Some(number);
    }
    let float = number.as_f64()?;
    (float.fract() == 0.0 && float.abs() <= EXACT).then_some(float as i128)
}

impl FromJson<'_> for f64 {
    const EXPECTED: &'static str = "a number";

    fn from_json(value: &Value) -> Option<Self> {
        json::float(value)
    }
}

impl FromJson<'_> for Vec<f64> {
    const EXPECTED: &'static str = "an array of numbers";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(json::float).collect()
    }
}

impl FromJson<'_> for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl<'a> FromJson<'a> for &'a str {
    const EXPECTED: &'static str = "a string";

    fn from_json(value: &'a Value) -> Option<Self> {
        value.as_str()
    }
}

impl<'a> FromJson<'a> for Vec<&'a str> {
    const EXPECTED: &'static str = "an array of strings";

    fn from_json(value: &'a Value) -> Option<Self> {
        value.as_array()?.iter().map(Value::as_str).collect()
    }
}

impl<'a> FromJson<'a> for &'a Map<String, Value> {
    const EXPECTED: &'static str = "an object";

    fn from_json(value: &'a Value) -> Option<Self> {
        value.as_object()
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn kind_and_value(value: &Value) -> String {
    match value {
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        other => kind(other).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("config.json"), text.as_bytes()).unwrap()
    }

    #[test]
    fn typed_access() {
        let config = config(
            r#"{"hidden_size": 64, "eps": 1e-5, "tie": true, "name": "x", "ids": [1, 2], "rope": {"factor": 8.0},
                "none": null, "limits": [0.0, Infinity], "whole": 3.0}"#,
        );
        let root = config.root();
        assert_eq!(root.usize("hidden_size").unwrap(), 64);
        assert_eq!(root.usize("whole").unwrap(), 3);
        assert_eq!(root.f64("hidden_size").unwrap(), 64.0);
        assert_eq!(root.f64("eps").unwrap(), 1e-5);
        assert!(root.bool("tie").unwrap());
        assert_eq!(root.str("name").unwrap(), "x");
        assert_eq!(root.required::<Vec<u32>>("ids").unwrap(), [1, 2]);
        assert_eq!(root.required::<Vec<f64>>("limits").unwrap(), [0.0, f64::INFINITY]);
        assert_eq!(root.section("rope").unwrap().unwrap().f64("factor").unwrap(), 8.0);
        assert!(root.section("none").unwrap().is_none());
        assert_eq!(root.optional::<f64>("absent").unwrap(), None);
    }

    #[test]
    fn errors_name_file_key_found_and_expected() {
        let config = config(r#"{"a": "x", "b": -1, "rope": {"factor": []}, "c": 1.5, "d": 1e300}"#);
        let root = config.root();
        let rope = root.section("rope").unwrap().unwrap();
        for (error, expected) in [
            (root.usize("a").unwrap_err(), "config.json: a: found \"x\", expected an integer of at least 0"),
            (root.usize("b").unwrap_err(), "config.json: b: found -1, expected an integer of at least 0"),
            (root.usize("c").unwrap_err(), "config.json: c: found 1.5, expected an integer of at least 0"),
            (rope.f64("factor").unwrap_err(), "config.json: rope.factor: found an array, expected a number"),
            (rope.f64("base").unwrap_err(), "config.json: the key rope.base is missing, expected a number"),
        ] {
            assert_eq!(error.to_string(), expected);
        }
        assert!(root.required::<i64>("d").is_err());
    }

    #[test]
    fn only_objects() {
        for text in ["[1]", "{\"a\":1,\"a\":2}", "", "{", "\u{0}"] {
            assert!(Config::parse(Path::new("c"), text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(Config::parse(Path::new("c"), b"\xff{}").is_err());
    }
}
