//! What a volume says of itself: figures of one run, and where it stands.

use crate::chain::Digest;
use crate::closing::Holds;
use crate::index::Totals;
use crate::salvage::Cut;
use std::path::PathBuf;
use std::time::Duration;

/// Packets and their captured bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Captured bytes.
    pub bytes: u64,
}

impl Amount {
    /// So many packets of so many bytes.
    pub fn new(packets: u64, bytes: u64) -> Amount {
        Amount { packets, bytes }
    }

    /// Both together.
    pub fn plus(self, other: Amount) -> Amount {
        Amount { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }

    /// What is left without the other; never less than nothing.
    pub fn less(self, other: Amount) -> Amount {
        Amount {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// The smaller one of each.
    fn at_most(self, other: Amount) -> Amount {
        Amount { packets: self.packets.min(other.packets), bytes: self.bytes.min(other.bytes) }
    }
}

/// Where a volume stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VolumeState {
    /// It writes, or has nothing to write.
    #[default]
    Writing,
    /// The disk refuses: it tries again later.
    Failing,
    /// Holds leave no room under its bounds.
    Held,
    /// Files of others leave no room: nothing of its own is left to delete.
    Full,
    /// The disk doesn't answer.
    Stalled,
}

impl VolumeState {
    /// Its word in log and summary.
    pub fn word(self) -> &'static str {
        match self {
            VolumeState::Writing => "writing",
            VolumeState::Failing => "failing",
            VolumeState::Held => "held",
            VolumeState::Full => "full",
            VolumeState::Stalled => "stalled",
        }
    }
}

/// One volume at one moment.
#[derive(Clone, Debug, Default)]
pub struct VolumeReport {
    /// Its folder.
    pub path: PathBuf,
    /// On its disk for good, of this run.
    pub stored: Amount,
    /// Left out by the store's filter.
    pub filtered: Amount,
    /// Recycled before it was written.
    pub missed: Amount,
    /// For a time in this run holds left no room.
    pub was_held: bool,
    /// First and last capture time of what it missed, ns; `None`: nothing, or unknown.
    pub missed_span_ns: Option<(i64, i64)>,
    /// To be written: what it was dealt by its last turn. [`share_out_behind`] makes it exact.
    pub behind: Amount,
    /// Capture time of the oldest packet that is to be written, ns.
    pub behind_since_ns: Option<i64>,
    /// How long before the latest packet that was captured, ns; filled in by whoever looks.
    pub behind_ns: i64,
    /// Deleted to keep the bounds, by this run.
    pub deleted: Amount,
    /// The part of it that this run had stored.
    pub deleted_own: Amount,
    /// Some of that went since there was no room, not for its age.
    pub crowded_out: bool,
    /// Bytes that it may take.
    pub budget: Option<u64>,
    /// Bytes that it takes, reserves included.
    pub used: u64,
    /// Capture time of its oldest packet, ns.
    pub oldest_ns: Option<i64>,
    /// Capture time of its newest packet, ns.
    pub newest_ns: Option<i64>,
    /// Its files.
    pub files: u64,
    /// Captured bytes that it stored per second since the last look, at the end of the run in all of it; filled in
    /// by whoever looks.
    pub bytes_per_s: f64,
    /// The run is over, and nothing more comes; filled in by whoever looks.
    pub has_ended: bool,
    /// Where it stands.
    pub state: VolumeState,
    /// Why it fails, or has no room.
    pub error: Option<String>,
    /// How it writes, and why not faster.
    pub way: String,
    /// Head of the chain, with one.
    pub chain: Option<Digest>,
    /// How far it is with files that were left growing; `None`: there was none.
    pub recovery: Option<RecoveryReport>,
}

/// What became of files that dead runs left growing, or that the disk failed in this run, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Files in all.
    pub files: u64,
    /// Files that are done, whatever became of them.
    pub files_done: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes that were looked at.
    pub bytes_done: u64,
    /// Files that have their names now.
    pub closed: u64,
    /// Files of which nothing was proven: they were removed.
    pub removed: u64,
    /// What those hold that were closed.
    pub kept: Holds,
    /// What was cut off.
    pub cut: Cut,
    /// How long that took.
    pub took: Duration,
}

impl RecoveryReport {
    /// Whether nothing more is to be done.
    pub fn is_over(&self) -> bool {
        self.files_done == self.files
    }
}

impl VolumeReport {
    /// How far it reaches back, ns: at this rate, if it has a budget and is written, else with what it has. `None`: it
    /// is empty.
    pub fn reach_ns(&self) -> Option<i64> {
        match self.budget {
            Some(budget) if self.bytes_per_s >= 1.0 && !self.has_ended => {
                Some((budget as f64 / self.bytes_per_s * 1e9).min(i64::MAX as f64) as i64)
            }
            _ => Some(self.newest_ns?.saturating_sub(self.oldest_ns?)),
        }
    }
}

/// A file that was deleted.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Its name, below the volume's folder.
    pub name: PathBuf,
    /// What its index said of it; `None`: it couldn't be read.
    pub totals: Option<Totals>,
    /// Bytes that it took.
    pub bytes: u64,
    /// The bound that it stood against, in words.
    pub why: &'static str,
    /// This run had stored it.
    pub own: bool,
    /// That, and it went only since its times are old.
    pub untimely: bool,
}

impl Deleted {
    /// Whether it went for its age.
    pub fn is_too_old(&self) -> bool {
        self.why == "--store-age"
    }

    /// Packets that it held.
    pub fn amount(&self) -> Amount {
        self.totals.map_or(Amount::default(), |totals| Amount::new(totals.packets, totals.block_bytes))
    }
}

/// Something that a volume has to tell.
#[derive(Clone, Debug)]
pub enum News {
    /// A file is whole.
    File {
        /// Its name, below the volume's folder.
        name: PathBuf,
        /// First and last time of its packets, ns.
        span_ns: Option<(i64, i64)>,
        /// Packets.
        packets: u64,
        /// Its bytes.
        bytes: u64,
        /// Of a file that a dead run left: packets known to be cut off.
        cut_off: Option<u64>,
        /// With a chain: its head behind this file.
        head: Option<Digest>,
    },
    /// A file was deleted.
    Deleted(Deleted),
    /// The state changed.
    State(VolumeState, String),
    /// Packets were recycled before they were written.
    Missed(Amount, Option<(i64, i64)>),
    /// All files that were left growing are done.
    Recovered(RecoveryReport),
    /// Something worth a warning.
    Warning(String),
}

/// Shares what was published and is in no other column out among the volumes, so that over all of them published =
/// stored + filtered + missed + behind. `published` was read after the reports.
pub fn share_out_behind(reports: &mut [VolumeReport], published: Amount) {
    let settled = |report: &VolumeReport| report.stored.plus(report.filtered).plus(report.missed);
    let sum = reports.iter().map(settled).fold(Amount::default(), Amount::plus);
    let mut left = published.less(sum);
    let last = reports.len().saturating_sub(1);
    for (index, report) in reports.iter_mut().enumerate() {
        // What nobody was dealt yet stands with the last volume.
        report.behind = if index == last { left } else { report.behind.at_most(left) };
        left = left.less(report.behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volumes_add_up_to_what_was_published() {
        let report = |stored, missed, behind| VolumeReport {
            stored: Amount::new(stored, stored * 10),
            missed: Amount::new(missed, missed * 10),
            behind: Amount::new(behind, behind * 10),
            ..VolumeReport::default()
        };
        for (published, behind) in [(100, [20, 5]), (95, [20, 0]), (80, [5, 0]), (75, [0, 0])] {
            let mut reports = [report(50, 5, 20), report(20, 0, 0)];
            share_out_behind(&mut reports, Amount::new(published, published * 10));
            assert_eq!(reports.each_ref().map(|report| report.behind.packets), behind, "{published}");
            assert_eq!(reports.iter().map(|report| report.behind.bytes).sum::<u64>(), (published - 75) * 10);
        }
        share_out_behind(&mut [], Amount::new(1, 1));
    }
}
