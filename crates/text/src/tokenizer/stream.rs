//! Ids to text, all at once or one by one.

use super::Tokenizer;
use crate::TokenizerError;

/// Turns the ids of an answer into text as they come.
///
/// Each [`push`](Self::push) returns what may be shown now: complete characters as soon as they are complete, never
/// part of one. Bytes that cannot become a character are replaced by U+FFFD as soon as that is known, one per maximal
/// subpart, as [`String::from_utf8_lossy`] does; so the chunks joined are the lossy reading of the whole.
pub struct StreamDecoder {
    tokenizer: Tokenizer,
    skip_special: bool,
    /// The next byte, if it is a space, is dropped: it was put there by the tokenizer, not by the text.
    at_start_of_text: bool,
    /// Start of a character that is not complete; at most three bytes between calls.
    pending: Vec<u8>,
}

impl StreamDecoder {
    /// A decoder of ids which start a text. With `skip_special`, control tokens give no text.
    pub fn new(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        let at_start_of_text = tokenizer.drops_first_space();
        Self { tokenizer: tokenizer.clone(), skip_special, at_start_of_text, pending: Vec::new() }
    }

    /// A decoder of ids which continue a text, such as an answer after its prompt: a first space is kept.
    pub fn continuing(tokenizer: &Tokenizer, skip_special: bool) -> Self {
        Self { at_start_of_text: false, ..Self::new(tokenizer, skip_special) }
    }

    /// Takes the next id and returns the text that is complete with it, which may be empty.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`] if `id` has no token; the decoder is unchanged then.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        let mut bytes = self.tokenizer.token_bytes(id)?;
        if self.skip_special && self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        if self.at_start_of_text && !bytes.is_empty() {
            self.at_start_of_text = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        Ok(self.take_complete())
    }

    /// Ends the stream: an unfinished character becomes U+FFFD.
    pub fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    /// Moves everything that is decided out of `pending`.
    fn take_complete(&mut self) -> String {
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    // No length means that more bytes could still complete the character.
                    let Some(bad) = error.error_len() else { break };
                    if is_half_surrogate(rest) {
                        break;
                    }
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[bad..];
                }
            }
        }
        let decided = self.pending.len() - rest.len();
        self.pending.drain(..decided);
        text
    }
}

/// Whether `rest` is two bytes of a three-byte surrogate. They can no longer become a character, but incremental decoders
/// judge a surrogate as a whole, once its third byte is there, and so do the reference streams.
fn is_half_surrogate(rest: &[u8]) -> bool {
    matches!(rest, [0xED, 0xA0..=0xBF])
}
