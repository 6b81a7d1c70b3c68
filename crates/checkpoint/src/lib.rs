//! Bytes on disk to named, typed, pinned weights.
//!
//! [`Checkpoint::open`] reads GGUF files and safetensors folders, MLX-quantized ones included, behind one face: tensors
//! by the checkpoint's own names, shapes outermost first, matrices as [`samebit_arith::Encoded`]. Opening reads headers
//! only; weights are memory-mapped.
//!
//! Two rules hold throughout. **Bad input is an error that a person can act on**: file, field or tensor, found, expected;
//! never a panic. **Memory is bounded by the file**: every count is checked against the bytes that are left before
//! anything is allocated for it. The crate does no arithmetic on weights; converting a stored float to f32 is all.
#![deny(unsafe_code)]

mod checkpoint;
pub mod config;
mod dtype;
mod error;
mod files;
pub mod gguf;
mod json;
mod matrix;
mod mmap;
mod names;
mod packed;
mod pins;
mod quantization;
pub mod safetensors;
mod strings;
mod table;
mod tensor;

pub use checkpoint::{Checkpoint, Source};
pub use config::Config;
pub use dtype::DType;
pub use error::CheckpointError;
pub use gguf::Metadata;
pub use matrix::Matrix;
pub use mmap::{Advice, MappedFile};
pub use pins::{Pin, hex};
pub use quantization::{MlxQuantization, Mode, Quantization, Scheme};
pub use strings::Strings;
pub use tensor::{Tensor, TensorEntry};
