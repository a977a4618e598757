//! The index of a closed file: what a search has to know of each segment, in one stretch at the file's end.
//!
//! ```text
//!  0      4        8       16        20              24              28      32      40       96     2184
//!  | type | length | magic | entries | summary bytes | blocks before | lanes | check | totals | card | entries | zeros | tail |
//!                                                                                                    pages of slices ...
//!  entry:  | foot's first 256 bytes | offset 8 | hash 16 |
//! ```
//! A question reads the card first, which has a check of its own, and of few files the entries and a few slices: what all
//! summaries have of one bit (version 3). In version 2 each entry has its summary; version 1 has no card either, and
//! summaries of another form: both are read, and version 1 is written only for tests. docs/FORMAT.md, section 7, has the
//! tables. A block is at most [`INDEX_BYTES_MAX`] long, since libpcap reads none that is longer: a file with more
//! entries has several, one directly behind the other. The file's last 4 bytes are the last block's length, so a
//! reader finds them from the end. That a block is a multiple of 4096 bytes long lets it be written with O_DIRECT.

mod card;
mod layout;
mod reading;
mod slices;

use crate::checks::Hash;
use layout::{CARD_BYTES, CHECK_AT, FOOT_BYTES, Layout, MAGIC, TOTALS_AT, Version};
use scope_packet::pcapng::INDEX;
use scope_packet::segment::Foot;
use scope_ring::{Summary, SummaryForm};
use twox_hash::XxHash3_64;

pub use card::{Card, LanePart, Totals, read_card, read_totals};
pub(crate) use card::{has_numbers, lane_parts};
pub use layout::{INDEX_ALIGN, INDEX_BYTES_MAX, LANES_MAX};
pub use reading::{Screened, Search, read, read_from_end, search_from_end};

/// What the index says of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the segment begins in the file.
    pub offset: u64,
    /// Its foot.
    pub foot: Foot,
    /// Its hash.
    pub hash: Hash,
    /// What lets a search skip it.
    pub summary: Summary,
}

/// Why an index can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// There is none at the file's end: the file isn't closed, is cut off, or is from before there were any.
    #[error("no index stands at the end")]
    None,
    /// Written by a later program.
    #[error("the index has format version {0}, which is newer than this program's: read it with a newer one")]
    Newer(u8),
    /// It isn't what was written.
    #[error("the index is damaged: {0}")]
    Damaged(&'static str),
}

/// That of blocks that are written of segments of `segment_bytes`.
const fn layout_of(entries: usize, segment_bytes: usize) -> Layout {
    Layout { version: Version::Third, entries, summary_bytes: Summary::bytes_of(segment_bytes) }
}

/// Most segments of `segment_bytes` that one index block holds.
pub const fn slots_max(segment_bytes: usize) -> usize {
    layout_of(0, segment_bytes).entries_max()
}

/// Bytes of the index of so many segments of `segment_bytes`: what a file's reserve has to hold for it.
pub fn bytes_of(slots: usize, segment_bytes: usize) -> u64 {
    let block = |slots| layout_of(slots, segment_bytes).block_bytes() as u64;
    let max = slots_max(segment_bytes);
    let last = slots % max;
    (slots / max) as u64 * block(max) + if last != 0 || slots == 0 { block(last) } else { 0 }
}

/// The index of a file with these segments, all of one size and in the order of the file. Its version is that of their
/// summaries, which are all of one form.
pub fn write(entries: &[Entry]) -> Vec<u8> {
    let form = entries.first().map_or(SummaryForm::Second, |entry| entry.summary.form());
    let summary_bytes = entries.first().map_or(0, |entry| entry.summary.as_bytes().len());
    let layout = |entries| Layout { version: Version::for_form(form), entries, summary_bytes };
    let mut out = Vec::with_capacity(layout(entries.len()).block_bytes());
    let card = Card::of(entries);
    let mut blocks = entries.chunks(layout(0).entries_max());
    write_block(&mut out, blocks.next().unwrap_or_default(), &card, layout, 0);
    for (before, entries) in (1..).zip(blocks) {
        write_block(&mut out, entries, &card, layout, before);
    }
    out
}

/// Appends one block; `before` others stand directly in front of it.
fn write_block(
    out: &mut Vec<u8>,
    entries: &[Entry],
    card: &Card,
    layout: impl Fn(usize) -> Layout,
    before: u32,
) {
    let layout = layout(entries.len());
    let (from, total) = (out.len(), layout.block_bytes());
    let mut begin = [0; CARD_BYTES];
    begin[..4].copy_from_slice(&INDEX.to_le_bytes());
    begin[4..8].copy_from_slice(&(total as u32).to_le_bytes());
    begin[8..15].copy_from_slice(&MAGIC);
    begin[15] = layout.version.number();
    for (at, word) in [(16, entries.len() as u32), (20, layout.summary_bytes as u32), (24, before)] {
        begin[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    match layout.version {
        Version::First => {
            let totals = card.totals.to_bytes();
            begin[TOTALS_AT..TOTALS_AT + totals.len()].copy_from_slice(&totals);
        }
        _ => card.write(&mut begin),
    }
    out.extend(&begin[..layout.begin_bytes()]);
    for entry in entries {
        let summary = (entry.summary.form(), entry.summary.as_bytes().len());
        assert_eq!(summary, (layout.version.form(), layout.summary_bytes), "one segment size, one form");
        let mut foot = [0; FOOT_BYTES];
        entry.foot.write(&mut foot);
        out.extend(foot);
        out.extend(entry.offset.to_le_bytes());
        out.extend(entry.hash.0);
        if layout.version != Version::Third {
            out.extend(entry.summary.as_bytes());
        }
    }
    match layout.version {
        Version::Third => {
            out.resize(from + layout.facts_bytes(), 0);
            slices::seal(&mut out[from..], 0, total);
            slices::write(out, layout, |number| entries[number].summary.as_bytes());
        }
        _ => {
            out.resize(from + total - 4, 0);
            out.extend((total as u32).to_le_bytes());
        }
    }
    let check = XxHash3_64::oneshot(&out[from..]);
    out[from + CHECK_AT..][..8].copy_from_slice(&check.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::layout::block_bytes;
    use super::*;
    use scope_packet::segment::{FileLosses, LeftOut, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
    use scope_packet::{Drops, KeyEntry, LinkType};
    use scope_ring::{Column, KeyTest};
    use scope_testkit::dice::Dice;

    fn entry(number: u64, segment_bytes: usize) -> Entry {
        let key = KeyEntry { source: [10, 0, 0, number as u8], ..KeyEntry::default() };
        Entry {
            offset: 4096 + number * segment_bytes as u64,
            foot: Foot {
                run_id: [7; 16],
                lane: 1,
                link_type: LinkType::ETHERNET,
                unordered: false,
                sequence: number,
                first_packet: number * 10,
                packets: 10,
                block_bytes: 1000,
                first_ns: 5,
                last_ns: 6,
                min_ns: 5,
                max_ns: 6,
                bytes_before: 99,
                drops_before: Drops::default(),
                left_out: LeftOut { packets: number, bytes: 99, span_ns: (4, 7) },
                file_losses: FileLosses::default(),
            },
            hash: Hash([number as u8; 16]),
            summary: Summary::new(Column::new(&key.to_bytes()), segment_bytes),
        }
    }

    #[test]
    fn an_index_is_read_as_it_was_written_behind_anything() {
        for (entries, segment_bytes) in
            [(0, SEGMENT_BYTES_MIN), (1, SEGMENT_BYTES_MIN), (30, SEGMENT_BYTES_MAX)]
        {
            let entries: Vec<Entry> = (0..entries).map(|number| entry(number, segment_bytes)).collect();
            let bytes = write(&entries);
            assert_eq!(bytes.len() as u64, bytes_of(entries.len(), segment_bytes));
            assert!(bytes.len().is_multiple_of(INDEX_ALIGN));
            assert_eq!(read(&bytes), Ok(entries.clone()));
            assert_eq!(read(&[&[7; 4096][..], &bytes].concat()), Ok(entries));
        }
    }

    #[test]
    fn an_index_takes_less_than_four_thousandths_of_its_file_and_a_block_at_most_16_mib() {
        for size in [SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX] {
            let slots = slots_max(size);
            assert!(bytes_of(slots, size) <= INDEX_BYTES_MAX as u64);
            assert!(bytes_of(slots + 1, size) > INDEX_BYTES_MAX as u64);
        }
        assert!(bytes_of(512, SEGMENT_BYTES_MAX) * 1000 <= 4 * (512 * SEGMENT_BYTES_MAX as u64));
    }

    #[test]
    fn more_entries_than_a_block_holds_stand_in_several() {
        let slots = slots_max(SEGMENT_BYTES_MAX);
        let entries: Vec<Entry> =
            (0..slots as u64 + 2).map(|number| entry(number, SEGMENT_BYTES_MAX)).collect();
        let bytes = write(&entries);
        assert_eq!(bytes.len() as u64, bytes_of(entries.len(), SEGMENT_BYTES_MAX));
        assert!(read(&bytes) == Ok(entries), "what was written");
        let last = block_bytes(*bytes.last_chunk().unwrap()).unwrap();
        assert_eq!(read(&bytes[bytes.len() - last..]), Err(IndexError::None), "the first block is missing");
        let twice = [&bytes[bytes.len() - last..], &bytes[bytes.len() - last..]].concat();
        assert!(matches!(read(&twice), Err(IndexError::Damaged(_))));
    }

    #[test]
    fn no_byte_of_an_index_changes_unnoticed() {
        let bytes = write(&[entry(0, SEGMENT_BYTES_MIN), entry(1, SEGMENT_BYTES_MIN)]);
        for at in 0..bytes.len() {
            for flip in [1, 0x10, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                assert!(read(&changed).is_err(), "byte {at}");
            }
        }
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), Err(IndexError::None), "{len} bytes");
        }
        let mut newer = bytes;
        newer[15] = 4;
        assert_eq!(read(&newer), Err(IndexError::Newer(4)));
    }

    /// What a search has of an index, read through a piece of memory.
    fn search(bytes: &[u8], test: &KeyTest) -> Result<Search, IndexError> {
        let read = |offset: u64, into: &mut [u8]| {
            into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
            Ok::<(), std::convert::Infallible>(())
        };
        let Ok(found) = search_from_end(0..bytes.len() as u64, test, &mut Vec::new(), read);
        found
    }

    /// Of segments with few entries each, drawn from a small world, an index.
    fn drawn(dice: &mut Dice, segments: u64) -> Vec<Entry> {
        let address = |dice: &mut Dice| [10, dice.below(3) as u8, dice.below(4) as u8, dice.roll() as u8];
        let key = |dice: &mut Dice| KeyEntry {
            source: address(dice),
            destination: address(dice),
            source_port: 1000 + dice.below(40) as u16,
            destination_port: [53, 443, 2000][dice.below(3) as usize],
            word: (dice.below(16) as u32) << 8 | [6, 17][dice.below(2) as usize],
        };
        let make = |number| {
            let keys: Vec<u8> = (0..dice.below(40)).flat_map(|_| key(dice).to_bytes()).collect();
            let summary = Summary::new(Column::new(&keys), SEGMENT_BYTES_MIN);
            Entry { summary, ..entry(number, SEGMENT_BYTES_MIN) }
        };
        (0..segments).map(make).collect()
    }

    /// Tests of single fields, of parts of them, and of several.
    fn tests(dice: &mut Dice) -> Vec<KeyTest> {
        let whole = [10, dice.below(3) as u8, dice.below(4) as u8, dice.roll() as u8];
        let net = KeyTest::net_v4(whole, [255, 255, (dice.below(8) as u8) << 5, 0]);
        let single = [
            KeyTest::all(),
            KeyTest::host(whole),
            KeyTest::source(whole),
            net,
            KeyTest::protocol(6),
            KeyTest::port(1000 + dice.below(50) as u16),
            KeyTest::port(443),
            KeyTest::vlan(true),
            KeyTest::kind(scope_packet::headers::Kind::Ipv4),
        ];
        let pair = |dice: &mut Dice| {
            let [one, other] = [0, 1].map(|_| single[dice.below(single.len() as u64) as usize].clone());
            if dice.one_in(2) { one.and(other) } else { one.or(other) }
        };
        let pairs: Vec<KeyTest> = (0..9).map(|_| pair(dice)).collect();
        single.into_iter().chain(pairs).collect()
    }

    #[test]
    fn a_search_says_of_each_segment_what_its_summary_says() {
        let mut dice = Dice(3);
        for segments in [0, 1, 7, 8, 63, 64, 65, 200] {
            let entries = drawn(&mut dice, segments);
            let bytes = write(&entries);
            for test in tests(&mut dice) {
                let found = search(&bytes, &test).unwrap();
                assert_eq!(found.from, 0);
                assert_eq!(found.read_bytes % INDEX_ALIGN as u64, 0);
                assert!(found.read_bytes <= bytes.len() as u64);
                let all = test == KeyTest::all();
                assert!(
                    !all || found.read_bytes
                        == layout_of(entries.len(), SEGMENT_BYTES_MIN).facts_bytes() as u64
                );
                assert_eq!(found.segments.len(), entries.len());
                for (screened, entry) in found.segments.iter().zip(&entries) {
                    assert_eq!((screened.offset, screened.hash), (entry.offset, entry.hash));
                    assert_eq!(screened.foot, entry.foot);
                    assert_eq!(screened.may_match, all || entry.summary.may_hold(&test), "{test:?}");
                }
            }
        }
    }

    #[test]
    #[ignore = "a measurement"]
    fn what_writing_and_searching_an_index_costs() {
        let mut dice = Dice(5);
        let make = |number| {
            let key = |dice: &mut Dice| KeyEntry {
                source: (dice.roll() as u32).to_le_bytes(),
                destination: (dice.roll() as u32).to_le_bytes(),
                source_port: dice.roll() as u16,
                ..KeyEntry::default()
            };
            let keys: Vec<u8> = (0..4000).flat_map(|_| key(&mut dice).to_bytes()).collect();
            let summary = Summary::new(Column::new(&keys), SEGMENT_BYTES_MAX);
            Entry { summary, ..entry(number, SEGMENT_BYTES_MAX) }
        };
        let entries: Vec<Entry> = (0..512).map(make).collect();
        for _ in 0..5 {
            let begun = std::time::Instant::now();
            let bytes = write(&entries);
            let written = begun.elapsed();
            let begun = std::time::Instant::now();
            let found = search(&bytes, &KeyTest::host([1, 2, 3, 4])).unwrap();
            let searched = begun.elapsed();
            println!(
                "{} bytes written in {written:?}, {} searched in {searched:?}",
                bytes.len(),
                found.read_bytes
            );
        }
    }

    #[test]
    fn a_byte_that_is_changed_makes_no_search_say_something_else() {
        let mut dice = Dice(4);
        let bytes = write(&drawn(&mut dice, 20));
        let tests = tests(&mut dice);
        let whole: Vec<Search> = tests.iter().map(|test| search(&bytes, test).unwrap()).collect();
        let mut noticed = 0;
        for at in (0..bytes.len()).filter(|at| at % 7 == 0 || at % 4096 > 4070) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            for (test, whole) in tests.iter().zip(&whole) {
                match search(&changed, test) {
                    Ok(found) => assert_eq!(found, *whole, "byte {at}: {test:?}"),
                    Err(_) => noticed += 1,
                }
            }
        }
        assert!(noticed > 0);
    }
}
