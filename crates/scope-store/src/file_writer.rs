//! One growing file of the store: a state machine over [`Disk`] that never waits for a write.
//!
//! ```text
//! create   NAME.part, reserve, names synced, head begun
//! flush    pages of open segments begun ─► all so far have finished ─► sync begun ─► it is back: kept
//! close    the closed segment begun, as soon as no write of its slot is under way
//! retire   the slot of a segment that another file has by now becomes padding
//! cut      a segment that the ring recycled too early is read back, and closed where its last flush ended
//! end      no slot is open ─► index ─► truncate ─► sync ─► rename ─► names synced
//! ```
//! What is kept survives a loss of power. A flush promises everything that the file was given before it; the
//! next one waits until its sync is back, so that of the two flush records of a slot one is always safe.
//! Closed segments are written meanwhile, and are kept with the sync of the next flush, or of the end.
//!
//! A segment has one slot in a file, from its first flush or its closing on. What has no place in the file,
//! since it is full or an interface is newer than its head, comes back to the caller, who begins a new file.
//! An open segment moves there, too: once the new file has kept it, its slot here is retired.
//!
//! An error of the disk ends the file. It stays as it is, with its growing name, for recovery; all pins are
//! given back as soon as the disk has finished with them.

use crate::closing::{self, Holds};
use crate::disk::{self, Act, Begun, Bytes, Disk, FileNumber, Finished, PAGE_BYTES, Pages};
use crate::head::Head;
use crate::index::{self, Entry};
use crate::outgoing::Outgoing;
use crate::salvage::{self, Proof};
use crate::slot::{self, Flushed, Put};
use scope_packet::pcapng::{self, BLOCK_BYTES_MIN, le32};
use scope_packet::segment::{FOOT_BYTES, Foot, SegmentId};
use scope_ring::{Committed, Summaries};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file is to be.
pub struct FilePlan<'a> {
    /// The name that it gets when it is whole, below the volume's folder.
    pub name: PathBuf,
    /// Its head.
    pub head: &'a Head,
    /// Most bytes of it, head and index included.
    pub bytes_max: u64,
    /// Those of the ring that its segments are of, if somebody else uses them, too.
    pub summaries: Option<Arc<Summaries>>,
}

/// Packets that a loss of power can't take any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Of which segment.
    pub id: SegmentId,
    /// Their numbers in the lane. Empty where only the end of the segment is new.
    pub packets: Range<u64>,
    /// Whether the segment is closed.
    pub closed: bool,
}

/// What became of a segment that was given.
#[must_use]
pub enum Given {
    /// It is on its way.
    Taken,
    /// It has no place in this file.
    Full(Outgoing),
}

/// How far a file is.
#[derive(Debug)]
pub enum Stage {
    /// It takes segments.
    Growing,
    /// It takes no further segment, and ends as soon as those that it has are closed or retired.
    Ending,
    /// It has its name.
    Whole,
    /// Nothing came into it, or all of it moved on: it was removed.
    Removed,
    /// The disk failed it.
    Failed(io::Error),
}

enum SlotState {
    Open,
    Closed(Box<Entry>),
    Empty,
}

struct Slot {
    id: SegmentId,
    first_packet: u64,
    state: SlotState,
    /// Packets that were flushed.
    flushed: u32,
    /// Packets that the file was given: those of a closed segment that waits, too.
    given: u32,
    /// Packets that are kept, and whether the closed segment is.
    kept: u32,
    kept_closed: bool,
    /// Writes under way.
    writes: u32,
    /// It was given a composed segment as closed: that says more than its packets.
    states: bool,
}

/// A flush under way.
enum Round {
    /// Until no write is under way whose tag is smaller than this.
    Writing(u64),
    Syncing(Vec<(usize, Kept)>),
}

/// What waits until no write of its slot is under way.
enum Waiting {
    Close(usize, Outgoing),
    Retire(usize),
    Cut(usize),
}

/// What is under way.
enum Pending {
    Head,
    Slot(usize),
    Index(u64),
    Sync,
    LastSync(Vec<(usize, Kept)>),
}

/// A growing file.
pub struct FileWriter {
    file: FileNumber,
    name: PathBuf,
    summaries: Option<Arc<Summaries>>,
    segment_bytes: usize,
    head_bytes: u64,
    interfaces: u32,
    slots_max: usize,
    reserve: u64,
    stage: Stage,
    slots: Vec<Slot>,
    /// The open ones, and what was flushed of them.
    open: BTreeMap<SegmentId, (usize, Option<Box<Flushed>>)>,
    pending: BTreeMap<u64, Pending>,
    waiting: Vec<Waiting>,
    round: Option<Round>,
    /// Length of the whole file, once it is known.
    bytes: u64,
    /// From the first to the last time of closed segments that it was given, ns.
    span_ns: Option<(i64, i64)>,
    kept: Vec<Kept>,
    written: Vec<SegmentId>,
    begun: u64,
    /// The index is begun: nothing comes in any more.
    closing: bool,
    /// The disk has closed it.
    over: bool,
}

/// The file that something begun is of.
pub fn file_of(begun: &Begun) -> FileNumber {
    match begun.act {
        Act::Write { file, .. } | Act::Sync { file } => file,
    }
}

/// Slots of `segment_bytes` that a file of `bytes_max` has room for behind a head of `head_bytes`.
pub fn slots_in(bytes_max: u64, head_bytes: u64, segment_bytes: usize) -> usize {
    let mut slots = (bytes_max.saturating_sub(head_bytes) / segment_bytes as u64) as usize;
    while slots > 0 && file_bytes(slots, head_bytes, segment_bytes) > bytes_max {
        slots -= 1;
    }
    slots
}

fn file_bytes(slots: usize, head_bytes: u64, segment_bytes: usize) -> u64 {
    head_bytes + (slots * segment_bytes) as u64 + index::bytes_of(slots, segment_bytes)
}

impl FileWriter {
    /// Makes the file, with its growing name, and begins its head. The names are safe when this returns.
    pub fn create(disk: &mut dyn Disk, plan: FilePlan<'_>) -> io::Result<FileWriter> {
        let head = plan.head.write();
        let segment_bytes = plan.head.segment_bytes as usize;
        let slots_max = slots_in(plan.bytes_max, head.len() as u64, segment_bytes);
        if slots_max == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a file of at most {} bytes has no room for a segment", plan.bytes_max),
            ));
        }
        let growing = closing::growing(&plan.name);
        let mut writer = FileWriter {
            file: disk.create(&growing)?,
            segment_bytes,
            head_bytes: head.len() as u64,
            interfaces: plan.head.interfaces.len() as u32,
            slots_max,
            reserve: file_bytes(slots_max, head.len() as u64, segment_bytes),
            name: plan.name,
            summaries: plan.summaries,
            stage: Stage::Growing,
            slots: Vec::new(),
            open: BTreeMap::new(),
            pending: BTreeMap::new(),
            waiting: Vec::new(),
            round: None,
            bytes: 0,
            span_ns: None,
            kept: Vec::new(),
            written: Vec::new(),
            begun: 0,
            closing: false,
            over: false,
        };
        match writer.begin_file(disk, &head) {
            Ok(()) => Ok(writer),
            Err(error) => {
                disk.close(writer.file);
                let _ = disk.remove(&growing); // it holds nothing; what stays is recovery's to remove
                Err(error)
            }
        }
    }

    fn begin_file(&mut self, disk: &mut dyn Disk, head: &[u8]) -> io::Result<()> {
        disk.reserve(self.file, self.reserve)?;
        disk.sync_names(self.folder())?;
        disk.sync_names(Path::new(""))?; // the day's folder itself may be new
        let mut pages = Pages::zeroed(head.len() / PAGE_BYTES);
        pages.as_mut_slice().copy_from_slice(head);
        self.write(disk, 0, Bytes::Own(pages), Pending::Head)
    }

    /// By what the disk knows it: whose [`Finished`] it wants.
    pub fn file(&self) -> FileNumber {
        self.file
    }

    /// The name that it gets.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// How far it is.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Whether it has come to its end, one way or the other, and the disk has nothing of it any more.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Bytes that it may take in the end: what is reserved.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve
    }

    /// Length of the file, once it is whole.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Smallest and largest time of the closed segments that it was given, ns.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        self.span_ns
    }

    /// What it holds so far in closed segments.
    pub fn holds(&self) -> Holds {
        let mut holds = Holds::default();
        self.entries().for_each(|entry| holds.add(&entry.foot));
        holds
    }

    /// Packets that are kept since the last call.
    pub fn take_kept(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.kept)
    }

    /// Closed segments whose last write has finished since the last call: the file needs their bytes no more.
    /// They are kept with the next sync.
    pub fn take_written(&mut self) -> Vec<SegmentId> {
        std::mem::take(&mut self.written)
    }

    /// Packets that it was given and that aren't kept: of a file that failed, those that must be given to
    /// another one. Of a composed segment also none, where what was left out of it isn't safe.
    pub fn unkept(&self) -> impl Iterator<Item = (SegmentId, Range<u64>)> + '_ {
        self.slots.iter().filter_map(|slot| {
            let stays = !matches!(slot.state, SlotState::Empty);
            let is_new = slot.given > slot.kept || slot.states && !slot.kept_closed;
            (stays && is_new).then(|| (slot.id, slot.numbers(slot.given)))
        })
    }

    /// Whether anything in it is safe.
    pub fn has_kept(&self) -> bool {
        self.slots.iter().any(|slot| slot.kept > 0)
    }

    /// Whether it has a slot of a segment, open or closed, and may still keep it.
    pub fn has(&self, id: SegmentId) -> bool {
        let stays = |slot: &Slot| slot.id == id && !matches!(slot.state, SlotState::Empty);
        self.is_growing() && self.slots.iter().any(stays)
    }

    /// Whether it was given the closed segment, and may still keep it.
    pub fn has_closed(&self, id: SegmentId) -> bool {
        let waits = |waiting: &Waiting| matches!(waiting, Waiting::Close(_, segment) if segment.id() == id);
        self.has(id) && (!self.has_open(id) || self.waiting.iter().any(waits))
    }

    /// Whether a segment has an open slot here.
    pub fn has_open(&self, id: SegmentId) -> bool {
        self.open.contains_key(&id)
    }

    /// Segments that have an open slot here.
    pub fn open_segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.open.keys().copied()
    }

    /// Whether a flush is under way: the next one waits.
    pub fn is_flushing(&self) -> bool {
        self.round.is_some()
    }

    /// Takes a sealed segment, of the file's segment size and link type, which becomes its slot as soon as it
    /// can. A segment that says nothing leaves nothing.
    pub fn close(&mut self, disk: &mut dyn Disk, segment: impl Into<Outgoing>) -> Given {
        let segment = segment.into();
        let committed = segment.committed();
        if segment.is_empty() {
            return Given::Taken;
        }
        let Some(index) = self.slot_for(&segment, committed).filter(|&index| !self.is_waiting(index)) else {
            return Given::Full(segment);
        };
        self.slots[index].given = committed.packets;
        self.slots[index].states = segment.is_composed();
        if let Some(foot) = segment.sealed_foot() {
            self.widen(&foot);
        }
        self.waiting.push(Waiting::Close(index, segment));
        self.go_on(disk);
        Given::Taken
    }

    /// Begins a flush: of these open segments, and of everything that was closed before. Returns the
    /// segments that have no place here. `None`: the last flush is still under way.
    pub fn flush(
        &mut self,
        disk: &mut dyn Disk,
        segments: Vec<impl Into<Outgoing>>,
    ) -> Option<Vec<Outgoing>> {
        if self.is_flushing() {
            return None;
        }
        let (mut full, mut is_restated) = (Vec::new(), false);
        for segment in segments.into_iter().map(Into::into) {
            let committed = segment.committed();
            if committed.packets == 0 {
                continue;
            }
            match self.slot_for(&segment, committed) {
                None => full.push(segment),
                Some(index) if self.is_waiting(index) => {} // what waits has more than a flush would
                Some(index) => is_restated |= self.flush_slot(disk, index, &segment, committed),
            }
        }
        if self.is_growing() && !self.closing && (is_restated || self.unkept().next().is_some()) {
            self.round = Some(Round::Writing(self.begun));
        }
        self.go_on(disk);
        Some(full)
    }

    /// Whether something is written; its foot may say more of the packets that it has.
    fn flush_slot(
        &mut self,
        disk: &mut dyn Disk,
        index: usize,
        segment: &Outgoing,
        committed: Committed,
    ) -> bool {
        let open = self.open.get_mut(&segment.id());
        let puts = open.and_then(|(_, flushed)| flushed.get_or_insert_default().flush(segment, committed));
        let Some(puts) = puts else { return false };
        self.slots[index].flushed = committed.packets;
        self.slots[index].given = committed.packets;
        self.put(disk, index, puts);
        true
    }

    /// Gives up the open slot of a segment, which another file has kept by now.
    pub fn retire(&mut self, disk: &mut dyn Disk, id: SegmentId) {
        self.leave(disk, id, Waiting::Retire);
    }

    /// Closes the open slot of a segment where its last flush ended: the ring has it no more.
    pub fn cut(&mut self, disk: &mut dyn Disk, id: SegmentId) {
        self.leave(disk, id, Waiting::Cut);
    }

    fn leave(&mut self, disk: &mut dyn Disk, id: SegmentId, how: fn(usize) -> Waiting) {
        let open = self.open.get(&id).map(|&(index, _)| index);
        if let Some(index) = open.filter(|&index| !self.is_waiting(index)) {
            self.waiting.push(how(index));
            self.go_on(disk);
        }
    }

    /// Ends the file as soon as its open slots are closed or retired.
    pub fn end(&mut self, disk: &mut dyn Disk) {
        if matches!(self.stage, Stage::Growing) {
            self.stage = Stage::Ending;
            self.go_on(disk);
        }
    }

    /// Something of this file has finished.
    pub fn finished(&mut self, disk: &mut dyn Disk, finished: Finished) {
        let Some(pending) = self.pending.remove(&finished.begun.tag) else { return };
        if let Pending::Slot(index) = pending {
            let slot = &mut self.slots[index];
            slot.writes -= 1;
            if slot.writes == 0 && matches!(slot.state, SlotState::Closed(_)) {
                self.written.push(slot.id);
            }
        }
        if let Err(error) = finished.result {
            self.fail(error);
        }
        if self.is_growing() {
            let done = match pending {
                Pending::Head | Pending::Slot(_) => Ok(()),
                Pending::Sync => {
                    if let Some(Round::Syncing(kept)) = self.round.take() {
                        self.keep(kept);
                    }
                    Ok(())
                }
                Pending::Index(bytes) => self.begin_last_sync(disk, bytes),
                Pending::LastSync(kept) => {
                    self.keep(kept);
                    self.give_name(disk)
                }
            };
            if let Err(error) = done {
                self.fail(error);
            }
        }
        self.go_on(disk);
    }

    /// The slot of a segment, the one that it has or a new one. `None`: it has no place.
    fn slot_for(&mut self, segment: &Outgoing, committed: Committed) -> Option<usize> {
        let open = self.open.get(&segment.id());
        let flushed =
            open.and_then(|(_, flushed)| flushed.as_ref()).map_or(0, |flushed| flushed.block_bytes());
        let takes = match self.stage {
            Stage::Growing => open.is_some() || self.slots.len() < self.slots_max,
            Stage::Ending => open.is_some(),
            _ => false,
        };
        if !takes || !self.knows_interfaces(segment, flushed..committed.bytes) {
            return None;
        }
        open.map(|&(index, _)| index).or_else(|| {
            self.open.insert(segment.id(), (self.slots.len(), None));
            self.slots.push(Slot {
                id: segment.id(),
                first_packet: segment.first_packet(),
                state: SlotState::Open,
                flushed: 0,
                given: 0,
                kept: 0,
                kept_closed: false,
                writes: 0,
                states: false,
            });
            Some(self.slots.len() - 1)
        })
    }

    /// Whether the head describes all interfaces that blocks `range` name, and the statistics behind them.
    fn knows_interfaces(&self, segment: &Outgoing, range: Range<u32>) -> bool {
        if segment.interfaces() <= self.interfaces {
            return true;
        }
        let known = |number: u32| number < self.interfaces;
        segment.blocks(range.start, range.end).all(|block| known(block.interface()))
            && segment.whole().is_none_or(|whole| {
                let mut rest = &whole[range.end as usize..whole.len() - FOOT_BYTES];
                let mut all_known = true;
                while rest.len() > BLOCK_BYTES_MIN && le32(rest, 0) != pcapng::KEY_COLUMN {
                    all_known &= le32(rest, 0) != pcapng::STATISTICS || known(le32(rest, 8));
                    rest = &rest[(le32(rest, 4) as usize).clamp(BLOCK_BYTES_MIN, rest.len())..];
                }
                all_known
            })
    }

    /// Whether it still has something to write, as far as is known.
    fn is_growing(&self) -> bool {
        matches!(self.stage, Stage::Growing | Stage::Ending)
    }

    fn is_waiting(&self, slot: usize) -> bool {
        self.waiting.iter().any(|waiting| waiting.slot() == slot)
    }

    /// Begins what can be begun by now.
    fn go_on(&mut self, disk: &mut dyn Disk) {
        if self.is_growing() {
            let (now, later) = std::mem::take(&mut self.waiting)
                .into_iter()
                .partition::<Vec<_>, _>(|waiting| self.slots[waiting.slot()].writes == 0);
            self.waiting = later;
            for waiting in now {
                self.begin_waiting(disk, waiting);
            }
        }
        if self.is_growing()
            && let Some(Round::Writing(before)) = self.round
            && self.pending.first_key_value().is_none_or(|(&tag, _)| tag >= self.tag(before))
        {
            self.round = Some(Round::Syncing(self.finished_packets()));
            let begun = self.begin(disk, Act::Sync { file: self.file }, Pending::Sync);
            begun.unwrap_or_else(|error| self.fail(error));
        }
        let idle = self.pending.is_empty() && self.waiting.is_empty() && self.round.is_none();
        if matches!(self.stage, Stage::Ending) && idle && self.open.is_empty() && !self.closing {
            self.closing = true;
            self.begin_index(disk).unwrap_or_else(|error| self.fail(error));
        }
        if matches!(self.stage, Stage::Failed(_)) && self.pending.is_empty() && !self.over {
            disk.close(self.file);
            self.over = true;
        }
    }

    fn begin_waiting(&mut self, disk: &mut dyn Disk, waiting: Waiting) {
        match waiting {
            Waiting::Close(index, segment) => {
                let flushed = self.open.remove(&segment.id()).and_then(|(_, flushed)| flushed);
                let Some(closed) = slot::close(flushed.as_deref(), &segment) else {
                    let message = "a segment of the ring isn't sealed, or its foot can't be read";
                    return self.fail(io::Error::new(io::ErrorKind::InvalidData, message));
                };
                let whole = segment.whole().unwrap_or_default();
                let shared = self.summaries.as_ref().and_then(|summaries| segment.summary(summaries));
                let offset = self.offset(index);
                let entry = match shared {
                    Some(summary) => Entry { offset, foot: closed.foot, hash: closed.hash, summary },
                    None => closing::entry(offset, whole, closed.foot, closed.hash),
                };
                self.slots[index].state = SlotState::Closed(Box::new(entry));
                self.put(disk, index, closed.puts);
            }
            Waiting::Retire(index) => {
                self.open.remove(&self.slots[index].id);
                self.slots[index].state = SlotState::Empty;
                self.put(disk, index, vec![slot::empty(self.segment_bytes)]);
            }
            Waiting::Cut(index) => {
                self.open.remove(&self.slots[index].id);
                self.close_flushed(disk, index).unwrap_or_else(|error| self.fail(error));
            }
        }
    }

    fn close_flushed(&mut self, disk: &mut dyn Disk, index: usize) -> io::Result<()> {
        let mut pages = Pages::zeroed(self.segment_bytes / PAGE_BYTES);
        let (growing, at) = (closing::growing(&self.name), self.offset(index));
        disk::read_all(disk, &growing, at, pages.as_mut_slice())?;
        let Proof::Beginning { foot, record } = salvage::look(pages.as_slice()).proof else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "what was flushed isn't read back"));
        };
        self.widen(&foot);
        let hash = salvage::close(pages.as_mut_slice(), &foot, record);
        let entry = closing::entry(at, pages.as_slice(), foot, hash);
        self.slots[index].state = SlotState::Closed(Box::new(entry));
        self.put(disk, index, vec![Put { at: 0, bytes: Bytes::Own(pages) }]);
        Ok(())
    }

    fn widen(&mut self, foot: &Foot) {
        let (min_ns, max_ns) = self.span_ns.unwrap_or((foot.min_ns, foot.max_ns));
        self.span_ns = Some((min_ns.min(foot.min_ns), max_ns.max(foot.max_ns)));
    }

    fn put(&mut self, disk: &mut dyn Disk, index: usize, puts: Vec<Put>) {
        for put in puts {
            if self.is_growing() {
                let at = self.offset(index) + put.at as u64;
                self.slots[index].writes += 1;
                if let Err(error) = self.write(disk, at, put.bytes, Pending::Slot(index)) {
                    self.slots[index].writes -= 1;
                    self.fail(error);
                }
            }
        }
    }

    fn begin_index(&mut self, disk: &mut dyn Disk) -> io::Result<()> {
        let entries: Vec<Entry> = self.entries().cloned().collect();
        let Some(last) = entries.last() else {
            disk.close(self.file);
            self.over = true;
            self.stage = Stage::Removed;
            disk.remove(&closing::growing(&self.name))?;
            return disk.sync_names(self.folder());
        };
        let at = last.offset + self.segment_bytes as u64;
        let pages = closing::index(&entries);
        let bytes = at + pages.as_slice().len() as u64;
        self.write(disk, at, Bytes::Own(pages), Pending::Index(bytes))
    }

    fn begin_last_sync(&mut self, disk: &mut dyn Disk, bytes: u64) -> io::Result<()> {
        disk.truncate(self.file, bytes)?;
        self.bytes = bytes;
        let kept = self.finished_packets();
        self.begin(disk, Act::Sync { file: self.file }, Pending::LastSync(kept))
    }

    fn give_name(&mut self, disk: &mut dyn Disk) -> io::Result<()> {
        disk.rename(&closing::growing(&self.name), &self.name)?;
        disk.sync_names(self.folder())?;
        disk.close(self.file);
        self.over = true;
        self.stage = Stage::Whole;
        Ok(())
    }

    /// What the sync that begins now makes safe: of each slot, by its number, the packets whose writes have
    /// finished.
    fn finished_packets(&self) -> Vec<(usize, Kept)> {
        let finished = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let (packets, closed) = match &slot.state {
                SlotState::Closed(entry) if slot.writes == 0 => (entry.foot.packets, true),
                SlotState::Open | SlotState::Closed(_) => (slot.flushed, false),
                SlotState::Empty => (0, false),
            };
            let is_new = packets > slot.kept || closed && !slot.kept_closed;
            is_new.then(|| (index, Kept { id: slot.id, packets: slot.numbers(packets), closed }))
        });
        finished.collect()
    }

    fn keep(&mut self, kept: Vec<(usize, Kept)>) {
        for (index, kept) in kept {
            let is_retired = |waiting: &Waiting| matches!(waiting, Waiting::Retire(slot) if *slot == index);
            let slot = &mut self.slots[index];
            if !matches!(slot.state, SlotState::Empty) && !self.waiting.iter().any(is_retired) {
                slot.kept = (kept.packets.end - slot.first_packet) as u32;
                slot.kept_closed = kept.closed;
                self.kept.push(kept);
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter_map(|slot| match &slot.state {
            SlotState::Closed(entry) => Some(&**entry),
            _ => None,
        })
    }

    fn offset(&self, slot: usize) -> u64 {
        self.head_bytes + (slot * self.segment_bytes) as u64
    }

    fn folder(&self) -> &Path {
        self.name.parent().unwrap_or(Path::new(""))
    }

    fn write(&mut self, disk: &mut dyn Disk, at: u64, bytes: Bytes, pending: Pending) -> io::Result<()> {
        self.begin(disk, Act::Write { file: self.file, at, bytes }, pending)
    }

    fn begin(&mut self, disk: &mut dyn Disk, act: Act, pending: Pending) -> io::Result<()> {
        let tag = self.tag(self.begun);
        self.begun += 1;
        disk.begin(Begun { tag, act })?;
        self.pending.insert(tag, pending);
        Ok(())
    }

    /// No two files have a tag in common, as long as they are open.
    fn tag(&self, begun: u64) -> u64 {
        u64::from(self.file.0) << 40 | begun
    }

    fn fail(&mut self, error: io::Error) {
        if !matches!(self.stage, Stage::Failed(_)) {
            self.stage = Stage::Failed(error);
            self.waiting.clear();
            self.open.clear();
            self.round = None;
        }
    }
}

impl Slot {
    /// The numbers of its packets up to `packets` that aren't kept yet.
    fn numbers(&self, packets: u32) -> Range<u64> {
        self.first_packet + u64::from(self.kept)..self.first_packet + u64::from(packets)
    }
}

impl Waiting {
    fn slot(&self) -> usize {
        match self {
            Waiting::Close(slot, _) | Waiting::Retire(slot) | Waiting::Cut(slot) => *slot,
        }
    }
}
