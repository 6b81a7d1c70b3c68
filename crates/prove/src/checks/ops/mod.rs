//! `ops`: every operation against its scalar definition, one row at a time.

mod attention;
mod elements;
mod experts;
mod head;
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
    findings.prove_sharing();
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

/// Negative controls of the sections that are slow where the plan is broken, with the work that shows it. The whole check
/// has its own, beside those of the other checks.
#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use samebit_arith::{Breakage, KvType};
    use samebit_checkpoint::Checkpoint;
    use samebit_models::Model;

    use super::*;
    use crate::options::{CheckName, Options, Subject};

    type Section<'a> = &'a dyn Fn(&Setup<'_>, &mut Findings) -> Result<(), ProveError>;

    /// What a section of a quick run finds on a broken plan.
    fn broken(breakage: Breakage, section: Section<'_>) -> Findings {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/qwen3/model");
        let checkpoint = Arc::new(Checkpoint::open(&path).unwrap());
        let model = Model::load(Arc::clone(&checkpoint), &Cpu::new(Isa::detect(), 1).unwrap(), &mut |_| {});
        let make_cpu = |isa, threads| Cpu::broken(isa, threads, breakage);
        let subject =
            Subject { name: "fixture", checkpoint: &checkpoint, model: &model.unwrap(), make_cpu: &make_cpu };
        let only = vec![CheckName::Ops];
        let options = Options { quick: true, only, threads: 2, kv: KvType::F16, seed: 1 };
        let mut findings = Findings::default();
        section(&Setup { subject: &subject, options: &options }, &mut findings).unwrap();
        assert!(findings.first_difference.is_some(), "{breakage:?} went through");
        findings
    }

    #[test]
    fn products_see_a_sum_that_is_split_by_rows() {
        let findings = broken(Breakage::SplitByRows, &products::run);
        let place = &findings.first_difference.unwrap().place;
        assert!(place.starts_with("matmul, row"), "{place}");
        assert!(findings.cases.iter().all(|case| case.equal || case.rows > 1));
    }

    #[test]
    fn attention_sees_blocks_that_merge_by_threads() {
        let findings = broken(Breakage::MergeByThreads, &attention::run);
        assert!(findings.cases.iter().all(|case| case.equal || case.threads > 1));
    }

    #[test]
    fn head_chunks_see_blocks_that_merge_by_threads_or_begin_with_the_pass() {
        for breakage in [Breakage::MergeByThreads, Breakage::BlocksFromPass] {
            let chunks = |setup: &Setup<'_>, findings: &mut Findings| {
                head_chunk::run_shapes(setup, findings, &[(24, 2, 64)])
            };
            let findings = broken(breakage, &chunks);
            // A pass with a window sees it as well as one without, and so do several spans.
            for words in ["no window", "window 241", "soft cap", "spans from"] {
                let differs = |case: &crate::Case| !case.equal && case.label.contains(words);
                assert!(findings.cases.iter().any(differs), "{breakage:?}: {words}");
            }
        }
    }
}
