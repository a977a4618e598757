//! The index of a closed file: what a search has to know of each segment, in one stretch at the file's end.
//!
//! ```text
//!  0      4        8       16        20              24              28      32      40       96     2184
//!  | type | length | magic | entries | summary bytes | blocks before | lanes | check | totals | card | entries | zeros | length |
//!
//!  card:   | run id 16 | smallest time 8 | largest time 8 | check 8 | 64 lanes of 32 bytes |
//!  lane:   | lane 4 | zeros 4 | first packet of its first segment 8 | of its last 8 | end of its last 8 |
//!  entry:  | foot's first 256 bytes | offset 8 | hash 16 | summary |
//! ```
//! A question reads the card first, which has a check of its own, and the rest of few files. Version 1 had no card, and
//! summaries of another form: it is read, and written only for tests. docs/FORMAT.md, section 7, has the tables. A block is at most [`INDEX_BYTES_MAX`] long, since libpcap reads
//! none that is longer: a file with more entries has several, one directly behind the other. The file's last 4
//! bytes are the last block's length, so a reader finds them from the end. That a block is a multiple of 4096
//! bytes long lets it be written with O_DIRECT.

use crate::checks::Hash;
use scope_packet::pcapng::{INDEX, le32};
use scope_packet::segment::Foot;
use scope_ring::{Summary, SummaryForm};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::Hasher;
use std::ops::Range;
use twox_hash::{XxHash3_64, XxHash3_128};

/// Most bytes of one index block.
pub const INDEX_BYTES_MAX: usize = 16 << 20;
/// An index block is a multiple of this long.
pub const INDEX_ALIGN: usize = 4096;

/// Behind it stands the version.
const MAGIC: [u8; 7] = *b"WSINDEX";
const VERSION: u8 = 2;
/// What is known of the whole file stands in each of its index blocks.
const TOTALS_AT: usize = 40;
const TOTALS_BYTES: usize = 56;
const CHECK_AT: usize = 32;
const LANES_AT: usize = 28;
const CARD_AT: usize = TOTALS_AT + TOTALS_BYTES;
const CARD_CHECK_AT: usize = CARD_AT + 32;
const LANE_TABLE_AT: usize = CARD_CHECK_AT + 8;
const LANE_BYTES: usize = 32;
/// Lanes that a card lists; of a file with more it lists none.
pub const LANES_MAX: usize = 64;
/// Stands for their number where there are more.
const LANES_UNLISTED: u32 = u32::MAX;
/// Of an entry: the foot's bytes that it has, its fields and room for more of them; then offset and hash.
const FOOT_BYTES: usize = 256;
const SUMMARY_AT: usize = FOOT_BYTES + 8 + 16;

const _: () = assert!(fixed_bytes(SummaryForm::Second) <= INDEX_ALIGN, "one page has all of the card");

/// Where the entries begin.
const fn fixed_bytes(form: SummaryForm) -> usize {
    match form {
        SummaryForm::First => CARD_AT,
        SummaryForm::Second => LANE_TABLE_AT + LANES_MAX * LANE_BYTES,
    }
}

/// Of every index block: what isn't entries.
const fn frame_bytes(form: SummaryForm) -> usize {
    fixed_bytes(form) + 4
}

/// The form of summaries in an index of this version.
fn form_of(version: u8) -> Option<SummaryForm> {
    match version {
        1 => Some(SummaryForm::First),
        VERSION => Some(SummaryForm::Second),
        _ => None,
    }
}

fn version_of(form: SummaryForm) -> u8 {
    match form {
        SummaryForm::First => 1,
        SummaryForm::Second => VERSION,
    }
}

/// A block is read in pieces of so many bytes.
const PIECE_BYTES: usize = 256 << 10;

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
}

impl Card {
    /// Of these entries.
    pub fn of(entries: &[Entry]) -> Card {
        let feet = || entries.iter().map(|entry| &entry.foot).filter(|foot| has_numbers(foot));
        let run_id = feet().next().map_or([0; 16], |foot| foot.run_id);
        Card {
            totals: Totals::of(entries),
            run_id,
            reach_ns: feet().map(reach_ns).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
            lanes: Some(lane_parts(feet()))
                .filter(|lanes| lanes.len() <= LANES_MAX && feet().all(|foot| foot.run_id == run_id)),
        }
    }

    /// Writes it into the beginning of a block, whose other fields in front of its end are there already.
    fn write(&self, begin: &mut [u8; fixed_bytes(SummaryForm::Second)]) {
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
            for (at, number) in [(8, part.first), (16, part.last), (24, part.end)] {
                place[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
        }
        let check = card_check(begin);
        begin[CARD_CHECK_AT..CARD_CHECK_AT + 8].copy_from_slice(&check.to_le_bytes());
    }

    /// Out of the beginning of a block; `None`: it isn't what was written.
    fn read(begin: &[u8; fixed_bytes(SummaryForm::Second)]) -> Option<Card> {
        let word = |at: usize| u64::from(le32(begin, at)) | u64::from(le32(begin, at + 4)) << 32;
        (card_check(begin) == word(CARD_CHECK_AT)).then_some(())?;
        let lanes = le32(begin, LANES_AT);
        let part = |place: &[u8]| {
            let word = |at: usize| u64::from(le32(place, at)) | u64::from(le32(place, at + 4)) << 32;
            LanePart { lane: le32(place, 0), first: word(8), last: word(16), end: word(24) }
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

/// Smallest and largest of the times in a foot.
pub(crate) fn reach_ns(foot: &Foot) -> (i64, i64) {
    (foot.min_ns.min(foot.first_ns), foot.max_ns.max(foot.first_ns))
}

/// What segments with these feet have of each lane.
pub(crate) fn lane_parts<'a>(feet: impl Iterator<Item = &'a Foot>) -> Vec<LanePart> {
    let mut parts: BTreeMap<u32, LanePart> = BTreeMap::new();
    for foot in feet {
        let (lane, first) = (foot.lane, foot.first_packet);
        let part = parts.entry(lane).or_insert(LanePart { lane, first, last: first, end: foot.end() });
        part.first = part.first.min(first);
        part.last = part.last.max(first);
        part.end = part.end.max(foot.end());
    }
    parts.into_values().collect()
}

/// Of a block's beginning, without both checks.
fn card_check(begin: &[u8; fixed_bytes(SummaryForm::Second)]) -> u64 {
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
        form_of(begin[15])?;
        Some(Totals::read(begin[TOTALS_AT..].first_chunk()?))
    }))
}

/// The same of its card, held against the card's check.
///
/// # Errors
/// That of `read`; `None`: no index with a card stands at the end, or it isn't what was written.
pub fn read_card<E>(len: u64, read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<Option<Card>, E> {
    let begin: Option<[u8; fixed_bytes(SummaryForm::Second)]> = read_begin(len, read)?;
    Ok(begin.filter(|begin| begin[15] == VERSION).and_then(|begin| Card::read(&begin)))
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
    (INDEX_BYTES_MAX - frame_bytes(SummaryForm::Second)) / (SUMMARY_AT + Summary::bytes_of(segment_bytes))
}

/// Bytes of the index of so many segments of `segment_bytes`: what a file's reserve has to hold for it.
pub fn bytes_of(slots: usize, segment_bytes: usize) -> u64 {
    let form = SummaryForm::Second;
    let block = |slots| block_bytes_of(form, slots, form.bytes_of(segment_bytes)) as u64;
    let max = slots_max(segment_bytes);
    let last = slots % max;
    (slots / max) as u64 * block(max) + if last != 0 || slots == 0 { block(last) } else { 0 }
}

fn block_bytes_of(form: SummaryForm, entries: usize, summary_bytes: usize) -> usize {
    (frame_bytes(form) + entries * (SUMMARY_AT + summary_bytes)).next_multiple_of(INDEX_ALIGN)
}

/// The index of a file with these segments, all of one size and in the order of the file. Its version is that of their
/// summaries, which are all of one form.
pub fn write(entries: &[Entry]) -> Vec<u8> {
    let form = entries.first().map_or(SummaryForm::Second, |entry| entry.summary.form());
    let summary_bytes = entries.first().map_or(0, |entry| entry.summary.bytes());
    let max = (INDEX_BYTES_MAX - frame_bytes(form)) / (SUMMARY_AT + summary_bytes);
    let mut out = Vec::with_capacity(block_bytes_of(form, entries.len(), summary_bytes));
    let card = Card::of(entries);
    let mut blocks = entries.chunks(max);
    write_block(&mut out, blocks.next().unwrap_or_default(), &card, (form, summary_bytes), 0);
    for (before, entries) in (1..).zip(blocks) {
        write_block(&mut out, entries, &card, (form, summary_bytes), before);
    }
    out
}

/// Appends one block; `before` others stand directly in front of it.
fn write_block(
    out: &mut Vec<u8>,
    entries: &[Entry],
    card: &Card,
    (form, summary_bytes): (SummaryForm, usize),
    before: u32,
) {
    let from = out.len();
    let total = block_bytes_of(form, entries.len(), summary_bytes);
    let mut begin = [0; fixed_bytes(SummaryForm::Second)];
    begin[..4].copy_from_slice(&INDEX.to_le_bytes());
    begin[4..8].copy_from_slice(&(total as u32).to_le_bytes());
    begin[8..15].copy_from_slice(&MAGIC);
    begin[15] = version_of(form);
    for (at, word) in [(16, entries.len() as u32), (20, summary_bytes as u32), (24, before)] {
        begin[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    match form {
        SummaryForm::First => begin[TOTALS_AT..CARD_AT].copy_from_slice(&card.totals.to_bytes()),
        SummaryForm::Second => card.write(&mut begin),
    }
    out.extend(&begin[..fixed_bytes(form)]);
    for entry in entries {
        let summary = (entry.summary.form(), entry.summary.bytes());
        assert_eq!(summary, (form, summary_bytes), "one segment size, one form");
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

/// An entry as it stands in a block, lent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryBytes<'a> {
    facts: &'a [u8; SUMMARY_AT],
    /// The form of its summary.
    pub form: SummaryForm,
    /// Its summary.
    pub summary: &'a [u8],
}

impl EntryBytes<'_> {
    /// Offset, foot and hash; `None`: the foot can't be read.
    pub fn facts(&self) -> Option<(u64, Foot, Hash)> {
        let (foot, rest) = self.facts.split_at(FOOT_BYTES);
        let (offset, hash) = rest.split_first_chunk()?;
        Some((u64::from_le_bytes(*offset), Foot::read(foot)?, Hash(hash.try_into().ok()?)))
    }

    fn entry(self) -> Option<Entry> {
        let (offset, foot, hash) = self.facts()?;
        Some(Entry { offset, foot, hash, summary: Summary::read(self.form, self.summary)? })
    }
}

/// One index block that is looked through.
struct Block<T> {
    entries: Vec<T>,
    version: u8,
    /// So many stand directly in front of it.
    before: u32,
}

/// Makes of each entry of a block of `total` bytes what `make` makes of it. The block is read piece by piece, so that what
/// is hashed and looked at is still in the processor's cache.
fn read_block<T, E>(
    (from, total): (u64, usize),
    buffer: &mut Vec<u8>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    make: &impl Fn(EntryBytes<'_>) -> Option<T>,
) -> Result<Result<Block<T>, IndexError>, E> {
    let mut at = total.min(PIECE_BYTES);
    buffer.resize(buffer.len().max(at), 0);
    let begin = &mut buffer[..at];
    read(from, begin)?;
    if le32(begin, 0) != INDEX {
        return Ok(Err(IndexError::None));
    }
    if begin[8..15] != MAGIC {
        return Ok(Err(IndexError::Damaged("it doesn't begin like one")));
    }
    let (version, before) = (begin[15], le32(begin, 24));
    let Some(form) = form_of(version) else { return Ok(Err(IndexError::Newer(version))) };
    let check: [u8; 8] = std::array::from_fn(|at| begin[CHECK_AT + at]);
    begin[CHECK_AT..CHECK_AT + 8].fill(0);
    let mut hasher = XxHash3_64::new();
    hasher.write(begin);
    let (count, summary_bytes) = (le32(begin, 16) as usize, le32(begin, 20) as usize);
    let entry_bytes = SUMMARY_AT + summary_bytes;
    let end = count.checked_mul(entry_bytes).and_then(|bytes| bytes.checked_add(fixed_bytes(form)));
    let end = end.filter(|&end| end <= total - 4);
    // What else is wrong counts only if the checksum holds.
    let mut wrong = match end {
        _ if le32(begin, 4) as usize != total => Some("its lengths differ"),
        None => Some("it has more entries than room"),
        Some(_) if count > 0 && !form.is_length(summary_bytes) => Some("an entry can't be read"),
        Some(_) => None,
    };
    let end = end.unwrap_or(0);
    let mut entries = Vec::with_capacity(if wrong.is_none() { count } else { 0 });
    // Of the block, `next` is where the next entry begins, and `base` what stands first in the buffer.
    let (mut next, mut base) = (fixed_bytes(form), 0);
    loop {
        while wrong.is_none() && next < end && next + entry_bytes <= at {
            let bytes = &buffer[next - base..][..entry_bytes];
            let facts: Option<(&[u8; SUMMARY_AT], &[u8])> = bytes.split_first_chunk();
            match facts.and_then(|(facts, summary)| make(EntryBytes { facts, form, summary })) {
                Some(made) => entries.push(made),
                None => wrong = Some("an entry can't be read"),
            }
            next += entry_bytes;
        }
        if at == total {
            break;
        }
        let held = if wrong.is_none() && next < end { next - base..at - base } else { 0..0 };
        let (kept, piece) = (held.len(), PIECE_BYTES.min(total - at));
        buffer.copy_within(held, 0);
        buffer.resize(buffer.len().max(kept + piece), 0);
        let more = &mut buffer[kept..kept + piece];
        read(from + at as u64, more)?;
        hasher.write(more);
        base = at - kept;
        at += piece;
    }
    if hasher.finish().to_le_bytes() != check {
        return Ok(Err(IndexError::Damaged("its checksum differs")));
    }
    Ok(wrong.map_or(Ok(Block { entries, version, before }), |wrong| Err(IndexError::Damaged(wrong))))
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
    read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Result<(Vec<Entry>, u64), IndexError>, E> {
    make_from_end(within, &mut Vec::new(), read, |entry| entry.entry())
}

/// The same, with what `make` makes of each entry; `buffer` is memory for it.
pub(crate) fn make_from_end<T, E>(
    within: Range<u64>,
    buffer: &mut Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    make: impl Fn(EntryBytes<'_>) -> Option<T>,
) -> Result<Result<(Vec<T>, u64), IndexError>, E> {
    let (mut blocks, mut end): (Vec<Block<T>>, u64) = (Vec::new(), within.end);
    while blocks.last().is_none_or(|behind| behind.before > 0) {
        let mut closing = [0; 4];
        let Some(closing_at) = end.checked_sub(4).filter(|&at| at >= within.start) else {
            return Ok(Err(IndexError::None));
        };
        read(closing_at, &mut closing)?;
        let total = block_bytes(closing);
        let from = total.and_then(|total| end.checked_sub(total as u64)).filter(|&from| from >= within.start);
        let Some(from) = from else { return Ok(Err(IndexError::None)) };
        let block = match read_block((from, (end - from) as usize), buffer, &mut read, &make)? {
            Ok(read) => read,
            Err(cause) => return Ok(Err(cause)),
        };
        if let Some(behind) = blocks.last() {
            if behind.before - 1 != block.before {
                return Ok(Err(IndexError::Damaged("a block of it is missing")));
            }
            if behind.version != block.version {
                return Ok(Err(IndexError::Damaged("a block of it has another version")));
            }
        }
        blocks.push(block);
        end = from;
    }
    Ok(Ok((blocks.into_iter().rev().flat_map(|block| block.entries).collect(), end)))
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
        newer[15] = 3;
        assert_eq!(read(&newer), Err(IndexError::Newer(3)));
    }
}
