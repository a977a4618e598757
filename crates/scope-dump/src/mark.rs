//! How a dump's file is known for one that Wirescope made: by its name's pattern, and by what stands at its
//! beginning.
//!
//! ```text
//!  2026-11-20T20-31-05.123456789Z_TRIGGER_0001[_LINKTYPE][-2].pcapng | .pcap | .txt
//!  \___________ 30 letters ______/        number      a name that was taken
//! ```
//! A pcapng dump bears the mark in its section header, the text file beside a pcap dump in its first lines;
//! both name the dump's number and trigger, and these must be those of the file's name. A pcap file bears
//! none.

use scope_packet::pcapng::{SECTION_HEADER, le32, padded};

/// Endings of a dump's files.
pub(crate) const PCAPNG: &str = "pcapng";
/// See [`PCAPNG`].
pub(crate) const PCAP: &str = "pcap";
/// The facts beside a pcap dump.
pub(crate) const FACTS: &str = "txt";
/// The writing program, as headers and text files name it.
pub(crate) const APPLICATION: &str = concat!("wirescope ", env!("CARGO_PKG_VERSION"));
/// The same in every version.
const PROGRAM: &str = "wirescope ";
/// Bytes at the beginning of a file in which the mark stands, in the files of every version.
pub const MARK_BYTES: usize = 16 << 10;
/// Letters of the time in front of a name.
const TIME_LEN: usize = 30;
const OPTION_COMMENT: u16 = 1;

/// Whether a name is one that dumps have.
pub(crate) fn is_dump_name(name: &str) -> bool {
    let Some((stem, ending)) = name.rsplit_once('.') else { return false };
    let (Some(time), Some(rest)) = (stem.get(..TIME_LEN), stem.get(TIME_LEN..)) else { return false };
    let letters =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    let numbered = |text: &str| {
        text.split(['_', '-']).any(|part| part.len() >= 4 && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let (trigger, number) = rest.strip_prefix('_').and_then(|rest| rest.split_once('_')).unwrap_or_default();
    [PCAPNG, PCAP, FACTS].contains(&ending)
        && is_time(time)
        && !trigger.is_empty()
        && letters(trigger)
        && letters(number)
        && numbered(number)
}

/// `2026-11-20T20-31-05.123456789Z`.
fn is_time(text: &str) -> bool {
    const PATTERN: &[u8; TIME_LEN] = b"0000-00-00T00-00-00.000000000Z";
    text.bytes()
        .zip(PATTERN)
        .all(|(byte, pattern)| if *pattern == b'0' { byte.is_ascii_digit() } else { byte == *pattern })
}

/// The names' common part of the dump that a file with this name and beginning belongs to; `None` where the
/// mark is missing or speaks of another dump.
pub fn marked_stem(name: &str, begin: &[u8]) -> Option<String> {
    let (stem, ending) = name.rsplit_once('.').filter(|_| is_dump_name(name))?;
    let facts = match ending {
        PCAPNG => comment_of_section(begin)?,
        FACTS => begin.strip_prefix(PROGRAM.as_bytes())?.splitn(2, |byte| *byte == b'\n').nth(1)?,
        _ => return None,
    };
    let facts = facts.strip_prefix(b"dump ")?;
    let (id, facts) = until(facts, b" of trigger ")?;
    let (trigger, _) = until(facts, b", fired ")?;
    let id: u64 = std::str::from_utf8(id).ok()?.parse().ok()?;
    let own = format!("{}_{}_{id:04}", stem.get(..TIME_LEN)?, std::str::from_utf8(trigger).ok()?);
    let rest = stem.strip_prefix(&own)?;
    (rest.is_empty() || rest.starts_with(['_', '-'])).then_some(own)
}

/// The comment of the section header at the start of `begin`, if Wirescope wrote it.
fn comment_of_section(begin: &[u8]) -> Option<&[u8]> {
    let head = begin.get(..28)?;
    let little = le32(head, 0) == SECTION_HEADER && le32(head, 8) == 0x1A2B_3C4D;
    let (code, len) =
        (u16::from_le_bytes([head[24], head[25]]), u16::from_le_bytes([head[26], head[27]]) as usize);
    if !little || code != OPTION_COMMENT {
        return None;
    }
    let comment = begin.get(28..28 + len)?;
    // The program's name is the next option.
    begin.get(28 + padded(len) + 4..)?.starts_with(PROGRAM.as_bytes()).then_some(comment)
}

/// Splits at `what`.
fn until<'a>(bytes: &'a [u8], what: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(what.len()).position(|window| window == what)?;
    Some((&bytes[..at], &bytes[at + what.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::header;
    use crate::report::DumpReport;

    const NAME: &str = "2026-11-20T20-31-05.123456789Z_my-hit_0001";

    #[test]
    fn names_of_dumps_are_told_from_others() {
        let is = |name: &str| is_dump_name(name);
        assert!(
            is(&format!("{NAME}.pcapng"))
                && is(&format!("{NAME}_LINUX_SLL.pcap"))
                && is(&format!("{NAME}-2.txt"))
        );
        assert!(is("2026-11-20T20-31-05.123456789Z_a_b_12345_RAW-3.pcapng"));
        for other in
            ["wirescope.jsonl", "ring.pcapng", "x_0001.pcapng", &NAME[1..], NAME, "", ".", "\u{e9}.pcapng"]
        {
            assert!(!is(other), "{other}");
            assert!(!is(&format!("x{other}.pcapng")), "{other}");
        }
        for (from, to) in
            [("2026", "20x6"), ("_my-hit_", "__"), ("_0001", "_001"), ("Z_my", "Z-my"), ("hit", "h/t")]
        {
            assert!(!is(&format!("{}.pcapng", NAME.replace(from, to))), "{to}");
        }
        assert!(!is(&format!("{NAME}.json")));
    }

    #[test]
    fn the_mark_names_the_dump_of_the_file_s_name() {
        let report =
            DumpReport { id: 1, trigger: "my-hit".into(), why: "by hand".into(), ..DumpReport::default() };
        let begin = header(&report, &[], 16 << 10);
        let stem = |name: &str, begin: &[u8]| marked_stem(name, begin);
        for more in ["", "-2", "_RAW", "_RAW-9"] {
            assert_eq!(stem(&format!("{NAME}{more}.pcapng"), &begin).as_deref(), Some(NAME), "{more}");
        }
        let facts = format!("{APPLICATION}\n{}", crate::header::facts(&report));
        assert_eq!(stem(&format!("{NAME}.txt"), facts.as_bytes()).as_deref(), Some(NAME));
        assert_eq!(stem(&format!("{NAME}.pcap"), &begin), None, "a pcap file has no mark");
        assert_eq!(
            stem(&format!("{}.pcapng", NAME.replace("0001", "0002")), &begin),
            None,
            "another dump's number"
        );
        assert_eq!(
            stem(&format!("{}.pcapng", NAME.replace("my-hit", "hit")), &begin),
            None,
            "another trigger's"
        );
        let mut other = begin.clone();
        let at = begin.windows(10).position(|window| window == b"wirescope ").expect("the program's name");
        other[at] = b'W';
        assert_eq!(stem(&format!("{NAME}.pcapng"), &other), None, "another program's");
        for cut in 0..200 {
            let _ = stem(&format!("{NAME}.pcapng"), &begin[..cut]);
        }
    }
}
