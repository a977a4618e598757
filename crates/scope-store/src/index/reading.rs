//! Index blocks are read from the file's end on: whole and checked, or for a search as far as its keys need.
//!
//! ```text
//! whole    block ─► check ─► entries with their summaries
//! search   1, 2: block piece by piece ─► check, each summary is asked
//!          3:    begin and facts ─► tail's check ─► the slices of the keys, page by page
//! ```

use super::layout::{
    CHECK_AT, FACTS_BYTES, FOOT_BYTES, INDEX_BYTES_MAX, Layout, MAGIC, TAIL_BYTES, Version, block_bytes,
};
use super::slices::{self, Pages, SliceError, is_sealed};
use super::{Entry, IndexError};
use crate::checks::Hash;
use scope_packet::pcapng::{INDEX, le32};
use scope_packet::segment::Foot;
use scope_ring::slices::that_may_hold;
use scope_ring::{KeyTest, Summary};
use std::convert::Infallible;
use std::hash::Hasher;
use std::ops::Range;
use twox_hash::XxHash3_64;

/// A block is read in pieces of so many bytes.
const PIECE_BYTES: usize = 256 << 10;

/// What the index says of one segment to a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screened {
    /// Where the segment begins in the file.
    pub offset: u64,
    /// Its foot.
    pub foot: Foot,
    /// Its hash.
    pub hash: Hash,
    /// Whether a packet that is searched for may be in it.
    pub may_match: bool,
}

/// What a search has of an index.
#[derive(Debug, PartialEq, Eq)]
pub struct Search {
    /// Of each segment, in the order of the file.
    pub segments: Vec<Screened>,
    /// Where the index begins in the file.
    pub from: u64,
    /// Bytes of it that were read.
    pub read_bytes: u64,
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
    let mut buffer = Vec::new();
    let whole = |begin: &Begin, read: &mut _| match begin.layout.version {
        Version::Third => entries_and_slices(begin, read),
        _ => entries_with_summaries(begin, &mut buffer, read, |facts, summary| {
            let Screened { offset, foot, hash, .. } = screened(facts)?;
            let summary = Summary::read(begin.layout.version.form(), summary)?;
            Some(Entry { offset, foot, hash, summary })
        }),
    };
    blocks(within, &mut read, whole)
}

/// The same for a search: whether the segments may have what `test` matches. Blocks are read into `buffer`. Of a block that
/// isn't read whole only what is read is checked.
///
/// # Errors
/// That of `read`; within, what is wrong with the index.
pub fn search_from_end<E>(
    within: Range<u64>,
    test: &KeyTest,
    buffer: &mut Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Result<Search, IndexError>, E> {
    let mut read_bytes = 0;
    let screen = |begin: &Begin, read: &mut _| {
        let form = begin.layout.version.form();
        match begin.layout.version {
            Version::Third => {
                let screened = facts_and_slices(begin, test, buffer, read)?;
                Ok(screened.map(|(segments, bytes)| {
                    read_bytes += bytes;
                    segments
                }))
            }
            _ => {
                read_bytes += begin.total as u64;
                entries_with_summaries(begin, buffer, read, |facts, summary| {
                    Some(Screened { may_match: form.may_hold(summary, test), ..screened(facts)? })
                })
            }
        }
    };
    let found = blocks(within, &mut read, screen)?;
    Ok(found.map(|(segments, from)| Search { segments, from, read_bytes }))
}

/// What the begin of a block says.
struct Begin {
    /// Where the block begins in the file.
    from: u64,
    total: usize,
    layout: Layout,
    /// So many blocks stand directly in front of it.
    before: u32,
}

impl Begin {
    /// Out of the block's first bytes.
    fn read(from: u64, total: usize, begin: &[u8]) -> Result<Begin, IndexError> {
        if le32(begin, 0) != INDEX {
            return Err(IndexError::None);
        }
        if begin[8..15] != MAGIC {
            return Err(IndexError::Damaged("it doesn't begin like one"));
        }
        let version = Version::of(begin[15]).ok_or(IndexError::Newer(begin[15]))?;
        // More than ever fit together are as wrong as far more.
        let count = |at| (le32(begin, at) as usize).min(INDEX_BYTES_MAX);
        let (entries, summary_bytes) = (count(16), count(20));
        let layout = Layout { version, entries, summary_bytes };
        Ok(Begin { from, total, layout, before: le32(begin, 24) })
    }

    /// What of its sizes can't be; counts only if the checksum holds.
    fn wrong(&self, begin: &[u8]) -> Option<&'static str> {
        let Layout { version, entries, summary_bytes } = self.layout;
        match self.layout.block_bytes() {
            _ if le32(begin, 4) as usize != self.total => Some("its lengths differ"),
            bytes if bytes > self.total => Some("it has more entries than room"),
            _ if entries > 0 && !version.form().is_length(summary_bytes) => Some("an entry can't be read"),
            bytes if version == Version::Third && bytes != self.total => {
                Some("it has more room than entries")
            }
            _ => None,
        }
    }
}

/// Goes through the blocks from the file's end on, and makes of each what `make` makes of it; what comes back is in the
/// order of the file, and where the index begins.
fn blocks<T, E, R: FnMut(u64, &mut [u8]) -> Result<(), E>>(
    within: Range<u64>,
    read: &mut R,
    mut make: impl FnMut(&Begin, &mut R) -> Result<Result<Vec<T>, IndexError>, E>,
) -> Result<Result<(Vec<T>, u64), IndexError>, E> {
    let (mut found, mut end): (Vec<(Begin, Vec<T>)>, u64) = (Vec::new(), within.end);
    while found.last().is_none_or(|(behind, _)| behind.before > 0) {
        let mut closing = [0; 4];
        let Some(closing_at) = end.checked_sub(4).filter(|&at| at >= within.start) else {
            return Ok(Err(IndexError::None));
        };
        read(closing_at, &mut closing)?;
        let total = block_bytes(closing);
        let from = total.and_then(|total| end.checked_sub(total as u64)).filter(|&from| from >= within.start);
        let Some(from) = from else { return Ok(Err(IndexError::None)) };
        let mut begin = [0; 32];
        read(from, &mut begin)?;
        let begin = match Begin::read(from, (end - from) as usize, &begin) {
            Ok(begin) => begin,
            Err(cause) => return Ok(Err(cause)),
        };
        let made = match make(&begin, read)? {
            Ok(made) => made,
            Err(cause) => return Ok(Err(cause)),
        };
        if let Some((behind, _)) = found.last() {
            if behind.before - 1 != begin.before {
                return Ok(Err(IndexError::Damaged("a block of it is missing")));
            }
            if behind.layout.version != begin.layout.version {
                return Ok(Err(IndexError::Damaged("a block of it has another version")));
            }
        }
        found.push((begin, made));
        end = from;
    }
    Ok(Ok((found.into_iter().rev().flat_map(|(_, made)| made).collect(), end)))
}

/// Of versions 1 and 2: makes of each entry what `make` makes of its facts and its summary. The block is read piece by
/// piece, so that what is hashed and looked at is still in the processor's cache.
fn entries_with_summaries<T, E>(
    Begin { from, total, layout, .. }: &Begin,
    buffer: &mut Vec<u8>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    make: impl Fn(&[u8; FACTS_BYTES], &[u8]) -> Option<T>,
) -> Result<Result<Vec<T>, IndexError>, E> {
    let (from, total) = (*from, *total);
    let mut at = total.min(PIECE_BYTES);
    buffer.resize(buffer.len().max(at), 0);
    let begin = &mut buffer[..at];
    read(from, begin)?;
    let mut wrong = Begin { from, total, layout: *layout, before: 0 }.wrong(begin);
    let check = take_check(begin);
    let mut hasher = XxHash3_64::new();
    hasher.write(begin);
    let entry_bytes = FACTS_BYTES + layout.summary_bytes;
    let end = if wrong.is_none() { layout.begin_bytes() + layout.entries * entry_bytes } else { 0 };
    let mut entries = Vec::with_capacity(if wrong.is_none() { layout.entries } else { 0 });
    // Of the block, `next` is where the next entry begins, and `base` what stands first in the buffer.
    let (mut next, mut base) = (layout.begin_bytes(), 0);
    loop {
        while wrong.is_none() && next < end && next + entry_bytes <= at {
            let bytes = &buffer[next - base..][..entry_bytes];
            let made = bytes.split_first_chunk().and_then(|(facts, summary)| make(facts, summary));
            match made {
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
    if hasher.finish() != check {
        return Ok(Err(IndexError::Damaged("its checksum differs")));
    }
    Ok(wrong.map_or(Ok(entries), |wrong| Err(IndexError::Damaged(wrong))))
}

/// Of version 3: all of it, checked.
fn entries_and_slices<E>(
    begin: &Begin,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Result<Vec<Entry>, IndexError>, E> {
    let Begin { from, total, layout, .. } = begin;
    let mut block = vec![0; *total];
    read(*from, &mut block)?;
    let check = take_check(&mut block);
    if XxHash3_64::oneshot(&block) != check {
        return Ok(Err(IndexError::Damaged("its checksum differs")));
    }
    if let Some(wrong) = begin.wrong(&block) {
        return Ok(Err(IndexError::Damaged(wrong)));
    }
    let (facts, pages) = block.split_at_mut(layout.facts_bytes());
    let summaries = is_sealed(facts, 0, *total).then(|| slices::read_all(pages, *layout)).flatten();
    let Some(summaries) = summaries else {
        return Ok(Err(IndexError::Damaged("a checksum of a part of it differs")));
    };
    let entry = |(number, Screened { offset, foot, hash, .. }): (usize, Screened)| {
        let bytes = &summaries[number * layout.summary_bytes..][..layout.summary_bytes];
        Some(Entry { offset, foot, hash, summary: Summary::read(layout.version.form(), bytes)? })
    };
    let entries = all_facts(facts, *layout).map(|facts| facts.into_iter().enumerate().map(entry).collect());
    Ok(entries.flatten().ok_or(IndexError::Damaged("an entry can't be read")))
}

/// Of version 3: what a search needs, and how many bytes of the block were read.
fn facts_and_slices<E>(
    begin: &Begin,
    test: &KeyTest,
    buffer: &mut Vec<u8>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Result<(Vec<Screened>, u64), IndexError>, E> {
    let Begin { from, total, layout, .. } = begin;
    let facts_bytes = layout.facts_bytes();
    if facts_bytes > *total {
        return Ok(Err(IndexError::Damaged("it has more entries than room")));
    }
    buffer.resize(buffer.len().max(facts_bytes), 0);
    let facts = &mut buffer[..facts_bytes];
    read(*from, facts)?;
    take_check(facts);
    if !is_sealed(facts, 0, *total) {
        return Ok(Err(IndexError::Damaged("its checksum differs")));
    }
    if let Some(wrong) = begin.wrong(facts) {
        return Ok(Err(IndexError::Damaged(wrong)));
    }
    let Some(mut segments) = all_facts(facts, *layout) else {
        return Ok(Err(IndexError::Damaged("an entry can't be read")));
    };
    let mut pages = Pages::new(*layout, *from, read);
    match that_may_hold(&mut pages, layout.summary_bytes, test) {
        Ok(found) => {
            for (number, segment) in segments.iter_mut().enumerate() {
                segment.may_match = found.contains(number);
            }
        }
        Err(SliceError::Read(error)) => return Err(error),
        Err(SliceError::Damaged) => {
            return Ok(Err(IndexError::Damaged("a checksum of a part of it differs")));
        }
    }
    Ok(Ok((segments, facts_bytes as u64 + pages.read_bytes())))
}

/// Takes the check out of a block's begin: it isn't among what it is of.
fn take_check(begin: &mut [u8]) -> u64 {
    let check: [u8; 8] = std::array::from_fn(|at| begin[CHECK_AT + at]);
    begin[CHECK_AT..CHECK_AT + 8].fill(0);
    u64::from_le_bytes(check)
}

/// The facts of all entries of a block of version 3, out of its first part; `None`: one can't be read.
fn all_facts(part: &[u8], layout: Layout) -> Option<Vec<Screened>> {
    let facts = part[layout.begin_bytes()..part.len() - TAIL_BYTES].chunks_exact(FACTS_BYTES);
    facts.take(layout.entries).map(|facts| screened(facts.first_chunk()?)).collect()
}

/// Offset, foot and hash; `None`: the foot can't be read.
fn screened(facts: &[u8; FACTS_BYTES]) -> Option<Screened> {
    let (foot, rest) = facts.split_at(FOOT_BYTES);
    let (offset, hash) = rest.split_first_chunk()?;
    let (offset, hash) = (u64::from_le_bytes(*offset), Hash(hash.try_into().ok()?));
    Some(Screened { offset, foot: Foot::read(foot)?, hash, may_match: true })
}
