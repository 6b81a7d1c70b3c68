//! The fields that all APIs share.

use samebit_arith::likelihood::MAX_TOP;
use samebit_engine::{LogitBias, LogitOptions, Penalties, Priority, SamplingOptions};
use samebit_text::StopStrings;
use serde_json::Value;

use super::defaults::Defaults;
use super::{MOST_CHOICES, Manner};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::state::App;

/// Longest salt and name, in bytes.
pub(crate) const LONGEST_NAME: usize = 512;
/// No context is longer; the engine compares with the model's own.
const MOST_TOKENS: u64 = 1 << 24;

/// Fields that change nothing about an answer: they are about storage, accounting or where it is computed.
const HARMLESS: [&str; 9] = [
    "user",
    "metadata",
    "store",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "request_id",
    "include",
];

/// Fields that ask for what is not there. Neutral values pass, since some clients always send them.
const UNSUPPORTED: [&str; 13] = [
    "prompt_logprobs",
    "use_beam_search",
    "stop_token_ids",
    "draft",
    "thinking_budget",
    "reasoning_effort",
    "audio",
    "web_search_options",
    "functions",
    "function_call",
    "bad_words",
    "prediction",
    "verbosity",
];

/// Reads `model`, and refuses another one than is served.
pub(crate) fn model(fields: &mut Fields, app: &App) -> Result<(), ApiError> {
    match fields.text("model", LONGEST_NAME)? {
        Some(name) if !app.serves(&name) => Err(ApiError::other_model(&name, app.name())),
        _ => Ok(()),
    }
}

/// Reads how to answer; `limits` are the names that the API has for the longest answer. Demands on the text, and
/// log-probabilities, which APIs ask for in ways of their own, are added by the routes.
pub(crate) fn manner(fields: &mut Fields, app: &App, limits: &[&str]) -> Result<Manner, ApiError> {
    let sampling = sampling(fields, &app.defaults)?;
    let max_tokens = limit(fields, limits)?;
    let stops = stops(fields, "stop")?;
    let logits = logits(fields, &app.defaults)?;
    let priority = priority(fields)?;
    let choices = fields.whole("n", 1..=MOST_CHOICES as u64)?.unwrap_or(1) as usize;
    let cache_salt = fields.text("cache_salt", LONGEST_NAME)?.unwrap_or_default();
    fields.harmless(&HARMLESS);
    fields.unsupported(&UNSUPPORTED)?;
    Ok(Manner {
        sampling,
        logits,
        constraint: None,
        log_probabilities: None,
        max_tokens,
        stops,
        priority,
        choices,
        cache_salt,
    })
}

fn sampling(fields: &mut Fields, defaults: &Defaults) -> Result<SamplingOptions, ApiError> {
    let defaults = &defaults.sampling;
    let number = |fields: &mut Fields, name, most, default| {
        Ok::<_, ApiError>(fields.number(name, 0.0..=most)?.unwrap_or(default))
    };
    let options = SamplingOptions {
        temperature: number(fields, "temperature", SamplingOptions::MAX_TEMPERATURE, defaults.temperature)?,
        top_p: number(fields, "top_p", 1.0, defaults.top_p)?,
        min_p: number(fields, "min_p", 1.0, defaults.min_p)?,
        top_k: top_k(fields)?.unwrap_or(defaults.top_k),
        seed: fields.whole("seed", 0..=u64::MAX)?,
    };
    options.check()?;
    Ok(options)
}

/// What is done to logits.
fn logits(fields: &mut Fields, defaults: &Defaults) -> Result<LogitOptions, ApiError> {
    let size = -Penalties::MAX_SIZE..=Penalties::MAX_SIZE;
    let penalties = Penalties {
        presence: fields.number("presence_penalty", size.clone())?.unwrap_or(0.0),
        frequency: fields.number("frequency_penalty", size)?.unwrap_or(0.0),
        repetition: fields
            .number("repetition_penalty", Penalties::MIN_REPETITION..=Penalties::MAX_REPETITION)?
            .unwrap_or(defaults.repetition),
    };
    Ok(LogitOptions {
        bias: bias(fields)?,
        penalties,
        min_tokens: fields.whole("min_tokens", 0..=MOST_TOKENS)?.unwrap_or(0) as usize,
        ignore_eos: fields.flag("ignore_eos")?.unwrap_or(false),
    })
}

/// `logit_bias`: an object of ids in decimal and numbers. Whether the model has the ids is checked later.
fn bias(fields: &mut Fields) -> Result<LogitBias, ApiError> {
    let Some(object) = fields.object("logit_bias")? else { return Ok(LogitBias::default()) };
    let entry = |(id, bias): (String, Value)| {
        let refuse = |problem: &str| ApiError::field("logit_bias", format_args!("{id:?}: {problem}"));
        let number = id.parse::<u32>().map_err(|_| refuse("expected a token id"))?;
        let bias = bias.as_f64().ok_or_else(|| refuse("expected a number"))?;
        Ok((number, bias as f32))
    };
    let entries = object.remaining().into_iter().map(entry).collect::<Result<Vec<_>, ApiError>>()?;
    Ok(LogitBias(entries))
}

/// `logprobs` and `top_logprobs` of conversations: how many of the most probable tokens to tell at each step.
pub(crate) fn log_probabilities(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.whole("top_logprobs", 0..=MAX_TOP as u64)?;
    match (wanted, top) {
        (false, Some(1..)) => Err(ApiError::field("top_logprobs", "given without logprobs: true")),
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0) as usize)),
    }
}

/// `top_k`; -1 means no limit, as in vLLM.
fn top_k(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let Some(value) = fields.take("top_k") else { return Ok(None) };
    match value.as_i64() {
        Some(-1 | 0) => Ok(Some(0)),
        Some(count @ 1..=0xFFFF_FFFF) => Ok(usize::try_from(count).ok()),
        _ => Err(fields.wrong("top_k", &value, "a whole number of at least 1, or 0 or -1 for no limit")),
    }
}

fn limit(fields: &mut Fields, names: &[&str]) -> Result<Option<usize>, ApiError> {
    let mut limit = None;
    for name in names {
        if let Some(tokens) = fields.whole(name, 1..=MOST_TOKENS)? {
            if limit.is_some_and(|other| other != tokens) {
                return Err(ApiError::field(*name, format_args!("contradicts {}", names[0])));
            }
            limit = Some(tokens);
        }
    }
    Ok(limit.map(|tokens| tokens as usize))
}

/// Texts that end an answer: one, or a list.
pub(crate) fn stops(fields: &mut Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let values = match fields.take(name) {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(one) => vec![one],
    };
    let text = |value: Value| match value {
        Value::String(text) => Ok(text),
        other => Err(fields.wrong(name, &other, "texts")),
    };
    let stops = values.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    StopStrings::new(&stops).map_err(|error| ApiError::field(fields.path(name), error))?;
    Ok(stops)
}

fn priority(fields: &mut Fields) -> Result<Priority, ApiError> {
    match fields.take("priority") {
        None => Ok(Priority::Normal),
        Some(Value::String(text)) if text == "normal" => Ok(Priority::Normal),
        Some(Value::String(text)) if text == "background" => Ok(Priority::Background),
        Some(other) => Err(fields.wrong("priority", &other, "\"normal\" or \"background\"")),
    }
}

/// Whether to stream, and whether the stream ends with the usage.
pub(crate) fn streaming(fields: &mut Fields) -> Result<(bool, bool), ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let mut usage = false;
    if let Some(mut options) = fields.object("stream_options")? {
        if !stream {
            return Err(ApiError::field("stream_options", "given without stream: true"));
        }
        usage = options.flag("include_usage")?.unwrap_or(false);
        options.harmless(&["include_obfuscation"]);
        options.unsupported(&["continuous_usage_stats"])?;
        options.finish()?;
    }
    Ok((stream, usage))
}
