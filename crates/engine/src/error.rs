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
