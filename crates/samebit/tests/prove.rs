//! `samebit prove`: its files, its exit codes, its refusals.

mod support;

use std::fs;

use samebit_prove::{Receipt, Verdict};
use support::{fail, fixture, json, samebit, text};

#[test]
fn a_run_leaves_receipts_and_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/proof");
    let model = fixture("llama/model");
    let arguments = ["prove", text(&model), "--out", text(&out), "--quick", "--threads", "2"];
    let printed = json(&[&arguments[..], &["--only", "gates,rows,gates", "--seed", "3", "--json"]].concat());
    assert_eq!((printed["verdict"].as_str(), printed["exit_code"].as_u64()), (Some("pass"), Some(0)));

    let receipt = Receipt::from_json(&fs::read_to_string(out.join("receipts.json")).unwrap()).unwrap();
    assert_eq!(receipt.verdict, Verdict::Pass);
    assert_eq!(receipt.checks.iter().map(|check| check.name.as_str()).collect::<Vec<_>>(), ["rows", "gates"]);
    assert_eq!((receipt.options.seed, receipt.options.quick, receipt.machine.threads), (3, true, 2));
    assert_eq!(printed["plan_id"].as_str(), Some(receipt.plan_id.as_str()));
    let mut files: Vec<_> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, ["receipts.json", "report.html"]);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(page, samebit_prove::report::html(&receipt));
}

#[test]
fn another_type_of_stored_keys_is_another_plan() {
    let folder = tempfile::tempdir().unwrap();
    let run = |kv: &str| {
        let (model, out) = (fixture("qwen2/model"), folder.path().join(kv));
        json(&[
            "prove",
            text(&model),
            "--out",
            text(&out),
            "--quick",
            "--only",
            "chunks",
            "--kv",
            kv,
            "--json",
        ])
    };
    let (half, bytes) = (run("f16"), run("int8"));
    assert_eq!((half["verdict"].as_str(), bytes["verdict"].as_str()), (Some("pass"), Some("pass")));
    assert_ne!(half["plan_id"], bytes["plan_id"]);
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (fixture("llama/model"), folder.path().join("proof"));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = fail(&["prove", text(&model), "--out", text(&file.join("proof"))]);
    assert!(error.contains(text(&file)) && error.contains("cannot make the folder"), "{error}");
    fs::create_dir_all(out.join("receipts.json")).unwrap();
    let error = fail(&["prove", text(&model), "--out", text(&out)]);
    assert!(error.contains("receipts.json") && error.contains("something else than a file"), "{error}");
    let missing = folder.path().join("none.gguf");
    let error = fail(&["prove", text(&missing), "--out", text(&folder.path().join("other"))]);
    assert!(error.contains("none.gguf"), "{error}");
}

#[test]
fn checks_that_do_not_exist_are_named() {
    for (name, words) in [("drafted", "this version has no check"), ("row", "no check is called")] {
        let output = samebit(&["prove", "model", "--out", "nowhere", "--only", name]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(words) && error.contains(name), "{error}");
    }
}
