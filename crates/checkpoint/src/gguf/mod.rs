//! GGUF: one file (or a set of numbered parts) with typed metadata and tensors.

mod cursor;
mod ggml_type;
mod metadata;
mod parse;
mod split;
mod value;
pub mod writer;

pub use ggml_type::GgmlType;
pub use metadata::{FromGguf, Metadata};
pub use parse::{GgufHeader, parse};
pub use value::{GgufArray, GgufValue};

pub(crate) use ggml_type::{dtype_of, supported_names};
pub(crate) use split::{open_parts, same_model};
