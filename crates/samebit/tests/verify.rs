//! Receipts: what `run` writes holds, and whatever is changed in it is found and named.

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{fixture, samebit};

fn model(name: &str) -> String {
    fixture(&format!("{name}/model")).to_str().unwrap().to_owned()
}

fn receipt(folder: &Path, more: &[&str]) -> Value {
    let path = folder.join("receipt.json");
    let (model, path) = (model("llama"), path.to_str().unwrap().to_owned());
    let mut arguments =
        vec!["run", &model, "--ids", "5,6,7,8", "--max-tokens", "9", "--ignore-eos", "--quiet"];
    arguments.extend(["--receipt", &path]);
    arguments.extend(more);
    let output = samebit(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Exit code and what is said of a receipt.
fn verify(folder: &Path, receipt: &Value, name: &str) -> (Option<i32>, String) {
    let path = folder.join("verified.json");
    std::fs::write(&path, receipt.to_string()).unwrap();
    let model = model(name);
    let output = samebit(&["verify", path.to_str().unwrap(), "--model", &model, "--quiet"]);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn receipts_hold_however_the_answer_was_made() {
    let folder = tempfile::tempdir().unwrap();
    let sampled = ["--temperature", "1.1", "--top-p", "0.9"];
    let ways: [&[&str]; 4] =
        [&[], &sampled, &["--kv", "f32", "--isa", "scalar"], &["--prefill-chunk", "1", "--threads", "2"]];
    for more in ways {
        let (code, said) = verify(folder.path(), &receipt(folder.path(), more), "llama");
        assert_eq!(code, Some(0), "{more:?}: {said}");
        assert!(said.contains("9 steps with the same bits"), "{said}");
    }
}

#[test]
fn every_change_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let sound = receipt(folder.path(), &["--temperature", "1.1"]);
    let other = |id: &Value| json!(id.as_u64().unwrap() ^ 1);
    let result = |name: &str| sound["result"][name].clone();
    let flipped = |digest: &str| {
        let first = if digest.starts_with('0') { "1" } else { "0" };
        json!(format!("{first}{}", &digest[1..]))
    };
    let mut ids = result("ids");
    ids[3] = other(&ids[3]);
    let mut shorter = result("ids");
    shorter.as_array_mut().unwrap().truncate(5);
    let steps = result("steps");
    let steps = steps.as_str().unwrap();
    let changed_step =
        format!("{}{}{}", &steps[..16], flipped(&steps[16..24]).as_str().unwrap(), &steps[24..]);
    let token_sha = |ids: &Value| {
        let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
        json!(samebit_engine::token_sha(&ids))
    };
    let prompt = json!([5, 6, 7, 9]);
    let cases: [(&[(&str, Value)], &str); 11] = [
        (&[("/result/ids", ids.clone())], "token_sha"),
        (&[("/result/ids", ids.clone()), ("/result/token_sha", token_sha(&ids))], "step 3"),
        (&[("/result/ids", shorter.clone()), ("/result/token_sha", token_sha(&shorter))], "marks of 9"),
        (&[("/result/chain", flipped(result("chain").as_str().unwrap()))], "chain:"),
        (&[("/result/steps", json!(changed_step))], "step 2: other logits"),
        (&[("/inputs/seed", json!(12))], "seed"),
        (&[("/inputs/seed", json!(12)), ("/inputs/seed_given", json!(true))], "step "),
        (&[("/inputs/prompt_ids", prompt)], "prompt ids"),
        (&[("/inputs/sampling/temperature_bits", json!("3fe0000000000000"))], "step "),
        (&[("/program/plan_id", json!("sb1-0000000000000000"))], "plan:"),
        (&[("/inputs/weights/0/sha256", json!("00"))], "weights:"),
    ];
    for (changes, expected) in cases {
        let mut receipt = sound.clone();
        for (place, value) in changes {
            *receipt.pointer_mut(place).unwrap() = value.clone();
        }
        let (code, said) = verify(folder.path(), &receipt, "llama");
        assert_eq!(code, Some(1), "{changes:?}: {said}");
        assert!(said.contains(expected), "{changes:?}: {said}");
    }
    let (code, said) = verify(folder.path(), &sound, "qwen3");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("weights:"), "{said}");
}

#[test]
fn what_is_no_receipt_cannot_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let sound = receipt(folder.path(), &[]);
    let without = |place: &str, name: &str| {
        let mut receipt = sound.clone();
        receipt.pointer_mut(place).unwrap().as_object_mut().unwrap().remove(name);
        receipt
    };
    let with = |place: &str, value: Value| {
        let mut receipt = sound.clone();
        *receipt.pointer_mut(place).unwrap() = value;
        receipt
    };
    for (receipt, expected) in [
        (json!(null), "`inputs` is missing"),
        (json!([1]), "`inputs` is missing"),
        (without("/inputs/sampling", "top_k"), "`inputs.sampling.top_k` is missing"),
        (with("/result/ids/1", json!(-1)), "`result.ids.1` is -1, expected a token id"),
        (with("/program/kv", json!("f8")), "`program.kv` is f8"),
        (with("/inputs/sampling/top_p_bits", json!("zz")), "hexadecimal"),
        (with("/inputs/constraint_sha256", json!("ab")), "structured output"),
        (with("/inputs/max_tokens", json!(1_000_000_000)), "context"),
    ] {
        let (code, said) = verify(folder.path(), &receipt, "llama");
        assert_eq!(code, Some(2), "{receipt}: {said}");
        assert!(said.contains(expected), "{said}");
    }
    let path = folder.path().join("empty.json");
    std::fs::write(&path, "").unwrap();
    let output = samebit(&["verify", path.to_str().unwrap(), "--model", &model("llama")]);
    assert_eq!(output.status.code(), Some(2));
}
