//! What is known of a run, in plain values: read from its log and the system, or made up by a test.

use scope_machine::disk::Disk;
use scope_machine::home::{Home, Seen};
use scope_machine::nic::Altered;
use scope_machine::nic::Softnet;
use std::collections::{BTreeMap, BTreeSet};

/// Free space below which a disk is nearly full: one part in so many.
const DISK_LOW_PART: u64 = 50;

/// Whether a disk of so many bytes has so few left that it is nearly full.
pub fn is_nearly_full(free_bytes: u64, bytes: u64) -> bool {
    free_bytes < bytes / DISK_LOW_PART
}

/// What has become of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It wrote its last line.
    #[default]
    Ended,
    /// It wrote that it was ended at once.
    EndedAtOnce,
    /// Its process is there.
    Running,
    /// Its process is there, and stopped by a signal.
    Stopped,
    /// Its process is gone, and wrote no last line.
    Dead,
    /// It wrote no last line, and whether its process is there isn't known.
    Unknown,
}

/// A live source, as configured.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// As typed.
    pub source: String,
    /// Its interface.
    pub interface: String,
    /// Workers.
    pub workers: u64,
    /// Bytes kept of each packet; `None`: all.
    pub snap_len: Option<u64>,
    /// Also packets for other hosts.
    pub promiscuous: bool,
    /// Processors that its workers are pinned to; empty: any.
    pub cpus: Vec<u64>,
}

/// One source's packet accounting; all its workers together.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceFacts {
    /// What it was offered.
    pub offered: u64,
    /// What its workers received.
    pub received: u64,
    /// What the kernel dropped.
    pub kernel_dropped: u64,
    /// What couldn't be read.
    pub unreadable: u64,
}

/// Packets that the kernel dropped before a worker read them, by what went on in the second before the loss
/// was noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLosses {
    /// A worker had no time left.
    pub busy: u64,
    /// The process had used up the processor time that its control group may have.
    pub throttled: u64,
    /// A worker was ready to run, and others had its processor.
    pub starved: u64,
    /// The whole process stood still.
    pub stalled: u64,
    /// None of these, or it isn't known.
    pub other: u64,
}

/// One network card, since the run began.
#[derive(Clone, Debug, Default)]
pub struct NicFacts {
    /// Its interface.
    pub interface: String,
    /// The kernel's counters; empty: unknown.
    pub counters: BTreeMap<String, u64>,
    /// The driver's own counters of losses.
    pub driver: BTreeMap<String, u64>,
    /// Packets that aren't as they are on the wire.
    pub altered: Altered,
    /// Switched on; `None`: unknown, or it isn't there.
    pub up: Option<bool>,
    /// Something is at its other end.
    pub running: Option<bool>,
    /// The run's notes: kind and remedy.
    pub notes: Vec<(String, String)>,
}

impl NicFacts {
    /// A counter of the kernel's; 0 where it isn't known.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// The remedy that the run noted for `kind`.
    pub fn remedy(&self, kind: &str) -> Option<&str> {
        self.notes.iter().find(|(known, _)| known == kind).map(|(_, remedy)| remedy.as_str())
    }
}

/// One finished dump.
#[derive(Clone, Debug, Default)]
pub struct DumpFacts {
    /// Number in the run.
    pub id: u64,
    /// Nothing inside its window was lost.
    pub complete: bool,
    /// Packets that it lacks, at least.
    pub lost_min: u64,
    /// Packets that it lacks, at most.
    pub lost_max: u64,
    /// What it lacks of its window, by reason: packets at least and at most. Logs of older versions don't say
    /// it.
    pub gaps: BTreeMap<String, (u64, u64)>,
    /// Its waits, seconds; logs of older versions lack them.
    pub waited: Option<WaitedFacts>,
    /// It went into a pipe.
    pub piped: bool,
    /// Why writing failed.
    pub error: Option<String>,
}

/// How long a dump waited, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WaitedFacts {
    /// Longest wait for one act of its disk, or of its pipe's reader.
    pub longest_s: f64,
    /// All such waits.
    pub total_s: f64,
    /// Time in which it held all of the ring that it may.
    pub pins_full_s: f64,
}

/// Seconds from which such a wait explains what a dump lacks.
const LONG_WAIT_S: f64 = 0.5;

impl WaitedFacts {
    /// Whether its disk explains its loss: it held all that it may, and waited for most of that time.
    pub fn explains_loss(&self) -> bool {
        self.total_s >= LONG_WAIT_S && self.pins_full_s > 0.0 && 2.0 * self.total_s >= self.pins_full_s
    }

    /// Whether that was one standstill, not many waits.
    pub fn is_standstill(&self) -> bool {
        2.0 * self.longest_s >= self.total_s
    }
}

/// One volume of the store, as the run told of it last.
#[derive(Clone, Debug, Default)]
pub struct VolumeFacts {
    /// Its folder.
    pub path: String,
    /// Packets that the ring recycled before they were written.
    pub missed: u64,
    /// Packets that it wrote.
    pub stored: u64,
    /// `writing`, `failing`, `held` or `full`.
    pub state: String,
    /// Why it fails.
    pub error: Option<String>,
    /// How it writes.
    pub way: String,
    /// It was failing, held or full at some time.
    pub refused: Option<String>,
}

/// Traffic statistics, as the run told of them last.
#[derive(Clone, Debug, Default)]
pub struct StatsFacts {
    /// The database, as it was given; `None`: there is none.
    pub db: Option<String>,
    /// The length of an interval, ns; 0: its log doesn't say.
    pub interval_ns: i64,
    /// How far what is written is behind the clock of capture, ns.
    pub lag_ns: i64,
    /// Rows and records that were folded since they couldn't be written in time.
    pub unwritten: u64,
    /// Those that were folded, for that or because there were too many.
    pub folded: u64,
    /// Flows whose place was needed.
    pub evicted: u64,
    /// Records that the collector refused.
    pub unsent: u64,
    /// Logs of transactions, bytes.
    pub wal_bytes: u64,
    /// Their disk: what is free, and what it has, bytes; logs of older versions don't say it.
    pub disk: Option<(u64, u64)>,
    /// Why nothing is written just now.
    pub failing: Option<String>,
    /// Why nothing is written any more.
    pub ended: Option<String>,
}

/// Another run in the same log.
#[derive(Clone, Debug, Default)]
pub struct OtherRun {
    /// Empty: unknown.
    pub run_id: String,
    /// Time of its first line.
    pub began: Option<jiff::Timestamp>,
    /// It wrote its last line.
    pub has_last_line: bool,
    /// It wrote while the run that is looked at did.
    pub beside: bool,
}

/// One run. Counts are since it began.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What has become of it.
    pub state: State,
    /// Its name for programs; empty: its lines say none.
    pub run_id: String,
    /// Runs in its log, itself included.
    pub runs: u64,
    /// None of them began later.
    pub newest: bool,
    /// The others, as they began; of very many the last ones.
    pub other_runs: Vec<OtherRun>,
    /// The log doesn't hold its first line.
    pub headless: bool,
    /// The version that wrote it.
    pub version: String,
    /// Lines of kinds that this version doesn't know.
    pub unknown_lines: u64,
    /// The log ends within a line.
    pub last_line_cut: bool,
    /// Why it was ended at once.
    pub ended_why: String,
    /// Dumps in the making when it was ended at once.
    pub dumps_thrown_away: u64,
    /// Where its process lived.
    pub home: Home,
    /// The same, seen from here.
    pub seen: Seen,
    /// Time of its last line so far.
    pub last: Option<jiff::Timestamp>,
    /// Seconds since then, by the clock of this machine.
    pub silent_s: Option<f64>,
    /// Time of its last line that holds all counts.
    pub counted: Option<jiff::Timestamp>,
    /// Seconds since then, where the run still goes on.
    pub counts_age_s: Option<f64>,
    /// Seconds between two such lines; 0: its log doesn't say.
    pub status_every_s: f64,
    /// Bytes of its log now.
    pub log_bytes: u64,
    /// Bytes to which the process may let a file grow.
    pub file_size_max: Option<u64>,
    /// Threads that its control groups may have.
    pub threads_max: Option<u64>,
    /// Processors that it may use; 0: its log doesn't say.
    pub processors: u64,
    /// Times that it went on after a signal had stopped it.
    pub resumed: u64,
    /// Periods in which a control group of it had used up its processor time, and seconds that its threads
    /// waited for that.
    pub throttled: (u64, f64),
    /// It captures, or captured, live.
    pub live: bool,
    /// Its process.
    pub pid: Option<u64>,
    /// When that process began, in ticks of the machine.
    pub pid_began: Option<u64>,
    /// Time of its first line.
    pub began: Option<jiff::Timestamp>,
    /// Its first lines are in another file: this one continues it.
    pub continues: bool,
    /// Seconds from its first line to its last one so far.
    pub elapsed_s: f64,
    /// All its sources, as typed.
    pub specs: Vec<String>,
    /// Its live sources.
    pub captures: Vec<Capture>,
    /// Each source's counts, by its text.
    pub sources: BTreeMap<String, SourceFacts>,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// The sum of all `loss` lines; `dropped` includes them.
    pub losses_logged: BTreeMap<String, u64>,
    /// The kernel's part of them, by what went on.
    pub kernel: KernelLosses,
    /// Largest part of a second that a worker ran while the kernel dropped.
    pub busy_max: f64,
    /// Longest that the process stood still while packets were lost, seconds.
    pub stalled_s: f64,
    /// Volumes of its store.
    pub volumes: Vec<VolumeFacts>,
    /// Traffic statistics, if there are any.
    pub stats: Option<StatsFacts>,
    /// Packets truncated to what a segment can keep.
    pub cut_by_segment: u64,
    /// Packets that came after windows that they belong to may have been over.
    pub late: u64,
    /// Interfaces that are there, or were, and are not captured, each with the run's message.
    pub refused: BTreeMap<String, String>,
    /// Interfaces that were captured and then removed, whether they came back or not.
    pub gone: BTreeSet<String>,
    /// Network cards.
    pub nics: Vec<NicFacts>,
    /// The kernel's queue between cards and sockets, of the whole machine.
    pub softnet: Option<Softnet>,
    /// Triggers that were armed.
    pub triggers: u64,
    /// Filters run in the interpreter because the settings say so.
    pub interpreter_asked: bool,
    /// Filters run there because no machine code could be made of them; logs of older versions don't say it.
    pub interpreted: u64,
    /// Hits that were refused unexamined.
    pub hits_rationed: u64,
    /// Hits by verdict, of all triggers.
    pub hits: BTreeMap<String, u64>,
    /// Dumps that may be open at once.
    pub dumps_max: Option<u64>,
    /// Finished dumps that have a line each.
    pub dumps_logged: u64,
    /// Those of them that lack something, or failed.
    pub dumps: Vec<DumpFacts>,
    /// Totals of its last line: dumps, and how many of them are incomplete or failed.
    pub dump_totals: Option<(u64, u64)>,
    /// Times that the log reported a dump that held segments and made no progress.
    pub long_holds: u64,
    /// Longest that a dump was seen waiting for its disk when counts or losses were logged, seconds.
    pub disk_wait_s: f64,
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// The ring has normal pages only; logs of older versions don't say it.
    pub normal_pages: bool,
    /// The system has swapped some of it out; logs of older versions don't say it.
    pub swapped: bool,
    /// Warnings, as the run wrote them.
    pub warnings: Vec<String>,
    /// Failures, as the run wrote them.
    pub failures: Vec<String>,
    /// The file system of the dump folder, now.
    pub disk: Option<Disk>,
    /// Lines of the log that couldn't be read.
    pub unreadable_lines: u64,
}

impl Facts {
    /// Whether something besides the dumps themselves shows that their disk stood still.
    pub fn disk_was_slow(&self) -> bool {
        self.long_holds > 0 || self.disk_wait_s >= LONG_WAIT_S
    }

    /// Packets dropped for `reason`.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.dropped.get(reason).copied().unwrap_or(0)
    }

    /// Dumps in all, as far as it is known.
    pub fn dumps_all(&self) -> u64 {
        self.dump_totals.map_or(self.dumps_logged, |(all, _)| all.max(self.dumps_logged))
    }

    /// Hits with `verdict`.
    pub fn hits(&self, verdict: &str) -> u64 {
        self.hits.get(verdict).copied().unwrap_or(0)
    }
}
