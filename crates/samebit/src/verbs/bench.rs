//! `samebit bench`: prefill and decode speed, load time and peak memory.
//!
//! Tokens are arbitrary but always the same. Choosing tokens is not measured: decode steps take given ones.

use std::time::Instant;

use samebit_arith::Cpu;
use samebit_models::{LogitRows, SequenceState, Span, Taps, TokenId};
use serde_json::{Value, json};

use super::model::{Loaded, available_threads, cpu};
use super::{print_json, size};
use crate::cli::BenchArguments;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::terminal;

pub(super) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    let isa = arguments.isa.choice.isa();
    let thread_counts =
        arguments.threads.as_ref().map_or_else(|| vec![available_threads()], |counts| counts.0.clone());
    let most_threads = thread_counts.iter().copied().max().unwrap_or(1);
    let loaded = Loaded::load_on(&arguments.model, cpu(isa, most_threads)?, arguments.output)?;
    check_lengths(arguments, loaded.model.info().context)?;

    let decodes = if arguments.generate > 0 { arguments.batch.0.len() } else { 0 };
    let tests = thread_counts.len() * (usize::from(arguments.prompt > 0) + decodes);
    let bar = Progress::new(arguments.output.quiet).counter("measuring", tests as u64);
    let mut results: Vec<Measurement> = Vec::with_capacity(tests);
    for threads in thread_counts {
        let bench = Bench { arguments, loaded: &loaded, cpu: cpu(isa, threads)? };
        if arguments.prompt > 0 {
            results.push(bench.prefill()?);
            bar.set(results.len() as u64);
        }
        if arguments.generate > 0 {
            for &batch in &arguments.batch.0 {
                results.push(bench.decode(batch)?);
                bar.set(results.len() as u64);
            }
        }
    }
    drop(bar);
    report(arguments, &loaded, &results)
}

fn check_lengths(arguments: &BenchArguments, context: usize) -> Result<(), Failure> {
    let longest = arguments.prompt.max(arguments.depth.saturating_add(arguments.generate));
    if longest == 0 {
        return Err(Failure::new("there is nothing to measure: --prompt and --generate are both 0"));
    }
    if longest > context {
        return Err(Failure::new(format!(
            "{longest} tokens do not fit the model's context of {context}: expected a smaller --prompt, or --depth and \
             --generate that together fit"
        )));
    }
    Ok(())
}

/// What was measured, with the rate of every repetition.
struct Measurement {
    test: &'static str,
    threads: usize,
    batch: usize,
    /// Tokens of one repetition, of all sequences together.
    tokens: usize,
    /// Tokens per second of each repetition, ascending.
    rates: Vec<f64>,
}

impl Measurement {
    /// The middle one; the mean of the middle two.
    fn median(&self) -> f64 {
        let (low, high) = ((self.rates.len() - 1) / 2, self.rates.len() / 2);
        f64::midpoint(self.rates[low], self.rates[high])
    }

    fn as_json(&self, depth: usize) -> Value {
        json!({
            "test": self.test,
            "threads": self.threads,
            "batch": self.batch,
            "tokens": self.tokens,
            "depth": depth,
            "tok_s": self.median(),
            "tok_s_min": self.rates.first(),
            "tok_s_max": self.rates.last(),
        })
    }
}

struct Bench<'a> {
    arguments: &'a BenchArguments,
    loaded: &'a Loaded,
    cpu: Cpu,
}

impl Bench<'_> {
    /// A prompt into an empty sequence, the logits of its last token included.
    fn prefill(&self) -> Result<Measurement, Failure> {
        let tokens = self.tokens(self.arguments.prompt);
        self.fill(&tokens)?;
        self.measure("prefill", 1, tokens.len(), || self.fill(&tokens).map(|_| ()))
    }

    /// One token at a time into each of `batch` sequences that hold `depth` tokens already.
    fn decode(&self, batch: usize) -> Result<Measurement, Failure> {
        let filled = self.fill(&self.tokens(self.arguments.depth))?;
        let tokens = self.tokens(self.arguments.generate);
        let run = |steps: &[TokenId]| -> Result<(), Failure> {
            let mut states = vec![filled.clone(); batch];
            for step in steps {
                let token = std::slice::from_ref(step);
                let mut spans: Vec<Span> = states
                    .iter_mut()
                    .map(|state| Span { state, tokens: token, logits: LogitRows::Last })
                    .collect();
                self.loaded.model.forward(&self.cpu, &mut spans, Taps::default())?;
            }
            Ok(())
        };
        run(&tokens[..tokens.len().min(4)])?;
        self.measure("decode", batch, batch * tokens.len(), || run(&tokens))
    }

    fn measure(
        &self,
        test: &'static str,
        batch: usize,
        tokens: usize,
        mut run: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Measurement, Failure> {
        let mut rates = Vec::with_capacity(self.arguments.repetitions.min(1024));
        for _ in 0..self.arguments.repetitions {
            let start = Instant::now();
            run()?;
            rates.push(tokens as f64 / start.elapsed().as_secs_f64());
        }
        rates.sort_unstable_by(f64::total_cmp);
        Ok(Measurement { test, threads: self.cpu.threads(), batch, tokens, rates })
    }

    /// A sequence that holds these tokens.
    fn fill(&self, tokens: &[TokenId]) -> Result<SequenceState, Failure> {
        let mut state = self.loaded.model.new_state(self.arguments.kv.ty);
        let chunks = tokens.chunks(self.arguments.prefill_chunk);
        let last = chunks.len().saturating_sub(1);
        for (index, chunk) in chunks.enumerate() {
            let logits = if index == last { LogitRows::Last } else { LogitRows::None };
            let span = Span { state: &mut state, tokens: chunk, logits };
            self.loaded.model.forward(&self.cpu, &mut [span], Taps::default())?;
        }
        Ok(state)
    }

    /// Arbitrary ids, always the same.
    fn tokens(&self, count: usize) -> Vec<TokenId> {
        let vocabulary = self.loaded.model.info().vocabulary.max(1) as u64;
        let mut x: u64 = 1;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            TokenId(((x >> 33) % vocabulary) as u32)
        };
        (0..count).map(|_| next()).collect()
    }
}

fn report(arguments: &BenchArguments, loaded: &Loaded, results: &[Measurement]) -> Result<(), Failure> {
    let peak = peak_memory_bytes();
    let depth_of = |result: &Measurement| if result.test == "decode" { arguments.depth } else { 0 };
    if arguments.output.json {
        return print_json(&json!({
            "model": arguments.model,
            "plan_id": samebit_models::plan_id(arguments.kv.ty),
            "isa": loaded.cpu.isa().to_string(),
            "weight_bytes": loaded.model.info().weight_bytes,
            "load_s": loaded.load_s,
            "peak_memory_bytes": peak,
            "repetitions": arguments.repetitions,
            "results": results.iter().map(|result| result.as_json(depth_of(result))).collect::<Vec<_>>(),
        }));
    }
    let mut text = format!(
        "{} ({}, {} weights), loaded in {:.2} s, peak memory {}\n",
        arguments.model,
        loaded.cpu.isa(),
        size(loaded.model.info().weight_bytes),
        loaded.load_s,
        peak.map_or("unknown".to_owned(), size),
    );
    text += "test     threads  batch  depth  tokens     tok/s       min       max\n";
    for result in results {
        text += &format!(
            "{:8} {:7}  {:5}  {:5}  {:6}  {:8.1}  {:8.1}  {:8.1}\n",
            result.test,
            result.threads,
            result.batch,
            depth_of(result),
            result.tokens,
            result.median(),
            result.rates[0],
            result.rates[result.rates.len() - 1],
        );
    }
    Ok(terminal::print(&text)?)
}

/// The most memory that this process ever held, where the system tells it.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
