//! The models: small rings, few steps, and what must hold in every order of them. Compiled once per variant.
//!
//! The rings have two segments (of 64 KiB, of which a few bytes are used); packets carry their number and
//! lane.

use super::scope_ring::control::Published;
use super::scope_ring::region::BLOCK_BYTES;
use super::scope_ring::outside::view::View;
use super::scope_ring::region::COPIES;
use super::scope_ring::{
    Append, Begin, ClaimGroup, KeyTest, LaneWriter, OutsideReader, Pinned, Reader, ReaderGroup, Ring, RingConfig, Share, Summaries,
};
use loom::thread;
use scope_packet::pcapng::PacketHead;
use scope_packet::segment::{FOOT_BYTES, Foot};
use scope_packet::{KeyEntry, LinkType};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SEGMENT_BYTES: u64 = 64 << 10;
const DATA_BYTES: usize = 8;

/// Every model: its name, the most preemptions in one order (`None`: any number), and itself.
const MODELS: &[(&str, Option<usize>, fn())] = &[
    ("recycle", None, recycle),
    ("newest", None, newest),
    ("open_segment", None, open_segment),
    ("two_readers", Some(2), two_readers),
    ("two_writers", Some(2), two_writers),
    ("reader", Some(3), reader),
    ("unlapped", Some(3), unlapped),
    ("published", None, published),
    ("counters", None, counters),
    ("evicted", None, evicted),
    ("clock", None, clock),
    ("lanes", None, lanes),
    ("span", None, span),
    ("find", Some(3), find),
    ("find_lapped", Some(2), find_lapped),
    ("shares", Some(2), shares),
    ("members", Some(3), members),
    ("members_lapped", Some(2), members_lapped),
    ("summaries", None, summaries),
    ("summaries_lapped", None, summaries_lapped),
    ("outside_open", Some(3), outside_open),
    ("outside_lapped", Some(1), outside_lapped),
    ("outside_held", Some(1), outside_held),
];

/// Runs one model through all its orders; false: there is none of this name.
pub fn run(name: &str) -> bool {
    let Some((_, preemptions, model)) = MODELS.iter().find(|model| model.0 == name) else { return false };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = *preemptions;
    builder.max_branches = 100_000;
    let model = *model;
    builder.check(move || {
        crate::RUNS.fetch_add(1, Ordering::Relaxed);
        model();
    });
    true
}

fn ring(segments: u64, workers: u32) -> Arc<Ring> {
    ring_with(segments, workers, &[])
}

fn ring_with(segments: u64, workers: u32, shares: &[Share]) -> Arc<Ring> {
    let ring_bytes = segments * SEGMENT_BYTES;
    let config = RingConfig { ring_bytes, segment_bytes: Some(SEGMENT_BYTES), workers, lanes: 1, run_id: *b"a run of a model" };
    Ring::create_shared(&config, shares).expect("a small ring")
}

fn lane(ring: &Arc<Ring>, worker: u32) -> LaneWriter {
    lane_in(ring, ClaimGroup::COMMON, worker)
}

fn lane_in(ring: &Arc<Ring>, group: ClaimGroup, worker: u32) -> LaneWriter {
    let mut writer = ring.open_lane_in(group, worker, LinkType::ETHERNET).expect("room in the lane table");
    writer.add_interface(worker);
    writer
}

/// Ports of packet `number`: each packet has its own.
fn key(number: u64) -> KeyEntry {
    KeyEntry { source_port: number as u16 + 1, destination_port: number as u16 + 1, ..KeyEntry::default() }
}

fn data(lane: u32, number: u64) -> [u8; DATA_BYTES] {
    ((lane as u64) << 56 | (number + 1)).to_le_bytes()
}

/// Appends and commits one packet, claiming where needed; false: every segment is pinned.
fn store(writer: &mut LaneWriter) -> bool {
    let (lane, number) = (writer.lane(), writer.next_packet());
    let head = PacketHead { time_ns: number as i64 + 1, captured_len: DATA_BYTES as u32, original_len: 8, ..Default::default() };
    let append = |writer: &mut LaneWriter| writer.append(0, &head, key(number), &data(lane, number));
    let mut appended = append(writer);
    if appended == Append::NeedsSegment && writer.claim() {
        appended = append(writer);
    }
    writer.commit();
    appended == Append::Stored(number)
}

/// Stores `packets`, each in a segment of its own, sealed at once; returns how many found every segment
/// pinned.
fn store_sealed(writer: &mut LaneWriter, packets: u64) -> u64 {
    let stored = (0..packets).filter(|_| {
        let stored = store(writer);
        writer.seal();
        stored
    });
    packets - stored.count() as u64
}

/// Everything that can be seen of a pinned segment of a lane with `per_segment` packets in each; returns the
/// packets.
fn check(pinned: &Pinned, lane: u32, per_segment: u64) -> u64 {
    let committed = pinned.committed();
    let first = pinned.first_packet();
    assert_eq!(first, pinned.sequence() * per_segment, "first packet");
    assert_eq!(committed.bytes as usize, committed.packets as usize * BLOCK_BYTES, "bytes and packets disagree");
    let mut numbers = first..;
    for (block, number) in pinned.blocks(0, committed.bytes).zip(&mut numbers) {
        assert_eq!(block.data(), data(lane, number), "foreign bytes");
    }
    assert_eq!(numbers.start, first + committed.packets as u64, "blocks");
    for index in 0..committed.packets {
        assert_eq!(pinned.entry(index).offset() as usize, index as usize * BLOCK_BYTES, "key entry");
    }
    if let (Some(whole), Some(times)) = (pinned.whole(), pinned.times()) {
        let foot = Foot::read(&whole[whole.len() - FOOT_BYTES..]).expect("a foot");
        assert_eq!((foot.sequence, foot.first_packet), (pinned.sequence(), first), "foot");
        assert_eq!((times.min_ns, times.max_ns), (foot.min_ns, foot.max_ns), "times");
        assert_eq!((times.first_ns, times.last_ns), (first as i64 + 1, first as i64 + foot.packets as i64), "times");
    }
    committed.packets as u64
}

/// No pin is left once all have gone.
fn no_pin_is_left(ring: &Ring) {
    for slot in 0..ring.segments() as u32 {
        let word = ring.region().segment(slot).word.load(Ordering::Relaxed);
        assert_eq!(word & super::scope_ring::control::PINS, 0, "pins of slot {slot}");
    }
}

/// Three commits in three segments of a ring of two: the third takes the first's slot, unless the reader
/// holds it.
fn recycle() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        if let Some(pinned) = own.pin(own.segment_id(0, 0)) {
            check(&pinned, 0, 1);
        }
    });
    let pinned_out = store_sealed(&mut writer, 3);
    assert_eq!(pinned_out, 0, "one reader holds one segment of two at most");
    reading.join().expect("the reader");
    assert_eq!(writer.next_packet() + pinned_out, 3);
    drop(writer);
    no_pin_is_left(&ring);
}

/// As `recycle`, but the reader goes for the newest segment that the lane speaks of.
fn newest() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        if let Some(newest) = own.lane_next(0).checked_sub(1)
            && let Some(pinned) = own.pin(own.segment_id(0, newest))
        {
            check(&pinned, 0, 1);
        }
    });
    assert_eq!(store_sealed(&mut writer, 3), 0);
    reading.join().expect("the reader");
    drop(writer);
    no_pin_is_left(&ring);
}

/// Two commits in one segment, then it is sealed, and a third elsewhere: a reader looks twice at the open one
/// under one pin.
fn open_segment() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        if let Some(pinned) = own.pin(own.segment_id(0, 0)) {
            let before = check(&pinned, 0, 2);
            assert!(check(&pinned, 0, 2) >= before, "what is committed stays");
        }
    });
    assert!(store(&mut writer) && store(&mut writer));
    writer.seal();
    assert!(store(&mut writer), "a second segment is free");
    reading.join().expect("the reader");
    drop(writer);
    no_pin_is_left(&ring);
}

/// As `recycle`, with two readers; where each holds a segment, the third packet finds the ring pinned.
fn two_readers() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    let reading = [0, 1].map(|sequence| {
        let own = ring.clone();
        thread::spawn(move || {
            if let Some(pinned) = own.pin(own.segment_id(0, sequence)) {
                check(&pinned, 0, 1);
            }
        })
    });
    let pinned_out = store_sealed(&mut writer, 3);
    for reading in reading {
        reading.join().expect("a reader");
    }
    assert_eq!(writer.next_packet() + pinned_out, 3);
    drop(writer);
    no_pin_is_left(&ring);
}

/// Two writers that claim from the same two segments, and a reader of one lane.
fn two_writers() {
    let ring = ring(2, 2);
    let (mut first, mut second) = (lane(&ring, 0), lane(&ring, 1));
    let own = ring.clone();
    let reading = thread::spawn(move || {
        if let Some(pinned) = own.pin(own.segment_id(0, 0)) {
            check(&pinned, 0, 1);
        }
    });
    let writing = thread::spawn(move || store_sealed(&mut second, 2) + second.next_packet());
    let pinned_out = store_sealed(&mut first, 2);
    assert_eq!(first.next_packet() + pinned_out, 2);
    reading.join().expect("the reader");
    assert_eq!(writing.join().expect("the writer"), 2);
    drop(first);
    no_pin_is_left(&ring);
}

/// The real reader is lapped: one of the two segments is held, so that each store recycles the other, in
/// which the reader stands. It sees or misses every packet, each once, and knows which.
fn reader() {
    lapped(Reader::new);
}

/// The same for the only member of a group.
fn members_lapped() {
    lapped(|ring| ReaderGroup::new(ring).member());
}

fn lapped(new: fn(&Arc<Ring>) -> Reader) {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert_eq!(store_sealed(&mut writer, 2), 0);
    let held = ring.pin(ring.segment_id(0, 1)).expect("the second segment");
    let (mut reader, mut next) = (new(&ring), 0);
    for _ in 0..3 {
        follow(&mut reader, &mut next);
    }
    assert_eq!(store_sealed(&mut writer, 1), 0);
    let reading = thread::spawn(move || {
        follow(&mut reader, &mut next);
        (reader, next)
    });
    let pinned_out = store_sealed(&mut writer, 1);
    let (mut reader, mut next) = reading.join().expect("the reader");
    let published = ring.counters().lanes[0].packets;
    assert_eq!(published + pinned_out, 4);
    for _ in 0..2 {
        follow(&mut reader, &mut next);
    }
    let counts = reader.counts(0);
    assert_eq!((counts.seen + counts.missed, counts.behind), (published, 0), "published = seen + missed + behind");
    assert!(counts.missed <= 1, "the newest packet is there");
    drop((held, reader, writer));
    no_pin_is_left(&ring);
}

/// The real reader where nothing is recycled: it misses nothing, however early it looks.
fn unlapped() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        let mut reader = Reader::new(&own);
        let mut next = 0;
        follow(&mut reader, &mut next);
        (reader, next)
    });
    assert_eq!(store_sealed(&mut writer, 1), 0);
    let (mut reader, mut next) = reading.join().expect("the reader");
    for _ in 0..2 {
        follow(&mut reader, &mut next);
    }
    assert_eq!((next, reader.counts(0).missed), (1, 0), "missed without need");
}

/// Takes one batch and checks it.
fn follow(reader: &mut Reader, next: &mut u64) {
    if let Some(batch) = reader.next_batch() {
        assert_eq!(batch.first_packet(), *next + batch.missed_before(), "missed");
        let mut numbers = batch.first_packet()..;
        for (block, number) in batch.blocks().zip(&mut numbers) {
            assert_eq!(block.data(), data(0, number), "foreign bytes");
        }
        *next = batch.first_packet() + batch.packets() as u64;
        assert_eq!(numbers.start, *next, "blocks");
    }
}

/// A reader never sees more packets than were published before, and published numbers are of one moment.
fn published() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert!(store(&mut writer));
    let own = ring.clone();
    let reading = thread::spawn(move || {
        let pinned = own.pin(own.segment_id(0, 0)).expect("the open segment stays");
        let seen = pinned.committed().packets as u64;
        let published = own.region().lane(0).published();
        assert!(published.packets >= seen, "seen before it was published");
        assert_eq!(published.bytes, published.packets * DATA_BYTES as u64, "numbers of two moments");
    });
    assert!(store(&mut writer));
    reading.join().expect("the reader");
}

/// Numbers under a sequence count are of one moment, whatever was published meanwhile.
fn counters() {
    let ring = ring(2, 1);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        let Published { packets, bytes } = own.region().lane(0).published();
        assert_eq!(bytes, packets * 10, "numbers of two moments");
    });
    let lane = ring.region().lane(0);
    for packets in 1..3 {
        lane.publish(Published { packets, bytes: packets * 10 });
    }
    reading.join().expect("the reader");
}

/// A reader that finds a segment recycled finds the memory of it.
fn evicted() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert_eq!(store_sealed(&mut writer, 2), 0);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        if own.pin(own.segment_id(0, 0)).is_none() {
            let lost = own.lost(0, std::slice::from_ref(&(0..1)), (0, 100))[0];
            assert_eq!((lost.packets_min, lost.packets_max), (1, 1), "recycled, and not remembered");
        }
    });
    store_sealed(&mut writer, 1);
    reading.join().expect("the reader");
}

/// What a worker's clock speaks of is committed.
fn clock() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        if own.settled().time_ns >= 1 {
            let pinned = own.pin(own.segment_id(0, 0)).expect("a segment that the clock speaks of");
            assert_eq!(check(&pinned, 0, 1), 1, "a packet that the clock speaks of");
        }
    });
    assert!(store(&mut writer));
    ring.set_clock(0, 1);
    reading.join().expect("the reader");
}

/// A lane that is counted is complete.
fn lanes() {
    let ring = ring_with(4, 2, &[Share { percent: 50, lanes: 1 }]);
    let own = ring.clone();
    let reading = thread::spawn(move || {
        for lane in 0..own.lanes() {
            let info = own.lane_info(lane);
            assert_eq!((info.worker, info.link_type), (1 - lane, LinkType::ETHERNET), "a lane without its words");
            assert_eq!(own.lane_group(lane), ClaimGroup::of_share(0), "a lane without its group");
        }
    });
    drop(lane_in(&ring, ClaimGroup::of_share(0), 1));
    drop(lane_in(&ring, ClaimGroup::of_share(0), 0));
    reading.join().expect("the reader");
}

/// The span of an open segment covers every packet that is committed.
fn span() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert!(store(&mut writer));
    let own = ring.clone();
    let reading = thread::spawn(move || {
        let pinned = own.pin(own.segment_id(0, 0)).expect("the open segment stays");
        let packets = pinned.committed().packets as i64;
        let (min_ns, max_ns, _) = pinned.span().expect("a packet is there");
        assert!(min_ns == 1 && max_ns >= packets, "committed outside of the span");
    });
    assert!(store(&mut writer));
    reading.join().expect("the reader");
}

/// What was committed before a search began is found, whether its segment is open, being sealed, or followed
/// by another.
fn find() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert!(store(&mut writer));
    let own = ring.clone();
    let searching = thread::spawn(move || {
        let spans = own.overlapping(1, 1);
        let found: Vec<(u32, u64)> = spans.iter().map(|span| (span.segment.lane, span.segment.sequence)).collect();
        assert_eq!(found, [(0, 0)], "not found");
    });
    writer.seal();
    assert!(store(&mut writer));
    searching.join().expect("the searcher");
}

/// A search in a ring that turns meanwhile: what it finds is what lies in the span, and nothing is passed
/// over but what is recycled by then.
fn find_lapped() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert_eq!(store_sealed(&mut writer, 2), 0);
    let own = ring.clone();
    let searching = thread::spawn(move || {
        let found = own.find_time(1).map(|found| (found.time_ns, found.pinned.first_packet() as i64 + 1));
        assert!(found.is_none_or(|(time_ns, of_packet)| time_ns >= 1 && time_ns == of_packet), "foreign bytes");
        assert!(found.is_some_and(|found| found.0 == 1) || own.pin(own.segment_id(0, 0)).is_none(), "passed over");
    });
    store_sealed(&mut writer, 1);
    searching.join().expect("the searcher");
    drop(writer);
    no_pin_is_left(&ring);
}

/// Two lanes, each with half of the ring: neither takes a segment of the other.
fn shares() {
    let ring = ring_with(4, 2, &[Share { percent: 50, lanes: 1 }]);
    let (mut common, mut own) = (lane(&ring, 0), lane_in(&ring, ClaimGroup::of_share(0), 1));
    assert_eq!(store_sealed(&mut own, 2), 0);
    let writing = thread::spawn(move || store_sealed(&mut common, 3));
    assert!((0..2).all(|sequence| ring.pin(ring.segment_id(1, sequence)).is_some()), "evicted by another group");
    assert_eq!(store_sealed(&mut own, 1), 0);
    assert_eq!(writing.join().expect("the writer"), 0);
    let is_there = |lane, sequence| ring.pin(ring.segment_id(lane, sequence)).is_some();
    assert!((1..3).all(|sequence| is_there(0, sequence) && is_there(1, sequence)), "evicted by another group");
    drop(own);
    no_pin_is_left(&ring);
}

/// Two members of a group: every packet goes to one of them.
fn members() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert_eq!(store_sealed(&mut writer, 1), 0);
    let group = ReaderGroup::new(&ring);
    let take = |group: &Arc<ReaderGroup>| {
        let mut member = group.member();
        (0..2).filter_map(|_| member.next_batch().map(|batch| batch.first_packet())).collect::<Vec<u64>>()
    };
    let other = group.clone();
    let reading = thread::spawn(move || take(&other));
    assert!(store(&mut writer));
    let mut seen = take(&group);
    seen.extend(reading.join().expect("the other member"));
    seen.extend(take(&group)); // what the other left
    seen.sort_unstable();
    assert_eq!(seen, [0, 1], "each to one member");
    let counts = group.counts(0);
    assert_eq!((counts.seen, counts.missed, counts.behind), (2, 0, 0), "published = seen + missed + behind");
    drop((group, writer));
    no_pin_is_left(&ring);
}

/// A summary built while its segment is being sealed never denies what is there.
fn summaries() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert!(store(&mut writer));
    let summaries = Summaries::new(&ring);
    let (own, table) = (ring.clone(), summaries.clone());
    let building = thread::spawn(move || {
        let pinned = own.pin(own.segment_id(0, 0)).expect("nothing is recycled");
        table.build(&pinned);
    });
    assert!(store(&mut writer));
    writer.seal();
    let pinned = ring.pin(ring.segment_id(0, 0)).expect("nothing is recycled");
    for number in 0..2 {
        assert!(summaries.may_hold(&pinned, &KeyTest::port(key(number).source_port)), "denied");
    }
    building.join().expect("the builder");
}

/// A summary speaks of its own segment only, whatever the slot holds by now.
fn summaries_lapped() {
    let ring = ring(2, 1);
    let mut writer = lane(&ring, 0);
    assert_eq!(store_sealed(&mut writer, 2), 0);
    let summaries = Summaries::new(&ring);
    let (own, table) = (ring.clone(), summaries.clone());
    let building = thread::spawn(move || {
        if let Some(pinned) = own.pin(own.segment_id(0, 0)) {
            table.build(&pinned);
        }
    });
    store_sealed(&mut writer, 1);
    if let Some(pinned) = ring.pin(ring.segment_id(0, 2)) {
        assert!(summaries.may_hold(&pinned, &KeyTest::port(key(2).source_port)), "denied");
    }
    building.join().expect("the builder");
    if let Some(pinned) = ring.pin(ring.segment_id(0, 0)) {
        assert!(!summaries.may_hold(&pinned, &KeyTest::port(key(2).source_port)), "what it lacks is known");
    }
}

/// Reads all that an outside reader finds, and holds each packet against what was stored; how many.
fn read_outside(reader: &mut OutsideReader) -> u64 {
    let mut packets = 0;
    while let Some(batch) = reader.next_batch().expect("a ring that tells the truth") {
        let mut numbers = batch.first_packet..;
        for (block, number) in batch.blocks().zip(&mut numbers) {
            assert_eq!(block.data(), data(batch.lane, number), "foreign bytes");
        }
        packets += u64::from(batch.packets);
    }
    packets
}

/// What an outside reader of all must have in the end: each packet read or missed.
fn read_or_missed(mut reader: OutsideReader, packets: u64) {
    read_outside(&mut reader);
    let counts = reader.counts();
    assert_eq!((counts.began + counts.read + counts.missed, counts.behind), (packets, 0), "read or missed");
}

/// A ring that is read from outside.
fn ring_of_copies() -> Arc<Ring> {
    COPIES.set(true);
    let ring = ring(2, 1);
    COPIES.set(false);
    ring
}

/// Two commits in one segment: a reader that holds nothing looks at the open one.
fn outside_open() {
    let ring = ring_of_copies();
    let mut writer = lane(&ring, 0);
    let mut reader = OutsideReader::over(View::of(&ring), Begin::Since(i64::MIN));
    let reading = thread::spawn(move || {
        read_outside(&mut reader);
        reader
    });
    assert!(store(&mut writer) && store(&mut writer));
    writer.seal();
    let reader = reading.join().expect("the reader");
    drop(writer);
    read_or_missed(reader, 2);
}

/// A segment is recycled while a reader that holds nothing looks at it: what it copied of that is forgotten.
fn outside_lapped() {
    let ring = ring_of_copies();
    let mut writer = lane(&ring, 0);
    assert_eq!(store_sealed(&mut writer, 2), 0, "nothing is pinned");
    let mut reader = OutsideReader::over(View::of(&ring), Begin::Since(i64::MIN));
    let reading = thread::spawn(move || {
        read_outside(&mut reader);
        reader
    });
    assert_eq!(store_sealed(&mut writer, 1), 0, "nothing is pinned");
    let reader = reading.join().expect("the reader");
    drop(writer);
    read_or_missed(reader, 3);
}

/// A segment that was held for a turn, so that no entry leads to it, is found by a reader from outside while it is let go and
/// recycled.
fn outside_held() {
    let ring = ring_of_copies();
    let mut writer = lane(&ring, 0);
    assert_eq!(store_sealed(&mut writer, 1), 0, "nothing is pinned");
    let mut reader = OutsideReader::over(View::of(&ring), Begin::Since(i64::MIN));
    let held = ring.pin(ring.segment_id(0, 0)).expect("it is there");
    assert_eq!(store_sealed(&mut writer, 2), 0, "one is free");
    let reading = thread::spawn(move || {
        read_outside(&mut reader);
        reader
    });
    drop(held);
    assert_eq!(store_sealed(&mut writer, 1), 0, "nothing is pinned");
    let reader = reading.join().expect("the reader");
    drop(writer);
    read_or_missed(reader, 4);
}
