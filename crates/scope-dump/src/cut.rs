//! One dump from order to report: its packets are selected in rounds, until what answers for them says that
//! it is over, and written.

use crate::buffers::Buffers;
use crate::evidence::Evidence;
use crate::pins::FirstPins;
use crate::progress::Progress;
use crate::report::DumpReport;
use crate::scans::Scans;
use crate::select::{Round, Selection};
use crate::target::DumpOutput;
use crate::walk::{Asked, RingTimeline};
use crate::writing::Writing;
use scope_filter::{Filter, FilterEngine};
use scope_packet::{Clock, LinkType};
use scope_ring::{Interfaces, Ring, Timeline};
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
    /// The window.
    pub window: Arc<Window>,
    /// Pins that were taken at the fire.
    pub pins: FirstPins,
    /// Where the files go.
    pub output: Arc<DumpOutput>,
    /// How far it is, for whoever watches.
    pub progress: Arc<Progress>,
    /// What it shares with the run's other dumps.
    pub scans: Arc<Scans>,
    /// Live: how long after the window's end to wait at most for workers that have stopped telling the time,
    /// see [`crate::patience`]. `None`: as long as it takes. A dump that waits no longer isn't complete.
    pub patience: Option<Duration>,
    /// What time it is, and what it waits by.
    pub clock: Arc<dyn Clock>,
    /// What the run has beside its packets.
    pub evidence: Arc<Evidence>,
}

/// What one dump asks of its timeline, whichever that is, and where it writes.
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
    /// The window.
    pub window: Arc<Window>,
    /// Where the files go.
    pub output: Arc<DumpOutput>,
    /// How far it is, for whoever watches.
    pub progress: Arc<Progress>,
    /// What it may hold back in memory, with others.
    pub buffers: Arc<Buffers>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What the run has beside its packets.
    pub evidence: Arc<Evidence>,
}

/// Cuts one dump out of the ring. Returns when its files have their names.
pub fn cut(ring: &Arc<Ring>, order: DumpOrder) -> DumpReport {
    let asked = Asked {
        era: order.window.era(),
        from_ns: order.window.from_ns(),
        hit_ns: order.time_ns,
        reader: order.scans.join(&order.filter),
        patience: order.patience,
        clock: order.clock.clone(),
        progress: order.progress.clone(),
    };
    let mut timeline = RingTimeline::new(ring, &order.pins, asked);
    let dump = Dump {
        id: order.id,
        trigger: order.trigger,
        why: order.why,
        hit: order.hit,
        time_ns: order.time_ns,
        filter: order.filter,
        filter_engine: order.filter_engine,
        window: order.window,
        output: order.output,
        progress: order.progress,
        buffers: order.scans.buffers().clone(),
        clock: order.clock,
        evidence: order.evidence,
    };
    let mut report = cut_from(&mut timeline, &**ring, dump);
    report.waited.pins_full = timeline.full();
    report
}

/// Cuts one dump out of any timeline: its packets are selected, round by round, and written. `interfaces` are
/// those that its packets name.
pub fn cut_from(timeline: &mut dyn Timeline, interfaces: &dyn Interfaces, dump: Dump) -> DumpReport {
    let mut report = DumpReport {
        id: dump.id,
        trigger: dump.trigger.clone(),
        why: dump.why.clone(),
        time_ns: dump.time_ns,
        filter: dump.filter.text().to_string(),
        to_stream: dump.output.is_stream(),
        circumstances: dump.evidence.now(),
        ..DumpReport::default()
    };
    let mut writing = Writing::new(&dump, interfaces, &report);
    let hit = dump.hit.map(|hit| (hit.lane, hit.packet));
    let from_ns = dump.window.from_ns();
    let mut selection = Selection::new(dump.filter, dump.filter_engine, from_ns, hit, &dump.buffers);
    follow(timeline, &dump.window, &mut selection, &mut writing);
    timeline.end();

    report.waited.reading = dump.progress.waits();
    let closing = dump.clock.monotonic();
    report.asked = (from_ns, dump.window.to_ns());
    (report.hits, report.hits_ns) = dump.window.hits();
    let main_type = writing.end_packets(timeline.link_type(0));
    // Without anybody's word for it: from the first packet to the latest moment of any worker's clock.
    let heard = timeline.heard().unwrap_or((report.time_ns, report.time_ns));
    report.from_ns = report.asked.0.max(heard.0).min(report.time_ns);
    report.to_ns = report.asked.1.min(heard.1).max(report.from_ns);
    let lacks = selection.missing(timeline, report.asked.1);
    report.interpreted = selection.interpreted();
    drop(selection); // what waited for its turn
    writing.finish(main_type, &lacks, &mut report);
    report.waited.closing = dump.clock.monotonic().saturating_sub(closing);
    report
}

/// Rounds until the window is over: its end is settled, or the timeline waits no longer.
fn follow(
    timeline: &mut dyn Timeline,
    window: &Window,
    selection: &mut Selection,
    writing: &mut Writing<'_>,
) {
    loop {
        // Before the look: what is committed afterwards is younger than this, or late.
        let settled = timeline.settle(window.to_ns());
        let mut last = window.close_if_settled(settled.up_to);
        if !last && !settled.goes_on {
            window.close();
            last = true;
        }
        let round = Round { to_ns: window.to_ns(), settled_ns: settled.up_to.within(window.era()), last };
        let any = selection.round(timeline, round, writing);
        writing.end_round(any || last);
        if last {
            return;
        }
        timeline.wait(round.to_ns.saturating_sub(round.settled_ns));
    }
}
