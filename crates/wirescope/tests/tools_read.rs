//! Every kind of file that Wirescope writes, through the programs that people use on captures: each reads it
//! and copies it packet for packet, alone and merged with a file made by text2pcap.

mod run;

use run::{Done, Place, Started, names};
use scope_testkit::oracle::{self, every_tool_copies};
use scope_testkit::traffic::frame;
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, LINUX_SLL, RAW, Record};
use std::path::{Path, PathBuf};
use std::process::Command;

const MS: i64 = 1_000_000;
const TRIGGER: [&str; 8] = ["--trigger", "hit=udp port 60000", "--dump", "", "--before", "3", "--after", "2"];

/// 10 s of traffic on interfaces of these link types, with a packet to port 60000 after 5 s on the first.
fn capture(link_types: &[u16], late: bool) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces: Vec<Interface> = link_types.iter().enumerate().map(named).collect();
    let mut capture =
        Conversations { interfaces, vlan: 20, payload_max: 900, ..Conversations::default() }.capture();
    let at_ns = capture.packets[0].time_ns + 5000 * MS;
    let ip = frame::udp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:60000".parse().unwrap(), b"hit");
    capture.insert(Record::new(at_ns, frame::on_link(link_types[0], &[], &ip)));
    if late {
        // Every tenth packet comes 20 places later than its time says.
        for at in (0..capture.packets.len() - 21).step_by(10) {
            let packet = capture.packets.remove(at);
            capture.packets.insert(at + 20, packet);
        }
    }
    capture
}

/// Runs a shell line in which `WIRESCOPE` is the binary with the start of its command line.
fn shell(place: &Place, line: &str) -> Done {
    let program = format!("{} run --ring 64MiB --segment 64KiB", env!("CARGO_BIN_EXE_wirescope"));
    let mut command = Command::new("bash");
    command.args(["-c", &line.replace("WIRESCOPE", &program)]).current_dir(place.root());
    Started::new(command).finish(run::LIMIT)
}

/// What tshark shows of the packets that carry a comment: destination port and comment.
fn commented(path: &Path) -> String {
    let fields = ["-n", "-Y", "frame.comment", "-T", "fields", "-e", "udp.dstport", "-e", "frame.comment"];
    let output = Command::new("tshark").args(fields).arg("-r").arg(path).output().expect("tshark");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Only one packet has a comment, and it says what fired.
fn is_the_one_that_fired(path: &Path) {
    let said = commented(path);
    assert!(said.starts_with("60000\tdump 1 of trigger hit, fired by a packet of "), "{said}");
    assert!(said.ends_with(" bytes on port0") && said.lines().count() == 1, "{said}");
}

fn is_sound(path: &Path, packets_min: usize) {
    every_tool_copies(path).unwrap();
    let found = oracle::read(path).unwrap().capture.packets.len();
    assert!(found >= packets_min, "{}: {found} packets", path.display());
}

#[test]
fn every_tool_copies_a_dump_of_any_form_and_any_interfaces() {
    for link_types in [&[ETHERNET][..], &[ETHERNET, ETHERNET], &[RAW, RAW], &[LINUX_SLL], &[ETHERNET, RAW]] {
        for (late, format) in [(false, "pcapng"), (true, "pcapng"), (true, "pcap")] {
            let place = Place::new();
            let source = place.source(&capture(link_types, late));
            let summary =
                place.summary(&[&TRIGGER[..], &["--source", &source, "--dump-format", format]].concat());
            let dump = summary.only_dump();
            let files = if link_types == [ETHERNET, RAW] { 2 } else { 1 };
            assert_eq!(dump.paths.len(), files, "{link_types:?}");
            dump.paths.iter().for_each(|path| is_sound(path, 100));
            if format == "pcapng" {
                is_the_one_that_fired(&dump.paths[0]);
            }
        }
    }
}

#[test]
fn every_tool_copies_a_single_dump_in_a_file_and_in_a_pipe() {
    for (link_types, format) in [
        (&[ETHERNET][..], "pcapng"),
        (&[ETHERNET, ETHERNET], "pcapng"),
        (&[RAW, RAW], "pcapng"),
        (&[ETHERNET], "pcap"),
    ] {
        let place = Place::new();
        place.source(&capture(link_types, false));
        let options = format!(
            "-r in.pcapng --trigger 'hit=udp port 60000' --dump '' --before 2 --after 1 --dump-format \
             {format}"
        );
        for place_of_it in [format!("-w whole.{format}"), format!("-w - > piped.{format}")] {
            let done = shell(&place, &format!("WIRESCOPE {options} {place_of_it}"));
            assert_eq!(done.code(), Some(0), "{}", done.stderr);
        }
        for name in ["whole", "piped"] {
            let path = place.path(&format!("{name}.{format}"));
            is_sound(&path, 100);
            if format == "pcapng" {
                is_the_one_that_fired(&path);
            }
        }
    }
}

#[test]
fn a_pipe_without_a_dump_is_a_capture_without_packets() {
    for (link_types, format) in
        [(&[ETHERNET, ETHERNET][..], "pcapng"), (&[RAW], "pcapng"), (&[ETHERNET], "pcap")]
    {
        let place = Place::new();
        place.source(&capture(link_types, false));
        let options =
            format!("-r in.pcapng --trigger 'hit=udp port 60001' --dump '' --dump-format {format} -w -");
        let done = shell(
            &place,
            &format!("WIRESCOPE {options} | tee empty | tshark -n -r - ; echo ${{PIPESTATUS[@]}}"),
        );
        assert_eq!(done.stdout.trim(), "0 0 0", "{}", done.stderr);
        is_sound(&place.path("empty"), 0);
        assert_eq!(oracle::read(place.path("empty")).unwrap().capture.packets.len(), 0);
    }
}

/// A capture on two interfaces whose second one is described where its first packet is, behind the hit: up to
/// there, and the rest.
fn appearing_late() -> (Vec<u8>, Vec<u8>) {
    let mut capture = capture(&[ETHERNET, ETHERNET], false);
    let late_ns = capture.packets[0].time_ns + 8000 * MS;
    for packet in &mut capture.packets {
        packet.interface = usize::from(packet.time_ns >= late_ns && packet.time_ns % 2 == 0);
    }
    let bytes = scope_testkit::traffic::pcapng(&capture, scope_testkit::traffic::Precision::Nano, false);
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut parts, mut late, mut descriptions, mut at) = ([Vec::new(), Vec::new()], Vec::new(), 0, 0);
    let mut part = 0;
    while at < bytes.len() {
        let block = &bytes[at..at + word(at + 4) as usize];
        match word(at) {
            1 if descriptions == 1 => late.extend_from_slice(block),
            6 if word(at + 8) == 1 && part == 0 => {
                part = 1;
                parts[1] = std::mem::take(&mut late);
                parts[1].extend_from_slice(block);
            }
            _ => parts[part].extend_from_slice(block),
        }
        descriptions += usize::from(word(at) == 1);
        at += block.len();
    }
    let [first, rest] = parts;
    (first, rest)
}

#[test]
fn an_interface_that_appears_behind_a_pipe_s_head_is_read_by_all_and_two_passes_of_tshark_make_a_copy_that_all_copy()
 {
    let place = Place::new();
    let (first, rest) = appearing_late();
    std::fs::write(place.path("first"), first).unwrap();
    std::fs::write(place.path("rest"), rest).unwrap();
    // The rest comes when the head has been written.
    let input = "{ cat first; until [ -s piped.pcapng ]; do sleep 0.05; done; cat rest; }";
    let orders = "-r - --trigger 'hit=udp port 60000' --dump '' --before 2 --after 4 -w -";
    let done = shell(&place, &format!("{input} | WIRESCOPE {orders} > piped.pcapng"));
    assert_eq!(done.code(), Some(0), "{}", done.stderr);
    let bytes = std::fs::read(place.path("piped.pcapng")).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = first_packet_at(&bytes);
    while word(at) != 1 {
        at += word(at + 4) as usize; // fails where no description stands behind a packet
    }
    let packets = oracle::read(place.path("piped.pcapng")).unwrap().capture.packets.len();
    for (program, arguments) in [
        ("capinfos", &["piped.pcapng"][..]),
        ("tshark", &["-n", "-r", "piped.pcapng"]),
        ("tcpdump", &["-n", "-r", "piped.pcapng", "-w", "copy.pcap"]),
        ("mergecap", &["-w", "merged.pcapng", "piped.pcapng"]),
        ("editcap", &["piped.pcapng", "copied.pcapng"]),
        ("tshark", &["-n", "-2", "-r", "piped.pcapng", "-w", "twice.pcapng"]),
    ] {
        wireshark(&place, program, arguments);
    }
    for copy in ["merged.pcapng", "copied.pcapng", "twice.pcapng"] {
        let found = oracle::read(place.path(copy)).unwrap().capture.packets.len();
        assert_eq!(found, packets, "{copy}");
    }
    is_sound(&place.path("twice.pcapng"), packets);
}

/// Runs a program of Wireshark's that has to end well.
fn wireshark(place: &Place, program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(place.root()).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A block with the name of 10.0.0.1.
fn names_block(name: &str) -> Vec<u8> {
    let mut record = vec![1, 0, 4 + name.len() as u8 + 1, 0, 10, 0, 0, 1];
    record.extend(name.as_bytes());
    record.push(0);
    record.resize(record.len().next_multiple_of(4), 0);
    record.extend([0; 4]);
    let total = (record.len() as u32 + 12).to_le_bytes();
    [&[4, 0, 0, 0][..], &total, &record, &total].concat()
}

/// Where the first packet block of a pcapng file begins.
fn first_packet_at(bytes: &[u8]) -> usize {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = 0;
    while word(at) != 6 {
        at += word(at + 4) as usize;
    }
    at
}

/// A capture with comments on packet `first` and the one behind it and on the last, and with a name and a
/// secret.
fn said_beside(place: &Place, name: &str, capture: &Capture, first: usize) {
    place.source_of(
        "plain.pcapng",
        &scope_testkit::traffic::pcapng(capture, scope_testkit::traffic::Precision::Nano, false),
    );
    std::fs::write(place.path("keys"), format!("CLIENT_RANDOM {name} 01\n")).unwrap();
    let comment = |at: usize, text: &str| format!("{}:{text} of {name}", at + 1);
    let last = capture.packets.len() - 1;
    let comments = [comment(first, "one"), comment(first + 1, "two"), comment(last, "outside")];
    let mut arguments: Vec<&str> = comments.iter().flat_map(|comment| ["-a", comment]).collect();
    arguments.extend(["--inject-secrets", "tls,keys", "plain.pcapng", "said.pcapng"]);
    wireshark(place, "editcap", &arguments);
    let mut bytes = std::fs::read(place.path("said.pcapng")).unwrap();
    let at = first_packet_at(&bytes);
    bytes.splice(at..at, names_block(&format!("{name}.example")));
    std::fs::write(place.path(&format!("{name}.pcapng")), bytes).unwrap();
    ["plain.pcapng", "said.pcapng", "keys"]
        .iter()
        .for_each(|name| std::fs::remove_file(place.path(name)).unwrap());
}

#[test]
fn what_a_capture_says_beside_its_packets_stays_with_them() {
    let place = Place::new();
    let near = capture(&[ETHERNET, ETHERNET], true);
    let mut far = near.clone();
    far.packets.iter_mut().for_each(|packet| packet.time_ns += 3600 * 1000 * MS);
    far.packets.retain(|packet| !packet.data.ends_with(b"hit"));
    let hit = near.packets.iter().position(|packet| packet.data.ends_with(b"hit")).unwrap();
    said_beside(&place, "near", &near, hit);
    said_beside(&place, "far", &far, hit);
    for (sources, target) in [
        ("-r near.pcapng -r far.pcapng", "-w whole.pcapng"),
        ("-r near.pcapng -r far.pcapng", "-w - > piped.pcapng"),
        ("--source file:near.pcapng,workers=2", "-w shared.pcapng"),
    ] {
        let options = "--trigger 'hit=udp port 60000' --dump '' --before 2 --after 1";
        let done = shell(&place, &format!("WIRESCOPE {sources} {options} {target}"));
        assert_eq!(done.code(), Some(0), "{}", done.stderr);
        let path = place.path(target.rsplit(' ').next().unwrap());
        let found = oracle::read(&path).unwrap();
        let fired = found.capture.packets.iter().position(|packet| packet.data.ends_with(b"hit")).unwrap();
        let said: Vec<&str> = found.packet_comments.iter().map(|(_, comment)| comment.as_str()).collect();
        let of_fired: Vec<usize> =
            found.packet_comments.iter().map(|(at, _)| *at).filter(|at| *at == fired).collect();
        assert!(
            said[0].starts_with("dump 1 of trigger hit, fired by a packet of ") && of_fired.len() == 2,
            "{said:?}"
        );
        assert_eq!(said[1..], ["one of near", "two of near"]);
        let kinds: Vec<u32> = found.names_and_secrets.iter().map(|(kind, _)| *kind).collect();
        let holds = |text: &str| {
            found.names_and_secrets.iter().any(|(_, body)| String::from_utf8_lossy(body).contains(text))
        };
        assert_eq!(kinds.len(), 2, "{target}: {:?}", found.names_and_secrets);
        assert!(holds("near.example") && holds("CLIENT_RANDOM near 01"), "{kinds:?}");
        every_tool_copies(&path).unwrap();
    }
}

fn ring_files(place: &Place, more: &[&str]) -> Vec<PathBuf> {
    let file = place.path("ring.pcapng");
    place.summary(&[more, &["--ring-out", file.to_str().unwrap()]].concat());
    names(place.root()).iter().filter(|name| name.starts_with("ring")).map(|name| place.path(name)).collect()
}

#[test]
fn every_tool_copies_a_ring_file() {
    for (link_types, more, packets_min) in [
        (&[ETHERNET][..], &[][..], 1000),
        (&[ETHERNET, ETHERNET], &["--ring", "1MiB", "--segment", "64KiB"], 500),
        (&[RAW, RAW], &[], 1000),
        (&[ETHERNET, RAW], &[], 300),
    ] {
        let place = Place::new();
        let source = place.source(&capture(link_types, false));
        let files = ring_files(&place, &[&["--source", &source][..], more].concat());
        assert_eq!(files.len(), if link_types == [ETHERNET, RAW] { 2 } else { 1 }, "{link_types:?}");
        files.iter().for_each(|path| is_sound(path, packets_min));
    }
    let place = Place::new();
    let source = place.source(&Capture::ethernet("port0"));
    ring_files(&place, &["--source", &source]).iter().for_each(|path| is_sound(path, 0));
}
