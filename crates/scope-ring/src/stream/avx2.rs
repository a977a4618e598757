//! Blocks to memory with AVX2: the half line that isn't full is a register, whole ones come from the packet.
//!
//! ```text
//! halves   | open half, head | head's rest, data | data | data | data's end, closing length |
//!            first             second              whole         last: the open half, unless the block fills it
//!
//! f = words (4 bytes) in the open half
//! first    the head's 7 words and the first one of the data, turned up by f words, behind the open half's words
//! second   those that had no room; then data, loaded so that they lie where they must, by a mask
//! whole    as they lie in the packet
//! last     the packet's last 8 whole words, turned so that they end where they must; behind them, turned alike,
//!          what is left of a word, and the closing length
//! ```
//! Both halves of a line are written one right after the other, so that they reach memory together. Where a
//! commit lies between them, the second one is written by ordinary stores. Packets that are too short for
//! this, and what stands behind the data of packets with options, are turned piece by piece as in
//! [`super::avx512`]. Nothing beyond the packet is read.
//!
//! Ordinary stores and streamed ones leave the processor in turn: here each ordinary one takes as long as a
//! seventh of a line (measured, see `benches/record/README.md`). So the loop stores nothing but halves and
//! entries, and calls that it seldom makes ask for the packet anew instead of finding it in memory.

use super::arrivals::{Appended, Arrivals, Incoming, block_bytes, head};
use super::place::Place;
use super::{LINE_BYTES, Stream};
use scope_packet::KeyEntry;
use scope_packet::key::KEY_ENTRY_BYTES;
use scope_packet::pcapng::{CLOSING_WORDS_MAX, PACKET, PACKET_HEAD_BYTES};
use std::arch::x86_64::*;
use std::ops::Range;

/// What is written at a time, bytes.
const HALF_BYTES: usize = LINE_BYTES / 2;
/// Words of it.
const WORDS: usize = HALF_BYTES / 4;
/// Packets with as many bytes reach behind half 1, wherever they begin.
const PLAIN_BYTES_MIN: usize = 2 * HALF_BYTES - PACKET_HEAD_BYTES;

// The head and one word of data are a half.
const _: () = assert!(PACKET_HEAD_BYTES + 4 == HALF_BYTES);

/// The half of a line that isn't full yet; its bytes beyond the blocks' end mean nothing.
#[repr(C, align(32))]
#[derive(Clone, Copy, Default)]
pub struct OpenHalf([u8; HALF_BYTES]);

/// Appends the blocks and entries of packets `range` of a batch; see the module's text.
///
/// # Safety
/// The processor has AVX2 and BMI2. `range` has at most [`scope_packet::BATCH_PACKETS_MAX`] packets, and a
/// segment is open.
#[target_feature(enable = "avx2,bmi2")]
pub unsafe fn append<A: Arrivals>(
    stream: &mut Stream,
    interface: u32,
    batch: &A,
    range: Range<usize>,
) -> Appended {
    stream.entries.make_room(&mut stream.place);
    // SAFETY: by this function's contract; `STREAMS` is as the open half asks for.
    unsafe {
        if half_of(stream.place.at) >= stream.place.stream_from {
            append_halves::<A, true>(stream, interface, batch, range)
        } else {
            append_halves::<A, false>(stream, interface, batch, range)
        }
    }
}

/// Where the half begins that offset `at` lies in.
#[inline(always)]
fn half_of(at: usize) -> usize {
    at & !(HALF_BYTES - 1)
}

/// `STREAMS`: nothing that is written begins before `stream_from`.
///
/// # Safety
/// As [`append`].
#[target_feature(enable = "avx2,bmi2")]
unsafe fn append_halves<A: Arrivals, const STREAMS: bool>(
    stream: &mut Stream,
    interface: u32,
    batch: &A,
    range: Range<usize>,
) -> Appended {
    let Stream { open_half, place, entries, .. } = stream;
    // SAFETY: the processor has the features, by this function's contract; blocks are only pushed where there
    // is room, and a batch has room among the staged entries.
    unsafe {
        let mut writer = Writer::<STREAMS>::new(Position::of(open_half, place), place, interface);
        let mut seen = Seen::none();
        let first_entry = entries.next(place);
        // What blocks and the batch's entries may reach together.
        let room = place.room - place.packets * KEY_ENTRY_BYTES;
        let mut index = range.start;
        while index < range.end {
            let packet = batch.packet(index);
            let total = block_bytes(&packet);
            let before = index - range.start;
            if writer.position.at + total + (before + 1) * KEY_ENTRY_BYTES > room {
                break;
            }
            first_entry
                .wrapping_sub(before)
                .cast::<__m128i>()
                .write_unaligned(entry(packet.key, writer.position.at));
            seen.add(&packet);
            if packet.head.has_options() || packet.data.len() < PLAIN_BYTES_MIN {
                writer.position = push_odd::<A, STREAMS>(writer.position, place, interface, batch, index);
            } else {
                writer.push_plain(&packet, total);
            }
            index += 1;
        }
        writer.position.leave(open_half, place);
        place.packets += index - range.start;
        place.streamed |= half_of(place.at) > place.stream_from;
        seen.appended(index - range.start)
    }
}

/// Where the blocks end, and the half that isn't full yet.
#[derive(Clone, Copy)]
struct Position {
    half: __m256i,
    at: usize,
}

impl Position {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(open: &OpenHalf, place: &Place) -> Position {
        // SAFETY: 32 bytes, aligned to 32.
        Position { half: unsafe { _mm256_load_si256(open.0.as_ptr().cast()) }, at: place.at }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn leave(self, open: &mut OpenHalf, place: &mut Place) {
        // SAFETY: 32 bytes, aligned to 32.
        unsafe { _mm256_store_si256(open.0.as_mut_ptr().cast(), self.half) };
        place.at = self.at;
    }
}

/// The key entry of a block that begins at `at`.
#[inline]
#[target_feature(enable = "avx2")]
fn entry(key: &KeyEntry, at: usize) -> __m128i {
    const OFFSET_SHIFT: i32 = 13;
    // SAFETY: an entry has 16 bytes.
    unsafe {
        let key = _mm_loadu_si128((&raw const *key).cast());
        let offset = _mm_slli_epi32::<{ OFFSET_SHIFT - 2 }>(_mm_cvtsi32_si128(at as i32));
        _mm_or_si128(
            _mm_and_si128(key, _mm_setr_epi32(!0, !0, !0, (1 << OFFSET_SHIFT) - 1)),
            _mm_slli_si128::<12>(offset),
        )
    }
}

/// What [`Appended`] has, in wide registers: there are enough of them.
struct Seen {
    /// Captured bytes in the lower half.
    lens: __m128i,
    last_ns: __m128i,
    steps: __m128i,
}

impl Seen {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn none() -> Seen {
        let zero = _mm_setzero_si128();
        Seen { lens: zero, last_ns: zero, steps: zero }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, packet: &Incoming<'_>) {
        let time_ns = _mm_cvtsi64_si128(packet.head.time_ns);
        self.lens = _mm_add_epi64(self.lens, lens(packet));
        self.steps = _mm_or_si128(self.steps, _mm_or_si128(time_ns, _mm_sub_epi64(time_ns, self.last_ns)));
        self.last_ns = time_ns;
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn appended(&self, packets: usize) -> Appended {
        let captured_bytes = _mm_cvtsi128_si64(self.lens) as u32; // less than a segment
        Appended {
            packets,
            captured_bytes: captured_bytes.into(),
            last_ns: _mm_cvtsi128_si64(self.last_ns),
            steps: _mm_cvtsi128_si64(self.steps),
        }
    }
}

/// Captured and original length, 4 bytes each.
#[inline]
#[target_feature(enable = "avx2")]
fn lens(packet: &Incoming<'_>) -> __m128i {
    _mm_cvtsi64_si128((packet.data.len() as u64 | u64::from(packet.head.original_len) << 32) as i64)
}

/// What the loop looks up instead of computing it, by words in front.
#[repr(C, align(32))]
struct Tables {
    /// Word of a piece that comes to each place, so that its first one comes behind those in front.
    turned: [[u32; WORDS]; WORDS],
    /// The same of a head as [`Writer::head`] has it.
    turned_head: [[u32; WORDS]; WORDS],
    /// A mask of the places behind them.
    places: [[u32; WORDS]; WORDS],
}

static TABLES: Tables = {
    /// Where [`Writer::head`] has each word of the head, and the first one of the data.
    const HEAD: [u32; WORDS] = [4, 6, 5, 1, 0, 2, 3, 7];
    let empty = [[0; WORDS]; WORDS];
    let mut tables = Tables { turned: empty, turned_head: empty, places: empty };
    let mut index = 0;
    while index < WORDS * WORDS {
        let (words, place) = (index / WORDS, index % WORDS);
        let word = (WORDS + place - words) % WORDS;
        tables.turned[words][place] = word as u32;
        tables.turned_head[words][place] = HEAD[word];
        tables.places[words][place] = if place >= words { !0 } else { 0 };
        index += 1;
    }
    tables
};

/// The row of a table for what comes at offset `at` of the segment.
///
/// # Safety
/// As [`Writer`].
#[inline(always)]
unsafe fn row(table: &[[u32; WORDS]; WORDS], at: usize) -> __m256i {
    // SAFETY: rows have 32 bytes each and are aligned to them.
    unsafe { _mm256_load_si256(table[at / 4 % WORDS].as_ptr().cast()) }
}

/// The state of appending a batch, all of it in registers: its functions are part of [`append`], which has
/// the features that each of them needs. None may be called from elsewhere.
struct Writer<'a, const STREAMS: bool> {
    position: Position,
    /// Block type and interface.
    start: __m128i,
    segment: *mut u8,
    /// What was published of the segment, and from where on lines are streamed.
    place: &'a Place,
}

impl<'a, const STREAMS: bool> Writer<'a, STREAMS> {
    /// # Safety
    /// As [`Writer`].
    #[inline(always)]
    unsafe fn new(position: Position, place: &'a Place, interface: u32) -> Writer<'a, STREAMS> {
        // SAFETY: by this function's contract.
        let start = unsafe { _mm_setr_epi32(PACKET as i32, interface as i32, 0, 0) };
        Writer { position, start, segment: place.segment, place }
    }

    /// Adds the block of a packet of [`PLAIN_BYTES_MIN`] bytes or more without options, `total` bytes long.
    ///
    /// # Safety
    /// As [`Writer`]; the packet is so long, and the open segment has room for its block.
    #[inline(always)]
    unsafe fn push_plain(&mut self, packet: &Incoming<'_>, total: usize) {
        // Where a word is left, the closing length comes behind it.
        let behind = |left: u64, odd: usize| left | (total as u64) << (((odd + 3) & 4) * 8);
        // SAFETY: there is room.
        unsafe { self.push_data(packet, total, total, behind) };
    }

    /// Adds the first `pushed` bytes of that block: head, data, and two words that `behind` makes of what of
    /// a word is left of the data, and how many bytes these are; they count as far as `pushed` reaches.
    ///
    /// # Safety
    /// As [`Writer`]; the packet has [`PLAIN_BYTES_MIN`] bytes or more, and the open segment has room for its
    /// block.
    #[inline(always)]
    unsafe fn push_data(
        &mut self,
        packet: &Incoming<'_>,
        total: usize,
        pushed: usize,
        behind: impl Fn(u64, usize) -> u64,
    ) {
        let (data, len) = (packet.data.as_ptr(), packet.data.len());
        let (whole, odd) = (len & !3, len % 4);
        let Position { half, at } = self.position;
        // SAFETY: there is room. Only the packet's bytes are loaded: `second` by a mask, of the whole halves
        // all words are data, and the last words and the last four bytes are there, since the packet is so
        // long.
        unsafe {
            let (turn, places) = (row(&TABLES.turned_head, at), row(&TABLES.places, at));
            let head = _mm256_permutevar8x32_epi32(self.head(packet, total), turn);
            let first = self.segment.add(half_of(at));
            self.write_half(first, _mm256_blendv_epi8(half, head, places));
            // What of the packet comes to `first` and behind it, if the head weren't there.
            let from = data.wrapping_sub(PACKET_HEAD_BYTES).wrapping_sub(at % HALF_BYTES);
            let second = _mm256_maskload_epi32(from.wrapping_add(HALF_BYTES).cast(), places);
            self.write_half(first.add(HALF_BYTES), _mm256_blendv_epi8(head, second, places));
            let end = at + PACKET_HEAD_BYTES + whole;
            let mut next = 2 * HALF_BYTES;
            while next < half_of(end) - half_of(at) {
                self.write_half(first.add(next), _mm256_loadu_si256(from.wrapping_add(next).cast()));
                next += HALF_BYTES;
            }
            let (turn, places) = (row(&TABLES.turned, end), row(&TABLES.places, end));
            let words =
                _mm256_permutevar8x32_epi32(_mm256_loadu_si256(data.add(whole - HALF_BYTES).cast()), turn);
            let left = u64::from(data.add(len - 4).cast::<u32>().read_unaligned()) >> (32 - odd * 8);
            let left = _mm256_zextsi128_si256(_mm_cvtsi64_si128(behind(left, odd) as i64));
            let left = _mm256_permutevar8x32_epi32(left, turn);
            let next = at + pushed;
            self.position.at = next;
            let last = self.segment.add(half_of(end));
            self.fill(last, half_of(next) > half_of(end), _mm256_blendv_epi8(words, left, places), left);
        }
    }

    /// Adds a piece of `words` words, 1 to 8.
    ///
    /// # Safety
    /// As [`Writer`], and the open segment has room for it.
    #[inline(always)]
    unsafe fn push_piece(&mut self, piece: __m256i, words: usize) {
        let Position { half, at } = self.position;
        let end = at + words * 4;
        // SAFETY: there is room.
        unsafe {
            let piece = _mm256_permutevar8x32_epi32(piece, row(&TABLES.turned, at));
            let half = _mm256_blendv_epi8(half, piece, row(&TABLES.places, at));
            self.position.at = end;
            self.fill(self.segment.add(half_of(at)), half_of(end) > half_of(at), half, piece);
        }
    }

    /// Goes on with `half`, whose place is `to`; where it is full, writes it, and goes on with `next`.
    ///
    /// # Safety
    /// As [`Writer`], and the open segment has room for it.
    #[inline(always)]
    unsafe fn fill(&mut self, to: *mut u8, is_full: bool, half: __m256i, next: __m256i) {
        self.position.half = half;
        if is_full {
            // SAFETY: the half is full.
            unsafe { self.write_half(to, half) };
            self.position.half = next;
        }
    }

    /// Block type, interface, time, lengths, and the first word of the data, in the order of [`TABLES`].
    ///
    /// # Safety
    /// As [`Writer`].
    #[inline(always)]
    unsafe fn head(&self, packet: &Incoming<'_>, total: usize) -> __m256i {
        // SAFETY: by this function's contract.
        unsafe {
            let first = packet.data.as_ptr().cast::<i32>().read_unaligned();
            let rest = _mm_unpacklo_epi64(_mm_cvtsi64_si128(packet.head.time_ns), lens(packet));
            let start = _mm_insert_epi32::<3>(_mm_insert_epi32::<2>(self.start, total as i32), first);
            _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(rest), start)
        }
    }

    /// Writes the half whose place is `to`: streamed, or by ordinary stores of what of it isn't published.
    ///
    /// # Safety
    /// As [`Writer`]; the half is full and lies inside the open segment.
    #[inline(always)]
    unsafe fn write_half(&self, to: *mut u8, half: __m256i) {
        // SAFETY: inside the segment, aligned. What is streamed isn't published (`stream_from`), and its
        // fence comes with the commit or the seal.
        unsafe {
            let at = to.offset_from_unsigned(self.segment);
            if STREAMS || at >= self.place.stream_from {
                _mm256_stream_si256(to.cast(), half);
            } else {
                write_unpublished(to, self.place.published.saturating_sub(at), HALF_BYTES, half);
            }
        }
    }
}

/// Adds the block of a packet that has options or is short. Apart, and asking for the packet anew: what a
/// call is given lies in memory, and would be stored there for each packet.
///
/// # Safety
/// As [`append`], and the open segment has room for it.
#[inline(never)]
#[target_feature(enable = "avx2,bmi2")]
unsafe fn push_odd<A: Arrivals, const STREAMS: bool>(
    position: Position,
    place: &Place,
    interface: u32,
    batch: &A,
    index: usize,
) -> Position {
    let packet = batch.packet(index);
    let (len, total) = (packet.data.len(), block_bytes(&packet));
    // SAFETY: there is room.
    unsafe {
        let mut writer = Writer::<STREAMS>::new(position, place, interface);
        if len >= PLAIN_BYTES_MIN {
            writer.push_data(&packet, total, PACKET_HEAD_BYTES + len.next_multiple_of(4), |left, _| left);
            let (words, count) = packet.head.closing(total);
            let [a, b, c, d, e, f, g] = words.map(|word| word as i32);
            writer.push_piece(_mm256_setr_epi32(a, b, c, d, e, f, g, 0), count);
        } else {
            const PIECES: usize =
                (PACKET_HEAD_BYTES + PLAIN_BYTES_MIN + CLOSING_WORDS_MAX * 4).div_ceil(HALF_BYTES);
            let mut block = [0; PIECES * HALF_BYTES];
            head(&packet, interface).write(&mut block[..total], packet.data);
            for at in (0..total).step_by(HALF_BYTES) {
                writer.push_piece(
                    _mm256_loadu_si256(block.as_ptr().add(at).cast()),
                    ((total - at) / 4).min(WORDS),
                );
            }
        }
        writer.position
    }
}

/// Writes bytes `published` to `end` of the half at `to` by ordinary stores.
///
/// # Safety
/// The processor has AVX2; `to` is half a line inside the open segment.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn write_unpublished(to: *mut u8, published: usize, end: usize, half: __m256i) {
    let mut bytes = OpenHalf::default();
    // SAFETY: 32 bytes, aligned to 32.
    unsafe { _mm256_store_si256(bytes.0.as_mut_ptr().cast(), half) };
    let part = &bytes.0[published..end];
    // SAFETY: inside the segment; this part is neither published nor streamed.
    unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.add(published), part.len()) };
}

/// Puts the open half's part that isn't published into the segment, by ordinary stores.
///
/// # Safety
/// The processor has AVX2, and a segment is open.
#[target_feature(enable = "avx2")]
pub unsafe fn write_open_half(open: &OpenHalf, place: &Place) {
    let at = half_of(place.at);
    if place.at > at {
        // SAFETY: the open half lies inside the segment and is filled up to `place.at`.
        unsafe {
            let half = _mm256_load_si256(open.0.as_ptr().cast());
            write_unpublished(place.address(at), place.published.saturating_sub(at), place.at - at, half);
        }
    }
}
