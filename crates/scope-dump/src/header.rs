//! What a dump says of itself in its section header: who fired, why, the hits, the filter, the window and the loss inside it.
//!
//! The first [`HEADER_BYTES`] of the file are reserved while it is written and patched before it gets its name: a section
//! header with the facts as its comment, then padding up to the end of the reserve.

use crate::mark::APPLICATION;
use crate::report::DumpReport;
use crate::time_text::iso;
use scope_packet::Gap;
use scope_packet::pcapng::{self, BLOCK_BYTES_MIN};
use std::fmt::Write;

/// Bytes reserved at the start of each dump.
pub const HEADER_BYTES: usize = 16 << 10;
/// Characters of a filter that the header shows; longer ones are cut, which it says.
const FILTER_CHARS_MAX: usize = 2000;
/// Bytes of the comment at most.
const COMMENT_BYTES_MAX: usize = HEADER_BYTES - 512;

/// The reserved part of the file, filled in.
pub(crate) fn header(report: &DumpReport) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    pcapng::section_header(&mut out, APPLICATION, &facts(report));
    assert!(out.len() + BLOCK_BYTES_MIN <= HEADER_BYTES, "the facts are bounded");
    let from = out.len();
    out.resize(HEADER_BYTES, 0);
    pcapng::padding(&mut out[from..]);
    out
}

/// What is known of a dump before it is made, for a pipe.
pub(crate) fn intro(report: &DumpReport) -> String {
    format!("{}written to a pipe: window, hits and losses stand at its end", who(report))
}

/// Who fired, why, and what is kept.
fn who(report: &DumpReport) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "dump {} of trigger {}, fired {} at {}", report.id, report.trigger, report.why, iso(report.time_ns));
    let filter: String = report.filter.chars().take(FILTER_CHARS_MAX).collect();
    let cut = if filter.len() < report.filter.len() { " ... (cut)" } else { "" };
    let shown = if report.filter.is_empty() { "everything" } else { &filter };
    let _ = writeln!(text, "filter: {shown}{cut}");
    text
}

/// The facts in plain words, one a line.
pub(crate) fn facts(report: &DumpReport) -> String {
    let mut text = who(report);
    let _ = writeln!(text, "asked: {} to {}", iso(report.asked.0), iso(report.asked.1));
    let _ = writeln!(text, "window: {} to {}", iso(report.from_ns), iso(report.to_ns));
    let _ = writeln!(text, "packets: {}", report.packets);
    text.push_str(&loss(report));
    if report.cut > 0 {
        let _ =
            writeln!(text, "cut: {} packets are shorter than they were on the wire, not by a snap length asked for", report.cut);
    }
    if let Some(error) = &report.error {
        let _ = writeln!(text, "writing failed: {error}");
    }
    hits(&mut text, report);
    text
}

fn loss(report: &DumpReport) -> String {
    if report.complete {
        return "complete: every source listened for all that was asked for, and nothing was lost\n".to_string();
    }
    let span = match report.missing {
        Some((from_ns, to_ns)) => format!(", between {} and {}", iso(from_ns), iso(to_ns)),
        None => String::new(),
    };
    let most = if report.lost_max == u64::MAX { String::new() } else { format!(" and at most {}", report.lost_max) };
    let mut text = format!("incomplete: at least {}{most} packets are missing{span}\n", report.lost_min);
    report.gaps.iter().for_each(|each| gap(&mut text, each));
    if report.gaps_folded > 0 {
        let _ = writeln!(text, "gaps: {} more became one with another of the same reason", report.gaps_folded);
    }
    text
}

/// One line of a gap.
fn gap(text: &mut String, gap: &Gap) {
    let _ = write!(text, "gap: {} to {} {}", iso(gap.from_ns), iso(gap.to_ns), gap.reason.name());
    let _ = match gap.lost_max {
        Some(most) => writeln!(text, ", {} to {most} packets", gap.lost_min),
        None if gap.lost_min > 0 => writeln!(text, ", at least {} packets", gap.lost_min),
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
