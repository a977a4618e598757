//! What a dump states of its loss, held against the truth: thousands of small rings that are fed live, with pins of others, kernel
//! drops and several lanes, while the dump comes to its reading and writing only now and then.

use scope_dump::disk::Disk;
use scope_dump::{DumpFormat, DumpOrder, DumpOutput, DumpReport, FirstPins, HitPacket, Progress, Scans, SystemDisk, Target, cut};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_packet::pcapng::{self, PacketBlock, PacketHead};
use scope_packet::{Clock, Gap, GapReason, Headers, Interface, KeyEntry, LinkType, TimestampSource};
use scope_ring::{Append, LaneWriter, Pinned, Ring, RingConfig, WorkerCounts};
use scope_store::Folder;
use scope_trigger::Window;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const SEGMENT: u64 = 64 << 10;
const BEGIN_NS: i64 = 1_000_000_000_000;
/// Runs with random numbers.
const RUNS: u64 = 1200;

/// Where the dump's thread stands: it goes on only when it is let.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<Standing>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Standing {
    waits: bool,
    ended: bool,
    /// It passes every gate from now on.
    free: bool,
}

impl Gate {
    /// Called by the dump: waits until it is let go on.
    fn pause(&self) {
        let mut state = self.state.lock().unwrap();
        if state.free {
            return;
        }
        state.waits = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.waits && !state.free).unwrap());
    }

    fn settled(&self) -> std::sync::MutexGuard<'_, Standing> {
        let state = self.state.lock().unwrap();
        self.changed.wait_while(state, |state| !state.waits && !state.ended && !state.free).unwrap()
    }

    /// Lets the dump go on up to its next pause; false: it has ended.
    fn step(&self) -> bool {
        let mut state = self.settled();
        state.waits = false;
        self.changed.notify_all();
        drop(state);
        !self.settled().ended
    }

    fn set_free(&self) {
        self.state.lock().unwrap().free = true;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.state.lock().unwrap().ended = true;
        self.changed.notify_all();
    }
}

/// A clock by which the dump waits for its turn.
#[derive(Debug)]
struct Turns(Arc<Gate>);

impl Clock for Turns {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_ns(&self) -> i64 {
        BEGIN_NS
    }

    fn wait(&self, _limit: Duration, _wait: &dyn Fn(Duration)) {
        self.0.pause();
    }
}

/// A disk that takes a write only when it is let.
#[derive(Debug)]
struct SlowDisk(Arc<Gate>);

impl Disk for SlowDisk {
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        self.0.pause();
        SystemDisk.write(file, bytes)
    }

    fn give_name(&self, folder: &Folder, file: &File, name: &std::ffi::OsStr) -> io::Result<()> {
        self.0.pause();
        SystemDisk.give_name(folder, file, name)
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }

    /// Once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A packet that was offered: its key in the dump, its time and whether the filter takes it.
struct Offered {
    time_ns: i64,
    taken: bool,
}

/// A ring that is fed as live workers would.
struct Bench {
    ring: Arc<Ring>,
    scans: Arc<Scans>,
    writers: Vec<LaneWriter>,
    /// By lane and running number.
    offered: BTreeMap<(u32, u64), Offered>,
    numbers: Vec<u64>,
    /// What each lane dropped since the last commit: packets, from, to.
    dropped: Vec<Option<(u64, i64, i64)>>,
    now_ns: i64,
    jitter_ns: i64,
    /// Packets with more bytes are taken; 0: all.
    longer_than: usize,
    /// Of so many packets the kernel drops one.
    dropped_of: u64,
}

impl Bench {
    fn new(lanes: u32, segments: u64, jitter_ns: i64, longer_than: usize) -> Bench {
        let config =
            RingConfig { ring_bytes: segments * SEGMENT, segment_bytes: Some(SEGMENT), workers: lanes, lanes, run_id: [3; 16] };
        let ring = Ring::create(&config).unwrap();
        let open = |worker: u32| {
            let mut writer = ring.open_lane(worker, LinkType::ETHERNET).unwrap();
            let interface = Interface {
                name: format!("if{worker}"),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::Kernel,
                part: 0,
            };
            writer.add_interface(ring.register(writer.lane(), &interface).unwrap());
            ring.set_grace(worker, jitter_ns + 1);
            ring.begin_listening(worker, 1, GapReason::NotStarted);
            writer
        };
        Bench {
            scans: Scans::new(&ring, None),
            writers: (0..lanes).map(open).collect(),
            ring,
            offered: BTreeMap::new(),
            numbers: vec![0; lanes as usize],
            dropped: vec![None; lanes as usize],
            now_ns: BEGIN_NS,
            jitter_ns,
            longer_than,
            dropped_of: u64::MAX,
        }
    }

    /// One packet more; where it stands, if it could be stored.
    fn feed(&mut self, lane: u32, dice: &mut Dice) -> (i64, Option<HitPacket>) {
        let at = lane as usize;
        self.now_ns += dice.below(200_000) as i64;
        let time_ns = self.now_ns - dice.below(self.jitter_ns as u64 + 1) as i64;
        let len = 200 + dice.below(1200) as usize;
        let number = self.numbers[at];
        self.numbers[at] += 1;
        self.offered.insert((lane, number), Offered { time_ns, taken: len > self.longer_than });
        if dice.once_in(self.dropped_of) {
            // The kernel drops it, and is asked later.
            self.ring.note_loss(lane, 1, time_ns - dice.below(1_000_000) as i64, time_ns + dice.below(1_000_000) as i64);
            return (time_ns, None);
        }
        let mut data = vec![0xee; len];
        data[..8].copy_from_slice(&number.to_le_bytes());
        data[8..12].copy_from_slice(&lane.to_le_bytes());
        let head = PacketHead { time_ns, captured_len: len as u32, original_len: len as u32, ..PacketHead::default() };
        let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
        let writer = &mut self.writers[at];
        while writer.append(0, &head, key, &data) == Append::NeedsSegment {
            if !writer.claim() {
                let (packets, from_ns, to_ns) = self.dropped[at].unwrap_or((0, time_ns, time_ns));
                self.dropped[at] = Some((packets + 1, from_ns.min(time_ns), to_ns.max(time_ns)));
                return (time_ns, None);
            }
        }
        (time_ns, Some(HitPacket { lane, packet: writer.next_packet() - 1, link_type: LinkType::ETHERNET }))
    }

    fn commit(&mut self) {
        for worker in 0..self.writers.len() {
            self.writers[worker].commit();
            if let Some((packets, from_ns, to_ns)) = self.dropped[worker].take() {
                let gap = Gap { from_ns, to_ns, reason: GapReason::RingPinned, lost_min: packets, lost_max: Some(packets) };
                self.ring.note_gap(worker as u32, 0, gap);
            }
            let counts = WorkerCounts { received_packets: self.numbers[worker], ..WorkerCounts::default() };
            self.ring.publish_worker(worker as u32, &counts);
            self.ring.set_clock(worker as u32, self.now_ns);
        }
    }

    /// Any segment that is in the ring.
    fn pin_any(&self, dice: &mut Dice) -> Option<Pinned> {
        let lane = dice.below(self.writers.len() as u64) as u32;
        let there: Vec<u64> = self.ring.sequences(lane, 0).collect();
        self.ring.pin(lane, *there.get(dice.below(there.len() as u64) as usize)?)
    }
}

/// Lanes and numbers of the packets of a dump, and how often each is there.
fn read(report: &DumpReport) -> BTreeMap<(u32, u64), u32> {
    let file = std::fs::read(&report.paths[0]).unwrap();
    let (mut at, mut packets) = (0, BTreeMap::new());
    while at < file.len() {
        if let Some(block) = PacketBlock::first(&file[at..]) {
            let number = u64::from_le_bytes(block.data()[..8].try_into().unwrap());
            let lane = u32::from_le_bytes(block.data()[8..12].try_into().unwrap());
            *packets.entry((lane, number)).or_default() += 1;
        }
        at += pcapng::le32(&file, at + 4) as usize;
    }
    packets
}

fn verify(bench: &Bench, report: &DumpReport, hit: Option<(u32, u64)>, about: &str) -> usize {
    let written = read(report);
    assert!(written.values().all(|&times| times == 1), "{about}: each packet once");
    let inside = |packet: &Offered| packet.taken && (report.asked.0..=report.asked.1).contains(&packet.time_ns);
    assert!(written.keys().all(|key| Some(*key) == hit || inside(&bench.offered[key])), "{about}: a packet too much");
    let missing: Vec<&Offered> = bench
        .offered
        .iter()
        .filter(|(key, packet)| inside(packet) && !written.contains_key(key))
        .map(|(_, packet)| packet)
        .collect();
    let lost = missing.len() as u64;
    assert!(report.lost_min <= lost && lost <= report.lost_max, "{about}: {lost} are missing: {report:#?}");
    assert!(!report.complete || lost == 0, "{about}: complete, and {lost} are missing: {report:#?}");
    assert_eq!(report.complete, report.gaps.is_empty(), "{about}: {report:#?}");
    for packet in missing {
        let within = |gap: &&Gap| (gap.from_ns..=gap.to_ns).contains(&packet.time_ns);
        assert!(report.gaps.iter().any(|gap| within(&gap)), "{about}: a packet of {} in no gap: {report:#?}", packet.time_ns);
    }
    let sorted = report.gaps.is_sorted_by_key(|gap| (gap.from_ns, gap.to_ns));
    let inside = |gap: &Gap| report.asked.0 <= gap.from_ns && gap.from_ns <= gap.to_ns && gap.to_ns <= report.asked.1;
    assert!(sorted && report.gaps.iter().all(inside), "{about}: {report:#?}");
    lost as usize
}

/// A dump in a thread of its own, which goes on when its gate lets it.
fn begin(
    bench: &Bench,
    hit: Option<HitPacket>,
    window: &Arc<Window>,
    dumps_max: u64,
    output: DumpOutput,
    gate: &Arc<Gate>,
) -> std::thread::JoinHandle<DumpReport> {
    let text = if bench.longer_than == 0 { String::new() } else { format!("greater {}", bench.longer_than + 1) };
    let pins = FirstPins::take(&bench.ring, window.era(), window.from_ns(), dumps_max);
    bench.scans.watch(&pins);
    let order = DumpOrder {
        id: 1,
        trigger: "model".into(),
        why: "by a test".into(),
        hit,
        time_ns: window.hits().1[0],
        filter: Filter::compile(&text, VlanRule::Exact, &[LinkType::ETHERNET]).unwrap(),
        filter_engine: FilterEngine::Interpreter,
        window: window.clone(),
        pins,
        output: Arc::new(output),
        progress: Arc::new(Progress::default()),
        scans: bench.scans.clone(),
        patience: None,
        clock: Arc::new(Turns(gate.clone())),
    };
    let (ring, gate) = (bench.ring.clone(), gate.clone());
    std::thread::spawn(move || {
        let report = cut(&ring, order);
        gate.end();
        report
    })
}

fn in_folder(folder: &std::path::Path, gate: &Arc<Gate>) -> DumpOutput {
    let target = Target::Folder(Arc::new(Folder::open(folder).unwrap()));
    DumpOutput { format: DumpFormat::Pcapng, target, budget: None, disk: Arc::new(SlowDisk(gate.clone())) }
}

/// One random run; packets that its dump lacks, and whether it says that it is complete.
fn run(seed: u64) -> (usize, bool) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let lanes = 1 + dice.below(3) as u32;
    let segments = u64::from(lanes) * 16 + dice.below(8);
    let jitter_ns = [0, 1_000_000, 40_000_000][dice.below(3) as usize];
    let longer_than = if dice.once_in(4) { 700 } else { 0 };
    let mut bench = Bench::new(lanes, segments, jitter_ns, longer_than);
    let turn = segments * SEGMENT / 850; // packets
    bench.dropped_of = if dice.once_in(3) { 400 } else { u64::MAX };
    // Half of the dumps keep up, and of some the windows are short.
    let (slow, short) = (if dice.once_in(2) { 600 } else { 40 }, 1 + dice.below(20));
    let (mut pins, pins_max) = (Vec::new(), dice.below(segments * 3 / 4) as usize);
    let (pin_once_in, step_once_in) = (1 + dice.below(300), 1 + dice.below(slow));
    let (hold_once_in, commit_once_in) = (1 + dice.below(400), 1 + dice.below(60));
    let mut live = |bench: &mut Bench, dice: &mut Dice| {
        let lane = dice.below(lanes.into()) as u32;
        let fed = bench.feed(lane, dice);
        if dice.once_in(pin_once_in) {
            if pins.len() < pins_max && !dice.once_in(3) {
                pins.extend(bench.pin_any(dice));
            } else if !pins.is_empty() {
                pins.swap_remove(dice.below(pins.len() as u64) as usize);
            }
        }
        if dice.once_in(hold_once_in) {
            bench.scans.hold_on();
        }
        if dice.once_in(commit_once_in) {
            bench.commit();
        }
        (lane, fed)
    };
    for _ in 0..dice.below(3 * turn) {
        live(&mut bench, &mut dice);
    }
    let (lane, (hit_ns, place)) = live(&mut bench, &mut dice);
    let hit = place.map(|_| (lane, bench.numbers[lane as usize] - 1));
    let span_ns = |turns: u64| (turns * turn * 100_000) as i64;
    let (before_ns, after_ns) = (dice.below(span_ns(2) as u64 / short) as i64, dice.below(span_ns(2) as u64 / short) as i64);
    let window = Arc::new(Window::new(hit_ns - before_ns, hit_ns + after_ns, hit_ns));
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::new(Gate::default()));
    let dump = begin(&bench, place, &window, 1 + dice.below(3), in_folder(folder.path(), &gate), &gate);
    let mut going = true;
    for _ in 0..dice.below(6 * turn) {
        live(&mut bench, &mut dice);
        if going && dice.once_in(step_once_in) {
            going = gate.step();
        }
    }
    bench.commit();
    for worker in 0..lanes {
        bench.ring.end_listening(worker, bench.now_ns, GapReason::Stopped);
        bench.ring.end_clock(worker);
    }
    gate.set_free();
    let report = dump.join().unwrap();
    drop(pins);
    let lost = verify(&bench, &report, hit, &format!("run {seed}"));
    assert_eq!(bench.ring.budget().taken(), 0, "run {seed}: all pins are given back");
    (lost, report.complete)
}

#[test]
fn in_random_live_runs_no_complete_dump_lacks_a_packet_and_every_bound_holds() {
    let results: Vec<(usize, bool)> = std::thread::scope(|scope| {
        let parts = 4;
        let part = |part: u64| scope.spawn(move || (0..RUNS / parts).map(|n| run(n * parts + part)).collect::<Vec<_>>());
        let all: Vec<_> = (0..parts).map(part).collect();
        all.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    // Both kinds come often enough to mean something.
    let (complete, lacking) = (results.iter().filter(|run| run.1).count(), results.iter().filter(|run| run.0 > 0).count());
    assert!(complete > 100 && lacking > 500, "{complete} complete, {lacking} lacking");
}

/// A dump whose window ends two quarters of a turn of the ring after its hit. It stands in a write while `quarters` pass, after each
/// of which the keeper looks, if there is one. Its report, and what it lacks.
fn stalled(quarters: u64, kept: bool) -> (DumpReport, usize) {
    let mut dice = Dice(77);
    let mut bench = Bench::new(1, 64, 0, 0);
    let quarter = 64 * SEGMENT / 850 / 4;
    let (hit_ns, place) = bench.feed(0, &mut dice);
    bench.commit();
    let window = Arc::new(Window::new(hit_ns, hit_ns + 2 * quarter as i64 * 100_000, hit_ns));
    let (folder, gate) = (tempfile::tempdir().unwrap(), Arc::new(Gate::default()));
    let dump = begin(&bench, place, &window, 1, in_folder(folder.path(), &gate), &gate);
    assert!(gate.step(), "it has looked once, and waits");
    for _ in 0..quarters {
        for _ in 0..quarter {
            bench.feed(0, &mut dice);
        }
        bench.commit();
        if kept {
            bench.scans.hold_on();
        }
    }
    bench.ring.end_listening(0, bench.now_ns, GapReason::Stopped);
    bench.ring.end_clock(0);
    gate.set_free();
    let report = dump.join().unwrap();
    let lost = verify(&bench, &report, Some((0, 0)), "a stalled dump");
    (report, lost)
}

#[test]
fn a_dump_that_hangs_for_turns_of_the_ring_lacks_nothing_that_it_may_hold() {
    for quarters in [3, 5, 40] {
        let (report, lost) = stalled(quarters, true);
        assert!(lost == 0 && report.complete && report.packets > 2000, "{lost}: {report:#?}");
    }
    let (report, lost) = stalled(40, false);
    assert!(lost > 2000 && report.lost_min > 2000 && !report.complete, "without a keeper: {report:#?}");
}
