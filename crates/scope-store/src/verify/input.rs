//! The bytes of a file from front to back, in bounded memory.

use super::Meter;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// No record or block is longer than this, bytes; what claims to be is damaged.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;
/// Bytes of the buffer at first, and of a reading.
const START_BYTES: usize = 1 << 20;

/// A file being read. Memory: twice the longest record that really came, never what a file claims.
pub(super) struct Input<'a> {
    file: &'a File,
    meter: &'a Meter,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// Where `begin` lies in the file.
    offset: u64,
    at_end: bool,
}

impl<'a> Input<'a> {
    /// From its begin.
    pub(super) fn new(file: &'a File, meter: &'a Meter) -> Input<'a> {
        Input { file, meter, buffer: vec![0; START_BYTES], begin: 0, end: 0, offset: 0, at_end: false }
    }

    /// What is read and not consumed: `wanted` bytes or more, less only at the file's end.
    pub(super) fn want(&mut self, wanted: usize) -> io::Result<&[u8]> {
        while self.end - self.begin < wanted && !self.at_end {
            self.read_on()?;
        }
        Ok(&self.buffer[self.begin..self.end])
    }

    fn read_on(&mut self) -> io::Result<()> {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            if self.end * 2 > self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let read = loop {
            match self
                .file
                .read_at(&mut self.buffer[self.end..], self.offset + (self.end - self.begin) as u64)
            {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.meter.read(read as u64);
        self.end += read;
        self.at_end = read == 0;
        Ok(())
    }

    /// Goes on by bytes that [`Input::want`] has shown.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.begin += bytes;
        self.offset += bytes as u64;
    }

    /// Offset in the file of what is read next.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }
}
