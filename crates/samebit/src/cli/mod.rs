//! The command line: verbs, flags and their help. What a verb does is in `verbs`.

mod bench;
mod numbers;
mod options;
mod prove;
mod serve;
mod verify;

use clap::{Parser, Subcommand};

pub(crate) use bench::BenchArguments;
pub(crate) use options::{
    InfoArguments, ListArguments, LogitsArguments, MachineOptions, OutputOptions, PerplexityArguments,
    PullArguments, RunArguments, TraceArguments,
};
pub(crate) use prove::ProveArguments;
pub(crate) use serve::ServeArguments;
pub(crate) use verify::VerifyArguments;

const AFTER_HELP: &str = "\
MODEL is a .gguf file, a folder with config.json and safetensors, hf:owner/repo[@revision][:file], or a name that
`samebit list` shows. Models that are not on disk are fetched and verified.

The answer to one prompt is the same, bit for bit, for every number of threads, instruction set, chunk and batch.

Examples:
  samebit run                                         chat with the default model
  samebit run \"Why is the sky blue?\"                  one answer from the default model
  samebit run model.gguf \"Tell a story\" --temperature 0.8 --seed 7
  samebit info model.gguf                             what is in a model, what it needs
  samebit bench smollm2-135m -p 512 -n 128 -t 1,2     how fast it is here";

/// Runs language models with the same answer, bit for bit, however it was computed.
#[derive(Debug, Parser)]
#[command(name = "samebit", version, propagate_version = true, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Answer a prompt, or chat
    Run(RunArguments),
    /// Serve a model over HTTP, with the APIs of OpenAI and Anthropic
    Serve(ServeArguments),
    /// Write the logits of given token ids to a safetensors file
    Logits(LogitsArguments),
    /// Show what a model is, what it needs, and what of it is not supported; reads no weights
    Info(InfoArguments),
    /// Write every intermediate of a small forward pass, in double precision
    Trace(TraceArguments),
    /// Measure prefill and decode speed, load time and memory
    Bench(BenchArguments),
    /// Check that the answer is the same, bit for bit, however it is computed, and write receipts
    Prove(ProveArguments),
    /// Replay a receipt, and say where the answer parts from it
    Verify(VerifyArguments),
    /// Measure the perplexity of a text
    Perplexity(PerplexityArguments),
    /// Fetch a model and verify it
    Pull(PullArguments),
    /// List the models that have a name
    List(ListArguments),
}
