//! Calls of tools and reasoning, in the words of each API. The model's weights are random, so it is left no choice.

mod support;

use serde_json::{Value, json};
use support::{Live, model_folder, options};

/// A template that offers tools as Hermes' does, and reasoning where it is asked for.
const TEMPLATE: &str = "{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}<tool_call>{% endif %}\
{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function.name }} \
{{ c.function.arguments | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n\
{% if reason %}<think>{% elif never %}</think>{% endif %}";

/// The tiny model with that template.
fn live() -> (Live, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(model_folder()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let config = folder.path().join("tokenizer_config.json");
    let mut fields: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    fields["chat_template"] = json!(TEMPLATE);
    std::fs::write(&config, fields.to_string()).unwrap();
    (Live::over(folder.path(), options()), folder)
}

/// A bias against tokens of nothing but white space: a model of random weights would go on with them forever.
fn no_space(live: &Live) -> Value {
    let text = |id: u32| live.post("/detokenize", &json!({ "tokens": [id] })).json()["prompt"].to_string();
    let blank = |id: &u32| ["\"\"", "\" \"", r#""\n""#, r#""\t""#, r#""\r""#].contains(&text(*id).as_str());
    (0..384).filter(blank).map(|id| (id.to_string(), json!(-100))).collect::<serde_json::Map<_, _>>().into()
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "on": { "type": "boolean" } }, "required": ["on"], "additionalProperties": false })
}

fn arguments_hold(text: &str) {
    let arguments: Value = serde_json::from_str(text).unwrap();
    assert!(arguments["on"].is_boolean(), "{text}");
}

#[test]
fn chat_calls_a_tool() {
    let (live, _folder) = live();
    let tool = json!({ "type": "function", "function": { "name": "lamp", "description": "a lamp", "parameters": schema() } });
    let bias = no_space(&live);
    for choice in [json!("required"), json!({ "type": "function", "function": { "name": "lamp" } })] {
        let mut body = json!({
            "messages": [{ "role": "user", "content": "on" }],
            "tools": [tool], "tool_choice": choice, "parallel_tool_calls": false, "max_tokens": 120, "logit_bias": bias,
        });
        let whole = live.post("/v1/chat/completions", &body).json();
        let message = &whole["choices"][0]["message"];
        assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls", "{whole}");
        assert_eq!(
            (&message["content"], &message["tool_calls"][0]["function"]["name"]),
            (&Value::Null, &json!("lamp"))
        );
        let arguments = message["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        arguments_hold(arguments);

        body["stream"] = json!(true);
        let chunks = live.post("/v1/chat/completions", &body).chunks();
        let streamed: Vec<&Value> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
            .flatten()
            .collect();
        assert_eq!((streamed.len(), &streamed[0]["index"]), (1, &json!(0)));
        assert_eq!(streamed[0]["function"]["arguments"], arguments);
        assert_eq!(chunks.last().unwrap()["samebit"]["chain"], whole["samebit"]["chain"]);

        // The call and its result go back into the conversation.
        let again = json!({ "messages": [
            body["messages"][0], message, { "role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done" },
        ], "max_tokens": 2 });
        live.post("/v1/chat/completions", &again).json();
    }
    let none = json!({ "messages": [{ "role": "user", "content": "on" }], "tools": [tool], "tool_choice": "none", "max_tokens": 2 });
    let bare = json!({ "messages": [{ "role": "user", "content": "on" }], "max_tokens": 2 });
    let prompt =
        |body: &Value| live.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"].clone();
    assert_eq!(prompt(&none), prompt(&bare));
    let unknown = json!({
        "messages": [{ "role": "user", "content": "on" }], "tools": [tool],
        "tool_choice": { "type": "function", "function": { "name": "radio" } },
    });
    assert_eq!(live.post("/v1/chat/completions", &unknown).error(400)["error"]["param"], "tool_choice");
}

#[test]
fn messages_use_a_tool() {
    let (live, _folder) = live();
    let mut body = json!({
        "messages": [{ "role": "user", "content": "on" }], "max_tokens": 120, "logit_bias": no_space(&live),
        "tools": [{ "name": "lamp", "description": "a lamp", "input_schema": schema() }], "tool_choice": { "type": "any", "disable_parallel_tool_use": true },
    });
    let whole = live.post("/v1/messages", &body).json();
    assert_eq!(whole["stop_reason"], "tool_use", "{whole}");
    let block = &whole["content"][0];
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("lamp")));
    assert!(block["input"]["on"].is_boolean());

    body["stream"] = json!(true);
    let events = live.post("/v1/messages", &body).events();
    let deltas: Vec<Value> = events
        .iter()
        .filter(|(name, _)| name == "content_block_delta")
        .map(|(_, data)| serde_json::from_str::<Value>(data).unwrap()["delta"].clone())
        .collect();
    assert!(deltas.iter().any(|delta| delta["type"] == "input_json_delta"), "{deltas:?}");
    let input: String = deltas.iter().filter_map(|delta| delta["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&input).unwrap()["on"], block["input"]["on"]);

    let again = json!({ "max_tokens": 2, "messages": [
        { "role": "user", "content": "on" },
        { "role": "assistant", "content": whole["content"] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": block["id"], "content": "done" }] },
    ]});
    live.post("/v1/messages", &again).json();
}

#[test]
fn responses_call_a_function() {
    let (live, _folder) = live();
    let mut body = json!({
        "input": "on", "max_output_tokens": 120, "tool_choice": "required", "parallel_tool_calls": false,
        "logit_bias": no_space(&live),
        "tools": [{ "type": "function", "name": "lamp", "parameters": schema() }],
    });
    let whole = live.post("/v1/responses", &body).json();
    let call = &whole["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("lamp")), "{whole}");
    arguments_hold(call["arguments"].as_str().unwrap());
    assert_eq!(whole["status"], "completed");

    body["stream"] = json!(true);
    let events = live.post("/v1/responses", &body).events();
    assert!(events.iter().any(|(name, _)| name == "response.function_call_arguments.done"));

    let follow = json!({
        "previous_response_id": whole["id"], "max_output_tokens": 2,
        "input": [{ "type": "function_call_output", "call_id": call["call_id"], "output": "done" }],
    });
    live.post("/v1/responses", &follow).json();
}

#[test]
fn reasoning_is_told_apart() {
    let (live, _folder) = live();
    let body = json!({
        "messages": [{ "role": "user", "content": "a" }], "max_tokens": 12, "ignore_eos": true,
        "chat_template_kwargs": { "reason": true },
    });
    let whole = live.post("/v1/chat/completions", &body).json();
    let message = &whole["choices"][0]["message"];
    assert!(message["reasoning_content"].as_str().is_some_and(|text| !text.is_empty()), "{whole}");
    assert_eq!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"], 12);
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let chunks = live.post("/v1/chat/completions", &streamed).chunks();
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning_content"].as_str())
        .collect();
    assert_eq!(text, message["reasoning_content"].as_str().unwrap());

    let messages = live.post("/v1/messages", &body).json();
    assert_eq!(
        (&messages["content"][0]["type"], &messages["content"][0]["thinking"]),
        (&json!("thinking"), &json!(text))
    );
    // A demand would be made of the reasoning.
    let mut demand = body;
    demand["guided_regex"] = json!("[0-9]+");
    assert_eq!(live.post("/v1/chat/completions", &demand).error(400)["error"]["param"], "response_format");
}
