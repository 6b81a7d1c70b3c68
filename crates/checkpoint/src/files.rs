//! Small files: read within a limit, written so that they appear complete or not at all.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::CheckpointError;

/// Reads a file of at most `most` bytes.
pub(crate) fn read(path: &Path, most: u64) -> Result<Vec<u8>, CheckpointError> {
    let file = File::open(path).map_err(CheckpointError::io("open", path))?;
    let mut bytes = Vec::new();
    // One byte more than allowed, to tell a file that is too large from one that just fits.
    file.take(most + 1).read_to_end(&mut bytes).map_err(CheckpointError::io("read", path))?;
    if bytes.len() as u64 > most {
        let found = format!("more than {most} bytes");
        return Err(CheckpointError::malformed(path, "size", found, format!("at most {most} bytes")));
    }
    Ok(bytes)
}

/// Writes a temporary file beside `path` and renames it into place. On failure nothing is left behind.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    /// Tells apart writers of one process.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let temporary = path.with_file_name(name);
    let written = File::create(&temporary).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()
    });
    let result = written.and_then(|()| std::fs::rename(&temporary, path));
    if result.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    result
}
