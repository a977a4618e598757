//! What earlier systems got wrong, one test each, named by the opposite.

mod stand;

use scope_packet::KeyEntry;
use scope_packet::pcapng::PacketHead;
use scope_ring::{Append, Reader, ReaderCounts};
use stand::{KIB, MIB, accounts, append, feed, feed_segments, head, lane, ring};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest that is waited for anything, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn an_idle_lane_holds_nobody_up() {
    let ring = ring(32, 64 * KIB, 2);
    let (mut idle, mut busy) = (lane(&ring, 0), lane(&ring, 1));
    feed(&mut idle, 1, 100);
    feed_segments(&ring, &mut busy, 32 * 10);
    let open =
        ring.pin(ring.segment_id(0, 0)).expect("the idle lane's open segment stays, and costs one segment");
    assert_eq!(open.committed().packets, 1);
    feed(&mut idle, 1, 100);
    assert_eq!(open.committed().packets, 2, "and goes on where it stopped");
    assert_eq!(ring.oldest_possible(1), 32 * 9);
    assert_eq!(accounts(&ring, 1).len(), 30, "all others are the busy lane's");
}

#[test]
fn a_lane_that_ended_holds_no_segment_for_ever() {
    let ring = ring(16, 64 * KIB, 2);
    let (mut ended, mut busy) = (lane(&ring, 0), lane(&ring, 1));
    feed(&mut ended, 5, 100);
    drop(ended);
    feed_segments(&ring, &mut busy, 17);
    assert!(ring.pin(ring.segment_id(0, 0)).is_none(), "its last segment took its turn");
    assert_eq!(accounts(&ring, 1).len(), 15);
}

#[test]
fn a_reader_that_holds_a_segment_for_a_second_and_a_half_stops_no_writer() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    feed(&mut writer, 10, 100);
    let (held, over, laps) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = Reader::new(&ring);
            let batch = reader.next_batch().expect("ten packets");
            let before = batch.blocks().bytes().to_vec();
            let begun = Instant::now();
            held.store(true, Ordering::Release);
            std::thread::sleep(Duration::from_millis(1500));
            // Held until the writer has done its laps, however fast the machine is; one that waits for the
            // reader does none.
            while laps.load(Ordering::Acquire) <= 50 && begun.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(1));
            }
            let (laps, after) = (laps.load(Ordering::Acquire), batch.blocks().bytes().to_vec());
            over.store(true, Ordering::Release);
            assert!(laps > 50, "{laps} laps while the segment was held");
            assert!(after == before, "what is held stays as it is");
        });
        while !held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        while !over.load(Ordering::Acquire) {
            feed(&mut writer, 64, 1000);
            laps.store(ring.lane_next(0) / 16, Ordering::Release);
        }
    });
}

#[test]
fn a_lapped_reader_knows_what_it_missed() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = Reader::new(&ring);
    feed(&mut writer, 100, 1000);
    writer.seal(); // an open segment would be kept
    let mut seen = 0;
    while let Some(batch) = reader.next_batch() {
        seen += batch.packets() as u64;
    }
    assert_eq!(seen, 100);
    feed_segments(&ring, &mut writer, 100);
    let published = writer.next_packet();
    let oldest = ring.pin(ring.segment_id(0, 84)).expect("the oldest").first_packet();
    let batch = reader.next_batch().expect("what is left");
    assert_eq!((batch.first_packet(), batch.missed_before()), (oldest, oldest - 100));
    while reader.next_batch().is_some() {}
    let missed = oldest - 100;
    assert_eq!(reader.counts(0), ReaderCounts { seen: published - missed, missed, behind: 0 });
}

#[test]
fn a_reader_that_lost_all_of_a_lane_that_paused_knows_it_and_goes_on_sleeping() {
    let ring = ring(16, 64 * KIB, 2);
    let (mut pausing, mut busy) = (lane(&ring, 0), lane(&ring, 1));
    let mut reader = Reader::new(&ring);
    feed(&mut pausing, 70, 1000);
    pausing.seal();
    feed_segments(&ring, &mut busy, 40);
    while reader.next_batch().is_some() {}
    assert_eq!(reader.counts(0), ReaderCounts { seen: 0, missed: 70, behind: 0 });
    let began = Instant::now();
    for _ in 0..20 {
        reader.wait();
    }
    assert!(began.elapsed() > Duration::from_millis(5), "nothing new: each wait sleeps about a millisecond");
    feed(&mut pausing, 3, 1000);
    let batch = reader.next_batch().expect("the lane goes on");
    assert_eq!((batch.lane(), batch.first_packet(), batch.packets(), batch.missed_before()), (0, 70, 3, 70));
}

#[test]
fn a_waiting_reader_sleeps_about_a_millisecond_at_most() {
    let ring = ring(16, 64 * KIB, 1);
    let mut reader = Reader::new(&ring);
    // Where others have the processors, one that wakes up waits for its turn: those count to which that did
    // not happen.
    let (begun, mut short) = (Instant::now(), 0);
    while short < 10 {
        let began = Instant::now();
        reader.wait();
        short += u32::from(began.elapsed() < Duration::from_millis(10));
        assert!(begun.elapsed() < LIMIT, "{short} waits of less than 10 ms");
    }
}

#[test]
fn records_are_never_visible_before_their_bytes() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = Reader::new(&ring);
    let key = KeyEntry { source: [10, 0, 0, 1], ..KeyEntry::default() };
    for round in 1..=50u32 {
        for _ in 0..8 {
            assert!(append(&mut writer, 0, head(60, 1), key));
        }
        let open = ring.pin(ring.segment_id(0, 0)).expect("open");
        assert_eq!(open.committed().packets, (round - 1) * 8, "appended is not yet visible");
        assert_eq!(ring.counters().lanes[0].packets, (round as u64 - 1) * 8);
        assert!(reader.next_batch().is_none());
        writer.commit();
        assert_eq!(open.committed().packets, round * 8);
        let batch = reader.next_batch().expect("now all of it is");
        let numbers = batch.first_packet()..batch.first_packet() + 8;
        assert!(
            batch.blocks().zip(numbers).all(|(block, number)| block.data() == stand::bytes_of(0, number, 60))
        );
        assert_eq!(open.entry(round * 8 - 1).source, key.source);
    }
}

#[test]
fn every_packet_keeps_its_own_time_and_original_length() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let of = |n: i64| PacketHead {
        original_len: 9000 + n as u32,
        ..head(64, 1_700_000_000_000_000_000 + n * n % 977)
    };
    for n in 0..5000 {
        assert!(append(&mut writer, 0, of(n), KeyEntry::default()));
    }
    drop(writer);
    let heads: Vec<_> =
        accounts(&ring, 0).into_iter().flat_map(|account| account.packets).map(|(head, _)| head).collect();
    assert_eq!(heads, (0..5000).map(of).collect::<Vec<_>>());
}

#[test]
fn the_final_block_is_written_when_a_lane_ends() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let mut reader = Reader::new(&ring);
    feed(&mut writer, 10, 100);
    for _ in 0..3 {
        assert!(append(&mut writer, 0, head(100, 1), KeyEntry::default()));
    }
    drop(writer); // three packets were never committed
    let found = accounts(&ring, 0);
    assert_eq!((found.len(), found[0].packets.len(), found[0].statistics[0].received), (1, 13, 13));
    while reader.next_batch().is_some() {}
    assert_eq!(reader.counts(0), ReaderCounts { seen: 13, missed: 0, behind: 0 });
}

#[test]
fn a_lane_that_ends_by_a_panic_leaves_its_packets_readable() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let worker = std::thread::spawn(move || {
        assert!(append(&mut writer, 0, head(100, 1), KeyEntry::default()));
        std::panic::resume_unwind(Box::new("the worker dies"));
    });
    assert!(worker.join().is_err());
    assert_eq!(accounts(&ring, 0)[0].packets.len(), 1);
}

#[test]
fn a_packet_dated_2106_does_not_live_for_ever() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    let year_2106_ns = (1i64 << 32) * 1_000_000_000;
    assert!(append(&mut writer, 0, head(100, year_2106_ns), KeyEntry::default()));
    feed_segments(&ring, &mut writer, 16);
    assert_eq!(
        ring.pin(ring.segment_id(0, 0)).expect("still there").times().expect("sealed").max_ns,
        year_2106_ns
    );
    feed_segments(&ring, &mut writer, 17);
    assert!(ring.pin(ring.segment_id(0, 0)).is_none(), "the order of sealing decides, not the time");
    let first = 0..1;
    let lost = ring.lost(0, &[first], (year_2106_ns, i64::MAX))[0];
    assert_eq!(
        lost.span_ns,
        Some((year_2106_ns, year_2106_ns)),
        "and what went is remembered with its times"
    );
}

#[test]
fn a_second_dump_finds_a_past_to_hold() {
    let ring = ring(64, 64 * KIB, 1);
    let first = ring.budget().take(1000, 8);
    let second = ring.budget().take(1000, 8);
    assert!(second.segments() >= 4 && first.segments() + second.segments() <= 32, "half the ring, shared");
    let mut writer = lane(&ring, 0);
    feed_segments(&ring, &mut writer, 40);
    let pins: Vec<_> = (0..first.segments() + second.segments())
        .map(|sequence| ring.pin(ring.segment_id(0, sequence)).unwrap())
        .collect();
    feed_segments(&ring, &mut writer, 400);
    for pinned in pins {
        let account = stand::account(pinned.whole().unwrap());
        assert_eq!(
            account.packets[0].1,
            stand::bytes_of(0, pinned.first_packet(), 1000),
            "held through many laps"
        );
    }
}

#[test]
fn packets_are_dropped_only_while_everything_else_is_pinned() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    feed_segments(&ring, &mut writer, 16);
    let mut pins: Vec<_> = (0..15).map(|sequence| ring.pin(ring.segment_id(0, sequence)).unwrap()).collect();
    writer.seal();
    assert!(writer.claim(), "its own sealed segment is the one that nobody holds");
    assert!(append(&mut writer, 0, head(1000, 1), KeyEntry::default()));
    writer.seal();
    pins.push(ring.pin(ring.segment_id(0, ring.lane_next(0) - 1)).unwrap());
    assert_eq!(writer.append(0, &head(0, 1), KeyEntry::default(), &[]), Append::NeedsSegment);
    assert!(!writer.claim() && !writer.claim(), "all sixteen are held");
    let number = writer.next_packet();
    drop(pins.swap_remove(7));
    assert!(writer.claim());
    assert!(ring.pin(ring.segment_id(0, 7)).is_none(), "the one that was let go is recycled");
    assert!(append(&mut writer, 0, head(1000, 1), KeyEntry::default()));
    assert_eq!(writer.next_packet(), number + 1, "numbering goes on");
}

#[test]
fn a_free_segment_is_found_behind_any_number_of_held_ones() {
    let ring = ring(64, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    feed_segments(&ring, &mut writer, 64);
    let mut pins: Vec<_> = (0..63).map(|sequence| ring.pin(ring.segment_id(0, sequence))).collect();
    writer.seal();
    let last = ring.pin(ring.segment_id(0, 63));
    assert!(!writer.claim(), "everything is pinned");
    pins[62] = None;
    assert!(writer.claim(), "the 63rd of the held ones is found at once");
    drop(last);
}

#[test]
fn one_mebibyte_is_ring_enough() {
    let ring = ring(16, MIB / 16, 1);
    let mut writer = lane(&ring, 0);
    feed_segments(&ring, &mut writer, 100);
    assert_eq!(accounts(&ring, 0).len(), 15);
}

#[test]
#[should_panic(
    expected = "a packet of 65536 bytes for a lane that keeps 16384: truncate it to `kept_bytes_max` first"
)]
fn a_packet_that_no_segment_takes_is_told_as_the_mistake_that_it_is_and_not_tried_for_ever() {
    let ring = ring(16, 64 * KIB, 1);
    let mut writer = lane(&ring, 0);
    assert_eq!(writer.kept_bytes_max(), 16 << 10);
    feed(&mut writer, 10, 16 << 10);
    feed(&mut writer, 1, 64 << 10);
}
