//! What a lane lacks, as the feet of its segments say: packet numbers that stand nowhere, and drops that were
//! counted.
//!
//! ```text
//! segment          | 0..100 |        | 150..180 |          numbers 100..150 are in no file
//! drops before        0                  7                 7 were lost between the begins of these two
//! ```
//! What a store's filter left out of a segment belongs to the segment's numbers: it is not missing. What capture files
//! say without a time has a room of its own: `file_losses`.

use crate::file_losses::{Course, Part, PassedPart};
use crate::index::IndexError;
use crate::listing::{Contents, Passed, PassedRun, SegmentFacts};
use crate::name::{FileName, begin_of_run};
use crate::ordered::{Ordered, Supersedes};
use scope_packet::segment::{FileLosses, Foot};
use scope_packet::{DropReason, Drops, Gap, GapReason};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;

/// A segment in its lane.
#[derive(Clone, Copy, Debug)]
struct Link {
    store: usize,
    volume: [u8; 16],
    first_packet: u64,
    /// Number of the packet behind all that it has, or that was left out of it.
    end: u64,
    /// From when to when its first packet was.
    begin_ns: (i64, i64),
    /// From when to when all of it was.
    reach_ns: (i64, i64),
    drops: Drops,
    file_losses: FileLosses,
    /// Its volume has a filter: of packets that are gone nobody knows whether they were stored.
    is_filtered: bool,
}

/// Of two copies the longer one counts.
impl Supersedes for Link {
    fn supersedes(&self, earlier: &Link) -> bool {
        (earlier.end, earlier.file_losses.told) < (self.end, self.file_losses.told)
    }
}

/// The number of the file that has a segment.
#[derive(Clone, Copy, Debug)]
struct InFile(u32);

impl Supersedes for InFile {
    fn supersedes(&self, _: &InFile) -> bool {
        true
    }
}

/// A run, a lane in it, and the number of a packet there.
type PacketPlace = ([u8; 16], u32, u64);

/// The same in one of the run's volumes.
type VolumePlace = ([u8; 16], u32, [u8; 16], u64);

/// A run and a lane in it.
type LaneId = ([u8; 16], u32);

/// Numbers of files, by the begin of the run's id and the volume.
type There = HashMap<([u8; 4], [u8; 16]), Vec<u32>>;

/// Where in a file stood what can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// Behind all that can be.
    Behind,
    /// Nobody knows.
    Anywhere,
}

/// What a lane lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The lane's run.
    pub run_id: [u8; 16],
    /// The store that has the segment behind it.
    pub store: usize,
    /// The file that can't be read, or only in part, and may have had it.
    pub unread: Option<UnreadFile>,
    /// How much, when and why.
    pub gap: Gap,
    /// It may be in a volume of the run that wasn't given: then `lost_min` is 0.
    pub is_elsewhere: bool,
}

/// A file by the begin of its run's id, its volume, and its number in both.
pub type UnreadFile = ([u8; 4], [u8; 16], u32);

/// A run with several volumes, not all of which were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// The run.
    pub run_id: [u8; 16],
    /// Volumes of it that were given.
    pub given: usize,
    /// All that it had.
    pub volumes: usize,
}

/// For example `run 0a1b2c3d: 1 of 2 volumes was given`.
impl fmt::Display for Partial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partial { run_id, given, volumes } = self;
        let were = if *given == 1 { "was" } else { "were" };
        let run = u32::from_be_bytes(begin_of_run(run_id));
        write!(out, "run {run:08x}: {given} of {volumes} volumes {were} given")
    }
}

/// The lanes of the runs of stores that belong together.
#[derive(Debug, Default)]
pub struct Lanes {
    /// By run, lane, and number of the first packet.
    links: Ordered<PacketPlace, Link>,
    /// Files that are there, by run, volume and number.
    files: BTreeSet<([u8; 16], [u8; 16], u32)>,
    /// The file of each copy of a segment, by run, lane, volume, and number of the first packet.
    places: Ordered<VolumePlace, InFile>,
    /// Files that can't be read, or only in part, and where what they lack stood.
    unread: BTreeMap<UnreadFile, Unread>,
    /// Volumes that were given.
    given: BTreeSet<[u8; 16]>,
    /// All volumes of each run, as far as heads of its files say them.
    volumes: BTreeMap<[u8; 16], Vec<[u8; 16]>>,
    /// What files that were passed over have of each lane.
    passed: BTreeMap<LaneId, Vec<PassedPart>>,
    /// From when to when each run has packets, as far as files say it.
    runs: BTreeMap<[u8; 16], (i64, i64)>,
    /// A capture file said that it lacks packets, without a time.
    is_told: bool,
}

impl Lanes {
    /// A store is looked at, whatever it has.
    pub fn give(&mut self, volume: [u8; 16]) {
        self.given.insert(volume);
    }

    /// A file of this volume is there, and can't be read.
    pub fn add_unread(&mut self, volume: [u8; 16], name: &FileName) {
        self.unread.insert((name.run(), volume, name.number()), Unread::Anywhere);
    }

    /// Adds the segments of a file of the store with this number; of two copies of a segment the longer one
    /// counts.
    pub fn add(&mut self, store: usize, contents: &Contents) {
        self.files.insert((contents.run_id, contents.volume, contents.number));
        let file = (begin_of_run(&contents.run_id), contents.volume, contents.number);
        match contents.index {
            Some(_) if contents.unread > 0 => drop(self.unread.insert(file, Unread::Anywhere)),
            Some(IndexError::None) => drop(self.unread.entry(file).or_insert(Unread::Behind)),
            _ => {}
        }
        if !contents.volumes.is_empty() {
            self.volumes.entry(contents.run_id).or_insert_with(|| contents.volumes.clone());
        }
        for SegmentFacts { foot, .. } in &contents.segments {
            self.is_told |= foot.file_losses.told > 0;
            self.reach(foot.run_id, foot.reach_ns());
            let link = Link {
                store,
                volume: contents.volume,
                first_packet: foot.first_packet,
                end: foot.end(),
                begin_ns: foot.begin_ns(),
                reach_ns: foot.reach_ns(),
                drops: foot.drops_before,
                file_losses: foot.file_losses,
                is_filtered: !contents.filter.is_empty(),
            };
            let place_in_volume = (foot.run_id, foot.lane, contents.volume, foot.first_packet);
            self.places.push(place_in_volume, InFile(contents.number));
            self.links.push(place(foot), link);
        }
    }

    /// Adds what is known of a file of this volume that was passed over, since nothing of its lanes is missing in the span
    /// that is asked for.
    pub fn add_passed(&mut self, volume: [u8; 16], passed: &Passed) {
        let (run_id, number) = (passed.run_id, passed.name.number());
        self.files.insert((run_id, volume, number));
        self.reach(run_id, passed.reach_ns);
        for part in &passed.lanes {
            let of_lane = self.passed.entry((run_id, part.lane)).or_default();
            of_lane.push(PassedPart { first: part.first, told: part.told });
            for first_packet in [part.first, part.last] {
                self.places.push((run_id, part.lane, volume, first_packet), InFile(number));
            }
        }
    }

    /// Adds what is known of a run all of whose files were passed over.
    pub fn add_run(&mut self, run: &PassedRun) {
        if !run.volumes.is_empty() {
            self.volumes.entry(run.run_id).or_insert_with(|| run.volumes.clone());
        }
    }

    /// What is missing between the segments that are there, lane after lane; and what capture files say without a time.
    pub fn lacks(&self) -> Vec<Lack> {
        let mut lacks = Vec::new();
        let there = self.there();
        let mut before: Option<([u8; 16], u32, &Link)> = None;
        for (&(run, lane, first_packet), link) in self.links.iter() {
            match before.filter(|&(last_run, last_lane, _)| (last_run, last_lane) == (run, lane)) {
                Some((_, _, last)) => self.between((run, lane), last, link, &there, &mut lacks),
                None if first_packet == 0 => {
                    let nothing = Link { drops: Drops::default(), end: 0, ..*link };
                    self.between((run, lane), &nothing, link, &there, &mut lacks);
                }
                None => {} // what came before was deleted, with its counts, or is elsewhere
            }
            before = Some((run, lane, link));
        }
        self.add_said(&mut lacks);
        lacks
    }

    fn reach(&mut self, run: [u8; 16], (min_ns, max_ns): (i64, i64)) {
        let known = self.runs.entry(run).or_insert((min_ns, max_ns));
        *known = (known.0.min(min_ns), known.1.max(max_ns));
    }

    /// What capture files say that lanes lack, where no segment tells when.
    fn add_said(&self, lacks: &mut Vec<Lack>) {
        if !self.is_told {
            return;
        }
        let mut course: Option<(LaneId, Course)> = None;
        for (&(run_id, lane, first_packet), link) in self.links.iter() {
            let id = (run_id, lane);
            let (_, course) = match course.take().filter(|(of, _)| *of == id) {
                Some(known) => course.insert(known),
                None => {
                    let passed = self.passed.get(&id).cloned().unwrap_or_default();
                    let run_ns = self.runs.get(&run_id).copied().unwrap_or((i64::MIN, i64::MAX));
                    course.insert((id, Course::new(passed, run_ns)))
                }
            };
            let Link { store, reach_ns, file_losses, .. } = *link;
            let said = course.go_on(&Part { first_packet, reach_ns, file_losses });
            let lack = |gap| Lack { run_id, store, unread: None, gap, is_elsewhere: false };
            lacks.extend(said.into_iter().flatten().map(lack));
        }
    }

    /// Whether a segment with this foot is its lane's last one, of all that are known.
    pub fn is_last(&self, foot: &Foot) -> bool {
        let behind = (foot.run_id, foot.lane, foot.first_packet.saturating_add(1));
        let next = self.links.first_from(&behind);
        next.is_none_or(|(&(run, lane, _), _)| (run, lane) != (foot.run_id, foot.lane))
    }

    /// Whether the first packets of a run may be where nobody looks: in volumes that weren't given, or in files that
    /// can't be read.
    pub fn may_begin_elsewhere(&self, run: &[u8; 16]) -> bool {
        let begin = begin_of_run(run);
        self.partial().iter().any(|partial| partial.run_id == *run)
            || self.unread.keys().any(|(unread, ..)| *unread == begin)
    }

    /// Whether packets behind all that are known may be where nobody looks: see [`Lanes::may_begin_elsewhere`].
    pub fn may_go_on_elsewhere(&self) -> bool {
        !self.unread.is_empty() || !self.partial().is_empty()
    }

    /// Runs of which the first packets of a lane are in no file.
    pub fn cut_runs(&self) -> BTreeSet<[u8; 16]> {
        let mut firsts: BTreeMap<LaneId, u64> = BTreeMap::new();
        for &(run, lane, _, first_packet) in self.places.iter().map(|(place, _)| place) {
            let first = firsts.entry((run, lane)).or_insert(first_packet);
            *first = first_packet.min(*first);
        }
        firsts.into_iter().filter(|(_, first)| *first > 0).map(|((run, _), _)| run).collect()
    }

    /// Runs with volumes that weren't given.
    pub fn partial(&self) -> Vec<Partial> {
        let partial = self.volumes.iter().map(|(&run_id, volumes)| {
            let given = volumes.iter().filter(|id| self.given.contains(*id)).count();
            Partial { run_id, given, volumes: volumes.len() }
        });
        partial.filter(|partial| (1..partial.volumes).contains(&partial.given)).collect()
    }

    /// Whether gaps in the numbers of packets show all that a file lacks: each lane of its run that stands in its
    /// volume goes on there behind it.
    pub fn show_all(&self, file: UnreadFile) -> bool {
        let (run, volume, number) = file;
        let mut last: BTreeMap<([u8; 16], u32), u32> = BTreeMap::new();
        for (&(run_id, lane, of, _), &InFile(file)) in self.places.iter() {
            if of == volume && begin_of_run(&run_id) == run {
                let last = last.entry((run_id, lane)).or_insert(file);
                *last = (*last).max(file);
            }
        }
        !last.is_empty() && last.values().all(|&last| last > number)
    }

    /// Why packets of a lane are missing that no segment has: deleted, damaged, or never stored.
    pub fn why(&self, id: LaneId, packets: &Range<u64>) -> GapReason {
        let is_of = |((run, lane, _), _): &(&PacketPlace, &Link)| (*run, *lane) == id;
        let behind = self.links.first_from(&(id.0, id.1, packets.end)).filter(is_of);
        let before = || self.links.last_before(&(id.0, id.1, packets.start)).filter(is_of);
        let Some((_, next)) = behind.or_else(before) else { return GapReason::NotStored };
        match self.is_deleted(id, packets, next, &self.there()) {
            true => GapReason::Deleted,
            false if self.unread(id, packets, next).is_some() => GapReason::Unreadable,
            false => GapReason::NotStored,
        }
    }

    /// The numbers of the files that are there, of each run and volume, rising.
    fn there(&self) -> There {
        let mut there = There::new();
        for &(run, volume, number) in &self.files {
            there.entry((begin_of_run(&run), volume)).or_default().push(number);
        }
        for &(run, volume, number) in self.unread.keys() {
            there.entry((run, volume)).or_default().push(number);
        }
        for numbers in there.values_mut() {
            numbers.sort_unstable();
            numbers.dedup();
        }
        there
    }

    /// The files of a volume that have what stands in a lane in front of these packets, and behind them: numbers,
    /// 0 where nothing is in front, `None` where nothing is behind.
    fn around(&self, (run, lane): LaneId, volume: [u8; 16], packets: &Range<u64>) -> (u32, Option<u32>) {
        let place = |packet| (run, lane, volume, packet);
        let is_of = |(of, _): &(&VolumePlace, &InFile)| (of.0, of.1, of.2) == (run, lane, volume);
        let before = self.places.last_before(&place(packets.start)).filter(is_of);
        let behind = self.places.first_from(&place(packets.end)).filter(is_of);
        (before.map_or(0, |(_, file)| file.0), behind.map(|(_, file)| file.0))
    }

    /// The volumes that may have had packets between two segments.
    fn volumes_of<'a>(&'a self, run: [u8; 16], next: &'a Link) -> &'a [[u8; 16]] {
        let volumes = self.volumes.get(&run).map_or(&[][..], Vec::as_slice);
        if volumes.len() > 1 { volumes } else { std::slice::from_ref(&next.volume) }
    }

    /// Whether these packets in front of `next` may have been in a file that was deleted: one between those that
    /// have what stands around them in its volume.
    fn is_deleted(&self, id: LaneId, packets: &Range<u64>, next: &Link, there: &There) -> bool {
        self.volumes_of(id.0, next).iter().any(|&volume| {
            let Some(numbers) = there.get(&(begin_of_run(&id.0), volume)) else { return false };
            let (before, behind) = self.around(id, volume, packets);
            let behind = behind.or(numbers.last().copied()).unwrap_or(0);
            let below = |number: u32| numbers.partition_point(|&one| one < number);
            let between = behind.saturating_sub(before).saturating_sub(1) as usize;
            below(behind).saturating_sub(below(before.saturating_add(1))) < between
        })
    }

    /// The file that can't be read, or only in part, and may have had them.
    fn unread(&self, id: LaneId, packets: &Range<u64>, next: &Link) -> Option<UnreadFile> {
        self.volumes_of(id.0, next).iter().find_map(|&volume| {
            let (before, behind) = self.around(id, volume, packets);
            let place = |number| (begin_of_run(&id.0), volume, number);
            let mut unread = self.unread.range(place(before)..=place(behind.unwrap_or(u32::MAX)));
            let may_have = |(file, lacks): &(&UnreadFile, &Unread)| {
                **lacks == Unread::Anywhere || Some(file.2) != behind || file.2 == before
            };
            unread.find(may_have).map(|(file, _)| *file)
        })
    }

    fn between(&self, id: LaneId, last: &Link, next: &Link, there: &There, lacks: &mut Vec<Lack>) {
        let run_id = id.0;
        let missing = next.first_packet.saturating_sub(last.end);
        if missing > 0 {
            let (from_ns, to_ns) =
                (last.reach_ns.1.min(next.reach_ns.0), next.reach_ns.0.max(last.reach_ns.1));
            let volumes = self.volumes.get(&run_id).map_or(&[][..], Vec::as_slice);
            let is_partial = volumes.len() > 1 && volumes.iter().any(|id| !self.given.contains(id));
            let packets = last.end..next.first_packet;
            let is_deleted = self.is_deleted(id, &packets, next, there);
            let unread = if is_deleted { None } else { self.unread(id, &packets, next) };
            let is_elsewhere = is_partial && !is_deleted;
            let reason = match is_deleted {
                true => GapReason::Deleted,
                false if unread.is_some() => GapReason::Unreadable,
                false => GapReason::NotStored,
            };
            let is_filtered = last.is_filtered || next.is_filtered;
            let lost_min = if is_elsewhere || is_filtered { 0 } else { missing };
            let gap = Gap { from_ns, to_ns, reason, lost_min, lost_max: Some(missing) };
            lacks.push(Lack { run_id, store: next.store, unread, gap, is_elsewhere });
        }
        for (drop, count) in next.drops.iter() {
            let lost = count.saturating_sub(last.drops.get(drop));
            if lost > 0 {
                let reason = drop.into();
                let (from_ns, to_ns) = match drop {
                    // It is told in front of packets that were read with it: these may be in the next segment.
                    DropReason::File => hull(last.reach_ns, next.reach_ns),
                    _ => hull(last.begin_ns, next.begin_ns),
                };
                let gap = Gap { from_ns, to_ns, reason, lost_min: lost, lost_max: Some(lost) };
                lacks.push(Lack { run_id, store: next.store, unread: None, gap, is_elsewhere: false });
            }
        }
    }
}

/// From the begin of one span to the end of another, whichever is first.
fn hull(one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    (one.0.min(other.0), one.1.max(other.1))
}

/// Where a segment with this foot stands.
fn place(foot: &Foot) -> PacketPlace {
    (foot.run_id, foot.lane, foot.first_packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Hash;
    use scope_packet::segment::LeftOut;
    use scope_packet::{DropReason, LinkType};

    fn segment(sequence: u64, first_packet: u64, packets: u32, kernel: u64) -> SegmentFacts {
        let time_ns = first_packet as i64 * 10;
        let mut drops_before = Drops::default();
        drops_before.add(DropReason::Kernel, kernel);
        let foot = Foot {
            run_id: [7; 16],
            lane: 0,
            link_type: LinkType::ETHERNET,
            unordered: false,
            sequence,
            first_packet,
            packets,
            block_bytes: packets * 60,
            first_ns: time_ns,
            last_ns: time_ns + 9,
            min_ns: time_ns,
            max_ns: time_ns + 9,
            bytes_before: 0,
            drops_before,
            left_out: LeftOut::default(),
            file_losses: FileLosses::default(),
        };
        SegmentFacts {
            offset: 4096,
            bytes: 64 << 10,
            is_open: false,
            foot,
            hash: Hash::NONE,
            may_match: true,
        }
    }

    fn contents(volumes: &[[u8; 16]], number: u32, segments: &[SegmentFacts]) -> Contents {
        Contents {
            run_id: [7; 16],
            volume: [8; 16],
            volumes: volumes.to_vec(),
            number,
            link_type: LinkType::ETHERNET,
            filter: String::new(),
            snap: 0,
            interfaces: Vec::new(),
            segments: segments.to_vec(),
            head: None,
            index_bytes: 0,
            index: None,
            unread: 0,
        }
    }

    fn gaps(files: &[(u32, &[SegmentFacts])]) -> Vec<(GapReason, i64, i64, u64)> {
        let mut lanes = Lanes::default();
        for &(number, segments) in files {
            lanes.add(0, &contents(&[], number, segments));
        }
        let told = |Lack { gap, .. }: Lack| (gap.reason, gap.from_ns, gap.to_ns, gap.lost_min);
        lanes.lacks().into_iter().map(told).collect()
    }

    #[test]
    fn what_one_volume_of_several_lacks_may_be_in_one_that_was_not_given() {
        let ids = [[8; 16], [9; 16]];
        let [first, second, third] = [segment(0, 0, 100, 0), segment(1, 100, 50, 0), segment(2, 150, 30, 0)];
        let mut lanes = Lanes::default();
        lanes.give(ids[0]);
        lanes.add(0, &contents(&ids, 1, &[first, third]));
        let elsewhere =
            Gap { from_ns: 9, to_ns: 1500, reason: GapReason::NotStored, lost_min: 0, lost_max: Some(50) };
        let lack = Lack { run_id: [7; 16], store: 0, unread: None, gap: elsewhere, is_elsewhere: true };
        assert_eq!(lanes.lacks(), [lack]);
        let partial = lanes.partial();
        assert_eq!(partial, [Partial { run_id: [7; 16], given: 1, volumes: 2 }]);
        assert_eq!(partial[0].to_string(), "run 07070707: 1 of 2 volumes was given");
        // Given as well, it has them or they are lost.
        lanes.give(ids[1]);
        let lost = Gap { lost_min: 50, ..elsewhere };
        assert_eq!(lanes.lacks(), [Lack { gap: lost, is_elsewhere: false, ..lack }]);
        assert_eq!(lanes.partial(), []);
        lanes.add(1, &Contents { volume: ids[1], ..contents(&ids, 1, &[second]) });
        assert_eq!(lanes.lacks(), []);
        // Deleted out of one of them.
        let mut lanes = Lanes::default();
        ids.into_iter().for_each(|id| lanes.give(id));
        lanes.add(0, &contents(&ids, 1, &[segment(0, 0, 100, 0), segment(2, 150, 30, 0)]));
        lanes.add(1, &Contents { volume: ids[1], ..contents(&ids, 2, &[]) });
        assert_eq!(lanes.lacks()[0].gap.reason, GapReason::Deleted);
    }

    #[test]
    fn a_gap_belongs_to_the_volume_whose_file_lay_there() {
        let ids = [[8; 16], [9; 16]];
        let at = |number: u64| [segment(number, number * 10, 10, 0)];
        let of = |volume: usize, number, segments: &[SegmentFacts]| Contents {
            volume: ids[volume],
            ..contents(&ids, number, segments)
        };
        let name = |number| FileName::growing(9, &[7; 16], LinkType::ETHERNET, number);
        // Volume 8 has segments 0, 2, 4, 6 in its files 1 to 4, volume 9 the others.
        let lanes = |of_8: &[u32], of_9: &[u32]| {
            let mut lanes = Lanes::default();
            ids.into_iter().for_each(|id| lanes.give(id));
            for (volume, files) in [of_8, of_9].into_iter().enumerate() {
                for &file in files {
                    lanes.add(0, &of(volume, file, &at(2 * (u64::from(file) - 1) + volume as u64)));
                }
            }
            lanes
        };
        let mut damaged = lanes(&[1, 2, 3, 4], &[1, 3, 4]);
        damaged.add_unread(ids[1], &name(2));
        // Another one is damaged elsewhere, and has nothing to do with it.
        damaged.add_unread(ids[0], &name(5));
        let lacks = damaged.lacks();
        assert_eq!(lacks.len(), 1);
        let (gap, file) = (lacks[0].gap, ([7; 4], ids[1], 2));
        assert_eq!((gap.reason, gap.lost_min, lacks[0].unread), (GapReason::Unreadable, 10, Some(file)));
        assert!(damaged.show_all(file) && !damaged.show_all(([7; 4], ids[0], 5)));
        // Deleted in the one; in the other every number is there, and so it was lost.
        assert_eq!(lanes(&[1, 3, 4], &[1, 2, 3]).lacks()[0].gap.reason, GapReason::Deleted);
        let mut lost = lanes(&[1, 3], &[1, 2]);
        lost.add(0, &of(0, 2, &[]));
        lost.add(0, &of(1, 5, &at(9)));
        let reasons: Vec<_> = lost.lacks().iter().map(|lack| (lack.gap.reason, lack.gap.lost_min)).collect();
        assert_eq!(reasons, [(GapReason::NotStored, 10), (GapReason::Deleted, 40)]);
    }

    #[test]
    fn why_packets_are_missing_that_stand_before_between_or_behind_all_segments() {
        let mut lanes = Lanes::default();
        lanes.add(0, &contents(&[], 2, &[segment(1, 100, 50, 0)]));
        lanes.add(0, &contents(&[], 3, &[segment(3, 200, 50, 0)]));
        lanes.add(0, &contents(&[], 5, &[segment(5, 300, 50, 0)]));
        let why = |packets| lanes.why(([7; 16], 0), &packets);
        let (deleted, not_stored) = (GapReason::Deleted, GapReason::NotStored);
        assert_eq!(
            [why(0..100), why(150..200), why(250..300), why(350..360)],
            [deleted, not_stored, deleted, not_stored]
        );
        assert_eq!(
            lanes.why(([8; 16], 0), &(0..9)),
            not_stored,
            "of a lane that isn't there nobody knows more"
        );
        lanes.add_unread([8; 16], &FileName::growing(9, &[7; 16], LinkType::ETHERNET, 4));
        assert_eq!(lanes.why(([7; 16], 0), &(250..300)), GapReason::Unreadable);
    }

    #[test]
    fn missing_numbers_and_counted_drops_are_gaps_and_a_copy_is_no_gap() {
        let whole = [segment(0, 0, 100, 0), segment(1, 100, 50, 0)];
        assert_eq!(gaps(&[(1, &whole), (2, &whole)]), []);
        let lossy = [segment(0, 0, 100, 0), segment(2, 150, 30, 7)];
        let expected = [(GapReason::NotStored, 9, 1500, 50), (GapReason::Kernel, 0, 1500, 7)];
        assert_eq!(gaps(&[(1, &lossy)]), expected);
    }

    #[test]
    fn numbers_of_a_deleted_file_are_no_loss_of_the_disk_and_a_filter_leaves_out() {
        let (first, last) = ([segment(0, 0, 100, 0)], [segment(5, 400, 30, 0)]);
        assert_eq!(gaps(&[(1, &first), (2, &last)])[0].0, GapReason::NotStored);
        assert_eq!(gaps(&[(1, &first), (3, &last)])[0].0, GapReason::Deleted);
        // The file is there, and can't be read.
        let mut lanes = Lanes::default();
        lanes.add_unread([8; 16], &FileName::growing(9, &[7; 16], LinkType::ETHERNET, 2));
        lanes.add(0, &contents(&[], 1, &first));
        lanes.add(0, &contents(&[], 3, &last));
        assert_eq!(lanes.lacks()[0].gap.reason, GapReason::Unreadable);
        let mut filtered = first;
        filtered[0].foot.left_out.packets = 299;
        assert_eq!(gaps(&[(1, &filtered), (2, &last)])[0].3, 1, "what was left out isn't missing");
        assert_eq!(gaps(&[(3, &last)]), [], "what retention took first was counted when it went");
    }

    #[test]
    fn drops_before_the_first_segment_of_a_lane_are_stated() {
        assert_eq!(gaps(&[(1, &[segment(0, 0, 9, 4)])]), [(GapReason::Kernel, 0, 0, 4)]);
    }
}
