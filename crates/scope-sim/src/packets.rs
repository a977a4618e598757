//! The packets of a run: what was sent, when, through which interface; their bytes follow from their numbers.

use scope_packet::LinkType;

/// What a packet is, which decides the filters that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    source: u8,
    destination: u8,
    port: u16,
}

/// All kinds. The last two fire the two triggers.
pub(crate) const KINDS: [Kind; 5] = [
    Kind { source: 1, destination: 2, port: 53 },
    Kind { source: 1, destination: 3, port: 80 },
    Kind { source: 4, destination: 2, port: 443 },
    Kind { source: 1, destination: 2, port: 9 },
    Kind { source: 4, destination: 5, port: 7 },
];

/// Filters of dumps, each with the same in plain Rust.
type Naive = fn(Kind) -> bool;
pub(crate) const FILTERS: [(&str, Naive); 5] = [
    ("", |_| true),
    ("udp port 53", |kind| kind.port == 53),
    ("host 10.0.0.1", |kind| kind.source == 1 || kind.destination == 1),
    ("host 10.0.0.2 and not port 443", |kind| {
        (kind.source == 2 || kind.destination == 2) && kind.port != 443
    }),
    ("tcp", |_| false),
];
/// The kinds that fire the triggers, and the triggers' conditions.
pub(crate) const HITS: [Kind; 2] = [KINDS[3], KINDS[4]];
pub(crate) const CONDITIONS: [&str; 2] = ["udp port 9", "udp port 7"];
/// The prefilter of some sources, likewise.
pub(crate) const PREFILTER: (&str, Naive) = ("not udp port 443", |kind| kind.port != 443);

pub(crate) const LINK_TYPES: [LinkType; 3] = [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL];

/// One packet that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Place in the list of all.
    pub number: u32,
    /// Interface, over all sources.
    pub interface: usize,
    pub link_type: LinkType,
    pub kind: Kind,
    pub bytes: u32,
    /// When it comes, ns since the begin of the run.
    pub arrives_ns: i64,
    /// Its capture time.
    pub time_ns: i64,
    /// How often the clock had been set back when it was stamped.
    pub era: usize,
}

/// Bytes of the smallest packet of any link type: headers and the number.
pub(crate) const BYTES_MIN: u32 = 16 + 28 + 8;

impl Sent {
    /// The frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.bytes as usize);
        match self.link_type {
            LinkType::RAW => {}
            LinkType::LINUX_SLL => frame.extend([0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0]),
            _ => frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]),
        }
        let ip_bytes = (self.bytes as usize - frame.len()) as u16;
        let [high, low] = ip_bytes.to_be_bytes();
        frame.extend([
            0x45,
            0,
            high,
            low,
            0,
            1,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            self.kind.source,
            10,
            0,
            0,
            self.kind.destination,
        ]);
        frame.extend(4000u16.to_be_bytes());
        frame.extend(self.kind.port.to_be_bytes());
        frame.extend((ip_bytes - 20).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(b"wsim");
        frame.extend(self.number.to_le_bytes());
        frame.resize(self.bytes as usize, self.number as u8);
        frame
    }
}

/// The number of the packet whose frame this is, by the mark in front of it.
pub(crate) fn number_of(frame: &[u8]) -> Option<u32> {
    let at = [28, 42, 44].into_iter().find(|&at| frame.get(at..at + 4) == Some(b"wsim"))?;
    Some(u32::from_le_bytes(frame.get(at + 4..at + 8)?.try_into().ok()?))
}
