//! Stop sequences in a stream of text.

use std::collections::VecDeque;

/// Most sequences of one request.
const MOST: usize = 16;
/// Longest sequence, in bytes.
const LONGEST: usize = 256;

/// Stop sequences that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// More than are allowed.
    #[error("{0} stop sequences, expected at most {MOST}")]
    TooMany(usize),
    /// An empty one would stop every reply before its start.
    #[error("stop sequence {0} is empty")]
    Empty(usize),
    /// Longer than is allowed.
    #[error("stop sequence {index} has {bytes} bytes, expected at most {LONGEST}")]
    TooLong {
        /// Which one.
        index: usize,
        /// Its length.
        bytes: usize,
    },
}

/// Finds the first stop sequence in a text that comes in pieces.
///
/// The sequence that starts first counts; of several that start there, the longest that the text holds. Text is held
/// back only while a sequence may be in it.
#[derive(Clone, Debug)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that is not decided.
    held: VecDeque<u8>,
    /// A sequence that `held` starts with, while a longer one is still possible.
    found: Option<usize>,
    matched: Option<usize>,
}

impl StopStrings {
    /// A matcher of `stops`.
    ///
    /// # Errors
    /// If they are too many, too long or empty.
    pub fn new(stops: &[String]) -> Result<Self, StopError> {
        if stops.len() > MOST {
            return Err(StopError::TooMany(stops.len()));
        }
        for (index, stop) in stops.iter().enumerate() {
            match stop.len() {
                0 => return Err(StopError::Empty(index)),
                bytes if bytes > LONGEST => return Err(StopError::TooLong { index, bytes }),
                _ => {}
            }
        }
        Ok(Self { stops: stops.to_vec(), held: VecDeque::new(), found: None, matched: None })
    }

    /// Takes the next piece; returns the text that is decided and, once, the index of the sequence that stopped it.
    /// Nothing comes after that.
    pub fn push(&mut self, text: &str) -> (String, Option<usize>) {
        if self.matched.is_some() {
            return (String::new(), None);
        }
        let mut out = Vec::new();
        for &byte in text.as_bytes() {
            if self.matched.is_some() {
                break;
            }
            self.held.push_back(byte);
            self.decide(&mut out, false);
        }
        (text_of(out), self.matched)
    }

    /// Ends the text: what is held, up to a sequence that was complete while a longer one was still possible.
    pub fn finish(mut self) -> (String, Option<usize>) {
        let mut out = Vec::new();
        if self.matched.is_some() {
            return (String::new(), None);
        }
        self.decide(&mut out, true);
        (text_of(out), self.matched)
    }

    /// Moves out of `held` what no sequence can start in.
    fn decide(&mut self, out: &mut Vec<u8>, at_end: bool) {
        while !self.held.is_empty() {
            let mut longer = false;
            for (index, stop) in self.stops.iter().enumerate() {
                let stop = stop.as_bytes();
                let common = self.held.iter().zip(stop).take_while(|(a, b)| a == b).count();
                if common == stop.len() {
                    if self.found.is_none_or(|found| self.stops[found].len() < stop.len()) {
                        self.found = Some(index);
                    }
                } else if common == self.held.len() {
                    longer = true;
                }
            }
            if longer && !at_end {
                return;
            }
            if let Some(found) = self.found {
                self.matched = Some(found);
                self.held.clear();
                return;
            }
            out.extend(self.held.pop_front());
        }
    }
}

/// Text out of bytes that are whole characters: sequences start and end at characters, and so does what is between.
fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
