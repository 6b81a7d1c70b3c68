//! `samebit serve`: a model over HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use samebit_checkpoint::Checkpoint;
use samebit_engine::{BankOptions, DiskOptions, SchedulerOptions};
use samebit_serve::{Options, Server};
use serde_json::json;

use super::model::{Loaded, pins};
use super::{print_json, size};
use crate::cli::ServeArguments;
use crate::failure::{Failure, OrHint};
use crate::terminal;

/// Memory for states where the machine does not tell how much it has.
const STATE_BYTES: u64 = 4 << 30;

pub(super) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let model = &arguments.model;
    let loaded = Loaded::load(&model.model, &model.machine, model.output)?;
    let state_bytes =
        arguments.state_mib.map_or_else(quarter_of_memory, |mib| (mib as u64).saturating_mul(1 << 20));
    let options = Options {
        names: names(arguments, &loaded.checkpoint),
        scheduler: SchedulerOptions {
            kv: model.machine.kv.ty,
            step_rows: arguments.step_rows,
            max_running: arguments.max_running,
            max_waiting: arguments.max_waiting,
            state_bytes,
            seed_salt: arguments.seed_salt.clone(),
        },
        bank: bank(arguments),
        weights: pins(&loaded.checkpoint, model.output),
        api_key_file: arguments.api_key_file.clone(),
        notify_socket: std::env::var_os("NOTIFY_SOCKET"),
        log: !model.output.quiet,
        drain: Duration::from_secs(arguments.drain_seconds),
    };
    let Loaded { checkpoint, model: weights, cpu, .. } = loaded;
    let plan_id = weights.plan_id(model.machine.kv.ty);
    let server = Server::new(Arc::new(weights), cpu, &checkpoint, options)?;
    drop(checkpoint);

    let open = !arguments.host.is_loopback() && arguments.api_key_file.is_none();
    if open {
        let address = arguments.host;
        terminal::message(format_args!(
            "warning: {address} is reachable from other machines, and without --api-key-file anyone there may ask"
        ));
    }
    for warning in server.warnings() {
        terminal::message(format_args!("warning: {warning}"));
    }
    let context = server.most_tokens();
    let output = model.output;
    samebit_serve::serve(server, SocketAddr::new(arguments.host, arguments.port), |address| {
        if output.json {
            let started = json!({ "address": address.to_string(), "plan_id": plan_id, "context": context });
            // Without a reader the server serves all the same.
            let _ = print_json(&started);
        }
        if !output.quiet {
            terminal::message(format_args!(
                "serving at http://{address} (plan {plan_id}, context {context} tokens, {} for states)",
                size(state_bytes)
            ));
        }
    })
    .or_hint("--host and --port choose another address")
}

/// What is kept of answered requests; `None` where neither memory nor disk may keep anything.
fn bank(arguments: &ServeArguments) -> Option<BankOptions> {
    let disk = arguments.session_dir.as_ref().map(|folder| DiskOptions {
        max_bytes: (arguments.session_gib as u64).saturating_mul(1 << 30),
        ..DiskOptions::new(folder)
    });
    let memory_bytes = (arguments.cache_mib as u64).saturating_mul(1 << 20);
    let keeps = memory_bytes > 0 || disk.is_some();
    keeps.then(|| BankOptions { memory_bytes, disk, ..BankOptions::default() })
}

/// What requests may call the model: the given names, else what `MODEL` says and the name of its file or folder.
fn names(arguments: &ServeArguments, checkpoint: &Checkpoint) -> Vec<String> {
    if !arguments.served_name.is_empty() {
        return arguments.served_name.clone();
    }
    let given = &arguments.model.model;
    let file = checkpoint.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    // A path tells where the file lies, which is nobody's business.
    let mut names = if Path::new(given).exists() { Vec::new() } else { vec![given.clone()] };
    if !file.is_empty() && !names.contains(&file) {
        names.push(file);
    }
    if names.is_empty() { vec!["model".to_owned()] } else { names }
}

/// A quarter of the machine's memory, whatever is free now: the same at every start.
fn quarter_of_memory() -> u64 {
    let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    kib.map_or(STATE_BYTES, |kib| kib.saturating_mul(1024) / 4)
}
