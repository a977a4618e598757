//! What the dumps of a run share of their reading: one scan of what comes in, the summaries of what is there,
//! and the pace.
//!
//! ```text
//!  lane     ... | history | covered: scanned once for all who had joined | not scanned yet
//!                         ^ joined: `since`                              ^ covered.end = since of who joins now
//!  scan     each entry looked up in the table of all dumps' keys ─► number of the packet to those who may want it
//!           partial entries, which all may want, to the lane's own list
//!  take     piece = part before `since` or before what is covered: the dump's own scan
//!                 + the rest: numbers that wait for the dump, and partial ones
//! ```
//! Whoever is the first to read up to somewhere scans up to there for all. What is taken decides nothing:
//! each dump asks its filter of all that it takes. Dumps of whose filters a key tells nothing scan for
//! themselves, and so do all while they are fewer than [`SHARED_MIN`].
//!
//! Bounds: numbers that wait are at most [`WAITING_MAX`] for all dumps together, in equal parts. Where a
//! dump's part is full, what waits for it is forgotten and it scans that for itself. So do all where more
//! than [`PARTIAL_MAX`] partial entries of a lane wait.

use crate::buffers::{Buffered, Buffers};
use crate::pins::{FirstPins, Hold};
use scope_filter::{FILTER_INPUTS_MAX, Filter, KeyTable};
use scope_packet::KeyEntry;
use scope_ring::{KeyTest, Pinned, Ring, Summaries};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// From so many dumps on their scan is shared: one for all takes about as long as four for one each (2.6 ns
/// an entry against 0.7, in cache), and it is done under a lock.
pub const SHARED_MIN: usize = 6;
/// Packet numbers that wait for dumps, for all together (8 bytes each).
pub const WAITING_MAX: usize = 4 << 20;
/// Partial entries that are remembered of a lane (8 bytes each).
pub const PARTIAL_MAX: usize = 1 << 20;
/// A dump waits between two rounds for so long, times the number of dumps: all together make 1000 rounds a
/// second at most.
const PACE_PER_DUMP: Duration = Duration::from_millis(1);
/// But never shorter or longer than this: packets are gathered, and the end of a window is noticed.
const PACE_MIN: Duration = Duration::from_millis(8);
const PACE_MAX: Duration = Duration::from_secs(1);
/// Near the end of its window a dump waits for at least such a part of its pace.
const PACE_PARTS: u32 = 8;

/// What the dumps of one run share.
pub struct Scans {
    ring: Arc<Ring>,
    summaries: Option<Arc<Summaries>>,
    readers: AtomicUsize,
    skipped: AtomicU64,
    shared: AtomicU64,
    buffers: Arc<Buffers>,
    bounds: Bounds,
    /// What the dumps hold; see [`Scans::hold_on`].
    holds: Mutex<Vec<Weak<Hold>>>,
    /// Locked once or twice per piece of a segment and dump, for as long as its new part is scanned.
    state: Mutex<State>,
}

/// How much may wait.
#[derive(Clone, Copy)]
struct Bounds {
    waiting: usize,
    partial: usize,
}

#[derive(Default)]
struct State {
    keys: KeyTable,
    members: BTreeMap<u64, Member>,
    /// Number of the next member.
    next: u64,
    lanes: Vec<Lane>,
    /// Rounds ended since partial entries were last forgotten.
    rounds: usize,
}

/// How far a lane is scanned.
#[derive(Clone, Default)]
struct Lane {
    /// Packets that were scanned, and of which all that was found is still there or was taken.
    covered: Range<u64>,
    /// Numbers of those among them whose entries are partial.
    partial: VecDeque<u64>,
}

/// A dump whose filter stands in the table. All by lane; lanes beyond the end are at 0.
#[derive(Default)]
struct Member {
    since: Vec<u64>,
    /// Packets before this one are not needed again.
    passed: Vec<u64>,
    /// Numbers of packets that wait for it, ascending.
    found: Vec<VecDeque<u64>>,
    /// How many, over all lanes.
    waiting: usize,
}

/// How much was spared, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spared {
    /// Pieces of segments that a dump didn't scan, because the summary says that nothing in them can match.
    pub segments_skipped: u64,
    /// Packets that were scanned once for several dumps.
    pub packets_shared: u64,
    /// Packets for which no reorder buffer had room: they were written before their time, and sorted in at
    /// the end.
    pub packets_early: u64,
}

impl Scans {
    /// For the dumps of a run on `ring`; `summaries` are of its segments, if somebody builds them.
    pub fn new(ring: &Arc<Ring>, summaries: Option<Arc<Summaries>>) -> Arc<Scans> {
        Scans::bounded(ring, summaries, Bounds { waiting: WAITING_MAX, partial: PARTIAL_MAX })
    }

    fn bounded(ring: &Arc<Ring>, summaries: Option<Arc<Summaries>>, bounds: Bounds) -> Arc<Scans> {
        Arc::new(Scans {
            ring: ring.clone(),
            summaries,
            bounds,
            readers: AtomicUsize::new(0),
            skipped: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            buffers: Arc::default(),
            holds: Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// How the buffers of the dumps' files stand.
    pub fn buffered(&self) -> Buffered {
        self.buffers.usage()
    }

    /// What the files of all dumps share.
    pub(crate) fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// How much was spared so far.
    pub fn spared(&self) -> Spared {
        let [segments_skipped, packets_shared] =
            [&self.skipped, &self.shared].map(|count| count.load(Ordering::Relaxed));
        let packets_early = self.buffers.early_packets();
        Spared { segments_skipped, packets_shared, packets_early }
    }

    /// From now on the dump that begins with these pins loses nothing that it may hold, whatever it waits
    /// for: see [`Scans::hold_on`].
    pub fn watch(&self, pins: &FirstPins) {
        let mut holds = self.holds.lock().expect("no panic while held");
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(&pins.hold));
    }

    /// Holds for every dump that is watched what came behind its last look, within its allowance. To be
    /// called at each beat of the ring: a dump that hangs in a write holds nothing by itself.
    pub fn hold_on(&self) {
        let holds: Vec<Arc<Hold>> =
            self.holds.lock().expect("no panic while held").iter().filter_map(Weak::upgrade).collect();
        for hold in &holds {
            hold.keep_up();
        }
    }

    /// The ring that they read.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// A dump of this filter begins to read.
    pub(crate) fn join(self: &Arc<Self>, filter: &Filter) -> Reader {
        self.readers.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        let member = state.next;
        state.next += 1;
        let keyed = state.keys.insert(member, filter);
        if keyed {
            if state.members.len() + 1 == SHARED_MIN {
                // Who has joined has read up to about here for himself.
                let counters = self.ring.counters();
                state.lanes = counters.lanes.iter().map(|published| Lane::from(published.packets)).collect();
            }
            let since = state.lanes.iter().map(|lane| lane.covered.end).collect();
            state.members.insert(member, Member { since, ..Member::default() });
        }
        Reader { scans: self.clone(), member: keyed.then_some(member) }
    }

    /// Whoever begins to read and shares no scan.
    pub(crate) fn join_alone(self: &Arc<Self>) -> Reader {
        self.readers.fetch_add(1, Ordering::Relaxed);
        Reader { scans: self.clone(), member: None }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}

impl Lane {
    /// Nothing is scanned before `packet`.
    fn from(packet: u64) -> Lane {
        Lane { covered: packet..packet, partial: VecDeque::new() }
    }
}

impl State {
    fn sharing(&self) -> bool {
        self.members.len() >= SHARED_MIN
    }

    /// Scans for all members what `pinned` has committed and nobody has scanned, if that begins before packet
    /// `end`; how much.
    fn scan(&mut self, pinned: &Pinned, end: u64, bounds: Bounds) -> u64 {
        let at = pinned.lane() as usize;
        if self.lanes.len() <= at {
            self.lanes.resize(at + 1, Lane::default());
        }
        let (lane, first) = (&mut self.lanes[at], pinned.first_packet());
        if lane.covered.end >= end {
            return 0;
        }
        if lane.covered.end < first {
            *lane = Lane::from(first); // what lies between was recycled, or is of no dump's window
        }
        let from = lane.covered.end;
        let committed = pinned.committed().packets;
        let waiting_max = bounds.waiting / self.members.len().max(1);
        let mut entries = pinned.column((from - first) as u32, committed).iter();
        let mut batch = [KeyEntry::default(); FILTER_INPUTS_MAX];
        let mut number = from;
        loop {
            let count = batch.iter_mut().zip(entries.by_ref()).map(|(slot, entry)| *slot = entry).count();
            if count == 0 {
                break;
            }
            let mut maybe = self.keys.maybe(count, |index| batch[index]);
            while maybe != 0 {
                let index = maybe.trailing_zeros();
                maybe &= maybe - 1;
                let (entry, packet) = (&batch[index as usize], number + u64::from(index));
                if entry.partial() {
                    lane.note_partial(packet, bounds.partial);
                    continue;
                }
                self.keys.each(entry, |id| {
                    if let Some(member) = self.members.get_mut(&id) {
                        member.note(at, packet, waiting_max);
                    }
                });
            }
            number += count as u64;
        }
        lane.covered.end = number;
        number - from
    }

    /// Forgets the partial entries that no member needs again.
    fn forget_partial(&mut self) {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let passed =
                self.members.values().map(|member| at_lane(&member.passed, at)).min().unwrap_or(u64::MAX);
            forget_before(&mut lane.partial, passed);
            lane.covered.start = passed.clamp(lane.covered.start, lane.covered.end);
        }
    }

    /// Nothing waits for anybody any more.
    fn stop(&mut self) {
        for lane in &mut self.lanes {
            *lane = Lane::from(lane.covered.end);
        }
        for member in self.members.values_mut() {
            member.found.clear();
            member.waiting = 0;
        }
    }
}

impl Lane {
    fn note_partial(&mut self, packet: u64, partial_max: usize) {
        if self.partial.len() >= partial_max {
            self.partial.clear();
            self.covered.start = packet;
        }
        self.partial.push_back(packet);
    }
}

impl Member {
    /// Packet `packet` of lane `at` may be its.
    fn note(&mut self, at: usize, packet: u64, waiting_max: usize) {
        if self.found.len() <= at {
            self.found.resize(at + 1, VecDeque::new());
        }
        if self.waiting >= waiting_max {
            self.waiting -= self.found[at].len();
            self.found[at] = VecDeque::new();
            if self.since.len() <= at {
                self.since.resize(at + 1, 0);
            }
            self.since[at] = packet + 1;
            return;
        }
        self.found[at].push_back(packet);
        self.waiting += 1;
    }

    /// Takes what waits of `packets` of lane `at`.
    fn take(&mut self, at: usize, packets: Range<u64>) -> Vec<u64> {
        let Some(found) = self.found.get_mut(at) else { return Vec::new() };
        let from = found.partition_point(|&packet| packet < packets.start);
        let to = found.partition_point(|&packet| packet < packets.end);
        let taken: Vec<u64> = found.drain(from..to).collect();
        self.waiting -= taken.len();
        taken
    }

    fn pass(&mut self, passed: Vec<u64>) {
        for (found, &packet) in self.found.iter_mut().zip(&passed) {
            self.waiting -= forget_before(found, packet);
        }
        self.passed = passed;
    }
}

/// What a list by lane has for one; 0 beyond its end.
fn at_lane(list: &[u64], at: usize) -> u64 {
    list.get(at).copied().unwrap_or(0)
}

/// Drops the numbers below `packet`; how many.
fn forget_before(numbers: &mut VecDeque<u64>, packet: u64) -> usize {
    let count = numbers.partition_point(|&number| number < packet);
    numbers.drain(..count).count()
}

/// One dump's part in what is shared, until it is dropped.
pub(crate) struct Reader {
    scans: Arc<Scans>,
    /// `None`: keys decide nothing of its filter.
    member: Option<u64>,
}

impl Reader {
    /// Of packets `packets` of a segment (indices in it): those that the dump must scan for itself, which are
    /// the first ones, and the indices of all behind them that it must look at. `None`: it scans all of them.
    pub(crate) fn take(&self, pinned: &Pinned, packets: Range<u32>) -> Option<(Range<u32>, Vec<u32>)> {
        let id = self.member?;
        let mut state = self.scans.lock();
        if !state.sharing() {
            return None;
        }
        let (first, at) = (pinned.first_packet(), pinned.lane() as usize);
        let (start, end) = (first + u64::from(packets.start), first + u64::from(packets.end));
        let scanned = state.scan(pinned, end, self.scans.bounds);
        self.scans.shared.fetch_add(scanned, Ordering::Relaxed);
        let State { members, lanes, .. } = &mut *state;
        let (lane, member) = (&lanes[at], members.get_mut(&id)?);
        let from = at_lane(&member.since, at).max(lane.covered.start).clamp(start, end);
        let mut found = member.take(at, from..end);
        let partial = lane.partial.partition_point(|&packet| packet < from)
            ..lane.partial.partition_point(|&packet| packet < end);
        if !partial.is_empty() {
            found.extend(lane.partial.range(partial));
            found.sort_unstable();
        }
        let index = |packet: u64| (packet - first) as u32;
        Some((packets.start..index(from), found.into_iter().map(index).collect()))
    }

    /// A round has ended: of each lane nothing before these packets is needed again.
    pub(crate) fn pass(&self, passed: impl Iterator<Item = u64>) {
        let Some(id) = self.member else { return };
        let mut state = self.scans.lock();
        if !state.sharing() {
            return;
        }
        if let Some(member) = state.members.get_mut(&id) {
            member.pass(passed.collect());
        }
        state.rounds += 1;
        if state.rounds >= state.members.len() {
            state.rounds = 0;
            state.forget_partial();
        }
    }

    /// Whether no packet of the segment passes `keys`, by its summary.
    pub(crate) fn can_skip(&self, pinned: &Pinned, keys: &KeyTest) -> bool {
        let skip = self.scans.summaries.as_ref().is_some_and(|summaries| !summaries.may_hold(pinned, keys));
        self.scans.skipped.fetch_add(u64::from(skip), Ordering::Relaxed);
        skip
    }

    /// How long to wait for the next round, `rest_ns` of capture time before the end of the window.
    pub(crate) fn pause(&self, rest_ns: i64) -> Duration {
        let readers = self.scans.readers.load(Ordering::Relaxed).min(u32::MAX as usize) as u32;
        let pace = PACE_PER_DUMP.saturating_mul(readers).clamp(PACE_MIN, PACE_MAX);
        Duration::from_nanos(rest_ns.max(0) as u64).clamp(pace / PACE_PARTS, pace)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.scans.readers.fetch_sub(1, Ordering::Relaxed);
        let Some(id) = self.member else { return };
        let mut state = self.scans.lock();
        let shared = state.sharing();
        state.keys.remove(id);
        state.members.remove(&id);
        if shared && !state.sharing() {
            state.stop();
        }
    }
}

#[cfg(test)]
mod tests;
