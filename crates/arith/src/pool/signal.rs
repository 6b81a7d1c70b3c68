//! How a caller hands one job to sleeping or spinning workers, and learns that it is done.
//!
//! `order` is the one word that workers watch. It changes only under the lock, and a worker goes to sleep only under
//! the lock after looking at it again, so no wake-up can be lost; a worker that still spins sees it without the lock.
//! `remaining` goes the other way, with the caller as the one who waits.

use super::sync::{AtomicPtr, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, spin_loop, yield_now};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// What a panicking task threw.
pub(super) type Payload = Box<dyn Any + Send>;

/// One run: tasks and what became of them. It lives on the caller's stack.
pub(super) struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
    threads: usize,
    panic: Mutex<Option<Payload>>,
}

impl<'a> Job<'a> {
    /// `tasks` calls of `task` for `threads` threads.
    pub(super) fn new(task: &'a (dyn Fn(usize) + Sync), tasks: usize, threads: usize) -> Self {
        Self { task, tasks, threads, panic: Mutex::new(None) }
    }

    /// The tasks of thread `thread`: `thread * tasks / threads ..`, without the product overflowing.
    pub(super) fn share(&self, thread: usize) -> Range<usize> {
        let (whole, rest) = (self.tasks / self.threads, self.tasks % self.threads);
        let bound = |t: usize| t * whole + t * rest / self.threads;
        bound(thread)..bound(thread + 1)
    }

    /// Runs thread `thread`'s share. A panic is kept, the first one of all threads.
    fn run_share(&self, thread: usize) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.share(thread).for_each(self.task))) {
            lock(&self.panic).get_or_insert(payload);
        }
    }
}

/// Low bits of an order hold how many threads take part, the rest counts the orders.
const THREAD_BITS: u32 = 16;
/// Thread count that tells workers to leave.
const STOP: u64 = (1 << THREAD_BITS) - 1;
/// Every smaller number of threads fits into an order.
pub(super) const MAX_THREADS: usize = STOP as usize - 1;

/// How long to look at a word before going to sleep over it.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Looks that keep the core.
    pub(super) spins: u32,
    /// Looks after which other threads may have the core.
    pub(super) yields: u32,
}

/// The words and the locks that a caller and the workers share.
pub(super) struct Signal {
    order: AtomicU64,
    job: AtomicPtr<Job<'static>>,
    /// Workers that have not finished the current order.
    remaining: AtomicUsize,
    /// Workers asleep on `ordered`.
    sleepers: Mutex<usize>,
    ordered: Condvar,
    waiting: Mutex<()>,
    done: Condvar,
    patience: Patience,
}

impl Signal {
    /// Nothing ordered yet.
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            order: AtomicU64::new(0),
            job: AtomicPtr::new(ptr::null_mut()),
            remaining: AtomicUsize::new(0),
            sleepers: Mutex::new(0),
            ordered: Condvar::new(),
            waiting: Mutex::new(()),
            done: Condvar::new(),
            patience,
        }
    }

    /// Runs `job` on the caller and on workers `1..threads`; returns what a task threw. One caller at a time.
    pub(super) fn run(&self, threads: usize, job: &Job<'_>) -> Option<Payload> {
        debug_assert!((1..=MAX_THREADS).contains(&threads));
        self.remaining.store(threads - 1, Ordering::Relaxed);
        // The lifetime goes away with the cast to a raw pointer; `work` says why it is not missed.
        self.job.store(ptr::from_ref(job).cast_mut().cast(), Ordering::Relaxed);
        self.post(threads as u64);
        job.run_share(0);
        self.wait_until_done();
        lock(&job.panic).take()
    }

    /// Tells the workers to leave.
    pub(super) fn stop(&self) {
        self.post(STOP);
    }

    /// The life of worker `thread`.
    pub(super) fn work(&self, thread: usize) {
        let mut seen = 0;
        loop {
            seen = self.next_order(seen);
            let threads = seen & STOP;
            if threads == STOP {
                return;
            }
            if thread as u64 >= threads {
                continue;
            }
            // SAFETY: this worker is one of the `threads - 1` that `remaining` was set to, so the caller is still in
            // `run`, with the job on its stack, until the worker counts itself out below. The order was read with
            // Acquire, so pointer and job are visible.
            let job = unsafe { &*self.job.load(Ordering::Relaxed) };
            job.run_share(thread);
            if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
                // Between the caller's last look and its sleep it holds this lock.
                drop(lock(&self.waiting));
                self.done.notify_one();
            }
        }
    }

    /// Publishes an order for `threads` threads.
    fn post(&self, threads: u64) {
        let sleepers = lock(&self.sleepers);
        let number = (self.order.load(Ordering::Relaxed) >> THREAD_BITS) + 1;
        self.order.store(number << THREAD_BITS | threads, Ordering::Release);
        if *sleepers > 0 {
            self.ordered.notify_all();
        }
    }

    /// Waits for an order other than `seen`.
    fn next_order(&self, seen: u64) -> u64 {
        let changed = || self.order.load(Ordering::Acquire) != seen;
        if !self.spin_until(changed) {
            let mut sleepers = lock(&self.sleepers);
            *sleepers += 1;
            while !changed() {
                sleepers = self.ordered.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
            }
            *sleepers -= 1;
        }
        self.order.load(Ordering::Acquire)
    }

    /// Waits until every worker of the current order has counted itself out.
    fn wait_until_done(&self) {
        let finished = || self.remaining.load(Ordering::Acquire) == 0;
        if !self.spin_until(finished) {
            let mut waiting = lock(&self.waiting);
            while !finished() {
                waiting = self.done.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Looks at `condition` for a bounded while; whether it came true.
    fn spin_until(&self, condition: impl Fn() -> bool) -> bool {
        for _ in 0..self.patience.spins {
            if condition() {
                return true;
            }
            spin_loop();
        }
        for _ in 0..self.patience.yields {
            if condition() {
                return true;
            }
            yield_now();
        }
        false
    }
}

/// Locks `mutex`. Nothing panics while holding one of these locks, so poison means nothing here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
