//! Logs of any bytes: doctor reads what can be read, counts the rest, and never panics.

use proptest::prelude::*;
use scope_doctor::{Facts, LogError, Wanted, findings, log};
use std::io::Write;

const LINES: [&str; 12] = [
    r#"{"event":"start","logged":"2026-01-01T00:00:00Z","run":"a1","sources":["afpacket:a"],"ring_bytes":1024,"memory":"m","triggers":[{}]}"#,
    r#"{"event":"machine","pid":77,"pid_began":5,"live":true,"dumps_max":4,"captures":[{"source":"s","interface":"a","workers":2,"snap_len":96}],"nic":{"a":{"rx_packets":1,"driver":{"x":1},"altered":{"joined":5},"link":{"up":true},"notes":[{"kind":"k","remedy":"r"}]}}}"#,
    r#"{"event":"status","logged":"2026-01-01T00:00:10Z","elapsed_s":10,"dropped":{"kernel":5,"ring_pinned":1},"late":3,"sources":[{"source":"s","offered":9,"received":3,"kernel_dropped":6,"unreadable":1}],"hits":{"t":{"fired":1,"no_space":2}},"softnet":{"dropped":1,"squeezed":2}}"#,
    r#"{"event":"loss","logged":"2026-01-01T00:00:11Z","packets":{"kernel":5},"seconds":1.5,"workers":[{"busy":0.9,"starved":0.1},null]}"#,
    r#"{"event":"dump","id":1,"complete":false,"lost_min":2,"lost_max":7,"error":"e"}"#,
    r#"{"event":"interface","interface":"a","state":"gone","text":"t"}"#,
    r#"{"event":"interface","interface":"a","state":"refused","text":"t"}"#,
    r#"{"event":"long_hold"}"#,
    r#"{"event":"warning","text":"\u001b[2Jw"}"#,
    r#"{"event":"end","logged":"2026-01-01T00:00:20Z","dropped":{"kernel":9},"failures":["one"]}"#,
    r#"{"event":"ended_at_once","why":"w","dumps_open":3}"#,
    r#"{"event":"nobody knows it"}"#,
];

/// What may stand where something else is expected.
const VALUES: [&str; 12] = [
    "null",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "\"x\"",
    "\"\\u001b[2J\"",
    "[]",
    "{}",
    "[[[[]]]]",
    "true",
    "0.5",
];

fn check(facts: Option<Facts>) -> Result<(), TestCaseError> {
    let Some(facts) = facts else { return Ok(()) };
    let clean = |text: &String| !text.contains(char::is_control);
    prop_assert!(facts.elapsed_s.is_finite() && facts.elapsed_s >= 0.0);
    prop_assert!(facts.specs.iter().chain(&facts.failures).chain(&facts.warnings).all(clean), "{facts:?}");
    for finding in findings(&facts) {
        prop_assert!(!finding.cause.is_empty(), "{finding:?}");
    }
    Ok(())
}

/// Replaces the value behind the `nth` colon outside of texts.
fn with_value(line: &str, nth: usize, value: &str) -> String {
    let colons: Vec<usize> = line.match_indices("\":").map(|(at, _)| at + 2).collect();
    let Some(&at) = colons.get(nth % colons.len().max(1)) else { return line.to_string() };
    let end = line[at..].find([',', '}', ']']).map_or(line.len(), |len| at + len);
    format!("{}{value}{}", &line[..at], &line[end..])
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..3) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for (number, line) in LINES[..3].iter().enumerate() {
            if number == at {
                file.write_all(&bytes).unwrap();
            }
            writeln!(file, "{line}").unwrap();
        }
        match log::read(file.path(), &Wanted::default()) {
            Ok(facts) => check(Some(facts))?,
            Err(error) => prop_assert!(matches!(error, LogError::NoRun { .. } | LogError::NotThatRun { .. }), "{error}"),
        }
    }

    #[test]
    fn lines_in_any_order_with_any_values_make_it_panic_nowhere(
        lines in proptest::collection::vec((0..LINES.len(), any::<usize>(), 0..VALUES.len(), any::<bool>(), any::<prop::sample::Index>()), 0..30)) {
        let mut text = format!("{}\n", LINES[0]);
        for (line, nth, value, cut, at) in lines {
            let changed = with_value(LINES[line], nth, VALUES[value]);
            let end = if cut { at.index(changed.len()) } else { changed.len() };
            text.extend(changed.char_indices().filter(|(place, _)| *place < end).map(|(_, letter)| letter));
            text.push('\n');
        }
        check(log::parse(&text))?;
    }
}
