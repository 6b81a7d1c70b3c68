//! Entries on disk: `index.redb`, and `pages/ab/<sha256>` for every 256 positions of a state.
//!
//! This side, on the engine's thread, looks up and reads; everything that changes the folder is done by [`writer`].

mod blobs;
mod index;
mod record;
mod table;
mod writer;

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use samebit_models::{SequenceState, StateBlock, StateDecoder};

use super::ids::{Ids, restore_point};
use super::memory::Tenant;
use super::{BankError, BankIdentity, BankStats, DiskOptions, MissReason};
use blobs::{Blobs, ReadError};
use index::Index;
use record::{Digest, Record};
use table::{Table, unusable};
use writer::{Allowance, Job, Writer, lock};

/// Entries on disk.
pub(crate) struct Disk {
    index: Arc<Mutex<Index>>,
    blobs: Blobs,
    identity: BankIdentity,
    can_cut: bool,
    most_backlog: u64,
    backlog: Arc<AtomicU64>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Bytes of blobs read.
    read: u64,
}

/// What the index has for a prompt.
#[derive(Debug, Default)]
pub(crate) struct OnDisk {
    id: Digest,
    /// Tokens that the best entry shares with the prompt.
    pub matched: usize,
    /// Tokens that can be resumed.
    pub tokens: usize,
    /// Tokens of the best entry.
    pub length: usize,
}

impl Disk {
    pub(crate) fn open(
        options: &DiskOptions,
        identity: &BankIdentity,
        can_cut: bool,
    ) -> Result<Self, BankError> {
        let folder = &options.folder;
        fs::create_dir_all(folder).map_err(|error| unusable(folder, folder, error))?;
        let (table, content) = Table::open(folder)?;
        let blobs = Blobs::open(folder).map_err(|error| unusable(folder, &folder.join("pages"), error))?;
        let mut index = Index::default();
        index.corrupt = content.damaged.len() as u64 + u64::from(content.put_aside);
        let mut lost = content.damaged;
        // In order of tokens where times are equal, so that equal folders give equal indexes.
        for (id, record, used) in content.records {
            if record.blobs.iter().all(|blob| index.has_blob(&blob.digest) || blobs.seems_whole(blob)) {
                index.insert(id, record, used);
            } else {
                index.corrupt += 1;
                lost.push(id);
            }
        }
        let ids = index.ids();
        let records = ids.iter().filter_map(|id| index.get(id));
        let kept: HashSet<Digest> =
            records.flat_map(|record| record.blobs.iter().map(|blob| blob.digest)).collect();
        // Entries that lost a blob go first: were they left, a blob stored later could make them seem whole.
        let change = table::Change { removed: lost, ..table::Change::default() };
        let committed = if change.is_empty() { Ok(()) } else { table.commit(&change) };
        committed.map_err(|error| unusable(folder, &folder.join("index.redb"), error))?;
        blobs.collect(&kept).map_err(|error| unusable(folder, &folder.join("pages"), error))?;

        let index = Arc::new(Mutex::new(index));
        let backlog = Arc::new(AtomicU64::new(0));
        let writer = Writer {
            table,
            blobs: blobs.clone(),
            index: Arc::clone(&index),
            identity: identity.clone(),
            can_cut,
            options: options.clone(),
            backlog: Arc::clone(&backlog),
            allowance: Allowance::new(options.max_write_bytes_per_hour),
        };
        let (jobs, received) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("session-bank".to_owned())
            .spawn(move || writer.run(&received))
            .map_err(|error| unusable(folder, folder, error))?;
        Ok(Self {
            index,
            blobs,
            identity: identity.clone(),
            can_cut,
            most_backlog: options.max_backlog_bytes,
            backlog,
            jobs: Some(jobs),
            thread: Some(thread),
            read: 0,
        })
    }

    /// The entry that covers most of the first `most` tokens of `prompt`, by the index.
    pub(crate) fn find(&self, tenant: &Tenant, prompt: &Ids, most: usize) -> OnDisk {
        let mut best = OnDisk::default();
        let index = lock(&self.index);
        for (common, ids, id) in index.neighbours(tenant, &self.identity, prompt) {
            best.matched = best.matched.max(common);
            if common.min(most) <= best.tokens {
                break;
            }
            let point = restore_point(common.min(most), self.can_cut, std::iter::once(ids.len()));
            if let Some(tokens) = point.filter(|tokens| *tokens > best.tokens) {
                best = OnDisk { id: *id, tokens, length: ids.len(), ..best };
            }
        }
        best
    }

    /// The state that [`Disk::find`] found. The first blocks of `have`, a state of the prompt's first tokens, are not
    /// read again.
    ///
    /// # Errors
    /// The reason why there is none. Then the entry will not be found again.
    pub(crate) fn load(
        &mut self,
        found: &OnDisk,
        have: Option<&SequenceState>,
        decoder: &StateDecoder,
    ) -> Result<SequenceState, MissReason> {
        let record = lock(&self.index).get(&found.id).cloned();
        let Some(record) = record else { return Err(MissReason::Evicted) };
        let have = have.into_iter().flat_map(SequenceState::blocks);
        let mut blocks: Vec<StateBlock> =
            have.filter(|block| block.positions() == StateBlock::POSITIONS).collect();
        let needed = found.tokens.div_ceil(StateBlock::POSITIONS);
        blocks.truncate(needed);
        for blob in &record.blobs[blocks.len()..needed] {
            match self.blobs.read(blob) {
                Ok(bytes) => {
                    self.read += bytes.len() as u64;
                    match decoder.block(&bytes) {
                        Ok(block) => blocks.push(block),
                        Err(_) => return Err(self.damaged(&found.id, Some(&blob.digest))),
                    }
                }
                Err(ReadError::Corrupt) => return Err(self.damaged(&found.id, Some(&blob.digest))),
                Err(ReadError::Io) => {
                    // It may be readable another day: it stays on disk, but is not tried again.
                    lock(&self.index).remove(&found.id);
                    return Err(MissReason::Unreadable);
                }
            }
        }
        let expected = Self::positions(&record, needed);
        let state = decoder.assemble(&blocks).ok().filter(|state| state.length() == expected);
        let Some(mut state) = state else { return Err(self.damaged(&found.id, None)) };
        if state.length() > found.tokens && state.rollback(found.tokens).is_err() {
            return Err(self.damaged(&found.id, None));
        }
        lock(&self.index).touch(&found.id);
        Ok(state)
    }

    /// Positions of a record's first blocks.
    fn positions(record: &Record, blocks: usize) -> usize {
        record.ids.len().min(blocks * StateBlock::POSITIONS)
    }

    /// Drops an entry, and all others that have the damaged blob. If the entry is gone already, its blobs were removed to
    /// make room while they were read.
    fn damaged(&mut self, id: &Digest, blob: Option<&Digest>) -> MissReason {
        let (entries, blobs) = {
            let mut index = lock(&self.index);
            if index.get(id).is_none() {
                return MissReason::Evicted;
            }
            let mut entries = blob.map_or_else(Vec::new, |blob| index.holders(blob));
            if !entries.contains(id) {
                entries.push(*id);
            }
            index.corrupt += entries.len() as u64;
            let blobs = entries.iter().flat_map(|id| index.remove(id)).collect();
            (entries, blobs)
        };
        self.send(Job::Forget { entries, blobs });
        MissReason::Corrupt
    }

    /// Hands a state to the writer, unless an entry begins with its tokens or too much waits already.
    pub(crate) fn store(&self, tenant: &Tenant, ids: &Ids, state: &SequenceState) {
        let bytes = state.bytes() as u64;
        {
            let mut index = lock(&self.index);
            let covering = index.neighbours(tenant, &self.identity, ids).next();
            let covering = covering.filter(|(common, other, _)| {
                *common == ids.len() && (self.can_cut || other.len() == *common)
            });
            if let Some(id) = covering.map(|(_, _, id)| *id) {
                index.touch(&id);
                return;
            }
            if self.backlog.load(Ordering::Relaxed).saturating_add(bytes) > self.most_backlog {
                index.skipped += 1;
                return;
            }
        }
        self.backlog.fetch_add(bytes, Ordering::Relaxed);
        self.send(Job::Store { tenant: *tenant, ids: ids.clone(), state: state.clone(), bytes });
    }

    /// Why an entry of another identity does not serve a prompt, if there is one that matches `least` tokens.
    pub(crate) fn foreign(&self, tenant: &Tenant, prompt: &Ids, least: usize) -> Option<MissReason> {
        let index = lock(&self.index);
        let (_, identity) =
            index.foreign(tenant, &self.identity, prompt).filter(|(common, _)| *common >= least)?;
        Some(if identity.weights != self.identity.weights {
            MissReason::WeightsMismatch
        } else if identity.plan != self.identity.plan {
            MissReason::PlanMismatch
        } else {
            MissReason::ModelMismatch
        })
    }

    /// Forgets all entries of this identity.
    pub(crate) fn clear(&mut self) {
        self.flush();
        let (entries, blobs) = {
            let mut index = lock(&self.index);
            let mut entries = index.ids();
            entries.retain(|id| index.get(id).is_some_and(|record| record.identity == self.identity));
            let blobs = entries.iter().flat_map(|id| index.remove(id)).collect();
            (entries, blobs)
        };
        self.send(Job::Forget { entries, blobs });
        self.flush();
    }

    /// Entries dropped to make room since this was last asked.
    pub(crate) fn evicted(&self) -> Vec<(Tenant, Ids)> {
        std::mem::take(&mut lock(&self.index).evicted)
    }

    /// Waits until everything is written.
    pub(crate) fn flush(&self) {
        let (done, wait) = mpsc::channel();
        self.send(Job::Flush(done));
        // An error means that the writer is gone, and so is what it had to do.
        let _ = wait.recv();
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs
            && jobs.send(job).is_err()
        {
            let mut index = lock(&self.index);
            index.skipped += 1;
            index.error.get_or_insert_with(|| "the writer has ended".to_owned());
        }
    }

    pub(crate) fn report(&self, stats: &mut BankStats) {
        let index = lock(&self.index);
        stats.disk_entries = index.entries();
        stats.disk_bytes = index.bytes();
        stats.disk_evictions = index.evictions;
        stats.corrupt_entries = index.corrupt;
        stats.skipped_writes = index.skipped;
        stats.bytes_written = index.written;
        stats.bytes_read = self.read;
        stats.write_error.clone_from(&index.error);
    }
}

impl Drop for Disk {
    /// Waits until everything is written.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
