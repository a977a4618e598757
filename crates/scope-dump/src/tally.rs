//! Tallies: packets, their bytes and the span of their times, as files and the spool count them.

use scope_packet::pcapng;

/// Packets, their bytes, and the smallest and largest of their times.
#[derive(Default)]
pub(crate) struct Tally {
    pub packets: u64,
    pub bytes: u64,
    /// Of the packets: shorter than on the wire, and not by a snap length.
    pub cut: u64,
    pub span_ns: Option<(i64, i64)>,
}

impl Tally {
    /// One packet's block, captured with snap length `snap_len`; 0: all of it.
    pub(crate) fn of(time_ns: i64, block: &[u8], snap_len: u32) -> Tally {
        let (len, original_len) = (pcapng::le32(block, 20), pcapng::le32(block, 24));
        let cut = u64::from(len < original_len && (snap_len == 0 || len < snap_len));
        Tally { packets: 1, bytes: len.into(), cut, span_ns: Some((time_ns, time_ns)) }
    }

    /// Takes back what was added; the span stays.
    pub(crate) fn subtract(&mut self, other: &Tally) {
        self.packets = self.packets.saturating_sub(other.packets);
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.cut = self.cut.saturating_sub(other.cut);
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.cut += other.cut;
        self.span_ns =
            self.span_ns.into_iter().chain(other.span_ns).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }
}
