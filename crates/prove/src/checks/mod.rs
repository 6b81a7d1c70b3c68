//! One module per check, and what they share.

mod batches;
mod chunks;
mod concurrent;
mod gates;
mod isa;
mod mixed;
mod ops;
mod rows;
mod threads;

use std::time::Instant;

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_models::Model;

use crate::error::ProveError;
use crate::findings::Findings;
use crate::options::{CheckName, Options, Subject};
use crate::random::Random;
use crate::receipt::{Check, Verdict};

/// What a check works with.
pub(crate) struct Setup<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) options: &'a Options,
}

impl Setup<'_> {
    fn model(&self) -> &Model {
        self.subject.model
    }

    fn checkpoint(&self) -> &Checkpoint {
        self.subject.checkpoint
    }

    fn quick(&self) -> bool {
        self.options.quick
    }

    fn threads(&self) -> usize {
        self.options.threads
    }

    /// At least two threads: work that is split must give what it gives in one piece.
    fn several_threads(&self) -> usize {
        self.options.threads.max(2)
    }

    /// The most threads of a check: one more than asked for, so that work is split unevenly.
    fn most_threads(&self) -> usize {
        (self.options.threads + 1).clamp(2, Cpu::MAX_THREADS)
    }

    fn kv(&self) -> KvType {
        self.options.kv
    }

    fn random(&self, purpose: &str) -> Random {
        Random::new(self.options.seed, purpose)
    }

    fn cpu(&self, isa: Isa, threads: usize) -> Result<Cpu, ProveError> {
        Ok((self.subject.make_cpu)(isa, threads)?)
    }

    /// The definition: scalar, on one thread.
    fn definition(&self) -> Result<Cpu, ProveError> {
        self.cpu(Isa::Scalar, 1)
    }

    fn best_isa(&self) -> Isa {
        Isa::detect()
    }

    /// Every instruction set of this processor but the scalar one, which is too slow for many passes of a whole model
    /// and has a check of its own; the scalar one where there is no other.
    fn fast_isas(&self) -> Vec<Isa> {
        let fast: Vec<Isa> = available_isas().into_iter().filter(|isa| *isa != Isa::Scalar).collect();
        if fast.is_empty() { vec![Isa::Scalar] } else { fast }
    }

    /// Machines to run a whole model on: the best instruction set with several threads in a quick run, and every
    /// fast one with one and with several threads in a full run.
    fn machines(&self) -> Vec<(Isa, usize)> {
        if self.quick() {
            return vec![(self.best_isa(), self.several_threads())];
        }
        let threads = [1, self.several_threads()];
        self.fast_isas().into_iter().flat_map(|isa| threads.map(|threads| (isa, threads))).collect()
    }
}

/// Every instruction set of this processor, slowest first.
pub(crate) fn available_isas() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
}

/// Runs a check and draws its verdict.
pub(crate) fn run(name: CheckName, setup: &Setup<'_>) -> Check {
    let run = match name {
        CheckName::Ops => ops::run,
        CheckName::Rows => rows::run,
        CheckName::Chunks => chunks::run,
        CheckName::Threads => threads::run,
        CheckName::Isa => isa::run,
        CheckName::Concurrent => concurrent::run,
        CheckName::Gates => gates::run,
        CheckName::Mixed => mixed::run,
    };
    let start = Instant::now();
    let mut findings = Findings::default();
    let error = run(setup, &mut findings).err();
    let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    check(name, findings, error, milliseconds)
}

/// The rules: a difference fails, and so does a check without a case; what could not run is no pass, and neither is what
/// was equal without having taken the path that it is about.
fn check(name: CheckName, findings: Findings, error: Option<ProveError>, milliseconds: u64) -> Check {
    let failed = findings.cases.iter().filter(|case| !case.equal).count() as u64;
    let verdict = if failed > 0 {
        Verdict::Fail
    } else if error.is_some() {
        Verdict::CouldNotRun
    } else if findings.cases.is_empty() {
        Verdict::Fail
    } else if findings.proof.iter().all(crate::Proof::holds) {
        Verdict::Pass
    } else {
        Verdict::Unchecked
    };
    Check {
        name: name.name().to_owned(),
        claim: name.claim().to_owned(),
        verdict,
        cases: findings.cases.len() as u64,
        failed,
        reason: error.map(|error| error.to_string()),
        proof: findings.proof,
        first_difference: findings.first_difference,
        rows: findings.cases,
        timings: findings.timings,
        milliseconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{CaseId, Part};

    fn verdict(cases: &[bool], proven: bool, error: Option<ProveError>) -> Verdict {
        let mut findings = Findings::default();
        for equal in cases {
            let id = CaseId {
                op: "add",
                shape: String::new(),
                format: String::new(),
                isa: Isa::Scalar,
                threads: 1,
                rows: 1,
                detail: String::new(),
            };
            let found = if *equal { 1.0 } else { 2.0 };
            findings.compare(&id, &[Part::rows("add", 1, &[1.0], &[found])]);
        }
        findings.prove("paths taken", usize::from(proven), 1);
        check(CheckName::Ops, findings, error, 0).verdict
    }

    #[test]
    fn verdicts_follow_the_rules() {
        let stopped = || Some(ProveError::Internal { reason: "stopped".to_owned() });
        assert_eq!(verdict(&[true, true], true, None), Verdict::Pass);
        assert_eq!(verdict(&[true, false], true, None), Verdict::Fail);
        assert_eq!(verdict(&[true], false, None), Verdict::Unchecked);
        assert_eq!(verdict(&[false], false, None), Verdict::Fail);
        assert_eq!(verdict(&[], true, None), Verdict::Fail);
        assert_eq!(verdict(&[true], true, stopped()), Verdict::CouldNotRun);
        assert_eq!(verdict(&[], true, stopped()), Verdict::CouldNotRun);
        assert_eq!(verdict(&[false], true, stopped()), Verdict::Fail);
    }
}
