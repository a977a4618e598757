//! Summaries: none ever denies an entry that is there, whatever the test's masks; and, by hand, how often they don't
//! deny one that isn't.

mod stand;

use proptest::prelude::*;
use scope_packet::KeyEntry;
use scope_ring::{Column, KeyTest, Summary, SummaryForm};
use stand::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const SEGMENT_BYTES: usize = 64 << 10;

/// Entries as they lie: the last one first.
fn column(entries: &[KeyEntry]) -> Vec<u8> {
    entries.iter().rev().flat_map(|entry| entry.to_bytes()).collect()
}

/// A summary of the first form, written as docs/FORMAT.md has it.
fn first_form(entries: &[KeyEntry], segment_bytes: usize) -> Summary {
    let mut bytes = vec![0_u8; 40 + segment_bytes / 512];
    let words = segment_bytes as u64 / 4096;
    for entry in entries {
        bytes[0] |= 1 << entry.kind() as u8;
        bytes[1] |= u8::from(entry.partial());
        bytes[8 + entry.protocol() as usize / 8] |= 1 << (entry.protocol() % 8);
        let address = |address| u64::from(u32::from_le_bytes(address));
        let port = |port| (1 << 32) + u64::from(port);
        let ports = [port(entry.source_port), port(entry.destination_port)];
        for key in [address(entry.source), address(entry.destination)].into_iter().chain(ports) {
            let x = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let h = (x ^ x >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            for p in [h >> 32, (h ^ h >> 29) & 0xffff_ffff] {
                let bit = ((p / 64) & (words - 1)) * 64 + p % 64; // a power of two of words
                bytes[40 + bit as usize / 8] |= 1 << (bit % 8);
            }
        }
    }
    Summary::read(SummaryForm::First, &bytes).expect("its length is that of the first form")
}

/// An entry of a small world, so that tests match now and then.
fn entry(dice: &mut Dice, partial: u64) -> KeyEntry {
    let address = |dice: &mut Dice| match dice.below(4) {
        0 => [10, 0, dice.below(3) as u8, dice.below(12) as u8],
        1 => [10, dice.below(3) as u8, 0, 1],
        _ => dice.roll().to_le_bytes()[..4].try_into().expect("4 bytes"),
    };
    let port = |dice: &mut Dice| match dice.below(3) {
        0 => dice.below(8) as u16 + 1020,
        1 => dice.below(30) as u16,
        _ => dice.roll() as u16,
    };
    KeyEntry {
        source: address(dice),
        destination: address(dice),
        source_port: port(dice),
        destination_port: port(dice),
        word: dice.roll() as u32 & !(1 << 12) | u32::from(dice.one_in(partial)) << 12,
    }
}

/// A mask of any shape: whole fields, prefixes of them, single bits.
fn mask(dice: &mut Dice) -> KeyEntry {
    let address = |dice: &mut Dice| match dice.below(5) {
        0 => [0xff; 4],
        1 | 2 => (u32::MAX << dice.below(32)).to_be_bytes(),
        3 => dice.roll().to_le_bytes()[..4].try_into().expect("4 bytes"),
        _ => [0; 4],
    };
    let port = |dice: &mut Dice| match dice.below(4) {
        0 => u16::MAX,
        1 => u16::MAX << dice.below(16),
        2 => dice.roll() as u16,
        _ => 0,
    };
    KeyEntry {
        source: address(dice),
        destination: address(dice),
        source_port: port(dice),
        destination_port: port(dice),
        word: [0x3ff, 0xff, 0x300, 0xc00, dice.roll() as u32 & 0xfff, 0][dice.below(6) as usize],
    }
}

proptest! {
    #[test]
    fn no_summary_denies_an_entry_that_is_there(seed in any::<u64>(), packets in 0usize..300, partial in prop_oneof![Just(u64::MAX), Just(100)]) {
        let mut dice = Dice(seed);
        let entries: Vec<KeyEntry> = (0..packets).map(|_| entry(&mut dice, partial)).collect();
        let bytes = column(&entries);
        let forms = [Summary::new(Column::new(&bytes), SEGMENT_BYTES), first_form(&entries, SEGMENT_BYTES)];
        for _ in 0..100 {
            let near = match entries.is_empty() || dice.one_in(3) {
                true => entry(&mut dice, u64::MAX),
                false => entries[dice.below(packets as u64) as usize],
            };
            let patterns: Vec<_> = (0..1 + dice.below(3)).map(|_| (mask(&mut dice), near)).collect();
            let test = KeyTest::any_of(&patterns);
            let holds = entries.iter().any(|entry| test.matches(entry));
            for summary in &forms {
                prop_assert!(!holds || summary.may_hold(&test), "{:?}: {:?}", summary.form(), test);
            }
        }
    }
}

#[test]
fn what_is_noted_exactly_is_denied_exactly() {
    let mut dice = Dice(7);
    for word in 0..16_u32 {
        let word = word << 8 | 6;
        let entries = [KeyEntry {
            source: [10, 1, 2, 3],
            destination: [10, 1, 2, 4],
            source_port: 53,
            destination_port: 80,
            word,
        }];
        let summary = Summary::new(Column::new(&column(&entries)), SEGMENT_BYTES);
        for _ in 0..1000 {
            let protocol = dice.below(256) as u8;
            assert_eq!(summary.may_hold(&KeyTest::protocol(protocol)), protocol == 6);
            let port = dice.below(1024) as u16;
            assert_eq!(summary.may_hold(&KeyTest::port(port)), [53, 80].contains(&port));
            let first = dice.below(256) as u8;
            let is_folded = word >> 8 & 3 == 2;
            let net = KeyTest::any_of(&[(
                KeyEntry { source: [255, 0, 0, 0], ..KeyEntry::default() },
                KeyEntry { source: [first, 0, 0, 0], ..KeyEntry::default() },
            )]);
            assert_eq!(summary.may_hold(&net), first == 10 || is_folded, "{first}");
        }
        assert_eq!(summary.may_hold(&KeyTest::vlan(true)), entries[0].vlan());
        assert_eq!(summary.may_hold(&KeyTest::vlan(false)), !entries[0].vlan());
        assert_eq!(summary.may_hold(&KeyTest::fragment(true)), entries[0].fragment());
        assert_eq!(summary.may_hold(&KeyTest::kind(scope_packet::headers::Kind::Ipv4)), word >> 8 & 3 == 1);
    }
}

/// Skewed traffic between hosts of some nets and of the wide world.
struct World {
    hosts: Vec<[u8; 4]>,
    /// Sums of the hosts' weights.
    sums: Vec<f64>,
    flows: Vec<KeyEntry>,
    dice: Dice,
    next: usize,
    bursts: bool,
}

impl World {
    fn new(hosts: usize, skew: f64, bursts: bool, inside: usize) -> World {
        let mut dice = Dice(1);
        let hosts: Vec<[u8; 4]> = (0..hosts)
            .map(|number| match number % 100 < inside {
                true => [10, (number / 40_000) as u8, (number / 200) as u8, (number % 200) as u8],
                false => (dice.roll() as u32 | 1 << 24).to_be_bytes(),
            })
            .collect();
        let mut sum = 0.0;
        let sums = (1..=hosts.len()).map(|rank| {
            sum += 1.0 / (rank as f64).powf(skew);
            sum
        });
        let sums = sums.collect();
        let mut world = World { hosts, sums, flows: Vec::new(), dice, next: 0, bursts };
        world.flows = (0..4000).map(|_| world.flow()).collect();
        world
    }

    fn host(&mut self) -> [u8; 4] {
        let all = self.sums[self.sums.len() - 1];
        let at = self.dice.roll() as f64 / u64::MAX as f64 * all;
        let rank = self.sums.partition_point(|&sum| sum < at).min(self.hosts.len() - 1);
        // The ranks are spread over the nets.
        self.hosts[rank * 7919 % self.hosts.len()]
    }

    fn flow(&mut self) -> KeyEntry {
        let server = [443, 443, 443, 80, 53, 53, 22, 123, 3306, 8080, 5432, 25][self.dice.below(12) as usize];
        KeyEntry {
            source: self.host(),
            destination: self.host(),
            source_port: 32_768 + self.dice.below(28_000) as u16,
            destination_port: server,
            word: if server == 53 || server == 123 { 17 } else { 6 } | 1 << 8,
        }
    }

    fn packet(&mut self) -> KeyEntry {
        if !self.bursts {
            return self.flow();
        }
        if self.dice.one_in(8) {
            let (at, flow) = (self.next % self.flows.len(), self.flow());
            self.flows[at] = flow;
            self.next += 1;
        }
        let at = self.dice.below(self.flows.len() as u64) as usize;
        let flow = self.flows[at];
        match self.dice.one_in(2) {
            true => flow,
            false => KeyEntry {
                source: flow.destination,
                destination: flow.source,
                source_port: flow.destination_port,
                destination_port: flow.source_port,
                ..flow
            },
        }
    }

    /// The entries of a segment of 2 MiB of mixed packet sizes.
    fn segment(&mut self, mean: u64) -> Vec<KeyEntry> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while bytes < 2_080_000 {
            bytes += 64 + self.dice.below(2 * (mean - 64)) + 48;
            entries.push(self.packet());
        }
        entries
    }
}

/// Of hosts, nets and ports that aren't in a segment, the share that the summary doesn't deny, and what building costs.
#[test]
#[ignore = "a measurement"]
fn how_often_nothing_is_denied_for_nothing() {
    const SEGMENTS: usize = 60;
    for (name, hosts, skew, bursts, inside, mean) in [
        ("20,000 hosts, flows, 500 B", 20_000, 1.0, true, 50, 500),
        ("20,000 hosts, scattered, 500 B", 20_000, 1.0, false, 50, 500),
        ("20,000 hosts, scattered, 500 B, all in one net", 20_000, 1.0, false, 100, 500),
        ("20,000 hosts, scattered, 120 B", 20_000, 1.0, false, 50, 120),
        ("20,000 hosts, flat, 500 B", 20_000, 0.3, false, 50, 500),
        ("1,000,000 hosts, flows, 500 B", 1_000_000, 0.8, true, 5, 500),
    ] {
        let mut world = World::new(hosts, skew, bursts, inside);
        let segments: Vec<Vec<KeyEntry>> = (0..SEGMENTS).map(|_| world.segment(mean)).collect();
        let asked: Vec<[u8; 4]> =
            (0..400).map(|_| world.hosts[world.dice.below(hosts as u64) as usize]).collect();
        // Of each question: segments without an answer, and those that the summary doesn't deny.
        let mut counts: BTreeMap<(u8, &str), [u64; 2]> = BTreeMap::new();
        let mut build_ns = [Vec::new(), Vec::new()];
        let (mut packets, mut addresses, mut ports) = (0, 0, 0);
        for entries in &segments {
            let bytes = column(entries);
            let begun = Instant::now();
            let second = Summary::new(Column::new(&bytes), 2 << 20);
            build_ns[1].push(begun.elapsed().as_nanos() as u64 / entries.len() as u64);
            let begun = Instant::now();
            let first = first_form(entries, 2 << 20);
            build_ns[0].push(begun.elapsed().as_nanos() as u64 / entries.len() as u64);
            let there: BTreeSet<[u8; 4]> =
                entries.iter().flat_map(|entry| [entry.source, entry.destination]).collect();
            let ports_there: BTreeSet<u16> =
                entries.iter().flat_map(|entry| [entry.source_port, entry.destination_port]).collect();
            let pairs: BTreeSet<[[u8; 4]; 2]> = entries
                .iter()
                .flat_map(|entry| [[entry.source, entry.destination], [entry.destination, entry.source]])
                .collect();
            let ends: BTreeSet<([u8; 4], u16)> = entries
                .iter()
                .flat_map(|entry| {
                    let (a, b) = (entry.source, entry.destination);
                    [a, b]
                        .into_iter()
                        .flat_map(move |host| [(host, entry.source_port), (host, entry.destination_port)])
                })
                .collect();
            packets += entries.len();
            addresses += there.len();
            ports += ports_there.len();
            let nets = |len: usize| -> BTreeSet<Vec<u8>> {
                there.iter().map(|address| address[..len].to_vec()).collect()
            };
            let nets = [nets(1), nets(2), nets(3)];
            let ipv4 = || KeyTest::kind(scope_packet::headers::Kind::Ipv4);
            let net = |address: [u8; 4], len: usize| {
                let mut mask = [0; 4];
                mask[..len].fill(0xff);
                let on = |entry: fn([u8; 4]) -> KeyEntry| KeyTest::any_of(&[(entry(mask), entry(address))]);
                on(|source| KeyEntry { source, ..KeyEntry::default() })
                    .or(on(|destination| KeyEntry { destination, ..KeyEntry::default() }))
                    .and(ipv4())
            };
            let mut count = |question, is_there: bool, test: &KeyTest| {
                for (form, summary) in [(1, &first), (2, &second)] {
                    let count = counts.entry((form, question)).or_default();
                    count[0] += u64::from(!is_there);
                    count[1] += u64::from(!is_there && summary.may_hold(test));
                    assert!(!is_there || summary.may_hold(test));
                }
            };
            for (number, &address) in asked.iter().enumerate() {
                count("host", there.contains(&address), &KeyTest::host(address).and(ipv4()));
                count("net /24", nets[2].contains(&address[..3]), &net(address, 3));
                count("net /16", nets[1].contains(&address[..2]), &net(address, 2));
                count("net /8", nets[0].contains(&address[..1]), &net(address, 1));
                let port = 1024 + (number * 157) as u16 % 60_000;
                count("port, high", ports_there.contains(&port), &KeyTest::port(port));
                let low = (number * 7 % 1024) as u16;
                count("port, low", ports_there.contains(&low), &KeyTest::port(low));
                let other = asked[number * 31 % asked.len()];
                let pair = KeyTest::source(address).and(KeyTest::destination(other));
                let pair = pair.or(KeyTest::source(other).and(KeyTest::destination(address))).and(ipv4());
                count("host and host", pairs.contains(&[address, other]), &pair);
                let is_flow = ends.contains(&(address, port));
                count(
                    "host and port, high",
                    is_flow,
                    &KeyTest::host(address).and(KeyTest::port(port)).and(ipv4()),
                );
            }
        }
        let mean = |count: usize| count / SEGMENTS;
        println!(
            "{name}: {} packets, {} addresses, {} ports in a segment",
            mean(packets),
            mean(addresses),
            mean(ports)
        );
        for times in &mut build_ns {
            times.sort_unstable();
        }
        println!(
            "  building: {} ns a packet (the first form, naively: {})",
            build_ns[1][SEGMENTS / 2],
            build_ns[0][SEGMENTS / 2]
        );
        for question in [
            "host",
            "net /24",
            "net /16",
            "net /8",
            "port, low",
            "port, high",
            "host and host",
            "host and port, high",
        ] {
            let share = |form| {
                let [absent, kept] = counts[&(form, question)];
                100.0 * kept as f64 / absent.max(1) as f64
            };
            println!(
                "  {question:20} absent in {:5.1} %; not denied: first form {:6.2} %, second {:6.2} %",
                100.0 * counts[&(2, question)][0] as f64 / (SEGMENTS * asked.len()) as f64,
                share(1),
                share(2)
            );
        }
    }
}
