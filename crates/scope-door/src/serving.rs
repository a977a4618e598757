//! Connections: how many there may be, how long one may do nothing, and each request's way to its answer.

use crate::answers::{self, Asked};
use crate::audit::Noted;
use crate::body::{Body, refusal};
use crate::given::Later;
use crate::peer::{Peer, Rules};
use crate::state::{ORDERS_MAX, State};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use scope_api::Problem;
use scope_api::routes::{Found, ROUTES, Route, find};
use scope_events::now_ns;
use serde_json::Value;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep, timeout};

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head, its headers, and bytes of its body.
const HEAD_BYTES_MAX: usize = 32 << 10;
const HEADERS_MAX: usize = 64;
const BODY_BYTES_MAX: usize = 64 << 10;
/// So long a request's head, its body, and a client that takes nothing may take.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
const BODY_PATIENCE: Duration = Duration::from_secs(10);
const STALL_PATIENCE: Duration = Duration::from_secs(30);
/// So long answers that are under way may go on when the run is over.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// Where the system gives no more descriptors.
const PAUSE: Duration = Duration::from_millis(200);
/// What one too many hears.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves until `stopped` says so; what is under way then has a moment, and is dropped with its runtime.
pub(crate) async fn serve(
    listener: UnixListener,
    state: &Arc<State>,
    rules: Rules,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => {
                let connections = places.acquire_many(CONNECTIONS_MAX as u32);
                let orders = state.orders.acquire_many(ORDERS_MAX as u32);
                let _ = timeout(END_PATIENCE, async { tokio::join!(connections, orders) }).await;
                // Answers that would take longer break off, and are noted.
                state.questions.end();
                let _ = timeout(END_PATIENCE, state.orders.acquire_many(ORDERS_MAX as u32)).await;
                return;
            }
        };
        let Ok((mut stream, _)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            state.counts.connections_refused.fetch_add(1, Ordering::Relaxed);
            let _ = timeout(PAUSE, stream.write_all(FULL)).await;
            continue;
        };
        let Ok(peer) = rules.peer(&stream) else { continue };
        let state = state.clone();
        tokio::spawn(async move {
            connection(stream, &state, &peer).await;
            drop(place);
        });
    }
}

async fn connection(stream: UnixStream, state: &Arc<State>, peer: &Peer) {
    let service = service_fn(|request| async {
        let answer = answer(request, state, peer).await.unwrap_or_else(|problem| refusal(&problem));
        state.counts.answered(answer.status().as_u16());
        Ok::<_, Infallible>(answer)
    });
    let io = TokioIo::new(Patient { stream, stalled: None });
    // It ends with an error where the client went away, sent no HTTP, or was too slow: its own affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(io, service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    state: &Arc<State>,
    peer: &Peer,
) -> Result<Response<Body>, Problem> {
    state.rates.admit(&format!("uid {}", peer.uid), Instant::now())?;
    let (parts, body) = request.into_parts();
    let (route, parameters) = match find(&parts.method, parts.uri.path()) {
        Found::Route(at, parameters) => (&ROUTES[at], parameters),
        Found::None => {
            let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no {}", parts.uri.path()));
            return Err(problem.remedy("see GET /api/v1/openapi.json"));
        }
        Found::Bad(cause) => return Err(Problem::new(StatusCode::BAD_REQUEST, cause).at("path")),
        Found::Other(allow) => {
            let cause = format!("{} has no {}", parts.uri.path(), parts.method);
            return Err(Problem { allow, ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, cause) });
        }
    };
    let body = understood(&parts, body).await;
    if !route.is_audited() {
        return allowed(route, peer, parts, (parameters, body, Arc::default()), state).await;
    }
    let Ok(place) = state.orders.clone().try_acquire_owned() else {
        let cause = format!("{ORDERS_MAX} orders are under way");
        let retry_after_s = Some(1);
        return Err(Problem { retry_after_s, ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, cause) });
    };
    let client = Attending(Arc::default());
    let gone = client.0.clone();
    // An order goes on without its client, so that it is noted whatever becomes of the connection.
    let (state, peer) = (state.clone(), peer.clone());
    let done = tokio::spawn(async move {
        let noted = Noted {
            uid: peer.uid,
            role: peer.role.map_or("none".to_string(), |role| role.to_string()),
            method: parts.method.to_string(),
            path: parts.uri.path().to_string(),
            action: format!("{:?}", route.action),
            what: what(&parts, &body),
            status: 0,
            given: None,
        };
        let mut answer = allowed(route, &peer, parts, (parameters, body, gone), &state).await;
        let status = answer.as_ref().map_or_else(|problem| problem.status, Response::status).as_u16();
        let later = answer.as_mut().ok().and_then(|answer| answer.extensions_mut().remove::<Later>());
        let noted = Noted { status, ..noted };
        match later {
            None => {
                note(&state, noted).await;
                drop(place);
            }
            // What is streamed is noted at its end.
            Some(later) => drop(tokio::spawn(async move {
                let given = later.given().await.map(|given| given.json());
                note(&state, Noted { given, ..noted }).await;
                drop(place);
            })),
        }
        answer
    });
    let answer = done
        .await
        .unwrap_or_else(|_| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the order failed")));
    client.has_its_answer();
    answer
}

/// Says whether a client waits for its answer: dropped before it has it, it went away.
struct Attending(Arc<AtomicBool>);

impl Attending {
    fn has_its_answer(mut self) {
        self.0 = Arc::default();
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What is said in a request: its body, or what stands in its address.
fn what(parts: &Parts, body: &Result<Value, Problem>) -> Value {
    let said = body.as_ref().cloned().unwrap_or_default();
    match parts.uri.query() {
        Some(query) if said.is_null() => {
            let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
            Value::Object(pairs.map(|(key, value)| (key, Value::String(value))).collect())
        }
        _ => said,
    }
}

/// The answer to whoever may ask.
async fn allowed(
    route: &Route,
    peer: &Peer,
    parts: Parts,
    (parameters, body, gone): (Vec<String>, Result<Value, Problem>, Arc<AtomicBool>),
    state: &Arc<State>,
) -> Result<Response<Body>, Problem> {
    if parts.headers.contains_key(ORIGIN) {
        let problem = Problem::new(StatusCode::FORBIDDEN, "a page of another origin asks").at("origin");
        return Err(problem.remedy("ask without a browser"));
    }
    let Some(role) = peer.role.filter(|role| *role >= route.role) else {
        let have = peer.role.map_or("none".to_string(), |role| role.to_string());
        let cause = format!("it needs the role {}; user {} has {have}", route.role, peer.uid);
        return Err(Problem::new(StatusCode::FORBIDDEN, cause).remedy("ask as root, or as the run's user"));
    };
    let query = parts.uri.query().unwrap_or_default();
    let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let is_head = parts.method == Method::HEAD;
    let (action, headers) = (route.action, parts.headers);
    let asked = Asked { action, role, parameters, query, body: body?, headers, is_head, gone };
    answers::answer(state, asked).await
}

/// What a request's body says; `Null`: it has none.
async fn understood(parts: &Parts, body: Incoming) -> Result<Value, Problem> {
    let is_json = || {
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
    };
    let bytes = whole(body).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if parts.method == Method::GET || parts.method == Method::HEAD {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "a GET has no body").at("body"));
    }
    if !is_json() {
        let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is no application/json");
        return Err(problem.at("content-type").remedy("send Content-Type: application/json"));
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()).at("body"))
}

/// Writes a line of the audit, where a slow disk keeps only this client waiting.
async fn note(state: &Arc<State>, noted: Noted) {
    let state = state.clone();
    let written = tokio::task::spawn_blocking(move || {
        if let Some(audit) = &state.audit {
            audit.note(&noted, now_ns());
        }
    });
    let _ = written.await; // it fails only where the run ends, and its runtime with it
}

/// A request's body.
async fn whole(body: Incoming) -> Result<Bytes, Problem> {
    match timeout(BODY_PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let cause = format!("it is longer than {BODY_BYTES_MAX} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, cause).at("body"))
        }
        Ok(Err(error)) => Err(Problem::new(StatusCode::BAD_REQUEST, error.to_string()).at("body")),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "it doesn't come").at("body")),
    }
}

/// A connection that ends when its client takes nothing for too long.
struct Patient {
    stream: UnixStream,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
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

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.checked(polled, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
