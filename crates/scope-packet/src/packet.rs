//! The packet as it is lent from room to room, the interface it came through, and the sink that sources push
//! into.

use crate::gap::Gap;
use crate::link::LinkType;

/// A batch holds at most this many packets.
pub const BATCH_PACKETS_MAX: usize = 64;

/// One captured frame, lent: `data` lives in the source's memory and is gone when the batch is.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The captured bytes, link header first; VLAN tags that were stripped on the way are back in place.
    pub data: &'a [u8],
    /// Length on the wire in bytes; may be larger than `data`, and in odd files smaller.
    pub original_len: u32,
    /// Capture time, ns since the Unix epoch, never negative.
    pub time_ns: i64,
    /// The source's own number of the interface, as [`Sink::interface`] got it.
    pub interface: u32,
    /// The `epb_flags` word of pcapng: bits 0 and 1 are the direction (1 in, 2 out), 0 where nothing is
    /// known.
    pub flags: u32,
    /// Packets that the source knows to be lost on this interface directly before this one.
    pub lost_before: u64,
}

/// `flags` of an outgoing packet.
pub const FLAGS_OUTBOUND: u32 = 2;

/// Where a packet's time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// The network card's clock.
    Hardware,
    /// The kernel's clock when it took the packet.
    Kernel,
    /// As it stands in a capture file.
    File,
    /// Made by the traffic generator.
    Generator,
}

impl TimestampSource {
    /// The word that interface descriptions carry.
    pub const fn name(self) -> &'static str {
        match self {
            TimestampSource::Hardware => "hardware",
            TimestampSource::Kernel => "kernel",
            TimestampSource::File => "file",
            TimestampSource::Generator => "generator",
        }
    }
}

/// One capture interface as a source describes it, before its first packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, as `if_name` shows it: `eth0`, or what the capture file calls it, or the file's own name.
    pub name: String,
    /// What the source adds in words (a capture file's own `if_description`); may be empty.
    pub description: String,
    /// Link type of all its packets.
    pub link_type: LinkType,
    /// Snap length in bytes in force at the source; 0: unlimited or unknown.
    pub snap_len: u32,
    /// Where its times come from.
    pub timestamps: TimestampSource,
    /// Which part of its source it belongs to, from 0: the number of the file, or of what was requested live,
    /// where several are fed as one, else 0.
    pub part: u32,
}

/// What a source knows of the time of the next batch, beyond the times of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Capture time was set back: a new era begins with the next batch, or here if none comes.
    Back,
    /// The times of the next batch are not believed: they move no clock.
    Stray,
}

/// Where a source pushes its packets: the worker that polls it.
///
/// A trait because sources are tested without a worker, and because a call per batch costs nothing against
/// the walk over its packets. A live source's sink never blocks; an unpaced source's may wait for the ring.
pub trait Sink {
    /// Makes an interface known. Numbers are the source's own, given in this order from 0.
    fn interface(&mut self, interface: &Interface);

    /// Takes a batch of 1 to [`BATCH_PACKETS_MAX`] packets in arrival order. The bytes are the source's again
    /// on return.
    fn batch(&mut self, packets: &[Packet<'_>]);

    /// Reports packets that were lost on `interface` before they reached the source, somewhere in
    /// `since_ns..=until_ns` of capture time. The count of the next packet's `lost_before` holds them too.
    /// Where a live clock was set back by [`ERA_STEP_NS`](crate::time::ERA_STEP_NS) or more since the last
    /// report, `since_ns` is what it showed before, and `until_ns` what it shows now, be that less. So is a
    /// gap's end.
    fn lost(&mut self, interface: u32, packets: u64, since_ns: i64, until_ns: i64);

    /// Reports a span of capture time in which `interface` could bring nothing, or of which packets are
    /// missing for another reason than a full kernel ring ([`Sink::lost`]).
    fn gap(&mut self, interface: u32, gap: Gap) {
        let _ = (interface, gap);
    }

    /// Says, before the batch that it speaks of, how capture time goes on. Of a source that waits; a live one
    /// is held against the system's clock by the receiver of its batches.
    fn turn(&mut self, turn: Turn) {
        let _ = turn;
    }

    /// Every packet up to `clock_ns` (capture time) has been seen by the source, those included that fell to
    /// other workers.
    fn reached(&mut self, clock_ns: i64) {
        let _ = clock_ns;
    }

    /// Live: every packet that was lost before `until_ns` (capture time) has been reported by now.
    fn counted(&mut self, until_ns: i64) {
        let _ = until_ns;
    }

    /// Hands over comments of packets of the next batch: of each its index there, and the text.
    fn comments(&mut self, comments: &[(usize, &str)]) {
        let _ = comments;
    }

    /// Hands over what a capture says beside its packets: a whole pcapng block, little-endian, with names for
    /// addresses or with secrets. It belongs to all interfaces of `part` (see [`Interface::part`]).
    fn annex(&mut self, part: u32, block: &[u8]) {
        let _ = (part, block);
    }

    /// Nothing came, and no packet older than `clock_ns` (capture time) will: the worker's clock moves on.
    fn idle(&mut self, clock_ns: i64);
}
