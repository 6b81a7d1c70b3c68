//! One answer in the making, between forward passes.
//!
//! A turn is a list of tokens and a state that covers the first of them. A pass takes the next uncovered ones, and when
//! the last one has been taken, its logits give the next token. So reading a prompt, decoding, and computing anew what
//! was once dropped to make room are one rule.

use std::time::Instant;

use samebit_arith::likelihood::log_probabilities;
use samebit_arith::{Cpu, KvType};
use samebit_models::{LogitRows, Model, Span, TokenId};

use crate::generation::{Finish, Flow, Observer, Reply, Request, Timings};
use crate::identity::LogitsChain;
use crate::{EngineError, LogitsPipeline, MissReason, Sampler, Sequence, Source};

/// One answer in the making.
pub(crate) struct Turn {
    request: Request,
    pipeline: LogitsPipeline,
    sampler: Sampler,
    /// Most tokens of the answer.
    most: usize,
    sequence: Sequence,
    /// The prompt and what was answered so far.
    ids: Vec<u32>,
    /// Tokens of the span at hand.
    span: Vec<TokenId>,
    /// Why the answer ended, if it did.
    finish: Option<Finish>,
    chain: LogitsChain,
    /// Marks of the chain after each step.
    steps: String,
    cached_tokens: usize,
    source: Source,
    miss: Option<MissReason>,
    widest_pass: usize,
    timings: Timings,
    /// When the prompt, and then the answer, began to be computed.
    since: Instant,
}

impl Turn {
    /// Begins a turn from nothing. `salt` enters the seed where the request names none.
    ///
    /// # Errors
    /// As [`Request::check`].
    pub(crate) fn begin(
        model: &Model,
        request: Request,
        kv: KvType,
        salt: &str,
    ) -> Result<Self, EngineError> {
        let most = request.check(model)?;
        let sampler = Sampler::new(&request.sampling, &request.prompt, salt)?;
        let pipeline = LogitsPipeline::new(
            request.logits.clone(),
            request.constraint.clone(),
            &request.prompt,
            &request.end_ids,
        );
        Ok(Self {
            ids: request.prompt.clone(),
            request,
            pipeline,
            sampler,
            most,
            sequence: Sequence::new(model, kv),
            span: Vec::new(),
            finish: None,
            chain: LogitsChain::default(),
            steps: String::new(),
            cached_tokens: 0,
            source: Source::None,
            miss: None,
            widest_pass: 0,
            timings: Timings::default(),
            since: Instant::now(),
        })
    }

    /// Goes on from a sequence that may hold anything: what it shares with the turn's tokens is reused.
    ///
    /// # Errors
    /// When the sequence cannot go back to where they part.
    pub(crate) fn continue_from(
        &mut self,
        mut sequence: Sequence,
        source: Source,
        miss: Option<MissReason>,
    ) -> Result<(), EngineError> {
        let common = sequence.keep_common_prefix(&self.ids)?;
        self.sequence = sequence;
        self.since = Instant::now();
        // A turn that was put aside was told of its beginning already.
        if !self.answers() {
            self.cached_tokens = common;
            self.source = if common > 0 { source } else { Source::None };
            self.miss = miss;
        }
        Ok(())
    }

    /// Notes why a session bank had nothing.
    pub(crate) fn missed(&mut self, miss: Option<MissReason>) {
        if !self.answers() {
            self.miss = miss;
        }
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Most tokens that the sequence can come to hold: prompt and longest answer.
    pub(crate) fn longest(&self) -> usize {
        self.request.prompt.len() + self.most
    }

    /// The prompt and what was answered so far.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// How many tokens the state does not cover yet: 1 in decode, more while there is a prompt to read, 0 where the
    /// last token of a finished answer has been run too.
    pub(crate) fn uncovered(&self) -> usize {
        self.ids.len() - self.sequence.ids.len()
    }

    /// The sequence so far.
    pub(crate) fn sequence(&self) -> &Sequence {
        &self.sequence
    }

    /// Prompt tokens computed so far.
    pub(crate) fn prefilled(&self) -> usize {
        self.timings.prefill_tokens
    }

    /// Whether the answer has begun.
    pub(crate) fn answers(&self) -> bool {
        self.ids.len() > self.request.prompt.len()
    }

    /// The next uncovered tokens, at most `rows` of them, at least one. They must be run before the next call. The
    /// last one wants logits, unless the answer is finished.
    pub(crate) fn span(&mut self, rows: usize) -> Span<'_> {
        let covered = self.sequence.ids.len();
        let rows = rows.clamp(1, self.uncovered());
        self.span.clear();
        self.span.extend(self.ids[covered..covered + rows].iter().map(|id| TokenId(*id)));
        self.sequence.ids.extend_from_slice(&self.ids[covered..covered + rows]);
        let wanted = covered + rows == self.ids.len() && self.finish.is_none();
        let logits = if wanted { LogitRows::Last } else { LogitRows::None };
        Span { state: &mut self.sequence.state, tokens: &self.span, logits }
    }

    /// Whether the span at hand wants logits.
    pub(crate) fn wants_logits(&self) -> bool {
        self.uncovered() == 0 && self.finish.is_none()
    }

    /// Takes what the pass over [`Turn::span`] gave: `logits` is the row after the last token, or empty where none was
    /// wanted; `width` is how many rows the pass had in all. Returns why the turn ended, if it did.
    ///
    /// # Errors
    /// When the logits are no numbers, nothing may be chosen, or the observer fails.
    pub(crate) fn take(
        &mut self,
        cpu: &Cpu,
        logits: &[f32],
        width: usize,
        observer: &mut dyn Observer,
    ) -> Result<Option<Finish>, EngineError> {
        self.widest_pass = self.widest_pass.max(width);
        self.count_rows(observer);
        if !self.wants_logits() {
            return Ok(None);
        }
        let answer = &self.ids[self.request.prompt.len()..];
        let shaped = self.pipeline.shaped(logits, answer)?;
        let id = self.sampler.choose(cpu, shaped, self.ids.len())?;
        self.chain.add(logits);
        self.steps.push_str(&self.chain.mark());
        self.ids.push(id);
        if let Some(top) = self.request.log_probabilities {
            observer.log_probabilities(log_probabilities(logits, id, top));
        }
        let flow = observer.token(id)?;
        self.timings.decode = self.since.elapsed();
        let answered = self.ids.len() - self.request.prompt.len();
        self.finish = if self.pipeline.ends(id) || flow == Flow::Stop {
            Some(Finish::Stop)
        } else if answered == self.most {
            Some(Finish::Length)
        } else {
            None
        };
        Ok(self.finish)
    }

    /// Counts the rows of the last span as prompt or as answer.
    fn count_rows(&mut self, observer: &mut dyn Observer) {
        if self.answers() {
            self.timings.decode_tokens += self.span.len();
            return;
        }
        self.timings.prefill_tokens += self.span.len();
        observer.prefilled(self.sequence.ids.len(), self.ids.len());
        if self.uncovered() == 0 {
            self.timings.prefill = self.since.elapsed();
            self.since = Instant::now();
        }
    }

    /// Drops the state, to make room. What was dropped is computed anew when the turn goes on, with the same bits.
    ///
    /// # Errors
    /// When the state cannot be brought to its beginning.
    pub(crate) fn drop_state(&mut self) -> Result<(), EngineError> {
        self.sequence.state.rollback(0)?;
        self.sequence.ids.clear();
        Ok(())
    }

    /// The answer as far as it came; one that has not ended by itself counts as cancelled.
    pub(crate) fn reply(&self) -> Reply {
        Reply {
            ids: self.ids[self.request.prompt.len()..].to_vec(),
            finish: self.finish.unwrap_or(Finish::Cancelled),
            seed: self.sampler.seed(),
            chain: self.chain.hex(),
            steps: self.steps.clone(),
            cached_tokens: self.cached_tokens,
            source: self.source,
            miss: self.miss,
            widest_pass: self.widest_pass,
            timings: self.timings,
        }
    }

    /// The sequence, to be used by another turn.
    pub(crate) fn into_sequence(mut self) -> Sequence {
        // A pass that failed took tokens in hand that the state does not cover.
        self.sequence.ids.truncate(self.sequence.state.length());
        self.sequence
    }
}
