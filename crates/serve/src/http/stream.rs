//! Answers as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use samebit_text::ReplyPart;

use crate::answer::{Answers, Step, TokenProbability, Told};
use crate::error::ApiError;

/// How often a comment is sent while nothing else is, so that nobody on the way hangs up.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How an API writes an answer as events.
pub(crate) trait Script: Send + Unpin + 'static {
    /// Before anything of the answer is there.
    fn start(&mut self) -> Vec<Event>;
    /// More of a choice, with the probabilities of the tokens since its last part, if they are wanted.
    fn part(&mut self, choice: usize, part: &ReplyPart, probabilities: &[TokenProbability]) -> Vec<Event>;
    /// A choice is complete.
    fn done(&mut self, told: Told) -> Vec<Event>;
    /// All choices are complete.
    fn end(&mut self) -> Vec<Event>;
    /// The answer failed; nothing follows.
    fn fail(&mut self, error: &ApiError) -> Vec<Event>;
}

/// An event without a name.
pub(crate) fn event(data: &serde_json::Value) -> Event {
    Event::default().data(data.to_string())
}

/// An event with a name.
pub(crate) fn named(name: &str, data: &serde_json::Value) -> Event {
    Event::default().event(name).data(data.to_string())
}

struct Feed<S> {
    answers: Option<Answers>,
    script: S,
    ready: VecDeque<Event>,
}

impl<S: Script> Stream for Feed<S> {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let feed = &mut *self;
        loop {
            if let Some(event) = feed.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            let Some(answers) = &mut feed.answers else { return Poll::Ready(None) };
            let events = match answers.poll_step(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Step::Part(choice, part, probabilities)))) => {
                    feed.script.part(choice, &part, &probabilities)
                }
                Poll::Ready(Some(Ok(Step::Done(told)))) => feed.script.done(*told),
                Poll::Ready(Some(Err(error))) => {
                    feed.answers = None;
                    feed.script.fail(&error)
                }
                Poll::Ready(None) => {
                    feed.answers = None;
                    feed.script.end()
                }
            };
            feed.ready.extend(events);
        }
    }
}

/// The response that tells `answers` as `script` writes them.
pub(crate) fn respond<S: Script>(answers: Answers, mut script: S) -> Response {
    let ready = script.start().into();
    let feed = Feed { answers: Some(answers), script, ready };
    let mut response = Sse::new(feed).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies such as nginx otherwise collect the events before they pass them on.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
