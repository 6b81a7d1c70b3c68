//! What the folder holds, in memory: entries by identity, tenant and tokens; blobs and how many entries have them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::record::{Blob, Digest, Record};
use crate::bank::BankIdentity;
use crate::bank::ids::{Ids, PrefixMap};
use crate::bank::memory::Tenant;

/// What the folder holds.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Entries that may meet, by tokens.
    groups: BTreeMap<(Tenant, BankIdentity), PrefixMap<Digest>>,
    records: HashMap<Digest, (Record, u64)>,
    blobs: HashMap<Digest, (usize, u64)>,
    /// Used since the index file was last written.
    pub touched: BTreeSet<Digest>,
    bytes: u64,
    clock: u64,
    /// Entries dropped to make room.
    pub evictions: u64,
    /// Those of them that the bank has not asked for yet.
    pub evicted: Vec<(Tenant, Ids)>,
    /// Entries dropped because they were damaged.
    pub corrupt: u64,
    /// States that were not written.
    pub skipped: u64,
    /// Bytes of blobs written.
    pub written: u64,
    /// The last failure to write.
    pub error: Option<String>,
}

impl Index {
    pub(crate) fn entries(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn has_blob(&self, digest: &Digest) -> bool {
        self.blobs.contains_key(digest)
    }

    pub(crate) fn get(&self, id: &Digest) -> Option<&Record> {
        self.records.get(id).map(|(record, _)| record)
    }

    pub(crate) fn used(&self, id: &Digest) -> u64 {
        self.records.get(id).map_or(0, |(_, used)| *used)
    }

    pub(crate) fn ids(&self) -> Vec<Digest> {
        self.records.keys().copied().collect()
    }

    /// A time after all others: milliseconds since 1970, unless the clock stands still or goes back.
    pub(crate) fn now(&mut self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_millis() as u64);
        self.clock = now.max(self.clock + 1);
        self.clock
    }

    pub(crate) fn touch(&mut self, id: &Digest) {
        let now = self.now();
        if let Some((_, used)) = self.records.get_mut(id) {
            *used = now;
            self.touched.insert(*id);
        }
    }

    pub(crate) fn insert(&mut self, id: Digest, record: Record, used: u64) {
        self.remove(&id);
        self.clock = self.clock.max(used);
        for Blob { digest, bytes } in &record.blobs {
            let blob = self.blobs.entry(*digest).or_insert((0, *bytes));
            if blob.0 == 0 {
                self.bytes += blob.1;
            }
            blob.0 += 1;
        }
        self.bytes += record.bytes();
        let group = self.groups.entry((record.tenant, record.identity.clone())).or_default();
        group.insert(record.ids.clone(), id);
        self.records.insert(id, (record, used));
    }

    /// Forgets an entry, and returns the blobs that no other has.
    pub(crate) fn remove(&mut self, id: &Digest) -> Vec<Digest> {
        let Some((record, _)) = self.records.remove(id) else { return Vec::new() };
        self.touched.remove(id);
        let key = (record.tenant, record.identity.clone());
        if let Some(group) = self.groups.get_mut(&key) {
            group.remove(&record.ids);
            if group.is_empty() {
                self.groups.remove(&key);
            }
        }
        self.bytes -= record.bytes();
        let mut unused = Vec::new();
        for Blob { digest, .. } in &record.blobs {
            if let Some((holders, bytes)) = self.blobs.get_mut(digest) {
                *holders -= 1;
                if *holders == 0 {
                    self.bytes -= *bytes;
                    self.blobs.remove(digest);
                    unused.push(*digest);
                }
            }
        }
        unused
    }

    /// Removes an entry to make room.
    pub(crate) fn evict(&mut self, id: &Digest) -> Vec<Digest> {
        if let Some((record, _)) = self.records.get(id) {
            self.evicted.push((record.tenant, record.ids.clone()));
            self.evictions += 1;
        }
        self.remove(id)
    }

    /// Every entry that has a blob.
    pub(crate) fn holders(&self, digest: &Digest) -> Vec<Digest> {
        let has = |record: &Record| record.blobs.iter().any(|blob| blob.digest == *digest);
        self.records.iter().filter(|(_, (record, _))| has(record)).map(|(id, _)| *id).collect()
    }

    /// The least recently used entry but one.
    pub(crate) fn oldest(&self, but: &Digest) -> Option<Digest> {
        let others = self.records.iter().filter(|(id, _)| *id != but);
        others.min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id)
    }

    /// Entries of an identity and tenant by how many tokens they share with `ids`, most first.
    pub(crate) fn neighbours<'a>(
        &'a self,
        tenant: &Tenant,
        identity: &BankIdentity,
        ids: &'a Ids,
    ) -> impl Iterator<Item = (usize, &'a Ids, &'a Digest)> {
        let group = self.groups.get(&(*tenant, identity.clone()));
        group.into_iter().flat_map(|group| group.neighbours(ids))
    }

    /// The entry that a record of the same identity and tenant extends.
    pub(crate) fn extended_by(&self, record: &Record) -> Option<Digest> {
        let group = self.groups.get(&(record.tenant, record.identity.clone()))?;
        group.extended_by(&record.ids).map(|(_, id)| *id)
    }

    /// The identity, other than `own`, of the entry of a tenant that shares most tokens with `ids`, and how many.
    pub(crate) fn foreign<'a>(
        &'a self,
        tenant: &Tenant,
        own: &BankIdentity,
        ids: &Ids,
    ) -> Option<(usize, &'a BankIdentity)> {
        let groups = self.groups.iter().filter(|((of, identity), _)| of == tenant && identity != own);
        groups
            .filter_map(|((_, identity), group)| {
                group.neighbours(ids).next().map(|found| (found.0, identity))
            })
            .max_by_key(|(common, _)| *common)
    }
}
