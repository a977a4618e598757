//! Volumes that keep less than the ring, against a plain model: which packets each file has, which numbers it
//! stands for, and what is counted meanwhile.

use proptest::prelude::*;
use scope_folder::Folder;
use scope_packet::key::KeyEntry;
use scope_packet::pcapng::{PacketBlock, PacketHead};
use scope_packet::{DropReason, Headers, Interface, LinkType, TimestampSource};
use scope_ring::budget::PinBudget;
use scope_ring::{Append, LaneWriter, Ring, RingConfig, SegmentReader};
use scope_store::compose::{self, Keeping, Sieve};
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
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
        let shared = Shared::new(&ring, Dealer::new(reader, count), ids);
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
            VolumeWriter::new(&shared, index, volume, (disk, &way), recovery, plan).unwrap()
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

/// Each segment has exactly those packets of the numbers it stands for that its volume keeps; how many numbers of
/// each lane stand somewhere.
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
            let before = ranges.insert((foot.lane, range.start), range.end);
            assert!(before.is_none(), "two segments begin with {}", range.start);
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
            for block in segment.packets() {
                let key = KeyEntry::new(&Headers::parse(LinkType::ETHERNET, block.data()));
                let own =
                    segment.packets().position(|other| other.bytes().as_ptr() == block.bytes().as_ptr());
                let entry = segment.packet(own.unwrap() as u32).unwrap().0;
                assert_eq!(key.at(entry.offset()), entry);
                break; // one of each segment is enough
            }
            let said = segment.statistics().next().unwrap();
            assert!(said.received >= range.end.min(u64::from(foot.packets)), "{said:?}");
        }
    }
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
                        running.append(case.waits, lane, len, seed.wrapping_mul(31).wrapping_add((nth % 251) as u8));
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
            prop_assert!(lane != last.0 || last.1 <= first, "two segments stand for packet {first} of lane {lane}");
            last = (lane, end);
        }
        let published: u64 = running.truth.iter().map(|lane| lane.len() as u64).sum();
        let stands: u64 = ranges.iter().map(|((_, first), end)| end - first).sum();
        prop_assert_eq!(stands, published - missed.packets);
        let folders: Vec<PathBuf> = (0..case.volumes.len()).map(|index| running.root.path().join(index.to_string())).collect();
        let paths: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
        let report = verify::look(&paths, 1, &[], &Meter::default());
        let missing = |reason: fn(Reason) -> bool| {
            let all = report.files.iter().flat_map(|file| &file.missing);
            all.filter(|missing| reason(missing.reason)).map(|missing| missing.lost_min).sum::<u64>()
        };
        prop_assert_eq!(missing(|reason| reason == Reason::Filter), filtered.packets);
        prop_assert!(missing(|reason| reason == Reason::Gap(scope_packet::GapReason::Disk)) <= missed.packets);
        prop_assert!(report.verdict() <= Verdict::Lost);
        if missed.packets == 0 && running.refused == 0 {
            prop_assert_eq!(report.verdict(), Verdict::Whole);
        }
    }
}
