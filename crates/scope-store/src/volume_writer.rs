//! One volume's writer: takes segments from the dealer, gives them to the files of their link types, flushes
//! them, makes room, closes what dead runs left, and counts.
//!
//! ```text
//! turn   what the disk has finished ─► what became safe is counted
//!        new segments, as long as the disk has room for them under way
//!        sealed ones are closed in their slots, open ones flushed every so often
//!        once a second: bounds
//!        nothing to do: a step of recovery
//! ```
//! It is driven by a thread that calls [`VolumeWriter::turn`]. A disk that hangs holds up that thread alone.

use crate::chaining::Chaining;
use crate::chaining::Whole;
use crate::dealer::{Dealer, Job};
use crate::disk::Disk;
use crate::file::head;
use crate::file_writer::{FilePlan, FileWriter, Kept};
use crate::files::{Event, Files};
use crate::head::Head;
use crate::inventory::{Inventory, NoRoom};
use crate::io::Way;
use crate::name::FileName;
use crate::recover::{Outcome, Recovery};
use crate::report::{Amount, News, VolumeReport, VolumeState};
use crate::retain::Bounds;
use crate::volume::Volume;
use scope_packet::SegmentId;
use scope_ring::{Missed, Pinned, Ring};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Writes under way at most: more are begun when some have finished.
const UNDER_WAY_MAX: usize = 32;
/// How long a turn waits for the disk at most.
const DISK_WAIT: Duration = Duration::from_millis(5);
/// How often bounds are looked at, and the report is drawn up.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const REPORT_EVERY: Duration = Duration::from_millis(50);
/// A disk that failed is tried again after this, then after twice as long, and so on.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// At the end of a run a failing disk is tried again so often.
const LAST_TRIES: u32 = 3;
/// News that nobody has read: older ones are forgotten.
const NEWS_MAX: usize = 1024;

/// What all volumes of a run share.
pub struct Shared {
    ring: Arc<Ring>,
    dealer: Mutex<Dealer>,
    volumes: Vec<Mutex<Told>>,
    ends: AtomicBool,
}

/// What a volume tells the run, and is told by it.
#[derive(Default)]
struct Told {
    report: VolumeReport,
    news: VecDeque<News>,
    bounds: Option<Bounds>,
    over: bool,
}

impl Shared {
    /// For so many `volumes`.
    pub fn new(ring: &Arc<Ring>, dealer: Dealer, volumes: usize) -> Arc<Shared> {
        Arc::new(Shared {
            ring: ring.clone(),
            dealer: Mutex::new(dealer),
            volumes: (0..volumes).map(|_| Mutex::default()).collect(),
            ends: AtomicBool::new(false),
        })
    }

    /// Where the volumes stand; what is behind is made exact by [`crate::report::share_out_behind`].
    pub fn reports(&self) -> Vec<VolumeReport> {
        self.volumes.iter().map(|told| locked(told).report.clone()).collect()
    }

    /// What the volumes have to tell since the last call: by their places.
    pub fn take_news(&self) -> Vec<(usize, Vec<News>)> {
        let news = |(index, told): (usize, &Mutex<Told>)| (index, locked(told).news.drain(..).collect());
        self.volumes.iter().enumerate().map(news).filter(|(_, news): &(_, Vec<_>)| !news.is_empty()).collect()
    }

    /// Other bounds for a volume from now on.
    pub fn set_bounds(&self, volume: usize, bounds: Bounds) {
        if let Some(told) = self.volumes.get(volume) {
            locked(told).bounds = Some(bounds);
        }
    }

    /// Nothing more is published: the volumes write what there is, and end.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Release);
    }

    /// Whether all volumes have ended.
    pub fn is_over(&self) -> bool {
        self.volumes.iter().all(|told| locked(told).over)
    }

    /// What no volume could take at the end, by lane.
    pub fn rest(&self) -> Vec<(u32, Missed)> {
        locked(&self.dealer).rest(&self.ring)
    }
}

/// What is in there is whole after each statement; a panic of another thread doesn't change that.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// A segment in the volume's hands.
struct Hand {
    pinned: Pinned,
    /// What of it is safe, and counted.
    kept: Amount,
    /// It is sealed, and given to a file: all of it.
    closed: Option<Amount>,
    /// The file needs its bytes no more; the dealer has it back.
    released: bool,
}

/// One volume of a run.
pub struct VolumeWriter {
    shared: Arc<Shared>,
    index: usize,
    disk: Box<dyn Disk + Send>,
    files: BTreeMap<u16, Files>,
    hands: BTreeMap<SegmentId, Hand>,
    maker: Maker,
    flush: Duration,
    flushed_at: Instant,
    looked_at: Instant,
    reported_at: Instant,
    report: VolumeReport,
    news: VecDeque<News>,
    missed: Missing,
    failing: Option<Failing>,
    tries_at_end: u32,
    recovery: Option<Recovery>,
    recovery_disk: Box<dyn Disk + Send>,
    /// Growing names of files that the disk failed in this run: recovery closes them once it works again.
    failed: Vec<PathBuf>,
    chaining: Option<Chaining>,
}

/// What was missed since it was told last.
#[derive(Default)]
struct Missing {
    amount: Amount,
    span_ns: Option<(i64, i64)>,
}

/// The disk refuses.
struct Failing {
    pause: Duration,
    again_at: Instant,
}

/// Makes files.
struct Maker {
    volume: Volume,
    ring: Arc<Ring>,
    inventory: Inventory,
    file_bytes: u64,
    number: u32,
    no_room: Option<NoRoom>,
    /// When the newest file of each link type was begun.
    begun: BTreeMap<u16, Instant>,
}

impl Maker {
    /// Begins the file whose first segment is `first`.
    fn begin(&mut self, disk: &mut dyn Disk, first: &Pinned) -> io::Result<FileWriter> {
        let link_type = self.ring.lane_info(first.lane()).link_type;
        let committed = first.committed();
        let first_ns = first.foot(committed).map_or(0, |foot| foot.first_ns);
        if let Err(no_room) = self.inventory.make_room(disk, &self.volume, self.file_bytes) {
            let error = io::Error::new(io::ErrorKind::StorageFull, no_room.words.clone());
            self.no_room = Some(no_room);
            return Err(error);
        }
        self.number += 1;
        let name = FileName::growing(first_ns, &self.ring.run_id(), link_type, self.number);
        let head = Head { volume: self.volume.id().0, ..head(&self.ring, link_type, self.number) };
        let plan = FilePlan { name: name.closed().path(), head: &head, bytes_max: self.file_bytes };
        let writer = FileWriter::create(disk, plan)?;
        self.inventory.begun(name, writer.reserve_bytes());
        self.begun.insert(link_type.0, Instant::now());
        Ok(writer)
    }
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
        let chain_folder = volume.folder().again()?;
        let (mut inventory, growing) = Inventory::look(&mut *disk, plan.bounds)?;
        let now = Instant::now();
        let mut news = VecDeque::new();
        let foreign = inventory.foreign();
        if foreign.count > 0 {
            let names: Vec<_> = foreign.names.iter().map(|name| name.display().to_string()).collect();
            let more = if foreign.count > names.len() { " and others" } else { "" };
            news.push_back(News::Warning(format!(
                "{} foreign file(s) in the store {}, left alone: {}{more}",
                foreign.count,
                volume.folder().path().display(),
                names.join(", ")
            )));
        }
        let number = inventory.numbers_of(&shared.ring.run_id());
        // Bounds hold at the start, too: with what earlier runs left.
        let no_room = inventory.make_room(&mut *disk, &volume, 0).err();
        let report = VolumeReport {
            path: volume.folder().path().to_path_buf(),
            way: way.to_string(),
            ..VolumeReport::default()
        };
        let recovery = (!growing.is_empty()).then(|| Recovery::new(growing));
        let mut writer = VolumeWriter {
            shared: shared.clone(),
            index,
            disk,
            files: BTreeMap::new(),
            hands: BTreeMap::new(),
            maker: Maker {
                volume,
                ring: shared.ring.clone(),
                inventory,
                file_bytes: plan.file_bytes,
                number,
                no_room: None,
                begun: BTreeMap::new(),
            },
            flush: plan.flush,
            flushed_at: now,
            looked_at: now,
            reported_at: now,
            report,
            news,
            missed: Missing::default(),
            failing: None,
            tries_at_end: 0,
            recovery,
            recovery_disk,
            failed: Vec::new(),
            chaining: plan.chain.then(|| Chaining::new(chain_folder)),
        };
        if let Some(no_room) = no_room {
            writer.set_state(no_room.state, no_room.words);
        }
        writer.tell(true);
        Ok(writer)
    }

    /// Does what there is to do.
    pub fn turn(&mut self) -> Turn {
        let ends = self.shared.ends.load(Ordering::Acquire);
        let mut busy = self.finish();
        let now = Instant::now();
        if let Some(failing) = &self.failing {
            if now < failing.again_at {
                self.take_bounds();
                self.deal();
                self.tell(false);
                return if ends && self.tries_at_end >= LAST_TRIES { self.give_up() } else { Turn::Idle };
            }
            if ends {
                self.tries_at_end += 1;
            }
        }
        busy |= self.take_jobs();
        let tried = self.give(now, ends);
        if let Err(error) = tried {
            self.fail(&error);
        }
        if now.duration_since(self.looked_at) >= LOOK_EVERY {
            self.looked_at = now;
            self.look();
        }
        if ends && self.hands.is_empty() && self.has_no_work() {
            for files in self.files.values_mut() {
                files.end(&mut *self.disk);
            }
            self.take_events();
            let written = self.files.values().all(|files| files.writers().next().is_none());
            if written && !self.recover() && !self.chain() {
                self.count_rest();
                return self.over();
            }
            busy = true;
        } else if !busy && self.recover() {
            busy = true;
        }
        busy |= !ends && self.chain();
        self.tell(false);
        if busy { Turn::Busy } else { Turn::Idle }
    }

    /// Takes what the disk has finished.
    fn finish(&mut self) -> bool {
        let mut finished = Vec::new();
        let wait = if self.disk.pending() > 0 { DISK_WAIT } else { Duration::ZERO };
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

    /// Takes segments from the dealer, as long as the disk is not too far behind.
    fn take_jobs(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut any = false;
        while self.disk.pending() < UNDER_WAY_MAX {
            let job = {
                let mut dealer = locked(&shared.dealer);
                dealer.deal();
                dealer.next_of(self.index)
            };
            let Some(job) = job else { break };
            any = true;
            self.take(job);
            if let Err(error) = self.close_sealed() {
                self.fail(&error);
                break;
            }
        }
        any
    }

    fn deal(&mut self) {
        locked(&self.shared.dealer).deal();
    }

    fn take(&mut self, job: Job) {
        if job.missed.packets > 0 {
            self.count_missed(job.pinned.lane(), &job.missed);
        }
        let hand = Hand { pinned: job.pinned, kept: job.kept, closed: None, released: false };
        self.hands.insert(hand.pinned.id(), hand);
    }

    fn count_missed(&mut self, lane: u32, missed: &Missed) {
        let packets = missed.first_packet..missed.first_packet + missed.packets;
        let lost = self.maker.ring.lost(lane, &[packets], (i64::MIN, i64::MAX));
        let span = lost.into_iter().filter_map(|lost| lost.span_ns).reduce(wider);
        let amount = Amount::new(missed.packets, missed.bytes);
        self.report.missed = self.report.missed.plus(amount);
        self.missed.amount = self.missed.amount.plus(amount);
        for known in [&mut self.missed.span_ns, &mut self.report.missed_span_ns] {
            *known = match (*known, span) {
                (Some(a), Some(b)) => Some(wider(a, b)),
                (a, b) => a.or(b),
            };
        }
    }

    /// Gives sealed segments to their files.
    fn close_sealed(&mut self) -> io::Result<()> {
        for (id, hand) in &mut self.hands {
            if hand.closed.is_some() || !hand.pinned.committed().sealed {
                continue;
            }
            let Some(again) = hand.pinned.again() else { continue };
            let files = files_of(&mut self.files, &self.maker.ring, *id);
            let maker = &mut self.maker;
            let closed = files.close(&mut *self.disk, again, &mut |disk, first| maker.begin(disk, first));
            match closed {
                Ok(()) => {
                    let bytes = hand.pinned.bytes_after().unwrap_or(0) - hand.pinned.bytes_before();
                    hand.closed = Some(Amount::new(u64::from(hand.pinned.committed().packets), bytes));
                }
                Err((_, error)) => return Err(error),
            }
        }
        self.take_events();
        Ok(())
    }

    /// Closes what is sealed, and flushes what is open when it is time.
    fn give(&mut self, now: Instant, ends: bool) -> io::Result<()> {
        self.close_sealed()?;
        if now.duration_since(self.flushed_at) < self.flush && !ends {
            return Ok(());
        }
        if self.files.values().any(Files::is_flushing) {
            return Ok(());
        }
        self.flushed_at = now;
        let mut by_link: BTreeMap<u16, Vec<Pinned>> =
            self.files.keys().map(|link| (*link, Vec::new())).collect();
        for (id, hand) in &self.hands {
            if hand.closed.is_none()
                && let Some(again) = hand.pinned.again()
            {
                by_link.entry(link_of(&self.maker.ring, *id)).or_default().push(again);
            }
        }
        for (link, segments) in by_link {
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
                Event::Written(id) => self.release(id),
                Event::Kept(kept) => self.count_kept(&kept),
                Event::Whole { name, holds, bytes } => {
                    self.maker.inventory.closed(&mut *self.disk, &name, &holds, Some(bytes));
                    let run_id = self.maker.ring.run_id();
                    self.note_file(Whole { name, holds, bytes, cut_off: None, run_id });
                }
                Event::Removed { name } => self.maker.inventory.gone(&name),
                Event::Failed { name, error, unkept } => {
                    self.note(News::Warning(format!(
                        "{}: {error}; the file stays as {}.part, and recovery closes it",
                        self.report.path.display(),
                        name.display()
                    )));
                    self.fail(&error);
                    self.failed.push(crate::closing::growing(&name));
                    for (id, _) in unkept {
                        self.give_again(id);
                    }
                }
            }
        }
    }

    /// The file needs a segment's bytes no more: the ring may have it back.
    fn release(&mut self, id: SegmentId) {
        let Some(hand) = self.hands.get_mut(&id) else { return };
        if !hand.released {
            hand.released = true;
            locked(&self.shared.dealer).done(self.index, id);
        }
        self.let_go(id);
    }

    fn count_kept(&mut self, kept: &Kept) {
        let Some(hand) = self.hands.get_mut(&kept.id) else { return };
        let first = hand.pinned.first_packet();
        let packets = kept.packets.end.saturating_sub(first);
        if packets > hand.kept.packets {
            let bytes = match hand.closed {
                Some(all) if all.packets == packets => all.bytes,
                _ => hand.kept.bytes + bytes_of(&hand.pinned, hand.kept.packets as u32..packets as u32),
            };
            let now = Amount::new(packets, bytes);
            self.report.stored = self.report.stored.plus(now.less(hand.kept));
            hand.kept = now;
            self.works();
        }
        self.let_go(kept.id);
    }

    /// Forgets a segment that is written, and safe.
    fn let_go(&mut self, id: SegmentId) {
        let done =
            |hand: &Hand| hand.released && hand.closed.is_some_and(|all| hand.kept.packets >= all.packets);
        if self.hands.get(&id).is_some_and(done) {
            self.hands.remove(&id);
        }
    }

    /// What a failed file was given goes into another one, if the ring still has it.
    fn give_again(&mut self, id: SegmentId) {
        let Some(hand) = self.hands.remove(&id) else { return };
        // The pin of this side is still there: nothing of it was recycled.
        let job = Job { missed: Missed::default(), kept: hand.kept, pinned: hand.pinned };
        locked(&self.shared.dealer).put_back(self.index, job, hand.released);
    }

    /// The disk refused something: it is tried again later, and the others take over.
    fn fail(&mut self, error: &io::Error) {
        let (state, words) = match self.maker.no_room.take() {
            Some(no_room) => (no_room.state, no_room.words),
            None => (VolumeState::Failing, error.to_string()),
        };
        let pause = match &self.failing {
            Some(failing) if Instant::now() < failing.again_at => return,
            Some(failing) => (failing.pause * 2).min(PAUSE_MAX),
            None => PAUSE_MIN,
        };
        self.failing = Some(Failing { pause, again_at: Instant::now() + pause });
        self.set_state(state, words);
        locked(&self.shared.dealer).set_failing(self.index, true);
        let ids: Vec<SegmentId> = self.hands.keys().copied().collect();
        for id in ids {
            let waits = self.hands.get(&id).is_some_and(|hand| hand.closed.is_none());
            let open = self.files.values().any(|files| files.open_segments().contains(&id));
            if waits
                && !open
                && let Some(hand) = self.hands.remove(&id)
            {
                let job = Job { missed: Missed::default(), kept: hand.kept, pinned: hand.pinned };
                locked(&self.shared.dealer).put_back(self.index, job, hand.released);
            }
        }
    }

    /// A file is whole: it is told, with a chain once its hash is known.
    fn note_file(&mut self, whole: Whole) {
        match &mut self.chaining {
            Some(chaining) => chaining.add(whole),
            None => self.note(whole.news(None)),
        }
    }

    /// A step of the chain; whether there is more.
    fn chain(&mut self) -> bool {
        let Some(chaining) = &mut self.chaining else { return false };
        match chaining.step() {
            Some(Ok((whole, head))) => {
                self.report.chain = Some(head);
                self.note(whole.news(Some(head)));
            }
            Some(Err((whole, error))) => {
                let path = self.report.path.display();
                let warning = format!("{path}: {} isn't in the chain: {error}", whole.name.display());
                self.note(News::Warning(warning));
                self.note(whole.news(None));
            }
            None => {}
        }
        self.chaining.as_ref().is_some_and(Chaining::has_work)
    }

    fn set_state(&mut self, state: VolumeState, words: String) {
        let changed = self.report.state != state || self.report.error.as_deref() != Some(&words);
        (self.report.state, self.report.error) =
            (state, (state != VolumeState::Writing).then(|| words.clone()));
        if changed {
            self.note(News::State(state, words));
        }
    }

    /// It works again.
    fn works(&mut self) {
        if self.failing.take().is_some() || self.report.state != VolumeState::Writing {
            self.set_state(VolumeState::Writing, "writes again".to_string());
            locked(&self.shared.dealer).set_failing(self.index, false);
        }
    }

    fn take_bounds(&mut self) {
        let bounds = locked(&self.shared.volumes[self.index]).bounds.take();
        if let Some(bounds) = bounds {
            self.maker.inventory.bounds = bounds;
            self.failing = self.failing.take().map(|failing| Failing { again_at: Instant::now(), ..failing });
        }
    }

    /// Bounds, once a second.
    fn look(&mut self) {
        self.take_bounds();
        // What stopped for lack of room goes on as soon as there is room for a file.
        let lacks = matches!(self.report.state, VolumeState::Held | VolumeState::Full);
        let wanted = if lacks { self.maker.file_bytes } else { 0 };
        let room = self.maker.inventory.make_room(&mut *self.disk, &self.maker.volume, wanted);
        match room {
            Ok(()) if lacks => self.works(),
            Ok(()) => {}
            Err(no_room) if no_room.state == VolumeState::Failing => {}
            Err(no_room) => self.set_state(no_room.state, no_room.words),
        }
        self.end_old_files();
        self.note_deleted();
        if self.missed.amount.packets > 0 {
            let Missing { amount, span_ns } = std::mem::take(&mut self.missed);
            self.note(News::Missed(amount, span_ns));
        }
    }

    /// A growing file is never deleted: with a bound on age none grows for longer than a quarter of it.
    fn end_old_files(&mut self) {
        let Some(age_ns) = self.maker.inventory.bounds.age_ns else { return };
        let longest = Duration::from_nanos(age_ns.max(0) as u64 / 4);
        let now = Instant::now();
        self.maker.begun.retain(|link, began| {
            let old = now.duration_since(*began) >= longest;
            if old && let Some(files) = self.files.get_mut(link) {
                files.end(&mut *self.disk);
            }
            !old
        });
    }

    fn note_deleted(&mut self) {
        for deleted in self.maker.inventory.take_deleted() {
            self.report.deleted = self.report.deleted.plus(deleted.amount());
            self.note(News::Deleted(deleted));
        }
    }

    /// The work on files that the disk failed in this run, once it works again and has nothing of them any more.
    fn recovery_of_failed(&mut self) -> Option<Recovery> {
        if self.failed.is_empty() || self.failing.is_some() {
            return None;
        }
        let grows = |growing: &Path| {
            let grows = |writer: &FileWriter| crate::closing::growing(writer.name()) == growing;
            self.files.values().any(|files| files.writers().any(grows))
        };
        let (wait, ready): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.failed).into_iter().partition(|growing| grows(growing));
        self.failed = wait;
        let standing = self.disk.list().ok()?;
        let growing: Vec<_> =
            standing.into_iter().filter(|standing| ready.contains(&standing.name)).collect();
        (!growing.is_empty()).then(|| Recovery::new(growing))
    }

    /// A step of what dead runs left; whether there is more.
    fn recover(&mut self) -> bool {
        if self.recovery.is_none() {
            self.recovery = self.recovery_of_failed();
        }
        let Some(recovery) = &mut self.recovery else { return false };
        if let Some(done) = recovery.step(&mut *self.recovery_disk) {
            let growing = done.name.clone();
            let path = self.report.path.display();
            let name_when_whole = crate::closing::whole(&growing);
            let mut whole = None;
            match done.outcome {
                Outcome::Closed(name) => {
                    self.maker.inventory.closed(&mut *self.disk, &name, &done.holds, None);
                    let bytes = self.maker.inventory.bytes_of(&name);
                    whole = Some(Whole {
                        name,
                        holds: done.holds,
                        bytes,
                        cut_off: Some(done.cut.packets),
                        run_id: done.run_id,
                    });
                }
                Outcome::Removed => {
                    if let Some(whole) = name_when_whole {
                        self.maker.inventory.gone(&whole);
                    }
                }
                Outcome::Unreadable(error) => self.news.push_back(News::Warning(format!(
                    "{path}: {}: {error}; the file stays as it is",
                    growing.display()
                ))),
                Outcome::Failed(error) => self.news.push_back(News::Warning(format!(
                    "{path}: {}: {error}; the next run tries again to close it",
                    growing.display()
                ))),
            }
            if let Some(whole) = whole {
                self.note_file(whole);
            }
        }
        let over = self.recovery.as_ref().is_none_or(Recovery::is_over);
        if over {
            self.recovery = None;
        }
        !over
    }

    /// Whether the dealer has nothing for this volume.
    fn has_no_work(&self) -> bool {
        let mut dealer = locked(&self.shared.dealer);
        dealer.deal();
        dealer.queued(self.index) == 0
    }

    /// What nobody could take: it stands with the first volume.
    fn count_rest(&mut self) {
        if self.index == 0 {
            let rest = self.shared.rest();
            for (lane, missed) in rest {
                self.count_missed(lane, &missed);
            }
        }
    }

    /// The run ends, and the disk still refuses: what it has is missed.
    fn give_up(&mut self) -> Turn {
        let hands = std::mem::take(&mut self.hands);
        let jobs: Vec<Job> = {
            let mut dealer = locked(&self.shared.dealer);
            std::iter::from_fn(|| dealer.next_of(self.index)).collect()
        };
        let segments = hands
            .into_values()
            .map(|hand| (hand.pinned, hand.kept))
            .chain(jobs.into_iter().map(|job| (job.pinned, job.kept)));
        for (pinned, kept) in segments.collect::<Vec<_>>() {
            let bytes = pinned.bytes_after().unwrap_or(0).saturating_sub(pinned.bytes_before());
            let missed = Missed {
                first_packet: pinned.first_packet() + kept.packets,
                packets: u64::from(pinned.committed().packets) - kept.packets,
                bytes: bytes.saturating_sub(kept.bytes),
            };
            if missed.packets > 0 {
                self.count_missed(pinned.lane(), &missed);
            }
            locked(&self.shared.dealer).done(self.index, pinned.id());
        }
        self.count_rest();
        self.over()
    }

    fn over(&mut self) -> Turn {
        self.look();
        self.tell(true);
        locked(&self.shared.volumes[self.index]).over = true;
        Turn::Over
    }

    fn note(&mut self, news: News) {
        if self.news.len() == NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }

    /// Hands over the report, now and then.
    fn tell(&mut self, at_once: bool) {
        if !at_once && self.reported_at.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported_at = Instant::now();
        self.note_deleted();
        let (mut behind, mut since): (Amount, Option<i64>) = (Amount::default(), None);
        let mut add = |pinned: &Pinned, kept: Amount| {
            let published = u64::from(pinned.committed().packets);
            let bytes = pinned.bytes_after().map_or(0, |after| after - pinned.bytes_before());
            if published > kept.packets {
                behind = behind.plus(Amount::new(published, bytes).less(kept));
                since = pinned
                    .span()
                    .map(|(min_ns, ..)| since.map_or(min_ns, |known| known.min(min_ns)))
                    .or(since);
            }
        };
        for hand in self.hands.values() {
            add(&hand.pinned, hand.kept);
        }
        for job in locked(&self.shared.dealer).waiting(self.index) {
            add(&job.pinned, job.kept);
        }
        (self.report.behind, self.report.behind_since_ns) = (behind, since);
        let inventory = &self.maker.inventory;
        (self.report.used, self.report.files) = (inventory.used(), inventory.files());
        let span = inventory.span_ns();
        (self.report.oldest_ns, self.report.newest_ns) = (span.map(|span| span.0), span.map(|span| span.1));
        self.report.budget = inventory.budget_bytes();
        let mut told = locked(&self.shared.volumes[self.index]);
        told.report = self.report.clone();
        let keep = NEWS_MAX.saturating_sub(self.news.len());
        while told.news.len() > keep {
            told.news.pop_front();
        }
        told.news.extend(self.news.drain(..));
    }
}

fn link_of(ring: &Ring, id: SegmentId) -> u16 {
    ring.lane_info(id.lane).link_type.0
}

fn files_of<'a>(files: &'a mut BTreeMap<u16, Files>, ring: &Ring, id: SegmentId) -> &'a mut Files {
    files.entry(link_of(ring, id)).or_default()
}

/// Captured bytes of packets `range` of a segment.
fn bytes_of(pinned: &Pinned, range: std::ops::Range<u32>) -> u64 {
    pinned.indexed(range.start, range.end).map(|(_, block)| block.data().len() as u64).sum()
}

fn wider(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    (a.0.min(b.0), a.1.max(b.1))
}
