//! Sets of 32-bit keys as tables in which machine code looks with two loads and no loop.
//!
//! Cuckoo hashing (Pagh and Rodler, "Cuckoo Hashing", 2001): a key stands in one of two places, each the high
//! bits of the key times an odd number.
//!
//! ```text
//! in the set  =  slots[(v * multipliers[0]) >> shift] = v   or   slots[(v * multipliers[1]) >> shift] = v
//! ```
//! A free slot holds some key of the set: what is found there is in the set anyhow.

/// Slots for a key, at least: with two places a key, half full always works out soon.
const SLOTS_PER_KEY: usize = 2;
/// Keys that move on to make room for one, at most, before other multipliers are tried.
const MOVES_MAX: usize = 64;
/// Multipliers tried before the table is made twice as large.
const TRIES_MAX: u32 = 16;

/// A set, made to be looked up.
#[derive(Debug)]
pub(super) struct Table {
    /// A power of two of them.
    pub slots: Box<[u32]>,
    pub multipliers: [u32; 2],
}

impl Table {
    /// The table of `keys`, each given once, at least one.
    pub fn new(keys: &[u32]) -> Table {
        let mut slots = (keys.len() * SLOTS_PER_KEY).next_power_of_two().max(2);
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        loop {
            for _ in 0..TRIES_MAX {
                seed = seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                let multipliers = [(seed >> 32) as u32 | 1, (seed >> 11) as u32 | 1];
                if let Some(slots) = placed(keys, slots, multipliers) {
                    return Table { slots, multipliers };
                }
            }
            slots *= 2;
        }
    }

    /// Bits by which a product is shifted to the right to give a slot.
    pub fn shift(&self) -> u32 {
        shift(self.slots.len())
    }
}

fn shift(slots: usize) -> u32 {
    32 - slots.trailing_zeros()
}

fn placed(keys: &[u32], slots: usize, multipliers: [u32; 2]) -> Option<Box<[u32]>> {
    let place = |key: u32, which: usize| (key.wrapping_mul(multipliers[which]) >> shift(slots)) as usize;
    let mut taken: Vec<Option<u32>> = vec![None; slots];
    for &key in keys {
        let (mut key, mut at) = (key, place(key, 0));
        let mut moves = 0;
        while let Some(other) = taken[at].replace(key) {
            moves += 1;
            if moves > MOVES_MAX {
                return None;
            }
            // The one that stood here goes to its other place.
            let which = usize::from(place(other, 0) == at);
            (key, at) = (other, place(other, which));
        }
    }
    Some(taken.into_iter().map(|slot| slot.unwrap_or(keys[0])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimens::Random;

    fn holds(table: &Table, v: u32) -> bool {
        table.multipliers.iter().any(|m| table.slots[(v.wrapping_mul(*m) >> table.shift()) as usize] == v)
    }

    #[test]
    fn a_table_holds_its_keys_and_no_others() {
        let mut random = Random::new(5);
        for round in 0..300u32 {
            let count = 1 + random.below(1 + u64::from(round) * 5);
            let spread = random.pick(&[8u32, 16, 24, 32]);
            let mut keys: Vec<u32> = (0..count).map(|_| (random.next() as u32) << (32 - spread)).collect();
            keys.sort_unstable();
            keys.dedup();
            let table = Table::new(&keys);
            assert!(
                table.slots.len() <= 8 * keys.len().next_power_of_two(),
                "{} slots for {}",
                table.slots.len(),
                keys.len()
            );
            assert!(keys.iter().all(|&key| holds(&table, key)));
            for key in keys
                .iter()
                .flat_map(|key| [key ^ 1, key ^ 0x8000_0000, key.wrapping_add(1), random.next() as u32])
            {
                assert_eq!(holds(&table, key), keys.binary_search(&key).is_ok(), "{key:#x}");
            }
        }
    }
}
