//! A model's reply, taken apart while it streams: reasoning, text and calls of tools.
//!
//! [`ReplyFormat::detect`] reads from a chat template how its model marks calls and reasoning; [`ReplyParser`] takes
//! the reply's text in pieces. Every parser here is an automaton over single characters, so what it finds is a function
//! of the whole text and never of how it was cut. Each character is looked at a bounded number of times.
//!
//! What is not a call of an offered tool, complete and well formed, stays text, as written and in its place. Only
//! markup disappears: the markers, line breaks around reasoning, white space in front of a call and behind the last.
//!
//! Where a model's markers are special tokens the reply must be decoded with them
//! ([`StreamDecoder`](crate::StreamDecoder) with `skip_special` off), except for the token that ended it.

mod arguments;
mod detect;
mod finder;
mod grammar;
mod json_scan;
mod literal;
mod parser;
mod piece;
mod reasoning;
mod stop;
mod styles;
mod tools;

pub use grammar::{GrammarError, ToolChoice};
pub use parser::ReplyParser;
pub use stop::{StopError, StopStrings};
pub use tools::ToolDefinition;

/// How a model marks what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyFormat {
    /// How it calls tools, if its template has them.
    pub tools: Option<ToolStyle>,
    /// How it marks reasoning, if it reasons.
    pub reasoning: Option<ReasoningStyle>,
}

/// How a model writes a call. The parser of each is in `styles/`, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolStyle {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`: Qwen2.5, Qwen3, Hermes.
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`: Qwen3-Coder, Qwen3.5,
    /// Nemotron 3.
    QwenXml,
    /// A reply that is `{"name": .., "parameters": {..}}`, or several of them joined by `;`: Llama 3.1 to 3.3.
    LlamaJson,
    /// `[NAME(KEY=VALUE)]`, or calls in a block fenced as `tool_code` or `json`: Gemma 3.
    Gemma,
    /// `<|tool_call>call:NAME{KEY:VALUE}<tool_call|>`: Gemma 4.
    Gemma4,
    /// `[TOOL_CALLS][{"name": .., "arguments": {..}}]` or `[TOOL_CALLS]NAME[ARGS]{..}`: Mistral.
    Mistral,
    /// `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{..}<｜tool▁call▁end｜>..`: DeepSeek V3 to V3.1, R1.
    DeepSeek,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`: GLM-4.5 and later.
    Glm,
}

/// How a model marks reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningStyle {
    /// `<think>`, `</think>`.
    Think,
    /// `[THINK]`, `[/THINK]`: Magistral.
    BracketThink,
    /// `<|channel>thought`, `<channel|>`: Gemma 4.
    Channel,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool's name, one of those offered.
    pub name: String,
    /// The arguments: the text of a JSON object, with numbers, order of keys and white space as the model wrote them.
    pub arguments: String,
}

/// A piece of a reply. Adjacent pieces of the same kind belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyPart {
    /// Text of the reasoning.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A whole call.
    ToolCall(ToolCall),
}

/// Collects parts, joining adjacent texts.
#[derive(Debug, Default)]
struct Parts(Vec<ReplyPart>);

impl Parts {
    fn reasoning(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyPart::Reasoning(last)) => last.push_str(text),
            _ => self.0.push(ReplyPart::Reasoning(text.to_owned())),
        }
    }

    fn content(&mut self, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(ReplyPart::Content(last)) => last.push_str(text),
            _ => self.0.push(ReplyPart::Content(text.to_owned())),
        }
    }

    fn calls(&mut self, calls: Vec<ToolCall>) {
        self.0.extend(calls.into_iter().map(ReplyPart::ToolCall));
    }
}
