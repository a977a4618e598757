//! The ring as a whole: creating it, its lanes, claiming segments, clocks and eras, consistent snapshots.

use crate::budget::PinBudget;
use crate::claims::{ClaimGroup, Claims};
use crate::config::{RingConfig, Share};
use crate::control::{Committed, Published, REGION_MAGIC, WorkerControl, WorkerCounts};
use crate::eras::Eras;
use crate::evicted::{Evicted, History, Lost};
use crate::follow::{Follower, Followers};
use crate::judge::{Judge, Judges};
use crate::lock::Mutex;
use crate::losses::LossLog;
use crate::region::{MemoryOptions, Region, RingMemory};
use crate::registry::{InterfaceEntry, Interfaces, Registry};
use crate::spans::SpanTable;
use crate::stream::Form;
use crate::{RingError, futex, protocol};
use scope_packet::{DropReason, Gap, GapReason, Interface, LinkType, Moment, SegmentId};
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Workers wake waiting readers at most this often.
const WAKE_INTERVAL: Duration = Duration::from_micros(50);
/// Beats in one turn of the smallest claim group: a reader that reads at each of them is never overrun,
/// unless reading takes longer.
const BEATS_PER_TURN: u32 = 4;

/// The fastest form of this processor, or the one that the environment names.
fn chosen_form() -> Result<Form, RingError> {
    Form::choose().map_err(|cause| RingError::System { place: "form of writing", cause })
}

/// The owner of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneInfo {
    /// Worker that writes it.
    pub worker: u32,
    /// Link type of its packets.
    pub link_type: LinkType,
}

/// One consistent snapshot per worker and lane.
#[derive(Clone, Debug, Default)]
pub struct RingCounters {
    /// Per worker.
    pub workers: Vec<WorkerCounts>,
    /// Per lane.
    pub lanes: Vec<Published>,
}

/// What is remembered of packets that are gone. Its lock is taken once per recycled segment or loss, and by
/// readers of it.
struct Memory {
    /// Per lane.
    evicted: Vec<History>,
    /// Of sealed segments, by slot, that hold parts whose times are to be remembered apart.
    parts: HashMap<u32, Vec<Evicted>>,
    losses: LossLog,
    /// At most one for each slot.
    stragglers: Vec<Straggler>,
}

/// A segment that was pinned for more than a turn of its lane: the lane's directory leads elsewhere by now.
#[derive(Clone, Copy)]
struct Straggler {
    slot: u32,
    generation: u64,
    id: SegmentId,
}

/// The ring.
pub struct Ring {
    region: Region,
    form: Form,
    run_id: [u8; 16],
    registry: Registry,
    claims: Mutex<Claims>,
    /// Segments of each claim group, the common one first.
    group_segments: Vec<usize>,
    /// Sealed segments from one beat to the next.
    seals_per_beat: u32,
    /// Claim group of each lane.
    lane_groups: Vec<AtomicU32>,
    /// Times of sealed segments, to be searched.
    spans: SpanTable,
    memory: Mutex<Memory>,
    /// Locked once per step back, per lane and look of a dump, and by other readers of it.
    eras: Mutex<Eras>,
    any_stray: AtomicBool,
    followers: Followers,
    judges: Judges,
    /// Stragglers in `memory`: none, mostly.
    straggling: std::sync::atomic::AtomicUsize,
    budget: Arc<PinBudget>,
    sealed_count: std::sync::atomic::AtomicU64,
    woken: Mutex<Instant>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("segments", &self.segments()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Makes a ring in whatever memory is best; its pages become resident as they are used. Its lanes write
    /// in the fastest form of this processor, or the one that the environment names: see [`Form::choose`].
    ///
    /// # Errors
    /// The sizes don't fit, or the system refuses the memory.
    pub fn create(config: &RingConfig) -> Result<Arc<Ring>, RingError> {
        Ring::create_shared(config, &[])
    }

    /// As [`Ring::create`], with `shares` of it set aside: see [`Ring::open_lane_in`].
    ///
    /// # Errors
    /// As [`Ring::create`]; or the shares don't fit.
    pub fn create_shared(config: &RingConfig, shares: &[Share]) -> Result<Arc<Ring>, RingError> {
        Ring::build(config, shares, chosen_form()?)
    }

    /// As [`Ring::create`], with lanes that write in this form.
    ///
    /// # Errors
    /// As [`Ring::create`]; or this processor doesn't have the form.
    pub fn create_with_form(config: &RingConfig, form: Form) -> Result<Arc<Ring>, RingError> {
        Ring::build(config, &[], form)
    }

    fn build(config: &RingConfig, shares: &[Share], form: Form) -> Result<Arc<Ring>, RingError> {
        let form = form.supported().map_err(|cause| RingError::System { place: "form of writing", cause })?;
        let group_segments = config.plan_shares(shares).map_err(|mut faults| faults.remove(0))?;
        Ok(Ring::inside(
            Region::map(config.layout()?, MemoryOptions::default())?,
            config,
            group_segments,
            form,
        ))
    }

    /// As [`Ring::create_shared`], in memory as `options` say, all of it resident. `progress` gets the
    /// bytes done so far, and returns whether to go on; if not, the ring works all the same.
    ///
    /// # Errors
    /// The sizes don't fit, or the system refuses the memory, its node or its lock.
    pub fn ready(
        config: &RingConfig,
        shares: &[Share],
        options: &MemoryOptions,
        progress: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Arc<Ring>, RingError> {
        let form = chosen_form()?;
        let group_segments = config.plan_shares(shares).map_err(|mut faults| faults.remove(0))?;
        Ok(Ring::inside(Region::ready(config.layout()?, *options, progress)?, config, group_segments, form))
    }

    /// A ring in this memory, which is fresh.
    fn inside(region: Region, config: &RingConfig, group_segments: Vec<usize>, form: Form) -> Arc<Ring> {
        let layout = *region.layout();
        let header = region.header();
        let half = |at: usize| u64::from_le_bytes(config.run_id[at..at + 8].try_into().expect("8 bytes"));
        header.run_id[0].store(half(0), Ordering::Relaxed);
        header.run_id[1].store(half(8), Ordering::Relaxed);
        header.segment_bytes.store(layout.segment_bytes as u64, Ordering::Relaxed);
        header.segments.store(layout.segments as u64, Ordering::Relaxed);
        header.workers.store(layout.workers as u64, Ordering::Relaxed);
        header.lanes.store(layout.lanes as u64, Ordering::Relaxed);
        header.magic.store(REGION_MAGIC, Ordering::Release);
        let claims = Claims::new(&group_segments);
        let seals_per_beat =
            group_segments.iter().min().map_or(1, |&least| (least as u32 / BEATS_PER_TURN).max(1));
        let memory = Memory {
            evicted: (0..layout.lanes).map(|_| History::default()).collect(),
            parts: HashMap::new(),
            losses: LossLog::default(),
            stragglers: Vec::new(),
        };
        Arc::new(Ring {
            region,
            form,
            run_id: config.run_id,
            registry: Registry::default(),
            claims: Mutex::new(claims),
            group_segments,
            seals_per_beat,
            lane_groups: (0..layout.lanes).map(|_| AtomicU32::new(0)).collect(),
            spans: SpanTable::new(layout.segments),
            memory: Mutex::new(memory),
            eras: Mutex::new(Eras::new(layout.lanes)),
            any_stray: AtomicBool::new(false),
            followers: Followers::default(),
            judges: Judges::default(),
            straggling: Default::default(),
            budget: Arc::new(PinBudget::new((layout.segments as u64 / 2).max(1))),
            sealed_count: Default::default(),
            woken: Mutex::new(Instant::now()),
        })
    }

    /// Where its segments lie: addresses only, for whoever tells the kernel of this memory. Segments follow
    /// each other without a gap, from a page on.
    pub fn addresses(&self) -> Range<*const u8> {
        self.region.slots()
    }

    /// The files behind its tables and its segments, for [`crate::OutsideReader::map`] in another process: whoever gets them
    /// can read them, and can neither write to them nor change their lengths.
    ///
    /// # Errors
    /// This system couldn't seal them (Linux before 5.1), so that nobody must get them: its words.
    pub fn sealed_files(&self) -> Result<[BorrowedFd<'_>; 2], &std::io::Error> {
        self.region.sealed_files()
    }

    /// What its memory is, as it is now; see [`Region::memory`].
    pub fn memory(&self) -> RingMemory {
        self.region.memory()
    }

    /// Bytes of its segments that the system has swapped out.
    pub fn swapped_bytes(&self) -> u64 {
        self.region.swapped_bytes()
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// How its lanes write.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The run's 128 random bits.
    pub fn run_id(&self) -> [u8; 16] {
        self.run_id
    }

    /// Bytes of one segment.
    #[inline]
    pub fn segment_bytes(&self) -> usize {
        self.region.layout().segment_bytes
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.region.layout().segments
    }

    /// Lanes opened so far.
    pub fn lanes(&self) -> u32 {
        self.region.header().lanes_used.load(Ordering::Acquire)
    }

    /// Lanes that it can have.
    pub fn lanes_max(&self) -> u32 {
        self.region.layout().lanes as u32
    }

    /// The owner of lane `lane`.
    pub fn lane_info(&self, lane: u32) -> LaneInfo {
        let control = self.region.lane(lane);
        LaneInfo {
            worker: control.worker.load(Ordering::Relaxed),
            link_type: LinkType(control.link_type.load(Ordering::Relaxed) as u16),
        }
    }

    /// Segments that lane `lane` has opened so far: the sequence of its next one.
    pub fn lane_next(&self, lane: u32) -> u64 {
        self.region.lane(lane).next.load(Ordering::Acquire)
    }

    /// Adds a lane for `worker`, which claims the segments of `group`; `None` where the lane table is full.
    pub(crate) fn add_lane(&self, group: ClaimGroup, worker: u32, link_type: LinkType) -> Option<u32> {
        assert!((group.0 as usize) < self.group_segments.len(), "the ring was created with this share");
        let _one_at_a_time = self.claims.lock().expect("no panic while held");
        let header = self.region.header();
        let lane = header.lanes_used.load(Ordering::Relaxed);
        if lane as usize >= self.region.layout().lanes {
            return None;
        }
        let control = self.region.lane(lane);
        control.worker.store(worker, Ordering::Relaxed);
        control.link_type.store(link_type.0 as u32, Ordering::Relaxed);
        self.lane_groups[lane as usize].store(group.0, Ordering::Relaxed);
        let era = self.region.worker(worker).era.load(Ordering::Relaxed);
        self.eras.lock().expect("no panic while held").enter(lane, 0, era);
        header.lanes_used.store(lane + 1, Ordering::Release); // after the lane's words
        Some(lane)
    }

    /// Gives an interface of `lane` its number in the run; `None` at the bound.
    pub fn register(&self, lane: u32, interface: &Interface) -> Option<u32> {
        self.registry.register(&self.region, lane, interface)
    }

    /// Describes an interface of another ring as it is described there; its number here, or `None` at the bound.
    pub fn adopt(&self, entry: InterfaceEntry) -> Option<u32> {
        self.registry.adopt(&self.region, entry)
    }

    /// Segments of each claim group, the common one first.
    pub fn group_segments(&self) -> &[usize] {
        &self.group_segments
    }

    /// Whose segments lane `lane` claims.
    pub fn lane_group(&self, lane: u32) -> ClaimGroup {
        ClaimGroup(self.lane_groups[lane as usize].load(Ordering::Relaxed))
    }

    /// Puts a sealed segment, which its lane has let go, at the end of the order of sealing.
    pub(crate) fn give_back(&self, slot: u32) {
        let mut claims = self.claims.lock().expect("no panic while held");
        let [_, _, min_ns, max_ns] = &self.region.segment(slot).times;
        self.spans.set(slot, min_ns.load(Ordering::Relaxed), max_ns.load(Ordering::Relaxed));
        claims.give_back(slot);
    }

    /// Takes the oldest segment that `lane` may have, by order of sealing, and that nobody has pinned: slot
    /// and generation.
    pub(crate) fn claim(&self, lane: u32) -> Option<(u32, u64)> {
        self.claim_by(|claims| claims.claim(self.lane_group(lane), |slot| self.recycle(slot)))
    }

    /// The same of segments that no follower still needs: for a worker that can wait. What is pinned lets newer
    /// segments come to their turn before older ones.
    pub(crate) fn claim_unneeded(&self, lane: u32) -> Option<(u32, u64)> {
        self.claim_by(|claims| claims.claim(self.lane_group(lane), |slot| self.recycle_unneeded(slot)))
    }

    /// The same of the one that was sealed last, so that no more memory is touched than is in use.
    pub(crate) fn claim_newest_unneeded(&self, lane: u32) -> Option<(u32, u64)> {
        self.claim_by(|claims| claims.claim_newest(self.lane_group(lane), |slot| self.recycle_unneeded(slot)))
    }

    fn claim_by(&self, claim: impl FnOnce(&mut Claims) -> Option<(u32, u64)>) -> Option<(u32, u64)> {
        let mut claims = self.claims.lock().expect("no panic while held");
        let (slot, generation) = claim(&mut claims)?;
        self.spans.clear(slot);
        Some((slot, generation))
    }

    fn recycle_unneeded(&self, slot: u32) -> Option<u64> {
        if self.is_needed(slot) { None } else { self.recycle(slot) }
    }

    /// Whether a follower needs what lies in a slot, which no lane writes.
    fn is_needed(&self, slot: u32) -> bool {
        let control = self.region.segment(slot);
        let committed = Committed::from_word(control.committed.load(Ordering::Acquire));
        let (lane, sequence) = (&control.lane, &control.sequence);
        committed.packets > 0
            && self.followers.need(lane.load(Ordering::Relaxed), sequence.load(Ordering::Relaxed))
    }

    /// Times of sealed segments.
    pub(crate) fn spans(&self) -> &SpanTable {
        &self.spans
    }

    /// Takes one slot if nobody holds it, and remembers what was in it.
    fn recycle(&self, slot: u32) -> Option<u64> {
        let control = self.region.segment(slot);
        // Locked before the slot is claimed: a reader that finds it recycled finds the memory of it
        // afterwards, too.
        let mut memory = self.memory.lock().expect("no panic while held");
        let generation = protocol::claim(&control.word)?;
        if !memory.stragglers.is_empty() {
            memory.stragglers.retain(|straggler| straggler.slot != slot);
            self.straggling.store(memory.stragglers.len(), Ordering::Release);
        }
        let committed = Committed::from_word(control.committed.load(Ordering::Relaxed));
        let lane = control.lane.load(Ordering::Relaxed) as usize;
        if let Some(parts) = memory.parts.remove(&slot) {
            for part in parts {
                memory.evicted[lane].push(part);
            }
        } else if committed.packets > 0 {
            memory.evicted[lane].push(Evicted {
                first_packet: control.first_packet.load(Ordering::Relaxed),
                packets: committed.packets as u64,
                min_ns: control.times[2].load(Ordering::Relaxed),
                max_ns: control.times[3].load(Ordering::Relaxed),
            });
        }
        Some(generation)
    }

    /// Notes the parts of a segment that is about to be sealed.
    pub(crate) fn note_parts(&self, slot: u32, parts: Vec<Evicted>) {
        self.memory.lock().expect("no panic while held").parts.insert(slot, parts);
    }

    /// The next place in the order of sealing.
    pub(crate) fn next_sealed_order(&self) -> u64 {
        self.sealed_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// By what segment `sequence` of `lane` of this run is known, whether it is there or not.
    pub fn segment_id(&self, lane: u32, sequence: u64) -> SegmentId {
        SegmentId { run: self.run_id, lane, sequence }
    }

    /// Slot and generation of a segment that the directory doesn't lead to any more, since it was pinned for
    /// more than a turn of its lane.
    #[cold]
    pub(crate) fn straggler(&self, id: SegmentId) -> Option<(u32, u64)> {
        if self.straggling.load(Ordering::Acquire) == 0 {
            return None;
        }
        let memory = self.memory.lock().expect("no panic while held");
        let straggler = memory.stragglers.iter().find(|straggler| straggler.id == id)?;
        Some((straggler.slot, straggler.generation))
    }

    /// Called before the directory's entry for segment `sequence` of `lane` leads to a new slot: where the
    /// segment that it leads to is still in the ring, since somebody holds it, that is remembered, so that it
    /// stays reachable.
    pub(crate) fn keep_reachable(&self, lane: u32, sequence: u64) {
        let Some((slot, generation)) = protocol::find(self.region.directory(lane, sequence)) else { return };
        let is_there = || protocol::is_at(&self.region.segment(slot).word, generation);
        if !is_there() {
            return; // recycled long ago, as nearly always
        }
        let mut memory = self.memory.lock().expect("no panic while held");
        if is_there() {
            let id = self.segment_id(lane, sequence - self.segments() as u64);
            memory.stragglers.push(Straggler { slot, generation, id });
            self.straggling.store(memory.stragglers.len(), Ordering::Release);
        }
    }

    /// Segments of `lane` from number `from` on that may be in the ring now, in order.
    pub fn segment_ids(&self, lane: u32, from: u64) -> impl Iterator<Item = SegmentId> + use<> {
        // What is no straggler yet when they are listed is found behind the oldest.
        let (oldest, next) = (self.oldest_possible(lane), self.lane_next(lane));
        let mut stragglers = Vec::new();
        if self.straggling.load(Ordering::Acquire) > 0 {
            let memory = self.memory.lock().expect("no panic while held");
            let of_lane = memory.stragglers.iter().map(|it| it.id).filter(|id| id.lane == lane);
            stragglers
                .extend(of_lane.map(|id| id.sequence).filter(|sequence| (from..oldest).contains(sequence)));
            stragglers.sort_unstable();
        }
        let run = self.run_id;
        let sequences = stragglers.into_iter().chain(oldest.max(from)..next);
        sequences.map(move |sequence| SegmentId { run, lane, sequence })
    }

    /// Smallest sequence of `lane` that may still be in the ring, but for those that somebody has held for a
    /// turn of it.
    pub fn oldest_possible(&self, lane: u32) -> u64 {
        self.lane_next(lane).saturating_sub(self.segments() as u64)
    }

    /// What packets of `lane`, all of them gone, mean for the window `window` (ns, both ends inclusive): of
    /// each span of their numbers, which come in order and don't touch.
    pub fn lost(&self, lane: u32, spans: &[Range<u64>], window: (i64, i64)) -> Vec<Lost> {
        self.memory.lock().expect("no panic while held").evicted[lane as usize].lost(spans, window)
    }

    /// All packets of `lane` that were recycled have smaller numbers.
    pub fn recycled_before(&self, lane: u32) -> u64 {
        self.memory.lock().expect("no panic while held").evicted[lane as usize].end()
    }

    /// Notes packets that the kernel dropped before `worker` got them, somewhere in `from_ns..=to_ns` of
    /// capture time.
    pub fn note_loss(&self, worker: u32, packets: u64, from_ns: i64, to_ns: i64) {
        self.note_gap(
            worker,
            0,
            Gap { from_ns, to_ns, reason: GapReason::Kernel, lost_min: packets, lost_max: Some(packets) },
        );
    }

    /// Notes that packets are missing, or may be, which were never stored: of `interface`, by the
    /// number that `worker`'s source gives it. A gap that ends at `i64::MAX` lasts until the next one of the
    /// same worker, interface and reason, which says where both of them end. It speaks of the era that the
    /// worker is in.
    pub fn note_gap(&self, worker: u32, interface: u32, gap: Gap) {
        self.note_gap_in(worker, interface, self.region.worker(worker).era.load(Ordering::Relaxed), gap);
    }

    /// The same of `era`, in which the worker may not have come yet.
    pub fn note_gap_in(&self, worker: u32, interface: u32, era: u64, gap: Gap) {
        self.memory.lock().expect("no panic while held").losses.push(worker, interface, era, gap);
    }

    /// Says that in its era `worker` listens from `from_ns` on, and what there was before. The last call
    /// holds.
    pub fn begin_listening(&self, worker: u32, from_ns: i64, reason: GapReason) {
        self.memory.lock().expect("no panic while held").losses.begin(worker, from_ns, reason);
    }

    /// Says up to when `worker` has listened, and why it doesn't any more: before its clock ends. The first
    /// call holds.
    pub fn end_listening(&self, worker: u32, to_ns: i64, reason: GapReason) {
        self.memory.lock().expect("no panic while held").losses.end(worker, to_ns, reason);
    }

    /// From when to when (ns) some worker has listened in `era`, `i64::MAX` where one still does; `None`:
    /// not known.
    pub fn listened(&self, era: u64) -> Option<(i64, i64)> {
        self.memory.lock().expect("no panic while held").losses.listened(era)
    }

    /// What of `window` (ns, both ends inclusive) of `era` was never stored.
    pub fn gaps_before(&self, era: u64, window: (i64, i64)) -> Vec<Gap> {
        self.memory.lock().expect("no panic while held").losses.gaps(era, window)
    }

    /// As [`Ring::listened`], in whatever era.
    pub fn listened_ever(&self) -> Option<(i64, i64)> {
        self.memory.lock().expect("no panic while held").losses.listened_ever()
    }

    /// As [`Ring::gaps_before`], of all eras: times at which somebody listened in one of them lack nothing.
    pub fn gaps_ever(&self, window: (i64, i64)) -> Vec<Gap> {
        self.memory.lock().expect("no panic while held").losses.gaps_ever(window)
    }

    /// Says how much older than its clock `worker`'s packets may still be. Called before its first packet.
    pub fn set_grace(&self, worker: u32, grace_ns: i64) {
        self.region.worker(worker).grace_ns.store(grace_ns, Ordering::Relaxed);
    }

    /// Moves `worker`'s clock on to `clock_ns`; everything up to there, less the grace, is committed. It
    /// never falls within an era.
    pub fn set_clock(&self, worker: u32, clock_ns: i64) {
        let control = self.region.worker(worker);
        let clock_ns = clock_ns.min(i64::MAX - 1); // the end of time means that the worker has ended
        if clock_ns > control.clock_ns.load(Ordering::Relaxed) {
            control.heard_ns.store(clock_ns, Ordering::Relaxed);
            control.clock_ns.store(clock_ns, Ordering::Release); // after the commits that it speaks of
        }
    }

    /// Capture time was set back for `worker`: what it appends from now on belongs to `era`, which it has
    /// never been in; `lanes` are all of its lanes with the number of the next packet of each. Called when
    /// all that was before is committed.
    pub fn begin_era(&self, worker: u32, era: u64, lanes: impl Iterator<Item = (u32, u64)>) {
        let control = self.region.worker(worker);
        let mut eras = self.eras.lock().expect("no panic while held");
        if let Some(heard) = heard_of(control) {
            eras.over(control.era.load(Ordering::Relaxed), heard);
        }
        for (lane, packet) in lanes {
            eras.enter(lane, packet, era);
        }
        let clock_ns = control.clock_ns.load(Ordering::Relaxed);
        self.memory.lock().expect("no panic while held").losses.begin_era(worker, era, clock_ns);
        control.begin_era(era);
    }

    /// The packets of `lane` that belong to `era`, by their numbers: of all that were committed before this
    /// call.
    pub fn era_packets(&self, lane: u32, era: u64) -> Range<u64> {
        self.eras.lock().expect("no panic while held").packets(lane, era)
    }

    /// When a committed packet of `lane` counts as having come: at `time_ns` in its era or, where that isn't believed, when
    /// its worker's clock was.
    pub fn moment_of(&self, lane: u32, packet: u64, time_ns: i64) -> Moment {
        let eras = self.eras.lock().expect("no panic while held");
        let stray = eras.strays(lane, packet..packet + 1).first().map(|(_, clock_ns)| *clock_ns);
        Moment::new(eras.era_of(lane, packet), stray.unwrap_or(time_ns))
    }

    /// The times of these packets of `lane` are not believed: they came when `worker`'s clock was at
    /// `clock_ns`. Called before they are committed.
    pub fn note_strays(&self, lane: u32, packets: Range<u64>, clock_ns: i64) {
        let mut eras = self.eras.lock().expect("no panic while held");
        for packet in packets {
            eras.stray(lane, packet, clock_ns);
        }
        self.any_stray.store(true, Ordering::Release);
    }

    /// Which of these packets of `lane`, by number and rising, have a time that is not believed, and for
    /// each: windows that ended before this (ns) were over when it came.
    pub fn strays(&self, lane: u32, packets: Range<u64>) -> Vec<(u64, i64)> {
        if !self.any_stray.load(Ordering::Acquire) {
            return Vec::new();
        }
        let grace_ns = self.region.worker(self.lane_info(lane).worker).grace_ns.load(Ordering::Relaxed);
        let mut strays = self.eras.lock().expect("no panic while held").strays(lane, packets);
        for (_, over_ns) in &mut strays {
            *over_ns = over_ns.saturating_sub(grace_ns);
        }
        strays
    }

    /// The latest era that some worker is in.
    pub fn era(&self) -> u64 {
        self.workers().map(|control| control.era.load(Ordering::Acquire)).max().unwrap_or(0)
    }

    fn workers(&self) -> impl Iterator<Item = &WorkerControl> {
        (0..self.region.layout().workers as u32).map(|worker| self.region.worker(worker))
    }

    /// How often `worker` has come round: it moves while the worker polls, whatever time it is.
    pub fn rounds(&self, worker: u32) -> u64 {
        self.region.worker(worker).published()
    }

    /// Notes the smallest capture time that `worker` has received so far in its era.
    pub fn set_first(&self, worker: u32, first_ns: i64) {
        self.region.worker(worker).first_ns.store(first_ns, Ordering::Relaxed);
    }

    /// `worker` has ended: nothing comes from it any more.
    pub fn end_clock(&self, worker: u32) {
        self.region.worker(worker).clock_ns.store(i64::MAX, Ordering::Release);
        self.beat();
    }

    /// `worker`'s clock, ns; `i64::MAX` when it has ended.
    pub fn clock_ns(&self, worker: u32) -> i64 {
        self.region.worker(worker).clock_ns.load(Ordering::Acquire)
    }

    /// Up to where every worker has committed what it had, and every judge has judged it.
    pub fn settled(&self) -> Moment {
        self.committed().min(self.judges.up_to())
    }

    /// Up to where every worker has committed what it had: the least of the workers' clocks, less their graces.
    pub fn committed(&self) -> Moment {
        let of_worker = |control: &WorkerControl| match control.moment() {
            Moment::END => Moment::END,
            clock => clock.plus(-control.grace_ns.load(Ordering::Relaxed)),
        };
        self.workers().map(of_worker).min().unwrap_or(Moment::END)
    }

    /// One more judge, until the `Arc` is dropped. For runs whose workers can wait.
    pub fn judge(&self) -> Arc<Judge> {
        self.judges.add()
    }

    /// In the latest era, from the first packet to the last moment in which some worker listened; `None`:
    /// nothing received yet.
    pub fn heard(&self) -> Option<(i64, i64)> {
        self.heard_in(self.era())
    }

    /// The same of `era`.
    pub fn heard_in(&self, era: u64) -> Option<(i64, i64)> {
        let eras = self.eras.lock().expect("no panic while held");
        let now =
            self.workers().filter(|control| control.era.load(Ordering::Acquire) == era).filter_map(heard_of);
        let all = now.chain(eras.span(era)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        all.filter(|(first_ns, last_ns)| first_ns <= last_ns)
    }

    /// The budget that dumps share.
    pub fn budget(&self) -> &Arc<PinBudget> {
        &self.budget
    }

    /// A position for a reader that must not be overrun by workers that can wait. It counts until the `Arc`
    /// is dropped.
    pub fn follower(&self, positions: impl Fn(u32) -> u64) -> Arc<Follower> {
        let follower = Arc::new(Follower::new(self.region.layout().lanes));
        for lane in 0..self.lanes() {
            follower.done_before(lane, positions(lane));
        }
        self.followers.add(&follower);
        follower
    }

    /// Whether a worker that can wait must wait before it claims a segment for `lane` (rule 5).
    pub fn must_wait(&self, lane: u32) -> bool {
        let group = self.lane_group(lane);
        let opened = |lane: u32| (self.lane_group(lane) == group).then(|| self.lane_next(lane));
        self.followers.must_wait(self.group_segments[group.index()], opened)
    }

    /// Publishes the counters of worker `worker`.
    pub fn publish_worker(&self, worker: u32, counts: &WorkerCounts) {
        self.region.worker(worker).publish(counts);
    }

    /// One consistent snapshot per worker and lane.
    pub fn counters(&self) -> RingCounters {
        RingCounters {
            workers: (0..self.region.layout().workers as u32)
                .map(|worker| self.region.worker(worker).counts())
                .collect(),
            lanes: (0..self.lanes()).map(|lane| self.region.lane(lane).published()).collect(),
        }
    }

    /// Beats so far: to be read before a look, and handed to [`Ring::wait_for_beat`].
    pub fn beats(&self) -> u32 {
        self.region.header().beats.load(Ordering::Acquire)
    }

    /// Sleeps until the next beat, at most `limit`: for a reader that needn't see packets at once, but
    /// mustn't be overrun. There is a beat whenever so many segments were sealed as are a quarter of the
    /// smallest claim group, and when a worker ends: a thousand who wait are woken a few times in a turn of
    /// the ring, and none too late. The caller read `looked_at`, then looked.
    pub fn wait_for_beat(&self, looked_at: u32, limit: Duration) {
        let header = self.region.header();
        header.waiting_for_beat.fetch_add(1, Ordering::SeqCst);
        futex::wait(&header.beats, looked_at, limit);
        header.waiting_for_beat.fetch_sub(1, Ordering::SeqCst);
    }

    /// A segment was sealed.
    pub(crate) fn note_seal(&self) {
        let sealed = self.region.header().seals.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if sealed.is_multiple_of(self.seals_per_beat) {
            self.beat();
        }
    }

    fn beat(&self) {
        let header = self.region.header();
        header.beats.fetch_add(1, Ordering::SeqCst);
        if header.waiting_for_beat.load(Ordering::SeqCst) > 0 {
            futex::wake(&header.beats);
        }
    }

    /// Sleeps until a worker commits, at most `limit`; not at all if `ready` says at a last look that
    /// something has come: a worker that commits after that look knows that somebody waits.
    pub(crate) fn wait_unless(&self, limit: Duration, ready: impl Fn() -> bool) {
        let header = self.region.header();
        header.waiting.fetch_add(1, Ordering::SeqCst);
        let looked_at = header.wakes.load(Ordering::Acquire);
        if !ready() {
            futex::wait(&header.wakes, looked_at, limit);
        }
        header.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes waiting readers, if there are any and the last wake-up is long enough ago. Called after a
    /// commit.
    pub(crate) fn wake(&self) {
        let header = self.region.header();
        if header.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Ok(mut woken) = self.woken.try_lock() else { return };
        if woken.elapsed() >= WAKE_INTERVAL {
            *woken = Instant::now();
            header.wakes.fetch_add(1, Ordering::Release);
            futex::wake(&header.wakes);
        }
    }
}

impl Interfaces for Ring {
    fn interface(&self, number: u32) -> Option<InterfaceEntry> {
        self.registry.get(number)
    }

    fn interfaces_from(&self, from: u32) -> Vec<InterfaceEntry> {
        self.registry.from(from)
    }
}

/// First and last capture time of a worker in its era.
fn heard_of(control: &WorkerControl) -> Option<(i64, i64)> {
    let (first_ns, last_ns) =
        (control.first_ns.load(Ordering::Relaxed), control.heard_ns.load(Ordering::Relaxed));
    let first_ns = if control.counts().received_packets > 0 { first_ns } else { i64::MAX };
    (first_ns != i64::MAX || last_ns != 0).then_some((first_ns, last_ns))
}

impl RingCounters {
    /// The sum over all workers.
    pub fn total(&self) -> WorkerCounts {
        let mut total = WorkerCounts::default();
        for worker in &self.workers {
            total.received_packets += worker.received_packets;
            total.received_bytes += worker.received_bytes;
            total.stored_packets += worker.stored_packets;
            total.stored_bytes += worker.stored_bytes;
            total.filtered_packets += worker.filtered_packets;
            total.filtered_bytes += worker.filtered_bytes;
            total.cut_packets += worker.cut_packets;
            total.cut_by_segment_packets += worker.cut_by_segment_packets;
            total.duplicate_packets += worker.duplicate_packets;
            total.late_packets += worker.late_packets;
            total.stray_packets += worker.stray_packets;
            total.dropped.merge(&worker.dropped);
        }
        total
    }

    /// Whether every worker's numbers add up: received = stored + filtered + duplicate + dropped.
    pub fn add_up(&self) -> bool {
        self.workers.iter().all(|worker| {
            worker.received_packets
                == worker.stored_packets
                    + worker.filtered_packets
                    + worker.duplicate_packets
                    + worker.dropped.in_worker()
        })
    }
}

const _: () = assert!(DropReason::ALL.len() <= 16);
