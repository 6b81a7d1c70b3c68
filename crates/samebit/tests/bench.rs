//! `samebit bench`: depths, and measuring beside another program.

mod support;

use serde_json::Value;
use support::{fail, fixture, json, succeed, text};

/// Prints a figure of 1 token per second for every test, as a program to compare with.
const SLOW: &str = "test -e {model} && if [ {prompt} -gt 0 ]; then kind=prefill; else kind=decode; fi && \
                    echo test=$kind threads={threads} depth={depth} batch={batch} tok_s=1";

#[test]
fn every_depth_is_measured() {
    let model = fixture("llama/model");
    let report = json(&["bench", text(&model), "-p", "0", "-n", "4", "-t", "1", "-d", "0,3,200", "--json"]);
    let depths: Vec<&Value> =
        report["results"].as_array().unwrap().iter().map(|result| &result["depth"]).collect();
    assert_eq!(depths, [0, 3, 200]);
    assert_eq!(report["results"][0]["tok_s_rounds"].as_array().unwrap().len(), 3);
    assert_eq!(report["repetitions"], 3);
    let error = fail(&["bench", text(&model), "-d", "0,1000000"]);
    assert!(error.contains("1000128 tokens"), "{error}");
    assert!(fail(&["bench", text(&model), "-p", "0", "-n", "0"]).contains("nothing to measure"));
}

#[test]
fn both_programs_are_measured_in_every_test() {
    let model = fixture("llama/model");
    let sizes = ["-p", "16", "-n", "2", "-t", "1,2", "-d", "5", "--batch", "1,2", "--rounds", "4"];
    let arguments = [&["bench", text(&model), "--compare", SLOW][..], &sizes].concat();
    let report = json(&[&arguments[..], &["--json"]].concat());
    assert_eq!(report["compare"], SLOW);
    assert_eq!(report["rounds"], 4);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 6);
    for result in results {
        let number = |value: &Value| value.as_f64().unwrap();
        assert_eq!(result["compared"]["tok_s_rounds"], serde_json::json!([1.0, 1.0, 1.0, 1.0]));
        assert_eq!(result["tok_s_rounds"].as_array().unwrap().len(), 4);
        assert_eq!(number(&result["ratio"]), number(&result["tok_s"]));
        assert_eq!(number(&result["ratio_min"]), number(&result["tok_s_min"]));
    }
    let table = succeed(&arguments);
    assert!(table.contains("4 rounds, alternating") && table.contains("1.0 (1.0..1.0)"), "{table}");
}

#[test]
fn a_program_that_cannot_be_compared_with_is_an_error() {
    let model = fixture("llama/model");
    let arguments = ["bench", text(&model), "-p", "8", "-n", "0", "--quiet", "--compare"];
    let error = |command: &str| fail(&[&arguments[..], &[command]].concat());
    assert!(error("echo out of memory >&2; exit 1").contains("out of memory"));
    assert!(error("echo 100 tokens per second").contains("100 tokens per second"));
    let other = error("echo test=prefill threads=77 depth=0 tok_s=1");
    assert!(other.contains("threads=77") && other.contains("hint: "), "{other}");
}
