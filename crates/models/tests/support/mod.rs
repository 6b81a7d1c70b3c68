//! What the integration tests share: fixtures, and shorthand for passes.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::PathBuf;
use std::sync::Arc;

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_models::{LogitRows, Model, Outputs, SequenceState, Span, Taps, TokenId};

/// Dense fixtures with layer-by-layer expectations.
pub const FIXTURES: [&str; 6] = ["llama", "llama-f32-tied", "qwen2", "qwen3", "qwen3_moe", "gemma3"];
/// Quantized fixtures with expected logits.
pub const MLX_FIXTURES: [&str; 5] =
    ["mlx-llama-b4g32", "mlx-qwen3-b4g64", "mlx-qwen3-b8g32", "mlx-qwen3-mxfp4", "mlx-qwen3_moe-b4g32"];

/// Everything is recorded.
pub const ALL_TAPS: Taps = Taps { layers: true, hidden: true };

/// A file or folder of the repository's fixtures.
pub fn fixture(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// The fastest machine here, on `threads` threads.
pub fn cpu(threads: usize) -> Cpu {
    Cpu::new(Isa::detect(), threads).unwrap()
}

/// The model of a fixture.
pub fn model(name: &str) -> Model {
    load(fixture(name).join("model"))
}

/// The model at a path.
pub fn load(path: impl AsRef<std::path::Path>) -> Model {
    let checkpoint = Arc::new(Checkpoint::open(path).unwrap());
    Model::load(checkpoint, &cpu(2), &mut |_| {}).unwrap()
}

/// What a fixture expects.
pub struct Expected {
    tensors: Checkpoint,
    json: serde_json::Value,
}

impl Expected {
    pub fn of(name: &str) -> Self {
        let tensors = Checkpoint::open(fixture(name).join("expected.safetensors")).unwrap();
        let json = std::fs::read_to_string(fixture(name).join("expected.json")).unwrap();
        Self { tensors, json: serde_json::from_str(&json).unwrap() }
    }

    /// A tolerance by name.
    pub fn tolerance(&self, name: &str) -> f64 {
        self.json["tolerance"][name].as_f64().unwrap()
    }

    pub fn contains(&self, tensor: &str) -> bool {
        self.tensors.contains(tensor)
    }

    pub fn floats(&self, tensor: &str) -> Vec<f64> {
        self.tensors.tensor(tensor).unwrap().to_f64().unwrap()
    }

    pub fn integers(&self, tensor: &str) -> Vec<i64> {
        self.tensors.tensor(tensor).unwrap().to_i64().unwrap()
    }

    pub fn tokens(&self, tensor: &str) -> Vec<TokenId> {
        self.integers(tensor).into_iter().map(|id| TokenId(u32::try_from(id).unwrap())).collect()
    }
}

/// Largest difference; lengths must agree and nothing may be NaN.
pub fn distance(ours: &[f32], theirs: &[f64]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let mut largest = 0.0f64;
    for (&our, &their) in ours.iter().zip(theirs) {
        let difference = (f64::from(our) - their).abs();
        assert!(!difference.is_nan());
        largest = largest.max(difference);
    }
    largest
}

/// One pass of one sequence, with logits of all rows.
pub fn run(model: &Model, cpu: &Cpu, state: &mut SequenceState, tokens: &[TokenId], taps: Taps) -> Outputs {
    let span = Span { state, tokens, logits: LogitRows::All };
    model.forward(cpu, &mut [span], taps).unwrap()
}

/// Logits of a whole sequence, fed in pieces of these lengths.
pub fn run_pieces(
    model: &Model,
    cpu: &Cpu,
    kv: KvType,
    tokens: &[TokenId],
    pieces: &[usize],
) -> (Vec<f32>, SequenceState) {
    assert_eq!(pieces.iter().sum::<usize>(), tokens.len());
    let mut state = model.new_state(kv);
    let mut logits = Vec::new();
    let mut rest = tokens;
    for &piece in pieces {
        let (now, later) = rest.split_at(piece);
        logits.extend_from_slice(&run(model, cpu, &mut state, now, Taps::default()).logits);
        rest = later;
    }
    (logits, state)
}

/// Highest logit, lowest id on ties.
pub fn argmax(logits: &[f32]) -> TokenId {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = id;
        }
    }
    TokenId(best as u32)
}

/// Continues greedily, token by token.
pub fn greedy(model: &Model, cpu: &Cpu, kv: KvType, prompt: &[TokenId], count: usize) -> Vec<TokenId> {
    let mut state = model.new_state(kv);
    let mut next = prompt.to_vec();
    let mut tokens = Vec::new();
    for _ in 0..count {
        let span = Span { state: &mut state, tokens: &next, logits: LogitRows::Last };
        let token = argmax(&model.forward(cpu, &mut [span], Taps::default()).unwrap().logits);
        tokens.push(token);
        next = vec![token];
    }
    tokens
}

/// Bits, so that zeros of two signs differ and NaN equals itself.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// A small deterministic source of choices.
pub struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }

    /// Pieces that add up to `total`.
    pub fn pieces(&mut self, total: usize) -> Vec<usize> {
        let mut pieces = Vec::new();
        let mut rest = total;
        while rest > 0 {
            let piece = 1 + self.below(rest);
            pieces.push(piece);
            rest -= piece;
        }
        pieces
    }
}

/// Writes tensors `(name, type, shape, bytes)` as a safetensors file.
pub fn write_safetensors(path: &std::path::Path, tensors: &[(String, String, Vec<usize>, Vec<u8>)]) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        let entry = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        header.insert(name.clone(), entry);
        data.extend_from_slice(bytes);
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(&header);
    file.extend_from_slice(&data);
    std::fs::write(path, file).unwrap();
}
