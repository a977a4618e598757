//! What is written into a segment's slot: by a flush of the open segment, by closing it, and where it is
//! given up.
//!
//! ```text
//!    flushed before    new                                              new    flushed before
//!  | EPB ... EPB | EPB ... EPB | padding ................. column head | entries | entries | foot page |
//!                  └ ring ─┘└ own ─┘  not written: zeros      └ own ─┘└ ring ─┘            └ own ───┘
//! ```
//! A flush writes the pages that are new: whole ones straight from the ring; the page in which packets end,
//! the page in which the column begins, and the foot's, composed in the writer's own memory. A padding block
//! covers what lies between, so the slot is valid pcapng as soon as all of it is on the disk. What lies
//! between was never written: the space of a new file reads as zeros. The statistics blocks come with the
//! closed segment.
//!
//! Committed bytes never change, so what is written again has the same bytes there: a write that is torn
//! never takes anything away from what an earlier flush promised. A flush's record goes into the place that
//! the last but one had ([`crate::checks::FLUSH_AT`]).
//!
//! A slot that is given up is one padding block: readers skip it.

use crate::checks::{self, FLUSH_AT, Hash};
use crate::disk::{Bytes, PAGE_BYTES, Pages};
use crate::outgoing::Outgoing;
use crate::record::{self, RECORD_BYTES, Record, Running};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng;
use scope_packet::segment::{FOOT_BYTES, FileLosses, Foot};
use scope_ring::Committed;
use std::ops::Range;

/// Bytes of the padding block's closing length and of the column block's head, which stand in front of the
/// entries.
const COLUMN_FRONT_BYTES: usize = 12;

const _: () = assert!(FOOT_BYTES == PAGE_BYTES && checks::FLUSH_BYTES == RECORD_BYTES);
// The front never reaches over a page's begin: entries begin at a multiple of their size, which is more.
const _: () = assert!(COLUMN_FRONT_BYTES < KEY_ENTRY_BYTES && PAGE_BYTES.is_multiple_of(KEY_ENTRY_BYTES));

/// One write.
pub struct Put {
    /// Offset from the slot's begin, a multiple of [`PAGE_BYTES`].
    pub at: usize,
    /// What.
    pub bytes: Bytes,
}

/// What was flushed of an open segment so far.
#[derive(Default)]
pub struct Flushed {
    number: u64,
    packets: u32,
    block_bytes: u32,
    file_losses: FileLosses,
    running: Running,
    records: [Option<[u8; RECORD_BYTES]>; 2],
}

/// A closed segment on its way to the disk.
pub struct Closed {
    /// What is written.
    pub puts: Vec<Put>,
    /// Its foot.
    pub foot: Foot,
    /// Its hash.
    pub hash: Hash,
}

impl Flushed {
    /// Packets that were flushed.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Bytes of their blocks.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The next flush of the segment, up to `committed`: what it writes. `None`: nothing is new.
    pub fn flush(&mut self, segment: &Outgoing, committed: Committed) -> Option<Vec<Put>> {
        let foot = segment.foot(committed)?;
        if committed.packets == self.packets && foot.file_losses == self.file_losses {
            return None;
        }
        let (from, to) = (self.block_bytes as usize, foot.block_bytes as usize);
        let entries = entries_from(segment, foot.packets)..entries_from(segment, self.packets);
        self.running.add(segment.stretch(from..to), segment.stretch(entries.clone()));
        self.number += 1;
        self.file_losses = foot.file_losses;
        (self.packets, self.block_bytes) = (foot.packets, foot.block_bytes);
        let record = Record {
            number: self.number,
            packets: foot.packets,
            block_bytes: foot.block_bytes,
            constants: record::constants(&foot),
            hashes: self.running.hashes(),
            left_out: foot.left_out,
        };
        self.records[(self.number % 2) as usize] = Some(record.to_bytes());
        let mut puts = Vec::new();
        let mut ring = |range: Range<usize>| {
            if !range.is_empty() {
                puts.push(Put { at: range.start, bytes: lend(segment, range) });
            }
        };
        ring(page_of(from)..page_of(to));
        let column_page = page_of(entries.start - COLUMN_FRONT_BYTES);
        ring(column_page + PAGE_BYTES..entries.end.next_multiple_of(PAGE_BYTES));
        let edge = page_of(to)..page_of(to + 7) + PAGE_BYTES; // the padding's type and length
        let column = column_page..column_page + PAGE_BYTES;
        if edge.end >= column.start {
            puts.push(compose(segment, edge.start..column.end, &foot));
        } else {
            puts.push(compose(segment, edge, &foot));
            puts.push(compose(segment, column, &foot));
        }
        let mut page = Pages::zeroed(1);
        foot.write(&mut page.as_mut_slice()[..FOOT_BYTES - 4]);
        page.as_mut_slice()[FOOT_BYTES - 4..].copy_from_slice(&column_bytes(foot.packets).to_le_bytes());
        self.add_records(page.as_mut_slice());
        puts.push(Put { at: segment.segment_bytes() - FOOT_BYTES, bytes: Bytes::Own(page) });
        Some(puts)
    }

    fn add_records(&self, foot_page: &mut [u8]) {
        for (at, record) in FLUSH_AT.into_iter().zip(&self.records) {
            if let Some(record) = record {
                foot_page[at..at + RECORD_BYTES].copy_from_slice(record);
            }
        }
    }
}

/// Closes a sealed segment, of which that was flushed: what is left to write, its foot with the checks last.
/// `None`: it isn't sealed, or says nothing.
pub fn close(flushed: Option<&Flushed>, segment: &Outgoing) -> Option<Closed> {
    let (body, tail) = segment.whole()?.split_at(segment.segment_bytes() - FOOT_BYTES);
    let foot = segment.sealed_foot()?;
    let mut page = Pages::zeroed(1);
    page.as_mut_slice().copy_from_slice(tail);
    if segment.is_composed() {
        foot.write(&mut page.as_mut_slice()[..FOOT_BYTES - 4]);
    }
    let mut range = 0..body.len();
    if let Some(flushed) = flushed {
        flushed.add_records(page.as_mut_slice());
        let entries_end = entries_from(segment, flushed.packets).next_multiple_of(PAGE_BYTES);
        range = page_of(flushed.block_bytes as usize)..entries_end;
    }
    let hash = checks::seal(body, page.as_mut_slice());
    let mut puts = Vec::new();
    if !range.is_empty() {
        puts.push(Put { at: range.start, bytes: lend(segment, range) });
    }
    puts.push(Put { at: body.len(), bytes: Bytes::Own(page) });
    Some(Closed { puts, foot, hash })
}

/// A slot that holds nothing: one padding block over all of it.
pub fn empty(segment_bytes: usize) -> Put {
    let mut pages = Pages::zeroed(segment_bytes / PAGE_BYTES);
    pcapng::padding(pages.as_mut_slice());
    Put { at: 0, bytes: Bytes::Own(pages) }
}

/// A range of the ring's memory, held until it is written; a copy where the segment has as many holds as can
/// be counted.
fn lend(segment: &Outgoing, range: Range<usize>) -> Bytes {
    match segment.hold() {
        Some(pinned) => Bytes::Ring(pinned, range),
        None => {
            let mut pages = Pages::zeroed(range.len() / PAGE_BYTES);
            pages.as_mut_slice().copy_from_slice(segment.stretch(range));
            Bytes::Own(pages)
        }
    }
}

/// Pages `range` of the open segment as they would be if it ended here: last blocks, padding, the column's
/// head, newest entries; each as far as it lies in them.
fn compose(segment: &Outgoing, range: Range<usize>, foot: &Foot) -> Put {
    let mut pages = Pages::zeroed(range.len() / PAGE_BYTES);
    let mut lay = |at: usize, bytes: &[u8]| {
        let (from, to) = (at.max(range.start), (at + bytes.len()).min(range.end));
        if from < to {
            pages.as_mut_slice()[from - range.start..to - range.start]
                .copy_from_slice(&bytes[from - at..to - at]);
        }
    };
    let blocks_end = foot.block_bytes as usize;
    let entries_at = entries_from(segment, foot.packets);
    let head_at = entries_at - 8;
    let padding_bytes = ((head_at - blocks_end) as u32).to_le_bytes();
    if range.start < blocks_end {
        lay(range.start, segment.stretch(range.start..blocks_end));
    }
    lay(blocks_end, &pcapng::PADDING.to_le_bytes());
    lay(blocks_end + 4, &padding_bytes);
    lay(head_at - 4, &padding_bytes);
    lay(head_at, &pcapng::KEY_COLUMN.to_le_bytes());
    lay(head_at + 4, &column_bytes(foot.packets).to_le_bytes());
    if entries_at < range.end {
        lay(entries_at, segment.stretch(entries_at..range.end));
    }
    Put { at: range.start, bytes: Bytes::Own(pages) }
}

/// Where the entries of the first `packets` packets begin.
fn entries_from(segment: &Outgoing, packets: u32) -> usize {
    segment.segment_bytes() - FOOT_BYTES - packets as usize * KEY_ENTRY_BYTES
}

/// Length of the key column block.
fn column_bytes(packets: u32) -> u32 {
    8 + packets * KEY_ENTRY_BYTES as u32 + FOOT_BYTES as u32
}

/// Begin of the page in which byte `at` lies.
fn page_of(at: usize) -> usize {
    at / PAGE_BYTES * PAGE_BYTES
}
