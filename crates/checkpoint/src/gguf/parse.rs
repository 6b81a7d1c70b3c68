//! The header of one GGUF file, versions 2 and 3.
//!
//! Layout (little endian): magic, version, tensor count, metadata count, metadata, tensor descriptions, padding up to
//! `general.alignment`, tensor data. Offsets of tensors count from the start of the data.

use std::path::Path;

use super::cursor::{Cursor, Place};
use super::ggml_type::{self, TypeId};
use super::metadata::Metadata;
use super::value;
use crate::error::quoted;
use crate::names::NameIndex;
use crate::tensor::{SizeError, TensorEntry};
use crate::{CheckpointError, DType};

const MAGIC: [u8; 4] = *b"GGUF";
const DEFAULT_ALIGNMENT: u32 = 32;
/// Dimensions that ggml knows.
const MOST_DIMENSIONS: u32 = 4;
/// Bytes of the smallest metadata entry: a name of one letter, a type, one byte.
const LEAST_ENTRY: usize = 8 + 1 + 4 + 1;
/// Bytes of the smallest tensor description: a name of one letter, one dimension, a type, an offset.
const LEAST_TENSOR: usize = 8 + 1 + 4 + 8 + 4 + 8;

/// Everything the header of a GGUF file says, checked against the size of the file.
#[derive(Clone, Debug)]
pub struct GgufHeader {
    /// Format version: 2 or 3.
    pub version: u32,
    /// Alignment of the data and of every tensor in it, in bytes.
    pub alignment: usize,
    /// Key-value metadata.
    pub metadata: Metadata,
    /// Tensors in file order.
    pub tensors: Vec<TensorEntry>,
}

/// Parses the header of a GGUF file. `file` is only used in messages.
///
/// The memory it takes is bounded by a small multiple of `bytes.len()`.
///
/// # Errors
/// When the bytes are no GGUF file of version 2 or 3, or the header contradicts itself or the size of the file.
pub fn parse(file: &Path, bytes: &[u8]) -> Result<GgufHeader, CheckpointError> {
    let mut cursor = Cursor::new(file, bytes);
    let version = read_version(&mut cursor)?;
    let tensor_count = cursor.count(LEAST_TENSOR, Place::Head("tensor count"))?;
    let entry_count = cursor.count(LEAST_ENTRY, Place::Head("metadata count"))?;
    let mut entries = Vec::with_capacity(entry_count);
    for index in 0..entry_count {
        let key = named(&mut cursor, Place::Key(index))?;
        let place = Place::Value(key);
        let kind = cursor.u32(place)?;
        entries.push((key.to_owned(), value::read(&mut cursor, kind, place)?));
    }
    let metadata = Metadata::new(file, entries)?;
    let alignment = read_alignment(file, &metadata)?;
    // Asked again, since the metadata have taken their share of the bytes that were left.
    let most = cursor.remaining() / LEAST_TENSOR;
    if tensor_count > most {
        let found = format!("a count of {tensor_count}");
        let expected = format!("at most {most}, since {} bytes follow the metadata", cursor.remaining());
        return Err(cursor.error(Place::Head("tensor count"), found, expected));
    }
    let mut tensors = Vec::with_capacity(tensor_count);
    for index in 0..tensor_count {
        tensors.push(read_tensor(&mut cursor, index, alignment)?);
    }
    place_tensors(file, &mut tensors, bytes.len(), cursor.position(), alignment)?;
    Ok(GgufHeader { version, alignment, metadata, tensors })
}

fn read_version(cursor: &mut Cursor) -> Result<u32, CheckpointError> {
    let place = Place::Head("magic");
    if cursor.remaining() == 0 {
        return Err(cursor.error(place, "an empty file", "a GGUF file; download it again"));
    }
    let magic: [u8; 4] = cursor.array(place)?;
    if magic != MAGIC {
        let found = format!("\"{}\"", magic.escape_ascii());
        return Err(cursor.error(place, found, "\"GGUF\"; this is not a GGUF file"));
    }
    let place = Place::Head("version");
    let version = cursor.u32(place)?;
    let expected = "version 2 or 3";
    match version {
        2 | 3 => Ok(version),
        1 => Err(cursor.error(place, "version 1", format!("{expected}; convert the model again"))),
        _ if matches!(version.swap_bytes(), 1..=3) => Err(cursor.error(
            place,
            "a big-endian file",
            "a little-endian file; get that variant of the model",
        )),
        other => Err(cursor.error(place, format!("version {other}"), expected)),
    }
}

/// A name that is not empty.
fn named<'a>(cursor: &mut Cursor<'a>, place: Place) -> Result<&'a str, CheckpointError> {
    let name = cursor.string(place)?;
    if name.is_empty() {
        return Err(cursor.error(place, "an empty name", "at least one letter"));
    }
    Ok(name)
}

fn read_alignment(file: &Path, metadata: &Metadata) -> Result<usize, CheckpointError> {
    let key = "general.alignment";
    let alignment = metadata.optional::<u32>(key)?.unwrap_or(DEFAULT_ALIGNMENT);
    match usize::try_from(alignment) {
        Ok(size) if size.is_power_of_two() => Ok(size),
        _ => Err(CheckpointError::malformed(file, format!("metadata {key:?}"), alignment, "a power of two")),
    }
}

/// Reads one description; its `start` still counts from the start of the data.
fn read_tensor(cursor: &mut Cursor, index: usize, alignment: usize) -> Result<TensorEntry, CheckpointError> {
    let name = named(cursor, Place::TensorName(index))?;
    let shape = read_shape(cursor, name)?;
    let dtype = read_type(cursor, name)?;
    let place = Place::Tensor(name, "shape");
    let (_, bytes) = TensorEntry::sizes(dtype, &shape).map_err(|error| match error {
        SizeError::TooLarge => cursor.error(place, format!("{shape:?}"), "a size that fits in memory"),
        SizeError::Ragged { unit, block } => {
            let expected = format!("a multiple of {block}, since {dtype} stores blocks of {block}");
            cursor.error(place, format!("rows of {unit} elements"), expected)
        }
    })?;
    let place = Place::Tensor(name, "offset");
    let offset = cursor.u64(place)?;
    let Ok(start) = usize::try_from(offset) else {
        return Err(cursor.error(place, offset, "an offset inside the file"));
    };
    if start % alignment != 0 {
        return Err(cursor.error(place, offset, format!("a multiple of the alignment {alignment}")));
    }
    Ok(TensorEntry { name: name.to_owned(), dtype, shape, start, bytes })
}

fn read_shape(cursor: &mut Cursor, name: &str) -> Result<Vec<usize>, CheckpointError> {
    let place = Place::Tensor(name, "number of dimensions");
    let rank = cursor.u32(place)?;
    if !(1..=MOST_DIMENSIONS).contains(&rank) {
        return Err(cursor.error(place, rank, format!("1 to {MOST_DIMENSIONS}")));
    }
    let place = Place::Tensor(name, "shape");
    let mut shape = Vec::with_capacity(rank as usize);
    for _ in 0..rank {
        let size = cursor.u64(place)?;
        match usize::try_from(size) {
            Ok(size) if size > 0 => shape.push(size),
            _ => return Err(cursor.error(place, format!("a dimension of {size}"), "at least 1")),
        }
    }
    // GGUF stores the contiguous dimension first.
    shape.reverse();
    Ok(shape)
}

fn read_type(cursor: &mut Cursor, name: &str) -> Result<DType, CheckpointError> {
    let place = Place::Tensor(name, "type");
    let id = cursor.u32(place)?;
    match ggml_type::lookup(id) {
        TypeId::Known(dtype) => Ok(dtype),
        TypeId::NameOnly(known) => {
            let found = format!("{known} (type {id}), whose layout was withdrawn or is not known");
            Err(cursor.error(place, found, format!("one of {}", ggml_type::supported_names())))
        }
        TypeId::Unknown => {
            let expected = format!("one of {}", ggml_type::supported_names());
            Err(cursor.error(place, format!("the unknown type {id}"), expected))
        }
    }
}

/// Turns offsets into positions in the file, and checks that the tensors lie inside it, apart from each other, under
/// names of their own.
fn place_tensors(
    file: &Path,
    tensors: &mut [TensorEntry],
    file_size: usize,
    header_end: usize,
    alignment: usize,
) -> Result<(), CheckpointError> {
    // A file without tensors may end without padding, even before the data would start.
    let data_start = header_end.checked_next_multiple_of(alignment);
    for tensor in &mut *tensors {
        let start = data_start.and_then(|data| data.checked_add(tensor.start));
        let end = start.and_then(|start| start.checked_add(tensor.bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_size => tensor.start = start,
            _ => {
                let found = format!(
                    "{} bytes at offset {} of the data, which starts at {}",
                    tensor.bytes,
                    tensor.start,
                    data_start.unwrap_or(header_end)
                );
                let expected =
                    format!("an end within the {file_size} bytes of the file; it is cut short or damaged");
                let place = Place::Tensor(&tensor.name, "data");
                return Err(CheckpointError::malformed(file, place, found, expected));
            }
        }
    }
    NameIndex::build(tensors.len(), |at| &tensors[at].name).map_err(|(first, second)| {
        let found =
            format!("the name {} twice, as tensors {first} and {second}", quoted(&tensors[first].name));
        CheckpointError::malformed(file, "tensor names", found, "every name once")
    })?;
    refuse_overlaps(file, tensors)
}

fn refuse_overlaps(file: &Path, tensors: &[TensorEntry]) -> Result<(), CheckpointError> {
    let mut by_start: Vec<&TensorEntry> = tensors.iter().collect();
    by_start.sort_unstable_by_key(|tensor| (tensor.start, tensor.bytes));
    for pair in by_start.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if before.start + before.bytes > after.start {
            let found = format!("{} up to byte {}", quoted(&before.name), before.start + before.bytes);
            let expected = format!("its end before {}, which starts at {}", quoted(&after.name), after.start);
            return Err(CheckpointError::malformed(file, "overlapping tensors", found, expected));
        }
    }
    Ok(())
}
