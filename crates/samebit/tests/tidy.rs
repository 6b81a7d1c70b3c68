//! The invariants of ARCHITECTURE.md that can be read off the source text.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file in lines: one file, one idea.
const LONGEST_FILE: usize = 500;

/// A word that must not stand in some files.
struct Rule {
    words: &'static [&'static str],
    /// Why, for the one who runs into it.
    reason: &'static str,
    /// Whether the rule holds for a file, by its path below `crates/`.
    applies: fn(&str) -> bool,
}

const RULES: [Rule; 6] = [
    Rule {
        words: &[
            ".exp()",
            ".ln()",
            ".tanh()",
            ".mul_add(",
            ".sum::<f32>",
            ".sum::<f64>",
            "_mm256_",
            "_mm512_",
        ],
        reason: "only arith adds floats, calls functions or knows an instruction set",
        applies: |file| !file.starts_with("arith/"),
    },
    Rule {
        words: &["is_x86_feature_detected", "std::arch", "core::arch"],
        reason: "only arith knows instruction sets",
        applies: |file| !file.starts_with("arith/"),
    },
    Rule {
        words: &["unsafe {", "unsafe fn", "unsafe impl"],
        reason: "unsafe code lives in arith and in checkpoint's mmap module",
        applies: |file| !file.starts_with("arith/") && file != "checkpoint/src/mmap.rs",
    },
    Rule {
        words: &["env::var"],
        reason: "no environment variable reaches below the command line",
        applies: |file| !file.starts_with("samebit/"),
    },
    Rule {
        words: &["Cpu::broken(", "Self::broken(", "Breakage::"],
        reason: "a broken plan is for tests only",
        applies: |file| file != "arith/src/broken.rs",
    },
    Rule {
        words: &["std::fs", "std::thread", "std::io", "File::"],
        reason: "families and layers do no input or output and start no threads",
        applies: |file| file.starts_with("models/src/families") || file.starts_with("models/src/layers"),
    },
];

fn source_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every source file of every crate, by its path below `crates/`, with its text. Test modules are left out.
fn sources() -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for entry in fs::read_dir(&crates).unwrap() {
        source_files(&entry.unwrap().path().join("src"), &mut files);
    }
    let below = |file: &Path| file.strip_prefix(&crates).unwrap().to_str().unwrap().replace('\\', "/");
    files
        .iter()
        .map(|file| (below(file), fs::read_to_string(file).unwrap()))
        .filter(|(file, _)| !file.contains("/tests"))
        .collect()
}

/// The code of a file before its unit tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| *line != "mod tests {")
        .map(|(index, line)| (index + 1, line))
}

fn violations(sources: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in sources {
        if text.lines().count() > LONGEST_FILE {
            found.push(format!("{file}: longer than {LONGEST_FILE} lines"));
        }
        for rule in RULES.iter().filter(|rule| (rule.applies)(file)) {
            for (number, line) in code(text).filter(|(_, line)| !line.trim_start().starts_with("//")) {
                if rule.words.iter().any(|word| line.contains(word)) {
                    found.push(format!("{file}:{number}: {} ({})", line.trim(), rule.reason));
                }
            }
        }
    }
    found
}

#[test]
fn the_source_keeps_its_invariants() {
    let sources = sources();
    assert!(sources.len() > 100, "only {} files found", sources.len());
    let found = violations(&sources);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn violations_are_found() {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let sources = [
        file("engine/src/a.rs", "let y = x.exp();"),
        file("text/src/a.rs", "unsafe { read() }"),
        file("models/src/families/a.rs", "use std::fs;"),
        file("models/src/a.rs", "std::env::var(\"X\")"),
        file("arith/src/a.rs", &"\n".repeat(LONGEST_FILE + 1)),
        file("arith/src/b.rs", "unsafe { x.exp() }"),
        file("prove/src/a.rs", "Cpu::broken(isa, 1, breakage)"),
    ];
    assert_eq!(violations(&sources).len(), 6);
}
