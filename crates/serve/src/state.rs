//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use samebit_engine::{ConstraintCompiler, EngineError, Health, MemoryPlan, Request, Service};
use samebit_models::Model;
use samebit_text::{ChatTemplate, ReplyFormat, Tokenizer};
use serde_json::Value;

use crate::ask::defaults::Defaults;
use crate::error::ApiError;
use crate::http::keys::Keys;
use crate::metrics::Metrics;
use crate::store::Store;
use samebit_engine::receipt::Program;

/// Receipts that are kept, and their bytes.
const RECEIPTS: (usize, usize) = (4_096, 64 << 20);
/// Responses that are kept, and their bytes.
const RESPONSES: (usize, usize) = (1_024, 256 << 20);

/// A stored response with the conversation that it ends, for those that follow.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    /// The response as it was given.
    pub(crate) response: Value,
    /// The messages before the answer, and the answer.
    pub(crate) messages: Vec<Value>,
}

/// What all requests share.
pub(crate) struct App {
    /// Names that the model answers to; the first is the one it gives.
    pub(crate) names: Vec<String>,
    pub(crate) model: Arc<Model>,
    pub(crate) memory: MemoryPlan,
    pub(crate) tokenizer: Tokenizer,
    /// The chat template, or why there is none.
    pub(crate) template: Result<ChatTemplate, String>,
    /// How tokens are chosen when a request does not say.
    pub(crate) defaults: Defaults,
    /// How the model marks reasoning and calls.
    pub(crate) format: ReplyFormat,
    /// Compiles demands on answers, or why it cannot.
    pub(crate) compiler: Result<ConstraintCompiler, String>,
    pub(crate) service: Service,
    pub(crate) program: Program,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) keys: Option<Keys>,
    pub(crate) receipts: Store<Arc<str>>,
    pub(crate) responses: Store<Arc<StoredResponse>>,
    /// Since when it serves, in seconds since 1970.
    pub(crate) since: u64,
    /// Whether requests are told on standard error.
    pub(crate) log: bool,
    pub(crate) most_waiting: usize,
    pub(crate) most_running: usize,
    draining: AtomicBool,
    in_flight: Arc<AtomicUsize>,
}

/// What an [`App`] is made of, apart from what begins empty.
pub(crate) struct Parts {
    pub(crate) names: Vec<String>,
    pub(crate) model: Arc<Model>,
    pub(crate) memory: MemoryPlan,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: Result<ChatTemplate, String>,
    pub(crate) defaults: Defaults,
    /// How the model marks reasoning and calls.
    pub(crate) format: ReplyFormat,
    /// Compiles demands on answers, or why it cannot.
    pub(crate) compiler: Result<ConstraintCompiler, String>,
    pub(crate) service: Service,
    pub(crate) program: Program,
    pub(crate) keys: Option<Keys>,
    pub(crate) log: bool,
    pub(crate) most_waiting: usize,
    pub(crate) most_running: usize,
}

impl App {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            names: parts.names,
            model: parts.model,
            memory: parts.memory,
            tokenizer: parts.tokenizer,
            template: parts.template,
            defaults: parts.defaults,
            format: parts.format,
            compiler: parts.compiler,
            service: parts.service,
            program: parts.program,
            metrics: Arc::default(),
            keys: parts.keys,
            receipts: Store::new(RECEIPTS.0, RECEIPTS.1),
            responses: Store::new(RESPONSES.0, RESPONSES.1),
            since: crate::ask::prompt::unix_seconds(),
            log: parts.log,
            most_waiting: parts.most_waiting,
            most_running: parts.most_running,
            draining: AtomicBool::new(false),
            in_flight: Arc::default(),
        }
    }

    /// The name that the model gives.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Whether the model answers to `name`.
    pub(crate) fn serves(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Enters the seeds of requests that name none.
    pub(crate) fn seed_salt(&self) -> &str {
        &self.program.seed_salt
    }

    /// The longest sequence, prompt and answer together.
    pub(crate) fn most_tokens(&self) -> usize {
        self.memory.most_tokens()
    }

    /// What the engine would refuse about a request.
    pub(crate) fn check(&self, request: &Request) -> Result<(), ApiError> {
        let answer = request.check(&self.model)?;
        let (prompt, context) = (request.prompt.len(), self.most_tokens());
        match prompt.saturating_add(answer) > context {
            true => Err(EngineError::Context { prompt, answer, context }.into()),
            false => Ok(()),
        }
    }

    /// Lets a request in, unless the server is about to end or too many wait.
    pub(crate) fn admit(&self) -> Result<Admission, ApiError> {
        // Counted first: whoever sees no request in flight after draining began is right.
        let admission = Admission::new(&self.in_flight);
        if self.is_draining() {
            return Err(ApiError::unavailable("this server is about to end: ask another one"));
        }
        let load = self.service.load();
        if load.waiting >= self.most_waiting && load.running >= self.most_running {
            return Err(EngineError::Busy { waiting: load.waiting, running: load.running }.into());
        }
        Ok(admission)
    }

    /// Takes no new requests from now on.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Whether no new requests are taken.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Waits until no request is being answered.
    pub(crate) async fn idle(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        while self.in_flight.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Why it cannot answer, if it cannot.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self.service.health() {
            Health::Well => None,
            Health::Stuck(since) => Some(format!("no forward pass has ended for {} s", since.as_secs())),
            Health::Dead(reason) => Some(format!("the engine has ended: {reason}")),
        }
    }
}

/// A request that is being answered. Dropped, it is so no longer.
#[derive(Debug)]
pub(crate) struct Admission(Arc<AtomicUsize>);

impl Admission {
    fn new(in_flight: &Arc<AtomicUsize>) -> Self {
        in_flight.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(in_flight))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
