//! Packets in whatever order they come, sorted in bounded memory: by time, then lane, then as they came.
//!
//! ```text
//! push ─► batch of its lane ─ full: by time ─► merge: in memory, or runs in a file
//!                                                └► sorted ─► walk, from the begin, as often as wanted
//! ```
//! A batch is to the merge what a segment of a store is. Where packets come by time nothing is sorted, and what has
//! no room in memory is one run.

use crate::load::Loaded;
use crate::merge::Merge;
use crate::spill::{Spill, SpillFile};
use scope_packet::KeyEntry;
use scope_ring::{KeyTest, Matches, Place};
use std::io;

pub use crate::merge::Stretch;

/// Bytes of a batch's blocks from which on it is full.
const BATCH_BYTES: usize = 1 << 20;
/// Of the room the part that batches may take which aren't full.
const PART_OF_BATCHES: usize = 4;

/// Takes packets.
pub struct Sorter {
    /// By lane.
    batches: Vec<Batch>,
    /// Bytes of all batches, and how many they may be.
    bytes: usize,
    bytes_max: usize,
    /// What the merge has of the memory.
    room_bytes: usize,
    merge: Merge,
}

/// Packets of one lane.
#[derive(Default)]
struct Batch {
    places: Vec<Place>,
    blocks: Vec<u8>,
    /// Number of its next packet in the lane.
    number: u64,
    /// Some packet came behind a newer one.
    is_unordered: bool,
}

/// All packets, sorted.
pub struct Sorted(Merge);

/// Goes through them once.
pub struct Walk(Merge);

impl Sorter {
    /// With so many bytes of memory; what has no room goes into `spill`.
    pub fn new(room_bytes: usize, spill: SpillFile) -> Sorter {
        let bytes_max = room_bytes / PART_OF_BATCHES;
        let room_bytes = room_bytes - bytes_max;
        let merge = Merge::new(room_bytes, Spill::new(spill));
        Sorter { batches: Vec::new(), bytes: 0, bytes_max, room_bytes, merge }
    }

    /// Takes a packet, whose block `put` appends.
    ///
    /// # Errors
    /// The file can't be written, or there is none.
    #[inline]
    pub fn push(
        &mut self,
        lane: u32,
        time_ns: i64,
        key: KeyEntry,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        let at = lane as usize;
        if self.batches.len() <= at {
            self.batches.resize_with(at + 1, Batch::default);
        }
        let batch = &mut self.batches[at];
        let begin = batch.blocks.len();
        batch.is_unordered |= batch.places.last().is_some_and(|last| time_ns < last.time_ns);
        batch.places.push(Place { time_ns, packet: batch.number, key, at: begin as u32 });
        batch.number += 1;
        put(&mut batch.blocks);
        self.bytes += size_of::<Place>() + batch.blocks.len() - begin;
        if batch.blocks.len() >= BATCH_BYTES {
            return self.close(lane);
        }
        if self.bytes > self.bytes_max { self.close_all() } else { Ok(()) }
    }

    /// Bytes that it holds in memory.
    pub fn bytes(&self) -> usize {
        self.bytes + self.merge.memory_bytes()
    }

    /// What came by now. What comes later is sorted by itself, in memory alone; numbers go on.
    ///
    /// # Errors
    /// As [`Sorter::push`].
    pub fn take(&mut self) -> io::Result<Sorted> {
        self.close_all()?;
        let rest = Merge::new(self.room_bytes, Spill::new(SpillFile::None));
        Ok(Sorted(std::mem::replace(&mut self.merge, rest)))
    }

    fn close_all(&mut self) -> io::Result<()> {
        (0..self.batches.len() as u32).try_for_each(|lane| self.close(lane))
    }

    /// Hands a lane's batch on.
    fn close(&mut self, lane: u32) -> io::Result<()> {
        let batch = &mut self.batches[lane as usize];
        let alike = (Vec::with_capacity(batch.places.len()), Vec::with_capacity(batch.blocks.len()));
        let mut places = std::mem::replace(&mut batch.places, alike.0);
        let blocks = std::mem::replace(&mut batch.blocks, alike.1);
        if std::mem::take(&mut batch.is_unordered) {
            places.sort_unstable_by_key(|place| (place.time_ns, place.packet));
        }
        self.bytes -= places.len() * size_of::<Place>() + blocks.len();
        self.merge.add(lane, Loaded::new(places, blocks))
    }
}

impl Sorted {
    /// Bytes that had no room in memory.
    pub fn spilled_bytes(&self) -> u64 {
        self.0.spilled_bytes()
    }

    /// From the first packet on.
    pub fn walk(&self) -> Walk {
        Walk(self.0.again())
    }
}

impl Walk {
    /// Time and lane of the packet that comes next.
    pub fn next_place(&self) -> Option<(i64, u32)> {
        self.0.first().map(|(time_ns, lane, _)| (time_ns, lane))
    }

    /// The packets that come next, as many as lie beside each other: none, if those before aren't done with.
    pub fn next_stretch(&mut self) -> Option<Stretch> {
        self.0.next(None)
    }

    /// Their places, and the blocks to which these lead.
    pub fn lent(&self) -> (&[Place], &[u8]) {
        self.0.lent()
    }

    /// Which of them pass `keys`, and packet `always` whatever its key.
    pub fn screen(&self, keys: &KeyTest, always: Option<u64>) -> Matches {
        self.0.screen(keys, always)
    }

    /// They are done with.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn done(&mut self) -> io::Result<()> {
        self.0.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::block_of;
    use proptest::prelude::*;
    use scope_ring::Packets;

    /// Time, lane, the packet's bytes.
    type Found = Vec<(i64, u32, Vec<u8>)>;

    fn walk(sorted: &Sorted) -> Found {
        let (mut walk, mut found) = (sorted.walk(), Found::new());
        while let Some(stretch) = walk.next_stretch() {
            let (places, blocks) = walk.lent();
            assert_eq!(places.len(), stretch.packets);
            assert_eq!((places[0].time_ns, places[0].packet), (stretch.min_ns, stretch.first_packet));
            for candidate in Packets::listed(places, blocks) {
                found.push((candidate.block.time_ns(), stretch.lane, candidate.block.data().to_vec()));
            }
            walk.done().unwrap();
        }
        assert!(walk.next_place().is_none());
        found
    }

    fn sorted(packets: &Found, room_bytes: usize, spill: SpillFile) -> io::Result<Sorted> {
        let mut sorter = Sorter::new(room_bytes, spill);
        for (time_ns, lane, data) in packets {
            sorter.push(*lane, *time_ns, KeyEntry::default(), |out| out.extend(block_of(*time_ns, data)))?;
        }
        sorter.take()
    }

    fn open() -> SpillFile {
        SpillFile::Open(tempfile::tempfile().unwrap())
    }

    /// Packets that name their number, some of them long.
    fn packets(places: &[(i64, u32, usize)]) -> Found {
        let packet = |(number, &(time_ns, lane, len)): (usize, &(i64, u32, usize))| {
            let mut data = number.to_le_bytes().to_vec();
            data.resize(data.len() + len, number as u8);
            (time_ns, lane, data)
        };
        places.iter().enumerate().map(packet).collect()
    }

    proptest! {
        #[test]
        fn they_come_by_time_and_lane_and_as_they_came_whatever_memory_there_is(
            places in prop::collection::vec((0..50i64, 0..3u32, 0..20_000usize), 0..300),
            room_bytes in prop::sample::select(vec![0, 1, 300, 4000, 100_000, 1 << 20, 1 << 30]),
            is_ordered in any::<bool>(),
        ) {
            let mut places = places;
            if is_ordered {
                places.sort_by_key(|&(time_ns, lane, _)| (time_ns, lane));
            }
            let packets = packets(&places);
            let all = sorted(&packets, room_bytes, open()).unwrap();
            let mut expected = packets;
            expected.sort_by_key(|&(time_ns, lane, _)| (time_ns, lane));
            let found = walk(&all);
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(walk(&all), found, "it can be read again");
        }
    }

    #[test]
    fn two_walks_go_on_side_by_side() {
        let places: Vec<_> = (0..1000).map(|number| (number * 7 % 100, 0, 900)).collect();
        let all = sorted(&packets(&places), 200_000, open()).unwrap();
        assert!(all.spilled_bytes() > 0);
        let (mut one, mut other, mut compared) = (all.walk(), all.walk(), 0);
        while let Some(stretch) = one.next_stretch() {
            assert_eq!(Some(stretch), other.next_stretch());
            compared += stretch.packets;
            one.done().unwrap();
            other.done().unwrap();
        }
        assert_eq!(compared, places.len());
    }

    #[test]
    fn only_what_has_no_room_needs_the_file() {
        let places: Vec<_> = (0..1000).map(|number| (number * 7 % 100, number as u32 % 2, 1000)).collect();
        let packets = packets(&places);
        assert_eq!(sorted(&packets, 4 << 20, SpillFile::None).unwrap().spilled_bytes(), 0);
        assert!(sorted(&packets, 1 << 19, SpillFile::None).is_err());
        assert!(sorted(&packets, 1 << 19, open()).unwrap().spilled_bytes() > 1 << 19);
    }
}
