//! Sequences by key: `EXPR then EXPR [then EXPR ...] within T by KEY`.
//!
//! **Meaning.** A match of the last step at time t fires if there are matches of its key, one of each step before
//! it, at times t1 < t2 < ... < t with t - t1 <= T, and t1 not before the key's latest fire. So times count, not
//! places in a file: packets of the same time are in no order, as those of two workers are in none. A fire uses up
//! what came before it: with the same matches of the first step a key doesn't fire twice.
//!
//! **State** of a key, enough to miss none: for each step but the last, the latest time at which a chain up to this
//! step may have begun. A chain that began later reaches further: no other one is needed.
//!
//! ```text
//! start[1] = time of the latest match of step 1
//! start[n] = of all matches of step n, the latest start[n - 1] that each found
//! match of step n at t: found = start[n - 1] of before t;  n is last and t - found <= T: fire, forget all starts
//! ```
//! What a match adds counts from the next time on. Until then it is a bit in `pending`: what it found is still
//! there. A fire leaves of the bits only that of step 1.
//!
//! **At the bound** keys that are over make room, then the oldest quarter of their shard, counted.

use crate::key_table::{KeyTable, Spot};
use crate::matches::Match;

/// Most steps of a sequence.
pub(crate) const STEPS_MAX: usize = 8;
/// Keys that are looked up side by side.
pub(crate) const BATCH: usize = 64;
/// No chain reaches this step.
const NONE: i64 = i64::MIN;

/// How far a key has come. `N`: steps but the last, at least.
#[derive(Clone, Copy, Debug)]
struct Progress<const N: usize> {
    /// When the pending steps matched, ns.
    pending_ns: i64,
    /// Bit n: step n has matched at that time.
    pending: u64,
    starts: [i64; N],
}

impl<const N: usize> Default for Progress<N> {
    fn default() -> Progress<N> {
        Progress { pending_ns: 0, pending: 0, starts: [NONE; N] }
    }
}

impl<const N: usize> Progress<N> {
    /// It is `now_ns`: what matched before counts.
    fn reach(&mut self, now_ns: i64) {
        if now_ns > self.pending_ns {
            for step in (0..N).rev().filter(|step| self.pending >> step & 1 != 0) {
                let start = if step == 0 { self.pending_ns } else { self.starts[step - 1] };
                self.starts[step] = self.starts[step].max(start);
            }
            (self.pending_ns, self.pending) = (now_ns, 0);
        }
    }

    /// A fire: what came before is used up.
    fn use_up(&mut self) {
        self.starts = [NONE; N];
        self.pending &= 1;
    }
}

/// The sequences of all keys.
#[derive(Debug)]
struct Chains<const N: usize> {
    last: u8,
    within_ns: i64,
    bytes_max: usize,
    table: KeyTable<Progress<N>>,
    evicted: u64,
}

impl<const N: usize> Chains<N> {
    fn new(steps: usize, within_ns: i64, bytes_max: usize, seed: [u64; 2]) -> Chains<N> {
        Chains { last: steps as u8 - 1, within_ns, bytes_max, table: KeyTable::new(seed), evicted: 0 }
    }

    fn follow(&mut self, matches: &[Match], times_ns: &[i64], mut fires: impl FnMut(usize, i64)) {
        let mut hashes = [0; BATCH];
        let mut spots = [None; BATCH];
        for (hash, one) in hashes.iter_mut().zip(matches) {
            *hash = self.table.hash(one.key.words());
            self.table.fetch(*hash);
        }
        for ((spot, &hash), one) in spots.iter_mut().zip(&hashes).zip(matches) {
            *spot = self.table.find(hash, one.key.words());
        }
        for (index, (one, &now_ns)) in matches.iter().zip(times_ns).enumerate() {
            if let Some(first_ns) = self.one(one, hashes[index], spots[index], now_ns) {
                fires(index, first_ns);
            }
        }
    }

    /// Follows one match; `Some` if it fires: when its sequence began.
    fn one(&mut self, one: &Match, hash: u64, spot: Option<Spot>, now_ns: i64) -> Option<i64> {
        let key = one.key.words();
        let Some(slot) = self.table.slot(hash, key, spot) else {
            if one.step == 0 {
                self.begin(hash, key, now_ns);
            }
            return None;
        };
        let progress = &mut slot.state;
        progress.reach(now_ns);
        if one.step == 0 {
            progress.pending |= 1;
            slot.latest_ns = now_ns;
            return None;
        }
        if one.step > self.last {
            return None;
        }
        let start_ns = *progress.starts.get(one.step as usize - 1)?;
        if start_ns < now_ns - self.within_ns {
            return None;
        }
        if one.step < self.last {
            progress.pending |= 1 << one.step;
            return None;
        }
        progress.use_up();
        Some(start_ns)
    }

    /// The first match of a key that has no place.
    fn begin(&mut self, hash: u64, key: [u64; 2], now_ns: i64) {
        let progress = Progress { pending_ns: now_ns, pending: 1, ..Progress::default() };
        let (new, live_from_ns) = ((now_ns, progress), now_ns - self.within_ns);
        if self.table.add(hash, key, new, live_from_ns, self.bytes_max, drop) {
            return;
        }
        let evicted = self.table.evict(hash) as u64;
        self.evicted += evicted;
        // A memory too small for one shard holds nobody: this one is the oldest.
        let added = evicted > 0 && self.table.add(hash, key, new, live_from_ns, self.bytes_max, drop);
        self.evicted += u64::from(!added);
    }
}

/// Sequences of any number of steps: small ones take less memory.
#[derive(Debug)]
pub(crate) struct Sequences(Sizes);

#[derive(Debug)]
enum Sizes {
    Two(Chains<1>),
    UpToFour(Chains<3>),
    UpToEight(Chains<{ STEPS_MAX - 1 }>),
}

/// The same for each size.
macro_rules! each {
    ($sequences:expr, $chains:ident => $what:expr) => {
        match &$sequences.0 {
            Sizes::Two($chains) => $what,
            Sizes::UpToFour($chains) => $what,
            Sizes::UpToEight($chains) => $what,
        }
    };
    (mut $sequences:expr, $chains:ident => $what:expr) => {
        match &mut $sequences.0 {
            Sizes::Two($chains) => $what,
            Sizes::UpToFour($chains) => $what,
            Sizes::UpToEight($chains) => $what,
        }
    };
}

impl Sequences {
    /// No sequence has begun. There are from 2 to [`STEPS_MAX`] steps.
    pub fn new(steps: usize, within_ns: i64, bytes: usize, seed: [u64; 2]) -> Sequences {
        Sequences(match steps {
            ..=2 => Sizes::Two(Chains::new(steps, within_ns, bytes, seed)),
            3..=4 => Sizes::UpToFour(Chains::new(steps, within_ns, bytes, seed)),
            _ => Sizes::UpToEight(Chains::new(steps, within_ns, bytes, seed)),
        })
    }

    /// Forgets all keys.
    pub fn clear(&mut self) {
        each!(mut self, chains => chains.table.clear());
    }

    /// Keys with a place, those included that are over.
    pub fn keys(&self) -> usize {
        each!(self, chains => chains.table.held())
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        each!(self, chains => chains.table.bytes())
    }

    /// Keys that were evicted at the bound.
    pub fn evicted(&self) -> u64 {
        each!(self, chains => chains.evicted)
    }

    /// It is `now_ns`: some of what is over is forgotten.
    pub fn advance(&mut self, now_ns: i64) {
        each!(mut self, chains => chains.table.tidy_next(now_ns - chains.within_ns, drop));
    }

    /// Follows at most [`BATCH`] matches of one era, whose times (`times_ns`) never fall. `fires` has the index of
    /// each that fires, and when its sequence began, ns.
    pub fn follow(&mut self, matches: &[Match], times_ns: &[i64], fires: impl FnMut(usize, i64)) {
        each!(mut self, chains => chains.follow(matches, times_ns, fires));
    }
}
