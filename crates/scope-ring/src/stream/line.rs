//! One line to memory with the instructions that every x86-64 has: streamed, or by ordinary stores in part.

use super::LINE_BYTES;
use super::place::Place;
use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

/// Streams the line at `from` to `to`.
///
/// # Safety
/// 64 bytes may be read at `from`; 64 bytes at `to`, aligned to a line, may be written, and nobody reads them
/// before a store fence.
#[inline]
pub unsafe fn stream(to: *mut u8, from: *const u8) {
    for quarter in (0..LINE_BYTES).step_by(16) {
        // SAFETY: inside both lines by this function's contract; a quarter of an aligned line is aligned to
        // 16 bytes.
        unsafe {
            _mm_stream_si128(to.add(quarter).cast::<__m128i>(), _mm_loadu_si128(from.add(quarter).cast()))
        };
    }
}

/// Writes the whole block line at offset `line`: streamed, or by ordinary stores of what of it isn't
/// published.
///
/// # Safety
/// As [`stream`] for `from`; `line` is the offset of a line inside the open segment, all of it filled by
/// blocks.
#[inline]
pub unsafe fn write(place: &Place, line: usize, from: *const u8) {
    if line >= place.stream_from {
        // SAFETY: inside the segment and not published (`stream_from`); the fence comes with the commit or
        // the seal.
        unsafe { stream(place.address(line), from) };
    } else {
        // SAFETY: by this function's contract.
        unsafe { write_unpublished(place, line, LINE_BYTES, from) };
    }
}

/// Writes the first `len` bytes of the block line at offset `line` by ordinary stores, without those that are
/// published.
///
/// # Safety
/// `len` bytes may be read at `from`, and the line lies inside the open segment, up to `len` filled by
/// blocks.
pub unsafe fn write_unpublished(place: &Place, line: usize, len: usize, from: *const u8) {
    let skip = place.published.saturating_sub(line);
    // SAFETY: the part from `skip` to `len` isn't published and lies in the segment.
    unsafe { std::ptr::copy_nonoverlapping(from.add(skip), place.address(line + skip), len - skip) };
}
