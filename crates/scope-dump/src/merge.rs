//! The reorder buffer: packets of all lanes come in as they are read, and go out by time, ties by (lane,
//! packet number).
//!
//! A packet may go out once nothing older can come: at a *floor* that the reader of the lanes knows. What
//! must wait is copied here, so that the ring isn't held; the buffer is bounded, and when it is full its
//! oldest packets go out before their time. Whatever comes for a position that has already gone out is late
//! (module `late`).

use scope_ring::Lost;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Bytes that wait in the buffer of one dump at most; beyond, the oldest go out early.
pub const WAITING_BYTES_MAX: usize = 16 << 20;
/// Bytes that wait in the buffers of all dumps of a run together, at most: where there are more dumps than
/// that has room for, each has an equal part.
pub const WAITING_BYTES_TOGETHER: usize = 512 << 20;
/// But no less than this, so that a little order is kept: of the most dumps that a run may have (4096, those
/// that are closing, and one by hand) all together stay within the bound.
const WAITING_BYTES_MIN: usize = 60 << 10;
/// What a packet that waits takes beside its block: its position, and what memory costs by itself.
const ENTRY_BYTES: usize = size_of::<(Position, Box<[u8]>)>() + 16;

/// Bytes that each of the two buffers of a dump may take, one of so many dumps.
pub fn waiting_bytes(dumps: usize) -> usize {
    (WAITING_BYTES_TOGETHER / 2 / dumps.max(1)).clamp(WAITING_BYTES_MIN, WAITING_BYTES_MAX)
}

/// The position of a packet in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Capture time, ns.
    pub time_ns: i64,
    /// Lane.
    pub lane: u32,
    /// Number in the lane.
    pub packet: u64,
}

/// No packet that is still to come has an earlier position than this: a time, ns, and the lane at that time.
pub type Floor = (i64, u32);

impl Position {
    /// Whether nothing can come before it any more.
    pub fn is_due(&self, floor: Floor) -> bool {
        (self.time_ns, self.lane) <= floor
    }
}

/// Packets that wait for their turn.
#[derive(Default)]
pub struct Waiting {
    heap: BinaryHeap<Reverse<(Position, Box<[u8]>)>>,
    bytes: usize,
    /// Packets that went out before their time, because there was no room for them.
    early: u64,
}

impl Waiting {
    /// Packets that went out before their time since the last call.
    pub fn take_early(&mut self) -> u64 {
        std::mem::take(&mut self.early)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes a copy of a packet's block.
    pub fn push(&mut self, position: Position, block: &[u8]) {
        self.bytes += block.len() + ENTRY_BYTES;
        self.heap.push(Reverse((position, block.into())));
    }

    /// The next packet that may go out: nothing can come before it, or the buffer has more than `bytes_max`.
    pub fn pop(&mut self, floor: Floor, bytes_max: usize) -> Option<(Position, Box<[u8]>)> {
        let Reverse((position, _)) = self.heap.peek()?;
        let is_due = position.is_due(floor);
        if !is_due && self.bytes <= bytes_max {
            return None;
        }
        self.early += u64::from(!is_due);
        let Reverse((position, block)) = self.heap.pop()?;
        self.bytes -= block.len() + ENTRY_BYTES;
        Some((position, block))
    }
}

/// Packets behind the end of a window that may still grow. Bounded as the reorder buffer is: beyond, the
/// latest are given up, which is a loss only if the window grows up to them.
#[derive(Default)]
pub struct Beyond {
    packets: BTreeMap<Position, Box<[u8]>>,
    bytes: usize,
    /// Packets given up, and the smallest time among them.
    given_up: u64,
    given_up_from_ns: i64,
}

impl Beyond {
    /// Keeps a copy of a packet's block, of all together no more than `bytes_max`.
    pub fn push(&mut self, position: Position, block: &[u8], bytes_max: usize) {
        self.bytes += block.len() + ENTRY_BYTES;
        self.packets.insert(position, block.into());
        while self.bytes > bytes_max
            && let Some((position, block)) = self.packets.pop_last()
        {
            self.bytes -= block.len() + ENTRY_BYTES;
            self.given_up_from_ns = if self.given_up == 0 {
                position.time_ns
            } else {
                self.given_up_from_ns.min(position.time_ns)
            };
            self.given_up += 1;
        }
    }

    /// The window reaches to `to_ns` by now: what is inside waits for its turn.
    pub fn inside(&mut self, to_ns: i64, waiting: &mut Waiting) {
        while let Some(first) = self.packets.first_entry()
            && first.key().time_ns <= to_ns
        {
            let (position, block) = first.remove_entry();
            self.bytes -= block.len() + ENTRY_BYTES;
            waiting.push(position, &block);
        }
    }

    /// What giving up cost a window that ended at `to_ns`.
    pub fn lost(&self, to_ns: i64) -> Lost {
        if self.given_up == 0 || self.given_up_from_ns > to_ns {
            return Lost::default();
        }
        Lost::between(1, self.given_up, self.given_up_from_ns, to_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(time_ns: i64, lane: u32, packet: u64) -> Position {
        Position { time_ns, lane, packet }
    }

    #[test]
    fn packets_go_out_by_time_then_lane_then_number_and_not_before_the_floor() {
        let mut waiting = Waiting::default();
        let input =
            [position(5, 1, 0), position(5, 0, 9), position(3, 7, 1), position(5, 0, 2), position(8, 0, 0)];
        for &p in &input {
            waiting.push(p, &[0; 4]);
        }
        let out: Vec<Position> =
            std::iter::from_fn(|| waiting.pop((5, 0), WAITING_BYTES_MAX)).map(|(p, _)| p).collect();
        assert_eq!(
            out,
            [position(3, 7, 1), position(5, 0, 2), position(5, 0, 9)],
            "of lane 0 some may come that precede lane 1s"
        );
        assert_eq!(waiting.pop((5, 1), WAITING_BYTES_MAX).map(|(p, _)| p), Some(position(5, 1, 0)));
        assert!(!waiting.is_empty());
    }

    #[test]
    fn what_lies_beyond_comes_in_when_the_window_grows_and_giving_up_is_a_loss_only_then() {
        let (mut beyond, mut waiting) = (Beyond::default(), Waiting::default());
        let block = vec![0; WAITING_BYTES_MAX / 4 - ENTRY_BYTES];
        for n in 0..6 {
            beyond.push(position(10 + n, 0, n as u64), &block, WAITING_BYTES_MAX);
        }
        assert_eq!(beyond.lost(13), Lost::default());
        beyond.inside(12, &mut waiting);
        let out: Vec<i64> = std::iter::from_fn(|| waiting.pop((i64::MAX, u32::MAX), WAITING_BYTES_MAX))
            .map(|(p, _)| p.time_ns)
            .collect();
        assert_eq!(out, [10, 11, 12]);
        assert_eq!(beyond.lost(20), Lost::between(1, 2, 14, 20));
    }

    #[test]
    fn a_full_buffer_lets_its_oldest_go_early() {
        let mut waiting = Waiting::default();
        let block = vec![0; WAITING_BYTES_MAX / 4 - ENTRY_BYTES];
        for n in 0..5 {
            waiting.push(position(n, 0, n as u64), &block);
        }
        assert_eq!(waiting.pop((-1, 0), WAITING_BYTES_MAX).map(|(p, _)| p.time_ns), Some(0));
        assert!(waiting.pop((-1, 0), WAITING_BYTES_MAX).is_none());
        assert_eq!((waiting.take_early(), waiting.take_early()), (1, 0));
        assert_eq!(
            waiting.pop((-1, 0), WAITING_BYTES_MAX / 2).map(|(p, _)| p.time_ns),
            Some(1),
            "there are more dumps now"
        );
    }

    #[test]
    fn what_all_dumps_together_may_buffer_has_a_bound() {
        for dumps in [1, 16, 17, 100, 1000, 4096 + 64 + 1] {
            assert!(dumps * 2 * waiting_bytes(dumps) <= WAITING_BYTES_TOGETHER, "{dumps}");
        }
        assert_eq!((waiting_bytes(0), waiting_bytes(1)), (WAITING_BYTES_MAX, WAITING_BYTES_MAX));
    }
}
