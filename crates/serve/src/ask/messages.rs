//! Conversations as OpenAI's clients write them, made into what chat templates read.

use serde_json::{Map, Value, json};

use super::common::LONGEST_NAME;
use crate::error::ApiError;
use crate::fields::Fields;

/// Most messages of a conversation, and most parts of one message.
const MOST_MESSAGES: usize = 16_384;
const MOST_PARTS: usize = 4_096;
/// Longest text; the body is bounded anyway.
pub(crate) const LONGEST_TEXT: usize = 16 << 20;

/// The messages of a request, ready for a template.
///
/// `developer` becomes `system`, which is the name that templates know. Parts of text are joined by line feeds.
///
/// # Errors
/// What is no message, and what is not text, by name.
pub(crate) fn messages(fields: &mut Fields, name: &str) -> Result<Vec<Value>, ApiError> {
    let list = fields.list(name, MOST_MESSAGES)?.ok_or_else(|| fields.missing(name))?;
    if list.is_empty() {
        return Err(ApiError::field(fields.path(name), "an empty list, expected at least one message"));
    }
    let place = |index| format!("{name}[{index}]");
    list.into_iter().enumerate().map(|(index, value)| message(Fields::of(value, place(index))?)).collect()
}

fn message(mut fields: Fields) -> Result<Value, ApiError> {
    let role = fields.required_text("role", LONGEST_NAME)?;
    let role = match role.as_str() {
        "system" | "user" | "assistant" | "tool" => role,
        "developer" => "system".to_owned(),
        _ => {
            let expected = "system, developer, user, assistant or tool";
            return Err(fields.wrong("role", &json!(role), expected));
        }
    };
    let mut message = Map::new();
    let content = content(&mut fields, "content", &["text"])?;
    if content.is_none() && role != "assistant" {
        return Err(fields.missing("content"));
    }
    message.insert("role".to_owned(), json!(role));
    message.insert("content".to_owned(), json!(content.unwrap_or_default()));
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.text(name, LONGEST_TEXT)? {
            message.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(calls) = fields.list("tool_calls", MOST_PARTS)?.filter(|calls| !calls.is_empty()) {
        message.insert("tool_calls".to_owned(), calls.into_iter().map(tool_call).collect());
    }
    fields.harmless(&["annotations"]);
    fields.unsupported(&["refusal", "audio", "function_call"])?;
    fields.finish()?;
    Ok(Value::Object(message))
}

/// Templates write the arguments of calls themselves, so they want them as values and not as JSON in a text.
fn tool_call(mut call: Value) -> Value {
    if let Some(arguments) = call.pointer_mut("/function/arguments")
        && let Some(object @ Value::Object(_)) =
            arguments.as_str().and_then(|text| serde_json::from_str(text).ok())
    {
        *arguments = object;
    }
    call
}

/// A content: a text, or a list of parts of the types `kinds`, all of them text. `None` where it is absent.
///
/// # Errors
/// Parts that are not text, by name.
pub(crate) fn content(fields: &mut Fields, name: &str, kinds: &[&str]) -> Result<Option<String>, ApiError> {
    match fields.take(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(parts)) if parts.len() <= MOST_PARTS => {
            let place = |index| format!("{}[{index}]", fields.path(name));
            let text = |(index, value)| part(Fields::of(value, place(index))?, kinds);
            let texts = parts.into_iter().enumerate().map(text).collect::<Result<Vec<_>, _>>()?;
            Ok(Some(texts.join("\n")))
        }
        Some(other) => {
            let expected = format!("a text, or a list of at most {MOST_PARTS} parts of text");
            Err(fields.wrong(name, &other, expected))
        }
    }
}

fn part(mut fields: Fields, kinds: &[&str]) -> Result<String, ApiError> {
    let kind = fields.required_text("type", LONGEST_NAME)?;
    if !kinds.contains(&kind.as_str()) {
        let hint = format!(" ({kind:?}): this model reads text only, expected {}", kinds.join(" or "));
        return Err(ApiError::unsupported(fields.path("type"), &hint));
    }
    let text = fields.required_text("text", LONGEST_TEXT)?;
    fields.harmless(&["cache_control", "annotations", "citations", "logprobs"]);
    fields.finish()?;
    Ok(text)
}
