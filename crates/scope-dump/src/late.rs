//! Late packets of a dump: kept aside on disk, and merged in when the window is
//! over.
//!
//! ```text
//!  main run   written in order ................................... file A
//!  late run   packets as they came, and what is full of their index, sorted ... file B
//!             packet | packet | ... | chunk of the index | packet | ...
//!  at the end, only if B has packets: A and B in order  ─────► file C, which replaces A
//! ```
//! Of the index at most [`CHUNK_ENTRIES`] entries are in memory, and no more than its part of what all dumps
//! may buffer ([`crate::buffers`]); while it is merged, [`READ_ENTRIES`] of each chunk. A file with more
//! interfaces than its head has room for is rewritten in the same way.

use crate::buffers::{BUFFER_BYTES_MIN, Part};
use crate::form::DumpFormat;
use crate::merge::Position;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Position, offset and length of a late packet.
type Entry = (Position, u64, u32);

/// Entries of the index in memory; when there are so many they are sorted and written behind the packets.
const CHUNK_ENTRIES: usize = 65_536;
/// Entries of a chunk that are read at once.
const READ_ENTRIES: usize = 128;
/// An entry as it is written, little-endian: 0 time | 8 lane | 12 length | 16 number in the lane | 24 offset.
const ENTRY_BYTES: usize = 32;

/// The late run of one output file.
pub(crate) struct LateRun {
    file: BufWriter<File>,
    /// What is not written yet.
    index: Vec<Entry>,
    /// Where the written chunks begin, and their entries.
    chunks: Vec<(u64, usize)>,
    chunk_entries: usize,
    bytes: u64,
    /// What the index may have.
    part: Part,
}

impl LateRun {
    pub(crate) fn new(file: File, part: Part) -> LateRun {
        LateRun::with_chunks_of(CHUNK_ENTRIES, file, part)
    }

    fn with_chunks_of(chunk_entries: usize, file: File, part: Part) -> LateRun {
        LateRun {
            file: BufWriter::new(file),
            index: Vec::new(),
            chunks: Vec::new(),
            chunk_entries,
            bytes: 0,
            part,
        }
    }

    /// Makes room for one more entry of the index in memory; whether there is none, so that a chunk is to be
    /// written.
    fn is_full(&mut self) -> bool {
        let (len, entry_bytes) = (self.index.len(), size_of::<Entry>());
        if len < self.index.capacity() {
            return len >= self.chunk_entries;
        }
        let entries_max = (self.part.share() / entry_bytes).min(self.chunk_entries);
        let target = (2 * len).max(BUFFER_BYTES_MIN / entry_bytes).min(entries_max);
        if target <= len || !self.part.resize(target * entry_bytes) {
            return true;
        }
        self.index.reserve_exact(target - len);
        false
    }

    /// Bytes that [`LateRun::push`] writes for a packet of `len` bytes.
    pub(crate) fn bytes_for(&mut self, len: usize) -> u64 {
        let index = if self.is_full() { self.index.len() * ENTRY_BYTES } else { 0 };
        (index + len) as u64
    }

    /// Adds one packet in the form that its file has.
    pub(crate) fn push(&mut self, position: Position, block: &[u8]) -> io::Result<()> {
        if self.is_full() {
            self.write_chunk()?;
            self.is_full(); // makes the room
        }
        self.file.write_all(block)?;
        self.index.push((position, self.bytes, block.len() as u32));
        self.bytes += block.len() as u64;
        Ok(())
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        self.index.sort_unstable();
        let entries = self.index.len();
        for entry in self.index.drain(..) {
            self.file.write_all(&to_bytes(&entry))?;
        }
        self.chunks.push((self.bytes, entries));
        self.bytes += (entries * ENTRY_BYTES) as u64;
        if self.index.capacity() * size_of::<Entry>() > self.part.share() {
            self.index = Vec::new();
            self.part.resize(0);
        }
        Ok(())
    }

    /// Its packets in order.
    fn sorted(mut self) -> io::Result<Sorted> {
        self.index.sort_unstable();
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        let written = self.chunks.into_iter().map(|(at, left)| Chunk { at, left, read: VecDeque::new() });
        let rest = Chunk { at: 0, left: 0, read: self.index.into() };
        let mut sorted = Sorted {
            file,
            chunks: written.chain([rest]).collect(),
            next: BinaryHeap::new(),
            _part: self.part,
        };
        for number in 0..sorted.chunks.len() {
            sorted.take_from(number)?;
        }
        Ok(sorted)
    }
}

fn to_bytes((position, at, len): &Entry) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..8].copy_from_slice(&position.time_ns.to_le_bytes());
    bytes[8..12].copy_from_slice(&position.lane.to_le_bytes());
    bytes[12..16].copy_from_slice(&len.to_le_bytes());
    bytes[16..24].copy_from_slice(&position.packet.to_le_bytes());
    bytes[24..].copy_from_slice(&at.to_le_bytes());
    bytes
}

fn of_bytes(bytes: &[u8; ENTRY_BYTES]) -> Entry {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    (Position { time_ns: long(0) as i64, lane: word(8), packet: long(16) }, long(24), word(12))
}

/// One sorted part of the index: what is read of it, and where the rest stands.
struct Chunk {
    at: u64,
    left: usize,
    read: VecDeque<Entry>,
}

/// Late packets in order of their positions.
struct Sorted {
    file: File,
    chunks: Vec<Chunk>,
    /// The next entry of each chunk that has one.
    next: BinaryHeap<Reverse<(Entry, usize)>>,
    /// What the rest of the index has.
    _part: Part,
}

impl Sorted {
    /// The next packet, if its time is before `time_ns` (`None`: whatever its time).
    fn next_before(&mut self, time_ns: Option<i64>) -> io::Result<Option<Vec<u8>>> {
        let Some(&Reverse(((position, at, len), number))) = self.next.peek() else { return Ok(None) };
        if time_ns.is_some_and(|time_ns| position.time_ns >= time_ns) {
            return Ok(None);
        }
        self.next.pop();
        self.take_from(number)?;
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(Some(bytes))
    }

    /// Puts a chunk's next entry among the next ones.
    fn take_from(&mut self, number: usize) -> io::Result<()> {
        let chunk = &mut self.chunks[number];
        if chunk.read.is_empty() {
            let mut bytes = vec![0; chunk.left.min(READ_ENTRIES) * ENTRY_BYTES];
            self.file.read_exact_at(&mut bytes, chunk.at)?;
            chunk.at += bytes.len() as u64;
            chunk.left -= bytes.len() / ENTRY_BYTES;
            chunk.read.extend(bytes.as_chunks().0.iter().map(of_bytes));
        }
        self.next.extend(chunk.read.pop_front().map(|entry| Reverse((entry, number))));
        Ok(())
    }
}

/// Writes `main`, whose first `head.0` bytes are its head, and the late packets to `out`, merged by time. At
/// equal times the main run goes first: it was read first. The head becomes `head.1` bytes long; what it
/// holds is filled in later, or copied where its length stays. Interface descriptions that stand among the
/// packets are omitted: the head has them. `main` is read `buffer_bytes` at a time.
pub(crate) fn rewrite(
    main: &mut File,
    late: Option<LateRun>,
    format: DumpFormat,
    head: (u64, u64),
    buffer_bytes: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut late = late.map(LateRun::sorted).transpose()?;
    let mut block = Vec::new();
    main.seek(SeekFrom::Start(0))?;
    let mut main = io::BufReader::with_capacity(buffer_bytes, main);
    io::copy(&mut (&mut main).take(head.0), out)?;
    io::copy(&mut io::repeat(0).take(head.1.saturating_sub(head.0)), out)?;
    loop {
        let time_ns = format.read(&mut main, &mut block)?;
        while let Some(packet) = late.as_mut().map_or(Ok(None), |late| late.next_before(time_ns))? {
            out.write_all(&packet)?;
        }
        if time_ns.is_none() {
            return Ok(());
        }
        if !format.is_description(&block) {
            out.write_all(&block)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    proptest! {
        #[test]
        fn late_packets_come_in_the_order_of_their_places_however_small_the_index_in_memory(
            positions in proptest::collection::vec((0i64..40, 0u32..3, 0usize..9), 0..600), chunk_entries in 1usize..200,
            stops in proptest::collection::vec(0i64..40, 0..6)) {
            let mut run = LateRun::with_chunks_of(chunk_entries, tempfile::tempfile().unwrap(), Part::of(&Arc::default()));
            let mut expected = Vec::new();
            let mut charged = 0;
            for (number, (time_ns, lane, len)) in positions.into_iter().enumerate() {
                let position = Position { time_ns, lane, packet: number as u64 };
                let block: Vec<u8> = (0..len).map(|n| (number + n) as u8).collect();
                charged += run.bytes_for(len);
                run.push(position, &block).unwrap();
                prop_assert!(run.index.len() <= chunk_entries);
                expected.push((position, block));
            }
            prop_assert_eq!(charged, run.bytes);
            expected.sort();
            let mut sorted = run.sorted().unwrap();
            let mut expected = expected.into_iter().peekable();
            for stop in stops.into_iter().map(Some).chain([None]) {
                while let Some(packet) = sorted.next_before(stop).unwrap() {
                    let (position, block) = expected.next().unwrap();
                    prop_assert!(stop.is_none_or(|stop| position.time_ns < stop));
                    prop_assert_eq!(packet, block);
                }
                prop_assert!(expected.peek().is_none_or(|(position, _)| stop.is_some_and(|stop| position.time_ns >= stop)));
            }
        }
    }
}
