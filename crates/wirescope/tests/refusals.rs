//! Bad input: refused with exit code 2, place, cause and remedy, all faults at once, and nothing is created
//! or disturbed.

mod run;

use run::{Done, Place, Started, finish, names, wirescope};
use scope_testkit::traffic::{Conversations, ETHERNET, Interface, RAW};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What one refusal has to say: each entry is a set of words of which one has to be there, in any case.
type Words<'a> = &'a [&'a str];

fn assert_refused(name: &str, done: &Done, words: Words) {
    let said = done.stderr.to_lowercase();
    assert_eq!(done.code(), Some(2), "{name}: {said}");
    assert_eq!(done.stdout, "", "{name}");
    for alternatives in words {
        let found = alternatives.split('|').any(|word| said.contains(&word.to_lowercase()));
        assert!(found, "{name}: none of '{alternatives}' in: {said}");
    }
    assert!(!said.contains("panicked"), "{name}: {said}");
}

/// A place with one good capture, and a source that reads it.
fn place() -> (Place, String) {
    let place = Place::new();
    let source = place.source(&Conversations { packets: 100, ..Conversations::default() }.capture());
    (place, source)
}

/// Runs with the arguments given; `GOOD` stands for a source that is right, `@` for the test's folder.
fn check(name: &str, arguments: &[&str], words: Words) {
    let (place, good) = place();
    std::fs::write(place.path("text"), "this is no capture at all, it only lies there").unwrap();
    std::fs::write(place.path("empty"), "").unwrap();
    let before = names(place.root());
    let root = place.root().to_string_lossy().into_owned();
    let arguments: Vec<String> =
        arguments.iter().map(|argument| argument.replace("GOOD", &good).replace('@', &root)).collect();
    let mut command = wirescope(&["run"]);
    if !arguments.iter().any(|argument| argument == "--out") {
        command.arg("--out").arg(place.out());
    }
    if !arguments.iter().any(|argument| argument == "--ring") {
        command.args(["--ring", "16MiB"]);
    }
    command.args(&arguments);
    assert_refused(name, &finish(command), words);
    assert_eq!(names(place.root()), before, "{name}: created something");
    assert!(place.out_names().is_empty(), "{name}: wrote {:?}", place.out_names());
}

#[test]
fn sources_that_can_t_be_are_refused() {
    check("no such interface", &["-i", "nosuch0"], &["nosuch0", "interface"]);
    check("no such interface, as a source", &["--source", "afpacket:nosuch0"], &["nosuch0", "interface"]);
    check(
        "no such file",
        &["--source", "file:@/missing.pcap"],
        &["missing.pcap", "no such file|not found|does not exist"],
    );
    check("no such file, by -r", &["-r", "@/missing.pcap"], &["missing.pcap"]);
    check("no capture", &["--source", "file:@/text"], &["/text", "capture|pcap"]);
    check("an empty file", &["--source", "file:@/empty"], &["/empty", "empty|capture|pcap"]);
    check("a folder", &["--source", "file:@/out"], &["/out", "directory|folder"]);
    check(
        "unknown kind of source",
        &["--source", "carrier-pigeon:x"],
        &["carrier-pigeon", "afpacket", "file", "synth"],
    );
    check("unknown option", &["--source", "GOOD,colour=red"], &["colour", "pace|workers"]);
    check("bad value", &["--source", "synth:rate=fast"], &["rate", "fast"]);
    check("no source", &["--trigger", "udp"], &["source"]);
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    check("interface and file", &["-i", "lo", "--source", "GOOD"], &["lo", "file"]);
    check("interface and file, by -r", &["-i", "lo", "-r", "@/in.pcapng"], &["lo", "file|in.pcapng"]);
    check("live and file", &["--source", "GOOD", "--source", "afpacket:lo"], &["afpacket|live|lo", "file"]);
    check(
        "more templates than triggers",
        &["--source", "GOOD", "--trigger", "udp", "--dump", "ip", "--dump", "tcp"],
        &["--dump|template"],
    );
    check(
        "a name twice",
        &["--source", "GOOD", "--trigger", "a=udp", "--trigger", "a=tcp"],
        &["'a'|\"a\"|`a`"],
    );
}

#[test]
fn filters_that_don_t_compile_are_refused_with_their_place() {
    check(
        "syntax",
        &["--source", "GOOD", "--trigger", "udp prot 60000"],
        &["prot", "syntax|not a word", "byte|position|column|^"],
    );
    check(
        "template",
        &["--source", "GOOD", "--trigger", "udp", "--dump", "host $srcIP andd port 5"],
        &["andd", "byte|position|column|^"],
    );
    check(
        "name eaten by the shell",
        &["--source", "GOOD", "--trigger", "udp", "--dump", "host "],
        &["shell", "srcIP|{"],
    );
    check(
        "name eaten in the middle",
        &["--source", "GOOD", "--trigger", "udp", "--dump", "host  and port 7"],
        &["shell", "byte|position|column|^"],
    );
    check(
        "unknown name",
        &["--source", "GOOD", "--trigger", "udp", "--dump", "host $sourceIP"],
        &["sourceip", "srcip"],
    );
    check(
        "unknown name in braces",
        &["--source", "GOOD", "--trigger", "udp", "--dump", "host {srcIPP}"],
        &["srcipp", "srcip"],
    );
    check(
        "unknown name in the key",
        &["--source", "GOOD", "--trigger", "udp", "--holdoff-key", "$srcPrt"],
        &["srcprt", "srcport"],
    );
    check("name in a trigger", &["--source", "GOOD", "--trigger", "host $srcIP"], &["srcip"]);
    check(
        "unclosed",
        &["--source", "GOOD", "--trigger", "(udp or tcp"],
        &["(udp or tcp", "syntax|parenthes"],
    );
}

#[test]
fn sizes_and_durations_that_can_t_be_are_refused() {
    let trigger = ["--source", "GOOD", "--trigger", "udp"];
    let check = |name: &str, more: &[&str], words: Words| check(name, &[&trigger[..], more].concat(), words);
    check(
        "ring larger than memory",
        &["--ring", "100TiB"],
        &["100|ring", "memory|available|free", "gib|mib|tib|bytes"],
    );
    check(
        "ring too small for a lane",
        &["--ring", "512KiB", "--segment", "64KiB"],
        &["ring", "16|segment|lane"],
    );
    check("segment no power of two", &["--segment", "100KiB"], &["segment", "power of two|64"]);
    check("segment too small", &["--segment", "32KiB"], &["segment", "64"]);
    check("segment too large", &["--segment", "4MiB"], &["segment", "2"]);
    check("not a size", &["--ring", "plenty"], &["plenty"]);
    check("bad before", &["--before", "tomorrow"], &["tomorrow", "before"]);
    check("bad after", &["--after", "5 parsecs"], &["parsecs", "after"]);
    check("negative", &["--before=-5"], &["-5", "before"]);
    check("bad holdoff", &["--holdoff", "1x"], &["1x", "holdoff"]);
    check("no dumps at all", &["--dumps-max", "0"], &["dumps-max"]);
    check("bad vlan", &["--vlan", "maybe"], &["maybe", "transparent", "exact"]);
    check("bad engine", &["--filter-engine", "jit"], &["jit", "native", "interpreter"]);
    check("bad summary", &["--summary", "poem"], &["poem", "json"]);
    check("unknown flag", &["--frobnicate"], &["frobnicate"]);
}

#[test]
fn a_ring_too_small_for_its_lanes_is_refused() {
    let words: Words = &["ring", "2 lanes|lanes|workers|segments"];
    check("two workers", &["--source", "GOOD,workers=2", "--ring", "1MiB", "--segment", "64KiB"], words);
    check(
        "two sources",
        &[
            "--source",
            "synth:rate=10",
            "--source",
            "synth:rate=10,seed=2",
            "--ring",
            "1MiB",
            "--segment",
            "64KiB",
        ],
        words,
    );
}

#[test]
fn shares_that_leave_too_little_are_refused_all_at_once() {
    let small = ["--ring", "16MiB", "--segment", "64KiB"]; // 256 segments
    let check = |name: &str, sources: &[&str], words: Words| {
        let sources = sources.iter().flat_map(|source| ["--source", source]);
        check(name, &sources.chain(small).collect::<Vec<_>>(), words);
    };
    check(
        "two shares too small",
        &["GOOD,share=3%", "GOOD,share=2%"],
        &["share=3%': 3%", "2% of the ring are 5 segments", "need 16", "enlarge --ring"],
    );
    check(
        "too small for its workers",
        &["synth:rate=10,workers=4,share=20%", "synth:rate=10"],
        &["51 segments, its lanes need 64"],
    );
    check(
        "more than there is",
        &["synth:rate=10,share=60%", "synth:rate=10,share=40%"],
        &["100% of the ring together", "at most 90%"],
    );
    check(
        "too little for the rest",
        &["synth:rate=10,share=80%", "synth:rate=10,workers=4"],
        &["--ring", "leave 52 segments", "need 64"],
    );
    check("no share", &["synth:rate=10,share=95%"], &["share", "1% to 90%"]);
}

#[test]
fn folders_that_can_t_take_dumps_are_refused() {
    check(
        "missing",
        &["--source", "GOOD", "--trigger", "udp", "--out", "@/nowhere"],
        &["nowhere", "no such|missing|does not exist"],
    );
    check(
        "a file",
        &["--source", "GOOD", "--trigger", "udp", "--out", "@/text"],
        &["/text", "directory|folder"],
    );
    check(
        "a folder as file",
        &["--source", "GOOD", "--trigger", "udp", "-w", "@"],
        &["is a folder", "name a file in it"],
    );
    check(
        "a device as file",
        &["--source", "GOOD", "--trigger", "udp", "-w", "/dev/full"],
        &["is a device", "-w -"],
    );
    check(
        "folder of the ring file",
        &["--source", "GOOD", "--ring-out", "@/nowhere/ring.pcapng"],
        &["nowhere", "no such|missing|does not exist"],
    );
}

#[test]
fn all_faults_are_named_at_once() {
    check(
        "six",
        &[
            "--source",
            "file:@/missing.pcap",
            "--source",
            "file:@/text",
            "--trigger",
            "udp prot 5",
            "--dump",
            "host $sourceIP",
            "--segment",
            "100KiB",
            "--out",
            "@/nowhere",
        ],
        &["missing.pcap", "/text", "prot", "sourceip", "segment", "nowhere"],
    );
    check(
        "two filters",
        &["--source", "GOOD", "--trigger", "a=udp prot", "--trigger", "b=host 1.2.3.400"],
        &["prot", "1.2.3.400"],
    );
    check("options of one source", &["--source", "synth:rate=fast,colour=red"], &["fast", "colour"]);
}

#[test]
fn all_flags_that_nobody_knows_are_named_at_once() {
    check(
        "four",
        &["--frobnicate", "--rng=5", "--source", "GOOD", "-Q", "in", "--sinlge"],
        &["--frobnicate", "--rng", "'--ring'", "-Q: ", "--sinlge", "'--single'"],
    );
    check(
        "one word that is no flag behind one",
        &["--frobnicate", "udp"],
        &["unexpected argument '--frobnicate'"],
    );
}

#[test]
fn a_filter_is_refused_only_if_no_link_type_compiles_it() {
    let interfaces = vec![Interface::new("left", ETHERNET), Interface::new("tun", RAW)];
    let place = Place::new();
    let source = place.source(&Conversations { interfaces, ..Conversations::default() }.capture());
    let summary = place.summary(&["--source", &source, "--trigger", "hit=ether host 02:00:0a:00:00:01"]);
    assert!(summary.hits["hit"].sum() > 0, "{summary:?}");
    let raw =
        Conversations { interfaces: vec![Interface::new("tun", RAW)], packets: 50, ..Default::default() };
    let place = Place::new();
    let source = place.source(&raw.capture());
    let done = place.run(&["--source", &source, "--trigger", "hit=ether host 02:00:00:00:00:01"]);
    assert_refused("Ethernet addresses on raw IP", &done, &["hit|ether host", "raw|link"]);
}

fn as_nobody(place: &Place, arguments: &[&str]) -> Done {
    let mut command = Command::new(place.binary_for_all());
    command.args(arguments).uid(65534).gid(65534).current_dir("/");
    Started::new(command).finish(run::LIMIT)
}

#[test]
fn without_the_right_to_capture_the_capability_and_the_line_that_gives_it_are_told() {
    if !run::is_root() {
        return;
    }
    let place = Place::new();
    std::fs::set_permissions(place.out(), PermissionsExt::from_mode(0o777)).unwrap();
    let out = place.out();
    let done = as_nobody(&place, &["run", "-i", "lo", "--ring", "16MiB", "--out", out.to_str().unwrap()]);
    assert_refused("capture as nobody", &done, &["lo", "cap_net_raw", "setcap"]);
    assert!(place.out_names().is_empty());
}

#[test]
fn a_folder_that_can_t_be_written_and_a_file_that_can_t_be_read_are_refused() {
    if !run::is_root() {
        return;
    }
    let (place, source) = place();
    let out = place.out();
    let arguments =
        ["run", "--source", &source, "--trigger", "udp", "--ring", "16MiB", "--out", out.to_str().unwrap()];
    let done = as_nobody(&place, &arguments);
    assert_refused("folder of another user", &done, &["/out", "permission|writable|write"]);
    std::fs::set_permissions(place.out(), PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::set_permissions(place.path("in.pcapng"), PermissionsExt::from_mode(0o600)).unwrap();
    let done = as_nobody(&place, &arguments);
    assert_refused("file of another user", &done, &["in.pcapng", "permission"]);
    assert!(place.out_names().is_empty());
}

#[test]
fn a_folder_whose_file_system_has_no_unnamed_files_is_refused_before_anything_starts() {
    // SAFETY: no arguments, no memory.
    if unsafe { libc::geteuid() } != 0 || !std::path::Path::new("/dev/pts").is_dir() {
        return run::skip("only root may make files in /dev/pts, which has no unnamed ones");
    }
    let words: Words = &["/dev/pts", "without a name", "choose a folder on another one"];
    let (place, source) = place();
    let orders = ["run", "--source", &source, "--trigger", "hit=udp", "--out", "/dev/pts"];
    let mut command = wirescope(&orders);
    command.current_dir(place.root());
    assert_refused("--out /dev/pts", &finish(command), words);
}
