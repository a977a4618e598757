//! Following the ring: batches lent in place, one cursor per lane, exact loss, waiting without slowing a
//! worker.
//!
//! ```text
//! look     directory entry ─► pin ─► committed ─► lend the blocks between the cursor and it
//! lapped   the pin fails because the segment was recycled: go on at the oldest one that is left; the packets between the
//!          cursor and its first packet are missed, and counted; none is left: everything published is
//! ```
//! For each reader and lane `published = seen + missed + behind` holds at any moment, less what it has skipped; for a group
//! it holds of the group.
//!
//! | role | which segments | what it holds |
//! |---|---|---|
//! | lossy | all | the one it reads, per lane; an open one until it has been read to its end |
//! | holding | all | the oldest unread ones, up to its allowance; workers that can wait don't overrun it |
//! | member of a [`ReaderGroup`] | those that it claims; each goes to one member | those that it has claimed, one per lane |
//!
//! A batch can't outlive its pin: it borrows from the reader, which holds the pin until the call for the
//! next one.
//!
//! ```
//! fn count(reader: &mut scope_ring::Reader) -> usize {
//!     let mut blocks = 0;
//!     while let Some(batch) = reader.next_batch() {
//!         blocks += batch.blocks().count();
//!     }
//!     blocks
//! }
//! ```
//! ```compile_fail
//! fn keep_batch(reader: &mut scope_ring::Reader) -> Option<usize> {
//!     let first = reader.next_batch()?;
//!     let second = reader.next_batch()?; // the first batch's pin is given back here
//!     Some(first.blocks().count() + second.blocks().count())
//! }
//! ```
//! Nor can what it lends, blocks and key entries alike:
//!
//! ```compile_fail
//! fn keep_block(reader: &mut scope_ring::Reader) -> Option<scope_packet::pcapng::PacketBlock<'static>> {
//!     reader.next_batch()?.blocks().next()
//! }
//! ```
//! ```compile_fail
//! fn keep_entries(reader: &mut scope_ring::Reader) -> Option<scope_ring::search::Column<'static>> {
//!     Some(reader.next_batch()?.entries())
//! }
//! ```

mod batch;
mod cursor;
mod group;
mod hold;
mod wait;

pub use batch::{Batch, InPlace, Steering, Tap};
pub use group::ReaderGroup;

use crate::budget::Allowance;
use crate::follow::Follower;
use crate::ring::Ring;
use cursor::{Cursor, Span};
use hold::Hold;
use std::sync::Arc;
use std::time::Duration;
use wait::Waiting;

/// A reader's side of one lane: packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// Lent to the reader.
    pub seen: u64,
    /// Recycled before the reader reached them.
    pub missed: u64,
    /// Published and still to be seen.
    pub behind: u64,
}

/// Which segments a reader reads, and what it holds meanwhile.
enum Role {
    Lossy,
    Holding(Hold),
    Member(Arc<ReaderGroup>),
}

/// Follows all lanes of a ring from the oldest packet on. What was recycled before counts as missed.
pub struct Reader {
    ring: Arc<Ring>,
    cursors: Vec<Cursor>,
    turn: usize,
    role: Role,
    waiting: Waiting,
}

impl Reader {
    /// A lossy reader: it never holds more than one segment per lane, and nobody waits for it.
    pub fn new(ring: &Arc<Ring>) -> Reader {
        Reader::with(ring, Role::Lossy)
    }

    /// A holding reader: workers that can wait don't overrun it. Of what live workers write it holds the
    /// oldest unread segments as far as `allowance` (from [`Ring::budget`] or a budget of its own) reaches;
    /// what goes beyond that and is recycled is missed. It takes its pins when it is called
    /// ([`Reader::next_batch`], [`Reader::wait`], [`Reader::hold`]).
    pub fn holding(ring: &Arc<Ring>, allowance: Allowance) -> Reader {
        let mut reader = Reader::with(ring, Role::Holding(Hold::new(ring, allowance)));
        reader.hold();
        reader
    }

    /// Of a holding reader its place among those whom workers wait for: somebody else gives that up where the reader's
    /// own thread can't.
    pub fn follower(&self) -> Option<Arc<Follower>> {
        match &self.role {
            Role::Holding(hold) => Some(hold.follower()),
            Role::Lossy | Role::Member(_) => None,
        }
    }

    fn with(ring: &Arc<Ring>, role: Role) -> Reader {
        Reader { ring: ring.clone(), cursors: Vec::new(), turn: 0, role, waiting: Waiting::default() }
    }

    /// The next packets of some lane, lanes in turn; `None`: nothing new at the moment. Gives back the last
    /// batch's segment when it is finished.
    pub fn next_batch(&mut self) -> Option<Batch<'_>> {
        self.hold();
        let lanes = self.cursors.len();
        let (found, span) = (0..lanes).find_map(|step| {
            let lane = (self.turn + step) % lanes;
            self.cursors[lane].look(&self.ring, lane as u32, &mut self.role).map(|span| (lane, span))
        })?;
        self.turn = found + 1;
        let Span { from, to, first_packet, packets, missed_before } = span;
        let pinned = self.cursors[found].pinned()?;
        Some(Batch::new(pinned, (from, to), first_packet, packets, missed_before))
    }

    /// Takes the pins that a holding reader may take now, and knows all lanes. A reader that works on
    /// one batch for longer than the ring takes to turn has to let it go and call this in between.
    pub fn hold(&mut self) {
        self.cursors.resize_with(self.ring.lanes() as usize, Cursor::default);
        if let Role::Holding(hold) = &mut self.role {
            hold.on(&self.ring, &self.cursors);
        }
    }

    /// Waits until something may have come, at most a millisecond. See [`crate::reader`] on what it costs.
    pub fn wait(&mut self) {
        self.hold();
        let Reader { ring, cursors, role, waiting, .. } = self;
        waiting.wait(ring, || has_more(ring, role, cursors));
    }

    /// The same without looking again and again at first: it sleeps at once, at most `limit`, and the worker that commits
    /// next wakes it. A worker that commits at this very moment may not see that it sleeps: what came then is found after
    /// `limit`, or behind the next commit.
    pub fn sleep(&mut self, limit: Duration) {
        self.hold();
        let Reader { ring, cursors, role, .. } = self;
        ring.wait_unless(limit, || has_more(ring, role, cursors));
    }

    /// Goes on with what comes from now on: what was committed before is neither seen nor missed. Returns how many packets
    /// are in front of where it stands now. Not for members of a group.
    pub fn skip_to_now(&mut self) -> u64 {
        self.cursors.resize_with(self.ring.lanes() as usize, Cursor::default);
        for (lane, cursor) in (0u32..).zip(&mut self.cursors) {
            cursor.skip_to_now(&self.ring, lane);
        }
        self.hold();
        self.cursors.iter().map(Cursor::packet).sum()
    }

    /// Feeds `tap` with everything that is there now; the number of packets.
    pub fn drain(&mut self, tap: &mut dyn Tap) -> u64 {
        let mut packets = 0;
        while let Some(batch) = self.next_batch() {
            packets += batch.packets() as u64;
            tap.batch(&batch);
        }
        packets
    }

    /// Counters of `lane`; of a member of a group, its group's.
    pub fn counts(&self, lane: u32) -> ReaderCounts {
        if let Role::Member(group) = &self.role {
            return group.counts(lane);
        }
        let published = self.ring.region().lane(lane).published().packets;
        let cursor = self.cursors.get(lane as usize);
        let (seen, missed) = cursor.map_or((0, 0), Cursor::counts);
        ReaderCounts { seen, missed, behind: published.saturating_sub(cursor.map_or(0, Cursor::packet)) }
    }

    /// Packets of `lane` that were lent to this very reader.
    pub fn seen(&self, lane: u32) -> u64 {
        self.cursors.get(lane as usize).map_or(0, |cursor| cursor.counts().0)
    }

    /// Segments that it holds now.
    pub fn held(&self) -> u64 {
        let ahead = if let Role::Holding(hold) = &self.role { hold.held() } else { 0 };
        ahead + self.cursors.iter().filter(|cursor| cursor.pinned().is_some()).count() as u64
    }
}

/// Whether any lane has something for this reader.
fn has_more(ring: &Ring, role: &Role, cursors: &[Cursor]) -> bool {
    (0..ring.lanes()).any(|lane| is_behind(ring, role, cursors.get(lane as usize), lane))
}

/// Whether `lane` has something for this reader, as far as a look that pins nothing shows.
fn is_behind(ring: &Ring, role: &Role, cursor: Option<&Cursor>, lane: u32) -> bool {
    match (cursor.filter(|cursor| cursor.pinned().is_some()), role) {
        (Some(reading), _) => reading.has_more(),
        (None, Role::Member(group)) => group.has_work(ring, lane),
        (None, _) => ring.region().lane(lane).published().packets > cursor.map_or(0, Cursor::packet),
    }
}

impl Drop for Reader {
    /// A group's member leaves what it had claimed to the others.
    fn drop(&mut self) {
        if let Role::Member(group) = &self.role {
            for (lane, cursor) in (0u32..).zip(&mut self.cursors) {
                group.leave(lane, cursor);
            }
        }
    }
}
