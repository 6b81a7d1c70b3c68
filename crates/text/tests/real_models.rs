//! The tokenizers inside two real GGUF files against what their original tokenizers give.
//!
//! The files are those that `samebit pull` fetches; a test fails if its file is not there.

mod support;

use samebit_checkpoint::{MappedFile, Metadata, gguf};
use samebit_text::{GgufVocabulary, Special, StreamDecoder, Tokenizer};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::OnceLock;
use support::{ids, json, json_lines, text};

struct RealModel {
    name: &'static str,
    fixtures: &'static str,
    file: &'static str,
    tokenizer: OnceLock<Tokenizer>,
}

static SMOLLM2: RealModel = RealModel {
    name: "smollm2-135m",
    fixtures: "real/smollm2-135m-q4_1",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    tokenizer: OnceLock::new(),
};
static GEMMA3: RealModel = RealModel {
    name: "gemma-3-270m",
    fixtures: "real/gemma-3-270m-q4_k_m",
    file: "gemma-3-270m-q4_k_m.gguf",
    tokenizer: OnceLock::new(),
};

impl RealModel {
    fn path(&self) -> PathBuf {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let path = cache.or(home).expect("HOME or XDG_CACHE_HOME").join("samebit/models").join(self.file);
        assert!(path.exists(), "{} is missing; fetch it with `samebit pull {}`", path.display(), self.name);
        path
    }

    fn vocabulary(&self) -> GgufVocabulary {
        let path = self.path();
        let file = MappedFile::open(&path).expect("map the model file");
        let header = gguf::parse(&path, file.bytes()).expect("a GGUF header");
        vocabulary_of(self.file, &header.metadata)
    }

    fn tokenizer(&self) -> &Tokenizer {
        self.tokenizer.get_or_init(|| Tokenizer::from_gguf(self.vocabulary()).expect("a tokenizer"))
    }

    fn rows(&self, file: &str) -> Vec<Value> {
        json_lines(&format!("{}/{file}", self.fixtures))
    }
}

fn vocabulary_of(file: &str, metadata: &Metadata) -> GgufVocabulary {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let string = |name: &str| metadata.optional::<&str>(name).expect("a string").map(str::to_owned);
    let strings = |name: &str| -> Vec<String> {
        let list = metadata.get(name).map(|_| metadata.strings(name).expect("texts"));
        list.map(|list| list.iter().map(str::to_owned).collect()).unwrap_or_default()
    };
    let id = |name: &str| metadata.optional::<u32>(&key(name)).expect("an id");
    let flag = |name: &str| metadata.optional::<bool>(&key(name)).expect("a flag");
    let types = metadata.optional::<Vec<i64>>(&key("token_type")).expect("integers").unwrap_or_default();
    GgufVocabulary {
        file: file.to_owned(),
        model: string(&key("model")).expect("a tokenizer model"),
        pre: string(&key("pre")),
        tokens: strings(&key("tokens")),
        scores: metadata.optional::<&[f32]>(&key("scores")).expect("floats").map(<[f32]>::to_vec),
        token_types: types.iter().map(|kind| i32::try_from(*kind).expect("a token type")).collect(),
        merges: strings(&key("merges")),
        add_space_prefix: flag("add_space_prefix"),
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        bos_id: id("bos_token_id"),
        eos_id: id("eos_token_id"),
        unk_id: id("unknown_token_id"),
        pad_id: id("padding_token_id"),
        eot_id: id("eot_token_id"),
        eom_id: id("eom_token_id"),
        chat_template: string("tokenizer.chat_template"),
    }
}

/// Checks every string in both modes. `plain_as_original` names the strings whose plain reading is the original
/// tokenizer's (`plain_hf`), where `plain` is that of a program which reads them otherwise.
fn check_encoding(model: &RealModel, plain_as_original: &[&str]) {
    let rows = model.rows("tokenizer.jsonl");
    assert_eq!(rows.len(), 329);
    for row in &rows {
        let name = text(row, "name");
        let plain = if plain_as_original.contains(&name) { &row["plain_hf"] } else { &row["plain"] };
        let encode = |special| model.tokenizer().encode(text(row, "text"), special).expect("ids");
        assert_eq!(encode(Special::Parse), ids(&row["special"]), "{name}, special tokens parsed");
        assert_eq!(encode(Special::AsText), ids(plain), "{name}, special tokens as text");
    }
}

#[test]
fn smollm2_encodes_every_string() {
    check_encoding(&SMOLLM2, &[]);
}

#[test]
fn gemma3_encodes_every_string() {
    // U+2581 in a text, and the HTML tag `</s>`, which is an ordinary token of this vocabulary. In the file the
    // `<unusedN>` of special-30 to -32 are control tokens, so they are text in plain mode, as `plain` has it.
    check_encoding(&GEMMA3, &["odd-19", "odd-20", "odd-21", "special-39"]);
}

#[test]
fn every_id_list_decodes_to_its_bytes() {
    for (model, cases) in [(&SMOLLM2, 345), (&GEMMA3, 348)] {
        let rows = model.rows("detokenize.jsonl");
        assert_eq!(rows.len(), cases);
        for row in &rows {
            let (name, ids) = (text(row, "name"), ids(&row["ids"]));
            let bytes = model.tokenizer().decode_bytes(&ids, false).expect("bytes");
            assert_eq!(bytes, support::bytes_of_hex(text(row, "bytes_hex")), "{name}");
            assert_eq!(model.tokenizer().decode(&ids, false).expect("text"), text(row, "text"), "{name}");
            let skipped = row.get("text_without_control").unwrap_or(&row["text"]);
            assert_eq!(
                model.tokenizer().decode(&ids, true).expect("text"),
                skipped.as_str().unwrap(),
                "{name}"
            );
        }
    }
}

#[test]
fn streams_send_each_character_as_soon_as_it_is_complete() {
    for (model, cases) in [(&SMOLLM2, 89), (&GEMMA3, 41)] {
        let rows = model.rows("streaming.jsonl");
        assert_eq!(rows.len(), cases);
        for row in &rows {
            let mut stream = StreamDecoder::new(model.tokenizer(), false);
            let chunks: Vec<String> =
                ids(&row["ids"]).into_iter().map(|id| stream.push(id).expect("a chunk")).collect();
            assert_eq!(Value::from(chunks), row["chunks"], "{}", text(row, "name"));
            assert_eq!(stream.flush(), text(row, "flush"), "{}", text(row, "name"));
        }
    }
}

#[test]
fn the_bytes_of_every_token_are_right() {
    for (model, size) in [(&SMOLLM2, 49_152), (&GEMMA3, 262_144)] {
        assert_eq!(model.tokenizer().vocabulary_size(), size);
        let mut hash = Sha256::new();
        for id in 0..u32::try_from(size).unwrap() {
            let bytes = model.tokenizer().token_bytes(id).expect("a token");
            hash.update(u32::try_from(bytes.len()).unwrap().to_le_bytes());
            hash.update(bytes);
        }
        let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            digest,
            text(&json(&format!("{}/tokenizer-summary.json", model.fixtures)), "pieces_sha256")
        );
    }
}

#[test]
fn begin_and_end_tokens_are_those_of_the_files() {
    let smollm2 = SMOLLM2.tokenizer();
    assert!(!smollm2.adds_bos());
    assert_eq!(smollm2.encode_with_bos("a", Special::Parse).unwrap(), [81]);
    assert_eq!(smollm2.end_ids(), [2, 0]);
    assert_eq!(smollm2.special_tokens().eos.as_deref(), Some("<|im_end|>"));
    assert!(smollm2.is_special(2) && !smollm2.is_special(81));

    let gemma3 = GEMMA3.tokenizer();
    assert!(gemma3.adds_bos());
    assert_eq!(gemma3.encode_with_bos("a", Special::Parse).unwrap(), [2, 236_746]);
    assert_eq!(gemma3.end_ids(), [1, 106]);
    assert_eq!(gemma3.special_id("<end_of_turn>"), Some(106));
    assert!(!gemma3.is_special(212), "</s> is an ordinary token");
}

#[test]
fn ids_outside_the_vocabulary_are_errors() {
    for model in [&SMOLLM2, &GEMMA3] {
        for id in [u32::try_from(model.tokenizer().vocabulary_size()).unwrap(), u32::MAX] {
            assert!(model.tokenizer().token_bytes(id).is_err());
            let error = model.tokenizer().decode(&[0, id], false).unwrap_err().to_string();
            assert!(error.contains(&id.to_string()), "{error}");
        }
    }
}
