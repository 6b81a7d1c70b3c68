//! A model over several safetensors files, and the index that tells which tensor is in which.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::header::parse;
use crate::error::{quoted, short};
use crate::json::TextPairs;
use crate::mmap::MappedFile;
use crate::names::NameIndex;
use crate::table::TensorTable;
use crate::{CheckpointError, Strings, files};

/// Name of the index in a model folder.
pub(crate) const INDEX_NAME: &str = "model.safetensors.index.json";
/// Largest index that is read: a model of 200,000 tensors has one of 20 MB.
const LARGEST_INDEX: u64 = 64 << 20;

/// `model.safetensors.index.json`, read and checked by itself.
pub(crate) struct Index {
    pub(crate) file: PathBuf,
    /// File names without folder, each once.
    shards: Strings,
    /// Names of the tensors, and for each the position of its file in `shards`.
    names: Strings,
    shard_of: Vec<u32>,
    pub(crate) size: u64,
    pub(crate) sha256: [u8; 32],
}

#[derive(Deserialize)]
struct IndexText {
    weight_map: TextPairs,
}

impl Index {
    /// Reads an index file.
    pub(crate) fn read(file: &Path) -> Result<Self, CheckpointError> {
        let bytes = files::read(file, LARGEST_INDEX)?;
        let text: IndexText = serde_json::from_slice(&bytes).map_err(|error| {
            CheckpointError::malformed(
                file,
                "JSON",
                short(&error),
                "an object with weight_map, from tensor to file",
            )
        })?;
        let TextPairs { keys: names, values } = text.weight_map;
        NameIndex::build(names.len(), |at| names.get(at).unwrap_or_default()).map_err(|(first, _)| {
            let found = format!("the tensor {} twice", quoted(names.get(first).unwrap_or_default()));
            CheckpointError::malformed(file, "weight_map", found, "every tensor once")
        })?;
        let mut shards: Vec<&str> = values.iter().collect();
        shards.sort_unstable();
        shards.dedup();
        if let Some(shard) = shards.iter().find(|shard| !is_file_name(shard)) {
            let expected = "the name of a file in the same folder";
            return Err(CheckpointError::malformed(file, "weight_map", quoted(shard), expected));
        }
        // Always found, since `shards` was made of `values`; and a file of 64 MiB names fewer than 2^32.
        let shard_of = values.iter().filter_map(|value| shards.binary_search(&value).ok()?.try_into().ok());
        let shard_of = shard_of.collect();
        let shards = shards.into_iter().collect();
        let sha256 = Sha256::digest(&bytes).into();
        Ok(Self { file: file.to_path_buf(), shards, names, shard_of, size: bytes.len() as u64, sha256 })
    }

    /// Whether the index names this file.
    pub(crate) fn lists(&self, file: &Path) -> bool {
        file.file_name().is_some_and(|name| self.shards.iter().any(|shard| name == shard))
    }

    /// Opens all files that the index names, and checks that they hold what it says.
    pub(crate) fn open(&self) -> Result<TensorTable, CheckpointError> {
        let mut files = Vec::new();
        let mut tensors = Vec::new();
        for shard in self.shards.iter() {
            let path = self.file.with_file_name(shard);
            if !path.is_file() {
                let place = format!("weight_map, file {}", quoted(shard));
                let expected = "that file in the same folder; download it";
                return Err(CheckpointError::malformed(&self.file, place, "no such file", expected));
            }
            let file = MappedFile::open(&path)?;
            let header = parse(&path, file.bytes())?;
            let position = files.len();
            tensors.extend(header.tensors.into_iter().map(|tensor| (position, tensor)));
            files.push(file);
        }
        let table = TensorTable::new(files, tensors)?;
        self.check(&table)?;
        Ok(table)
    }

    /// Checks that every tensor is in the file that the index names.
    fn check(&self, table: &TensorTable) -> Result<(), CheckpointError> {
        for (name, &shard) in self.names.iter().zip(&self.shard_of) {
            let shard = self.shards.get(shard as usize).unwrap_or_default();
            let found = match table.position(name).map(|position| table.path_of(position)) {
                Some(path) if path.file_name().is_some_and(|file| file == shard) => continue,
                Some(path) => format!("it in {}", path.display()),
                None => "no such tensor in any of the files".to_owned(),
            };
            let place = format!("weight_map, tensor {}", quoted(name));
            return Err(CheckpointError::malformed(&self.file, place, found, format!("it in {shard}")));
        }
        Ok(())
    }
}

/// Whether a text names a file of the same folder and nothing else.
fn is_file_name(text: &str) -> bool {
    Path::new(text).file_name().is_some_and(|name| name == text) && !text.contains('\\')
}

/// Opens a model of one file.
pub(crate) fn open_single(path: &Path) -> Result<TensorTable, CheckpointError> {
    let file = MappedFile::open(path)?;
    let header = parse(path, file.bytes())?;
    TensorTable::new(vec![file], header.tensors.into_iter().map(|tensor| (0, tensor)).collect())
}
