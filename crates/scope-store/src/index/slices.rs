//! The summaries of a block bit by bit: what all of them have of one bit lies together, so that a search for a host reads
//! a few pages instead of all summaries.
//!
//! ```text
//!  summary 0   1 0 1 ...                    stream   | bit 0 of all | bit 1 of all | bit 2 of all | ...
//!  summary 1   0 0 1 ...    ─ transposed ►  pages    | 4080 bytes of it, tail | 4080 bytes, tail | ...
//! ```
//! With `e` summaries bit `b` of summary `s` is bit `b * e + s` of the stream. Each page has a check of its own.

use super::layout::{INDEX_ALIGN, Layout, SLICED_BYTES, TAIL_BYTES};
use scope_packet::pcapng::le32;
use scope_ring::{BitSlices, SummarySet};
use std::collections::BTreeMap;
use twox_hash::XxHash3_64;

/// Bits that are transposed at once, of as many summaries.
const SIDE: usize = 64;

/// Writes the tail of what stands in `page`, which is all in front of the tail and the tail itself.
pub(super) fn seal(page: &mut [u8], number: usize, total: usize) {
    let tail_at = page.len() - TAIL_BYTES;
    page[tail_at..tail_at + 8].fill(0);
    page[tail_at + 8..tail_at + 12].copy_from_slice(&(number as u32).to_le_bytes());
    page[tail_at + 12..].copy_from_slice(&(total as u32).to_le_bytes());
    let check = XxHash3_64::oneshot(page);
    page[tail_at..tail_at + 8].copy_from_slice(&check.to_le_bytes());
}

/// Whether what stands in `page` is what was sealed, with this number in a block of this length. Clears its check.
pub(super) fn is_sealed(page: &mut [u8], number: usize, total: usize) -> bool {
    let tail_at = page.len() - TAIL_BYTES;
    let says = [le32(page, tail_at + 8) as usize, le32(page, tail_at + 12) as usize] == [number, total];
    let check: [u8; 8] = std::array::from_fn(|at| page[tail_at + at]);
    page[tail_at..tail_at + 8].fill(0);
    says && XxHash3_64::oneshot(page).to_le_bytes() == check
}

/// Appends the pages of these summaries, which are all of one length, a multiple of 8.
pub(super) fn write<'a>(out: &mut Vec<u8>, layout: Layout, summary: impl Fn(usize) -> &'a [u8]) {
    let Layout { entries, summary_bytes, .. } = layout;
    let mut stream = vec![0_u64; (entries * summary_bytes).div_ceil(8) + 2];
    for word in 0..summary_bytes / 8 {
        for first in (0..entries).step_by(SIDE) {
            let mut square = [0; SIDE];
            for (row, number) in square.iter_mut().zip(first..entries) {
                *row = le64(&summary(number)[word * 8..]);
            }
            transpose(&mut square);
            for (bit, row) in square.into_iter().enumerate() {
                let at = (word * SIDE + bit) * entries + first;
                stream[at / 64] |= row << (at % 64);
                stream[at / 64 + 1] |= (row >> 1) >> (63 - at % 64);
            }
        }
    }
    let total = layout.block_bytes();
    let stream = &stream[..(entries * summary_bytes).div_ceil(8)];
    for (number, part) in (1..).zip(stream.chunks(SLICED_BYTES / 8)) {
        let from = out.len();
        for word in part {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.resize(from + INDEX_ALIGN, 0);
        seal(&mut out[from..], number, total);
    }
}

/// The summaries of a block out of its pages, one behind the other; `None`: a page isn't what was written.
pub(super) fn read_all(pages: &mut [u8], layout: Layout) -> Option<Vec<u8>> {
    let Layout { entries, summary_bytes, .. } = layout;
    let mut stream = Vec::with_capacity(entries * summary_bytes + 16);
    for (number, page) in (1..).zip(pages.chunks_exact_mut(INDEX_ALIGN)) {
        is_sealed(page, number, layout.block_bytes()).then_some(())?;
        stream.extend(&page[..SLICED_BYTES]);
    }
    stream.resize((entries * summary_bytes).next_multiple_of(8) + 16, 0);
    let mut summaries = vec![0; entries * summary_bytes];
    for word in 0..summary_bytes / 8 {
        for first in (0..entries).step_by(SIDE) {
            let bits =
                |bit| bits_at(&stream, (word * SIDE + bit) * entries + first, SIDE.min(entries - first));
            let mut square = std::array::from_fn(bits);
            transpose(&mut square);
            for (row, number) in square.into_iter().zip(first..entries) {
                summaries[number * summary_bytes + word * 8..][..8].copy_from_slice(&row.to_le_bytes());
            }
        }
    }
    Some(summaries)
}

/// Bit `i` of word `k` becomes bit `k` of word `i`, by halves (a well-known way, as in H. S. Warren's "Hacker's Delight").
fn transpose(square: &mut [u64; SIDE]) {
    let (mut half, mut mask) = (SIDE / 2, u64::from(u32::MAX));
    while half > 0 {
        for row in (0..SIDE).filter(|row| row & half == 0) {
            let swapped = (square[row] >> half ^ square[row + half]) & mask;
            square[row + half] ^= swapped;
            square[row] ^= swapped << half;
        }
        half /= 2;
        mask ^= mask << half;
    }
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from(le32(bytes, 0)) | u64::from(le32(bytes, 4)) << 32
}

/// At most 64 bits from a bit on, of bytes with 9 more behind.
fn bits_at(bytes: &[u8], bit: usize, count: usize) -> u64 {
    let (at, shift) = (bit / 8, bit % 8);
    let all = le64(&bytes[at..]) >> shift | (u64::from(bytes[at + 8]) << 1) << (63 - shift);
    all & u64::MAX >> (64 - count)
}

/// Some of the segments of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    words: Vec<u64>,
    count: usize,
}

impl Segments {
    fn all(count: usize) -> Segments {
        let whole = std::iter::repeat_n(u64::MAX, count / 64);
        let rest = (!count.is_multiple_of(64)).then(|| u64::MAX >> (64 - count % 64));
        Segments { words: whole.chain(rest).collect(), count }
    }

    pub fn contains(&self, segment: usize) -> bool {
        self.words[segment / 64] >> (segment % 64) & 1 != 0
    }
}

impl SummarySet for Segments {
    fn intersect(&mut self, other: &Segments) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    fn unite(&mut self, other: &Segments) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    fn is_full(&self) -> bool {
        *self == Segments::all(self.count)
    }
}

/// Why slices can't be had.
pub(super) enum SliceError<E> {
    /// The file can't be read.
    Read(E),
    /// A page isn't what was written.
    Damaged,
}

/// The slices of a block, of which pages are read when they are needed, each once.
pub(super) struct Pages<'a, R> {
    layout: Layout,
    /// Where the block begins in the file.
    from: u64,
    read: &'a mut R,
    pages: BTreeMap<usize, Box<[u8; INDEX_ALIGN]>>,
}

impl<'a, R> Pages<'a, R> {
    /// Of the block that begins at `from` of what `read` reads.
    pub fn new(layout: Layout, from: u64, read: &'a mut R) -> Pages<'a, R> {
        Pages { layout, from, read, pages: BTreeMap::new() }
    }

    /// Bytes that were read.
    pub fn read_bytes(&self) -> u64 {
        (self.pages.len() * INDEX_ALIGN) as u64
    }

    /// The page with this number, from 0, checked.
    fn page<E>(&mut self, number: usize) -> Result<&[u8; INDEX_ALIGN], SliceError<E>>
    where
        R: FnMut(u64, &mut [u8]) -> Result<(), E>,
    {
        use std::collections::btree_map::Entry;
        match self.pages.entry(number) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unread) => {
                let mut page = Box::new([0; INDEX_ALIGN]);
                let at = self.from + (self.layout.facts_bytes() + number * INDEX_ALIGN) as u64;
                (self.read)(at, &mut page[..]).map_err(SliceError::Read)?;
                match is_sealed(&mut page[..], number + 1, self.layout.block_bytes()) {
                    true => Ok(unread.insert(page)),
                    false => Err(SliceError::Damaged),
                }
            }
        }
    }
}

impl<E, R: FnMut(u64, &mut [u8]) -> Result<(), E>> BitSlices for Pages<'_, R> {
    type Set = Segments;
    type Error = SliceError<E>;

    fn full(&self) -> Segments {
        Segments::all(self.layout.entries)
    }

    fn empty(&self) -> Segments {
        let mut none = self.full();
        none.words.fill(0);
        none
    }

    fn slice(&mut self, bit: usize) -> Result<Segments, SliceError<E>> {
        let count = self.layout.entries;
        let first = bit * count;
        let (mut at, end) = (first / 8, (first + count).div_ceil(8));
        let mut bytes = Vec::with_capacity(end - at + 9);
        while at < end {
            let (page, from) = (at / SLICED_BYTES, at % SLICED_BYTES);
            let part = SLICED_BYTES.min(from + end - at) - from;
            bytes.extend(&self.page(page)?[from..from + part]);
            at += part;
        }
        bytes.resize(bytes.len() + 9, 0);
        let words = (0..count).step_by(64).map(|at| bits_at(&bytes, first % 8 + at, (count - at).min(64)));
        Ok(Segments { words: words.collect(), count })
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Version;
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    proptest! {
        #[test]
        fn slices_are_the_bits_of_the_summaries_however_many_there_are(entries in 1usize..300, words in 1usize..40, seed: u64) {
            let layout = Layout { version: Version::Third, entries, summary_bytes: words * 8 };
            let byte = |at: usize| ((at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            let summaries: Vec<u8> = (0..entries * layout.summary_bytes).map(byte).collect();
            let summary = |number: usize| &summaries[number * layout.summary_bytes..][..layout.summary_bytes];
            let mut out = vec![0; layout.facts_bytes()];
            write(&mut out, layout, summary);
            prop_assert_eq!(out.len(), layout.block_bytes());
            let mut read = |at: u64, into: &mut [u8]| {
                into.copy_from_slice(&out[at as usize..][..into.len()]);
                Ok::<(), Infallible>(())
            };
            let mut pages = Pages::new(layout, 0, &mut read);
            for bit in 0..layout.summary_bytes * 8 {
                let Ok(slice) = pages.slice(bit) else { panic!("bit {bit}") };
                for number in 0..entries {
                    prop_assert_eq!(slice.contains(number), summary(number)[bit / 8] >> (bit % 8) & 1 != 0);
                }
            }
            prop_assert_eq!(pages.read_bytes() as usize, layout.pages() * INDEX_ALIGN);
            prop_assert_eq!(read_all(&mut out[layout.facts_bytes()..], layout), Some(summaries));
        }
    }

    #[test]
    fn a_page_in_the_place_of_another_one_is_noticed() {
        let layout = Layout { version: Version::Third, entries: 64, summary_bytes: 128 };
        let mut out = Vec::new();
        write(&mut out, layout, |_| &[7; 128]);
        assert_eq!(out.len(), 3 * INDEX_ALIGN);
        out.copy_within(0..INDEX_ALIGN, INDEX_ALIGN);
        assert_eq!(read_all(&mut out, layout), None);
    }
}
