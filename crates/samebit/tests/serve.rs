//! `samebit serve` as a process: it says where it is, tells systemd, answers, and ends when it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

fn answer(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_serves_until_it_is_told_to_end() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/llama/model");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_samebit"))
        .arg("serve")
        .arg(&model)
        .args(["--port", "0", "--json", "--threads", "1", "--state-mib", "64"])
        .env("NOTIFY_SOCKET", &socket)
        .env("XDG_CACHE_HOME", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(server.stdout.take().unwrap());
    let mut text = String::new();
    while !text.ends_with("}\n") {
        assert!(told.read_line(&mut text).unwrap() > 0, "it ended: {text}");
    }
    let started: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(started["context"], 256);
    let address = started["address"].as_str().unwrap();
    let mut state = [0; 64];
    let length = systemd.recv(&mut state).unwrap();
    assert_eq!(&state[..length], b"READY=1");

    let body = r#"{"messages":[{"role":"user","content":"the"}],"max_tokens":3}"#;
    let chat = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply = answer(address, &chat);
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("\"token_sha\""), "{reply}");

    Command::new("kill").arg("-TERM").arg(server.id().to_string()).status().unwrap();
    let length = systemd.recv(&mut state).unwrap();
    assert_eq!(&state[..length], b"STOPPING=1");
    let mut log = String::new();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(server.wait().unwrap().success(), "{log}");
    assert!(log.contains("POST /v1/chat/completions 200"), "{log}");
    assert!(!log.contains("the\""), "the log holds what was asked: {log}");
}
