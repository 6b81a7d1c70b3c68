//! The flags of `bench`.

use clap::Args;

use super::numbers::{Counts, Depths};
use super::options::{IsaOption, KvOption, OutputOptions, at_least_one};

const HELP: &str = "\
With --compare every test is measured alternately, samebit then the other program, --rounds times. CMD is a command line
for `sh -c`, run once per measurement with these in it replaced:
  {model}     the model's file or folder, quoted for the shell
  {threads}   number of threads
  {prompt}    tokens to prefill; 0 when decode is measured
  {generate}  tokens to decode; 0 when prefill is measured
  {depth}     tokens in the context before decode begins
  {batch}     sequences that decode together

A run that takes longer than --compare-limit, or prints more than 16 MiB, is stopped with all that it started; so is one
that is under way when samebit itself is stopped.

CMD prints its figure on standard output: as llama-bench does (`-o json`, `-o jsonl` or its table), as llama-batched-bench
does (`--output-format jsonl`; the one of the two for --batch), or as a line
  test=<prefill|decode> threads=N depth=N tok_s=X
with `batch=N` in it where N is not 1; other words, and lines without `test=`, are left alone. A figure counts when it is
for the test that was asked for; of several, their median.

A ratio is samebit's tokens per second over the other's. `lowest` is the smallest of the ratios within a round: above 1,
samebit was faster in every round.

Examples:
  samebit bench smollm2-135m -p 512 -n 128 -t 1,2 -d 0,2048 --batch 1,4
  samebit bench smollm2-135m -p 512 -n 128 -t 1,2 --compare \\
    'llama-bench -m {model} -p {prompt} -n {generate} -d {depth} -t {threads} -r 1 -o json'
  samebit bench smollm2-135m -p 512 -n 128 -d 512 --batch 1,4 --compare \\
    'llama-batched-bench -m {model} -npp $(({prompt}+{depth})) -ntg {generate} -npl {batch} -t {threads} -c 8192 \\
     --output-format jsonl'";

/// Flags of `bench`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct BenchArguments {
    /// A .gguf file, a folder, hf:owner/repo[@revision][:file], or a listed name
    pub(crate) model: String,
    /// Prompt tokens; 0 leaves prefill out
    #[arg(long, short, value_name = "N", default_value_t = 512)]
    pub(crate) prompt: usize,
    /// Tokens to decode in each sequence; 0 leaves decode out
    #[arg(long, short = 'n', value_name = "N", default_value_t = 128)]
    pub(crate) generate: usize,
    /// Tokens already in the context when decode begins
    #[arg(long, short, value_name = "0,512", default_value = "0", value_parser = str::parse::<Depths>)]
    pub(crate) depth: Depths,
    /// Numbers of threads to try [default: all of this machine]
    #[arg(long, short, value_name = "1,2", value_parser = str::parse::<Counts>)]
    pub(crate) threads: Option<Counts>,
    /// Numbers of sequences that decode together; rates are of all of them
    #[arg(long, value_name = "1,4", default_value = "1", value_parser = str::parse::<Counts>)]
    pub(crate) batch: Counts,
    /// How often each is measured; medians are shown
    #[arg(long, short, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    #[arg(conflicts_with = "compare")]
    pub(crate) repetitions: usize,
    /// Measure another program in the same run, alternately
    #[arg(long, value_name = "CMD")]
    pub(crate) compare: Option<String>,
    /// How often both are measured with --compare
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one, requires = "compare")]
    pub(crate) rounds: usize,
    /// Seconds that one run of CMD may take; then it is stopped, with all it started
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = at_least_one, requires = "compare")]
    pub(crate) compare_limit: usize,
    /// Prompt tokens per forward pass
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one)]
    pub(crate) prefill_chunk: usize,
    #[command(flatten)]
    pub(crate) isa: IsaOption,
    #[command(flatten)]
    pub(crate) kv: KvOption,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}
