//! `threads`: every number of threads against one.

use std::time::{Duration, Instant};

use samebit_arith::Cpu;

use super::Setup;
use crate::error::ProveError;
use crate::findings::{CaseId, Findings};
use crate::passes::{random_tokens, run_fresh};
use crate::sharing::tasks_of_others;

/// Tokens of the prompt, where the context has room: more than one attention block.
const QUICK_TOKENS: usize = 280;
/// The same in a full run.
const TOKENS: usize = 530;
/// A small model may be done before the system has another thread running, for threads help each other. So the passes
/// go on, each compared, until one joined in, or for so long.
const PATIENCE: Duration = Duration::from_secs(3);
/// Up to this number of threads every number is checked.
const EVERY: usize = 9;
/// Passes after it: decoded rows, and some that are verified together.
const AFTER: [usize; 7] = [1, 1, 4, 1, 8, 1, 1];

pub(super) fn run(setup: &Setup<'_>, findings: &mut Findings) -> Result<(), ProveError> {
    let (model, kv) = (setup.model(), setup.kv());
    let after: usize = AFTER.iter().sum();
    let count = if setup.quick() { QUICK_TOKENS } else { TOKENS }.min(model.info().context);
    let prompt = count.saturating_sub(after).max(1);
    let mut pieces = vec![prompt];
    pieces.extend(if count > after { &AFTER[..] } else { &[] });
    let count: usize = pieces.iter().sum();
    let tokens = random_tokens(&mut setup.random("threads"), model, count);
    let wanted = |position: usize| position + 1 >= prompt;

    let isas = if setup.quick() { vec![setup.best_isa()] } else { setup.fast_isas() };
    for isa in isas {
        let one = setup.cpu(isa, 1)?;
        let expected = run_fresh(model, &one, kv, &tokens, &pieces, &wanted)?;
        let (mut shared, counts) = (0, thread_counts(setup.most_threads()));
        for &threads in &counts {
            let cpu = setup.cpu(isa, threads)?;
            let id = CaseId {
                op: "forward",
                shape: format!("{prompt} tokens, then {} passes", pieces.len() - 1),
                format: kv.to_string(),
                isa,
                threads,
                rows: prompt,
                detail: "against one thread".to_owned(),
            };
            let start = Instant::now();
            for pass in 0.. {
                let found = run_fresh(model, &cpu, kv, &tokens, &pieces, &wanted)?;
                let parts = expected.parts(&found);
                match pass {
                    0 => findings.compare(&id, &parts),
                    _ => findings.compare_again(&parts),
                }
                if others_worked(&cpu) || cpu.threads() < 2 || start.elapsed() > PATIENCE {
                    break;
                }
            }
            shared += usize::from(others_worked(&cpu));
        }
        findings.prove(
            format!(
                "numbers of threads, of 2 to {}, at which several did work ({isa})",
                setup.most_threads()
            ),
            shared,
            counts.len(),
        );
    }
    Ok(())
}

/// Every number of threads from 2 to [`EVERY`], then powers of two and the last two up to `most`.
fn thread_counts(most: usize) -> Vec<usize> {
    let wanted = |threads: &usize| *threads <= EVERY || threads.is_power_of_two() || threads + 2 > most;
    (2..=most).filter(wanted).collect()
}

/// Whether a thread beside the caller's has done work.
fn others_worked(cpu: &Cpu) -> bool {
    tasks_of_others(cpu) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_are_sampled_up_to_the_last() {
        assert_eq!(thread_counts(2), [2]);
        assert_eq!(thread_counts(5), [2, 3, 4, 5]);
        assert_eq!(thread_counts(25), [2, 3, 4, 5, 6, 7, 8, 9, 16, 24, 25]);
    }
}
