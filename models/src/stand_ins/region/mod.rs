//! The ring's memory without a mapping: the same words under loom, and bytes whose every use loom sees.
//!
//! ```text
//! 0     40    80    120   160                        foot - 64       foot
//! | blk | blk | blk | blk | everything between them | 4 key entries | foot |        one loom cell ("grain") each
//! ```
//! Packets of the models make blocks of 40 bytes, so that no two threads ever use one grain for different
//! reasons.

use crate::RingError;
use crate::control::{Header, LaneControl, SegmentControl, WorkerControl};
use scope_packet::segment::{FOOT_BYTES, entry_offset};
use std::cell::UnsafeCell as Bytes;
use std::ops::Range;
use std::sync::atomic::AtomicU64;

pub const INTERFACE_AREA_BYTES: usize = 16 << 20;
/// Bytes of every packet block of the models.
pub const BLOCK_BYTES: usize = 40;
/// Packets that a segment of the models holds at most.
const PACKETS_MAX: usize = 4;

/// Memory of the models is of one kind, and there is always enough.
#[derive(Clone, Copy, Debug)]
pub struct MemoryKind;

#[derive(Clone, Copy, Debug)]
pub struct RingMemory {
    pub kind: MemoryKind,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryOptions;

impl MemoryOptions {
    pub fn check(&self, _ring_bytes: u64, _machine: &Machine) -> Result<(), RingError> {
        Ok(())
    }
}

pub struct Machine;

impl Machine {
    pub fn this() -> Machine {
        Machine
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub segment_bytes: usize,
    pub segments: usize,
    pub workers: usize,
    pub lanes: usize,
}

impl Layout {
    pub fn new(segment_bytes: usize, segments: usize, workers: usize, lanes: usize) -> Layout {
        Layout { segment_bytes, segments, workers, lanes }
    }
}

/// The address of a slot is that of this, so that loom sees every write through it: see [`written`].
#[repr(align(64))]
struct Slot {
    bytes: Bytes<Box<[u8]>>,
    /// End of each grain, ascending, and the cell that stands for it.
    grains: Vec<(usize, loom::cell::UnsafeCell<()>)>,
    /// For readers that copy without a pin: what stood in each block, one text behind the other, and which of them it is
    /// by now. Only where there is such a reader.
    copies: Option<Vec<(AtomicU64, Bytes<Vec<Vec<u8>>>)>>,
}

impl Slot {
    fn new(segment_bytes: usize) -> Slot {
        let blocks = (1..=PACKETS_MAX).map(|block| block * BLOCK_BYTES);
        let entries = (0..PACKETS_MAX).rev().map(|index| entry_offset(segment_bytes, index));
        let ends = blocks.chain(entries).chain([segment_bytes - FOOT_BYTES, segment_bytes]);
        Slot {
            bytes: Bytes::new(vec![0; segment_bytes].into_boxed_slice()),
            grains: ends.map(|end| (end, loom::cell::UnsafeCell::new(()))).collect(),
            copies: None,
        }
    }

    /// The same, for readers that copy without a pin.
    fn of_copies(self) -> Slot {
        let copies = (0..PACKETS_MAX).map(|_| (AtomicU64::new(0), Bytes::new(Vec::new()))).collect();
        Slot { copies: Some(copies), ..self }
    }

    /// Blocks that a range touches.
    fn blocks(range: &Range<usize>) -> Range<usize> {
        let end = range.end.div_ceil(BLOCK_BYTES).min(PACKETS_MAX);
        (range.start / BLOCK_BYTES).min(end)..end
    }

    /// Another text begins in the blocks of `range`; to be called before its bytes are written.
    fn begin_texts(&self, range: &Range<usize>) {
        for block in Slot::blocks(range) {
            let Some((latest, texts)) = self.copies.as_ref().map(|copies| &copies[block]) else { return };
            // SAFETY: one thread runs at a time, and none is switched to while this borrows.
            let texts = unsafe { &mut *texts.get() };
            // SAFETY: as above.
            texts.push(unsafe { (&(*self.bytes.get()))[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].to_vec() });
            let number = texts.len() as u64;
            latest.store(number, std::sync::atomic::Ordering::Relaxed); // as bytes are: in no order with anything
        }
    }

    /// The text of a block that a load of its bytes finds: not always the latest.
    fn text(&self, block: usize) -> Vec<u8> {
        let (latest, texts) = &self.copies.as_ref().expect("made for such readers")[block];
        let number = latest.load(std::sync::atomic::Ordering::Relaxed) as usize;
        // SAFETY: one thread runs at a time, and none is switched to while this borrows.
        let (texts, bytes) = unsafe { (&*texts.get(), &*self.bytes.get()) };
        match texts.get(number) {
            Some(before_the_next) => before_the_next.clone(),
            None => bytes[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES].to_vec(),
        }
    }

    fn touched(&self, range: &Range<usize>) -> impl Iterator<Item = &loom::cell::UnsafeCell<()>> {
        let starts = std::iter::once(0).chain(self.grains.iter().map(|grain| grain.0));
        let (from, to) = (range.start, range.end);
        starts.zip(&self.grains).filter(move |(start, grain)| *start < to && from < grain.0).map(|(_, grain)| &grain.1)
    }
}

std::thread_local! {
    /// Whether the next regions are for readers that copy without a pin.
    pub static COPIES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

pub struct Region {
    layout: Layout,
    header: Header,
    workers: Vec<WorkerControl>,
    lanes: Vec<LaneControl>,
    directory: Vec<AtomicU64>,
    segments: Vec<SegmentControl>,
    slots: Vec<Slot>,
}

// SAFETY: loom's cells report any two uses of bytes that aren't ordered, and runs one thread at a time.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

fn table<T: Default>(entries: usize) -> Vec<T> {
    (0..entries).map(|_| T::default()).collect()
}

impl Region {
    pub fn map(layout: Layout, _options: MemoryOptions) -> Result<Region, RingError> {
        let slot = || match COPIES.get() {
            false => Slot::new(layout.segment_bytes),
            true => Slot::new(layout.segment_bytes).of_copies(),
        };
        Ok(Region {
            layout,
            header: Header::default(),
            workers: table(layout.workers),
            lanes: table(layout.lanes),
            directory: table(layout.lanes * layout.segments),
            segments: table(layout.segments),
            slots: (0..layout.segments).map(|_| slot()).collect(),
        })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn ready(layout: Layout, options: MemoryOptions, _progress: &(dyn Fn(u64) -> bool + Sync)) -> Result<Region, RingError> {
        Region::map(layout, options)
    }

    /// Whole blocks of a slot, as somebody finds them who holds nothing.
    pub fn copy(&self, slot: u32, range: Range<usize>, out: &mut Vec<u8>) {
        out.clear();
        for block in Slot::blocks(&range) {
            out.extend(self.slots[slot as usize].text(block));
        }
    }

    pub fn sealed_files(&self) -> Result<[std::os::fd::BorrowedFd<'_>; 2], &std::io::Error> {
        unreachable!("the models have no files")
    }

    pub fn memory(&self) -> RingMemory {
        RingMemory { kind: MemoryKind }
    }

    pub fn slots(&self) -> Range<*const u8> {
        std::ptr::null()..std::ptr::null() // no kernel is told of this memory
    }

    pub fn swapped_bytes(&self) -> u64 {
        0
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn worker(&self, index: u32) -> &WorkerControl {
        &self.workers[index as usize]
    }

    pub fn lane(&self, index: u32) -> &LaneControl {
        &self.lanes[index as usize]
    }

    pub fn directory(&self, lane: u32, sequence: u64) -> &AtomicU64 {
        let index = (sequence % self.layout.segments as u64) as usize;
        &self.directory[lane as usize * self.layout.segments + index]
    }

    pub fn segment(&self, slot: u32) -> &SegmentControl {
        &self.segments[slot as usize]
    }

    /// # Safety
    /// As the real one's; loom checks it.
    pub unsafe fn bytes(&self, slot: u32, range: Range<usize>) -> &[u8] {
        let slot = &self.slots[slot as usize];
        for grain in slot.touched(&range) {
            grain.with(|_| ());
        }
        // SAFETY: loom has just said that no write is concurrent; one thread runs at a time.
        unsafe { &(&(*slot.bytes.get()))[range] }
    }

    /// Not where bytes lie, but what [`written`] takes.
    pub fn slot_base(&self, slot: u32) -> *mut u8 {
        (&raw const self.slots[slot as usize]).cast_mut().cast()
    }

    /// # Safety
    /// As the real one's; the models have no interface area.
    pub unsafe fn write_interface(&self, _at: usize, _bytes: &[u8]) {}
}

/// Bytes of a slot for writing, in the place of a slice made of the address: `build.rs` has module `stream`
/// call this.
///
/// # Safety
/// `slot` comes from [`Region::slot_base`], and the region lives. Loom checks that nobody else uses the
/// bytes.
pub unsafe fn written<'a>(slot: *mut u8, at: usize, len: usize) -> &'a mut [u8] {
    // SAFETY: by this function's contract.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    let range = at..at + len;
    slot.begin_texts(&range);
    for grain in slot.touched(&range) {
        grain.with_mut(|_| ());
    }
    // SAFETY: loom has just said that no use is concurrent; one thread runs at a time.
    unsafe { &mut (&mut (*slot.bytes.get()))[range] }
}
