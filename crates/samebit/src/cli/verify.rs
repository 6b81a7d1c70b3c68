//! The flags of `verify`.

use std::path::PathBuf;

use clap::Args;

use super::options::{IsaOption, OutputOptions};

const HELP: &str = "\
The answer is made again alone, from nothing and on one thread, and every step is compared: ids, and the digest of all
logits so far. Before that the receipt is compared with the model (SHA-256 of each file, plan) and with itself.
The type of stored keys and values is taken from the receipt.

Exit code: 0 the receipt holds, 1 it does not, 2 it cannot be replayed.

Examples:
  samebit run smollm2-135m \"Why is the sky blue?\" --receipt answer.json
  samebit verify answer.json --model smollm2-135m";

/// Flags of `verify`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct VerifyArguments {
    /// The receipt, as `run --receipt` and the server's /v1/receipts/ID give it
    pub(crate) receipt: PathBuf,
    /// A .gguf file, a folder, hf:owner/repo[@revision][:file], or a listed name
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) isa: IsaOption,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
