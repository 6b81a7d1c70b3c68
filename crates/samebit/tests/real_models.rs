//! The two real models against their ground truth: answers, fidelity, perplexity, and equal bytes on every path.
//!
//! The truth was computed in `f64` from the checkpoints' own values. It is compared with tolerances, which say how far
//! 16-bit rows and stored keys and values may drift; equalities are compared in bytes.

mod support;

use std::sync::Arc;

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_models::{LogitRows, Model, Span, Taps, TokenId};
use support::fidelity::{argmax, kl, kl_of_best};
use support::{
    REAL_MODELS, RealModel, fixture, ids, integers, joined, json, open, read_json, succeed, tensor, text,
};

/// Every text of the ground truth but `long512`, which is the start of `long800`.
const TEXTS: [&str; 6] = ["chat", "english", "python", "json", "multilingual", "long800"];
/// Size of the sliding window of Gemma 3: only later positions can see a wrong one.
const WINDOW: usize = 512;

/// A loaded model.
struct Engine {
    model: Model,
    cpu: Cpu,
}

impl Engine {
    fn load(real: &RealModel) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let cpu = Cpu::new(Isa::detect(), threads).unwrap();
        let checkpoint = Checkpoint::open(real.path()).unwrap_or_else(|error| panic!("{error}"));
        let model =
            Model::load(Arc::new(checkpoint), &cpu, &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
        Self { model, cpu }
    }

    /// Calls `each` with position and logits of every token.
    fn logits(&self, ids: &[u32], kv: KvType, mut each: impl FnMut(usize, &[f32])) {
        let tokens: Vec<TokenId> = ids.iter().map(|id| TokenId(*id)).collect();
        let mut state = self.model.new_state(kv);
        let mut position = 0;
        for chunk in tokens.chunks(64) {
            let span = Span { state: &mut state, tokens: chunk, logits: LogitRows::All };
            let outputs = self.model.forward(&self.cpu, &mut [span], Taps::default()).unwrap();
            for row in 0..chunk.len() {
                each(position, outputs.logits_row(row));
                position += 1;
            }
        }
    }
}

/// The reference at every position of a text.
struct Truth {
    ids: Vec<u32>,
    argmax: Vec<i64>,
    best_ids: Vec<i64>,
    best_logits: Vec<f64>,
    log_sums: Vec<f64>,
}

impl Truth {
    fn read(file: &Checkpoint, name: &str) -> Self {
        let ids = integers(file, &format!("{name}.ids")).into_iter();
        Self {
            ids: ids.map(|id| u32::try_from(id).unwrap()).collect(),
            argmax: integers(file, &format!("{name}.argmax")),
            best_ids: integers(file, &format!("{name}.top32_ids")),
            best_logits: tensor(file, &format!("{name}.top32_logits")),
            log_sums: tensor(file, &format!("{name}.lse")),
        }
    }

    fn best(&self, position: usize) -> Vec<(usize, f64)> {
        let range = 32 * position..32 * (position + 1);
        let ids = self.best_ids[range.clone()].iter().map(|id| usize::try_from(*id).unwrap());
        ids.zip(self.best_logits[range].iter().copied()).collect()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// KL over 33 outcomes at every position of every text, and the share of equal best tokens.
fn check_fidelity(engine: &Engine, real: &RealModel, kv: KvType, bar: f64) {
    let reference = open(&real.truth("reference.safetensors"));
    let (mut all, mut same) = (Vec::new(), 0);
    for name in TEXTS {
        let truth = Truth::read(&reference, name);
        let mut of_text = Vec::with_capacity(truth.ids.len());
        engine.logits(&truth.ids, kv, |position, logits| {
            of_text.push(kl_of_best(&truth.best(position), truth.log_sums[position], logits));
            same += usize::from(argmax(logits) as i64 == truth.argmax[position]);
        });
        let of_text_mean = mean(&of_text);
        println!("{} {kv} {name}: KL33 mean {of_text_mean:.2e}", real.name);
        assert!(of_text_mean <= 3.0 * bar, "{} {kv} {name}: KL33 {of_text_mean:.2e}", real.name);
        if name == "long800" {
            let late = mean(&of_text[WINDOW..]);
            assert!(late <= 3.0 * bar, "{} {kv}: KL33 {late:.2e} where the window shows", real.name);
        }
        all.extend(of_text);
    }
    let (mean, top1) = (mean(&all), same as f64 / all.len() as f64);
    println!(
        "{} {kv}: {} positions, KL33 mean {mean:.2e}, top-1 {:.3} %",
        real.name,
        all.len(),
        100.0 * top1
    );
    assert!(mean <= bar, "{} {kv}: KL33 mean {mean:.2e}, at most {bar:.0e} allowed", real.name);
    assert!(top1 >= 0.998, "{} {kv}: top-1 agreement {top1}", real.name);
}

/// KL over the whole vocabulary at the 32 positions whose complete logits are known. They are the first of two texts,
/// where little context steadies the answer, so they get the allowance of a single text: three times that of all.
fn check_whole_vocabulary(engine: &Engine, real: &RealModel, kv: KvType, bar: f64) {
    let Some(path) = real.shared_truth("full_logits.safetensors") else { return };
    let (complete, reference) = (open(&path), open(&real.truth("reference.safetensors")));
    let mut divergences = Vec::new();
    for name in ["chat", "multilingual"] {
        let truth = complete.tensor(&format!("{name}.logits")).and_then(|tensor| tensor.to_f32()).unwrap();
        let vocabulary = engine.model.info().vocabulary;
        let ids = Truth::read(&reference, name).ids;
        engine.logits(&ids[..16], kv, |position, logits| {
            divergences.push(kl(&truth[position * vocabulary..(position + 1) * vocabulary], logits));
        });
    }
    assert_eq!(divergences.len(), 32);
    println!("{} {kv}: whole vocabulary, KL mean {:.2e}", real.name, mean(&divergences));
    assert!(mean(&divergences) <= 3.0 * bar, "{} {kv}: KL mean {:.2e}", real.name, mean(&divergences));
}

#[test]
fn logits_are_the_models_own() {
    for real in &REAL_MODELS {
        let engine = Engine::load(real);
        check_fidelity(&engine, real, KvType::F32, 2e-7);
        check_whole_vocabulary(&engine, real, KvType::F32, 2e-7);
        check_fidelity(&engine, real, KvType::F16, 2e-6);
        check_whole_vocabulary(&engine, real, KvType::F16, 2e-6);
    }
}

#[test]
fn greedy_answers_are_the_models_own() {
    for real in &REAL_MODELS {
        let truth = read_json(&real.truth("greedy.json"));
        for name in ["chat", "prose"] {
            let prompt = joined(&ids(&truth[name]["prompt_ids"]));
            let answer = json(&[
                "run",
                real.name,
                "--ids",
                &prompt,
                "--max-tokens",
                "64",
                "--ignore-eos",
                "--kv",
                "f32",
                "--json",
            ]);
            assert_eq!(ids(&answer["ids"]), ids(&truth[name]["ids"]), "{}, {name}", real.name);
        }
    }
}

#[test]
fn perplexity_is_the_models_own() {
    let truth = read_json(&fixture("real/perplexity/perplexity.json"));
    let file = fixture("real/perplexity/text.txt");
    for real in &REAL_MODELS {
        let expected = &truth["models"][real.folder];
        let report = json(&["perplexity", real.name, "--text", text(&file), "--json"]);
        assert_eq!(report["tokens"], expected["tokens"], "{}", real.name);
        assert_eq!(report["windows"], expected["windows"], "{}", real.name);
        assert_eq!(report["scored"], expected["reference_f64"]["scored"], "{}", real.name);
        let (ours, reference) = (
            report["perplexity"].as_f64().unwrap(),
            expected["reference_f64"]["perplexity"].as_f64().unwrap(),
        );
        println!("{}: perplexity {ours:.4}, reference {reference:.4}", real.name);
        assert!((ours - reference).abs() <= 0.005, "{}: perplexity {ours}, reference {reference}", real.name);
        let uncertainty = expected["reference_f64"]["uncertainty"].as_f64().unwrap();
        assert!((report["perplexity_error"].as_f64().unwrap() - uncertainty).abs() < 0.01);
    }
}

#[test]
fn no_path_changes_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    for real in &REAL_MODELS {
        let reference = open(&real.truth("reference.safetensors"));
        let prompt = &Truth::read(&reference, "english").ids[..12];
        let write = |more: &[&str]| {
            let out = folder.path().join("out.safetensors");
            let prompt = joined(prompt);
            let fixed = [
                "logits",
                real.name,
                "--ids",
                &prompt,
                "--out",
                text(&out),
                "--hidden",
                "--layers",
                "--quiet",
            ];
            succeed(&[&fixed[..], more].concat());
            std::fs::read(&out).unwrap()
        };
        let plain = write(&["--threads", "1"]);
        let mut paths: Vec<&[&str]> = vec![
            &["--threads", "2", "--split", "10,1,1"],
            &["--threads", "2", "--split", "1,4,7"],
            &["--threads", "2", "--prefill-chunk", "5"],
            &["--isa", "scalar", "--threads", "2"],
        ];
        if Isa::Avx2.is_available() {
            paths.push(&["--isa", "avx2", "--threads", "2"]);
        }
        if Isa::Avx512.is_available() {
            paths.push(&["--isa", "avx512", "--prefill-chunk", "1"]);
            paths.push(&["--isa", "avx512", "--threads", "2"]);
        }
        if Isa::Amx.is_available() {
            paths.push(&["--isa", "amx", "--threads", "2"]);
        }
        for more in paths {
            assert!(write(more) == plain, "{}: {more:?} changed the file", real.name);
        }
        assert!(
            write(&["--kv", "int8"]) != plain,
            "{}: an int8 cache gave the bits of an f16 cache",
            real.name
        );
    }
}

#[test]
fn the_default_model_answers_a_question() {
    let answer = json(&["run", "What is the capital of France?", "--max-tokens", "24", "--json"]);
    assert!(answer["text"].as_str().unwrap().contains("Paris"), "{}", answer["text"]);
    assert_eq!(answer["finish_reason"], "stop");
}

#[test]
fn a_base_model_has_no_chat_template_and_says_so() {
    let error = support::fail(&["run", REAL_MODELS[1].name, "Hello"]);
    assert!(error.contains("no chat template") && error.contains("--raw"), "{error}");
}
