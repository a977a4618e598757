//! The files of a folder that are dumps: listed, recognised, deleted. No link is followed, and nothing else
//! is touched.
//!
//! A file counts by the blocks that it has on its disk, and only where name and mark say that it is
//! Wirescope's: a foreign file of a dump's name takes no room of the budget, and one with a hole takes as
//! little as it does of the disk.

use super::room::Gain;
use crate::mark::{FACTS, MARK_BYTES, PCAP, PCAPNG, is_dump_name, marked_stem};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use scope_folder::{Folder, locks};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};

/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// Files whose mark is remembered; those of more are looked into at each reading of the folder.
const KNOWN_MAX: usize = 100_000;

/// A file with a dump's name. Ordered by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// Time of its last change, ns since the epoch.
    changed_ns: i128,
    pub name: String,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// Which file it is, and how long: another one may get its name.
    identity: (u64, u64),
    /// What deleting it gives back on its file system, bytes: nothing while it has another name elsewhere.
    disk: u64,
}

/// A finished dump that may be deleted.
#[derive(Debug)]
pub(super) struct OldDump {
    /// Its files, what vouches for them last.
    pub files: Vec<Entry>,
}

impl OldDump {
    /// What deleting it gives.
    pub fn gain(&self) -> Gain {
        self.files
            .iter()
            .fold(Gain::default(), |sum, file| sum.and(Gain { bytes: file.bytes, disk: file.disk }))
    }
}

/// What a file with a dump's name is found to belong to.
pub(super) enum Found {
    /// A finished dump.
    Dump(OldDump),
    /// One whose files are just getting their names.
    Publishing,
    /// Not known for one of Wirescope's: it is left alone.
    Foreign,
}

impl Entry {
    /// The name without its ending, and the ending.
    fn parts(&self) -> (&str, &str) {
        self.name.rsplit_once('.').unwrap_or((&self.name, ""))
    }
}

/// Which files bear a mark, as they were found when the folder was last read.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By name: which file it was, and whether it is marked.
    marks: BTreeMap<String, ((u64, u64), i128, bool)>,
}

impl Known {
    /// Whether the file is marked as a dump's: by what was found before, where it is still that file.
    fn is_marked(&self, folder: &Folder, entry: &Entry) -> bool {
        match self.marks.get(&entry.name) {
            Some((identity, changed_ns, marked))
                if (*identity, *changed_ns) == (entry.identity, entry.changed_ns) =>
            {
                *marked
            }
            _ => mark_of(folder, entry).is_some(),
        }
    }
}

/// Tells each file of a dump that Wirescope made: by its name and its mark, or, of a pcap file, by the marked
/// text beside it.
pub(super) fn list(folder: &Folder, known: &mut Known, mut each: impl FnMut(Entry)) -> io::Result<()> {
    let handle = openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut now = Known::default();
    let (mut vouchers, mut without_mark) = (BTreeSet::new(), Vec::new());
    for entry in Dir::new(handle)? {
        let entry = entry?;
        let Some(entry) = entry
            .file_name()
            .to_str()
            .ok()
            .filter(|name| is_dump_name(name))
            .and_then(|name| look_at(folder, name))
        else {
            continue;
        };
        if entry.parts().1 == PCAP {
            without_mark.push(entry);
            continue;
        }
        let marked = known.is_marked(folder, &entry);
        if now.marks.len() < KNOWN_MAX {
            now.marks.insert(entry.name.clone(), (entry.identity, entry.changed_ns, marked));
        }
        if marked {
            if entry.parts().1 == FACTS {
                vouchers.insert(entry.parts().0.to_string());
            }
            each(entry);
        }
    }
    *known = now;
    for entry in without_mark.into_iter().filter(|entry| is_vouched_for(entry.parts().0, &vouchers)) {
        each(entry);
    }
    Ok(())
}

/// Whether one of `vouchers` is the beginning of a name: all of it, or up to `_LINKTYPE` or `-2`.
fn is_vouched_for(stem: &str, vouchers: &BTreeSet<String>) -> bool {
    let ends = stem.match_indices(['_', '-']).map(|(at, _)| at).chain([stem.len()]);
    ends.into_iter().any(|end| vouchers.contains(&stem[..end]))
}

/// The file of that name, if it is one and no link.
pub(super) fn look_at(folder: &Folder, name: &str) -> Option<Entry> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let changed_ns = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let bytes = (stat.st_blocks as u64).saturating_mul(BLOCK_BYTES);
    let disk = if stat.st_nlink > 1 { 0 } else { bytes };
    is_file.then(|| Entry {
        changed_ns,
        name: name.to_string(),
        bytes,
        identity: (stat.st_ino, stat.st_size as u64),
        disk,
    })
}

/// The dump that `first`, one of `entries`, is a file of, with all that belong to it.
pub(super) fn dump_of(
    folder: &Folder,
    first: &Entry,
    entries: &VecDeque<Entry>,
    publishing: &BTreeSet<String>,
) -> Found {
    let beside = |entry: &&Entry| {
        let (stem, ending) = entry.parts();
        ending == FACTS && first.parts().0.starts_with(stem)
    };
    let voucher = if first.parts().1 == PCAP { entries.iter().find(beside) } else { Some(first) };
    let Some((voucher, stem)) = voucher.and_then(|voucher| Some((voucher, mark_of(folder, voucher)?))) else {
        let is_new = publishing.iter().any(|stem| first.name.starts_with(stem));
        return if is_new { Found::Publishing } else { Found::Foreign };
    };
    if publishing.contains(&stem) {
        return Found::Publishing;
    }
    let again =
        |entry: &Entry| suffix_of_again(entry.parts().0.strip_prefix(&stem).unwrap_or_default()).to_string();
    let belongs = |entry: &&Entry| {
        entry.name.starts_with(&stem)
            && again(entry) == again(voucher)
            && match entry.parts().1 {
                PCAPNG => mark_of(folder, entry).as_ref() == Some(&stem),
                PCAP => voucher.parts().1 == FACTS,
                _ => *entry == voucher,
            }
    };
    let mut files: Vec<Entry> = entries.iter().filter(belongs).cloned().collect();
    if files.iter().any(|file| is_being_made(folder, file)) {
        return Found::Publishing;
    }
    files.sort_by_key(|entry| entry.parts().1 == FACTS);
    Found::Dump(OldDump { files })
}

/// `-2` of `_LINUX_SLL-2`: what a file got because its name was taken.
fn suffix_of_again(rest: &str) -> &str {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    rest.rfind('-').filter(|at| digits(&rest[at + 1..])).map_or("", |at| &rest[at..])
}

/// The file, for reading; no link and no device.
fn open(folder: &Folder, entry: &Entry) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: File = openat(folder, entry.name.as_str(), flags, Mode::empty()).ok()?.into();
    (FileType::from_raw_mode(fstat(&file).ok()?.st_mode) == FileType::RegularFile).then_some(file)
}

/// Whether a run, this one or another, is still giving the files of its dump their names: until then it holds
/// a lock on each.
fn is_being_made(folder: &Folder, entry: &Entry) -> bool {
    open(folder, entry).is_some_and(|file| locks::is_locked(&file, locks::WHOLE).unwrap_or(false))
}

/// What the file says that it is a dump of.
fn mark_of(folder: &Folder, entry: &Entry) -> Option<String> {
    let file = open(folder, entry)?;
    let mut begin = Vec::new();
    file.take(MARK_BYTES as u64).read_to_end(&mut begin).ok()?;
    marked_stem(&entry.name, &begin)
}

/// What came of deleting a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    /// It is gone, by this run.
    Yes,
    /// It was gone already: another run, or somebody, was first.
    Gone,
    /// It is another file by now, or can't be deleted.
    No,
}

/// Deletes it if it is still what was looked at.
pub(super) fn delete(folder: &Folder, entry: &Entry) -> Deleted {
    match look_at(folder, &entry.name) {
        Some(now) if now.identity != entry.identity => Deleted::No,
        Some(_) => match folder.remove(OsStr::new(&entry.name)) {
            Ok(()) => Deleted::Yes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Deleted::Gone,
            Err(_) => Deleted::No,
        },
        None => match statat(folder, entry.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => Deleted::Gone,
            _ => Deleted::No,
        },
    }
}
