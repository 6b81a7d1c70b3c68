//! Why a request is not answered, in the words and envelopes that clients know.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use samebit_engine::EngineError;
use serde_json::{Value, json};

/// Seconds after which a client that was turned away should ask again.
const RETRY_AFTER: u32 = 2;

/// A refusal or failure. As a response it has OpenAI's envelope; routes of Anthropic's API exchange it for theirs
/// ([`ApiError::anthropic`]).
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
}

impl ApiError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: None, param: None, message: message.into() }
    }

    /// The request as a whole is wrong.
    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// One field is wrong: `problem` says how, and what was expected.
    pub(crate) fn field(param: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        let param = param.into();
        let message = format!("{param}: {problem}");
        Self { param: Some(param), ..Self::request(message) }
    }

    /// A field that the answer would depend on, which samebit does not have.
    pub(crate) fn unsupported(param: impl Into<String>, hint: &str) -> Self {
        let field = Self::field(param, format_args!("not supported, so the request is refused{hint}"));
        Self { code: Some("unsupported_parameter"), ..field }
    }

    /// There is no such thing.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { code: Some("not_found"), ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// Another model is served.
    pub(crate) fn other_model(asked: &str, served: &str) -> Self {
        let message = format!("the model {asked:?} is not served here: this server has {served:?}");
        Self {
            code: Some("model_not_found"),
            param: Some("model".to_owned()),
            ..Self::new(StatusCode::NOT_FOUND, message)
        }
    }

    /// The route exists, with another method.
    pub(crate) fn method() -> Self {
        Self {
            code: Some("method_not_allowed"),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "this route does not know this method")
        }
    }

    /// The body is longer than `most` bytes.
    pub(crate) fn too_large(most: usize) -> Self {
        let message = format!("the body is longer than {most} bytes");
        Self { code: Some("request_too_large"), ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, message) }
    }

    /// No key, or a wrong one.
    pub(crate) fn key() -> Self {
        let message = "this server wants an API key: `Authorization: Bearer KEY` or `x-api-key: KEY`";
        Self { code: Some("invalid_api_key"), ..Self::new(StatusCode::UNAUTHORIZED, message) }
    }

    /// Not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: Some("server_busy"), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// A fault of this side.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { code: Some("internal_error"), ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::SERVICE_UNAVAILABLE => "service_unavailable_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// OpenAI's envelope.
    pub(crate) fn body(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        }})
    }

    /// Anthropic's envelope.
    pub(crate) fn anthropic_body(&self) -> Value {
        json!({ "type": "error", "error": { "type": self.anthropic_kind(), "message": self.message } })
    }

    /// As a response with Anthropic's envelope.
    pub(crate) fn anthropic(&self) -> Response {
        self.respond(self.anthropic_body())
    }

    fn respond(&self, body: Value) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.respond(self.body());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            // The command line's names have hyphens, the fields of a request underscores.
            EngineError::Option { option, .. } => {
                Self { param: Some(option.replace('-', "_")), ..Self::request(message) }
            }
            EngineError::Context { .. } | EngineError::Memory { .. } => {
                Self { code: Some("context_length_exceeded"), ..Self::request(message) }
            }
            EngineError::EmptyPrompt
            | EngineError::PromptToken { .. }
            | EngineError::Template(_)
            | EngineError::Tokenizer(_) => Self::request(message),
            EngineError::Busy { .. } | EngineError::ShutDown(_) => Self::unavailable(message),
            _ => Self::internal(message),
        }
    }
}

impl ApiError {
    /// The same, said of a field where no other is named.
    pub(crate) fn about(mut self, param: &str) -> Self {
        self.param.get_or_insert_with(|| param.to_owned());
        self
    }
}
