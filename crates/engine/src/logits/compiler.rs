//! From demands to constraints, for one tokenizer.

use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use samebit_text::Tokenizer;
use serde_json::{Value, json};

use super::{Constraint, ConstraintSpec, refused};
use crate::EngineError;

/// White space between two tokens of JSON: see [`ConstraintSpec`].
const JSON_SPACE: &str = "( |\n {0,40})";

/// Overrides how llguidance reads a schema. Ours alone: in a request it would loosen what is enforced.
const SCHEMA_OPTIONS: &str = "x-guidance";

/// What one constraint may cost. The library counts work, not time, so the same demand is refused on every machine.
fn limits() -> ParserLimits {
    ParserLimits {
        // Each state of the lexer takes 1 to 2 KB; usual schemas need a few thousand.
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        // Errors go to whoever asked, who knows the grammar and need not see the parser.
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

/// Compiles demands for one tokenizer. It holds the tree of all tokens, so there is one for each model, shared.
pub struct ConstraintCompiler {
    factory: ParserFactory,
    end_ids: Arc<[u32]>,
}

impl std::fmt::Debug for ConstraintCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConstraintCompiler").field("end_ids", &self.end_ids).finish_non_exhaustive()
    }
}

impl ConstraintCompiler {
    /// A compiler for a model with `vocabulary` logits whose ids `tokenizer` spells, and whose answers end with one of
    /// the tokenizer's end tokens.
    ///
    /// Text is spelled by ordinary tokens only: control tokens are never part of it, nor are ids without a token, which a
    /// model wider than its tokenizer has.
    ///
    /// # Errors
    /// When the tree of tokens cannot be built.
    pub fn new(tokenizer: &Tokenizer, vocabulary: usize) -> Result<Self, EngineError> {
        let failed = |problem: String| refused("the tokenizer", problem, "one that constraints can use");
        let size =
            u32::try_from(vocabulary).map_err(|_| failed(format!("too large, with {vocabulary} ids")))?;
        let end_ids: Vec<u32> = tokenizer.end_ids().iter().copied().filter(|id| *id < size).collect();
        let words: Vec<Vec<u8>> = (0..size).map(|id| spelling(tokenizer, id)).collect();
        let longest = words.iter().map(Vec::len).max().unwrap_or(0);
        if longest > usize::from(u16::MAX) {
            return Err(failed(format!("one with a token of {longest} bytes")));
        }
        let mut trie = TokTrie::from(&TokRxInfo::new(size, INVALID_TOKEN), &words);
        if !end_ids.is_empty() {
            trie = trie.with_eos_tokens(&end_ids);
        }
        // An approximate environment spells nothing itself, so the library never forces one spelling of a text: every
        // sequence of tokens that spells an allowed text is allowed.
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory =
            ParserFactory::new_simple(&environment).map_err(|error| failed(reason(&error.to_string())))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self { factory, end_ids: end_ids.into() })
    }

    /// Compiles a demand.
    ///
    /// # Errors
    /// [`EngineError::Option`] says why the demand cannot be enforced: it is malformed, uses something that is not
    /// supported, can never be met, or is too large.
    pub fn compile(&self, spec: &ConstraintSpec) -> Result<Constraint, EngineError> {
        spec.check()?;
        let refuse = |problem: &str| {
            let found = format!("refused ({})", reason(problem));
            refused(spec.name(), found, expected_of(spec))
        };
        let parser =
            self.factory.create_parser(grammar_of(spec)?).map_err(|error| refuse(&error.to_string()))?;
        let matcher = Matcher::new(Ok(parser));
        if let Some(problem) = matcher.get_error() {
            return Err(refuse(&problem));
        }
        let mut constraint = Constraint::new(matcher, self.end_ids.clone(), &spec.digest());
        // A demand that no text meets shows here, before anything is computed for it.
        constraint.prepare().map_err(|problem| refuse(&problem))?;
        Ok(constraint)
    }
}

/// The bytes of token `id` as llguidance wants them: control tokens behind a marker, nothing where nothing is spelled.
fn spelling(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let Ok(bytes) = tokenizer.token_bytes(id) else { return Vec::new() };
    if tokenizer.is_special(id) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat();
    }
    // The marker's byte is in no UTF-8 text, so a token with it can be part of none.
    if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes.to_vec() }
}

fn grammar_of(spec: &ConstraintSpec) -> Result<TopLevelGrammar, EngineError> {
    Ok(match spec {
        ConstraintSpec::JsonSchema(schema) => {
            let schema = if schema.is_object() { schema.clone() } else { json!({}) };
            if schema.get(SCHEMA_OPTIONS).is_some() {
                let expected = "a schema without it: white space and strictness are fixed";
                return Err(refused(spec.name(), format!("given with {SCHEMA_OPTIONS}"), expected));
            }
            json_grammar(schema)
        }
        ConstraintSpec::JsonObject => json_grammar(json!({ "type": "object" })),
        ConstraintSpec::Regex(expression) => TopLevelGrammar::from_regex(expression),
        ConstraintSpec::Choice(texts) => {
            // One terminal, so that a choice may begin with another.
            let quoted: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
            TopLevelGrammar::from_lark(format!("start: CHOICE\nCHOICE: {}", quoted.join(" | ")))
        }
        ConstraintSpec::Grammar(text) => TopLevelGrammar::from_lark(text.clone()),
    })
}

fn json_grammar(mut schema: Value) -> TopLevelGrammar {
    let options = JsonCompileOptions {
        whitespace_pattern: Some(JSON_SPACE.to_owned()),
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    TopLevelGrammar::from_json_schema(schema)
}

fn expected_of(spec: &ConstraintSpec) -> &'static str {
    match spec {
        ConstraintSpec::JsonSchema(_) => {
            "a schema that can be enforced in full: remove or rewrite the part named"
        }
        ConstraintSpec::JsonObject => "a tokenizer that can spell JSON",
        ConstraintSpec::Regex(_) => {
            "an expression in the syntax of Rust's regex, without look-around, back references and anchors, that some \
             text matches, and with modest repetitions"
        }
        ConstraintSpec::Choice(_) => "texts that the tokenizer can spell",
        ConstraintSpec::Grammar(_) => "a Lark grammar with a rule `start` that some text matches",
    }
}

/// A message of the library for people: on one line, without dumps, and of bounded length.
pub(super) fn reason(message: &str) -> String {
    const LONGEST: usize = 400;
    // Where the library advises its caller, or says only the name of a state, its words would not help.
    const OTHER_WORDS: [(&str, &str); 4] = [
        ("<non-verbose/>", ""),
        ("NoExtensionBias", "no token continues the text"),
        ("Enable 'coerce_one_of' option to approximate oneOf with anyOf", "Use anyOf"),
        (" without 'referencing' feature", ""),
    ];
    let mut message = message.split("<backtrace>").next().unwrap_or_default().to_owned();
    for (theirs, ours) in OTHER_WORDS {
        message = message.replace(theirs, ours);
    }
    let words: Vec<&str> = message.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}
