//! The tokenizer that the rest of the engine sees, whatever it was built from.

mod byte_level;
mod decoder;
mod fragments;
pub(crate) mod gguf;
mod json;
mod pieces;
mod pipeline;
mod pretokenizer;
mod sentencepiece;
pub(crate) mod stream;

pub use json::TokenizerFiles;

use crate::TokenizerError;
use pieces::{PieceKind, Pieces};
use pipeline::Pipeline;
use sentencepiece::SentencePiece;
use std::sync::Arc;

/// How to read special tokens such as `<|im_end|>` that stand in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// They are the tokens they spell: for rendered chat templates and for prompts of whoever runs the program.
    Parse,
    /// They are text like any other: for text from strangers.
    AsText,
}

/// The texts of the special tokens that chat templates refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Beginning of a text.
    pub bos: Option<String>,
    /// End of a text or turn.
    pub eos: Option<String>,
    /// Stands for what the vocabulary cannot spell.
    pub unk: Option<String>,
    /// Fills up batches.
    pub pad: Option<String>,
}

/// Turns text into token ids and back. Cloning is cheap.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
    end_ids: Arc<[u32]>,
}

struct Inner {
    encoder: Encoder,
    pieces: Pieces,
    /// Ids that go in front of each text, such as BOS.
    prefix: Vec<u32>,
    /// Ids that go after each text.
    suffix: Vec<u32>,
    bos_id: Option<u32>,
    special_tokens: SpecialTokens,
    drops_first_space: bool,
}

enum Encoder {
    Pipeline(Box<Pipeline>),
    SentencePiece(Box<SentencePiece>),
}

impl Tokenizer {
    fn new(inner: Inner, end_ids: Vec<u32>) -> Self {
        Self { inner: Arc::new(inner), end_ids: end_ids.into() }
    }

    /// The ids of `text` alone: no BOS or EOS is added. The empty text has no ids.
    ///
    /// # Errors
    /// If a step of the tokenizer fails, for example on a character that the vocabulary can in no way spell.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        match &self.inner.encoder {
            Encoder::Pipeline(pipeline) => pipeline.encode(text, special),
            Encoder::SentencePiece(model) => Ok(model.encode(text, special == Special::Parse)),
        }
    }

    /// The ids of `text` with the BOS (and EOS) that the model asks for around it.
    ///
    /// Rendered chat templates already contain theirs: use [`encode`](Self::encode) for them.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    pub fn encode_with_bos(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.inner.prefix.clone();
        ids.extend(self.encode(text, special)?);
        ids.extend(&self.inner.suffix);
        Ok(ids)
    }

    /// The bytes that token `id` stands for; control tokens stand for their text. They need not be whole characters.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`] if `id` has no token.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TokenizerError> {
        self.inner.pieces.bytes(id)
    }

    /// The bytes of a whole text. With `skip_special`, control tokens give none.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`] for the first id that has no token.
    pub fn decode_bytes(&self, ids: &[u32], skip_special: bool) -> Result<Vec<u8>, TokenizerError> {
        let mut bytes = Vec::new();
        for &id in ids {
            let piece = self.token_bytes(id)?;
            if !(skip_special && self.is_special(id)) {
                bytes.extend_from_slice(piece);
            }
        }
        if self.drops_first_space() && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        Ok(bytes)
    }

    /// The text of `ids`, with U+FFFD for each maximal part that is no UTF-8.
    ///
    /// # Errors
    /// Those of [`decode_bytes`](Self::decode_bytes).
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        let bytes = self.decode_bytes(ids, skip_special)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// One more than the highest id. A model's output may be wider: its last rows then have no token.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.pieces.len()
    }

    /// Whether `id` is a control token, whose text [`decode`](Self::decode) can skip.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.pieces.kind(id) == PieceKind::Special
    }

    /// The id of the token that stands for exactly this special text, such as `<|im_end|>`.
    pub fn special_id(&self, text: &str) -> Option<u32> {
        let ids = self.encode(text, Special::Parse).ok()?;
        match ids[..] {
            [id] if self.is_special(id) => Some(id),
            _ => None,
        }
    }

    /// The id of BOS, whether or not the model wants it added.
    pub fn bos_id(&self) -> Option<u32> {
        self.inner.bos_id
    }

    /// Whether [`encode_with_bos`](Self::encode_with_bos) starts with BOS.
    pub fn adds_bos(&self) -> bool {
        self.inner.bos_id.is_some_and(|bos| self.inner.prefix.contains(&bos))
    }

    /// Ids that end an answer: end of text, of turn and of message, in no particular order, each once.
    pub fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// The same tokenizer with further end tokens, such as those that only `config.json` names.
    #[must_use]
    pub fn with_end_ids(mut self, more: &[u32]) -> Self {
        self.end_ids = distinct(self.end_ids.iter().chain(more).copied()).into();
        self
    }

    /// The texts of the special tokens, for chat templates.
    pub fn special_tokens(&self) -> &SpecialTokens {
        &self.inner.special_tokens
    }

    /// Whether the first byte of a text, if a space, was put there by the tokenizer.
    pub(crate) fn drops_first_space(&self) -> bool {
        self.inner.drops_first_space
    }
}

/// `<0x0A>` is byte 10.
fn parse_byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The ids in order of their first appearance.
fn distinct(ids: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut seen = Vec::new();
    for id in ids {
        if !seen.contains(&id) {
            seen.push(id);
        }
    }
    seen
}
