//! Calls of Gemma.
//!
//! Gemma 3 has no markers of its own. Google's guide to function calling with it asks for `[name(key=value)]`, or for
//! `{"name": .., "parameters": {..}}`, which the model tends to fence as `json`; the model's own habit is a block fenced
//! as `tool_code`. Gemma 4 has special tokens: `<|tool_call>call:NAME{KEY:VALUE}<tool_call|>`, as its template writes
//! them.

use super::json::Enclosed;
use super::{Body, Opening, Place, Step};
use crate::reply::ToolCall;
use crate::reply::literal::{to_calls, to_json};
use crate::reply::piece::Until;
use crate::reply::tools::Tools;
use std::sync::Arc;

pub(super) const GEMMA_3: &[Opening] = &[
    Opening {
        marker: "```tool_code",
        place: Place::Anywhere,
        body: |tools| Box::new(Fence { tools: Arc::clone(tools), code: Until::new(&["```"]) }),
    },
    Opening {
        marker: "```json",
        place: Place::Anywhere,
        body: |tools| Box::new(Enclosed::new(tools, &["```"], true)),
    },
    Opening {
        marker: "[",
        place: Place::Start,
        body: |tools| {
            let text = String::from("[");
            Box::new(List {
                tools: Arc::clone(tools),
                text,
                named: false,
                depth: 1,
                quote: None,
                escaped: false,
            })
        },
    },
];

pub(super) const GEMMA_4: &[Opening] = &[Opening {
    marker: "<|tool_call>",
    place: Place::Anywhere,
    body: |tools| Box::new(Marked { tools: Arc::clone(tools), text: Until::new(&["<tool_call|>"]) }),
}];

/// A fenced block of code.
struct Fence {
    tools: Arc<Tools>,
    code: Until,
}

impl Body for Fence {
    fn push(&mut self, c: char) -> Step {
        match self.code.push(c) {
            None => Step::More,
            Some(_) => Step::of(to_calls(self.code.text(), &self.tools)),
        }
    }
}

/// A list of calls.
struct List {
    tools: Arc<Tools>,
    text: String,
    /// Whether the first name was read, and is a tool.
    named: bool,
    depth: usize,
    quote: Option<char>,
    escaped: bool,
}

impl Body for List {
    fn push(&mut self, c: char) -> Step {
        if !self.named {
            // An ordinary answer may start with a bracket too; it must not be held back for long.
            if c == '(' && self.tools.find(self.text[1..].trim()).is_some() {
                self.named = true;
                self.depth = 2;
            } else if !(c.is_alphanumeric() || c.is_whitespace() || matches!(c, '_' | '-' | '.'))
                || self.text.len() > self.tools.longest_name() + 8
            {
                return Step::Fail;
            }
            self.text.push(c);
            return Step::More;
        }
        self.text.push(c);
        match (self.quote, c) {
            (Some(_), _) if self.escaped => self.escaped = false,
            (Some(_), '\\') => self.escaped = true,
            (Some(quote), c) if c == quote => self.quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => self.quote = Some(c),
            (None, '[' | '(' | '{') => self.depth += 1,
            (None, ']' | ')' | '}') => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Step::of(to_calls(&self.text, &self.tools));
                }
            }
            (None, _) => {}
        }
        Step::More
    }
}

/// A call between Gemma 4's tokens.
struct Marked {
    tools: Arc<Tools>,
    text: Until,
}

impl Body for Marked {
    fn push(&mut self, c: char) -> Step {
        if self.text.push(c).is_none() {
            let prefix = "call:";
            let text = self.text.text();
            let possible = text.starts_with(prefix) || prefix.starts_with(text);
            return if possible { Step::More } else { Step::Fail };
        }
        let call = || {
            let call = self.text.text().strip_prefix("call:")?;
            let (name, _) = call.split_once('{')?;
            let arguments = to_json(&call[name.len()..])?;
            Some(ToolCall { name: self.tools.find(name.trim())?.name.clone(), arguments })
        };
        Step::of_one(call())
    }
}
