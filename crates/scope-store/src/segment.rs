//! A segment out of a file, in memory: looked through once, so that nobody who reads its packets is lied to.
//!
//! ```text
//! checks hold ─► foot ─► block k begins where the last ended and entry k says ─► whole blocks to the column
//! ```
//! A segment without checks, as files had them before there were any, is held against all the rest.

use crate::checks::{self, Damage, Hash};
use crate::index::Entry;
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};
use scope_packet::pcapng::{self, BLOCK_BYTES_MIN, KEY_COLUMN, PacketBlock, le32};
use scope_packet::segment::{self, FOOT_BYTES, FOOT_MAGIC, Foot};
use scope_ring::{Column, Summary};

/// Why a segment's bytes can't be read as one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentFault {
    /// No foot stands where one must be: the segment isn't closed, or something else lies there.
    #[error("no foot of a segment stands there")]
    NoFoot,
    /// Written by a later program.
    #[error("it has format version {0}, which is newer than this program's: read it with a newer one")]
    Newer(u8),
    /// The checks say that it isn't what was written.
    #[error(transparent)]
    Damaged(Damage),
    /// What it says of itself can't be.
    #[error("{what}, {at} bytes into the segment")]
    Structure {
        /// What is wrong.
        what: &'static str,
        /// Where, bytes from the segment's begin.
        at: usize,
    },
}

/// What an interface statistics block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Number of the interface.
    pub interface: u32,
    /// When, ns since the epoch.
    pub time_ns: i64,
    /// Packets received since the run began.
    pub received: u64,
    /// Packets dropped since the run began.
    pub dropped: u64,
}

/// A segment that holds what it says.
#[derive(Clone, Debug)]
pub struct StoredSegment<'a> {
    bytes: &'a [u8],
    foot: Foot,
    hash: Hash,
    interface_max: Option<u32>,
}

/// The foot of a segment of `segment_bytes`, out of its foot's page: not proven, but possible.
pub fn foot_of(foot_page: &[u8], segment_bytes: usize) -> Result<Foot, SegmentFault> {
    if foot_page.len() != FOOT_BYTES || foot_page[..7] != FOOT_MAGIC[..7] {
        return Err(SegmentFault::NoFoot);
    }
    if foot_page[7] > FOOT_MAGIC[7] {
        return Err(SegmentFault::Newer(foot_page[7]));
    }
    let foot = Foot::read(foot_page).ok_or(SegmentFault::NoFoot)?;
    let structure = |what| SegmentFault::Structure { what, at: segment_bytes - FOOT_BYTES };
    let (packets, block_bytes) = (foot.packets as usize, foot.block_bytes as usize);
    let fewest = packets.saturating_mul(pcapng::PACKET_HEAD_BYTES + 4);
    if fewest > segment_bytes || block_bytes > segment_bytes || block_bytes < fewest {
        return Err(structure("the foot counts more packets than there is room for"));
    }
    if !segment::fits(segment_bytes, block_bytes, packets, 0) {
        return Err(structure("the foot leaves no room for what it counts"));
    }
    if le32(foot_page, FOOT_BYTES - 4) as usize != column_bytes(packets) {
        return Err(structure("the closing length isn't that of so many packets"));
    }
    Ok(foot)
}

/// Bytes of the key column's block.
pub(crate) fn column_bytes(packets: usize) -> usize {
    8 + packets * KEY_ENTRY_BYTES + FOOT_BYTES
}

impl<'a> StoredSegment<'a> {
    /// Looks through a whole segment: its checks, if it has any, then every block's place and length.
    pub fn new(bytes: &'a [u8]) -> Result<StoredSegment<'a>, SegmentFault> {
        if !segment::is_segment_size(bytes.len()) {
            return Err(SegmentFault::Damaged(Damage::Size(bytes.len())));
        }
        let foot_page = &bytes[bytes.len() - FOOT_BYTES..];
        let hash = match checks::verify(bytes) {
            Ok(hash) => hash,
            Err(Damage::NoChecks) => Hash::NONE,
            // A page that isn't a segment's at all, or a newer one's, is said to be so.
            Err(damage) => match foot_of(foot_page, bytes.len()) {
                Err(fault @ (SegmentFault::Newer(_) | SegmentFault::NoFoot)) => return Err(fault),
                _ => return Err(SegmentFault::Damaged(damage)),
            },
        };
        let foot = foot_of(foot_page, bytes.len())?;
        let mut segment = StoredSegment { bytes, foot, hash, interface_max: None };
        segment.interface_max = segment.check_packets()?;
        segment.check_behind()?;
        Ok(segment)
    }

    /// Entries and packet blocks agree, and the foot with them. Returns the largest interface number.
    fn check_packets(&self) -> Result<Option<u32>, SegmentFault> {
        let foot = &self.foot;
        let blocks = &self.bytes[..foot.block_bytes as usize];
        let (mut at, mut before_ns, mut interface_max) = (0, None, None);
        for entry in self.column().iter() {
            let wrong = |what| Err(SegmentFault::Structure { what, at });
            if entry.offset() as usize != at {
                return wrong("an entry of the column says another place of its packet");
            }
            let Some(block) = blocks.get(at..).and_then(PacketBlock::first) else {
                return wrong("no whole packet block");
            };
            let total = block.bytes().len();
            if le32(block.bytes(), total - 4) as usize != total {
                return wrong("a packet block's two lengths differ");
            }
            let time_ns = block.time_ns();
            if !(foot.min_ns..=foot.max_ns).contains(&time_ns) {
                return wrong("a packet's time lies outside what the foot says");
            }
            if !foot.unordered && before_ns.is_some_and(|before_ns| time_ns < before_ns) {
                return wrong("a packet's time steps back, and the foot says that none does");
            }
            if before_ns.is_none() && time_ns != foot.first_ns {
                return wrong("the first packet's time isn't the foot's");
            }
            (at, before_ns) = (at + total, Some(time_ns));
            interface_max = interface_max.max(Some(block.interface()));
        }
        if at != blocks.len() || before_ns.is_some_and(|last_ns| last_ns != foot.last_ns) {
            return Err(SegmentFault::Structure { what: "the packets end otherwise than the foot says", at });
        }
        Ok(interface_max)
    }

    /// Whole blocks up to the column, no packets among them, and the column's own head.
    fn check_behind(&self) -> Result<(), SegmentFault> {
        let column_at = self.bytes.len() - column_bytes(self.foot.packets as usize);
        let mut at = self.foot.block_bytes as usize;
        while at != column_at {
            let Some(block) = whole_block(&self.bytes[at..column_at]) else {
                return Err(SegmentFault::Structure { what: "no whole block", at });
            };
            if [pcapng::PACKET, pcapng::SECTION_HEADER, pcapng::INTERFACE].contains(&le32(block, 0)) {
                return Err(SegmentFault::Structure { what: "a block that has no place here", at });
            }
            at += block.len();
        }
        let length = self.bytes.len() - column_at;
        if le32(self.bytes, at) != KEY_COLUMN || le32(self.bytes, at + 4) as usize != length {
            return Err(SegmentFault::Structure { what: "no head of the key column", at });
        }
        Ok(())
    }

    /// All bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The foot.
    pub fn foot(&self) -> &Foot {
        &self.foot
    }

    /// The hash that its checks gave; [`Hash::NONE`]: it is without checksums.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// The largest number of an interface that has a packet here; `None`: no packets.
    pub fn interface_max(&self) -> Option<u32> {
        self.interface_max
    }

    /// All key entries.
    pub fn column(&self) -> Column<'a> {
        let end = self.bytes.len() - FOOT_BYTES;
        Column::new(&self.bytes[end - self.foot.packets as usize * KEY_ENTRY_BYTES..end])
    }

    /// All packet blocks, one behind the other.
    pub fn blocks(&self) -> &'a [u8] {
        &self.bytes[..self.foot.block_bytes as usize]
    }

    /// Packet `index`, with its key; `None` where there are fewer.
    pub fn packet(&self, index: u32) -> Option<(KeyEntry, PacketBlock<'a>)> {
        let entry = (index < self.foot.packets).then(|| self.column().get(index))?;
        Some((entry, PacketBlock::first(&self.blocks()[entry.offset() as usize..])?))
    }

    /// All packets, in the order in which they arrived.
    pub fn packets(&self) -> impl Iterator<Item = PacketBlock<'a>> + use<'a> {
        let mut rest = self.blocks();
        std::iter::from_fn(move || {
            let block = PacketBlock::first(rest)?;
            rest = &rest[block.bytes().len()..];
            Some(block)
        })
    }

    /// What its interface statistics blocks say.
    pub fn statistics(&self) -> impl Iterator<Item = Statistics> + use<'a> {
        statistics_in(self.bytes, &self.foot)
    }

    /// What lets a search skip it.
    pub fn summary(&self) -> Summary {
        Summary::new(self.column(), self.bytes.len())
    }

    /// What the index says of it where it begins at `offset` in the file.
    pub fn entry(&self, offset: u64) -> Entry {
        Entry { offset, foot: self.foot, hash: self.hash, summary: self.summary() }
    }
}

/// What the interface statistics blocks of a segment with this foot say.
pub(crate) fn statistics_in<'a>(
    segment: &'a [u8],
    foot: &Foot,
) -> impl Iterator<Item = Statistics> + use<'a> {
    let column_at = segment.len() - column_bytes(foot.packets as usize);
    statistics_among(&segment[foot.block_bytes as usize..column_at])
}

/// What the statistics blocks among these say, up to what is no whole block.
pub(crate) fn statistics_among(mut rest: &[u8]) -> impl Iterator<Item = Statistics> {
    let blocks = std::iter::from_fn(move || {
        let block = whole_block(rest)?;
        rest = &rest[block.len()..];
        Some(block)
    });
    blocks.filter(|block| le32(block, 0) == pcapng::STATISTICS).filter_map(statistics)
}

/// The whole block at the start of `bytes`.
fn whole_block(bytes: &[u8]) -> Option<&[u8]> {
    let total = bytes.get(4..8).map(|length| le32(length, 0) as usize)?;
    let block = bytes.get(..total).filter(|_| total >= BLOCK_BYTES_MIN && total.is_multiple_of(4))?;
    (le32(block, total - 4) as usize == total).then_some(block)
}

/// Reads an interface statistics block.
fn statistics(block: &[u8]) -> Option<Statistics> {
    let mut options = block.get(20..block.len() - 4)?;
    let time_ns = ((le32(block, 12) as u64) << 32 | le32(block, 16) as u64) as i64;
    let mut read = Statistics { interface: le32(block, 8), time_ns, received: 0, dropped: 0 };
    while let [c0, c1, l0, l1, value @ ..] = options {
        let len = u16::from_le_bytes([*l0, *l1]) as usize;
        let count = value.first_chunk().filter(|_| len == 8).map(|bytes| u64::from_le_bytes(*bytes));
        match (u16::from_le_bytes([*c0, *c1]), count) {
            (0, _) => break,
            (4, Some(count)) => read.received = count,
            (5, Some(count)) => read.dropped = count,
            _ => {}
        }
        options = value.get(pcapng::padded(len)..).unwrap_or_default();
    }
    Some(read)
}
