//! `samebit bench`: prefill and decode speed, load time and peak memory, beside another program's where one is given.
//!
//! Tokens are arbitrary but always the same. Choosing tokens is not measured: decode steps take given ones.

mod command;
mod compare;
mod figures;
mod measure;
mod peer;
mod rates;
mod report;

use measure::{Bench, Kind, Test};
use peer::Peer;
use rates::Rates;

use super::model::{Loaded, available_threads, cpu};
use crate::cli::BenchArguments;
use crate::failure::Failure;
use crate::progress::{Bar, Progress};
use crate::terminal;

/// Load of the machine above which figures say little.
const BUSY: f64 = 0.5;

pub(super) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    let load_average = load_average();
    let isa = arguments.isa.choice.isa();
    let thread_counts =
        arguments.threads.as_ref().map_or_else(|| vec![available_threads()], |counts| counts.0.clone());
    let most_threads = thread_counts.iter().copied().max().unwrap_or(1);
    let loaded = Loaded::load_on(&arguments.model, cpu(isa, most_threads)?, arguments.output)?;
    check_lengths(arguments, loaded.model.info().context)?;
    if let Some(load) = load_average.filter(|load| *load > BUSY && !arguments.output.quiet) {
        terminal::message(format_args!(
            "the machine is busy (load average {load:.2}): these figures may be far from what it does when idle"
        ));
    }

    let tests = tests(arguments, &thread_counts);
    let rounds = if arguments.compare.is_some() { 2 * arguments.rounds } else { arguments.repetitions };
    let bar =
        Progress::new(arguments.output.quiet).counter("measuring", tests.len().saturating_mul(rounds) as u64);
    let bench = Bench::new(arguments, &loaded)?;
    let summary = report::Summary { arguments, loaded: &loaded, load_average };
    match &arguments.compare {
        None => {
            let results = measure(&bench, &tests, arguments.repetitions, &bar)?;
            drop(bar);
            summary.print(&results)
        }
        Some(command) => {
            let peer = Peer::new(command, loaded.checkpoint.path(), arguments.compare_limit)?;
            let results = compare::measure(&bench, &peer, &tests, arguments.rounds, &bar)?;
            drop(bar);
            summary.print_comparison(&peer, &results)
        }
    }
}

/// Every combination asked for.
fn tests(arguments: &BenchArguments, thread_counts: &[usize]) -> Vec<Test> {
    let mut tests = Vec::new();
    for &threads in thread_counts {
        if arguments.prompt > 0 {
            tests.push(Test {
                kind: Kind::Prefill,
                threads,
                batch: 1,
                depth: 0,
                tokens_each: arguments.prompt,
            });
        }
        if arguments.generate == 0 {
            continue;
        }
        for &depth in &arguments.depth.0 {
            for &batch in &arguments.batch.0 {
                let tokens_each = arguments.generate;
                tests.push(Test { kind: Kind::Decode, threads, batch, depth, tokens_each });
            }
        }
    }
    tests
}

/// Measures each test `repetitions` times.
fn measure(
    bench: &Bench<'_>,
    tests: &[Test],
    repetitions: usize,
    bar: &Bar,
) -> Result<Vec<(Test, Rates)>, Failure> {
    let mut results = Vec::with_capacity(tests.len());
    for &test in tests {
        let prepared = bench.prepare(test)?;
        let mut rates = Rates::default();
        for _ in 0..repetitions {
            rates.add(prepared.tokens_per_second()?);
            bar.advance();
        }
        results.push((test, rates));
    }
    Ok(results)
}

fn check_lengths(arguments: &BenchArguments, context: usize) -> Result<(), Failure> {
    let deepest = arguments.depth.0.iter().copied().max().unwrap_or(0);
    if arguments.prompt == 0 && arguments.generate == 0 {
        return Err(Failure::new("there is nothing to measure: --prompt and --generate are both 0"));
    }
    let longest = arguments.prompt.max(deepest.saturating_add(arguments.generate));
    if longest > context {
        return Err(Failure::new(format!(
            "{longest} tokens do not fit the model's context of {context}: expected a smaller --prompt, or --depth and \
             --generate that together fit"
        )));
    }
    Ok(())
}

/// Programs that wanted to run at once in the last minute, where the system tells it.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}
