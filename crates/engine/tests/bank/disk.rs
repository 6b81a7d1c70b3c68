//! Entries on disk: what another process would find, and what bounds them.

use std::fs;
use std::path::Path;

use samebit_arith::KvType;
use samebit_engine::{Bank, BankError, BankOptions, DiskOptions, MissReason, Source};

use crate::support::{Engine, WEIGHTS, on_disk, only_disk, tokens};

fn files(folder: &Path) -> usize {
    let folders = fs::read_dir(folder.join("pages")).unwrap();
    folders.map(|folder| fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn another_bank_finds_the_same_bits() {
    let engine = Engine::load();
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (tokens(1, 600, 0, 700), tokens(1, 600, 1, 650));
    let bank = |options| engine.bank(options).unwrap();
    let mut first = bank(only_disk(folder.path()));
    for ids in [&a, &b] {
        first.store(ids, &engine.fresh(ids), "salt");
    }
    first.flush();
    let stats = first.stats();
    assert_eq!((stats.disk_entries, stats.skipped_writes, stats.write_error), (2, 0, None));
    // Two full blocks are shared; each entry has a last one of its own.
    assert_eq!(files(folder.path()), 4);
    first.close();

    let mut second = bank(BankOptions { disk: Some(on_disk(folder.path())), ..BankOptions::default() });
    for common in [1, 255, 256, 300, 512, 599] {
        let prompt = [&a[..common], &[61, 3]].concat();
        let found = second.lookup(&prompt, "salt");
        assert_eq!(found.tokens, common, "{:?}", found.miss);
        engine.check(found.state.unwrap(), &prompt);
        assert_eq!(second.lookup(&prompt, "other").miss, Some(MissReason::NewSession));
    }
    for ids in [&a, &b] {
        let prompt = [&ids[..], &[2, 3]].concat();
        let found = second.lookup(&prompt, "salt");
        assert_eq!((found.tokens, found.source, found.miss), (ids.len(), Source::Disk, None));
        engine.check(found.state.unwrap(), &prompt);
        assert_eq!(second.lookup(&prompt, "salt").source, Source::Memory);
    }
    second.clear();
    assert_eq!((second.stats().disk_entries, second.stats().disk_bytes, files(folder.path())), (0, 0, 0));
}

#[test]
fn an_entry_of_other_weights_or_another_plan_is_refused_with_the_reason() {
    let engine = Engine::load();
    let folder = tempfile::tempdir().unwrap();
    let ids = tokens(1, 40, 0, 40);
    let prompt = [&ids[..], &[1, 2]].concat();
    let mut bank = engine.bank(only_disk(folder.path())).unwrap();
    bank.store(&ids, &engine.fresh(&ids), "");
    bank.close();
    for (weights, kv, reason) in [
        ("others", KvType::F16, MissReason::WeightsMismatch),
        (WEIGHTS, KvType::Int8, MissReason::PlanMismatch),
    ] {
        let decoder = engine.model.state_decoder(kv);
        let mut bank = Bank::open(only_disk(folder.path()), weights, decoder).unwrap();
        assert_eq!(bank.stats().disk_entries, 1, "it is kept");
        let found = bank.lookup(&prompt, "");
        assert!(found.state.is_none());
        assert_eq!(found.miss, Some(reason));
        assert_eq!(bank.lookup(&prompt, "another tenant").miss, Some(MissReason::NewSession));
    }
    let mut bank = engine.bank(only_disk(folder.path())).unwrap();
    engine.check(bank.lookup(&prompt, "").state.unwrap(), &prompt);
}

#[test]
fn limits_hold() {
    let engine = Engine::load();
    let lists: Vec<Vec<u32>> = (0..6).map(|stem| tokens(stem, 256, 0, 256)).collect();
    let fill = |options: DiskOptions| {
        let mut bank = engine
            .bank(BankOptions { memory_bytes: 0, disk: Some(options), ..BankOptions::default() })
            .unwrap();
        for ids in &lists {
            bank.store(ids, &engine.fresh(ids), "");
            bank.flush();
        }
        bank
    };
    let one = {
        let folder = tempfile::tempdir().unwrap();
        fill(on_disk(folder.path())).stats().disk_bytes / 6
    };

    let folder = tempfile::tempdir().unwrap();
    let mut bank = fill(DiskOptions { max_bytes: 3 * one, ..on_disk(folder.path()) });
    let stats = bank.stats();
    assert_eq!((stats.disk_entries, stats.disk_evictions), (3, 3));
    assert!(stats.disk_bytes <= 3 * one);
    assert_eq!(files(folder.path()), 3);
    assert!(bank.lookup(&[&lists[5][..], &[1]].concat(), "").state.is_some(), "the newest are there");
    let oldest = bank.lookup(&[&lists[0][..], &[1]].concat(), "");
    assert!(oldest.state.is_none(), "the oldest is not");
    assert_eq!(oldest.miss, Some(MissReason::Evicted));

    let limits: [fn(&Path, u64) -> DiskOptions; 4] = [
        |folder, one| DiskOptions { max_write_bytes_per_hour: 2 * one, ..on_disk(folder) },
        |folder, _| DiskOptions { min_free_bytes: u64::MAX, ..on_disk(folder) },
        |folder, one| DiskOptions { max_bytes: one / 2, ..on_disk(folder) },
        |folder, _| DiskOptions { max_backlog_bytes: 10, ..on_disk(folder) },
    ];
    for limited in limits {
        let folder = tempfile::tempdir().unwrap();
        let stats = fill(limited(folder.path(), one)).stats();
        assert!(stats.skipped_writes >= 4, "{stats:?}");
        assert_eq!(stats.disk_entries as u64 + stats.skipped_writes, 6, "{stats:?}");
        assert_eq!(files(folder.path()), stats.disk_entries, "nothing is left of what was skipped");
    }
}

#[test]
fn a_folder_has_one_bank() {
    let engine = Engine::load();
    let folder = tempfile::tempdir().unwrap();
    let first = engine.bank(only_disk(folder.path())).unwrap();
    let error = engine.bank(only_disk(folder.path())).err().unwrap();
    assert!(matches!(error, BankError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
    first.close();
    engine.bank(only_disk(folder.path())).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let engine = Engine::load();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a folder").unwrap();
    let error = engine.bank(only_disk(&file)).err().unwrap();
    assert!(matches!(error, BankError::Folder { .. }), "{error}");

    let sealed = folder.path().join("sealed");
    fs::create_dir(&sealed).unwrap();
    let mut rights = fs::metadata(&sealed).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&sealed, rights).unwrap();
    // The administrator may write anywhere.
    if fs::write(sealed.join("probe"), "").is_err() {
        let error = engine.bank(only_disk(&sealed)).err().unwrap();
        assert!(matches!(error, BankError::Folder { .. }), "{error}");
    }
}
