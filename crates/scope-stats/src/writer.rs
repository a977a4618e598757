//! Who writes statistics: rows into the file that they belong to, a file for each period in a folder, and the
//! oldest ones deleted.
//!
//! ```text
//! open     nothing wrong with place and options; the folder is locked, or the one file opened
//! write    rows in parts, oldest first: each into its file by one transaction, and out of the caller's hands
//!          a failure leaves what isn't written with the caller, who may call again
//! close    files that are open get this run's end
//! ```
//! Two files of a folder are open at most: rows come late around the end of a period. An older one that isn't
//! written for a minute is closed. From [`Writer::open`] on no file of the place may be opened in this
//! process but by SQLite: see [`crate::head`].

use crate::database::{Database, Refused, RunFacts};
use crate::failed::Failed;
use crate::options::{Options, check, folder_of};
use crate::parts::{Cut, Part, sort};
use crate::place::{BESIDE, Every, Period, Place, beside, damaged_name, files};
use crate::retain::{Bounds, Kept};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use scope_fault::Fault;
use scope_flow::rows::{LossRow, Settled};
use scope_folder::Folder;
use scope_machine::disk::disk;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::slice;

/// So many files are open at most.
const OPEN_MAX: usize = 2;
const SECOND_NS: i64 = 1_000_000_000;
/// An older file that isn't written for so long is closed.
const IDLE_NS: i64 = 60 * SECOND_NS;
/// Files are looked at for deletion so often at most; and so long after one was deleted: its space comes back
/// when its last reader has closed it.
const LOOK_NS: i64 = SECOND_NS;
const LOOK_AFTER_DELETION_NS: i64 = 10 * SECOND_NS;

/// What a writer has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rows that are written.
    pub rows: u64,
    /// Transactions.
    pub transactions: u64,
    /// Begin of the latest interval that is written.
    pub last_interval_ns: Option<i64>,
    /// Files deleted to stay within the bounds.
    pub files_deleted: u64,
    /// Files that should have been, and couldn't be.
    pub files_undeletable: u64,
    /// Damaged files moved aside.
    pub moved_aside: u64,
    /// What all files take, bytes.
    pub bytes: u64,
    /// Of these, the logs of files that are open.
    pub wal_bytes: u64,
}

/// A file that is open.
#[derive(Debug)]
struct Open {
    /// `None`: the only one.
    period: Option<Period>,
    name: OsString,
    database: Database,
    written_ns: i64,
}

/// Where it all goes.
#[derive(Debug)]
enum Home {
    /// Into this file.
    File(OsString),
    /// Into files of such periods; this opening of the folder has its lock.
    Folder { every: Every, _lock: File },
}

/// Writes statistics.
#[derive(Debug)]
pub struct Writer {
    options: Options,
    facts: RunFacts,
    home: Home,
    folder: Folder,
    open: Vec<Open>,
    /// The file that was found damaged.
    damaged: Option<OsString>,
    /// The run's counters, JSON.
    noted: String,
    counters: Counters,
    /// When files are looked at again.
    look_ns: i64,
}

impl Writer {
    /// Opens the place, before the process gives up its rights. One file is opened, too, with its log: all
    /// three are there from then on. Files of a folder are made when rows come.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn open(options: Options, facts: RunFacts) -> Result<Writer, Vec<Fault>> {
        let faults = check(&options);
        if !faults.is_empty() {
            return Err(faults);
        }
        let place = Place::of(&options.db);
        let path = match &place {
            Place::File(path) => folder_of(path),
            Place::Folder(path) => path.clone(),
        };
        let of_system = |error: io::Error| {
            let fault = Fault::of("db").with_value(options.db.to_string_lossy());
            vec![fault.error(&error).cause(format!("{}: {error}", path.display()))]
        };
        // SQLite follows no links behind this.
        let folder = fs::canonicalize(&path).and_then(|path| Folder::open(&path)).map_err(of_system)?;
        let home = match &place {
            Place::File(path) => Home::File(path.file_name().unwrap_or_default().to_os_string()),
            Place::Folder(_) => {
                let lock = File::open(folder.path()).map_err(of_system)?;
                match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                    Err(Errno::WOULDBLOCK) => return Err(vec![Refused::Written.fault(&options.db)]),
                    other => other.map_err(|error| of_system(error.into()))?,
                }
                Home::Folder { every: options.every.unwrap_or_default(), _lock: lock }
            }
        };
        let mut writer = Writer {
            options,
            facts,
            home,
            folder,
            open: Vec::with_capacity(OPEN_MAX),
            damaged: None,
            noted: "{}".to_string(),
            counters: Counters::default(),
            look_ns: i64::MIN,
        };
        if let Home::File(name) = &writer.home {
            let name = name.clone();
            let begin_ns = writer.facts.begin_ns;
            let opened = writer.open_file(None, name, begin_ns);
            opened.map_err(|refused| vec![refused.fault(&writer.options.db)])?;
            let noted = writer.write(&mut Settled::default(), begin_ns);
            noted.map_err(|failed| vec![Refused::Failed(failed).fault(&writer.options.db)])?;
        }
        Ok(writer)
    }

    /// What has to stay within reach: the file and both beside it, or the folder.
    pub fn paths(&self) -> Vec<PathBuf> {
        match &self.home {
            Home::File(name) => {
                let path = self.folder.path().join(name);
                let beside = BESIDE.map(|suffix| PathBuf::from(beside(&path, suffix)));
                [path].into_iter().chain(beside).collect()
            }
            Home::Folder { .. } => vec![self.folder.path().to_path_buf()],
        }
    }

    /// The folder that everything is in.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Whether files are made, renamed and deleted in [`Writer::folder`].
    pub fn is_folder(&self) -> bool {
        matches!(self.home, Home::Folder { .. })
    }

    /// The counters of the run, for its line in `runs`: they are written with the next rows.
    pub fn note_run(&mut self, counters: &[(&str, u64)]) {
        let pairs = counters.iter().map(|&(name, number)| (name.to_string(), number.into()));
        self.noted = serde_json::Value::Object(pairs.collect()).to_string();
    }

    /// Writes the rows, and takes away what is written.
    ///
    /// # Errors
    /// Then what is left isn't written; it may be tried again, also folded or with further rows.
    pub fn write(&mut self, rows: &mut Settled, now_ns: i64) -> Result<(), Failed> {
        if !self.options.flow_rows {
            rows.flows.clear();
        }
        sort(rows);
        let written = self.write_parts(rows, now_ns);
        self.close_idle(now_ns);
        // Also after a failure: what is deleted may be the room that it lacked.
        self.retain(now_ns, None);
        written
    }

    fn write_parts(&mut self, rows: &mut Settled, now_ns: i64) -> Result<(), Failed> {
        while let Some(cut) = Cut::next(rows, self.every()) {
            self.file_before(cut.losses(rows), now_ns)?;
            let place = self.file_of(cut.period.as_ref(), now_ns)?;
            self.write_part(place, &cut.part(rows), now_ns)?;
            cut.take(rows);
        }
        if matches!(self.home, Home::File(_)) {
            // Nothing but the run's line, if that has changed.
            let place = self.file_of(None, now_ns)?;
            self.write_part(place, &Part::default(), now_ns)?;
        }
        Ok(())
    }

    /// Losses whose span begins in earlier files: these have them, too, and count them in their intervals. None is made
    /// for that.
    fn file_before(&mut self, losses: &mut [LossRow], now_ns: i64) -> Result<(), Failed> {
        let Some(every) = self.every() else { return Ok(()) };
        for loss in losses {
            let last = every.period(loss.to_ns);
            if last.contains(loss.from_ns.max(loss.filed_until_ns)) {
                continue;
            }
            let failed = |cause| Failed::Io { path: self.folder.path().to_path_buf(), cause };
            let files = files(&self.folder).map_err(failed)?;
            for period in files.into_iter().filter(|file| !file.is_damaged).map(|file| file.period) {
                let is_before = period.to_ns <= last.from_ns && every.period(period.from_ns) == period;
                if is_before && period.to_ns > loss.from_ns.max(loss.filed_until_ns) {
                    let place = self.file_of(Some(&period), now_ns)?;
                    self.write_part(
                        place,
                        &Part { losses: slice::from_ref(loss), ..Part::default() },
                        now_ns,
                    )?;
                    loss.filed_until_ns = period.to_ns;
                }
            }
            loss.filed_until_ns = last.from_ns;
        }
        Ok(())
    }

    /// What was done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Moves the file aside that was found damaged, and what belongs to it: the next rows begin a new one.
    /// Its new name; `None`: there is none, or it is the only file, which stays where it is.
    ///
    /// # Errors
    /// It can't be moved.
    pub fn move_aside(&mut self) -> Result<Option<OsString>, Failed> {
        let Some(name) = self.damaged.clone().filter(|_| self.is_folder()) else { return Ok(None) };
        if let Some(place) = self.open.iter().position(|open| open.name == name) {
            self.open.swap_remove(place).database.abandon();
        }
        let failed = |cause| Failed::Io { path: self.folder.path().join(&name), cause };
        let entries = self.folder.entries().map_err(failed)?;
        let is_free = |name: &OsStr| !entries.iter().any(|entry| entry.name == name);
        let too_many = || failed(io::Error::other("there are too many damaged ones"));
        let aside = damaged_name(&name, is_free).ok_or_else(too_many)?;
        // The file itself last: until then it is found damaged again.
        for suffix in BESIDE.into_iter().chain([""]) {
            match self.folder.rename(&beside(&name, suffix), &beside(&aside, suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        self.damaged = None;
        self.counters.moved_aside += 1;
        Ok(Some(aside))
    }

    /// Ends this run's lines and closes everything.
    ///
    /// # Errors
    /// The first failure; all are tried.
    pub fn close(mut self, now_ns: i64) -> Result<(), Failed> {
        let kept = !self.is_folder();
        let mut closed = Ok(());
        let from_ns = |open: &&Open| open.period.as_ref().map(|period| period.from_ns);
        let current = self.open.iter().max_by_key(from_ns).map(|open| open.name.clone());
        for open in self.open.drain(..) {
            closed = closed.and(open.database.close(now_ns, &self.facts, &self.noted, kept));
        }
        // What was open until now may be too much.
        self.look_ns = i64::MIN;
        self.retain(now_ns, current.as_deref());
        closed
    }

    fn every(&self) -> Option<Every> {
        match self.home {
            Home::File(_) => None,
            Home::Folder { every, .. } => Some(every),
        }
    }

    fn write_part(&mut self, place: usize, part: &Part<'_>, now_ns: i64) -> Result<(), Failed> {
        let open = &mut self.open[place];
        match open.database.write(part, &self.facts, &self.noted) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(failed) => {
                if matches!(failed, Failed::Damaged { .. }) {
                    self.damaged = Some(open.name.clone());
                }
                return Err(failed);
            }
        }
        open.written_ns = now_ns;
        self.counters.rows += part.rows();
        self.counters.transactions += 1;
        let latest = part.intervals.first().map(|row| row.ts_ns);
        self.counters.last_interval_ns = self.counters.last_interval_ns.max(latest);
        Ok(())
    }

    /// The place of the open file that has that period; it is opened, if it isn't.
    fn file_of(&mut self, period: Option<&Period>, now_ns: i64) -> Result<usize, Failed> {
        if let Some(place) = self.open.iter().position(|open| open.period.as_ref() == period) {
            return Ok(place);
        }
        let Some(period) = period else {
            let cause = io::Error::other("it isn't open any more");
            return Err(Failed::Io { path: self.options.db.clone(), cause });
        };
        if self.open.len() == OPEN_MAX {
            let oldest = self.open.iter().enumerate().min_by_key(|(_, open)| open.written_ns);
            let place = oldest.map_or(0, |(place, _)| place);
            self.close_one(place, now_ns);
        }
        let name = OsString::from(period.file_name());
        self.look_ns = i64::MIN;
        match self.open_file(Some(period.clone()), name.clone(), now_ns) {
            Ok(place) => Ok(place),
            Err(refused) => {
                let path = self.folder.path().join(&name);
                let failed = match refused {
                    Refused::Failed(failed) => failed,
                    Refused::Written => Failed::Locked { path },
                    refused => Failed::Damaged { cause: refused.fault(&path).why(), path },
                };
                if matches!(failed, Failed::Damaged { .. }) {
                    self.damaged = Some(name);
                }
                Err(failed)
            }
        }
    }

    fn open_file(&mut self, period: Option<Period>, name: OsString, now_ns: i64) -> Result<usize, Refused> {
        let database = Database::open(&self.folder, &name, self.options.interval_ns)?;
        self.open.push(Open { period, name, database, written_ns: now_ns });
        Ok(self.open.len() - 1)
    }

    /// What was written stays, whatever becomes of it.
    fn close_one(&mut self, place: usize, now_ns: i64) {
        let _ = self.open.swap_remove(place).database.close(now_ns, &self.facts, &self.noted, false);
    }

    /// Closes files that others have followed.
    fn close_idle(&mut self, now_ns: i64) {
        let latest = self.open.iter().filter_map(|open| Some(open.period.as_ref()?.from_ns)).max();
        let is_idle = |open: &Open| {
            open.period.as_ref().map(|period| period.from_ns) < latest && now_ns - open.written_ns >= IDLE_NS
        };
        if let Some(place) = self.open.iter().position(is_idle) {
            self.close_one(place, now_ns);
        }
    }

    /// Deletes what has to go, and adds up what stays: what is open, and `current`.
    fn retain(&mut self, now_ns: i64, current: Option<&OsStr>) {
        self.counters.wal_bytes = self.open.iter().map(|open| open.database.wal_bytes()).sum();
        if !self.is_folder() {
            self.counters.bytes = self.open.iter().map(|open| open.database.bytes()).sum();
            return;
        }
        if (1..=LOOK_AFTER_DELETION_NS).contains(&self.look_ns.saturating_sub(now_ns)) {
            return; // a clock that is set back doesn't end this
        }
        self.look_ns = now_ns.saturating_add(LOOK_NS);
        let Ok(found) = files(&self.folder) else { return };
        let is_open = |name: &str| {
            self.open.iter().any(|open| *open.name == *name)
                || current.is_some_and(|current| *current == *name)
        };
        let kept: Vec<Kept> =
            found.iter().map(|file| Kept { bytes: file.bytes, is_open: is_open(&file.name) }).collect();
        let Options { keep, budget, min_free, .. } = self.options;
        let go = Bounds { keep, budget, min_free }.go(&kept, disk(self.folder.path()));
        self.counters.bytes = kept.iter().map(|file| file.bytes).sum();
        for place in go {
            match self.delete(&found[place].name) {
                Ok(()) => {
                    self.counters.files_deleted += 1;
                    self.counters.bytes -= found[place].bytes;
                    self.look_ns = now_ns.saturating_add(LOOK_AFTER_DELETION_NS);
                }
                Err(_) => self.counters.files_undeletable += 1,
            }
        }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.folder.remove(name.as_ref())?;
        for suffix in BESIDE {
            match self.folder.remove(&beside(name, suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
