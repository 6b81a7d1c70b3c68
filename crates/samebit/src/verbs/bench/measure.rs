//! Measuring samebit itself.

use std::fmt;
use std::time::Instant;

use samebit_arith::{Cpu, KvType};
use samebit_models::{LogitRows, Model, SequenceState, Span, Taps, TokenId};

use super::super::model::{Loaded, cpu};
use crate::cli::BenchArguments;
use crate::failure::Failure;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A prompt into an empty sequence, the logits of its last token included.
    Prefill,
    /// One token at a time into each of some sequences.
    Decode,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        })
    }
}

/// One combination of what is measured and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) kind: Kind,
    pub(super) threads: usize,
    /// Sequences that run together.
    pub(super) batch: usize,
    /// Tokens that each sequence holds before.
    pub(super) depth: usize,
    /// Tokens of one sequence.
    pub(super) tokens_each: usize,
}

impl Test {
    /// Tokens of all sequences together.
    pub(super) fn tokens(&self) -> usize {
        self.batch.saturating_mul(self.tokens_each)
    }
}

/// A model with sequences that are as deep as the tests want them.
pub(super) struct Bench<'a> {
    model: &'a Model,
    arguments: &'a BenchArguments,
    /// For each depth asked for, a sequence that deep.
    filled: Vec<SequenceState>,
}

impl<'a> Bench<'a> {
    /// Fills sequences to the depths that decode begins behind.
    pub(super) fn new(arguments: &'a BenchArguments, loaded: &'a Loaded) -> Result<Self, Failure> {
        let mut bench = Self { model: &loaded.model, arguments, filled: Vec::new() };
        if arguments.generate > 0 {
            let depths = &arguments.depth.0;
            let tokens = bench.tokens(depths.iter().copied().max().unwrap_or(0));
            bench.filled = depths
                .iter()
                .map(|&depth| bench.fill(&loaded.cpu, &tokens[..depth]))
                .collect::<Result<_, Failure>>()?;
        }
        Ok(bench)
    }

    /// Makes everything that a test needs, and runs a little of it, so that nothing is done for the first time later.
    pub(super) fn prepare(&self, test: Test) -> Result<Prepared<'_>, Failure> {
        let tokens = self.tokens(test.tokens_each);
        let cpu = cpu(self.arguments.isa.choice.isa(), test.threads)?;
        let states = match test.kind {
            Kind::Prefill => Vec::new(),
            Kind::Decode => self.sequences(test)?,
        };
        let prepared = Prepared { bench: self, cpu, test, tokens, states };
        match test.kind {
            Kind::Prefill => prepared.run(&prepared.tokens)?,
            Kind::Decode => prepared.run(&prepared.tokens[..prepared.tokens.len().min(4)])?,
        }
        Ok(prepared)
    }

    /// Sequences as deep as `test` wants them, each with memory of its own, as those of different prompts have.
    fn sequences(&self, test: Test) -> Result<Vec<SequenceState>, Failure> {
        let filled = self.filled.iter().find(|state| state.length() == test.depth);
        let Some(filled) = filled else { return Ok(Vec::new()) };
        let encoded = filled.encode();
        let copy = || Ok(self.model.decode_state(self.kv(), &encoded)?);
        (0..test.batch).map(|_| copy()).collect()
    }

    fn kv(&self) -> KvType {
        self.arguments.kv.ty
    }

    /// A sequence that holds these tokens.
    fn fill(&self, cpu: &Cpu, tokens: &[TokenId]) -> Result<SequenceState, Failure> {
        let mut state = self.model.new_state(self.kv());
        let chunks = tokens.chunks(self.arguments.prefill_chunk);
        let last = chunks.len().saturating_sub(1);
        for (index, chunk) in chunks.enumerate() {
            let logits = if index == last { LogitRows::Last } else { LogitRows::None };
            let span = Span { state: &mut state, tokens: chunk, logits };
            self.model.forward(cpu, &mut [span], Taps::default())?;
        }
        Ok(state)
    }

    /// Arbitrary ids, always the same.
    fn tokens(&self, count: usize) -> Vec<TokenId> {
        let vocabulary = self.model.info().vocabulary.max(1) as u64;
        let mut x: u64 = 1;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            TokenId(((x >> 33) % vocabulary) as u32)
        };
        (0..count).map(|_| next()).collect()
    }
}

/// A test that is ready to be run, any number of times.
pub(super) struct Prepared<'a> {
    bench: &'a Bench<'a>,
    cpu: Cpu,
    test: Test,
    tokens: Vec<TokenId>,
    /// The sequences that decode begins from.
    states: Vec<SequenceState>,
}

impl Prepared<'_> {
    /// Runs the test once.
    pub(super) fn tokens_per_second(&self) -> Result<f64, Failure> {
        let start = Instant::now();
        self.run(&self.tokens)?;
        Ok(self.test.tokens() as f64 / start.elapsed().as_secs_f64())
    }

    fn run(&self, tokens: &[TokenId]) -> Result<(), Failure> {
        match self.test.kind {
            Kind::Prefill => self.bench.fill(&self.cpu, tokens).map(|_| ()),
            Kind::Decode => self.decode(tokens),
        }
    }

    /// One step per token, in all sequences at once.
    fn decode(&self, steps: &[TokenId]) -> Result<(), Failure> {
        let mut states = self.states.clone();
        for step in steps {
            let tokens = std::slice::from_ref(step);
            let mut spans: Vec<Span> =
                states.iter_mut().map(|state| Span { state, tokens, logits: LogitRows::Last }).collect();
            self.bench.model.forward(&self.cpu, &mut spans, Taps::default())?;
        }
        Ok(())
    }
}
