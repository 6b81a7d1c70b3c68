//! Text in, token ids out, and back: tokenizers, the streaming detokenizer and chat templates.
//!
//! * [`Tokenizer`] turns text into ids. It is built from a Hugging Face `tokenizer.json`
//!   ([`Tokenizer::from_folder`], [`Tokenizer::from_json`]) or from the vocabulary inside a GGUF file
//!   ([`Tokenizer::from_gguf`]). Where engines differ, the model's original tokenizer decides.
//! * [`Tokenizer::decode`] and [`StreamDecoder`] turn ids into text. The bytes of each token are known exactly;
//!   a stream never contains half a character, and its chunks joined are the decoded whole.
//! * [`ChatTemplate`] renders a conversation as the model's own Jinja template says. There is no fallback template.
//! * [`ReplyParser`] takes a streamed reply apart into reasoning, text and tool calls; [`StopStrings`] ends it.
//!
//! Nothing here knows about weights or sampling, and nothing reaches the network.
#![forbid(unsafe_code)]

mod error;
mod reply;
mod template;
mod tokenizer;

pub use error::{TemplateError, TokenizerError};
pub use reply::{
    GrammarError, ReasoningStyle, ReplyFormat, ReplyParser, ReplyPart, StopError, StopStrings, ToolCall,
    ToolChoice, ToolDefinition, ToolStyle,
};
pub use template::{ChatRequest, ChatTemplate, CivilTime, TemplateSource};
pub use tokenizer::gguf::GgufVocabulary;
pub use tokenizer::stream::StreamDecoder;
pub use tokenizer::{Special, SpecialTokens, Tokenizer, TokenizerFiles};
