//! A file system in memory that loses power: it records what is asked of it, and makes the states that may be
//! found afterwards.
//!
//! ```text
//! data    what was finished before a sync that has come back, stays
//!         of the rest each write landed whole, or not, or torn at 512 bytes; a length may lag behind
//! names   what was made, given or taken before its folder's sync has come back, stays
//!         of the rest any part landed
//! ```

use super::random::Random;
use scope_store::disk::{Act, Begun, Disk, FileNumber, Finished, PAGE_BYTES, Room, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SECTOR_BYTES: usize = 512;

/// A change of a file's bytes.
#[derive(Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

/// A change of names.
#[derive(Clone)]
enum Naming {
    Folder(PathBuf),
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
    Remove(PathBuf),
}

/// What happened.
enum Happened {
    Change { inode: usize, tag: u64, change: Change },
    Done(u64),
    SyncBegun { inode: usize, tag: u64 },
    SyncDone { inode: usize, tag: u64 },
    Named(Naming),
    NamesSynced(PathBuf),
}

/// What goes wrong, each at one of so many calls; 0: never.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// EIO.
    pub error: u64,
    /// ENOSPC, of what takes room.
    pub full: u64,
    /// Nothing finishes for some calls.
    pub stall: u64,
}

/// The file system.
pub struct PowerDisk {
    inodes: Vec<Vec<u8>>,
    names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    open: BTreeMap<FileNumber, usize>,
    pending: Vec<(Begun, u64)>,
    log: Vec<Happened>,
    tags: u64,
    stalled: u64,
    random: Random,
    /// What goes wrong.
    pub faults: Faults,
}

impl PowerDisk {
    /// Nothing is on it.
    pub fn new(seed: u64) -> PowerDisk {
        PowerDisk {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            folders: BTreeSet::new(),
            open: BTreeMap::new(),
            pending: Vec::new(),
            log: Vec::new(),
            tags: 0,
            stalled: 0,
            random: Random::new(seed),
            faults: Faults::default(),
        }
    }

    /// How much happened so far.
    pub fn moment(&self) -> usize {
        self.log.len()
    }

    /// The names, and the bytes under them.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.names.iter().map(|(name, &inode)| (&**name, &self.inodes[inode][..]))
    }

    /// Adds a file that was always there.
    pub fn add(&mut self, name: &Path, bytes: Vec<u8>) {
        self.inodes.push(bytes);
        self.names.insert(name.to_path_buf(), self.inodes.len() - 1);
        self.folders.insert(folder_of(name).to_path_buf());
    }

    /// The same files, and no record.
    pub fn snapshot(&self) -> PowerDisk {
        PowerDisk {
            inodes: self.inodes.clone(),
            names: self.names.clone(),
            folders: self.folders.clone(),
            ..PowerDisk::new(0)
        }
    }

    /// What may be found after the power was lost at `moment`. `killed`: only the process died, so everything
    /// that had finished is there.
    pub fn after(&self, base: &PowerDisk, moment: usize, killed: bool, seed: u64) -> PowerDisk {
        let mut after = PowerDisk::new(seed);
        after.inodes = base.inodes.clone();
        after.inodes.resize(self.inodes.len(), Vec::new());
        after.names = base.names.clone();
        after.folders = base.folders.clone();
        let past = &self.log[..moment];
        let (safe_changes, safe_names) = self.safe(past, killed);
        let random = &mut Random::new(seed);
        for (at, happened) in past.iter().enumerate() {
            if let Happened::Change { inode, change, .. } = happened
                && safe_changes.contains(&at)
            {
                land(&mut after.inodes[*inode], change);
            }
        }
        let synced: Vec<usize> = after.inodes.iter().map(Vec::len).collect();
        for (at, happened) in past.iter().enumerate() {
            match happened {
                Happened::Change { inode, change, .. } if !safe_changes.contains(&at) => {
                    land_in_part(&mut after.inodes[*inode], change, random);
                }
                Happened::Named(naming) if safe_names.contains(&at) || random.one_in(2) => after.name(naming),
                _ => {}
            }
        }
        if !killed {
            for (bytes, synced) in after.inodes.iter_mut().zip(synced) {
                if bytes.len() > synced && random.one_in(4) {
                    bytes.truncate(synced + random.below((bytes.len() - synced) as u64 + 1) as usize);
                }
            }
        }
        let folders = after.folders.clone();
        after.names.retain(|name, _| folders.contains(folder_of(name)));
        after
    }

    /// Which changes and namings are certain to be there.
    fn safe(&self, past: &[Happened], killed: bool) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut done, mut syncs) = (BTreeMap::new(), BTreeMap::new());
        for (at, happened) in past.iter().enumerate() {
            match happened {
                Happened::Done(tag) => drop(done.insert(*tag, at)),
                Happened::SyncBegun { inode, tag } => drop(syncs.insert((*inode, *tag), at)),
                _ => {}
            }
        }
        let mut synced_to = BTreeMap::new();
        let mut names_synced = BTreeMap::new();
        for (at, happened) in past.iter().enumerate() {
            match happened {
                Happened::SyncDone { inode, tag } => {
                    let begun = syncs[&(*inode, *tag)];
                    let to: &mut usize = synced_to.entry(*inode).or_default();
                    *to = begun.max(*to);
                }
                Happened::NamesSynced(folder) => drop(names_synced.insert(folder.clone(), at)),
                _ => {}
            }
        }
        let (mut changes, mut names) = (BTreeSet::new(), BTreeSet::new());
        for (at, happened) in past.iter().enumerate() {
            let is_safe = match happened {
                Happened::Change { inode, tag, .. } => done
                    .get(tag)
                    .is_some_and(|done| killed || synced_to.get(inode).is_some_and(|synced| done < synced)),
                _ => false,
            };
            if is_safe {
                changes.insert(at);
            }
            if let Happened::Named(naming) = happened
                && (killed || names_synced.get(naming.folder()).is_some_and(|&synced| at < synced))
            {
                names.insert(at);
            }
        }
        (changes, names)
    }

    fn name(&mut self, naming: &Naming) {
        match naming {
            Naming::Folder(folder) => drop(self.folders.insert(folder.clone())),
            Naming::Create(name, inode) => drop(self.names.insert(name.clone(), *inode)),
            Naming::Rename(from, to, inode) => {
                self.names.remove(from);
                self.names.insert(to.clone(), *inode);
            }
            Naming::Remove(name) => drop(self.names.remove(name)),
        }
    }

    fn named(&mut self, naming: Naming) {
        self.name(&naming);
        self.log.push(Happened::Named(naming));
    }

    fn change(&mut self, inode: usize, change: Change) -> u64 {
        self.tags += 1;
        self.log.push(Happened::Change { inode, tag: self.tags, change });
        self.tags
    }

    fn fault(&mut self, takes_room: bool) -> io::Result<()> {
        if self.faults.error > 0 && self.random.one_in(self.faults.error) {
            return Err(io::Error::other("input/output error"));
        }
        if takes_room && self.faults.full > 0 && self.random.one_in(self.faults.full) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn opened(&mut self, inode: usize) -> FileNumber {
        let number = (0..).map(FileNumber).find(|number| !self.open.contains_key(number)).unwrap();
        self.open.insert(number, inode);
        number
    }
}

impl Naming {
    fn folder(&self) -> &Path {
        match self {
            Naming::Folder(_) => Path::new(""),
            Naming::Create(name, _) | Naming::Rename(name, _, _) | Naming::Remove(name) => folder_of(name),
        }
    }
}

impl Disk for PowerDisk {
    fn create(&mut self, name: &Path) -> io::Result<FileNumber> {
        self.fault(true)?;
        if self.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let folder = folder_of(name);
        if !self.folders.contains(folder) {
            self.named(Naming::Folder(folder.to_path_buf()));
        }
        self.inodes.push(Vec::new());
        let inode = self.inodes.len() - 1;
        self.named(Naming::Create(name.to_path_buf(), inode));
        Ok(self.opened(inode))
    }

    fn open(&mut self, name: &Path) -> io::Result<FileNumber> {
        self.fault(false)?;
        let inode = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.opened(inode))
    }

    fn reserve(&mut self, _file: FileNumber, _bytes: u64) -> io::Result<()> {
        self.fault(true)
    }

    fn begin(&mut self, begun: Begun) -> io::Result<()> {
        self.fault(false)?;
        assert!(
            self.pending.iter().all(|(other, _)| other.tag != begun.tag),
            "tags of what is pending differ"
        );
        let tag = match &begun.act {
            Act::Write { file, at, bytes } => {
                let bytes = bytes.as_slice();
                assert!(
                    at.is_multiple_of(PAGE_BYTES as u64)
                        && bytes.len().is_multiple_of(PAGE_BYTES)
                        && !bytes.is_empty()
                );
                assert!((bytes.as_ptr() as usize).is_multiple_of(PAGE_BYTES), "memory at whole pages");
                let overlaps = |(other, _): &(Begun, u64)| match &other.act {
                    Act::Write { file: of, at: from, bytes: others } => {
                        let others = *from..*from + others.as_slice().len() as u64;
                        of == file && *at < others.end && others.start < at + bytes.len() as u64
                    }
                    Act::Sync { .. } => false,
                };
                assert!(!self.pending.iter().any(overlaps), "two writes of one place at once");
                let (inode, change) = (self.open[file], Change::Write(*at, bytes.to_vec()));
                self.change(inode, change)
            }
            Act::Sync { file } => {
                self.tags += 1;
                self.log.push(Happened::SyncBegun { inode: self.open[file], tag: self.tags });
                self.tags
            }
        };
        self.pending.push((begun, tag));
        Ok(())
    }

    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()> {
        if self.faults.stall > 0 && self.stalled == 0 && self.random.one_in(self.faults.stall) {
            self.stalled = 5;
        }
        if self.stalled > 0 && wait.is_zero() {
            self.stalled -= 1;
            return Ok(());
        }
        self.stalled = 0;
        let least = usize::from(!wait.is_zero()).min(self.pending.len());
        let count = (self.random.below(self.pending.len() as u64 + 1) as usize).max(least);
        for _ in 0..count {
            let index = self.random.below(self.pending.len() as u64) as usize;
            let (begun, tag) = self.pending.swap_remove(index);
            let result = self.fault(matches!(begun.act, Act::Write { .. }));
            if result.is_ok() {
                match &begun.act {
                    Act::Write { file, at, bytes } => {
                        let change = Change::Write(*at, bytes.as_slice().to_vec());
                        land(&mut self.inodes[self.open[file]], &change);
                        self.log.push(Happened::Done(tag));
                    }
                    Act::Sync { file } => {
                        self.log.push(Happened::SyncDone { inode: self.open[file], tag });
                    }
                }
            }
            into.push(Finished { begun, result });
        }
        Ok(())
    }

    fn pending(&self) -> usize {
        self.pending.len()
    }

    fn truncate(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        self.fault(false)?;
        let (inode, change) = (self.open[&file], Change::Truncate(bytes));
        land(&mut self.inodes[inode], &change);
        let tag = self.change(inode, change);
        self.log.push(Happened::Done(tag));
        Ok(())
    }

    fn close(&mut self, file: FileNumber) {
        assert!(!self.pending.iter().any(|(begun, _)| scope_store::file_writer::file_of(begun) == file));
        assert!(self.open.remove(&file).is_some(), "it is closed once");
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.fault(false)?;
        let inode = *self.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        assert!(!self.names.contains_key(to));
        self.named(Naming::Rename(from.to_path_buf(), to.to_path_buf(), inode));
        Ok(())
    }

    fn sync_names(&mut self, folder: &Path) -> io::Result<()> {
        self.fault(false)?;
        self.log.push(Happened::NamesSynced(folder.to_path_buf()));
        Ok(())
    }

    fn remove(&mut self, name: &Path) -> io::Result<()> {
        self.fault(false)?;
        if !self.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.named(Naming::Remove(name.to_path_buf()));
        Ok(())
    }

    fn list(&mut self) -> io::Result<Vec<Standing>> {
        self.fault(false)?;
        let standing = |(name, bytes): (&Path, &[u8])| Standing {
            name: name.to_path_buf(),
            len: bytes.len() as u64,
            taken: bytes.len() as u64,
        };
        Ok(self.files().map(standing).collect())
    }

    fn read(&mut self, name: &Path, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.fault(false)?;
        let inode = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let bytes = self.inodes[inode].get(at as usize..).unwrap_or_default();
        let some = self.random.below(into.len() as u64) as usize + 1; // fewer than wanted, at times
        let read = bytes.len().min(if self.random.one_in(4) { some } else { into.len() });
        into[..read].copy_from_slice(&bytes[..read]);
        Ok(read)
    }

    fn room(&mut self) -> io::Result<Room> {
        Ok(Room { total: 1 << 40, free: 1 << 39 })
    }
}

fn folder_of(name: &Path) -> &Path {
    name.parent().unwrap_or(Path::new(""))
}

fn land(file: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, bytes) => {
            let end = *at as usize + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[*at as usize..end].copy_from_slice(bytes);
        }
        Change::Truncate(bytes) => file.resize(*bytes as usize, 0),
    }
}

/// All of it, nothing, or some of its sectors.
fn land_in_part(file: &mut Vec<u8>, change: &Change, random: &mut Random) {
    let (how, one_of) = (random.below(4), random.below(3) + 2);
    match change {
        _ if how == 0 => {}
        Change::Write(at, bytes) if how > 1 => {
            for (sector, part) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if random.one_in(one_of) == (how == 2) {
                    land(file, &Change::Write(at + (sector * SECTOR_BYTES) as u64, part.to_vec()));
                }
            }
        }
        change => land(file, change),
    }
}
