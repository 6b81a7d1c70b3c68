//! The parser of a reply: reasoning first, then calls within the answer.

use super::finder::Finder;
use super::reasoning::{Sink, Splitter};
use super::tools::Tools;
use super::{Parts, ReplyFormat, ReplyPart, ToolDefinition};
use std::sync::Arc;

/// Takes a reply apart while it streams.
///
/// ```
/// use samebit_text::{ReplyFormat, ReplyParser, ReplyPart};
/// let format = ReplyFormat::detect("{{ '<think>' }}{{ '</think>' }}", |_| false);
/// let mut parser = ReplyParser::new(&format, true, &[]);
/// assert_eq!(parser.push("easy</thi"), [ReplyPart::Reasoning("easy".into())]);
/// assert_eq!(parser.push("nk>\n\n4"), [ReplyPart::Content("4".into())]);
/// assert_eq!(parser.finish(), []);
/// ```
pub struct ReplyParser {
    splitter: Splitter,
    /// `None` where no tools are offered: nothing is a call then, and nothing need be held back for one.
    finder: Option<Finder>,
}

/// Where texts go: reasoning out, the answer through the finder of calls.
struct Flow<'a> {
    finder: Option<&'a mut Finder>,
    parts: Parts,
}

impl Sink for Flow<'_> {
    fn reasoning(&mut self, text: &str) {
        self.parts.reasoning(text);
    }

    fn answer(&mut self, text: &str) {
        match &mut self.finder {
            Some(finder) => text.chars().for_each(|c| finder.push(c, &mut self.parts)),
            None => self.parts.content(text),
        }
    }
}

impl ReplyParser {
    /// A parser of one reply. `starts_in_reasoning`: see [`ReplyFormat::starts_in_reasoning`]. Only calls of `tools`
    /// are calls.
    pub fn new(format: &ReplyFormat, starts_in_reasoning: bool, tools: &[ToolDefinition]) -> Self {
        let style = format.tools.filter(|_| !tools.is_empty());
        Self {
            splitter: Splitter::new(format.reasoning, starts_in_reasoning),
            finder: style.map(|style| Finder::new(style, Arc::new(Tools::new(tools)))),
        }
    }

    /// Takes the next piece of the reply and returns what is decided with it.
    pub fn push(&mut self, text: &str) -> Vec<ReplyPart> {
        let mut flow = Flow { finder: self.finder.as_mut(), parts: Parts::default() };
        text.chars().for_each(|c| self.splitter.push(c, &mut flow));
        flow.parts.0
    }

    /// Ends the reply and returns what was held back.
    pub fn finish(mut self) -> Vec<ReplyPart> {
        let mut flow = Flow { finder: self.finder.as_mut(), parts: Parts::default() };
        self.splitter.finish(&mut flow);
        let mut parts = flow.parts;
        if let Some(finder) = self.finder {
            finder.finish(&mut parts);
        }
        parts.0
    }
}
