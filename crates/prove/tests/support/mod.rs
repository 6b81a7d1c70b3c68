//! What the tests of the checks share: fixtures, machines sound and broken, and runs.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use samebit_arith::{Breakage, Cpu, CpuError, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_models::Model;
use samebit_prove::{Check, CheckName, Options, Receipt, Subject, prove};

/// The dense models among the fixtures.
pub const FIXTURES: [&str; 11] = [
    "llama",
    "llama-f32-tied",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gemma3",
    "mlx-llama-b4g32",
    "mlx-qwen3-b4g64",
    "mlx-qwen3-b8g32",
    "mlx-qwen3-mxfp4",
    "mlx-qwen3_moe-b4g32",
];

/// The folder of a fixture's model.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name).join("model")
}

/// A copy of a fixture's model with a context of 600 tokens: more than one block of attention.
pub fn with_long_context(name: &str) -> tempfile::TempDir {
    with_context(name, 600)
}

/// A copy of a fixture's model with a context of this many tokens.
pub fn with_context(name: &str, context: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let config = folder.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["max_position_embeddings"] = context.into();
    std::fs::write(&config, json.to_string()).unwrap();
    folder
}

/// A loaded model.
pub struct Loaded {
    pub checkpoint: Arc<Checkpoint>,
    pub model: Model,
}

impl Loaded {
    pub fn open(path: &Path) -> Self {
        let checkpoint = Arc::new(Checkpoint::open(path).unwrap());
        let cpu = Cpu::new(Isa::detect(), 2).unwrap();
        let model = Model::load(Arc::clone(&checkpoint), &cpu, &mut |_| {}).unwrap();
        Self { checkpoint, model }
    }

    /// Runs checks on machines that `make_cpu` makes.
    pub fn prove(
        &self,
        only: &[CheckName],
        make_cpu: &dyn Fn(Isa, usize) -> Result<Cpu, CpuError>,
    ) -> Receipt {
        let subject = Subject { name: "fixture", checkpoint: &self.checkpoint, model: &self.model, make_cpu };
        let options = Options { quick: true, only: only.to_vec(), threads: 2, kv: KvType::F16, seed: 1 };
        prove(&subject, &options, &mut |_| ())
    }

    /// One check on a broken plan.
    pub fn broken(&self, check: CheckName, breakage: Breakage) -> Check {
        let mut receipt = self.prove(&[check], &|isa, threads| Cpu::broken(isa, threads, breakage));
        assert_eq!(receipt.checks.len(), 1);
        receipt.checks.remove(0)
    }
}
