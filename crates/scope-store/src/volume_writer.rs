//! One volume's writer: takes segments from the dealer, gives them to the files of their link types, flushes
//! them, makes room, and closes what dead runs left.
//!
//! ```text
//! turn   what the disk has finished ─► what became safe is counted
//!        new segments, as long as the disk has room for them under way; with a filter or a snap length what
//!            it keeps of them is composed (crate::compose)
//!        sealed ones are closed in their slots, open ones flushed every so often
//!        once a second: bounds
//!        nothing to do: a step of recovery
//! ```
//! It is driven by a thread that calls [`VolumeWriter::turn`]. A disk that hangs holds up that thread alone.

use crate::account::Account;
use crate::chaining::{Chaining, Whole};
use crate::compose::{Composer, Keeping};
use crate::dealer::Job;
use crate::disk::Disk;
use crate::file_writer::{FileWriter, Stage};
use crate::files::{Event, Files};
use crate::hands::{Behind, Hand, Hands, all_of};
use crate::inventory::Inventory;
use crate::io::Way;
use crate::maker::Maker;
use crate::mending::Mending;
use crate::outgoing::Outgoing;
use crate::report::{Amount, Deleted, News, VolumeReport, VolumeState};
use crate::retain::{Bounds, Growing};
use crate::unchained::Unchained;
use crate::volume::Volume;
use crate::volumes::Shared;
use scope_packet::SegmentId;
use scope_ring::{Missed, Pinned, Ring};
use scope_spelling::figures::counted;
use scope_spelling::printable::shell_word;
use scope_spelling::time::iso;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes under way at most: more are begun when some have finished.
const UNDER_WAY_MAX: usize = 32;
/// Segments are gathered for so long, so that the disk is given more at once, and nobody wakes up for each
/// single one: as long as the share of the volume lasts at this many bytes in a millisecond, within bounds.
const GATHER_BYTES_PER_MS: u64 = 4 << 20;
const GATHER_MS: [u64; 2] = [5, 20];
/// A turn has waited for the disk already where that has something under way.
const REST_UNDER_WAY: Duration = Duration::from_millis(1);
/// A lane whose open segment keeps a file from its end for so long sleeps.
const SLEEPS_AFTER: Duration = Duration::from_secs(10);
/// So long newer files stay in favour of an older one that a lane's open segment keeps from its end.
const LANE_KEEPS_ORDER: Duration = Duration::from_secs(1);
/// How often bounds are looked at, and the report is drawn up.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const REPORT_EVERY: Duration = Duration::from_millis(50);
/// A disk that failed is tried again after this, then after twice as long, and so on.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// At the end of a run a failing disk is tried again so often.
const LAST_TRIES: u32 = 3;

/// What goes into a volume, and how.
pub struct WriterPlan {
    /// Most bytes of a file.
    pub file_bytes: u64,
    /// How often what is new goes to the disk for good.
    pub flush: Duration,
    /// What the volume may take.
    pub bounds: Bounds,
    /// Whether files are chained.
    pub chain: bool,
    /// Keeps less than the ring.
    pub keeping: Option<Keeping>,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There is more to do.
    Busy,
    /// Nothing is to do for the moment.
    Idle,
    /// All is written, and every file has its name, or can't have it.
    Over,
}

/// One volume of a run.
pub struct VolumeWriter {
    shared: Arc<Shared>,
    index: usize,
    disk: Box<dyn Disk + Send>,
    /// By link type.
    files: BTreeMap<u16, Files>,
    /// Of the ring, or composed.
    hands: Hands,
    composer: Option<Composer>,
    maker: Maker,
    flush: Duration,
    flushed_at: Instant,
    /// How long segments are gathered, and when they are taken next.
    gather: Duration,
    take_at: Instant,
    looked_at: Instant,
    reported_at: Instant,
    account: Account,
    failing: Option<Failing>,
    tries_at_end: u32,
    /// The run ends, and nothing more has room, or the disk still refuses: only what files were given is closed.
    winds_up: bool,
    mending: Mending,
    chaining: Option<Chaining>,
    /// It is told that what this run stores goes since its times are old.
    untimely_told: bool,
}

/// The disk refuses.
struct Failing {
    pause: Duration,
    again_at: Instant,
}

impl VolumeWriter {
    /// The writer of the volume with place `index` in `shared`, onto `disk`; `recovery_disk` is for what dead
    /// runs left. To be called once the run has its final rights.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn new(
        shared: &Arc<Shared>,
        index: usize,
        volume: Volume,
        (disk, way): (Box<dyn Disk + Send>, &Way),
        recovery_disk: Box<dyn Disk + Send>,
        plan: WriterPlan,
    ) -> io::Result<VolumeWriter> {
        let mut disk = disk;
        let path = volume.folder().path().to_path_buf();
        let chain_folder = volume.folder().again()?;
        let (mut inventory, growing) = Inventory::look(&mut *disk, plan.bounds, way.reserves)?;
        let report = VolumeReport { path: path.clone(), way: way.to_string(), ..VolumeReport::default() };
        let mut account = Account::new(report);
        for warning in strangers(&inventory, &path) {
            account.note(News::Warning(warning));
        }
        let number = inventory.numbers_of(&shared.ring().run_id());
        inventory.set_run(&shared.ring().run_id());
        // Bounds hold at the start, too: with what earlier runs left.
        if let Err(no_room) = inventory.make_room(&mut *disk, &volume, 0) {
            account.set_state(no_room.state, no_room.words);
        }
        let unchained = Unchained::look(&mut *disk, &chain_folder, &growing, plan.chain);
        let unchained = unchained.unwrap_or_else(|error| {
            let warning = format!("{}: the chain can't be read: {error}", path.display());
            account.note(News::Warning(warning));
            Unchained::default()
        });
        let mut chained = unchained.runs;
        chained.extend(plan.chain.then(|| shared.ring().run_id()));
        let (filter, snap) = plan.keeping.as_ref().map_or((String::new(), 0), Keeping::stated);
        let composer = plan.keeping.map(|keeping| Composer::new(shared.ring(), keeping));
        if composer.is_some() {
            shared.dealer().deal_in_rows();
        }
        let now = Instant::now();
        let share_bytes = (shared.dealer().share() * shared.ring().segment_bytes()) as u64;
        let mut writer = VolumeWriter {
            shared: shared.clone(),
            index,
            disk,
            files: BTreeMap::new(),
            hands: Hands::default(),
            composer,
            maker: Maker {
                volume,
                volumes: shared.ids().collect(),
                ring: shared.ring().clone(),
                summaries: shared.summaries().cloned(),
                inventory,
                file_bytes: plan.file_bytes,
                filter,
                snap,
                number,
                no_room: None,
                waits: None,
                growing: Vec::new(),
                fresh: false,
                begun: BTreeMap::new(),
            },
            flush: plan.flush,
            flushed_at: now,
            gather: gather_for(share_bytes),
            take_at: now,
            looked_at: now,
            reported_at: now,
            account,
            failing: None,
            tries_at_end: 0,
            winds_up: false,
            mending: Mending::new(growing, recovery_disk),
            chaining: (!chained.is_empty()).then(|| Chaining::new(chain_folder, chained)),
            untimely_told: false,
        };
        unchained.files.into_iter().for_each(|whole| writer.note_file(whole));
        writer.tell(true);
        Ok(writer)
    }

    /// Does what there is to do.
    pub fn turn(&mut self) -> Turn {
        let ends = self.shared.ends();
        let mut busy = self.finish();
        if busy || self.disk.pending() == 0 {
            self.shared.beat(self.index);
        }
        if self.winds_up {
            return self.wind_up(busy);
        }
        let now = Instant::now();
        if let Some(failing) = &mut self.failing {
            if ends && self.tries_at_end == 0 {
                *failing = Failing { pause: PAUSE_MIN / 2, again_at: now };
            }
            if now < failing.again_at {
                self.take_bounds();
                if self.lacks_room() {
                    self.look_now_and_then(now); // a hold may go, or others may give back space
                }
                self.shared.dealer().deal();
                self.tell(false);
                return match () {
                    () if ends && self.tries_at_end >= LAST_TRIES => self.wind_up(busy),
                    () if self.lacks_room() && self.mend() => Turn::Busy,
                    () => Turn::Idle,
                };
            }
            if ends {
                self.tries_at_end += 1;
            }
            if let Err(error) = self.check_place() {
                self.fail(&error);
                return Turn::Idle;
            }
            self.shared.dealer().set_failing(self.index, false); // it gets its share, to be tried with
        }
        busy |= self.take_jobs(now, ends);
        busy |= self.compose();
        if let Err(error) = self.give(now, ends) {
            self.fail(&error);
        }
        self.look_now_and_then(now);
        if ends && self.has_no_work() && self.end_composing() && self.hands.is_empty() {
            for files in self.files.values_mut() {
                files.end(&mut *self.disk);
            }
            self.take_events();
            if self.has_written() && !self.mend() && !self.chain() {
                return self.over();
            }
            busy = true;
        } else if !busy && self.mend() {
            busy = true;
        }
        busy |= self.chain();
        self.tell(false);
        if busy { Turn::Busy } else { Turn::Idle }
    }

    /// How long the thread may rest after a turn that was idle.
    pub fn rest(&self) -> Duration {
        if self.disk.pending() > 0 { REST_UNDER_WAY } else { self.gather }
    }

    /// Whether no file grows.
    fn has_written(&self) -> bool {
        self.files.values().all(|files| files.writers().next().is_none())
    }

    /// Takes what the disk has finished.
    fn finish(&mut self) -> bool {
        let mut finished = Vec::new();
        let wait = if self.disk.pending() > 0 { self.gather } else { Duration::ZERO };
        if let Err(error) = self.disk.finish(wait, &mut finished) {
            self.fail(&error);
        }
        let any = !finished.is_empty();
        for mut finished in finished {
            for files in self.files.values_mut() {
                match files.finished(&mut *self.disk, finished) {
                    Some(back) => finished = back,
                    None => break,
                }
            }
        }
        self.take_events();
        any
    }

    /// Takes segments from the dealer, as long as the disk is not too far behind; all that have come since it
    /// took the last one some time ago.
    fn take_jobs(&mut self, now: Instant, ends: bool) -> bool {
        if now < self.take_at && !ends && self.failing.is_none() && !self.waits_much() {
            return false;
        }
        let mut any = false;
        while self.disk.pending() < UNDER_WAY_MAX && !self.is_full() {
            let job = {
                let mut dealer = self.shared.dealer();
                dealer.deal();
                dealer.next_of(self.index)
            };
            let Some(job) = job else {
                self.take_at = now + self.gather;
                break;
            };
            any = true;
            self.take(job);
            self.compose();
            if let Err(error) = self.close_sealed() {
                self.fail(&error);
                break;
            }
        }
        any
    }

    /// Whether half of what it may hold waits to be taken.
    fn waits_much(&self) -> bool {
        let mut dealer = self.shared.dealer();
        dealer.deal();
        dealer.waiting(self.index).count() * 2 >= dealer.share()
    }

    fn take(&mut self, job: Job) {
        if job.missed.packets > 0 {
            self.account.count_missed(self.shared.ring(), job.pinned.lane(), &job.missed);
        }
        match &mut self.composer {
            Some(composer) => composer.take(job.pinned, job.kept),
            None => self.hands.take(job.pinned, job.kept),
        }
    }

    /// Whether there is no memory to compose in before the disk has written more.
    fn is_full(&self) -> bool {
        self.composer.as_ref().is_some_and(Composer::is_full)
    }

    /// Composes what it can of the segments that it took. Whether anything of the ring is through.
    fn compose(&mut self) -> bool {
        let Some(composer) = &mut self.composer else { return false };
        let through = composer.step(&mut self.hands);
        self.account.count_filtered(composer.take_filtered());
        for id in &through {
            self.shared.dealer().done(self.index, *id);
        }
        !through.is_empty()
    }

    /// Nothing more comes: what is composed is sealed. Whether all of it is.
    fn end_composing(&mut self) -> bool {
        self.composer.as_mut().is_none_or(|composer| composer.end(&mut self.hands))
    }

    /// Gives sealed segments to their files.
    fn close_sealed(&mut self) -> io::Result<()> {
        for id in self.hands.sealed() {
            let Some(again) = self.hands.get(id).and_then(Hand::outgoing) else { continue };
            self.maker.growing = self.growing();
            let files = self.files.entry(link_of(self.shared.ring(), id)).or_default();
            let maker = &mut self.maker;
            match files.close(&mut *self.disk, again, &mut |disk, first| maker.begin(disk, first)) {
                Ok(()) => self.hands.close(id),
                Err((_, error)) => return Err(error),
            }
        }
        self.take_events();
        Ok(())
    }

    /// Closes what is sealed, and flushes what is open when it is time.
    fn give(&mut self, now: Instant, ends: bool) -> io::Result<()> {
        self.close_sealed()?;
        // What is written and not safe counts against what the store may hold: it must not take all of that.
        let holds_much =
            self.composer.is_none() && self.hands.unsafe_yet() * 2 >= self.shared.dealer().share();
        let due = now.duration_since(self.flushed_at) >= self.flush;
        if !due && !ends && !holds_much && !self.is_full() {
            return Ok(());
        }
        if self.files.values().any(Files::is_flushing) {
            return Ok(());
        }
        self.flushed_at = now;
        let mut by_link: BTreeMap<u16, Vec<Outgoing>> =
            self.files.keys().map(|link| (*link, Vec::new())).collect();
        for (id, hand) in self.hands.waiting() {
            if let Some(again) = hand.outgoing() {
                by_link.entry(link_of(self.shared.ring(), id)).or_default().push(again);
            }
        }
        for (link, segments) in by_link {
            self.maker.growing = self.growing();
            let files = self.files.entry(link).or_default();
            let maker = &mut self.maker;
            files.flush(&mut *self.disk, segments, &mut |disk, first| maker.begin(disk, first))?;
        }
        self.take_events();
        Ok(())
    }

    /// Counts what became safe, and what else the files tell.
    fn take_events(&mut self) {
        let mut events = Vec::new();
        for files in self.files.values_mut() {
            events.extend(files.take_events());
        }
        for event in events {
            match event {
                Event::Written(id) => self.hands.written(id),
                Event::Kept(kept) => {
                    if let Some(new) = self.hands.keep(&kept) {
                        self.account.count_stored(new);
                        self.try_has_worked();
                    }
                }
                Event::Whole { name, holds, bytes } => {
                    self.maker.waits = None;
                    self.maker.inventory.closed(&mut *self.disk, &name, &holds, Some(bytes));
                    let run_id = self.maker.ring.run_id();
                    self.note_file(Whole { name, holds, bytes, cut_off: None, run_id });
                }
                Event::Removed { name } => {
                    self.maker.waits = None;
                    self.maker.inventory.gone(&name);
                }
                Event::Failed { name, error, unkept, has_kept } => {
                    self.account.note(News::Warning(format!(
                        "{}: {error}; the file stays as {}.part, and recovery closes it",
                        self.account.report.path.display(),
                        name.display()
                    )));
                    self.fail(&error);
                    self.mending.add(&name, has_kept);
                    for (id, _) in unkept {
                        self.put_back(id);
                    }
                }
            }
        }
        for id in self.hands.take_gone() {
            if self.composer.is_none() {
                self.shared.dealer().done(self.index, id);
            }
        }
    }

    /// What a failed file was given, or none was, goes into another one, or into another volume; what was
    /// composed stays with this one.
    fn put_back(&mut self, id: SegmentId) {
        if self.composer.is_some() {
            return self.hands.again(id);
        }
        let Some(hand) = self.hands.remove(id) else { return };
        let job = Job { missed: Missed::default(), kept: hand.kept, pinned: hand.pinned };
        self.shared.dealer().put_back(self.index, job);
    }

    /// The disk refused something: it is tried again later, and the others take over.
    fn fail(&mut self, error: &io::Error) {
        if self.makes_room()
            && let Some(no_room) = self.maker.no_room.take()
        {
            return self.maker.wait(no_room);
        }
        self.maker.waits = None;
        let (state, words) = match self.maker.no_room.take() {
            Some(no_room) => (no_room.state, no_room.words),
            None => (VolumeState::Failing, error.to_string()),
        };
        let pause = match &self.failing {
            Some(failing) if Instant::now() < failing.again_at => return,
            Some(failing) => (failing.pause * 2).min(PAUSE_MAX),
            None => PAUSE_MIN,
        };
        self.maker.fresh = false;
        self.failing = Some(Failing { pause, again_at: Instant::now() + pause });
        self.account.set_state(state, words);
        self.shared.dealer().set_failing(self.index, true);
        let open: Vec<SegmentId> = self.files.values().flat_map(Files::open_segments).collect();
        let ids: Vec<SegmentId> = self.hands.waiting().map(|(id, _)| id).collect();
        for id in ids.into_iter().filter(|id| !open.contains(id)) {
            self.put_back(id);
        }
        for (pinned, kept) in self.composer.as_mut().map(Composer::give_back).unwrap_or_default() {
            let job = Job { missed: Missed::default(), kept, pinned };
            self.shared.dealer().put_back(self.index, job);
        }
    }

    /// Whether there will be room by what is under way: files that end may go as soon as they have their names, and
    /// their lines in the chain.
    fn makes_room(&self) -> bool {
        // One that waits for a lane's open segment ends with that: soon, unless the lane sleeps.
        let is_patient = self.maker.waits.as_ref().is_none_or(|waits| waits.since().elapsed() < SLEEPS_AFTER);
        let ends = |files: &Files| {
            let ending = |file: &FileWriter| matches!(file.stage(), Stage::Ending);
            files.writers().any(|file| ending(file) && (is_patient || file.open_segments().next().is_none()))
        };
        self.chaining.as_ref().is_some_and(Chaining::has_work) || self.files.values().any(ends)
    }

    /// The files that grow. One that is to end, and older than others, keeps these from being deleted; a lane whose
    /// open segment it waits for may do so for a moment only.
    fn growing(&self) -> Vec<Growing> {
        let waits = self.maker.waits.as_ref();
        let is_patient = waits.is_none_or(|waits| waits.since().elapsed() < LANE_KEEPS_ORDER);
        let growing = self.files.iter().flat_map(|(&link, files)| files.growing().map(move |of| (link, of)));
        let known = growing.map(|(link, (writer, ends))| Growing {
            name: writer.name().to_path_buf(),
            link,
            span_ns: writer.span_ns(),
            ends,
            can_end: is_patient || writer.open_segments().next().is_none(),
        });
        known.collect()
    }

    /// A file is whole: it is told, with a chain once its hash is known.
    fn note_file(&mut self, whole: Whole) {
        match self.chaining.as_mut().filter(|chaining| chaining.takes(&whole.run_id)) {
            Some(chaining) => {
                self.maker.inventory.keep(&whole.name, true);
                chaining.add(whole);
            }
            None => self.account.note(whole.news(None)),
        }
    }

    /// A step of the chain; whether there is more.
    fn chain(&mut self) -> bool {
        let Some(chaining) = &mut self.chaining else { return false };
        match chaining.step() {
            Some(Ok((whole, head))) => {
                self.maker.waits = None;
                self.maker.inventory.keep(&whole.name, false);
                if chaining.takes(&self.shared.ring().run_id()) {
                    self.account.report.chain = Some(head);
                }
                self.account.note(whole.news(Some(head)));
            }
            Some(Err((whole, error))) => {
                self.maker.waits = None;
                self.maker.inventory.keep(&whole.name, false);
                let path = self.account.report.path.display();
                let warning = format!("{path}: {} isn't in the chain: {error}", whole.name.display());
                self.account.note(News::Warning(warning));
                self.account.note(whole.news(None));
            }
            None => {}
        }
        self.chaining.as_ref().is_some_and(Chaining::has_work)
    }

    /// Something is safe. What was under way when the disk refused says nothing, nor does an older file where
    /// there was no room for another one.
    fn try_has_worked(&mut self) {
        let is_try = self.failing.as_ref().is_some_and(|failing| Instant::now() >= failing.again_at);
        if is_try && (self.account.report.state == VolumeState::Failing || self.maker.fresh) {
            self.works();
        }
    }

    /// What is written to a folder that nobody finds any more is no use.
    fn check_place(&self) -> io::Result<()> {
        let words = "the folder isn't at its path any more: it was unmounted, moved or removed";
        let is_there = self.maker.volume.folder().is_at_its_path();
        if is_there { Ok(()) } else { Err(io::Error::new(io::ErrorKind::NotFound, words)) }
    }

    /// It works again.
    fn works(&mut self) {
        if self.failing.take().is_some() || self.account.report.state != VolumeState::Writing {
            self.account.set_state(VolumeState::Writing, "writes again".to_string());
            self.shared.dealer().set_failing(self.index, false);
        }
    }

    fn take_bounds(&mut self) {
        if let Some(bounds) = self.shared.take_bounds(self.index) {
            self.maker.inventory.bounds = bounds;
            self.failing = self.failing.take().map(|failing| Failing { again_at: Instant::now(), ..failing });
        }
    }

    /// Bounds, once a second.
    fn look_now_and_then(&mut self, now: Instant) {
        if now.duration_since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            self.look();
        }
    }

    fn look(&mut self) {
        self.take_bounds();
        match self.check_place() {
            Ok(()) => self.keep_bounds(),
            Err(error) => self.fail(&error),
        }
        for link in self.maker.take_old() {
            if let Some(files) = self.files.get_mut(&link) {
                files.end(&mut *self.disk);
            }
        }
        self.note_deleted();
        self.account.note_missed();
    }

    fn keep_bounds(&mut self) {
        // What stopped for lack of room is tried as soon as there is room for a file.
        let lacks = self.lacks_room();
        let needs_file = self.failing.is_some() || self.has_written();
        let wanted = if lacks && needs_file { self.maker.file_bytes } else { 0 };
        self.maker.growing = self.growing();
        match self.maker.make_room(&mut *self.disk, wanted) {
            Ok(()) if lacks => self.has_room(),
            Ok(()) => {}
            Err(no_room) if no_room.state == VolumeState::Failing => {}
            Err(_) if self.failing.is_some() || self.makes_room() => {} // a try that fails says why
            Err(no_room) => self.account.set_state(no_room.state, no_room.words),
        }
    }

    /// There is room again. Where something was refused, that it writes again is said once something is safe.
    fn has_room(&mut self) {
        match &mut self.failing {
            Some(failing) => failing.again_at = failing.again_at.min(Instant::now()),
            None => self.account.set_state(VolumeState::Writing, "there is room again".to_string()),
        }
    }

    fn note_deleted(&mut self) {
        for deleted in self.maker.inventory.take_deleted() {
            self.account.count_deleted(&deleted);
            if deleted.untimely && !std::mem::replace(&mut self.untimely_told, true) {
                self.account.note(News::Warning(untimely(&self.account.report.path, &deleted)));
            }
            self.account.note(News::Deleted(deleted));
        }
    }

    /// A step of what dead runs left, or of what the disk failed; whether there is more. A volume without room
    /// for another file does that, too: then there may be room.
    fn mend(&mut self) -> bool {
        let lacks_room = self.lacks_room();
        let (works, files) = (self.failing.is_none() || lacks_room, self.files.values());
        let done = |account: &Account| account.report.recovery.map_or(0, |recovery| recovery.files_done);
        let before = done(&self.account);
        let (more, whole) =
            self.mending.step(works, &mut *self.disk, files, &mut self.maker, &mut self.account);
        if let Some(whole) = whole {
            self.note_file(whole);
        }
        if done(&self.account) > before {
            self.maker.waits = None;
            if let Some(failing) = self.failing.as_mut().filter(|_| lacks_room) {
                failing.again_at = Instant::now();
            }
        }
        more
    }

    /// Whether it writes nothing because there is no room.
    fn lacks_room(&self) -> bool {
        matches!(self.account.report.state, VolumeState::Held | VolumeState::Full)
    }

    /// Whether nothing is left to be written, here or by those who could hand it on.
    fn has_no_work(&self) -> bool {
        let mut dealer = self.shared.dealer();
        dealer.deal();
        dealer.is_quiet(self.index)
    }

    /// What nobody could take: it stands with the last volume to end.
    fn count_rest(&mut self) {
        for (lane, missed) in self.shared.rest() {
            self.account.count_rest(self.shared.ring(), lane, &missed);
        }
    }

    /// The run ends, and nothing more can be written: what files were given as closed stays, the rest is missed, and the
    /// files end, as far as the disk still does that.
    fn wind_up(&mut self, busy: bool) -> Turn {
        if !std::mem::replace(&mut self.winds_up, true) {
            self.miss(false);
        }
        for files in self.files.values_mut() {
            files.end(&mut *self.disk);
            for id in files.open_segments() {
                files.cut(&mut *self.disk, id);
            }
        }
        self.take_events();
        self.tell(false);
        let chains = self.chain();
        match () {
            () if self.has_written() && !chains => self.over(),
            () if busy || chains => Turn::Busy,
            () => Turn::Idle, // the disk has to answer first
        }
    }

    /// What it has, and can't give to another one, is missed; what files were given as closed only if `all` is.
    fn miss(&mut self, all: bool) {
        let (is_last, jobs) = {
            let mut dealer = self.shared.dealer();
            let is_last = dealer.end(self.index);
            (is_last, std::iter::from_fn(|| dealer.next_of(self.index)).collect::<Vec<Job>>())
        };
        let jobs = jobs.into_iter().map(|job| (job.pinned, job.kept));
        let sources = self.composer.as_mut().map(Composer::give_up).unwrap_or_default();
        let of_ring: Vec<(Pinned, Amount)> = jobs.chain(sources).collect();
        let hands = self.hands.take_all(all).into_iter().map(|hand| (hand.pinned, hand.kept));
        let (composed, own): (Vec<_>, Vec<_>) = hands.partition(|_| self.composer.is_some());
        for (pinned, kept) in &composed {
            self.account.count_lost(all_of(pinned).less(*kept), pinned);
        }
        for (pinned, kept) in of_ring.iter().chain(&own) {
            self.account.count_lost(all_of(pinned).less(*kept), pinned);
            self.shared.dealer().done(self.index, pinned.id());
        }
        if is_last && all {
            self.count_rest();
        }
    }

    fn over(&mut self) -> Turn {
        self.miss(true); // another one may have failed just now, and have given it something
        self.look();
        self.tell(true);
        self.shared.set_over(self.index);
        Turn::Over
    }

    /// Hands over the report, now and then.
    fn tell(&mut self, at_once: bool) {
        if !at_once && self.reported_at.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported_at = Instant::now();
        self.note_deleted();
        let mut behind = Behind::default();
        self.hands.add_behind(&mut behind);
        self.composer.iter().for_each(|composer| composer.add_behind(&mut behind));
        for job in self.shared.dealer().waiting(self.index) {
            behind.add(&job.pinned, job.kept);
        }
        let report = &mut self.account.report;
        (report.behind, report.behind_since_ns) = (behind.amount, behind.since_ns);
        let inventory = &self.maker.inventory;
        (report.used, report.files) = (inventory.used(), inventory.files());
        let span = inventory.span_ns();
        (report.oldest_ns, report.newest_ns) = (span.map(|span| span.0), span.map(|span| span.1));
        report.budget = inventory.budget_bytes();
        self.account.tell(&self.shared, self.index);
    }
}

/// Which files in a volume aren't its own, and of which it can't tell.
fn strangers(inventory: &Inventory, volume: &Path) -> Vec<String> {
    let shown = volume.display();
    let (foreign, damaged) = (inventory.foreign(), inventory.damaged());
    let files = |count: usize, noun| counted(count as u64, noun);
    let foreign = (foreign.count > 0).then(|| {
        let (files, listed) = (files(foreign.count, "foreign file"), foreign.listed());
        format!("{files} in the store {shown}, left alone: {listed}")
    });
    let damaged = (damaged.count > 0).then(|| {
        let (files, listed) = (files(damaged.count, "damaged or renamed file"), damaged.listed());
        format!(
            "{files} in the store {shown}, counted against its bounds and never deleted: {listed}; for more: \
            wirescope verify {}",
            shell_word(volume)
        )
    });
    foreign.into_iter().chain(damaged).collect()
}

/// That a bound deletes what the run stores.
fn untimely(volume: &Path, deleted: &Deleted) -> String {
    let last_ns = deleted.totals.and_then(|totals| totals.span_ns).map(|(_, max_ns)| max_ns);
    let up_to = last_ns.map_or(String::new(), |max_ns| format!(", with packets up to {},", iso(max_ns)));
    let newer = "packets are older than those of earlier runs, and the oldest go first";
    let (rule, remedy) = match deleted.why {
        "--store-age" => ("packets are older than it allows", "omit --store-age"),
        "--store-budget" => (newer, "raise --store-budget"),
        _ => (newer, "lower --store-min-free"),
    };
    format!(
        "the store in {} deletes what this run stores: {}{up_to} went for {}, because its {rule}; to keep such \
        packets {remedy}, or store them into a folder of their own",
        volume.display(),
        deleted.name.display(),
        deleted.why
    )
}

/// How long segments are gathered where a volume may hold so many bytes.
fn gather_for(share_bytes: u64) -> Duration {
    Duration::from_millis((share_bytes / GATHER_BYTES_PER_MS).clamp(GATHER_MS[0], GATHER_MS[1]))
}

fn link_of(ring: &Ring, id: SegmentId) -> u16 {
    ring.lane_info(id.lane).link_type.0
}
