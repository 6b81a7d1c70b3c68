//! What the tests of the program share: running it, its fixtures, and the two real models.

// Each test program uses its own part of this.
#![allow(dead_code)]

pub mod fidelity;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use samebit_checkpoint::Checkpoint;
use serde_json::Value;

/// A fixture inside the repository.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// A fixture too large for the repository. Where it is missing a continuous-integration run fails; elsewhere the test
/// says why it did nothing.
pub fn shared_fixture(path: &str) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures").join(path);
    if file.exists() {
        return Some(file);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing", file.display());
    eprintln!("nothing was compared: {} is missing", file.display());
    None
}

/// Runs the program with these arguments and nothing on standard input.
pub fn samebit<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_samebit"))
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the program starts")
}

/// Runs the program, which must succeed, and returns its standard output.
pub fn succeed<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> String {
    let output = samebit(arguments);
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// Runs the program, which must succeed and print one JSON object.
pub fn json<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Value {
    let text = succeed(arguments);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs the program, which must fail with exit code 2 and one paragraph (and perhaps a hint); returns that text.
pub fn fail<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> String {
    let output = samebit(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty(), "standard output: {}", String::from_utf8_lossy(&output.stdout));
    assert!(text.starts_with("error: "), "{text}");
    assert!(!text.contains("panicked") && !text.contains("backtrace"), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 1 || lines.len() == 2 && lines[1].starts_with("hint: "), "{text}");
    text
}

/// Text of a path, for arguments.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// Ids as the command line takes them.
pub fn joined(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// A JSON file.
pub fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The ids under a key.
pub fn ids(value: &Value) -> Vec<u32> {
    let array = value.as_array().expect("a list of ids");
    array.iter().map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id")).collect()
}

/// A tensor as `f64`, whatever float type it is stored in.
pub fn tensor(file: &Checkpoint, name: &str) -> Vec<f64> {
    file.tensor(name).and_then(|tensor| tensor.to_f64()).unwrap_or_else(|error| panic!("{error}"))
}

/// A tensor of integers.
pub fn integers(file: &Checkpoint, name: &str) -> Vec<i64> {
    file.tensor(name).and_then(|tensor| tensor.to_i64()).unwrap_or_else(|error| panic!("{error}"))
}

/// Opens a safetensors file.
pub fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// A real model with the folder of its ground truth.
pub struct RealModel {
    /// Its name on the command line.
    pub name: &'static str,
    /// Folder below `fixtures/real`.
    pub folder: &'static str,
}

/// The two real models that ground truth exists for.
pub const REAL_MODELS: [RealModel; 2] = [
    RealModel { name: "smollm2-135m", folder: "smollm2-135m-q4_1" },
    RealModel { name: "gemma-3-270m", folder: "gemma-3-270m-q4_k_m" },
];

impl RealModel {
    /// The model's file, fetched first where it is not in the cache.
    pub fn path(&self) -> PathBuf {
        let settings = samebit::pull::Settings::from_environment().unwrap_or_else(|error| panic!("{error}"));
        samebit::pull::ensure(self.name, &settings).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A file of its ground truth inside the repository.
    pub fn truth(&self, file: &str) -> PathBuf {
        fixture(&format!("real/{}/{file}", self.folder))
    }

    /// A file of its ground truth that is too large for the repository.
    pub fn shared_truth(&self, file: &str) -> Option<PathBuf> {
        shared_fixture(&format!("real/{}/{file}", self.folder))
    }
}
