//! The other program of a comparison.

use std::path::Path;
use std::time::Duration;

use super::command::{self, Ended, Limits, Trouble};
use super::figures;
use super::measure::{Kind, Test};
use super::rates::median;
use crate::failure::Failure;

/// Most bytes read of what a command prints.
const LONGEST_OUTPUT: usize = 16 << 20;
/// Most bytes shown of what a failing command printed last.
const SHOWN_BYTES: usize = 600;

/// A command that measures another program.
pub(super) struct Peer {
    command: String,
    /// The model's path, quoted for the shell.
    model: String,
    limits: Limits,
}

impl Peer {
    /// A command with placeholders, for the model at `path`, each run of which may take `seconds`.
    pub(super) fn new(command: &str, path: &Path, seconds: usize) -> Result<Self, Failure> {
        if command.trim().is_empty() {
            return Err(Failure::new("--compare is empty: expected a command, see `samebit bench --help`"));
        }
        let Some(path) = path.to_str() else {
            return Err(Failure::new(format!(
                "the path {} is no UTF-8: a command of --compare cannot be told of it",
                path.display()
            )));
        };
        let time = Duration::from_secs(seconds as u64);
        let limits = Limits { time, output: LONGEST_OUTPUT, messages: SHOWN_BYTES };
        Ok(Self { command: command.to_owned(), model: quoted(path), limits })
    }

    /// The command as it was given.
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// The command with its placeholders filled in.
    fn command_for(&self, test: &Test) -> String {
        let (prompt, generate) = match test.kind {
            Kind::Prefill => (test.tokens_each, 0),
            Kind::Decode => (0, test.tokens_each),
        };
        self.command
            .replace("{threads}", &test.threads.to_string())
            .replace("{prompt}", &prompt.to_string())
            .replace("{generate}", &generate.to_string())
            .replace("{depth}", &test.depth.to_string())
            .replace("{batch}", &test.batch.to_string())
            .replace("{model}", &self.model)
    }

    /// Runs the command and takes its figure for `test`.
    pub(super) fn tokens_per_second(&self, test: &Test) -> Result<f64, Failure> {
        let command = self.command_for(test);
        let printed = run(&command, self.limits)?;
        let figures = figures::parse(&printed);
        let fitting: Vec<f64> =
            figures.iter().filter(|figure| figure.is_of(test)).map(|figure| figure.tok_s).collect();
        if !fitting.is_empty() {
            return Ok(median(&fitting));
        }
        let Test { kind, threads, batch, depth, tokens_each } = test;
        let found = match figures.as_slice() {
            [] => format!("found no figure in {:?}", end_of(printed.as_bytes())),
            [figure, ..] => format!("found {figure}"),
        };
        Err(Failure::new(format!(
            "`{command}` gave no figure for {kind} of {tokens_each} tokens with {threads} threads, {batch} sequences, \
             depth {depth}: {found}"
        ))
        .hint("`samebit bench --help` says what a command of --compare has to print"))
    }
}

/// What `command` prints on standard output.
fn run(command: &str, limits: Limits) -> Result<String, Failure> {
    let Ended { status, printed, messages } = command::run(command, limits).map_err(|trouble| {
        let failure = Failure::new(format!("`{command}` {trouble}"));
        match trouble {
            Trouble::System(_) => failure,
            Trouble::TooLong(_) => failure.hint(
                "see whether it ends when run by itself; if it is only slow, allow more with --compare-limit, or \
                 ask for less with --prompt, --generate and --depth",
            ),
            Trouble::TooMuch(_) => failure.hint("`samebit bench --help` says what it has to print"),
        }
    })?;
    if !status.success() {
        let last = if messages.is_empty() { "nothing".to_owned() } else { end_of(&messages) };
        return Err(Failure::new(format!("`{command}` failed ({status}); it said last: {last}")));
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// The last part of a text, in one line.
fn end_of(text: &[u8]) -> String {
    let start = text.len().saturating_sub(SHOWN_BYTES);
    String::from_utf8_lossy(&text[start..]).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text as one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECODE: Test = Test { kind: Kind::Decode, threads: 2, batch: 4, depth: 512, tokens_each: 128 };

    fn peer(command: &str) -> Peer {
        Peer::new(command, Path::new("it's/a model.gguf"), 60).unwrap()
    }

    #[test]
    fn placeholders_are_filled_in() {
        let command = "bench {model} -p {prompt} -n {generate} -d {depth} -t {threads} -b {batch} ${HOME}";
        assert_eq!(
            peer(command).command_for(&DECODE),
            r"bench 'it'\''s/a model.gguf' -p 0 -n 128 -d 512 -t 2 -b 4 ${HOME}"
        );
        let prefill = Test { kind: Kind::Prefill, depth: 0, tokens_each: 64, ..DECODE };
        assert!(peer(command).command_for(&prefill).contains("-p 64 -n 0 -d 0"));
    }

    #[test]
    fn the_shell_sees_the_path_as_it_is() {
        let peer = peer("printf %s {model}");
        assert_eq!(run(&peer.command_for(&DECODE), peer.limits).unwrap(), "it's/a model.gguf");
    }

    #[test]
    fn figures_are_taken_from_what_is_printed() {
        let echo = "echo hello; echo test=decode threads={threads} depth={depth} batch={batch} tok_s=12.5";
        assert_eq!(peer(echo).tokens_per_second(&DECODE).unwrap(), 12.5);
    }

    #[test]
    fn what_goes_wrong_is_told() {
        let error = |command: &str| peer(command).tokens_per_second(&DECODE).unwrap_err().to_string();
        let failed = error("echo no such device >&2; exit 3");
        assert!(failed.contains("exit status: 3") && failed.contains("no such device"), "{failed}");
        let silent = error("true");
        assert!(silent.contains("found no figure") && silent.contains("decode of 128"), "{silent}");
        let other = error("echo test=decode threads=1 depth=512 batch=4 tok_s=3");
        assert!(other.contains("threads=1"), "{other}");
        let endless = error("yes");
        assert!(endless.contains("more than"), "{endless}");
        let slow = Peer {
            limits: Limits { time: Duration::from_millis(100), ..peer("x").limits },
            ..peer("sleep 9")
        };
        let slow = slow.tokens_per_second(&DECODE).unwrap_err().to_string();
        assert!(
            slow.contains("`sleep 9` was not done after 0.1 seconds") && slow.contains("--compare-limit"),
            "{slow}"
        );
        assert!(Peer::new(" ", Path::new("m"), 60).is_err());
    }
}
