//! Segments in a volume's hands: how far each is given to a file, and how much of it is safe.
//!
//! ```text
//! taken ─► sealed: given to a file, closed ─► written: its bytes are needed no more ─► all safe: forgotten
//! ```

use crate::file_writer::Kept;
use crate::outgoing::{Outgoing, Stated};
use crate::report::Amount;
use scope_packet::SegmentId;
use scope_ring::Pinned;
use std::collections::BTreeMap;

/// A segment in the volume's hands.
pub(crate) struct Hand {
    pub pinned: Pinned,
    /// Of a composed one: what its foot says.
    stated: Option<Stated>,
    /// What of it is safe, and counted.
    pub kept: Amount,
    /// All of it is safe, and what its foot says.
    kept_closed: bool,
    /// It is sealed, and given to a file: all of it.
    closed: Option<Amount>,
    /// The file needs its bytes no more.
    pub written: bool,
}

impl Hand {
    fn new(pinned: Pinned, stated: Option<Stated>, kept: Amount) -> Hand {
        Hand { pinned, stated, kept, kept_closed: false, closed: None, written: false }
    }

    /// The segment as a file is given it; `None`: it has as many holds as can be counted.
    pub fn outgoing(&self) -> Option<Outgoing> {
        let again = self.pinned.again()?;
        Some(match self.stated {
            Some(stated) => Outgoing::composed(again, stated),
            None => again.into(),
        })
    }
}

/// All segments in the volume's hands.
#[derive(Default)]
pub(crate) struct Hands(BTreeMap<SegmentId, Hand>);

/// What isn't safe yet, and since when.
#[derive(Default)]
pub(crate) struct Behind {
    pub amount: Amount,
    /// Smallest time, ns.
    pub since_ns: Option<i64>,
}

impl Hands {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a segment, of which `kept` is safe.
    pub fn take(&mut self, pinned: Pinned, kept: Amount) {
        self.0.insert(pinned.id(), Hand::new(pinned, None, kept));
    }

    /// Takes a composed segment, or what its foot says by now.
    pub fn state(&mut self, pinned: Pinned, stated: Stated) {
        match self.0.get_mut(&pinned.id()) {
            Some(hand) => hand.stated = Some(stated),
            None => {
                self.0.insert(pinned.id(), Hand::new(pinned, Some(stated), Amount::default()));
            }
        }
    }

    /// What a file was given of a segment is to be given to another one.
    pub fn again(&mut self, id: SegmentId) {
        if let Some(hand) = self.0.get_mut(&id) {
            (hand.closed, hand.written) = (None, false);
        }
    }

    /// Lets a segment go, whatever stands of it.
    pub fn remove(&mut self, id: SegmentId) -> Option<Hand> {
        self.0.remove(&id)
    }

    /// Lets all of them go.
    pub fn take_all(&mut self) -> Vec<Hand> {
        std::mem::take(&mut self.0).into_values().collect()
    }

    /// Those that no file was given as closed.
    pub fn waiting(&self) -> impl Iterator<Item = (SegmentId, &Hand)> {
        self.0.iter().filter(|(_, hand)| hand.closed.is_none()).map(|(id, hand)| (*id, hand))
    }

    /// Those that are sealed, and that no file was given as closed.
    pub fn sealed(&self) -> Vec<SegmentId> {
        self.waiting().filter(|(_, hand)| hand.pinned.committed().sealed).map(|(id, _)| id).collect()
    }

    pub fn get(&self, id: SegmentId) -> Option<&Hand> {
        self.0.get(&id)
    }

    /// A file was given the sealed segment.
    pub fn close(&mut self, id: SegmentId) {
        if let Some(hand) = self.0.get_mut(&id) {
            hand.closed = Some(all_of(&hand.pinned));
        }
    }

    /// The file needs a segment's bytes no more. Whether that is new.
    pub fn written(&mut self, id: SegmentId) -> bool {
        let is_new = self.0.get_mut(&id).is_some_and(|hand| !std::mem::replace(&mut hand.written, true));
        self.let_go(id);
        is_new
    }

    /// Packets are safe: what of them is new.
    pub fn keep(&mut self, kept: &Kept) -> Option<Amount> {
        let hand = self.0.get_mut(&kept.id)?;
        let packets = kept.packets.end.saturating_sub(hand.pinned.first_packet());
        let mut new = None;
        if packets > hand.kept.packets {
            let bytes = match hand.closed {
                Some(all) if all.packets == packets => all.bytes,
                _ => hand.kept.bytes + bytes_of(&hand.pinned, hand.kept.packets as u32..packets as u32),
            };
            let now = Amount::new(packets, bytes);
            new = Some(now.less(hand.kept));
            hand.kept = now;
        }
        hand.kept_closed |= kept.closed;
        self.let_go(kept.id);
        new
    }

    /// Forgets a segment that is written, and safe.
    fn let_go(&mut self, id: SegmentId) {
        let done = |hand: &Hand| {
            let safe = hand.stated.is_none() || hand.kept_closed;
            hand.written && safe && hand.closed.is_some_and(|all| hand.kept.packets >= all.packets)
        };
        if self.0.get(&id).is_some_and(done) {
            self.0.remove(&id);
        }
    }

    /// Adds what of them isn't safe yet.
    pub fn add_behind(&self, behind: &mut Behind) {
        self.0.values().for_each(|hand| behind.add(&hand.pinned, hand.kept));
    }
}

impl Behind {
    /// Adds what of a segment isn't among the first packets `done`.
    pub fn add(&mut self, pinned: &Pinned, done: Amount) {
        let all = all_of(pinned);
        if all.packets > done.packets {
            self.amount = self.amount.plus(all.less(done));
            let since = pinned.span().map(|(min_ns, ..)| min_ns);
            self.since_ns = self.since_ns.into_iter().chain(since).min();
        }
    }
}

/// Packets and captured bytes of a segment; of an open one the bytes aren't known.
pub(crate) fn all_of(pinned: &Pinned) -> Amount {
    let bytes = pinned.bytes_after().map_or(0, |after| after.saturating_sub(pinned.bytes_before()));
    Amount::new(u64::from(pinned.committed().packets), bytes)
}

/// Captured bytes of packets `range` of a segment.
fn bytes_of(pinned: &Pinned, range: std::ops::Range<u32>) -> u64 {
    pinned.indexed(range.start, range.end).map(|(_, block)| block.data().len() as u64).sum()
}
