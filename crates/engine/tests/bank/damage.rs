//! Damaged files: an entry less, never a wrong state and never a panic.

use std::fs;
use std::path::{Path, PathBuf};

use samebit_engine::{BankError, MissReason};

use crate::support::{Engine, only_disk, tokens};

fn fill(engine: &Engine, folder: &Path, ids: &[u32]) {
    let mut bank = engine.bank(only_disk(folder)).unwrap();
    bank.store(ids, &engine.fresh(ids), "");
    bank.close();
}

fn blobs(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder.join("pages")).unwrap();
    let files = |folder: fs::DirEntry| fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let mut found: Vec<PathBuf> = folders.flat_map(|folder| files(folder.unwrap())).collect();
    found.sort();
    found
}

#[test]
fn damaged_blobs_are_dropped_and_stored_anew() {
    let engine = Engine::load();
    let ids = tokens(1, 300, 0, 300);
    let prompt = [&ids[..], &[1, 2]].concat();
    let damages: [fn(&Path, Vec<u8>); 5] = [
        |path, mut bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(path, bytes).unwrap();
        },
        |path, bytes| fs::write(path, &bytes[..bytes.len() - 1]).unwrap(),
        |path, _| fs::write(path, "").unwrap(),
        |path, bytes| fs::write(path, [&bytes[..], b"x"].concat()).unwrap(),
        |path, _| fs::remove_file(path).unwrap(),
    ];
    for damage in damages {
        for which in 0..2 {
            for while_open in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                fill(&engine, folder.path(), &ids);
                let path = &blobs(folder.path())[which];
                let bytes = fs::read(path).unwrap();
                if !while_open {
                    damage(path, bytes.clone());
                }
                let mut bank = engine.bank(only_disk(folder.path())).unwrap();
                if while_open {
                    damage(path, bytes);
                }
                let found = bank.lookup(&prompt, "");
                assert!(found.state.is_none());
                if while_open {
                    assert_eq!(found.miss, Some(MissReason::Corrupt));
                }
                assert_eq!((bank.stats().corrupt_entries, bank.stats().disk_entries), (1, 0));
                bank.store(&ids, &engine.fresh(&ids), "");
                bank.flush();
                engine.check(bank.lookup(&prompt, "").state.unwrap(), &prompt);
            }
        }
    }
}

#[test]
fn orphans_are_collected_and_the_files_of_others_left_alone() {
    let engine = Engine::load();
    let folder = tempfile::tempdir().unwrap();
    fill(&engine, folder.path(), &tokens(1, 20, 0, 20));
    let place = folder.path().join("pages/ab");
    fs::create_dir_all(&place).unwrap();
    let names = ["ab".repeat(32), ".writing-1".to_owned(), "notes.txt".to_owned()];
    names.iter().for_each(|name| fs::write(place.join(name), "x").unwrap());
    engine.bank(only_disk(folder.path())).unwrap();
    let left: Vec<bool> = names.iter().map(|name| place.join(name).exists()).collect();
    assert_eq!(left, [false, false, true]);
}

#[test]
fn a_damaged_index_costs_entries_at_most() {
    let engine = Engine::load();
    let ids = tokens(1, 20, 0, 20);
    let prompt = [&ids[..], &[1, 2]].concat();
    let folder = tempfile::tempdir().unwrap();
    fill(&engine, folder.path(), &ids);
    let index = folder.path().join("index.redb");
    let whole = fs::read(&index).unwrap();
    let mut versions: Vec<Vec<u8>> = [0, 1, 100, 4096, whole.len() / 2, whole.len() - 1]
        .iter()
        .map(|cut| whole[..*cut].to_vec())
        .collect();
    for flip in 0..60 {
        let mut bytes = whole.clone();
        // The header is met by every other flip.
        let at = if flip % 2 == 0 { flip * 5 } else { flip * 7919 % whole.len() };
        bytes[at] ^= 1 << (flip % 8);
        versions.push(bytes);
    }
    let mut kept = 0;
    for (version, bytes) in versions.iter().enumerate() {
        let copy = tempfile::tempdir().unwrap();
        fill(&engine, copy.path(), &ids);
        fs::write(copy.path().join("index.redb"), bytes).unwrap();
        let mut bank = match engine.bank(only_disk(copy.path())) {
            Ok(bank) => bank,
            Err(BankError::Format { .. } | BankError::Folder { .. }) => continue,
            Err(error) => panic!("version {version}: {error}"),
        };
        if let Some(state) = bank.lookup(&prompt, "").state {
            engine.check(state, &prompt);
            kept += 1;
        }
        bank.store(&ids, &engine.fresh(&ids), "");
        bank.flush();
        if let Some(state) = bank.lookup(&prompt, "").state {
            engine.check(state, &prompt);
        }
    }
    assert!(kept < versions.len(), "some damage shows");
}

#[test]
fn another_layout_is_refused_by_name_and_left_as_it_is() {
    let engine = Engine::load();
    let ids = tokens(1, 20, 0, 20);
    let folder = tempfile::tempdir().unwrap();
    fill(&engine, folder.path(), &ids);
    let set = |version: u32| {
        let database = redb::Database::open(folder.path().join("index.redb")).unwrap();
        let write = database.begin_write().unwrap();
        let table: redb::TableDefinition<'_, &str, u32> = redb::TableDefinition::new("meta");
        write.open_table(table).unwrap().insert("format", version).unwrap();
        write.commit().unwrap();
    };
    for version in [0, 2, 77] {
        set(version);
        let error = engine.bank(only_disk(folder.path())).err().unwrap();
        assert!(matches!(error, BankError::Format { .. }), "{error}");
        assert!(error.to_string().contains(&format!("version {version},")), "{error}");
    }
    set(1);
    let mut bank = engine.bank(only_disk(folder.path())).unwrap();
    assert_eq!(bank.lookup(&[&ids[..], &[1]].concat(), "").tokens, 20, "nothing was deleted");
}
