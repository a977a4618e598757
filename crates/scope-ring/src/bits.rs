//! Sets of numbers as bits: exact ones, and Bloom filters of keys.
//!
//! ```text
//! key ─► two halves of a hash, first and step ─► places first, first + step, first + 2 step, ... scaled to the bits' length
//! ```

/// Most numbers that are looked up where a mask covers a number in part.
const TRIED_MAX: u32 = 16;
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
fn places(len: usize, key: u64, count: u32) -> impl Iterator<Item = usize> {
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

/// Whether a key may be in a Bloom filter.
#[inline]
pub(crate) fn has_key(bits: &[u8], key: u64, count: u32) -> bool {
    places(bits.len(), key, count).all(|place| has(bits, place))
}

/// Whether `may` holds for one of the numbers of `width` bits that are `value` under `mask`; true where these are
/// more than are tried.
pub(crate) fn one_of(mask: u32, value: u32, width: u32, may: impl Fn(u32) -> bool) -> bool {
    let free = !mask & ((1 << width) - 1);
    if 1 << free.count_ones() > TRIED_MAX {
        return true;
    }
    let mut part = 0_u32; // each subset of the free bits
    loop {
        if may(value | part) {
            return true;
        }
        part = part.wrapping_sub(free) & free;
        if part == 0 {
            return false;
        }
    }
}
