//! Packets that aren't as they are on the wire, counted by why.

/// Packets of a live source that aren't as they are, or were, on the wire. All of them count as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Altered {
    /// Received, and longer than the interface's MTU: card or kernel joined several (GRO, LRO), or the peer's
    /// MTU is larger.
    pub joined: u64,
    /// Sent by this host, and longer than the MTU: the card is to split them (TSO, GSO).
    pub split: u64,
    /// Their checksum has still to be filled in (checksum offload).
    pub unchecked: u64,
    /// Those of them that this host sent.
    pub unchecked_sent: u64,
    /// Longer than the MTU where the direction isn't known: joined, or still to be split.
    pub long: u64,
    /// Truncated to the configured snap length.
    pub sliced: u64,
    /// Truncated by the kernel: they didn't fit into a block of its ring.
    pub cut_by_block: u64,
    /// Truncated to the most bytes of a packet that this program keeps.
    pub cut_by_bound: u64,
}

impl Altered {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Altered) {
        self.joined += other.joined;
        self.split += other.split;
        self.unchecked += other.unchecked;
        self.unchecked_sent += other.unchecked_sent;
        self.long += other.long;
        self.sliced += other.sliced;
        self.cut_by_block += other.cut_by_block;
        self.cut_by_bound += other.cut_by_bound;
    }

    /// Counts why a packet of `original_len` bytes has only `len`, of which `snap_len` were to be kept
    /// (`None`: all).
    pub fn count_truncated(&mut self, original_len: usize, len: usize, snap_len: Option<usize>) {
        if len >= original_len {
            return;
        }
        match snap_len {
            Some(most) if len >= most => self.sliced += 1,
            _ if len >= super::SNAP_LEN_MAX as usize => self.cut_by_bound += 1,
            _ => self.cut_by_block += 1,
        }
    }
}
