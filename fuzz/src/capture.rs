//! Capture files: read in one piece and in small ones, which must give the same, within the promised
//! memory.

use scope_packet::{Gap, Interface, LinkType, Packet, Sink, Turn};
use scope_source::file::{BUFFER_BYTES_MAX, FileSource};
use scope_source::spec::FileForm;
use scope_source::{Polled, Source, SourceCounters};
use std::io::{Cursor, Read};

/// So many packets of an input are looked at: what is compressed may hold millions.
const PACKETS_MAX: usize = 20_000;

/// Everything that a source says of a file.
#[derive(Default, Debug, PartialEq)]
struct Seen {
    links: Vec<LinkType>,
    packets: Vec<(i64, Vec<u8>, u32, u32, u32, u64)>,
    gaps: Vec<(u32, Gap)>,
    /// Of packets, by their number.
    comments: Vec<(usize, String)>,
    /// What stands beside packets: the part, and the block.
    annexes: Vec<(u32, Vec<u8>)>,
    /// Before the packet of this number.
    turns: Vec<(usize, Turn)>,
}

impl Sink for Seen {
    fn interface(&mut self, interface: &Interface) {
        self.links.push(interface.link_type);
    }

    fn batch(&mut self, packets: &[Packet<'_>]) {
        for packet in packets {
            assert!((packet.interface as usize) < self.links.len() && packet.time_ns >= 0);
            let Packet { time_ns, original_len, interface, flags, lost_before, .. } = *packet;
            self.packets.push((time_ns, packet.data.to_vec(), original_len, interface, flags, lost_before));
        }
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {
        panic!("a file loses nothing on its own");
    }

    fn gap(&mut self, interface: u32, gap: Gap) {
        assert!((interface as usize) < self.links.len() && gap.from_ns <= gap.to_ns);
        assert!(gap.lost_max.is_none_or(|most| gap.lost_min <= most));
        self.gaps.push((interface, gap));
    }

    fn turn(&mut self, turn: Turn) {
        self.turns.push((self.packets.len(), turn));
    }

    fn comments(&mut self, comments: &[(usize, &str)]) {
        self.comments.extend(comments.iter().map(|(at, text)| (self.packets.len() + at, text.to_string())));
    }

    fn annex(&mut self, part: u32, block: &[u8]) {
        let word = |at: usize| {
            block.get(at..at + 4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        };
        assert!(block.len() >= 12 && block.len() % 4 == 0, "{block:?}");
        assert_eq!((word(4), word(block.len() - 4)), (Some(block.len() as u32), Some(block.len() as u32)));
        self.annexes.push((part, block.to_vec()));
    }

    fn idle(&mut self, _: i64) {}
}

/// Gives its bytes in pieces of odd sizes.
struct Dribble {
    bytes: Cursor<Vec<u8>>,
    next: usize,
}

impl Read for Dribble {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.next = self.next * 5 % 97 + 1;
        let len = self.next.min(into.len());
        self.bytes.read(&mut into[..len])
    }
}

/// Reads it all; `len`: the bytes of it, if these are not compressed.
fn read(
    reader: Box<dyn Read + Send>,
    len: Option<usize>,
    form: FileForm,
) -> Option<(Seen, SourceCounters, Vec<String>)> {
    let mut source = FileSource::from_reader("in", reader, form).ok()?;
    let mut seen = Seen::default();
    while source.poll(&mut seen).expect("memory can always be read") != Polled::Ended
        && seen.packets.len() < PACKETS_MAX
    {}
    assert!(
        source.buffer_bytes_max()
            <= BUFFER_BYTES_MAX.min(len.map_or(usize::MAX, |len| (2 * len).max(1 << 20))),
        "{}",
        source.buffer_bytes_max()
    );
    if seen.packets.len() >= PACKETS_MAX {
        let packets = seen.packets.drain(..PACKETS_MAX).collect();
        return Some((Seen { packets, ..Seen::default() }, SourceCounters::default(), Vec::new()));
    }
    assert!(seen.comments.iter().all(|(at, _)| *at < seen.packets.len()), "a comment of no packet");
    let counters = source.counters();
    assert_eq!(counters.offered, counters.received + counters.unreadable);
    assert_eq!(counters.received, seen.packets.len() as u64);
    // Which of two is reported first depends on how the bytes came.
    let mut warnings = source.warnings();
    warnings.sort_unstable();
    // Blocks that are not kept are counted as they are come upon: how many at once is no matter.
    let mut not_kept = 0;
    warnings.retain(|text| {
        let count =
            text.strip_prefix("in: ").and_then(|text| text.split_once(" blocks with names or secrets"));
        let count = count.and_then(|(count, _)| count.parse::<u64>().ok());
        not_kept += count.unwrap_or(0);
        count.is_none()
    });
    warnings.push(format!("{not_kept} blocks are not kept"));
    let damaged = seen.gaps.iter().any(|(_, gap)| gap.reason == scope_packet::GapReason::Unreadable);
    assert!(!damaged || warnings.len() > 1, "damage that is not reported");
    Some((seen, counters, warnings))
}

/// Read in one piece and in small ones it is the same.
fn reads_the_same(data: &[u8], len: Option<usize>, form: FileForm) {
    let whole = read(Box::new(Cursor::new(data.to_vec())), len, form);
    let pieces = Dribble { bytes: Cursor::new(data.to_vec()), next: data.len() % 97 };
    let dribbled = read(Box::new(pieces), len, form);
    assert_eq!(whole, dribbled);
}

/// The target: a capture, compressed or not.
pub fn check(data: &[u8]) {
    let is_packed =
        matches!(data, [0x1f, 0x8b, ..] | [0x28, 0xb5, ..] | [0x04, 0x22, ..] | [_, 0x2a, 0x4d, 0x18, ..]);
    reads_the_same(data, (!is_packed).then_some(data.len()), FileForm::Detected);
}

/// The target for what is compressed: nothing is known of the length of what comes out.
pub fn compressed(data: &[u8]) {
    reads_the_same(data, None, FileForm::Detected);
}

/// The target for HPCAP's raw records, which are compressed only where they begin so.
pub fn hpcap(data: &[u8]) {
    reads_the_same(data, None, FileForm::Hpcap(LinkType::ETHERNET));
}
