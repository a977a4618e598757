//! Summaries of sealed segments, so that a search skips whole ones: a Bloom filter of addresses and ports,
//! and the protocols and kinds that occur. Built from the key column by a thread beside; workers hash
//! nothing. A file's index has them in the same form.
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
/// Bytes of a written summary in front of its bits.
const FIXED_BYTES: usize = 40;

/// What is known of the packets of one segment, of the ring or of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// A power of two of words, so that a part of a hash is a place.
    bits: Vec<u64>,
    /// One bit for each IP protocol.
    protocols: [u64; 4],
    /// One bit for each kind of network layer.
    kinds: u8,
    /// Some entry is partial.
    partial: bool,
}

impl Summary {
    /// Bytes of the summary of a segment of `segment_bytes`, as it is written.
    pub const fn bytes_of(segment_bytes: usize) -> usize {
        FIXED_BYTES + segment_bytes / SEGMENT_BYTES_PER_BITS_BYTE
    }

    /// Bytes of this one, as it is written.
    pub fn bytes(&self) -> usize {
        FIXED_BYTES + self.bits.len() * 8
    }

    /// The summary of a sealed segment of `segment_bytes`, whose key entries are `column`.
    pub fn new(column: Column<'_>, segment_bytes: usize) -> Summary {
        let mut summary = Summary::empty();
        summary.build(column, segment_bytes);
        summary
    }

    fn empty() -> Summary {
        Summary { bits: Vec::new(), protocols: [0; 4], kinds: 0, partial: false }
    }

    /// Becomes the summary of another segment, in the same memory.
    fn build(&mut self, column: Column<'_>, segment_bytes: usize) {
        *self = Summary { bits: std::mem::take(&mut self.bits), ..Summary::empty() };
        self.bits.clear();
        self.bits.resize((segment_bytes / SEGMENT_BYTES_PER_BITS_BYTE / 8).max(1), 0);
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

    /// Appends it as it stands in a file's index: kinds, flags, six zeros, protocols, bits.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend([self.kinds, self.partial as u8, 0, 0, 0, 0, 0, 0]);
        for word in self.protocols.iter().chain(&self.bits) {
            out.extend(word.to_le_bytes());
        }
    }

    /// Reads one; `None` where so many bytes are none.
    pub fn read(bytes: &[u8]) -> Option<Summary> {
        let (fixed, bits) = bytes.split_at_checked(FIXED_BYTES)?;
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
        };
        (bits.len() % 8 == 0 && (bits.len() / 8).is_power_of_two()).then_some(())?;
        let protocols = words(&fixed[8..]).try_into().ok()?;
        Some(Summary { bits: words(bits), protocols, kinds: fixed[0], partial: fixed[1] & 1 != 0 })
    }

    /// Whether an entry that `test` matches can be in the segment.
    pub fn may_hold(&self, test: &KeyTest) -> bool {
        self.partial || test.patterns().iter().any(|pattern| self.may_hold_one_of(pattern))
    }

    fn places(&self, key: u64) -> [(usize, u64); 2] {
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (mixed ^ mixed >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let place = |hash: u32| ((hash / 64) as usize & (self.bits.len() - 1), 1 << (hash % 64));
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

    fn may_hold_one_of(&self, pattern: &Pattern) -> bool {
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

/// A summary and whose it is.
struct Slot {
    /// `None`: nothing is known.
    of: Option<SegmentId>,
    summary: Summary,
}

impl Slot {
    fn is_of(&self, pinned: &Pinned) -> bool {
        self.of == Some(pinned.id())
    }
}

/// Summaries of a ring's sealed segments, as far as they are built.
pub struct Summaries {
    /// One for each slot of the ring.
    table: Vec<Mutex<Slot>>,
    segment_bytes: usize,
    built: AtomicU64,
}

impl Summaries {
    /// Room for the summaries of `ring`'s segments, none of them built.
    pub fn new(ring: &Ring) -> Arc<Summaries> {
        let nothing = || Mutex::new(Slot { of: None, summary: Summary::empty() });
        Arc::new(Summaries {
            table: (0..ring.segments()).map(|_| nothing()).collect(),
            segment_bytes: ring.segment_bytes(),
            built: AtomicU64::new(0),
        })
    }

    /// Builds the summary of a segment, unless somebody has; false where it isn't sealed yet.
    pub fn build(&self, pinned: &Pinned) -> bool {
        let committed = pinned.committed();
        if committed.sealed {
            let mut slot = self.table[pinned.slot() as usize].lock().expect("no panic while held");
            self.fill(&mut slot, pinned, committed.packets);
        }
        committed.sealed
    }

    /// The summary of a segment, built for everybody if nobody has; `None`: it isn't sealed yet. Waits for
    /// nobody: what another thread is building right now is built twice.
    pub fn of(&self, pinned: &Pinned) -> Option<Summary> {
        let committed = pinned.committed();
        committed.sealed.then(|| match self.table[pinned.slot() as usize].try_lock() {
            Ok(mut slot) => {
                self.fill(&mut slot, pinned, committed.packets);
                slot.summary.clone()
            }
            Err(_) => Summary::new(pinned.column(0, committed.packets), self.segment_bytes),
        })
    }

    fn fill(&self, slot: &mut Slot, pinned: &Pinned, packets: u32) {
        if !slot.is_of(pinned) {
            slot.summary.build(pinned.column(0, packets), self.segment_bytes);
            slot.of = Some(pinned.id());
            self.built.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the segment can hold an entry that `test` matches. True where nothing is known of it.
    pub fn may_hold(&self, pinned: &Pinned, test: &KeyTest) -> bool {
        let Ok(slot) = self.table[pinned.slot() as usize].try_lock() else { return true };
        !slot.is_of(pinned) || slot.summary.may_hold(test)
    }

    /// Summaries built so far.
    pub fn built(&self) -> u64 {
        self.built.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

    #[test]
    fn a_summary_is_read_as_it_was_written_and_says_the_same() {
        let entry = |number: u8| KeyEntry {
            source: [10, 0, 0, number],
            destination: [10, 0, 1, number],
            source_port: 1000 + number as u16,
            destination_port: 53,
            word: 17 | 1 << 8,
        };
        let bytes: Vec<u8> = (0..9).flat_map(|number| entry(number).to_bytes()).collect();
        for segment_bytes in [SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX] {
            let summary = Summary::new(Column::new(&bytes), segment_bytes);
            let mut written = Vec::new();
            summary.write(&mut written);
            assert_eq!([written.len(), summary.bytes()], [Summary::bytes_of(segment_bytes); 2]);
            let read = Summary::read(&written).unwrap();
            assert_eq!(read, summary);
            assert!((0..9).all(|number| read.may_hold(&KeyTest::host([10, 0, 1, number]))));
            assert!(!read.may_hold(&KeyTest::protocol(6)) && read.may_hold(&KeyTest::port(53)));
            for len in [0, FIXED_BYTES - 1, FIXED_BYTES, written.len() - 8] {
                assert_eq!(Summary::read(&written[..len]), None, "{len} bytes");
            }
        }
    }

    #[test]
    fn a_summary_with_a_partial_entry_holds_anything() {
        let partial = KeyEntry { word: 1 << 12, ..KeyEntry::default() };
        let summary = Summary::new(Column::new(&partial.to_bytes()), SEGMENT_BYTES_MIN);
        assert!(partial.partial() && summary.may_hold(&KeyTest::host([1, 2, 3, 4])));
    }
}
