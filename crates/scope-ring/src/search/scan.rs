//! The scan of key entries: all patterns against each, one bit for each entry that passes.
//!
//! ```text
//! two vectors of entries   | e0.low e0.high e1.low e1.high ... | e4.low e4.high ... |
//! taken apart              | e0.low e1.low ... e7.low |   | e0.high e1.high ... e7.high |
//! for each pattern         ((low ^ value.low) & mask.low) | ((high ^ value.high) & mask.high) == 0     one bit each
//! ```
//! Why not plain Rust alone: the compiler makes vectors of the comparison, but gathers them from single
//! words; the scan then takes ten times as long as summing the same bytes.

use super::Pattern;
use scope_packet::key::KEY_ENTRY_BYTES;

/// Entries of one word of bits.
const STEP: usize = 64;

type Entry = [u8; KEY_ENTRY_BYTES];

/// Bit n % 64 of word n / 64: entry n passes one of the patterns. By the widest form that this processor has.
pub(super) fn entries(entries: &[Entry], patterns: &[Pattern]) -> Vec<u64> {
    let mut bits = Vec::with_capacity(entries.len().div_ceil(STEP));
    let (steps, rest) = entries.as_chunks::<STEP>();
    scan_steps(steps, patterns, &mut bits);
    if !rest.is_empty() {
        bits.push(plain(rest, patterns));
    }
    bits
}

fn scan_steps(steps: &[[Entry; STEP]], patterns: &[Pattern], bits: &mut Vec<u64>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has what the function was compiled for, by the line above.
            return unsafe { wide::avx512(steps, patterns, bits) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { wide::avx2(steps, patterns, bits) };
        }
    }
    bits.extend(steps.iter().map(|step| plain(step, patterns)));
}

/// For any processor, at most 64 entries.
fn plain(entries: &[Entry], patterns: &[Pattern]) -> u64 {
    let passes = |entry: u128| patterns.iter().any(|pattern| entry & pattern.mask == pattern.value);
    entries.iter().rev().fold(0, |bits, entry| bits << 1 | u64::from(passes(u128::from_le_bytes(*entry))))
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{Entry, Pattern, STEP};
    use std::arch::x86_64::*;

    /// Low and high half of a number, as vectors take them.
    fn halves(number: u128) -> (i64, i64) {
        (number as i64, (number >> 64) as i64)
    }

    /// Eight entries at a time.
    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512(steps: &[[Entry; STEP]], patterns: &[Pattern], bits: &mut Vec<u64>) {
        bits.extend(steps.iter().map(|step| avx512_step(step, patterns)));
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn avx512_step(entries: &[Entry; STEP], patterns: &[Pattern]) -> u64 {
        let (even, odd) =
            (_mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15));
        let mut bits = 0;
        for (n, eight) in entries.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: both loads of 64 bytes lie in the 128 of `eight`; they need no alignment.
            let (a, b) = unsafe {
                (_mm512_loadu_si512(eight.as_ptr().cast()), _mm512_loadu_si512(eight.as_ptr().add(4).cast()))
            };
            let (low, high) = (_mm512_permutex2var_epi64(a, even, b), _mm512_permutex2var_epi64(a, odd, b));
            let mut hits = 0;
            for pattern in patterns {
                let (value, mask) = (halves(pattern.value), halves(pattern.mask));
                let differs = |half, value, mask| {
                    _mm512_and_si512(
                        _mm512_xor_si512(half, _mm512_set1_epi64(value)),
                        _mm512_set1_epi64(mask),
                    )
                };
                let differs = _mm512_or_si512(differs(low, value.0, mask.0), differs(high, value.1, mask.1));
                hits |= _mm512_testn_epi64_mask(differs, differs);
            }
            bits |= (hits as u64) << (8 * n);
        }
        bits
    }

    /// Four entries at a time.
    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(steps: &[[Entry; STEP]], patterns: &[Pattern], bits: &mut Vec<u64>) {
        bits.extend(steps.iter().map(|step| avx2_step(step, patterns)));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn avx2_step(entries: &[Entry; STEP], patterns: &[Pattern]) -> u64 {
        let mut bits = 0;
        for (n, four) in entries.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: both loads of 32 bytes lie in the 64 of `four`; they need no alignment.
            let (a, b) = unsafe {
                (_mm256_loadu_si256(four.as_ptr().cast()), _mm256_loadu_si256(four.as_ptr().add(2).cast()))
            };
            let (low, high) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)); // entries 0, 2, 1, 3
            let mut hits = _mm256_setzero_si256();
            for pattern in patterns {
                let (value, mask) = (halves(pattern.value), halves(pattern.mask));
                let differs = |half, value, mask| {
                    _mm256_and_si256(
                        _mm256_xor_si256(half, _mm256_set1_epi64x(value)),
                        _mm256_set1_epi64x(mask),
                    )
                };
                let differs = _mm256_or_si256(differs(low, value.0, mask.0), differs(high, value.1, mask.1));
                hits = _mm256_or_si256(hits, _mm256_cmpeq_epi64(differs, _mm256_setzero_si256()));
            }
            let in_order = _mm256_permute4x64_epi64::<0b11_01_10_00>(hits);
            bits |= (_mm256_movemask_pd(_mm256_castsi256_pd(in_order)) as u64) << (4 * n);
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_forms_say_the_same(
            bytes in proptest::collection::vec(0u8..3, KEY_ENTRY_BYTES..5000),
            patterns in proptest::collection::vec((any::<u128>(), any::<proptest::sample::Index>(), 0u32..120), 0..5),
        ) {
            let all = bytes.as_chunks::<KEY_ENTRY_BYTES>().0;
            // Few bits tested, and the values of an entry that is there, so that some pass.
            let of_entry = |index: proptest::sample::Index| u128::from_le_bytes(*index.get(all));
            let pattern = |(bits, index, shift)| {
                let mask = bits & 0xffu128 << shift;
                Pattern { mask, value: of_entry(index) & mask }
            };
            let patterns: Vec<Pattern> = patterns.into_iter().map(pattern).collect();
            let expected: Vec<u64> = all.chunks(STEP).map(|step| plain(step, &patterns)).collect();
            prop_assert_eq!(&entries(all, &patterns), &expected);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                let mut bits = Vec::new();
                // SAFETY: the processor has it, by the line above.
                unsafe { wide::avx2(all.as_chunks().0, &patterns, &mut bits) };
                prop_assert_eq!(&bits[..], &expected[..all.len() / STEP]);
            }
        }
    }
}
