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

/// Renders a template of the test's own on one message, with `x` as a variable.
fn render_x(template: &str, x: Value) -> Result<String, TemplateError> {
    let template = ChatTemplate::new(TemplateSource::new("test", template), SpecialTokens::default())?;
    template.render(&ChatRequest {
        messages: &[serde_json::json!({"role": "user", "content": "hi"})],
        tools: None,
        documents: None,
        add_generation_prompt: false,
        variables: &Map::from_iter([("x".to_owned(), x)]),
        now: CivilTime::from_unix_seconds(NOW),
    })
}

#[track_caller]
fn check(template: &str, x: Value, expected: &str) {
    assert_eq!(render_x(template, x).expect(template), expected, "{template}");
}

#[test]
fn json_is_written_as_python_writes_it() {
    let x = serde_json::json!({"b": [1, 2.5, 1e16, 1e-5, 100.0, -0.0, null, true], "a": {"\u{e9}<&'>": "\n\"\\\u{1}\u{7f}"}, "c": [], "d": {}});
    let line = r#"{"b": [1, 2.5, 1e+16, 1e-05, 100.0, -0.0, null, true], "a": {"é<&'>": "\n\"\\\u0001"#;
    let line = format!("{line}\u{7f}\"}}, \"c\": [], \"d\": {{}}}}");
    check("{{ x | tojson }}", x.clone(), &line);
    check(
        "{{ x.b | tojson(indent=2) }}",
        serde_json::json!({"b": [1, {"k": []}]}),
        "[\n  1,\n  {\n    \"k\": []\n  }\n]",
    );
    check(
        "{{ x | tojson(separators=(',', ':'), sort_keys=true) }}",
        serde_json::json!({"b": 1, "a": [1, 2]}),
        r#"{"a":[1,2],"b":1}"#,
    );
    check(
        "{{ x | tojson(ensure_ascii=true) }}",
        serde_json::json!("\u{e9}\u{1f600}"),
        r#""\u00e9\ud83d\ude00""#,
    );
    check("{{ messages | tojson }}", Value::Null, r#"[{"role": "user", "content": "hi"}]"#);
    assert!(render_x("{{ x | tojson(magic=1) }}", Value::Null).is_err());
}

#[test]
fn undefined_values_behave_as_in_jinja2() {
    check(
        "[{{ nothing }}][{{ messages[0].nothing }}][{% for i in nothing %}{% endfor %}]",
        Value::Null,
        "[][][]",
    );
    check("{{ x }} {{ x is none }} {{ nothing is defined }}", Value::Null, "None True False");
    check(
        "{{ x is iterable }}{{ x is sequence }}{{ 'ab' is sequence }}{{ messages[0] is mapping }}",
        Value::Null,
        "FalseFalseTrueTrue",
    );
    for failing in [
        "{{ nothing.at }}",
        "{{ nothing + 'a' }}",
        "{{ 'a' + x }}",
        "{{ 'a' in x }}",
        "{{ x.strip() }}",
        "{{ x | length }}",
    ] {
        assert!(matches!(render_x(failing, Value::Null), Err(TemplateError::Failed { .. })), "{failing}");
    }
}

#[test]
fn python_methods_and_slices() {
    let x = Value::from(" a<think>b</think>c ");
    check(
        "{{ x.strip().split('</think>')[-1] }}|{{ x[::-1][1] }}|{{ x[1:2] }}|{{ x.lstrip().startswith('a') }}",
        x,
        "c|c|a|True",
    );
    check(
        "{{ messages[1:] | length }}{{ messages[-1]['role'] }}{{ messages[0].get('x', 'none') }}",
        Value::Null,
        "0usernone",
    );
    check(
        "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        Value::Null,
        "02",
    );
    check("{{ strftime_now('%d %B %Y') }}", Value::Null, "26 July 2024");
}

#[test]
fn generation_tags_change_nothing() {
    let plain = "a\n{%- if true %}\n b {{ x }}\n{%- endif %}\nc";
    let tagged = plain.replace("if true", "generation").replace("endif", "endgeneration");
    assert_eq!(render_x(&tagged, Value::from(1)).unwrap(), render_x(plain, Value::from(1)).unwrap());
    check("{% raw %}{% generated %}{% endraw %}", Value::Null, "{% generated %}");
}

#[test]
fn named_templates_are_chosen_and_a_missing_one_is_an_error() {
    let config = r#"{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}"#;
    let source = TemplateSource::from_config("config", config).unwrap().expect("templates");
    let template = ChatTemplate::new(source, SpecialTokens::default()).unwrap();
    let tools = serde_json::json!([]);
    let render = |tools| {
        let request = ChatRequest {
            messages: &[],
            tools,
            documents: None,
            add_generation_prompt: false,
            variables: &Map::new(),
            now: CivilTime::from_unix_seconds(NOW),
        };
        template.render(&request).unwrap()
    };
    assert_eq!((render(None).as_str(), render(Some(&tools)).as_str()), ("plain", "tools"));

    let missing = TemplateSource::from_gguf("m.gguf", None).unwrap_err();
    assert!(missing.to_string().contains("m.gguf has no chat template"), "{missing}");
    assert!(TemplateSource::from_config("config", "{}").unwrap().is_none());
    for bad in ["{", r#"{"chat_template": 1}"#, r#"{"chat_template": [{"name": "x"}]}"#] {
        assert!(
            TemplateSource::from_config("config.json", bad).unwrap_err().to_string().contains("config.json")
        );
    }
}
