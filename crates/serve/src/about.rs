//! Routes that tell what the server is and how it is.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use samebit_arith::KvPage;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::metrics::About;
use crate::state::App;

/// `GET /health`: whether it works. With keys configured that is all; else what it is doing as well.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let trouble = app.trouble();
    let status = if trouble.is_some() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let mut body = json!({ "status": if trouble.is_some() { "failing" } else { "ok" } });
    if app.keys.is_none() {
        let load = app.service.load();
        body["trouble"] = json!(trouble);
        body["draining"] = json!(app.is_draining());
        body["running"] = json!(load.running);
        body["waiting"] = json!(load.waiting);
        body["context"] = json!(app.most_tokens());
    }
    (status, Json(body)).into_response()
}

/// `GET /livez`: 503 when only a restart helps.
pub(crate) async fn live(State(app): State<Arc<App>>) -> Response {
    probe(app.trouble())
}

/// `GET /readyz`: whether to send requests here.
pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response {
    probe(app.trouble().or_else(|| app.is_draining().then(|| "about to end".to_owned())))
}

fn probe(trouble: Option<String>) -> Response {
    match trouble {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// `GET /version`.
pub(crate) async fn version(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "version": app.program.version, "plan_id": app.program.plan_id }))
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let block_size = KvPage::POSITIONS;
    let load = app.service.load();
    let program = &app.program;
    let about = About {
        model: app.name(),
        load,
        block_size,
        blocks: load.most_state_bytes / app.memory.bytes_for(1).max(1),
        info: &[
            ("version", program.version),
            ("plan_id", &program.plan_id),
            ("weights_digest", &program.weights_digest),
        ],
    };
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, app.metrics.text(&about)).into_response()
}

/// `GET /v1/models`.
pub(crate) async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = app.names.iter().map(|name| card(&app, name)).collect();
    Json(json!({ "object": "list", "data": models }))
}

/// `GET /v1/models/{id}`; ids may hold slashes.
pub(crate) async fn model(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    match app.serves(&id) {
        true => Ok(Json(card(&app, &id))),
        false => Err(ApiError::other_model(&id, app.name())),
    }
}

/// The longest sequence that fits, and what makes its answers the same as another server's.
fn card(app: &App, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": app.since,
        "owned_by": "samebit",
        "root": app.name(),
        "max_model_len": app.most_tokens(),
        "context_length": app.most_tokens(),
        "status": if app.is_draining() { "draining" } else { "ready" },
        "plan_id": app.program.plan_id,
        "weights_digest": app.program.weights_digest,
        "default_temperature": app.defaults.sampling.temperature,
    })
}

/// `GET /v1/receipts/{id}`.
pub(crate) async fn receipt(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    match app.receipts.get(&id) {
        Some(receipt) => {
            Ok(([(header::CONTENT_TYPE, "application/json")], receipt.to_string()).into_response())
        }
        None => Err(ApiError::not_found("there is no such receipt, or no longer: the oldest are dropped")),
    }
}

/// For paths that are none.
pub(crate) async fn nowhere() -> ApiError {
    ApiError::not_found("there is no such route")
}

/// For methods that a route does not know.
pub(crate) async fn other_method() -> ApiError {
    ApiError::method()
}
