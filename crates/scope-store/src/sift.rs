//! What a question asks of packets, as those who read a store for it evaluate it: each thread for itself.

use scope_packet::{LinkType, SegmentId};
use scope_ring::{Candidate, KeyTest};

/// Which packets are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From this time on, ns.
    pub from_ns: i64,
    /// Up to this time, ns, which belongs to it.
    pub to_ns: i64,
}

/// A question's filter, for packets of any link type.
///
/// A trait, since the room that makes filters of texts lies beside this one. It is called for up to 64 packets at
/// once.
pub trait Sift: Send + Sync {
    /// Which keys the packets can have that it matches: at least those.
    fn keys(&self, link_type: LinkType) -> KeyTest;

    /// Which of these packets of one segment it matches, at most [`SIFTED_MAX`]: a bit each.
    fn select(&self, segment: SegmentId, link_type: LinkType, candidates: &[Candidate<'_>]) -> u64;

    /// It matches every packet, whatever its link type.
    fn is_everything(&self) -> bool;
}

/// Packets that are evaluated at once.
pub const SIFTED_MAX: usize = u64::BITS as usize;

/// Matches every packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everything;

impl Sift for Everything {
    fn keys(&self, _: LinkType) -> KeyTest {
        KeyTest::all()
    }

    fn select(&self, _: SegmentId, _: LinkType, _: &[Candidate<'_>]) -> u64 {
        u64::MAX
    }

    fn is_everything(&self) -> bool {
        true
    }
}
