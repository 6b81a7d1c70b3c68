//! What an answer has to look like, and which demands are taken at all.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::refused;
use crate::EngineError;

/// What the text of an answer has to look like. Its first byte is the answer's first, and it may end where the demand is
/// met in full.
///
/// **White space in JSON** is fixed, so that no answer loses itself in it: between two tokens of JSON there is nothing,
/// one space, or one line feed and at most 40 spaces; before the first and after the last there is nothing. Properties
/// come in the order of the schema.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstraintSpec {
    /// JSON that the schema describes. A schema that cannot be enforced in full is refused.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// Text that matches the whole expression, in the syntax of Rust's `regex` without look-around, back references and
    /// anchors.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Text of a context-free grammar in Lark, as llguidance reads it, with the start rule `start`. GBNF is refused.
    Grammar(String),
}

impl ConstraintSpec {
    /// Most bytes of a schema (written without white space) or a grammar, or of all choices together.
    pub const MAX_BYTES: usize = 64 << 10;
    /// Most bytes of one expression, alone, in a schema, or on a line of a grammar. Work grows with the square of it.
    pub const MAX_EXPRESSION: usize = 4 << 10;
    /// Deepest nesting of a schema, and of brackets in expressions and grammars.
    pub const MAX_DEPTH: usize = 64;
    /// Most texts to choose from.
    pub const MAX_CHOICES: usize = 4096;

    /// The option's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) => "json-schema",
            Self::JsonObject => "json-object",
            Self::Regex(_) => "regex",
            Self::Choice(_) => "choice",
            Self::Grammar(_) => "grammar",
        }
    }

    /// SHA-256 of the demand, in hexadecimal, for receipts: over the JSON `{"<name>":<value>}`, written without white
    /// space and with keys as given, since the order of properties is part of a demand.
    pub fn digest(&self) -> String {
        let value = match self {
            Self::JsonSchema(schema) => schema.clone(),
            Self::JsonObject => Value::Bool(true),
            Self::Regex(text) | Self::Grammar(text) => json!(text),
            Self::Choice(texts) => json!(texts),
        };
        let digest = Sha256::digest(json!({ self.name(): value }).to_string());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Checks everything that can be told without a tokenizer: emptiness, size and nesting.
    ///
    /// # Errors
    /// [`EngineError::Option`] says what is out of bounds.
    pub fn check(&self) -> Result<(), EngineError> {
        let refuse = |found: String, expected: &str| Err(refused(self.name(), found, expected));
        let (bytes, depth) = match self {
            Self::JsonObject => (0, 0),
            Self::JsonSchema(schema) => {
                // Depth first: writing a value out recurses.
                let depth = depth_of(schema);
                (if depth > Self::MAX_DEPTH { 0 } else { schema.to_string().len() }, depth)
            }
            Self::Regex(text) | Self::Grammar(text) => (text.len(), bracket_depth(text)),
            Self::Choice(texts) => (texts.iter().map(String::len).sum(), 0),
        };
        if bytes > Self::MAX_BYTES {
            return refuse(
                format!("{bytes} bytes long"),
                &format!("at most {}: leave out what the answer need not obey", Self::MAX_BYTES),
            );
        }
        if depth > Self::MAX_DEPTH {
            return refuse(
                format!("nested {depth} levels deep"),
                &format!("at most {}: use $ref or named rules for what repeats", Self::MAX_DEPTH),
            );
        }
        let longest = match self {
            Self::JsonSchema(schema) => longest_expression(schema),
            Self::Regex(text) => text.len(),
            Self::Grammar(text) => text.lines().map(str::len).max().unwrap_or(0),
            Self::JsonObject | Self::Choice(_) => 0,
        };
        if longest > Self::MAX_EXPRESSION {
            return refuse(
                format!("given with an expression of {longest} bytes"),
                &format!("at most {} for one: use repetitions or named rules", Self::MAX_EXPRESSION),
            );
        }
        match self {
            Self::JsonSchema(Value::Object(_) | Value::Bool(true)) | Self::JsonObject => Ok(()),
            Self::JsonSchema(_) => refuse("no JSON object".to_owned(), "a JSON schema"),
            Self::Regex(text) | Self::Grammar(text) if text.trim().is_empty() => {
                refuse("empty".to_owned(), "text that says what the answer looks like")
            }
            Self::Grammar(text) if text.contains("::=") => refuse(
                "written with `::=`, as GBNF and EBNF are".to_owned(),
                "Lark, with rules such as `start: \"yes\" | \"no\"`",
            ),
            Self::Regex(_) | Self::Grammar(_) => Ok(()),
            Self::Choice(texts) if texts.is_empty() || texts.len() > Self::MAX_CHOICES => {
                refuse(format!("a list of {} texts", texts.len()), &format!("1 to {}", Self::MAX_CHOICES))
            }
            Self::Choice(texts) => match texts.iter().position(String::is_empty) {
                Some(index) => refuse(format!("empty at index {index}"), "texts of at least one character"),
                None => Ok(()),
            },
        }
    }
}

/// Bytes of the longest expression in a schema whose nesting has been checked.
fn longest_expression(schema: &Value) -> usize {
    match schema {
        Value::Array(values) => values.iter().map(longest_expression).max().unwrap_or(0),
        Value::Object(fields) => {
            let own = fields.get("pattern").and_then(Value::as_str).map_or(0, str::len);
            let names = fields.get("patternProperties").and_then(Value::as_object);
            let names = names.and_then(|names| names.keys().map(String::len).max()).unwrap_or(0);
            let inner = fields.values().map(longest_expression).max().unwrap_or(0);
            own.max(names).max(inner)
        }
        _ => 0,
    }
}

/// Levels of arrays and objects, 0 for a plain value; found without recursion.
fn depth_of(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(values) => open.extend(values.iter().map(|value| (value, depth + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    deepest
}

/// Most brackets that are open at once. Those in quotes count too, which refuses more than it has to.
fn bracket_depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut escaped = false;
    for byte in text.bytes() {
        match byte {
            _ if escaped => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = byte == b'\\' && !escaped;
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({}), |inner, _| json!({ "items": inner }))
    }

    #[test]
    fn bounds_are_checked_by_name() {
        let long = "a".repeat(ConstraintSpec::MAX_BYTES + 1);
        let wrong = [
            (ConstraintSpec::JsonSchema(json!([])), "json-schema is no JSON object"),
            (ConstraintSpec::JsonSchema(json!(false)), "json-schema is no JSON object"),
            (ConstraintSpec::JsonSchema(nested(65)), "json-schema is nested 65 levels"),
            (ConstraintSpec::JsonSchema(json!({ "const": long })), "json-schema is 65549 bytes"),
            (ConstraintSpec::Regex(String::new()), "regex is empty"),
            (ConstraintSpec::Regex("(".repeat(70)), "regex is nested 70 levels"),
            (ConstraintSpec::Regex(long.clone()), "regex is 65537 bytes"),
            (ConstraintSpec::Regex("a".repeat(4097)), "regex is given with an expression of 4097 bytes"),
            (
                ConstraintSpec::JsonSchema(json!({ "items": [{ "pattern": "a".repeat(4097) }] })),
                "json-schema is given with an expression of 4097",
            ),
            (
                ConstraintSpec::JsonSchema(json!({ "patternProperties": { "a".repeat(4097): true } })),
                "json-schema is given with an expression of 4097",
            ),
            (
                ConstraintSpec::Grammar(format!("start: A\nA: /{}/", "a".repeat(4097))),
                "grammar is given with an expression of 4102",
            ),
            (ConstraintSpec::Grammar(" \n".to_owned()), "grammar is empty"),
            (ConstraintSpec::Grammar(long.clone()), "grammar is 65537 bytes"),
            (ConstraintSpec::Grammar("root ::= [a-z]".to_owned()), "grammar is written with `::=`"),
            (ConstraintSpec::Choice(vec![]), "choice is a list of 0 texts"),
            (ConstraintSpec::Choice(vec!["a".to_owned(); 4097]), "choice is a list of 4097"),
            (ConstraintSpec::Choice(vec!["a".to_owned(), String::new()]), "choice is empty at index 1"),
            (ConstraintSpec::Choice(vec![long]), "choice is 65537 bytes"),
        ];
        for (spec, words) in wrong {
            let error = spec.check().unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        ConstraintSpec::JsonSchema(nested(63)).check().unwrap();
        ConstraintSpec::Regex(r"\(".repeat(70)).check().unwrap();
    }

    #[test]
    fn digests_tell_demands_apart() {
        let choice = ConstraintSpec::Choice(vec!["a".to_owned()]);
        // sha256sum of {"choice":["a"]}
        assert_eq!(choice.digest(), "879f43fe763de1bee1fb8d543e42d63d633170a0ebcc899871db9e349e3bb2ef");
        let specs = [
            choice,
            ConstraintSpec::Regex("a".to_owned()),
            ConstraintSpec::Grammar("a".to_owned()),
            ConstraintSpec::JsonObject,
            ConstraintSpec::JsonSchema(json!({ "a": 1, "b": 2 })),
            ConstraintSpec::JsonSchema(json!({ "b": 2, "a": 1 })),
        ];
        let digests: std::collections::HashSet<String> = specs.iter().map(ConstraintSpec::digest).collect();
        assert_eq!(digests.len(), specs.len());
    }
}
