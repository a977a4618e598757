//! The sums of all workers joined into the signals of the run: bin by bin, once no worker has anything more for
//! a bin, so that nothing depends on how many workers there are or how fast they go.
//!
//! ```text
//!  worker 0 ─► sums of closed bins ─┐
//!  worker 1 ─► sums of closed bins ─┴► waiting, by era and bin ─ settled ─► series, conditions ─► crossings
//! ```

use crate::bins::{Sum, bin_of};
use crate::level::LevelCondition;
use crate::level_state::{Crossing, LevelState, Pair, second_of};
use crate::measure::{BIN_NS, BINS_PER_SECOND, Measure};
use crate::series::Series;
use crate::signal::{SignalSet, Source};
use crate::sketch::Sketch;
use scope_packet::{DropReason, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values of one second whose number is estimated.
#[derive(Debug)]
pub struct Distinct {
    /// The second.
    pub second: i64,
    /// The tally of the packets.
    pub tally: u32,
    /// Distinct flows, and not sources.
    pub flows: bool,
    /// The values.
    pub sketch: Sketch,
}

/// What a worker hands on of one era.
#[derive(Debug, Default)]
pub struct Handed {
    /// The era.
    pub era: u64,
    /// Sums of closed bins, oldest first.
    pub sums: Vec<Sum>,
    /// Sketches of seconds that are over.
    pub distinct: Vec<Distinct>,
    /// The last bin that the worker's clock has come to.
    pub reached: i64,
}

/// A condition that is evaluated, and how it stands in this era.
#[derive(Debug)]
struct Evaluated<K> {
    key: K,
    condition: Arc<LevelCondition>,
    state: Option<LevelState>,
}

/// That the condition of `key` began to hold.
#[derive(Debug)]
pub struct Held<K> {
    /// Whose condition it is.
    pub key: K,
    /// The era.
    pub era: u64,
    /// When and with which values.
    pub crossing: Crossing,
    /// The condition.
    pub condition: Arc<LevelCondition>,
}

/// What waits of one second, or one bin.
#[derive(Debug, Default)]
struct Waiting {
    sums: BTreeMap<i64, Vec<Sum>>,
    distinct: BTreeMap<i64, Vec<Distinct>>,
    /// The last bin that any worker has come to.
    reached: Option<i64>,
}

/// See [the room](self). Conditions are known by keys.
#[derive(Debug)]
pub struct Meter<K> {
    set: Arc<SignalSet>,
    series: Vec<Series>,
    waiting: BTreeMap<u64, Waiting>,
    era: u64,
    /// The next bin of this era that isn't joined; `None`: nothing of it was.
    next: Option<i64>,
    begin: i64,
    conditions: Vec<Evaluated<K>>,
    /// By signal the largest bin of this second.
    bursts: Vec<u64>,
    /// Sums of one bin by tally, and what they come to by signal.
    sums: Vec<(u64, u64)>,
    pairs: Vec<Pair>,
}

impl<K: Clone + PartialEq> Meter<K> {
    /// Of a run that has measured nothing.
    pub fn new(set: Arc<SignalSet>) -> Meter<K> {
        let series = set.signals.iter().map(|signal| Series::new(signal.measure)).collect();
        let (signals, tallies) = (set.signals.len(), set.tallies.len() + DropReason::ALL.len());
        Meter {
            set,
            series,
            waiting: BTreeMap::new(),
            era: 0,
            next: None,
            begin: 0,
            conditions: Vec::new(),
            bursts: vec![0; signals],
            sums: vec![(0, 0); tallies],
            pairs: vec![Pair::default(); signals],
        }
    }

    /// The signals.
    pub fn set(&self) -> &Arc<SignalSet> {
        &self.set
    }

    /// What is remembered of each, in their order.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The era, its first bin, and the next one that isn't joined; `None`: nothing of it is.
    pub fn joined(&self) -> Option<(u64, i64, i64)> {
        Some((self.era, self.begin, self.next?))
    }

    /// Evaluates these conditions from here on. One that was evaluated under the same key goes on.
    pub fn evaluate(&mut self, conditions: impl Iterator<Item = (K, Arc<LevelCondition>)>) {
        let mut before = std::mem::take(&mut self.conditions);
        let next = self.next;
        self.conditions = conditions
            .map(|(key, condition)| match before.iter().position(|known| known.key == key) {
                Some(known) => before.swap_remove(known),
                None => {
                    let state = next.map(|bin| LevelState::new(condition.clone(), bin));
                    Evaluated { key, condition, state }
                }
            })
            .collect();
    }

    /// Takes what a worker hands on.
    pub fn take(&mut self, handed: Handed) {
        let waiting = self.waiting.entry(handed.era).or_default();
        for sum in handed.sums {
            waiting.sums.entry(sum.bin).or_default().push(sum);
        }
        for distinct in handed.distinct {
            waiting.distinct.entry(distinct.second).or_default().push(distinct);
        }
        waiting.reached = waiting.reached.max(Some(handed.reached));
    }

    /// Joins what is settled: no worker hands on anything more from before `until`. `begins` says that a run
    /// listens although nothing comes: its first bin is the first one that is settled.
    pub fn settle(&mut self, until: Moment, begins: bool, held: &mut Vec<Held<K>>) {
        while self.era < until.era {
            // Of an era that is over what its packets came to.
            let reached = self.waiting.get(&self.era).and_then(|waiting| waiting.reached);
            self.join(reached.map_or(i64::MIN, |reached| reached + 1), held);
            self.waiting.remove(&self.era);
            let following = self.waiting.keys().next().copied().unwrap_or(until.era);
            if until == Moment::END && self.waiting.is_empty() {
                return;
            }
            self.begin_era(following.min(until.era));
        }
        let end = bin_of(until.time_ns);
        if begins && self.next.is_none() && until.time_ns > 0 {
            let first = self.first_waiting().unwrap_or(end).min(end);
            self.begin(first);
        }
        self.join(end, held);
    }

    fn first_waiting(&self) -> Option<i64> {
        self.waiting.get(&self.era)?.sums.keys().next().copied()
    }

    fn begin_era(&mut self, era: u64) {
        (self.era, self.next) = (era, None);
        self.bursts.fill(0);
        for condition in &mut self.conditions {
            condition.state = None;
        }
    }

    fn begin(&mut self, bin: i64) {
        (self.begin, self.next) = (bin, Some(bin));
        for condition in &mut self.conditions {
            condition.state = Some(LevelState::new(condition.condition.clone(), bin));
        }
        for series in &mut self.series {
            if series.measured().is_some_and(|(_, end_ns)| bin * BIN_NS < end_ns) {
                series.restart(bin);
            }
        }
    }

    /// Joins the bins of this era up to `end`, without it.
    fn join(&mut self, end: i64, held: &mut Vec<Held<K>>) {
        while let Some(bin) = self.first_waiting().filter(|bin| *bin < end) {
            if self.next.is_none() {
                self.begin(bin);
            }
            let sums = self.waiting.get_mut(&self.era).and_then(|waiting| waiting.sums.remove(&bin));
            self.pass_seconds(second_of(bin), held);
            self.bin(bin, &sums.unwrap_or_default(), held);
        }
        if self.next.is_some_and(|next| next < end) {
            self.pass_seconds(second_of(end), held);
            let mut crossings = Vec::new();
            for condition in &mut self.conditions {
                if let Some(state) = &mut condition.state {
                    state.pass(end, &mut crossings);
                }
                tell(condition, self.era, &mut crossings, held);
            }
            self.series.iter_mut().for_each(|series| series.come_to(end));
            self.next = Some(end);
        }
    }

    fn bin(&mut self, bin: i64, sums: &[Sum], held: &mut Vec<Held<K>>) {
        self.sums.fill((0, 0));
        for sum in sums {
            let of = &mut self.sums[sum.tally as usize];
            *of = (of.0 + sum.packets, of.1 + sum.bytes);
        }
        for (place, signal) in self.set.signals.iter().enumerate() {
            self.pairs[place] = pair(signal.measure, signal.source, &self.sums, self.set.tallies.len());
            if signal.measure == Measure::Burst {
                let largest = &mut self.bursts[place];
                *largest = (*largest).max(self.pairs[place].num);
            }
        }
        let mut crossings = Vec::new();
        for condition in &mut self.conditions {
            if let Some(state) = &mut condition.state {
                state.bin(bin, &self.pairs, &mut crossings);
            }
            tell(condition, self.era, &mut crossings, held);
        }
        for (series, pair) in self.series.iter_mut().zip(&self.pairs) {
            series.bin(bin, *pair);
        }
        self.next = Some(bin + 1);
    }

    /// Seconds before `second` are over.
    fn pass_seconds(&mut self, second: i64, held: &mut Vec<Held<K>>) {
        let Some(next) = self.next else { return };
        let current = second_of((next - 1).max(0));
        if second > current {
            self.end_second(current, held);
        }
        while let Some((over, _)) =
            self.waiting.get(&self.era).and_then(|waiting| waiting.distinct.first_key_value())
        {
            let over = *over;
            if over >= second {
                return;
            }
            self.end_second(over, held);
        }
    }

    /// What `second` comes to, for measures of seconds.
    fn end_second(&mut self, second: i64, held: &mut Vec<Held<K>>) {
        let waiting = self.waiting.get_mut(&self.era);
        let distinct = waiting.and_then(|waiting| waiting.distinct.remove(&second)).unwrap_or_default();
        let mut merged: BTreeMap<(u32, bool), Sketch> = BTreeMap::new();
        for of in distinct {
            match merged.entry((of.tally, of.flows)) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(of.sketch);
                }
                std::collections::btree_map::Entry::Occupied(mut place) => place.get_mut().merge(&of.sketch),
            }
        }
        let mut values = vec![Pair::default(); self.set.signals.len()];
        for (place, signal) in self.set.signals.iter().enumerate() {
            values[place].num = match (signal.source, signal.measure) {
                (_, Measure::Burst) => {
                    std::mem::take(&mut self.bursts[place]).saturating_mul(BINS_PER_SECOND as u64)
                }
                (Source::Sketch(tally), measure) => {
                    let of = merged.get(&(tally as u32, measure == Measure::Flows));
                    of.map_or(0, Sketch::estimate)
                }
                _ => 0,
            };
        }
        if values.iter().all(|pair| pair.num == 0) {
            return;
        }
        let mut crossings = Vec::new();
        for condition in &mut self.conditions {
            if let Some(state) = &mut condition.state {
                state.second(second, &values, &mut crossings);
            }
            tell(condition, self.era, &mut crossings, held);
        }
        for (place, series) in self.series.iter_mut().enumerate() {
            if self.set.signals[place].measure.is_per_second() {
                series.second(second, values[place].num);
            }
        }
    }
}

fn tell<K: Clone>(
    evaluated: &Evaluated<K>,
    era: u64,
    crossings: &mut Vec<Crossing>,
    held: &mut Vec<Held<K>>,
) {
    let (key, condition) = (&evaluated.key, &evaluated.condition);
    held.extend(crossings.drain(..).map(|crossing| Held {
        key: key.clone(),
        era,
        crossing,
        condition: condition.clone(),
    }));
}

/// What sums of a bin come to for a signal.
fn pair(measure: Measure, source: Source, sums: &[(u64, u64)], drops_from: usize) -> Pair {
    let lost = |reason: DropReason| sums[drops_from + reason as usize].0;
    match (source, measure) {
        (Source::Tally(tally, _), Measure::Bits) => Pair { num: sums[tally].1, den: 0 },
        (Source::Tally(tally, _), Measure::Size) => Pair { num: sums[tally].1, den: sums[tally].0 },
        (Source::Tally(tally, Some(whole)), _) => Pair { num: sums[tally].0, den: sums[whole].0 },
        (Source::Tally(tally, None), _) => Pair { num: sums[tally].0, den: 0 },
        (Source::Sketch(_), _) => Pair::default(),
        (Source::Drops(Some(reason)), _) => Pair { num: lost(reason), den: 0 },
        (Source::Drops(None), _) => Pair { num: DropReason::ALL.map(lost).iter().sum(), den: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Written;
    use crate::sketch::hash;
    use scope_filter::VlanRule;
    use scope_packet::LinkType;

    fn meter(signals: &[&str], condition: &str) -> Meter<u8> {
        let written: Vec<Written> = signals.iter().map(|text| Written::take_apart(text)).collect();
        let set = SignalSet::read(&written, VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap();
        let condition = Arc::new(LevelCondition::parse(condition, &set).unwrap());
        let mut meter = Meter::new(Arc::new(set));
        meter.evaluate([(7, condition)].into_iter());
        meter
    }

    fn sums(era: u64, of: &[(i64, u32, u64)], reached: i64) -> Handed {
        let sum = |(bin, tally, packets): &(i64, u32, u64)| Sum {
            bin: *bin,
            tally: *tally,
            packets: *packets,
            bytes: packets * 100,
        };
        Handed { era, sums: of.iter().map(sum).collect(), distinct: Vec::new(), reached }
    }

    fn crossings(held: &[Held<u8>]) -> Vec<(u64, i64, i64)> {
        held.iter().map(|of| (of.era, of.crossing.since_bin, of.crossing.decided_bin)).collect()
    }

    fn at(era: u64, bin: i64) -> Moment {
        Moment::new(era, bin * BIN_NS)
    }

    #[test]
    fn a_bin_is_the_sum_over_all_workers_and_nothing_is_said_before_it_is_settled() {
        let mut meter = meter(&["a=udp"], "signal(a) >= 5000/s");
        let mut held = Vec::new();
        meter.take(sums(0, &[(10, 0, 4), (10, 1, 3), (12, 0, 4), (12, 1, 4)], 20));
        meter.settle(at(0, 10), false, &mut held);
        assert!(held.is_empty());
        meter.take(sums(0, &[(10, 0, 2), (10, 1, 2)], 20));
        meter.settle(at(0, 11), false, &mut held);
        assert_eq!(crossings(&held), [(0, 10, 10)]);
        assert_eq!(held[0].key, 7);
        meter.settle(at(0, 20), false, &mut held);
        assert_eq!(held.len(), 1, "four packets alone are no crossing");
        let steps = meter.series()[0].steps(0, i64::MAX, BIN_NS).1;
        let packets: Vec<f64> = steps.iter().map(|step| step.values.unwrap().1 / 1000.0).collect();
        assert_eq!(packets[..4], [6.0, 0.0, 4.0, 0.0]);
    }

    #[test]
    fn each_era_begins_anew_and_ends_where_its_packets_end() {
        let mut meter = meter(&["a=udp"], "signal(a) == 0 for 5ms");
        let mut held = Vec::new();
        meter.take(sums(0, &[(100, 1, 1)], 103));
        meter.take(sums(1, &[(50, 1, 1), (60, 1, 1)], 64));
        meter.settle(at(1, 62), false, &mut held);
        assert_eq!(crossings(&held), [(1, 51, 55)], "three empty bins of the first era are too few");
        meter.settle(Moment::END, false, &mut held);
        assert_eq!(held.len(), 1, "and four of the last one");
    }

    #[test]
    fn a_run_that_hears_nothing_measures_nothing_from_its_begin_on() {
        let mut meter = meter(&["a=udp"], "signal(a) == 0 for 3s");
        let mut held = Vec::new();
        for bin in [1_000_000, 1_002_000, 1_002_999] {
            meter.settle(at(0, bin), true, &mut held);
            assert!(held.is_empty());
        }
        meter.settle(at(0, 1_003_000), true, &mut held);
        assert_eq!(crossings(&held), [(0, 1_000_000, 1_002_999)]);
    }

    #[test]
    fn distinct_values_are_those_of_all_workers_together() {
        let mut meter = meter(&["who:hosts="], "signal(who) > 150/s");
        let mut held = Vec::new();
        for worker in 0..2u32 {
            let mut sketch = Sketch::default();
            (0..100u32).for_each(|host| sketch.add(hash(1, &(host + worker * 90).to_be_bytes())));
            let mut handed = sums(0, &[(5_000 + i64::from(worker), 0, 100)], 9_000);
            handed.distinct.push(Distinct { second: 5, tally: 0, flows: false, sketch });
            meter.take(handed);
        }
        meter.settle(at(0, 6_000), false, &mut held);
        assert!(held.is_empty());
        meter.settle(at(0, 6_001), false, &mut held);
        assert_eq!(crossings(&held), [(0, 5_000, 6_000)]);
        assert!(held[0].crossing.values[0].is_some_and(|value| (180.0..=200.0).contains(&value.to_f64())));
    }

    #[test]
    fn losses_are_counted_by_reason() {
        let mut meter = meter(&["k:drops=kernel"], "signal(k) > 0 or signal(drops) > 2000/s");
        let mut held = Vec::new();
        let reason = |reason: DropReason| 1 + reason as u32;
        meter.take(sums(0, &[(3, reason(DropReason::RingPinned), 3), (5, reason(DropReason::Kernel), 1)], 9));
        meter.settle(at(0, 9), false, &mut held);
        assert_eq!(crossings(&held), [(0, 3, 3), (0, 5, 5)]);
    }
}
