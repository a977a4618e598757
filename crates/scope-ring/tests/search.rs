//! Search inside the ring, by time and by key: always what a naive walk over every packet finds.

mod stand;

use proptest::prelude::*;
use scope_packet::KeyEntry;
use scope_packet::headers::Kind;
use scope_ring::search::PATTERNS_MAX;
use scope_ring::{KeyTest, LaneWriter, Pinned, Ring, SegmentQueue, Summaries, Summarizer, Summary};
use stand::{Dice, KIB, append, feed_segments, head, lane, ring};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// One packet as a naive walk sees it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    lane: u32,
    sequence: u64,
    index: u32,
    time_ns: i64,
    entry: KeyEntry,
}

/// Every packet that is in the ring, block by block.
fn walk(ring: &Arc<Ring>) -> Vec<Seen> {
    let mut seen = Vec::new();
    for lane in 0..ring.lanes() {
        for sequence in ring.oldest_possible(lane)..ring.lane_next(lane) {
            let Some(pinned) = ring.pin(ring.segment_id(lane, sequence)) else { continue };
            let blocks = pinned.blocks(0, pinned.committed().bytes);
            seen.extend((0..).zip(blocks).map(|(index, block)| {
                let entry = pinned.entry(index);
                Seen { lane, sequence, index, time_ns: block.time_ns(), entry }
            }));
        }
    }
    seen
}

/// A few hosts, ports and protocols; partial entries one time in `partial`.
fn entry(dice: &mut Dice, partial: u64) -> KeyEntry {
    let address = |dice: &mut Dice| [10, 0, dice.below(3) as u8, dice.below(12) as u8];
    KeyEntry {
        source: address(dice),
        destination: address(dice),
        source_port: dice.below(20) as u16,
        destination_port: dice.below(20) as u16,
        word: [6, 17, 1][dice.below(3) as usize]
            | (dice.below(4) as u32) << 8
            | (dice.below(4) as u32) << 10
            | u32::from(dice.one_in(partial)) << 12,
    }
}

/// A test of up to a few terms.
fn test(dice: &mut Dice) -> KeyTest {
    let term = |dice: &mut Dice| {
        let address = [10, 0, dice.below(3) as u8, dice.below(14) as u8];
        let port = dice.below(22) as u16;
        match dice.below(10) {
            0 => KeyTest::host(address),
            1 => KeyTest::source(address),
            2 => KeyTest::destination(address),
            3 => KeyTest::port(port),
            4 => KeyTest::source_port(port),
            5 => KeyTest::destination_port(port),
            6 => KeyTest::protocol([6, 17, 1, 99][dice.below(4) as usize]),
            7 => KeyTest::kind([Kind::Other, Kind::Ipv4, Kind::Ipv6, Kind::Arp][dice.below(4) as usize]),
            8 => KeyTest::vlan(dice.one_in(2)).and(KeyTest::fragment(dice.one_in(2))),
            _ => KeyTest::net_v4([10, 0, address[2], 0], [255, 255, 255, 0]),
        }
    };
    let mut test = term(dice);
    for _ in 0..dice.below(4) {
        let other = term(dice);
        test = if dice.one_in(3) { test.or(other) } else { test.and(other) };
    }
    test
}

/// Writes `packets` packets into the lanes with times that mostly ascend; one time in `back` they step back.
fn write(dice: &mut Dice, writers: &mut [LaneWriter], packets: u64, back: u64, partial: u64) {
    let mut now_ns = 1_000_000;
    for _ in 0..packets {
        now_ns += dice.below(100) as i64;
        let time_ns = if dice.one_in(back) { now_ns - dice.below(50_000) as i64 } else { now_ns };
        let lanes = writers.len() as u64;
        let writer = &mut writers[dice.below(lanes) as usize];
        let entry = entry(dice, partial);
        assert!(append(writer, 0, head(dice.below(1200) as usize, time_ns), entry), "a segment is free");
        if dice.one_in(20) {
            writer.commit();
        }
    }
    for writer in writers.iter_mut() {
        writer.commit();
    }
}

/// By time: the first packet at or after a moment, and every window.
fn check_time(ring: &Arc<Ring>, dice: &mut Dice) {
    let all = walk(ring);
    let last_ns = all.iter().map(|seen| seen.time_ns).max().unwrap_or(0);
    for _ in 0..40 {
        let from_ns = 900_000 + dice.below((last_ns - 800_000).max(1) as u64) as i64;
        let expected = all
            .iter()
            .filter(|seen| seen.time_ns >= from_ns)
            .min_by_key(|seen| (seen.time_ns, seen.lane, seen.sequence, seen.index));
        let found = ring.find_time(from_ns);
        let place = found
            .as_ref()
            .map(|found| (found.time_ns, found.pinned.lane(), found.pinned.sequence(), found.index));
        assert_eq!(
            place,
            expected.map(|seen| (seen.time_ns, seen.lane, seen.sequence, seen.index)),
            "from {from_ns}"
        );
        let to_ns = from_ns + dice.below(60_000) as i64;
        let expected: BTreeSet<_> = all
            .iter()
            .filter(|seen| (from_ns..=to_ns).contains(&seen.time_ns))
            .map(|seen| (seen.lane, seen.sequence, seen.index))
            .collect();
        let mut found = Vec::new();
        for span in ring.overlapping(from_ns, to_ns) {
            let pinned = ring.pin(span.segment).expect("nobody writes");
            found.extend(
                pinned
                    .within(from_ns, to_ns)
                    .map(|(index, _)| (span.segment.lane, span.segment.sequence, index)),
            );
        }
        assert_eq!(found.len(), expected.len(), "each once");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }
}

/// By key: exactly the entries that the naive test selects, whatever the stretch.
/// What one builds, or asks for, is built once, and right.
fn check_shared(summaries: &Summaries, pinned: &Pinned, by_asking: bool) {
    let before = summaries.built();
    let committed = pinned.committed();
    let expected =
        committed.sealed.then(|| Summary::new(pinned.column(0, committed.packets), pinned.segment_bytes()));
    if by_asking {
        assert_eq!(summaries.of(pinned), expected);
    }
    assert_eq!(summaries.build(pinned), committed.sealed);
    assert_eq!(summaries.of(pinned), expected);
    assert_eq!(summaries.built() - before, u64::from(committed.sealed));
}

fn check_key(ring: &Arc<Ring>, dice: &mut Dice, summaries: &Arc<Summaries>) {
    let all = walk(ring);
    for _ in 0..20 {
        let test = test(dice);
        let expected: Vec<_> = all
            .iter()
            .filter(|seen| test.matches(&seen.entry))
            .map(|seen| (seen.lane, seen.sequence, seen.index))
            .collect();
        let queue = SegmentQueue::new(ring, test.clone(), (0, i64::MAX), Some(summaries.clone()));
        let mut found = Vec::new();
        while let Some(pinned) = queue.take() {
            let indices = pinned.matches(queue.test(), 0, pinned.committed().packets);
            found.extend(indices.map(|index| (pinned.lane(), pinned.sequence(), index)));
        }
        found.sort_unstable();
        assert_eq!(found, expected, "{test:?}");
        if let Some(pinned) = ring.pin(ring.segment_id(0, ring.lane_next(0) - 1)) {
            let packets = pinned.committed().packets;
            let from = dice.below(packets as u64 + 1) as u32;
            let to = from + dice.below((packets - from) as u64 + 1) as u32;
            let expected: Vec<u32> = (from..to).filter(|&index| test.matches(&pinned.entry(index))).collect();
            assert_eq!(pinned.matches(&test, from, to).collect::<Vec<_>>(), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_search_finds_what_a_naive_walk_finds(
        seed in any::<u64>(), packets in 1u64..6000, back in prop_oneof![Just(u64::MAX), 1u64..2000], partial in prop_oneof![Just(u64::MAX), 1u64..500],
    ) {
        let mut dice = Dice(seed);
        let ring = ring(40, 64 * KIB, 2);
        let mut writers = [lane(&ring, 0), lane(&ring, 1)];
        write(&mut dice, &mut writers, packets, back, partial);
        check_time(&ring, &mut dice);
        let summaries = Summaries::new(&ring);
        for lane in 0..2 {
            for sequence in ring.oldest_possible(lane)..ring.lane_next(lane) {
                if let Some(pinned) = ring.pin(ring.segment_id(lane, sequence)) && !dice.one_in(5) {
                    check_shared(&summaries, &pinned, dice.one_in(2));
                }
            }
        }
        check_key(&ring, &mut dice, &summaries);
        write(&mut dice, &mut writers, packets / 2, back, partial); // summaries of what is recycled now must not count
        check_key(&ring, &mut dice, &summaries);
    }
}

#[test]
fn summaries_skip_segments_without_the_host_and_only_those() {
    let ring = ring(64, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let summaries = Summaries::new(&ring);
    let summarizer = Summarizer::start(&ring, &summaries).expect("a thread");
    for sequence in 0..50u8 {
        while ring.lane_next(0) <= sequence as u64 || !writer.next_packet().is_multiple_of(40) {
            let port = 1000 + sequence as u16;
            let entry = KeyEntry {
                source: [10, 0, 0, sequence],
                destination: [10, 9, 9, 9],
                source_port: port,
                destination_port: 53,
                word: 17 | 1 << 8,
            };
            let head = head(1000, writer.next_packet() as i64);
            assert!(append(&mut writer, 0, head, entry));
        }
    }
    writer.commit();
    let begun = Instant::now();
    while summaries.built() < ring.lane_next(0) - 1 {
        assert!(begun.elapsed() < Duration::from_secs(120), "summaries of what is sealed are built");
        std::thread::sleep(Duration::from_millis(1));
    }
    let search = |test: KeyTest| {
        let queue = SegmentQueue::new(&ring, test, (0, i64::MAX), Some(summaries.clone()));
        while queue.take().is_some() {}
        queue.counts()
    };
    let segments = ring.lane_next(0);
    let one = search(KeyTest::host([10, 0, 0, 7]));
    assert!(
        one.scanned >= 2 && one.scanned <= 8 && one.skipped + one.scanned == segments,
        "{one:?} of {segments}"
    );
    assert_eq!(search(KeyTest::destination_port(53)).skipped, 0);
    assert!(search(KeyTest::protocol(6)).scanned == 1, "only the open one");
    assert!(search(KeyTest::host([10, 9, 9, 9]).and(KeyTest::port(1003))).skipped > segments / 2);
    drop(summarizer);
}

#[test]
fn threads_share_the_segments_of_a_search() {
    let ring = ring(64, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    feed_segments(&ring, &mut writer, 60);
    let queue = SegmentQueue::new(&ring, KeyTest::all(), (0, i64::MAX), None);
    let counted = std::thread::scope(|scope| {
        let threads = [0; 4].map(|_| {
            scope.spawn(|| {
                let mut packets = 0;
                while let Some(pinned) = queue.take() {
                    packets += pinned.matches(queue.test(), 0, pinned.committed().packets).count();
                }
                packets as u64
            })
        });
        threads.into_iter().map(|thread| thread.join().expect("a searcher")).sum::<u64>()
    });
    assert_eq!(counted, ring.counters().lanes[0].packets);
    assert_eq!((queue.counts().scanned, queue.counts().gone), (60, 0));
}

#[test]
fn one_packet_from_the_far_future_hides_nothing_from_a_search_by_time() {
    let ring = ring(32, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    feed_segments(&ring, &mut writer, 5);
    assert!(append(&mut writer, 0, head(100, i64::MAX - 1), KeyEntry::default()));
    feed_segments(&ring, &mut writer, 20);
    let last = writer.next_packet() - 1;
    for number in [0, 1, 17, last / 2, last] {
        let found = ring.find_time(number as i64 * 1000).expect("it is there");
        assert_eq!(found.time_ns, number as i64 * 1000);
        assert_eq!(found.pinned.first_packet() + found.index as u64, number);
    }
    assert_eq!(ring.find_time(last as i64 * 1000 + 1).expect("the one").time_ns, i64::MAX - 1);
    assert!(ring.find_time(i64::MAX).is_none());
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn searching_while_a_writer_writes_finds_everything_that_was_committed_before() {
    let ring = ring(64, 64 * KIB, 2);
    let (mut writer, _idle) = (lane(&ring, 0), lane(&ring, 1));
    let (stop, committed) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for time_ns in 1.. {
                assert!(append(&mut writer, 0, head(700, time_ns), KeyEntry::default()));
                writer.commit();
                committed.store(time_ns, Ordering::SeqCst);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let stops = StopOnDrop(&stop); // however the looking ends, the writer does
        let (begun, mut looks) = (Instant::now(), 0);
        let mut dice = Dice(1);
        while looks <= 5000 && begun.elapsed() < Duration::from_secs(120) {
            let newest_ns = committed.load(Ordering::SeqCst);
            if newest_ns == 0 {
                continue; // nothing is there yet
            }
            let from_ns = (newest_ns - dice.below(2000) as i64).max(1);
            let found = ring.find_time(from_ns).map(|found| found.time_ns);
            let recycled = committed.load(Ordering::SeqCst) - from_ns > 4000;
            assert!(found == Some(from_ns) || recycled, "looked for {from_ns}, found {found:?}");
            looks += u64::from(!recycled);
        }
        drop(stops);
        writing.join().expect("the writer");
        assert!(looks > 5000, "{looks}");
    });
}

#[test]
fn a_test_with_too_many_terms_still_loses_nothing() {
    let many = (0..PATTERNS_MAX as u16 * 2).map(KeyTest::port).reduce(KeyTest::or).expect("some");
    let mut dice = Dice(3);
    assert!((0..1000).all(|_| many.matches(&entry(&mut dice, u64::MAX))));
}
