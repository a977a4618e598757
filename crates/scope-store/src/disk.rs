//! What the store asks of a file system: a seam, so that writing, recovery and retention run on the real disk
//! and, in tests, on one that loses power, stalls, fills up or fails.
//!
//! ```text
//! begin      write, sync: begun, and finished later in any order            by the volume's thread only
//! finish     what has finished since, its bytes given back
//! at once    everything else: it waits, and a disk that hangs holds up this volume alone
//! ```
//! A write owns what it writes until it has finished: a segment stays pinned for as long, whatever becomes of
//! the writer. Names are paths below the volume's folder: `2026-11-20/NAME.pcapng`.

use scope_ring::Pinned;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Writes begin at a multiple of this in the file and in memory, and are as long: what O_DIRECT wants.
pub const PAGE_BYTES: usize = 4096;

/// A file of a volume that is open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u32);

/// What is written: whole pages.
pub enum Bytes {
    /// A range of a segment in the ring, which stays pinned: committed bytes only.
    Ring(Pinned, Range<usize>),
    /// Pages of the writer's own.
    Own(Pages),
}

/// Whole pages of memory at a multiple of [`PAGE_BYTES`].
pub struct Pages {
    /// One page more than needed; never grows, so it stays where it is.
    memory: Vec<u8>,
    range: Range<usize>,
}

impl Pages {
    /// `count` pages of zeros.
    pub fn zeroed(count: usize) -> Pages {
        let memory = vec![0; (count + 1) * PAGE_BYTES];
        let from = memory.as_ptr().align_offset(PAGE_BYTES); // at most a page, for bytes
        Pages { memory, range: from..from + count * PAGE_BYTES }
    }

    /// Their bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[self.range.clone()]
    }

    /// Their bytes, to be written to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.range.clone()]
    }
}

/// Something begun, with the volume's own number for it.
pub struct Begun {
    /// The caller's number.
    pub tag: u64,
    /// What is done.
    pub act: Act,
}

/// What takes its time on a disk.
pub enum Act {
    /// Writes `bytes` at offset `at`.
    Write {
        /// Into which file.
        file: FileNumber,
        /// Offset, a multiple of [`PAGE_BYTES`].
        at: u64,
        /// What.
        bytes: Bytes,
    },
    /// Everything of the file that was written and finished before is on the disk for good (`fdatasync`).
    Sync {
        /// Which file.
        file: FileNumber,
    },
}

/// Something finished.
pub struct Finished {
    /// What was begun: a segment's pin goes with it.
    pub begun: Begun,
    /// The system's answer. A write that wrote less than all is an error.
    pub result: io::Result<()>,
}

/// Room of a file system, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub total: u64,
    /// Free for this user.
    pub free: u64,
}

/// What stands in a volume's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Path below the volume's folder.
    pub name: std::path::PathBuf,
    /// Length of the file, bytes.
    pub len: u64,
    /// What it takes of the disk, its reserve included, bytes.
    pub taken: u64,
}

/// A file system as a volume's thread uses it. One thread, one value.
pub trait Disk {
    /// Makes the file `name`, which must not exist, and the folder that it stands in; open for writing.
    fn create(&mut self, name: &Path) -> io::Result<FileNumber>;

    /// Opens a file that exists for writing.
    fn open(&mut self, name: &Path) -> io::Result<FileNumber>;

    /// Reserves the space up to `bytes` without changing the file's length.
    fn reserve(&mut self, file: FileNumber, bytes: u64) -> io::Result<()>;

    /// Begins something; where the queue is full, it waits until there is a place. Writes that follow each
    /// other in a file may be joined; what was begun is on its way with the next [`Disk::finish`]. From that,
    /// too, comes whether it was done, also of what could not even be begun.
    fn begin(&mut self, begun: Begun) -> io::Result<()>;

    /// What has finished. Waits up to `wait` for the first one if anything was begun; with zero it doesn't.
    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()>;

    /// How many were begun and aren't finished.
    fn pending(&self) -> usize;

    /// Makes the file `bytes` long and gives back what was reserved behind.
    fn truncate(&mut self, file: FileNumber, bytes: u64) -> io::Result<()>;

    /// Closes it. Nothing of it may be pending.
    fn close(&mut self, file: FileNumber);

    /// Gives the file another name, which must not exist, in the same folder.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;

    /// Names in `folder` (empty: the volume's own) that were made, given or taken are on the disk for good.
    fn sync_names(&mut self, folder: &Path) -> io::Result<()>;

    /// Removes a file; of the folder that is then empty it makes no fuss.
    fn remove(&mut self, name: &Path) -> io::Result<()>;

    /// All plain files of the volume's folder and the folders of days in it.
    fn list(&mut self) -> io::Result<Vec<Standing>>;

    /// Reads a piece of a file: as many bytes as there are, at most `into.len()`.
    fn read(&mut self, name: &Path, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// What is left.
    fn room(&mut self) -> io::Result<Room>;
}

/// Reads until `into` is full or the file ends; how many bytes.
pub fn read_all(disk: &mut dyn Disk, name: &Path, at: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match disk.read(name, at + done as u64, &mut into[done..])? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

impl Bytes {
    /// The bytes themselves.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Ring(pinned, range) => pinned.stretch(range.clone()),
            Bytes::Own(pages) => pages.as_slice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_lie_at_whole_pages_and_are_zero() {
        for count in [0, 1, 3, 512] {
            let mut pages = Pages::zeroed(count);
            assert_eq!(pages.as_slice().len(), count * PAGE_BYTES);
            assert_eq!(pages.as_slice().as_ptr() as usize % PAGE_BYTES, 0);
            assert!(pages.as_slice().iter().all(|&byte| byte == 0));
            pages.as_mut_slice().fill(7);
            assert!(pages.as_slice().iter().all(|&byte| byte == 7));
        }
    }
}
