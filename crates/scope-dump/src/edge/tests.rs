//! A dump across the edge against a model: a ring that turns at any moment, and a store that is a list.

use super::*;
use crate::merge::Position;
use crate::pins::FirstPins;
use crate::progress::Progress;
use crate::scans::Scans;
use crate::select::{Consumer, Round, Selection};
use crate::walk::Request;
use proptest::prelude::*;
use scope_filter::{FilterEngine, VlanRule};
use scope_packet::pcapng::{PacketBlock, PacketHead};
use scope_packet::{Headers, Interface, KeyEntry, SegmentId, SystemClock, TimestampSource};
use scope_ring::search::Column;
use scope_ring::{Append, LaneWriter, RingConfig, WorkerCounts};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const SEGMENT: u64 = 64 << 10;
const BEGIN_NS: i64 = 1_000_000;
const LEN: usize = 3000;
/// Packets of a piece that the model hands out, at most.
const PIECE: usize = 7;

/// A ring that turns as live workers make it, and all that ever came.
struct Bench {
    ring: Arc<Ring>,
    writers: Vec<LaneWriter>,
    /// Time of each packet, by lane and number.
    came: BTreeMap<(u32, u64), i64>,
    now_ns: i64,
    dice: u64,
}

impl Bench {
    fn new(lanes: u32, segments: u64, dice: u64) -> Bench {
        let ring_bytes = segments * SEGMENT;
        let (segment_bytes, run_id) = (Some(SEGMENT), [5; 16]);
        let config = RingConfig { ring_bytes, segment_bytes, workers: lanes, lanes: 1, run_id };
        let ring = Ring::create(&config).unwrap();
        let open = |worker: u32| {
            let mut writer = ring.open_lane(worker, LinkType::ETHERNET).unwrap();
            let interface = Interface {
                name: format!("if{worker}"),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::File,
                part: 0,
            };
            let number = ring.register(writer.lane(), &interface).unwrap();
            writer.add_interface(number);
            ring.begin_listening(worker, 1, GapReason::NotStarted);
            writer
        };
        let writers = (0..lanes).map(open).collect();
        Bench { ring, writers, came: BTreeMap::new(), now_ns: BEGIN_NS, dice: dice | 1 }
    }

    fn below(&mut self, below: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 9) % below.max(1)
    }

    /// Some packets more, of any lanes; what finds no segment never came.
    fn feed(&mut self, packets: u64) {
        for _ in 0..packets {
            let lane = self.below(self.writers.len() as u64) as usize;
            self.now_ns += self.below(3) as i64;
            let number = self.writers[lane].next_packet();
            let (head, data) = packet(lane as u32, number, self.now_ns);
            let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
            let writer = &mut self.writers[lane];
            let is_in = loop {
                if writer.append(0, &head, key, &data) != Append::NeedsSegment {
                    break true;
                }
                if !writer.claim() {
                    break false;
                }
            };
            if is_in {
                self.came.insert((lane as u32, number), self.now_ns);
            }
        }
        for (worker, writer) in (0u32..).zip(&mut self.writers) {
            writer.commit();
            let counts = WorkerCounts { received_packets: 1, ..WorkerCounts::default() };
            self.ring.publish_worker(worker, &counts);
            self.ring.set_first(worker, BEGIN_NS);
            self.ring.set_clock(worker, self.now_ns);
        }
    }
}

fn packet(lane: u32, number: u64, time_ns: i64) -> (PacketHead, Vec<u8>) {
    let mut data = vec![0xee; LEN];
    data[..8].copy_from_slice(&number.to_le_bytes());
    data[8..12].copy_from_slice(&lane.to_le_bytes());
    let len = LEN as u32;
    let head = PacketHead { time_ns, captured_len: len, original_len: len, ..PacketHead::default() };
    (head, data)
}

/// A store that has all that came but what is deleted, in small pieces.
struct Model {
    bench: Rc<RefCell<Bench>>,
    /// Numbers of each lane before this one are deleted.
    deleted: u64,
    asked: RefCell<Vec<Numbers>>,
}

struct ModelPart {
    pieces: Vec<(Piece, Vec<i64>)>,
    at: usize,
    blocks: Vec<u8>,
    column: Vec<u8>,
}

impl Elsewhere for Model {
    fn permit(&self) -> Option<Permit<'_>> {
        None
    }

    fn ask(&self, question: &Question<'_>) -> Answer<'_> {
        let bench = self.bench.borrow();
        let mut asked = self.asked.borrow_mut();
        let lanes = asked.len().max(question.numbers.len());
        asked.resize(lanes, Numbers::default());
        let (mut pieces, mut answer) = (Vec::new(), Answer::default());
        for (lane, numbers) in (0u32..).zip(question.numbers) {
            for span in numbers.spans() {
                assert!(!asked[lane as usize].touch(span), "lane {lane}: {span:?} is asked for twice");
                asked[lane as usize].add(span.clone());
                let deleted = span.start..span.end.min(self.deleted).max(span.start);
                if !deleted.is_empty() {
                    answer.lacking.push((lane, deleted.clone(), GapReason::Deleted));
                }
                let there: Vec<u64> = (deleted.end..span.end).collect();
                for numbers in there.chunks(PIECE) {
                    let times: Vec<i64> = numbers.iter().map(|number| bench.came[&(lane, *number)]).collect();
                    let segment = SegmentId { run: [5; 16], lane, sequence: numbers[0] };
                    let (first_packet, packets, min_ns) = (numbers[0], numbers.len() as u32, times[0]);
                    pieces
                        .push((Piece { segment, lane, first_packet, packets, min_ns, ordered: true }, times));
                }
            }
        }
        pieces.sort_by_key(|(piece, _)| (piece.min_ns, piece.lane, piece.first_packet));
        answer.parts.push(Box::new(ModelPart { pieces, at: 0, blocks: Vec::new(), column: Vec::new() }));
        answer
    }

    fn link_type(&self, _: u32) -> Option<LinkType> {
        Some(LinkType::ETHERNET)
    }

    fn may_have_earlier(&self, _: i64) -> bool {
        false
    }
}

impl Timeline for ModelPart {
    fn settle(&mut self, _: i64) -> Settled {
        Settled { up_to: Moment::END, goes_on: false }
    }

    fn look(&mut self, _: i64, _: bool) {}

    fn next(&mut self) -> Option<Piece> {
        let (piece, times) = self.pieces.get(self.at)?;
        self.at += 1;
        (self.blocks, self.column) = (Vec::new(), Vec::new());
        let mut entries = Vec::new();
        for (number, time_ns) in (piece.first_packet..).zip(times) {
            let (head, data) = packet(piece.lane, number, *time_ns);
            let at = self.blocks.len();
            self.blocks.resize(at + head.block_bytes(), 0);
            head.write(&mut self.blocks[at..], &data);
            entries.push(KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data)).at(at as u32));
        }
        self.column = entries.iter().rev().flat_map(|entry| entry.to_bytes()).collect();
        Some(*piece)
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        self.pieces.get(self.at).map(|(piece, _)| (piece.min_ns, 0))
    }

    fn screen(&mut self, keys: &KeyTest, _: Option<u64>) -> Option<Matches> {
        Some(Column::new(&self.column).matches(keys))
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        let first_packet = self.pieces[self.at - 1].0.first_packet;
        Packets::new(first_packet, Column::new(&self.column), &self.blocks, picked)
    }

    fn done(&mut self) {}

    fn wait(&mut self, _: i64) {}

    fn end(&mut self) {}

    fn link_type(&self, _: u32) -> Option<LinkType> {
        Some(LinkType::ETHERNET)
    }

    fn heard(&self) -> Option<(i64, i64)> {
        None
    }

    fn missing(&self, _: i64) -> Vec<Gap> {
        Vec::new()
    }
}

impl Part for ModelPart {
    fn unread(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Notes what it gets, while the ring goes on turning.
struct Notes {
    bench: Rc<RefCell<Bench>>,
    /// More packets come between two pieces, at most.
    meanwhile: u64,
    places: Vec<(i64, u32, u64)>,
}

impl Consumer for Notes {
    fn packet(&mut self, position: Position, _: LinkType, block: &[u8]) {
        let block = PacketBlock::first(block).expect("a block");
        let number = u64::from_le_bytes(block.data()[..8].try_into().expect("8 bytes"));
        let lane = u32::from_le_bytes(block.data()[8..12].try_into().expect("4 bytes"));
        assert_eq!((position.time_ns, position.lane, position.packet), (block.time_ns(), lane, number));
        self.places.push((position.time_ns, lane, number));
    }

    fn between(&mut self) {
        let mut bench = self.bench.borrow_mut();
        let packets = bench.below(self.meanwhile + 1);
        bench.feed(packets);
    }
}

/// A dump of a window that reaches back over `past` packets and forward over `future_ns`, of a ring that turns
/// meanwhile, with such a store.
fn check(lanes: u32, past: u64, before: u64, future_ns: i64, meanwhile: u64, deleted: u64, dice: u64) {
    let bench = Rc::new(RefCell::new(Bench::new(lanes, 16 * u64::from(lanes), dice)));
    bench.borrow_mut().feed(past);
    let ring = bench.borrow().ring.clone();
    let hit_ns = bench.borrow().now_ns;
    let times: Vec<i64> = bench.borrow().came.values().copied().collect();
    let from_ns = times.iter().copied().max().unwrap_or(hit_ns) - before as i64;
    let pins = FirstPins::take(&ring, 0, from_ns, 1);
    bench.borrow_mut().feed(meanwhile * 3);
    let filter = Filter::compile("", VlanRule::Exact, &[LinkType::ETHERNET]).unwrap();
    let scans = Scans::new(&ring, None);
    let request = Request {
        era: Some(0),
        from_ns,
        hit_ns,
        reader: scans.join(&filter),
        patience: None,
        clock: Arc::new(SystemClock::new()),
        progress: Arc::new(Progress::default()),
    };
    let timeline = RingTimeline::new(&ring, &pins, request);
    let model = Model { bench: bench.clone(), deleted, asked: RefCell::default() };
    let terms = Terms::default();
    let wanted = Wanted { era: Some(0), from_ns, hit_ns, filter: filter.clone(), inexact: true, terms };
    let mut edge = Edge::new(&ring, timeline, &model, wanted);
    let mut selection = Selection::new(filter, FilterEngine::Interpreter, from_ns, None, &Arc::default());
    let mut notes = Notes { bench: bench.clone(), meanwhile, places: Vec::new() };
    let to_ns = hit_ns + future_ns;
    loop {
        let settled = edge.settle(to_ns);
        let last = settled.up_to > Moment::new(0, to_ns);
        selection.round(&mut edge, Round { to_ns, settled_ns: settled.up_to.within(0), last }, &mut notes);
        if last {
            break;
        }
        bench.borrow_mut().feed(20);
    }
    edge.end();
    let about = format!("{lanes} {past} {before} {future_ns} {meanwhile} {deleted} {dice}");
    let places: BTreeSet<_> = notes.places.iter().copied().collect();
    assert_eq!(places.len(), notes.places.len(), "{about}: each packet once");
    let came = &bench.borrow().came;
    let inside = |time_ns: &i64| (from_ns..=to_ns).contains(time_ns);
    let all: BTreeSet<(i64, u32, u64)> =
        came.iter().filter(|(_, at)| inside(at)).map(|(&(lane, number), &at)| (at, lane, number)).collect();
    assert!(places.is_subset(&all), "{about}: a packet too much");
    let missing: Vec<_> = all.difference(&places).collect();
    assert!(missing.iter().all(|(_, _, number)| *number < deleted), "{about}: {missing:?}");
    let gaps = selection.missing(&edge, to_ns);
    let gaps = gaps.iter().filter(|gap| !matches!(gap.reason, GapReason::RingPinned | GapReason::NotStarted));
    let (mut least, mut most) = (0, 0);
    for gap in gaps {
        // What the ring turned over behind the last look may be of the window as far as its bounds say; nothing of it is.
        let is_of_bounds = meanwhile > 0 && gap.reason == GapReason::Evicted && gap.lost_min == 0;
        assert!(gap.reason == GapReason::Deleted || is_of_bounds, "{about}: {gap:?}");
        (least, most) = (least + gap.lost_min, most + gap.lost_max.unwrap());
    }
    assert!((least..=most).contains(&(missing.len() as u64)), "{about}: {least} {} {most}", missing.len());
    if meanwhile == 0 {
        assert!(notes.places.is_sorted(), "{about}: in order");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn ring_and_store_are_one_past_each_packet_once_however_the_ring_turns_meanwhile(
        lanes in 1u32..4, past in 0u64..3000, before in 0u64..4000, future_ns in 0i64..200,
        meanwhile in prop_oneof![Just(0u64), 0u64..200], deleted in prop_oneof![Just(0u64), 0u64..600],
        dice in any::<u64>()) {
        check(lanes, past, before, future_ns, meanwhile, deleted, dice);
    }
}

/// A question about the last `before` ns up to now, with a filter and one that whoever asks is bound to, of a ring that
/// turns meanwhile.
fn check_question(
    (lanes, past, before): (u32, u64, u64),
    (meanwhile, deleted, dice): (u64, u64, u64),
    (filter, bound): (&str, Option<&str>),
    wanted_too: fn(u32, u64) -> bool,
) {
    let bench = Rc::new(RefCell::new(Bench::new(lanes, 16 * u64::from(lanes), dice)));
    bench.borrow_mut().feed(past);
    let ring = bench.borrow().ring.clone();
    let to_ns = bench.borrow().now_ns;
    let from_ns = (to_ns - before as i64).max(1);
    let compile = |text: &str| Filter::compile(text, VlanRule::Exact, &[LinkType::ETHERNET]).unwrap();
    let scans = Scans::new(&ring, None);
    let request = Request {
        era: None,
        from_ns,
        hit_ns: to_ns,
        reader: scans.join_alone(),
        patience: None,
        clock: Arc::new(SystemClock::new()),
        progress: Arc::new(Progress::default()),
    };
    let mut timeline = RingTimeline::new(&ring, &FirstPins::none(&ring), request);
    timeline.settle(to_ns);
    let model = Model { bench: bench.clone(), deleted, asked: RefCell::default() };
    let terms = Terms { to_ns, by_time: true, ..Terms::default() };
    let (filter, bound) = (compile(filter), bound.map(compile));
    let wanted = Wanted { era: None, from_ns, hit_ns: to_ns, filter: filter.clone(), inexact: true, terms };
    let mut edge = Edge::new(&ring, timeline, &model, wanted);
    let selection = Selection::new(filter, FilterEngine::Interpreter, from_ns, None, &Arc::default());
    let mut selection = selection.bound_to(bound);
    let mut notes = Notes { bench: bench.clone(), meanwhile, places: Vec::new() };
    edge.settle(to_ns);
    // What comes behind this may be of the same nanosecond as the question's end: it may be in the answer or not.
    let there = bench.borrow().came.clone();
    bench.borrow_mut().feed(meanwhile * 3);
    selection.round(&mut edge, Round { to_ns, settled_ns: i64::MAX, last: true }, &mut notes);
    edge.end();
    assert_eq!(ring.budget().taken(), 0);
    let about = format!("{lanes} {past} {before} {meanwhile} {deleted} {dice}");
    assert!(notes.places.is_sorted(), "{about}: in order");
    let places: BTreeSet<_> = notes.places.iter().copied().collect();
    assert_eq!(places.len(), notes.places.len(), "{about}: each packet once");
    let came = &bench.borrow().came;
    let wanted_of = |packets: &BTreeMap<(u32, u64), i64>| -> BTreeSet<(i64, u32, u64)> {
        let is_wanted = |&(&(lane, number), at): &(&(u32, u64), &i64)| {
            (from_ns..=to_ns).contains(at) && wanted_too(lane, number)
        };
        packets.iter().filter(is_wanted).map(|(&(lane, number), &at)| (at, lane, number)).collect()
    };
    let asked = wanted_of(&there);
    assert!(places.is_subset(&wanted_of(came)), "{about}: a packet too much");
    let missing: Vec<_> = asked.difference(&places).collect();
    assert!(missing.iter().all(|(_, _, number)| *number < deleted), "{about}: {missing:?}");
    let gaps = selection.missing(&edge, to_ns);
    let gaps = gaps.iter().filter(|gap| gap.reason == GapReason::Deleted);
    let most: u64 = gaps.map(|gap| gap.lost_max.unwrap()).sum();
    assert!(missing.len() as u64 <= most, "{about}: {most} {}", missing.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn a_question_has_each_packet_once_and_in_order_however_the_ring_turns(
        lanes in 1u32..4, past in 0u64..3000, before in 0u64..4000,
        meanwhile in prop_oneof![Just(0u64), 0u64..200], deleted in prop_oneof![Just(0u64), 0u64..600],
        dice in any::<u64>()) {
        check_question((lanes, past, before), (meanwhile, deleted, dice), ("", None), |_, _| true);
    }
}

/// What came of the very nanosecond in which a question was asked, but behind it, is no part of what was promised.
#[test]
fn a_packet_of_the_last_nanosecond_that_came_behind_the_question_may_be_missing() {
    check_question((1, 1028, 32), (1, 0, 16552308109996346487), ("", None), |_, _| true);
}

#[test]
fn a_bound_question_has_only_packets_that_both_filters_match() {
    for dice in 1..20 {
        let filters = ("ether[0] & 1 = 0", Some("ether[8] = 1"));
        let wanted = |lane: u32, number: u64| number.is_multiple_of(2) && lane == 1;
        check_question((2, 2500, 4000), (50, 0, dice), filters, wanted);
        check_question((2, 2500, 4000), (50, 0, dice), ("", Some("ether[8] = 1")), |lane, _| lane == 1);
    }
}
