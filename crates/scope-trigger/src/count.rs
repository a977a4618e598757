//! Counts by key in a sliding window: `count(EXPR by KEY) > N in T`.
//!
//! **Meaning.** A match at time t counts together with the earlier ones of its key in (t - T, t]: what is exactly
//! T old counts no more. The condition fires with the match that is the (N + 1)th of them, and with no other: so
//! again only after matches have left the window.
//!
//! ```text
//! needed = N + 1                      for >, N for >=
//! fires(t) = exactly needed - 1 earlier matches of the key are younger than T
//!          = the (needed - 1)th latest of them is younger, the needed-th latest is not (or there is none)
//! ```
//! So a key needs the times of its `needed` latest matches, in a ring: two are compared, the oldest is
//! overwritten. A ring grows while its oldest time is younger than T; most keys match once, and have none.
//!
//! | memory | what for |
//! |---|---|
//! | up to 3/4 of the rest | [`KeyTable`]: a key, its latest match, its ring |
//! | what that leaves | `count/rings.rs`: rings of times |
//! | 1/8 of all | `count/sketch.rs`: what there is no room for |
//!
//! **At the bound** keys that are over make room. A key without room is counted by the sketch: it fires with the
//! match that brings its count there to `needed`, which may be one too early, or none where other keys' matches
//! bring it there. Such a hit says that it isn't exact. A key gets a place again once it has no match in the
//! sketch.

mod pages;
mod rings;
mod sketch;

use crate::key_table::{KeyTable, Spot};
use crate::matches::Match;
use rings::{Block, Rings};
use sketch::Sketch;

/// Keys that are looked up side by side.
pub(crate) const BATCH: usize = 64;
/// Of the memory, what the sketch may take.
const SKETCH_SHARE: usize = 8;
/// No ring: only the latest match may be younger than T.
const NO_RING: u32 = u32::MAX;
/// A key's first ring has 8 times, which is a line: most keys that match again never need a larger one.
const FIRST_ORDER: usize = 1;
/// There was no room for a ring: the sketch has this key's matches.
const IN_SKETCH: u32 = u32::MAX - 1;

/// A key's ring, and where its oldest time is.
#[derive(Clone, Copy, Debug)]
struct Times {
    ring: u32,
    oldest: u32,
}

const _: () = assert!(KeyTable::<Times>::SLOT_BYTES == 32, "two keys are in a line");

impl Default for Times {
    fn default() -> Times {
        Times { ring: NO_RING, oldest: 0 }
    }
}

impl Times {
    fn block(self) -> Option<Block> {
        (self.ring < IN_SKETCH).then(|| Block::of_number(self.ring))
    }

    /// Makes sure that the oldest time may be overwritten: it is none, it is over, or so many aren't needed. A key
    /// without a ring gets one, which begins with `before_ns`. Where there is no room, it has no ring any more:
    /// these were its times.
    #[inline]
    fn make_room(
        &mut self,
        rings: &mut Rings,
        needed: usize,
        before_ns: i64,
        live_from_ns: i64,
        bytes_max: usize,
    ) -> Option<Vec<i64>> {
        let Some(block) = self.block() else {
            let first = rings.allocate(FIRST_ORDER, bytes_max).or_else(|| rings.allocate(0, bytes_max));
            let Some(block) = first else {
                self.ring = IN_SKETCH;
                return Some(vec![before_ns]);
            };
            rings.times(block)[0] = before_ns;
            *self = Times { ring: block.number(), oldest: 1 };
            return None;
        };
        let used = used_times(block, needed);
        if used == needed || rings.times(block)[self.oldest as usize] < live_from_ns {
            return None;
        }
        self.grow(rings, block, used, bytes_max)
    }

    /// A larger ring, in which the same times are followed by none.
    #[cold]
    fn grow(&mut self, rings: &mut Rings, block: Block, used: usize, bytes_max: usize) -> Option<Vec<i64>> {
        let mut times_ns = rings.times(block)[..used].to_vec();
        times_ns.rotate_left(self.oldest as usize);
        let larger = rings.allocate(block.order() + 1, bytes_max);
        rings.give_back(block);
        let Some(larger) = larger else {
            self.ring = IN_SKETCH;
            return Some(times_ns);
        };
        rings.times(larger)[..used].copy_from_slice(&times_ns);
        *self = Times { ring: larger.number(), oldest: used as u32 };
        None
    }

    /// Adds a time to the ring; whether it is the one that fires.
    #[inline]
    fn add(&mut self, rings: &mut Rings, needed: usize, now_ns: i64, live_from_ns: i64) -> bool {
        let Some(block) = self.block() else { return false };
        let used = used_times(block, needed);
        let (ring, at) = (&mut rings.times(block)[..used], self.oldest as usize);
        let next = if at + 1 == used { 0 } else { at + 1 };
        let oldest_ns = std::mem::replace(&mut ring[at], now_ns);
        self.oldest = next as u32;
        // The second oldest is the (needed - 1)th latest of those before.
        (used == needed) & (oldest_ns < live_from_ns) & (ring[next] >= live_from_ns)
    }
}

/// The counts of all keys.
#[derive(Debug)]
pub(crate) struct Counts {
    needed: usize,
    span_ns: i64,
    /// For table and rings.
    bytes_max: usize,
    table: KeyTable<Times>,
    rings: Rings,
    sketch: Sketch,
    /// Since when the sketch is in use, ns.
    sketched_since_ns: Option<i64>,
    /// Matches that the sketch counted.
    pub sketched: u64,
}

impl Counts {
    /// No counts. A key fires with `needed` matches, at least 1, in `span_ns`.
    pub fn new(needed: usize, span_ns: i64, bytes: usize, seed: [u64; 2]) -> Counts {
        let for_sketch = bytes / SKETCH_SHARE;
        let bytes_max = bytes - for_sketch;
        Counts {
            needed,
            span_ns,
            bytes_max,
            table: KeyTable::new(seed),
            rings: Rings::new(bytes_max),
            sketch: Sketch::new(for_sketch, span_ns),
            sketched_since_ns: None,
            sketched: 0,
        }
    }

    /// Forgets all counts.
    pub fn clear(&mut self) {
        self.table.clear();
        self.rings.clear();
        self.sketch.clear();
        self.sketched_since_ns = None;
    }

    /// Keys with a place, those included that are over.
    pub fn keys(&self) -> usize {
        self.table.held()
    }

    /// About how many keys the sketch counts at `now_ns`.
    pub fn keys_sketched(&self, now_ns: i64) -> u64 {
        self.sketch.keys(now_ns)
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + self.rings.bytes() + self.sketch.bytes()
    }

    /// Since when not all counts are exact, ns.
    pub fn sketched_since_ns(&self) -> Option<i64> {
        self.sketched_since_ns
    }

    /// It is `now_ns`: some of what is over is forgotten.
    pub fn advance(&mut self, now_ns: i64) {
        let rings = &mut self.rings;
        self.table.tidy_next(live_from(now_ns, self.span_ns), give_back_to(rings));
        self.end_sketch(now_ns);
    }

    fn end_sketch(&mut self, now_ns: i64) {
        if self.sketched_since_ns.is_some() && !self.sketch.is_used(now_ns) {
            self.sketched_since_ns = None;
            self.sketch.clear();
        }
    }

    /// Counts at most [`BATCH`] matches of one era, whose times (`times_ns`) never fall. `fires` has the index of
    /// each that fires, and whether its count is exact.
    ///
    /// ```text
    /// each match: ask for the line of its slot
    /// each match: find its slot, ask for the line of its ring
    /// each match: count it
    /// ```
    pub fn count(&mut self, matches: &[Match], times_ns: &[i64], mut fires: impl FnMut(usize, bool)) {
        let mut hashes = [0; BATCH];
        let mut spots = [None; BATCH];
        for (hash, one) in hashes.iter_mut().zip(matches) {
            *hash = self.table.hash(one.key.words());
            self.table.fetch(*hash);
        }
        for ((spot, &hash), one) in spots.iter_mut().zip(&hashes).zip(matches) {
            *spot = self.table.find(hash, one.key.words());
            if let Some(spot) = *spot {
                let times = self.table.at(spot).state;
                if let Some(block) = times.block() {
                    self.rings.fetch(block, times.oldest as usize);
                }
            }
        }
        for (index, (one, &now_ns)) in matches.iter().zip(times_ns).enumerate() {
            if let Some(exact) = self.one(one.key.words(), hashes[index], spots[index], now_ns) {
                fires(index, exact);
            }
        }
    }

    /// Counts one match; `Some` if it fires: whether the count is exact.
    #[inline]
    fn one(&mut self, key: [u64; 2], hash: u64, spot: Option<Spot>, now_ns: i64) -> Option<bool> {
        let live_from_ns = live_from(now_ns, self.span_ns);
        let ring_bytes_max = self.bytes_max.saturating_sub(self.table.bytes());
        let Some(slot) = self.table.slot(hash, key, spot) else {
            return self.first(key, hash, now_ns);
        };
        let before_ns = std::mem::replace(&mut slot.latest_ns, now_ns);
        let times = &mut slot.state;
        let alone = before_ns < live_from_ns;
        let fires = match times.ring {
            IN_SKETCH if !alone => return self.sketch(hash, now_ns),
            IN_SKETCH | NO_RING if alone => {
                *times = Times::default();
                self.needed == 1
            }
            NO_RING if self.needed == 1 => false,
            _ => {
                let rings = &mut self.rings;
                if let Some(lost) =
                    times.make_room(rings, self.needed, before_ns, live_from_ns, ring_bytes_max)
                {
                    self.hand_over(hash, &lost, now_ns);
                    return self.sketch(hash, now_ns);
                }
                times.add(rings, self.needed, now_ns, live_from_ns)
            }
        };
        fires.then_some(true)
    }

    /// Counts the first match of a key that has no place.
    fn first(&mut self, key: [u64; 2], hash: u64, now_ns: i64) -> Option<bool> {
        if self.sketched_since_ns.is_some() {
            self.end_sketch(now_ns);
            if self.sketch.count_most(hash, now_ns) > 0 {
                return self.sketch(hash, now_ns);
            }
        }
        let free_bytes = self.bytes_max.saturating_sub(self.rings.bytes());
        let room = free_bytes.min(self.bytes_max / 4 * 3);
        let (state, live_from_ns) = ((now_ns, Times::default()), live_from(now_ns, self.span_ns));
        if self.table.add(hash, key, state, live_from_ns, room, give_back_to(&mut self.rings)) {
            return (self.needed == 1).then_some(true);
        }
        self.sketch(hash, now_ns)
    }

    /// The sketch counts a match.
    fn sketch(&mut self, hash: u64, now_ns: i64) -> Option<bool> {
        self.sketched_since_ns.get_or_insert(now_ns);
        self.sketched += 1;
        let needed = self.needed as u64;
        let before = self.sketch.count(hash, now_ns);
        (self.sketch.add(hash, now_ns, now_ns) >= needed && before < needed).then_some(false)
    }

    /// The sketch gets times of a key that were exact so far.
    fn hand_over(&mut self, hash: u64, times_ns: &[i64], now_ns: i64) {
        self.sketched_since_ns.get_or_insert(now_ns);
        for &time_ns in times_ns {
            self.sketch.add(hash, time_ns, now_ns);
        }
    }
}

/// The first time that is younger than the span at `now_ns`.
fn live_from(now_ns: i64, span_ns: i64) -> i64 {
    (now_ns - span_ns).saturating_add(1)
}

/// Times of a ring that are used: all, but no more than are needed.
fn used_times(block: Block, needed: usize) -> usize {
    block.times().min(needed)
}

fn give_back_to(rings: &mut Rings) -> impl FnMut(Times) {
    |times| {
        if let Some(block) = times.block() {
            rings.give_back(block);
        }
    }
}
