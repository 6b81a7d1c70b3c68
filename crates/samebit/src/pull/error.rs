//! What can go wrong on the way to a model.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::catalogue;

/// One source that was tried, and why it did not help.
#[derive(Debug)]
pub struct Attempt {
    /// Which source, in words.
    pub source: String,
    /// Why not.
    pub error: PullError,
}

/// Why a model could not be had. Every message is one paragraph and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The name is not in the list.
    #[error("there is no model named {name:?}; listed models: {}", catalogue::names())]
    UnknownName {
        /// The name as given.
        name: String,
    },
    /// Neither a name nor a path nor a hub reference.
    #[error(
        "there is no file or folder {model:?}, and no listed model of that name (listed: {}); from the hub: hf:owner/repo[@revision][:file]",
        catalogue::names()
    )]
    NoSuchModel {
        /// The text as given.
        model: String,
    },
    /// Text after `hf:` that is no reference.
    #[error("{text:?} is no hub reference: {reason}; expected hf:owner/repo[@revision][:file]")]
    BadReference {
        /// The text as given, without `hf:`.
        text: String,
        /// Which part is wrong.
        reason: &'static str,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
    #[error("there is no folder to keep models in: set HOME or XDG_CACHE_HOME to an absolute path")]
    NoCacheFolder,
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The hub may not be asked.
    #[error("HF_HUB_OFFLINE is set, so the hub was not asked")]
    Offline,
    /// No connection to the hub.
    #[error("{endpoint} cannot be reached ({reason})")]
    Unreachable {
        /// The hub's address.
        endpoint: String,
        /// The network's reason.
        reason: String,
    },
    /// The hub answered with something other than the file.
    #[error("{url}: HTTP status {status}{}", status_hint(*status))]
    Status {
        /// What was asked for.
        url: String,
        /// The status code.
        status: u16,
    },
    /// The hub answered with something that is not what its interface promises.
    #[error("{url}: {reason}")]
    BadAnswer {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The transfer broke off again and again.
    #[error(
        "{url}: the transfer broke off after {have} bytes ({reason}); run the same command again to continue there"
    )]
    Interrupted {
        /// What was being fetched.
        url: String,
        /// Bytes that are kept.
        have: u64,
        /// The last reason.
        reason: String,
    },
    /// The source has another size than the model.
    #[error("{url} has {found} bytes, expected {expected}: this is not the file that is meant")]
    WrongSize {
        /// What was asked for.
        url: String,
        /// Size found.
        found: u64,
        /// Size expected.
        expected: u64,
    },
    /// The bytes are not the model.
    #[error(
        "{from} gave wrong bytes for {file}: digest {found}, expected {expected}; they were deleted and not used"
    )]
    WrongDigest {
        /// The source.
        from: String,
        /// The file.
        file: String,
        /// Digest found.
        found: String,
        /// Digest expected.
        expected: String,
    },
    /// `pip` could not be started or failed.
    #[error("{command}: {reason}")]
    Pip {
        /// The command line.
        command: String,
        /// The end of what it printed.
        reason: String,
    },
    /// A package is not what the list says.
    #[error("package {package}: {reason}")]
    BadPackage {
        /// Distribution name and version.
        package: String,
        /// What is wrong.
        reason: String,
    },
    /// The repository holds no model that is understood, or several.
    #[error("{repository}: {reason}")]
    Choice {
        /// `owner/name@revision`.
        repository: String,
        /// What was found, what was expected.
        reason: String,
    },
    /// No source had it.
    #[error("{file} could not be fetched: {}. Or put the file into {} yourself", attempts_text(attempts), folder.display())]
    NoSource {
        /// The file.
        file: String,
        /// Where it belongs.
        folder: PathBuf,
        /// What was tried.
        attempts: Vec<Attempt>,
    },
}

impl PullError {
    /// A [`PullError::Io`] from its parts, for `map_err`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Whether another source may be tried after this: not where this machine is at fault, nor where a source gave other
    /// bytes under the right name, which somebody should look at.
    pub(super) fn allows_another_source(&self) -> bool {
        !matches!(self, Self::Io { .. } | Self::WrongDigest { .. })
    }
}

fn status_hint(status: u16) -> &'static str {
    match status {
        401 | 403 => " (not allowed: accept the model's terms on its page and set HF_TOKEN)",
        404 => " (no such repository, revision or file)",
        429 => " (too many requests: wait, or set HF_TOKEN)",
        _ => "",
    }
}

fn attempts_text(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let lead = if index == 0 { "" } else { "; " };
        let _ = write!(text, "{lead}from {}: {}", attempt.source, attempt.error);
    }
    text
}
