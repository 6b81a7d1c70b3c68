//! Metadata values of GGUF, owned and typed.

use std::fmt;

use super::cursor::{Cursor, Place};
use crate::{CheckpointError, Strings};

/// Deepest nesting of arrays that is read. Published files nest none.
const DEEPEST_ARRAY: usize = 8;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufValue {
    /// Unsigned 8-bit.
    U8(u8),
    /// Signed 8-bit.
    I8(i8),
    /// Unsigned 16-bit.
    U16(u16),
    /// Signed 16-bit.
    I16(i16),
    /// Unsigned 32-bit.
    U32(u32),
    /// Signed 32-bit.
    I32(i32),
    /// Binary32.
    F32(f32),
    /// Boolean.
    Bool(bool),
    /// Text.
    String(String),
    /// Array; boxed so that a file of many small values stays small in memory.
    Array(Box<GgufArray>),
    /// Unsigned 64-bit.
    U64(u64),
    /// Signed 64-bit.
    I64(i64),
    /// Binary64.
    F64(f64),
}

/// An array of metadata values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufArray {
    /// Unsigned 8-bit.
    U8(Vec<u8>),
    /// Signed 8-bit.
    I8(Vec<i8>),
    /// Unsigned 16-bit.
    U16(Vec<u16>),
    /// Signed 16-bit.
    I16(Vec<i16>),
    /// Unsigned 32-bit.
    U32(Vec<u32>),
    /// Signed 32-bit.
    I32(Vec<i32>),
    /// Binary32.
    F32(Vec<f32>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Texts, such as a vocabulary.
    String(Strings),
    /// Arrays.
    Array(Vec<GgufArray>),
    /// Unsigned 64-bit.
    U64(Vec<u64>),
    /// Signed 64-bit.
    I64(Vec<i64>),
    /// Binary64.
    F64(Vec<f64>),
}

impl GgufArray {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::String(values) => values.len(),
            Self::Array(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of the element type.
    pub fn element_type(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        }
    }

    /// The elements of an integer array of any width, where they fit.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        Some(match self {
            Self::U8(values) => values.iter().map(|&value| value.into()).collect(),
            Self::I8(values) => values.iter().map(|&value| value.into()).collect(),
            Self::U16(values) => values.iter().map(|&value| value.into()).collect(),
            Self::I16(values) => values.iter().map(|&value| value.into()).collect(),
            Self::U32(values) => values.iter().map(|&value| value.into()).collect(),
            Self::I32(values) => values.iter().map(|&value| value.into()).collect(),
            Self::I64(values) => values.clone(),
            Self::U64(values) => {
                values.iter().map(|&value| i64::try_from(value).ok()).collect::<Option<_>>()?
            }
            _ => return None,
        })
    }
}

impl GgufValue {
    /// Name of the type, for messages: `u32`, `array of 49152 string`.
    pub fn type_name(&self) -> String {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(array) => return format!("array of {} {}", array.len(), array.element_type()),
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        }
        .to_owned()
    }

    /// An integer of any width.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }
}

/// One line for `info`: scalars as they are, arrays as their type and length.
impl fmt::Display for GgufValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32(value) => write!(f, "{value}"),
            Self::F64(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::String(value) => f.write_str(value),
            Self::Array(_) => f.write_str(&self.type_name()),
            other => write!(f, "{}", other.integer().unwrap_or_default()),
        }
    }
}

/// Reads a value of the given type id.
pub(super) fn read(cursor: &mut Cursor, kind: u32, place: Place) -> Result<GgufValue, CheckpointError> {
    Ok(match kind {
        0 => GgufValue::U8(u8::from_le_bytes(cursor.array(place)?)),
        1 => GgufValue::I8(i8::from_le_bytes(cursor.array(place)?)),
        2 => GgufValue::U16(u16::from_le_bytes(cursor.array(place)?)),
        3 => GgufValue::I16(i16::from_le_bytes(cursor.array(place)?)),
        4 => GgufValue::U32(u32::from_le_bytes(cursor.array(place)?)),
        5 => GgufValue::I32(i32::from_le_bytes(cursor.array(place)?)),
        6 => GgufValue::F32(f32::from_le_bytes(cursor.array(place)?)),
        7 => GgufValue::Bool(boolean(cursor, place)?),
        8 => GgufValue::String(cursor.string(place)?.to_owned()),
        9 => GgufValue::Array(Box::new(read_array(cursor, 1, place)?)),
        10 => GgufValue::U64(u64::from_le_bytes(cursor.array(place)?)),
        11 => GgufValue::I64(i64::from_le_bytes(cursor.array(place)?)),
        12 => GgufValue::F64(f64::from_le_bytes(cursor.array(place)?)),
        _ => return Err(cursor.error(place, format!("value type {kind}"), "a type from 0 to 12")),
    })
}

fn read_array(cursor: &mut Cursor, depth: usize, place: Place) -> Result<GgufArray, CheckpointError> {
    if depth > DEEPEST_ARRAY {
        let expected = format!("at most {DEEPEST_ARRAY}");
        return Err(cursor.error(place, format!("arrays nested {depth} deep"), expected));
    }
    let kind = cursor.u32(place)?;
    Ok(match kind {
        0 => GgufArray::U8(numbers(cursor, place, u8::from_le_bytes)?),
        1 => GgufArray::I8(numbers(cursor, place, i8::from_le_bytes)?),
        2 => GgufArray::U16(numbers(cursor, place, u16::from_le_bytes)?),
        3 => GgufArray::I16(numbers(cursor, place, i16::from_le_bytes)?),
        4 => GgufArray::U32(numbers(cursor, place, u32::from_le_bytes)?),
        5 => GgufArray::I32(numbers(cursor, place, i32::from_le_bytes)?),
        6 => GgufArray::F32(numbers(cursor, place, f32::from_le_bytes)?),
        7 => {
            let count = cursor.count(1, place)?;
            let mut values = Vec::with_capacity(count);
            for _ in 0..count {
                values.push(boolean(cursor, place)?);
            }
            GgufArray::Bool(values)
        }
        8 => GgufArray::String(strings(cursor, place)?),
        9 => {
            // Type and count of an inner array take 12 bytes.
            let count = cursor.count(12, place)?;
            let mut values = Vec::with_capacity(count);
            for _ in 0..count {
                values.push(read_array(cursor, depth + 1, place)?);
            }
            GgufArray::Array(values)
        }
        10 => GgufArray::U64(numbers(cursor, place, u64::from_le_bytes)?),
        11 => GgufArray::I64(numbers(cursor, place, i64::from_le_bytes)?),
        12 => GgufArray::F64(numbers(cursor, place, f64::from_le_bytes)?),
        _ => return Err(cursor.error(place, format!("element type {kind}"), "a type from 0 to 12")),
    })
}

fn numbers<const N: usize, T>(
    cursor: &mut Cursor,
    place: Place,
    decode: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, CheckpointError> {
    let count = cursor.count(N, place)?;
    // No overflow: `count` was limited by the bytes that are left.
    let bytes = cursor.take(count * N, place)?;
    Ok(bytes.as_chunks::<N>().0.iter().map(|bytes| decode(*bytes)).collect())
}

fn boolean(cursor: &mut Cursor, place: Place) -> Result<bool, CheckpointError> {
    let [byte] = cursor.array(place)?;
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(cursor.error(place, format!("the byte {other}"), "0 or 1, since it is a bool")),
    }
}

fn strings(cursor: &mut Cursor, place: Place) -> Result<Strings, CheckpointError> {
    // Every string has a length of 8 bytes.
    let count = cursor.count(8, place)?;
    let mut texts = Vec::with_capacity(count);
    let mut length = 0;
    for _ in 0..count {
        let text = cursor.string(place)?;
        length += text.len();
        texts.push(text);
    }
    let mut strings = Strings::with_capacity(count, length);
    for text in texts {
        strings.push(text);
    }
    Ok(strings)
}
