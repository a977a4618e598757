//! Who writes which segment: of the ring's segments each goes to one volume, to the one with the fewest to
//! write.
//!
//! ```text
//! deal        segments as the ring's reader hands them out: the emptiest queue gets the next; no volume holds more than its
//!             share of the allowance; while some volumes fail, the others get all
//!             where a volume composes segments of its own, each gets many of a lane in a row: what it
//!             composes stands for numbers that follow each other
//! next_of     a volume takes the oldest of its queue
//! done        it is safe, and let go
//! put_back    the volume failed before it was safe: another one gets it, or the same one later
//! ```
//! A volume that stalls keeps what its disk was given; what the others can't hold is recycled by the ring, and
//! counted as missed with the segment that follows.

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
    /// Its disk refuses.
    fails: bool,
    /// Its disk doesn't answer.
    stalls: bool,
    /// It takes nothing any more.
    over: bool,
}

impl Queue {
    fn len(&self) -> usize {
        self.waiting.len() + self.in_hand
    }

    fn works(&self) -> bool {
        !self.fails && !self.stalls && !self.over
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
        (0..self.queues.len()).for_each(|volume| self.move_on(volume));
        while let Some(volume) = self.emptiest() {
            let Some(taken) = self.reader.take() else { return };
            let volume = self.in_row(taken.pinned.lane(), volume);
            let job = Job { pinned: taken.pinned, missed: taken.missed, kept: Amount::default() };
            self.queues[volume].waiting.push_back(job);
        }
    }

    /// Who gets the next segment of a lane, if that goes in rows: `emptiest` is the volume with the fewest.
    fn in_row(&mut self, lane: u32, emptiest: usize) -> usize {
        let works = |queue: &Queue| queue.len() < self.share && queue.works();
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

    /// Whether the volume has nothing, and no other one has anything that it may still be given: of one that
    /// works all that isn't safe yet.
    pub fn is_quiet(&self, volume: usize) -> bool {
        let gives = |queue: &Queue| !queue.waiting.is_empty() || queue.works() && queue.in_hand > 0;
        self.queues[volume].len() == 0 && !self.queues.iter().any(gives)
    }

    /// Segments that one volume may have at a time.
    pub fn share(&self) -> usize {
        self.share
    }

    /// The segments that wait for the volume, the oldest first.
    pub fn waiting(&self, volume: usize) -> impl Iterator<Item = &Job> {
        self.queues[volume].waiting.iter()
    }

    /// A segment is safe, or given up: the volume needs it no more.
    pub fn done(&mut self, volume: usize, id: SegmentId) {
        let queue = &mut self.queues[volume];
        queue.in_hand = queue.in_hand.saturating_sub(1);
        self.reader.done(id);
    }

    /// The volume couldn't make a segment safe: it is dealt again, in front of all others.
    pub fn put_back(&mut self, volume: usize, job: Job) {
        let queue = &mut self.queues[volume];
        queue.in_hand = queue.in_hand.saturating_sub(1);
        let to = self.emptiest().unwrap_or(volume);
        self.queues[to].waiting.push_front(job);
    }

    /// Whether the volume fails now: then the others get its share, and what waits for it.
    pub fn set_failing(&mut self, volume: usize, fails: bool) {
        self.queues[volume].fails = fails;
        self.move_on(volume);
    }

    /// Whether the volume's disk doesn't answer now: the same, but for what the disk has already.
    pub fn set_stalling(&mut self, volume: usize, stalls: bool) {
        self.queues[volume].stalls = stalls;
        self.move_on(volume);
    }

    /// The volume takes nothing any more: what waits for it goes to the others, as far as they may have it; the
    /// rest is still its own. Whether it was the last one.
    pub fn end(&mut self, volume: usize) -> bool {
        self.queues[volume].over = true;
        self.move_on(volume);
        self.queues.iter().all(|queue| queue.over)
    }

    /// From now on workers that can wait don't wait for the volumes.
    pub fn let_workers_go(&mut self) {
        self.reader.let_workers_go();
    }

    /// What waits for a volume that doesn't work goes to those that do, as far as they may have it.
    fn move_on(&mut self, volume: usize) {
        if !self.queues[volume].works() && self.queues.iter().any(Queue::works) {
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

    /// What was recycled by now though no volume could take it, by lane: for the volume that is told with it, the first
    /// one that doesn't work, if there is one.
    pub fn pass_recycled(&mut self) -> (usize, Vec<(u32, Missed)>) {
        let idle = self.queues.iter().position(|queue| !queue.works());
        (idle.unwrap_or(0), self.reader.pass_recycled())
    }

    /// What was published up to the end, `(packets, bytes)` by lane, and could not be taken: when nothing more comes.
    pub fn rest(&self, ring: &Ring) -> Vec<(u32, Missed)> {
        let lanes = ring.counters().lanes;
        let rest = |(lane, published): (u32, &scope_ring::Published)| {
            (lane, self.reader.rest(lane, (published.packets, published.bytes)))
        };
        (0u32..).zip(&lanes).map(rest).filter(|(_, missed)| missed.packets > 0).collect()
    }

    /// Of the volumes that work, the one with the fewest segments, if it may have another; where none works,
    /// of all.
    fn emptiest(&self) -> Option<usize> {
        let any_works = self.queues.iter().any(Queue::works);
        let may = |queue: &Queue| !queue.over && queue.len() < self.share && (queue.works() || !any_works);
        let able = self.queues.iter().enumerate().filter(|(_, queue)| may(queue));
        able.min_by_key(|(_, queue)| queue.len()).map(|(volume, _)| volume)
    }
}
