//! What all requests have in common, whatever they ask: a body of bounded length that comes in time, and is JSON.

use crate::json;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
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
/// It is too long, doesn't come, or breaks off. One that says so of itself is refused before any of it is awaited.
pub async fn whole(body: Incoming) -> Result<Bytes, Problem> {
    let too_long = || {
        let cause = format!("it is longer than {BODY_BYTES_MAX} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", cause, "send less")
    };
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    match timeout(BODY_PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(error)) => {
            let remedy = "send as many bytes as Content-Length says";
            Err(Problem::new(StatusCode::BAD_REQUEST, "body", error.to_string(), remedy))
        }
        Err(_) => {
            let remedy = format!("send it within {} s", BODY_PATIENCE.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body", "it doesn't come", remedy))
        }
    }
}

/// Whether a head announces a body that isn't empty.
pub fn has_body(headers: &HeaderMap) -> bool {
    let is_empty = |length: &http::HeaderValue| length.as_bytes() == b"0";
    headers.contains_key(TRANSFER_ENCODING) || headers.get(CONTENT_LENGTH).is_some_and(|len| !is_empty(len))
}

/// Refuses a head that two readers would read differently, or that announces a body in a form that isn't understood here.
///
/// # Errors
/// HTTP/1.1 without `Host`, two of them, or a transfer coding other than `chunked`.
pub fn sound(parts: &Parts) -> Result<(), Problem> {
    let hosts = parts.headers.get_all(HOST).iter().count();
    let cause = match hosts {
        0 if parts.version == Version::HTTP_11 => "it is missing",
        0 | 1 => "",
        _ => "it comes twice",
    };
    if !cause.is_empty() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "host", cause, "send Host: localhost, once"));
    }
    let is_plain = |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if is_plain(coding) => Ok(()),
        _ => {
            let remedy = "send the body as it is, with Content-Length, or chunked";
            let cause = "only chunked is understood";
            Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "transfer-encoding", cause, remedy))
        }
    }
}

/// Refuses a body of another media type than JSON, or one that is coded.
///
/// # Errors
/// It is another, or none; or it is compressed.
pub fn only_json(headers: &HeaderMap) -> Result<(), Problem> {
    let is_identity = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(is_identity) {
        let (place, cause) = ("content-encoding", "the body is coded");
        let remedy = "send it as it is, without Content-Encoding";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, place, cause, remedy));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    let (place, cause) = ("content-type", "the body is no application/json");
    let remedy = "send Content-Type: application/json";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, place, cause, remedy))
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
        let remedy = "omit it: parameters stand in the address";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "body", "a GET has no body", remedy));
    }
    only_json(&parts.headers)?;
    json::read(&bytes)
}

/// The refusal of a path that no route has.
pub fn no_such_path(path: &str) -> Problem {
    let remedy = "see GET /api/v1/openapi.json";
    Problem::new(StatusCode::NOT_FOUND, "path", format!("there is no {path}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use http::header::HeaderName;
    use std::slice::from_ref;

    fn parts(version: Version, headers: &[(HeaderName, &str)]) -> Parts {
        let mut request = Request::builder().version(version);
        for (header, text) in headers {
            request = request.header(header, *text);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_head_that_could_be_read_in_two_ways_is_refused() {
        let status = |version, headers: &[(HeaderName, &str)]| {
            sound(&parts(version, headers)).map_or_else(|problem| problem.status.as_u16(), |()| 200)
        };
        let (new, host) = (Version::HTTP_11, (HOST, "x"));
        assert_eq!((status(new, &[]), status(Version::HTTP_10, &[])), (400, 200));
        assert_eq!((status(new, from_ref(&host)), status(new, &[host.clone(), host.clone()])), (200, 400));
        for (coding, expected) in [("chunked", 200), ("Chunked", 200), ("gzip, chunked", 501), ("gzip", 501)]
        {
            assert_eq!(status(new, &[host.clone(), (TRANSFER_ENCODING, coding)]), expected, "{coding}");
        }
        let twice = [host, (TRANSFER_ENCODING, "gzip"), (TRANSFER_ENCODING, "chunked")];
        assert_eq!(status(new, &twice), 501);
    }

    #[test]
    fn a_body_is_plain_json() {
        let json = (CONTENT_TYPE, "application/json; charset=utf-8");
        let check = |headers: &[(HeaderName, &str)]| {
            let headers = parts(Version::HTTP_11, headers).headers;
            only_json(&headers).map_err(|problem| problem.faults[0].place.clone())
        };
        assert_eq!(check(from_ref(&json)), Ok(()));
        assert_eq!(check(&[json.clone(), (CONTENT_ENCODING, "identity")]), Ok(()));
        for coding in ["gzip", "identity, gzip", ""] {
            let coded = check(&[json.clone(), (CONTENT_ENCODING, coding)]);
            assert_eq!(coded, Err("content-encoding".to_string()));
        }
        assert_eq!(check(&[]), Err("content-type".to_string()));
    }
}
