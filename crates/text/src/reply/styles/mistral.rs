//! Calls of Mistral's models, as mistral-common writes them.
//!
//! Up to tokenizer version 7: `[TOOL_CALLS]` and a JSON array of objects. From version 11: for each call
//! `[TOOL_CALLS]NAME[ARGS]{..}`, with `[CALL_ID]ID` before `[ARGS]` in version 11.

use super::json::JsonText;
use super::{Body, Opening, Place, Step};
use crate::reply::ToolCall;
use crate::reply::arguments::{json_calls, json_object};
use crate::reply::json_scan::Scan;
use crate::reply::piece::Until;
use crate::reply::tools::Tools;
use std::sync::Arc;

pub(super) const OPENINGS: &[Opening] = &[Opening {
    marker: "[TOOL_CALLS]",
    place: Place::Anywhere,
    body: |tools| Box::new(Calls { tools: Arc::clone(tools), state: State::Start }),
}];

/// Longest text between the markers besides a name: an id and white space.
const SLACK: usize = 128;

enum State {
    Start,
    Array(JsonText),
    Name(Until),
    Id(String, Until),
    Arguments(String, JsonText),
}

struct Calls {
    tools: Arc<Tools>,
    state: State,
}

impl Body for Calls {
    fn push(&mut self, c: char) -> Step {
        match &mut self.state {
            State::Start if c.is_whitespace() => {}
            State::Start if c == '[' => {
                let mut json = JsonText::new(false);
                json.push(c);
                self.state = State::Array(json);
            }
            State::Start => {
                let mut name = Until::new(&["[ARGS]", "[CALL_ID]"]);
                name.push(c);
                self.state = State::Name(name);
            }
            State::Array(json) => match json.push(c) {
                Scan::Fail => return Step::Fail,
                Scan::Done => return Step::of(json_calls(json.text(), &self.tools)),
                Scan::More | Scan::Key => {}
            },
            State::Name(name) => match name.push(c) {
                None if name.text().len() > self.tools.longest_name() + SLACK => return Step::Fail,
                None => {}
                Some(end) => {
                    let text = name.text().trim();
                    if self.tools.find(text).is_none() {
                        return Step::Fail;
                    }
                    let text = text.to_owned();
                    self.state = match end {
                        0 => State::Arguments(text, JsonText::new(false)),
                        _ => State::Id(text, Until::new(&["[ARGS]"])),
                    };
                }
            },
            State::Id(name, id) => {
                if id.push(c).is_some() {
                    self.state = State::Arguments(std::mem::take(name), JsonText::new(false));
                } else if id.text().len() > SLACK {
                    return Step::Fail;
                }
            }
            State::Arguments(name, json) => match json.push(c) {
                Scan::Fail => return Step::Fail,
                Scan::More | Scan::Key => {}
                Scan::Done => {
                    let name = std::mem::take(name);
                    let arguments = json_object(json.text());
                    return Step::of_one(arguments.map(|arguments| ToolCall { name, arguments }));
                }
            },
        }
        Step::More
    }
}
