//! A ring of another process, mapped read-only: its words as atomics that are only loaded, its bytes by copy, and nothing
//! outside of the mappings whatever stands in them.
//!
//! What another process writes meanwhile is never borrowed but as atomics: words are loaded by relaxed loads of at most 8
//! bytes, which read-only memory allows, with an acquire fence behind them; bytes are copied by such loads, or lent as
//! [`Bytes`], and are as they were written if the generation is the same afterwards.

use super::Record;
use super::error::OutsideError;
use crate::control::{
    Committed, Header, LaneControl, PIN_BITS, PINS, REGION_MAGIC, SegmentControl, WorkerControl,
};
use crate::region::place::{self, HUGE_PAGE, PAGE};
use crate::region::{INTERFACE_AREA_BYTES, Layout};
use crate::{INTERFACES_MAX, protocol};
use scope_packet::Moment;
use scope_packet::fetch::{LINE_BYTES, fetch_begin};
use std::io::Error;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of what is loaded at once.
const WORD: usize = size_of::<u64>();

/// One file of the ring.
struct ReadOnly {
    base: *const u8,
    bytes: usize,
}

// SAFETY: the mapping is read-only, and all that is done with it is loading atomics.
unsafe impl Send for ReadOnly {}
// SAFETY: as above.
unsafe impl Sync for ReadOnly {}

impl ReadOnly {
    /// Maps all of `file`, which nobody can shorten any more.
    fn map(file: BorrowedFd<'_>) -> Result<ReadOnly, OutsideError> {
        let system = |place| OutsideError::System { place, cause: Error::last_os_error() };
        let number = file.as_raw_fd();
        // SAFETY: a plain system call on a descriptor that is borrowed for longer.
        let seals = unsafe { libc::fcntl(number, libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(OutsideError::Unsealed); // a look behind a shortened end would end this process
        }
        // SAFETY: all bit patterns of this structure are valid; the call fills it.
        let mut facts: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the structure outlives the call.
        if unsafe { libc::fstat(number, &mut facts) } != 0 {
            return Err(system("looking at the ring's file"));
        }
        let bytes = usize::try_from(facts.st_size).ok().filter(|&bytes| bytes >= size_of::<Header>());
        let bytes = bytes.ok_or(OutsideError::Untrue("its file is too short for a ring"))?;
        let page = usize::try_from(facts.st_blksize).map_or(HUGE_PAGE, |page| page.max(HUGE_PAGE));
        let base = place::map(file, bytes, libc::PROT_READ, page)
            .map_err(|cause| OutsideError::System { place: "mapping the ring", cause })?;
        // SAFETY: the range is the whole mapping, and the advice changes no byte.
        unsafe { libc::madvise(base.cast(), bytes, libc::MADV_DONTDUMP) };
        Ok(ReadOnly { base, bytes })
    }

    /// The words at `at`. `T` is made of atomics, all bit patterns of which are valid.
    fn words<T>(&self, at: usize) -> &T {
        assert!(at + size_of::<T>() <= self.bytes && at.is_multiple_of(align_of::<T>()));
        // SAFETY: aligned and inside the mapping by the assertion (its base is aligned to a page); the mapping lives as
        // long as `self`; the types used here are atomics and padding that nobody writes.
        unsafe { &*self.base.add(at).cast::<T>() }
    }

    /// Bytes `range`, in place; `None`: it reaches beyond the mapping.
    #[inline(always)]
    fn bytes(&self, range: Range<usize>) -> Option<&[AtomicU8]> {
        if range.start > range.end || range.end > self.bytes {
            return None;
        }
        // SAFETY: inside the mapping by the comparison, which lives as long as `self`; atomics may change while they are
        // borrowed, and are only loaded.
        Some(unsafe {
            std::slice::from_raw_parts(self.base.add(range.start).cast::<AtomicU8>(), range.len())
        })
    }

    /// Has the system enter the pages of `range`, where it can: else it does so page by page, as they are looked at.
    fn enter(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.bytes && range.start.is_multiple_of(PAGE));
        // SAFETY: inside the mapping and from a page's begin on by the assertion; this advice changes no byte.
        unsafe {
            let at = self.base.add(range.start).cast_mut().cast();
            libc::madvise(at, range.len(), libc::MADV_POPULATE_READ);
        }
    }

    /// Copies bytes `range`; both ends are multiples of [`WORD`].
    fn copy(&self, range: Range<usize>, out: &mut Vec<u8>) {
        assert!(range.start <= range.end && range.end <= self.bytes);
        assert!(range.start.is_multiple_of(WORD) && range.end.is_multiple_of(WORD));
        // SAFETY: inside the mapping and aligned by the assertions; atomics may change while they are borrowed.
        let words = unsafe {
            std::slice::from_raw_parts(self.base.add(range.start).cast::<AtomicU64>(), range.len() / WORD)
        };
        out.resize(range.len(), 0);
        for (bytes, word) in out.chunks_exact_mut(WORD).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nobody borrows from a view that is dropped.
        unsafe { libc::munmap(self.base.cast_mut().cast(), self.bytes) };
    }
}

/// Bytes in the memory of another process, which may change them: to look at, one by one or in a copy.
#[derive(Clone, Copy)]
pub struct Bytes<'a>(&'a [AtomicU8]);

impl<'a> Bytes<'a> {
    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Byte `at`, as it is now.
    #[inline]
    pub fn get(&self, at: usize) -> Option<u8> {
        Some(self.0.get(at)?.load(Ordering::Relaxed))
    }

    /// The two bytes from `at` on, as a number of the network.
    #[inline]
    pub fn be16(&self, at: usize) -> Option<u16> {
        let two = self.0.get(at..)?.first_chunk::<2>()?;
        Some(u16::from_be_bytes(two.each_ref().map(|byte| byte.load(Ordering::Relaxed))))
    }

    /// The first bytes as numbers of pcapng, each loaded once; `None`: there are fewer, or they are not aligned.
    #[inline]
    pub(super) fn le32s<const WORDS: usize>(&self) -> Option<[u32; WORDS]> {
        let place = self.0.as_ptr().cast::<[AtomicU32; WORDS]>();
        if self.0.len() < size_of::<[u32; WORDS]>() || !place.is_aligned() {
            return None;
        }
        // SAFETY: so many bytes are borrowed, and the place is aligned, by the comparisons; all that is done are loads.
        let words = unsafe { &*place };
        Some(words.each_ref().map(|word| u32::from_le(word.load(Ordering::Relaxed))))
    }

    /// Asks for their first two cache lines, without waiting for them: a packet block's head, and headers.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        for at in [0, LINE_BYTES] {
            if let Some(byte) = self.0.get(at) {
                fetch_begin(byte);
            }
        }
    }

    /// Asks for their first cache line.
    #[inline(always)]
    pub(super) fn fetch_begin(&self) {
        if let Some(byte) = self.0.first() {
            fetch_begin(byte);
        }
    }

    /// A part of them; `None`: it reaches beyond them.
    #[inline]
    pub fn part(&self, range: Range<usize>) -> Option<Bytes<'a>> {
        Some(Bytes(self.0.get(range)?))
    }

    /// Copies as many as both have; how many.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        for (to, from) in out.iter_mut().zip(self.0) {
            *to = from.load(Ordering::Relaxed);
        }
        out.len().min(self.0.len())
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
    }

    /// Where they lie: for programs in other languages, to which memory that changes is no matter.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

impl std::fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bytes").field(&self.0.len()).finish()
    }
}

/// A ring of another process.
pub(super) struct View {
    tables: ReadOnly,
    slots: ReadOnly,
    layout: Layout,
}

/// Loads a word, and all that was written before it.
fn load(word: &AtomicU64) -> u64 {
    let value = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire); // what was published by this word is read behind it
    value
}

fn load32(word: &AtomicU32) -> u32 {
    let value = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire); // as above
    value
}

impl View {
    /// Maps the files of a ring.
    pub(super) fn map(tables: BorrowedFd<'_>, slots: BorrowedFd<'_>) -> Result<View, OutsideError> {
        let (tables, slots) = (ReadOnly::map(tables)?, ReadOnly::map(slots)?);
        let header: &Header = tables.words(0);
        match load(&header.magic) {
            REGION_MAGIC => {}
            other if other << 8 == REGION_MAGIC << 8 => return Err(OutsideError::Version),
            _ => return Err(OutsideError::Untrue("it doesn't begin like one")),
        }
        let sizes = [&header.segment_bytes, &header.segments, &header.workers, &header.lanes].map(load);
        let layout = Layout::told(sizes, tables.bytes, slots.bytes);
        let layout = layout.ok_or(OutsideError::Untrue("its sizes fit no ring, or not its files"))?;
        Ok(View { tables, slots, layout })
    }

    fn header(&self) -> &Header {
        self.tables.words(0)
    }

    /// The run's 128 random bits.
    pub(super) fn run_id(&self) -> [u8; 16] {
        let [low, high] = self.header().run_id.each_ref().map(load);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&low.to_le_bytes());
        id[8..].copy_from_slice(&high.to_le_bytes());
        id
    }

    /// Bytes of one segment.
    #[inline]
    pub(super) fn segment_bytes(&self) -> usize {
        self.layout.segment_bytes
    }

    /// Number of segments.
    pub(super) fn segments(&self) -> usize {
        self.layout.segments
    }

    /// Lanes opened so far.
    pub(super) fn lanes(&self) -> u32 {
        load32(&self.header().lanes_used).min(self.layout.lanes as u32)
    }

    fn lane(&self, lane: u32) -> &LaneControl {
        self.tables.words(self.layout.lane_at(lane))
    }

    /// Number of a lane's link type.
    pub(super) fn link_type(&self, lane: u32) -> u16 {
        load32(&self.lane(lane).link_type) as u16
    }

    /// Packets of a lane that were published so far.
    pub(super) fn published(&self, lane: u32) -> u64 {
        load(&self.lane(lane).published_packets)
    }

    /// Segments that a lane has opened so far.
    pub(super) fn next(&self, lane: u32) -> u64 {
        load(&self.lane(lane).next)
    }

    /// Where the directory leads to for a segment: slot and generation; `None`: nowhere.
    pub(super) fn find(&self, lane: u32, sequence: u64) -> Option<(u32, u64)> {
        let entry = load(self.tables.words(self.layout.entry_at(lane, sequence)));
        let slot = (entry & PINS) as u32;
        (entry >> PIN_BITS != 0 && (slot as usize) < self.layout.segments)
            .then_some((slot, entry >> PIN_BITS))
    }

    fn segment(&self, slot: u32) -> &SegmentControl {
        self.tables.words(self.layout.segment_at(slot))
    }

    /// Whether nobody has claimed the slot since it was at `generation`; see `protocol::is_still`.
    pub(super) fn is_still(&self, slot: u32, generation: u64) -> bool {
        protocol::is_still(&self.segment(slot).word, generation)
    }

    /// What a slot says of its segment.
    pub(super) fn record(&self, slot: u32) -> Record {
        Record::of(self.segment(slot))
    }

    /// How far it is committed.
    pub(super) fn committed(&self, slot: u32) -> Committed {
        Committed::from_word(load(&self.segment(slot).committed))
    }

    /// The latest time of its packets so far, ns.
    pub(super) fn max_ns(&self, slot: u32) -> i64 {
        self.segment(slot).times[3].load(Ordering::Relaxed)
    }

    /// Copies bytes `range` of a slot, or of more of it: how many stand in `out` in front of the first one.
    pub(super) fn copy(&self, slot: u32, range: Range<usize>, out: &mut Vec<u8>) -> usize {
        assert!((slot as usize) < self.layout.segments && range.end <= self.layout.segment_bytes);
        let before = range.start % WORD;
        let base = slot as usize * self.layout.segment_bytes; // a multiple of a page
        self.slots.copy(base + range.start - before..base + range.end.next_multiple_of(WORD), out);
        before
    }

    /// Enters the pages of a slot.
    pub(super) fn enter(&self, slot: u32) {
        let base = slot as usize * self.layout.segment_bytes;
        self.slots.enter(base..base + self.layout.segment_bytes);
    }

    /// Where a slot lies, bytes of all slots; `None`: there is no such one.
    pub(super) fn place_of(&self, slot: u32) -> Option<Range<usize>> {
        let base = slot as usize * self.layout.segment_bytes;
        ((slot as usize) < self.layout.segments).then_some(base..base + self.layout.segment_bytes)
    }

    /// Bytes `range` of all slots, in place; `None`: it reaches beyond them.
    #[inline(always)]
    pub(super) fn bytes(&self, range: Range<usize>) -> Option<Bytes<'_>> {
        self.slots.bytes(range).map(Bytes)
    }

    /// The descriptions of interfaces behind the first `known` bytes of them, as they lie there.
    pub(super) fn interfaces(&self, known: usize) -> Vec<u8> {
        let bytes = load(&self.header().interface_bytes).min(INTERFACE_AREA_BYTES as u64) as usize;
        let mut out = Vec::new();
        if known < bytes {
            let at = self.layout.interfaces_at();
            let before = known % WORD;
            self.tables.copy(at + known - before..at + bytes.next_multiple_of(WORD), &mut out);
            out.truncate(before + bytes - known);
            out.drain(..before);
        }
        out
    }

    /// Interfaces that the run knows so far.
    pub(super) fn interfaces_known(&self) -> u32 {
        load32(&self.header().interfaces).min(INTERFACES_MAX)
    }

    fn worker(&self, index: u32) -> &WorkerControl {
        self.tables.words(self.layout.worker_at(index))
    }

    /// The latest time that a worker tells, ns; of a run that has ended that of its newest packet.
    pub(super) fn clock_ns(&self) -> i64 {
        let clocks = (0..self.layout.workers as u32)
            .map(|index| self.worker(index).clock_ns.load(Ordering::Relaxed))
            .filter(|&clock_ns| clock_ns > 0 && clock_ns < i64::MAX);
        let newest = || {
            let slots = (0..self.layout.segments as u32).filter(|&slot| self.committed(slot).packets > 0);
            slots.map(|slot| self.max_ns(slot)).max()
        };
        clocks.max().or_else(newest).unwrap_or(0)
    }

    /// Up to where every worker has committed what it had; see `Ring::committed`.
    pub(super) fn settled(&self) -> Moment {
        let of_worker = |index: u32| {
            let control = self.worker(index);
            let era = load(&control.era); // before the clock: see `WorkerControl::moment`
            let clock_ns = control.clock_ns.load(Ordering::Relaxed);
            fence(Ordering::Acquire); // the commits that the clock speaks of are read behind it
            match clock_ns {
                i64::MAX => Moment::END,
                clock_ns => {
                    let grace_ns = control.grace_ns.load(Ordering::Relaxed).max(0);
                    Moment::new(era, clock_ns).plus(-grace_ns)
                }
            }
        };
        (0..self.layout.workers as u32).map(of_worker).min().unwrap_or(Moment::END)
    }
}
