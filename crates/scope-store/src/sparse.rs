//! A closed segment read in part: its key column, and of its packets the pages in which those lie that may match.
//!
//! ```text
//! | blocks: only the pages of chosen packets are read | padding | column | foot |
//!                                                               ◄── read first, each page held against its checksum
//! ```
//! Pages that aren't read stay untouched memory, which costs nothing. A page that isn't what was written takes its
//! packets with it, and no others.

use crate::checks::{self, Hash, PAGE_BYTES};
use crate::listing::SegmentFacts;
use crate::segment::{Statistics, column_bytes, foot_of, statistics_among};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::{KEY_COLUMN, PacketBlock, STATISTICS, STATISTICS_BYTES, le32};
use scope_packet::segment::{FOOT_BYTES, STATISTICS_MAX};
use scope_ring::{Column, KeyTest};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// What was read.
pub(crate) struct Sparse {
    /// The segment's beginning; what isn't read of it is zero.
    pub blocks: Vec<u8>,
    /// The key column's entries, as they lie: the last packet's first.
    pub entries: Vec<u8>,
    /// Packets that may match, and can be read, in the order in which they lie.
    pub chosen: Vec<u32>,
    /// Packets that may match, and lie in damaged pages.
    pub damaged: u64,
    /// Bytes of it that were read.
    pub read: usize,
}

/// Reads what may match `keys`, of a segment whose foot and hash are known from the index.
///
/// # Errors
/// The system's, and whatever makes foot or column another than was written.
pub(crate) fn read(
    file: &File,
    facts: &SegmentFacts,
    keys: &KeyTest,
    is_known: impl Fn(u32) -> bool,
) -> io::Result<Sparse> {
    let known = &facts.foot;
    let column_at = column_at(facts)?;
    let from = column_at / PAGE_BYTES * PAGE_BYTES;
    let tail = read_tail(file, facts, from)?;
    let (pages, foot_page) = tail.split_at(tail.len() - FOOT_BYTES);
    let head = &pages[column_at - from..];
    if le32(head, 0) != KEY_COLUMN || le32(head, 4) as usize != facts.bytes - column_at {
        return Err(io::Error::other("no head of the key column"));
    }
    let entries = pages[pages.len() - known.packets as usize * KEY_ENTRY_BYTES..].to_vec();
    let column = Column::new(&entries);
    let block_bytes = known.block_bytes as usize;
    let place = |index: u32| -> Option<Range<usize>> {
        let begin = column.get(index).offset() as usize;
        let last = index + 1 == known.packets;
        let end = if last { block_bytes } else { column.get(index + 1).offset() as usize };
        (begin < end && end <= block_bytes).then_some(begin..end)
    };
    let mut sparse =
        Sparse { blocks: Vec::new(), entries: Vec::new(), chosen: Vec::new(), damaged: 0, read: tail.len() };
    let mut places: Vec<(u32, Range<usize>)> = Vec::new();
    for index in column.matches(keys) {
        match place(index) {
            Some(place) => places.push((index, place)),
            None => return Err(io::Error::other("an entry of the column says another place of its packet")),
        }
    }
    if places.is_empty() {
        return Ok(sparse);
    }
    sparse.blocks = vec![0; block_bytes.next_multiple_of(PAGE_BYTES)];
    let mut damaged: Vec<usize> = Vec::new();
    for run in runs(&places) {
        let stretch = &mut sparse.blocks[run.start * PAGE_BYTES..run.end * PAGE_BYTES];
        file.read_exact_at(stretch, facts.offset + (run.start * PAGE_BYTES) as u64)?;
        sparse.read += stretch.len();
        let numbered = stretch.chunks_exact(PAGE_BYTES).zip(run.start..);
        damaged.extend(
            numbered.filter(|(page, at)| !checks::page_is_whole(page, *at, foot_page)).map(|(_, at)| at),
        );
    }
    for (index, place) in places {
        let mut pages = place.start / PAGE_BYTES..=(place.end - 1) / PAGE_BYTES;
        if pages.any(|page| damaged.binary_search(&page).is_ok()) {
            sparse.damaged += 1;
            continue;
        }
        let block = PacketBlock::first(&sparse.blocks[place.clone()]).filter(|block| {
            let total = block.bytes().len();
            total == place.len()
                && le32(block.bytes(), total - 4) as usize == total
                && (known.min_ns..=known.max_ns).contains(&block.time_ns())
        });
        let Some(block) = block else { return Err(io::Error::other("no whole packet block")) };
        if !is_known(block.interface()) {
            let number = block.interface();
            return Err(io::Error::other(format!(
                "a packet has interface {number}, which no head describes"
            )));
        }
        sparse.chosen.push(index);
    }
    sparse.entries = entries;
    Ok(sparse)
}

/// What the statistics blocks of a closed segment say, read by themselves: they stand in front of the column. One from
/// before there were checksums says nothing.
///
/// # Errors
/// As [`read`].
pub(crate) fn statistics(file: &File, facts: &SegmentFacts) -> io::Result<Vec<Statistics>> {
    if facts.hash == Hash::NONE {
        return Ok(Vec::new());
    }
    let column_at = column_at(facts)?;
    let least =
        column_at.saturating_sub(STATISTICS_MAX * STATISTICS_BYTES).max(facts.foot.block_bytes as usize);
    let from = least / PAGE_BYTES * PAGE_BYTES;
    let tail = read_tail(file, facts, from)?;
    let block = |at: usize| &tail[at - from..];
    let is_block =
        |at: usize| le32(block(at), 0) == STATISTICS && le32(block(at), 4) as usize == STATISTICS_BYTES;
    let mut at = column_at;
    while at >= least + STATISTICS_BYTES && is_block(at - STATISTICS_BYTES) {
        at -= STATISTICS_BYTES;
    }
    Ok(statistics_among(&tail[at - from..column_at - from]).collect())
}

fn column_at(facts: &SegmentFacts) -> io::Result<usize> {
    let at = facts.bytes.checked_sub(column_bytes(facts.foot.packets as usize));
    at.ok_or_else(|| io::Error::other("its column is longer than the segment"))
}

/// Reads a segment from a page on, the foot included, and holds each page against its checksum.
fn read_tail(file: &File, facts: &SegmentFacts, from: usize) -> io::Result<Vec<u8>> {
    let mut tail = vec![0; facts.bytes - from];
    file.read_exact_at(&mut tail, facts.offset + from as u64)?;
    let (pages, foot_page) = tail.split_at(tail.len() - FOOT_BYTES);
    let is_foot = checks::foot_is_whole(foot_page, facts.bytes)
        && checks::stored_hash(foot_page) == facts.hash
        && foot_of(foot_page, facts.bytes).map_err(io::Error::other)? == facts.foot;
    if !is_foot {
        return Err(io::Error::other("its foot isn't what the index says"));
    }
    let mut numbered = pages.chunks_exact(PAGE_BYTES).zip(from / PAGE_BYTES..);
    match numbered.find(|(page, index)| !checks::page_is_whole(page, *index, foot_page)) {
        Some((_, index)) => {
            Err(io::Error::other(format!("page {index} of 4 KiB, which has keys or counts, is damaged")))
        }
        None => Ok(tail),
    }
}

/// The pages of these packets, as runs of neighbours.
fn runs(places: &[(u32, Range<usize>)]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (_, place) in places {
        let (from, to) = (place.start / PAGE_BYTES, (place.end - 1) / PAGE_BYTES + 1);
        match runs.last_mut() {
            Some(run) if from <= run.end => run.end = run.end.max(to),
            _ => runs.push(from..to),
        }
    }
    runs
}
