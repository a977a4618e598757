//! Whether captures are whole: structure, checksums, order of time, and what they lack, and why.
//!
//! | module | what it holds |
//! |---|---|
//! | `report` | what was found: verdict, damaged places, spans that lack packets |
//! | `pcapng`, `pcap` | files of any program, from front to back |
//! | `statement` | what a dump says of itself |
//! | `input` | the bytes of a file, in bounded memory |
//!
//! Nothing here writes, and nothing that a file claims costs more memory than the file has brought.

mod input;
mod pcap;
mod pcapng;
mod report;
mod statement;

pub use report::{Damage, FileReport, Form, LISTED_MAX, Missing, Reason, Verdict};

use input::Input;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far the looking is: written by who reads, read by who shows it.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
}

impl Meter {
    fn read(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Looks at one capture file, from where it is opened at. What can't be read is a verdict, no error.
pub fn file(path: &Path, opened: &File, meter: &Meter) -> FileReport {
    let mut report = FileReport { path: path.to_path_buf(), ..FileReport::default() };
    report.bytes = opened.metadata().map_or(0, |facts| facts.len());
    let mut input = Input::new(opened, meter);
    if let Err(error) = walk(&mut input, &mut report) {
        let at = input.offset();
        report.refuse(format!("reading failed at byte {at}: {error}"), None);
    }
    report
}

fn walk(input: &mut Input<'_>, report: &mut FileReport) -> io::Result<()> {
    let begin = input.want(4)?;
    if begin.starts_with(&SECTION_BEGIN) {
        return pcapng::walk(input, report);
    }
    if pcap::magic(begin).is_some() {
        return pcap::walk(input, report);
    }
    refuse(&begin[..begin.len().min(4)], report);
    Ok(())
}

/// The type of a section header: the same in both byte orders.
const SECTION_BEGIN: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

/// Of a file that begins like no capture: what it is, and what helps.
fn refuse(begin: &[u8], report: &mut FileReport) {
    let compressed = match begin {
        [0x1f, 0x8b, ..] => Some(("gzip", "gunzip")),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(("zstd", "unzstd")),
        [0xfd, b'7', b'z', b'X', ..] => Some(("xz", "unxz")),
        [b'B', b'Z', b'h', _, ..] => Some(("bzip2", "bunzip2")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(("lz4", "unlz4")),
        _ => None,
    };
    if let Some((by, with)) = compressed {
        let remedy = format!("decompress it first, with {with}");
        return report.refuse(format!("is compressed with {by}"), Some(&remedy));
    }
    match begin {
        [] => report.refuse("is empty", Some("the program that made it wrote nothing")),
        [a, b, c, d, ..] => report.refuse(
            format!(
                "is no capture file: it begins with {a:02x} {b:02x} {c:02x} {d:02x}, neither pcap nor pcapng"
            ),
            Some("convert it, as with editcap"),
        ),
        few => report.refuse(format!("is no capture file: {} bytes are too few for any", few.len()), None),
    }
}
