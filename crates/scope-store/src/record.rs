//! The flush record: what one flush of an open segment promises, provable by itself.
//!
//! ```text
//!  0        8         12            16          24       32        40         56
//!  | number | packets | block bytes | constants | blocks | entries | left out | own hash |
//! ```
//! All hashes are XXH3-64. `blocks` is that of all packet blocks so far, `entries` that of all key entries so
//! far in the order of their packets: both are carried on from flush to flush, so a flush hashes only what is
//! new, and who proves it hashes everything. `constants` is that of the foot's fields that are alike in all
//! flushes of the segment: a record proves nothing about another one.

use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment::{Foot, LeftOut};
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;

const OWN_HASH_AT: usize = RECORD_BYTES - 8;

/// What a flush promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the flush, from 1.
    pub number: u64,
    /// Packets so far.
    pub packets: u32,
    /// Bytes of their blocks.
    pub block_bytes: u32,
    /// See [`constants`].
    pub constants: u64,
    /// What is promised.
    pub hashes: Hashes,
    /// What was left out so far of a segment that the store composed.
    pub left_out: LeftOut,
}

/// Hashes of a segment's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// Of the blocks.
    pub blocks: u64,
    /// Of the entries, in the order of their packets.
    pub entries: u64,
}

/// Hashes that are carried on.
pub struct Running {
    blocks: XxHash3_64,
    entries: XxHash3_64,
}

impl Record {
    /// The record as it lies in the foot's page.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        out[0..8].copy_from_slice(&self.number.to_le_bytes());
        out[8..12].copy_from_slice(&self.packets.to_le_bytes());
        out[12..16].copy_from_slice(&self.block_bytes.to_le_bytes());
        out[16..24].copy_from_slice(&self.constants.to_le_bytes());
        out[24..32].copy_from_slice(&self.hashes.blocks.to_le_bytes());
        out[32..40].copy_from_slice(&self.hashes.entries.to_le_bytes());
        out[40..48].copy_from_slice(&self.left_out.packets.to_le_bytes());
        out[48..56].copy_from_slice(&self.left_out.bytes.to_le_bytes());
        let own = XxHash3_64::oneshot(&out[..OWN_HASH_AT]);
        out[OWN_HASH_AT..].copy_from_slice(&own.to_le_bytes());
        out
    }

    /// Reads a record; `None` where there is none, or one that isn't whole.
    pub fn read(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let whole = XxHash3_64::oneshot(&bytes[..OWN_HASH_AT]) == u64_at(OWN_HASH_AT) && u64_at(0) > 0;
        whole.then(|| Record {
            number: u64_at(0),
            packets: u32_at(8),
            block_bytes: u32_at(12),
            constants: u64_at(16),
            hashes: Hashes { blocks: u64_at(24), entries: u64_at(32) },
            left_out: LeftOut { packets: u64_at(40), bytes: u64_at(48), span_ns: (0, 0) },
        })
    }
}

impl Running {
    /// Of nothing.
    pub fn new() -> Running {
        Running { blocks: XxHash3_64::new(), entries: XxHash3_64::new() }
    }

    /// Adds whole blocks, and the entries of their packets as they lie: the last packet's first.
    pub fn add(&mut self, blocks: &[u8], entries: &[u8]) {
        const TOGETHER: usize = 64;
        self.blocks.write(blocks);
        for part in entries.rchunks(TOGETHER * KEY_ENTRY_BYTES) {
            let mut turned = [0; TOGETHER * KEY_ENTRY_BYTES];
            for (to, from) in
                turned.chunks_exact_mut(KEY_ENTRY_BYTES).zip(part.rchunks_exact(KEY_ENTRY_BYTES))
            {
                to.copy_from_slice(from);
            }
            self.entries.write(&turned[..part.len()]);
        }
    }

    /// The hashes so far.
    pub fn hashes(&self) -> Hashes {
        Hashes { blocks: self.blocks.finish(), entries: self.entries.finish() }
    }
}

impl Default for Running {
    fn default() -> Running {
        Running::new()
    }
}

/// Hash of the fields that are alike in all feet of one segment, open or closed: who it is, and what its lane
/// had before it.
pub fn constants(foot: &Foot) -> u64 {
    let alike = Foot {
        unordered: false,
        packets: 0,
        block_bytes: 0,
        first_ns: 0,
        last_ns: 0,
        min_ns: 0,
        max_ns: 0,
        left_out: LeftOut::default(),
        ..*foot
    };
    let mut fields = [0; Foot::FIELDS_BYTES];
    alike.write(&mut fields);
    XxHash3_64::oneshot(&fields[..Foot::PACKETS_FIELDS_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: Record = Record {
        number: 7,
        packets: 3,
        block_bytes: 300,
        constants: 5,
        hashes: Hashes { blocks: 8, entries: 9 },
        left_out: LeftOut { packets: 10, bytes: 11, span_ns: (0, 0) },
    };

    #[test]
    fn a_record_is_read_back_and_one_with_a_changed_byte_is_none() {
        let bytes = RECORD.to_bytes();
        assert_eq!(Record::read(&bytes), Some(RECORD));
        for at in 0..RECORD_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x40;
            assert_eq!(Record::read(&changed), None, "byte {at}");
        }
        assert_eq!(Record::read(&[0; RECORD_BYTES]), None);
    }

    #[test]
    fn hashes_are_the_same_in_one_piece_and_in_many() {
        let blocks: Vec<u8> = (0..6000u32).map(|at| (at % 251) as u8).collect();
        let entries: Vec<u8> = (0..300 * KEY_ENTRY_BYTES).map(|at| (at * 7 % 253) as u8).collect();
        let (mut one, mut many) = (Running::new(), Running::new());
        one.add(&blocks, &entries);
        let mut end = entries.len();
        for part in [1usize, 63, 64, 65, 107] {
            let from = end - part * KEY_ENTRY_BYTES;
            many.add(&[], &entries[from..end]);
            end = from;
        }
        assert_eq!(end, 0);
        blocks.chunks(777).for_each(|part| many.add(part, &[]));
        assert_eq!(one.hashes(), many.hashes());
        let in_order: Vec<u8> = entries.rchunks(KEY_ENTRY_BYTES).flatten().copied().collect();
        assert_eq!(one.hashes().entries, XxHash3_64::oneshot(&in_order));
    }
}
