//! What was found in files, as values: verdicts, damaged places, spans that lack packets and why.

use scope_fault::Fault;
use scope_packet::GapReason;
use std::path::PathBuf;

/// Damaged places, and spans that lack packets, that are listed of one file; more are counted.
pub const LISTED_MAX: usize = 1000;

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// A capture of any program, pcapng.
    #[default]
    Pcapng,
    /// A capture of any program, pcap.
    Pcap,
    /// A dump, which states what it lacks.
    Dump,
    /// Packets of a store that `export` wrote; it states what it lacks.
    Export,
    /// A file of the store, or of `--ring-out`, whose bytes have checksums.
    Store,
}

impl Form {
    /// The name under which lines and JSON show it.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Pcapng => "pcapng",
            Form::Pcap => "pcap",
            Form::Dump => "dump",
            Form::Export => "export",
            Form::Store => "store",
        }
    }
}

/// What it comes to, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every byte is as it was written, as far as that can be known, and no packet was lost.
    Whole,
    /// The bytes are whole; packets were lost before they could be written.
    Lost,
    /// Bytes are damaged, or the end is missing.
    Damaged,
    /// It can't be looked at.
    Unread,
}

impl Verdict {
    /// The name under which lines and JSON show it.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Whole => "whole",
            Verdict::Lost => "lost",
            Verdict::Damaged => "damaged",
            Verdict::Unread => "unread",
        }
    }
}

/// Why packets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// One of those that dumps name.
    Gap(GapReason),
    /// A filter of the store left them out.
    Filter,
    /// Retention deleted the files that they were in.
    Deleted,
    /// A file is gone that retention would not have deleted yet.
    Gone,
    /// They were on their way to the disk when the run died, or recovery found them damaged.
    Crash,
    /// They may be in a volume of the run that wasn't given.
    Elsewhere,
    /// They may be in a file or folder that can't be read.
    Unread,
}

impl Reason {
    /// The name under which JSON shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Gap(reason) => reason.name(),
            Reason::Filter => "filter",
            Reason::Deleted => "deleted",
            Reason::Gone => "gone",
            Reason::Crash => "crash",
            Reason::Elsewhere => "elsewhere",
            Reason::Unread => "unread",
        }
    }

    /// The same in words, at most 20 letters.
    pub const fn words(self) -> &'static str {
        match self {
            Reason::Gap(reason) => match reason {
                GapReason::Evicted => "recycled in the ring",
                GapReason::Kernel => "lost by the kernel",
                GapReason::RingPinned => "lost by a full ring",
                GapReason::InterfaceDown => "interface down",
                GapReason::InterfaceGone => "interface gone",
                GapReason::NotStarted => "before the run",
                GapReason::Stopped => "after the stop",
                GapReason::CaptureBegin => "before the capture",
                GapReason::CaptureEnd => "after the capture",
                GapReason::Disk => "lost by the disk",
                GapReason::Unreadable => "damaged",
                GapReason::File => "the capture's loss",
                GapReason::Limit => "a bound of the run",
                GapReason::Unsettled => "not settled in time",
                GapReason::ClockStep => "the clock was set",
                GapReason::Deleted => "deleted by the store",
                GapReason::NotStored => "not stored",
                GapReason::LeftOut => "left out by a filter",
                GapReason::NotRecorded => "no run was going",
            },
            Reason::Filter => "left out by a filter",
            Reason::Deleted => "deleted by retention",
            Reason::Gone => "a file is gone",
            Reason::Crash => "cut off by a crash",
            Reason::Elsewhere => "in another volume?",
            Reason::Unread => "in an unread file?",
        }
    }

    /// Whether packets that came were lost by it. That nobody listened is no loss.
    pub const fn is_loss(self) -> bool {
        match self {
            Reason::Gap(reason) => {
                reason.is_loss() || matches!(reason, GapReason::File | GapReason::Unreadable)
            }
            Reason::Gone | Reason::Crash => true,
            Reason::Filter | Reason::Deleted | Reason::Elsewhere | Reason::Unread => false,
        }
    }
}

/// A span that lacks packets, or may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Begin, ns since the epoch.
    pub from_ns: i64,
    /// It began earlier, and nobody knows when: `from_ns` is as late as it can be.
    pub reaches_back: bool,
    /// End, ns, inclusive; `None` where nobody can know.
    pub to_ns: Option<i64>,
    /// Why.
    pub reason: Reason,
    /// Packets missing, at least.
    pub lost_min: u64,
    /// Packets missing, at most; `None` where nobody can know.
    pub lost_max: Option<u64>,
    /// Whose packets: an interface, or a lane of a run; empty: all that the file has.
    pub of: String,
}

impl Missing {
    /// Whether packets were lost here, or may have been.
    pub fn is_loss(&self) -> bool {
        self.reason.is_loss() && self.lost_max != Some(0)
    }

    /// Whether `other`, noted after it, begins where it ends and has the same cause.
    fn goes_on(&self, other: &Missing) -> bool {
        let touches = self.to_ns.is_some_and(|to_ns| (self.from_ns..=to_ns).contains(&other.from_ns));
        touches && other.to_ns.is_some() && self.reason == other.reason && self.of == other.of
    }

    pub(super) fn join(&mut self, other: &Missing) {
        self.from_ns = self.from_ns.min(other.from_ns);
        self.reaches_back |= other.reaches_back;
        self.to_ns = self.to_ns.zip(other.to_ns).map(|(one, other)| one.max(other));
        self.lost_min = self.lost_min.saturating_add(other.lost_min);
        self.lost_max = self.lost_max.zip(other.lost_max).map(|(one, other)| one.saturating_add(other));
    }
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its first byte in the file.
    pub at: u64,
    /// What is wrong, in words.
    pub cause: String,
    /// The file ends there, too early.
    pub is_cut: bool,
}

/// How far a file of the store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// It never changes any more.
    #[default]
    Closed,
    /// A run writes it: it was checked up to its last flush.
    Growing,
    /// The run that wrote it has died; the next one closes it.
    Left,
}

impl Progress {
    /// The name under which lines and JSON show it.
    pub const fn name(self) -> &'static str {
        match self {
            Progress::Closed => "closed",
            Progress::Growing => "growing",
            Progress::Left => "left",
        }
    }
}

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileReport {
    /// Which.
    pub path: PathBuf,
    /// The store that it was found in.
    pub store: Option<PathBuf>,
    /// How far it is.
    pub progress: Progress,
    /// Whether checksums prove its bytes.
    pub has_checksums: bool,
    /// Slots that are not closed yet.
    pub open_slots: u64,
    /// What it is.
    pub form: Form,
    /// Its length.
    pub bytes: u64,
    /// Packets that were read.
    pub packets: u64,
    /// Smallest and largest time of a packet, ns.
    pub span: Option<(i64, i64)>,
    /// How often a packet's time lies before that of the packet in front of it.
    pub steps_back: u64,
    /// Damaged places, at most [`LISTED_MAX`].
    pub damages: Vec<Damage>,
    /// Further ones.
    pub damages_more: u64,
    /// Spans that lack packets, at most [`LISTED_MAX`].
    pub missing: Vec<Missing>,
    /// Further ones, which the last of each reason includes.
    pub missing_joined: u64,
    /// Why it can't be looked at, and what helps.
    pub unread: Option<Fault>,
}

impl FileReport {
    /// What it comes to.
    pub fn verdict(&self) -> Verdict {
        if self.unread.is_some() {
            Verdict::Unread
        } else if !self.damages.is_empty() {
            Verdict::Damaged
        } else if self.missing.iter().any(Missing::is_loss) {
            Verdict::Lost
        } else {
            Verdict::Whole
        }
    }

    /// Notes why it can't be looked at.
    pub(super) fn refuse(&mut self, cause: impl Into<String>, remedy: Option<&str>) {
        let fault = Fault::of_thing(self.path.to_string_lossy()).cause(cause.into());
        self.unread = Some(match remedy {
            Some(remedy) => fault.remedy(remedy),
            None => fault,
        });
    }

    /// Notes a packet of this time; `before_ns` is that of the one in front of it.
    #[inline]
    pub(super) fn packet(&mut self, time_ns: i64, before_ns: Option<i64>) {
        self.packets += 1;
        self.steps_back += u64::from(before_ns.is_some_and(|before| time_ns < before));
        self.cover(time_ns, time_ns);
    }

    /// Its packets lie in this span, too.
    #[inline]
    pub(super) fn cover(&mut self, min_ns: i64, max_ns: i64) {
        let (min, max) = self.span.unwrap_or((min_ns, max_ns));
        self.span = Some((min.min(min_ns), max.max(max_ns)));
    }

    /// Notes a damaged place.
    #[cold]
    pub(super) fn damage(&mut self, at: u64, cause: impl Into<String>) {
        self.note(Damage { at, cause: cause.into(), is_cut: false });
    }

    /// Notes that the file ends too early.
    #[cold]
    pub(super) fn cut(&mut self, at: u64, cause: impl Into<String>) {
        self.note(Damage { at, cause: cause.into(), is_cut: true });
    }

    fn note(&mut self, damage: Damage) {
        match self.damages.len() < LISTED_MAX {
            true => self.damages.push(damage),
            false => self.damages_more += 1,
        }
    }

    /// Notes a span that lacks packets. Beyond the bound it is joined with the last one of its reason.
    pub(super) fn lack(&mut self, missing: Missing) {
        self.missing_joined += u64::from(note(&mut self.missing, missing));
    }
}

/// Notes a span that lacks packets; `true`: there are too many, and it was joined with the last one of its
/// reason.
pub(super) fn note(list: &mut Vec<Missing>, missing: Missing) -> bool {
    if let Some(last) = list.last_mut().filter(|last| last.goes_on(&missing)) {
        last.join(&missing);
        return false;
    }
    let is_full = list.len() >= LISTED_MAX;
    let same = list.iter_mut().rev().filter(|_| is_full).find(|last| last.reason == missing.reason);
    let Some(last) = same else {
        list.push(missing); // there are few reasons
        return false;
    };
    last.join(&missing);
    last.of.clear();
    true
}
