//! The space that the dumps of one folder may use: bytes in all, and free space that must remain; with
//! `rotate` the oldest dumps are deleted to make room.
//!
//! ```text
//!  a hit ──► full? one load, no system call; yes: no dump begins
//!  a dump ──► charge(bytes) before each write: beyond the bound it fails, as on a full disk; only here dumps are deleted
//!  the run's main thread ──► look(): measures again; says when it became full, when there is room again
//! ```
//! With `rotate`, and no room for what an open dump is about to write, the oldest dumps go whose deleting
//! makes room for it:
//! ```text
//!  read the folder again, if that is due
//!  go through Wirescope's finished dumps, oldest first, and note those that help, until there would be room
//!  there wouldn't, even without all of them?  delete nothing: it is full
//!  delete those noted. Did it give less than half of what they take?  it is full for a while
//! ```
//! The bytes are those of the blocks that all dumps of the folder have on its disk, whichever run made them,
//! and of what is being written. A dump is what Wirescope made, by its name and its mark: a foreign file
//! takes no room, and is never deleted. Runs that keep a budget for one folder keep it together, by a table
//! in that folder (`table.rs`, `others.rs`): what one is making counts for all, the smallest budget holds,
//! and what one deletes is room for the others. No run deletes for the smaller budget of one that doesn't
//! delete itself. It is full when less than [`ROOM_MIN`] is left, and couldn't be made either; beside other
//! runs and with `rotate`, when a second reading of the folder says so, too. Packets that come too late for
//! their place stand on disk twice for a moment, while they are merged in at their dump's end; they are
//! charged once.

mod files;
mod others;
mod room;
mod table;

pub use table::TABLE_FILE;

use files::{Deleted, Entry, Found, Known, OldDump};
use others::{Claimed, Others};
use room::{Gain, Room, size};
use rustix::fs::fstatvfs;
use scope_folder::Folder;
use scope_spelling::values::SizeOrShare;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use table::Line;

/// With less room than this no dump begins, bytes.
pub const ROOM_MIN: u64 = 1 << 20;
/// The oldest dump files that are remembered between two readings of the folder.
const OLDEST_MAX: usize = 10_000;
/// Rounds of choosing and deleting for one write: files that can't be deleted leave room to be made by
/// others, and other runs may be faster.
const ROUNDS_MAX: usize = 3;
/// Nothing more is deleted for so long after deleting has given no room.
const NO_GAIN_PAUSE: Duration = Duration::from_secs(10);
/// The folder isn't read again sooner than this.
const READ_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Nor before this many times what the last reading took.
const READ_PAUSE_TIMES: u32 = 20;
/// It is read again at least so often, or [`READ_PAUSE_TIMES`] what that takes: others may write there, too.
const READ_EVERY: Duration = Duration::from_secs(10);
/// With `rotate`, a dump without room waits so long for those that other runs are writing, and looks so often.
const FINISH_WAIT: Duration = Duration::from_secs(2);
const FINISH_LOOK: Duration = Duration::from_millis(20);
/// With `rotate` and other runs: it is full when the folder is read so much later and there is still no room.
const CONFIRM_AFTER: Duration = Duration::from_millis(100);
/// Changes that wait to be reported; beyond, the oldest are forgotten (their numbers aren't).
const CHANGES_MAX: usize = 1000;

/// Bounds of the space of dumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all dumps of the folder.
    pub bytes_max: Option<u64>,
    /// Free space of its file system that must remain.
    pub free_min: Option<SizeOrShare>,
    /// The oldest dumps are deleted to make room.
    pub rotate: bool,
}

impl Limits {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.bytes_max.is_some() || self.free_min.is_some()
    }
}

/// A change of its budget that a run reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// No dump begins any more; why.
    Full(String),
    /// There is room again.
    Room,
    /// The budget isn't kept together with other runs of this folder; why.
    Alone(String),
    /// A dump was deleted to make room: its files, and their bytes.
    Deleted {
        /// Names in the folder.
        names: Vec<String>,
        /// Bytes in all.
        bytes: u64,
    },
}

/// Where a budget stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that dumps take by now.
    pub used: u64,
    /// Free bytes of the file system.
    pub free: u64,
    /// No dump begins.
    pub full: bool,
    /// Dumps deleted so far.
    pub deleted: u64,
}

/// One folder's budget, shared by all dumps of a run.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    folder: Arc<Folder>,
    full: Arc<AtomicBool>,
    /// Protected by the lock: the account, what was read of the folder, changes to report.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of files that have their names.
    named: u64,
    /// Which files bear a mark.
    known: Known,
    /// Bytes of files that are being written.
    making: u64,
    /// Files that nobody has looked into yet, oldest first.
    oldest: VecDeque<Entry>,
    /// Dumps that may be deleted, oldest first: those of the files before `oldest`.
    dumps: VecDeque<OldDump>,
    /// The two are all there is.
    all: bool,
    /// When deleting last gave no room.
    no_gain: Option<Instant>,
    /// How long a dump without room waits for other runs' dumps to be finished.
    patience: Duration,
    /// Since when there has been no room; see [`Budget::is_confirmed`].
    short_since: Option<Instant>,
    /// The runs that keep the budget together with this one.
    others: Others,
    /// A change [`Change::Alone`] was reported.
    reported_alone: bool,
    next_read: Option<Instant>,
    last_read: Option<Instant>,
    /// Dumps that are getting their names.
    publishing: BTreeSet<String>,
    changes: VecDeque<Change>,
    deleted: u64,
}

impl Budget {
    /// Reads the folder.
    ///
    /// # Errors
    /// What the system says of the folder.
    pub fn open(limits: Limits, folder: &Arc<Folder>) -> io::Result<Arc<Budget>> {
        let budget = Budget { limits, folder: folder.clone(), full: Arc::default(), state: Mutex::default() };
        {
            let mut state = budget.lock();
            state.patience = if limits.rotate { FINISH_WAIT } else { Duration::ZERO };
            budget.read_folder(&mut state)?;
            budget.settle(&mut state);
        }
        Ok(Arc::new(budget))
    }

    /// Keeps the budget together with the other runs of the folder from here on. Where the file system has no
    /// locks, or there is no room for the table, it is kept alone, and that is reported.
    ///
    /// # Errors
    /// Something that is no table of this user's has its name, or too many runs keep the budget already.
    pub fn join(&self) -> io::Result<()> {
        let Some(bytes_max) = self.limits.bytes_max else { return Ok(()) };
        let mut state = self.lock();
        state.others.join(&self.folder, Line { claim: 0, bytes_max, rotate: self.limits.rotate })?;
        self.read_folder(&mut state)?;
        self.settle(&mut state);
        Ok(())
    }

    /// Whether no dump may begin.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The same as a flag, for the packet path.
    pub fn full(&self) -> Arc<AtomicBool> {
        self.full.clone()
    }

    /// Measures again; the changes since the last call.
    pub fn look(&self) -> Vec<Change> {
        let mut state = self.lock();
        let making = state.making;
        if state.others.rejoin(&self.folder, making) {
            state.next_read = None;
            self.read_if_due(&mut state);
        }
        state.others.refresh_if_due();
        state.others.report_at_once(making); // the run's main thread looks
        state.report_alone();
        if state.last_read.is_none_or(|last| last.elapsed() >= READ_EVERY) {
            self.read_if_due(&mut state);
        }
        self.settle(&mut state);
        state.changes.drain(..).collect()
    }

    /// Where it stands.
    pub fn usage(&self) -> Usage {
        let state = self.lock();
        let free = self.space().map_or(0, |(free, _)| free);
        Usage { used: state.used(), free, full: self.is_full(), deleted: state.deleted }
    }

    /// A dump's files get their names from here on, until the result is dropped: none of them is deleted
    /// meanwhile.
    pub(crate) fn publish(self: &Arc<Self>, stem: &str) -> Publishing {
        self.lock().publishing.insert(stem.to_string());
        Publishing { budget: self.clone(), stem: stem.to_string() }
    }

    /// Whether what bounds the dumps is the smaller budget of another run of the folder.
    pub fn is_bounded_by_another(&self) -> bool {
        self.room(&self.lock()).is_of_another_run()
    }

    /// What dumps may take.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// With `rotate`, waits a moment for dumps that other runs are finishing: then they can go.
    fn charge(&self, bytes: u64) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let (refused, patience) = {
                let mut state = self.lock();
                let refused = self.charge_now(&mut state, bytes);
                (refused, if state.others.are_writing() { state.patience } else { Duration::ZERO })
            };
            let Err(error) = refused else { return Ok(()) };
            if began.elapsed() >= patience {
                return Err(error);
            }
            std::thread::sleep(FINISH_LOOK);
        }
    }

    fn charge_now(&self, state: &mut State, bytes: u64) -> io::Result<()> {
        let mut claimed = self.claim(state, bytes);
        // What is made room of another run may have taken: then there is more to be made.
        let rounds = if self.limits.rotate { ROUNDS_MAX } else { 1 };
        for _ in 0..rounds {
            if !matches!(claimed, Claimed::NoRoom) {
                break;
            }
            state.others.refresh(true);
            self.read_if_due(state);
            if self.limits.rotate {
                self.make_room(state, bytes.max(ROOM_MIN));
            }
            claimed = self.claim(state, bytes);
        }
        let refused = match claimed {
            Claimed::Yes => None,
            Claimed::NoRoom => Some(self.room(state).why()),
            Claimed::Busy => Some(format!(
                "another run holds the lock of {TABLE_FILE}; was it stopped by a \
                signal?"
            )),
        };
        self.settle(state);
        refused.map_or(Ok(()), |why| Err(io::Error::new(io::ErrorKind::StorageFull, why)))
    }

    /// Charges `bytes`, if there is room for them.
    fn claim(&self, state: &mut State, bytes: u64) -> Claimed {
        let (named, making) = (state.named, state.making);
        let has = |others: &Others, bytes| self.room_beside(others, named, making, false).has(bytes);
        let claimed = state.others.claim(making, bytes, has);
        if matches!(claimed, Claimed::Yes) {
            state.making = making.saturating_add(bytes);
        }
        claimed
    }

    fn room(&self, state: &State) -> Room {
        self.room_beside(&state.others, state.named, state.making, false)
    }

    /// Beside the smallest budget of the other runs; of those that rotate, where `rotating`.
    fn room_beside(&self, others: &Others, named: u64, making: u64, rotating: bool) -> Room {
        let used = named.saturating_add(making).saturating_add(others.used());
        let space = self.limits.free_min.and_then(|_| self.space().ok());
        Room::new(&self.limits, used, space).beside(others.bytes_max(rotating))
    }

    /// Free bytes and all bytes of the file system.
    fn space(&self) -> io::Result<(u64, u64)> {
        let space = fstatvfs(&*self.folder)?;
        Ok((space.f_bavail.saturating_mul(space.f_frsize), space.f_blocks.saturating_mul(space.f_frsize)))
    }

    /// Brings `full` up to date; before it says that there is no room it has looked into the folder, as far
    /// as that is due.
    fn settle(&self, state: &mut State) {
        let mut full = self.has_no_room(state);
        let began = Instant::now();
        if full && self.read_if_due(state) {
            full = self.has_no_room(state);
            // Looking into every file may take far longer than reading the folder.
            state.next_read = state.next_read.max(Some(Instant::now() + began.elapsed() * READ_PAUSE_TIMES));
        }
        match full {
            true => full = self.is_confirmed(state),
            false => state.short_since = None,
        }
        if full != self.full.swap(full, Ordering::Relaxed) {
            let change = if full { Change::Full(self.why_full(state)) } else { Change::Room };
            state.report(change);
        }
    }

    /// Whether a dump that begins would find no room, nor could make it.
    fn has_no_room(&self, state: &mut State) -> bool {
        !self.room(state).has(ROOM_MIN) && (!self.limits.rotate || self.choose(state, ROOM_MIN).is_none())
    }

    /// Whether that is so for longer than a moment, in which another run's dump gets its name: then it can be
    /// deleted, and until the folder is read again it may count twice.
    fn is_confirmed(&self, state: &mut State) -> bool {
        if !self.limits.rotate || !state.others.any() {
            return true;
        }
        let since = *state.short_since.get_or_insert_with(Instant::now);
        state.last_read.is_some_and(|read| read >= since + CONFIRM_AFTER)
    }

    fn why_full(&self, state: &State) -> String {
        let room = self.room(state);
        // Something may be left under that bound: not enough for a dump that begins.
        let why = format!("{}; a new dump needs {} more", room.why(), size(ROOM_MIN));
        if !self.limits.rotate {
            return why;
        }
        if state.no_gain() {
            return format!(
                "{why}, and --dump-rotate waits: deleting dumps freed no space; are they still open, or \
                 linked elsewhere?"
            );
        }
        let dumps = state.dumps.len();
        let Gain { bytes, .. } = state.dumps.iter().fold(Gain::default(), |sum, dump| sum.and(dump.gain()));
        match dumps {
            0 => format!("{why}, and there is no dump that --dump-rotate may delete"),
            _ => format!(
                "{why}, and --dump-rotate deletes none of the {dumps} dumps that it may ({}): that would \
                 not free enough space",
                size(bytes)
            ),
        }
    }

    /// Deletes what makes room for `bytes`; nothing, where that can't be made.
    fn make_room(&self, state: &mut State, bytes: u64) {
        for _ in 0..ROUNDS_MAX {
            let before = self.room(state);
            let Some(chosen) = self.choose(state, bytes).filter(|chosen| !chosen.is_empty()) else { return };
            // From behind, so that the places in front stay.
            let chosen: Vec<OldDump> =
                chosen.into_iter().rev().filter_map(|at| state.dumps.remove(at)).collect();
            // What has changed since it was looked at isn't deleted: the next round takes others.
            let promised =
                chosen.into_iter().rev().fold(Gain::default(), |sum, dump| sum.and(self.delete(state, dump)));
            if !self.room(state).has_gained(&before, promised) {
                state.no_gain = Some(Instant::now());
            }
            // Behind that: it is a look at what the others have claimed meanwhile, too.
            let making = state.making;
            state.others.report(0, u64::from(promised != Gain::default()), making);
        }
    }

    /// Places, in order, of the oldest dumps without which there is room for `bytes`; `None` where nothing
    /// helps. They are chosen for the budgets of runs that rotate; where a smaller one leaves no room after
    /// that, none is.
    fn choose(&self, state: &mut State, bytes: u64) -> Option<Vec<usize>> {
        let mut room = self.room_beside(&state.others, state.named, state.making, true);
        let mut chosen = Vec::new();
        let mut given = Gain::default();
        for at in 0.. {
            if room.has(bytes) {
                break;
            }
            if state.no_gain() || (at == state.dumps.len() && !state.look_into_next(&self.folder)) {
                return None;
            }
            let gain = state.dumps[at].gain();
            if room.is_helped(gain, bytes) {
                room = room.after(gain);
                given = given.and(gain);
                chosen.push(at);
            }
        }
        self.room(state).after(given).has(bytes).then_some(chosen)
    }

    /// What that should give. A file that is gone already gives what it took, too, and no more is to be said
    /// of it.
    fn delete(&self, state: &mut State, dump: OldDump) -> Gain {
        let mut deleted = Vec::new();
        for file in dump.files {
            let result = files::delete(&self.folder, &file);
            if result != Deleted::No {
                state.named = state.named.saturating_sub(file.bytes);
            }
            if result == Deleted::Yes {
                deleted.push(file);
            }
        }
        let deleted = OldDump { files: deleted };
        let gain = deleted.gain();
        if !deleted.files.is_empty() {
            state.deleted += 1;
            let names = deleted.files.into_iter().map(|file| file.name).collect();
            state.report(Change::Deleted { names, bytes: gain.bytes });
        }
        gain
    }

    fn read_if_due(&self, state: &mut State) -> bool {
        // What another run has deleted is room at once.
        if state.next_read.is_some_and(|next| Instant::now() < next) && !state.others.have_deleted() {
            return false;
        }
        self.read_folder(state).is_ok()
    }

    /// Adds up all files with a dump's name, and remembers the oldest.
    fn read_folder(&self, state: &mut State) -> io::Result<()> {
        let began = Instant::now();
        state.others.begin_reading();
        let (mut named, mut found) = (0u64, Vec::new());
        let mut known = std::mem::take(&mut state.known);
        state.all = true;
        let result = files::list(&self.folder, &mut known, |entry| {
            named = named.saturating_add(entry.bytes);
            if self.limits.rotate {
                found.push(entry);
            }
            if found.len() >= 2 * OLDEST_MAX {
                found.sort_unstable();
                found.truncate(OLDEST_MAX);
                state.all = false;
            }
        });
        state.known = known;
        state.last_read = Some(began);
        state.next_read = Some(Instant::now() + READ_PAUSE_MIN.max(began.elapsed() * READ_PAUSE_TIMES));
        result?;
        found.sort_unstable();
        (state.named, state.oldest) = (named, found.into());
        state.dumps.clear();
        Ok(())
    }
}

impl State {
    /// Bytes that dumps take, those of other runs included.
    fn used(&self) -> u64 {
        self.named.saturating_add(self.making).saturating_add(self.others.used())
    }

    fn report_alone(&mut self) {
        let why = self.others.apart().map(String::from);
        let is_new = why.is_some() && !self.reported_alone;
        self.reported_alone = why.is_some();
        if let Some(why) = why.filter(|_| is_new) {
            self.report(Change::Alone(why));
        }
    }

    fn report(&mut self, change: Change) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// Whether deleting gave no room a short while ago.
    fn no_gain(&self) -> bool {
        self.no_gain.is_some_and(|since| since.elapsed() < NO_GAIN_PAUSE)
    }

    /// Looks into files, oldest first, until one is of a dump that may be deleted; whether there was one.
    fn look_into_next(&mut self, folder: &Folder) -> bool {
        let mut at = 0;
        while let Some(first) = self.oldest.get(at) {
            match files::dump_of(folder, first, &self.oldest, &self.publishing) {
                Found::Dump(dump) => {
                    self.oldest.retain(|entry| !dump.files.contains(entry));
                    self.dumps.push_back(dump);
                    return true;
                }
                Found::Publishing => at += 1,
                Found::Foreign => drop(self.oldest.remove(at)),
            }
        }
        false
    }
}

/// See [`Budget::publish`].
pub(crate) struct Publishing {
    budget: Arc<Budget>,
    stem: String,
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.budget.lock().publishing.remove(&self.stem);
    }
}

/// What one file that is being written has been charged; given back when it is dropped, unless it got a name.
#[derive(Debug)]
pub(crate) struct Charged {
    budget: Option<Arc<Budget>>,
    bytes: u64,
}

impl Charged {
    /// Nothing yet. Without a budget everything may be charged.
    pub(crate) fn to(budget: &Option<Arc<Budget>>) -> Charged {
        Charged { budget: budget.clone(), bytes: 0 }
    }

    /// Charges bytes that are about to be written.
    ///
    /// # Errors
    /// `StorageFull` where there is no room for them.
    pub(crate) fn charge(&mut self, bytes: u64) -> io::Result<()> {
        if let Some(budget) = &self.budget {
            budget.charge(bytes)?;
            self.bytes = self.bytes.saturating_add(bytes);
        }
        Ok(())
    }

    /// Gives a file its name by `act`, which returns it: from then on it counts by the blocks that it has,
    /// which `bytes` stand in for where these can't be told.
    pub(crate) fn name(
        &mut self,
        bytes: u64,
        act: impl FnOnce() -> io::Result<PathBuf>,
    ) -> io::Result<PathBuf> {
        let Some(budget) = &self.budget else { return act() };
        let mut state = budget.lock();
        let name = act()?;
        state.making = state.making.saturating_sub(std::mem::take(&mut self.bytes));
        let entry = name.to_str().and_then(|name| files::look_at(&budget.folder, name));
        let bytes = entry.as_ref().map_or(bytes, |entry| entry.bytes);
        state.named = state.named.saturating_add(bytes);
        let making = state.making;
        state.others.report(bytes, 0, making);
        if budget.limits.rotate && state.all {
            state.oldest.extend(entry);
        }
        budget.settle(&mut state);
        Ok(name)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes > 0) {
            let mut state = budget.lock();
            state.making = state.making.saturating_sub(self.bytes);
            let making = state.making;
            state.others.report(0, 0, making);
            budget.settle(&mut state);
        }
    }
}

#[cfg(test)]
mod tests;
