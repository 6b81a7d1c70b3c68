//! Structured output and penalties with real tokenizers and random logits: answers are what was asked for, and every row
//! depends on the tokens alone.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use samebit_arith::sampling::argmax;
use samebit_engine::{
    Constraint, ConstraintCompiler, ConstraintSpec, EngineError, LogitBias, LogitOptions, LogitsPipeline,
};
use samebit_text::Tokenizer;
use serde_json::{Value, json};

/// A tokenizer with its compiler, for a model somewhat wider than the tokenizer.
struct Text {
    tokenizer: Tokenizer,
    compiler: ConstraintCompiler,
    vocabulary: usize,
}

impl Text {
    fn load(fixture: &str) -> Self {
        let folder: PathBuf =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture).join("model");
        let tokenizer = Tokenizer::from_folder(&folder).unwrap();
        assert!(!tokenizer.end_ids().is_empty(), "{fixture}");
        let vocabulary = tokenizer.vocabulary_size() + 37;
        let compiler = ConstraintCompiler::new(&tokenizer, vocabulary).unwrap();
        Self { tokenizer, compiler, vocabulary }
    }

    fn compile(&self, spec: &ConstraintSpec) -> Constraint {
        self.compiler.compile(spec).unwrap_or_else(|error| panic!("{error}"))
    }

    fn refusal(&self, spec: &ConstraintSpec) -> String {
        self.compiler.compile(spec).expect_err("should be refused").to_string()
    }

    /// The tokens of an answer to random logits, up to and without its end token.
    fn answer(&self, spec: &ConstraintSpec, seed: u64) -> Vec<u32> {
        self.answer_with(LogitOptions::default(), spec, seed)
    }

    fn answer_with(&self, options: LogitOptions, spec: &ConstraintSpec, seed: u64) -> Vec<u32> {
        let end_ids = self.tokenizer.end_ids();
        let mut pipeline = LogitsPipeline::new(options, Some(self.compile(spec)), &[], end_ids);
        let mut ids = Vec::new();
        loop {
            let mut logits = self.logits(seed, ids.len());
            pipeline.apply(&mut logits, &ids).unwrap();
            let id = argmax(&logits).unwrap();
            if pipeline.ends(id) {
                return ids;
            }
            ids.push(id);
            assert!(ids.len() < 2000, "no end: {:?}", self.text(&ids));
        }
    }

    fn text(&self, ids: &[u32]) -> String {
        // An answer ends on a whole character, so nothing needs to be replaced.
        String::from_utf8(self.tokenizer.decode_bytes(ids, false).unwrap()).unwrap()
    }

    /// Random logits that like to close what is open.
    fn logits(&self, seed: u64, step: usize) -> Vec<f32> {
        let mut logits = random_row(seed, step as u64, self.vocabulary);
        for (id, logit) in (0..).zip(&mut logits) {
            let closing =
                self.tokenizer.token_bytes(id).is_ok_and(|bytes| matches!(bytes, b"\"" | b"}" | b"]" | b","));
            if closing || self.tokenizer.end_ids().contains(&id) {
                *logit += 3.0;
            }
        }
        logits
    }
}

/// A byte-level and a SentencePiece vocabulary.
fn texts() -> [&'static Text; 2] {
    static TEXTS: OnceLock<[Text; 2]> = OnceLock::new();
    let [a, b] = TEXTS.get_or_init(|| [Text::load("qwen3"), Text::load("llama")]);
    [a, b]
}

/// Numbers from -5 to 5 out of a generator of 64 bits (splitmix).
fn random_row(seed: u64, step: u64, length: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step.wrapping_mul(0xD1B5_4A32_D192_ED03);
    (0..length)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut x = state;
            x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((x ^ (x >> 31)) >> 40) as f32 / 16_777_216.0 * 10.0 - 5.0
        })
        .collect()
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 12 },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "kind": { "enum": ["cat", "dog", null, 7] },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 4 }, "minItems": 1, "maxItems": 3 },
            "home": { "$ref": "#/$defs/place" },
            "either": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] }
        },
        "required": ["name", "age", "tags", "home"],
        "additionalProperties": false,
        "$defs": {
            "place": {
                "type": "object",
                "properties": { "zip": { "type": "string", "pattern": "^[0-9]{5}$" } },
                "required": ["zip"],
                "additionalProperties": false
            }
        }
    })
}

/// Whether `value` is what `schema` describes, for the keywords that these tests use.
fn valid(value: &Value, schema: &Value, root: &Value) -> bool {
    if let Some(name) = schema["$ref"].as_str() {
        return valid(value, root.pointer(name.strip_prefix('#').unwrap()).unwrap(), root);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return options.iter().any(|option| valid(value, option, root));
    }
    if let Some(allowed) = schema["enum"].as_array() {
        return allowed.contains(value);
    }
    let bound = |key: &str, default: i64| schema[key].as_i64().unwrap_or(default);
    let within = |found: i64, least: &str, most: &str| {
        (bound(least, i64::MIN)..=bound(most, i64::MAX)).contains(&found)
    };
    match schema["type"].as_str().unwrap() {
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.as_i64().is_some_and(|number| within(number, "minimum", "maximum")),
        "string" => value.as_str().is_some_and(|text| {
            let matches = schema["pattern"].as_str().is_none_or(|pattern| matches(pattern, text));
            matches && within(text.chars().count() as i64, "minLength", "maxLength")
        }),
        "array" => value.as_array().is_some_and(|items| {
            within(items.len() as i64, "minItems", "maxItems")
                && items.iter().all(|item| valid(item, &schema["items"], root))
        }),
        "object" => value.as_object().is_some_and(|fields| {
            let required = schema["required"].as_array().unwrap();
            required.iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                && fields.iter().all(|(name, field)| {
                    schema["properties"].get(name).is_some_and(|inner| valid(field, inner, root))
                })
        }),
        other => panic!("{other}"),
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).unwrap().is_match(text)
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn answers_under_a_schema_parse_and_are_valid() {
    let schema = person();
    let spec = ConstraintSpec::JsonSchema(schema.clone());
    let mut kinds = std::collections::HashSet::new();
    for text in texts() {
        for seed in 0..40 {
            let answer = text.text(&text.answer(&spec, seed));
            let value: Value =
                serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer:?}: {error}"));
            assert!(valid(&value, &schema, &schema), "{answer}");
            assert_eq!(answer, answer.trim());
            kinds.insert(value.get("kind").map(Value::to_string));
        }
    }
    // The test's own check has to be able to fail, and the answers have to differ.
    assert!(!valid(
        &json!({ "name": "x", "age": 151, "tags": ["a"], "home": { "zip": "1" } }),
        &schema,
        &schema
    ));
    assert!(kinds.len() > 2, "{kinds:?}");
}

#[test]
fn answers_that_are_any_object_parse() {
    for text in texts() {
        for seed in 0..10 {
            let answer = text.text(&text.answer(&ConstraintSpec::JsonObject, seed));
            let value: Value =
                serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer:?}: {error}"));
            assert!(value.is_object(), "{answer}");
        }
    }
}

#[test]
fn white_space_in_json_is_bounded() {
    let text = texts()[0];
    let schema = json!({ "type": "array", "items": { "type": "integer" } });
    let follows = |answer: &str| {
        let mut constraint = text.compile(&ConstraintSpec::JsonSchema(schema.clone()));
        let ids = text.tokenizer.encode(answer, samebit_text::Special::AsText).unwrap();
        ids.iter().all(|id| constraint.accept(*id).is_ok()) && constraint.is_finished()
    };
    for answer in ["[1,2]", "[1, 2]", "[ 1 , 2 ]", "[\n    1,\n    2\n]", &format!("[\n{}1]", " ".repeat(40))]
    {
        assert!(follows(answer), "{answer:?}");
    }
    for answer in ["[1,  2]", " [1]", "[1] ", "[1,\t2]", "[\n\n1]", &format!("[\n{}1]", " ".repeat(41))] {
        assert!(!follows(answer), "{answer:?}");
    }
}

#[test]
fn choices_are_one_of_the_choices() {
    let choices = strings(&["yes", "yes, sir", "no", "naïve \"quote\" \\ / \n\t", "日本", "😀"]);
    let spec = ConstraintSpec::Choice(choices.clone());
    let mut seen = std::collections::HashSet::new();
    for text in texts() {
        for seed in 0..60 {
            let answer = text.text(&text.answer(&spec, seed));
            assert!(choices.contains(&answer), "{answer:?}");
            seen.insert(answer);
        }
    }
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn answers_match_their_expression() {
    let expressions = [
        r"[0-9]{4}-(0[1-9]|1[0-2])",
        r"(ab|cd)+/\d{2,3}",
        r"[^x\n]{3}é?",
        r"\p{Lu}\w{0,5}(\.|!)",
        "a|ab|abc",
    ];
    for expression in expressions {
        let spec = ConstraintSpec::Regex(expression.to_owned());
        for text in texts() {
            for seed in 0..20 {
                let answer = text.text(&text.answer(&spec, seed));
                assert!(matches(&format!("^(?:{expression})$"), &answer), "{expression}: {answer:?}");
            }
        }
    }
}

#[test]
fn answers_follow_their_grammar() {
    let sum = "start: term (\"+\" term)*\nterm: NUMBER | \"(\" start \")\"\nNUMBER: /[0-9]{1,3}/\n";
    let spec = ConstraintSpec::Grammar(sum.to_owned());
    for text in texts() {
        for seed in 0..10 {
            // Recursion would rarely end by chance.
            let open = text.tokenizer.encode("(", samebit_text::Special::AsText).unwrap();
            let bias = LogitBias(open.iter().map(|id| (*id, -4.0)).collect());
            let options = LogitOptions { bias, ..LogitOptions::default() };
            let answer = text.text(&text.answer_with(options, &spec, seed));
            assert!(matches(r"^[0-9+()]+$", &answer), "{answer}");
            assert_eq!(answer.matches('(').count(), answer.matches(')').count(), "{answer}");
        }
    }
}

#[test]
fn hostile_demands_are_refused_by_name_and_soon() {
    let schema = |value: Value| ConstraintSpec::JsonSchema(value);
    let regex = |text: &str| ConstraintSpec::Regex(text.to_owned());
    let grammar = |text: &str| ConstraintSpec::Grammar(text.to_owned());
    let hostile = [
        ("not", schema(json!({ "type": "object", "not": {} }))),
        ("oneOf", schema(json!({ "oneOf": [{ "type": "object" }, { "maxProperties": 3 }] }))),
        ("type", schema(json!({ "type": "strange" }))),
        ("http", schema(json!({ "$ref": "http://example.com/schema" }))),
        ("nowhere", schema(json!({ "$ref": "#/nowhere" }))),
        ("x-guidance", schema(json!({ "x-guidance": { "lenient": true }, "not": {} }))),
        ("json-schema", schema(json!({ "type": "string", "pattern": "(?=a)b" }))),
        ("json-schema", schema(json!({ "type": "integer", "minimum": 5, "maximum": 4 }))),
        ("json-schema", schema(json!({ "allOf": [{ "type": "string" }, { "type": "null" }] }))),
        ("json-schema", schema(json!({ "type": "string", "minLength": u64::MAX }))),
        ("regex", regex("(")),
        ("regex", regex(r"(a)\1")),
        ("regex", regex("[^\\s\\S]")),
        ("regex", regex(&format!("{}x", "(a|b)?".repeat(20_000)))),
        ("grammar", grammar("start: other")),
        ("grammar", grammar("start: start \"a\"")),
        ("grammar", grammar("start: \"a")),
        ("grammar", grammar("rule: \"a\"")),
        ("grammar", grammar("root ::= \"a\"")),
    ];
    for text in texts() {
        for (words, spec) in &hostile {
            let since = Instant::now();
            let error = text.refusal(spec);
            let time = since.elapsed();
            assert!(error.starts_with(spec.name()) && error.contains(words), "{words}: {error}");
            assert!(error.len() < 1000 && error.contains("expected"), "{error}");
            assert!(time < Duration::from_secs(10), "{time:?}: {error}");
        }
    }
}

/// Twelve levels of rules or terminals, each the one below sixteen times.
fn doubling(name: &str) -> String {
    let level = |index: usize| format!("{name}{index}: {}\n", format!("{name}{} ", index + 1).repeat(16));
    let levels: String = (0..12).map(level).collect();
    format!("start: {name}0\n{levels}{name}12: \"a\" | \"b\"?\n")
}

#[test]
fn heavy_demands_are_refused_or_followed_soon() {
    let schema = |value: Value| ConstraintSpec::JsonSchema(value);
    let regex = |text: &str| ConstraintSpec::Regex(text.to_owned());
    let properties: serde_json::Map<String, Value> = (0..1400)
        .map(|index| (format!("p{index}"), json!({ "type": "string", "maxLength": 9999 })))
        .collect();
    let ladder: serde_json::Map<String, Value> = (0..30)
        .map(|index| {
            let below = json!({ "$ref": format!("#/$defs/d{}", index + 1) });
            (format!("d{index}"), json!({ "allOf": [below, below], "anyOf": [below, below] }))
        })
        .chain([("d30".to_owned(), json!({ "type": "object" }))])
        .collect();
    let heavy = [
        ("properties", schema(json!({ "type": "object", "properties": properties }))),
        ("ladder", schema(json!({ "$ref": "#/$defs/d0", "$defs": ladder }))),
        ("pattern", schema(json!({ "type": "string", "pattern": "((a{1,500}){1,500}b?){1,500}" }))),
        ("powers", regex("(((((a{0,999}){0,999}){0,999}){0,999}){0,999}){0,999}")),
        ("optional", regex(&format!("{}x", "(a|b)?".repeat(600)))),
        ("counters", regex("(.*a.{9999}|.*b.{77}){300}")),
        ("subsets", regex("(.*[a-m].{30}){3}(.|\n)*")),
        ("classes", regex(&r"\p{L}\p{N}?".repeat(300))),
        ("terminals", ConstraintSpec::Grammar(doubling("A"))),
        ("rules", ConstraintSpec::Grammar(doubling("a"))),
        (
            "ambiguous",
            ConstraintSpec::Grammar("start: start start | \"a\" | \"b\" | start start start".to_owned()),
        ),
        ("choices", ConstraintSpec::Choice((0..4096).map(|index| format!("choice {index:07}")).collect())),
    ];
    let text = texts()[0];
    for (name, spec) in &heavy {
        let since = Instant::now();
        let compiled = text.compiler.compile(spec);
        let compiling = since.elapsed();
        let mut slowest = Duration::ZERO;
        let mut end = String::new();
        match compiled {
            Err(error) => end = error.to_string(),
            Ok(constraint) => {
                let options = LogitOptions::default();
                let mut pipeline =
                    LogitsPipeline::new(options, Some(constraint), &[], text.tokenizer.end_ids());
                let mut ids = Vec::new();
                while ids.len() < 40 && end.is_empty() {
                    let mut logits = random_row(7, ids.len() as u64, text.vocabulary);
                    let since = Instant::now();
                    let applied = pipeline.apply(&mut logits, &ids);
                    slowest = slowest.max(since.elapsed());
                    match applied {
                        Err(error) => end = error.to_string(),
                        Ok(()) => ids.push(argmax(&logits).unwrap()),
                    }
                }
            }
        }
        assert!(end.is_empty() || end.contains("expected"), "{name}: {end}");
        assert!(compiling.max(slowest) < Duration::from_secs(10), "{name}: {compiling:?}, {slowest:?}");
    }
}

#[test]
fn control_tokens_and_ids_without_a_token_are_never_part_of_a_text() {
    for text in texts() {
        let mut constraint = text.compile(&ConstraintSpec::Regex("(?s:.)*".to_owned()));
        let end_ids = text.tokenizer.end_ids();
        let mask = constraint.mask().unwrap().to_vec();
        let allowed = |id: u32| mask.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1);
        for id in 0..text.vocabulary as u32 + 64 {
            let spells = text.tokenizer.token_bytes(id).is_ok_and(|bytes| !bytes.is_empty());
            let control = text.tokenizer.is_special(id);
            assert!(!allowed(id) || end_ids.contains(&id) || (spells && !control), "{id}");
            assert_eq!(allowed(id), constraint.clone().accept(id).is_ok(), "{id}");
        }
        assert!(end_ids.iter().all(|id| allowed(*id)) && allowed(70));
    }
}

#[test]
fn an_end_token_is_allowed_where_the_text_is_complete_and_only_it_follows() {
    let text = texts()[0];
    let end = text.tokenizer.end_ids()[0];
    let ids = |words: &str| text.tokenizer.encode(words, samebit_text::Special::AsText).unwrap();
    let mut constraint = text.compile(&ConstraintSpec::Choice(strings(&["ja", "jaja"])));
    assert!(constraint.accept(end).is_err() && !constraint.is_finished());
    ids("ja").iter().for_each(|id| constraint.accept(*id).unwrap());
    assert!(!constraint.is_finished());
    let mut longer = constraint.clone();
    constraint.accept(end).unwrap();
    assert!(constraint.is_finished() && constraint.accept(ids("j")[0]).is_err());
    constraint.accept(end).unwrap();
    constraint.rollback(2).unwrap();
    assert!(!constraint.is_finished());
    for mut constraint in [constraint, longer.clone()] {
        ids("ja").iter().for_each(|id| constraint.accept(*id).unwrap());
        assert!(constraint.is_finished());
        let mask = constraint.mask().unwrap();
        let ends = text.tokenizer.end_ids().len() as u32;
        assert_eq!(mask.iter().map(|word| word.count_ones()).sum::<u32>(), ends);
        constraint.rollback(100).unwrap();
        assert_eq!((constraint.taken(), constraint.is_finished()), (0, false));
    }
    assert!(longer.accept(end).is_ok());
}

#[test]
fn contradictions_are_named() {
    let text = texts()[0];
    let end_ids = text.tokenizer.end_ids();
    let choice = ConstraintSpec::Choice(strings(&["ja"]));
    let options = LogitOptions { min_tokens: 9, ..LogitOptions::default() };
    let mut pipeline = LogitsPipeline::new(options, Some(text.compile(&choice)), &[], end_ids);
    let ids = text.tokenizer.encode("ja", samebit_text::Special::AsText).unwrap();
    let logits = vec![0.0; text.vocabulary];
    let error = pipeline.shaped(&logits, &ids).unwrap_err();
    assert!(matches!(error, EngineError::Option { option: "the choice of tokens", .. }), "{error}");
    assert!(error.to_string().contains("min-tokens forbids"), "{error}");
    // The failure is no end: fewer tokens still have a choice.
    assert!(pipeline.shaped(&logits, &[]).is_ok());
    let error = pipeline.shaped(&logits, &[ids[0], ids[0]]).unwrap_err().to_string();
    assert!(error.contains("next token"), "{error}");
}

/// Cases of a property; failures need no file, since they are printed.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(48))]
    #[test]
    fn a_mask_depends_on_the_tokens_alone(
        which in 0usize..5,
        seed in any::<u64>(),
        back in proptest::collection::vec(0usize..12, 60),
    ) {
        let specs = [
            ConstraintSpec::JsonSchema(person()),
            ConstraintSpec::JsonObject,
            ConstraintSpec::Regex(r"([a-e]{1,4}\.)*(日本|😀)?".to_owned()),
            ConstraintSpec::Choice(strings(&["a", "ab", "abc", "日本"])),
            ConstraintSpec::Grammar("start: \"[\" (start (\",\" start)*)? \"]\"".to_owned()),
        ];
        let spec = &specs[which];
        for text in texts() {
            let mut kept = text.compile(spec);
            let mut ids: Vec<u32> = Vec::new();
            for (step, back) in back.iter().enumerate() {
                // From time to time a draft is taken back.
                if *back < 5 {
                    let back = (*back).min(ids.len());
                    kept.rollback(back).unwrap();
                    ids.truncate(ids.len() - back);
                }
                let mut copy = kept.clone();
                let mask = kept.mask().unwrap().to_vec();
                prop_assert_eq!(copy.mask().unwrap(), &mask[..]);
                let mut fresh = text.compile(spec);
                for id in &ids {
                    fresh.accept(*id).unwrap();
                }
                prop_assert_eq!(fresh.is_finished(), kept.is_finished());
                prop_assert_eq!(fresh.mask().unwrap(), &mask[..], "after {:?}", text.tokenizer.decode(&ids, false));
                let mut logits = text.logits(seed, step);
                samebit_arith::sampling::adjust::keep_allowed(&mut logits, &mask);
                let id = argmax(&logits).unwrap();
                // What a clone goes on to do changes nothing here.
                copy.accept(id).unwrap();
                copy.mask().unwrap();
                kept.accept(id).unwrap();
                ids.push(id);
            }
        }
    }
}
