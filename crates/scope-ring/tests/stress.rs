//! Writers and readers at once, for a few seconds: no foreign byte, no packet twice, every loss known, no pin
//! left behind.

mod stand;

use scope_packet::{DropReason, KeyEntry};
use scope_ring::WorkerCounts;
use scope_ring::{Append, Batch, LaneWriter, Reader, Ring};
use stand::{Dice, KIB, fill, head, lane, ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long writers write, and longer until the first of them has stored enough.
const DURATION: Duration = Duration::from_secs(3);
/// What the first writer stores at least.
const PACKETS_MIN: u64 = 50_000;
/// Longest that is waited for that, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(120);
/// Shortest packet: it holds its lane and number.
const LEN_MIN: u64 = 16;

/// Writes like an engine's worker until `stop`: batches of up to 64, a commit and its counters after each.
fn write(
    ring: &Ring,
    mut writer: LaneWriter,
    worker: u32,
    stop: &AtomicBool,
    pause: Duration,
) -> WorkerCounts {
    let mut dice = Dice(worker as u64);
    let mut counts = WorkerCounts::default();
    let mut data = [0; 1518];
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..1 + dice.below(64) {
            let spread = if dice.one_in(4) { 1500 } else { 100 };
            let len = (LEN_MIN + dice.below(spread)) as usize;
            counts.received_packets += 1;
            counts.received_bytes += len as u64;
            fill(writer.lane(), writer.next_packet(), &mut data[..len]);
            let head = head(len, counts.received_packets as i64);
            let mut appended = writer.append(0, &head, KeyEntry::default(), &data[..len]);
            if appended == Append::NeedsSegment && writer.claim() {
                appended = writer.append(0, &head, KeyEntry::default(), &data[..len]);
            }
            match appended {
                Append::Stored(_) => {
                    counts.stored_packets += 1;
                    counts.stored_bytes += len as u64;
                }
                Append::NeedsSegment => {
                    stand::drop_one(&mut writer, 0);
                    counts.dropped.add(DropReason::RingPinned, 1);
                }
            }
        }
        writer.commit();
        ring.publish_worker(worker, &counts);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    counts
}

/// What a reader has seen: per lane the number that comes next, and how many packets it was lent.
#[derive(Default)]
struct Seen {
    next: Vec<u64>,
    packets: Vec<u64>,
}

impl Seen {
    /// Checks a batch: numbers ascend, gaps are as stated, every byte is the one that was written.
    fn check(&mut self, batch: &Batch<'_>) {
        let lane = batch.lane() as usize;
        self.next.resize(self.next.len().max(lane + 1), 0);
        self.packets.resize(self.next.len(), 0);
        assert_eq!(batch.first_packet(), self.next[lane] + batch.missed_before(), "lane {lane}");
        let mut number = batch.first_packet();
        for block in batch.blocks() {
            check_packet(lane as u32, number, block.data());
            number += 1;
        }
        assert_eq!(number, batch.first_packet() + batch.packets() as u64, "as many blocks as stated");
        self.next[lane] = number;
        self.packets[lane] += batch.packets() as u64;
    }
}

fn check_packet(lane: u32, number: u64, data: &[u8]) {
    let mut expected = [0; 1518];
    fill(lane, number, &mut expected[..data.len()]);
    assert!(data == &expected[..data.len()], "lane {lane} packet {number}: foreign or torn bytes");
}

/// Reads until `stop` and then to the end, pausing `pause` (with the last batch's segment pinned) one batch
/// in sixteen.
fn read(ring: &Arc<Ring>, stop: &AtomicBool, pause: Duration) -> (Reader, Seen) {
    let (mut reader, mut seen) = (Reader::new(ring), Seen::default());
    let mut batches = 0u64;
    loop {
        let ended = stop.load(Ordering::Acquire); // read before the look: what was written before is then seen
        while let Some(batch) = reader.next_batch() {
            seen.check(&batch);
            batches += 1;
            if batches.is_multiple_of(16) && !pause.is_zero() {
                std::thread::sleep(pause);
                let first = batch.blocks().next().expect("no batch is empty");
                check_packet(batch.lane(), batch.first_packet(), first.data());
            }
        }
        if ended {
            return (reader, seen);
        }
        reader.wait();
    }
}

/// Holds what a dump would: as many of the oldest segments as it is allowed, unchanged while it holds them.
fn hold(ring: &Arc<Ring>, stop: &AtomicBool, seed: u64) {
    let mut dice = Dice(seed);
    while !stop.load(Ordering::Relaxed) {
        let allowance = ring.budget().take(1 + dice.below(40), 4);
        let lane = dice.below(ring.lanes() as u64) as u32;
        let sequences = ring.oldest_possible(lane)..ring.lane_next(lane);
        let pins: Vec<_> = sequences
            .filter_map(|sequence| ring.pin(ring.segment_id(lane, sequence)))
            .take(allowance.segments() as usize)
            .collect();
        std::thread::sleep(Duration::from_millis(dice.below(80)));
        for pinned in &pins {
            let numbers = pinned.first_packet()..;
            for (n, block) in numbers.zip(pinned.blocks(0, pinned.committed().bytes)) {
                check_packet(lane, n, block.data());
            }
            if let Some(whole) = pinned.whole() {
                assert_eq!(stand::account(whole).foot.sequence, pinned.sequence());
            }
        }
    }
}

/// Dies again and again with a batch and two pins in its hands.
fn die(ring: &Arc<Ring>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let own = ring.clone();
        let dying = std::thread::spawn(move || {
            let mut reader = Reader::new(&own);
            let _pins = [
                own.pin(own.segment_id(1, own.oldest_possible(1) + 1)),
                own.pin(own.segment_id(1, own.lane_next(1).saturating_sub(1))),
            ];
            let _batch = reader.next_batch();
            std::panic::resume_unwind(Box::new("a reader dies"));
        });
        assert!(dying.join().is_err());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Looks at the counters all the time: they add up in every snapshot, and never fall.
fn audit(ring: &Ring, stop: &AtomicBool) {
    let mut before = ring.counters();
    while !stop.load(Ordering::Relaxed) {
        let now = ring.counters();
        assert!(now.add_up(), "received = stored + filtered + duplicate + dropped: {now:?}");
        assert!(
            now.workers
                .iter()
                .zip(&before.workers)
                .all(|(now, before)| now.received_packets >= before.received_packets)
        );
        assert!(now.lanes.iter().zip(&before.lanes).all(|(now, before)| now.packets >= before.packets));
        assert!(
            now.lanes.iter().all(|lane| lane.bytes >= lane.packets * LEN_MIN),
            "packets and bytes of one moment: {now:?}"
        );
        before = now;
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn three_writers_and_seven_readers() {
    let ring = ring(48, 64 * KIB, 4);
    let mut idle = lane(&ring, 3);
    stand::feed(&mut idle, 3, 100);
    let (stop, written) = (AtomicBool::new(false), AtomicBool::new(false));
    let (stop, written, ring) = (&stop, &written, &ring);
    let counts = std::thread::scope(|scope| {
        let pauses = [Duration::ZERO, Duration::from_micros(50), Duration::from_millis(2)];
        let lanes: Vec<_> = (0..3).map(|worker| lane(ring, worker)).collect();
        let writers: Vec<_> = (0u32..)
            .zip(lanes.into_iter().zip(pauses))
            .map(|(worker, (writer, pause))| scope.spawn(move || write(ring, writer, worker, stop, pause)))
            .collect();
        let readers = [0, 0, 3, 40]
            .map(|pause_ms| scope.spawn(move || read(ring, written, Duration::from_millis(pause_ms))));
        for seed in 1..3 {
            scope.spawn(move || hold(ring, stop, seed));
        }
        scope.spawn(|| die(ring, stop));
        scope.spawn(|| audit(ring, stop));
        std::thread::sleep(DURATION);
        let begun = Instant::now();
        while ring.counters().workers[0].stored_packets <= PACKETS_MIN && begun.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Release);
        let counts: Vec<_> = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        written.store(true, Ordering::Release);
        for reader in readers {
            check_end(ring, reader.join().expect("a reader"));
        }
        counts
    });
    assert_eq!(ring.counters().workers[..3], counts);
    for (worker, counts) in (1..).zip(&counts) {
        assert_eq!(
            ring.counters().lanes[worker].packets,
            counts.stored_packets,
            "lane of worker {}",
            worker - 1
        );
    }
    assert!(counts[0].stored_packets > PACKETS_MIN, "{counts:?}");
    assert_eq!(ring.budget().taken(), 0);
    no_pin_is_left(ring, idle);
}

/// Packet accounting at the end: nothing behind, and seen is what the reader itself counted.
fn check_end(ring: &Ring, (reader, seen): (Reader, Seen)) {
    for lane in 0..ring.lanes() {
        let counts = reader.counts(lane);
        let published = ring.counters().lanes[lane as usize].packets;
        assert_eq!((counts.behind, counts.seen + counts.missed), (0, published), "lane {lane}");
        assert_eq!(counts.seen, seen.packets.get(lane as usize).copied().unwrap_or(0));
    }
}

/// Whatever stalled, ended or died: a new lane can have every segment but the idle lane's open one.
fn no_pin_is_left(ring: &Arc<Ring>, idle: LaneWriter) {
    let mut last = lane(ring, 3);
    let all = ring.segments() as u64 - 1;
    stand::feed_segments(ring, &mut last, all);
    assert!(
        (0..all).all(|sequence| ring.pin(ring.segment_id(last.lane(), sequence)).is_some()),
        "each claim took another segment"
    );
    assert_eq!(ring.pin(ring.segment_id(idle.lane(), 0)).expect("open").committed().packets, 3);
}
