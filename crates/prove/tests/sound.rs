//! The checks on a sound plan.

mod support;

use samebit_arith::{Cpu, CpuError, Isa};
use samebit_prove::{CheckName, Receipt, Verdict};
use support::{FIXTURES, Loaded, fixture, with_context, with_long_context};

/// Fails unless every check passed with its proof.
fn assert_passed(name: &str, receipt: &Receipt) {
    for check in &receipt.checks {
        let place = format!("{name}: {}", check.name);
        assert_eq!(check.verdict, Verdict::Pass, "{place}: {:?} {:?}", check.first_difference, check.reason);
        assert!(check.cases > 0 && check.failed == 0 && !check.proof.is_empty(), "{place}");
        assert!(check.proof.iter().all(samebit_prove::Proof::holds), "{place}: {:?}", check.proof);
        let mut labels: Vec<&str> = check.rows.iter().map(|case| case.label.as_str()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), check.rows.len(), "{place}: labels are unique");
    }
    assert_eq!(receipt.verdict, Verdict::Pass);
}

const ON_MODELS: [CheckName; 6] = [
    CheckName::Rows,
    CheckName::Chunks,
    CheckName::Threads,
    CheckName::Isa,
    CheckName::Concurrent,
    CheckName::Mixed,
];

#[test]
fn every_fixture_passes_the_checks_on_models() {
    for name in FIXTURES {
        let receipt = Loaded::open(&fixture(name)).prove(&ON_MODELS, &Cpu::new);
        assert_eq!(receipt.checks.len(), ON_MODELS.len());
        assert_passed(name, &receipt);
    }
}

#[test]
fn a_longer_context_is_proven_across_blocks_of_attention() {
    let folder = with_long_context("qwen3");
    let receipt = Loaded::open(folder.path()).prove(&ON_MODELS, &Cpu::new);
    assert_passed("qwen3", &receipt);
    let rows = &receipt.checks[0];
    assert!(rows.proof.iter().any(|proof| proof.what.contains("block") && proof.found > 0), "{rows:?}");
}

#[test]
fn contexts_shorter_than_the_cases_are_no_obstacle() {
    for context in [20, 34] {
        let folder = with_context("qwen3", context);
        let receipt = Loaded::open(folder.path()).prove(&ON_MODELS, &Cpu::new);
        assert_passed(&format!("context of {context}"), &receipt);
    }
    // Too short to cut, or to roll anything back: all is equal, and what was not shown is not claimed.
    for context in [1, 2] {
        let folder = with_context("qwen3", context);
        let receipt = Loaded::open(folder.path()).prove(&ON_MODELS, &Cpu::new);
        assert_eq!(receipt.verdict, Verdict::Unchecked, "context of {context}");
        assert!(receipt.checks.iter().all(|check| check.failed == 0), "context of {context}");
    }
}

#[test]
fn operations_and_functions_pass() {
    let receipt = Loaded::open(&fixture("llama")).prove(&[CheckName::Ops, CheckName::Gates], &Cpu::new);
    assert_passed("llama", &receipt);
    let ops = &receipt.checks[0];
    for op in ["matmul", "rms_norm", "head_chunk", "top_k", "combine", "kv_push"] {
        assert!(ops.rows.iter().any(|case| case.op == op), "{op}");
    }
    assert!(ops.timings.iter().any(|timing| timing.op == "matmul" && timing.nanoseconds > 0));
}

#[test]
fn two_runs_agree_but_for_times() {
    let loaded = Loaded::open(&fixture("gemma3"));
    let run = || loaded.prove(&[CheckName::Rows, CheckName::Mixed, CheckName::Gates], &Cpu::new);
    let (first, second) = (run(), run());
    assert_eq!(first.without_times(), second.without_times());
}

#[test]
fn receipts_read_back() {
    let receipt = Loaded::open(&fixture("llama")).prove(&[CheckName::Chunks], &Cpu::new);
    let text = receipt.to_json();
    assert_eq!(Receipt::from_json(&text).unwrap(), receipt);
    assert_eq!(Receipt::from_json(&text).unwrap().to_json(), text);
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    for line in text.lines().filter(|line| !line.contains('"') || line.contains("\": ")) {
        let value = line.rsplit(": ").next().unwrap().trim_end_matches(',').trim();
        assert!(!(value.chars().all(plain) && value.contains('.')), "a decimal: {line}");
    }
    assert_eq!(receipt.model.files[0].name, "model.safetensors");
    assert_eq!(receipt.model.files[0].sha256.len(), 64);
}

#[test]
fn what_cannot_run_says_why() {
    let refuse = |_: Isa, threads: usize| -> Result<Cpu, CpuError> {
        Err(CpuError::Spawn { threads, reason: "no threads left".to_owned() })
    };
    let receipt = Loaded::open(&fixture("llama")).prove(&[CheckName::Rows], &refuse);
    let check = &receipt.checks[0];
    assert_eq!((check.verdict, receipt.verdict), (Verdict::CouldNotRun, Verdict::CouldNotRun));
    assert!(check.reason.as_ref().unwrap().contains("no threads left"), "{:?}", check.reason);
    assert_eq!(receipt.verdict.exit_code(), 2);
}

#[test]
fn work_on_one_thread_only_is_unchecked() {
    // All that is asked for runs on one thread, so nothing is shown about several.
    let receipt = Loaded::open(&fixture("llama")).prove(&[CheckName::Threads], &|isa, _| Cpu::new(isa, 1));
    assert_eq!(receipt.checks[0].verdict, Verdict::Unchecked);
    assert_eq!(receipt.verdict.exit_code(), 3);
}
