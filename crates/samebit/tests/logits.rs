//! `samebit logits`: within each fixture's tolerance, and byte for byte the same however it was computed.

mod support;

use std::path::Path;

use support::{fixture, ids, joined, open, read_json, succeed, tensor, text};

/// Dense and routed fixtures with weights that are no integer codes.
const FIXTURES: [&str; 6] = ["llama", "llama-f32-tied", "qwen2", "qwen3", "qwen3_moe", "gemma3"];

/// Writes everything that `logits` can write, with an exact cache unless `more` says otherwise.
fn write_logits(model: &Path, ids: &[u32], out: &Path, more: &[&str]) {
    let ids = joined(ids);
    let mut arguments =
        vec!["logits", text(model), "--ids", &ids, "--out", text(out), "--hidden", "--layers", "--quiet"];
    arguments.extend(more);
    assert_eq!(succeed(&arguments), "");
}

fn largest_difference(ours: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(ours.len(), expected.len());
    ours.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn fixtures_are_within_their_tolerance() {
    let folder = tempfile::tempdir().unwrap();
    for name in FIXTURES {
        let expected_json = read_json(&fixture(&format!("{name}/expected.json")));
        let expected = open(&fixture(&format!("{name}/expected.safetensors")));
        let tolerance = &expected_json["tolerance"];
        let (logits_tolerance, layer_tolerance) =
            (tolerance["logits_atol_f32"].as_f64().unwrap(), tolerance["layer_atol_f32"].as_f64().unwrap());
        for prompt in ["a", "b"] {
            let prompt_ids = ids(&expected_json["prompts"][prompt]["input_ids"]);
            let out = folder.path().join("out.safetensors");
            write_logits(&fixture(&format!("{name}/model")), &prompt_ids, &out, &["--kv", "f32"]);
            let ours = open(&out);

            assert_eq!(ours.tensor("logits").unwrap().shape()[0], prompt_ids.len());
            let off =
                largest_difference(&tensor(&ours, "logits"), &tensor(&expected, &format!("{prompt}.logits")));
            assert!(
                off <= logits_tolerance,
                "{name}, prompt {prompt}: logits are {off} off, {logits_tolerance} allowed"
            );
            let hidden = tensor(&expected, &format!("{prompt}.final_hidden"));
            let off = largest_difference(&tensor(&ours, "hidden"), &hidden);
            assert!(
                off <= layer_tolerance,
                "{name}, prompt {prompt}: hidden is {off} off, {layer_tolerance} allowed"
            );

            let layers =
                (0..).take_while(|layer| expected.contains(&format!("{prompt}.layer{layer}.out"))).count();
            assert!(layers > 0 && !ours.contains(&format!("layer.{layers}")));
            for layer in 0..layers {
                let truth = tensor(&expected, &format!("{prompt}.layer{layer}.out"));
                let off = largest_difference(&tensor(&ours, &format!("layer.{layer}")), &truth);
                assert!(off <= layer_tolerance, "{name}, prompt {prompt}, layer {layer}: {off} off");
                compare_router(&ours, &expected, prompt, layer);
            }
        }
    }
}

/// The fixtures list picked experts sorted by id; the file lists them in pick order.
fn compare_router(
    ours: &samebit_checkpoint::Checkpoint,
    expected: &samebit_checkpoint::Checkpoint,
    prompt: &str,
    layer: usize,
) {
    let truth = format!("{prompt}.layer{layer}.router_indices");
    let name = format!("router.{layer}");
    assert_eq!(ours.contains(&name), expected.contains(&truth), "layer {layer}");
    if !ours.contains(&name) {
        return;
    }
    let picked = ours.tensor(&name).unwrap().shape()[1];
    let mut picks = support::integers(ours, &name);
    picks.chunks_exact_mut(picked).for_each(<[i64]>::sort_unstable);
    assert_eq!(picks, support::integers(expected, &truth), "layer {layer}");
    // Pick order is descending score.
    let scores = tensor(expected, &format!("{prompt}.layer{layer}.router_logits"));
    let experts = scores.len() / (picks.len() / picked);
    let unsorted = support::integers(ours, &name);
    for (row, picks) in unsorted.chunks_exact(picked).enumerate() {
        let score = |pick: &i64| scores[row * experts + usize::try_from(*pick).unwrap()];
        assert!(picks.windows(2).all(|pair| score(&pair[0]) >= score(&pair[1])), "layer {layer}, row {row}");
    }
}

#[test]
fn no_path_changes_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["llama", "qwen3_moe", "gemma3", "mlx-llama-b4g32"] {
        let model = fixture(&format!("{name}/model"));
        let prompt = ids(&read_json(&fixture(&format!("{name}/expected.json")))["prompts"]["a"]["input_ids"]);
        let write = |more: &[&str]| {
            let out = folder.path().join("out.safetensors");
            write_logits(&model, &prompt, &out, more);
            std::fs::read(&out).unwrap()
        };
        let plain = write(&["--threads", "1", "--isa", "scalar"]);
        let singles = vec!["1"; prompt.len()].join(",");
        let paths: [&[&str]; 9] = [
            &["--split", "10,1,1,1,1,1,1,1,1,1,1,1,1,1,1"],
            &["--split", "7,9,8"],
            &["--split", &singles, "--threads", "2"],
            &["--prefill-chunk", "1"],
            &["--prefill-chunk", "5", "--threads", "2"],
            &["--threads", "2"],
            &["--threads", "3", "--isa", "scalar"],
            &["--isa", "avx2"],
            &["--isa", "avx512", "--split", "23,1"],
        ];
        for more in paths {
            if !isa_is_available(more) {
                continue;
            }
            assert!(write(more) == plain, "{name}: {more:?} changed the file");
        }
        // The stored type is part of the plan, so this comparison could have failed.
        assert!(write(&["--kv", "int8"]) != plain, "{name}: an int8 cache gave the bits of an f16 cache");
        for kv in ["f32", "bf16", "int8"] {
            assert!(
                write(&["--kv", kv]) == write(&["--kv", kv, "--split", "7,9,8", "--threads", "2"]),
                "{name}: {kv}"
            );
        }
    }
}

/// Whether the processor has what these arguments force.
fn isa_is_available(arguments: &[&str]) -> bool {
    let forced = arguments.windows(2).find(|pair| pair[0] == "--isa").map(|pair| pair[1]);
    forced.is_none_or(|name| name.parse::<samebit_arith::Isa>().unwrap().is_available())
}

#[test]
fn a_split_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.safetensors");
    let model = fixture("llama/model");
    let error =
        support::fail(&["logits", text(&model), "--ids", "1,2,3", "--out", text(&out), "--split", "1,1"]);
    assert!(error.contains("--split adds up to 2 tokens, but --ids has 3"), "{error}");
    let error = support::fail(&["logits", text(&model), "--ids", "1,99999", "--out", text(&out)]);
    assert!(error.contains("number 2 is id 99999") && error.contains("0 to 383"), "{error}");
    assert!(!out.exists());
}
