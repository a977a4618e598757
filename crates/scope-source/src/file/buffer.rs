//! The bytes of one capture as they are read: a buffer that packets are lent from and that is refilled between batches.
//!
//! ```text
//!  0          begin             end              capacity
//!  | consumed | unread, lent    | free           |
//! ```
//! Reading with read(2), not by mapping: one way serves files and pipes, a file that is cut while we read it is an
//! end and not a SIGBUS, and a buffer that stays in the second-level cache makes the copy about as cheap as the page
//! faults it saves. It starts small and grows only when it is full of one record that goes on, so memory is bounded
//! by twice the bytes that really came, never by a length that the file claims.

use std::io;

use super::input::Input;

/// Size a buffer starts with, bytes, while few files are open.
pub(super) const START_BYTES: usize = 512 << 10;
/// Size a buffer starts with, bytes, when many files are open at once.
pub(super) const START_BYTES_MANY: usize = 64 << 10;
/// No record or block is longer than this, bytes; what claims to be is damaged.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;
/// A buffer never grows beyond this, bytes: the longest record, rounded up by doubling.
pub const BUFFER_BYTES_MAX: usize = 2 * RECORD_BYTES_MAX;

/// What a refill brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refill {
    /// As many bytes as were wanted are there, or the end is reached.
    Done,
    /// The pipe has nothing at the moment.
    NotReady,
}

pub(super) struct Buffer {
    input: Input,
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    /// Where `begin` lies in the file.
    offset: u64,
    at_end: bool,
    bytes_max: usize,
}

impl Buffer {
    pub(super) fn new(input: Input, start_bytes: usize) -> Buffer {
        Buffer { input, bytes: vec![0; start_bytes], begin: 0, end: 0, offset: 0, at_end: false, bytes_max: start_bytes }
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

    /// Place of the first unread byte.
    #[inline]
    pub(super) fn place(&self) -> usize {
        self.begin
    }

    #[inline]
    pub(super) fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.begin);
        self.begin += len;
        self.offset += len as u64;
    }

    /// Offset of the first unread byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Nothing comes behind what is unread.
    pub(super) fn at_end(&self) -> bool {
        self.at_end
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// The most bytes of memory it has held.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Drops the memory once the last packet has been handed out.
    pub(super) fn release(&mut self) {
        (self.bytes, self.begin, self.end, self.at_end) = (Vec::new(), 0, 0, true);
    }

    /// Reads on until `wanted` bytes are unread or the end is reached; waits at most `wait_ms` for a pipe. Moves what
    /// is unread: nothing may be lent.
    pub(super) fn refill(&mut self, wanted: usize, wait_ms: i32) -> io::Result<Refill> {
        debug_assert!(wanted <= RECORD_BYTES_MAX);
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        while self.end < wanted && !self.at_end {
            if self.end == self.bytes.len() {
                self.bytes.resize((self.bytes.len() * 2).min(BUFFER_BYTES_MAX), 0);
                self.bytes_max = self.bytes.len();
            }
            if !self.input.ready(wait_ms) {
                return Ok(Refill::NotReady);
            }
            let read = self.input.read(&mut self.bytes[self.end..])?;
            self.end += read;
            self.at_end = read == 0;
        }
        Ok(Refill::Done)
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
        let mut buffer = Buffer::new(Input::Reader(Box::new(io::Cursor::new((0..=255u8).collect::<Vec<_>>()))), 16);
        buffer.refill(10, 0).unwrap();
        buffer.consume(9);
        buffer.refill(40, 0).unwrap();
        assert_eq!(buffer.unread()[..40], (9..49).collect::<Vec<u8>>());
        assert_eq!(buffer.offset(), 9);
    }
}
