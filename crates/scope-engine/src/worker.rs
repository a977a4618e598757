//! The packet path: one thread that polls its source, parses each packet once, asks prefilter and triggers, and appends to its lanes.
//!
//! ```text
//!  batch ─► all packets: headers, key ─► prefilter, if any ─► triggers, each asked for the batch
//!        ─► per run of packets of one interface, up to the next hit: append
//!        ─► a hit? verdict; a fire takes its pins before the next claim
//!        ─► commit after at most 4 full batches, at once after one that isn't full; then counters, then the clock
//! ```

use crate::dumps::Dumps;
use crate::live_times::{LiveTimes, Taken};
use crate::lockstep::Lockstep;
use crate::plan::SourceEntry;
use crate::report::Reporter;
use crate::steps::Steps;
use crate::triggers::{TriggerSet, Triggers};
use scope_dump::HitPacket;
use scope_events::Events;
use scope_filter::{ASKED_MAX, Asked, Filter, Predicate};
use scope_machine::cpus::pin_this_thread;
use scope_packet::pcapng::PacketHead;
use scope_packet::time;
use scope_packet::{
    BATCH_PACKETS_MAX, Clock, DropReason, Gap, GapReason, Headers, Interface, LinkType, Moment, Packet, Parsed, Sink, Turn,
};
use scope_ring::WorkerCounts;
use scope_ring::{Arrivals, ClaimGroup, Incoming, LINK_TYPES_MAX, LaneWriter, Ring};
use scope_source::{Polled, Source, Timing};
use scope_spelling::values::format_cpus;
use scope_trigger::{Asker, Key, Matched, Occurrence, Why};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Full batches between two commits.
const BATCHES_PER_COMMIT: u32 = 4;
/// How long a worker that waits sleeps between two looks.
const WAIT_STEP: Duration = Duration::from_micros(100);

/// What all workers of a run share.
pub struct Shared {
    /// The ring.
    pub ring: Arc<Ring>,
    /// Triggers.
    pub triggers: Triggers,
    /// Dumps.
    pub dumps: Arc<Dumps>,
    /// Event log.
    pub events: Arc<Events>,
    /// Keeps workers that can wait together.
    pub lockstep: Lockstep,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Steps of the system's clock.
    pub steps: Steps,
    /// The sources are to stop.
    pub stop: AtomicBool,
    /// Workers that have ended, and who wants to know it at once.
    pub ended: AtomicUsize,
    /// The run's main thread.
    pub main: std::thread::Thread,
}

impl Shared {
    /// The last that was heard, from which a fire by hand reaches back; before anything was, what the system's clock shows.
    pub fn last_heard(&self) -> Moment {
        let era = self.ring.era();
        match self.ring.heard_in(era) {
            Some((_, heard_ns)) => Moment::new(era, heard_ns),
            None => Moment::new(era.max(self.steps.era()), self.clock.wall_ns()),
        }
    }
}

/// A source, and what its packets may have of the ring.
pub struct Feed {
    /// One worker's.
    pub source: Box<dyn Source>,
    /// What the parts of the source are allowed; see [`Interface::part`].
    pub parts: Vec<Part>,
    /// CPUs that its worker runs on; empty: any.
    pub cpus: Vec<u32>,
}

/// What the packets of one part of a source may have of the ring.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Whose segments its lanes claim.
    pub group: ClaimGroup,
    /// Only packets that it takes are recorded, and shown to the triggers.
    pub prefilter: Option<Filter>,
}

impl Part {
    /// As the source's entry says.
    pub fn of(entry: &SourceEntry) -> Part {
        Part { group: entry.group, prefilter: entry.prefilter.clone() }
    }
}

/// Polls the source until it ends. `index` is the worker's number in the run; what it says of itself it says to `reporter`.
pub fn work(index: u32, feed: Feed, shared: &Shared, mut reporter: Reporter) {
    let Feed { mut source, parts, cpus } = feed;
    let _ended = EndOnDrop { index, shared };
    let live = source.timing() == Timing::Live;
    if let Err(cause) = pin_this_thread(&cpus) {
        let warning = format!("worker {index} could not be pinned to CPUs {}: {cause}", format_cpus(&cpus));
        reporter.warn(warning);
    }
    shared.ring.set_grace(index, source.grace_ns());
    let mut path = Path::new(index, source.timing(), source.grace_ns(), parts, shared);
    let from_ns = source.listens_from_ns().unwrap_or_else(|| shared.clock.wall_ns());
    if live {
        shared.ring.begin_listening(index, from_ns, GapReason::NotStarted);
    }
    // By how much the clock that stamps packets is known to be ahead of the one that told this.
    let mut ahead_ns = 0;
    // When it was told to stop, ns of the system's clock.
    let mut stopped_ns = None;
    loop {
        if stopped_ns.is_none() && (shared.stop.load(Ordering::Relaxed) || path.enough) {
            let ahead_ns = Some(source.ahead_ns()).filter(|ahead_ns| ahead_ns.abs() >= time::STEP_NS);
            stopped_ns = Some(shared.clock.wall_ns().saturating_add(ahead_ns.unwrap_or(0)));
            source.stop();
        }
        let polled = source.poll(&mut path);
        path.commit();
        if live && path.era == 0 && source.ahead_ns() >= ahead_ns + time::STEP_NS {
            ahead_ns = source.ahead_ns();
            shared.ring.begin_listening(index, from_ns.saturating_add(ahead_ns), GapReason::NotStarted);
        }
        let ended = !matches!(polled, Ok(Polled::Packets | Polled::Nothing));
        reporter.report(&mut *source);
        if ended {
            let failure = polled.err();
            let (to_ns, reason) = match (&failure, stopped_ns) {
                (Some(_), _) => (path.clock_ns, GapReason::InterfaceGone),
                (None, Some(stopped_ns)) if live => (stopped_ns, GapReason::Stopped),
                (None, Some(_)) => (path.clock_ns, GapReason::Stopped),
                (None, None) => (path.clock_ns, GapReason::CaptureEnd),
            };
            shared.ring.end_listening(index, to_ns, reason);
            return reporter.end(failure);
        }
    }
}

/// However a worker ends, nobody waits for its clock any more.
struct EndOnDrop<'a> {
    index: u32,
    shared: &'a Shared,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.lockstep.end(self.index);
        // One that unwinds hasn't said it.
        let ring = &self.shared.ring;
        ring.end_listening(self.index, ring.clock_ns(self.index), GapReason::InterfaceGone);
        ring.end_clock(self.index);
        self.shared.ended.fetch_add(1, Ordering::Release);
        self.shared.main.unpark();
    }
}

/// One lane, and what the triggers ask of its packets.
struct Lane {
    writer: LaneWriter,
    group: ClaimGroup,
    predicates: Vec<Predicate>,
    /// A claim failed in this batch: the next try comes with the next one. What one share hasn't got another one may have.
    claim_failed: bool,
}

/// Bytes of a packet that are wanted: of `asked` so many, 0 for all. `None`: what a file holds of one is all there is of it.
#[inline]
fn wanted_bytes(packet: &Packet<'_>, asked: Option<u32>) -> usize {
    let most = match asked {
        None => 0,
        Some(0) => packet.original_len,
        Some(most) => packet.original_len.min(most),
    };
    packet.data.len().max(most as usize)
}

/// What a prefilter asks of packets of one link type.
struct Prefilter {
    filter: Filter,
    link_type: LinkType,
    predicate: Predicate,
    /// The packets at hand that it is asked of, a bit each.
    which: u64,
}

/// One interface of the source.
struct Port {
    interface: Interface,
    place: Attached,
    /// Its prefilter among the worker's.
    prefilter: Option<usize>,
    /// Packets lost here since the last one that was stored.
    lost: u64,
}

/// Where an interface's packets go.
#[derive(Clone, Copy)]
enum Attached {
    /// Not decided before its first packet.
    NotYet,
    /// Into this lane, as this interface of it.
    Lane { lane: usize, index: usize },
    /// Nowhere: a bound was reached.
    Refused(DropReason),
}

/// The packet path of one worker: the sink that its source pushes into.
struct Path<'a> {
    index: u32,
    waits: bool,
    grace_ns: i64,
    parts: Vec<Part>,
    /// At most one for each part and link type.
    prefilters: Vec<Prefilter>,
    shared: &'a Shared,
    /// The triggers that it asks.
    set: Arc<TriggerSet>,
    /// One for each link type and claim group that has come.
    lanes: Vec<Lane>,
    ports: Vec<Port>,
    counts: WorkerCounts,
    /// How often capture time was set back.
    era: u64,
    /// The latest capture time that is believed, of this era.
    clock_ns: i64,
    /// The clock at the last commit.
    committed: Moment,
    /// The time of the batch at hand is not believed.
    stray: bool,
    /// Live: which times are believed.
    times: LiveTimes,
    /// Live: up to this time of capture every loss is known; `None`: its source doesn't say.
    known_ns: Option<i64>,
    /// The era that live capture was in then.
    counted_era: u64,
    first_ns: i64,
    batches: u32,
    /// What this batch lost in front of the ring, by reason: packets, from, to.
    lost: [Option<(u64, i64, i64)>; DropReason::ALL.len()],
    /// The first packet's time, as the ring was told it.
    begun_ns: i64,
    /// The packets at hand, parsed.
    parsed: Box<Parsed>,
    /// For each trigger the packets at hand that hit it, a bit each.
    hits: Vec<u64>,
    /// Comments of packets of the next batch, by their index there.
    comments: BTreeMap<usize, Vec<String>>,
    /// No packet is wanted any more: the run has its dumps.
    enough: bool,
}

impl<'a> Path<'a> {
    fn new(index: u32, timing: Timing, grace_ns: i64, parts: Vec<Part>, shared: &'a Shared) -> Path<'a> {
        let set = shared.triggers.current();
        Path {
            index,
            waits: timing == Timing::Waits,
            grace_ns,
            parts,
            prefilters: Vec::new(),
            shared,
            lanes: Vec::new(),
            ports: Vec::new(),
            counts: WorkerCounts::default(),
            era: 0,
            clock_ns: 0,
            committed: Moment::BEGIN,
            stray: false,
            times: LiveTimes::default(),
            known_ns: None,
            counted_era: 0,
            first_ns: i64::MAX,
            batches: 0,
            lost: [None; DropReason::ALL.len()],
            begun_ns: i64::MAX,
            parsed: Box::default(),
            hits: vec![0; set.of_packets.len()],
            set,
            comments: BTreeMap::new(),
            enough: false,
        }
    }

    /// Asks the triggers in force from here on: between two batches, so that no packet is asked both or none.
    #[cold]
    fn take_triggers(&mut self) {
        self.set = self.shared.triggers.current();
        self.hits = vec![0; self.set.of_packets.len()];
        for lane in &mut self.lanes {
            lane.predicates = predicates(&self.set, lane.writer.link_type());
        }
    }

    /// Where it stands.
    fn clock(&self) -> Moment {
        Moment::new(self.era, self.clock_ns)
    }

    /// Tells the ring what was dropped here.
    fn note_drops(&mut self) {
        let ring = &self.shared.ring;
        for reason in DropReason::ALL {
            if let Some((packets, from_ns, to_ns)) = self.lost[reason as usize].take() {
                // What is pinned out has passed the prefilters. Of what has no lane they weren't asked.
                let sure = reason == DropReason::RingPinned || self.parts.iter().all(|part| part.prefilter.is_none());
                let (lost_min, lost_max) = (if sure { packets } else { 0 }, Some(packets));
                ring.note_gap(self.index, 0, Gap { from_ns, to_ns, reason: gap_reason(reason), lost_min, lost_max });
            }
        }
    }

    /// Makes everything visible, notes what is lost, then says how far it reaches: no time counts as settled before the losses up to
    /// it are known.
    fn commit(&mut self) {
        self.batches = 0;
        for lane in &mut self.lanes {
            lane.writer.commit();
        }
        self.note_drops();
        let ring = &self.shared.ring;
        if self.first_ns < i64::MAX {
            ring.set_first(self.index, self.first_ns);
        }
        if self.waits && self.first_ns < self.begun_ns {
            self.begun_ns = self.first_ns;
            let reason = if self.era == 0 { GapReason::CaptureBegin } else { GapReason::ClockStep };
            ring.begin_listening(self.index, self.first_ns, reason);
        }
        ring.publish_worker(self.index, &self.counts);
        ring.set_clock(self.index, self.known_ns.map_or(self.clock_ns, |known_ns| self.clock_ns.min(known_ns)));
        self.committed = self.clock();
        self.enough |= self.waits && self.shared.dumps.enough(self.committed);
    }

    /// Capture time was set back: what comes from here on belongs to `era`.
    #[cold]
    fn begin_era(&mut self, era: u64) {
        self.commit();
        self.lanes.iter_mut().for_each(|lane| lane.writer.begin_part());
        let lanes = self.lanes.iter().map(|lane| (lane.writer.lane(), lane.writer.next_packet()));
        self.shared.ring.begin_era(self.index, era, lanes);
        (self.era, self.clock_ns) = (era, 0);
        self.committed = self.clock();
        (self.first_ns, self.begun_ns) = (i64::MAX, i64::MAX);
    }

    /// A live worker comes into `era`, whose clock shows `from_ns` by now.
    fn begin_live_era(&mut self, era: u64, from_ns: i64) {
        self.begin_era(era);
        self.shared.ring.begin_listening(self.index, from_ns, GapReason::ClockStep);
    }

    /// Takes a batch whose time is not believed: it moves no clock, and is remembered apart once it is recycled.
    #[cold]
    fn take_stray(&mut self, packets: &[Packet<'_>]) {
        self.note_drops();
        self.lanes.iter_mut().for_each(|lane| lane.writer.begin_part());
        let before: Vec<u64> = self.lanes.iter().map(|lane| lane.writer.next_packet()).collect();
        self.stray = true;
        self.take(packets);
        self.stray = false;
        for (at, lane) in self.lanes.iter().enumerate() {
            let stored = before.get(at).copied().unwrap_or(0)..lane.writer.next_packet();
            if !stored.is_empty() {
                self.shared.ring.note_strays(lane.writer.lane(), stored, self.clock_ns);
            }
        }
        self.counts.stray_packets += packets.len() as u64;
        self.lanes.iter_mut().for_each(|lane| lane.writer.begin_part());
        self.note_drops();
    }

    /// Takes live packets of which some aren't near the clock, each as the system's clock bears it out.
    #[cold]
    fn take_odd(&mut self, packets: &[Packet<'_>]) {
        let mut from = 0; // what is before is taken
        for (at, packet) in packets.iter().enumerate() {
            let stamped = self.ports[packet.interface as usize].interface.timestamps;
            match self.times.judge(packet.time_ns, stamped, self.clock(), &self.shared.steps, &*self.shared.clock) {
                Taken::Believed => self.clock_ns = self.clock_ns.max(packet.time_ns),
                Taken::Stray => {
                    self.take(&packets[from..at]);
                    self.take_stray(&packets[at..=at]);
                    from = at + 1;
                }
                Taken::Back(era) => {
                    self.take(&packets[from..at]);
                    self.begin_live_era(era, packet.time_ns);
                    self.clock_ns = packet.time_ns;
                    from = at;
                }
            }
        }
        self.take(&packets[from..]);
    }

    /// Waits until the other workers have come near. Its clock stands at the batch that it holds meanwhile.
    fn keep_step(&mut self, next_ns: i64) {
        let lockstep = &self.shared.lockstep;
        lockstep.step(self.index, Moment::new(self.era, next_ns));
        if lockstep.ahead(self.index) {
            self.clock_ns = self.clock_ns.max(next_ns);
            self.commit();
        }
        while self.shared.lockstep.ahead(self.index) {
            self.shared.clock.sleep(WAIT_STEP);
        }
    }

    fn take(&mut self, packets: &[Packet<'_>]) {
        if !self.comments.is_empty() {
            return self.commented_packets(packets);
        }
        for packets in packets.chunks(ASKED_MAX) {
            self.packets(packets);
        }
    }

    /// Takes at most [`ASKED_MAX`] packets: parses them and asks the triggers about all of them; then those of one interface that
    /// follow one another are appended together, up to each hit.
    fn packets(&mut self, packets: &[Packet<'_>]) {
        let mut of_lane = [0u64; LINK_TYPES_MAX as usize];
        for (at, packet) in packets.iter().enumerate() {
            if let Attached::Lane { lane, .. } = self.attached(packet.interface as usize) {
                of_lane[lane] |= 1 << at;
            }
        }
        let asked = self.parse(packets, &of_lane);
        let refused = self.prefilter(packets, &asked[..packets.len()], &mut of_lane);
        let any = self.ask_triggers(&asked[..packets.len()], &of_lane);
        let mut from = 0; // what is before is appended or dropped
        for (at, packet) in packets.iter().enumerate() {
            if packet.interface != packets[from].interface {
                self.store(&packets[from..at], &asked[from..at]);
                from = at;
            }
            if !self.receive(packet) || refused >> at & 1 != 0 {
                self.store(&packets[from..at], &asked[from..at]);
                from = at + 1;
                if refused >> at & 1 != 0 {
                    self.leave_out(packet);
                }
            } else if any >> at & 1 != 0 {
                let place = self.store(&packets[from..=at], &asked[from..=at]);
                from = at + 1;
                let headers = self.parsed.headers(at);
                self.on_hits(packet, &headers, at, place);
            }
        }
        self.store(&packets[from..], &asked[from..packets.len()]);
    }

    /// Parses the packets of each lane, a bit each.
    fn parse<'p>(&mut self, packets: &[Packet<'p>], of_lane: &[u64]) -> [Asked<'p>; ASKED_MAX] {
        let mut asked = [Asked::default(); ASKED_MAX];
        for (lane, &which) in self.lanes.iter().zip(of_lane).filter(|(_, which)| **which != 0) {
            self.parsed.parse(lane.writer.link_type(), which, |at| packets[at].data);
            for (at, packet) in packets.iter().enumerate().filter(|(at, _)| which >> at & 1 != 0) {
                let (tags, key) = (self.parsed.vlan_tags(at), *self.parsed.key(at));
                asked[at] = Asked::tagged(tags, key, packet.data, packet.original_len);
            }
        }
        asked
    }

    /// Takes out of `of_lane` what the prefilters refuse; the bits of those packets.
    fn prefilter(&mut self, packets: &[Packet<'_>], asked: &[Asked<'_>], of_lane: &mut [u64]) -> u64 {
        if self.prefilters.is_empty() {
            return 0;
        }
        for (at, packet) in packets.iter().enumerate() {
            if let Some(prefilter) = self.ports[packet.interface as usize].prefilter {
                self.prefilters[prefilter].which |= 1 << at;
            }
        }
        let mut refused = 0;
        for prefilter in self.prefilters.iter_mut().filter(|prefilter| prefilter.which != 0) {
            let which = std::mem::take(&mut prefilter.which);
            refused |= which & !prefilter.predicate.matches_batch(asked, which);
        }
        of_lane.iter_mut().for_each(|which| *which &= !refused);
        refused
    }

    /// Counts a packet that the prefilter refused. What was lost before it, was lost before the next one that is stored.
    fn leave_out(&mut self, packet: &Packet<'_>) {
        self.counts.filtered_packets += 1;
        self.counts.filtered_bytes += packet.data.len() as u64;
        self.ports[packet.interface as usize].lost += packet.lost_before;
    }

    /// Asks every trigger; the bits of packets that hit any.
    fn ask_triggers(&mut self, asked: &[Asked<'_>], of_lane: &[u64]) -> u64 {
        self.hits.fill(0);
        for (lane, &which) in self.lanes.iter().zip(of_lane).filter(|(_, which)| **which != 0) {
            for (hits, predicate) in self.hits.iter_mut().zip(&lane.predicates) {
                *hits |= predicate.matches_batch(asked, which);
            }
        }
        self.hits.iter().fold(0, |any, hits| any | hits)
    }

    /// Counts a packet; whether it has a lane. If not, it is dropped.
    #[inline]
    fn receive(&mut self, packet: &Packet<'_>) -> bool {
        self.counts.received_packets += 1;
        self.counts.received_bytes += packet.data.len() as u64;
        self.counts.late_packets += u64::from(packet.time_ns < self.clock_ns.saturating_sub(self.grace_ns));
        if !self.stray {
            self.clock_ns = self.clock_ns.max(packet.time_ns);
            self.first_ns = self.first_ns.min(packet.time_ns);
        }
        match self.attached(packet.interface as usize) {
            Attached::Lane { .. } => true,
            Attached::Refused(reason) => {
                self.drop_packet(packet, reason);
                false
            }
            Attached::NotYet => false,
        }
    }

    /// Appends a run of packets of one interface; the last one's place, or `None` where it had to be dropped.
    fn store(&mut self, packets: &[Packet<'_>], asked: &[Asked<'_>]) -> Option<HitPacket> {
        let port = packets.first()?.interface as usize;
        let Attached::Lane { lane, index } = self.ports[port].place else { return None };
        let kept_bytes_max = self.lanes[lane].writer.kept_bytes_max();
        let run = Run { packets, asked, lost: self.ports[port].lost, kept_bytes_max };
        let mut stored = 0;
        while stored < packets.len() {
            stored += self.lanes[lane].writer.append_batch(index, &run, stored);
            if stored < packets.len() && !self.claim(lane) {
                break;
            }
        }
        let asked = (!self.waits).then_some(self.ports[port].interface.snap_len);
        for packet in &packets[..stored] {
            let kept = packet.data.len().min(kept_bytes_max);
            self.counts.stored_bytes += kept as u64;
            self.counts.cut_packets += u64::from(kept < wanted_bytes(packet, asked));
            self.counts.cut_by_segment_packets += u64::from(kept < packet.data.len());
        }
        self.counts.stored_packets += stored as u64;
        if stored > 0 {
            self.ports[port].lost = 0;
        }
        let writer = &mut self.lanes[lane].writer;
        if stored == packets.len() {
            return Some(HitPacket { lane: writer.lane(), packet: writer.next_packet() - 1, link_type: writer.link_type() });
        }
        writer.count_dropped(index, DropReason::RingPinned, (packets.len() - stored) as u64);
        packets[stored..].iter().for_each(|packet| self.drop_packet(packet, DropReason::RingPinned));
        None
    }

    /// Gets a segment for `lane`: at once or not at all, or, for a worker that can wait, when it may have one.
    fn claim(&mut self, lane: usize) -> bool {
        let Lane { writer, claim_failed, .. } = &mut self.lanes[lane];
        if !self.waits {
            *claim_failed = *claim_failed || !writer.claim();
            return !*claim_failed;
        }
        while self.shared.ring.must_wait(writer.lane()) || !writer.claim() {
            self.shared.clock.sleep(WAIT_STEP);
        }
        true
    }

    fn drop_packet(&mut self, packet: &Packet<'_>, reason: DropReason) {
        self.counts.dropped.add(reason, 1);
        self.ports[packet.interface as usize].lost += packet.lost_before + 1;
        let lost = &mut self.lost[reason as usize];
        *lost = Some(match *lost {
            None => (1, packet.time_ns, packet.time_ns),
            Some((packets, from_ns, to_ns)) => (packets + 1, from_ns.min(packet.time_ns), to_ns.max(packet.time_ns)),
        });
    }

    /// Where the packets of a port go; decided at its first packet.
    #[inline]
    fn attached(&mut self, port: usize) -> Attached {
        if let Attached::NotYet = self.ports[port].place {
            self.ports[port].place = self.attach(port).unwrap_or_else(Attached::Refused);
        }
        self.ports[port].place
    }

    fn attach(&mut self, port: usize) -> Result<Attached, DropReason> {
        let interface = self.ports[port].interface.clone();
        let Part { group, prefilter } = self.parts.get(interface.part as usize).cloned().unwrap_or_default();
        let same = |lane: &Lane| (lane.writer.link_type(), lane.group) == (interface.link_type, group);
        let lane = match self.lanes.iter().position(same) {
            Some(lane) => lane,
            None => self.open_lane(interface.link_type, group)?,
        };
        let number = self.shared.ring.register(self.lanes[lane].writer.lane(), &interface).ok_or(DropReason::Interfaces)?;
        self.ports[port].prefilter = prefilter.map(|filter| self.prefilter_for(filter, interface.link_type));
        self.shared.dumps.evidence().annexes.interface(number, (self.index, interface.part));
        let writer = &mut self.lanes[lane].writer;
        Ok(Attached::Lane { lane, index: writer.add_interface(number) })
    }

    /// The place of `filter` among the worker's prefilters; parts with the same one share it.
    fn prefilter_for(&mut self, filter: Filter, link_type: LinkType) -> usize {
        let same = |known: &Prefilter| (known.link_type, known.filter.text()) == (link_type, filter.text());
        self.prefilters.iter().position(same).unwrap_or_else(|| {
            let predicate = filter.for_link(link_type);
            self.prefilters.push(Prefilter { filter, link_type, predicate, which: 0 });
            self.prefilters.len() - 1
        })
    }

    fn open_lane(&mut self, link_type: LinkType, group: ClaimGroup) -> Result<usize, DropReason> {
        if self.lanes.len() >= LINK_TYPES_MAX as usize {
            return Err(DropReason::LinkTypes);
        }
        let writer = self.shared.ring.open_lane_in(group, self.index, link_type).ok_or(DropReason::LinkTypes)?;
        self.lanes.push(Lane { writer, group, predicates: predicates(&self.set, link_type), claim_failed: false });
        Ok(self.lanes.len() - 1)
    }

    /// As [`Path::packets`] for packets of which some have comments: those alone, so that their place is known beforehand.
    #[cold]
    fn commented_packets(&mut self, packets: &[Packet<'_>]) {
        let comments = std::mem::take(&mut self.comments);
        let mut done = 0;
        for (at, comments) in comments.into_iter().filter(|(at, _)| *at < packets.len()) {
            packets[done..at].chunks(ASKED_MAX).for_each(|packets| self.packets(packets));
            done = at + 1;
            let Attached::Lane { lane, .. } = self.attached(packets[at].interface as usize) else {
                self.packets(&packets[at..done]);
                continue;
            };
            let shared = self.shared;
            let writer = &self.lanes[lane].writer;
            let (number, place) = (writer.lane(), writer.next_packet());
            // Before it is stored: from then on a dump may read it.
            shared.dumps.evidence().annexes.comment(number, place, comments);
            self.packets(&packets[at..done]);
            if self.lanes[lane].writer.next_packet() == place {
                shared.dumps.evidence().annexes.forget(number, place);
            }
        }
        packets[done..].chunks(ASKED_MAX).for_each(|packets| self.packets(packets));
    }

    #[cold]
    fn on_hits(&mut self, packet: &Packet<'_>, headers: &Headers, at: usize, place: Option<HitPacket>) {
        let Attached::Lane { lane, .. } = self.ports[packet.interface as usize].place else { return };
        let link_type = self.lanes[lane].writer.link_type();
        let dumps = &self.shared.dumps;
        if self.waits && dumps.places().open() >= dumps.places().max() {
            // It may wait for a dump to finish. That dump may wait for what this worker has, or for another worker, which
            // may wait for this one to come on.
            self.commit();
            self.shared.lockstep.step(self.index, self.clock());
        }
        let time_ns = if self.stray { self.clock_ns } else { packet.time_ns };
        // After a small step back of the clock what follows a hit may lie where all is settled.
        let is_behind = !self.waits && time_ns < self.clock_ns.saturating_sub(self.grace_ns);
        let clock_ns = if is_behind { self.clock_ns } else { time_ns };
        let interface = &self.ports[packet.interface as usize].interface.name;
        let occurrence = Occurrence {
            at: Moment::new(self.era, time_ns),
            clock_ns,
            key: Key::OfPacket,
            why: Why::Packet { bytes: packet.original_len, interface },
            packet: Some(Matched { link_type, headers, data: packet.data }),
            link_types: &[],
            asker: if self.waits { Asker::Waiting(self.committed) } else { Asker::Live },
        };
        for (trigger, _) in self.set.of_packets.iter().zip(&self.hits).filter(|(_, hits)| **hits >> at & 1 != 0) {
            dumps.occurred(trigger, &occurrence, place);
        }
    }
}

/// Whether all times lie so near the clock that none of them says anything new.
#[inline]
fn all_near(packets: &[Packet<'_>], clock_ns: i64) -> bool {
    let times = || packets.iter().map(|packet| packet.time_ns);
    let (min_ns, max_ns) =
        times().fold((i64::MAX, i64::MIN), |(min_ns, max_ns), time_ns| (min_ns.min(time_ns), max_ns.max(time_ns)));
    min_ns >= clock_ns.saturating_sub(time::STEP_NS) && max_ns <= clock_ns.saturating_add(time::STEP_NS)
}

/// Why a window lacks packets that were dropped for `reason`.
fn gap_reason(reason: DropReason) -> GapReason {
    match reason {
        DropReason::Kernel => GapReason::Kernel,
        DropReason::RingPinned => GapReason::RingPinned,
        DropReason::LinkTypes | DropReason::Interfaces => GapReason::Limit,
    }
}

/// What the triggers ask of packets of one link type.
fn predicates(set: &TriggerSet, link_type: LinkType) -> Vec<Predicate> {
    let filters = set.of_packets.iter().filter_map(|trigger| trigger.config().condition.filter());
    filters.map(|filter| filter.for_link(link_type)).collect()
}

/// Packets of one interface on their way into their lane.
struct Run<'a> {
    packets: &'a [Packet<'a>],
    asked: &'a [Asked<'a>],
    /// Packets that were lost here before the first one, beside those that the source knows of.
    lost: u64,
    kept_bytes_max: usize,
}

impl Arrivals for Run<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.packets.len()
    }

    #[inline(always)]
    fn packet(&self, index: usize) -> Incoming<'_> {
        let packet = &self.packets[index];
        let head = PacketHead {
            time_ns: packet.time_ns,
            original_len: packet.original_len,
            flags: packet.flags,
            lost_before: packet.lost_before + if index == 0 { self.lost } else { 0 },
            ..PacketHead::default()
        };
        Incoming { head, key: self.asked[index].key(), data: &packet.data[..packet.data.len().min(self.kept_bytes_max)] }
    }
}

impl Sink for Path<'_> {
    fn interface(&mut self, interface: &Interface) {
        self.ports.push(Port { interface: interface.clone(), place: Attached::NotYet, prefilter: None, lost: 0 });
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        if self.shared.triggers.is_past(&self.set) {
            self.take_triggers();
        }
        let stray = std::mem::take(&mut self.stray);
        if self.waits
            && let Some(first) = packets.first()
        {
            self.keep_step(if stray { self.clock_ns } else { first.time_ns });
        }
        self.lanes.iter_mut().for_each(|lane| lane.claim_failed = false);
        if stray {
            self.take_stray(packets);
        } else if self.waits || all_near(packets, self.clock_ns) {
            self.times.near();
            self.take(packets);
        } else {
            self.take_odd(packets);
        }
        self.batches += 1;
        if packets.len() < BATCH_PACKETS_MAX || self.batches >= BATCHES_PER_COMMIT {
            self.commit();
        }
    }

    fn lost(&mut self, interface: u32, packets: u64, since_ns: i64, until_ns: i64) {
        self.counts.dropped.add(DropReason::Kernel, packets);
        if let Attached::Lane { lane, index } = self.attached(interface as usize) {
            self.lanes[lane].writer.count_dropped(index, DropReason::Kernel, packets);
        }
        let gap =
            Gap { from_ns: since_ns, to_ns: until_ns, reason: GapReason::Kernel, lost_min: packets, lost_max: Some(packets) };
        self.gap(interface, gap);
    }

    fn gap(&mut self, interface: u32, gap: Gap) {
        // A prefilter might have refused the packets.
        let part = self.ports.get(interface as usize).map_or(0, |port| port.interface.part as usize);
        let filtered = self.parts.get(part).is_some_and(|part| part.prefilter.is_some());
        let lost_min = if filtered { 0 } else { gap.lost_min };
        let gap = Gap { lost_min, ..gap };
        if self.waits {
            return self.shared.ring.note_gap(self.index, interface, gap);
        }
        // Live: a loss is of now, and the packets at hand may be of an earlier era. Of one that lies across a step nobody knows on
        // which side: it may reach to the end of the era before, and from the begin of this one.
        let now = self.shared.steps.look(&*self.shared.clock);
        let is_across = gap.from_ns.saturating_sub(gap.to_ns) >= time::STEP_NS;
        let before = if is_across { self.counted_era.min(now.saturating_sub(1)) } else { self.counted_era };
        let ring = &self.shared.ring;
        for era in before..now {
            let from_ns = if era == before { gap.from_ns } else { 0 };
            let to_ns = i64::MAX - 1; // MAX is a gap that goes on
            ring.note_gap_in(self.index, interface, era, Gap { from_ns, to_ns, lost_min: 0, ..gap });
        }
        let began_before = before < now || is_across;
        let (from_ns, lost_min) = if began_before { (0, 0) } else { (gap.from_ns, gap.lost_min) };
        ring.note_gap_in(self.index, interface, now, Gap { from_ns, lost_min, ..gap });
    }

    fn turn(&mut self, turn: Turn) {
        match turn {
            Turn::Back => self.begin_era(self.era + 1),
            Turn::Stray => self.stray = true,
        }
    }

    fn reached(&mut self, clock_ns: i64) {
        self.clock_ns = self.clock_ns.max(clock_ns);
        self.first_ns = self.first_ns.min(clock_ns);
        self.shared.lockstep.step(self.index, self.clock());
    }

    fn counted(&mut self, until_ns: i64) {
        self.known_ns = Some(until_ns);
        self.counted_era = self.shared.steps.era();
    }

    fn comments(&mut self, comments: &[(usize, &str)]) {
        for (at, comment) in comments {
            self.comments.entry(*at).or_default().push((*comment).to_string());
        }
    }

    fn annex(&mut self, part: u32, block: &[u8]) {
        self.shared.dumps.evidence().annexes.block((self.index, part), block);
    }

    fn idle(&mut self, clock_ns: i64) {
        if self.shared.triggers.is_past(&self.set) {
            self.take_triggers(); // so that what is gone can be freed though nothing comes
        }
        if !self.waits
            && let Some(era) = self.times.idle(clock_ns, self.clock(), &self.shared.steps, &*self.shared.clock)
        {
            // The clock of the source keeps its grace: what it said before the step was no time of this era.
            let from_ns = self.shared.steps.begun_ns(era).map_or(clock_ns, |begun_ns| begun_ns.max(clock_ns));
            self.begin_live_era(era, from_ns);
        }
        self.clock_ns = self.clock_ns.max(clock_ns);
        if self.waits {
            self.shared.lockstep.step(self.index, self.clock());
        }
        self.commit();
    }
}
