//! Safetensors: one file, or several with an index that tells which tensor is where.

mod header;
mod shards;
pub mod writer;

pub use header::{SafetensorsHeader, parse};

pub(crate) use shards::{INDEX_NAME, Index, open_single};
