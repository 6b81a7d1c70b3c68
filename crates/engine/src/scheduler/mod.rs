//! Many requests at once: who waits, who runs, and which rows the next forward pass has.
//!
//! Rows are independent, so nothing decided here can change an answer; it decides only when it comes. Every pass takes
//! one row of each answer that is being written, and fills up with a bounded slice of the prompts, oldest first.
//! Memory for the longest that a request can become is set aside before it starts.

mod memory;
mod rows;
mod service;

use std::collections::VecDeque;
use std::sync::Arc;

use samebit_arith::{Cpu, KvPage, KvType};
use samebit_models::{Model, Span, Taps};

use crate::generation::{Observer, Reply, Request};
use crate::turn::Turn;
use crate::{Bank, BankStats, EngineError, Sequence};
pub use memory::MemoryPlan;
pub use service::{Health, Load, Service};

/// What bounds the work of an engine. None of it changes a bit of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// How keys and values are stored.
    pub kv: KvType,
    /// Most rows in a forward pass, at least 1.
    pub step_rows: usize,
    /// Most requests that run at once, at least 1.
    pub max_running: usize,
    /// Most requests that wait; one more is refused.
    pub max_waiting: usize,
    /// Bytes of state that running requests may come to hold together.
    pub state_bytes: u64,
    /// Enters the seeds of requests that name none: see [`crate::derived_seed`].
    pub seed_salt: String,
}

/// Who goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// In order of arrival.
    #[default]
    Normal,
    /// Only while nobody of normal priority has work.
    Background,
}

/// Who asked, and hears of it.
pub trait Client: Observer + Send {
    /// The answer, or why there is none. The last thing that a client hears.
    fn finished(self: Box<Self>, result: Result<Reply, EngineError>);
}

/// A request with what the scheduler must know of it.
pub struct Submission {
    /// What to answer.
    pub request: Request,
    /// Who goes first.
    pub priority: Priority,
    /// Whose prefixes it may reuse and adds to: see [`Bank`].
    pub cache_salt: String,
    /// Who hears of it.
    pub client: Box<dyn Client>,
}

/// A request that waits or runs.
struct Job {
    turn: Turn,
    priority: Priority,
    cache_salt: String,
    /// Who hears of it; nobody any more while the last token of a finished answer is run for the bank.
    client: Option<Box<dyn Client>>,
    /// Bytes of state that it may come to hold.
    bytes: u64,
}

impl Job {
    /// Tells the client how its request ended.
    fn tell(&mut self, result: Result<(), EngineError>) {
        if let Some(client) = self.client.take() {
            client.finished(result.map(|()| self.turn.reply()));
        }
    }

    fn cancelled(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.cancelled())
    }
}

/// Decides what runs, and runs it. One thread owns it: see [`Service`].
pub struct Scheduler {
    model: Arc<Model>,
    cpu: Cpu,
    options: SchedulerOptions,
    memory: MemoryPlan,
    bank: Option<Bank>,
    /// Those that wait for room, by priority, then arrival.
    waiting: VecDeque<Job>,
    /// Those that have room, oldest first.
    running: Vec<Job>,
}

impl Scheduler {
    /// An engine with nothing to do. Without a bank nothing outlives its request.
    ///
    /// # Errors
    /// When an option is out of its bounds, or the state memory cannot hold a single token.
    pub fn new(
        model: Arc<Model>,
        cpu: Cpu,
        options: SchedulerOptions,
        bank: Option<Bank>,
    ) -> Result<Self, EngineError> {
        let at_least = |option, number: usize, least: usize| match number < least {
            true => Err(EngineError::Option {
                option,
                found: number.to_string(),
                expected: format!("at least {least}"),
            }),
            false => Ok(()),
        };
        at_least("step-rows", options.step_rows, 1)?;
        at_least("max-running", options.max_running, 1)?;
        let memory = MemoryPlan::new(&model, &options)?;
        Ok(Self { model, cpu, options, memory, bank, waiting: VecDeque::new(), running: Vec::new() })
    }

    /// How memory is shared out.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// Whether anything runs or waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// What runs and waits.
    pub fn load(&self) -> Load {
        Load {
            running: self.running.iter().filter(|job| job.client.is_some()).count(),
            waiting: self.waiting.len(),
            reserved_bytes: self.reserved(),
            state_bytes: self.running.iter().map(|job| job.turn.sequence().state().bytes() as u64).sum(),
            most_state_bytes: self.options.state_bytes,
        }
    }

    /// What the session bank holds and has done; `None` without one.
    pub fn bank_stats(&self) -> Option<BankStats> {
        self.bank.as_ref().map(Bank::stats)
    }

    fn reserved(&self) -> u64 {
        self.running.iter().map(|job| job.bytes).sum()
    }

    /// Takes a request in, or tells its client why not.
    pub fn submit(&mut self, submission: Submission) {
        let Submission { request, priority, cache_salt, client } = submission;
        match self.prepare(request) {
            Err(error) => client.finished(Err(error)),
            Ok((turn, bytes)) => {
                let job = Job { turn, priority, cache_salt, client: Some(client), bytes };
                self.enqueue(job, false);
            }
        }
    }

    fn prepare(&self, request: Request) -> Result<(Turn, u64), EngineError> {
        if self.waiting.len() >= self.options.max_waiting && self.would_wait() {
            return Err(EngineError::Busy { waiting: self.waiting.len(), running: self.running.len() });
        }
        let turn = Turn::begin(&self.model, request, self.options.kv, &self.options.seed_salt)?;
        let bytes = self.memory.bytes_for(turn.longest());
        if bytes > self.options.state_bytes {
            return Err(EngineError::Memory {
                tokens: turn.longest(),
                bytes,
                available: self.options.state_bytes,
                fits: self.memory.most_tokens(),
            });
        }
        Ok((turn, bytes))
    }

    fn would_wait(&self) -> bool {
        !self.waiting.is_empty() || self.running.len() >= self.options.max_running
    }

    /// Puts a job among those that wait: behind those of its priority, or before them where it has waited already.
    fn enqueue(&mut self, job: Job, before: bool) {
        let goes_on =
            |other: &Job| if before { other.priority >= job.priority } else { other.priority > job.priority };
        let place = self.waiting.iter().position(goes_on).unwrap_or(self.waiting.len());
        self.waiting.insert(place, job);
    }

    /// Does one forward pass, if there is anything to run.
    pub fn step(&mut self) {
        self.drop_cancelled();
        self.admit();
        let rows = rows::share_out(&self.needs(), self.options.step_rows);
        let width: usize = rows.iter().sum();
        if width == 0 {
            return;
        }
        let mut batch: Vec<Span<'_>> = self
            .running
            .iter_mut()
            .zip(&rows)
            .filter(|(_, rows)| **rows > 0)
            .map(|(job, rows)| job.turn.span(*rows))
            .collect();
        let outputs = self.model.forward(&self.cpu, &mut batch, Taps::default());
        match outputs {
            Ok(outputs) => self.take(&rows, width, |index| outputs.logits_row(index)),
            Err(error) => self.fail_all(&error),
        }
    }

    fn needs(&self) -> Vec<rows::Need> {
        let normal = self.running.iter().any(|job| job.priority == Priority::Normal);
        self.running
            .iter()
            .map(|job| rows::Need {
                uncovered: job.turn.uncovered(),
                most: job.turn.request().prefill_chunk,
                // While someone of normal priority has work, the others stand still.
                stands_still: normal && job.priority == Priority::Background,
            })
            .collect()
    }

    /// Hands each job that ran what its rows gave, and ends those that are done.
    fn take<'o>(&mut self, rows: &[usize], width: usize, logits_row: impl Fn(usize) -> &'o [f32]) {
        let mut next_row = 0;
        let mut ended = Vec::new();
        let ran = self.running.iter_mut().zip(rows).enumerate().filter(|(_, (_, rows))| **rows > 0);
        for (index, (job, _)) in ran {
            let Some(client) = &mut job.client else {
                // The last token of a finished answer: its state is whole now.
                ended.push(index);
                continue;
            };
            let mut logits: &[f32] = &[];
            if job.turn.wants_logits() {
                logits = logits_row(next_row);
                next_row += 1;
            }
            let answered = job.turn.answers();
            let result = job.turn.take(&self.cpu, logits, width, &mut **client);
            if !answered && job.turn.answers() && job.turn.prefilled() >= KvPage::POSITIONS {
                store(&mut self.bank, job);
            }
            match result {
                Ok(None) => {}
                Ok(Some(_)) => {
                    job.tell(Ok(()));
                    if self.bank.is_none() {
                        ended.push(index);
                    }
                }
                Err(error) => {
                    job.tell(Err(error));
                    ended.push(index);
                }
            }
        }
        for index in ended.into_iter().rev() {
            let job = self.running.remove(index);
            store(&mut self.bank, &job);
        }
    }

    /// A pass that is refused as a whole cannot be put down to one request: all that were in it fail.
    fn fail_all(&mut self, error: &samebit_models::ForwardError) {
        for mut job in self.running.drain(..) {
            job.tell(Err(EngineError::Pass(error.to_string())));
        }
    }

    /// Lets go of requests that nobody waits for any more.
    fn drop_cancelled(&mut self) {
        for mut job in self.running.extract_if(.., |job| job.cancelled()) {
            job.tell(Ok(()));
            store(&mut self.bank, &job);
        }
        let (gone, kept) = self.waiting.drain(..).partition(Job::cancelled);
        self.waiting = kept;
        let gone: VecDeque<Job> = gone;
        for mut job in gone {
            job.tell(Ok(()));
        }
    }

    /// Gives room to those that wait, in order, until the first that finds none.
    fn admit(&mut self) {
        while let Some(next) = self.waiting.front() {
            let (bytes, priority) = (next.bytes, next.priority);
            while !self.fits(bytes) && priority == Priority::Normal && self.put_aside() {}
            if !self.fits(bytes) {
                return;
            }
            let Some(mut job) = self.waiting.pop_front() else { return };
            match resume(&mut self.bank, &mut job) {
                Ok(()) => self.running.push(job),
                Err(error) => job.tell(Err(error)),
            }
        }
    }

    fn fits(&self, bytes: u64) -> bool {
        self.running.len() < self.options.max_running && self.reserved() + bytes <= self.options.state_bytes
    }

    /// Takes the room of the youngest background request. Its state is computed anew when it goes on.
    fn put_aside(&mut self) -> bool {
        let Some(index) = self.running.iter().rposition(|job| job.priority == Priority::Background) else {
            return false;
        };
        let mut job = self.running.remove(index);
        store(&mut self.bank, &job);
        match job.turn.drop_state() {
            Ok(()) => self.enqueue(job, true),
            Err(error) => job.tell(Err(error)),
        }
        true
    }

    /// Ends everything, and tells the clients why.
    pub fn shut_down(&mut self, reason: &str) {
        for mut job in self.running.drain(..).chain(self.waiting.drain(..)) {
            job.tell(Err(EngineError::ShutDown(reason.to_owned())));
        }
    }
}

/// Lets a job begin with the longest stored beginning of its tokens.
fn resume(bank: &mut Option<Bank>, job: &mut Job) -> Result<(), EngineError> {
    let Some(bank) = bank else { return Ok(()) };
    let found = bank.lookup(job.turn.ids(), &job.cache_salt);
    let covered = job.turn.ids()[..found.tokens].to_vec();
    match found.state.and_then(|state| Sequence::of(covered, state)) {
        Some(sequence) => job.turn.continue_from(sequence, found.source, found.miss),
        None => {
            job.turn.missed(found.miss);
            Ok(())
        }
    }
}

/// Keeps what a job's state covers, for those that begin alike.
fn store(bank: &mut Option<Bank>, job: &Job) {
    let sequence = job.turn.sequence();
    // After a failure the tokens may be ahead of the state: such a state is not kept.
    if let Some(bank) = bank
        && !sequence.ids().is_empty()
    {
        bank.store(sequence.ids(), sequence.state(), &job.cache_salt);
    }
}
