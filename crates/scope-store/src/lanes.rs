//! What a lane lacks, as the feet of its segments say: packet numbers that stand nowhere, and drops that were
//! counted.
//!
//! ```text
//! segment          | 0..100 |        | 150..180 |          numbers 100..150 are in no file
//! drops before        0                  7                 7 were lost between the begins of these two
//! ```
//! What a store's filter left out of a segment belongs to the segment's numbers: it is not missing.

use crate::listing::{Contents, SegmentFacts};
use crate::name::FileName;
use scope_packet::segment::Foot;
use scope_packet::{DropReason, Drops, Gap, GapReason};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

/// A segment in its lane.
#[derive(Clone, Copy, Debug)]
struct Link {
    store: usize,
    volume: [u8; 16],
    file: u32,
    first_packet: u64,
    /// Number of the packet behind all that it has, or that was left out of it.
    end: u64,
    first_ns: i64,
    min_ns: i64,
    max_ns: i64,
    drops: Drops,
}

/// What a lane lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The lane's run.
    pub run_id: [u8; 16],
    /// The store that has the segment behind it.
    pub store: usize,
    /// How much, when and why.
    pub gap: Gap,
    /// It may be in a volume of the run that wasn't given: then `lost_min` is 0.
    pub is_elsewhere: bool,
}

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
        let Partial { run_id: [a, b, c, d, ..], given, volumes } = self;
        let were = if *given == 1 { "was" } else { "were" };
        write!(out, "run {a:02x}{b:02x}{c:02x}{d:02x}: {given} of {volumes} volumes {were} given")
    }
}

/// The lanes of the runs of stores that belong together.
#[derive(Debug, Default)]
pub struct Lanes {
    /// By run, lane, and number of the first packet.
    links: BTreeMap<([u8; 16], u32, u64), Link>,
    /// Files that are there, by run, volume and number.
    files: BTreeSet<([u8; 16], [u8; 16], u32)>,
    /// Files that can't be read, or only in part: by the begin of the run's id, volume and number.
    unread: BTreeSet<([u8; 4], [u8; 16], u32)>,
    /// Volumes that were given.
    given: BTreeSet<[u8; 16]>,
    /// All volumes of each run, as far as heads of its files say them.
    volumes: BTreeMap<[u8; 16], Vec<[u8; 16]>>,
}

impl Lanes {
    /// A store is looked at, whatever it has.
    pub fn give(&mut self, volume: [u8; 16]) {
        self.given.insert(volume);
    }

    /// A file of this volume is there, and can't be read.
    pub fn add_unread(&mut self, volume: [u8; 16], name: &FileName) {
        self.unread.insert((name.run(), volume, name.number()));
    }

    /// Adds the segments of a file of the store with this number; of two copies of a segment the longer one
    /// counts.
    pub fn add(&mut self, store: usize, contents: &Contents) {
        self.files.insert((contents.run_id, contents.volume, contents.number));
        if contents.index.is_some() {
            self.unread.insert((begin_of(contents.run_id), contents.volume, contents.number));
        }
        if !contents.volumes.is_empty() {
            self.volumes.entry(contents.run_id).or_insert_with(|| contents.volumes.clone());
        }
        for SegmentFacts { foot, .. } in &contents.segments {
            let link = Link {
                store,
                volume: contents.volume,
                file: contents.number,
                first_packet: foot.first_packet,
                end: foot.end(),
                first_ns: foot.first_ns,
                min_ns: foot.min_ns,
                max_ns: foot.max_ns,
                drops: foot.drops_before,
            };
            let known = self.links.entry(place(foot)).or_insert(link);
            if known.end < link.end {
                *known = link;
            }
        }
    }

    /// What is missing between the segments that are there, lane after lane.
    pub fn lacks(&self) -> Vec<Lack> {
        let mut lacks = Vec::new();
        let mut before: Option<([u8; 16], u32, &Link)> = None;
        for (&(run, lane, first_packet), link) in &self.links {
            match before.filter(|&(last_run, last_lane, _)| (last_run, last_lane) == (run, lane)) {
                Some((_, _, last)) => self.between(run, last, link, &mut lacks),
                None if first_packet == 0 => {
                    let nothing = Link { drops: Drops::default(), end: 0, ..*link };
                    self.between(run, &nothing, link, &mut lacks);
                }
                None => {} // what came before was deleted, with its counts, or is elsewhere
            }
            before = Some((run, lane, link));
        }
        lacks
    }

    /// Runs with volumes that weren't given.
    pub fn partial(&self) -> Vec<Partial> {
        let partial = self.volumes.iter().map(|(&run_id, volumes)| {
            let given = volumes.iter().filter(|id| self.given.contains(*id)).count();
            Partial { run_id, given, volumes: volumes.len() }
        });
        partial.filter(|partial| (1..partial.volumes).contains(&partial.given)).collect()
    }

    /// Whether packets between two segments may have been in a file that was deleted: one of the same volume,
    /// between the two; of a run with several volumes, any.
    fn is_deleted(&self, run: [u8; 16], last: &Link, next: &Link) -> bool {
        let has = |volume, number| {
            self.files.contains(&(run, volume, number))
                || self.unread.contains(&(begin_of(run), volume, number))
        };
        if last.volume == next.volume
            && (last.file..next.file).skip(1).any(|number| !has(last.volume, number))
        {
            return true;
        }
        let volumes = self.volumes.get(&run).map_or(&[][..], Vec::as_slice);
        let has_holes = |&volume: &[u8; 16]| {
            let of_volume = self.files.range((run, volume, 0)..=(run, volume, u32::MAX));
            let (count, last) = of_volume.fold((0, 0), |(count, _), &(_, _, number)| (count + 1, number));
            let place = |number| (begin_of(run), volume, number);
            let unread = self.unread.range(place(0)..place(last));
            count + unread.filter(|(_, _, number)| !self.files.contains(&(run, volume, *number))).count()
                < last as usize
        };
        volumes.len() > 1 && volumes.iter().any(has_holes)
    }

    /// Whether they may have been in a file that can't be read.
    fn is_unread(&self, run: [u8; 16], last: &Link, next: &Link) -> bool {
        let of_volume = |volume: &[u8; 16], numbers: Range<u32>| {
            let place = |number| (begin_of(run), *volume, number);
            self.unread.range(place(numbers.start)..place(numbers.end)).next().is_some()
        };
        if last.volume == next.volume {
            let is_between = of_volume(&last.volume, last.file..next.file.max(last.file.saturating_add(1)));
            if is_between {
                return true;
            }
        }
        let volumes = self.volumes.get(&run).map_or(&[][..], Vec::as_slice);
        volumes.len() > 1 && volumes.iter().any(|volume| of_volume(volume, 0..u32::MAX))
    }

    fn between(&self, run_id: [u8; 16], last: &Link, next: &Link, lacks: &mut Vec<Lack>) {
        let missing = next.first_packet.saturating_sub(last.end);
        if missing > 0 {
            let (from_ns, to_ns) = (last.max_ns.min(next.min_ns), next.min_ns.max(last.max_ns));
            let volumes = self.volumes.get(&run_id).map_or(&[][..], Vec::as_slice);
            let is_partial = volumes.len() > 1 && volumes.iter().any(|id| !self.given.contains(id));
            let is_deleted = self.is_deleted(run_id, last, next);
            let is_elsewhere = is_partial && !is_deleted;
            let reason = match is_deleted {
                true => GapReason::Evicted,
                false if self.is_unread(run_id, last, next) => GapReason::Unreadable,
                false => GapReason::Disk,
            };
            let lost_min = if is_elsewhere { 0 } else { missing };
            let gap = Gap { from_ns, to_ns, reason, lost_min, lost_max: Some(missing) };
            lacks.push(Lack { run_id, store: next.store, gap, is_elsewhere });
        }
        for (drop, count) in next.drops.iter() {
            let lost = count.saturating_sub(last.drops.get(drop));
            if lost > 0 {
                let reason = match drop {
                    DropReason::Kernel => GapReason::Kernel,
                    DropReason::RingPinned => GapReason::RingPinned,
                    DropReason::LinkTypes | DropReason::Interfaces => GapReason::Limit,
                };
                let (from_ns, to_ns) = (last.first_ns.min(next.first_ns), last.first_ns.max(next.first_ns));
                let gap = Gap { from_ns, to_ns, reason, lost_min: lost, lost_max: Some(lost) };
                lacks.push(Lack { run_id, store: next.store, gap, is_elsewhere: false });
            }
        }
    }
}

/// What names of files have of a run's id.
fn begin_of([a, b, c, d, ..]: [u8; 16]) -> [u8; 4] {
    [a, b, c, d]
}

/// Where a segment with this foot stands.
fn place(foot: &Foot) -> ([u8; 16], u32, u64) {
    (foot.run_id, foot.lane, foot.first_packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Hash;
    use scope_packet::LinkType;
    use scope_packet::segment::LeftOut;

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
            Gap { from_ns: 9, to_ns: 1500, reason: GapReason::Disk, lost_min: 0, lost_max: Some(50) };
        let lack = Lack { run_id: [7; 16], store: 0, gap: elsewhere, is_elsewhere: true };
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
        assert_eq!(lanes.lacks()[0].gap.reason, GapReason::Evicted);
    }

    #[test]
    fn missing_numbers_and_counted_drops_are_gaps_and_a_copy_is_no_gap() {
        let whole = [segment(0, 0, 100, 0), segment(1, 100, 50, 0)];
        assert_eq!(gaps(&[(1, &whole), (2, &whole)]), []);
        let lossy = [segment(0, 0, 100, 0), segment(2, 150, 30, 7)];
        let expected = [(GapReason::Disk, 9, 1500, 50), (GapReason::Kernel, 0, 1500, 7)];
        assert_eq!(gaps(&[(1, &lossy)]), expected);
    }

    #[test]
    fn numbers_of_a_deleted_file_are_no_loss_of_the_disk_and_a_filter_leaves_out() {
        let (first, last) = ([segment(0, 0, 100, 0)], [segment(5, 400, 30, 0)]);
        assert_eq!(gaps(&[(1, &first), (2, &last)])[0].0, GapReason::Disk);
        assert_eq!(gaps(&[(1, &first), (3, &last)])[0].0, GapReason::Evicted);
        // The file is there, and can't be read.
        let mut lanes = Lanes::default();
        lanes.add_unread([8; 16], &FileName::growing(9, &[7; 16], LinkType::ETHERNET, 2));
        lanes.add(0, &contents(&[], 1, &first));
        lanes.add(0, &contents(&[], 3, &last));
        assert_eq!(lanes.lacks()[0].gap.reason, GapReason::Unreadable);
        let mut filtered = first.clone();
        filtered[0].foot.left_out.packets = 299;
        assert_eq!(gaps(&[(1, &filtered), (2, &last)])[0].3, 1, "what was left out isn't missing");
        assert_eq!(gaps(&[(3, &last)]), [], "what retention took first was counted when it went");
    }

    #[test]
    fn drops_before_the_first_segment_of_a_lane_are_stated() {
        assert_eq!(gaps(&[(1, &[segment(0, 0, 9, 4)])]), [(GapReason::Kernel, 0, 0, 4)]);
    }
}
