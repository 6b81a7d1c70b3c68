//! Messages as Anthropic's API writes them, whole and as events.

use axum::response::sse::Event;
use samebit_engine::Finish;
use samebit_text::{ReplyPart, ToolCall};
use serde_json::{Value, json};

use crate::answer::{TokenProbability, Told};
use crate::error::ApiError;
use crate::http::stream::{Script, named};
use crate::id;

/// One message.
#[derive(Debug)]
pub(super) struct Message {
    id: String,
    model: String,
    prompt_tokens: usize,
    /// The block that is open in a stream.
    open: Option<Block>,
    /// Its index, or that of the next.
    index: usize,
}

/// Kinds of blocks that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
}

impl Message {
    pub(super) fn new(model: &str, prompt_tokens: usize) -> Self {
        Self { id: id::new("msg"), model: model.to_owned(), prompt_tokens, open: None, index: 0 }
    }

    fn envelope(&self, content: &Value, usage: &Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage,
        })
    }

    /// The whole message: reasoning, then text, then calls.
    pub(super) fn whole(self, told: &Told) -> Value {
        let said = &told.said;
        let mut content = Vec::new();
        if !said.reasoning.is_empty() {
            content.push(json!({ "type": "thinking", "thinking": said.reasoning, "signature": "" }));
        }
        if !said.text.is_empty() || said.calls.is_empty() {
            content.push(json!({ "type": "text", "text": said.text }));
        }
        content.extend(said.calls.iter().map(|call| tool_use(call, &arguments(call))));
        let mut message = self.envelope(&Value::Array(content), &usage(told));
        message["stop_reason"] = json!(stop_reason(told));
        message["stop_sequence"] = json!(told.stop);
        message["samebit"] = told.samebit.clone();
        message
    }

    /// Makes `block` the open one.
    fn open(&mut self, block: Block) -> Vec<Event> {
        if self.open == Some(block) {
            return Vec::new();
        }
        let mut events = self.close();
        self.open = Some(block);
        events.push(self.started(&match block {
            Block::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Block::Text => json!({ "type": "text", "text": "" }),
        }));
        events
    }

    fn started(&self, block: &Value) -> Event {
        let data = json!({ "type": "content_block_start", "index": self.index, "content_block": block });
        named("content_block_start", &data)
    }

    fn delta(&self, delta: &Value) -> Event {
        let data = json!({ "type": "content_block_delta", "index": self.index, "delta": delta });
        named("content_block_delta", &data)
    }

    fn stopped(&mut self) -> Event {
        let data = json!({ "type": "content_block_stop", "index": self.index });
        self.index += 1;
        named("content_block_stop", &data)
    }

    /// Closes the open block, if there is one.
    fn close(&mut self) -> Vec<Event> {
        match self.open.take() {
            None => Vec::new(),
            Some(_) => vec![self.stopped()],
        }
    }
}

fn tool_use(call: &ToolCall, input: &Value) -> Value {
    json!({ "type": "tool_use", "id": id::new("toolu"), "name": call.name, "input": input })
}

/// The arguments as a value. The parser has seen that they are JSON.
fn arguments(call: &ToolCall) -> Value {
    serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}))
}

fn stop_reason(told: &Told) -> &'static str {
    match (told.finish, &told.stop) {
        _ if !told.said.calls.is_empty() => "tool_use",
        (Finish::Length, None) => "max_tokens",
        (_, Some(_)) => "stop_sequence",
        _ => "end_turn",
    }
}

/// Anthropic counts tokens that were read from a cache apart from the others.
fn usage(told: &Told) -> Value {
    json!({
        "input_tokens": told.prompt_tokens - told.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": told.cached_tokens,
        "output_tokens": told.tokens,
    })
}

impl Script for Message {
    fn start(&mut self) -> Vec<Event> {
        // How much was cached is known at the end only, and told there.
        let usage = json!({ "input_tokens": self.prompt_tokens, "output_tokens": 0 });
        let message = self.envelope(&json!([]), &usage);
        vec![named("message_start", &json!({ "type": "message_start", "message": message }))]
    }

    fn part(&mut self, _choice: usize, part: &ReplyPart, _probabilities: &[TokenProbability]) -> Vec<Event> {
        match part {
            ReplyPart::Content(text) => {
                let mut events = self.open(Block::Text);
                events.push(self.delta(&json!({ "type": "text_delta", "text": text })));
                events
            }
            ReplyPart::Reasoning(text) => {
                let mut events = self.open(Block::Thinking);
                events.push(self.delta(&json!({ "type": "thinking_delta", "thinking": text })));
                events
            }
            ReplyPart::ToolCall(call) => {
                let mut events = self.close();
                events.push(self.started(&tool_use(call, &json!({}))));
                let input = json!({ "type": "input_json_delta", "partial_json": call.arguments });
                events.push(self.delta(&input));
                events.push(self.stopped());
                events
            }
        }
    }

    fn done(&mut self, told: Told) -> Vec<Event> {
        let mut events = Vec::new();
        if self.index == 0 && self.open.is_none() {
            // An empty answer is an empty text.
            events.extend(self.open(Block::Text));
        }
        events.extend(self.close());
        let delta = json!({
            "type": "message_delta",
            "delta": { "stop_reason": stop_reason(&told), "stop_sequence": told.stop },
            "usage": usage(&told),
            "samebit": told.samebit,
        });
        events.push(named("message_delta", &delta));
        events
    }

    fn end(&mut self) -> Vec<Event> {
        vec![named("message_stop", &json!({ "type": "message_stop" }))]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![named("error", &error.anthropic_body())]
    }
}
