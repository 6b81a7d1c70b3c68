//! How memory for states is shared out.

use samebit_arith::{KvPage, KvType};
use samebit_models::Model;

use super::SchedulerOptions;
use crate::EngineError;

/// What a sequence costs, and how much there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    bytes_per_position: u64,
    context: usize,
    state_bytes: u64,
}

impl MemoryPlan {
    pub(super) fn new(model: &Model, options: &SchedulerOptions) -> Result<Self, EngineError> {
        let plan = Self::of(model, options.kv, options.state_bytes);
        if plan.most_tokens() < 2 {
            return Err(EngineError::Option {
                option: "state-bytes",
                found: options.state_bytes.to_string(),
                expected: format!("at least {} bytes, which hold one page of this model", plan.bytes_for(1)),
            });
        }
        Ok(plan)
    }

    /// The plan of a model with `state_bytes` for the states of its sequences.
    pub fn of(model: &Model, kv: KvType, state_bytes: u64) -> Self {
        Self {
            bytes_per_position: model.info().bytes_per_position(kv) as u64,
            context: model.info().context,
            state_bytes,
        }
    }

    /// Bytes that a sequence of `tokens` can come to take, in whole pages.
    pub fn bytes_for(&self, tokens: usize) -> u64 {
        let positions = tokens.div_ceil(KvPage::POSITIONS) * KvPage::POSITIONS;
        self.bytes_per_position.saturating_mul(positions as u64)
    }

    /// The longest sequence, prompt and answer together, that the context and the memory allow.
    pub fn most_tokens(&self) -> usize {
        let page = self.bytes_for(1).max(1);
        let pages = usize::try_from(self.state_bytes / page).unwrap_or(usize::MAX);
        pages.saturating_mul(KvPage::POSITIONS).min(self.context)
    }
}
