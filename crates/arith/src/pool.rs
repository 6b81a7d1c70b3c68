//! The thread pool: numbered tasks, and output that is split so that tasks cannot meet.
//!
//! A forward pass asks for a few hundred short parallel sections in a row, so workers spin for a moment before they
//! sleep. Each thread has a share of the tasks, and helps with the others' when it is done: where the system keeps a
//! thread from running, the rest go on without it. Which thread runs a task is left to chance, and no task ever
//! shares a sum with another: the pool cannot change a bit.

#[cfg(test)]
mod model;
mod signal;
mod split;
mod sync;
#[cfg(test)]
mod tests;

pub(crate) use split::{ColumnPieces, Columns};

use signal::{Patience, Signal};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Every thread may count on a core: spin for some tens of microseconds, longer than most pauses within a pass.
const OWN_CORES: Patience = Patience { spins: 4000, yields: 32 };
/// More threads than cores: one that spins keeps another from working.
const SHARED_CORES: Patience = Patience { spins: 0, yields: 32 };

/// Threads that run numbered tasks.
///
/// The calling thread works too, so a pool of one thread owns none.
pub struct Pool {
    signal: Arc<Signal>,
    workers: Vec<JoinHandle<()>>,
    /// Whether a caller has the workers now.
    busy: AtomicBool,
}

impl Pool {
    /// The largest pool there can be.
    pub const MAX_THREADS: usize = signal::MAX_THREADS;

    /// A pool of `threads` threads, the caller's included; 0 counts as 1.
    ///
    /// # Errors
    /// When the system refuses to start a thread (those already started are stopped), or for more than
    /// [`Pool::MAX_THREADS`].
    pub fn new(threads: usize) -> io::Result<Self> {
        if threads > Self::MAX_THREADS {
            let reason = format!("a pool of {threads} threads: at most {} are possible", Self::MAX_THREADS);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let patience = if threads <= cores { OWN_CORES } else { SHARED_CORES };
        let signal = Arc::new(Signal::new(threads.max(1), patience));
        let mut pool = Self { signal, workers: Vec::new(), busy: AtomicBool::new(false) };
        for thread in 1..threads {
            let signal = Arc::clone(&pool.signal);
            let worker = thread::Builder::new().name(format!("samebit-{thread}"));
            pool.workers.push(worker.spawn(move || signal.work(thread))?);
        }
        Ok(pool)
    }

    /// Threads that take part in a run, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Tasks that each thread has run so far, the caller's first: proof of who took part.
    pub fn tasks_by_thread(&self) -> Vec<u64> {
        self.signal.ran()
    }

    /// Calls `task` once with each of `0..tasks` and returns when all calls have.
    ///
    /// Of `T = min(threads, tasks)` threads, thread `t` begins with the tasks `t * tasks / T .. (t + 1) * tasks / T` in
    /// ascending order, then takes what is left of the others'; the caller is thread 0. Nobody waits for a thread that
    /// has not begun. While the workers are taken, by another caller or because this is called from inside a task, the
    /// tasks all run on the calling thread.
    ///
    /// # Panics
    /// When a task does: its thread takes no more tasks, the other threads go on, then the panic goes on in the caller.
    /// The pool stays usable.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let active = self.threads().min(tasks);
        if active <= 1 || self.busy.swap(true, Ordering::Acquire) {
            self.signal.count(0, tasks);
            return (0..tasks).for_each(task);
        }
        let panic = self.signal.run(active, tasks, task);
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            std::panic::resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.signal.stop();
        for worker in self.workers.drain(..) {
            // A worker catches what its tasks throw, so joining it cannot fail.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}
