//! The run's own packets that the ring lacks, by their numbers, out of its stores.
//!
//! A segment that a store has filtered stands for numbers without saying which of them its packets have. One that
//! reaches over the ring's first packet is cut by time: what is older than everything in the ring is none of the
//! ring's. Of packets of the very time with which the ring begins those are taken that don't stand there.

use super::part::{Kind, OfStores};
use super::{Answer, Keyed, LaneKey, Listings, Past, Question, unread};
use crate::numbers::Numbers;
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Gap, GapReason, LinkType, SegmentId};
use scope_ring::{Candidate, KeyTest, Piece, Timeline};
use scope_store::lanes::Lanes;
use scope_store::listing::Contents;
use scope_store::timeline::Span;
use scope_store::{Sift, StoreTimeline};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Where the ring begins in a lane.
#[derive(Clone, Default)]
pub(crate) struct Seam {
    /// Nothing that it has is older, ns.
    pub min_ns: i64,
    /// What it has of that time: length on the wire, and bytes; `None`: too much to be told.
    pub ties: Option<Vec<(u32, Vec<u8>)>>,
    /// Times step back in it, or too much has that time: what is dropped may be none of the ring's.
    pub unordered: bool,
}

/// Packets of the run out of its stores.
struct Own {
    cuts: Arc<Cuts>,
    /// What was known to be damaged before the first piece; the numbers tell that, too.
    known: (Vec<Gap>, usize),
}

/// Which packets of the stores are asked for.
struct Cuts {
    keyed: Keyed,
    numbers: Vec<Numbers>,
    /// Segments without exact numbers, and whether they reach over the ring's first packet.
    inexact: HashMap<SegmentId, bool>,
    at_seams: Mutex<AtSeams>,
}

/// Where the ring begins.
#[derive(Default)]
struct AtSeams {
    seams: Vec<Option<Seam>>,
    /// Packets that were dropped at a seam and may be none of the ring's, and the span of their times.
    dropped: Option<(u64, i64, i64)>,
}

impl Past {
    /// The run's own packets with these numbers.
    pub(super) fn own<'a>(&'a self, question: &Question<'_>, mut stores: Listings) -> Answer<'a> {
        let mut answer = Answer::default();
        if question.numbers.iter().all(Numbers::is_empty) {
            return answer;
        }
        let (mut lanes, mut inexact) = (Lanes::default(), HashMap::new());
        let mut stored = vec![Numbers::default(); question.numbers.len()];
        // A segment that two files have is left out of once.
        let mut told = HashSet::new();
        for (at, (store, listing)) in stores.iter_mut().enumerate() {
            lanes.give(store.id().0);
            for file in &mut listing.files {
                match &mut file.contents {
                    Err(_) => lanes.add_unread(store.id().0, &file.name),
                    Ok(contents) => {
                        lanes.add(at, contents);
                        take(question, contents, &mut stored, &mut inexact, (&mut told, &mut answer));
                    }
                }
            }
            for passed in &listing.passed {
                lanes.add_passed(store.id().0, passed);
                for part in &passed.lanes {
                    if let Some(stored) = stored.get_mut(part.lane as usize) {
                        stored.add(part.first..part.end);
                    }
                }
            }
        }
        for (lane, (numbers, stored)) in (0..).zip(question.numbers.iter().zip(&stored)) {
            let id = (self.ring.run_id(), lane);
            let lacking = numbers.without(stored);
            let why = |span: &Range<u64>| (lane, span.clone(), lanes.why(id, span));
            answer.lacking.extend(lacking.spans().iter().map(why));
        }
        let span = Span { from_ns: question.from_ns, to_ns: question.terms.to_ns };
        let seams = question.seams.clone().unwrap_or_default();
        let cuts = Arc::new(Cuts {
            keyed: Keyed::of(question),
            numbers: question.numbers.to_vec(),
            inexact,
            at_seams: Mutex::new(AtSeams { seams, dropped: None }),
        });
        let timeline = StoreTimeline::new(
            stores,
            span,
            cuts.clone(),
            self.means(question.terms),
            question.terms.stop.clone(),
        );
        let known = (timeline.missing(i64::MAX), timeline.damages().len());
        let part = OfStores::new(self, timeline, Own { cuts, known }, question);
        answer.parts.push(Box::new(part));
        answer
    }
}

/// Keeps of a file the segments that have numbers which are asked for.
fn take(
    question: &Question<'_>,
    contents: &mut Contents,
    stored: &mut [Numbers],
    inexact: &mut HashMap<SegmentId, bool>,
    (told, answer): (&mut HashSet<SegmentId>, &mut Answer<'_>),
) {
    let same_filter = contents.filter == question.filter.text();
    contents.segments.retain(|segment| {
        let (foot, lane) = (&segment.foot, segment.foot.lane as usize);
        let span = foot.first_packet..foot.end();
        let Some(numbers) = question.numbers.get(lane).filter(|numbers| numbers.touch(&span)) else {
            return false;
        };
        if foot.left_out.packets > 0 {
            let reaches_over = !Numbers::of(span.clone()).without(numbers).is_empty();
            let seam = question.seams.as_ref().and_then(|seams| seams.get(lane)?.as_ref());
            let can_be_cut = numbers.contains(span.start) && seam.is_some();
            if question.seams.is_none() || reaches_over && !can_be_cut {
                let asked =
                    numbers.spans().iter().map(|own| own.start.max(span.start)..own.end.min(span.end));
                let asked = asked.filter(|part| !part.is_empty());
                // The ring has recycled them, and nobody knows which of them the segment has.
                answer.lacking.extend(asked.map(|part| (foot.lane, part, GapReason::Evicted)));
                stored[lane].add(span);
                return false;
            }
            inexact.insert(foot.id(), reaches_over);
            if told.insert(foot.id()) && !same_filter {
                answer.left_out.push((foot.lane, span.clone(), foot.left_out.packets));
            }
        }
        stored[lane].add(span);
        true
    });
}

impl Sift for Cuts {
    fn keys(&self, link_type: LinkType) -> KeyTest {
        self.keyed.keys(link_type)
    }

    fn select(&self, segment: SegmentId, link_type: LinkType, candidates: &[Candidate<'_>]) -> u64 {
        let lane = segment.lane as usize;
        let asked = match self.inexact.get(&segment) {
            Some(true) => self.at_seams.lock().unwrap_or_else(PoisonError::into_inner).cut(lane, candidates),
            Some(false) => u64::MAX,
            None => match self.numbers.get(lane) {
                Some(numbers) => bits(candidates, |candidate| numbers.contains(candidate.packet)),
                None => 0,
            },
        };
        if asked == 0 { 0 } else { asked & self.keyed.select(segment, link_type, candidates) }
    }

    fn is_everything(&self) -> bool {
        false
    }
}

/// A bit for each of these packets that is wanted.
fn bits<'a>(candidates: &[Candidate<'a>], mut is_wanted: impl FnMut(&Candidate<'a>) -> bool) -> u64 {
    let mut bits = 0;
    for (at, candidate) in candidates.iter().enumerate() {
        bits |= u64::from(is_wanted(candidate)) << at;
    }
    bits
}

impl AtSeams {
    /// Leaves out what the ring has of a segment without exact numbers.
    fn cut(&mut self, lane: usize, candidates: &[Candidate<'_>]) -> u64 {
        let AtSeams { seams, dropped } = self;
        let Some(Some(seam)) = seams.get_mut(lane) else { return u64::MAX };
        bits(candidates, |candidate| {
            let time_ns = candidate.block.time_ns();
            let is_of_ring = time_ns > seam.min_ns || time_ns == seam.min_ns && seam.has(&candidate.block);
            if is_of_ring && seam.unordered {
                let (packets, from_ns, to_ns) = dropped.unwrap_or((0, time_ns, time_ns));
                *dropped = Some((packets + 1, from_ns.min(time_ns), to_ns.max(time_ns)));
            }
            !is_of_ring
        })
    }
}

impl Seam {
    /// Whether the ring has this packet, one of its smallest time; each of them once.
    fn has(&mut self, block: &PacketBlock<'_>) -> bool {
        let Some(ties) = &mut self.ties else { return true };
        let is_it = |(original_len, data): &(u32, Vec<u8>)| {
            *original_len == block.original_len() && data.starts_with(block.data())
        };
        ties.iter().position(is_it).map(|at| ties.swap_remove(at)).is_some()
    }
}

impl Kind for Own {
    const IS_NUMBERED: bool = true;

    fn lane(&self, past: &Past, timeline: &StoreTimeline, piece: &Piece) -> Option<u32> {
        let lane = piece.segment.lane;
        match timeline.is_inexact(piece.lane) {
            true => Some(past.lane(LaneKey::Inexact(lane), timeline.link_type(piece.lane)?)),
            false => Some(lane),
        }
    }

    fn heard(&self) -> Option<(i64, i64)> {
        None // the ring knows
    }

    /// What turned out to be damaged when it was read; what stands nowhere the numbers tell.
    fn missing(&self, timeline: &StoreTimeline, to_ns: i64) -> Vec<Gap> {
        let mut known = self.known.0.clone();
        let mut gaps = timeline.missing(i64::MAX);
        gaps.retain(|gap| match known.iter().position(|other| other == gap) {
            Some(at) => {
                known.swap_remove(at);
                false
            }
            None => gap.from_ns <= to_ns,
        });
        let dropped = self.cuts.at_seams.lock().unwrap_or_else(PoisonError::into_inner).dropped;
        gaps.extend(dropped.map(|(packets, from_ns, to_ns)| {
            let (reason, lost_max) = (GapReason::LeftOut, Some(packets));
            Gap { from_ns, to_ns, reason, lost_min: 0, lost_max }
        }));
        gaps
    }

    fn unread(&self, timeline: &StoreTimeline) -> Vec<String> {
        unread(timeline, self.known.1)
    }
}
