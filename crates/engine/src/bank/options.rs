//! What bounds a bank, and what its entries depend on.

use std::path::PathBuf;

use samebit_models::StateIdentity;

/// What bounds a bank. None of it changes a bit of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankOptions {
    /// Most bytes of states in memory. What entries share counts once. 0 keeps nothing in memory.
    pub memory_bytes: u64,
    /// Most entries in memory.
    pub max_entries: usize,
    /// Fewest tokens worth resuming, at least 1.
    pub minimum_prefix: usize,
    /// The folder that keeps entries between runs; `None` for none.
    pub disk: Option<DiskOptions>,
}

impl Default for BankOptions {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, max_entries: 256, minimum_prefix: 1, disk: None }
    }
}

/// What bounds a bank's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder. It is made if it does not exist.
    pub folder: PathBuf,
    /// Most bytes of states and token ids in it.
    pub max_bytes: u64,
    /// Most bytes written per hour; more is skipped and counted.
    pub max_write_bytes_per_hour: u64,
    /// Nothing is written while the file system has fewer free bytes than this.
    pub min_free_bytes: u64,
    /// Most bytes of states that wait to be written; more is skipped and counted.
    pub max_backlog_bytes: u64,
}

impl DiskOptions {
    /// A folder with 16 GiB for states, 64 GiB of writing per hour, 4 GiB of backlog, on a disk that keeps 10 GiB free.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            max_bytes: 16 << 30,
            max_write_bytes_per_hour: 64 << 30,
            min_free_bytes: 10 << 30,
            max_backlog_bytes: 4 << 30,
        }
    }
}

/// What the bits of a state depend on apart from tokens. Entries of another identity are kept, but never used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BankIdentity {
    /// Digest of the weights.
    pub(crate) weights: String,
    /// Id of the arithmetic plan, type of keys and values included.
    pub(crate) plan: String,
    /// All of a [`StateIdentity`].
    pub(crate) state: String,
}

impl BankIdentity {
    /// The identity of states of a model with these weights.
    pub fn new(weights_digest: &str, state: &StateIdentity) -> Self {
        Self { weights: weights_digest.to_owned(), plan: state.plan().to_owned(), state: state.to_string() }
    }
}
