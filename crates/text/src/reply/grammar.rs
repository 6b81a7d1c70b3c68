//! Grammars that leave a model no choice but to call a tool: Lark as llguidance reads it.
//!
//! The markers stand in the grammar as text, so they match whichever tokens spell them; a token that the vocabulary
//! marks as special spells nothing there. A grammar is that of the reply behind its reasoning.

use super::{ToolDefinition, ToolStyle};
use serde_json::{Value, json};
use std::fmt::Write;

/// Which call a reply must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// One call of any tool or, where `parallel`, several.
    Required {
        /// Whether there may be several.
        parallel: bool,
    },
    /// One call of the tool of this name.
    Named(&'a str),
}

/// There is no such grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The choice leaves nothing to call.
    #[error("no tool is named {0:?} among those offered")]
    UnknownTool(String),
    /// No tools.
    #[error("a call is required, but no tools are offered")]
    NoTools,
    /// The style is only parsed.
    #[error("calls in the style {0:?} cannot be enforced; only Hermes, QwenXml and LlamaJson can")]
    Unsupported(ToolStyle),
}

impl ToolStyle {
    /// The grammar of a reply that is the chosen call (or calls) and nothing else.
    ///
    /// JSON schemas go into it as they are: what llguidance cannot enforce of them it refuses by name.
    ///
    /// # Errors
    /// [`GrammarError`] if the choice is not among `tools`, there are none, or the style has no grammar.
    pub fn grammar(self, tools: &[ToolDefinition], choice: ToolChoice<'_>) -> Result<String, GrammarError> {
        let chosen: Vec<&ToolDefinition> = match choice {
            ToolChoice::Required { .. } => tools.iter().collect(),
            ToolChoice::Named(name) => tools.iter().filter(|tool| tool.name == name).take(1).collect(),
        };
        if chosen.is_empty() {
            return Err(match choice {
                ToolChoice::Named(name) => GrammarError::UnknownTool(name.to_owned()),
                ToolChoice::Required { .. } => GrammarError::NoTools,
            });
        }
        let mut lark = Lark::default();
        let separator = match self {
            Self::Hermes | Self::QwenXml => "\n",
            Self::LlamaJson => "; ",
            other => return Err(GrammarError::Unsupported(other)),
        };
        for (index, tool) in chosen.iter().enumerate() {
            match self {
                Self::Hermes => lark.json_call(index, tool, "<tool_call>\n", "arguments", "\n</tool_call>"),
                Self::QwenXml => lark.xml_call(index, tool),
                _ => lark.json_call(index, tool, "", "parameters", ""),
            }
        }
        let calls: Vec<String> = (0..chosen.len()).map(|index| format!("call_{index}")).collect();
        let more = match choice {
            ToolChoice::Required { parallel: true } => format!(" ({} call)*", text(separator)),
            _ => String::new(),
        };
        Ok(format!("start: call{more}\ncall: {}\n{}", calls.join(" | "), lark.rules))
    }
}

/// Rules so far.
#[derive(Default)]
struct Lark {
    rules: String,
    has_value: bool,
}

impl Lark {
    fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.rules, "{name}: {body}");
    }

    fn json_call(&mut self, index: usize, tool: &ToolDefinition, before: &str, key: &str, after: &str) {
        let start = format!("{before}{{\"name\": {}, \"{key}\": ", Value::from(tool.name.as_str()));
        let end = format!("}}{after}");
        self.rule(&format!("call_{index}"), &format!("{} arguments_{index} {}", text(&start), text(&end)));
        let schema = match &tool.parameters {
            Value::Object(_) => tool.parameters.clone(),
            _ => json!({"type": "object"}),
        };
        self.rule(&format!("arguments_{index}"), &format!("%json {schema}"));
    }

    /// Parameters come in the order of the schema; those that are not required may be left out.
    fn xml_call(&mut self, index: usize, tool: &ToolDefinition) {
        let mut body = text(&format!("<tool_call>\n<function={}>\n", tool.name));
        let required = |key: &str| {
            let required = tool.parameters["required"].as_array();
            required.is_some_and(|names| names.iter().any(|name| name == key))
        };
        for (place, (key, schema)) in
            tool.parameters["properties"].as_object().into_iter().flatten().enumerate()
        {
            let name = format!("parameter_{index}_{place}");
            let optional = if required(key) { "" } else { "?" };
            let _ = write!(body, " {name}{optional}");
            let value = self.xml_value(&name, schema, &tool.parameters);
            self.rule(&name, &format!("{} {value}", text(&format!("<parameter={key}>\n"))));
        }
        let _ = write!(body, " {}", text("</function>\n</tool_call>"));
        self.rule(&format!("call_{index}"), &body);
    }

    /// A value and the end of its tag. Strings stand unquoted, so a schema that allows them allows any text.
    fn xml_value(&mut self, name: &str, schema: &Value, whole: &Value) -> String {
        let end = "\n</parameter>\n";
        if let Some(choices) = schema["enum"].as_array()
            && let Some(choices) = choices.iter().map(Value::as_str).collect::<Option<Vec<_>>>()
            && !choices.is_empty()
        {
            let choices: Vec<String> = choices.iter().map(|choice| text(choice)).collect();
            return format!("({}) {}", choices.join(" | "), text(end));
        }
        let is_json = schema["type"].as_str().is_some_and(|kind| kind != "string");
        if is_json {
            let mut schema = schema.clone();
            // References point into the whole schema of the tool.
            for key in ["$defs", "definitions"] {
                if let (Some(fields), Some(definitions)) = (schema.as_object_mut(), whole.get(key)) {
                    fields.insert(key.to_owned(), definitions.clone());
                }
            }
            self.rule(&format!("{name}_value"), &format!("%json {schema}"));
            return format!("{name}_value {}", text(end));
        }
        if !self.has_value {
            self.has_value = true;
            // Lazy: the first closing tag ends the value. The end of a call inside a value would end the call.
            self.rule("text_value[lazy]", "TEXT");
            self.rule("TEXT", "/(.|\\n)*\\n<\\/parameter>/ & ~/(.|\\n)*<\\/tool_call>(.|\\n)*/");
        }
        format!("text_value {}", text("\n"))
    }
}

/// A literal of the grammar. Its strings are JSON's, which leave one control character unescaped.
fn text(literal: &str) -> String {
    Value::from(literal).to_string().replace('\u{7f}', "\\u007f")
}
