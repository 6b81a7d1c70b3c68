//! Demands on the text of an answer: JSON, a schema, an expression, a choice, a grammar.

use std::sync::Arc;

use samebit_engine::{Constraint, ConstraintSpec};
use serde_json::Value;

use super::common::LONGEST_NAME;
use super::messages::LONGEST_TEXT;
use super::prompt::off_the_reactor;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::state::App;

/// Reads `response_format`, or the field of another name that says the same, and the fields that vLLM has for it.
///
/// # Errors
/// Unknown demands, and more than one.
pub(crate) fn read(fields: &mut Fields, format: &str) -> Result<Option<ConstraintSpec>, ApiError> {
    let mut specs = Vec::new();
    if let Some(format) = fields.object(format)? {
        specs.extend(response_format(format)?);
    }
    let mut guided = |fields: &mut Fields, prefix: &str| {
        let name = |rest: &str| format!("{prefix}{rest}");
        if let Some(schema) = fields.take(&name("json")) {
            specs.push(ConstraintSpec::JsonSchema(schema_of(schema)));
        }
        if let Some(expression) = fields.text(&name("regex"), LONGEST_TEXT)? {
            specs.push(ConstraintSpec::Regex(expression));
        }
        if let Some(choices) = fields.list(&name("choice"), ConstraintSpec::MAX_CHOICES)? {
            let text = |value: Value| match value {
                Value::String(text) => Ok(text),
                other => Err(fields.wrong(&name("choice"), &other, "texts")),
            };
            specs.push(ConstraintSpec::Choice(choices.into_iter().map(text).collect::<Result<_, _>>()?));
        }
        if let Some(grammar) = fields.text(&name("grammar"), LONGEST_TEXT)? {
            specs.push(ConstraintSpec::Grammar(grammar));
        }
        if fields.flag(&name("json_object"))?.unwrap_or(false) {
            specs.push(ConstraintSpec::JsonObject);
        }
        Ok::<_, ApiError>(())
    };
    guided(fields, "guided_")?;
    if let Some(mut outputs) = fields.object("structured_outputs")? {
        guided(&mut outputs, "")?;
        outputs.finish()?;
    }
    match specs.len() {
        0 | 1 => Ok(specs.pop()),
        _ => Err(ApiError::field(format, "several demands on one answer, expected one")),
    }
}

fn response_format(mut format: Fields) -> Result<Option<ConstraintSpec>, ApiError> {
    let kind = format.required_text("type", LONGEST_NAME)?;
    let spec = match kind.as_str() {
        "text" => None,
        "json_object" => Some(ConstraintSpec::JsonObject),
        "json_schema" => {
            // The Responses API has the inner fields beside the type.
            let mut inner = match format.object("json_schema")? {
                Some(inner) => inner,
                None => std::mem::replace(&mut format, Fields::new(serde_json::Map::new())),
            };
            // Schemas are always enforced in full, so `strict` changes nothing.
            inner.harmless(&["name", "description", "strict"]);
            let schema = inner.take("schema").ok_or_else(|| inner.missing("schema"))?;
            inner.finish()?;
            Some(ConstraintSpec::JsonSchema(schema))
        }
        _ => {
            let hint = format!(" ({kind:?}): expected text, json_object or json_schema");
            return Err(ApiError::unsupported(format.path("type"), &hint));
        }
    };
    format.finish()?;
    Ok(spec)
}

/// Some clients send the schema as JSON in a text.
fn schema_of(schema: Value) -> Value {
    match schema.as_str().map(serde_json::from_str) {
        Some(Ok(parsed)) => parsed,
        _ => schema,
    }
}

/// Compiles a demand for the model, on a thread for such work.
///
/// # Errors
/// Demands that cannot be enforced, by name.
pub(crate) async fn compile(
    app: &Arc<App>,
    spec: Option<ConstraintSpec>,
) -> Result<Option<Constraint>, ApiError> {
    let Some(spec) = spec else { return Ok(None) };
    let app = Arc::clone(app);
    off_the_reactor(move || {
        let compiler = app.compiler.as_ref().map_err(|problem| ApiError::request(problem.clone()))?;
        Ok(Some(compiler.compile(&spec)?))
    })
    .await
}
