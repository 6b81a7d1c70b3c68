//! The steps of a Hugging Face tokenizer: special tokens, normalizer, pre-tokenizer, model.
//!
//! The steps come from the `tokenizers` crate; they are held one by one because reading special tokens as text needs
//! a second set of added tokens, and because decoding is ours.

use super::Special;
use crate::TokenizerError;
use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{
    AddedToken, AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
};

/// The longest run of characters, in bytes, that are all spaces or all not.
///
/// The regular expressions of pre-tokenizers give up, and say nothing, after a million steps back; on such a run they
/// may take a few for each character. A longer run is refused rather than cut wrongly.
const RUN_BYTES_MAX: usize = 250_000;

/// A tokenizer of the Hugging Face kind, ready to encode.
pub(crate) struct Pipeline {
    model: ModelWrapper,
    normalizer: Option<NormalizerWrapper>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    /// Added tokens, all of them recognized.
    added: AddedVocabulary,
    /// The same, special ones read as text.
    added_as_text: AddedVocabulary,
}

impl Pipeline {
    /// Puts the steps together. `added` are tokens recognized as they stand, each with the id it must have.
    ///
    /// # Errors
    /// If an added token would get another id than the one given; `field` names where they come from.
    pub(crate) fn new(
        model: ModelWrapper,
        normalizer: Option<NormalizerWrapper>,
        pre_tokenizer: Option<PreTokenizerWrapper>,
        added: &[(u32, AddedToken)],
        field: &str,
    ) -> Result<Self, TokenizerError> {
        let mut vocabulary = AddedVocabulary::new();
        vocabulary
            .add_tokens(added.iter().map(|(_, token)| token.clone()), &model, normalizer.as_ref())
            .map_err(|error| TokenizerError::invalid(field, error.to_string()))?;
        for (id, token) in added {
            let given = vocabulary.token_to_id(&token.content, &model);
            if given != Some(*id) {
                let problem = format!(
                    "token {:?} has id {id}, but with the model's vocabulary and the added tokens before it, it would get {}",
                    token.content,
                    given.map_or_else(|| "none".to_owned(), |other| other.to_string()),
                );
                return Err(TokenizerError::invalid(field, problem));
            }
        }
        let mut added_as_text = vocabulary.clone();
        added_as_text.set_encode_special_tokens(true);
        Ok(Self { model, normalizer, pre_tokenizer, added: vocabulary, added_as_text })
    }

    /// Ids of `text`, without anything that a post-processor would add.
    pub(crate) fn encode(&self, text: &str, special: Special) -> Result<Vec<u32>, TokenizerError> {
        let failed = |error: tokenizers::Error| TokenizerError::Encode { problem: error.to_string() };
        let added = match special {
            Special::Parse => &self.added,
            Special::AsText => &self.added_as_text,
        };
        let mut pieces: PreTokenizedString = added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            check_runs(text)?;
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(failed)?;
        }
        pieces.tokenize(|piece| self.model.tokenize(piece.get())).map_err(failed)?;
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::None);
        Ok(splits
            .iter()
            .filter_map(|(_, _, tokens)| tokens.as_ref())
            .flatten()
            .map(|token| token.id)
            .collect())
    }
}

fn check_runs(text: &str) -> Result<(), TokenizerError> {
    let mut start = 0;
    let mut of_spaces = false;
    for (at, letter) in text.char_indices() {
        if letter.is_whitespace() != of_spaces {
            of_spaces = !of_spaces;
            start = at;
        }
        if at - start > RUN_BYTES_MAX {
            let what = if of_spaces { "of nothing but spaces" } else { "without a space" };
            let problem = format!("from byte {start} on it has more than {RUN_BYTES_MAX} bytes {what}");
            return Err(TokenizerError::Encode { problem });
        }
    }
    Ok(())
}
