//! The seam between rooms that have packets and rooms that want them: a timeline answers "the packets of this
//! span, through this filter, in order, and what is missing".
//!
//! ```text
//! settle     up to where nothing more comes
//! look       a round begins: whatever is there and was not handed out before
//!   next       piece after piece, by their smallest times
//!   screen       which of its packets may match          summaries, then key entries
//!   packets      these packets, lent in place            then blocks
//!   selected     instead of both: packets for which the filter was evaluated already
//!   done       the piece is let go
//! wait       until more may have come
//! missing    what the span lacks by now, and why
//! ```
//! One value is the answer to one question. Its maker gives it what the question is to that timeline: the
//! ring's needs the pins that were taken at the fire, one of files their folder, one on another machine a
//! socket and the filter's text. Pins, budgets and patience stand in no method: they are the ring's own.
//!
//! Why it has this form:
//! - *Lent in place.* A call of a `dyn` per segment costs nothing against the walk through memory; a list of
//!   packets that is built first costs 11 to 66 %. So a piece is two slices, and the walk through them is
//!   concrete code.
//! - *Pulled, piece by piece.* The caller merges lanes, and several timelines, in bounded memory: the next
//!   piece's smallest time says what may go out. A store of a million segments lists none that isn't needed
//!   yet.
//! - *Two steps.* Key entries come before blocks, so that a store reads from disk only pages with packets
//!   that may match. What it can't read it omits from `packets` and states in `missing`.
//! - *What may match.* The caller evaluates the filter, once and the same for all timelines. A timeline may
//!   omit what can't match, and never what does. One that reads with several threads is given that filter, and
//!   evaluates it there: its pieces are `selected`.
//! - *Rounds.* A span may still grow, and its end need not be settled: each round hands out what is new. Of a
//!   store's all is settled, and one round is enough.
//! - *Named pieces.* A piece has its segment's id and its packets' numbers: of two timelines that have the
//!   same packets, ring and store, the second one answers for the numbers that the first one lacks.

use crate::blocks::Blocks;
use crate::search::{Column, KeyTest, Matches, Picked};
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Gap, KeyEntry, LinkType, Moment, SegmentId};

/// What can answer for a span of capture time; see [`crate::timeline`] for the order of calls and the
/// reasons.
pub trait Timeline {
    /// Up to where everything is settled, and whether waiting helps; `to_ns` is the span's end by now. Before
    /// a look.
    fn settle(&mut self, to_ns: i64) -> Settled;

    /// Begins a round. `last`: the span ends at `to_ns` for good, and no other round comes; else it may still
    /// grow, and what lies behind its end is handed out, too.
    fn look(&mut self, to_ns: i64, last: bool);

    /// The next piece of the round.
    fn next(&mut self) -> Option<Piece>;

    /// Smallest time (ns) and lane of the piece behind it: nothing of this round comes before them. `None`:
    /// there is no other, and only what isn't settled can come.
    fn next_place(&self) -> Option<(i64, u32)>;

    /// Which packets of the piece may match, as far as their keys say: all that pass `keys`, and packet
    /// `always` of the lane whatever its key. `None`: the piece is gone, which [`Timeline::missing`] states.
    fn screen(&mut self, keys: &KeyTest, always: Option<u64>) -> Option<Matches>;

    /// Lends those packets of the piece, which was screened.
    fn packets(&mut self, picked: Matches) -> Packets<'_>;

    /// Lends the packets of the piece, where the timeline has evaluated the question's filter itself, and its span:
    /// every one of them is wanted, they stand by time, and none that comes behind the piece is older. `None`: they
    /// are to be screened.
    fn selected(&mut self) -> Option<Packets<'_>> {
        None
    }

    /// The piece is finished: nothing of it is held any more.
    fn done(&mut self);

    /// Waits until more may have come, `rest_ns` before the end of the span.
    fn wait(&mut self, rest_ns: i64);

    /// Everything that was wanted is read: nothing is held any more.
    fn end(&mut self);

    /// Link type of the packets of `lane`; `None`: there is no such lane yet.
    fn link_type(&self, lane: u32) -> Option<LinkType>;

    /// From when to when (ns) anybody listened, as far as that is known; the end is `i64::MAX` where somebody
    /// still does.
    fn heard(&self) -> Option<(i64, i64)>;

    /// What the span up to `to_ns` lacks by now: what was gone before it was read, what never came, what
    /// isn't settled.
    fn missing(&self, to_ns: i64) -> Vec<Gap>;
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Nothing comes any more before this.
    pub up_to: Moment,
    /// More will be settled. If not, the answer ends here, and what isn't settled is missing.
    pub goes_on: bool,
}

/// Successive packets of one segment that are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they are.
    pub segment: SegmentId,
    /// Number of their lane in this timeline: packets of one time go out in the order of lanes. The ring's
    /// are the run's own.
    pub lane: u32,
    /// Number in the lane of the first one.
    pub first_packet: u64,
    /// How many.
    pub packets: u32,
    /// None of them is older, ns.
    pub min_ns: i64,
    /// Times never step back inside.
    pub ordered: bool,
}

/// A packet that may match, lent.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Number in the lane.
    pub packet: u64,
    /// Its key.
    pub key: KeyEntry,
    /// All of it.
    pub block: PacketBlock<'a>,
}

/// Where one packet stands that was looked at before it is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its time, ns.
    pub time_ns: i64,
    /// Number in the lane.
    pub packet: u64,
    /// Its key.
    pub key: KeyEntry,
    /// Where its block begins, bytes.
    pub at: u32,
}

/// Packets of one piece, lent: a walk through those that were picked, the next ones already on their way from
/// memory; or through a list of places.
pub struct Packets<'a> {
    walk: Walk<'a>,
}

#[allow(clippy::large_enum_variant)] // one a piece, on the stack: a box would cost more
enum Walk<'a> {
    Picked { first_packet: u64, picked: Picked<'a, Matches> },
    Listed { places: std::slice::Iter<'a, Place>, blocks: &'a [u8] },
    Chosen { places: &'a [Place], picked: Matches, blocks: &'a [u8] },
}

impl<'a> Packets<'a> {
    /// Of a piece that begins with packet `first_packet` those that are `picked`, by their index in `column`,
    /// which has an entry for each packet of the piece; an entry's offset is that of its block in `blocks`.
    ///
    /// Panics, when it is walked, where an entry leads to no block: a timeline that lends from a disk has
    /// checked it.
    pub fn new(first_packet: u64, column: Column<'a>, blocks: &'a [u8], picked: Matches) -> Packets<'a> {
        let picked = Picked::new(column, Blocks::new(blocks), picked);
        Packets { walk: Walk::Picked { first_packet, picked } }
    }

    /// Those of these places. A place that leads to no whole block ends the walk: its maker has checked it.
    pub fn listed(places: &'a [Place], blocks: &'a [u8]) -> Packets<'a> {
        Packets { walk: Walk::Listed { places: places.iter(), blocks } }
    }
}

impl<'a> Packets<'a> {
    /// As [`Packets::listed`], of those of these places that are `picked`, by their index.
    pub fn chosen(places: &'a [Place], picked: Matches, blocks: &'a [u8]) -> Packets<'a> {
        Packets { walk: Walk::Chosen { places, picked, blocks } }
    }
}

/// The packet at a place.
fn at<'a>(place: Place, blocks: &'a [u8]) -> Option<Candidate<'a>> {
    let Place { packet, key, at, .. } = place;
    let block = PacketBlock::first(blocks.get(at as usize..)?)?;
    Some(Candidate { packet, key, block })
}

impl Default for Packets<'_> {
    /// None.
    fn default() -> Self {
        Packets::listed(&[], &[])
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Candidate<'a>;

    #[inline]
    fn next(&mut self) -> Option<Candidate<'a>> {
        match &mut self.walk {
            Walk::Picked { first_packet, picked } => {
                let (index, key, block) = picked.next_with_key()?;
                Some(Candidate { packet: *first_packet + u64::from(index), key, block })
            }
            Walk::Listed { places, blocks } => at(*places.next()?, blocks),
            Walk::Chosen { places, picked, blocks } => {
                let index = picked.next()?;
                at(*places.get(index as usize)?, blocks)
            }
        }
    }
}
