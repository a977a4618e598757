//! Which member has which flows: a table of numbers, shared out by weight, that changes as little as it can.
//!
//! ```text
//! weights 1:3     | 0 1 1 1 0 1 1 1 ...     16,384 numbers, each with its member
//! joins, weight 4 | 2 1 2 1 0 2 1 2 ...     the new one takes from each what that has too much, and nothing else moves
//! leaves, 1       | 2 2 2 0 0 2 0 2 ...     its numbers go to those that have too little, and nothing else moves
//! ```

use std::fmt;

/// Numbers.
const BUCKETS: usize = 1 << 14;
/// Of a number that nobody has.
const NOBODY: u8 = u8::MAX;
/// From one number to the next in the order in which members take their turns: odd, so that all come, and far, so that no
/// member has its numbers one after another.
const STRIDE: usize = 10_007;

/// Who shares.
#[derive(Clone, Copy, Debug)]
struct Holder {
    member: u8,
    weight: u64,
    has: u64,
}

/// What a member gives of its numbers: evenly, so that turns stay mixed.
#[derive(Clone, Copy, Default)]
struct Gives {
    gives: u64,
    of: u64,
    /// Rises by what it gives with each number, and falls by what it has with each that it gives.
    due: u64,
}

impl Gives {
    fn gives_next(&mut self) -> bool {
        self.due += self.gives;
        let is_due = self.due >= self.of && self.gives > 0;
        if is_due {
            self.due -= self.of;
        }
        is_due
    }
}

/// See the module.
#[derive(Clone)]
pub struct Shares {
    owners: Box<[u8; BUCKETS]>,
    holders: Vec<Holder>,
    /// Turns that were taken.
    turns: usize,
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("holders", &self.holders).finish_non_exhaustive()
    }
}

impl Default for Shares {
    /// Nobody has anything.
    fn default() -> Shares {
        Shares { owners: Box::new([NOBODY; BUCKETS]), holders: Vec::new(), turns: 0 }
    }
}

impl Shares {
    /// A further member, of this weight, takes its share; of numbers that nobody has, all.
    pub fn join(&mut self, member: u8, weight: u16) {
        debug_assert!(member != NOBODY && self.holders.iter().all(|holder| holder.member != member));
        let weight = u64::from(weight.max(1));
        self.holders.push(Holder { member, weight, has: 0 });
        let total = self.total();
        let mut wanted = BUCKETS as u64 * weight / total;
        if self.holders.len() == 1 {
            self.owners.fill(member);
            self.holders[0].has = BUCKETS as u64;
            return;
        }
        // How many each gives, of so many: one by one from whoever has most beyond its share.
        let mut gives = [Gives::default(); NOBODY as usize + 1];
        self.holders.iter().for_each(|holder| gives[usize::from(holder.member)].of = holder.has);
        while wanted > 0 {
            let beyond =
                |holder: &Holder| holder.has as i64 * total as i64 - (BUCKETS as u64 * holder.weight) as i64;
            let others = self.holders.iter_mut().filter(|holder| holder.member != member && holder.has > 0);
            let Some(most) = others.max_by_key(|holder| beyond(holder)) else { break };
            most.has -= 1;
            gives[usize::from(most.member)].gives += 1;
            wanted -= 1;
        }
        let mut taken = 0;
        for turn in 0..BUCKETS {
            let owner = &mut self.owners[place(turn)];
            if gives[usize::from(*owner)].gives_next() {
                *owner = member;
                taken += 1;
            }
        }
        if let Some(last) = self.holders.last_mut() {
            last.has = taken;
        }
    }

    /// A member is gone: its numbers are the others'.
    pub fn leave(&mut self, member: u8) {
        self.holders.retain(|holder| holder.member != member);
        let total = self.total();
        for turn in 0..BUCKETS {
            let owner = &mut self.owners[place(turn)];
            if *owner != member {
                continue;
            }
            let lacks =
                |holder: &Holder| (BUCKETS as u64 * holder.weight) as i64 - holder.has as i64 * total as i64;
            let least = self.holders.iter_mut().max_by_key(|holder| lacks(holder));
            *owner = least.map_or(NOBODY, |holder| {
                holder.has += 1;
                holder.member
            });
        }
    }

    fn total(&self) -> u64 {
        self.holders.iter().map(|holder| holder.weight).sum()
    }

    /// Whose a number is; `None`: nobody shares.
    #[inline]
    pub fn owner(&self, number: u64) -> Option<u8> {
        let owner = self.owners[(number >> (64 - BUCKETS.ilog2())) as usize];
        (owner != NOBODY).then_some(owner)
    }

    /// Whose turn it is.
    #[inline]
    pub fn next_turn(&mut self) -> Option<u8> {
        self.turns = self.turns.wrapping_add(1);
        let owner = self.owners[place(self.turns)];
        (owner != NOBODY).then_some(owner)
    }

    /// Everybody who shares.
    pub fn members(&self) -> impl Iterator<Item = u8> + '_ {
        self.holders.iter().map(|holder| holder.member)
    }

    /// How many share.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

/// The number at this place in the order of turns.
#[inline]
fn place(turn: usize) -> usize {
    turn.wrapping_mul(STRIDE) % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// How many numbers each has.
    fn counts(shares: &Shares) -> BTreeMap<u8, u64> {
        shares.owners.iter().fold(BTreeMap::new(), |mut counts, owner| {
            *counts.entry(*owner).or_default() += 1;
            counts
        })
    }

    fn is_fair(shares: &Shares) -> bool {
        let total = shares.total();
        let off = |holder: &Holder| {
            (holder.has as i64 * total as i64 - (BUCKETS as u64 * holder.weight) as i64).unsigned_abs()
        };
        shares.holders.iter().all(|holder| off(holder) <= 2 * total)
    }

    #[test]
    fn shares_are_as_weights_say() {
        let mut shares = Shares::default();
        assert_eq!((shares.owner(5), shares.next_turn()), (None, None));
        for (member, weight) in [(0, 1), (1, 2), (2, 3), (3, 2)] {
            shares.join(member, weight);
        }
        assert_eq!(counts(&shares), BTreeMap::from([(0, 2048), (1, 4096), (2, 6144), (3, 4096)]));
        let mut turns = BTreeMap::new();
        for _ in 0..BUCKETS {
            *turns.entry(shares.next_turn().unwrap()).or_insert(0u64) += 1;
        }
        assert_eq!(turns, counts(&shares));
    }

    proptest! {
        #[test]
        fn only_what_must_moves(steps in proptest::collection::vec((any::<bool>(), 0u8..64, 1u16..=100), 1..40)) {
            let mut shares = Shares::default();
            for (joins, member, weight) in steps {
                let (before, is_there) = (shares.owners.clone(), shares.members().any(|other| other == member));
                match (joins, is_there) {
                    (true, false) => shares.join(member, weight),
                    (false, true) => shares.leave(member),
                    _ => continue,
                }
                for (was, is) in before.iter().zip(shares.owners.iter()) {
                    prop_assert!(was == is || (joins && *is == member) || (!joins && *was == member));
                }
                let counts = counts(&shares);
                for holder in &shares.holders {
                    prop_assert_eq!(counts.get(&holder.member).copied().unwrap_or(0), holder.has);
                }
                prop_assert!(shares.is_empty() || is_fair(&shares), "{:?}", shares);
                prop_assert_eq!(counts.contains_key(&NOBODY), shares.is_empty());
            }
        }
    }
}
