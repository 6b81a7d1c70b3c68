//! Entries in memory against a naive model of them.

use proptest::prelude::*;
use samebit_engine::{BankOptions, MissReason, Source, Stored};
use samebit_models::{SequenceState, StateBlock};

use crate::support::{Engine, KV, tokens};

/// An entry of the naive model.
struct Naive {
    salt: &'static str,
    ids: Vec<u32>,
}

/// The naive model: a list, least recently used first.
#[derive(Default)]
struct List {
    entries: Vec<Naive>,
    most: usize,
}

impl List {
    fn store(&mut self, salt: &'static str, ids: &[u32]) {
        // One that begins with it serves; it counts as used.
        if let Some(at) = self.entries.iter().position(|e| e.salt == salt && e.ids.starts_with(ids)) {
            let entry = self.entries.remove(at);
            return self.entries.push(entry);
        }
        self.entries.retain(|e| e.salt != salt || !ids.starts_with(&e.ids));
        self.entries.push(Naive { salt, ids: ids.to_vec() });
        if self.entries.len() > self.most {
            self.entries.remove(0);
        }
    }

    /// The longest common prefix, by comparing with everything.
    fn lookup(&self, salt: &str, prompt: &[u32]) -> usize {
        let common = |ids: &[u32]| ids.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let own = self.entries.iter().filter(|e| e.salt == salt);
        own.map(|e| common(&e.ids)).max().unwrap_or(0).min(prompt.len() - 1)
    }
}

/// Lengths of common beginnings: none, and some near the ends of pages.
const STEMS: [usize; 5] = [0, 250, 255, 256, 508];

/// States of common beginnings, so that not every token of every list is computed anew.
struct Stems<'a> {
    engine: &'a Engine,
    ids: Vec<u32>,
    states: Vec<SequenceState>,
}

impl<'a> Stems<'a> {
    fn new(engine: &'a Engine) -> Self {
        let ids = tokens(1, 508, 0, 508);
        Self {
            engine,
            states: STEMS
                .iter()
                .map(|stem| if *stem == 0 { engine.model.new_state(KV) } else { engine.fresh(&ids[..*stem]) })
                .collect(),
            ids,
        }
    }

    fn state(&self, ids: &[u32]) -> SequenceState {
        let stem = STEMS.iter().rposition(|stem| ids.starts_with(&self.ids[..*stem])).unwrap();
        let mut state = self.states[stem].clone();
        if ids.len() > STEMS[stem] {
            self.engine.extend(&mut state, &ids[STEMS[stem]..]);
        }
        state
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn lookups_are_those_of_a_list(
        steps in prop::collection::vec(
            (any::<bool>(), 0..2_usize, 0..STEMS.len(), prop::collection::vec(0..3_u32, 1..12)), 1..60),
        most in 1..8_usize,
    ) {
        let engine = Engine::load();
        let mut bank = engine.bank(BankOptions { max_entries: most, ..BankOptions::default() }).unwrap();
        let mut list = List { most, ..List::default() };
        let stems = Stems::new(&engine);
        for (store, salt, stem, tail) in steps {
            let salt = ["", "tenant"][salt];
            let ids = [&stems.ids[..STEMS[stem]], &tail].concat();
            if store {
                let stored = bank.store(&ids, &stems.state(&ids), salt);
                list.store(salt, &ids);
                if stored == Stored::Covered {
                    return_to(&mut bank, &mut list, salt, &ids);
                }
                prop_assert_eq!(bank.stats().memory_entries, list.entries.len());
            } else {
                let expected = list.lookup(salt, &ids);
                let found = bank.lookup(&ids, salt);
                prop_assert_eq!(found.tokens, expected);
                prop_assert_eq!(found.state.is_some(), expected > 0);
                if let Some(state) = found.state {
                    prop_assert_eq!(state.length(), expected);
                    prop_assert!(state.encode() == stems.state(&ids[..expected]).encode());
                    // Which of several equally good entries was used shows in what is dropped later, so the order
                    // of use is taken from a store of what was found.
                    let stored = bank.store(&ids[..expected], &state, salt);
                    prop_assert_eq!(stored, Stored::Covered);
                    return_to(&mut bank, &mut list, salt, &ids[..expected]);
                }
            }
        }
    }
}

/// Uses every entry that begins with `ids` once, in the order of the list, so that bank and list agree on the order.
fn return_to(bank: &mut samebit_engine::Bank, list: &mut List, salt: &'static str, ids: &[u32]) {
    let (used, rest): (Vec<Naive>, Vec<Naive>) =
        std::mem::take(&mut list.entries).into_iter().partition(|e| e.salt == salt && e.ids.starts_with(ids));
    list.entries = rest;
    for entry in used {
        // A prompt that is the entry and one token more finds that entry and no other.
        let prompt = [&entry.ids[..], &[100]].concat();
        assert_eq!(bank.lookup(&prompt, salt).tokens, entry.ids.len());
        list.entries.push(entry);
    }
}

#[test]
fn what_comes_back_goes_on_as_if_computed() {
    let engine = Engine::load();
    let mut bank = engine.bank(BankOptions::default()).unwrap();
    let stored = tokens(1, 700, 1, 700);
    bank.store(&stored, &engine.fresh(&stored), "");
    for common in [1, 16, 255, 256, 257, 512, 699, 700] {
        let prompt = [&tokens(1, common, 2, common)[..], &[61, 5, 9]].concat();
        let found = bank.lookup(&prompt, "");
        assert_eq!((found.tokens, found.source), (common, Source::Memory));
        let departs = (common < 700).then_some(MissReason::PrefixDivergence { position: common });
        assert_eq!(found.miss, departs);
        engine.check(found.state.unwrap(), &prompt);
    }
    // The last token of a prompt is always computed.
    assert_eq!(bank.lookup(&stored, "").tokens, 699);
}

#[test]
fn reasons_have_names() {
    let engine = Engine::load();
    let options = BankOptions { minimum_prefix: 8, max_entries: 1, ..BankOptions::default() };
    let mut bank = engine.bank(options).unwrap();
    let (a, b) = (tokens(1, 20, 0, 20), tokens(2, 20, 0, 20));
    let prompt = [&a[..], &[1, 2]].concat();
    assert_eq!(bank.lookup(&prompt, "").miss, Some(MissReason::NewSession));
    assert_eq!(bank.store(&a, &engine.fresh(&a), "one"), Stored::Kept);
    // Another tenant cannot tell it from nothing.
    assert_eq!(bank.lookup(&prompt, "").miss, Some(MissReason::NewSession));
    assert_eq!(bank.lookup(&prompt, "one").tokens, 20);
    let other = [&a[..5], &[61; 9]].concat();
    assert_eq!(bank.lookup(&other, "one").miss, Some(MissReason::PrefixDivergence { position: 5 }));
    assert_eq!(bank.store(&b, &engine.fresh(&b), "one"), Stored::Kept);
    assert_eq!(bank.lookup(&prompt, "one").miss, Some(MissReason::Evicted));
    assert_eq!(bank.lookup(&prompt, "").miss, Some(MissReason::NewSession));
    assert_eq!(bank.store(&b[..3], &engine.fresh(&b), "one"), Stored::WrongLength);
    assert_eq!(bank.store(&b[..3], &engine.fresh(&b[..3]), "one"), Stored::Covered);
    let mut none = engine.bank(BankOptions { memory_bytes: 0, ..BankOptions::default() }).unwrap();
    assert_eq!(none.store(&a, &engine.fresh(&a), ""), Stored::Disabled);
    assert_eq!(none.lookup(&prompt, "").miss, Some(MissReason::Disabled));
}

#[test]
fn shared_pages_count_once_and_the_newest_entry_stays() {
    let engine = Engine::load();
    let stem = engine.fresh(&tokens(1, 512, 0, 512));
    let page: usize = stem.blocks().next().unwrap().memory().map(|(_, bytes)| bytes).sum();
    assert_eq!(stem.blocks().map(|block| block.positions()).collect::<Vec<_>>(), [StateBlock::POSITIONS; 2]);
    let mut bank = engine.bank(BankOptions::default()).unwrap();
    let mut own = 0;
    for branch in 0..4 {
        let ids = tokens(1, 512, branch, 520);
        let mut state = stem.clone();
        engine.extend(&mut state, &ids[512..]);
        own += state.bytes() - stem.bytes();
        bank.store(&ids, &state, "");
    }
    assert_eq!(bank.stats().memory_entries, 4);
    assert_eq!(bank.stats().memory_bytes, (2 * page + own) as u64);
    bank.clear();
    assert_eq!((bank.stats().memory_entries, bank.stats().memory_bytes), (0, 0));

    let most = 3 * page as u64;
    let mut bank = engine.bank(BankOptions { memory_bytes: most, ..BankOptions::default() }).unwrap();
    for stem in 0..6 {
        let ids = tokens(stem, 256, 0, 256);
        assert_eq!(bank.store(&ids, &engine.fresh(&ids), ""), Stored::Kept);
        assert!(bank.stats().memory_bytes <= most);
        assert_eq!(bank.lookup(&[&ids[..], &[1]].concat(), "").tokens, 256);
    }
    assert_eq!(bank.stats().memory_evictions, 3);
    let large = tokens(9, 1025, 0, 1025);
    assert_eq!(bank.store(&large, &engine.fresh(&large), ""), Stored::TooLarge);
    assert_eq!(bank.stats().memory_entries, 3, "what is too large pushes nothing out");
}
