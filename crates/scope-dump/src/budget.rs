//! What the dumps of one folder may take: bytes in all, and free space that must remain; and, where asked for, the deleting of
//! the oldest dumps to make room.
//!
//! ```text
//!  a hit ──► full? one load, no system call; yes: no dump begins
//!  a dump ──► charge(bytes) before each write: beyond the bound it fails, as on a full disk
//!  the run's main thread ──► look(): measures again; says when it became full, when there is room again
//! ```
//! The bytes are those of all files with a dump's name in the folder, whichever run made them, and of what is being written.
//! It is full when less than [`ROOM_MIN`] is left. Packets that come too late for their place stand on disk twice for a moment,
//! while they are merged in at their dump's end; they are charged once.

mod files;

use files::Entry;
use rustix::fs::fstatvfs;
use scope_store::Folder;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// With less room than this no dump begins, bytes.
pub const ROOM_MIN: u64 = 1 << 20;
/// The oldest dump files that are remembered between two readings of the folder.
const OLDEST_MAX: usize = 10_000;
/// Dumps that one search for room deletes at most; the next look goes on.
const DELETED_MAX: usize = 100;
/// The folder isn't read again sooner than this.
const READ_PAUSE_MIN: Duration = Duration::from_millis(50);
/// Nor before this many times what the last reading took.
const READ_PAUSE_TIMES: u32 = 20;
/// It is read again at least so often, or [`READ_PAUSE_TIMES`] what that takes: others may write there, too.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Changes that wait to be told; beyond, the oldest are forgotten (their numbers aren't).
const CHANGES_MAX: usize = 1000;

/// Free space that must remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeMin {
    /// So many bytes.
    Bytes(u64),
    /// So many millionths of the file system.
    Ppm(u32),
}

/// What dumps may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all dumps of the folder.
    pub bytes_max: Option<u64>,
    /// Free space of its file system that must remain.
    pub free_min: Option<FreeMin>,
    /// The oldest dumps are deleted to make room.
    pub rotate: bool,
}

impl Limits {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.bytes_max.is_some() || self.free_min.is_some()
    }
}

/// Something that a run has to tell of its budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// No dump begins any more; why.
    Full(String),
    /// There is room again.
    Room,
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
pub struct Standing {
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
    /// Protected by the lock: the account, what was read of the folder, what is to be told.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of files that have their names.
    named: u64,
    /// Bytes of files that are being written.
    making: u64,
    /// Oldest first.
    oldest: VecDeque<Entry>,
    /// `oldest` is all there is.
    all: bool,
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
            budget.read_folder(&mut state)?;
            budget.settle(&mut state);
        }
        Ok(Arc::new(budget))
    }

    /// Whether no dump may begin.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// The same as a flag, for the packet path.
    pub fn full(&self) -> Arc<AtomicBool> {
        self.full.clone()
    }

    /// Measures again and makes room where that is asked for; what has changed since this was last asked.
    pub fn look(&self) -> Vec<Change> {
        let mut state = self.lock();
        if state.last_read.is_none_or(|last| last.elapsed() >= READ_EVERY) {
            self.read_if_due(&mut state);
        }
        self.settle(&mut state);
        state.changes.drain(..).collect()
    }

    /// Where it stands.
    pub fn standing(&self) -> Standing {
        let state = self.lock();
        let free = self.space().map_or(0, |(free, _)| free);
        Standing { used: state.named + state.making, free, full: self.is_full(), deleted: state.deleted }
    }

    /// A dump's files get their names from here on, until the result is dropped: none of them is deleted meanwhile.
    pub(crate) fn publish(self: &Arc<Self>, stem: &str) -> Publishing {
        self.lock().publishing.insert(stem.to_string());
        Publishing { budget: self.clone(), stem: stem.to_string() }
    }

    /// What dumps may take.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    fn charge(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.lock();
        if self.room(&state).0 < bytes {
            self.make_room(&mut state, bytes.max(ROOM_MIN));
        }
        let (room, why) = self.room(&state);
        if room < bytes {
            self.settle(&mut state);
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        state.making += bytes;
        self.settle(&mut state);
        Ok(())
    }

    /// Bytes that may still be written, and what sets the bound.
    fn room(&self, state: &State) -> (u64, String) {
        let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let of_bytes = self.limits.bytes_max.map(|max| {
            let used = state.named + state.making;
            (
                max.saturating_sub(used),
                format!("the dumps of this folder take {} of the {} of --dump-budget", size(used), size(max)),
            )
        });
        let of_free = self.limits.free_min.and_then(|min| {
            let (free, total) = self.space().ok()?; // where it can't be asked, writing says what is wrong
            let min = match min {
                FreeMin::Bytes(bytes) => bytes,
                FreeMin::Ppm(ppm) => (u128::from(total) * u128::from(ppm) / 1_000_000) as u64,
            };
            let why = format!("{} are free on the file system, --dump-min-free keeps {}", size(free), size(min));
            Some((free.saturating_sub(min), why))
        });
        of_bytes.into_iter().chain(of_free).min().unwrap_or((u64::MAX, String::new()))
    }

    /// Free bytes and all bytes of the file system.
    fn space(&self) -> io::Result<(u64, u64)> {
        let space = fstatvfs(&*self.folder)?;
        Ok((space.f_bavail.saturating_mul(space.f_frsize), space.f_blocks.saturating_mul(space.f_frsize)))
    }

    /// Brings `full` up to date; before it says that there is no room it has looked into the folder, as far as that is due.
    fn settle(&self, state: &mut State) {
        if self.room(state).0 < ROOM_MIN {
            self.make_room(state, ROOM_MIN);
        }
        let (room, why) = self.room(state);
        let full = room < ROOM_MIN;
        if full != self.full.swap(full, Ordering::Relaxed) {
            state.tell(if full { Change::Full(why) } else { Change::Room });
        }
    }

    /// Looks for `bytes` of room: reads the folder again if that is due, and deletes if that is asked for.
    fn make_room(&self, state: &mut State, bytes: u64) {
        let mut fresh = self.read_if_due(state);
        for _ in 0..DELETED_MAX {
            if !self.limits.rotate || self.room(state).0 >= bytes {
                return;
            }
            match state.oldest.pop_front() {
                Some(entry) => self.delete_dump(state, entry),
                None if !fresh && !state.all => fresh = self.read_if_due(state),
                None => return,
            }
        }
    }

    fn read_if_due(&self, state: &mut State) -> bool {
        if state.next_read.is_some_and(|next| Instant::now() < next) {
            return false;
        }
        self.read_folder(state).is_ok()
    }

    /// Adds up all files with a dump's name, and remembers the oldest.
    fn read_folder(&self, state: &mut State) -> io::Result<()> {
        let began = Instant::now();
        let (mut named, mut found) = (0, Vec::new());
        state.all = true;
        let result = files::list(&self.folder, |entry| {
            named += entry.bytes;
            if self.limits.rotate {
                found.push(entry);
            }
            if found.len() >= 2 * OLDEST_MAX {
                found.sort_unstable();
                found.truncate(OLDEST_MAX);
                state.all = false;
            }
        });
        state.last_read = Some(began);
        state.next_read = Some(Instant::now() + READ_PAUSE_MIN.max(began.elapsed() * READ_PAUSE_TIMES));
        result?;
        found.sort_unstable();
        (state.named, state.oldest) = (named, found.into());
        Ok(())
    }

    /// Deletes the dump that `first` is a file of, if it is one that Wirescope made and that has all its files.
    fn delete_dump(&self, state: &mut State, first: Entry) {
        state.oldest.push_front(first);
        let of_dump = files::of_one_dump(&self.folder, &state.oldest, &state.publishing);
        let Some(chosen) = of_dump else {
            state.oldest.pop_front();
            return;
        };
        state.oldest.retain(|entry| !chosen.contains(entry));
        let deleted: Vec<Entry> = chosen.into_iter().filter(|entry| files::delete(&self.folder, entry)).collect();
        if deleted.is_empty() {
            return;
        }
        let bytes = deleted.iter().map(|entry| entry.bytes).sum();
        state.named = state.named.saturating_sub(bytes);
        state.deleted += 1;
        state.tell(Change::Deleted { names: deleted.into_iter().map(|entry| entry.name).collect(), bytes });
    }
}

impl State {
    fn tell(&mut self, change: Change) {
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
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
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Gives a file its name by `act`, which returns it: from then on it counts by the `bytes` that it has.
    pub(crate) fn name(&mut self, bytes: u64, act: impl FnOnce() -> io::Result<PathBuf>) -> io::Result<PathBuf> {
        let Some(budget) = &self.budget else { return act() };
        let mut state = budget.lock();
        let name = act()?;
        state.making -= std::mem::take(&mut self.bytes);
        state.named += bytes;
        if budget.limits.rotate && state.all {
            state.oldest.push_back(Entry::new(&name.to_string_lossy(), bytes));
        }
        budget.settle(&mut state);
        Ok(name)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes > 0) {
            let mut state = budget.lock();
            state.making -= self.bytes;
            budget.settle(&mut state);
        }
    }
}

#[cfg(test)]
mod tests;
