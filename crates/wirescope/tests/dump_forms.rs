//! Forms and places of dumps: pcap beside pcapng, a single dump in one file or in a pipe.

mod run;

use run::{Done, Place, Started, wait_until};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, RAW, Record};
use std::path::{Path, PathBuf};
use std::process::Command;

const MS: i64 = 1_000_000;
const TRIGGER: [&str; 4] = ["--trigger", "hit=udp port 60000", "--dump", ""];

/// 10 s of traffic on `interfaces`, some of it late, with a packet to port 60000 after 5 s on the first.
fn capture(interfaces: Vec<Interface>, late: bool) -> Capture {
    let link_type = interfaces[0].link_type;
    let mut capture = Conversations { interfaces, payload_max: 900, ..Conversations::default() }.capture();
    let at_ns = capture.packets[0].time_ns + 5000 * MS;
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"hit");
    capture.insert(Record::new(at_ns, frame::on_link(link_type, &[], &ip)));
    if late {
        // Every tenth packet comes 20 places later than its time says.
        for at in (0..capture.packets.len() - 21).step_by(10) {
            let packet = capture.packets.remove(at);
            capture.packets.insert(at + 20, packet);
        }
    }
    capture
}

fn ethernet(name: &str) -> Interface {
    Interface::new(name, ETHERNET)
}

fn two_link_types() -> Vec<Interface> {
    vec![ethernet("eth"), Interface::new("tun", RAW)]
}

/// What a pcap file keeps of a capture.
fn as_pcap(mut capture: Capture) -> Capture {
    let link_type = capture.link_types()[0];
    capture.interfaces = vec![Interface::new("", link_type)];
    for packet in &mut capture.packets {
        (packet.interface, packet.flags, packet.lost_before) = (0, 0, 0);
    }
    capture
}

fn read(path: impl AsRef<Path>) -> Capture {
    oracle::read(path).unwrap().capture
}

#[test]
fn a_pcap_dump_holds_the_packets_times_and_lengths_of_the_pcapng_one() {
    for (interfaces, files) in [(vec![ethernet("left"), ethernet("right")], 1), (two_link_types(), 2)] {
        let input = capture(interfaces, true);
        let dump = |format: &str| {
            let place = Place::new();
            let source = place.source(&input);
            let more =
                ["--source", &source, "-s", "200", "--before", "3", "--after", "2", "--dump-format", format];
            let summary = place.summary(&[&TRIGGER[..], &more].concat());
            (summary.only_dump().clone(), place)
        };
        let ((new, _new_place), (old, old_place)) = (dump("pcapng"), dump("pcap"));
        assert_eq!((new.paths.len(), old.paths.len()), (files, files));
        assert_eq!((new.packets, new.bytes, new.complete), (old.packets, old.bytes, old.complete));
        for (new, old) in new.paths.iter().zip(&old.paths) {
            assert_eq!(
                new.file_name().unwrap().to_string_lossy().replace(".pcapng", ".pcap"),
                old.file_name().unwrap().to_string_lossy()
            );
            assert_eq!(difference(&as_pcap(read(new)), &read(old)), None);
            oracle::opens_cleanly(old).unwrap();
            assert_eq!(seen_by_tshark(new), seen_by_tshark(old));
        }
        let facts = std::fs::read_to_string(old.path.with_extension("txt")).unwrap();
        let lines: Vec<&str> = facts.lines().collect();
        assert!(lines[0].starts_with("wirescope "), "{facts}");
        assert!(lines[1].starts_with("dump 1 of trigger hit, fired by a packet of "), "{facts}");
        assert!(
            lines.contains(&format!("packets: {}", old.packets).as_str()) && nothing_was_lost(&facts),
            "{facts}"
        );
        assert_eq!(
            old_place.out_names().len(),
            files + 2,
            "the captures, their text, the log: {:?}",
            old_place.out_names()
        );
    }
}

/// Whether a dump's facts say so: of all that was asked for, or of all that the capture file has of that.
fn nothing_was_lost(facts: &str) -> bool {
    facts.contains("\ncomplete: every source listened")
        || facts.contains("\nincomplete: nothing that came was lost")
}

/// Number, time and lengths of every packet.
fn seen_by_tshark(path: &Path) -> String {
    let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len"];
    let output = Command::new("tshark").arg("-r").arg(path).args(fields).output().expect("tshark");
    assert!(
        output.status.success() && output.stdout.len() > 1000,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_packet_whose_time_a_pcap_file_can_t_hold_is_counted_as_missing_with_the_reason() {
    let mut input = Capture::ethernet("left");
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"hit");
    let last_ns = (i64::from(u32::MAX) + 1) * 1000 * MS;
    for time_ns in [last_ns - 2, last_ns - 1, last_ns] {
        input.packets.push(Record::new(time_ns, frame::on_link(ETHERNET, &[], &ip)));
    }
    let place = Place::new();
    let source = place.source(&input);
    let done = place.run(&[&TRIGGER[..], &["--source", &source, "--dump-format", "pcap"]].concat());
    assert_eq!(done.code(), Some(1), "{}", done.stderr);
    let dump = done.summary().only_dump().clone();
    assert_eq!((dump.packets, dump.lost_min, dump.lost_max, dump.complete), (2, 1, 1, false));
    assert!(done.stderr.contains("2106") && done.stderr.contains("--dump-format pcapng"), "{}", done.stderr);
    assert_eq!(
        read(&dump.path).packets.iter().map(|packet| packet.time_ns).collect::<Vec<_>>(),
        [last_ns - 2, last_ns - 1]
    );
}

/// Runs a shell line in which `$0` is the binary with the start of its command line.
fn shell(place: &Place, line: &str) -> Done {
    let program = format!("{} run --ring 64MiB --segment 64KiB", env!("CARGO_BIN_EXE_wirescope"));
    let mut command = Command::new("bash");
    command.args(["-c", &line.replace("WIRESCOPE", &program)]).current_dir(place.root());
    Started::new(command).finish(run::LIMIT)
}

#[test]
fn a_dump_into_a_pipe_is_what_a_file_would_hold() {
    let input = capture(vec![ethernet("left"), ethernet("right")], false);
    let place = Place::new();
    place.source(&input);
    let options = "-r in.pcapng --trigger 'hit=udp port 60000' --dump '' --before 2 --after 1";
    let done = shell(
        &place,
        &format!(
            "WIRESCOPE {options} -w - | tee piped.pcapng | tshark -r - | wc -l; echo ${{PIPESTATUS[@]}}"
        ),
    );
    let said: Vec<&str> = done.stdout.split_whitespace().collect();
    let whole = shell(&place, &format!("WIRESCOPE {options} --out out -w whole.pcapng"));
    assert_eq!(whole.code(), Some(0), "{}", whole.stderr);
    let (piped, whole) =
        (oracle::read(place.path("piped.pcapng")).unwrap(), read(place.path("whole.pcapng")));
    assert_eq!(said, [whole.packets.len().to_string().as_str(), "0", "0", "0", "0"], "{}", done.stderr);
    assert_eq!(difference(&whole, &piped.capture), None);
    assert!(whole.packets.len() > 100);
    oracle::opens_cleanly(&place.path("piped.pcapng")).unwrap();
    let bytes = std::fs::read(place.path("piped.pcapng")).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(nothing_was_lost(&text), "the facts stand at its end");
    assert!(
        done.stderr.contains("1 of hit: ") && done.stderr.contains("received"),
        "the summary is told beside it: {}",
        done.stderr
    );
    assert_eq!(place.out_names(), ["wirescope.jsonl"], "a single dump goes nowhere else");
}

#[test]
fn a_pipe_takes_the_link_type_of_the_hit_and_says_what_it_leaves_out() {
    let input = capture(two_link_types(), false);
    let place = Place::new();
    place.source(&input);
    let options = "-r in.pcapng --trigger 'hit=udp port 60000' --dump '' --before 2 --after 1";
    let piped = shell(&place, &format!("WIRESCOPE {options} -w - > piped.pcapng"));
    assert_eq!(piped.code(), Some(1), "{}", piped.stderr);
    assert!(piped.stderr.contains("packets of RAW are omitted"), "{}", piped.stderr);
    let whole = shell(&place, &format!("WIRESCOPE {options} -w whole.pcapng"));
    assert_eq!(whole.code(), Some(0), "{}", whole.stderr);
    assert_eq!(difference(&read(place.path("whole.pcapng")), &read(place.path("piped.pcapng"))), None);
    let left_out = read(place.path("whole_RAW.pcapng")).packets.len();
    let bytes = std::fs::read(place.path("piped.pcapng")).unwrap();
    let said = format!("at least {left_out} and at most {left_out} packets are missing");
    assert!(left_out > 0 && String::from_utf8_lossy(&bytes).contains(&said), "{said}");
}

#[test]
fn a_pcap_dump_goes_into_a_pipe_too() {
    let place = Place::new();
    place.source(&capture(vec![ethernet("left")], false));
    let options =
        "-r in.pcapng --trigger 'hit=udp port 60000' --dump '' --before 2 --after 1 --dump-format pcap";
    let done = shell(
        &place,
        &format!(
            "WIRESCOPE {options} -w - | tee piped.pcap | tcpdump --nano -r - -w read.pcap; echo \
             ${{PIPESTATUS[@]}}"
        ),
    );
    assert_eq!(done.stdout.trim(), "0 0 0", "{}", done.stderr);
    let piped = read(place.path("piped.pcap"));
    assert_eq!(difference(&piped, &read(place.path("read.pcap"))), None);
    assert!(piped.packets.len() > 100);
}

#[test]
fn a_reader_that_goes_away_ends_the_dump_incomplete_and_the_run_with_it() {
    let place = Place::new();
    let run = "WIRESCOPE --source synth:rate=20k,size=1000,trigger-at=500ms --trigger 'udp port 60000' \
        --dump '' --after 10m -w -";
    let done = shell(&place, &format!("{{ {run}; echo $? > code; }} | head -c 100000 > begin.pcapng"));
    assert_eq!(std::fs::read_to_string(place.path("code")).unwrap().trim(), "1", "{}", done.stderr);
    assert!(
        done.stderr.to_lowercase().contains("broken pipe") && !done.stderr.contains("panicked"),
        "{}",
        done.stderr
    );
    assert_eq!(place.path("begin.pcapng").metadata().unwrap().len(), 100_000);
}

#[test]
fn who_reads_a_pipe_gets_packets_before_the_window_is_over() {
    let place = Place::new();
    let line = "exec WIRESCOPE --source synth:rate=1k,trigger-at=500ms --trigger 'udp port 60000' --dump '' \
        --after 10m -w - > x";
    let program = format!("{} run --ring 64MiB --segment 64KiB", env!("CARGO_BIN_EXE_wirescope"));
    let mut command = Command::new("bash");
    command.args(["-c", &line.replace("WIRESCOPE", &program)]).current_dir(place.root());
    let started = Started::new(command);
    let bytes = || place.path("x").metadata().map_or(0, |file| file.len());
    wait_until("packets", || bytes() > 100_000);
    started.signal(libc::SIGINT);
    let done = started.finish(run::LIMIT);
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    oracle::opens_cleanly(&place.path("x")).unwrap();
}

#[test]
fn a_single_dump_overwrites_nothing_and_ends_the_run() {
    let place = Place::new();
    place.source(&capture(vec![ethernet("left")], false));
    let options = "-r in.pcapng --trigger 'hit=udp' --dump '' --before 0 --after 0 --holdoff 0 --summary \
        json -w one.pcapng";
    let done = shell(&place, &format!("WIRESCOPE {options}"));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let dump = done.summary().only_dump().clone();
    assert_eq!(dump.path, place.root().canonicalize().unwrap().join("one.pcapng"));
    assert!(!read(&dump.path).packets.is_empty());
    assert_eq!(run::names(place.root()), ["in.pcapng", "one.pcapng", "out"]);
    let again = shell(&place, &format!("WIRESCOPE {options}"));
    assert_eq!(again.code(), Some(2));
    assert!(again.stderr.contains("one.pcapng exists and is never overwritten"), "{}", again.stderr);
}

#[test]
fn the_name_of_a_single_dump_says_its_form_and_the_flag_says_otherwise() {
    let place = Place::new();
    place.source(&capture(vec![ethernet("left")], false));
    let pcapng = [0x0a, 0x0d, 0x0d, 0x0a];
    let pcap = [0x4d, 0x3c, 0xb2, 0xa1];
    for (name, more, magic) in [
        ("a.pcap", "", pcap),
        ("b.PCAP", "", pcap),
        ("c.pcapng", "", pcapng),
        ("d.pcap", "--dump-format pcapng", pcapng),
        ("e.pcapng", "--dump-format pcap", pcap),
        ("f", "", pcapng),
        ("g.cap", "", pcapng),
    ] {
        let options = format!(
            "-r in.pcapng --trigger 'hit=udp port 60000' --dump '' --before 2 --after 1 {more} -w {name}"
        );
        let done = shell(&place, &format!("WIRESCOPE {options}"));
        assert_eq!(done.code(), Some(0), "{name}: {}", done.stderr);
        assert_eq!(std::fs::read(place.path(name)).unwrap()[..4], magic, "{name}");
        oracle::opens_cleanly(&place.path(name)).unwrap();
    }
    assert!(place.path("a.txt").exists(), "the facts that a pcap file can't hold");
    for (order, words) in [
        ("-w x.pcapng.gz", "-w: x.pcapng.gz would not be compressed; write -w x.pcapng"),
        ("-w x.pcap.ZST", "-w: x.pcap.ZST would not be compressed"),
        (
            "--out out --ring-out x.pcap",
            "--ring-out: x.pcap would be a pcapng file under the name of a pcap one; write --ring-out \
             x.pcapng",
        ),
    ] {
        let done = shell(&place, &format!("WIRESCOPE -r in.pcapng --trigger udp --dump '' {order}"));
        assert_eq!(done.code(), Some(2), "{order}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{order}: {}", done.stderr);
    }
}

#[test]
fn orders_that_contradict_each_other_are_refused_all_at_once() {
    let place = Place::new();
    let check = |more: &[&str], words: &[&str]| {
        let mut command = run::wirescope(&["run", "--source", "synth:time=1s", "--ring", "64MiB"]);
        command.args(more).current_dir(place.root());
        let done = run::finish(command);
        assert_eq!((done.code(), done.stdout.as_str()), (Some(2), ""), "{more:?}: {}", done.stderr);
        words
            .iter()
            .for_each(|word| assert!(done.stderr.contains(word), "{more:?}: no '{word}' in {}", done.stderr));
    };
    check(&[], &["--out: there is no folder"]);
    check(&["-w", "-", "--summary", "json"], &["-w: the dump and --summary can't both use standard output"]);
    check(&["-w", "x", "--exit-after", "2"], &["--exit-after: -w writes a single dump"]);
    check(&["-w", "nowhere/x"], &["-w: ", "no such folder"]);
    let budget = ["-w", "x", "--dump-budget", "1GiB", "--dump-min-free", "1%", "--dump-rotate"];
    check(&budget, &["--dump-budget: it bounds", "--dump-min-free: it bounds", "--dump-rotate: it bounds"]);
    check(&["--out", "out", "--dump-budget", "10"], &["--dump-budget: '10' is too little"]);
    check(&["--out", "out", "--dump-budget", "many"], &["--dump-budget: 'many'"]);
    check(
        &["--out", "out", "--dump-min-free", "100%"],
        &["--dump-min-free: '100%' is the whole file system"],
    );
    check(&["--out", "out", "--dump-min-free", "5 apples"], &["--dump-min-free: "]);
    check(&["--out", "out", "--dump-rotate"], &["--dump-rotate: there is no bound"]);
    check(
        &["--out", "out", "--dump-format", "cap", "--log-format", "xml"],
        &["--dump-format: 'cap'", "--log-format: 'xml'"],
    );
    assert_eq!(run::names(&PathBuf::from(place.root())), ["out"], "nothing is created");
    assert!(place.out_names().is_empty());
}
