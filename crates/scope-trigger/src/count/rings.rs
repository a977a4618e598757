//! The times of keys that matched several times: rings of 4, 8, 16 ... times in one piece of memory.
//!
//! ```text
//! units of 4 times:  | ring of 4 | free, 4 | ring of 8         | ring of 16 ...   | not used yet
//! ```
//! A ring of 2^n units begins at a multiple of 2^n. A larger free piece is split in two halves; a half that
//! becomes free is joined with its other half if that is free, too (buddy allocation). Free pieces of one size
//! are a list: their first two words are the next one and the one before.

use super::pages;

/// A time before all others.
pub(super) const NEVER: i64 = i64::MIN;
/// Times of a unit.
const UNIT: usize = 4;
/// Bits of a block's number that say where it begins; above them stands its order.
const UNIT_BITS: u32 = 27;
/// Orders that the other bits can say, less two that stand for no block.
const ORDERS: usize = 30;
/// End of a list.
const NONE: u32 = u32::MAX;
/// Bytes of a unit, with what is noted of it.
const UNIT_BYTES: usize = UNIT * size_of::<i64>() + 1;

/// A ring: its first unit and its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(u32);

impl Block {
    fn new(unit: u32, order: usize) -> Block {
        Block((order as u32) << UNIT_BITS | unit)
    }

    /// As a number below `30 << 27`.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The block of such a number.
    pub fn of_number(number: u32) -> Block {
        Block(number)
    }

    /// 0: 4 times, 1: 8, and so on.
    pub fn order(self) -> usize {
        (self.0 >> UNIT_BITS) as usize
    }

    fn unit(self) -> u32 {
        self.0 & ((1 << UNIT_BITS) - 1)
    }

    fn begin(self) -> usize {
        self.unit() as usize * UNIT
    }

    /// Times that it has.
    pub fn times(self) -> usize {
        UNIT << self.order()
    }
}

/// All rings.
#[derive(Debug)]
pub(super) struct Rings {
    words: Vec<i64>,
    /// Of each unit: order + 1 of the free piece that begins there, else 0.
    free: Vec<u8>,
    /// First of the free pieces of each order.
    first: [u32; ORDERS],
    /// What was asked for at the begin.
    room_bytes: usize,
}

impl Rings {
    /// No rings yet. Room for `bytes` is reserved, if the system has it, and taken as it is needed.
    pub fn new(bytes: usize) -> Rings {
        let units = (bytes / UNIT_BYTES).min(1 << UNIT_BITS);
        let (mut words, mut free) = (Vec::new(), Vec::new());
        // Without it the rings move when they grow.
        let _ = words.try_reserve_exact(units * UNIT);
        let _ = free.try_reserve_exact(units);
        pages::wish_large(&mut words);
        Rings { words, free, first: [NONE; ORDERS], room_bytes: bytes }
    }

    /// Bytes that were touched.
    pub fn bytes(&self) -> usize {
        self.free.len() * UNIT_BYTES
    }

    /// Forgets all, and gives the memory back.
    pub fn clear(&mut self) {
        *self = Rings::new(self.room_bytes);
    }

    /// The times of a ring.
    #[inline]
    pub fn times(&mut self, block: Block) -> &mut [i64] {
        &mut self.words[block.begin()..][..block.times()]
    }

    /// Asks for the line of the time at `at`.
    #[inline]
    pub fn fetch(&self, block: Block, at: usize) {
        if let Some(word) = self.words.get(block.begin() + at) {
            scope_packet::fetch::fetch_begin(word);
        }
    }

    /// A ring of an order, all of its times [`NEVER`]; `None` where that would take more than `bytes_max` for
    /// all rings.
    pub fn allocate(&mut self, order: usize, bytes_max: usize) -> Option<Block> {
        let first_free = |rings: &Rings| (order..ORDERS).find(|&order| rings.first[order] != NONE);
        let found = match first_free(self) {
            None if self.extend(order, bytes_max) => first_free(self)?,
            found => found?,
        };
        let unit = self.first[found];
        self.unlink(unit);
        for half in (order..found).rev() {
            self.link(unit + (1 << half), half);
        }
        let block = Block::new(unit, order);
        self.times(block).fill(NEVER);
        Some(block)
    }

    /// Gives a ring back.
    pub fn give_back(&mut self, block: Block) {
        let (mut unit, mut order) = (block.unit(), block.order());
        while order + 1 < ORDERS {
            let other = unit ^ (1 << order);
            if self.free.get(other as usize) != Some(&(order as u8 + 1)) {
                break;
            }
            self.unlink(other);
            unit = unit.min(other);
            order += 1;
        }
        self.link(unit, order);
    }

    /// Takes so much more memory that a piece of `order` is free.
    fn extend(&mut self, order: usize, bytes_max: usize) -> bool {
        if order >= ORDERS {
            return false;
        }
        let begin = self.free.len().next_multiple_of(1 << order);
        let end = begin + (1 << order);
        if end * UNIT_BYTES > bytes_max || end > 1 << UNIT_BITS {
            return false;
        }
        let mut unit = self.free.len();
        self.words.resize(end * UNIT, NEVER);
        self.free.resize(end, 0);
        // In front of the piece there may be some units, which are pieces of their own.
        while unit < begin {
            let order = unit.trailing_zeros() as usize;
            self.give_back(Block::new(unit as u32, order));
            unit += 1 << order;
        }
        self.give_back(Block::new(begin as u32, order));
        true
    }

    fn link(&mut self, unit: u32, order: usize) {
        let next = std::mem::replace(&mut self.first[order], unit);
        let at = unit as usize * UNIT;
        self.words[at] = i64::from(next);
        self.words[at + 1] = i64::from(NONE);
        if next != NONE {
            self.words[next as usize * UNIT + 1] = i64::from(unit);
        }
        self.free[unit as usize] = order as u8 + 1;
    }

    fn unlink(&mut self, unit: u32) {
        let at = unit as usize * UNIT;
        let order = usize::from(std::mem::take(&mut self.free[unit as usize])) - 1;
        // Both were written by `link`.
        let (next, before) = (self.words[at] as u32, self.words[at + 1] as u32);
        if next != NONE {
            self.words[next as usize * UNIT + 1] = i64::from(before);
        }
        match before {
            NONE => self.first[order] = next,
            before => self.words[before as usize * UNIT] = i64::from(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_many_small_rings_gave_back_makes_a_large_one() {
        let bytes = 64 * UNIT_BYTES;
        let mut rings = Rings::new(bytes);
        let all: Vec<Block> = std::iter::from_fn(|| rings.allocate(0, bytes)).collect();
        assert_eq!((all.len(), rings.bytes()), (64, bytes));
        assert_eq!(rings.allocate(3, bytes), None);
        for block in all {
            rings.give_back(block);
        }
        assert!(rings.allocate(6, bytes).is_some());
    }

    proptest! {
        #[test]
        fn no_two_rings_share_a_time(steps in prop::collection::vec((0usize..5, any::<u16>(), any::<bool>()), 0..200)) {
            let bytes = 128 * UNIT_BYTES;
            let mut rings = Rings::new(bytes);
            let mut held: Vec<(Block, i64)> = Vec::new();
            for (number, (order, which, give)) in steps.into_iter().enumerate() {
                if give && !held.is_empty() {
                    let (block, _) = held.swap_remove(which as usize % held.len());
                    rings.give_back(block);
                } else if let Some(block) = rings.allocate(order, bytes) {
                    prop_assert!(rings.times(block).iter().all(|&time| time == NEVER));
                    rings.times(block).fill(number as i64);
                    held.push((Block::of_number(block.number()), number as i64));
                }
                for &(block, mark) in &held {
                    prop_assert!(rings.times(block).iter().all(|&time| time == mark));
                }
                prop_assert!(rings.bytes() <= bytes);
            }
            for (block, _) in held.drain(..) {
                rings.give_back(block);
            }
            // All that was taken is in pieces as large as they may be.
            let units = rings.bytes() / UNIT_BYTES;
            prop_assert!(units == 0 || rings.first.iter().filter(|&&unit| unit != NONE).count() <= units.count_ones() as usize);
        }
    }
}
