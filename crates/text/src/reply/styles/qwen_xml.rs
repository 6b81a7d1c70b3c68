//! Calls of Qwen3-Coder, Qwen3.5 and Nemotron 3: tags for the function and each parameter, values as plain text.
//!
//! As in the tool parser published with Qwen3-Coder, one line break on each side of a value belongs to the tags, values
//! take the types of the tool's schema, and `<tool_call>` may be missing. Its other leniencies are not followed: a
//! value that is not closed would take in whatever comes next.

use super::{Body, Opening, Place, Step};
use crate::reply::arguments::Arguments;
use crate::reply::piece::{Expect, Match, Until};
use crate::reply::tools::Tools;
use crate::reply::{ToolCall, ToolDefinition};
use std::sync::Arc;

pub(super) const OPENINGS: &[Opening] = &[
    Opening {
        marker: "<tool_call>",
        place: Place::Anywhere,
        body: |tools| Box::new(Call::new(tools, false)),
    },
    Opening { marker: "<function=", place: Place::Bare, body: |tools| Box::new(Call::new(tools, true)) },
    Opening {
        marker: "</tool_call>",
        place: Place::AfterBare,
        body: |tools| Box::new(Call::new(tools, true)),
    },
];

enum State {
    Function(Expect),
    Name(Until),
    /// Between parameters.
    Next(Expect),
    Key(Until),
    Value(String, Until),
    End(Expect),
}

struct Call {
    tools: Arc<Tools>,
    bare: bool,
    state: State,
    tool: Option<ToolDefinition>,
    arguments: Arguments,
}

impl Call {
    /// With `bare`, `<function=` has been read and nothing comes behind `</function>`.
    fn new(tools: &Arc<Tools>, bare: bool) -> Self {
        let state = if bare {
            State::Name(Until::new(&[">"]))
        } else {
            State::Function(Expect::new(&["<function="]))
        };
        Self { tools: Arc::clone(tools), bare, state, tool: None, arguments: Arguments::default() }
    }

    fn next() -> State {
        State::Next(Expect::new(&["<parameter=", "</function>"]))
    }

    fn done(&mut self) -> Step {
        let arguments = std::mem::take(&mut self.arguments).into_json();
        Step::of_one(self.tool.take().map(|tool| ToolCall { name: tool.name, arguments }))
    }
}

/// Without one line break on each side.
fn without_breaks(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

impl Body for Call {
    fn push(&mut self, c: char) -> Step {
        match &mut self.state {
            State::Function(expect) => match expect.push(c) {
                Match::More => {}
                Match::Done(_) => self.state = State::Name(Until::new(&[">"])),
                Match::Fail => return Step::Fail,
            },
            State::Name(name) => {
                if name.push(c).is_some() {
                    let Some(tool) = self.tools.find(name.text()) else { return Step::Fail };
                    self.tool = Some(tool.clone());
                    self.state = Self::next();
                } else if name.text().len() > self.tools.longest_name() {
                    return Step::Fail;
                }
            }
            State::Next(expect) => match expect.push(c) {
                Match::More => {}
                Match::Done(0) => self.state = State::Key(Until::new(&[">"])),
                Match::Done(_) if self.bare => return self.done(),
                Match::Done(_) => self.state = State::End(Expect::new(&["</tool_call>"])),
                Match::Fail => return Step::Fail,
            },
            State::Key(key) => {
                if key.push(c).is_some() {
                    let key = key.text().to_owned();
                    self.state = State::Value(key, Until::new(&["</parameter>", "</tool_call>"]));
                } else if c == '\n' {
                    return Step::Fail;
                }
            }
            State::Value(key, value) => match value.push(c) {
                None => {}
                Some(0) => {
                    if let Some(tool) = &self.tool {
                        self.arguments.add(tool, key, without_breaks(value.text()));
                    }
                    self.state = Self::next();
                }
                // The value was not closed, so this call must not swallow the next.
                Some(_) => return Step::Fail,
            },
            State::End(expect) => match expect.push(c) {
                Match::More => {}
                Match::Done(_) => return self.done(),
                Match::Fail => return Step::Fail,
            },
        }
        Step::More
    }
}
