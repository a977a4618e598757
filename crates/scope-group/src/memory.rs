//! The writing side of a seat: lanes of a small ring, in which nothing is recycled that its member hasn't read.

use crate::group::Given;
use crate::rules::TOGETHER;
use crate::seat::{Newcomer, Seat};
use scope_packet::pcapng::PacketBlock;
use scope_packet::segment::kept_bytes_max;
use scope_packet::{KeyEntry, LinkType, Moment};
use scope_ring::{Arrivals, Follower, Incoming, Interfaces, LaneWriter, Ring};
use scope_share::Progress;
use std::sync::Arc;
use std::time::Instant;

/// A lane of a member's memory.
struct Lane {
    writer: LaneWriter,
    /// The writer's index of each interface, by its number in the run.
    ports: Vec<Option<usize>>,
    /// A segment was sought in vain since the page was last looked at.
    is_full: bool,
}

/// Packets of one lane and interface of the run, one after another.
pub(crate) struct Picked<'a> {
    pub blocks: &'a [PacketBlock<'a>],
    pub keys: &'a [KeyEntry],
    /// Which of them.
    pub picks: &'a [u8],
    /// Bytes of each at most, where rules say so.
    pub keep: Option<&'a [u32; TOGETHER]>,
}

/// Packets that are looked at together, as they are to be appended.
#[derive(Clone, Copy)]
pub(crate) struct Looked<'a> {
    pub blocks: &'a [PacketBlock<'a>],
    /// Key entries, which have the mark in the place of the source.
    pub keys: &'a [KeyEntry],
    pub keep: Option<&'a [u32; TOGETHER]>,
}

impl Arrivals for Picked<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.picks.len()
    }

    #[inline(always)]
    fn packet(&self, index: usize) -> Incoming<'_> {
        let at = usize::from(self.picks[index]);
        let (block, data) = (&self.blocks[at], self.blocks[at].data());
        let kept = self.keep.map_or(data.len(), |keep| data.len().min(keep[at] as usize));
        Incoming { head: block.head(), key: &self.keys[at], data: &data[..kept] }
    }
}

/// What became of packets that were to be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    /// All are there.
    All,
    /// Only so many of them are: no segment is free.
    Full(usize),
    /// Only so many of them are: the next one is longer than any segment could keep.
    TooLong(usize),
}

/// Where packets of one member go.
pub(crate) struct Memory {
    pub seat: Arc<Seat>,
    pub newcomer: Newcomer,
    pub given: Given,
    follower: Arc<Follower>,
    lanes: Vec<Lane>,
    /// Something was appended since the last commit.
    is_touched: bool,
    /// What its page said last.
    said: Progress,
    /// When it was last seen to move, or had nothing to read.
    pub moved: Instant,
    /// The era that its clock is in.
    era: u64,
}

/// The lanes of a seat, which stay when its member goes.
pub(crate) struct Lanes(Vec<Lane>);

impl Lanes {
    /// None yet.
    pub fn new() -> Lanes {
        Lanes(Vec::new())
    }

    /// Ends them: what is there stays to be read.
    pub fn end(self, seat: &Seat) {
        drop(self);
        seat.memory().end_clock(0);
    }
}

impl Memory {
    /// Begins to give packets to a member: from what comes now on nothing is recycled that it hasn't read.
    pub fn begin(seat: &Arc<Seat>, newcomer: Newcomer, Lanes(lanes): Lanes, now: Instant) -> Memory {
        let memory = seat.memory();
        let follower = memory.follower(|lane| memory.lane_next(lane));
        Memory {
            seat: seat.clone(),
            newcomer,
            given: Given::default(),
            follower,
            lanes,
            is_touched: false,
            said: Progress::default(),
            moved: now,
            era: 0,
        }
    }

    /// Ends it; its lanes serve the next one.
    pub fn end(mut self) -> (Lanes, Given) {
        self.commit();
        for lane in &mut self.lanes {
            lane.writer.seal();
        }
        (Lanes(std::mem::take(&mut self.lanes)), self.given)
    }

    /// The lane of a link type, and in it the index of interface `number` of the run; `None`: there are too many of either.
    fn port(&mut self, run: &Ring, link_type: LinkType, number: u32) -> Option<(usize, usize)> {
        let lane = match self.lanes.iter().position(|lane| lane.writer.link_type() == link_type) {
            Some(lane) => lane,
            None => {
                let writer = self.seat.memory().open_lane(0, link_type)?;
                self.lanes.push(Lane { writer, ports: Vec::new(), is_full: false });
                self.lanes.len() - 1
            }
        };
        let ports = &self.lanes[lane].ports;
        if let Some(Some(index)) = ports.get(number as usize) {
            return Some((lane, *index));
        }
        self.describe(run, number)?;
        let Lane { writer, ports, .. } = &mut self.lanes[lane];
        let index = writer.add_interface(number);
        if ports.len() <= number as usize {
            ports.resize(number as usize + 1, None);
        }
        ports[number as usize] = Some(index);
        Some((lane, index))
    }

    /// Has the memory know all interfaces of the run up to this one, by the same numbers.
    fn describe(&self, run: &Ring, number: u32) -> Option<()> {
        let memory = self.seat.memory();
        let known = memory.interfaces_from(0).len() as u32;
        if number >= known {
            for entry in run.interfaces_from(known) {
                memory.adopt(entry)?;
            }
        }
        memory.interface(number).map(|_| ())
    }

    /// Appends packets of one interface of the run. Those that are left when it is full are not appended and not counted.
    #[inline]
    pub fn append(
        &mut self,
        run: &Ring,
        (link_type, number): (LinkType, u32),
        Looked { blocks, keys, keep }: Looked<'_>,
        picks: &[u8],
    ) -> Appended {
        let Some((lane, index)) = self.port(run, link_type, number) else { return Appended::Full(0) };
        self.is_touched = true;
        let lane = &mut self.lanes[lane];
        let most = lane.writer.kept_bytes_max();
        let all = Picked { blocks, keys, picks, keep };
        let long = match kept_bytes_max(run.segment_bytes()) > most {
            true => (0..picks.len()).find(|index| all.packet(*index).data.len() > most),
            false => None, // the run has none
        };
        let picked = Picked { picks: &picks[..long.unwrap_or(picks.len())], ..all };
        let mut from = 0;
        while from < picked.picks.len() {
            from += lane.writer.append_batch(index, &picked, from);
            if from == picked.picks.len() {
                break;
            }
            lane.is_full = lane.is_full || !lane.writer.claim_newest_unneeded();
            if lane.is_full {
                return Appended::Full(from);
            }
        }
        long.map_or(Appended::All, Appended::TooLong)
    }

    /// Counts packets that fell to it.
    #[inline]
    pub fn count(&mut self, packets: u64) {
        self.given.given += packets;
    }

    /// Passes over packets that found no room, which were counted.
    pub fn miss(&mut self, link_type: LinkType, packets: u64) {
        self.given.missed += packets;
        if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.writer.link_type() == link_type) {
            if lane.writer.is_open() {
                lane.writer.commit();
                lane.writer.seal();
            }
            lane.writer.skip(packets);
            self.is_touched = true;
        }
    }

    /// Makes visible what was appended; whether there was something.
    pub fn commit(&mut self) -> bool {
        if self.is_touched {
            for lane in &mut self.lanes {
                lane.writer.commit();
            }
        }
        std::mem::take(&mut self.is_touched)
    }

    /// Tells it, if it waits. One that was seen to wait, and wasn't told since, isn't looked at again.
    pub fn tell(&mut self) {
        if std::mem::take(&mut self.said.waits) || self.seat.page().read().is_some_and(|said| said.waits) {
            self.newcomer.tell();
        }
    }

    /// Says up to when all that there was is there.
    pub fn settle(&mut self, moment: Moment) {
        let memory = self.seat.memory();
        if moment.era > self.era && moment != Moment::END {
            self.era = moment.era;
            let lanes = self.lanes.iter().map(|lane| (lane.writer.lane(), lane.writer.next_packet()));
            memory.begin_era(0, moment.era, lanes);
        }
        memory.set_clock(0, moment.within(self.era));
    }

    /// Looks at its page: what it is done with may be recycled.
    pub fn look(&mut self, now: Instant) {
        let Some(said) = self.seat.page().read() else { return };
        let behind = self.given.standing(&said).behind;
        if said.read != self.said.read || behind == 0 {
            self.moved = now;
        }
        if said.done != self.said.done {
            for (lane, done) in self.lanes.iter_mut().zip(said.done) {
                let (number, next) = (lane.writer.lane(), self.seat.memory().lane_next(lane.writer.lane()));
                self.follower.done_before(number, done.min(next));
                lane.is_full = false;
            }
        }
        self.said = said;
    }
}
