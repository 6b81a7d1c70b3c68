//! OpenAI's APIs.

pub(crate) mod chat;
pub(crate) mod completions;
mod logprobs;
mod script;
