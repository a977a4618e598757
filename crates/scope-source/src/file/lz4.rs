//! One lz4 frame, decompressed piece by piece: its header, its blocks, its checksums.
//!
//! ```text
//!  frame   magic 4 | flags 1 | block size 1 | [content bytes 8] | [dictionary 4] | header check 1 | block ... | 0 4 | [checksum 4]
//!  block   bytes 4, highest bit: stored as it is | data | [checksum 4]
//! ```
//! The blocks themselves are decompressed by the library. What it offers for frames waits for its input, and
//! a pipe must not hold up the worker. Memory: two blocks, of 4 MiB at most, and the 64 KiB that a block may
//! refer back to. It grows with the bytes that come.

use std::hash::Hasher;

use lz4_flex::block::decompress_into_with_dict;
use twox_hash::XxHash32;

/// Begins a frame, little-endian.
pub(super) const MAGIC: u32 = 0x184d_2204;
/// A frame's header is at most so long, bytes.
const HEADER_BYTES_MAX: usize = 19;
/// What stands in front of the block sizes: magic, flags, block size.
const HEADER_BYTES_BEFORE: usize = 6;
/// How far back a block may refer, bytes.
const HISTORY_BYTES: usize = 64 << 10;
/// In a block's length: it isn't compressed.
const STORED: u32 = 1 << 31;

/// What stands next in the input.
enum Next {
    Header,
    Length,
    /// A block of so many bytes, its checksum not counted.
    Block {
        bytes: usize,
        stored: bool,
    },
    /// Of the whole content, if there is one.
    Checksum,
    Over,
}

/// How far one step led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes of the input that are dealt with.
    pub(super) consumed: usize,
    /// Bytes put into the output.
    pub(super) produced: usize,
}

/// A frame that is being decompressed. It begins with the magic.
pub(super) struct Frame {
    next: Next,
    block_bytes_max: usize,
    blocks_checked: bool,
    blocks_linked: bool,
    /// Of all that came out; `None`: the frame has no checksum.
    content: Option<XxHash32>,
    /// Bytes that are still to come out, where the header says how many there are.
    content_left: Option<u64>,
    /// The block that is being gathered.
    block: Vec<u8>,
    /// The last block, decompressed; handed out up to `out_at`.
    out: Vec<u8>,
    out_at: usize,
    out_end: usize,
    /// What came before `out`, at most [`HISTORY_BYTES`].
    history: Vec<u8>,
}

impl Frame {
    pub(super) fn new() -> Frame {
        Frame {
            next: Next::Header,
            block_bytes_max: 0,
            blocks_checked: false,
            blocks_linked: false,
            content: None,
            content_left: None,
            block: Vec::new(),
            out: Vec::new(),
            out_at: 0,
            out_end: 0,
            history: Vec::new(),
        }
    }

    /// Nothing of it is left to be read or handed out.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.next, Next::Over) && self.out_at == self.out_end
    }

    /// Goes on by one part. Neither consumed nor produced: more input is needed.
    ///
    /// # Errors
    /// In words, what is wrong with the frame.
    pub(super) fn step(&mut self, from: &[u8], into: &mut [u8]) -> Result<Step, String> {
        if self.out_at < self.out_end {
            let produced = into.len().min(self.out_end - self.out_at);
            into[..produced].copy_from_slice(&self.out[self.out_at..self.out_at + produced]);
            self.out_at += produced;
            return Ok(Step { consumed: 0, produced });
        }
        let consumed = match self.next {
            Next::Header => self.header(from)?,
            Next::Length => self.length(from)?,
            Next::Block { bytes, stored } => self.gather(from, bytes, stored)?,
            Next::Checksum => self.checksum(from)?,
            Next::Over => 0,
        };
        Ok(Step { consumed, produced: 0 })
    }

    fn header(&mut self, from: &[u8]) -> Result<usize, String> {
        let Some(&[.., flags, sizes]) = from.first_chunk::<HEADER_BYTES_BEFORE>() else { return Ok(0) };
        let has = |bit: u8| flags & 1 << bit != 0;
        if flags >> 6 != 1 || has(1) || sizes & 0x8f != 0 || sizes >> 4 < 4 {
            return Err("its frame header is of no known version".to_string());
        }
        let (sized, with_dictionary) = (has(3), has(0));
        let bytes = HEADER_BYTES_BEFORE + 8 * usize::from(sized) + 4 * usize::from(with_dictionary) + 1;
        debug_assert!(bytes <= HEADER_BYTES_MAX);
        let Some(header) = from.get(..bytes) else { return Ok(0) };
        let (checked, check) = (&header[4..bytes - 1], header[bytes - 1]);
        if (hash(checked) >> 8) as u8 != check {
            return Err("the checksum of its frame header doesn't match".to_string());
        }
        if with_dictionary {
            return Err("it needs a dictionary".to_string());
        }
        self.block_bytes_max = 1 << (8 + 2 * (sizes >> 4)); // 4: 64 KiB ... 7: 4 MiB
        self.blocks_linked = !has(5);
        self.blocks_checked = has(4);
        self.content = has(2).then(|| XxHash32::with_seed(0));
        self.content_left =
            checked[2..].first_chunk().filter(|_| sized).map(|bytes| u64::from_le_bytes(*bytes));
        self.next = Next::Length;
        Ok(bytes)
    }

    fn length(&mut self, from: &[u8]) -> Result<usize, String> {
        let Some(length) = word(from) else { return Ok(0) };
        if length == 0 {
            if self.content_left.is_some_and(|left| left > 0) {
                return Err("it holds less than its header says".to_string());
            }
            self.next = if self.content.is_some() { Next::Checksum } else { Next::Over };
            return Ok(4);
        }
        let (bytes, stored) = ((length & !STORED) as usize, length & STORED != 0);
        if bytes > self.block_bytes_max {
            return Err(format!("a block claims {bytes} bytes, {} are possible", self.block_bytes_max));
        }
        self.block.clear();
        self.next = Next::Block { bytes, stored };
        Ok(4)
    }

    /// Takes what is there of a block and, once it is whole, decompresses it.
    fn gather(&mut self, from: &[u8], bytes: usize, stored: bool) -> Result<usize, String> {
        let whole = bytes + 4 * usize::from(self.blocks_checked);
        let taken = from.len().min(whole - self.block.len());
        self.block.extend_from_slice(&from[..taken]);
        if self.block.len() < whole {
            return Ok(taken);
        }
        let (data, check) = self.block.split_at(bytes);
        if word(check).is_some_and(|check| check != hash(data)) {
            return Err("the checksum of a block doesn't match".to_string());
        }
        self.keep_history();
        let (data, out) = (&self.block[..bytes], &mut self.out);
        out.resize(self.block_bytes_max, 0);
        self.out_end = if stored {
            out[..bytes].copy_from_slice(data);
            bytes
        } else {
            let made = decompress_into_with_dict(data, out, &self.history);
            made.map_err(|error| format!("a block can't be decompressed: {error}"))?
        };
        self.out_at = 0;
        let out = &self.out[..self.out_end];
        if let Some(content) = &mut self.content {
            content.write(out);
        }
        if let Some(left) = &mut self.content_left {
            let more = || "it holds more than its header says".to_string();
            *left = left.checked_sub(out.len() as u64).ok_or_else(more)?;
        }
        self.next = Next::Length;
        Ok(taken)
    }

    /// Keeps the end of what has come out so far, for the next block.
    fn keep_history(&mut self) {
        if !self.blocks_linked {
            return;
        }
        let out = &self.out[..self.out_end];
        let out = &out[out.len().saturating_sub(HISTORY_BYTES)..];
        let beyond = (self.history.len() + out.len()).saturating_sub(HISTORY_BYTES);
        self.history.drain(..beyond);
        self.history.extend_from_slice(out);
    }

    fn checksum(&mut self, from: &[u8]) -> Result<usize, String> {
        let Some(check) = word(from) else { return Ok(0) };
        if self.content.as_ref().is_some_and(|content| content.finish() != u64::from(check)) {
            return Err("the checksum of its content doesn't match".to_string());
        }
        self.next = Next::Over;
        Ok(4)
    }
}

fn hash(bytes: &[u8]) -> u32 {
    XxHash32::oneshot(0, bytes)
}

/// The first 4 bytes.
fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_le_bytes(*word))
}
