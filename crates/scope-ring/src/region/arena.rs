//! Memory to measure with: chunks of 2 MiB, of the same kind and made resident in the same way as a ring's.

use super::{Layout, MemoryOptions, Region};
use crate::RingError;

/// Prefaulted memory.
pub struct Arena {
    region: Region,
}

impl Arena {
    /// Bytes of a chunk.
    pub const CHUNK_BYTES: usize = 2 << 20;

    /// At least one chunk, all resident; `bytes` is rounded down to whole chunks.
    ///
    /// # Errors
    /// The system's, where it doesn't give that much.
    pub fn new(bytes: u64) -> Result<Arena, RingError> {
        let chunks = (bytes as usize / Arena::CHUNK_BYTES).max(1);
        let layout = Layout::new(Arena::CHUNK_BYTES, chunks, 1, 1);
        Ok(Arena { region: Region::ready(layout, MemoryOptions::default(), &|_bytes| true)? })
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        (self.region.layout().segments * Arena::CHUNK_BYTES) as u64
    }

    /// The chunks.
    pub fn chunks(&mut self) -> Vec<&mut [u8]> {
        let slots = 0..self.region.layout().segments as u32;
        let chunk = |slot: u32| {
            // SAFETY: a slot is `CHUNK_BYTES` of mapped memory that lives as long as the region; it is this
            // arena's own and has no readers; slots don't overlap, each is lent once, and all borrow from
            // `self`.
            unsafe { std::slice::from_raw_parts_mut(self.region.slot_base(slot), Arena::CHUNK_BYTES) }
        };
        slots.map(chunk).collect()
    }
}
