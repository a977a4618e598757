//! A finding: what was found, where, how sure its cause is, and what to change.

/// Where something is lost, in the order that packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The network card, and what its driver does.
    Nic,
    /// The kernel's queue between card and sockets.
    KernelQueue,
    /// The capture ring that the kernel fills for a worker.
    KernelRing,
    /// The worker that empties it.
    Worker,
    /// Wirescope's ring.
    Ring,
    /// Dumps, and how many may be open.
    Dumps,
    /// The disk that dumps are written to.
    DumpDisk,
    /// A disk of the store.
    Store,
    /// Traffic statistics, and the disk of their database.
    Statistics,
    /// The run as a whole.
    Run,
}

impl Stage {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Nic => "NIC",
            Stage::KernelQueue => "kernel queue",
            Stage::KernelRing => "kernel ring",
            Stage::Worker => "worker",
            Stage::Ring => "ring",
            Stage::Dumps => "dumps",
            Stage::DumpDisk => "dump disk",
            Stage::Store => "store",
            Stage::Statistics => "statistics",
            Stage::Run => "run",
        }
    }
}

/// How sure it is that the cause is the one named. Counts are always as counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sureness {
    /// The counters say so.
    Certain,
    /// What was going on at the time says so.
    Likely,
    /// It could be something else.
    Possible,
}

impl Sureness {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Sureness::Certain => "certain",
            Sureness::Likely => "likely",
            Sureness::Possible => "possible",
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A word for programs.
    pub kind: &'static str,
    /// Where.
    pub stage: Stage,
    /// How sure the cause is.
    pub sureness: Sureness,
    /// Packets lost, at least.
    pub lost_min: u64,
    /// Packets lost, at most.
    pub lost_max: u64,
    /// Packets or promised dumps are lost. If not, it is only worth knowing.
    pub loses: bool,
    /// Kinds of the findings that caused this one: its packets are counted there.
    pub follows: Vec<&'static str>,
    /// Why, in a sentence.
    pub cause: String,
    /// What to change; what helps most comes first.
    pub remedies: Vec<String>,
}

impl Finding {
    /// Something worth knowing that loses nothing.
    pub(crate) fn note(
        kind: &'static str,
        stage: Stage,
        sureness: Sureness,
        cause: String,
        remedies: &[&str],
    ) -> Finding {
        let remedies = remedies.iter().map(|remedy| remedy.to_string()).collect();
        Finding {
            kind,
            stage,
            sureness,
            lost_min: 0,
            lost_max: 0,
            loses: false,
            follows: Vec::new(),
            cause,
            remedies,
        }
    }

    /// A loss of `packets`.
    pub(crate) fn loss(
        kind: &'static str,
        stage: Stage,
        sureness: Sureness,
        packets: u64,
        cause: String,
        remedies: &[&str],
    ) -> Finding {
        let note = Finding::note(kind, stage, sureness, cause, remedies);
        Finding { lost_min: packets, lost_max: packets, loses: true, ..note }
    }
}
