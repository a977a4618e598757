//! A batch: packets of one lane, lent in place with their key entries, and the share of them that one of
//! several readers gets.

use crate::blocks::Blocks;
use crate::pin::Pinned;
use crate::search::Column;
use scope_packet::fetch::fetch;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::PacketBlock;
use scope_packet::{KeyEntry, SegmentId};
use std::ops::Range;

/// A consumer that follows the ring through a reader: it sees every batch once, in place.
///
/// A trait so that scripts, the store and live taps share one reading loop; a call per batch costs nothing
/// measurable.
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
    pub(super) fn new(
        pinned: &'a Pinned,
        (from, to): (u32, u32),
        first_packet: u64,
        packets: u32,
        missed_before: u64,
    ) -> Batch<'a> {
        Batch { pinned, from, to, first_packet, packets, missed_before }
    }

    /// Lane.
    pub fn lane(&self) -> u32 {
        self.pinned.lane()
    }

    /// The segment that the packets lie in.
    pub fn segment(&self) -> SegmentId {
        self.pinned.id()
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

    /// The key entries, one for each block.
    pub fn entries(&self) -> Column<'a> {
        let from = (self.first_packet - self.pinned.first_packet()) as u32;
        self.pinned.column(from, from + self.packets)
    }

    /// Its packets by index, for whoever goes through them and asks ahead for those that come.
    pub fn in_place(&self) -> InPlace<'a> {
        InPlace { column: self.entries(), blocks: self.blocks(), from: self.from }
    }

    /// The packets that fall to one of several readers, each of which sees every batch: index in the batch,
    /// entry, block.
    pub fn steered(
        &self,
        steering: Steering,
    ) -> impl Iterator<Item = (u32, KeyEntry, PacketBlock<'a>)> + use<'a> {
        let (blocks, from) = (self.blocks(), self.from);
        let own = (0u32..).zip(self.entries().iter()).filter(move |(_, entry)| steering.takes(entry));
        own.map(move |(index, entry)| (index, entry, blocks.at(entry.offset() - from)))
    }
}

/// Packets of a batch by index, lent.
#[derive(Clone, Copy)]
pub struct InPlace<'a> {
    column: Column<'a>,
    blocks: Blocks<'a>,
    /// Offset of the first block.
    from: u32,
}

impl<'a> InPlace<'a> {
    /// The key entry of packet `index` of the batch, and its block; panics where there is none.
    #[inline(always)]
    pub fn get(&self, index: u32) -> (KeyEntry, PacketBlock<'a>) {
        let entry = self.column.get(index);
        (entry, self.blocks.at(entry.offset() - self.from))
    }

    /// Asks for packet `index` without waiting for it. One by one, in between other work: where many are asked for at once, a
    /// processor forgets some (measured: half of the time of copying them).
    #[inline(always)]
    pub fn fetch(&self, index: u32) {
        if index + 1 < self.column.len() {
            let [from, to] = [index, index + 1].map(|index| self.column.get(index).offset() - self.from);
            fetch(self.blocks.bytes(), from as usize, (to - from) as usize);
        }
    }

    /// Asks for the key entries of packets `range`, by their index in the batch, without waiting for them.
    #[inline]
    pub fn fetch_entries(&self, range: Range<u32>) {
        let (bytes, end) = (self.column.bytes(), range.end.min(self.column.len()) as usize);
        let entries = end.saturating_sub(range.start as usize) * KEY_ENTRY_BYTES;
        // The first packet's lies last.
        fetch(bytes, bytes.len() - end * KEY_ENTRY_BYTES, entries);
    }
}

/// Which flows fall to reader `member` of `members` readers. Both directions of a flow fall to the same one.
///
/// The hash is computed by the reader from the key entry. Fragments go by addresses alone, since only the
/// first has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    member: u32,
    members: u32,
}

impl Steering {
    /// Member `member` of `members`, from 0.
    pub fn new(member: u32, members: u32) -> Steering {
        assert!(member < members, "members are numbered from 0");
        Steering { member, members }
    }

    /// Whether the entry's flow falls to this member.
    #[inline]
    pub fn takes(&self, entry: &KeyEntry) -> bool {
        ((Steering::flow_hash(entry) >> 32) * self.members as u64) >> 32 == self.member as u64
    }

    /// Symmetric hash of a flow: addresses, ports, protocol.
    #[inline]
    pub fn flow_hash(entry: &KeyEntry) -> u64 {
        let (source_port, destination_port) =
            if entry.fragment() { (0, 0) } else { (entry.source_port, entry.destination_port) };
        let end = |address: [u8; 4], port: u16| {
            Steering::spread((port as u64) << 32 | u32::from_le_bytes(address) as u64)
        };
        let ends = end(entry.source, source_port).wrapping_add(end(entry.destination, destination_port));
        Steering::spread(ends ^ entry.protocol() as u64)
    }

    /// Spreads the bits of a number (the finish of splitmix64).
    #[inline]
    pub fn spread(number: u64) -> u64 {
        let number = (number ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 32)
    }
}
