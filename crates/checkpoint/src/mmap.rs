//! Read-only memory mapping: the only module of this crate with `unsafe` code.
//!
//! **Hazard.** A mapping shows the file as it is now, not as it was when it was opened. A program that overwrites a
//! checkpoint in place while it is mapped changes weights under a running model, and one that shortens it makes reads
//! beyond the new end stop the process (`SIGBUS`). Programs that replace files by writing a new one and renaming it, as
//! downloaders do, are harmless: the mapping keeps the old file. Headers are copied out when they are parsed, so that a
//! change can falsify weights but never lead a checked offset out of the mapping.
#![allow(unsafe_code)]

use std::fs::{File, Metadata};
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::CheckpointError;

/// What the program is about to do with a range of a mapped file. Only speed and memory depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be read once, front to back.
    Sequential,
    /// It will be read soon: start reading ahead.
    WillNeed,
    /// It was read and will not be needed for a while: its memory may be dropped (the file still holds the bytes).
    Done,
}

/// A file, mapped read-only. Empty files are allowed and give no bytes.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    /// `None` for an empty file, which no system can map.
    map: Option<Mmap>,
    status: Metadata,
}

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// When the file cannot be opened or mapped, or is not a regular file.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let not_regular = || CheckpointError::NotACheckpoint {
            path: path.to_path_buf(),
            reason: "it is not a regular file".to_owned(),
        };
        // Asked before opening, since opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(CheckpointError::io("open", path))?.is_file() {
            return Err(not_regular());
        }
        let file = File::open(path).map_err(CheckpointError::io("open", path))?;
        let status = file.metadata().map_err(CheckpointError::io("read the status of", path))?;
        if !status.is_file() {
            return Err(not_regular());
        }
        let map = if status.len() == 0 {
            None
        } else {
            // SAFETY: the mapping is read-only and private to this value, and is only handed out as `&[u8]`, for which
            // every bit pattern is valid. Concurrent changes of the file are the hazard described at the module.
            Some(unsafe { Mmap::map(&file) }.map_err(CheckpointError::io("map", path))?)
        };
        Ok(Self { path: path.to_path_buf(), map, status })
    }

    /// The path it was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// Status of the file when it was opened.
    pub(crate) fn status(&self) -> &Metadata {
        &self.status
    }

    /// Tells the system how `range` is going to be used. Failures are ignored, as are systems without such hints, and
    /// the part of a range that lies outside the file.
    pub fn advise(&self, range: Range<usize>, advice: Advice) {
        let Some(map) = &self.map else { return };
        let start = range.start.min(map.len());
        let length = range.end.min(map.len()).saturating_sub(start);
        if length > 0 {
            advise_mapping(map, start, length, advice);
        }
    }
}

#[cfg(unix)]
fn advise_mapping(map: &Mmap, start: usize, length: usize, advice: Advice) {
    let _ = match advice {
        Advice::Sequential => map.advise_range(memmap2::Advice::Sequential, start, length),
        Advice::WillNeed => map.advise_range(memmap2::Advice::WillNeed, start, length),
        // SAFETY: the mapping is shared, read-only and backed by a file, so dropped pages are read again from the file
        // when they are next touched: no byte that a reader can see changes.
        Advice::Done => unsafe {
            map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, length)
        },
    };
}

#[cfg(not(unix))]
fn advise_mapping(_map: &Mmap, _start: usize, _length: usize, _advice: Advice) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_advises() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, vec![7u8; 10_000]).unwrap();
        let file = MappedFile::open(&path).unwrap();
        for advice in [Advice::Sequential, Advice::WillNeed, Advice::Done] {
            file.advise(0..10_000, advice);
            file.advise(9_000..50_000, advice);
            file.advise(usize::MAX - 1..usize::MAX, advice);
        }
        assert_eq!(file.bytes(), &[7u8; 10_000]);
    }

    #[test]
    fn an_empty_file_has_no_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        let file = MappedFile::open(&path).unwrap();
        assert_eq!(file.bytes(), b"");
        file.advise(0..10, Advice::Done);
    }

    #[test]
    fn a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let message = MappedFile::open(folder.path()).unwrap_err().to_string();
        assert!(message.contains("not a regular file"), "{message}");
    }
}
