//! The items that a response is made of.

use samebit_text::ToolCall;
use serde_json::{Value, json};

use crate::id;

/// Kinds of items that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growing {
    Message,
    Reasoning,
}

impl Growing {
    /// Its name in events.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Message => "output_text",
            Self::Reasoning => "reasoning_text",
        }
    }
}

/// An item that grows.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) kind: Growing,
    pub(super) id: String,
    pub(super) text: String,
}

impl Open {
    pub(super) fn new(kind: Growing) -> Self {
        let prefix = if kind == Growing::Message { "msg" } else { "rs" };
        Self { kind, id: id::new(prefix), text: String::new() }
    }

    /// Its part.
    pub(super) fn part(&self) -> Value {
        match self.kind {
            Growing::Message => {
                json!({ "type": "output_text", "text": self.text, "annotations": [], "logprobs": [] })
            }
            Growing::Reasoning => json!({ "type": "reasoning_text", "text": self.text }),
        }
    }

    /// The item, with its part or still without.
    pub(super) fn item(&self, status: &str, with_part: bool) -> Value {
        let content = if with_part { json!([self.part()]) } else { json!([]) };
        match self.kind {
            Growing::Message => json!({
                "type": "message",
                "id": self.id,
                "status": status,
                "role": "assistant",
                "content": content,
            }),
            Growing::Reasoning => json!({
                "type": "reasoning",
                "id": self.id,
                "status": status,
                "summary": [],
                "content": content,
            }),
        }
    }
}

/// A call of a tool.
pub(super) fn function_call(call: &ToolCall) -> Value {
    json!({
        "type": "function_call",
        "id": id::new("fc"),
        "call_id": id::new("call"),
        "name": call.name,
        "arguments": call.arguments,
        "status": "completed",
    })
}

/// What the items of a response are in a conversation, as templates read it.
pub(super) fn said_by_assistant(output: &[Value]) -> Value {
    let texts = |kind: &str| -> Vec<&str> {
        let items = output.iter().filter(|item| item["type"] == kind);
        items.filter_map(|item| item["content"][0]["text"].as_str()).collect()
    };
    let mut message = json!({ "role": "assistant", "content": texts("message").join("\n") });
    let reasoning = texts("reasoning").join("\n");
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    let calls: Vec<Value> =
        output.iter().filter(|item| item["type"] == "function_call").map(called).collect();
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    message
}

/// A call as templates read it: with its arguments as a value where they are one.
pub(super) fn called(item: &Value) -> Value {
    let text = item["arguments"].as_str().unwrap_or_default();
    let arguments = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
    let function = json!({ "name": item["name"], "arguments": arguments });
    json!({ "id": item["call_id"], "type": "function", "function": function })
}
