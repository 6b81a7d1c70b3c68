//! Tokenizers out of `tokenizer.json` against the library that writes such files.

mod support;

use samebit_text::{ChatRequest, ChatTemplate, CivilTime, Special, StreamDecoder, TemplateSource, Tokenizer};
use serde_json::{Map, Value};
use support::{bytes_of_hex, fixture, ids, json, text};

const TOKENIZERS: [&str; 3] = ["byte-fallback", "byte-level-digit1-bos", "byte-level-nfc-digits3"];
const MODELS: [&str; 6] = ["llama", "llama-f32-tied", "qwen2", "qwen3", "qwen3_moe", "gemma3"];

fn tokenizer(folder: &str) -> Tokenizer {
    Tokenizer::from_folder(&fixture(folder)).expect(folder)
}

/// Decodes and compares with the reference, which writes one U+FFFD per byte of a whole run of byte tokens if any part
/// of the run is bad. Where that happens the truth is the lossy reading of the tokens' bytes.
fn check_decoding(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool, reference: &str, name: &str) {
    let decoded = tokenizer.decode(ids, skip_special).expect(name);
    if reference.contains(char::REPLACEMENT_CHARACTER) {
        let bytes = tokenizer.decode_bytes(ids, skip_special).expect(name);
        assert_eq!(decoded, String::from_utf8_lossy(&bytes), "{name}");
        assert!(decoded.contains(char::REPLACEMENT_CHARACTER), "{name}");
    } else {
        assert_eq!(decoded, reference, "{name}");
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn every_string_has_its_ids() {
    let tricky = json("text/tricky.json");
    let strings = tricky["strings"].as_array().unwrap().iter().chain(tricky["random"].as_array().unwrap());
    let strings: Vec<&Value> = strings.collect();
    assert_eq!(strings.len(), 100);
    for name in TOKENIZERS {
        let tokenizer = tokenizer(&format!("text/tokenizers/{name}"));
        let expected = json(&format!("text/tokenizers/{name}/expected.json"));
        assert_eq!(tokenizer.vocabulary_size() as u64, expected["vocab_size"].as_u64().unwrap());
        for string in &strings {
            let (id, text) = (text(string, "id"), text(string, "text"));
            let case = &expected["encodings"][id];
            let name = format!("{name}, {id}");
            assert_eq!(tokenizer.encode(text, Special::Parse).unwrap(), ids(&case["ids"]), "{name}");
            assert_eq!(
                tokenizer.encode_with_bos(text, Special::Parse).unwrap(),
                ids(&case["with_special"]),
                "{name}"
            );
            check_decoding(&tokenizer, &ids(&case["ids"]), false, text_of(&case["decoded"]), &name);
            check_decoding(
                &tokenizer,
                &ids(&case["ids"]),
                true,
                text_of(&case["decoded_skip_special"]),
                &name,
            );
        }
    }
}

#[test]
fn every_prefix_decodes() {
    for name in TOKENIZERS {
        let tokenizer = tokenizer(&format!("text/tokenizers/{name}"));
        let expected = json(&format!("text/tokenizers/{name}/expected.json"));
        for (string, decodings) in expected["prefix_decodes"].as_object().unwrap() {
            let all = ids(&expected["encodings"][string]["ids"]);
            let decodings = decodings.as_array().unwrap();
            assert_eq!(decodings.len(), all.len(), "{name}, {string}");
            for (length, decoding) in (1..).zip(decodings) {
                let name = format!("{name}, {string}, {length} tokens");
                check_decoding(&tokenizer, &all[..length], false, text_of(decoding), &name);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_text_read_lossily_at_once_and_in_a_stream() {
    let tricky = json("text/tricky.json");
    let cases = tricky["invalid_utf8"].as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for name in TOKENIZERS {
        let tokenizer = tokenizer(&format!("text/tokenizers/{name}"));
        let size = u32::try_from(tokenizer.vocabulary_size()).unwrap();
        let id_of = |byte: u8| {
            (0..size).find(|id| tokenizer.token_bytes(*id).unwrap() == [byte]).expect("a byte token")
        };
        for case in cases {
            let ids: Vec<u32> = bytes_of_hex(text(case, "bytes_hex")).into_iter().map(id_of).collect();
            assert_eq!(tokenizer.decode(&ids, false).unwrap(), text(case, "lossy"), "{name}, {case}");
            let mut stream = StreamDecoder::new(&tokenizer, false);
            let mut joined: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
            joined += &stream.flush();
            assert_eq!(joined, text(case, "lossy"), "{name}, {case}");
        }
    }
}

#[test]
fn special_tokens_can_be_read_as_text() {
    let tokenizer = tokenizer("text/tokenizers/byte-level-nfc-digits3");
    let im_end = tokenizer.special_id("<|im_end|>").expect("a special token");
    let text = "a<|im_end|>";
    assert!(tokenizer.encode(text, Special::Parse).unwrap().contains(&im_end));
    let as_text = tokenizer.encode(text, Special::AsText).unwrap();
    assert!(!as_text.contains(&im_end));
    assert_eq!(tokenizer.decode(&as_text, true).unwrap(), text);
}

#[test]
fn text_cases_of_the_model_fixtures() {
    for model in MODELS {
        let folder = format!("{model}/model");
        let tokenizer = tokenizer(&folder);
        let source = TemplateSource::from_folder(&fixture(&folder)).expect(model);
        let template = ChatTemplate::new(source, tokenizer.special_tokens().clone()).expect(model);
        let expected = json(&format!("{model}/expected.json"));
        let cases = expected["text_cases"].as_array().unwrap();
        assert_eq!(cases.len(), 2, "{model}");
        for case in cases {
            let name = format!("{model}, {}", text(case, "kind"));
            let encoded = if text(case, "kind") == "chat" {
                let rendered = render(&template, case["messages"].as_array().unwrap());
                assert_eq!(rendered, text(case, "rendered"), "{name}");
                tokenizer.encode(&rendered, Special::Parse)
            } else {
                tokenizer.encode_with_bos(text(case, "text"), Special::Parse)
            };
            assert_eq!(encoded.unwrap(), ids(&case["ids"]), "{name}");
            let greedy = ids(&case["greedy"]);
            check_decoding(&tokenizer, &greedy, false, text(case, "decoded"), &name);
            check_decoding(&tokenizer, &greedy, true, text(case, "decoded_skip_special"), &name);
        }
    }
}

fn render(template: &ChatTemplate, messages: &[Value]) -> String {
    let request = ChatRequest {
        messages,
        tools: None,
        documents: None,
        add_generation_prompt: true,
        variables: &Map::new(),
        now: CivilTime::from_unix_seconds(0),
    };
    template.render(&request).expect("a prompt")
}

#[test]
fn end_tokens_come_from_both_files() {
    assert_eq!(tokenizer("llama/model").end_ids(), [2]);
    assert!(tokenizer("llama/model").adds_bos());
    let tied = tokenizer("llama-f32-tied/model");
    assert_eq!(tied.end_ids(), [319, 317]);
    assert_eq!(tied.with_end_ids(&[5, 319]).end_ids(), [319, 317, 5]);
    assert!(!tokenizer("qwen2/model").adds_bos());
    assert_eq!(tokenizer("qwen2/model").bos_id(), Some(317));
}

#[test]
fn an_answer_after_a_prompt_keeps_its_first_space() {
    let tokenizer = tokenizer("text/tokenizers/byte-fallback");
    let ids = tokenizer.encode("a b", Special::Parse).unwrap();
    let all =
        |mut stream: StreamDecoder| -> String { ids.iter().map(|id| stream.push(*id).unwrap()).collect() };
    assert_eq!(all(StreamDecoder::new(&tokenizer, false)), "a b");
    assert_eq!(all(StreamDecoder::continuing(&tokenizer, false)), " a b");
}
