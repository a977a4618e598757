//! Orders of dumps: what one dump keeps, from where, and where it writes.

use crate::buffers::Buffers;
use crate::evidence::Evidence;
use crate::keep::Keep;
use crate::past::Past;
use crate::pins::FirstPins;
use crate::progress::Progress;
use crate::scans::Scans;
use crate::target::DumpOutput;
use scope_filter::{Filter, FilterEngine};
use scope_packet::{Clock, LinkType};
use scope_trigger::Window;
use std::sync::Arc;
use std::time::Duration;

/// Where the packet that fired stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitPacket {
    /// Lane.
    pub lane: u32,
    /// Number in the lane.
    pub packet: u64,
    /// Its link type: the file without a suffix is of this type.
    pub link_type: LinkType,
}

/// A dump to be made.
pub struct DumpOrder {
    /// Number of the dump in the run, from 1.
    pub id: u64,
    /// Name of the trigger.
    pub trigger: String,
    /// Why it fired, in words that follow "fired".
    pub why: String,
    /// The packet that fired; `None`: by hand, or the packet itself couldn't be stored.
    pub hit: Option<HitPacket>,
    /// Time of the hit, ns.
    pub time_ns: i64,
    /// Which packets are kept.
    pub filter: Filter,
    /// What evaluates it.
    pub filter_engine: FilterEngine,
    /// What selects beyond it.
    pub keep: Option<Box<dyn Keep>>,
    /// The window.
    pub window: Arc<Window>,
    /// Pins that were taken at the fire.
    pub pins: FirstPins,
    /// Where the files go.
    pub output: Arc<DumpOutput>,
    /// How far it is, for those who watch.
    pub progress: Arc<Progress>,
    /// What it shares with the run's other dumps.
    pub scans: Arc<Scans>,
    /// The stores that the run writes, if it does: they have what the ring lacks.
    pub past: Option<Arc<Past>>,
    /// Live: how long after the window's end to wait at most for workers whose clocks have stopped,
    /// see [`crate::patience`]. `None`: as long as it takes. A dump that waits no longer isn't complete.
    pub patience: Option<Duration>,
    /// What time it is, and what it waits by.
    pub clock: Arc<dyn Clock>,
    /// What the run has beside its packets.
    pub evidence: Arc<Evidence>,
}

/// One dump: what it keeps of its timeline, and where it writes.
pub struct Dump {
    /// Number of the dump in the run, from 1.
    pub id: u64,
    /// Name of the trigger.
    pub trigger: String,
    /// Why it fired, in words that follow "fired".
    pub why: String,
    /// The packet that fired, by its lane's number in the timeline.
    pub hit: Option<HitPacket>,
    /// Time of the hit, ns.
    pub time_ns: i64,
    /// Which packets are kept.
    pub filter: Filter,
    /// What evaluates it.
    pub filter_engine: FilterEngine,
    /// What selects beyond it.
    pub keep: Option<Box<dyn Keep>>,
    /// The window.
    pub window: Arc<Window>,
    /// Where the files go.
    pub output: Arc<DumpOutput>,
    /// How far it is, for those who watch.
    pub progress: Arc<Progress>,
    /// What it may hold back in memory, with others.
    pub buffers: Arc<Buffers>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What the run has beside its packets.
    pub evidence: Arc<Evidence>,
}
