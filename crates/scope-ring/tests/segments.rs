//! Following the ring segment by segment: everything published was taken, is missed, or is still to be taken.

mod stand;

use proptest::prelude::*;
use scope_packet::KeyEntry;
use scope_ring::budget::PinBudget;
use scope_ring::{Append, SegmentReader, Taken};
use stand::{Dice, KIB, add_interface, feed, feed_segments, lane, ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers of the packets that a taken segment has by now, each checked by its bytes.
fn numbers(taken: &Taken) -> Vec<u64> {
    let pinned = &taken.pinned;
    let committed = pinned.committed();
    let blocks = pinned.blocks(0, committed.bytes);
    (pinned.first_packet()..)
        .zip(blocks)
        .map(|(number, block)| {
            assert!(block.data() == stand::bytes_of(pinned.lane(), number, block.data().len()));
            number
        })
        .collect()
}

#[test]
fn an_open_segment_is_taken_once_it_has_a_packet_and_once_only() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = SegmentReader::new(&ring, Arc::new(PinBudget::new(4)).take(4, 1));
    assert!(reader.take().is_none());
    assert!(writer.claim());
    assert!(reader.take().is_none(), "no packet yet");
    feed(&mut writer, 3, 1000);
    let taken = reader.take().expect("three packets");
    assert_eq!((numbers(&taken), taken.pinned.bytes_after()), (vec![0, 1, 2], None));
    assert!(reader.take().is_none());
    feed(&mut writer, 2, 1000);
    assert_eq!(numbers(&taken), [0, 1, 2, 3, 4], "it goes on");
    writer.seal();
    assert_eq!(taken.pinned.bytes_after(), Some(5000));
    reader.done(taken.pinned.id());
    assert_eq!(reader.held(), 0);
    let published = ring.counters().lanes[0];
    assert_eq!(reader.rest(0, (published.packets, published.bytes)).packets, 0);
}

#[test]
fn who_takes_too_late_knows_how_many_packets_and_bytes_it_missed() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = SegmentReader::new(&ring, Arc::new(PinBudget::new(2)).take(2, 1));
    feed_segments(&ring, &mut writer, 3);
    let (first, second) = (reader.take().unwrap(), reader.take().unwrap());
    assert!(reader.take().is_none(), "two may be held");
    feed_segments(&ring, &mut writer, 60);
    let end = second.pinned.first_packet() + u64::from(second.pinned.committed().packets);
    reader.done(first.pinned.id());
    reader.done(second.pinned.id());
    drop((first, second));
    let third = reader.take().expect("the oldest that is left");
    assert_eq!(third.missed.first_packet, end);
    assert_eq!(third.missed.packets, third.pinned.first_packet() - end);
    assert_eq!(third.missed.bytes, third.missed.packets * 1000);
    assert!(third.missed.packets > 0);
}

#[test]
fn a_worker_that_can_wait_waits_for_what_is_taken_and_not_done_whatever_the_order_of_doing() {
    let ring = ring(64, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = SegmentReader::new(&ring, Arc::new(PinBudget::new(24)).take(24, 1));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (own, ended) = (&ring, &ended);
        let feeder = scope.spawn(move || {
            for number in 0..4000 * 16 {
                let head = stand::head(1000, number);
                let data = stand::bytes_of(0, number as u64, 1000);
                while matches!(writer.append(0, &head, KeyEntry::default(), &data), Append::NeedsSegment) {
                    while own.must_wait(0) || !writer.claim_unneeded() {
                        std::thread::yield_now();
                    }
                }
            }
            writer.commit();
            writer.seal();
            ended.store(true, Ordering::Release);
        });
        let (mut held, mut seen, mut dice) = (Vec::new(), 0, Dice(5));
        loop {
            let last = ended.load(Ordering::Acquire);
            while let Some(taken) = reader.take() {
                assert_eq!(taken.missed.packets, 0, "nothing is lost to speed");
                held.push(taken);
            }
            if last && held.is_empty() {
                break;
            }
            // Two thirds of what is taken stay for long: newer ones are done before.
            let sealed: Vec<usize> =
                (0..held.len()).filter(|&at| held[at].pinned.committed().sealed).collect();
            if let Some(&at) = sealed.get(dice.below(sealed.len().max(1) as u64) as usize) {
                let taken: Taken = held.remove(at);
                seen += numbers(&taken).len();
                reader.done(taken.pinned.id());
            }
        }
        feeder.join().unwrap();
        assert_eq!(seen, 4000 * 16);
    });
}

#[test]
fn what_was_sealed_last_is_claimed_first_where_a_writer_asks_for_it() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let needed = ring.follower(|_| 0);
    let mut slots = Vec::new();
    let mut fill = |writer: &mut scope_ring::LaneWriter, number: i64| {
        assert!(writer.claim_newest_unneeded());
        let data = stand::bytes_of(0, number as u64, 1000);
        assert!(matches!(
            writer.append(0, &stand::head(1000, number), KeyEntry::default(), &data),
            Append::Stored(_)
        ));
        writer.commit();
        let sequence = ring.lane_next(0) - 1;
        slots
            .push(ring.pin(ring.segment_id(0, sequence)).expect("it is there").blocks(0, 4).bytes().as_ptr()
                as usize);
        writer.seal();
    };
    // All are needed: each takes another one.
    for number in 0..16 {
        fill(&mut writer, number);
    }
    assert!(!writer.claim_newest_unneeded(), "none is free");
    // The first eight are done with, then the sixteenth: that one is newest.
    needed.done_before(0, 8);
    fill(&mut writer, 16);
    needed.done_before(0, 17);
    fill(&mut writer, 17);
    fill(&mut writer, 18);
    assert_eq!(slots[16], slots[7], "the newest of those that nobody needs");
    assert_eq!(slots[17], slots[16], "used last, and needed no more");
    assert_ne!(slots[18], slots[17], "needed");
    let mut first = slots[..16].to_vec();
    first.sort_unstable();
    first.dedup();
    assert_eq!(first.len(), 16);
}

#[test]
fn workers_that_are_let_go_overrun_a_reader_which_knows_what_it_missed() {
    const PACKETS: u64 = 3000;
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = SegmentReader::new(&ring, Arc::new(PinBudget::new(4)).take(4, 1));
    std::thread::scope(|scope| {
        let own = &ring;
        let feeder = scope.spawn(move || {
            for number in 0..PACKETS {
                let head = stand::head(1000, number as i64);
                let data = stand::bytes_of(0, number, 1000);
                while matches!(writer.append(0, &head, KeyEntry::default(), &data), Append::NeedsSegment) {
                    while own.must_wait(0) || !writer.claim_unneeded() {
                        std::thread::yield_now();
                    }
                }
            }
            writer.commit();
            writer.seal();
        });
        while !ring.must_wait(0) {
            std::thread::yield_now();
        }
        let first = reader.take().expect("a segment");
        reader.let_workers_go();
        feeder.join().unwrap();
        let (mut seen, mut next) = (0, Some(first));
        while let Some(taken) = next {
            seen += taken.missed.packets + numbers(&taken).len() as u64;
            reader.done(taken.pinned.id());
            next = reader.take();
        }
        assert_eq!(seen, PACKETS);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_published_is_taken_or_missed_whatever_the_order(seed in any::<u64>()) {
        let ring = ring(32, 64 * KIB, 2);
        let mut writers = [lane(&ring, 0), lane(&ring, 1)];
        add_interface(&ring, &mut writers[1]);
        let mut dice = Dice(seed);
        let mut reader = SegmentReader::new(&ring, Arc::new(PinBudget::new(6)).take(6, 1));
        let mut held: Vec<Taken> = Vec::new();
        let (mut seen, mut missed, mut passed) = ([(0, 0); 2], [(0, 0); 2], [(0, 0); 2]);
        let mut finish = |reader: &mut SegmentReader, taken: Taken| {
            let lane = taken.pinned.lane() as usize;
            let before = seen[lane].0 + missed[lane].0 + taken.missed.packets; // and what was passed over
            missed[lane].0 += taken.missed.packets;
            missed[lane].1 += taken.missed.bytes;
            seen[lane].0 += numbers(&taken).len() as u64;
            seen[lane].1 += taken.pinned.bytes_after().expect("sealed") - taken.pinned.bytes_before();
            assert!(before <= taken.pinned.first_packet());
            reader.done(taken.pinned.id());
        };
        for _ in 0..400 {
            match dice.below(6) {
                0 | 1 => feed(&mut writers[dice.below(2) as usize], 1 + dice.below(200), 600),
                2 => writers[dice.below(2) as usize].seal(),
                3 => held.extend(reader.take()),
                4 => {
                    for (lane, missed) in reader.pass_recycled() {
                        passed[lane as usize].0 += missed.packets;
                        passed[lane as usize].1 += missed.bytes;
                    }
                }
                _ => {
                    if let Some(at) = held.iter().position(|taken| taken.pinned.committed().sealed) {
                        finish(&mut reader, held.remove(at));
                    }
                }
            }
            assert!(reader.held() <= 6);
        }
        writers.iter_mut().for_each(|writer| writer.seal());
        loop {
            held.extend(std::iter::from_fn(|| reader.take()));
            if held.is_empty() {
                break;
            }
            for taken in std::mem::take(&mut held) {
                finish(&mut reader, taken);
            }
        }
        let counters = ring.counters();
        for (lane, published) in (0u32..).zip(&counters.lanes) {
            let rest = reader.rest(lane, (published.packets, published.bytes));
            let lane = lane as usize;
            let [seen, missed, passed] = [seen[lane], missed[lane], passed[lane]];
            prop_assert_eq!(seen.0 + missed.0 + passed.0 + rest.packets, published.packets);
            prop_assert_eq!(seen.1 + missed.1 + passed.1 + rest.bytes, published.bytes);
        }
    }
}
