//! The other verbs on small models: what they write, their JSON, their exit codes.

mod support;

use serde_json::Value;
use support::{fail, fixture, json, read_json, samebit, succeed, text};

#[test]
fn info_describes_a_model_without_reading_weights() {
    let model = fixture("qwen3_moe/model");
    let info = json(&["info", text(&model), "--json", "--context", "1000"]);
    assert_eq!(info["supported"], true);
    assert_eq!(info["refusal"], Value::Null);
    assert_eq!(info["model"]["family"], "qwen3_moe");
    assert_eq!(info["sha256"], Value::Null);
    let memory = &info["model"]["memory"];
    assert_eq!(memory["context"], 1000);
    let (kv, weights) = (memory["kv_bytes"].as_u64().unwrap(), memory["weight_bytes"].as_u64().unwrap());
    assert_eq!(memory["total_bytes"].as_u64(), Some(kv + weights));
    let listed: u64 =
        info["tensors"].as_array().unwrap().iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
    assert_eq!(listed, weights);
    let wider = json(&["info", text(&model), "--json", "--context", "1000", "--kv", "f32"]);
    assert_eq!(wider["model"]["memory"]["kv_bytes"].as_u64(), Some(2 * kv));
    let text = succeed(&["info", text(&model)]);
    assert!(text.contains("family qwen3_moe") && text.contains("BF16"), "{text}");
}

#[test]
fn info_hashes_on_demand() {
    let cache = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_samebit"))
        .args(["info", text(&fixture("llama/model")), "--json", "--hash"])
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .unwrap();
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = read_json(&fixture("llama/expected.json"));
    let pins = info["sha256"].as_array().unwrap();
    let weights = pins.iter().find(|pin| pin["file"] == "model.safetensors").unwrap();
    assert_eq!(weights["sha256"], expected["model_sha256"]["model.safetensors"]);
}

#[test]
fn info_shows_what_is_refused_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("llama/model").join(file), folder.path().join(file)).unwrap();
    }
    let config = folder.path().join("config.json");
    let changed = std::fs::read_to_string(&config).unwrap().replace("\"llama\"", "\"hyperllama\"");
    std::fs::write(&config, changed).unwrap();
    let output = samebit(&["info", text(folder.path()), "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["supported"], false);
    let refusal = info["refusal"].as_str().unwrap();
    assert!(
        refusal.contains("hyperllama") && refusal.contains("model_type") && refusal.contains("qwen3_moe"),
        "{refusal}"
    );
    assert!(info["tensors"].as_array().unwrap().len() > 10);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("error: ") && told.contains("hyperllama"), "{told}");
}

#[test]
fn trace_writes_the_published_structure() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("t.json");
    let model = fixture("tiny-llama-trace/model");
    let told = json(&[
        "trace",
        text(&model),
        "--ids",
        "1,2,3,4,5,6",
        "--decode",
        "2",
        "--decode",
        "2,28",
        "--out",
        text(&out),
        "--json",
    ]);
    assert_eq!(told["passes"], 3);
    assert_eq!(told["passed"], true);
    let (ours, expected) = (read_json(&out), read_json(&fixture("tiny-llama-trace/expected-trace.json")));
    for (key, value) in expected.as_object().unwrap() {
        let our_value = ours.get(key).unwrap_or_else(|| panic!("{key} is missing"));
        if key == "config" || key == "vocabulary" || key == "schema_version" {
            assert_eq!(our_value, value, "{key}");
        }
    }
    // The numbers in full are compared in the crate that computes them; here, that they reach the file.
    let first_id = |trace: &Value| trace["passes"][0]["input_ids"].clone();
    assert_eq!(first_id(&ours), first_id(&expected));
    assert_eq!(ours["verification"]["checks"].as_object().unwrap().len(), 11);
}

#[test]
fn trace_refuses_what_it_is_not_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("t.json");
    let model = fixture("tiny-llama-trace/model");
    let error = fail(&["trace", text(&model), "--ids", "1,32", "--out", text(&out)]);
    assert!(error.contains("32"), "{error}");
    assert!(!out.exists());
}

#[test]
fn bench_measures_every_combination() {
    let model = fixture("llama/model");
    let report = json(&[
        "bench",
        text(&model),
        "-p",
        "16",
        "-n",
        "4",
        "-t",
        "1,2",
        "--batch",
        "1,3",
        "--depth",
        "5",
        "-r",
        "2",
        "--json",
    ]);
    let results = report["results"].as_array().unwrap();
    let row = |result: &Value| {
        (
            result["test"].as_str().unwrap().to_owned(),
            result["threads"].as_u64().unwrap(),
            result["batch"].as_u64().unwrap(),
        )
    };
    let rows: Vec<_> = results.iter().map(row).collect();
    let expected = |test: &str, threads, batch| (test.to_owned(), threads, batch);
    assert_eq!(
        rows,
        [
            expected("prefill", 1, 1),
            expected("decode", 1, 1),
            expected("decode", 1, 3),
            expected("prefill", 2, 1),
            expected("decode", 2, 1),
            expected("decode", 2, 3),
        ]
    );
    for result in results {
        let rate = |key: &str| result[key].as_f64().unwrap();
        assert!(
            rate("tok_s_min") > 0.0
                && rate("tok_s_min") <= rate("tok_s")
                && rate("tok_s") <= rate("tok_s_max")
        );
    }
    assert_eq!(results[2]["tokens"], 12);
    assert_eq!(results[2]["depth"], 5);
    assert!(report["load_s"].as_f64().unwrap() > 0.0);
    assert!(report["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
    let error = fail(&["bench", text(&model), "-p", "1000000"]);
    assert!(error.contains("1000000 tokens"), "{error}");
}

#[test]
fn perplexity_of_a_small_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.txt");
    std::fs::write(&file, "The token model has two layers, and 37 heads. How are you?\n".repeat(4)).unwrap();
    let model = fixture("llama/model");
    let arguments = ["perplexity", text(&model), "--text", text(&file), "--window", "32", "--json"];
    let report = json(&arguments);
    let windows = report["tokens"].as_u64().unwrap() / 32;
    assert!(windows > 1);
    assert_eq!(report["windows"].as_u64(), Some(windows));
    assert_eq!(report["scored"].as_u64(), Some(windows * 15));
    let (perplexity, nll) = (report["perplexity"].as_f64().unwrap(), report["mean_nll"].as_f64().unwrap());
    assert!((perplexity - nll.exp()).abs() < 1e-9 * perplexity);
    // Untrained weights guess: far from sure, and far from perfect.
    assert!(perplexity > 20.0, "{perplexity}");
    let error = fail(&["perplexity", text(&model), "--text", text(&file), "--window", "4096"]);
    assert!(error.contains("fewer than one window of 4096"), "{error}");
}

#[test]
fn list_shows_the_named_models() {
    let list = json(&["list", "--json"]);
    let names: Vec<&str> =
        list["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["smollm2-135m", "gemma-3-270m"]);
    assert!(succeed(&["list"]).contains("smollm2-135m (default)"));
}

#[test]
fn pull_prints_where_a_model_lies() {
    let model = &support::REAL_MODELS[0];
    let path = model.path();
    let pulled = json(&["pull", model.name, "--json"]);
    assert_eq!(pulled["models"][0]["path"], text(&path));
    assert_eq!(succeed(&["pull", model.name, "--quiet"]), format!("{}\n", path.display()));
    let error = fail(&["pull", "no-such-model"]);
    assert!(error.contains("no-such-model") && error.contains("smollm2-135m"), "{error}");
}

#[test]
fn output_files_appear_complete_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let model = fixture("llama/model");
    let missing = folder.path().join("missing/out.safetensors");
    let error = fail(&["logits", text(&model), "--ids", "1", "--out", text(&missing)]);
    assert!(error.contains("cannot write") && error.contains("missing/out.safetensors"), "{error}");
    let error = fail(&["logits", text(&model), "--ids", "1", "--out", text(folder.path())]);
    assert!(error.contains("something else than a file"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
