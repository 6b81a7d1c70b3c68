//! `samebit trace`: every intermediate of a small forward pass in double precision.

use std::fs;
use std::path::Path;

use samebit_checkpoint::Checkpoint;
use samebit_models::trace::{TraceRequest, trace, vocabulary};
use serde::Deserialize;
use serde_json::json;

use super::{model, print_json};
use crate::cli::TraceArguments;
use crate::failure::{Failure, OrHint};
use crate::{output_file, terminal};

pub(super) fn run(arguments: &TraceArguments) -> Result<(), Failure> {
    let checkpoint = model::open(&arguments.model, arguments.output)?;
    model::keep_from_overwriting(&checkpoint, "--out", &arguments.out)?;
    let record = Record::find(arguments.record.as_deref(), checkpoint.folder())?;
    let decodes: Vec<Vec<u32>> = arguments.decode.iter().map(|ids| ids.0.clone()).collect();
    let request = TraceRequest {
        prompt: &arguments.ids.0,
        decodes: &decodes,
        model: &arguments.model,
        vocabulary: token_names(&checkpoint)?,
        seed: arguments.seed.or(record.seed),
        rope_check_vector: record.rope_check_vector.as_ref().map(|vector| vector.values.as_slice()),
    };
    let trace = trace(&checkpoint, &request)
        .or_hint("trace is for small dense checkpoints: a folder with config.json, or a GGUF file")?;
    output_file::write(&arguments.out, trace.to_json().as_bytes())
        .map_err(|error| Failure::io("write", &arguments.out, &error))?;
    if arguments.output.json {
        return print_json(&json!({
            "out": arguments.out.display().to_string(),
            "passes": 1 + decodes.len(),
            "passed": trace.passed(),
        }));
    }
    if arguments.output.quiet {
        return Ok(());
    }
    let verdict =
        if trace.passed() { "all checks passed" } else { "a check FAILED: see verification.checks" };
    Ok(terminal::print(&format!("{}: {} passes, {verdict}\n", arguments.out.display(), 1 + decodes.len()))?)
}

/// What is known of a checkpoint beyond its files.
#[derive(Default, Deserialize)]
struct Record {
    /// Of a stored fixture; other files called expected.json are nobody's record.
    fixture: Option<String>,
    seed: Option<u64>,
    rope_check_vector: Option<RopeCheckVector>,
}

#[derive(Deserialize)]
struct RopeCheckVector {
    values: Vec<f64>,
}

impl Record {
    /// The record that was named, or the one beside the model's `folder`, or an empty one.
    fn find(named: Option<&Path>, folder: &Path) -> Result<Self, Failure> {
        if let Some(file) = named {
            return Self::read(file);
        }
        let Some(beside) = folder.parent().map(|parent| parent.join("expected.json")) else {
            return Ok(Self::default());
        };
        let found = if beside.is_file() { Self::read(&beside).ok() } else { None };
        Ok(found.filter(|record| record.fixture.is_some()).unwrap_or_default())
    }

    fn read(file: &Path) -> Result<Self, Failure> {
        let text = fs::read(file).map_err(|error| Failure::io("read", file, &error))?;
        serde_json::from_slice(&text).map_err(|error| {
            Failure::new(format!(
                "{}: {error}; expected a record with `seed` (a whole number) and `rope_check_vector` (`values`)",
                file.display()
            ))
        })
    }
}

/// The text of each id, where the folder has a `tokenizer.json`.
fn token_names(checkpoint: &Checkpoint) -> Result<Option<Vec<String>>, Failure> {
    let file = checkpoint.folder().join("tokenizer.json");
    if !file.is_file() {
        return Ok(None);
    }
    // A GGUF file brings its own names.
    let Some(config) = checkpoint.config() else { return Ok(None) };
    let size = config.root().usize("vocab_size")?;
    let bytes = fs::read(&file).map_err(|error| Failure::io("read", &file, &error))?;
    // More names than the file has bytes cannot come out of it; the trace refuses such a vocabulary by itself.
    let size = size.min(bytes.len());
    let names =
        vocabulary(&bytes, size).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    Ok(Some(names))
}
