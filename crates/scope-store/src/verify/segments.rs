//! A file of the store: head, index and each segment by their checksums, and every packet's place in it.
//!
//! Segments are read by several threads, each with memory for one of them.

use super::Meter;
use super::lanes::{LaneId, Seen, missing};
use super::report::{FileReport, Form, Missing, Progress, Reason};
use crate::StoredSegment;
use crate::head::HeadInterface;
use crate::index::IndexError;
use crate::salvage::{self, Cut, Findings, Proof};
use crate::stored::{State, StoredError, StoredFile};
use scope_packet::GapReason;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A segment that seems damaged while its file grows is read again after so long: it may have been written
/// just then.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What one segment brought.
struct Found {
    seen: Seen,
    steps_back: u64,
}

/// Looks at all that the opened file has; what its segments say goes into `seen`, in the order of the file.
/// `file` is the number of its report.
pub(super) fn look(
    stored: &StoredFile,
    report: &mut FileReport,
    (file, threads): (usize, usize),
    meter: &Meter,
    seen: &mut Vec<Seen>,
) -> io::Result<()> {
    report.form = Form::Store;
    report.bytes = stored.bytes();
    report.has_checksums = stored.state() != State::Older;
    meter.read(stored.head_bytes());
    end(stored, report);
    holes(stored, report, meter)?;
    let found = segments(stored, report.progress, (file, threads), meter);
    let mut before_ns = None;
    let empty = stored.holes();
    let holes_before = |offset: u64| {
        let bytes: u64 =
            empty.iter().filter(|hole| hole.start < offset).map(|hole| hole.end - hole.start).sum();
        bytes / (stored.segment_bytes() as u64).max(1)
    };
    for (facts, found) in stored.segments().iter().zip(found) {
        let holes = holes_before(facts.offset);
        match found {
            Ok(Found { seen: segment, steps_back }) => {
                let foot = &segment.foot;
                report.packets += u64::from(foot.packets);
                if foot.packets > 0 {
                    report.cover(foot.min_ns, foot.max_ns);
                    report.steps_back += steps_back;
                    // Lanes lie by turns: only one lane's times can step back.
                    let stepped = before_ns.is_some_and(|(lane, last_ns)| {
                        lane == (foot.run_id, foot.lane) && foot.first_ns < last_ns
                    });
                    report.steps_back += u64::from(stepped);
                    before_ns = Some(((foot.run_id, foot.lane), foot.last_ns));
                }
                seen.push(Seen { holes, ..segment });
            }
            Err(StoredError::Io(error)) => return Err(error),
            Err(cause) => {
                match cause {
                    StoredError::Segment(at, fault) => report.damage(at, format!("a segment: {fault}")),
                    other => report.damage(facts.offset, other.to_string()),
                }
                // What it had is known from the index, or from its foot.
                let foot = facts.foot;
                let id = LaneId { run_id: foot.run_id, lane: foot.lane };
                let (reason, span) = (Reason::Gap(GapReason::Unreadable), (foot.min_ns, foot.max_ns));
                report.lack(missing(id, reason, u64::from(foot.packets), span));
                let drops_as = drops_as(stored);
                seen.push(Seen { foot, file, holes, stated: 0, dropped: 0, drops_as, is_damaged: true });
            }
        }
    }
    if report.progress == Progress::Closed && stored.state() == State::Unclosed(IndexError::None) {
        // Nobody knows what stood behind it.
        let from_ns = report.span.map_or(0, |(_, max_ns)| max_ns);
        let reason = Reason::Gap(GapReason::Unreadable);
        let of = String::new();
        report.lack(Missing {
            from_ns,
            reaches_back: false,
            to_ns: None,
            reason,
            lost_min: 0,
            lost_max: None,
            of,
        });
    }
    open(stored, report, file, seen)
}

/// The slots that are not closed, of a file that grows or was left: what their flush records prove counts.
fn open(stored: &StoredFile, report: &mut FileReport, file: usize, seen: &mut Vec<Seen>) -> io::Result<()> {
    if report.progress == Progress::Closed {
        return Ok(());
    }
    let mut slot = Vec::new();
    for &at in stored.unread() {
        stored.read_slot(at, &mut slot)?;
        let Findings { proof, cut } = salvage::look(&slot);
        let mut last_ns = report.span.map_or(0, |(_, max_ns)| max_ns);
        if let Proof::Whole { foot, .. } | Proof::Beginning { foot, .. } = proof {
            report.packets += u64::from(foot.packets);
            if foot.packets > 0 {
                report.cover(foot.min_ns, foot.max_ns);
            }
            report.steps_back += u64::from(foot.unordered);
            last_ns = foot.last_ns;
            let drops_as = drops_as(stored);
            seen.push(Seen { foot, file, holes: 0, stated: 0, dropped: 0, drops_as, is_damaged: false });
        }
        // While a run writes, what isn't flushed yet is on its way.
        if report.progress == Progress::Left && cut != Cut::default() {
            report.lack(Missing {
                from_ns: last_ns,
                reaches_back: false,
                to_ns: None,
                reason: Reason::Crash,
                lost_min: cut.packets,
                lost_max: None,
                of: String::new(),
            });
        }
    }
    Ok(())
}

/// How the file ends, by the state in which it was found.
fn end(stored: &StoredFile, report: &mut FileReport) {
    let bytes = stored.bytes();
    match stored.state() {
        State::Closed | State::Older => {}
        State::Unclosed(IndexError::Newer(version)) => report.refuse(
            format!("its index has format version {version}, newer than this program's"),
            Some("use a newer program"),
        ),
        // It is being written, or will be by recovery.
        State::Unclosed(_) if report.progress != Progress::Closed => {}
        State::Unclosed(IndexError::None) => report.cut(bytes, "no index stands at the end: it is gone"),
        State::Unclosed(cause @ IndexError::Damaged(_)) => report.damage(bytes, cause.to_string()),
    }
    report.open_slots = stored.unread().len() as u64;
    if report.progress == Progress::Closed {
        for &at in stored.unread() {
            report.damage(at, "no closed segment stands there");
        }
    }
    if report.progress == Progress::Left {
        report.cut(bytes, "its run has died: the next run on this store closes it");
    }
}

/// What lies between segments must be padding, and behind them nothing.
fn holes(stored: &StoredFile, report: &mut FileReport, meter: &Meter) -> io::Result<()> {
    if report.progress != Progress::Closed {
        return Ok(());
    }
    for hole in stored.holes() {
        meter.read(hole.end - hole.start);
        let at = hole.start;
        if stored.state() != State::Closed {
            report.cut(at, format!("{} bytes are no whole segment", hole.end - hole.start));
        } else if !stored.hole_is_padding(&hole)? {
            report.damage(at, "what lies between two segments isn't padding");
        }
    }
    Ok(())
}

/// Reads all segments.
fn segments(
    stored: &StoredFile,
    progress: Progress,
    (file, threads): (usize, usize),
    meter: &Meter,
) -> Vec<Result<Found, StoredError>> {
    let count = stored.segments().len();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<Found, StoredError>>>> =
        Mutex::new((0..count).map(|_| None).collect());
    let work = || {
        let mut buffer = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let mut found = segment(stored, index, file, &mut buffer);
            if found.is_err() && progress == Progress::Growing {
                std::thread::sleep(AGAIN_AFTER);
                found = segment(stored, index, file, &mut buffer);
            }
            meter.read(stored.segment_bytes() as u64);
            if let Ok(mut results) = results.lock() {
                results[index] = Some(found);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(work);
        }
        work();
    });
    let results = results.into_inner().unwrap_or_default();
    let lost = || Err(io::Error::other("a thread that read it has failed").into());
    results.into_iter().map(|result| result.unwrap_or_else(lost)).collect()
}

fn segment(
    stored: &StoredFile,
    index: usize,
    file: usize,
    buffer: &mut Vec<u8>,
) -> Result<Found, StoredError> {
    let segment = stored.read_segment(index, buffer)?;
    let (steps_back, stated) = course(&segment);
    let dropped = segment.statistics().fold(0u64, |sum, said| sum.saturating_add(said.dropped));
    let foot = *segment.foot();
    let seen = Seen { foot, file, holes: 0, stated, dropped, drops_as: drops_as(stored), is_damaged: false };
    Ok(Found { seen, steps_back })
}

/// Why the interfaces of a file lack packets, where only statistics say so.
fn drops_as(stored: &StoredFile) -> GapReason {
    stored.head().interfaces.first().map_or(GapReason::Kernel, HeadInterface::drops_as)
}

/// How often times step back in a segment, and how many packets its packets state to be lost.
fn course(segment: &StoredSegment<'_>) -> (u64, u64) {
    let (mut steps_back, mut stated, mut before_ns) = (0, 0u64, i64::MIN);
    for block in segment.packets() {
        let time_ns = block.time_ns();
        steps_back += u64::from(time_ns < before_ns);
        before_ns = time_ns;
        // Options stand where the block is longer than its packet.
        if block.bytes().len() > scope_packet::pcapng::padded(block.data().len()) + 32 {
            stated = stated.saturating_add(block.head().lost_before);
        }
    }
    (steps_back, stated)
}
