//! The checks in a segment's foot: what proves that each of its pages, and the whole, is as it was written.
//!
//! ```text
//! page 0 ──XXH3-128──► 16 bytes ─┐ lowest 4: the page's checksum     offsets in the foot's page
//! page 1 ──XXH3-128──► 16 bytes ─┤                                    0     fields
//!  ...                           ├──XXH3-128──► the segment's hash    512   flush record 0, 64 bytes
//! the foot's own page,           │                                    1024  flush record 1, 64 bytes
//! CHECKS_AT..4092 as zeros ──────┘                                    2028  hash, 16 bytes
//!                                                                     2044  512 checksums of 4 bytes
//! ```
//! Every byte is hashed once. Whoever reads single pages compares a checksum of 4 bytes; whoever reads all
//! compares 16. A segment without checks (hash and checksums all zero) was written before there were any, or
//! isn't closed yet.

use scope_packet::pcapng::le32;
use scope_packet::segment::{FOOT_BYTES, Foot, SEGMENT_BYTES_MAX, is_segment_size};
use std::fmt;
use twox_hash::XxHash3_128;

/// Bytes that one checksum is of: a page.
pub const PAGE_BYTES: usize = 4096;
/// Where the checks begin in the foot's page: the hash, then the checksums.
pub const CHECKS_AT: usize = 2028;
/// Where the two flush records lie in the foot's page: each within one sector of 512 bytes, the two in
/// different ones, none in the first, which has the foot's fields.
pub const FLUSH_AT: [usize; 2] = [512, 1024];
/// Bytes of a flush record.
pub const FLUSH_BYTES: usize = 64;

const HASH_BYTES: usize = 16;
const CHECKSUMS_AT: usize = CHECKS_AT + HASH_BYTES;
/// Where they end: the closing length follows.
const CHECKS_END: usize = FOOT_BYTES - 4;
const PAGES_MAX: usize = SEGMENT_BYTES_MAX / PAGE_BYTES;

const _: () = assert!(FOOT_BYTES == PAGE_BYTES && CHECKSUMS_AT + 4 * PAGES_MAX == CHECKS_END);
const _: () = assert!(FLUSH_AT[0] >= Foot::FIELDS_BYTES && FLUSH_AT[1] + FLUSH_BYTES <= CHECKS_AT);
const _: () = assert!(FLUSH_AT[0] / 512 != FLUSH_AT[1] / 512 && FLUSH_AT[0] / 512 != 0);
const _: () = assert!(FLUSH_AT[0] % 512 + FLUSH_BYTES <= 512 && FLUSH_AT[1] % 512 + FLUSH_BYTES <= 512);

/// The hash of a segment, as it lies in the foot. Shown as hexadecimal digits in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; HASH_BYTES]);

impl Hash {
    /// What stands in the place of the hash of a segment without checks.
    pub const NONE: Hash = Hash([0; HASH_BYTES]);
}

impl fmt::Display for Hash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Why a segment isn't proven to be what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It has no checks: written before there were any, or not closed.
    #[error("the segment is without checksums")]
    NoChecks,
    /// These pages (4 KiB each, from 0) aren't what was written.
    #[error("damaged pages of 4 KiB, from 0: {}", Listed(.0))]
    Pages(Vec<u32>),
    /// So many bytes are no segment.
    #[error("{0} bytes are no segment")]
    Size(usize),
}

/// At most 8 numbers, and how many more there are.
struct Listed<'a>(&'a [u32]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().take(8).map(u32::to_string).collect();
        write!(out, "{}", shown.join(", "))?;
        match self.0.len().saturating_sub(shown.len()) {
            0 => Ok(()),
            more => write!(out, " and {more} more"),
        }
    }
}

/// Writes the checks of a segment into `foot_page`, its last [`PAGE_BYTES`], which is final but for them;
/// `body` is everything in front of that page. Returns the segment's hash.
pub fn seal(body: &[u8], foot_page: &mut [u8]) -> Hash {
    assert!(is_segment_size(body.len() + PAGE_BYTES) && foot_page.len() == PAGE_BYTES);
    foot_page[CHECKS_AT..CHECKS_END].fill(0);
    let pages = body.chunks_exact(PAGE_BYTES).chain([&*foot_page]);
    let mut hashes = Vec::with_capacity(PAGES_MAX * HASH_BYTES);
    for page in pages {
        hashes.extend(XxHash3_128::oneshot(page).to_le_bytes());
    }
    for (index, hash) in hashes.chunks_exact(HASH_BYTES).enumerate() {
        foot_page[CHECKSUMS_AT + 4 * index..][..4].copy_from_slice(&hash[..4]);
    }
    let hash = Hash(XxHash3_128::oneshot(&hashes).to_le_bytes());
    foot_page[CHECKS_AT..CHECKSUMS_AT].copy_from_slice(&hash.0);
    hash
}

/// Whether a segment is what was written: every byte of it, the checks included. Returns its hash.
pub fn verify(segment: &[u8]) -> Result<Hash, Damage> {
    if !is_segment_size(segment.len()) {
        return Err(Damage::Size(segment.len()));
    }
    let (body, foot_page) = segment.split_at(segment.len() - PAGE_BYTES);
    if !has_checks(foot_page) {
        return Err(Damage::NoChecks);
    }
    let mut again = [0; PAGE_BYTES];
    again.copy_from_slice(foot_page);
    let hash = seal(body, &mut again);
    if again == *foot_page {
        return Ok(hash);
    }
    let foot_index = (body.len() / PAGE_BYTES) as u32;
    let checksum = |page: &[u8], index: u32| le32(page, CHECKSUMS_AT + 4 * index as usize);
    let differs = |index: &u32| checksum(&again, *index) != checksum(foot_page, *index);
    // Where the hash holds, or all checksums do, only the checks themselves can be damaged.
    let damaged: Vec<u32> = (0..=foot_index).filter(differs).collect();
    let in_checks = damaged.is_empty() || hash == stored_hash(foot_page);
    Err(Damage::Pages(if in_checks { vec![foot_index] } else { damaged }))
}

/// Whether page `index` of a segment, not the foot's own, is the one that `foot_page` has a checksum of; of
/// the foot's own see [`foot_is_whole`].
pub fn page_is_whole(page: &[u8], index: usize, foot_page: &[u8]) -> bool {
    index < PAGES_MAX
        && page.len() == PAGE_BYTES
        && foot_page.len() == PAGE_BYTES
        && XxHash3_128::oneshot(page) as u32 == le32(foot_page, CHECKSUMS_AT + 4 * index)
}

/// Whether the foot's page of a closed segment of `segment_bytes` is as it was written: its fields and what
/// stands in its reserve, not the checks themselves.
pub fn foot_is_whole(foot_page: &[u8], segment_bytes: usize) -> bool {
    if foot_page.len() != PAGE_BYTES || !is_segment_size(segment_bytes) || !has_checks(foot_page) {
        return false;
    }
    let mut cleared = [0; PAGE_BYTES];
    cleared.copy_from_slice(foot_page);
    cleared[CHECKS_AT..CHECKS_END].fill(0);
    page_is_whole(&cleared, segment_bytes / PAGE_BYTES - 1, foot_page)
}

/// Whether a foot's page has checks at all.
pub fn has_checks(foot_page: &[u8]) -> bool {
    foot_page.get(CHECKS_AT..CHECKS_END).is_some_and(|checks| checks.iter().any(|&byte| byte != 0))
}

/// The hash that stands in a foot's page ([`PAGE_BYTES`]); [`Hash::NONE`] where there are no checks.
pub fn stored_hash(foot_page: &[u8]) -> Hash {
    let mut hash = Hash::NONE;
    hash.0.copy_from_slice(&foot_page[CHECKS_AT..CHECKSUMS_AT]);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_packet::segment::SEGMENT_BYTES_MIN;

    fn sealed(segment_bytes: usize) -> (Vec<u8>, Hash) {
        let mut segment: Vec<u8> =
            (0..segment_bytes as u32).map(|at| (at.wrapping_mul(2654435761) >> 24) as u8).collect();
        let (body, foot_page) = segment.split_at_mut(segment_bytes - PAGE_BYTES);
        let hash = seal(body, foot_page);
        (segment, hash)
    }

    #[test]
    fn a_sealed_segment_holds_and_so_does_each_of_its_pages() {
        for segment_bytes in [SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX] {
            let (segment, hash) = sealed(segment_bytes);
            assert_eq!(verify(&segment), Ok(hash));
            let (body, foot_page) = segment.split_at(segment_bytes - PAGE_BYTES);
            assert_eq!((stored_hash(foot_page), has_checks(foot_page)), (hash, true));
            assert!(foot_is_whole(foot_page, segment_bytes));
            for (index, page) in body.chunks_exact(PAGE_BYTES).enumerate() {
                assert!(page_is_whole(page, index, foot_page) && !page_is_whole(page, index + 1, foot_page));
            }
        }
        assert_eq!(Hash([0xab; 16]).to_string(), "ab".repeat(16));
    }

    #[test]
    fn a_changed_byte_is_found_with_its_page() {
        let segment_bytes = SEGMENT_BYTES_MIN;
        let (segment, _) = sealed(segment_bytes);
        let foot_from = segment_bytes - PAGE_BYTES;
        let everywhere = (0..foot_from).step_by(997).chain(foot_from..segment_bytes);
        for at in everywhere {
            let mut changed = segment.clone();
            changed[at] ^= 0x10;
            let page = (at / PAGE_BYTES) as u32;
            assert_eq!(verify(&changed), Err(Damage::Pages(vec![page])), "byte {at}");
            let (body, foot_page) = changed.split_at(foot_from);
            let in_checks = (foot_from + CHECKS_AT..segment_bytes - 4).contains(&at);
            assert!(in_checks || at < foot_from || !foot_is_whole(foot_page, segment_bytes), "byte {at}");
            assert!(
                at >= foot_from
                    || !page_is_whole(
                        &body[page as usize * PAGE_BYTES..][..PAGE_BYTES],
                        page as usize,
                        foot_page
                    )
            );
        }
        let mut changed = segment.clone();
        changed[5] ^= 1;
        changed[3 * PAGE_BYTES] ^= 1;
        assert_eq!(verify(&changed), Err(Damage::Pages(vec![0, 3])));
    }

    #[test]
    fn flush_records_are_part_of_what_is_hashed() {
        let (mut segment, hash) = sealed(SEGMENT_BYTES_MIN);
        let (body, foot_page) = segment.split_at_mut(SEGMENT_BYTES_MIN - PAGE_BYTES);
        for at in FLUSH_AT {
            foot_page[at + FLUSH_BYTES - 1] ^= 1;
            assert_ne!(seal(body, foot_page), hash);
            foot_page[at + FLUSH_BYTES - 1] ^= 1;
        }
        assert_eq!(seal(body, foot_page), hash, "sealing again gives the same");
    }

    #[test]
    fn what_has_no_checks_and_what_is_no_segment_is_said_so() {
        assert_eq!(verify(&vec![0; SEGMENT_BYTES_MIN]), Err(Damage::NoChecks));
        assert_eq!(verify(&[0; 100]), Err(Damage::Size(100)));
        let (segment, _) = sealed(SEGMENT_BYTES_MIN);
        assert!(!foot_is_whole(&segment[..PAGE_BYTES - 1], SEGMENT_BYTES_MIN));
        assert!(!page_is_whole(
            &segment[..PAGE_BYTES],
            usize::MAX,
            &segment[SEGMENT_BYTES_MIN - PAGE_BYTES..]
        ));
        let many = Damage::Pages((0..12).collect());
        assert_eq!(many.to_string(), "damaged pages of 4 KiB, from 0: 0, 1, 2, 3, 4, 5, 6, 7 and 4 more");
    }
}
