//! Who writes which segment: of the ring's segments each goes to one volume, to the one with the fewest to
//! write.
//!
//! ```text
//! deal        segments as the ring's reader hands them out: the emptiest queue gets the next; no volume holds more than its
//!             share of the allowance; while some volumes fail, the others get all
//!             where a volume composes segments of its own, each gets many of a lane in a row: what it
//!             composes stands for numbers that follow each other
//! next_of     a volume takes the oldest of its queue
//! done        it is written, and let go
//! put_back    the volume failed before it was written: another one gets it, or the same one later
//! ```
//! A volume that stalls keeps what it has; what the others can't hold is recycled by the ring, and counted as
//! missed with the segment that follows.

use crate::report::Amount;
use scope_packet::SegmentId;
use scope_ring::{Missed, Pinned, Ring, SegmentReader};
use std::collections::VecDeque;

/// A segment on its way to a disk.
pub struct Job {
    /// The segment.
    pub pinned: Pinned,
    /// What was recycled directly before it.
    pub missed: Missed,
    /// What of it is safe already, and counted: its first packets. Some volume failed behind them.
    pub kept: Amount,
}

/// Segments of a lane that one volume gets in a row, where a volume composes.
const ROW: u32 = 256;

/// Deals segments out among volumes. All of them share one, behind a lock that no worker takes.
pub struct Dealer {
    reader: SegmentReader,
    queues: Vec<Queue>,
    /// Segments that one volume may have at a time.
    share: usize,
    /// Where volumes get segments in rows: of each lane, who had the last one, and how many in a row.
    rows: Option<Vec<(usize, u32)>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Handed to the volume, and not done.
    in_hand: usize,
    fails: bool,
}

impl Queue {
    fn len(&self) -> usize {
        self.waiting.len() + self.in_hand
    }
}

impl Dealer {
    /// For so many `volumes`, of what `reader` takes.
    pub fn new(reader: SegmentReader, volumes: usize) -> Dealer {
        let share = (reader.allowed() as usize / volumes.max(1)).max(1);
        Dealer { reader, queues: (0..volumes).map(|_| Queue::default()).collect(), share, rows: None }
    }

    /// From now on a volume gets many segments of a lane in a row.
    pub fn deal_in_rows(&mut self) {
        self.rows.get_or_insert_default();
    }

    /// Deals out what is there.
    pub fn deal(&mut self) {
        while let Some(volume) = self.emptiest() {
            let Some(taken) = self.reader.take() else { return };
            let volume = self.in_row(taken.pinned.lane(), volume);
            let job = Job { pinned: taken.pinned, missed: taken.missed, kept: Amount::default() };
            self.queues[volume].waiting.push_back(job);
        }
    }

    /// Who gets the next segment of a lane, if that goes in rows: `emptiest` is the volume with the fewest.
    fn in_row(&mut self, lane: u32, emptiest: usize) -> usize {
        let works = |queue: &Queue| queue.len() < self.share && !queue.fails;
        let Some(rows) = &mut self.rows else { return emptiest };
        if rows.len() <= lane as usize {
            rows.resize(lane as usize + 1, (emptiest, 0));
        }
        let (last, count) = rows[lane as usize];
        let others = self.queues.iter().enumerate().filter(|(other, queue)| *other != last && works(queue));
        let next = match count {
            ..ROW if works(&self.queues[last]) => last,
            _ => others.min_by_key(|(_, queue)| queue.len()).map_or(emptiest, |(other, _)| other),
        };
        rows[lane as usize] = (next, if next == last { count.saturating_add(1) } else { 1 });
        next
    }

    /// The next segment of a volume.
    pub fn next_of(&mut self, volume: usize) -> Option<Job> {
        let queue = &mut self.queues[volume];
        let job = queue.waiting.pop_front()?;
        queue.in_hand += 1;
        Some(job)
    }

    /// Segments that wait for the volume or are in its hands.
    pub fn queued(&self, volume: usize) -> usize {
        self.queues[volume].len()
    }

    /// Segments that one volume may have at a time.
    pub fn share(&self) -> usize {
        self.share
    }

    /// The segments that wait for the volume, the oldest first.
    pub fn waiting(&self, volume: usize) -> impl Iterator<Item = &Job> {
        self.queues[volume].waiting.iter()
    }

    /// The volume needs a segment no more.
    pub fn done(&mut self, volume: usize, id: SegmentId) {
        let queue = &mut self.queues[volume];
        queue.in_hand = queue.in_hand.saturating_sub(1);
        self.reader.done(id);
    }

    /// The volume couldn't write a segment: it is dealt again, in front of all others; also if it was
    /// `done` already, and only wasn't safe.
    pub fn put_back(&mut self, volume: usize, job: Job, done: bool) {
        let queue = &mut self.queues[volume];
        queue.in_hand = queue.in_hand.saturating_sub(usize::from(!done));
        self.reader.adopt(&job.pinned);
        let to = self.emptiest().unwrap_or(volume);
        self.queues[to].waiting.push_front(job);
    }

    /// Whether the volume fails now: then the others get its share, and what waits for it.
    pub fn set_failing(&mut self, volume: usize, fails: bool) {
        self.queues[volume].fails = fails;
        if fails && self.queues.iter().any(|queue| !queue.fails) {
            let mut waiting = std::mem::take(&mut self.queues[volume].waiting);
            while let Some(job) = waiting.pop_front() {
                match self.emptiest() {
                    Some(to) => self.queues[to].waiting.push_back(job),
                    None => {
                        waiting.push_front(job);
                        break;
                    }
                }
            }
            self.queues[volume].waiting = waiting;
        }
    }

    /// What was published up to the end, `(packets, bytes)` by lane, and could not be taken: when nothing more comes.
    pub fn rest(&self, ring: &Ring) -> Vec<(u32, Missed)> {
        let lanes = ring.counters().lanes;
        let rest = |(lane, published): (u32, &scope_ring::Published)| {
            (lane, self.reader.rest(lane, (published.packets, published.bytes)))
        };
        (0u32..).zip(&lanes).map(rest).filter(|(_, missed)| missed.packets > 0).collect()
    }

    /// Of the volumes that don't fail, the one with the fewest segments, if it may have another; where all
    /// fail, of all.
    fn emptiest(&self) -> Option<usize> {
        let works = self.queues.iter().any(|queue| !queue.fails);
        let may = |queue: &Queue| queue.len() < self.share && !(works && queue.fails);
        let able = self.queues.iter().enumerate().filter(|(_, queue)| may(queue));
        able.min_by_key(|(_, queue)| queue.len()).map(|(volume, _)| volume)
    }
}
