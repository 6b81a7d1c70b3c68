//! Why a bank cannot be opened.

use std::path::PathBuf;

/// Why a bank cannot be opened. Each can be had without its folder by opening it with no disk options.
#[derive(Debug, thiserror::Error)]
pub enum BankError {
    /// Another process has it.
    #[error(
        "the session folder {} is in use by another process: give this one another folder, or none",
        folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// Written by a version whose layout is not known here.
    #[error(
        "the session folder {} has layout version {found}, this program reads and writes {expected}: give it another \
         folder, or move this one away",
        folder.display()
    )]
    Format {
        /// The folder.
        folder: PathBuf,
        /// The version found.
        found: String,
        /// The version known here.
        expected: u32,
    },
    /// The folder cannot be made, read or written.
    #[error("the session folder {} cannot be used: {path}: {message}: make it a folder that can be written, or \
             give another", folder.display(), path = path.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What was touched in it.
        path: PathBuf,
        /// What the system said.
        message: String,
    },
    /// An option is out of its bounds.
    #[error("the bank's {option} is {found}, expected {expected}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        found: String,
        /// What would have been right.
        expected: &'static str,
    },
}
