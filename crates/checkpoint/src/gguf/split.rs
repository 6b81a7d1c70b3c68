//! Models split over several GGUF files, named `<prefix>-00001-of-00003.gguf`.
//!
//! Every part is a GGUF file of its own with `split.no` (from 0), `split.count` and `split.tensors.count` (of all parts
//! together). The model's metadata are those of the first part.

use std::path::{Path, PathBuf};

use super::metadata::Metadata;
use super::parse::{GgufHeader, parse};
use crate::CheckpointError;
use crate::mmap::MappedFile;
use crate::table::TensorTable;

/// All files of a GGUF model.
pub(crate) struct GgufParts {
    pub(crate) table: TensorTable,
    pub(crate) metadata: Metadata,
}

/// Opens a GGUF file, and with it all other parts where it is one of several.
pub(crate) fn open_parts(path: &Path) -> Result<GgufParts, CheckpointError> {
    let file = MappedFile::open(path)?;
    let header = parse(path, file.bytes())?;
    let name = PartName::of(path);
    let count = header.metadata.optional::<u16>("split.count")?.unwrap_or(1).max(1);
    if count == 1 {
        if let Some(name) = name.filter(|name| name.count > 1) {
            let found = format!("no split.count in a file named as part {} of {}", name.number, name.count);
            let expected = format!("split.count {}; part of the model would be missing", name.count);
            return Err(CheckpointError::malformed(path, "metadata \"split.count\"", found, expected));
        }
        let tensors = header.tensors.into_iter().map(|tensor| (0, tensor)).collect();
        let table = TensorTable::new(vec![file], tensors)?;
        return Ok(GgufParts { table, metadata: header.metadata });
    }
    let Some(name) = name.filter(|name| name.count == count) else {
        let expected = format!("a name that ends in -00001-of-{count:05}.gguf, since split.count is {count}");
        return Err(CheckpointError::malformed(path, "file name", path.display(), expected));
    };
    collect(&name, count)
}

/// Whether two files are named as parts of one model.
pub(crate) fn same_model(one: &Path, other: &Path) -> bool {
    match (PartName::of(one), PartName::of(other)) {
        (Some(one), Some(other)) => one.prefix == other.prefix && one.count == other.count,
        _ => false,
    }
}

fn collect(name: &PartName, count: u16) -> Result<GgufParts, CheckpointError> {
    let mut files = Vec::new();
    let mut tensors = Vec::new();
    let mut first: Option<GgufHeader> = None;
    for part in 0..count {
        let path = name.sibling(part);
        let file = MappedFile::open(&path)?;
        let mut header = parse(&path, file.bytes())?;
        expect(&header, &path, "split.no", part.into())?;
        expect(&header, &path, "split.count", count.into())?;
        let in_file = files.len();
        tensors.extend(std::mem::take(&mut header.tensors).into_iter().map(|tensor| (in_file, tensor)));
        files.push(file);
        first.get_or_insert(header);
    }
    let Some(first) = first else {
        return Err(CheckpointError::malformed(
            &name.sibling(0),
            "metadata \"split.count\"",
            0,
            "at least 1",
        ));
    };
    expect(&first, &name.sibling(0), "split.tensors.count", tensors.len())?;
    Ok(GgufParts { table: TensorTable::new(files, tensors)?, metadata: first.metadata })
}

/// Checks that an integer of the metadata is `actual`, a number known from elsewhere.
fn expect(header: &GgufHeader, file: &Path, key: &str, actual: usize) -> Result<(), CheckpointError> {
    let stored = header.metadata.required::<u64>(key)?;
    if usize::try_from(stored) == Ok(actual) {
        return Ok(());
    }
    let expected = format!("{actual}; the parts do not belong together, or one is missing");
    Err(CheckpointError::malformed(file, format!("metadata {key:?}"), stored, expected))
}

/// The name of a part, taken apart.
struct PartName {
    folder: PathBuf,
    prefix: String,
    /// From 1, as in the name.
    number: u16,
    count: u16,
}

impl PartName {
    /// `None` for a file that is not named as a part.
    fn of(path: &Path) -> Option<Self> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        if number.len() != 5 || count.len() != 5 {
            return None;
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Some(Self {
            folder,
            prefix: prefix.to_owned(),
            number: number.parse().ok()?,
            count: count.parse().ok()?,
        })
    }

    /// Path of the part with this number, counted from 0.
    fn sibling(&self, part: u16) -> PathBuf {
        let number = u32::from(part) + 1;
        self.folder.join(format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count))
    }
}
