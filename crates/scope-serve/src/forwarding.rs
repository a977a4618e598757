//! The way to a run and back: a connection for each request, so that a run that is gone, or back again, is met as it is.
//!
//! A request goes on once its body is whole: who sends slowly takes nothing of a run. An answer goes on as it comes, and
//! comes no faster than the client takes it.

use crate::settings::Instance;
use bytes::Bytes;
use http::header::{
    ACCEPT, CONNECTION, CONTENT_TYPE, HOST, IF_MATCH, IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use scope_api::{Identity, PREFIX, Problem};
use std::fmt::Display;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// So long a run may take until it listens to what it is asked.
const PATIENCE: Duration = Duration::from_secs(10);
/// What of a client's head goes on to a run; all else stays here, that which would say who asks included.
const PASSED: [HeaderName; 7] = [
    ACCEPT,
    CONTENT_TYPE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_RANGE,
    RANGE,
    HeaderName::from_static("last-event-id"),
];
/// What of an answer is between a run and this door.
const OWN: [HeaderName; 4] = [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

/// What helps where a run is gone.
const BACK: &str = "ask again once it is back: nothing has to be done here";
/// What helps where its socket is closed to this door.
pub(crate) const MAY_NOT: &str = "begin wirescope serve with the --user whom the run believes, or the run with --serve-user or \
     --control-group for this door's user; that user has to get into the socket's folder, too";

/// What a run is asked.
pub(crate) struct Question<'a> {
    pub method: Method,
    /// With its query.
    pub target: &'a str,
    /// The client's.
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    /// Who asks.
    pub identity: Identity,
}

/// Asks the run.
///
/// # Errors
/// The run is gone, or breaks off: 502 with the reason.
pub(crate) async fn forward(
    instance: &Instance,
    question: Question<'_>,
) -> Result<Response<Incoming>, Problem> {
    let gone = |cause: &dyn Display| {
        let cause = format!("the run at {} doesn't answer: {cause}", instance.name);
        Problem::new(StatusCode::BAD_GATEWAY, &instance.name, cause, BACK)
    };
    let connect = timeout(PATIENCE, UnixStream::connect(&instance.path)).await;
    let stream =
        connect.map_err(|_| gone(&"it takes no connection"))?.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                let cause = format!("the run at {} can't be asked by this door: {error}", instance.name);
                Problem::new(StatusCode::BAD_GATEWAY, &instance.name, cause, MAY_NOT)
            }
            _ => gone(&error),
        })?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| gone(&error))?;
    tokio::spawn(connection); // it ends with the answer, or with whoever gets that
    let request = request(question).map_err(|error| {
        let cause = format!("it can't be asked: {error}");
        Problem::new(StatusCode::BAD_REQUEST, "path", cause, "percent-encode what is no letter or digit")
    })?;
    let mut answer = sender.send_request(request).await.map_err(|error| gone(&error))?;
    for header in OWN {
        answer.headers_mut().remove(header);
    }
    Ok(answer)
}

fn request(question: Question<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
    let Question { method, target, headers, body, identity } = question;
    let mut request = Request::builder().method(method).uri(target).body(Full::new(body))?;
    let own = request.headers_mut();
    own.insert(HOST, HeaderValue::from_static("localhost"));
    for header in PASSED {
        for value in headers.get_all(&header) {
            own.append(&header, value.clone());
        }
    }
    if headers.get(TE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers")) {
        own.insert(TE, HeaderValue::from_static("trailers"));
    }
    identity.write(own);
    Ok(request)
}

/// Has an answer name its places by the route that was asked.
pub(crate) fn relocate<B>(answer: &mut Response<B>, instance: &str) {
    let place = answer.headers().get(LOCATION).and_then(|place| place.to_str().ok());
    if let Some(rest) = place.and_then(|place| place.strip_prefix(PREFIX))
        && let Ok(place) = HeaderValue::from_str(&format!("{PREFIX}/instances/{instance}{rest}"))
    {
        answer.headers_mut().insert(LOCATION, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_api::Role;

    #[test]
    fn who_asks_is_said_here_and_nothing_of_a_client_goes_on_that_needn_t() {
        let mut headers = HeaderMap::new();
        for (header, text) in [
            ("wirescope-name", "root"),
            ("wirescope-role", "admin"),
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("host", "example.com"),
            ("connection", "wirescope-role"),
            ("x-forwarded-for", "1.2.3.4"),
            ("range", "bytes=0-1"),
            ("te", "trailers"),
        ] {
            headers.append(header, HeaderValue::from_static(text));
        }
        let identity = Identity { name: "noc".to_string(), role: Role::Viewer, filter: None };
        let question = Question {
            method: Method::GET,
            target: "/api/v1/dumps?limit=1",
            headers: &headers,
            body: Bytes::new(),
            identity,
        };
        let request = request(question).unwrap();
        assert_eq!(request.uri(), "/api/v1/dumps?limit=1");
        let mut said: Vec<String> = request
            .headers()
            .iter()
            .map(|(header, value)| format!("{header}: {}", value.to_str().unwrap()))
            .collect();
        said.sort();
        assert_eq!(
            said,
            [
                "host: localhost",
                "range: bytes=0-1",
                "te: trailers",
                "wirescope-name: noc",
                "wirescope-role: viewer"
            ]
        );
    }

    #[test]
    fn a_place_is_named_as_it_was_asked() {
        let mut answer = Response::new(());
        answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/api/v1/dumps/7"));
        relocate(&mut answer, "lan");
        assert_eq!(answer.headers()[LOCATION], "/api/v1/instances/lan/dumps/7");
    }
}
