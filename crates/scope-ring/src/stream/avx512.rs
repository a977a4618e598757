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
//! All pieces but the last have 16 words, so f is the same for the whole block. Words of the open line beyond
//! its end are never looked at. Data are loaded under a byte mask: nothing beyond the packet is read, and
//! what is masked is zero, as the padding must be. The state stays in registers for a whole batch.

use super::arrivals::{Appended, Arrivals, Incoming, block_bytes};
use super::entries::{Entries, Entry};
use super::place::Place;
use super::{LINE_BYTES, Stream};
use scope_packet::KeyEntry;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::{PACKET, PACKET_HEAD_BYTES, PacketHead, padded};
use std::arch::x86_64::*;
use std::ops::Range;

/// Words of a line.
const WORDS: usize = LINE_BYTES / 4;
/// The bytes of a piece that are the block's head.
const HEAD_MASK: u64 = (1 << PACKET_HEAD_BYTES) - 1;

/// The block line that isn't full yet; its bytes beyond the blocks' end mean nothing.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct OpenLine([u8; LINE_BYTES]);

impl Default for OpenLine {
    fn default() -> OpenLine {
        OpenLine([0; LINE_BYTES])
    }
}

/// Appends the blocks and entries of packets `range` of a batch; see the module's text.
///
/// # Safety
/// The processor has AVX-512 F and BW and BMI2. `range` has at most [`scope_packet::BATCH_PACKETS_MAX`]
/// packets, and a segment is open.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
pub unsafe fn append<A: Arrivals>(
    stream: &mut Stream,
    interface: u32,
    batch: &A,
    range: Range<usize>,
) -> Appended {
    stream.entries.make_room(&mut stream.place);
    // SAFETY: by this function's contract; `STREAMS` is as the open line asks for.
    unsafe {
        if stream.place.open_line() >= stream.place.stream_from {
            append_lines::<A, true>(stream, interface, batch, range)
        } else {
            append_lines::<A, false>(stream, interface, batch, range)
        }
    }
}

/// `STREAMS`: no line that is written begins before `stream_from`.
///
/// # Safety
/// As [`append`].
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
unsafe fn append_lines<A: Arrivals, const STREAMS: bool>(
    stream: &mut Stream,
    interface: u32,
    batch: &A,
    range: Range<usize>,
) -> Appended {
    let Stream { open_line, place, entries, .. } = stream;
    let mut appended = Appended::default();
    // SAFETY: the processor has the features, by this function's contract; blocks are only pushed where there
    // is room.
    unsafe {
        let mut writer = Writer::<STREAMS>::new(open_line, place, entries, interface);
        for index in 0..range.len() {
            let packet = batch.packet(range.start + index);
            let total = block_bytes(&packet);
            if !writer.take_room(total) {
                break;
            }
            writer.push_entry(packet.key);
            writer.push_block(&packet, total);
            appended.add(&packet);
            appended.packets = index + 1;
        }
        let at = writer.end(open_line);
        (place.at, place.packets) = (at, place.packets + appended.packets);
    }
    appended
}

/// What the loop looks up instead of computing it: numbers come from ordinary registers into wide ones and
/// masks only one per cycle, from memory two.
#[repr(C, align(64))]
struct Tables {
    /// By words in the open line: word of a piece that comes to each place, so that its first one comes
    /// behind the line's last.
    turned: [[u32; WORDS]; WORDS],
    /// By bytes: a mask of so many.
    first_bytes: [u64; LINE_BYTES],
    /// By words in the open line: a mask of the places behind them.
    places: [u16; WORDS],
    /// By words: a mask of the word behind them.
    next_word: [u16; WORDS],
    /// The words of a piece that aren't the block's head.
    not_head: u16,
}

static TABLES: Tables = {
    let mut tables = Tables {
        turned: [[0; WORDS]; WORDS],
        first_bytes: [0; LINE_BYTES],
        places: [0; WORDS],
        next_word: [0; WORDS],
        not_head: !0 << (PACKET_HEAD_BYTES / 4),
    };
    let mut index = 0;
    while index < WORDS * WORDS {
        let (filled, place) = (index / WORDS, index % WORDS);
        tables.turned[filled][place] = ((WORDS + place - filled) % WORDS) as u32;
        index += 1;
    }
    let mut bytes = 0;
    while bytes < LINE_BYTES {
        tables.first_bytes[bytes] = (1 << bytes) - 1;
        bytes += 1;
    }
    let mut words = 0;
    while words < WORDS {
        (tables.places[words], tables.next_word[words]) = (!0 << words, 1 << words);
        words += 1;
    }
    tables
};

/// How pieces are turned so that their first word comes behind the open line's last.
#[derive(Clone, Copy)]
struct Turn {
    /// Word of the piece that comes to each place.
    words: __m512i,
    /// The places of the line that are the piece's.
    places: __mmask16,
    /// Words in the open line.
    filled: usize,
}

impl Turn {
    /// For pieces that come at offset `at` of the segment.
    ///
    /// # Safety
    /// As [`Writer`].
    #[inline(always)]
    unsafe fn to(at: usize) -> Turn {
        let filled = at / 4 % WORDS;
        // SAFETY: by this function's contract; each row is a line.
        let words = unsafe { _mm512_load_si512(TABLES.turned[filled].as_ptr().cast()) };
        Turn { words, places: TABLES.places[filled], filled }
    }
}

/// The state of appending a batch, all of it in registers: its functions are part of [`append`], which has
/// the features that each of them needs. None may be called from elsewhere.
struct Writer<'a, const STREAMS: bool> {
    line: __m512i,
    /// End of the blocks, bytes.
    at: usize,
    /// What blocks and entries may still take together, bytes.
    left: usize,
    /// Where the next entry is staged.
    entry: *mut Entry,
    /// Block type and interface.
    head: __m128i,
    place: &'a Place,
}

impl<const STREAMS: bool> Writer<'_, STREAMS> {
    /// # Safety
    /// As [`Writer`].
    #[inline(always)]
    unsafe fn new<'a>(
        open: &OpenLine,
        place: &'a Place,
        entries: &mut Entries,
        interface: u32,
    ) -> Writer<'a, STREAMS> {
        // SAFETY: 64 bytes, aligned to 64.
        let (line, head) = unsafe {
            (_mm512_load_si512(open.0.as_ptr().cast()), _mm_setr_epi32(PACKET as i32, 0, interface as i32, 0))
        };
        let left = place.room - place.at - place.packets * KEY_ENTRY_BYTES;
        Writer { line, at: place.at, left, entry: entries.next(place), head, place }
    }

    /// Leaves the open line; returns the end of the blocks, bytes.
    ///
    /// # Safety
    /// As [`Writer`].
    #[inline(always)]
    unsafe fn end(self, open: &mut OpenLine) -> usize {
        // SAFETY: 64 bytes, aligned to 64.
        unsafe { _mm512_store_si512(open.0.as_mut_ptr().cast(), self.line) };
        self.at
    }

    /// Takes the room for a block of `total` bytes and its entry. False: there isn't so much.
    #[inline(always)]
    fn take_room(&mut self, total: usize) -> bool {
        let (left, is_short) = self.left.overflowing_sub(total + KEY_ENTRY_BYTES);
        if !is_short {
            self.left = left;
        }
        !is_short
    }

    /// Stages the entry of the packet that comes next.
    ///
    /// # Safety
    /// As [`Writer`]; there is room for it.
    #[inline(always)]
    unsafe fn push_entry(&mut self, key: &KeyEntry) {
        // SAFETY: a batch has room in the staging, downward from where it began.
        unsafe { self.entry.write(key.at(self.at as u32).to_bytes()) };
        self.entry = self.entry.wrapping_sub(1);
    }

    /// Adds the block of a packet, `total` bytes long.
    ///
    /// # Safety
    /// As [`Writer`], and the open segment has room for it.
    #[inline(always)]
    unsafe fn push_block(&mut self, packet: &Incoming<'_>, total: usize) {
        let len = packet.data.len();
        // SAFETY: there is room; of what the pieces' places cover only bytes of the packet are loaded.
        unsafe {
            let turn = Turn::to(self.at);
            let mut to = self.place.segment.add(self.at & !(LINE_BYTES - 1));
            let wide_total = _mm_cvtsi64_si128(total as i64);
            let head = self.head(&packet.head, len, wide_total);
            let mut from = packet.data.as_ptr().wrapping_sub(PACKET_HEAD_BYTES);
            let mut bytes = PACKET_HEAD_BYTES + len;
            let mut piece;
            if bytes >= LINE_BYTES {
                piece = _mm512_mask_loadu_epi32(head, TABLES.not_head, from.cast());
                loop {
                    self.push_full(turn, &mut to, piece);
                    from = from.wrapping_add(LINE_BYTES);
                    bytes -= LINE_BYTES;
                    if bytes < LINE_BYTES {
                        break;
                    }
                    piece = _mm512_loadu_si512(from.cast());
                }
                piece = _mm512_maskz_loadu_epi8(TABLES.first_bytes[bytes % LINE_BYTES], from.cast());
            } else {
                piece = _mm512_mask_loadu_epi8(
                    head,
                    TABLES.first_bytes[bytes % LINE_BYTES] & !HEAD_MASK,
                    from.cast(),
                );
            }
            let words = padded(bytes) / 4;
            self.at += total;
            let (closing, more) =
                if packet.head.has_options() { closing(packet, total) } else { (wide_total, None) };
            if words < WORDS {
                let last = _mm512_mask_broadcastd_epi32(piece, TABLES.next_word[words], closing);
                self.push_last(turn, &mut to, last, words + 1);
            } else {
                self.push_full(turn, &mut to, piece);
                self.push_last(turn, &mut to, _mm512_zextsi128_si512(closing), 1);
            }
            if let Some((piece, words)) = more {
                self.push_last(Turn::to(self.at - words * 4), &mut to, piece, words);
            }
        }
    }

    /// The block's first 28 bytes, zeros behind them.
    ///
    /// # Safety
    /// As [`Writer`].
    #[inline(always)]
    unsafe fn head(&self, head: &PacketHead, len: usize, total: __m128i) -> __m512i {
        let lengths = len as u64 | (head.original_len as u64) << 32;
        // SAFETY: by this function's contract.
        unsafe {
            // {type, total, interface, -} and {time low, time high, captured, original}: the time's halves
            // change places
            let start = _mm_or_si128(self.head, _mm_slli_epi64::<32>(total));
            let rest = _mm_unpacklo_epi64(_mm_cvtsi64_si128(head.time_ns), _mm_cvtsi64_si128(lengths as i64));
            let places = _mm512_setr_epi32(0, 1, 2, 17, 16, 18, 19, 3, 3, 3, 3, 3, 3, 3, 3, 3);
            _mm512_permutex2var_epi32(_mm512_zextsi128_si512(start), places, _mm512_zextsi128_si512(rest))
        }
    }

    /// Adds a piece of 16 words to the open line, whose place is `to`.
    ///
    /// # Safety
    /// As [`Writer`], and the open segment has room for it.
    #[inline(always)]
    unsafe fn push_full(&mut self, turn: Turn, to: &mut *mut u8, piece: __m512i) {
        // SAFETY: with this piece the line is full.
        unsafe {
            let turned = _mm512_permutexvar_epi32(turn.words, piece);
            self.write_line(*to, _mm512_mask_blend_epi32(turn.places, self.line, turned));
            self.line = turned;
        }
        *to = to.wrapping_add(LINE_BYTES);
    }

    /// Adds a piece of `words` words, 1 to 16.
    ///
    /// # Safety
    /// As [`Writer`], and the open segment has room for it.
    #[inline(always)]
    unsafe fn push_last(&mut self, turn: Turn, to: &mut *mut u8, piece: __m512i, words: usize) {
        // SAFETY: the line is written where this piece makes it full.
        unsafe {
            let turned = _mm512_permutexvar_epi32(turn.words, piece);
            let line = _mm512_mask_blend_epi32(turn.places, self.line, turned);
            if turn.filled + words < WORDS {
                self.line = line;
                return;
            }
            self.write_line(*to, line);
            self.line = turned;
        }
        *to = to.wrapping_add(LINE_BYTES);
    }

    /// Writes the line whose place is `to`: streamed, or by ordinary stores of what of it isn't published.
    ///
    /// # Safety
    /// As [`Writer`]; the line is full and lies inside the open segment.
    #[inline(always)]
    unsafe fn write_line(&self, to: *mut u8, line: __m512i) {
        // SAFETY: inside the segment, aligned. What is streamed isn't published (`stream_from`), and its
        // fence comes with the commit or the seal.
        unsafe {
            let at = to.offset_from_unsigned(self.place.segment);
            if STREAMS || at >= self.place.stream_from {
                _mm512_stream_si512(to.cast(), line);
            } else {
                write_unpublished(to, self.place.published.saturating_sub(at), WORDS, line);
            }
        }
    }
}

/// The word behind the data of a packet with options; those behind it, and how many they are.
#[inline(never)]
#[target_feature(enable = "avx512f")]
fn closing(packet: &Incoming<'_>, total: usize) -> (__m128i, Option<(__m512i, usize)>) {
    let (words, count) = packet.head.closing(total);
    let [first, b, c, d, e, f, g] = words.map(|word| word as i32);
    (
        _mm_cvtsi32_si128(first),
        Some((_mm512_zextsi256_si512(_mm256_setr_epi32(b, c, d, e, f, g, 0, 0)), count - 1)),
    )
}

/// Writes the first `words` words of the block line at `to` by ordinary stores, without its first `published`
/// bytes.
///
/// # Safety
/// `to` is a line inside the open segment.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn write_unpublished(to: *mut u8, published: usize, words: usize, line: __m512i) {
    let mask = ((1u32 << words) - (1u32 << (published / 4))) as __mmask16; // a masked store leaves the other words untouched
    // SAFETY: inside the segment; what isn't masked is neither published nor streamed.
    unsafe { _mm512_mask_storeu_epi32(to.cast(), mask, line) };
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
        unsafe {
            let published = place.published.saturating_sub(line);
            let words = _mm512_load_si512(open.0.as_ptr().cast());
            write_unpublished(place.address(line), published, (place.at - line) / 4, words);
        }
    }
}
