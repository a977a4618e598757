//! What a run says of itself while it goes: figures only, once a second; words are the binary's.

use scope_packet::Drops;

/// The run at one moment. Rates are over the time since the last status.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Seconds since the run began.
    pub elapsed_s: f64,
    /// Packets received per second.
    pub packets_per_s: f64,
    /// Captured bits per second.
    pub bits_per_s: f64,
    /// Packets received so far.
    pub packets: u64,
    /// Capture time that the ring holds now, ns.
    pub depth_ns: i64,
    /// Packets dropped so far, by reason.
    pub dropped: Drops,
    /// Dumps that are open.
    pub dumps_open: usize,
    /// Dumps that are written.
    pub dumps_done: usize,
    /// Hits so far.
    pub hits: u64,
    /// Every worker.
    pub workers: Vec<WorkerStatus>,
    /// Every open dump.
    pub dumps: Vec<DumpStatus>,
}

/// One worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerStatus {
    /// Its source, as typed.
    pub source: String,
    /// Packets per second.
    pub packets_per_s: f64,
    /// Bits per second.
    pub bits_per_s: f64,
    /// How far its clock is behind the wall clock, ns; `None` where its times aren't of now.
    pub lag_ns: Option<i64>,
}

/// One open dump, which is a reader of the ring.
#[derive(Clone, Debug, Default)]
pub struct DumpStatus {
    /// Number of the dump in the run.
    pub id: u64,
    /// Trigger.
    pub trigger: String,
    /// Packets written so far.
    pub packets: u64,
    /// Packets per second.
    pub packets_per_s: f64,
    /// Bits per second.
    pub bits_per_s: f64,
    /// Capture time that it has still to cover until its window's end, ns.
    pub lag_ns: i64,
}
