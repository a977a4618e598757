//! What the files of all dumps together may gather before it is written: a part for each, the smaller the
//! more there are.
//!
//! ```text
//!  share = BUFFERED_BYTES_TOGETHER / holders        a holder: a file's write buffer, the index of its late packets, its rewriting
//!  grow   within the share, and while all together are within the bound ─► larger writes
//!         else what was gathered is written as it is, and counted
//! ```
//! A holder always gets [`BUFFER_BYTES_MIN`], and a packet that is larger than that. What waits for its turn
//! ([`crate::merge`]) has a bound of its own, shared out in the same way.

use crate::merge::waiting_bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that the files of all dumps of a run hold back together at most, beside [`BUFFER_BYTES_MIN`] for
/// each holder.
pub const BUFFERED_BYTES_TOGETHER: usize = 256 << 20;
/// What each holder gets however many there are, and one packet if that is larger.
pub const BUFFER_BYTES_MIN: usize = 16 << 10;
/// What one holder gets at most.
pub const BUFFER_BYTES_MAX: usize = 4 << 20;

/// The buffers of a run's dumps.
#[derive(Debug)]
pub struct Buffers {
    together: usize,
    holders: AtomicUsize,
    /// Bytes beyond the least of each holder.
    taken: AtomicUsize,
    most: AtomicUsize,
    /// Writes that were made early.
    early: AtomicU64,
    /// Selections that let packets wait for their turn.
    reorders: AtomicUsize,
    /// Packets that went out before their turn.
    early_packets: AtomicU64,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers::bounded(BUFFERED_BYTES_TOGETHER)
    }
}

/// How they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffered {
    /// Bytes that buffers have at most had, beside the least of each.
    pub bytes_most: u64,
    /// Writes that were made with less than is usual, since there was no room to gather more.
    pub early_writes: u64,
}

impl Buffers {
    fn bounded(together: usize) -> Buffers {
        Buffers {
            together,
            holders: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            early: AtomicU64::new(0),
            reorders: AtomicUsize::new(0),
            early_packets: AtomicU64::new(0),
        }
    }

    /// One more selection, whose packets wait for their turn.
    pub(crate) fn reorder(self: &Arc<Self>) -> Reorder {
        self.reorders.fetch_add(1, Ordering::Relaxed);
        Reorder { buffers: self.clone() }
    }

    /// Packets for which no reorder buffer had room: they went out before their turn.
    pub fn early_packets(&self) -> u64 {
        self.early_packets.load(Ordering::Relaxed)
    }

    /// How they stand.
    pub fn usage(&self) -> Buffered {
        Buffered {
            bytes_most: self.most.load(Ordering::Relaxed) as u64,
            early_writes: self.early.load(Ordering::Relaxed),
        }
    }

    /// What a holder may have by now.
    fn share(&self) -> usize {
        (self.together / self.holders.load(Ordering::Relaxed).max(1))
            .clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX)
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            taken.checked_add(bytes).filter(|sum| *sum <= self.together)
        });
        if let Ok(before) = taken {
            self.most.fetch_max(before + bytes, Ordering::Relaxed);
        }
        taken.is_ok()
    }
}

/// One selection's part of what waits for its turn.
#[derive(Debug)]
pub(crate) struct Reorder {
    buffers: Arc<Buffers>,
}

impl Reorder {
    /// What each of its two buffers may take by now.
    pub(crate) fn bytes(&self) -> usize {
        waiting_bytes(self.buffers.reorders.load(Ordering::Relaxed))
    }

    /// So many packets more went out before their turn.
    pub(crate) fn note_early(&self, packets: u64) {
        self.buffers.early_packets.fetch_add(packets, Ordering::Relaxed);
    }
}

impl Drop for Reorder {
    fn drop(&mut self) {
        self.buffers.reorders.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One holder's part.
#[derive(Debug)]
pub(crate) struct Part {
    buffers: Arc<Buffers>,
    /// Bytes taken beyond the least.
    taken: usize,
}

impl Part {
    pub(crate) fn of(buffers: &Arc<Buffers>) -> Part {
        buffers.holders.fetch_add(1, Ordering::Relaxed);
        Part { buffers: buffers.clone(), taken: 0 }
    }

    pub(crate) fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Bytes that it may have by now.
    pub(crate) fn share(&self) -> usize {
        self.buffers.share()
    }

    /// From now on it has `bytes`; `false`: all together have no room for them, and it has what it had.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(BUFFER_BYTES_MIN);
        if wanted > self.taken {
            if !self.buffers.take(wanted - self.taken) {
                return false;
            }
        } else {
            self.buffers.taken.fetch_sub(self.taken - wanted, Ordering::Relaxed);
        }
        self.taken = wanted;
        true
    }

    /// Notes that something was written early.
    pub(crate) fn note_early(&self) {
        self.buffers.early.fetch_add(1, Ordering::Relaxed);
    }

    /// Room in `buffer` for `more` bytes; `false`: what it holds is to be written first.
    pub(crate) fn make_room(&mut self, buffer: &mut Vec<u8>, more: usize) -> bool {
        let wanted = buffer.len() + more;
        if wanted <= buffer.capacity() {
            return true;
        }
        let share = self.share();
        // Twice as much, so that growing costs little; as much as is needed, where there is nothing to be
        // written first.
        let target = (2 * buffer.capacity()).max(BUFFER_BYTES_MIN).min(share).max(wanted);
        if !buffer.is_empty() && (wanted > share || !self.resize(target)) {
            return false;
        }
        if buffer.is_empty() && !self.resize(target) {
            self.resize(0); // one packet: it is written at once
        }
        buffer.reserve_exact(target - buffer.len());
        true
    }

    /// What was written needs no room; a buffer that is larger than its share is by now gives it back.
    pub(crate) fn emptied(&mut self, buffer: &mut Vec<u8>) {
        buffer.clear();
        if buffer.capacity() > self.share() || buffer.capacity() > BUFFER_BYTES_MIN + self.taken {
            *buffer = Vec::new();
        }
        self.resize(buffer.capacity());
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.resize(0);
        self.buffers.holders.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_of_a_thousand_files_stay_within_their_bound_whenever_they_come() {
        let together = 4 << 20;
        let buffers = Arc::new(Buffers::bounded(together));
        let mut files: Vec<(Part, Vec<u8>)> = Vec::new();
        let all =
            |files: &[(Part, Vec<u8>)]| files.iter().map(|(_, buffer)| buffer.capacity()).sum::<usize>();
        let mut early = 0;
        for round in 0..1000 {
            files.push((Part::of(&buffers), Vec::new()));
            // The first ones have taken all that there is before the others come.
            for (part, buffer) in files.iter_mut().rev().take(50) {
                for _ in 0..20 {
                    if !part.make_room(buffer, 1500) {
                        early += 1;
                        part.emptied(buffer);
                        assert!(part.make_room(buffer, 1500));
                    }
                    buffer.extend([0; 1500]);
                }
            }
            assert!(all(&files) <= together + files.len() * BUFFER_BYTES_MIN, "{round}: {}", all(&files));
        }
        assert!(early > 1000, "{early}");
        for (part, buffer) in &mut files {
            part.emptied(buffer);
            assert!(buffer.capacity() <= part.share());
        }
        assert!(buffers.usage().bytes_most <= together as u64);
        files.clear();
        assert_eq!(
            (buffers.taken.load(Ordering::Relaxed), buffers.share()),
            (0, BUFFER_BYTES_MAX.min(together))
        );
    }

    #[test]
    fn a_file_alone_gathers_as_much_as_it_may_and_a_large_packet_has_its_room() {
        let buffers = Arc::<Buffers>::default();
        let (mut part, mut buffer) = (Part::of(&buffers), Vec::new());
        while part.make_room(&mut buffer, 60_000) {
            buffer.extend(vec![0; 60_000]);
        }
        assert!((BUFFER_BYTES_MAX - 60_000..=BUFFER_BYTES_MAX).contains(&buffer.len()), "{}", buffer.len());
        let others: Vec<Part> =
            (0..BUFFERED_BYTES_TOGETHER / BUFFER_BYTES_MIN).map(|_| Part::of(&buffers)).collect();
        part.emptied(&mut buffer);
        assert_eq!((buffer.capacity(), part.share()), (0, BUFFER_BYTES_MIN));
        assert!(part.make_room(&mut buffer, 300_000) && buffer.capacity() >= 300_000);
        drop(others);
    }
}
