//! Any bytes as a safetensors file: an error or tensors inside the file, never a panic.
//!
//! `cargo +nightly fuzz run safetensors_parse -- -max_len=65536`, best started from a small checkpoint in `fixtures`.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = samebit_checkpoint::safetensors::parse(Path::new("fuzz.safetensors"), bytes) {
        let covered: usize = header.tensors.iter().map(|tensor| tensor.bytes).sum();
        for tensor in &header.tensors {
            assert!(bytes.get(tensor.start..tensor.start + tensor.bytes).is_some(), "{tensor:?}");
        }
        assert!(covered < bytes.len());
    }
});
