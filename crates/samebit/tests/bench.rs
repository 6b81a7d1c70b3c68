//! `samebit bench`: depths, and measuring beside another program.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// What llama-batched-bench prints, here without a prefill or without a decode as it was asked for.
const BATCHED: &str = r#"if [ {generate} -gt 0 ]; then pp=0.000000; tg=8.000000; else pp=16.000000; tg=-nan; fi
printf '{"n_kv_max": 4096, "n_batch": 2048, "n_ubatch": 512, "flash_attn": -1, "is_pp_shared": 0, "n_gpu_layers": -1, '
printf '"n_threads": {threads}, "n_threads_batch": {threads}, "pp": %d, ' "$(({prompt}+{depth}))"
printf '"tg": {generate}, "pl": {batch}, "n_kv": 256, "t_pp": 3.0, "speed_pp": %s, "t_tg": 2.0, ' $pp
printf '"speed_tg": %s, "t": 5.0, "speed": 8.5}\n\n' $tg"#;

#[test]
fn several_sequences_are_compared_with_batched_bench() {
    let model = fixture("llama/model");
    let sizes = ["-p", "16", "-n", "2", "-t", "1", "-d", "0,5", "--batch", "1,4", "--rounds", "1", "--json"];
    let report = json(&[&["bench", text(&model), "--compare", BATCHED][..], &sizes].concat());
    let row = |result: &Value| {
        let number = |name: &str| result[name].as_u64().unwrap();
        let theirs = result["compared"]["tok_s"].as_f64().unwrap();
        (result["test"].as_str().unwrap().to_owned(), number("batch"), number("depth"), theirs)
    };
    let rows: Vec<_> = report["results"].as_array().unwrap().iter().map(row).collect();
    let decode = |batch, depth| ("decode".to_owned(), batch, depth, 8.0);
    let prefill = ("prefill".to_owned(), 1, 0, 16.0);
    assert_eq!(rows, [prefill, decode(1, 0), decode(4, 0), decode(1, 5), decode(4, 5)]);
}

/// Writes the numbers of its two processes into a file, then neither prints nor ends.
#[cfg(target_os = "linux")]
fn hanging(numbers: &Path) -> String {
    format!("sleep 1000 & echo $! $$ > '{}'; sleep 1000", text(numbers))
}

/// Waits for a condition that comes true by itself.
#[cfg(target_os = "linux")]
fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until none of the processes whose numbers are in a file runs. One that ended but was not waited for is gone.
#[cfg(target_os = "linux")]
fn wait_until_gone(numbers: &Path) {
    let numbers = std::fs::read_to_string(numbers).unwrap();
    assert_eq!(numbers.split_whitespace().count(), 2, "{numbers}");
    for number in numbers.split_whitespace() {
        wait_for("a process is left", || {
            std::fs::read_to_string(format!("/proc/{number}/stat"))
                .map_or(true, |stat| stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']))
        });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_hangs_is_stopped_with_all_it_started() {
    let (model, folder) = (fixture("llama/model"), tempfile::tempdir().unwrap());
    let numbers = folder.path().join("numbers");
    let command = hanging(&numbers);
    let start = Instant::now();
    let measure = ["bench", text(&model), "-p", "8", "-n", "0", "--quiet", "--compare-limit", "2"];
    let error = fail(&[&measure[..], &["--compare", &command]].concat());
    assert!(start.elapsed() < Duration::from_secs(100));
    assert!(error.contains("sleep 1000") && error.contains("not done after 2 seconds"), "{error}");
    assert!(error.contains("hint: ") && error.contains("--compare-limit"), "{error}");
    wait_until_gone(&numbers);
}

#[cfg(target_os = "linux")]
#[test]
fn the_other_program_does_not_outlive_this_one() {
    let (model, folder) = (fixture("llama/model"), tempfile::tempdir().unwrap());
    let numbers = folder.path().join("numbers");
    let mut samebit = Command::new(env!("CARGO_BIN_EXE_samebit"))
        .args(["bench", text(&model), "-p", "8", "-n", "0", "--compare", &hanging(&numbers)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the other program has not started", || {
        std::fs::read_to_string(&numbers).is_ok_and(|text| text.ends_with('\n'))
    });
    // The hardest way to end: nothing of the program's own runs any more.
    samebit.kill().unwrap();
    samebit.wait().unwrap();
    wait_until_gone(&numbers);
}

#[test]
fn a_program_that_prints_without_end_is_refused() {
    let model = fixture("llama/model");
    let error = fail(&["bench", text(&model), "-p", "8", "-n", "0", "--quiet", "--compare", "yes"]);
    assert!(error.contains("`yes` printed more than 16777216 bytes"), "{error}");
}
