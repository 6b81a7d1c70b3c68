//! Tools that a request offers, and whether one must be called.

use samebit_engine::ConstraintSpec;
use samebit_text::{ReplyFormat, ToolChoice, ToolDefinition};
use serde_json::{Value, json};

use super::common::LONGEST_NAME;
use crate::error::ApiError;
use crate::fields::Fields;

/// Most tools of a request.
const MOST_TOOLS: usize = 512;

/// Tools, as templates read them and as parsers do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    /// As templates read them; `None` where there are none.
    pub(crate) rendered: Option<Value>,
    /// As the parser of replies reads them.
    pub(crate) definitions: Vec<ToolDefinition>,
    /// The grammar that leaves no choice but to call one.
    pub(crate) demand: Option<ConstraintSpec>,
}

/// What a request says about calling.
enum Choice {
    Auto,
    None,
    Required,
    Named(String),
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. With the choice `none` the prompt has no tools in it.
///
/// # Errors
/// Malformed tools, tools for a model whose template has none, and choices that cannot be enforced.
pub(crate) fn read(fields: &mut Fields, format: &ReplyFormat) -> Result<Tools, ApiError> {
    let list = fields.list("tools", MOST_TOOLS)?.unwrap_or_default();
    // Anthropic's clients say it within the choice.
    let single = fields.peek("tool_choice").is_some_and(|choice| choice["disable_parallel_tool_use"] == true);
    let choice = choice(fields)?;
    let parallel = fields.flag("parallel_tool_calls")?.unwrap_or(true) && !single;
    if list.is_empty() {
        return match choice {
            Choice::Auto | Choice::None => Ok(Tools::default()),
            _ => Err(ApiError::field("tool_choice", "demands a call, but no tools are offered")),
        };
    }
    let tool = |(index, value): (usize, Value)| tool(Fields::of(value, format!("tools[{index}]"))?);
    let tools = list.into_iter().enumerate().map(tool).collect::<Result<Vec<_>, _>>()?;
    let definitions: Vec<ToolDefinition> = tools.iter().filter_map(ToolDefinition::from_json).collect();
    let demanded = match &choice {
        Choice::None => return Ok(Tools::default()),
        Choice::Auto if !parallel => {
            let hint = ": one call at most can only be enforced with a tool_choice that demands a call";
            return Err(ApiError::unsupported("parallel_tool_calls", hint));
        }
        Choice::Auto => None,
        Choice::Required => Some(ToolChoice::Required { parallel }),
        Choice::Named(name) => Some(ToolChoice::Named(name)),
    };
    let Some(style) = format.tools else {
        let hint = ": the chat template of this model has no way to call tools";
        return Err(ApiError::unsupported("tools", hint));
    };
    let grammar = demanded.map(|choice| style.grammar(&definitions, choice)).transpose();
    let grammar = grammar.map_err(|error| ApiError::field("tool_choice", error))?;
    Ok(Tools {
        rendered: Some(Value::Array(tools)),
        definitions,
        demand: grammar.map(ConstraintSpec::Grammar),
    })
}

/// A tool of OpenAI's chat, of the Responses API, or of Anthropic's, as templates read it.
fn tool(mut fields: Fields) -> Result<Value, ApiError> {
    let kind = fields.text("type", LONGEST_NAME)?.unwrap_or_else(|| "function".to_owned());
    if kind != "function" && kind != "custom" {
        return Err(ApiError::unsupported(
            fields.path("type"),
            &format!(" ({kind:?}): expected \"function\""),
        ));
    }
    fields.harmless(&["cache_control"]);
    let mut function = match fields.object("function")? {
        Some(function) => {
            fields.finish()?;
            function
        }
        None => fields,
    };
    let name = function.required_text("name", LONGEST_NAME)?;
    let description = function.text("description", super::messages::LONGEST_TEXT)?;
    let parameters = function.take("parameters").or_else(|| function.take("input_schema"));
    // `strict` is about the arguments of calls that a model makes by itself, which are not enforced.
    function.unsupported(&["strict"])?;
    function.finish()?;
    if name.is_empty() {
        return Err(ApiError::field("tools", "a tool without a name"));
    }
    let mut described = json!({ "name": name });
    if let Some(description) = description {
        described["description"] = json!(description);
    }
    described["parameters"] = parameters.unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
    Ok(json!({ "type": "function", "function": described }))
}

/// `tool_choice`, of all APIs.
fn choice(fields: &mut Fields) -> Result<Choice, ApiError> {
    let Some(value) = fields.take("tool_choice") else { return Ok(Choice::Auto) };
    let kind = value.as_str().or_else(|| value["type"].as_str());
    let name = value["function"]["name"].as_str().or_else(|| value["name"].as_str());
    match (kind, name) {
        (Some("auto"), _) => Ok(Choice::Auto),
        (Some("none"), _) => Ok(Choice::None),
        (Some("required" | "any"), _) => Ok(Choice::Required),
        (Some("function" | "tool"), Some(name)) => Ok(Choice::Named(name.to_owned())),
        _ => Err(fields.wrong("tool_choice", &value, "auto, none, required, or a tool by name")),
    }
}
