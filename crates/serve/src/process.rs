//! A server as a process: an address, and the signals that end it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::http::outer::log;
use crate::server::{ServeError, Server};

/// Exit code of a process that was told to end twice, as shells have it for Ctrl-C.
const IMPATIENT: i32 = 130;

/// Serves at `address` until SIGTERM or SIGINT: then no request is taken any more, what runs is finished, and the function
/// returns. A second signal ends the process at once. SIGHUP has the API keys read again. `ready` hears the address, whose
/// port the system has chosen where 0 was asked for.
///
/// # Errors
/// When the address cannot be had, or signals cannot be watched.
pub fn serve(server: Server, address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            io::Error::new(error.kind(), format!("{address} cannot be listened at: {error}"))
        })?;
        let stop = stopped()?;
        let mut hangups = signal(SignalKind::hangup())?;
        let reload = server.reload_keys();
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                reload();
            }
        });
        ready(listener.local_addr()?);
        server.run(listener, stop).await
    })
}

/// Ready when the process is told to end.
fn stopped() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
    Ok(async move {
        any(&mut signals).await;
        log(format_args!("finishing what runs; no new requests are taken"));
        tokio::spawn(async move {
            any(&mut signals).await;
            std::process::exit(IMPATIENT);
        });
    })
}

async fn any(signals: &mut [Signal; 2]) {
    let [first, second] = signals;
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}
