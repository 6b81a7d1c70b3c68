//! The flags of `serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::options::{ModelOptions, at_least_one};

const HELP: &str = "\
Routes: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens, /v1/models,
/v1/receipts/ID, /tokenize, /detokenize, /health, /livez, /readyz, /metrics, /version. A field that would change the
answer and is not supported is refused by name; a prompt that does not fit is refused, never cut.

SIGTERM and Ctrl-C finish what runs and end; a second one ends at once. SIGHUP has the key file read again.

Examples:
  samebit serve smollm2-135m
  samebit serve model.gguf --host 0.0.0.0 --port 8000 --api-key-file keys.txt
  curl -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Why is the sky blue?\"}]}' localhost:8080/v1/chat/completions";

/// Flags of `serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    /// Address to listen at; beyond this machine only with --api-key-file, or a warning
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port to listen at; 0 takes a free one
    #[arg(long, short, value_name = "N", default_value_t = 8080)]
    pub(crate) port: u16,
    /// Name that requests know the model by; may be given several times [default: what MODEL says]
    #[arg(long, value_name = "NAME")]
    pub(crate) served_name: Vec<String>,
    /// File of API keys, one a line, that only its owner may use (mode 0600); read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Requests that run at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one)]
    pub(crate) max_running: usize,
    /// Requests that wait; more are told to come back later
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) max_waiting: usize,
    /// Rows per forward pass, of all requests together. It changes speed only
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = at_least_one)]
    pub(crate) step_rows: usize,
    /// MiB of memory for what requests have in their contexts [default: a quarter of this machine's]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) state_mib: Option<usize>,
    /// MiB of memory for what was computed for earlier requests, so that later ones with the same beginning need not
    /// compute it again; 0 keeps nothing. It changes speed only
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) cache_mib: usize,
    /// Folder that keeps the same across restarts, made if it is not there. Only one server may use it at a time
    #[arg(long, value_name = "DIR")]
    pub(crate) session_dir: Option<PathBuf>,
    /// GiB of disk that the folder may take
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one, requires = "session_dir")]
    pub(crate) session_gib: usize,
    /// Enters the seeds of requests that name none: another salt gives independent answers
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) seed_salt: String,
    /// Seconds to finish what runs, once told to end
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub(crate) drain_seconds: u64,
}
