//! Where packets come from: live interfaces, capture files, the traffic generator, behind one trait that lends batches.
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | `NAME:WHAT,option=value,...` as typed, and as meant |
//! | [`afpacket`] | live capture with TPACKET_V3 |
//! | [`pcap`] | live capture through libpcap, for systems without that |
//! | [`own_traffic`] | the ssh session that this program was started from |
//! | [`file`] | pcap and pcapng files, one or several merged by time |
//! | [`synth`] | generated traffic |
//!
//! Absent on purpose: a source knows nothing of rings, triggers or threads. Whoever polls it is the worker.

pub mod afpacket;
pub mod file;
pub mod own_traffic;
pub mod pcap;
pub mod spec;
pub mod synth;

use scope_packet::Sink;

/// How a source's time runs, which decides who waits for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Packets come when they come; a worker that can't store them drops. Also generated traffic at a rate.
    Live,
    /// Recorded or generated packets that can wait for the ring: nothing is lost to speed.
    Waits,
}

/// What one poll brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// At least one packet was pushed.
    Packets,
    /// Nothing came within the source's poll time (10 ms at most). [`Sink::idle`] was told where that leaves the clock.
    Nothing,
    /// Nothing will come any more.
    Ended,
}

/// What a source knows of its own losses and oddities, cumulative since it was opened, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Handed to the sink, packets.
    pub received: u64,
    /// Live: offered by the network, what the kernel dropped included. Files: packets found in the file. Generator: generated.
    pub offered: u64,
    /// Live: dropped by the kernel because its ring was full.
    pub kernel_dropped: u64,
    /// Files: packets that stand in the file but can't be read (damaged records).
    pub unreadable: u64,
    /// Packets older than one before them.
    pub stepped_back: u64,
    /// Packets whose time lay outside what is stored and was clamped.
    pub time_clamped: u64,
}

/// A source of packets, polled by one worker thread.
///
/// A trait object per worker: one call per poll of up to some thousand packets costs nothing. It lends what it has and
/// copies nothing but what it must change (a stripped VLAN tag that is put back).
pub trait Source: Send {
    /// What the operator calls it, for messages: the spec as typed.
    fn name(&self) -> &str;

    /// Who waits for whom.
    fn timing(&self) -> Timing;

    /// How long, in ns of capture time, packets may still come that are older than the newest: 1 s for what waits, the block
    /// timeout for live capture.
    fn grace_ns(&self) -> i64;

    /// Pushes what is there, in batches, and returns after some thousand packets or 10 ms. Interfaces are made known first.
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError>;

    /// Counters so far.
    fn counters(&self) -> SourceCounters;

    /// Capture time, ns, of the next packet if it is known without reading on: lets several files run in step.
    fn next_time_ns(&mut self) -> Option<i64> {
        None
    }

    /// No more packets are wanted: a live source takes what the kernel still holds, then ends. Called once, before the last polls.
    fn stop(&mut self);

    /// What was decided when the source was opened and is worth a word at the start, in plain words.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Warnings in plain words that came up since the last call (a file that was cut, an interface that went down).
    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Why a source can't be opened or failed while running. Texts say place, cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The text of a source is not understood.
    #[error("source '{spec}': {cause}")]
    Spec {
        /// As typed.
        spec: String,
        /// What is wrong, and what would be right.
        cause: String,
    },
    /// There is no such interface.
    #[error("no interface '{name}'; there are: {known}{}", if name == "any" { "; capturing on all at once isn't supported: give several -i" } else { "" })]
    NoInterface {
        /// As typed.
        name: String,
        /// Interfaces that exist, comma separated.
        known: String,
    },
    /// The process may not capture.
    #[error(
        "no permission to capture on '{interface}': missing CAP_NET_RAW; run as root, or once: setcap cap_net_raw,cap_net_admin,cap_ipc_lock=ep {program}"
    )]
    NoPermission {
        /// Interface.
        interface: String,
        /// Path of this program.
        program: String,
    },
    /// A file can't be opened or is no capture file, or reading failed in the middle.
    #[error("{path}: {cause}")]
    File {
        /// As typed; `-` is standard input.
        path: String,
        /// What is wrong, and what would be right.
        cause: String,
    },
    /// The interface doesn't exist any more; what it had received was handed over.
    #[error("interface '{interface}' was removed: nothing more comes from it; start again when it is back")]
    Removed {
        /// Interface.
        interface: String,
    },
    /// A system call failed.
    #[error("{place}: {cause}")]
    System {
        /// What was being done, on what.
        place: String,
        /// The system's own words.
        #[source]
        cause: std::io::Error,
    },
}

impl SourceError {
    /// For `interface`, with the remedy for this very program.
    pub(crate) fn no_permission(interface: &str) -> SourceError {
        let program = std::env::current_exe().map_or_else(|_| "wirescope".to_string(), |path| path.display().to_string());
        SourceError::NoPermission { interface: interface.to_string(), program }
    }
}
