//! A row of logits on its way to the sampler.

use std::collections::BTreeMap;

use samebit_arith::sampling::adjust;

use super::{Constraint, LogitOptions, refused};
use crate::EngineError;

/// Changes rows of logits as options, prompt and answer so far demand: see the module for what happens in which order.
///
/// It keeps counts of what it has seen, but a row depends on the tokens given with it alone: where these are not what
/// was seen, the counts are brought there first.
#[derive(Clone, Debug)]
pub struct LogitsPipeline {
    options: LogitOptions,
    /// Distinct ids of the prompt, ascending; empty where nothing asks for them.
    prompt_ids: Vec<u32>,
    end_ids: Vec<u32>,
    constraint: Option<Constraint>,
    /// Tokens of the answer that counts and constraint have taken; empty where nothing asks for them.
    taken: Vec<u32>,
    counts: BTreeMap<u32, u32>,
    /// The changed row of [`Self::shaped`].
    row: Vec<f32>,
}

impl LogitsPipeline {
    /// A pipeline for an answer to `prompt`, which `end_ids` end. The options must have been checked
    /// ([`LogitOptions::check`]).
    pub fn new(
        options: LogitOptions,
        constraint: Option<Constraint>,
        prompt: &[u32],
        end_ids: &[u32],
    ) -> Self {
        let mut prompt_ids = if options.penalties.repetition == 1.0 { Vec::new() } else { prompt.to_vec() };
        prompt_ids.sort_unstable();
        prompt_ids.dedup();
        Self {
            options,
            prompt_ids,
            end_ids: end_ids.to_vec(),
            constraint,
            taken: Vec::new(),
            counts: BTreeMap::new(),
            row: Vec::new(),
        }
    }

    /// Whether no row is ever changed.
    pub fn is_neutral(&self) -> bool {
        let options = &self.options;
        options.bias.0.is_empty()
            && options.penalties.are_neutral()
            && options.min_tokens == 0
            && self.constraint.is_none()
    }

    /// Whether token `id` ends the answer.
    pub fn ends(&self, id: u32) -> bool {
        !self.options.ignore_eos && self.end_ids.contains(&id)
    }

    /// The constraint, if there is one, after the tokens taken so far.
    pub fn constraint(&self) -> Option<&Constraint> {
        self.constraint.as_ref()
    }

    /// The row to choose the token after `generated` from: `logits` itself where nothing is asked for, else a changed
    /// copy.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn shaped<'a>(&'a mut self, logits: &'a [f32], generated: &[u32]) -> Result<&'a [f32], EngineError> {
        if self.is_neutral() {
            return Ok(logits);
        }
        let mut row = std::mem::take(&mut self.row);
        row.clear();
        row.extend_from_slice(logits);
        let applied = self.apply(&mut row, generated);
        self.row = row;
        applied.map(|()| &self.row[..])
    }

    /// Changes the row that the token after `generated`, the answer's tokens so far, is chosen from.
    ///
    /// # Errors
    /// When no token is left to choose, or the constraint refuses a token of `generated` or has become too complex.
    pub fn apply(&mut self, logits: &mut [f32], generated: &[u32]) -> Result<(), EngineError> {
        if self.is_neutral() {
            return Ok(());
        }
        self.follow(generated)?;
        let options = &self.options;
        let penalties = &options.penalties;
        adjust::add_bias(logits, &options.bias.0);
        if penalties.repetition != 1.0 {
            let answered = self.counts.keys().filter(|id| self.prompt_ids.binary_search(id).is_err());
            let ids = self.prompt_ids.iter().chain(answered).copied();
            adjust::penalize_repetition(logits, ids, penalties.repetition as f32);
        }
        if penalties.presence != 0.0 || penalties.frequency != 0.0 {
            let counts = self.counts.iter().map(|(id, count)| (*id, *count));
            adjust::penalize_counts(logits, counts, penalties.presence as f32, penalties.frequency as f32);
        }
        let too_short = generated.len() < options.min_tokens;
        if too_short {
            adjust::mask(logits, &self.end_ids);
        }
        if let Some(constraint) = &mut self.constraint {
            adjust::keep_allowed(logits, constraint.mask()?);
        }
        if (too_short || self.constraint.is_some()) && adjust::all_masked(logits) {
            return Err(self.no_token_left(generated.len(), too_short));
        }
        Ok(())
    }

    fn no_token_left(&self, answered: usize, too_short: bool) -> EngineError {
        let cause = match (too_short, &self.constraint) {
            (true, Some(_)) => "min-tokens forbids to end, and the structured output has to",
            (true, None) => "min-tokens forbids to end, and nothing else has a probability",
            _ => "the structured output allows none that has a probability",
        };
        refused(
            "the choice of tokens",
            format!("empty after {answered} tokens of the answer ({cause})"),
            "at least one token: change min-tokens or the structured output",
        )
    }

    /// Takes the next token of the answer. [`Self::apply`] does so by itself; this does the work beforehand.
    ///
    /// # Errors
    /// When the constraint does not allow it; then it is not taken.
    pub fn accept(&mut self, id: u32) -> Result<(), EngineError> {
        if !self.remembers() {
            return Ok(());
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id)?;
        }
        self.taken.push(id);
        *self.counts.entry(id).or_insert(0) += 1;
        Ok(())
    }

    /// Forgets the answer's tokens from `to_len` on.
    ///
    /// # Errors
    /// When the constraint failed before.
    pub fn rollback(&mut self, to_len: usize) -> Result<(), EngineError> {
        let Some(dropped) = self.taken.len().checked_sub(to_len).filter(|dropped| *dropped > 0) else {
            return Ok(());
        };
        if let Some(constraint) = &mut self.constraint {
            constraint.rollback(dropped)?;
        }
        for id in self.taken.drain(to_len..) {
            if let Some(count) = self.counts.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&id);
                }
            }
        }
        Ok(())
    }

    /// Whether anything depends on which tokens there were, and not only on how many.
    fn remembers(&self) -> bool {
        self.constraint.is_some() || !self.options.penalties.are_neutral()
    }

    /// Brings counts and constraint to `generated`.
    fn follow(&mut self, generated: &[u32]) -> Result<(), EngineError> {
        if !self.remembers() {
            return Ok(());
        }
        if !generated.starts_with(&self.taken) {
            let common = self.taken.iter().zip(generated).take_while(|(a, b)| a == b).count();
            self.rollback(common)?;
        }
        for id in &generated[self.taken.len()..] {
            self.accept(*id)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogitBias, Penalties};
    use proptest::prelude::*;

    /// Numbers from -5 to 5 out of a generator of 64 bits (splitmix).
    fn random_row(seed: u64, step: u64, length: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step.wrapping_mul(0xD1B5_4A32_D192_ED03);
        (0..length)
            .map(|_| {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut x = state;
                x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                ((x ^ (x >> 31)) >> 40) as f32 / 16_777_216.0 * 10.0 - 5.0
            })
            .collect()
    }

    #[test]
    fn a_pipeline_without_wishes_returns_the_row_itself() {
        let logits = [1.0f32, 2.0];
        let mut pipeline = LogitsPipeline::new(LogitOptions::default(), None, &[1], &[0]);
        assert!(pipeline.is_neutral() && pipeline.ends(0) && !pipeline.ends(1));
        assert_eq!(pipeline.shaped(&logits, &[1]).unwrap().as_ptr(), logits.as_ptr());
        let options = LogitOptions { ignore_eos: true, ..LogitOptions::default() };
        let pipeline = LogitsPipeline::new(options, None, &[1], &[0]);
        assert!(pipeline.is_neutral() && !pipeline.ends(0));
    }

    /// The same, straight from the definitions: a loop over all ids for each step.
    fn penalized(
        options: &LogitOptions,
        prompt: &[u32],
        end_ids: &[u32],
        logits: &[f32],
        said: &[u32],
    ) -> Vec<f32> {
        let times = |list: &[u32], id: u32| list.iter().filter(|other| **other == id).count();
        (0..)
            .zip(logits)
            .map(|(id, logit)| {
                let mut logit = *logit;
                for (_, bias) in options.bias.0.iter().filter(|(other, _)| *other == id) {
                    logit += bias;
                }
                let Penalties { repetition, presence, frequency } = options.penalties;
                if times(prompt, id) + times(said, id) > 0 {
                    let penalty = repetition as f32;
                    logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
                }
                logit -= frequency as f32 * times(said, id) as f32;
                if times(said, id) > 0 {
                    logit -= presence as f32;
                }
                let hidden = said.len() < options.min_tokens && end_ids.contains(&id);
                if hidden { f32::NEG_INFINITY } else { logit }
            })
            .collect()
    }

    fn bits(row: &[f32]) -> Vec<u32> {
        row.iter().map(|logit| logit.to_bits()).collect()
    }

    fn some_options() -> impl Strategy<Value = LogitOptions> {
        let penalties = (
            prop_oneof![Just(1.0), 0.1f64..10.0],
            prop_oneof![Just(0.0), -2.0f64..2.0],
            prop_oneof![Just(0.0), -2.0f64..2.0],
        );
        let bias = proptest::collection::btree_map(0u32..24, -100.0f32..100.0, 0..5);
        (penalties, bias, 0usize..8).prop_map(|((repetition, presence, frequency), bias, min_tokens)| {
            LogitOptions {
                bias: LogitBias(bias.into_iter().collect()),
                penalties: Penalties { repetition, presence, frequency },
                min_tokens,
                ignore_eos: false,
            }
        })
    }

    proptest! {
        #[test]
        fn penalties_are_their_definition_whatever_was_seen_before(
            options in some_options(),
            prompt in proptest::collection::vec(0u32..24, 0..20),
            // Tokens of a new answer, or how many to take back.
            steps in proptest::collection::vec(prop_oneof![(0u32..24).prop_map(Ok), (0usize..9).prop_map(Err)], 1..40),
            seed in any::<u64>(),
        ) {
            options.check(24, 8).unwrap();
            let end_ids = [0, 5];
            let mut pipeline = LogitsPipeline::new(options.clone(), None, &prompt, &end_ids);
            let mut said: Vec<u32> = Vec::new();
            for (index, step) in steps.into_iter().enumerate() {
                match step {
                    Ok(id) => {
                        said.push(id);
                        if id % 2 == 0 && said.len() == index + 1 {
                            pipeline.accept(id).unwrap();
                        }
                    }
                    Err(back) => {
                        said.truncate(said.len().saturating_sub(back));
                        if back % 2 == 0 {
                            pipeline.rollback(said.len()).unwrap();
                        }
                    }
                }
                let logits = random_row(seed, index as u64, 24);
                let found = pipeline.shaped(&logits, &said).unwrap().to_vec();
                prop_assert_eq!(bits(&found), bits(&penalized(&options, &prompt, &end_ids, &logits, &said)));
            }
        }
    }
}
