//! Connections: how large a request's head may be, how long one may do nothing, and what becomes of slow ones.

use crate::body::{Body, refusal};
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use scope_api::Problem;
use scope_api::problem::MEDIA_TYPE;
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes of a request's head: of its first line and its headers.
pub const HEAD_BYTES_MAX: usize = 32 << 10;
/// Its headers.
pub const HEADERS_MAX: usize = 64;
/// The same for the HTTP library, which refuses what is beyond with an empty body: more, so that a head that is too long, but
/// not absurdly so, is told why.
const READ_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;
const READ_HEADERS_MAX: usize = 4 * HEADERS_MAX;
/// So long a request's head may take.
pub const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// And a client that takes nothing.
const STALL_PATIENCE: Duration = Duration::from_secs(30);
/// A moment, where the system gives no more descriptors, and for a last word.
pub const PAUSE: Duration = Duration::from_millis(200);
/// What a connection hears that is one too many, and why it is; whole, since nothing of it is read.
pub fn full(cause: &str) -> Vec<u8> {
    let remedy = "ask again in a second, and close connections that aren't needed";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "connection", cause, remedy);
    let body = format!("{}\n", problem.json());
    let len = body.len();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncache-control: no-store";
    format!("{head}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len}\r\n\r\n{body}").into_bytes()
}

/// Why a head is refused that came in as a whole.
fn head_problem<B>(request: &Request<B>) -> Option<Problem> {
    let too_large = |cause, remedy: String| {
        Some(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers", cause, remedy))
    };
    let count = request.headers().len();
    if count > HEADERS_MAX {
        return too_large(format!("there are {count}"), format!("send at most {HEADERS_MAX}"));
    }
    // With what stands between names, values and lines.
    let line = request.method().as_str().len() + request.uri().to_string().len() + " HTTP/1.1\r\n".len() + 1;
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let bytes = line + headers.sum::<usize>() + 2;
    if bytes > HEAD_BYTES_MAX {
        let remedy = format!("send at most {HEAD_BYTES_MAX} bytes of first line and headers");
        return too_large(format!("the head has {bytes} bytes"), remedy);
    }
    None
}

/// Why a connection ended before its time. All but [`Broken::Other`] are bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A request's head was too long, or had too many headers.
    Head,
    /// A head didn't come in time.
    Slow,
    /// The client took nothing for too long.
    Stalled,
    /// The client went away, or sent no HTTP: its own affair.
    Other,
}

/// Answers the requests of a connection until that ends.
///
/// # Errors
/// It ended before its time.
pub async fn connection<S, F>(
    stream: Patient<S>,
    answer: impl Fn(Request<Incoming>) -> F,
) -> Result<(), Broken>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<Body>>,
{
    let is_too_large = AtomicBool::new(false);
    let service = service_fn(|request| {
        let answer = match head_problem(&request) {
            None => Ok(answer(request)),
            Some(problem) => {
                is_too_large.store(true, Ordering::Relaxed);
                let mut refused = refusal(&problem);
                refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                Err(refused)
            }
        };
        async move {
            Ok::<_, Infallible>(match answer {
                Ok(answer) => answer.await,
                Err(refused) => refused,
            })
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_headers(READ_HEADERS_MAX)
        .max_buf_size(READ_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if is_too_large.load(Ordering::Relaxed) {
        return Err(Broken::Head);
    }
    served.map_err(|error| {
        let stalled = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        match () {
            () if stalled.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) => Broken::Stalled,
            () if error.is_parse_too_large() => Broken::Head,
            () if error.is_timeout() => Broken::Slow,
            () => Broken::Other,
        }
    })
}

/// A connection that ends when its client takes nothing for too long.
pub struct Patient<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    /// Of this stream.
    pub fn new(stream: S) -> Patient<S> {
        Patient { stream, stalled: None }
    }

    /// A write that waits ends with an error in time.
    fn checked<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL_PATIENCE)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.checked(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.checked(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.checked(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.checked(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
