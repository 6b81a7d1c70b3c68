//! The trace against the published one, number by number, and its logits against the float64 runs of the references.

mod gguf;

use std::fs;
use std::path::{Path, PathBuf};

use samebit_checkpoint::Checkpoint;
use serde_json::{Map, Value, json};

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn teaching_model() -> Checkpoint {
    Checkpoint::open(fixture("tiny-llama-trace/model")).unwrap()
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The published trace, run again.
fn published_again() -> Trace {
    let tokenizer = fs::read(fixture("tiny-llama-trace/model/tokenizer.json")).unwrap();
    let request = TraceRequest {
        prompt: &[1, 2, 3, 4, 5, 6],
        decodes: &[vec![2], vec![2, 28]],
        model: "tiny-llama-style-educational",
        vocabulary: Some(vocabulary(&tokenizer, 32).unwrap()),
        seed: Some(7),
        rope_check_vector: None,
    };
    trace(&teaching_model(), &request).unwrap()
}

/// How a number is compared.
#[derive(Clone, Copy)]
enum Precision {
    /// Both are rounding noise.
    Noise,
    /// Printed with eight decimals.
    Decimals,
    /// Written in full.
    Full,
}

/// Compares everything of the published trace with ours; counts the numbers and gathers what differs.
struct Comparison {
    numbers: usize,
    differences: Vec<String>,
}

impl Comparison {
    const NOISE: [&str; 4] = [
        "cached_single_vs_full_max_abs_error",
        "cached_chunked_vs_full_max_abs_error",
        "gqa_vs_explicit_head_repeat_max_abs_error",
        "rope_norm_preservation_max_abs_error",
    ];
    const DECIMALS: [&str; 5] = [
        "attention_weights",
        "first_query_before_rope",
        "first_query_after_rope",
        "first_input_values",
        "first_output_values",
    ];
    /// Words about the program that wrote the file, not about the model.
    const WORDS: [&str; 4] = ["weights", "tokenizer", "numpy_version", "notes"];

    fn object(&mut self, path: &str, theirs: &Map<String, Value>, ours: &Map<String, Value>) {
        let our_keys: Vec<_> = ours.keys().filter(|key| *key != "engine").collect();
        if !theirs.keys().eq(our_keys.iter().copied()) {
            self.differences.push(format!("{path}: keys {our_keys:?}"));
        }
        for (key, value) in theirs {
            let precision = match key.as_str() {
                key if path.is_empty() && Self::WORDS.contains(&key) => continue,
                key if Self::NOISE.contains(&key) => Precision::Noise,
                key if Self::DECIMALS.contains(&key) => Precision::Decimals,
                _ => Precision::Full,
            };
            self.value(&format!("{path}.{key}"), precision, value, ours.get(key).unwrap_or(&Value::Null));
        }
    }

    fn value(&mut self, path: &str, precision: Precision, theirs: &Value, ours: &Value) {
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => self.object(path, theirs, ours),
            (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => {
                for (index, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                    self.value(&format!("{path}[{index}]"), precision, theirs, ours);
                }
            }
            (Value::Number(a), Value::Number(b)) => {
                self.numbers += 1;
                let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
                let same = match precision {
                    Precision::Noise => a.abs() <= 1e-13 && b.abs() <= 1e-13,
                    Precision::Decimals => a == b,
                    Precision::Full => (a - b).abs() <= 1e-12 * a.abs(),
                };
                if !same {
                    self.differences.push(format!("{path}: {b} instead of {a}"));
                }
            }
            (theirs, ours) if theirs == ours => {}
            (theirs, ours) => self.differences.push(format!("{path}: {ours} instead of {theirs}")),
        }
    }
}

fn compare(theirs: &Value, ours: &Value) -> Comparison {
    let mut comparison = Comparison { numbers: 0, differences: Vec::new() };
    comparison.object("", theirs.as_object().unwrap(), ours.as_object().unwrap());
    comparison
}

#[test]
fn every_number_of_the_published_trace() {
    let theirs = read_json(&fixture("tiny-llama-trace/expected-trace.json"));
    let ours = serde_json::from_str(&published_again().to_json()).unwrap();
    let comparison = compare(&theirs, &ours);
    assert!(comparison.differences.is_empty(), "{:#?}", comparison.differences);
    assert_eq!(comparison.numbers, count_numbers(&theirs), "a number was not compared");
    assert!(comparison.numbers > 1200);
}

fn count_numbers(value: &Value) -> usize {
    match value {
        Value::Number(_) => 1,
        Value::Array(list) => list.iter().map(count_numbers).sum(),
        Value::Object(map) => map.values().map(count_numbers).sum(),
        _ => 0,
    }
}

#[test]
fn the_comparison_notices_a_changed_digit_anywhere() {
    let theirs = read_json(&fixture("tiny-llama-trace/expected-trace.json"));
    let ours: Value = serde_json::from_str(&published_again().to_json()).unwrap();
    for (pointer, wrong) in [
        ("/passes/0/layers/1/attention_weights/3/5/2", json!(0.12345678)),
        ("/passes/2/layers/0/residual_rms/output", json!(0.697_769_184_38)),
        ("/passes/1/last_position_top5/4/probability", json!(0.068_689_944_5)),
        ("/verification/checks/cached_single_vs_full_max_abs_error", json!(1e-12)),
        ("/verification/checks/prefix_cache_unchanged_after_continuation", json!(false)),
        ("/passes/0/layers/0/shapes/q/1", json!(2)),
    ] {
        let mut wrong_trace = ours.clone();
        *wrong_trace.pointer_mut(pointer).unwrap() = wrong;
        assert_eq!(compare(&theirs, &wrong_trace).differences.len(), 1, "{pointer}");
    }
}

#[test]
fn the_check_vector_is_the_recorded_one_and_can_be_replaced() {
    let recorded = read_json(&fixture("tiny-llama-trace/expected.json"));
    let recorded = recorded["rope_check_vector"]["values"].as_array().unwrap();
    assert_eq!(recorded.len(), ROPE_CHECK_VECTOR.len());
    for (recorded, ours) in recorded.iter().zip(ROPE_CHECK_VECTOR) {
        // The JSON reader may miss the last bit.
        assert!((recorded.as_f64().unwrap() / ours - 1.0).abs() < 1e-15);
    }
    let ones = [1.0; 8];
    let request = TraceRequest { prompt: &[1], rope_check_vector: Some(&ones), ..TraceRequest::default() };
    let text = trace(&teaching_model(), &request).unwrap().to_json();
    let turned = serde_json::from_str::<Value>(&text).unwrap();
    // The fastest pair turns by one radian: (1, 1) becomes (cos 1 - sin 1, cos 1 + sin 1).
    let expected = 1.0 - (1.0f64.cos() - 1.0f64.sin());
    let found = turned["verification"]["checks"]["rope_position_0_vs_1_max_abs_difference"].as_f64().unwrap();
    assert!((found - expected).abs() < 1e-15);
}

#[test]
fn what_is_refused() {
    let model = teaching_model();
    let refused = |prompt: &[u32], decodes: &[Vec<u32>]| {
        let request = TraceRequest { prompt, decodes, ..TraceRequest::default() };
        trace(&model, &request).unwrap_err().to_string()
    };
    assert!(refused(&[], &[]).contains("the prompt holds no token ids"));
    assert!(refused(&[1], &[vec![]]).contains("continuation 1 holds no token ids"));
    assert!(refused(&[1, 32], &[]).contains("token id 32 is not below the vocabulary size, 32"));
    assert!(refused(&[1; 129], &[]).contains("129 tokens, but the model's context"));
    assert!(refused(&[1; 128], &[vec![1]]).contains("continuation 1: 129 tokens"));
    let many = vec![vec![1; 28]; 200];
    assert!(refused(&[1; 100], &many).contains("attention weights"), "too many numbers");
    let short = [1.0; 4];
    let request = TraceRequest { prompt: &[1], rope_check_vector: Some(&short), ..TraceRequest::default() };
    assert!(trace(&model, &request).unwrap_err().to_string().contains("4 numbers"));
}

#[test]
fn configurations_that_are_refused() {
    let read = |key: &str, value: Value| {
        let mut config = read_json(&fixture("tiny-llama-trace/model/config.json"));
        config[key] = value;
        let text = serde_json::to_vec(&config).unwrap();
        let config = samebit_checkpoint::Config::parse(Path::new("config.json"), &text).unwrap();
        Architecture::read(&config.root()).map(|_| ()).map_err(|error| error.to_string())
    };
    read("hidden_size", json!(32)).unwrap();
    for (key, value, expected) in [
        ("model_type", json!("gpt2"), "llama, qwen2"),
        ("vocab_size", json!(2_000_000_000), "weights"),
        ("num_hidden_layers", json!(1_000_000), "at most 1024"),
        ("num_hidden_layers", json!(0), "a size"),
        ("head_dim", json!(7), "even"),
        ("num_key_value_heads", json!(3), "divisor"),
        ("hidden_act", json!("relu"), "silu"),
        ("rope_scaling", json!({"rope_type": "longrope"}), "yarn"),
        ("rope_scaling", json!({"rope_type": "linear"}), "factor"),
    ] {
        let error = read(key, value).unwrap_err();
        assert!(error.contains(expected), "{key}: {error}");
    }
}

#[test]
fn names_of_passes() {
    let decodes = [vec![1], vec![1, 2], vec![3], vec![1, 2, 3]];
    let names: Vec<_> = (0..4).map(|number| decode_name(&decodes, number)).collect();
    assert_eq!(names, ["single_token_decode", "chunked_decode", "single_token_decode_2", "chunked_decode_2"]);
}

/// Largest difference between the logits of a checkpoint and those of a fixture's reference, over both prompts.
fn worst_difference(checkpoint: &Checkpoint, name: &str) -> f64 {
    let expected = Checkpoint::open(fixture(name).join("expected.safetensors")).unwrap();
    let of_prompt = |prompt: &str| {
        let ids = expected.tensor(&format!("{prompt}.input_ids")).unwrap().to_i64().unwrap();
        let ids: Vec<u32> = ids.into_iter().map(|id| u32::try_from(id).unwrap()).collect();
        let logits = double_logits(checkpoint, &ids).unwrap().concat();
        let reference = expected.tensor(&format!("{prompt}.logits")).unwrap().to_f64().unwrap();
        assert_eq!(logits.len(), reference.len());
        let worst = samebit_arith::double::max_abs_difference(&logits, &reference);
        assert!(!worst.is_nan(), "{name} {prompt}: not a number");
        worst
    };
    of_prompt("a").max(of_prompt("b"))
}

/// Compares with the run of the reference that the tolerance of this name is stated for.
fn against_reference(name: &str, tolerance: &str) {
    let checkpoint = Checkpoint::open(fixture(name).join("model")).unwrap();
    let tolerance = read_json(&fixture(name).join("expected.json"))["tolerance"][tolerance].as_f64().unwrap();
    let worst = worst_difference(&checkpoint, name);
    assert!(worst <= tolerance, "{name}: {worst} apart, tolerance {tolerance}");
}

#[test]
fn llama_as_its_reference() {
    against_reference("llama", "logits_atol_f64");
}

#[test]
fn llama_with_biases_and_llama3_scaling_as_its_reference() {
    against_reference("llama-f32-tied", "logits_atol_f64");
}

#[test]
fn qwen2_as_its_reference() {
    against_reference("qwen2", "logits_atol_f64");
}

#[test]
fn qwen3_as_its_reference() {
    against_reference("qwen3", "logits_atol_f64");
}

#[test]
fn qwen3_moe_as_its_reference() {
    against_reference("qwen3_moe", "logits_atol_f64");
}

#[test]
fn gemma3_as_its_reference() {
    against_reference("gemma3", "logits_atol_f64");
}

#[test]
fn quantized_llama_as_its_reference() {
    against_reference("mlx-llama-b4g32", "logits_atol_f32");
}
