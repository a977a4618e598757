//! The index of a closed file: what a search has to know of each segment, in one stretch at the file's end.
//!
//! ```text
//!  0      4        8       16        20              24              32      40
//!  | type | length | magic | entries | summary bytes | blocks before | check | entries | zeros | length |
//!
//!  entry:  | foot's first 256 bytes | offset 8 | hash 16 | summary |
//! ```
//! docs/FORMAT.md, section 7, has the tables. A block is at most [`INDEX_BYTES_MAX`] long, since libpcap reads
//! none that is longer: a file with more entries has several, one directly behind the other. The file's last 4
//! bytes are the last block's length, so a reader finds them from the end. That a block is a multiple of 4096
//! bytes long lets it be written with O_DIRECT.

use crate::checks::Hash;
use scope_packet::pcapng::{BLOCK_BYTES_MIN, INDEX, le32};
use scope_packet::segment::Foot;
use scope_ring::Summary;
use std::convert::Infallible;
use std::ops::Range;
use twox_hash::{XxHash3_64, XxHash3_128};

/// Most bytes of one index block.
pub const INDEX_BYTES_MAX: usize = 16 << 20;
/// An index block is a multiple of this long.
pub const INDEX_ALIGN: usize = 4096;

/// Magic and, last, the version.
const MAGIC: [u8; 8] = *b"WSINDEX\x01";
/// Where the entries begin.
const FIXED_BYTES: usize = TOTALS_AT + TOTALS_BYTES;
/// What is known of the whole file stands in each of its index blocks.
const TOTALS_AT: usize = 40;
const TOTALS_BYTES: usize = 56;
const CHECK_AT: usize = 32;
/// Of an entry: the foot's bytes that it has, its fields and room for more of them; then offset and hash.
const FOOT_BYTES: usize = 256;
const SUMMARY_AT: usize = FOOT_BYTES + 8 + 16;
/// Of every index block: what isn't entries.
const FRAME_BYTES: usize = FIXED_BYTES + 4;

/// What the index says of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the segment begins in the file.
    pub offset: u64,
    /// Its foot.
    pub foot: Foot,
    /// Its hash.
    pub hash: Hash,
    /// What lets a search skip it.
    pub summary: Summary,
}

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

    fn to_bytes(self) -> [u8; TOTALS_BYTES] {
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

/// What the index of a file of `len` bytes says of all of it, through `read`, which fills a piece of memory with what
/// stands at an offset. Little is read, so the checksum isn't looked at: for whoever lists many files.
///
/// # Errors
/// That of `read`; `None`: no index of this version stands at the end.
pub fn read_totals<E>(
    len: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Option<Totals>, E> {
    let Some(closing_at) = len.checked_sub(4) else { return Ok(None) };
    let mut closing = [0; 4];
    read(closing_at, &mut closing)?;
    let Some(from) = block_bytes(closing).and_then(|total| len.checked_sub(total as u64)) else {
        return Ok(None);
    };
    let mut begin = [0; FIXED_BYTES];
    read(from, &mut begin)?;
    let is_index = le32(&begin, 0) == INDEX && begin[8..16] == MAGIC && begin[4..8] == closing;
    let mut totals = [0; TOTALS_BYTES];
    totals.copy_from_slice(&begin[TOTALS_AT..]);
    Ok(is_index.then(|| Totals::read(&totals)))
}

/// Why an index can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// There is none at the file's end: the file isn't closed, is cut off, or is from before there were any.
    #[error("no index stands at the end")]
    None,
    /// Written by a later program.
    #[error("the index has format version {0}, which is newer than this program's: read it with a newer one")]
    Newer(u8),
    /// It isn't what was written.
    #[error("the index is damaged: {0}")]
    Damaged(&'static str),
}

/// Most segments of `segment_bytes` that one index block holds.
pub const fn slots_max(segment_bytes: usize) -> usize {
    (INDEX_BYTES_MAX - FRAME_BYTES) / (SUMMARY_AT + Summary::bytes_of(segment_bytes))
}

/// Bytes of the index of so many segments of `segment_bytes`: what a file's reserve has to hold for it.
pub fn bytes_of(slots: usize, segment_bytes: usize) -> u64 {
    let block = |slots| block_bytes_of(slots, Summary::bytes_of(segment_bytes)) as u64;
    let max = slots_max(segment_bytes);
    let last = slots % max;
    (slots / max) as u64 * block(max) + if last != 0 || slots == 0 { block(last) } else { 0 }
}

fn block_bytes_of(entries: usize, summary_bytes: usize) -> usize {
    (FRAME_BYTES + entries * (SUMMARY_AT + summary_bytes)).next_multiple_of(INDEX_ALIGN)
}

/// The index of a file with these segments, all of one size and in the order of the file.
pub fn write(entries: &[Entry]) -> Vec<u8> {
    let summary_bytes = entries.first().map_or(0, |entry| entry.summary.bytes());
    let max = (INDEX_BYTES_MAX - FRAME_BYTES) / (SUMMARY_AT + summary_bytes);
    let mut out = Vec::with_capacity(block_bytes_of(entries.len(), summary_bytes));
    let totals = Totals::of(entries).to_bytes();
    let mut blocks = entries.chunks(max);
    write_block(&mut out, blocks.next().unwrap_or_default(), &totals, summary_bytes, 0);
    for (before, entries) in (1..).zip(blocks) {
        write_block(&mut out, entries, &totals, summary_bytes, before);
    }
    out
}

/// Appends one block; `before` others stand directly in front of it.
fn write_block(
    out: &mut Vec<u8>,
    entries: &[Entry],
    totals: &[u8; TOTALS_BYTES],
    summary_bytes: usize,
    before: u32,
) {
    let from = out.len();
    let total = block_bytes_of(entries.len(), summary_bytes);
    out.extend(INDEX.to_le_bytes());
    out.extend((total as u32).to_le_bytes());
    out.extend(MAGIC);
    for word in [entries.len() as u32, summary_bytes as u32, before, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend([0; 8]); // the check
    out.extend(totals);
    for entry in entries {
        assert_eq!(entry.summary.bytes(), summary_bytes, "one segment size");
        let mut foot = [0; FOOT_BYTES];
        entry.foot.write(&mut foot);
        out.extend(foot);
        out.extend(entry.offset.to_le_bytes());
        out.extend(entry.hash.0);
        entry.summary.write(out);
    }
    out.resize(from + total - 4, 0);
    out.extend((total as u32).to_le_bytes());
    let check = XxHash3_64::oneshot(&out[from..]);
    out[from + CHECK_AT..][..8].copy_from_slice(&check.to_le_bytes());
}

/// Length of the last index block of a file whose last 4 bytes these are; `None` where none is so long.
fn block_bytes(closing: [u8; 4]) -> Option<usize> {
    let total = u32::from_le_bytes(closing) as usize;
    (total.is_multiple_of(INDEX_ALIGN) && (INDEX_ALIGN..=INDEX_BYTES_MAX).contains(&total)).then_some(total)
}

/// Reads one index block: its entries, and how many further blocks stand directly in front of it.
fn read_block(block: &[u8]) -> Result<(Vec<Entry>, u32), IndexError> {
    let total = block.len();
    if total < BLOCK_BYTES_MIN || le32(block, 0) != INDEX {
        return Err(IndexError::None);
    }
    if total < FRAME_BYTES || block[8..15] != MAGIC[..7] {
        return Err(IndexError::Damaged("it doesn't begin like one"));
    }
    if block[15] != MAGIC[7] {
        return Err(IndexError::Newer(block[15]));
    }
    let mut cleared = block.to_vec();
    cleared[CHECK_AT..CHECK_AT + 8].fill(0);
    if XxHash3_64::oneshot(&cleared).to_le_bytes() != block[CHECK_AT..CHECK_AT + 8] {
        return Err(IndexError::Damaged("its checksum differs"));
    }
    if le32(block, 4) as usize != total || le32(block, total - 4) as usize != total {
        return Err(IndexError::Damaged("its lengths differ"));
    }
    let (count, summary_bytes) = (le32(block, 16) as usize, le32(block, 20) as usize);
    let entry_bytes = SUMMARY_AT + summary_bytes;
    let entries = count.checked_mul(entry_bytes).and_then(|bytes| block[FIXED_BYTES..total - 4].get(..bytes));
    let entries = entries.ok_or(IndexError::Damaged("it has more entries than room"))?;
    let read: Option<Vec<Entry>> = entries.chunks_exact(entry_bytes).map(read_entry).collect();
    Ok((read.ok_or(IndexError::Damaged("an entry can't be read"))?, le32(block, 24)))
}

fn read_entry(bytes: &[u8]) -> Option<Entry> {
    let (facts, summary) = bytes.split_at(SUMMARY_AT);
    Some(Entry {
        offset: u64::from_le_bytes(facts[FOOT_BYTES..FOOT_BYTES + 8].try_into().ok()?),
        foot: Foot::read(&facts[..FOOT_BYTES])?,
        hash: Hash(facts[FOOT_BYTES + 8..].try_into().ok()?),
        summary: Summary::read(summary)?,
    })
}

/// Reads the whole index out of the last bytes of a file, all its index blocks at least.
pub fn read(end_of_file: &[u8]) -> Result<Vec<Entry>, IndexError> {
    let read = |offset: u64, into: &mut [u8]| {
        into.copy_from_slice(&end_of_file[offset as usize..][..into.len()]);
        Ok::<(), Infallible>(())
    };
    let Ok(read) = read_from_end(0..end_of_file.len() as u64, read);
    read.map(|(entries, _)| entries)
}

/// Reads the whole index at the end of a file that has its segments in `within`, through `read`, which fills
/// a piece of memory with what stands at an offset. Returns all entries, and where the index begins; the
/// outer error is that of `read`.
pub fn read_from_end<E>(
    within: Range<u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Result<(Vec<Entry>, u64), IndexError>, E> {
    let (mut blocks, mut end, mut missing) = (Vec::new(), within.end, None);
    while missing != Some(0) {
        let mut closing = [0; 4];
        let Some(closing_at) = end.checked_sub(4).filter(|&at| at >= within.start) else {
            return Ok(Err(IndexError::None));
        };
        read(closing_at, &mut closing)?;
        let total = block_bytes(closing);
        let from = total.and_then(|total| end.checked_sub(total as u64)).filter(|&from| from >= within.start);
        let Some(from) = from else { return Ok(Err(IndexError::None)) };
        let mut block = vec![0; (end - from) as usize];
        read(from, &mut block)?;
        let (entries, before) = match read_block(&block) {
            Ok(read) => read,
            Err(cause) => return Ok(Err(cause)),
        };
        if missing.is_some_and(|missing: u32| missing - 1 != before) {
            return Ok(Err(IndexError::Damaged("a block of it is missing")));
        }
        blocks.push(entries);
        (end, missing) = (from, Some(before));
    }
    Ok(Ok((blocks.into_iter().rev().flatten().collect(), end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::segment::{LeftOut, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
    use scope_packet::{Drops, KeyEntry, LinkType};
    use scope_ring::Column;

    fn entry(number: u64, segment_bytes: usize) -> Entry {
        let key = KeyEntry { source: [10, 0, 0, number as u8], ..KeyEntry::default() };
        Entry {
            offset: 4096 + number * segment_bytes as u64,
            foot: Foot {
                run_id: [7; 16],
                lane: 1,
                link_type: LinkType::ETHERNET,
                unordered: false,
                sequence: number,
                first_packet: number * 10,
                packets: 10,
                block_bytes: 1000,
                first_ns: 5,
                last_ns: 6,
                min_ns: 5,
                max_ns: 6,
                bytes_before: 99,
                drops_before: Drops::default(),
                left_out: LeftOut { packets: number, bytes: 99 },
            },
            hash: Hash([number as u8; 16]),
            summary: Summary::new(Column::new(&key.to_bytes()), segment_bytes),
        }
    }

    #[test]
    fn an_index_is_read_as_it_was_written_behind_anything() {
        for (entries, segment_bytes) in
            [(0, SEGMENT_BYTES_MIN), (1, SEGMENT_BYTES_MIN), (30, SEGMENT_BYTES_MAX)]
        {
            let entries: Vec<Entry> = (0..entries).map(|number| entry(number, segment_bytes)).collect();
            let bytes = write(&entries);
            assert_eq!(bytes.len() as u64, bytes_of(entries.len(), segment_bytes));
            assert!(bytes.len().is_multiple_of(INDEX_ALIGN));
            assert_eq!(read(&bytes), Ok(entries.clone()));
            assert_eq!(read(&[&[7; 4096][..], &bytes].concat()), Ok(entries));
        }
    }

    #[test]
    fn an_index_takes_less_than_four_thousandths_of_its_file_and_a_block_at_most_16_mib() {
        for size in [SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX] {
            let slots = slots_max(size);
            assert!(bytes_of(slots, size) <= INDEX_BYTES_MAX as u64);
            assert!(bytes_of(slots + 1, size) > INDEX_BYTES_MAX as u64);
        }
        assert!(bytes_of(512, SEGMENT_BYTES_MAX) * 1000 <= 4 * (512 * SEGMENT_BYTES_MAX as u64));
    }

    #[test]
    fn more_entries_than_a_block_holds_stand_in_several() {
        let slots = slots_max(SEGMENT_BYTES_MAX);
        let entries: Vec<Entry> =
            (0..slots as u64 + 2).map(|number| entry(number, SEGMENT_BYTES_MAX)).collect();
        let bytes = write(&entries);
        assert_eq!(bytes.len() as u64, bytes_of(entries.len(), SEGMENT_BYTES_MAX));
        assert!(read(&bytes) == Ok(entries), "what was written");
        let last = block_bytes(*bytes.last_chunk().unwrap()).unwrap();
        assert_eq!(read(&bytes[bytes.len() - last..]), Err(IndexError::None), "the first block is missing");
        let twice = [&bytes[bytes.len() - last..], &bytes[bytes.len() - last..]].concat();
        assert!(matches!(read(&twice), Err(IndexError::Damaged(_))));
    }

    #[test]
    fn no_byte_of_an_index_changes_unnoticed() {
        let bytes = write(&[entry(0, SEGMENT_BYTES_MIN), entry(1, SEGMENT_BYTES_MIN)]);
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                assert!(read(&changed).is_err(), "byte {at}");
            }
        }
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), Err(IndexError::None), "{len} bytes");
        }
        let mut newer = bytes;
        newer[15] = 2;
        assert_eq!(read(&newer), Err(IndexError::Newer(2)));
    }
}
