//! What is appended: packets by their index in a batch, as the form that writes them asks for them.

use scope_packet::KeyEntry;
use scope_packet::pcapng::PacketHead;

/// A packet on its way into a segment.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// What its block says of it. `interface` is the lane's matter and `captured_len` the length of `data`:
    /// whatever stands there doesn't count.
    pub head: PacketHead,
    /// Its key entry; the offset is filled in.
    pub key: &'a KeyEntry,
    /// Its bytes.
    pub data: &'a [u8],
}

/// Packets to append in one go.
///
/// A trait, and not a slice, because what a packet's block is made of is put together in registers, inside of
/// the loop that writes it: stored in between, narrowly, and read again in wide loads, it would wait for the
/// ring's own stores (measured: twice the time at 64 bytes).
pub trait Arrivals {
    /// How many there are.
    fn count(&self) -> usize;

    /// Packet `index`, below [`Arrivals::count`]. It may be asked for more than once, and must not panic:
    /// what of the batch is written by then would be there without being counted. Mark it
    /// `#[inline(always)]`.
    fn packet(&self, index: usize) -> Incoming<'_>;
}

/// A batch of one.
impl Arrivals for Incoming<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        1
    }

    #[inline(always)]
    fn packet(&self, _index: usize) -> Incoming<'_> {
        *self
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appended {
    /// How many of its packets there was room for, from the first one on.
    pub packets: usize,
    /// Bytes of these.
    pub captured_bytes: u64,
    /// Time of the last of them, ns.
    pub last_ns: i64,
    /// Negative if any time is, or is before the one that it follows.
    pub(super) steps: i64,
}

impl Appended {
    /// One more; the caller sets the count.
    #[inline(always)]
    pub fn add(&mut self, packet: &Incoming<'_>) {
        self.captured_bytes += packet.data.len() as u64;
        self.steps |= packet.head.time_ns | packet.head.time_ns.wrapping_sub(self.last_ns);
        self.last_ns = packet.head.time_ns;
    }

    /// No time is before the one that it follows.
    pub fn is_ordered(&self) -> bool {
        self.steps >= 0
    }
}

/// Bytes of a packet's block.
#[inline(always)]
pub fn block_bytes(packet: &Incoming<'_>) -> usize {
    packet.head.block_bytes_of(packet.data.len())
}

/// The head of a packet's block on `interface`.
#[inline(always)]
pub fn head(packet: &Incoming<'_>, interface: u32) -> PacketHead {
    PacketHead { interface, captured_len: packet.data.len() as u32, ..packet.head }
}
