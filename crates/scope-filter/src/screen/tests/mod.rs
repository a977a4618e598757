//! What screening promises: it never loses a packet, and it is worth something.

mod captures;
mod packets;
mod sound;
mod worth;

use scope_packet::{Headers, KeyEntry, Kind, LinkType};

use super::SegmentFacts;

fn entry(link: LinkType, data: &[u8]) -> KeyEntry {
    KeyEntry::new(&Headers::parse(link, data))
}

/// A summary without false positives: all entries.
struct Segment<'a>(&'a [KeyEntry]);

impl SegmentFacts for Segment<'_> {
    fn may_have_partial(&self) -> bool {
        self.0.iter().any(KeyEntry::partial)
    }

    fn may_have_address(&self, address: [u8; 4]) -> bool {
        self.0.iter().any(|entry| entry.source == address || entry.destination == address)
    }

    fn may_have_port(&self, port: u16) -> bool {
        self.0.iter().any(|entry| entry.source_port == port || entry.destination_port == port)
    }

    fn may_have_protocol(&self, protocol: u8) -> bool {
        self.0.iter().any(|entry| entry.protocol() == protocol)
    }

    fn may_have_kind(&self, kind: Kind) -> bool {
        self.0.iter().any(|entry| entry.kind() == kind)
    }
}
