//! What a bank says of its work.

use std::fmt;

use samebit_models::SequenceState;

/// What a lookup found.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// A state that covers the first `tokens` of the prompt.
    pub state: Option<SequenceState>,
    /// Tokens it covers: all but the last of the prompt at most, since the last one's row gives the first logits.
    pub tokens: usize,
    /// Where it was.
    pub source: Source,
    /// Why there is none, or why it covers less than was stored for the beginning of this prompt.
    pub miss: Option<MissReason>,
}

impl Lookup {
    pub(crate) fn none(reason: MissReason) -> Self {
        Self { state: None, tokens: 0, source: Source::None, miss: Some(reason) }
    }
}

/// Where a state was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In memory.
    Memory,
    /// On disk, at least in part.
    Disk,
    /// Nowhere.
    None,
}

impl Source {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::None => "none",
        }
    }
}

/// Why a prompt is computed that might have been resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MissReason {
    /// The bank keeps nothing.
    Disabled,
    /// Nothing that was stored under this salt begins as the prompt does.
    NewSession,
    /// The prompt departs from what was stored.
    PrefixDivergence {
        /// The first position at which they differ.
        position: usize,
    },
    /// What matches was made with other weights.
    WeightsMismatch,
    /// What matches was made by another plan: other arithmetic, or another type of keys and values.
    PlanMismatch,
    /// What matches was made with other options of the model.
    ModelMismatch,
    /// What matched was dropped to make room.
    Evicted,
    /// What matches was damaged on disk, and is dropped.
    Corrupt,
    /// What matches could not be read from disk.
    Unreadable,
    /// What matches cannot be cut where the prompt departs, and no boundary before it was kept.
    NoSnapshotCoverage,
}

impl MissReason {
    /// Its name in results, without the position.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NewSession => "new_session",
            Self::PrefixDivergence { .. } => "prefix_divergence_at_token",
            Self::WeightsMismatch => "weights_mismatch",
            Self::PlanMismatch => "plan_mismatch",
            Self::ModelMismatch => "model_mismatch",
            Self::Evicted => "evicted",
            Self::Corrupt => "corrupt",
            Self::Unreadable => "unreadable",
            Self::NoSnapshotCoverage => "no_snapshot_coverage",
        }
    }
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::PrefixDivergence { position } => write!(f, " {position}"),
            _ => Ok(()),
        }
    }
}

/// What became of a state that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is kept.
    Kept,
    /// A kept entry begins with it, so there is nothing to add.
    Covered,
    /// It alone is larger than all memory for states; it may still be on its way to disk.
    TooLarge,
    /// It covers no token, or not as many as there are ids.
    WrongLength,
    /// It belongs to another model, plan or type of keys and values.
    Foreign,
    /// The bank keeps nothing in memory.
    Disabled,
}

/// What a bank holds and has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BankStats {
    /// Entries in memory.
    pub memory_entries: usize,
    /// Bytes of their states; what they share counts once.
    pub memory_bytes: u64,
    /// Entries on disk, those of other identities included.
    pub disk_entries: usize,
    /// Bytes of their blobs and token ids; what they share counts once.
    pub disk_bytes: u64,
    /// Lookups that gave a state from memory.
    pub memory_hits: u64,
    /// Lookups that gave a state from disk.
    pub disk_hits: u64,
    /// Lookups without a state, by the name of the reason.
    pub misses: Vec<(&'static str, u64)>,
    /// Entries dropped from memory to make room.
    pub memory_evictions: u64,
    /// Entries dropped from disk to make room.
    pub disk_evictions: u64,
    /// Entries dropped because their bytes were damaged or missing.
    pub corrupt_entries: u64,
    /// States not written because of the limits: backlog, rate, free space, size.
    pub skipped_writes: u64,
    /// Bytes of blobs written.
    pub bytes_written: u64,
    /// Bytes of blobs read.
    pub bytes_read: u64,
    /// The last failure to write, if there was one.
    pub write_error: Option<String>,
}
