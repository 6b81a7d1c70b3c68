//! Everything that can go wrong between a checkpoint and an answer, told so that a person can act on it.

use std::path::{Path, PathBuf};

use samebit_arith::CpuError;
use samebit_checkpoint::CheckpointError;

/// Why a checkpoint is not a model that samebit can run.
///
/// Every message is one paragraph: the file, the field or tensor, what was found, what was expected.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The checkpoint itself is at fault.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The machine cannot run what is needed.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A field of the configuration has a value that cannot be, alone or beside the others.
    #[error("{}: {field}: found {found}, expected {expected}", file.display())]
    Field {
        /// The file.
        file: PathBuf,
        /// The field, with the path to it.
        field: String,
        /// Its value.
        found: String,
        /// What would have been right.
        expected: String,
    },
    /// A field asks for something that samebit does not compute.
    #[error("{}: {field}: {found} is not supported yet; supported: {supported}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The field, with the path to it.
        field: String,
        /// Its value.
        found: String,
        /// The values that work.
        supported: String,
    },
    /// Tensors are missing, or have other shapes than the configuration asks for.
    #[error("{}: {count} of the tensors that its configuration asks for cannot be used: {}", path.display(), problems.join("; "))]
    Tensors {
        /// The checkpoint.
        path: PathBuf,
        /// How many are wrong.
        count: usize,
        /// What is wrong with the first few.
        problems: Vec<String>,
    },
}

impl ModelError {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers hand over texts and numbers, made on the spot"
    )]
    pub(crate) fn field(file: &Path, field: &str, found: impl ToString, expected: impl ToString) -> Self {
        Self::Field {
            file: file.to_path_buf(),
            field: field.to_owned(),
            found: shortened(found.to_string()),
            expected: expected.to_string(),
        }
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers hand over texts and numbers, made on the spot"
    )]
    pub(crate) fn unsupported(
        file: &Path,
        field: &str,
        found: impl ToString,
        supported: impl ToString,
    ) -> Self {
        Self::Unsupported {
            file: file.to_path_buf(),
            field: field.to_owned(),
            found: shortened(found.to_string()),
            supported: supported.to_string(),
        }
    }
}

/// A value out of a file, cut where it would flood the message.
fn shortened(text: String) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Why a pass was refused. Nothing was computed and no state was touched.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// A span without tokens has no row to compute.
    #[error("span {span} of the batch holds no tokens, expected at least one")]
    EmptySpan {
        /// Which span, from 0.
        span: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error("token {index} of span {span} is id {token}, but the model's ids are 0 to {}", vocabulary.saturating_sub(1))]
    Token {
        /// Which span, from 0.
        span: usize,
        /// Which token of the span, from 0.
        index: usize,
        /// The id.
        token: u32,
        /// Number of ids the model has.
        vocabulary: usize,
    },
    /// More positions than the model was made for.
    #[error(
        "span {span} would bring its sequence to {wanted} tokens ({stored} stored, {added} added), but the model's context is {context}"
    )]
    Context {
        /// Which span, from 0.
        span: usize,
        /// Tokens the sequence holds.
        stored: usize,
        /// Tokens of the span.
        added: usize,
        /// Their sum.
        wanted: usize,
        /// The model's limit.
        context: usize,
    },
    /// Logits were asked for a row that the span does not have.
    #[error("logits of row {row} were asked for, but span {span} has rows 0 to {}", rows.saturating_sub(1))]
    LogitsRow {
        /// Which span, from 0.
        span: usize,
        /// The row.
        row: usize,
        /// Rows of the span.
        rows: usize,
    },
    /// The state was made by another model.
    #[error("the state of span {span} belongs to {found}, this model needs {expected}")]
    ForeignState {
        /// Which span, from 0.
        span: usize,
        /// Identity of the state.
        found: String,
        /// Identity that the model asks for.
        expected: String,
    },
    /// An embedding row could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// Why a stored state cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The sequence is shorter than the position to go back to.
    #[error("cannot go back to position {to}: the sequence holds {length} tokens")]
    Rollback {
        /// The position asked for.
        to: usize,
        /// Tokens the sequence holds.
        length: usize,
    },
    /// The bytes do not begin as an encoded state does.
    #[error("this is no encoded sequence state: it does not begin with the signature of one")]
    NotAState,
    /// Written by a version whose layout is not known here.
    #[error("the encoded state has layout version {found}, expected {expected}")]
    Version {
        /// The version found.
        found: u32,
        /// The version that is read.
        expected: u32,
    },
    /// Written for another model, plan or cache type.
    #[error("the encoded state belongs to {found}, this model and cache type need {expected}")]
    Identity {
        /// Identity in the bytes.
        found: String,
        /// Identity needed.
        expected: String,
    },
    /// The bytes contradict themselves.
    #[error("the encoded state is damaged: {place}: found {found}, expected {expected}")]
    Damaged {
        /// The field.
        place: &'static str,
        /// What it holds.
        found: String,
        /// What would have been right.
        expected: String,
    },
}
