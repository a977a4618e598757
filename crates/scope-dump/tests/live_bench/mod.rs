//! A ring that is fed as live workers would, and a dump that comes to its reading and writing only when it is
//! let: with the truth of what was offered.

#![allow(dead_code)] // each test binary uses a part of it

use scope_dump::disk::Disk;
use scope_dump::{
    DumpFormat, DumpOrder, DumpOutput, DumpReport, FirstPins, HitPacket, Progress, Scans, SystemDisk, Target,
    cut,
};
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_folder::Folder;
use scope_packet::pcapng::{self, PacketBlock, PacketHead};
use scope_packet::{
    Clock, Gap, GapReason, Headers, Interface, KeyEntry, LinkType, SegmentId, TimestampSource,
};
use scope_ring::{Append, LaneWriter, Pinned, Ring, RingConfig, WorkerCounts};
use scope_trigger::Window;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const SEGMENT: u64 = 64 << 10;
pub const BEGIN_NS: i64 = 1_000_000_000_000;

/// Where the dump's thread stands: it goes on only when it is let.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<Usage>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Usage {
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

    fn settled(&self) -> std::sync::MutexGuard<'_, Usage> {
        let state = self.state.lock().unwrap();
        self.changed.wait_while(state, |state| !state.waits && !state.ended && !state.free).unwrap()
    }

    /// Lets the dump go on up to its next pause; false: it has ended.
    pub fn step(&self) -> bool {
        let mut state = self.settled();
        state.waits = false;
        self.changed.notify_all();
        drop(state);
        !self.settled().ended
    }

    pub fn set_free(&self) {
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
pub struct Turns(pub Arc<Gate>);

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
pub struct SlowDisk(pub Arc<Gate>);

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

pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }

    /// Once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A packet that was offered: its key in the dump, its time and whether the filter takes it.
pub struct Offered {
    pub time_ns: i64,
    pub taken: bool,
}

/// A ring that is fed as live workers would.
pub struct Bench {
    pub ring: Arc<Ring>,
    pub scans: Arc<Scans>,
    pub writers: Vec<LaneWriter>,
    /// By lane and running number.
    pub offered: BTreeMap<(u32, u64), Offered>,
    pub numbers: Vec<u64>,
    /// What each lane dropped since the last commit: packets, from, to.
    pub dropped: Vec<Option<(u64, i64, i64)>>,
    pub now_ns: i64,
    pub jitter_ns: i64,
    /// Packets with more bytes are taken; 0: all.
    pub longer_than: usize,
    /// Of so many packets the kernel drops one.
    pub dropped_of: u64,
}

impl Bench {
    pub fn new(lanes: u32, segments: u64, jitter_ns: i64, longer_than: usize) -> Bench {
        Bench::of(&vec![LinkType::ETHERNET; lanes as usize], segments, jitter_ns, longer_than)
    }

    /// A lane of each of these link types.
    pub fn of(link_types: &[LinkType], segments: u64, jitter_ns: i64, longer_than: usize) -> Bench {
        let lanes = link_types.len() as u32;
        let config = RingConfig {
            ring_bytes: segments * SEGMENT,
            segment_bytes: Some(SEGMENT),
            workers: lanes,
            lanes,
            run_id: [3; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let open = |worker: u32| {
            let mut writer = ring.open_lane(worker, link_types[worker as usize]).unwrap();
            let interface = Interface {
                name: format!("if{worker}"),
                description: String::new(),
                link_type: link_types[worker as usize],
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
    pub fn feed(&mut self, lane: u32, dice: &mut Dice) -> (i64, Option<HitPacket>) {
        let at = lane as usize;
        self.now_ns += dice.below(200_000) as i64;
        let time_ns = self.now_ns - dice.below(self.jitter_ns as u64 + 1) as i64;
        let len = 200 + dice.below(1200) as usize;
        let number = self.numbers[at];
        self.numbers[at] += 1;
        self.offered.insert((lane, number), Offered { time_ns, taken: len > self.longer_than });
        if dice.once_in(self.dropped_of) {
            // The kernel drops it, and is asked later.
            self.ring.note_loss(
                lane,
                1,
                time_ns - dice.below(1_000_000) as i64,
                time_ns + dice.below(1_000_000) as i64,
            );
            return (time_ns, None);
        }
        let mut data = vec![0xee; len];
        data[..8].copy_from_slice(&number.to_le_bytes());
        data[8..12].copy_from_slice(&lane.to_le_bytes());
        let head = PacketHead {
            time_ns,
            captured_len: len as u32,
            original_len: len as u32,
            ..PacketHead::default()
        };
        let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
        let writer = &mut self.writers[at];
        while writer.append(0, &head, key, &data) == Append::NeedsSegment {
            if !writer.claim() {
                let (packets, from_ns, to_ns) = self.dropped[at].unwrap_or((0, time_ns, time_ns));
                self.dropped[at] = Some((packets + 1, from_ns.min(time_ns), to_ns.max(time_ns)));
                return (time_ns, None);
            }
        }
        (time_ns, Some(HitPacket { lane, packet: writer.next_packet() - 1, link_type: writer.link_type() }))
    }

    pub fn commit(&mut self) {
        for worker in 0..self.writers.len() {
            self.writers[worker].commit();
            if let Some((packets, from_ns, to_ns)) = self.dropped[worker].take() {
                let gap = Gap {
                    from_ns,
                    to_ns,
                    reason: GapReason::RingPinned,
                    lost_min: packets,
                    lost_max: Some(packets),
                };
                self.ring.note_gap(worker as u32, 0, gap);
            }
            let counts = WorkerCounts { received_packets: self.numbers[worker], ..WorkerCounts::default() };
            self.ring.publish_worker(worker as u32, &counts);
            self.ring.set_clock(worker as u32, self.now_ns);
        }
    }

    /// Any segment that is in the ring.
    pub fn pin_any(&self, dice: &mut Dice) -> Option<Pinned> {
        let lane = dice.below(self.writers.len() as u64) as u32;
        let there: Vec<SegmentId> = self.ring.segment_ids(lane, 0).collect();
        self.ring.pin(*there.get(dice.below(there.len() as u64) as usize)?)
    }
}

/// Lanes and numbers of the packets of a dump, and how often each is there.
pub fn read(report: &DumpReport) -> BTreeMap<(u32, u64), u32> {
    read_file(&report.paths[0])
}

/// The same of any file.
pub fn read_file(path: &Path) -> BTreeMap<(u32, u64), u32> {
    let file = std::fs::read(path).unwrap();
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

/// Holds a dump against the truth; how many packets it lacks.
pub fn verify(bench: &Bench, report: &DumpReport, hit: Option<(u32, u64)>, about: &str) -> usize {
    let written = read(report);
    assert!(written.values().all(|&times| times == 1), "{about}: each packet once");
    let inside =
        |packet: &Offered| packet.taken && (report.asked.0..=report.asked.1).contains(&packet.time_ns);
    assert!(
        written.keys().all(|key| Some(*key) == hit || inside(&bench.offered[key])),
        "{about}: a packet too much"
    );
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
        assert!(
            report.gaps.iter().any(|gap| within(&gap)),
            "{about}: a packet of {} in no gap: {report:#?}",
            packet.time_ns
        );
    }
    let sorted = report.gaps.is_sorted_by_key(|gap| (gap.from_ns, gap.to_ns));
    let inside =
        |gap: &Gap| report.asked.0 <= gap.from_ns && gap.from_ns <= gap.to_ns && gap.to_ns <= report.asked.1;
    assert!(sorted && report.gaps.iter().all(inside), "{about}: {report:#?}");
    lost as usize
}

/// A dump in a thread of its own, which goes on when its gate lets it.
pub fn begin(
    bench: &Bench,
    hit: Option<HitPacket>,
    window: &Arc<Window>,
    dumps_max: u64,
    output: DumpOutput,
    gate: &Arc<Gate>,
) -> std::thread::JoinHandle<DumpReport> {
    let text =
        if bench.longer_than == 0 { String::new() } else { format!("greater {}", bench.longer_than + 1) };
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
        keep: None,
        window: window.clone(),
        pins,
        output: Arc::new(output),
        progress: Arc::new(Progress::default()),
        scans: bench.scans.clone(),
        past: None,
        patience: None,
        clock: Arc::new(Turns(gate.clone())),
        evidence: Arc::default(),
    };
    let (ring, gate) = (bench.ring.clone(), gate.clone());
    std::thread::spawn(move || {
        let report = cut(&ring, order);
        gate.end();
        report
    })
}

/// Files in a folder, written when the gate lets them.
pub fn in_folder(folder: &Path, gate: &Arc<Gate>) -> DumpOutput {
    let target = Target::Folder(Arc::new(Folder::open(folder).unwrap()));
    DumpOutput {
        format: DumpFormat::Pcapng,
        target,
        budget: None,
        disk: Arc::new(SlowDisk(gate.clone())),
        spool: None,
    }
}
