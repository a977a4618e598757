//! Following the ring of another process: mapped read-only, without a pin, with exact loss.
//!
//! ```text
//! look      directory entry ─► record ─► committed ─► generation as before?
//! copy      look ─► copy ─► generation as before? ─► lend the copy
//! in place  look ─► lend offsets ─► the caller looks at the bytes ─► generation as before? else it forgets what it saw
//! overrun   the generation changed: forget what was copied or lent, go on at the oldest segment that is left; the packets
//!           between the place and its first packet are missed, and counted; none is left: everything published is
//! ```
//! So nothing that this reader does or leaves undone reaches the ring: no word of it is written, no segment is held. At any
//! moment, for each lane, `published - began = read + missed + behind`. A segment that the run holds while its directory
//! entry is used again is found by what its slot says.
//!
//! The memory is another process's: what stands in it is checked before it is used, and what is lent are bytes inside the
//! mappings, or a copy of them, whatever the words say.

mod error;
mod lent;
mod view;

pub use error::OutsideError;
pub use lent::{Lent, LentPacket};
pub use view::Bytes;

use crate::blocks::Blocks;
use crate::control::SegmentControl;
use crate::futex;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::{self, BLOCK_BYTES_MIN};
use scope_packet::segment::{FOOT_BYTES, entry_offset};
use scope_packet::{KeyEntry, LinkType, Moment};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use view::View;

/// Looks for the open segment of a lane before its end is taken for its place.
const TRIES_MAX: u32 = 100;
/// Sleep where nothing is new. Nobody wakes this reader, since it can't say that it waits: it looks as often as this.
const NAP: Duration = Duration::from_millis(1);

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With what comes from now on.
    Now,
    /// With the first segment that has a packet of this time, ns, or of a later one; `i64::MIN`: with the oldest.
    Since(i64),
    /// The same of so many ns before the run's own clock.
    Past(i64),
}

/// An interface of the run, as it is described there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideInterface {
    /// Link type.
    pub link_type: LinkType,
    /// `if_name`.
    pub name: String,
    /// `if_description`.
    pub description: String,
}

/// Packets of all lanes, since the reader began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideCounts {
    /// Packets in front of where it began.
    pub began: u64,
    /// Lent to it.
    pub read: u64,
    /// Recycled before it had them.
    pub missed: u64,
    /// Published and still to be read.
    pub behind: u64,
}

/// Packets of one lane, one after another: a copy, which is whole.
pub struct OutsideBatch<'a> {
    /// Lane.
    pub lane: u32,
    /// Link type of the lane.
    pub link_type: LinkType,
    /// Number in the lane of the first packet.
    pub first_packet: u64,
    /// Packets.
    pub packets: u32,
    /// Packets of the lane that were missed directly before these.
    pub missed_before: u64,
    bytes: &'a [u8],
}

impl<'a> OutsideBatch<'a> {
    /// The packet blocks.
    pub fn blocks(&self) -> Blocks<'a> {
        Blocks::new(self.bytes)
    }
}

/// What a slot says of its segment.
struct Record {
    /// The generation of the slot that it speaks of; 0: none yet.
    generation: u64,
    lane: u32,
    sequence: u64,
    first_packet: u64,
}

impl Record {
    /// Its words; they belong together if the slot is still at that generation.
    fn of(control: &SegmentControl) -> Record {
        let number = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Record {
            generation: control.generation.load(Ordering::Acquire), // before the words that it stands for
            lane: control.lane.load(Ordering::Relaxed),
            sequence: number(&control.sequence),
            first_packet: number(&control.first_packet),
        }
    }

    fn reading(&self, slot: u32) -> Reading {
        Reading { slot, generation: self.generation, first_packet: self.first_packet }
    }
}

/// A segment that is being read.
#[derive(Clone, Copy)]
struct Reading {
    slot: u32,
    generation: u64,
    first_packet: u64,
}

/// Where a reader stands in one lane.
#[derive(Default)]
struct Place {
    sequence: u64,
    packet: u64,
    bytes: u32,
    reading: Option<Reading>,
    began: u64,
    read: u64,
    missed: u64,
    /// Missed since the last batch.
    gap: u64,
}

impl Place {
    /// Counts everything before `packet` that wasn't read as missed.
    fn miss_until(&mut self, packet: u64) {
        let missed = packet.saturating_sub(self.packet);
        self.missed = self.missed.saturating_add(missed);
        self.gap = self.gap.saturating_add(missed);
        self.packet = self.packet.max(packet);
    }

    /// Goes on at the begin of another segment.
    fn stand_at(&mut self, sequence: u64) {
        if sequence != self.sequence {
            (self.sequence, self.bytes) = (sequence, 0);
        }
    }
}

/// What is new in a lane: packets one after another in one segment, which still had the generation that it is read at.
#[derive(Clone, Copy)]
struct Span {
    reading: Reading,
    /// Bytes of the segment.
    from: u32,
    to: u32,
    first_packet: u64,
    packets: u32,
}

/// A copy of what was new in a lane: it stands in the reader's buffer.
struct Found {
    first_packet: u64,
    packets: u32,
    missed_before: u64,
    /// Where it begins in the buffer, and how long it is.
    at: usize,
    len: usize,
}

/// Follows all lanes of a ring of another process.
pub struct OutsideReader {
    view: View,
    run_id: [u8; 16],
    /// From this time on; `None`: from now on.
    since_ns: Option<i64>,
    places: Vec<Place>,
    turn: usize,
    copy: Vec<u8>,
    /// Of each slot, whether its pages were entered: where packets are lent in place.
    entered: Vec<bool>,
    interfaces: Vec<OutsideInterface>,
    /// Bytes of descriptions that were read.
    interface_bytes: usize,
}

impl std::fmt::Debug for OutsideReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutsideReader").field("lanes", &self.places.len()).finish_non_exhaustive()
    }
}

impl OutsideReader {
    /// Maps the ring behind these files, as [`crate::Ring::sealed_files`] has them, and stands where it begins.
    ///
    /// # Errors
    /// They are no ring, or not sealed; or the system refuses the mapping.
    pub fn map([tables, slots]: [BorrowedFd<'_>; 2], begin: Begin) -> Result<OutsideReader, OutsideError> {
        Ok(OutsideReader::over(View::map(tables, slots)?, begin))
    }

    /// Stands where it begins.
    fn over(view: View, begin: Begin) -> OutsideReader {
        let run_id = view.run_id();
        let since_ns = match begin {
            Begin::Now => None,
            Begin::Since(since_ns) => Some(since_ns),
            Begin::Past(past_ns) => Some(view.clock_ns().saturating_sub(past_ns)),
        };
        let mut reader = OutsideReader {
            view,
            run_id,
            since_ns,
            places: Vec::new(),
            turn: 0,
            copy: Vec::new(),
            entered: Vec::new(),
            interfaces: Vec::new(),
            interface_bytes: 0,
        };
        reader.places = (0..reader.view.lanes()).map(|lane| reader.begin_in(lane)).collect();
        reader
    }

    /// The time from which on packets are wanted, ns; `None`: those that come from now on are.
    pub fn since_ns(&self) -> Option<i64> {
        self.since_ns
    }

    /// The run's 128 random bits.
    pub fn run_id(&self) -> [u8; 16] {
        self.run_id
    }

    /// Where it begins in a lane.
    fn begin_in(&self, lane: u32) -> Place {
        let mut place = match self.since_ns {
            None => self.newest(lane),
            Some(since_ns) => self.since(lane, since_ns),
        };
        place.began = place.packet;
        place
    }

    /// Behind all that is committed in a lane.
    fn newest(&self, lane: u32) -> Place {
        for _ in 0..TRIES_MAX {
            let Some(sequence) = self.view.next(lane).checked_sub(1) else { break };
            let Some(reading) = self.open(lane, sequence) else { continue };
            let committed = self.view.committed(reading.slot);
            if self.view.is_still(reading.slot, reading.generation) {
                let mut packet = reading.first_packet.saturating_add(u64::from(committed.packets));
                let published = self.view.published(lane);
                if committed.sealed && self.view.next(lane) == sequence.saturating_add(1) {
                    packet = packet.max(published); // what found no segment behind it was before now, too
                }
                return Place { sequence, packet, bytes: committed.bytes, ..Place::default() };
            }
        }
        // It has none, or turns faster than this looks.
        let packet = self.view.published(lane);
        Place { sequence: self.view.next(lane), packet, ..Place::default() }
    }

    /// At the first segment of a lane that has packets as late as that.
    fn since(&self, lane: u32, since_ns: i64) -> Place {
        let next = self.view.next(lane);
        for sequence in next.saturating_sub(self.view.segments() as u64)..next {
            let Some(reading) = self.open(lane, sequence) else { continue };
            let is_past =
                self.view.committed(reading.slot).packets > 0 && self.view.max_ns(reading.slot) < since_ns;
            if !is_past && self.view.is_still(reading.slot, reading.generation) {
                return Place { sequence, packet: reading.first_packet, ..Place::default() };
            }
        }
        self.newest(lane)
    }

    /// The segment with this number, if it is there.
    fn open(&self, lane: u32, sequence: u64) -> Option<Reading> {
        let (slot, generation) = self.view.find(lane, sequence)?;
        let record = self.view.record(slot);
        let is_it = record.generation == generation && (record.lane, record.sequence) == (lane, sequence);
        (is_it && self.view.is_still(slot, generation)).then(|| record.reading(slot))
    }

    /// The first segment among `sequences` of a lane that no directory entry leads to any more, since somebody has held it
    /// for a turn.
    #[cold]
    fn held(&self, lane: u32, sequences: Range<u64>) -> Option<(u64, Reading)> {
        let held = |slot: u32| {
            let record = self.view.record(slot);
            let is_one = record.lane == lane && sequences.contains(&record.sequence);
            let is_there = is_one && record.generation != 0 && self.view.is_still(slot, record.generation);
            is_there.then(|| (record.sequence, record.reading(slot)))
        };
        (0..self.view.segments() as u32).filter_map(held).min_by_key(|(sequence, _)| *sequence)
    }

    /// A copy of the next packets of some lane, lanes in turn; `None`: nothing new at the moment.
    ///
    /// # Errors
    /// What stands in the ring can't be so.
    pub fn next_batch(&mut self) -> Result<Option<OutsideBatch<'_>>, OutsideError> {
        let Some((lane, found)) = self.in_turn(OutsideReader::copy_next)? else { return Ok(None) };
        let Found { first_packet, packets, missed_before, at, len } = found;
        let link_type = LinkType(self.view.link_type(lane));
        let bytes = self.copy.get(at..at + len).unwrap_or_default();
        Ok(Some(OutsideBatch { lane, link_type, first_packet, packets, missed_before, bytes }))
    }

    /// The next packets of some lane in place, lanes in turn, at most `packets_max`; `None`: nothing new at the moment.
    /// Whoever has looked at them asks [`OutsideReader::is_whole`], and if they aren't, [`OutsideReader::forget`]s them.
    ///
    /// # Errors
    /// What stands in the ring can't be so.
    pub fn lend(&mut self, packets_max: u32) -> Result<Option<Lent>, OutsideError> {
        let lent = self.in_turn(|reader, lane| reader.lend_next(lane, packets_max))?;
        Ok(lent.map(|(_, lent)| lent))
    }

    /// The first that `next` has of a lane, lanes in turn.
    fn in_turn<T>(
        &mut self,
        mut next: impl FnMut(&mut OutsideReader, u32) -> Result<Option<T>, OutsideError>,
    ) -> Result<Option<(u32, T)>, OutsideError> {
        // Of a lane that is new all packets are.
        let lanes = self.view.lanes() as usize;
        self.places.resize_with(lanes.max(self.places.len()), Place::default);
        let lanes = self.places.len();
        for step in 0..lanes {
            let lane = (self.turn + step) % lanes;
            if let Some(found) = next(self, lane as u32)? {
                self.turn = lane + 1;
                return Ok(Some((lane as u32, found)));
            }
        }
        Ok(None)
    }

    /// One look at a lane: what is new there.
    fn look(&mut self, lane: u32) -> Result<Option<Span>, OutsideError> {
        // A turn of the ring, and once more: what turns faster than this looks is looked at the next time.
        for _ in 0..self.view.segments() + 2 {
            let place = &self.places[lane as usize];
            let Some(reading) = place.reading.or_else(|| self.step_on(lane)) else { return Ok(None) };
            let Reading { slot, generation, first_packet } = reading;
            let committed = self.view.committed(slot);
            if !self.view.is_still(slot, generation) {
                self.places[lane as usize].reading = None;
                continue;
            }
            let place = &mut self.places[lane as usize];
            place.reading = Some(reading);
            if committed.bytes <= place.bytes {
                if !committed.sealed {
                    return Ok(None);
                }
                place.reading = None;
                place.stand_at(place.sequence.saturating_add(1));
                continue;
            }
            let (from, to) = (place.bytes, committed.bytes);
            if to as usize > self.view.segment_bytes() - FOOT_BYTES || !to.is_multiple_of(4) {
                return Err(OutsideError::Untrue("a segment has more bytes than it can have"));
            }
            let end = first_packet.saturating_add(u64::from(committed.packets));
            let packets = end.checked_sub(place.packet).and_then(|packets| u32::try_from(packets).ok());
            let packets = packets.ok_or(OutsideError::Untrue("packets of a segment are numbered wrongly"))?;
            return Ok(Some(Span { reading, from, to, first_packet: place.packet, packets }));
        }
        Ok(None)
    }

    /// Goes on behind what was read, and says how many packets were missed directly before it.
    fn take(&mut self, lane: u32, packets: u32, to: u32) -> u64 {
        let place = &mut self.places[lane as usize];
        place.bytes = to;
        place.packet = place.packet.saturating_add(u64::from(packets));
        place.read = place.read.saturating_add(u64::from(packets));
        std::mem::take(&mut place.gap)
    }

    /// Copies what is new in a lane.
    fn copy_next(&mut self, lane: u32) -> Result<Option<Found>, OutsideError> {
        // As often as a look tries: what is overrun while it is copied is found again at the oldest that is left.
        for _ in 0..self.view.segments() + 2 {
            let Some(span) = self.look(lane)? else { return Ok(None) };
            let Span { reading: Reading { slot, generation, .. }, from, to, first_packet, packets } = span;
            let len = (to - from) as usize;
            let at = self.view.copy(slot, from as usize..to as usize, &mut self.copy);
            if !self.view.is_still(slot, generation) {
                self.places[lane as usize].reading = None; // overrun: what was copied is forgotten
                continue;
            }
            let bytes = self.copy.get(at..at + len).unwrap_or_default();
            let (counted, whole) = Blocks::new(bytes)
                .fold((0, 0), |(count, bytes), block| (count + 1u32, bytes + block.bytes().len()));
            if (counted, whole) != (packets, bytes.len()) {
                return Err(OutsideError::Untrue("a segment has other packets than it says"));
            }
            let missed_before = self.take(lane, packets, to);
            return Ok(Some(Found { first_packet, packets, missed_before, at, len }));
        }
        Ok(None)
    }

    /// Lends what is new in a lane, or the first packets of it.
    fn lend_next(&mut self, lane: u32, packets_max: u32) -> Result<Option<Lent>, OutsideError> {
        for _ in 0..self.view.segments() + 2 {
            let Some(span) = self.look(lane)? else { return Ok(None) };
            let Span { reading, from, to, first_packet, packets } = span;
            let index = first_packet.checked_sub(reading.first_packet);
            let index = index.and_then(|index| u32::try_from(index).ok()).unwrap_or(u32::MAX);
            let place =
                self.view.place_of(reading.slot).ok_or(OutsideError::Untrue("there is no such slot"))?;
            self.enter(reading.slot);
            let mut lent = Lent {
                lane,
                link_type: LinkType(self.view.link_type(lane)),
                first_packet,
                packets: packets.min(packets_max.max(1)),
                missed_before: 0,
                slot: reading.slot,
                base: place.start,
                entries_end: place.start + entry_offset(place.len(), 0) + KEY_ENTRY_BYTES,
                generation: reading.generation,
                index,
                from,
                to,
            };
            if lent.packets < packets {
                // The entry of the packet behind them says where it begins.
                let end = self.key(&lent, lent.packets).map(|key| key.offset());
                if !self.is_whole(&lent) {
                    self.places[lane as usize].reading = None;
                    continue;
                }
                let end = end.filter(|end| (from + 1..to).contains(end));
                lent.to = end.ok_or(OutsideError::Untrue("an entry of a segment leads nowhere"))?;
            }
            lent.missed_before = self.take(lane, lent.packets, lent.to);
            return Ok(Some(lent));
        }
        Ok(None)
    }

    /// Has the pages of a slot entered once.
    fn enter(&mut self, slot: u32) {
        self.entered.resize(self.view.segments(), false);
        if let Some(entered) = self.entered.get_mut(slot as usize).filter(|entered| !**entered) {
            *entered = true;
            self.view.enter(slot);
        }
    }

    /// Whether nobody has claimed the segment since it was lent: then all that was read of it up to now is as it was
    /// written.
    pub fn is_whole(&self, lent: &Lent) -> bool {
        self.view.is_still(lent.slot, lent.generation)
    }

    /// Counts the packets as missed: they were overrun while somebody looked at them. They are missing before the next
    /// ones, and so is what was missed before them.
    pub fn forget(&mut self, lent: &Lent) {
        let Some(place) = self.places.get_mut(lent.lane as usize) else { return };
        let packets = u64::from(lent.packets).min(place.read);
        place.read -= packets;
        place.missed = place.missed.saturating_add(packets);
        place.gap = place.gap.saturating_add(packets).saturating_add(lent.missed_before);
    }

    /// The packet whose block begins `at` bytes behind the segment's begin; `None`: none does that ends within what is
    /// lent.
    #[inline(always)]
    pub fn packet(&self, lent: &Lent, at: u32) -> Option<LentPacket<'_>> {
        if at < lent.from || !at.is_multiple_of(4) {
            return None;
        }
        LentPacket::read(self.behind(lent, at)?)
    }

    /// What is lent from `at` bytes behind the segment's begin on.
    #[inline(always)]
    fn behind(&self, lent: &Lent, at: u32) -> Option<Bytes<'_>> {
        self.view.bytes(lent.base + at as usize..lent.base + lent.to as usize)
    }

    /// Asks for a packet that is looked at a little later, without waiting for it.
    #[inline(always)]
    pub fn fetch(&self, lent: &Lent, at: u32) {
        if let Some(bytes) = self.behind(lent, at) {
            bytes.fetch();
        }
    }

    /// Asks for the key entry of a packet, which says where it begins, without waiting for it.
    #[inline(always)]
    pub fn fetch_entry(&self, lent: &Lent, index: u32) {
        let entries = (lent.index as usize + index as usize + 1) * KEY_ENTRY_BYTES;
        if let Some(at) = lent.entries_end.checked_sub(entries)
            && let Some(bytes) = self.view.bytes(at..lent.entries_end)
        {
            bytes.fetch_begin();
        }
    }

    /// The key entry of packet `index` of those that are lent, or of one behind them; `None`: there can't be so many.
    #[inline(always)]
    pub fn key(&self, lent: &Lent, index: u32) -> Option<KeyEntry> {
        let entries = lent.index as usize + index as usize + 1;
        let at = lent.entries_end.checked_sub(entries * KEY_ENTRY_BYTES).filter(|at| *at >= lent.base)?;
        let words = self.view.bytes(at..at + KEY_ENTRY_BYTES)?.le32s::<{ KEY_ENTRY_BYTES / 4 }>()?;
        let number = words.iter().rev().fold(0u128, |number, word| number << 32 | u128::from(*word));
        Some(KeyEntry::from_bytes(&number.to_le_bytes()))
    }

    /// The segment at the place, or the oldest one that is left, and counts what was missed on the way.
    fn step_on(&mut self, lane: u32) -> Option<Reading> {
        let published = self.view.published(lane); // looked at first: these lie in segments below `next`
        let next = self.view.next(lane);
        let oldest = next.saturating_sub(self.view.segments() as u64);
        let wanted = self.places[lane as usize].sequence;
        let held = (wanted < oldest).then(|| self.held(lane, wanted..oldest)).flatten();
        let mut listed = wanted.max(oldest)..next;
        let found = held.or_else(|| listed.find_map(|sequence| Some((sequence, self.open(lane, sequence)?))));
        let place = &mut self.places[lane as usize];
        if let Some((sequence, reading)) = found {
            place.stand_at(sequence);
            place.miss_until(reading.first_packet);
            return Some(reading);
        }
        if place.sequence < next {
            place.stand_at(next); // all that the lane had is recycled: it has paused, or ended, while others went on
            place.miss_until(published);
        }
        None
    }

    /// All lanes together.
    pub fn counts(&self) -> OutsideCounts {
        let mut counts = OutsideCounts::default();
        for (lane, place) in (0..).zip(&self.places) {
            let behind = self.view.published(lane).saturating_sub(place.packet);
            counts.began = counts.began.saturating_add(place.began);
            counts.read = counts.read.saturating_add(place.read);
            counts.missed = counts.missed.saturating_add(place.missed);
            counts.behind = counts.behind.saturating_add(behind);
        }
        counts
    }

    /// Of each of the first lanes the number of the first segment that it still needs.
    pub fn done<const LANES: usize>(&self) -> [u64; LANES] {
        std::array::from_fn(|lane| self.places.get(lane).map_or(0, |place| place.sequence))
    }

    /// Up to where every worker of the run has committed what it had, and how many packets each lane had then: whoever has
    /// read so many has all packets up to there.
    pub fn settled(&self) -> (Moment, Vec<u64>) {
        let moment = self.view.settled(); // before the counts: they cover it
        (moment, (0..self.view.lanes()).map(|lane| self.view.published(lane)).collect())
    }

    /// Whether the run has said that nothing more comes: what is committed is all there will be.
    pub fn has_ended(&self) -> bool {
        self.view.settled() == Moment::END
    }

    /// Whether it has read so many packets of each lane, or missed them.
    pub fn has_read(&self, packets: &[u64]) -> bool {
        packets.len() <= self.places.len() && self.unread(packets) == 0
    }

    /// How many it has neither read nor missed of so many packets of each lane.
    pub fn unread(&self, packets: &[u64]) -> u64 {
        let read = |lane: usize| self.places.get(lane).map_or(0, |place| place.packet);
        let each = packets.iter().enumerate().map(|(lane, packets)| packets.saturating_sub(read(lane)));
        each.fold(0, u64::saturating_add)
    }

    /// Naps until something may have come.
    pub fn nap(&self) {
        futex::nap(NAP);
    }

    /// The interfaces that the run knows by now, in the order of their numbers.
    ///
    /// # Errors
    /// What stands in the ring can't be so.
    pub fn interfaces(&mut self) -> Result<&[OutsideInterface], OutsideError> {
        if self.interfaces.len() < self.view.interfaces_known() as usize {
            let bytes = self.view.interfaces(self.interface_bytes);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (interface, len) =
                    interface(rest).ok_or(OutsideError::Untrue("its interfaces are described wrongly"))?;
                self.interfaces.push(interface);
                self.interface_bytes += len;
                rest = &rest[len..];
            }
        }
        Ok(&self.interfaces)
    }
}

/// The description at the start of `bytes`, and how long it is.
fn interface(bytes: &[u8]) -> Option<(OutsideInterface, usize)> {
    if bytes.len() < BLOCK_BYTES_MIN + 8 || pcapng::le32(bytes, 0) != pcapng::INTERFACE {
        return None;
    }
    let len = pcapng::le32(bytes, 4) as usize;
    let body = bytes.get(8..len.checked_sub(4)?).filter(|body| len.is_multiple_of(4) && body.len() >= 8)?;
    let (mut name, mut description) = (String::new(), String::new());
    pcapng::options(&body[8..], false, |code, value| match code {
        2 => name = String::from_utf8_lossy(value).into_owned(),
        3 => description = String::from_utf8_lossy(value).into_owned(),
        _ => {}
    });
    let link_type = LinkType(u16::from_le_bytes([body[0], body[1]]));
    Some((OutsideInterface { link_type, name, description }, len))
}

#[cfg(test)]
mod tests;
