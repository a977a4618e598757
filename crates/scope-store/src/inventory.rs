//! What stands in a volume, and making room there: files by name, span and size, the bounds, and what goes.

use crate::closing::Holds;
use crate::disk::{self, Disk, Standing};
use crate::index::{self, Totals};
use crate::name::FileName;
use crate::recover;
use crate::report::{Deleted, VolumeState};
use crate::retain::{Bound, Bounds, Kept, State, used};
use crate::volume::{Foreign, Volume, is_foreign};
use scope_spelling::figures::{counted, size};
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Why nothing more can be stored.
#[derive(Debug)]
pub struct NoRoom {
    /// [`VolumeState::Held`] or [`VolumeState::Full`].
    pub state: VolumeState,
    /// In words, with what to do.
    pub words: String,
}

/// The files of a volume, and what it may take.
pub struct Inventory {
    files: Vec<Kept>,
    totals: Vec<Option<Totals>>,
    /// Bounds now.
    pub bounds: Bounds,
    deleted: Vec<Deleted>,
    /// Bytes of the file system, when it was asked last.
    total: u64,
    foreign: Foreign,
    /// The file system takes the space of a growing file as soon as it is begun.
    reserves: bool,
}

impl Inventory {
    /// Looks at what stands in the volume. Returns files with growing names, too: of runs that died. `reserves`:
    /// space that is reserved is free no more, as far as the file system says.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn look(
        disk: &mut dyn Disk,
        bounds: Bounds,
        reserves: bool,
    ) -> io::Result<(Inventory, Vec<Standing>)> {
        let mut inventory = Inventory {
            files: Vec::new(),
            totals: Vec::new(),
            bounds,
            deleted: Vec::new(),
            total: 0,
            foreign: Foreign::default(),
            reserves,
        };
        let mut growing = Vec::new();
        for standing in disk.list()? {
            if is_foreign(&standing.name) {
                inventory.foreign.add(&standing.name);
                continue;
            }
            let Some(name) = FileName::read(&standing.name) else { continue };
            if !inventory.agrees(disk, &standing, &name) {
                continue;
            }
            inventory.add(disk, name, standing.len, standing.taken);
            if FileName::read(&standing.name).is_some_and(|name| name.is_growing()) {
                growing.push(standing);
            }
        }
        Ok((inventory, growing))
    }

    /// Whether the head says what the name says; a growing file whose head can't be read is recovery's.
    fn agrees(&mut self, disk: &mut dyn Disk, standing: &Standing, name: &FileName) -> bool {
        let head = recover::head_of(disk, standing);
        let agrees = match &head {
            Ok(head) => head.has_block() && name.agrees(&head.run_id, head.link_type, head.number),
            Err(_) => name.is_growing(),
        };
        if !agrees {
            self.foreign.add(&standing.name);
        }
        agrees
    }

    fn add(&mut self, disk: &mut dyn Disk, name: FileName, len: u64, taken: u64) {
        let path = name.path();
        let totals = (!name.is_growing()).then(|| read_totals(disk, &path, len)).flatten();
        let first_ns = name.first_ns();
        let (min_ns, max_ns) = totals.and_then(|totals| totals.span_ns).unwrap_or((first_ns, first_ns));
        self.files.push(Kept { name, min_ns, max_ns, taken, reserve: taken, stays: false });
        self.totals.push(totals);
    }

    /// What stands in the folder and is none of the store's.
    pub fn foreign(&self) -> &Foreign {
        &self.foreign
    }

    /// A file was begun.
    pub fn begun(&mut self, name: FileName, reserve: u64) {
        let first_ns = name.first_ns();
        let taken = if self.reserves { reserve } else { 0 };
        self.files.push(Kept { name, min_ns: first_ns, max_ns: first_ns, taken, reserve, stays: false });
        self.totals.push(None);
    }

    /// A growing file has its name now, and is `bytes` long; without them the disk is asked.
    pub fn closed(&mut self, disk: &mut dyn Disk, whole: &Path, holds: &Holds, bytes: Option<u64>) {
        self.gone(whole);
        let Some(name) = FileName::read(whole) else { return };
        let mut standing = || disk.list().ok()?.into_iter().find(|standing| standing.name == whole);
        let bytes = bytes.or_else(|| Some(standing()?.len)).unwrap_or(0);
        let first_ns = name.first_ns();
        let (min_ns, max_ns) = holds.span.unwrap_or((first_ns, first_ns));
        let totals = read_totals(disk, whole, bytes);
        self.files.push(Kept { name, min_ns, max_ns, taken: bytes, reserve: bytes, stays: false });
        self.totals.push(totals);
    }

    /// A growing file with this whole name is gone, or has got that name.
    pub fn gone(&mut self, whole: &Path) {
        let at =
            self.files.iter().position(|file| file.name.is_growing() && file.name.closed().path() == whole);
        if let Some(at) = at {
            self.files.remove(at);
            self.totals.remove(at);
        }
    }

    /// Whether a file must not go yet: it has no line in the chain.
    pub fn keep(&mut self, name: &Path, stays: bool) {
        if let Some(file) = self.files.iter_mut().find(|file| file.name.path() == name) {
            file.stays = stays;
        }
    }

    /// Bytes that the volume takes, reserves included.
    pub fn used(&self) -> u64 {
        used(&self.files, 0)
    }

    /// Bytes that a file takes.
    pub fn bytes_of(&self, name: &Path) -> u64 {
        self.files.iter().find(|file| file.name.path() == name).map_or(0, |file| file.taken)
    }

    /// Bytes that the volume may take, if there is a bound.
    pub fn budget_bytes(&self) -> Option<u64> {
        self.bounds.budget.map(|budget| budget.bytes_of(self.total))
    }

    /// Number of files.
    pub fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// First and last time of all packets, ns.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let min = self.files.iter().map(|file| file.min_ns).min()?;
        Some((min, self.files.iter().map(|file| file.max_ns).max()?))
    }

    /// The largest number of a file of this run.
    pub fn numbers_of(&self, run_id: &[u8; 16]) -> u32 {
        let of_run = |file: &&Kept| {
            let name = file.name.path();
            let run = format!("_{:02x}{:02x}{:02x}{:02x}_", run_id[0], run_id[1], run_id[2], run_id[3]);
            name.to_string_lossy().contains(&run)
        };
        self.files.iter().filter(of_run).map(|file| file.name.number()).max().unwrap_or(0)
    }

    /// What was deleted since the last call.
    pub fn take_deleted(&mut self) -> Vec<Deleted> {
        std::mem::take(&mut self.deleted)
    }

    /// Deletes what the bounds want, so that a file of `wanted` bytes has room.
    ///
    /// # Errors
    /// There is no room, and nothing that may go would make it.
    pub fn make_room(&mut self, disk: &mut dyn Disk, volume: &Volume, wanted: u64) -> Result<(), NoRoom> {
        let failed = |error: io::Error| NoRoom { state: VolumeState::Failing, words: error.to_string() };
        // Space may come back a while after a file went, and the holds may be changed just now.
        for attempt in 0.. {
            let room = disk.room().map_err(failed)?;
            self.total = room.total;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
            let state = State { now_ns, room, beside: 0, wanted };
            let nothing = self.bounds.verdict(&self.files, &state, |_, _| false);
            if nothing.go.is_empty() && nothing.lack.is_none() {
                return Ok(());
            }
            let held = match volume.holds() {
                Ok(Some(held)) => Some(held),
                Ok(None) if attempt < 50 => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    continue;
                }
                Ok(None) => return Err(failed(io::Error::other("the holds are being changed"))),
                Err(fault) => {
                    return Err(NoRoom {
                        state: VolumeState::Held,
                        words: format!("nothing is deleted while the holds can't be read: {fault}"),
                    });
                }
            };
            let covers = |from, to| held.as_ref().is_some_and(|held| held.holds.cover(from, to));
            let verdict = self.bounds.verdict(&self.files, &state, covers);
            let over_budget =
                used(&self.files, 0).saturating_add(wanted) > self.bounds.budget_bytes(room.total);
            self.delete(disk, &verdict.go, over_budget, now_ns).map_err(failed)?;
            let Some(lack) = verdict.lack else { return Ok(()) };
            if !verdict.go.is_empty() && attempt < 5 {
                continue;
            }
            let bound = match lack.bound {
                Bound::Budget => "the budget of the store",
                Bound::Free => "the free space of its file system",
            };
            let words = match lack.held_files {
                0 => format!("no room: {bound} lacks {}, and no file is left to delete", size(lack.bytes)),
                files => format!(
                    "no room: {bound} lacks {}, and holds keep {} of {}; remove a hold, or raise the bound",
                    size(lack.bytes),
                    counted(files as u64, "file"),
                    size(lack.held_bytes)
                ),
            };
            let state = if lack.held_files > 0 { VolumeState::Held } else { VolumeState::Full };
            return Err(NoRoom { state, words });
        }
        Ok(())
    }

    fn delete(
        &mut self,
        disk: &mut dyn Disk,
        go: &[usize],
        over_budget: bool,
        now_ns: i64,
    ) -> io::Result<()> {
        let mut gone: Vec<usize> = Vec::new();
        let mut failure = None;
        for &at in go {
            let file = &self.files[at];
            let name = file.name.path();
            let too_old = self.bounds.age_ns.is_some_and(|age| file.max_ns < now_ns.saturating_sub(age));
            let why = match (too_old, over_budget) {
                (true, _) => "--store-age",
                (_, true) => "--store-budget",
                _ => "--store-min-free",
            };
            match disk.remove(&name) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // somebody else did it
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            self.deleted.push(Deleted { name, totals: self.totals[at], bytes: file.taken, why });
            gone.push(at);
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.files.remove(at);
            self.totals.remove(at);
        }
        failure.map_or(Ok(()), Err)
    }
}

fn read_totals(disk: &mut dyn Disk, path: &Path, len: u64) -> Option<Totals> {
    let read = |at: u64, into: &mut [u8]| disk::read_all(disk, path, at, into).map(drop);
    index::read_totals(len, read).ok().flatten()
}
