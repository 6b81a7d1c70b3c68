//! MLX-quantized modules: tensors joined, formats decided, contradictions refused.

mod support;

use samebit_arith::{FloatType, Format};
use samebit_checkpoint::safetensors::writer::{NewTensor, save};
use samebit_checkpoint::{Checkpoint, DType, Quantization};
use support::message;

/// Tensors of a module in memory.
struct Module {
    weight: (DType, Vec<usize>),
    scales: (DType, Vec<usize>),
    biases: Option<(DType, Vec<usize>)>,
}

impl Module {
    /// An affine module of `[.., columns]` with scales in BF16.
    fn affine(outer: &[usize], columns: usize, bits: usize, group: usize) -> Self {
        let shape = |last: usize| [outer, &[last]].concat();
        let scales = (DType::Bf16, shape(columns / group));
        Self { weight: (DType::U32, shape(columns * bits / 32)), biases: Some(scales.clone()), scales }
    }

    /// An mxfp4 module of `[rows, columns]`.
    fn mxfp4(rows: usize, columns: usize) -> Self {
        let weight = (DType::U32, vec![rows, columns / 8]);
        Self { weight, scales: (DType::U8, vec![rows, columns / 32]), biases: None }
    }

    /// A checkpoint with this module as `m` and the given config.
    fn open(&self, config: &str) -> (tempfile::TempDir, Checkpoint) {
        let folder = tempfile::tempdir().unwrap();
        let parts = [
            ("m.weight", Some(&self.weight)),
            ("m.scales", Some(&self.scales)),
            ("m.biases", self.biases.as_ref()),
        ];
        let mut data = Vec::new();
        for (name, part) in parts {
            if let Some((dtype, shape)) = part {
                let (elements, bytes) = dtype.block();
                data.push((name, *dtype, shape, vec![0; shape.iter().product::<usize>() / elements * bytes]));
            }
        }
        let tensors: Vec<NewTensor> = data
            .iter()
            .map(|(name, dtype, shape, data)| NewTensor { name, dtype: *dtype, shape, data })
            .collect();
        save(&folder.path().join("model.safetensors"), &[("format", "mlx")], &tensors).unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        (folder, checkpoint)
    }

    fn format(&self, config: &str) -> Format {
        let (_folder, checkpoint) = self.open(config);
        checkpoint.matrix("m.weight").unwrap().format()
    }

    fn refusal(&self, config: &str) -> String {
        let (_folder, checkpoint) = self.open(config);
        message(checkpoint.matrix("m.weight"))
    }
}

fn affine(bits: u8, group: u16) -> Format {
    Format::MlxAffine { bits, group, scale: FloatType::Bf16 }
}

#[test]
fn every_width_group_and_scale_type() {
    for bits in [2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            let mut module = Module::affine(&[2], 256, bits, group);
            let config = format!(r#"{{"quantization": {{"bits": {bits}, "group_size": {group}}}}}"#);
            for (dtype, scale) in
                [(DType::F32, FloatType::F32), (DType::F16, FloatType::F16), (DType::Bf16, FloatType::Bf16)]
            {
                module.scales.0 = dtype;
                module.biases.as_mut().unwrap().0 = dtype;
                let expected = Format::MlxAffine { bits: bits as u8, group: group as u16, scale };
                assert_eq!(module.format(&config), expected);
                // Without a map, the columns that a model needs tell.
                let (_folder, checkpoint) = module.open("{}");
                let matrix = checkpoint.matrix_of("m.weight", 2, 256).unwrap();
                assert_eq!((matrix.format(), matrix.columns()), (expected, 256));
            }
        }
    }
    assert_eq!(Module::mxfp4(2, 64).format(r#"{"quantization": {"mode": "mxfp4"}}"#), Format::MlxMxfp4);
}

#[test]
fn stacked_experts() {
    let (_folder, checkpoint) =
        Module::affine(&[3, 4], 64, 5, 32).open(r#"{"quantization": {"bits": 5, "group_size": 32}}"#);
    let matrix = checkpoint.experts_of("m.weight", 3, 4, 64).unwrap();
    assert_eq!((matrix.experts(), matrix.rows(), matrix.columns()), (3, 4, 64));
    assert_eq!(matrix.expert(1).bytes(), 4 * 64 * 5 / 8 + 2 * 4 * 2 * 2);
    let refused = message(checkpoint.experts_of("m.weight", 2, 4, 64));
    assert!(refused.contains("tensor m.weight has shape [3, 4, 64], expected [2, 4, 64]"), "{refused}");
}

#[test]
fn the_map_is_read_per_module() {
    let module = Module::affine(&[2], 128, 8, 64);
    // A partial entry takes the mode's own defaults: affine has groups of 64.
    assert_eq!(
        module.format(r#"{"quantization": {"bits": 4, "group_size": 32, "m": {"bits": 8}}}"#),
        affine(8, 64)
    );
    assert_eq!(module.format(r#"{"quantization": {"bits": 8, "group_size": 64, "m": true}}"#), affine(8, 64));
    assert_eq!(module.format(r#"{"quantization_config": {"bits": 8, "group_size": 64}}"#), affine(8, 64));
    // What is not listed is read off the shapes: 512 bits per group are 4 bits in groups of 128, or 8 in groups of 64.
    let (_folder, checkpoint) = module.open(r#"{"quantization": {"bits": 3, "group_size": 32}}"#);
    assert_eq!(checkpoint.matrix_of("m.weight", 2, 128).unwrap().format(), affine(8, 64));
    assert_eq!(checkpoint.matrix_of("m.weight", 2, 256).unwrap().format(), affine(4, 128));
    let refused = message(checkpoint.matrix("m.weight"));
    assert!(refused.contains("shapes that only one number of bits and group size explain"), "{refused}");
    // 96 bits per group are only 3 bits in groups of 32.
    assert_eq!(Module::affine(&[2], 128, 3, 32).format(r#"{"quantization": {}}"#), affine(3, 32));
    assert_eq!(Module::mxfp4(2, 64).format("{}"), Format::MlxMxfp4);
}

#[test]
fn contradictions_name_module_found_and_expected() {
    let module = Module::affine(&[2], 128, 8, 64);
    for (entry, expected) in [
        (r#"{"bits": 4}"#, "expected affine with 4 bits in groups of 64"),
        (r#"{"mode": "mxfp4"}"#, "expected mxfp4 with 4 bits in groups of 32"),
        ("true", "expected affine with 3 bits in groups of 32"),
        ("false", "expected false, so no quantization"),
    ] {
        let refused =
            module.refusal(&format!(r#"{{"quantization": {{"bits": 3, "group_size": 32, "m": {entry}}}}}"#));
        assert!(
            refused.contains("config.json: quantization of module m: found weight [2, 32] of U32"),
            "{refused}"
        );
        assert!(refused.contains("scales [2, 2] of BF16") && refused.contains(expected), "{refused}");
    }
    let refused = Module::mxfp4(2, 64).refusal(r#"{"quantization": {"m": {"bits": 4, "group_size": 32}}}"#);
    assert!(refused.contains("scales [2, 2] of U8, expected affine with 4 bits"), "{refused}");
}

#[test]
fn a_shape_that_the_model_does_not_need_is_told_in_elements() {
    let (_folder, checkpoint) =
        Module::affine(&[2], 128, 4, 64).open(r#"{"quantization": {"bits": 4, "group_size": 64}}"#);
    let refused = message(checkpoint.matrix_of("m.weight", 2, 96));
    assert!(refused.contains("tensor m.weight has shape [2, 128], expected [2, 96]"), "{refused}");
}

#[test]
fn other_modes_and_methods_are_refused_by_name() {
    let mut nvfp4 = Module::mxfp4(2, 64);
    nvfp4.scales.1 = vec![2, 4];
    let refused = nvfp4.refusal(r#"{"quantization": {"mode": "nvfp4"}}"#);
    assert!(refused.contains("module m: MLX nvfp4 with 4 bits in groups of 16"), "{refused}");
    let mut mxfp8 = Module::mxfp4(2, 64);
    mxfp8.weight.1 = vec![2, 16];
    assert!(
        mxfp8.refusal("{}").contains("MLX mxfp8 with 8 bits in groups of 32, scales U8 is not supported")
    );
    let odd = Module::affine(&[2], 128, 4, 16);
    let refused = odd.refusal(r#"{"quantization": {"bits": 4, "group_size": 16}}"#);
    assert!(refused.contains("MLX affine with 4 bits in groups of 16"), "{refused}");

    let (_folder, checkpoint) = odd.open(r#"{"quantization_config": {"quant_method": "awq", "bits": 4}}"#);
    assert_eq!(*checkpoint.quantization(), Quantization::Unsupported { method: "awq".to_owned() });
    let refused = message(checkpoint.matrix("m.weight"));
    assert!(
        refused.contains("config.json: quantization_config.quant_method: awq is not supported"),
        "{refused}"
    );
}

#[test]
fn damaged_modules_are_refused() {
    let config = r#"{"quantization": {"bits": 4, "group_size": 64}}"#;
    let good = || Module::affine(&[2], 128, 4, 64);
    let mut module = good();
    module.biases = None;
    assert!(module.refusal(config).contains("no tensor m.biases"));
    let mut module = good();
    module.biases = Some((DType::Bf16, vec![2, 1]));
    assert!(
        module
            .refusal(config)
            .contains("tensor m.biases has shape [2, 1], expected [2, 2], as its scales have")
    );
    let mut module = good();
    module.biases = Some((DType::F32, vec![2, 2]));
    assert!(
        module.refusal(config).contains("tensor \"m.biases\": F32 is not supported yet; supported: BF16")
    );
    let mut module = good();
    module.scales = (DType::Bf16, vec![3, 2]);
    assert!(
        module
            .refusal(config)
            .contains("m.scales has shape [3, 2], expected [2, 16] but for the last dimension")
    );
    let mut module = good();
    module.scales = (DType::Bf16, vec![0, 2]);
    assert!(module.refusal(config).contains("m.scales has shape [0, 2], expected [rows, columns]"));
    let mut module = good();
    module.weight.0 = DType::I32;
    assert!(
        module
            .refusal(config)
            .contains("I32 is not supported yet; supported: U32 words, since there is m.scales")
    );
    let mut module = Module::mxfp4(2, 64);
    module.biases = Some((DType::U8, vec![2, 2]));
    assert!(
        module
            .refusal("{}")
            .contains("module m: found m.biases, expected none, since it is stored as MLX mxfp4")
    );

    let folder = tempfile::tempdir().unwrap();
    let words = NewTensor { name: "m.weight", dtype: DType::U32, shape: &[1, 4], data: &[0; 16] };
    save(&folder.path().join("model.safetensors"), &[], &[words]).unwrap();
    let refused = message(Checkpoint::open(folder.path()).unwrap().matrix("m.weight"));
    assert!(refused.contains("module m: found packed U32 words, expected m.scales beside them"), "{refused}");
}
