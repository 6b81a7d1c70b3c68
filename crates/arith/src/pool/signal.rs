//! How a caller hands one job to sleeping or spinning workers, and learns that nobody works on it any more.
//!
//! `gate` is the one word that workers watch: the number of the order, whether it is open, and how many workers are
//! inside. A worker enters an open order by counting itself in, so one that the system keeps from running is simply
//! not there: the caller does its tasks and closes the order, and waits only for those who did enter. The number
//! changes only under the lock, and a worker goes to sleep only under the lock after looking at it again, so no wake-up
//! can be lost.

use super::sync::{AtomicPtr, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, spin_loop, yield_now};
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64 as Tally, Ordering};

/// What a panicking task threw.
pub(super) type Payload = Box<dyn Any + Send>;

/// One run: tasks and what became of them. It lives on the caller's stack.
struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    tasks: usize,
    threads: usize,
    panic: Mutex<Option<Payload>>,
}

/// Share `thread` of `tasks` cut into `threads` shares: `thread * tasks / threads ..`, without the product overflowing.
pub(super) fn share(tasks: usize, threads: usize, thread: usize) -> Range<usize> {
    let (whole, rest) = (tasks / threads, tasks % threads);
    let bound = |t: usize| t * whole + t * rest / threads;
    bound(thread)..bound(thread + 1)
}

/// What one thread alone writes most of the time, on a cache line of its own.
#[repr(align(128))]
struct Own {
    /// The next task of its share that nobody has claimed.
    next: AtomicUsize,
    /// Tasks that it has run, of all jobs.
    ran: Tally,
}

/// Workers inside, in the low bits of the gate.
const INSIDE: u64 = 0xffff;
/// Where the number of threads that may take part begins.
const THREADS_AT: u32 = 16;
/// Bits of that number, and its value that tells workers to leave.
const STOP: u64 = 0x7fff;
/// Whether workers may still enter.
const OPEN: u64 = 1 << 31;
/// Where the number of the order begins.
const NUMBER_AT: u32 = 32;
/// Every smaller number of threads fits into the gate.
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
    gate: AtomicU64,
    job: AtomicPtr<Job<'static>>,
    /// Of each thread, the caller's first.
    own: Vec<Own>,
    /// Workers asleep on `ordered`.
    sleepers: Mutex<usize>,
    ordered: Condvar,
    waiting: Mutex<()>,
    left: Condvar,
    patience: Patience,
}

impl Signal {
    /// Nothing ordered yet, for a caller and `threads - 1` workers.
    pub(super) fn new(threads: usize, patience: Patience) -> Self {
        let own = || Own { next: AtomicUsize::new(0), ran: Tally::new(0) };
        Self {
            gate: AtomicU64::new(0),
            job: AtomicPtr::new(ptr::null_mut()),
            own: (0..threads).map(|_| own()).collect(),
            sleepers: Mutex::new(0),
            ordered: Condvar::new(),
            waiting: Mutex::new(()),
            left: Condvar::new(),
            patience,
        }
    }

    /// Calls `task` with each of `0..tasks` on the caller and on those of workers `1..threads` that come in time;
    /// returns what a task threw. One caller at a time.
    pub(super) fn run(&self, threads: usize, tasks: usize, task: &(dyn Fn(usize) + Sync)) -> Option<Payload> {
        debug_assert!((1..=self.own.len().min(MAX_THREADS)).contains(&threads));
        for (thread, own) in self.own[..threads].iter().enumerate() {
            own.next.store(share(tasks, threads, thread).start, Ordering::Relaxed);
        }
        let job = Job { task, tasks, threads, panic: Mutex::new(None) };
        // The lifetime goes away with the cast to a raw pointer; `work` says why it is not missed.
        self.job.store(ptr::from_ref(&job).cast_mut().cast(), Ordering::Relaxed);
        self.post(threads as u64);
        self.run_tasks(&job, 0);
        self.close();
        lock(&job.panic).take()
    }

    /// Tells the workers to leave.
    pub(super) fn stop(&self) {
        self.post(STOP);
    }

    /// Counts tasks that `thread` ran.
    pub(super) fn count(&self, thread: usize, tasks: usize) {
        self.own[thread].ran.fetch_add(tasks as u64, Ordering::Relaxed);
    }

    /// Tasks run so far by each thread, the caller's first.
    pub(super) fn ran(&self) -> Vec<u64> {
        self.own.iter().map(|own| own.ran.load(Ordering::Relaxed)).collect()
    }

    /// The life of worker `thread`.
    pub(super) fn work(&self, thread: usize) {
        let mut seen = 0;
        loop {
            let gate = self.next_order(seen);
            seen = gate >> NUMBER_AT;
            let threads = gate >> THREADS_AT & STOP;
            if threads == STOP {
                return;
            }
            if thread as u64 >= threads || !self.enter(gate) {
                continue;
            }
            // SAFETY: this worker is counted inside an order that was open, and the caller stays in `run`, with the
            // job on its stack, until nobody is inside. Entering read the gate with Acquire, so pointer and job are
            // visible.
            let job = unsafe { &*self.job.load(Ordering::Relaxed) };
            self.run_tasks(job, thread);
            let before = self.gate.fetch_sub(1, Ordering::AcqRel);
            if before & INSIDE == 1 && before & OPEN == 0 {
                // Between the caller's last look and its sleep it holds this lock.
                drop(lock(&self.waiting));
                self.left.notify_one();
            }
        }
    }

    /// Counts a worker into the order that `gate` showed, unless that is closed.
    fn enter(&self, mut gate: u64) -> bool {
        let number = gate >> NUMBER_AT;
        while gate & OPEN != 0 && gate >> NUMBER_AT == number {
            match self.gate.compare_exchange_weak(gate, gate + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => gate = now,
            }
        }
        false
    }

    /// Runs tasks until all are claimed: those of `thread`'s own share first, in ascending order, then what is left of
    /// the others'. A panic is kept, the first one of all threads, and ends this thread's part.
    fn run_tasks(&self, job: &Job<'_>, thread: usize) {
        let mut ran = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for owner in (thread..job.threads).chain(0..thread) {
                let end = share(job.tasks, job.threads, owner).end;
                let next = &self.own[owner].next;
                // Looking first keeps those who find nothing from taking the line away from its owner.
                while next.load(Ordering::Relaxed) < end {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= end {
                        break;
                    }
                    (job.task)(task);
                    ran += 1;
                }
            }
        }));
        self.count(thread, ran);
        if let Err(payload) = outcome {
            lock(&job.panic).get_or_insert(payload);
        }
    }

    /// Publishes an order for `threads` threads. Nobody is inside the last one.
    fn post(&self, threads: u64) {
        let sleepers = lock(&self.sleepers);
        let number = (self.gate.load(Ordering::Relaxed) >> NUMBER_AT) + 1;
        self.gate.store(number << NUMBER_AT | OPEN | threads << THREADS_AT, Ordering::Release);
        if *sleepers > 0 {
            self.ordered.notify_all();
        }
    }

    /// Waits for an order other than number `seen`; returns the gate as it was then.
    fn next_order(&self, seen: u64) -> u64 {
        let changed = || self.gate.load(Ordering::Acquire) >> NUMBER_AT != seen;
        if !self.spin_until(changed) {
            let mut sleepers = lock(&self.sleepers);
            *sleepers += 1;
            while !changed() {
                sleepers = self.ordered.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
            }
            *sleepers -= 1;
        }
        self.gate.load(Ordering::Acquire)
    }

    /// Closes the current order and waits until no worker is inside.
    fn close(&self) {
        if self.gate.fetch_and(!OPEN, Ordering::AcqRel) & INSIDE == 0 {
            return;
        }
        let empty = || self.gate.load(Ordering::Acquire) & INSIDE == 0;
        if !self.spin_until(empty) {
            let mut waiting = lock(&self.waiting);
            while !empty() {
                waiting = self.left.wait(waiting).unwrap_or_else(PoisonError::into_inner);
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
