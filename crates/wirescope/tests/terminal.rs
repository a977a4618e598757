//! What never goes to a terminal: the bytes of a capture.

mod run;

use run::{LIMIT, Place, names, wirescope};
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Instant;

const TRAFFIC: [&str; 4] =
    ["--source", "synth:rate=1k,time=2s,trigger-at=1s", "--trigger", "hit=udp port 60000"];

/// A terminal: the side of who reads and types, and the side of programs.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut programs) = (-1, -1);
    let (name, form, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: the two numbers outlive the call; there is no name, form or size to be read or written.
    let made = unsafe { libc::openpty(&raw mut ours, &raw mut programs, name, form, size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call has just opened both, and nobody else has them.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(programs)) }
}

/// Exit code, what went to the terminal that is standard output, and standard error.
fn on_terminal(mut command: Command) -> (Option<i32>, Vec<u8>, String) {
    let (mut ours, programs) = terminal();
    let mut child = command.stdin(Stdio::null()).stdout(programs).stderr(Stdio::piped()).spawn().unwrap();
    drop(command); // it has the programs' side still
    let shown = std::thread::spawn(move || {
        let (mut shown, mut part) = (Vec::new(), [0; 4096]);
        // Where no program has it open any more, reading fails.
        while let Ok(bytes @ 1..) = ours.read(&mut part) {
            shown.extend_from_slice(&part[..bytes]);
        }
        shown
    });
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    let words =
        std::thread::spawn(move || stderr.read_to_string(&mut said).map(|_| said).unwrap_or_default());
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > LIMIT {
            drop(child.kill());
            panic!("still running: {}", words.join().unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    (status.code(), shown.join().unwrap(), words.join().unwrap())
}

#[test]
fn a_dump_is_not_written_to_a_terminal() {
    for more in [&[][..], &["--all"], &["--dump-format", "pcap"], &["--out", "out"]] {
        let place = Place::new();
        let mut command = wirescope(&["run", "--ring", "64MiB", "-w", "-"]);
        command.args(TRAFFIC).args(more).current_dir(place.root());
        let (code, shown, said) = on_terminal(command);
        assert_eq!(code, Some(2), "{said}");
        assert!(shown.is_empty(), "{} bytes on the terminal", shown.len());
        let line = said.lines().find(|line| line.contains("-w: ")).unwrap_or_default();
        assert!(
            line.contains("terminal") && line.contains("| tshark -r -") && line.contains("-w FILE"),
            "{said}"
        );
        assert!(place.out_names().is_empty(), "nothing is begun: {:?}", place.out_names());
    }
}

#[test]
fn what_is_written_for_people_goes_to_a_terminal() {
    let place = Place::new();
    let mut command = wirescope(&["run", "--ring", "64MiB", "--summary", "json", "--out"]);
    command.arg(place.out()).args(TRAFFIC);
    let (code, shown, said) = on_terminal(command);
    assert_eq!(code, Some(0), "{said}");
    assert!(shown.starts_with(b"{") && shown.is_ascii(), "{}", String::from_utf8_lossy(&shown));
}

#[test]
fn the_whole_ring_is_for_a_file_with_a_name() {
    let place = Place::new();
    let mut command = wirescope(&["run", "--ring", "64MiB", "--ring-out", "-", "--out", "out"]);
    command.args(TRAFFIC).current_dir(place.root());
    let done = run::finish(command);
    assert_eq!(done.code(), Some(2), "{}", done.stderr);
    let line = done.stderr.lines().find(|line| line.contains("--ring-out: ")).unwrap_or_default();
    assert!(line.contains("standard output") && line.contains("--ring-out ring.pcapng"), "{}", done.stderr);
    assert_eq!(names(place.root()), ["out"]);
}
