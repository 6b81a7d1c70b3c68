//! What several tests share: where fixtures are, and small checkpoints built on the spot.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::path::{Path, PathBuf};

use samebit_checkpoint::gguf::GgufValue;
use samebit_checkpoint::gguf::writer::GgufWriter;
use samebit_checkpoint::safetensors::writer::{self, NewTensor};
use samebit_checkpoint::{Checkpoint, CheckpointError, DType};

/// A path below the repository's `fixtures`.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// The message of the error that opening must give.
pub fn refusal(path: &Path) -> String {
    message(Checkpoint::open(path))
}

/// The message of an error.
pub fn message<T>(result: Result<T, CheckpointError>) -> String {
    match result {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    }
}

/// A text value.
pub fn text(text: &str) -> GgufValue {
    GgufValue::String(text.to_owned())
}

/// A GGUF file with three tensors and some metadata; the smallest that has everything.
pub fn small_gguf() -> GgufWriter {
    GgufWriter::default()
        .value("general.architecture", text("llama"))
        .value("llama.block_count", GgufValue::U32(1))
        .tensor("output_norm.weight", DType::F32, &[4], &floats(&[1.0, 2.0, 3.0, 4.0]))
        .tensor("blk.0.attn_q.weight", DType::F16, &[2, 4], &[0; 16])
        .tensor("blk.0.attn_k.weight", DType::Bf16, &[1, 4], &[0; 8])
}

/// Little-endian bytes.
pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The bytes of a safetensors file.
pub fn safetensors(tensors: &[NewTensor]) -> Vec<u8> {
    let mut bytes = Vec::new();
    writer::write(&mut bytes, &[("format", "pt")], tensors).unwrap();
    bytes
}

/// The bytes of a safetensors file with this header and these data.
pub fn raw_safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}
