//! `input`: a text, or a list of items, made into messages.

use serde_json::{Value, json};

use super::items::called;
use crate::ask::common::LONGEST_NAME;
use crate::ask::messages::{LONGEST_TEXT, content};
use crate::error::ApiError;
use crate::fields::Fields;

/// Most items of an input.
const MOST_ITEMS: usize = 16_384;

/// The messages of an input.
pub(super) fn messages(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    match fields.take("input") {
        None => Err(fields.missing("input")),
        Some(Value::String(text)) if text.len() <= LONGEST_TEXT => {
            Ok(vec![json!({ "role": "user", "content": text })])
        }
        Some(Value::Array(items)) if (1..=MOST_ITEMS).contains(&items.len()) => {
            let place = |index| format!("input[{index}]");
            items
                .into_iter()
                .enumerate()
                .map(|(index, item)| message(Fields::of(item, place(index))?))
                .collect()
        }
        Some(other) => {
            Err(fields.wrong("input", &other, format_args!("a text, or a list of 1 to {MOST_ITEMS} items")))
        }
    }
}

fn message(mut item: Fields) -> Result<Value, ApiError> {
    match item.text("type", LONGEST_NAME)?.as_deref() {
        None | Some("message") => {}
        Some("function_call") => return call(item),
        Some("function_call_output") => return result(item),
        Some(kind) => {
            let hint = format!(" ({kind:?}): expected message, function_call or function_call_output");
            return Err(ApiError::unsupported(item.path("type"), &hint));
        }
    }
    let role = item.required_text("role", LONGEST_NAME)?;
    let role = match role.as_str() {
        "user" | "assistant" | "system" => role,
        "developer" => "system".to_owned(),
        _ => return Err(item.wrong("role", &json!(role), "user, assistant, system or developer")),
    };
    let kinds = ["input_text", "output_text", "text"];
    let text = content(&mut item, "content", &kinds)?.ok_or_else(|| item.missing("content"))?;
    item.harmless(&["id", "status"]);
    item.finish()?;
    Ok(json!({ "role": role, "content": text }))
}

/// A call that the assistant made.
fn call(mut item: Fields) -> Result<Value, ApiError> {
    let call = called(&json!({
        "call_id": item.required_text("call_id", LONGEST_NAME)?,
        "name": item.required_text("name", LONGEST_NAME)?,
        "arguments": item.required_text("arguments", LONGEST_TEXT)?,
    }));
    item.harmless(&["id", "status"]);
    item.finish()?;
    Ok(json!({ "role": "assistant", "content": "", "tool_calls": [call] }))
}

/// What came of a call.
fn result(mut item: Fields) -> Result<Value, ApiError> {
    let id = item.required_text("call_id", LONGEST_NAME)?;
    let text = item.required_text("output", LONGEST_TEXT)?;
    item.harmless(&["id", "status"]);
    item.finish()?;
    Ok(json!({ "role": "tool", "tool_call_id": id, "content": text }))
}
