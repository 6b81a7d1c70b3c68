//! The HTTP server: OpenAI and Anthropic compatible routes over one engine.
//!
//! [`Server`] holds a model, its tokenizer and one engine thread; tokio carries the connections. Every request is read
//! field by field into what the engine takes (`ask`): what could change an answer and is not there is refused by name,
//! and nothing is ever cut off. Answers come back over a channel (`answer`); when nobody listens any more, because a
//! client went away, the engine stops within one step. Each API writes them in its own words (`openai`, `responses`, `anthropic`).
//!
//! What holds where a request says nothing:
//! * tokens are chosen as `generation_config.json` recommends, if it says `do_sample`; else greedily;
//! * an answer has at most 1,024 tokens, or what the context leaves;
//! * the seed is derived from the prompt and the server's salt, so that the same request gets the same answer. Choice
//!   `i` of `n` takes the seed of the first plus `i`;
//! * what was computed for a request may be reused by later ones with the same `cache_salt`. It changes no bit.
#![forbid(unsafe_code)]

mod about;
mod answer;
mod anthropic;
mod ask;
mod error;
mod fields;
mod http;
mod id;
mod metrics;
mod notify;
mod openai;
mod process;
mod responses;
mod server;
mod state;
mod store;
mod tokens;

pub use process::serve;
pub use server::{Options, ServeError, Server};
