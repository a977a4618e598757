//! A map that is filled first and asked then: its entries lie as they came, and are put in order once.
//!
//! ```text
//! push ─► entries, as they come ─► the first question ─► their order: positions by key, of equal keys the one that counts
//! ```
//! What is planned for a question is thousands of facts that nearly come in order: a tree took longer to fill than all
//! answers together.

use std::cell::OnceCell;

/// What a key leads to.
pub(crate) trait Supersedes {
    /// Whether this one, which came later, counts in the place of another one with the same key.
    fn supersedes(&self, earlier: &Self) -> bool;
}

/// The map.
#[derive(Debug)]
pub(crate) struct Ordered<K, V> {
    entries: Vec<(K, V)>,
    order: OnceCell<Vec<u32>>,
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Ordered<K, V> {
        Ordered { entries: Vec::new(), order: OnceCell::new() }
    }
}

impl<K: Ord, V: Supersedes> Ordered<K, V> {
    /// Adds an entry.
    pub fn push(&mut self, key: K, value: V) {
        self.order.take();
        self.entries.push((key, value));
    }

    fn order(&self) -> &[u32] {
        self.order.get_or_init(|| {
            let entry = |at: &u32| &self.entries[*at as usize];
            let mut order: Vec<u32> = (0..self.entries.len() as u32).collect();
            order.sort_by(|a, b| entry(a).0.cmp(&entry(b).0));
            order.dedup_by(|later, earlier| {
                let is_same = entry(later).0 == entry(earlier).0;
                if is_same && entry(later).1.supersedes(&entry(earlier).1) {
                    *earlier = *later;
                }
                is_same
            });
            order
        })
    }

    fn entry(&self, at: u32) -> (&K, &V) {
        let (key, value) = &self.entries[at as usize];
        (key, value)
    }

    /// All entries that count, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.order().iter().map(|&at| self.entry(at))
    }

    /// The first entry whose key is no smaller than this.
    pub fn first_from(&self, key: &K) -> Option<(&K, &V)> {
        let order = self.order();
        order.get(self.place(order, key)).map(|&at| self.entry(at))
    }

    /// The last entry whose key is smaller than this.
    pub fn last_before(&self, key: &K) -> Option<(&K, &V)> {
        let order = self.order();
        let at = self.place(order, key).checked_sub(1)?;
        order.get(at).map(|&at| self.entry(at))
    }

    fn place(&self, order: &[u32], key: &K) -> usize {
        order.partition_point(|&at| self.entries[at as usize].0 < *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Supersedes for (u8, usize) {
        fn supersedes(&self, earlier: &(u8, usize)) -> bool {
            earlier.0 < self.0
        }
    }

    proptest! {
        #[test]
        fn it_answers_as_a_tree_does(parts in prop::collection::vec(prop::collection::vec((0u8..40, 0u8..3), 0..30), 1..4)) {
            let (mut map, mut tree) = (Ordered::default(), BTreeMap::new());
            for part in parts {
                for (number, (key, weight)) in part.into_iter().enumerate() {
                    map.push(key, (weight, number));
                    let known = tree.entry(key).or_insert((weight, number));
                    if known.0 < weight {
                        *known = (weight, number);
                    }
                }
                prop_assert!(map.iter().eq(tree.iter()));
                for key in 0..41 {
                    prop_assert_eq!(map.first_from(&key), tree.range(key..).next());
                    prop_assert_eq!(map.last_before(&key), tree.range(..key).next_back());
                }
            }
        }
    }
}
