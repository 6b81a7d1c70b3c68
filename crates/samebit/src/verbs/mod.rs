//! What each verb does.

mod answer;
mod bench;
mod chat;
mod info;
mod interrupt;
mod list;
mod logits;
mod model;
mod perplexity;
mod prove;
mod pull;
mod run;
mod serve;
mod trace;
mod verify;

use std::process::ExitCode;

use serde_json::Value;

use crate::cli::Verb;
use crate::failure::Failure;
use crate::terminal;

/// Does what the command line says, and returns the exit code.
pub(crate) fn run(verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Serve(arguments) => serve::run(&arguments),
        Verb::Logits(arguments) => logits::run(&arguments),
        Verb::Info(arguments) => info::run(&arguments),
        Verb::Trace(arguments) => trace::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Perplexity(arguments) => perplexity::run(&arguments),
        Verb::Pull(arguments) => pull::run(&arguments),
        Verb::List(arguments) => list::run(&arguments),
        // These may do their work and still not end well.
        Verb::Prove(arguments) => return prove::run(&arguments),
        Verb::Verify(arguments) => return verify::run(&arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Prints one JSON object on standard output.
fn print_json(object: &Value) -> Result<(), Failure> {
    Ok(terminal::print(&format!("{object:#}\n"))?)
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_for_people() {
        assert_eq!(size(1023), "1023 bytes");
        assert_eq!(size(98_362_432), "93.8 MiB");
        assert_eq!(size(3 << 30), "3.0 GiB");
    }
}
