//! A hub of a few lines: files under addresses, and a list of misdeeds to commit on the way.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the server does with one request; requests beyond the list are served well.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// Serves the file, or the range of it that was asked for.
    Serve,
    /// Promises all, sends this many bytes and hangs up.
    HangUpAfter(usize),
    /// Serves the whole file, whatever range was asked for.
    IgnoreRange,
    /// This status and nothing else.
    Status(u16),
    /// Sends the client elsewhere.
    RedirectTo(String),
}

/// A request as it arrived.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) range: Option<String>,
    pub(super) authorization: Option<String>,
}

#[derive(Default)]
struct Shared {
    files: HashMap<String, Vec<u8>>,
    acts: VecDeque<Act>,
    seen: Vec<Seen>,
}

/// The server: it answers until the test ends.
pub(super) struct Server {
    pub(super) endpoint: String,
    shared: Arc<Mutex<Shared>>,
}

impl Server {
    pub(super) fn start<const N: usize>(files: [(&str, &[u8]); N], acts: &[Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
        let shared = Shared { files, acts: acts.iter().cloned().collect(), seen: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let for_server = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&for_server);
                // A client that hangs up is nothing to complain about.
                thread::spawn(move || drop(answer(stream, &shared)));
            }
        });
        Self { endpoint, shared }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.lock().unwrap().seen.clone()
    }
}

fn answer(mut stream: TcpStream, shared: &Mutex<Shared>) -> std::io::Result<()> {
    let request = read_request(&stream)?;
    let (act, file) = {
        let mut shared = shared.lock().unwrap();
        shared.seen.push(request.clone());
        (shared.acts.pop_front().unwrap_or(Act::Serve), shared.files.get(&request.path).cloned())
    };
    let file = match (&act, file) {
        (Act::Status(_) | Act::RedirectTo(_), _) => Vec::new(),
        (_, Some(file)) => file,
        (_, None) => return status(&mut stream, 404),
    };
    let start = request.range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match act {
        Act::Status(code) => status(&mut stream, code),
        Act::RedirectTo(to) => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        }
        Act::IgnoreRange => send(&mut stream, &file, None, file.len()),
        Act::HangUpAfter(bytes) => send(&mut stream, &file, start, bytes),
        Act::Serve => send(&mut stream, &file, start, file.len()),
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Seen> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut seen = Seen { path: first.split(' ').nth(1).unwrap_or_default().to_owned(), ..Seen::default() };
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => seen.range = Some(value.to_owned()),
            "authorization" => seen.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok(seen)
}

fn status(stream: &mut TcpStream, code: u16) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {code} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn send(stream: &mut TcpStream, file: &[u8], start: Option<usize>, bytes: usize) -> std::io::Result<()> {
    let total = file.len();
    let head = match start {
        Some(start) if start >= total => {
            return write!(
                stream,
                "HTTP/1.1 416 Said\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\n\r\n"
            );
        }
        Some(start) => format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}", total - 1),
        None => "200 OK".to_owned(),
    };
    let body = &file[start.unwrap_or(0)..];
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(&body[..bytes.min(body.len())])
}
