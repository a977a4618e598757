//! A store file that is read: its head, what it has of segments, and each of them on request.
//!
//! ```text
//! closed      head ─► index at the end, which has the facts of all segments
//! not closed  head ─► the foot of each slot: what is closed has a foot that its checksum proves
//! older       head without a head block ─► the size from the first column ─► the foot of each segment
//! headless    head is damaged ─► index at the end or first foot ─► run, link type, size, place of the slots
//! ```
//! It takes no lock and changes nothing; several threads may read segments of one file at once.

use crate::checks::{self, Damage, Hash};
use crate::fetch::read_what_can_be;
use crate::head::{HEAD_ALIGN, HEAD_BYTES_MAX, Head, HeadError};
use crate::index::{self, IndexError, Search};
use crate::segment::{SegmentFault, StoredSegment, foot_of};
use crate::unread::unread;
use scope_fault::Fault;
use scope_packet::LinkType;
use scope_packet::pcapng::{BLOCK_BYTES_MIN, KEY_COLUMN, PADDING, le32};
use scope_packet::segment::{FOOT_BYTES, Foot, SEGMENT_BYTES_MAX, is_segment_size};
use scope_ring::{KeyTest, Summary};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Without a head, a foot is looked for in so many bytes: those of the largest segment, behind a head of the
/// same length.
const LOOKED_AT_MAX: u64 = 4 << 20;
/// The head is looked for in so many bytes first.
const HEAD_BYTES_FIRST: usize = 8 << 10;

/// Which keys are searched for among packets of a link type.
pub type Keys<'a> = &'a (dyn Fn(LinkType) -> KeyTest + Sync);

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

/// What is wrong with the head of a file whose segments are read all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadDamage {
    /// Why it can't be read.
    pub cause: HeadError,
    /// The first place that is changed, where what it said is known all the same; `None`: only run, link type and
    /// segment size are known, from the segments.
    pub mended_at: Option<usize>,
}

/// For example `the head is damaged: its checksum differs; its segments are read all the same`.
impl fmt::Display for HeadDamage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            HeadError::Foreign { what, at } => write!(out, "the head is damaged: {what} at byte {at}")?,
            HeadError::Newer(version) => write!(out, "the head is damaged: it says version {version}")?,
            cause => write!(out, "{cause}")?,
        }
        match self.mended_at {
            Some(at) => write!(out, ", by what is changed at byte {at}; what it said is known"),
            None => write!(out, "; its segments are read all the same"),
        }
    }
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
    /// What lets a search skip it; from the index only, and not where the file was opened for a search.
    pub summary: Option<Summary>,
    /// Whether a packet that is searched for may be in it, where the file was opened for a search.
    pub may_match: bool,
}

/// What an index is read for.
enum Reading<'a> {
    /// All that it says.
    Whole,
    /// What may match, with memory for its blocks.
    Search(Keys<'a>, &'a mut Vec<u8>),
}

/// A store file, open for reading.
pub struct StoredFile {
    file: File,
    bytes: u64,
    head: Head,
    head_bytes: u64,
    head_damage: Option<HeadDamage>,
    segment_bytes: usize,
    state: State,
    segments: Vec<Facts>,
    unread: Vec<u64>,
    index_read_bytes: u64,
    /// Where segments end: at the index, or where the last whole slot does.
    segments_end: u64,
}

impl StoredFile {
    /// Reads head and index, or where there is no index the foot of each slot.
    pub fn open(file: File) -> Result<StoredFile, StoredError> {
        StoredFile::read(file, Reading::Whole)
    }

    /// The same for a search: what summaries say of its keys is kept in their place. Index blocks are read into
    /// `buffer`.
    pub fn open_for(file: File, keys: Keys<'_>, buffer: &mut Vec<u8>) -> Result<StoredFile, StoredError> {
        StoredFile::read(file, Reading::Search(keys, buffer))
    }

    fn read(file: File, reading: Reading<'_>) -> Result<StoredFile, StoredError> {
        let bytes = file.metadata()?.len();
        let (head, head_bytes, head_damage) = match read_head(&file, bytes) {
            Ok((head, end)) if head.has_block() || !has_index(&file, bytes)? => (head, end, None),
            read => {
                let cause = match read {
                    Ok(_) => HeadError::Damaged("the file has an index and no head block"),
                    Err(StoredError::Head(cause)) => cause,
                    Err(cause) => return Err(cause),
                };
                match instead_of_head(&file, bytes)? {
                    // A head of a later version is what it says, unless its bytes were once those of this one.
                    Some((_, _, None)) if matches!(cause, HeadError::Newer(_)) => return Err(cause.into()),
                    Some((head, end, mended_at)) => (head, end, Some(HeadDamage { cause, mended_at })),
                    None => return Err(cause.into()),
                }
            }
        };
        let segment_bytes = match head.has_block() {
            true => head.segment_bytes as usize,
            false => first_segment_bytes(&file, head_bytes, bytes)?,
        };
        let index = read_index(&file, (head_bytes, segment_bytes), bytes, head.link_type, reading)?;
        let (state, segments, segments_end, index_read_bytes) = match index {
            _ if !head.has_block() => (State::Older, Vec::new(), bytes, 0),
            Ok(Index { segments, from, read_bytes }) => (State::Closed, segments, from, read_bytes),
            Err(cause) => (State::Unclosed(cause), Vec::new(), bytes, 0),
        };
        let unread = Vec::new();
        let mut stored = StoredFile {
            file,
            bytes,
            head,
            head_bytes,
            head_damage,
            segment_bytes,
            state,
            segments,
            unread,
            index_read_bytes,
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
            read_what_can_be(&self.file, offset + (self.segment_bytes - FOOT_BYTES) as u64, &mut foot_page)?;
            let whole = self.state == State::Older || checks::foot_is_whole(&foot_page, self.segment_bytes);
            match foot_of(&foot_page, self.segment_bytes) {
                Ok(foot) if whole => {
                    let hash = checks::stored_hash(&foot_page);
                    self.segments.push(Facts { offset, foot, hash, summary: None, may_match: true });
                }
                _ => self.unread.push(offset),
            }
            offset += self.segment_bytes as u64;
        }
        self.segments_end = offset;
        Ok(())
    }

    /// What is wrong with the head.
    pub fn head_damage(&self) -> Option<&HeadDamage> {
        self.head_damage.as_ref()
    }

    /// Whether all that [`StoredFile::head`] has is known: else run, link type and segment size only.
    pub fn knows_head(&self) -> bool {
        self.head_damage.as_ref().is_none_or(|damage| damage.mended_at.is_some())
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

    /// Bytes of its index that were read.
    pub fn index_read_bytes(&self) -> u64 {
        self.index_read_bytes
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
            read_what_can_be(&self.file, at, slot)?;
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
            Some(number) if number >= interfaces && self.knows_head() => {
                Err(StoredError::Interface(facts.offset, number))
            }
            _ => Ok(segment),
        }
    }

    /// Reads the bytes of the slot at `offset` as they stand there.
    pub fn read_slot(&self, offset: u64, into: &mut Vec<u8>) -> io::Result<()> {
        into.resize(self.segment_bytes, 0);
        read_what_can_be(&self.file, offset, into)
    }
}

/// Reads the head, in as many bytes as it takes.
fn read_head(file: &File, bytes: u64) -> Result<(Head, u64), StoredError> {
    let mut first = HEAD_BYTES_FIRST;
    loop {
        let mut start = vec![0; bytes.min(first as u64) as usize];
        read_what_can_be(file, 0, &mut start)?;
        let more = start.len() < bytes.min(HEAD_BYTES_MAX as u64) as usize;
        match Head::read(&start) {
            Err(HeadError::Incomplete) if more => first *= 4,
            Ok((head, end)) if more && end == start.len() && !head.has_block() => first *= 4,
            Ok((head, end)) => return Ok((head, end as u64)),
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// The head of a file, which must be whole and have a head block.
///
/// # Errors
/// The system's, and whatever else it is.
pub(crate) fn head_of(file: &File) -> Result<Head, StoredError> {
    match read_head(file, file.metadata()?.len())? {
        (head, _) if head.has_block() => Ok(head),
        _ => Err(HeadError::Damaged("no head block").into()),
    }
}

/// Whether a file of which no head block was found ends in an index.
fn has_index(file: &File, bytes: u64) -> io::Result<bool> {
    let read = |offset: u64, into: &mut [u8]| read_what_can_be(file, offset, into);
    Ok(!matches!(index::read_from_end(0..bytes, read)?, Err(IndexError::None)))
}

/// What is known of a file whose head can't be read: a head, where it ends, and if all of it is known, the first
/// byte of it that is changed. `None`: nothing shows that it is a file of the store.
fn instead_of_head(file: &File, bytes: u64) -> io::Result<Option<(Head, u64, Option<usize>)>> {
    let read = |offset: u64, into: &mut [u8]| read_what_can_be(file, offset, into);
    let first = match index::read_from_end(0..bytes, read)? {
        Ok((entries, _)) => entries.into_iter().next().and_then(|entry| {
            let form = entry.summary.form();
            let is_size = |size: &usize| form.bytes_of(*size) == entry.summary.as_bytes().len();
            Some((entry.foot, segment_sizes().find(is_size)?, entry.offset))
        }),
        Err(_) => None,
    };
    let first = match first {
        Some(first) => Some(first),
        None => first_foot(file, bytes)?,
    };
    let align = HEAD_ALIGN as u64;
    let Some((foot, segment_bytes, offset)) =
        first.filter(|(_, _, offset)| *offset >= align && *offset <= bytes && offset.is_multiple_of(align))
    else {
        return Ok(None);
    };
    // In front of the first segment may be slots that were given up.
    let head_bytes = align + (offset - align) % segment_bytes as u64;
    let mut damaged = vec![0; head_bytes as usize];
    read_what_can_be(file, 0, &mut damaged)?;
    let mended = Head::mend(&damaged).filter(|(head, _)| {
        (head.run_id, head.link_type, head.segment_bytes as usize)
            == (foot.run_id, foot.link_type, segment_bytes)
    });
    if let Some((head, at)) = mended {
        return Ok(Some((head, head_bytes, Some(at))));
    }
    let head = Head {
        run_id: foot.run_id,
        volume: [0; 16],
        volumes: Vec::new(),
        number: 0,
        segment_bytes: segment_bytes as u32,
        link_type: foot.link_type,
        filter: String::new(),
        snap: 0,
        interfaces: Vec::new(),
    };
    Ok(Some((head, head_bytes, None)))
}

fn segment_sizes() -> impl Iterator<Item = usize> {
    (0..usize::BITS).map(|bit| 1 << bit).filter(|&bytes| is_segment_size(bytes))
}

/// The first segment with checks in its foot, its size, and where it begins. It lies near the begin, behind a
/// head of few pages.
fn first_foot(file: &File, bytes: u64) -> io::Result<Option<(Foot, usize, u64)>> {
    let mut page = [0; FOOT_BYTES];
    let mut at = 0;
    while at + FOOT_BYTES as u64 <= bytes.min(LOOKED_AT_MAX) {
        read_what_can_be(file, at, &mut page)?;
        let end = at + FOOT_BYTES as u64;
        let found = segment_sizes().find_map(|size| {
            let foot = foot_of(&page, size).ok().filter(|_| checks::foot_is_whole(&page, size))?;
            Some((foot, size, end.checked_sub(size as u64)?))
        });
        if found.is_some() {
            return Ok(found);
        }
        at = end;
    }
    Ok(None)
}

/// The size of the first segment of a file without a head block; 0 where there is none.
fn first_segment_bytes(file: &File, from: u64, bytes: u64) -> Result<usize, StoredError> {
    let mut first = vec![0; (bytes - from).min(SEGMENT_BYTES_MAX as u64) as usize];
    read_what_can_be(file, from, &mut first)?;
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

/// What the index says of the segments of a file.
struct Index {
    segments: Vec<Facts>,
    /// Where it begins.
    from: u64,
    /// Bytes of it that were read.
    read_bytes: u64,
}

/// What the index of a file says, the place of whose slots is given; or what is wrong with it.
fn read_index(
    file: &File,
    (head, segment): (u64, usize),
    bytes: u64,
    link_type: LinkType,
    reading: Reading<'_>,
) -> io::Result<Result<Index, IndexError>> {
    let read = |offset: u64, into: &mut [u8]| read_what_can_be(file, offset, into);
    let found = match reading {
        Reading::Whole => index::read_from_end(head..bytes, read)?.map(|(entries, from)| {
            let facts = |entry: index::Entry| {
                let index::Entry { offset, foot, hash, summary } = entry;
                Facts { offset, foot, hash, summary: Some(summary), may_match: true }
            };
            let segments = entries.into_iter().map(facts).collect();
            Index { segments, from, read_bytes: bytes - from }
        }),
        Reading::Search(keys, buffer) => {
            let found = index::search_from_end(head..bytes, &keys(link_type), buffer, read)?;
            found.map(|Search { segments, from, read_bytes }| {
                let segments = segments.into_iter().map(|one| Facts {
                    offset: one.offset,
                    foot: one.foot,
                    hash: one.hash,
                    summary: None,
                    may_match: one.may_match,
                });
                Index { segments: segments.collect(), from, read_bytes }
            })
        }
    };
    let index = match found {
        Ok(index) => index,
        Err(cause) => return Ok(Err(cause)),
    };
    let mut at = head;
    for one in &index.segments {
        let next = one.offset.checked_add(segment as u64);
        match next.filter(|&next| one.offset >= at && next <= index.from) {
            Some(next) if (one.offset - head).is_multiple_of(segment as u64) => at = next,
            _ => return Ok(Err(IndexError::Damaged("a segment lies where none can"))),
        }
    }
    Ok(Ok(index))
}
