//! The packets of earlier runs out of the stores of a run, up to the time at which it began.
//!
//! ```text
//! run 1 |-----------|      run 2 |-----|         this run |------
//!                   └ not recorded ┘   └ not recorded  ┘
//! ```
//! Nothing of them is told by numbers of this run: capture time says what belongs to a window. What an earlier run
//! stamped later than this one began is another era's, as behind a step of the clock in one run.

use super::part::{Kind, OfStores};
use super::{Keyed, LaneKey, Listings, Past, Question, Terms, unread};
use scope_packet::{Gap, GapReason, LinkType, SegmentId};
use scope_ring::{Piece, Timeline};
use scope_store::StoreTimeline;
use scope_store::listing::{Contents, Listed, Passed};
use scope_store::timeline::Span;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Packets of earlier runs.
pub(super) struct Earlier {
    begin_ns: i64,
    /// The last time of which packets are wanted.
    end_ns: i64,
    /// What is known before anything is read: where no run was going, what was deleted, left out or isn't here.
    gaps: Vec<Gap>,
    heard_ns: i64,
}

/// One run.
struct Of {
    span_ns: (i64, i64),
    /// Its first packets are gone: its first file, or what its lanes had in front.
    is_cut: bool,
}

impl Past {
    /// What earlier runs have of the window before `begin_ns`; `None`: nothing.
    pub(super) fn earlier<'a>(
        &'a self,
        question: &Question<'_>,
        begin_ns: i64,
        stores: Listings,
    ) -> Option<OfStores<'a, Earlier>> {
        let Terms { to_ns, by_time, .. } = *question.terms;
        // Behind this run's begin earlier ones lack nothing: this run answers for what is there.
        let span = Span { from_ns: question.from_ns, to_ns: to_ns.min(begin_ns.saturating_sub(1)) };
        let wanted = if by_time { Span { to_ns, ..span } } else { span };
        let files = || stores.iter().flat_map(|(_, listing)| &listing.files);
        let contents = || files().filter_map(|file| file.contents.as_ref().ok());
        let runs = runs(contents(), stores.iter().flat_map(|(_, listing)| &listing.passed));
        let is_whole = files().all(|file| file.contents.is_ok())
            && stores.iter().all(|(_, listing)| listing.unread.is_empty())
            && stores.len() == self.volumes.len();
        if is_whole {
            let until_ns = runs.values().map(|run| run.span_ns.1).max();
            self.earlier_until_ns.store(until_ns.unwrap_or(i64::MIN), Ordering::Relaxed);
        }
        let touches = |(min_ns, max_ns): (i64, i64)| min_ns <= wanted.to_ns && max_ns >= wanted.from_ns;
        let is_unread = |file: &Listed| file.contents.is_err() && file.name.first_ns() <= wanted.to_ns;
        let has_any = runs.values().any(|run| touches(run.span_ns))
            || files().any(is_unread)
            || stores.iter().any(|(_, listing)| !listing.unread.is_empty());
        if wanted.to_ns < wanted.from_ns || !has_any {
            return None;
        }
        let mut gaps = between(&runs, span);
        let mut told = HashSet::new();
        for contents in contents().filter(|contents| contents.filter != question.filter.text()) {
            for foot in contents.segments.iter().map(|segment| &segment.foot) {
                let reach_ns = foot.reach_ns();
                if touches(reach_ns) && foot.left_out.packets > 0 && told.insert(foot.id()) {
                    let (from_ns, to_ns) = (reach_ns.0.max(wanted.from_ns), reach_ns.1.min(wanted.to_ns));
                    let (reason, lost_max) = (GapReason::LeftOut, Some(foot.left_out.packets));
                    gaps.push(Gap { from_ns, to_ns, reason, lost_min: 0, lost_max });
                }
            }
        }
        let mut set_back: Option<(i64, u64)> = None;
        for foot in contents().flat_map(|contents| &contents.segments).map(|segment| &segment.foot) {
            if foot.packets > 0 && foot.max_ns >= begin_ns && !by_time {
                let (max_ns, packets) = set_back.unwrap_or((foot.max_ns, 0));
                set_back = Some((max_ns.max(foot.max_ns), packets + u64::from(foot.packets)));
            }
        }
        // The clock was set back since: what was stamped later is none of this window.
        gaps.extend(set_back.map(|(to_ns, packets)| {
            let (reason, lost_max) = (GapReason::ClockStep, Some(packets));
            Gap { from_ns: begin_ns, to_ns, reason, lost_min: 0, lost_max }
        }));
        let keys = Keyed::of(question);
        let means = self.means(question.terms);
        let timeline = StoreTimeline::new(stores, wanted, Arc::new(keys), means, question.terms.stop.clone());
        for (partial, most) in timeline.partial() {
            let touched = runs.get(&partial.run_id).filter(|run| touches(run.span_ns));
            gaps.extend(touched.map(|run| {
                let (from_ns, to_ns) = (run.span_ns.0.max(wanted.from_ns), run.span_ns.1.min(wanted.to_ns));
                let lost_max = Some(*most).filter(|most| *most > 0);
                Gap { from_ns, to_ns, reason: GapReason::NotStored, lost_min: 0, lost_max }
            }));
        }
        let interfaces = timeline.interfaces();
        let link_types: HashSet<LinkType> = (0..).map_while(|lane| timeline.link_type(lane)).collect();
        self.describe(&interfaces, link_types.into_iter());
        let first_ns = runs.values().map(|run| run.span_ns.0).min().unwrap_or(begin_ns);
        let heard_ns = first_ns.max(span.from_ns);
        let end_ns = if by_time { i64::MAX } else { begin_ns.saturating_sub(1) };
        let kind = Earlier { begin_ns, end_ns, gaps, heard_ns };
        Some(OfStores::new(self, timeline, kind, question))
    }
}

/// From when to when each run has packets, or left some out.
fn runs<'a>(
    contents: impl Iterator<Item = &'a Contents> + Clone,
    passed: impl Iterator<Item = &'a Passed> + Clone,
) -> BTreeMap<[u8; 16], Of> {
    let spans = contents.clone().map(|contents| (contents.run_id, contents.reach_ns()));
    let spans = spans.chain(passed.clone().map(|passed| (passed.run_id, Some(passed.reach_ns))));
    let mut runs: BTreeMap<[u8; 16], Of> = BTreeMap::new();
    for (run_id, span_ns) in spans {
        let Some(span_ns) = span_ns else { continue };
        let run = runs.entry(run_id).or_insert(Of { span_ns, is_cut: false });
        run.span_ns = (run.span_ns.0.min(span_ns.0), run.span_ns.1.max(span_ns.1));
    }
    let segments = contents.flat_map(|contents| &contents.segments);
    let places = segments.map(|segment| (segment.foot.run_id, segment.foot.lane, segment.foot.first_packet));
    let of_passed =
        passed.flat_map(|passed| passed.lanes.iter().map(|part| (passed.run_id, part.lane, part.first)));
    let mut firsts: BTreeMap<([u8; 16], u32), u64> = BTreeMap::new();
    for (run, lane, first_packet) in places.chain(of_passed) {
        let first = firsts.entry((run, lane)).or_insert(first_packet);
        *first = first_packet.min(*first);
    }
    for ((run, _), _) in firsts.iter().filter(|(_, first)| **first > 0) {
        if let Some(run) = runs.get_mut(run) {
            run.is_cut = true;
        }
    }
    runs
}

/// Whether the store's answer says of a gap that it lies between runs.
fn is_between(gap: &Gap) -> bool {
    gap.reason == GapReason::NotRecorded || gap.reason == GapReason::Deleted && gap.lost_max.is_none()
}

/// The parts of a span in which no run was going, for all that stores say.
fn between(runs: &BTreeMap<[u8; 16], Of>, Span { from_ns, to_ns }: Span) -> Vec<Gap> {
    let mut sorted: Vec<&Of> = runs.values().collect();
    sorted.sort_by_key(|run| run.span_ns);
    let gap = |from_ns, to_ns, reason| Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None };
    let (mut gaps, mut up_to_ns) = (Vec::new(), from_ns);
    for run in sorted {
        let (first_ns, last_ns) = run.span_ns;
        if first_ns > up_to_ns && up_to_ns <= to_ns {
            // In front of what is left of a run stood what was deleted, as far back as anybody knows.
            let reason = if run.is_cut { GapReason::Deleted } else { GapReason::NotRecorded };
            gaps.push(gap(up_to_ns, (first_ns - 1).min(to_ns), reason));
        }
        up_to_ns = up_to_ns.max(last_ns.saturating_add(1));
    }
    if up_to_ns <= to_ns {
        gaps.push(gap(up_to_ns, to_ns, GapReason::NotRecorded));
    }
    gaps
}

impl Kind for Earlier {
    const IS_NUMBERED: bool = false;

    fn lane(&self, past: &Past, timeline: &StoreTimeline, piece: &Piece) -> Option<u32> {
        let SegmentId { run, lane, .. } = piece.segment;
        Some(past.lane(LaneKey::Earlier(run, lane), timeline.link_type(piece.lane)?))
    }

    /// From the first packet that any of these runs has.
    fn heard(&self) -> Option<(i64, i64)> {
        Some((self.heard_ns, self.begin_ns.saturating_sub(1)))
    }

    fn missing(&self, timeline: &StoreTimeline, to_ns: i64) -> Vec<Gap> {
        let missing = timeline.missing(to_ns.min(self.end_ns));
        // What lies between runs is known better here: also behind the last one.
        missing.into_iter().filter(|gap| !is_between(gap)).chain(self.gaps.iter().copied()).collect()
    }

    fn unread(&self, timeline: &StoreTimeline) -> Vec<String> {
        // A file may be damaged that has nothing of the window.
        let missing = self.missing(timeline, i64::MAX);
        let concerns = missing.iter().any(|gap| gap.reason == GapReason::Unreadable);
        if concerns { unread(timeline, 0) } else { Vec::new() }
    }
}
