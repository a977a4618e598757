//! What a span of capture time lacks, and why: the closed list of reasons, and one gap as a value.

use crate::DropReason;

/// Why packets of a span of capture time are missing, or may be. The names are the ones that files, logs and
/// JSON show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GapReason {
    /// The ring had recycled them before they were read.
    Evicted,
    /// The kernel's capture ring was full.
    Kernel,
    /// Every segment that could have been recycled was pinned.
    RingPinned,
    /// The interface was down, or had no link.
    InterfaceDown,
    /// The interface was not there.
    InterfaceGone,
    /// The run had not begun to listen.
    NotStarted,
    /// The run had been ordered to stop.
    Stopped,
    /// A capture file begins later.
    CaptureBegin,
    /// A capture file ends earlier.
    CaptureEnd,
    /// They could not be written.
    Disk,
    /// A capture file is damaged there.
    Unreadable,
    /// A capture file itself says that packets were dropped there.
    File,
    /// A bound of the run was reached: link types of a worker, or interfaces.
    Limit,
    /// What the window still needed was not settled when the dump had to end.
    Unsettled,
    /// The clock of the packets was set: what it showed before, or behind, belongs to another era.
    ClockStep,
    /// The store had deleted them.
    Deleted,
    /// They were recycled, and the store had not written them.
    NotStored,
    /// A filter of the store had left them out.
    LeftOut,
    /// No run was going.
    NotRecorded,
}

impl GapReason {
    /// All reasons, in the order in which they are documented.
    pub const ALL: [GapReason; 19] = [
        GapReason::Evicted,
        GapReason::Kernel,
        GapReason::RingPinned,
        GapReason::InterfaceDown,
        GapReason::InterfaceGone,
        GapReason::NotStarted,
        GapReason::Stopped,
        GapReason::CaptureBegin,
        GapReason::CaptureEnd,
        GapReason::Disk,
        GapReason::Unreadable,
        GapReason::File,
        GapReason::Limit,
        GapReason::Unsettled,
        GapReason::ClockStep,
        GapReason::Deleted,
        GapReason::NotStored,
        GapReason::LeftOut,
        GapReason::NotRecorded,
    ];

    /// The name under which headers, logs and JSON show the reason.
    pub const fn name(self) -> &'static str {
        match self {
            GapReason::Evicted => "evicted",
            GapReason::Kernel => "kernel",
            GapReason::RingPinned => "ring_pinned",
            GapReason::InterfaceDown => "interface_down",
            GapReason::InterfaceGone => "interface_gone",
            GapReason::NotStarted => "not_started",
            GapReason::Stopped => "stopped",
            GapReason::CaptureBegin => "capture_begin",
            GapReason::CaptureEnd => "capture_end",
            GapReason::Disk => "disk",
            GapReason::Unreadable => "unreadable",
            GapReason::File => "file",
            GapReason::Limit => "limit",
            GapReason::Unsettled => "unsettled",
            GapReason::ClockStep => "clock_step",
            GapReason::Deleted => "deleted",
            GapReason::NotStored => "not_stored",
            GapReason::LeftOut => "left_out",
            GapReason::NotRecorded => "not_recorded",
        }
    }

    /// Whether packets that were promised were lost, which is a failure of the run (exit code 1). A stop by
    /// the user, an interface that was not there, a file's begin or end are reasons, not failures.
    pub const fn is_loss(self) -> bool {
        matches!(
            self,
            GapReason::Evicted
                | GapReason::Kernel
                | GapReason::RingPinned
                | GapReason::Disk
                | GapReason::Limit
                | GapReason::Unsettled
                | GapReason::Deleted
                | GapReason::NotStored
                | GapReason::LeftOut
        )
    }
}

/// Why a span lacks packets that were dropped for a reason.
impl From<DropReason> for GapReason {
    fn from(reason: DropReason) -> GapReason {
        match reason {
            DropReason::Kernel => GapReason::Kernel,
            DropReason::RingPinned => GapReason::RingPinned,
            DropReason::LinkTypes | DropReason::Interfaces => GapReason::Limit,
            DropReason::File => GapReason::File,
        }
    }
}

/// One span of capture time that lacks packets, or may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Begin, ns, inclusive.
    pub from_ns: i64,
    /// End, ns, inclusive.
    pub to_ns: i64,
    /// Why.
    pub reason: GapReason,
    /// Packets missing, at least.
    pub lost_min: u64,
    /// Packets missing, at most; `None` where nobody can know.
    pub lost_max: Option<u64>,
}
