//! The steps whose order matters: every release, acquire and fence by which segments are claimed, opened,
//! committed, sealed, pinned and given back, and by which counters are read as of one moment. Nothing else of
//! the ring orders bytes.
//!
//! ```text
//! pin word = generation (40 bits) << 24 | pins (24 bits)
//!
//! claim    word {g, 0} ──compare-and-swap, AcqRel──► {g + 1, 1}     only a claiming worker
//! open     the segment's words ─► directory entry {slot, g + 1}, release ─► the lane's `next`, release
//! commit   bytes and entries ─► span of times ─► counters ─► committed word, release
//! seal     foot, statistics, times ─► counters ─► committed word with the sealed bit, release ─► unpin
//! pin      entry, acquire ─► word {g, n} ──compare-and-swap, Acquire──► {g, n + 1}     only at the entry's generation
//! unpin    word {g, n} ──fetch_sub, Release────────► {g, n - 1}
//! outside  entry, acquire ─► words and bytes ─► fence, acquire ─► word {g, n}     only at the entry's generation
//! held     the segment's generation, acquire ─► words and bytes ─► fence, acquire ─► word {g, n}     only at that one
//! ```
//! Outside of the process nobody pins: bytes are copied, and forgotten where the generation is another one behind it.
//! Acquire of a claim pairs with release of every unpin: what readers did with the old bytes is over before
//! new ones are written. Acquire of a pin pairs with the claim's release: the reader sees the words of this
//! generation. `models/` runs this file and its users through every order that the memory model allows, and
//! with seeded faults.

use crate::control::{
    Committed, LaneControl, PIN_BITS, PINS, Published, SegmentControl, SegmentTimes, WorkerControl,
    WorkerCounts,
};
use scope_packet::segment::FileLosses;
use scope_packet::{DropReason, Drops};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Takes the slot of `word` if nobody holds it; the new generation, with one pin, which is the owner's.
pub(crate) fn claim(word: &AtomicU64) -> Option<u64> {
    let now = word.load(Ordering::Relaxed);
    if now & PINS != 0 {
        return None;
    }
    let generation = (now >> PIN_BITS) + 1;
    word.compare_exchange(now, generation << PIN_BITS | 1, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    fence(Ordering::Release); // for readers that copy without a pin: the new generation before the new bytes
    Some(generation)
}

/// Adds a pin if the slot is still at `generation`.
pub(crate) fn pin(word: &AtomicU64, generation: u64) -> bool {
    let mut now = word.load(Ordering::Relaxed);
    loop {
        if now >> PIN_BITS != generation || now & PINS == PINS {
            return false;
        }
        match word.compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(changed) => now = changed,
        }
    }
}

/// Whether the slot is still at `generation`: nobody has claimed it since.
pub(crate) fn is_at(word: &AtomicU64, generation: u64) -> bool {
    word.load(Ordering::Relaxed) >> PIN_BITS == generation
}

/// Whether nobody has claimed the slot since it was at `generation`: then all that was read of it before, without a pin, is
/// of that generation. Pairs with the fence of a claim: whoever has read what was written behind that, sees its word here.
pub(crate) fn is_still(word: &AtomicU64, generation: u64) -> bool {
    fence(Ordering::Acquire); // what was read before the word
    is_at(word, generation)
}

/// Adds a pin to a slot that the caller holds: its generation can't change meanwhile.
pub(crate) fn pin_again(word: &AtomicU64) -> bool {
    pin(word, word.load(Ordering::Relaxed) >> PIN_BITS)
}

/// Gives a pin back.
pub(crate) fn unpin(word: &AtomicU64) {
    let before = word.fetch_sub(1, Ordering::Release);
    assert!(before & PINS != 0, "a pin is given back once");
}

/// What a segment's record says of its lane as of its start.
pub(crate) struct SegmentStart<'a> {
    pub lane: u32,
    pub sequence: u64,
    pub first_packet: u64,
    pub bytes_before: u64,
    pub drops_before: &'a Drops,
    pub file_losses: &'a FileLosses,
}

/// Opens a claimed segment to readers: its words, then the entry that leads to it, then the lane's count.
pub(crate) fn open(
    control: &SegmentControl,
    entry: &AtomicU64,
    lane: &LaneControl,
    (slot, generation): (u32, u64),
    start: &SegmentStart<'_>,
) {
    control.committed.store(0, Ordering::Relaxed);
    control.lane.store(start.lane, Ordering::Relaxed);
    control.sequence.store(start.sequence, Ordering::Relaxed);
    control.first_packet.store(start.first_packet, Ordering::Relaxed);
    control.bytes_before.store(start.bytes_before, Ordering::Relaxed);
    for (reason, packets) in start.drops_before.iter() {
        control.drops_before[reason as usize].store(packets, Ordering::Relaxed);
    }
    publish_file_losses(control, start.file_losses);
    control.generation.store(generation, Ordering::Release); // for who finds the slot without an entry: its words before
    entry.store(generation << PIN_BITS | slot as u64, Ordering::Release); // the segment's words before what leads to them
    lane.next.store(start.sequence + 1, Ordering::Release); // the entry before the count that covers it
}

/// Slot and generation that a directory entry leads to; `None` where it is empty.
pub(crate) fn find(entry: &AtomicU64) -> Option<(u32, u64)> {
    match entry.load(Ordering::Acquire) {
        0 => None,
        entry => Some(((entry & PINS) as u32, entry >> PIN_BITS)),
    }
}

/// Whether a slot that has just been pinned holds segment `sequence` of `lane`.
pub(crate) fn holds(control: &SegmentControl, lane: u32, sequence: u64) -> bool {
    control.lane.load(Ordering::Relaxed) == lane && control.sequence.load(Ordering::Relaxed) == sequence
}

/// Makes packets visible whose bytes and entries are written (and fenced, where by non-temporal stores).
/// `span`: their smallest and largest time, ns, and whether times step back.
pub(crate) fn commit(
    control: &SegmentControl,
    lane: &LaneControl,
    published: Published,
    committed: Committed,
    span: (i64, i64, bool),
) {
    publish_span(control, span);
    lane.publish(published); // counted before it is visible: no reader sees more than was published
    control.committed.store(committed.to_word(), Ordering::Release); // bytes, entries and span before the word that publishes them
}

/// Closes a segment whose foot is written (and fenced, where by non-temporal stores), and lets the owner's
/// pin go.
pub(crate) fn seal(
    control: &SegmentControl,
    lane: &LaneControl,
    published: Published,
    committed: Committed,
    times: &SegmentTimes,
) {
    control.times[0].store(times.first_ns, Ordering::Relaxed);
    control.times[1].store(times.last_ns, Ordering::Relaxed);
    publish_span(control, (times.min_ns, times.max_ns, times.unordered));
    control.sealed_order.store(times.sealed_order, Ordering::Relaxed);
    lane.publish(published);
    control.committed.store(committed.to_word(), Ordering::Release); // foot, statistics and times before the sealed bit
    unpin(&control.word);
}

/// How far a pinned segment is committed.
pub(crate) fn committed(control: &SegmentControl) -> Committed {
    Committed::from_word(control.committed.load(Ordering::Acquire))
}

/// Smallest and largest time of an open segment so far, ns, and whether times step back; no reader looks
/// before the commit.
fn publish_span(control: &SegmentControl, (min_ns, max_ns, unordered): (i64, i64, bool)) {
    control.times[2].store(min_ns, Ordering::Relaxed);
    control.times[3].store(max_ns, Ordering::Relaxed);
    control.unordered.store(u32::from(unordered), Ordering::Relaxed);
}

/// Publishes what capture files say by now that they lack, into an open segment.
pub(crate) fn publish_file_losses(control: &SegmentControl, losses: &FileLosses) {
    let files = u64::from(losses.told) << 32 | u64::from(losses.cut);
    control.file_losses[0].store(losses.dropped, Ordering::Relaxed);
    control.file_losses[1].store(files, Ordering::Release); // after the count that it tells of
}

/// What a pinned segment says of them by now.
pub(crate) fn file_losses(control: &SegmentControl) -> FileLosses {
    let files = control.file_losses[1].load(Ordering::Acquire);
    let dropped = control.file_losses[0].load(Ordering::Relaxed);
    FileLosses { dropped, cut: files as u32, told: (files >> 32) as u32 }
}

/// The span of a pinned segment, for a caller that has looked at its committed word before: it speaks of
/// these packets, perhaps of later ones, too.
pub(crate) fn span(control: &SegmentControl) -> (i64, i64, bool) {
    let [min_ns, max_ns] = [2, 3].map(|index: usize| control.times[index].load(Ordering::Relaxed));
    (min_ns, max_ns, control.unordered.load(Ordering::Relaxed) != 0)
}

impl LaneControl {
    /// Publishes the counters that belong to a commit.
    pub fn publish(&self, published: Published) {
        let turn = begin(&self.turn);
        self.published_packets.store(published.packets, Ordering::Relaxed);
        self.published_bytes.store(published.bytes, Ordering::Relaxed);
        end(&self.turn, turn);
    }

    /// A consistent snapshot.
    pub fn published(&self) -> Published {
        snapshot(&self.turn, || Published {
            packets: self.published_packets.load(Ordering::Relaxed),
            bytes: self.published_bytes.load(Ordering::Relaxed),
        })
    }
}

impl WorkerControl {
    /// Publishes the worker's counters.
    pub fn publish(&self, counts: &WorkerCounts) {
        let turn = begin(&self.turn);
        let values = [
            counts.received_packets,
            counts.received_bytes,
            counts.stored_packets,
            counts.stored_bytes,
            counts.filtered_packets,
            counts.cut_packets,
            counts.duplicate_packets,
            counts.late_packets,
            counts.filtered_bytes,
            counts.cut_by_segment_packets,
            counts.stray_packets,
        ];
        for (word, value) in self.counters.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        for (reason, packets) in counts.dropped.iter() {
            self.dropped[reason as usize].store(packets, Ordering::Relaxed);
        }
        end(&self.turn, turn);
    }

    /// A consistent snapshot.
    pub fn counts(&self) -> WorkerCounts {
        snapshot(&self.turn, || {
            let value = |index: usize| self.counters[index].load(Ordering::Relaxed);
            let mut dropped = Drops::default();
            for reason in DropReason::ALL {
                dropped.add(reason, self.dropped[reason as usize].load(Ordering::Relaxed));
            }
            WorkerCounts {
                received_packets: value(0),
                received_bytes: value(1),
                stored_packets: value(2),
                stored_bytes: value(3),
                filtered_packets: value(4),
                cut_packets: value(5),
                duplicate_packets: value(6),
                late_packets: value(7),
                filtered_bytes: value(8),
                cut_by_segment_packets: value(9),
                stray_packets: value(10),
                dropped,
            }
        })
    }
}

/// Begins an update under a sequence count: readers that look now try again.
fn begin(turn: &AtomicU64) -> u64 {
    let now = turn.load(Ordering::Relaxed);
    turn.store(now + 1, Ordering::Relaxed);
    fence(Ordering::Release); // the odd count before the values
    now
}

/// Ends the update that [`begin`] returned.
fn end(turn: &AtomicU64, began: u64) {
    turn.store(began + 2, Ordering::Release); // the values before the even count
}

/// Reads values under a sequence count until no update ran meanwhile.
fn snapshot<T>(turn: &AtomicU64, read: impl Fn() -> T) -> T {
    loop {
        let before = turn.load(Ordering::Acquire);
        let values = read();
        fence(Ordering::Acquire); // the values before the second look
        if before & 1 == 0 && turn.load(Ordering::Relaxed) == before {
            return values;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_slot_is_pinned_only_at_its_generation() {
        let word = AtomicU64::new(0);
        let generation = claim(&word).unwrap();
        assert_eq!(generation, 1);
        assert!(claim(&word).is_none(), "the owner holds it");
        assert!(pin(&word, 1) && !pin(&word, 0) && !pin(&word, 2));
        unpin(&word);
        assert!(claim(&word).is_none());
        unpin(&word);
        assert_eq!(claim(&word), Some(2));
        assert!(!pin(&word, 1), "the old generation is gone");
    }
}
