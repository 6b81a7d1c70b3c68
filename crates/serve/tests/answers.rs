//! Answers over HTTP: the same whole and streamed, alone and in company, and cancelled when nobody listens.

mod support;

use std::time::Duration;

use samebit_arith::{Cpu, Isa};
use samebit_engine::{BankOptions, DiskOptions};
use samebit_serve::Options;
use serde_json::{Value, json};
use support::{Live, options};

fn chat(text: &str, more: &Value) -> Value {
    let mut body = json!({
        "model": "tiny",
        "messages": [{ "role": "user", "content": text }],
        "max_tokens": 12,
        "ignore_eos": true,
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn sampled(seed: u64) -> Value {
    json!({ "temperature": 1.3, "top_p": 0.95, "top_k": 50, "min_p": 0.01, "seed": seed })
}

/// What makes two answers the same.
fn identity(samebit: &Value) -> [Value; 4] {
    assert!(samebit["chain"].as_str().is_some_and(|chain| chain.len() == 64), "{samebit}");
    ["token_sha", "chain", "seed", "plan_id"].map(|name| samebit[name].clone())
}

#[test]
fn a_stream_says_what_the_whole_answer_says() {
    let live = Live::start();
    for more in [json!({}), sampled(7), json!({ "stop": ["e"], "temperature": 1.0, "seed": 3 })] {
        let whole = live.post("/v1/chat/completions", &chat("the world", &more)).json();
        let choice = &whole["choices"][0];
        let mut body = chat("the world", &more);
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        let chunks = live.post("/v1/chat/completions", &body).chunks();
        let (usage, chunks) = chunks.split_last().unwrap();
        assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        let text: String =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
        let last = chunks.last().unwrap();
        assert_eq!(text, choice["message"]["content"].as_str().unwrap());
        assert_eq!(last["choices"][0]["finish_reason"], choice["finish_reason"]);
        assert_eq!(last["choices"][0]["stop_reason"], choice["stop_reason"]);
        assert_eq!(identity(&last["samebit"]), identity(&whole["samebit"]));
        for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(usage["usage"][name], whole["usage"][name]);
        }
        // What was computed for the whole answer serves the stream, and changes nothing.
        assert!(last["samebit"]["cached_tokens"].as_u64() > Some(0), "{last}");
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(whole["samebit"]["draft"]["accepted"], 0);
    }
}

#[test]
fn eight_clients_get_what_each_gets_alone() {
    let live = Live::start();
    let (model, cpu) = (support::model(), Cpu::new(Isa::Scalar, 1).unwrap());
    let pins = options().weights;
    let texts = ["the", "a cat", "hello world", "你好", "12345", "naïve", "one two three four five", "x"];
    let body = |index: usize| {
        let more = if index.is_multiple_of(2) { json!({}) } else { sampled(index as u64) };
        chat(texts[index], &more)
    };
    let solo: Vec<Value> =
        (0..8).map(|index| live.post("/v1/chat/completions", &body(index)).json()).collect();
    let mut widest = 0;
    for _ in 0..3 {
        let together: Vec<Value> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|index| {
                    let (address, body) = (live.address, body(index));
                    scope.spawn(move || support_post(address, &body))
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        for (alone, beside) in solo.iter().zip(&together) {
            assert_eq!(identity(&alone["samebit"]), identity(&beside["samebit"]));
            assert_eq!(alone["choices"], beside["choices"]);
            let id = beside["samebit"]["receipt_id"].as_str().unwrap();
            let receipt = live.get(&format!("/v1/receipts/{id}")).json();
            widest = widest.max(receipt["path"]["widest_pass"].as_u64().unwrap());
            // And a stranger, with one thread and nothing cached, gets them again.
            let replayed = samebit_engine::receipt::verify(&receipt, &model, &cpu, &pins).unwrap();
            assert_eq!((replayed.differences, replayed.steps), (Vec::new(), 12));
        }
    }
    assert!(widest > 1, "no two requests ever shared a pass: {widest}");
}

/// A client of its own connection, on whatever thread.
fn support_post(address: std::net::SocketAddr, body: &Value) -> Value {
    use std::io::{Read, Write};
    let body = body.to_string();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn choices_take_seeds_in_turn() {
    let live = Live::start();
    let mut more = sampled(20);
    more["n"] = json!(3);
    let several = live.post("/v1/chat/completions", &chat("the", &more)).json();
    assert_eq!(several["choices"].as_array().unwrap().len(), 3);
    for index in 0..3 {
        let alone = live.post("/v1/chat/completions", &chat("the", &sampled(20 + index))).json();
        let choice = &several["choices"][index as usize];
        assert_eq!(choice["index"], index);
        assert_eq!(identity(&choice["samebit"]), identity(&alone["samebit"]));
    }
    // A prompt is counted once, however many choices it has.
    let alone = live.post("/v1/chat/completions", &chat("the", &sampled(20))).json();
    assert_eq!(several["usage"]["prompt_tokens"], alone["usage"]["prompt_tokens"]);
    assert_eq!(several["usage"]["completion_tokens"], 36);
}

#[test]
fn a_completion_of_ids_is_that_of_its_text() {
    let live = Live::start();
    let ids = live.post("/tokenize", &json!({ "prompt": "the world" })).json();
    assert_eq!(ids["max_model_len"], 256);
    let complete = |prompt: Value| {
        let body = json!({ "prompt": prompt, "max_tokens": 6, "temperature": 0 });
        live.post("/v1/completions", &body).json()
    };
    let (text, by_ids) = (complete(json!("the world")), complete(ids["tokens"].clone()));
    assert_eq!(identity(&text["samebit"]), identity(&by_ids["samebit"]));
    assert_eq!(text["object"], "text_completion");
    let both = complete(json!(["the world", "a"]));
    assert_eq!(both["choices"][0]["text"], text["choices"][0]["text"]);
    assert_eq!(identity(&both["choices"][0]["samebit"]), identity(&text["samebit"]));

    let back = live.post("/detokenize", &json!({ "tokens": ids["tokens"] })).json();
    assert!(back["prompt"].as_str().unwrap().ends_with("the world"), "{back}");
    let conversation =
        json!({ "messages": [{ "role": "user", "content": "hi" }], "return_token_strs": true });
    let rendered = live.post("/tokenize", &conversation).json();
    assert_eq!(rendered["token_strs"][0], "<|im_start|>");
}

#[test]
fn a_receipt_tells_how_the_answer_was_made() {
    let live = Live::start();
    let reply = live.post("/v1/chat/completions", &chat("the", &sampled(5))).json();
    let id = reply["samebit"]["receipt_id"].as_str().unwrap();
    let answer = live.get(&format!("/v1/receipts/{id}"));
    let receipt = answer.json();
    assert_eq!(receipt["result"]["token_sha"], reply["samebit"]["token_sha"]);
    assert_eq!(receipt["result"]["chain"], reply["samebit"]["chain"]);
    assert_eq!(receipt["inputs"]["sampling"]["temperature_bits"], format!("{:016x}", 1.3f64.to_bits()));
    assert_eq!(receipt["inputs"]["weights"].as_array().unwrap().len(), 3);
    // Canonical: as written it is its own id, and no number has a fraction.
    let digest = <sha2::Sha256 as sha2::Digest>::digest(&answer.body);
    assert!(samebit_checkpoint::hex(&digest).starts_with(id));
    live.get("/v1/receipts/0000").error(404);
}

#[test]
fn who_goes_away_is_not_computed_for() {
    let live = Live::patient(options());
    for streams in [true, false] {
        let mut body = chat("the world", &json!({ "max_tokens": 60_000, "stream": streams }));
        // Several at once, some of which wait.
        body["n"] = json!(8);
        let connection = live.send("POST", "/v1/chat/completions", &[], &body.to_string());
        live.until("the request runs", || live.load().running > 0);
        drop(connection);
        live.until("the request is gone", || live.load().running + live.load().waiting == 0);
    }
    let metrics = live.get("/metrics").body;
    let aborted =
        metrics.lines().find(|line| line.contains("vllm:request_success_total") && line.contains("abort"));
    assert!(aborted.is_some_and(|line| !line.ends_with(" 0")), "{metrics}");
}

#[test]
fn draining_finishes_what_runs() {
    let mut live = Live::patient(Options { drain: Duration::from_secs(60), ..options() });
    // Long enough that the test sees it run, whatever else the machine does.
    let body = chat("the world", &json!({ "max_tokens": 4000, "n": 8, "stream": true }));
    let mut running = live.send("POST", "/v1/chat/completions", &[], &body.to_string());
    live.until("the request runs", || live.load().running > 0);
    live.stop();
    live.until("it is no longer ready", || live.get("/readyz").status == 503);
    let refused = live.post("/v1/chat/completions", &chat("the", &json!({})));
    assert_eq!(refused.error(503)["error"]["code"], "server_busy");
    assert!(refused.header("retry-after").is_some());
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut running, &mut answer).unwrap();
    assert!(answer.contains("[DONE]"), "the answer was cut off");
    assert_eq!(answer.matches("\"finish_reason\":\"length\"").count(), 8);
    live.join();
}

#[test]
fn a_second_turn_reuses_the_first_and_only_its_own_tenant_does() {
    let live = Live::start();
    let turn = |salt: &str, messages: &Value| {
        let body = json!({
            "messages": messages, "max_tokens": 6, "ignore_eos": true, "temperature": 1.1, "seed": 9, "cache_salt": salt,
        });
        live.post("/v1/chat/completions", &body).json()
    };
    let first = json!([{ "role": "user", "content": "the world" }]);
    let said = turn("a", &first)["choices"][0]["message"].clone();
    let second = json!([first[0], said, { "role": "user", "content": "a" }]);
    let resumed = turn("a", &second);
    let cached = resumed["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 0, "{resumed}");
    assert_eq!(resumed["samebit"]["cache_source"], "memory");
    let other = turn("b", &second);
    assert_eq!(other["samebit"]["cached_tokens"], 0);
    assert_eq!(other["samebit"]["cache_miss_reason"], "new_session");
    assert_eq!(identity(&resumed["samebit"]), identity(&other["samebit"]));
}

#[test]
fn a_restarted_server_goes_on_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let disk = DiskOptions { min_free_bytes: 0, ..DiskOptions::new(folder.path()) };
        let bank = BankOptions { memory_bytes: 64 << 20, disk: Some(disk), ..BankOptions::default() };
        Live::with(Options { bank: Some(bank), ..options() })
    };
    let ask = |live: &Live, messages: &Value| {
        let body = json!({ "messages": messages, "max_tokens": 6, "ignore_eos": true, "temperature": 1.1 });
        live.post("/v1/chat/completions", &body).json()
    };
    let first = json!([{ "role": "user", "content": "the world" }]);
    let mut live = start();
    let said = ask(&live, &first)["choices"][0]["message"].clone();
    let second = json!([first[0], said, { "role": "user", "content": "a" }]);
    live.stop();
    live.join();

    let reopened = ask(&start(), &second);
    assert_eq!(reopened["samebit"]["cache_source"], "disk", "{reopened}");
    let cached = reopened["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 0);
    let fresh = ask(&Live::with(Options { bank: None, ..options() }), &second);
    assert_eq!(fresh["samebit"]["cached_tokens"], 0);
    assert_eq!(identity(&reopened["samebit"]), identity(&fresh["samebit"]));
}

#[test]
fn probabilities_are_told_of_every_token() {
    let live = Live::start();
    let mut body = chat("the", &json!({ "logprobs": true, "top_logprobs": 3 }));
    let whole = live.post("/v1/chat/completions", &body).json();
    let tokens = whole["choices"][0]["logprobs"]["content"].as_array().unwrap().clone();
    assert_eq!(tokens.len(), 12);
    for token in &tokens {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        // Greedy: the chosen token is the most probable one.
        assert_eq!((&top[0]["token"], &top[0]["logprob"]), (&token["token"], &token["logprob"]));
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
    }
    body["stream"] = json!(true);
    let chunks = live.post("/v1/chat/completions", &body).chunks();
    let streamed: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(streamed, tokens);

    let body = json!({ "prompt": "the", "max_tokens": 4, "logprobs": 2, "ignore_eos": true });
    let logprobs = live.post("/v1/completions", &body).json()["choices"][0]["logprobs"].clone();
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(logprobs[name].as_array().unwrap().len(), 4, "{logprobs}");
    }
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
}

#[test]
fn demands_on_text_and_tokens_are_met() {
    let live = Live::start();
    let text = |more: &Value| {
        let reply = live.post("/v1/chat/completions", &chat("the", more)).json();
        reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    for choices in [
        json!({ "guided_choice": ["the", "a"] }),
        json!({ "structured_outputs": { "choice": ["the", "a"] } }),
    ] {
        let mut more = choices;
        more["ignore_eos"] = json!(false);
        assert!(["the", "a"].contains(&text(&more).as_str()));
    }
    assert_eq!(text(&json!({ "guided_regex": "[0-9]{4}", "ignore_eos": false, "temperature": 1 })).len(), 4);
    // A bias of 100 forces a token: 12 times the same one.
    let ids = live.post("/tokenize", &json!({ "prompt": "a", "add_special_tokens": false })).json();
    let id = ids["tokens"].as_array().unwrap().last().unwrap().to_string();
    let mut bias = json!({ "max_tokens": 3 });
    bias["logit_bias"] = json!({ id.clone(): 100 });
    let reply = live.post("/v1/chat/completions", &chat("the", &bias)).json();
    let receipt =
        live.get(&format!("/v1/receipts/{}", reply["samebit"]["receipt_id"].as_str().unwrap())).json();
    assert_eq!(receipt["result"]["ids"], json!(vec![id.parse::<u32>().unwrap(); 3]));
}
