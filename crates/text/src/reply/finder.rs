//! Calls within the text of an answer.
//!
//! What may be the start of a call is held back until it is one, or cannot become one. Then the held text is content
//! and the search goes on behind it, never within it, so that time is linear in the reply.

use super::styles::{self, Body, Opening, Place, Step};
use super::tools::Tools;
use super::{Parts, ToolStyle};
use std::sync::Arc;

/// Longest text of a call, in bytes; what is longer is content.
const LONGEST_CALL: usize = 16 << 20;

/// What came before the place of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing but white space.
    Start,
    Text,
    Call,
    /// A call without its outermost marker.
    BareCall,
}

/// The automaton.
pub(super) struct Finder {
    openings: &'static [Opening],
    tools: Arc<Tools>,
    /// White space, then what may be a marker, or is one and the body of its call.
    held: String,
    /// Length of that white space.
    space: usize,
    body: Option<(Box<dyn Body>, Place)>,
    before: Before,
}

impl Finder {
    pub(super) fn new(style: ToolStyle, tools: Arc<Tools>) -> Self {
        let openings = styles::openings(style);
        Self { openings, tools, held: String::new(), space: 0, body: None, before: Before::Start }
    }

    pub(super) fn push(&mut self, c: char, parts: &mut Parts) {
        let Some((body, place)) = &mut self.body else { return self.search(c, parts) };
        let step = if self.held.len() >= LONGEST_CALL { Step::Fail } else { body.push(c) };
        match step {
            Step::More => self.held.push(c),
            Step::Done(calls) => {
                self.before = if *place == Place::Bare { Before::BareCall } else { Before::Call };
                self.body = None;
                self.clear();
                parts.calls(calls);
            }
            Step::Fail => {
                self.body = None;
                self.release(parts);
                self.search(c, parts);
            }
        }
    }

    pub(super) fn finish(mut self, parts: &mut Parts) {
        if let Some(calls) = self.body.as_mut().and_then(|(body, _)| body.finish()) {
            return parts.calls(calls);
        }
        let follows_call = matches!(self.before, Before::Call | Before::BareCall);
        if !(follows_call && self.held.len() == self.space) {
            self.release(parts);
        }
    }

    fn clear(&mut self) {
        self.held.clear();
        self.space = 0;
    }

    /// What is held is content.
    fn release(&mut self, parts: &mut Parts) {
        if !self.held.is_empty() {
            parts.content(&self.held);
            self.before = Before::Text;
        }
        self.clear();
    }

    fn may_open(&self, opening: &Opening) -> bool {
        match opening.place {
            Place::Anywhere | Place::Bare => true,
            Place::Start => self.before == Before::Start,
            Place::AfterBare => self.before == Before::BareCall,
        }
    }

    fn search(&mut self, c: char, parts: &mut Parts) {
        self.held.push(c);
        if c.is_whitespace() && self.held.len() == self.space + c.len_utf8() {
            self.space = self.held.len();
            return;
        }
        loop {
            let marker = &self.held[self.space..];
            let mut possible = self
                .openings
                .iter()
                .filter(|opening| opening.marker.starts_with(marker) && self.may_open(opening));
            match possible.next() {
                Some(opening) if opening.marker == marker => {
                    self.body = Some(((opening.body)(&self.tools), opening.place));
                    // Behind a bare call its outermost closing marker alone is no call, and is complete at once.
                    if opening.place == Place::AfterBare {
                        self.body = None;
                        self.before = Before::Call;
                        self.clear();
                    }
                    return;
                }
                Some(_) if !marker.is_empty() => return,
                _ => {}
            }
            let Some(first) = marker.chars().next() else { return };
            let end = self.space + first.len_utf8();
            parts.content(&self.held[..end]);
            self.before = Before::Text;
            self.held.drain(..end);
            // No marker has white space inside, so it can only be the last character held.
            self.space = if self.held.trim_start().is_empty() { self.held.len() } else { 0 };
        }
    }
}
