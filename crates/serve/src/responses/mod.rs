//! OpenAI's Responses API: `POST /v1/responses`, and `GET` and `DELETE /v1/responses/{id}`.
//!
//! A response is kept, with its conversation, unless `store` is false; the oldest are dropped. `previous_response_id`
//! continues one that is still there.

mod input;
mod items;
mod script;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Map, Value, json};

use crate::answer::Answers;
use crate::ask::common::LONGEST_NAME;
use crate::ask::messages::LONGEST_TEXT;
use crate::ask::prompt::{Conversation, variables};
use crate::ask::{Ask, common, demand, tools};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::http::{body, stream};
use crate::state::{App, StoredResponse};
use script::Script;

/// Answers an input.
pub(crate) async fn create(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body).await?;
    common::model(&mut fields, &app)?;
    let (streams, _) = common::streaming(&mut fields)?;
    let instructions = fields.text("instructions", LONGEST_TEXT)?;
    let previous_id = fields.text("previous_response_id", LONGEST_NAME)?;
    let input = input::messages(&mut fields)?;
    let keeps = fields.flag("store")?.unwrap_or(true);
    let metadata = fields.object("metadata")?.map_or_else(Map::new, Fields::remaining);
    let variables = variables(&mut fields)?;
    let choice = fields.peek("tool_choice").cloned().unwrap_or_else(|| json!("auto"));
    let parallel = fields.peek("parallel_tool_calls").cloned().unwrap_or(Value::Bool(true));
    let offered = fields.peek("tools").cloned().unwrap_or_else(|| json!([]));
    let tools = tools::read(&mut fields, &app.format)?;
    never_truncated(&mut fields)?;
    let mut spec = None;
    if let Some(mut text) = fields.object("text")? {
        spec = demand::read(&mut text, "format")?;
        text.unsupported(&["verbosity"])?;
        text.finish()?;
    }
    if let Some(mut reasoning) = fields.object("reasoning")? {
        reasoning.unsupported(&["effort", "summary", "generate_summary"])?;
        reasoning.finish()?;
    }
    fields.unsupported(&["background", "conversation", "prompt", "max_tool_calls"])?;
    let mut manner = common::manner(&mut fields, &app, &["max_output_tokens"])?;
    fields.finish()?;
    if manner.choices != 1 {
        return Err(ApiError::unsupported("n", ""));
    }

    // Instructions hold for one response and are not carried on.
    let mut turns = previous(&app, previous_id.as_deref())?;
    turns.extend(input);
    let system = instructions.as_ref().map(|text| json!({ "role": "system", "content": text }));
    let messages: Vec<Value> = system.into_iter().chain(turns.iter().cloned()).collect();
    let demanded = tools.demand.clone().or(spec);
    let conversation = Conversation { messages, variables, tools, add_generation_prompt: true };
    let sampling = manner.sampling.clone();
    let (prompt, reading) = conversation.render(&app).await?;
    manner.constraint = demand::compile(&app, demanded).await?;
    let ask = Ask { prompts: vec![prompt], manner, reading };
    ask.check_demand()?;
    let given = json!({
        "instructions": instructions,
        "max_output_tokens": ask.manner.max_tokens,
        "metadata": metadata,
        "previous_response_id": previous_id,
        "store": keeps,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "tools": offered,
        "tool_choice": choice,
        "parallel_tool_calls": parallel,
    });
    let script = Script::new(Arc::clone(&app), given, keeps.then_some(turns));
    let answers = Answers::begin(&app, &ask).map_err(|error| error.about("input"))?;
    if streams {
        return Ok(stream::respond(answers.opened().await?, script));
    }
    let told = answers.all().await?;
    match told.into_iter().next() {
        Some(told) => Ok(Json(script.whole(told)).into_response()),
        None => Err(ApiError::internal("there is no answer")),
    }
}

fn previous(app: &App, id: Option<&str>) -> Result<Vec<Value>, ApiError> {
    let Some(id) = id else { return Ok(Vec::new()) };
    let stored = app.responses.get(id).ok_or_else(|| missing().about("previous_response_id"))?;
    Ok(stored.messages.clone())
}

fn missing() -> ApiError {
    ApiError::not_found(
        "there is no such response, or no longer: it was not stored, or the oldest were dropped",
    )
}

/// `truncation`: nothing is ever cut off.
fn never_truncated(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.text("truncation", LONGEST_NAME)?.as_deref() {
        None | Some("disabled") => Ok(()),
        Some(_) => {
            Err(ApiError::unsupported("truncation", ": nothing is cut off here, expected \"disabled\""))
        }
    }
}

/// A stored response.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let stored: Arc<StoredResponse> = app.responses.get(&id).ok_or_else(missing)?;
    Ok(Json(stored.response.clone()))
}

/// Forgets a stored response.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    match app.responses.remove(&id) {
        true => Ok(Json(json!({ "id": id, "object": "response", "deleted": true }))),
        false => Err(missing()),
    }
}
