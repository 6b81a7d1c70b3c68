//! `samebit run`: the answer, its JSON, its sampling, and what it refuses.

mod support;

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{fail, fixture, ids, joined, json, read_json, samebit, succeed, text};

const FIXTURES: [&str; 6] = ["llama", "llama-f32-tied", "qwen2", "qwen3", "qwen3_moe", "gemma3"];

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn greedy_answers_are_those_of_the_references() {
    for name in FIXTURES {
        let model = fixture(&format!("{name}/model"));
        let expected = read_json(&fixture(&format!("{name}/expected.json")));
        for prompt in ["a", "b"] {
            let prompt = &expected["prompts"][prompt];
            let prompt_ids = ids(&prompt["input_ids"]);
            let arguments = ["--max-tokens", "16", "--ignore-eos", "--kv", "f32", "--json"];
            let answer =
                json(&[&["run", text(&model), "--ids", &joined(&prompt_ids)], &arguments[..]].concat());
            assert_eq!(ids(&answer["ids"]), ids(&prompt["greedy"]), "{name}");
            assert_eq!(ids(&answer["prompt_ids"]), prompt_ids);
        }
    }
}

#[test]
fn texts_and_chats_become_the_references_ids() {
    for name in FIXTURES {
        let model = fixture(&format!("{name}/model"));
        let expected = read_json(&fixture(&format!("{name}/expected.json")));
        for case in expected["text_cases"].as_array().unwrap() {
            let mut arguments = vec!["run", text(&model)];
            if case["kind"] == "completion" {
                arguments.extend([case["text"].as_str().unwrap(), "--raw"]);
            } else {
                let messages = case["messages"].as_array().unwrap();
                let content = |role: &str| {
                    let message = messages.iter().find(|message| message["role"] == role);
                    message.and_then(|message| message["content"].as_str())
                };
                arguments.push(content("user").unwrap());
                if let Some(system) = content("system") {
                    arguments.extend(["--system", system]);
                }
            }
            arguments.extend(["--max-tokens", "16", "--ignore-eos", "--kv", "f32", "--json"]);
            let answer = json(&arguments);
            assert_eq!(ids(&answer["prompt_ids"]), ids(&case["ids"]), "{name}");
            assert_eq!(ids(&answer["ids"]), ids(&case["greedy"]), "{name}");
            // The references read a run of byte tokens as nothing if a part of it is no UTF-8; the bytes decide here.
            let tokenizer = samebit_text::Tokenizer::from_folder(&model).unwrap();
            assert_eq!(answer["text"], tokenizer.decode(&ids(&answer["ids"]), true).unwrap(), "{name}");
            let reference = case["decoded_skip_special"].as_str().unwrap();
            if !reference.contains(char::REPLACEMENT_CHARACTER) {
                assert_eq!(answer["text"], reference, "{name}");
            }
        }
    }
}

#[test]
fn the_json_has_the_promised_keys() {
    let model = fixture("llama/model");
    let answer =
        json(&["run", text(&model), "--ids", "1,2,3", "--max-tokens", "4", "--ignore-eos", "--json"]);
    let expected = [
        "prompt_ids",
        "ids",
        "text",
        "token_sha",
        "chain",
        "seed",
        "finish_reason",
        "plan_id",
        "cached_tokens",
        "draft",
        "timings",
    ];
    assert_eq!(keys(&answer), expected);
    assert_eq!(keys(&answer["draft"]), ["rounds", "drafted", "accepted"]);
    assert_eq!(keys(&answer["timings"]), ["load_s", "prefill_tok_s", "decode_tok_s"]);
    assert_eq!(answer["finish_reason"], "length");
    assert_eq!(answer["cached_tokens"], 0);
    assert_eq!(answer["ids"].as_array().unwrap().len(), 4);
    assert_eq!(answer["token_sha"], samebit_engine::token_sha(&ids(&answer["ids"])));
    assert_eq!(answer["seed"], samebit_engine::derived_seed(&[1, 2, 3], ""));
    assert_eq!(answer["chain"].as_str().unwrap().len(), 64);
    assert!(answer["timings"]["prefill_tok_s"].as_f64().unwrap() > 0.0);
    assert!(answer["timings"]["decode_tok_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn no_path_changes_an_answer() {
    let model = fixture("qwen3_moe/model");
    let prompt = joined(&(3..40).collect::<Vec<u32>>());
    let answer = |more: &[&str]| {
        let fixed = ["run", text(&model), "--ids", &prompt, "--max-tokens", "24", "--ignore-eos", "--json"];
        let answer = json(&[&fixed, more].concat());
        (answer["ids"].clone(), answer["chain"].clone(), answer["plan_id"].clone())
    };
    for sampling in [
        &[][..],
        &["--temperature", "0.9", "--top-k", "50", "--top-p", "0.95", "--min-p", "0.01", "--seed", "5"],
    ] {
        let with = |more: &[&str]| answer(&[sampling, more].concat());
        let plain = with(&["--threads", "1", "--isa", "scalar"]);
        assert_eq!(with(&["--threads", "2"]), plain);
        assert_eq!(with(&["--prefill-chunk", "1"]), plain);
        assert_eq!(with(&["--prefill-chunk", "7", "--threads", "2"]), plain);
        let other_cache = with(&["--kv", "bf16"]);
        assert_ne!(other_cache.1, plain.1, "the chain does not see the stored type");
        assert_ne!(other_cache.2, plain.2, "the plan id does not see the stored type");
    }
}

#[test]
fn seeds_decide_draws() {
    let model = fixture("llama/model");
    let draw = |more: &[&str]| {
        let fixed = [
            "run",
            text(&model),
            "--ids",
            "5,6,7",
            "--max-tokens",
            "12",
            "--ignore-eos",
            "--json",
            "--temperature",
            "1.5",
        ];
        json(&[&fixed, more].concat())
    };
    let derived = draw(&[]);
    let seed = derived["seed"].to_string();
    assert_eq!(draw(&["--seed", &seed])["ids"], derived["ids"], "the reported seed gives the answer again");
    assert_ne!(draw(&["--seed", "1"])["ids"], draw(&["--seed", "2"])["ids"]);
    let greedy =
        json(&["run", text(&model), "--ids", "5,6,7", "--max-tokens", "12", "--ignore-eos", "--json"]);
    assert_eq!(draw(&["--top-k", "1"])["ids"], greedy["ids"]);
    assert_eq!(draw(&["--min-p", "1"])["ids"], greedy["ids"]);
}

#[test]
fn text_streams_to_standard_output() {
    let model = fixture("llama/model");
    let fixed = ["run", text(&model), "The token", "--raw", "--max-tokens", "8", "--ignore-eos"];
    let answer = json(&[&fixed[..], &["--json"]].concat());
    let output = samebit(&[&fixed[..], &["--quiet"]].concat());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", answer["text"].as_str().unwrap()));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = samebit(&fixed);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("token_sha") && told.contains("seed"), "{told}");
}

#[test]
fn a_prompt_can_come_from_standard_input() {
    let model = fixture("llama/model");
    let fixed = ["run", text(&model), "--raw", "--max-tokens", "4", "--json"];
    let mut program = Command::new(env!("CARGO_BIN_EXE_samebit"))
        .args(fixed)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    program.stdin.take().unwrap().write_all(b"The token").unwrap();
    let piped: Value = serde_json::from_slice(&program.wait_with_output().unwrap().stdout).unwrap();
    let given = json(&["run", text(&model), "The token", "--raw", "--max-tokens", "4", "--json"]);
    assert_eq!(piped["prompt_ids"], given["prompt_ids"]);
    assert_eq!(piped["ids"], given["ids"]);
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let model = fixture("llama/model");
    let mut program = Command::new(env!("CARGO_BIN_EXE_samebit"))
        .args(["run", text(&model), "The", "--raw", "--max-tokens", "90", "--ignore-eos", "--quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(program.stdout.take());
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn end_tokens_end_an_answer_and_count() {
    // The model's own greedy answer is taken, and an id of it declared an end token in a copy of the model.
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(fixture("llama/model")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let arguments = ["--ids", "23,373,25,162,254,299,274", "--max-tokens", "16", "--json", "--kv", "f32"];
    let run = |more: &[&str]| json(&[&["run", text(folder.path())], &arguments[..], more].concat());
    let all = ids(&run(&["--ignore-eos"])["ids"]);
    let config = folder.path().join("generation_config.json");
    std::fs::write(&config, format!("{{\"eos_token_id\": [{}]}}", all[2])).unwrap();
    let stopped = run(&[]);
    let end = all.iter().position(|id| *id == all[2]).unwrap();
    assert_eq!(ids(&stopped["ids"]), all[..=end]);
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!(ids(&run(&["--ignore-eos"])["ids"]), all);
}

#[test]
fn nothing_is_cut_off() {
    let model = fixture("llama/model");
    let context = json(&["info", text(&model), "--json"])["model"]["context"].as_u64().unwrap();
    let prompt = joined(&vec![5; usize::try_from(context).unwrap() + 1]);
    let error = fail(&["run", text(&model), "--ids", &prompt]);
    assert!(error.contains(&(context + 1).to_string()) && error.contains(&context.to_string()), "{error}");
    let too_long = context.to_string();
    let error = fail(&["run", text(&model), "--ids", "1,2,3", "--max-tokens", &too_long]);
    assert!(error.contains("3 tokens") && error.contains(&too_long), "{error}");
}

#[test]
fn options_are_bounded_by_name() {
    let model = fixture("llama/model");
    let refused = |more: &[&str], word: &str| {
        let output = samebit(&[&["run", text(&model), "--ids", "1"], more].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {error}");
        assert!(error.contains(word), "{more:?}: {error}");
    };
    refused(&["--temperature", "-1"], "temperature");
    refused(&["--temperature", "nan"], "temperature");
    refused(&["--temperature", "1e9"], "temperature");
    refused(&["--top-p", "0"], "top-p");
    refused(&["--top-p", "1.01"], "top-p");
    refused(&["--min-p", "2"], "min-p");
    refused(&["--top-k", "-1"], "top-k");
    refused(&["--max-tokens", "0"], "max-tokens");
    refused(&["--prefill-chunk", "0"], "prefill-chunk");
    refused(&["--threads", "0"], "threads");
    refused(&["--threads", "513"], "threads");
    refused(&["--isa", "neon"], "avx512");
    refused(&["--kv", "f64"], "int8");
    refused(&["--seed", "-1"], "seed");
    refused(&["--draft", "mtp"], "--draft");
}

#[test]
fn prompts_that_cannot_be_answered_are_refused() {
    let model = fixture("llama/model");
    let error = fail(&["run", text(&model), "--ids", "1,384"]);
    assert!(error.contains("prompt token 1 is id 384") && error.contains("0 to 383"), "{error}");
    let error = fail(&["run", text(&model)]);
    assert!(error.contains("standard input is empty"), "{error}");
    let error = fail(&["run", "no-such-file.gguf", "Hello"]);
    assert!(error.contains("no-such-file.gguf"), "{error}");
}

#[test]
fn help_and_version() {
    let help = succeed(&["run", "--help"]);
    for word in
        ["--max-tokens", "--temperature", "--ids", "--raw", "--prefill-chunk", "Examples:", "default model"]
    {
        assert!(help.contains(word), "{word}");
    }
    assert!(succeed(&["--help"]).contains("perplexity"));
    assert_eq!(succeed(&["--version"]), format!("samebit {}\n", env!("CARGO_PKG_VERSION")));
}
