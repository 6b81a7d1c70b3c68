//! Options that change logits, and their bounds.

use std::collections::HashSet;

use super::refused;
use crate::EngineError;

/// Makes tokens less (or more) likely that were there before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Positive logits of tokens in prompt or answer are divided by this, negative ones multiplied. From
    /// [`Self::MIN_REPETITION`] to [`Self::MAX_REPETITION`]; 1 does nothing.
    pub repetition: f64,
    /// Subtracted from logits of tokens in the answer. From -2 to 2; 0 does nothing.
    pub presence: f64,
    /// Subtracted from logits of tokens in the answer, as often as they are there. From -2 to 2; 0 does nothing.
    pub frequency: f64,
}

impl Default for Penalties {
    fn default() -> Self {
        Self { repetition: 1.0, presence: 0.0, frequency: 0.0 }
    }
}

impl Penalties {
    /// Least repetition penalty that is accepted: below 1 it makes repetition more likely.
    pub const MIN_REPETITION: f64 = 0.1;
    /// Largest repetition penalty that is accepted; useful ones stay below 2.
    pub const MAX_REPETITION: f64 = 10.0;
    /// Largest size of presence and frequency penalty, OpenAI's.
    pub const MAX_SIZE: f64 = 2.0;

    /// Whether they change nothing.
    pub fn are_neutral(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every number against its bounds.
    ///
    /// # Errors
    /// [`EngineError::Option`] names the first one out of range.
    pub fn check(&self) -> Result<(), EngineError> {
        let fits = |penalty: f64| (-Self::MAX_SIZE..=Self::MAX_SIZE).contains(&penalty);
        let repetition_fits = (Self::MIN_REPETITION..=Self::MAX_REPETITION).contains(&self.repetition);
        let checks = [
            (repetition_fits, "repetition-penalty", self.repetition, "a number from 0.1 to 10; 1 is none"),
            (fits(self.presence), "presence-penalty", self.presence, "a number from -2 to 2"),
            (fits(self.frequency), "frequency-penalty", self.frequency, "a number from -2 to 2"),
        ];
        match checks.into_iter().find(|(fits, ..)| !fits) {
            None => Ok(()),
            Some((_, option, found, expected)) => Err(refused(option, found.to_string(), expected)),
        }
    }
}

/// Numbers that are added to the logits of some tokens. Each id stands there once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitBias(pub Vec<(u32, f32)>);

impl LogitBias {
    /// Most tokens with a bias.
    pub const MAX_ENTRIES: usize = 1024;
    /// Largest size of a bias, OpenAI's: enough to ban or force a token of usual models.
    pub const MAX_SIZE: f32 = 100.0;

    /// Checks every entry for a model with `vocabulary` ids.
    ///
    /// # Errors
    /// [`EngineError::Option`] names the first entry that is out of bounds, unknown or there twice.
    pub fn check(&self, vocabulary: usize) -> Result<(), EngineError> {
        let refuse = |found: String, expected: String| Err(refused("logit-bias", found, expected));
        if self.0.len() > Self::MAX_ENTRIES {
            return refuse(
                format!("a list of {} tokens", self.0.len()),
                format!("at most {}", Self::MAX_ENTRIES),
            );
        }
        let mut seen = HashSet::new();
        for (id, bias) in &self.0 {
            if *id as usize >= vocabulary {
                return refuse(
                    format!("given for id {id}, which the model does not have"),
                    format!("ids from 0 to {}", vocabulary.saturating_sub(1)),
                );
            }
            if !(-Self::MAX_SIZE..=Self::MAX_SIZE).contains(bias) {
                return refuse(format!("{bias} for id {id}"), "a number from -100 to 100".to_owned());
            }
            if !seen.insert(*id) {
                return refuse(format!("given twice for id {id}"), "one number per id".to_owned());
            }
        }
        Ok(())
    }
}

/// Everything that changes logits, except the constraint. The default changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitOptions {
    /// Numbers added to logits.
    pub bias: LogitBias,
    /// Penalties for tokens that were there before.
    pub penalties: Penalties,
    /// End tokens cannot be chosen before the answer has this many tokens.
    pub min_tokens: usize,
    /// End tokens do not end the answer: it goes on behind them. As in vLLM they are not masked, and other limits
    /// hold. This changes no logit; [`LogitsPipeline::ends`](super::LogitsPipeline::ends) tells it.
    pub ignore_eos: bool,
}

impl LogitOptions {
    /// Checks everything for a model with `vocabulary` ids and an answer of at most `most` tokens.
    ///
    /// # Errors
    /// [`EngineError::Option`] names the first option that is out of bounds.
    pub fn check(&self, vocabulary: usize, most: usize) -> Result<(), EngineError> {
        self.bias.check(vocabulary)?;
        self.penalties.check()?;
        if self.min_tokens > most {
            let expected = format!("at most max-tokens, which is {most}");
            return Err(refused("min-tokens", self.min_tokens.to_string(), expected));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_is_checked_by_name() {
        let none = Penalties::default();
        let penalties = [
            ("repetition-penalty", Penalties { repetition: 0.0, ..none }),
            ("repetition-penalty", Penalties { repetition: 10.5, ..none }),
            ("repetition-penalty", Penalties { repetition: f64::NAN, ..none }),
            ("presence-penalty", Penalties { presence: 2.1, ..none }),
            ("presence-penalty", Penalties { presence: f64::INFINITY, ..none }),
            ("frequency-penalty", Penalties { frequency: -2.1, ..none }),
            ("frequency-penalty", Penalties { frequency: f64::NAN, ..none }),
        ];
        for (name, penalties) in penalties {
            let error = LogitOptions { penalties, ..LogitOptions::default() }.check(9, 9).unwrap_err();
            assert!(error.to_string().starts_with(name), "{error}");
        }
        let biases = [
            (vec![(9, 1.0)], "id 9"),
            (vec![(1, 100.5)], "100.5 for id 1"),
            (vec![(1, f32::NAN)], "NaN for id 1"),
            (vec![(1, 1.0), (1, 1.0)], "twice for id 1"),
            ((0..1025).map(|_| (1, 1.0)).collect(), "1025 tokens"),
        ];
        for (entries, words) in biases {
            let error = LogitBias(entries).check(9).unwrap_err().to_string();
            assert!(error.contains("logit-bias") && error.contains(words), "{error}");
        }
        let long = LogitOptions { min_tokens: 10, ..LogitOptions::default() };
        assert_eq!(
            long.check(9, 9).unwrap_err().to_string(),
            "min-tokens is 10: expected at most max-tokens, which is 9"
        );
        long.check(9, 10).unwrap();
        let edges = Penalties { repetition: 10.0, presence: -2.0, frequency: 2.0 };
        edges.check().unwrap();
        LogitBias(vec![(8, -100.0), (0, 100.0)]).check(9).unwrap();
    }
}
