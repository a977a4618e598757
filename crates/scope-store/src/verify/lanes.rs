//! What lanes lack, put together from the feet of their segments, in whichever files these lie.
//!
//! ```text
//! segments    [0, 100)  [100, 200)              [350, 400)      numbers of packets
//! stretches   [0, 200)                          [350, 400)      neighbours become one
//! losses      a difference of two feet's counters of drops: lost before they were stored; behind the last
//!             foot what the statistics of its segment say beyond it; what capture files said without a time
//! gaps        [200, 350): stored by nobody, or gone
//! left out    of a segment, by the store's filter: these numbers belong to the segment's stretch
//! ```
//! Memory: a stretch for each gap, not for each segment, and a sum for each file; beyond [`STRETCHES_MAX`] of
//! a lane the oldest gaps are reported early.

use super::report::{Missing, Reason};
use scope_packet::segment::Foot;
use scope_packet::{DropReason, GapReason};
use std::collections::{BTreeMap, BTreeSet};

/// Stretches of one lane that are remembered; beyond, the two oldest are taken as final.
const STRETCHES_MAX: usize = 1 << 16;

/// A run's lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneId {
    /// The run.
    pub(super) run_id: [u8; 16],
    /// The lane in it.
    pub(super) lane: u32,
}

/// One segment, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its foot.
    pub(super) foot: Foot,
    /// The file that it lies in, by the number of its report.
    pub(super) file: usize,
    /// Slots without a segment that lie in front of it in its file.
    pub(super) holes: u64,
    /// Packets that its packets state to be lost in front of them.
    pub(super) stated: u64,
    /// Packets that its lane had dropped by its end, as its statistics say; 0: it has none.
    pub(super) dropped: u64,
    /// Why its lane drops packets, where only statistics say so: they don't tell reasons apart.
    pub(super) drops_as: GapReason,
    /// It can't be read: its file counts none of its packets.
    pub(super) is_damaged: bool,
}

/// Segments whose packets follow each other without a gap.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: Seen,
    last: Seen,
}

impl Stretch {
    /// Number of the packet behind its last one.
    fn end(&self) -> u64 {
        self.last.foot.end()
    }
}

#[derive(Default)]
struct Lane {
    /// By the number of the first packet.
    stretches: BTreeMap<u64, Stretch>,
    /// Packets whose loss was stated by packets, and by feet.
    stated: u64,
    counted: u64,
    /// File and times of the first and the last segment with a loss that a packet states.
    stated_in: Option<(usize, i64, i64)>,
    /// Segments that can't be read, and of which no copy was met yet that can: by the number of their first
    /// packet.
    unread: BTreeSet<u64>,
    /// By file: packets that a filter left out, and the times of the segments that they were left out of.
    left_out: BTreeMap<usize, (u64, i64, i64)>,
}

impl Lane {
    /// Sums up what a filter left out of a segment.
    fn leave_out(&mut self, seen: &Seen) {
        let (left_out, (min_ns, max_ns)) = (seen.foot.left_out, seen.foot.reach_ns());
        if left_out.packets > 0 {
            let sum = self.left_out.entry(seen.file).or_insert((0, i64::MAX, i64::MIN));
            *sum = (sum.0.saturating_add(left_out.packets), sum.1.min(min_ns), sum.2.max(max_ns));
        }
    }

    /// A copy of a segment that is there: if it reaches farther, it takes the other's place. So it is where
    /// the disk failed a file in the middle of a segment, which another file then got from its first packet
    /// on. Returns how many packets of the two stand twice.
    fn take_longer(&mut self, seen: Seen, id: LaneId, losses: &mut Vec<(usize, Missing)>) -> u64 {
        let (begin, end) = (seen.foot.first_packet, seen.foot.end());
        let known = self.stretches.range(..=begin).next_back().map(|(_, stretch)| *stretch);
        let shorter = |known: &Stretch| known.last.foot.first_packet == begin && known.end() < end;
        let packets = u64::from(seen.foot.packets);
        let Some(known) = known.filter(shorter) else { return packets };
        let next = self.stretches.range(begin.saturating_add(1)..).next().map(|(_, stretch)| *stretch);
        if next.is_some_and(|next| next.first.foot.first_packet < end) {
            return packets;
        }
        let is_alone = known.first.foot.first_packet == begin;
        let mut stretch = Stretch { first: if is_alone { seen } else { known.first }, last: seen };
        if let Some(sum) = self.left_out.get_mut(&known.last.file) {
            sum.0 = sum.0.saturating_sub(known.last.foot.left_out.packets);
        }
        self.leave_out(&seen);
        if let Some(next) = next.filter(|next| next.first.foot.first_packet == end) {
            self.counted += lost_between(&seen, &next.first, id, losses);
            self.stretches.remove(&end);
            stretch.last = next.last;
        }
        self.stretches.insert(stretch.first.foot.first_packet, stretch);
        packets.min(u64::from(known.last.foot.packets))
    }
}

/// A gap in a lane's numbers of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NumberGap {
    /// Whose.
    pub(super) id: LaneId,
    /// How many.
    pub(super) packets: u64,
    /// The file in front of it; `None`: it is the lane's begin.
    pub(super) before: Option<usize>,
    /// The file behind it.
    pub(super) behind: usize,
    /// Times of the packets in front of it (at the lane's begin the same as behind it) and behind it.
    pub(super) span: (i64, i64),
    /// Both sides lie in one file, and between them a slot without a segment: recovery found nothing whole
    /// in it.
    pub(super) is_cut: bool,
}

/// All lanes of all runs.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<LaneId, Lane>,
    /// Losses found so far, with the file behind them.
    losses: Vec<(usize, Missing)>,
    gaps: Vec<NumberGap>,
    /// Segments that were met twice.
    pub(super) twice: u64,
    /// Packets that were counted twice.
    pub(super) packets_twice: u64,
}

impl Lanes {
    /// Takes note of a segment. Order doesn't matter; that of time costs the least memory.
    pub(super) fn add(&mut self, seen: Seen) {
        let id = LaneId { run_id: seen.foot.run_id, lane: seen.foot.lane };
        let lane = self.lanes.entry(id).or_default();
        let begin = seen.foot.first_packet;
        let mut stretch = Stretch { first: seen, last: seen };
        let before = lane.stretches.range(..=begin).next_back().map(|(_, stretch)| *stretch);
        let behind = lane.stretches.range(begin..).next().map(|(_, stretch)| *stretch);
        let overlaps = before.is_some_and(|before| before.end() > begin)
            || behind.is_some_and(|behind| behind.first.foot.first_packet < stretch.end());
        if overlaps {
            self.twice += 1;
            let packets = lane.take_longer(seen, id, &mut self.losses);
            if !seen.is_damaged && !lane.unread.remove(&begin) {
                self.packets_twice = self.packets_twice.saturating_add(packets);
            }
            return;
        }
        if seen.is_damaged {
            lane.unread.insert(begin);
        }
        if seen.stated > 0 {
            lane.stated = lane.stated.saturating_add(seen.stated);
            let (_, from_ns, to_ns) = lane.stated_in.unwrap_or((0, seen.foot.min_ns, seen.foot.max_ns));
            lane.stated_in = Some((seen.file, from_ns.min(seen.foot.min_ns), to_ns.max(seen.foot.max_ns)));
        }
        lane.leave_out(&seen);
        if let Some(before) = before.filter(|before| before.end() == begin) {
            lane.counted += lost_between(&before.last, &seen, id, &mut self.losses);
            lane.stretches.remove(&before.first.foot.first_packet);
            stretch.first = before.first;
        }
        if let Some(behind) = behind.filter(|behind| behind.first.foot.first_packet == stretch.end()) {
            lane.counted += lost_between(&seen, &behind.first, id, &mut self.losses);
            lane.stretches.remove(&behind.first.foot.first_packet);
            stretch.last = behind.last;
        }
        lane.stretches.insert(stretch.first.foot.first_packet, stretch);
        if lane.stretches.len() > STRETCHES_MAX
            && let (Some((_, one)), Some((begin, other))) =
                (lane.stretches.pop_first(), lane.stretches.pop_first())
        {
            self.gaps.extend(gap(id, Some(&one), &other));
            lane.counted += lost_between(&one.last, &other.first, id, &mut self.losses);
            lane.stretches.insert(begin, Stretch { first: one.first, last: other.last });
        }
    }

    /// Each lane with the file that has its last segment.
    pub(super) fn lasts(&self) -> Vec<(LaneId, usize)> {
        let last = |lane: &Lane| Some(lane.stretches.last_key_value()?.1.last.file);
        self.lanes.iter().filter_map(|(&id, lane)| Some((id, last(lane)?))).collect()
    }

    /// Everything that lanes lack: losses with the file behind them, and gaps in the numbers of packets.
    pub(super) fn finish(mut self) -> (Vec<(usize, Missing)>, Vec<NumberGap>) {
        for (&id, lane) in &mut self.lanes {
            let mut before: Option<Stretch> = None;
            for stretch in lane.stretches.values() {
                self.gaps.extend(gap(id, before.as_ref(), stretch));
                match &before {
                    Some(before) => {
                        lane.counted += lost_between(&before.last, &stretch.first, id, &mut self.losses);
                    }
                    None if stretch.first.foot.first_packet == 0 => {
                        lane.counted += lost_before(&stretch.first, id, &mut self.losses);
                    }
                    // What was lost before that lies in front of what is there. A file that was cut then lacks what was
                    // behind, too.
                    None => {
                        let Seen { file, foot, .. } = stretch.first;
                        if foot.file_losses.cut > 0 {
                            self.losses.push((file, missing_behind(id, 0, foot.min_ns)));
                        }
                    }
                }
                before = Some(*stretch);
            }
            if let Some(Stretch { last, .. }) = before {
                let known: u64 = last.foot.drops_before.iter().map(|(_, packets)| packets).sum();
                let known = known.saturating_add(last.foot.file_losses.packets());
                let more = last.dropped.saturating_sub(known);
                lane.counted = lane.counted.saturating_add(more);
                if more > 0 {
                    let (reason, span) = (Reason::Gap(last.drops_as), behind_begin_ns(&last.foot));
                    self.losses.push((last.file, missing(id, reason, more, span)));
                }
            }
            for (&file, &(packets, from_ns, to_ns)) in &lane.left_out {
                if packets > 0 {
                    self.losses.push((file, missing(id, Reason::Filter, packets, (from_ns, to_ns))));
                }
            }
            // Packets say more than feet: a capture file's own losses, or those behind the last foot's begin.
            let more = lane.stated.saturating_sub(lane.counted);
            if let Some((file, from_ns, to_ns)) = lane.stated_in.filter(|_| more > 0) {
                let reason = Reason::Gap(GapReason::File);
                self.losses.push((file, missing(id, reason, more, (from_ns, to_ns))));
            }
        }
        (self.losses, self.gaps)
    }
}

fn gap(id: LaneId, before: Option<&Stretch>, behind: &Stretch) -> Option<NumberGap> {
    let from = before.map_or(0, Stretch::end);
    let first = &behind.first.foot;
    let packets = first.first_packet.saturating_sub(from);
    let (begin_ns, _) = first.begin_ns();
    let from_ns = before.map_or(begin_ns, |before| behind_begin_ns(&before.last.foot).1);
    (packets > 0).then_some(NumberGap {
        id,
        packets,
        before: before.map(|before| before.last.file),
        behind: behind.first.file,
        span: (from_ns, begin_ns),
        is_cut: before.is_some_and(|before| {
            let (last, first) = (&before.last, &behind.first);
            last.file == first.file && last.holes < first.holes
        }),
    })
}

/// When what follows the begin of a lane's last segment was.
fn behind_begin_ns(last: &Foot) -> (i64, i64) {
    match last.left_out.span_ns {
        (0, 0) => (last.first_ns, last.last_ns),
        _ => last.reach_ns(),
    }
}

/// Notes what the lane lost between the begins of two segments; how many packets.
fn lost_between(one: &Seen, other: &Seen, id: LaneId, losses: &mut Vec<(usize, Missing)>) -> u64 {
    let (one_ns, other_ns) = (one.foot.begin_ns(), other.foot.begin_ns());
    let span = (one_ns.0.min(other_ns.0), one_ns.1.max(other_ns.1));
    let counted = lost(id, span, other, losses, |reason| {
        other.foot.drops_before.get(reason).saturating_sub(one.foot.drops_before.get(reason))
    });
    counted.saturating_add(said_by_files(id, Some(one), other, losses))
}

/// Notes what the lane lost in front of its first segment.
fn lost_before(first: &Seen, id: LaneId, losses: &mut Vec<(usize, Missing)>) -> u64 {
    let counted =
        lost(id, first.foot.begin_ns(), first, losses, |reason| first.foot.drops_before.get(reason));
    counted.saturating_add(said_by_files(id, None, first, losses))
}

/// Notes what capture files said without a time up to the end of a segment, and not by the end of the one in front;
/// how many packets statistics count for it.
fn said_by_files(id: LaneId, before: Option<&Seen>, seen: &Seen, losses: &mut Vec<(usize, Missing)>) -> u64 {
    let said = seen.foot.file_losses.since(&before.map(|before| before.foot.file_losses).unwrap_or_default());
    if said.dropped > 0 {
        let (_, end_ns) = seen.foot.reach_ns();
        let lost = missing(id, Reason::Gap(GapReason::File), said.dropped, (end_ns, end_ns));
        losses.push((seen.file, Missing { reaches_back: true, ..lost }));
    }
    if said.cut > 0 {
        let (min_ns, _) = seen.foot.reach_ns();
        let from_ns = before.map_or(min_ns, |before| before.foot.reach_ns().1.min(min_ns));
        losses.push((seen.file, missing_behind(id, said.cut.into(), from_ns)));
    }
    said.packets()
}

/// What capture files lack that are cut: so many packets at least, and nobody knows until when.
fn missing_behind(id: LaneId, lost_min: u64, from_ns: i64) -> Missing {
    let missing = missing(id, Reason::Gap(GapReason::Unreadable), lost_min, (from_ns, from_ns));
    Missing { to_ns: None, lost_max: None, ..missing }
}

fn lost(
    id: LaneId,
    span: (i64, i64),
    behind: &Seen,
    losses: &mut Vec<(usize, Missing)>,
    count: impl Fn(DropReason) -> u64,
) -> u64 {
    let mut sum = 0u64;
    for reason in DropReason::ALL {
        let packets = count(reason);
        sum = sum.saturating_add(packets);
        if packets > 0 {
            losses.push((behind.file, missing(id, Reason::Gap(reason.into()), packets, span)));
        }
    }
    sum
}

/// So many packets of a lane, lost in a span whose ends may be out of order where times step back.
pub(super) fn missing(id: LaneId, reason: Reason, packets: u64, (from_ns, to_ns): (i64, i64)) -> Missing {
    let run: String = id.run_id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    Missing {
        from_ns: from_ns.min(to_ns),
        reaches_back: false,
        to_ns: Some(from_ns.max(to_ns)),
        reason,
        lost_min: packets,
        lost_max: Some(packets),
        of: format!("run {run} lane {}", id.lane),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scope_packet::segment::{FileLosses, LeftOut};
    use scope_packet::{Drops, LinkType};

    const ID: LaneId = LaneId { run_id: [5; 16], lane: 3 };

    fn seen(first_packet: u64, packets: u32, kernel: u64) -> Seen {
        let mut drops_before = Drops::default();
        drops_before.add(DropReason::Kernel, kernel);
        let first_ns = (first_packet * 10) as i64;
        let last_ns = first_ns + (packets as i64 - 1) * 10;
        let foot = Foot {
            run_id: ID.run_id,
            lane: ID.lane,
            link_type: LinkType::ETHERNET,
            unordered: false,
            sequence: first_packet,
            first_packet,
            packets,
            block_bytes: 0,
            first_ns,
            last_ns,
            min_ns: first_ns,
            max_ns: last_ns,
            bytes_before: 0,
            drops_before,
            left_out: LeftOut::default(),
            file_losses: FileLosses::default(),
        };
        let (file, drops_as) = (first_packet as usize, GapReason::Kernel);
        Seen { foot, file, holes: 0, stated: 0, dropped: 0, drops_as, is_damaged: false }
    }

    fn find(segments: &[Seen]) -> (Vec<(usize, Missing)>, Vec<NumberGap>) {
        let mut lanes = Lanes::default();
        segments.iter().for_each(|segment| lanes.add(*segment));
        lanes.finish()
    }

    #[test]
    fn drops_and_gaps_are_found_with_their_span_and_file() {
        let (losses, gaps) = find(&[seen(0, 10, 2), seen(10, 10, 2), seen(20, 5, 7), seen(40, 5, 9)]);
        let losses: Vec<_> =
            losses.iter().map(|(file, lost)| (*file, lost.lost_min, lost.from_ns, lost.to_ns)).collect();
        assert_eq!(losses, [(20, 5, 100, Some(200)), (0, 2, 0, Some(0)), (40, 2, 200, Some(400))]);
        let gap =
            NumberGap { id: ID, packets: 15, before: Some(20), behind: 40, span: (240, 400), is_cut: false };
        assert_eq!(gaps, [gap]);
    }

    #[test]
    fn what_a_filter_left_out_is_told_apart_from_what_is_missing() {
        let left_out = |first, packets, out| {
            let mut seen = seen(first, packets, 0);
            seen.foot.left_out.packets = out;
            Seen { file: 7, ..seen }
        };
        // 10 and 40, none and 50, then 20 numbers that are nowhere, then 5 and 5.
        let (losses, gaps) = find(&[left_out(0, 10, 40), left_out(50, 0, 50), left_out(120, 5, 5)]);
        let found: Vec<_> = losses.iter().map(|(file, lost)| (*file, lost.reason, lost.lost_min)).collect();
        assert_eq!(found, [(7, Reason::Filter, 95)]);
        assert_eq!((gaps.len(), gaps[0].packets), (1, 20));
        assert!(!losses[0].1.is_loss());
    }

    #[test]
    fn a_lane_that_begins_later_has_a_gap_in_front_and_no_losses_of_before() {
        let (losses, gaps) = find(&[seen(30, 10, 50)]);
        assert!(losses.is_empty());
        assert_eq!((gaps[0].packets, gaps[0].before, gaps[0].span), (30, None, (300, 300)));
    }

    #[test]
    fn a_segment_met_twice_counts_once() {
        let mut lanes = Lanes::default();
        for first in [0, 10, 0, 5] {
            lanes.add(seen(first, 10, 0));
        }
        assert_eq!(lanes.twice, 2);
        assert!(lanes.finish().1.is_empty());
    }

    #[test]
    fn what_was_lost_behind_the_last_foot_is_known_from_its_statistics() {
        let last = Seen { dropped: 9, ..seen(10, 5, 7) };
        let (losses, _) = find(&[Seen { dropped: 7, ..seen(0, 10, 2) }, last]);
        let lost: Vec<_> =
            losses.iter().map(|(file, lost)| (*file, lost.reason.name(), lost.lost_min)).collect();
        assert_eq!(lost, [(10, "kernel", 5), (0, "kernel", 2), (10, "kernel", 2)]);
    }

    #[test]
    fn of_two_copies_of_a_segment_the_one_that_reaches_farther_counts_whatever_the_order() {
        let copy = |packets, out, file| {
            let mut seen = seen(10, packets, 0);
            seen.foot.left_out.packets = out;
            Seen { file, ..seen }
        };
        let (short, long) = (copy(4, 1, 1), copy(6, 4, 2));
        for order in [[short, long], [long, short]] {
            for all in [
                [&[seen(0, 10, 0), seen(20, 5, 0)][..], &order].concat(),
                [&order[..], &[seen(0, 10, 0), seen(20, 5, 0)]].concat(),
            ] {
                let (losses, gaps) = find(&all);
                assert_eq!(gaps, []);
                let found: Vec<_> = losses.iter().map(|(file, lost)| (*file, lost.lost_min)).collect();
                assert_eq!(found, [(2, 4)]);
            }
        }
    }

    #[test]
    fn losses_that_only_packets_state_are_those_of_the_capture() {
        let stated = |first, kernel, stated| Seen { stated, ..seen(first, 10, kernel) };
        let (losses, _) = find(&[stated(0, 0, 3), stated(10, 3, 4)]);
        let found: Vec<_> = losses.iter().map(|(_, lost)| (lost.reason.name(), lost.lost_min)).collect();
        assert_eq!(found, [("kernel", 3), ("file", 4)]);
        assert_eq!(find(&[stated(0, 0, 3), stated(10, 7, 4)]).0.len(), 1, "the feet say as much");
    }

    proptest! {
        #[test]
        fn whatever_the_order_the_same_is_missing(
            segments in proptest::collection::vec((1u32..9, any::<bool>(), 0u64..3), 1..40), seed in any::<u64>()
        ) {
            let (mut at, mut drops, mut kept) = (0u64, 0, Vec::new());
            for (packets, stays, lost) in segments {
                drops += lost;
                if stays {
                    kept.push(seen(at, packets, drops));
                }
                at += u64::from(packets);
            }
            let mut expected_gaps = Vec::new();
            let mut end = 0;
            for segment in &kept {
                if segment.foot.first_packet > end {
                    expected_gaps.push((end, segment.foot.first_packet - end));
                }
                end = segment.foot.first_packet + u64::from(segment.foot.packets);
            }
            let first = kept.first().map_or(0, |first| if first.foot.first_packet == 0 { 0 } else { first.foot.drops_before.get(DropReason::Kernel) });
            let lost = kept.last().map_or(0, |last| last.foot.drops_before.get(DropReason::Kernel)) - first;
            let mut state = seed;
            for index in (1..kept.len()).rev() {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                kept.swap(index, (state >> 33) as usize % (index + 1));
            }
            let (losses, gaps) = find(&kept);
            let gaps: Vec<_> = gaps.iter().map(|gap| (gap.behind as u64 - gap.packets, gap.packets)).collect();
            prop_assert_eq!(gaps, expected_gaps);
            prop_assert_eq!(losses.iter().map(|(_, missing)| missing.lost_min).sum::<u64>(), lost);
        }
    }
}
