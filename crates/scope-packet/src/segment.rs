//! The segment's layout: one format in memory, on disk and on the wire. docs/FORMAT.md describes it byte by
//! byte.
//!
//! ```text
//!  0                                                                                                    segment_bytes
//!  | EPB | EPB ... ►| padding 0x80000001 | ISBs | key column 0x80000002:  ◄ ... entry 1 | entry 0 | foot (4 KiB) |
//!  ^ grows upward                                grows downward, 16 bytes each, 64-byte aligned   ^ fixed place
//! ```
//! The foot is the end of the key column block; its last 4 bytes are that block's closing length.

use crate::drops::{DropReason, Drops};
use crate::key::KEY_ENTRY_BYTES;
use crate::link::LinkType;
use crate::pcapng::{self, BLOCK_BYTES_MIN, STATISTICS_BYTES};

/// Largest segment, bytes: the key entry's offset field reaches no farther.
pub const SEGMENT_BYTES_MAX: usize = 2 << 20;
/// Smallest segment, bytes.
pub const SEGMENT_BYTES_MIN: usize = 64 << 10;
/// Bytes of the foot, the key column block's closing length included.
pub const FOOT_BYTES: usize = 4096;
/// A segment carries at most this many interface statistics blocks.
pub const STATISTICS_MAX: usize = 64;
/// Most bytes of a packet that are kept, whatever the segment's size.
pub const KEPT_BYTES_MAX: usize = 256 << 10;
/// First 8 bytes of the foot: the magic and, last, the format's version.
pub const FOOT_MAGIC: [u8; 8] = *b"WSSEG\0\0\x01";

// The largest offset / 4 fits the 19 bits of the key entry.
const _: () = assert!(SEGMENT_BYTES_MAX / 4 == 1 << 19);
// The smallest segment holds its largest packet with all statistics: a quarter, a block's overhead, an entry,
// the tail.
const _: () = assert!(
    SEGMENT_BYTES_MIN / 4 + 64 + KEY_ENTRY_BYTES + 64 * STATISTICS_BYTES + 2 * BLOCK_BYTES_MIN + FOOT_BYTES
        < SEGMENT_BYTES_MIN
);

/// Whether `bytes` is a size that a segment can have: a power of two from 64 KiB to 2 MiB.
pub const fn is_segment_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && bytes >= SEGMENT_BYTES_MIN && bytes <= SEGMENT_BYTES_MAX
}

/// Most bytes of one packet that a segment of `segment_bytes` keeps; the rest is truncated and counted.
#[inline]
pub const fn kept_bytes_max(segment_bytes: usize) -> usize {
    let quarter = segment_bytes / 4;
    if quarter < KEPT_BYTES_MAX { quarter } else { KEPT_BYTES_MAX }
}

/// Offset of entry `index` (0 first) of the key column.
#[inline]
pub const fn entry_offset(segment_bytes: usize, index: usize) -> usize {
    segment_bytes - FOOT_BYTES - (index + 1) * KEY_ENTRY_BYTES
}

/// Bytes that packet blocks and key entries may take together, so that there is room for the statistics of
/// `interfaces` interfaces, the heads and the padding.
#[inline]
pub const fn room_bytes(segment_bytes: usize, interfaces: usize) -> usize {
    let statistics =
        (if interfaces < STATISTICS_MAX { interfaces } else { STATISTICS_MAX }) * STATISTICS_BYTES;
    segment_bytes - (BLOCK_BYTES_MIN + statistics + 8 + FOOT_BYTES)
}

/// Whether blocks up to `block_bytes` and `packets` entries leave room for the statistics of `interfaces`
/// interfaces, the heads and the padding.
#[inline]
pub const fn fits(segment_bytes: usize, block_bytes: usize, packets: usize, interfaces: usize) -> bool {
    block_bytes + packets * KEY_ENTRY_BYTES <= room_bytes(segment_bytes, interfaces)
}

/// By what a segment is known, in memory, on disk and in another process. A slot of the ring or a place in a
/// file is no name for it: these change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// The run's 128 random bits.
    pub run: [u8; 16],
    /// Lane in the run.
    pub lane: u32,
    /// Number in the lane, from 0.
    pub sequence: u64,
}

/// What a store left out of a segment that it composed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Packets of the lane among or behind those of the segment that its filter doesn't match.
    pub packets: u64,
    /// Their captured bytes, and those that its snap length cut off the others.
    pub bytes: u64,
    /// Smallest and largest time of all packets that the segment stands for, these included, ns; zeros: none was left
    /// out, or nobody knows when.
    pub span_ns: (i64, i64),
}

/// What capture files say that they lack, where no segment of the lane tells when: counted since the lane began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileLosses {
    /// Packets that were dropped, at any time of the run for all that is known.
    pub dropped: u64,
    /// Files that are damaged or truncated: each lacks one packet at least, and nobody knows how many.
    pub cut: u32,
    /// How often one of the two rose.
    pub told: u32,
}

impl FileLosses {
    /// Counts a statement of `dropped` packets, and of `cut` files.
    pub fn add(&mut self, dropped: u64, cut: u32) {
        self.dropped = self.dropped.saturating_add(dropped);
        self.cut = self.cut.saturating_add(cut);
        self.told = self.told.saturating_add(1);
    }

    /// As many packets as statistics count for them: one for each file.
    pub fn packets(&self) -> u64 {
        self.dropped.saturating_add(u64::from(self.cut))
    }

    /// What was stated since it was `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &FileLosses) -> FileLosses {
        FileLosses {
            dropped: self.dropped.saturating_sub(earlier.dropped),
            cut: self.cut.saturating_sub(earlier.cut),
            told: self.told.saturating_sub(earlier.told),
        }
    }
}

/// What the foot says of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foot {
    /// 128 random bits, one value per run.
    pub run_id: [u8; 16],
    /// Lane number in the run.
    pub lane: u32,
    /// Link type of all packets.
    pub link_type: LinkType,
    /// Times stepped back somewhere in the segment, or among what was left out of it.
    pub unordered: bool,
    /// Number of the segment in its lane, from 0.
    pub sequence: u64,
    /// Number in the lane of the segment's first packet, from 0.
    pub first_packet: u64,
    /// Packets in the segment.
    pub packets: u32,
    /// Bytes of packet blocks.
    pub block_bytes: u32,
    /// Time of the first packet, ns since the epoch.
    pub first_ns: i64,
    /// Time of the last packet.
    pub last_ns: i64,
    /// Smallest time.
    pub min_ns: i64,
    /// Largest time.
    pub max_ns: i64,
    /// The lane's captured bytes before this segment.
    pub bytes_before: u64,
    /// The lane's drops by reason before this segment.
    pub drops_before: Drops,
    /// What was left out of it; in memory nothing.
    pub left_out: LeftOut,
    /// What capture files say up to its end that they lack.
    pub file_losses: FileLosses,
}

const DROPS_AT: usize = 96;
const COUNTERS: usize = 14;
const LEFT_OUT_SPAN_AT: usize = DROPS_AT + COUNTERS * 8;
const LEFT_OUT_AT: usize = LEFT_OUT_SPAN_AT + 16;
const FILE_LOSSES_AT: usize = LEFT_OUT_AT + 16;

impl Foot {
    /// Whose foot it is.
    pub fn id(&self) -> SegmentId {
        SegmentId { run: self.run_id, lane: self.lane, sequence: self.sequence }
    }

    /// Number in the lane of the packet behind all that it has, or that was left out of it.
    pub fn end(&self) -> u64 {
        self.first_packet.saturating_add(u64::from(self.packets)).saturating_add(self.left_out.packets)
    }

    /// Smallest and largest time of what it stands for, ns: its packets, and those that were left out of it.
    pub fn reach_ns(&self) -> (i64, i64) {
        let (min_ns, max_ns) = (self.min_ns.min(self.first_ns), self.max_ns.max(self.first_ns));
        match self.left_out.span_ns {
            (0, 0) => (min_ns, max_ns),
            (left_out_min_ns, left_out_max_ns) => (min_ns.min(left_out_min_ns), max_ns.max(left_out_max_ns)),
        }
    }

    /// From when to when the first packet was that it stands for, ns: it may have been left out.
    pub fn begin_ns(&self) -> (i64, i64) {
        let (from_ns, to_ns) = self.reach_ns();
        match (self.left_out.span_ns, self.packets) {
            ((0, 0), _) => (self.first_ns, self.first_ns),
            (_, 1..) if !self.unordered => (from_ns, self.first_ns),
            _ => (from_ns, to_ns),
        }
    }

    /// Bytes that the fields take; the rest of the foot is zero.
    pub const FIELDS_BYTES: usize = FILE_LOSSES_AT + 16;
    /// Bytes of the fields in front of what was left out.
    pub const PACKETS_FIELDS_BYTES: usize = LEFT_OUT_AT;

    /// Writes the fields to the start of the foot; `out` is the foot without its closing length.
    pub fn write(&self, out: &mut [u8]) {
        out.fill(0);
        out[0..8].copy_from_slice(&FOOT_MAGIC);
        out[8..24].copy_from_slice(&self.run_id);
        out[24..28].copy_from_slice(&self.lane.to_le_bytes());
        out[28..30].copy_from_slice(&self.link_type.0.to_le_bytes());
        out[30..32].copy_from_slice(&u16::from(self.unordered).to_le_bytes());
        out[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_packet.to_le_bytes());
        out[48..52].copy_from_slice(&self.packets.to_le_bytes());
        out[52..56].copy_from_slice(&self.block_bytes.to_le_bytes());
        for (at, time_ns) in [(56, self.first_ns), (64, self.last_ns), (72, self.min_ns), (80, self.max_ns)] {
            out[at..at + 8].copy_from_slice(&time_ns.to_le_bytes());
        }
        out[88..96].copy_from_slice(&self.bytes_before.to_le_bytes());
        for (reason, packets) in self.drops_before.iter() {
            let at = DROPS_AT + reason as usize * 8;
            out[at..at + 8].copy_from_slice(&packets.to_le_bytes());
        }
        let (min_ns, max_ns) = self.left_out.span_ns;
        out[LEFT_OUT_SPAN_AT..LEFT_OUT_SPAN_AT + 8].copy_from_slice(&min_ns.to_le_bytes());
        out[LEFT_OUT_SPAN_AT + 8..LEFT_OUT_SPAN_AT + 16].copy_from_slice(&max_ns.to_le_bytes());
        out[LEFT_OUT_AT..LEFT_OUT_AT + 8].copy_from_slice(&self.left_out.packets.to_le_bytes());
        out[LEFT_OUT_AT + 8..LEFT_OUT_AT + 16].copy_from_slice(&self.left_out.bytes.to_le_bytes());
        let FileLosses { dropped, cut, told } = self.file_losses;
        out[FILE_LOSSES_AT..FILE_LOSSES_AT + 8].copy_from_slice(&dropped.to_le_bytes());
        out[FILE_LOSSES_AT + 8..FILE_LOSSES_AT + 12].copy_from_slice(&cut.to_le_bytes());
        out[FILE_LOSSES_AT + 12..FILE_LOSSES_AT + 16].copy_from_slice(&told.to_le_bytes());
    }

    /// Reads a foot; `None` where the magic or the version is another.
    pub fn read(bytes: &[u8]) -> Option<Foot> {
        if bytes.len() < Foot::FIELDS_BYTES || bytes[0..8] != FOOT_MAGIC {
            return None;
        }
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| pcapng::le32(bytes, at);
        let u64_at = |at: usize| u32_at(at) as u64 | (u32_at(at + 4) as u64) << 32;
        let mut drops_before = Drops::default();
        for reason in DropReason::ALL {
            drops_before.add(reason, u64_at(DROPS_AT + reason as usize * 8));
        }
        Some(Foot {
            run_id: bytes[8..24].try_into().ok()?,
            lane: u32_at(24),
            link_type: LinkType(u16_at(28)),
            unordered: u16_at(30) & 1 != 0,
            sequence: u64_at(32),
            first_packet: u64_at(40),
            packets: u32_at(48),
            block_bytes: u32_at(52),
            first_ns: u64_at(56) as i64,
            last_ns: u64_at(64) as i64,
            min_ns: u64_at(72) as i64,
            max_ns: u64_at(80) as i64,
            bytes_before: u64_at(88),
            drops_before,
            left_out: LeftOut {
                packets: u64_at(LEFT_OUT_AT),
                bytes: u64_at(LEFT_OUT_AT + 8),
                span_ns: (u64_at(LEFT_OUT_SPAN_AT) as i64, u64_at(LEFT_OUT_SPAN_AT + 8) as i64),
            },
            file_losses: FileLosses {
                dropped: u64_at(FILE_LOSSES_AT),
                cut: u32_at(FILE_LOSSES_AT + 8),
                told: u32_at(FILE_LOSSES_AT + 12),
            },
        })
    }
}

/// Writes the end of a full or closing segment: padding over the gap, `statistics` (whole blocks), the key
/// column's head, the foot and the closing length.
///
/// `gap` is what lies between the last block and the last key entry, `tail` the segment's last
/// [`FOOT_BYTES`]; the entries between them are in place and are not touched.
pub fn seal(gap: &mut [u8], tail: &mut [u8], foot: &Foot, statistics: &[u8]) {
    let column_bytes = (8 + foot.packets as usize * KEY_ENTRY_BYTES + FOOT_BYTES) as u32;
    let head_at = gap.len() - 8;
    let statistics_at = head_at - statistics.len();
    pcapng::padding(&mut gap[..statistics_at]);
    gap[statistics_at..head_at].copy_from_slice(statistics);
    gap[head_at..head_at + 4].copy_from_slice(&pcapng::KEY_COLUMN.to_le_bytes());
    gap[head_at + 4..].copy_from_slice(&column_bytes.to_le_bytes());
    foot.write(&mut tail[..FOOT_BYTES - 4]);
    tail[FOOT_BYTES - 4..].copy_from_slice(&column_bytes.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foot_is_read_back_and_a_foreign_one_refused() {
        let mut drops_before = Drops::default();
        drops_before.add(DropReason::RingPinned, 77);
        let foot = Foot {
            run_id: [7; 16],
            lane: 3,
            link_type: LinkType::RAW,
            unordered: true,
            sequence: 1 << 33,
            first_packet: 1 << 40,
            packets: 5,
            block_bytes: 480,
            first_ns: 1,
            last_ns: 4,
            min_ns: 0,
            max_ns: i64::MAX,
            bytes_before: 1 << 50,
            drops_before,
            left_out: LeftOut { packets: 1 << 60, bytes: 3, span_ns: (-7, 9) },
            file_losses: FileLosses { dropped: 1 << 40, cut: 5, told: 9 },
        };
        assert_eq!(foot.end(), (1 << 40) + (1 << 60) + 5);
        let mut bytes = vec![0xee; FOOT_BYTES - 4];
        foot.write(&mut bytes);
        assert_eq!(Foot::read(&bytes), Some(foot));
        assert!(bytes[Foot::FIELDS_BYTES..].iter().all(|&b| b == 0));
        bytes[7] = 2;
        assert_eq!(Foot::read(&bytes), None);
    }

    #[test]
    fn what_was_left_out_counts_for_where_a_segment_reaches_and_begins() {
        let mut foot = Foot {
            run_id: [7; 16],
            lane: 0,
            link_type: LinkType::RAW,
            unordered: false,
            sequence: 0,
            first_packet: 0,
            packets: 5,
            block_bytes: 480,
            first_ns: 20,
            last_ns: 40,
            min_ns: 20,
            max_ns: 40,
            bytes_before: 0,
            drops_before: Drops::default(),
            left_out: LeftOut::default(),
            file_losses: FileLosses::default(),
        };
        assert_eq!((foot.reach_ns(), foot.begin_ns()), ((20, 40), (20, 20)));
        foot.left_out = LeftOut { packets: 9, bytes: 900, span_ns: (10, 90) };
        assert_eq!((foot.reach_ns(), foot.begin_ns()), ((10, 90), (10, 20)));
        foot.unordered = true;
        assert_eq!(
            (foot.reach_ns(), foot.begin_ns()),
            ((10, 90), (10, 90)),
            "the first one may be any of them"
        );
        foot = Foot { packets: 0, unordered: false, ..foot };
        assert_eq!(foot.begin_ns(), (10, 90), "so where it has none");
    }

    #[test]
    fn sealing_covers_every_byte_with_blocks() {
        let segment_bytes = SEGMENT_BYTES_MIN;
        let mut segment = vec![0xee; segment_bytes];
        let mut statistics = Vec::new();
        pcapng::statistics(&mut statistics, 0, 1, 2, 3);
        let foot = Foot {
            run_id: [0; 16],
            lane: 0,
            link_type: LinkType::ETHERNET,
            unordered: false,
            sequence: 0,
            first_packet: 0,
            packets: 0,
            block_bytes: 0,
            first_ns: 0,
            last_ns: 0,
            min_ns: 0,
            max_ns: 0,
            bytes_before: 0,
            drops_before: Drops::default(),
            left_out: LeftOut::default(),
            file_losses: FileLosses::default(),
        };
        let (gap, tail) = segment.split_at_mut(segment_bytes - FOOT_BYTES);
        seal(gap, tail, &foot, &statistics);
        let mut at = 0;
        let mut kinds = Vec::new();
        while at < segment_bytes {
            let total = pcapng::le32(&segment, at + 4) as usize;
            assert_eq!(pcapng::le32(&segment, at + total - 4) as usize, total);
            kinds.push(pcapng::le32(&segment, at));
            at += total;
        }
        assert_eq!(
            (at, kinds),
            (segment_bytes, vec![pcapng::PADDING, pcapng::STATISTICS, pcapng::KEY_COLUMN])
        );
        assert!(!segment.contains(&0xee));
    }
}
