//! Any bytes as a GGUF file: an error or tensors inside the file, never a panic.
//!
//! `cargo +nightly fuzz run gguf_parse -- -max_len=65536`, best started from `fixtures/gguf-quant/all-types.gguf`.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = samebit_checkpoint::gguf::parse(Path::new("fuzz.gguf"), bytes) {
        for tensor in header.tensors {
            assert!(bytes.get(tensor.start..tensor.start + tensor.bytes).is_some(), "{tensor:?}");
        }
        for (key, value) in header.metadata.iter() {
            assert_eq!(header.metadata.get(key).map(ToString::to_string), Some(value.to_string()));
        }
    }
});
