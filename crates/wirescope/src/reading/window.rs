//! The window of a dump that exists, as its own header states it.
//!
//! ```text
//! | section header: comment "dump 1 of trigger ...\nwindow: FROM to TO\n...", the program's name | ...
//! ```
//! Answers of queries and exports state what they were `asked`, and have no window. A classic pcap file states
//! nothing, and of what went into a pipe only its end knows.

use jiff::tz::TimeZone;
use scope_fault::{Fault, Setting, sentence};
use scope_packet::pcapng::{SECTION_HEADER, le32, options};
use scope_spelling::moment::Here;
use scope_store::timeline::Span;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes in which the section header stands, at most.
const HEADER_BYTES: u64 = 64 << 10;
const OPTION_COMMENT: u16 = 1;
const OPTION_APPLICATION: u16 = 4;
/// What the program's name begins with, in the files of every version.
const PROGRAM: &str = "wirescope ";

/// The window of the dump at `path`.
///
/// # Errors
/// It can't be read, or states none.
pub fn of_dump(path: &Path) -> Result<Span, Fault> {
    let fault = || Fault::of("around-dump").with_value(path.to_string_lossy());
    let mut bytes = Vec::new();
    if path.is_dir() {
        let fault = fault().cause(format!("{} is a folder", path.display()));
        return Err(fault.remedy("name a dump in it"));
    }
    File::open(path)
        .and_then(|file| file.take(HEADER_BYTES).read_to_end(&mut bytes))
        .map_err(|error| fault().error(&error).cause(format!("{}: {error}", path.display())))?;
    stated(&bytes).ok_or_else(|| {
        let span = Setting::of("from").example("TIME");
        fault()
            .cause(format!("{} states no window: it is no pcapng dump of wirescope", path.display()))
            .remedy(sentence!["give the span by ", span, " and ", Setting::of("to").example("TIME")])
    })
}

/// The window that stands in a section header.
fn stated(bytes: &[u8]) -> Option<Span> {
    let head = bytes.get(..24)?;
    if le32(head, 0) != SECTION_HEADER || le32(head, 8) != 0x1A2B_3C4D {
        return None;
    }
    let block = bytes.get(..le32(head, 4) as usize)?;
    let (mut comment, mut is_own) = (None, false);
    options(block.get(24..block.len().checked_sub(4)?)?, false, |code, value| match code {
        OPTION_COMMENT if comment.is_none() => comment = Some(String::from_utf8_lossy(value).into_owned()),
        OPTION_APPLICATION => is_own = value.starts_with(PROGRAM.as_bytes()),
        _ => {}
    });
    let comment = comment.filter(|comment| is_own && comment.starts_with("dump "))?;
    let window = comment.lines().find_map(|line| line.strip_prefix("window: "))?;
    let (from, to) = window.split_once(" to ")?;
    let here = Here { now_ns: 0, zone: TimeZone::UTC };
    let time = |text: &str| here.read(text).ok().map(|moment| moment.time_ns);
    let span = Span { from_ns: time(from)?, to_ns: time(to)? };
    (span.from_ns <= span.to_ns).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::pcapng::section_header;

    #[test]
    fn only_a_dump_s_own_header_states_a_window() {
        let check = |application: &str, comment: &str, expected: Option<(i64, i64)>| {
            let mut bytes = Vec::new();
            section_header(&mut bytes, application, comment);
            let found = stated(&bytes).map(|span| (span.from_ns, span.to_ns));
            assert_eq!(found, expected, "{application} {comment}");
            for cut in 0..bytes.len() {
                assert_eq!(stated(&bytes[..cut]), None);
            }
        };
        let window = "window: 1970-01-01T00:00:01.000000002Z to 1970-01-01T00:00:03Z";
        let facts = format!("dump 1 of trigger t, fired by hand at x\n{window}\npackets: 7\n");
        check("wirescope 0.1", &facts, Some((1_000_000_002, 3_000_000_000)));
        check("dumpcap", &facts, None);
        check("wirescope 0.1", &facts.replace("dump ", "packets of "), None);
        check("wirescope 0.1", &facts.replace("window", "asked"), None);
        check("wirescope 0.1", &facts.replace("00:00:03Z", "00:00:00Z"), None);
        check("wirescope 0.1", &facts.replace("00:00:03Z", "never"), None);
    }
}
