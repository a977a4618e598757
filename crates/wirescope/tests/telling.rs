//! What a run tells, where, and how often: its start, dumps once, losses last, priorities for the journal,
//! and answers to words of other programs.

mod run;

use run::{Done, Place, Started, finish, is_finished_dump, wait_until, wirescope};
use scope_testkit::traffic::{Capture, Conversations, Interface};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// A run with a summary in words.
fn in_words(place: &Place, arguments: &[&str]) -> Command {
    let mut command = wirescope(&["run", "--ring", "64MiB", "--segment", "64KiB", "--out"]);
    command.arg(place.out()).args(arguments);
    command
}

fn input(place: &Place) -> String {
    let capture: Capture = Conversations::default().capture();
    place.source(&capture)
}

#[test]
fn the_start_says_the_process_how_to_fire_and_how_to_stop() {
    let place = Place::new();
    let started = Started::new(in_words(&place, &["--source", "synth:rate=1k", "--before", "5s"]));
    wait_until("the log", || place.out_names().contains(&"wirescope.jsonl".to_string()));
    let log = place.out().join("wirescope.jsonl");
    wait_until("the status", || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("\"status\"")));
    let pid = started.pid();
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    let ready = done.stderr.lines().find(|line| line.starts_with("ready, process ")).unwrap_or_default();
    let expected = format!(
        "ready, process {pid}; no trigger, so only this writes: kill -USR1 {pid}, a dump of the last 5 s; \
         Ctrl-C or kill {pid} stops"
    );
    assert_eq!((ready, done.code()), (&expected[..], Some(0)), "{}", done.stderr);
    let source = input(&place);
    let done = finish(in_words(&place, &["--source", &source, "--trigger", "udp port 60000"]));
    assert!(done.stderr.contains("dumps the last 30 s; Ctrl-C or kill "), "{}", done.stderr);
}

/// A run that makes one dump of everything, of a file.
fn dumps(place: &Place, more: &[&str]) -> Command {
    let source = input(place);
    in_words(place, &[&["--source", &source, "--trigger", "ip", "--single", "--dump", ""], more].concat())
}

fn path_of_the_dump(place: &Place) -> String {
    let name = place.out_names().into_iter().find(|name| is_finished_dump(name)).expect("a dump");
    place.out().join(name).to_str().unwrap().to_string()
}

#[test]
fn a_dump_is_told_once_to_each_reader_and_the_summary_ends_with_what_was_lost() {
    let place = Place::new();
    let done = finish(dumps(&place, &[]));
    let path = path_of_the_dump(&place);
    let lines = |text: &str| text.lines().filter(|line| line.contains(&path)).count();
    assert_eq!(
        (lines(&done.stdout), lines(&done.stderr), done.code()),
        (1, 1, Some(0)),
        "{}{}",
        done.stdout,
        done.stderr
    );
    assert_eq!(done.stdout.lines().last(), Some("lost      nothing"), "{}", done.stdout);

    let place = Place::new();
    let command = dumps(&place, &[]);
    let mut both = Command::new("sh");
    both.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(command.get_program()).args(command.get_args());
    let done = finish(both);
    let path = path_of_the_dump(&place);
    assert_eq!(done.stdout.lines().filter(|line| line.contains(&path)).count(), 1, "{}", done.stdout);
    assert!(done.stdout.ends_with("dumps     1\nlost      nothing\n"), "{}", done.stdout);
}

#[test]
fn quiet_says_only_warnings_and_failures() {
    let place = Place::new();
    let done = finish(dumps(&place, &["--quiet"]));
    assert_eq!((done.stdout.as_str(), done.stderr.as_str(), done.code()), ("", "", Some(0)));
    let place = Place::new();
    let source = input(&place);
    let many = ["--trigger", "ip", "--dump", "host $srcIP", "--after", "1h", "--dumps-max", "1", "-q"];
    let done = finish(in_words(&place, &[&["--source", &source], &many[..]].concat()));
    assert_eq!((done.stdout.as_str(), done.code()), ("", Some(1)));
    assert!(
        done.stderr.lines().all(|line| line.contains("started no dump")) && !done.stderr.is_empty(),
        "{}",
        done.stderr
    );
    let done = finish(dumps(&Place::new(), &["-q", "-v"]));
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
}

#[test]
fn in_the_journal_each_line_has_its_priority() {
    let place = Place::new();
    let source = input(&place);
    let (mut journal, of_the_run) = UnixStream::pair().unwrap();
    let of_the_run = OwnedFd::from(of_the_run);
    let metadata = std::fs::File::from(of_the_run.as_fd().try_clone_to_owned().unwrap()).metadata().unwrap();
    let orders = ["--source", &source, "--trigger", "ip", "--dump", "vlan $vlan"];
    let mut command = in_words(&place, &orders);
    command.env("JOURNAL_STREAM", format!("{}:{}", metadata.dev(), metadata.ino()));
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(of_the_run).status().unwrap();
    drop(command); // and with it this side's copy of the socket
    let mut said = String::new();
    journal.read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(
        said.lines().all(|line| ["<6>", "<4>", "<3>"].iter().any(|priority| line.starts_with(priority))),
        "{said}"
    );
    let warnings: Vec<&str> = said.lines().filter(|line| line.starts_with("<4>")).collect();
    assert!(
        warnings.iter().any(|line| line.contains("a hit started no dump: the packet has no $vlan")),
        "{said}"
    );
    assert!(said.lines().any(|line| line.starts_with("<6>ready, process ")), "{said}");

    let done = finish({
        let mut command = in_words(&place, &orders);
        command.env("JOURNAL_STREAM", "1:2");
        command
    });
    assert!(!done.stderr.contains("<6>"), "another stream than the journal's: {}", done.stderr);
}

fn refused(done: &Done, words: &[&str]) {
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    words.iter().for_each(|word| assert!(done.stderr.contains(word), "no '{word}' in {}", done.stderr));
}

#[test]
fn a_run_that_can_never_write_anything_is_refused_with_the_remedy() {
    let place = Place::new();
    let source = input(&place);
    let remedy =
        ["nothing would be written", "--trigger EXPR", "--store DIR", "--ring-out FILE", "--summary json"];
    refused(&finish(in_words(&place, &["--source", &source])), &remedy);
    let one = place.path("one.pcapng");
    let one = one.to_str().unwrap();
    refused(&finish(wirescope(&["run", "--source", &source, "-w", one])), &["-w: ", "add --trigger EXPR"]);
    refused(&finish(wirescope(&["run", "--source", &source, "-w", "-"])), &["-w: ", "add --trigger EXPR"]);
    assert!(!std::path::Path::new(one).exists());
    let ring = place.path("ring.pcapng");
    assert_eq!(
        finish(in_words(&place, &["--source", &source, "--ring-out", ring.to_str().unwrap()])).code(),
        Some(0)
    );
    assert_eq!(place.run(&["--source", &source]).code(), Some(0), "it was asked to count");
}

#[test]
fn words_of_other_programs_are_answered() {
    let run = |arguments: &[&str]| finish(wirescope(&[&["run", "-i", "lo"], arguments].concat()));
    refused(
        &run(&["udp", "port", "53"]),
        &["'udp port 53' belongs to no flag", "--trigger 'udp port 53'", "--prefilter 'udp port 53'"],
    );
    refused(&run(&["udp port 53", "--out", "x"]), &["--trigger 'udp port 53'"]);
    for (flag, word) in [
        ("-c", "--exit-after"),
        ("-C", "--dump-budget"),
        ("-G", "--before"),
        ("-nn", "never resolved"),
        ("-A", "tcpdump -A"),
    ] {
        refused(&run(&[flag, "5"]), &[&flag[..2], word]);
    }
    for (flag, word) in [
        ("--interface", "-i IFACE"),
        ("-y", "link type"),
        ("-Q", "both directions"),
        ("-o", "--out DIR"),
        ("--duration", "timeout 60"),
        ("--count", "--exit-after"),
    ] {
        refused(&run(&[flag, "5"]), &[flag, word]);
    }
    refused(&finish(wirescope(&["-i", "lo"])), &["wirescope run -i lo"]);
    refused(&finish(wirescope(&["capture", "-i", "lo"])), &["no command 'capture'", "wirescope run -i lo"]);
    refused(
        &finish(wirescope(&["config", "a.toml"])),
        &["wirescope config check a.toml", "wirescope config show --config a.toml"],
    );
    refused(
        &finish(wirescope(&["-nn", "-i", "lo", "port", "80"])),
        &["wirescope run -i lo --trigger 'port 80' --out DIR"],
    );
    refused(
        &finish(wirescope(&["udp port\n53"])),
        &["wirescope run -i IFACE --trigger 'udp port 53' --out DIR"],
    );
    let filter = |text: &str, word: &str| refused(&finish(wirescope(&["filter", text])), &[word]);
    filter("tcp.flags.reset", "tcp[tcpflags] & tcp-rst != 0");
    filter("tcp host 10.0.0.1", "tcp and host 10.0.0.1");
    filter("port 80-90", "portrange 80-90");
    filter("frame contains \"abc\"", "tshark -r FILE -Y 'frame contains \"abc\"'");
    filter("eth0", "-i eth0");
    filter("tcp-rst", "tcp[tcpflags] & tcp-rst != 0");
    filter("upd port 53", "udp port 53");
    filter("ip.addr == 10.0.0.1", "host 10.0.0.1");
    filter("host 10.0.0.300", "300 is more than 255");
    filter("host localhost", "write: host 127.0.0.1 or host ::1");
    let place = Place::new();
    let done = place.run(&["--source", "synth:", "--trigger", "upd port 53", "--dump", "hots $srcIP"]);
    refused(&done, &["did you mean:\n  udp port 53", "did you mean:\n  host $srcIP"]);
}

#[test]
fn an_empty_trigger_says_that_every_packet_fires_it() {
    let place = Place::new();
    let source = input(&place);
    let done = place.run(&["--source", &source, "--trigger", "", "--dump", "", "--single"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(
        done.stderr.contains("trigger 'trigger1': its filter is empty, so every packet fires it"),
        "{}",
        done.stderr
    );
    let done = finish(dumps(&Place::new(), &[]));
    assert!(!done.stderr.contains("every packet"), "{}", done.stderr);
}

#[test]
fn what_can_t_be_filtered_is_recorded_and_dumped_as_the_remedy_says() {
    let mut capture = Conversations { packets: 50, ..Conversations::default() }.capture();
    capture.interfaces = vec![Interface::new("can0", 227)];
    let place = Place::new();
    let source = place.source(&capture);
    let done = place.run(&["--source", &source, "--trigger", "udp port 53"]);
    refused(&done, &["filtering not implemented", "link[0] = 1", "--dump ''"]);
    let done = place.run(&["--source", &source, "--trigger", "len > 1", "--dump", "", "--single"]);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    assert!(place.out_names().iter().any(|name| is_finished_dump(name)), "{:?}", place.out_names());
}

#[test]
fn the_check_of_a_configuration_names_file_and_key_also_of_what_is_missing() {
    let place = Place::new();
    let path = place.path("a.toml");
    let check = |text: &str, words: &[&str]| {
        std::fs::write(&path, text).unwrap();
        let done = finish(wirescope(&["config", "check", path.to_str().unwrap()]));
        refused(&done, words);
        assert!(!done.stderr.contains("--"), "flags in a file's words: {}", done.stderr);
        let file = format!("wirescope: {}", path.display());
        assert!(
            done.stderr
                .lines()
                .filter(|line| line.starts_with("wirescope"))
                .all(|line| line.starts_with(&file)),
            "{}",
            done.stderr
        );
    };
    check(
        "ring = \"1GiB\"\n",
        &["a.toml: source: there is no source", "a.toml: out: there is no folder", "write out = \"DIR\""],
    );
    check(
        "source = \"file:x.pcap\"\nout = \"x\"\n",
        &["a.toml:1: source: nothing would be written", "trigger = \"EXPR\""],
    );
    check("source = \"file:x.pcap\"\nwrite = \"x.pcapng\"\n", &["a.toml:2: write: only a trigger"]);
}

#[test]
fn the_shipped_settings_bound_the_disk_and_delete_nothing() {
    let settings =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wirescope.toml"))
            .unwrap();
    assert!(
        settings.contains("\ndump-min-free = \"10%\"\n") && settings.contains("\ndump-rotate = false\n"),
        "{settings}"
    );
    assert!(settings.contains("systemctl reload wirescope"), "{settings}");
    let place = Place::new();
    let path = place.path("wirescope.toml");
    std::fs::write(&path, settings.replace("#source", "source").replace("#trigger", "trigger")).unwrap();
    let done = finish(wirescope(&["config", "check", path.to_str().unwrap()]));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
}
