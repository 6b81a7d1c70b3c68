//! `samebit perplexity`: how probable the model finds a text.
//!
//! The rule is the common tools' one: the text's ids are cut into windows, each window is run alone from position 0, its
//! first id is replaced by BOS where the model adds BOS, and the predictions made in its second half are scored.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use samebit_arith::likelihood::Likelihood;
use samebit_models::{LogitRows, Span, Taps, TokenId};
use samebit_text::Special;
use serde_json::json;

use super::model::{Loaded, rows_per_pass};
use super::print_json;
use crate::cli::PerplexityArguments;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::terminal;

/// Longest text that is scored.
const LARGEST_TEXT: u64 = 64 << 20;

pub(super) fn run(arguments: &PerplexityArguments) -> Result<(), Failure> {
    let text = read(&arguments.text).map_err(|error| Failure::io("read", &arguments.text, &error))?;
    let text = String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{}: byte {at} is no UTF-8: expected a text", arguments.text.display()))
    })?;
    let text = text.strip_suffix('\n').unwrap_or(&text);

    let options = &arguments.model;
    let loaded = Loaded::load(&options.model, &options.machine, options.output)?;
    let tokenizer = samebit_engine::tokenizer(&loaded.checkpoint)?;
    let ids = tokenizer.encode_with_bos(text, Special::AsText)?;
    let bos = tokenizer.bos_id().filter(|_| tokenizer.adds_bos());
    let windows: Vec<Vec<TokenId>> =
        ids.chunks_exact(arguments.window).map(|window| with_bos(window, bos)).collect();
    if windows.is_empty() {
        return Err(Failure::new(format!(
            "{} has {} tokens, fewer than one window of {}: expected a longer text, or a smaller --window",
            arguments.text.display(),
            ids.len(),
            arguments.window
        )));
    }

    let bar = Progress::new(options.output.quiet).counter("windows", windows.len() as u64);
    let mut likelihood = Likelihood::default();
    for (index, window) in windows.iter().enumerate() {
        score_window(arguments, &loaded, window, &mut likelihood)?;
        bar.set(index as u64 + 1);
    }
    drop(bar);
    report(arguments, &loaded, ids.len(), windows.len(), &likelihood)
}

/// Reads a file, a pipe or a device, of a bounded length.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_TEXT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_TEXT {
        return Err(io::Error::other(format!("it is longer than {LARGEST_TEXT} bytes")));
    }
    Ok(bytes)
}

fn with_bos(window: &[u32], bos: Option<u32>) -> Vec<TokenId> {
    let mut window: Vec<TokenId> = window.iter().map(|id| TokenId(*id)).collect();
    if let (Some(bos), Some(first)) = (bos, window.first_mut()) {
        *first = TokenId(bos);
    }
    window
}

/// Scores the predictions of positions `window / 2 .. window - 1`.
fn score_window(
    arguments: &PerplexityArguments,
    loaded: &Loaded,
    window: &[TokenId],
    likelihood: &mut Likelihood,
) -> Result<(), Failure> {
    let mut state = loaded.model.new_state(arguments.model.machine.kv.ty);
    let first = window.len() / 2;
    let span = Span { state: &mut state, tokens: &window[..first], logits: LogitRows::None };
    loaded.model.forward(&loaded.cpu, &mut [span], Taps::default())?;
    // The last token is only predicted, never run.
    let scored = &window[first..window.len() - 1];
    let mut next = window[first + 1..].iter();
    for chunk in scored.chunks(rows_per_pass(loaded.model.info().vocabulary)) {
        let span = Span { state: &mut state, tokens: chunk, logits: LogitRows::All };
        let outputs = loaded.model.forward(&loaded.cpu, &mut [span], Taps::default())?;
        for (row, next) in (0..chunk.len()).zip(&mut next) {
            if likelihood.score(outputs.logits_row(row), next.0).is_none() {
                return Err(Failure::new(format!("id {} of the text is not among the model's ids", next.0)));
            }
        }
    }
    Ok(())
}

fn report(
    arguments: &PerplexityArguments,
    loaded: &Loaded,
    tokens: usize,
    windows: usize,
    likelihood: &Likelihood,
) -> Result<(), Failure> {
    let (perplexity, error) = (likelihood.perplexity(), likelihood.perplexity_error());
    if arguments.model.output.json {
        return print_json(&json!({
            "perplexity": perplexity,
            "perplexity_error": error,
            "mean_nll": likelihood.mean(),
            "scored": likelihood.count(),
            "windows": windows,
            "window": arguments.window,
            "tokens": tokens,
            "plan_id": samebit_models::plan_id(arguments.model.machine.kv.ty),
            "timings": { "load_s": loaded.load_s },
        }));
    }
    let line = format!(
        "perplexity {perplexity:.4} +/- {error:.4} ({} predictions in {windows} windows of {})\n",
        likelihood.count(),
        arguments.window
    );
    Ok(terminal::print(&line)?)
}
