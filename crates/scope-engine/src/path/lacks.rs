//! What capture files say that they lack, on its way into the segments of their lanes.
//!
//! ```text
//! lies in the open segment and the next one  ─► counted as a drop, behind the open segment's begin
//! may have been earlier, or the file is cut  ─► told by the open segment, without a time
//! its lane gets no packet                    ─► told in the end by another lane of the worker
//! ```
//! A source tells it in front of the batch in whose packets it stands: only then is known how far that reaches.

use super::append::Lane;
use scope_packet::{Gap, GapReason, Packet};

/// Bytes of a packet's block and key entry beside the packet, at most.
const PACKET_BESIDE_BYTES: usize = 72;

/// One statement.
#[derive(Clone, Copy)]
pub(super) struct Lack {
    /// The interface whose packets are lacking.
    pub interface: u32,
    /// So many were dropped.
    pub dropped: u64,
    /// 1: the file is damaged or truncated, and nobody knows how many.
    pub cut: u32,
    from_ns: i64,
    to_ns: i64,
}

impl Lack {
    /// What a gap of a capture file says; `None`: it is another one.
    pub fn of(interface: u32, gap: &Gap) -> Option<Lack> {
        let Gap { from_ns, to_ns, reason, lost_min, lost_max } = *gap;
        let (dropped, cut) = match reason {
            GapReason::File => (lost_max.unwrap_or(lost_min), u32::from(lost_max.is_none())),
            GapReason::Unreadable => (0, 1),
            _ => return None,
        };
        Some(Lack { interface, dropped, cut, from_ns, to_ns })
    }

    /// As many packets as statistics count for it.
    pub fn packets(&self) -> u64 {
        self.dropped.saturating_add(self.cut.into())
    }

    /// Whether it can lie nowhere but in the open segment of its lane and the one behind it; `together`: the packets that
    /// are stored next fit into one segment.
    pub fn is_placed(&self, lane: &Lane, together: bool) -> bool {
        let from_ns = lane.writer.open_from_ns();
        let is_behind = from_ns.is_some_and(|from_ns| from_ns <= self.from_ns) && self.from_ns <= self.to_ns;
        is_behind && self.cut == 0 && together
    }
}

/// Whether packets fit into an empty segment.
pub(super) fn fit_into_one(packets: &[Packet<'_>], segment_bytes: usize) -> bool {
    let bytes: usize = packets.iter().map(|packet| packet.data.len() + PACKET_BESIDE_BYTES).sum();
    bytes <= segment_bytes * 3 / 4 // the rest has room for foot and statistics
}

/// Nothing more comes: what stands in no segment since its lane has none, another lane tells.
pub(super) fn tell_by_others(lanes: &mut [Lane]) {
    let Some(open) = lanes.iter().position(|lane| lane.writer.is_open()) else { return };
    for lane in 0..lanes.len() {
        let losses = lanes[lane].writer.take_unstated_losses();
        if losses.told == 0 {
            continue;
        }
        let lost: Vec<(u32, u64)> = lanes[lane].writer.lost().collect();
        let writer = &mut lanes[open].writer;
        writer.note_file_losses(losses.dropped, losses.cut);
        for (number, packets) in lost {
            let index = writer.add_interface(number);
            writer.count_lost(index, packets);
        }
    }
}
