//! A store file that is read: its head, what it has of segments, and each of them on request.
//!
//! ```text
//! closed      head ─► index at the end, which has the facts of all segments
//! not closed  head ─► the foot of each slot: what is closed has a foot that its checksum proves
//! older       head without a head block ─► the size from the first column ─► the foot of each segment
//! ```
//! It takes no lock and changes nothing; several threads may read segments of one file at once.

use crate::checks::{self, Damage, Hash};
use crate::head::{HEAD_BYTES_MAX, Head, HeadError};
use crate::index::{self, Entry, IndexError};
use crate::segment::{SegmentFault, StoredSegment, foot_of};
use crate::unread::unread;
use scope_fault::Fault;
use scope_packet::pcapng::{BLOCK_BYTES_MIN, KEY_COLUMN, PADDING, le32};
use scope_packet::segment::{FOOT_BYTES, Foot, SEGMENT_BYTES_MAX, is_segment_size};
use scope_ring::Summary;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The head is looked for in so many bytes first.
const HEAD_BYTES_FIRST: usize = 64 << 10;

/// Why a file can't be read as one of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// The system's own words.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Of its head.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// Of the segment that begins at this offset.
    #[error("the segment at byte {0}: {1}")]
    Segment(u64, SegmentFault),
    /// The segment at this offset is another one than the index, or its foot when the file was opened, says.
    #[error("the segment at byte {0} is another one than was noted of it")]
    Other(u64),
    /// Another run, link type or number wrote it than its name says.
    #[error("its head is of another file than its name says: it was renamed, or exchanged with another one")]
    Misnamed,
    /// A packet of the segment at this offset has an interface that the head doesn't describe.
    #[error("the segment at byte {0} has a packet of interface {1}, which the head doesn't describe")]
    Interface(u64, u32),
}

impl StoredError {
    /// As a fault of the file at `path`.
    pub fn fault(&self, path: &Path) -> Fault {
        match self {
            StoredError::Io(error) => unread(path, error),
            cause => Fault::of_thing(path.to_string_lossy()).cause(cause.to_string()),
        }
    }
}

/// In which state a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It ends in an index: it is whole, and never changes.
    Closed,
    /// It has no index that can be read: it grows, its run died, its end is gone, or the index is damaged.
    Unclosed(IndexError),
    /// From before there were head blocks, checks and indexes.
    Older,
}

/// What is known of a segment before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Where it begins in the file, bytes.
    pub offset: u64,
    /// Its foot.
    pub foot: Foot,
    /// Its hash; [`Hash::NONE`] in a file from before there were any.
    pub hash: Hash,
    /// What lets a search skip it; from the index only.
    pub summary: Option<Summary>,
}

/// A store file, open for reading.
pub struct StoredFile {
    file: File,
    bytes: u64,
    head: Head,
    head_bytes: u64,
    segment_bytes: usize,
    state: State,
    segments: Vec<Facts>,
    unread: Vec<u64>,
    /// Where segments end: at the index, or where the last whole slot does.
    segments_end: u64,
}

impl StoredFile {
    /// Reads head and index, or where there is no index the foot of each slot.
    pub fn open(file: File) -> Result<StoredFile, StoredError> {
        let bytes = file.metadata()?.len();
        let (head, head_bytes) = read_head(&file, bytes)?;
        let segment_bytes = match head.has_block() {
            true => head.segment_bytes as usize,
            false => first_segment_bytes(&file, head_bytes, bytes)?,
        };
        let (state, segments, segments_end) = match read_index(&file, head_bytes, segment_bytes, bytes)? {
            Err(IndexError::None) if !head.has_block() => (State::Older, Vec::new(), bytes),
            _ if !head.has_block() => {
                return Err(HeadError::Damaged("the file has an index and no head block").into());
            }
            Ok((entries, from)) => (State::Closed, entries.into_iter().map(Facts::from).collect(), from),
            Err(cause) => (State::Unclosed(cause), Vec::new(), bytes),
        };
        let unread = Vec::new();
        let mut stored = StoredFile {
            file,
            bytes,
            head,
            head_bytes,
            segment_bytes,
            state,
            segments,
            unread,
            segments_end,
        };
        if state != State::Closed {
            stored.walk()?;
        }
        Ok(stored)
    }

    /// Notes the feet of all slots.
    fn walk(&mut self) -> io::Result<()> {
        let mut foot_page = [0; FOOT_BYTES];
        let mut offset = self.head_bytes;
        while self.segment_bytes != 0 && offset + self.segment_bytes as u64 <= self.bytes {
            self.file.read_exact_at(&mut foot_page, offset + (self.segment_bytes - FOOT_BYTES) as u64)?;
            let whole = self.state == State::Older || checks::foot_is_whole(&foot_page, self.segment_bytes);
            match foot_of(&foot_page, self.segment_bytes) {
                Ok(foot) if whole => {
                    let hash = checks::stored_hash(&foot_page);
                    self.segments.push(Facts { offset, foot, hash, summary: None });
                }
                _ => self.unread.push(offset),
            }
            offset += self.segment_bytes as u64;
        }
        self.segments_end = offset;
        Ok(())
    }

    /// What the head says.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Bytes of the head: where the first slot begins.
    pub fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    /// Bytes of the file, when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size of its segments, bytes; 0 in an older file that has none.
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// In which state it was found.
    pub fn state(&self) -> State {
        self.state
    }

    /// All closed segments that are known, in the order of the file.
    pub fn segments(&self) -> &[Facts] {
        &self.segments
    }

    /// Where slots begin that have no closed segment, of a file that isn't closed: open, torn or damaged.
    pub fn unread(&self) -> &[u64] {
        &self.unread
    }

    /// What of the file, between its head and its index, belongs to no segment and no slot: of a closed file
    /// the slots that were left out, each one padding block, else what is behind the last whole slot.
    pub fn holes(&self) -> Vec<Range<u64>> {
        let slot = self.segment_bytes as u64;
        let taken = self.segments.iter().map(|facts| facts.offset).chain(self.unread.iter().copied());
        let mut taken: Vec<u64> = taken.collect();
        taken.sort_unstable();
        let end = if self.state == State::Closed { self.segments_end } else { self.bytes };
        let mut holes = Vec::new();
        let mut at = self.head_bytes;
        for offset in taken.into_iter().chain([end]) {
            if at < offset {
                holes.push(at..offset);
            }
            at = offset + slot;
        }
        holes
    }

    /// Whether a hole is what it has to be: padding blocks of zeros, one for each slot.
    pub fn hole_is_padding(&self, hole: &Range<u64>) -> io::Result<bool> {
        let mut slot = vec![0; self.segment_bytes];
        let mut at = hole.start;
        while at < hole.end {
            let total = (hole.end - at).min(slot.len() as u64) as usize;
            let slot = &mut slot[..total];
            self.file.read_exact_at(slot, at)?;
            let whole = total >= BLOCK_BYTES_MIN
                && le32(slot, 0) == PADDING
                && [le32(slot, 4), le32(slot, total - 4)] == [total as u32; 2]
                && slot[8..total - 4].iter().all(|&byte| byte == 0);
            if !whole {
                return Ok(false);
            }
            at += total as u64;
        }
        Ok(true)
    }

    /// Reads segment `index` of [`StoredFile::segments`] (it must be one) into `into`, and looks through it:
    /// what is returned is what was written, and what was noted of it.
    pub fn read_segment<'a>(
        &self,
        index: usize,
        into: &'a mut Vec<u8>,
    ) -> Result<StoredSegment<'a>, StoredError> {
        let facts = &self.segments[index];
        self.read_slot(facts.offset, into)?;
        let segment = StoredSegment::new(into).map_err(|fault| StoredError::Segment(facts.offset, fault))?;
        if self.head.has_block() && segment.hash() == Hash::NONE {
            return Err(StoredError::Segment(facts.offset, SegmentFault::Damaged(Damage::NoChecks)));
        }
        let same = *segment.foot() == facts.foot && segment.hash() == facts.hash;
        if !same || segment.foot().link_type != self.head.link_type {
            return Err(StoredError::Other(facts.offset));
        }
        let interfaces = self.head.interfaces.len() as u32;
        match segment.interface_max() {
            Some(number) if number >= interfaces => Err(StoredError::Interface(facts.offset, number)),
            _ => Ok(segment),
        }
    }

    /// Reads the bytes of the slot at `offset` as they stand there.
    pub fn read_slot(&self, offset: u64, into: &mut Vec<u8>) -> io::Result<()> {
        into.resize(self.segment_bytes, 0);
        self.file.read_exact_at(into, offset)
    }
}

impl From<Entry> for Facts {
    fn from(entry: Entry) -> Facts {
        Facts { offset: entry.offset, foot: entry.foot, hash: entry.hash, summary: Some(entry.summary) }
    }
}

/// Reads the head, in as many bytes as it takes.
fn read_head(file: &File, bytes: u64) -> Result<(Head, u64), StoredError> {
    let mut first = HEAD_BYTES_FIRST;
    loop {
        let mut start = vec![0; bytes.min(first as u64) as usize];
        file.read_exact_at(&mut start, 0)?;
        let more = start.len() < bytes.min(HEAD_BYTES_MAX as u64) as usize;
        match Head::read(&start) {
            Err(HeadError::Incomplete) if more => first *= 4,
            Ok((head, end)) if more && end == start.len() && !head.has_block() => first *= 4,
            Ok((head, end)) => return Ok((head, end as u64)),
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// The size of the first segment of a file without a head block; 0 where there is none.
fn first_segment_bytes(file: &File, from: u64, bytes: u64) -> Result<usize, StoredError> {
    let mut first = vec![0; (bytes - from).min(SEGMENT_BYTES_MAX as u64) as usize];
    file.read_exact_at(&mut first, from)?;
    let mut at = 0;
    while let Some(rest) = first.get(at..).filter(|rest| rest.len() >= BLOCK_BYTES_MIN) {
        let (kind, total) = (le32(rest, 0), le32(rest, 4) as usize);
        if !total.is_multiple_of(4) || total < BLOCK_BYTES_MIN || total > rest.len() {
            break;
        }
        at += total;
        match kind {
            KEY_COLUMN if is_segment_size(at) => return Ok(at),
            KEY_COLUMN => break,
            _ => {}
        }
    }
    match first.is_empty() {
        true => Ok(0),
        false => Err(HeadError::Foreign { what: "no segment begins", at: from as usize }.into()),
    }
}

/// The entries of the index and where it begins; or what is wrong with it.
fn read_index(
    file: &File,
    head: u64,
    segment: usize,
    bytes: u64,
) -> io::Result<Result<(Vec<Entry>, u64), IndexError>> {
    let read = |offset: u64, into: &mut [u8]| file.read_exact_at(into, offset);
    let (entries, end) = match index::read_from_end(head..bytes, read)? {
        Ok(read) => read,
        Err(cause) => return Ok(Err(cause)),
    };
    let mut at = head;
    for entry in &entries {
        let next = entry.offset.checked_add(segment as u64).filter(|&next| entry.offset >= at && next <= end);
        match next {
            Some(next) if (entry.offset - head).is_multiple_of(segment as u64) => at = next,
            _ => return Ok(Err(IndexError::Damaged("a segment lies where none can"))),
        }
    }
    Ok(Ok((entries, end)))
}
