//! A server: made of a model, run until it is told to end.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use samebit_arith::Cpu;
use samebit_checkpoint::{Checkpoint, CheckpointError, Pin};
use samebit_engine::{
    Bank, BankError, BankOptions, ConstraintCompiler, EngineError, Load, MemoryPlan, Scheduler,
    SchedulerOptions, Service,
};
use samebit_models::Model;
use samebit_text::ReplyFormat;
use tokio::net::TcpListener;
use tower_http::catch_panic::CatchPanicLayer;

use crate::ask::defaults::Defaults;
use crate::http::keys::Keys;
use crate::http::outer;
use crate::state::{App, Parts};
use crate::{about, anthropic, notify, openai, responses, tokens};
use samebit_engine::receipt::Program;

/// How long connections that carry nothing any more may stay open at the end.
const CLOSING: Duration = Duration::from_secs(5);

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names that the model answers to, at least one; replies name the first.
    pub names: Vec<String>,
    /// What bounds the engine's work.
    pub scheduler: SchedulerOptions,
    /// What is kept of answered requests, so that later ones need not compute it again; `None` keeps nothing. It
    /// changes no bit.
    pub bank: Option<BankOptions>,
    /// Digests of the checkpoint's files, for receipts.
    pub weights: Vec<Pin>,
    /// A file of API keys, one a line, that only its owner may use. Without one everybody may ask.
    pub api_key_file: Option<PathBuf>,
    /// Where systemd wants to hear: `$NOTIFY_SOCKET`.
    pub notify_socket: Option<OsString>,
    /// Whether each request is told on standard error, without what it asks.
    pub log: bool,
    /// Longest time to finish what runs once the server is told to end.
    pub drain: Duration,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The engine refuses the options or cannot start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The session bank cannot be opened.
    #[error(transparent)]
    Bank(#[from] BankError),
    /// A file of the checkpoint is wrong.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The key file cannot be used.
    #[error("API keys: {0}")]
    Keys(io::Error),
    /// No address, no connections.
    #[error("serving failed: {0}")]
    Io(#[from] io::Error),
}

/// A server that is ready to run.
pub struct Server {
    app: Arc<App>,
    notify_socket: Option<OsString>,
    drain: Duration,
    warnings: Vec<String>,
}

impl Server {
    /// Makes a server for a loaded model.
    ///
    /// # Errors
    /// When an option is out of bounds, the tokenizer or the key file cannot be used, or there is no thread for the
    /// engine. That a model has no chat template is an error of the requests that need one.
    pub fn new(
        model: Arc<Model>,
        cpu: Cpu,
        checkpoint: &Checkpoint,
        options: Options,
    ) -> Result<Self, ServeError> {
        let tokenizer = samebit_engine::tokenizer(checkpoint)?;
        let template =
            samebit_engine::chat_template(checkpoint, &tokenizer).map_err(|error| error.to_string());
        let kv = options.scheduler.kv;
        let program = Program::new(&cpu, kv, options.weights, &options.scheduler.seed_salt);
        let memory = MemoryPlan::of(&model, kv, options.scheduler.state_bytes);
        let weights_digest = &program.weights_digest;
        let open = |options| Bank::open(options, weights_digest, model.state_decoder(kv));
        let bank = options.bank.map(open).transpose()?;
        let format = template.as_ref().map_or_else(
            |_| ReplyFormat::default(),
            |template| ReplyFormat::detect(template.text(), |text| tokenizer.special_id(text).is_some()),
        );
        let compiler = ConstraintCompiler::new(&tokenizer, model.info().vocabulary);
        let mut warnings = Vec::new();
        if let Err(problem) = &template {
            warnings.push(format!("conversations will be refused: {problem}"));
        }
        let parts = Parts {
            names: options.names,
            memory,
            tokenizer,
            template,
            defaults: Defaults::of(checkpoint)?,
            format,
            compiler: compiler.map_err(|error| error.to_string()),
            keys: options.api_key_file.map(Keys::open).transpose().map_err(ServeError::Keys)?,
            most_waiting: options.scheduler.max_waiting,
            most_running: options.scheduler.max_running,
            service: Service::start(Scheduler::new(Arc::clone(&model), cpu, options.scheduler, bank)?)?,
            model,
            program,
            log: options.log,
        };
        Ok(Self {
            app: Arc::new(App::new(parts)),
            notify_socket: options.notify_socket,
            drain: options.drain,
            warnings,
        })
    }

    /// What whoever starts it should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The longest sequence, prompt and answer together, that requests may have.
    pub fn most_tokens(&self) -> usize {
        self.app.most_tokens()
    }

    /// Tells what runs and waits, while the server runs elsewhere.
    pub fn load(&self) -> impl Fn() -> Load + Send + Sync + 'static {
        let app = Arc::clone(&self.app);
        move || app.service.load()
    }

    /// Reads the key file again, whether or not it changed. What is wrong with it is told on standard error.
    pub fn reload_keys(&self) -> impl Fn() + Send + Sync + 'static {
        let app = Arc::clone(&self.app);
        move || {
            let result = app.keys.as_ref().map_or(Ok(()), |keys| keys.refresh(true));
            if let Err(error) = result {
                outer::log(format_args!("the keys read before stay valid: {error}"));
            }
        }
    }

    /// Answers until `stop` is ready. Then new requests are refused, what runs is finished, and the function returns.
    ///
    /// # Errors
    /// When connections cannot be accepted.
    pub async fn run(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServeError> {
        let Self { app, notify_socket, drain, .. } = self;
        let tell = move |state: &str| {
            if let Some(socket) = &notify_socket
                && let Err(error) = notify::notify(socket, state)
            {
                outer::log(format_args!("systemd cannot be told {state}: {error}"));
            }
        };
        tell("READY=1");
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let stopping = Arc::clone(&app);
        let drained = async move {
            stop.await;
            stopping.drain();
            tell("STOPPING=1");
            // Dropping what still runs after this time cancels it.
            let _ = tokio::time::timeout(drain, stopping.idle()).await;
            let _ = end.send(());
        };
        let serving = axum::serve(listener, router(&app)).with_graceful_shutdown(drained);
        tokio::select! {
            result = serving => result?,
            () = async { let _ = ended.await; tokio::time::sleep(CLOSING).await } => {}
        }
        // The engine's thread is joined, which may take a forward pass.
        let _ = tokio::task::spawn_blocking(move || app.service.drain()).await;
        Ok(())
    }
}

fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(openai::chat::create))
        .route("/v1/completions", post(openai::completions::create))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/v1/messages", post(anthropic::create))
        .route("/v1/messages/count_tokens", post(anthropic::count))
        .route("/v1/models", get(about::models))
        .route("/v1/models/{*id}", get(about::model))
        .route("/v1/receipts/{id}", get(about::receipt))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/health", get(about::health))
        .route("/livez", get(about::live))
        .route("/readyz", get(about::ready))
        .route("/version", get(about::version))
        .route("/metrics", get(about::metrics))
        .fallback(about::nowhere)
        .method_not_allowed_fallback(about::other_method)
        // Bodies are bounded where they are read.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(outer::panicked))
        .layer(from_fn_with_state(Arc::clone(app), outer::surround))
        .with_state(Arc::clone(app))
}
