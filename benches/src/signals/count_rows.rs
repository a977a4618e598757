//! `count_by_key_ns`: a count by source address of 100,000 keys on packets that match, against one thread with a map of
//! hashbrown that does the same packet by packet.
//!
//! Both sides see the same parsed packets, take the key from them, and must fire with the same. The parse and the filter
//! are what a worker has at hand anyway, and are not measured. Packets of a batch lie in the caches.
//!
//! ```text
//! peer   for each packet: its address, its times in the map; what is too old leaves, one more comes
//! ours   for each packet: its key (Template::values); for the batch: PatternState::feed, as the thread that joins does
//! ```
//! A case is how many matches of a key are in the window on average, and how many are needed. Timed is the second half of
//! the packets: by then all keys have come, and windows are full. The rows that are of the first half have keys that
//! come, and memory that grows; no bar is of them.

use crate::Scale;
use crate::table::Table;
use hashbrown::HashMap;
use scope_filter::{Values, VlanRule};
use scope_packet::{Headers, LinkType, Moment};
use scope_testkit::traffic::Random;
use scope_trigger::{COUNT_BYTES_DEFAULT, Match, Pattern, PatternState};
use std::collections::VecDeque;
use std::hash::Hash;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// The row.
pub const ROW: &str = "count_by_key_ns";
/// What its rows are of.
pub const PEER: &str = "hashbrown";
/// See [`PEER`].
pub const OURS: &str = "ours";
/// What is said of rows of the first half.
const FIRST: &str = ", first half";
const KEYS: u32 = 100_000;
/// Matches of a case, per event of the scale.
const MATCHES_PER_EVENT: u64 = 60;
/// Time between two packets, ns.
const GAP_NS: i64 = 100;
/// Packets that are handed over at once: a few batches of a worker.
const FED: usize = 256;
/// Of our hash.
const SEED: [u64; 2] = [0x5eed, 0xfeed];

/// One case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Matches of a key in the window, on average.
    live: u32,
    needed: usize,
}

/// From a scan whose keys come once to keys that are always near the bound.
pub const CASES: [Case; 5] = [
    Case { live: 1, needed: 21 },
    Case { live: 5, needed: 21 },
    Case { live: 18, needed: 21 },
    Case { live: 30, needed: 21 },
    Case { live: 30, needed: 101 },
];

impl Case {
    /// What a row of it is of.
    pub fn name(self, side: &str) -> String {
        format!("{} in the window, {} needed, {side}", self.live, self.needed)
    }

    fn span_ns(self) -> i64 {
        i64::from(self.live) * i64::from(KEYS) * GAP_NS
    }

    fn pattern(self) -> Pattern {
        let (needed, span_ns) = (self.needed, self.span_ns());
        let text = format!("count(tcp[tcpflags] & tcp-syn != 0 by $srcIP) >= {needed} in {span_ns}ns");
        Pattern::parse(&text, VlanRule::Transparent, &[]).expect("a count")
    }
}

/// A parsed packet.
type Seen = (Headers, [u8; 60]);

/// Both sides of every case.
pub fn round(scale: Scale, table: &mut Table) {
    let matches = (scale.events * MATCHES_PER_EVENT) as usize;
    let packets: Vec<[u8; 60]> = (0..KEYS).map(packet).collect();
    let mut random = Random::new(1);
    let numbers: Vec<u32> = (0..matches).map(|_| random.below(KEYS.into()) as u32).collect();
    for case in CASES {
        let mut results = if table.round().is_multiple_of(2) {
            let peer = peer(case, &packets, &numbers);
            [peer, ours(case, &packets, &numbers)]
        } else {
            let ours = ours(case, &packets, &numbers);
            [peer(case, &packets, &numbers), ours]
        };
        if results[0].fired != results[1].fired {
            let [peer, ours] = &results;
            let fault = format!("{} fire, and {} of hashbrown", ours.fired.len(), peer.fired.len());
            results[1].fault.get_or_insert(fault);
        }
        for (side, result) in [PEER, OURS].into_iter().zip(results) {
            for (ns, half) in result.ns.into_iter().zip([FIRST, ""]) {
                let outcome = result.fault.clone().map_or(Ok(ns), Err);
                table.put(ROW, &(case.name(side) + half), "ns", outcome);
            }
        }
    }
}

/// What a side needed and with which packets it fired.
struct Outcome {
    /// Per packet, of both halves.
    ns: [f64; 2],
    fired: Vec<usize>,
    fault: Option<String>,
}

/// A SYN from a source of its own for each number.
fn packet(number: u32) -> [u8; 60] {
    let mut packet = vec![2; 12];
    packet.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    packet.extend(Ipv4Addr::from(0x0a00_0000 + number.wrapping_mul(2_654_435_761) % 0x00ff_ffff).octets());
    packet.extend([192, 0, 2, 1, 0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]);
    packet.resize(60, 0);
    packet.try_into().expect("60 bytes")
}

/// Hands packets over batch by batch; only what `count` does is timed.
fn per_match(packets: &[[u8; 60]], numbers: &[u32], mut count: impl FnMut(usize, &[Seen])) -> [f64; 2] {
    let mut seen: Vec<Seen> = Vec::with_capacity(FED);
    let mut elapsed = [Duration::ZERO; 2];
    let chunks = numbers.len().div_ceil(FED);
    for (chunk, numbers) in numbers.chunks(FED).enumerate() {
        seen.clear();
        seen.extend(numbers.iter().map(|&number| {
            let packet = packets[number as usize];
            (Headers::parse(LinkType::ETHERNET, &packet), packet)
        }));
        let begun = Instant::now();
        count(chunk * FED, &seen);
        elapsed[usize::from(chunk >= chunks / 2)] += begun.elapsed();
    }
    elapsed.map(|elapsed| elapsed.as_nanos() as f64 * 2.0 / numbers.len() as f64)
}

/// One thread with a map, match by match: exact, as we are.
struct Naive<K>(HashMap<K, VecDeque<i64>>);

impl<K: Hash + Eq> Naive<K> {
    /// Whether a match of `key` fires.
    fn counts(&mut self, key: K, now_ns: i64, needed: usize, span_ns: i64) -> bool {
        let times = self.0.entry(key).or_default();
        while times.front().is_some_and(|&time_ns| time_ns <= now_ns - span_ns) {
            times.pop_front();
        }
        times.push_back(now_ns);
        times.len() == needed
    }
}

fn peer(case: Case, packets: &[[u8; 60]], numbers: &[u32]) -> Outcome {
    let address = |(headers, packet): &Seen| -> IpAddr {
        match *headers.address_bytes(packet).expect("addresses").0 {
            [a, b, c, d] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            _ => unreachable!("packets are of IPv4"),
        }
    };
    let (mut naive, mut fired) = (Naive(HashMap::new()), Vec::new());
    let ns = per_match(packets, numbers, |from, seen| {
        for (index, one) in (from..).zip(seen) {
            if naive.counts(address(one), index as i64 * GAP_NS, case.needed, case.span_ns()) {
                fired.push(index);
            }
        }
    });
    drop(black_box(naive));
    Outcome { ns, fired, fault: None }
}

fn ours(case: Case, packets: &[[u8; 60]], numbers: &[u32]) -> Outcome {
    let pattern = case.pattern();
    let key = pattern.key().expect("a key");
    let mut state = PatternState::new(&pattern, COUNT_BYTES_DEFAULT, SEED);
    let (mut batch, mut hits, mut fired) = (Vec::with_capacity(FED), Vec::new(), Vec::new());
    let match_of = |index: usize, key: Values| Match {
        at: Moment::new(0, index as i64 * GAP_NS),
        key,
        packet: index as u64,
        handle: 0,
        lane: 0,
        step: 0,
    };
    let ns = per_match(packets, numbers, |from, seen| {
        batch.clear();
        batch.extend((from..).zip(seen).map(|(index, (headers, packet))| {
            match_of(index, key.values(headers, LinkType::ETHERNET, packet).expect("an address"))
        }));
        hits.clear();
        state.feed(&batch, &mut hits);
        fired.extend(hits.iter().map(|hit| from + hit.index));
    });
    let report = state.report();
    let is_exact = report.degraded_since.is_none() && report.matches == numbers.len() as u64;
    Outcome { ns, fired, fault: (!is_exact).then(|| format!("{report:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_fire_with_the_same_packets() {
        let packets: Vec<[u8; 60]> = (0..100).map(packet).collect();
        let mut random = Random::new(3);
        let numbers: Vec<u32> = (0..20_000).map(|_| random.below(100) as u32).collect();
        let case = Case { live: 1, needed: 1000 };
        let (peer, ours) = (peer(case, &packets, &numbers), ours(case, &packets, &numbers));
        assert!(peer.fired.is_empty() && ours.fired.is_empty() && ours.fault.is_none(), "{:?}", ours.fault);
        let case = Case { live: 1, needed: 150 };
        let (peer, ours) = (super::peer(case, &packets, &numbers), super::ours(case, &packets, &numbers));
        assert!(peer.fired == ours.fired && peer.fired.len() == 100, "{}", peer.fired.len());
    }
}
