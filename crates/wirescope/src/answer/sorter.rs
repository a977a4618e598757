//! Packets by time in bounded memory, in whatever order they come: what has no room goes in sorted runs into a
//! file, which is merged when it is read.
//!
//! ```text
//! memory   | packet | packet | ...      full: sorted, appended to the file as a run
//! file     | run 1 | run 2 | ... | run of runs | ...
//! packet   | time 8 | lane 4 | 0 4 | number 8 | its block, whose second word is its length |
//! ```
//! Of packets with the same time that of the lower lane comes first, of one lane the one that came first. When
//! there are [`RUNS_MAX`] runs these become one, so a merge reads from few places, and the file has every packet
//! twice at most until it holds `RUNS_MAX` times as many.

use scope_packet::pcapng::le32;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Runs that are merged at once.
const RUNS_MAX: usize = 128;
/// Bytes in front of a packet's block in the file.
const HEAD_BYTES: usize = 24;
/// What is read of a run at once.
const READ_BYTES: usize = 64 << 10;
/// What a packet in memory takes beside its block.
const ENTRY_BYTES: usize = size_of::<Entry>();

/// Where a packet stands in the order: time (ns), lane, number.
pub type Place = (i64, u32, u64);

/// A packet in memory.
#[derive(Clone, Copy)]
struct Entry {
    place: Place,
    at: usize,
    bytes: usize,
}

/// Takes packets in any order.
pub struct Sorter {
    memory_bytes: usize,
    file: File,
    file_bytes: u64,
    runs: Vec<Run>,
    entries: Vec<Entry>,
    blocks: Vec<u8>,
    packets: u64,
}

/// Where a run lies in the file.
#[derive(Clone, Copy, Debug)]
struct Run {
    from: u64,
    to: u64,
}

/// All packets, sorted: read as often as one likes.
pub struct Sorted {
    file: File,
    runs: Vec<Run>,
    entries: Vec<Entry>,
    blocks: Vec<u8>,
}

impl Sorter {
    /// With so much memory; what has no room there goes into `file`, which is empty, and nobody else's.
    pub fn new(memory_bytes: usize, file: File) -> Sorter {
        let (runs, entries, blocks) = (Vec::new(), Vec::new(), Vec::new());
        Sorter { memory_bytes, file, file_bytes: 0, runs, entries, blocks, packets: 0 }
    }

    /// Takes a copy of a packet's block.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn push(&mut self, time_ns: i64, lane: u32, block: &[u8]) -> io::Result<()> {
        let taken = self.blocks.len() + self.entries.len() * ENTRY_BYTES;
        if taken + block.len() + ENTRY_BYTES > self.memory_bytes && !self.entries.is_empty() {
            self.spill()?;
        }
        let place = (time_ns, lane, self.packets);
        self.packets += 1;
        self.entries.push(Entry { place, at: self.blocks.len(), bytes: block.len() });
        self.blocks.extend(block);
        Ok(())
    }

    /// Nothing more comes.
    pub fn finish(mut self) -> Arc<Sorted> {
        self.entries.sort_unstable_by_key(|entry| entry.place);
        let Sorter { file, runs, entries, blocks, .. } = self;
        Arc::new(Sorted { file, runs, entries, blocks })
    }

    fn spill(&mut self) -> io::Result<()> {
        self.entries.sort_unstable_by_key(|entry| entry.place);
        let mut run = Writing { file: &self.file, buffer: Vec::new(), at: self.file_bytes };
        for &Entry { place, at, bytes } in &self.entries {
            run.packet(place, &self.blocks[at..at + bytes])?;
        }
        self.end_run(run.finish()?);
        self.entries.clear();
        self.blocks.clear();
        if self.runs.len() < RUNS_MAX {
            return Ok(());
        }
        let mut all = Merge::new(&self.file, &self.runs)?;
        let mut run = Writing { file: &self.file, buffer: Vec::new(), at: self.file_bytes };
        while let Some((place, block)) = all.first() {
            run.packet(place, block)?;
            all.pop(&self.file)?;
        }
        let end = run.finish()?;
        self.runs.clear();
        self.end_run(end);
        Ok(())
    }

    fn end_run(&mut self, to: u64) {
        self.runs.push(Run { from: self.file_bytes, to });
        self.file_bytes = to;
    }
}

/// A run that is being written.
struct Writing<'a> {
    file: &'a File,
    buffer: Vec<u8>,
    at: u64,
}

impl Writing<'_> {
    fn packet(&mut self, (time_ns, lane, number): Place, block: &[u8]) -> io::Result<()> {
        self.buffer.extend(time_ns.to_le_bytes());
        self.buffer.extend(lane.to_le_bytes());
        self.buffer.extend([0; 4]);
        self.buffer.extend(number.to_le_bytes());
        self.buffer.extend(block);
        if self.buffer.len() < READ_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?; // always at its end: nobody moves it
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Where it ends.
    fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        Ok(self.at)
    }
}

/// A run that is being read.
struct Reading {
    at: u64,
    to: u64,
    buffer: Vec<u8>,
    /// Where its next packet lies in the buffer.
    next: usize,
}

impl Reading {
    /// Where its next packet stands; `None`: it has ended.
    fn place(&mut self, file: &File) -> io::Result<Option<Place>> {
        self.fill(file, HEAD_BYTES + 8)?;
        let Some(head) = self.buffer.get(self.next..self.next + HEAD_BYTES + 8) else { return Ok(None) };
        let block_bytes = le32(head, HEAD_BYTES + 4) as usize;
        let (low, high) = (le32(head, 0), le32(head, 4));
        let time_ns = (u64::from(low) | u64::from(high) << 32) as i64;
        let number = u64::from(le32(head, 16)) | u64::from(le32(head, 20)) << 32;
        let place = (time_ns, le32(head, 8), number);
        self.fill(file, HEAD_BYTES + block_bytes)?;
        match self.buffer.len() - self.next >= HEAD_BYTES + block_bytes {
            true => Ok(Some(place)),
            false => Err(io::Error::other("a temporary file ends early")),
        }
    }

    /// Reads on until so many bytes are there, or the run's last ones.
    fn fill(&mut self, file: &File, bytes: usize) -> io::Result<()> {
        if self.buffer.len() - self.next >= bytes || self.at == self.to {
            return Ok(());
        }
        self.buffer.drain(..self.next);
        self.next = 0;
        let more = bytes.saturating_sub(self.buffer.len()).max(READ_BYTES) as u64;
        let more = more.min(self.to - self.at) as usize;
        let from = self.buffer.len();
        self.buffer.resize(from + more, 0);
        file.read_exact_at(&mut self.buffer[from..], self.at)?;
        self.at += more as u64;
        Ok(())
    }

    fn block(&self) -> &[u8] {
        let block = &self.buffer[self.next + HEAD_BYTES..];
        &block[..le32(block, 4) as usize]
    }
}

/// Runs, merged.
struct Merge {
    runs: Vec<Reading>,
    heap: BinaryHeap<Reverse<(Place, usize)>>,
}

impl Merge {
    fn new(file: &File, runs: &[Run]) -> io::Result<Merge> {
        let reading = |run: &Run| Reading { at: run.from, to: run.to, buffer: Vec::new(), next: 0 };
        let mut merge = Merge { runs: runs.iter().map(reading).collect(), heap: BinaryHeap::new() };
        for (number, run) in merge.runs.iter_mut().enumerate() {
            merge.heap.extend(run.place(file)?.map(|place| Reverse((place, number))));
        }
        Ok(merge)
    }

    fn first(&self) -> Option<(Place, &[u8])> {
        let Reverse((place, run)) = self.heap.peek()?;
        Some((*place, self.runs[*run].block()))
    }

    fn pop(&mut self, file: &File) -> io::Result<()> {
        let Some(Reverse((_, number))) = self.heap.pop() else { return Ok(()) };
        let run = &mut self.runs[number];
        run.next += HEAD_BYTES + run.block().len();
        self.heap.extend(run.place(file)?.map(|place| Reverse((place, number))));
        Ok(())
    }
}

/// Goes through all packets once, by time.
pub struct Cursor {
    sorted: Arc<Sorted>,
    merge: Merge,
    /// The next one in memory.
    entry: usize,
}

impl Cursor {
    /// From the first one on.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn new(sorted: &Arc<Sorted>) -> io::Result<Cursor> {
        let merge = Merge::new(&sorted.file, &sorted.runs)?;
        Ok(Cursor { sorted: sorted.clone(), merge, entry: 0 })
    }

    /// The next packet.
    pub fn first(&self) -> Option<(Place, &[u8])> {
        let in_memory = self
            .sorted
            .entries
            .get(self.entry)
            .map(|entry| (entry.place, &self.sorted.blocks[entry.at..entry.at + entry.bytes]));
        match (in_memory, self.merge.first()) {
            (Some(one), Some(other)) => Some(if one.0 < other.0 { one } else { other }),
            (one, other) => one.or(other),
        }
    }

    /// Goes on behind it.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn pop(&mut self) -> io::Result<()> {
        let in_memory = self.sorted.entries.get(self.entry).map(|entry| entry.place);
        let in_file = self.merge.first().map(|(place, _)| place);
        match (in_memory, in_file) {
            (Some(one), other) if other.is_none_or(|other| one < other) => self.entry += 1,
            _ => self.merge.pop(&self.sorted.file)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scope_packet::pcapng::block;

    fn sorted(packets: &[(i64, u32, usize)], memory_bytes: usize) -> Vec<(i64, u32, Vec<u8>)> {
        let mut sorter = Sorter::new(memory_bytes, tempfile::tempfile().unwrap());
        for (number, &(time_ns, lane, len)) in packets.iter().enumerate() {
            let mut bytes = Vec::new();
            block(&mut bytes, 6, &vec![number as u8; len]);
            sorter.push(time_ns, lane, &bytes).unwrap();
        }
        let all = sorter.finish();
        let read = || {
            let (mut cursor, mut found) = (Cursor::new(&all).unwrap(), Vec::new());
            while let Some(((time_ns, lane, _), block)) = cursor.first() {
                found.push((time_ns, lane, block.to_vec()));
                cursor.pop().unwrap();
            }
            found
        };
        let first = read();
        assert_eq!(first, read(), "it can be read again");
        first
    }

    proptest! {
        #[test]
        fn they_come_by_time_and_lane_and_as_they_came_whatever_memory_there_is(
            packets in prop::collection::vec((0..50i64, 0..3u32, 0..200usize), 0..300),
            memory_bytes in prop::sample::select(vec![1, 300, 4000, 1 << 20]),
        ) {
            let mut expected: Vec<_> = packets.iter().enumerate().map(|(number, &(time_ns, lane, len))| {
                let mut bytes = Vec::new();
                block(&mut bytes, 6, &vec![number as u8; len]);
                (time_ns, lane, bytes)
            }).collect();
            expected.sort_by_key(|&(time_ns, lane, _)| (time_ns, lane));
            prop_assert_eq!(sorted(&packets, memory_bytes), expected);
        }
    }
}
