//! `samebit verify`: a receipt replayed.

use std::fs::File;
use std::io::Read;
use std::process::ExitCode;

use samebit_engine::receipt;
use serde_json::{Value, json};

use super::model::{self, Loaded, pins};
use super::print_json;
use crate::cli::VerifyArguments;
use crate::failure::{Failure, OrHint};
use crate::terminal;

/// Largest receipt that is read, in bytes.
const LARGEST_RECEIPT: u64 = 64 << 20;
/// Exit code where the receipt does not hold.
const DIFFERS: u8 = 1;

pub(super) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Failure> {
    let receipt = read(arguments)?;
    let cpu = model::cpu(arguments.isa.choice.isa(), 1)?;
    let loaded = Loaded::load_on(&arguments.model, cpu, arguments.output)?;
    let pins = pins(&loaded.checkpoint, arguments.output);
    let replayed = receipt::verify(&receipt, &loaded.model, &loaded.cpu, &pins)
        .or_hint("a receipt is what `samebit run --receipt FILE` and the server's /v1/receipts/ID give")?;
    let holds = replayed.differences.is_empty();
    if arguments.output.json {
        print_json(&json!({
            "holds": holds,
            "steps": replayed.steps,
            "differences": replayed.differences,
        }))?;
    } else if holds {
        terminal::print(&format!("the receipt holds: {} steps with the same bits\n", replayed.steps))?;
    } else {
        for difference in &replayed.differences {
            terminal::print(&format!("{}\n", terminal::shown(difference)))?;
        }
        terminal::print("the receipt does not hold\n")?;
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(DIFFERS) })
}

fn read(arguments: &VerifyArguments) -> Result<Value, Failure> {
    let path = &arguments.receipt;
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST_RECEIPT + 1).read_to_end(&mut text))
        .map_err(|error| Failure::io("read", path, &error))?;
    if text.len() as u64 > LARGEST_RECEIPT {
        return Err(Failure::new(format!("{} is longer than {LARGEST_RECEIPT} bytes", path.display())));
    }
    serde_json::from_slice(&text)
        .map_err(|error| Failure::new(format!("{} is no JSON: {error}", path.display())))
}
