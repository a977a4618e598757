//! Packets of all lanes in order of time: they wait until no older one can come, or for as long as is promised at most.
//!
//! ```text
//! lane 0  | 1 | 4 | 5 |        settled: 5     out: 1 2 3 4 5     what is newer waits
//! lane 1  | 2 | 3 | 7 |
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bytes that wait at most; beyond, the oldest go on.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of blocks that are kept together, and let go together.
const PAGE_BYTES: usize = 1 << 20;

/// A packet that waits.
#[derive(Clone, Copy)]
struct Waiting {
    time_ns: i64,
    lane: u32,
    number: u64,
    /// Number of the page that its block lies in, since the begin.
    page: usize,
    at: usize,
    len: usize,
}

impl Waiting {
    fn key(&self) -> (i64, u32, u64) {
        (self.time_ns, self.lane, self.number)
    }
}

/// Blocks, and how many of them still wait.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    left: usize,
}

/// Packets that wait.
#[derive(Default)]
pub struct Order {
    pages: VecDeque<Page>,
    /// Number of the first page.
    first_page: usize,
    bytes: usize,
    /// In order.
    sorted: VecDeque<Waiting>,
    /// Those that came since.
    fresh: Vec<Waiting>,
    /// When packets came, and the latest time of those that came then, ns.
    came: VecDeque<(Instant, i64)>,
    /// A page that serves again.
    spare: Vec<u8>,
}

impl Order {
    /// Takes a packet's block, of which `number` is its place in its lane. `since` never falls.
    pub fn push(&mut self, (time_ns, lane, number): (i64, u32, u64), block: &[u8], since: Instant) {
        let has_room = |page: &Page| page.bytes.len() + block.len() <= PAGE_BYTES;
        if !self.pages.back().is_some_and(has_room) {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.clear();
            self.pages.push_back(Page { bytes, left: 0 });
        }
        let page = self.first_page + self.pages.len() - 1;
        if let Some(last) = self.pages.back_mut() {
            let at = last.bytes.len();
            last.bytes.extend_from_slice(block);
            last.left += 1;
            self.fresh.push(Waiting { time_ns, lane, number, page, at, len: block.len() });
        }
        self.bytes += block.len();
        match self.came.back_mut().filter(|(when, _)| *when == since) {
            Some((_, latest_ns)) => *latest_ns = time_ns.max(*latest_ns),
            None => self.came.push_back((since, time_ns)),
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.sorted.is_empty() && self.fresh.is_empty()
    }

    /// Whether more wait than should.
    pub fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX
    }

    /// Hands on, in their order, those up to `settled_ns`; and up to the newest of those that have waited for `patience`. Of
    /// more than should wait the older half goes, too.
    pub fn hand_on(
        &mut self,
        settled_ns: i64,
        (now, patience): (Instant, Duration),
        mut each: impl FnMut(u32, &[u8]),
    ) {
        let mut up_to_ns = settled_ns;
        while let Some((_, latest_ns)) =
            self.came.pop_front_if(|(since, _)| now.saturating_duration_since(*since) >= patience)
        {
            up_to_ns = up_to_ns.max(latest_ns);
        }
        self.sort();
        let mut forced = if self.is_full() { self.sorted.len() / 2 } else { 0 };
        while let Some(it) = self.sorted.pop_front_if(|it| forced > 0 || it.time_ns <= up_to_ns) {
            forced = forced.saturating_sub(1);
            let index = it.page - self.first_page;
            let page = &mut self.pages[index];
            each(it.lane, &page.bytes[it.at..it.at + it.len]);
            page.left -= 1;
            self.bytes -= it.len;
            self.let_go();
        }
        if self.sorted.is_empty() {
            self.came.clear();
        }
    }

    /// Puts those that came since among the others.
    fn sort(&mut self) {
        if !self.fresh.is_sorted_by_key(Waiting::key) {
            self.fresh.sort_by_key(Waiting::key);
        }
        let follows = match (self.sorted.back(), self.fresh.first()) {
            (Some(last), Some(first)) => last.key() <= first.key(),
            _ => true,
        };
        self.sorted.extend(self.fresh.drain(..));
        if !follows {
            self.sorted.make_contiguous().sort_by_key(Waiting::key);
        }
    }

    /// Pages of which nothing waits any more, from the first one on, but for the one that is filled.
    fn let_go(&mut self) {
        while self.pages.len() > 1 && self.pages[0].left == 0 {
            self.first_page += 1;
            self.spare = self.pages.pop_front().map(|page| page.bytes).unwrap_or_default();
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
