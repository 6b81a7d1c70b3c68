//! Tokenizers out of GGUF metadata (`tokenizer.ggml.*`).

use super::byte_level::ByteAlphabet;
use super::fragments::LiteralTokens;
use super::pieces::{PieceKind, Pieces};
use super::pipeline::Pipeline;
use super::pretokenizer::{self, Rule};
use super::sentencepiece::{SPACE, ScoredPiece, SentencePiece};
use super::{Encoder, Inner, SpecialTokens, Tokenizer};
use crate::TokenizerError;
use std::collections::HashMap;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{NFC, NormalizerWrapper};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior};

/// Token types of `tokenizer.ggml.token_type`, as the GGUF specification numbers them.
mod token_type {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const BYTE: i32 = 6;
}

/// Control tokens that end a turn or a text, whatever a file declares: many files declare only one of the two.
const END_TEXTS: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<turn|>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
];

/// The vocabulary of a GGUF file. Each field is one key below `tokenizer.ggml.`; what the file lacks stays empty.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// The file, for messages.
    pub file: String,
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece).
    pub model: String,
    /// `pre`: name of the rule that cuts a text before merging; only `gpt2` needs one.
    pub pre: Option<String>,
    /// `tokens`: the text of each token, in order of the ids.
    pub tokens: Vec<String>,
    /// `scores`, as many as tokens; only `llama` needs them.
    pub scores: Option<Vec<f32>>,
    /// `token_type`, as many as tokens; empty if the file has none.
    pub token_types: Vec<i32>,
    /// `merges`, best first, each two tokens with a space between; only `gpt2` needs them.
    pub merges: Vec<String>,
    /// `add_space_prefix`; without it, `llama` adds one.
    pub add_space_prefix: Option<bool>,
    /// `add_bos_token`; without it, the kind decides.
    pub add_bos: Option<bool>,
    /// `add_eos_token`; without it, none is added.
    pub add_eos: Option<bool>,
    /// `bos_token_id`.
    pub bos_id: Option<u32>,
    /// `eos_token_id`.
    pub eos_id: Option<u32>,
    /// `unknown_token_id`.
    pub unk_id: Option<u32>,
    /// `padding_token_id`.
    pub pad_id: Option<u32>,
    /// `eot_token_id`: end of turn.
    pub eot_id: Option<u32>,
    /// `eom_token_id`: end of message.
    pub eom_id: Option<u32>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl Tokenizer {
    /// Builds the tokenizer of a GGUF file.
    ///
    /// Token types decide as in the model's own tokenizer: user-defined tokens (type 4) are tokens in every mode,
    /// control and unknown tokens (types 3 and 2) only with [`Special::Parse`]. A file that calls `<unused0>` a
    /// control token therefore has it read as text under [`Special::AsText`], which is the safe reading for text
    /// from strangers, although the model's own vocabulary may list it as user-defined.
    ///
    /// # Errors
    /// An unsupported kind, and every inconsistency: lists of different lengths, ids outside the vocabulary, a token
    /// that occurs twice, a merge of unknown tokens, a score that is no number.
    pub fn from_gguf(vocabulary: GgufVocabulary) -> Result<Self, TokenizerError> {
        let checked = Checked::new(vocabulary)?;
        match checked.vocabulary.model.as_str() {
            "gpt2" => checked.byte_level(),
            "llama" => checked.sentencepiece(),
            other => Err(TokenizerError::Unsupported {
                field: checked.key("model"),
                found: other.to_owned(),
                supported: "gpt2, llama".to_owned(),
                hint: "Use a checkpoint folder with tokenizer.json instead",
            }),
        }
    }
}

/// A vocabulary whose lists have equal lengths, whose ids exist and whose tokens are distinct.
struct Checked {
    vocabulary: GgufVocabulary,
    ids: Vocab,
}

impl Checked {
    fn new(vocabulary: GgufVocabulary) -> Result<Self, TokenizerError> {
        let mut checked = Self { vocabulary, ids: Vocab::default() };
        checked.check_lengths()?;
        checked.check_ids()?;
        checked.ids = checked.index_tokens()?;
        Ok(checked)
    }

    fn key(&self, name: &str) -> String {
        format!("{}, key tokenizer.ggml.{name}", self.vocabulary.file)
    }

    fn check_lengths(&self) -> Result<(), TokenizerError> {
        let count = self.vocabulary.tokens.len();
        if count == 0 || u32::try_from(count).is_err() {
            return Err(TokenizerError::invalid(self.key("tokens"), format!("{count} tokens found")));
        }
        let types = self.vocabulary.token_types.len();
        if types != 0 && types != count {
            let problem = format!("{types} types for {count} tokens; there must be one for each");
            return Err(TokenizerError::invalid(self.key("token_type"), problem));
        }
        if let Some(scores) = &self.vocabulary.scores {
            if scores.len() != count {
                let problem =
                    format!("{} scores for {count} tokens; there must be one for each", scores.len());
                return Err(TokenizerError::invalid(self.key("scores"), problem));
            }
            if let Some(id) = scores.iter().position(|score| score.is_nan()) {
                return Err(TokenizerError::invalid(
                    self.key("scores"),
                    format!("score {id} is not a number"),
                ));
            }
        }
        Ok(())
    }

    fn check_ids(&self) -> Result<(), TokenizerError> {
        let v = &self.vocabulary;
        let named = [
            ("bos_token_id", v.bos_id),
            ("eos_token_id", v.eos_id),
            ("unknown_token_id", v.unk_id),
            ("padding_token_id", v.pad_id),
            ("eot_token_id", v.eot_id),
            ("eom_token_id", v.eom_id),
        ];
        for (name, id) in named {
            let Some(id) = id else { continue };
            if id as usize >= v.tokens.len() {
                let problem = format!("id {id} is outside the vocabulary of {} tokens", v.tokens.len());
                return Err(TokenizerError::invalid(self.key(name), problem));
            }
        }
        Ok(())
    }

    fn index_tokens(&self) -> Result<Vocab, TokenizerError> {
        let mut ids = Vocab::default();
        ids.reserve(self.vocabulary.tokens.len());
        for (id, token) in (0u32..).zip(&self.vocabulary.tokens) {
            if let Some(before) = ids.insert(token.clone(), id) {
                let problem = format!("token {token:?} occurs twice, as id {before} and as id {id}");
                return Err(TokenizerError::invalid(self.key("tokens"), problem));
            }
        }
        Ok(ids)
    }

    fn token_type(&self, index: usize) -> i32 {
        self.vocabulary.token_types.get(index).copied().unwrap_or(token_type::NORMAL)
    }

    /// Every token with its id and type.
    fn typed(&self) -> impl Iterator<Item = (u32, &str, i32)> {
        let tokens = (0u32..).zip(&self.vocabulary.tokens).enumerate();
        tokens.map(|(index, (id, token))| (id, token.as_str(), self.token_type(index)))
    }

    fn byte_level(mut self) -> Result<Tokenizer, TokenizerError> {
        let rule = self.rule()?;
        let alphabet = ByteAlphabet::new();
        let pieces = self.typed().map(|(_, token, kind)| match kind {
            token_type::CONTROL | token_type::UNKNOWN => (token.as_bytes().to_vec(), PieceKind::Special),
            token_type::USER_DEFINED => (token.as_bytes().to_vec(), PieceKind::Normal),
            // A text outside the alphabet is no byte-level token; it stands for itself.
            _ => (alphabet.bytes(token).unwrap_or_else(|| token.as_bytes().to_vec()), PieceKind::Normal),
        });
        let pieces = Pieces::new(pieces, &self.key("tokens"))?;
        let added = self.typed().filter_map(|(id, token, kind)| {
            let special = matches!(kind, token_type::CONTROL | token_type::UNKNOWN);
            let literal = (special || kind == token_type::USER_DEFINED) && !token.is_empty();
            literal.then(|| (id, AddedToken::from(token.to_owned(), special).normalized(false)))
        });
        let added: Vec<_> = added.collect();
        let merges = self.merges()?;
        let model = BPE::builder()
            .vocab_and_merges(std::mem::take(&mut self.ids), merges)
            .ignore_merges(rule.ignore_merges)
            .build()
            .map_err(|error| TokenizerError::invalid(self.key("merges"), error.to_string()))?;
        let normalizer = rule.nfc.then_some(NormalizerWrapper::NFC(NFC));
        let splitter = self.splitter(rule)?;
        let pipeline = Pipeline::new(model.into(), normalizer, Some(splitter), &added, &self.key("tokens"))?;
        self.finish(Encoder::Pipeline(Box::new(pipeline)), pieces, rule.add_bos, false)
    }

    fn rule(&self) -> Result<&'static Rule, TokenizerError> {
        let hint = "Another rule would give wrong ids for some texts, so none is assumed. \
                    Use a checkpoint folder with tokenizer.json, or convert the file again";
        let name = self.vocabulary.pre.as_deref().unwrap_or("");
        pretokenizer::rule(name).ok_or_else(|| TokenizerError::Unsupported {
            field: self.key("pre"),
            found: name.to_owned(),
            supported: pretokenizer::names().collect::<Vec<_>>().join(", "),
            hint,
        })
    }

    /// Cuts by the rule's patterns, then writes bytes in the byte-level alphabet.
    fn splitter(&self, rule: &Rule) -> Result<PreTokenizerWrapper, TokenizerError> {
        let mut steps = Vec::new();
        for pattern in rule.patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|error| TokenizerError::invalid(self.key("pre"), error.to_string()))?;
            steps.push(PreTokenizerWrapper::Split(split));
        }
        steps.push(PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, false)));
        Ok(PreTokenizerWrapper::Sequence(Sequence::new(steps)))
    }

    /// The merges as pairs, each of two tokens that make a third.
    fn merges(&self) -> Result<Vec<(String, String)>, TokenizerError> {
        let mut pairs = Vec::with_capacity(self.vocabulary.merges.len());
        for (number, merge) in self.vocabulary.merges.iter().enumerate() {
            let invalid = |problem: &str| {
                TokenizerError::invalid(self.key("merges"), format!("merge {number}, {merge:?}: {problem}"))
            };
            let Some((left, right)) = merge.split_once(' ') else {
                return Err(invalid("expected two tokens with a space between"));
            };
            if !self.ids.contains_key(left) || !self.ids.contains_key(right) {
                return Err(invalid("one of its two parts is not a token of the vocabulary"));
            }
            if !self.ids.contains_key([left, right].concat().as_str()) {
                return Err(invalid("what it makes is not a token of the vocabulary"));
            }
            pairs.push((left.to_owned(), right.to_owned()));
        }
        Ok(pairs)
    }

    fn sentencepiece(self) -> Result<Tokenizer, TokenizerError> {
        let Some(scores) = &self.vocabulary.scores else {
            let problem = "missing; a SentencePiece vocabulary needs the score of each token";
            return Err(TokenizerError::invalid(self.key("scores"), problem));
        };
        let mut pieces = HashMap::with_capacity(self.vocabulary.tokens.len());
        let mut byte_ids = Box::new([None; 256]);
        for ((id, token, kind), score) in self.typed().zip(scores) {
            match kind {
                token_type::NORMAL => {
                    pieces.insert(token.into(), ScoredPiece { id, score: *score });
                }
                token_type::BYTE => byte_ids[usize::from(self.byte_token(id, token)?)] = Some(id),
                _ => {}
            }
        }
        // GGUF files write user-defined runs of spaces as spaces; SentencePiece writes all spaces as U+2581.
        let user_defined = self.typed().filter(|(_, _, kind)| *kind == token_type::USER_DEFINED);
        let user_defined: Vec<_> =
            user_defined.map(|(id, token, _)| (token.replace(' ', SPACE), id)).collect();
        let control =
            self.typed().filter(|(_, _, kind)| matches!(*kind, token_type::CONTROL | token_type::UNKNOWN));
        let add_space_prefix = self.vocabulary.add_space_prefix.unwrap_or(true);
        let model = SentencePiece {
            pieces,
            byte_ids,
            unknown_id: self.vocabulary.unk_id,
            control: LiteralTokens::new(control.map(|(id, token, _)| (token, id))),
            user_defined: LiteralTokens::new(user_defined.iter().map(|(token, id)| (token.as_str(), *id))),
            add_space_prefix,
        };
        let texts = self.typed().map(|(id, token, kind)| {
            Ok(match kind {
                token_type::BYTE => (vec![self.byte_token(id, token)?], PieceKind::Normal),
                token_type::CONTROL | token_type::UNKNOWN => (token.as_bytes().to_vec(), PieceKind::Special),
                _ => (token.replace(SPACE, " ").into_bytes(), PieceKind::Normal),
            })
        });
        let texts = texts.collect::<Result<Vec<_>, TokenizerError>>()?;
        let texts = Pieces::new(texts, &self.key("tokens"))?;
        self.finish(Encoder::SentencePiece(Box::new(model)), texts, true, add_space_prefix)
    }

    fn byte_token(&self, id: u32, token: &str) -> Result<u8, TokenizerError> {
        super::parse_byte_token(token).ok_or_else(|| {
            let problem =
                format!("token {id} has the type of a byte, but is {token:?} instead of, say, \"<0x0A>\"");
            TokenizerError::invalid(self.key("tokens"), problem)
        })
    }

    /// The ids around an encoded prompt, and everything else that does not depend on the kind.
    fn finish(
        &self,
        encoder: Encoder,
        pieces: Pieces,
        add_bos_by_kind: bool,
        drops_first_space: bool,
    ) -> Result<Tokenizer, TokenizerError> {
        let v = &self.vocabulary;
        let needed = |wanted: bool, id: Option<u32>, wish: &str, missing: &str| match (wanted, id) {
            (false, _) => Ok(Vec::new()),
            (true, Some(id)) => Ok(vec![id]),
            (true, None) => {
                let problem =
                    format!("missing, although {wish} asks for that token in front of or after each text");
                Err(TokenizerError::invalid(self.key(missing), problem))
            }
        };
        // By its kind a file may merely be expected to have BOS; only its own word makes a missing id an error.
        let add_bos = v.add_bos.unwrap_or(add_bos_by_kind && v.bos_id.is_some());
        let prefix = needed(add_bos, v.bos_id, "add_bos_token", "bos_token_id")?;
        let suffix = needed(v.add_eos.unwrap_or(false), v.eos_id, "add_eos_token", "eos_token_id")?;
        let text = |id: Option<u32>| id.and_then(|id| v.tokens.get(id as usize)).cloned();
        let special_tokens = SpecialTokens {
            bos: text(v.bos_id),
            eos: text(v.eos_id),
            unk: text(v.unk_id),
            pad: text(v.pad_id),
        };
        let named_ends =
            self.typed().filter(|(_, token, kind)| *kind == token_type::CONTROL && END_TEXTS.contains(token));
        let declared = [v.eos_id, v.eot_id, v.eom_id].into_iter().flatten();
        let end_ids = super::distinct(declared.chain(named_ends.map(|(id, _, _)| id)));
        let inner =
            Inner { encoder, pieces, prefix, suffix, bos_id: v.bos_id, special_tokens, drops_first_space };
        Ok(Tokenizer::new(inner, end_ids))
    }
}
