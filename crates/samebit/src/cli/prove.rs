//! The flags of `prove`.

use std::path::PathBuf;

use clap::Args;
use samebit_prove::CheckName;

use super::options::{KvOption, OutputOptions, thread_count};

const HELP: &str = "\
Every check compares bits. The checks are
  ops         every operation against its scalar definition
  rows        a pass of many rows against passes of one row
  chunks      a prompt in one pass against the prompt in pieces
  threads     numbers of threads against one thread
  isa         instruction sets against the scalar one, on the whole model
  concurrent  sequences in one batch against each alone
  gates       functions on all values of a type, in prefill, decode and verification
  mixed       random combinations of all of these

Exit code: 0 all passed, 1 a difference (or no case at all), 2 could not run, 3 unchecked: all equal, but a path that had
to be taken was not.

Examples:
  samebit prove smollm2-135m --out proof --quick
  samebit prove model.gguf --out proof --only rows,chunks --threads 4";

/// Flags of `prove`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ProveArguments {
    /// A .gguf file, a folder, hf:owner/repo[@revision][:file], or a listed name
    pub(crate) model: String,
    /// The folder to write receipts.json and report.html to; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Fewer cases: less than a minute for a small model
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these checks
    #[arg(long, value_name = "a,b", value_delimiter = ',', value_parser = str::parse::<CheckName>)]
    pub(crate) only: Vec<CheckName>,
    /// Threads to compute with; checks use other numbers too, up to one more [default: all of this machine]
    #[arg(long, short = 't', value_name = "N", value_parser = thread_count)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) kv: KvOption,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
