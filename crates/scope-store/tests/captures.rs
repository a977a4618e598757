//! Captures of any program, looked at: counted as capinfos counts, and cut or changed at any place.

use scope_store::verify::{self, FileReport, Meter, Verdict};
use scope_testkit::oracle;
use scope_testkit::traffic::{Capture, Conversations, Precision, pcap, pcapng};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn look(path: &Path) -> FileReport {
    let report = verify::look(&[path], 2, &[], &Meter::default());
    report.files.into_iter().next().unwrap()
}

/// A file that is written again and again.
struct Place(tempfile::NamedTempFile);

impl Place {
    fn new(bytes: &[u8]) -> Place {
        let place = Place(tempfile::NamedTempFile::new().unwrap());
        place.0.as_file().write_all_at(bytes, 0).unwrap();
        place
    }

    fn look(&self) -> FileReport {
        look(self.0.path())
    }
}

fn look_at(bytes: &[u8]) -> FileReport {
    Place::new(bytes).look()
}

fn capture() -> Capture {
    Conversations { packets: 12, payload_max: 60, ..Conversations::default() }.capture()
}

fn forms() -> [Vec<u8>; 4] {
    let capture = capture();
    [
        pcap(&capture, Precision::Micro, false),
        pcap(&capture, Precision::Nano, true),
        pcapng(&capture, Precision::Nano, false),
        pcapng(&capture, Precision::Micro, true),
    ]
}

#[test]
fn either_form_in_either_byte_order_is_read_whole() {
    let (from_ns, to_ns) = capture().span_ns().unwrap();
    for bytes in forms() {
        let report = look_at(&bytes);
        assert_eq!((report.verdict(), report.packets), (Verdict::Whole, 12), "{report:?}");
        let (min_ns, max_ns) = report.span.unwrap();
        assert_eq!((min_ns / 1000, max_ns / 1000), (from_ns / 1000, to_ns / 1000));
    }
}

#[test]
fn times_that_step_back_are_counted_and_no_fault() {
    let mut capture = capture();
    capture.packets.swap(3, 4);
    capture.packets.swap(7, 8);
    let report = look_at(&pcap(&capture, Precision::Nano, false));
    assert_eq!((report.verdict(), report.steps_back), (Verdict::Whole, 2), "{report:?}");
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_there() {
    for bytes in forms() {
        let mut before = 0;
        for end in 0..bytes.len() {
            let report = look_at(&bytes[..end]);
            assert!(report.packets >= before && report.packets <= 12, "{end}: {report:?}");
            before = report.packets;
            // A cut between two records can't be seen.
            let is_seen = report.verdict() >= Verdict::Damaged;
            assert!(is_seen || report.damages.is_empty(), "{end}: {report:?}");
            assert!(report.verdict() != Verdict::Whole || end.is_multiple_of(4) || bytes[0] != 0x0a, "{end}");
        }
    }
}

#[test]
fn a_byte_changed_anywhere_is_never_a_crash() {
    for bytes in forms() {
        let place = Place::new(&bytes);
        #[expect(clippy::needless_range_loop, reason = "the byte is changed, and changed back")]
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                place.0.as_file().write_all_at(&[bytes[at] ^ change], at as u64).unwrap();
                let report = place.look();
                assert!(report.packets <= 12 + 12, "{at}: {report:?}");
            }
            place.0.as_file().write_all_at(&[bytes[at]], at as u64).unwrap();
        }
    }
}

/// Counts of capinfos; `None` where it complains, or isn't there.
fn capinfos(path: &Path) -> Option<u64> {
    let output = Command::new("capinfos").args(["-c", "-T", "-r"]).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().rsplit('\t').next()?.parse().ok().filter(|_| output.status.success())
}

fn counts_agree(folder: &Path) {
    if !oracle::have("capinfos") {
        return;
    }
    let mut compared = 0;
    let paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in paths.iter().filter(|path| path.is_file()) {
        let report = look(path);
        let Some(count) = capinfos(path).filter(|_| report.verdict() <= Verdict::Lost) else { continue };
        assert_eq!(report.packets, count, "{report:?}");
        compared += 1;
    }
    println!("{compared} of {} files compared", paths.len());
    assert!(compared > 0);
}

#[test]
fn captures_of_a_given_folder_have_as_many_packets_as_capinfos_counts() {
    counts_agree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../scope-source/tests/captures"));
    match std::env::var_os("CAPTURES") {
        Some(folder) => counts_agree(Path::new(&folder)),
        None => println!("skipped: CAPTURES names no folder"),
    }
}
