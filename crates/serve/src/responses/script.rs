//! Responses, whole and as events.
//!
//! Both are made by the same steps: a whole answer is told as parts whose events are dropped.

use std::sync::Arc;

use axum::response::sse::Event;
use samebit_engine::Finish;
use samebit_text::{ReplyPart, ToolCall};
use serde_json::{Value, json};

use super::items::{Growing, Open, function_call, said_by_assistant};
use crate::answer::{TokenProbability, Told};
use crate::ask::prompt::unix_seconds;
use crate::error::ApiError;
use crate::http::stream::{self, named};
use crate::id;
use crate::state::{App, StoredResponse};

/// One response.
pub(super) struct Script {
    app: Arc<App>,
    id: String,
    created: u64,
    /// Fields of the request that the response repeats.
    given: Value,
    /// The conversation, if response and conversation are to be kept.
    keeps: Option<Vec<Value>>,
    /// The number of the next event.
    sequence: u64,
    /// The item that grows.
    open: Option<Open>,
    /// The items that are complete.
    output: Vec<Value>,
    complete: Option<Value>,
}

impl Script {
    pub(super) fn new(app: Arc<App>, given: Value, keeps: Option<Vec<Value>>) -> Self {
        Self {
            app,
            id: id::new("resp"),
            created: unix_seconds(),
            given,
            keeps,
            sequence: 0,
            open: None,
            output: Vec::new(),
            complete: None,
        }
    }

    fn response(&self, status: &str) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": null,
            "model": self.app.name(),
            "output": self.output,
            "reasoning": { "effort": null, "summary": null },
            "text": { "format": { "type": "text" } },
            "truncation": "disabled",
            "usage": null,
        });
        if let Some(given) = self.given.as_object() {
            for (name, value) in given {
                response[name] = value.clone();
            }
        }
        response
    }

    /// The whole response, which is kept if it is to be.
    pub(super) fn whole(mut self, told: Told) -> Value {
        use stream::Script as _;
        let said = &told.said;
        let reasoning = Some(&said.reasoning).filter(|text| !text.is_empty());
        let parts = reasoning.map(|text| ReplyPart::Reasoning(text.clone())).into_iter();
        let text = Some(&said.text).filter(|text| !text.is_empty());
        let parts = parts.chain(text.map(|text| ReplyPart::Content(text.clone())));
        let parts: Vec<ReplyPart> =
            parts.chain(said.calls.iter().cloned().map(ReplyPart::ToolCall)).collect();
        for part in &parts {
            self.part(0, part, &[]);
        }
        self.done(told);
        self.complete.unwrap_or_default()
    }

    fn finish(&mut self, told: &Told) -> Value {
        let mut response = self.response(status(told));
        if told.finish == Finish::Length {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response["usage"] = json!({
            "input_tokens": told.prompt_tokens,
            "input_tokens_details": { "cached_tokens": told.cached_tokens },
            "output_tokens": told.tokens,
            "output_tokens_details": { "reasoning_tokens": told.reasoning_tokens },
            "total_tokens": told.prompt_tokens + told.tokens,
        });
        response["samebit"] = told.samebit.clone();
        if let Some(mut messages) = self.keeps.take() {
            messages.push(said_by_assistant(&self.output));
            let stored = StoredResponse { response: response.clone(), messages };
            let bytes = size(&stored);
            self.app.responses.insert(self.id.clone(), Arc::new(stored), bytes);
        }
        response
    }

    fn event(&mut self, name: &str, mut data: Value) -> Event {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        named(name, &data)
    }

    /// An event about the item that comes next.
    fn item_event(&mut self, name: &str, item: &Value) -> Event {
        let index = self.output.len();
        self.event(name, json!({ "output_index": index, "item": item }))
    }

    /// An event about the only part of the item that grows.
    fn part_event(&mut self, open: &Open, name: &str, mut data: Value) -> Event {
        data["item_id"] = json!(open.id);
        data["output_index"] = json!(self.output.len());
        data["content_index"] = json!(0);
        self.event(name, data)
    }

    /// Lets an item of this kind grow by `text`.
    fn grow(&mut self, kind: Growing, text: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            events.extend(self.close("completed"));
            let open = Open::new(kind);
            events.push(self.item_event("response.output_item.added", &open.item("in_progress", false)));
            events.push(self.part_event(
                &open,
                "response.content_part.added",
                json!({ "part": open.part() }),
            ));
            self.open = Some(open);
        }
        if let Some(mut open) = self.open.take().filter(|_| !text.is_empty() || kind == Growing::Message) {
            if !text.is_empty() {
                open.text.push_str(text);
                let name = format!("response.{}.delta", kind.name());
                events.push(self.part_event(&open, &name, json!({ "delta": text, "logprobs": [] })));
            }
            self.open = Some(open);
        }
        events
    }

    /// Completes the item that grows.
    fn close(&mut self, status: &str) -> Vec<Event> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let name = format!("response.{}.done", open.kind.name());
        let item = open.item(status, true);
        let events = vec![
            self.part_event(&open, &name, json!({ "text": open.text, "logprobs": [] })),
            self.part_event(&open, "response.content_part.done", json!({ "part": open.part() })),
            self.item_event("response.output_item.done", &item),
        ];
        self.output.push(item);
        events
    }

    fn call(&mut self, call: &ToolCall) -> Vec<Event> {
        let mut events = self.close("completed");
        let item = function_call(call);
        let mut begun = item.clone();
        (begun["arguments"], begun["status"]) = (json!(""), json!("in_progress"));
        events.push(self.item_event("response.output_item.added", &begun));
        let about = |name: &str| json!({ "item_id": item["id"], "output_index": self.output.len(), name: call.arguments });
        let (delta, done) = (about("delta"), about("arguments"));
        events.push(self.event("response.function_call_arguments.delta", delta));
        events.push(self.event("response.function_call_arguments.done", done));
        events.push(self.item_event("response.output_item.done", &item));
        self.output.push(item);
        events
    }
}

/// A response that ran into its limit is incomplete, and so is its last item.
fn status(told: &Told) -> &'static str {
    if told.finish == Finish::Length { "incomplete" } else { "completed" }
}

/// Roughly how much memory a stored response takes.
fn size(stored: &StoredResponse) -> usize {
    let messages: usize = stored.messages.iter().map(|message| message.to_string().len()).sum();
    stored.response.to_string().len() + messages
}

impl stream::Script for Script {
    fn start(&mut self) -> Vec<Event> {
        let response = self.response("in_progress");
        vec![
            self.event("response.created", json!({ "response": response })),
            self.event("response.in_progress", json!({ "response": response })),
        ]
    }

    fn part(&mut self, _choice: usize, part: &ReplyPart, _probabilities: &[TokenProbability]) -> Vec<Event> {
        match part {
            ReplyPart::Content(text) => self.grow(Growing::Message, text),
            ReplyPart::Reasoning(text) => self.grow(Growing::Reasoning, text),
            ReplyPart::ToolCall(call) => self.call(call),
        }
    }

    fn done(&mut self, told: Told) -> Vec<Event> {
        let mut events = Vec::new();
        if self.output.is_empty() && self.open.is_none() {
            // An empty answer is an empty message.
            events.extend(self.grow(Growing::Message, ""));
        }
        events.extend(self.close(status(&told)));
        self.complete = Some(self.finish(&told));
        events
    }

    fn end(&mut self) -> Vec<Event> {
        let Some(response) = self.complete.take() else { return Vec::new() };
        let name =
            if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        vec![self.event(name, json!({ "response": response }))]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let mut response = self.response("failed");
        response["error"] = json!({ "code": "server_error", "message": error.body()["error"]["message"] });
        vec![self.event("response.failed", json!({ "response": response }))]
    }
}
