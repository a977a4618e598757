//! The whole ring as a file at the end of a run: other programs read it, and so does the next run.

mod run;

use run::{Place, names};
use scope_testkit::oracle::{self, difference};
use scope_testkit::traffic::{Capture, Conversations, ETHERNET, Interface, RAW};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

fn capture(link_types: &[u16]) -> Capture {
    let named = |(number, &link_type): (usize, &u16)| Interface::new(&format!("port{number}"), link_type);
    let interfaces = link_types.iter().enumerate().map(named).collect();
    Conversations { interfaces, vlan: 20, ..Conversations::default() }.capture()
}

fn ring_out(place: &Place, source: &str, name: &str) -> Capture {
    let file = place.path(name);
    let summary = place.summary(&["--source", source, "--ring-out", file.to_str().unwrap()]);
    summary.assert_adds_up();
    check_sound(&file);
    oracle::read(&file).unwrap().capture
}

fn check_sound(file: &Path) {
    oracle::opens_cleanly(file).unwrap();
    let bytes = std::fs::read(file).unwrap();
    assert!(
        bytes.len().is_multiple_of(4096),
        "{}: {} bytes, segments no longer lie on pages",
        file.display(),
        bytes.len()
    );
    assert!(bytes[bytes.len() - 4..] != [0; 4], "{}: ends in a zero tail", file.display());
}

#[test]
fn the_ring_in_a_file_holds_every_packet_and_is_read_again() {
    let input = capture(&[ETHERNET, ETHERNET]);
    let place = Place::new();
    let first = ring_out(&place, &place.source(&input), "ring.pcapng");
    assert_eq!(difference(&input, &first), None);
    let again = ring_out(&place, &format!("file:{}", place.path("ring.pcapng").display()), "again.pcapng");
    assert_eq!(difference(&input, &again), None);
}

#[test]
fn a_ring_that_has_turned_holds_the_newest_packets() {
    let interfaces = vec![Interface::new("port0", ETHERNET)];
    let input =
        Conversations { interfaces, packets: 8000, payload_max: 1200, ..Conversations::default() }.capture();
    let place = Place::new();
    let file = place.path("ring.pcapng");
    let source = place.source(&input);
    place.summary(&[
        "--source",
        &source,
        "--ring",
        "1MiB",
        "--segment",
        "64KiB",
        "--ring-out",
        file.to_str().unwrap(),
    ]);
    check_sound(&file);
    let found = oracle::read(&file).unwrap().capture;
    let missing = oracle::is_later_part(&input, &found).unwrap();
    let kept: usize = found.packets.iter().map(|packet| packet.data.len()).sum();
    assert!(missing > 0 && kept > 700 << 10, "{missing} missing, {kept} bytes kept of 1 MiB");
}

#[test]
fn two_link_types_give_two_files() {
    let input = capture(&[ETHERNET, RAW]);
    let place = Place::new();
    let file = place.path("ring.pcapng");
    let source = place.source(&input);
    place.summary(&["--source", &source, "--ring-out", file.to_str().unwrap()]);
    let found: Vec<String> =
        names(place.root()).into_iter().filter(|name| name.starts_with("ring")).collect();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found == ["ring.pcapng", "ring_RAW.pcapng"] || found == ["ring.pcapng", "ring_ETHERNET.pcapng"],
        "{found:?}"
    );
    for name in found {
        check_sound(&place.path(&name));
        let part = oracle::read(place.path(&name)).unwrap().capture;
        let link_types = part.link_types();
        assert_eq!(link_types.len(), 1, "{name}");
        assert_eq!(difference(&input.of_link_type(link_types[0]), &part), None, "{name}");
    }
}

#[test]
fn a_run_that_is_killed_while_it_writes_the_ring_leaves_no_half_of_it() {
    let place = Place::new();
    // In the C library's place: the process is killed when it wants the file's data to be on the disk.
    let killer = "#include <signal.h>\nint fdatasync(int file) { return raise(SIGKILL) + file; }\n";
    std::fs::write(place.path("killer.c"), killer).unwrap();
    let library = place.path("killer.so");
    let made = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(place.path("killer.c"))
        .status();
    assert!(made.unwrap().success());
    let source = place.source(&capture(&[ETHERNET]));
    let file = place.path("ring.pcapng");
    let mut command = place.command(&["--source", &source, "--ring-out", file.to_str().unwrap()]);
    command.env("LD_PRELOAD", &library);
    let done = run::finish(command);
    assert_eq!((done.code(), done.status.signal()), (None, Some(libc::SIGKILL)), "{}", done.stderr);
    assert_eq!(names(place.root()), ["in.pcapng", "killer.c", "killer.so", "out"]);
}

#[test]
fn nothing_received_still_is_a_file_that_opens() {
    let place = Place::new();
    let empty = Capture::ethernet("port0");
    let found = ring_out(&place, &place.source(&empty), "ring.pcapng");
    assert_eq!(found.packets.len(), 0);
}
