//! From conversations and texts to token ids.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use samebit_engine::EngineError;
use samebit_text::{ChatRequest, CivilTime, Special};
use serde_json::{Map, Value};

use super::tools::Tools;
use crate::answer::Reading;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::state::App;

/// A conversation to render.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    /// The messages, as templates read them.
    pub(crate) messages: Vec<Value>,
    /// Further variables of the template.
    pub(crate) variables: Map<String, Value>,
    /// The tools offered.
    pub(crate) tools: Tools,
    /// Whether the prompt ends where the answer begins.
    pub(crate) add_generation_prompt: bool,
}

/// Reads `chat_template_kwargs`. What the server itself says about the conversation cannot be overridden there.
pub(crate) fn variables(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let Some(variables) = fields.object("chat_template_kwargs")? else { return Ok(Map::new()) };
    for name in ["messages", "tools", "documents", "add_generation_prompt"] {
        if variables.has(name) {
            return Err(ApiError::field(variables.path(name), "has a field of its own in the request"));
        }
    }
    Ok(variables.remaining())
}

impl Conversation {
    /// The ids of the conversation, and how its answer is taken apart. Rendering and splitting long texts takes a while, so it happens on a thread for such
    /// work.
    pub(crate) async fn render(self, app: &Arc<App>) -> Result<(Vec<u32>, Reading), ApiError> {
        let app = Arc::clone(app);
        off_the_reactor(move || {
            let template = app.template.as_ref().map_err(|problem| ApiError::request(problem.clone()))?;
            let request = ChatRequest {
                messages: &self.messages,
                tools: self.tools.rendered.as_ref(),
                documents: None,
                add_generation_prompt: self.add_generation_prompt,
                variables: &self.variables,
                now: now(),
            };
            let text = template.render(&request).map_err(EngineError::from)?;
            let starts_in_reasoning = app.format.starts_in_reasoning(&text);
            let reading = Reading { format: app.format, starts_in_reasoning, tools: self.tools.definitions };
            Ok((app.tokenizer.encode(&text, Special::Parse).map_err(EngineError::from)?, reading))
        })
        .await
    }
}

/// The ids of a text to be continued, with BOS where the model wants it.
pub(crate) async fn text_ids(app: &Arc<App>, text: String, with_bos: bool) -> Result<Vec<u32>, ApiError> {
    let app = Arc::clone(app);
    off_the_reactor(move || {
        let ids = match with_bos {
            true => app.tokenizer.encode_with_bos(&text, Special::Parse),
            false => app.tokenizer.encode(&text, Special::Parse),
        };
        Ok(ids.map_err(EngineError::from)?)
    })
    .await
}

/// Runs work that takes long on a thread for it. A panic there is an error here.
pub(crate) async fn off_the_reactor<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::internal("an error in samebit itself: preparing the prompt panicked")),
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The present in UTC, for templates that name the date.
fn now() -> CivilTime {
    CivilTime::from_unix_seconds(i64::try_from(unix_seconds()).unwrap_or(i64::MAX))
}
