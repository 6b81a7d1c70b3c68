//! The same models as GGUF: fixtures converted here must give the logits of their references.

use std::path::Path;

use samebit_checkpoint::gguf::{GgufValue, writer::GgufWriter};
use samebit_checkpoint::{Checkpoint, DType, Tensor};

use super::{fixture, worst_difference};
use crate::trace::architecture::Architecture;
use crate::trace::names::{self, BlockModule, Module, Names};

/// Rows of queries and keys in the order that llama's GGUF files have them: pairs side by side.
fn paired(values: &[f32], inputs: usize, head_size: usize) -> Vec<f32> {
    let rows: Vec<&[f32]> = values.chunks(inputs).collect();
    let half = head_size / 2;
    let from = |row: usize| row / head_size * head_size + (row % 2) * half + row % head_size / 2;
    (0..rows.len()).flat_map(|row| rows[from(row)].iter().copied()).collect()
}

struct Converter<'a> {
    checkpoint: &'a Checkpoint,
    file: GgufWriter,
}

impl Converter<'_> {
    fn add(&mut self, from: &str, to: &str, change: impl Fn(Vec<f32>, &Tensor<'_>) -> Vec<f32>) {
        for part in ["weight", "bias"] {
            let Ok(tensor) = self.checkpoint.tensor(&format!("{from}.{part}")) else { continue };
            let values = change(tensor.to_f32().unwrap(), &tensor);
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let file = std::mem::take(&mut self.file);
            self.file = file.tensor(&format!("{to}.{part}"), DType::F32, tensor.shape(), &bytes);
        }
    }

    fn module(&mut self, module: &Module) {
        self.add(&Names::Folder.module(module), &Names::Gguf.module(module), |values, _| values);
    }

    fn block_module(
        &mut self,
        layer: usize,
        module: &BlockModule,
        change: impl Fn(Vec<f32>, &Tensor<'_>) -> Vec<f32>,
    ) {
        self.add(
            &Names::Folder.block_module(layer, module),
            &Names::Gguf.block_module(layer, module),
            change,
        );
    }
}

/// Writes a fixture as GGUF, as converters do.
fn convert(name: &str, architecture_name: &str, to: &Path) {
    let checkpoint = Checkpoint::open(fixture(name).join("model")).unwrap();
    let architecture = Architecture::of(&checkpoint).unwrap();
    let key = |key: &str| format!("{architecture_name}.{key}");
    let number = |size: usize| GgufValue::U32(u32::try_from(size).unwrap());
    let file = GgufWriter::default()
        .value("general.architecture", GgufValue::String(architecture_name.to_owned()))
        .value(&key("block_count"), number(architecture.blocks.len()))
        .value(&key("context_length"), number(architecture.context))
        .value(&key("embedding_length"), number(architecture.hidden))
        .value(&key("feed_forward_length"), number(architecture.inner))
        .value(&key("attention.head_count"), number(architecture.heads))
        .value(&key("attention.head_count_kv"), number(architecture.kv_heads))
        .value(&key("attention.key_length"), number(architecture.head_size))
        .value(&key("attention.layer_norm_rms_epsilon"), GgufValue::F64(architecture.eps))
        .value(&key("rope.freq_base"), GgufValue::F64(architecture.rope_theta));
    let mut converter = Converter { checkpoint: &checkpoint, file };
    converter.module(&names::EMBEDDING);
    converter.module(&names::FINAL_NORM);
    if !architecture.tied {
        converter.module(&names::HEAD);
    }
    let head_size = architecture.head_size;
    for layer in 0..architecture.blocks.len() {
        for module in [&names::Q, &names::K] {
            converter.block_module(layer, module, |values, tensor| match architecture_name {
                "llama" => paired(&values, *tensor.shape().get(1).unwrap_or(&1), head_size),
                _ => values,
            });
        }
        for module in [
            &names::INPUT_NORM,
            &names::V,
            &names::O,
            &names::Q_NORM,
            &names::K_NORM,
            &names::FEED_FORWARD_NORM,
            &names::GATE,
            &names::UP,
            &names::DOWN,
        ] {
            converter.block_module(layer, module, |values, _| values);
        }
    }
    std::fs::write(to, converter.file.to_bytes().unwrap()).unwrap();
}

#[test]
fn converted_fixtures_as_their_references() {
    for (name, architecture) in [("llama", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3")] {
        let path = std::env::temp_dir().join(format!("samebit-trace-{}-{name}.gguf", std::process::id()));
        convert(name, architecture, &path);
        let worst = Checkpoint::open(&path).map(|checkpoint| worst_difference(&checkpoint, name));
        std::fs::remove_file(&path).unwrap();
        let worst = worst.unwrap();
        assert!(worst <= 1e-9, "{name}: {worst}");
    }
}
