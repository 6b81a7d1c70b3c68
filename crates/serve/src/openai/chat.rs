//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};

use super::script::{Completion, Kind};
use crate::answer::Answers;
use crate::ask::prompt::{Conversation, variables};
use crate::ask::{Ask, common, demand, messages, tools};
use crate::error::ApiError;
use crate::http::{body, stream};
use crate::state::App;

/// Answers a conversation.
pub(crate) async fn create(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body).await?;
    common::model(&mut fields, &app)?;
    let (streams, tells_usage) = common::streaming(&mut fields)?;
    let messages = messages::messages(&mut fields, "messages")?;
    let variables = variables(&mut fields)?;
    let tools = tools::read(&mut fields, &app.format)?;
    let spec = demand::read(&mut fields, "response_format")?;
    let log_probabilities = common::log_probabilities(&mut fields)?;
    let mut manner = common::manner(&mut fields, &app, &["max_completion_tokens", "max_tokens"])?;
    only_text(&mut fields)?;
    fields.finish()?;

    manner.log_probabilities = log_probabilities;
    let demanded = tools.demand.clone().or(spec);
    let conversation = Conversation { messages, variables, tools, add_generation_prompt: true };
    let (prompt, reading) = conversation.render(&app).await?;
    manner.constraint = demand::compile(&app, demanded).await?;
    let ask = Ask { prompts: vec![prompt], manner, reading };
    ask.check_demand()?;
    let completion = Completion::new(Kind::Chat, &app, 1, ask.manner.choices, tells_usage);
    let answers = Answers::begin(&app, &ask).map_err(|error| error.about("messages"))?;
    if streams {
        return Ok(stream::respond(answers.opened().await?, completion));
    }
    let told = answers.all().await?;
    Ok(Json(completion.whole(&told)).into_response())
}

/// `modalities`: text and nothing else.
fn only_text(fields: &mut crate::fields::Fields) -> Result<(), ApiError> {
    match fields.list("modalities", 8)? {
        Some(kinds) if kinds.iter().any(|kind| kind != "text") => {
            Err(ApiError::unsupported("modalities", ": expected [\"text\"]"))
        }
        _ => Ok(()),
    }
}
