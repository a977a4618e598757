//! Stores and capture files, or a run that goes, as one timeline: piece by piece, whoever has the next one by time.

use crate::answer::captures::CaptureTimeline;
use crate::answer::instance::InstanceTimeline;
use scope_fault::Fault;
use scope_packet::{Gap, LinkType, Moment};
use scope_ring::{KeyTest, Matches, Packets, Piece, Settled, Timeline};
use scope_store::StoreTimeline;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Who answers beside stores.
pub enum Beside {
    /// Capture files.
    Captures(Box<CaptureTimeline>),
    /// A run that goes.
    Instance(Box<InstanceTimeline>),
}

impl Beside {
    /// What it couldn't read, or why it ended before its end.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        match self {
            Beside::Captures(captures) => captures.take_fault().into_iter().collect(),
            Beside::Instance(instance) => instance.take_faults(),
        }
    }

    fn timeline(&mut self) -> &mut dyn Timeline {
        match self {
            Beside::Captures(captures) => &mut **captures,
            Beside::Instance(instance) => &mut **instance,
        }
    }

    fn known(&self) -> &dyn Timeline {
        match self {
            Beside::Captures(captures) => &**captures,
            Beside::Instance(instance) => &**instance,
        }
    }
}

/// Both; lanes of captures are numbered behind those of stores.
pub struct Joined {
    /// The stores, without any an empty one; it has all losses.
    pub stores: StoreTimeline,
    /// The captures.
    pub captures: Option<Beside>,
    /// The number of the captures' first lane.
    base: u32,
    /// The piece that is lent is a capture's.
    is_capture: bool,
    /// Who has ended.
    ended: (bool, bool),
    /// How far it is, ns.
    at_ns: Arc<AtomicI64>,
}

impl Joined {
    /// `at_ns` follows how far it is.
    pub fn new(stores: StoreTimeline, captures: Option<Beside>, at_ns: Arc<AtomicI64>) -> Joined {
        let base = stores.interfaces().lanes();
        Joined { stores, captures, base, is_capture: false, ended: (false, false), at_ns }
    }

    /// Whoever lends the piece.
    fn current(&mut self) -> &mut dyn Timeline {
        match &mut self.captures {
            Some(captures) if self.is_capture => captures.timeline(),
            _ => &mut self.stores,
        }
    }

    fn place_of_stores(&self) -> Option<(i64, u32)> {
        self.stores.next_place().filter(|_| !self.ended.0)
    }

    fn place_of_captures(&self) -> Option<(i64, u32)> {
        let place = self.captures.as_ref().filter(|_| !self.ended.1)?.known().next_place()?;
        Some((place.0, place.1 + self.base))
    }
}

impl Timeline for Joined {
    fn settle(&mut self, _: i64) -> Settled {
        Settled { up_to: Moment::END, goes_on: false }
    }

    fn look(&mut self, to_ns: i64, last: bool) {
        self.stores.look(to_ns, last);
        self.captures.iter_mut().for_each(|captures| captures.timeline().look(to_ns, last));
    }

    fn next(&mut self) -> Option<Piece> {
        loop {
            self.is_capture = match (self.place_of_stores(), self.place_of_captures()) {
                (None, None) => return None,
                (stores, captures) => stores.is_none() || captures.is_some_and(|place| Some(place) < stores),
            };
            let lane = if self.is_capture { self.base } else { 0 };
            match self.current().next() {
                Some(piece) => {
                    self.at_ns.store(piece.min_ns, Ordering::Relaxed);
                    return Some(Piece { lane: piece.lane + lane, ..piece });
                }
                None if self.is_capture => self.ended.1 = true,
                None => self.ended.0 = true,
            }
        }
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        self.place_of_stores().into_iter().chain(self.place_of_captures()).min()
    }

    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        self.current().screen(keys, always)
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        match &mut self.captures {
            Some(captures) if self.is_capture => captures.timeline().packets(picked),
            _ => self.stores.packets(picked),
        }
    }

    fn selected(&mut self) -> Option<Packets<'_>> {
        match &mut self.captures {
            Some(captures) if self.is_capture => captures.timeline().selected(),
            _ => self.stores.selected(),
        }
    }

    fn done(&mut self) {
        self.current().done();
    }

    fn wait(&mut self, _: i64) {}

    fn end(&mut self) {
        self.stores.end();
        self.captures.iter_mut().for_each(|captures| captures.timeline().end());
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        match lane.checked_sub(self.base) {
            Some(of_captures) => self.captures.as_ref()?.known().link_type(of_captures),
            None => self.stores.link_type(lane),
        }
    }

    fn heard(&self) -> Option<(i64, i64)> {
        let captures = self.captures.as_ref().and_then(|captures| captures.known().heard());
        self.stores.heard().into_iter().chain(captures).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    fn missing(&self, to_ns: i64) -> Vec<Gap> {
        self.stores.missing(to_ns)
    }
}
