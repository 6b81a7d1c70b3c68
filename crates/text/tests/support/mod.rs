//! What the tests of this crate share: where fixtures lie and how to read them.
#![allow(dead_code, reason = "each test file uses its own part")]

use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file or folder below `fixtures/` of the repository.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// A fixture's text.
pub fn read(path: &str) -> String {
    let full = fixture(path);
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{}: {error}", full.display()))
}

/// A fixture that is one JSON value.
pub fn json(path: &str) -> Value {
    serde_json::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A fixture of one JSON value per line.
pub fn json_lines(path: &str) -> Vec<Value> {
    let lines = read(path);
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{path}: {error}")))
        .collect()
}

/// A string field.
pub fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("no string {key:?} in {value}"))
}

/// A list of token ids.
pub fn ids(value: &Value) -> Vec<u32> {
    let list = value.as_array().unwrap_or_else(|| panic!("expected a list of ids, found {value}"));
    list.iter().map(|id| u32::try_from(id.as_u64().expect("an id")).expect("a 32-bit id")).collect()
}

/// Bytes written in hexadecimal.
pub fn bytes_of_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "{hex}");
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}
