//! A dump's own statement in its section header: which trigger fired, why, the hits, the filter, the window
//! and the loss inside it.
//!
//! ```text
//!  | section header, the facts as its comment | description of each interface | padding to the end of the reserve | packets ...
//! ```
//! The reserve, [`HEADER_BYTES`] or more, is filled in before the file gets its name. The padding is a
//! local-use block, and stands behind the descriptions: Wireshark's programs (editcap, mergecap, reordercap)
//! can't write a copy of a file in which one stands in front of them, and reordercap of none in which a
//! description stands behind another block.

use crate::gaps;
use crate::mark::APPLICATION;
use crate::report::DumpReport;
use scope_packet::Gap;
use scope_packet::pcapng::{self, BLOCK_BYTES_MIN};
use scope_spelling::figures::plural;
use scope_spelling::time::iso;
use std::fmt::Write;

/// Bytes reserved at the start of each dump, at least.
pub const HEADER_BYTES: usize = 20 << 10;
/// The reserve is a multiple of this.
const RESERVE_ALIGN: usize = 4096;
/// Bytes of a filter that the header shows; of a longer one the beginning, which it says.
const FILTER_BYTES_MAX: usize = 2000;
/// Bytes of the section header at most.
const SECTION_BYTES_MAX: usize = 16 << 10;
/// Bytes of its comment at most.
const COMMENT_BYTES_MAX: usize = SECTION_BYTES_MAX - 512;

/// Bytes to reserve where descriptions take `description_bytes`.
pub(crate) fn reserve_bytes(description_bytes: usize) -> usize {
    (SECTION_BYTES_MAX + description_bytes + BLOCK_BYTES_MIN)
        .next_multiple_of(RESERVE_ALIGN)
        .max(HEADER_BYTES)
}

/// The reserve of `reserve_bytes`, filled in.
pub(crate) fn header(report: &DumpReport, descriptions: &[u8], reserve_bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(reserve_bytes);
    pcapng::section_header_on(&mut out, APPLICATION, &facts(report), &report.circumstances.kernel);
    out.extend(descriptions);
    assert!(out.len() + BLOCK_BYTES_MIN <= reserve_bytes, "facts and descriptions are bounded");
    let from = out.len();
    out.resize(reserve_bytes, 0);
    pcapng::padding(&mut out[from..]);
    out
}

/// What is known of a dump before it is made, for a pipe.
pub(crate) fn intro(report: &DumpReport) -> String {
    let host = report.circumstances.host_lines();
    let rules = report.circumstances.rule_lines();
    format!(
        "{}{host}{rules}written to a pipe: the statistics at its end have window, hits and losses",
        origin(report)
    )
}

/// The comment of the packet that fired.
pub(crate) fn fired_comment(report: &DumpReport) -> String {
    format!("dump {} of trigger {}, fired {}", report.id, report.trigger, report.why)
}

/// Which trigger fired, why, and what is kept.
fn origin(report: &DumpReport) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{} at {}", fired_comment(report), iso(report.time_ns));
    let filter = pcapng::beginning(&report.filter, FILTER_BYTES_MAX);
    let more = if filter.len() < report.filter.len() { " ... (shortened)" } else { "" };
    let shown = if report.filter.is_empty() { "everything" } else { filter };
    let _ = writeln!(text, "filter: {shown}{more}");
    if let Some(script) = &report.script {
        let script = pcapng::beginning(script, FILTER_BYTES_MAX);
        let _ = writeln!(text, "dump script: {script}");
    }
    if let Some(why) = &report.gave_up {
        let why = pcapng::beginning(why, FILTER_BYTES_MAX);
        let _ =
            writeln!(text, "the dump script said nothing more, so from there on everything is kept: {why}");
    }
    text
}

/// The facts, one a line.
pub(crate) fn facts(report: &DumpReport) -> String {
    let mut text = origin(report);
    let _ = writeln!(text, "asked: {} to {}", iso(report.asked.0), iso(report.asked.1));
    let _ = writeln!(text, "window: {} to {}", iso(report.from_ns), iso(report.to_ns));
    let _ = writeln!(text, "packets: {}", report.packets);
    text.push_str(&loss(report));
    if report.cut > 0 {
        let _ = writeln!(text, "cut: {} truncated although no snap length asked for it", are(report.cut));
    }
    if let Some(error) = &report.error {
        let _ = writeln!(text, "writing failed: {error}");
    }
    text.push_str(&report.circumstances.host_lines());
    text.push_str(&report.circumstances.rule_lines());
    text.push_str(&report.circumstances.packet_lines());
    hits(&mut text, report);
    text.truncate(pcapng::beginning(&text, COMMENT_BYTES_MAX).len());
    text
}

fn loss(report: &DumpReport) -> String {
    if report.complete {
        return "complete: every source listened for the whole window, and nothing was lost\n".to_string();
    }
    let span = match &report.gaps[..] {
        [] => String::new(),
        [one] => format!(", {}", gaps::in_words(&[*one])),
        several => format!(", in {} gaps, listed below", several.len()),
    };
    if report.lost_max == 0 && report.error.is_none() {
        let mut text =
            format!("incomplete: no packet was lost, but capture did not cover the whole window{span}\n");
        for each in &report.gaps {
            gap(&mut text, each);
        }
        return text;
    }
    let mut text = match (report.lost_min, report.lost_max) {
        (0, u64::MAX) => format!("incomplete: an unknown number of packets may be missing{span}\n"),
        (least, u64::MAX) => format!("incomplete: at least {} missing{span}\n", are(least)),
        (least, most) => {
            format!("incomplete: at least {least} and at most {} missing{span}\n", are(most))
        }
    };
    for each in &report.gaps {
        gap(&mut text, each);
    }
    if report.gaps_folded > 0 {
        let _ =
            writeln!(text, "gaps: {} more were joined with others of the same reason", report.gaps_folded);
    }
    text
}

/// So many packets, and the verb that follows.
fn are(packets: u64) -> String {
    format!("{packets} packet{}", if packets == 1 { " is" } else { "s are" })
}

/// One line of a gap.
fn gap(text: &mut String, gap: &Gap) {
    let _ = write!(text, "gap: {} to {} {}", iso(gap.from_ns), iso(gap.to_ns), gap.reason.name());
    let _ = match gap.lost_max {
        Some(most) => writeln!(text, ", {} to {most} packet{}", gap.lost_min, plural(most)),
        None if gap.lost_min > 0 => {
            writeln!(text, ", at least {} packet{}", gap.lost_min, plural(gap.lost_min))
        }
        None => writeln!(text),
    };
}

/// The hits' distance from the first one, as far as there is room.
fn hits(text: &mut String, report: &DumpReport) {
    let _ = write!(text, "hits: {}", report.hits);
    let mut shown = 0;
    for time_ns in report.hits_ns.iter().skip(1) {
        let part = format!(" {:+.9}s", (time_ns - report.time_ns) as f64 / 1e9);
        if text.len() + part.len() + 32 > COMMENT_BYTES_MAX {
            break;
        }
        text.push_str(&part);
        shown += 1;
    }
    let left = report.hits.saturating_sub(1 + shown);
    if left > 0 {
        let _ = write!(text, " and {left} more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GAPS_MAX;
    use crate::evidence::{Circumstances, Counted, CountedSpan};
    use scope_packet::GapReason;

    #[test]
    fn the_facts_fit_however_much_there_is_to_say() {
        let counts = vec![("counter_with_a_long_name", u64::MAX); 9];
        let counted = Counted { at_ns: i64::MAX, counts };
        let span = CountedSpan { interface: "i".repeat(64).into(), begin: counted.clone(), end: counted };
        let gap = Gap {
            from_ns: 0,
            to_ns: i64::MAX,
            reason: GapReason::InterfaceDown,
            lost_min: 7,
            lost_max: Some(u64::MAX - 1),
        };
        let long = "\u{1f980}".repeat(20_000);
        let report = DumpReport {
            filter: long.clone(),
            error: Some(long.clone()),
            hits: 100_000,
            hits_ns: (0..1000).collect(),
            gaps: vec![gap; GAPS_MAX],
            circumstances: Circumstances { host: long, counters: vec![span; 20], ..Circumstances::default() },
            ..DumpReport::default()
        };
        assert_eq!(header(&report, &[0; 4000], HEADER_BYTES).len(), HEADER_BYTES);
        let usual = DumpReport { error: None, filter: "udp".to_string(), gaps: vec![gap; 3], ..report };
        let usual = DumpReport {
            circumstances: Circumstances { host: "h".to_string(), ..usual.circumstances.clone() },
            ..usual
        };
        let text = facts(&usual);
        assert!(
            text.contains("counters of 12 more")
                && text.ends_with(" more")
                && text.len() <= COMMENT_BYTES_MAX,
            "{text}"
        );
    }
}
