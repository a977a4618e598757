//! Which files have to be looked into although they lie outside of a span: those whose lanes may lack something in it.
//!
//! ```text
//! span                          |------|
//! lane 0     | file 1 |   | file 2 |      | file 5 |       2 lies in the span; 5 goes on behind it: both say what is missing
//! lane 1     | file 1 |                   | file 5 |       nothing in the span, but something may be missing there
//! lane 2          | file 1 | file 4 |                      both in front of the span: what is missing between them is, too
//! ```
//! What is missing between two segments that follow each other in a lane lies between their times. So two files
//! matter whose segments may follow each other in a lane, and whose times, taken together, touch the span.
//! What else lies between these two in the lane touches it, too, or isn't there.
//!
//! What capture files say without a time may be missing anywhere in their run. So of a run that touches the span those
//! files matter by whose end more of that was said than before, and those in front of them.

use crate::index::LanePart;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of a file.
pub(crate) struct Known<'a> {
    pub run_id: [u8; 16],
    /// Smallest and largest time in its feet.
    pub reach_ns: (i64, i64),
    pub lanes: &'a [LanePart],
}

/// One file's part of a lane.
#[derive(Clone, Copy)]
struct Part {
    file: usize,
    first: u64,
    last: u64,
    told: u32,
    reach_ns: (i64, i64),
}

/// The files, by their number, that say what is missing in the span.
pub(crate) fn of_span<'a>(
    files: impl Iterator<Item = (usize, Known<'a>)>,
    span_ns: (i64, i64),
) -> BTreeSet<usize> {
    let mut lanes: BTreeMap<([u8; 16], u32), Vec<Part>> = BTreeMap::new();
    let mut runs: BTreeMap<[u8; 16], (i64, i64)> = BTreeMap::new();
    for (file, known) in files {
        let run = runs.entry(known.run_id).or_insert(known.reach_ns);
        *run = (run.0.min(known.reach_ns.0), run.1.max(known.reach_ns.1));
        for part in known.lanes {
            let LanePart { lane, first, last, told, .. } = *part;
            let part = Part { file, first, last, told, reach_ns: known.reach_ns };
            lanes.entry((known.run_id, lane)).or_default().push(part);
        }
    }
    let mut found = BTreeSet::new();
    for ((run, _), mut parts) in lanes {
        parts.sort_unstable_by_key(|part| (part.first, part.last));
        of_lane(&parts, span_ns, &mut found);
        if runs.get(&run).is_some_and(|&reach_ns| touches(reach_ns, span_ns)) {
            that_tell(&parts, &mut found);
        }
    }
    found
}

/// The files of a lane in which capture files say something without a time, and those in front of them. Which of some
/// that overlap said it first isn't known.
fn that_tell(parts: &[Part], found: &mut BTreeSet<usize>) {
    let (mut told, mut before, mut rest) = (0, &parts[..0], parts);
    while let Some(first) = rest.first() {
        let mut last = first.last;
        let overlapping = rest.iter().take_while(|part| {
            let overlaps = part.first <= last;
            last = last.max(part.last);
            overlaps
        });
        let (together, behind) = rest.split_at(overlapping.count());
        let now = together.iter().map(|part| part.told).max().unwrap_or(told);
        if now > told {
            found.extend(before.iter().chain(together).map(|part| part.file));
            told = now;
        }
        (before, rest) = (together, behind);
    }
}

/// The same of one lane, whose parts are sorted by where they begin.
fn of_lane(parts: &[Part], span_ns: (i64, i64), found: &mut BTreeSet<usize>) {
    // Parts that reach as far as the next one's begin, or farther; and the one that ended last.
    let (mut open, mut before): (Vec<Part>, Option<Part>) = (Vec::new(), None);
    for part in parts {
        open.retain(|one| {
            let goes_on = one.last >= part.first;
            if !goes_on && before.is_none_or(|before| before.last < one.last) {
                before = Some(*one);
            }
            goes_on
        });
        for other in open.iter().chain(&before) {
            let hull_ns = (part.reach_ns.0.min(other.reach_ns.0), part.reach_ns.1.max(other.reach_ns.1));
            if touches(hull_ns, span_ns) {
                found.extend([part.file, other.file]);
            }
        }
        open.push(*part);
    }
}

/// Whether two spans, both ends of which belong to them, have a moment in common.
pub(crate) fn touches(one_ns: (i64, i64), other_ns: (i64, i64)) -> bool {
    one_ns.0 <= other_ns.1 && one_ns.1 >= other_ns.0
}
