//! Running a template so that it cannot take the program down.
//!
//! Fuel counts the instructions of a template, but single instructions can be made to recurse deeply (an expression of
//! a hundred thousand operators, a list in a list in a list) or to walk values of exponential size. Templates therefore
//! run on a thread of their own, with a stack that their length cannot exhaust, for a limited time.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Longest template, in bytes. Published ones have fewer than 40,000.
pub(super) const LONGEST_TEMPLATE: usize = 128 << 10;
/// Address space for the stack; memory is only taken for what is used of it. Both a template of
/// [`LONGEST_TEMPLATE`] that is one chain of operators and the deepest value that fuel lets a template build fit.
const STACK_BYTES: usize = 512 << 20;
/// Time that compiling or rendering may take. Published templates take milliseconds.
const LONGEST_RUN: Duration = Duration::from_secs(4);

/// Why there is no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stopped {
    /// The time was up. The thread is left behind until its step ends.
    #[error("it ran for more than {} seconds; published templates take milliseconds", LONGEST_RUN.as_secs())]
    TooSlow,
    /// The work panicked.
    #[error("it made the template engine fail; the template is damaged")]
    Panicked,
    /// The system gave no thread.
    #[error("the system refused a thread to run it on: {0}")]
    NoThread(String),
}

/// Does `work` on a thread with a deep stack, and gives up on it after a while.
pub(super) fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Stopped> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("template".to_owned()).stack_size(STACK_BYTES);
    // Nobody listens any more after the time is up; then the result is dropped.
    let spawned = thread.spawn(move || drop(sender.send(work())));
    spawned.map_err(|error| Stopped::NoThread(error.to_string()))?;
    receiver.recv_timeout(LONGEST_RUN).map_err(|error| match error {
        RecvTimeoutError::Timeout => Stopped::TooSlow,
        RecvTimeoutError::Disconnected => Stopped::Panicked,
    })
}

/// Text of a bounded length.
pub(super) struct BoundedText {
    bytes: Vec<u8>,
    longest: usize,
}

impl BoundedText {
    /// An empty text that may grow to `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { bytes: Vec::new(), longest }
    }

    /// The text written.
    pub(super) fn into_string(self) -> Result<String, std::string::FromUtf8Error> {
        String::from_utf8(self.bytes)
    }
}

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.longest - self.bytes.len() {
            return Err(io::Error::other(format!("the prompt became longer than {} bytes", self.longest)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
