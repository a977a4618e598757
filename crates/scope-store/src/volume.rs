//! A folder as a volume: what makes it one, who may write there, and where it may lie.
//!
//! ```text
//! wirescope.store   {"version":1,"volume":"00112233445566778899aabbccddeeff"}
//!   bytes 0..2^32       locked by the run that writes the volume, from its opening on
//!   bytes 2^32..2^33    locked for a moment by whoever changes holds or notes what was imported, and by a run
//!                       that deletes files
//! ```
//! A lock belongs to an opening of the mark and dies with its process; none of these bytes need to exist. The
//! mark is made once and never changes. Who only reads takes no lock.
//!
//! [`Place::find`] looks at a folder that may become a volume and changes nothing; [`Volume::open`] makes
//! what is missing and takes the lock; [`Store::look`] is for commands that read.
//!
//! A store that lies inside another one is found by its path and by the numbers of the folders above it. Of
//! what lies below a folder the nearest 65,536 entries are looked at.

use crate::hold::{HOLDS_FILE, Holds};
use crate::imports::{IMPORTS_FILE, Imported, Imports};
use crate::name::FileName;
use scope_fault::Fault;
use scope_folder::Folder;
use scope_folder::locks::{is_locked, try_lock, unlock};
use scope_spelling::printable::shell_word;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The mark of a volume.
pub const MARK: &str = "wirescope.store";
/// The chain of a volume's files.
pub const CHAIN_FILE: &str = "chain.jsonl";
const VERSION: u64 = 1;
/// A mark is shorter.
const MARK_BYTES_MAX: u64 = 4096;
/// What the run that writes a volume locks of its mark.
const WRITING: Range<u64> = 0..1 << 32;
/// What is locked while holds change, and while files go.
const HOLDS: Range<u64> = 1 << 32..1 << 33;
/// How long a command waits for that lock: a deletion takes milliseconds, on a disk that hangs longer.
const HOLDS_WAIT: Duration = Duration::from_secs(10);
const HOLDS_PAUSE: Duration = Duration::from_millis(10);
/// Entries below a folder that are looked at for another volume.
const ENTRIES_MAX: usize = 65_536;
/// Foreign files that are named.
const FOREIGN_NAMED_MAX: usize = 8;

/// The id of a volume: random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub [u8; 16]);

/// As hexadecimal digits.
impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeId({self})")
    }
}

/// Device and number of a folder.
type Number = (u64, u64);

/// A folder that may be a volume, looked at.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    number: Option<Number>,
    /// Of the folders above it, the nearest first.
    above: Vec<Number>,
}

impl Place {
    /// Looks at the folder `typed`, which may be missing if the one above it is there. Nothing is changed.
    ///
    /// # Errors
    /// It can be no volume: what is wrong, of the setting `store`.
    pub fn find(typed: &Path) -> Result<Place, Fault> {
        let place = Place::at(typed)?;
        let Place { path, .. } = &place;
        if let Some(other) = place.path.ancestors().skip(1).find(|&above| is_volume(above)) {
            let cause = format!("it lies inside the store {}", other.display());
            return Err(fault(path, cause).remedy("choose a folder beside it"));
        }
        if place.number.is_none() {
            return Ok(place);
        }
        if let Some(other) = volume_below(path) {
            let cause = format!("another store lies in it: {}", other.display());
            return Err(fault(path, cause).remedy("choose a folder beside it"));
        }
        if scope_machine::disk::disk(path).is_some_and(|disk| disk.read_only) {
            let remedy = "mount it for writing, or choose another folder";
            return Err(fault(path, "its file system is mounted read-only").remedy(remedy));
        }
        let folder = Folder::open(path).map_err(|error| system(path, &error, "can't be opened"))?;
        read_mark(&folder)?;
        Ok(place)
    }

    /// Any folder; missing, if the one above it is there.
    fn at(typed: &Path) -> Result<Place, Fault> {
        let path = match typed.canonicalize() {
            Ok(path) if path.is_dir() => path,
            Ok(path) => return Err(fault(&path, "it is a file, not a folder").remedy("choose a folder")),
            Err(error) if error.kind() == ErrorKind::NotFound && typed.symlink_metadata().is_err() => {
                missing(typed)?
            }
            Err(error) => return Err(system(typed, &error, "can't be looked at")),
        };
        let number = |path: &Path| path.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
        let above = path.ancestors().skip(1).filter_map(number).collect();
        Ok(Place { number: number(&path), path, above })
    }

    /// Its path, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is(&self, other: &Place) -> bool {
        self.path == other.path || self.number.is_some() && self.number == other.number
    }

    fn lies_in(&self, other: &Place) -> bool {
        self.path.starts_with(&other.path) || other.number.is_some_and(|number| self.above.contains(&number))
    }

    /// What is wrong with volumes that one run shall have: the same one twice, one inside another, one that
    /// is the dump folder, lies inside it or has it inside.
    pub fn faults_together(places: &[Place], dumps: Option<&Path>) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (at, place) in places.iter().enumerate() {
            for other in &places[..at] {
                let shown = other.path.display();
                if place.is(other) {
                    let cause = format!("it is the same folder as {shown}");
                    faults.push(fault(&place.path, cause).remedy("omit one of them"));
                } else if place.lies_in(other) || other.lies_in(place) {
                    let cause = format!("one lies inside the other: this one and {shown}");
                    faults.push(fault(&place.path, cause).remedy("choose folders beside each other"));
                }
            }
        }
        let Some(dumps) = dumps.and_then(|dumps| Place::at(dumps).ok()) else { return faults };
        for place in places {
            let what = match () {
                () if place.is(&dumps) => "it is the dump folder",
                () if place.lies_in(&dumps) => "it lies inside the dump folder",
                () if dumps.lies_in(place) => "the dump folder lies in it",
                () => continue,
            };
            faults.push(fault(&place.path, what).remedy("choose a folder beside the dump folder"));
        }
        faults
    }
}

/// A volume that this process writes.
#[derive(Debug)]
pub struct Volume {
    folder: Folder,
    id: VolumeId,
    /// Bears the lock.
    mark: File,
    is_new: bool,
}

impl Volume {
    /// Makes what is missing, the folder and its mark, and takes the lock. A new volume gets `id`. What is
    /// made belongs to `owner` (user, group), if that is given.
    ///
    /// # Errors
    /// Another run has the lock, the mark is damaged or of a newer version, or the system refuses something:
    /// of the setting `store`.
    pub fn open(place: &Place, id: VolumeId, owner: Option<(u32, u32)>) -> Result<Volume, Fault> {
        let path = place.path();
        let refused = |error: io::Error| system(path, &error, "can't be made a store");
        Folder::make(path, owner).map_err(refused)?;
        let folder = Folder::open(path).map_err(refused)?;
        let (id, is_new) = match read_mark(&folder)? {
            Some(known) => (known, false),
            None if make_mark(&folder, id, owner).map_err(refused)? => (id, true),
            // Another one was quicker.
            None => (read_mark(&folder)?.unwrap_or(id), false),
        };
        let mark = folder.existing(OsStr::new(MARK), true).map_err(refused)?;
        let mark = mark.ok_or_else(|| fault(path, "its mark was removed meanwhile"))?;
        match try_lock(&mark, WRITING) {
            Ok(true) => Ok(Volume { folder, id, mark, is_new }),
            Ok(false) => {
                let remedy = format!(
                    "choose another folder, or stop that run; its process: fuser {}",
                    shell_word(path.join(MARK))
                );
                Err(fault(path, "another run writes this store").remedy(remedy))
            }
            Err(error) => Err(no_locks(path, &error)),
        }
    }

    /// Its folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Its id.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Whether the mark was made just now.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The holds as they are now, which don't change until the answer is dropped: what goes meanwhile is held
    /// by nobody. `None`: they are being changed; ask again.
    ///
    /// # Errors
    /// The holds can't be read or understood: nothing may be deleted.
    pub fn holds(&self) -> Result<Option<HeldStill<'_>>, Fault> {
        match try_lock(&self.mark, HOLDS) {
            Ok(true) => {
                let lock = HoldsLock(&self.mark);
                Ok(Some(HeldStill { holds: Holds::read(&self.folder)?, _lock: lock }))
            }
            Ok(false) => Ok(None),
            Err(error) => Err(no_locks(self.folder.path(), &error)),
        }
    }
}

/// Holds that nobody changes meanwhile.
#[derive(Debug)]
pub struct HeldStill<'a> {
    /// The holds.
    pub holds: Holds,
    _lock: HoldsLock<'a>,
}

/// Given back when dropped.
#[derive(Debug)]
struct HoldsLock<'a>(&'a File);

impl Drop for HoldsLock<'_> {
    fn drop(&mut self) {
        let _ = unlock(self.0, HOLDS); // else it ends with the opening
    }
}

/// A store that is only looked at.
#[derive(Debug)]
pub struct Store {
    folder: Folder,
    id: VolumeId,
}

impl Store {
    /// Opens a folder that is a store. No lock is taken.
    ///
    /// # Errors
    /// It is none: of the setting `store`.
    pub fn look(path: &Path) -> Result<Store, Fault> {
        Store::of(Folder::open(path).map_err(|error| system(path, &error, "can't be opened"))?)
    }

    /// The store that an open folder is. No lock is taken.
    ///
    /// # Errors
    /// As [`Store::look`].
    pub fn of(folder: Folder) -> Result<Store, Fault> {
        match read_mark(&folder)? {
            Some(id) => Ok(Store { folder, id }),
            None => {
                let fault = fault(folder.path(), format!("it is no store: it lacks {MARK}"));
                Err(fault.remedy("name the folder that a run was given as --store"))
            }
        }
    }

    /// Its folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Its id.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// Whether a run writes it now.
    ///
    /// # Errors
    /// The system's: the mark can't be read, or the file system has no locks.
    pub fn is_written(&self) -> io::Result<bool> {
        match self.folder.existing(OsStr::new(MARK), false)? {
            Some(mark) => is_locked(&mark, WRITING),
            None => Ok(false),
        }
    }

    /// Its holds.
    ///
    /// # Errors
    /// They can't be read or understood.
    pub fn holds(&self) -> Result<Holds, Fault> {
        Holds::read(&self.folder)
    }

    /// Changes its holds: reads them, lets `change` work on them, and writes them. Waits for others who do
    /// so, and for a run that is deleting files. Once it is done no run deletes what is held.
    ///
    /// # Errors
    /// Those of `change`; the holds can't be read, understood or written; others took too long.
    pub fn change_holds<T>(&self, change: impl FnOnce(&mut Holds) -> Result<T, Fault>) -> Result<T, Fault> {
        self.alone(|| {
            let mut holds = self.holds()?;
            let changed = change(&mut holds)?;
            holds.write(&self.folder).map_err(|error| self.unchanged(&error, "its holds"))?;
            Ok(changed)
        })
    }

    /// Notes what was imported. Waits as [`Store::change_holds`] does.
    ///
    /// # Errors
    /// What was noted before can't be read or written; others took too long.
    pub fn note_imports(&self, new: &[Imported]) -> Result<(), Fault> {
        self.alone(|| {
            let mut imports = Imports::read(&self.folder)?;
            imports.add(new);
            imports.write(&self.folder).map_err(|error| self.unchanged(&error, IMPORTS_FILE))
        })
    }

    fn unchanged(&self, error: &io::Error, what: &str) -> Fault {
        system(self.folder.path(), error, &format!("can't change {what}"))
    }

    /// Does what only one process may do at a time.
    fn alone<T>(&self, act: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let path = self.folder.path();
        let mark = self.folder.existing(OsStr::new(MARK), true);
        let mark = mark.map_err(|error| self.unchanged(&error, "its holds"))?;
        let mark = mark.ok_or_else(|| fault(path, "its mark was removed meanwhile"))?;
        let until = Instant::now() + HOLDS_WAIT;
        while !try_lock(&mark, HOLDS).map_err(|error| no_locks(path, &error))? {
            if Instant::now() >= until {
                let cause = "another process changes the holds or deletes files, and takes very long";
                return Err(fault(path, cause).remedy("try again"));
            }
            std::thread::sleep(HOLDS_PAUSE);
        }
        let _lock = HoldsLock(&mark);
        act()
    }
}

/// What stands in a volume's folder and is none of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// How many files.
    pub count: usize,
    /// Some of them, below the volume's folder.
    pub names: Vec<PathBuf>,
}

impl Foreign {
    /// Takes note of a file whose name, or whose head, is none of the store.
    pub fn add(&mut self, name: &Path) {
        self.count += 1;
        if self.names.len() < FOREIGN_NAMED_MAX {
            self.names.push(name.to_path_buf());
        }
    }

    /// Their names, as far as they are noted.
    pub fn listed(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| name.display().to_string()).collect();
        format!("{}{}", names.join(", "), if self.count > names.len() { " and others" } else { "" })
    }
}

/// Whether a file of this name, below the volume's folder, is none of the store. Of one that isn't foreign by
/// its name the head may still disagree ([`FileName::agrees`]).
pub fn is_foreign(name: &Path) -> bool {
    let own = |text: &str| {
        let own = [MARK, HOLDS_FILE, CHAIN_FILE, IMPORTS_FILE];
        own.contains(&text) || draft_of(text).is_some_and(|name| own.contains(&name))
    };
    !name.to_str().is_some_and(own) && FileName::read(name).is_none()
}

/// What the mark, the holds, the chain and the imports of a volume take, bytes; what can't be looked at counts
/// as nothing.
pub fn own_bytes(folder: &Folder) -> u64 {
    let bytes_of = |name: &&str| {
        let file = folder.existing(OsStr::new(name), false).ok()??;
        Some(file.metadata().ok()?.blocks() * 512)
    };
    [MARK, HOLDS_FILE, CHAIN_FILE, IMPORTS_FILE].iter().filter_map(bytes_of).sum()
}

/// Of which file this is the name until it is whole.
fn draft_of(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(".part")
}

fn is_volume(folder: &Path) -> bool {
    folder.join(MARK).symlink_metadata().is_ok()
}

/// Another volume below a folder, if one of the nearest entries is one.
fn volume_below(folder: &Path) -> Option<PathBuf> {
    let (mut open, mut seen) = (VecDeque::from([folder.to_path_buf()]), 0);
    while let Some(next) = open.pop_front() {
        for entry in next.read_dir().into_iter().flatten().flatten() {
            seen += 1;
            if seen > ENTRIES_MAX {
                return None;
            }
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if is_volume(&path) {
                return Some(path);
            }
            open.push_back(path);
        }
    }
    None
}

/// The absolute path of a folder that is to be made.
fn missing(typed: &Path) -> Result<PathBuf, Fault> {
    let above = typed.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (above.canonicalize(), typed.file_name()) {
        (Ok(above), Some(name)) if above.is_dir() => Ok(above.join(name)),
        _ => {
            let remedy = format!("make it with: mkdir -p {}", shell_word(typed));
            Err(fault(typed, "no such folder, and none above it").remedy(remedy))
        }
    }
}

/// Makes the mark; `false`: another one has made it meanwhile.
fn make_mark(folder: &Folder, id: VolumeId, owner: Option<(u32, u32)>) -> io::Result<bool> {
    let mut draft = folder.draft(OsStr::new(MARK))?;
    let text = json!({"version": VERSION, "volume": id.to_string()});
    draft.file().write_all(format!("{text}\n").as_bytes())?;
    match owner {
        Some((user, group)) => fchown(&*draft.file(), Some(user), Some(group))?,
        None => folder.give_to_owner(draft.file())?,
    }
    draft.file().sync_all()?;
    match draft.publish() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// The id that the mark says; `None` where there is no mark.
fn read_mark(folder: &Folder) -> Result<Option<VolumeId>, Fault> {
    let path = folder.path();
    let mut text = String::new();
    let file = match folder.existing(OsStr::new(MARK), false) {
        Ok(None) => return Ok(None),
        Ok(Some(file)) => file,
        Err(error) => return Err(system(path, &error, &format!("its mark {MARK} can't be read"))),
    };
    match file.take(MARK_BYTES_MAX).read_to_string(&mut text) {
        Err(error) if error.kind() != ErrorKind::InvalidData => {
            return Err(system(path, &error, &format!("its mark {MARK} can't be read")));
        }
        _ => {}
    }
    let mark: Value = serde_json::from_str(&text).unwrap_or_default();
    match (mark["version"].as_u64(), mark["volume"].as_str().and_then(id)) {
        (Some(VERSION), Some(id)) => Ok(Some(id)),
        (Some(newer), _) if newer > VERSION => {
            let cause = format!("it is a store of version {newer}, and this program knows {VERSION}");
            Err(fault(path, cause).remedy("use the program that has made it, or a newer one"))
        }
        _ => {
            let fault = fault(path, format!("its mark {MARK} is damaged"));
            let mark = path.join(MARK);
            let remedy = "move it away, and a new one is made; the files stay as they are: mv";
            Err(fault.remedy(format!("{remedy} {} /tmp/", shell_word(mark))))
        }
    }
}

/// 32 hexadecimal digits, as they are written.
fn id(text: &str) -> Option<VolumeId> {
    let id = VolumeId(u128::from_str_radix(text, 16).ok()?.to_be_bytes());
    (id.to_string() == text).then_some(id)
}

fn fault(path: &Path, cause: impl fmt::Display) -> Fault {
    let shown = path.display();
    Fault::of("store").with_value(shown.to_string()).cause(format!("{shown}: {cause}"))
}

fn no_locks(path: &Path, error: &io::Error) -> Fault {
    let cause = format!("its file system has no locks ({error}), so two runs could write the store");
    fault(path, cause).remedy("choose a folder on another file system")
}

/// What the system refuses, with what helps.
fn system(path: &Path, error: &io::Error, what: &str) -> Fault {
    let fault = fault(path, format!("{what}: {error}"));
    let seen = || path.ancestors().find_map(|above| above.metadata().ok());
    let owner = || seen().map_or_else(|| "its owner".to_string(), |facts| format!("user {}", facts.uid()));
    match error.kind() {
        ErrorKind::PermissionDenied => {
            fault.remedy(format!("use the rights of {}, or choose another folder", owner()))
        }
        ErrorKind::ReadOnlyFilesystem => fault.remedy("mount it for writing, or choose another folder"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            fault.remedy("free some space, or choose a folder on another file system")
        }
        ErrorKind::NotFound => fault.remedy("check the path"),
        _ => fault.remedy("choose another folder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const ID: VolumeId = VolumeId([0xa1; 16]);

    fn open(path: &Path) -> Result<Volume, Fault> {
        Volume::open(&Place::find(path)?, ID, None)
    }

    fn check<T: fmt::Debug>(result: Result<T, Fault>, expected: &str) {
        let said = result.unwrap_err().to_string();
        assert!(said.starts_with("--store: ") && said.contains(expected), "{said}");
    }

    #[test]
    fn a_folder_becomes_a_volume_once_and_keeps_its_id() {
        let root = tempfile::tempdir().unwrap();
        for (name, exists) in [("new", false), ("empty", true), ("full", true)] {
            let path = root.path().join(name);
            if exists {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("notes.txt"), "left alone").unwrap();
            }
            let volume = open(&path).unwrap();
            assert!(volume.is_new() && volume.id() == ID);
            drop(volume);
            let again = Volume::open(&Place::find(&path).unwrap(), VolumeId([7; 16]), None).unwrap();
            assert!(!again.is_new() && again.id() == ID, "{name}");
            let seen = Store::look(&path).unwrap();
            assert!(seen.id() == ID && seen.is_written().unwrap());
            drop(again);
            assert!(!seen.is_written().unwrap());
            let mark = fs::read_to_string(path.join(MARK)).unwrap();
            assert_eq!(mark, format!("{{\"version\":1,\"volume\":\"{ID}\"}}\n"));
        }
        let mode = |path: &str| root.path().join(path).metadata().unwrap().permissions().mode() & 0o027;
        assert_eq!([mode("new"), mode("new/wirescope.store")], [0; 2]);
        assert_eq!(fs::read_to_string(root.path().join("full/notes.txt")).unwrap(), "left alone");
    }

    #[test]
    fn one_run_at_a_time_writes_a_volume_and_its_lock_ends_with_it() {
        let root = tempfile::tempdir().unwrap();
        let first = open(root.path()).unwrap();
        check(open(root.path()), "another run writes this store; choose another folder, or stop that run");
        drop(first);
        open(root.path()).unwrap();
    }

    #[test]
    fn what_can_be_no_volume_is_refused_with_cause_and_remedy() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::write(path("file"), "").unwrap();
        check(open(&path("file")), "it is a file, not a folder; choose a folder");
        check(open(&path("a/b")), "no such folder, and none above it; make it with: mkdir -p");
        symlink("nowhere", path("dangling")).unwrap();
        check(open(&path("dangling")), "No such file");
        for (name, mark, expected) in [
            (
                "damaged",
                "{\"version\":1,\"volume\":\"12\"}",
                "its mark wirescope.store is damaged; move it away",
            ),
            ("cut", "{\"version\":1,", "damaged"),
            ("empty", "", "damaged"),
            ("bytes", "\u{fe}\u{0}", "damaged"),
            (
                "newer",
                "{\"version\":2}",
                "it is a store of version 2, and this program knows 1; use the program",
            ),
        ] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join(MARK), mark).unwrap();
            check(open(&path(name)), expected);
            check(Store::look(&path(name)), expected);
            assert_eq!(fs::read_to_string(path(name).join(MARK)).unwrap(), mark, "nothing is destroyed");
        }
        fs::create_dir(path("linked")).unwrap();
        symlink("/dev/zero", path("linked").join(MARK)).unwrap();
        check(open(&path("linked")), "a symbolic link");
        check(Store::look(root.path()), "it is no store: it lacks wirescope.store; name the folder");
        check(Store::look(&path("nowhere")), "can't be opened: No such file");
        check(Store::look(&path("file")), "can't be opened: Not a directory");
    }

    #[test]
    fn a_volume_lies_in_no_other_and_has_no_other_inside() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        drop(open(&path("store")).unwrap());
        fs::create_dir_all(path("store/2026-11-20/deep")).unwrap();
        check(open(&path("store/new")), "it lies inside the store");
        check(open(&path("store/2026-11-20/deep")), "it lies inside the store");
        check(open(root.path()), "another store lies in it");
        symlink(path("store/2026-11-20"), path("elsewhere")).unwrap();
        check(open(&path("elsewhere")), "it lies inside the store");
        drop(open(&path("store")).unwrap());
    }

    #[test]
    fn places_of_one_run_lie_beside_each_other_and_beside_the_dumps() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in ["a/in", "b", "dumps/in"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        symlink(path("a"), path("link")).unwrap();
        let faults = |names: &[&str], dumps: Option<&str>| {
            let places: Vec<Place> = names.iter().map(|name| Place::find(&path(name)).unwrap()).collect();
            let faults = Place::faults_together(&places, dumps.map(path).as_deref());
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let check = |names: &[&str], dumps, expected: &str| {
            let said = faults(names, dumps);
            assert!(said.lines().count() == 1 && said.contains(expected), "{names:?}: {said}");
        };
        assert_eq!(faults(&["a", "b", "new", "newer"], Some("dumps")), "");
        assert_eq!(faults(&["a"], Some("nowhere/at/all")), "");
        check(&["a", "a"], None, "it is the same folder as");
        check(&["a", "link"], None, "it is the same folder as");
        check(&["new", "./new"], None, "it is the same folder as");
        check(&["a", "b", "a/in"], None, "one lies inside the other");
        check(&["a/in", "link"], None, "one lies inside the other");
        check(&["a", "a/new"], None, "one lies inside the other");
        check(&["dumps", "a"], Some("dumps"), "it is the dump folder; choose a folder beside");
        check(&["dumps/in"], Some("dumps"), "it lies inside the dump folder");
        check(&["a"], Some("a/in"), "the dump folder lies in it");
    }

    #[test]
    fn what_the_user_may_not_do_is_refused_with_who_may() {
        let root = tempfile::tempdir().unwrap();
        let error = io::Error::from(ErrorKind::PermissionDenied);
        let said = system(root.path(), &error, "can't be made a store").to_string();
        let uid = root.path().metadata().unwrap().uid();
        assert!(
            said.ends_with(&format!("; use the rights of user {uid}, or choose another folder")),
            "{said}"
        );
        let full =
            system(root.path(), &io::Error::from_raw_os_error(28), "can't be made a store").to_string();
        assert!(full.contains("; free some space"), "{full}");
    }

    #[test]
    fn holds_change_one_after_the_other_and_not_while_files_go() {
        let root = tempfile::tempdir().unwrap();
        let volume = open(root.path()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for at in 0..10 {
                        let add = |holds: &mut Holds| holds.add(at, at, "", 0).map(|hold| hold.id);
                        Store::look(root.path()).unwrap().change_holds(add).unwrap();
                    }
                });
            }
        });
        let ids = |holds: &Holds| holds.list().iter().map(|hold| hold.id).collect::<Vec<_>>();
        let still = volume.holds().unwrap().unwrap();
        assert_eq!(ids(&still.holds), (1..=40).collect::<Vec<_>>());
        let other = fs::File::options().write(true).open(root.path().join(MARK)).unwrap();
        assert!(!try_lock(&other, HOLDS).unwrap(), "who changes holds waits");
        drop(still);
        assert!(try_lock(&other, HOLDS).unwrap());
        assert!(volume.holds().unwrap().is_none(), "they are being changed");
        drop(other);
        assert!(volume.holds().unwrap().is_some());
        let refused = Store::look(root.path()).unwrap().change_holds(|holds| holds.remove(99));
        assert!(refused.is_err() && ids(&volume.holds().unwrap().unwrap().holds).len() == 40);
        fs::write(root.path().join(HOLDS_FILE), "?").unwrap();
        assert!(volume.holds().unwrap_err().to_string().contains("nothing in this store is deleted"));
        assert!(volume.holds().is_err(), "and the lock was given back");
    }

    #[test]
    fn what_is_foreign_is_told_by_its_name_counted_and_a_few_are_named() {
        let own = "2026-11-20/2026-11-20T20-31-05.123456789Z_0a1b2c3d_ETHERNET_000001.pcapng";
        for name in [
            MARK,
            HOLDS_FILE,
            CHAIN_FILE,
            ".holds.json.part",
            ".wirescope.store.part",
            ".chain.jsonl.part",
            own,
            &format!("{own}.part"),
        ] {
            assert!(!is_foreign(Path::new(name)), "{name}");
        }
        let mut foreign = Foreign::default();
        for name in ["notes.txt", ".holds.json", "2026-11-20/x.pcapng", &own[11..], &format!("{own}.gz")] {
            assert!(is_foreign(Path::new(name)), "{name}");
            foreign.add(Path::new(name));
        }
        assert_eq!((foreign.count, foreign.names.len()), (5, 5));
        for _ in 0..100 {
            foreign.add(Path::new("more"));
        }
        assert_eq!((foreign.count, foreign.names.len()), (105, FOREIGN_NAMED_MAX));
        let listed = foreign.listed();
        assert!(listed.starts_with("notes.txt, .holds.json, ") && listed.ends_with(", more and others"));
    }
}
