//! The tools a request offers.

use serde_json::Value;
use std::collections::HashMap;

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// Its name, as the prompt gives it.
    pub name: String,
    /// The JSON schema of its arguments, an object schema; null if the request gave none.
    pub parameters: Value,
}

impl ToolDefinition {
    /// Reads a tool as clients write it: `{"type": "function", "function": {"name", "parameters"}}`, the same without
    /// the inner object, or `{"name", "input_schema"}`. `None` if it has no name.
    pub fn from_json(tool: &Value) -> Option<Self> {
        let function = tool.get("function").unwrap_or(tool);
        let schema = ["parameters", "input_schema"].iter().find_map(|key| function.get(key));
        Some(Self {
            name: function.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned(),
            parameters: schema.cloned().unwrap_or_default(),
        })
    }

    /// The schema of one argument.
    pub(super) fn schema_of(&self, argument: &str) -> Option<&Value> {
        self.parameters.get("properties")?.get(argument)
    }
}

/// The tools of one request, by name.
#[derive(Debug)]
pub(super) struct Tools {
    by_name: HashMap<String, ToolDefinition>,
    longest_name: usize,
}

impl Tools {
    pub(super) fn new(tools: &[ToolDefinition]) -> Self {
        let longest_name = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
        Self { by_name: tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect(), longest_name }
    }

    pub(super) fn find(&self, name: &str) -> Option<&ToolDefinition> {
        self.by_name.get(name)
    }

    /// Length of the longest name in bytes: what is longer is no tool.
    pub(super) fn longest_name(&self) -> usize {
        self.longest_name
    }
}
