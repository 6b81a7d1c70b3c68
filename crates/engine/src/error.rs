//! Why a request cannot be answered, told so that a person can act on it.

use samebit_models::{ForwardError, StateError};
use samebit_text::{TemplateError, TokenizerError};

/// Why a request was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// An option is out of its bounds.
    #[error("{option} is {found}: expected {expected}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The value given.
        found: String,
        /// The bounds.
        expected: String,
    },
    /// There is nothing to answer.
    #[error("the prompt is empty: expected at least one token")]
    EmptyPrompt,
    /// A token id that the model does not have.
    #[error("prompt token {index} is id {id}, but the model's ids are 0 to {}", vocabulary.saturating_sub(1))]
    PromptToken {
        /// Which token of the prompt, from 0.
        index: usize,
        /// The id.
        id: u32,
        /// Number of ids the model has.
        vocabulary: usize,
    },
    /// The prompt, or the prompt and the longest answer asked for, do not fit. Nothing was cut off.
    #[error("the prompt has {prompt} tokens and the answer may take {answer} more, {} in all, but the model's context is \
             {context} tokens: shorten the prompt or ask for a shorter answer", prompt.saturating_add(*answer))]
    Context {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that the answer may take, at least 1.
        answer: usize,
        /// Tokens that the model's context has.
        context: usize,
    },
    /// The model computed something that is no number, so there is no token to choose.
    #[error(
        "the logits for position {position} hold a NaN, so no token can be chosen: the checkpoint is damaged or \
             its numbers overflow"
    )]
    NotANumber {
        /// The position that the token would have had.
        position: usize,
    },
    /// Too many requests wait already.
    #[error(
        "{waiting} requests wait and {running} run, which is as many as this engine takes: try again later"
    )]
    Busy {
        /// Requests that wait.
        waiting: usize,
        /// Requests that run.
        running: usize,
    },
    /// The request could outgrow the memory for states, even alone.
    #[error(
        "prompt and answer may take {tokens} tokens, and the state of so many takes {bytes} bytes, but {available} are \
             set aside for states, which hold {fits} tokens: shorten the prompt, ask for a shorter answer, or give the \
             engine more memory"
    )]
    Memory {
        /// Tokens that prompt and answer may have.
        tokens: usize,
        /// Bytes of their state.
        bytes: u64,
        /// Bytes for all states.
        available: u64,
        /// Tokens that would fit.
        fits: usize,
    },
    /// A pass over the rows of several requests was refused.
    #[error("the forward pass that this request was part of failed: {0}")]
    Pass(String),
    /// The engine has ended.
    #[error("the engine no longer answers: {0}")]
    ShutDown(String),
    /// The system gave no thread.
    #[error("the engine's thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// The forward pass refused.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// The state of the sequence could not be brought where it should be.
    #[error(transparent)]
    State(#[from] StateError),
    /// The text could not be turned into ids or back.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Whoever follows the answer could not take it.
    #[error("the answer could not be passed on: {0}")]
    Observer(#[from] std::io::Error),
    /// A file of the checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] samebit_checkpoint::CheckpointError),
    /// The chat template is missing, wrong, or refuses the conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),
}
