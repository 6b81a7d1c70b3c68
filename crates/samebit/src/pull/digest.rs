//! Digests of files: SHA-256, and the object name that git gives a file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use indicatif::ProgressBar;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::error::PullError;

/// What the bytes of a file must be.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Digest {
    /// SHA-256 of the bytes, in lower-case hexadecimal.
    Sha256(String),
    /// SHA-1 of `blob SIZE\0` and the bytes: all that the hub tells about small files.
    GitBlob(String),
}

impl Digest {
    /// The digest of the same kind of the file at `path`, which has `bytes` bytes.
    pub(super) fn of_file(&self, path: &Path, bytes: u64, bar: &ProgressBar) -> Result<Self, PullError> {
        match self {
            Self::Sha256(_) => Ok(Self::Sha256(hash(Sha256::new(), path, bar)?)),
            Self::GitBlob(_) => {
                let start = Sha1::new().chain_update(format!("blob {bytes}\0"));
                Ok(Self::GitBlob(hash(start, path, bar)?))
            }
        }
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sha256(hex) => write!(f, "sha256:{hex}"),
            Self::GitBlob(hex) => write!(f, "git:{hex}"),
        }
    }
}

fn hash<D: sha2::Digest>(mut state: D, path: &Path, bar: &ProgressBar) -> Result<String, PullError> {
    let mut file = File::open(path).map_err(PullError::io("open", path))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(PullError::io("read", path))?;
        if count == 0 {
            break;
        }
        state.update(&buffer[..count]);
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    Ok(state.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hello\n").unwrap();
        let of = |kind: Digest| kind.of_file(file.path(), 6, &ProgressBar::hidden()).unwrap().to_string();
        assert_eq!(
            of(Digest::Sha256(String::new())),
            "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
        );
        // `git hash-object` of the same file.
        assert_eq!(of(Digest::GitBlob(String::new())), "git:ce013625030ba8dba906f756967f9e9ca394464a");
    }
}
