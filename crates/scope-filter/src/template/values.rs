//! What a template takes from a packet, as a value that can be compared: hits with equal values fill it with
//! the same text.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// Keys of the two hashes, chosen anew by each process: nobody outside can make two packets' values equal.
static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

/// The values that a template took from one packet: 128 bits of two keyed hashes. No text is made for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Values([u64; 2]);

impl Values {
    /// Of no packet: a text that is the same for all.
    pub fn everything() -> Values {
        Gatherer::default().part(Part::Everything, &[]).values()
    }

    /// Of a filter's text that no packet has filled.
    pub fn of_text(text: &str) -> Values {
        let mut gatherer = Gatherer::default();
        for piece in text.as_bytes().chunks(128) {
            gatherer.add(Part::Text, piece);
        }
        gatherer.values()
    }
}

/// What a part of the values is: the first byte of it.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Everything = 1,
    Fallback = 2,
    Labels = 3,
    Bytes = 4,
    Text = 5,
}

/// Gathers values.
pub(super) struct Gatherer([std::hash::DefaultHasher; 2]);

impl Default for Gatherer {
    fn default() -> Gatherer {
        let [first, second] = &*KEYS;
        Gatherer([first.build_hasher(), second.build_hasher()])
    }
}

impl Gatherer {
    /// Adds one part, of less than 256 bytes.
    pub fn part(mut self, part: Part, bytes: &[u8]) -> Gatherer {
        self.add(part, bytes);
        self
    }

    /// The same.
    pub fn add(&mut self, part: Part, bytes: &[u8]) {
        for hasher in &mut self.0 {
            hasher.write(&[part as u8, bytes.len() as u8]);
            hasher.write(bytes);
        }
    }

    /// All of them.
    pub fn values(&self) -> Values {
        Values([self.0[0].finish(), self.0[1].finish()])
    }
}
