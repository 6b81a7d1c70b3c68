//! A sequence: its state, and the tokens that the state covers.

use samebit_arith::KvType;
use samebit_models::{Model, SequenceState};

use crate::EngineError;

/// A sequence: its state, and the tokens that the state covers.
#[derive(Clone, Debug)]
pub struct Sequence {
    pub(crate) state: SequenceState,
    pub(crate) ids: Vec<u32>,
}

impl Sequence {
    /// A sequence of no tokens, which stores keys and values as `kv`.
    pub fn new(model: &Model, kv: KvType) -> Self {
        Self { state: model.new_state(kv), ids: Vec::new() }
    }

    /// The sequence whose tokens `ids` left `state`; `None` if the state covers another number of tokens.
    pub fn of(ids: Vec<u32>, state: SequenceState) -> Option<Self> {
        (ids.len() == state.length()).then_some(Self { state, ids })
    }

    /// The tokens that the state covers.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// What the tokens left in the model.
    pub fn state(&self) -> &SequenceState {
        &self.state
    }

    /// How keys and values are stored.
    pub fn kv_type(&self) -> KvType {
        self.state.kv_type()
    }

    /// Goes back to where `prompt` departs from the stored tokens, and returns how many tokens stay. The last prompt
    /// token is never among them: its row gives the first logits.
    pub(crate) fn keep_common_prefix(&mut self, prompt: &[u32]) -> Result<usize, EngineError> {
        let reusable = prompt.len().saturating_sub(1);
        let common =
            self.ids.iter().zip(&prompt[..reusable]).take_while(|(stored, wanted)| stored == wanted).count();
        self.state.rollback(common)?;
        self.ids.truncate(common);
        Ok(common)
    }
}
