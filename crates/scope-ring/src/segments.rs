//! Following the ring segment by segment: whoever takes each segment as it is, open or sealed, holds it until
//! it is done, and knows exactly what it missed.
//!
//! ```text
//! take    of each lane's next segment the one that is recycled first, open ones last; it stays pinned
//! missed  packets and bytes between the end of the segment taken before and the begin of this one
//! done    the pin goes; workers that can wait don't overrun what is taken and not done, or not taken yet
//! ```
//! A segment that is still open is taken once it has a packet. Its end is known when it is sealed, which it is before
//! the next one of its lane is there.

use crate::budget::Allowance;
use crate::follow::Follower;
use crate::held::Held;
use crate::pin::Pinned;
use crate::ring::Ring;
use scope_packet::SegmentId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A role that takes every segment of the ring once, in the order of its lane.
pub struct SegmentReader {
    ring: Arc<Ring>,
    follower: Arc<Follower>,
    held: Held,
    lanes: Vec<Position>,
    /// Workers that can wait don't wait for it any more.
    overrun: bool,
}

/// Where the reader stands in a lane: everything before `packet` was taken or is missed.
#[derive(Default)]
struct Position {
    /// The next segment to be taken.
    next: u64,
    packet: u64,
    bytes: u64,
    /// Taken, and not done: their sequences.
    taken: BTreeSet<u64>,
    /// The segment that was taken last, until its end is known.
    last: Option<Pinned>,
}

/// One segment, pinned.
pub struct Taken {
    /// The segment: open or sealed.
    pub pinned: Pinned,
    /// What was recycled before it could be taken, directly before this one.
    pub missed: Missed,
}

/// Packets of a lane that were recycled before they could be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Number in the lane of the first one.
    pub first_packet: u64,
    /// How many.
    pub packets: u64,
    /// Their captured bytes.
    pub bytes: u64,
}

impl SegmentReader {
    /// One that begins with the oldest segments that are left, and holds as many as `allowance` says.
    pub fn new(ring: &Arc<Ring>, allowance: Allowance) -> SegmentReader {
        let follower = ring.follower(|lane| ring.oldest_possible(lane));
        let held = Held::new(ring, allowance);
        SegmentReader { ring: ring.clone(), follower, held, lanes: Vec::new(), overrun: false }
    }

    /// Segments that are held now.
    pub fn held(&self) -> u64 {
        self.held.len()
    }

    /// Segments that may be held in all.
    pub fn allowed(&self) -> u64 {
        self.held.allowed()
    }

    /// The next segment; `None` where there is none, or as many are held as may be.
    pub fn take(&mut self) -> Option<Taken> {
        self.lanes.resize_with(self.ring.lanes() as usize, Position::default);
        let pinned = self.most_endangered()?;
        let position = &mut self.lanes[pinned.lane() as usize];
        let missed = position.reach(&pinned);
        let (again, last) = (pinned.again()?, pinned.again()?); // a million pins on one segment: not now
        self.held.put(again);
        position.last = Some(last);
        position.next = pinned.sequence() + 1;
        position.taken.insert(pinned.sequence());
        self.publish(pinned.lane());
        Some(Taken { pinned, missed })
    }

    /// A segment that was taken is needed no more.
    pub fn done(&mut self, id: SegmentId) {
        let Some(pinned) = self.held.take(id) else { return };
        let position = &mut self.lanes[id.lane as usize];
        position.taken.remove(&id.sequence);
        if pinned.committed().sealed && position.last.as_ref().is_some_and(|last| last.id() == id) {
            position.pass(&pinned);
            position.last = None;
        }
        drop(pinned);
        self.publish(id.lane);
    }

    /// From now on workers that can wait overrun it: what it can't take then it misses.
    pub fn let_workers_go(&mut self) {
        self.overrun = true;
        self.follower.needs_nothing();
    }

    /// What a lane published up to `published` packets and bytes, and was recycled before it could be taken: at the
    /// end, when nothing more is taken.
    pub fn rest(&self, lane: u32, published: (u64, u64)) -> Missed {
        let nothing = Position::default();
        let position = self.lanes.get(lane as usize).unwrap_or(&nothing);
        let (packet, bytes) = match position.last.as_ref().and_then(end) {
            Some((packet, bytes)) => (packet.max(position.packet), bytes.max(position.bytes)),
            None => (position.packet, position.bytes),
        };
        Missed {
            first_packet: packet,
            packets: published.0.saturating_sub(packet),
            bytes: published.1.saturating_sub(bytes),
        }
    }

    /// Passes over what was recycled by now before it could be taken: by lane, packets that are missed however soon the
    /// next one is taken.
    pub fn pass_recycled(&mut self) -> Vec<(u32, Missed)> {
        self.lanes.resize_with(self.ring.lanes() as usize, Position::default);
        let mut passed = Vec::new();
        for lane in 0..self.lanes.len() as u32 {
            let from = self.lanes[lane as usize].next;
            let Some(pinned) = self.first_left(lane).filter(|pinned| pinned.sequence() > from) else {
                continue;
            };
            let position = &mut self.lanes[lane as usize];
            let missed = position.reach(&pinned);
            position.next = pinned.sequence();
            self.publish(lane);
            if missed.packets > 0 {
                passed.push((lane, missed));
            }
        }
        passed
    }

    /// The first segment of a lane that wasn't taken, and still is there with a packet.
    fn first_left(&self, lane: u32) -> Option<Pinned> {
        let from = self.lanes[lane as usize].next.max(self.ring.oldest_possible(lane));
        let mut ids = (from..self.ring.lane_next(lane)).map(|sequence| self.ring.segment_id(lane, sequence));
        ids.find_map(|id| self.ring.pin(id)).filter(|pinned| pinned.committed().packets > 0)
    }

    /// Of each lane's next segment, where there is room for it, the one that was sealed first: it is recycled
    /// first.
    fn most_endangered(&self) -> Option<Pinned> {
        let mut best: Option<(u64, Pinned)> = None;
        for lane in (0..self.lanes.len() as u32).filter(|lane| self.held.has_room(*lane)) {
            let Some(pinned) = self.first_left(lane) else { continue };
            let order = pinned.times().map_or(u64::MAX, |times| times.sealed_order);
            if best.as_ref().is_none_or(|best| order < best.0) {
                best = Some((order, pinned));
            }
        }
        best.map(|(_, pinned)| pinned)
    }

    /// Tells workers that can wait which segments of the lane are still needed.
    fn publish(&self, lane: u32) {
        if self.overrun {
            return;
        }
        let position = &self.lanes[lane as usize];
        let needed = position.taken.first().copied().unwrap_or(position.next);
        self.follower.done_before(lane, needed.max(self.ring.oldest_possible(lane)));
    }
}

impl Position {
    /// Comes to a segment: what was missed in front of it.
    fn reach(&mut self, pinned: &Pinned) -> Missed {
        if let Some(last) = self.last.take() {
            self.pass(&last); // sealed: its lane has opened another since
        }
        let missed = Missed {
            first_packet: self.packet,
            packets: pinned.first_packet().saturating_sub(self.packet),
            bytes: pinned.bytes_before().saturating_sub(self.bytes),
        };
        self.packet = self.packet.max(pinned.first_packet());
        self.bytes = self.bytes.max(pinned.bytes_before());
        missed
    }

    /// Everything up to the end of a sealed segment was taken.
    fn pass(&mut self, sealed: &Pinned) {
        if let Some((packet, bytes)) = end(sealed) {
            self.packet = self.packet.max(packet);
            self.bytes = self.bytes.max(bytes);
        }
    }
}

/// Number of the first packet behind a sealed segment, and the lane's captured bytes up to there.
fn end(pinned: &Pinned) -> Option<(u64, u64)> {
    let bytes = pinned.bytes_after()?;
    Some((pinned.first_packet() + u64::from(pinned.committed().packets), bytes))
}
