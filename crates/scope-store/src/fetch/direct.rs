//! Reads that go past the page cache (`O_DIRECT`), by a descriptor of the same file.
//!
//! ```text
//! file:    |....front....wanted wanted wanted....|      the window: whole blocks of 4 KiB
//!                        ▼
//! memory:  |....front....wanted wanted wanted....|      aligned like them; what is wanted is copied out of it
//! ```

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// What offsets, lengths and memory are multiples of. A disk with longer sectors refuses the read.
const ALIGN: usize = 4096;
/// One read goes for so much at most, bytes.
pub(super) const PIECE_BYTES: usize = 512 << 10;

/// The file, opened once more, and memory for a piece of it.
pub(super) struct Direct {
    file: File,
    memory: Vec<u8>,
    /// Where in the memory the first block begins, and how long the longest window is.
    begin: usize,
    most: usize,
    /// Bytes of the window in front of what is wanted.
    front: usize,
}

impl Direct {
    /// For reads of so many bytes.
    ///
    /// # Errors
    /// The system's: the file system knows no such reads, or the file may not be opened once more.
    pub fn open(file: &File, bytes: usize) -> io::Result<Direct> {
        // Not by its name, which may lead to another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, path, flags, Mode::empty())?);
        let most = (bytes.next_multiple_of(ALIGN) + ALIGN).min(PIECE_BYTES);
        let memory = vec![0; most + ALIGN];
        let begin = memory.as_ptr().align_offset(ALIGN);
        Ok(Direct { file, memory, begin, most, front: 0 })
    }

    /// The file, a place in it, and memory for what stands there: of `bytes` bytes from `offset` on as many as one read
    /// goes for.
    pub fn window(&mut self, offset: u64, bytes: usize) -> (&File, u64, &mut [u8]) {
        self.front = offset as usize % ALIGN;
        let len = (self.front + bytes).next_multiple_of(ALIGN).min(self.most);
        (&self.file, offset - self.front as u64, &mut self.memory[self.begin..self.begin + len])
    }

    /// Copies what is wanted out of the window, of which so many bytes came; how many were.
    pub fn copy(&self, came: usize, into: &mut [u8]) -> usize {
        let len = came.saturating_sub(self.front).min(into.len());
        let from = self.begin + self.front;
        into[..len].copy_from_slice(&self.memory[from..from + len]);
        len
    }
}
