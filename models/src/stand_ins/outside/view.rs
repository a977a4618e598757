//! A ring as another process sees it, without a mapping: the same words under loom, loaded in the same way, and bytes that may
//! be older than those of now.

use super::Record;
use super::error::OutsideError;
use crate::control::{Committed, PIN_BITS, PINS};
use crate::protocol;
use crate::ring::Ring;
use scope_packet::Moment;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

pub struct View(Arc<Ring>);

/// Bytes in place: the models look at copies alone, which are taken at the same looks.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    pub(super) fn le32s<const WORDS: usize>(&self) -> Option<[u32; WORDS]> {
        unreachable!("nothing is lent in place")
    }

    pub(super) fn fetch(&self) {}

    pub(super) fn fetch_begin(&self) {}

    pub fn part(&self, range: Range<usize>) -> Option<Bytes<'a>> {
        Some(Bytes(self.0.get(range)?))
    }
}

fn load(word: &AtomicU64) -> u64 {
    let value = word.load(Ordering::Relaxed);
    fence(Ordering::Acquire); // what was published by this word is read behind it
    value
}

impl View {
    pub fn of(ring: &Arc<Ring>) -> View {
        View(ring.clone())
    }

    pub(super) fn map(_tables: BorrowedFd<'_>, _slots: BorrowedFd<'_>) -> Result<View, OutsideError> {
        unreachable!("the models have no files")
    }

    pub(super) fn run_id(&self) -> [u8; 16] {
        self.0.run_id()
    }

    pub(super) fn segment_bytes(&self) -> usize {
        self.0.segment_bytes()
    }

    pub(super) fn segments(&self) -> usize {
        self.0.segments()
    }

    pub(super) fn lanes(&self) -> u32 {
        self.0.lanes()
    }

    pub(super) fn link_type(&self, lane: u32) -> u16 {
        self.0.lane_info(lane).link_type.0
    }

    pub(super) fn published(&self, lane: u32) -> u64 {
        load(&self.0.region().lane(lane).published_packets)
    }

    pub(super) fn next(&self, lane: u32) -> u64 {
        load(&self.0.region().lane(lane).next)
    }

    pub(super) fn find(&self, lane: u32, sequence: u64) -> Option<(u32, u64)> {
        let entry = load(self.0.region().directory(lane, sequence));
        (entry >> PIN_BITS != 0).then_some(((entry & PINS) as u32, entry >> PIN_BITS))
    }

    pub(super) fn is_still(&self, slot: u32, generation: u64) -> bool {
        protocol::is_still(&self.0.region().segment(slot).word, generation)
    }

    pub(super) fn record(&self, slot: u32) -> Record {
        Record::of(self.0.region().segment(slot))
    }

    pub(super) fn committed(&self, slot: u32) -> Committed {
        Committed::from_word(load(&self.0.region().segment(slot).committed))
    }

    pub(super) fn max_ns(&self, slot: u32) -> i64 {
        self.0.region().segment(slot).times[3].load(Ordering::Relaxed)
    }

    pub(super) fn copy(&self, slot: u32, range: Range<usize>, out: &mut Vec<u8>) -> usize {
        self.0.region().copy(slot, range, out);
        0
    }

    pub(super) fn enter(&self, _slot: u32) {}

    pub(super) fn place_of(&self, _slot: u32) -> Option<Range<usize>> {
        unreachable!("nothing is lent in place")
    }

    pub(super) fn bytes(&self, _range: Range<usize>) -> Option<Bytes<'_>> {
        unreachable!("nothing is lent in place")
    }

    pub(super) fn interfaces(&self, _known: usize) -> Vec<u8> {
        Vec::new()
    }

    pub(super) fn interfaces_known(&self) -> u32 {
        0
    }

    pub(super) fn clock_ns(&self) -> i64 {
        0
    }

    pub(super) fn settled(&self) -> Moment {
        Moment::END
    }
}
