//! A folder that was opened once: everything in it is made under that handle, whatever becomes of its path.
//!
//! The handle outlives a change of user, a folder above it that this user may not pass, and a rename. Files made here are never
//! readable for everybody, whatever the umask says.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, fstat, linkat, openat, readlinkat, unlinkat};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Mode of all files: the owner reads and writes, the group reads.
const MODE: Mode = Mode::from_raw_mode(0o640);
/// What nobody else gets.
const OTHERS: Mode = Mode::RWXO;

/// An open folder. Its path is for words only.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the folder `path`. That it may be written to shows when something is made in it.
    pub fn open(path: &Path) -> io::Result<Folder> {
        let handle = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Folder { handle, path: path.to_path_buf() })
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it was removed since it was opened: nothing can be made in it any more, even if another one has its path by now.
    pub fn is_removed(&self) -> bool {
        match fstat(&self.handle) {
            Ok(stat) => stat.st_nlink == 0 || self.is_called_deleted(),
            Err(error) => error == rustix::io::Errno::STALE, // the server's words for it
        }
    }

    /// What the kernel says of it: file systems laid over others don't count the links of a folder.
    fn is_called_deleted(&self) -> bool {
        let link = readlinkat(CWD, format!("/proc/self/fd/{}", self.handle.as_raw_fd()), Vec::new());
        let is_called = |name: &OsStr| name.as_encoded_bytes().ends_with(b" (deleted)") && !Path::new(name).exists();
        link.is_ok_and(|path| is_called(OsStr::from_bytes(path.as_bytes())))
    }

    /// A file that has no name yet, so that nothing half-written is ever found, not even after a crash.
    pub fn unnamed(&self) -> io::Result<File> {
        let file = self.open_file(OsStr::new("."), OFlags::TMPFILE | OFlags::RDWR)?;
        fchmod(&file, MODE)?; // the umask may have taken the group's right to read
        Ok(file)
    }

    /// Gives an unnamed file its name, by one act; fails where the name is taken.
    pub fn give_name(&self, file: &File, name: &OsStr) -> io::Result<()> {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, from, &self.handle, name, AtFlags::SYMLINK_FOLLOW)?)
    }

    /// A new file for writing; fails where the name is taken.
    pub fn create_new(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// A file to append to, made where it isn't there. No link is followed, and others lose their rights to it.
    pub fn append(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_file(name, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW)?;
        let mode = Mode::from_raw_mode(fstat(&file)?.st_mode);
        if mode.intersects(OTHERS) {
            fchmod(&file, mode.difference(OTHERS))?;
        }
        Ok(file)
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
        match self.open_file(log, OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        }
    }

    /// Removes a file.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    fn open_file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.handle, name, flags | OFlags::CLOEXEC, MODE)?.into())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
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
        assert_eq!(folder.give_name(&file, OsStr::new("x")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(folder.create_new(OsStr::new("y")).unwrap());
        drop(folder.append(OsStr::new("log")).unwrap());
        assert_eq!(std::fs::read(moved.join("x")).unwrap(), b"evidence");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        assert_eq!(["x", "y", "log"].map(|name| mode(&moved.join(name)) & 0o027), [0; 3]);
        assert_eq!(mode(&moved.join("x")), 0o640);
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
    fn trying_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        folder.try_writing(OsStr::new("log")).unwrap();
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
        std::fs::create_dir(root.path().join("log")).unwrap();
        assert!(folder.try_writing(OsStr::new("log")).is_err());
    }
}
