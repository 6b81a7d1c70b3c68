//! Every fixture checkpoint resolves: all matrices, all vectors, all digests.

mod support;

use std::path::Path;

use samebit_arith::Format;
use samebit_checkpoint::{Checkpoint, DType};
use serde_json::Value;
use support::fixture;

const DENSE: [&str; 6] = ["llama", "llama-f32-tied", "qwen2", "qwen3", "qwen3_moe", "gemma3"];

const MLX: [&str; 13] = [
    "mlx-deepseek_v3-b3g32",
    "mlx-glm4_moe-b5g32",
    "mlx-glm_moe_dsa-b4g32",
    "mlx-llama-b4g32",
    "mlx-nemotron_h-b4g32",
    "mlx-nemotron_h_latent-b4g32",
    "mlx-qwen3-b4g64",
    "mlx-qwen3-b8g32",
    "mlx-qwen3-mxfp4",
    "mlx-qwen3_5-b6g32",
    "mlx-qwen3_5_moe-b4g32",
    "mlx-qwen3_moe-b4g32",
    "mlx-qwen3_next-b4g32",
];

fn expected(name: &str) -> Value {
    let text = std::fs::read(fixture(&format!("{name}/expected.json"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(fixture(&format!("{name}/model"))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn dense_folders_resolve() {
    for name in DENSE {
        let checkpoint = open(name);
        assert!(checkpoint.tensors().len() > 20);
        for tensor in checkpoint.tensors() {
            match *tensor.shape() {
                [length] => assert_eq!(checkpoint.vector_of(tensor.name(), length).unwrap().len(), length),
                [rows, columns] => {
                    let matrix = checkpoint.matrix_of(tensor.name(), rows, columns).unwrap();
                    assert!(matches!(matrix.format(), Format::Float(_)));
                    assert_eq!(matrix.encoded().bytes(), tensor.data().len());
                }
                _ => panic!("{name}: {} has shape {:?}", tensor.name(), tensor.shape()),
            }
        }
        assert!(checkpoint.config().unwrap().root().usize("hidden_size").unwrap() > 0);
        assert!(checkpoint.generation_config().is_some());
    }
}

#[test]
fn mlx_folders_resolve_as_they_were_quantized() {
    for name in MLX {
        let (checkpoint, expected) = (open(name), expected(name));
        let mut quantized = Vec::new();
        for tensor in checkpoint.tensors().filter(|tensor| tensor.shape().len() >= 2) {
            let Some(module) = tensor.name().strip_suffix(".weight") else { continue };
            let matrix = checkpoint.matrix(tensor.name()).unwrap();
            // The columns a model would ask for lead to the same reading.
            let again = match (matrix.is_stacked(), matrix.rows(), matrix.columns()) {
                (true, rows, columns) => {
                    checkpoint.experts_of(tensor.name(), matrix.experts(), rows, columns)
                }
                (false, rows, columns) => checkpoint.matrix_of(tensor.name(), rows, columns),
            };
            assert_eq!(again.unwrap().format(), matrix.format());
            match matrix.format() {
                Format::Float(_) => continue,
                Format::MlxAffine { bits, group, .. } => {
                    // Routers may be 8 bits in groups of 64, by entries of their own.
                    let usual = expected["bits"] == bits && expected["group_size"] == group;
                    assert!(usual || (bits, group) == (8, 64), "{name}: {module} is {}", matrix.format());
                }
                format => assert_eq!(format, Format::MlxMxfp4),
            }
            quantized.push(module.to_owned());
        }
        quantized.sort();
        let mut listed: Vec<String> = serde_json::from_value(expected["quantized_modules"].clone()).unwrap();
        listed.sort();
        assert_eq!(quantized, listed, "{name}");
    }
}

#[test]
fn quantized_matrices_have_the_shapes_of_their_source() {
    for (name, source) in [
        ("mlx-llama-b4g32", "llama"),
        ("mlx-qwen3-b4g64", "qwen3"),
        ("mlx-qwen3-b8g32", "qwen3"),
        ("mlx-qwen3-mxfp4", "qwen3"),
    ] {
        let (checkpoint, source) = (open(name), open(source));
        let mut compared = 0;
        for tensor in source.tensors().filter(|tensor| tensor.shape().len() == 2) {
            let (rows, columns) = (tensor.shape()[0], tensor.shape()[1]);
            checkpoint.matrix_of(tensor.name(), rows, columns).unwrap();
            compared += 1;
        }
        assert!(compared > 10);
    }
}

#[test]
fn pins_are_the_published_digests() {
    for name in DENSE.into_iter().chain(MLX) {
        let digests = &expected(name)["model_sha256"];
        let pins = open(name).pins(None, |_, _| {});
        assert!(pins.len() >= 2);
        for pin in pins {
            assert_eq!(digests[&pin.file], pin.sha256.as_str(), "{name}: {}", pin.file);
        }
    }
}

#[test]
fn infinity_is_read_in_both_spellings() {
    use samebit_checkpoint::Config;
    for folder in ["nemotron_h", "mlx-nemotron_h-b4g32", "mlx-nemotron_h_latent-b4g32"] {
        let config = Config::read(&fixture(&format!("{folder}/model/config.json"))).unwrap();
        let limits: Vec<f64> = config.root().required("time_step_limit").unwrap();
        assert_eq!(limits, [0.0, f64::INFINITY], "{folder}");
    }
}

#[test]
fn f64_weights_are_read_exactly() {
    let checkpoint = open("tiny-llama-trace");
    let tensor = checkpoint.tensor("model.embed_tokens.weight").unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (DType::F64, &[32, 32][..]));
    assert_eq!(tensor.to_f64().unwrap().len(), 1024);
    let message = checkpoint.matrix(tensor.name()).unwrap_err().to_string();
    assert!(message.contains("F64 is not supported yet; supported: plain F32"), "{message}");
    assert_eq!(checkpoint.vector("model.norm.weight").unwrap(), [1.0; 32]);
}

#[test]
fn type_totals_add_up() {
    let checkpoint = Checkpoint::open(fixture("gguf-quant/all-types.gguf")).unwrap();
    let totals = checkpoint.type_totals();
    assert_eq!(totals.len(), 26);
    assert!(totals.is_sorted_by(|a, b| a.2 >= b.2));
    assert_eq!(totals.iter().map(|total| total.2).sum::<u64>(), checkpoint.tensor_bytes());
    assert!(
        checkpoint.tensor_bytes()
            < Path::new(&fixture("gguf-quant/all-types.gguf")).metadata().unwrap().len()
    );
}
