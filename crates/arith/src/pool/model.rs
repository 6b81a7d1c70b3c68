//! The signal under a model checker, which tries every order in which the threads can meet.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use signal::{Patience, Signal};

/// What [`super::sync`] holds, from the model checker.
mod sync {
    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use loom::thread::yield_now;
}

/// The pool's own source, on the primitives above.
#[path = "signal.rs"]
#[allow(clippy::duplicate_mod)]
mod signal;

/// One output of each thread, not protected by anything but the signal: the checker finds unordered accesses.
struct Outputs([UnsafeCell<usize>; 2]);

// SAFETY: that accesses are ordered is what the model checks.
unsafe impl Sync for Outputs {}

/// Runs on one worker and the caller: two jobs, the second of which reads on the other thread what the first wrote.
fn two_runs(patience: Patience) {
    let signal = Arc::new(Signal::new(2, patience));
    let worker = thread::spawn({
        let signal = Arc::clone(&signal);
        move || signal.work(1)
    });
    let outputs = Outputs([UnsafeCell::new(0), UnsafeCell::new(0)]);
    for round in 1..=2 {
        let outputs = &outputs;
        let task = move |index: usize| {
            // The second round swaps who writes which output.
            let mine = if round == 1 { index } else { 1 - index };
            // SAFETY: the two tasks of a round have outputs of their own.
            outputs.0[mine].with_mut(|output| unsafe { *output += round });
        };
        assert!(signal.run(2, 2, &task).is_none());
        for output in &outputs.0 {
            // SAFETY: the run is over, so that nobody else has access.
            let sum = output.with(|output| unsafe { *output });
            assert_eq!(sum, (1..=round).sum::<usize>());
        }
    }
    assert_eq!(signal.ran().iter().sum::<u64>(), 4);
    signal.stop();
    worker.join().unwrap();
}

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

#[test]
fn threads_that_sleep_at_once_miss_no_signal() {
    check(3, || two_runs(Patience { spins: 0, yields: 0 }));
}

#[test]
fn threads_that_look_first_miss_no_signal() {
    check(2, || two_runs(Patience { spins: 1, yields: 1 }));
}

#[test]
fn a_worker_that_is_not_needed_does_not_touch_the_job() {
    check(2, || {
        let signal = Arc::new(Signal::new(3, Patience { spins: 0, yields: 0 }));
        let workers = [1, 2].map(|index| {
            let signal = Arc::clone(&signal);
            thread::spawn(move || signal.work(index))
        });
        let outputs = Outputs([UnsafeCell::new(0), UnsafeCell::new(0)]);
        {
            let outputs = &outputs;
            // SAFETY: every task has an output of its own.
            let task = move |index: usize| outputs.0[index].with_mut(|output| unsafe { *output += 1 });
            assert!(signal.run(2, 2, &task).is_none());
        }
        signal.stop();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        for output in outputs.0 {
            assert_eq!(output.into_inner(), 1);
        }
    });
}
