//! The command line: version, help, completions, man page, aliases, and flags that mean what tcpdump's users
//! expect.

mod run;

use run::{Place, finish, wirescope};
use scope_testkit::oracle::{self, VlanRule, difference, expected_dump};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Record};

const SECOND: i64 = 1_000_000_000;

/// What a command that only tells prints, on standard output, with exit code 0.
fn told(arguments: &[&str]) -> String {
    let done = finish(wirescope(arguments));
    assert_eq!(done.code(), Some(0), "{arguments:?}: {}", done.stderr);
    assert!(!done.stdout.is_empty(), "{arguments:?}");
    done.stdout
}

#[test]
fn commands_that_tell_tell_what_they_should() {
    let check = |arguments: &[&str], words: &[&str]| {
        let said = told(arguments);
        for word in words {
            assert!(said.contains(word), "{arguments:?}: no '{word}' in {said}");
        }
    };
    check(&["--version"], &["wirescope", env!("CARGO_PKG_VERSION"), "libpcap"]);
    check(&["--help"], &["run", "demo", "filter", "wirescope run"]);
    check(&["filter", "--help"], &["EXPR", "-r", "--vlan", "--link-type"]);
    let flags = [
        "--source",
        "--ring",
        "--segment",
        "--trigger",
        "--dump",
        "--before",
        "--after",
        "--holdoff",
        "--holdoff-key",
        "--single",
        "--exit-after",
        "--dumps-max",
        "--vlan",
        "--filter-engine",
        "--out",
        "--ring-out",
        "--summary",
        "-i",
        "-r",
        "-s",
        "-v",
        "afpacket:",
        "file:",
        "synth:",
    ];
    check(&["run", "--help-all"], &flags);
    check(&["completions", "bash"], &["wirescope", "--trigger"]);
    check(&["completions", "zsh"], &["wirescope", "--trigger"]);
    check(&["completions", "fish"], &["wirescope", "trigger"]);
    check(&["man"], &[".TH", "wirescope"]);
}

#[test]
fn help_shows_whole_commands_as_examples() {
    let said = told(&["run", "--help"]).to_lowercase();
    assert!(said.contains("example") && said.contains("wirescope run"), "{said}");
}

#[test]
fn no_command_at_all_is_refused_with_help() {
    let done = finish(wirescope::<&str>(&[]));
    assert_eq!(done.code(), Some(2));
    assert!(done.stderr.contains("run"), "{}", done.stderr);
}

fn capture() -> (Capture, usize) {
    let mut capture = Conversations::default().capture();
    capture.packets.iter_mut().for_each(|packet| packet.flags = 0);
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"trigger me");
    let at_ns = capture.packets[1000].time_ns + 1;
    let at = capture.insert(Record::new(at_ns, frame::on_link(ETHERNET, &[], &ip)));
    (capture, at)
}

/// Runs with the arguments, in which `FILE` stands for the capture, and compares with 'host 10.0.0.1' 2 s
/// before, 1 s after.
fn check_run(arguments: &[&str], kept_bytes: usize) {
    let (mut input, at) = capture();
    let place = Place::new();
    place.source(&input);
    let file = place.path("in.pcapng").to_string_lossy().into_owned();
    let arguments: Vec<String> = arguments.iter().map(|argument| argument.replace("FILE", &file)).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let summary = place.summary(&arguments);
    let dump = summary.only_dump();
    let (from_ns, to_ns) = (dump.time_ns - 2 * SECOND, dump.time_ns + SECOND);
    input.packets.iter_mut().for_each(|packet| packet.data.truncate(kept_bytes));
    let indices =
        expected_dump(&input, "host 10.0.0.1", from_ns, to_ns, Some(at), VlanRule::Transparent).unwrap();
    let found = oracle::read(&dump.path).unwrap().capture;
    assert_eq!(difference(&input.subset(&indices), &found), None, "{arguments:?}");
}

#[test]
fn aliases_and_short_flags_mean_the_same() {
    let window = ["--before", "2", "--after", "1"];
    let check = |arguments: &[&str], kept_bytes| check_run(&[arguments, &window].concat(), kept_bytes);
    let orders = ["--trigger", "hit=udp port 60000", "--dump", "host $srcIP"];
    check(&[&["--source", "file:FILE"], &orders[..]].concat(), usize::MAX);
    check(&[&["-r", "FILE"], &orders[..]].concat(), usize::MAX);
    check(&[&["-r", "FILE", "-s", "64"], &orders[..]].concat(), 64);
    check(&[&["-r", "FILE", "-s", "0"], &orders[..]].concat(), usize::MAX);
    check(
        &["-r", "FILE", "--trigger-expr", "hit=udp port 60000", "--dumper-expr", "host $srcIP"],
        usize::MAX,
    );
    let old = [
        "-r",
        "FILE",
        "--trigger-expr",
        "hit=udp port 60000",
        "--dumper-expr",
        "host $srcIP",
        "--dump-past",
        "2",
        "--dump-future",
        "1",
    ];
    check_run(&old, usize::MAX);
}

#[test]
fn standard_input_is_a_file_too() {
    let (input, at) = capture();
    let place = Place::new();
    place.source(&input);
    let file = std::fs::File::open(place.path("in.pcapng")).unwrap();
    let mut command =
        place.command(&["--source", "file:-", "--trigger", "hit=udp port 60000", "--dump", "host $srcIP"]);
    let output = command.stdin(file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = run::summary::Summary::parse(&String::from_utf8_lossy(&output.stdout)).unwrap();
    assert_eq!(summary.received.packets, input.packets.len() as u64);
    assert_eq!(summary.only_dump().time_ns, input.packets[at].time_ns);
}

#[test]
fn a_comma_in_a_path_is_written_with_a_backslash() {
    let (input, _) = capture();
    let place = Place::new();
    place.source(&input);
    std::fs::rename(place.path("in.pcapng"), place.path("a,b.pcapng")).unwrap();
    let source = format!("file:{},workers=1", place.path("a\\,b.pcapng").display());
    assert_eq!(place.summary(&["--source", &source]).received.packets, input.packets.len() as u64);
}
