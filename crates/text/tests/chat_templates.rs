//! Ten published chat templates on 24 conversations, against Jinja2 itself.

mod support;

use samebit_text::{ChatRequest, ChatTemplate, CivilTime, SpecialTokens, TemplateError, TemplateSource};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use support::{json, json_lines, read, text};

/// 2024-07-26T15:04:05, the `now` of `templates.json`.
const NOW: i64 = 1_722_006_245;

fn templates() -> BTreeMap<String, ChatTemplate> {
    let list = json("real/chat-templates/templates.json");
    assert_eq!(text(&list, "now"), "2024-07-26T15:04:05");
    let compile = |entry: &Value| {
        let file = text(entry, "file");
        let token = |key: &str| entry["special_tokens"][key].as_str().map(str::to_owned);
        let tokens = SpecialTokens {
            bos: token("bos_token"),
            eos: token("eos_token"),
            unk: token("unk_token"),
            pad: token("pad_token"),
        };
        let source = TemplateSource::new(file, read(&format!("real/chat-templates/{file}")));
        (text(entry, "name").to_owned(), ChatTemplate::new(source, tokens).expect(file))
    };
    list["templates"].as_array().expect("a list").iter().map(compile).collect()
}

fn render(template: &ChatTemplate, conversation: &Value) -> Result<String, TemplateError> {
    let none = Map::new();
    template.render(&ChatRequest {
        messages: conversation["messages"].as_array().expect("messages"),
        tools: conversation.get("tools").filter(|tools| !tools.is_null()),
        documents: None,
        add_generation_prompt: conversation["add_generation_prompt"].as_bool().expect("a flag"),
        variables: conversation.get("kwargs").and_then(Value::as_object).unwrap_or(&none),
        now: CivilTime::from_unix_seconds(NOW),
    })
}

#[test]
fn every_render_is_what_jinja2_gives() {
    let templates = templates();
    let conversations = json("real/chat-templates/conversations.json");
    let conversations: BTreeMap<&str, &Value> =
        conversations.as_array().expect("a list").iter().map(|c| (text(c, "name"), c)).collect();
    let rows = json_lines("real/chat-templates/renders.jsonl");
    assert_eq!((templates.len(), conversations.len(), rows.len()), (10, 24, 240));
    let mut wrong = Vec::new();
    for row in &rows {
        let (name, conversation) = (text(row, "template"), text(row, "conversation"));
        let rendered = render(&templates[name], conversations[conversation]);
        let right = match (&rendered, row.get("output"), row.get("error")) {
            (Ok(output), Some(expected), None) => *output == *expected,
            (Err(TemplateError::Refused { message, .. }), None, Some(error)) => {
                error["kind"] == "raise_exception" && *message == error["message"]
            }
            (Err(TemplateError::Failed { .. }), None, Some(error)) => error["kind"] != "raise_exception",
            _ => false,
        };
        if !right {
            wrong.push(format!("{name} x {conversation}:\n  got {rendered:?}\n  expected {row}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
