//! SHA-256 of every file of a checkpoint, computed when asked for and remembered in a cache folder.
//!
//! A remembered digest is used only while path, size and modification time (to the nanosecond) are those it was computed
//! for. Whoever rewrites a file in place and restores its time defeats that; run without a cache to be certain.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::checkpoint::Checkpoint;
use crate::files;
use crate::mmap::{Advice, MappedFile};

/// Bytes hashed between two reports of progress.
const STEP: usize = 16 << 20;

/// Largest entry of the cache that is read; they have a few hundred bytes.
const LARGEST_ENTRY: u64 = 64 << 10;

/// Longest step in which file systems count time: two changes within one step have the same time.
const TIME_STEP_NS: u64 = 2_000_000_000;

/// Digest of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pin {
    /// File name without folder.
    pub file: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// What the cache remembers about a file.
#[derive(Debug, Deserialize, Serialize)]
struct Remembered {
    path: PathBuf,
    size: u64,
    modified_ns: u64,
    sha256: String,
}

impl Checkpoint {
    /// Digests of all files the checkpoint was read from: weights in order, then index, `config.json` and
    /// `generation_config.json` where there are any.
    ///
    /// `cache` is a folder that remembers digests of weight files; it is created when needed, and a failure to read or
    /// write it only costs time. `progress` hears how many bytes of how many are done.
    pub fn pins(&self, cache: Option<&Path>, mut progress: impl FnMut(u64, u64)) -> Vec<Pin> {
        let total = self.files().iter().map(|file| file.bytes().len() as u64).sum();
        let mut done = 0;
        let mut pins = Vec::new();
        for file in self.files() {
            let bytes = file.bytes().len() as u64;
            let sha256 = digest(file, cache, |part| progress(done + part, total));
            done += bytes;
            progress(done, total);
            pins.push(Pin { file: name(file.path()), bytes, sha256 });
        }
        if let Some(index) = self.index() {
            pins.push(Pin { file: name(&index.file), bytes: index.size, sha256: hex(&index.sha256) });
        }
        for config in [self.config(), self.generation_config()].into_iter().flatten() {
            pins.push(Pin { file: name(config.file()), bytes: config.size(), sha256: hex(&config.sha256()) });
        }
        pins
    }
}

fn digest(file: &MappedFile, cache: Option<&Path>, progress: impl FnMut(u64)) -> String {
    // Without a modification time or a canonical path there is nothing to remember a digest by.
    let identity = cache.and_then(|cache| Some((cache, Identity::of(file)?)));
    if let Some((cache, identity)) = &identity
        && let Some(sha256) = identity.recall(cache)
    {
        return sha256;
    }
    let sha256 = compute(file, progress);
    if let Some((cache, identity)) = identity {
        identity.remember(cache, &sha256);
    }
    sha256
}

fn compute(file: &MappedFile, mut progress: impl FnMut(u64)) -> String {
    let bytes = file.bytes();
    file.advise(0..bytes.len(), Advice::Sequential);
    let mut hasher = Sha256::new();
    let mut done = 0;
    for step in bytes.chunks(STEP) {
        hasher.update(step);
        done += step.len() as u64;
        progress(done);
    }
    hex(&hasher.finalize())
}

/// What a digest is remembered by.
struct Identity {
    path: PathBuf,
    size: u64,
    modified_ns: u64,
}

impl Identity {
    fn of(file: &MappedFile) -> Option<Self> {
        Some(Self {
            path: std::fs::canonicalize(file.path()).ok()?,
            size: file.bytes().len() as u64,
            modified_ns: nanoseconds(file.status().modified().ok()?)?,
        })
    }

    /// File of the cache that holds the digest.
    fn entry(&self, cache: &Path) -> PathBuf {
        let key = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
        cache.join(format!("{}.json", &hex(&key)[..32]))
    }

    /// The remembered digest. Whatever is wrong with the entry, it counts as absent.
    fn recall(&self, cache: &Path) -> Option<String> {
        let known = files::read(&self.entry(cache), LARGEST_ENTRY).ok()?;
        let known: Remembered = serde_json::from_slice(&known).ok()?;
        let same =
            known.path == self.path && known.size == self.size && known.modified_ns == self.modified_ns;
        let digest =
            known.sha256.len() == 64 && known.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (same && digest).then_some(known.sha256)
    }

    /// Whether the last change is long enough ago that another one would show in the time.
    fn is_settled(&self) -> bool {
        nanoseconds(SystemTime::now()).is_some_and(|now| now.saturating_sub(self.modified_ns) > TIME_STEP_NS)
    }

    /// Remembers a digest, unless the file at the path is no longer the one that was hashed, or could still change
    /// without a change of its time. Failures are ignored: the cache only saves time.
    fn remember(self, cache: &Path, sha256: &str) {
        let still_the_same = std::fs::metadata(&self.path).is_ok_and(|now| {
            now.len() == self.size && now.modified().ok().and_then(nanoseconds) == Some(self.modified_ns)
        });
        if !still_the_same || !self.is_settled() || std::fs::create_dir_all(cache).is_err() {
            return;
        }
        let entry = self.entry(cache);
        let known = Remembered {
            path: self.path,
            size: self.size,
            modified_ns: self.modified_ns,
            sha256: sha256.to_owned(),
        };
        let _ = files::replace(&entry, |file| Ok(serde_json::to_writer(file, &known)?));
    }
}

fn nanoseconds(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Bytes in lowercase hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
