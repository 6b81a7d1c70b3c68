//! Answers on their way from the engine to whoever asked.

mod client;
mod told;

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use samebit_engine::{Request, Submission};
use samebit_text::ReplyPart;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(crate) use client::{Reading, TokenProbability};
pub(crate) use told::{Said, Told, usage_of};

use crate::ask::Ask;
use crate::error::ApiError;
use crate::state::{Admission, App};
use client::{Listener, News, What};

/// How long a stream waits for word from the engine before it opens. What the engine refuses comes within one step, and
/// is then still told by status and not within the stream.
const BEFORE_OPENING: Duration = Duration::from_secs(2);

/// The answers to one request. Dropping it cancels what still runs.
pub(crate) struct Answers {
    app: Arc<App>,
    requests: Vec<Request>,
    /// What was said of each choice so far.
    said: Vec<Said>,
    /// Probabilities that no step has told yet, of each choice.
    probabilities: Vec<Vec<TokenProbability>>,
    news: UnboundedReceiver<News>,
    /// News that came before the stream was opened.
    early: Option<News>,
    unfinished: usize,
    /// Keeps the server from ending before the answers do.
    _admission: Admission,
}

/// One step of some choice.
pub(crate) enum Step {
    /// More of a choice, with the probabilities of the tokens since its last step.
    Part(usize, ReplyPart, Vec<TokenProbability>),
    /// A choice is complete.
    Done(Box<Told>),
}

impl Answers {
    /// Asks the engine.
    ///
    /// # Errors
    /// Everything that is known to be wrong before anything is queued.
    pub(crate) fn begin(app: &Arc<App>, ask: &Ask) -> Result<Self, ApiError> {
        let admission = app.admit()?;
        let requests = ask.requests(app)?;
        let (sender, news) = unbounded_channel();
        for (choice, request) in requests.iter().enumerate() {
            let listener = Listener::new(
                choice,
                &app.tokenizer,
                &ask.manner.stops,
                &ask.reading,
                sender.clone(),
                Arc::clone(&app.metrics),
            )?;
            app.service.submit(Submission {
                request: request.clone(),
                priority: ask.manner.priority,
                cache_salt: ask.manner.cache_salt.clone(),
                client: Box::new(listener),
            });
        }
        Ok(Self {
            app: Arc::clone(app),
            said: vec![Said::default(); requests.len()],
            probabilities: vec![Vec::new(); requests.len()],
            unfinished: requests.len(),
            requests,
            news,
            early: None,
            _admission: admission,
        })
    }

    /// Waits a moment for the engine to refuse.
    ///
    /// # Errors
    /// What the engine refuses.
    pub(crate) async fn opened(mut self) -> Result<Self, ApiError> {
        if let Ok(Some(news)) = tokio::time::timeout(BEFORE_OPENING, self.news.recv()).await {
            if let What::Ended(ended) = news.what {
                let ending = (*ended)?;
                self.early = Some(News { choice: news.choice, what: What::Ended(Box::new(Ok(ending))) });
            } else {
                self.early = Some(news);
            }
        }
        Ok(self)
    }

    /// The next step; `None` when all choices are complete.
    ///
    /// # Errors
    /// When the engine fails; the request is then over.
    pub(crate) fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Step, ApiError>>> {
        loop {
            if self.unfinished == 0 {
                return Poll::Ready(None);
            }
            let news = match self.early.take() {
                Some(news) => news,
                None => match self.news.poll_recv(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(news)) => news,
                    Poll::Ready(None) => {
                        self.unfinished = 0;
                        return Poll::Ready(Some(Err(ApiError::internal("the engine fell silent"))));
                    }
                },
            };
            if let Some(step) = self.step(news) {
                return Poll::Ready(Some(step));
            }
        }
    }

    fn step(&mut self, news: News) -> Option<Result<Step, ApiError>> {
        match news.what {
            What::Begun => None,
            What::Probability(probability) => {
                self.probabilities[news.choice].push(*probability);
                None
            }
            What::Part(part) => {
                self.said[news.choice].add(&part);
                let probabilities = std::mem::take(&mut self.probabilities[news.choice]);
                Some(Ok(Step::Part(news.choice, part, probabilities)))
            }
            What::Ended(ended) => match *ended {
                Err(error) => {
                    self.unfinished = 0;
                    Some(Err(error.into()))
                }
                Ok(ending) => {
                    self.unfinished -= 1;
                    let said = std::mem::take(&mut self.said[news.choice]);
                    let request = &self.requests[news.choice];
                    let mut told = Told::new(&self.app, news.choice, request, ending, said);
                    told.probabilities = std::mem::take(&mut self.probabilities[news.choice]);
                    Some(Ok(Step::Done(Box::new(told))))
                }
            },
        }
    }

    /// All choices, complete, in order.
    ///
    /// # Errors
    /// When the engine refuses or fails.
    pub(crate) async fn all(mut self) -> Result<Vec<Told>, ApiError> {
        let mut told = Vec::with_capacity(self.requests.len());
        let mut before: Vec<Vec<TokenProbability>> = vec![Vec::new(); self.requests.len()];
        while let Some(step) = std::future::poll_fn(|context| self.poll_step(context)).await {
            match step? {
                Step::Part(choice, _, probabilities) => before[choice].extend(probabilities),
                Step::Done(mut done) => {
                    let mut probabilities = std::mem::take(&mut before[done.choice]);
                    probabilities.append(&mut done.probabilities);
                    done.probabilities = probabilities;
                    told.push(*done);
                }
            }
        }
        told.sort_by_key(|choice| choice.choice);
        Ok(told)
    }
}
