//! What is remembered of a signal: its bins for a minute, its seconds for an hour, its minutes for a week.
//!
//! | of | kept | each has |
//! |---|---|---|
//! | bins | [`BINS_KEPT`] | its value; those without anything take no memory |
//! | seconds | [`SECONDS_KEPT`] | least, most and mean of its bins |
//! | minutes | [`MINUTES_KEPT`] | the same |
//!
//! At its bound each forgets the oldest. Where capture time was set back, what lies ahead of the new time is
//! forgotten: a time has one value.

use crate::level_state::{Pair, second_of};
use crate::measure::{BIN_NS, BINS_PER_SECOND, Measure};
use std::collections::VecDeque;

/// Bins, seconds and minutes that are kept.
pub const BINS_KEPT: i64 = 60_000;
/// See [`BINS_KEPT`].
pub const SECONDS_KEPT: i64 = 3600;
/// See [`BINS_KEPT`].
pub const MINUTES_KEPT: i64 = 10_080;
/// Steps of one answer at most.
pub const STEPS_MAX: usize = 10_000;
const SECONDS_PER_MINUTE: i64 = 60;

/// Bins together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Together {
    /// Bins, or seconds, that had a value.
    valued: u64,
    min: f64,
    max: f64,
    /// Of these the sums.
    num: u128,
    den: u128,
}

impl Together {
    const NOTHING: Together =
        Together { valued: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, num: 0, den: 0 };

    fn add(&mut self, other: &Together) {
        self.valued += other.valued;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.num += other.num;
        self.den += other.den;
    }
}

/// One step of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its begin, ns.
    pub from_ns: i64,
    /// The least, the most and the mean of its bins; `None`: nothing has a value, as a length of no packets.
    pub values: Option<(f64, f64, f64)>,
}

/// See [the room](self).
#[derive(Clone, Debug)]
pub struct Series {
    measure: Measure,
    bins: VecDeque<(i64, Pair)>,
    seconds: VecDeque<(i64, Together)>,
    minutes: VecDeque<(i64, Together)>,
    /// The first bin that was measured, and the next one that is not.
    measured: Option<(i64, i64)>,
    last_packet: Option<i64>,
}

impl Series {
    /// Of a signal of this measure.
    pub fn new(measure: Measure) -> Series {
        Series {
            measure,
            bins: VecDeque::new(),
            seconds: VecDeque::new(),
            minutes: VecDeque::new(),
            measured: None,
            last_packet: None,
        }
    }

    /// `bin` has this; what lies between it and the one before has nothing.
    pub fn bin(&mut self, bin: i64, pair: Pair) {
        self.come_to(bin + 1);
        if pair == Pair::default() || self.measure.is_per_second() {
            return;
        }
        if self.measure == Measure::Gap {
            // The longest gap is the one that ends here.
            let gap = self.last_packet.replace(bin).map_or(0, |last| bin - last - 1);
            return self.add(bin, Pair { num: gap.max(0) as u64, den: 0 });
        }
        self.add(bin, pair);
    }

    /// A second is over, and has this value.
    pub fn second(&mut self, second: i64, value: u64) {
        self.add(second * BINS_PER_SECOND, Pair { num: value, den: 0 });
    }

    fn add(&mut self, bin: i64, pair: Pair) {
        self.bins.push_back((bin, pair));
        let (second, of) = (second_of(bin), self.together(pair));
        for (kept, place) in
            [(&mut self.seconds, second), (&mut self.minutes, second.div_euclid(SECONDS_PER_MINUTE))]
        {
            match kept.back_mut().filter(|(last, _)| *last == place) {
                Some((_, sum)) => sum.add(&of),
                None => kept.push_back((place, of)),
            }
        }
    }

    /// Everything up to `bin`, without it, is measured.
    pub fn come_to(&mut self, bin: i64) {
        if self.measured.is_some_and(|(_, end)| bin < end) {
            return;
        }
        let begin = self.measured.map_or(bin - 1, |(begin, _)| begin);
        self.measured = Some((begin, bin));
        forget(&mut self.bins, bin - BINS_KEPT);
        forget(&mut self.seconds, second_of(bin) - SECONDS_KEPT);
        forget(&mut self.minutes, second_of(bin).div_euclid(SECONDS_PER_MINUTE) - MINUTES_KEPT);
    }

    /// Times go on from `bin`, which lies before what was measured.
    pub fn restart(&mut self, bin: i64) {
        let second = second_of(bin);
        self.bins.retain(|(at, _)| *at < bin);
        self.seconds.retain(|(at, _)| *at < second);
        self.minutes.retain(|(at, _)| *at < second.div_euclid(SECONDS_PER_MINUTE));
        self.measured = self.measured.map(|(begin, _)| (begin.min(bin), bin));
        self.last_packet = None;
    }

    fn together(&self, pair: Pair) -> Together {
        let value = self.value(u128::from(pair.num), u128::from(pair.den), 1);
        match value {
            None => Together::NOTHING,
            Some(value) => {
                Together { valued: 1, min: value, max: value, num: pair.num.into(), den: pair.den.into() }
            }
        }
    }

    /// What sums over so many bins come to.
    fn value(&self, num: u128, den: u128, bins: i64) -> Option<f64> {
        let (num, den, bins) = (num as f64, den as f64, bins.max(1) as f64);
        match self.measure {
            Measure::Packets | Measure::Drops => Some(num * 1000.0 / bins),
            Measure::Bits => Some(num * 8000.0 / bins),
            Measure::Size => (den > 0.0).then(|| num / den),
            Measure::Share => (den > 0.0).then(|| num * 100.0 / den),
            Measure::Hosts | Measure::Flows | Measure::Gap | Measure::Burst => Some(num),
        }
    }

    /// The span that was measured, ns.
    pub fn measured(&self) -> Option<(i64, i64)> {
        self.measured.map(|(begin, end)| (begin * BIN_NS, end * BIN_NS))
    }

    /// Its value over the last second that is over.
    pub fn latest(&self) -> Option<f64> {
        let (begin, end) = self.measured?;
        let second = second_of(end) - 1;
        let from = (second * BINS_PER_SECOND).max(begin);
        if from >= end {
            return None;
        }
        let kept = self.seconds.iter().rev().find(|(at, _)| *at == second).map(|(_, of)| *of);
        self.mean(&kept.unwrap_or(Together::NOTHING), (second + 1) * BINS_PER_SECOND - from)
    }

    fn mean(&self, of: &Together, bins: i64) -> Option<f64> {
        match self.measure {
            Measure::Gap | Measure::Hosts | Measure::Flows | Measure::Burst => {
                Some(if of.valued > 0 { of.num as f64 / of.valued as f64 } else { 0.0 })
            }
            _ => self.value(of.num, of.den, bins),
        }
    }

    /// Steps of `step_ns` from the one that has `from_ns` on, up to `to_ns`, as fine as they are remembered; at
    /// most [`STEPS_MAX`]. Steps are whole bins; where only seconds or minutes are left, whole ones of these.
    pub fn steps(&self, from_ns: i64, to_ns: i64, step_ns: i64) -> (i64, Vec<Step>) {
        let Some((begin, end)) = self.measured else { return (step_ns, Vec::new()) };
        let of_second = BINS_PER_SECOND;
        let of_minute = of_second * SECONDS_PER_MINUTE;
        let from = from_ns.div_euclid(BIN_NS).max(begin);
        // Of a second that isn't over there is no value where it takes a whole one.
        let end_known = if self.measure.is_per_second() {
            end.div_euclid(BINS_PER_SECOND) * BINS_PER_SECOND
        } else {
            end
        };
        let to = to_ns.div_euclid(BIN_NS).saturating_add(1).min(end_known);
        let grain = match from {
            _ if self.measure.is_per_second() && from >= end - SECONDS_KEPT * of_second => of_second,
            from if from >= end - BINS_KEPT => 1,
            from if from >= end - SECONDS_KEPT * of_second => of_second,
            _ => of_minute,
        };
        let step = (step_ns / BIN_NS).max(1);
        let step = (step + grain - 1) / grain * grain;
        let first = from.div_euclid(step) * step;
        let mut steps = Vec::new();
        // Of what is remembered only that of the span: a bin takes a look, however long it was measured.
        let kept: Vec<(i64, Together)> = if grain == 1 {
            of_span(&self.bins, 1, first..to).map(|(bin, pair)| (bin, self.together(pair))).collect()
        } else {
            let kept = if grain == of_second { &self.seconds } else { &self.minutes };
            of_span(kept, grain, first..to).collect()
        };
        let mut at = 0;
        let mut bin = first;
        while bin < to && steps.len() < STEPS_MAX {
            let mut of = Together::NOTHING;
            while let Some((_, more)) = kept.get(at).filter(|(place, _)| *place < bin + step) {
                of.add(more);
                at += 1;
            }
            let bins = (bin + step).min(end) - bin.max(begin);
            steps.push(Step { from_ns: bin * BIN_NS, values: self.values(&of, bins) });
            bin += step;
        }
        (step * BIN_NS, steps)
    }

    fn values(&self, of: &Together, bins: i64) -> Option<(f64, f64, f64)> {
        let mean = self.mean(of, bins)?;
        // A bin without packets has nothing, where that is a value.
        let is_rate = matches!(self.measure, Measure::Packets | Measure::Bits | Measure::Drops);
        let least = if is_rate && (of.valued as i64) < bins { 0.0 } else { of.min };
        let (least, most) = if of.valued == 0 { (0.0, 0.0) } else { (least, of.max) };
        Some((least, most, mean))
    }
}

/// What lies in a span of bins, where a place has so many.
fn of_span<T: Copy>(
    kept: &VecDeque<(i64, T)>,
    bins_each: i64,
    span: std::ops::Range<i64>,
) -> impl Iterator<Item = (i64, T)> {
    let begin = kept.partition_point(|(place, _)| place * bins_each < span.start);
    let each = kept.range(begin..).map(move |(place, of)| (place * bins_each, *of));
    each.take_while(move |(bin, _)| *bin < span.end)
}

/// Forgets what lies before `from`.
fn forget<T>(kept: &mut VecDeque<(i64, T)>, from: i64) {
    while kept.front().is_some_and(|(at, _)| *at < from) {
        kept.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    fn pair(num: u64) -> Pair {
        Pair { num, den: 0 }
    }

    #[test]
    fn steps_are_as_fine_as_what_is_remembered() {
        let mut series = Series::new(Measure::Packets);
        for bin in 0..200_000 {
            series.bin(bin, pair(u64::from(bin % 2 == 0)));
        }
        let (step_ns, steps) = series.steps(199 * SECOND_NS, i64::MAX, BIN_NS);
        assert_eq!((step_ns, steps.len()), (BIN_NS, 1000));
        assert_eq!(steps[0].values, Some((1000.0, 1000.0, 1000.0)));
        assert_eq!(steps[1].values, Some((0.0, 0.0, 0.0)));
        let (step_ns, steps) = series.steps(100 * SECOND_NS, 101 * SECOND_NS, BIN_NS);
        assert_eq!((step_ns, steps.len()), (SECOND_NS, 2), "of that only seconds are left");
        assert_eq!(steps[0].values, Some((0.0, 1000.0, 500.0)));
        assert_eq!(series.steps(0, i64::MAX, 60 * SECOND_NS).1.len(), 4);
        assert_eq!(series.latest(), Some(500.0));
        assert!(series.bins.len() <= BINS_KEPT as usize);
        for bin in [10_000_000, 700_000_000] {
            series.bin(bin, pair(1));
        }
        assert_eq!((series.bins.len(), series.seconds.len()), (1, 1), "what is too old is forgotten");
        assert_eq!(series.steps(0, i64::MAX, BIN_NS).0, 60 * SECOND_NS);
    }

    #[test]
    fn a_length_of_nothing_is_none_and_a_gap_is_the_longest() {
        let mut size = Series::new(Measure::Size);
        size.bin(5, Pair { num: 300, den: 2 });
        size.come_to(3000);
        let (_, steps) = size.steps(0, i64::MAX, SECOND_NS);
        assert_eq!(steps[0].values, Some((150.0, 150.0, 150.0)));
        assert_eq!((steps[1].values, steps.len()), (None, 3));
        let mut gap = Series::new(Measure::Gap);
        for bin in [5, 6, 10, 30] {
            gap.bin(bin, pair(1));
        }
        assert_eq!(gap.steps(0, i64::MAX, SECOND_NS).1[0].values.map(|values| values.1), Some(19.0));
    }

    #[test]
    fn where_time_was_set_back_it_goes_on_from_there() {
        let mut series = Series::new(Measure::Packets);
        (0..5000).for_each(|bin| series.bin(bin, pair(1)));
        series.restart(2000);
        series.bin(2000, pair(7));
        let (_, steps) = series.steps(0, i64::MAX, BIN_NS);
        assert_eq!((steps.len(), steps[2000].values), (2001, Some((7000.0, 7000.0, 7000.0))));
    }
}
