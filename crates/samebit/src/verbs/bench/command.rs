//! Running a command of the shell that is never left behind: neither when it takes too long or prints too much, nor when
//! this program ends first, however it ends.

use std::fmt;
use std::io::{self, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What a command may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    /// Bytes on standard output.
    pub(super) output: usize,
    /// Bytes kept of the end of standard error; the rest is read and forgotten.
    pub(super) messages: usize,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) printed: Vec<u8>,
    /// The end of what it wrote to standard error.
    pub(super) messages: Vec<u8>,
}

/// Why a command did not end by itself.
#[derive(Debug)]
pub(super) enum Trouble {
    System(io::Error),
    TooLong(Duration),
    TooMuch(usize),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// The end of a sentence that begins with the command.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => write!(f, "cannot be run: {error}"),
            Self::TooLong(limit) => {
                write!(f, "was not done after {} seconds and was stopped", limit.as_secs_f64())
            }
            Self::TooMuch(limit) => write!(f, "printed more than {limit} bytes and was stopped"),
        }
    }
}

/// What threads that look after a command tell.
enum Event {
    Ended(io::Result<ExitStatus>),
    Printed(io::Result<Vec<u8>>),
    Said(Vec<u8>),
}

/// Runs `command` to its end. Whatever it started and has not ended by then is stopped.
pub(super) fn run(command: &str, limits: Limits) -> Result<Ended, Trouble> {
    let start = Instant::now();
    let group = Group::new()?;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = group.adopt(&mut shell).spawn()?;
    let mut group = Some(group);

    let (events, received) = channel();
    if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
        // One byte more than allowed, so that too much can be told from just enough.
        let output = output.take(limits.output as u64 + 1);
        watch(&events, move || Event::Printed(all_of(output)))?;
        watch(&events, move || Event::Said(end_of(errors, limits.messages)))?;
    }
    watch(&events, move || Event::Ended(child.wait()))?;

    let (mut status, mut printed, mut messages) = (None, None, None);
    loop {
        let left = limits.time.saturating_sub(start.elapsed());
        match received.recv_timeout(left).map_err(|_| Trouble::TooLong(limits.time))? {
            Event::Ended(ended) => {
                status = Some(ended?);
                // What it left running would keep its output open.
                drop(group.take());
            }
            Event::Printed(bytes) => {
                let bytes = bytes?;
                if bytes.len() > limits.output {
                    return Err(Trouble::TooMuch(limits.output));
                }
                printed = Some(bytes);
            }
            Event::Said(bytes) => messages = Some(bytes),
        }
        if let (Some(status), Some(_), Some(_)) = (status, &printed, &messages) {
            let (printed, messages) = (printed.unwrap_or_default(), messages.unwrap_or_default());
            return Ok(Ended { status, printed, messages });
        }
    }
}

/// Sends what `wait` returns, from a thread of its own. Nobody may be listening by then.
fn watch(events: &Sender<Event>, wait: impl FnOnce() -> Event + Send + 'static) -> io::Result<()> {
    let events = events.clone();
    let tell = move || drop(events.send(wait()));
    thread::Builder::new().name("command".to_owned()).spawn(tell).map(drop)
}

fn all_of(mut stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last `most` bytes of a stream.
fn end_of(mut stream: impl Read, most: usize) -> Vec<u8> {
    let mut tail = Tail { bytes: Vec::new(), most };
    // A stream that breaks has ended.
    let _ = io::copy(&mut stream, &mut tail);
    tail.bytes
}

/// Keeps the last bytes of what is written to it.
struct Tail {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(&bytes[bytes.len().saturating_sub(self.most)..]);
        self.bytes.drain(..self.bytes.len().saturating_sub(self.most));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A process group that ends when this is dropped, or when this program does.
///
/// Its leader is a shell that waits for its standard input to close, which the system does when this program ends in
/// whatever way, and then kills the group, itself included. While the leader has not been waited for its number belongs
/// to nobody else, so no stranger can be hit.
#[cfg(unix)]
struct Group {
    leader: std::process::Child,
}

#[cfg(unix)]
impl Group {
    fn new() -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        // Signals meant for the command, and sent to all of its group, are not for the leader.
        let script = "trap '' HUP INT QUIT TERM; echo; read -r _; kill -s KILL 0";
        let mut leader = Command::new("sh");
        leader.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut group = Self { leader: leader.process_group(0).spawn()? };
        // Its line says that it has come past the trap: no command may signal the group before.
        if let Some(mut ready) = group.leader.stdout.take() {
            ready.read_exact(&mut [0])?;
        }
        Ok(group)
    }

    /// Makes a command start within the group.
    fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        use std::os::unix::process::CommandExt;
        // Process numbers are positive and of this type.
        command.process_group(self.leader.id() as i32)
    }
}

#[cfg(unix)]
impl Drop for Group {
    fn drop(&mut self) {
        drop(self.leader.stdin.take());
        // It kills itself; there is nothing to do about a leader that cannot be waited for.
        let _ = self.leader.wait();
    }
}

/// Elsewhere there are no process groups, and what a command started is left to itself.
#[cfg(not(unix))]
struct Group;

#[cfg(not(unix))]
impl Group {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    fn adopt<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { time: Duration::from_secs(60), output: 100, messages: 8 };

    #[test]
    fn both_outputs_and_the_status_are_kept() {
        let ended = run("printf figure; printf 'a long message' >&2; exit 3", LIMITS).unwrap();
        assert_eq!((ended.status.code(), &ended.printed[..]), (Some(3), &b"figure"[..]));
        assert_eq!(ended.messages, b" message");
    }

    #[test]
    fn a_command_may_print_as_much_as_allowed() {
        let print = |bytes: usize| run(&format!("printf '%{bytes}s' x"), LIMITS);
        assert_eq!(print(100).unwrap().printed.len(), 100);
        assert!(matches!(print(101), Err(Trouble::TooMuch(100))));
        assert!(matches!(run("yes", LIMITS), Err(Trouble::TooMuch(100))));
    }

    #[test]
    fn messages_without_end_are_neither_kept_nor_waited_for() {
        let short = Limits { time: Duration::from_millis(300), ..LIMITS };
        assert!(matches!(run("yes >&2", short), Err(Trouble::TooLong(_))));
    }

    #[test]
    fn what_a_command_leaves_running_is_not_waited_for() {
        let ended = run("sleep 1000 & echo done", LIMITS).unwrap();
        assert_eq!(ended.printed, b"done\n");
    }

    #[test]
    fn a_command_may_signal_all_of_its_group() {
        let ended = run("trap '' TERM; sleep 1000 & kill -s TERM 0; echo done", LIMITS).unwrap();
        assert_eq!(ended.printed, b"done\n");
    }

    #[test]
    fn a_command_that_closes_its_outputs_is_stopped_too() {
        let short = Limits { time: Duration::from_millis(300), ..LIMITS };
        assert!(matches!(run("exec >&- 2>&-; sleep 1000", short), Err(Trouble::TooLong(_))));
    }
}
