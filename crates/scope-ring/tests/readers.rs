//! Kinds of readers: holding, groups, steering by flow, waiting; for each
//! `published = seen + missed + behind`.

mod stand;

use proptest::prelude::*;
use scope_packet::KeyEntry;
use scope_ring::budget::PinBudget;
use scope_ring::{Reader, ReaderCounts, ReaderGroup, Ring, Steering};
use stand::{Dice, KIB, append, feed, feed_segments, head, lane, ring};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Reads everything that is there; the numbers of lane 0's packets, each checked by its bytes.
fn read_all(reader: &mut Reader) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(batch) = reader.next_batch() {
        for (number, block) in (batch.first_packet()..).zip(batch.blocks()) {
            assert!(
                block.data() == stand::bytes_of(batch.lane(), number, block.data().len()),
                "packet {number}"
            );
            numbers.push(number);
        }
    }
    numbers
}

fn published(ring: &Ring, lane: usize) -> u64 {
    ring.counters().lanes[lane].packets
}

fn check_accounting(ring: &Ring, lane: usize, counts: ReaderCounts) {
    assert_eq!(counts.seen + counts.missed + counts.behind, published(ring, lane), "{counts:?}");
}

#[test]
fn a_batch_lends_its_key_entries_with_its_blocks() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = Reader::new(&ring);
    let mut number = 0u16;
    for packets in [1, 5, 64, 700, 3] {
        for _ in 0..packets {
            number += 1;
            assert!(append(
                &mut writer,
                0,
                head(100, 7),
                KeyEntry { source_port: number, ..Default::default() }
            ));
        }
        writer.commit();
        while let Some(batch) = reader.next_batch() {
            assert_eq!(batch.entries().len(), batch.packets());
            let ports: Vec<u16> = batch.entries().iter().map(|entry| entry.source_port).collect();
            let expected = (0..batch.packets() as u64).map(|index| (batch.first_packet() + index + 1) as u16);
            assert_eq!(ports, expected.collect::<Vec<_>>());
            assert_eq!(batch.entries().get(batch.packets() - 1).source_port, *ports.last().unwrap());
        }
    }
    assert_eq!(reader.counts(0).seen, number as u64);
}

#[test]
fn a_lossy_reader_keeps_the_open_segment_that_it_stands_in_until_it_has_read_it_to_its_end() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = Reader::new(&ring);
    feed(&mut writer, 10, 1000);
    assert_eq!((read_all(&mut reader).len(), reader.held()), (10, 1));
    feed_segments(&ring, &mut writer, 100);
    let second =
        ring.pin(ring.segment_id(0, 85)).expect("the oldest but the one that is held").first_packet();
    let end = ring.pin(ring.segment_id(0, 0)).map(|pinned| pinned.committed().packets as u64);
    assert!(end.is_some(), "its entry in the directory is used again; it is held, so it stays reachable");
    let rest = reader
        .next_batch()
        .map(|batch| (batch.first_packet(), batch.missed_before(), batch.packets() as u64));
    let Some((10, 0, packets)) = rest else { panic!("the rest of the first segment: {rest:?}") };
    let next = reader.next_batch().map(|batch| (batch.first_packet(), batch.missed_before()));
    assert_eq!(next, Some((second, second - 10 - packets)));
    read_all(&mut reader);
    writer.seal();
    read_all(&mut reader);
    assert_eq!(reader.held(), 0, "what is sealed and read is let go");
    check_accounting(&ring, 0, reader.counts(0));
}

#[test]
fn a_holding_reader_keeps_its_allowance_of_the_oldest_and_counts_the_rest() {
    let ring = ring(32, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let budget = Arc::new(PinBudget::new(8));
    let mut holding = Reader::holding(&ring, budget.take(8, 1));
    let mut lossy = Reader::new(&ring);
    for segments in 1..100 {
        feed_segments(&ring, &mut writer, segments);
        holding.hold();
        assert!(holding.held() <= 8);
    }
    let first_9 = ring.pin(ring.segment_id(0, 99 - 10)).expect("recent").first_packet() / (99 - 10) * 8; // segments are alike
    let numbers = read_all(&mut holding);
    assert!(numbers.starts_with(&(0..first_9).collect::<Vec<_>>()), "the first 8 segments were held");
    let counts = holding.counts(0);
    check_accounting(&ring, 0, counts);
    assert_eq!((counts.seen, counts.behind), (numbers.len() as u64, 0));
    assert!(counts.missed > 0, "the middle is missed");
    read_all(&mut lossy);
    assert!(lossy.counts(0).missed > counts.missed);
    assert!(holding.held() <= 1, "what is read is let go: {}", holding.held());
    drop(holding);
    assert_eq!(budget.taken(), 0);
}

#[test]
fn a_worker_that_waits_for_a_holding_reader_loses_nothing() {
    let ring = ring(32, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = Reader::holding(&ring, ring.budget().take(1, 1));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (own, ended) = (&ring, &ended);
        let feeder = scope.spawn(move || {
            for _ in 0..4000 {
                while own.must_wait(0) {
                    std::thread::yield_now();
                }
                feed(&mut writer, 16, 1000);
            }
            ended.store(true, Ordering::Release);
        });
        let mut next = 0;
        loop {
            let last = ended.load(Ordering::Acquire);
            while let Some(batch) = reader.next_batch() {
                assert_eq!((batch.first_packet(), batch.missed_before()), (next, 0));
                next += batch.packets() as u64;
            }
            if last {
                break;
            }
            reader.wait();
        }
        feeder.join().expect("the feeder");
        assert_eq!(next, 64_000);
    });
    assert_eq!(reader.counts(0), ReaderCounts { seen: 64_000, missed: 0, behind: 0 });
}

#[test]
fn every_segment_goes_to_one_member_and_a_member_that_ends_leaves_its_own_to_the_others() {
    let ring = ring(64, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let group = ReaderGroup::new(&ring);
    let (mut one, mut two) = (group.member(), group.member());
    feed(&mut writer, 100, 1000);
    let first = one.next_batch().map(|batch| (batch.first_packet(), batch.packets()));
    let second = two.next_batch().map(|batch| batch.first_packet());
    assert!(
        first.is_some() && second.is_some() && first.map(|first| first.0) != second,
        "{first:?} {second:?}"
    );
    feed_segments(&ring, &mut writer, 10);
    let mut numbers: Vec<u64> = (first.unwrap().0..).take(first.unwrap().1 as usize).collect();
    drop(one);
    let mut counts = group.counts(0);
    check_accounting(&ring, 0, counts);
    numbers.extend(read_all(&mut two));
    numbers.extend(second.unwrap()..second.unwrap() + counts.seen - first.unwrap().1 as u64);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..published(&ring, 0)).collect::<Vec<_>>());
    counts = group.counts(0);
    assert_eq!((counts.seen, counts.missed, counts.behind), (published(&ring, 0), 0, 0));
}

#[test]
fn a_group_that_was_lapped_knows_exactly_what_it_missed() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let group = ReaderGroup::new(&ring);
    let (mut one, mut two) = (group.member(), group.member());
    let mut seen = BTreeSet::new();
    let mut reported = 0;
    let mut dice = Dice(5);
    for round in 0..61 {
        let segments = ring.lane_next(0) + dice.below(40);
        feed_segments(&ring, &mut writer, segments);
        if dice.one_in(4) {
            one = group.member(); // the one before ends, in the middle of a segment or not
        }
        let reader = if dice.one_in(2) { &mut one } else { &mut two };
        let batches = if round < 60 { dice.below(6) } else { u64::MAX };
        for _ in 0..batches {
            let Some(batch) = reader.next_batch() else { break };
            reported += batch.missed_before();
            for number in (batch.first_packet()..).take(batch.packets() as usize) {
                assert!(seen.insert(number));
            }
        }
        check_accounting(&ring, 0, group.counts(0));
    }
    for reader in [&mut one, &mut two] {
        for number in read_all(reader) {
            assert!(seen.insert(number));
        }
    }
    let counts = group.counts(0);
    assert_eq!((counts.seen, counts.behind), (seen.len() as u64, 0));
    assert!(counts.missed > 0);
    assert_eq!(reported, counts.missed, "each gap is reported once, with the batch behind it");
    assert_eq!(counts.seen + counts.missed, published(&ring, 0));
}

#[test]
fn what_a_group_missed_is_told_with_the_packets_behind_it_whoever_gets_them() {
    let ring = ring(32, 64 * KIB, 2);
    let (mut one, mut two) = (lane(&ring, 0), lane(&ring, 1));
    let group = ReaderGroup::new(&ring);
    let (mut asking, mut other) = (group.member(), group.member());
    feed(&mut one, 50, 100);
    one.seal();
    feed_segments(&ring, &mut two, 100);
    let of_lane_0 = |member: &mut Reader| {
        let mut reported = Vec::new();
        while let Some(batch) = member.next_batch() {
            if batch.lane() == 0 {
                reported.push((batch.first_packet(), batch.missed_before()));
            }
        }
        reported
    };
    assert_eq!(of_lane_0(&mut asking), [], "all of lane 0 is recycled, which this member has found out");
    feed(&mut one, 10, 100);
    assert_eq!(of_lane_0(&mut other), [(50, 50)]);
    assert_eq!(of_lane_0(&mut asking), []);
}

#[test]
fn a_lane_that_is_gone_altogether_is_missed_by_a_group_and_by_a_holding_reader() {
    let ring = ring(32, 64 * KIB, 2);
    let (mut one, mut two) = (lane(&ring, 0), lane(&ring, 1));
    feed(&mut one, 50, 100);
    drop(one);
    let group = ReaderGroup::new(&ring);
    let mut member = group.member();
    feed_segments(&ring, &mut two, 100);
    let mut holding = Reader::holding(&ring, ring.budget().take(2, 1));
    read_all(&mut member);
    read_all(&mut holding);
    assert_eq!(group.counts(0), ReaderCounts { seen: 0, missed: 50, behind: 0 });
    assert_eq!(holding.counts(0), ReaderCounts { seen: 0, missed: 50, behind: 0 });
    check_accounting(&ring, 1, group.counts(1));
    check_accounting(&ring, 1, holding.counts(1));
}

#[test]
fn three_members_share_what_two_writers_write() {
    let ring = ring(48, 64 * KIB, 2);
    let group = ReaderGroup::new(&ring);
    let (stop, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let writers = [lane(&ring, 0), lane(&ring, 1)];
    let seen: Vec<(u32, u64)> = std::thread::scope(|scope| {
        let (ring, group, stop, ended) = (&ring, &group, &stop, &ended);
        let writers = writers.map(|mut writer| {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    feed(&mut writer, 40, 300);
                    std::thread::sleep(Duration::from_micros(100));
                }
            })
        });
        let members =
            [0, 0, 3].map(|slow_ms| scope.spawn(move || follow_as_member(ring, group, ended, slow_ms)));
        std::thread::sleep(Duration::from_millis(1500));
        let begun = Instant::now();
        while (0..2).any(|lane| group.counts(lane).seen == 0) && begun.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("a writer");
        }
        ended.store(true, Ordering::Release);
        members.into_iter().flat_map(|member| member.join().expect("a member")).collect()
    });
    let once: BTreeSet<_> = seen.iter().collect();
    assert_eq!(once.len(), seen.len(), "each packet once");
    read_all(&mut group.member()); // what the one left that ended last
    for lane in 0..2 {
        let counts = group.counts(lane);
        check_accounting(&ring, lane as usize, counts);
        let own = seen.iter().filter(|seen| seen.0 == lane).count() as u64;
        assert!(counts.behind == 0 && own > 0 && counts.seen >= own, "{own} of {counts:?}");
    }
}

/// Follows until the writers have ended and nothing is left; lane and number of each packet. A slow one ends
/// again and again in the middle of its segments.
fn follow_as_member(
    ring: &Ring,
    group: &Arc<ReaderGroup>,
    ended: &AtomicBool,
    slow_ms: u64,
) -> Vec<(u32, u64)> {
    let mut seen = Vec::new();
    let mut reader = group.member();
    loop {
        let last = ended.load(Ordering::Acquire);
        while let Some(batch) = reader.next_batch() {
            seen.extend(
                (batch.first_packet()..).take(batch.packets() as usize).map(|number| (batch.lane(), number)),
            );
            std::thread::sleep(Duration::from_millis(slow_ms));
            check_now(ring, group);
        }
        if last {
            return seen;
        }
        reader.wait();
        if slow_ms > 0 {
            reader = group.member();
        }
    }
}

/// Packet accounting at any moment: never more seen and missed than is published afterwards.
fn check_now(ring: &Ring, group: &ReaderGroup) {
    for lane in 0..2 {
        let counts = group.counts(lane);
        assert!(counts.seen + counts.missed <= published(ring, lane as usize), "{counts:?}");
    }
}

#[test]
fn an_idle_reader_sees_a_packet_soon_after_its_commit() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = Reader::new(&ring);
    for number in 0..200 {
        assert!(reader.next_batch().is_none());
        reader.wait(); // nobody writes: it ends by itself
        feed(&mut writer, 1, 100);
        reader.wait(); // at most a millisecond's sleep
        let batch = reader.next_batch().expect("what is committed is seen at the next look");
        assert_eq!((batch.first_packet(), batch.packets()), (number, 1));
    }
}

/// Any entry, few flows, so that both directions occur.
fn entry() -> impl Strategy<Value = KeyEntry> {
    (0u8..6, 0u8..6, 0u16..4, 0u16..4, 0u32..1 << 13).prop_map(
        |(source, destination, source_port, destination_port, word)| KeyEntry {
            source: [10, 0, 0, source],
            destination: [10, 0, 0, destination],
            source_port,
            destination_port,
            word,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn both_directions_of_a_flow_fall_to_one_reader_and_every_packet_to_exactly_one(
        entries in proptest::collection::vec(entry(), 1..300), members in 1u32..6,
    ) {
        let ring = ring(16, 64 * KIB, 1);
        let mut writer = lane(&ring, 0);
        for entry in &entries {
            prop_assert!(append(&mut writer, 0, head(60, 1), *entry));
        }
        writer.commit();
        let mut taken = vec![0; entries.len()];
        for member in 0..members {
            let mut reader = Reader::new(&ring);
            while let Some(batch) = reader.next_batch() {
                for (index, entry, block) in batch.steered(Steering::new(member, members)) {
                    let number = batch.first_packet() + index as u64;
                    taken[number as usize] += 1;
                    let expected = entries[number as usize];
                    prop_assert_eq!(KeyEntry { word: entry.word & 0x1fff, ..entry }, expected);
                    prop_assert_eq!(block.data(), &stand::bytes_of(0, number, 60)[..]);
                }
            }
        }
        prop_assert!(taken.iter().all(|&times| times == 1));
        for entry in &entries {
            let back = KeyEntry {
                source: entry.destination,
                destination: entry.source,
                source_port: entry.destination_port,
                destination_port: entry.source_port,
                ..*entry
            };
            prop_assert_eq!(Steering::flow_hash(entry), Steering::flow_hash(&back));
        }
    }
}

#[test]
fn steering_deals_flows_out_evenly() {
    let mut taken = [0; 4];
    for n in 0..4000u16 {
        let entry = KeyEntry {
            source: [10, 0, (n >> 8) as u8, n as u8],
            destination: [10, 1, 0, 1],
            source_port: 1024 + n,
            ..Default::default()
        };
        let member =
            (0..4).position(|member| Steering::new(member, 4).takes(&entry)).expect("somebody takes it");
        taken[member] += 1;
    }
    assert!(taken.iter().all(|&flows| (850..1150).contains(&flows)), "{taken:?}");
}
