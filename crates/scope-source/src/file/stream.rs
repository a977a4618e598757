//! The bytes of a capture as its buffer wants them: as they come in, or, of a compressed one, decompressed.
//!
//! ```text
//!  input ─► plain ───────────────────────────────► whoever reads: the worker, or the thread ahead of it
//!        ─► packed: [compressed bytes] ─► unpacker ─►
//! ```
//! Compressed bytes are read only when those before them are used up, and none of a pipe are waited for while a
//! worker reads. What can't be decompressed ends the stream with [`Damaged`], which is no failure of reading:
//! all that came before it is good to be used.

use std::fmt;
use std::io;

use super::input::Input;
use super::unpack::{INPUT_BYTES_MAX, Unpacker};

/// Compressed bytes that are read at once.
const PACKED_BYTES: usize = 128 << 10;
const _: () = assert!(PACKED_BYTES >= INPUT_BYTES_MAX);
/// Compressed bytes that may be looked at in one go without an output: empty members and the like.
const FRUITLESS_BYTES_MAX: usize = 1 << 20;

/// Where a buffer is filled from.
pub(super) enum Stream {
    /// As it comes in.
    Plain(Input),
    /// Compressed.
    Packed(Box<Packed>),
}

/// Compressed input.
pub(super) struct Packed {
    input: Input,
    unpacker: Unpacker,
    /// Compressed bytes; those from `begin` to `end` are to be decompressed.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    at_end: bool,
    /// Where `begin` lies in the input.
    offset: u64,
    /// Where the member or frame that it is in begins.
    frame_offset: u64,
    /// Nothing comes out before more was read.
    is_starved: bool,
}

/// From here on a compressed input can't be decompressed.
#[derive(Debug)]
pub(super) struct Damaged {
    /// In words, with the place.
    pub(super) cause: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for Damaged {}

impl Stream {
    /// Compressed input, of which `begun` was read already; `at_end`: and nothing comes behind it.
    pub(super) fn packed(input: Input, begun: &[u8], at_end: bool) -> Stream {
        let mut bytes = begun.to_vec();
        bytes.resize(begun.len().max(PACKED_BYTES), 0);
        Stream::Packed(Box::new(Packed {
            input,
            unpacker: Unpacker::new(),
            bytes,
            begin: 0,
            end: begun.len(),
            at_end,
            offset: 0,
            frame_offset: 0,
            is_starved: false,
        }))
    }

    /// Whether reading goes on without delay, after waiting for that at most `wait_ms`, without end where
    /// that is negative.
    pub(super) fn ready(&self, wait_ms: i32) -> bool {
        match self {
            Stream::Plain(input) => input.ready(wait_ms),
            Stream::Packed(packed) => !packed.is_starved || packed.input.ready(wait_ms),
        }
    }

    /// Reads some bytes; 0 is the end, `None`: nothing for the moment.
    ///
    /// # Errors
    /// The system's, or [`Damaged`] within [`io::ErrorKind::InvalidData`].
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Stream::Plain(input) => input.read(into).map(Some),
            Stream::Packed(packed) => packed.read(into),
        }
    }

    /// Several workers can read it side by side, each from its beginning.
    pub(super) fn reopens(&self) -> bool {
        match self {
            Stream::Plain(input) => input.reopens(),
            Stream::Packed(packed) => packed.input.reopens(),
        }
    }

    /// It is compressed.
    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Stream::Packed(_))
    }
}

impl Packed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut fruitless = 0;
        while fruitless < FRUITLESS_BYTES_MAX {
            if self.unpacker.is_between() {
                self.frame_offset = self.offset;
            }
            let step = self.unpacker.step(&self.bytes[self.begin..self.end], self.at_end, into);
            let step = step.map_err(|cause| damaged(&cause, "in what begins at", self.frame_offset))?;
            self.begin += step.consumed;
            self.offset += step.consumed as u64;
            fruitless += step.consumed;
            if step.produced > 0 {
                self.is_starved = false;
                return Ok(Some(step.produced));
            }
            if step.consumed > 0 {
                continue;
            }
            if self.at_end {
                let rest = self.end - self.begin;
                let (proper, end) = (self.unpacker.end(rest), self.offset + rest as u64);
                return proper.map(|()| Some(0)).map_err(|cause| damaged(&cause, "at", end));
            }
            self.is_starved = true;
            if !self.input.ready(0) {
                return Ok(None);
            }
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            let read = self.input.read(&mut self.bytes[self.end..])?;
            self.end += read;
            self.at_end = read == 0;
        }
        self.is_starved = false;
        Ok(None)
    }
}

fn damaged(cause: &str, at: &str, offset: u64) -> io::Error {
    let cause = format!("{cause} ({at} byte {offset} of the compressed file)");
    io::Error::new(io::ErrorKind::InvalidData, Damaged { cause })
}

/// The words of an error that is [`Damaged`].
pub(super) fn damage_of(error: &io::Error) -> Option<&str> {
    error.get_ref()?.downcast_ref::<Damaged>().map(|damaged| damaged.cause.as_str())
}
