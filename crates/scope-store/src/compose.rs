//! Composes the segments of a volume that keeps less than the ring: packets that a sieve leaves, cut to a
//! snap length.
//!
//! ```text
//! ring            | 0 .. 99 | 100 .. 199 | 200 .. 299 |      segments of a lane, as they are dealt
//!                      └ 3 match    └ none      └ 2 match
//! own memory      | first 0, 5 packets, 295 left out ...     one open segment for each lane
//! ```
//! A composed segment stands for numbers that follow each other, each of them kept or left out: what it has
//! and what it lacks add up. So it ends where the next segment of the lane doesn't begin behind the last one
//! (that was recycled, or another volume has it), and when it is full. Where all was left out by then it is
//! written without a packet: else these numbers would look lost.
//!
//! The own memory is a small ring of its own, with the run's lanes. Nothing is recycled there that isn't
//! safe: where it is full, the volume stops taking, and the run's ring recycles what waits, as for any slow
//! disk. A segment of the run's ring is given back as soon as the last of its packets was looked at.

use crate::hands::{Behind, Hands};
use crate::outgoing::Stated;
use crate::report::Amount;
use crate::segment::{Statistics, statistics_in};
use scope_packet::key::KeyEntry;
use scope_packet::pcapng::PacketBlock;
use scope_packet::segment::{FOOT_BYTES, Foot, LeftOut};
use scope_packet::{Drops, Headers, LinkType, SegmentId};
use scope_ring::{Append, LaneWriter, Pinned, Ring, RingConfig, RingError, SEGMENTS_PER_LANE_MIN};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Packets that a sieve looks at together.
pub const TOGETHER_MAX: usize = 64;
/// Segments of the own memory besides those that are open: for what is under way to the disk.
const UNDER_WAY_SEGMENTS: u64 = SEGMENTS_PER_LANE_MIN;
/// Further ones for each worker.
const WORKER_SEGMENTS: u64 = 2;
/// Of the own memory where the ring is large enough: more makes fewer, longer writes.
const MEMORY_BYTES: u64 = 32 << 20;
/// The own memory is at most one part in so many of the ring, if that is enough for it.
const MEMORY_PART: u64 = 8;

/// Which packets a volume keeps.
///
/// A trait because filters are another room's, and of batches because they are quicker so.
pub trait Sieve: Send {
    /// Which of at most [`TOGETHER_MAX`] packets of `link_type` are kept: bit n is packet n's.
    fn keeps(&mut self, link_type: LinkType, packets: &[(KeyEntry, PacketBlock<'_>)]) -> u64;
}

/// What a volume keeps of the packets that it is dealt, and the memory to compose it in.
pub struct Keeping {
    /// Which packets; `None`: all.
    pub sieve: Option<Box<dyn Sieve>>,
    /// Bytes of a packet at most; `None`: all that the ring has.
    pub snap: Option<u32>,
    /// The filter as it is stated in the files; empty: none.
    pub filter: String,
    /// The memory: see [`memory`].
    pub memory: Arc<Ring>,
}

impl Keeping {
    /// Filter and snap length as heads of files state them.
    pub(crate) fn stated(&self) -> (String, u32) {
        (self.filter.clone(), self.snap.unwrap_or(0))
    }
}

/// Bytes of the memory in which a volume composes segments of a ring with so many workers.
pub fn memory_bytes(ring_bytes: u64, segment_bytes: u64, workers: u32) -> u64 {
    let least = (UNDER_WAY_SEGMENTS + WORKER_SEGMENTS * u64::from(workers)) * segment_bytes;
    least.max(MEMORY_BYTES.min(ring_bytes / MEMORY_PART))
}

/// The memory in which one volume composes segments of `ring`. Its pages become resident as they are used.
///
/// # Errors
/// The system refuses the memory.
pub fn memory(ring: &Ring) -> Result<Arc<Ring>, RingError> {
    let segment_bytes = ring.segment_bytes() as u64;
    let workers = ring.counters().workers.len() as u32;
    Ring::create(&RingConfig {
        ring_bytes: memory_bytes(ring.segments() as u64 * segment_bytes, segment_bytes, workers),
        segment_bytes: Some(segment_bytes),
        workers,
        lanes: 1,
        run_id: ring.run_id(),
    })
}

/// The memory is full: nothing goes on before the disk does.
struct Full;

/// Composes a volume's segments.
pub(crate) struct Composer {
    ring: Arc<Ring>,
    keeping: Keeping,
    /// Segments of the ring that aren't through, by lane and sequence.
    sources: BTreeMap<SegmentId, Source>,
    lanes: Vec<Lane>,
    filtered: Amount,
    full: bool,
}

/// A segment of the ring.
struct Source {
    pinned: Pinned,
    /// Its packets that were looked at, or were safe before.
    through: Amount,
    /// Of these, those that were safe before.
    safe: u64,
}

/// A lane of the run.
struct Lane {
    writer: LaneWriter,
    memory: Arc<Ring>,
    open: Option<Open>,
    interfaces: Vec<Counts>,
    /// Where each interface is in that list, by its number in the run.
    places: BTreeMap<u32, usize>,
    /// The place that was asked for last.
    recent: usize,
    /// Counts that the writer doesn't know yet.
    unstated: Vec<usize>,
}

/// What an interface received and dropped since the run began; its place is the writer's index of it.
struct Counts {
    number: u32,
    received: u64,
    dropped: u64,
    /// Packets that were lost directly before ones that were left out.
    lost_before: u64,
    unstated: bool,
}

/// The composed segment that grows.
struct Open {
    /// In the own memory, from its first packet on.
    pinned: Option<Pinned>,
    stated: Stated,
    /// Packets that it has.
    packets: u64,
    /// Time of the last packet that it stands for.
    last_ns: i64,
}

/// Where a lane is: at one packet of a segment of the ring.
#[derive(Clone, Copy)]
struct At<'a> {
    source: &'a Pinned,
    number: u64,
    /// The lane's captured bytes before it.
    bytes_before: u64,
}

impl Composer {
    pub fn new(ring: &Arc<Ring>, keeping: Keeping) -> Composer {
        Composer {
            ring: ring.clone(),
            keeping,
            sources: BTreeMap::new(),
            lanes: Vec::new(),
            filtered: Amount::default(),
            full: false,
        }
    }

    /// Whether the memory was full at the last step.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Takes a segment of the ring, of which the packets `safe` are stored already.
    pub fn take(&mut self, pinned: Pinned, safe: Amount) {
        self.sources.insert(pinned.id(), Source { pinned, through: safe, safe: safe.packets });
    }

    /// Gives back the segments of which nothing was looked at.
    pub fn give_back(&mut self) -> Vec<(Pinned, Amount)> {
        let untouched = |source: &Source| source.through.packets == source.safe;
        let ids: Vec<SegmentId> =
            self.sources.iter().filter(|(_, source)| untouched(source)).map(|(id, _)| *id).collect();
        let sources = ids.into_iter().filter_map(|id| self.sources.remove(&id));
        sources.map(|source| (source.pinned, source.through)).collect()
    }

    /// Lets all segments of the ring go, with what of each was looked at.
    pub fn give_up(&mut self) -> Vec<(Pinned, Amount)> {
        let sources = std::mem::take(&mut self.sources).into_values();
        sources.map(|source| (source.pinned, source.through)).collect()
    }

    /// What was left out since the last call: packets, and bytes also of others.
    pub fn take_filtered(&mut self) -> Amount {
        std::mem::take(&mut self.filtered)
    }

    /// Adds what wasn't looked at yet.
    pub fn add_behind(&self, behind: &mut Behind) {
        self.sources.values().for_each(|source| behind.add(&source.pinned, source.through));
    }

    /// Looks at what is committed by now, as long as there is memory. What it composed goes into `hands`.
    /// Returns the segments of the ring that are through.
    pub fn step(&mut self, hands: &mut Hands) -> Vec<SegmentId> {
        self.full = false;
        let mut through = Vec::new();
        let mut waits = None;
        for id in self.sources.keys().copied().collect::<Vec<_>>() {
            if waits == Some(id.lane) {
                continue; // what is in front of it in its lane isn't through
            }
            let Some(mut source) = self.sources.remove(&id) else { continue };
            let sealed = source.pinned.committed().sealed; // before it is looked how far it is
            let went = self.go_through(&mut source, hands);
            if sealed && went.is_ok() {
                through.push(id);
                continue;
            }
            waits = Some(id.lane);
            self.sources.insert(id, source);
            if went.is_err() {
                self.full = true;
                break;
            }
        }
        self.publish(hands);
        through
    }

    /// Nothing more comes: what is open is sealed. Whether all is in `hands` by now.
    pub fn end(&mut self, hands: &mut Hands) -> bool {
        self.full = self.lanes.iter_mut().any(|lane| lane.seal(hands).is_err());
        !self.full && self.sources.is_empty()
    }

    fn go_through(&mut self, source: &mut Source, hands: &mut Hands) -> Result<(), Full> {
        let Source { pinned, through, .. } = source;
        let committed = pinned.committed();
        let link_type = self.ring.lane_info(pinned.lane()).link_type;
        let place = self.open_lanes(pinned.lane())?;
        let mut batch = Vec::with_capacity(TOGETHER_MAX);
        while through.packets < u64::from(committed.packets) {
            let from = through.packets as u32;
            let to = committed.packets.min(from + TOGETHER_MAX as u32);
            batch.clear();
            batch.extend(
                (from..to).map(|at| pinned.entry(at)).zip(pinned.indexed(from, to).map(|(_, block)| block)),
            );
            let keeps = self.keeping.sieve.as_mut().map_or(u64::MAX, |sieve| sieve.keeps(link_type, &batch));
            for (nth, packet) in batch.iter().enumerate() {
                let at = At {
                    source: pinned,
                    number: pinned.first_packet() + through.packets,
                    bytes_before: pinned.bytes_before() + through.bytes,
                };
                if self.put(place, at, packet, keeps >> nth & 1 != 0, hands).is_err() {
                    self.seal_fullest(place, hands);
                    return Err(Full);
                }
                *through = through.plus(Amount::new(1, packet.1.data().len() as u64));
            }
        }
        if let Some(open) = &mut self.lanes[place].open {
            open.stated.file_losses = pinned.file_losses();
        }
        if let Some(whole) = pinned.whole().filter(|_| committed.sealed)
            && let Some(foot) = Foot::read(&whole[whole.len() - FOOT_BYTES..])
        {
            statistics_in(whole, &foot).for_each(|said| self.lanes[place].count(&said, hands));
        }
        Ok(())
    }

    /// The lane of the memory that a lane of the ring has: they have the same numbers.
    fn open_lanes(&mut self, lane: u32) -> Result<usize, Full> {
        while self.lanes.len() <= lane as usize {
            let info = self.ring.lane_info(self.lanes.len() as u32);
            let memory = self.keeping.memory.clone();
            // The memory has room for as many as the ring.
            let writer = memory.open_lane(info.worker, info.link_type).ok_or(Full)?;
            self.lanes.push(Lane {
                writer,
                memory,
                open: None,
                interfaces: Vec::new(),
                places: BTreeMap::new(),
                recent: 0,
                unstated: Vec::new(),
            });
        }
        Ok(lane as usize)
    }

    /// Keeps a packet, or leaves it out.
    fn put(
        &mut self,
        lane: usize,
        at: At<'_>,
        packet: &(KeyEntry, PacketBlock<'_>),
        is_kept: bool,
        hands: &mut Hands,
    ) -> Result<(), Full> {
        let lane = &mut self.lanes[lane];
        lane.begin(at, hands)?;
        let snap = self.keeping.snap.map_or(usize::MAX, |snap| snap as usize);
        let bytes = packet.1.data().len();
        let out = match is_kept {
            true => {
                lane.keep(at, packet, snap, hands)?;
                Amount::new(0, bytes.saturating_sub(snap) as u64)
            }
            false => {
                lane.leave_out(at, &packet.1, hands);
                Amount::new(1, bytes as u64)
            }
        };
        self.filtered = self.filtered.plus(out);
        Ok(())
    }

    /// Where more than half of the memory is in segments that grow, the fullest of another lane is sealed, so
    /// that it is written and comes free.
    fn seal_fullest(&mut self, but: usize, hands: &mut Hands) {
        let packets =
            |lane: &Lane| lane.open.as_ref().filter(|open| open.pinned.is_some()).map(|open| open.packets);
        let growing = self.lanes.iter().filter(|lane| packets(lane).is_some()).count();
        if growing * 2 <= self.keeping.memory.segments() {
            return;
        }
        let others =
            self.lanes.iter_mut().enumerate().filter(|(at, lane)| *at != but && packets(lane).is_some());
        if let Some((_, lane)) = others.max_by_key(|(_, lane)| packets(lane)) {
            let _ = lane.seal(hands); // it has a segment of the memory: that can't fail
        }
    }

    /// Makes what was composed visible, with what its feet say by now.
    fn publish(&mut self, hands: &mut Hands) {
        for lane in &mut self.lanes {
            lane.writer.commit();
            if let Some(Open { pinned: Some(pinned), stated, .. }) = &lane.open
                && let Some(again) = pinned.again()
            {
                hands.state(again, *stated);
            }
        }
    }
}

impl Lane {
    /// Goes on at a packet: in the open segment, if that ends there, else in a new one.
    fn begin(&mut self, at: At<'_>, hands: &mut Hands) -> Result<(), Full> {
        if self.open.as_ref().is_some_and(|open| open.end() != at.number) {
            self.seal(hands)?;
        }
        self.open.get_or_insert_with(|| Open::new(at)).stated.interfaces = at.source.interfaces();
        Ok(())
    }

    /// Leaves out a packet.
    fn leave_out(&mut self, at: At<'_>, block: &PacketBlock<'_>, hands: &mut Hands) {
        let head = block.head();
        let index = self.interface(head.interface, hands);
        self.interfaces[index].lost_before += head.lost_before;
        self.interfaces[index].received += 1;
        self.note_unstated(index);
        let open = self.open.get_or_insert_with(|| Open::new(at));
        open.stated.left_out.packets += 1;
        open.stated.left_out.bytes += block.data().len() as u64;
        open.cover(head.time_ns);
    }

    /// Keeps a packet, `snap` bytes of it at most.
    fn keep(
        &mut self,
        at: At<'_>,
        (key, block): &(KeyEntry, PacketBlock<'_>),
        snap: usize,
        hands: &mut Hands,
    ) -> Result<(), Full> {
        let mut head = block.head();
        let index = self.interface(head.interface, hands);
        head.lost_before += self.interfaces[index].lost_before;
        let whole = block.data();
        let data = &whole[..whole.len().min(snap)];
        let cut = (whole.len() - data.len()) as u64;
        let key = if cut > 0 { KeyEntry::new(&Headers::parse(self.writer.link_type(), data)) } else { *key };
        self.state();
        loop {
            let open = self.open.get_or_insert_with(|| Open::new(at));
            if open.pinned.is_none() {
                open.pinned = Some(claim(&mut self.writer, &self.memory)?);
            }
            if matches!(self.writer.append(index, &head, key, data), Append::Stored(_)) {
                open.packets += 1;
                open.stated.left_out.bytes += cut;
                open.cover(head.time_ns);
                break;
            }
            self.sealed(hands); // there was no room in it
        }
        self.interfaces[index].received += 1; // the writer counts it by itself
        self.interfaces[index].lost_before = 0;
        Ok(())
    }

    /// The writer's index of an interface.
    fn interface(&mut self, number: u32, hands: &mut Hands) -> usize {
        if self.interfaces.get(self.recent).is_some_and(|counts| counts.number == number) {
            return self.recent;
        }
        self.recent = match self.places.get(&number) {
            Some(&index) => index,
            None => {
                self.state();
                let index = self.writer.add_interface(number);
                self.places.insert(number, index);
                self.interfaces.push(Counts {
                    number,
                    received: 0,
                    dropped: 0,
                    lost_before: 0,
                    unstated: false,
                });
                let is_sealed = |open: &Open| open.pinned.as_ref().is_some_and(|it| it.committed().sealed);
                if self.open.as_ref().is_some_and(is_sealed) {
                    self.sealed(hands); // there was no room for its statistics
                }
                index
            }
        };
        self.recent
    }

    /// Takes over what a segment of the ring says of an interface at its end.
    fn count(&mut self, said: &Statistics, hands: &mut Hands) {
        let index = self.interface(said.interface, hands);
        let counts = &mut self.interfaces[index];
        (counts.received, counts.dropped) = (said.received, said.dropped);
        self.note_unstated(index);
    }

    fn note_unstated(&mut self, index: usize) {
        if !std::mem::replace(&mut self.interfaces[index].unstated, true) {
            self.unstated.push(index);
        }
    }

    /// Tells the writer what its statistics are to say.
    fn state(&mut self) {
        let time_ns = self.open.as_ref().map_or(i64::MIN, |open| open.stated.span_ns.1);
        for index in self.unstated.drain(..) {
            let counts = &mut self.interfaces[index];
            counts.unstated = false;
            self.writer.state(index, counts.received, counts.dropped, time_ns);
        }
    }

    /// Seals what is open. Where all of it was left out, that takes a segment of the memory.
    fn seal(&mut self, hands: &mut Hands) -> Result<(), Full> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.end() == open.stated.first_packet {
            self.open = None;
            return Ok(());
        }
        if open.pinned.is_none() {
            open.pinned = Some(claim(&mut self.writer, &self.memory)?);
        }
        self.state();
        self.writer.seal();
        self.sealed(hands);
        Ok(())
    }

    /// The writer has sealed the open segment.
    fn sealed(&mut self, hands: &mut Hands) {
        if let Some(Open { pinned: Some(pinned), stated, .. }) = self.open.take() {
            hands.state(pinned, stated);
        }
    }
}

/// A segment of the memory for the writer's lane.
fn claim(writer: &mut LaneWriter, memory: &Arc<Ring>) -> Result<Pinned, Full> {
    if !writer.claim() {
        return Err(Full);
    }
    let lane = writer.lane();
    memory.pin(memory.segment_id(lane, memory.lane_next(lane) - 1)).ok_or(Full)
}

impl Open {
    fn new(at: At<'_>) -> Open {
        let foot = at.source.foot(at.source.committed());
        let stated = Stated {
            first_packet: at.number,
            bytes_before: at.bytes_before,
            drops_before: foot.map_or(Drops::default(), |foot| foot.drops_before),
            left_out: LeftOut::default(),
            file_losses: at.source.file_losses(),
            span_ns: (i64::MAX, i64::MIN),
            steps_back: false,
            interfaces: at.source.interfaces(),
        };
        Open { pinned: None, stated, packets: 0, last_ns: i64::MIN }
    }

    /// Number of the packet behind all that it stands for.
    fn end(&self) -> u64 {
        self.stated.first_packet + self.packets + self.stated.left_out.packets
    }

    fn cover(&mut self, time_ns: i64) {
        let (min_ns, max_ns) = self.stated.span_ns;
        self.stated.span_ns = (min_ns.min(time_ns), max_ns.max(time_ns));
        self.stated.steps_back |= time_ns < self.last_ns;
        self.last_ns = time_ns;
    }
}
