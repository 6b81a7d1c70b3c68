//! How a verb fails: one paragraph, and where it is known a hint what to do. The exit code is 2.

use std::fmt;
use std::io;
use std::path::Path;

use crate::terminal;

/// Exit code of every failure; 1 is kept for comparisons that find a difference.
pub(crate) const EXIT_CODE: u8 = 2;

/// Why a verb could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure with this message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// A file that could not be read or written.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(format!("cannot {action} {}: {error}", path.display()))
    }

    /// The same failure with a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names out of files may hold anything; a message stays one paragraph and cannot steer the terminal.
        let paragraph = |text: &str| terminal::shown(&text.replace('\n', " ")).into_owned();
        write!(f, "error: {}", paragraph(&self.message))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {}", paragraph(hint)),
            None => Ok(()),
        }
    }
}

/// Adds hints to errors on their way.
pub(crate) trait OrHint<T> {
    /// The value, or the error with a hint.
    fn or_hint(self, hint: &str) -> Result<T, Failure>;
}

impl<T, E: Into<Failure>> OrHint<T> for Result<T, E> {
    fn or_hint(self, hint: &str) -> Result<T, Failure> {
        self.map_err(|error| error.into().hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_paragraph_and_a_hint() {
        let failure = Failure::new("model.gguf: bad\nname \x1b[2J").hint("try another");
        assert_eq!(failure.to_string(), "error: model.gguf: bad name \u{241b}[2J\nhint: try another");
    }
}
