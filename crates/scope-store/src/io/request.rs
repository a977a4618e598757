//! What the kernel is asked for at once: writes that follow each other in a file, joined, or a sync; and what
//! its answer means for each of them.
//!
//! A file that grows is locked while a write makes it longer, so its writes follow each other. Measured on
//! ext4: a segment of 2 MiB whose foot comes from elsewhere costs 0.09 s of processor time per GiB as two
//! writes, 0.05 s joined; segments of 64 KiB go to the disk five to ten times as fast joined.

use crate::disk::{Act, Begun, FileNumber, Finished};
use std::io;

/// Bytes that writes are joined up to: four of the largest segments.
const JOINED_BYTES: usize = 8 << 20;
/// Writes that are joined: so many small segments in two parts each. The kernel takes up to 1024.
const JOINED_MAX: usize = 256;
/// Bytes of one request, at most.
const REQUEST_BYTES: usize = 1 << 30;
/// The kernel refuses a write that has no room as a whole, where a part of it has some.
const NO_ROOM: [i32; 2] = [-libc::ENOSPC, -libc::EDQUOT];
/// What is refused for a moment is begun again so often in a row.
const TRIES_MAX: u32 = 1000;

/// A range of memory as the kernel reads it of a list: address and length (`struct iovec`).
pub type Vector = [usize; 2];

/// One or more acts that the kernel does at once.
pub struct Request {
    /// Writes that follow each other in one file, or one sync; at least one.
    parts: Vec<Begun>,
    /// Bytes of all parts.
    bytes: usize,
    /// Bytes that are written already.
    written: usize,
    tries: u32,
    /// Where the rest lies, where that is more than one range.
    vectors: Vec<Vector>,
    /// Ranges that the kernel was asked to write last, and that it is asked at most.
    asked: usize,
    asked_max: usize,
}

/// What is to be done next for a request.
pub enum Task<'a> {
    /// `fdatasync`.
    Sync(FileNumber),
    /// To write one range at this offset.
    Write(FileNumber, u64, &'a [u8]),
    /// To write ranges that lie apart, one behind the other; the list stays where it is until the answer.
    WriteJoined(FileNumber, u64, &'a [Vector]),
}

/// What follows an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The rest, or the same once more.
    Again,
    /// Nothing: it is done, or has failed with this error.
    Done(Result<(), i32>),
}

/// Bytes that something writes.
pub fn bytes_of(begun: &Begun) -> usize {
    match &begun.act {
        Act::Write { bytes, .. } => bytes.as_slice().len(),
        Act::Sync { .. } => 0,
    }
}

/// The number of an error, where an answer is one.
pub fn done(answer: i32) -> Result<(), i32> {
    if answer < 0 { Err(-answer) } else { Ok(()) }
}

impl Request {
    /// Of one act.
    pub fn new(begun: Begun) -> Request {
        Request {
            bytes: bytes_of(&begun),
            parts: vec![begun],
            written: 0,
            tries: 0,
            vectors: Vec::new(),
            asked: 0,
            asked_max: JOINED_MAX,
        }
    }

    /// How many acts it is.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Adds what goes on where this ends; hands it back where it doesn't, or this is long enough.
    pub fn join(&mut self, begun: Begun) -> Option<Begun> {
        let bytes = bytes_of(&begun);
        let follows = match (&self.parts[0].act, &begun.act) {
            (Act::Write { file, at, .. }, Act::Write { file: other, at: further, .. }) => {
                file == other && at.checked_add(self.bytes as u64) == Some(*further)
            }
            _ => false,
        };
        if !follows || self.parts.len() == JOINED_MAX || self.bytes + bytes > JOINED_BYTES {
            return Some(begun);
        }
        self.bytes += bytes;
        self.parts.push(begun);
        None
    }

    /// What is to be done: all of it, or the rest, or as much of it as may have room.
    pub fn task(&mut self) -> Task<'_> {
        let (file, at) = match &self.parts[0].act {
            Act::Sync { file } => return Task::Sync(*file),
            Act::Write { file, at, .. } => (*file, at + self.written as u64),
        };
        let mut before = self.written;
        let mut rest = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let Act::Write { bytes, .. } = &part.act else { continue };
            let bytes = bytes.as_slice();
            let skipped = before.min(bytes.len());
            before -= skipped;
            if skipped < bytes.len() {
                rest.push(&bytes[skipped..]);
            }
        }
        rest.truncate(self.asked_max);
        self.asked = rest.len();
        if let [range] = rest[..] {
            return Task::Write(file, at, &range[..range.len().min(REQUEST_BYTES)]);
        }
        self.vectors = rest.iter().map(|range| [range.as_ptr() as usize, range.len()]).collect();
        Task::WriteJoined(file, at, &self.vectors)
    }

    /// What follows the kernel's answer: a number of bytes, or an error below zero.
    pub fn answer(&mut self, answer: i32) -> Next {
        match answer {
            _ if answer == -libc::EAGAIN || answer == -libc::EINTR => {
                self.tries += 1;
                if self.tries < TRIES_MAX { Next::Again } else { Next::Done(done(answer)) }
            }
            // Half of it may have room.
            _ if NO_ROOM.contains(&answer) && self.asked > 1 => {
                self.asked_max = self.asked / 2;
                Next::Again
            }
            1.. => {
                (self.written, self.tries) = (self.written + answer as usize, 0);
                if self.written < self.bytes { Next::Again } else { Next::Done(Ok(())) }
            }
            // Nothing was written, and nothing says why.
            0 if self.bytes > 0 => Next::Done(Err(libc::EIO)),
            _ => Next::Done(done(answer)),
        }
    }

    /// Gives its acts back; returns their bytes. Of a failed request those were done that were written whole
    /// before it failed.
    pub fn end(self, outcome: Result<(), i32>, into: &mut Vec<Finished>) -> usize {
        let mut end = 0;
        for begun in self.parts {
            let bytes = bytes_of(&begun);
            end += bytes;
            let is_whole = bytes > 0 && end <= self.written;
            let result = if is_whole { Ok(()) } else { outcome.map_err(io::Error::from_raw_os_error) };
            into.push(Finished { begun, result });
        }
        self.bytes
    }
}

const _: () = assert!(size_of::<Vector>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Vector>() == align_of::<libc::iovec>());
const _: () = assert!(std::mem::offset_of!(libc::iovec, iov_base) == 0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Bytes, PAGE_BYTES, Pages};

    fn write(tag: u64, file: u32, page: usize, count: usize) -> Begun {
        let bytes = Bytes::Own(Pages::zeroed(count));
        Begun { tag, act: Act::Write { file: FileNumber(file), at: (page * PAGE_BYTES) as u64, bytes } }
    }

    #[test]
    fn writes_that_follow_each_other_in_a_file_are_joined_and_no_others() {
        let check = |first: Begun, second: Begun, expected: bool| {
            let (mut request, tag) = (Request::new(first), second.tag);
            match request.join(second) {
                None => assert!(expected && request.parts() == 2),
                Some(back) => assert!(!expected && back.tag == tag && request.parts() == 1),
            }
        };
        let sync = || Begun { tag: 9, act: Act::Sync { file: FileNumber(1) } };
        check(write(1, 1, 0, 3), write(2, 1, 3, 1), true);
        check(write(1, 1, 0, 3), write(2, 1, 4, 1), false);
        check(write(1, 1, 0, 3), write(2, 1, 2, 1), false);
        check(write(1, 1, 0, 3), write(2, 2, 3, 1), false);
        check(write(1, 1, 0, 3), sync(), false);
        check(sync(), sync(), false);
        check(sync(), write(2, 1, 0, 1), false);
        let most = JOINED_BYTES / PAGE_BYTES;
        check(write(1, 1, 0, most - 1), write(2, 1, most - 1, 1), true);
        check(write(1, 1, 0, most - 1), write(2, 1, most - 1, 2), false);
        let mut request = Request::new(write(0, 1, 0, 1));
        let refused = (1..).find(|&page| request.join(write(page as u64, 1, page, 1)).is_some());
        assert_eq!((refused, request.parts()), (Some(JOINED_MAX), JOINED_MAX));
    }

    #[test]
    fn what_is_written_in_part_is_continued_and_what_is_refused_for_a_moment_is_tried_again() {
        let page = PAGE_BYTES as i32;
        let mut request = Request::new(write(1, 1, 10, 2));
        for (index, count) in [(12, 1), (13, 3)] {
            assert!(request.join(write(index as u64, 1, index, count)).is_none());
        }
        let shown = |request: &mut Request| match request.task() {
            Task::Sync(_) => panic!("a sync"),
            Task::Write(_, at, bytes) => (at as usize / PAGE_BYTES, vec![bytes.len() / PAGE_BYTES]),
            Task::WriteJoined(_, at, vectors) => {
                (at as usize / PAGE_BYTES, vectors.iter().map(|[_, bytes]| bytes / PAGE_BYTES).collect())
            }
        };
        assert_eq!(shown(&mut request), (10, vec![2, 1, 3]));
        assert_eq!(request.answer(page), Next::Again);
        assert_eq!(shown(&mut request), (11, vec![1, 1, 3]));
        assert_eq!(request.answer(-libc::EAGAIN), Next::Again);
        assert_eq!(request.answer(3 * page), Next::Again);
        assert_eq!(shown(&mut request), (14, vec![2]));
        assert_eq!(request.answer(-libc::EINTR), Next::Again);
        assert_eq!(request.answer(page), Next::Again);
        assert_eq!(shown(&mut request), (15, vec![1]));
        assert_eq!(request.answer(page), Next::Done(Ok(())));
        let times = (1..).find(|_| request.answer(-libc::EAGAIN) != Next::Again);
        assert_eq!(times, Some(TRIES_MAX), "not for ever");
        assert_eq!(Request::new(write(1, 1, 0, 1)).answer(0), Next::Done(Err(libc::EIO)));
        let mut sync = Request::new(Begun { tag: 1, act: Act::Sync { file: FileNumber(1) } });
        assert_eq!(sync.answer(-libc::EIO), Next::Done(Err(libc::EIO)));
        assert_eq!(sync.answer(0), Next::Done(Ok(())));
    }

    #[test]
    fn joined_writes_without_room_are_tried_by_halves_so_that_no_room_is_left_that_one_of_them_has() {
        // So many pages have room, of one write of two pages and six of one.
        for room in 0..=8 {
            let mut request = Request::new(write(0, 1, 0, 2));
            for page in 2..8 {
                assert!(request.join(write(page as u64, 1, page, 1)).is_none());
            }
            let mut asked = 0;
            let outcome = loop {
                let (at, bytes) = match request.task() {
                    Task::Sync(_) => panic!("a sync"),
                    Task::Write(_, at, bytes) => (at as usize, bytes.len()),
                    Task::WriteJoined(_, at, list) => {
                        (at as usize, list.iter().map(|[_, bytes]| bytes).sum())
                    }
                };
                asked += 1;
                let has_room = at + bytes <= room * PAGE_BYTES;
                match request.answer(if has_room { bytes as i32 } else { -libc::ENOSPC }) {
                    Next::Again => {}
                    Next::Done(outcome) => break outcome,
                }
            };
            let mut finished = Vec::new();
            request.end(outcome, &mut finished);
            let good = finished.iter().filter(|finished| finished.result.is_ok());
            let expected = if room == 1 { 0 } else { room };
            assert_eq!(good.map(|finished| bytes_of(&finished.begun) / PAGE_BYTES).sum::<usize>(), expected);
            assert!(asked <= 10 && (outcome == Ok(())) == (room == 8), "{room}: {asked}");
        }
        let mut alone = Request::new(write(1, 1, 0, 4));
        let _ = alone.task();
        assert_eq!(alone.answer(-libc::EDQUOT), Next::Done(Err(libc::EDQUOT)));
    }

    #[test]
    fn of_joined_writes_those_are_done_that_were_written_before_one_failed() {
        let mut request = Request::new(write(1, 1, 0, 2));
        assert!(request.join(write(2, 1, 2, 2)).is_none() && request.join(write(3, 1, 4, 1)).is_none());
        assert_eq!(request.answer(3 * PAGE_BYTES as i32), Next::Again);
        assert_eq!(request.answer(-libc::EIO), Next::Done(Err(libc::EIO)));
        let mut finished = Vec::new();
        assert_eq!(request.end(Err(libc::EIO), &mut finished), 5 * PAGE_BYTES);
        let found: Vec<(u64, bool)> =
            finished.iter().map(|finished| (finished.begun.tag, finished.result.is_ok())).collect();
        assert_eq!(found, [(1, true), (2, false), (3, false)]);
    }
}
