//! A small model with room for several pages, and shorthand for passes and banks.

use std::path::Path;
use std::sync::Arc;

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_engine::{Bank, BankError, BankOptions, DiskOptions};
use samebit_models::{LogitRows, Model, SequenceState, Span, Taps, TokenId};

pub const KV: KvType = KvType::F16;
pub const WEIGHTS: &str = "weights of a test";

pub struct Engine {
    pub model: Model,
    pub cpu: Cpu,
}

impl Engine {
    /// The small llama, with a context of 2048 tokens.
    pub fn load() -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/llama/model");
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "model.safetensors"] {
            std::fs::copy(from.join(file), folder.path().join(file)).unwrap();
        }
        let config = folder.path().join("config.json");
        let text = std::fs::read_to_string(&config).unwrap();
        let longer = text.replace("\"max_position_embeddings\": 256", "\"max_position_embeddings\": 2048");
        assert_ne!(text, longer);
        std::fs::write(&config, longer).unwrap();
        let cpu = Cpu::new(Isa::detect(), 1).unwrap();
        let checkpoint = Arc::new(Checkpoint::open(folder.path()).unwrap());
        let model = Model::load(checkpoint, &cpu, &mut |_| {}).unwrap();
        Self { model, cpu }
    }

    /// The state of tokens, computed from nothing.
    pub fn fresh(&self, ids: &[u32]) -> SequenceState {
        let mut state = self.model.new_state(KV);
        self.extend(&mut state, ids);
        state
    }

    /// Runs tokens, and returns the bits of the last row's logits.
    pub fn extend(&self, state: &mut SequenceState, ids: &[u32]) -> Vec<u32> {
        let tokens: Vec<TokenId> = ids.iter().map(|id| TokenId(*id)).collect();
        let span = Span { state, tokens: &tokens, logits: LogitRows::Last };
        let outputs = self.model.forward(&self.cpu, &mut [span], Taps::default()).unwrap();
        outputs.logits.iter().map(|logit| logit.to_bits()).collect()
    }

    pub fn bank(&self, options: BankOptions) -> Result<Bank, BankError> {
        Bank::open(options, WEIGHTS, self.model.state_decoder(KV))
    }

    /// Asserts that a state is that of the first tokens of `ids`, and goes on as if it had been computed.
    pub fn check(&self, mut state: SequenceState, ids: &[u32]) {
        let covered = state.length();
        let mut expected = self.fresh(&ids[..covered]);
        assert!(state.encode() == expected.encode(), "the state of {covered} tokens differs");
        let (ours, theirs) =
            (self.extend(&mut state, &ids[covered..]), self.extend(&mut expected, &ids[covered..]));
        assert_eq!(ours, theirs, "logits after {covered} resumed tokens");
    }
}

/// Tokens that depend on a seed, with equal beginnings for equal `stem`.
pub fn tokens(stem: u32, common: usize, branch: u32, count: usize) -> Vec<u32> {
    let token =
        |seed: u32, at: usize| (seed.wrapping_mul(31).wrapping_add(at as u32 * 7) ^ (at as u32 >> 3)) % 60;
    (0..count).map(|at| if at < common { token(stem, at) } else { token(branch + 1000, at) }).collect()
}

/// Disk limits that no test meets.
pub fn on_disk(folder: &Path) -> DiskOptions {
    DiskOptions { min_free_bytes: 0, ..DiskOptions::new(folder) }
}

/// A bank that has only its folder.
pub fn only_disk(folder: &Path) -> BankOptions {
    BankOptions { memory_bytes: 0, disk: Some(on_disk(folder)), ..BankOptions::default() }
}
