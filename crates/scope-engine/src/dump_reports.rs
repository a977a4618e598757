//! What became of a run's dumps: the newest ones in full, sums of all, and those that nobody has spoken of
//! yet.
//!
//! A service makes dumps for months; each of them stands in `wirescope.jsonl`, so only [`REPORTS_MAX`] are
//! kept here.

use crate::failure::Failure;
use scope_dump::{DumpReport, gaps_in_words};
use scope_fault::Fault;
use scope_spelling::figures::{counted, number};
use std::collections::{BTreeMap, VecDeque};

/// Finished dumps that the summary lists: those with the highest numbers. Older ones are counted.
pub const REPORTS_MAX: usize = 1000;
/// Reports that wait to be reported; beyond, the oldest are in the log alone.
const NEWS_MAX: usize = 1000;

/// Sums over all finished dumps of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpTotals {
    /// Dumps.
    pub dumps: u64,
    /// Of these: those that lack something of what was asked for, or couldn't be written.
    pub incomplete: u64,
    /// Of these: those for which something that was promised was lost, or couldn't be written.
    pub failed: u64,
    /// Packets written.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Packets that they lack, at least.
    pub lost_min: u64,
    /// Packets that they lack, at most.
    pub lost_max: u64,
}

impl DumpTotals {
    fn add(&mut self, report: &DumpReport) {
        self.dumps += 1;
        self.incomplete += u64::from(is_incomplete(report));
        self.failed += u64::from(report.has_failed());
        self.packets += report.packets;
        self.bytes += report.bytes;
        self.lost_min = self.lost_min.saturating_add(report.lost_min);
        self.lost_max = self.lost_max.saturating_add(report.lost_max);
    }
}

/// The finished dumps of a run.
#[derive(Clone, Debug, Default)]
pub struct DumpReports {
    /// The newest, by number.
    kept: BTreeMap<u64, DumpReport>,
    news: VecDeque<DumpReport>,
    totals: DumpTotals,
}

impl DumpReports {
    /// Takes one in.
    pub fn add(&mut self, report: DumpReport) {
        self.totals.add(&report);
        if self.news.len() >= NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(report.clone());
        self.kept.insert(report.id, report);
        if self.kept.len() > REPORTS_MAX {
            self.kept.pop_first();
        }
    }

    /// Those that came since the last call.
    pub fn news(&mut self) -> Vec<DumpReport> {
        self.news.drain(..).collect()
    }

    /// The newest, by number.
    pub fn kept(&self) -> Vec<DumpReport> {
        self.kept.values().cloned().collect()
    }

    /// Sums over all, those that aren't kept included.
    pub fn totals(&self) -> DumpTotals {
        self.totals
    }
}

/// What of a run's dumps is a broken promise: one for each of those `listed`, and one for all the others.
pub(crate) fn failures(listed: &[DumpReport], totals: &DumpTotals) -> Vec<Failure> {
    let failed: Vec<&DumpReport> = listed.iter().filter(|report| report.has_failed()).collect();
    let others = totals.failed.saturating_sub(failed.len() as u64);
    let others = (others > 0).then(|| {
        format!(
            "{} older dumps are incomplete, too: see the events 'dump' of wirescope.jsonl",
            number(others)
        )
    });
    let of_dump = |report: &DumpReport| Failure { fault: Fault::whole(words(report)), dump: Some(report.id) };
    others.map(Failure::from).into_iter().chain(failed.into_iter().map(of_dump)).collect()
}

fn words(report: &DumpReport) -> String {
    let are = |packets: u64| if packets == 1 { "is" } else { "are" };
    let what = match (&report.error, report.lost_min, report.lost_max) {
        (Some(error), ..) => error.clone(),
        (None, 0, 0) => {
            let has = if report.gaps.len() == 1 { "the window has a gap" } else { "there are" };
            format!("no packet is missing, but {has} {}", gaps_in_words(&report.gaps))
        }
        (None, 0, u64::MAX) => "packets may be missing, how many is unknown".to_string(),
        (None, least, u64::MAX) => {
            format!("at least {} {} missing, perhaps more", counted(least, "packet"), are(least))
        }
        (None, least, most) if least == most => format!("{} {} missing", counted(most, "packet"), are(most)),
        (None, least, most) => {
            format!("{} to {} {} missing", number(least), counted(most, "packet"), are(most))
        }
    };
    format!("dump {} is incomplete: {what}", report.id)
}

fn is_incomplete(report: &DumpReport) -> bool {
    !report.complete || report.error.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::{Gap, GapReason};

    fn report(id: u64) -> DumpReport {
        let lost = u64::from(id.is_multiple_of(2));
        let gap = Gap { from_ns: 0, to_ns: 1, reason: GapReason::Evicted, lost_min: 0, lost_max: Some(1) };
        let gaps = vec![gap; lost as usize];
        let complete = gaps.is_empty();
        DumpReport {
            id,
            packets: id,
            bytes: 10 * id,
            lost_min: 0,
            lost_max: lost,
            gaps,
            complete,
            ..DumpReport::default()
        }
    }

    #[test]
    fn large_losses_have_their_thousands_set_apart() {
        let said = |lost_max| words(&DumpReport { id: 1, lost_min: 1234, lost_max, ..DumpReport::default() });
        assert_eq!(said(56_789), "dump 1 is incomplete: 1,234 to 56,789 packets are missing");
        assert_eq!(said(u64::MAX), "dump 1 is incomplete: at least 1,234 packets are missing, perhaps more");
    }

    #[test]
    fn a_loss_is_said_as_surely_as_it_is_known() {
        let check = |(lost_min, lost_max), expected: &str| {
            let gap =
                Gap { from_ns: 0, to_ns: 1, reason: GapReason::Kernel, lost_min, lost_max: Some(lost_max) };
            let said =
                words(&DumpReport { id: 1, lost_min, lost_max, gaps: vec![gap], ..DumpReport::default() });
            assert_eq!(said, format!("dump 1 is incomplete: {expected}"));
        };
        check((0, u64::MAX), "packets may be missing, how many is unknown");
        check((1, u64::MAX), "at least 1 packet is missing, perhaps more");
        check((1, 1), "1 packet is missing");
        check((2, 2), "2 packets are missing");
        check((1, 2), "1 to 2 packets are missing");
        let gap = "between 1970-01-01T00:00:00Z and 00:00:00.000000001Z (kernel)";
        check((0, 0), &format!("no packet is missing, but the window has a gap {gap}"));
    }

    #[test]
    fn the_newest_dumps_are_kept_and_the_sums_are_those_of_all() {
        let mut reports = DumpReports::default();
        let all = 3 * REPORTS_MAX as u64;
        // They end in another order than they began.
        (0..all / 2)
            .for_each(|half| [2 * half + 2, 2 * half + 1].into_iter().for_each(|id| reports.add(report(id))));
        let kept: Vec<u64> = reports.kept().iter().map(|report| report.id).collect();
        assert_eq!(kept, (all - REPORTS_MAX as u64 + 1..=all).collect::<Vec<_>>());
        let packets = all * (all + 1) / 2;
        let expected = DumpTotals {
            dumps: all,
            incomplete: all / 2,
            failed: all / 2,
            packets,
            bytes: 10 * packets,
            lost_min: 0,
            lost_max: all / 2,
        };
        assert_eq!(reports.totals(), expected);
        let failures = failures(&reports.kept(), &reports.totals());
        assert_eq!(failures.len(), REPORTS_MAX / 2 + 1);
        let told: Vec<String> = failures.iter().map(|failure| failure.fault.to_string()).collect();
        assert!(told[0].starts_with("1,000 older dumps are incomplete"), "{}", told[0]);
        let first = all - REPORTS_MAX as u64 + 2;
        assert_eq!(told[1], format!("dump {first} is incomplete: 0 to 1 packet is missing"));
        assert_eq!((failures[0].dump, failures[1].dump), (None, Some(first)));
    }

    #[test]
    fn each_dump_is_told_once_and_what_waits_to_be_told_is_bounded() {
        let mut reports = DumpReports::default();
        let ids =
            |reports: &mut DumpReports| reports.news().iter().map(|report| report.id).collect::<Vec<_>>();
        [2, 1].into_iter().for_each(|id| reports.add(report(id)));
        assert_eq!((ids(&mut reports), ids(&mut reports)), (vec![2, 1], vec![]));
        let all = NEWS_MAX as u64 + 5;
        (0..all).for_each(|id| reports.add(report(id)));
        assert_eq!(ids(&mut reports), (5..all).collect::<Vec<_>>());
    }
}
