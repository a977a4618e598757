//! Questions that can't be meant, stores that aren't what they were, and output that takes nothing: each is told with
//! its place and what helps, with exit code 2 before anything is read, or 1 behind that.

mod run;

use run::questions::{query, words};
use run::{Place, Started, names, wirescope};
use scope_testkit::traffic::{Capture, Precision, Record, frame, pcapng};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

const MS: i64 = 1_000_000;

fn input() -> Capture {
    let mut capture = Capture::ethernet("eth0");
    for number in 0..5000u32 {
        let udp = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:53".parse().unwrap(), &[7; 300]);
        let packet = frame::ethernet(&[], 0x0800, &udp);
        capture.insert(Record::new(1_700_000_000_000_000_000 + i64::from(number) * MS, packet));
    }
    capture
}

/// A place with a store, and the same packets in a file.
fn place() -> Place {
    let place = Place::new();
    let capture = input();
    fs::write(place.path("in.pcapng"), pcapng(&capture, Precision::Nano, false)).unwrap();
    let (source, folder) = (place.source(&capture), place.path("store"));
    place.summary(&["--source", &source, "--store", folder.to_str().unwrap(), "--ring", "16MiB"]);
    place
}

#[test]
fn standard_output_that_is_what_is_read_is_refused() {
    let place = place();
    let mark = place.path("store").join("wirescope.store");
    let kept = fs::read(&mark).unwrap();
    let capture = fs::read(place.path("in.pcapng")).unwrap();
    let asked = |arguments: &[&str], output: &std::path::Path| {
        let file = File::options().append(true).create(true).open(output).unwrap();
        let mut command = wirescope(&["query"]);
        command.args(arguments).current_dir(place.root()).stdout(file).stderr(Stdio::piped());
        let done = command.spawn().unwrap().wait_with_output().unwrap();
        (done.status.code(), words(&String::from_utf8_lossy(&done.stderr)))
    };
    for form in ["--count", "--explain"] {
        let (code, told) = asked(&["--store", "store", form], &mark);
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("would stand in the store"), "{told}");
        let (code, told) = asked(&["-r", "in.pcapng", form], &place.path("in.pcapng"));
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("it is what standard output goes to"), "{told}");
    }
    assert!(fs::read(&mark).unwrap() == kept && fs::read(place.path("in.pcapng")).unwrap() == capture);
    let (code, told) = asked(&["--store", "store"], &place.path("out.pcapng"));
    assert_eq!(code, Some(0), "{told}");
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_remedy() {
    let place = place();
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("text"), "no capture").unwrap();
    let before = names(place.root());
    let refused = |arguments: &[&str], told: &str| {
        let done = query(&place, arguments);
        assert_eq!(done.code(), Some(2), "{arguments:?}: {}", done.stderr);
        assert!(words(&done.stderr).contains(told), "{arguments:?}: {}", done.stderr);
        assert_eq!(done.stdout, "", "{arguments:?}");
    };
    let store = |arguments: &[&str], told: &str| refused(&[&["--store", "store"], arguments].concat(), told);
    refused(
        &["--count"],
        "name a store: --store DIR, a capture file: -r FILE, or the socket of an instance: --control PATH",
    );
    refused(&["--store", "empty", "--count"], "it is no store");
    refused(&["--store", "none", "--count"], "check the path");
    refused(&["-r", "none", "--count"], "-r: none: no such file");
    refused(&["-r", "text", "--count"], "-r: text: is no capture file");
    refused(&["-r", "empty", "--count"], "is a folder, not a capture file; name the files in it");
    refused(&["-r", "in.pcapng", "-r", "in.pcapng", "--count"], "is given twice; omit it once");
    store(&["--from", "@9000000000", "--count"], "is in the future: now is");
    store(&["--from", "@1700000001", "--to", "@1700000000", "--count"], "exchange it with --from");
    store(&["--at", "20:31", "--count"], "give --within 30s with it");
    store(&["--limit", "3"], "a capture has all packets; omit it, or give --format json");
    store(
        &["wlan type mgt", "--count"],
        "ETHERNET: 802.11 link-layer types supported only on 802.11; ask stores",
    );
    store(&["--around", "wlan type mgt", "--count"], "--around: filter 'wlan type mgt'");
    store(&["--around", "prot 80", "--count"], "--around: filter: syntax error");
    store(&["--before", "5s", "--count"], "--before: it says how far around what");
    store(&["--around", "udp", "--after", "5x", "--count"], "--after:");
    store(&["--around", "udp", "--after", "-5s", "--count"], "--after: '-5s'");
    store(&["--at", "@1700000000", "--within", "-5s", "--count"], "--within: '-5s'");
    store(&["--timeline", "--step", "-1s"], "--step: '-1s'");
    store(&["--threads", "-1", "--count"], "--threads: '-1'");
    store(&["--around-dump", "text", "--count"], "states no window");
    store(&["--around-dump", "none", "--count"], "none");
    store(&["--top", "hosts"], "write one of: host, port, pair, proto");
    store(&["--timeline", "--step", "0s"], "--step: '0s' is no length");
    store(&["--step", "1s", "--count"], "only a timeline has steps; add --timeline, or omit it");
    store(&["--timeline", "--step", "1us"], "more than 100,000; lengthen them, e.g. --step 50us");
    store(&["--threads", "0", "--count"], "--threads: '0' is not from 1 to 64");
    store(&["--threads", "65", "--count"], "--threads: '65' is not from 1 to 64");
    store(&["--memory", "63MiB", "--count"], "is less than 64 MiB; write e.g. --memory 256MiB");
    store(&["--tmp", "none", "--count"], "--tmp: none: no file can be made in it");
    store(&["--json"], "is the form of a count, a top list or a timeline");
    store(&["--format", "xml"], "write pcapng, pcap or json");
    store(&["-w", "store/new.pcapng"], "would stand in the store store; choose another folder");
    store(&["-w", "in.pcapng"], "exists and is never overwritten");
    assert_eq!(names(place.root()), before, "nothing is left behind");
}

#[test]
fn several_faults_are_told_at_once() {
    let place = place();
    let done = query(
        &place,
        &[
            "--store",
            "none",
            "-r",
            "nothing",
            "--threads",
            "0",
            "--memory",
            "1KiB",
            "--from",
            "@2e",
            "prot 80",
            "--top",
            "x",
        ],
    );
    assert_eq!(done.code(), Some(2));
    let told = words(&done.stderr);
    for part in [
        "--store: none",
        "-r: nothing",
        "--threads: '0'",
        "--memory: '1KiB'",
        "--from: '@2e'",
        "filter: syntax",
        "--top: 'x'",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn output_that_takes_nothing_ends_the_answer_and_says_so() {
    let place = place();
    for which in [["--store", "store"], ["-r", "in.pcapng"]] {
        let done = query(&place, &[&which[..], &["-w", "/dev/full"]].concat());
        assert_eq!(done.code(), Some(1), "{}", done.stderr);
        assert!(words(&done.stderr).contains("/dev/full: No space left on device"), "{}", done.stderr);
        for form in ["--count", "--timeline", "--top host", "--format json", "-w -"] {
            let mut command = wirescope(&["query"]);
            command.args(which).args(form.split(' ')).current_dir(place.root()).stdin(Stdio::null());
            let child =
                command.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
            let done = child.output().unwrap();
            let told = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(1), "{form}: {told}");
            assert!(words(&told).contains("standard output: No space left on device"), "{form}: {told}");
            assert!(told.contains("free some space"), "{form}: {told}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_is_no_failure_of_words() {
    let place = place();
    for form in ["--format json", "--count", "--timeline"] {
        let binary = env!("CARGO_BIN_EXE_wirescope");
        let line = format!("{binary} query --store store {form} 2> said | true; echo ${{PIPESTATUS[0]}}");
        let done = Command::new("bash").args(["-c", &line]).current_dir(place.root()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "0\n", "{form}");
        assert_eq!(fs::read_to_string(place.path("said")).unwrap(), "", "{form}");
    }
}

#[test]
fn a_standard_output_that_was_closed_is_warned_of() {
    let place = place();
    let said = |words: &str, output: &str| {
        let line = format!("{} {words} --store store {output}", env!("CARGO_BIN_EXE_wirescope"));
        let done = Command::new("sh").args(["-c", &line]).current_dir(place.root()).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{words}");
        String::from_utf8_lossy(&done.stderr).contains("standard output: it was closed")
    };
    for words in ["query --count", "query --format json", "query", "export -w -"] {
        assert!(said(words, ">&-") && !said(words, ">/dev/null"), "{words}");
    }
    assert!(!said("query -w out.pcapng", ">&-"));
}

#[test]
fn devices_and_named_pipes_get_what_a_pipe_gets() {
    let place = place();
    let done = query(&place, &["--store", "store", "-w", "/dev/null"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("5,000 packets to /dev/null; nothing is missing"), "{}", done.stdout);
    let fifo = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn(move || fs::read(fifo).unwrap());
    let done = query(&place, &["--store", "store", "-w", "fifo"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let found = scope_testkit::oracle::parse(&reader.join().unwrap()).unwrap();
    assert_eq!(found.capture.packets.len(), 5000);
    // What is standard output all the same gets packets and no words.
    let binary = env!("CARGO_BIN_EXE_wirescope");
    let line = format!("{binary} query --store store -w /dev/stdout | cat > out.pcapng");
    assert!(Command::new("sh").args(["-c", &line]).current_dir(place.root()).status().unwrap().success());
    let found = scope_testkit::oracle::read(place.path("out.pcapng")).unwrap();
    assert_eq!(found.capture.packets.len(), 5000);
}

#[test]
fn a_terminal_gets_no_packets_and_is_told_of_the_pipe() {
    let place = place();
    let (mut ours, mut programs) = (-1, -1);
    let (name, form, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: the two numbers outlive the call; there is no name, form or size to be read or written.
    let made = unsafe { libc::openpty(&raw mut ours, &raw mut programs, name, form, size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call has just opened both, and nobody else has them.
    let (mut ours, programs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(programs)) };
    let on_terminal = |arguments: &[&str]| {
        let mut command = wirescope(&["query", "--store", "store"]);
        command.args(arguments).current_dir(place.root()).stdin(Stdio::null());
        let done = command.stdout(programs.try_clone().unwrap()).stderr(Stdio::piped()).output().unwrap();
        (done.status.code(), words(&String::from_utf8_lossy(&done.stderr)))
    };
    for arguments in [&["-w", "-"][..], &["--format", "pcap"], &["--format", "pcapng"]] {
        let (code, told) = on_terminal(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {told}");
        assert!(told.contains("append e.g. | tshark -r - to the command"), "{arguments:?}: {told}");
    }
    // Without all that it is a table.
    let (code, told) = on_terminal(&["--limit", "2"]);
    assert_eq!((code, told.as_str()), (Some(0), ""));
    drop(programs);
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    while let Ok(bytes @ 1..) = ours.read(&mut part) {
        shown.extend_from_slice(&part[..bytes]);
    }
    let shown = words(&String::from_utf8_lossy(&shown));
    assert!(
        shown.contains("IP 10.0.0.1.1000 > 10.0.0.2.53: UDP") && shown.contains("4,998 more packets"),
        "{shown}"
    );
}

#[test]
fn a_store_of_another_version_is_refused_and_one_that_is_deleted_is_told() {
    let place = place();
    let mark = place.path("store/wirescope.store");
    let text = fs::read_to_string(&mark).unwrap();
    fs::write(&mark, text.replace("\"version\":1", "\"version\":9")).unwrap();
    let done = query(&place, &["--store", "store", "--count"]);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    assert!(words(&done.stderr).contains("it is a store of version 9"), "{}", done.stderr);
    fs::write(&mark, text).unwrap();
    // The question waits for a reader of its pipe, when the store goes.
    let fifo = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut command = wirescope(&["query", "--store", "store", "-w", "fifo"]);
    command.current_dir(place.root());
    let started = Started::new(command);
    let store = fs::canonicalize(place.path("store")).unwrap();
    run::wait_until("the store to be open", || {
        let open = fs::read_dir(format!("/proc/{}/fd", started.id())).into_iter().flatten().flatten();
        open.into_iter().any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == store))
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    fs::remove_dir_all(place.path("store")).unwrap();
    let reader = std::thread::spawn(move || fs::read(fifo).unwrap());
    let done = started.finish(run::LIMIT);
    let _ = reader.join().unwrap();
    assert!(matches!(done.code(), Some(1 | 2)), "{:?}: {} {}", done.code(), done.stdout, done.stderr);
    assert!(words(&done.stderr).contains("the store was deleted meanwhile"), "{}", done.stderr);
}

#[test]
fn ctrl_c_ends_a_question_and_leaves_nothing_behind() {
    let place = place();
    let tmp = place.path("tmp");
    fs::create_dir(&tmp).unwrap();
    // Of a pipe that nobody writes to there is no end.
    let fifo = place.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut command = wirescope(&["query", "-r", "fifo", "-w", "out.pcapng", "--tmp", "tmp"]);
    command.current_dir(place.root());
    let started = Started::new(command);
    let writer = File::options().write(true).open(place.path("fifo")).unwrap();
    let bytes = pcapng(&input(), Precision::Nano, false);
    std::io::Write::write_all(&mut &writer, &bytes[..bytes.len() / 2]).unwrap();
    let done = started.signal_until_it_ends(libc::SIGINT);
    assert_eq!(done.code(), Some(130), "{}", done.stderr);
    drop(writer);
    assert!(!place.path("out.pcapng").exists());
    assert_eq!(names(&tmp), Vec::<String>::new());
}
