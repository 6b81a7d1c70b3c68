//! Calls of DeepSeek V3, R1 and V3.1, as their chat templates write them: one section of calls.
//!
//! V3.1 writes a name and JSON, `NAME<｜tool▁sep｜>{..}`. V3 and R1 write the kind first and fence the JSON:
//! `function<｜tool▁sep｜>NAME`, then a block fenced as `json`.

use super::json::JsonText;
use super::{Body, Opening, Place, Step};
use crate::reply::ToolCall;
use crate::reply::arguments::json_object;
use crate::reply::json_scan::Scan;
use crate::reply::piece::{Expect, Match, Until};
use crate::reply::tools::Tools;
use std::sync::Arc;

pub(super) const OPENINGS: &[Opening] = &[Opening {
    marker: "<｜tool▁calls▁begin｜>",
    place: Place::Anywhere,
    body: |tools| Box::new(Section { tools: Arc::clone(tools), state: Section::next(), calls: Vec::new() }),
}];

enum State {
    /// Between calls.
    Next(Expect),
    Name(Until),
    /// The name behind the kind, up to the fence.
    FencedName(Until),
    Json(String, JsonText, &'static [&'static str]),
    End(Expect),
}

struct Section {
    tools: Arc<Tools>,
    state: State,
    calls: Vec<ToolCall>,
}

impl Section {
    fn next() -> State {
        State::Next(Expect::new(&["<｜tool▁call▁begin｜>", "<｜tool▁calls▁end｜>"]))
    }
}

/// Longest markup around a name.
const SLACK: usize = 64;

impl Body for Section {
    fn push(&mut self, c: char) -> Step {
        match &mut self.state {
            State::Next(expect) => match expect.push(c) {
                Match::More => {}
                Match::Done(0) => self.state = State::Name(Until::new(&["<｜tool▁sep｜>"])),
                Match::Done(_) => {
                    let calls = std::mem::take(&mut self.calls);
                    return Step::of((!calls.is_empty()).then_some(calls));
                }
                Match::Fail => return Step::Fail,
            },
            State::Name(name) => {
                if name.push(c).is_some() {
                    let name = name.text().trim();
                    self.state = if name == "function" && self.tools.find(name).is_none() {
                        State::FencedName(Until::new(&["```json"]))
                    } else if self.tools.find(name).is_some() {
                        State::Json(name.to_owned(), JsonText::new(false), &["<｜tool▁call▁end｜>"])
                    } else {
                        return Step::Fail;
                    };
                } else if name.text().len() > self.tools.longest_name() + SLACK {
                    return Step::Fail;
                }
            }
            State::FencedName(name) => {
                if name.push(c).is_some() {
                    let name = name.text().trim();
                    if self.tools.find(name).is_none() {
                        return Step::Fail;
                    }
                    self.state =
                        State::Json(name.to_owned(), JsonText::new(false), &["```<｜tool▁call▁end｜>"]);
                } else if name.text().len() > self.tools.longest_name() + SLACK {
                    return Step::Fail;
                }
            }
            State::Json(name, json, end) => match json.push(c) {
                Scan::Fail => return Step::Fail,
                Scan::More | Scan::Key => {}
                Scan::Done => {
                    let Some(arguments) = json_object(json.text()) else { return Step::Fail };
                    self.calls.push(ToolCall { name: std::mem::take(name), arguments });
                    self.state = State::End(Expect::new(end));
                }
            },
            State::End(expect) => match expect.push(c) {
                Match::More => {}
                Match::Done(_) => self.state = Self::next(),
                Match::Fail => return Step::Fail,
            },
        }
        Step::More
    }

    /// Models may end the reply without ending the section.
    fn finish(&mut self) -> Option<Vec<ToolCall>> {
        let State::Next(expect) = &self.state else { return None };
        (expect.is_untouched() && !self.calls.is_empty()).then(|| std::mem::take(&mut self.calls))
    }
}
