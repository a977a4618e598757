//! A closed segment read in part: its end, which has key column and foot, and where the packets lie that may match.
//!
//! ```text
//! | blocks: only the pages of chosen packets are read | padding | column | foot |
//!                                                               ◄── the tail, each page held against its checksum
//! ```
//! A page that isn't what was written takes its packets with it, and no others.

use crate::checks::{self, Hash, PAGE_BYTES};
use crate::fetch::read_exact;
use crate::listing::SegmentFacts;
use crate::segment::{Statistics, column_bytes, foot_of, statistics_among};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::{KEY_COLUMN, STATISTICS, STATISTICS_BYTES, le32};
use scope_packet::segment::{FOOT_BYTES, STATISTICS_MAX};
use scope_ring::{Column, KeyTest};
use std::fs::File;
use std::io;
use std::ops::Range;

/// The end of a segment, as it was written: from the page in which its column begins.
pub(crate) struct Tail {
    bytes: Vec<u8>,
    packets: usize,
}

/// Where the tail of a segment begins.
///
/// # Errors
/// The segment has no room for the column that its foot says.
pub(crate) fn tail_from(facts: &SegmentFacts) -> io::Result<usize> {
    Ok(column_at(facts)? / PAGE_BYTES * PAGE_BYTES)
}

impl Tail {
    /// Out of the bytes from [`tail_from`] on, of a segment whose foot and hash are known from the index.
    ///
    /// # Errors
    /// Whatever makes foot or column another than was written.
    pub fn new(bytes: Vec<u8>, facts: &SegmentFacts) -> io::Result<Tail> {
        let column_at = column_at(facts)?;
        let from = tail_from(facts)?;
        check_tail(&bytes, from, facts)?;
        let head = &bytes[column_at - from..];
        if le32(head, 0) != KEY_COLUMN || le32(head, 4) as usize != facts.bytes - column_at {
            return Err(io::Error::other("no head of the key column"));
        }
        Ok(Tail { bytes, packets: facts.foot.packets as usize })
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The foot's page.
    pub fn foot_page(&self) -> &[u8] {
        &self.bytes[self.bytes.len() - FOOT_BYTES..]
    }

    /// The key column.
    pub fn column(&self) -> Column<'_> {
        let end = self.bytes.len() - FOOT_BYTES;
        Column::new(&self.bytes[end - self.packets * KEY_ENTRY_BYTES..end])
    }

    /// The packets that may match, by index, each with the bytes of its block.
    ///
    /// # Errors
    /// An entry leads nowhere.
    pub fn chosen(&self, facts: &SegmentFacts, keys: &KeyTest) -> io::Result<Vec<(u32, Range<usize>)>> {
        let column = self.column();
        let block_bytes = facts.foot.block_bytes as usize;
        let place = |index: u32| {
            let begin = column.get(index).offset() as usize;
            let last = index + 1 == facts.foot.packets;
            let end = if last { block_bytes } else { column.get(index + 1).offset() as usize };
            match begin < end && end <= block_bytes {
                true => Ok((index, begin..end)),
                false => Err(io::Error::other("an entry of the column says another place of its packet")),
            }
        };
        column.matches(keys).map(place).collect()
    }
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
    read_exact(file, facts.offset + from as u64, &mut tail)?;
    check_tail(&tail, from, facts)?;
    Ok(tail)
}

/// Whether these are the last bytes of the segment, from that page on.
fn check_tail(tail: &[u8], from: usize, facts: &SegmentFacts) -> io::Result<()> {
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
        None => Ok(()),
    }
}
