//! A folder that was opened once: everything in it is made under that handle, whatever becomes of its path.
//!
//! The handle outlives a change of user, a folder above it that this user may not pass, and a rename. Files
//! made here are never readable for everybody, whatever the umask says; those of `nobody`, whom several
//! share, for that user alone.

use crate::plain::{expect_own, expect_plain};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fchmod, fchown, fstat, fsync, linkat,
    mkdirat, openat, readlinkat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Mode of all files: the owner reads and writes, the group reads.
const MODE: Mode = Mode::from_raw_mode(0o640);
/// Mode of files for the owner only.
const OTHERS: Mode = Mode::RWXO;

/// Mode of the files of `nobody`, user or group: programs that have nothing to do with each other are that
/// one.
const MODE_OF_NOBODY: Mode = Mode::from_raw_mode(0o600);
/// Modes of folders, as those of files: the owner writes, the group reads.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o750);
const FOLDER_MODE_OF_NOBODY: Mode = Mode::from_raw_mode(0o700);
/// The number of `nobody` and of its group.
const NOBODY: u32 = 65534;

/// What stands in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// What it is.
    pub kind: EntryKind,
    /// Length, bytes.
    pub len: u64,
    /// What it takes of the disk, bytes: also what is reserved behind its end.
    pub taken: u64,
}

/// What an [`Entry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A plain file.
    File,
    /// A folder.
    Folder,
    /// Anything else: a link, a pipe, a device.
    Other,
}

/// An open folder. Its path is for words only.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
    /// What was opened ahead; `None`: it is opened when it is needed.
    ahead: Mutex<Option<Ahead>>,
}

/// What can't be opened any more when it is needed.
#[derive(Debug)]
struct Ahead {
    /// Files without a name.
    files: Vec<File>,
    /// The folder itself, for [`Folder::sync`].
    itself: OwnedFd,
}

impl Folder {
    /// Makes the folder `path`, unless it is there. A new one belongs to `owner` (user, group), if that is
    /// given; others have no rights to it, of `nobody`'s the group neither.
    pub fn make(path: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
        let (user, group) = owner.unwrap_or((geteuid().as_raw(), getegid().as_raw()));
        let mode = if user == NOBODY || group == NOBODY { FOLDER_MODE_OF_NOBODY } else { FOLDER_MODE };
        match mkdirat(CWD, path, mode) {
            Err(Errno::EXIST) => return Ok(()),
            made => made?,
        }
        let folder = openat(
            CWD,
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        fchmod(&folder, mode)?; // the umask may have taken the group's rights
        match owner {
            Some((user, group)) => {
                Ok(fchown(&folder, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
            }
            None => Ok(()),
        }
    }

    /// Opens the folder `path`. That it may be written to shows when something is made in it.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let handle = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Folder { handle, path: path.to_path_buf(), ahead: Mutex::default() })
    }

    /// The same folder, opened once more: not by its path, whose folders may be closed to who this process is now.
    ///
    /// # Errors
    /// The system's.
    pub fn again(&self) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(&self.handle, ".", flags, Mode::empty())?;
        Ok(Folder { handle, path: self.path.clone(), ahead: Mutex::default() })
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was removed since it was opened: nothing can be made in it any more, even if another one
    /// has its path by now.
    pub fn is_removed(&self) -> bool {
        match fstat(&self.handle) {
            Ok(stat) => stat.st_nlink == 0 || self.is_called_deleted(),
            Err(error) => error == rustix::io::Errno::STALE, // the server's words for it
        }
    }

    /// Whether its path still leads to it: not if it was moved, removed or unmounted, or if something is mounted
    /// over it. Where the path can't be followed any more, only whether it was removed is known.
    pub fn is_at_its_path(&self) -> bool {
        let Ok(own) = fstat(&self.handle) else { return false };
        match statat(CWD, &self.path, AtFlags::empty()) {
            Ok(found) => (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino),
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            Err(_) => !self.is_removed(),
        }
    }

    /// What the kernel says of it: file systems laid over others don't count the links of a folder.
    fn is_called_deleted(&self) -> bool {
        let link = readlinkat(CWD, format!("/proc/self/fd/{}", self.handle.as_raw_fd()), Vec::new());
        let is_called =
            |name: &OsStr| name.as_encoded_bytes().ends_with(b" (deleted)") && !Path::new(name).exists();
        link.is_ok_and(|path| is_called(OsStr::from_bytes(path.as_bytes())))
    }

    /// A file that has no name yet, so that nothing half-written is ever found, not even after a crash.
    ///
    /// # Errors
    /// The system's; or all that were [reserved](Folder::reserve) are taken.
    pub fn unnamed(&self) -> io::Result<File> {
        match &mut *self.ahead() {
            None => self.open_unnamed(),
            Some(ahead) => ahead.files.pop().ok_or_else(|| {
                io::Error::other(
                    "all files that could get a name here are used: no further one may be opened; write into a folder",
                )
            }),
        }
    }

    /// Opens `count` files without a name ahead, for a time when none can be opened here any more;
    /// [`Folder::unnamed`] hands these out, and no others, from here on. On a file system without unnamed
    /// files nothing is done.
    ///
    /// # Errors
    /// The system's.
    pub fn reserve(&self, count: usize) -> io::Result<()> {
        let files: io::Result<Vec<File>> = (0..count).map(|_| self.open_unnamed()).collect();
        match files {
            Err(error) if has_no_unnamed(&error) => Ok(()),
            files => {
                *self.ahead() = Some(Ahead { files: files?, itself: self.open_itself()? });
                Ok(())
            }
        }
    }

    /// Whether its file system makes files without a name, as far as that can be tried.
    pub fn makes_unnamed(&self) -> bool {
        !self.open_unnamed().is_err_and(|error| has_no_unnamed(&error))
    }

    fn ahead(&self) -> MutexGuard<'_, Option<Ahead>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_itself(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.handle, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn open_unnamed(&self) -> io::Result<File> {
        let file = self.open_file(OsStr::new("."), OFlags::TMPFILE | OFlags::RDWR)?;
        fchmod(&file, mode())?; // the umask may have taken the group's right to read
        Ok(file)
    }

    /// Gives an unnamed file its name, by one act; fails where the name is taken.
    pub fn give_name(&self, file: &File, name: &OsStr) -> io::Result<()> {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, from, &self.handle, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// A file that gets the name `name` when it is whole. Where the file system has no unnamed files it is
    /// called `.NAME.part` until then.
    pub fn draft(&self, name: &OsStr) -> io::Result<Draft<'_>> {
        match self.unnamed() {
            Ok(file) => Ok(Draft { folder: self, name: name.to_os_string(), file, part: None }),
            Err(error) if has_no_unnamed(&error) => self.part(name),
            Err(error) => Err(error),
        }
    }

    fn part(&self, name: &OsStr) -> io::Result<Draft<'_>> {
        let part = part_name(name);
        let file = self.create_new(&part)?;
        Ok(Draft { folder: self, name: name.to_os_string(), file, part: Some(part) })
    }

    /// A file that takes the place of the one called `name` when it is whole ([`Draft::replace`]). It is called
    /// `.NAME.part` until then; one that was left behind is removed. Whoever may replace the same file has to
    /// wait for each other.
    pub fn draft_over(&self, name: &OsStr) -> io::Result<Draft<'_>> {
        match self.part(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove(&part_name(name))?;
                self.part(name)
            }
            part => part,
        }
    }

    /// A new file for writing, with the mode of all files; fails where the name is taken.
    ///
    /// # Errors
    /// The system's; then nothing is left behind.
    pub fn create_new(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        if let Err(error) = fchmod(&file, mode()) {
            let _ = self.remove(name);
            return Err(error.into());
        }
        Ok(file)
    }

    /// A file to append to, made where it isn't there. Nothing but a plain file with one name is opened, and
    /// others lose their rights to it.
    pub fn append(&self, name: &OsStr) -> io::Result<File> {
        self.open_log(name, OFlags::CREATE)
    }

    /// A file that runs of this user share, made where it isn't there. As [`Folder::append`], for reading and
    /// writing at any place.
    pub fn shared(&self, name: &OsStr) -> io::Result<File> {
        if let Some(stat) = self.stat(name)? {
            expect_plain(&stat)?;
            expect_own(&stat)?;
        }
        let file =
            self.open_file(name, OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        let stat = fstat(&file)?;
        expect_plain(&stat)?;
        expect_own(&stat)?;
        fchmod(&file, MODE_OF_NOBODY)?; // not the business of others
        Ok(file)
    }

    /// Opens a file that is there for reading, or for reading and writing; `None` where the name is free.
    /// Nothing but a plain file with one name is opened.
    ///
    /// # Errors
    /// The system's; [`crate::NotPlain`] within the error says what stands there instead.
    pub fn existing(&self, name: &OsStr, writable: bool) -> io::Result<Option<File>> {
        let Some(stat) = self.stat(name)? else { return Ok(None) };
        expect_plain(&stat)?;
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let file = self.open_file(name, access | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        expect_plain(&fstat(&file)?)?;
        Ok(Some(file))
    }

    /// Number of the user and of the group that it belongs to.
    pub fn owner(&self) -> io::Result<(u32, u32)> {
        let stat = fstat(&self.handle)?;
        Ok((stat.st_uid, stat.st_gid))
    }

    /// Gives a new file to the folder's owner where root has made it, so that the owner's programs can read
    /// it; of any other user it stays the own.
    pub fn give_to_owner(&self, file: &File) -> io::Result<()> {
        if !geteuid().is_root() {
            return Ok(());
        }
        let (user, group) = self.owner()?;
        if user == NOBODY || group == NOBODY {
            fchmod(file, MODE_OF_NOBODY)?;
        }
        let facts = fstat(file)?;
        if (facts.st_uid, facts.st_gid) == (user, group) {
            return Ok(()); // a run that has given up its rights is refused the call
        }
        Ok(fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
    }

    /// Whether `name` is free, or a plain file with no other name.
    ///
    /// # Errors
    /// [`crate::NotPlain`] within the error says what stands there instead.
    pub fn is_plain_or_free(&self, name: &OsStr) -> io::Result<()> {
        self.stat(name)?.map_or(Ok(()), |stat| Ok(expect_plain(&stat)?))
    }

    /// Whether `name` leads to `file`: neither was moved or removed.
    pub fn leads_to(&self, name: &OsStr, file: &File) -> io::Result<bool> {
        let own = fstat(file)?;
        Ok(self.stat(name)?.is_some_and(|stat| (stat.st_dev, stat.st_ino) == (own.st_dev, own.st_ino)))
    }

    /// Whether a file of text ends without the end of its last line; `false` too where it can't be read.
    pub fn ends_within_a_line(&self, name: &OsStr) -> bool {
        let mut last = [b'\n'];
        let file = self.open_file(name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK);
        let read = file.and_then(|file| {
            let end = file.metadata()?.len();
            file.read_at(&mut last, end.saturating_sub(1))
        });
        read.is_ok() && last != [b'\n']
    }

    /// Whether new files can be made in it, and `log` appended to if it is there. Leaves nothing behind.
    pub fn try_writing(&self, log: &OsStr) -> io::Result<()> {
        match self.open_file(OsStr::new("."), OFlags::TMPFILE | OFlags::RDWR) {
            // A file system without unnamed files: that isn't for this to say.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error()) => {}
            other => drop(other?),
        }
        match self.stat(log)? {
            None => Ok(()),
            Some(_) => self.open_log(log, OFlags::empty()).map(drop),
        }
    }

    /// Waits until names given in it are on the disk.
    pub fn sync(&self) -> io::Result<()> {
        let synced = match &*self.ahead() {
            Some(ahead) => fsync(&ahead.itself),
            None => fsync(self.open_itself()?),
        };
        match synced {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()), // a file system that doesn't know how
            other => Ok(other?),
        }
    }

    /// The folder `name` in it. No link is followed.
    ///
    /// # Errors
    /// The system's.
    pub fn below(&self, name: &OsStr) -> io::Result<Folder> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(&self.handle, name, flags, Mode::empty())?;
        Ok(Folder { handle, path: self.path.join(name), ahead: Mutex::default() })
    }

    /// As [`Folder::below`]; made where it isn't there.
    ///
    /// # Errors
    /// The system's.
    pub fn make_below(&self, name: &OsStr) -> io::Result<Folder> {
        match mkdirat(&self.handle, name, folder_mode()) {
            Err(Errno::EXIST) => self.below(name),
            Err(error) => Err(error.into()),
            Ok(()) => {
                let made = self.below(name)?;
                fchmod(made.open_itself()?, folder_mode())?; // the umask may have taken the group's rights
                Ok(made)
            }
        }
    }

    /// Removes the folder `name` in it, which must be empty.
    ///
    /// # Errors
    /// The system's.
    pub fn remove_below(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.handle, name, AtFlags::REMOVEDIR)?)
    }

    /// What stands in it, by name.
    ///
    /// # Errors
    /// The system's. What is gone before it can be looked at is omitted.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for found in Dir::new(self.open_itself()?)? {
            let name = OsStr::from_bytes(found?.file_name().to_bytes()).to_os_string();
            if name == "." || name == ".." {
                continue;
            }
            let Some(stat) = self.stat(&name)? else { continue };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Folder,
                _ => EntryKind::Other,
            };
            let bytes = |number: i64| u64::try_from(number).unwrap_or(0);
            entries.push(Entry { name, kind, len: bytes(stat.st_size), taken: bytes(stat.st_blocks) * 512 });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Opens the plain file `name`, which is there and belongs to this user, for writing.
    ///
    /// # Errors
    /// The system's; [`crate::NotPlain`] within the error says what stands there instead.
    pub fn writing(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_plain(name, OFlags::WRONLY)?;
        expect_own(&fstat(&file)?)?;
        Ok(file)
    }

    /// Opens the plain file `name` for reading.
    ///
    /// # Errors
    /// The system's; [`crate::NotPlain`] within the error says what stands there instead.
    pub fn reading(&self, name: &OsStr) -> io::Result<File> {
        self.open_plain(name, OFlags::RDONLY)
    }

    /// Gives a file another name by one act; fails where that is taken.
    ///
    /// # Errors
    /// The system's.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match renameat_with(&self.handle, from, &self.handle, to, RenameFlags::NOREPLACE) {
            // A file system that can't say so: a second name is given only where it is free.
            Err(Errno::INVAL) => {
                linkat(&self.handle, from, &self.handle, to, AtFlags::empty())?;
                self.remove(from)
            }
            other => Ok(other?),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// What has that name; no link is followed.
    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Looked at before and after: opening a pipe would wait for a reader, and what the name leads to may
    /// change in between.
    fn open_log(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        self.is_plain_or_free(name)?;
        let file = self
            .open_file(name, flags | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        let stat = fstat(&file)?;
        expect_plain(&stat)?;
        expect_own(&stat)?;
        let found = Mode::from_raw_mode(stat.st_mode);
        let others = if mode() == MODE { OTHERS } else { OTHERS | Mode::RWXG };
        if flags.contains(OFlags::CREATE) && found.intersects(others) {
            fchmod(&file, found.difference(others))?;
        }
        Ok(file)
    }

    /// Looked at before and after, as in [`Folder::open_log`].
    fn open_plain(&self, name: &OsStr, how: OFlags) -> io::Result<File> {
        self.is_plain_or_free(name)?;
        let file = self.open_file(name, how | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        expect_plain(&fstat(&file)?)?;
        Ok(file)
    }

    fn open_file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.handle, name, flags | OFlags::CLOEXEC, mode())?.into())
    }
}

/// Mode of files that this process makes, by who it is now.
fn mode() -> Mode {
    if is_nobody() { MODE_OF_NOBODY } else { MODE }
}

/// The same for folders.
fn folder_mode() -> Mode {
    if is_nobody() { FOLDER_MODE_OF_NOBODY } else { FOLDER_MODE }
}

/// Whether this process is `nobody`, or in its group.
fn is_nobody() -> bool {
    // These never fail.
    geteuid().as_raw() == NOBODY || getegid().as_raw() == NOBODY
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// What a file is called until it is whole, where it needs a name.
fn part_name(name: &OsStr) -> OsString {
    let mut part = OsString::from(".");
    part.push(name);
    part.push(".part");
    part
}

/// What file systems say that have no unnamed files; the older ones take the flag for a folder to be opened.
fn has_no_unnamed(error: &io::Error) -> bool {
    [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A file that isn't whole yet. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Draft<'a> {
    folder: &'a Folder,
    name: OsString,
    file: File,
    /// The name that it has meanwhile, where it needs one.
    part: Option<OsString>,
}

impl Draft<'_> {
    /// For writing.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file its name, by one act; fails where that is taken. Then it is on the disk under that
    /// name.
    pub fn publish(mut self) -> io::Result<()> {
        match self.part.take() {
            None => self.folder.give_name(&self.file, &self.name)?,
            Some(part) => {
                let renamed = renameat_with(
                    &self.folder.handle,
                    &part,
                    &self.folder.handle,
                    &self.name,
                    RenameFlags::NOREPLACE,
                );
                if renamed.is_err() {
                    self.part = Some(part);
                }
                renamed?;
            }
        }
        self.folder.sync()
    }

    /// Takes the place of what has its name, by one act. Then it is on the disk under that name, if its bytes
    /// are.
    pub fn replace(mut self) -> io::Result<()> {
        let part = match self.part.clone() {
            Some(part) => part,
            None => {
                let part = part_name(&self.name);
                self.folder.give_name(&self.file, &part)?;
                self.part.insert(part).clone()
            }
        };
        // By the newer call, the only one that a run may make.
        let (folder, flags) = (&self.folder.handle, RenameFlags::empty());
        renameat_with(folder, &part, folder, &self.name, flags)?;
        self.part = None;
        self.folder.sync()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let _ = self.folder.remove(&part); // half a file says nothing true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_are_made_in_the_opened_folder_even_when_its_path_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let (path, moved) = (root.path().join("a"), root.path().join("b"));
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::open(&path).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        std::fs::create_dir(&path).unwrap();
        let mut file = folder.unnamed().unwrap();
        file.write_all(b"evidence").unwrap();
        folder.give_name(&file, OsStr::new("x")).unwrap();
        assert_eq!(
            folder.give_name(&file, OsStr::new("x")).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        drop(folder.create_new(OsStr::new("y")).unwrap());
        drop(folder.append(OsStr::new("log")).unwrap());
        assert_eq!(std::fs::read(moved.join("x")).unwrap(), b"evidence");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        assert_eq!(["x", "y", "log"].map(|name| mode(&moved.join(name)) & 0o027), [0; 3]);
        assert_eq!(mode(&moved.join("x")), if geteuid().as_raw() == NOBODY { 0o600 } else { 0o640 });
    }

    #[test]
    fn a_draft_has_no_name_before_it_is_whole_and_overwrites_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let names = || {
            let mut names: Vec<String> = root
                .path()
                .read_dir()
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let drafts: [fn(&Folder) -> Draft<'_>; 2] = [
            |folder| folder.draft(OsStr::new("ring")).unwrap(),
            |folder| folder.part(OsStr::new("ring")).unwrap(),
        ];
        for draft in drafts {
            let mut written = draft(&folder);
            written.file().write_all(b"half").unwrap();
            assert!(!names().contains(&"ring".to_string()));
            drop(written);
            assert!(names().is_empty(), "given up");
            let mut written = draft(&folder);
            written.file().write_all(b"whole").unwrap();
            written.publish().unwrap();
            assert_eq!(
                (names(), std::fs::read(root.path().join("ring")).unwrap()),
                (vec!["ring".to_string()], b"whole".to_vec())
            );
            assert_eq!(mode(&root.path().join("ring")), 0o640);
            assert_eq!(draft(&folder).publish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            std::fs::remove_file(root.path().join("ring")).unwrap();
            assert!(names().is_empty());
        }
    }

    #[test]
    fn a_draft_over_a_file_takes_its_place_at_once_and_one_left_behind_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let name = OsStr::new("list");
        let content = || std::fs::read_to_string(root.path().join("list")).unwrap();
        let drafts: [fn(&Folder) -> Draft<'_>; 2] = [
            |folder| folder.draft(OsStr::new("list")).unwrap(),
            |folder| folder.draft_over(OsStr::new("list")).unwrap(),
        ];
        for (text, draft) in ["first", "second"].into_iter().zip(drafts) {
            let mut draft = draft(&folder);
            draft.file().write_all(text.as_bytes()).unwrap();
            draft.replace().unwrap();
            assert_eq!(content(), text);
        }
        drop(folder.draft_over(name).unwrap());
        std::fs::write(root.path().join(".list.part"), "left by a crash").unwrap();
        let mut draft = folder.draft_over(name).unwrap();
        draft.file().write_all(b"third").unwrap();
        assert_eq!(content(), "second", "until it is whole");
        draft.replace().unwrap();
        assert_eq!((content().as_str(), std::fs::read_dir(root.path()).unwrap().count()), ("third", 1));
        assert_eq!(mode(&root.path().join("list")) & 0o027, 0);
    }

    #[test]
    fn an_existing_file_is_opened_only_if_it_is_plain() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        assert!(folder.existing(OsStr::new("x"), false).unwrap().is_none());
        std::fs::write(root.path().join("x"), "").unwrap();
        assert!(folder.existing(OsStr::new("x"), true).unwrap().is_some());
        std::os::unix::fs::symlink("x", root.path().join("link")).unwrap();
        let error = folder.existing(OsStr::new("link"), false).unwrap_err();
        assert!(error.to_string().contains("a symbolic link"), "{error}");
        assert_eq!(folder.owner().unwrap().0, geteuid().as_raw());
    }

    #[test]
    fn a_folder_is_made_with_its_mode_and_one_that_is_there_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("new");
        Folder::make(&path, None).unwrap();
        assert_eq!(mode(&path), if geteuid().as_raw() == NOBODY { 0o700 } else { 0o750 });
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Folder::make(&path, None).unwrap();
        assert_eq!(mode(&path), 0o755);
        assert_eq!(Folder::make(&root.path().join("a/b"), None).unwrap_err().kind(), io::ErrorKind::NotFound);
        if geteuid().is_root() {
            use std::os::unix::fs::MetadataExt;
            let given = root.path().join("given");
            Folder::make(&given, Some((12_345, NOBODY))).unwrap();
            let facts = given.metadata().unwrap();
            assert_eq!((facts.uid(), facts.gid(), mode(&given)), (12_345, NOBODY, 0o700));
        }
    }

    #[test]
    fn what_root_makes_belongs_to_the_folders_owner() {
        use std::os::unix::fs::MetadataExt;
        if !geteuid().is_root() {
            return; // only root gives files away
        }
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        for (user, expected) in [(12_345, 0o640), (NOBODY, 0o600)] {
            std::os::unix::fs::chown(root.path(), Some(user), Some(user)).unwrap();
            let mut draft = folder.draft_over(OsStr::new("x")).unwrap();
            folder.give_to_owner(draft.file()).unwrap();
            draft.replace().unwrap();
            let facts = root.path().join("x").metadata().unwrap();
            assert_eq!((facts.uid(), facts.gid(), facts.mode() & 0o7777), (user, user, expected));
        }
    }

    #[test]
    fn a_log_that_everybody_could_read_no_longer_is_and_a_link_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("log");
        std::fs::write(&log, "old\n").unwrap();
        std::fs::set_permissions(&log, PermissionsExt::from_mode(0o646)).unwrap();
        std::os::unix::fs::symlink(&log, root.path().join("link")).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        folder.append(OsStr::new("log")).unwrap().write_all(b"new\n").unwrap();
        assert_eq!((std::fs::read_to_string(&log).unwrap().as_str(), mode(&log)), ("old\nnew\n", 0o640));
        assert!(folder.append(OsStr::new("link")).is_err());
    }

    #[test]
    fn a_log_that_belongs_to_somebody_else_is_not_continued() {
        if !geteuid().is_root() {
            return; // only root gives files away
        }
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("log");
        std::fs::write(&log, "old\n").unwrap();
        std::os::unix::fs::chown(&log, Some(12_345), None).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        for refused in [folder.append(OsStr::new("log")).map(drop), folder.try_writing(OsStr::new("log"))] {
            assert!(
                refused.unwrap_err().to_string().starts_with("it belongs to another user (number 12345)")
            );
        }
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "old\n");
    }

    #[test]
    fn a_folder_that_is_removed_is_known_to_be_and_one_that_is_moved_is_not() {
        let root = tempfile::tempdir().unwrap();
        let (path, moved) = (root.path().join("a"), root.path().join("b (deleted)"));
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::open(&path).unwrap();
        assert!(!folder.is_removed());
        std::fs::rename(&path, &moved).unwrap();
        assert!(!folder.is_removed());
        std::fs::remove_dir(&moved).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(folder.is_removed(), "another folder under its path is another folder");
    }

    #[test]
    fn what_is_no_plain_file_with_one_name_is_neither_opened_nor_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let folder = Folder::open(root.path()).unwrap();
        std::os::unix::fs::symlink("/nowhere", path("link")).unwrap();
        rustix::fs::mknodat(CWD, path("pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o666), 0)
            .unwrap();
        std::fs::write(path("first"), "").unwrap();
        std::fs::hard_link(path("first"), path("second")).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        for (name, what) in [
            ("link", "a symbolic link"),
            ("pipe", "a pipe"),
            ("second", "another name"),
            ("folder", "a folder"),
        ] {
            for result in [folder.append(OsStr::new(name)).map(drop), folder.try_writing(OsStr::new(name))] {
                let error = result.unwrap_err();
                assert!(
                    error.get_ref().is_some_and(|inner| inner.is::<crate::NotPlain>()),
                    "{name}: {error}"
                );
                assert!(error.to_string().contains(what), "{name}: {error}");
            }
        }
    }

    #[test]
    fn a_name_leads_to_its_file_until_that_is_moved_or_removed() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let log = OsStr::new("log");
        let file = folder.append(log).unwrap();
        assert!(folder.leads_to(log, &file).unwrap());
        std::fs::rename(root.path().join("log"), root.path().join("log.1")).unwrap();
        assert!(!folder.leads_to(log, &file).unwrap());
        drop(folder.append(log).unwrap());
        assert!(!folder.leads_to(log, &file).unwrap(), "another one");
    }

    #[test]
    fn what_is_reserved_is_handed_out_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        folder.reserve(2).unwrap();
        let files = [folder.unnamed().unwrap(), folder.unnamed().unwrap()];
        assert!(
            folder
                .unnamed()
                .unwrap_err()
                .to_string()
                .contains("all files that could get a name here are used")
        );
        for (file, name) in files.iter().zip(["a", "b"]) {
            folder.give_name(file, OsStr::new(name)).unwrap();
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_below_is_made_once_listed_and_removed_when_it_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let (folder, day) = (Folder::open(root.path()).unwrap(), OsStr::new("2026-11-20"));
        assert_eq!(folder.below(day).unwrap_err().kind(), io::ErrorKind::NotFound);
        for _ in 0..2 {
            drop(folder.make_below(day).unwrap().create_new(OsStr::new("a")));
        }
        let below = folder.below(day).unwrap();
        let found = |folder: &Folder| -> Vec<(String, EntryKind, u64)> {
            let entries = folder.entries().unwrap().into_iter();
            entries.map(|entry| (entry.name.into_string().unwrap(), entry.kind, entry.len)).collect()
        };
        std::os::unix::fs::symlink("a", root.path().join("2026-11-20/b")).unwrap();
        std::fs::write(root.path().join("2026-11-20/c"), "four").unwrap();
        let (file, other) = (EntryKind::File, EntryKind::Other);
        let names = [("a".into(), file, 0), ("b".into(), other, 1), ("c".into(), file, 4)];
        assert_eq!(found(&below), names);
        assert_eq!(found(&folder)[0].1, EntryKind::Folder);
        assert_eq!(mode(&root.path().join(day)), if geteuid().as_raw() == NOBODY { 0o700 } else { 0o750 });
        assert_eq!(mode(&root.path().join("2026-11-20/a")) & 0o137, 0);
        assert_eq!(folder.remove_below(day).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        for name in ["a", "b", "c"] {
            below.remove(OsStr::new(name)).unwrap();
        }
        folder.remove_below(day).unwrap();
        assert!(folder.entries().unwrap().is_empty());
    }

    #[test]
    fn a_file_gets_another_name_over_no_other_file_and_only_a_plain_one_is_opened() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let [a, b, link] = ["a", "b", "link"].map(OsStr::new);
        drop([a, b].map(|name| folder.create_new(name).unwrap()));
        assert_eq!(folder.rename(a, b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        folder.remove(b).unwrap();
        folder.rename(a, b).unwrap();
        std::os::unix::fs::symlink("b", root.path().join("link")).unwrap();
        folder.writing(b).unwrap().write_all(b"x").unwrap();
        assert_eq!(io::read_to_string(folder.reading(b).unwrap()).unwrap(), "x");
        for refused in [folder.writing(link), folder.reading(link)] {
            assert!(refused.unwrap_err().to_string().contains("a symbolic link"));
        }
        assert_eq!(folder.writing(a).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn trying_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        folder.try_writing(OsStr::new("log")).unwrap();
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        std::fs::create_dir(root.path().join("log")).unwrap();
        assert!(folder.try_writing(OsStr::new("log")).is_err());
    }
}
