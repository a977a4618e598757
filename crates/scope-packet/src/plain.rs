//! Key entries of plain packets by vectors: Ethernet, untagged, IPv4 without options, no fragment, with
//! ports.
//!
//! ```text
//! byte     12                                23      26                34          38
//!          | 08 00 45 .. .. .. .. .. f f .. protocol | source | destination | ports |
//!            must be so, but for two bits of f         the key's bytes, ports turned
//! ```
//! One comparison of 16 bytes says whether a packet has this shape, one shuffle makes its key entry, one
//! store leaves it. (Measured beside it: eight packets at a time, their words gathered in arrays that the
//! compiler works on in vectors: twice the time, since each word is stored and loaded again.)

use crate::headers::{HAS_PORTS_TABLE, KIND_SHIFT, Kind, PLAIN4_BYTES};
use crate::key::KeyEntry;
use std::arch::x86_64::*;

/// Whether this processor has what [`keys`] needs.
#[inline]
pub fn is_supported() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("bmi1")
}

/// Makes the key entries of those Ethernet packets among `which`, a bit each, that are plain, into their
/// places of `keys`; returns the bits of the others.
#[target_feature(enable = "avx2,bmi1")]
pub fn keys<'a>(mut which: u64, data: impl Fn(usize) -> &'a [u8], keys: &mut [KeyEntry; 64]) -> u64 {
    // From byte 12 on: EtherType, version and header length; the flag for more fragments and the offset.
    let start = _mm_setr_epi8(8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    let start_mask = _mm_setr_epi8(-1, -1, -1, 0, 0, 0, 0, 0, 0x3f, -1, 0, 0, 0, 0, 0, 0);
    // From byte 22 on: addresses, ports, protocol; 0 where there is no byte.
    let places = _mm_setr_epi8(4, 5, 6, 7, 8, 9, 10, 11, 13, 12, 15, 14, 1, -1, -1, -1);
    let kind = _mm_setr_epi32(0, 0, 0, (Kind::Ipv4 as i32) << KIND_SHIFT);
    let mut odd = 0;
    while which != 0 {
        let at = which.trailing_zeros() as usize;
        which &= which - 1;
        let key = data(at).first_chunk::<PLAIN4_BYTES>().and_then(|packet| {
            // SAFETY: 16 bytes from byte 12 and from byte 22 on lie among the packet's first 38.
            let (head, end) = unsafe {
                (_mm_loadu_si128(packet[12..].as_ptr().cast()), _mm_loadu_si128(packet[22..].as_ptr().cast()))
            };
            let differs = _mm_xor_si128(_mm_and_si128(head, start_mask), start);
            let is_plain = _mm_testz_si128(differs, differs) != 0 && HAS_PORTS_TABLE[packet[23] as usize];
            is_plain.then(|| _mm_or_si128(_mm_shuffle_epi8(end, places), kind))
        });
        match key {
            // SAFETY: an entry has 16 bytes, and any bytes are one.
            Some(key) => unsafe { _mm_storeu_si128((&raw mut keys[at]).cast(), key) },
            None => odd |= 1 << at,
        }
    }
    odd
}
