//! The markup of calls, one file for each family of styles.

mod deepseek;
mod gemma;
mod glm;
mod json;
mod mistral;
mod qwen_xml;

use super::tools::Tools;
use super::{ToolCall, ToolStyle};
use std::sync::Arc;

/// What a character of a call did.
pub(super) enum Step {
    More,
    /// The character ended the call (or calls).
    Done(Vec<ToolCall>),
    /// This is no call; the character is not part of it.
    Fail,
}

impl Step {
    /// Done with what was found, if it is something.
    fn of(calls: Option<Vec<ToolCall>>) -> Self {
        calls.map_or(Self::Fail, Self::Done)
    }

    fn of_one(call: Option<ToolCall>) -> Self {
        Self::of(call.map(|call| vec![call]))
    }
}

/// What comes behind an opening marker: an automaton that recognizes one call, or several that belong together.
pub(super) trait Body: Send + Sync {
    fn push(&mut self, c: char) -> Step;

    /// The calls, if the end of the reply completes them.
    fn finish(&mut self) -> Option<Vec<ToolCall>> {
        None
    }
}

/// Where a marker opens a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    /// Anywhere, for a call whose outermost marker the model left out.
    Bare,
    /// As the first text of the answer.
    Start,
    /// Directly behind a call that started with a [`Place::Bare`] marker. Opens no call, is only dropped.
    AfterBare,
}

/// A marker and what comes behind it. Markers have no white space, and none that may open at one place starts another.
pub(super) struct Opening {
    pub(super) marker: &'static str,
    pub(super) place: Place,
    pub(super) body: fn(&Arc<Tools>) -> Box<dyn Body>,
}

/// The markers of a style.
pub(super) fn openings(style: ToolStyle) -> &'static [Opening] {
    match style {
        ToolStyle::Hermes => json::HERMES,
        ToolStyle::LlamaJson => json::LLAMA,
        ToolStyle::QwenXml => qwen_xml::OPENINGS,
        ToolStyle::Glm => glm::OPENINGS,
        ToolStyle::DeepSeek => deepseek::OPENINGS,
        ToolStyle::Mistral => mistral::OPENINGS,
        ToolStyle::Gemma => gemma::GEMMA_3,
        ToolStyle::Gemma4 => gemma::GEMMA_4,
    }
}
