//! The packet path of one worker: the sink that its source pushes into, which sends each batch through the
//! stages.
//!
//! ```text
//!  batch ─► parse: headers, key ─► prefilter and rules, if any ─► triggers, each for the whole batch ─► flows
//!        ─► per run of packets of one interface, up to the next hit: append
//!        ─► a hit? verdict; a fire takes its pins before the next claim
//!        ─► commit after at most 4 full batches, at once after one that isn't full; then counters, then the clock
//! ```
//! | stage | what it does to a batch ([`batch`]) |
//! |---|---|
//! | [`parse`] | headers and key entry of each packet that has a lane |
//! | [`prefilter`] | takes out what a source's filter doesn't match |
//! | [`rules`] | takes out what a source's rules drop, and says how much of the others is recorded |
//! | [`signals`] | what the packets add to the signals, by bins of time |
//! | [`triggers`] | which packets hit which trigger, or ask their flow for it |
//! | [`flows`] | what the packets add to flows and intervals; what flows say to triggers |
//! | [`append`] | into the lanes, or dropped for a reason |
//!
//! A stage is a struct with a function `run` over the batch: sets of packets are bits, so that a stage that
//! isn't asked for costs a look per batch, and no packet a branch. What comes between prefilter and append
//! (byte rules, duplicates) takes the same form. What a stage may not do: wait, take a lock,
//! ask the time, or remember a packet's bytes. This file holds what stands around the stages: capture time,
//! its steps and strays, commits, and what a hit leads to.

mod append;
mod batch;
mod flows;
mod lacks;
mod parse;
mod prefilter;
mod rules;
mod signals;
mod triggers;

use crate::live_times::{LiveTimes, Taken};
use crate::wiring::{Part, Shared};
use append::{Append, Attached, Lost, Run, WAIT_STEP};
use batch::{Batch, LANES_MAX};
use flows::Flows;
use lacks::Lack;
use parse::Parse;
use prefilter::Prefilters;
use rules::Rules;
use scope_dump::HitPacket;
use scope_filter::FILTER_INPUTS_MAX;
use scope_filter::Values;
use scope_packet::{
    BATCH_PACKETS_MAX, DropReason, Gap, GapReason, Headers, Interface, LinkType, Moment, Packet, Sink, Turn,
    time,
};
use scope_ring::ClaimGroup;
use scope_source::Timing;
use scope_trigger::{Key, Match, Matched, Occurrence, Own, Requester, Why};
use signals::Signals;
use std::collections::BTreeMap;
use triggers::Evaluate;

/// Full batches between two commits.
const BATCHES_PER_COMMIT: u32 = 4;

/// See [the room](self).
pub(crate) struct Path<'a> {
    index: u32,
    waits: bool,
    grace_ns: i64,
    parts: Vec<Part>,
    shared: &'a Shared,
    parse: Parse,
    prefilters: Prefilters,
    rules: Rules<'a>,
    flows: Flows<'a>,
    signals: Signals<'a>,
    triggers: Evaluate,
    append: Append<'a>,
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
    /// The first packet's time, as the ring was told it.
    begun_ns: i64,
    /// Comments of packets of the next batch, by their index there.
    comments: BTreeMap<usize, Vec<String>>,
    /// No packet is wanted any more: the run has its dumps.
    enough: bool,
    /// What capture files say that they lack, and no segment says yet.
    lacks: Vec<Lack>,
}

impl<'a> Path<'a> {
    /// Of worker `index`, whose source has these parts.
    pub(crate) fn new(
        index: u32,
        timing: Timing,
        grace_ns: i64,
        parts: Vec<Part>,
        shared: &'a Shared,
    ) -> Path<'a> {
        let waits = timing == Timing::Waits;
        let mut triggers = Evaluate::new(shared.triggers.current());
        let mut flows = Flows::new(shared.statistics.as_deref(), index, grace_ns);
        flows.begin_conditions(triggers.take_renumbered());
        Path {
            index,
            waits,
            grace_ns,
            parts,
            shared,
            parse: Parse::default(),
            prefilters: Prefilters::default(),
            rules: Rules::new(&shared.source_rules),
            flows,
            signals: Signals::new(&shared.measuring, index, grace_ns),
            triggers,
            append: Append::new(&shared.ring, &*shared.clock, waits),
            era: 0,
            clock_ns: 0,
            committed: Moment::BEGIN,
            stray: false,
            times: LiveTimes::default(),
            known_ns: None,
            counted_era: 0,
            first_ns: i64::MAX,
            batches: 0,
            begun_ns: i64::MAX,
            comments: BTreeMap::new(),
            enough: false,
            lacks: Vec::new(),
        }
    }

    /// No packet is wanted any more: the run has its dumps.
    pub(crate) fn has_enough(&self) -> bool {
        self.enough
    }

    /// How often capture time was set back.
    pub(crate) fn era(&self) -> u64 {
        self.era
    }

    /// The latest capture time that is believed, of this era.
    pub(crate) fn clock_ns(&self) -> i64 {
        self.clock_ns
    }

    /// Evaluates the triggers in force from here on.
    #[cold]
    fn take_triggers(&mut self) {
        let link_types = self.append.lanes.iter().map(|lane| lane.writer.link_type());
        self.triggers.replace(self.shared.triggers.current(), link_types);
        self.flows.begin_conditions(self.triggers.take_renumbered());
    }

    /// Where it stands.
    fn clock(&self) -> Moment {
        Moment::new(self.era, self.clock_ns)
    }

    /// Tells the ring what was dropped here.
    fn note_drops(&mut self) {
        for (reason, Lost { packets, from_ns, to_ns }) in self.append.take_lost() {
            self.signals.lost(reason, packets, to_ns, self.clock_ns);
            // What is pinned out has passed prefilters and rules. For what has no lane they weren't evaluated.
            let sure = reason == DropReason::RingPinned || !self.parts.iter().any(Part::takes_out);
            let (lost_min, lost_max) = (if sure { packets } else { 0 }, Some(packets));
            self.shared.ring.note_gap(
                self.index,
                0,
                Gap { from_ns, to_ns, reason: reason.into(), lost_min, lost_max },
            );
        }
    }

    /// Makes everything visible, notes what is lost, then says how far it reaches: no time counts as settled
    /// before the losses up to it are known.
    pub(crate) fn commit(&mut self) {
        self.batches = 0;
        if !self.lacks.is_empty() {
            self.note_lacks(&[]);
        }
        for lane in &mut self.append.lanes {
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
        ring.publish_worker(self.index, &self.append.counts);
        self.rules.tell(self.waits);
        let known_ns = self.known_ns.map_or(self.clock_ns, |known_ns| self.clock_ns.min(known_ns));
        ring.set_clock(self.index, known_ns);
        self.committed = self.clock();
        let known = Moment::new(self.era, known_ns);
        self.flows.commit(known, self.waits);
        self.signals.commit(known, self.waits);
        self.enough |= self.waits && self.shared.dumps.enough(self.committed);
    }

    /// Capture time was set back: what comes from here on belongs to `era`.
    #[cold]
    fn begin_era(&mut self, era: u64) {
        self.commit();
        for lane in &mut self.append.lanes {
            lane.writer.begin_part();
        }
        let lanes = self.append.lanes.iter().map(|lane| (lane.writer.lane(), lane.writer.next_packet()));
        self.shared.ring.begin_era(self.index, era, lanes);
        self.signals.begin_era(self.clock_ns, era);
        (self.era, self.clock_ns) = (era, 0);
        self.committed = self.clock();
        (self.first_ns, self.begun_ns) = (i64::MAX, i64::MAX);
    }

    /// A live worker comes into `era`, whose clock shows `from_ns` by now.
    fn begin_live_era(&mut self, era: u64, from_ns: i64) {
        self.begin_era(era);
        self.shared.ring.begin_listening(self.index, from_ns, GapReason::ClockStep);
    }

    /// Takes a batch whose time is not believed: it moves no clock, and is remembered apart once it is
    /// recycled.
    #[cold]
    fn take_stray(&mut self, packets: &[Packet<'_>]) {
        self.note_drops();
        for lane in &mut self.append.lanes {
            lane.writer.begin_part();
        }
        let before: Vec<u64> = self.append.lanes.iter().map(|lane| lane.writer.next_packet()).collect();
        self.stray = true;
        self.take(packets);
        self.stray = false;
        for (at, lane) in self.append.lanes.iter().enumerate() {
            let stored = before.get(at).copied().unwrap_or(0)..lane.writer.next_packet();
            if !stored.is_empty() {
                self.shared.ring.note_strays(lane.writer.lane(), stored, self.clock_ns);
            }
        }
        self.append.counts.stray_packets += packets.len() as u64;
        for lane in &mut self.append.lanes {
            lane.writer.begin_part();
        }
        self.note_drops();
    }

    /// Takes live packets of which some aren't near the clock, each as the system's clock bears it out.
    #[cold]
    fn take_odd(&mut self, packets: &[Packet<'_>]) {
        let mut from = 0; // what is before is taken
        for (at, packet) in packets.iter().enumerate() {
            let stamped = self.append.ports[packet.interface as usize].interface.timestamps;
            match self.times.judge(
                packet.time_ns,
                stamped,
                self.clock(),
                &self.shared.steps,
                &*self.shared.clock,
            ) {
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
        for packets in packets.chunks(FILTER_INPUTS_MAX) {
            self.packets(packets);
        }
    }

    /// Sends at most [`FILTER_INPUTS_MAX`] packets through the stages: all of them are parsed, prefiltered and held
    /// against the triggers; then those of one interface that follow one another are appended together, up to
    /// each hit.
    fn packets(&mut self, packets: &[Packet<'_>]) {
        let mut batch = Batch::new(packets, |interface| match self.attached(interface as usize) {
            Attached::Lane { lane, .. } => Some(lane),
            Attached::NotYet | Attached::Refused(_) => None,
        });
        self.parse.run(&mut batch, |lane| self.append.lanes[lane].writer.link_type());
        let refused =
            self.prefilters.run(&mut batch, |interface| self.append.ports[interface as usize].prefilter);
        let source_of = |interface: u32| {
            let part = self.append.ports[interface as usize].interface.part as usize;
            self.parts.get(part).map_or(0, |part| part.source)
        };
        let link_type_of = |lane: usize| self.append.lanes[lane].writer.link_type();
        let refused = refused | self.rules.run(&mut batch, source_of, link_type_of);
        let stray_ns = self.stray.then_some(self.clock_ns);
        self.signals.run(&batch, stray_ns, |at| self.parse.headers(at));
        self.triggers.run(&batch);
        self.flows.run(&batch, refused, |at| self.parse.headers(at), &mut self.triggers);
        let hits = self.triggers.hits();
        let keep = self.rules.keep().copied();
        let whole = Run::new(packets, batch.asked(), keep.as_ref());
        let mut from = 0; // what is before is appended or dropped
        for (at, packet) in packets.iter().enumerate() {
            if packet.interface != packets[from].interface {
                self.append.store(&whole.part(from..at));
                from = at;
            }
            if !self.receive(packet) || refused >> at & 1 != 0 {
                self.append.store(&whole.part(from..at));
                from = at + 1;
                if refused >> at & 1 != 0 {
                    self.append.leave_out(packet);
                }
            } else if hits >> at & 1 != 0 {
                let place = self.append.store(&whole.part(from..at + 1));
                from = at + 1;
                let headers = self.parse.headers(at);
                self.on_hits(packet, &headers, at, place);
            }
        }
        self.append.store(&whole.part(from..packets.len()));
    }

    /// Counts a packet; whether it has a lane. If not, it is dropped.
    #[inline]
    fn receive(&mut self, packet: &Packet<'_>) -> bool {
        self.append.counts.received_packets += 1;
        self.append.counts.received_bytes += packet.data.len() as u64;
        self.append.counts.late_packets +=
            u64::from(packet.time_ns < self.clock_ns.saturating_sub(self.grace_ns));
        if !self.stray {
            self.clock_ns = self.clock_ns.max(packet.time_ns);
            self.first_ns = self.first_ns.min(packet.time_ns);
        }
        match self.attached(packet.interface as usize) {
            Attached::Lane { .. } => true,
            Attached::Refused(reason) => {
                self.append.drop_packet(packet, reason);
                self.append.tell_of_refused(reason);
                false
            }
            Attached::NotYet => false,
        }
    }

    /// Where the packets of a port go; decided at its first packet.
    #[inline]
    fn attached(&mut self, port: usize) -> Attached {
        if let Attached::NotYet = self.append.ports[port].place {
            self.append.ports[port].place = self.attach(port).unwrap_or_else(Attached::Refused);
        }
        self.append.ports[port].place
    }

    /// Has the segments of an interface's lane say that so many of its packets are lost.
    fn count_in_lane(&mut self, interface: u32, reason: DropReason, packets: u64) {
        if let Attached::Lane { lane, index } = self.attached(interface as usize) {
            self.append.lanes[lane].writer.count_dropped(index, reason, packets);
        }
    }

    /// The lane that the packets of a port go into, if it is open by now.
    fn lane_of(&self, port: usize) -> Option<usize> {
        let interface = &self.append.ports.get(port)?.interface;
        let group = self.parts.get(interface.part as usize).map(|part| part.group).unwrap_or_default();
        let same =
            |lane: &append::Lane| (lane.writer.link_type(), lane.group) == (interface.link_type, group);
        self.append.lanes.iter().position(same)
    }

    /// Has the segments of their lanes say what capture files say that they lack, in front of these packets.
    #[cold]
    fn note_lacks(&mut self, packets: &[Packet<'_>]) {
        let together = lacks::fit_into_one(packets, self.shared.ring.segment_bytes());
        for lack in std::mem::take(&mut self.lacks) {
            let port = lack.interface as usize;
            let known = self.lane_of(port).filter(|&lane| self.append.lanes[lane].writer.is_open());
            if known.is_some_and(|lane| lack.is_placed(&self.append.lanes[lane], together)) {
                self.count_in_lane(lack.interface, DropReason::File, lack.dropped);
                continue;
            }
            // An interface that is new to the lane may seal what is open.
            if let Some(lane) = known {
                self.append.lanes[lane].writer.note_file_losses(lack.dropped, lack.cut);
            }
            if let Attached::Lane { lane, index } = self.attached(port) {
                let writer = &mut self.append.lanes[lane].writer;
                writer.count_lost(index, lack.packets());
                if known.is_none() {
                    writer.note_file_losses(lack.dropped, lack.cut);
                }
            }
        }
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self) {
        lacks::tell_by_others(&mut self.append.lanes);
        self.rules.tell(true);
        self.flows.end(self.clock());
        self.signals.end(self.clock());
    }

    fn attach(&mut self, port: usize) -> Result<Attached, DropReason> {
        let interface = self.append.ports[port].interface.clone();
        let Part { group, prefilter, .. } =
            self.parts.get(interface.part as usize).cloned().unwrap_or_default();
        let lane = match self.lane_of(port) {
            Some(lane) => lane,
            None => self.open_lane(interface.link_type, group)?,
        };
        let number = self
            .shared
            .ring
            .register(self.append.lanes[lane].writer.lane(), &interface)
            .ok_or(DropReason::Interfaces)?;
        self.append.ports[port].prefilter =
            prefilter.map(|filter| self.prefilters.place_for(filter, interface.link_type));
        self.shared.dumps.evidence().annexes.interface(number, (self.index, interface.part));
        let writer = &mut self.append.lanes[lane].writer;
        Ok(Attached::Lane { lane, index: writer.add_interface(number) })
    }

    fn open_lane(&mut self, link_type: LinkType, group: ClaimGroup) -> Result<usize, DropReason> {
        if self.append.lanes.len() >= LANES_MAX {
            return Err(DropReason::LinkTypes);
        }
        let writer =
            self.shared.ring.open_lane_in(group, self.index, link_type).ok_or(DropReason::LinkTypes)?;
        self.append.open_lane(writer, group);
        self.signals.open_lane(link_type);
        self.triggers.open_lane(link_type);
        Ok(self.append.lanes.len() - 1)
    }

    /// As [`Path::packets`] for packets of which some have comments: those alone, so that their place is
    /// known beforehand.
    #[cold]
    fn commented_packets(&mut self, packets: &[Packet<'_>]) {
        let comments = std::mem::take(&mut self.comments);
        let mut done = 0;
        for (at, comments) in comments.into_iter().filter(|(at, _)| *at < packets.len()) {
            for packets in packets[done..at].chunks(FILTER_INPUTS_MAX) {
                self.packets(packets);
            }
            done = at + 1;
            let Attached::Lane { lane, .. } = self.attached(packets[at].interface as usize) else {
                self.packets(&packets[at..done]);
                continue;
            };
            let shared = self.shared;
            let writer = &self.append.lanes[lane].writer;
            let (number, place) = (writer.lane(), writer.next_packet());
            // Before it is stored: from then on a dump may read it.
            shared.dumps.evidence().annexes.comment(number, place, comments);
            self.packets(&packets[at..done]);
            if self.append.lanes[lane].writer.next_packet() == place {
                shared.dumps.evidence().annexes.forget(number, place);
            }
        }
        for packets in packets[done..].chunks(FILTER_INPUTS_MAX) {
            self.packets(packets);
        }
    }

    #[cold]
    fn on_hits(&mut self, packet: &Packet<'_>, headers: &Headers, at: usize, place: Option<HitPacket>) {
        let Attached::Lane { lane, .. } = self.append.ports[packet.interface as usize].place else { return };
        let link_type = self.append.lanes[lane].writer.link_type();
        let dumps = &self.shared.dumps;
        if self.waits && dumps.places().open() >= dumps.places().max() {
            // It may wait for a dump to finish. That dump may wait for what this worker has, or for another
            // worker, which may wait for this one to come on.
            self.commit();
            self.shared.lockstep.step(self.index, self.clock());
        }
        let time_ns = if self.stray { self.clock_ns } else { packet.time_ns };
        // After a small step back of the clock what follows a hit may lie where all is settled.
        let is_behind = !self.waits && time_ns < self.clock_ns.saturating_sub(self.grace_ns);
        let clock_ns = if is_behind { self.clock_ns } else { time_ns };
        let interface = &self.append.ports[packet.interface as usize].interface.name;
        let occurrence = Occurrence {
            at: Moment::new(self.era, time_ns),
            clock_ns,
            key: Key::OfPacket,
            why: Why::Packet { bytes: packet.original_len, interface },
            packet: Some(Matched { link_type, headers, data: packet.data }),
            given: None,
            own: Own::default(),
            link_types: &[],
            requester: if self.waits { Requester::Waiting(self.committed) } else { Requester::Live },
        };
        for trigger in self.triggers.hit_by(at) {
            dumps.occurred(trigger, &occurrence, place);
        }
        for (of, step) in self.triggers.matched_by(at) {
            let trigger = &self.triggers.set().of_patterns[of];
            let key = trigger.config().condition.pattern().and_then(|pattern| pattern.key());
            // Of a packet that lacks a name of the key there is no match.
            let values =
                key.map_or(Ok(Values::everything()), |key| key.values(headers, link_type, packet.data));
            let Ok(key) = values else { continue };
            let (lane, number) =
                (self.append.lanes[lane].writer.lane(), place.map_or(u64::MAX, |place| place.packet));
            let at = Moment::new(self.era, time_ns);
            self.signals.matched(trigger, Match { at, key, packet: number, handle: 0, lane, step });
        }
    }
}

/// Whether all times lie so near the clock that none of them says anything new.
#[inline]
fn all_near(packets: &[Packet<'_>], clock_ns: i64) -> bool {
    let times = || packets.iter().map(|packet| packet.time_ns);
    let (min_ns, max_ns) = times()
        .fold((i64::MAX, i64::MIN), |(min_ns, max_ns), time_ns| (min_ns.min(time_ns), max_ns.max(time_ns)));
    min_ns >= clock_ns.saturating_sub(time::STEP_NS) && max_ns <= clock_ns.saturating_add(time::STEP_NS)
}

impl Sink for Path<'_> {
    fn interface(&mut self, interface: &Interface) {
        self.append.interface(interface);
        self.flows.interface(interface);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        if self.shared.triggers.is_past(self.triggers.set()) {
            self.take_triggers();
        }
        if self.rules.are_past() {
            self.rules.take(self.parts.iter().map(|part| part.source));
        }
        let stray = std::mem::take(&mut self.stray);
        if self.waits
            && let Some(first) = packets.first()
        {
            self.keep_step(if stray { self.clock_ns } else { first.time_ns });
        }
        if !self.lacks.is_empty() {
            self.note_lacks(packets);
        }
        self.append.begin_batch();
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
        self.append.counts.dropped.add(DropReason::Kernel, packets);
        self.signals.lost(DropReason::Kernel, packets, until_ns, self.clock_ns);
        self.count_in_lane(interface, DropReason::Kernel, packets);
        let gap = Gap {
            from_ns: since_ns,
            to_ns: until_ns,
            reason: GapReason::Kernel,
            lost_min: packets,
            lost_max: Some(packets),
        };
        self.gap(interface, gap);
    }

    fn gap(&mut self, interface: u32, gap: Gap) {
        // A prefilter or a rule might have refused the packets.
        let part = self.append.ports.get(interface as usize).map_or(0, |port| port.interface.part as usize);
        let filtered = self.parts.get(part).is_some_and(Part::takes_out);
        let lost_min = if filtered { 0 } else { gap.lost_min };
        let gap = Gap { lost_min, ..gap };
        self.lacks.extend(Lack::of(interface, &gap));
        let lost_max = gap.lost_max.unwrap_or(gap.lost_min);
        if lost_max > 0 {
            self.flows.lost(interface, gap.reason.name(), lost_max, (gap.from_ns, gap.to_ns));
        }
        if self.waits {
            self.signals.lost(DropReason::File, gap.lost_min, gap.to_ns, self.clock_ns);
            return self.shared.ring.note_gap(self.index, interface, gap);
        }
        // Live: a loss is of now, and the packets at hand may be of an earlier era. Of one that lies across a
        // step nobody knows on which side: it may reach to the end of the era before, and from the begin of
        // this one.
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
        if self.shared.triggers.is_past(self.triggers.set()) {
            self.take_triggers(); // so that what is gone can be freed though nothing comes
        }
        if !self.waits
            && let Some(era) =
                self.times.idle(clock_ns, self.clock(), &self.shared.steps, &*self.shared.clock)
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
