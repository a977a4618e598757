//! What breaks while it runs: files that are cut or damaged, and a disk that is full.

mod run;

use run::{Place, Started, wirescope};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, Precision, pcap, pcapng};

fn capture() -> Capture {
    let interfaces = vec![Interface::new("left", ETHERNET)];
    Conversations { interfaces, payload_max: 900, ..Conversations::default() }.capture()
}

/// Reads `bytes`, dumps everything and compares: `whole` packets have to be there, and a warning on standard
/// error.
fn check(name: &str, bytes: &[u8], input: &Capture, whole: usize, warned: bool) {
    let place = Place::new();
    let source = place.source_of("in", bytes);
    let everything = "ip or ip6 or not ip";
    let done = place.run(&[
        "--source",
        &source,
        "--trigger",
        everything,
        "--single",
        "--dump",
        everything,
        "--after",
        "60",
    ]);
    assert_eq!(done.code(), Some(0), "{name}: {}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    assert_eq!(summary.received.packets, whole as u64, "{name}");
    let mut expected = input.subset(&(0..whole).collect::<Vec<usize>>());
    if name.contains("pcap,") {
        expected.interfaces[0].name.clear();
        expected.packets.iter_mut().for_each(|packet| packet.flags = 0);
    }
    let dump = summary.only_dump();
    let unreadable =
        dump.gaps.iter().any(|gap| (&*gap.reason, gap.lost_min, gap.lost_max) == ("unreadable", 0, None));
    assert_eq!(unreadable, warned, "{name}: a damage inside the window leaves it incomplete: {dump:?}");
    assert!(
        dump.lost_nothing() || warned,
        "{name}: the end of a file inside the window is no loss: {dump:?}"
    );
    assert_eq!(difference(&expected, &oracle::read(&dump.path).unwrap().capture), None, "{name}");
    let said = done.stderr.to_lowercase();
    let warning = ["cut", "damaged", "truncated", "short"].iter().any(|word| said.contains(word));
    assert_eq!(warning, warned, "{name}: {said}");
}

/// The last end of a block that is at or before `at`, and how many packets come before it.
fn packets_before(input: &Capture, at: usize, as_bytes: impl Fn(&Capture) -> Vec<u8>) -> usize {
    let len = |packets: usize| as_bytes(&input.subset(&(0..packets).collect::<Vec<usize>>())).len();
    let counts: Vec<usize> = (0..=input.packets.len()).collect();
    counts.partition_point(|&packets| len(packets) <= at) - 1
}

#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    let mut input = capture();
    input.packets.truncate(600);
    let classic = |c: &Capture| pcap(c, Precision::Nano, false);
    let next_generation = |c: &Capture| pcapng(c, Precision::Nano, false);
    let bytes = classic(&input);
    check("pcap, whole", &bytes, &input, 600, false);
    for at in [bytes.len() / 2, bytes.len() / 3 + 5, bytes.len() - 1] {
        check(&format!("pcap, cut at {at}"), &bytes[..at], &input, packets_before(&input, at, classic), true);
    }
    let bytes = next_generation(&input);
    check("pcapng whole", &bytes, &input, 600, false);
    for at in [bytes.len() / 2 + 1, bytes.len() / 3 + 5, bytes.len() - 1] {
        check(
            &format!("pcapng cut at {at}"),
            &bytes[..at],
            &input,
            packets_before(&input, at, next_generation),
            true,
        );
    }
}

#[test]
fn a_damaged_file_is_read_up_to_the_damage() {
    let mut input = capture();
    input.packets.truncate(300);
    let whole = 200;
    let start = pcapng(&input.subset(&(0..whole).collect::<Vec<usize>>()), Precision::Nano, false).len();
    let mut bytes = pcapng(&input, Precision::Nano, false);
    bytes[start + 4..start + 8].copy_from_slice(&[0xff, 0xff, 0xff, 0x7f]);
    check("pcapng damaged", &bytes, &input, whole, true);
}

#[test]
fn a_drop_count_of_the_file_itself_is_part_of_what_a_dump_says_of_its_window() {
    let mut input = capture();
    input.packets.truncate(600);
    input.packets[300].lost_before = 5;
    let place = Place::new();
    let source = place.source_of("in", &pcapng(&input, Precision::Nano, false));
    let dropped = |until: usize| {
        let after_ns = input.packets[until].time_ns - input.packets[0].time_ns;
        let after = format!("{}.{:09}", after_ns / 1_000_000_000, after_ns % 1_000_000_000);
        let everything = "ip or ip6 or not ip";
        let rest = ["--trigger", everything, "--single", "--dump", "", "--before", "0", "--after", &after];
        let done = place.run(&[&["--source", &source][..], &rest].concat());
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        done.summary().only_dump().clone()
    };
    let with = dropped(400);
    let gaps: Vec<_> = with.gaps.iter().map(|gap| (&*gap.reason, gap.lost_min, gap.lost_max)).collect();
    assert_eq!((with.complete, gaps), (false, vec![("file", 5, Some(5))]));
    assert_eq!((with.lost_min, with.lost_max), (5, 5));
    let without = dropped(200);
    assert!(without.complete && without.gaps.is_empty(), "{without:?}");
}

#[test]
fn one_source_that_is_cut_does_not_stop_the_others() {
    let input = capture();
    let place = Place::new();
    let bytes = pcapng(&input, Precision::Nano, false);
    let cut = place.source_of("cut", &bytes[..bytes.len() / 4]);
    let whole = place.source_of("whole", &bytes);
    let done = place.run(&["--source", &cut, "--source", &whole]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    assert!(summary.received.packets > input.packets.len() as u64, "{summary:?}");
    assert!(done.stderr.contains("cut"), "{}", done.stderr);
}

/// A command inside a mount namespace of its own, with a small file system over the folder for dumps.
fn on_small_disk(place: &Place, arguments: &[&str]) -> std::process::Command {
    let script = "mount -t tmpfs -o size=256k none \"$0\" && exec \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", script]).arg(place.out());
    command.arg(wirescope::<&str>(&[]).get_program());
    command
        .args(["run", "--summary", "json", "--ring", "64MiB", "--segment", "64KiB", "--out"])
        .arg(place.out());
    command.args(arguments);
    command
}

#[test]
fn a_full_disk_makes_the_dump_incomplete_and_capture_goes_on() {
    if !run::is_root() || !oracle::have("unshare") {
        return;
    }
    let input = capture();
    let bytes: usize = input.packets.iter().map(|packet| packet.data.len()).sum();
    assert!(bytes > 600_000, "more than the disk takes: {bytes}");
    let place = Place::new();
    let source = place.source(&input);
    let everything = "ip or ip6 or not ip";
    let arguments =
        ["--source", &source, "--trigger", everything, "--single", "--dump", everything, "--after", "60"];
    let done = Started::new(on_small_disk(&place, &arguments)).finish(run::LIMIT);
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let summary = done.summary();
    summary.assert_adds_up();
    assert_eq!(summary.received.packets, input.packets.len() as u64);
    assert_eq!(summary.stored, summary.received);
    assert!(summary.dumps.iter().all(|dump| !dump.complete), "{summary:?}");
    let said = done.stderr.to_lowercase();
    assert!(said.contains("no space") || said.contains("full"), "{said}");
}
