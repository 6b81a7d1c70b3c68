//! What an answer may still become.

use std::sync::Arc;

use llguidance::Matcher;

use super::compiler::reason;
use super::refused;
use crate::EngineError;

/// Which tokens may follow the tokens so far: a pure function of the demand, the tokenizer and these tokens.
///
/// End tokens are allowed exactly where the text meets the demand, and once one has been taken, only they are.
///
/// Clones go their own ways; they share caches, which cannot show in what is allowed. What is counted against the limits
/// on work is what caches do not hold, so another clone's work can spare a refusal, never change a token.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    end_ids: Arc<[u32]>,
    digest: Arc<str>,
    /// Tokens taken, end tokens included.
    taken: usize,
    /// End tokens among them: the last ones. The matcher knows nothing of them.
    ended: usize,
    /// Allowed tokens, where known.
    mask: Option<Vec<u32>>,
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint")
            .field("digest", &self.digest)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl Constraint {
    pub(super) fn new(matcher: Matcher, end_ids: Arc<[u32]>, digest: &str) -> Self {
        Self { matcher, end_ids, digest: digest.into(), taken: 0, ended: 0, mask: None }
    }

    /// SHA-256 of the demand: see [`ConstraintSpec::digest`](super::ConstraintSpec::digest).
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The tokens that may come next, as a set of bits: id `i` is bit `i % 32` of word `i / 32`. Ids beyond the last word
    /// are not allowed.
    ///
    /// # Errors
    /// When no token can continue the text, or finding out would be too much work.
    pub fn mask(&mut self) -> Result<&[u32], EngineError> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => self.allowed().map_err(|problem| stuck(self.taken, &problem))?,
        };
        Ok(self.mask.insert(mask))
    }

    /// Finds the first mask. On failure, says why there is none.
    pub(super) fn prepare(&mut self) -> Result<(), String> {
        self.mask = Some(self.allowed()?);
        Ok(())
    }

    fn allowed(&mut self) -> Result<Vec<u32>, String> {
        let mut mask: Vec<u32> = match self.ended {
            0 => self.matcher.compute_mask_or_eos().map_err(|error| error.to_string())?.into(),
            _ => Vec::new(),
        };
        let may_end = self.may_end()?;
        for id in self.end_ids.iter() {
            let (word, bit) = (*id as usize / 32, id % 32);
            if mask.len() <= word {
                mask.resize(word + 1, 0);
            }
            mask[word] = mask[word] & !(1 << bit) | u32::from(may_end) << bit;
        }
        Ok(mask)
    }

    fn may_end(&mut self) -> Result<bool, String> {
        if self.is_finished() {
            return Ok(true);
        }
        self.matcher.is_accepting().map_err(|error| error.to_string())
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// When it is not allowed; then nothing is taken. When following it is too much work; then this constraint is of no
    /// more use.
    pub fn accept(&mut self, id: u32) -> Result<(), EngineError> {
        if !self.allows(id)? {
            let found = format!("{id} as token {} of the answer", self.taken);
            return Err(refused("the structured output's next token", found, "one that it allows"));
        }
        if self.end_ids.contains(&id) {
            self.ended += 1;
        } else {
            self.matcher.consume_token(id).map_err(|error| stuck(self.taken, &error.to_string()))?;
        }
        self.taken += 1;
        self.mask = None;
        Ok(())
    }

    /// Whether token `id` may come next; cheaper than [`Self::mask`].
    ///
    /// # Errors
    /// As [`Self::mask`].
    pub fn allows(&mut self, id: u32) -> Result<bool, EngineError> {
        if self.end_ids.contains(&id) {
            return self.may_end().map_err(|problem| stuck(self.taken, &problem));
        }
        if self.is_finished() {
            return Ok(false);
        }
        if let Some(mask) = &self.mask {
            return Ok(mask.get(id as usize / 32).is_some_and(|word| word >> (id % 32) & 1 == 1));
        }
        let vocabulary = self.matcher.tok_env().map_or(0, |environment| environment.tok_trie().vocab_size());
        if id as usize >= vocabulary {
            return Ok(false);
        }
        let valid = self.matcher.validate_tokens(&[id]);
        valid.map(|count| count == 1).map_err(|error| stuck(self.taken, &error.to_string()))
    }

    /// Forgets the last `count` tokens taken, or all if there are fewer.
    ///
    /// # Errors
    /// When this constraint failed before.
    pub fn rollback(&mut self, count: usize) -> Result<(), EngineError> {
        let count = count.min(self.taken);
        let ends = count.min(self.ended);
        if count > ends {
            let taken = self.taken;
            self.matcher.rollback(count - ends).map_err(|error| stuck(taken, &error.to_string()))?;
        }
        self.ended -= ends;
        self.taken -= count;
        self.mask = None;
        Ok(())
    }

    /// How many tokens were taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether the text is complete and cannot go on: only end tokens may follow.
    pub fn is_finished(&self) -> bool {
        self.ended > 0 || (self.matcher.is_stopped() && !self.matcher.is_error())
    }
}

fn stuck(taken: usize, problem: &str) -> EngineError {
    refused(
        "structured output",
        format!("stuck after {taken} tokens of the answer ({})", reason(problem)),
        "text that can go on within the limits: simplify the schema, expression or grammar",
    )
}
