//! `samebit prove`: whether a model's answer is the same however it is computed, with receipts.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use samebit_arith::{Cpu, Isa};
use samebit_prove::{Check, CheckName, Options, Receipt, Subject};
use serde_json::{Value, json};

use super::model::{Loaded, available_threads, cpu, keep_from_overwriting};
use super::print_json;
use crate::cli::ProveArguments;
use crate::failure::Failure;
use crate::output_file::{self, PendingFile};
use crate::progress::Progress;
use crate::terminal;

pub(super) fn run(arguments: &ProveArguments) -> Result<ExitCode, Failure> {
    let receipts = arguments.out.join("receipts.json");
    let page = arguments.out.join("report.html");
    check_writable(&arguments.out, &[&receipts, &page])?;
    let threads = arguments.threads.unwrap_or_else(available_threads);
    let loaded = Loaded::load_on(&arguments.model, cpu(Isa::detect(), threads)?, arguments.output)?;
    keep_from_overwriting(&loaded.checkpoint, "--out", &receipts)?;
    keep_from_overwriting(&loaded.checkpoint, "--out", &page)?;

    let subject = Subject {
        name: &arguments.model,
        checkpoint: &loaded.checkpoint,
        model: &loaded.model,
        make_cpu: &Cpu::new,
    };
    // A check named twice is one check.
    let mut only = arguments.only.clone();
    only.sort_unstable();
    only.dedup();
    let options =
        Options { quick: arguments.quick, only, threads, kv: arguments.kv.ty, seed: arguments.seed };
    let count = if options.only.is_empty() { CheckName::ALL.len() } else { options.only.len() };
    let bar = Progress::new(arguments.output.quiet).counter("checks", count as u64);
    let mut begun = 0;
    let receipt = samebit_prove::prove(&subject, &options, &mut |_| {
        bar.set(begun);
        begun += 1;
    });
    drop(bar);

    write(&receipts, &receipt.to_json())?;
    write(&page, &samebit_prove::report::html(&receipt))?;
    report(arguments, &receipt)?;
    Ok(ExitCode::from(receipt.verdict.exit_code()))
}

/// Makes the folder and the files in it, so that a long run does not end with nowhere to write.
fn check_writable(folder: &Path, files: &[&Path]) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::io("make the folder", folder, &error))?;
    for file in files {
        PendingFile::create(file).map(drop).map_err(|error| Failure::io("write", file, &error))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    output_file::write(path, text.as_bytes()).map_err(|error| Failure::io("write", path, &error))
}

fn report(arguments: &ProveArguments, receipt: &Receipt) -> Result<(), Failure> {
    if arguments.output.json {
        return print_json(&as_json(arguments, receipt));
    }
    if arguments.output.quiet {
        return Ok(());
    }
    Ok(terminal::print(&terminal::shown(&as_text(arguments, receipt)))?)
}

fn as_json(arguments: &ProveArguments, receipt: &Receipt) -> Value {
    let check = |check: &Check| {
        json!({
            "name": check.name,
            "verdict": check.verdict,
            "cases": check.cases,
            "failed": check.failed,
            "reason": check.reason,
            "first_difference": check.first_difference,
            "seconds": seconds(check.milliseconds),
        })
    };
    json!({
        "verdict": receipt.verdict,
        "exit_code": receipt.verdict.exit_code(),
        "out": arguments.out.display().to_string(),
        "plan_id": receipt.plan_id,
        "checks": receipt.checks.iter().map(check).collect::<Vec<_>>(),
        "timings": { "total_s": seconds(receipt.milliseconds) },
    })
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

fn as_text(arguments: &ProveArguments, receipt: &Receipt) -> String {
    let mut text = String::new();
    for check in &receipt.checks {
        text += &format!(
            "{:13} {:11} {:6} cases {:8.1} s\n",
            check.verdict.word(),
            check.name,
            check.cases,
            seconds(check.milliseconds)
        );
        if let Some(difference) = &check.first_difference {
            text += &format!(
                "  {} of {} cases differ, first {}: at {}, element {}, {} where {} is expected\n",
                check.failed,
                check.cases,
                difference.case,
                difference.place,
                difference.index,
                difference.found,
                difference.expected
            );
        }
        if let Some(reason) = &check.reason {
            text += &format!("  {reason}\n");
        }
        for proof in check.proof.iter().filter(|proof| !proof.holds()) {
            text += &format!("  {}: {} where {} are needed\n", proof.what, proof.found, proof.needed);
        }
    }
    text + &format!("{}: see {}\n", receipt.verdict.word(), arguments.out.display())
}
