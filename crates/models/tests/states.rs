//! The verbs of a sequence state leave the bits of never having done anything else.

mod support;

use samebit_arith::KvType;
use samebit_models::{Model, SequenceState, StateError, Taps, TokenId};
use support::{Choices, bits, cpu, model, run};

const MODELS: [&str; 3] = ["qwen2", "qwen3_moe", "gemma3"];

fn tokens(model: &Model, count: usize, choices: &mut Choices) -> Vec<TokenId> {
    (0..count).map(|_| TokenId(choices.below(model.info().vocabulary) as u32)).collect()
}

fn fed(model: &Model, kv: KvType, tokens: &[TokenId]) -> SequenceState {
    let mut state = model.new_state(kv);
    if !tokens.is_empty() {
        run(model, &cpu(2), &mut state, tokens, Taps::default());
    }
    state
}

/// Feeds `tokens` to both and compares everything.
fn check_same_future(
    what: &str,
    model: &Model,
    ours: &mut SequenceState,
    expected: &mut SequenceState,
    tokens: &[TokenId],
) {
    assert_eq!(ours.length(), expected.length(), "{what}");
    assert!(ours.encode() == expected.encode(), "{what}: states differ");
    let cpu = cpu(2);
    let (a, b) = (
        run(model, &cpu, ours, tokens, Taps::default()),
        run(model, &cpu, expected, tokens, Taps::default()),
    );
    assert!(bits(&a.logits) == bits(&b.logits), "{what}: logits differ");
    assert!(ours.encode() == expected.encode(), "{what}: states differ afterwards");
}

#[test]
fn rollback_is_never_having_run() {
    let mut choices = Choices::new(4);
    for fixture in MODELS {
        let model = model(fixture);
        for kv in KvType::ALL {
            let (first, other, future) = (
                tokens(&model, 20, &mut choices),
                tokens(&model, 5, &mut choices),
                tokens(&model, 6, &mut choices),
            );
            for kept in [0, 1, 2, 8, 15, 16, 17, 19, 20] {
                let mut state = fed(&model, kv, &first);
                run(&model, &cpu(2), &mut state, &other, Taps::default());
                state.rollback(kept).unwrap();
                let mut expected = fed(&model, kv, &first[..kept]);
                check_same_future(
                    &format!("{fixture} {kv} back to {kept}"),
                    &model,
                    &mut state,
                    &mut expected,
                    &future,
                );
            }
        }
    }
}

#[test]
fn rollback_over_a_page_and_past_the_end() {
    let mut choices = Choices::new(5);
    let model = model("llama");
    assert_eq!(model.info().context, 256);
    let all = tokens(&model, 256, &mut choices);
    let mut state = fed(&model, KvType::F16, &all);
    let error = state.rollback(257).unwrap_err();
    assert_eq!(error, StateError::Rollback { to: 257, length: 256 });
    assert_eq!(state.length(), 256);
    let snapshot = state.snapshot();
    state.rollback(255).unwrap();
    let mut expected = fed(&model, KvType::F16, &all[..255]);
    check_same_future("255", &model, &mut state, &mut expected, &all[..1]);
    // The full page was shared with the snapshot, which still has it.
    assert_eq!(snapshot.length(), 256);
    state.restore(&snapshot).unwrap();
    assert!(state.encode() == fed(&model, KvType::F16, &all).encode());
}

#[test]
fn snapshots_and_clones_do_not_see_each_other() {
    let mut choices = Choices::new(6);
    for fixture in MODELS {
        let model = model(fixture);
        for kv in KvType::ALL {
            let prefix = tokens(&model, 9, &mut choices);
            let (left, right) = (tokens(&model, 4, &mut choices), tokens(&model, 4, &mut choices));
            let mut state = fed(&model, kv, &prefix);
            let snapshot = state.snapshot();
            let mut branch = state.clone();
            run(&model, &cpu(2), &mut state, &left, Taps::default());
            let what = format!("{fixture} {kv}");
            let mut expected = fed(&model, kv, &prefix);
            check_same_future(&what, &model, &mut branch, &mut expected, &right);
            state.restore(&snapshot).unwrap();
            let mut expected = fed(&model, kv, &prefix);
            check_same_future(&what, &model, &mut state, &mut expected, &right);
        }
    }
}

#[test]
fn bytes_bring_everything_back() {
    let mut choices = Choices::new(7);
    for fixture in MODELS {
        let model = model(fixture);
        for kv in KvType::ALL {
            for length in [0, 1, 17, 40] {
                let prefix = tokens(&model, length, &mut choices);
                let mut expected = fed(&model, kv, &prefix);
                let bytes = expected.encode();
                let mut state = model.decode_state(kv, &bytes).unwrap();
                let future = tokens(&model, 3, &mut choices);
                check_same_future(
                    &format!("{fixture} {kv} {length}"),
                    &model,
                    &mut state,
                    &mut expected,
                    &future,
                );
            }
        }
    }
}

#[test]
fn bytes_of_others_are_refused_with_the_reason() {
    let (llama, qwen) = (model("llama"), model("qwen2"));
    let state = fed(&llama, KvType::F16, &[TokenId(1), TokenId(2), TokenId(3)]);
    let bytes = state.encode();
    assert!(llama.decode_state(KvType::F16, &bytes).is_ok());
    for error in [
        llama.decode_state(KvType::Bf16, &bytes).unwrap_err(),
        qwen.decode_state(KvType::F16, &bytes).unwrap_err(),
        qwen.new_state(KvType::F16).restore(&state.snapshot()).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, StateError::Identity { .. }), "{text}");
        assert!(text.contains("llama") && text.contains("f16"), "{text}");
    }
}

#[test]
fn damaged_bytes_are_refused() {
    let model = model("llama");
    let bytes = fed(&model, KvType::Int8, &[TokenId(1), TokenId(2), TokenId(3)]).encode();
    for length in 0..bytes.len() {
        assert!(model.decode_state(KvType::Int8, &bytes[..length]).is_err(), "cut to {length} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(model.decode_state(KvType::Int8, &longer).is_err());
    assert_eq!(model.decode_state(KvType::Int8, b"").unwrap_err(), StateError::NotAState);
    // Every byte before the first page's numbers is checked: signature, version, identity with its length, tokens,
    // layers, kind, pages, and the length of the page.
    let identity = u32::from_le_bytes(bytes[20..24].try_into().unwrap()) as usize;
    for at in 0..16 + 4 + 4 + identity + 8 + 4 + 1 + 4 + 8 {
        let mut other = bytes.clone();
        other[at] ^= 0xff;
        assert!(model.decode_state(KvType::Int8, &other).is_err(), "byte {at} changed");
    }
}
