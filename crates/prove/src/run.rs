//! A run: the checks one after the other, and the receipt of all.

use std::time::Instant;

use samebit_models::{PLAN_VERSION, plan_id};

use crate::checks::{self, Setup, available_isas};
use crate::options::{CheckName, Options, Subject};
use crate::receipt::{FileRecord, MachineRecord, ModelRecord, OptionsRecord, Receipt, Verdict};

/// Runs the checks that `options` asks for. `progress` is called with each check before it runs.
///
/// What goes wrong on the way is in the receipt: a check that could not run says why.
pub fn prove(subject: &Subject<'_>, options: &Options, progress: &mut dyn FnMut(CheckName)) -> Receipt {
    let start = Instant::now();
    let setup = Setup { subject, options };
    let wanted = |check: &CheckName| options.only.is_empty() || options.only.contains(check);
    let checks: Vec<_> = CheckName::ALL
        .into_iter()
        .filter(wanted)
        .map(|name| {
            progress(name);
            checks::run(name, &setup)
        })
        .collect();
    Receipt {
        samebit: env!("CARGO_PKG_VERSION").to_owned(),
        plan: PLAN_VERSION.to_owned(),
        plan_id: plan_id(options.kv),
        model: model_record(subject),
        machine: machine_record(options.threads),
        options: OptionsRecord {
            quick: options.quick,
            only: options.only.iter().map(|check| check.name().to_owned()).collect(),
            kv: options.kv.to_string(),
            seed: options.seed,
        },
        verdict: checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Fail),
        checks,
        milliseconds: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

fn model_record(subject: &Subject<'_>) -> ModelRecord {
    let info = subject.model.info();
    // Read from the files themselves: a receipt remembers nothing.
    let pins = subject.checkpoint.pins(None, |_, _| ());
    ModelRecord {
        name: subject.name.to_owned(),
        family: info.family.to_owned(),
        layers: info.layers.len() as u64,
        hidden: info.hidden as u64,
        vocabulary: info.vocabulary as u64,
        context: info.context as u64,
        parameters: info.parameters,
        files: pins
            .into_iter()
            .map(|pin| FileRecord { name: pin.file, bytes: pin.bytes, sha256: pin.sha256 })
            .collect(),
    }
}

fn machine_record(threads: usize) -> MachineRecord {
    MachineRecord {
        processor: processor(),
        isas: available_isas().iter().map(ToString::to_string).collect(),
        threads: threads as u64,
    }
}

/// The name that the processor gives itself where the system tells it, else its architecture.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
