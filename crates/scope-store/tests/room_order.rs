//! Room in a volume, by a writer that is turned by hand: which files go for it where one isn't closed yet, and when
//! a volume that had none writes again.

use scope_folder::Folder;
use scope_packet::key::KeyEntry;
use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, Interface, LinkType, TimestampSource};
use scope_ring::budget::PinBudget;
use scope_ring::{Append, LaneWriter, Ring, RingConfig, SegmentReader};
use scope_spelling::values::SizeOrShare;
use scope_store::Dealer;
use scope_store::disk::{Act, Begun, Disk, FileNumber, Finished, Room, Standing};
use scope_store::hold::Holds;
use scope_store::io::{Want, open};
use scope_store::report::{Amount, News, VolumeReport, VolumeState};
use scope_store::retain::Bounds;
use scope_store::volume::{Place, Store, Volume, VolumeId};
use scope_store::volume_writer::{Turn, VolumeWriter, WriterPlan};
use scope_store::volumes::Shared;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any disk takes.
const LONG: Duration = Duration::from_secs(120);
const SEGMENT_BYTES: u64 = 64 << 10;
const MIB: u64 = 1 << 20;
/// Of a file.
const FILE: u64 = MIB;
/// Segments of a file, and packets of a segment: nothing else has room.
const SLOTS: usize = 15;
const PACKETS: usize = 40;
const LINKS: [LinkType; 2] = [LinkType::ETHERNET, LinkType::RAW];

/// What becomes of the syncs of the first file.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Syncs {
    #[default]
    Finish,
    Wait,
    Fail,
}

/// What the disk is to do, and did.
#[derive(Default)]
struct Orders {
    syncs: Syncs,
    /// Nothing that was begun finishes.
    hangs: bool,
    removed: Vec<PathBuf>,
}

/// A disk that does as it is told.
struct Told {
    disk: Box<dyn Disk + Send>,
    orders: Arc<Mutex<Orders>>,
    first: Option<FileNumber>,
    waiting: Vec<Finished>,
}

impl Disk for Told {
    fn create(&mut self, name: &Path) -> io::Result<FileNumber> {
        let file = self.disk.create(name)?;
        self.first.get_or_insert(file);
        Ok(file)
    }
    fn open(&mut self, name: &Path) -> io::Result<FileNumber> {
        self.disk.open(name)
    }
    fn reserve(&mut self, file: FileNumber, bytes: u64) -> io::Result<()> {
        self.disk.reserve(file, bytes)
    }
    fn begin(&mut self, begun: Begun) -> io::Result<()> {
        self.disk.begin(begun)
    }
    fn finish(&mut self, wait: Duration, into: &mut Vec<Finished>) -> io::Result<()> {
        let mut all = std::mem::take(&mut self.waiting);
        if self.disk.pending() > 0 {
            self.disk.finish(wait, &mut all)?;
        }
        let Orders { syncs, hangs, .. } = *self.orders.lock().unwrap();
        if hangs {
            self.waiting = all;
            return Ok(());
        }
        for mut finished in all {
            let is_it = matches!(finished.begun.act, Act::Sync { file } if Some(file) == self.first);
            match syncs {
                Syncs::Wait if is_it => self.waiting.push(finished),
                Syncs::Fail if is_it => {
                    finished.result = Err(io::Error::other("the disk is broken"));
                    into.push(finished);
                }
                _ => into.push(finished),
            }
        }
        Ok(())
    }
    fn pending(&self) -> usize {
        self.disk.pending() + self.waiting.len()
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
        self.orders.lock().unwrap().removed.push(name.to_path_buf());
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

/// A run with a lane of each link type, and one volume.
struct Running {
    root: tempfile::TempDir,
    ring: Arc<Ring>,
    lanes: Vec<LaneWriter>,
    shared: Arc<Shared>,
    writer: VolumeWriter,
    orders: Arc<Mutex<Orders>>,
    time_ns: i64,
}

fn budget(bytes: u64) -> Bounds {
    Bounds { budget: Some(SizeOrShare::Bytes(bytes)), ..Bounds::default() }
}

impl Running {
    fn new(budget_bytes: u64) -> Running {
        let root = tempfile::tempdir().unwrap();
        let config = RingConfig {
            ring_bytes: 120 * SEGMENT_BYTES,
            segment_bytes: Some(SEGMENT_BYTES),
            workers: 2,
            lanes: 2,
            run_id: [0xab; 16],
        };
        let ring = Ring::create(&config).unwrap();
        let mut lanes = Vec::new();
        for (worker, link_type) in (0..).zip(LINKS) {
            let mut lane = ring.open_lane(worker, link_type).unwrap();
            let interface = Interface {
                name: format!("eth{worker}"),
                link_type,
                snap_len: 0,
                timestamps: TimestampSource::Generator,
                description: String::new(),
                part: 0,
            };
            lane.add_interface(ring.register(worker, &interface).unwrap());
            lanes.push(lane);
        }
        let reader = SegmentReader::new(&ring, Arc::new(PinBudget::new(60)).take(60, 1));
        let id = VolumeId([1; 16]);
        let shared = Shared::new(&ring, None, Dealer::new(reader, 1), vec![id]);
        let volume = Volume::open(&Place::find(root.path()).unwrap(), id, None).unwrap();
        let folder = Arc::new(Folder::open(root.path()).unwrap());
        let (disk, way) = open(&folder, None, Want::Pwrite);
        let (recovery, _) = open(&folder, None, Want::Pwrite);
        let orders = Arc::<Mutex<Orders>>::default();
        let disk = Told { disk, orders: orders.clone(), first: None, waiting: Vec::new() };
        let plan = WriterPlan {
            file_bytes: FILE,
            flush: Duration::from_millis(1),
            bounds: budget(budget_bytes),
            chain: false,
            keeping: None,
        };
        let writer = VolumeWriter::new(&shared, 0, volume, (Box::new(disk), &way), recovery, plan).unwrap();
        Running { root, ring, lanes, shared, writer, orders, time_ns: 1_763_700_000_000_000_000 }
    }

    /// So many sealed segments on a lane.
    fn fill(&mut self, lane: usize, segments: usize) {
        for _ in 0..segments {
            for _ in 0..PACKETS {
                self.time_ns += 1000;
                let data = [lane as u8; 1400];
                let key = KeyEntry::new(&Headers::parse(LINKS[lane], &data));
                let head = PacketHead { time_ns: self.time_ns, original_len: 1400, ..PacketHead::default() };
                while !matches!(self.lanes[lane].append(0, &head, key, &data), Append::Stored(_)) {
                    assert!(self.lanes[lane].claim());
                }
            }
            self.lanes[lane].commit();
            self.lanes[lane].seal();
        }
    }

    fn report(&self) -> VolumeReport {
        self.shared.reports().remove(0)
    }

    fn turn_until(&mut self, what: &str, holds: impl Fn(&Running) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < LONG, "{what} never came: {:#?} in {:?}", self.report(), self.root);
            self.writer.turn();
        }
    }

    /// Turns until all that came is stored.
    fn settle(&mut self) {
        self.turn_until("everything stored", |running| {
            let lanes = running.ring.counters().lanes;
            running.report().stored.packets == lanes.iter().map(|lane| lane.packets).sum::<u64>()
        });
    }

    fn turn_for(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.writer.turn();
        }
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock().unwrap());
    }

    /// Files that were deleted, by number, the first one first.
    fn removed(&self) -> Vec<u32> {
        let number = |name: &PathBuf| {
            let stem = name.to_str().unwrap().trim_end_matches(".part").trim_end_matches(".pcapng");
            stem[stem.len() - 6..].parse().unwrap()
        };
        self.orders.lock().unwrap().removed.iter().map(number).collect()
    }

    /// States that were told since the last call.
    fn states(&self) -> Vec<VolumeState> {
        let news = self.shared.take_news().into_iter().flat_map(|(_, news)| news);
        let state = |news| if let News::State(state, _) = news { Some(state) } else { None };
        news.filter_map(state).collect()
    }

    /// Ends the run; what was missed.
    fn end(&mut self) -> Amount {
        self.lanes.clear();
        self.shared.end();
        let began = Instant::now();
        while self.writer.turn() != Turn::Over {
            assert!(began.elapsed() < LONG, "it doesn't end: {:#?}", self.report());
        }
        self.report().missed
    }

    /// An older file (1) that is full and whose syncs do as `syncs` says, its successor (2), one that has its name
    /// (3), one that is full (4), and no room for another one.
    fn with_a_file_that_ends(syncs: Syncs) -> Running {
        let mut running = Running::new(4 * FILE + MIB);
        running.fill(0, SLOTS);
        running.settle();
        running.order(|orders| orders.syncs = syncs);
        running.fill(0, 1);
        running.turn_until("the second file", |running| running.report().files == 2);
        for file in 3..=4 {
            running.fill(1, SLOTS);
            running.turn_until("another file", |running| running.report().files == file);
        }
        running.fill(1, 1);
        running
    }
}

#[test]
fn a_file_that_is_full_goes_before_newer_ones_once_it_is_closed() {
    let mut running = Running::with_a_file_that_ends(Syncs::Wait);
    running.turn_for(Duration::from_millis(1500));
    assert_eq!(running.removed(), [0; 0], "nothing newer goes");
    assert_eq!(running.report().state, VolumeState::Writing, "its end is awaited");
    running.order(|orders| orders.syncs = Syncs::Finish);
    running.turn_until("room", |running| !running.removed().is_empty());
    running.settle();
    assert_eq!(running.removed(), [1]);
    assert_eq!(running.states(), []);
    assert_eq!(running.end(), Amount::default());
}

#[test]
fn a_file_that_the_disk_failed_keeps_no_newer_one() {
    let mut running = Running::with_a_file_that_ends(Syncs::Wait);
    running.turn_for(Duration::from_millis(100));
    running.order(|orders| orders.syncs = Syncs::Fail);
    running.turn_until("room", |running| !running.removed().is_empty());
    running.order(|orders| orders.syncs = Syncs::Finish);
    assert_eq!(running.end(), Amount::default());
    assert_eq!(running.removed()[0], 3, "{:?}", running.removed());
}

#[test]
fn a_volume_that_had_no_room_is_said_to_write_again_once_something_is_safe() {
    let mut running = Running::new(4 * FILE + MIB);
    let hold = |holds: &mut Holds| holds.add(0, i64::MAX, "", 0).map(drop);
    Store::look(running.root.path()).unwrap().change_holds(hold).unwrap();
    running.fill(0, 4 * SLOTS + 1);
    running.turn_until("no room", |running| running.report().state == VolumeState::Held);
    // Other bounds that give no room, then some that do, on a disk that doesn't answer yet.
    running.shared.set_bounds(0, budget(4 * FILE + MIB + FILE / 2));
    running.turn_for(Duration::from_millis(1500));
    assert_eq!(running.report().state, VolumeState::Held);
    running.order(|orders| orders.hangs = true);
    running.shared.set_bounds(0, budget(9 * FILE));
    running.turn_until("the fifth file", |running| running.report().files == 5);
    running.turn_for(Duration::from_millis(1500));
    assert_eq!(running.report().state, VolumeState::Held);
    assert!(running.states().iter().all(|state| *state == VolumeState::Held));
    running.order(|orders| orders.hangs = false);
    running.settle();
    assert_eq!(running.states(), [VolumeState::Writing]);
    assert_eq!((running.end(), running.removed()), (Amount::default(), vec![]));
}

#[test]
fn bounds_that_are_met_again_are_told_where_no_write_was_refused() {
    let mut running = Running::new(9 * FILE);
    let hold = |holds: &mut Holds| holds.add(0, i64::MAX, "", 0).map(drop);
    Store::look(running.root.path()).unwrap().change_holds(hold).unwrap();
    running.fill(0, SLOTS + 1);
    running.settle();
    running.shared.set_bounds(0, budget(MIB));
    running.turn_until("no room", |running| running.report().state == VolumeState::Held);
    running.shared.set_bounds(0, budget(9 * FILE));
    running.turn_until("room", |running| running.report().state == VolumeState::Writing);
    assert_eq!(running.states(), [VolumeState::Held, VolumeState::Writing]);
    running.fill(0, 1);
    running.settle();
    assert_eq!(running.end(), Amount::default());
}
