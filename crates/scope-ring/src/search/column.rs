//! A stretch of the key column, lent in place, and its scan by key.
//!
//! ```text
//! memory   | entry to-1 | ... | entry from+1 | entry from |        64 entries are one step: 1 KiB
//! step     for each pattern: hit[n] |= entry[n] & mask == value    16 bytes an entry, whole vectors of entries at a time
//!          no hit at all: next step; else one bit for each entry, and out they go in order of packets
//! ```
//! The step is plain Rust; it is compiled for AVX-512, AVX2 and the baseline, and the widest that the processor has is chosen.

use crate::pin::Pinned;
use crate::search::{KeyTest, Pattern};
use scope_packet::key::{KEY_ENTRY_BYTES, KeyEntry};

/// Entries of one step.
const STEP: usize = 64;

/// Entries of the key column, lent.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Last entry first.
    bytes: &'a [u8],
}

impl<'a> Column<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Column<'a> {
        Column { bytes }
    }

    /// Number of entries.
    pub fn len(&self) -> u32 {
        (self.bytes.len() / KEY_ENTRY_BYTES) as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// As it lies in memory, the last entry first.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Entry `index` of the stretch.
    #[inline]
    pub fn get(&self, index: u32) -> KeyEntry {
        let end = self.bytes.len() - index as usize * KEY_ENTRY_BYTES;
        KeyEntry::from_bytes(self.bytes[end - KEY_ENTRY_BYTES..end].try_into().expect("16 bytes"))
    }

    /// All entries, first packet first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = KeyEntry> + ExactSizeIterator + use<'a> {
        let entries = self.bytes.rchunks_exact(KEY_ENTRY_BYTES);
        entries.map(|bytes| KeyEntry::from_bytes(bytes.try_into().expect("16 bytes")))
    }

    /// Indices within the stretch of the entries that pass, ascending.
    pub fn matches(&self, test: &KeyTest) -> Matches<'a> {
        Matches { rest: self.bytes, patterns: test.with_partial(), step: step_of_processor(), hits: 0, base: 0, next: 0 }
    }
}

impl Pinned {
    /// Indices within the segment of the packets among `from..to` whose entries pass, ascending.
    pub fn matches(&self, test: &KeyTest, from: u32, to: u32) -> impl Iterator<Item = u32> + '_ {
        self.column(from, to).matches(test).map(move |index| from + index)
    }
}

/// Indices of the entries that pass.
pub struct Matches<'a> {
    rest: &'a [u8],
    patterns: Vec<Pattern>,
    step: Step,
    /// One bit for each entry of the current step that passed and isn't out yet, the first packet's the highest.
    hits: u64,
    /// Index of the first entry of the current step, and of the next one.
    base: u32,
    next: u32,
}

impl Iterator for Matches<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        while self.hits == 0 {
            if self.rest.is_empty() {
                return None;
            }
            self.scan();
        }
        let first = self.hits.leading_zeros();
        self.hits &= !(1 << 63 >> first);
        Some(self.base + first)
    }
}

impl Matches<'_> {
    /// Goes on to the next step with a hit.
    fn scan(&mut self) {
        while self.hits == 0
            && let Some((rest, entries)) = self.rest.split_last_chunk::<{ STEP * KEY_ENTRY_BYTES }>()
        {
            self.rest = rest;
            self.base = self.next;
            self.next += STEP as u32;
            self.hits = (self.step)(entries, &self.patterns);
        }
        if self.hits == 0 && !self.rest.is_empty() {
            let entries = std::mem::take(&mut self.rest);
            self.base = self.next;
            // The stretch's end is its lowest bytes: shorter than a step, its first packet still gets the highest bit.
            for (at, bytes) in entries.rchunks_exact(KEY_ENTRY_BYTES).enumerate() {
                let entry = u128::from_le_bytes(bytes.try_into().expect("16 bytes"));
                let passes = self.patterns.iter().any(|pattern| entry & pattern.mask == pattern.value);
                self.hits |= u64::from(passes) << (63 - at);
            }
        }
    }
}

type Step = fn(&[u8; STEP * KEY_ENTRY_BYTES], &[Pattern]) -> u64;

/// Bit n: entry n in order of memory passes.
#[inline(always)]
fn step_any(entries: &[u8; STEP * KEY_ENTRY_BYTES], patterns: &[Pattern]) -> u64 {
    let mut hits = [0u64; STEP];
    for pattern in patterns {
        let (mask, value) = (halves(pattern.mask), halves(pattern.value));
        for (hit, entry) in hits.iter_mut().zip(entries.as_chunks::<KEY_ENTRY_BYTES>().0) {
            let entry = halves(u128::from_le_bytes(*entry));
            let differs = ((entry[0] ^ value[0]) & mask[0]) | ((entry[1] ^ value[1]) & mask[1]);
            *hit |= u64::from(differs == 0);
        }
    }
    if hits.iter().fold(0, |any, hit| any | hit) == 0 {
        return 0;
    }
    hits.iter().rev().fold(0, |bits, hit| bits << 1 | hit)
}

#[inline(always)]
fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn step_avx512(entries: &[u8; STEP * KEY_ENTRY_BYTES], patterns: &[Pattern]) -> u64 {
    step_any(entries, patterns)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn step_avx2(entries: &[u8; STEP * KEY_ENTRY_BYTES], patterns: &[Pattern]) -> u64 {
    step_any(entries, patterns)
}

/// The widest form that this processor has.
fn step_of_processor() -> Step {
    #[cfg(target_arch = "x86_64")]
    {
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx512 {
            // SAFETY: the processor has what the function was compiled for, by the line above.
            return |entries, patterns| unsafe { step_avx512(entries, patterns) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return |entries, patterns| unsafe { step_avx2(entries, patterns) };
        }
    }
    |entries, patterns| step_any(entries, patterns)
}
