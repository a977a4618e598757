//! What became of a dump, in plain values.

use crate::evidence::Circumstances;
use crate::progress::Waits;
use scope_packet::Gap;
use std::path::PathBuf;
use std::time::Duration;

/// For what a dump waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// For its disk, or the reader of its pipe, while it still had to read.
    pub reading: Waits,
    /// Meanwhile, for how long it held all that it may of the ring while there was more.
    pub pins_full: Duration,
    /// To close its files, once all was read.
    pub closing: Duration,
}

/// What became of a dump. Times in ns; the span is what the run received of the window.
#[derive(Clone, Debug, Default)]
pub struct DumpReport {
    /// Number of the dump in the run, from 1.
    pub id: u64,
    /// Name of the trigger.
    pub trigger: String,
    /// Why it fired.
    pub why: String,
    /// Time of the hit.
    pub time_ns: i64,
    /// Text of the filter; empty: everything.
    pub filter: String,
    /// The script that selected beyond it, if one did.
    pub script: Option<String>,
    /// Why that script said nothing more: from there on everything was kept.
    pub gave_up: Option<String>,
    /// Begin and end of the window, both inclusive.
    pub asked: (i64, i64),
    /// Begin of the part of it in which anybody listened.
    pub from_ns: i64,
    /// End of that part.
    pub to_ns: i64,
    /// Packets written.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Packets of it that are truncated although no snap length asked for it.
    pub cut: u64,
    /// What the window lacks, in order of time: at most [`crate::GAPS_MAX`].
    pub gaps: Vec<Gap>,
    /// Gaps beyond that, joined with others of the same reason.
    pub gaps_folded: u64,
    /// Packets that this dump lacks, at least: those that came, and certainly belong to it.
    pub lost_min: u64,
    /// Packets that came and that this dump lacks, at most; `u64::MAX` where nobody can know.
    pub lost_max: u64,
    /// From the first gap's begin to the last one's end.
    pub missing: Option<(i64, i64)>,
    /// Every source listened for the whole window, and nothing of it was lost.
    pub complete: bool,
    /// It went into a pipe.
    pub to_stream: bool,
    /// The files, absolute.
    pub paths: Vec<PathBuf>,
    /// Its hits.
    pub hits: u64,
    /// Times of the first of them.
    pub hits_ns: Vec<i64>,
    /// From its fire to here; zero until it is finished.
    pub took: Duration,
    /// For what it waited.
    pub waited: Waited,
    /// How things stood around it.
    pub circumstances: Circumstances,
    /// Why writing failed.
    pub error: Option<String>,
    /// What couldn't be read of the stores that have its past.
    pub unread: Vec<String>,
    /// Why no machine code could be made of its filter, where there should have been some.
    pub interpreted: Option<String>,
}

impl DumpReport {
    /// Whether something that was promised was lost, or couldn't be written. What nobody listened to is no
    /// broken promise.
    pub fn has_failed(&self) -> bool {
        self.error.is_some() || !self.unread.is_empty() || self.gaps.iter().any(|gap| gap.reason.is_loss())
    }
}
