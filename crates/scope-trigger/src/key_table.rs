//! A table from keys to a small state each, in bounded memory: keys that are over make room, and the caller
//! says what happens when none are.
//!
//! ```text
//! hash ─┬─ upper 6 bits ─► shard: pairs of slots, of a line of 64 bytes or several, at most 5/8 taken
//!       └─ lower 32 bits ─► home pair of the key in the shard; the key is there, or in one of the next slots,
//!                           in front of the first empty one
//! ```
//! Both slots of the home pair are compared at once, without a branch for each: most keys are there.
//!
//! A new key takes the place of one that is over, if it meets one before the first empty slot: nothing moves. A shard
//! that is full drops the keys that are over; where that frees little, it grows by a half. So one key costs a few moves
//! of others, and no growth moves more than a shard. A removed key leaves no mark: those behind it move up. The hash is keyed with a seed from outside: who sends packets can't choose keys
//! that meet in one place.

use scope_packet::fetch;

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;
/// Slots of a shard that gets its first key.
const SLOTS_MIN: usize = 16;
/// `latest_ns` of an empty slot.
const EMPTY: i64 = i64::MIN;
/// Of a full shard that may not grow, one of so many refused keys has the keys dropped that are over.
const REFUSED_PER_TIDY: usize = 8;

/// A key and its state.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(32))]
pub(crate) struct Slot<S> {
    key: [u64; 2],
    /// Capture time up to which the key's age is counted, ns.
    pub latest_ns: i64,
    /// What the table's owner keeps of the key.
    pub state: S,
}

/// The slots of a line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Pair<S>([Slot<S>; 2]);

#[derive(Debug)]
struct Shard<S> {
    pairs: Vec<Pair<S>>,
    held: usize,
    /// Keys that found no room since the keys were dropped that are over.
    refused: usize,
}

/// Where a key was found. The slot says whether it is there still.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spot {
    shard: u32,
    slot: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct KeyTable<S> {
    shards: Vec<Shard<S>>,
    seed: [u64; 3],
    held: usize,
    bytes: usize,
    /// The shard that [`KeyTable::tidy_next`] looks at next.
    next: usize,
}

/// The product's both halves, one upon the other: each bit of a factor changes about half of them.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl<S> Slot<S> {
    /// Whether it is this key's.
    #[inline]
    fn has(&self, key: [u64; 2]) -> bool {
        (((self.key[0] ^ key[0]) | (self.key[1] ^ key[1])) == 0) & (self.latest_ns != EMPTY)
    }
}

impl<S: Copy + Default> Shard<S> {
    const NEW: Shard<S> = Shard { pairs: Vec::new(), held: 0, refused: 0 };

    fn slots(&self) -> usize {
        2 * self.pairs.len()
    }

    fn slot(&self, at: usize) -> &Slot<S> {
        &self.pairs[at / 2].0[at % 2]
    }

    fn slot_mut(&mut self, at: usize) -> &mut Slot<S> {
        &mut self.pairs[at / 2].0[at % 2]
    }

    fn taken(&self) -> impl Iterator<Item = &Slot<S>> {
        self.pairs.iter().flat_map(|pair| &pair.0).filter(|slot| slot.latest_ns != EMPTY)
    }

    /// The pair where the key of `hash` would be if all were empty.
    fn home(&self, hash: u64) -> usize {
        // Below the number of pairs.
        (((hash & 0xffff_ffff) * self.pairs.len() as u64) >> 32) as usize
    }

    fn has_room(&self) -> bool {
        self.held < self.slots() / 8 * 5
    }

    fn behind(&self, at: usize) -> usize {
        if at + 1 == self.slots() { 0 } else { at + 1 }
    }

    #[inline]
    fn find(&self, hash: u64, key: [u64; 2]) -> Option<usize> {
        let home = self.home(hash);
        let Pair([first, second]) = self.pairs.get(home)?;
        let (in_first, in_second) = (first.has(key), second.has(key));
        if in_first | in_second {
            return Some(2 * home + usize::from(in_second));
        }
        self.find_behind(2 * home, key)
    }

    /// Looks for a key that isn't in its home pair, which begins at `at`.
    fn find_behind(&self, mut at: usize, key: [u64; 2]) -> Option<usize> {
        // There are empty ones.
        while self.slot(at).latest_ns != EMPTY {
            if self.slot(at).has(key) {
                return Some(at);
            }
            at = self.behind(at);
        }
        None
    }

    fn put(&mut self, hash: u64, new: Slot<S>) {
        let mut at = 2 * self.home(hash);
        while self.slot(at).latest_ns != EMPTY {
            at = self.behind(at);
        }
        *self.slot_mut(at) = new;
        self.held += 1;
    }

    /// Puts a key in the place of one that is over, among those that are looked at for it; that one's state.
    #[inline]
    fn replace(&mut self, hash: u64, new: Slot<S>, live_from_ns: i64) -> Option<S> {
        if self.pairs.is_empty() {
            return None;
        }
        let mut at = 2 * self.home(hash);
        loop {
            let slot = self.slot_mut(at);
            if slot.latest_ns < live_from_ns {
                // An empty one is older than all.
                return (slot.latest_ns != EMPTY).then(|| std::mem::replace(slot, new).state);
            }
            at = self.behind(at);
        }
    }

    /// Empties slot `at`. Keys behind it move up as far as their homes allow.
    fn remove(&mut self, mut at: usize, hash: impl Fn([u64; 2]) -> u64) {
        let len = self.slots();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + len - from };
        let mut other = at;
        loop {
            other = self.behind(other);
            if self.slot(other).latest_ns == EMPTY {
                break;
            }
            if distance(2 * self.home(hash(self.slot(other).key)), other) >= distance(at, other) {
                *self.slot_mut(at) = *self.slot(other);
                at = other;
            }
        }
        self.slot_mut(at).latest_ns = EMPTY;
        self.held -= 1;
    }

    /// Removes the keys for which `is_over` holds; `removed` has their states.
    fn retain(
        &mut self,
        hash: impl Fn([u64; 2]) -> u64,
        mut is_over: impl FnMut(&Slot<S>) -> bool,
        mut removed: impl FnMut(S),
    ) {
        let mut at = 0;
        while at < self.slots() {
            let slot = self.slot(at);
            // Another key may move to this slot; whoever comes from the begin was looked at there.
            if slot.latest_ns != EMPTY && is_over(slot) {
                removed(slot.state);
                self.remove(at, &hash);
            } else {
                at += 1;
            }
        }
    }
}

impl<S: Copy + Default> KeyTable<S> {
    /// Bytes of a key's slot.
    pub const SLOT_BYTES: usize = size_of::<Pair<S>>() / 2;

    /// An empty table.
    pub fn new(seed: [u64; 2]) -> KeyTable<S> {
        let [a, b] = seed;
        let shards = std::iter::repeat_with(|| Shard::NEW).take(SHARDS).collect();
        // A factor of zero would make all hashes zero.
        let seed = [a, b, folded(a ^ 0x9e37_79b9_7f4a_7c15, b ^ 0xd1b5_4a32_d192_ed03) | 1];
        KeyTable { shards, seed, held: 0, bytes: 0, next: 0 }
    }

    /// Keys that it holds, those included that are over.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = KeyTable { seed: self.seed, ..KeyTable::new([0, 0]) };
    }

    /// The keyed hash of a key.
    #[inline]
    pub fn hash(&self, key: [u64; 2]) -> u64 {
        hash(self.seed, key)
    }

    fn shard_of(hash: u64) -> usize {
        (hash >> (u64::BITS - SHARD_BITS)) as usize
    }

    /// Asks for the line where the key of `hash` will be looked for.
    #[inline]
    pub fn fetch(&self, hash: u64) {
        let shard = &self.shards[Self::shard_of(hash)];
        if let Some(pair) = shard.pairs.get(shard.home(hash)) {
            fetch::fetch_begin(pair);
        }
    }

    /// Where a key is.
    #[inline]
    pub fn find(&self, hash: u64, key: [u64; 2]) -> Option<Spot> {
        let shard = Self::shard_of(hash);
        let slot = self.shards[shard].find(hash, key)?;
        Some(Spot { shard: shard as u32, slot: slot as u32 })
    }

    /// What is at `spot`.
    #[inline]
    pub fn at(&mut self, spot: Spot) -> &mut Slot<S> {
        self.shards[spot.shard as usize].slot_mut(spot.slot as usize)
    }

    /// A key's slot. It was found at `spot`, or not; by now others may have come or moved.
    #[inline]
    pub fn slot(&mut self, hash: u64, key: [u64; 2], spot: Option<Spot>) -> Option<&mut Slot<S>> {
        let stays = |spot: &Spot| {
            let pair = self.shards[spot.shard as usize].pairs.get(spot.slot as usize / 2);
            pair.is_some_and(|pair| pair.0[spot.slot as usize % 2].has(key))
        };
        let spot = spot.filter(stays).or_else(|| self.find(hash, key))?;
        Some(self.at(spot))
    }

    /// Adds a key that isn't there, if there is room in at most `bytes_max` bytes for all slots. Keys whose
    /// `latest_ns` lies before `live_from_ns` make room; `removed` has their states. Whether it was added.
    pub fn add(
        &mut self,
        hash: u64,
        key: [u64; 2],
        (latest_ns, state): (i64, S),
        live_from_ns: i64,
        bytes_max: usize,
        mut removed: impl FnMut(S),
    ) -> bool {
        let shard = Self::shard_of(hash);
        let new = Slot { key, latest_ns, state };
        if let Some(old) = self.shards[shard].replace(hash, new, live_from_ns) {
            removed(old);
            return true;
        }
        if !self.shards[shard].has_room() && !self.make_room(shard, live_from_ns, bytes_max, removed) {
            return false;
        }
        self.shards[shard].put(hash, new);
        self.held += 1;
        true
    }

    fn make_room(
        &mut self,
        shard: usize,
        live_from_ns: i64,
        bytes_max: usize,
        removed: impl FnMut(S),
    ) -> bool {
        let slots = self.shards[shard].slots();
        // The old slots are there until all keys have moved.
        let wanted = (slots + slots / 4 * 2).max(SLOTS_MIN);
        let may_grow = self.bytes + wanted * Self::SLOT_BYTES <= bytes_max;
        self.shards[shard].refused += 1;
        if may_grow || self.shards[shard].refused * REFUSED_PER_TIDY > slots {
            self.tidy(shard, live_from_ns, removed);
        }
        if may_grow && self.shards[shard].held >= slots / 2 {
            self.grow(shard, wanted);
        }
        self.shards[shard].has_room()
    }

    fn tidy(&mut self, shard: usize, live_from_ns: i64, removed: impl FnMut(S)) {
        let seed = self.seed;
        let shard = &mut self.shards[shard];
        let held = shard.held;
        shard.retain(|key| hash(seed, key), |slot| slot.latest_ns < live_from_ns, removed);
        shard.refused = 0;
        self.held -= held - shard.held;
    }

    fn grow(&mut self, shard: usize, slots: usize) {
        let empty = Slot { key: [0; 2], latest_ns: EMPTY, state: S::default() };
        let seed = self.seed;
        let shard = &mut self.shards[shard];
        let old = std::mem::replace(&mut shard.pairs, vec![Pair([empty; 2]); slots / 2]);
        shard.held = 0;
        for slot in old.iter().flat_map(|pair| &pair.0).filter(|slot| slot.latest_ns != EMPTY) {
            shard.put(hash(seed, slot.key), *slot);
        }
        self.bytes += (slots - 2 * old.len()) * Self::SLOT_BYTES;
    }

    /// Removes the keys that are over of one shard, another one each time.
    pub fn tidy_next(&mut self, live_from_ns: i64, removed: impl FnMut(S)) {
        self.tidy(self.next, live_from_ns, removed);
        self.next = (self.next + 1) % SHARDS;
    }

    /// Removes the oldest quarter of the shard in which the key of `hash` belongs; returns how many that are.
    pub fn evict(&mut self, hash_of_key: u64) -> usize {
        let seed = self.seed;
        let shard = &mut self.shards[Self::shard_of(hash_of_key)];
        let mut times: Vec<i64> = shard.taken().map(|slot| slot.latest_ns).collect();
        let evicted = times.len().div_ceil(4);
        if evicted == 0 {
            return 0;
        }
        let (.., &mut oldest_ns, _) = times.select_nth_unstable(evicted - 1);
        let mut left = evicted;
        let is_over = |slot: &Slot<S>| {
            let evict = slot.latest_ns <= oldest_ns && left > 0;
            left -= usize::from(evict);
            evict
        };
        shard.retain(|key| hash(seed, key), is_over, |_| ());
        self.held -= evicted;
        evicted
    }
}

#[inline]
fn hash([a, b, c]: [u64; 3], [low, high]: [u64; 2]) -> u64 {
    folded(folded(low ^ a, high ^ b) ^ low.rotate_left(32) ^ high, c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const ROOM: usize = 1 << 20;

    #[test]
    fn a_table_without_room_refuses_and_takes_keys_again_when_others_are_over() {
        let mut table = KeyTable::<u64>::new([1, 2]);
        let room = 40 * KeyTable::<u64>::SLOT_BYTES * SLOTS_MIN;
        let add = |table: &mut KeyTable<u64>, key: u64, now: i64| {
            let hash = table.hash([key, 0]);
            table.add(hash, [key, 0], (now, key), now - 10, room, drop)
        };
        let added = (0..4000).filter(|&key| add(&mut table, key, 0)).count();
        assert!(added > 0 && added < 4000 && added == table.held());
        assert!(table.bytes() <= room, "{}", table.bytes());
        let later = (4000..8000).filter(|&key| add(&mut table, key, 100)).count();
        assert!(later > added / 4, "{later} of {added}: keys that are over make room");
        assert!(table.bytes() <= room);
    }

    #[test]
    fn what_is_evicted_is_the_oldest() {
        let mut table = KeyTable::<u64>::new([3, 4]);
        let keys: Vec<u64> =
            (0..100_000).filter(|&key| KeyTable::<u64>::shard_of(table.hash([key, 0])) == 7).collect();
        for &key in &keys {
            let hash = table.hash([key, 0]);
            assert!(table.add(hash, [key, 0], (key as i64, key), 0, usize::MAX, drop));
        }
        let evicted = table.evict(table.hash([keys[0], 0]));
        assert_eq!(evicted, keys.len().div_ceil(4));
        for (index, &key) in keys.iter().enumerate() {
            assert_eq!(table.find(table.hash([key, 0]), [key, 0]).is_some(), index >= evicted, "{key}");
        }
        assert_eq!(table.held(), keys.len() - evicted);
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(
            steps in prop::collection::vec((0u64..300, 0i64..3, any::<bool>()), 0..1500),
            seed: [u64; 2],
        ) {
            let (mut table, mut naive, mut now) = (KeyTable::<u64>::new(seed), HashMap::new(), 0);
            for (number, step, tidy) in steps {
                let key = [number, number % 3];
                now += step;
                let from = now - 200;
                let hash = table.hash(key);
                let found = table.find(hash, key);
                match table.slot(hash, key, found) {
                    Some(slot) => {
                        prop_assert_eq!((slot.latest_ns, slot.state), naive[&key]);
                        prop_assert!(found.is_some());
                        slot.latest_ns = now;
                        naive.insert(key, (now, slot.state));
                    }
                    None => {
                        prop_assert!(naive.get(&key).is_none_or(|(latest, _)| *latest < from));
                        prop_assert!(table.add(hash, key, (now, number), from, ROOM, drop));
                        naive.insert(key, (now, number));
                    }
                }
                if tidy {
                    table.tidy_next(from, drop);
                }
            }
            let live = naive.iter().filter(|(_, (latest, _))| *latest >= now - 200);
            for (key, _) in live {
                prop_assert!(table.find(table.hash(*key), *key).is_some());
            }
        }
    }
}
