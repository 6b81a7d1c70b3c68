//! Requests to tokens: prefill in chunks, the decode loop, the sampler, and what ends an answer.
//!
//! [`generate`] answers one [`Request`] on a [`Sequence`], which keeps what it has computed for the next turn. Tokens are
//! chosen by [`Sampler`], a pure function. The engine never looks inside a layer's state, and nothing here can change a
//! bit of the logits: chunks and reuse decide only how they are computed.
#![forbid(unsafe_code)]

mod error;
mod generation;
mod identity;
mod sampling;
mod text;

pub use error::EngineError;
pub use generation::{DEFAULT_MAX_TOKENS, Finish, Observer, Reply, Request, Sequence, Timings, generate};
pub use identity::{LogitsChain, token_sha};
pub use sampling::{Sampler, SamplingOptions, derived_seed};
pub use text::{chat_template, tokenizer};
