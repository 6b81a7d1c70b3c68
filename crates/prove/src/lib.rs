//! Checks that a model's answer is the same, bit for bit, however it is computed, and the receipts of them.
//!
//! [`prove`] runs the checks on a model and returns a [`Receipt`]. A check compares bits, never values within a
//! tolerance, and never tries twice; it fails when it has no case, and is `unchecked`, not passed, when the path that
//! it is about was not taken. The arithmetic itself is elsewhere: nothing here computes a number
//! of a model.
#![forbid(unsafe_code)]

mod checks;
mod error;
mod findings;
mod options;
mod passes;
mod random;
mod receipt;
pub mod report;
mod run;
mod sharing;

pub use error::ProveError;
pub use options::{CheckName, Options, Subject, UnknownCheck};
pub use receipt::{
    Case, Check, Difference, FileRecord, MachineRecord, ModelRecord, OptionsRecord, Proof, Receipt, Timing,
    Verdict,
};
pub use run::prove;
