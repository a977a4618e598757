//! What a door to the network refuses: what isn't meant for it, what has two meanings, and what is too much or too slow.

mod door;
mod run;

use door::{Heard, Running, Serving};
use run::{LIMIT, wait_until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

const OPERATOR: [&str; 4] = ["--role", "operator", "--name", "op"];

fn door_of(running: &Running, more: &[&str]) -> (String, Serving) {
    (running.token(&OPERATOR), running.serve(more))
}

#[test]
fn what_is_not_meant_for_it_or_not_json_is_refused() {
    let running = Running::new(&[]);
    let (token, serving) = door_of(&running, &["--host", "scope.example"]);
    let head = |first: &str, host: &str, more: &str| {
        format!("{first} HTTP/1.1\r\n{host}authorization: Bearer {token}{more}")
    };
    let get = "GET /api/v1/health/live";
    let post = "POST /api/v1/fire";
    let host = "host: localhost\r\n";
    let json_kind = "\r\ncontent-type: application/json";
    let long = format!("{{\"note\": \"{}\"}}", "x".repeat(70_000));
    for (head, body, status) in [
        (head(get, host, ""), "", 200),
        (head(get, "host: 127.0.0.1:1234\r\n", ""), "", 200),
        (head(get, "host: Scope.Example:8443\r\n", ""), "", 200),
        (head(get, "host: example.com\r\n", ""), "", 421),
        (head(get, "host: 127.0.0.2\r\n", ""), "", 421),
        (head(get, "", ""), "", 400),
        (head(get, "host: localhost\r\nhost: example.com\r\n", ""), "", 400),
        (head("GET http://example.com/api/v1/health/live", host, ""), "", 421),
        (head(get, host, "\r\norigin: http://example.com"), "", 403),
        (head(get, host, "\r\norigin: null"), "", 403),
        (head(get, host, "\r\norigin: http://localhost"), "", 200),
        (head(get, host, &format!("\r\nauthorization: Bearer {token}")), "", 401),
        (head(post, host, "\r\ntransfer-encoding: chunked\r\nx: y"), "", 411),
        (head(post, host, ""), "{}", 415),
        (head(post, host, "\r\ncontent-type: text/plain"), "{}", 415),
        (head(post, host, "\r\ncontent-type: application/x-www-form-urlencoded"), "{}", 415),
        (head(post, host, json_kind), "{", 400),
        (head(post, host, json_kind), &long, 413),
        (head(post, host, json_kind), r#"{"filter": "prot 80"}"#, 400),
        (head("GET /api/v1/dumps/..%2f..%2fetc%2fpasswd/file", host, ""), "", 404),
        (head("GET /api/v1/../../etc/passwd", host, ""), "", 404),
        (head("GET /api/v1/dumps/%00", host, ""), "", 400),
        (head("GET /api/v1/instances/wirescope/dumps/%00", host, ""), "", 400),
        (head("GET /api/v1/instances/%00/status", host, ""), "", 404),
        (head("POST /api/v1/instances", host, ""), "", 405),
        (head("POST /api/v1/status", host, ""), "", 405),
        (head("CONNECT localhost:80", host, ""), "", 404),
        (head("OPTIONS /api/v1/status", host, "\r\norigin: http://localhost"), "", 405),
        (format!("GET /api/v1/status?token={token} HTTP/1.1\r\nhost: localhost"), "", 401),
        (format!("GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\ncookie: token={token}"), "", 401),
    ] {
        let heard = serving.ask(&head, body);
        assert_eq!(heard.status, status, "{head}: {heard:?}");
        assert!(!heard.head.contains("access-control") && !heard.head.contains("set-cookie"), "{heard:?}");
        if status >= 400 {
            assert!(heard.head.contains("application/problem+json"), "{heard:?}");
            assert!(heard.body["faults"][0]["cause"].is_string(), "{heard:?}");
        }
    }
    assert!(running.audit().iter().all(|line| line["status"] != 202), "nothing was fired");
    serving.end();
    running.end();
}

#[test]
fn what_two_readers_would_read_differently_has_no_second_answer() {
    let running = Running::new(&[]);
    let (token, serving) = door_of(&running, &[]);
    let bearer = format!("host: localhost\r\nauthorization: Bearer {token}\r\n");
    let inner = format!("GET /api/v1/triggers HTTP/1.1\r\n{bearer}connection: close\r\n\r\n");
    let post = format!("POST /api/v1/fire HTTP/1.1\r\n{bearer}content-type: application/json\r\n");
    for (request, what) in [
        (
            format!("{post}content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}"),
            "both lengths",
        ),
        (
            format!("{post}transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\n{inner}"),
            "both, turned",
        ),
        (format!("{post}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}{inner}"), "two lengths"),
        (format!("{post}content-length: +2\r\n\r\n{{}}{inner}"), "a sign"),
        (format!("{post}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{inner}"), "an unknown coding"),
        (format!("{post}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}"), "a coding behind"),
        (format!("{post}transfer-encoding:\u{b}chunked\r\n\r\n0\r\n\r\n{inner}"), "a tab"),
        (format!("{post}content-length : 2\r\n\r\n{{}}{inner}"), "a space"),
        (format!("{post}x: a\r\n content-length: 2\r\n\r\n{{}}{inner}"), "a folded line"),
        (format!("GET /api/v1/status\0 HTTP/1.1\r\n{bearer}\r\n{inner}"), "NUL"),
        (format!("GET /api/v1/status HTTP/1.1\r\nx: a\0b\r\n{bearer}\r\n{inner}"), "NUL in a header"),
        (format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{inner}"), "HTTP/2"),
        (format!("GET /api/v1/status HTTP/1.1 x\r\n{bearer}\r\n{inner}"), "a word behind"),
    ] {
        let heard = serving.raw(request.as_bytes());
        let text = String::from_utf8_lossy(&heard);
        assert!(!text.contains("\"triggers\""), "{what}: {text}");
        let first = Heard::of(&heard);
        assert!(first.status == 0 || (400..500).contains(&first.status), "{what}: {text}");
    }
    let long = format!("GET /api/v1/status HTTP/1.1\r\n{bearer}x: {}\r\n\r\n", "x".repeat(100_000));
    assert_eq!(Heard::of(&serving.raw(long.as_bytes())).status, 431);
    let many = format!("GET /api/v1/status HTTP/1.1\r\n{bearer}{}\r\n", "x: y\r\n".repeat(100));
    assert_eq!(Heard::of(&serving.raw(many.as_bytes())).status, 431);
    let is_obeyed = |line: &Value| line["status"].as_u64() < Some(400);
    assert!(!running.audit().iter().any(is_obeyed), "nothing was ordered: {:?}", running.audit());
    let counted = serving.get(&token, "instances").body;
    assert!(counted["door"]["refused"]["head_too_long"].as_u64() >= Some(1), "{counted}");
    serving.end();
    running.end();
}

#[test]
fn too_many_requests_and_connections_are_refused_and_counted() {
    let running = Running::new(&[]);
    let other = running.token(&["--role", "viewer", "--name", "eye"]);
    let (token, serving) = door_of(&running, &["--requests-per-s", "1", "--connections", "3"]);
    let statuses: Vec<u16> = (0..6).map(|_| serving.get(&token, "health/live").status).collect();
    assert!(statuses[..2] == [200, 200] && statuses.contains(&429), "{statuses:?}");
    wait_until("a refusal", || {
        let refused = serving.get(&token, "health/live");
        refused.status == 429 && refused.head.contains("retry-after: 1")
    });
    assert_eq!(serving.get(&other, "health/live").status, 200, "others have their own bound");
    // As many as there may be, with half a request each; one more is told to come again.
    let half: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = TcpStream::connect(&serving.address).unwrap();
            stream.write_all(b"GET /api/v1/sta").unwrap();
            stream
        })
        .collect();
    wait_until("a full door", || Heard::of(&serving.raw(b"GET / HTTP/1.1\r\n\r\n")).status == 503);
    drop(half);
    wait_until("room, and the counters", || {
        let counted = serving.get(&other, "instances");
        let refused = &counted.body["door"]["refused"];
        counted.status == 200
            && refused["rate"].as_u64() >= Some(1)
            && refused["connections"].as_u64() >= Some(1)
    });
    serving.end();
    running.end();
}

#[test]
fn one_address_leaves_places_for_others() {
    let running = Running::new(&[]);
    let (token, serving) = door_of(&running, &["--connections", "8"]);
    let half: Vec<TcpStream> = (0..6)
        .map(|_| {
            let mut stream = TcpStream::connect(&serving.address).unwrap();
            stream.write_all(b"GET /api/v1/sta").unwrap();
            stream
        })
        .collect();
    let mut told = Heard::of(b"HTTP/1.1 200 OK\r\n\r\n");
    wait_until("no more for this one", || {
        told = Heard::of(&serving.raw(b"GET / HTTP/1.1\r\n\r\n"));
        told.status == 503
    });
    assert!(told.body.to_string().contains("from your address"), "{}", told.body);
    let elsewhere = "import http.client, sys\n\
        door = http.client.HTTPConnection(sys.argv[1], source_address=('127.0.0.2', 0))\n\
        door.request('GET', '/api/v1/health/live', headers={'authorization': 'Bearer ' + sys.argv[2]})\n\
        print(door.getresponse().status)";
    let other = Command::new("python3").args(["-c", elsewhere, &serving.address, &token]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&other.stdout).trim(), "200", "{other:?}");
    drop(half);
    serving.end();
    running.end();
}

#[test]
fn who_goes_away_or_takes_nothing_costs_only_its_own_connection() {
    let running = Running::new(&[]);
    let (token, serving) = door_of(&running, &[]);
    wait_until("packets", || {
        serving.get(&token, "status").body["received"]["packets"].as_u64() > Some(10_000)
    });
    let fired = serving.post(&token, "fire", r#"{"before": "1m", "wait": true}"#);
    let (id, bytes) = (fired.body["id"].clone(), fired.body["bytes"].as_u64().unwrap());
    let bearer = format!("host: localhost\r\nauthorization: Bearer {token}\r\n");
    let mut takers = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(&serving.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        write!(stream, "GET /api/v1/dumps/{id}/file HTTP/1.1\r\n{bearer}\r\n").unwrap();
        let mut some = [0; 1000];
        stream.read_exact(&mut some).unwrap();
        takers.push(stream); // and takes nothing more
    }
    assert_eq!(serving.get(&token, "health/live").status, 200);
    takers.truncate(4); // these go away in the middle
    let file = serving.get(&token, &format!("dumps/{id}/file"));
    assert!(file.bytes.len() as u64 > bytes, "the file is whole");
    // A long answer ends with its client, and that is seen.
    let mut events = TcpStream::connect(&serving.address).unwrap();
    write!(events, "GET /api/v1/events HTTP/1.1\r\n{bearer}\r\n").unwrap();
    let mut some = [0; 100];
    events.read_exact(&mut some).unwrap();
    drop((events, takers));
    assert_eq!(serving.get(&token, "status").body["state"], json!("capturing"));
    serving.end();
    running.end();
}

#[test]
fn what_the_door_refuses_is_a_line_of_the_run_that_was_meant() {
    let running = Running::new(&[]);
    let foreign = running.token(&["--role", "admin", "--name", "foreign", "--instance", "elsewhere"]);
    let fit = running.token(&["--role", "analyst", "--name", "fit"]);
    let serving = running.serve(&[]);
    assert_eq!(serving.get(&foreign, "packets?filter=udp").status, 403);
    assert_eq!(serving.post("wst_nobody", "fire", r#"{"filter": "udp"}"#).status, 401);
    let text = format!(
        "POST /api/v1/fire HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {fit}\r\ncontent-type: text/plain\r\n\
         content-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    assert_eq!(Heard::of(&serving.raw(text.as_bytes())).status, 415);
    assert_eq!(serving.get("wst_nobody", "status").status, 401); // no line: nothing is ordered or looked at
    let noted: Vec<(String, u64, serde_json::Value)> = running
        .audit()
        .iter()
        .map(|line| {
            (
                line["action"].as_str().unwrap().to_string(),
                line["status"].as_u64().unwrap(),
                line["name"].clone(),
            )
        })
        .collect();
    let expected = [
        ("Packets", 403, "foreign".into()),
        ("Fire", 401, serde_json::Value::Null),
        ("Fire", 415, "fit".into()),
    ];
    assert_eq!(noted, expected.map(|(action, status, name)| (action.to_string(), status, name)));
    // Only the door may tell of it.
    let mut stream = std::os::unix::net::UnixStream::connect(running.socket()).unwrap();
    let forged =
        b"GET /api/v1/packets HTTP/1.1\r\nhost: x\r\nwirescope-refused: 403\r\nconnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, forged).unwrap();
    let mut heard = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut heard).unwrap();
    assert_ne!(Heard::of(&heard).status, 200);
    serving.end();
    running.end();
}

#[test]
fn one_identity_takes_neither_all_dumps_nor_all_questions() {
    let running = Running::new(&["--serve-role", "admin"]);
    let greedy = running.token(&["--role", "analyst", "--name", "greedy", "--filter", "udp"]);
    let other = running.token(&["--role", "analyst", "--name", "other"]);
    let third = running.token(&["--role", "operator", "--name", "third"]);
    let admin = running.token(&["--role", "admin", "--name", "admin"]);
    let serving = running.serve(&[]);
    let fire = |token: &str| serving.post(token, "fire", r#"{"before": "1ms", "after": "300d"}"#).status;
    let fired: Vec<u16> = (0..4).map(|_| fire(&greedy)).collect();
    assert_eq!((fired, fire(&other)), (vec![202, 202, 429, 429], 202));
    // All of them together leave places for triggers, and for whoever may do everything.
    assert_eq!((fire(&other), fire(&third), fire(&third)), (202, 202, 503));
    assert_eq!((fire(&admin), fire(&admin)), (202, 202));
    // What all packets come to is nothing for one who sees only some.
    let head = format!(
        "HEAD /api/v1/packets HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {greedy}\r\nconnection: close\r\n\r\n"
    );
    let told = String::from_utf8(serving.raw(head.as_bytes())).unwrap().to_lowercase();
    assert!(
        told.starts_with("http/1.1 200") && !told.contains("-most:") && !told.contains("wirescope-heard"),
        "{told}"
    );
    // Two that take nothing hold their places.
    let request = |token: &str| {
        format!("GET /api/v1/packets HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n")
    };
    let begin = |token: &str| {
        let mut stream = TcpStream::connect(&serving.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(request(token).as_bytes()).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        (stream, String::from_utf8_lossy(&first[9..]).into_owned())
    };
    wait_until("more than sockets hold", || {
        let counted = serving.get(&other, "packets?count=true").body;
        counted["bytes"].as_u64() > Some(24 << 20)
    });
    let held: Vec<_> = (0..2).map(|_| begin(&greedy)).collect();
    assert!(held.iter().all(|(_, status)| status == "200"));
    assert_eq!(begin(&greedy).1, "429");
    assert_eq!(serving.get(&other, "packets?count=true").status, 200);
    drop(held);
    serving.end();
    running.started.signal(libc::SIGINT);
    running.started.finish(LIMIT);
}

#[test]
fn who_is_refused_fills_no_audit() {
    let running = Running::new(&[]);
    let viewer = running.token(&["--role", "viewer", "--name", "v"]);
    let serving = running.serve(&[]);
    let unnoted = || serving.get(&viewer, "instances").body["door"]["refusals_unnoted"].as_u64().unwrap();
    let mut asked = 0;
    wait_until("refusals of which the run didn't hear", || {
        asked += 20;
        assert!((0..20).all(|_| serving.post("wst_nobody", "fire", "{}").status == 401));
        unnoted() > 0
    });
    assert_eq!(running.audit().len() as u64 + unnoted(), asked, "each is noted or counted");
    serving.end();
    running.end();
}
