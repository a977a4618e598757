//! The page of a member: how far it has read, and whether it waits. The run makes it, the member writes it, the run reads it,
//! both as one reads and writes a file.
//!
//! ```text
//! 0          8           16     24       32      40
//! | WSMEMBER | began     | read | missed | waits | done, of each lane | removed |    numbers of 64 bits, little-endian
//! ```
//! Packets are those of all lanes. `done` is the number of the first segment of a lane that the member still needs: for
//! groups, which keep what is unread, and for readers of the ring that some of it is held for. `removed` alone is the run's
//! to write: the membership is over before the run is.
//!
//! It has no order with anything else: a look may see some numbers of now and some of a moment ago. So the run holds them
//! against what it has published, see [`Progress::within`].

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// Lanes that a page can tell of: more than a member's own memory has; of the ring, those that can be held for it.
pub const LANES: usize = 32;
/// Bytes of it that mean something.
const USED_BYTES: usize = 40 + 8 * LANES;
/// Where the run says that the membership is over.
const REMOVED_AT: u64 = USED_BYTES as u64;
const MAGIC: &[u8; 8] = b"WSMEMBER";

/// How far a member says that it is: packets of all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets in front of where it began.
    pub began: u64,
    /// Read.
    pub read: u64,
    /// Recycled before it had them.
    pub missed: u64,
    /// It waits for more.
    pub waits: bool,
    /// Of each lane the first segment that it still needs.
    pub done: [u64; LANES],
}

/// What a member was given, and what became of it: `given = read + missed + behind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Published since it began.
    pub given: u64,
    /// Read.
    pub read: u64,
    /// Recycled before it had them.
    pub missed: u64,
    /// Published and still to be read.
    pub behind: u64,
}

impl Progress {
    /// The same of `published` packets, whatever it says: no more is read and missed than was given.
    pub fn within(&self, published: u64) -> Standing {
        let given = published.saturating_sub(self.began);
        let read = self.read.min(given);
        let missed = self.missed.min(given - read);
        Standing { given, read, missed, behind: given - read - missed }
    }

    fn to_bytes(self) -> [u8; USED_BYTES] {
        let mut bytes = [0; USED_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        let numbers = [self.began, self.read, self.missed, u64::from(self.waits)];
        for (place, number) in bytes[8..].chunks_exact_mut(8).zip(numbers.into_iter().chain(self.done)) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// `None`: nothing was said yet, or what is said is no progress.
    fn of(bytes: &[u8; USED_BYTES]) -> Option<Progress> {
        let number = |at: usize| {
            let bytes = bytes[at..at + 8].iter().rev();
            bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        (bytes[..8] == *MAGIC).then(|| Progress {
            began: number(8),
            read: number(16),
            missed: number(24),
            waits: number(32) != 0,
            done: std::array::from_fn(|lane| number(40 + 8 * lane)),
        })
    }
}

/// The page of one member.
#[derive(Debug)]
pub struct Page(OwnedFd);

impl Page {
    /// A new one, which nobody can shorten or lengthen.
    ///
    /// # Errors
    /// The system's.
    pub fn create() -> io::Result<Page> {
        let file = memfd_create(c"wirescope-member", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, PAGE_BYTES)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Page(file))
    }

    /// The one that the run has sent.
    pub fn of(file: OwnedFd) -> Page {
        Page(file)
    }

    /// Says how far its member is.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, progress: &Progress) -> io::Result<()> {
        pwrite(&self.0, &progress.to_bytes(), 0)?;
        Ok(())
    }

    /// What its member says; `None`: nothing yet, or nothing that can be meant.
    pub fn read(&self) -> Option<Progress> {
        let mut bytes = [0; USED_BYTES];
        let got = pread(&self.0, &mut bytes, 0).ok()?;
        Progress::of(&bytes).filter(|_| got == USED_BYTES)
    }

    /// Nobody has said anything: for the next member.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(&self) -> io::Result<()> {
        pwrite(&self.0, &[0; USED_BYTES + 8], 0)?;
        Ok(())
    }

    /// Says that the membership is over before the run is: messages may find no room with one that doesn't read.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self) -> io::Result<()> {
        pwrite(&self.0, &1u64.to_le_bytes(), REMOVED_AT)?;
        Ok(())
    }

    /// Whether the run has said so.
    pub fn is_removed(&self) -> bool {
        let mut bytes = [0; 8];
        pread(&self.0, &mut bytes, REMOVED_AT).is_ok() && bytes != [0; 8]
    }
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate, fcntl_get_seals};

    #[test]
    fn what_a_member_says_is_read_and_an_empty_page_says_nothing() {
        let page = Page::create().unwrap();
        assert_eq!(page.read(), None);
        let done = std::array::from_fn(|lane| 1 << lane);
        let said = Progress { began: 1, read: u64::MAX, missed: 3, waits: true, done };
        page.write(&said).unwrap();
        assert_eq!(page.read(), Some(said));
        assert!(!page.is_removed());
        page.remove().unwrap();
        assert!(page.is_removed() && page.read() == Some(said));
        page.clear().unwrap();
        assert!(page.read().is_none() && !page.is_removed());
    }

    #[test]
    fn a_page_can_t_be_shortened_and_a_hole_in_it_says_nothing() {
        let page = Page::create().unwrap();
        page.write(&Progress::default()).unwrap();
        assert!(
            fcntl_get_seals(&page).unwrap().contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        );
        assert!(ftruncate(&page, 0).is_err() && ftruncate(&page, 1 << 20).is_err());
        fallocate(&page, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, PAGE_BYTES).unwrap();
        assert_eq!(page.read(), None);
    }

    #[test]
    fn whatever_a_page_says_no_more_is_read_and_missed_than_was_given() {
        let check = |(began, read, missed), published, (given, own, lost, behind)| {
            let standing = Progress { began, read, missed, ..Progress::default() }.within(published);
            assert_eq!(
                standing,
                Standing { given, read: own, missed: lost, behind },
                "{began} {read} {missed}"
            );
        };
        check((10, 5, 2), 20, (10, 5, 2, 3));
        check((0, 0, 0), 20, (20, 0, 0, 20));
        check((10, 50, 2), 20, (10, 10, 0, 0));
        check((10, 5, u64::MAX), 20, (10, 5, 5, 0));
        check((u64::MAX, 5, 2), 20, (0, 0, 0, 0));
        check((0, u64::MAX, u64::MAX), u64::MAX, (u64::MAX, u64::MAX, 0, 0));
    }
}
