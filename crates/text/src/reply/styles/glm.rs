//! Calls of GLM-4.5 and later, as their chat templates write and ask for them: a name, then pairs of key and value.
//!
//! Strings stand as they are, everything else as JSON; which it is follows from the tool's schema.

use super::{Body, Opening, Place, Step};
use crate::reply::ToolCall;
use crate::reply::arguments::Arguments;
use crate::reply::piece::{Expect, Match, Until};
use crate::reply::tools::Tools;
use std::sync::Arc;

pub(super) const OPENINGS: &[Opening] = &[Opening {
    marker: "<tool_call>",
    place: Place::Anywhere,
    body: |tools| {
        let state = State::Name(Until::new(&["\n", "<arg_key>", "</tool_call>"]));
        Box::new(Call {
            tools: Arc::clone(tools),
            state,
            name: String::new(),
            arguments: Arguments::default(),
        })
    },
}];

enum State {
    Name(Until),
    /// Between pairs.
    Next(Expect),
    Key(Until),
    ToValue(String, Expect),
    Value(String, Until),
}

struct Call {
    tools: Arc<Tools>,
    state: State,
    name: String,
    arguments: Arguments,
}

impl Call {
    fn next() -> State {
        State::Next(Expect::new(&["<arg_key>", "</tool_call>"]))
    }

    fn key() -> State {
        State::Key(Until::new(&["</arg_key>"]))
    }

    fn done(&mut self) -> Step {
        let arguments = std::mem::take(&mut self.arguments).into_json();
        Step::of_one(Some(ToolCall { name: std::mem::take(&mut self.name), arguments }))
    }
}

impl Body for Call {
    fn push(&mut self, c: char) -> Step {
        match &mut self.state {
            State::Name(name) => match name.push(c) {
                None if name.text().len() > self.tools.longest_name() + "</tool_call>".len() => {
                    return Step::Fail;
                }
                None => {}
                Some(end) => {
                    let Some(tool) = self.tools.find(name.text().trim()) else { return Step::Fail };
                    self.name = tool.name.clone();
                    match end {
                        0 => self.state = Self::next(),
                        1 => self.state = Self::key(),
                        _ => return self.done(),
                    }
                }
            },
            State::Next(expect) => match expect.push(c) {
                Match::More => {}
                Match::Done(0) => self.state = Self::key(),
                Match::Done(_) => return self.done(),
                Match::Fail => return Step::Fail,
            },
            State::Key(key) => {
                if key.push(c).is_some() {
                    let key = key.text().trim().to_owned();
                    self.state = State::ToValue(key, Expect::new(&["<arg_value>"]));
                } else if c == '\n' {
                    return Step::Fail;
                }
            }
            State::ToValue(key, expect) => match expect.push(c) {
                Match::More => {}
                Match::Done(_) => {
                    let key = std::mem::take(key);
                    self.state = State::Value(key, Until::new(&["</arg_value>", "</tool_call>"]));
                }
                Match::Fail => return Step::Fail,
            },
            State::Value(key, value) => match value.push(c) {
                None => {}
                Some(0) => {
                    if let Some(tool) = self.tools.find(&self.name) {
                        self.arguments.add(tool, key, value.text());
                    }
                    self.state = Self::next();
                }
                Some(_) => return Step::Fail,
            },
        }
        Step::More
    }
}
