//! A server of the library that Wirescope's is made of, which does nothing but answer: what its status is held against.

use anyhow::Result;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// As Wirescope gives a head.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// Serves `body` at a socket while `task` runs.
///
/// # Errors
/// The system's, and those of `task`.
pub fn during<T>(socket: &Path, body: Vec<u8>, task: impl FnOnce() -> Result<T>) -> Result<T> {
    let (end, ended) = oneshot::channel::<()>();
    let (listening, listens) = mpsc::channel();
    let body = Bytes::from(body);
    std::thread::scope(|scope| {
        let server = scope.spawn(move || -> Result<()> {
            let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
            runtime.block_on(async {
                let listener = UnixListener::bind(socket)?;
                let _ = listening.send(());
                tokio::select! {
                    served = serve(listener, body) => served,
                    _ = ended => Ok(()),
                }
            })
        });
        let outcome = match listens.recv() {
            Ok(()) => task(),
            Err(_) => Err(anyhow::anyhow!("the bare server didn't begin")),
        };
        drop(end);
        let served = server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served.and(outcome)
    })
}

async fn serve(listener: UnixListener, body: Bytes) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let body = body.clone();
        let answer = service_fn(move |_: Request<Incoming>| {
            let body = Full::new(body.clone());
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
        tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
    }
}
