//! `/tokenize` and `/detokenize`, in vLLM's shapes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Json;
use samebit_engine::EngineError;
use serde_json::{Value, json};

use crate::ask::messages::{LONGEST_TEXT, messages};
use crate::ask::prompt::{Conversation, off_the_reactor, text_ids, variables};
use crate::ask::{common, tools};
use crate::error::ApiError;
use crate::http::body;
use crate::openai::completions::token_ids;
use crate::state::App;

/// Most ids of one request.
const MOST_IDS: usize = 1 << 22;

/// `POST /tokenize`: a text, or a conversation; the ids are those that would be run.
pub(crate) async fn tokenize(State(app): State<Arc<App>>, body: Body) -> Result<Json<Value>, ApiError> {
    let mut fields = body::fields(body).await?;
    common::model(&mut fields, &app)?;
    let tells_texts = fields.flag("return_token_strs")?.unwrap_or(false);
    let ids = if fields.has("messages") {
        let messages = messages(&mut fields, "messages")?;
        let variables = variables(&mut fields)?;
        let tools = tools::read(&mut fields, &app.format)?;
        let add_generation_prompt = fields.flag("add_generation_prompt")?.unwrap_or(true);
        fields.unsupported(&["add_special_tokens", "continue_final_message"])?;
        fields.finish()?;
        Conversation { messages, variables, tools, add_generation_prompt }.render(&app).await?.0
    } else {
        let text = fields.required_text("prompt", LONGEST_TEXT)?;
        let with_bos = fields.flag("add_special_tokens")?.unwrap_or(true);
        fields.finish()?;
        text_ids(&app, text, with_bos).await?
    };
    let texts = tells_texts.then(|| ids.iter().map(|id| text_of(&app, *id)).collect::<Vec<_>>());
    Ok(Json(json!({
        "count": ids.len(),
        "max_model_len": app.most_tokens(),
        "tokens": ids,
        "token_strs": texts,
    })))
}

fn text_of(app: &App, id: u32) -> String {
    app.tokenizer
        .token_bytes(id)
        .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Result<Json<Value>, ApiError> {
    let mut fields = body::fields(body).await?;
    common::model(&mut fields, &app)?;
    let values = fields.list("tokens", MOST_IDS)?.ok_or_else(|| fields.missing("tokens"))?;
    fields.finish()?;
    let ids = token_ids("tokens", values)?;
    let text =
        off_the_reactor(move || Ok(app.tokenizer.decode(&ids, false).map_err(EngineError::from)?)).await?;
    Ok(Json(json!({ "prompt": text })))
}
