//! Packets that wait for their turn and have no room in memory: sorted runs in one file without a name.
//!
//! ```text
//! run:     record | record | record | ...                              by time, lane, number
//! record:  time 8 | number 8 | lane 4 | bytes 4 | key 16 | block
//! ```
//! Numbers are the machine's own: nobody else reads the file. A run is read through a small buffer. Where there are
//! too many, all become one: so the buffers of all runs have a bound, whatever was written.

use scope_packet::KeyEntry;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_ring::Place;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes of a record in front of its block.
const HEAD_BYTES: usize = 8 + 8 + 4 + 4 + KEY_ENTRY_BYTES;
/// Bytes of a run that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Runs at most; then all become one.
pub const RUNS_MAX: usize = 256;

/// Where a packet stands in the answer: time (ns), lane, number.
pub(crate) type Rank = (i64, u32, u64);

/// Where the file comes from.
pub enum SpillFile {
    /// It is open.
    Open(File),
    /// It is made when it is needed.
    Made(Box<dyn FnOnce() -> io::Result<File> + Send>),
    /// There is none: what has no room in memory ends the answer.
    None,
}

impl fmt::Debug for SpillFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            SpillFile::Open(_) => "Open",
            SpillFile::Made(_) => "Made",
            SpillFile::None => "None",
        })
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct Spill {
    /// Where it comes from, before it is needed.
    source: SpillFile,
    file: Option<Arc<File>>,
    end: u64,
}

/// A run that is read.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    at: u64,
    end: u64,
    /// What is read of it: places, lanes and blocks, from `next` on.
    pub places: Vec<Place>,
    pub lanes: Vec<u32>,
    pub blocks: Vec<u8>,
    pub next: usize,
}

/// Writes one run.
pub(crate) struct RunWriter<'a> {
    spill: &'a mut Spill,
    begin: u64,
    buffer: Vec<u8>,
}

impl Spill {
    /// Into this file, which nobody else has.
    pub fn new(source: SpillFile) -> Spill {
        Spill { source, file: None, end: 0 }
    }

    /// The same file for another reader of its runs. Nothing is written by it.
    pub fn reader(&self) -> Spill {
        Spill { source: SpillFile::None, file: self.file.clone(), end: self.end }
    }

    /// Bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    fn file(&self) -> io::Result<&File> {
        self.file.as_deref().ok_or_else(|| io::Error::other("there is no file for what waits"))
    }

    /// Opens the file, if that is still to be done.
    fn open(&mut self) -> io::Result<()> {
        let file = match std::mem::replace(&mut self.source, SpillFile::None) {
            SpillFile::Open(file) => file,
            SpillFile::Made(make) => make()?,
            SpillFile::None => return Ok(()),
        };
        self.file = Some(Arc::new(file));
        Ok(())
    }

    /// Begins a run.
    pub fn begin(&mut self) -> RunWriter<'_> {
        RunWriter { begin: self.end, spill: self, buffer: Vec::with_capacity(WRITE_BYTES + HEAD_BYTES) }
    }

    /// Reads the next chunk of a run, if what was read of it is out. Whether there is any.
    pub fn fill(&self, run: &mut Run) -> io::Result<bool> {
        if run.next < run.places.len() {
            return Ok(true);
        }
        run.next = 0;
        run.places.clear();
        run.lanes.clear();
        if run.at == run.end {
            (run.places, run.lanes, run.blocks) = (Vec::new(), Vec::new(), Vec::new());
            return Ok(false);
        }
        let mut len = CHUNK_BYTES.min((run.end - run.at) as usize);
        loop {
            run.blocks.resize(len, 0);
            self.file()?.read_exact_at(&mut run.blocks, run.at)?;
            let used = run.parse();
            if used > 0 {
                run.at += used as u64;
                return Ok(true);
            }
            len = record_bytes(&run.blocks).ok_or_else(torn)?; // larger than a chunk
        }
    }

    /// Makes one run of all of these.
    pub fn join(&mut self, runs: Vec<Run>) -> io::Result<Run> {
        let mut runs = runs;
        let mut heap = BinaryHeap::new();
        for (number, run) in runs.iter_mut().enumerate() {
            if self.fill(run)? {
                heap.push(Reverse((run.rank(), number)));
            }
        }
        let (begin, mut buffer) = (self.end, Vec::with_capacity(WRITE_BYTES + HEAD_BYTES));
        while let Some(Reverse((_, number))) = heap.pop() {
            let run = &mut runs[number];
            let (place, lane) = (run.places[run.next], run.lanes[run.next]);
            record(&mut buffer, &place, lane, block(&run.blocks, place.at));
            run.next += 1;
            if self.fill(run)? {
                heap.push(Reverse((run.rank(), number)));
            }
            if buffer.len() >= WRITE_BYTES {
                self.write(&mut buffer)?;
            }
        }
        self.write(&mut buffer)?;
        Ok(Run::new(begin, self.end))
    }

    fn write(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.open()?;
        self.file()?.write_all_at(buffer, self.end)?;
        self.end += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }
}

impl RunWriter<'_> {
    /// The next packet, none of which comes before the last one.
    pub fn add(&mut self, place: &Place, lane: u32, blocks: &[u8]) -> io::Result<()> {
        record(&mut self.buffer, place, lane, block(blocks, place.at));
        match self.buffer.len() >= WRITE_BYTES {
            true => self.spill.write(&mut self.buffer),
            false => Ok(()),
        }
    }

    /// All is written.
    pub fn end(mut self) -> io::Result<Run> {
        self.spill.write(&mut self.buffer)?;
        Ok(Run::new(self.begin, self.spill.end))
    }
}

impl Run {
    /// What lies behind it in the file belongs to it, too: up to `end`, and none of it comes before its own.
    pub fn extend(&mut self, other: &Run) -> bool {
        let goes_on = self.end == other.at;
        if goes_on {
            self.end = other.end;
        }
        goes_on
    }

    fn new(at: u64, end: u64) -> Run {
        Run { at, end, places: Vec::new(), lanes: Vec::new(), blocks: Vec::new(), next: 0 }
    }

    /// Where its next packet stands, which has been read.
    pub fn rank(&self) -> Rank {
        self.rank_at(self.next)
    }

    /// The same of another one that was read.
    pub fn rank_at(&self, at: usize) -> Rank {
        let place = &self.places[at];
        (place.time_ns, self.lanes[at], place.packet)
    }

    /// Behind what was read of it is more.
    pub fn goes_on(&self) -> bool {
        self.at < self.end
    }

    /// Finds the whole records among what was read; the bytes that they take.
    fn parse(&mut self) -> usize {
        let mut at = 0;
        while let Some(bytes) =
            record_bytes(&self.blocks[at..]).filter(|bytes| at + bytes <= self.blocks.len())
        {
            let head = &self.blocks[at..at + HEAD_BYTES];
            let word = |from: usize| u64::from_ne_bytes(head[from..from + 8].try_into().unwrap_or_default());
            let mut key = [0; KEY_ENTRY_BYTES];
            key.copy_from_slice(&head[24..]);
            self.places.push(Place {
                time_ns: word(0) as i64,
                packet: word(8),
                key: KeyEntry::from_bytes(&key),
                at: (at + HEAD_BYTES) as u32,
            });
            self.lanes.push(word(16) as u32);
            at += bytes;
        }
        at
    }
}

fn torn() -> io::Error {
    io::Error::other("what waited for its turn isn't what was written")
}

/// Bytes of the record that begins here; `None`: not even its head is there.
fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let len = bytes.get(..HEAD_BYTES)?[20..24].try_into().ok()?;
    Some(HEAD_BYTES + u32::from_ne_bytes(len) as usize)
}

/// The block that begins there.
fn block(blocks: &[u8], at: u32) -> &[u8] {
    let begin = &blocks[at as usize..];
    let len = begin.get(4..8).and_then(|len| len.try_into().ok()).map_or(0, u32::from_le_bytes);
    begin.get(..len as usize).unwrap_or_default()
}

fn record(out: &mut Vec<u8>, place: &Place, lane: u32, block: &[u8]) {
    out.extend(place.time_ns.to_ne_bytes());
    out.extend(place.packet.to_ne_bytes());
    out.extend(lane.to_ne_bytes());
    out.extend((block.len() as u32).to_ne_bytes());
    out.extend(place.key.to_bytes());
    out.extend(block);
}

/// A packet's block.
#[cfg(test)]
pub(crate) fn block_of(time_ns: i64, data: &[u8]) -> Vec<u8> {
    let len = data.len() as u32;
    let head = scope_packet::pcapng::PacketHead {
        time_ns,
        captured_len: len,
        original_len: len,
        ..Default::default()
    };
    let mut block = vec![0; head.block_bytes()];
    head.write(&mut block, data);
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(time_ns: i64, number: u64, len: usize) -> Vec<u8> {
        block_of(time_ns, &vec![number as u8; len])
    }

    proptest! {
        #[test]
        fn runs_come_back_as_they_were_written_and_joined_in_order(
            packets in proptest::collection::vec((0i64..50, 0u32..4, 0usize..90_000), 1..60), parts in 1usize..7
        ) {
            let mut spill = Spill::new(SpillFile::Open(tempfile::tempfile().unwrap()));
            let ranked: Vec<(Rank, usize)> = (0u64..)
                .zip(&packets)
                .map(|(number, &(time_ns, lane, len))| ((time_ns, lane, number), len))
                .collect();
            let mut runs = Vec::new();
            for part in 0..parts {
                let mut own: Vec<_> = ranked.iter().skip(part).step_by(parts).copied().collect();
                own.sort();
                let mut writer = spill.begin();
                for ((time_ns, lane, number), len) in own {
                    let place = Place { time_ns, packet: number, key: KeyEntry::default(), at: 0 };
                    writer.add(&place, lane, &packet(time_ns, number, len)).unwrap();
                }
                runs.push(writer.end().unwrap());
            }
            let mut all = spill.join(runs).unwrap();
            let mut expected = ranked.clone();
            expected.sort();
            for (rank, len) in expected {
                prop_assert!(spill.fill(&mut all).unwrap());
                prop_assert_eq!(all.rank(), rank);
                prop_assert_eq!(block(&all.blocks, all.places[all.next].at), packet(rank.0, rank.2, len));
                all.next += 1;
            }
            prop_assert!(!spill.fill(&mut all).unwrap());
        }
    }
}
