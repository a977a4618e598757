//! Dumps held against a naive model: random lanes, times that step back, rings that turn, windows anywhere,
//! filters that the key column screens well, badly and not at all. The model asks the filter of every packet.
//! And each dump of the ring is held against one of the same window that a timeline in memory answers: byte
//! for byte.

mod memory;

use memory::Memory;
use proptest::prelude::*;
use scope_dump::{
    Dump, DumpFormat, DumpOrder, DumpOutput, DumpReport, FirstPins, HitPacket, Progress, Scans, SystemDisk,
    Target, cut, cut_from,
};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_packet::pcapng::{self, PacketBlock, PacketHead};
use scope_packet::{Gap, GapReason, Headers, Interface, KeyEntry, LinkType, SystemClock, TimestampSource};
use scope_ring::{Append, LaneWriter, Ring, RingConfig};
use scope_trigger::Window;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT: u64 = 64 << 10;

/// One packet of the model: its lane, number in the lane, and time; its bytes follow from these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Model {
    time_ns: i64,
    lane: u32,
    number: u64,
}

fn bytes_of(packet: &Model, len: usize) -> Vec<u8> {
    let mut data: Vec<u8> =
        (0..len).map(|at| (at as u64 * 7 + packet.number * 13 + packet.lane as u64) as u8 | 1).collect();
    if len >= 12 {
        data[0..8].copy_from_slice(&packet.number.to_le_bytes());
        data[8..12].copy_from_slice(&packet.lane.to_le_bytes());
    }
    if len >= FRAME_BYTES_MIN {
        frame(
            &mut data[12..],
            packet.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 ^ u64::from(packet.lane),
        );
    }
    data
}

/// Shorter packets have no network layer.
const FRAME_BYTES_MIN: usize = 64;

/// What follows the link layer's addresses: few hosts and ports, so that filters take some; tags, IPv6, ARP,
/// a tunnel, later fragments.
fn frame(data: &mut [u8], dice: u64) {
    let (source, destination, port) =
        ((dice >> 8) as u8 % 6, (dice >> 16) as u8 % 6, [53, 80, 443][(dice >> 24) as usize % 3]);
    let at = match dice % 8 {
        0 => {
            data[..10].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
            data[16..20].copy_from_slice(&[10, 0, 0, source]);
            return data[26..30].copy_from_slice(&[10, 0, 0, destination]);
        }
        1 => {
            data[..10].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 10, 17, 64]);
            data[10..42].fill(0);
            (data[25], data[41]) = (source, destination);
            return data[42..46].copy_from_slice(&[0x10, source, 0, port as u8]);
        }
        2 => {
            data[..4].copy_from_slice(&[0x81, 0, 0, 7]);
            4
        }
        _ => 0,
    };
    let (fragment, protocol) = match dice % 8 {
        3 => (0, 47),
        4 => (0x20, 17),
        5 | 6 => (0, 6),
        _ => (0, 17),
    };
    data[at..at + 12].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 1, 0, fragment, 64, protocol]);
    data[at + 12..at + 22].copy_from_slice(&[0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
    data[at + 22..at + 26].copy_from_slice(&[0x10, source, (port >> 8) as u8, port as u8]);
}

/// Filters that the screen answers for nearly alone, for a part, and not at all.
const FILTERS: [&str; 16] = [
    "",
    "host 10.0.0.1",
    "src host 10.0.0.2 and not port 53",
    "udp port 53 or host 10.0.0.3",
    "vlan 7",
    "vlan and host 10.0.0.1",
    "net 10.0.0.0/30 and tcp",
    "ip6 host ::1 or arp",
    "not ip",
    "ip proto 47",
    "ip[6:2] & 0x1fff != 0",
    "len > 100",
    "host 10.9.9.9",
    "ip protochain 6",
    "(tcp port 80 or tcp port 443) and (host 10.0.0.4 or host 10.0.0.5)",
    "ether[0] & 1 = 1",
];

struct Bench {
    ring: Arc<Ring>,
    lanes: Vec<LaneWriter>,
    scans: Arc<Scans>,
    numbers: Vec<u64>,
    fed: Vec<Model>,
    /// Of each of them the sequence of its segment.
    sequences: Vec<u64>,
    clocks: Vec<i64>,
    len: usize,
}

impl Bench {
    fn new(lanes: u32, segments: u64, len: usize, grace_ns: i64) -> Bench {
        let config = RingConfig {
            ring_bytes: segments * SEGMENT,
            segment_bytes: Some(SEGMENT),
            workers: lanes,
            lanes: 1,
            run_id: [3; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let open = |worker: u32| {
            let mut writer = ring.open_lane(worker, LinkType::ETHERNET).unwrap();
            let interface = Interface {
                name: format!("if{worker}"),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::File,
                part: 0,
            };
            let number = ring.register(writer.lane(), &interface).unwrap();
            writer.add_interface(number);
            ring.set_grace(worker, grace_ns);
            writer
        };
        let lanes: Vec<LaneWriter> = (0..lanes).map(open).collect();
        let count = lanes.len();
        Bench {
            scans: Scans::new(&ring, None),
            ring,
            lanes,
            numbers: vec![0; count],
            fed: Vec::new(),
            sequences: Vec::new(),
            clocks: vec![0; count],
            len,
        }
    }

    /// Feeds one packet as a worker that can wait would.
    fn feed(&mut self, lane: u32, time_ns: i64) -> Model {
        let packet = Model { time_ns, lane, number: self.numbers[lane as usize] };
        self.numbers[lane as usize] += 1;
        let data = bytes_of(&packet, self.len);
        let head = head_of(&packet, data.len());
        let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
        let writer = &mut self.lanes[lane as usize];
        while writer.append(0, &head, key, &data) == Append::NeedsSegment {
            while self.ring.must_wait(lane) || !writer.claim() {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        let clock = &mut self.clocks[lane as usize];
        *clock = time_ns.max(*clock);
        self.fed.push(packet);
        self.sequences.push(self.ring.lane_next(lane) - 1);
        packet
    }

    fn commit(&mut self) {
        for (worker, writer) in self.lanes.iter_mut().enumerate() {
            writer.commit();
            let first_ns = self
                .fed
                .iter()
                .filter(|packet| packet.lane == worker as u32)
                .map(|packet| packet.time_ns)
                .min();
            self.ring.set_first(worker as u32, first_ns.unwrap_or(i64::MAX));
            let counts = scope_ring::WorkerCounts {
                received_packets: self.numbers[worker],
                stored_packets: self.numbers[worker],
                ..Default::default()
            };
            self.ring.publish_worker(worker as u32, &counts);
            self.ring.set_clock(worker as u32, self.clocks[worker]);
        }
    }

    /// First packet of each lane that is still in the ring.
    fn living_from(&self) -> Vec<u64> {
        let first = |lane: u32| {
            let mut living = self.ring.segment_ids(lane, 0).filter_map(|id| self.ring.pin(id));
            living.next().map_or(0, |pinned| pinned.first_packet())
        };
        (0..self.lanes.len() as u32).map(first).collect()
    }

    /// The same packets in the same segments, and the same ones of them gone, without a ring.
    fn in_memory(&self, from_ns: i64, living: &[u64]) -> Memory {
        let mut memory = Memory::new(self.lanes.len() as u32, from_ns);
        for (packet, sequence) in self.fed.iter().zip(&self.sequences) {
            let data = bytes_of(packet, self.len);
            memory.push(packet.lane, *sequence, &head_of(packet, data.len()), &data);
        }
        memory.living_from = living.to_vec();
        memory
    }

    fn end(&mut self) {
        self.commit();
        for worker in 0..self.lanes.len() {
            self.ring.end_clock(worker as u32);
        }
    }
}

fn head_of(packet: &Model, len: usize) -> PacketHead {
    let len = len as u32;
    PacketHead { time_ns: packet.time_ns, captured_len: len, original_len: len + 5, ..PacketHead::default() }
}

fn compiled(filter: &str) -> Filter {
    Filter::compile(filter, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap()
}

fn order(
    bench: &Bench,
    hit: Model,
    filter: &str,
    window: &Arc<Window>,
    folder: &std::path::Path,
    dumps_max: u64,
) -> DumpOrder {
    DumpOrder {
        id: 1,
        trigger: "model".into(),
        why: "by a test".into(),
        hit: Some(HitPacket { lane: hit.lane, packet: hit.number, link_type: LinkType::ETHERNET }),
        time_ns: hit.time_ns,
        filter: compiled(filter),
        filter_engine: FilterEngine::Native,
        keep: None,
        window: window.clone(),
        pins: FirstPins::take(&bench.ring, window.era(), window.from_ns(), dumps_max),
        output: DumpOutput::in_folder(folder).unwrap(),
        progress: Arc::new(Progress::default()),
        scans: bench.scans.clone(),
        past: None,
        patience: None,
        clock: Arc::new(SystemClock::new()),
        evidence: Arc::default(),
    }
}

/// The same window as `report` is of, cut out of a timeline in memory: report and file must be the same.
fn check_twin(report: &DumpReport, hit: Model, filter: &str, memory: &mut Memory, about: &str) {
    let folder = tempfile::tempdir().unwrap();
    let dump = Dump {
        id: report.id,
        trigger: report.trigger.clone(),
        why: report.why.clone(),
        hit: Some(HitPacket { lane: hit.lane, packet: hit.number, link_type: LinkType::ETHERNET }),
        time_ns: hit.time_ns,
        filter: compiled(filter),
        filter_engine: FilterEngine::Interpreter,
        keep: None,
        window: Arc::new(Window::new(report.asked.0, report.asked.1, hit.time_ns)),
        output: DumpOutput::in_folder(folder.path()).unwrap(),
        progress: Arc::new(Progress::default()),
        buffers: Arc::default(),
        clock: Arc::new(SystemClock::new()),
        evidence: Arc::default(),
    };
    let interfaces = Memory::new(memory.living_from.len() as u32, 0);
    let twin = cut_from(memory, &interfaces, dump);
    let stated = |report: &DumpReport| {
        let lost = (report.lost_min, report.lost_max, report.missing, report.complete, report.error.clone());
        let packets = (report.packets, report.bytes, report.cut);
        (packets, (report.asked, report.from_ns, report.to_ns), report.gaps.clone(), report.gaps_folded, lost)
    };
    assert_eq!(stated(&twin), stated(report), "{about}");
    let file = |report: &DumpReport| std::fs::read(&report.paths[0]).unwrap();
    assert!(file(&twin) == file(report), "{about}: another file");
}

/// Times and bytes of the packets of a dump, in file order.
fn read(report: &DumpReport) -> Vec<(i64, Vec<u8>)> {
    assert_eq!(report.paths.len(), 1, "{report:?}");
    let file = std::fs::read(&report.paths[0]).unwrap();
    let (mut at, mut packets) = (0, Vec::new());
    while at < file.len() {
        let total = pcapng::le32(&file, at + 4) as usize;
        if let Some(block) = PacketBlock::first(&file[at..]) {
            assert_eq!(block.original_len() as usize, block.data().len() + 5);
            packets.push((block.time_ns(), block.data().to_vec()));
        }
        at += total;
    }
    packets
}

#[derive(Clone, Debug)]
struct Case {
    lanes: u32,
    segments: u64,
    len: usize,
    past: usize,
    future: usize,
    /// Steps of time per packet, ns, before jitter.
    step_ns: i64,
    /// Times step back by up to this, ns.
    jitter_ns: i64,
    before_ns: i64,
    after_ns: i64,
    grace_ns: i64,
    dumps_max: u64,
    filter: &'static str,
    seed: u64,
}

/// Holds a dump's packets against the model's; the packets of its window that were gone when it began, which
/// it may lack.
fn verify(
    bench: &Bench,
    report: &DumpReport,
    case: &Case,
    filter: &str,
    hit: Model,
    window: &Window,
    living: &[u64],
) -> Vec<Model> {
    let inside = |packet: &&Model| packet.time_ns >= window.from_ns() && packet.time_ns <= window.to_ns();
    let (mut expected, missing): (Vec<Model>, Vec<Model>) =
        bench.fed.iter().filter(inside).partition(|packet| packet.number >= living[packet.lane as usize]);
    let predicate = compiled(filter).for_link(LinkType::ETHERNET);
    expected.retain(|packet| {
        let data = bytes_of(packet, case.len);
        let taken =
            predicate.matches(&Headers::parse(LinkType::ETHERNET, &data), &data, data.len() as u32 + 5);
        taken || (packet.lane, packet.number) == (hit.lane, hit.number)
    });
    expected.sort();
    let expected: Vec<(i64, Vec<u8>)> =
        expected.iter().map(|packet| (packet.time_ns, bytes_of(packet, case.len))).collect();
    let written = read(report);
    assert!(written.is_sorted_by_key(|packet| packet.0), "in order of time");
    assert_eq!(written.len(), expected.len(), "{filter}: {case:?} {report:?}");
    assert!(written == expected, "{filter}: {case:?}: other packets or another order");
    missing
}

fn check(case: &Case) {
    let mut state = case.seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below.max(1)
    };
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(case.lanes, case.segments, case.len, case.grace_ns);
    let mut now_ns = 1_000_000_000_000;
    let mut next = |bench: &mut Bench, random: &mut dyn FnMut(u64) -> u64| {
        now_ns += random(2 * case.step_ns as u64) as i64;
        let time_ns = now_ns - random(case.jitter_ns as u64 + 1) as i64;
        let lane = random(case.lanes as u64) as u32;
        let packet = bench.feed(lane, time_ns);
        if random(20) == 0 {
            bench.commit();
        }
        packet
    };
    for _ in 0..case.past {
        next(&mut bench, &mut random);
    }
    let hit = next(&mut bench, &mut random);
    let window =
        Arc::new(Window::new(hit.time_ns - case.before_ns, hit.time_ns + case.after_ns, hit.time_ns));
    let living = bench.living_from();
    let order = order(&bench, hit, case.filter, &window, folder.path(), case.dumps_max);
    let ring = bench.ring.clone();
    let dump = std::thread::spawn(move || cut(&ring, order));
    for _ in 0..case.future {
        next(&mut bench, &mut random);
    }
    bench.end();
    let report = dump.join().unwrap();

    let missing = verify(&bench, &report, case, case.filter, hit, &window, &living);
    let mut memory = bench.in_memory(window.from_ns(), &living);
    (memory.step, memory.grace_ns) = (1 + random(900) as usize, case.grace_ns);
    memory.come(case.past + 1);
    check_twin(&report, hit, case.filter, &mut memory, &format!("{case:?}"));
    assert!(
        report.lost_min <= missing.len() as u64 && missing.len() as u64 <= report.lost_max,
        "{case:?} {report:?} {}",
        missing.len()
    );
    assert_eq!(report.complete, report.lost_max == 0);
    if let Some((from_ns, to_ns)) = report.missing {
        assert!(
            missing.iter().all(|packet| packet.time_ns >= from_ns && packet.time_ns <= to_ns),
            "{case:?} {report:?}"
        );
    } else {
        assert!(missing.is_empty());
    }
    if case.jitter_ns == 0 && case.lanes == 1 && !missing.is_empty() {
        let span = (
            missing.iter().map(|packet| packet.time_ns).min().unwrap(),
            missing.iter().map(|packet| packet.time_ns).max().unwrap(),
        );
        assert!(
            report.missing.unwrap().1 == span.1 && report.missing.unwrap().0 <= span.0,
            "the span's end is exact"
        );
    }
    assert_eq!(bench.ring.budget().taken(), 0, "all pins are given back");
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (
        1u32..5,
        17u64..40,
        prop_oneof![Just(12usize), 40usize..80, FRAME_BYTES_MIN..200, Just(1400)],
        0usize..9000,
        0usize..9000,
    );
    let times = (
        1i64..2_000_000,
        prop_oneof![Just(0i64), Just(1_000_000), Just(400_000_000)],
        0i64..3_000_000_000,
        0i64..3_000_000_000,
    );
    let grace = prop_oneof![Just(0i64), Just(4_000_000), Just(1_000_000_000)];
    let rest = (grace, 1u64..9, proptest::sample::select(&FILTERS[..]), any::<u64>());
    (shape, times, rest).prop_map(
        |(
            (lanes, segments, len, past, future),
            (step_ns, jitter_ns, before_ns, after_ns),
            (grace_ns, dumps_max, filter, seed),
        )| Case {
            lanes,
            // Each lane has an open segment at least.
            segments: segments.max(lanes as u64 * 16),
            len,
            past,
            future,
            step_ns,
            jitter_ns,
            before_ns,
            after_ns,
            // Packets that come later than the grace are late by contract.
            grace_ns: grace_ns.max(jitter_ns + 2 * step_ns),
            dumps_max,
            filter,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, max_shrink_iters: 40, ..ProptestConfig::default() })]
    #[test]
    fn a_dump_holds_exactly_the_windows_packets_and_bounds_what_it_lacks(case in cases()) {
        check(&case);
    }
}

#[test]
fn a_window_that_outlasts_the_ring_many_times_is_complete() {
    // 17 segments of 64 KiB, fed with 60 MiB behind the hit.
    check(&Case {
        lanes: 2,
        segments: 32,
        len: 1400,
        past: 100,
        future: 40_000,
        step_ns: 100_000,
        jitter_ns: 1_000_000,
        before_ns: 1_000_000_000,
        after_ns: 100_000_000_000,
        grace_ns: 1_000_000_000,
        dumps_max: 8,
        filter: "",
        seed: 77,
    });
}

#[test]
fn every_filter_leaves_the_packets_that_it_takes_and_the_one_that_fired() {
    let case = |filter, len, jitter_ns| Case {
        lanes: 2,
        segments: 64,
        len,
        past: 3000,
        future: 1000,
        step_ns: 1_000_000,
        jitter_ns,
        before_ns: 1_000_000_000,
        after_ns: 500_000_000,
        grace_ns: 1_000_000_000,
        dumps_max: 1,
        filter,
        seed: 5,
    };
    for filter in FILTERS {
        check(&case(filter, 120, 0));
        check(&case(filter, 300, 20_000_000));
    }
}

/// A dump for which 200 packets come later than its reorder buffer reaches, written to `output`; all its
/// packets in order.
fn dump_with_late_packets(
    output: Arc<DumpOutput>,
    folder: &std::path::Path,
) -> (DumpReport, Vec<(i64, Vec<u8>)>) {
    let mut bench = Bench::new(1, 640, 1400, 1_000_000_000_000);
    let begin_ns = 1_000_000_000_000;
    let hit = bench.feed(0, begin_ns);
    let window = Arc::new(Window::new(begin_ns, begin_ns + 1_000_000_000, begin_ns));
    let order = DumpOrder { output, ..order(&bench, hit, "", &window, folder, 1) };
    let (ring, progress) = (bench.ring.clone(), order.progress.clone());
    let dump = std::thread::spawn(move || cut(&ring, order));
    // All of it waits for the clock, more than the buffer takes: the oldest go out early.
    for n in 1..20_000 {
        bench.feed(0, begin_ns + n * 1000);
    }
    bench.commit();
    while progress.written().0 == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // These come for places that are gone.
    for n in (0..200).rev() {
        bench.feed(0, begin_ns + n * 3);
    }
    bench.end();
    let report = dump.join().unwrap();
    let mut expected = bench.fed.clone();
    expected.sort_by_key(|packet| (packet.time_ns, packet.number));
    assert_eq!(report.packets, expected.len() as u64);
    assert!(report.complete, "{report:?}");
    (report, expected.iter().map(|packet| (packet.time_ns, bytes_of(packet, 1400))).collect())
}

#[test]
fn packets_later_than_the_reorder_buffer_reaches_find_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let (report, expected) =
        dump_with_late_packets(DumpOutput::in_folder(folder.path()).unwrap(), folder.path());
    assert!(read(&report) == expected);
}

#[test]
fn late_packets_find_their_place_in_a_pcap_dump_too() {
    let folder = tempfile::tempdir().unwrap();
    let output = Arc::try_unwrap(DumpOutput::in_folder(folder.path()).unwrap()).unwrap();
    let (report, expected) =
        dump_with_late_packets(Arc::new(DumpOutput { format: DumpFormat::Pcap, ..output }), folder.path());
    let (file, mut at, mut packets) = (std::fs::read(&report.paths[0]).unwrap(), 24, Vec::new());
    while at < file.len() {
        let [seconds, ns, captured] = [0, 4, 8].map(|place| i64::from(pcapng::le32(&file, at + place)));
        at += 16 + captured as usize;
        packets.push((seconds * 1_000_000_000 + ns, file[at - captured as usize..at].to_vec()));
    }
    assert!(packets == expected);
}

#[test]
fn in_a_pipe_late_packets_stand_behind_their_place_and_none_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let target = Target::Stream(std::fs::File::create(&path).unwrap());
    let output = DumpOutput {
        format: DumpFormat::Pcapng,
        target,
        budget: None,
        disk: Arc::new(SystemDisk),
        spool: None,
    };
    let (report, expected) = dump_with_late_packets(Arc::new(output), folder.path());
    assert!(report.paths.is_empty() && report.to_stream);
    let mut packets = read(&DumpReport { paths: vec![path.clone()], ..report });
    assert!(packets != expected, "nothing can be put right in a pipe");
    packets.sort();
    let mut expected = expected;
    expected.sort();
    assert!(packets == expected);
    let file = std::fs::read(path).unwrap();
    assert!(String::from_utf8_lossy(&file[file.len() - 20_000..]).contains("out of order: "));
}

/// Dumps of one run that begin at any moment and share their scan; each against the model.
fn check_many(case: &Case, dumps: usize) -> scope_dump::Spared {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(case.lanes, case.segments, case.len, case.grace_ns);
    let mut state = case.seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 7) % below.max(1)
    };
    let (mut now_ns, mut running) = (1_000_000_000_000, Vec::new());
    for number in 0..case.past + case.future {
        now_ns += random(2 * case.step_ns as u64) as i64;
        let hit =
            bench.feed(random(case.lanes as u64) as u32, now_ns - random(case.jitter_ns as u64 + 1) as i64);
        if random(20) == 0 {
            bench.commit();
        }
        if number < case.past || running.len() == dumps || random((case.future / dumps) as u64) > 0 {
            continue;
        }
        let filter = match random(3) {
            0 => FILTERS[random(FILTERS.len() as u64) as usize],
            1 => "host 10.0.0.1",
            _ => "host 10.0.0.2 and host 10.0.0.3",
        };
        let after_ns = random(2 * case.after_ns as u64) as i64;
        let window = Arc::new(Window::new(hit.time_ns - case.before_ns, hit.time_ns + after_ns, hit.time_ns));
        let living = bench.living_from();
        let order = order(&bench, hit, filter, &window, folder.path(), case.dumps_max);
        let (ring, number) = (bench.ring.clone(), running.len() as u64 + 1);
        let dump = std::thread::spawn(move || cut(&ring, DumpOrder { id: number, ..order }));
        running.push((dump, filter, hit, window, living));
    }
    bench.end();
    assert!(running.len() > dumps / 2, "{} dumps", running.len());
    for (dump, filter, hit, window, living) in running {
        let report = dump.join().unwrap();
        let missing = verify(&bench, &report, case, filter, hit, &window, &living);
        assert!(
            (report.lost_min..=report.lost_max).contains(&(missing.len() as u64)),
            "{report:?} {}",
            missing.len()
        );
    }
    assert_eq!(bench.ring.budget().taken(), 0, "all pins are given back");
    bench.scans.spared()
}

fn many(seed: u64, jitter_ns: i64) -> Case {
    Case {
        lanes: 2,
        segments: 64,
        len: 120,
        past: 3000,
        future: 40_000,
        step_ns: 100_000,
        jitter_ns,
        before_ns: 300_000_000,
        after_ns: 2_000_000_000,
        grace_ns: 10_000_000 + jitter_ns,
        dumps_max: 30,
        filter: "",
        seed,
    }
}

#[test]
fn dumps_that_share_a_scan_hold_what_each_would_hold_alone() {
    let mut shared = 0;
    for (seed, jitter_ns) in [(3, 0), (4, 1_000_000), (5, 30_000_000)] {
        shared += check_many(&many(seed, jitter_ns), 30).packets_shared;
    }
    assert!(shared > 30_000, "{shared} packets were scanned for all");
}

#[test]
fn packets_of_one_time_go_out_in_the_order_of_lanes_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let mut bench = Bench::new(2, 32, 100, 0);
    let begin_ns = 1_000_000_000_000;
    // Lane 1 begins earlier: its piece is read first, and its packet of the common time must wait for lane
    // 0's.
    let hit = bench.feed(1, begin_ns);
    bench.feed(1, begin_ns + 1);
    bench.feed(0, begin_ns + 1);
    bench.feed(0, begin_ns + 1);
    bench.feed(1, begin_ns + 2);
    let window = Arc::new(Window::new(begin_ns, begin_ns + 10, begin_ns));
    let target = Target::Stream(std::fs::File::create(&path).unwrap());
    let output =
        DumpOutput { target, ..Arc::try_unwrap(DumpOutput::in_folder(folder.path()).unwrap()).ok().unwrap() };
    let order = DumpOrder { output: Arc::new(output), ..order(&bench, hit, "", &window, folder.path(), 1) };
    bench.end();
    let report = cut(&bench.ring, order);
    let written = read(&DumpReport { paths: vec![path], ..report });
    let mut expected = bench.fed.clone();
    expected.sort();
    let expected: Vec<_> = expected.iter().map(|packet| (packet.time_ns, bytes_of(packet, 100))).collect();
    assert!(written == expected, "in a pipe nothing can be put right");
}

#[test]
fn packets_of_another_era_are_none_of_the_window_s_and_none_that_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::new(1, 32, 1000, 0);
    let begin_ns = 1_000_000_000_000;
    let second = 1_000_000_000;
    // Era 0 goes through the ring twice, at the very times that era 1 has again.
    let feed = |bench: &mut Bench, packets: i64| {
        (0..packets).map(|n| bench.feed(0, begin_ns + n * second / 1000)).last().unwrap()
    };
    feed(&mut bench, 4000);
    bench.commit();
    let next = bench.numbers[0];
    bench.lanes[0].begin_part();
    bench.ring.begin_era(0, 1, [(0, next)].into_iter());
    bench.fed.clear();
    bench.clocks[0] = 0;
    let hit = feed(&mut bench, 500);
    let window = Arc::new(Window::in_era(1, begin_ns + second / 10, begin_ns + second, hit.time_ns));
    let order = order(&bench, hit, "", &window, folder.path(), 1);
    bench.end();
    let report = cut(&bench.ring, order);
    assert_eq!((report.lost_max, report.packets), (0, 400), "{report:?}");
    let inside = bench.fed.iter().filter(|packet| packet.time_ns >= window.from_ns());
    assert!(
        read(&report) == inside.map(|packet| (packet.time_ns, bytes_of(packet, 1000))).collect::<Vec<_>>()
    );
}

#[test]
fn any_window_with_any_losses_is_the_same_from_the_ring_and_from_memory() {
    let mut lacking = 0;
    for seed in 1..=3u64 {
        let mut dice = seed * 0x9e37_79b9;
        let mut random = move |below: i64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice >> 9) as i64 % below
        };
        let mut bench = Bench::new(3, 48, 700, 0);
        let begin_ns = 1_000_000_000_000;
        let mut never_came = Vec::new();
        for worker in 0..3 {
            bench.ring.begin_listening(worker, begin_ns, GapReason::NotStarted);
            let (from_ns, to_ns, reason) = (0, begin_ns - 1, GapReason::NotStarted);
            never_came.push(Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None });
        }
        for n in 0..9000 {
            bench.feed(random(3) as u32, begin_ns + n * 1_000_000 - random(2) * random(40_000_000));
            if n % 1800 == 900 {
                let (from_ns, reason) = (
                    begin_ns + n * 1_000_000,
                    [GapReason::Kernel, GapReason::RingPinned][random(2) as usize],
                );
                let (lost, to_ns) = (1 + random(9) as u64, from_ns + random(90_000_000));
                let gap = Gap { from_ns, to_ns, reason, lost_min: lost, lost_max: Some(lost) };
                bench.ring.note_gap(random(3) as u32, 0, gap);
                never_came.push(gap);
            }
        }
        let end_ns = begin_ns + 9_000_000_000;
        for worker in 0..3 {
            bench.ring.end_listening(worker, end_ns, GapReason::Stopped);
            let (from_ns, to_ns, reason) = (end_ns + 1, i64::MAX, GapReason::Stopped);
            never_came.push(Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None });
        }
        bench.end();
        let living = bench.living_from();
        for round in 0..24 {
            let hit = loop {
                let hit = bench.fed[random(9000) as usize];
                if hit.number >= living[hit.lane as usize] {
                    break hit;
                }
            };
            let (before_ns, after_ns) =
                (random(4_000_000_000) >> random(6), random(3_000_000_000) >> random(6));
            let window = Arc::new(Window::new(hit.time_ns - before_ns, hit.time_ns + after_ns, hit.time_ns));
            let (filter, folder) =
                (FILTERS[random(FILTERS.len() as i64) as usize], tempfile::tempdir().unwrap());
            let report = cut(&bench.ring, order(&bench, hit, filter, &window, folder.path(), 4));
            let mut memory = bench.in_memory(window.from_ns(), &living);
            memory.never_came = never_came.clone();
            memory.listened = Some((begin_ns, end_ns));
            (memory.step, memory.grace_ns) = (1 + random(3000) as usize, 40_000_000);
            check_twin(&report, hit, filter, &mut memory, &format!("run {seed}, window {round}: {filter}"));
            lacking += usize::from(report.lost_max > 0);
        }
    }
    assert!((8..=64).contains(&lacking), "{lacking} of 72 windows lack something");
}
