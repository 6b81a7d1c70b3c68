//! Everything that can be wrong with a checkpoint, told so that a person can act on it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use samebit_arith::EncodedError;

/// Why a checkpoint cannot be opened, or a part of it cannot be used.
///
/// Every message is one paragraph: the file, the field or tensor, what was found, what was expected.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `open`, `read`, `map`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Nothing that can be read as a checkpoint is at this path.
    #[error("{} is no checkpoint: {reason}", path.display())]
    NotACheckpoint {
        /// The path as given.
        path: PathBuf,
        /// What is there instead, and what would have been accepted.
        reason: String,
    },
    /// The bytes of a file contradict its format, each other, or the size of the file.
    #[error("{}: {place}: found {found}, expected {expected}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The field, key or tensor.
        place: String,
        /// What the file holds.
        found: String,
        /// What would have been right, and what to do where that is known.
        expected: String,
    },
    /// The file is well formed and uses something that samebit does not compute with.
    #[error("{}: {place}: {found} is not supported yet; supported: {supported}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The field, key or tensor.
        place: String,
        /// What the file uses.
        found: String,
        /// What would work.
        supported: String,
    },
    /// No tensor has this name.
    #[error("{}: there is no tensor {name}{}; this is {about}", file.display(), near_names(near))]
    MissingTensor {
        /// The checkpoint.
        file: PathBuf,
        /// The name that was asked for.
        name: String,
        /// Names that look like it, best first.
        near: Vec<String>,
        /// What the checkpoint seems to be.
        about: String,
    },
    /// A tensor has another shape than the model needs.
    #[error("{}: tensor {tensor} has shape {found:?}, expected {expected}", file.display())]
    Shape {
        /// The file that holds the tensor.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape, outermost first.
        found: Vec<usize>,
        /// The shape that was needed.
        expected: String,
    },
    /// A required metadata or configuration key is absent.
    #[error("{}: the key {key} is missing, expected {expected}", file.display())]
    MissingKey {
        /// The file.
        file: PathBuf,
        /// The key, with the path to it.
        key: String,
        /// The type of its value.
        expected: &'static str,
    },
    /// Shapes that cannot be stored as the format says.
    #[error("{}: tensor {tensor}: {source}", file.display())]
    Encoded {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// The contradiction.
        source: EncodedError,
    },
}

impl CheckpointError {
    /// An [`CheckpointError::Io`] from its parts, for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// A [`CheckpointError::Malformed`] from its parts.
    #[expect(clippy::needless_pass_by_value, reason = "callers build the parts in place")]
    pub(crate) fn malformed(
        file: &Path,
        place: impl ToString,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        Self::Malformed {
            file: file.to_path_buf(),
            place: place.to_string(),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

fn near_names(near: &[String]) -> String {
    let mut text = String::new();
    for (index, name) in near.iter().enumerate() {
        let lead = if index == 0 { " (near names: " } else { ", " };
        let _ = write!(text, "{lead}{name}");
    }
    if !text.is_empty() {
        text.push(')');
    }
    text
}

/// Shortens text out of a file for an error message: control characters are escaped, long text is cut.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown: String = text.chars().take(LONGEST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// A message of another library, cut in the middle when it repeats a long piece of the file.
pub(crate) fn short(message: &impl std::fmt::Display) -> String {
    const LONGEST: usize = 300;
    const ENDING: usize = 80;
    let message = message.to_string();
    if message.chars().count() <= LONGEST {
        return message;
    }
    let start: String = message.chars().take(LONGEST - ENDING).collect();
    let skipped = message.chars().count() - ENDING;
    let end: String = message.chars().skip(skipped).collect();
    format!("{start} … {end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(quoted("a\"\n"), r#""a\"\n""#);
        assert_eq!(quoted(&"é".repeat(200)).chars().count(), 83);
        assert_eq!(short(&"fine"), "fine");
        let long = format!("starts {} ends", "é".repeat(5000));
        let cut = short(&long);
        assert!(cut.starts_with("starts") && cut.ends_with(" ends") && cut.chars().count() == 303, "{cut}");
    }
}
