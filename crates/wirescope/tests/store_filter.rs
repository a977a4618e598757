//! A store that keeps less than the ring: what a filter and a snap length leave, what is counted, and what
//! `verify` and others tell of it.

mod run;

use run::{Done, LIMIT, Place, Started, wait_until};
use scope_testkit::oracle::{self, VlanRule, difference, tcpdump_selects};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn capture() -> Capture {
    let interfaces = ["port0", "port1"].map(|name| Interface::new(name, ETHERNET)).to_vec();
    let packets = 3000;
    Conversations { interfaces, packets, payload_max: 1200, vlan: 30, ..Conversations::default() }.capture()
}

/// The files of a store with this ending, the oldest first.
fn files(store: &Path, ending: &str) -> Vec<PathBuf> {
    let days = std::fs::read_dir(store).into_iter().flatten().flatten();
    let inside = days.filter_map(|day| std::fs::read_dir(day.path()).ok()).flatten().flatten();
    let mut found: Vec<PathBuf> =
        inside.map(|file| file.path()).filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn count(volume: &Value, key: &str, unit: &str) -> u64 {
    volume[key][unit].as_u64().expect("a count")
}

/// `published = stored + filtered + missed + behind`, over all volumes.
fn check_law(totals: &Value) {
    for unit in ["packets", "bytes"] {
        let volumes = totals["stores"].as_array().expect("a list").iter();
        let sum: u64 = volumes
            .flat_map(|volume| ["stored", "filtered", "missed", "behind"].map(|key| count(volume, key, unit)))
            .sum();
        assert_eq!(Some(sum), totals["stored"][unit].as_u64(), "{unit}: {totals}");
    }
}

/// The summary of a run that ends by itself, which has lost nothing.
fn totals(place: &Place, arguments: &[&str]) -> Value {
    let done = place.run(arguments);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let totals = serde_json::from_str(&done.stdout).expect("one JSON object");
    check_law(&totals);
    let log = std::fs::read_to_string(place.out().join("wirescope.jsonl")).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["event"] == "status" || line["event"] == "end")
        .for_each(|line| check_law(&line));
    totals
}

fn wirescope(arguments: &[&str]) -> Done {
    run::finish(run::wirescope(arguments))
}

/// What `verify` finds of these stores, which are whole: packets that are there, and those that a filter left
/// out.
fn verify(stores: &[&Path]) -> (u64, u64) {
    let paths: Vec<&str> = stores.iter().map(|store| text(store)).collect();
    let done = wirescope(&[&["verify", "--json"], &paths[..]].concat());
    assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
    let report: Value = serde_json::from_str(&done.stdout).expect("one JSON object");
    let (mut packets, mut left_out) = (0, 0);
    for file in report["files"].as_array().expect("a list") {
        packets += file["packets"].as_u64().expect("a count");
        for missing in file["missing"].as_array().expect("a list") {
            assert_eq!(missing["reason"], "filter", "{missing}");
            left_out += missing["lost_min"].as_u64().expect("a count");
        }
    }
    (packets, left_out)
}

#[test]
fn a_filter_keeps_what_tcpdump_selects_and_verify_tells_what_was_left_out_from_what_is_lost() {
    let input = capture();
    for (filter, flags, rule) in [
        ("tcp", &[][..], VlanRule::Transparent),
        ("udp and greater 300", &["--filter-engine", "interpreter"], VlanRule::Transparent),
        ("not ip6", &["--vlan", "exact"], VlanRule::Exact),
    ] {
        let place = Place::new();
        let (source, store) = (place.source(&input), place.path("store"));
        let own = ["--source", &source, "--store", text(&store), "--store-filter", filter];
        let summary = totals(&place, &[&own[..], flags].concat());
        let expected = tcpdump_selects(&input, filter, rule).expect("tcpdump");
        let left_out = 3000 - expected.len() as u64;
        assert!(left_out > 0 && left_out < 3000, "'{filter}' tells packets apart");
        let volume = &summary["stores"][0];
        let counted = ["stored", "filtered", "missed"].map(|key| count(volume, key, "packets"));
        assert_eq!(counted, [expected.len() as u64, left_out, 0]);
        let stored = files(&store, ".pcapng");
        assert_eq!((stored.len(), files(&store, ".part").len()), (1, 0), "{stored:?}");
        oracle::opens_cleanly(&stored[0]).unwrap();
        let found = oracle::read(&stored[0]).unwrap().capture;
        assert_eq!(difference(&input.subset(&expected), &found), None, "{filter}");
        assert_eq!(verify(&[&store]), (expected.len() as u64, left_out));
        let told = wirescope(&["verify", text(&store)]);
        assert!(told.stdout.contains("left out by a filter"), "{}", told.stdout);
        let list = wirescope(&["store", "list", "--store", text(&store)]);
        assert_eq!(list.code(), Some(0), "{}", list.stderr);
        assert!(!list.stdout.contains("missing"), "{}", list.stdout);
        assert!(list.stdout.contains("left out by a filter: "), "{}", list.stdout);
        if oracle::have("capinfos") {
            let shown = std::process::Command::new("capinfos").arg(&stored[0]).output().expect("capinfos");
            assert!(String::from_utf8_lossy(&shown.stdout).contains(filter), "{shown:?}");
        }
    }
}

#[test]
fn a_snap_length_cuts_what_is_stored_and_nothing_else() {
    let input = capture();
    let place = Place::new();
    let (source, store, ring) = (place.source(&input), place.path("store"), place.path("ring.pcapng"));
    let flags = ["--store", text(&store), "--store-snap", "96", "--ring-out", text(&ring)];
    let summary = totals(&place, &[&["--source", &source], &flags[..]].concat());
    let mut cut = input.clone();
    cut.packets.iter_mut().for_each(|packet| packet.data.truncate(96));
    let bytes =
        |capture: &Capture| capture.packets.iter().map(|packet| packet.data.len() as u64).sum::<u64>();
    let volume = &summary["stores"][0];
    assert_eq!(count(volume, "stored", "packets"), 3000);
    assert_eq!((count(volume, "filtered", "packets")), 0);
    assert_eq!(count(volume, "stored", "bytes"), bytes(&cut));
    assert_eq!(count(volume, "filtered", "bytes"), bytes(&input) - bytes(&cut));
    let stored = files(&store, ".pcapng");
    oracle::opens_cleanly(&stored[0]).unwrap();
    assert_eq!(difference(&cut, &oracle::read(&stored[0]).unwrap().capture), None);
    assert_eq!(difference(&input, &oracle::read(&ring).unwrap().capture), None);
    assert_eq!(verify(&[&store]), (3000, 0));
}

#[test]
fn a_filter_that_takes_nothing_leaves_a_file_that_says_so() {
    let place = Place::new();
    let store = place.path("store");
    let source = place.source(&capture());
    let flags = ["--store", text(&store), "--store-filter", "host 203.0.113.77"];
    let summary = totals(&place, &[&["--source", &source], &flags[..]].concat());
    assert_eq!(count(&summary["stores"][0], "filtered", "packets"), 3000);
    assert_eq!(verify(&[&store]), (0, 3000));
    let stored = files(&store, ".pcapng");
    oracle::opens_cleanly(&stored[0]).unwrap();
    assert!(oracle::read(&stored[0]).unwrap().capture.packets.is_empty());
    let out = place.path("out.pcapng");
    let export = wirescope(&["export", "--store", text(&store), "-w", text(&out)]);
    assert_eq!(export.code(), Some(0), "{}", export.stderr);
    let count = wirescope(&["query", "--store", text(&store), "--count"]);
    let said = "0 packets, 0 B\nstore filter: host 203.0.113.77 (other packets were left out)\n\
                nothing else is missing between them\n";
    assert_eq!((count.code(), count.stdout.as_str()), (Some(0), said), "{}", count.stderr);
}

#[test]
fn each_volume_has_its_own_filter_and_what_they_have_and_left_out_adds_up() {
    let place = Place::new();
    let stores = [place.path("a"), place.path("b")];
    let volumes = ["--store", text(&stores[0]), "--store", text(&stores[1])];
    let keeps = ["--store-filter", "ip6", "--store-filter", "", "--store-snap", "64"];
    let ring = ["--ring", "64MiB", "--segment", "64KiB"];
    let source = ["--source", "synth:packets=60k,size=1000,ipv6=10%,pace=max,seed=3"];
    let summary = totals(&place, &[&source[..], &ring, &volumes, &keeps].concat());
    let [first, second] = [0, 1].map(|at| &summary["stores"][at]);
    assert!(count(first, "filtered", "packets") > 0 && count(second, "stored", "packets") > 0, "{summary}");
    assert_eq!(count(second, "filtered", "packets"), 0);
    let (packets, left_out) = verify(&[&stores[0], &stores[1]]);
    assert_eq!(packets + left_out, 60_000);
    assert_eq!(left_out, count(first, "filtered", "packets"));
}

#[test]
fn after_a_kill_what_was_kept_and_what_was_left_out_is_known_up_to_the_last_flush() {
    let place = Place::new();
    let store = place.path("store");
    let source =
        ["--source", "synth:rate=20k,size=500,ipv6=50%,seed=7", "--ring", "64MiB", "--segment", "64KiB"];
    let flags = ["--store", text(&store), "--store-flush", "100ms", "--store-filter", "ip6"];
    let started = Started::new(place.command(&[&source[..], &flags, &["--status-every", "1s"]].concat()));
    let log = place.out().join("wirescope.jsonl");
    let acknowledged = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let stored = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            line["stores"][0]["stored"]["packets"].as_u64()
        };
        log.lines().filter_map(stored).max().unwrap_or(0)
    };
    wait_until("packets on the disk", || acknowledged() > 20_000);
    started.signal(libc::SIGKILL);
    let _ = started.finish(LIMIT);
    let promised = acknowledged();
    totals(
        &place,
        &["--source", "synth:packets=10,pace=max", "--store", text(&store), "--store-filter", "udp"],
    );
    assert_eq!(files(&store, ".part"), Vec::<PathBuf>::new());
    files(&store, ".pcapng").iter().for_each(|file| oracle::opens_cleanly(file).unwrap());
    let (packets, left_out) = verify(&[&store]);
    assert!(packets >= promised && left_out > promised / 2, "{packets} of {promised}, {left_out} left out");
}

#[test]
fn what_can_t_be_kept_is_refused_before_anything_starts() {
    let place = Place::new();
    let store = place.path("store");
    let refused = |arguments: &[&str], parts: &[&str]| {
        let done = place.run(&[&["--source", "synth:packets=10"], arguments].concat());
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.stderr);
        for part in parts {
            assert!(done.stderr.contains(part), "{arguments:?}: no '{part}' in {}", done.stderr);
        }
    };
    let own = ["--store", text(&store)];
    refused(&[&own[..], &["--store-filter", "tcp porrt 80"]].concat(), &["--store-filter", "porrt"]);
    refused(&[&own[..], &["--store-filter", "wlan type mgt"]].concat(), &["--store-filter", "ETHERNET"]);
    refused(&[&own[..], &["--store-snap", "0"]].concat(), &["--store-snap", "omit it"]);
    refused(&[&own[..], &["--store-snap", "1MiB"]].concat(), &["--store-snap", "262144"]);
    refused(&[&own[..], &["--store-snap", "-3"]].concat(), &["--store-snap"]);
    let two = ["--store-filter", "tcp", "--store-filter", "udp"];
    refused(&[&own[..], &two].concat(), &["--store-filter", "2 values for 1 volume"]);
    refused(&["--store-filter", "tcp"], &["--store-filter", "there is no store"]);
    refused(&["--store-snap", "96"], &["--store-snap", "there is no store"]);
    assert!(!store.exists(), "nothing was made");
}

#[test]
fn a_reload_leaves_filter_and_snap_length_and_says_so() {
    let place = Place::new();
    let (store, config) = (place.path("store"), place.path("c.toml"));
    let write = |filter: &str| std::fs::write(&config, format!("store-filter = [\"{filter}\"]\n")).unwrap();
    write("tcp");
    let source = ["--source", "synth:rate=1k,seed=7", "--store", text(&store), "--config", text(&config)];
    let started = Started::new(place.command(&source));
    wait_until("the first file", || !files(&store, ".part").is_empty());
    write("udp");
    started.signal(libc::SIGHUP);
    let log = place.out().join("wirescope.jsonl");
    let told = || std::fs::read_to_string(&log).unwrap_or_default().contains("store-filter: can't change");
    wait_until("a word on it", told);
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}
