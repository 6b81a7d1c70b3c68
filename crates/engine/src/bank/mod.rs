//! The session bank: states of prompts and replies, kept in memory and on disk, so that what begins alike is computed
//! once.
//!
//! A state that comes back has the bits of one computed anew: it is a shared copy, or bytes checked against their
//! SHA-256, of the same weights and plan. Whatever is damaged, missing or of another identity is not used, and the lookup
//! says why. Salts separate tenants: what one stored, another cannot even tell from nothing.

mod disk;
mod error;
mod ids;
mod memory;
mod options;
mod report;

use std::collections::{BTreeMap, HashSet, VecDeque};

use samebit_models::{SequenceState, StateDecoder};
use sha2::{Digest as _, Sha256};

use disk::{Disk, OnDisk};
pub use error::BankError;
use ids::Ids;
use memory::{Found, Memory, Tenant};
pub use options::{BankIdentity, BankOptions, DiskOptions};
pub use report::{BankStats, Lookup, MissReason, Source, Stored};

/// Keeps states for prompts that begin alike. One thread owns it; another, its own, writes to disk.
pub struct Bank {
    identity: BankIdentity,
    decoder: StateDecoder,
    minimum: usize,
    memory: Memory,
    disk: Option<Disk>,
    evicted: Evicted,
    stats: BankStats,
    misses: BTreeMap<&'static str, u64>,
}

impl Bank {
    /// A bank of states that `decoder` makes, of a model with these weights.
    ///
    /// # Errors
    /// When an option is out of its bounds, or the folder cannot be used: another process has it, its layout is of
    /// another version, or the system refuses.
    pub fn open(
        options: BankOptions,
        weights_digest: &str,
        decoder: StateDecoder,
    ) -> Result<Self, BankError> {
        let BankOptions { memory_bytes, max_entries, minimum_prefix, disk } = options;
        if minimum_prefix == 0 {
            let (option, found) = ("minimum_prefix", "0".to_owned());
            return Err(BankError::Option { option, found, expected: "at least 1" });
        }
        let identity = BankIdentity::new(weights_digest, decoder.identity());
        let disk = disk.map(|options| Disk::open(&options, &identity, decoder.can_rollback())).transpose()?;
        Ok(Self {
            memory: Memory::new(memory_bytes, max_entries, decoder.can_rollback()),
            identity,
            decoder,
            minimum: minimum_prefix,
            disk,
            evicted: Evicted::default(),
            stats: BankStats::default(),
            misses: BTreeMap::new(),
        })
    }

    /// What its states depend on.
    pub fn identity(&self) -> &BankIdentity {
        &self.identity
    }

    /// The longest stored beginning of `prompt` under `salt`: at most all but its last token, at least the minimum.
    pub fn lookup(&mut self, prompt: &[u32], salt: &str) -> Lookup {
        let lookup = self.find(prompt, &tenant(salt));
        match (lookup.source, lookup.miss) {
            (Source::Memory, _) => self.stats.memory_hits += 1,
            (Source::Disk, _) => self.stats.disk_hits += 1,
            (Source::None, miss) => {
                *self.misses.entry(miss.map_or("new_session", MissReason::name)).or_default() += 1;
            }
        }
        lookup
    }

    fn find(&mut self, prompt: &[u32], tenant: &Tenant) -> Lookup {
        if self.memory.is_disabled() && self.disk.is_none() {
            return Lookup::none(MissReason::Disabled);
        }
        for (tenant, ids) in self.disk.iter().flat_map(Disk::evicted) {
            self.evicted.add(&tenant, &ids);
        }
        let ids = Ids::new(prompt);
        let most = prompt.len().saturating_sub(1);
        let held = self.memory.find(tenant, &ids, most);
        let mut failure = None;
        // Every failure removes an entry from the index, so this ends.
        loop {
            let on_disk = match &self.disk {
                Some(disk) => disk.find(tenant, &ids, most),
                None => OnDisk::default(),
            };
            let matched = held.matched.max(on_disk.matched);
            if held.tokens.max(on_disk.tokens) < self.minimum {
                return Lookup::none(self.reason(failure, tenant, &ids, most, matched));
            }
            if on_disk.tokens <= held.tokens {
                return self.resume_from_memory(tenant, &held, matched, most, failure);
            }
            match self.resume_from_disk(tenant, &ids, &held, &on_disk) {
                Ok(state) => {
                    let miss = departure(matched, most, on_disk.length).or(failure);
                    return Lookup { state: Some(state), tokens: on_disk.tokens, source: Source::Disk, miss };
                }
                Err(reason) => failure = Some(reason),
            }
        }
    }

    fn resume_from_memory(
        &mut self,
        tenant: &Tenant,
        held: &Found,
        matched: usize,
        most: usize,
        failure: Option<MissReason>,
    ) -> Lookup {
        let entry = held.ids.as_ref();
        let state = entry.and_then(|ids| self.memory.take(tenant, ids, held.tokens));
        let Some(state) = state else { return Lookup::none(MissReason::NoSnapshotCoverage) };
        let miss = failure.or_else(|| departure(matched, most, entry.map_or(0, Ids::len)));
        Lookup { state: Some(state), tokens: held.tokens, source: Source::Memory, miss }
    }

    /// Reads a state and keeps it in memory.
    fn resume_from_disk(
        &mut self,
        tenant: &Tenant,
        ids: &Ids,
        held: &Found,
        on_disk: &OnDisk,
    ) -> Result<SequenceState, MissReason> {
        let have = held.ids.as_ref().and_then(|ids| self.memory.take(tenant, ids, held.tokens));
        let Some(disk) = &mut self.disk else { return Err(MissReason::Disabled) };
        let state = disk.load(on_disk, have.as_ref(), &self.decoder)?;
        if !self.memory.is_disabled() {
            self.keep(tenant, ids.prefix(on_disk.tokens), &state);
        }
        Ok(state)
    }

    /// Why nothing can be resumed.
    fn reason(
        &self,
        failure: Option<MissReason>,
        tenant: &Tenant,
        ids: &Ids,
        most: usize,
        matched: usize,
    ) -> MissReason {
        let foreign = || self.disk.as_ref()?.foreign(tenant, ids, self.minimum);
        if let Some(reason) = failure.or_else(foreign) {
            reason
        } else if matched.min(most) >= self.minimum {
            MissReason::NoSnapshotCoverage
        } else if self.evicted.has(tenant, ids) {
            MissReason::Evicted
        } else if matched > 0 {
            MissReason::PrefixDivergence { position: matched }
        } else {
            MissReason::NewSession
        }
    }

    /// Keeps the state that `ids` gave. What it extends is dropped; where a kept entry begins with it, that one serves.
    pub fn store(&mut self, ids: &[u32], state: &SequenceState, salt: &str) -> Stored {
        if ids.is_empty() || ids.len() != state.length() {
            return Stored::WrongLength;
        }
        if state.identity() != self.decoder.identity() {
            return Stored::Foreign;
        }
        let (tenant, ids) = (tenant(salt), Ids::new(ids));
        if let Some(disk) = &self.disk {
            disk.store(&tenant, &ids, state);
        }
        if self.memory.is_disabled() { Stored::Disabled } else { self.keep(&tenant, ids, state) }
    }

    fn keep(&mut self, tenant: &Tenant, ids: Ids, state: &SequenceState) -> Stored {
        if let Some(longer) = self.memory.covering(tenant, &ids)
            && (longer == ids || self.decoder.can_rollback())
        {
            self.memory.touch(tenant, &longer);
            return Stored::Covered;
        }
        match self.memory.store(tenant, ids, state) {
            None => Stored::TooLarge,
            Some(dropped) => {
                self.stats.memory_evictions += dropped.len() as u64;
                dropped.iter().for_each(|(tenant, ids)| self.evicted.add(tenant, ids));
                Stored::Kept
            }
        }
    }

    /// Forgets every entry of this identity, in memory and on disk.
    pub fn clear(&mut self) {
        self.memory.clear();
        self.evicted = Evicted::default();
        if let Some(disk) = &mut self.disk {
            disk.clear();
        }
    }

    /// Waits until everything is on disk. Dropping the bank does so too.
    pub fn flush(&self) {
        if let Some(disk) = &self.disk {
            disk.flush();
        }
    }

    /// Writes what is left to write, and gives the folder free.
    pub fn close(self) {}

    /// What it holds and has done.
    pub fn stats(&self) -> BankStats {
        let mut stats = self.stats.clone();
        stats.memory_entries = self.memory.entries();
        stats.memory_bytes = self.memory.bytes();
        stats.misses = self.misses.iter().map(|(name, count)| (*name, *count)).collect();
        if let Some(disk) = &self.disk {
            disk.report(&mut stats);
        }
        stats
    }
}

/// Where a prompt departs from an entry of `length` tokens that it does not use to the end.
fn departure(matched: usize, most: usize, length: usize) -> Option<MissReason> {
    (matched < length && matched < most).then_some(MissReason::PrefixDivergence { position: matched })
}

fn tenant(salt: &str) -> Tenant {
    Sha256::new_with_prefix(b"samebit salt\0").chain_update(salt).finalize().into()
}

/// Beginnings of entries that were dropped to make room, the latest ones.
#[derive(Debug, Default)]
struct Evicted {
    order: VecDeque<Tenant>,
    known: HashSet<Tenant>,
}

impl Evicted {
    /// Tokens by which a beginning is recognized.
    const TOKENS: usize = 16;
    /// Beginnings remembered.
    const MOST: usize = 4096;

    fn key(tenant: &Tenant, ids: &Ids) -> Tenant {
        let mut hash = Sha256::new_with_prefix(tenant);
        ids.iter().take(Self::TOKENS).for_each(|id| hash.update(id.to_le_bytes()));
        hash.finalize().into()
    }

    fn add(&mut self, tenant: &Tenant, ids: &Ids) {
        let key = Self::key(tenant, ids);
        if ids.len() >= Self::TOKENS && self.known.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > Self::MOST
            && let Some(key) = self.order.pop_front()
        {
            self.known.remove(&key);
        }
    }

    fn has(&self, tenant: &Tenant, ids: &Ids) -> bool {
        ids.len() > Self::TOKENS && self.known.contains(&Self::key(tenant, ids))
    }
}
