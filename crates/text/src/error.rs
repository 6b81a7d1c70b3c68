//! What can go wrong with a tokenizer or a chat template, said so that a person knows what to do.

/// A tokenizer could not be built, or was asked for something that it cannot do.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file or field holds something that no usable tokenizer has.
    #[error("{field}: {problem}")]
    Invalid {
        /// The file, and within it the field, that is wrong.
        field: String,
        /// What was found, what was expected and, where it is known, what to do.
        problem: String,
    },
    /// A name of a kind (tokenizer model, pre-tokenizer, decoder) that is not among those supported.
    #[error("{field}: {found:?} is not supported; supported: {supported}. {hint}")]
    Unsupported {
        /// The file, and within it the field, that names the kind.
        field: String,
        /// The name found.
        found: String,
        /// The supported names, separated by commas.
        supported: String,
        /// What to do.
        hint: &'static str,
    },
    /// An id that is no token of this vocabulary.
    #[error("token id {id} is not in the vocabulary of {size} tokens (ids 0 to {})", size.saturating_sub(1))]
    UnknownId {
        /// The id asked for.
        id: u32,
        /// How many ids the vocabulary has.
        size: usize,
    },
    /// A text that the tokenizer could not encode.
    #[error("the text could not be tokenized: {problem}")]
    Encode {
        /// What went wrong.
        problem: String,
    },
}

impl TokenizerError {
    pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), problem: problem.into() }
    }
}

/// A chat template is missing, malformed, or refused the conversation.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The model brings no chat template.
    #[error(
        "{looked_at} has no chat template, so a conversation cannot be turned into a prompt. \
         Give the prompt as it is (--raw), or use an instruction-tuned model"
    )]
    Missing {
        /// Where a template was looked for.
        looked_at: String,
    },
    /// The template itself, or the field that should hold it, is wrong.
    #[error("{origin}: {problem}")]
    Invalid {
        /// Where the template came from.
        origin: String,
        /// What is wrong, with the template's line where it is known.
        problem: String,
    },
    /// The template's own `raise_exception` refused the conversation.
    #[error("the chat template ({origin}{place}) refuses this conversation: {message}")]
    Refused {
        /// Where the template came from.
        origin: String,
        /// Line of the template and last message read, ready to print.
        place: String,
        /// The template's own words.
        message: String,
    },
    /// Rendering failed: an undefined value was used, types did not fit, or the budget ran out.
    #[error("the chat template ({origin}{place}) failed: {problem}")]
    Failed {
        /// Where the template came from.
        origin: String,
        /// Line of the template and last message read, ready to print.
        place: String,
        /// What happened.
        problem: String,
    },
    /// The messages are not a list of objects.
    #[error("messages: {problem}")]
    Messages {
        /// What was found and what was expected.
        problem: String,
    },
}
