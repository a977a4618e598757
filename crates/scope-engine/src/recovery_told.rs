//! What a run says while it closes files of its store that were left growing: lines of the log now and then,
//! and at the end what became of them.

use crate::summary::recovery;
use scope_events::Events;
use scope_events::event::StoreRecovery;
use scope_events::fact::Flat;
use scope_spelling::figures::{counted, number, size, span};
use scope_store::report::RecoveryReport;
use std::time::{Duration, Instant};

/// When each volume's progress is due.
pub(crate) struct RecoveryTold {
    every: Duration,
    /// By the volumes' places.
    next: Vec<Instant>,
}

impl RecoveryTold {
    /// Of so many volumes; the first lines are due `every` from `now`.
    pub(crate) fn new(volumes: usize, every: Duration, now: Instant) -> RecoveryTold {
        RecoveryTold { every, next: vec![now + every; volumes] }
    }

    /// Whether a line is due for a volume; the end has one of its own.
    fn is_due(&mut self, volume: usize, report: &RecoveryReport, now: Instant) -> bool {
        let due = !report.is_over() && self.next.get(volume).is_some_and(|next| now >= *next);
        if due {
            self.next[volume] = now + self.every;
        }
        due
    }

    /// Logs how far a volume is, if that is due.
    pub(crate) fn look(&mut self, events: &Events, volume: usize, path: &str, report: &RecoveryReport) {
        if self.is_due(volume, report, Instant::now()) {
            log(events, path, report);
        }
    }
}

/// A line of the log: how far it is, or what became of all.
pub(crate) fn log(events: &Events, path: &str, report: &RecoveryReport) {
    let facts = Flat(recovery(report));
    events.log(StoreRecovery { volume: path.to_string(), over: report.is_over(), recovery: facts });
}

/// What became of all, in words.
pub(crate) fn words(path: &str, report: &RecoveryReport) -> String {
    let RecoveryReport { closed, removed, kept, cut, .. } = report;
    let (packets, segments) = (counted(kept.packets, "packet"), counted(kept.segments, "segment"));
    let mut text = format!("the store in {path}: closed {} left growing", counted(*closed, "file"));
    if *closed > 0 {
        text += &format!(": kept {packets} in {segments}, {}", size(kept.block_bytes));
    }
    match (cut.packets, cut.unknown) {
        (0, 0) => {}
        (packets, 0) => text += &format!("; cut off {}", counted(packets, "packet")),
        (packets, unknown) => {
            let unknown = counted(unknown, "segment");
            text += &format!("; cut off {} and {unknown} of unknown length", counted(packets, "packet"));
        }
    }
    if *removed > 0 {
        text += &format!("; removed {} of which nothing was flushed", counted(*removed, "file"));
    }
    let left = report.files_done.saturating_sub(closed + removed);
    if left > 0 {
        text += &format!("; left {} of {} as they were", number(left), counted(report.files, "file"));
    }
    let took_ns = i64::try_from(report.took.as_nanos()).unwrap_or(i64::MAX);
    text + &format!("; took {}", span(took_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_store::closing::Holds;
    use scope_store::salvage::Cut;

    #[test]
    fn progress_is_told_as_often_as_the_status_and_not_at_the_end() {
        let begin = Instant::now();
        let mut told = RecoveryTold::new(2, Duration::from_secs(10), begin);
        let mut at = |seconds, volume, files_done| {
            let report = RecoveryReport { files: 3, files_done, ..RecoveryReport::default() };
            told.is_due(volume, &report, begin + Duration::from_secs(seconds))
        };
        assert_eq!([at(1, 0, 0), at(10, 0, 0), at(11, 0, 1), at(19, 0, 2)], [false, true, false, false]);
        assert_eq!([at(19, 1, 0), at(20, 0, 2), at(40, 0, 3)], [true, true, false]);
    }

    #[test]
    fn the_end_says_what_was_kept_what_was_cut_off_and_how_long_it_took() {
        let kept = Holds { segments: 1, packets: 1, block_bytes: 1536, span: None };
        let whole = RecoveryReport { files: 1, files_done: 1, closed: 1, kept, ..RecoveryReport::default() };
        assert_eq!(
            words("/s", &RecoveryReport { took: Duration::from_secs(2), ..whole }),
            "the store in /s: closed 1 file left growing: kept 1 packet in 1 segment, 1.5 KiB; took 2 s"
        );
        let (files, files_done, removed) = (9, 9, 2);
        let cut = Cut { packets: 7, unknown: 1 };
        let took = Duration::from_millis(3);
        let said = words("/s", &RecoveryReport { files, files_done, closed: 0, removed, cut, took, ..whole });
        assert_eq!(
            said,
            "the store in /s: closed 0 files left growing; cut off 7 packets and 1 segment of unknown length; \
             removed 2 files of which nothing was flushed; left 7 of 9 files as they were; took 3 ms"
        );
    }
}
