//! Calls that are JSON objects.
//!
//! Hermes: the format of NousResearch's Hermes function calling, which the templates of Qwen2.5 and Qwen3 ask for.
//! Llama: the prompt format of Llama 3.1 to 3.3; its template asks for `{"name": .., "parameters": ..}`, and
//! `<|python_tag|>` may come first. Several calls are joined by `;`.

use super::{Body, Opening, Place, Step};
use crate::reply::ToolCall;
use crate::reply::arguments::{json_call, json_calls};
use crate::reply::json_scan::{JsonScanner, Scan, is_space};
use crate::reply::piece::{Expect, Match};
use crate::reply::tools::Tools;
use std::sync::Arc;

pub(super) const HERMES: &[Opening] = &[Opening {
    marker: "<tool_call>",
    place: Place::Anywhere,
    body: |tools| Box::new(Enclosed::new(tools, &["</tool_call>"], false)),
}];

pub(super) const LLAMA: &[Opening] = &[
    Opening { marker: "<|python_tag|>", place: Place::Anywhere, body: |tools| Box::new(Joined::new(tools)) },
    Opening {
        marker: "{",
        place: Place::Start,
        body: |tools| {
            let mut joined = Joined::new(tools);
            joined.push('{');
            Box::new(joined)
        },
    },
];

/// A JSON text and the scanner that is in it.
pub(super) struct JsonText {
    scanner: JsonScanner,
    text: String,
    /// Whether other keys than those of a call end the reading: such objects are the answer itself.
    strict_keys: bool,
}

impl JsonText {
    pub(super) fn new(strict_keys: bool) -> Self {
        Self { scanner: JsonScanner::new(), text: String::new(), strict_keys }
    }

    pub(super) fn push(&mut self, c: char) -> Scan {
        if !(self.text.is_empty() && is_space(c)) {
            self.text.push(c);
        }
        match self.scanner.push(c) {
            Scan::Key if self.strict_keys => match self.scanner.key() {
                "name" | "parameters" | "arguments" | "type" | "id" => Scan::More,
                _ => Scan::Fail,
            },
            Scan::Key => Scan::More,
            other => other,
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

/// JSON (an object, or an array of them) up to a closing marker.
pub(super) struct Enclosed {
    tools: Arc<Tools>,
    json: JsonText,
    close: Expect,
    in_json: bool,
}

impl Enclosed {
    pub(super) fn new(tools: &Arc<Tools>, close: &'static [&'static str], strict_keys: bool) -> Self {
        let (json, close) = (JsonText::new(strict_keys), Expect::new(close));
        Self { tools: Arc::clone(tools), json, close, in_json: true }
    }
}

impl Body for Enclosed {
    fn push(&mut self, c: char) -> Step {
        if self.in_json {
            match self.json.push(c) {
                Scan::Fail => return Step::Fail,
                Scan::Done => self.in_json = false,
                Scan::More | Scan::Key => {}
            }
            return Step::More;
        }
        match self.close.push(c) {
            Match::More => Step::More,
            Match::Fail => Step::Fail,
            Match::Done(_) => Step::of(json_calls(self.json.text(), &self.tools)),
        }
    }
}

/// JSON objects joined by `;`, up to the end of the reply.
struct Joined {
    tools: Arc<Tools>,
    json: JsonText,
    in_json: bool,
    calls: Vec<ToolCall>,
}

impl Joined {
    fn new(tools: &Arc<Tools>) -> Self {
        Self { tools: Arc::clone(tools), json: JsonText::new(true), in_json: true, calls: Vec::new() }
    }
}

impl Body for Joined {
    fn push(&mut self, c: char) -> Step {
        if self.in_json {
            if self.json.is_empty() && c == '[' {
                return Step::Fail;
            }
            match self.json.push(c) {
                Scan::Fail => return Step::Fail,
                Scan::Done => {
                    let Some(call) = json_call(self.json.text(), &self.tools) else { return Step::Fail };
                    self.calls.push(call);
                    self.in_json = false;
                }
                Scan::More | Scan::Key => {}
            }
            return Step::More;
        }
        match c {
            ';' => {
                self.in_json = true;
                self.json = JsonText::new(true);
                Step::More
            }
            c if is_space(c) => Step::More,
            _ => Step::Fail,
        }
    }

    /// A `;` at the very end is only punctuation.
    fn finish(&mut self) -> Option<Vec<ToolCall>> {
        let complete = !self.calls.is_empty() && (!self.in_json || self.json.is_empty());
        complete.then(|| std::mem::take(&mut self.calls))
    }
}
