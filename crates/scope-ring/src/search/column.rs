//! A stretch of the key column, lent in place, and its scan by key.
//!
//! ```text
//! memory   | entry to-1 | ... | entry from+1 | entry from |
//! scan     upward through memory, as fast as it delivers; one bit for each entry; then the bits from the last one down
//! ```

use crate::search::{KeyTest, scan};
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};

/// Entries of the key column, lent.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Last entry first.
    bytes: &'a [u8],
}

impl<'a> Column<'a> {
    /// The entries that lie in `bytes`, whole ones, the last entry first.
    pub fn new(bytes: &'a [u8]) -> Column<'a> {
        Column { bytes }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> u32 {
        (self.bytes.len() / KEY_ENTRY_BYTES) as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// As it lies in memory, the last entry first.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Entry `index` of the stretch.
    #[inline]
    pub fn get(&self, index: u32) -> KeyEntry {
        let end = self.bytes.len() - index as usize * KEY_ENTRY_BYTES;
        KeyEntry::from_bytes(self.bytes[end - KEY_ENTRY_BYTES..end].try_into().expect("16 bytes"))
    }

    /// All entries, first packet first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = KeyEntry> + ExactSizeIterator + use<'a> {
        let entries = self.bytes.rchunks_exact(KEY_ENTRY_BYTES);
        entries.map(|bytes| KeyEntry::from_bytes(bytes.try_into().expect("16 bytes")))
    }

    /// Indices within the stretch of the entries that pass, ascending.
    pub fn matches(&self, test: &KeyTest) -> Matches {
        let entries = self.bytes.as_chunks().0;
        Matches { bits: scan::entries(entries, &test.with_partial()), entries: self.len() }
    }
}

/// Which packets of a stretch: their indices, ascending. A scan makes it of the entries that pass; packets
/// can be put in and removed before the first one is taken out.
#[derive(Clone, Debug)]
pub struct Matches {
    /// One bit for each entry in order of memory, which is the reverse order of packets; passed and not out
    /// yet.
    bits: Vec<u64>,
    entries: u32,
}

impl Matches {
    /// None of `entries` packets.
    pub fn none(entries: u32) -> Matches {
        Matches { bits: vec![0; entries.div_ceil(u64::BITS) as usize], entries }
    }

    /// Puts one in.
    pub fn insert(&mut self, index: u32) {
        let (word, bit) = self.place(index);
        self.bits[word] |= bit;
    }

    /// Removes one.
    pub fn remove(&mut self, index: u32) {
        let (word, bit) = self.place(index);
        self.bits[word] &= !bit;
    }

    fn place(&self, index: u32) -> (usize, u64) {
        assert!(index < self.entries, "an index of the stretch");
        let in_memory = self.entries - 1 - index;
        ((in_memory / u64::BITS) as usize, 1 << (in_memory % u64::BITS))
    }
}

impl Iterator for Matches {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while let Some(last) = self.bits.last_mut() {
            if *last != 0 {
                let bit = last.ilog2();
                *last ^= 1 << bit;
                let in_memory = (self.bits.len() as u32 - 1) * 64 + bit;
                return Some(self.entries - 1 - in_memory);
            }
            self.bits.pop();
        }
        None
    }
}
