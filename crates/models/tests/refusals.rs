//! What cannot be computed as described is refused: before weights are read, and before states are touched.

mod support;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use proptest::test_runner::{Config, TestRunner};
use samebit_arith::KvType;
use samebit_checkpoint::Checkpoint;
use samebit_models::{ForwardError, LogitRows, Model, ModelError, Span, Taps, TokenId};
use serde_json::{Value, json};
use support::{cpu, fixture, model};

/// A copy of a fixture with some fields of its configuration set, or removed (null stays null: use [`removed`]).
fn changed(name: &str, changes: &[(&str, Value)]) -> tempfile::TempDir {
    let text = std::fs::read_to_string(fixture(name).join("model/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (key, value) in changes {
        if *value == removed() {
            config.as_object_mut().unwrap().remove(*key);
        } else {
            config[*key] = value.clone();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::copy(fixture(name).join("model/model.safetensors"), folder.path().join("model.safetensors"))
        .unwrap();
    folder
}

fn removed() -> Value {
    json!("(removed)")
}

fn plan(folder: &Path) -> Result<samebit_models::ModelInfo, ModelError> {
    Model::plan(&Checkpoint::open(folder).unwrap())
}

/// The refusal's text, which must hold every one of `words`.
fn check_refused(name: &str, changes: &[(&str, Value)], words: &[&str]) {
    let folder = changed(name, changes);
    let text = match plan(folder.path()) {
        Ok(_) => panic!("{name} with {changes:?} was accepted"),
        Err(error) => error.to_string(),
    };
    assert!(text.contains(folder.path().to_str().unwrap()), "{text}: does not name the file");
    for word in words {
        assert!(text.contains(word), "{changes:?}: {text}: does not say {word:?}");
    }
    assert!(!text.contains('\n') && text.len() < 4000, "not one paragraph: {text}");
}

#[test]
fn fields_that_are_wrong_are_named() {
    let huge = json!(u64::MAX);
    for (name, key, value, words) in [
        ("llama", "model_type", json!("llamo"), &["model_type", "\"llamo\"", "llama", "gemma3_text"][..]),
        (
            "llama",
            "architectures",
            json!(["LlamaForSequenceClassification"]),
            &["architectures", "LlamaForCausalLM"],
        ),
        ("llama", "num_hidden_layers", json!(0), &["num_hidden_layers", "found 0", "from 1"]),
        ("llama", "num_hidden_layers", json!(1_000_000_000), &["num_hidden_layers", "at most 30"]),
        ("llama", "num_hidden_layers", json!(-1), &["num_hidden_layers", "-1"]),
        ("llama", "num_hidden_layers", json!("3"), &["num_hidden_layers", "\"3\""]),
        ("llama", "hidden_size", removed(), &["hidden_size", "nothing"]),
        ("llama", "hidden_size", huge.clone(), &["hidden_size", "18446744073709551615"]),
        ("llama", "vocab_size", huge.clone(), &["vocab_size"]),
        ("llama", "vocab_size", json!(2_000_000_000), &["embed_tokens", "[384, 96]", "[2000000000, 96]"]),
        ("llama", "intermediate_size", json!(2_147_483_647), &["gate_proj", "[256, 96]"]),
        ("llama", "num_key_value_heads", json!(4), &["num_key_value_heads", "found 4", "6 query heads"]),
        ("llama", "num_key_value_heads", json!(0), &["num_key_value_heads"]),
        ("llama", "head_dim", json!(25), &["head_dim", "25", "even"]),
        ("llama", "head_dim", json!(2_000_000_000), &["head_dim"]),
        ("llama", "rms_norm_eps", json!(-1e-6), &["rms_norm_eps", "above 0"]),
        ("llama", "rms_norm_eps", json!(1e300), &["rms_norm_eps", "1e300", "a number from"]),
        ("llama", "rms_norm_eps", json!(1e-300), &["rms_norm_eps", "1e-300", "a number from"]),
        ("llama", "model_type", json!("x".repeat(9000)), &["model_type", "…"]),
        ("llama", "rms_norm_eps", removed(), &["rms_norm_eps"]),
        ("llama", "hidden_act", json!("relu"), &["hidden_act", "\"relu\"", "silu"]),
        ("llama", "rope_theta", json!(0.5), &["rope_theta", "0.5"]),
        (
            "llama",
            "rope_scaling",
            json!({"rope_type": "spiral", "factor": 2.0}),
            &["rope_scaling.rope_type", "spiral", "yarn"],
        ),
        ("llama", "rope_scaling", json!({"factor": 2.0}), &["rope_scaling.rope_type", "yarn"]),
        ("llama", "rope_scaling", json!({"type": "linear"}), &["rope_scaling.factor"]),
        (
            "llama",
            "rope_scaling",
            json!({"type": "linear", "factor": 0.0}),
            &["rope_scaling.factor", "above 0"],
        ),
        (
            "llama",
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8.0}),
            &["rope_scaling.low_freq_factor"],
        ),
        ("llama", "rope_scaling", json!("linear"), &["rope_scaling", "an object"]),
        ("llama", "partial_rotary_factor", json!(0.5), &["partial_rotary_factor", "0.5"]),
        ("llama", "max_position_embeddings", json!(0), &["max_position_embeddings"]),
        ("llama", "attention_bias", json!(true), &["q_proj.bias", "there is no tensor"]),
        ("llama", "attention_bias", json!("yes"), &["attention_bias", "\"yes\""]),
        ("llama", "num_hidden_layers", json!(4), &["layers.3.", "there is no tensor"]),
        ("llama", "quantization_config", json!({"quant_method": "awq", "bits": 4}), &["quant_method", "awq"]),
        ("qwen2", "layer_types", json!(["full_attention"]), &["layer_types", "1 entries"]),
        (
            "qwen2",
            "layer_types",
            json!(["full_attention", "linear_attention", "full_attention"]),
            &["layer_types", "linear_attention"],
        ),
        (
            "qwen2",
            "layer_types",
            json!(["full_attention", "sliding_attention", "full_attention"]),
            &["layer_types", "sliding_window"],
        ),
        ("qwen3_moe", "num_experts", json!(17), &["mlp.gate.weight", "[16, 64]", "[17, 64]"]),
        ("qwen3_moe", "num_experts", json!(1_000_000_000), &["num_experts", "65536"]),
        ("qwen3_moe", "num_experts_per_tok", json!(17), &["num_experts_per_tok", "16 experts"]),
        ("qwen3_moe", "num_experts_per_tok", json!(0), &["num_experts_per_tok"]),
        ("qwen3_moe", "mlp_only_layers", json!([]), &["layers.1.mlp.gate.weight"]),
        ("qwen3_moe", "decoder_sparse_step", json!(0), &["decoder_sparse_step"]),
        ("mlx-qwen3_moe-b4g32", "num_experts", json!(8), &["switch_mlp", "[16, 32, 64]"]),
        ("gemma3", "use_bidirectional_attention", json!(true), &["use_bidirectional_attention"]),
        ("gemma3", "attn_logit_softcapping", json!(50.0), &["attn_logit_softcapping", "50"]),
        ("gemma3", "sliding_window", json!(0), &["sliding_window"]),
        ("gemma3", "hidden_activation", json!("gelu"), &["hidden_activation", "gelu_pytorch_tanh"]),
        ("gemma3", "query_pre_attn_scalar", json!(0), &["query_pre_attn_scalar"]),
    ] {
        check_refused(name, &[(key, value)], words);
    }
    check_refused(
        "llama",
        &[("head_dim", removed()), ("num_attention_heads", json!(7)), ("num_key_value_heads", json!(7))],
        &["num_attention_heads", "divisor"],
    );
    check_refused(
        "llama",
        &[("model_type", removed()), ("architectures", removed())],
        &["model_type", "qwen3_moe"],
    );
}

/// A module's map entry may lag behind how it is stored, where the shapes leave no doubt: then the shapes count, for the
/// embedding as for every other matrix.
#[test]
fn shapes_decide_for_the_embedding_too() {
    let map = json!({"group_size": 32, "bits": 8, "mode": "affine"});
    let folder = changed("mlx-llama-b4g32", &[("quantization", map.clone()), ("quantization_config", map)]);
    let run = |folder: &Path| {
        let checkpoint = Arc::new(Checkpoint::open(folder).unwrap());
        let model = Model::load(checkpoint, &cpu(2), &mut |_| {}).unwrap();
        let mut state = model.new_state(KvType::F32);
        let span = Span { state: &mut state, tokens: &[TokenId(1), TokenId(7)], logits: LogitRows::Last };
        model.forward(&cpu(2), &mut [span], Taps::default()).unwrap().logits
    };
    assert_eq!(run(folder.path()), run(&fixture("mlx-llama-b4g32").join("model")));
}

#[test]
fn missing_tensors_are_counted_and_named() {
    let folder = changed("llama", &[]);
    let source = Checkpoint::open(fixture("llama").join("model")).unwrap();
    let mut tensors = Vec::new();
    for tensor in source.tensors() {
        let name = tensor.name().replace("layers.0.self_attn.k_proj", "layers.0.self_attn.key");
        let name = name.replace("layers.1.input_layernorm", "layers.1.norm");
        tensors.push((name, tensor.dtype().to_string(), tensor.shape().to_vec(), tensor.data().to_vec()));
    }
    support::write_safetensors(&folder.path().join("model.safetensors"), &tensors);
    let error = plan(folder.path()).unwrap_err();
    assert!(matches!(&error, ModelError::Tensors { count: 2, .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("layers.0.self_attn.k_proj.weight") && text.contains("layers.1.input_layernorm"),
        "{text}"
    );
}

#[test]
fn leftovers_are_listed() {
    let folder = changed("llama", &[("num_hidden_layers", json!(2))]);
    let info = plan(folder.path()).unwrap();
    assert_eq!(info.unused.unknown.len(), 9, "{:?}", info.unused);
    assert!(info.unused.unknown.iter().all(|name| name.starts_with("model.layers.2.")));
    assert!(info.unused.ignorable.is_empty());
}

#[test]
fn a_plan_describes_the_model() {
    let checkpoint = Checkpoint::open(fixture("qwen3_moe").join("model")).unwrap();
    let info = Model::plan(&checkpoint).unwrap();
    assert_eq!((info.family, info.vocabulary, info.hidden, info.context), ("qwen3_moe", 320, 64, 256));
    assert_eq!(info.tensors.len(), checkpoint.tensors().len());
    assert_eq!(info.weight_bytes, checkpoint.tensor_bytes());
    assert_eq!(info.parameters * 2, checkpoint.tensor_bytes());
    // Four layers of two heads with 16 columns, keys and values.
    assert_eq!(info.bytes_per_position(KvType::F32), 4 * 2 * 2 * 16 * 4);
    assert_eq!(info.bytes_per_position(KvType::F16), 4 * 2 * 2 * 16 * 2);
    let setting = |name: &str| info.settings.iter().find(|(key, _)| key == name).unwrap().1.clone();
    assert_eq!(setting("experts"), "4 of 16");
    assert_eq!(setting("dense_layers"), "1");
    let gate =
        info.tensors.iter().find(|tensor| tensor.name.ends_with("experts.3.gate_proj.weight")).unwrap();
    assert_eq!((gate.format.as_str(), &gate.shape[..], gate.bytes), ("BF16", &[32, 64][..], 32 * 64 * 2));
}

#[test]
fn loading_reports_every_byte() {
    for name in ["qwen3_moe", "mlx-qwen3_moe-b4g32", "gemma3"] {
        let checkpoint = Arc::new(Checkpoint::open(fixture(name).join("model")).unwrap());
        let mut reports = Vec::new();
        let model = Model::load(checkpoint, &cpu(1), &mut |progress| reports.push(progress)).unwrap();
        assert!(reports.is_sorted_by_key(|report| report.loaded));
        let last = reports.last().unwrap();
        assert_eq!(
            (last.loaded, last.total),
            (model.info().weight_bytes, model.info().weight_bytes),
            "{name}"
        );
    }
}

/// A refused pass leaves every state of the batch as it was.
#[test]
fn refused_passes_touch_nothing() {
    let (model, other) = (model("llama"), model("qwen2"));
    let cpu = cpu(2);
    let fine = [TokenId(1), TokenId(2)];
    let too_many = vec![TokenId(3); 256];
    let unknown = [TokenId(1), TokenId(384)];
    let largest = [TokenId(u32::MAX)];
    type Case<'a> = (&'a [TokenId], LogitRows, fn(&ForwardError) -> bool, &'a str);
    let cases: [Case<'_>; 5] = [
        (&[], LogitRows::Last, |error| matches!(error, ForwardError::EmptySpan { span: 1 }), "no tokens"),
        (
            &unknown,
            LogitRows::Last,
            |error| matches!(error, ForwardError::Token { token: 384, index: 1, .. }),
            "0 to 383",
        ),
        (
            &largest,
            LogitRows::None,
            |error| matches!(error, ForwardError::Token { token: u32::MAX, .. }),
            "4294967295",
        ),
        (
            &too_many,
            LogitRows::None,
            |error| matches!(error, ForwardError::Context { wanted: 258, context: 256, .. }),
            "258",
        ),
        (
            &fine,
            LogitRows::Rows(vec![0, 2]),
            |error| matches!(error, ForwardError::LogitsRow { row: 2, .. }),
            "row 2",
        ),
    ];
    for (tokens, logits, expected, words) in cases {
        let mut states = [model.new_state(KvType::F16), model.new_state(KvType::F16)];
        for state in &mut states {
            support::run(&model, &cpu, state, &fine, Taps::default());
        }
        let before: Vec<_> = states.iter().map(samebit_models::SequenceState::encode).collect();
        let [first, second] = &mut states;
        let mut batch = [
            Span { state: first, tokens: &fine, logits: LogitRows::Last },
            Span { state: second, tokens, logits },
        ];
        let error = model.forward(&cpu, &mut batch, Taps::default()).unwrap_err();
        assert!(expected(&error), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        let after: Vec<_> = states.iter().map(samebit_models::SequenceState::encode).collect();
        assert!(before == after, "{error}: a state was touched");
    }
    let mut foreign = other.new_state(KvType::F16);
    let mut batch = [Span { state: &mut foreign, tokens: &fine, logits: LogitRows::Last }];
    let error = model.forward(&cpu, &mut batch, Taps::default()).unwrap_err();
    assert!(matches!(error, ForwardError::ForeignState { span: 0, .. }), "{error}");
    assert!(error.to_string().contains("qwen2"), "{error}");
    assert_eq!(foreign.length(), 0);
}

/// The context may be filled to its last position, and not further.
#[test]
fn the_context_ends_where_it_says() {
    let model = model("llama");
    let mut state = model.new_state(KvType::F16);
    support::run(&model, &cpu(2), &mut state, &[TokenId(7); 255], Taps::default());
    support::run(&model, &cpu(2), &mut state, &[TokenId(7)], Taps::default());
    let span = Span { state: &mut state, tokens: &[TokenId(7)], logits: LogitRows::Last };
    assert!(matches!(
        model.forward(&cpu(2), &mut [span], Taps::default()),
        Err(ForwardError::Context { .. })
    ));
    assert_eq!(state.length(), 256);
}

#[test]
fn an_empty_batch_is_an_empty_answer() {
    let model = model("llama");
    let outputs = model.forward(&cpu(1), &mut [], Taps { layers: true, hidden: true }).unwrap();
    assert!(outputs.logits.is_empty() && outputs.hidden.unwrap().is_empty());
}

/// Whatever a configuration says: it is refused, or the model runs.
#[test]
fn no_configuration_panics() {
    const NAMES: [&str; 4] = ["llama", "qwen2", "qwen3_moe", "gemma3"];
    let folders = NAMES.map(|name| changed(name, &[]));
    let originals = NAMES.map(|name| -> Value {
        let text = std::fs::read_to_string(fixture(name).join("model/config.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    });
    let rope = |kind: &str, factor: f64| json!({"rope_type": kind, "factor": factor});
    let values = [
        json!(null),
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(7),
        json!(16),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!(1e-300),
        json!(0.5),
        json!(true),
        json!(false),
        json!("silu"),
        json!([]),
        json!([0, 1]),
        json!(["full_attention"]),
        json!({}),
        rope("linear", 1e-300),
        rope("yarn", 4.0),
        rope("yarn", 1e300),
        json!({"rope_type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 1.5}),
    ];
    let more_keys = [
        "layer_types",
        "rope_parameters",
        "head_dim",
        "sliding_window",
        "text_config",
        "partial_rotary_factor",
    ];
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let changes = proptest::collection::vec((0usize..1000, 0..values.len()), 1..4);
    let (ran, refused) = (Cell::new(0), Cell::new(0));
    let outcome = runner.run(&(0..NAMES.len(), changes), |(which, changes)| {
        let mut config = originals[which].clone();
        let keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).chain(more_keys).collect();
        for (key, value) in changes {
            config[keys[key % keys.len()]] = values[value].clone();
        }
        let path = folders[which].path();
        std::fs::write(path.join("config.json"), config.to_string()).unwrap();
        let loaded = Checkpoint::open(path)
            .map_err(ModelError::from)
            .and_then(|checkpoint| Model::load(Arc::new(checkpoint), &cpu(1), &mut |_| {}));
        match loaded {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused.set(refused.get() + 1);
            }
            Ok(model) => {
                let mut state = model.new_state(KvType::F16);
                let span = Span { state: &mut state, tokens: &[TokenId(0)], logits: LogitRows::Last };
                let outputs = model.forward(&cpu(1), &mut [span], Taps::default()).unwrap();
                assert_eq!(outputs.logits.len(), model.info().vocabulary);
                ran.set(ran.get() + 1);
            }
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(ran.get() > 20 && refused.get() > 100, "{ran:?} ran, {refused:?} were refused");
}
