//! One segment on its way from the disk: which reads it needs, and which of its packets are wanted.
//!
//! ```text
//! no key helps     whole ─► hash ─────────────────────────────┐ not as written: by pages
//! else             column and foot, each page checked          ▼
//!                    └► no entry matches: done       pages of the entries that match, each checked
//!                                                      └► in the span? filter ─► places and blocks, by time
//! ```
//! No read is waited for in here: whoever has the reads under way brings what came. So one thread has several
//! segments under way. Where a stretch can't be read, or isn't what was written, its pages are read one by one, and
//! only packets that lie in those which fail are missing.

use crate::checks::{self, Hash, PAGE_BYTES};
use crate::fetch::{Fetched, read_exact, read_what_can_be};
use crate::interfaces::StoreInterfaces;
use crate::listing::{self, SegmentFacts};
use crate::segment::StoredSegment;
use crate::sift::{SIFTED_MAX, Sift, Span};
use crate::sparse::{self, Tail};
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::PacketBlock;
use scope_packet::segment::FOOT_BYTES;
use scope_packet::{KeyEntry, LinkType};
use scope_ring::{Candidate, Column, KeyTest, Place};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Buffers that are kept for the next segments.
const SPARE_MAX: usize = 8;
/// Neighbouring pages are read together, and those apart by so many.
const GAP_PAGES: usize = 2;

/// What a question wants of each segment.
pub(crate) struct Wanted {
    pub span: Span,
    pub sift: Arc<dyn Sift>,
    /// Which keys; of link types that are missing all.
    pub keys: BTreeMap<LinkType, KeyTest>,
    pub interfaces: Arc<StoreInterfaces>,
    pub spare: Arc<Spare>,
}

/// Buffers that were used, for whoever needs the next one: fresh memory costs as much as reading into it.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    fn take(&self, len: usize) -> Vec<u8> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = spare.filter(|buffer| buffer.capacity() >= len).unwrap_or_default();
        if buffer.capacity() == 0 {
            return vec![0; len];
        }
        buffer.resize(len, 0);
        buffer
    }

    fn put(&self, buffer: Vec<u8>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(buffer);
        }
    }
}

/// The packets of a segment that are wanted.
#[derive(Default)]
pub(crate) struct Loaded {
    /// Where they are, by time.
    pub places: Vec<Place>,
    pub blocks: Vec<u8>,
    spare: Option<Arc<Spare>>,
}

impl Loaded {
    /// Places, by time, and the blocks to which they lead.
    pub fn new(places: Vec<Place>, blocks: Vec<u8>) -> Loaded {
        Loaded { places, blocks, spare: None }
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.blocks.capacity()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            spare.put(std::mem::take(&mut self.blocks));
        }
    }
}

/// What was done for a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    pub read_bytes: u64,
    pub is_whole: bool,
    /// No key matched.
    pub is_unmatched: bool,
    /// Of the thread: checking, filtering, sorting.
    pub evaluating: Duration,
}

/// What became of a segment.
pub(crate) struct Outcome {
    pub loaded: io::Result<Loaded>,
    /// Packets that may be wanted, and lie in damaged pages.
    pub damaged: u64,
    pub effort: Effort,
}

/// A read that a segment needs.
pub(crate) struct Need {
    pub offset: u64,
    pub buffer: Vec<u8>,
}

/// How it goes on.
pub(crate) enum Step {
    /// These reads are needed; none: others are under way.
    Reads(Vec<Need>),
    Done(Outcome),
}

/// A segment that is being read.
pub(crate) struct Loading {
    facts: SegmentFacts,
    file: Arc<File>,
    stage: Stage,
    effort: Effort,
}

enum Stage {
    Whole,
    Tail { test: KeyTest },
    Pages(Pages),
    Over,
}

/// The pages of packets that may be wanted.
struct Pages {
    tail: Tail,
    /// Packets by index, each with the bytes of its block.
    chosen: Vec<(u32, Range<usize>)>,
    runs: Vec<Run>,
    /// Reads that haven't come yet.
    left: usize,
}

/// Pages that are read at once.
struct Run {
    pages: Range<usize>,
    bytes: Vec<u8>,
}

impl Loading {
    /// Begins: an open segment, which few are, is read at once.
    pub fn begin(facts: SegmentFacts, file: Arc<File>, wanted: &Wanted) -> (Loading, Step) {
        let mut loading = Loading { facts, file, stage: Stage::Over, effort: Effort::default() };
        let test = wanted.keys.get(&facts.foot.link_type);
        let step = match test.filter(|_| !facts.is_open && facts.hash != Hash::NONE) {
            Some(test) => loading.begin_tail(test.clone()),
            None if facts.is_open => {
                let mut slot = wanted.spare.take(facts.bytes);
                let file = loading.file.clone();
                let read = checked(&file, &facts, &mut slot).map(drop);
                loading.of_whole(read, slot, wanted)
            }
            None => {
                loading.stage = Stage::Whole;
                Ok(Step::Reads(vec![Need { offset: facts.offset, buffer: wanted.spare.take(facts.bytes) }]))
            }
        };
        let step = step.unwrap_or_else(|cause| loading.failed(cause));
        (loading, step)
    }

    /// The file in which it lies.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// A read of it has come.
    pub fn fetched(&mut self, fetched: Fetched, wanted: &Wanted) -> Step {
        let begun = Instant::now();
        let step = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Whole => self.whole(fetched, wanted),
            Stage::Tail { test } => self.tail(fetched, &test, wanted),
            Stage::Pages(pages) => self.pages(fetched, pages, wanted),
            Stage::Over => Ok(Step::Reads(Vec::new())),
        };
        self.effort.evaluating += begun.elapsed();
        match step {
            Ok(Step::Done(mut outcome)) => {
                outcome.effort = self.effort;
                Step::Done(outcome)
            }
            Ok(step) => step,
            Err(cause) => self.failed(cause),
        }
    }

    fn failed(&self, cause: io::Error) -> Step {
        Step::Done(Outcome { loaded: Err(cause), damaged: 0, effort: self.effort })
    }

    fn done(&self, loaded: Loaded, damaged: u64) -> Step {
        Step::Done(Outcome { loaded: Ok(loaded), damaged, effort: self.effort })
    }

    fn begin_tail(&mut self, test: KeyTest) -> io::Result<Step> {
        let from = sparse::tail_from(&self.facts)?;
        self.stage = Stage::Tail { test };
        let buffer = vec![0; self.facts.bytes - from];
        Ok(Step::Reads(vec![Need { offset: self.facts.offset + from as u64, buffer }]))
    }

    fn whole(&mut self, fetched: Fetched, wanted: &Wanted) -> io::Result<Step> {
        self.effort.read_bytes += self.facts.bytes as u64;
        let buffer = fetched.buffer;
        let read = fetched.result.and_then(|()| check(&self.facts, &buffer));
        self.of_whole(read, buffer, wanted)
    }

    fn of_whole(&mut self, read: io::Result<()>, buffer: Vec<u8>, wanted: &Wanted) -> io::Result<Step> {
        match read {
            // It may be that only some of its pages can't be read.
            Err(_) if !self.facts.is_open && self.facts.hash != Hash::NONE => {
                return self.begin_tail(KeyTest::all());
            }
            read => read?,
        }
        self.effort.is_whole = true;
        let packets = self.facts.foot.packets as usize;
        let end = self.facts.bytes - FOOT_BYTES;
        let column = Column::new(&buffer[end - packets * KEY_ENTRY_BYTES..end]);
        let mut picker = Picker::new(&self.facts, wanted, packets);
        picker.pick(column.iter().enumerate().map(|(index, key)| {
            let place = key.offset() as usize;
            let block = PacketBlock::first(&buffer[place..]).ok_or_else(not_whole)?;
            Ok((index as u32, place, key, block))
        }))?;
        Ok(self.done(picker.kept(buffer), 0))
    }

    fn tail(&mut self, fetched: Fetched, test: &KeyTest, wanted: &Wanted) -> io::Result<Step> {
        fetched.result?;
        let tail = Tail::new(fetched.buffer, &self.facts)?;
        self.effort.read_bytes += tail.len() as u64;
        let chosen = tail.chosen(&self.facts, test)?;
        if chosen.is_empty() {
            self.effort.is_unmatched = true;
            return Ok(self.done(Loaded::default(), 0));
        }
        let pages = (self.facts.foot.block_bytes as usize).div_ceil(PAGE_BYTES);
        let runs = runs(&chosen, pages);
        let need = |run: &Range<usize>| Need {
            offset: self.facts.offset + (run.start * PAGE_BYTES) as u64,
            buffer: wanted.spare.take(run.len() * PAGE_BYTES),
        };
        let reads = runs.iter().map(need).collect();
        let left = runs.len();
        let runs = runs.into_iter().map(|pages| Run { pages, bytes: Vec::new() }).collect();
        self.stage = Stage::Pages(Pages { tail, chosen, runs, left });
        Ok(Step::Reads(reads))
    }

    fn pages(&mut self, fetched: Fetched, mut pages: Pages, wanted: &Wanted) -> io::Result<Step> {
        let first = ((fetched.offset - self.facts.offset) as usize) / PAGE_BYTES;
        let at = pages.runs.partition_point(|run| run.pages.start < first);
        let Some(run) = pages.runs.get_mut(at) else { return Err(io::ErrorKind::InvalidData.into()) };
        run.bytes = fetched.buffer;
        self.effort.read_bytes += run.bytes.len() as u64;
        if fetched.result.is_err() {
            run.bytes.resize(run.pages.len() * PAGE_BYTES, 0);
            let offset = self.facts.offset + (run.pages.start * PAGE_BYTES) as u64;
            read_what_can_be(&self.file, offset, &mut run.bytes)?;
        }
        pages.left -= 1;
        if pages.left > 0 {
            self.stage = Stage::Pages(pages);
            return Ok(Step::Reads(Vec::new()));
        }
        self.of_pages(pages, wanted)
    }

    /// All pages are there.
    fn of_pages(&mut self, pages: Pages, wanted: &Wanted) -> io::Result<Step> {
        let Pages { tail, chosen, mut runs, .. } = pages;
        let (column, known) = (tail.column(), self.facts.foot);
        let mut picker = Picker::new(&self.facts, wanted, chosen.len());
        let is_single = runs.len() == 1;
        let (mut chosen, mut damaged) = (&chosen[..], 0);
        for run in &runs {
            let of_run = chosen.partition_point(|(_, place)| place.start / PAGE_BYTES < run.pages.end);
            let (own, rest) = chosen.split_at(of_run);
            chosen = rest;
            let torn = run.torn(own, &tail);
            let base = run.pages.start * PAGE_BYTES;
            let is_sound = |(_, place): &&(u32, Range<usize>)| {
                torn.is_empty() || !pages_of(place).any(|page| torn.binary_search(&page).is_ok())
            };
            let sound = own.iter().filter(is_sound);
            damaged += own.len() as u64 - sound.clone().count() as u64;
            picker.pick(sound.map(|(index, place)| {
                let bytes = &run.bytes[place.start - base..place.end - base];
                let block = PacketBlock::first(bytes).filter(|block| {
                    block.bytes().len() == bytes.len()
                        && has_closing_length(bytes)
                        && (known.min_ns..=known.max_ns).contains(&block.time_ns())
                });
                Ok((*index, place.start - base, column.get(*index), block.ok_or_else(not_whole)?))
            }))?;
            if !is_single {
                picker.copy(&run.bytes);
            }
        }
        let loaded = match runs.pop() {
            Some(run) if is_single => picker.kept(run.bytes),
            last => {
                runs.extend(last);
                picker.copied()
            }
        };
        for run in runs {
            wanted.spare.put(run.bytes);
        }
        Ok(self.done(loaded, damaged))
    }
}

/// The pages in which a block lies.
fn pages_of(place: &Range<usize>) -> Range<usize> {
    place.start / PAGE_BYTES..(place.end - 1) / PAGE_BYTES + 1
}

impl Run {
    /// Which of the pages that these packets need aren't what was written, by number.
    fn torn(&self, chosen: &[(u32, Range<usize>)], tail: &Tail) -> Vec<usize> {
        let (mut torn, mut next) = (Vec::new(), 0);
        for (_, place) in chosen {
            let needed = pages_of(place);
            for page in needed.start.max(next)..needed.end {
                let at = (page - self.pages.start) * PAGE_BYTES;
                if !checks::page_is_whole(&self.bytes[at..at + PAGE_BYTES], page, tail.foot_page()) {
                    torn.push(page);
                }
            }
            next = next.max(needed.end);
        }
        torn
    }
}

fn not_whole() -> io::Error {
    io::Error::other("no whole packet block")
}

fn has_closing_length(block: &[u8]) -> bool {
    let (begin, end) = (block.get(4..8), block.len().checked_sub(4).and_then(|at| block.get(at..)));
    begin.is_some() && begin == end
}

/// The pages of these packets, as runs of neighbours: all pages as one, where most of them are needed.
fn runs(chosen: &[(u32, Range<usize>)], pages: usize) -> Vec<Range<usize>> {
    let (mut runs, mut needed): (Vec<Range<usize>>, usize) = (Vec::new(), 0);
    for (_, place) in chosen {
        let Range { start: from, end: to } = pages_of(place);
        match runs.last_mut() {
            Some(run) if from <= run.end + GAP_PAGES => {
                needed += to.max(run.end) - from.max(run.end);
                run.end = run.end.max(to);
            }
            _ => {
                needed += to - from;
                runs.push(from..to);
            }
        }
    }
    if needed * 2 >= pages && runs.len() > 1 {
        runs.truncate(1);
        runs[0] = 0..pages;
    }
    runs
}

/// Packets that may be wanted, held against span and filter.
struct Picker<'a> {
    facts: &'a SegmentFacts,
    wanted: &'a Wanted,
    is_everything: bool,
    places: Vec<Place>,
    /// Bytes of the blocks of these.
    bytes: usize,
    /// Blocks that were copied, and how many places lead there.
    blocks: Vec<u8>,
    copied: usize,
}

impl<'a> Picker<'a> {
    fn new(facts: &'a SegmentFacts, wanted: &'a Wanted, packets_max: usize) -> Picker<'a> {
        let is_everything = wanted.sift.is_everything();
        let places = Vec::with_capacity(if is_everything { packets_max } else { 0 });
        Picker { facts, wanted, is_everything, places, bytes: 0, blocks: Vec::new(), copied: 0 }
    }

    /// Takes what is wanted of these packets: index, place, key and block of each.
    fn pick<'b>(
        &mut self,
        mut packets: impl Iterator<Item = io::Result<(u32, usize, KeyEntry, PacketBlock<'b>)>>,
    ) -> io::Result<()> {
        let Wanted { span, sift, interfaces, .. } = self.wanted;
        let foot = &self.facts.foot;
        let mut known = None;
        let mut batch: Vec<Candidate<'b>> = Vec::with_capacity(SIFTED_MAX);
        let mut at: Vec<u32> = Vec::with_capacity(SIFTED_MAX);
        loop {
            batch.clear();
            at.clear();
            while batch.len() < SIFTED_MAX {
                let Some(packet) = packets.next() else { break };
                let (index, place, key, block) = packet?;
                if known != Some(block.interface()) {
                    interfaces.check(foot, block.interface())?;
                    known = Some(block.interface());
                }
                if (span.from_ns..=span.to_ns).contains(&block.time_ns()) {
                    batch.push(Candidate { packet: foot.first_packet + u64::from(index), key, block });
                    at.push(place as u32);
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            let taken = match self.is_everything {
                true => u64::MAX,
                false => sift.select(foot.id(), foot.link_type, &batch),
            };
            for (number, (candidate, &at)) in batch.iter().zip(&at).enumerate() {
                if taken >> number & 1 != 0 {
                    let Candidate { packet, key, block } = *candidate;
                    self.places.push(Place { time_ns: block.time_ns(), packet, key, at });
                    self.bytes += block.bytes().len();
                }
            }
        }
    }

    /// Copies the blocks of what was taken since the last copy, which lie in `source`.
    fn copy(&mut self, source: &[u8]) {
        for place in &mut self.places[self.copied..] {
            let Some(block) = PacketBlock::first(&source[place.at as usize..]) else { continue };
            place.at = self.blocks.len() as u32;
            self.blocks.extend(block.bytes());
        }
        self.copied = self.places.len();
    }

    /// All that was taken, where all of it was copied.
    fn copied(mut self) -> Loaded {
        let places = self.sorted();
        Loaded::new(places, std::mem::take(&mut self.blocks))
    }

    /// All that was taken out of one buffer: that buffer itself, if most of it is wanted.
    fn kept(mut self, buffer: Vec<u8>) -> Loaded {
        let spare = self.wanted.spare.clone();
        if self.bytes * 2 < buffer.capacity() {
            self.blocks.reserve_exact(self.bytes);
            self.copy(&buffer);
            spare.put(buffer);
            return self.copied();
        }
        Loaded { places: self.sorted(), blocks: buffer, spare: Some(spare) }
    }

    /// The places by time; those of one time as they lie.
    fn sorted(&mut self) -> Vec<Place> {
        let mut places = std::mem::take(&mut self.places);
        if self.facts.foot.unordered {
            places.sort_by_key(|place| place.time_ns);
        }
        places
    }
}

/// Reads a segment that is the one which was noted.
pub(crate) fn checked(file: &File, facts: &SegmentFacts, slot: &mut Vec<u8>) -> io::Result<()> {
    let fill = |slot: &mut Vec<u8>| {
        slot.resize(facts.bytes, 0);
        read_exact(file, facts.offset, slot)
    };
    match facts.is_open {
        true if listing::proven(fill, slot)?.is_none() => {
            return Err(io::Error::other("nothing of it is proven any more"));
        }
        true => {}
        false => fill(slot)?,
    }
    check(facts, slot)
}

/// Whether these bytes are the segment that was noted: an open one may have grown.
fn check(facts: &SegmentFacts, slot: &[u8]) -> io::Result<()> {
    let segment = StoredSegment::new(slot).map_err(io::Error::other)?;
    let (foot, known) = (segment.foot(), &facts.foot);
    let same = match facts.is_open {
        true => {
            foot.id() == known.id()
                && foot.first_packet == known.first_packet
                && foot.packets >= known.packets
        }
        false => foot == known && (segment.hash() == facts.hash || facts.hash == Hash::NONE),
    };
    match same && foot.link_type == known.link_type {
        true => Ok(()),
        false => Err(io::Error::other("it is another one than was noted of it")),
    }
}
