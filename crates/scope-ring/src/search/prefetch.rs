//! Walking through the offsets: blocks by index, the ones that come next already on their way from memory.

use crate::blocks::Blocks;
use crate::search::Column;
use scope_packet::KeyEntry;
use scope_packet::fetch::fetch;
use scope_packet::pcapng::PacketBlock;

/// Blocks that are fetched ahead: about as many lines as a core can wait for at once.
const AHEAD: usize = 16;

/// Blocks by index, lent.
pub struct Picked<'a, I> {
    column: Column<'a>,
    blocks: Blocks<'a>,
    indices: I,
    /// Index and entry of those on their way, a circle from `at` on.
    ahead: [(u32, KeyEntry); AHEAD],
    at: usize,
    waiting: usize,
}

impl<'a, I: Iterator<Item = u32>> Picked<'a, I> {
    /// The blocks of the packets at `indices` of `column`; an entry's offset is that of its block in
    /// `blocks`.
    pub(crate) fn new(column: Column<'a>, blocks: Blocks<'a>, indices: I) -> Picked<'a, I> {
        let ahead = [(0, KeyEntry::default()); AHEAD];
        let mut picked = Picked { column, blocks, indices, ahead, at: 0, waiting: 0 };
        while picked.waiting < AHEAD && picked.fetch((picked.at + picked.waiting) % AHEAD) {
            picked.waiting += 1;
        }
        picked
    }

    /// Starts to fetch the next block and notes it at `place`.
    #[inline]
    fn fetch(&mut self, place: usize) -> bool {
        let Some(index) = self.indices.next() else { return false };
        let entry = self.column.get(index);
        fetch(self.blocks.bytes(), entry.offset() as usize, 1);
        self.ahead[place] = (index, entry);
        true
    }

    /// The next block, with its key.
    #[inline]
    pub(crate) fn next_with_key(&mut self) -> Option<(u32, KeyEntry, PacketBlock<'a>)> {
        if self.waiting == 0 {
            return None;
        }
        let place = self.at;
        let (index, entry) = self.ahead[place];
        if !self.fetch(place) {
            self.waiting -= 1;
        }
        self.at = (place + 1) % AHEAD;
        Some((index, entry, self.blocks.at(entry.offset())))
    }
}

impl<'a, I: Iterator<Item = u32>> Iterator for Picked<'a, I> {
    type Item = (u32, PacketBlock<'a>);

    #[inline]
    fn next(&mut self) -> Option<(u32, PacketBlock<'a>)> {
        self.next_with_key().map(|(index, _, block)| (index, block))
    }
}
