//! The bytes of the open segment: blocks and key entries go into memory at its speed, each byte exactly once.
//!
//! ```text
//!  0        published        at                                                           entry 0       foot
//!  | blocks | blocks not yet  ►|            gap                |◄  entries not yet | entries |  4 KiB  |
//!  |        | published        |                               |        published  |         |         |
//!                      ^ open line of the blocks          ^ open line of the entries          lines of 64 bytes
//! ```
//! Blocks grow upward, entries downward. An ordinary store first reads the line that it changes: half of the
//! memory's bandwidth is lost. A non-temporal store of a whole line doesn't. So each side holds back the line
//! that isn't full yet, its open line, and streams whole lines:
//!
//! ```text
//! append     for each packet of the batch, for each line that its block fills:
//!                begins at `stream_from` or later?  ─► stream it                     (non-temporal, past the caches)
//!                else                               ─► ordinary store of the part of it that isn't published
//!            the rest is the open line; key entries are staged, and after at most 128 their whole lines are streamed
//! publish    ordinary stores of what of the open lines isn't published yet: a part of a line, never padded
//!            store fence, if anything was streamed; then the caller's release store of the committed word
//!            stream_from = the next line, where commits are large; else 4 KiB farther
//! seal       as publish; then gap and foot by ordinary stores
//! ```
//! So a line that a commit cut is finished by ordinary stores of the part behind the cut, and no published
//! byte is ever written again, not even with the value that it has.
//!
//! **Small commits.** A non-temporal store pays where the line isn't read soon. After a commit, `stream_from`
//! says which lines are streamed until the next: where the running mean of block bytes per commit (a quarter
//! of it the last one) is 4 KiB or more, all of them; else those that lie 4 KiB or more behind the commit, so
//! that a lane whose commits become large streams at once. The prediction is one comparison per line, the
//! same that recognises a line that a commit cut.
//!
//! | form | processors | blocks |
//! |---|---|---|
//! | [`avx512`] | AVX-512 F and BW | open line in a register, each block rotated into it; no staging |
//! | [`avx2`] | AVX2 and BMI2 | the same with half a line |
//! | [`sse2`] | every x86-64 | 4 KiB staging; payloads of 128 bytes and more go straight from the source |
//! | plain | any; sanitizers | ordinary stores straight into the segment |
//!
//! Absent on purpose: who may write and what a reader may see is decided elsewhere (module `writer`, module
//! `pin`).

mod arrivals;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod entries;
mod form;
#[cfg(target_arch = "x86_64")]
mod line;
mod place;
#[cfg(target_arch = "x86_64")]
mod sse2;

pub use arrivals::{Appended, Arrivals, Incoming};
pub use form::Form;

use arrivals::{block_bytes, head};
#[cfg(target_arch = "x86_64")]
use entries::Entries;
use place::Place;
use scope_packet::BATCH_PACKETS_MAX;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::segment::{self, FOOT_BYTES, Foot};
use std::ops::Range;

/// What memory moves at a time, bytes.
const LINE_BYTES: usize = 64;
/// Commits of at least this many block bytes are streamed.
const STREAM_BYTES_MIN: usize = 4096;

/// The writing end of one segment after another.
///
/// All forms share this state, so that the fast path finds everything through one pointer.
#[repr(C, align(64))]
pub struct Stream {
    /// [`avx512`]: the block line that isn't full yet.
    #[cfg(target_arch = "x86_64")]
    open_line: avx512::OpenLine,
    /// [`avx2`]: the half of a block line that isn't full yet.
    #[cfg(target_arch = "x86_64")]
    open_half: avx2::OpenHalf,
    place: Place,
    form: Form,
    #[cfg(target_arch = "x86_64")]
    entries: Entries,
    #[cfg(target_arch = "x86_64")]
    staging: sse2::Staging,
}

// SAFETY: the pointer inside leads to a segment that this stream alone writes; nothing in it belongs to a
// thread.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream of this form, nothing open.
    ///
    /// # Panics
    /// Where this processor doesn't have the form.
    pub fn new(form: Form) -> Box<Stream> {
        assert!(form.is_supported(), "{form:?} on a processor that has it");
        Box::new(Stream {
            #[cfg(target_arch = "x86_64")]
            open_line: Default::default(),
            #[cfg(target_arch = "x86_64")]
            open_half: Default::default(),
            place: Place::closed(),
            form,
            #[cfg(target_arch = "x86_64")]
            entries: Default::default(),
            #[cfg(target_arch = "x86_64")]
            staging: Default::default(),
        })
    }

    /// Begins a segment with room for the statistics of `interfaces` interfaces.
    ///
    /// # Safety
    /// `segment` leads to `segment_bytes` bytes, aligned to a line. Until [`Stream::seal`] has returned, they
    /// stay there, nobody else writes them, and nobody reads what wasn't published.
    pub unsafe fn open(&mut self, segment: *mut u8, segment_bytes: usize, interfaces: usize) {
        assert!(segment::is_segment_size(segment_bytes) && segment.addr().is_multiple_of(LINE_BYTES));
        self.place.open(segment, segment_bytes, segment::room_bytes(segment_bytes, interfaces));
        #[cfg(target_arch = "x86_64")]
        {
            self.entries.open();
            self.staging.open();
        }
    }

    /// Packets of the open segment.
    pub fn packets(&self) -> u32 {
        self.place.packets as u32
    }

    /// Block bytes of the open segment.
    pub fn bytes(&self) -> u32 {
        self.place.at as u32
    }

    /// Makes room for the statistics of `interfaces` interfaces. False: what stands in the segment leaves
    /// none.
    pub fn reserve(&mut self, interfaces: usize) -> bool {
        let room = segment::room_bytes(self.place.segment_bytes, interfaces);
        let fits = self.place.at + self.place.packets * KEY_ENTRY_BYTES <= room;
        if fits && self.place.room > 0 {
            self.place.room = room;
        }
        fits
    }

    /// Appends the blocks of packets `range` of a batch, [`BATCH_PACKETS_MAX`] at most, with `interface` as
    /// their interface number, and their key entries. Not all of them where there is no room for the next
    /// one; none where no segment is open.
    #[inline]
    pub fn append<B: Arrivals>(&mut self, interface: u32, batch: &B, range: Range<usize>) -> Appended {
        assert!(range.len() <= BATCH_PACKETS_MAX);
        if self.place.room == 0 {
            return Appended::default();
        }
        match self.form {
            // SAFETY: the processor has the form (`new`); a segment is open.
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => unsafe { avx512::append(self, interface, batch, range) },
            // SAFETY: likewise.
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => unsafe { avx2::append(self, interface, batch, range) },
            #[cfg(target_arch = "x86_64")]
            Form::Sse2 => sse2::append(self, interface, batch, range),
            _ => self.append_plain(interface, batch, range),
        }
    }

    fn append_plain<B: Arrivals>(&mut self, interface: u32, batch: &B, range: Range<usize>) -> Appended {
        let place = &mut self.place;
        let mut appended = Appended::default();
        for packet in range.map(|index| batch.packet(index)) {
            let (head, total) = (head(&packet, interface), block_bytes(&packet));
            if !place.has_room(total) {
                break;
            }
            // SAFETY: block and entry lie between what is written and the room's end (`has_room`), apart from
            // each other.
            let (block, slot) =
                unsafe { (place.gap(place.at, total), place.gap(place.entry_at(), KEY_ENTRY_BYTES)) };
            head.write(block, packet.data);
            slot.copy_from_slice(&packet.key.at(place.at as u32).to_bytes());
            place.at += total;
            place.packets += 1;
            appended.add(&packet);
            appended.packets += 1;
        }
        appended
    }

    /// Puts everything that was appended where readers look for it. The caller's release store of the
    /// committed word follows.
    ///
    /// # Panics
    /// Where no segment is open.
    pub fn publish(&mut self) {
        assert!(self.place.room > 0, "a segment is open");
        self.write_open_lines();
        self.place.publish();
    }

    #[cfg(target_arch = "x86_64")]
    fn write_open_lines(&mut self) {
        match self.form {
            Form::Plain => return,
            // SAFETY: the processor has AVX-512 (`new`); the open line lies in the open segment.
            Form::Avx512 => unsafe { avx512::write_open_line(&self.open_line, &self.place) },
            // SAFETY: the processor has AVX2 (`new`); the open half lies in the open segment.
            Form::Avx2 => unsafe { avx2::write_open_half(&self.open_half, &self.place) },
            Form::Sse2 => self.staging.publish(&mut self.place),
        }
        self.entries.publish(&mut self.place);
        self.place.fence();
    }

    /// Nothing is ever held back.
    #[cfg(not(target_arch = "x86_64"))]
    fn write_open_lines(&mut self) {}

    /// Ends the open segment: all of its bytes are in place when this returns, what was streamed included.
    pub fn seal(&mut self, foot: &Foot, statistics: &[u8]) {
        assert!(self.place.room > 0, "a segment is open");
        self.write_open_lines();
        let place = &self.place;
        let entries_at = place.entry_at() + KEY_ENTRY_BYTES;
        // SAFETY: the gap between blocks and entries and the foot behind them are not written yet; the room
        // that every packet was checked against keeps the four apart.
        let (gap, tail) = unsafe {
            (
                place.gap(place.at, entries_at - place.at),
                place.gap(place.segment_bytes - FOOT_BYTES, FOOT_BYTES),
            )
        };
        segment::seal(gap, tail, foot, statistics);
        self.place.close();
    }
}
