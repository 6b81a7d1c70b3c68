//! The replies of chat and text completions, whole and in chunks.

use std::sync::Arc;

use axum::response::sse::Event;
use samebit_text::{ReplyPart, ToolCall};
use serde_json::{Value, json};

use super::logprobs;
use crate::answer::{TokenProbability, Told, usage_of};
use crate::ask::prompt::unix_seconds;
use crate::error::ApiError;
use crate::http::stream::{Script, event};
use crate::id;
use crate::state::App;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Text,
}

/// One reply.
pub(super) struct Completion {
    app: Arc<App>,
    kind: Kind,
    id: String,
    created: u64,
    /// Choices, over all prompts.
    choices: usize,
    /// Choices that share a prompt.
    per_prompt: usize,
    /// Whether a stream ends with the usage.
    tells_usage: bool,
    told: Vec<Told>,
    /// Calls that were told of each choice.
    calls: Vec<usize>,
}

impl Completion {
    pub(super) fn new(
        kind: Kind,
        app: &Arc<App>,
        prompts: usize,
        per_prompt: usize,
        tells_usage: bool,
    ) -> Self {
        Self {
            app: Arc::clone(app),
            kind,
            id: id::new(if kind == Kind::Chat { "chatcmpl" } else { "cmpl" }),
            created: unix_seconds(),
            choices: prompts * per_prompt,
            per_prompt,
            tells_usage,
            told: Vec::new(),
            calls: vec![0; prompts * per_prompt],
        }
    }

    fn envelope(&self, streams: bool, choices: &Value) -> Value {
        let object = match (self.kind, streams) {
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Text, _) => "text_completion",
        };
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.app.name(),
            "choices": choices,
        })
    }

    fn logprobs(&self, tokens: &[TokenProbability]) -> Value {
        match (tokens.is_empty(), self.kind) {
            (true, _) => Value::Null,
            (false, Kind::Chat) => logprobs::chat(&self.app.tokenizer, tokens),
            (false, Kind::Text) => logprobs::completion(&self.app.tokenizer, tokens),
        }
    }

    /// The whole reply. With several choices each has a `samebit` block; that of the first stands at the top.
    pub(super) fn whole(self, told: &[Told]) -> Value {
        let choices = told.iter().map(|told| self.choice(told)).collect();
        let mut reply = self.envelope(false, &choices);
        reply["usage"] = usage_of(told, self.per_prompt);
        reply["samebit"] = told.first().map_or(Value::Null, |first| first.samebit.clone());
        reply
    }

    fn choice(&self, told: &Told) -> Value {
        let mut choice = json!({
            "index": told.choice,
            "logprobs": self.logprobs(&told.probabilities),
            "finish_reason": told.finish_reason(),
            "stop_reason": told.stop,
        });
        match self.kind {
            Kind::Chat => choice["message"] = message(told),
            Kind::Text => choice["text"] = json!(told.said.text),
        }
        if self.choices > 1 {
            choice["samebit"] = told.samebit.clone();
        }
        choice
    }

    /// A chunk about one choice; `delta` is what is new of it.
    fn chunk(
        &self,
        choice: usize,
        delta: Value,
        tokens: &[TokenProbability],
        finish: Option<&Told>,
    ) -> Value {
        let mut body = json!({
            "index": choice,
            "logprobs": self.logprobs(tokens),
            "finish_reason": finish.map(Told::finish_reason),
        });
        body[if self.kind == Kind::Chat { "delta" } else { "text" }] = delta;
        if let Some(told) = finish {
            body["stop_reason"] = json!(told.stop);
        }
        let mut chunk = self.envelope(true, &json!([body]));
        if let Some(told) = finish {
            chunk["samebit"] = told.samebit.clone();
        }
        if self.tells_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

fn message(told: &Told) -> Value {
    let said = &told.said;
    let mut message = json!({ "role": "assistant", "content": said.text });
    if !said.reasoning.is_empty() {
        message["reasoning_content"] = json!(said.reasoning);
    }
    if !said.calls.is_empty() {
        message["tool_calls"] = said.calls.iter().map(call).collect();
        if said.text.is_empty() {
            message["content"] = Value::Null;
        }
    }
    message
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": id::new("call"),
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

impl Script for Completion {
    fn start(&mut self) -> Vec<Event> {
        let first = json!({ "role": "assistant", "content": "" });
        match self.kind {
            Kind::Chat => {
                (0..self.choices).map(|choice| event(&self.chunk(choice, first.clone(), &[], None))).collect()
            }
            Kind::Text => Vec::new(),
        }
    }

    fn part(&mut self, choice: usize, part: &ReplyPart, probabilities: &[TokenProbability]) -> Vec<Event> {
        let delta = match (self.kind, part) {
            (Kind::Text, ReplyPart::Content(text) | ReplyPart::Reasoning(text)) => json!(text),
            (Kind::Chat, ReplyPart::Content(text)) => json!({ "content": text }),
            (Kind::Chat, ReplyPart::Reasoning(text)) => json!({ "reasoning_content": text }),
            (_, ReplyPart::ToolCall(tool)) => {
                let mut called = call(tool);
                called["index"] = json!(self.calls[choice]);
                self.calls[choice] += 1;
                json!({ "tool_calls": [called] })
            }
        };
        vec![event(&self.chunk(choice, delta, probabilities, None))]
    }

    fn done(&mut self, told: Told) -> Vec<Event> {
        let nothing = if self.kind == Kind::Chat { json!({}) } else { json!("") };
        let last = event(&self.chunk(told.choice, nothing, &told.probabilities, Some(&told)));
        self.told.push(told);
        vec![last]
    }

    fn end(&mut self) -> Vec<Event> {
        self.told.sort_by_key(|told| told.choice);
        let mut events = Vec::new();
        if self.tells_usage {
            let mut chunk = self.envelope(true, &json!([]));
            chunk["usage"] = usage_of(&self.told, self.per_prompt);
            events.push(event(&chunk));
        }
        events.push(Event::default().data("[DONE]"));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![event(&error.body())]
    }
}
