//! Sets of numbers as bits: exact ones, and Bloom filters of keys.
//!
//! ```text
//! key ─► two halves of a hash, first and step ─► places first, first + step, first + 2 step, ... scaled to the bits' length
//! ```

const MIX_FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
const MIX_SECOND: u64 = 0xbf58_476d_1ce4_e5b9;

/// Puts a number in.
#[inline]
pub(crate) fn set(bits: &mut [u8], number: usize) {
    bits[number / 8] |= 1 << (number % 8);
}

/// Whether a number is in it.
#[inline]
pub(crate) fn has(bits: &[u8], number: usize) -> bool {
    bits[number / 8] & 1 << (number % 8) != 0
}

/// A key with its bits well mixed.
#[inline]
pub(crate) fn mixed(key: u64) -> u64 {
    let once = key.wrapping_mul(MIX_FIRST);
    (once ^ once >> 32).wrapping_mul(MIX_SECOND)
}

/// Where a key has its `count` bits, among those of `len` bytes.
#[inline]
pub(crate) fn places(len: usize, key: u64, count: u32) -> impl Iterator<Item = usize> {
    let mixed = mixed(key);
    let (first, step) = ((mixed >> 32) as u32, mixed as u32 | 1);
    let place = move |number: u32| u64::from(first.wrapping_add(step.wrapping_mul(number)));
    (0..count).map(move |number| ((place(number) * (len as u64 * 8)) >> 32) as usize)
}

/// Puts a key into a Bloom filter, with `count` bits.
#[inline]
pub(crate) fn add_key(bits: &mut [u8], key: u64, count: u32) {
    for place in places(bits.len(), key, count) {
        set(bits, place);
    }
}
