//! A run that writes a store: lanes that fill, segments that are closed and flushed as a volume's thread does
//! it, on a disk whose every call is recorded; beside it the truth, packet by packet.

use super::disk::{Faults, PowerDisk};
use super::random::Random;
use scope_packet::pcapng::PacketHead;
use scope_packet::{Headers, Interface, KeyEntry, LinkType, SegmentId, TimestampSource};
use scope_ring::{Append, Interfaces, LaneWriter, Pinned, Ring, RingConfig};
use scope_store::disk::Disk;
use scope_store::file_writer::{FilePlan, FileWriter, Kept};
use scope_store::files::{Event, Files};
use scope_store::head::{Head, HeadInterface};
use scope_store::outgoing::Outgoing;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const SEGMENT_BYTES: usize = 64 << 10;
const LINK_TYPE: LinkType = LinkType::ETHERNET;

/// What a run left.
pub struct Run {
    /// The disk with its record.
    pub disk: PowerDisk,
    /// The block of each packet, by lane and number.
    pub truth: Vec<Vec<Vec<u8>>>,
    /// The segment of each packet, by lane and number: its sequence.
    pub sequences: Vec<Vec<u64>>,
    /// Segments that the ring recycled before they were safe.
    pub missed: BTreeSet<SegmentId>,
    /// Whether it came to its end.
    pub ended: bool,
    /// What was reported as kept, and at which moment of the disk.
    pub kept: Vec<(usize, Kept)>,
    /// Files that the disk failed.
    pub failed: usize,
    /// Files that got their names, and open segments that moved to another file.
    pub whole: usize,
}

struct Running {
    ring: Arc<Ring>,
    lanes: Vec<Lane>,
    files: Files,
    random: Random,
    time_ns: i64,
    number: u32,
    file_bytes: u64,
    /// Closed segments that a failed file had.
    again: BTreeSet<SegmentId>,
    run: Run,
}

struct Lane {
    writer: LaneWriter,
    /// Numbers of its interfaces in the run.
    interfaces: Vec<u32>,
    /// The next segment to be closed.
    next: u64,
}

/// Lets a run of a few dozen steps happen. Only some runs come to their end.
pub fn run(seed: u64, faults: Faults) -> Run {
    let mut running = Running::new(seed, faults);
    for _ in 0..30 + running.random.below(170) {
        running.step();
    }
    if !running.random.one_in(4) {
        running.end();
    }
    running.run
}

impl Running {
    fn new(seed: u64, faults: Faults) -> Running {
        let mut random = Random::new(seed);
        let lanes = 1 + random.below(3) as u32;
        let mut run_id = [7; 16];
        run_id[..8].copy_from_slice(&seed.to_le_bytes());
        let config = RingConfig {
            ring_bytes: (24 * lanes as usize * SEGMENT_BYTES) as u64,
            segment_bytes: Some(SEGMENT_BYTES as u64),
            workers: lanes,
            lanes,
            run_id,
        };
        let ring = Ring::create(&config).unwrap();
        let mut disk = PowerDisk::new(random.next());
        disk.faults = faults;
        let mut running = Running {
            lanes: Vec::new(),
            files: Files::new(),
            time_ns: 1_000_000_000,
            number: 0,
            file_bytes: ((2 + random.below(6)) * SEGMENT_BYTES as u64) + (24 << 10),
            again: BTreeSet::new(),
            run: Run {
                disk,
                truth: Vec::new(),
                sequences: Vec::new(),
                missed: BTreeSet::new(),
                ended: false,
                kept: Vec::new(),
                failed: 0,
                whole: 0,
            },
            ring,
            random,
        };
        for worker in 0..lanes {
            let writer = running.ring.open_lane(worker, LINK_TYPE).unwrap();
            running.lanes.push(Lane { writer, interfaces: Vec::new(), next: 0 });
            running.run.truth.push(Vec::new());
            running.run.sequences.push(Vec::new());
            running.add_interface(worker as usize);
        }
        running
    }

    fn add_interface(&mut self, lane: usize) {
        let interface = Interface {
            name: format!("eth{}", self.random.below(100)),
            description: String::new(),
            link_type: LINK_TYPE,
            snap_len: 0,
            timestamps: TimestampSource::File,
            part: 0,
        };
        let number = self.ring.register(lane as u32, &interface).unwrap();
        let lane = &mut self.lanes[lane];
        lane.writer.add_interface(number);
        lane.interfaces.push(number);
    }

    fn step(&mut self) {
        let lane = self.random.below(self.lanes.len() as u64) as usize;
        match self.random.below(16) {
            0..6 => self.append(lane),
            6 => self.lanes[lane].writer.seal(),
            7 | 8 => self.close(),
            9 | 10 => {
                self.close();
                self.flush();
            }
            11 if self.random.one_in(4) => self.add_interface(lane),
            _ => {
                let wait = Duration::from_millis(self.random.below(2));
                self.finish(wait);
            }
        }
    }

    /// Appends some packets to a lane.
    fn append(&mut self, lane: usize) {
        let (most_packets, most_bytes) = match self.random.below(6) {
            0 | 1 => (3, 400),
            2 => (40, 16 << 10),
            3 => (900, 4), // whole pages of key entries
            _ => (80, 400),
        };
        for _ in 0..1 + self.random.below(most_packets) {
            let len = self.random.below(most_bytes);
            let word = self.random.next().to_le_bytes();
            let data: Vec<u8> = (0..len as usize).map(|at| word[at % 8].wrapping_add(at as u8)).collect();
            self.time_ns += self.random.below(1_000_000) as i64;
            let back = if self.random.one_in(50) { self.random.below(5_000_000) as i64 } else { 0 };
            let index = self.random.below(self.lanes[lane].interfaces.len() as u64) as usize;
            let head = PacketHead {
                interface: self.lanes[lane].interfaces[index],
                time_ns: self.time_ns - back,
                captured_len: len as u32,
                original_len: len as u32 + 4,
                flags: self.random.below(3) as u32,
                lost_before: self.random.below(2),
            };
            let key = KeyEntry::new(&Headers::parse(LINK_TYPE, &data));
            let writer = &mut self.lanes[lane].writer;
            if writer.append(index, &head, key, &data) == Append::NeedsSegment {
                if !writer.claim() {
                    break;
                }
                assert!(matches!(writer.append(index, &head, key, &data), Append::Stored(_)));
            }
            let mut block = vec![0; head.block_bytes()];
            head.write(&mut block, &data);
            self.run.truth[lane].push(block);
            self.run.sequences[lane].push(self.ring.lane_next(lane as u32) - 1);
        }
        self.lanes[lane].writer.commit();
    }

    /// Gives the store all segments that are sealed.
    fn close(&mut self) {
        for id in std::mem::take(&mut self.again) {
            let pinned = self.ring.pin(id);
            let is_there = pinned.is_some();
            if !is_there {
                self.files.cut(&mut self.run.disk, id);
                self.run.missed.insert(id);
            } else if !pinned.is_some_and(|segment| self.give(segment)) {
                self.again.insert(id);
            }
        }
        for lane in 0..self.lanes.len() {
            loop {
                let id = self.ring.segment_id(lane as u32, self.lanes[lane].next);
                match self.ring.pin(id) {
                    Some(segment) if segment.committed().sealed => {
                        if !self.give(segment) {
                            break;
                        }
                    }
                    None if self.ring.lane_next(lane as u32) > id.sequence => {
                        self.files.cut(&mut self.run.disk, id);
                        self.run.missed.insert(id);
                    }
                    _ => break,
                }
                self.lanes[lane].next += 1;
            }
        }
        self.events();
    }

    fn give(&mut self, segment: Pinned) -> bool {
        let mut begin = begin(&mut self.number, self.ring.clone(), self.file_bytes);
        self.files.close(&mut self.run.disk, segment, &mut begin).is_ok()
    }

    /// Flushes the open segments.
    fn flush(&mut self) {
        let open = |lane: &Lane| self.ring.pin(self.ring.segment_id(lane.writer.lane(), lane.next));
        let segments: Vec<Pinned> = self.lanes.iter().filter_map(open).collect();
        let mut begin = begin(&mut self.number, self.ring.clone(), self.file_bytes);
        let _ = self.files.flush(&mut self.run.disk, segments, &mut begin);
        drop(begin);
        self.events();
    }

    fn finish(&mut self, wait: Duration) {
        let mut finished = Vec::new();
        self.run.disk.finish(wait, &mut finished).unwrap();
        let moment = self.run.disk.moment();
        for finished in finished {
            assert!(self.files.finished(&mut self.run.disk, finished).is_none());
            self.events_of(moment);
        }
    }

    fn events(&mut self) {
        self.events_of(self.run.disk.moment());
    }

    /// Notes what happened, of which the disk knew at `moment`.
    fn events_of(&mut self, moment: usize) {
        for event in self.files.take_events() {
            match event {
                Event::Written(_) => {}
                Event::Kept(kept) => self.run.kept.push((moment, kept)),
                Event::Whole { .. } => self.run.whole += 1,
                Event::Removed { .. } => {}
                Event::Failed { unkept, .. } => {
                    self.run.failed += 1;
                    let closed = |id: &SegmentId| id.sequence < self.lanes[id.lane as usize].next;
                    self.again.extend(unkept.into_iter().map(|(id, _)| id).filter(closed));
                }
            }
        }
    }

    /// Closes everything, as the end of a run does.
    fn end(&mut self) {
        for lane in &mut self.lanes {
            lane.writer.seal();
        }
        for _ in 0..100_000 {
            self.close();
            let given = |lane: &Lane| lane.next == self.ring.lane_next(lane.writer.lane());
            if self.again.is_empty() && self.lanes.iter().all(given) {
                self.files.end(&mut self.run.disk);
            }
            self.events();
            if self.again.is_empty() && self.files.writers().next().is_none() {
                self.run.ended = true;
                return;
            }
            self.finish(Duration::from_millis(1));
        }
        panic!("the files don't come to their end");
    }
}

/// Begins files with the interfaces that are known by then.
fn begin(
    number: &mut u32,
    ring: Arc<Ring>,
    bytes_max: u64,
) -> impl FnMut(&mut dyn Disk, &Outgoing) -> std::io::Result<FileWriter> {
    move |disk, _| {
        *number += 1;
        let interfaces = ring.interfaces_from(0).into_iter().map(|entry| HeadInterface {
            name: entry.name,
            description: entry.description,
            link_type: entry.link_type,
        });
        let head = Head {
            run_id: ring.run_id(),
            volume: [9; 16],
            volumes: Vec::new(),
            number: *number,
            segment_bytes: SEGMENT_BYTES as u32,
            link_type: LINK_TYPE,
            filter: String::new(),
            snap: 0,
            interfaces: interfaces.collect(),
        };
        let name = PathBuf::from(format!("2026-11-2{}/{number:06}.pcapng", *number / 4));
        FileWriter::create(disk, FilePlan { name, head: &head, bytes_max, summaries: None })
    }
}

/// The packets that were kept by `moment`: lane and number.
pub fn kept_at(run: &Run, moment: usize) -> BTreeSet<(u32, u64)> {
    let reported = run.kept.iter().filter(|(at, _)| *at <= moment);
    reported.flat_map(|(_, kept)| kept.packets.clone().map(|number| (kept.id.lane, number))).collect()
}

/// How often each packet is found, by lane and number.
pub type Found = BTreeMap<(u32, u64), u32>;
