//! What a lane lacks, as the feet of its segments say: packet numbers that stand nowhere, and drops that were
//! counted.
//!
//! ```text
//! segment          | 0..100 |        | 150..180 |          numbers 100..150 are in no file
//! drops before        0                  7                 7 were lost between the begins of these two
//! ```
//! What a store's filter left out of a segment belongs to the segment's numbers: it is not missing.

use crate::listing::{Contents, SegmentFacts};
use scope_packet::segment::Foot;
use scope_packet::{DropReason, Drops, Gap, GapReason};
use std::collections::{BTreeMap, BTreeSet};

/// A segment in its lane.
#[derive(Clone, Copy, Debug)]
struct Link {
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

/// The lanes of a store's runs.
#[derive(Debug, Default)]
pub struct Lanes {
    /// By run, lane, and number of the first packet.
    links: BTreeMap<([u8; 16], u32, u64), Link>,
    /// Files that are there, by run, volume and number.
    files: BTreeSet<([u8; 16], [u8; 16], u32)>,
}

impl Lanes {
    /// Adds the segments of a file; of two copies of a segment the longer one counts.
    pub fn add(&mut self, contents: &Contents) {
        self.files.insert((contents.run_id, contents.volume, contents.number));
        for SegmentFacts { foot, .. } in &contents.segments {
            let link = Link {
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

    /// What is missing between the segments that are there, lane after lane, with the run.
    pub fn gaps(&self) -> Vec<([u8; 16], Gap)> {
        let mut gaps = Vec::new();
        let mut before: Option<([u8; 16], u32, &Link)> = None;
        for (&(run, lane, first_packet), link) in &self.links {
            match before.filter(|&(last_run, last_lane, _)| (last_run, last_lane) == (run, lane)) {
                Some((_, _, last)) => self.between(run, last, link, &mut gaps),
                None if first_packet == 0 => {
                    let nothing = Link { drops: Drops::default(), end: 0, ..*link };
                    self.between(run, &nothing, link, &mut gaps);
                }
                None => {} // what came before was deleted, with its counts
            }
            before = Some((run, lane, link));
        }
        gaps
    }

    fn between(&self, run: [u8; 16], last: &Link, next: &Link, gaps: &mut Vec<([u8; 16], Gap)>) {
        let missing = next.first_packet.saturating_sub(last.end);
        if missing > 0 {
            let (from_ns, to_ns) = (last.max_ns.min(next.min_ns), next.min_ns.max(last.max_ns));
            let is_gone = |number| !self.files.contains(&(run, next.volume, number));
            let deleted = last.volume == next.volume && (last.file..next.file).skip(1).any(is_gone);
            let reason = if deleted { GapReason::Evicted } else { GapReason::Disk };
            gaps.push((run, Gap { from_ns, to_ns, reason, lost_min: missing, lost_max: Some(missing) }));
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
                gaps.push((run, Gap { from_ns, to_ns, reason, lost_min: lost, lost_max: Some(lost) }));
            }
        }
    }
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
        SegmentFacts { offset: 4096, bytes: 64 << 10, is_open: false, foot, hash: Hash::NONE }
    }

    fn gaps(files: &[(u32, &str, &[SegmentFacts])]) -> Vec<(GapReason, i64, i64, u64)> {
        let mut lanes = Lanes::default();
        for &(number, filter, segments) in files {
            lanes.add(&Contents {
                run_id: [7; 16],
                volume: [8; 16],
                number,
                link_type: LinkType::ETHERNET,
                filter: filter.to_string(),
                snap: 0,
                interfaces: Vec::new(),
                segments: segments.to_vec(),
                index: None,
                unread: 0,
            });
        }
        let told = |(_, gap): ([u8; 16], Gap)| (gap.reason, gap.from_ns, gap.to_ns, gap.lost_min);
        lanes.gaps().into_iter().map(told).collect()
    }

    #[test]
    fn missing_numbers_and_counted_drops_are_gaps_and_a_copy_is_no_gap() {
        let whole = [segment(0, 0, 100, 0), segment(1, 100, 50, 0)];
        assert_eq!(gaps(&[(1, "", &whole), (2, "", &whole)]), []);
        let lossy = [segment(0, 0, 100, 0), segment(2, 150, 30, 7)];
        let expected = [(GapReason::Disk, 9, 1500, 50), (GapReason::Kernel, 0, 1500, 7)];
        assert_eq!(gaps(&[(1, "", &lossy)]), expected);
    }

    #[test]
    fn numbers_of_a_deleted_file_are_no_loss_of_the_disk_and_a_filter_leaves_out() {
        let (first, last) = ([segment(0, 0, 100, 0)], [segment(5, 400, 30, 0)]);
        assert_eq!(gaps(&[(1, "", &first), (2, "", &last)])[0].0, GapReason::Disk);
        assert_eq!(gaps(&[(1, "", &first), (3, "", &last)])[0].0, GapReason::Evicted);
        let mut filtered = first.clone();
        filtered[0].foot.left_out.packets = 299;
        assert_eq!(
            gaps(&[(1, "udp", &filtered), (2, "udp", &last)])[0].3,
            1,
            "what was left out isn't missing"
        );
        assert_eq!(gaps(&[(3, "", &last)]), [], "what retention took first was counted when it went");
    }

    #[test]
    fn drops_before_the_first_segment_of_a_lane_are_stated() {
        assert_eq!(gaps(&[(1, "", &[segment(0, 0, 9, 4)])]), [(GapReason::Kernel, 0, 0, 4)]);
    }
}
