//! Segments in a volume's hands: how far each is given to a file, and how much of it is safe.
//!
//! ```text
//! taken ─► sealed: given to a file, closed ─► written: its bytes are needed no more ─► all safe: forgotten
//! ```
//! It stays pinned, and counts against what the store may hold, until it is safe: a disk that fails between
//! writing and syncing costs nothing that another one can still write.

use crate::file_writer::Kept;
use crate::outgoing::{Outgoing, Stated};
use crate::report::Amount;
use scope_packet::SegmentId;
use scope_ring::Pinned;
use std::collections::BTreeMap;

/// What the block of a packet has beside its bytes.
const PLAIN_BLOCK_BYTES: u64 = 32;

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
pub(crate) struct Hands {
    hands: BTreeMap<SegmentId, Hand>,
    /// Forgotten since that was asked last.
    gone: Vec<SegmentId>,
}

/// What isn't safe yet, and since when.
#[derive(Default)]
pub(crate) struct Behind {
    pub amount: Amount,
    /// Smallest time, ns.
    pub since_ns: Option<i64>,
}

impl Hands {
    pub fn is_empty(&self) -> bool {
        self.hands.is_empty()
    }

    /// Takes a segment, of which `kept` is safe.
    pub fn take(&mut self, pinned: Pinned, kept: Amount) {
        self.hands.insert(pinned.id(), Hand::new(pinned, None, kept));
    }

    /// Takes a composed segment, or what its foot says by now.
    pub fn state(&mut self, pinned: Pinned, stated: Stated) {
        match self.hands.get_mut(&pinned.id()) {
            Some(hand) => hand.stated = Some(stated),
            None => {
                self.hands.insert(pinned.id(), Hand::new(pinned, Some(stated), Amount::default()));
            }
        }
    }

    /// What a file was given of a segment is to be given to another one.
    pub fn again(&mut self, id: SegmentId) {
        if let Some(hand) = self.hands.get_mut(&id) {
            (hand.closed, hand.written) = (None, false);
        }
    }

    /// Lets a segment go, whatever stands of it.
    pub fn remove(&mut self, id: SegmentId) -> Option<Hand> {
        self.hands.remove(&id)
    }

    /// Lets all of them go; without `all` only those that no file was given as closed.
    pub fn take_all(&mut self, all: bool) -> Vec<Hand> {
        let (go, stay) =
            std::mem::take(&mut self.hands).into_iter().partition(|(_, hand)| all || hand.closed.is_none());
        self.hands = stay;
        let go: BTreeMap<SegmentId, Hand> = go;
        go.into_values().collect()
    }

    /// Those that no file was given as closed.
    pub fn waiting(&self) -> impl Iterator<Item = (SegmentId, &Hand)> {
        self.hands.iter().filter(|(_, hand)| hand.closed.is_none()).map(|(id, hand)| (*id, hand))
    }

    /// Those that are sealed, and that no file was given as closed.
    pub fn sealed(&self) -> Vec<SegmentId> {
        self.waiting().filter(|(_, hand)| hand.pinned.committed().sealed).map(|(id, _)| id).collect()
    }

    pub fn get(&self, id: SegmentId) -> Option<&Hand> {
        self.hands.get(&id)
    }

    /// A file was given the sealed segment.
    pub fn close(&mut self, id: SegmentId) {
        if let Some(hand) = self.hands.get_mut(&id) {
            hand.closed = Some(all_of(&hand.pinned));
        }
    }

    /// The file needs a segment's bytes no more.
    pub fn written(&mut self, id: SegmentId) {
        if let Some(hand) = self.hands.get_mut(&id) {
            hand.written = true;
        }
        self.let_go(id);
    }

    /// How many wait for nothing but to be safe.
    pub fn unsafe_yet(&self) -> usize {
        self.hands.values().filter(|hand| hand.written).count()
    }

    /// Segments that are safe since the last call, and forgotten.
    pub fn take_gone(&mut self) -> Vec<SegmentId> {
        std::mem::take(&mut self.gone)
    }

    /// Packets are safe: what of them is new.
    pub fn keep(&mut self, kept: &Kept) -> Option<Amount> {
        let hand = self.hands.get_mut(&kept.id)?;
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
        if self.hands.get(&id).is_some_and(done) {
            self.hands.remove(&id);
            self.gone.push(id);
        }
    }

    /// Adds what of them isn't safe yet.
    pub fn add_behind(&self, behind: &mut Behind) {
        self.hands.values().for_each(|hand| behind.add(&hand.pinned, hand.kept));
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

/// Packets and captured bytes of a segment; of an open one up to 3 bytes a packet too many, since no block is
/// looked at.
pub(crate) fn all_of(pinned: &Pinned) -> Amount {
    let committed = pinned.committed();
    let packets = u64::from(committed.packets);
    let nearly = || u64::from(committed.bytes).saturating_sub(packets * PLAIN_BLOCK_BYTES);
    let bytes = pinned.bytes_after().map(|after| after.saturating_sub(pinned.bytes_before()));
    Amount::new(packets, bytes.unwrap_or_else(nearly))
}

/// Captured bytes of packets `range` of a segment.
fn bytes_of(pinned: &Pinned, range: std::ops::Range<u32>) -> u64 {
    pinned.indexed(range.start, range.end).map(|(_, block)| block.data().len() as u64).sum()
}
