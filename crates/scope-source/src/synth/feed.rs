//! The two ways to get the next frames of a worker: lent from a prepared pool, or made afresh.

use std::sync::Arc;

use scope_packet::{BATCH_PACKETS_MAX, Packet, Sink};

use super::schedule::Ticker;
use super::traffic::Traffic;
use super::{POOL_BYTES_MAX, POOL_PACKETS_MIN, Prepare, SynthOptions};

const NO_PACKET: Packet<'static> =
    Packet { data: &[], original_len: 0, time_ns: 0, interface: 0, flags: 0, lost_before: 0 };

/// Which part of the flows a worker feeds: those whose number modulo `workers` is `worker`.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Number of the worker.
    pub worker: u32,
    /// How many there are.
    pub workers: u32,
}

impl Share {
    fn owns(self, flow: u32) -> bool {
        flow % self.workers == self.worker
    }
}

/// The background packets of one worker, in order of their numbers.
#[derive(Debug)]
pub enum Feed {
    /// Lent from a pool.
    Prepared(Pool),
    /// Made for each batch.
    Fresh(Fresh),
}

impl Feed {
    /// Prepares the traffic of `options`; `packets` is how many the whole run sends.
    pub fn new(traffic: &Arc<Traffic>, options: &SynthOptions, packets: u64, share: Share) -> Feed {
        let ticker = Ticker::new(options.rate_or_default());
        match pool_bounds(options) {
            Some(bounds) => {
                Feed::Prepared(Pool::new(traffic, share, ticker, bounds.0.min(packets), bounds.1))
            }
            None => Feed::Fresh(Fresh::new(traffic.clone(), share, ticker)),
        }
    }

    /// Number of the next packet; `u64::MAX` if there is none.
    pub fn next_number(&self) -> u64 {
        match self {
            Feed::Prepared(pool) => pool.next_number(),
            Feed::Fresh(fresh) => fresh.next,
        }
    }

    /// Pushes one batch of at most `packets_max` packets with numbers below `bound`; returns how many. The
    /// next number must be below `bound`.
    pub fn push(&mut self, sink: &mut dyn Sink, start_ns: i64, bound: u64, packets_max: usize) -> usize {
        let packets_max = packets_max.min(BATCH_PACKETS_MAX);
        match self {
            Feed::Prepared(pool) => pool.push(sink, start_ns, bound, packets_max),
            Feed::Fresh(fresh) => fresh.push(sink, start_ns, bound, packets_max),
        }
    }
}

/// At most so many packets and so many bytes; `None` where nothing is prepared.
fn pool_bounds(options: &SynthOptions) -> Option<(u64, u64)> {
    match options.prepare {
        Prepare::Off => None,
        Prepare::On => Some((POOL_PACKETS_MIN.max(u64::from(options.flows) * 4), POOL_BYTES_MAX / 16)),
        Prepare::Bytes(bytes) => Some((u64::MAX, bytes)),
    }
}

fn packet(data: &[u8], start_ns: i64, offset_ns: u64) -> Packet<'_> {
    Packet {
        data,
        original_len: data.len() as u32,
        time_ns: start_ns.saturating_add_unsigned(offset_ns),
        interface: 0,
        flags: 0,
        lost_before: 0,
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    bytes: u32,
    number: u32,
}

/// The worker's frames among packets 0..`period` of the traffic, side by side, fed over and over with new
/// times.
#[derive(Debug)]
pub struct Pool {
    frames: Vec<u8>,
    entries: Vec<Entry>,
    period: u64,
    /// Index of the next entry.
    next: usize,
    /// Number of the first packet of the round being fed.
    round_at: u64,
    ticker: Ticker,
}

impl Pool {
    /// The period ends before `packets_max` packets or `bytes_max` bytes of all workers together are
    /// exceeded, but holds at least one packet; it doesn't depend on the number of workers.
    fn new(traffic: &Traffic, share: Share, ticker: Ticker, packets_max: u64, bytes_max: u64) -> Pool {
        let mut pool =
            Pool { frames: Vec::new(), entries: Vec::new(), period: 0, next: 0, round_at: 0, ticker };
        let mut bytes = 0;
        while pool.period < packets_max.min(u64::from(u32::MAX)).max(1) {
            bytes += traffic.bytes_of(pool.period) as u64;
            if bytes > bytes_max && pool.period > 0 {
                break;
            }
            if share.owns(traffic.flow_of(pool.period)) {
                pool.prepare(traffic, pool.period as u32);
            }
            pool.period += 1;
        }
        pool
    }

    fn prepare(&mut self, traffic: &Traffic, number: u32) {
        let at = self.frames.len();
        traffic.write(u64::from(number), &mut self.frames);
        self.entries.push(Entry { at: at as u32, bytes: (self.frames.len() - at) as u32, number });
    }

    fn next_number(&self) -> u64 {
        self.entries.get(self.next).map_or(u64::MAX, |entry| self.round_at + u64::from(entry.number))
    }

    fn push(&mut self, sink: &mut dyn Sink, start_ns: i64, bound: u64, packets_max: usize) -> usize {
        let mut batch = [NO_PACKET; BATCH_PACKETS_MAX];
        let mut count = 0;
        for room in &mut batch[..packets_max] {
            let entry = self.entries[self.next];
            let number = self.round_at + u64::from(entry.number);
            if number >= bound {
                break;
            }
            let frame = &self.frames[entry.at as usize..][..entry.bytes as usize];
            *room = packet(frame, start_ns, self.ticker.advance_to(number));
            count += 1;
            self.next += 1;
            if self.next == self.entries.len() {
                self.next = 0;
                self.round_at += self.period;
            }
        }
        sink.batch(&batch[..count]);
        count
    }
}

/// Every packet made anew, one batch at a time.
#[derive(Debug)]
pub struct Fresh {
    traffic: Arc<Traffic>,
    share: Share,
    next: u64,
    ticker: Ticker,
    frames: Vec<u8>,
}

impl Fresh {
    fn new(traffic: Arc<Traffic>, share: Share, ticker: Ticker) -> Fresh {
        let mut fresh = Fresh { traffic, share, next: 0, ticker, frames: Vec::new() };
        fresh.seek(0);
        fresh
    }

    /// Finds the worker's first packet from `number` on. Ends because every worker owns a flow.
    fn seek(&mut self, mut number: u64) {
        while !self.share.owns(self.traffic.flow_of(number)) {
            number += 1;
        }
        self.next = number;
    }

    fn push(&mut self, sink: &mut dyn Sink, start_ns: i64, bound: u64, packets_max: usize) -> usize {
        self.frames.clear();
        let mut made = [(0, 0, 0); BATCH_PACKETS_MAX];
        let mut count = 0;
        while count < packets_max && self.next < bound {
            let at = self.frames.len();
            self.traffic.write(self.next, &mut self.frames);
            made[count] = (at, self.frames.len(), self.ticker.advance_to(self.next));
            count += 1;
            self.seek(self.next + 1);
        }
        let mut batch = [NO_PACKET; BATCH_PACKETS_MAX];
        for (room, (from, to, offset_ns)) in batch.iter_mut().zip(&made[..count]) {
            *room = packet(&self.frames[*from..*to], start_ns, *offset_ns);
        }
        sink.batch(&batch[..count]);
        count
    }
}
