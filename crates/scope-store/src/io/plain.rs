//! Writing by `pwrite`, through the page cache, where there is nothing better: at once, and without filling
//! the page cache with what nobody will read soon.
//!
//! ```text
//!  file:  ... gone from the cache | on its way to the disk (at most AHEAD_BYTES) | this write
//!              forgotten            begun by sync_file_range                        pwrite
//! ```
//! A write waits until the disk has taken what is more than `AHEAD_BYTES` behind it. So the disk is busy
//! while the next segment is copied, and the cache never holds more of a file.

use super::tree::{Tree, forget};
use super::writer::{Writer, check_pages};
use crate::disk::{Act, Begun, Bytes, FileNumber, Finished};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// What may be on its way to the disk: what a disk takes in some tens of milliseconds.
const AHEAD_BYTES: u64 = 32 << 20;

/// Writes by `pwrite`.
#[derive(Default)]
pub struct Plain {
    /// Of each open file what is on its way, oldest first.
    ahead: BTreeMap<FileNumber, Ahead>,
    done: Vec<Finished>,
}

/// What of a file is on its way to the disk.
#[derive(Default)]
struct Ahead {
    ranges: VecDeque<Range<u64>>,
    bytes: u64,
}

/// What is done with a range of a file.
#[derive(Clone, Copy)]
enum Push {
    /// Its way to the disk begins.
    Begin,
    /// Waited for until it is there.
    Wait,
}

impl Plain {
    fn act(&mut self, act: &Act, tree: &Tree) -> io::Result<()> {
        match act {
            Act::Write { file, at, bytes } => self.write(*file, *at, bytes, tree),
            Act::Sync { file } => {
                let ahead = self.ahead.remove(file).unwrap_or_default();
                let file = tree.file(*file)?;
                file.sync_data()?;
                for range in ahead.ranges {
                    forget(file, range.start, range.end - range.start);
                }
                Ok(())
            }
        }
    }

    fn write(&mut self, number: FileNumber, at: u64, bytes: &Bytes, tree: &Tree) -> io::Result<()> {
        let bytes = bytes.as_slice();
        check_pages(at, bytes)?;
        let file = tree.file(number)?;
        file.write_all_at(bytes, at)?;
        let range = at..at + bytes.len() as u64;
        push(file, &range, Push::Begin)?;
        let ahead = self.ahead.entry(number).or_default();
        ahead.bytes += bytes.len() as u64;
        ahead.ranges.push_back(range);
        while ahead.bytes > AHEAD_BYTES
            && let Some(oldest) = ahead.ranges.pop_front()
        {
            ahead.bytes -= oldest.end - oldest.start;
            // An error of the disk that is reported here isn't reported again by a later sync.
            push(file, &oldest, Push::Wait)?;
            forget(file, oldest.start, oldest.end - oldest.start);
        }
        Ok(())
    }
}

/// Sends a range of the file on its way to the disk. A file system that can't be told so is left to do it in
/// its own time.
fn push(file: &File, range: &Range<u64>, how: Push) -> io::Result<()> {
    let flags = match how {
        Push::Begin => libc::SYNC_FILE_RANGE_WRITE,
        Push::Wait => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    let (at, bytes) = (range.start as libc::off64_t, (range.end - range.start) as libc::off64_t);
    // SAFETY: takes numbers only; the descriptor is open while `file` is lent.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), at, bytes, flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS | libc::ESPIPE | libc::EINTR) => Ok(()),
        _ => Err(error),
    }
}

impl Writer for Plain {
    fn opened(&mut self, _: FileNumber, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn closing(&mut self, file: FileNumber) {
        self.ahead.remove(&file);
    }

    fn begin(&mut self, begun: Begun, tree: &Tree) -> io::Result<()> {
        let result = self.act(&begun.act, tree);
        self.done.push(Finished { begun, result });
        Ok(())
    }

    fn finish(&mut self, _: Duration, into: &mut Vec<Finished>) -> io::Result<()> {
        into.append(&mut self.done);
        Ok(())
    }

    fn pending(&self) -> usize {
        self.done.len()
    }
}
