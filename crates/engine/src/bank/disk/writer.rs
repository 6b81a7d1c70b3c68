//! The thread that writes: blobs first, then the index, then what neither needs any more.
//!
//! Killed at any instant it leaves an index whose entries have all their blobs, and perhaps blobs without an entry, which
//! the next opening collects.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use samebit_models::{SequenceState, StateBlock};
use sha2::{Digest as _, Sha256};

use super::blobs::Blobs;
use super::index::Index;
use super::record::{Blob, Digest, Record};
use super::table::{Change, Table};
use crate::bank::ids::Ids;
use crate::bank::memory::Tenant;
use crate::bank::{BankIdentity, DiskOptions};

/// Something to do to the folder.
pub(crate) enum Job {
    /// Keep a state.
    Store {
        tenant: Tenant,
        ids: Ids,
        state: SequenceState,
        /// Bytes that it adds to the backlog.
        bytes: u64,
    },
    /// Entries that the index in memory has lost: their place on disk, and blobs that may be unused.
    Forget { entries: Vec<Digest>, blobs: Vec<Digest> },
    /// Write down what was used when, and answer when all before is done.
    Flush(Sender<()>),
}

/// What was found in the way of writing.
enum Skip {
    /// A limit.
    Limit,
    /// The system.
    Failed(String),
}

impl From<std::io::Error> for Skip {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The writing side of the folder.
pub(crate) struct Writer {
    pub table: Table,
    pub blobs: Blobs,
    pub index: Arc<Mutex<Index>>,
    pub identity: BankIdentity,
    /// Whether an entry serves for all its beginnings.
    pub can_cut: bool,
    pub options: DiskOptions,
    pub backlog: Arc<AtomicU64>,
    pub allowance: Allowance,
}

/// The index, whatever became of a thread that held it: every change of it is complete before anything can fail.
pub(crate) fn lock(index: &Mutex<Index>) -> MutexGuard<'_, Index> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub(crate) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Store { tenant, ids, state, bytes } => {
                    match self.store(tenant, ids, &state) {
                        Ok(()) => {}
                        Err(Skip::Limit) => lock(&self.index).skipped += 1,
                        Err(Skip::Failed(error)) => self.failed(error),
                    }
                    self.backlog.fetch_sub(bytes, Ordering::Relaxed);
                }
                Job::Forget { entries, blobs } => self.forget(entries, &blobs),
                Job::Flush(done) => {
                    self.commit(Change::default());
                    let _ = done.send(());
                }
            }
        }
        self.commit(Change::default());
    }

    fn failed(&self, error: String) {
        let mut index = lock(&self.index);
        index.skipped += 1;
        index.error = Some(error);
    }

    /// Writes a change together with the times of use that are due. Returns whether it came true.
    fn commit(&self, mut change: Change) -> bool {
        {
            let mut index = lock(&self.index);
            let touched = std::mem::take(&mut index.touched);
            let used = touched.into_iter().map(|id| (id, index.used(&id)));
            change.used.extend(used.filter(|(_, used)| *used > 0));
        }
        if change.is_empty() {
            return true;
        }
        match self.table.commit(&change) {
            Ok(()) => true,
            Err(error) => {
                lock(&self.index).error = Some(error);
                false
            }
        }
    }

    fn forget(&self, entries: Vec<Digest>, blobs: &[Digest]) {
        self.commit(Change { removed: entries, ..Change::default() });
        self.remove_unused(blobs);
    }

    fn remove_unused(&self, blobs: &[Digest]) {
        for digest in blobs {
            if !lock(&self.index).has_blob(digest) {
                self.blobs.remove(digest);
            }
        }
    }

    fn store(&mut self, tenant: Tenant, ids: Ids, state: &SequenceState) -> Result<(), Skip> {
        let mut blobs = self.known(&tenant, &ids);
        let mut written = Vec::new();
        let result = self.write_blocks(state, &mut blobs, &mut written);
        let result =
            result.and_then(|()| self.enter(Record { identity: self.identity.clone(), tenant, ids, blobs }));
        if result.is_err() {
            self.remove_unused(&written);
        }
        result
    }

    /// Blobs of the whole blocks that an entry of the same tenant begins with as well: equal tokens give equal bits, so
    /// they need not be encoded again.
    fn known(&self, tenant: &Tenant, ids: &Ids) -> Vec<Blob> {
        let index = lock(&self.index);
        let Some((common, _, id)) = index.neighbours(tenant, &self.identity, ids).next() else {
            return Vec::new();
        };
        let blobs = index.get(id).map_or(&[][..], |record| &record.blobs);
        blobs[..common / StateBlock::POSITIONS].to_vec()
    }

    fn write_blocks(
        &mut self,
        state: &SequenceState,
        blobs: &mut Vec<Blob>,
        written: &mut Vec<Digest>,
    ) -> Result<(), Skip> {
        for block in state.blocks().skip(blobs.len()) {
            let bytes = block.encode();
            let digest: Digest = Sha256::digest(&bytes).into();
            let blob = Blob { digest, bytes: bytes.len() as u64 };
            blobs.push(blob);
            if blobs.iter().map(|blob| blob.bytes).sum::<u64>() > self.options.max_bytes {
                return Err(Skip::Limit);
            }
            if lock(&self.index).has_blob(&digest) {
                continue;
            }
            if !self.allowance.take(blob.bytes) || !self.has_room(blob.bytes) {
                return Err(Skip::Limit);
            }
            self.blobs.write(&digest, &bytes)?;
            written.push(digest);
            lock(&self.index).written += blob.bytes;
        }
        Ok(())
    }

    fn has_room(&self, bytes: u64) -> bool {
        let least = self.options.min_free_bytes;
        least == 0 || free_bytes(&self.options.folder).is_none_or(|free| free >= least.saturating_add(bytes))
    }

    /// Enters a record whose blobs are all there, in place of what it extends and of the least recently used.
    fn enter(&self, record: Record) -> Result<(), Skip> {
        let id = record.id();
        let encoded = record.encode();
        let mut change = Change::default();
        let mut unused = Vec::new();
        {
            let mut index = lock(&self.index);
            // A blob that was there may have been found corrupt since.
            if record.blobs.iter().any(|blob| !index.has_blob(&blob.digest) && !self.blobs.seems_whole(blob))
            {
                return Err(Skip::Failed("a blob was dropped while it was needed".to_owned()));
            }
            let extended = index.extended_by(&record).filter(|_| self.can_cut);
            let now = index.now();
            index.insert(id, record, now);
            if let Some(id) = extended {
                unused.extend(index.remove(&id));
                change.removed.push(id);
            }
            while index.bytes() > self.options.max_bytes {
                let Some(oldest) = index.oldest(&id) else { break };
                unused.extend(index.evict(&oldest));
                change.removed.push(oldest);
            }
            if index.bytes() > self.options.max_bytes {
                // Alone, with its token ids, it is too large after all.
                unused.extend(index.remove(&id));
                drop(index);
                self.commit(change);
                self.remove_unused(&unused);
                return Err(Skip::Limit);
            }
            change.put.push((id, encoded));
            change.used.push((id, now));
        }
        if self.commit(change) {
            self.remove_unused(&unused);
            Ok(())
        } else {
            // What the index file may still name stays; the next opening collects what it does not.
            lock(&self.index).remove(&id);
            Err(Skip::Limit)
        }
    }
}

/// Bytes free for this program on the file system of a folder; `None` where the system does not say.
#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_: &Path) -> Option<u64> {
    None
}

/// Bytes that may be written: an hour's worth at first, refilled at that rate.
pub(crate) struct Allowance {
    per_hour: u64,
    left: f64,
    since: Instant,
}

impl Allowance {
    pub(crate) fn new(per_hour: u64) -> Self {
        Self { per_hour, left: per_hour as f64, since: Instant::now() }
    }

    fn take(&mut self, bytes: u64) -> bool {
        let refilled = self.since.elapsed().as_secs_f64() / 3600.0 * self.per_hour as f64;
        self.since = Instant::now();
        self.left = (self.left + refilled).min(self.per_hour as f64);
        let fits = bytes as f64 <= self.left;
        if fits {
            self.left -= bytes as f64;
        }
        fits
    }
}
