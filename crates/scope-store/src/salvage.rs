//! What a slot of a file that wasn't closed proves, and the closed segment that is made of it.
//!
//! ```text
//! the segment's hash holds                            ─► whole: it stays as it is
//! a flush record holds, its packets' hashes do, too   ─► these packets; of two records the later one
//! neither                                             ─► nothing
//! ```
//! A record counts only for the segment whose foot it stands in, and only with all bytes that it speaks of.
//! What is proven is still looked at as if it came from outside: blocks follow each other without a gap, and
//! each entry leads to its block.
//!
//! A segment that was never flushed and whose only write is torn is nothing: nobody was promised it.

use crate::checks::{self, FLUSH_AT, Hash};
use crate::record::{self, RECORD_BYTES, Record, Running};
use crate::segment::foot_of;
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};
use scope_packet::pcapng::PacketBlock;
use scope_packet::segment::{self, FOOT_BYTES, Foot, LeftOut, entry_offset, is_segment_size};

/// What a slot proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It is a closed segment, whole.
    Whole {
        /// Its foot.
        foot: Foot,
        /// Its hash.
        hash: Hash,
    },
    /// The beginning of a segment.
    Beginning {
        /// The foot of a segment that ends there.
        foot: Foot,
        /// Which of the flush records proves it.
        record: usize,
    },
    /// Nothing.
    Nothing,
}

/// What was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// What is proven.
    pub proof: Proof,
    /// What isn't.
    pub cut: Cut,
}

/// Packets that can't be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// So many, or at least so many.
    pub packets: u64,
    /// Slots with bytes in them that don't say how many packets they were.
    pub unknown: u64,
}

impl Cut {
    /// Adds another one.
    pub fn add(&mut self, other: Cut) {
        self.packets += other.packets;
        self.unknown += other.unknown;
    }
}

/// Looks at the bytes of one slot, a segment's size.
pub fn look(slot: &[u8]) -> Findings {
    assert!(is_segment_size(slot.len()));
    let foot_page = &slot[slot.len() - FOOT_BYTES..];
    let foot = Foot::read(foot_page);
    if let (Ok(foot), Ok(hash)) = (foot_of(foot_page, slot.len()), checks::verify(slot)) {
        return Findings { proof: Proof::Whole { foot, hash }, cut: Cut::default() };
    }
    let records = records(foot_page);
    let mut order = [0, 1];
    order.sort_by_key(|&index| std::cmp::Reverse(records[index].map_or(0, |record: Record| record.number)));
    let proven = foot.and_then(|foot| {
        order.into_iter().find_map(|index| {
            let record = records[index].filter(|record| record.constants == record::constants(&foot))?;
            Some((beginning(slot, &foot, &record)?, index))
        })
    });
    let promised = records.iter().flatten().map(|record| record.packets).max();
    let stated = foot.map(|foot| foot.packets).filter(|&packets| fits(slot.len(), packets, 0)).max(promised);
    let kept = proven.map_or(0, |(foot, _)| foot.packets);
    let cut = match stated {
        Some(stated) => Cut { packets: u64::from(stated.saturating_sub(kept)), unknown: 0 },
        None => Cut { packets: 0, unknown: u64::from(slot.iter().any(|&byte| byte != 0) && !is_empty(slot)) },
    };
    let proof = match proven {
        Some((foot, record)) => Proof::Beginning { foot, record },
        None => Proof::Nothing,
    };
    Findings { proof, cut }
}

/// Makes the slot the closed segment that ends with the beginning which [`look`] has proven: padding over the
/// rest, foot, checks. Only the record that proves it stays, so a write of this that is torn still proves it.
pub fn close(slot: &mut [u8], foot: &Foot, record: usize) -> Hash {
    let (body, foot_page) = slot.split_at_mut(slot.len() - FOOT_BYTES);
    let mut kept = [0; RECORD_BYTES];
    kept.copy_from_slice(&foot_page[FLUSH_AT[record]..][..RECORD_BYTES]);
    let entries_from = body.len() - foot.packets as usize * KEY_ENTRY_BYTES;
    segment::seal(&mut body[foot.block_bytes as usize..entries_from], foot_page, foot, &[]);
    foot_page[FLUSH_AT[record]..][..RECORD_BYTES].copy_from_slice(&kept);
    checks::seal(body, foot_page)
}

/// The flush records in a foot's page that are whole.
fn records(foot_page: &[u8]) -> [Option<Record>; 2] {
    FLUSH_AT.map(|at| Record::read(foot_page[at..at + RECORD_BYTES].try_into().expect("64 bytes")))
}

/// Whether a slot was given up: one padding block over all of it.
fn is_empty(slot: &[u8]) -> bool {
    let mut padding = [0; 8];
    padding[..4].copy_from_slice(&scope_packet::pcapng::PADDING.to_le_bytes());
    padding[4..].copy_from_slice(&(slot.len() as u32).to_le_bytes());
    let (body, closing) = slot.split_at(slot.len() - 4);
    body[..8] == padding && closing == &padding[4..] && body[8..].iter().all(|&byte| byte == 0)
}

fn fits(segment_bytes: usize, packets: u32, block_bytes: u32) -> bool {
    let packets = packets as usize;
    packets <= segment_bytes / KEY_ENTRY_BYTES
        && segment::fits(segment_bytes, block_bytes as usize, packets, 0)
}

/// The foot of the segment that ends with what `record` promises, if all of that is there.
fn beginning(slot: &[u8], foot: &Foot, record: &Record) -> Option<Foot> {
    if record.packets == 0 || !fits(slot.len(), record.packets, record.block_bytes) {
        return None;
    }
    let blocks = &slot[..record.block_bytes as usize];
    let entries_end = slot.len() - FOOT_BYTES;
    let mut running = Running::new();
    running.add(blocks, &slot[entries_end - record.packets as usize * KEY_ENTRY_BYTES..entries_end]);
    if running.hashes() != record.hashes {
        return None;
    }
    let mut closed =
        Foot { packets: record.packets, block_bytes: record.block_bytes, unordered: false, ..*foot };
    // Among what was left out nobody can look any more.
    closed.unordered = foot.unordered && record.left_out.packets > 0;
    // When that was is in no record: it only says from when to when the run was going.
    closed.left_out = LeftOut { span_ns: foot.left_out.span_ns, ..record.left_out };
    (closed.min_ns, closed.max_ns) = (i64::MAX, i64::MIN);
    let mut at = 0;
    for index in 0..record.packets {
        let entry_at = entry_offset(slot.len(), index as usize);
        let entry = KeyEntry::from_bytes(slot[entry_at..entry_at + KEY_ENTRY_BYTES].try_into().ok()?);
        let block = PacketBlock::first(&blocks[at..]).filter(|_| entry.offset() as usize == at)?;
        let time_ns = block.time_ns();
        if index == 0 {
            closed.first_ns = time_ns;
        }
        closed.unordered |= index > 0 && time_ns < closed.last_ns;
        closed.last_ns = time_ns;
        (closed.min_ns, closed.max_ns) = (closed.min_ns.min(time_ns), closed.max_ns.max(time_ns));
        at += block.bytes().len();
    }
    (at == blocks.len()).then_some(closed)
}
