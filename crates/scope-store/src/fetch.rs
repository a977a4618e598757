//! Reads of stores' files that a question has under way: many at once by io_uring, or one after another.
//!
//! ```text
//! begin ──► io_uring ──► kernel ──► finish       several reads of several segments at once
//! begin ──► a list   ──► pread  ──► finish       where io_uring isn't had
//! ```
//! A read takes what the page cache has, and leaves nothing there that wasn't there before (`RWF_DONTCACHE`,
//! Linux 6.14): a question about days must not push out what others need. Where the kernel or the file system
//! doesn't know that, what isn't cached is read past the cache (`request`).

mod cached;
mod direct;
mod pace;
mod request;
mod uring;

use crate::checks::PAGE_BYTES;
use rustix::io::ReadWriteFlags;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::sync::Arc;

use request::{Request, Requests};

pub use request::as_before_dont_cache;
pub use uring::Uring;

/// Reads that one thread has with the kernel at once.
pub const DEPTH: usize = 128;

/// One read: all of the buffer, from this place of the file on.
#[derive(Debug)]
pub struct Read {
    /// Whose it is: the caller's own number.
    pub token: usize,
    /// The file.
    pub file: Arc<File>,
    /// Where it begins, bytes.
    pub offset: u64,
    /// What is filled.
    pub buffer: Vec<u8>,
}

/// A read that has ended.
#[derive(Debug)]
pub struct Fetched {
    /// Its [`Read::token`].
    pub token: usize,
    /// Where it began in the file.
    pub offset: u64,
    /// What was filled, if the result says so.
    pub buffer: Vec<u8>,
    /// Whether it was.
    pub result: io::Result<()>,
}

/// One thread's reads.
#[derive(Debug)]
pub enum Fetch {
    /// By io_uring.
    Uring(Box<Uring>),
    /// One after another.
    Plain(VecDeque<Read>),
}

impl Fetch {
    /// By io_uring, else one after another. To be made before rights are given up: a queue that is made may
    /// read what is opened later, and nothing else.
    pub fn best() -> Fetch {
        Uring::new().map_or_else(|_| Fetch::plain(), |uring| Fetch::Uring(Box::new(uring)))
    }

    /// One after another.
    pub fn plain() -> Fetch {
        Fetch::Plain(VecDeque::new())
    }

    /// The word for how it reads.
    pub const fn name(&self) -> &'static str {
        match self {
            Fetch::Uring(_) => "io_uring",
            Fetch::Plain(_) => "pread",
        }
    }

    /// Bytes that it should have with the disk at once, by now.
    pub fn bytes_at_once(&self) -> usize {
        match self {
            Fetch::Uring(uring) => uring.bytes_at_once(),
            Fetch::Plain(_) => pace::MOST, // one read after another
        }
    }

    /// Begins a read.
    pub fn begin(&mut self, read: Read) {
        match self {
            Fetch::Uring(uring) => uring.begin(read),
            Fetch::Plain(waiting) => waiting.push_back(read),
        }
    }

    /// A read that has ended by now, which is one that needn't wait; `None`: none has.
    pub fn poll(&mut self) -> Option<Fetched> {
        match self {
            Fetch::Uring(uring) => uring.poll(),
            Fetch::Plain(_) => self.finish(),
        }
    }

    /// Waits for the next read that ends, in any order; `None`: none is under way.
    pub fn finish(&mut self) -> Option<Fetched> {
        match self {
            Fetch::Uring(uring) => uring.finish(),
            Fetch::Plain(waiting) => {
                let Read { token, file, offset, mut buffer } = waiting.pop_front()?;
                let result = read_exact(&file, offset, &mut buffer);
                Some(Fetched { token, offset, buffer, result })
            }
        }
    }
}

/// Fills `buffer` with what stands at an offset of a file, as all reads of questions do.
///
/// # Errors
/// The system's; `UnexpectedEof` where the file is shorter.
pub fn read_exact(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    read_by(Requests::default(), file, offset, buffer)
}

fn read_by(mut requests: Requests, file: &File, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        let Request { file, offset: from, into, flags } = requests.next(file, offset, buffer);
        let answer = match flags {
            0 => rustix::io::pread(file, into, from),
            _ => {
                let flags = ReadWriteFlags::from_bits_retain(flags);
                rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], from, flags)
            }
        };
        let filled = requests.answered(answer.map_err(io::Error::from), buffer)?;
        offset += filled as u64;
        buffer = &mut buffer[filled..];
    }
    Ok(())
}

/// As [`read_exact`], for heads and indexes, and of a disk that refuses some blocks: pages that can't be read (EIO) are
/// filled with ones, which no check lets pass. Where the kernel doesn't know `RWF_DONTCACHE` what was read stays in the
/// page cache: it is next to nothing beside the packets, and wanted again with the next question.
///
/// # Errors
/// Whatever else the system says.
pub fn read_what_can_be(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let is_refused = |error: &io::Error| error.raw_os_error() == Some(libc::EIO);
    match read_by(Requests::cached(), file, offset, buffer) {
        Err(error) if is_refused(&error) => {}
        read => return read,
    }
    // Pages as they lie in the file: the first one may be a part of one.
    let (mut at, mut rest) = (offset, buffer);
    while !rest.is_empty() {
        let len = (PAGE_BYTES - at as usize % PAGE_BYTES).min(rest.len());
        let (page, behind) = rest.split_at_mut(len);
        match read_by(Requests::cached(), file, at, page) {
            Err(error) if is_refused(&error) => page.fill(0xff),
            read => read?,
        }
        (at, rest) = (at + len as u64, behind);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn both_ways_fill_what_was_asked_for_and_say_what_is_beyond_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..1_000_003u32).map(|at| (at.wrapping_mul(2654435761) >> 24) as u8).collect();
        file.write_all(&bytes).unwrap();
        let file = Arc::new(file);
        for mut fetch in [Fetch::best(), Fetch::plain()] {
            let mut left = 3 * DEPTH;
            for token in 0..left {
                let offset = (token * 2499) as u64;
                let buffer = vec![0; 1 + token * 31];
                fetch.begin(Read { token, file: file.clone(), offset, buffer });
            }
            while let Some(done) = fetch.finish() {
                left -= 1;
                done.result.unwrap();
                assert_eq!(done.buffer, bytes[done.token * 2499..][..1 + done.token * 31]);
            }
            assert_eq!(left, 0, "{}", fetch.name());
            fetch.begin(Read { token: 7, file: file.clone(), offset: 1_000_000, buffer: vec![0; 8] });
            let end = fetch.finish().unwrap();
            assert_eq!((end.token, end.result.unwrap_err().kind()), (7, io::ErrorKind::UnexpectedEof));
            assert!(fetch.finish().is_none());
            // Reads under way when it is dropped write into nobody's memory.
            fetch.begin(Read { token: 1, file: file.clone(), offset: 0, buffer: vec![0; 900_000] });
        }
    }
}
