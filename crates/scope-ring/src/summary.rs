//! Summaries of sealed segments, so that a search skips whole ones: a Bloom filter of addresses and ports,
//! and the protocols and kinds that occur. Built from the key column by a thread beside; workers hash
//! nothing.
//!
//! ```text
//! table   one place for each slot of the ring, outside the region: it says whose summary it is
//! bits    segment_bytes / 512 bytes; 2 bits for each address and each port, whichever side it stands on
//! ```
//! A segment with an entry that is `partial` is never skipped, nor is one without a summary.

use crate::lock::Mutex;
use crate::pin::Pinned;
use crate::ring::Ring;
use crate::search::{Column, KeyTest, Pattern, whole_fields};
use scope_packet::{KeyEntry, SegmentId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A segment has one byte of bits for so many of its own.
const SEGMENT_BYTES_PER_BITS_BYTE: usize = 512;

/// What is known of one segment.
struct Summary {
    /// Whose summary it is; `None`: nothing is known.
    of: Option<SegmentId>,
    bits: Vec<u64>,
    protocols: [u64; 4],
    kinds: u8,
    partial: bool,
}

impl Summary {
    fn empty() -> Summary {
        Summary { of: None, bits: Vec::new(), protocols: [0; 4], kinds: 0, partial: false }
    }

    fn build(&mut self, column: Column<'_>, words: usize) {
        *self = Summary { bits: std::mem::take(&mut self.bits), ..Summary::empty() };
        self.bits.clear();
        self.bits.resize(words, 0);
        let mut before = KeyEntry::default();
        for (index, entry) in column.iter().enumerate() {
            self.protocols[entry.protocol() as usize / 64] |= 1 << (entry.protocol() % 64);
            self.kinds |= 1 << entry.kind() as u8;
            self.partial |= entry.partial();
            let flow = |entry: &KeyEntry| {
                (entry.source, entry.destination, entry.source_port, entry.destination_port)
            };
            if index == 0 || flow(&entry) != flow(&before) {
                for key in keys(&entry) {
                    self.add(key);
                }
                before = entry;
            }
        }
    }

    fn places(&self, key: u64) -> [(usize, u64); 2] {
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let place = |hash: u32| ((hash / 64) as usize & (self.bits.len() - 1), 1 << (hash % 64)); // a power of two of words
        [place((hash >> 32) as u32), place((hash ^ hash >> 29) as u32)]
    }

    fn add(&mut self, key: u64) {
        for (word, bit) in self.places(key) {
            self.bits[word] |= bit;
        }
    }

    fn has(&self, key: u64) -> bool {
        self.places(key).iter().all(|&(word, bit)| self.bits[word] & bit != 0)
    }

    /// Whether an entry that the pattern matches can be in the segment.
    fn may_hold(&self, pattern: &Pattern) -> bool {
        let (mask, value) = pattern.parts();
        let [source, destination, source_port, destination_port, protocol, kind] = whole_fields(&mask);
        let [of_source, of_destination, of_source_port, of_destination_port] = keys(&value);
        (!source || self.has(of_source))
            && (!destination || self.has(of_destination))
            && (!source_port || self.has(of_source_port))
            && (!destination_port || self.has(of_destination_port))
            && (!protocol
                || self.protocols[value.protocol() as usize / 64] & 1 << (value.protocol() % 64) != 0)
            && (!kind || self.kinds & 1 << value.kind() as u8 != 0)
    }
}

/// What an entry leaves in the bits: source, destination, source port, destination port. Sides make no
/// difference.
fn keys(entry: &KeyEntry) -> [u64; 4] {
    const PORT: u64 = 1 << 32;
    [
        u32::from_le_bytes(entry.source) as u64,
        u32::from_le_bytes(entry.destination) as u64,
        PORT | entry.source_port as u64,
        PORT | entry.destination_port as u64,
    ]
}

/// Summaries of a ring's sealed segments, as far as they are built.
pub struct Summaries {
    /// One for each slot.
    table: Vec<Mutex<Summary>>,
    words: usize,
    built: AtomicU64,
}

impl Summaries {
    /// Room for the summaries of `ring`'s segments, none of them built.
    pub fn new(ring: &Ring) -> Arc<Summaries> {
        Arc::new(Summaries {
            table: (0..ring.segments()).map(|_| Mutex::new(Summary::empty())).collect(),
            words: (ring.segment_bytes() / SEGMENT_BYTES_PER_BITS_BYTE / 8).max(1),
            built: AtomicU64::new(0),
        })
    }

    /// Builds the summary of a segment; false where it isn't sealed yet.
    pub fn build(&self, pinned: &Pinned) -> bool {
        let committed = pinned.committed();
        if committed.sealed {
            let mut summary = self.table[pinned.slot() as usize].lock().expect("no panic while held");
            summary.build(pinned.column(0, committed.packets), self.words);
            summary.of = Some(pinned.id());
            self.built.fetch_add(1, Ordering::Relaxed);
        }
        committed.sealed
    }

    /// Whether the segment can hold an entry that `test` matches. True where nothing is known of it.
    pub fn may_hold(&self, pinned: &Pinned, test: &KeyTest) -> bool {
        let Ok(summary) = self.table[pinned.slot() as usize].try_lock() else { return true };
        summary.of != Some(pinned.id())
            || summary.partial
            || test.patterns().iter().any(|pattern| summary.may_hold(pattern))
    }

    /// Summaries built so far.
    pub fn built(&self) -> u64 {
        self.built.load(Ordering::Relaxed)
    }
}
