//! Requests to tokens: prefill in chunks, the decode loop, the sampler, and what ends an answer.
//!
//! [`generate`] answers one [`Request`] on a [`Sequence`], which keeps what it has computed for the next turn;
//! [`Scheduler`] answers many at once, and [`Service`] is the thread that does so. Tokens are
//! chosen by [`Sampler`], a pure function. The engine never looks inside a layer's state, and nothing here can change a
//! bit of the logits: chunks and reuse decide only how they are computed.
#![forbid(unsafe_code)]

mod bank;
mod error;
mod generation;
mod identity;
mod logits;
pub mod receipt;
mod sampling;
mod scheduler;
mod sequence;
mod text;
mod turn;

pub use bank::{
    Bank, BankError, BankIdentity, BankOptions, BankStats, DiskOptions, Lookup, MissReason, Source, Stored,
};
pub use error::EngineError;
pub use generation::{DEFAULT_MAX_TOKENS, Finish, Flow, Observer, Reply, Request, Timings, generate};
pub use identity::{LogitsChain, token_sha};
pub use logits::{
    Constraint, ConstraintCompiler, ConstraintSpec, LogitBias, LogitOptions, LogitsPipeline, Penalties,
};
pub use sampling::{Sampler, SamplingOptions, derived_seed};
pub use scheduler::{
    Client, Health, Load, MemoryPlan, Priority, Scheduler, SchedulerOptions, Service, Submission,
};
pub use sequence::Sequence;
pub use text::{chat_template, tokenizer};
