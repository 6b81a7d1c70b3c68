//! The families: each reads its configuration, names its tensors, and computes its blocks.

pub(crate) mod gemma3;
pub(crate) mod llama;
mod names;
mod pre_norm;
pub(crate) mod qwen2;
pub(crate) mod qwen3;
pub(crate) mod qwen3_moe;

pub(crate) use names::Names;
