//! Files in the cache: which are verified, who may write them, how they get their final names.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::digest::Digest;
use super::error::PullError;
use super::settings::Settings;

/// What a file in the cache must be.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Digest of the bytes.
    pub(super) digest: Digest,
}

/// The memory of a digest that was right: it holds as long as size and modification time do.
#[derive(PartialEq, serde::Serialize, serde::Deserialize)]
struct Stamp {
    digest: Digest,
    bytes: u64,
    modified_ns: u128,
}

/// What lies at a path of the cache.
#[derive(Debug, PartialEq)]
pub(super) enum State {
    /// The file that is expected.
    Right,
    /// Another file; its digest where the size was right.
    Wrong(Option<Digest>),
    /// Nothing.
    Absent,
}

/// Whether `path` was verified before and did not change since. Reads only the stamp beside it.
pub(super) fn is_verified(path: &Path, expected: &Expected) -> bool {
    let Some(now) = stamp_now(path, expected.digest.clone()) else { return false };
    let Ok(text) = fs::read(beside(path, "verified")) else { return false };
    now.bytes == expected.bytes && serde_json::from_slice::<Stamp>(&text).is_ok_and(|then| then == now)
}

/// Reads the file at `path`, where there is one, and remembers when it was right.
pub(super) fn verify(path: &Path, expected: &Expected, settings: &Settings) -> Result<State, PullError> {
    let bytes = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Absent),
        Err(error) => return Err(PullError::io("read", path)(error)),
    };
    if bytes != expected.bytes {
        return Ok(State::Wrong(None));
    }
    let found = expected.digest.of_file(path, bytes, &settings.byte_bar("checking digest", bytes))?;
    if found != expected.digest {
        return Ok(State::Wrong(Some(found)));
    }
    // Without the stamp the file is read again next time: slower, not wrong.
    if let Some(stamp) = stamp_now(path, found)
        && let Ok(text) = serde_json::to_vec(&stamp)
    {
        let _ = replace(&beside(path, "verified"), &text);
    }
    Ok(State::Right)
}

/// Gives the finished file `from` its final name if its bytes are right; deletes it and complains about `source` if not.
pub(super) fn install(
    from: &Path,
    path: &Path,
    expected: &Expected,
    source: &str,
    settings: &Settings,
) -> Result<(), PullError> {
    let state = verify(from, expected, settings)?;
    let stamp = beside(from, "verified");
    if let State::Right = state {
        fs::rename(from, path).map_err(PullError::io("rename to", path))?;
        // A rename keeps the modification time, so the stamp stays true under the new name.
        let _ = fs::rename(stamp, beside(path, "verified"));
        return Ok(());
    }
    let found = match state {
        State::Wrong(Some(digest)) => digest.to_string(),
        _ => format!("of another size ({} bytes instead of {})", length(from), expected.bytes),
    };
    remove(from)?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Err(PullError::WrongDigest {
        from: source.to_owned(),
        file,
        found,
        expected: expected.digest.to_string(),
    })
}

/// Bytes of the file at `path`; 0 where there is none.
pub(super) fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// Deletes a file; fine if it is gone already.
pub(super) fn remove(path: &Path) -> Result<(), PullError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(PullError::io("delete", path)(error)),
        _ => Ok(()),
    }
}

/// Makes a folder and those above it.
pub(super) fn create_folder(path: &Path) -> Result<(), PullError> {
    fs::create_dir_all(path).map_err(PullError::io("create the folder", path))
}

/// Waits until no other process works on `path`; until the returned file is dropped, none will.
pub(super) fn lock(path: &Path, settings: &Settings) -> Result<File, PullError> {
    let lock_path = beside(path, "lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
    let lock = lock.map_err(PullError::io("open", &lock_path))?;
    match lock.try_lock() {
        Ok(()) => return Ok(lock),
        Err(TryLockError::WouldBlock) => {
            settings.say("another samebit is fetching this model; waiting for it");
        }
        Err(TryLockError::Error(error)) => return Err(PullError::io("lock", &lock_path)(error)),
    }
    lock.lock().map_err(PullError::io("lock", &lock_path))?;
    Ok(lock)
}

/// Writes a small file so that readers see the old content or the new one.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), PullError> {
    let new = beside(path, "new");
    fs::write(&new, content).map_err(PullError::io("write", &new))?;
    fs::rename(&new, path).map_err(PullError::io("rename to", path))
}

/// `path` with `.suffix` after its file name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

fn stamp_now(path: &Path, digest: Digest) -> Option<Stamp> {
    let found = fs::metadata(path).ok()?;
    let modified_ns = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    Some(Stamp { digest, bytes: found.len(), modified_ns })
}
