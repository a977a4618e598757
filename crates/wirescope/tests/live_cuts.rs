//! Packets that are cut though nobody asked for it: counted by cause, told, and said in the dumps that hold
//! them.
//!
//! Needs root; says so and passes without it, except in CI.

mod live_lab;
mod run;

use live_lab::{Live, inside};
use run::{Done, Started, finish, wait_until, wirescope};
use scope_testkit::lab::Namespace;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Bytes that are sent over TCP.
const SENT: usize = 24 << 20;
/// The most that is kept of a packet.
const KEPT_MAX: u64 = 256 << 10;
const ORDERS: [&str; 8] =
    ["--trigger", "sent=port 7777", "--after", "60s", "--ring", "128MiB", "--segment", "2MiB"];

/// Sends [`SENT`] bytes from one namespace to an address of another (or the same).
fn send_by_tcp(from: &Namespace, to: &Namespace, address: &str) {
    let listener = to.enter(|| TcpListener::bind(address).expect("a listener"));
    std::thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            std::io::copy(&mut stream.take(SENT as u64), &mut std::io::sink()).expect("all of it")
        });
        // The kernel has its routes a while after the link is up.
        let begun = Instant::now();
        let mut stream = loop {
            match from.enter(|| TcpStream::connect(address)) {
                Ok(stream) => break stream,
                Err(error) => assert!(begun.elapsed() < run::LIMIT, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.write_all(&vec![1; SENT]).expect("all of it sent");
        assert_eq!(receiving.join().unwrap(), SENT as u64);
    });
}

/// Sends some of the longest datagrams that there are over the loopback interface of a namespace.
fn send_by_udp(within: &Namespace) {
    within.enter(|| {
        let receiver = UdpSocket::bind("127.0.0.1:7777").expect("a free port");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let longest = vec![1; 65_507];
        for _ in 0..10 {
            sender.send_to(&longest, receiver.local_addr().unwrap()).expect("it is sent");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// Captures in namespace b while `send` sends, for more than a second; what the run said, and its summary.
fn captured(live: &Live, source: &str, send: impl FnOnce()) -> (Done, Value) {
    let started = live.start(&[&["--source", source], &ORDERS[..]].concat());
    send();
    std::thread::sleep(Duration::from_millis(1300));
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    let summary = serde_json::from_str(&done.stdout).unwrap_or_else(|e| panic!("{e}: {}", done.stderr));
    (done, summary)
}

/// What doctor finds of the run, by kind.
fn found(live: &Live, kind: &str) -> Option<Value> {
    let done = finish(wirescope(&["doctor", "--json", "--out", live.place.out().to_str().unwrap()]));
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    told["findings"].as_array().unwrap().iter().find(|finding| finding["kind"] == kind).cloned()
}

/// Captured and original length of each packet that the ring held.
fn lengths(live: &Live) -> Vec<(u64, u64)> {
    live.ring().packets.iter().map(|packet| (packet.data.len() as u64, packet.original_len.into())).collect()
}

/// Checks that all cut packets are counted under `cause`, once in `cut`, in the only dump, and told.
fn check(live: &Live, interface: &str, cause: &str, remedy: &str, (done, summary): (Done, Value)) {
    let cut = lengths(live).iter().filter(|(kept, original)| kept < original).count() as u64;
    assert!(cut > 0, "the test made no packets that are cut: {:?}", lengths(live));
    let altered = &summary["nic"][interface]["altered"];
    let others = ["cut_by_block", "cut_by_bound", "sliced"].into_iter().filter(|other| *other != cause);
    assert!(altered[cause] == cut && others.clone().all(|other| altered[other] == 0), "{cut}: {altered}");
    assert_eq!(summary["cut"], cut, "a packet counts once");
    let lines = done
        .stderr
        .lines()
        .filter(|line| line.contains("are truncated") && line.contains("packets of") && line.contains(remedy))
        .count();
    assert_eq!(lines, 1, "told once, with its remedy: {}", done.stderr);
    let warnings = summary["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|warning| warning.to_string().contains(remedy))
        .count();
    assert_eq!(warnings, 1, "{}", summary["warnings"]);
    let dump = &summary["dumps"][0];
    assert!(dump["cut"].as_u64().unwrap() > 3 && dump["lost_max"] == 0, "{dump}");
    let bytes = std::fs::read(dump["path"].as_str().unwrap()).unwrap();
    let told = format!("cut: {} packets are truncated", dump["cut"]);
    assert!(bytes.windows(told.len()).any(|window| window == told.as_bytes()), "the dump says so itself");
    let finding = found(live, cause).expect("doctor names the cause");
    assert!(
        finding["cause"].as_str().unwrap().starts_with(&format!(
            "{cut} packets on {interface} were \
            truncated"
        )),
        "{finding}"
    );
    assert!(finding["remedies"][0].as_str().unwrap().contains(remedy), "{finding}");
    assert!(found(live, "sliced").is_none() && found(live, "cut").is_none(), "no false cause");
}

#[test]
fn packets_that_the_kernels_block_is_too_small_for_are_counted_and_told_as_such() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.b().ip(&["link", "set", "lo", "up"]).unwrap();
    let send = || send_by_udp(live.lab.b());
    let run = captured(&live, "afpacket:lo,block=64KiB", send);
    check(&live, "lo", "cut_by_block", "block=", run);
}

/// A veth pair that joins and splits up to 500,000 bytes (IPv6 BIG TCP): `oa` in a, `ob` in b. Whether there
/// can be one.
fn big_tcp_link(live: &Live) -> bool {
    let (a, b) = (live.lab.a(), live.lab.b());
    a.ip(&["link", "add", "oa", "type", "veth", "peer", "name", "ob", "netns", b.name()]).unwrap();
    let ends = [(a, "oa", "fd77::1/64"), (b, "ob", "fd77::2/64")];
    ends.iter().all(|(namespace, end, address)| {
        let switch = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        namespace.enter(|| std::fs::write(switch, "0")).is_ok()
            && namespace.ip(&["link", "set", end, "gso_max_size", "500000", "gro_max_size", "500000"]).is_ok()
            && namespace.ip(&["addr", "add", address, "dev", end, "nodad"]).is_ok()
            && namespace.ip(&["link", "set", end, "up"]).is_ok()
    })
}

#[test]
fn packets_longer_than_what_is_kept_of_one_are_counted_and_told_as_such() {
    let Some(live) = Live::or_skip() else { return };
    if !big_tcp_link(&live) {
        return println!("skipped: this machine has no IPv6 BIG TCP");
    }
    let run = captured(&live, "afpacket:ob", || send_by_tcp(live.lab.a(), live.lab.b(), "[fd77::2]:7777"));
    assert!(lengths(&live).iter().all(|(kept, original)| *kept == KEPT_MAX.min(*original)));
    check(&live, "ob", "cut_by_bound", "gso_max_size", run);
}

#[test]
fn a_snap_length_that_was_asked_for_cuts_nothing_against_the_wish() {
    let Some(live) = Live::or_skip() else { return };
    live.lab.b().ip(&["link", "set", "lo", "up"]).unwrap();
    let send = || send_by_tcp(live.lab.b(), live.lab.b(), "127.0.0.1:7777");
    let (done, summary) = captured(&live, "afpacket:lo,snaplen=100", send);
    assert!(summary["nic"]["lo"]["altered"]["sliced"].as_u64().unwrap() > 3, "{summary}");
    assert_eq!((&summary["cut"], &summary["dumps"][0]["cut"]), (&0.into(), &0.into()));
    assert!(!done.stderr.contains("are truncated"), "{}", done.stderr);
}

#[test]
fn packets_longer_than_the_mtu_are_counted_through_libpcap_too_and_the_prefilters_place_is_told() {
    let Some(live) = Live::or_skip() else { return };
    let (a, b) = (live.lab.a(), live.lab.b());
    a.ip(&["link", "add", "oa", "type", "veth", "peer", "name", "ob", "netns", b.name()]).unwrap();
    for (namespace, end, address) in [(a, "oa", "10.77.0.1/24"), (b, "ob", "10.77.0.2/24")] {
        namespace.ip(&["addr", "add", address, "dev", end]).unwrap();
        namespace.ip(&["link", "set", end, "up"]).unwrap();
    }
    let capture = live.place.command(&["--source", "pcap:oa,prefilter=tcp"]);
    let started = Started::new(inside(a, &capture));
    let log = live.place.out().join("wirescope.jsonl");
    wait_until("the log's first line", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
    });
    send_by_tcp(a, b, "10.77.0.2:7777");
    std::thread::sleep(Duration::from_millis(1300));
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    let altered = &summary["nic"]["oa"]["altered"];
    assert!(
        altered["long"].as_u64().unwrap() > 5 && altered["joined"] == 0 && altered["split"] == 0,
        "{altered}"
    );
    assert!(done.stderr.contains("ethtool -K oa gro off lro off tso off gso off"), "{}", done.stderr);
    assert!(done.stderr.contains("prefilter: in the worker, not in the kernel"), "{}", done.stderr);
}
