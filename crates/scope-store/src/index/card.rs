//! What an index says of its whole file, so that most questions need no more of it.
//!
//! ```text
//!  totals:  | segments 8 | packets 8 | bytes of blocks 8 | smallest time 8 | largest time 8 | hash 16 |
//!  card:    | run id 16 | smallest time 8 | largest time 8 | check 8 | 64 lanes of 32 bytes |
//!  lane:    | lane 4 | told 4 | first packet of its first segment 8 | of its last 8 | end of its last 8 |
//! ```

use super::Entry;
use super::layout::{
    CARD_AT, CARD_BYTES, CARD_CHECK_AT, CHECK_AT, LANE_BYTES, LANE_TABLE_AT, LANES_AT, LANES_MAX, MAGIC,
    TOTALS_AT, TOTALS_BYTES, Version, block_bytes,
};
use crate::checks::Hash;
use scope_packet::pcapng::{INDEX, le32};
use scope_packet::segment::Foot;
use std::collections::BTreeMap;
use twox_hash::{XxHash3_64, XxHash3_128};

/// Stands for the number of listed lanes where there are more.
const LANES_UNLISTED: u32 = u32::MAX;

/// What an index says of its whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Segments.
    pub segments: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes of their blocks.
    pub block_bytes: u64,
    /// Smallest and largest time, ns; `None`: no packet.
    pub span_ns: Option<(i64, i64)>,
    /// Hash over the hashes of all segments, in the order of the file.
    pub hash: Hash,
}

impl Totals {
    /// Of these entries.
    pub fn of(entries: &[Entry]) -> Totals {
        let hashes: Vec<u8> = entries.iter().flat_map(|entry| entry.hash.0).collect();
        let with_packets = entries.iter().map(|entry| &entry.foot).filter(|foot| foot.packets > 0);
        let spans = with_packets.map(|foot| (foot.min_ns, foot.max_ns));
        Totals {
            segments: entries.len() as u64,
            packets: entries.iter().map(|entry| u64::from(entry.foot.packets)).sum(),
            block_bytes: entries.iter().map(|entry| u64::from(entry.foot.block_bytes)).sum(),
            span_ns: spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
            hash: Hash(XxHash3_128::oneshot(&hashes).to_le_bytes()),
        }
    }

    pub(super) fn to_bytes(self) -> [u8; TOTALS_BYTES] {
        let (min_ns, max_ns) = self.span_ns.unwrap_or((i64::MAX, i64::MIN));
        let words = [self.segments, self.packets, self.block_bytes, min_ns as u64, max_ns as u64];
        let mut out = [0; TOTALS_BYTES];
        for (at, word) in words.into_iter().enumerate() {
            out[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        out[40..].copy_from_slice(&self.hash.0);
        out
    }

    fn read(bytes: &[u8; TOTALS_BYTES]) -> Totals {
        let [segments, packets, block_bytes, min_ns, max_ns] = [0, 1, 2, 3, 4].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_le_bytes(word)
        });
        let mut hash = [0; 16];
        hash.copy_from_slice(&bytes[40..]);
        let (min_ns, max_ns) = (min_ns as i64, max_ns as i64);
        let span_ns = (min_ns <= max_ns).then_some((min_ns, max_ns));
        Totals { segments, packets, block_bytes, span_ns, hash: Hash(hash) }
    }
}

/// What an index says of its file so that most questions need no more of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Sums.
    pub totals: Totals,
    /// The run of all segments; zeros where there are none.
    pub run_id: [u8; 16],
    /// Smallest and largest of the times in the feet of all segments, also of those without packets; `None`: it has no
    /// segment.
    pub reach_ns: Option<(i64, i64)>,
    /// Its lanes, rising; `None`: they are more than are listed, or segments are of several runs.
    pub lanes: Option<Vec<LanePart>>,
}

/// What a file has of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanePart {
    /// The lane.
    pub lane: u32,
    /// Number of the first packet of its first segment.
    pub first: u64,
    /// The same of its last one.
    pub last: u64,
    /// Number of the packet behind all that its segments have, or that was left out of them.
    pub end: u64,
    /// How often capture files had said by then that the lane lacks packets: see
    /// [`FileLosses::told`](scope_packet::segment::FileLosses).
    pub told: u32,
}

impl Card {
    /// Of these entries.
    pub fn of(entries: &[Entry]) -> Card {
        let feet = || entries.iter().map(|entry| &entry.foot).filter(|foot| has_numbers(foot));
        let run_id = feet().next().map_or([0; 16], |foot| foot.run_id);
        Card {
            totals: Totals::of(entries),
            run_id,
            reach_ns: feet().map(Foot::reach_ns).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
            lanes: Some(lane_parts(feet()))
                .filter(|lanes| lanes.len() <= LANES_MAX && feet().all(|foot| foot.run_id == run_id)),
        }
    }

    /// Writes it into the beginning of a block, whose other fields in front of its end are there already.
    pub(super) fn write(&self, begin: &mut [u8; CARD_BYTES]) {
        let lanes = self.lanes.as_ref().map_or(LANES_UNLISTED, |lanes| lanes.len() as u32);
        begin[LANES_AT..LANES_AT + 4].copy_from_slice(&lanes.to_le_bytes());
        begin[TOTALS_AT..CARD_AT].copy_from_slice(&self.totals.to_bytes());
        begin[CARD_AT..CARD_AT + 16].copy_from_slice(&self.run_id);
        let (min_ns, max_ns) = self.reach_ns.unwrap_or((i64::MAX, i64::MIN));
        begin[CARD_AT + 16..CARD_AT + 24].copy_from_slice(&min_ns.to_le_bytes());
        begin[CARD_AT + 24..CARD_AT + 32].copy_from_slice(&max_ns.to_le_bytes());
        let places = begin[LANE_TABLE_AT..].chunks_exact_mut(LANE_BYTES);
        for (place, part) in places.zip(self.lanes.iter().flatten()) {
            place[..4].copy_from_slice(&part.lane.to_le_bytes());
            place[4..8].copy_from_slice(&part.told.to_le_bytes());
            for (at, number) in [(8, part.first), (16, part.last), (24, part.end)] {
                place[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
        }
        let check = card_check(begin);
        begin[CARD_CHECK_AT..CARD_CHECK_AT + 8].copy_from_slice(&check.to_le_bytes());
    }

    /// Out of the beginning of a block; `None`: it isn't what was written.
    fn read(begin: &[u8; CARD_BYTES]) -> Option<Card> {
        let word = |at: usize| u64::from(le32(begin, at)) | u64::from(le32(begin, at + 4)) << 32;
        (card_check(begin) == word(CARD_CHECK_AT)).then_some(())?;
        let lanes = le32(begin, LANES_AT);
        let part = |place: &[u8]| {
            let word = |at: usize| u64::from(le32(place, at)) | u64::from(le32(place, at + 4)) << 32;
            LanePart {
                lane: le32(place, 0),
                first: word(8),
                last: word(16),
                end: word(24),
                told: le32(place, 4),
            }
        };
        let places = begin[LANE_TABLE_AT..].chunks_exact(LANE_BYTES);
        let (min_ns, max_ns) = (word(CARD_AT + 16) as i64, word(CARD_AT + 24) as i64);
        Some(Card {
            totals: Totals::read(begin[TOTALS_AT..].first_chunk()?),
            run_id: *begin[CARD_AT..].first_chunk()?,
            reach_ns: (min_ns <= max_ns).then_some((min_ns, max_ns)),
            lanes: (lanes as usize <= LANES_MAX).then(|| places.take(lanes as usize).map(part).collect()),
        })
    }
}

/// Whether a segment stands for numbers of its lane.
pub(crate) fn has_numbers(foot: &Foot) -> bool {
    foot.packets > 0 || foot.left_out.packets > 0
}

/// What segments with these feet have of each lane.
pub(crate) fn lane_parts<'a>(feet: impl Iterator<Item = &'a Foot>) -> Vec<LanePart> {
    let mut parts: BTreeMap<u32, LanePart> = BTreeMap::new();
    for foot in feet {
        let (lane, first) = (foot.lane, foot.first_packet);
        let new = LanePart { lane, first, last: first, end: foot.end(), told: 0 };
        let part = parts.entry(lane).or_insert(new);
        part.first = part.first.min(first);
        part.last = part.last.max(first);
        part.end = part.end.max(foot.end());
        part.told = part.told.max(foot.file_losses.told);
    }
    parts.into_values().collect()
}

/// Of a block's beginning, without both checks.
fn card_check(begin: &[u8; CARD_BYTES]) -> u64 {
    let mut cleared = *begin;
    cleared[CHECK_AT..CHECK_AT + 8].fill(0);
    cleared[CARD_CHECK_AT..CARD_CHECK_AT + 8].fill(0);
    XxHash3_64::oneshot(&cleared)
}

/// What the index of a file of `len` bytes says of all of it, through `read`, which fills a piece of memory with what
/// stands at an offset. Little is read, so the checksum isn't looked at: for whoever lists many files.
///
/// # Errors
/// That of `read`; `None`: no index of a known version stands at the end.
pub fn read_totals<E>(
    len: u64,
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<Totals>, E> {
    let begin: Option<[u8; CARD_AT]> = read_begin(len, read)?;
    Ok(begin.and_then(|begin| {
        Version::of(begin[15])?;
        Some(Totals::read(begin[TOTALS_AT..].first_chunk()?))
    }))
}

/// The same of its card, held against the card's check.
///
/// # Errors
/// That of `read`; `None`: no index with a card stands at the end, or it isn't what was written.
pub fn read_card<E>(len: u64, read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<Option<Card>, E> {
    let begin: Option<[u8; CARD_BYTES]> = read_begin(len, read)?;
    Ok(begin
        .filter(|begin| Version::of(begin[15]).is_some_and(Version::has_card))
        .and_then(|begin| Card::read(&begin)))
}

/// The beginning of the last index block.
fn read_begin<const BYTES: usize, E>(
    len: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<[u8; BYTES]>, E> {
    let Some(closing_at) = len.checked_sub(4) else { return Ok(None) };
    let mut closing = [0; 4];
    read(closing_at, &mut closing)?;
    let Some(from) = block_bytes(closing).and_then(|total| len.checked_sub(total as u64)) else {
        return Ok(None);
    };
    let mut begin = [0; BYTES];
    read(from, &mut begin)?;
    let is_index = le32(&begin, 0) == INDEX && begin[8..15] == MAGIC && begin[4..8] == closing;
    Ok(is_index.then_some(begin))
}
