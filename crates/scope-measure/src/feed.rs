//! A lane that is fed as a worker does it: batches of 64, headers parsed once, a commit every four batches.

use super::packets::{self, Packets};
use scope_packet::pcapng::PacketHead;
use scope_packet::{BATCH_PACKETS_MAX, Interface, LinkType, Parsed, TimestampSource};
use scope_ring::{Arrivals, Incoming, LaneWriter, MemoryOptions, Ring, RingConfig, RingError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches that one commit makes visible (rule 2).
const COMMIT_BATCHES: u64 = 4;

/// A prefaulted ring to measure with.
///
/// # Errors
/// Sizes that don't fit, or the system's.
pub fn ring(ring_bytes: u64, segment_bytes: Option<u64>, workers: u32) -> Result<Arc<Ring>, RingError> {
    let config = RingConfig { ring_bytes, segment_bytes, workers, lanes: workers, run_id: super::run_id() };
    Ring::ready(&config, &[], &MemoryOptions::default(), &|_bytes| true)
}

/// What one call of [`Feeder::feed`] did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fed {
    /// Packets appended.
    pub packets: u64,
    /// How long it took, sealing and claiming included.
    pub elapsed: Duration,
    /// Longest time from the end of one batch to the end of the next; zero unless it was requested.
    pub pause: Duration,
    /// The same without what the thread waited for a core in that very time.
    pub own_pause: Duration,
}

impl Fed {
    /// Time of one packet, ns.
    pub fn ns_per_packet(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.packets as f64
    }
}

/// The writing end of a lane with a source of made packets. Runs follow each other in the same lane.
pub struct Feeder {
    ring: Arc<Ring>,
    writer: LaneWriter,
    interface: usize,
    /// Number in the lane of the present run's packet 0.
    base: u64,
    parsed: Box<Parsed>,
}

impl Feeder {
    /// Opens a lane of `ring` for `worker`.
    ///
    /// # Errors
    /// [`RingError::System`] where the ring's tables are full.
    pub fn new(ring: &Arc<Ring>, worker: u32) -> Result<Feeder, RingError> {
        let full =
            || RingError::System { place: "lane table", cause: std::io::ErrorKind::OutOfMemory.into() };
        let mut writer = ring.open_lane(worker, LinkType::ETHERNET).ok_or_else(full)?;
        let interface = Interface {
            name: format!("measured{worker}"),
            description: String::new(),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            timestamps: TimestampSource::Generator,
            part: 0,
        };
        let number = ring.register(writer.lane(), &interface).ok_or_else(full)?;
        let interface = writer.add_interface(number);
        Ok(Feeder { ring: ring.clone(), writer, interface, base: 0, parsed: Box::default() })
    }

    /// Number of the lane.
    pub fn lane(&self) -> u32 {
        self.writer.lane()
    }

    /// Begins a new run: the next packet is its packet 0. Returns that packet's number in the lane.
    pub fn begin(&mut self) -> u64 {
        self.writer.seal();
        self.base = self.writer.next_packet();
        self.base
    }

    /// Number in the lane of the present run's packet 0.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Appends packets of the present run until `packets` more are stored, as fast as it goes.
    pub fn feed(&mut self, source: &Packets, packets: u64) -> Fed {
        self.feed_with(source, packets, |_ring| {}, |_batch| {})
    }

    /// The same; waits before each claim while someone who must not be overrun is half a ring behind (rule
    /// 5).
    pub fn feed_waiting(&mut self, source: &Packets, packets: u64) -> Fed {
        let lane = self.writer.lane();
        let wait = |ring: &Ring| {
            while ring.must_wait(lane) {
                std::thread::yield_now();
            }
        };
        self.feed_with(source, packets, wait, |_batch| {})
    }

    /// The same as [`Feeder::feed`] for `span`; looks for the longest pause. `waited` says how long this
    /// thread has waited for a core so far; it is called after each pause that is long enough for that.
    pub fn feed_for(&mut self, source: &Packets, span: Duration, waited: impl Fn() -> Duration) -> Fed {
        /// Shorter than a thread is ever away for another one.
        const WAIT_MIN: Duration = Duration::from_micros(20);
        let begun = Instant::now();
        let mut fed = Fed::default();
        let mut last = begun;
        let mut waited_before = waited();
        while last - begun < span {
            let step = (COMMIT_BATCHES as usize * BATCH_PACKETS_MAX) as u64;
            let (mut longest, mut own_longest) = (Duration::ZERO, Duration::ZERO);
            let mut look = |_batch: u64| {
                let now = Instant::now();
                let pause = now - last;
                let mut own = pause;
                last = now;
                if pause >= WAIT_MIN {
                    let waited_now = waited();
                    own = own.saturating_sub(waited_now.saturating_sub(waited_before));
                    waited_before = waited_now;
                    last = Instant::now(); // the call is no pause of the ring's
                }
                (longest, own_longest) = (longest.max(pause), own_longest.max(own));
            };
            fed.packets += self.feed_with(source, step, |_ring| {}, &mut look).packets;
            (fed.pause, fed.own_pause) = (fed.pause.max(longest), fed.own_pause.max(own_longest));
        }
        fed.elapsed = begun.elapsed();
        fed
    }

    #[inline]
    fn feed_with(
        &mut self,
        source: &Packets,
        packets: u64,
        before_claim: impl Fn(&Ring),
        mut after_batch: impl FnMut(u64),
    ) -> Fed {
        let begun = Instant::now();
        let end = self.writer.next_packet() + packets;
        let mut batch = 0;
        while self.writer.next_packet() < end {
            let first = self.writer.next_packet();
            let count = (end - first).min(BATCH_PACKETS_MAX as u64) as usize;
            let number = first - self.base;
            let frames = source.frames(number, count);
            self.parsed
                .parse(LinkType::ETHERNET, u64::MAX >> (BATCH_PACKETS_MAX - count), |index| &frames[index]);
            let fresh = Fresh { frames, first: number, parsed: &self.parsed };
            append(&self.ring, &mut self.writer, self.interface, &fresh, &before_claim);
            batch += 1;
            if batch % COMMIT_BATCHES == 0 {
                self.writer.commit();
            }
            after_batch(batch);
        }
        self.writer.commit();
        Fed { packets, elapsed: begun.elapsed(), ..Fed::default() }
    }

    /// Appends one packet at `time_ns`, without making it visible.
    pub fn append_at(&mut self, source: &Packets, number: u64, time_ns: i64) {
        let data = source.frame(number);
        let head = PacketHead { time_ns, ..source.head(number) };
        let packet = Incoming { head, key: &Packets::key(data), data };
        append(&self.ring, &mut self.writer, self.interface, &packet, &|_ring| {});
    }

    /// Makes everything appended so far visible.
    pub fn commit(&mut self) {
        self.writer.commit();
    }

    /// Seals the open segment.
    pub fn seal(&mut self) {
        self.writer.seal();
    }

    /// Claims one segment, if none is open; whether there is one now.
    pub fn claim(&mut self) -> bool {
        self.writer.claim()
    }
}

fn append(
    ring: &Ring,
    writer: &mut LaneWriter,
    interface: usize,
    batch: &impl Arrivals,
    before_claim: &impl Fn(&Ring),
) {
    let mut next = 0;
    loop {
        next += writer.append_batch(interface, batch, next);
        if next == batch.count() {
            return;
        }
        before_claim(ring);
        while !writer.claim() {
            std::thread::yield_now(); // every segment is pinned: a measurement waits
        }
    }
}

/// Packets as a worker has them: parsed once, a batch at a time.
struct Fresh<'a> {
    parsed: &'a Parsed,
    frames: &'a [Box<[u8]>],
    /// Number of the first.
    first: u64,
}

impl Arrivals for Fresh<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.frames.len()
    }

    #[inline(always)]
    fn packet(&self, index: usize) -> Incoming<'_> {
        let data = &self.frames[index];
        Incoming { head: packets::head(self.first + index as u64, data), key: self.parsed.key(index), data }
    }
}

/// Checks what `lane` has in the ring, byte for byte, from packet `base` on, which is packet 0 of `source`,
/// up to the `packets`-th: every block, every key entry, and no gap between successive segments.
/// Older segments may be missing between others: one that was pinned when its turn came outlives its
/// successors. The packets that were still there.
///
/// # Errors
/// What is wrong, in words.
pub fn check_ring(
    ring: &Arc<Ring>,
    lane: u32,
    source: &Packets,
    base: u64,
    packets: u64,
) -> Result<u64, String> {
    let mut expected = None;
    let mut checked = 0;
    for sequence in ring.oldest_possible(lane)..ring.lane_next(lane) {
        let Some(pinned) = ring.pin(ring.segment_id(lane, sequence)) else { continue };
        let committed = pinned.committed();
        let first = pinned.first_packet();
        if first + committed.packets as u64 <= base {
            continue;
        }
        if first < base {
            return Err(format!("segment {sequence} begins with packet {first}, before packet {base}"));
        }
        if expected.is_some_and(|(before, end)| before + 1 == sequence && end != first) {
            return Err(format!(
                "segment {sequence} begins with packet {first}, the one before ended at {expected:?}"
            ));
        }
        let mut at = 0;
        let mut count = 0;
        for (index, block) in pinned.blocks(0, committed.bytes).enumerate() {
            let number = first - base + index as u64;
            let frame = source.frame(number);
            let head = block.head();
            let right = block.data() == frame
                && head.time_ns == Packets::time_ns(number)
                && head.original_len as usize == frame.len();
            if !right || pinned.entry(index as u32) != Packets::key(frame).at(at) {
                return Err(format!("packet {number} of the run isn't what was appended"));
            }
            at += block.bytes().len() as u32;
            count += 1;
        }
        if count != committed.packets || at != committed.bytes {
            return Err(format!(
                "segment {sequence} holds {count} packets, committed are {}",
                committed.packets
            ));
        }
        checked += count as u64;
        expected = Some((sequence, first + count as u64));
    }
    match expected {
        Some((_, end)) if end == base + packets => Ok(checked),
        last => Err(format!("the lane ends with {last:?} instead of packet {}", base + packets)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnFollower, PacketFollower, Sizes};
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_is_fed_lies_in_the_ring_and_followers_count_it() {
        let ring = ring(4 << 20, None, 1).unwrap();
        let mut feeder = Feeder::new(&ring, 0).unwrap();
        let source = Packets::new(Sizes::Imix);
        feeder.begin();
        assert_eq!(feeder.feed(&source, 1000).packets, 1000);
        assert_eq!(check_ring(&ring, 0, &source, 0, 1000), Ok(1000));
        assert!(check_ring(&ring, 0, &source, 0, 1001).is_err());
        assert!(check_ring(&ring, 0, &Packets::new(Sizes::Fixed(64)), 0, 1000).is_err());

        let base = feeder.begin();
        let done = AtomicBool::new(true);
        let (packets, column) = (PacketFollower::new(&ring), ColumnFollower::new(&ring));
        assert_eq!(feeder.feed(&source, 5000).packets, 5000);
        for followed in [packets.run(&done), column.run(&done)] {
            assert_eq!((followed.seen, followed.missed, followed.hits), (5000, 0, source.hits(5000)));
        }
        feeder.feed(&source, 100_000);
        let left = check_ring(&ring, 0, &source, base, 105_000).unwrap();
        assert!(left > 5000 && left < 105_000);
    }
}
