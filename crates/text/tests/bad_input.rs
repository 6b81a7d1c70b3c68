//! What is wrong is refused, with words that say what and where; nothing panics or runs away.

mod support;

use proptest::prelude::*;
use samebit_text::{
    ChatRequest, ChatTemplate, CivilTime, GgufVocabulary, Special, SpecialTokens, StreamDecoder,
    TemplateError, TemplateSource, Tokenizer, TokenizerFiles,
};
use serde_json::{Map, Value, json};
use support::fixture;

/// The error of a tokenizer file, which must mention all of `words`.
#[track_caller]
fn refused_json(tokenizer: &str, words: &[&str]) {
    let files =
        TokenizerFiles { folder: "dir", tokenizer: tokenizer.as_bytes(), ..TokenizerFiles::default() };
    let error = Tokenizer::from_json(&files).err().expect("must be refused").to_string();
    for word in words {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

/// A small byte-level tokenizer with `change` applied.
fn tokenizer_json(change: impl FnOnce(&mut Value)) -> String {
    let mut json = json!({
        "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": [["a", "b"]]},
    });
    change(&mut json);
    json.to_string()
}

#[test]
fn the_small_tokenizer_itself_works() {
    let text = tokenizer_json(|_| {});
    let files = TokenizerFiles { folder: "dir", tokenizer: text.as_bytes(), ..TokenizerFiles::default() };
    let tokenizer = Tokenizer::from_json(&files).unwrap();
    assert_eq!(tokenizer.encode("abc<s>", Special::Parse).unwrap(), [2, 3, 4]);
}

#[test]
fn malformed_tokenizer_files() {
    refused_json("", &["dir/tokenizer.json", "empty"]);
    refused_json(" \n", &["empty"]);
    refused_json("not json", &["dir/tokenizer.json", "line 1"]);
    refused_json("[]", &["dir/tokenizer.json"]);
    refused_json("{}", &["model"]);
    refused_json(&tokenizer_json(|t| t["model"]["type"] = json!("Magic")), &["model.type", "Magic", "BPE"]);
    refused_json(&tokenizer_json(|t| t["pre_tokenizer"]["type"] = json!("Magic")), &["tokenizer.json"]);
    refused_json(&tokenizer_json(|t| t["decoder"]["type"] = json!("CTC")), &["decoder", "CTC"]);
    refused_json(&tokenizer_json(|t| t["model"]["dropout"] = json!(0.1)), &["model.dropout", "null"]);
    refused_json(
        &tokenizer_json(|t| {
            t["pre_tokenizer"] =
                json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
        }),
        &["tokenizer.json"],
    );
}

#[test]
fn merges_and_ids_that_do_not_fit() {
    let merges = |merges: Value| tokenizer_json(|t| t["model"]["merges"] = merges);
    refused_json(&merges(json!([["a", "x"]])), &["merge 0", "\"x\""]);
    refused_json(&merges(json!([["a", "b"], ["c", "ab"]])), &["merge 1", "\"cab\"", "not in the vocabulary"]);
    refused_json(&merges(json!(["ab"])), &["merge 0", "space between"]);
    refused_json(&tokenizer_json(|t| t["model"]["vocab"]["c"] = json!(2)), &["both have id 2"]);
    refused_json(
        &tokenizer_json(|t| t["model"]["vocab"]["c"] = json!(4_000_000_000_u32)),
        &["4000000000", "too short"],
    );
    refused_json(&tokenizer_json(|t| t["added_tokens"][0]["id"] = json!(9)), &["<s>", "id 9", "4"]);
}

#[test]
fn small_files_that_contradict_the_tokenizer() {
    let text = tokenizer_json(|_| {});
    let build = |tokenizer_config: Option<&str>, generation_config: Option<&str>| {
        let files = TokenizerFiles {
            folder: "dir",
            tokenizer: text.as_bytes(),
            tokenizer_config: tokenizer_config.map(str::as_bytes),
            generation_config: generation_config.map(str::as_bytes),
            ..TokenizerFiles::default()
        };
        Tokenizer::from_json(&files)
            .map(|tokenizer| tokenizer.end_ids().to_vec())
            .map_err(|error| error.to_string())
    };
    assert_eq!(
        build(Some(r#"{"eos_token": {"content": "<s>"}}"#), Some(r#"{"eos_token_id": [4, 1]}"#)),
        Ok(vec![4, 1])
    );
    assert!(build(Some(r#"{"eos_token": "</s>"}"#), None).unwrap_err().contains("eos_token"));
    assert!(build(Some(r#"{"add_bos_token": true}"#), None).unwrap_err().contains("add_bos_token"));
    assert!(build(Some("{"), None).unwrap_err().contains("tokenizer_config.json"));
    assert!(build(None, Some(r#"{"eos_token_id": "x"}"#)).unwrap_err().contains("eos_token_id"));
}

#[test]
fn missing_folders_are_named() {
    let error = Tokenizer::from_folder(&fixture("nowhere")).err().unwrap().to_string();
    assert!(error.contains("nowhere") && error.contains("tokenizer.json"), "{error}");
    let error = TemplateSource::from_folder(&fixture("nowhere")).unwrap_err();
    assert!(matches!(error, TemplateError::Missing { .. }), "{error}");
}

/// A byte-level vocabulary of three tokens and one merge.
fn byte_level() -> GgufVocabulary {
    GgufVocabulary {
        file: "m.gguf".to_owned(),
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        tokens: ["a", "b", "ab", "<s>"].map(str::to_owned).to_vec(),
        token_types: vec![1, 1, 1, 3],
        merges: vec!["a b".to_owned()],
        ..GgufVocabulary::default()
    }
}

fn sentencepiece() -> GgufVocabulary {
    GgufVocabulary {
        model: "llama".to_owned(),
        scores: Some(vec![-1.0, -2.0, -0.5, 0.0]),
        merges: Vec::new(),
        ..byte_level()
    }
}

#[track_caller]
fn refused_gguf(mut vocabulary: GgufVocabulary, change: impl FnOnce(&mut GgufVocabulary), words: &[&str]) {
    change(&mut vocabulary);
    let error = Tokenizer::from_gguf(vocabulary).err().expect("must be refused").to_string();
    for word in words.iter().chain(&["m.gguf"]) {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn gguf_vocabularies_that_make_no_sense() {
    assert_eq!(Tokenizer::from_gguf(byte_level()).unwrap().encode("ab<s>", Special::Parse).unwrap(), [2, 3]);
    assert_eq!(Tokenizer::from_gguf(sentencepiece()).unwrap().vocabulary_size(), 4);
    refused_gguf(
        byte_level(),
        |v| v.model = "rwkv".to_owned(),
        &["tokenizer.ggml.model", "rwkv", "gpt2, llama"],
    );
    refused_gguf(
        byte_level(),
        |v| v.pre = Some("mystery".to_owned()),
        &["tokenizer.ggml.pre", "mystery", "smollm", "llama-bpe"],
    );
    refused_gguf(byte_level(), |v| v.pre = None, &["tokenizer.ggml.pre", "qwen2"]);
    refused_gguf(byte_level(), |v| v.tokens.clear(), &["tokenizer.ggml.tokens", "0 tokens"]);
    refused_gguf(byte_level(), |v| v.tokens[1] = "a".to_owned(), &["\"a\"", "twice", "id 0", "id 1"]);
    refused_gguf(byte_level(), |v| v.token_types = vec![1], &["token_type", "1 types for 4 tokens"]);
    refused_gguf(byte_level(), |v| v.merges.push("a x".to_owned()), &["merge 1", "a x"]);
    refused_gguf(byte_level(), |v| v.merges.push("b a".to_owned()), &["merge 1", "makes"]);
    refused_gguf(byte_level(), |v| v.merges.push("ab".to_owned()), &["merge 1", "space"]);
    refused_gguf(byte_level(), |v| v.bos_id = Some(4), &["bos_token_id", "4"]);
    refused_gguf(byte_level(), |v| v.eot_id = Some(u32::MAX), &["eot_token_id"]);
    refused_gguf(byte_level(), |v| v.add_bos = Some(true), &["bos_token_id", "add_bos_token"]);
    refused_gguf(sentencepiece(), |v| v.scores = None, &["scores", "missing"]);
    refused_gguf(sentencepiece(), |v| v.scores = Some(vec![0.0]), &["1 scores for 4 tokens"]);
    refused_gguf(sentencepiece(), |v| v.scores = Some(vec![0.0, f32::NAN, 0.0, 0.0]), &["score 1"]);
    refused_gguf(sentencepiece(), |v| v.token_types[0] = 6, &["token 0", "byte"]);
}

#[test]
fn every_pre_tokenizer_rule_compiles_and_works() {
    let unknown = GgufVocabulary { pre: Some("?".to_owned()), ..byte_level() };
    let message = Tokenizer::from_gguf(unknown).err().unwrap().to_string();
    let names = message.split("supported: ").nth(1).unwrap().split(". ").next().unwrap();
    let names: Vec<&str> = names.split(", ").collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let vocabulary = GgufVocabulary { pre: Some(name.to_owned()), ..byte_level() };
        let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(tokenizer.encode("ab", Special::Parse).unwrap(), [2], "{name}");
    }
}

#[test]
fn ids_without_a_token_are_errors_everywhere() {
    let tokenizer = Tokenizer::from_gguf(byte_level()).unwrap();
    assert!(tokenizer.decode(&[0, 4], false).unwrap_err().to_string().contains("token id 4"));
    let mut stream = StreamDecoder::new(&tokenizer, false);
    assert_eq!(stream.push(0).unwrap(), "a");
    assert!(stream.push(u32::MAX).is_err());
    assert_eq!(stream.push(1).unwrap(), "b");
    assert!(!tokenizer.is_special(99));
}

#[test]
fn endless_runs_are_refused_instead_of_being_cut_wrongly() {
    let vocabulary =
        GgufVocabulary { tokens: ["a", "Ġ", "ĠĠ"].map(str::to_owned).to_vec(), ..byte_level() };
    let vocabulary =
        GgufVocabulary { token_types: Vec::new(), merges: vec!["Ġ Ġ".to_owned()], ..vocabulary };
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    // The last space stands alone: the rule gives it to the word that follows.
    assert_eq!(tokenizer.encode(&(" ".repeat(200_001) + "a"), Special::AsText).unwrap().len(), 100_002);
    for text in [" ".repeat(300_000), "a".repeat(300_000)] {
        let error = tokenizer.encode(&text, Special::AsText).unwrap_err().to_string();
        assert!(error.contains("250000 bytes"), "{error}");
    }
}

fn render(template: &str, messages: &[Value]) -> Result<String, TemplateError> {
    let source = TemplateSource::new("test.jinja", template);
    let template = ChatTemplate::new(source, SpecialTokens::default())?;
    template.render(&ChatRequest {
        messages,
        tools: None,
        documents: None,
        add_generation_prompt: true,
        variables: &Map::new(),
        now: CivilTime::from_unix_seconds(0),
    })
}

#[track_caller]
fn template_refused(template: &str, words: &[&str]) {
    let messages = [json!({"role": "user", "content": "hi"}), json!({"role": "tool", "content": null})];
    let error = render(template, &messages).expect_err(template).to_string();
    for word in words.iter().chain(&["test.jinja"]) {
        assert!(error.contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn malformed_templates_name_the_line() {
    template_refused("a\nb{% if %}", &["malformed", "line 2"]);
    template_refused("{{ 'a' ", &["malformed", "line 1"]);
    template_refused("{% for m in messages %}", &["malformed"]);
    template_refused("{% magic %}", &["malformed", "magic"]);
    template_refused(&"{% if true %}".repeat(9_000), &["malformed"]);
    template_refused(&format!("{{{{ {}1 }}}}", "(".repeat(9_000)), &["malformed"]);
}

#[test]
fn failing_templates_name_the_line_and_the_message() {
    template_refused("\n{{ nothing.at.all }}", &["line 2"]);
    template_refused(
        "{% for m in messages %}\n{{ 'x' + m.content }}{% endfor %}",
        &["line 2", "message 1", "role \"tool\""],
    );
    template_refused("{{ raise_exception('no tools here') }}", &["refuses", "no tools here"]);
    template_refused("{{ strftime_now('%Q') }}", &["%Q"]);
    template_refused("{{ messages | magic }}", &["magic"]);
    template_refused("{{ missing | tojson }}", &["tojson"]);
}

#[test]
fn templates_that_do_not_end_or_grow_without_bound_are_stopped() {
    let long = &["ran for too long"];
    template_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", long);
    template_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", &["test.jinja"]);
    template_refused(
        "{% set n = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        long,
    );
    template_refused(
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}",
        long,
    );
    template_refused("{{ 'a' * 99999999999 }}", &["test.jinja"]);
    template_refused("{{ '{:>99999999999}'.format(1) }}", &["width"]);
}

#[test]
fn chains_and_nests_do_not_exhaust_the_stack() {
    for link in ["1+", "not ", "-", "2**", "'a'~", "1 and ", "1 if 1 else "] {
        let expression = format!("{{{{ {}1 }}}}", link.repeat((120 << 10) / link.len()));
        // Whether the value can be computed does not matter here.
        let _ = render(&expression, &[]);
    }
    let _ = render(&format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(10_000)), &[]);
    template_refused(&"x".repeat(1 << 20), &["test.jinja", "1048576 bytes", "at most 131072"]);
    let nest = "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(99999) %}{% set n.a = [n.a] %}\
                {% set n.b = [n.b] %}{% endfor %}{{ n.a == n.b }}";
    let _ = render(nest, &[json!({"role": "user", "content": "hi"})]);
}

#[test]
fn values_of_exponential_size_are_stopped() {
    let tree = "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}\
                {% set n.b = [n.b, n.b] %}{% endfor %}";
    template_refused(&format!("{tree}{{{{ n.a }}}}"), &["test.jinja"]);
    template_refused(&format!("{tree}{{{{ n.a == n.b }}}}"), &["test.jinja", "seconds"]);
}

#[test]
fn messages_must_be_objects() {
    let error = render("{{ messages[0].role }}", &[json!("hello")]).unwrap_err().to_string();
    assert!(error.contains("message 0") && error.contains("hello"), "{error}");
}

proptest! {
    /// Damaged files are refused or work; they never panic.
    #[test]
    fn damaged_tokenizer_files_do_not_panic(at in 0usize..6_000, with in any::<u8>(), cut in 0usize..9_000) {
        let mut bytes = std::fs::read(fixture("text/tokenizers/byte-fallback/tokenizer.json")).unwrap();
        let index = at % bytes.len();
        bytes[index] = with;
        bytes.truncate(cut.max(1));
        let files = TokenizerFiles { folder: "dir", tokenizer: &bytes, ..TokenizerFiles::default() };
        if let Ok(tokenizer) = Tokenizer::from_json(&files) {
            let _ = tokenizer.encode("A text, 37 \u{e9}<s>", Special::Parse);
        }
    }

    /// So are damaged templates.
    #[test]
    fn damaged_templates_do_not_panic(at in 0usize..5_000, with in "[{}%\\-|'(\\[]{1,3}") {
        let mut template = support::read("real/chat-templates/templates/qwen3.jinja");
        let at = at % template.len();
        prop_assume!(template.is_char_boundary(at));
        template.insert_str(at, &with);
        let _ = render(&template, &[json!({"role": "user", "content": "hi"})]);
    }
}
