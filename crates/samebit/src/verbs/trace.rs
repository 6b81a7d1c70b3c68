//! `samebit trace`: every intermediate of a small forward pass in double precision.

use std::fs;

use samebit_checkpoint::Checkpoint;
use samebit_models::trace::{TraceRequest, trace, vocabulary};
use serde_json::json;

use super::{model, print_json};
use crate::cli::TraceArguments;
use crate::failure::{Failure, OrHint};
use crate::{output_file, terminal};

pub(super) fn run(arguments: &TraceArguments) -> Result<(), Failure> {
    let checkpoint = model::open(&arguments.model, arguments.output)?;
    let decodes: Vec<Vec<u32>> = arguments.decode.iter().map(|ids| ids.0.clone()).collect();
    let request = TraceRequest {
        prompt: &arguments.ids.0,
        decodes: &decodes,
        model: &arguments.model,
        vocabulary: token_names(&checkpoint)?,
        seed: arguments.seed,
        rope_check_vector: None,
    };
    let trace = trace(&checkpoint, &request)
        .or_hint("trace is for small dense checkpoints in a folder with config.json")?;
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

/// The text of each id, where the folder has a `tokenizer.json`.
fn token_names(checkpoint: &Checkpoint) -> Result<Option<Vec<String>>, Failure> {
    let file = checkpoint.folder().join("tokenizer.json");
    if !file.is_file() {
        return Ok(None);
    }
    let size = checkpoint.required_config()?.root().usize("vocab_size")?;
    let bytes = fs::read(&file).map_err(|error| Failure::io("read", &file, &error))?;
    // More names than the file has bytes cannot come out of it; the trace refuses such a vocabulary by itself.
    let size = size.min(bytes.len());
    let names =
        vocabulary(&bytes, size).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    Ok(Some(names))
}
