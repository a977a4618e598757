//! The folder of a volume and the folders of days in it: files that are open for writing, names, lengths,
//! room. Everything of a [`crate::disk::Disk`] but to write, which there are two ways for.

use crate::disk::{FileNumber, Room, Standing};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_setfl, fstatvfs, ftruncate};
use rustix::io::Errno;
use scope_folder::Folder;
use scope_folder::folder::{Entry, EntryKind};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};
use std::sync::Arc;

/// Files that may be open for writing at once: one for each link type, one that is recovered, and those that
/// end meanwhile.
pub const FILES_MAX: usize = 64;

/// The folder, and what is open in it.
pub struct Tree {
    volume: Arc<Folder>,
    files: Vec<Option<File>>,
    /// Files are opened with O_DIRECT.
    direct: bool,
}

/// Makes what is written to the file pass the page cache by.
pub fn set_direct(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, OFlags::DIRECT)?)
}

/// Reserves the space up to `bytes`, the length unchanged; `false` where the file system doesn't know how.
pub fn reserve(file: &File, bytes: NonZeroU64) -> io::Result<bool> {
    let call = || fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes.get());
    match rustix::io::retry_on_intr(call) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

/// Whether a folder is that of a day: `2026-11-20`.
fn is_day(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let is_right = |(at, byte): (usize, &u8)| match at {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    name.len() == 10 && name.iter().enumerate().all(is_right)
}

/// The plain files among `entries` of the folder `below`.
fn plain_files(entries: Vec<Entry>, below: &Path) -> Vec<Standing> {
    let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
    files.map(|Entry { name, len, taken, .. }| Standing { name: below.join(name), len, taken }).collect()
}

/// Folder below the volume's own, if any, and name of a file.
fn split(name: &Path) -> io::Result<(Option<&OsStr>, &OsStr)> {
    let mut parts = name.components().map(|part| match part {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Some(file)), None, None) => Ok((None, file)),
        (Some(Some(day)), Some(Some(file)), None) => Ok((Some(day), file)),
        _ => Err(refused(format!("{} is no name of a file in a volume", name.display()))),
    }
}

fn refused(words: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, words)
}

impl Tree {
    /// Nothing is open yet.
    pub fn new(volume: Arc<Folder>, direct: bool) -> Tree {
        Tree { volume, files: (0..FILES_MAX).map(|_| None).collect(), direct }
    }

    /// An open file.
    pub fn file(&self, file: FileNumber) -> io::Result<&File> {
        let found = self.files.get(file.0 as usize).and_then(Option::as_ref);
        found.ok_or_else(|| refused(format!("no file has the number {}", file.0)))
    }

    /// As [`crate::disk::Disk::create`].
    pub fn create(&mut self, name: &Path) -> io::Result<FileNumber> {
        let free = self.free()?;
        let (day, name) = split(name)?;
        let made = day.map(|day| self.volume.make_below(day)).transpose()?;
        let folder = made.as_ref().unwrap_or(&self.volume);
        let file = folder.create_new(name)?;
        let prepared = if self.direct { set_direct(&file) } else { Ok(()) };
        if let Err(error) = prepared {
            let _ = folder.remove(name); // it is empty
            return Err(error);
        }
        Ok(self.put(free, file))
    }

    /// As [`crate::disk::Disk::open`].
    pub fn open(&mut self, name: &Path) -> io::Result<FileNumber> {
        let free = self.free()?;
        let file = self.at(name, |folder, name| folder.writing(name))?;
        if self.direct {
            set_direct(&file)?;
        }
        Ok(self.put(free, file))
    }

    fn free(&self) -> io::Result<usize> {
        let all_taken = || io::Error::other(format!("a volume has at most {FILES_MAX} files open"));
        self.files.iter().position(Option::is_none).ok_or_else(all_taken)
    }

    fn put(&mut self, at: usize, file: File) -> FileNumber {
        self.files[at] = Some(file);
        FileNumber(at as u32)
    }

    /// Does something in the folder that `name` stands in.
    fn at<T>(&self, name: &Path, act: impl FnOnce(&Folder, &OsStr) -> io::Result<T>) -> io::Result<T> {
        match split(name)? {
            (None, name) => act(&self.volume, name),
            (Some(day), name) => act(&self.volume.below(day)?, name),
        }
    }

    /// As [`crate::disk::Disk::reserve`].
    pub fn reserve(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        let file = self.file(file)?;
        match NonZeroU64::new(bytes) {
            None => Ok(()),
            Some(bytes) => reserve(file, bytes).map(drop),
        }
    }

    /// As [`crate::disk::Disk::truncate`].
    pub fn truncate(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        let file = self.file(file)?;
        Ok(rustix::io::retry_on_intr(|| ftruncate(file, bytes))?)
    }

    /// As [`crate::disk::Disk::close`].
    pub fn close(&mut self, file: FileNumber) {
        if let Some(place) = self.files.get_mut(file.0 as usize) {
            *place = None;
        }
    }

    /// As [`crate::disk::Disk::rename`].
    pub fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let ((day, _), (other_day, to)) = (split(from)?, split(to)?);
        if day != other_day {
            return Err(refused(format!("{} stays in its folder", from.display())));
        }
        self.at(from, |folder, from| folder.rename(from, to))
    }

    /// As [`crate::disk::Disk::sync_names`].
    pub fn sync_names(&mut self, folder: &Path) -> io::Result<()> {
        if folder.as_os_str().is_empty() {
            return self.volume.sync();
        }
        match split(folder)? {
            (None, day) => self.volume.below(day)?.sync(),
            (Some(_), _) => Err(refused(format!("{} is no folder of a day", folder.display()))),
        }
    }

    /// As [`crate::disk::Disk::remove`].
    pub fn remove(&mut self, name: &Path) -> io::Result<()> {
        self.at(name, |folder, name| folder.remove(name))?;
        if let (Some(day), _) = split(name)? {
            let _ = self.volume.remove_below(day); // refused while something is in it
        }
        Ok(())
    }

    /// As [`crate::disk::Disk::list`]: in order of names, the volume's own files first.
    pub fn list(&mut self) -> io::Result<Vec<Standing>> {
        let entries = self.volume.entries()?;
        let is_day = |entry: &&Entry| entry.kind == EntryKind::Folder && is_day(&entry.name);
        let days: Vec<OsString> = entries.iter().filter(is_day).map(|entry| entry.name.clone()).collect();
        let mut standing = plain_files(entries, Path::new(""));
        for day in days {
            match self.volume.below(&day).and_then(|folder| folder.entries()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {} // removed just now
                entries => standing.extend(plain_files(entries?, Path::new(&day))),
            }
        }
        Ok(standing)
    }

    /// As [`crate::disk::Disk::read`]. What was read doesn't stay in the page cache: recovery reads each byte
    /// once.
    pub fn read(&mut self, name: &Path, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = self.at(name, |folder, name| folder.reading(name))?;
        let mut filled = 0;
        while filled < into.len() {
            match file.read_at(&mut into[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        forget(&file, at, filled as u64);
        Ok(filled)
    }

    /// As [`crate::disk::Disk::room`].
    pub fn room(&mut self) -> io::Result<Room> {
        let found = fstatvfs(&self.volume)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Room { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
    }
}

/// Tells the system that a range of the file isn't needed in the page cache any more.
pub fn forget(file: &File, at: u64, bytes: u64) {
    let Some(bytes) = NonZeroU64::new(bytes) else { return };
    let _ = fadvise(file, at, Some(bytes), Advice::DontNeed); // advice only
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_day_at_most_and_leads_nowhere_else() {
        let check = |name: &str, expected: Option<(Option<&str>, &str)>| {
            let found = split(Path::new(name)).ok();
            let expected = expected.map(|(day, name)| (day.map(OsStr::new), OsStr::new(name)));
            assert_eq!(found, expected, "{name}");
        };
        check("a", Some((None, "a")));
        check("2026-11-20/a", Some((Some("2026-11-20"), "a")));
        for name in ["", "/a", "../a", "a/../b", "a/b/c", "a/..", "/"] {
            check(name, None);
        }
        for (name, expected) in
            [("2026-11-20", true), ("2026-1-20", false), ("2026-11-2x", false), ("2026_11_20", false)]
        {
            assert_eq!(is_day(OsStr::new(name)), expected, "{name}");
        }
    }
}
