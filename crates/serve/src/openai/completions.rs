//! `POST /v1/completions`: a text, or ids, to be continued.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use samebit_arith::likelihood::MAX_TOP;
use serde_json::Value;

use super::script::{Completion, Kind};
use crate::answer::{Answers, Reading};
use crate::ask::{Ask, MOST_CHOICES, common, demand, prompt};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::http::{body, stream};
use crate::state::App;

/// Continues prompts.
pub(crate) async fn create(State(app): State<Arc<App>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body).await?;
    common::model(&mut fields, &app)?;
    let (streams, tells_usage) = common::streaming(&mut fields)?;
    let prompts = prompts(&mut fields)?;
    let with_bos = fields.flag("add_special_tokens")?.unwrap_or(true);
    let log_probabilities = fields.whole("logprobs", 0..=MAX_TOP as u64)?;
    fields.unsupported(&["echo", "suffix"])?;
    let spec = demand::read(&mut fields, "response_format")?;
    let mut manner = common::manner(&mut fields, &app, &["max_tokens"])?;
    if fields.whole("best_of", 1..=MOST_CHOICES as u64)?.is_some_and(|best| best != manner.choices as u64) {
        return Err(ApiError::unsupported("best_of", ": expected the same as n"));
    }
    fields.finish()?;

    let mut ids = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        ids.push(match prompt {
            Prompt::Ids(ids) => ids,
            Prompt::Text(text) => prompt::text_ids(&app, text, with_bos).await?,
        });
    }
    manner.log_probabilities = log_probabilities.map(|top| top as usize);
    manner.constraint = demand::compile(&app, spec).await?;
    let ask = Ask { prompts: ids, manner, reading: Reading::default() };
    let completion = Completion::new(Kind::Text, &app, ask.prompts.len(), ask.manner.choices, tells_usage);
    let answers = Answers::begin(&app, &ask).map_err(|error| error.about("prompt"))?;
    if streams {
        return Ok(stream::respond(answers.opened().await?, completion));
    }
    let told = answers.all().await?;
    Ok(Json(completion.whole(&told)).into_response())
}

enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

/// `prompt`: a text, a list of texts, a list of ids, or a list of such lists.
fn prompts(fields: &mut Fields) -> Result<Vec<Prompt>, ApiError> {
    let expected = "a text, a list of texts, a list of token ids, or a list of lists of token ids";
    let value = fields.take("prompt").ok_or_else(|| fields.missing("prompt"))?;
    let prompts = match value {
        Value::String(text) => vec![Prompt::Text(text)],
        Value::Array(values) if values.first().is_some_and(Value::is_number) => {
            vec![Prompt::Ids(token_ids("prompt", values)?)]
        }
        Value::Array(values) if (1..=MOST_CHOICES).contains(&values.len()) => {
            let prompt = |value| match value {
                Value::String(text) => Ok(Prompt::Text(text)),
                Value::Array(ids) => Ok(Prompt::Ids(token_ids("prompt", ids)?)),
                other => Err(fields.wrong("prompt", &other, expected)),
            };
            values.into_iter().map(prompt).collect::<Result<_, _>>()?
        }
        Value::Array(values) if !values.is_empty() => {
            let problem = format!("{} prompts, expected at most {MOST_CHOICES}", values.len());
            return Err(ApiError::field("prompt", problem));
        }
        other => return Err(fields.wrong("prompt", &other, expected)),
    };
    Ok(prompts)
}

/// Token ids; whether the model has them is checked later.
pub(crate) fn token_ids(name: &str, values: Vec<Value>) -> Result<Vec<u32>, ApiError> {
    let id = |(index, value): (usize, Value)| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| ApiError::field(format!("{name}[{index}]"), "expected a token id"))
    };
    values.into_iter().enumerate().map(id).collect()
}
