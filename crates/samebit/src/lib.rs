//! The command line of samebit, and getting models.
//!
//! The binary only calls [`main`]. Rust programs that want a model in the cache use [`pull`]; inference itself is in
//! `samebit-engine` and below.
#![forbid(unsafe_code)]

mod cli;
mod failure;
mod output_file;
mod progress;
pub mod pull;
mod tensor_file;
mod terminal;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

/// Runs the program with the arguments of this process. Exit code 0 is success; 2 is any failure, told on standard error
/// in one paragraph; `prove` also ends with 1 or 3, as its receipt says.
pub fn main() -> ExitCode {
    match verbs::run(cli::Cli::parse().verb) {
        Ok(code) => code,
        Err(failure) => {
            terminal::message(failure);
            ExitCode::from(failure::EXIT_CODE)
        }
    }
}
