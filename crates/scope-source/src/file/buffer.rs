//! The bytes of one capture as they are read: a buffer that packets are lent from and that is refilled
//! between batches.
//!
//! ```text
//!  0          begin             end              capacity
//!  | consumed | unread, lent    | free           |
//! ```
//! Reading with read(2), not by mapping: one way serves files and pipes, a file that is cut while we read it
//! is an end and not a SIGBUS, and a buffer that stays in the second-level cache makes the copy about as
//! cheap as the page faults it saves. It starts small and grows only when it is full of one record that goes
//! on, so memory is bounded by twice the bytes that really came, never by a length that the file claims.
//!
//! Whoever looks at packets goes from head to head, and each head says only where the next one is. So lines
//! are asked for ahead of that: what a thread has read on another core would else be waited for once per
//! packet.
//!
//! It is filled in one of two ways: by reading into the free part, or, once [`Buffer::read_ahead`] was
//! called, by taking the chunk that a thread has read meanwhile and putting the unread rest, a record's
//! beginning, in front of it. That adds [`AHEAD_BYTES`] of memory to the bound, for a file that is longer
//! than the buffer it starts with.

use std::io;

use scope_packet::fetch::fetch;

use super::ahead::{AHEAD_BYTES, Ahead, CHUNK_BYTES, HEADROOM, Next};
use super::input::Input;
use super::stream::{self, Stream};

/// Size a buffer starts with, bytes, while few files are open.
pub(super) const START_BYTES: usize = 512 << 10;
/// Size a buffer starts with, bytes, when many files are open at once.
pub(super) const START_BYTES_MANY: usize = 64 << 10;
/// No record or block is longer than this, bytes; what claims to be is damaged.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;
/// What is lent from never grows beyond this, bytes: the longest record, rounded up by doubling.
const LENT_BYTES_MAX: usize = 2 * RECORD_BYTES_MAX;
/// A file's buffers never take more than this, bytes, what is read ahead included.
pub const BUFFER_BYTES_MAX: usize = LENT_BYTES_MAX + AHEAD_BYTES;
// The longest rest that is too short for a record, and a chunk behind it.
const _: () = assert!(RECORD_BYTES_MAX + CHUNK_BYTES <= LENT_BYTES_MAX);

/// Bytes that the worker reads at once, where it reads in place of the thread: they stay in its core's cache.
const OWN_READ_BYTES: usize = 192 << 10;

/// How far ahead of what is looked at lines are asked for, bytes: what a core handles while one comes from a
/// far cache.
const FETCH_AHEAD_BYTES: usize = 4 << 10;
/// Of a longer record only so many bytes are asked for: the rest is copied in one go, which the processor
/// sees itself.
const FETCH_BYTES_MAX: usize = 2 << 10;

/// What a refill brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refill {
    /// As many bytes as were wanted are there, or the end is reached.
    Done,
    /// The pipe has nothing at the moment.
    NotReady,
}

/// Who reads.
enum Filling {
    /// The worker itself.
    Direct(Stream),
    /// A thread, ahead of it.
    Ahead(Box<Ahead>),
    /// Nobody: the end was reached and what read is gone.
    Over,
}

pub(super) struct Buffer {
    filling: Filling,
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Where `begin` lies in the file.
    offset: u64,
    at_end: bool,
    /// Why a compressed file can't be decompressed any further.
    damage: Option<String>,
    is_packed: bool,
    /// Its bytes were read by a thread, on another core as a rule.
    is_far: bool,
    bytes_max: usize,
}

impl Buffer {
    pub(super) fn new(input: Input, start_bytes: usize) -> Buffer {
        Buffer {
            filling: Filling::Direct(Stream::Plain(input)),
            bytes: vec![0; start_bytes],
            begin: 0,
            end: 0,
            offset: 0,
            at_end: false,
            damage: None,
            is_packed: false,
            is_far: false,
            bytes_max: start_bytes,
        }
    }

    /// Decompresses what was read so far and what will be. Nothing has been consumed.
    pub(super) fn unpack(&mut self) {
        debug_assert_eq!(self.offset, 0);
        self.filling = match std::mem::replace(&mut self.filling, Filling::Over) {
            Filling::Direct(Stream::Plain(input)) => {
                Filling::Direct(Stream::packed(input, self.unread(), self.at_end))
            }
            other => other,
        };
        (self.begin, self.end, self.at_end, self.is_packed) = (0, 0, false, true);
    }

    /// What is read is decompressed.
    pub(super) fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// Why nothing comes behind what is unread, if that is not the proper end of a compressed file.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Lets a thread read what is not read yet, if there is more and the input is a regular file. `alone`: the
    /// worker reads nothing else, and may read in the thread's place; decompressing is always the thread's.
    pub(super) fn read_ahead(&mut self, alone: bool) {
        if self.at_end {
            return;
        }
        self.filling = match std::mem::replace(&mut self.filling, Filling::Over) {
            Filling::Direct(stream) if stream.reopens() => {
                let alone = alone && !stream.is_packed();
                Filling::Ahead(Box::new(Ahead::start(stream, alone)))
            }
            other => other,
        };
    }

    /// What is there and not yet consumed.
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// Bytes lent by place, as [`Buffer::place`] gave it; valid until the next refill.
    #[inline]
    pub(super) fn slice(&self, place: usize, len: usize) -> &[u8] {
        &self.bytes[place..place + len]
    }

    /// The same, to be changed in place.
    #[inline]
    pub(super) fn slice_mut(&mut self, place: usize, len: usize) -> &mut [u8] {
        &mut self.bytes[place..place + len]
    }

    /// Place of the first unread byte.
    #[inline]
    pub(super) fn place(&self) -> usize {
        self.begin
    }

    /// Goes on by `len` bytes, and asks for as many that will be looked at soon.
    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        self.fetch_ahead(0, len);
        self.go_on(len);
    }

    /// Goes on by `len` bytes.
    #[inline]
    pub(super) fn go_on(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.begin);
        self.begin += len;
        self.offset += len as u64;
    }

    /// For the unread bytes `from..to`, which are being looked at, asks for as many that will be soon: what a
    /// thread has read lies in another core's cache.
    #[inline]
    pub(super) fn fetch_ahead(&self, from: usize, to: usize) {
        if self.is_far {
            let len = (to - from).min(FETCH_BYTES_MAX);
            fetch(&self.bytes, self.begin + to + FETCH_AHEAD_BYTES, len);
        }
    }

    /// Offset of the first unread byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Nothing comes behind what is unread.
    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    /// It is read from a pipe or the like, which may keep us waiting and can't be read twice.
    pub(super) fn flows(&self) -> bool {
        matches!(&self.filling, Filling::Direct(input) if !input.reopens())
    }

    /// The most bytes of memory it has held.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Drops the memory and what reads once the last packet has been handed out.
    pub(super) fn release(&mut self) {
        self.filling = Filling::Over;
        (self.bytes, self.begin, self.end, self.at_end) = (Vec::new(), 0, 0, true);
    }

    /// Reads on until `wanted` bytes are unread or the end is reached; waits at most `wait_ms` for a pipe.
    /// Moves what is unread: nothing may be lent.
    pub(super) fn refill(&mut self, wanted: usize, wait_ms: i32) -> io::Result<Refill> {
        debug_assert!(wanted <= RECORD_BYTES_MAX);
        if let Filling::Direct(_) = self.filling {
            self.move_to_front();
        }
        while self.unread().len() < wanted && !self.at_end {
            match self.fill(wait_ms) {
                Ok(Some(read)) => self.at_end = read == 0,
                Ok(None) if wait_ms < 0 => {}
                Ok(None) => return Ok(Refill::NotReady),
                Err(error) => match stream::damage_of(&error) {
                    Some(cause) => (self.damage, self.at_end) = (Some(cause.to_string()), true),
                    None => return Err(error),
                },
            }
        }
        Ok(Refill::Done)
    }

    /// Reads some bytes; 0 is the end, `None`: there is nothing for the moment.
    fn fill(&mut self, wait_ms: i32) -> io::Result<Option<usize>> {
        match &mut self.filling {
            Filling::Direct(stream) if !stream.ready(wait_ms) => Ok(None),
            Filling::Direct(_) => self.read_on(),
            Filling::Ahead(ahead) => match ahead.next()? {
                Next::Chunk(chunk, read) => {
                    self.take(chunk, read);
                    Ok(Some(read))
                }
                Next::NotYet => Ok(None),
                Next::OwnRead => {
                    self.move_to_front();
                    self.read_on()
                }
            },
            Filling::Over => Ok(Some(0)),
        }
    }

    /// Frees the place of what is consumed.
    fn move_to_front(&mut self) {
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
    }

    /// Reads into the free part, which is made if there is none.
    fn read_on(&mut self) -> io::Result<Option<usize>> {
        if self.end == self.bytes.len() {
            self.bytes.resize((self.bytes.len() * 2).min(LENT_BYTES_MAX), 0);
            self.note_bytes();
        }
        let free = &mut self.bytes[self.end..];
        let read = match &mut self.filling {
            Filling::Direct(stream) => stream.read(free)?,
            Filling::Ahead(ahead) => {
                let most = free.len().min(OWN_READ_BYTES);
                ahead.read(&mut free[..most])?
            }
            Filling::Over => Some(0),
        };
        (self.end, self.is_far) = (self.end + read.unwrap_or(0), false);
        Ok(read)
    }

    /// Lends from the next chunk from now on, with the unread rest in front of it. A rest longer than the
    /// headroom, of a long record, stays where it is and grows by the chunk's bytes.
    fn take(&mut self, mut chunk: Vec<u8>, read: usize) {
        let rest = self.end - self.begin;
        self.is_far = true;
        if rest <= HEADROOM {
            let begin = HEADROOM - rest;
            chunk[begin..HEADROOM].copy_from_slice(self.unread());
            (self.begin, self.end) = (begin, HEADROOM + read);
            std::mem::swap(&mut self.bytes, &mut chunk);
            fetch(&self.bytes, begin, FETCH_AHEAD_BYTES);
        } else {
            self.move_to_front();
            let needed = self.end + read;
            if needed > self.bytes.len() {
                self.bytes.resize(needed.next_power_of_two().min(LENT_BYTES_MAX), 0);
            }
            self.bytes[self.end..needed].copy_from_slice(&chunk[HEADROOM..HEADROOM + read]);
            self.end = needed;
        }
        self.note_bytes();
        self.give_back(chunk);
    }

    fn note_bytes(&mut self) {
        let ahead_bytes = if matches!(self.filling, Filling::Ahead(_)) { AHEAD_BYTES } else { 0 };
        self.bytes_max = self.bytes_max.max(self.bytes.len() + ahead_bytes);
    }

    /// Hands on a chunk to be filled, in the length that all have: the first one and one that has grown had
    /// another.
    fn give_back(&mut self, mut chunk: Vec<u8>) {
        let Filling::Ahead(ahead) = &mut self.filling else { return };
        if chunk.len() != HEADROOM + CHUNK_BYTES {
            chunk = vec![0; HEADROOM + CHUNK_BYTES];
        }
        ahead.recycle(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_only_with_bytes_that_really_come() {
        let mut short = Buffer::new(Input::Reader(Box::new(io::Cursor::new(vec![7; 100]))), 64);
        assert_eq!(short.refill(RECORD_BYTES_MAX, 0).unwrap(), Refill::Done);
        assert_eq!((short.unread().len(), short.at_end()), (100, true));
        assert!(short.bytes_max() <= 256, "{}", short.bytes_max());
    }

    #[test]
    fn what_is_unread_survives_a_refill() {
        let mut buffer =
            Buffer::new(Input::Reader(Box::new(io::Cursor::new((0..=255u8).collect::<Vec<_>>()))), 16);
        buffer.refill(10, 0).unwrap();
        buffer.consume(9);
        buffer.refill(40, 0).unwrap();
        assert_eq!(buffer.unread()[..40], (9..49).collect::<Vec<u8>>());
        assert_eq!(buffer.offset(), 9);
    }

    #[test]
    fn what_is_read_ahead_is_the_file_whatever_the_length_of_its_records() {
        use std::io::{Seek, Write};
        use std::sync::Arc;
        let bytes: Vec<u8> =
            (0..(CHUNK_BYTES * 6 + 123) as u32).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
        for len in [1000, HEADROOM + 1, CHUNK_BYTES - 1, 2 * CHUNK_BYTES + 5, 5 * CHUNK_BYTES] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            file.rewind().unwrap();
            let mut buffer = Buffer::new(Input::Regular(Arc::new(file)), START_BYTES);
            buffer.refill(len.min(24), 0).unwrap();
            buffer.read_ahead(true);
            let mut read = Vec::new();
            loop {
                if buffer.unread().len() < len {
                    assert_eq!(buffer.refill(len, 0).unwrap(), Refill::Done);
                }
                assert_eq!(buffer.offset(), read.len() as u64);
                let taken = buffer.unread().len().min(len);
                read.extend_from_slice(buffer.slice(buffer.place(), taken));
                buffer.consume(taken);
                if taken < len {
                    break;
                }
            }
            assert!(read == bytes && buffer.at_end(), "records of {len} bytes");
            let bound = (2 * (len + CHUNK_BYTES)).max(HEADROOM + CHUNK_BYTES) + AHEAD_BYTES;
            assert!(buffer.bytes_max() <= bound, "{} bytes for records of {len}", buffer.bytes_max());
        }
    }
}
