//! The header of one safetensors file.
//!
//! Layout: header length (u64, little endian), a JSON object, tensor data. Each entry of the object names a tensor's
//! type, shape and byte range in the data; `__metadata__` holds texts. The ranges must cover the data without gap or
//! overlap.

use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{quoted, short};
use crate::json::TextPairs;
use crate::names::NameIndex;
use crate::tensor::{SizeError, TensorEntry};
use crate::{CheckpointError, DType};

/// Largest header that is read, as the format's own library has it.
const LARGEST_HEADER: usize = 100_000_000;
/// Bytes before the header: its length.
const LENGTH_BYTES: usize = 8;
/// Dimensions that a tensor may have; published ones have up to five.
const MOST_DIMENSIONS: usize = 8;
/// The entry that is no tensor.
const METADATA: &str = "__metadata__";

/// Everything the header of a safetensors file says, checked against the size of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsHeader {
    metadata: TextPairs,
    /// Tensors in file order.
    pub tensors: Vec<TensorEntry>,
}

impl SafetensorsHeader {
    /// The texts under `__metadata__`, in file order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.keys.iter().zip(self.metadata.values.iter())
    }
}

/// Parses the header of a safetensors file. `file` is only used in messages.
///
/// The memory it takes is bounded by a small multiple of `bytes.len()`.
///
/// # Errors
/// When the header is damaged, contradicts itself or the size of the file, or leaves bytes of the data unclaimed.
pub fn parse(file: &Path, bytes: &[u8]) -> Result<SafetensorsHeader, CheckpointError> {
    let (header, data_size) = split(file, bytes)?;
    let malformed = |place: &str, found: String, expected: &str| {
        CheckpointError::malformed(file, place, found, expected.to_owned())
    };
    let text = std::str::from_utf8(header)
        .map_err(|error| malformed("header", format!("no UTF-8 at byte {}", error.valid_up_to()), "JSON"))?;
    let header: Header = serde_json::from_str(text)
        .map_err(|error| malformed("header", short(&error), "the JSON of a safetensors header"))?;
    let data_start = bytes.len() - data_size;
    let mut tensors = Vec::with_capacity(header.tensors.len());
    for (name, described) in header.tensors {
        tensors.push(described.check(file, name, data_start, data_size)?);
    }
    NameIndex::build(tensors.len(), |at| &tensors[at].name).map_err(|(first, _)| {
        malformed(
            "tensor names",
            format!("the name {} twice", quoted(&tensors[first].name)),
            "every name once",
        )
    })?;
    let keys = &header.metadata.keys;
    NameIndex::build(keys.len(), |at| keys.get(at).unwrap_or_default()).map_err(|(first, _)| {
        let key = quoted(keys.get(first).unwrap_or_default());
        malformed(METADATA, format!("the key {key} twice"), "every key once")
    })?;
    refuse_gaps_and_overlaps(file, &tensors, data_start, data_size)?;
    Ok(SafetensorsHeader { metadata: header.metadata, tensors })
}

/// The JSON of the header, and the size of the data after it.
fn split<'a>(file: &Path, bytes: &'a [u8]) -> Result<(&'a [u8], usize), CheckpointError> {
    let place = "header length";
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        let found = format!("a file of {} bytes", bytes.len());
        return Err(CheckpointError::malformed(file, place, found, "at least 8 bytes; download it again"));
    };
    let length = u64::from_le_bytes(*length);
    let most = rest.len().min(LARGEST_HEADER);
    match usize::try_from(length) {
        Ok(length) if length <= most => {
            let (header, data) = rest.split_at(length);
            Ok((header, data.len()))
        }
        _ => {
            let expected = format!(
                "at most {most} in a file of {} bytes; it is cut short, damaged, or no safetensors file",
                bytes.len()
            );
            Err(CheckpointError::malformed(file, place, length, expected))
        }
    }
}

/// The header as JSON holds it.
struct Header {
    metadata: TextPairs,
    tensors: Vec<(String, Described)>,
}

/// Description of a tensor, unchecked. Fields beyond the three are ignored, as the format's own library does.
#[derive(Deserialize)]
struct Described {
    dtype: String,
    shape: Dimensions,
    data_offsets: (u64, u64),
}

/// At most [`MOST_DIMENSIONS`] dimensions: a longer list is refused before it is read, so that it cannot fill memory.
struct Dimensions(Vec<u64>);

impl Described {
    fn check(
        self,
        file: &Path,
        name: String,
        data_start: usize,
        data_size: usize,
    ) -> Result<TensorEntry, CheckpointError> {
        let malformed = |field: &str, found: String, expected: String| {
            CheckpointError::malformed(file, format!("{field} of tensor {}", quoted(&name)), found, expected)
        };
        let Some(dtype) = DType::from_safetensors(&self.dtype) else {
            let expected = "F64, F32, F16, BF16, I64, I32, U32, U8 or another type of the format".to_owned();
            return Err(malformed("dtype", quoted(&self.dtype), expected));
        };
        let too_large = || malformed("shape", format!("{:?}", self.shape.0), "a size in memory".to_owned());
        let shape: Vec<usize> = self
            .shape
            .0
            .iter()
            .map(|&size| usize::try_from(size))
            .collect::<Result<_, _>>()
            .map_err(|_| too_large())?;
        let (_, size) = TensorEntry::sizes(dtype, &shape).map_err(|error| match error {
            SizeError::TooLarge => too_large(),
            SizeError::Ragged { unit, block } => {
                malformed("shape", format!("{unit} elements of {dtype}"), format!("a multiple of {block}"))
            }
        })?;
        let (begin, end) = self.data_offsets;
        let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
        let Some((begin, end)) = range.filter(|&(begin, end)| begin <= end && end <= data_size) else {
            let expected =
                format!("a range within the {data_size} bytes of data; the file is cut short or damaged");
            return Err(malformed("data_offsets", format!("[{begin}, {end}]"), expected));
        };
        if end - begin != size {
            let expected = format!("{size} bytes, since its shape is {shape:?} of {dtype}");
            return Err(malformed("data_offsets", format!("{} bytes", end - begin), expected));
        }
        Ok(TensorEntry { dtype, shape, start: data_start + begin, bytes: size, name })
    }
}

fn refuse_gaps_and_overlaps(
    file: &Path,
    tensors: &[TensorEntry],
    data_start: usize,
    data_size: usize,
) -> Result<(), CheckpointError> {
    let mut by_start: Vec<&TensorEntry> = tensors.iter().collect();
    by_start.sort_unstable_by_key(|tensor| (tensor.start, tensor.bytes));
    let mut end = data_start;
    let mut before = "the start of the data".to_owned();
    for tensor in by_start {
        if tensor.start != end {
            let problem = if tensor.start < end { "overlapping tensors" } else { "gap between tensors" };
            let found =
                format!("{before} up to byte {end} and {} from {}", quoted(&tensor.name), tensor.start);
            return Err(CheckpointError::malformed(file, problem, found, "tensors that touch"));
        }
        end = tensor.start + tensor.bytes;
        before = quoted(&tensor.name);
    }
    if end != data_start + data_size {
        let found = format!("{} bytes after {before}", data_start + data_size - end);
        let expected = "an end with the last tensor; the file is damaged";
        return Err(CheckpointError::malformed(file, "end of the data", found, expected));
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut metadata = None;
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name != METADATA {
                        tensors.push((name, map.next_value()?));
                    } else if metadata.is_some() {
                        return Err(A::Error::custom(format!("the key {METADATA} occurs twice")));
                    } else {
                        metadata = Some(map.next_value()?);
                    }
                }
                Ok(Header { metadata: metadata.unwrap_or_default(), tensors })
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

impl<'de> Deserialize<'de> for Dimensions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimensionsVisitor;

        impl<'de> Visitor<'de> for DimensionsVisitor {
            type Value = Dimensions;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a list of up to {MOST_DIMENSIONS} sizes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sizes: A) -> Result<Dimensions, A::Error> {
                let mut dimensions = Vec::new();
                while dimensions.len() < MOST_DIMENSIONS {
                    match sizes.next_element()? {
                        Some(size) => dimensions.push(size),
                        None => return Ok(Dimensions(dimensions)),
                    }
                }
                match sizes.next_element::<IgnoredAny>()? {
                    Some(_) => Err(A::Error::invalid_length(MOST_DIMENSIONS + 1, &self)),
                    None => Ok(Dimensions(dimensions)),
                }
            }
        }
        deserializer.deserialize_seq(DimensionsVisitor)
    }
}
