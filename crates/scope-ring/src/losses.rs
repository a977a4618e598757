//! What never came into the ring: spans of capture time that lack packets, by reason, and the time for which
//! each worker listened.

use scope_packet::{Gap, GapReason};
use std::collections::VecDeque;

/// Spans of one reason that are remembered; beyond, the two oldest become one.
const LOSS_SPANS_MAX: usize = 65_536;
/// Counted losses of one interface at most this far apart, ns, become one span.
const LOSS_SPAN_GAP_NS: i64 = 1_000_000;
/// Which is so long at most, ns: the longer, the less exact.
const LOSS_SPAN_MAX_NS: i64 = 10 * LOSS_SPAN_GAP_NS;

/// One span, and whose it is.
#[derive(Clone, Copy)]
struct Span {
    worker: u32,
    /// The source's own number.
    interface: u32,
    /// Of which it speaks: see [`crate::eras`].
    era: u64,
    gap: Gap,
}

impl Span {
    /// Merges one of the same reason, of any worker.
    fn join(&mut self, other: &Gap) {
        let gap = &mut self.gap;
        gap.from_ns = gap.from_ns.min(other.from_ns);
        gap.to_ns = gap.to_ns.max(other.to_ns);
        gap.lost_min = gap.lost_min.saturating_add(other.lost_min);
        gap.lost_max = gap.lost_max.zip(other.lost_max).map(|(a, b)| a.saturating_add(b));
    }

    /// Whether `other`, which is noted after it, goes on where it ends.
    fn goes_on(&self, other: &Span) -> bool {
        let (last, next) = (&self.gap, &other.gap);
        (self.worker, self.interface, self.era) == (other.worker, other.interface, other.era)
            && next.from_ns >= last.from_ns
            && match (last.lost_max, next.lost_max) {
                // Without a number nothing gets less exact.
                (None, None) => next.from_ns <= last.to_ns.saturating_add(1),
                (Some(_), Some(_)) => {
                    next.from_ns <= last.to_ns.saturating_add(LOSS_SPAN_GAP_NS)
                        && next.to_ns.saturating_sub(last.from_ns) <= LOSS_SPAN_MAX_NS
                }
                _ => false,
            }
    }
}

/// Eras of workers that are over and remembered: older ones are not needed any more.
const PAST_MAX: usize = 65_536;

/// For how long one worker listened in one era.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Listened {
    era: u64,
    /// From when, ns, and what there was before; `None`: nobody has said.
    from: Option<(i64, GapReason)>,
    /// Up to when; `None`: it still does.
    to: Option<(i64, GapReason)>,
}

/// Losses before the ring.
#[derive(Default)]
pub(crate) struct LossLog {
    /// In order of noting.
    spans: [VecDeque<Span>; GapReason::ALL.len()],
    /// Spans whose end isn't known yet: one for each interface and reason at most.
    open: Vec<Span>,
    /// By worker.
    listened: Vec<Listened>,
    /// Of eras that are over.
    past: VecDeque<Listened>,
}

impl LossLog {
    /// Notes a gap. One that ends at `i64::MAX` lasts until the same interface's next one of the same reason,
    /// which says where both of them end.
    pub(crate) fn push(&mut self, worker: u32, interface: u32, era: u64, gap: Gap) {
        let gap = Gap { from_ns: gap.from_ns.min(gap.to_ns), to_ns: gap.to_ns.max(gap.from_ns), ..gap };
        let mut span = Span { worker, interface, era, gap };
        let is_it =
            |open: &Span| (open.worker, open.interface, open.gap.reason) == (worker, interface, gap.reason);
        if let Some(at) = self.open.iter().position(is_it) {
            let open = self.open.swap_remove(at);
            span.gap.from_ns = span.gap.from_ns.min(open.gap.from_ns);
        }
        if gap.to_ns == i64::MAX {
            return self.open.push(span);
        }
        let spans = &mut self.spans[gap.reason as usize];
        if let Some(last) = spans.back_mut()
            && last.goes_on(&span)
        {
            return last.join(&span.gap);
        }
        if spans.len() == LOSS_SPANS_MAX
            && let Some(oldest) = spans.pop_front()
            && let Some(next) = spans.front_mut()
        {
            next.join(&oldest.gap);
        }
        spans.push_back(span);
    }

    /// `worker` listens from `from_ns` on; before, there was what `reason` says. The last word holds.
    pub(crate) fn begin(&mut self, worker: u32, from_ns: i64, reason: GapReason) {
        self.of_worker(worker).from = Some((from_ns, reason));
    }

    /// `worker` has listened up to `to_ns`; `reason` says why it doesn't any more. The first word holds.
    pub(crate) fn end(&mut self, worker: u32, to_ns: i64, reason: GapReason) {
        self.of_worker(worker).to.get_or_insert((to_ns, reason));
    }

    /// Capture time was set back for `worker`, when its clock was at `clock_ns`. What isn't over goes on in
    /// the new era.
    pub(crate) fn begin_era(&mut self, worker: u32, era: u64, clock_ns: i64) {
        let listened = self.of_worker(worker);
        let mut over = std::mem::replace(listened, Listened { era, ..Listened::default() });
        over.to.get_or_insert((clock_ns, GapReason::ClockStep));
        if self.past.len() >= PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(over);
        let (open, others) =
            std::mem::take(&mut self.open).into_iter().partition(|open: &Span| open.worker == worker);
        self.open = others;
        for span in open {
            let closed = Gap { to_ns: clock_ns.max(span.gap.from_ns), ..span.gap };
            self.spans[closed.reason as usize].push_back(Span { gap: closed, ..span });
            self.open.push(Span { era, gap: Gap { from_ns: 0, ..span.gap }, ..span });
        }
    }

    fn of_worker(&mut self, worker: u32) -> &mut Listened {
        let worker = worker as usize;
        if self.listened.len() <= worker {
            self.listened.resize(worker + 1, Listened::default());
        }
        &mut self.listened[worker]
    }

    fn listeners(&self, era: u64) -> impl Iterator<Item = &Listened> {
        self.past.iter().chain(&self.listened).filter(move |listened| listened.era == era)
    }

    /// From when to when somebody listened in `era`, as far as anybody has said: `i64::MAX` where some worker
    /// still does.
    pub(crate) fn listened(&self, era: u64) -> Option<(i64, i64)> {
        let known = self
            .listeners(era)
            .filter_map(|worker| Some((worker.from?.0, worker.to.map_or(i64::MAX, |to| to.0))));
        known.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The same in whatever era.
    pub(crate) fn listened_ever(&self) -> Option<(i64, i64)> {
        self.heard().map(|(from_ns, to_ns, _)| (from_ns, to_ns)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// From when to when each worker listened in each era, and why not before.
    fn heard(&self) -> impl Iterator<Item = (i64, i64, GapReason)> {
        let known = self.past.iter().chain(&self.listened);
        known.filter_map(|one| {
            let (from_ns, reason) = one.from?;
            Some((from_ns, one.to.map_or(i64::MAX, |to| to.0).max(from_ns), reason))
        })
    }

    /// What of `window` never came in, whatever the era: what was noted of each, and the times at which nobody listened in
    /// any.
    pub(crate) fn gaps_ever(&self, window: (i64, i64)) -> Vec<Gap> {
        if self.past.is_empty() {
            return self.gaps(self.listened.first().map_or(0, |listened| listened.era), window);
        }
        let mut heard: Vec<_> = self.heard().collect();
        heard.sort_unstable_by_key(|&(from_ns, to_ns, _)| (from_ns, to_ns));
        let unheard = |from_ns, to_ns, reason| Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None };
        let (mut gaps, mut up_to_ns) = (Vec::new(), -1);
        for (from_ns, to_ns, before) in heard {
            if from_ns > i64::saturating_add(up_to_ns, 1) {
                let reason = if up_to_ns < 0 { before } else { GapReason::ClockStep };
                gaps.push(unheard(up_to_ns + 1, from_ns - 1, reason));
            }
            up_to_ns = up_to_ns.max(to_ns);
        }
        if up_to_ns < i64::MAX {
            let ends = self.listened.iter().filter_map(|listened| listened.to);
            let reason =
                ends.max_by_key(|(to_ns, _)| *to_ns).map_or(GapReason::Stopped, |(_, reason)| reason);
            gaps.push(unheard(up_to_ns + 1, i64::MAX, reason));
        }
        let spans = self.spans.iter().flatten().chain(&self.open).map(|span| span.gap);
        spans.chain(gaps).filter_map(|gap| inside(gap, window)).collect()
    }

    /// What of `window` (ns, both ends inclusive) of `era` never came in. Of a span that lies only partly
    /// inside, nobody knows how many of its packets do.
    pub(crate) fn gaps(&self, era: u64, window: (i64, i64)) -> Vec<Gap> {
        let unheard = |from_ns, to_ns, reason| Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None };
        let before = self.listeners(era).filter_map(|worker| worker.from);
        let before = before
            .filter(|(from_ns, _)| *from_ns > 0)
            .map(|(from_ns, reason)| unheard(0, from_ns - 1, reason));
        let behind = self.listeners(era).filter_map(|worker| worker.to);
        let behind = behind
            .filter(|(to_ns, _)| *to_ns < i64::MAX)
            .map(|(to_ns, reason)| unheard(to_ns + 1, i64::MAX, reason));
        let spans =
            self.spans.iter().flatten().chain(&self.open).filter(|span| span.era == era).map(|span| span.gap);
        spans.chain(before).chain(behind).filter_map(|gap| inside(gap, window)).collect()
    }
}

/// The part of a gap that lies in a window.
fn inside(gap: Gap, window: (i64, i64)) -> Option<Gap> {
    let (from_ns, to_ns) = (gap.from_ns.max(window.0), gap.to_ns.min(window.1));
    let whole = (from_ns, to_ns) == (gap.from_ns, gap.to_ns);
    (from_ns <= to_ns).then_some(Gap {
        from_ns,
        to_ns,
        lost_min: if whole { gap.lost_min } else { 0 },
        ..gap
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: (i64, i64) = (0, i64::MAX);

    fn kernel(packets: u64, from_ns: i64, to_ns: i64) -> Gap {
        Gap { from_ns, to_ns, reason: GapReason::Kernel, lost_min: packets, lost_max: Some(packets) }
    }

    fn down(from_ns: i64, to_ns: i64) -> Gap {
        Gap { from_ns, to_ns, reason: GapReason::InterfaceDown, lost_min: 0, lost_max: None }
    }

    fn sum(log: &LossLog, window: (i64, i64)) -> (u64, u64) {
        log.gaps(0, window)
            .iter()
            .fold((0, 0), |(min, max), gap| (min + gap.lost_min, max + gap.lost_max.unwrap()))
    }

    #[test]
    fn losses_near_each_other_are_one_span_and_nothing_is_forgotten() {
        let mut log = LossLog::default();
        for n in 0..1000 {
            log.push(0, 0, 0, kernel(2, n * 1000, n * 1000));
        }
        assert_eq!(log.spans[GapReason::Kernel as usize].len(), 1);
        assert_eq!(sum(&log, ALL), (2000, 2000));
        assert_eq!(sum(&log, (500, i64::MAX)), (0, 2000));
        for n in 0..LOSS_SPANS_MAX as i64 + 5 {
            log.push(1, 0, 0, kernel(1, (n + 1) * 1_000_000_000, (n + 1) * 1_000_000_000));
        }
        assert_eq!(log.spans[GapReason::Kernel as usize].len(), LOSS_SPANS_MAX);
        assert_eq!(sum(&log, ALL).1, 2000 + LOSS_SPANS_MAX as u64 + 5);
    }

    #[test]
    fn a_gap_without_an_end_counts_until_it_is_closed_and_then_as_far_as_it_went() {
        let mut log = LossLog::default();
        log.push(0, 3, 0, down(100, i64::MAX));
        log.push(0, 4, 0, down(150, i64::MAX));
        assert_eq!(log.gaps(0, (0, 200)), [down(100, 200), down(150, 200)]);
        assert_eq!(log.gaps(0, (0, 99)), []);
        log.push(0, 3, 0, down(100, 120));
        assert_eq!(log.gaps(0, (0, 140)), [down(100, 120)]);
        log.push(0, 4, 0, down(180, 190));
        assert_eq!(log.gaps(0, ALL), [down(100, 120), down(150, 190)], "from where it began");
        log.push(0, 4, 0, down(191, 200));
        assert_eq!(
            log.gaps(0, ALL),
            [down(100, 120), down(150, 200)],
            "one goes on where the last one ended"
        );
    }

    #[test]
    fn before_a_worker_listened_and_after_it_did_there_are_gaps() {
        let mut log = LossLog::default();
        assert_eq!((log.gaps(0, ALL), log.listened(0)), (Vec::new(), None));
        log.begin(0, 500, GapReason::CaptureBegin);
        log.begin(0, 400, GapReason::CaptureBegin);
        log.begin(1, 450, GapReason::CaptureBegin);
        assert_eq!(log.listened(0), Some((400, i64::MAX)));
        log.end(0, 900, GapReason::Stopped);
        log.end(0, 990, GapReason::InterfaceGone);
        let unheard = |from_ns, to_ns, reason| Gap { reason, ..down(from_ns, to_ns) };
        let expected = [
            unheard(300, 399, GapReason::CaptureBegin),
            unheard(300, 449, GapReason::CaptureBegin),
            unheard(901, 1000, GapReason::Stopped),
        ];
        assert_eq!(log.gaps(0, (300, 1000)), expected);
        log.end(1, 950, GapReason::Stopped);
        assert_eq!((log.gaps(0, (450, 900)), log.listened(0)), (Vec::new(), Some((400, 950))));
    }
}
