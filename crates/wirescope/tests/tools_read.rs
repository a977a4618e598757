//! Every kind of file that Wirescope writes, through the programs that people use on captures: each reads it and copies it packet
//! for packet, alone and merged with a file made by text2pcap.

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
    let mut capture = Conversations { interfaces, vlan: 20, payload_max: 900, ..Conversations::default() }.capture();
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
            let summary = place.summary(&[&TRIGGER[..], &["--source", &source, "--dump-format", format]].concat());
            let dump = summary.only_dump();
            let files = if link_types == [ETHERNET, RAW] { 2 } else { 1 };
            assert_eq!(dump.paths.len(), files, "{link_types:?}");
            dump.paths.iter().for_each(|path| is_sound(path, 100));
            if format == "pcapng" {
                assert_eq!(
                    commented(&dump.paths[0]),
                    "60000\tdump 1 of trigger hit, fired by a packet of port0",
                    "{link_types:?}"
                );
            }
        }
    }
}

#[test]
fn every_tool_copies_a_single_dump_in_a_file_and_in_a_pipe() {
    for (link_types, format) in
        [(&[ETHERNET][..], "pcapng"), (&[ETHERNET, ETHERNET], "pcapng"), (&[RAW, RAW], "pcapng"), (&[ETHERNET], "pcap")]
    {
        let place = Place::new();
        place.source(&capture(link_types, false));
        let options =
            format!("-r in.pcapng --trigger 'hit=udp port 60000' --dump '' --before 2 --after 1 --dump-format {format}");
        for place_of_it in [format!("-w whole.{format}"), format!("-w - > piped.{format}")] {
            let done = shell(&place, &format!("WIRESCOPE {options} {place_of_it}"));
            assert_eq!(done.code(), Some(0), "{}", done.stderr);
        }
        for name in ["whole", "piped"] {
            let path = place.path(&format!("{name}.{format}"));
            is_sound(&path, 100);
            if format == "pcapng" {
                assert_eq!(commented(&path), "60000\tdump 1 of trigger hit, fired by a packet of port0");
            }
        }
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
