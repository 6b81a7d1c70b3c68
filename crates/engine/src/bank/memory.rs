//! Entries in memory: states that share their pages, least recently used dropped first.

use std::collections::HashMap;

use samebit_models::{SequenceState, StateBlock};

use super::ids::{Ids, PrefixMap, restore_point};

/// Whose entries: a digest of the salt.
pub(crate) type Tenant = [u8; 32];

/// An entry.
#[derive(Debug)]
struct Entry {
    /// States of the first tokens, shortest first; the last covers all tokens. More than one only where states cannot
    /// be cut.
    points: Vec<SequenceState>,
    used: u64,
}

/// What was found for a prompt.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The entry's tokens.
    pub ids: Option<Ids>,
    /// Tokens that the best entry shares with the prompt.
    pub matched: usize,
    /// Tokens that can be resumed.
    pub tokens: usize,
}

/// Entries in memory.
#[derive(Debug)]
pub(crate) struct Memory {
    most_bytes: u64,
    most_entries: usize,
    can_cut: bool,
    tenants: HashMap<Tenant, PrefixMap<Entry>>,
    /// Everything by last use, to find what to drop.
    order: std::collections::BTreeMap<u64, (Tenant, Ids)>,
    /// Holders and bytes of each piece of memory, by address.
    pieces: HashMap<usize, (usize, u64)>,
    bytes: u64,
    clock: u64,
}

impl Memory {
    pub(crate) fn new(most_bytes: u64, most_entries: usize, can_cut: bool) -> Self {
        Self {
            most_bytes,
            most_entries,
            can_cut,
            tenants: HashMap::new(),
            order: std::collections::BTreeMap::new(),
            pieces: HashMap::new(),
            bytes: 0,
            clock: 0,
        }
    }

    pub(crate) fn entries(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.most_bytes == 0 || self.most_entries == 0
    }

    pub(crate) fn clear(&mut self) {
        self.tenants.clear();
        self.order.clear();
        self.pieces.clear();
        self.bytes = 0;
    }

    /// The entry that covers most of the first `most` tokens of `prompt`.
    pub(crate) fn find(&self, tenant: &Tenant, prompt: &Ids, most: usize) -> Found {
        let mut best = Found::default();
        let Some(map) = self.tenants.get(tenant) else { return best };
        for (common, ids, entry) in map.neighbours(prompt) {
            best.matched = best.matched.max(common);
            // The further ones share less still.
            if common.min(most) <= best.tokens {
                break;
            }
            let points = entry.points.iter().map(SequenceState::length);
            if let Some(tokens) = restore_point(common.min(most), self.can_cut, points)
                && tokens > best.tokens
            {
                (best.tokens, best.ids) = (tokens, Some(ids.clone()));
            }
        }
        best
    }

    /// A copy of the entry's state of its first `tokens` tokens, which [`Memory::find`] found.
    pub(crate) fn take(&mut self, tenant: &Tenant, ids: &Ids, tokens: usize) -> Option<SequenceState> {
        self.touch(tenant, ids);
        let entry = self.tenants.get(tenant)?.get(ids)?;
        let mut state = entry.points.iter().find(|state| state.length() >= tokens)?.clone();
        (state.length() == tokens || state.rollback(tokens).is_ok()).then_some(state)
    }

    /// Makes an entry the most recently used one.
    pub(crate) fn touch(&mut self, tenant: &Tenant, ids: &Ids) {
        if let Some(entry) = self.remove(tenant, ids) {
            self.add(tenant, ids.clone(), entry.points);
        }
    }

    /// An entry that begins with `ids`, or is them.
    pub(crate) fn covering(&self, tenant: &Tenant, ids: &Ids) -> Option<Ids> {
        let (common, other, _) = self.tenants.get(tenant)?.neighbours(ids).next()?;
        (common == ids.len()).then(|| other.clone())
    }

    /// Keeps a state, unless it alone is too large; drops what it extends, and then the least recently used until
    /// everything fits. Returns what was dropped to make room, or `None` if it was too large.
    pub(crate) fn store(
        &mut self,
        tenant: &Tenant,
        ids: Ids,
        state: &SequenceState,
    ) -> Option<Vec<(Tenant, Ids)>> {
        let alone: u64 = state.blocks().map(|block| block_bytes(&block)).sum();
        if alone > self.most_bytes {
            return None;
        }
        let mut points = Vec::new();
        let extended = |memory: &Self| Some(memory.tenants.get(tenant)?.extended_by(&ids)?.0.clone());
        while let Some(prefix) = extended(self) {
            let Some(old) = self.remove(tenant, &prefix) else { break };
            // What it could be resumed at is a boundary of the longer entry now.
            points.extend(old.points);
        }
        if self.can_cut {
            points.clear();
        }
        points.push(state.clone());
        points.sort_by_key(SequenceState::length);
        points.dedup_by_key(|state| state.length());
        thin(&mut points);
        self.add(tenant, ids, points);
        let mut dropped = Vec::new();
        while self.entries() > 1 && (self.bytes > self.most_bytes || self.entries() > self.most_entries) {
            let Some((_, (tenant, ids))) = self.order.first_key_value() else { break };
            let (tenant, ids) = (*tenant, ids.clone());
            self.remove(&tenant, &ids);
            dropped.push((tenant, ids));
        }
        if self.bytes > self.most_bytes {
            self.shed_boundaries();
        }
        Some(dropped)
    }

    /// Keeps only the whole state of the one entry there is.
    fn shed_boundaries(&mut self) {
        let Some((_, (tenant, ids))) = self.order.first_key_value() else { return };
        let (tenant, ids) = (*tenant, ids.clone());
        if let Some(mut entry) = self.remove(&tenant, &ids) {
            entry.points.drain(..entry.points.len() - 1);
            self.add(&tenant, ids, entry.points);
        }
    }

    fn add(&mut self, tenant: &Tenant, ids: Ids, points: Vec<SequenceState>) {
        for (address, bytes) in pieces(&points) {
            let piece = self.pieces.entry(address).or_insert((0, bytes));
            if piece.0 == 0 {
                self.bytes += bytes;
            }
            piece.0 += 1;
        }
        self.clock += 1;
        self.order.insert(self.clock, (*tenant, ids.clone()));
        self.tenants.entry(*tenant).or_default().insert(ids, Entry { points, used: self.clock });
    }

    fn remove(&mut self, tenant: &Tenant, ids: &Ids) -> Option<Entry> {
        let map = self.tenants.get_mut(tenant)?;
        let entry = map.remove(ids)?;
        if map.is_empty() {
            self.tenants.remove(tenant);
        }
        self.order.remove(&entry.used);
        for (address, _) in pieces(&entry.points) {
            if let Some((holders, bytes)) = self.pieces.get_mut(&address) {
                *holders -= 1;
                if *holders == 0 {
                    self.bytes -= *bytes;
                    self.pieces.remove(&address);
                }
            }
        }
        Some(entry)
    }
}

/// Most states that an entry keeps.
const MOST_POINTS: usize = 8;

/// Keeps the last state, the first, and between them those that are the newest at each power-of-two distance from the
/// end, so that what is computed anew after a divergence is a small multiple of its distance.
fn thin(points: &mut Vec<SequenceState>) {
    while points.len() > MOST_POINTS {
        let end = points.last().map_or(0, SequenceState::length);
        let scale = |state: &SequenceState| (end - state.length()).max(1).ilog2();
        let crowded =
            (1..points.len() - 1).find(|at| scale(&points[*at]) == scale(&points[at - 1])).unwrap_or(1);
        points.remove(crowded);
    }
}

fn block_bytes(block: &StateBlock) -> u64 {
    block.memory().map(|(_, bytes)| bytes as u64).sum()
}

fn pieces(points: &[SequenceState]) -> Vec<(usize, u64)> {
    let blocks = points.iter().flat_map(SequenceState::blocks);
    blocks
        .flat_map(|block| block.memory().map(|(at, bytes)| (at, bytes as u64)).collect::<Vec<_>>())
        .collect()
}
