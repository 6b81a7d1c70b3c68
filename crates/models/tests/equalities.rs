//! The answer is the same, bit for bit, however it was computed.

mod support;

use samebit_arith::{Cpu, Isa, KvType};
use samebit_models::{LogitRows, Model, Outputs, SequenceState, Span, Taps, TokenId};
use support::{ALL_TAPS, Choices, Expected, argmax, bits, cpu, model, run, run_pieces};

/// One plain, one routed, one with windows shorter than its prompts, one quantized; each with the cache types that
/// the long tests use.
const MODELS: [&str; 4] = ["llama-f32-tied", "qwen3_moe", "gemma3", "mlx-qwen3_moe-b4g32"];

fn cache_types(fixture: &str) -> &'static [KvType] {
    if fixture == "gemma3" { &KvType::ALL } else { &[KvType::F16] }
}

fn prompt(fixture: &str, name: &str) -> Vec<TokenId> {
    Expected::of(fixture).tokens(&format!("{name}.input_ids"))
}

/// Logits of a whole prompt in one pass, and the state's bytes.
fn whole(model: &Model, cpu: &Cpu, kv: KvType, tokens: &[TokenId]) -> (Vec<u32>, Vec<u8>) {
    let (logits, state) = run_pieces(model, cpu, kv, tokens, &[tokens.len()]);
    (bits(&logits), state.encode())
}

fn check_pieces(
    fixture: &str,
    model: &Model,
    kv: KvType,
    tokens: &[TokenId],
    pieces: &[usize],
    expected: &(Vec<u32>, Vec<u8>),
) {
    let (logits, state) = run_pieces(model, &cpu(2), kv, tokens, pieces);
    assert!(bits(&logits) == expected.0, "{fixture} {kv}: logits of pieces {pieces:?} differ");
    assert!(state.encode() == expected.1, "{fixture} {kv}: the state after pieces {pieces:?} differs");
}

#[test]
fn every_split_of_a_short_prompt() {
    for fixture in MODELS {
        let (model, tokens) = (model(fixture), prompt(fixture, "b"));
        for &kv in cache_types(fixture) {
            let expected = whole(&model, &cpu(2), kv, &tokens);
            // Bit i set: cut after token i.
            for cuts in 0..1u32 << (tokens.len() - 1) {
                let mut pieces = vec![1];
                for token in 1..tokens.len() {
                    if cuts >> (token - 1) & 1 == 1 {
                        pieces.push(1);
                    } else {
                        *pieces.last_mut().unwrap() += 1;
                    }
                }
                check_pieces(fixture, &model, kv, &tokens, &pieces, &expected);
            }
        }
    }
}

#[test]
fn random_splits_and_every_chunk_size_of_a_longer_prompt() {
    let mut choices = Choices::new(1);
    for fixture in MODELS {
        let (model, tokens) = (model(fixture), prompt(fixture, "a"));
        for &kv in cache_types(fixture) {
            let expected = whole(&model, &cpu(2), kv, &tokens);
            for _ in 0..20 {
                let pieces = choices.pieces(tokens.len());
                check_pieces(fixture, &model, kv, &tokens, &pieces, &expected);
            }
            for chunk in 1..=tokens.len() {
                let mut pieces = vec![chunk; tokens.len() / chunk];
                pieces.extend([tokens.len() % chunk].into_iter().filter(|&rest| rest > 0));
                check_pieces(fixture, &model, kv, &tokens, &pieces, &expected);
            }
        }
    }
}

/// Pages of 256 positions begin and fill up in the middle of pieces.
#[test]
fn splits_across_pages() {
    let mut choices = Choices::new(2);
    let model = long_context_model();
    let tokens: Vec<TokenId> =
        (0..600).map(|_| TokenId(choices.below(model.info().vocabulary) as u32)).collect();
    for kv in KvType::ALL {
        let expected = whole(&model, &cpu(2), kv, &tokens);
        for pieces in [vec![255, 1, 1, 343], vec![256, 256, 88], vec![1, 511, 88], vec![513, 87]] {
            check_pieces("gemma3", &model, kv, &tokens, &pieces, &expected);
        }
        for _ in 0..2 {
            let pieces = choices.pieces(tokens.len());
            check_pieces("gemma3", &model, kv, &tokens, &pieces, &expected);
        }
    }
}

/// The Gemma fixture with a longer context written into its configuration.
fn long_context_model() -> Model {
    let folder = tempfile::tempdir().unwrap();
    let source = support::fixture("gemma3/model");
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let config = config.replace("\"max_position_embeddings\": 256", "\"max_position_embeddings\": 1024");
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    std::fs::copy(source.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    support::load(folder.path())
}

#[test]
fn every_instruction_set_and_thread_count() {
    let mut compared = 0;
    for fixture in support::FIXTURES.into_iter().chain(support::MLX_FIXTURES) {
        let (model, tokens) = (model(fixture), prompt(fixture, "a"));
        for &kv in cache_types(fixture) {
            let scalar = Cpu::new(Isa::Scalar, 1).unwrap();
            let mut state = model.new_state(kv);
            let expected = run(&model, &scalar, &mut state, &tokens, ALL_TAPS);
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                for threads in [1, 2, 3] {
                    let cpu = Cpu::new(isa, threads).unwrap();
                    let mut other = model.new_state(kv);
                    let outputs = run(&model, &cpu, &mut other, &tokens, ALL_TAPS);
                    check_equal(&format!("{fixture} {kv} {isa} {threads} threads"), &outputs, &expected);
                    assert!(other.encode() == state.encode(), "{fixture} {kv} {isa}: states differ");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared >= 3 * 14);
}

fn check_equal(what: &str, ours: &Outputs, expected: &Outputs) {
    assert!(bits(&ours.logits) == bits(&expected.logits), "{what}: logits differ");
    assert!(
        bits(ours.hidden.as_ref().unwrap()) == bits(expected.hidden.as_ref().unwrap()),
        "{what}: hidden differ"
    );
    for (layer, (ours, expected)) in ours.layers.iter().zip(&expected.layers).enumerate() {
        assert!(bits(ours) == bits(expected), "{what}: layer {layer} differs");
    }
    assert_eq!(ours.routers, expected.routers, "{what}");
}

/// A sequence that is fed piece by piece among others.
struct Traveller {
    tokens: Vec<TokenId>,
    state: SequenceState,
    fed: usize,
    logits: Vec<u32>,
}

/// Sequences join and leave a batch at random; each gets what it gets alone.
#[test]
fn any_company_in_the_batch() {
    let mut choices = Choices::new(3);
    for fixture in MODELS {
        let model = model(fixture);
        for kv in [KvType::F16, KvType::Int8] {
            let mut travellers: Vec<Traveller> = (0..7)
                .map(|_| {
                    let length = 1 + choices.below(40);
                    let tokens = (0..length).map(|_| TokenId(choices.below(model.info().vocabulary) as u32));
                    let state = model.new_state(kv);
                    Traveller { tokens: tokens.collect(), state, fed: 0, logits: Vec::new() }
                })
                .collect();
            while travellers.iter().any(|traveller| traveller.fed < traveller.tokens.len()) {
                ride(&model, &mut travellers, &mut choices);
            }
            for traveller in travellers {
                let (logits, state) = whole(&model, &cpu(1), kv, &traveller.tokens);
                assert!(traveller.logits == logits, "{fixture} {kv}: logits depend on company");
                assert!(traveller.state.encode() == state, "{fixture} {kv}: the state depends on company");
            }
        }
    }
}

/// One pass with a random subset of the sequences, each with a random number of its next tokens.
fn ride(model: &Model, travellers: &mut [Traveller], choices: &mut Choices) {
    let mut shares = Vec::new();
    let mut batch = Vec::new();
    for (index, traveller) in travellers.iter_mut().enumerate() {
        let left = traveller.tokens.len() - traveller.fed;
        if left == 0 || choices.below(2) == 0 {
            continue;
        }
        let share = 1 + choices.below(left.min(9));
        let tokens = &traveller.tokens[traveller.fed..traveller.fed + share];
        batch.push(Span { state: &mut traveller.state, tokens, logits: LogitRows::All });
        shares.push((index, share));
    }
    let outputs = model.forward(&cpu(2), &mut batch, Taps::default()).unwrap();
    let mut rest = bits(&outputs.logits);
    for (index, share) in shares {
        let later = rest.split_off(share * outputs.vocabulary);
        travellers[index].logits.extend(rest);
        travellers[index].fed += share;
        rest = later;
    }
    assert!(rest.is_empty());
}

/// Which rows want logits changes nothing but which rows are returned.
#[test]
fn rows_on_request() {
    for fixture in MODELS {
        let (model, tokens) = (model(fixture), prompt(fixture, "b"));
        let cpu = cpu(2);
        let all = run(&model, &cpu, &mut model.new_state(KvType::F16), &tokens, Taps::default());
        let last = tokens.len() - 1;
        for (wanted, rows) in [
            (LogitRows::None, vec![]),
            (LogitRows::Last, vec![last]),
            (LogitRows::Rows(vec![3, 0, 3]), vec![3, 0, 3]),
        ] {
            for taps in [Taps::default(), ALL_TAPS] {
                let mut state = model.new_state(KvType::F16);
                let span = Span { state: &mut state, tokens: &tokens, logits: wanted.clone() };
                let outputs = model.forward(&cpu, &mut [span], taps).unwrap();
                assert_eq!(outputs.rows, rows);
                assert_eq!(outputs.logits.len(), rows.len() * outputs.vocabulary);
                for (index, &row) in rows.iter().enumerate() {
                    assert!(
                        bits(outputs.logits_row(index)) == bits(all.logits_row(row)),
                        "{fixture} {wanted:?}"
                    );
                }
            }
        }
        assert_eq!(argmax(all.logits_row(last)), Expected::of(fixture).tokens("b.greedy")[0]);
    }
}
