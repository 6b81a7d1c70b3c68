//! An answer on its way: decoded, shown as it comes, stopped by Ctrl-C.

use std::io::{IsTerminal, stdout};

use samebit_engine::{EngineError, Flow, Observer, Reply, token_sha};
use samebit_text::{StreamDecoder, Tokenizer, TokenizerError};

use super::interrupt;
use crate::cli::OutputOptions;
use crate::failure::Failure;
use crate::progress::{Bar, Progress};
use crate::terminal;

/// Prompts of fewer tokens show no progress: they are done before it could be read.
const LONG_PROMPT: usize = 256;

/// Follows an answer.
pub(super) struct Answer {
    decoder: Option<StreamDecoder>,
    text: String,
    /// Whether text goes to standard output as it comes.
    streams: bool,
    on_terminal: bool,
    progress: Progress,
    prefill: Option<Bar>,
}

impl Answer {
    /// An answer of which nothing has come yet. Without a tokenizer it has no text.
    pub(super) fn new(tokenizer: Option<&Tokenizer>, output: OutputOptions) -> Self {
        Self {
            decoder: tokenizer.map(|tokenizer| StreamDecoder::continuing(tokenizer, true)),
            text: String::new(),
            streams: !output.json,
            on_terminal: stdout().is_terminal(),
            progress: Progress::new(output.quiet),
            prefill: None,
        }
    }

    /// Ends the answer and returns its text, if it has one.
    pub(super) fn finish(mut self) -> Result<Option<String>, Failure> {
        let Some(mut decoder) = self.decoder.take() else { return Ok(None) };
        self.show(&decoder.flush())?;
        if self.streams {
            terminal::print("\n")?;
        }
        Ok(Some(self.text))
    }

    fn show(&mut self, text: &str) -> std::io::Result<()> {
        self.text.push_str(text);
        match (self.streams && !text.is_empty(), self.on_terminal) {
            (false, _) => Ok(()),
            (true, true) => terminal::print(&terminal::shown(text)),
            // A file or a program gets the text as it is.
            (true, false) => terminal::print(text),
        }
    }
}

impl Observer for Answer {
    fn prefilled(&mut self, done: usize, total: usize) {
        if done == total {
            self.prefill = None;
        } else if total >= LONG_PROMPT {
            let progress = self.progress;
            self.prefill.get_or_insert_with(|| progress.counter("reading", total as u64)).set(done as u64);
        }
    }

    fn token(&mut self, id: u32) -> Result<Flow, EngineError> {
        let Some(decoder) = &mut self.decoder else { return Ok(Flow::Continue) };
        let text = match decoder.push(id) {
            // A model may have more outputs than its vocabulary has tokens: such an id has no text.
            Err(TokenizerError::UnknownId { .. }) => return Ok(Flow::Continue),
            result => result?,
        };
        self.show(&text)?;
        Ok(Flow::Continue)
    }

    fn cancelled(&self) -> bool {
        interrupt::pressed()
    }
}

/// One line about an answer, for people.
pub(super) fn summary(reply: &Reply) -> String {
    let rate = |name: &str, rate: Option<f64>| {
        rate.map_or(String::new(), |rate| format!(", {name} {rate:.1} tok/s"))
    };
    format!(
        "[{} tokens, {}, token_sha {}, seed {}{}{}]",
        reply.ids.len(),
        reply.finish.name(),
        token_sha(&reply.ids),
        reply.seed,
        rate("prefill", reply.timings.prefill_rate()),
        rate("decode", reply.timings.decode_rate()),
    )
}
