//! Stores as a timeline: the packets of a span, piece by piece out of their files, and what is missing.
//!
//! ```text
//! listings ─► segments that touch the span, each once ─► heap by the time of the next packet
//!                                                           pop: read, check, take so many bytes of it, push the rest
//! ```
//! A piece is the part of a segment that comes next: at most as much as leaves room for a piece of every
//! other segment that lies in time beside it, so that a merge by pieces needs bounded memory however many lanes
//! and runs there are. Where times step back inside a segment its packets come by time all the same.
//!
//! Segments are read whole, checked, and kept (packets and keys only) until they are finished, as far as there
//! is room; a segment that had to go is read again. What can't be read is left out and stated.
//!
//! Where few keys are searched for, segments whose summary can't hold them are passed over, and of the others only
//! the key column is read and the pages in which packets lie that may match.

use crate::checks::Hash;
use crate::head::HeadInterface;
use crate::index::IndexError;
use crate::lanes::{Lack, Lanes, Partial, UnreadFile};
use crate::listing::{self, Keys, Listed, Listing, SegmentFacts};
use crate::name::{FileName, begin_of_run, day_ns};
use crate::segment::StoredSegment;
use crate::sparse::{self, Sparse};
use crate::unread::unread;
use crate::volume::Store;
use scope_fault::Fault;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment::{Foot, SegmentId};
use scope_packet::{Gap, GapReason, LinkType, Moment, pcapng};
use scope_ring::{Column, KeyTest, Matches, Packets, Piece, Settled, Timeline};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of segments that are kept for their next piece, beside the one that is read.
const KEPT_BYTES_MAX: usize = 96 << 20;
/// What a packet that waits for its turn takes beside its block, about.
const WAITING_ENTRY_BYTES: usize = 96;
/// Files that stay open from the beginning: they are read to their end even if retention deletes them.
const OPEN_MAX: usize = 512;

/// Which packets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From this time on, ns.
    pub from_ns: i64,
    /// Up to this time, ns, which belongs to it.
    pub to_ns: i64,
}

/// The interfaces of all runs, by lane of the timeline.
#[derive(Clone, Debug, Default)]
pub struct StoreInterfaces {
    /// By run, link type and the run's number.
    known: BTreeMap<([u8; 16], LinkType, u32), HeadInterface>,
    lanes: Vec<Lane>,
}

/// A lane of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    run: [u8; 16],
    link_type: LinkType,
}

impl StoreInterfaces {
    /// The interface that a block of lane `lane` of the timeline calls `number`, as (run, number), with what is
    /// known of it.
    pub fn of(&self, lane: u32, number: u32) -> Option<(([u8; 16], u32), &HeadInterface)> {
        let Lane { run, link_type } = *self.lanes.get(lane as usize)?;
        Some(((run, number), self.known.get(&(run, link_type, number))?))
    }

    /// The same with those of another source of packets, whose lanes follow behind its own: a link type each, and
    /// its interfaces by number.
    pub fn with(
        &self,
        run: [u8; 16],
        link_types: &[LinkType],
        interfaces: impl IntoIterator<Item = HeadInterface>,
    ) -> StoreInterfaces {
        let mut all = self.clone();
        all.lanes.extend(link_types.iter().map(|&link_type| Lane { run, link_type }));
        let numbered = (0..).zip(interfaces);
        all.known.extend(numbered.map(|(number, known)| ((run, known.link_type, number), known)));
        all
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// All that may have packets of this link type, as (run, number).
    pub fn all(&self, link_type: LinkType) -> impl Iterator<Item = (([u8; 16], u32), &HeadInterface)> {
        let of_type = self.known.iter().filter(move |((_, of, _), _)| *of == link_type);
        of_type
            .filter(|(_, interface)| interface.has_packets())
            .map(|((run, _, number), known)| ((*run, *number), known))
    }
}

/// A segment that may be read.
struct Segment {
    file: usize,
    lane: u32,
    facts: SegmentFacts,
}

/// Where its next packet stands in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    min_ns: i64,
    lane: u32,
    sequence: u64,
    /// Its number in the list of segments.
    segment: usize,
    /// So many of its packets are out.
    taken: usize,
}

/// A segment's packets and keys.
struct Loaded {
    blocks: Vec<u8>,
    /// As they lay: the last packet's first.
    entries: Vec<u8>,
    /// The packets that can be wanted, by time, where that aren't all of them as they lie.
    order: Option<Vec<u32>>,
    /// Whether times among these never step back.
    ordered: bool,
    /// Bytes of memory that it takes.
    bytes: usize,
    /// When it is needed next.
    next: Next,
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
    /// Segments read in part, and whole.
    pub in_part: u64,
    /// As above.
    pub whole: u64,
    /// Bytes of segments that were read.
    pub bytes: u64,
}

/// The piece that is lent.
struct Current {
    segment: usize,
    from: usize,
    to: usize,
    /// The segment has no other.
    is_last: bool,
}

struct SourceFile {
    store: usize,
    name: FileName,
    open: Option<File>,
    /// Why its lanes lack packets, where only statistics say so.
    drops_as: GapReason,
}

impl SourceFile {
    /// The file, open: it may have been kept so.
    fn open(&self, stores: &[Store]) -> io::Result<File> {
        match &self.open {
            Some(open) => open.try_clone(),
            None => listing::open(stores[self.store].folder(), &self.name),
        }
    }
}

/// The packets of a span out of one store or several.
pub struct StoreTimeline {
    stores: Vec<Store>,
    files: Vec<SourceFile>,
    segments: Vec<Segment>,
    /// Other copies of a segment, by that which is read.
    copies: HashMap<usize, Vec<usize>>,
    interfaces: Arc<StoreInterfaces>,
    heap: BinaryHeap<Reverse<Next>>,
    span: Span,
    /// What may wait in the merge, and what of a segment is one piece at most.
    waiting_bytes: usize,
    piece_bytes: usize,
    kept: HashMap<usize, Loaded>,
    current: Option<Current>,
    stop: Arc<AtomicBool>,
    losses: Losses,
    damages: Vec<Damaged>,
    heard: Option<(i64, i64)>,
    partial: Vec<(Partial, u64)>,
    slot: Vec<u8>,
    /// What is searched for, where that isn't everything.
    keys: BTreeMap<LinkType, KeyTest>,
    work: Work,
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
    /// Of these stores the packets of `span`, at least those whose keys pass `keys`, for which the stores were
    /// listed. What waits in a merge of its pieces takes at most about `waiting_bytes`. Once `stop` is set no
    /// further piece comes.
    pub fn new(
        stores: Vec<(Store, Listing)>,
        span: Span,
        keys: Keys<'_>,
        waiting_bytes: usize,
        stop: Arc<AtomicBool>,
    ) -> StoreTimeline {
        let mut timeline = StoreTimeline {
            stores: Vec::new(),
            files: Vec::new(),
            segments: Vec::new(),
            copies: HashMap::new(),
            interfaces: Arc::default(),
            heap: BinaryHeap::new(),
            span,
            waiting_bytes,
            piece_bytes: 0,
            kept: HashMap::new(),
            current: None,
            stop,
            losses: Losses::default(),
            damages: Vec::new(),
            heard: None,
            partial: Vec::new(),
            slot: Vec::new(),
            keys: BTreeMap::new(),
            work: Work::default(),
        };
        let mut plan = Plan::default();
        for (number, (store, listing)) in stores.into_iter().enumerate() {
            plan.lanes.give(store.id().0);
            timeline.stores.push(store);
            for (day, error) in &listing.unread {
                timeline.add_unread(number, day, error, &listing.files);
            }
            let begins: Vec<i64> = listing.files.iter().map(|file| file.name.first_ns()).collect();
            for (at, listed) in listing.files.into_iter().enumerate() {
                // What a file that can't be read had lies before the next one's begin.
                let next_ns = begins[at + 1..].iter().copied().find(|&begin| begin > begins[at]);
                timeline.add(number, listed, next_ns.map_or(i64::MAX, |next_ns| next_ns - 1), &mut plan);
            }
        }
        let lacks = plan.lanes.lacks();
        timeline.bound(&plan, &lacks);
        // What a damaged file may have had is missing, also if another volume may have had it.
        let is_told = |lack: &&Lack| !lack.is_elsewhere || lack.unread.is_some();
        timeline.losses.add(lacks.iter().filter(is_told).map(|lack| lack.gap));
        let touch = |lack: &&Lack| lack.is_elsewhere && timeline.touches((lack.gap.from_ns, lack.gap.to_ns));
        let elsewhere = |run_id| {
            let of_run = lacks.iter().filter(touch).filter(|lack| lack.run_id == run_id);
            of_run.fold(0, |sum: u64, lack| sum.saturating_add(lack.gap.lost_max.unwrap_or(0)))
        };
        let partial = plan.lanes.partial();
        timeline.partial = partial.into_iter().map(|partial| (partial, elsewhere(partial.run_id))).collect();
        timeline.begin(plan);
        let types: BTreeSet<LinkType> = timeline.interfaces.lanes.iter().map(|lane| lane.link_type).collect();
        let tests = types.into_iter().map(|link_type| (link_type, keys(link_type)));
        timeline.keys = tests.filter(|(_, test)| *test != KeyTest::all()).collect();
        timeline
    }

    /// What was read by now.
    pub fn work(&self) -> Work {
        self.work
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

    /// Packets of all segments that touch the span, at most.
    pub fn packets_max(&self) -> u64 {
        self.heap.iter().map(|Reverse(next)| u64::from(self.segments[next.segment].facts.foot.packets)).sum()
    }

    /// What the folder of a day has that can't be read may reach up to the begin of the next file.
    fn add_unread(&mut self, store: usize, day: &Path, error: &io::Error, files: &[Listed]) {
        let Some((from_ns, day_end_ns)) = day.to_str().and_then(day_ns) else { return };
        let behind = files.iter().map(|file| file.name.first_ns()).filter(|&begin| begin > day_end_ns);
        let span_ns = (from_ns, behind.min().map_or(i64::MAX, |next_ns| next_ns - 1));
        if self.touches(span_ns) {
            self.damage(store, unread(&self.path(store, day), error), None, span_ns);
        }
    }

    /// Where this stands that is in a store.
    fn path(&self, store: usize, below: &Path) -> PathBuf {
        self.stores[store].folder().path().join(below)
    }

    fn add(&mut self, store: usize, listed: Listed, until_ns: i64, plan: &mut Plan) {
        let Listed { name, contents, .. } = listed;
        let contents = match contents {
            Ok(contents) => contents,
            Err(cause) => {
                let volume = self.stores[store].id().0;
                plan.lanes.add_unread(volume, &name);
                let span_ns = (name.first_ns(), until_ns);
                let fault = cause.fault(&self.path(store, &name.path()));
                self.damage(store, fault, Some(0), span_ns);
                plan.unbounded.push(((name.run(), volume, name.number()), self.damages.len() - 1, span_ns));
                return;
            }
        };
        plan.lanes.add(store, &contents);
        let whole = contents.span_ns();
        self.heard = self.heard.into_iter().chain(whole).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        if let Some(cause) = contents.index {
            let (first_ns, max_ns) = whole.unwrap_or((name.first_ns(), until_ns));
            // Slots whose feet hold are read all the same; of the others the lane's numbers say how many. Nobody
            // knows what a file without an end has lost.
            let (lost, span_ns) = match cause {
                IndexError::None => (None, (max_ns, until_ns.max(max_ns))),
                _ => ((contents.unread == 0).then_some(0), (first_ns, max_ns)),
            };
            if self.touches(span_ns) {
                let path = self.path(store, &name.path());
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
            let path = self.path(store, &name.path());
            let fault = Fault::of_thing(path.to_string_lossy()).cause(damage.to_string());
            self.damage(store, fault, Some(0), whole.unwrap_or_default());
        }
        if !whole.is_some_and(|span_ns| self.touches(span_ns)) {
            return;
        }
        let file = self.files.len();
        let open =
            (file < OPEN_MAX).then(|| listing::open(self.stores[store].folder(), &name).ok()).flatten();
        let drops_as = contents.interfaces.first().map_or(GapReason::Kernel, HeadInterface::drops_as);
        self.files.push(SourceFile { store, name, open, drops_as });
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
            if foot.packets == 0 || !self.touches((foot.min_ns, foot.max_ns)) {
                continue;
            }
            self.work.segments += 1;
            if !facts.may_match {
                self.work.skipped += 1;
                let last = plan.skipped.entry((foot.run_id, foot.lane)).or_insert((file, facts));
                if last.1.foot.first_packet < facts.foot.first_packet {
                    *last = (file, facts);
                }
                continue;
            }
            let first =
                plan.lane_begins.entry((foot.run_id, foot.lane)).or_insert((foot.min_ns, foot.link_type));
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

    /// Numbers lanes by run, chooses among copies, and sets out.
    fn begin(&mut self, mut plan: Plan) {
        let mut runs: BTreeMap<[u8; 16], i64> = BTreeMap::new();
        for ((run, _), (begin_ns, _)) in &plan.lane_begins {
            let first = runs.entry(*run).or_insert(*begin_ns);
            *first = (*first).min(*begin_ns);
        }
        let mut order: Vec<_> =
            plan.lane_begins.iter().map(|(&(run, lane), &(_, of))| (runs[&run], run, lane, of)).collect();
        order.sort_unstable_by_key(|&(begin_ns, run, lane, _)| (begin_ns, run, lane));
        let lanes: Vec<Lane> = order.iter().map(|&(_, run, _, link_type)| Lane { run, link_type }).collect();
        let numbers: HashMap<([u8; 16], u32), u32> =
            (0..).zip(&order).map(|(number, &(_, run, lane, _))| ((run, lane), number)).collect();
        for segment in &mut self.segments {
            let foot = &segment.facts.foot;
            segment.lane = numbers[&(foot.run_id, foot.lane)];
        }
        self.name_unknown(&mut plan);
        plan.candidates.sort_unstable();
        let mut chosen: Option<(SegmentId, usize)> = None;
        let (mut ends, mut lasts) = (Vec::new(), Vec::new());
        for (id, _, _, _, at) in plan.candidates {
            match chosen {
                Some((known, first)) if known == id => self.copies.entry(first).or_default().push(at),
                _ => {
                    chosen = Some((id, at));
                    let Segment { lane, facts, .. } = &self.segments[at];
                    let (min_ns, max_ns) = (facts.foot.min_ns, facts.foot.max_ns);
                    ends.extend([(min_ns, 0), (max_ns, 1)]);
                    if plan.lanes.is_last(&facts.foot) {
                        lasts.push((self.segments[at].file, *facts));
                    }
                    self.heap.push(Reverse(Next {
                        min_ns,
                        lane: *lane,
                        sequence: id.sequence,
                        segment: at,
                        taken: 0,
                    }));
                }
            }
        }
        ends.sort_unstable();
        let (mut beside, mut most) = (0_usize, 1);
        for (_, end) in ends {
            beside = if end == 0 { beside + 1 } else { beside.saturating_sub(1) };
            most = most.max(beside);
        }
        self.piece_bytes = self.waiting_bytes / most;
        lasts.iter().for_each(|(file, facts)| self.look_behind(*file, facts, true));
        let passed = plan.skipped.values().filter(|(_, facts)| plan.lanes.is_last(&facts.foot));
        passed.for_each(|(file, facts)| self.look_behind(*file, facts, false));
        self.interfaces = Arc::new(StoreInterfaces { known: plan.interfaces, lanes });
    }

    /// Says how much is missing of files that can't be read, or only in part: as much as the numbers of the lanes say,
    /// where these go on behind the file; else nobody knows.
    fn bound(&mut self, plan: &Plan, lacks: &[Lack]) {
        for &(file, damage, (from_ns, to_ns)) in &plan.unbounded {
            let of_file = lacks.iter().filter(|lack| lack.unread == Some(file));
            let shown = of_file.filter(|lack| !lack.is_elsewhere).map(|lack| lack.gap.lost_min);
            let is_known = plan.lanes.show_all(file) && plan.lanes.partial().is_empty();
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
        for segment in self.segments.iter().filter(|segment| plan.headless.contains(&segment.file)) {
            let opened = self.files[segment.file].open(&self.stores);
            // What can't be read is stated when its turn comes.
            let Ok(stored) = opened.and_then(|file| checked(&file, &segment.facts, &mut self.slot)) else {
                continue;
            };
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
        let store = self.stores[store].folder().path().to_path_buf();
        self.damages.push(Damaged { fault, store, packets, is_cut: false });
    }

    /// What a lane lost behind the begin of its last segment is in no foot: its statistics say it. Where they can't be
    /// read neither can the segment, which is told when its turn comes; of one that is passed over it is told here.
    fn look_behind(&mut self, file: usize, facts: &SegmentFacts, has_turn: bool) {
        let foot = &facts.foot;
        if facts.is_open {
            return; // it has none yet
        }
        let source = &self.files[file];
        let read = source.open(&self.stores).and_then(|opened| sparse::statistics(&opened, facts));
        let Ok(said) = read else {
            if !has_turn {
                let (from_ns, to_ns, reason) = (foot.min_ns, foot.max_ns, GapReason::Unreadable);
                self.losses.add([Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None }]);
            }
            return;
        };
        let dropped = said.iter().fold(0u64, |sum, said| sum.saturating_add(said.dropped));
        let known: u64 = foot.drops_before.iter().map(|(_, packets)| packets).sum();
        let lost = dropped.saturating_sub(known);
        if lost > 0 {
            let until_ns = said.iter().map(|said| said.time_ns).max();
            let to_ns = until_ns.unwrap_or(foot.max_ns).max(foot.max_ns);
            let (from_ns, reason) = (foot.min_ns, source.drops_as);
            self.losses.add([Gap { from_ns, to_ns, reason, lost_min: lost, lost_max: Some(lost) }]);
        }
    }

    /// Reads the packets of a segment, unless they are kept.
    fn load(&mut self, next: Next) -> io::Result<()> {
        if let Some(loaded) = self.kept.get_mut(&next.segment) {
            loaded.next = next;
            return Ok(());
        }
        let Segment { file, facts, .. } = &self.segments[next.segment];
        let source = self.files[*file].open(&self.stores)?;
        let test = self.keys.get(&facts.foot.link_type);
        let loaded = match test.filter(|_| !facts.is_open && facts.hash != Hash::NONE) {
            Some(test) => {
                let (run, link_type) = (facts.foot.run_id, facts.foot.link_type);
                let is_known = |number| self.interfaces.known.contains_key(&(run, link_type, number));
                let sparse = sparse::read(&source, facts, test, is_known)?;
                self.work.in_part += 1;
                self.work.bytes += sparse.read as u64;
                self.work.unmatched += u64::from(sparse.chosen.is_empty() && sparse.damaged == 0);
                let damaged = sparse.damaged;
                let loaded = Loaded::in_part(sparse, &facts.foot, next);
                if damaged > 0 && next.taken == 0 {
                    self.tell_of_pages(next, damaged);
                }
                loaded
            }
            None => {
                let (blocks, entries) = read(&source, facts, &self.interfaces, &mut self.slot)?;
                self.work.whole += 1;
                self.work.bytes += facts.bytes as u64;
                Loaded::whole(blocks, entries, &facts.foot, next)
            }
        };
        self.make_room(loaded.bytes);
        self.kept.insert(next.segment, loaded);
        Ok(())
    }

    /// Pages of a segment are damaged, and with them so many packets that may match.
    fn tell_of_pages(&mut self, next: Next, packets: u64) {
        let Segment { file, facts, .. } = &self.segments[next.segment];
        let SourceFile { store, name, .. } = &self.files[*file];
        let (store, path) = (*store, self.path(*store, &name.path()));
        let cause = format!("the segment at byte {}: pages of it are damaged", facts.offset);
        let span_ns = (facts.foot.min_ns, facts.foot.max_ns);
        self.damage(store, Fault::of_thing(path.to_string_lossy()).cause(cause), Some(packets), span_ns);
    }

    /// Lets go what is needed last, until so many bytes have room.
    fn make_room(&mut self, bytes: usize) {
        let mut sum: usize = self.kept.values().map(|loaded| loaded.bytes).sum();
        while sum + bytes > KEPT_BYTES_MAX
            && let Some((&last, _)) = self.kept.iter().max_by_key(|(_, loaded)| loaded.next)
        {
            sum -= self.kept.remove(&last).map_or(0, |loaded| loaded.bytes);
        }
    }

    /// A segment can't be read: another copy takes its place, or its packets are missing.
    fn fail(&mut self, next: Next, cause: &io::Error) {
        let foot = &self.segments[next.segment].facts.foot;
        let (packets, span_ns) = (u64::from(foot.packets), (foot.min_ns, foot.max_ns));
        let copy = self.copies.get_mut(&next.segment).filter(|_| next.taken == 0).and_then(|copies| {
            let copy = (!copies.is_empty()).then(|| copies.remove(0));
            copy.map(|copy| (copy, std::mem::take(copies)))
        });
        let mut missing = packets - next.taken as u64;
        if let Some((copy, others)) = copy {
            let foot = &self.segments[copy].facts.foot;
            missing = missing.saturating_sub(u64::from(foot.packets));
            self.copies.insert(copy, others);
            self.heap.push(Reverse(Next { segment: copy, min_ns: foot.min_ns, ..next }));
        }
        let SourceFile { store, name, .. } = &self.files[self.segments[next.segment].file];
        let (store, path) = (*store, self.path(*store, &name.path()));
        let place = self.segments[next.segment].facts.offset;
        let reason = match cause.kind() {
            io::ErrorKind::NotFound => "the file was deleted meanwhile".to_string(),
            _ => format!("the segment at byte {place}: {cause}"),
        };
        let fault = Fault::of_thing(path.to_string_lossy()).cause(reason);
        self.damage(store, fault, Some(missing), span_ns);
    }
}

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
    /// By run and lane: smallest time, link type.
    lane_begins: BTreeMap<([u8; 16], u32), (i64, LinkType)>,
    /// By run and lane: of the segments that can't have a match the last one, and its file.
    skipped: BTreeMap<([u8; 16], u32), (usize, SegmentFacts)>,
    /// The best copy of a segment comes first: all packets, more of them, a closed one.
    candidates: Vec<(SegmentId, bool, Reverse<u32>, bool, usize)>,
}

/// Reads a segment that is the one which was noted.
fn checked<'a>(file: &File, facts: &SegmentFacts, slot: &'a mut Vec<u8>) -> io::Result<StoredSegment<'a>> {
    let fill = |slot: &mut Vec<u8>| {
        slot.resize(facts.bytes, 0);
        file.read_exact_at(slot, facts.offset)
    };
    match facts.is_open {
        true if listing::proven(fill, slot)?.is_none() => {
            return Err(io::Error::other("nothing of it is proven any more"));
        }
        true => {}
        false => fill(slot)?,
    }
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
        true => Ok(segment),
        false => Err(io::Error::other("it is another one than was noted of it")),
    }
}

/// Reads a segment's packets and keys, checked.
fn read(
    file: &File,
    facts: &SegmentFacts,
    interfaces: &StoreInterfaces,
    slot: &mut Vec<u8>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let segment = checked(file, facts, slot)?;
    let (foot, known) = (segment.foot(), &facts.foot);
    let is_known = |number| interfaces.known.contains_key(&(foot.run_id, foot.link_type, number));
    let strange = segment.packets().map(|block| block.interface()).find(|&number| !is_known(number));
    if let Some(number) = strange {
        return Err(io::Error::other(format!("a packet has interface {number}, which no head describes")));
    }
    let blocks = &segment.blocks()[..known.block_bytes as usize];
    let entries = segment.column().bytes();
    let entries = &entries[entries.len() - known.packets as usize * KEY_ENTRY_BYTES..];
    Ok((blocks.to_vec(), entries.to_vec()))
}

/// The packets by time, those of one time as they lie.
fn by_time(blocks: &[u8], entries: &[u8]) -> Vec<u32> {
    let times: Vec<i64> = times(blocks, Column::new(entries));
    let mut order: Vec<u32> = (0..times.len() as u32).collect();
    order.sort_by_key(|&index| times[index as usize]);
    order
}

fn times(blocks: &[u8], column: Column<'_>) -> Vec<i64> {
    column.iter().map(|entry| time_at(blocks, entry.offset() as usize)).collect()
}

fn time_at(blocks: &[u8], at: usize) -> i64 {
    pcapng::PacketBlock::first(&blocks[at..]).map_or(i64::MAX, |block| block.time_ns())
}

impl Loaded {
    fn whole(blocks: Vec<u8>, entries: Vec<u8>, foot: &Foot, next: Next) -> Loaded {
        let order = foot.unordered.then(|| by_time(&blocks, &entries));
        let bytes = blocks.len() + entries.len();
        Loaded { blocks, entries, ordered: order.is_none(), order, bytes, next }
    }

    fn in_part(sparse: Sparse, foot: &Foot, next: Next) -> Loaded {
        let Sparse { blocks, entries, mut chosen, read, .. } = sparse;
        let ordered = !foot.unordered;
        if !ordered {
            let column = Column::new(&entries);
            chosen.sort_by_key(|&index| time_at(&blocks, column.get(index).offset() as usize));
        }
        let bytes = read + chosen.len() * size_of::<u32>();
        Loaded { blocks, entries, ordered, order: Some(chosen), bytes, next }
    }

    fn column(&self) -> Column<'_> {
        Column::new(&self.entries)
    }

    /// Packets of the segment.
    fn packets(&self) -> usize {
        self.entries.len() / KEY_ENTRY_BYTES
    }

    /// Packets that can be wanted.
    fn wanted(&self) -> usize {
        self.order.as_ref().map_or(self.packets(), Vec::len)
    }

    /// Which packet is the n-th by time.
    fn index(&self, nth: usize) -> u32 {
        self.order.as_ref().map_or(nth as u32, |order| order[nth])
    }

    fn time_ns(&self, nth: usize) -> i64 {
        time_at(&self.blocks, self.column().get(self.index(nth)).offset() as usize)
    }

    /// Where a piece ends that begins with the n-th packet: behind at least one, and at most so many bytes.
    fn end(&self, from: usize, bytes_max: usize) -> usize {
        let (mut to, mut bytes) = (from, 0);
        while to < self.wanted() {
            let at = self.column().get(self.index(to)).offset() as usize;
            bytes += pcapng::le32(&self.blocks, at + 4) as usize + WAITING_ENTRY_BYTES;
            if bytes > bytes_max && to > from {
                break;
            }
            to += 1;
        }
        to
    }

    /// Their keys, where they lie one behind the other.
    fn stretch(&self, from: usize, to: usize) -> Column<'_> {
        let end = self.entries.len();
        Column::new(&self.entries[end - to * KEY_ENTRY_BYTES..end - from * KEY_ENTRY_BYTES])
    }
}

impl Timeline for StoreTimeline {
    fn settle(&mut self, _: i64) -> Settled {
        Settled { up_to: Moment::END, goes_on: false }
    }

    fn look(&mut self, _: i64, _: bool) {}

    fn next(&mut self) -> Option<Piece> {
        while !self.stop.load(Ordering::Relaxed) {
            let Reverse(next) = self.heap.pop()?;
            if next.min_ns > self.span.to_ns {
                return None; // and so are all others
            }
            if let Err(cause) = self.load(next) {
                self.fail(next, &cause);
                continue;
            }
            let (facts, lane) = (&self.segments[next.segment].facts, next.lane);
            let loaded = self.kept.get_mut(&next.segment)?;
            if next.taken == loaded.wanted() {
                self.kept.remove(&next.segment);
                continue;
            }
            let min_ns = loaded.time_ns(next.taken);
            if min_ns > next.min_ns {
                self.heap.push(Reverse(Next { min_ns, ..next })); // what comes first in it comes later than it begins
                continue;
            }
            let to = loaded.end(next.taken, self.piece_bytes);
            let rest = (to < loaded.wanted()).then(|| Next { min_ns: loaded.time_ns(to), taken: to, ..next });
            loaded.next = rest.unwrap_or(next);
            self.heap.extend(rest.map(Reverse));
            self.current =
                Some(Current { segment: next.segment, from: next.taken, to, is_last: rest.is_none() });
            let (first, packets) = match loaded.order {
                None => (next.taken, to - next.taken),
                Some(_) => (0, loaded.packets()),
            };
            return Some(Piece {
                segment: facts.foot.id(),
                lane,
                first_packet: facts.foot.first_packet + first as u64,
                packets: packets as u32,
                min_ns: next.min_ns,
                ordered: loaded.ordered,
            });
        }
        None
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        self.heap.peek().map(|Reverse(next)| (next.min_ns, next.lane))
    }

    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        let current = self.current.as_ref()?;
        let loaded = self.kept.get(&current.segment)?;
        let first_packet = self.segments[current.segment].facts.foot.first_packet;
        let always = always.and_then(|packet| packet.checked_sub(first_packet)).map(|index| index as usize);
        let Some(order) = &loaded.order else {
            let mut matches = loaded.stretch(current.from, current.to).matches(keys);
            if let Some(index) = always.filter(|index| (current.from..current.to).contains(index)) {
                matches.insert((index - current.from) as u32);
            }
            return Some(matches);
        };
        let mut of_piece = Matches::none(loaded.packets() as u32);
        let column = loaded.column();
        for &index in &order[current.from..current.to] {
            if always == Some(index as usize) || keys.matches(&column.get(index)) {
                of_piece.insert(index);
            }
        }
        Some(of_piece)
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        let Some(current) = &self.current else { return Packets::default() };
        let Some(loaded) = self.kept.get(&current.segment) else { return Packets::default() };
        let first_packet = self.segments[current.segment].facts.foot.first_packet;
        match loaded.order {
            None => {
                let column = loaded.stretch(current.from, current.to);
                Packets::new(first_packet + current.from as u64, column, &loaded.blocks, picked)
            }
            Some(_) => Packets::new(first_packet, loaded.column(), &loaded.blocks, picked),
        }
    }

    fn done(&mut self) {
        if let Some(current) = self.current.take().filter(|current| current.is_last) {
            self.kept.remove(&current.segment);
        }
    }

    fn wait(&mut self, _: i64) {}

    fn end(&mut self) {
        self.kept.clear();
        self.heap.clear();
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        self.interfaces.lanes.get(lane as usize).map(|lane| lane.link_type)
    }

    fn heard(&self) -> Option<(i64, i64)> {
        self.heard
    }

    fn missing(&self, to_ns: i64) -> Vec<Gap> {
        self.losses.within(Span { to_ns: to_ns.min(self.span.to_ns), ..self.span })
    }
}
