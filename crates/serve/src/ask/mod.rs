//! What is asked for, whichever API asks: the one place where requests for the engine are made.
//!
//! A field that the engine cannot honour yet is refused here or by the route, by name; none is ignored.

pub(crate) mod common;
pub(crate) mod defaults;
pub(crate) mod demand;
pub(crate) mod messages;
pub(crate) mod prompt;
pub(crate) mod tools;

use samebit_engine::{
    Constraint, DEFAULT_MAX_TOKENS, LogitOptions, Priority, Request, SamplingOptions, derived_seed,
};

use crate::answer::Reading;
use crate::error::ApiError;
use crate::state::App;

/// Most choices of one request, over all its prompts.
pub(crate) const MOST_CHOICES: usize = 8;
/// Most prompt tokens per forward pass. It changes no bit.
const PREFILL_CHUNK: usize = 512;

/// How to answer. Choice `i` above 0 takes the seed of choice 0 plus `i` (mod 2^64).
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// How tokens are chosen.
    pub(crate) sampling: SamplingOptions,
    /// What is done to logits before.
    pub(crate) logits: LogitOptions,
    /// What the answer's text must be.
    pub(crate) constraint: Option<Constraint>,
    /// How many of the most probable tokens to tell at each step, if their probabilities are wanted.
    pub(crate) log_probabilities: Option<usize>,
    /// Longest answer; `None` is [`DEFAULT_MAX_TOKENS`], or what the context leaves if that is less.
    pub(crate) max_tokens: Option<usize>,
    /// Texts that end the answer and are not part of it.
    pub(crate) stops: Vec<String>,
    /// Who goes first.
    pub(crate) priority: Priority,
    /// Choices per prompt.
    pub(crate) choices: usize,
    /// Whose prefixes may be reused.
    pub(crate) cache_salt: String,
}

/// Prompts, and how to answer them.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// At least one prompt. Choices are counted through: those of the first prompt come first.
    pub(crate) prompts: Vec<Vec<u32>>,
    /// How to answer each.
    pub(crate) manner: Manner,
    /// How the answers are taken apart.
    pub(crate) reading: Reading,
}

impl Ask {
    /// The engine's requests, in order of choices, each checked against the model and its memory.
    ///
    /// # Errors
    /// What the engine would refuse, before anything is queued.
    pub(crate) fn requests(&self, app: &App) -> Result<Vec<Request>, ApiError> {
        let manner = &self.manner;
        let count = self.prompts.len() * manner.choices;
        if count > MOST_CHOICES {
            let problem = format!("{count} choices in all, expected at most {MOST_CHOICES}");
            return Err(ApiError::field("n", problem));
        }
        let mut requests = Vec::with_capacity(count);
        for prompt in &self.prompts {
            for choice in 0..manner.choices {
                let request = self.request(app, prompt, choice as u64);
                app.check(&request)?;
                requests.push(request);
            }
        }
        Ok(requests)
    }

    /// Refuses a demand on an answer that begins with reasoning: it would be made of the reasoning.
    pub(crate) fn check_demand(&self) -> Result<(), ApiError> {
        if self.manner.constraint.is_some() && self.reading.starts_in_reasoning {
            let hint =
                " while the model reasons: chat_template_kwargs {\"enable_thinking\": false} ends that";
            return Err(ApiError::unsupported("response_format", hint));
        }
        Ok(())
    }

    fn request(&self, app: &App, prompt: &[u32], choice: u64) -> Request {
        let manner = &self.manner;
        // Memory may leave less than the model's context.
        let default = DEFAULT_MAX_TOKENS.min(app.most_tokens().saturating_sub(prompt.len())).max(1);
        let mut sampling = manner.sampling.clone();
        if choice > 0 {
            let first = sampling.seed.unwrap_or_else(|| derived_seed(prompt, app.seed_salt()));
            sampling.seed = Some(first.wrapping_add(choice));
        }
        Request {
            prompt: prompt.to_vec(),
            end_ids: app.tokenizer.end_ids().to_vec(),
            sampling,
            logits: manner.logits.clone(),
            constraint: manner.constraint.clone(),
            log_probabilities: manner.log_probabilities,
            max_tokens: Some(manner.max_tokens.unwrap_or(default)),
            prefill_chunk: PREFILL_CHUNK,
        }
    }
}
