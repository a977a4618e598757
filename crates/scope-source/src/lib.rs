//! Where packets come from: live interfaces, capture files, the traffic generator, behind one trait that
//! lends batches.
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | `NAME:WHAT,option=value,...` as typed, and how it is read |
//! | `plan` | the same as meant |
//! | [`afpacket`] | live capture with TPACKET_V3 |
//! | [`pcap`] | live capture through libpcap, for systems without that |
//! | [`own_traffic`] | the ssh session that this program was started from |
//! | [`file`] | pcap and pcapng files, one or several merged by time |
//! | [`synth`] | generated traffic |
//! | [`sending`] | the other way: packets of a source out of an interface |
//!
//! Absent on purpose: a source knows nothing of rings, triggers or threads. The worker polls it.

pub mod afpacket;
pub mod file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod own_traffic;
pub mod pcap;
mod plan;
pub mod sending;
pub mod spec;
pub mod synth;

use scope_fault::{Fault, Subject};
use scope_machine::nic::Altered;
use scope_packet::Sink;
use std::fmt;
use std::io;
use std::sync::Arc;

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
    /// Nothing came within the source's poll time (10 ms at most). [`Sink::idle`] got the clock at that time.
    Nothing,
    /// Nothing will come any more.
    Ended,
}

/// What a source knows of its own losses and oddities, cumulative since it was opened, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounters {
    /// Handed to the sink, packets.
    pub received: u64,
    /// Live: offered by the network, what the kernel dropped included. Files: packets found in the file.
    /// Generator: generated.
    pub offered: u64,
    /// Live: dropped by the kernel because its ring was full.
    pub kernel_dropped: u64,
    /// Files: packets that stand in the file but can't be read (damaged records).
    pub unreadable: u64,
    /// Packets older than one before them.
    pub stepped_back: u64,
    /// How often capture time was set back.
    pub set_back: u64,
    /// Packets whose time lay outside what is stored and was clamped.
    pub time_clamped: u64,
    /// Live: packets that aren't as they are on the wire.
    pub altered: Altered,
}

impl SourceCounters {
    /// Adds what another socket or file of the same source counted.
    pub fn add(&mut self, other: &SourceCounters) {
        self.received += other.received;
        self.offered += other.offered;
        self.kernel_dropped += other.kernel_dropped;
        self.unreadable += other.unreadable;
        self.stepped_back += other.stepped_back;
        self.set_back += other.set_back;
        self.time_clamped += other.time_clamped;
        self.altered.add(&other.altered);
    }
}

/// What one live interface brought, cumulative over all the times that it was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// The name that it is captured under.
    pub interface: Arc<str>,
    /// What the system calls it now: another name only where it is there and was renamed.
    pub called: Arc<str>,
    /// This worker's share.
    pub counters: SourceCounters,
}

/// A new state of a live interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceState {
    /// It matches the source's pattern, and is captured from now on.
    New,
    /// Up, with a link.
    Up,
    /// Down, or without a link: nothing comes.
    Down,
    /// Removed.
    Gone,
    /// It came back after it was removed, and is captured again.
    Back,
    /// Packets may have so many bytes behind their link header from now on.
    Mtu(u32),
    /// It has another name now. Its capture goes on, under its first name.
    Renamed {
        /// Its name before.
        from: Arc<str>,
        /// Its name now.
        to: Arc<str>,
    },
    /// It exists and can't be captured.
    Refused,
    /// The same of an interface that was captured before it was removed.
    Lost,
    /// No interface in particular: so many sockets wait for interfaces to come.
    Spare(u32),
}

impl InterfaceState {
    /// The word of the event log.
    pub const fn name(&self) -> &'static str {
        match self {
            InterfaceState::New => "new",
            InterfaceState::Up => "up",
            InterfaceState::Down => "down",
            InterfaceState::Gone => "gone",
            InterfaceState::Back => "back",
            InterfaceState::Mtu(_) => "mtu",
            InterfaceState::Renamed { .. } => "renamed",
            InterfaceState::Refused | InterfaceState::Lost => "refused",
            InterfaceState::Spare(_) => "spare",
        }
    }

    /// Whether it is a warning.
    pub const fn warns(&self) -> bool {
        !matches!(self, InterfaceState::New | InterfaceState::Spare(_))
    }
}

/// A change of a live interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceEvent {
    /// The name that it is captured under, or the source's pattern where no single one is meant.
    pub interface: String,
    /// Its new state.
    pub state: InterfaceState,
    /// The same in plain words.
    pub text: String,
}

/// A source of packets, polled by one worker thread.
///
/// A trait object per worker: one call per poll of up to some thousand packets costs nothing. It lends its
/// packets and copies only what it must change (a stripped VLAN tag that is put back).
pub trait Source: Send {
    /// What the operator calls it, for messages: the spec as typed.
    fn name(&self) -> &str;

    /// Whether it waits for the ring, or the ring for it.
    fn timing(&self) -> Timing;

    /// How long, in ns of capture time, packets may still come that are older than the newest: 1 s for what
    /// waits, the block timeout for live capture.
    fn grace_ns(&self) -> i64;

    /// Reads what stands before the first packet, of what was only opened so far. Called once, before all other
    /// calls but those for its name and timing; a run calls it with the rights that it has kept.
    ///
    /// # Errors
    /// What was opened is none of what it should be.
    fn begin(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    /// Pushes what is there, in batches, and returns after some thousand packets or 10 ms. Interfaces are
    /// made known first.
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError>;

    /// Counters so far.
    fn counters(&self) -> SourceCounters;

    /// How far the clock that stamps its packets is ahead of the system's, ns, as far as it has been seen.
    fn ahead_ns(&self) -> i64 {
        0
    }

    /// Live: the system's time, ns, from which on every interface that was there is listened to. `None`: from
    /// the first poll on.
    fn listens_from_ns(&self) -> Option<i64> {
        None
    }

    /// Capture time, ns, of the next packet if it is known without reading on: lets several files run in
    /// step.
    fn next_time_ns(&mut self) -> Option<i64> {
        None
    }

    /// Stops the source: a live one drains what the kernel still holds, then ends. Called once, before the
    /// last polls.
    fn stop(&mut self);

    /// What was decided when the source was opened and is reported at the start, in plain words.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Warnings in plain words since the last call (a truncated file, an interface that went down).
    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Updates `into`, which the call before filled, to the counters of each live interface so far: appends
    /// new interfaces, and updates those that may have changed since then. The numbers of these are added to
    /// `changed`, some perhaps twice.
    fn interface_counters(&mut self, _into: &mut Vec<InterfaceCounters>, _changed: &mut Vec<usize>) {}

    /// Changes of live interfaces since the last call. Where several workers share them, one of them reports
    /// them.
    fn interface_events(&mut self) -> Vec<InterfaceEvent> {
        Vec::new()
    }
}

/// Why a source can't be opened or failed while running: place, cause and remedy, see
/// [`SourceError::reason`].
#[derive(Debug)]
pub enum SourceError {
    /// The text of a source is not understood, or its settings are not possible.
    Spec(Fault),
    /// There is no such interface.
    NoInterface {
        /// As typed.
        name: String,
        /// Interfaces that exist, comma separated.
        known: String,
    },
    /// The process may not capture.
    NoPermission {
        /// Interface.
        interface: String,
        /// Path of this program.
        program: String,
    },
    /// A file can't be opened or is no capture file, or reading failed in the middle.
    File {
        /// As typed; `-` is standard input.
        path: String,
        /// What is wrong, and what would be right.
        reason: Fault,
    },
    /// An interface has come (back) and there is no socket for it; nothing else of the source is left.
    NoSocket {
        /// Interface.
        interface: String,
        /// Why none can be opened.
        cause: io::Error,
    },
    /// An interface that libpcap captured was removed, and it can't be opened again.
    NotAgain {
        /// Interface.
        interface: String,
        /// Why none can be opened.
        cause: io::Error,
    },
    /// The kernel gives no ring to capture into.
    CaptureRing {
        /// Its size.
        mib: u64,
        /// Interface.
        interface: String,
        /// The system's own words.
        cause: io::Error,
    },
    /// A system call failed.
    System {
        /// What was being done, on what.
        place: String,
        /// The system's own words.
        cause: io::Error,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason().fmt(f)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SourceError::NoSocket { cause, .. }
            | SourceError::NotAgain { cause, .. }
            | SourceError::CaptureRing { cause, .. }
            | SourceError::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

impl SourceError {
    /// Of the source `spec`, in words.
    pub(crate) fn spec(spec: &str, cause: String) -> SourceError {
        SourceError::Spec(Fault::of_source(spec).cause(cause))
    }

    /// For `interface`, with the remedy for this very program.
    pub fn no_permission(interface: &str) -> SourceError {
        SourceError::NoPermission {
            interface: interface.to_string(),
            program: scope_machine::nic::this_program(),
        }
    }

    /// What is wrong, and what helps.
    pub fn reason(&self) -> Fault {
        match self {
            SourceError::Spec(fault) => fault.clone(),
            SourceError::NoInterface { name, known } => {
                let all = if name == "any" { "; for all interfaces write *" } else { "" };
                Fault::whole(format!("no interface '{name}'")).remedy(format!("there are: {known}{all}"))
            }
            SourceError::NoPermission { interface, program } => {
                let fault =
                    Fault::whole(format!("no permission to capture on '{interface}': missing CAP_NET_RAW"));
                fault.remedy(format!("run as root, or once: setcap cap_net_raw=ep {program}"))
            }
            SourceError::File { path, reason } => {
                let cause = format!("{path}: {}", reason.why());
                reason.clone().cause(cause)
            }
            SourceError::NoSocket { interface, cause } => {
                let fault =
                    Fault::whole(format!("no packet socket is left for interface '{interface}' ({cause})"));
                fault.remedy("start again with a larger spare=, or with the right to open them")
            }
            SourceError::NotAgain { interface, cause } => {
                let cause = format!(
                    "interface '{interface}' was removed, and libpcap can't capture it again without the \
                     right to open packet sockets ({cause})"
                );
                let instead = format!("--source 'afpacket:{interface},spare=1'");
                Fault::whole(cause)
                    .remedy(format!("start again with {instead}, which opens its sockets beforehand"))
            }
            // It names what needs less.
            SourceError::CaptureRing { mib, interface, cause } => Fault::whole(format!(
                "making a capture ring of {mib} MiB on {interface} (fewer workers or a smaller ring need \
                 less): {cause}"
            )),
            SourceError::System { place, cause } => {
                Fault::default().error(cause).cause(format!("{place}: {cause}"))
            }
        }
    }

    /// The same as the fault of a source, `spec` as typed.
    pub fn into_fault(self, spec: &str) -> Fault {
        match self {
            SourceError::Spec(fault) => fault,
            other => other.reason().of_subject(Subject::source(spec, None)),
        }
    }
}
