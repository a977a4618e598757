//! Where writing stands in the open segment, which lines are streamed, and whether a fence is due.

use super::{LINE_BYTES, STREAM_BYTES_MIN};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment;

/// The open segment and how far it is filled. Offsets are bytes from its start.
pub struct Place {
    pub segment: *mut u8,
    pub segment_bytes: usize,
    /// The end of the blocks and 16 bytes for each packet may reach this together; 0: no segment is open.
    pub room: usize,
    /// End of the blocks.
    pub at: usize,
    /// Packets, that is, entries.
    pub packets: usize,
    /// End of the blocks that are published: they are never written again.
    pub published: usize,
    /// Block lines that begin here or later are streamed, what lies before by ordinary stores. Never inside a
    /// published line.
    pub stream_from: usize,
    /// Something was streamed since the last fence; block lines, which the fast path writes, are counted by
    /// `stream_from`.
    pub streamed: bool,
    /// Running mean of the block bytes of a commit.
    commit_bytes_mean: usize,
}

impl Place {
    /// No segment is open.
    pub fn closed() -> Place {
        Place {
            segment: std::ptr::null_mut(),
            segment_bytes: 0,
            room: 0,
            at: 0,
            packets: 0,
            published: 0,
            stream_from: 0,
            streamed: false,
            commit_bytes_mean: 0,
        }
    }

    pub fn open(&mut self, segment: *mut u8, segment_bytes: usize, room: usize) {
        *self = Place {
            segment,
            segment_bytes,
            room,
            commit_bytes_mean: self.commit_bytes_mean,
            ..Place::closed()
        };
        self.predict();
    }

    pub fn close(&mut self) {
        *self = Place { commit_bytes_mean: self.commit_bytes_mean, ..Place::closed() };
    }

    /// Whether a block of `total` bytes and its entry still fit.
    #[inline]
    pub fn has_room(&self, total: usize) -> bool {
        self.at + total + (self.packets + 1) * KEY_ENTRY_BYTES <= self.room
    }

    /// Offset of the line that `at` lies in: the open line's.
    #[inline]
    pub fn open_line(&self) -> usize {
        self.at & !(LINE_BYTES - 1)
    }

    /// Offset of the next packet's entry.
    #[inline]
    pub fn entry_at(&self) -> usize {
        segment::entry_offset(self.segment_bytes, self.packets)
    }

    /// Whether what is written since the last commit is enough to stream it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_large(&self) -> bool {
        self.at - self.published >= STREAM_BYTES_MIN
    }

    /// Everything up to `at` is in place and will be seen.
    pub fn publish(&mut self) {
        self.commit_bytes_mean = (self.commit_bytes_mean * 3 + self.at - self.published) / 4;
        self.published = self.at;
        self.predict();
    }

    fn predict(&mut self) {
        let next_line = self.at.next_multiple_of(LINE_BYTES);
        self.stream_from =
            next_line + if self.commit_bytes_mean >= STREAM_BYTES_MIN { 0 } else { STREAM_BYTES_MIN };
    }

    /// What was streamed becomes visible before whatever is stored from now on.
    #[cfg(target_arch = "x86_64")]
    pub fn fence(&mut self) {
        if self.streamed || self.open_line() > self.stream_from {
            // SAFETY: every x86-64 has it.
            unsafe { std::arch::x86_64::_mm_sfence() };
            self.streamed = false;
        }
    }

    /// The address of offset `at`.
    ///
    /// # Safety
    /// A segment is open and `at` lies inside it.
    #[inline]
    pub unsafe fn address(&self, at: usize) -> *mut u8 {
        debug_assert!(at <= self.segment_bytes);
        // SAFETY: inside the segment by this function's contract.
        unsafe { self.segment.add(at) }
    }

    /// `len` bytes from `at` on, for writing.
    ///
    /// # Safety
    /// A segment is open, the bytes lie inside it, they were neither published nor streamed, and no two such
    /// slices overlap.
    #[inline]
    #[allow(clippy::mut_from_ref)] // disjoint parts of the segment; exclusiveness is the contract
    pub unsafe fn gap(&self, at: usize, len: usize) -> &mut [u8] {
        debug_assert!(at + len <= self.segment_bytes);
        // SAFETY: inside the segment and exclusive by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.segment.add(at), len) }
    }
}
