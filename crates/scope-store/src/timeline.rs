//! Stores as a timeline: the packets of a span, by time, out of their files, and what is missing.
//!
//! ```text
//! listings ─► segments that touch the span, each once, by their smallest times ─► loaders: read, check, filter
//!                                                                                   │ in this order
//!                                              stretches, by time, lane, number ◄── merge
//! ```
//! A segment is read when the merge comes to its smallest time, and a little ahead of that. What lies in time
//! beside each other waits in the merge, whose memory is bounded however many lanes and runs there are. Where
//! times step back inside a segment its packets come by time all the same. What can't be read is left out and
//! stated.
//!
//! Where few keys are searched for, segments whose summary can't hold them are passed over, and of the others only
//! the key column is read and the pages in which packets lie that may match.

use crate::fetch::Fetch;
use crate::head::HeadInterface;
use crate::index::IndexError;
use crate::interfaces::Lane;
use crate::lanes::{Lack, Lanes, Partial, UnreadFile};
use crate::listing::{self, Listed, Listing, SegmentFacts};
use crate::load::{self, Effort, Loaded, Outcome, Wanted};
use crate::loaders::Loaders;
use crate::merge::{Merge, Stretch};
use crate::name::{FileName, begin_of_run, day_ns};
use crate::segment::StoredSegment;
use crate::sift::Sift;
use crate::sparse;
use crate::spill::{Rank, Spill, SpillFile};
use crate::unread::unread;
use crate::volume::Store;
use scope_fault::Fault;
use scope_packet::segment::{Foot, SegmentId};
use scope_packet::{Gap, GapReason, LinkType, Moment};
use scope_ring::{KeyTest, Matches, Packets, Piece, Settled, Timeline};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use crate::interfaces::{InterfaceKey, KnownInterfaces, StoreInterfaces};
pub use crate::sift::Span;

/// Memory for a question, unless another size is given.
pub const MEMORY_BYTES: usize = 256 << 20;
/// The least that a question needs.
pub const MEMORY_BYTES_MIN: usize = 64 << 20;
/// A thread reads so many bytes ahead, at most.
const AHEAD_BYTES_MAX: usize = 32 << 20;
/// Files that stay open from the beginning: they are read to their end even if retention deletes them.
const OPEN_MAX: usize = 512;

/// What a question may use.
#[derive(Debug)]
pub struct Means {
    /// Reads of the threads that read: one each, at least one.
    pub fetches: Vec<Fetch>,
    /// Memory for packets, bytes, at least [`MEMORY_BYTES_MIN`].
    pub memory_bytes: usize,
    /// A file without a name, for packets that have no room in memory.
    pub spill: SpillFile,
    /// The setting that this file belongs to, and what helps where it has no room.
    pub no_room: (&'static str, &'static str),
    /// Segments of which a filter of the store left packets out, so that numbers don't say which ones it has, are lanes
    /// of their own: see [`StoreTimeline::is_inexact`].
    pub inexact_apart: bool,
    /// Spans of time, ns, by their begins and apart from each other: only packets in one of them are needed, others may
    /// come. `None`: all are.
    pub within: Option<Vec<(i64, i64)>>,
    /// Only [`StoreTimeline::counted`] and the rest of the packets are wanted: what feet say is not read.
    pub counts_only: bool,
}

/// What feet say of segments that are wanted whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets.
    pub packets: u64,
    /// Captured bytes.
    pub bytes: u64,
    /// Smallest and largest time, ns.
    pub span_ns: Option<(i64, i64)>,
}

impl Counted {
    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Counted) -> Counted {
        let spans = self.span_ns.into_iter().chain(other.span_ns);
        Counted {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            span_ns: spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))),
        }
    }
}

impl Default for Means {
    /// One thread, no file.
    fn default() -> Means {
        Means {
            fetches: vec![Fetch::plain()],
            memory_bytes: MEMORY_BYTES,
            spill: SpillFile::None,
            no_room: ("tmp", "give a folder with more room, or more memory (--memory), or a shorter span"),
            inexact_apart: false,
            within: None,
            counts_only: false,
        }
    }
}

/// A segment that may be read.
struct Segment {
    file: usize,
    lane: u32,
    facts: SegmentFacts,
}

/// What was read and passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Segments that touch the span.
    pub segments: u64,
    /// Those that their summary excluded.
    pub skipped: u64,
    /// Those of which no key matched.
    pub unmatched: u64,
    /// Those that were counted by their foot.
    pub by_foot: u64,
    /// Segments read in part, and whole.
    pub in_part: u64,
    /// As above.
    pub whole: u64,
    /// Bytes of segments that were read.
    pub bytes: u64,
    /// Bytes that waited in a file.
    pub spilled_bytes: u64,
    /// Of all threads together: for reads, and to check, filter and sort.
    pub waiting: Duration,
    /// As above.
    pub evaluating: Duration,
}

struct SourceFile {
    store: usize,
    name: FileName,
    open: Option<Arc<File>>,
    /// It has less than the lanes had: a filter or a snap length made its segments.
    is_composed: bool,
    /// Why its lanes lack packets, where only statistics say so.
    drops_as: GapReason,
}

/// Files of stores.
struct Files {
    stores: Vec<Store>,
    files: Vec<SourceFile>,
}

impl Files {
    /// The file, open: it may have been kept so.
    fn open(&self, file: usize) -> io::Result<Arc<File>> {
        let SourceFile { store, name, open, .. } = &self.files[file];
        match open {
            Some(open) => Ok(open.clone()),
            None => listing::open(self.stores[*store].folder(), name).map(unhurried),
        }
    }

    /// Where this stands that is in a store.
    fn path(&self, store: usize, below: &Path) -> PathBuf {
        self.stores[store].folder().path().join(below)
    }
}

/// A file of which pages that are read aren't meant to stay, where the kernel knows no other way.
fn unhurried(file: File) -> Arc<File> {
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::NoReuse);
    Arc::new(file)
}

/// The packets of a span out of one store or several.
pub struct StoreTimeline {
    files: Arc<Files>,
    segments: Vec<Segment>,
    /// Other copies of a segment, by that which is read.
    copies: HashMap<usize, Vec<usize>>,
    interfaces: Arc<StoreInterfaces>,
    span: Span,
    /// Segments that aren't merged yet, by their smallest times.
    pending: VecDeque<usize>,
    loaders: Option<Loaders>,
    merge: Merge,
    /// See [`Means::no_room`].
    no_room: (&'static str, &'static str),
    stop: Arc<AtomicBool>,
    losses: Losses,
    damages: Vec<Damaged>,
    heard: Option<(i64, i64)>,
    partial: Vec<(Partial, u64)>,
    work: Work,
    counted: Counted,
}

/// What is missing, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Losses(Arc<Mutex<Vec<Gap>>>);

impl Losses {
    /// Adds what is missing.
    pub fn add(&self, gaps: impl IntoIterator<Item = Gap>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(gaps);
    }

    /// What of it lies in a span, by time. Of a gap that reaches out of it nobody knows how many of its packets
    /// are inside.
    pub fn within(&self, Span { from_ns, to_ns }: Span) -> Vec<Gap> {
        let inside = |gap: &Gap| {
            let part = Gap { from_ns: gap.from_ns.max(from_ns), to_ns: gap.to_ns.min(to_ns), ..*gap };
            let whole = (part.from_ns, part.to_ns) == (gap.from_ns, gap.to_ns);
            let lost_min = if whole { gap.lost_min } else { 0 };
            (part.from_ns <= part.to_ns).then_some(Gap { lost_min, ..part })
        };
        let gaps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<Gap> = gaps.iter().filter_map(inside).collect();
        found.sort_by_key(|gap| (gap.from_ns, gap.to_ns, gap.reason));
        found
    }
}

/// Something of a store that couldn't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The file or folder, and what is wrong.
    pub fault: Fault,
    /// The store's folder.
    pub store: PathBuf,
    /// Packets that are missing because of it; `None`: nobody knows.
    pub packets: Option<u64>,
    /// The file's end is gone: what is whole in front of it is read.
    pub is_cut: bool,
}

impl StoreTimeline {
    /// Of these stores the packets of `span` that `sift` matches, for whose keys the stores were listed, with what
    /// `means` has. Once `stop` is set no further piece comes.
    pub fn new(
        stores: Vec<(Store, Listing)>,
        span: Span,
        sift: Arc<dyn Sift>,
        means: Means,
        stop: Arc<AtomicBool>,
    ) -> StoreTimeline {
        let memory_bytes = means.memory_bytes;
        let mut timeline = StoreTimeline {
            files: Arc::new(Files { stores: Vec::new(), files: Vec::new() }),
            segments: Vec::new(),
            copies: HashMap::new(),
            interfaces: Arc::default(),
            span,
            pending: VecDeque::new(),
            loaders: None,
            merge: Merge::new(memory_bytes / 4, Spill::new(means.spill)),
            no_room: means.no_room,
            stop,
            losses: Losses::default(),
            damages: Vec::new(),
            heard: None,
            partial: Vec::new(),
            work: Work::default(),
            counted: Counted::default(),
        };
        let mut listings = Vec::new();
        let mut plan = Plan { inexact_apart: means.inexact_apart, ..Plan::default() };
        for (store, listing) in stores {
            plan.lanes.give(store.id().0);
            timeline.planned().stores.push(store);
            listings.push(listing);
        }
        // A run that goes on may have nothing new to store: nobody says that it doesn't listen.
        plan.has_ended = !listings.is_empty() && !listings.iter().any(|listing| listing.is_written);
        for (number, listing) in listings.into_iter().enumerate() {
            let begins = listing.begins_ns();
            for (day, error) in &listing.unread {
                timeline.add_unread(number, day, error, &begins);
            }
            for passed in &listing.passed {
                plan.lanes.add_passed(listing.volume.0, passed);
                timeline.hear(passed.span_ns);
                plan.reach(passed.run_id, Some(passed.reach_ns));
            }
            for run in &listing.heads {
                plan.lanes.add_run(run);
            }
            for listed in listing.files {
                // What a file that can't be read had lies before the next one's begin.
                let behind = begins.partition_point(|&begin| begin <= listed.name.first_ns());
                let until_ns = begins.get(behind).map_or(i64::MAX, |next_ns| next_ns - 1);
                timeline.add(number, listed, until_ns, &mut plan);
            }
        }
        let lasts = timeline.begin(&mut plan);
        if let Some(spans) = &means.within {
            timeline.pass_over(spans);
        }
        if means.counts_only && sift.is_everything() {
            timeline.count_by_feet();
        }
        timeline.read(sift, means.fetches, memory_bytes / 4);
        // Meanwhile the first segments are read.
        timeline.look_for_losses(&plan);
        for (file, facts, has_turn) in &lasts {
            timeline.look_behind(*file, facts, *has_turn);
        }
        timeline
    }

    /// Notes what the stores lack, as far as feet and names say it.
    fn look_for_losses(&mut self, plan: &Plan) {
        let lacks = plan.lanes.lacks();
        self.bound(plan, &lacks);
        // What a damaged file may have had is missing, also if another volume may have had it.
        let is_told = |lack: &&Lack| !lack.is_elsewhere || lack.unread.is_some();
        self.losses.add(lacks.iter().filter(is_told).map(|lack| lack.gap));
        self.losses.add(plan.between_runs(self.span));
        let touch = |lack: &&Lack| lack.is_elsewhere && self.touches((lack.gap.from_ns, lack.gap.to_ns));
        let elsewhere = |run_id| {
            let of_run = lacks.iter().filter(touch).filter(|lack| lack.run_id == run_id);
            of_run.fold(0, |sum: u64, lack| sum.saturating_add(lack.gap.lost_max.unwrap_or(0)))
        };
        let partial = plan.lanes.partial();
        self.partial = partial.into_iter().map(|partial| (partial, elsewhere(partial.run_id))).collect();
    }

    /// Passes over the segments that touch none of these spans.
    fn pass_over(&mut self, spans: &[(i64, i64)]) {
        let segments = &self.segments;
        self.pending.retain(|&number| {
            let foot = &segments[number].facts.foot;
            let first = spans.partition_point(|&(_, to_ns)| to_ns < foot.min_ns);
            spans.get(first).is_some_and(|&(from_ns, _)| from_ns <= foot.max_ns)
        });
    }

    /// Counts the segments that are wanted whole, where the next one of the lane says how many bytes they have. What a
    /// volume composed has the feet of the lane, not its own.
    fn count_by_feet(&mut self) {
        let place = |foot: &Foot| (foot.run_id, foot.lane, foot.sequence);
        let begins: HashMap<_, (u64, u64)> = self
            .segments
            .iter()
            .filter(|segment| !self.files.files[segment.file].is_composed)
            .map(|segment| &segment.facts.foot)
            .map(|foot| (place(foot), (foot.first_packet, foot.bytes_before)))
            .collect();
        let mut rest = VecDeque::new();
        for number in std::mem::take(&mut self.pending) {
            let Segment { file, facts, .. } = &self.segments[number];
            let foot = &facts.foot;
            let is_inside = foot.min_ns >= self.span.from_ns && foot.max_ns <= self.span.to_ns;
            let is_told = is_inside && !facts.is_open && !self.files.files[*file].is_composed;
            // One that was cut short has fewer packets than lie between the two.
            let end = foot.first_packet + u64::from(foot.packets);
            let next = begins.get(&(foot.run_id, foot.lane, foot.sequence + 1));
            let next = next.filter(|(first_packet, _)| is_told && *first_packet == end);
            let Some(bytes) = next.and_then(|(_, bytes)| bytes.checked_sub(foot.bytes_before)) else {
                rest.push_back(number);
                continue;
            };
            let span_ns = Some((foot.min_ns, foot.max_ns));
            self.counted = self.counted.with(&Counted { packets: foot.packets.into(), bytes, span_ns });
            self.work.by_foot += 1;
        }
        self.pending = rest;
    }

    /// Whether the packets of this lane of the timeline are those of segments without exact numbers: see
    /// [`Means::inexact_apart`].
    pub fn is_inexact(&self, lane: u32) -> bool {
        self.interfaces.all_lanes().get(lane as usize).is_some_and(|lane| lane.inexact)
    }

    /// What was counted without reading it, and doesn't come as packets: see [`Means::counts_only`].
    pub fn counted(&self) -> Counted {
        self.counted
    }

    /// Files and stores, while nobody else has them.
    fn planned(&mut self) -> &mut Files {
        Arc::get_mut(&mut self.files).expect("no thread reads before all is planned")
    }

    /// Begins to read.
    fn read(&mut self, sift: Arc<dyn Sift>, fetches: Vec<Fetch>, room_bytes: usize) {
        let types: BTreeSet<LinkType> =
            self.interfaces.all_lanes().iter().map(|lane| lane.link_type).collect();
        let tests = types.into_iter().map(|link_type| (link_type, sift.keys(link_type)));
        let keys = tests.filter(|(_, test)| *test != KeyTest::all()).collect();
        let (span, interfaces) = (self.span, self.interfaces.clone());
        let wanted = Wanted { span, sift, keys, interfaces, spare: Arc::default() };
        let (files, of): (_, Vec<usize>) =
            (self.files.clone(), self.segments.iter().map(|segment| segment.file).collect());
        let order = self.pending.iter().map(|&number| (number, self.segments[number].facts)).collect();
        let ahead_bytes = room_bytes.min(AHEAD_BYTES_MAX * fetches.len());
        let open = Box::new(move |segment: usize| files.open(of[segment]));
        self.loaders = Some(Loaders::begin(order, wanted, open, fetches, ahead_bytes, self.stop.clone()));
    }

    /// What was read by now.
    pub fn work(&self) -> Work {
        let waiting = self.loaders.as_ref().map_or(Duration::ZERO, Loaders::waited);
        let spilled_bytes = self.work.spilled_bytes + self.merge.spilled_bytes();
        Work { spilled_bytes, waiting, ..self.work }
    }

    /// The interfaces of its packets.
    pub fn interfaces(&self) -> Arc<StoreInterfaces> {
        self.interfaces.clone()
    }

    /// What the stores lack, as far as that is known by now: also while the timeline is read.
    pub fn losses(&self) -> Losses {
        self.losses.clone()
    }

    /// Runs of which volumes weren't given, each with the packets of the span that may be in these, as far as
    /// numbers tell.
    pub fn partial(&self) -> &[(Partial, u64)] {
        &self.partial
    }

    /// What couldn't be read up to now.
    pub fn damages(&self) -> &[Damaged] {
        &self.damages
    }

    /// Packets of all segments that touch the span and may match, at most.
    pub fn packets_max(&self) -> u64 {
        self.pending.iter().map(|&number| u64::from(self.segments[number].facts.foot.packets)).sum()
    }

    /// What the folder of a day has that can't be read may reach up to the begin of the next file.
    fn add_unread(&mut self, store: usize, day: &Path, error: &io::Error, begins: &[i64]) {
        let Some((from_ns, day_end_ns)) = day.to_str().and_then(day_ns) else { return };
        let behind = begins.iter().copied().filter(|&begin| begin > day_end_ns);
        let span_ns = (from_ns, behind.min().map_or(i64::MAX, |next_ns| next_ns - 1));
        if self.touches(span_ns) {
            self.damage(store, unread(&self.files.path(store, day), error), None, span_ns);
        }
    }

    /// The stores have packets of these times, whether asked for or not.
    fn hear(&mut self, span_ns: Option<(i64, i64)>) {
        self.heard = self.heard.into_iter().chain(span_ns).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }

    fn add(&mut self, store: usize, listed: Listed, until_ns: i64, plan: &mut Plan) {
        let Listed { name, contents, .. } = listed;
        let contents = match contents {
            Ok(contents) => contents,
            Err(cause) => {
                let volume = self.files.stores[store].id().0;
                plan.lanes.add_unread(volume, &name);
                let span_ns = (name.first_ns(), until_ns);
                let fault = cause.fault(&self.files.path(store, &name.path()));
                self.damage(store, fault, Some(0), span_ns);
                plan.unbounded.push(((name.run(), volume, name.number()), self.damages.len() - 1, span_ns));
                return;
            }
        };
        plan.lanes.add(store, &contents);
        let whole = contents.span_ns();
        self.hear(whole);
        plan.reach(contents.run_id, contents.reach_ns());
        if let Some(cause) = contents.index {
            let (first_ns, max_ns) = whole.unwrap_or((name.first_ns(), until_ns));
            // Slots whose feet hold are read all the same; of the others the lane's numbers say how many. Nobody
            // knows what a file without an end has lost.
            let (lost, span_ns) = match cause {
                IndexError::None => (None, (max_ns, until_ns.max(max_ns))),
                _ => ((contents.unread == 0).then_some(0), (first_ns, max_ns)),
            };
            if self.touches(span_ns) {
                let path = self.files.path(store, &name.path());
                let fault = Fault::of_thing(path.to_string_lossy()).cause(cause.to_string());
                self.damage(store, fault, lost.or(Some(0)), span_ns);
                if let Some(damaged) = self.damages.last_mut() {
                    damaged.is_cut = cause == IndexError::None;
                }
                if lost.is_none() {
                    let file = (begin_of_run(&contents.run_id), contents.volume, contents.number);
                    plan.unbounded.push((file, self.damages.len() - 1, span_ns));
                }
            }
        }
        if let Some(damage) = &contents.head
            && whole.is_some_and(|span_ns| self.touches(span_ns))
        {
            let path = self.files.path(store, &name.path());
            let fault = Fault::of_thing(path.to_string_lossy()).cause(damage.to_string());
            self.damage(store, fault, Some(0), whole.unwrap_or_default());
        }
        if !contents.reach_ns().is_some_and(|reach_ns| self.touches(reach_ns)) {
            return;
        }
        let file = self.files.files.len();
        let may_stay = file < OPEN_MAX;
        let open = may_stay.then(|| listing::open(self.files.stores[store].folder(), &name).ok()).flatten();
        let open = open.map(unhurried);
        let drops_as = contents.interfaces.first().map_or(GapReason::Kernel, HeadInterface::drops_as);
        let is_composed = !contents.filter.is_empty() || contents.snap > 0;
        self.planned().files.push(SourceFile { store, name, open, is_composed, drops_as });
        if contents.head.as_ref().is_some_and(|damage| damage.mended_at.is_none()) {
            plan.headless.push(file);
        }
        for (number, interface) in (0..).zip(contents.interfaces) {
            let key = (contents.run_id, contents.link_type, number);
            plan.interfaces.entry(key).or_insert(interface);
        }
        let filtered = !contents.filter.is_empty();
        for facts in contents.segments {
            let foot = &facts.foot;
            let has_packets = foot.packets > 0 && self.touches((foot.min_ns, foot.max_ns));
            if !has_packets && !self.touches(foot.reach_ns()) {
                continue;
            }
            self.work.segments += u64::from(has_packets);
            if !has_packets || !facts.may_match {
                self.work.skipped += u64::from(has_packets);
                let last = plan.skipped.entry((foot.run_id, foot.lane)).or_insert((file, facts));
                if last.1.foot.first_packet < facts.foot.first_packet {
                    *last = (file, facts);
                }
                continue;
            }
            let lane = plan.lane_of(foot);
            let first = plan.lane_begins.entry(lane).or_insert((foot.min_ns, foot.link_type));
            first.0 = first.0.min(foot.min_ns);
            plan.candidates.push((
                foot.id(),
                filtered,
                Reverse(foot.packets),
                facts.is_open,
                self.segments.len(),
            ));
            self.segments.push(Segment { file, lane: 0, facts });
        }
    }

    fn touches(&self, (min_ns, max_ns): (i64, i64)) -> bool {
        min_ns <= self.span.to_ns && max_ns >= self.span.from_ns
    }

    /// Numbers lanes by run, and chooses among copies. Returns of each lane the last segment, its file, and whether it has
    /// its turn.
    fn begin(&mut self, plan: &mut Plan) -> Vec<(usize, SegmentFacts, bool)> {
        let mut runs: BTreeMap<[u8; 16], i64> = BTreeMap::new();
        for ((run, ..), (begin_ns, _)) in &plan.lane_begins {
            let first = runs.entry(*run).or_insert(*begin_ns);
            *first = (*first).min(*begin_ns);
        }
        let mut order: Vec<(LaneId, LinkType)> =
            plan.lane_begins.iter().map(|(&id, &(_, link_type))| (id, link_type)).collect();
        order.sort_unstable_by_key(|&((run, lane, inexact), _)| (runs[&run], run, lane, inexact));
        let lane = |&((run, lane, inexact), link_type): &_| Lane { run, lane, inexact, link_type };
        let lanes: Vec<Lane> = order.iter().map(lane).collect();
        let numbers: HashMap<LaneId, u32> =
            (0..).zip(&order).map(|(number, &(id, _))| (id, number)).collect();
        for segment in &mut self.segments {
            segment.lane = numbers[&plan.lane_of(&segment.facts.foot)];
        }
        self.name_unknown(plan);
        plan.candidates.sort_unstable();
        let mut chosen: Option<(SegmentId, usize)> = None;
        let (mut order, mut lasts): (Vec<(Rank, usize)>, Vec<_>) = (Vec::new(), Vec::new());
        for (id, _, _, _, at) in std::mem::take(&mut plan.candidates) {
            match chosen {
                Some((known, first)) if known == id => self.copies.entry(first).or_default().push(at),
                _ => {
                    chosen = Some((id, at));
                    let Segment { lane, facts, .. } = &self.segments[at];
                    if plan.lanes.is_last(&facts.foot) {
                        lasts.push((self.segments[at].file, *facts, true));
                    }
                    order.push(((facts.foot.min_ns, *lane, facts.foot.first_packet), at));
                }
            }
        }
        order.sort_unstable();
        self.pending = order.into_iter().map(|(_, at)| at).collect();
        let passed = plan.skipped.values().filter(|(_, facts)| plan.lanes.is_last(&facts.foot));
        lasts.extend(passed.map(|&(file, facts)| (file, facts, false)));
        self.interfaces = Arc::new(StoreInterfaces::new(std::mem::take(&mut plan.interfaces), lanes));
        lasts
    }

    /// Says how much is missing of files that can't be read, or only in part: as much as the numbers of the lanes say,
    /// where these go on behind the file; else nobody knows.
    fn bound(&mut self, plan: &Plan, lacks: &[Lack]) {
        for &(file, damage, (from_ns, to_ns)) in &plan.unbounded {
            let of_file = || lacks.iter().filter(|lack| lack.unread == Some(file));
            let shown = of_file().filter(|lack| !lack.is_elsewhere).map(|lack| lack.gap.lost_min);
            let is_known = plan.lanes.show_all(file)
                && plan.lanes.partial().is_empty()
                && of_file().all(|lack| lack.gap.lost_max == Some(lack.gap.lost_min));
            self.damages[damage].packets =
                is_known.then(|| shown.fold(0, |sum: u64, lost| sum.saturating_add(lost)));
            if !plan.lanes.show_all(file) && self.touches((from_ns, to_ns)) {
                let reason = GapReason::Unreadable;
                self.losses.add([Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None }]);
            }
        }
    }

    /// Interfaces of packets in files whose head is damaged, where no other head of the run describes them.
    fn name_unknown(&mut self, plan: &mut Plan) {
        let mut slot = Vec::new();
        for segment in self.segments.iter().filter(|segment| plan.headless.contains(&segment.file)) {
            let opened = self.files.open(segment.file);
            // What can't be read is stated when its turn comes.
            let read = opened.and_then(|file| load::checked(&file, &segment.facts, &mut slot));
            let Some(stored) = read.ok().and_then(|()| StoredSegment::new(&slot).ok()) else { continue };
            let foot = &segment.facts.foot;
            for number in stored.packets().map(|block| block.interface()) {
                let unknown = || HeadInterface {
                    name: format!("interface {number}"),
                    description: "its name stood in a head that is damaged".to_string(),
                    link_type: foot.link_type,
                };
                plan.interfaces.entry((foot.run_id, foot.link_type, number)).or_insert_with(unknown);
            }
        }
    }

    fn damage(&mut self, store: usize, fault: Fault, packets: Option<u64>, (from_ns, to_ns): (i64, i64)) {
        if packets != Some(0) {
            let (lost_min, lost_max) = (packets.unwrap_or(0), packets);
            self.losses.add([Gap { from_ns, to_ns, reason: GapReason::Unreadable, lost_min, lost_max }]);
        }
        let store = self.files.stores[store].folder().path().to_path_buf();
        self.damages.push(Damaged { fault, store, packets, is_cut: false });
    }

    /// What a lane lost behind the begin of its last segment is in no foot: its statistics say it. Where they can't be
    /// read neither can the segment, which is told when its turn comes; of one that is passed over it is told here.
    fn look_behind(&mut self, file: usize, facts: &SegmentFacts, has_turn: bool) {
        let foot = &facts.foot;
        if facts.is_open {
            return; // it has none yet
        }
        let drops_as = self.files.files[file].drops_as;
        let read = self.files.open(file).and_then(|opened| sparse::statistics(&opened, facts));
        let Ok(said) = read else {
            if !has_turn {
                let ((from_ns, to_ns), reason) = (foot.reach_ns(), GapReason::Unreadable);
                self.losses.add([Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None }]);
            }
            return;
        };
        let dropped = said.iter().fold(0u64, |sum, said| sum.saturating_add(said.dropped));
        let known: u64 = foot.drops_before.iter().map(|(_, packets)| packets).sum();
        let known = known.saturating_add(foot.file_losses.packets());
        let lost = dropped.saturating_sub(known);
        if lost > 0 {
            let until_ns = said.iter().map(|said| said.time_ns).max();
            let (from_ns, end_ns) = foot.reach_ns();
            let (to_ns, reason) = (until_ns.unwrap_or(end_ns).max(end_ns), drops_as);
            self.losses.add([Gap { from_ns, to_ns, reason, lost_min: lost, lost_max: Some(lost) }]);
        }
    }

    /// The next segment comes in, read.
    fn take(&mut self, number: usize) {
        let Some(outcome) = self.loaders.as_ref().and_then(|loaders| loaders.take(number)) else { return };
        if let Some(loaded) = self.received(number, outcome) {
            let lane = self.segments[number].lane;
            if let Err(cause) = self.merge.add(lane, loaded) {
                self.fail_spilling(&cause);
            }
        }
    }

    /// What became of a segment: its packets, or those of a copy.
    fn received(&mut self, number: usize, outcome: Outcome) -> Option<Loaded> {
        let Outcome { loaded, damaged, effort } = outcome;
        let Effort { read_bytes, is_whole, is_unmatched, evaluating } = effort;
        self.work.bytes += read_bytes;
        self.work.evaluating += evaluating;
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(cause) => return self.fail(number, &cause),
        };
        self.work.whole += u64::from(is_whole);
        self.work.in_part += u64::from(!is_whole);
        self.work.unmatched += u64::from(is_unmatched);
        if damaged == 0 {
            return Some(loaded);
        }
        let copy = self.whole_copy(number);
        self.tell_of_pages(number, if copy.is_some() { 0 } else { damaged });
        copy.or(Some(loaded))
    }

    /// Another copy of a segment with damaged pages, if that has all of it.
    fn whole_copy(&mut self, number: usize) -> Option<Loaded> {
        let packets = self.segments[number].facts.foot.packets;
        for copy in self.copies.remove(&number).unwrap_or_default() {
            let facts = self.segments[copy].facts;
            let outcome = self.loaders.as_ref()?.read_alone(copy, facts);
            self.work.bytes += outcome.effort.read_bytes;
            if facts.foot.packets == packets && outcome.damaged == 0 && outcome.loaded.is_ok() {
                return outcome.loaded.ok();
            }
        }
        None
    }

    /// Pages of a segment are damaged, and with them so many packets that may match.
    fn tell_of_pages(&mut self, number: usize, packets: u64) {
        let Segment { file, facts, .. } = &self.segments[number];
        let SourceFile { store, name, .. } = &self.files.files[*file];
        let (store, path) = (*store, self.files.path(*store, &name.path()));
        let cause = format!("the segment at byte {}: pages of it are damaged", facts.offset);
        let span_ns = (facts.foot.min_ns, facts.foot.max_ns);
        self.damage(store, Fault::of_thing(path.to_string_lossy()).cause(cause), Some(packets), span_ns);
    }

    /// A segment can't be read: another copy takes its place, or its packets are missing.
    fn fail(&mut self, number: usize, cause: &io::Error) -> Option<Loaded> {
        let Segment { file, facts, .. } = &self.segments[number];
        let (packets, span_ns) = (u64::from(facts.foot.packets), (facts.foot.min_ns, facts.foot.max_ns));
        let SourceFile { store, name, .. } = &self.files.files[*file];
        let (store, path) = (*store, self.files.path(*store, &name.path()));
        let reason = match cause.kind() {
            io::ErrorKind::NotFound => "the file was deleted meanwhile".to_string(),
            _ => format!("the segment at byte {}: {cause}", facts.offset),
        };
        let copy = self.copies.get_mut(&number).filter(|copies| !copies.is_empty());
        let copy = copy.map(|copies| (copies.remove(0), std::mem::take(copies)));
        let of_copy = copy.as_ref().map_or(0, |(copy, _)| self.segments[*copy].facts.foot.packets);
        let missing = packets.saturating_sub(of_copy.into());
        self.damage(store, Fault::of_thing(path.to_string_lossy()).cause(reason), Some(missing), span_ns);
        let (copy, others) = copy?;
        self.copies.insert(copy, others);
        let facts = self.segments[copy].facts;
        let outcome = self.loaders.as_ref()?.read_alone(copy, facts);
        self.received(copy, outcome)
    }

    /// What waits has no room: the answer ends here, and what comes behind it is missing.
    fn fail_spilling(&mut self, cause: &io::Error) {
        self.pending.clear();
        self.loaders = None;
        let room_bytes = usize::MAX;
        let merge = std::mem::replace(&mut self.merge, Merge::new(room_bytes, Spill::new(SpillFile::None)));
        self.work.spilled_bytes += merge.spilled_bytes();
        let from_ns = merge.first().map_or(self.span.from_ns, |(time_ns, ..)| time_ns);
        let (to_ns, reason) = (self.span.to_ns, GapReason::Unreadable);
        self.losses.add([Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None }]);
        let (setting, remedy) = self.no_room;
        let cause = format!("packets that wait for their turn have no room: {cause}");
        let fault = Fault::of(setting).cause(cause).remedy(remedy);
        self.damages.push(Damaged { fault, store: PathBuf::new(), packets: None, is_cut: false });
    }

    /// Where the next segment begins that isn't merged yet.
    fn next_pending(&self) -> Option<(Rank, usize)> {
        let &number = self.pending.front()?;
        let Segment { lane, facts, .. } = &self.segments[number];
        Some(((facts.foot.min_ns, *lane, facts.foot.first_packet), number))
    }
}

/// A run, its own number of a lane, and whether numbers don't say which packets of it a segment has.
type LaneId = ([u8; 16], u32, bool);

/// What is gathered before the first piece.
#[derive(Default)]
struct Plan {
    lanes: Lanes,
    interfaces: BTreeMap<([u8; 16], LinkType, u32), HeadInterface>,
    /// Files whose head is damaged.
    headless: Vec<usize>,
    /// Files that can't be read, or only in part, and of which their own bytes don't tell how much is missing: each
    /// with the number of its damage, and when that may have been.
    unbounded: Vec<(UnreadFile, usize, (i64, i64))>,
    /// Smallest time and link type of each lane.
    lane_begins: BTreeMap<LaneId, (i64, LinkType)>,
    /// See [`Means::inexact_apart`].
    inexact_apart: bool,
    /// There are stores, and no run writes one of them.
    has_ended: bool,
    /// From when to when each run has packets, or left some out, ns.
    runs: BTreeMap<[u8; 16], (i64, i64)>,
    /// By run and lane: of the segments that can't have a match, or no packet in the span, the last one, and its file.
    skipped: BTreeMap<([u8; 16], u32), (usize, SegmentFacts)>,
    /// The best copy of a segment comes first: all packets, more of them, a closed one.
    candidates: Vec<(SegmentId, bool, Reverse<u32>, bool, usize)>,
}

impl Plan {
    /// A run has packets of these times, or left some out.
    fn reach(&mut self, run: [u8; 16], span_ns: Option<(i64, i64)>) {
        let Some((min_ns, max_ns)) = span_ns else { return };
        let known = self.runs.entry(run).or_insert((min_ns, max_ns));
        *known = (known.0.min(min_ns), known.1.max(max_ns));
    }

    /// The parts of a span between the packets of runs, and in front of them and behind them where a begin or an end was
    /// asked for: nobody says that a run was going. In front of a run whose begin is gone stood what was deleted.
    fn between_runs(&self, span: Span) -> Vec<Gap> {
        let cut = self.lanes.cut_runs();
        let mut runs: Vec<((i64, i64), &[u8; 16])> =
            self.runs.iter().map(|(run, span_ns)| (*span_ns, run)).collect();
        runs.sort_unstable();
        let mut gaps = Vec::new();
        let mut up_to_ns = (span.from_ns > 0).then_some(span.from_ns - 1);
        for ((first_ns, last_ns), run) in runs {
            let is_behind = |up_to_ns: &i64| up_to_ns.saturating_add(1) < first_ns;
            if let Some(before_ns) = up_to_ns.filter(is_behind)
                && !self.lanes.may_begin_elsewhere(run)
            {
                let (reason, lost_max) = match cut.contains(run) {
                    true => (GapReason::Deleted, None),
                    false => (GapReason::NotRecorded, Some(0)),
                };
                let (from_ns, to_ns) = (before_ns + 1, first_ns - 1);
                gaps.push(Gap { from_ns, to_ns, reason, lost_min: 0, lost_max });
            }
            up_to_ns = up_to_ns.max(Some(last_ns));
        }
        let is_asked =
            |up_to_ns: &i64| *up_to_ns < span.to_ns && (span.to_ns < i64::MAX || *up_to_ns < span.from_ns);
        if self.has_ended
            && !self.lanes.may_go_on_elsewhere()
            && let Some(up_to_ns) = up_to_ns.filter(is_asked)
        {
            let (from_ns, to_ns, reason) = (up_to_ns + 1, span.to_ns, GapReason::NotRecorded);
            gaps.push(Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: Some(0) });
        }
        gaps
    }

    fn lane_of(&self, foot: &Foot) -> LaneId {
        (foot.run_id, foot.lane, self.inexact_apart && foot.left_out.packets > 0)
    }
}

impl Timeline for StoreTimeline {
    fn settle(&mut self, _: i64) -> Settled {
        Settled { up_to: Moment::END, goes_on: false }
    }

    fn look(&mut self, _: i64, _: bool) {}

    fn next(&mut self) -> Option<Piece> {
        while !self.stop.load(Ordering::Relaxed) {
            let pending = self.next_pending();
            match pending {
                Some((rank, number)) if self.merge.first().is_none_or(|first| rank <= first) => {
                    self.pending.pop_front();
                    self.take(number);
                }
                _ => {
                    let Stretch { lane, min_ns, first_packet, packets } =
                        self.merge.next(pending.map(|(rank, _)| rank))?;
                    let Lane { run, lane: of_run, .. } = *self.interfaces.all_lanes().get(lane as usize)?;
                    let segment = SegmentId { run, lane: of_run, sequence: 0 }; // perhaps of several
                    let packets = packets as u32;
                    return Some(Piece { segment, lane, first_packet, packets, min_ns, ordered: true });
                }
            }
        }
        None
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        let pending = self.next_pending().map(|(rank, _)| rank);
        let (time_ns, lane, _) = self.merge.first().into_iter().chain(pending).min()?;
        Some((time_ns, lane))
    }

    /// For whoever evaluates a filter of his own; else all is [`Timeline::selected`].
    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        Some(self.merge.screen(keys, always))
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        let (places, blocks) = self.merge.lent();
        Packets::chosen(places, picked, blocks)
    }

    fn selected(&mut self) -> Option<Packets<'_>> {
        let (places, blocks) = self.merge.lent();
        Some(Packets::listed(places, blocks))
    }

    fn done(&mut self) {
        if let Err(cause) = self.merge.done() {
            self.fail_spilling(&cause);
        }
    }

    fn wait(&mut self, _: i64) {}

    fn end(&mut self) {
        if let Some(loaders) = &mut self.loaders {
            loaders.end();
        }
        self.pending.clear();
        self.work.spilled_bytes += self.merge.spilled_bytes();
        self.merge = Merge::new(0, Spill::new(SpillFile::None));
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        self.interfaces.all_lanes().get(lane as usize).map(|lane| lane.link_type)
    }

    fn heard(&self) -> Option<(i64, i64)> {
        self.heard
    }

    fn missing(&self, to_ns: i64) -> Vec<Gap> {
        self.losses.within(Span { to_ns: to_ns.min(self.span.to_ns), ..self.span })
    }
}
