//! One dump from order to report: rounds of looking, reading, filtering and writing until the clocks say that it is over.

use crate::evidence::Evidence;
use crate::gaps::Gaps;
use crate::header::{fired_comment, intro};
use crate::merge::{Beyond, Floor, Place, Waiting};
use crate::output::{OutFile, Tally, publish};
use crate::patience::Patience;
use crate::pins::FirstPins;
use crate::progress::Progress;
use crate::report::{DumpReport, Waited};
use crate::scans::{Reader, Scans};
use crate::sieve::Sieve;
use crate::target::DumpOutput;
use crate::together::Gathering;
use crate::walk::{Candidate, Piece, Read, Walk};
use scope_filter::{ASKED_MAX, Filter, FilterEngine};
use scope_packet::{Clock, Gap, GapReason, LinkType};
use scope_ring::Ring;
use scope_trigger::Window;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Where the packet that fired stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitPacket {
    /// Lane.
    pub lane: u32,
    /// Number in the lane.
    pub packet: u64,
    /// Its link type: the file without a suffix is of this type.
    pub link_type: LinkType,
}

/// A dump to be made.
pub struct DumpOrder {
    /// Number of the dump in the run, from 1.
    pub id: u64,
    /// Name of the trigger.
    pub trigger: String,
    /// Why it fired, in words that follow "fired".
    pub why: String,
    /// The packet that fired; `None`: by hand, or the packet itself couldn't be stored.
    pub hit: Option<HitPacket>,
    /// Time of the hit, ns.
    pub time_ns: i64,
    /// Which packets are kept.
    pub filter: Filter,
    /// What evaluates it.
    pub filter_engine: FilterEngine,
    /// The window.
    pub window: Arc<Window>,
    /// Pins that were taken at the fire.
    pub pins: FirstPins,
    /// Where the files go.
    pub output: Arc<DumpOutput>,
    /// How far it is, for whoever watches.
    pub progress: Arc<Progress>,
    /// What it shares with the run's other dumps.
    pub scans: Arc<Scans>,
    /// Live: how long after the window's end to wait at most for workers that have stopped telling the time, see
    /// [`crate::patience`]. `None`: as long as it takes. A dump that waits no longer isn't complete.
    pub patience: Option<Duration>,
    /// What time it is, and what it waits by.
    pub clock: Arc<dyn Clock>,
    /// What the run has beside its packets.
    pub evidence: Arc<Evidence>,
}

/// Cuts one dump. Returns when its files have their names.
pub fn cut(ring: &Arc<Ring>, order: DumpOrder) -> DumpReport {
    let mut report = DumpReport {
        id: order.id,
        trigger: order.trigger.clone(),
        why: order.why.clone(),
        time_ns: order.time_ns,
        filter: order.filter.text().to_string(),
        to_stream: order.output.is_stream(),
        circumstances: order.evidence.now(),
        ..DumpReport::default()
    };
    let filter = order.filter;
    let everything = filter.is_everything();
    let from_ns = order.window.from_ns();
    let reader = order.scans.join(&filter);
    let mut cutter = Cutter {
        ring: ring.clone(),
        filter,
        filter_engine: order.filter_engine,
        sieves: Vec::new(),
        hit: order.hit,
        from_ns,
        gathering: order.output.together.as_ref().map(|together| Gathering::new(together, &order.progress)),
        output: order.output,
        intro: report.clone(),
        progress: order.progress,
        waiting: Waiting::default(),
        waiting_bytes: reader.waiting_bytes(),
        beyond: Beyond::default(),
        files: BTreeMap::new(),
        walk: Walk::new(ring, &order.pins, order.window.era(), from_ns),
        reader,
        clock: order.clock,
        evidence: order.evidence,
        unopened: None,
        unfit: None,
        unsettled_from_ns: None,
    };
    cutter.follow(&order.window, order.time_ns, order.patience);
    cutter.finish(&mut report, &order.window, everything);
    report
}

/// How far one round reaches, ns.
#[derive(Clone, Copy)]
struct Span {
    /// The window's end by now.
    to_ns: i64,
    /// Packets up to here may belong to it yet.
    reach_ns: i64,
}

struct Cutter {
    ring: Arc<Ring>,
    filter: Filter,
    filter_engine: FilterEngine,
    /// Per lane.
    sieves: Vec<Arc<Sieve>>,
    hit: Option<HitPacket>,
    from_ns: i64,
    output: Arc<DumpOutput>,
    /// What was known of the dump at its beginning.
    intro: DumpReport,
    progress: Arc<Progress>,
    waiting: Waiting,
    /// What each of the two may take by now.
    waiting_bytes: usize,
    beyond: Beyond,
    files: BTreeMap<LinkType, OutFile>,
    /// In the place of files, where all windows become one.
    gathering: Option<Gathering>,
    walk: Walk,
    reader: Reader,
    clock: Arc<dyn Clock>,
    evidence: Arc<Evidence>,
    /// A file couldn't be made, and so many packets weren't written.
    unopened: Option<(io::Error, u64)>,
    /// Packets of a link type that a pipe doesn't take, and what that means in words.
    unfit: Option<(String, Tally)>,
    /// The dump had to end before this was settled, and what follows it, ns.
    unsettled_from_ns: Option<i64>,
}

impl Cutter {
    /// Rounds until the window is over: its end is settled, or patience is at its end.
    fn follow(&mut self, window: &Window, hit_ns: i64, patience: Option<Duration>) {
        let mut patience = patience.map(Patience::new);
        let mut looked = self.clock.monotonic();
        loop {
            let beats = self.ring.beats();
            // Before the look: what is committed afterwards is younger than this, or late.
            let settled = self.ring.settled();
            let settled_ns = settled.within(window.era());
            let mut over = window.close_if_settled(settled);
            let to_ns = window.to_ns();
            let now = self.clock.monotonic();
            let passed = now.saturating_sub(std::mem::replace(&mut looked, now));
            if let Some(patience) = &mut patience {
                let rest = Duration::from_nanos(to_ns.saturating_sub(hit_ns).max(0) as u64);
                if patience.is_over(passed, settled, rest) && !over {
                    window.close();
                    over = true;
                    self.unsettled_from_ns = Some(settled_ns.saturating_add(1));
                }
            }
            self.waiting_bytes = self.reader.waiting_bytes();
            self.reader.note_early(self.waiting.take_early());
            self.beyond.inside(to_ns, &mut self.waiting);
            // While it is open it may still grow: packets behind its end are kept aside, not passed over.
            let reach_ns = if over { to_ns } else { i64::MAX };
            let pieces = self.walk.look(reach_ns, over);
            // Of this very time some may still come.
            let floor = if over { (i64::MAX, u32::MAX) } else { (settled_ns.saturating_sub(1), u32::MAX) };
            self.take(&pieces, Span { to_ns, reach_ns }, floor);
            if self.files.values().any(OutFile::reader_gone) {
                self.progress.set_reader_gone();
            }
            if over {
                return;
            }
            if pieces.is_empty() {
                self.files.values_mut().for_each(OutFile::hand_on);
            }
            self.reader.pass(self.walk.passed());
            // What has come meanwhile is gathered: a beat of the ring ends the wait before anything is overrun.
            let pause = self.reader.pause(to_ns.saturating_sub(settled_ns));
            self.clock.wait(pause, &|pause| self.ring.wait_for_beat(beats, pause));
        }
    }

    /// Reads the pieces of one look; lets out what nothing older can come before: `settled` bounds what comes later.
    fn take(&mut self, pieces: &[Piece], span: Span, settled: Floor) {
        self.make_sieves();
        for (index, piece) in pieces.iter().enumerate() {
            let floor = pieces.get(index + 1).map_or(settled, |next| (next.min_ns, next.segment.lane).min(settled));
            if let Some(read) = self.walk.read(pieces, index) {
                self.take_piece(piece, &read, span, floor);
            }
            // Behind the reading, so that nothing is held for a disk that hangs.
            self.files.values_mut().for_each(OutFile::flush_full);
            self.walk.done(pieces, index);
            self.progress.holds(self.walk.held());
        }
        self.let_out(settled);
        self.progress.holds(self.walk.held());
    }

    /// For lanes that are new; lanes of one link type share one.
    fn make_sieves(&mut self) {
        for lane in self.sieves.len() as u32..self.ring.lanes() {
            let link_type = self.ring.lane_info(lane).link_type;
            let known = self.sieves.iter().find(|sieve| sieve.link_type() == link_type).cloned();
            let sieve = known.unwrap_or_else(|| Arc::new(Sieve::new(&self.filter, self.filter_engine, link_type)));
            self.sieves.push(sieve);
        }
    }

    /// Reads one piece: of all that the keys leave, what is inside is asked in batches; the packet that fired is kept
    /// whatever the answer.
    fn take_piece(&mut self, piece: &Piece, read: &Read, span: Span, floor: Floor) {
        let sieve = self.sieves[piece.segment.lane as usize].clone();
        let hit = self.hit.filter(|hit| hit.lane == piece.segment.lane).map(|hit| hit.packet);
        match read.shared(&self.reader, sieve.keys(), hit) {
            Some(indices) => self.take_candidates(piece, &sieve, read.candidates(indices.into_iter()), span, floor),
            None => self.take_candidates(piece, &sieve, read.candidates(read.own(&self.reader, sieve.keys(), hit)), span, floor),
        }
        self.let_out(floor);
    }

    fn take_candidates<'a>(
        &mut self,
        piece: &Piece,
        sieve: &Sieve,
        all: impl Iterator<Item = Candidate<'a>>,
        span: Span,
        floor: Floor,
    ) {
        let hit = self.hit.filter(|hit| hit.lane == piece.segment.lane).map(|hit| hit.packet);
        let from_ns = self.from_ns;
        let inside = |candidate: &Candidate<'_>| (from_ns..=span.reach_ns).contains(&candidate.block.time_ns());
        // A stray belongs to a window that holds its time, unless that was over when it came.
        let strays = self.ring.strays(piece.segment.lane, piece.numbers());
        let came_too_late = |candidate: &Candidate<'_>| {
            let stray = strays.binary_search_by_key(&candidate.packet, |stray| stray.0);
            stray.is_ok_and(|at| strays[at].1 > span.to_ns)
        };
        let may_belong = |candidate: &Candidate<'_>| {
            hit == Some(candidate.packet) || (inside(candidate) && (strays.is_empty() || !came_too_late(candidate)))
        };
        let mut candidates = all.filter(may_belong);
        loop {
            let batch: Vec<Candidate<'_>> = candidates.by_ref().take(ASKED_MAX).collect();
            if batch.is_empty() {
                break;
            }
            let taken = sieve.takes(&batch);
            for (at, candidate) in batch.iter().enumerate() {
                let is_hit = hit == Some(candidate.packet);
                if is_hit || taken >> at & 1 != 0 {
                    self.keep(piece, candidate, is_hit, span, floor);
                }
            }
        }
    }

    /// Writes a packet of the dump, or lets it wait for its turn.
    fn keep(&mut self, piece: &Piece, candidate: &Candidate<'_>, is_hit: bool, span: Span, floor: Floor) {
        let (time_ns, bytes) = (candidate.block.time_ns(), candidate.block.bytes());
        let place = Place { time_ns, lane: piece.segment.lane, packet: candidate.packet };
        if time_ns > span.to_ns && !is_hit {
            return self.beyond.push(place, bytes, self.waiting_bytes);
        }
        if piece.ordered && place.is_due(floor) && self.waiting.is_empty() {
            return self.write(place, bytes);
        }
        self.waiting.push(place, bytes);
        if piece.ordered {
            self.let_out(floor.min((time_ns, piece.segment.lane)));
        }
    }

    /// Writes what waits and may go out.
    fn let_out(&mut self, floor: Floor) {
        while let Some((place, block)) = self.waiting.pop(floor, self.waiting_bytes) {
            self.write(place, &block);
        }
    }

    fn write(&mut self, place: Place, block: &[u8]) {
        self.progress.wrote(block.len() as u64);
        let link_type = self.sieves[place.lane as usize].link_type();
        let fired = self.hit.is_some_and(|hit| (hit.lane, hit.packet) == (place.lane, place.packet));
        if self.gathering.is_none()
            && let Some(words) = self.misfit(link_type)
        {
            return self.unfit.get_or_insert_with(|| (words, Tally::default())).1.add(&Tally::of(place.time_ns, block, 0));
        }
        let mut comments = self.evidence.annexes.comments_of(place.lane, place.packet);
        if fired {
            comments.insert(0, fired_comment(&self.intro));
        }
        if let Some(gathering) = &mut self.gathering {
            gathering.write(&self.ring, place, link_type, block, &comments);
        } else if let Some(file) = self.file(link_type) {
            file.0.write(file.1, place, block, &comments);
        } else if let Some((_, unwritten)) = &mut self.unopened {
            *unwritten += 1;
        }
    }

    fn file(&mut self, link_type: LinkType) -> Option<(&mut OutFile, &Ring)> {
        if !self.files.contains_key(&link_type) && self.unopened.is_none() {
            let (evidence, buffers) = (&self.evidence, self.reader.buffers());
            let begin = || OutFile::create(&self.output, &self.ring, link_type, evidence, buffers, &intro(&self.intro));
            match self.progress.wait(begin) {
                Ok(file) => drop(self.files.insert(link_type, file.watched(&self.progress))),
                Err(error) => self.unopened = Some((error, 0)),
            }
        }
        self.files.get_mut(&link_type).map(|file| (file, &*self.ring))
    }

    /// Why packets of a link type can't be written: a pipe takes one, that of the packet that fired, or the first.
    fn misfit(&self, link_type: LinkType) -> Option<String> {
        let taken = self.hit.map(|hit| hit.link_type).or(self.files.keys().next().copied())?;
        (self.output.is_stream() && taken != link_type).then(|| {
            let (taken, other) = (taken.name(), link_type.name());
            format!("a pipe takes one link type, here {taken}: packets of {other} are left out; write into a folder")
        })
    }

    /// States the gaps, closes the files, gives them their names.
    fn finish(mut self, report: &mut DumpReport, window: &Window, everything: bool) {
        self.walk.let_go();
        let waits = self.progress.waits();
        report.waited = Waited { reading: waits, pins_full: self.walk.full(), closing: Duration::ZERO };
        let closing = self.clock.monotonic();
        report.asked = (self.from_ns, window.to_ns());
        let main_type = match self.hit {
            Some(hit) => hit.link_type,
            None if self.files.is_empty() && self.ring.lanes() == 0 => LinkType::ETHERNET, // nothing was received yet
            None => self.files.keys().next().copied().unwrap_or_else(|| self.ring.lane_info(0).link_type),
        };
        match &mut self.gathering {
            Some(gathering) => gathering.end(),
            None => drop(self.file(main_type)),
        }
        // Without anybody's word for it: from the first packet to the latest moment of any worker's clock.
        let heard =
            self.ring.listened(window.era()).or(self.ring.heard_in(window.era())).unwrap_or((report.time_ns, report.time_ns));
        report.from_ns = report.asked.0.max(heard.0).min(report.time_ns);
        report.to_ns = report.asked.1.min(heard.1).max(report.from_ns);
        (report.hits, report.hits_ns) = window.hits();
        let known = self.gaps(window.era(), report.asked);
        let mut files = std::mem::take(&mut self.files);
        self.state(&files, report, &known, everything);
        for file in files.values_mut() {
            let fallback = self.ring.interface_of(file.link_type());
            file.finish_packets(&self.ring, fallback, (report.lost_min, report.lost_max), report.to_ns);
        }
        let mut times: Vec<_> = files.values().flat_map(OutFile::times).collect();
        times.dedup();
        report.circumstances = self.evidence.around(report.from_ns, report.to_ns, times);
        self.state(&files, report, &known, everything);
        report.interpreted = self.sieves.iter().find_map(|sieve| sieve.interpreted().map(String::from));
        match &self.output.together {
            Some(_) => report.paths.extend(self.output.path_of_all()),
            None => {
                publish(&self.output, &mut files, main_type, report, &|files, report| {
                    self.state(files, report, &known, everything)
                });
            }
        }
        report.waited.closing = self.clock.monotonic().saturating_sub(closing);
    }

    /// What of the window never came into the ring, and what was gone from there before it was read.
    fn gaps(&mut self, era: u64, asked: (i64, i64)) -> Vec<Gap> {
        let mut gaps = self.ring.gaps_before(era, asked);
        let evicted = self.walk.lost(asked.1).into_iter().map(|lost| (GapReason::Evicted, lost));
        for (reason, lost) in evicted.chain([(GapReason::Limit, self.beyond.lost(asked.1))]) {
            let lost_max = Some(lost.packets_max);
            let gap = |(from_ns, to_ns)| Gap { from_ns, to_ns, reason, lost_min: lost.packets_min, lost_max };
            gaps.extend(lost.span_ns.map(gap));
        }
        let unsettled = |from_ns| Gap { from_ns, to_ns: asked.1, reason: GapReason::Unsettled, lost_min: 0, lost_max: None };
        gaps.extend(self.unsettled_from_ns.map(unsettled));
        gaps
    }

    /// Says in the report what the dump has, and what it lacks: the gaps that are known, and what couldn't be written so far.
    fn state(&self, files: &BTreeMap<LinkType, OutFile>, report: &mut DumpReport, known: &[Gap], everything: bool) {
        report.packets = files.values().map(|file| file.packets).sum();
        report.bytes = files.values().map(|file| file.bytes).sum();
        report.cut = files.values().map(|file| file.cut).sum();
        if let Some(gathering) = &self.gathering {
            (report.packets, report.bytes, report.cut) = (gathering.taken.packets, gathering.taken.bytes, gathering.taken.cut);
        }
        let spool = self.gathering.as_ref().and_then(|gathering| gathering.error.as_ref().map(ToString::to_string));
        let unopened = self.unopened.as_ref().map(|(error, _)| error.to_string());
        let unfit = self.unfit.as_ref().map(|(words, _)| words.clone());
        let failed = files.values().find_map(OutFile::complaint).or(unopened).or(unfit).or(spool);
        report.error = failed.map(|error| self.output.fault(error));
        let mut gaps = Gaps::of(report.asked);
        known.iter().for_each(|gap| gaps.add(*gap));
        let gathered = self.gathering.iter().map(|gathering| &gathering.unwritten);
        let unfit = self.unfit.iter().map(|(_, unfit)| unfit);
        for unwritten in files.values().map(|file| &file.unwritten).chain(unfit).chain(gathered) {
            gaps.add_lost(GapReason::Disk, (unwritten.packets, unwritten.packets), unwritten.span_ns);
        }
        if let Some((_, packets)) = self.unopened {
            gaps.add_lost(GapReason::Disk, (packets, packets), Some((report.from_ns, report.to_ns)));
        }
        let stated = gaps.state(everything);
        (report.gaps, report.gaps_folded) = (stated.gaps, stated.folded);
        (report.lost_min, report.lost_max, report.missing) = (stated.lost_min, stated.lost_max, stated.span_ns);
        report.complete = report.gaps.is_empty() && report.error.is_none();
    }
}
