//! Files that appear complete or not at all: written beside their place, then renamed into it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file under way. Dropped before [`finish`](Self::finish), it leaves nothing behind.
pub(crate) struct PendingFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    finished: bool,
}

impl PendingFile {
    /// Starts a file that will get the name `path`.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this is no name of a file"))?
            .to_owned();
        if path.exists() && !path.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is something else than a file"));
        }
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary)?;
        Ok(Self { file, temporary, path: path.to_path_buf(), finished: false })
    }

    /// Where to write.
    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut pending = PendingFile::create(path)?;
    pending.file().write_all(bytes)?;
    pending.finish()
}
