//! The ring against a naive model: vectors of packets per lane, a list of segments, and the rules as they
//! read.

mod stand;

use proptest::prelude::*;
use scope_packet::pcapng::PacketHead;
use scope_packet::{KeyEntry, LinkType};
use scope_ring::{Append, LaneWriter, Pinned, Reader, ReaderCounts, Ring};
use stand::{Dice, KIB};
use std::sync::Arc;

const SEGMENT_BYTES: u64 = 64 * KIB;

/// One step of a run. Numbers are folded into what there is.
#[derive(Clone, Debug)]
enum Step {
    Open,
    Close { lane: u8 },
    AddInterface { lane: u8 },
    Append { lane: u8, packets: u8, sizes: u8, seed: u64 },
    Commit { lane: u8 },
    Look { reader: u8, times: u8 },
    NewReader { reader: u8 },
    Pin { lane: u8, at: u8 },
    Unpin { at: u8 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::Open),
        1 => any::<u8>().prop_map(|lane| Step::Close { lane }),
        1 => any::<u8>().prop_map(|lane| Step::AddInterface { lane }),
        12 => any::<(u8, u8, u8, u64)>().prop_map(|(lane, packets, sizes, seed)| Step::Append { lane, packets, sizes, seed }),
        4 => any::<u8>().prop_map(|lane| Step::Commit { lane }),
        6 => any::<(u8, u8)>().prop_map(|(reader, times)| Step::Look { reader, times }),
        1 => any::<u8>().prop_map(|reader| Step::NewReader { reader }),
        4 => any::<(u8, u8)>().prop_map(|(lane, at)| Step::Pin { lane, at }),
        3 => any::<u8>().prop_map(|at| Step::Unpin { at }),
    ];
    proptest::collection::vec(step, 40..220)
}

/// A packet as it was appended.
struct Sent {
    head: PacketHead,
    key: KeyEntry,
}

/// A segment that was claimed and not recycled since.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Segment {
    lane: usize,
    sequence: u64,
    first_packet: u64,
    /// Packets appended.
    packets: u64,
    /// Position in the order of sealing; `None`: open.
    sealed: Option<u64>,
    pins: u32,
}

#[derive(Default)]
struct Lane {
    writer: Option<LaneWriter>,
    interfaces: Vec<u32>,
    sent: Vec<Sent>,
    committed: u64,
    next: u64,
    time_ns: i64,
}

/// A reader beside what it must have reached.
struct Following {
    reader: Reader,
    turn: usize,
    places: Vec<Position>,
}

#[derive(Clone, Copy, Default)]
struct Position {
    packet: u64,
    counts: ReaderCounts,
    gap: u64,
    pinned: Option<u64>,
}

/// A pin held by the test, and the committed blocks as they were then.
struct Held {
    pinned: Pinned,
    lane: usize,
    blocks: Vec<u8>,
}

struct Model {
    ring: Arc<Ring>,
    pins_max: usize,
    lanes: Vec<Lane>,
    segments: Vec<Segment>,
    sealed: u64,
    unused: usize,
    readers: Vec<Following>,
    held: Vec<Held>,
    failed_claims: u64,
}

impl Model {
    fn new(segments: u64, pins_max: usize) -> Model {
        let ring = stand::ring(segments, SEGMENT_BYTES, 1);
        let readers = (0..3).map(|_| Following::new(&ring)).collect();
        let mut model = Model {
            ring,
            pins_max,
            lanes: Vec::new(),
            segments: Vec::new(),
            sealed: 0,
            unused: segments as usize,
            readers,
            held: Vec::new(),
            failed_claims: 0,
        };
        model.open();
        model.open();
        model
    }

    fn step(&mut self, step: &Step) {
        let lanes = self.lanes.len();
        match *step {
            Step::Open => self.open(),
            Step::Close { lane } => self.close(lane as usize % lanes),
            Step::AddInterface { lane } => self.add_interface(lane as usize % lanes),
            Step::Append { lane, packets, sizes, seed } => {
                let mut dice = Dice(seed);
                for _ in 0..packets % 64 {
                    self.append(lane as usize % lanes, sizes, &mut dice);
                }
            }
            Step::Commit { lane } => self.commit(lane as usize % lanes),
            Step::Look { reader, times } => {
                for _ in 0..times % 8 {
                    self.look(reader as usize % 3);
                }
            }
            Step::NewReader { reader } => {
                self.release_reader(reader as usize % 3);
                self.readers[reader as usize % 3] = Following::new(&self.ring);
            }
            Step::Pin { lane, at } => self.pin(lane as usize % lanes, at),
            Step::Unpin { at } => self.unpin(at),
        }
        self.check_law();
    }

    fn open(&mut self) {
        let room = self.lanes.len() < scope_ring::LINK_TYPES_MAX as usize;
        let opened = self.ring.open_lane(0, LinkType::ETHERNET);
        assert_eq!(opened.is_some(), room);
        if opened.is_some() {
            self.lanes.push(Lane { writer: opened, ..Lane::default() });
            self.add_interface(self.lanes.len() - 1);
        }
    }

    fn add_interface(&mut self, lane: usize) {
        let Some(writer) = &mut self.lanes[lane].writer else { return };
        let number = self.ring.register(lane as u32, &stand::interface("lab")).unwrap();
        let index = writer.add_interface(number);
        self.lanes[lane].interfaces.push(number);
        assert_eq!(index + 1, self.lanes[lane].interfaces.len());
        self.notice_sealing(lane);
    }

    /// The open segment may have been sealed to make room for an interface: the ring says so, the packets are
    /// then visible.
    fn notice_sealing(&mut self, lane: usize) {
        let sequence = self.lanes[lane].next.wrapping_sub(1);
        if self
            .ring
            .pin(self.ring.segment_id(lane as u32, sequence))
            .is_some_and(|pinned| pinned.committed().sealed)
        {
            self.seal(lane);
        }
    }

    fn segment(&mut self, lane: usize, sequence: u64) -> &mut Segment {
        let found =
            self.segments.iter_mut().find(|segment| segment.lane == lane && segment.sequence == sequence);
        found.expect("a pinned or open segment is there")
    }

    fn seal(&mut self, lane: usize) {
        let order = self.sealed;
        if let Some(open) =
            self.segments.iter_mut().find(|segment| segment.lane == lane && segment.sealed.is_none())
        {
            open.sealed = Some(order);
            self.sealed += 1;
            self.lanes[lane].committed = self.lanes[lane].sent.len() as u64;
        }
    }

    fn close(&mut self, lane: usize) {
        if self.lanes.iter().filter(|lane| lane.writer.is_some()).count() > 1 {
            drop(self.lanes[lane].writer.take());
            self.seal(lane);
        }
    }

    fn commit(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        if let Some(writer) = &mut lane.writer {
            writer.commit();
            lane.committed = lane.sent.len() as u64;
        }
    }

    fn append(&mut self, lane: usize, sizes: u8, dice: &mut Dice) {
        let number = self.lanes[lane].sent.len() as u64;
        let state = &mut self.lanes[lane];
        let Some(writer) = &mut state.writer else { return };
        let kept_max = writer.kept_bytes_max() as u64;
        let bound = [2, 65, 1519, 9001, kept_max + 1][sizes as usize % 5];
        let len = dice.below(bound) as usize;
        let step_ns = dice.below(1000) as i64 - if dice.one_in(20) { 5000 } else { 0 };
        state.time_ns = (state.time_ns + step_ns).max(0);
        let index = dice.below(state.interfaces.len() as u64) as usize;
        let head = PacketHead {
            interface: state.interfaces[index],
            time_ns: state.time_ns,
            captured_len: len as u32,
            original_len: if dice.one_in(3) { dice.roll() as u32 } else { len as u32 },
            flags: if dice.one_in(3) { dice.below(3) as u32 } else { 0 },
            lost_before: if dice.one_in(9) { dice.roll() } else { 0 },
        };
        let mut bytes = [0; 16];
        stand::fill(7, dice.roll(), &mut bytes);
        let key = KeyEntry::from_bytes(&bytes);
        let data = stand::bytes_of(lane as u32, number, len);
        let appended = writer.append(index, &head, key, &data);
        if appended == Append::NeedsSegment {
            self.seal(lane);
            if !self.claim(lane) {
                return stand::drop_one(self.lanes[lane].writer.as_mut().unwrap(), index);
            }
            let writer = self.lanes[lane].writer.as_mut().unwrap();
            assert_eq!(writer.append(index, &head, key, &data), Append::Stored(number));
        } else {
            assert_eq!(appended, Append::Stored(number));
        }
        self.lanes[lane].sent.push(Sent { head, key });
        let sequence = self.lanes[lane].next - 1;
        self.segment(lane, sequence).packets += 1;
    }

    /// Claims, and checks that the oldest unpinned segment by order of sealing went, or that none could.
    fn claim(&mut self, lane: usize) -> bool {
        let candidates = self.segments.iter().filter(|segment| segment.sealed.is_some() && segment.pins == 0);
        let oldest = candidates.min_by_key(|segment| segment.sealed).copied();
        let expected = self.unused > 0 || oldest.is_some();
        let claimed = self.lanes[lane].writer.as_mut().unwrap().claim();
        assert_eq!(claimed, expected, "a claim fails only if every other segment is pinned");
        if !claimed {
            self.failed_claims += 1;
            return false;
        }
        if self.unused > 0 {
            self.unused -= 1;
        } else {
            let gone = self.find_gone(lane).or(oldest).unwrap();
            if self.pins_max <= 16 {
                assert_eq!(Some(gone), oldest, "the oldest unpinned one");
            }
            assert_eq!(gone.pins, 0);
            self.segments.retain(|segment| *segment != gone);
        }
        let next = self.lanes[lane].next;
        let first_packet = self.lanes[lane].sent.len() as u64;
        self.segments.push(Segment { lane, sequence: next, first_packet, packets: 0, sealed: None, pins: 0 });
        self.lanes[lane].next += 1;
        self.check_directory();
        true
    }

    /// The reachable segment of the model that the ring has recycled by the claim of `lane`.
    fn find_gone(&self, claimer: usize) -> Option<Segment> {
        let depth = self.ring.segments() as u64;
        let reachable = |segment: &&Segment| {
            let next = self.lanes[segment.lane].next + u64::from(segment.lane == claimer);
            segment.sequence + depth >= next
        };
        let gone = |segment: &&Segment| {
            self.ring.pin(self.ring.segment_id(segment.lane as u32, segment.sequence)).is_none()
        };
        let mut gone = self.segments.iter().filter(reachable).filter(gone);
        let first = gone.next().copied();
        assert_eq!(gone.next(), None, "one claim recycles one segment");
        first
    }

    /// What the ring lets be pinned is what the model has.
    fn check_directory(&self) {
        for (number, lane) in self.lanes.iter().enumerate() {
            assert_eq!(self.ring.lane_next(number as u32), lane.next);
            for sequence in self.ring.oldest_possible(number as u32)..lane.next + 2 {
                let there = self
                    .segments
                    .iter()
                    .any(|segment| (segment.lane, segment.sequence) == (number, sequence));
                assert_eq!(
                    self.ring.pin(self.ring.segment_id(number as u32, sequence)).is_some(),
                    there,
                    "lane {number} segment {sequence}"
                );
            }
        }
    }

    fn pin(&mut self, lane: usize, at: u8) {
        if self.held.len() >= self.pins_max {
            return;
        }
        let (oldest, next) = (self.ring.oldest_possible(lane as u32), self.lanes[lane].next);
        let sequence = oldest + at as u64 % (next - oldest + 1);
        let there = self.segments.iter().any(|segment| (segment.lane, segment.sequence) == (lane, sequence));
        let pinned = self.ring.pin(self.ring.segment_id(lane as u32, sequence));
        assert_eq!(pinned.is_some(), there);
        let Some(pinned) = pinned else { return };
        self.segment(lane, sequence).pins += 1;
        self.check_pinned(lane, &pinned);
        let blocks = pinned.blocks(0, pinned.committed().bytes).bytes().to_vec();
        self.held.push(Held { pinned, lane, blocks });
    }

    fn unpin(&mut self, at: u8) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.swap_remove(at as usize % self.held.len());
        self.check_pinned(held.lane, &held.pinned);
        let same = held.pinned.blocks(0, held.blocks.len() as u32);
        assert_eq!(same.bytes(), held.blocks, "a pinned segment's committed bytes never change");
        self.segment(held.lane, held.pinned.sequence()).pins -= 1;
    }

    /// Every committed packet and key entry of a pinned segment, byte for byte.
    fn check_pinned(&mut self, lane: usize, pinned: &Pinned) {
        let segment = *self.segment(lane, pinned.sequence());
        assert_eq!((pinned.lane() as usize, pinned.first_packet()), (lane, segment.first_packet));
        let visible = (self.lanes[lane].committed - segment.first_packet).min(segment.packets);
        let committed = pinned.committed();
        assert_eq!((committed.packets as u64, committed.sealed), (visible, segment.sealed.is_some()));
        let blocks = pinned.blocks(0, committed.bytes);
        let mut offset = 0;
        for index in 0..committed.packets {
            let entry = self.lanes[lane].sent[(segment.first_packet + index as u64) as usize].key.at(offset);
            assert_eq!(pinned.entry(index), entry);
            offset += self.lanes[lane].sent[(segment.first_packet + index as u64) as usize].head.block_bytes()
                as u32;
        }
        assert_eq!(offset, committed.bytes);
        self.check_blocks(lane, segment.first_packet, visible, blocks.bytes());
        if let Some(whole) = pinned.whole() {
            let account = stand::account(whole);
            let order = pinned.times().unwrap().sealed_order;
            assert_eq!(Some(order), segment.sealed.map(|order| order + 1));
            assert_eq!(
                (account.foot.sequence, account.foot.first_packet),
                (segment.sequence, segment.first_packet)
            );
        }
    }

    fn check_blocks(&self, lane: usize, first: u64, packets: u64, blocks: &[u8]) {
        let mut rest = blocks;
        for number in first..first + packets {
            let head = &self.lanes[lane].sent[number as usize].head;
            let mut expected = vec![0xee; head.block_bytes()];
            head.write(&mut expected, &stand::bytes_of(lane as u32, number, head.captured_len as usize));
            let (block, behind) = rest.split_at(expected.len());
            assert!(block == expected, "lane {lane} packet {number}: {:?}", &expected[..28]);
            rest = behind;
        }
        assert!(rest.is_empty());
    }

    /// One look of a reader: the model says which packets it must be lent, from the rules alone.
    fn look(&mut self, index: usize) {
        let lanes = self.lanes.len();
        self.readers[index].places.resize(lanes, Position::default());
        let turn = self.readers[index].turn;
        let found = (0..lanes)
            .map(|step| (turn + step) % lanes)
            .find_map(|lane| Some((lane, self.look_at(index, lane)?)));
        let following = &mut self.readers[index];
        let batch = following.reader.next_batch();
        assert_eq!(batch.is_some(), found.is_some());
        let (Some(batch), Some((lane, (first, packets, missed)))) = (batch, found) else { return };
        let lent =
            (batch.lane() as usize, batch.first_packet(), batch.packets() as u64, batch.missed_before());
        assert_eq!(lent, (lane, first, packets, missed));
        let blocks = batch.blocks().bytes().to_vec();
        assert_eq!(batch.blocks().count() as u64, packets);
        following.turn = lane + 1;
        self.check_blocks(lane, first, packets, &blocks);
    }

    /// Where reader `index` must go on in `lane`: first packet, packets, missed before.
    fn look_at(&mut self, index: usize, lane: usize) -> Option<(u64, u64, u64)> {
        let committed = self.lanes[lane].committed;
        let depth = self.ring.segments() as u64;
        let mut place = self.readers[index].places[lane];
        let before = place.pinned.take();
        let end = |segment: &Segment| (segment.first_packet + segment.packets).min(committed);
        let oldest = self
            .segments
            .iter()
            .filter(|segment| segment.lane == lane && end(segment) > place.packet.max(segment.first_packet))
            .filter(|segment| {
                Some(segment.sequence) == before || segment.sequence + depth >= self.lanes[lane].next
            })
            .min_by_key(|segment| segment.sequence)
            .copied();
        let first = oldest.map_or(committed, |segment| segment.first_packet.max(place.packet));
        place.gap += first - place.packet;
        place.counts.missed += first - place.packet;
        place.packet = first;
        if let Some(sequence) = before {
            self.segment(lane, sequence).pins -= 1;
        }
        let found = oldest.map(|segment| {
            let packets = end(&segment) - first;
            place.packet += packets;
            place.counts.seen += packets;
            place.pinned = Some(segment.sequence);
            (first, packets, std::mem::take(&mut place.gap))
        });
        if found.is_none() {
            // All of the lane is read: its open segment is held until more comes.
            let open = self.segments.iter().find(|segment| segment.lane == lane && segment.sealed.is_none());
            place.pinned = open.map(|segment| segment.sequence);
        }
        if let Some(sequence) = place.pinned {
            self.segment(lane, sequence).pins += 1;
        }
        self.readers[index].places[lane] = place;
        found
    }

    fn release_reader(&mut self, index: usize) {
        for lane in 0..self.readers[index].places.len() {
            if let Some(sequence) = self.readers[index].places[lane].pinned {
                self.segment(lane, sequence).pins -= 1;
            }
        }
    }

    /// `published = seen + missed + behind`, for every reader and lane, and each part as it must be.
    fn check_law(&self) {
        let counters = self.ring.counters();
        for (number, lane) in self.lanes.iter().enumerate() {
            assert_eq!(counters.lanes[number].packets, lane.committed);
            for following in &self.readers {
                let counts = following.reader.counts(number as u32);
                let expected = following.places.get(number).copied().unwrap_or_default().counts;
                let behind = lane.committed - expected.seen - expected.missed;
                assert_eq!(counts, ReaderCounts { behind, ..expected });
            }
        }
    }

    /// Everything ends: readers reach the end, and of the ring's segments none is lost.
    fn end(mut self) {
        for lane in 0..self.lanes.len() {
            self.commit(lane);
        }
        for reader in 0..3 {
            for _ in 0..200 * self.lanes.len() {
                self.look(reader);
            }
            let lanes = 0..self.lanes.len() as u32;
            assert!(
                lanes.map(|lane| self.readers[reader].reader.counts(lane).behind).all(|behind| behind == 0)
            );
        }
        while !self.held.is_empty() {
            self.unpin(0);
        }
        self.check_directory();
        assert_eq!(self.segments.len() + self.unused, self.ring.segments());
    }
}

impl Following {
    fn new(ring: &Arc<Ring>) -> Following {
        Following { reader: Reader::new(ring), turn: 0, places: Vec::new() }
    }
}

fn run(segments: u64, pins_max: usize, steps: &[Step]) -> u64 {
    let mut model = Model::new(segments, pins_max);
    for step in steps {
        model.step(step);
    }
    let failed = model.failed_claims;
    model.end();
    failed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ring_does_what_its_rules_say_with_few_pins(steps in steps()) {
        run(24, 6, &steps);
    }

    #[test]
    fn the_ring_does_what_its_rules_say_when_pins_take_all_of_it(steps in steps()) {
        run(16, 40, &steps);
    }
}

#[test]
fn pins_that_take_the_whole_ring_are_reached_by_the_model() {
    let mut steps = Vec::new();
    for n in 0..40u8 {
        steps.push(Step::Append { lane: n, packets: 60, sizes: 3, seed: n as u64 });
        steps.extend((0..6).map(|at| Step::Pin { lane: n, at: at * n }));
    }
    assert!(run(16, 200, &steps) > 0, "claims failed, and only where they had to");
}
