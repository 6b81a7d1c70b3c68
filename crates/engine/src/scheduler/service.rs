//! The thread that owns a scheduler, and the handle that others speak to it through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Scheduler, Submission};
use crate::{BankStats, EngineError};

/// What runs and waits at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that have room.
    pub running: usize,
    /// Requests that wait for room.
    pub waiting: usize,
    /// Bytes set aside for running requests.
    pub reserved_bytes: u64,
    /// Bytes that their states hold now.
    pub state_bytes: u64,
    /// Bytes that may be set aside.
    pub most_state_bytes: u64,
}

/// How an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers, or could.
    Well,
    /// It has had work for this long without finishing a pass.
    Stuck(Duration),
    /// It ended, for this reason.
    Dead(String),
}

/// What the thread tells of itself.
#[derive(Debug)]
struct Status {
    load: Load,
    bank: Option<BankStats>,
    /// When the last pass ended, or the last work came to an idle engine.
    progress: Instant,
    /// Why the thread ended, if it did.
    dead: Option<String>,
}

enum Order {
    Submit(Box<Submission>),
    /// Answer what is there, take nothing new, end.
    Drain,
    /// End at once.
    Stop,
}

/// An engine on a thread of its own. Dropping it ends the thread, and what still ran is told so.
pub struct Service {
    orders: Sender<Order>,
    status: Arc<Mutex<Status>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Service {
    /// A pass that takes longer than this is reported as stuck.
    pub const STUCK_AFTER: Duration = Duration::from_secs(120);

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(scheduler: Scheduler) -> Result<Self, EngineError> {
        let (orders, inbox) = channel();
        let status = Arc::new(Mutex::new(Status {
            load: scheduler.load(),
            bank: scheduler.bank_stats(),
            progress: Instant::now(),
            dead: None,
        }));
        let told = Arc::clone(&status);
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || serve(scheduler, &inbox, &told))
            .map_err(EngineError::Thread)?;
        Ok(Self { orders, status, thread: Mutex::new(Some(thread)) })
    }

    /// Hands a request in. Its client hears of it, whatever happens.
    pub fn submit(&self, submission: Submission) {
        if let Err(refused) = self.orders.send(Order::Submit(Box::new(submission)))
            && let Order::Submit(submission) = refused.0
        {
            let reason = self.status().dead.clone().unwrap_or_else(|| "it has been shut down".to_owned());
            submission.client.finished(Err(EngineError::ShutDown(reason)));
        }
    }

    /// What runs and waits.
    pub fn load(&self) -> Load {
        self.status().load
    }

    /// What the session bank holds and has done; `None` without one.
    pub fn bank_stats(&self) -> Option<BankStats> {
        self.status().bank.clone()
    }

    /// How it is.
    pub fn health(&self) -> Health {
        let status = self.status();
        if let Some(reason) = &status.dead {
            return Health::Dead(reason.clone());
        }
        let since = status.progress.elapsed();
        match status.load.running > 0 && since > Self::STUCK_AFTER {
            true => Health::Stuck(since),
            false => Health::Well,
        }
    }

    /// Answers what is there, takes nothing new, and returns when that is done.
    pub fn drain(&self) {
        let _ = self.orders.send(Order::Drain);
        self.join();
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread is in the status; nobody is helped by a second one.
            let _ = thread.join();
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        self.join();
    }
}

/// The thread: takes orders as they come, and does passes while there is work.
fn serve(mut scheduler: Scheduler, inbox: &Receiver<Order>, status: &Mutex<Status>) {
    let result = catch_unwind(AssertUnwindSafe(|| run(&mut scheduler, inbox, status)));
    let reason = match result {
        Ok(reason) => reason.to_owned(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
            format!("of an error in samebit itself: {text}")
        }
    };
    let mut status = status.lock().unwrap_or_else(PoisonError::into_inner);
    status.dead = Some(reason.clone());
    status.load = Load::default();
    drop(status);
    // A client's own code may be what panicked.
    let _ = catch_unwind(AssertUnwindSafe(|| scheduler.shut_down(&reason)));
    let late = std::iter::from_fn(|| inbox.try_recv().ok());
    for order in late {
        if let Order::Submit(submission) = order {
            submission.client.finished(Err(EngineError::ShutDown(reason.clone())));
        }
    }
}

fn run(scheduler: &mut Scheduler, inbox: &Receiver<Order>, status: &Mutex<Status>) -> &'static str {
    const DRAINED: &str = "it has been shut down";
    let mut draining = false;
    loop {
        let order = match (scheduler.is_idle(), draining) {
            (true, true) => return DRAINED,
            (true, false) => inbox.recv().map_err(|_| TryRecvError::Disconnected),
            (false, _) => inbox.try_recv(),
        };
        match order {
            Ok(Order::Submit(submission)) if draining => {
                submission.client.finished(Err(EngineError::ShutDown(DRAINED.to_owned())));
                continue;
            }
            Ok(Order::Submit(submission)) => {
                scheduler.submit(*submission);
                publish(scheduler, status);
                continue;
            }
            Ok(Order::Drain) => draining = true,
            Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return DRAINED,
            Err(TryRecvError::Empty) => {}
        }
        scheduler.step();
        publish(scheduler, status);
    }
}

fn publish(scheduler: &Scheduler, status: &Mutex<Status>) {
    let (load, bank) = (scheduler.load(), scheduler.bank_stats());
    let mut status = status.lock().unwrap_or_else(PoisonError::into_inner);
    status.load = load;
    status.bank = bank;
    status.progress = Instant::now();
}
