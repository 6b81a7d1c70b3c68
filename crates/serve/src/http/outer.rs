//! What surrounds every request: its id, keys, the envelope of its API, panics, and a line in the log.

use std::any::Any;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::id;
use crate::state::App;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is taken over from a client.
const LONGEST_ID: usize = 128;

/// Routes that are open to everyone: they tell nothing of what is asked.
const OPEN: [&str; 6] = ["/", "/health", "/livez", "/readyz", "/metrics", "/version"];

/// The layer around all routes.
pub(crate) async fn surround(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let since = Instant::now();
    let id = request_id(&request);
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = match admitted(&app, &request, &path) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    if path.starts_with("/v1/messages")
        && let Some(error) = response.extensions().get::<ApiError>()
    {
        response = error.anthropic();
    }
    if app.log {
        let (status, milliseconds) = (response.status().as_u16(), since.elapsed().as_millis());
        let id = id.to_str().unwrap_or_default();
        // Neither queries, headers nor bodies are told: they may hold keys or what people ask.
        log(format_args!("{method} {path} {status} {milliseconds} ms, request {id}"));
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn admitted(app: &App, request: &Request, path: &str) -> Result<(), ApiError> {
    let Some(keys) = app.keys.as_ref().filter(|_| !OPEN.contains(&path)) else { return Ok(()) };
    if let Err(error) = keys.refresh(false) {
        log(format_args!("the keys read before stay valid: {error}"));
    }
    if keys.admit(request.headers()) { Ok(()) } else { Err(ApiError::key()) }
}

/// The client's id if it is a short plain word, else a new one.
fn request_id(request: &Request) -> HeaderValue {
    let plain = |value: &&HeaderValue| {
        (1..=LONGEST_ID).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    let given = request.headers().get(REQUEST_ID).filter(plain).cloned();
    given.unwrap_or_else(|| HeaderValue::from_str(&id::new("req")).unwrap_or(HeaderValue::from_static("req")))
}

/// What a panic becomes.
#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over")]
pub(crate) fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown");
    log(format_args!("a request ended with an error in samebit itself: {text}"));
    ApiError::internal("an error in samebit itself; the server's log has more").into_response()
}

/// A line on standard error. That nobody can read it there changes nothing.
pub(crate) fn log(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
