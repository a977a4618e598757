//! Traffic statistics of a live interface, in a laboratory: its own addresses are local as they come and go.

mod live_lab;
mod run;

use live_lab::{Live, inside};
use run::{LIMIT, Started, wait_until, wirescope};
use rusqlite::Connection;
use scope_testkit::traffic::frame;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

const OWN: &str = "192.0.2.1";
const PEER: &str = "198.51.100.9";
const UDP: u8 = 17;

/// The addresses that the newest traffic has rows of; one text, sorted.
fn local(db: &Path) -> String {
    let newest = "SELECT ifnull(group_concat(ip, ' '), '') FROM (SELECT DISTINCT ip FROM traffic \
                  WHERE ts_ns = (SELECT max(ts_ns) FROM traffic) ORDER BY ip)";
    let read = || Connection::open(db)?.query_row(newest, [], |row| row.get(0));
    read().unwrap_or_default()
}

#[test]
fn memory_of_flows_is_there_before_the_first_packet() {
    let Some(live) = Live::or_skip() else { return };
    // An entry has 256 bytes, and two places of the index.
    for (workers, flows_max, expected) in [(1, "300000", 300_000 * 256), (2, "600000", 600_000 * 256)] {
        let source = format!("afpacket:vb,workers={workers}");
        let words = ["stats", "--source", &source, "--flows-max", flows_max, "--db"];
        let mut command = wirescope(&words);
        command.arg(live.place.path(flows_max));
        let started = Started::new(inside(live.lab.b(), &command));
        wait_until("ready", || started.words().contains("ready, process"));
        let resident = started.own_resident_bytes();
        assert!((expected..2 * expected).contains(&resident), "{flows_max}: {resident}");
        started.signal(libc::SIGINT);
        let done = started.finish(LIMIT);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
    }
}

#[test]
fn addresses_that_an_interface_gets_and_loses_are_local_meanwhile() {
    let Some(live) = Live::or_skip() else { return };
    let db = live.place.path("live.sqlite");
    let words = ["stats", "-i", "vb", "--db-interval", "100ms", "--db"];
    let mut command = wirescope(&words);
    command.arg(&db);
    let started = Started::new(inside(live.lab.b(), &command));
    let [own, peer] = [OWN, PEER].map(|address| address.parse::<Ipv4Addr>().unwrap());
    let segment = |from: Ipv4Addr, to: Ipv4Addr| {
        frame::udp(SocketAddr::from((from, 5000)), SocketAddr::from((to, 9)), b"x")
    };
    let packet = |from, to| frame::ethernet(&[], 0x0800, &frame::ipv4(from, to, UDP, &segment(from, to)));
    let frames = [packet(peer, own), packet(own, peer)];
    let sender = live.sender();
    let expect = |expected: &str| {
        wait_until(expected, || {
            sender.send(&frames).unwrap();
            db.exists() && local(&db) == expected
        });
    };
    let both = format!("{OWN} {PEER}");
    let ip = |word: &str, address: &str| live.lab.b().ip(&["addr", word, address, "dev", "vb"]).unwrap();
    // Without an address all are local.
    expect(&both);
    ip("add", "192.0.2.1/24");
    // The other one shares the row without a name.
    expect(&format!(" {OWN}"));
    ip("add", "198.51.100.9/32");
    expect(&both);
    ip("del", "192.0.2.1/24");
    expect(&format!(" {PEER}"));
    ip("del", "198.51.100.9/32");
    expect(&both);
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let run = "SELECT local FROM runs";
    let word: String = Connection::open(&db).unwrap().query_row(run, [], |row| row.get(0)).unwrap();
    assert_eq!(word, "interface");
}
