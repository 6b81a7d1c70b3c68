//! Digests are remembered, and nothing that is wrong with the memory is believed.

mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use samebit_checkpoint::{Checkpoint, Pin};
use support::small_gguf;

struct Setting {
    folder: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        let setting = Self { folder: tempfile::tempdir().unwrap() };
        setting.write(&small_gguf().to_bytes().unwrap(), 100);
        setting
    }

    /// Writes the model as if it were some seconds old.
    fn write(&self, bytes: &[u8], age_s: u64) {
        std::fs::write(self.model(), bytes).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age_s);
        File::options().write(true).open(self.model()).unwrap().set_modified(time).unwrap();
    }

    fn model(&self) -> PathBuf {
        self.folder.path().join("m.gguf")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache/pins")
    }

    /// The pin of the model, and whether its bytes were hashed.
    fn pin(&self, cache: Option<&Path>) -> (Pin, bool) {
        let mut calls = Vec::new();
        let pins =
            Checkpoint::open(self.model()).unwrap().pins(cache, |done, total| calls.push((done, total)));
        assert_eq!(pins.len(), 1);
        let size = std::fs::metadata(self.model()).unwrap().len();
        assert_eq!(calls.last(), Some(&(size, size)));
        // One call reports the file; one more each step of hashing it.
        (pins.into_iter().next().unwrap(), calls.len() > 1)
    }

    /// The only entry of the cache.
    fn entry(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(self.cache()).unwrap();
        let entry = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none());
        entry
    }
}

#[test]
fn remembered_until_the_file_changes() {
    let setting = Setting::new();
    let (fresh, hashed) = setting.pin(None);
    assert!(hashed);
    assert_eq!(fresh.file, "m.gguf");
    assert!(!setting.cache().exists());
    let cache = setting.cache();
    assert_eq!(setting.pin(Some(&cache)), (fresh.clone(), true));
    assert_eq!(setting.pin(Some(&cache)), (fresh.clone(), false));
    let mut bytes = small_gguf().to_bytes().unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    setting.write(&bytes, 50);
    let (changed, hashed) = setting.pin(Some(&cache));
    assert!(hashed);
    assert_ne!(changed.sha256, fresh.sha256);
    assert_eq!(setting.pin(Some(&cache)), (changed, false));
}

#[test]
fn a_file_that_was_just_written_is_not_remembered() {
    let setting = Setting::new();
    setting.write(&small_gguf().to_bytes().unwrap(), 0);
    let cache = setting.cache();
    assert!(setting.pin(Some(&cache)).1);
    assert!(setting.pin(Some(&cache)).1);
}

#[test]
fn damaged_entries_are_ignored_and_rewritten() {
    let setting = Setting::new();
    let cache = setting.cache();
    let (pin, _) = setting.pin(Some(&cache));
    let good = std::fs::read_to_string(setting.entry()).unwrap();
    for bad in [
        String::new(),
        "{".to_owned(),
        good.replace(&pin.sha256, "xyz"),
        good.replace(&pin.sha256, &pin.sha256.to_uppercase().replace(|c: char| c.is_ascii_digit(), "G")),
        good.replace("\"size\":", "\"size\":1"),
        " ".repeat(100_000) + &good,
    ] {
        std::fs::write(setting.entry(), bad).unwrap();
        assert_eq!(setting.pin(Some(&cache)), (pin.clone(), true));
        assert_eq!(std::fs::read_to_string(setting.entry()).unwrap(), good);
    }
}

#[test]
fn a_cache_that_cannot_be_written_only_costs_time() {
    let setting = Setting::new();
    let blocked = setting.folder.path().join("file");
    std::fs::write(&blocked, b"").unwrap();
    let (pin, hashed) = setting.pin(Some(&blocked.join("pins")));
    assert!(hashed);
    assert_eq!(pin, setting.pin(None).0);
}
