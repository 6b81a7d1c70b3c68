//! Anthropic's API: `POST /v1/messages` and `POST /v1/messages/count_tokens`.

mod conversation;
mod script;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};

use crate::answer::Answers;
use crate::ask::{Ask, common, demand, prompt, tools};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::http::{body, stream};
use crate::state::App;
use script::Message;

/// Answers a conversation.
pub(crate) async fn create(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body).await?;
    let conversation = conversation(&mut fields, &app)?;
    let demanded = conversation.tools.demand.clone();
    let streams = fields.flag("stream")?.unwrap_or(false);
    let stops = common::stops(&mut fields, "stop_sequences")?;
    let mut manner = common::manner(&mut fields, &app, &["max_tokens"])?;
    fields.finish()?;
    if manner.max_tokens.is_none() {
        return Err(ApiError::field("max_tokens", "missing"));
    }
    if manner.choices != 1 {
        return Err(ApiError::unsupported("n", ""));
    }
    manner.stops.extend(stops);
    let (prompt, reading) = conversation.render(&app).await?;
    manner.constraint = demand::compile(&app, demanded).await?;
    let ask = Ask { prompts: vec![prompt], manner, reading };
    ask.check_demand()?;
    let message = Message::new(app.name(), ask.prompts[0].len());
    let answers = Answers::begin(&app, &ask)?;
    if streams {
        return Ok(stream::respond(answers.opened().await?, message));
    }
    let told = answers.all().await?;
    match told.first() {
        Some(told) => Ok(Json(message.whole(told)).into_response()),
        None => Err(ApiError::internal("there is no answer")),
    }
}

/// Counts the tokens of a conversation.
pub(crate) async fn count(State(app): State<Arc<App>>, body: Body) -> Result<Json<Value>, ApiError> {
    let mut fields = body::fields(body).await?;
    let conversation = conversation(&mut fields, &app)?;
    fields.finish()?;
    Ok(Json(json!({ "input_tokens": conversation.render(&app).await?.0.len() })))
}

/// What both routes read: the model, the messages, and what changes their rendering.
fn conversation(fields: &mut Fields, app: &App) -> Result<prompt::Conversation, ApiError> {
    common::model(fields, app)?;
    let messages = conversation::messages(fields)?;
    let variables = prompt::variables(fields)?;
    let tools = tools::read(fields, &app.format)?;
    no_thinking(fields)?;
    fields.unsupported(&["mcp_servers", "container", "context_management", "output_config"])?;
    Ok(prompt::Conversation { messages, variables, tools, add_generation_prompt: true })
}

/// `thinking`: templates that know it are told through `chat_template_kwargs`.
fn no_thinking(fields: &mut Fields) -> Result<(), ApiError> {
    let Some(mut thinking) = fields.object("thinking")? else { return Ok(()) };
    match thinking.required_text("type", common::LONGEST_NAME)?.as_str() {
        "disabled" => thinking.finish(),
        _ => Err(ApiError::unsupported(
            "thinking",
            ": use chat_template_kwargs, such as {\"enable_thinking\": true}",
        )),
    }
}
