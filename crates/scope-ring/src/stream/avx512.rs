//! Blocks to memory with AVX-512: the open line is one register's worth, and each block is rotated into it.
//!
//! ```text
//! block    | head 28 B, data 36 B | data 64 B | ... | data, zeros to 4, closing length |      pieces of 16 words (4 bytes)
//!
//! f = words in the open line
//! for each piece of n words:
//!     rotated = piece turned up by f words
//!     line    = open line in words 0..f, rotated in words f..16
//!     f + n >= 16?   write the line; the open line is `rotated`: its words 0..f are what the line had no room for
//!     else           the open line is `line`
//! ```
//! All pieces but the last have 16 words, so f is the same for the whole block. Words of the open line beyond its end are
//! never looked at. Data are loaded under a byte mask: nothing beyond the packet is read, and what is masked is zero, as the
//! padding must be. Head and closing length are put together in registers: a wide load of bytes that were just stored
//! narrowly would wait for these stores.

use super::LINE_BYTES;
use super::Stream;
use super::place::Place;
use scope_packet::pcapng::{PACKET_HEAD_BYTES, PacketHead, padded};
use std::arch::x86_64::*;

/// Words of a line.
const WORDS: usize = LINE_BYTES / 4;
/// Bytes of the packet in the block's first line's worth.
const FIRST_BYTES: usize = LINE_BYTES - PACKET_HEAD_BYTES;

/// The block line that isn't full yet; its bytes beyond the blocks' end mean nothing.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct OpenLine([u8; LINE_BYTES]);

impl Default for OpenLine {
    fn default() -> OpenLine {
        OpenLine([0; LINE_BYTES])
    }
}

impl OpenLine {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(&self) -> __m512i {
        // SAFETY: 64 bytes, aligned to 64.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(&mut self, line: __m512i) {
        // SAFETY: 64 bytes, aligned to 64.
        unsafe { _mm512_store_si512(self.0.as_mut_ptr().cast(), line) }
    }
}

/// Appends one block; see the module's text. False: there is no room.
///
/// The common case calls nothing, so that it saves no registers: no options, all of its lines streamed, entries not full.
///
/// # Safety
/// The processor has AVX-512 F and BW and BMI2. `head.captured_len` bytes may be read at `data`.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
pub unsafe fn append(stream: &mut Stream, head: &PacketHead, interface: u32, key: u128, data: *const u8) -> bool {
    let total = PACKET_HEAD_BYTES + padded(head.captured_len as usize) + 4;
    let place = &mut stream.place;
    let streams = place.open_line() >= place.stream_from;
    if head.has_options() || !streams || !place.has_room(total) || stream.entries.is_full(place) {
        // SAFETY: by this function's contract.
        return unsafe { append_uncommon(stream, head, interface, key, data) };
    }
    stream.entries.push(place, key);
    let mut writer = Writer::<true>::new(&stream.open_line, place);
    // SAFETY: the block has room.
    unsafe { writer.push_block(head_words(head, interface, total), data, head.captured_len as usize, total as u32) };
    writer.end(&mut stream.open_line);
    true
}

/// As [`append`], whatever the case.
///
/// # Safety
/// As [`append`].
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline(never)]
unsafe fn append_uncommon(stream: &mut Stream, head: &PacketHead, interface: u32, key: u128, data: *const u8) -> bool {
    let total = head.block_bytes();
    let place = &mut stream.place;
    if !place.has_room(total) {
        return false;
    }
    if stream.entries.is_full(place) {
        stream.entries.write_lines(place, true);
    }
    stream.entries.push(place, key);
    let (closing, closing_words) = head.closing(total);
    let [first, b, c, d, e, f, g] = closing.map(|word| word as i32);
    let mut writer = Writer::<false>::new(&stream.open_line, place);
    // SAFETY: the block has room. What stands behind the first closing word is a piece of its own.
    unsafe {
        writer.push_block(head_words(head, interface, total), data, head.captured_len as usize, first as u32);
        if closing_words > 1 {
            writer.turn = Turn::to(writer.at);
            let rest = _mm512_zextsi256_si512(_mm256_setr_epi32(b, c, d, e, f, g, 0, 0));
            writer.push(rest, closing_words - 1);
        }
    }
    writer.end(&mut stream.open_line);
    true
}

/// The block's first 28 bytes, zeros behind them.
#[inline]
#[target_feature(enable = "avx512f")]
fn head_words(head: &PacketHead, interface: u32, total: usize) -> __m512i {
    let [first, second, third, fourth] = head.opening(interface, total).map(|word| word as i64);
    _mm512_zextsi256_si512(_mm256_set_epi64x(fourth, third, second, first))
}

/// How pieces are turned so that their first word comes behind the open line's last.
struct Turn {
    /// Word of the piece that comes to each place; the processor takes it modulo 16.
    words: __m512i,
    /// The places of the line that are the piece's.
    places: __mmask16,
    /// Words in the open line.
    filled: usize,
}

impl Turn {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn to(at: usize) -> Turn {
        let filled = at / 4 % WORDS;
        let identity = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        Turn { words: _mm512_sub_epi32(identity, _mm512_set1_epi32(filled as i32)), places: !0 << filled, filled }
    }
}

/// The state of one append, all of it in registers. `STREAMS`: no line of it begins before `stream_from`.
struct Writer<'a, const STREAMS: bool> {
    line: __m512i,
    at: usize,
    turn: Turn,
    place: &'a mut Place,
}

impl<'a, const STREAMS: bool> Writer<'a, STREAMS> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(open: &OpenLine, place: &'a mut Place) -> Writer<'a, STREAMS> {
        Writer { line: open.load(), at: place.at, turn: Turn::to(place.at), place }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn end(self, open: &mut OpenLine) {
        self.place.at = self.at;
        self.place.packets += 1;
        open.store(self.line);
    }

    /// Adds head, data, and `closing` behind the padding.
    ///
    /// # Safety
    /// `len` bytes may be read at `data`, and the open segment has room for the block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi2")]
    unsafe fn push_block(&mut self, head: __m512i, data: *const u8, len: usize, closing: u32) {
        let before = data.wrapping_sub(PACKET_HEAD_BYTES).cast();
        // SAFETY: the block has room; only bytes of the packet are loaded.
        unsafe {
            if len < FIRST_BYTES {
                let mask = _bzhi_u64(!0, len as u32) << PACKET_HEAD_BYTES;
                let first = _mm512_or_si512(head, _mm512_maskz_loadu_epi8(mask, before));
                return self.push_last(first, PACKET_HEAD_BYTES + len, closing);
            }
            self.push_full(_mm512_or_si512(head, _mm512_maskz_loadu_epi8(!0 << PACKET_HEAD_BYTES, before)));
            let mut from = data.add(FIRST_BYTES);
            let mut rest = len - FIRST_BYTES;
            while rest >= LINE_BYTES {
                self.push_full(_mm512_loadu_si512(from.cast()));
                from = from.add(LINE_BYTES);
                rest -= LINE_BYTES;
            }
            let last = _mm512_maskz_loadu_epi8(_bzhi_u64(!0, rest as u32), from.cast());
            self.push_last(last, rest, closing);
        }
    }

    /// Adds the last piece: `len` bytes, below 64, zeros to 4, and the word `closing`.
    ///
    /// # Safety
    /// The open segment has room for it.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn push_last(&mut self, piece: __m512i, len: usize, closing: u32) {
        let words = len.div_ceil(4);
        // SAFETY: by this function's contract.
        unsafe {
            if words == WORDS {
                self.push_full(piece);
                self.push(_mm512_zextsi128_si512(_mm_cvtsi32_si128(closing as i32)), 1);
            } else {
                self.push(_mm512_mask_set1_epi32(piece, 1 << words, closing as i32), words + 1);
            }
        }
    }

    /// Adds a piece of 16 words.
    ///
    /// # Safety
    /// The open segment has room for it.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn push_full(&mut self, piece: __m512i) {
        let turned = _mm512_permutexvar_epi32(self.turn.words, piece);
        let line = _mm512_mask_blend_epi32(self.turn.places, self.line, turned);
        // SAFETY: with this piece the line is full.
        unsafe { self.write_line(line) };
        self.line = turned;
        self.at += LINE_BYTES;
    }

    /// Adds a piece of `words` words, 1 to 16.
    ///
    /// # Safety
    /// The open segment has room for it.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn push(&mut self, piece: __m512i, words: usize) {
        let turned = _mm512_permutexvar_epi32(self.turn.words, piece);
        let line = _mm512_mask_blend_epi32(self.turn.places, self.line, turned);
        if self.turn.filled + words >= WORDS {
            // SAFETY: with this piece the line is full.
            unsafe { self.write_line(line) };
            self.line = turned;
        } else {
            self.line = line;
        }
        self.at += words * 4;
    }

    /// Writes the line that `at` lies in: streamed, or by ordinary stores of what of it isn't published.
    ///
    /// # Safety
    /// The line is full and lies inside the open segment.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn write_line(&mut self, line: __m512i) {
        let at = self.at & !(LINE_BYTES - 1);
        if STREAMS || at >= self.place.stream_from {
            // SAFETY: inside the segment, aligned, not published (`stream_from`); the fence comes with the commit or the seal.
            unsafe { _mm512_stream_si512(self.place.address(at).cast(), line) };
        } else {
            // SAFETY: by this function's contract.
            unsafe { write_unpublished(self.place, at, WORDS, line) };
        }
    }
}

/// Writes the first `words` words of the block line at offset `at` by ordinary stores, without those that are published.
///
/// # Safety
/// `at` is the offset of a line inside the open segment.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn write_unpublished(place: &Place, at: usize, words: usize, line: __m512i) {
    let published = place.published.saturating_sub(at) / 4;
    let mask = ((1u32 << words) - (1u32 << published)) as __mmask16; // a masked store leaves the other words untouched
    // SAFETY: inside the segment; what isn't masked is neither published nor streamed.
    unsafe { _mm512_mask_storeu_epi32(place.address(at).cast(), mask, line) };
}

/// Puts the open line's part that isn't published into the segment, by ordinary stores.
///
/// # Safety
/// The processor has AVX-512 F, and a segment is open.
#[target_feature(enable = "avx512f")]
pub unsafe fn write_open_line(open: &OpenLine, place: &Place) {
    let line = place.open_line();
    if place.at > line {
        // SAFETY: the open line lies inside the segment and is filled up to `place.at`.
        unsafe { write_unpublished(place, line, (place.at - line) / 4, open.load()) };
    }
}
