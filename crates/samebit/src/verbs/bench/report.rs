//! What was measured, for people and as JSON.

use serde_json::{Value, json};

use super::super::model::Loaded;
use super::super::{print_json, size};
use super::compare::Comparison;
use super::measure::Test;
use super::peer::Peer;
use super::rates::Rates;
use crate::cli::BenchArguments;
use crate::failure::Failure;
use crate::terminal;

/// What all results have in common.
pub(super) struct Summary<'a> {
    pub(super) arguments: &'a BenchArguments,
    pub(super) loaded: &'a Loaded,
    /// Load of the machine before anything was measured.
    pub(super) load_average: Option<f64>,
}

impl Summary<'_> {
    /// Prints the rates of every test.
    pub(super) fn print(&self, results: &[(Test, Rates)]) -> Result<(), Failure> {
        if self.arguments.output.json {
            let mut report = self.as_json();
            report["repetitions"] = json!(self.arguments.repetitions);
            report["results"] = results.iter().map(|(test, rates)| test_as_json(test, rates)).collect();
            return print_json(&report);
        }
        let mut text = self.headline();
        text += "test     threads  batch  depth  tokens     tok/s       min       max\n";
        for (test, rates) in results {
            text += &format!(
                "{:8} {:7}  {:5}  {:5}  {:6}  {:8.1}  {:8.1}  {:8.1}\n",
                test.kind,
                test.threads,
                test.batch,
                test.depth,
                test.tokens(),
                rates.median(),
                rates.lowest(),
                rates.highest(),
            );
        }
        Ok(terminal::print(&text)?)
    }

    /// Prints the rates of both programs in every test, and their ratios.
    pub(super) fn print_comparison(&self, peer: &Peer, results: &[Comparison]) -> Result<(), Failure> {
        if self.arguments.output.json {
            let mut report = self.as_json();
            report["rounds"] = json!(self.arguments.rounds);
            report["compare"] = json!(peer.command());
            report["results"] = results.iter().map(comparison_as_json).collect();
            return print_json(&report);
        }
        let mut text = self.headline();
        text += &format!(
            "compared with: {}\n{} rounds, alternating; medians (min..max) in tokens per second\n",
            terminal::shown(peer.command()),
            self.arguments.rounds
        );
        text += "test     threads  batch  depth                    samebit                      other   ratio  lowest\n";
        for result in results {
            let test = &result.test;
            text += &format!(
                "{:8} {:7}  {:5}  {:5}  {:>25}  {:>25}  {:5.2}x  {:5.2}x\n",
                test.kind,
                test.threads,
                test.batch,
                test.depth,
                spread(&result.ours),
                spread(&result.theirs),
                result.ratio(),
                result.lowest_ratio(),
            );
        }
        Ok(terminal::print(&text)?)
    }

    fn headline(&self) -> String {
        format!(
            "{} ({}, {} weights), loaded in {:.2} s, peak memory {}\n",
            self.arguments.model,
            self.loaded.cpu.isa(),
            size(self.loaded.model.info().weight_bytes),
            self.loaded.load_s,
            peak_memory_bytes().map_or("unknown".to_owned(), size),
        )
    }

    fn as_json(&self) -> Value {
        json!({
            "model": self.arguments.model,
            "plan_id": samebit_models::plan_id(self.arguments.kv.ty),
            "isa": self.loaded.cpu.isa().to_string(),
            "weight_bytes": self.loaded.model.info().weight_bytes,
            "load_s": self.loaded.load_s,
            "peak_memory_bytes": peak_memory_bytes(),
            "load_average": self.load_average,
        })
    }
}

fn test_as_json(test: &Test, rates: &Rates) -> Value {
    let mut result = json!({
        "test": test.kind.to_string(),
        "threads": test.threads,
        "batch": test.batch,
        "tokens": test.tokens(),
        "depth": test.depth,
    });
    if let (Value::Object(result), Value::Object(rates)) = (&mut result, rates.as_json()) {
        result.extend(rates);
    }
    result
}

fn comparison_as_json(comparison: &Comparison) -> Value {
    let mut result = test_as_json(&comparison.test, &comparison.ours);
    result["compared"] = comparison.theirs.as_json();
    result["ratio"] = json!(comparison.ratio());
    result["ratio_min"] = json!(comparison.lowest_ratio());
    result
}

/// Median, lowest and highest.
fn spread(rates: &Rates) -> String {
    format!("{:.1} ({:.1}..{:.1})", rates.median(), rates.lowest(), rates.highest())
}

/// The most memory that this process ever held, where the system tells it.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
