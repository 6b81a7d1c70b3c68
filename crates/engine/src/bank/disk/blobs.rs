//! Blobs: files named by the SHA-256 of their bytes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use samebit_checkpoint::hex;
use sha2::{Digest as _, Sha256};

use super::record::{Blob, Digest};

/// Files that are not complete yet begin with this.
const UNFINISHED: &str = ".writing-";

/// The folder of blobs.
#[derive(Clone, Debug)]
pub(crate) struct Blobs(PathBuf);

/// Why a blob gave no bytes.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is not there, or not what it was.
    Corrupt,
    /// The system would not read it.
    Io,
}

impl Blobs {
    /// The blobs of a session folder, whose own folder is made.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let pages = folder.join("pages");
        fs::create_dir_all(&pages)?;
        Ok(Self(pages))
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        let name = hex(digest);
        self.0.join(&name[..2]).join(name)
    }

    /// Writes bytes beside their place, and renames them into it once they are on the disk. The folder itself is not
    /// waited for: a blob lost to a power cut is found missing, and its entry dropped.
    pub(crate) fn write(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(digest);
        let folder = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder)?;
        let unfinished = folder.join(format!("{UNFINISHED}{}", hex(digest)));
        let written = File::create(&unfinished).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        let result = written.and_then(|()| fs::rename(&unfinished, &path));
        if result.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        result
    }

    /// Reads a blob and checks every byte.
    pub(crate) fn read(&self, blob: &Blob) -> Result<Vec<u8>, ReadError> {
        let path = self.path(&blob.digest);
        // The length first: a file that someone made huge must not be read.
        match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() == blob.bytes => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(ReadError::Io),
            _ => return Err(ReadError::Corrupt),
        }
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::Corrupt,
            _ => ReadError::Io,
        })?;
        if Sha256::digest(&bytes).as_slice() != blob.digest {
            return Err(ReadError::Corrupt);
        }
        Ok(bytes)
    }

    /// Whether there is a file of the right length. Its bytes are checked when they are read.
    pub(crate) fn seems_whole(&self, blob: &Blob) -> bool {
        fs::metadata(self.path(&blob.digest)).is_ok_and(|file| file.is_file() && file.len() == blob.bytes)
    }

    pub(crate) fn remove(&self, digest: &Digest) {
        // One that cannot be removed is an orphan, to be collected at the next opening.
        let _ = fs::remove_file(self.path(digest));
    }

    /// Removes unfinished files, and blobs that no entry has. Files with other names are not ours.
    pub(crate) fn collect(&self, kept: &HashSet<Digest>) -> io::Result<()> {
        let kept: HashSet<String> = kept.iter().map(|digest| hex(digest)).collect();
        for folder in fs::read_dir(&self.0)? {
            let folder = folder?.path();
            if !folder.is_dir() {
                continue;
            }
            for file in fs::read_dir(&folder)? {
                let file = file?;
                let name = file.file_name().to_string_lossy().into_owned();
                let is_blob = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
                if name.starts_with(UNFINISHED) || (is_blob && !kept.contains(&name)) {
                    let _ = fs::remove_file(file.path());
                }
            }
        }
        Ok(())
    }
}
