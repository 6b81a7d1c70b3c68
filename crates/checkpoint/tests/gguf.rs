//! GGUF: what is read, and how everything else is refused.

mod support;

use std::path::Path;

use samebit_arith::{FloatType, Format};
use samebit_checkpoint::gguf::writer::GgufWriter;
use samebit_checkpoint::gguf::{self, GgufArray, GgufValue};
use samebit_checkpoint::{Checkpoint, DType, Source, Strings};
use support::{fixture, floats, message, refusal, small_gguf, text};

/// The message that refuses these bytes.
fn parse_refusal(bytes: &[u8]) -> String {
    message(gguf::parse(Path::new("m.gguf"), bytes))
}

/// Checks that a message names the file and holds all parts.
fn check(message: &str, parts: &[&str]) {
    assert!(message.starts_with("m.gguf: "), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// The small file with `old` replaced by `new` of the same length, at its first occurrence.
fn patched(old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut bytes = small_gguf().to_bytes().unwrap();
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// A tensor description as the file stores it, without the offset.
fn description(name: &str, dims: &[u64], kind: u32) -> Vec<u8> {
    let mut bytes = (name.len() as u64).to_le_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes
}

#[test]
fn reads_every_type_of_the_fixture() {
    let checkpoint = Checkpoint::open(fixture("gguf-quant/all-types.gguf")).unwrap();
    assert_eq!(checkpoint.source(), Source::Gguf);
    let reference = Checkpoint::open(fixture("gguf-quant/expected.safetensors")).unwrap();
    assert_eq!(checkpoint.tensors().len(), 26);
    for tensor in checkpoint.tensors() {
        let kind = tensor.name().strip_prefix("t.").unwrap();
        assert_eq!(tensor.dtype().to_string(), kind);
        assert_eq!(
            tensor.data(),
            reference.tensor(&format!("{kind}.random.bytes")).unwrap().data(),
            "{kind}"
        );
        let supported = tensor.dtype().format().is_some();
        if tensor.shape().len() == 1 {
            assert_eq!(tensor.to_f32().unwrap().len(), 24);
        } else if supported {
            let matrix = checkpoint.matrix_of(tensor.name(), 2, tensor.shape()[1]).unwrap();
            assert_eq!(matrix.format().to_string(), kind);
            assert_eq!((matrix.experts(), matrix.is_stacked()), (1, false));
            assert_eq!(DType::from_format(matrix.format()), Some(tensor.dtype()));
        } else {
            let message = message(checkpoint.matrix(tensor.name()));
            assert!(
                message.contains(&format!("{kind} is not supported yet; supported: F32, F16")),
                "{message}"
            );
        }
    }
}

#[test]
fn matrices_hold_the_values_of_the_fixture() {
    let checkpoint = Checkpoint::open(fixture("gguf-quant/all-types.gguf")).unwrap();
    let reference = Checkpoint::open(fixture("gguf-quant/expected.safetensors")).unwrap();
    let mut compared = 0;
    for tensor in checkpoint.tensors().filter(|tensor| tensor.shape().len() == 2) {
        let Ok(matrix) = checkpoint.matrix(tensor.name()) else { continue };
        let kind = tensor.dtype().to_string();
        let expected = reference.tensor(&format!("{kind}.random.values")).unwrap().to_f32().unwrap();
        let mut row = vec![0.0; matrix.columns()];
        for (index, expected) in expected.chunks(matrix.columns()).enumerate() {
            matrix.encoded().dequantize_row(index, &mut row);
            assert_eq!(row, expected, "{kind} row {index}");
        }
        compared += 1;
    }
    assert_eq!(compared, 14);
}

#[test]
fn reads_typed_metadata() {
    let checkpoint = Checkpoint::open(fixture("gguf-quant/all-types.gguf")).unwrap();
    let metadata = checkpoint.metadata().unwrap();
    assert_eq!(metadata.len(), 10);
    assert_eq!(metadata.str("general.architecture").unwrap(), "llama");
    assert_eq!(metadata.u32("test.u32").unwrap(), 7);
    assert_eq!(metadata.required::<i64>("test.i32").unwrap(), -7);
    assert_eq!(metadata.required::<u64>("test.u64").unwrap(), 1 << 40);
    assert_eq!(metadata.f32("test.f32").unwrap(), 0.25);
    assert_eq!(metadata.required::<f64>("test.f64").unwrap(), 0.125);
    assert!(metadata.bool("test.bool").unwrap());
    assert!(metadata.strings("test.strings").unwrap().iter().eq(["a", "", "é你😀"]));
    assert_eq!(metadata.required::<Vec<i64>>("test.ints").unwrap(), [1, -2, 3]);
    let lines: Vec<String> = metadata.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    assert_eq!(lines[0], "general.architecture = llama");
    assert_eq!(lines[8], "test.strings = array of 3 string");

    assert!(metadata.optional::<u32>("absent").unwrap().is_none());
    let refused = message(metadata.u32("test.i32"));
    assert!(refused.contains("\"test.i32\": found -7 (i32), expected an integer from 0 to"), "{refused}");
    let refused = message(metadata.f32("test.bool"));
    assert!(refused.contains("\"test.bool\": found bool, expected a float"), "{refused}");
    let refused = message(metadata.usize("llama.block_count"));
    assert!(refused.contains("the key llama.block_count is missing, expected an integer"), "{refused}");
}

#[test]
fn what_is_written_is_read_back() {
    let array = |array| GgufValue::Array(Box::new(array));
    let values = [
        GgufValue::U8(1),
        GgufValue::I8(-1),
        GgufValue::U16(2),
        GgufValue::I16(-2),
        GgufValue::U32(3),
        GgufValue::I32(-3),
        GgufValue::F32(0.5),
        GgufValue::Bool(true),
        text("é"),
        GgufValue::U64(u64::MAX),
        GgufValue::I64(i64::MIN),
        GgufValue::F64(0.1),
        array(GgufArray::U8(vec![1, 2])),
        array(GgufArray::I8(vec![-1, 2])),
        array(GgufArray::U16(vec![1, 2])),
        array(GgufArray::I16(vec![-1, 2])),
        array(GgufArray::U32(vec![])),
        array(GgufArray::I32(vec![-1])),
        array(GgufArray::F32(vec![1.5])),
        array(GgufArray::Bool(vec![true, false])),
        array(GgufArray::String(["", "x"].into_iter().collect::<Strings>())),
        array(GgufArray::Array(vec![
            GgufArray::U64(vec![7]),
            GgufArray::I64(vec![]),
            GgufArray::F64(vec![1.0]),
        ])),
    ];
    let mut writer = GgufWriter::default();
    for (index, value) in values.iter().enumerate() {
        writer = writer.value(&format!("key.{index}"), value.clone());
    }
    let header = gguf::parse(Path::new("m.gguf"), &writer.to_bytes().unwrap()).unwrap();
    assert_eq!(header.version, 3);
    assert_eq!(header.alignment, 32);
    assert!(header.metadata.iter().map(|(_, value)| value).eq(&values));
}

#[test]
fn shapes_are_outermost_first_and_experts_are_stacked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let data: Vec<u8> = (0..48).collect();
    let writer = GgufWriter::default().tensor("e", DType::Bf16, &[3, 2, 4], &data);
    std::fs::write(&path, writer.to_bytes().unwrap()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let matrix = checkpoint.experts_of("e", 3, 2, 4).unwrap();
    assert_eq!(matrix.format(), Format::Float(FloatType::Bf16));
    assert_eq!((matrix.experts(), matrix.rows(), matrix.columns()), (3, 2, 4));
    assert_eq!(matrix.encoded().rows(), 6);
    assert_eq!((matrix.expert(2).rows(), matrix.expert(2).bytes()), (2, 16));
    let refused = message(checkpoint.matrix_of("e", 6, 4));
    assert!(refused.contains("tensor e has shape [3, 2, 4], expected [6, 4]"), "{refused}");
}

#[test]
fn version_2_is_read() {
    let mut bytes = small_gguf().to_bytes().unwrap();
    bytes[4] = 2;
    assert_eq!(gguf::parse(Path::new("m.gguf"), &bytes).unwrap().version, 2);
}

#[test]
fn wrong_heads_are_refused() {
    check(&parse_refusal(b""), &["magic: found an empty file"]);
    check(&parse_refusal(b"GG"), &["magic: found 2 bytes left", "cut short"]);
    check(
        &parse_refusal(b"PK\x03\x04aaaaaaaaaaaaaaaaaaaa"),
        &["magic: found \"PK\\x03\\x04\"", "not a GGUF file"],
    );
    let version = |version: u32| {
        let mut bytes = small_gguf().to_bytes().unwrap();
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        parse_refusal(&bytes)
    };
    check(&version(1), &["version: found version 1, expected version 2 or 3"]);
    check(&version(4), &["version: found version 4, expected version 2 or 3"]);
    check(&version(3u32.swap_bytes()), &["a big-endian file, expected a little-endian file"]);
}

#[test]
fn absurd_counts_are_refused() {
    for count in [1u64 << 20, u64::from(u32::MAX), 1 << 60, u64::MAX] {
        for (at, field) in [(8, "tensor count"), (16, "metadata count")] {
            let mut bytes = small_gguf().to_bytes().unwrap();
            bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
            check(&parse_refusal(&bytes), &[field, &format!("found a count of {count}"), "at most"]);
        }
        // The length of the first key, of a text, and of an array.
        let mut bytes = small_gguf().to_bytes().unwrap();
        bytes[24..32].copy_from_slice(&count.to_le_bytes());
        check(&parse_refusal(&bytes), &["name of metadata entry 0", "at most"]);
        let mut bytes = GgufWriter::default()
            .value("a", GgufValue::Array(Box::new(GgufArray::F64(vec![0.0; 4]))))
            .to_bytes()
            .unwrap();
        bytes[24 + 9 + 8..24 + 9 + 16].copy_from_slice(&count.to_le_bytes());
        check(&parse_refusal(&bytes), &["metadata \"a\"", "at most 4"]);
    }
}

#[test]
fn damaged_metadata_is_refused() {
    check(&parse_refusal(&patched(b"llama.block", b"\xff\xfe\xffma.block")), &["entry 1", "expected UTF-8"]);
    let twice = GgufWriter::default().value("a", GgufValue::U8(1)).value("a", GgufValue::U8(2));
    check(&parse_refusal(&twice.to_bytes().unwrap()), &["the key \"a\" twice, as entries 0 and 1"]);
    let unnamed = GgufWriter::default().value("", GgufValue::U32(1));
    check(&parse_refusal(&unnamed.to_bytes().unwrap()), &["entry 0", "an empty name"]);
    let mut flag = GgufWriter::default().value("flag", GgufValue::Bool(true)).to_bytes().unwrap();
    *flag.last_mut().unwrap() = 2;
    check(&parse_refusal(&flag), &["metadata \"flag\"", "the byte 2", "0 or 1"]);
    let mut kind = GgufWriter::default().value("k", GgufValue::U32(1)).to_bytes().unwrap();
    kind[24 + 9] = 13;
    check(&parse_refusal(&kind), &["metadata \"k\"", "value type 13"]);
    for alignment in [0, 3, 48] {
        let writer = GgufWriter::default().value("general.alignment", GgufValue::U32(alignment));
        let expected = [&format!("found {alignment}, expected a power of two") as &str, "general.alignment"];
        check(&parse_refusal(&writer.to_bytes().unwrap()), &expected);
    }
}

#[test]
fn deep_arrays_are_refused() {
    let mut array = GgufArray::U8(vec![]);
    for _ in 0..8 {
        array = GgufArray::Array(vec![array]);
    }
    let writer = GgufWriter::default().value("deep", GgufValue::Array(Box::new(array)));
    check(
        &parse_refusal(&writer.to_bytes().unwrap()),
        &["metadata \"deep\"", "nested 9 deep, expected at most 8"],
    );
}

#[test]
fn damaged_tensors_are_refused() {
    let norm = description("output_norm.weight", &[4], 0);
    let changed = |dims: &[u64], kind| patched(&norm, &description("output_norm.weight", dims, kind));
    check(&parse_refusal(&changed(&[0], 0)), &["shape of tensor \"output_norm.weight\"", "a dimension of 0"]);
    check(&parse_refusal(&changed(&[u64::MAX], 0)), &["output_norm.weight", "a size that fits in memory"]);
    check(&parse_refusal(&changed(&[1 << 40], 0)), &["data of tensor", "cut short or damaged"]);
    check(&parse_refusal(&changed(&[4], 2)), &["rows of 4 elements", "a multiple of 32, since Q4_0"]);
    check(&parse_refusal(&changed(&[4], 999)), &["type of tensor", "the unknown type 999", "Q4_K"]);
    check(&parse_refusal(&changed(&[4], 4)), &["Q4_2 (type 4)", "withdrawn"]);
    let rank = |rank: u32| {
        let mut ranked = norm.clone();
        ranked[8 + 18..8 + 18 + 4].copy_from_slice(&rank.to_le_bytes());
        parse_refusal(&patched(&norm, &ranked))
    };
    check(&rank(0), &["number of dimensions", "found 0, expected 1 to 4"]);
    check(&rank(5), &["number of dimensions", "found 5, expected 1 to 4"]);
    check(&parse_refusal(&patched(b"output_norm", b"\0utput_nor\xff")), &["name of tensor 0", "UTF-8"]);

    let offset = |offset: u64| {
        let (mut old, mut new) = (norm.clone(), norm.clone());
        old.extend(0u64.to_le_bytes());
        new.extend(offset.to_le_bytes());
        parse_refusal(&patched(&old, &new))
    };
    check(&offset(33), &["offset of tensor", "a multiple of the alignment 32"]);
    check(&offset(1 << 20), &["data of tensor", "cut short or damaged"]);
    check(&offset(u64::MAX - 31), &["data of tensor", "cut short or damaged"]);
    check(&offset(32), &["overlapping tensors", "output_norm.weight", "blk.0.attn_q.weight"]);
}

#[test]
fn equal_tensor_names_are_refused() {
    let writer = small_gguf().tensor("output_norm.weight", DType::F32, &[1], &[0; 4]);
    check(&parse_refusal(&writer.to_bytes().unwrap()), &["output_norm.weight", "twice, as tensors 0 and 3"]);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = small_gguf().to_bytes().unwrap();
    gguf::parse(Path::new("m.gguf"), &bytes).unwrap();
    for length in 0..bytes.len() {
        let message = parse_refusal(&bytes[..length]);
        assert!(message.starts_with("m.gguf: ") && message.contains("expected"), "{length}: {message}");
    }
}

#[test]
fn missing_tensors_name_near_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, small_gguf().to_bytes().unwrap()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert!(checkpoint.contains("output_norm.weight") && !checkpoint.contains("output"));
    assert_eq!(checkpoint.vector_of("output_norm.weight", 4).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    for (refused, parts) in [
        (
            message(checkpoint.tensor("blk.0.attn_v.weight")),
            [
                "no tensor blk.0.attn_v.weight (near names: blk.0.attn_k",
                "architecture \"llama\" with 3 tensors in 1",
            ],
        ),
        (message(checkpoint.vector_of("output_norm.weight", 5)), ["has shape [4]", "expected [5]"]),
        (message(checkpoint.vector("blk.0.attn_q.weight")), ["has shape [2, 4]", "expected one dimension"]),
        (message(checkpoint.matrix("output_norm.weight")), ["has shape [4]", "expected [rows, columns]"]),
    ] {
        parts.iter().for_each(|part| assert!(refused.contains(part), "{refused}"));
    }
}

#[test]
fn the_writer_refuses_what_it_cannot_write() {
    let wrong_size = GgufWriter::default().tensor("a", DType::F32, &[2], &[0; 4]);
    assert!(message(wrong_size.to_bytes()).contains("found 4 bytes, expected shape [2] of F32"));
    let wrong_type = GgufWriter::default().tensor("a", DType::U32, &[1], &[0; 4]);
    assert!(message(wrong_type.to_bytes()).contains("found U32, expected a type that GGUF can hold"));
}

#[test]
fn zero_byte_and_foreign_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, b"").unwrap();
    assert!(refusal(&path).contains("an empty file"));
    let other = folder.path().join("m.bin");
    std::fs::write(&other, b"PK..").unwrap();
    assert!(refusal(&other).contains("neither a .gguf nor a .safetensors file"));
    assert!(refusal(&folder.path().join("absent.gguf")).contains("cannot open"));
    // A GGUF file is known by its first bytes too.
    std::fs::write(&other, small_gguf().to_bytes().unwrap()).unwrap();
    assert_eq!(Checkpoint::open(&other).unwrap().source(), Source::Gguf);
}

/// One part of a split model.
fn part(number: u16, count: u16, tensors: i32) -> GgufWriter {
    GgufWriter::default()
        .value("general.architecture", text(if number == 0 { "llama" } else { "part" }))
        .value("split.no", GgufValue::U16(number))
        .value("split.count", GgufValue::U16(count))
        .value("split.tensors.count", GgufValue::I32(tensors))
        .tensor(&format!("t{number}"), DType::F32, &[1], &floats(&[f32::from(number)]))
}

#[test]
fn any_part_opens_a_split_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: u16| folder.path().join(format!("big-model-{:05}-of-00003.gguf", number + 1));
    let write =
        |number, writer: GgufWriter| std::fs::write(path(number), writer.to_bytes().unwrap()).unwrap();
    (0..3).for_each(|number| write(number, part(number, 3, 3)));
    for opened in (0..3).map(path).chain([folder.path().to_path_buf()]) {
        let checkpoint = Checkpoint::open(opened).unwrap();
        assert_eq!(checkpoint.files().len(), 3);
        assert_eq!(checkpoint.metadata().unwrap().str("general.architecture").unwrap(), "llama");
        for number in 0..3u16 {
            let tensor = checkpoint.tensor(&format!("t{number}")).unwrap();
            assert_eq!(tensor.to_f32().unwrap(), [f32::from(number)]);
            assert_eq!(tensor.file(), path(number));
        }
    }

    write(2, part(2, 3, 3).tensor("t0", DType::F32, &[1], &[0; 4]));
    assert!(refusal(&path(0)).contains("split.tensors.count\": found 3, expected 4"));
    write(0, part(0, 3, 4));
    let refused = refusal(&path(0));
    assert!(refused.contains("tensor \"t0\": found it in ") && refused.contains("00003-of-00003.gguf too"));
    write(2, part(1, 3, 3));
    assert!(refusal(&path(0)).contains("split.no\": found 1, expected 2; the parts do not belong together"));
    write(2, part(2, 4, 3));
    assert!(refusal(&path(0)).contains("split.count\": found 4, expected 3"));
    std::fs::remove_file(path(2)).unwrap();
    let refused = refusal(&path(1));
    assert!(
        refused.contains("cannot open") && refused.contains("big-model-00003-of-00003.gguf"),
        "{refused}"
    );
}

#[test]
fn parts_under_foreign_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("renamed.gguf");
    std::fs::write(&path, part(0, 3, 3).to_bytes().unwrap()).unwrap();
    assert!(refusal(&path).contains("a name that ends in -00001-of-00003.gguf, since split.count is 3"));
    let path = folder.path().join("m-00002-of-00003.gguf");
    std::fs::write(&path, small_gguf().to_bytes().unwrap()).unwrap();
    assert!(refusal(&path).contains("no split.count in a file named as part 2 of 3"));
}
