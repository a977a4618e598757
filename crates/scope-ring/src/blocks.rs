//! Packet blocks one after another, lent in place.

use scope_packet::pcapng::PacketBlock;

/// Packet blocks one after another, lent in place.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    bytes: &'a [u8],
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Blocks<'a> {
        Blocks { bytes }
    }

    /// The block at `offset` bytes from the first one; panics where none begins.
    #[inline]
    pub fn at(&self, offset: u32) -> PacketBlock<'a> {
        PacketBlock::first(&self.bytes[offset as usize..]).expect("a committed block begins here")
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = PacketBlock<'a>;

    #[inline]
    fn next(&mut self) -> Option<PacketBlock<'a>> {
        let block = PacketBlock::first(self.bytes)?;
        self.bytes = &self.bytes[block.bytes().len()..];
        Some(block)
    }
}
