//! What stands in a volume, and making room there: files by name, span and size, the bounds, and what goes.

use crate::closing::Holds;
use crate::disk::{self, Disk, Standing};
use crate::index::{self, Totals};
use crate::name::{FileName, begin_of_run};
use crate::recover;
use crate::report::{Deleted, VolumeState};
use crate::retain::{Bound, Bounds, Growing, Kept, State, used};
use crate::volume::{Foreign, Volume, is_foreign, own_bytes};
use scope_spelling::figures::{counted, size};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why nothing more can be stored.
#[derive(Clone, Debug)]
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
    /// What files take that have a name of the store's and a head that doesn't say so, bytes: they are damaged,
    /// or somebody moved them. They count, and nobody deletes them.
    damaged: BTreeMap<PathBuf, u64>,
    /// What the mark, the holds, the chain and the imports take, bytes, when they were looked at last.
    beside: u64,
    /// The run that writes, by the first bytes of its id, and when it began, ns.
    run: ([u8; 4], i64),
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
            damaged: BTreeMap::new(),
            beside: 0,
            run: ([0; 4], i64::MIN),
            reserves,
        };
        let mut growing = Vec::new();
        for standing in disk.list()? {
            if is_foreign(&standing.name) {
                inventory.foreign.add(&standing.name);
                continue;
            }
            let Some(name) = FileName::read(&standing.name) else { continue };
            if !Inventory::agrees(disk, &standing, &name) {
                inventory.damaged.insert(standing.name, standing.taken);
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
    fn agrees(disk: &mut dyn Disk, standing: &Standing, name: &FileName) -> bool {
        match &recover::head_of(disk, standing) {
            Ok(head) => head.has_block() && name.agrees(&head.run_id, head.link_type, head.number),
            Err(_) => name.is_growing(),
        }
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

    /// What has a name of the store's and a head that doesn't say so.
    pub fn damaged(&self) -> Foreign {
        let mut damaged = Foreign::default();
        self.damaged.keys().for_each(|name| damaged.add(name));
        damaged
    }

    /// Which run writes from now on.
    pub fn set_run(&mut self, run_id: &[u8; 16]) {
        self.run = (begin_of_run(run_id), now_ns());
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

    /// What the writer knows of the files that grow: those that end, and can, have their place by their time. All
    /// others, and those of dead runs, have none.
    pub fn set_growing(&mut self, growing: &[Growing]) {
        for file in self.files.iter_mut().filter(|file| file.name.is_growing()) {
            let name = file.name.closed().path();
            let known = growing.iter().find(|growing| growing.name == name);
            file.stays = known.is_some_and(|growing| growing.ends && growing.can_end);
            if let Some((min_ns, max_ns)) = known.and_then(|growing| growing.span_ns) {
                (file.min_ns, file.max_ns) = (min_ns, max_ns);
            }
        }
    }

    /// Bytes that the volume takes, reserves included.
    pub fn used(&self) -> u64 {
        used(&self.files, self.beside).saturating_add(self.damaged_bytes())
    }

    fn damaged_bytes(&self) -> u64 {
        self.damaged.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
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
        let of_run = |file: &&Kept| file.name.run() == begin_of_run(run_id);
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
            let now_ns = now_ns();
            self.beside = own_bytes(volume.folder());
            let state = State { now_ns, room, beside: self.beside, damaged: self.damaged_bytes(), wanted };
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
            let over_budget = self.used().saturating_add(wanted) > self.bounds.budget_bytes(room.total);
            self.delete(disk, &verdict.go, over_budget, now_ns).map_err(failed)?;
            let Some(lack) = verdict.lack else { return Ok(()) };
            if (!verdict.go.is_empty() || self.forget_damaged(disk)) && attempt < 5 {
                continue;
            }
            let (bound, remedy) = match lack.bound {
                Bound::Budget => ("the budget of the store", "raise --store-budget"),
                Bound::Free if self.bounds.min_free.is_some() => (
                    "the free space of its file system",
                    "lower --store-min-free, or delete what others keep there",
                ),
                Bound::Free => ("the free space of its file system", "delete what others keep there"),
            };
            let words = match lack.held_files {
                0 if self.damaged_bytes() > 0 => format!(
                    "no room: {bound} lacks {}, no file is left to delete, and {} of it are in {} that the store \
                    can't tell to be its own: move or repair these",
                    size(lack.bytes),
                    size(self.damaged_bytes()),
                    counted(self.damaged.len() as u64, "file")
                ),
                0 => format!(
                    "no room: {bound} lacks {}, and no file is left to delete; {remedy}",
                    size(lack.bytes)
                ),
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

    /// Somebody may have moved or repaired damaged files: those that aren't there any more don't count. Whether
    /// there were such.
    fn forget_damaged(&mut self, disk: &mut dyn Disk) -> bool {
        let Ok(standing) = disk.list() else { return false };
        let before = self.damaged.len();
        if before > 0 {
            self.damaged.retain(|name, _| standing.iter().any(|standing| standing.name == *name));
        }
        self.damaged.len() < before
    }

    /// Whether this run stored the file at `at`, and it goes only since its times are old: older than may be when
    /// the run began, or than those of an earlier run.
    fn is_untimely(&self, at: usize) -> bool {
        let (run, began_ns) = self.run;
        let file = &self.files[at];
        let was_old = self.bounds.age_ns.is_some_and(|age_ns| file.max_ns < began_ns.saturating_sub(age_ns));
        let is_newer = |other: &Kept| other.name.run() != run && other.max_ns > file.max_ns;
        file.name.run() == run && (was_old || self.files.iter().any(is_newer))
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
            let (own, untimely) = (file.name.run() == self.run.0, self.is_untimely(at));
            let (totals, bytes) = (self.totals[at], file.taken);
            self.deleted.push(Deleted { name, totals, bytes, why, own, untimely });
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

/// Now, ns since the epoch.
fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

/// What the index of a closed file says of all of it.
pub(crate) fn read_totals(disk: &mut dyn Disk, path: &Path, len: u64) -> Option<Totals> {
    let read = |at: u64, into: &mut [u8]| disk::read_all(disk, path, at, into).map(drop);
    index::read_totals(len, read).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Head;
    use crate::io::{Want, open};
    use crate::volume::{CHAIN_FILE, Place, VolumeId};
    use scope_folder::Folder;
    use scope_packet::LinkType;
    use scope_spelling::values::SizeOrShare;
    use std::sync::Arc;

    const KIB: u64 = 1 << 10;
    const S: i64 = 1_000_000_000;

    /// A file of a run whose first packet is from `first_s`: its head, and zeros.
    fn file(folder: &Path, run: u8, number: u32, first_s: i64, damage: impl Fn(&mut Vec<u8>)) -> PathBuf {
        let run_id = [run; 16];
        let name = FileName::growing(first_s * S, &run_id, LinkType::ETHERNET, number).closed();
        let head = Head {
            run_id,
            volume: [2; 16],
            volumes: Vec::new(),
            number,
            segment_bytes: 64 << 10,
            link_type: LinkType::ETHERNET,
            filter: String::new(),
            snap: 0,
            interfaces: Vec::new(),
        };
        let mut bytes = head.write();
        bytes.resize(100 << 10, 0);
        damage(&mut bytes);
        std::fs::create_dir_all(folder.join(name.day())).unwrap();
        std::fs::write(folder.join(name.path()), bytes).unwrap();
        name.path()
    }

    fn volume(folder: &Path) -> (Volume, Box<dyn Disk + Send>) {
        let volume = Volume::open(&Place::find(folder).unwrap(), VolumeId([2; 16]), None).unwrap();
        (volume, open(&Arc::new(Folder::open(folder).unwrap()), None, Want::Pwrite).0)
    }

    fn budget(bytes: u64) -> Bounds {
        Bounds { budget: Some(SizeOrShare::Bytes(bytes)), ..Bounds::default() }
    }

    #[test]
    fn every_byte_with_a_mark_or_a_name_of_the_store_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (volume, mut disk) = volume(path);
        file(path, 1, 1, 1000, |_| ());
        let broken = file(path, 1, 2, 2000, |bytes| bytes.fill(7));
        let renamed = file(path, 1, 3, 3000, |_| ());
        let other = path.join(renamed.to_string_lossy().replace("_000003", "_000004"));
        std::fs::rename(path.join(&renamed), &other).unwrap();
        std::fs::write(path.join("notes.txt"), vec![7; 500 << 10]).unwrap();
        let bounds = budget(1324 * KIB); // what all of it takes
        let (mut inventory, growing) = Inventory::look(&mut *disk, bounds, true).unwrap();
        assert_eq!((inventory.used() / KIB, growing.len()), (1024 + 300, 0), "1 MiB is set aside");
        let listed = |of: &Foreign| (of.count, of.listed());
        assert_eq!(listed(inventory.foreign()), (1, "notes.txt".to_string()));
        let both = [broken.clone(), other.strip_prefix(path).unwrap().to_path_buf()];
        let both = both.map(|name| name.display().to_string()).join(", ");
        assert_eq!(listed(&inventory.damaged()), (2, both));
        assert!(inventory.make_room(&mut *disk, &volume, 0).is_ok());
        // A chain that is longer than what is set aside counts as long as it is.
        std::fs::write(path.join(CHAIN_FILE), vec![b'\n'; 3 << 20]).unwrap();
        inventory.bounds = budget(3 << 20);
        let no_room = inventory.make_room(&mut *disk, &volume, 0).unwrap_err();
        assert!(inventory.used() >= (3 << 20) + (200 << 10), "{}", inventory.used());
        assert_eq!(inventory.take_deleted().len(), 1, "what is whole goes first");
        assert!(
            no_room.words.contains("200 KiB of it are in 2 files that the store can't tell"),
            "{no_room:?}"
        );
        assert!(path.join(&broken).exists() && other.exists(), "what is damaged stays");
        // Somebody moved them away.
        std::fs::remove_file(path.join(&broken)).unwrap();
        std::fs::remove_file(other).unwrap();
        std::fs::write(path.join(CHAIN_FILE), "").unwrap();
        inventory.bounds = budget(1 << 20);
        assert!(inventory.make_room(&mut *disk, &volume, 0).is_ok());
        assert_eq!(inventory.used(), 1 << 20);
    }

    #[test]
    fn where_there_is_no_room_the_bound_that_would_help_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (volume, mut disk) = volume(folder.path());
        let mut words = |bounds: Bounds, wanted: u64| {
            let (mut inventory, _) = Inventory::look(&mut *disk, bounds, true).unwrap();
            inventory.make_room(&mut *disk, &volume, wanted).unwrap_err().words
        };
        let budget = words(budget(1 << 20), 1 << 20);
        assert!(budget.ends_with("no file is left to delete; raise --store-budget"), "{budget}");
        let all = Bounds { min_free: Some(SizeOrShare::Bytes(u64::MAX / 4)), ..Bounds::default() };
        let free = words(all, 0);
        assert!(free.ends_with("; lower --store-min-free, or delete what others keep there"), "{free}");
        let others = words(Bounds::default(), u64::MAX / 4);
        assert!(others.ends_with("to delete; delete what others keep there"), "{others}");
    }

    #[test]
    fn what_a_run_stored_and_goes_since_its_times_are_old_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let (volume, mut disk) = volume(path);
        let year_2020 = 1_577_836_800;
        let now = now_ns() / S;
        for (run, number, first_s) in [(1, 1, now - 500), (3, 1, year_2020), (3, 2, now - 50)] {
            file(path, run, number, first_s, |_| ());
        }
        let mut untimely = |run: u8, bounds: Bounds| {
            let (mut inventory, _) = Inventory::look(&mut *disk, bounds, true).unwrap();
            inventory.set_run(&[run; 16]);
            let _ = inventory.make_room(&mut *disk, &volume, 0);
            let deleted = inventory.take_deleted();
            deleted.iter().map(|deleted| (deleted.why, deleted.untimely)).collect::<Vec<_>>()
        };
        assert_eq!(untimely(9, budget(2 << 20)), []);
        assert_eq!(untimely(3, budget(1300 * KIB)), [("--store-budget", true)], "it is older than run 1's");
        file(path, 3, 1, year_2020, |_| ());
        assert_eq!(untimely(9, budget(1300 * KIB)), [("--store-budget", false)], "an earlier run's file");
        file(path, 3, 1, year_2020, |_| ());
        let age = Bounds { age_ns: Some(100 * S), ..budget(1 << 30) };
        assert_eq!(untimely(3, age), [("--store-age", true), ("--store-age", false)]);
        assert_eq!(untimely(3, budget(1 << 20)), [("--store-budget", false)], "it was its turn");
    }
}
