//! Packets of many segments in one order: by time, then lane, then number, in bounded memory.
//!
//! ```text
//! segment in memory ─┐
//! segment in memory ─┼─► heap by the next packet ─► stretch: packets of one of them, up to the next packet of another
//! run in the file   ─┘
//! ```
//! Segments that lie in time beside each other are in memory together, as far as there is room. Beyond, all of them
//! become one sorted run in a file, of which only a small part is in memory. What goes on where the last run ends
//! is part of it: packets that come by time are one run, however many they are.

use crate::load::Loaded;
use crate::spill::{RUNS_MAX, Rank, Run, Spill};
use scope_ring::{KeyTest, Matches, Place};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;

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
    /// The run that was written last, as long as it isn't read to its end, and where its last packet stands.
    last_run: Option<(usize, Rank)>,
    lent: Option<Lent>,
}

#[derive(Clone)]
enum Cursor {
    Memory { lane: u32, loaded: Arc<Loaded>, next: usize },
    Run(Run),
}

/// What is lent.
#[derive(Clone, Copy)]
struct Lent {
    cursor: usize,
    from: usize,
    to: usize,
}

/// Successive packets of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Their lane.
    pub lane: u32,
    /// Time of the first one, ns.
    pub min_ns: i64,
    /// Its number in the lane.
    pub first_packet: u64,
    /// How many they are.
    pub packets: usize,
}

impl Cursor {
    fn rank(&self) -> Option<Rank> {
        match self {
            Cursor::Memory { next, .. } => self.rank_at(*next),
            Cursor::Run(run) => self.rank_at(run.next),
        }
    }

    fn rank_at(&self, at: usize) -> Option<Rank> {
        match self {
            Cursor::Memory { lane, loaded, .. } => {
                loaded.places.get(at).map(|place| (place.time_ns, *lane, place.packet))
            }
            Cursor::Run(run) => (at < run.places.len()).then(|| run.rank_at(at)),
        }
    }

    /// No packet of it from place `to` on stands before this; `None`: there is none. What isn't read yet stands behind
    /// what is.
    fn behind(&self, to: usize) -> Option<Rank> {
        let unread = matches!(self, Cursor::Run(run) if run.goes_on()).then(|| to.checked_sub(1)).flatten();
        self.rank_at(to).or_else(|| self.rank_at(unread?))
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
            last_run: None,
            lent: None,
        }
    }

    /// What is in it once more, for another reader: as far as it isn't out yet. Nothing is added there.
    pub fn again(&self) -> Merge {
        Merge {
            heap: self.heap.clone(),
            cursors: self.cursors.clone(),
            empty: self.empty.clone(),
            spill: self.spill.reader(),
            ..*self
        }
    }

    /// Bytes of the packets in memory.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
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
        self.insert(Cursor::Memory { lane, loaded: Arc::new(loaded), next: 0 });
        Ok(())
    }

    /// Where the next packet stands, behind what is lent: none that comes stands before it.
    pub fn first(&self) -> Option<Rank> {
        let behind = self.lent.and_then(|lent| self.cursors[lent.cursor].as_ref()?.behind(lent.to));
        self.heap.peek().map(|Reverse((rank, _))| *rank).into_iter().chain(behind).min()
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

    /// Which of these packets pass `keys`, and packet `always` whatever its key.
    pub fn screen(&self, keys: &KeyTest, always: Option<u64>) -> Matches {
        let (places, _) = self.lent();
        let mut picked = Matches::none(places.len() as u32);
        for (index, place) in (0..).zip(places) {
            if always == Some(place.packet) || keys.matches(&place.key) {
                picked.insert(index);
            }
        }
        picked
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

    /// The number under which it is known; `None`: it is empty.
    fn insert(&mut self, cursor: Cursor) -> Option<usize> {
        let rank = cursor.rank()?;
        let number = self.empty.pop().unwrap_or_else(|| {
            self.cursors.push(None);
            self.cursors.len() - 1
        });
        self.cursors[number] = Some(cursor);
        self.heap.push(Reverse((rank, number)));
        Some(number)
    }

    fn remove(&mut self, number: usize) {
        match self.cursors[number].take() {
            Some(Cursor::Memory { loaded, .. }) => self.memory_bytes -= loaded.bytes(),
            Some(Cursor::Run(_)) => {
                self.runs -= 1;
                self.last_run = self.last_run.filter(|(last, _)| *last != number);
            }
            None => return,
        }
        self.empty.push(number);
    }

    /// Makes one run of all that is in memory, and one of all runs where there are too many.
    fn spill_memory(&mut self) -> io::Result<()> {
        let is_run = |cursor: &Option<Cursor>| matches!(cursor, Some(Cursor::Run(_)));
        let (runs, memory): (Vec<_>, Vec<_>) =
            self.heap.drain().partition(|Reverse((_, number))| is_run(&self.cursors[*number]));
        self.heap.extend(runs);
        let mut order = BinaryHeap::from(memory);
        let Some(Reverse((first, _))) = order.peek().copied() else { return Ok(()) };
        let mut last = first;
        let mut writer = self.spill.begin();
        while let Some(Reverse((_, number))) = order.pop() {
            let limit = order.peek().map(|Reverse((rank, _))| *rank);
            let Some(Cursor::Memory { lane, loaded, next }) = self.cursors[number].as_mut() else { continue };
            while let Some(place) = loaded.places.get(*next) {
                let rank = (place.time_ns, *lane, place.packet);
                if limit.is_some_and(|limit| rank > limit) {
                    order.push(Reverse((rank, number)));
                    break;
                }
                writer.add(place, *lane, &loaded.blocks)?;
                (*next, last) = (*next + 1, rank);
            }
            if *next == loaded.places.len() {
                self.memory_bytes -= loaded.bytes();
                self.cursors[number] = None;
                self.empty.push(number);
            }
        }
        let run = writer.end()?;
        if let Some((number, before)) = self.last_run
            && before <= first
            && let Some(Cursor::Run(last_run)) = self.cursors[number].as_mut()
            && last_run.extend(&run)
        {
            self.last_run = Some((number, last));
            return Ok(());
        }
        self.add_run(run, last)
    }

    /// Takes part from now on; `last`: where its last packet stands.
    fn add_run(&mut self, mut run: Run, last: Rank) -> io::Result<()> {
        let is_joined = self.runs == RUNS_MAX;
        if is_joined {
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
        let number = self.insert(Cursor::Run(run));
        self.last_run = number.filter(|_| !is_joined).map(|number| (number, last));
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
                if let Some(first) = merge.first() {
                    let last = merge.lent().0.last().unwrap();
                    prop_assert!((last.time_ns, stretch.lane, last.packet) <= first, "nothing older is to come");
                }
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
    fn what_comes_behind_a_stretch_is_known_while_that_is_lent() {
        let packets: Vec<_> = (0..STRETCH_MAX as u64 + 10).map(|number| (number as i64, number)).collect();
        let mut in_memory = Merge::new(usize::MAX, Spill::new(SpillFile::None));
        in_memory.add(0, loaded(&packets)).unwrap();
        let mut in_file = Merge::new(1, Spill::new(SpillFile::Open(tempfile::tempfile().unwrap())));
        in_file.add(0, loaded(&packets)).unwrap();
        in_file.add(0, loaded(&[(i64::MAX, u64::MAX)])).unwrap();
        for merge in [&mut in_memory, &mut in_file] {
            let packets = merge.next(None).unwrap().packets as i64;
            let (time_ns, ..) = merge.first().unwrap();
            assert!((packets - 1..=packets).contains(&time_ns), "{time_ns} behind {packets} packets");
        }
    }

    #[test]
    fn packets_that_come_by_time_are_one_run_until_one_comes_before_them() {
        let mut merge = Merge::new(1, Spill::new(SpillFile::Open(tempfile::tempfile().unwrap())));
        for number in 0..10 * RUNS_MAX as u64 {
            merge.add(0, loaded(&[(number as i64, number), (number as i64, number)])).unwrap();
            assert!(merge.runs <= 1);
        }
        merge.add(1, loaded(&[(0, 0)])).unwrap();
        merge.add(1, loaded(&[(1, 1)])).unwrap();
        assert_eq!(merge.runs, 2);
    }

    #[test]
    fn what_has_no_room_and_no_file_is_an_error() {
        let mut merge = Merge::new(1, Spill::new(SpillFile::None));
        merge.add(0, loaded(&[(1, 0)])).unwrap();
        assert!(merge.add(0, loaded(&[(2, 1)])).is_err());
    }
}
