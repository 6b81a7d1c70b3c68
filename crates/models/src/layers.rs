//! The layers that families are written from. Each is the textbook formula over rows; where rows come from, and what
//! runs beside them, is not visible here.

mod attention;
mod embedding;
mod head;
mod linear;
mod mlp;
mod moe;
mod norm;

pub(crate) use attention::{Attention, AttentionNames, AttentionOptions, HeadNorms};
pub(crate) use embedding::{Embedding, Table};
pub(crate) use head::Head;
pub(crate) use linear::Linear;
pub(crate) use mlp::{Activation, GatedMlp, GatedMlpNames};
pub(crate) use moe::{ExpertNames, Experts, ExpertsShape};
pub(crate) use norm::RmsNorm;
