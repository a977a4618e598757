//! A part of the past: the timeline of its stores, with the lanes that dumps know.

use super::{Elsewhere, Part, Past, Question};
use scope_packet::{Gap, LinkType};
use scope_ring::{KeyTest, Matches, Packets, Piece, Settled, Timeline};
use scope_store::StoreTimeline;

/// What tells the run's own packets from those of earlier runs.
pub(super) trait Kind {
    /// Whether packets have the numbers by which the run itself knows them.
    const IS_NUMBERED: bool;

    /// The lane of a piece, as dumps know it.
    fn lane(&self, past: &Past, timeline: &StoreTimeline, piece: &Piece) -> Option<u32>;

    /// See [`Timeline::heard`].
    fn heard(&self) -> Option<(i64, i64)>;

    /// See [`Timeline::missing`].
    fn missing(&self, timeline: &StoreTimeline, to_ns: i64) -> Vec<Gap>;

    /// See [`Part::unread`].
    fn unread(&self, timeline: &StoreTimeline) -> Vec<String>;
}

/// The part itself.
pub(super) struct OfStores<'a, K> {
    past: &'a Past,
    timeline: StoreTimeline,
    kind: K,
    /// The question's filter was evaluated where the stores were read.
    is_selected: bool,
    /// What the timeline's lanes are for dumps, as far as one was met.
    lanes: Vec<Option<u32>>,
}

impl<'a, K: Kind> OfStores<'a, K> {
    /// What the timeline has for a question.
    pub fn new(past: &'a Past, timeline: StoreTimeline, kind: K, question: &Question<'_>) -> OfStores<'a, K> {
        OfStores { past, timeline, kind, is_selected: question.terms.sift.is_some(), lanes: Vec::new() }
    }

    fn lane(&mut self, piece: &Piece) -> Option<u32> {
        let at = piece.lane as usize;
        if self.lanes.len() <= at {
            self.lanes.resize(at + 1, None);
        }
        if self.lanes[at].is_none() {
            self.lanes[at] = self.kind.lane(self.past, &self.timeline, piece);
        }
        self.lanes[at]
    }
}

impl<K: Kind> Timeline for OfStores<'_, K> {
    fn settle(&mut self, to_ns: i64) -> Settled {
        self.timeline.settle(to_ns)
    }

    fn look(&mut self, to_ns: i64, last: bool) {
        self.timeline.look(to_ns, last);
    }

    fn next(&mut self) -> Option<Piece> {
        let piece = self.timeline.next()?;
        let lane = self.lane(&piece)?;
        Some(Piece { lane, ..piece })
    }

    fn next_place(&self) -> Option<(i64, u32)> {
        self.timeline.next_place().map(|(min_ns, _)| (min_ns, 0))
    }

    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches> {
        self.timeline.screen(keys, always.filter(|_| K::IS_NUMBERED))
    }

    fn packets(&mut self, picked: Matches) -> Packets<'_> {
        self.timeline.packets(picked)
    }

    fn selected(&mut self) -> Option<Packets<'_>> {
        self.is_selected.then(|| self.timeline.selected()).flatten()
    }

    fn done(&mut self) {
        self.timeline.done();
    }

    fn wait(&mut self, _: i64) {}

    fn end(&mut self) {
        self.timeline.end();
    }

    fn link_type(&self, lane: u32) -> Option<LinkType> {
        self.past.link_type(lane)
    }

    fn heard(&self) -> Option<(i64, i64)> {
        self.kind.heard()
    }

    fn missing(&self, to_ns: i64) -> Vec<Gap> {
        self.kind.missing(&self.timeline, to_ns)
    }
}

impl<K: Kind> Part for OfStores<'_, K> {
    fn unread(&self) -> Vec<String> {
        self.kind.unread(&self.timeline)
    }
}
