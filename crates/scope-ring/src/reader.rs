//! Following the ring: batches lent in place, one cursor per lane, exact loss, waiting without slowing a worker.
//!
//! ```text
//! look     directory entry ─► pin ─► committed ─► lend the blocks between the cursor and it
//! lapped   the pin fails because the segment was recycled: go on at the oldest one that is left; the packets between the
//!          cursor and its first packet are missed, and counted; none is left: everything published is
//! ```
//! For each reader and lane `published = seen + missed + behind` holds at any moment.
//!
//! A batch can't outlive its pin: it borrows from the reader, which holds the pin until it is asked for the next one.
//!
//! ```compile_fail
//! fn keep(reader: &mut scope_ring::Reader) -> Option<()> {
//!     let first = reader.next_batch()?;
//!     let second = reader.next_batch()?; // the first batch's pin is given back here
//!     drop(first.blocks());
//!     Some(())
//! }
//! ```

use crate::pin::{Blocks, Pinned};
use crate::ring::Ring;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Looks at the lanes before a reader goes to sleep, with a pause of about 20 spin hints each.
const LOOKS_BEFORE_SLEEP: u32 = 32;
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// A reader's side of one lane: packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// Lent to the reader.
    pub seen: u64,
    /// Recycled before the reader came to them.
    pub missed: u64,
    /// Published and still to be seen.
    pub behind: u64,
}

/// Whoever follows the ring as a reader: sees every batch once, in place.
///
/// A trait so that scripts, the store and live taps share one reading loop; a call per batch costs nothing measurable.
pub trait Tap {
    /// Takes one batch; its bytes are gone when the call returns.
    fn batch(&mut self, batch: &Batch<'_>);
}

/// Packets of one lane, one after another, lent.
pub struct Batch<'a> {
    pinned: &'a Pinned,
    from: u32,
    to: u32,
    first_packet: u64,
    packets: u32,
    missed_before: u64,
}

impl<'a> Batch<'a> {
    /// Lane.
    pub fn lane(&self) -> u32 {
        self.pinned.lane()
    }

    /// Number in the lane of the segment that the packets lie in.
    pub fn sequence(&self) -> u64 {
        self.pinned.sequence()
    }

    /// Number in the lane of the first packet.
    pub fn first_packet(&self) -> u64 {
        self.first_packet
    }

    /// Number of packets.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Packets of the lane that were missed directly before this batch.
    pub fn missed_before(&self) -> u64 {
        self.missed_before
    }

    /// The packet blocks.
    pub fn blocks(&self) -> Blocks<'a> {
        self.pinned.blocks(self.from, self.to)
    }
}

/// Where a reader stands in one lane.
#[derive(Default)]
struct Cursor {
    sequence: u64,
    packet: u64,
    bytes: u32,
    pinned: Option<Pinned>,
    seen: u64,
    missed: u64,
    /// Missed since the last batch.
    gap: u64,
}

/// Follows all lanes of a ring from the oldest packet on. Lossy: it never holds more than one segment per lane.
pub struct Reader {
    ring: Arc<Ring>,
    cursors: Vec<Cursor>,
    turn: usize,
}

impl Reader {
    /// A reader that begins with the oldest packets that are left. What was recycled before counts as missed.
    pub fn new(ring: &Arc<Ring>) -> Reader {
        Reader { ring: ring.clone(), cursors: Vec::new(), turn: 0 }
    }

    /// The next packets of some lane, lanes in turn; `None`: nothing new at the moment. Gives back the last batch's segment
    /// when it is done with.
    pub fn next_batch(&mut self) -> Option<Batch<'_>> {
        self.cursors.resize_with(self.ring.lanes() as usize, Cursor::default);
        let lanes = self.cursors.len();
        let (found, span) = (0..lanes).find_map(|step| {
            let lane = (self.turn + step) % lanes;
            self.cursors[lane].look(&self.ring, lane as u32).map(|span| (lane, span))
        })?;
        self.turn = found + 1;
        let pinned = self.cursors[found].pinned.as_ref()?;
        let Span { from, to, first_packet, packets, missed_before } = span;
        Some(Batch { pinned, from, to, first_packet, packets, missed_before })
    }

    /// Waits until something may have come, at most a millisecond: looks some 20 us, then sleeps.
    pub fn wait(&mut self) {
        let wakes = &self.ring.region().header().wakes;
        for _ in 0..LOOKS_BEFORE_SLEEP {
            if self.behind() {
                return;
            }
            (0..20).for_each(|_| std::hint::spin_loop());
        }
        let looked_at = wakes.load(Ordering::Acquire);
        if !self.behind() {
            self.ring.wait(looked_at, SLEEP_MAX);
        }
    }

    /// Feeds `tap` with everything that is there now; the number of packets.
    pub fn drain(&mut self, tap: &mut dyn Tap) -> u64 {
        let mut packets = 0;
        while let Some(batch) = self.next_batch() {
            packets += batch.packets() as u64;
            tap.batch(&batch);
        }
        packets
    }

    fn behind(&self) -> bool {
        (0..self.ring.lanes()).any(|lane| {
            let read = self.cursors.get(lane as usize).map_or(0, |cursor| cursor.packet);
            self.ring.region().lane(lane).published().packets > read
        })
    }

    /// Counters of `lane`.
    pub fn counts(&self, lane: u32) -> ReaderCounts {
        let published = self.ring.region().lane(lane).published().packets;
        let (seen, missed) = self.cursors.get(lane as usize).map_or((0, 0), |cursor| (cursor.seen, cursor.missed));
        ReaderCounts { seen, missed, behind: published.saturating_sub(seen + missed) }
    }
}

struct Span {
    from: u32,
    to: u32,
    first_packet: u64,
    packets: u32,
    missed_before: u64,
}

impl Cursor {
    /// One look at the lane: what is new under the pin, or `None`.
    fn look(&mut self, ring: &Arc<Ring>, lane: u32) -> Option<Span> {
        loop {
            if self.pinned.is_none() {
                self.pinned = Some(self.step_on(ring, lane)?);
            }
            let pinned = self.pinned.as_ref()?;
            let committed = pinned.committed();
            if committed.bytes > self.bytes {
                let first_packet = self.packet;
                let packets = (pinned.first_packet() + committed.packets as u64 - self.packet) as u32;
                let from = std::mem::replace(&mut self.bytes, committed.bytes);
                self.packet += packets as u64;
                self.seen += packets as u64;
                let missed_before = std::mem::take(&mut self.gap);
                return Some(Span { from, to: committed.bytes, first_packet, packets, missed_before });
            }
            self.pinned = None;
            if !committed.sealed {
                return None; // an idle reader holds nothing; it comes back to this place unless it is lapped
            }
            self.sequence += 1;
            self.bytes = 0;
        }
    }

    /// Pins the segment at the cursor, or the oldest one that is left, and counts what was missed on the way.
    fn step_on(&mut self, ring: &Arc<Ring>, lane: u32) -> Option<Pinned> {
        let published = ring.region().lane(lane).published().packets; // looked at first: these lie in segments below `next`
        let next = ring.lane_next(lane);
        let mut sequence = self.sequence.max(ring.oldest_possible(lane));
        while sequence < next {
            let Some(pinned) = ring.pin(lane, sequence) else {
                sequence += 1; // recycled meanwhile
                continue;
            };
            if sequence != self.sequence {
                self.bytes = 0;
            }
            self.sequence = sequence;
            self.miss_until(pinned.first_packet());
            return Some(pinned);
        }
        if self.sequence < next {
            self.sequence = next; // all that the lane had is recycled: it has paused, or ended, while others went on
            self.bytes = 0;
            self.miss_until(published);
        }
        None
    }

    /// Counts everything before `packet` that wasn't read as missed.
    fn miss_until(&mut self, packet: u64) {
        let missed = packet.saturating_sub(self.packet);
        self.packet += missed;
        self.missed += missed;
        self.gap += missed;
    }
}
