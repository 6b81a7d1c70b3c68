//! `ops`: every operation against its scalar definition, one row at a time.

mod attention;
mod elements;
mod experts;
mod head_chunk;
mod products;
mod stored;
mod weights;

use std::collections::BTreeSet;

use samebit_arith::{Cpu, Isa};

use super::{Setup, available_isas};
use crate::error::ProveError;
use crate::findings::Findings;

/// Numbers of rows at which operations are timed.
const TIMED_ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Operations that must have been compared.
const OPERATIONS: usize = 18;

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    products::run(setup, findings)?;
    elements::run(setup, findings)?;
    experts::run(setup, findings)?;
    attention::run(setup, findings)?;
    head_chunk::run(setup, findings)?;
    stored::run(setup, findings)?;
    let operations: BTreeSet<&str> = findings.cases.iter().map(|case| case.op.as_str()).collect();
    findings.prove("operations", operations.len(), OPERATIONS);
    let fast = available_isas().len() - 1;
    findings.prove("instruction sets compared with the scalar one", fast, 1);
    Ok(())
}

/// Every instruction set with several threads, and in a full run the fastest one with one thread too.
fn machines(setup: &Setup<'_>) -> Result<Vec<Cpu>, ProveError> {
    let mut machines: Vec<(Isa, usize)> =
        available_isas().into_iter().map(|isa| (isa, setup.several_threads())).collect();
    if !setup.quick() {
        machines.push((setup.best_isa(), 1));
    }
    machines.into_iter().map(|(isa, threads)| setup.cpu(isa, threads)).collect()
}
