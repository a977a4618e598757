//! What a count by key costs per match, over one thread with `hashbrown` that does the same match by match.
//!
//! Both sides see the same matches and must fire with the same. `keys` is given a key with each match;
//! `headers` also takes it from the parsed packet, as a worker does. Run it with
//! `cargo run --release --locked -p scope-trigger --example count_by_key`.

use hashbrown::HashMap;
use scope_filter::{Values, VlanRule};
use scope_packet::{Headers, LinkType, Moment};
use scope_trigger::{COUNT_BYTES_DEFAULT, Match, Pattern, PatternState};
use std::collections::VecDeque;
use std::hash::Hash;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const KEYS: u32 = 100_000;
const MATCHES: usize = 3_000_000;
const ROUNDS: usize = 5;
/// What a worker or a merger hands over at once.
const FED: usize = 512;
const SEED: [u64; 2] = [0x5eed, 0xfeed];

/// A SYN from a source of its own for each number.
fn packet(number: u32) -> [u8; 60] {
    let mut packet = vec![2; 12];
    packet.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    packet.extend(Ipv4Addr::from(0x0a00_0000 + number.wrapping_mul(2_654_435_761) % 0x00ff_ffff).octets());
    packet.extend([192, 0, 2, 1, 0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0]);
    packet.resize(60, 0);
    packet.try_into().expect("60 bytes")
}

/// What one side does with a batch: the index of its first match, its matches or where they go, its packets.
type Side<'a> = &'a mut dyn FnMut(usize, &mut Vec<Match>, &[(Headers, [u8; 60])]);

/// One thread with a map, match by match.
struct Naive<K>(HashMap<K, VecDeque<i64>>);

impl<K: Hash + Eq> Naive<K> {
    fn holds(&mut self, key: K, now_ns: i64, needed: usize, span_ns: i64) -> bool {
        let times = self.0.entry(key).or_default();
        while times.front().is_some_and(|&time_ns| time_ns <= now_ns - span_ns) {
            times.pop_front();
        }
        times.push_back(now_ns);
        times.len() == needed
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// `live`: matches of a key in a window on average.
fn measure(live: u32, needed: usize) {
    let gap_ns = 100;
    let span_ns = i64::from(live) * i64::from(KEYS) * gap_ns;
    let text = format!("count(tcp[tcpflags] & tcp-syn != 0 by $srcIP) >= {needed} in {span_ns}ns");
    let pattern = Pattern::parse(&text, VlanRule::Transparent, &[]).expect("a count");
    let key = pattern.key().expect("a key");
    let link = LinkType::ETHERNET;
    let packets: Vec<[u8; 60]> = (0..KEYS).map(packet).collect();
    let values = |packet: &[u8]| -> Values {
        key.values(&Headers::parse(link, packet), link, packet).expect("an address")
    };
    let address = |headers: &Headers, packet: &[u8]| -> IpAddr {
        match *headers.address_bytes(packet).expect("addresses").0 {
            [a, b, c, d] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            _ => unreachable!("packets are of IPv4"),
        }
    };
    let mut state = 88_172_645_463_325_252u64;
    let numbers: Vec<usize> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (((state >> 32) * u64::from(KEYS)) >> 32) as usize
    })
    .take(MATCHES)
    .collect();
    let match_of = |index: usize, key: Values| Match {
        at: Moment::new(0, index as i64 * gap_ns),
        key,
        packet: index as u64,
        handle: 0,
        lane: 0,
        step: 0,
    };
    let keys: Vec<Values> = packets.iter().map(|packet| values(packet)).collect();
    let mut ns: [Vec<f64>; 4] = Default::default();
    let mut fired = 0;
    for _ in 0..ROUNDS {
        // Matches and packets of a batch are made outside of what is timed, and lie in the caches.
        let mut batch: Vec<Match> = Vec::with_capacity(FED);
        let mut seen: Vec<(Headers, [u8; 60])> = Vec::with_capacity(FED);
        let mut per_match = |side: usize, run: Side<'_>| {
            let mut elapsed = Duration::ZERO;
            for (chunk, numbers) in numbers.chunks(FED).enumerate() {
                let from = chunk * FED;
                batch.clear();
                seen.clear();
                for (index, &number) in numbers.iter().enumerate() {
                    if side < 2 {
                        batch.push(match_of(from + index, keys[number]));
                    } else {
                        seen.push((Headers::parse(link, &packets[number]), packets[number]));
                    }
                }
                let begun = Instant::now();
                run(from, &mut batch, &seen);
                elapsed += begun.elapsed();
            }
            ns[side].push(elapsed.as_nanos() as f64 / MATCHES as f64);
        };

        let (mut naive, mut expected) = (Naive(HashMap::new()), Vec::new());
        per_match(0, &mut |from, batch, _| {
            for (index, one) in batch.iter().enumerate() {
                if naive.holds(one.key, one.at.time_ns, needed, span_ns) {
                    expected.push(from + index);
                }
            }
        });
        drop(black_box(naive));

        let mut state = PatternState::new(&pattern, COUNT_BYTES_DEFAULT, SEED);
        let (mut ours, mut hits) = (Vec::new(), Vec::new());
        per_match(1, &mut |from, batch, _| {
            hits.clear();
            state.feed(batch, &mut hits);
            ours.extend(hits.iter().map(|hit| from + hit.index));
        });
        assert_eq!(ours, expected, "both fire with the same");
        assert!(state.report().degraded_since.is_none(), "{:?}", state.report());
        drop(black_box(state));

        let (mut naive, mut theirs) = (Naive(HashMap::new()), Vec::new());
        per_match(2, &mut |from, _, seen| {
            for (index, (headers, packet)) in seen.iter().enumerate() {
                let now_ns = (from + index) as i64 * gap_ns;
                if naive.holds(address(headers, packet), now_ns, needed, span_ns) {
                    theirs.push(from + index);
                }
            }
        });
        assert_eq!(theirs, expected);
        drop(black_box(naive));

        let mut state = PatternState::new(&pattern, COUNT_BYTES_DEFAULT, SEED);
        ours.clear();
        per_match(3, &mut |from, batch, seen| {
            for (index, (headers, packet)) in seen.iter().enumerate() {
                let key = key.values(headers, link, packet).expect("an address");
                batch.push(match_of(from + index, key));
            }
            hits.clear();
            state.feed(batch, &mut hits);
            ours.extend(hits.iter().map(|hit| from + hit.index));
        });
        assert_eq!(ours, expected);
        fired = expected.len();
    }
    let ratios = |a: usize, b: usize| median(ns[a].iter().zip(&ns[b]).map(|(a, b)| a / b).collect());
    let (keys, from_headers) = (ratios(0, 1), ratios(2, 3));
    let [naive, ours, naive_headers, ours_headers] = ns.map(median);
    println!(
        "{live:>4} live, needed {needed:>4}: keys {naive:6.1} / {ours:5.1} ns = {keys:.2}   headers {naive_headers:6.1} / \
         {ours_headers:5.1} ns = {from_headers:.2}   {fired} fired"
    );
}

fn main() {
    println!("{KEYS} keys, {MATCHES} matches, median of {ROUNDS} rounds; hashbrown / ours");
    for (live, needed) in [(1, 21), (5, 21), (18, 21), (30, 21), (30, 101)] {
        measure(live, needed);
    }
}
