//! One file over HTTP, continued where an earlier attempt stopped.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use indicatif::ProgressBar;
use ureq::http::Response;
use ureq::{Agent, Body};

use super::cache;
use super::error::PullError;
use super::hub::Hub;

/// Attempts in a row that may bring no byte.
const FRUITLESS_ATTEMPTS: u32 = 4;

/// How an attempt ended that did not bring the whole file.
enum Stop {
    /// Trying again may help.
    Transient(String),
    /// Trying again gives the same.
    Final(PullError),
}

impl From<PullError> for Stop {
    fn from(error: PullError) -> Self {
        Self::Final(error)
    }
}

/// Fetches `url` into `partial` until it has `bytes` bytes. What is there already is taken for the beginning of the file
/// and continued with a range request; whatever interrupts the transfer, the bytes so far are kept for the next run.
///
/// Never writes more than `bytes`. The digest is the caller's business.
pub(super) fn download(
    hub: &Hub,
    url: &str,
    partial: &Path,
    bytes: u64,
    bar: &ProgressBar,
) -> Result<(), PullError> {
    let mut fruitless = 0;
    loop {
        let before = cache::length(partial);
        let stop = match attempt(hub, url, partial, bytes, bar) {
            Ok(()) => {
                bar.finish_and_clear();
                return Ok(());
            }
            Err(stop) => stop,
        };
        let reason = match stop {
            Stop::Final(error) => return Err(error),
            Stop::Transient(reason) => reason,
        };
        let have = cache::length(partial);
        fruitless = if have > before { 0 } else { fruitless + 1 };
        if fruitless == FRUITLESS_ATTEMPTS {
            return Err(PullError::Interrupted { url: url.to_owned(), have, reason });
        }
        sleep(Duration::from_millis(250 << fruitless));
    }
}

fn attempt(hub: &Hub, url: &str, partial: &Path, bytes: u64, bar: &ProgressBar) -> Result<(), Stop> {
    let mut file = File::options().create(true).truncate(false).write(true).open(partial);
    let file = file.as_mut().map_err(|error| {
        let again = std::io::Error::new(error.kind(), error.to_string());
        PullError::io("open", partial)(again)
    })?;
    let mut have = cache::length(partial);
    if have > bytes {
        have = 0;
    }
    if have < bytes {
        let (answer, start) = request(hub, url, have, bytes)?;
        have = start;
        file.set_len(have).map_err(PullError::io("shorten", partial))?;
        file.seek(SeekFrom::Start(have)).map_err(PullError::io("write", partial))?;
        bar.set_position(have);
        copy(answer, file, partial, bytes - have, bar)?;
    }
    file.sync_all().map_err(PullError::io("write", partial))?;
    Ok(())
}

/// Asks for the bytes from `have` on; gives the answer and the position at which its body starts.
fn request(hub: &Hub, url: &str, have: u64, bytes: u64) -> Result<(Response<Body>, u64), Stop> {
    let range = (have > 0).then(|| format!("bytes={have}-"));
    let answer = hub.get(url, range.as_deref())?;
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let (start, total) = match answer.status().as_u16() {
        200 => (0, header("content-length").and_then(|length| length.parse().ok())),
        206 => match header("content-range").and_then(content_range) {
            Some((start, total)) if start == have => (start, total),
            _ => return Err(Stop::Transient("the server answered with another part of the file".into())),
        },
        // The server has fewer bytes than are here: say so below, by its own count.
        416 => (have, header("content-range").and_then(|range| range.strip_prefix("bytes */")?.parse().ok())),
        status @ (408 | 429 | 500..=599) => return Err(Stop::Transient(format!("HTTP status {status}"))),
        status => return Err(PullError::Status { url: url.to_owned(), status }.into()),
    };
    match total {
        Some(found) if found != bytes => {
            Err(PullError::WrongSize { url: url.to_owned(), found, expected: bytes }.into())
        }
        _ if answer.status().as_u16() == 416 => {
            Err(PullError::Status { url: url.to_owned(), status: 416 }.into())
        }
        _ => Ok((answer, start)),
    }
}

fn copy(
    answer: Response<Body>,
    file: &mut File,
    partial: &Path,
    wanted: u64,
    bar: &ProgressBar,
) -> Result<(), Stop> {
    let mut body = answer.into_body().into_reader().take(wanted);
    let mut buffer = vec![0; 1 << 18];
    let mut missing = wanted;
    while missing > 0 {
        let count = body.read(&mut buffer).map_err(|error| Stop::Transient(error.to_string()))?;
        if count == 0 {
            return Err(Stop::Transient(format!("the server stopped {missing} bytes early")));
        }
        file.write_all(&buffer[..count]).map_err(PullError::io("write", partial))?;
        bar.inc(count as u64);
        missing -= count as u64;
    }
    Ok(())
}

/// `bytes 5-9/10` as start and total; the total may be `*`.
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}

/// An HTTP client with the given patience that trusts the usual certificate authorities and honours proxy settings.
pub(super) fn agent(connect: Duration, silence: Duration) -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
        .timeout_resolve(Some(connect))
        .timeout_connect(Some(connect))
        .timeout_recv_response(Some(silence))
        .timeout_per_read(Some(silence))
        .user_agent(concat!("samebit/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}
