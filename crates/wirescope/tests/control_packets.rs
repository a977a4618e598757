//! Questions for packets at the control socket of a run that goes: what is given is what came, out of the ring and the stores,
//! each packet once; what is missing is stated; and no client that asks does the run any harm.

mod run;

use run::{Done, LIMIT, Place, Started, finish, wait_until, wirescope};
use scope_testkit::oracle::{self, VlanRule, difference, every_tool_copies, expected_dump};
use scope_testkit::traffic::{
    Capture, Conversations, ETHERNET, Interface, Precision, RAW, Record, pcap, pcapng,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

const SECOND: i64 = 1_000_000_000;
/// Packets behind what is asked for.
const LATER: i64 = 20;
/// It turns many times in one capture.
const SMALL: [&str; 4] = ["--ring", "2MiB", "--segment", "64KiB"];

/// A run that reads what is fed into it, and goes on.
struct Fed {
    place: Place,
    started: Started,
    pipe: Option<File>,
}

impl Fed {
    fn new(place: Place, more: &[&str]) -> Fed {
        let path = place.path("fed");
        let _ = std::fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let source = format!("file:{}", path.display());
        let started = Started::new(place.command(&[&["--source", &source], more].concat()));
        let pipe = Some(File::options().write(true).open(path).unwrap());
        Fed { place, started, pipe }
    }

    /// A run that has read this capture, which is settled: what comes later has begun to.
    fn with(place: Place, capture: &Capture, more: &[&str]) -> Fed {
        let fed = Fed::new(place, more);
        let mut whole = capture.clone();
        let last = capture.packets.last().unwrap();
        let later =
            |number: i64| Record { time_ns: last.time_ns + (1 + number) * SECOND / 2, ..last.clone() };
        whole.packets.extend((0..LATER).map(later));
        fed.feed(&pcapng(&whole, Precision::Nano, false));
        fed.listens();
        let span = span_of(capture);
        wait_until("all packets", || {
            fed.get(&format!("packets?count=true&{span}")).json()["packets"] == capture.packets.len()
        });
        fed
    }

    fn feed(&self, bytes: &[u8]) {
        let mut pipe = self.pipe.as_ref().unwrap();
        pipe.write_all(bytes).unwrap();
    }

    fn listens(&self) {
        wait_until("the run to listen", || self.socket().exists() && self.get("health/live").status == 200);
    }

    fn socket(&self) -> PathBuf {
        self.place.out().join("wirescope.sock")
    }

    fn get(&self, route: &str) -> Heard {
        get(&self.socket(), "GET", route)
    }

    /// Asks, and reads no answer yet.
    fn begin(&self, route: &str) -> UnixStream {
        begin(&self.socket(), "GET", route)
    }

    fn command(&self, words: &[&str]) -> Done {
        let mut command = wirescope(words);
        command.arg("--control").arg(self.socket()).current_dir(self.place.root());
        finish(command)
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.place.out().join("audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn end(mut self) -> Place {
        drop(self.pipe.take());
        let done = self.started.finish(LIMIT);
        assert!(matches!(done.code(), Some(0 | 1)), "{}", done.stderr);
        self.place
    }
}

/// An answer, its trailers among its headers.
#[derive(Debug)]
struct Heard {
    status: u16,
    headers: Vec<(String, String)>,
    bytes: Vec<u8>,
    /// It has its end.
    is_whole: bool,
}

impl Heard {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    fn capture(&self) -> Capture {
        oracle::parse(&self.bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.headers)).capture
    }

    fn missing(&self) -> Vec<Value> {
        serde_json::from_str(self.header("wirescope-missing")).unwrap()
    }
}

fn begin(socket: &Path, method: &str, route: &str) -> UnixStream {
    // It has its name a moment before somebody listens at it.
    let mut connected = None;
    wait_until("a socket that listens", || {
        connected = UnixStream::connect(socket).ok();
        connected.is_some()
    });
    let mut stream = connected.unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let head =
        format!("{method} /api/v1/{route} HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn get(socket: &Path, method: &str, route: &str) -> Heard {
    hear(begin(socket, method, route))
}

fn hear(mut stream: UnixStream) -> Heard {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all); // it may break off
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(all.len());
    let lines = |bytes: &[u8]| -> Vec<(String, String)> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let pair =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_string()));
        text.lines().filter_map(pair).collect()
    };
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let mut headers = lines(&all[..end]);
    let body = all.get(end + 4..).unwrap_or_default();
    if !headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
        return Heard { status, headers, bytes: body.to_vec(), is_whole: true };
    }
    let (mut bytes, mut rest, mut is_whole) = (Vec::new(), body, false);
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        rest = &rest[at + 2..];
        if len == 0 {
            headers.extend(lines(rest));
            is_whole = rest.ends_with(b"\r\n");
            break;
        }
        bytes.extend(&rest[..len.min(rest.len())]);
        rest = rest.get(len + 2..).unwrap_or_default();
    }
    Heard { status, headers, bytes, is_whole }
}

fn conversations(packets: usize, interfaces: &[(&str, u16)], seed: u64) -> Capture {
    let interfaces = interfaces.iter().map(|&(name, link_type)| Interface::new(name, link_type)).collect();
    let own = Conversations::default();
    Conversations { packets, interfaces, payload_max: 1300, vlan: 10, snapped: 0, seed, ..own }.capture()
}

/// The span of a capture, as parameters.
fn span_of(capture: &Capture) -> String {
    let (from_ns, to_ns) = capture.span_ns().unwrap();
    span(from_ns, to_ns)
}

fn span(from_ns: i64, to_ns: i64) -> String {
    let at = |ns: i64| format!("@{}.{:09}", ns / SECOND, ns % SECOND);
    format!("from={}&to={}", at(from_ns), at(to_ns))
}

fn encoded(filter: &str) -> String {
    filter.replace(' ', "+")
}

/// What of a capture a filter selects in a span, as tcpdump sees it.
fn selected(capture: &Capture, filter: &str, from_ns: i64, to_ns: i64) -> Capture {
    capture.subset(&expected_dump(capture, filter, from_ns, to_ns, None, VlanRule::Transparent).unwrap())
}

/// Without the names of interfaces.
fn unnamed(capture: &Capture) -> Capture {
    let mut one = capture.clone();
    one.interfaces = vec![Interface::new("", ETHERNET)];
    one.packets.iter_mut().for_each(|packet| packet.interface = 0);
    one
}

/// What a pcap file can hold.
fn plainly(capture: &Capture) -> Capture {
    let mut one = unnamed(capture);
    one.packets.iter_mut().for_each(|packet| packet.flags = 0);
    one
}

fn assert_complete(heard: &Heard, about: &str) {
    assert_eq!((heard.status, heard.is_whole), (200, true), "{about}: {:?}", heard.headers);
    let lost = [heard.header("wirescope-lost-least"), heard.header("wirescope-lost-most")];
    assert_eq!(
        (lost, heard.header("wirescope-complete")),
        (["0", "0"], "true"),
        "{about}: {:?}",
        heard.headers
    );
}

#[test]
fn what_is_given_is_what_came_whatever_holds_it() {
    for (name, more) in
        [("ring", &["--ring", "64MiB"][..]), ("store", &[&SMALL[..], &["--store", "store"]].concat())]
    {
        let input = conversations(12_000, &[("left", ETHERNET), ("right", ETHERNET)], 1);
        let place = Place::new();
        let store = place.path("store");
        let more: Vec<&str> =
            more.iter().map(|word| if *word == "store" { store.to_str().unwrap() } else { word }).collect();
        let fed = Fed::with(place, &input, &more);
        let (from_ns, to_ns) = input.span_ns().unwrap();
        let middle = (from_ns + (to_ns - from_ns) / 3, from_ns + (to_ns - from_ns) * 2 / 3);
        for (filter, (from_ns, to_ns)) in [
            ("", (from_ns, to_ns)),
            ("", middle),
            ("tcp", (from_ns, to_ns)),
            ("host 10.0.0.1", (from_ns, to_ns)),
            ("udp or ip6", middle),
            ("udp port 9", (from_ns, to_ns)),
        ] {
            let about = format!("{name} '{filter}'");
            let question = format!("filter={}&{}", encoded(filter), span(from_ns, to_ns));
            let expected = selected(&input, filter, from_ns, to_ns);
            let heard = fed.get(&format!("packets?{question}"));
            assert_complete(&heard, &about);
            assert_eq!(heard.header("content-type"), "application/x-pcapng");
            assert_eq!(heard.header("wirescope-packets"), expected.packets.len().to_string());
            if expected.packets.is_empty() {
                assert!(heard.capture().packets.is_empty());
            } else {
                assert_eq!(difference(&unnamed(&expected), &unnamed(&heard.capture())), None, "{about}");
            }
            let path = fed.place.path("answer.pcapng");
            std::fs::write(&path, &heard.bytes).unwrap();
            oracle::opens_cleanly(&path).unwrap();
            let plain = fed.get(&format!("packets?{question}&format=pcap"));
            assert_complete(&plain, &about);
            assert_eq!(difference(&plainly(&expected), &plainly(&plain.capture())), None, "{about}, pcap");
            let objects = fed.get(&format!("packets?{question}&format=json"));
            assert_complete(&objects, &about);
            let lines: Vec<Value> = objects
                .bytes
                .split(|&b| b == b'\n')
                .filter_map(|line| serde_json::from_slice(line).ok())
                .collect();
            let lengths: Vec<u64> = lines.iter().map(|line| line["captured"].as_u64().unwrap()).collect();
            let expected: Vec<u64> = expected.packets.iter().map(|packet| packet.data.len() as u64).collect();
            assert_eq!(lengths, expected, "{about}, json");
        }
        let whole = fed.get(&format!("packets?{}", span_of(&input)));
        let found = whole.capture();
        assert_eq!(difference(&input, &found), None, "{name}: interfaces too");
        let path = fed.place.path("whole.pcapng");
        std::fs::write(&path, &whole.bytes).unwrap();
        every_tool_copies(&path).unwrap();
        assert!(String::from_utf8_lossy(&whole.bytes).contains("complete: nothing is missing"));
        fed.end();
    }
}

#[test]
fn counts_tops_timelines_and_what_is_around_are_those_of_query() {
    let input = conversations(6000, &[("left", ETHERNET)], 2);
    let place = Place::new();
    let store = place.path("store");
    let fed = Fed::with(place, &input, &[&SMALL[..], &["--store", store.to_str().unwrap()]].concat());
    std::fs::write(fed.place.path("in.pcapng"), pcapng(&input, Precision::Nano, false)).unwrap();
    let (from_ns, to_ns) = input.span_ns().unwrap();
    let at = |ns: i64| format!("@{}.{:09}", ns / SECOND, ns % SECOND);
    // Inside, so that what is wanted around the first packet doesn't lie before anybody listened.
    let (from_ns, to_ns) = (from_ns + SECOND, to_ns - SECOND);
    let (from, to) = (at(from_ns), at(to_ns));
    for (parameters, flags) in [
        ("count=true", &["--count"][..]),
        ("count=true&filter=tcp", &["--count", "tcp"]),
        ("top=host&filter=udp", &["--top", "host", "udp"]),
        ("top=port&limit=5", &["--top", "port", "--limit", "5"]),
        ("top=pair", &["--top", "pair"]),
        ("top=proto", &["--top", "proto"]),
        ("timeline=true&step=1s&filter=tcp", &["--timeline", "--step", "1s", "tcp"]),
        ("timeline=true", &["--timeline"]),
        (
            "count=true&around=icmp&before=10ms&after=5ms",
            &["--count", "--around", "icmp", "--before", "10ms", "--after", "5ms"],
        ),
        (
            "count=true&filter=tcp&around=udp+port+53&before=0s&after=1ms",
            &["--count", "tcp", "--around", "udp port 53", "--before", "0s", "--after", "1ms"],
        ),
    ] {
        let heard = fed.get(&format!("packets?from={from}&to={to}&{parameters}"));
        assert_complete(&heard, parameters);
        let mut command = wirescope(&["query", "-r", "in.pcapng", "--from", &from, "--to", &to, "--json"]);
        command.args(flags).env("TZ", "UTC").current_dir(fed.place.root());
        let done = finish(command);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let expected: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(heard.json(), expected, "{parameters}");
    }
    // Around a time.
    let middle_ns = from_ns + (to_ns - from_ns) / 2;
    let heard = fed.get(&format!("packets?at={}&within=1s", at(middle_ns)));
    let expected = selected(&input, "", middle_ns - SECOND, middle_ns + SECOND);
    assert_complete(&heard, "at");
    assert_eq!(difference(&unnamed(&expected), &unnamed(&heard.capture())), None);
    fed.end();
}

#[test]
fn what_earlier_runs_have_stored_is_given_too() {
    let first = conversations(3000, &[("left", ETHERNET)], 3);
    let mut second = conversations(3000, &[("left", ETHERNET), ("tunnel", RAW)], 4);
    let later_ns = first.span_ns().unwrap().1 + 20 * SECOND - second.span_ns().unwrap().0;
    second.packets.iter_mut().for_each(|packet| packet.time_ns += later_ns);
    let place = Place::new();
    let store = place.path("store");
    let own = [&SMALL[..], &["--store", store.to_str().unwrap()]].concat();
    let place = Fed::with(place, &first, &own).end();
    let fed = Fed::with(place, &second, &own);
    let old = fed.get(&format!("packets?{}", span_of(&first)));
    assert_complete(&old, "the first run");
    assert_eq!(difference(&unnamed(&first), &unnamed(&old.capture())), None);
    // All of both: the packets behind the first one as well, and the time in which nobody listened.
    let (from_ns, to_ns) = (first.span_ns().unwrap().0, second.span_ns().unwrap().1);
    let question = span(from_ns, to_ns);
    let both = fed.get(&format!("packets?{question}&link_type=all"));
    assert_complete(&both, "both");
    assert_eq!(both.header("wirescope-packets"), (6000 + LATER).to_string());
    let found = both.capture();
    assert!(found.packets.is_sorted_by_key(|packet| packet.time_ns), "in order");
    let of_type = |capture: &Capture, link_type| capture.of_link_type(link_type).packets.len();
    assert_eq!(of_type(&found, RAW), of_type(&second, RAW));
    assert!(of_type(&found, RAW) > 0);
    let missing = both.missing();
    assert_eq!((missing.len(), &missing[0]["reason"]), (1, &json!("not_recorded")), "{missing:?}");
    // A capture has one link type, unless all are asked for: what is left out is said.
    let one = fed.get(&format!("packets?{question}"));
    assert_eq!(one.header("wirescope-other-link-types"), of_type(&second, RAW).to_string());
    assert_eq!(
        (one.header("wirescope-complete"), one.capture().packets.len()),
        ("false", 6000 + LATER as usize - of_type(&second, RAW))
    );
    fed.end();
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place_and_a_remedy() {
    let fed = Fed::with(Place::new(), &conversations(10, &[("left", ETHERNET)], 5), &[]);
    for (question, place) in [
        ("filter=prot+80", "filter"),
        ("filter=udp%00", "filter"),
        ("filter=host+$srcIP", "filter"),
        ("filtre=udp", "filtre"),
        ("from=soon", "from"),
        ("from=%00", "from"),
        ("from=2999-01-01T00:00:00Z", "from"),
        ("from=@20&to=@10", "to"),
        ("at=@20", "at"),
        ("within=1s", "within"),
        ("around=prot", "around"),
        ("after=1s", "after"),
        ("format=text", "format"),
        ("count=maybe", "count"),
        ("top=x", "top"),
        ("step=1s", "step"),
        ("timeline=true&step=-1s", "step"),
        ("timeline=true&step=1ns&from=@1&to=@2000000000", "step"),
        ("limit=0", "limit"),
        ("link_type=../..", "link_type"),
    ] {
        let heard = fed.get(&format!("packets?{question}"));
        assert_eq!(heard.status, 400, "{question}: {heard:?}");
        let fault = &heard.json()["faults"][0];
        assert_eq!(fault["place"], place, "{question}: {fault}");
        assert!(fault["cause"].is_string() && fault["remedy"].is_string(), "{question}: {fault}");
        assert_eq!(heard.header("content-type"), "application/problem+json");
    }
    assert_eq!(get(&fed.socket(), "POST", "packets").status, 405);
    let refused = fed.audit();
    let of_filter = refused.iter().find(|line| line["what"]["filter"] == "prot 80").unwrap();
    assert_eq!((&of_filter["action"], &of_filter["status"]), (&json!("Packets"), &json!(400)));
    fed.end();
}

#[test]
fn a_head_says_how_much_there_may_be_and_a_limit_ends_an_answer() {
    let input = conversations(5000, &[("left", ETHERNET)], 6);
    let place = Place::new();
    let store = place.path("store");
    let fed = Fed::with(place, &input, &[&SMALL[..], &["--store", store.to_str().unwrap()]].concat());
    let head = get(&fed.socket(), "HEAD", &format!("packets?{}", span_of(&input)));
    assert_eq!((head.status, head.bytes.len()), (200, 0), "{head:?}");
    let packets: u64 = head.header("wirescope-packets-most").parse().unwrap();
    assert!((5000..=5000 + LATER as u64).contains(&packets), "{packets}");
    assert!(head.header("wirescope-bytes-most").parse::<u64>().unwrap() > 5000 * 60);
    for format in ["pcapng", "json"] {
        let heard = fed.get(&format!("packets?{}&limit=7&format={format}", span_of(&input)));
        assert_eq!((heard.status, heard.header("wirescope-packets")), (200, "7"));
        assert_eq!(
            (heard.header("wirescope-complete"), heard.header("wirescope-lost-most")),
            ("false", "unknown")
        );
        assert_eq!(heard.missing()[0]["reason"], "limit");
    }
    let heard = fed.get(&format!("packets?{}&limit=5000", span_of(&input)));
    assert_complete(&heard, "as many as there are");
    fed.end();
}

/// Enough to fill whatever lies between a run and a client that takes nothing.
fn much() -> Capture {
    conversations(60_000, &[("left", ETHERNET)], 7)
}

#[test]
fn too_many_at_once_are_told_to_come_again_and_read_at_the_lowest_priority() {
    let input = much();
    let fed = Fed::with(Place::new(), &input, &["--ring", "256MiB"]);
    let route = format!("packets?{}", span_of(&input));
    // What was asked until all packets were there has its place until a moment behind its answer.
    wait_until("all places", || metric(&fed, "wirescope_questions_open") == 0);
    let slow: Vec<UnixStream> = (0..4).map(|_| fed.begin(&route)).collect();
    wait_until("four that are answered", || metric(&fed, "wirescope_questions_open") == 4);
    let heard = fed.get(&route);
    assert_eq!((heard.status, heard.header("retry-after")), (429, "1"), "{heard:?}");
    assert!(metric(&fed, "wirescope_questions_refused_total") >= 1);
    assert_eq!(fed.get("status").status, 200, "the others are answered");
    let niceness = fed.started.threads_named("question");
    assert_eq!(niceness, [19; 4]);
    // One reads on, and gets all of it.
    let mut slow = slow.into_iter();
    let whole = hear(slow.next().unwrap());
    assert_complete(&whole, "a slow client");
    assert_eq!(whole.capture().packets.len(), input.packets.len());
    // The others go away: their places are free again, and it is noted.
    drop(slow);
    wait_until("free places", || metric(&fed, "wirescope_questions_open") == 0);
    assert_complete(&fed.get(&route), "behind them");
    wait_until("lines of the audit", || {
        // On a busy machine they may have taken nothing for so long that this ended them.
        let broken = |line: &&Value| line["given"]["result"].as_str().is_some_and(|it| it != "complete");
        fed.audit().iter().filter(broken).count() == 3
    });
    let audit = fed.audit();
    let line = audit.iter().rfind(|line| line["given"]["result"] == "complete").unwrap();
    assert_eq!(line["given"]["packets"], input.packets.len());
    assert!(line["given"]["from"].is_string() && line["what"]["from"].is_string(), "{line}");
    assert!(audit.iter().any(|line| line["status"] == 429));
    fed.end();
}

fn metric(fed: &Fed, name: &str) -> u64 {
    let text = String::from_utf8(fed.get("metrics").bytes).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or(u64::MAX)
}

#[test]
fn a_client_that_waits_for_a_count_and_goes_away_is_noted() {
    let input = much();
    let fed = Fed::with(Place::new(), &input, &["--ring", "256MiB"]);
    let before = fed.audit().len();
    let begun = metric(&fed, "wirescope_questions_total");
    let client = fed.begin("packets?top=pair");
    // Whoever is gone before the run has heard him has asked nothing.
    wait_until("the question to be heard", || metric(&fed, "wirescope_questions_total") > begun);
    drop(client);
    wait_until("its line", || fed.audit().len() > before);
    wait_until("its place to be free", || metric(&fed, "wirescope_questions_open") == 0);
    fed.end();
}

#[test]
fn what_is_overwritten_before_it_was_read_is_a_stated_gap() {
    let input = much();
    // A small ring that turns while a client takes nothing.
    let fed = Fed::new(Place::new(), &["--ring", "16MiB", "--segment", "64KiB"]);
    let bytes = pcapng(&input, Precision::Nano, false);
    let (first, rest) = bytes.split_at(bytes.len() / 4);
    fed.feed(first);
    fed.listens();
    let count = || fed.get("packets?count=true").json()["packets"].as_u64().unwrap_or(0);
    wait_until("a part of it", || count() > 10_000);
    let (from_ns, _) = input.span_ns().unwrap();
    let to_ns = input.packets[10_000].time_ns;
    let stream = fed.begin(&format!("packets?{}", span(from_ns, to_ns)));
    wait_until("the answer to begin", || metric(&fed, "wirescope_questions_open") == 1);
    fed.feed(rest);
    // A segment that was being read when its turn came stays: few of them.
    let part = format!("packets?count=true&{}", span(from_ns, to_ns));
    wait_until("the ring to turn", || {
        fed.get(&part).json()["packets"].as_u64().is_some_and(|left| left < 2000)
    });
    let heard = hear(stream);
    assert!(heard.is_whole, "{:?}", heard.headers);
    let expected = selected(&input, "", from_ns, to_ns);
    let found = heard.capture().packets.len() as u64;
    let missing = expected.packets.len() as u64 - found;
    let lost = |name: &str| heard.header(name).parse::<u64>().unwrap();
    assert!(missing > 0, "the client's own buffers are smaller than that");
    assert!(
        (lost("wirescope-lost-least")..=lost("wirescope-lost-most")).contains(&missing),
        "{missing} of {:?}",
        heard.headers
    );
    assert_eq!(heard.header("wirescope-complete"), "false");
    assert!(heard.missing().iter().any(|gap| gap["reason"] == "evicted"), "{:?}", heard.missing());
    fed.end();
}

#[test]
fn a_ring_that_turns_meanwhile_loses_nothing_that_the_store_has_and_all_stays_in_order() {
    let input = much();
    let place = Place::new();
    let store = place.path("store");
    let own = ["--ring", "16MiB", "--segment", "64KiB", "--store", store.to_str().unwrap()];
    let fed = Fed::new(place, &own);
    let bytes = pcapng(&input, Precision::Nano, false);
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    fed.feed(first);
    fed.listens();
    let count = || fed.get("packets?count=true").json()["packets"].as_u64().unwrap_or(0);
    wait_until("a part of it", || count() > 25_000);
    let (from_ns, _) = input.span_ns().unwrap();
    let to_ns = input.packets[25_000].time_ns;
    let stream = fed.begin(&format!("packets?{}", span(from_ns, to_ns)));
    wait_until("the answer to begin", || metric(&fed, "wirescope_questions_open") == 1);
    fed.feed(rest);
    wait_until("the rest", || count() == input.packets.len() as u64);
    let heard = hear(stream);
    assert_complete(&heard, "a ring that turned");
    let expected = selected(&input, "", from_ns, to_ns);
    assert_eq!(difference(&unnamed(&expected), &unnamed(&heard.capture())), None);
    fed.end();
}

#[test]
fn a_pipe_of_the_answer_is_what_tcpdump_reads() {
    let input = conversations(2000, &[("left", ETHERNET)], 8);
    let fed = Fed::with(Place::new(), &input, &[]);
    let heard = fed.get(&format!("packets?filter=tcp&{}", span_of(&input)));
    let path = fed.place.path("answer.pcapng");
    std::fs::write(&path, &heard.bytes).unwrap();
    let (from_ns, to_ns) = input.span_ns().unwrap();
    let expected = pcap(&selected(&input, "tcp", from_ns, to_ns), Precision::Nano, false);
    std::fs::write(fed.place.path("expected.pcap"), expected).unwrap();
    let words = |name: &str| {
        let done =
            Command::new("tcpdump").args(["-nnr", name]).current_dir(fed.place.root()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    assert_eq!(words("answer.pcapng"), words("expected.pcap"));
    assert_eq!(fed.command(&["status"]).code(), Some(0));
    fed.end();
}

#[test]
fn the_command_line_asks_a_run_as_it_asks_a_store() {
    let input = conversations(6000, &[("left", ETHERNET), ("right", ETHERNET)], 9);
    let place = Place::new();
    let store = place.path("store");
    let fed = Fed::with(place, &input, &[&SMALL[..], &["--store", store.to_str().unwrap()]].concat());
    std::fs::write(fed.place.path("in.pcapng"), pcapng(&input, Precision::Nano, false)).unwrap();
    let (from_ns, to_ns) = input.span_ns().unwrap();
    let at = |ns: i64| format!("@{}.{:09}", ns / SECOND, ns % SECOND);
    // Inside, so that what is wanted around the first packet doesn't lie before anybody listened.
    let (from_ns, to_ns) = (from_ns + SECOND, to_ns - SECOND);
    let (from, to) = (at(from_ns), at(to_ns));
    let ask = |who: [&str; 2], words: &[&str]| {
        let mut command = wirescope(&["query", "--from", &from, "--to", &to]);
        command.args(who).args(words).current_dir(fed.place.root());
        finish(command)
    };
    let socket = fed.socket();
    let (run, file) = (["--control", socket.to_str().unwrap()], ["-r", "in.pcapng"]);
    for words in [
        &["--count", "--json"][..],
        &["--count", "tcp"],
        &["--count", "--json", "--around", "icmp", "--before", "10ms", "--after", "5ms", "udp"],
        &["--top", "host", "--json", "udp"],
        &["--top", "port"],
        &["--timeline", "--step", "1s", "--json"],
        &["--timeline"],
        &["--format", "json", "tcp port 80"],
        &["--format", "json", "--limit", "3"],
    ] {
        let (of_run, of_file) = (ask(run, words), ask(file, words));
        assert_eq!((of_run.code(), of_file.code()), (Some(0), Some(0)), "{words:?}: {}", of_run.stderr);
        assert_eq!(of_run.stdout, of_file.stdout, "{words:?}");
    }
    for name in ["answer.pcapng", "answer.pcap"] {
        let done = ask(run, &["-w", name, "tcp"]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let expected = selected(&input, "tcp", from_ns, to_ns);
        let path = fed.place.path(name);
        let found = oracle::read(&path).unwrap().capture;
        match name {
            "answer.pcap" => assert_eq!(difference(&plainly(&expected), &plainly(&found)), None),
            _ => assert_eq!(difference(&expected, &found), None),
        }
        oracle::opens_cleanly(&path).unwrap();
        assert!(done.stdout.contains("nothing is missing between them"), "{}", done.stdout);
        assert_eq!(ask(run, &["-w", name]).code(), Some(2), "a name that is taken");
    }
    let refused = ask(run, &["prot 80"]);
    assert!(refused.code() == Some(2) && refused.stderr.contains("syntax error"), "{}", refused.stderr);
    let nobody = ask(["--control", "nobody.sock"], &["--count"]);
    assert!(nobody.code() == Some(2) && nobody.stderr.contains("nobody.sock"), "{}", nobody.stderr);
    let both = ask(run, &["-r", "in.pcapng"]);
    assert_eq!(both.code(), Some(2), "{}", both.stderr);
    fed.end();
}
