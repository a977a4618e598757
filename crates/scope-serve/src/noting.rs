//! What this door refuses is told to the run that was meant, for its audit: by whom, what, and the status.

use crate::settings::Instance;
use crate::tokens::Token;
use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderValue, Request};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use scope_api::routes::{Found, ROUTES, find};
use scope_api::{Problem, Refused};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// So long a run may take to hear of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells the run, where it is nothing that anybody may ask; whether it has heard.
pub(crate) async fn note(
    instance: &Instance,
    (parts, target): (&Parts, &str),
    token: Option<&Token>,
    problem: &Problem,
) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let is_audited = match find(&parts.method, path) {
        Found::Route(at, _) => ROUTES[at].is_audited(),
        Found::Bad(_) => true,
        Found::None | Found::Other(_) => false,
    };
    if !is_audited {
        return true;
    }
    let Ok(mut request) =
        Request::builder().method(parts.method.clone()).uri(target).body(Full::new(Bytes::new()))
    else {
        return false;
    };
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    let name = token.map(|token| token.name.clone());
    Refused { name, status: problem.status }.write(request.headers_mut());
    let told = async {
        let stream = UnixStream::connect(&instance.path).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection); // it ends with the answer
        let answer = sender.send_request(request).await.ok()?;
        answer.status().is_success().then_some(())
    };
    matches!(timeout(PATIENCE, told).await, Ok(Some(())))
}
