//! Readers that follow all lanes to the end, counting: one looks at every packet, the other at the key column
//! only.

use super::packets::Packets;
use scope_ring::{Batch, Follower, KeyTest, Reader, Ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a follower found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Packets looked at.
    pub seen: u64,
    /// Packets that were recycled before.
    pub missed: u64,
    /// Packets to the UDP port looked for.
    pub hits: u64,
    /// Captured bytes of the packets seen; 0 where only keys are read.
    pub bytes: u64,
}

/// Follows the open segments of all lanes and tests the UDP port of each packet, in place.
pub struct PacketFollower {
    follow: Follow,
    place: Option<Arc<Follower>>,
}

impl PacketFollower {
    /// Begins behind everything that the ring has now.
    pub fn new(ring: &Arc<Ring>) -> PacketFollower {
        PacketFollower { follow: Follow::new(ring), place: None }
    }

    /// The same as someone who must not be overrun: feeders that wait (rule 5) wait for it from now on.
    pub fn holding(ring: &Arc<Ring>) -> PacketFollower {
        let place = ring.follower(|lane| ring.lane_next(lane).saturating_sub(1));
        PacketFollower { place: Some(place), ..PacketFollower::new(ring) }
    }

    /// Follows until `done` is set and nothing is left.
    pub fn run(self, done: &AtomicBool) -> Followed {
        let place = self.place;
        self.follow.run(done, |batch, found| {
            if let Some(place) = &place {
                place.done_before(batch.lane(), batch.segment().sequence);
            }
            for block in batch.blocks() {
                found.hits += u64::from(Packets::is_hit(block.data()));
                found.bytes += block.original_len() as u64;
            }
        })
    }
}

/// Follows the open segments of all lanes by their key columns; packets are never touched.
pub struct ColumnFollower {
    follow: Follow,
    test: KeyTest,
}

impl ColumnFollower {
    /// Begins behind everything that the ring has now.
    pub fn new(ring: &Arc<Ring>) -> ColumnFollower {
        ColumnFollower { follow: Follow::new(ring), test: Packets::key_test() }
    }

    /// Follows until `done` is set and nothing is left.
    pub fn run(self, done: &AtomicBool) -> Followed {
        let test = self.test;
        self.follow.run(done, |batch, found| found.hits += batch.entries().matches(&test).count() as u64)
    }
}

/// A reader, and what it had seen and missed when it was made.
struct Follow {
    ring: Arc<Ring>,
    reader: Reader,
    before: (u64, u64),
}

impl Follow {
    fn new(ring: &Arc<Ring>) -> Follow {
        let mut reader = Reader::new(ring);
        while reader.next_batch().is_some() {}
        let before = counts(ring, &reader);
        Follow { ring: ring.clone(), reader, before }
    }

    fn run(mut self, done: &AtomicBool, mut look: impl FnMut(&Batch<'_>, &mut Followed)) -> Followed {
        let mut found = Followed::default();
        loop {
            let last = done.load(Ordering::Acquire); // before the look: what came until then is seen
            match self.reader.next_batch() {
                Some(batch) => look(&batch, &mut found),
                None if last => break,
                None => self.reader.wait(),
            }
        }
        let (seen, missed) = counts(&self.ring, &self.reader);
        Followed { seen: seen - self.before.0, missed: missed - self.before.1, ..found }
    }
}

/// Packets seen and missed so far, over all lanes.
fn counts(ring: &Ring, reader: &Reader) -> (u64, u64) {
    let of_lane = |lane| reader.counts(lane);
    (0..ring.lanes()).map(of_lane).fold((0, 0), |sum, counts| (sum.0 + counts.seen, sum.1 + counts.missed))
}
