//! Proof that several threads really worked on an operation.
//!
//! Threads help each other, so a small case may be done before the system has another thread running. Where none took
//! part in an operation yet, its case is run again, and compared again, until one did or patience is at its end. That
//! goes by operation, format and instruction set, not by case: thousands of small cases would each wait for the system
//! on a busy machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use samebit_arith::{Cpu, Isa};

use crate::findings::{CaseId, Findings, Part};

/// What was seen of threads in the cases so far.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// Operation, format and instruction set of cases that split into tasks, and whether several threads ever worked
    /// on one.
    seen: BTreeMap<(&'static str, String, Isa), bool>,
    /// How long cases may still be repeated, all of them together.
    patience: Duration,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { seen: BTreeMap::new(), patience: Duration::from_secs(20) }
    }
}

/// An operation that gives rows, and what they should be.
pub(crate) struct RowsCase<'a> {
    /// What the operation is called where rows differ.
    pub(crate) place: &'a str,
    /// Elements of a row.
    pub(crate) width: usize,
    /// What it should give.
    pub(crate) expected: &'a [f32],
    /// Whether it is more than one task, so that a second thread can take part.
    pub(crate) splits: bool,
}

impl Findings {
    /// Compares what `run` gives on `cpu`. Where the work splits, that several threads took part is counted.
    pub(crate) fn compare_run(
        &mut self,
        cpu: &Cpu,
        id: &CaseId,
        case: &RowsCase<'_>,
        run: &mut dyn FnMut() -> Vec<f32>,
    ) {
        let before = tasks_of_others(cpu);
        let found = run();
        self.compare(id, &[Part::rows(case.place, case.width, case.expected, &found)]);
        if !case.splits || cpu.threads() < 2 {
            return;
        }
        let seen = self.sharing.seen.entry((id.op, id.format.clone(), id.isa)).or_default();
        *seen |= tasks_of_others(cpu) > before;
        // After a difference nothing more is to be shown.
        if *seen || self.first_difference.is_some() {
            return;
        }
        let (start, patience) = (Instant::now(), self.sharing.patience);
        while tasks_of_others(cpu) == before && start.elapsed() < patience {
            let found = run();
            self.compare_again(&[Part::rows(case.place, case.width, case.expected, &found)]);
        }
        self.sharing.patience = patience.saturating_sub(start.elapsed());
        let seen = self.sharing.seen.entry((id.op, id.format.clone(), id.isa)).or_default();
        *seen |= tasks_of_others(cpu) > before;
    }

    /// The evidence that several threads worked on each operation that splits into tasks, in each of its formats and on
    /// each instruction set.
    pub(crate) fn prove_sharing(&mut self) {
        let seen = &self.sharing.seen;
        let (did, can) = (seen.values().filter(|seen| **seen).count(), seen.len().max(1));
        self.prove("operations by format and instruction set on which several threads worked", did, can);
    }
}

/// Tasks that threads beside the caller's have run so far.
pub(crate) fn tasks_of_others(cpu: &Cpu) -> u64 {
    cpu.pool().tasks_by_thread().iter().skip(1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(threads: usize, splits: bool, found: f32) -> Findings {
        let mut findings = Findings::default();
        findings.sharing.patience = Duration::from_millis(20);
        let cpu = Cpu::new(Isa::Scalar, threads).unwrap();
        let id = CaseId {
            op: "add",
            shape: String::new(),
            format: String::new(),
            isa: Isa::Scalar,
            threads,
            rows: 1,
            detail: String::new(),
        };
        // Nothing here uses the pool, so no other thread ever takes part.
        let case = RowsCase { place: "add", width: 1, expected: &[1.0], splits };
        findings.compare_run(&cpu, &id, &case, &mut || vec![found]);
        findings.prove_sharing();
        findings
    }

    #[test]
    fn work_that_stays_on_one_thread_is_not_proven() {
        let findings = run(2, true, 1.0);
        assert!(!findings.proof[0].holds() && findings.cases[0].equal);
        assert!(findings.sharing.patience.is_zero());
        // What cannot be split, or has no second thread, proves nothing either.
        assert!(!run(2, false, 1.0).proof[0].holds());
        assert!(!run(1, true, 1.0).proof[0].holds());
    }

    #[test]
    fn nothing_is_repeated_after_a_difference() {
        let findings = run(2, true, 2.0);
        assert!(!findings.sharing.patience.is_zero() && !findings.cases[0].equal);
    }

    #[test]
    fn another_thread_is_waited_for() {
        let cpu = Cpu::new(Isa::Scalar, 2).unwrap();
        let mut findings = Findings::default();
        let id = CaseId {
            op: "exp",
            shape: String::new(),
            format: String::new(),
            isa: Isa::Scalar,
            threads: 2,
            rows: 1,
            detail: String::new(),
        };
        let expected = vec![1.0; 20_000];
        let case = RowsCase { place: "exp", width: 20_000, expected: &expected, splits: true };
        findings.compare_run(&cpu, &id, &case, &mut || {
            let mut x = vec![0.0; 20_000];
            cpu.exp(&mut x);
            x
        });
        findings.prove_sharing();
        assert!(findings.proof[0].holds() && findings.cases[0].equal, "{:?}", findings.proof);
    }
}
