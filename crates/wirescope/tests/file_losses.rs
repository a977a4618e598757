//! What capture files say that they lack without a time is stated by each question to the store that they were put into
//! about a time at which it may be missing, and by no other.

mod run;

use run::questions::{ask, at, keep, query};
use run::{Done, LIMIT, Place, Started, finish, wait_until, wirescope};
use scope_testkit::oracle;
use scope_testkit::traffic::{
    Capture, Conversations, ETHERNET, Interface, Precision, RAW, dropped, pcap, pcapng,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::process::Command;

const SECOND: i64 = 1_000_000_000;

/// Some megabytes, so many segments.
fn capture(link_types: &[u16], begin_s: i64) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    let conversations =
        Conversations { interfaces, packets: 20_000, payload_max: 900, ..Conversations::default() };
    let mut capture = conversations.capture();
    capture.packets.iter_mut().for_each(|packet| packet.time_ns += begin_s * SECOND);
    capture
}

fn import(place: &Place, files: &[&str]) -> Done {
    let mut command = wirescope(&["import", "--ring", "64MiB", "--store"]);
    command.arg(place.path("store")).args(files).current_dir(place.root());
    finish(command)
}

/// The time of a packet, by its place in parts of a thousand.
fn time(capture: &Capture, permille: usize) -> i64 {
    capture.packets[(capture.packets.len() - 1) * permille / 1000].time_ns
}

/// What is missing between two times: reasons, least and most.
fn missing(place: &Place, (from_ns, to_ns): (i64, i64)) -> Vec<(String, u64, Option<u64>)> {
    let (from, to) = (at(from_ns), at(to_ns));
    gaps(&ask(place, &["--from", &from, "--to", &to, "--count", "--json"]))
}

fn gaps(done: &Done) -> Vec<(String, u64, Option<u64>)> {
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let answer: Value = serde_json::from_str(&done.stdout).unwrap();
    let gap = |gap: &Value| {
        (
            gap["reason"].as_str().unwrap().to_string(),
            gap["lost_min"].as_u64().unwrap(),
            gap["lost_max"].as_u64(),
        )
    };
    let mut gaps: Vec<_> = answer["missing"].as_array().unwrap().iter().map(gap).collect();
    gaps.sort();
    gaps
}

fn file(least: u64, most: u64) -> (String, u64, Option<u64>) {
    ("file".to_string(), least, Some(most))
}

fn cut(least: u64) -> (String, u64, Option<u64>) {
    ("unreadable".to_string(), least, None)
}

/// What a question for a part of the capture, in parts of a thousand, says that it lacks.
fn part(place: &Place, capture: &Capture, from: usize, to: usize) -> Vec<(String, u64, Option<u64>)> {
    missing(place, (time(capture, from), time(capture, to)))
}

#[test]
fn drops_that_a_file_counts_at_its_end_may_be_missing_anywhere_in_it() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 0);
    let (first_ns, last_ns) = input.span_ns().unwrap();
    let bytes = [pcapng(&input, Precision::Nano, false), dropped(0, 7, last_ns)].concat();
    std::fs::write(place.path("lossy.pcapng"), bytes).unwrap();
    let done = import(&place, &["lossy.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    for (from, to) in [(0, 10), (400, 500), (990, 1000), (0, 0), (1000, 1000)] {
        assert_eq!(part(&place, &input, from, to), [file(0, 7)], "{from} to {to}");
    }
    assert_eq!(gaps(&ask(&place, &["--count", "--json"])), [file(7, 7)]);
    assert_eq!(gaps(&ask(&place, &["host 10.99.0.1", "--count", "--json"])), [file(0, 7)]);
    assert!(missing(&place, (first_ns - 9 * SECOND, first_ns - SECOND)).iter().all(|gap| gap.0 != "file"));
    // The file itself says the same.
    let (from, to) = (at(time(&input, 400)), at(time(&input, 500)));
    let span = ["--from", &from, "--to", &to];
    let of_file = query(&place, &[&["-r", "lossy.pcapng", "--count", "--json"], &span[..]].concat());
    assert_eq!(gaps(&of_file), [file(0, 7)]);
    let of_file = query(&place, &["-r", "lossy.pcapng", "--count", "--json", "--to", &at(first_ns - SECOND)]);
    assert!(gaps(&of_file).iter().all(|gap| gap.0 != "file"), "{}", of_file.stdout);
    // In words, in a file, and through a pipe.
    let done = ask(&place, &[&["--count"], &span[..]].concat());
    assert!(!done.stdout.contains("nothing is missing"), "{}", done.stdout);
    let done = ask(&place, &[&["-w", "out.pcapng"], &span[..]].concat());
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(!done.stderr.contains("nothing is missing"), "{}", done.stderr);
    let comment = oracle::read(place.path("out.pcapng")).unwrap().comments.concat();
    assert!(comment.contains("incomplete: at least 0 and at most 7 packets are missing"), "{comment}");
    // Its statistics count the most: what it says itself isn't made more of.
    let again = query(&place, &["-r", "out.pcapng", "--count", "--json"]);
    assert_eq!(gaps(&again), [file(0, 7)], "{}", again.stdout);
    let mut piped = wirescope(&["query", "-w", "-"]);
    piped.arg("--store").arg(place.path("store")).args(span);
    let out = piped.stdin(std::process::Stdio::null()).output().unwrap();
    assert!(out.status.success());
    let found = oracle::parse(&out.stdout).unwrap();
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("at most 7 packets are missing"),
        "{:?}",
        found.comments
    );
}

#[test]
fn a_truncated_file_lacks_one_packet_at_least_from_its_end_on_and_nothing_in_front_of_it() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 0);
    let bytes = pcap(&input, Precision::Nano, false);
    std::fs::write(place.path("cut.pcap"), &bytes[..bytes.len() - 5]).unwrap();
    let done = import(&place, &["cut.pcap"]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert_eq!(part(&place, &input, 0, 500), []);
    assert_eq!(part(&place, &input, 990, 999), [cut(0)]);
    let all = ask(&place, &["--count", "--json"]);
    assert_eq!(gaps(&all), [cut(1)]);
    let done = ask(&place, &["-w", "out.pcapng"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let comment = oracle::read(place.path("out.pcapng")).unwrap().comments.concat();
    assert!(comment.contains("incomplete: at least 1 packet is missing"), "{comment}");
    let mut verify = wirescope(&["verify", "--json"]);
    verify.arg(place.path("store"));
    let verified: Value = serde_json::from_str(&finish(verify).stdout).unwrap();
    let files = verified["files"].as_array().unwrap();
    let rows: Vec<&Value> = files.iter().flat_map(|file| file["missing"].as_array().unwrap()).collect();
    assert_eq!(rows.len(), 1, "{verified}");
    assert_eq!(
        (&rows[0]["reason"], &rows[0]["lost_min"], &rows[0]["lost_max"]),
        (&"unreadable".into(), &1.into(), &Value::Null)
    );
}

#[test]
fn of_two_files_that_are_imported_together_each_says_what_it_lacks() {
    let place = Place::new();
    // The first one is cut before the second begins, which counts drops of an interface without packets.
    let (first, mut second) = (capture(&[ETHERNET], 0), capture(&[ETHERNET], 100_000));
    second.interfaces.push(Interface::new("silent", RAW));
    let bytes = pcapng(&first, Precision::Nano, false);
    std::fs::write(place.path("cut.pcapng"), &bytes[..bytes.len() - 5]).unwrap();
    let (_, last_ns) = second.span_ns().unwrap();
    let bytes = [pcapng(&second, Precision::Nano, false), dropped(1, 9, last_ns)].concat();
    std::fs::write(place.path("lossy.pcapng"), bytes).unwrap();
    let done = import(&place, &["cut.pcapng", "lossy.pcapng"]);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    assert_eq!(part(&place, &first, 0, 500), [file(0, 9)]);
    assert_eq!(part(&place, &second, 400, 500), [file(0, 9), cut(0)]);
    assert_eq!(gaps(&ask(&place, &["--count", "--json"])), [file(9, 9), cut(1)]);
}

#[test]
fn what_files_lack_concerns_no_other_run_of_the_store() {
    let place = Place::new();
    let (live, later) = (capture(&[ETHERNET], 0), capture(&[ETHERNET], 200_000));
    keep(&place, &live);
    let input = capture(&[ETHERNET], 100_000);
    let (_, last_ns) = input.span_ns().unwrap();
    let bytes = [pcapng(&input, Precision::Nano, false), dropped(0, 7, last_ns), vec![6, 0, 0]].concat();
    std::fs::write(place.path("lossy.pcapng"), bytes).unwrap();
    assert_eq!(import(&place, &["lossy.pcapng"]).code(), Some(1));
    keep(&place, &later);
    for run in [&live, &later] {
        assert_eq!(part(&place, run, 0, 1000), []);
    }
    assert_eq!(part(&place, &input, 0, 500), [file(0, 7)]);
    assert_eq!(part(&place, &input, 0, 1000), [file(7, 7), cut(1)]);
    let mut list = wirescope(&["store", "list", "--store"]);
    list.arg(place.path("store"));
    let listed = finish(list);
    assert_eq!(listed.code(), Some(0), "{}", listed.stderr);
    assert!(listed.stdout.contains("missing: 7 file, at least 1 unreadable"), "{}", listed.stdout);
}

#[test]
fn a_volume_with_a_filter_says_what_the_files_of_its_run_lack() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 0);
    let (_, last_ns) = input.span_ns().unwrap();
    let bytes = [pcapng(&input, Precision::Nano, false), dropped(0, 7, last_ns), vec![6, 0, 0]].concat();
    let source = place.source_of("lossy.pcapng", &bytes);
    let store = place.path("store");
    let to = [
        "--store",
        store.to_str().unwrap(),
        "--store-filter",
        "udp",
        "--segment",
        "64KiB",
        "--ring",
        "16MiB",
    ];
    place.summary(&[&["--source", &source[..]], &to[..]].concat());
    let said = part(&place, &input, 0, 200);
    assert!(said.contains(&file(0, 7)) && !said.contains(&cut(0)), "{said:?}");
    let all = gaps(&ask(&place, &["--count", "--json"]));
    assert!(all.contains(&file(7, 7)) && all.contains(&cut(1)), "{all:?}");
}

#[test]
fn a_run_was_going_also_where_a_filter_left_out_all() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET], 0);
    // Only packets in the middle match, and the last one says that some in front of it were lost.
    let last = input.packets.len() - 1;
    input.packets[last].lost_before = 4;
    let source = place.source_of("lossy.pcapng", &pcapng(&input, Precision::Nano, false));
    let (store, begin_ns) = (place.path("store"), input.packets[0].time_ns);
    let filter = format!("len == {}", input.packets[last / 2].data.len());
    let to = ["--store", store.to_str().unwrap(), "--store-filter", &filter, "--segment", "64KiB"];
    place.summary(&[&["--source", &source[..], "--ring", "16MiB"], &to[..]].concat());
    let all = ask(&place, &["--count", "--json"]);
    assert_eq!(gaps(&all), [file(4, 4)], "{}", all.stdout);
    let answer: Value = serde_json::from_str(&all.stdout).unwrap();
    assert!(answer["packets"].as_u64().unwrap() < input.packets.len() as u64 / 2, "{answer}");
    // In front of the first packet that was kept, behind the last one, and between them.
    let recorded = |gaps: &[(String, u64, Option<u64>)]| gaps.iter().all(|gap| gap.0 != "not_recorded");
    for (from, to) in [(0, 1), (300, 400), (499, 501), (998, 999)] {
        let said = part(&place, &input, from, to);
        assert!(recorded(&said), "{from} to {to}: {said:?}");
    }
    // The loss lies in the last segment, whatever that has.
    assert_eq!(missing(&place, (time(&input, 999), time(&input, 1000))), [file(0, 4)]);
    let before = missing(&place, (begin_ns - 9 * SECOND, begin_ns - SECOND));
    assert!(!recorded(&before), "{before:?}");
    let behind = input.packets[last].time_ns + SECOND;
    let behind = missing(&place, (behind, behind + SECOND));
    assert!(!recorded(&behind), "{behind:?}");
}

#[test]
fn packets_beyond_the_bound_of_link_types_are_missing_in_the_store() {
    let place = Place::new();
    // A worker takes the first 8 of them.
    let input = capture(&[1, 101, 113, 9, 0, 105, 107, 104, 228, 229], 0);
    let mut taken = BTreeSet::new();
    let mut is_refused =
        |interface: usize| !taken.contains(&interface) && (taken.len() == 8 || !taken.insert(interface));
    let refused =
        input.packets.iter().map(|packet| packet.interface).filter(|&it| is_refused(it)).count() as u64;
    assert!(refused > 0);
    std::fs::write(place.path("ten.pcapng"), pcapng(&input, Precision::Nano, false)).unwrap();
    assert_eq!(import(&place, &["ten.pcapng"]).code(), Some(1));
    let said = gaps(&ask(&place, &["--count", "--json"]));
    let lost: u64 = said.iter().map(|gap| gap.1).sum();
    assert_eq!((lost, said.iter().all(|gap| gap.2 == Some(gap.1))), (refused, true), "{said:?}");
    let mut verify = wirescope(&["verify", "--json"]);
    verify.arg(place.path("store"));
    let verified: Value = serde_json::from_str(&finish(verify).stdout).unwrap();
    assert_eq!(verified["verdict"], "lost", "{verified}");
}

#[test]
fn a_store_that_truncates_says_so_in_each_answer() {
    let place = Place::new();
    let input = capture(&[ETHERNET], 0);
    let source = place.source_of("whole.pcapng", &pcapng(&input, Precision::Nano, false));
    let store = place.path("store");
    let to = ["--store", store.to_str().unwrap(), "--store-snap", "60", "--ring", "16MiB"];
    place.summary(&[&["--source", &source[..]], &to[..]].concat());
    let done = ask(&place, &["udp[100] = 1", "--count"]);
    assert!(done.stdout.contains("store snap length: 60 B"), "{}", done.stdout);
    assert!(done.stdout.contains("nothing else is missing"), "{}", done.stdout);
    let answer: Value = serde_json::from_str(&ask(&place, &["--count", "--json"]).stdout).unwrap();
    assert_eq!(answer["snaps"], serde_json::json!([60]));
    let done = ask(&place, &["-w", "out.pcapng"]);
    assert!(done.stdout.contains("store snap length: 60 B"), "{}{}", done.stdout, done.stderr);
    let comment = oracle::read(place.path("out.pcapng")).unwrap().comments.concat();
    assert!(
        comment.contains("store snap length: 60 B") && comment.contains("nothing else is missing"),
        "{comment}"
    );
}

#[test]
fn of_a_file_that_is_gone_from_a_filtered_store_the_least_is_0() {
    let place = Place::new();
    let input = Conversations { packets: 80_000, payload_max: 900, ..Conversations::default() }.capture();
    let source = place.source_of("whole.pcapng", &pcapng(&input, Precision::Nano, false));
    let store = place.path("store");
    let to = [
        "--store",
        store.to_str().unwrap(),
        "--store-filter",
        "not arp",
        "--segment",
        "64KiB",
        "--ring",
        "16MiB",
    ];
    place.summary(&[&["--source", &source[..], "--store-file", "8MiB"], &to[..]].concat());
    let count = || -> u64 {
        let done = ask(&place, &["--count", "--json"]);
        serde_json::from_str::<Value>(&done.stdout).unwrap()["packets"].as_u64().unwrap()
    };
    let all = count();
    let mut files = Vec::new();
    for day in std::fs::read_dir(&store).unwrap().flatten().filter(|day| day.path().is_dir()) {
        files.extend(std::fs::read_dir(day.path()).unwrap().flatten().map(|file| file.path()));
    }
    files.sort();
    assert!(files.len() > 2, "{files:?}");
    std::fs::remove_file(&files[1]).unwrap();
    let said = gaps(&ask(&place, &["--count", "--json"]));
    let (gone, most) = (all - count(), said[0].2.unwrap());
    assert_eq!((said.len(), &said[0].0[..], said[0].1), (1, "deleted", 0), "{said:?}");
    assert!(most > gone && gone > 0, "{gone} of {most}");
}

#[test]
fn a_run_that_goes_on_says_what_its_file_lacked() {
    let place = Place::new();
    let mut input = capture(&[ETHERNET], 0);
    input.interfaces.push(Interface::new("silent", ETHERNET));
    let (_, last_ns) = input.span_ns().unwrap();
    assert!(Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
    let store = place.path("store");
    let run = place.command(&["-r", "-", "--store", store.to_str().unwrap(), "--ring", "64MiB"]);
    let mut relay = Command::new("sh");
    relay.args(["-c", "exec \"$0\" \"$@\" < fifo"]).arg(run.get_program()).args(run.get_args());
    relay.current_dir(place.root());
    let run = Started::new(relay);
    let mut pipe = File::options().write(true).open(place.path("fifo")).unwrap();
    pipe.write_all(&pcapng(&input, Precision::Nano, false)).unwrap();
    let answer = || -> Option<Value> {
        let done = ask(&place, &["--count", "--json"]);
        serde_json::from_str(&done.stdout).ok().filter(|_| done.code() == Some(0))
    };
    let packets = input.packets.len();
    wait_until("all packets are flushed", || answer().is_some_and(|answer| answer["packets"] == packets));
    assert_eq!(part(&place, &input, 0, 1000), []);
    pipe.write_all(&dropped(0, 7, last_ns)).unwrap();
    wait_until("the loss is flushed", || part(&place, &input, 0, 500) == [file(0, 7)]);
    // And once more: of the two records in the slot each was replaced.
    pipe.write_all(&dropped(1, 2, last_ns)).unwrap();
    wait_until("both are", || part(&place, &input, 0, 1000) == [file(9, 9)]);
    assert_eq!(answer().unwrap()["packets"], packets);
    drop(pipe);
    assert_eq!(run.finish(LIMIT).code(), Some(0));
    assert_eq!(part(&place, &input, 0, 500), [file(0, 9)]);
}
