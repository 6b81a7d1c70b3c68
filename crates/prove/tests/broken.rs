//! Negative controls: each check turns red on a plan that is broken in what it is about, and names the place.

mod support;

use samebit_arith::Breakage;
use samebit_prove::{Check, CheckName, Verdict};
use support::{Loaded, with_long_context};

/// Runs a check on a broken plan, which it must notice.
fn caught(check: CheckName, breakage: Breakage) -> Check {
    let folder = with_long_context("qwen3");
    let check = Loaded::open(folder.path()).broken(check, breakage);
    assert_eq!(check.verdict, Verdict::Fail, "{breakage:?} went through {}", check.name);
    assert!(check.failed > 0 && check.failed <= check.cases);
    let difference = check.first_difference.as_ref().expect("the first difference is named");
    assert_ne!(difference.expected_bits, difference.found_bits);
    check
}

fn place(check: &Check) -> &str {
    &check.first_difference.as_ref().unwrap().place
}

fn case(check: &Check) -> &str {
    &check.first_difference.as_ref().unwrap().case
}

/// The sections of `ops` have more controls of their own, in `checks/ops`.
#[test]
fn ops_sees_a_norm_that_begins_with_its_last_vector() {
    let check = caught(CheckName::Ops, Breakage::LastVectorFirst);
    assert!(place(&check).starts_with("rms_norm, row"), "{}", place(&check));
    assert!(check.rows.iter().all(|case| case.equal || case.op == "rms_norm" && case.isa != "scalar"));
}

#[test]
fn rows_sees_products_that_are_split_by_rows() {
    let check = caught(CheckName::Rows, Breakage::SplitByRows);
    assert!(place(&check).starts_with("layer 0, position"), "{}", place(&check));
    assert!(case(&check).contains("rows=2"), "one row is not split: {}", case(&check));
}

#[test]
fn rows_sees_a_scale_that_rows_share() {
    let check = caught(CheckName::Rows, Breakage::SharedScale);
    assert!(place(&check).starts_with("layer 0, position"), "{}", place(&check));
}

#[test]
fn chunks_sees_blocks_that_begin_with_the_pass() {
    let check = caught(CheckName::Chunks, Breakage::BlocksFromPass);
    assert!(place(&check).starts_with("layer 0, position"), "{}", place(&check));
}

#[test]
fn chunks_sees_keys_that_are_rounded_by_rows() {
    let check = caught(CheckName::Chunks, Breakage::RoundByRows);
    assert!(place(&check).starts_with("layer 0, position"), "{}", place(&check));
}

#[test]
fn threads_sees_blocks_that_merge_by_threads() {
    let check = caught(CheckName::Threads, Breakage::MergeByThreads);
    assert!(place(&check).starts_with("layer 0, position 2"), "a second block is needed: {}", place(&check));
    assert!(case(&check).contains("threads=2"), "{}", case(&check));
}

#[test]
fn threads_sees_products_that_fold_by_threads() {
    let check = caught(CheckName::Threads, Breakage::FoldByThreads);
    assert!(place(&check).starts_with("layer 0, position 0"), "{}", place(&check));
}

#[test]
fn isa_sees_a_norm_that_begins_with_its_last_vector() {
    let check = caught(CheckName::Isa, Breakage::LastVectorFirst);
    assert!(place(&check).starts_with("layer 0, position"), "{}", place(&check));
    assert!(!case(&check).contains(" scalar "), "{}", case(&check));
}

#[test]
fn concurrent_sees_a_scale_that_rows_share() {
    let check = caught(CheckName::Concurrent, Breakage::SharedScale);
    assert!(place(&check).starts_with("layer 0, position"), "{}", place(&check));
}

#[test]
fn concurrent_sees_keys_that_are_rounded_by_rows() {
    caught(CheckName::Concurrent, Breakage::RoundByRows);
}

#[test]
fn gates_sees_another_exp_for_one_row() {
    let check = caught(CheckName::Gates, Breakage::OtherExpForOneRow);
    assert!(place(&check).starts_with("exp in decode"), "{}", place(&check));
    assert!(check.rows.iter().all(|case| case.equal || case.op == "exp" && case.rows == 1));
}

#[test]
fn mixed_sees_what_depends_on_rows_threads_or_passes() {
    for breakage in
        [Breakage::SplitByRows, Breakage::FoldByThreads, Breakage::BlocksFromPass, Breakage::RoundByRows]
    {
        caught(CheckName::Mixed, breakage);
    }
}
