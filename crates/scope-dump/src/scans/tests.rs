//! What a dump takes of the shared scan against its own scan: dumps that join and leave at any moment, any
//! filters, bounds that are reached all the time.

use super::*;
use proptest::prelude::*;
use scope_filter::{FilterEngine, Predicate, VlanRule};
use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, Interface, LinkType, TimestampSource};
use scope_ring::{Append, LaneWriter, RingConfig};

use crate::sieve::Sieve;

const LANES: u32 = 2;
const WIDE: Bounds = Bounds { waiting: WAITING_MAX, partial: PARTIAL_MAX };
/// Of 8 dumps each may let 8 packets wait.
const NARROW: Bounds = Bounds { waiting: 64, partial: 5 };

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % below
    }
}

/// TCP or UDP between few hosts and ports; some are fragments or in a tunnel, whose entries are partial or
/// lack ports.
fn packet(dice: &mut Dice) -> Vec<u8> {
    let mut data = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 50, 0, 1, 0, 0, 64, 6, 0, 0];
    data.extend([10, 0, 0, dice.below(5) as u8, 10, 0, 0, dice.below(5) as u8]);
    data.extend([0, 50 + dice.below(2) as u8, 0, 50 + dice.below(2) as u8]);
    data.resize(80, 0);
    match dice.below(12) {
        0 => data[20] = 0x20,         // a first fragment
        1 => data[23] = 47,           // GRE
        2 => data[12..14].fill(0xfe), // no network layer that is known
        3..7 => data[23] = 17,
        _ => data[46] = 0x50,
    }
    data
}

fn filter(dice: &mut Dice) -> Filter {
    let (a, b) = (dice.below(6), dice.below(6));
    let (p, q) = (50 + dice.below(2), 50 + dice.below(2));
    let text = match dice.below(8) {
        0 => String::new(),
        1 => format!("port {p}"),
        2 => format!("host 10.0.0.{a}"),
        3 => format!("src host 10.0.0.{a} and not port {p}"),
        4 | 5 => format!("host 10.0.0.{a} and host 10.0.0.{b}"),
        _ => format!(
            "(tcp and ((src host 10.0.0.{a} and src port {p} and dst host 10.0.0.{b} and dst port {q}) or \
             (src host 10.0.0.{b} and src port {q} and dst host 10.0.0.{a} and dst port {p})))"
        ),
    };
    Filter::compile(&text, VlanRule::Transparent, &[LinkType::ETHERNET]).expect("a filter")
}

/// A dump as far as this test needs it: how far it has read in each lane.
struct Dump {
    reader: Reader,
    sieve: Sieve,
    predicate: Predicate,
    text: String,
    /// Per lane: segment and packet.
    at: Vec<(u64, u64)>,
}

struct Bench {
    ring: Arc<Ring>,
    scans: Arc<Scans>,
    lanes: Vec<LaneWriter>,
    /// Bytes of each lane's packets.
    fed: Vec<Vec<Vec<u8>>>,
    compared: u64,
}

impl Bench {
    fn new(bounds: Bounds) -> Bench {
        let config = RingConfig {
            ring_bytes: 34 * (64 << 10),
            segment_bytes: Some(64 << 10),
            workers: LANES,
            lanes: 1,
            run_id: [5; 16],
        };
        let ring = Ring::create(&config).expect("a ring");
        let open = |worker: u32| {
            let mut writer = ring.open_lane(worker, LinkType::ETHERNET).expect("a lane");
            let interface = Interface {
                name: format!("if{worker}"),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::File,
                part: 0,
            };
            let number = ring.register(writer.lane(), &interface).expect("an interface");
            writer.add_interface(number);
            writer
        };
        let lanes = (0..LANES).map(open).collect();
        let scans = Scans::bounded(&ring, None, bounds);
        Bench { ring, scans, lanes, fed: vec![Vec::new(); LANES as usize], compared: 0 }
    }

    fn feed(&mut self, lane: usize, packets: u64, dice: &mut Dice) {
        self.feed_where(lane, packets, dice, |_| true);
    }

    fn feed_where(&mut self, lane: usize, packets: u64, dice: &mut Dice, wanted: impl Fn(&[u8]) -> bool) {
        let mut made = 0;
        while made < packets {
            let data = packet(dice);
            if !wanted(&data) {
                continue;
            }
            made += 1;
            let time_ns = self.fed[lane].len() as i64 + 1;
            let head = PacketHead { time_ns, captured_len: 80, original_len: 80, ..PacketHead::default() };
            let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
            while self.lanes[lane].append(0, &head, key, &data) == Append::NeedsSegment {
                assert!(self.lanes[lane].claim(), "nobody holds so much");
            }
            self.fed[lane].push(data);
        }
        self.lanes[lane].commit();
    }

    fn join(&self, dice: &mut Dice) -> Dump {
        let filter = filter(dice);
        Dump {
            reader: self.scans.join(&filter),
            sieve: Sieve::new(&filter, FilterEngine::Interpreter, LinkType::ETHERNET),
            predicate: filter.for_link(LinkType::ETHERNET),
            text: filter.text().to_string(),
            at: vec![(0, 0); LANES as usize],
        }
    }

    /// One round of a dump: what is there in each lane, now and then not all of it, and the newest segment
    /// first.
    fn round(&mut self, dump: &mut Dump, dice: &mut Dice) {
        let mut pieces = Vec::new();
        for lane in 0..LANES {
            let (sequence, mut packet) = dump.at[lane as usize];
            for sequence in sequence..self.ring.lane_next(lane) {
                let Some(pinned) = self.ring.pin(self.ring.segment_id(lane, sequence)) else { continue };
                let committed = pinned.committed();
                let end = pinned.first_packet() + u64::from(committed.packets);
                let start = packet.max(pinned.first_packet());
                (packet, dump.at[lane as usize]) = (end, (sequence + u64::from(committed.sealed), end));
                if dice.below(9) > 0 {
                    let index = |packet: u64| (packet - pinned.first_packet()) as u32;
                    let range = index(start)..index(end);
                    pieces.push((pinned, range));
                }
            }
        }
        if dice.below(4) == 0 {
            pieces.reverse();
        }
        for (pinned, range) in pieces {
            self.compare(dump, &pinned, range);
        }
        dump.reader.pass(dump.at.iter().map(|&(_, packet)| packet));
    }

    fn compare(&mut self, dump: &Dump, pinned: &Pinned, range: Range<u32>) {
        let data = |index: u32| {
            &self.fed[pinned.lane() as usize][(pinned.first_packet() + u64::from(index)) as usize]
        };
        let takes = |index: &u32| {
            let data = data(*index);
            dump.predicate.matches(&Headers::parse(LinkType::ETHERNET, data), data, data.len() as u32)
        };
        let alone: Vec<u32> = range.clone().filter(takes).collect();
        let screened: Vec<u32> =
            pinned.matches(dump.sieve.keys(), range.start, range.end).filter(takes).collect();
        assert_eq!(screened, alone, "{}", dump.text);
        let Some((own, found)) = dump.reader.take(pinned, range.clone()) else { return };
        assert!(
            own.start == range.start
                && own.end <= range.end
                && found.iter().all(|index| (own.end..range.end).contains(index))
        );
        assert!(found.is_sorted_by(|a, b| a < b), "each once, in order: {found:?}");
        let own = pinned.matches(dump.sieve.keys(), own.start, own.end);
        let shared: Vec<u32> = own.chain(found).filter(takes).collect();
        assert_eq!(shared, alone, "{} of {range:?}", dump.text);
        self.compared += alone.len() as u64;
    }
}

fn check(seed: u64, bounds: Bounds, steps: u64) -> Bench {
    let (mut dice, mut bench, mut dumps) = (Dice(seed | 1), Bench::new(bounds), Vec::new());
    for _ in 0..steps {
        match dice.below(12) {
            0..3 => dumps.push(bench.join(&mut dice)),
            3 if !dumps.is_empty() => drop(dumps.swap_remove(dice.below(dumps.len() as u64) as usize)),
            4..7 => bench.feed(dice.below(LANES.into()) as usize, 1 + dice.below(900), &mut Dice(dice.0 | 1)),
            _ if !dumps.is_empty() => {
                let index = dice.below(dumps.len() as u64) as usize;
                bench.round(&mut dumps[index], &mut dice);
            }
            _ => {}
        }
        let waiting: usize = bench.scans.lock().members.values().map(|member| member.waiting).sum();
        let counted: usize =
            bench.scans.lock().members.values().flat_map(|member| &member.found).map(VecDeque::len).sum();
        assert_eq!(waiting, counted);
    }
    bench
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 20, ..ProptestConfig::default() })]
    #[test]
    fn each_dump_takes_what_its_own_scan_finds(seed: u64, narrow: bool) {
        check(seed, if narrow { NARROW } else { WIDE }, 200);
    }
}

#[test]
fn what_comes_in_is_scanned_once_for_all() {
    let (mut dice, mut bench) = (Dice(77), Bench::new(WIDE));
    bench.feed(0, 500, &mut dice);
    let mut dumps: Vec<Dump> = (0..400).map(|_| bench.join(&mut dice)).collect();
    assert_eq!(bench.scans.spared().packets_shared, 0);
    for _ in 0..5 {
        bench.feed(0, 300, &mut dice);
        bench.feed(1, 200, &mut dice);
        for dump in &mut dumps {
            bench.round(dump, &mut dice);
        }
    }
    let shared = bench.scans.spared().packets_shared;
    assert!(
        (2000..=3000).contains(&shared),
        "{shared} of the 2500 packets that came behind the begin, and 500 before"
    );
    assert!(bench.compared > 10_000, "{}", bench.compared);
}

#[test]
fn at_its_bounds_a_dump_scans_for_itself_and_nothing_more_waits() {
    let (mut dice, mut bench) = (Dice(5), Bench::new(NARROW));
    let mut dumps: Vec<Dump> = (0..40).map(|_| bench.join(&mut dice)).collect();
    bench.feed(0, 600, &mut dice);
    for dump in &mut dumps {
        bench.round(dump, &mut Dice(9));
        let state = bench.scans.lock();
        let most = NARROW.waiting / state.members.len();
        assert!(state.members.values().all(|member| member.waiting <= most));
        assert!(state.lanes.iter().all(|lane| lane.partial.len() <= NARROW.partial));
    }
    assert!(bench.compared > 300, "{}", bench.compared);
}

#[test]
fn a_segment_is_skipped_only_where_no_packet_of_it_can_match() {
    let (mut dice, mut bench) = (Dice(11), Bench::new(WIDE));
    let summaries = Summaries::new(&bench.ring);
    bench.scans = Scans::new(&bench.ring, Some(summaries.clone()));
    // Without tunnels, whose entries say nothing of what is in them, and with some of them at the end.
    bench.feed_where(0, 3000, &mut dice, |data| data[23] != 47 && data[12] == 8 && data[20] == 0);
    bench.feed(0, 3000, &mut dice);
    let sealed: Vec<Pinned> = (0..bench.ring.lane_next(0) - 1)
        .filter_map(|sequence| bench.ring.pin(bench.ring.segment_id(0, sequence)))
        .collect();
    assert!(sealed.len() > 6 && sealed.iter().all(|pinned| summaries.build(pinned)));
    let mut skipped = 0;
    for _ in 0..200 {
        let dump = bench.join(&mut dice);
        for pinned in &sealed {
            let all = 0..pinned.committed().packets;
            if dump.reader.can_skip(pinned, dump.sieve.keys()) {
                skipped += 1;
                assert_eq!(pinned.matches(dump.sieve.keys(), all.start, all.end).count(), 0, "{}", dump.text);
                bench.compare(&dump, pinned, all);
            }
        }
    }
    assert_eq!((skipped, skipped > 20), (bench.scans.spared().segments_skipped, true));
}
