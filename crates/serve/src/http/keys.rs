//! API keys: a file of them, read again when it changes.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// Largest key file.
const LARGEST_FILE: u64 = 1 << 20;

/// The keys of a file, one a line; empty lines and lines that begin with `#` are none.
#[derive(Debug)]
pub(crate) struct Keys {
    file: PathBuf,
    read: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    version: Version,
    /// Digests of the keys: comparing digests takes the same time however much of a key is right.
    digests: Vec<[u8; 32]>,
}

/// Tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }
}

impl Keys {
    /// Reads a key file.
    ///
    /// # Errors
    /// When it cannot be read, others may read it, or there is no key in it.
    pub(crate) fn open(file: PathBuf) -> io::Result<Self> {
        let read = read(&file)?;
        Ok(Self { file, read: Mutex::new(read) })
    }

    /// Reads the file again if it changed. What is wrong with it then is returned; the keys read before stay valid.
    pub(crate) fn refresh(&self, anyway: bool) -> io::Result<()> {
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if anyway || Version::of(&std::fs::metadata(&self.file)?) != known.version {
            *known = read(&self.file)?;
        }
        Ok(())
    }

    /// Whether the headers hold a key.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).map(|value: &axum::http::HeaderValue| value.as_bytes());
        let bearer = text(header::AUTHORIZATION.as_str()).and_then(|value| {
            let (scheme, key) = value.split_at_checked(b"bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
        });
        let known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        [bearer, text("x-api-key")].into_iter().flatten().any(|key| known.holds(key))
    }
}

impl Read {
    fn holds(&self, key: &[u8]) -> bool {
        let asked: [u8; 32] = Sha256::digest(key).into();
        // Every digest is compared in full, whatever came before.
        self.digests.iter().fold(false, |found, digest| {
            let difference = digest.iter().zip(&asked).fold(0, |sum, (a, b)| sum | (a ^ b));
            found | (difference == 0)
        })
    }
}

fn read(file: &std::path::Path) -> io::Result<Read> {
    let wrong = |problem: String| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {problem}", file.display()))
    };
    let open = std::fs::File::open(file).map_err(|error| wrong(error.to_string()))?;
    let metadata = open.metadata()?;
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(wrong(format!("others may use this key file (mode {mode:04o}): `chmod 600` it")));
    }
    if metadata.size() > LARGEST_FILE {
        return Err(wrong(format!("{} bytes, expected at most {LARGEST_FILE}", metadata.size())));
    }
    let text = io::read_to_string(open)?;
    let keys = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let digests: Vec<[u8; 32]> = keys.map(|key| Sha256::digest(key).into()).collect();
    if digests.is_empty() {
        return Err(wrong("there is no key in it: one a line".to_owned()));
    }
    Ok(Read { version: Version::of(&metadata), digests })
}
