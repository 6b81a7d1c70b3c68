//! Files that are wrong in every way: each is one paragraph that names the file and the place, and exit code 2.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use samebit_checkpoint::DType;
use samebit_checkpoint::gguf::{GgufArray, GgufValue, writer::GgufWriter};
use support::{fail, fixture, text};

/// Runs a model in every way that opens it, and checks that each says `words`.
fn refused(model: &Path, words: &[&str]) {
    let out = model.with_extension("out");
    for arguments in [
        vec!["run", text(model), "--ids", "1,2"],
        vec!["logits", text(model), "--ids", "1,2", "--out", text(&out)],
        vec!["bench", text(model), "-p", "1", "-n", "1"],
    ] {
        let error = fail(&arguments);
        let shown = text(model).to_owned();
        for word in words.iter().copied().chain([shown.as_str()]) {
            assert!(error.contains(word), "{arguments:?}: {word:?} is not in: {error}");
        }
        assert!(error.len() < 2000, "{} bytes: {error}", error.len());
    }
    assert!(!out.exists());
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// A `llama` of one layer, eight columns and ten tokens, as GGUF.
fn tiny_gguf() -> GgufWriter {
    let weights = |count: usize| vec![0u8; 4 * count];
    let mut writer = GgufWriter::default()
        .value("general.architecture", GgufValue::String("llama".to_owned()))
        .value("llama.block_count", GgufValue::U32(1))
        .value("llama.context_length", GgufValue::U32(64))
        .value("llama.embedding_length", GgufValue::U32(8))
        .value("llama.feed_forward_length", GgufValue::U32(16))
        .value("llama.attention.head_count", GgufValue::U32(2))
        .value("llama.attention.head_count_kv", GgufValue::U32(1))
        .value("llama.attention.layer_norm_rms_epsilon", GgufValue::F32(1e-5))
        .value("llama.vocab_size", GgufValue::U32(10));
    for (name, shape) in tiny_tensors() {
        writer = writer.tensor(name, DType::F32, &shape, &weights(shape.iter().product()));
    }
    writer
}

fn tiny_tensors() -> Vec<(&'static str, Vec<usize>)> {
    vec![
        ("token_embd.weight", vec![10, 8]),
        ("output_norm.weight", vec![8]),
        ("blk.0.attn_norm.weight", vec![8]),
        ("blk.0.attn_q.weight", vec![8, 8]),
        ("blk.0.attn_k.weight", vec![4, 8]),
        ("blk.0.attn_v.weight", vec![4, 8]),
        ("blk.0.attn_output.weight", vec![8, 8]),
        ("blk.0.ffn_norm.weight", vec![8]),
        ("blk.0.ffn_gate.weight", vec![16, 8]),
        ("blk.0.ffn_up.weight", vec![16, 8]),
        ("blk.0.ffn_down.weight", vec![8, 16]),
    ]
}

/// Replaces the first occurrence of some bytes.
fn replaced(bytes: &[u8], find: &[u8], replacement: &[u8]) -> Vec<u8> {
    let at = bytes.windows(find.len()).position(|window| window == find).expect("the bytes are there");
    [&bytes[..at], replacement, &bytes[at + find.len()..]].concat()
}

#[test]
fn the_tiny_gguf_itself_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let model = file(folder.path(), "tiny.gguf", &tiny_gguf().to_bytes().unwrap());
    let out = folder.path().join("out");
    support::succeed(&["logits", text(&model), "--ids", "1,2", "--out", text(&out)]);
}

#[test]
fn damaged_gguf_files() {
    let folder = tempfile::tempdir().unwrap();
    let good = tiny_gguf().to_bytes().unwrap();
    let with_count = |at: usize, count: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
        bytes
    };
    let mut duplicate_key = tiny_gguf();
    duplicate_key = duplicate_key.value("llama.block_count", GgufValue::U32(1));
    let duplicate_tensor = tiny_gguf().tensor("output_norm.weight", DType::F32, &[8], &[0; 32]);
    let cases: [(&str, Vec<u8>, &[&str]); 9] = [
        ("zero bytes", Vec::new(), &["magic", "empty file"]),
        ("wrong magic", replaced(&good, b"GGUF", b"FUGG"), &["magic", "GGUF"]),
        (
            "wrong version",
            replaced(&good, &[b'G', b'G', b'U', b'F', 3], &[b'G', b'G', b'U', b'F', 99]),
            &["version", "99"],
        ),
        ("absurd tensor count", with_count(8, u64::MAX), &["tensor"]),
        ("absurd metadata count", with_count(16, 1 << 40), &["metadata"]),
        ("cut in the header", good[..100].to_vec(), &["tensor count", "cut short"]),
        ("cut in the data", good[..good.len() - 4].to_vec(), &["blk.0.ffn_down.weight"]),
        ("a key twice", duplicate_key.to_bytes().unwrap(), &["llama.block_count", "twice"]),
        ("a tensor twice", duplicate_tensor.to_bytes().unwrap(), &["output_norm.weight"]),
    ];
    for (name, bytes, words) in cases {
        eprintln!("{name}");
        refused(&file(folder.path(), "bad.gguf", &bytes), words);
    }
}

#[test]
fn overlapping_tensors_in_a_gguf_file() {
    let folder = tempfile::tempdir().unwrap();
    let good = tiny_gguf().to_bytes().unwrap();
    // The description of a tensor ends with its type (F32 is 0) and its offset. That of the second becomes 0, where the
    // first lies.
    let name = b"output_norm.weight";
    let at = good.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    let offset = at + 4 + 8 + 4;
    let mut bytes = good;
    assert_ne!(bytes[offset..offset + 8], [0; 8]);
    bytes[offset..offset + 8].copy_from_slice(&0u64.to_le_bytes());
    refused(&file(folder.path(), "bad.gguf", &bytes), &["output_norm.weight", "token_embd.weight"]);
}

#[test]
fn gguf_files_of_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let missing = tiny_tensors().into_iter().filter(|(name, _)| *name != "blk.0.ffn_up.weight");
    let wrong = tiny_tensors().into_iter().map(|(name, shape)| {
        let shape = if name == "blk.0.attn_k.weight" { vec![6, 8] } else { shape };
        (name, shape)
    });
    let header = || {
        GgufWriter::default()
            .value("general.architecture", GgufValue::String("llama".to_owned()))
            .value("llama.block_count", GgufValue::U32(1))
            .value("llama.context_length", GgufValue::U32(64))
            .value("llama.embedding_length", GgufValue::U32(8))
            .value("llama.feed_forward_length", GgufValue::U32(16))
            .value("llama.attention.head_count", GgufValue::U32(2))
            .value("llama.attention.head_count_kv", GgufValue::U32(1))
            .value("llama.attention.layer_norm_rms_epsilon", GgufValue::F32(1e-5))
            .value("llama.vocab_size", GgufValue::U32(10))
    };
    let filled = |tensors: Vec<(&str, Vec<usize>)>| {
        tensors.into_iter().fold(header(), |writer, (name, shape)| {
            writer.tensor(name, DType::F32, &shape, &vec![0; 4 * shape.iter().product::<usize>()])
        })
    };
    let unknown = GgufWriter::default()
        .value("general.architecture", GgufValue::String("hyperllama".to_owned()))
        .tensor("a", DType::F32, &[8], &[0; 32]);
    let nameless =
        GgufWriter::default().value("general.tags", GgufValue::Array(Box::new(GgufArray::U32(vec![1]))));
    let cases: [(&str, GgufWriter, &[&str]); 4] = [
        ("missing tensor", filled(missing.collect()), &["blk.0.ffn_up.weight"]),
        ("wrong shape", filled(wrong.collect()), &["blk.0.attn_k.weight", "[6, 8]", "[4, 8]"]),
        ("unknown architecture", unknown, &["general.architecture", "hyperllama", "gemma3"]),
        ("no architecture", nameless, &["general.architecture", "missing"]),
    ];
    for (name, writer, words) in cases {
        eprintln!("{name}");
        refused(&file(folder.path(), "bad.gguf", &writer.to_bytes().unwrap()), words);
    }
}

/// A copy of the `llama` fixture to be spoiled.
fn llama_copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture("llama/model")).unwrap() {
        let entry = entry.unwrap();
        fs::write(folder.path().join(entry.file_name()), fs::read(entry.path()).unwrap()).unwrap();
    }
    folder
}

/// Spoils one file of the copy and expects the refusal to name it and these words.
fn spoiled(name: &str, spoil: impl Fn(&[u8]) -> Vec<u8>, words: &[&str]) {
    let folder = llama_copy();
    let path = folder.path().join(name);
    fs::write(&path, spoil(&fs::read(&path).unwrap())).unwrap();
    refused(folder.path(), words);
}

#[test]
fn damaged_safetensors_files() {
    let name = "model.safetensors";
    let with_length = |length: u64| move |bytes: &[u8]| [&length.to_le_bytes()[..], &bytes[8..]].concat();
    spoiled(name, |_| Vec::new(), &[name, "0 bytes"]);
    spoiled(name, |bytes| bytes[..5].to_vec(), &[name, "5 bytes"]);
    spoiled(name, with_length(u64::MAX), &[name, "header length"]);
    spoiled(name, with_length(1 << 40), &[name, "header length"]);
    spoiled(name, |bytes| [&bytes[..8], b"#", &bytes[9..]].concat(), &[name, "header"]);
    spoiled(name, |bytes| bytes[..bytes.len() - 1].to_vec(), &[name]);
    spoiled(name, |bytes| [bytes, b"more"].concat(), &[name]);
    spoiled(name, |bytes| replaced(bytes, b"\"BF16\"", b"\"BF61\""), &[name, "BF61"]);
    // The second tensor is described as lying where the first does: an overlap and a gap.
    spoiled(name, overlapping, &[name, "overlap"]);
    spoiled(name, twice, &[name, "twice"]);
}

/// Makes two tensors of equal size share a place.
fn overlapping(bytes: &[u8]) -> Vec<u8> {
    let (mut header, data) = header_of(bytes);
    let key = header["model.layers.0.self_attn.k_proj.weight"]["data_offsets"].clone();
    header["model.layers.0.self_attn.v_proj.weight"]["data_offsets"] = key;
    with_header(&header.to_string(), data)
}

/// Describes a tensor a second time.
fn twice(bytes: &[u8]) -> Vec<u8> {
    let (header, data) = header_of(bytes);
    let norm = format!("\"model.norm.weight\":{}", header["model.norm.weight"]);
    let header = header.to_string();
    with_header(&header.replacen('{', &format!("{{{norm},"), 1), data)
}

fn header_of(bytes: &[u8]) -> (serde_json::Value, &[u8]) {
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    (serde_json::from_slice(&bytes[8..8 + length]).unwrap(), &bytes[8 + length..])
}

fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[test]
fn folders_of_no_model() {
    let name = "config.json";
    let edit = |find: &'static str, replacement: &'static str| {
        move |bytes: &[u8]| replaced(bytes, find.as_bytes(), replacement.as_bytes())
    };
    spoiled(name, |_| Vec::new(), &[name]);
    spoiled(name, |bytes| bytes[..bytes.len() / 2].to_vec(), &[name, "JSON"]);
    spoiled(
        name,
        edit("\"model_type\": \"llama\"", "\"model_type\": \"hyperllama\""),
        &[name, "model_type", "hyperllama", "qwen3_moe"],
    );
    spoiled(name, edit("\"hidden_size\": 96", "\"hidden_size\": \"96\""), &[name, "hidden_size"]);
    spoiled(name, edit("\"hidden_size\": 96", "\"hidden_size\": 104"), &["[384, 96]", "104"]);
    spoiled(name, edit("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4"), &["model.layers.3."]);
    spoiled(
        name,
        edit("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4000000000"),
        &[name, "num_hidden_layers"],
    );
    spoiled(
        name,
        edit("\"num_attention_heads\": 6", "\"num_attention_heads\": 0"),
        &[name, "num_attention_heads"],
    );

    let folder = llama_copy();
    fs::remove_file(folder.path().join("config.json")).unwrap();
    refused(folder.path(), &["config.json"]);
    let folder = tempfile::tempdir().unwrap();
    refused(folder.path(), &["neither .safetensors nor .gguf"]);
    refused(&file(folder.path(), "notes.txt", b"hello"), &["neither a .gguf nor a .safetensors file"]);
}

/// Results never replace the model they come from, under whatever name it is reached.
#[test]
fn outputs_do_not_replace_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = tiny_gguf().to_bytes().unwrap();
    let model = file(folder.path(), "model.gguf", &bytes);
    let roundabout = folder.path().join(".").join("model.gguf");
    for verb in ["logits", "trace"] {
        for out in [&model, &roundabout] {
            let error = fail(&[verb, text(&model), "--ids", "1,2", "--out", text(out)]);
            assert!(error.contains("model.gguf") && error.contains("of the model itself"), "{error}");
        }
    }
    assert_eq!(fs::read(&model).unwrap(), bytes);
    let copy = llama_copy();
    for name in ["config.json", "model.safetensors"] {
        let out = copy.path().join(name);
        let error = fail(&["logits", text(copy.path()), "--ids", "1,2", "--out", text(&out)]);
        assert!(error.contains(name), "{error}");
    }
}

/// A device that never ends is read up to a limit, before any model is loaded.
#[test]
#[cfg(target_os = "linux")]
fn texts_without_an_end() {
    let model = fixture("llama").join("model");
    let error = fail(&["perplexity", text(&model), "--text", "/dev/zero"]);
    assert!(error.contains("/dev/zero") && error.contains("longer than"), "{error}");
}

/// A file on disk needs neither a home nor a cache, and a full standard error is no panic.
#[test]
#[cfg(target_os = "linux")]
fn homeless_and_unheard() {
    let folder = tempfile::tempdir().unwrap();
    let model = file(folder.path(), "model.gguf", &tiny_gguf().to_bytes().unwrap());
    let program = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_samebit"));
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
        command
    };
    let output = program().args(["info", text(&model), "--hash"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = program().args(["info", "missing.gguf"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn ids_out_of_range() {
    let model = fixture("llama/model");
    for ids in ["384", "0,1,4294967295"] {
        let error = fail(&["run", text(&model), "--ids", ids]);
        assert!(error.contains("0 to 383"), "{error}");
    }
}

#[test]
fn templates_that_do_not_end_or_refuse() {
    let template = |text_of_template: &str, words: &[&str]| {
        let folder = llama_copy();
        fs::write(folder.path().join("chat_template.jinja"), text_of_template).unwrap();
        let error = fail(&["run", text(folder.path()), "Hello"]);
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
    };
    let forever =
        "{% for a in range(100000) %}{% for b in range(100000) %}{{ a * b }}{% endfor %}{% endfor %}";
    template(forever, &["chat_template.jinja"]);
    template(
        "{% set n = namespace(t='x') %}{% for i in range(64) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
        &["chat_template.jinja"],
    );
    template("a\n{{ messages[0].content.nothing.at.all }}", &["chat_template.jinja", "line 2"]);
    template("{{ raise_exception('only\nFrench') }}", &["refuses", "only French"]);
    template("{% if %}", &["chat_template.jinja", "malformed"]);
}

#[test]
fn a_model_without_a_template_does_not_get_another_ones() {
    let folder = llama_copy();
    fs::remove_file(folder.path().join("tokenizer_config.json")).unwrap();
    let error = fail(&["run", text(folder.path()), "Hello"]);
    assert!(error.contains("no chat template") && error.contains("hint: --raw"), "{error}");
}

#[test]
fn folders_without_a_usable_tokenizer() {
    let folder = llama_copy();
    let tokenizer = folder.path().join("tokenizer.json");
    fs::write(&tokenizer, b"{").unwrap();
    let error = fail(&["run", text(folder.path()), "Hello", "--raw"]);
    assert!(error.contains("tokenizer.json"), "{error}");
    fs::remove_file(&tokenizer).unwrap();
    let error = fail(&["run", text(folder.path()), "Hello", "--raw"]);
    assert!(error.contains("tokenizer.json"), "{error}");
    // Ids need no tokenizer; the answer then has no text, and the program says so.
    let answer = support::json(&["run", text(folder.path()), "--ids", "1,2", "--max-tokens", "2", "--json"]);
    assert!(answer["text"].is_null() && answer["ids"].as_array().unwrap().len() == 2);
}
