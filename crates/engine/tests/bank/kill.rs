//! A process that is killed at any instant leaves entries with the right bits, and can be followed by another.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::{Engine, on_disk, only_disk, tokens};
use samebit_engine::{BankOptions, DiskOptions};

/// Names the folder to the child.
const FOLDER: &str = "SAMEBIT_TEST_BANK_FOLDER";

fn list(at: u32) -> Vec<u32> {
    tokens(at % 3, 256, at, 270 + at as usize % 40)
}

/// The child: not a test of its own, it stores until it is killed.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let engine = Engine::load();
    // A small folder, so that it is killed while dropping entries too.
    let disk = DiskOptions { max_bytes: 1 << 20, ..on_disk(Path::new(&folder)) };
    let options = BankOptions { memory_bytes: 0, disk: Some(disk), ..BankOptions::default() };
    let mut bank = engine.bank(options).unwrap();
    for at in (0..20).cycle() {
        let ids = list(at);
        bank.store(&ids, &engine.fresh(&ids), "");
        if at % 4 == 0 {
            bank.flush();
        }
    }
}

#[test]
fn killed_at_any_instant() {
    let engine = Engine::load();
    let folder = tempfile::tempdir().unwrap();
    let (mut found, mut corrupt) = (0, 0);
    for round in 0..20_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(150 + round * 97 % 500));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut bank = engine.bank(only_disk(folder.path())).unwrap();
        for at in 0..20 {
            let prompt = [&list(at)[..], &[61, 2]].concat();
            if let Some(state) = bank.lookup(&prompt, "").state {
                engine.check(state, &prompt);
                found += 1;
            }
        }
        corrupt += bank.stats().corrupt_entries;
    }
    assert!(found > 0, "the child was killed before it stored anything");
    assert_eq!(corrupt, 0, "an entry without its blobs was entered");
}
