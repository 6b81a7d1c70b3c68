//! What is refused, how, and in whose envelope.

mod support;

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use support::{Live, options};

const CHAT: &str = "/v1/chat/completions";

#[test]
fn wrong_bodies_are_refused_by_name() {
    let live = Live::start();
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let with = |name: &str, value: Value| {
        let mut body = json!({ "messages": messages, "max_tokens": 2 });
        body[name] = value;
        body
    };
    let table = [
        ("temperature", with("temperature", json!("hot"))),
        ("temperature", with("temperature", json!(-1))),
        ("temperature", with("temperature", json!(true))),
        ("temperature", with("temperature", json!(1e-9))),
        ("top_p", with("top_p", json!(0))),
        ("top_p", with("top_p", json!(1.5))),
        ("top_k", with("top_k", json!(-2))),
        ("top_k", with("top_k", json!(1.5))),
        ("min_p", with("min_p", json!(2))),
        ("seed", with("seed", json!(-1))),
        ("seed", with("seed", json!(1.5))),
        ("n", with("n", json!(0))),
        ("n", with("n", json!(9))),
        ("max_tokens", with("max_tokens", json!(0))),
        ("max_tokens", with("max_tokens", json!(false))),
        ("max_tokens", with("max_completion_tokens", json!(3))),
        ("stop", with("stop", json!([""]))),
        ("stop", with("stop", json!(vec!["x"; 17]))),
        ("stream", with("stream", json!("yes"))),
        ("stream_options", with("stream_options", json!({ "include_usage": true }))),
        ("priority", with("priority", json!("first"))),
        ("draft", with("draft", json!(true))),
        ("logprobs", with("logprobs", json!(5))),
        ("top_logprobs", with("top_logprobs", json!(5))),
        ("logit_bias", with("logit_bias", json!({ "five": 1 }))),
        ("logit_bias", with("logit_bias", json!({ "999999": 1 }))),
        ("frequency_penalty", with("frequency_penalty", json!(2.5))),
        ("repetition_penalty", with("repetition_penalty", json!(0))),
        ("min_tokens", with("min_tokens", json!(3))),
        ("tools", with("tools", json!([{ "type": "function", "function": { "name": "f" } }]))),
        ("tools[0].type", with("tools", json!([{ "type": "web_search" }]))),
        ("regex", with("guided_regex", json!("("))),
        (
            "response_format",
            json!({ "messages": messages, "guided_regex": "a", "response_format": { "type": "json_object" } }),
        ),
        ("tool_choice", with("tool_choice", json!("required"))),
        ("response_format.type", with("response_format", json!({ "type": "xml" }))),
        ("modalities", with("modalities", json!(["audio"]))),
        ("mystery", with("mystery", json!(1))),
        ("messages", json!({ "max_tokens": 2 })),
        ("messages", with("messages", json!([]))),
        ("messages", with("messages", json!("hi"))),
        ("messages[0]", with("messages", json!(["hi"]))),
        ("messages[0].role", with("messages", json!([{ "role": "oracle", "content": "hi" }]))),
        ("messages[0].content", with("messages", json!([{ "role": "user" }]))),
        ("messages[0].content", with("messages", json!([{ "role": "user", "content": 5 }]))),
        (
            "messages[0].content[0].type",
            with(
                "messages",
                json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] }]),
            ),
        ),
        ("chat_template_kwargs.messages", with("chat_template_kwargs", json!({ "messages": [] }))),
    ];
    for (param, body) in table {
        let error = live.post(CHAT, &body).error(400)["error"].clone();
        assert_eq!(error["param"], param, "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(':')), "{error}");
    }
    assert_eq!(live.load().running + live.load().waiting, 0);
}

#[test]
fn harmless_fields_and_neutral_values_pass() {
    let live = Live::start();
    let body = json!({
        "model": "owner/tiny",
        "messages": [
            { "role": "developer", "content": "be brief" },
            { "role": "user", "content": [{ "type": "text", "text": "hi" }, { "type": "text", "text": "you" }] },
            { "role": "assistant", "content": "oh", "refusal": null },
            { "role": "user", "content": "a", "name": "me" },
        ],
        "max_tokens": 2, "max_completion_tokens": 2,
        "user": "someone", "metadata": { "a": "b" }, "store": false, "service_tier": "auto",
        "frequency_penalty": 0, "presence_penalty": 0.0, "logprobs": false, "tools": [], "tool_choice": "auto",
        "response_format": { "type": "text" }, "logit_bias": null, "draft": false, "cache_salt": "tenant",
        "priority": "background", "top_k": -1, "chat_template_kwargs": { "enable_thinking": false },
    });
    let reply = live.post(CHAT, &body).json();
    assert_eq!(reply["usage"]["completion_tokens"], 2);
    // The parts of a text are the lines of one.
    let plain = json!({ "messages": [{ "role": "user", "content": "hi\nyou" }] });
    let parts = json!({ "messages": [{ "role": "user", "content": body["messages"][1]["content"] }] });
    assert_eq!(live.post("/tokenize", &plain).json(), live.post("/tokenize", &parts).json());
}

#[test]
fn nothing_is_cut_off() {
    let live = Live::start();
    let long = "the world ".repeat(60);
    for streams in [false, true] {
        let body = json!({ "messages": [{ "role": "user", "content": long }], "max_tokens": 100, "stream": streams });
        let error = live.post(CHAT, &body).error(400)["error"].clone();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("context_length_exceeded"), &json!("messages"))
        );
        let message = error["message"].as_str().unwrap();
        let count = live.post("/tokenize", &json!({ "messages": body["messages"] })).json()["count"].clone();
        assert!(message.contains(&format!("{count} tokens")) && message.contains("256"), "{message}");
    }
    let unknown = json!({ "prompt": [1, 99_999], "max_tokens": 1 });
    live.post("/v1/completions", &unknown).error(400);
    live.post("/v1/completions", &json!({ "prompt": [] })).error(400);
    live.post("/v1/completions", &json!({ "prompt": "a", "logprobs": 99 })).error(400);
}

#[test]
fn what_is_no_request_is_told_so() {
    let live = Live::start();
    let ask = |body: &str| live.ask("POST", CHAT, &[], body).error(400)["error"]["message"].to_string();
    assert!(ask("{\"messages\": [}").contains("line 1 column 15"));
    assert!(ask("[1]").contains("no object"));
    assert!(ask(&"[".repeat(5_000)).contains("recursion"));
    assert_eq!(live.get("/nowhere").error(404)["error"]["code"], "not_found");
    assert_eq!(live.get(CHAT).error(405)["error"]["code"], "method_not_allowed");
    let other = json!({ "model": "gpt-5", "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(live.post(CHAT, &other).error(404)["error"]["code"], "model_not_found");
    let large = format!("{{\"user\": \"{}\"}}", "x".repeat(17 << 20));
    assert_eq!(oversize(&live, &large), 413);
    // The id of a request comes back; one that is no plain word is replaced.
    let named = live.ask("GET", "/health", &[("x-request-id", "mine-7")], "");
    assert_eq!(named.header("x-request-id"), Some("mine-7"));
    let spaced = live.ask("GET", "/nowhere", &[("x-request-id", "a b")], "");
    assert!(spaced.header("x-request-id").is_some_and(|id| id.starts_with("req_")));
}

/// The status of a request whose body the server does not read to its end.
fn oversize(live: &Live, body: &str) -> u16 {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(live.address).unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    std::str::from_utf8(&status[9..]).unwrap().parse().unwrap()
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let mut few = options();
    (few.scheduler.max_running, few.scheduler.max_waiting) = (1, 1);
    let live = Live::patient(few);
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 60_000, "ignore_eos": true });
    let _open: Vec<_> = (0..2)
        .map(|count| {
            let open = live.send("POST", CHAT, &[], &body.to_string());
            live.until("it is in", || live.load().running + live.load().waiting > count);
            open
        })
        .collect();
    let refused = live.post(CHAT, &body);
    assert_eq!(refused.error(503)["error"]["code"], "server_busy");
    assert!(refused.header("retry-after").is_some_and(|after| after.parse::<u32>().is_ok()));
}

#[test]
fn keys_are_asked_for_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    let write = |text: &str| {
        // Renamed into place, as editors do.
        let new = folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(new, &file).unwrap();
    };
    write("# people\nfirst-key\n\nsecond-key\n");
    let live = Live::with(samebit_serve::Options { api_key_file: Some(file.clone()), ..options() });
    let status = |headers: &[(&str, &str)]| live.ask("GET", "/v1/models", headers, "").status;
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&[("authorization", "Bearer first-kez")]), 401);
    assert_eq!(status(&[("authorization", "Basic first-key")]), 401);
    assert_eq!(status(&[("x-api-key", "# people")]), 401);
    assert_eq!(status(&[("authorization", "Bearer first-key")]), 200);
    assert_eq!(status(&[("x-api-key", "second-key")]), 200);
    assert_eq!(live.get("/health").json(), json!({ "status": "ok" }));
    let refused = live.ask("POST", "/v1/messages", &[], "{}").error(401);
    assert_eq!(refused["error"]["type"], "authentication_error");
    write("third-key\n");
    assert_eq!((status(&[("x-api-key", "third-key")]), status(&[("x-api-key", "first-key")])), (200, 401));
    // A file that became useless takes nobody's key away.
    write("\n");
    assert_eq!(status(&[("x-api-key", "third-key")]), 200);
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "key\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let checkpoint = samebit_checkpoint::Checkpoint::open(support::model_folder()).unwrap();
    let cpu = samebit_arith::Cpu::new(samebit_arith::Isa::detect(), 1).unwrap();
    let checkpoint = std::sync::Arc::new(checkpoint);
    let model = samebit_models::Model::load(std::sync::Arc::clone(&checkpoint), &cpu, &mut |_| {}).unwrap();
    let options = samebit_serve::Options { api_key_file: Some(file), ..options() };
    let refused = samebit_serve::Server::new(std::sync::Arc::new(model), cpu, &checkpoint, options);
    assert!(refused.err().unwrap().to_string().contains("chmod 600"));
}
