//! Logits, hidden states, layers, router picks and greedy continuations against independent references.

mod support;

use samebit_arith::KvType;
use samebit_checkpoint::Checkpoint;
use samebit_models::{Model, Outputs};
use support::{
    ALL_TAPS, Expected, FIXTURES, MLX_FIXTURES, argmax, cpu, distance, greedy, model, run, run_pieces,
};

fn check_within(what: &str, distance: f64, tolerance: f64) {
    assert!(distance <= tolerance, "{what}: off by {distance:e}, allowed {tolerance:e}");
    println!("{what}: off by {distance:.1e} of {tolerance:.1e}");
}

fn check_layers(fixture: &str, prompt: &str, expected: &Expected, outputs: &Outputs) {
    let tolerance = expected.tolerance("layer_atol_f32");
    for (layer, ours) in outputs.layers.iter().enumerate() {
        let theirs = expected.floats(&format!("{prompt}.layer{layer}.out"));
        check_within(&format!("{fixture} {prompt} layer {layer}"), distance(ours, &theirs), tolerance);

        let name = format!("{prompt}.layer{layer}.router_indices");
        match &outputs.routers[layer] {
            None => assert!(!expected.contains(&name), "{fixture}: layer {layer} has a router"),
            Some(picks) => {
                let mut ours = picks.ids.clone();
                ours.chunks_mut(picks.picked).for_each(<[i32]>::sort_unstable);
                let ours: Vec<i64> = ours.into_iter().map(i64::from).collect();
                assert_eq!(ours, expected.integers(&name), "{fixture} {prompt}: picks of layer {layer}");
            }
        }
    }
}

/// Picks come in pick order: highest router logit first.
fn check_pick_order(fixture: &str, expected: &Expected, outputs: &Outputs) {
    for (layer, picks) in outputs.routers.iter().enumerate() {
        let Some(picks) = picks else { continue };
        let logits = expected.floats(&format!("a.layer{layer}.router_logits"));
        let experts = logits.len() * picks.picked / picks.ids.len();
        for (ids, logits) in picks.ids.chunks(picks.picked).zip(logits.chunks(experts)) {
            assert!(
                ids.is_sorted_by(|&a, &b| logits[a as usize] >= logits[b as usize]),
                "{fixture} layer {layer}"
            );
        }
    }
}

fn check_greedy(fixture: &str, model: &Model, expected: &Expected) {
    for prompt in ["a", "b"] {
        let tokens = expected.tokens(&format!("{prompt}.input_ids"));
        let ours = greedy(model, &cpu(2), KvType::F32, &tokens, 16);
        assert_eq!(
            ours,
            expected.tokens(&format!("{prompt}.greedy")),
            "{fixture} {prompt}: greedy continuation"
        );
    }
}

#[test]
fn dense_fixtures_agree_with_their_references() {
    for fixture in FIXTURES {
        let (model, expected) = (model(fixture), Expected::of(fixture));
        assert!(model.info().unused.unknown.is_empty(), "{fixture}: {:?}", model.info().unused);
        for prompt in ["a", "b"] {
            let tokens = expected.tokens(&format!("{prompt}.input_ids"));
            let mut state = model.new_state(KvType::F32);
            let outputs = run(&model, &cpu(2), &mut state, &tokens, ALL_TAPS);
            check_layers(fixture, prompt, &expected, &outputs);
            let tolerance = expected.tolerance("logits_atol_f32");
            let logits = expected.floats(&format!("{prompt}.logits"));
            check_within(
                &format!("{fixture} {prompt} logits"),
                distance(&outputs.logits, &logits),
                tolerance,
            );
            let hidden = expected.floats(&format!("{prompt}.final_hidden"));
            let ours = outputs.hidden.as_ref().unwrap();
            check_within(&format!("{fixture} {prompt} hidden"), distance(ours, &hidden), tolerance);
            if prompt == "a" {
                check_pick_order(fixture, &expected, &outputs);
            }
        }
        check_greedy(fixture, &model, &expected);
    }
}

#[test]
fn pieces_through_the_cache_agree_with_the_references() {
    for fixture in FIXTURES {
        let (model, expected) = (model(fixture), Expected::of(fixture));
        let tokens = expected.tokens("a.input_ids");
        let mut pieces = vec![10];
        pieces.resize(15, 1);
        let (logits, _) = run_pieces(&model, &cpu(2), KvType::F32, &tokens, &pieces);
        let cached = expected.floats("a.cached_logits_f32");
        let tolerance = expected.tolerance("logits_atol_f32");
        check_within(&format!("{fixture} cached"), distance(&logits, &cached), tolerance);
    }
}

/// The largest difference of a quantized fixture's logits over both prompts, in units of its tolerance.
fn quantized_distance(fixture: &str, model: &Model, expected: &Expected) -> f64 {
    let off = ["a", "b"].map(|prompt| {
        let tokens = expected.tokens(&format!("{prompt}.input_ids"));
        let outputs = run(model, &cpu(2), &mut model.new_state(KvType::F32), &tokens, ALL_TAPS);
        distance(&outputs.logits, &expected.floats(&format!("{prompt}.logits")))
    });
    println!("{fixture}: off by {:.1e} and {:.1e}", off[0], off[1]);
    off[0].max(off[1]) / expected.tolerance("logits_atol_f32")
}

#[test]
fn quantized_fixtures_agree_with_their_references() {
    for fixture in MLX_FIXTURES {
        let (model, expected) = (model(fixture), Expected::of(fixture));
        assert!(model.info().unused.unknown.is_empty(), "{fixture}: {:?}", model.info().unused);
        let off = quantized_distance(fixture, &model, &expected);
        assert!(off <= 1.0, "{fixture}: off by {off} tolerances");
        check_greedy(fixture, &model, &expected);
    }
}

/// The same weights as plain floats: what the packing of integer codes must not change.
#[test]
fn dequantized_fixtures_agree_with_their_references() {
    for fixture in MLX_FIXTURES {
        let folder = dequantized(fixture);
        let (model, expected) = (support::load(folder.path()), Expected::of(fixture));
        let off = quantized_distance(fixture, &model, &expected);
        assert!(off <= 1.0, "{fixture}: off by {off} tolerances");
        check_greedy(fixture, &model, &expected);
    }
}

/// A copy of a quantized fixture with every matrix as F32.
fn dequantized(fixture: &str) -> tempfile::TempDir {
    let source = Checkpoint::open(support::fixture(fixture).join("model")).unwrap();
    let mut tensors = Vec::new();
    for tensor in source
        .tensors()
        .filter(|tensor| !tensor.name().ends_with(".scales") && !tensor.name().ends_with(".biases"))
    {
        let values = match source.matrix(tensor.name()) {
            Ok(matrix) => {
                let encoded = matrix.encoded();
                let mut values = vec![0.0; encoded.rows() * encoded.columns()];
                for (row, out) in values.chunks_mut(encoded.columns()).enumerate() {
                    encoded.dequantize_row(row, out);
                }
                (matrix.shape(), values)
            }
            Err(_) => (tensor.shape().to_vec(), tensor.to_f32().unwrap()),
        };
        let bytes = values.1.iter().flat_map(|x| x.to_le_bytes()).collect();
        tensors.push((tensor.name().to_owned(), "F32".to_owned(), values.0, bytes));
    }
    let folder = tempfile::tempdir().unwrap();
    support::write_safetensors(&folder.path().join("model.safetensors"), &tensors);
    let config = std::fs::read_to_string(support::fixture(fixture).join("model/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config.as_object_mut().unwrap().retain(|key, _| !key.starts_with("quantization"));
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    folder
}

/// A narrower cache moves logits a little, and only a little.
#[test]
fn every_cache_type_stays_near_the_reference() {
    for fixture in FIXTURES {
        let (model, expected) = (model(fixture), Expected::of(fixture));
        let tokens = expected.tokens("a.input_ids");
        let logits = expected.floats("a.logits");
        for (kv, tolerance) in [(KvType::F16, 0.02), (KvType::Bf16, 0.15), (KvType::Int8, 0.3)] {
            let mut state = model.new_state(kv);
            let outputs = run(&model, &cpu(2), &mut state, &tokens, ALL_TAPS);
            let off = distance(&outputs.logits, &logits);
            check_within(&format!("{fixture} {kv}"), off, tolerance);
            assert!(off > expected.tolerance("logits_atol_f32"), "{fixture} {kv}: the cache was not rounded");
            assert_eq!(argmax(outputs.logits_row(0)), {
                let first: Vec<f32> = logits[..outputs.vocabulary].iter().map(|&x| x as f32).collect();
                argmax(&first)
            });
        }
    }
}
