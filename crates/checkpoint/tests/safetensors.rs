//! Safetensors: what is read, and how everything else is refused.

mod support;

use std::path::Path;

use proptest::prelude::*;
use samebit_checkpoint::safetensors::writer::{NewTensor, save};
use samebit_checkpoint::{Checkpoint, DType, Source, safetensors};
use support::{floats, message, raw_safetensors, refusal};

/// The message that refuses a file with this header and `size` bytes of data.
fn parse_refusal(header: &str, size: usize) -> String {
    message(safetensors::parse(Path::new("m.safetensors"), &raw_safetensors(header, &vec![0; size])))
}

fn check(message: &str, parts: &[&str]) {
    assert!(message.starts_with("m.safetensors: "), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// A header with one entry of F32.
fn one(shape: &str, offsets: &str) -> String {
    format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#)
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.safetensors");
    let tensors = [
        NewTensor { name: "logits", dtype: DType::F32, shape: &[1, 2], data: &floats(&[0.5, -0.0]) },
        NewTensor { name: "router", dtype: DType::I32, shape: &[2], data: &[1, 0, 0, 0, 255, 255, 255, 255] },
        NewTensor { name: "half", dtype: DType::F16, shape: &[], data: &[0, 0x3C] },
        NewTensor { name: "none", dtype: DType::F64, shape: &[0, 3], data: &[] },
    ];
    save(&path, &[("format", "pt")], &tensors).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let header = safetensors::parse(&path, &bytes).unwrap();
    assert!(header.metadata().eq([("format", "pt")]));
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.source(), Source::Safetensors);
    assert_eq!(checkpoint.tensors().len(), 4);
    for (read, written) in checkpoint.tensors().zip(&tensors) {
        assert_eq!((read.name(), read.dtype()), (written.name, written.dtype));
        assert_eq!((read.shape(), read.data()), (written.shape, written.data));
    }
    assert_eq!(checkpoint.tensor("router").unwrap().to_i64().unwrap(), [1, -1]);
    assert_eq!(checkpoint.tensor("half").unwrap().to_f64().unwrap(), [1.0]);
    let logits = checkpoint.tensor("logits").unwrap().to_f32().unwrap();
    assert_eq!(logits[1].to_bits(), (-0.0f32).to_bits());
    assert!(message(checkpoint.tensor("router").unwrap().to_f32()).contains("I32 is not supported yet"));
    // Nothing but the file itself is left in the folder.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

    let wrong = NewTensor { name: "wrong", dtype: DType::F32, shape: &[3], data: &[0; 8] };
    assert!(message(save(&path, &[], &[wrong])).contains("\"wrong\": its data do not fit its shape"));
    assert!(message(save(&path, &[], &[tensors[0], tensors[0]])).contains("its name occurs twice"));
    // A failed write leaves the old file.
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn wrong_lengths_are_refused() {
    let parse = |bytes: &[u8]| message(safetensors::parse(Path::new("m.safetensors"), bytes));
    check(&parse(b""), &["header length: found a file of 0 bytes, expected at least 8"]);
    check(&parse(&[1; 7]), &["a file of 7 bytes"]);
    for length in [3u64, 1 << 40, u64::MAX] {
        let bytes = [&length.to_le_bytes()[..], b"{}"].concat();
        check(
            &parse(&bytes),
            &[&format!("header length: found {length}, expected at most 2 in a file of 10")],
        );
    }
    check(&parse(b"GGUF\x03\0\0\0\0\0\0\0"), &["header length", "no safetensors file"]);
    safetensors::parse(Path::new("m"), &raw_safetensors("{}   ", b"")).unwrap();
}

#[test]
fn damaged_headers_are_refused() {
    for (header, size, parts) in [
        ("", 0, ["header: found EOF", "the JSON of a safetensors header"]),
        ("[]", 0, ["header: found invalid type", "an object of tensors"]),
        (&"[".repeat(200), 0, ["header: found", "JSON"]),
        (r#"{"a":1}"#, 0, ["header: found invalid type: integer", "struct Described"]),
        (r#"{"a":{"dtype":"F32","shape":[1]}}"#, 4, ["missing field `data_offsets`", "line 1 column"]),
        (r#"{"a":{"dtype":"F32","dtype":"F32"}}"#, 4, ["duplicate field `dtype`", "line 1"]),
        (r#"{"__metadata__":{},"__metadata__":{}}"#, 0, ["the key __metadata__ occurs twice", "line 1"]),
        (
            r#"{"__metadata__":{"k":"1","k":"2"}}"#,
            0,
            ["__metadata__: found the key \"k\" twice", "every key once"],
        ),
        (r#"{"__metadata__":{"k":1}}"#, 0, ["invalid type: integer `1`, expected a string", "header"]),
        (&one("[-1]", "[0,4]"), 4, ["invalid value: integer `-1`", "u64"]),
        (&one("[1.5]", "[0,4]"), 4, ["invalid type: floating point", "u64"]),
        (&one("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, ["invalid length 9", "a list of up to 8 sizes"]),
        (&one("[1]", "[0,4,4]"), 4, ["header: found", "line 1"]),
        (&one("[1]", "[0,4]").replace("F32", "F33"), 4, ["dtype of tensor \"a\": found \"F33\"", "F64, F32"]),
        (&one("[1]", "[0,4]").replace("F32", "f32"), 4, ["dtype of tensor \"a\"", "\"f32\""]),
        (&one("[1]", "[4,0]"), 4, ["data_offsets of tensor \"a\": found [4, 0]", "within the 4 bytes"]),
        (&one("[2]", "[0,8]"), 4, ["data_offsets of tensor \"a\": found [0, 8]", "cut short or damaged"]),
        (&one("[1]", "[0,18446744073709551615]"), 4, ["data_offsets of tensor", "within the 4 bytes"]),
        (&one("[2]", "[0,4]"), 4, ["found 4 bytes, expected 8 bytes", "its shape is [2] of F32"]),
        (&one("[4294967296,4294967296]", "[0,4]"), 4, ["shape of tensor \"a\"", "a size in memory"]),
        (&one("[3]", "[0,4]").replace("F32", "F4"), 4, ["3 elements of F4", "a multiple of 2"]),
        (&one("[1]", "[0,4]"), 8, ["end of the data: found 4 bytes after \"a\"", "an end with the last"]),
        (&one("[1]", "[4,8]"), 8, ["gap between tensors: found the start", "\"a\" from"]),
        ("{}", 1, ["end of the data: found 1 bytes after the start", "damaged"]),
    ] {
        check(&parse_refusal(header, size), &parts);
    }
    let no_utf8 = [&2u64.to_le_bytes()[..], &[b'{', 0xFF]].concat();
    check(&message(safetensors::parse(Path::new("m.safetensors"), &no_utf8)), &["no UTF-8 at byte 1"]);
}

#[test]
fn overlaps_gaps_and_duplicates_name_both_tensors() {
    let two = |name: &str, second: &str| {
        let entry = |offsets| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}"#);
        format!(r#"{{"a":{},"{name}":{}}}"#, entry("[0,4]"), entry(second))
    };
    safetensors::parse(Path::new("m"), &raw_safetensors(&two("b", "[4,8]"), &[0; 8])).unwrap();
    check(&parse_refusal(&two("b", "[2,6]"), 6), &["overlapping tensors: found \"a\"", "and \"b\""]);
    check(&parse_refusal(&two("b", "[0,4]"), 4), &["overlapping tensors: found \"a\"", "and \"b\""]);
    check(&parse_refusal(&two("b", "[5,9]"), 9), &["gap between tensors: found \"a\"", "and \"b\""]);
    check(&parse_refusal(&two("a", "[4,8]"), 8), &["tensor names: found the name \"a\" twice"]);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = raw_safetensors(&one("[2]", "[0,8]"), &[0; 8]);
    safetensors::parse(Path::new("m.safetensors"), &bytes).unwrap();
    for length in 0..bytes.len() {
        check(&message(safetensors::parse(Path::new("m.safetensors"), &bytes[..length])), &["expected"]);
    }
}

/// A folder with two shards, an index and a config.
fn sharded() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, tensor: &str| {
        let tensor = NewTensor { name: tensor, dtype: DType::F32, shape: &[1], data: &[0; 4] };
        save(&folder.path().join(name), &[], &[tensor]).unwrap();
    };
    write("model-00001-of-00002.safetensors", "a");
    write("model-00002-of-00002.safetensors", "b");
    index(
        folder.path(),
        r#"{"metadata": {"total_size": 8}, "weight_map":
            {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"}}"#,
    );
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "qwen3"}"#).unwrap();
    folder
}

fn index(folder: &Path, text: &str) {
    std::fs::write(folder.join("model.safetensors.index.json"), text).unwrap();
}

#[test]
fn shards_open_as_one() {
    let folder = sharded();
    for opened in ["", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        let checkpoint = Checkpoint::open(folder.path().join(opened)).unwrap();
        assert_eq!(checkpoint.files().len(), 2);
        assert!(checkpoint.contains("a") && checkpoint.contains("b"));
        assert_eq!(checkpoint.config().unwrap().root().str("model_type").unwrap(), "qwen3");
        assert_eq!(
            checkpoint.about(),
            "a safetensors checkpoint of architecture \"qwen3\" with 2 tensors in 2 files"
        );
    }
    // A file that the index does not list stands for itself.
    let other = folder.path().join("other.safetensors");
    save(&other, &[], &[]).unwrap();
    assert_eq!(Checkpoint::open(&other).unwrap().tensors().len(), 0);
}

#[test]
fn indexes_that_contradict_their_files_are_refused() {
    let folder = sharded();
    for (text, part) in [
        (r#"{"weight_map": {"a": "absent.safetensors"}}"#, "file \"absent.safetensors\": found no such file"),
        (
            r#"{"weight_map": {"c": "model-00001-of-00002.safetensors"}}"#,
            "tensor \"c\": found no such tensor in any of the files, expected it in model-00001",
        ),
        (
            r#"{"weight_map": {"a": "model-00002-of-00002.safetensors", "b": "model-00001-of-00002.safetensors"}}"#,
            "model-00001-of-00002.safetensors, expected it in model-00002-of-00002.safetensors",
        ),
        (r#"{"weight_map": {"a": "../x"}}"#, "found \"../x\", expected the name of a file"),
        (r#"{"weight_map": {"a": "/etc/passwd"}}"#, "found \"/etc/passwd\""),
        (r#"{"weight_map": {"a": ""}}"#, "found \"\""),
        (r#"{"weight_map": {"a": "x", "a": "x"}}"#, "the tensor \"a\" twice"),
        (r#"{"weight_map": {"a": 1}}"#, "invalid type"),
        ("{}", "missing field `weight_map`"),
        ("", "EOF"),
    ] {
        index(folder.path(), text);
        let refused = refusal(folder.path());
        assert!(refused.contains("model.safetensors.index.json: ") && refused.contains(part), "{refused}");
    }
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let folder = sharded();
    let a = NewTensor { name: "a", dtype: DType::F32, shape: &[1], data: &[0; 4] };
    let b = NewTensor { name: "b", ..a };
    save(&folder.path().join("model-00002-of-00002.safetensors"), &[], &[b, a]).unwrap();
    let refused = refusal(folder.path());
    assert!(refused.contains("model-00001-of-00002.safetensors: tensor \"a\": found it in "), "{refused}");
}

#[test]
fn folders_say_what_they_lack() {
    let folder = tempfile::tempdir().unwrap();
    assert!(refusal(folder.path()).contains("neither .safetensors nor .gguf files"));
    save(&folder.path().join("weights.safetensors"), &[], &[]).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert!(message(checkpoint.required_config()).contains("there is no config.json"));
    save(&folder.path().join("more.safetensors"), &[], &[]).unwrap();
    assert!(refusal(folder.path()).contains("2 .safetensors files and no model.safetensors.index.json"));
    save(&folder.path().join("model.safetensors"), &[], &[]).unwrap();
    Checkpoint::open(folder.path()).unwrap();
    std::fs::write(folder.path().join("config.json"), "{\"a\": 1, \"a\": 2}").unwrap();
    assert!(refusal(folder.path()).contains("config.json: JSON: found the key \"a\" occurs twice"));
    std::fs::write(folder.path().join("config.json"), vec![b' '; 5 << 20]).unwrap();
    assert!(refusal(folder.path()).contains("config.json: size: found more than 4194304 bytes"));
}

proptest! {
    #[test]
    fn shapes_of_any_size_are_judged_without_overflow(shape in proptest::collection::vec(any::<u64>(), 0..9)) {
        let _ = parse_result(&one(&format!("{shape:?}"), "[0,4]"));
    }
}

fn parse_result(header: &str) -> bool {
    safetensors::parse(Path::new("m"), &raw_safetensors(header, &[0; 4])).is_ok()
}
