//! Reasoning apart from the answer.
//!
//! Reasoning can only start a reply: markers that come after the first text are text, such as those in the arguments
//! of a call. A closing marker between two equal quotation marks is one that the model talks about. Line breaks next to
//! the markers belong to them, as templates write them there and strip them off.

use super::ReasoningStyle;

impl ReasoningStyle {
    /// The marker in front of reasoning.
    pub fn opening(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::BracketThink => "[THINK]",
            Self::Channel => "<|channel>thought",
        }
    }

    /// The marker behind reasoning.
    pub fn closing(self) -> &'static str {
        match self {
            Self::Think => "</think>",
            Self::BracketThink => "[/THINK]",
            Self::Channel => "<channel|>",
        }
    }
}

/// What takes the two kinds of text.
pub(super) trait Sink {
    fn reasoning(&mut self, text: &str);
    fn answer(&mut self, text: &str);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space and the start of the opening marker has come, all of it held.
    Opening,
    /// Within reasoning. Held: line breaks, then the start of the closing marker.
    Inside,
    /// The closing marker stands behind this quotation mark.
    Quoted(char),
    /// Between the closing marker and the answer.
    After,
    /// Within the answer, to the end.
    Answer,
}

/// The automaton.
#[derive(Debug)]
pub(super) struct Splitter {
    style: ReasoningStyle,
    state: State,
    /// Whether the prompt had the opening marker.
    opened: bool,
    held: String,
    /// Length of the white space that `held` starts with.
    space: usize,
    /// The last character of reasoning that was passed on.
    last: Option<char>,
}

impl Splitter {
    pub(super) fn new(style: Option<ReasoningStyle>, opened: bool) -> Self {
        let state = if style.is_some() { State::Opening } else { State::Answer };
        let style = style.unwrap_or(ReasoningStyle::Think);
        Self { style, state, opened, held: String::new(), space: 0, last: None }
    }

    pub(super) fn push(&mut self, c: char, sink: &mut impl Sink) {
        match self.state {
            State::Opening => self.opening(c, sink),
            State::Inside => self.inside(c, sink),
            State::Quoted(mark) if c == mark => {
                sink.reasoning(&std::mem::take(&mut self.held));
                self.space = 0;
                self.last = Some('>');
                self.state = State::Inside;
                self.inside(c, sink);
            }
            State::After if c == '\n' => {}
            State::Quoted(_) if c == '\n' => self.state = State::After,
            State::Quoted(_) | State::After | State::Answer => {
                self.state = State::Answer;
                sink.answer(c.encode_utf8(&mut [0; 4]));
            }
        }
    }

    /// Ends the reply. Reasoning that was not closed stays reasoning.
    pub(super) fn finish(mut self, sink: &mut impl Sink) {
        match self.state {
            State::Opening if self.opened => sink.reasoning(&self.held),
            State::Opening => sink.answer(&self.held),
            State::Inside => sink.reasoning(&std::mem::take(&mut self.held)),
            State::Quoted(_) | State::After | State::Answer => {}
        }
    }

    fn opening(&mut self, c: char, sink: &mut impl Sink) {
        self.held.push(c);
        if c.is_whitespace() && self.held.len() == self.space + c.len_utf8() {
            self.space = self.held.len();
            return;
        }
        let marker = &self.held[self.space..];
        if marker == self.style.opening() {
            self.held.clear();
            self.space = 0;
            self.state = State::Inside;
        } else if !self.style.opening().starts_with(marker) {
            let held = std::mem::take(&mut self.held);
            self.space = 0;
            if self.opened {
                self.state = State::Inside;
                held.chars().for_each(|c| self.push(c, sink));
            } else {
                self.state = State::Answer;
                sink.answer(&held);
            }
        }
    }

    fn inside(&mut self, c: char, sink: &mut impl Sink) {
        if c == '\n' && self.last.is_none() && self.held.is_empty() {
            return;
        }
        self.held.push(c);
        if c == '\n' && self.held.len() == self.space + 1 {
            self.space += 1;
            return;
        }
        loop {
            let marker = &self.held[self.space..];
            if marker == self.style.closing() {
                let last = self.last.filter(|_| self.space == 0);
                self.state = match last {
                    Some(mark @ ('"' | '\'' | '`')) => State::Quoted(mark),
                    _ => State::After,
                };
                return;
            }
            if self.style.closing().starts_with(marker) {
                return;
            }
            let Some(first) = marker.chars().next() else { return };
            let end = self.space + first.len_utf8();
            sink.reasoning(&self.held[..end]);
            self.last = Some(first);
            self.held.drain(..end);
            // A line break can only be the last character held.
            self.space = self.held.len().min(usize::from(self.held.starts_with('\n')));
        }
    }
}
