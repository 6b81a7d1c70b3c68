//! A live server over a tiny model, and a client that sees every byte.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use samebit_arith::{Cpu, Isa, KvType};
use samebit_checkpoint::Checkpoint;
use samebit_engine::{BankOptions, Load, SchedulerOptions};
use samebit_models::Model;
use samebit_serve::{Options, Server};
use serde_json::Value;
use tokio::sync::oneshot;

/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub struct Live {
    pub address: SocketAddr,
    load: Box<dyn Fn() -> Load>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub fn model_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/llama/model")
}

pub fn model() -> Model {
    let checkpoint = Arc::new(Checkpoint::open(model_folder()).unwrap());
    Model::load(checkpoint, &Cpu::new(Isa::Scalar, 1).unwrap(), &mut |_| {}).unwrap()
}

pub fn options() -> Options {
    Options {
        names: vec!["tiny".to_owned(), "owner/tiny".to_owned()],
        scheduler: SchedulerOptions {
            kv: KvType::F16,
            step_rows: 64,
            max_running: 8,
            max_waiting: 8,
            state_bytes: 64 << 20,
            seed_salt: String::new(),
        },
        bank: Some(BankOptions { memory_bytes: 64 << 20, ..BankOptions::default() }),
        weights: Checkpoint::open(model_folder()).unwrap().pins(None, |_, _| {}),
        api_key_file: None,
        notify_socket: None,
        log: false,
        drain: PATIENCE,
    }
}

impl Live {
    pub fn start() -> Self {
        Self::with(options())
    }

    pub fn with(options: Options) -> Self {
        Self::over(&model_folder(), options)
    }

    /// A server whose answers may be so long that none ends before a test is done with it.
    pub fn patient(options: Options) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(model_folder()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let config = copy.path().join("config.json");
        let text = std::fs::read_to_string(&config).unwrap();
        let longer = text.replace("\"max_position_embeddings\": 256", "\"max_position_embeddings\": 65536");
        assert_ne!(text, longer);
        std::fs::write(&config, longer).unwrap();
        Self::over(copy.path(), options)
    }

    pub fn over(folder: &Path, options: Options) -> Self {
        let checkpoint = Arc::new(Checkpoint::open(folder).unwrap());
        let cpu = Cpu::new(Isa::detect(), 2).unwrap();
        let model = Model::load(Arc::clone(&checkpoint), &cpu, &mut |_| {}).unwrap();
        let server = Server::new(Arc::new(model), cpu, &checkpoint, options).unwrap();
        let load = Box::new(server.load());
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                ready.send(listener.local_addr().unwrap()).unwrap();
                let stop = async {
                    let _ = stopped.await;
                };
                server.run(listener, stop).await.unwrap();
            });
        });
        Self { address: address.recv().unwrap(), load, stop: Some(stop), thread: Some(thread) }
    }

    pub fn load(&self) -> Load {
        (self.load)()
    }

    /// Tells it to end, and returns at once.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until it has ended.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let since = Instant::now();
        while !holds() {
            assert!(since.elapsed() < PATIENCE, "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a request and leaves the connection open.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut bytes = Vec::new();
        self.send(method, path, headers, body).read_to_end(&mut bytes).unwrap();
        Answer::parse(&bytes)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], &body.to_string())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(std::thread::panicking() || result.is_ok());
        }
    }
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { unchunked(body) } else { body.to_owned() };
        Self { status, head: head.to_owned(), body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The JSON of a good answer.
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// The JSON of an error of this status.
    pub fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// The events of a stream: names (empty without one) and data.
    pub fn events(&self) -> Vec<(String, String)> {
        assert_eq!(self.status, 200, "{self:?}");
        let blocks =
            self.body.split("\n\n").filter(|block| !block.trim().is_empty() && !block.starts_with(':'));
        blocks
            .map(|block| {
                let field =
                    |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                (field("event: ").to_owned(), field("data: ").to_owned())
            })
            .collect()
    }

    /// The JSON objects of a stream that ends with `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        let mut events = self.events();
        assert_eq!(events.pop().unwrap().1, "[DONE]");
        events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect()
    }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body += &after[..size];
        rest = after[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            break;
        }
    }
    body
}
