//! One answer: prefill in chunks, then token by token until something ends it.

use std::time::{Duration, Instant};

use samebit_arith::{Buffer, Cpu, KvType};
use samebit_models::{LogitRows, Model, SequenceState, Span, Taps, TokenId};

use crate::identity::LogitsChain;
use crate::{EngineError, Sampler, SamplingOptions};

/// Longest answer when a request sets no limit; less where the context leaves less.
pub const DEFAULT_MAX_TOKENS: usize = 1024;

/// What to answer, and how.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The whole prompt, earlier turns included. At least one token.
    pub prompt: &'a [u32],
    /// Ids that end an answer; none to go on until a limit.
    pub end_ids: &'a [u32],
    /// How tokens are chosen.
    pub sampling: SamplingOptions,
    /// Longest answer in tokens, at least 1. `None` is [`DEFAULT_MAX_TOKENS`], or what the context leaves if that is less.
    pub max_tokens: Option<usize>,
    /// Most prompt tokens per forward pass, at least 1. It changes no bit.
    pub prefill_chunk: usize,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model said an end token.
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

/// Follows an answer as it is made, and may end it.
pub trait Observer {
    /// `done` of `total` prompt tokens are in the state.
    fn prefilled(&mut self, done: usize, total: usize) {
        let _ = (done, total);
    }

    /// The next token of the answer.
    ///
    /// # Errors
    /// An error ends the answer and is passed on.
    fn token(&mut self, id: u32) -> Result<(), EngineError> {
        let _ = id;
        Ok(())
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
    /// SHA-256 over the logits of all steps, in hexadecimal: see [`LogitsChain`].
    pub chain: String,
    /// Prompt tokens that the sequence held already.
    pub cached_tokens: usize,
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

/// A sequence: its state, and the tokens that the state covers.
#[derive(Clone, Debug)]
pub struct Sequence {
    state: SequenceState,
    ids: Vec<u32>,
}

impl Sequence {
    /// A sequence of no tokens, which stores keys and values as `kv`.
    pub fn new(model: &Model, kv: KvType) -> Self {
        Self { state: model.new_state(kv), ids: Vec::new() }
    }

    /// The tokens that the state covers.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Goes back to where `prompt` departs from the stored tokens, and returns how many tokens stay. The last prompt
    /// token is never among them: its row gives the first logits.
    fn keep_common_prefix(&mut self, prompt: &[u32]) -> Result<usize, EngineError> {
        let reusable = prompt.len().saturating_sub(1);
        let common =
            self.ids.iter().zip(&prompt[..reusable]).take_while(|(stored, wanted)| stored == wanted).count();
        self.state.rollback(common)?;
        self.ids.truncate(common);
        Ok(common)
    }

    /// Runs tokens through the model and returns the logits after the last one, if they are wanted.
    fn advance(
        &mut self,
        model: &Model,
        cpu: &Cpu,
        tokens: &[u32],
        logits: LogitRows,
    ) -> Result<Buffer, EngineError> {
        let ids: Vec<TokenId> = tokens.iter().map(|id| TokenId(*id)).collect();
        let span = Span { state: &mut self.state, tokens: &ids, logits };
        let outputs = model.forward(cpu, &mut [span], Taps::default())?;
        self.ids.extend_from_slice(tokens);
        Ok(outputs.logits)
    }
}

/// Answers a request.
///
/// `sequence` may hold anything; what it shares with the prompt is reused, which changes no bit. Afterwards it holds the
/// prompt and the answer, save the answer's last token, which no row has seen yet.
///
/// # Errors
/// When an option is out of bounds, the prompt is empty or holds an id that the model does not have, prompt and answer do
/// not fit the context, the logits are no numbers, or the observer fails.
pub fn generate(
    model: &Model,
    cpu: &Cpu,
    sequence: &mut Sequence,
    request: &Request,
    observer: &mut dyn Observer,
) -> Result<Reply, EngineError> {
    let sampler = Sampler::new(&request.sampling, request.prompt, "")?;
    let most = answer_limit(model, request)?;
    let cached_tokens = sequence.keep_common_prefix(request.prompt)?;

    let mut reply = Reply {
        ids: Vec::new(),
        finish: Finish::Cancelled,
        seed: sampler.seed(),
        chain: String::new(),
        cached_tokens,
        timings: Timings::default(),
    };
    let mut chain = LogitsChain::default();
    let start = Instant::now();
    let Some(mut logits) = prefill(model, cpu, sequence, request, observer)? else {
        reply.chain = chain.hex();
        return Ok(reply);
    };
    reply.timings.prefill = start.elapsed();
    reply.timings.prefill_tokens = request.prompt.len() - cached_tokens;

    let start = Instant::now();
    reply.finish = loop {
        let position = request.prompt.len() + reply.ids.len();
        let id = sampler.choose(cpu, &logits, position)?;
        chain.add(&logits);
        reply.ids.push(id);
        observer.token(id)?;
        if request.end_ids.contains(&id) {
            break Finish::Stop;
        }
        if reply.ids.len() == most {
            break Finish::Length;
        }
        if observer.cancelled() {
            break Finish::Cancelled;
        }
        logits = sequence.advance(model, cpu, &[id], LogitRows::Last)?;
        reply.timings.decode_tokens += 1;
    };
    reply.timings.decode = start.elapsed();
    reply.chain = chain.hex();
    Ok(reply)
}

/// Brings the sequence to the end of the prompt and returns the logits there; `None` if the observer ended it.
fn prefill(
    model: &Model,
    cpu: &Cpu,
    sequence: &mut Sequence,
    request: &Request,
    observer: &mut dyn Observer,
) -> Result<Option<Buffer>, EngineError> {
    let total = request.prompt.len();
    let mut logits = Buffer::default();
    let mut done = sequence.ids.len();
    for chunk in request.prompt[done..].chunks(request.prefill_chunk) {
        if observer.cancelled() {
            return Ok(None);
        }
        done += chunk.len();
        let wanted = if done == total { LogitRows::Last } else { LogitRows::None };
        logits = sequence.advance(model, cpu, chunk, wanted)?;
        observer.prefilled(done, total);
    }
    Ok(Some(logits))
}

/// Checks the request against the model, and returns how many tokens the answer may have.
fn answer_limit(model: &Model, request: &Request) -> Result<usize, EngineError> {
    let info = model.info();
    let positive = |option, number: usize| match number {
        0 => Err(EngineError::Option { option, found: "0".to_owned(), expected: "at least 1".to_owned() }),
        _ => Ok(()),
    };
    positive("max-tokens", request.max_tokens.unwrap_or(1))?;
    positive("prefill-chunk", request.prefill_chunk)?;
    if request.prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    if let Some(index) = request.prompt.iter().position(|id| *id as usize >= info.vocabulary) {
        return Err(EngineError::PromptToken {
            index,
            id: request.prompt[index],
            vocabulary: info.vocabulary,
        });
    }
    let room = info.context.saturating_sub(request.prompt.len());
    let wanted = request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS.min(room).max(1));
    if wanted > room {
        return Err(EngineError::Context {
            prompt: request.prompt.len(),
            answer: wanted,
            context: info.context,
        });
    }
    Ok(wanted)
}
