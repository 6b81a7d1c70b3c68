//! What a sequence leaves behind: one state per layer, and the verbs that all of them have.
//!
//! `advance` is done by the forward pass alone; [`SequenceState::rollback`], cloning (a snapshot that shares its full
//! pages) and [`SequenceState::encode`] never look at what the numbers mean. Each verb leaves exactly the bits that running the remaining
//! tokens from nothing would have left.

mod blocks;
mod encoding;
mod paged_kv;

use std::fmt;
use std::sync::Arc;

use samebit_arith::{KvPage, KvShape, KvType};

pub use blocks::{StateBlock, StateDecoder};
pub use paged_kv::PagedKv;

use crate::StateError;

/// What a layer keeps of the tokens it has seen.
#[derive(Clone, Debug)]
pub enum LayerState {
    /// Keys and values of every position.
    Attention(PagedKv),
}

impl LayerState {
    /// Whether it can forget every position from `to` on, and be as if they had never been. A layer that folds positions
    /// into a state of fixed size cannot; its states are kept at boundaries instead.
    pub fn can_rollback_to(&self, to: usize) -> bool {
        match self {
            Self::Attention(kv) => to <= kv.length(),
        }
    }
}

/// The kind and size of a layer's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerShape {
    /// Keys and values of every position.
    Attention(KvShape),
}

impl LayerShape {
    /// Bytes that one more position takes.
    pub fn bytes_per_position(self, kv: KvType) -> usize {
        match self {
            Self::Attention(shape) => KvPage::full_bytes(shape, kv) / KvPage::POSITIONS,
        }
    }

    fn empty(self, kv: KvType) -> LayerState {
        match self {
            Self::Attention(shape) => LayerState::Attention(PagedKv::new(shape, kv)),
        }
    }
}

impl fmt::Display for LayerShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attention(KvShape { kv_heads, key_dim, value_dim }) => {
                write!(f, "attention {kv_heads}x({key_dim}+{value_dim})")
            }
        }
    }
}

/// Everything a state depends on apart from tokens and weights. States of unequal identities never meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateIdentity {
    /// Family and digest of the options that enter the arithmetic.
    pub(crate) model: String,
    /// Id of the arithmetic plan, cache type included.
    pub(crate) plan: String,
    /// Cache type.
    pub(crate) kv: KvType,
    /// One entry per layer.
    pub(crate) layers: Vec<LayerShape>,
}

impl StateIdentity {
    /// Id of the arithmetic plan, cache type included.
    pub fn plan(&self) -> &str {
        &self.plan
    }
}

/// One line, equal for equal identities; it is what encoded states carry.
impl fmt::Display for StateIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} plan {} kv {} layers ", self.model, self.plan, self.kv)?;
        let mut rest = &self.layers[..];
        let mut separator = "";
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|shape| *shape == first).count();
            write!(f, "{separator}{run} of {first}")?;
            (rest, separator) = (&rest[run..], ", ");
        }
        Ok(())
    }
}

/// The state of one sequence. Cloning it is cheap and is the snapshot: full pages are shared, and a page that is still
/// growing is copied by whichever clone writes to it first.
#[derive(Clone, Debug)]
pub struct SequenceState {
    identity: Arc<StateIdentity>,
    layers: Vec<LayerState>,
    length: usize,
}

/// A state kept aside by [`SequenceState::snapshot`].
#[derive(Clone, Debug)]
pub struct Snapshot(SequenceState);

impl Snapshot {
    /// Tokens that the kept state covers.
    pub fn length(&self) -> usize {
        self.0.length
    }
}

impl SequenceState {
    /// A sequence of no tokens.
    pub(crate) fn new(identity: Arc<StateIdentity>) -> Self {
        let layers = identity.layers.iter().map(|shape| shape.empty(identity.kv)).collect();
        Self { identity, layers, length: 0 }
    }

    /// Number of tokens it covers: the position of the next one.
    pub fn length(&self) -> usize {
        self.length
    }

    /// How keys and values are stored.
    pub fn kv_type(&self) -> KvType {
        self.identity.kv
    }

    /// What it depends on apart from tokens and weights.
    pub fn identity(&self) -> &StateIdentity {
        &self.identity
    }

    /// The states of the layers, first layer first.
    pub fn layers(&self) -> &[LayerState] {
        &self.layers
    }

    /// Bytes it holds, pages that other sequences share included.
    pub fn bytes(&self) -> usize {
        self.layers
            .iter()
            .map(|layer| match layer {
                LayerState::Attention(kv) => kv.bytes(),
            })
            .sum()
    }

    /// Whether [`SequenceState::rollback`] can go back to position `to`.
    pub fn can_rollback_to(&self, to: usize) -> bool {
        to <= self.length && self.layers.iter().all(|layer| layer.can_rollback_to(to))
    }

    /// Forgets every token from position `to` on.
    ///
    /// # Errors
    /// When it holds fewer tokens.
    pub fn rollback(&mut self, to: usize) -> Result<(), StateError> {
        if to > self.length {
            return Err(StateError::Rollback { to, length: self.length });
        }
        for layer in &mut self.layers {
            match layer {
                LayerState::Attention(kv) => kv.truncate(to),
            }
        }
        self.length = to;
        Ok(())
    }

    /// Keeps the present state aside.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.clone())
    }

    /// Returns to a snapshot of this sequence, or of any other with the same identity.
    ///
    /// # Errors
    /// When the snapshot is of another model, plan or cache type.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), StateError> {
        if snapshot.0.identity != self.identity {
            return Err(StateError::Identity {
                found: snapshot.0.identity.to_string(),
                expected: self.identity.to_string(),
            });
        }
        *self = snapshot.0.clone();
        Ok(())
    }

    /// The layers, to be advanced by a forward pass that then calls [`SequenceState::advanced`].
    pub(crate) fn layer_mut(&mut self, layer: usize) -> &mut LayerState {
        &mut self.layers[layer]
    }

    /// Every layer has taken `tokens` more positions.
    pub(crate) fn advanced(&mut self, tokens: usize) {
        self.length += tokens;
        debug_assert!(self.layers.iter().all(|layer| match layer {
            LayerState::Attention(kv) => kv.length() == self.length,
        }));
    }
}
