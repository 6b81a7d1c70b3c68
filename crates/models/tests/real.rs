//! Two real checkpoints against a computation in f64 of the same weights.
//!
//! The checkpoints (98 and 253 MB) are looked for where `samebit pull` keeps them and in `SAMEBIT_TEST_MODELS`. Without
//! them these tests say so and pass, but where `CI` is set they fail.

mod support;

use std::path::PathBuf;

use samebit_arith::KvType;
use samebit_checkpoint::Checkpoint;
use samebit_models::{LogitRows, Model, Outputs, Span, Taps, TokenId};
use support::{ALL_TAPS, cpu, fixture, greedy, run};

/// Folder of the reference, and file of the checkpoint.
const MODELS: [(&str, &str); 2] = [
    ("smollm2-135m-q4_1", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("gemma-3-270m-q4_k_m", "gemma-3-270m-q4_k_m.gguf"),
];
const TEXTS: [&str; 6] = ["chat", "english", "python", "json", "multilingual", "long800"];

fn places() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let pulled = cache.map(|cache| cache.join("samebit/models"));
    variable("SAMEBIT_TEST_MODELS").into_iter().chain(pulled).collect()
}

fn real_models() -> Vec<(&'static str, Model)> {
    let mut found = Vec::new();
    for (name, file) in MODELS {
        match places().into_iter().map(|place| place.join(file)).find(|path| path.is_file()) {
            Some(path) => found.push((name, support::load(path))),
            None if std::env::var_os("CI").is_some() => panic!("{file} is in none of {:?}", places()),
            None => println!("skipped: {file} is in none of {:?}", places()),
        }
    }
    found
}

fn reference(name: &str) -> Checkpoint {
    Checkpoint::open(fixture("real").join(name).join("reference.safetensors")).unwrap()
}

fn ids(reference: &Checkpoint, text: &str) -> Vec<TokenId> {
    let ids = reference.tensor(&format!("{text}.ids")).unwrap().to_i64().unwrap();
    ids.into_iter().map(|id| TokenId(u32::try_from(id).unwrap())).collect()
}

#[test]
fn layers_agree() {
    for (name, model) in real_models() {
        let tokens = &ids(&reference(name), "chat")[..8];
        let outputs = run(&model, &cpu(2), &mut model.new_state(KvType::F32), tokens, ALL_TAPS);
        let expected = Checkpoint::open(fixture("real").join(name).join("layers.safetensors")).unwrap();
        let check = |what: &str, ours: &[f32]| {
            let theirs = expected.tensor(what).unwrap().to_f64().unwrap();
            let (mut wrong, mut size) = (0.0, 0.0);
            for (&our, their) in ours.iter().zip(&theirs) {
                wrong += (f64::from(our) - their).powi(2);
                size += their * their;
            }
            let relative = f64::sqrt(wrong / size);
            println!("{name} {what}: off by {relative:.1e}");
            assert!(relative < 3e-4, "{name} {what}: off by {relative:e} of its size");
        };
        for (layer, x) in outputs.layers.iter().enumerate() {
            check(&format!("layer.{layer}"), x);
        }
        check("hidden", outputs.hidden.as_ref().unwrap());
    }
}

/// KL divergence of one row over 33 outcomes: the reference's best 32 tokens, and all the rest as one.
fn kl33(logits: &[f32], ids: &[i64], reference_logits: &[f64], reference_lse: f64) -> f64 {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |largest, &x| largest.max(f64::from(x)));
    let lse = largest + logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum::<f64>().ln();
    let (mut kl, mut p_rest, mut q_rest) = (0.0, 1.0, 1.0);
    for (&id, &theirs) in ids.iter().zip(reference_logits) {
        let (log_p, log_q) = (theirs - reference_lse, f64::from(logits[id as usize]) - lse);
        kl += log_p.exp() * (log_p - log_q);
        p_rest -= log_p.exp();
        q_rest -= log_q.exp();
    }
    if p_rest > 1e-12 && q_rest > 1e-12 { kl + p_rest * (p_rest / q_rest).ln() } else { kl }
}

fn whole_text(model: &Model, kv: KvType, tokens: &[TokenId]) -> Outputs {
    run(model, &cpu(2), &mut model.new_state(kv), tokens, Taps::default())
}

#[test]
fn distributions_agree() {
    for (name, model) in real_models() {
        let reference = reference(name);
        for (kv, bar) in [(KvType::F32, 2e-7), (KvType::F16, 2e-6)] {
            let (mut divergence, mut agreed, mut positions) = (0.0, 0, 0);
            for text in TEXTS {
                let tokens = ids(&reference, text);
                let outputs = whole_text(&model, kv, &tokens);
                let floats =
                    |what: &str| reference.tensor(&format!("{text}.{what}")).unwrap().to_f64().unwrap();
                let integers =
                    |what: &str| reference.tensor(&format!("{text}.{what}")).unwrap().to_i64().unwrap();
                let (best, top, lse) = (integers("top32_ids"), floats("top32_logits"), floats("lse"));
                let argmax = integers("argmax");
                for row in 0..tokens.len() {
                    let (at, logits) = (row * 32..(row + 1) * 32, outputs.logits_row(row));
                    divergence += kl33(logits, &best[at.clone()], &top[at], lse[row]);
                    agreed += usize::from(i64::from(support::argmax(logits).0) == argmax[row]);
                    positions += 1;
                }
            }
            let (mean, agreement) = (divergence / positions as f64, agreed as f64 / positions as f64);
            println!("{name} {kv}: mean KL {mean:.2e}, top-1 {:.2} % of {positions}", 100.0 * agreement);
            assert!(mean <= bar, "{name} {kv}: mean KL {mean:e}, at most {bar:e}");
            assert!(agreement >= 0.998, "{name} {kv}: top-1 agreement {agreement}");
        }
    }
}

#[test]
fn greedy_continuations_agree() {
    for (name, model) in real_models() {
        let text = std::fs::read_to_string(fixture("real").join(name).join("greedy.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for prompt in ["chat", "prose"] {
            let list = |what: &str| -> Vec<TokenId> {
                let ids = json[prompt][what].as_array().unwrap();
                ids.iter().map(|id| TokenId(id.as_u64().unwrap() as u32)).collect()
            };
            let expected = list("ids");
            let ours = greedy(&model, &cpu(2), KvType::F16, &list("prompt_ids"), expected.len());
            assert_eq!(ours, expected, "{name} {prompt}");
        }
    }
}

/// A prompt in one pass, in chunks, and with company gives one answer.
#[test]
fn chunks_and_company_change_nothing() {
    for (name, model) in real_models() {
        let tokens = &ids(&reference(name), "english")[..60];
        let whole = whole_text(&model, KvType::F16, tokens);
        let (pieces, _) = support::run_pieces(&model, &cpu(1), KvType::F16, tokens, &[7, 1, 33, 1, 18]);
        assert!(support::bits(&pieces) == support::bits(&whole.logits), "{name}: pieces differ");
        let (mut first, mut second) = (model.new_state(KvType::F16), model.new_state(KvType::F16));
        let mut batch = [
            Span { state: &mut first, tokens: &tokens[..20], logits: LogitRows::None },
            Span { state: &mut second, tokens, logits: LogitRows::All },
        ];
        let outputs = model.forward(&cpu(2), &mut batch, Taps::default()).unwrap();
        assert!(
            support::bits(&outputs.logits) == support::bits(&whole.logits),
            "{name}: company changes the answer"
        );
    }
}
