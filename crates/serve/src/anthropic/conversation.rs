//! Conversations as Anthropic's clients write them, made into what chat templates read.

use serde_json::{Value, json};

use crate::ask::common::LONGEST_NAME;
use crate::ask::messages::{LONGEST_TEXT, content};
use crate::error::ApiError;
use crate::fields::Fields;

/// Most messages of a conversation, and most blocks of one message.
const MOST_MESSAGES: usize = 16_384;
const MOST_BLOCKS: usize = 4_096;

/// The messages of a request, the system's first.
pub(super) fn messages(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    let mut messages = Vec::new();
    if let Some(text) = content(fields, "system", &["text"])?.filter(|text| !text.is_empty()) {
        messages.push(json!({ "role": "system", "content": text }));
    }
    let list = fields.list("messages", MOST_MESSAGES)?.ok_or_else(|| fields.missing("messages"))?;
    if list.is_empty() {
        return Err(ApiError::field("messages", "an empty list, expected at least one message"));
    }
    for (index, value) in list.into_iter().enumerate() {
        let mut message = Fields::of(value, format!("messages[{index}]"))?;
        let role = message.required_text("role", LONGEST_NAME)?;
        if role != "user" && role != "assistant" {
            return Err(message.wrong("role", &json!(role), "user or assistant"));
        }
        match message.take("content") {
            Some(Value::String(text)) => messages.push(json!({ "role": role, "content": text })),
            Some(Value::Array(blocks)) if blocks.len() <= MOST_BLOCKS => {
                let mut turn = Turn::default();
                for (index, block) in blocks.into_iter().enumerate() {
                    let place = message.path(&format!("content[{index}]"));
                    turn.add(&role, Fields::of(block, place)?, &mut messages)?;
                }
                messages.extend(turn.message(&role));
            }
            None => return Err(message.missing("content")),
            Some(other) => return Err(message.wrong("content", &other, "a text, or a list of blocks")),
        }
        message.finish()?;
    }
    Ok(messages)
}

/// The blocks of one message.
#[derive(Default)]
struct Turn {
    texts: Vec<String>,
    reasoning: Vec<String>,
    calls: Vec<Value>,
    results: usize,
}

impl Turn {
    /// Adds a block. Results of tools are messages of their own, before what else is said.
    fn add(&mut self, role: &str, mut block: Fields, messages: &mut Vec<Value>) -> Result<(), ApiError> {
        let kind = block.required_text("type", LONGEST_NAME)?;
        match (kind.as_str(), role) {
            ("text", _) => self.texts.push(block.required_text("text", LONGEST_TEXT)?),
            ("thinking", "assistant") => {
                self.reasoning.push(block.required_text("thinking", LONGEST_TEXT)?);
                block.harmless(&["signature"]);
            }
            ("tool_use", "assistant") => {
                let (id, name) =
                    (block.required_text("id", LONGEST_NAME)?, block.required_text("name", LONGEST_NAME)?);
                let input = block.take("input").unwrap_or_else(|| json!({}));
                let function = json!({ "name": name, "arguments": input });
                self.calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            ("tool_result", "user") => {
                let id = block.required_text("tool_use_id", LONGEST_NAME)?;
                let text = content(&mut block, "content", &["text"])?.unwrap_or_default();
                // The result says itself whether it is an error.
                block.harmless(&["is_error"]);
                messages.push(json!({ "role": "tool", "tool_call_id": id, "content": text }));
                self.results += 1;
            }
            _ => {
                let hint = format!(" ({kind:?} of {role}): this model reads text only");
                return Err(ApiError::unsupported(block.path("type"), &hint));
            }
        }
        block.harmless(&["cache_control", "citations"]);
        block.finish()
    }

    /// What is left besides results.
    fn message(self, role: &str) -> Option<Value> {
        if self.results > 0 && self.texts.is_empty() {
            return None;
        }
        let mut message = json!({ "role": role, "content": self.texts.join("\n") });
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning.join("\n"));
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = Value::Array(self.calls);
        }
        Some(message)
    }
}
