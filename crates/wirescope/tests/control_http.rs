//! HTTP at the control socket, to the letter: refusals that say where, why and what helps; keys and parameters that come
//! twice; coded bodies; conditions and ranges; and bounds of heads, bodies and connections.

mod run;

use run::asking::{Heard, Running};
use run::{LIMIT, wait_until};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A refusal with this status, whose every fault has a place, a cause and a remedy; the first one this place.
fn refused(heard: &Heard, status: u16, place: &str) {
    assert_eq!(heard.status, status, "{heard:?}");
    assert!(heard.head.contains("content-type: application/problem+json"), "{heard:?}");
    let faults = heard.body["faults"].as_array().expect("faults");
    assert_eq!(faults[0]["place"], place, "{heard:?}");
    for fault in faults {
        for key in ["place", "cause", "remedy"] {
            assert!(fault[key].as_str().is_some_and(|text| !text.is_empty()), "no {key}: {heard:?}");
        }
    }
}

fn with(running: &Running, line: &str, headers: &str, body: &str) -> Heard {
    running.ask(&format!("{line} HTTP/1.1\r\n{headers}connection: close\r\n\r\n{body}"))
}

#[test]
fn each_refusal_has_place_cause_and_remedy() {
    let running = Running::new(&[]);
    for (heard, status, place) in [
        (running.get("nothing"), 404, "path"),
        (running.get("dumps/%00"), 400, "path"),
        (running.get("status?x=1"), 400, "x"),
        (running.get("losses?x=1"), 400, "x"),
        (running.get("dumps?x=1"), 400, "x"),
        (running.get("packets?x=1"), 400, "x"),
        (running.get("dumps/1/file?x=1"), 400, "x"),
        (running.get("dumps?limit=0"), 400, "limit"),
        (running.get("dumps?limit=x"), 400, "limit"),
        (running.get("dumps?complete=x"), 400, "complete"),
        (running.get("dumps/77"), 404, "id"),
        (running.get("dumps/x"), 404, "id"),
        (running.get("dumps/77/file"), 404, "id"),
        (running.get("triggers/none"), 404, "name"),
        (running.delete("holds/7"), 404, "id"),
        (running.delete("triggers/none"), 404, "name"),
        (running.post("triggers/none/fire", ""), 404, "name"),
        (running.post("triggers/none/arm", ""), 404, "name"),
        (running.post("triggers", r#"{"name": "probe", "filter": "udp"}"#), 409, "name"),
        (running.post("triggers", r#"{"name": 7}"#), 400, "name"),
        (running.post("triggers", r#"{"name": "x"}"#), 400, "filter"),
        (running.post("fire", "{"), 400, "body"),
        (running.post("fire", "[]"), 400, "body"),
        (running.post("fire", r#"{"filter": 7}"#), 400, "filter"),
        (running.post("fire", r#"{"filter": "prot 80"}"#), 400, "filter"),
        (running.post("fire", r#"{"wait": 1}"#), 400, "wait"),
        (running.post("fire", r#"{"x": 1}"#), 400, "x"),
        (running.post("holds", r#"{"from": 1, "to": "now"}"#), 400, "from"),
        (running.post("holds", r#"{"from": "@1", "to": "@2"}"#), 400, "store"),
        (running.post("hooks/json/none", "{}"), 404, "name"),
        (running.post("hooks/alertmanager", "{}"), 400, "version"),
        (running.post("reload", ""), 409, "run"),
        (running.post("reload", "{}"), 400, "body"),
        (running.post("fire", &format!("{{\"note\": \"{}\"}}", "x".repeat(70_000))), 413, "body"),
        (with(&running, "GET /api/v1/events", "host: x\r\nlast-event-id: x\r\n", ""), 400, "Last-Event-ID"),
        (with(&running, "GET /api/v1/status", "host: x\r\norigin: http://x\r\n", ""), 403, "origin"),
        (with(&running, "GET /api/v1/status", "host: x\r\ncontent-length: 2\r\n", "{}"), 400, "body"),
        (with(&running, "POST /api/v1/fire", "host: x\r\ncontent-length: 2\r\n", "{}"), 415, "content-type"),
    ] {
        refused(&heard, status, place);
    }
    let wrong = running.post("status", "");
    refused(&wrong, 405, "method");
    assert!(wrong.head.contains("\r\nallow: get"), "{wrong:?}");
    assert_eq!(running.post("triggers/probe/disarm", "").status, 200);
    wait_until("it to be disarmed", || running.get("triggers/probe").body["armed"] == false);
    refused(&running.post("triggers/probe/fire", ""), 409, "trigger");
    running.end();
}

#[test]
fn what_is_said_twice_is_refused_with_its_key() {
    let running = Running::new(&[]);
    for (route, body, key) in [
        ("fire", r#"{"filter": "udp", "filter": "tcp"}"#, "filter"),
        ("fire", r#"{"note": "a", "note": "a"}"#, "note"),
        ("triggers", r#"{"name": "a", "filter": "udp", "name": "b"}"#, "name"),
        ("holds", r#"{"from": "@1", "to": "@2", "to": "@3"}"#, "to"),
        ("hooks/json/probe", r#"{"srcIP": "10.0.0.1", "srcIP": "10.0.0.2"}"#, "srcIP"),
        ("hooks/alertmanager", r#"{"version": "4", "alerts": [], "alerts": []}"#, "alerts"),
    ] {
        refused(&running.post(route, body), 400, key);
    }
    for (route, key) in [
        ("losses?from=-1m&from=-2m", "from"),
        ("dumps?limit=1&limit=2", "limit"),
        ("dumps/1/file?link_type=raw&link_type=raw", "link_type"),
        ("packets?filter=udp&filter=tcp", "filter"),
    ] {
        refused(&running.get(route), 400, key);
    }
    let listed = running.get("dumps?trigger=manual").body;
    assert_eq!(listed["dumps"].as_array().unwrap().len(), 0, "nothing was fired by all that");
    running.end();
}

#[test]
fn heads_and_codings_that_are_not_understood_are_refused() {
    let running = Running::new(&[]);
    let json = "host: x\r\ncontent-type: application/json\r\n";
    let coded = format!("{json}content-encoding: gzip\r\ncontent-length: 2\r\n");
    refused(&with(&running, "POST /api/v1/fire", &coded, "{}"), 415, "content-encoding");
    let plain = format!("{json}content-encoding: identity\r\ncontent-length: 2\r\n");
    assert_eq!(with(&running, "POST /api/v1/fire", &plain, "{}").status, 202);
    let chunks = "2\r\n{}\r\n0\r\n\r\n";
    let chunked = format!("{json}transfer-encoding: chunked\r\n");
    assert_eq!(with(&running, "POST /api/v1/fire", &chunked, chunks).status, 202);
    let both = format!("{json}transfer-encoding: gzip, chunked\r\n");
    refused(&with(&running, "POST /api/v1/fire", &both, chunks), 501, "transfer-encoding");
    refused(&with(&running, "GET /api/v1/version", "", ""), 400, "host");
    refused(&with(&running, "GET /api/v1/version", "host: x\r\nhost: x\r\n", ""), 400, "host");
    assert_eq!(running.ask("GET /api/v1/version HTTP/1.0\r\n\r\n").status, 200, "HTTP/1.0 has no Host");
    running.end();
}

#[test]
fn a_body_that_says_that_it_is_too_long_is_refused_at_once() {
    let running = Running::new(&[]);
    for expect in ["", "expect: 100-continue\r\n"] {
        let mut stream = UnixStream::connect(running.socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = "POST /api/v1/fire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
        let asked = Instant::now();
        write!(stream, "{head}content-length: 1000000000\r\n{expect}\r\n").unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert!(asked.elapsed() < Duration::from_secs(5), "it waited for the body");
        refused(&Heard::of(&heard), 413, "body");
    }
    // One that fits is awaited, and asked for.
    let mut stream = UnixStream::connect(running.socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let head =
        "POST /api/v1/fire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: 2\r\nexpect: 100-continue\r\n\r\n").unwrap();
    let mut begin = [0; 25];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"{}").unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).unwrap();
    assert_eq!(Heard::of(&heard).status, 202);
    running.end();
}

#[test]
fn conditions_and_ranges_of_a_file_are_those_of_rfc_9110() {
    let running = Running::new(&[]);
    wait_until("the first dump", || running.get("dumps/1").body["state"] == "finished");
    let file = running.get("dumps/1/file");
    let len = file.bytes.len();
    let etag = file.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_string();
    let ask =
        |headers: &str| with(&running, "GET /api/v1/dumps/1/file", &format!("host: x\r\n{headers}"), "");
    for known in
        [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}"), format!("\"x\" , W/{etag}"), "*".into()]
    {
        assert_eq!(ask(&format!("if-none-match: {known}\r\n")).status, 304, "{known}");
    }
    assert_eq!(ask(&format!("if-none-match: \"x\"\r\nif-none-match: {etag}\r\n")).status, 304);
    assert_eq!(ask("if-none-match: \"x\", W/\"y\"\r\n").status, 200);
    for known in [etag.clone(), format!("\"x\", {etag}"), "*".into()] {
        assert_eq!(ask(&format!("if-match: {known}\r\n")).status, 200, "{known}");
    }
    refused(&ask("if-match: \"x\"\r\n"), 412, "if-match");
    refused(&ask(&format!("if-match: W/{etag}\r\n")), 412, "if-match");
    let whole = ask("range: bytes=0-99999999999999999999\r\n");
    assert_eq!((whole.status, &whole.bytes), (206, &file.bytes));
    assert!(whole.head.contains(&format!("content-range: bytes 0-{}/{len}", len - 1)), "{whole:?}");
    assert_eq!(ask("range: bytes=0-1\r\nrange: bytes=2-3\r\n").status, 200, "two are none");
    assert_eq!(ask(&format!("range: bytes=0-1\r\nif-range: W/{etag}\r\n")).status, 200);
    assert_eq!(ask(&format!("range: bytes=0-1\r\nif-range: {etag}\r\n")).status, 206);
    let beyond = ask("range: bytes=99999999999999999999-\r\n");
    refused(&beyond, 416, "range");
    assert!(beyond.head.contains(&format!("content-range: bytes */{len}")), "{beyond:?}");
    running.end();
}

#[test]
fn heads_and_connections_have_their_bounds_and_what_is_beyond_is_told() {
    let running = Running::new(&[]);
    let of_bytes = |bytes: usize| {
        let begin = "GET /api/v1/version HTTP/1.1\r\nhost: x\r\nx: ";
        let end = "\r\nconnection: close\r\n\r\n";
        running.ask(&format!("{begin}{}{end}", "x".repeat(bytes - begin.len() - end.len())))
    };
    assert_eq!(of_bytes(32 << 10).status, 200);
    refused(&of_bytes((32 << 10) + 1), 431, "headers");
    refused(&of_bytes(40_000), 431, "headers");
    let of_headers = |count: usize| {
        let more = "x: y\r\n".repeat(count - 2);
        with(&running, "GET /api/v1/version", &format!("host: x\r\n{more}"), "")
    };
    assert_eq!(of_headers(64).status, 200);
    refused(&of_headers(65), 431, "headers");
    refused(&of_headers(99), 431, "headers");
    let half: Vec<UnixStream> = (0..64)
        .map(|_| {
            let mut stream = UnixStream::connect(running.socket()).unwrap();
            stream.write_all(b"GET /api/v1/sta").unwrap();
            stream
        })
        .collect();
    let mut heard = None;
    wait_until("a refusal", || {
        heard = Some(running.get("health/live")).filter(|heard| heard.status == 503);
        heard.is_some()
    });
    let heard = heard.unwrap();
    refused(&heard, 503, "connection");
    assert!(heard.head.contains("\r\nretry-after: 1"), "{heard:?}");
    drop(half);
    running.end();
}
