//! How stores are read for a question: threads, memory and the page cache change no answer, and no more is read than
//! must be.

mod run;

use run::questions::{ask, at, forget, keep};
use run::{Place, names};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::{Capture, Conversations};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Of what is stored, the part that the kernel may keep: what it has read ahead when reading ends, 1 to 2 MiB a file.
const LEFT_PART: u64 = 3;

fn files(place: &Place) -> Vec<PathBuf> {
    let store = place.path("store");
    let days = names(&store).into_iter().filter(|name| name.starts_with("20"));
    days.flat_map(|day| names(&store.join(&day)).into_iter().map(move |name| PathBuf::from(&day).join(name)))
        .map(|file| store.join(file))
        .collect()
}

/// Bytes of the store's files that lie in memory, as the kernel says.
fn cached_bytes(place: &Place) -> u64 {
    let output =
        Command::new("fincore").args(["-b", "-n", "-r", "-o", "RES"]).args(files(place)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .split_whitespace()
        .map(|bytes| bytes.parse::<u64>().unwrap())
        .sum()
}

/// Several runs whose times lie over each other, and step back.
fn overlapping() -> (Place, Capture) {
    let place = Place::new();
    let mut all = None;
    for seed in 0..6 {
        let mut capture =
            Conversations { packets: 3000, seed, payload_max: 700, ..Conversations::default() }.capture();
        for (number, packet) in capture.packets.iter_mut().enumerate() {
            packet.time_ns += seed as i64 * 7_000_000 + if number % 50 == 0 { -40_000_000 } else { 0 };
        }
        keep(&place, &capture);
        match &mut all {
            None => all = Some(capture),
            Some(all) => all.packets.extend(capture.packets),
        }
    }
    let mut all = all.unwrap();
    all.packets.sort_by_key(|packet| packet.time_ns);
    (place, all)
}

#[test]
fn threads_and_memory_change_no_answer() {
    let (place, all) = overlapping();
    let ways: [&[&str]; 4] =
        [&[], &["--threads", "1"], &["--threads", "7"], &["--threads", "3", "--memory", "64MiB"]];
    for filter in ["", "tcp", "host 10.0.0.3", "less 200"] {
        let mut first: Option<Capture> = None;
        for (number, way) in ways.iter().enumerate() {
            let file = format!("{}_{number}.pcapng", filter.replace([' ', '.'], "_"));
            let done = ask(&place, &[&[filter, "-w", &file], *way].concat());
            assert_eq!(done.code(), Some(0), "{}", done.stderr);
            let found = oracle::read(place.path(&file)).unwrap().capture;
            assert!(found.packets.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
            match &first {
                None => {
                    if filter.is_empty() {
                        let times =
                            |of: &Capture| of.packets.iter().map(|packet| packet.time_ns).collect::<Vec<_>>();
                        assert_eq!(times(&found), times(&all));
                    }
                    first = Some(found);
                }
                Some(first) => assert_eq!(difference(first, &found), None, "'{filter}' {way:?}"),
            }
        }
    }
}

#[test]
fn a_count_of_everything_is_taken_from_feet() {
    let (place, all) = overlapping();
    let done = ask(&place, &["--count", "--json", "--explain"]);
    let count: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(count["packets"], all.packets.len());
    assert_eq!(count["bytes"], all.packets.iter().map(|packet| packet.data.len()).sum::<usize>());
    let said = done.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    // Of each lane only the last segment is read.
    assert!(said.contains(" 6 read whole"), "{said}");
    let (from, to) = (all.packets[4000].time_ns, all.packets[12_000].time_ns);
    let done = ask(&place, &["--count", "--json", "--from", &at(from), "--to", &at(to)]);
    let count: Value = serde_json::from_str(&done.stdout).unwrap();
    let inside: Vec<_> = all.packets.iter().filter(|packet| (from..=to).contains(&packet.time_ns)).collect();
    assert_eq!(count["packets"], inside.len());
    assert_eq!(count["bytes"], inside.iter().map(|packet| packet.data.len()).sum::<usize>());
}

#[test]
fn a_question_leaves_next_to_nothing_in_the_page_cache() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 14) || !oracle::have("fincore") {
        return run::skip("needs Linux 6.14 and fincore");
    }
    let place = Place::new();
    keep(
        &place,
        &Conversations { packets: 20_000, seed: 3, payload_max: 900, ..Conversations::default() }.capture(),
    );
    forget(&place.path("store"));
    if cached_bytes(&place) > 0 {
        return run::skip("this file system keeps its pages in memory");
    }
    let stored: u64 = files(&place).iter().map(|file| file.metadata().unwrap().len()).sum();
    let left_max = stored / LEFT_PART;
    for filter in ["", "tcp", "host 10.0.0.3"] {
        forget(&place.path("store"));
        let done = ask(&place, &[filter, "--top", "host"]);
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let left = cached_bytes(&place);
        assert!(left <= left_max, "'{filter}': {left} of {stored} bytes");
    }
    // What was there before stays, but for what the kernel takes back by itself.
    let whole = std::fs::read(&files(&place)[0]).unwrap().len() as u64;
    assert_eq!(ask(&place, &["--top", "host"]).code(), Some(0));
    let after = cached_bytes(&place);
    assert!(after > whole / 2, "{after} of {whole}");
}

#[test]
fn where_no_run_is_known_to_have_been_going_is_stated() {
    let place = Place::new();
    let capture = |seed, hours: i64| {
        let mut capture =
            Conversations { packets: 4000, seed, payload_max: 900, ..Conversations::default() }.capture();
        for packet in &mut capture.packets {
            packet.time_ns += hours * 3_600_000_000_000;
        }
        capture
    };
    let (first, second) = (capture(1, 0), capture(2, 5));
    keep(&place, &first);
    keep(&place, &second);
    let missing = |arguments: &[&str]| -> Vec<(String, String, String, Option<u64>)> {
        let done = ask(&place, &[&["--count", "--json"], arguments].concat());
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let count: Value = serde_json::from_str(&done.stdout).unwrap();
        let text = |gap: &Value, key: &str| gap[key].as_str().unwrap_or_default().to_string();
        let gaps = count["missing"].as_array().unwrap().iter();
        gaps.map(|gap| (text(gap, "reason"), text(gap, "from"), text(gap, "to"), gap["lost_max"].as_u64()))
            .collect()
    };
    let iso = scope_spelling::time::iso;
    let ((begin, end), (next, _)) = (first.span_ns().unwrap(), second.span_ns().unwrap());
    let between = ("not_recorded".to_string(), iso(end + 1), iso(next - 1), Some(0));
    assert_eq!(missing(&[]), std::slice::from_ref(&between));
    assert_eq!(missing(&["udp port 53"]), std::slice::from_ref(&between));
    let early = ("not_recorded".to_string(), iso(begin - 1000), iso(begin - 1), Some(0));
    assert_eq!(missing(&["--from", &at(begin - 1000)]), [early, between]);
    let done = ask(&place, &["--count"]);
    assert!(
        done.stdout.contains("nothing is missing between them; no run is known to have been going: between "),
        "{}",
        done.stdout
    );
    // Behind the last packet, up to what was asked for, and where all of that lies behind it.
    let last = second.span_ns().unwrap().1;
    let behind = ("not_recorded".to_string(), iso(last + 1), iso(last + 1000), Some(0));
    assert_eq!(missing(&["--from", &at(last), "--to", &at(last + 1000)]), [behind]);
    let gaps = missing(&["--from", &at(last + 1000)]);
    assert_eq!((gaps.len(), &*gaps[0].0, &gaps[0].1), (1, "not_recorded", &iso(last + 1000)));
}

#[test]
fn what_retention_deleted_in_front_of_the_span_is_stated() {
    let place = Place::new();
    let store = place.path("store");
    let source = "synth:packets=60k,size=1000,pace=max,seed=3,start=2020-01-01T00:00:00Z,rate=100k";
    let bounds = ["--store-file", "8MiB", "--store-budget", "40MiB"];
    let run =
        ["--source", source, "--ring", "16MiB", "--segment", "64KiB", "--store", store.to_str().unwrap()];
    place.summary(&[&run[..], &bounds].concat());
    let asked = ["--count", "--json", "--from", "2020-01-01T00:00:00Z"];
    let done = ask(&place, &asked);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let count: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(count["packets"].as_u64().unwrap() < 60_000, "{count}");
    let gap = &count["missing"][0];
    assert_eq!(gap["reason"], "deleted", "{count}");
    assert_eq!(gap["from"], "2020-01-01T00:00:00.000000000Z");
    assert!(gap["lost_max"].is_null(), "{gap}");
}
