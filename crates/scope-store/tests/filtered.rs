//! Volumes that keep less than the ring, against a plain model: which packets each file has, which numbers it
//! stands for, and what is counted meanwhile.

use proptest::prelude::*;
use scope_folder::Folder;
use scope_packet::key::KeyEntry;
use scope_packet::pcapng::{PacketBlock, PacketHead};
use scope_packet::{DropReason, GapReason, Headers, Interface, LinkType, TimestampSource};
use scope_ring::budget::PinBudget;
use scope_ring::{Append, LaneWriter, Ring, RingConfig, SegmentReader};
use scope_store::compose::{self, Keeping, Sieve};
use scope_store::disk::{Begun, Disk, FileNumber, Finished, Room, Standing};
use scope_store::io::{Want, open};
use scope_store::report::{Amount, share_out_behind};
use scope_store::retain::Bounds;
use scope_store::verify::{self, Meter, Reason, Verdict};
use scope_store::volume::{Place, Volume, VolumeId};
use scope_store::volume_writer::{Turn, VolumeWriter, WriterPlan};
use scope_store::volumes::Shared;
use scope_store::{Dealer, StoredFile};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const SEGMENT_BYTES: u64 = 64 << 10;
const LANES: u32 = 2;
/// Longer than any disk takes.
const LONG: Duration = Duration::from_secs(120);

/// Keeps packets whose first byte is below a bound; each packet has a random one.
struct Below(u8);

impl Sieve for Below {
    fn keeps(&mut self, _: LinkType, packets: &[(KeyEntry, PacketBlock<'_>)]) -> u64 {
        let bits =
            packets.iter().enumerate().map(|(nth, (_, block))| u64::from(block.data()[0] < self.0) << nth);
        bits.fold(0, |all, bit| all | bit)
    }
}

/// What a volume keeps.
#[derive(Clone, Copy, Debug)]
struct Keeps {
    below: Option<u8>,
    snap: Option<u32>,
}

#[derive(Clone, Debug)]
struct Case {
    volumes: Vec<Keeps>,
    /// Whether workers wait for the store.
    waits: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Packets of this length on a lane.
    Append {
        lane: u32,
        packets: u16,
        len: u16,
        seed: u8,
    },
    Seal(u32),
    Drop(u32),
    Turn(u8),
}

fn case() -> impl Strategy<Value = Case> {
    let below = prop_oneof![
        Just(None),
        Just(Some(0)),
        Just(Some(1)),
        Just(Some(20)),
        Just(Some(128)),
        Just(Some(255))
    ];
    let snap = prop_oneof![3 => Just(None), 1 => Just(Some(8u32)), 1 => Just(Some(60))];
    let keeps = (below, snap).prop_map(|(below, snap)| Keeps { below, snap });
    let step = prop_oneof![
        6 => (0..LANES, 1..400u16, 16..1500u16, any::<u8>())
            .prop_map(|(lane, packets, len, seed)| Step::Append { lane, packets, len, seed }),
        1 => (0..LANES).prop_map(Step::Seal),
        1 => (0..LANES).prop_map(Step::Drop),
        4 => any::<u8>().prop_map(Step::Turn),
    ];
    let volumes = proptest::collection::vec(keeps, 1..4);
    (volumes, any::<bool>(), proptest::collection::vec(step, 10..120))
        .prop_map(|(volumes, waits, steps)| Case { volumes, waits, steps })
}

/// A run: a ring that is filled by hand, and volumes that are turned by hand.
struct Running {
    root: tempfile::TempDir,
    ring: Arc<Ring>,
    lanes: Vec<LaneWriter>,
    shared: Arc<Shared>,
    volumes: Vec<VolumeWriter>,
    over: Vec<bool>,
    /// Of each lane the packets, by number.
    truth: Vec<Vec<Vec<u8>>>,
    /// Packets that found no segment.
    refused: u64,
    time_ns: i64,
}

impl Running {
    fn new(case: &Case) -> Running {
        Running::on(case, |disk| disk)
    }

    /// On disks that `of` makes of others.
    fn on(case: &Case, of: impl Fn(Box<dyn Disk + Send>) -> Box<dyn Disk + Send>) -> Running {
        let root = tempfile::tempdir().unwrap();
        let config = RingConfig {
            ring_bytes: 40 * SEGMENT_BYTES,
            segment_bytes: Some(SEGMENT_BYTES),
            workers: LANES,
            lanes: LANES,
            run_id: [0xab; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let mut lanes = Vec::new();
        for worker in 0..LANES {
            let mut lane = ring.open_lane(worker, LinkType::ETHERNET).unwrap();
            let interface = Interface {
                name: format!("eth{worker}"),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::Generator,
                description: String::new(),
                part: 0,
            };
            lane.add_interface(ring.register(worker, &interface).unwrap());
            lanes.push(lane);
        }
        let count = case.volumes.len();
        let allowance = Arc::new(PinBudget::new(12)).take(12, 1);
        let reader = SegmentReader::new(&ring, allowance);
        let ids = (0..count).map(|index| VolumeId([index as u8 + 1; 16])).collect();
        let shared = Shared::new(&ring, None, Dealer::new(reader, count), ids);
        let volume = |(index, keeps): (usize, &Keeps)| {
            let path = root.path().join(index.to_string());
            let place = Place::find(&path).unwrap();
            let volume = Volume::open(&place, VolumeId([index as u8 + 1; 16]), None).unwrap();
            let folder = Arc::new(Folder::open(&path).unwrap());
            let (disk, way) = open(&folder, None, Want::Pwrite);
            let (recovery, _) = open(&folder, None, Want::Pwrite);
            let sieve = |below: u8| Box::new(Below(below)) as Box<dyn Sieve>;
            let keeping = (keeps.below.is_some() || keeps.snap.is_some()).then(|| Keeping {
                sieve: keeps.below.map(sieve),
                snap: keeps.snap,
                filter: keeps.below.map_or(String::new(), |below| format!("first byte below {below}")),
                memory: compose::memory(&ring).unwrap(),
            });
            let plan = WriterPlan {
                file_bytes: 1 << 20,
                flush: Duration::from_millis(1),
                bounds: Bounds::default(),
                chain: false,
                keeping,
            };
            VolumeWriter::new(&shared, index, volume, (of(disk), &way), recovery, plan).unwrap()
        };
        let volumes: Vec<VolumeWriter> = case.volumes.iter().enumerate().map(volume).collect();
        Running {
            over: vec![false; volumes.len()],
            truth: vec![Vec::new(); LANES as usize],
            refused: 0,
            time_ns: 1_763_700_000_000_000_000,
            root,
            ring,
            lanes,
            shared,
            volumes,
        }
    }

    fn append(&mut self, waits: bool, lane: u32, len: u16, first: u8) {
        let mut data = vec![0xee; usize::from(len)];
        let number = self.truth[lane as usize].len() as u32;
        data[0] = first;
        data[1..5].copy_from_slice(&number.to_le_bytes());
        self.time_ns += 1000;
        let head =
            PacketHead { time_ns: self.time_ns, original_len: u32::from(len) + 4, ..PacketHead::default() };
        let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, &data));
        let began = Instant::now();
        while began.elapsed() < LONG {
            if let Append::Stored(_) = self.lanes[lane as usize].append(0, &head, key, &data) {
                self.truth[lane as usize].push(data);
                return;
            }
            let claimed = match waits {
                true => !self.ring.must_wait(lane) && self.lanes[lane as usize].claim_unneeded(),
                false => self.lanes[lane as usize].claim(),
            };
            if !claimed && !waits {
                break;
            }
            if !claimed {
                (0..self.volumes.len()).for_each(|volume| self.turn(volume));
            }
        }
        self.lanes[lane as usize].count_dropped(0, DropReason::RingPinned, 1);
        self.refused += 1;
        assert!(!waits, "the store never gave a segment back");
    }

    fn turn(&mut self, volume: usize) {
        if !self.over[volume] {
            self.over[volume] = self.volumes[volume].turn() == Turn::Over;
        }
    }

    /// No column has more than was published, and the last volume's `behind` is the rest.
    fn check_law(&self) {
        let mut reports = self.shared.reports();
        let lanes = self.ring.counters().lanes;
        let published =
            lanes.iter().fold(Amount::default(), |sum, lane| sum.plus(Amount::new(lane.packets, lane.bytes)));
        let settled =
            |report: &scope_store::VolumeReport| report.stored.plus(report.filtered).plus(report.missed);
        let sum = reports.iter().map(settled).fold(Amount::default(), Amount::plus);
        assert!(sum.packets <= published.packets && sum.bytes <= published.bytes, "{sum:?} of {published:?}");
        share_out_behind(&mut reports, published);
        let behind = reports.iter().map(|report| report.behind).fold(Amount::default(), Amount::plus);
        assert_eq!(sum.plus(behind), published);
    }

    /// Ends the run; what is missed.
    fn end(&mut self) -> (Amount, Amount) {
        self.lanes.clear();
        self.shared.end();
        let began = Instant::now();
        while began.elapsed() < LONG {
            (0..self.volumes.len()).for_each(|volume| self.turn(volume));
            if self.over.iter().all(|over| *over) {
                let reports = self.shared.reports();
                let sum = |of: fn(&scope_store::VolumeReport) -> Amount| {
                    reports.iter().map(of).fold(Amount::default(), Amount::plus)
                };
                self.check_law();
                let all = sum(|report| report.stored)
                    .plus(sum(|report| report.filtered))
                    .plus(sum(|report| report.missed));
                let lanes = self.ring.counters().lanes;
                assert_eq!(all.packets, lanes.iter().map(|lane| lane.packets).sum::<u64>());
                assert_eq!(all.bytes, lanes.iter().map(|lane| lane.bytes).sum::<u64>());
                return (sum(|report| report.missed), sum(|report| report.filtered));
            }
        }
        panic!("the volumes don't come to their end: {:?} {:#?}", self.over, self.shared.reports());
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let days = std::fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let inside = days.flat_map(|day| std::fs::read_dir(day.path()).unwrap().flatten());
    inside.map(|file| file.path()).collect()
}

/// Each segment has exactly those packets of the numbers it stands for that its volume keeps; how many
/// numbers of each lane stand somewhere.
fn check_volume(folder: &Path, keeps: Keeps, truth: &[Vec<Vec<u8>>], ranges: &mut BTreeMap<(u32, u64), u64>) {
    let kept = |data: &[u8]| keeps.below.is_none_or(|below| data[0] < below);
    let snap = keeps.snap.map_or(usize::MAX, |snap| snap as usize);
    for path in files(folder) {
        assert_eq!(path.extension().unwrap(), "pcapng", "{}", path.display());
        let stored = StoredFile::open(File::open(&path).unwrap()).unwrap();
        for index in 0..stored.segments().len() {
            let mut bytes = Vec::new();
            let segment = stored.read_segment(index, &mut bytes).unwrap();
            let foot = *segment.foot();
            let range = foot.first_packet..foot.end();
            let end = ranges.entry((foot.lane, range.start)).or_insert(range.end);
            *end = range.end.max(*end); // a copy, where the disk failed a file
            let lane = &truth[foot.lane as usize];
            let covered = &lane[range.start as usize..range.end as usize];
            let expected: Vec<&[u8]> =
                covered.iter().filter(|data| kept(data)).map(|data| &data[..data.len().min(snap)]).collect();
            let found: Vec<&[u8]> = segment.packets().map(|block| block.data()).collect();
            assert!(found == expected, "segment of {range:?}: {} packets of {}", found.len(), expected.len());
            let wire: Vec<usize> =
                covered.iter().filter(|data| kept(data)).map(|data| data.len() + 4).collect();
            assert!(segment.packets().map(|block| block.original_len() as usize).eq(wire));
            let bytes = |data: &&[u8]| data.len() as u64;
            let (all, own) = (
                covered.iter().map(|data| data.len() as u64).sum::<u64>(),
                found.iter().map(bytes).sum::<u64>(),
            );
            assert_eq!(foot.left_out.bytes, all - own);
            let before: u64 = lane[..range.start as usize].iter().map(|data| data.len() as u64).sum();
            assert_eq!(foot.bytes_before, before);
            if let Some((entry, block)) = segment.packet(0) {
                let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, block.data()));
                assert_eq!(key.at(entry.offset()), entry);
            }
            // What recovery closed where a flush ended has none.
            let said = segment.statistics().next();
            assert!(said.is_none_or(|said| said.received >= u64::from(foot.packets)), "{said:?}");
        }
    }
}

/// A disk that refuses one act: the one with which the number comes to 0.
struct Refusing {
    disk: Box<dyn Disk + Send>,
    left: Arc<AtomicU32>,
}

impl Disk for Refusing {
    fn create(&mut self, name: &Path) -> io::Result<FileNumber> {
        self.disk.create(name)
    }
    fn open(&mut self, name: &Path) -> io::Result<FileNumber> {
        self.disk.open(name)
    }
    fn reserve(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        self.disk.reserve(file, bytes)
    }
    fn begin(&mut self, begun: Begun) -> io::Result<()> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            1 => Err(io::Error::other("refused")),
            _ => self.disk.begin(begun),
        }
    }
    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()> {
        self.disk.finish(wait, into)
    }
    fn pending(&self) -> usize {
        self.disk.pending()
    }
    fn truncate(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        self.disk.truncate(file, bytes)
    }
    fn close(&mut self, file: FileNumber) {
        self.disk.close(file);
    }
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn sync_names(&mut self, folder: &Path) -> io::Result<()> {
        self.disk.sync_names(folder)
    }
    fn remove(&mut self, name: &Path) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn list(&mut self) -> io::Result<Vec<Standing>> {
        self.disk.list()
    }
    fn read(&mut self, name: &Path, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.read(name, at, into)
    }
    fn room(&mut self) -> io::Result<Room> {
        self.disk.room()
    }
}

#[test]
fn what_was_composed_goes_into_another_file_where_the_disk_refuses_something() {
    for refused in [1, 2, 3, 5, 9, 17, 29] {
        let keeps = Keeps { below: Some(128), snap: Some(600) };
        let case = Case { volumes: vec![keeps], waits: true, steps: Vec::new() };
        let left = Arc::new(AtomicU32::new(refused));
        let mut running = Running::on(&case, |disk| Box::new(Refusing { disk, left: left.clone() }));
        for packet in 0..3000u32 {
            running.append(true, packet % 2, 200 + (packet % 900) as u16, (packet * 7 % 251) as u8);
            if packet % 16 == 0 {
                running.lanes.iter_mut().for_each(LaneWriter::commit);
                running.turn(0);
                running.check_law();
            }
        }
        let (missed, filtered) = running.end();
        assert_eq!(missed, Amount::default(), "{refused}");
        assert!(left.load(Ordering::Relaxed) > refused, "so many acts were begun");
        let (mut ranges, folder) = (BTreeMap::new(), running.root.path().join("0"));
        check_volume(&folder, keeps, &running.truth, &mut ranges);
        assert_eq!(ranges.iter().map(|((_, first), end)| end - first).sum::<u64>(), 3000, "{refused}");
        let report = verify::look(&[&folder], 1, &[], &Meter::default());
        assert_eq!(report.verdict(), Verdict::Whole, "{refused}: {report:#?}");
        let all = report.files.iter().flat_map(|file| &file.missing);
        assert_eq!(all.map(|missing| missing.lost_min).sum::<u64>(), filtered.packets, "{refused}");
    }
}

#[test]
fn what_the_kernel_lost_is_told_though_what_stood_beside_it_was_left_out() {
    let keeps = Keeps { below: Some(1), snap: None };
    let case = Case { volumes: vec![keeps], waits: true, steps: Vec::new() };
    let mut running = Running::new(&case);
    for packet in 0..4000u32 {
        running.append(true, 0, 300, (packet % 251) as u8);
        if packet == 2000 {
            running.lanes[0].count_dropped(0, DropReason::Kernel, 5);
        }
    }
    assert_eq!(running.end().0, Amount::default());
    let folder = running.root.path().join("0");
    let report = verify::look(&[&folder], 1, &[], &Meter::default());
    let lost = report.files.iter().flat_map(|file| &file.missing).filter(|missing| missing.is_loss());
    let lost: Vec<_> = lost.map(|missing| (missing.reason.name(), missing.lost_min)).collect();
    assert_eq!(lost, [("kernel", 5)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn what_volumes_keep_leave_out_and_miss_is_what_came_and_every_segment_says_which(case in case()) {
        let mut running = Running::new(&case);
        for step in &case.steps {
            match *step {
                Step::Append { lane, packets, len, seed } => {
                    for nth in 0..packets {
                        let first = seed.wrapping_mul(31).wrapping_add((nth % 251) as u8);
                        running.append(case.waits, lane, len, first);
                    }
                    running.lanes[lane as usize].commit();
                }
                Step::Seal(lane) => running.lanes[lane as usize].seal(),
                Step::Drop(lane) => {
                    running.lanes[lane as usize].count_dropped(0, DropReason::Kernel, 3);
                    running.refused += 3;
                }
                Step::Turn(volume) => running.turn(volume as usize % case.volumes.len()),
            }
            running.check_law();
        }
        let (missed, filtered) = running.end();
        prop_assert!(!case.waits || missed == Amount::default(), "workers waited: {missed:?}");
        let mut ranges = BTreeMap::new();
        for (index, keeps) in case.volumes.iter().enumerate() {
            check_volume(&running.root.path().join(index.to_string()), *keeps, &running.truth, &mut ranges);
        }
        let mut last = (u32::MAX, 0);
        for (&(lane, first), &end) in &ranges {
            prop_assert!(lane != last.0 || last.1 <= first, "two stand for packet {first}");
            last = (lane, end);
        }
        let published: u64 = running.truth.iter().map(|lane| lane.len() as u64).sum();
        let stands: u64 = ranges.iter().map(|((_, first), end)| end - first).sum();
        prop_assert_eq!(stands, published - missed.packets);
        let folder = |index: usize| running.root.path().join(index.to_string());
        let folders: Vec<PathBuf> = (0..case.volumes.len()).map(folder).collect();
        let paths: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
        let report = verify::look(&paths, 1, &[], &Meter::default());
        let missing = |reason: fn(Reason) -> bool| {
            let all = report.files.iter().flat_map(|file| &file.missing);
            all.filter(|missing| reason(missing.reason)).map(|missing| missing.lost_min).sum::<u64>()
        };
        prop_assert_eq!(missing(|reason| reason == Reason::Filter), filtered.packets);
        prop_assert!(missing(|reason| reason == Reason::Gap(GapReason::Disk)) <= missed.packets);
        prop_assert!(report.verdict() <= Verdict::Lost);
        if missed.packets == 0 && running.refused == 0 {
            prop_assert_eq!(report.verdict(), Verdict::Whole);
        }
    }
}
