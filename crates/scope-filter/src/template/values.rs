//! What a template takes from a packet, as a value that can be compared: hits with equal values fill it with
//! the same text.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// Keys of the two hashes, chosen anew by each process: nobody outside can make two packets' values equal.
static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);

/// Parts of up to so many bytes together are kept as they are.
const KEPT_BYTES_MAX: usize = 15;

/// The values that a template took from one packet, in 128 bits. No text is made for them.
///
/// ```text
/// parts of up to 15 bytes, such as an IPv4 address:   the parts, zeros, last byte: their length, never 0
/// longer ones:                                        120 bits of two keyed hashes, last byte: 0
/// ```
/// So values that are kept are never those that were hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Values([u64; 2]);

impl Values {
    /// Of no packet: a text that is the same for all.
    pub fn everything() -> Values {
        Gatherer::default().part(Part::Everything, &[]).values()
    }

    /// Of one IPv4 address in a packet without labels.
    #[inline]
    pub(super) fn of_ipv4([a, b, c, d]: [u8; 4]) -> Values {
        let low = [Part::Labels as u8, 1, 0, Part::Bytes as u8, 4, a, b, c];
        let high = [d, 0, 0, 0, 0, 0, 0, 9];
        Values([u64::from_le_bytes(low), u64::from_le_bytes(high)])
    }

    /// As two words, equal where the values are. They are no hash: some are what the packet says.
    #[inline]
    pub fn words(self) -> [u64; 2] {
        self.0
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
#[derive(Default)]
pub(super) struct Gatherer {
    /// All parts, from the lowest byte on.
    kept: u128,
    len: usize,
    /// The same, once they are too long to be kept.
    hashed: Option<[std::hash::DefaultHasher; 2]>,
}

impl Gatherer {
    /// Adds one part, of less than 256 bytes.
    pub fn part(mut self, part: Part, bytes: &[u8]) -> Gatherer {
        self.add(part, bytes);
        self
    }

    /// The same.
    #[inline(always)]
    pub fn add(&mut self, part: Part, bytes: &[u8]) {
        let head = [part as u8, bytes.len() as u8];
        let end = self.len + head.len() + bytes.len();
        if end > KEPT_BYTES_MAX || self.hashed.is_some() {
            return self.hash(head, bytes);
        }
        // In registers where the length is known: bytes that were just stored can't be loaded as one number at once.
        let mut all = [0; 16];
        all[..head.len()].copy_from_slice(&head);
        all[head.len()..head.len() + bytes.len()].copy_from_slice(bytes);
        self.kept |= u128::from_le_bytes(all) << (8 * self.len);
        self.len = end;
    }

    #[inline(never)]
    fn hash(&mut self, head: [u8; 2], bytes: &[u8]) {
        let (kept, len) = (self.kept.to_le_bytes(), self.len);
        let hashers = self.hashed.get_or_insert_with(|| {
            let [first, second] = &*KEYS;
            let mut hashers = [first.build_hasher(), second.build_hasher()];
            for hasher in &mut hashers {
                hasher.write(&kept[..len]);
            }
            hashers
        });
        for hasher in hashers {
            hasher.write(&head);
            hasher.write(bytes);
        }
    }

    /// All of them.
    #[inline]
    pub fn values(&self) -> Values {
        if let Some([first, second]) = &self.hashed {
            return Values([first.finish(), second.finish() & !LAST_BYTE]);
        }
        let high = (self.kept >> 64) as u64 | (self.len as u64) << (8 * (KEPT_BYTES_MAX - 8));
        Values([self.kept as u64, high])
    }
}

/// Of the second word.
const LAST_BYTE: u64 = 0xff << 56;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_equal_where_all_parts_are_whether_they_are_kept_or_hashed() {
        let gather = |parts: &[&[u8]]| {
            let mut gatherer = Gatherer::default();
            for part in parts {
                gatherer.add(Part::Bytes, part);
            }
            gatherer.values()
        };
        let (long, six): (&[u8], &[u8]) = (&[7; 16], &[1, 2, 3, 4, 5, 6]);
        let all: [&[&[u8]]; 12] = [
            &[&[]],
            &[&[0]],
            &[&[0, 0]],
            &[&[0], &[0]],
            &[&[], &[]],
            &[&[1, 2, 3]],
            &[&[1], &[2, 3]],
            &[six, six],
            &[six, six, &[]],
            &[long],
            &[long, &[]],
            &[&[], long],
        ];
        for (index, one) in all.iter().enumerate() {
            for (other, parts) in all.iter().enumerate() {
                assert_eq!(gather(one) == gather(parts), index == other, "{one:?} {parts:?}");
            }
            let is_hashed = gather(one).words()[1] & LAST_BYTE == 0;
            let bytes: usize = one.iter().map(|part| part.len() + 2).sum();
            assert_eq!(is_hashed, bytes > KEPT_BYTES_MAX, "{one:?}");
        }
        let address = Gatherer::default().part(Part::Labels, &[0]).part(Part::Bytes, &[10, 1, 2, 3]);
        assert_eq!(address.values(), Values::of_ipv4([10, 1, 2, 3]));
        let text = "x".repeat(300);
        assert_eq!(Values::of_text(&text), Values::of_text(&text));
        assert_ne!(Values::of_text(""), Values::everything());
    }
}
