//! What became of a dump, in plain values.

use crate::evidence::Circumstances;
use std::path::PathBuf;

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
    /// Begin of the window.
    pub from_ns: i64,
    /// End of the window.
    pub to_ns: i64,
    /// Packets written.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// Packets of it that are shorter than they were on the wire, though no snap length of the capture asked for that.
    pub cut: u64,
    /// Packets that this dump lacks, at least: those that certainly belong to it.
    pub lost_min: u64,
    /// Packets that this dump lacks, at most.
    pub lost_max: u64,
    /// The span in which packets may be missing.
    pub missing: Option<(i64, i64)>,
    /// Nothing inside the window was lost.
    pub complete: bool,
    /// It went into a pipe.
    pub to_stream: bool,
    /// The files, absolute.
    pub paths: Vec<PathBuf>,
    /// Hits that it took in.
    pub hits: u64,
    /// Times of the first of them.
    pub hits_ns: Vec<i64>,
    /// How things stood around it.
    pub circumstances: Circumstances,
    /// Why writing failed.
    pub error: Option<String>,
    /// Why no machine code could be made of its filter, where there should have been some.
    pub interpreted: Option<String>,
}
