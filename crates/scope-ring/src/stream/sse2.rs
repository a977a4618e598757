//! Blocks to memory with SSE2: staged until there are 4 KiB, large payloads streamed straight from the
//! source.
//!
//! ```text
//! segment   | staged lines | payload of a large packet | staged lines | payload | open line
//! staging   | run 0 | free line | run 1 | free line | run 2 ...: each run with its place in the segment
//!
//! append    head into the staging
//!           payload below 128 B: into the staging
//!           else: into the staging up to the line's end, whole lines from the source to the segment, the rest into the
//!                 staging as a new run
//!           closing words into the staging; 4 KiB staged? write their lines
//! ```
//! Lines of the staging are read long after they were stored: read at once, each would wait for its narrow
//! stores. Staged bytes beyond `filled` mean nothing.

use super::arrivals::{Appended, Arrivals, block_bytes, head};
use super::place::Place;
use super::{LINE_BYTES, Stream, line};
use scope_packet::pcapng::{CLOSING_WORDS_MAX, PACKET_HEAD_BYTES, PacketHead, padded};
use std::ops::Range;

/// Staged bytes at which lines are written.
const STAGED_BYTES: usize = 4096;
/// Payloads of at least this many bytes are streamed from the source.
const STRAIGHT_BYTES_MIN: usize = 128;
/// Most that one packet adds to the staging: head, a payload below the bound or the two ends of a larger one,
/// closing words, and what copies may write beyond.
const PACKET_STAGED_MAX: usize = 320;
/// Each run but the last has at least one line.
const RUNS_MAX: usize = (STAGED_BYTES + PACKET_STAGED_MAX) / LINE_BYTES + 1;

const _: () = assert!(PACKET_HEAD_BYTES + 4 * LINE_BYTES + 4 * CLOSING_WORDS_MAX <= PACKET_STAGED_MAX);
// Both ends of a large payload exist; a small one is covered by two lines from its ends.
const _: () = assert!(STRAIGHT_BYTES_MIN == 2 * LINE_BYTES);

/// A piece of the staging that lies in one piece in the segment, too.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Where it begins in the staging, a line.
    staged: usize,
    /// Where it ends in the staging, a line; the last run goes on.
    end: usize,
    /// Where it begins in the segment, a line.
    at: usize,
}

/// Blocks that aren't in the segment yet, from the open line of the last commit on.
#[repr(C, align(64))]
pub struct Staging {
    bytes: [u8; STAGED_BYTES + PACKET_STAGED_MAX],
    filled: usize,
    runs: [Run; RUNS_MAX],
    run_count: usize,
}

impl Default for Staging {
    fn default() -> Staging {
        Staging {
            bytes: [0; STAGED_BYTES + PACKET_STAGED_MAX],
            filled: 0,
            runs: [Run::default(); RUNS_MAX],
            run_count: 1,
        }
    }
}

/// Appends the blocks and entries of packets `range` of a batch; see the module's text.
pub fn append<B: Arrivals>(stream: &mut Stream, interface: u32, batch: &B, range: Range<usize>) -> Appended {
    let Stream { place, entries, staging, .. } = stream;
    entries.make_room(place);
    let mut appended = Appended::default();
    for packet in range.map(|index| batch.packet(index)) {
        let (head, total) = (head(&packet, interface), block_bytes(&packet));
        if !place.has_room(total) {
            break;
        }
        entries.push(place.packets, packet.key, place.at);
        // SAFETY: there is room for the block.
        unsafe { staging.append(place, &head, packet.data, total) };
        place.packets += 1;
        appended.add(&packet);
        appended.packets += 1;
    }
    appended
}

impl Staging {
    pub fn open(&mut self) {
        self.filled = 0;
        self.runs[0] = Run::default();
        self.run_count = 1;
    }

    /// Appends one block of `total` bytes.
    ///
    /// # Safety
    /// `total` is the block's length, `data` its packet, and the open segment has room for it at `place.at`.
    #[inline(always)]
    unsafe fn append(&mut self, place: &mut Place, head: &PacketHead, data: &[u8], total: usize) {
        let mut to = self.filled;
        for (index, word) in head.opening(total).into_iter().enumerate() {
            self.put(to + index * 8, word.to_le_bytes()); // the last one's upper half is the packet's
        }
        to += PACKET_HEAD_BYTES;
        if data.len() < STRAIGHT_BYTES_MIN {
            self.put(to + data.len(), [0; 4]); // the padding
            self.copy(to, data);
            to += padded(data.len());
        } else {
            // SAFETY: by this function's contract.
            to = unsafe { self.stream_straight(place, to, place.at + PACKET_HEAD_BYTES, data) };
        }
        if head.has_options() {
            let (words, count) = head.closing(total);
            self.put(to, words.map(u32::to_le_bytes));
            to += count * 4;
        } else {
            self.put(to, (total as u32).to_le_bytes());
            to += 4;
        }
        self.filled = to;
        place.at += total;
        if self.filled >= STAGED_BYTES {
            self.write_lines(place);
        }
    }

    /// Brings `data`, at least [`STRAIGHT_BYTES_MIN`] bytes whose place in the segment is `at`, to the
    /// segment but for its two ends, which are staged, the first one at `to`. Returns where the staging goes
    /// on, the padding included.
    ///
    /// # Safety
    /// The open segment has room for `data` at `at`, and `to` has the same place in its line as `at`.
    #[inline]
    unsafe fn stream_straight(&mut self, place: &Place, to: usize, at: usize, data: &[u8]) -> usize {
        let first_bytes = to.next_multiple_of(LINE_BYTES) - to;
        let line_bytes = (data.len() - first_bytes) & !(LINE_BYTES - 1);
        let last_bytes = data.len() - first_bytes - line_bytes;
        let (Some(first), Some(last)) = (data.first_chunk::<LINE_BYTES>(), data.last_chunk::<LINE_BYTES>())
        else {
            unreachable!("two lines at least");
        };
        self.put(to, *first); // a whole line's worth, whatever is needed of it: no branches
        // SAFETY: whole lines of the packet, whose places are whole lines inside the room of the block.
        unsafe {
            let from = data.as_ptr().add(first_bytes);
            for line in (0..line_bytes).step_by(LINE_BYTES) {
                line::write(place, at + first_bytes + line, from.add(line));
            }
        }
        // The last bytes come with those before them, for which a line of the staging is left free.
        let run = to + first_bytes + LINE_BYTES;
        self.put(run + last_bytes, [0; 4]); // the padding
        self.put(run + last_bytes - LINE_BYTES, *last);
        self.runs[self.run_count - 1].end = to + first_bytes;
        self.runs[self.run_count] = Run { staged: run, end: 0, at: at + first_bytes + line_bytes };
        self.run_count += 1;
        run + padded(last_bytes)
    }

    /// Stages `value`.
    #[inline]
    fn put<T: Copy>(&mut self, to: usize, value: T) {
        debug_assert!(to + size_of::<T>() <= self.bytes.len());
        // SAFETY: inside the staging: `filled` is below `STAGED_BYTES` between packets, and one packet adds
        // at most `PACKET_STAGED_MAX`. `T` is bytes.
        unsafe { self.bytes.as_mut_ptr().add(to).cast::<T>().write_unaligned(value) };
    }

    /// Stages `data`, below 128 bytes, from both of its ends: nothing beyond is read, and few branches are
    /// needed.
    #[inline]
    fn copy(&mut self, to: usize, data: &[u8]) {
        if self.copy_ends::<64>(to, data) || self.copy_ends::<32>(to, data) || self.copy_ends::<16>(to, data)
        {
            return;
        }
        if self.copy_ends::<8>(to, data) || self.copy_ends::<4>(to, data) {
            return;
        }
        for (index, &byte) in data.iter().enumerate() {
            self.put(to + index, byte);
        }
    }

    /// Stages the first and the last `N` bytes of `data`, which overlap or meet. False: it has less.
    #[inline]
    fn copy_ends<const N: usize>(&mut self, to: usize, data: &[u8]) -> bool {
        let (Some(first), Some(last)) = (data.first_chunk::<N>(), data.last_chunk::<N>()) else {
            return false;
        };
        self.put(to, *first);
        self.put(to + data.len() - N, *last);
        true
    }

    /// Writes all whole lines and goes on with the open line.
    #[cold]
    fn write_lines(&mut self, place: &mut Place) {
        let open = self.filled & !(LINE_BYTES - 1);
        for index in 0..self.run_count {
            let run = self.runs[index];
            let end = if index + 1 < self.run_count { run.end } else { open };
            for staged in (run.staged..end).step_by(LINE_BYTES) {
                // SAFETY: the line is staged and full; its place lies in the segment, inside blocks that had
                // room.
                unsafe { line::write(place, run.at + staged - run.staged, self.bytes.as_ptr().add(staged)) };
            }
        }
        self.bytes.copy_within(open..open + LINE_BYTES, 0);
        self.filled -= open;
        self.runs[0] = Run { at: place.open_line(), ..Run::default() };
        self.run_count = 1;
    }

    /// Puts all blocks where readers look for them, the open line's part by ordinary stores.
    pub fn publish(&mut self, place: &mut Place) {
        self.write_lines(place);
        if self.filled > 0 {
            // SAFETY: the open line is staged at the front, filled up to `filled`, and lies inside the
            // segment.
            unsafe { line::write_unpublished(place, place.open_line(), self.filled, self.bytes.as_ptr()) };
        }
    }
}
