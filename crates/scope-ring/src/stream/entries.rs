//! The key entries that aren't in the segment yet: staged downward as they will lie there, streamed by whole
//! lines.
//!
//! ```text
//!  staged   |     free     | entry 6 | 5 | 4 | entry 3 | 2 | 1 | entry 0 |      `first` = 0, 7 packets
//!                          ^ open line       ^ whole line                ^ end, goes below the entries that are in place
//! ```
//! Up to 128 are staged before their lines are streamed: a line that is read right after its narrow stores
//! waits for them, and this happens only once in so many packets.

use super::line;
use super::place::Place;
use scope_packet::BATCH_PACKETS_MAX;
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};
use scope_packet::segment;

/// Entries that are staged at most.
const STAGED_MAX: usize = 128;
/// Entries of one line.
const LINE_ENTRIES: usize = super::LINE_BYTES / KEY_ENTRY_BYTES;

// Behind the open line, which `write_lines` leaves, there is room for a batch.
const _: () =
    assert!(STAGED_MAX.is_multiple_of(LINE_ENTRIES) && STAGED_MAX >= BATCH_PACKETS_MAX + LINE_ENTRIES);

pub type Entry = [u8; KEY_ENTRY_BYTES];

/// Staging of the entries from `first` on.
#[repr(C, align(64))]
pub struct Entries {
    staged: [Entry; STAGED_MAX],
    /// Index of the first staged entry, the first one of a line.
    first: usize,
    /// Entries that are published.
    published: usize,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries { staged: [[0; KEY_ENTRY_BYTES]; STAGED_MAX], first: 0, published: 0 }
    }
}

impl Entries {
    pub fn open(&mut self) {
        (self.first, self.published) = (0, 0);
    }

    /// Makes room for the entries of a batch.
    #[inline]
    pub fn make_room(&mut self, place: &mut Place) {
        if place.packets - self.first > STAGED_MAX - BATCH_PACKETS_MAX {
            self.write_lines(place, true);
        }
    }

    /// Where the entry of the packet that comes next is staged; those of a batch follow downward.
    #[inline]
    pub fn next(&mut self, place: &Place) -> *mut Entry {
        let staged = place.packets - self.first;
        &raw mut self.staged[STAGED_MAX - 1 - staged]
    }

    /// Stages the entry of packet `index` of the segment, whose block begins at `at`.
    #[inline(always)]
    pub fn push(&mut self, index: usize, key: &KeyEntry, at: usize) {
        let staged = index - self.first;
        debug_assert!(staged < STAGED_MAX);
        // The remainder changes nothing; it lets the compiler see that the index is right.
        self.staged[STAGED_MAX - 1 - staged % STAGED_MAX] = key.at(at as u32).to_bytes();
    }

    /// Puts all entries where readers look for them, those of the open line by ordinary stores.
    pub fn publish(&mut self, place: &mut Place) {
        self.write_lines(place, place.is_large());
        self.write_unpublished(place, place.packets);
        self.published = place.packets;
    }

    /// Writes all whole lines, streamed if `streams`, and goes on with the open line.
    #[cold]
    pub fn write_lines(&mut self, place: &mut Place, streams: bool) {
        let end = place.packets - place.packets % LINE_ENTRIES;
        if self.first == end {
            return;
        }
        let cut = self.published.next_multiple_of(LINE_ENTRIES).clamp(self.first, end); // up to here the last commit reached
        let streamed = if streams { cut..end } else { end..end };
        self.write_unpublished(place, streamed.start);
        place.streamed |= !streamed.is_empty();
        for line in streamed.step_by(LINE_ENTRIES) {
            let last = line + LINE_ENTRIES - 1; // lies lowest
            let from = &raw const self.staged[STAGED_MAX - 1 - (last - self.first)];
            // SAFETY: the line's four entries are staged; in the segment they fill a line between blocks and
            // foot, of which nothing is published. The fence comes with the commit or the seal.
            unsafe {
                line::stream(place.address(segment::entry_offset(place.segment_bytes, last)), from.cast())
            };
        }
        let open = place.packets - end;
        let from = STAGED_MAX - (end - self.first) - open;
        self.staged.copy_within(from..from + open, STAGED_MAX - open);
        self.first = end;
    }

    /// Writes the staged entries below `end` that aren't published, by ordinary stores.
    fn write_unpublished(&self, place: &Place, end: usize) {
        for index in self.published.max(self.first)..end {
            // SAFETY: the room keeps entries apart from blocks and foot; this one is neither published nor
            // streamed.
            let slot =
                unsafe { place.gap(segment::entry_offset(place.segment_bytes, index), KEY_ENTRY_BYTES) };
            slot.copy_from_slice(&self.staged[STAGED_MAX - 1 - (index - self.first)]);
        }
    }
}
