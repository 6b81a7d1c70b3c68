//! The flags of each verb. Bounds are checked here, before any model is opened.

use std::path::PathBuf;

use clap::Args;
use samebit_arith::{Cpu, Isa, KvType};
use samebit_engine::SamplingOptions;

use super::numbers::{Pieces, TokenIds};

/// What a model runs on, and how it stores keys and values.
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineOptions {
    /// Threads to compute with [default: all of this machine]
    #[arg(long, short = 't', value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) isa: IsaOption,
    #[command(flatten)]
    pub(crate) kv: KvOption,
}

/// Which instructions to use.
#[derive(Clone, Debug, Args)]
pub(crate) struct IsaOption {
    /// Instruction set: auto, scalar, avx2, avx512 or amx. It changes speed only
    #[arg(long = "isa", value_name = "ISA", default_value = "auto", value_parser = isa_choice)]
    pub(crate) choice: IsaChoice,
}

/// A named instruction set, or the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IsaChoice {
    /// The best one that the processor has.
    Auto,
    /// This one.
    Only(Isa),
}

impl IsaChoice {
    /// The instruction set to use.
    pub(crate) fn isa(self) -> Isa {
        match self {
            Self::Auto => Isa::detect(),
            Self::Only(isa) => isa,
        }
    }
}

/// How keys and values are stored.
#[derive(Clone, Debug, Args)]
pub(crate) struct KvOption {
    /// Type of stored keys and values: f16, bf16, f32 or int8. It is part of the plan: answers may differ between types
    #[arg(long = "kv", value_name = "TYPE", default_value = "f16", value_parser = str::parse::<KvType>)]
    pub(crate) ty: KvType,
}

/// What goes to the terminal.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputOptions {
    /// Print one JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// No messages and no progress bars
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// A model and what it runs on.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelOptions {
    /// A .gguf file, a folder, hf:owner/repo[@revision][:file], or a listed name
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// How tokens are chosen.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArguments {
    /// 0 always takes the most probable token; above 0 tokens are drawn at this temperature
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) temperature: f64,
    /// Draw among the K most probable tokens only; 0 is no limit
    #[arg(long, value_name = "K", default_value_t = 0, allow_negative_numbers = true)]
    pub(crate) top_k: usize,
    /// Draw among the most probable tokens that together have probability P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) top_p: f64,
    /// Never draw a token that is less than P times as probable as the best one
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) min_p: f64,
    /// Seed of the draws [default: derived from the prompt, so that the same prompt gets the same answer]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
}

impl SamplingArguments {
    /// As the engine takes them; it checks their bounds.
    pub(crate) fn options(&self) -> SamplingOptions {
        SamplingOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
        }
    }
}

const RUN_HELP: &str = "\
A single argument is the MODEL if it is an existing path, a listed name or hf:..., or looks like a path; anything else is
the PROMPT for the default model (smollm2-135m). Without PROMPT, `run` chats when it runs on a terminal, and otherwise
reads the prompt from standard input.

Examples:
  samebit run \"Why is the sky blue?\"
  samebit run gemma-3-270m --raw \"The three primary colours are\" --max-tokens 20
  samebit run model.gguf --ids 1,2,3 --json
  samebit run model.gguf \"Write a haiku\" --temperature 0.8 --top-p 0.95 --seed 7";

/// Flags of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunArguments {
    /// A .gguf file, a folder, hf:owner/repo[@revision][:file], or a listed name [default: smollm2-135m]
    pub(crate) model: Option<String>,
    /// What to answer
    pub(crate) prompt: Option<String>,
    /// Token ids as the prompt, in place of text
    #[arg(long, value_name = "1,2,3", value_parser = str::parse::<TokenIds>, conflicts_with_all = ["prompt", "raw", "system"])]
    pub(crate) ids: Option<TokenIds>,
    /// Give the prompt to the model as it is, without its chat template
    #[arg(long, conflicts_with = "system")]
    pub(crate) raw: bool,
    /// System message for the chat template
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// Longest answer in tokens [default: 1024, or what the model's context leaves]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) max_tokens: Option<usize>,
    /// Prompt tokens per forward pass. It changes speed and memory only
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one)]
    pub(crate) prefill_chunk: usize,
    /// Go on after end tokens until the limit
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Write a receipt of the answer, which `samebit verify` replays
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArguments,
    #[command(flatten)]
    pub(crate) machine: MachineOptions,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Flags of `logits`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogitsArguments {
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    /// The token ids
    #[arg(long, value_name = "1,2,3", value_parser = str::parse::<TokenIds>)]
    pub(crate) ids: TokenIds,
    /// The safetensors file to write: f32 `logits` of [tokens, vocabulary]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Also write `hidden` [tokens, hidden size]: what the head reads
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Also write `layer.{i}` [tokens, hidden size], the residual stream after block i, and `router.{i}` (i32), the
    /// experts picked there in pick order
    #[arg(long)]
    pub(crate) layers: bool,
    /// Feed the tokens in pieces of these lengths. It changes no bit
    #[arg(long, value_name = "10,1,1", value_parser = str::parse::<Pieces>)]
    pub(crate) split: Option<Pieces>,
    /// Most tokens per forward pass. It changes no bit
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one)]
    pub(crate) prefill_chunk: usize,
}

/// Flags of `info`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InfoArguments {
    /// A .gguf file, a folder, hf:owner/repo[@revision][:file], or a listed name
    pub(crate) model: String,
    /// Context to compute the memory for, in tokens [default: the model's own]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) context: Option<usize>,
    #[command(flatten)]
    pub(crate) kv: KvOption,
    /// Also compute the SHA-256 of every file, which reads them
    #[arg(long)]
    pub(crate) hash: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Flags of `trace`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArguments {
    /// A small dense checkpoint
    pub(crate) model: String,
    /// The token ids of the prompt
    #[arg(long, value_name = "1,2,3", value_parser = str::parse::<TokenIds>)]
    pub(crate) ids: TokenIds,
    /// Ids that continue the prompt through the cache; each use of the flag is one continuation
    #[arg(long, value_name = "4,5", value_parser = str::parse::<TokenIds>)]
    pub(crate) decode: Vec<TokenIds>,
    /// The seed that the weights were drawn with, where that is known; it is only written down [default: what the
    /// record says]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// What a checkpoint cannot hold: a JSON file with `seed` and `rope_check_vector.values`, the vector that the
    /// rotation check turns [default: expected.json beside the model's folder, if that is the record of a fixture]
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// The JSON file to write
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Flags of `perplexity`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PerplexityArguments {
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    /// The text, in UTF-8
    #[arg(long, value_name = "FILE")]
    pub(crate) text: PathBuf,
    /// Tokens per window; the second half of each window is scored
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = window_length)]
    pub(crate) window: usize,
}

/// Flags of `pull`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PullArguments {
    /// Listed names, or hf:owner/repo[@revision][:file]
    #[arg(required = true)]
    pub(crate) models: Vec<String>,
    /// Ask the hub again what a branch holds
    #[arg(long)]
    pub(crate) refresh: bool,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Flags of `list`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ListArguments {
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

pub(super) fn thread_count(text: &str) -> Result<usize, String> {
    bounded(text, 1, Cpu::MAX_THREADS)
}

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    bounded(text, 1, usize::MAX)
}

fn window_length(text: &str) -> Result<usize, String> {
    bounded(text, 4, 1 << 24)
}

fn bounded(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let expected = if most == usize::MAX {
        format!("a number of at least {least}")
    } else {
        format!("a number from {least} to {most}")
    };
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected {expected}")),
    }
}

fn isa_choice(text: &str) -> Result<IsaChoice, String> {
    match text {
        "auto" => Ok(IsaChoice::Auto),
        name => name.parse().map(IsaChoice::Only).map_err(|error: samebit_arith::CpuError| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_sets_by_name() {
        assert_eq!(isa_choice("auto"), Ok(IsaChoice::Auto));
        assert_eq!(isa_choice("avx2"), Ok(IsaChoice::Only(Isa::Avx2)));
        assert_eq!(isa_choice("amx"), Ok(IsaChoice::Only(Isa::Amx)));
        assert!(isa_choice("sse").unwrap_err().contains("avx512"));
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(thread_count("512"), Ok(512));
        for wrong in ["0", "513", "-1", "x", ""] {
            assert!(thread_count(wrong).unwrap_err().contains("from 1 to 512"), "{wrong}");
        }
        assert!(at_least_one("0").unwrap_err().contains("at least 1"));
        assert!(window_length("3").is_err() && window_length("4").is_ok());
    }
}
