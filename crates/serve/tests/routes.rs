//! The other routes: Anthropic's messages, responses, and what tells about the server.

mod support;

use serde_json::{Value, json};
use support::Live;

#[test]
fn messages_whole_and_streamed() {
    let live = Live::start();
    let mut body = json!({
        "model": "tiny",
        "system": [{ "type": "text", "text": "be brief", "cache_control": { "type": "ephemeral" } }],
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "the" }] }],
        "max_tokens": 8, "ignore_eos": true, "temperature": 1.0, "seed": 4, "metadata": { "user_id": "me" },
    });
    let whole = live.post("/v1/messages", &body).json();
    assert_eq!(
        (&whole["type"], &whole["role"], &whole["stop_reason"]),
        (&json!("message"), &json!("assistant"), &json!("max_tokens"))
    );
    assert_eq!(whole["usage"]["output_tokens"], 8);
    let text = whole["content"][0]["text"].as_str().unwrap().to_owned();

    body["stream"] = json!(true);
    let events = live.post("/v1/messages", &body).events();
    let parsed: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    for ((name, _), data) in events.iter().zip(&parsed) {
        assert_eq!(data["type"], **name);
    }
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let streamed: String = parsed.iter().filter_map(|data| data["delta"]["text"].as_str()).collect();
    assert_eq!(streamed, text);
    let delta = &parsed[parsed.len() - 2];
    assert_eq!(delta["samebit"]["chain"], whole["samebit"]["chain"]);
    assert_eq!(delta["usage"]["output_tokens"], whole["usage"]["output_tokens"]);

    // A stop sequence that the answer holds ends it there.
    body["stream"] = json!(false);
    let stop: String = text.chars().skip(2).take(2).collect();
    body["stop_sequences"] = json!([stop]);
    let stopped = live.post("/v1/messages", &body).json();
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    assert_eq!(stopped["content"][0]["text"], text[..text.find(&stop).unwrap()]);

    let count =
        json!({ "model": "tiny", "system": "be brief", "messages": [{ "role": "user", "content": "the" }] });
    let count = live.post("/v1/messages/count_tokens", &count).json();
    assert_eq!(count["input_tokens"], whole["usage"]["input_tokens"]);
}

#[test]
fn messages_are_refused_in_their_own_envelope() {
    let live = Live::start();
    let error =
        live.post("/v1/messages", &json!({ "messages": [{ "role": "user", "content": "hi" }] })).error(400);
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
    assert!(error["error"]["message"].as_str().unwrap().contains("max_tokens"));
    let image = json!([{ "type": "image", "source": {} }]);
    let body = json!({ "max_tokens": 1, "messages": [{ "role": "user", "content": image }] });
    let error = live.post("/v1/messages", &body).error(400);
    assert!(error["error"]["message"].as_str().unwrap().contains("messages[0].content[0].type"), "{error}");
    let other =
        json!({ "model": "claude", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(live.post("/v1/messages", &other).error(404)["error"]["type"], "not_found_error");
    assert_eq!(live.get("/v1/messages").error(405)["type"], "error");
}

#[test]
fn responses_are_kept_and_continued() {
    let live = Live::start();
    let mut body = json!({
        "model": "tiny", "input": "the", "instructions": "be brief", "max_output_tokens": 6, "ignore_eos": true,
        "metadata": { "a": "b" }, "text": { "format": { "type": "text" } },
    });
    let first = live.post("/v1/responses", &body).json();
    assert_eq!((&first["object"], &first["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(first["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!((&first["instructions"], &first["metadata"]["a"]), (&json!("be brief"), &json!("b")));
    let text = first["output"][0]["content"][0]["text"].as_str().unwrap();
    let id = first["id"].as_str().unwrap();
    assert_eq!(live.get(&format!("/v1/responses/{id}")).json(), first);

    body["stream"] = json!(true);
    let events = live.post("/v1/responses", &body).events();
    let parsed: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    for (index, ((name, _), data)) in events.iter().zip(&parsed).enumerate() {
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(index)));
    }
    let deltas: String = parsed.iter().filter_map(|data| data["delta"].as_str()).collect();
    assert_eq!(deltas, text);
    let last = &parsed.last().unwrap()["response"];
    assert_eq!(parsed.last().unwrap()["type"], "response.incomplete");
    assert_eq!(last["samebit"]["chain"], first["samebit"]["chain"]);

    // What follows a response is what follows its whole conversation.
    let next = json!({ "input": "a", "previous_response_id": id, "max_output_tokens": 4, "store": false });
    let next = live.post("/v1/responses", &next).json();
    let spelled = json!({ "max_output_tokens": 4, "input": [
        { "role": "user", "content": [{ "type": "input_text", "text": "the" }] },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text, "annotations": [] }] },
        { "role": "user", "content": "a" },
    ]});
    let spelled = live.post("/v1/responses", &spelled).json();
    assert_eq!(next["samebit"]["chain"], spelled["samebit"]["chain"]);
    live.get(&format!("/v1/responses/{}", next["id"].as_str().unwrap())).error(404);

    let deleted = live.ask("DELETE", &format!("/v1/responses/{id}"), &[], "").json();
    assert_eq!(deleted["deleted"], true);
    live.get(&format!("/v1/responses/{id}")).error(404);
    let gone = json!({ "input": "a", "previous_response_id": id });
    assert_eq!(live.post("/v1/responses", &gone).error(404)["error"]["param"], "previous_response_id");
    for (param, value) in [
        ("truncation", json!("auto")),
        ("reasoning.effort", json!({ "effort": "high" })),
        ("background", json!(true)),
    ] {
        let mut body = json!({ "input": "a" });
        body[param.split('.').next().unwrap()] = value;
        assert_eq!(live.post("/v1/responses", &body).error(400)["error"]["param"], param);
    }
}

#[test]
fn the_server_tells_about_itself() {
    let live = Live::start();
    let models = live.get("/v1/models").json();
    let card = &models["data"][0];
    assert_eq!((&card["id"], &card["max_model_len"]), (&json!("tiny"), &json!(256)));
    assert_eq!(live.get("/v1/models/owner/tiny").json()["root"], "tiny");
    live.get("/v1/models/other").error(404);
    let version = live.get("/version").json();
    assert_eq!(version["plan_id"], card["plan_id"]);
    assert_eq!(live.get("/health").json()["status"], "ok");
    assert_eq!((live.get("/livez").status, live.get("/readyz").status), (200, 200));

    let body =
        json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 5, "ignore_eos": true });
    let usage = live.post("/v1/chat/completions", &body).json()["usage"].clone();
    let metrics = live.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for (name, value) in [
        ("vllm:generation_tokens_total", &usage["completion_tokens"]),
        ("samebit_prompt_tokens_total", &usage["prompt_tokens"]),
        ("vllm:time_to_first_token_seconds_count", &json!(1)),
        ("vllm:inter_token_latency_seconds_count", &json!(4)),
        ("vllm:e2e_request_latency_seconds_count", &json!(1)),
        ("vllm:num_requests_running", &json!(0)),
    ] {
        let line = format!("{name}{{model_name=\"tiny\"}} {value}");
        assert!(metrics.body.lines().any(|other| other == line), "{line} is not in\n{}", metrics.body);
    }
    assert!(metrics.body.contains(&format!("weights_digest={}", card["weights_digest"])));
}
