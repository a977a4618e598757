//! Packets of many segments in one order: by time, then lane, then number, in bounded memory.
//!
//! ```text
//! segment in memory ─┐
//! segment in memory ─┼─► heap by the next packet ─► stretch: packets of one of them, up to the next packet of another
//! run in the file   ─┘
//! ```
//! Segments that lie in time beside each other are in memory together, as far as there is room. Beyond, all of them
//! become one sorted run in a file, of which only a small part is in memory.

use crate::load::Loaded;
use crate::spill::{RUNS_MAX, Rank, Run, Spill};
use scope_ring::Place;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

/// Packets that are lent at once, at most.
const STRETCH_MAX: usize = 4096;

/// What is merged.
pub(crate) struct Merge {
    heap: BinaryHeap<Reverse<(Rank, usize)>>,
    cursors: Vec<Option<Cursor>>,
    empty: Vec<usize>,
    /// Bytes of the segments in memory, and how many they may be.
    memory_bytes: usize,
    room_bytes: usize,
    spill: Spill,
    runs: usize,
    lent: Option<Lent>,
}

enum Cursor {
    Memory { lane: u32, loaded: Loaded, next: usize },
    Run(Run),
}

/// What is lent.
struct Lent {
    cursor: usize,
    from: usize,
    to: usize,
}

/// Successive packets of one lane.
pub(crate) struct Stretch {
    pub lane: u32,
    pub min_ns: i64,
    pub first_packet: u64,
    pub packets: usize,
}

impl Cursor {
    fn rank(&self) -> Option<Rank> {
        match self {
            Cursor::Memory { lane, loaded, next } => {
                loaded.places.get(*next).map(|place| (place.time_ns, *lane, place.packet))
            }
            Cursor::Run(run) => (run.next < run.places.len()).then(|| run.rank()),
        }
    }

    /// Where a stretch ends that goes no further than `limit`.
    fn end(&self, limit: Option<Rank>) -> usize {
        let (places, lane, next) = match self {
            Cursor::Memory { lane, loaded, next } => (&loaded.places, *lane, *next),
            Cursor::Run(run) => (&run.places, run.lanes[run.next], run.next),
        };
        let most = places.len().min(next + STRETCH_MAX);
        let inside = |at: usize| {
            let place = &places[at];
            let of_lane = match self {
                Cursor::Memory { .. } => true,
                Cursor::Run(run) => run.lanes[at] == lane,
            };
            of_lane && limit.is_none_or(|limit| (place.time_ns, lane, place.packet) <= limit)
        };
        (next + 1..most).find(|&at| !inside(at)).unwrap_or(most)
    }
}

impl Merge {
    /// With so many bytes for segments; what has no room goes into `spill`.
    pub fn new(room_bytes: usize, spill: Spill) -> Merge {
        Merge {
            heap: BinaryHeap::new(),
            cursors: Vec::new(),
            empty: Vec::new(),
            memory_bytes: 0,
            room_bytes,
            spill,
            runs: 0,
            lent: None,
        }
    }

    /// Bytes that had no room in memory.
    pub fn spilled_bytes(&self) -> u64 {
        self.spill.bytes()
    }

    /// The packets of a segment come in.
    pub fn add(&mut self, lane: u32, loaded: Loaded) -> io::Result<()> {
        if loaded.places.is_empty() {
            return Ok(());
        }
        let bytes = loaded.bytes();
        if self.memory_bytes > 0 && self.memory_bytes + bytes > self.room_bytes {
            self.spill_memory()?;
        }
        self.memory_bytes += bytes;
        self.insert(Cursor::Memory { lane, loaded, next: 0 });
        Ok(())
    }

    /// Where its next packet stands.
    pub fn first(&self) -> Option<Rank> {
        self.heap.peek().map(|Reverse((rank, _))| *rank)
    }

    /// The next packets, up to `limit`, behind which what isn't here may come.
    pub fn next(&mut self, limit: Option<Rank>) -> Option<Stretch> {
        let Reverse(((min_ns, lane, first_packet), number)) = self.heap.pop()?;
        let limit = limit.into_iter().chain(self.first()).min();
        let cursor = self.cursors[number].as_ref()?;
        let from = match cursor {
            Cursor::Memory { next, .. } => *next,
            Cursor::Run(run) => run.next,
        };
        let to = cursor.end(limit);
        self.lent = Some(Lent { cursor: number, from, to });
        Some(Stretch { lane, min_ns, first_packet, packets: to - from })
    }

    /// The packets of the stretch that came last: their places, and the blocks to which these lead.
    pub fn lent(&self) -> (&[Place], &[u8]) {
        let Some(Lent { cursor, from, to }) = self.lent else { return (&[], &[]) };
        match &self.cursors[cursor] {
            Some(Cursor::Memory { loaded, .. }) => (&loaded.places[from..to], &loaded.blocks),
            Some(Cursor::Run(run)) => (&run.places[from..to], &run.blocks),
            None => (&[], &[]),
        }
    }

    /// The stretch is done with.
    pub fn done(&mut self) -> io::Result<()> {
        let Some(Lent { cursor: number, to, .. }) = self.lent.take() else { return Ok(()) };
        let Some(cursor) = self.cursors[number].as_mut() else { return Ok(()) };
        match cursor {
            Cursor::Memory { next, .. } => *next = to,
            Cursor::Run(run) => {
                run.next = to;
                self.spill.fill(run)?;
            }
        }
        match cursor.rank() {
            Some(rank) => self.heap.push(Reverse((rank, number))),
            None => self.remove(number),
        }
        Ok(())
    }

    fn insert(&mut self, cursor: Cursor) {
        let Some(rank) = cursor.rank() else { return };
        let number = self.empty.pop().unwrap_or_else(|| {
            self.cursors.push(None);
            self.cursors.len() - 1
        });
        self.cursors[number] = Some(cursor);
        self.heap.push(Reverse((rank, number)));
    }

    fn remove(&mut self, number: usize) {
        match self.cursors[number].take() {
            Some(Cursor::Memory { loaded, .. }) => self.memory_bytes -= loaded.bytes(),
            Some(Cursor::Run(_)) => self.runs -= 1,
            None => return,
        }
        self.empty.push(number);
    }

    /// Makes one run of all that is in memory, and one of all runs where there are too many.
    fn spill_memory(&mut self) -> io::Result<()> {
        let is_run = |cursor: &Option<Cursor>| matches!(cursor, Some(Cursor::Run(_)));
        let (runs, mut memory): (Vec<_>, Vec<_>) =
            self.heap.drain().partition(|Reverse((_, number))| is_run(&self.cursors[*number]));
        self.heap.extend(runs);
        let mut order = BinaryHeap::from(std::mem::take(&mut memory));
        let mut writer = self.spill.begin();
        while let Some(Reverse((_, number))) = order.pop() {
            let Some(cursor) = self.cursors[number].as_mut() else { continue };
            if let Cursor::Memory { lane, loaded, next } = cursor {
                writer.add(&loaded.places[*next], *lane, &loaded.blocks)?;
                *next += 1;
            }
            if let Some(rank) = cursor.rank() {
                order.push(Reverse((rank, number)));
            } else if let Some(Cursor::Memory { loaded, .. }) = self.cursors[number].take() {
                self.memory_bytes -= loaded.bytes();
                self.empty.push(number);
            }
        }
        let mut run = writer.end()?;
        if self.runs == RUNS_MAX {
            let all = self.heap.drain().filter_map(|Reverse((_, number))| {
                self.empty.push(number);
                match self.cursors[number].take() {
                    Some(Cursor::Run(run)) => Some(run),
                    _ => None,
                }
            });
            let all: Vec<Run> = all.chain([run]).collect();
            run = self.spill.join(all)?;
            self.runs = 0;
        }
        self.spill.fill(&mut run)?;
        self.runs += 1;
        self.insert(Cursor::Run(run));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::{SpillFile, block_of};
    use proptest::prelude::*;
    use scope_packet::KeyEntry;
    use scope_ring::Packets;

    /// Packets of a segment: (time, number) by time, each with a block that names its number.
    fn loaded(packets: &[(i64, u64)]) -> Loaded {
        let mut loaded = Loaded::default();
        for &(time_ns, packet) in packets {
            let at = loaded.blocks.len() as u32;
            loaded.blocks.extend(block_of(time_ns, &packet.to_le_bytes()));
            loaded.places.push(Place { time_ns, packet, key: KeyEntry::default(), at });
        }
        loaded
    }

    proptest! {
        #[test]
        fn packets_come_out_by_time_lane_and_number_whatever_room_there_is(
            segments in proptest::collection::vec((0u32..4, proptest::collection::vec(0i64..300, 1..40)), 1..60),
            room_bytes in 1usize..40_000,
        ) {
            let (mut expected, mut numbers, mut order) = (Vec::new(), [0u64; 4], Vec::new());
            for (lane, mut times) in segments {
                times.sort();
                let first = numbers[lane as usize];
                numbers[lane as usize] += times.len() as u64;
                let packets: Vec<(i64, u64)> = times.into_iter().zip(first..).collect();
                expected.extend(packets.iter().map(|&(time_ns, number)| (time_ns, lane, number)));
                order.push(((packets[0].0, lane, first), packets));
            }
            expected.sort();
            order.sort();
            let mut merge = Merge::new(room_bytes, Spill::new(SpillFile::Open(tempfile::tempfile().unwrap())));
            let (mut found, mut order) = (Vec::new(), order.into_iter().peekable());
            loop {
                let pending = order.peek().map(|(rank, _)| *rank);
                if let Some((rank, packets)) = order.next_if(|(rank, _)| merge.first().is_none_or(|first| *rank <= first)) {
                    merge.add(rank.1, loaded(&packets)).unwrap();
                    prop_assert!(merge.memory_bytes <= room_bytes.max(loaded(&packets).bytes()));
                    continue;
                }
                let Some(stretch) = merge.next(pending) else { break };
                let before = found.len();
                let (places, blocks) = merge.lent();
                for candidate in Packets::listed(places, blocks) {
                    prop_assert_eq!(candidate.block.data(), candidate.packet.to_le_bytes());
                    found.push((candidate.block.time_ns(), stretch.lane, candidate.packet));
                }
                prop_assert_eq!(found.len() - before, stretch.packets);
                prop_assert_eq!(found[before], (stretch.min_ns, stretch.lane, stretch.first_packet));
                merge.done().unwrap();
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!(merge.memory_bytes, 0);
        }
    }

    #[test]
    fn many_runs_become_one_and_nothing_is_lost() {
        let mut merge = Merge::new(1, Spill::new(SpillFile::Open(tempfile::tempfile().unwrap())));
        let most = 2 * RUNS_MAX as u64 + 10;
        for number in 0..most {
            merge
                .add(0, loaded(&[(number as i64, number), (10_000 - number as i64, 10_000 - number)]))
                .unwrap();
            assert!(merge.runs <= RUNS_MAX);
        }
        let mut found = Vec::new();
        while merge.next(None).is_some() {
            found.extend(merge.lent().0.iter().map(|place| place.packet));
            merge.done().unwrap();
        }
        let expected: Vec<u64> = (0..most).chain(10_001 - most..10_001).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_has_no_room_and_no_file_is_an_error() {
        let mut merge = Merge::new(1, Spill::new(SpillFile::None));
        merge.add(0, loaded(&[(1, 0)])).unwrap();
        assert!(merge.add(0, loaded(&[(2, 1)])).is_err());
    }
}
