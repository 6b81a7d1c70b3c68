//! Which markup a model uses, read off its chat template.
//!
//! The template is what a model's makers publish with it, and it must write earlier calls as the model writes them. So
//! the markers stand in it, and no list of model names is needed.

use super::{ReasoningStyle, ReplyFormat, ToolStyle};

impl ReplyFormat {
    /// The format of the model whose chat template is `template`. `is_special` says whether a text is one of its
    /// special tokens: it decides where the template alone does not, as for Mistral's templates without tools.
    pub fn detect(template: &str, is_special: impl Fn(&str) -> bool) -> Self {
        let has = |marker: &str| template.contains(marker);
        let known = |marker: &str| has(marker) || is_special(marker);
        // The more special come first: Qwen3-Coder and GLM also write <tool_call>.
        let tools = if has("<function=") && has("<parameter=") {
            Some(ToolStyle::QwenXml)
        } else if has("<arg_key>") {
            Some(ToolStyle::Glm)
        } else if has("<｜tool▁calls▁begin｜>") {
            Some(ToolStyle::DeepSeek)
        } else if has("<|tool_call>call:") {
            Some(ToolStyle::Gemma4)
        } else if known("[TOOL_CALLS]") {
            Some(ToolStyle::Mistral)
        } else if has("<tool_call>") {
            Some(ToolStyle::Hermes)
        } else if known("<|python_tag|>") || has("\"parameters\": dictionary of argument name") {
            Some(ToolStyle::LlamaJson)
        } else if has("<start_of_turn>") && (has("tools") || has("tool_code")) {
            Some(ToolStyle::Gemma)
        } else {
            None
        };
        let styles = [ReasoningStyle::Channel, ReasoningStyle::BracketThink, ReasoningStyle::Think];
        let reasons = |style: &ReasoningStyle| {
            let (open, close) = (style.opening(), style.closing());
            (has(open) && has(close)) || (is_special(open) && is_special(close))
        };
        Self { tools, reasoning: styles.into_iter().find(reasons) }
    }

    /// Whether a reply to `prompt`, a rendered template, starts inside reasoning: the prompt then ends with its opening
    /// marker.
    pub fn starts_in_reasoning(&self, prompt: &str) -> bool {
        self.reasoning.is_some_and(|style| prompt.trim_end().ends_with(style.opening()))
    }
}
