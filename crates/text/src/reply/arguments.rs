//! Arguments of a call: JSON checked and kept as written, or plain texts given the types of the tool's schema.

use super::literal::{is_number, to_json, write_text};
use super::{ToolCall, ToolDefinition, tools::Tools};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;

/// A call as models write it in JSON. Further fields, such as an id, say nothing about the call.
#[derive(Deserialize)]
struct JsonCall<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

/// The call that `text`, one JSON object, is.
pub(super) fn json_call(text: &str, tools: &Tools) -> Option<ToolCall> {
    let call: JsonCall<'_> = serde_json::from_str(text).ok()?;
    let arguments = match call.arguments {
        None => "{}".to_owned(),
        Some(arguments) => json_object(arguments.get())?,
    };
    Some(ToolCall { name: tools.find(&call.name)?.name.clone(), arguments })
}

/// The calls that `text` is: one JSON object, or an array of them.
pub(super) fn json_calls(text: &str, tools: &Tools) -> Option<Vec<ToolCall>> {
    if !text.trim_start().starts_with('[') {
        return json_call(text, tools).map(|call| vec![call]);
    }
    let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    let calls: Vec<ToolCall> = list.iter().map(|item| json_call(item.get(), tools)).collect::<Option<_>>()?;
    (!calls.is_empty()).then_some(calls)
}

/// `text` as written if it is a JSON object, or the object inside if it is a JSON string that holds one, as models that
/// encode twice write it. Parsed in full, so that lone surrogates or numbers beyond any type are no arguments.
pub(super) fn json_object(text: &str) -> Option<String> {
    match serde_json::from_str(text).ok()? {
        Value::Object(_) => Some(text.trim().to_owned()),
        Value::String(inner) => {
            let is_object = serde_json::from_str::<Value>(&inner).ok()?.is_object();
            is_object.then(|| inner.trim().to_owned())
        }
        _ => None,
    }
}

/// Arguments that come one by one as texts. A name that comes again replaces its value, as in a dictionary.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    entries: Vec<(String, String)>,
    places: HashMap<String, usize>,
}

impl Arguments {
    /// Adds an argument with the type that the tool's schema gives it.
    pub(super) fn add(&mut self, tool: &ToolDefinition, name: &str, text: &str) {
        let value = convert(text, tool.schema_of(name));
        match self.places.get(name) {
            Some(&place) => self.entries[place].1 = value,
            None => {
                self.places.insert(name.to_owned(), self.entries.len());
                self.entries.push((name.to_owned(), value));
            }
        }
    }

    /// The JSON object.
    pub(super) fn into_json(self) -> String {
        let mut json = String::from("{");
        for (index, (name, value)) in self.entries.iter().enumerate() {
            if index > 0 {
                json.push_str(", ");
            }
            write_text(&mut json, name);
            json.push_str(": ");
            json.push_str(value);
        }
        json.push('}');
        json
    }
}

/// The types of a JSON schema, as far as they decide how a text is read.
#[derive(Clone, Copy, Debug, Default)]
struct Types {
    text: bool,
    integer: bool,
    number: bool,
    boolean: bool,
    null: bool,
    object: bool,
    array: bool,
}

impl Types {
    /// The types that `schema` allows; a text if it names none.
    fn of(schema: Option<&Value>) -> Self {
        let mut types = Self::default();
        if let Some(schema) = schema {
            types.collect(schema, 0);
        }
        if !types.any_but_text() {
            types.text = true;
        }
        types
    }

    /// Whether anything but a text is allowed.
    fn any_but_text(&self) -> bool {
        self.integer || self.number || self.boolean || self.null || self.object || self.array
    }

    fn collect(&mut self, schema: &Value, depth: usize) {
        if depth > 8 {
            return;
        }
        match &schema["type"] {
            Value::String(name) => self.allow(name),
            Value::Array(names) => names.iter().filter_map(Value::as_str).for_each(|name| self.allow(name)),
            _ => {
                let choices = schema["enum"].as_array().into_iter().flatten();
                choices.chain(schema.get("const")).for_each(|value| self.allow(type_of(value)));
                let inner = ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema[*key].as_array());
                inner.flatten().for_each(|schema| self.collect(schema, depth + 1));
            }
        }
    }

    fn allow(&mut self, name: &str) {
        match name {
            "string" => self.text = true,
            "integer" => self.integer = true,
            "number" => self.number = true,
            "boolean" => self.boolean = true,
            "null" => self.null = true,
            "object" => self.object = true,
            "array" => self.array = true,
            _ => {}
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A text as JSON of the type that `schema` asks for; as a JSON string where it does not fit.
///
/// Where a schema allows several types the text is a string last: a model could not write the others otherwise.
fn convert(text: &str, schema: Option<&Value>) -> String {
    let types = Types::of(schema);
    let word = text.trim();
    let as_string = || {
        let mut json = String::new();
        write_text(&mut json, text);
        json
    };
    if !types.any_but_text() {
        return as_string();
    }
    let is_integer = || word.trim_start_matches('-').bytes().all(|digit| digit.is_ascii_digit());
    if (types.number || (types.integer && is_integer())) && is_number(word) {
        return word.to_owned();
    }
    // Templates print booleans and none as Python does, so models write both forms.
    if types.boolean && (word.eq_ignore_ascii_case("true") || word.eq_ignore_ascii_case("false")) {
        return word.to_ascii_lowercase();
    }
    if (types.null || !types.text) && (word == "null" || word == "None") {
        return "null".to_owned();
    }
    if (types.object && word.starts_with('{')) || (types.array && word.starts_with('[')) {
        if serde_json::from_str::<Value>(word).is_ok() {
            return word.to_owned();
        }
        // The original parser tries Python's literals next.
        if let Some(json) = to_json(word).filter(|json| serde_json::from_str::<Value>(json).is_ok()) {
            return json;
        }
    }
    as_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Value, text: &str, expected: &str) {
        assert_eq!(convert(text, Some(schema)), expected, "{schema} {text}");
    }

    #[test]
    fn texts_take_the_type_of_the_schema() {
        check(&json!({"type": "string"}), "12", "\"12\"");
        check(&json!({"type": "string"}), "null", "\"null\"");
        check(&json!({"type": "string"}), " a\n\"b\" ", "\" a\\n\\\"b\\\" \"");
        check(&json!({"type": "integer"}), "12", "12");
        check(
            &json!({"type": "integer"}),
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        );
        check(&json!({"type": "integer"}), "1.5", "\"1.5\"");
        check(&json!({"type": "integer"}), "007", "\"007\"");
        check(&json!({"type": "integer"}), "null", "null");
        check(&json!({"type": "number"}), " 1.50 ", "1.50");
        check(&json!({"type": "number"}), "1e400", "\"1e400\"");
        check(&json!({"type": "boolean"}), "True", "true");
        check(&json!({"type": "boolean"}), "yes", "\"yes\"");
        check(&json!({"type": "object"}), "{\"b\": 1.0, \"a\": [ ]}", "{\"b\": 1.0, \"a\": [ ]}");
        check(&json!({"type": "object"}), "{'a': True}", "{\"a\": true}");
        check(&json!({"type": "array"}), "[1,", "\"[1,\"");
        check(&json!({"type": "array"}), "{}", "\"{}\"");
        check(&json!({"type": ["string", "null"]}), "None", "null");
        check(&json!({"type": ["string", "null"]}), "x", "\"x\"");
        check(&json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), "5", "5");
        check(&json!({"enum": [1, 2]}), "2", "2");
        check(&json!({"enum": ["1", "2"]}), "2", "\"2\"");
        check(&json!({}), "5", "\"5\"");
        assert_eq!(convert("5", None), "\"5\"");
    }
}
