//! Capture files: read in one piece and in small ones, which must give the same, within the promised
//! memory.

use scope_packet::{Gap, Interface, LinkType, Packet, Sink, Turn};
use scope_source::file::{BUFFER_BYTES_MAX, FileSource};
use scope_source::{Polled, Source, SourceCounters};
use std::io::{Cursor, Read};

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

fn read(reader: Box<dyn Read + Send>, len: usize) -> Option<(Seen, SourceCounters, Vec<String>)> {
    let mut source = FileSource::from_reader("in", reader).ok()?;
    let mut seen = Seen::default();
    while source.poll(&mut seen).expect("memory can always be read") != Polled::Ended {}
    assert!(
        source.buffer_bytes_max() <= BUFFER_BYTES_MAX.min((2 * len).max(1 << 20)),
        "{}",
        source.buffer_bytes_max()
    );
    assert!(seen.comments.iter().all(|(at, _)| *at < seen.packets.len()), "a comment of no packet");
    let counters = source.counters();
    assert_eq!(counters.offered, counters.received + counters.unreadable);
    assert_eq!(counters.received, seen.packets.len() as u64);
    // Which of two is reported first depends on how the bytes came.
    let mut warnings = source.warnings();
    warnings.sort_unstable();
    let damaged = seen.gaps.iter().any(|(_, gap)| gap.reason == scope_packet::GapReason::Unreadable);
    assert!(!damaged || !warnings.is_empty(), "damage that is not reported");
    Some((seen, counters, warnings))
}

/// The target.
pub fn check(data: &[u8]) {
    let whole = read(Box::new(Cursor::new(data.to_vec())), data.len());
    let dribbled =
        read(Box::new(Dribble { bytes: Cursor::new(data.to_vec()), next: data.len() % 97 }), data.len());
    assert_eq!(whole, dribbled);
}
