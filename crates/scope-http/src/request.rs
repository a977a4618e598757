//! What all requests have in common, whatever they ask: a body of bounded length that comes in time, and is JSON.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use scope_api::Problem;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// So long it may take.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// A request's body.
///
/// # Errors
/// It is too long, doesn't come, or breaks off.
pub async fn whole(body: Incoming) -> Result<Bytes, Problem> {
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

/// Whether a head announces a body that isn't empty.
pub fn has_body(headers: &HeaderMap) -> bool {
    let is_empty = |length: &http::HeaderValue| length.as_bytes() == b"0";
    headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|len| !is_empty(len))
}

/// Refuses a body of another media type than JSON.
///
/// # Errors
/// It is another, or none.
pub fn only_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is no application/json");
    Err(problem.at("content-type").remedy("send Content-Type: application/json"))
}

/// What a request's body says; `Null`: it has none.
///
/// # Errors
/// It can't be had, or is no JSON.
pub async fn understood(parts: &Parts, body: Incoming) -> Result<Value, Problem> {
    let bytes = whole(body).await?;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if parts.method == Method::GET || parts.method == Method::HEAD {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "a GET has no body").at("body"));
    }
    only_json(&parts.headers)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()).at("body"))
}

/// The refusal of a path that no route has.
pub fn no_such_path(path: &str) -> Problem {
    let problem = Problem::new(StatusCode::NOT_FOUND, format!("there is no {path}"));
    problem.remedy("see GET /api/v1/openapi.json")
}
