//! Packets of all lanes in order of time: they wait until no older one can come, or for as long as is promised at most.
//!
//! ```text
//! lane 0  | 1 | 4 | 5 |        settled: 5     out: 1 2 3 4 5     what is newer waits
//! lane 1  | 2 | 3 | 7 |
//! ```

use std::time::{Duration, Instant};

/// Bytes that wait at most; beyond, the oldest go on.
const BYTES_MAX: usize = 64 << 20;

/// A packet that waits.
#[derive(Clone, Copy)]
struct Waiting {
    time_ns: i64,
    lane: u32,
    number: u64,
    at: usize,
    len: usize,
    since: Instant,
}

/// Packets that wait.
#[derive(Default)]
pub struct Order {
    blocks: Vec<u8>,
    waiting: Vec<Waiting>,
}

impl Order {
    /// Takes a packet's block, of which `number` is its place in its lane.
    pub fn push(&mut self, (time_ns, lane, number): (i64, u32, u64), block: &[u8], since: Instant) {
        let at = self.blocks.len();
        self.blocks.extend(block);
        self.waiting.push(Waiting { time_ns, lane, number, at, len: block.len(), since });
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether more wait than should.
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= BYTES_MAX
    }

    /// Hands on, in their order, those up to `settled_ns`; and up to the newest of those that have waited for `patience`. Of
    /// more than should wait the older half goes, too.
    pub fn hand_on(
        &mut self,
        settled_ns: i64,
        (now, patience): (Instant, Duration),
        mut each: impl FnMut(u32, &[u8]),
    ) {
        let has_waited = |it: &&Waiting| now.saturating_duration_since(it.since) >= patience;
        let waited_ns = self.waiting.iter().filter(has_waited).map(|it| it.time_ns).max();
        let up_to_ns = waited_ns.unwrap_or(i64::MIN).max(settled_ns);
        if !self.is_full() && !self.waiting.iter().any(|it| it.time_ns <= up_to_ns) {
            return;
        }
        self.waiting.sort_by_key(|it| (it.time_ns, it.lane, it.number));
        let mut going = self.waiting.partition_point(|it| it.time_ns <= up_to_ns);
        if self.is_full() {
            going = going.max(self.waiting.len() / 2);
        }
        for it in &self.waiting[..going] {
            each(it.lane, &self.blocks[it.at..it.at + it.len]);
        }
        let mut left = Vec::new();
        self.waiting.drain(..going);
        for it in &mut self.waiting {
            let at = left.len();
            left.extend_from_slice(&self.blocks[it.at..it.at + it.len]);
            it.at = at;
        }
        if left.is_empty() {
            self.blocks.clear(); // its room serves the next ones
        } else {
            self.blocks = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(500);

    fn out(order: &mut Order, settled_ns: i64, now: Instant) -> Vec<(u32, u8)> {
        let mut out = Vec::new();
        order.hand_on(settled_ns, (now, PATIENCE), |lane, block| out.push((lane, block[0])));
        out
    }

    #[test]
    fn packets_of_lanes_go_by_time_and_those_that_are_not_settled_wait() {
        let (mut order, now) = (Order::default(), Instant::now());
        for (time_ns, lane, number) in [(1, 0, 0), (4, 0, 1), (5, 0, 2), (2, 1, 0), (3, 1, 1), (7, 1, 2)] {
            order.push((time_ns, lane, number), &[time_ns as u8], now);
        }
        assert_eq!(out(&mut order, 0, now), []);
        assert_eq!(out(&mut order, 4, now), [(0, 1), (1, 2), (1, 3), (0, 4)]);
        order.push((5, 1, 3), &[50], now);
        assert_eq!(out(&mut order, 6, now), [(0, 5), (1, 50)], "of one time by lane and number");
        assert_eq!(out(&mut order, i64::MAX, now), [(1, 7)]);
        assert!(order.is_empty());
    }

    #[test]
    fn nothing_waits_for_longer_than_is_promised() {
        let (mut order, now) = (Order::default(), Instant::now());
        order.push((10, 0, 0), &[1], now);
        order.push((5, 0, 1), &[2], now + PATIENCE);
        order.push((20, 0, 2), &[3], now + PATIENCE);
        assert_eq!(out(&mut order, 0, now + PATIENCE), [(0, 2), (0, 1)]);
        assert_eq!(out(&mut order, 0, now + 2 * PATIENCE), [(0, 3)]);
    }

    #[test]
    fn more_than_should_wait_does_not() {
        let (mut order, now) = (Order::default(), Instant::now());
        let block = vec![0; 1 << 20];
        for number in 0..64 {
            order.push((i64::MAX - number as i64, 0, number), &block, now);
        }
        assert!(order.is_full());
        assert_eq!(out(&mut order, 0, now).len(), 32);
        assert!(!order.is_full() && !order.is_empty());
    }
}
