//! The other program of a comparison.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

use super::figures;
use super::measure::{Kind, Test};
use super::rates::median;
use crate::failure::Failure;

/// Most bytes read of what a command prints.
const LONGEST_OUTPUT: u64 = 4 << 20;
/// Most bytes shown of what a failing command printed last.
const SHOWN_BYTES: u64 = 600;

/// A command that measures another program.
pub(super) struct Peer {
    command: String,
    /// The model's path, quoted for the shell.
    model: String,
}

impl Peer {
    /// A command with placeholders, for the model at `path`.
    pub(super) fn new(command: &str, path: &Path) -> Result<Self, Failure> {
        if command.trim().is_empty() {
            return Err(Failure::new("--compare is empty: expected a command, see `samebit bench --help`"));
        }
        let Some(path) = path.to_str() else {
            return Err(Failure::new(format!(
                "the path {} is no UTF-8: a command of --compare cannot be told of it",
                path.display()
            )));
        };
        Ok(Self { command: command.to_owned(), model: quoted(path) })
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
        let printed = run(&command)?;
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
fn run(command: &str) -> Result<String, Failure> {
    let failure = |error: std::io::Error| Failure::new(format!("cannot run `{command}`: {error}"));
    // A file takes any amount of messages without anyone reading them meanwhile.
    let mut messages = tempfile::tempfile().map_err(failure)?;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(messages.try_clone().map_err(failure)?)
        .spawn()
        .map_err(failure)?;
    let mut printed = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(LONGEST_OUTPUT + 1).read_to_end(&mut printed).map_err(failure)?;
    }
    let status = child.wait().map_err(failure)?;
    if printed.len() as u64 > LONGEST_OUTPUT {
        return Err(Failure::new(format!("`{command}` printed more than {LONGEST_OUTPUT} bytes")));
    }
    if !status.success() {
        let length = messages.seek(SeekFrom::End(0)).map_err(failure)?;
        messages.seek(SeekFrom::Start(length.saturating_sub(SHOWN_BYTES))).map_err(failure)?;
        let mut last = Vec::new();
        messages.read_to_end(&mut last).map_err(failure)?;
        let last = if last.is_empty() { "nothing".to_owned() } else { end_of(&last) };
        return Err(Failure::new(format!("`{command}` failed ({status}); it said last: {last}")));
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// The last part of a text, in one line.
fn end_of(text: &[u8]) -> String {
    let start = text.len().saturating_sub(SHOWN_BYTES as usize);
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
        Peer::new(command, Path::new("it's/a model.gguf")).unwrap()
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
        assert_eq!(run(&peer("printf %s {model}").command_for(&DECODE)).unwrap(), "it's/a model.gguf");
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
        assert!(Peer::new(" ", Path::new("m")).is_err());
    }
}
