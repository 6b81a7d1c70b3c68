//! Model families: from a checkpoint's description to a forward pass.
//!
//! [`Model::plan`] reads a configuration and refuses what cannot be computed exactly as described; [`Model::load`] packs
//! the weights; [`Model::forward`] runs rows of several sequences at once, each with its [`SequenceState`]. A family is a
//! module under `families` (its configuration, its tensor names, its blocks) and one line in the registry; families are
//! written from the layers under `layers`, and hold no I/O and no threads.
#![forbid(unsafe_code)]

mod config;
mod error;
mod families;
mod forward;
mod layers;
mod model;
mod plan;
mod registry;
mod state;
pub mod trace;
mod weights;

pub use error::{ForwardError, ModelError, StateError};
pub use forward::{LogitRows, Outputs, RouterPicks, Span, Taps, TokenId};
pub use model::{LoadProgress, Model, ModelInfo};
pub use plan::{PLAN_VERSION, plan_id};
pub use state::{
    LayerShape, LayerState, PagedKv, SequenceState, Snapshot, StateBlock, StateDecoder, StateIdentity,
};
pub use weights::{TensorUse, Unused};
