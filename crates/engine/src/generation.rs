//! One request on one sequence, and what an answer is.

use std::time::Duration;

use samebit_arith::Cpu;
use samebit_arith::likelihood::{LogProbabilities, MAX_TOP};
use samebit_models::{Model, Taps};

use crate::turn::Turn;
use crate::{Constraint, EngineError, LogitOptions, MissReason, SamplingOptions, Sequence, Source};

/// Longest answer when a request sets no limit; less where the context leaves less.
pub const DEFAULT_MAX_TOKENS: usize = 1024;

/// Most prompt tokens per forward pass when nobody says otherwise.
pub const DEFAULT_PREFILL_CHUNK: usize = 512;

/// What to answer, and how. The default answers an empty prompt, which is refused, greedily.
#[derive(Clone, Debug)]
pub struct Request {
    /// The whole prompt, earlier turns included. At least one token.
    pub prompt: Vec<u32>,
    /// Ids that end an answer; none to go on until a limit.
    pub end_ids: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// What is done to logits before.
    pub logits: LogitOptions,
    /// What the answer's text must be.
    pub constraint: Option<Constraint>,
    /// How many of the most probable tokens to tell at each step beside the chosen one's log-probability, at most
    /// [`samebit_arith::likelihood::MAX_TOP`]; `None` tells none.
    pub log_probabilities: Option<usize>,
    /// Longest answer in tokens, at least 1. `None` is [`DEFAULT_MAX_TOKENS`], or what the context leaves if that is less.
    pub max_tokens: Option<usize>,
    /// Most prompt tokens per forward pass, at least 1. It changes no bit.
    pub prefill_chunk: usize,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            prompt: Vec::new(),
            end_ids: Vec::new(),
            sampling: SamplingOptions::default(),
            logits: LogitOptions::default(),
            constraint: None,
            log_probabilities: None,
            max_tokens: None,
            prefill_chunk: DEFAULT_PREFILL_CHUNK,
        }
    }
}

impl Request {
    /// Checks the request against the model, and returns how many tokens the answer may have.
    ///
    /// # Errors
    /// When an option is out of bounds, the prompt is empty or holds an id that the model does not have, or prompt and
    /// answer do not fit the context.
    pub fn check(&self, model: &Model) -> Result<usize, EngineError> {
        self.sampling.check()?;
        let info = model.info();
        let positive = |option, number: usize| match number {
            0 => {
                Err(EngineError::Option { option, found: "0".to_owned(), expected: "at least 1".to_owned() })
            }
            _ => Ok(()),
        };
        positive("max-tokens", self.max_tokens.unwrap_or(1))?;
        positive("prefill-chunk", self.prefill_chunk)?;
        if self.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if let Some(index) = self.prompt.iter().position(|id| *id as usize >= info.vocabulary) {
            return Err(EngineError::PromptToken {
                index,
                id: self.prompt[index],
                vocabulary: info.vocabulary,
            });
        }
        let room = info.context.saturating_sub(self.prompt.len());
        let wanted = self.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS.min(room).max(1));
        if wanted > room {
            return Err(EngineError::Context {
                prompt: self.prompt.len(),
                answer: wanted,
                context: info.context,
            });
        }
        self.logits.check(info.vocabulary, wanted)?;
        if let Some(top) = self.log_probabilities.filter(|top| *top > MAX_TOP) {
            return Err(EngineError::Option {
                option: "log-probabilities",
                found: top.to_string(),
                expected: format!("at most {MAX_TOP}"),
            });
        }
        Ok(wanted)
    }
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model said an end token, or the observer found what it was told to stop at.
    Stop,
    /// The limit of tokens was reached.
    Length,
    /// The observer asked for it.
    Cancelled,
}

impl Finish {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What becomes of an answer after a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It goes on, unless the token ends it anyway.
    Continue,
    /// It is complete: the text holds a stop string, say.
    Stop,
}

/// Follows an answer as it is made, and may end it.
pub trait Observer {
    /// `done` of `total` prompt tokens are in the state. Called first with what was there already.
    fn prefilled(&mut self, done: usize, total: usize) {
        let _ = (done, total);
    }

    /// What the model made of the next token, which [`Observer::token`] tells right after. Only where the request asks
    /// for it; `None` where a row has no probabilities.
    fn log_probabilities(&mut self, probabilities: Option<LogProbabilities>) {
        let _ = probabilities;
    }

    /// The next token of the answer.
    ///
    /// # Errors
    /// An error ends the answer and is passed on.
    fn token(&mut self, id: u32) -> Result<Flow, EngineError> {
        let _ = id;
        Ok(Flow::Continue)
    }

    /// Whether to end the answer before the next forward pass.
    fn cancelled(&self) -> bool {
        false
    }
}

/// An observer that does nothing.
impl Observer for () {}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its ids, the end token included.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// The seed, given or derived.
    pub seed: u64,
    /// SHA-256 over the logits of all steps, in hexadecimal: see [`crate::LogitsChain`].
    pub chain: String,
    /// The first 8 hexadecimal digits of the chain after each step, joined: where two replies part can be told from it.
    pub steps: String,
    /// Prompt tokens that were not computed, since a state covered them.
    pub cached_tokens: usize,
    /// Where that state was.
    pub source: Source,
    /// Why it covers no more, where a session bank was asked.
    pub miss: Option<MissReason>,
    /// Most rows that were in a forward pass with one of this answer's. It must not matter.
    pub widest_pass: usize,
    /// Where the time went.
    pub timings: Timings,
}

/// Where the time of an answer went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Prompt tokens computed, cached ones excluded.
    pub prefill_tokens: usize,
    /// Time for them.
    pub prefill: Duration,
    /// Forward passes after prefill, one token each.
    pub decode_tokens: usize,
    /// Time for them, choosing of tokens included.
    pub decode: Duration,
}

impl Timings {
    /// Prompt tokens per second; `None` if there were none.
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prefill_tokens, self.prefill)
    }

    /// Decoded tokens per second; `None` if there were none.
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decode_tokens, self.decode)
    }
}

fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

/// Answers a request.
///
/// `sequence` may hold anything; what it shares with the prompt is reused, which changes no bit. Afterwards it holds the
/// prompt and the answer, save the answer's last token, which no row has seen yet.
///
/// # Errors
/// As [`Request::check`], and when the logits are no numbers or the observer fails.
pub fn generate(
    model: &Model,
    cpu: &Cpu,
    sequence: &mut Sequence,
    request: &Request,
    observer: &mut dyn Observer,
) -> Result<Reply, EngineError> {
    let mut turn = Turn::begin(model, request.clone(), sequence.kv_type(), "")?;
    let held = std::mem::replace(sequence, Sequence::new(model, sequence.kv_type()));
    turn.continue_from(held, Source::Memory, None)?;
    let result = run(model, cpu, &mut turn, observer).map(|()| turn.reply());
    *sequence = turn.into_sequence();
    result
}

/// Runs a turn until it ends or is cancelled.
fn run(model: &Model, cpu: &Cpu, turn: &mut Turn, observer: &mut dyn Observer) -> Result<(), EngineError> {
    while !observer.cancelled() {
        let chunk = turn.request().prefill_chunk;
        let span = turn.span(chunk);
        let width = span.tokens.len();
        let outputs = model.forward(cpu, &mut [span], Taps::default())?;
        if turn.take(cpu, &outputs.logits, width, observer)?.is_some() {
            break;
        }
    }
    Ok(())
}
