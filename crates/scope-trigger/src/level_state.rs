//! What a condition on signals comes to, bin by bin, in capture time.
//!
//! ```text
//! bins  ..│ 3 │ 0 │ 7 │ 9 │ 8 │ 0 │ 0 │ 0 │ ...        signal(x) > 5000/s for 3ms
//!                   └ since ──┘ holds: the hit's time is the begin of the bin `since`
//! ```
//! A bin without packets needs no step of its own: between two bins with packets values change only where a bin
//! leaves a mean, where a second ends, or where a gap passes a level. Each of these places is evaluated, and
//! nothing in between, so that a year without a packet costs a few thousand steps at most.
//!
//! | what | its value in a bin |
//! |---|---|
//! | measures of bins | the mean of the last `window` bins, this one included; none before there were so many |
//! | measures of seconds | that of the last second that is over, or the mean of so many |
//! | `gap` | bins without a packet up to this one; none before the first packet |
//! | `mean(T)` | the mean of the last T seconds up to the begin of this one, or of what there is of them |
//!
//! Where a value is none, as a mean length of no packets, nothing holds.

use crate::level::{Bound, Joined, Level, LevelCondition, Op, Test};
use crate::measure::{Amount, BINS_PER_SECOND, Measure};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a signal has in one bin, or in one second: what is divided, and by what. Of packets the second one is
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Packets, bytes, or a value.
    pub num: u64,
    /// Packets of the whole.
    pub den: u64,
}

impl Pair {
    fn is_nothing(self) -> bool {
        self.num == 0 && self.den == 0
    }
}

/// A condition began to hold.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The first bin in which it held.
    pub since_bin: i64,
    /// The bin in which that was certain.
    pub decided_bin: i64,
    /// The values of its levels then, in their order; `None`: there was none.
    pub values: Vec<Option<Amount>>,
}

/// Sums over the last so many places, of which only those that have something are kept.
#[derive(Clone, Debug)]
struct Sums {
    length: i64,
    kept: VecDeque<(i64, Pair)>,
    num: u128,
    den: u128,
}

impl Sums {
    fn new(length: i64) -> Sums {
        Sums { length, kept: VecDeque::new(), num: 0, den: 0 }
    }

    fn add(&mut self, at: i64, pair: Pair) {
        if pair.is_nothing() {
            return;
        }
        self.num += u128::from(pair.num);
        self.den += u128::from(pair.den);
        match self.kept.back_mut().filter(|(last, _)| *last == at) {
            Some((_, sum)) => {
                sum.num += pair.num;
                sum.den += pair.den;
            }
            None => self.kept.push_back((at, pair)),
        }
    }

    /// Forgets what is not among the `length` places up to `at`.
    fn come_to(&mut self, at: i64) {
        while let Some(&(_, pair)) = self.kept.front().filter(|(oldest, _)| *oldest <= at - self.length) {
            self.num -= u128::from(pair.num);
            self.den -= u128::from(pair.den);
            self.kept.pop_front();
        }
    }

    /// The place at which something leaves.
    fn next_leaving(&self) -> Option<i64> {
        self.kept.front().map(|(oldest, _)| oldest + self.length)
    }
}

/// One level, and how it stands.
#[derive(Clone, Debug)]
struct State {
    level: Level,
    /// Of the bins of its window; of measures of seconds those of its seconds.
    window: Sums,
    /// The seconds of `mean(T)`, one each for the test and for `until`.
    means: [Option<Sums>; 2],
    /// What of this second belongs to those once it is over.
    second: (i64, Pair),
    /// The last bin with a packet.
    last_packet: Option<i64>,
    /// For crossings: how the value compared in the bin before.
    was: Option<std::cmp::Ordering>,
    /// That was the same in the bin before that one.
    was_before: bool,
    /// The test holds since this bin.
    since: Option<i64>,
    /// With `until`: it holds since this bin, until that is so.
    latched: Option<i64>,
}

impl State {
    fn new(level: &Level) -> State {
        let length = if level.measure.is_per_second() {
            level.window_bins.div_euclid(BINS_PER_SECOND).max(1)
        } else {
            level.window_bins
        };
        let of_mean = |bound: &Bound| match bound {
            Bound::OfMean { seconds, .. } => Some(Sums::new(*seconds)),
            Bound::Fixed(_) => None,
        };
        let test = match &level.test {
            Test::Is(_, bound) | Test::Rises(bound) | Test::Falls(bound) => of_mean(bound),
            Test::Outside(..) => None,
        };
        let until = level.until.as_ref().and_then(|(_, bound)| of_mean(bound));
        State {
            level: level.clone(),
            window: Sums::new(length),
            means: [test, until],
            second: (i64::MIN, Pair::default()),
            last_packet: None,
            was: None,
            was_before: true,
            since: None,
            latched: None,
        }
    }

    fn is_per_second(&self) -> bool {
        self.level.measure.is_per_second()
    }

    /// Takes what its signal has in `bin`.
    fn take(&mut self, bin: i64, pair: Pair) {
        self.roll(second_of(bin));
        self.window.add(bin, pair);
        if self.level.measure == Measure::Gap && pair.num > 0 {
            self.last_packet = Some(bin);
        }
        if self.means.iter().any(Option::is_some) {
            self.second.1.num += pair.num;
            self.second.1.den += pair.den;
        }
    }

    /// Takes the value of a second that is over; nothing of a later second has come.
    fn take_second(&mut self, second: i64, value: u64) {
        let pair = Pair { num: value, den: 0 };
        self.window.add(second, pair);
        for mean in self.means.iter_mut().flatten() {
            mean.add(second, pair);
        }
    }

    /// It is `second` now: what was counted of the one before belongs to the means.
    fn roll(&mut self, second: i64) {
        let (of, pair) = self.second;
        if of < second {
            for mean in self.means.iter_mut().flatten() {
                mean.add(of, pair);
            }
            self.second = (second, Pair::default());
        }
    }

    /// Its value in `bin`.
    fn value(&self, bin: i64, begin: i64) -> Option<Amount> {
        let (num, den) = (self.window.num, self.window.den);
        if self.is_per_second() {
            let over = second_of(bin) - second_of(begin);
            return (over >= self.window.length).then(|| Amount::new(num, self.window.length as u128));
        }
        if self.level.measure == Measure::Gap {
            return self.last_packet.map(|last| Amount::new((bin - last).max(0) as u128, 1));
        }
        (bin - begin + 1 >= self.window.length).then_some(())?;
        self.of_bins(num, den, self.window.length)
    }

    /// What sums over so many bins come to.
    fn of_bins(&self, num: u128, den: u128, bins: i64) -> Option<Amount> {
        let per_second = BINS_PER_SECOND as u128;
        match self.level.measure {
            Measure::Bits => Some(Amount::new(num * 8 * per_second, bins as u128)),
            Measure::Size => (den > 0).then(|| Amount::new(num, den)),
            Measure::Share => (den > 0).then(|| Amount::new(num * 100, den)),
            _ => Some(Amount::new(num * per_second, bins as u128)),
        }
    }

    /// What a bound is in `bin`; `which` is the place of its mean.
    fn amount(&self, bound: &Bound, which: usize, bin: i64, begin: i64) -> Option<Amount> {
        let (factor, seconds) = match bound {
            Bound::Fixed(amount) => return Some(*amount),
            Bound::OfMean { factor, seconds } => (factor, *seconds),
        };
        let (mean, second) = (self.means[which].as_ref()?, second_of(bin));
        if self.is_per_second() {
            let over = (second - second_of(begin)).min(seconds);
            return (over > 0).then(|| Amount::new(mean.num, over as u128).times(*factor));
        }
        let bins = second * BINS_PER_SECOND - begin.max((second - seconds) * BINS_PER_SECOND);
        (bins > 0).then_some(())?;
        Some(self.of_bins(mean.num, mean.den, bins)?.times(*factor))
    }

    /// Evaluates `bin`; since when the level holds, if it does.
    fn evaluate(&mut self, bin: i64, begin: i64) -> Option<i64> {
        let second = second_of(bin);
        self.roll(second);
        // Of seconds only those that are over.
        let at = if self.is_per_second() { second - 1 } else { bin };
        self.window.come_to(at);
        for mean in self.means.iter_mut().flatten() {
            mean.come_to(second - 1);
        }
        let value = self.value(bin, begin);
        let compared = |bound: &Bound| Some(value?.compare(self.amount(bound, 0, bin, begin)?));
        let (holds, now) = match &self.level.test {
            Test::Is(op, bound) => (compared(bound).is_some_and(|order| op.holds(order)), None),
            Test::Rises(bound) => {
                let now = compared(bound);
                (self.was.is_some_and(|was| was.is_lt()) && now.is_some_and(|now| now.is_ge()), now)
            }
            Test::Falls(bound) => {
                let now = compared(bound);
                (self.was.is_some_and(|was| was.is_gt()) && now.is_some_and(|now| now.is_le()), now)
            }
            Test::Outside(least, most) => {
                let is_outside =
                    |value: Amount| value.compare(*least).is_lt() || value.compare(*most).is_gt();
                (value.is_some_and(is_outside), None)
            }
        };
        let ends = self.level.until.as_ref().map(|(op, bound)| {
            let order = value.zip(self.amount(bound, 1, bin, begin)).map(|(value, of)| value.compare(of));
            order.is_some_and(|order| op.holds(order))
        });
        self.was_before = self.was == now;
        self.was = now;
        let began = if self.is_per_second() { (second - 1) * BINS_PER_SECOND } else { bin };
        self.since = holds.then(|| self.since.unwrap_or(began));
        let held = self.since.filter(|since| self.covered(bin) - since >= self.level.hold_bins);
        match ends {
            None => held,
            Some(ends) => {
                self.latched = self.latched.or(held).filter(|_| !ends);
                self.latched
            }
        }
    }

    /// The bin up to which what is known in `bin` reaches, without it.
    fn covered(&self, bin: i64) -> i64 {
        if self.is_per_second() { second_of(bin) * BINS_PER_SECOND } else { bin + 1 }
    }

    /// The next bin behind `bin`, just evaluated, in which something may be different though no packet comes.
    fn next_change(&self, bin: i64, begin: i64) -> Option<i64> {
        let boundary = (second_of(bin) + 1) * BINS_PER_SECOND;
        let mut next: Option<i64> = None;
        let mut at = |candidate: i64| {
            if candidate > bin {
                next = Some(next.map_or(candidate, |next| next.min(candidate)));
            }
        };
        if self.is_per_second() {
            let settled = second_of(bin) - second_of(begin) >= self.window.length;
            if !settled || !self.window.kept.is_empty() {
                at(boundary);
            }
        } else if self.level.measure == Measure::Gap {
            if let Some(last) = self.last_packet {
                for amount in self.fixed_amounts() {
                    let whole = amount.to_f64().floor().min(1e15) as i64;
                    for candidate in whole - 1..=whole + 2 {
                        at(last + candidate);
                    }
                }
            }
        } else {
            self.window.next_leaving().into_iter().for_each(&mut at);
            at(begin + self.window.length - 1);
        }
        for mean in self.means.iter().flatten() {
            let growing = second_of(bin) - mean.length < second_of(begin);
            if !mean.kept.is_empty() || !self.second.1.is_nothing() || growing {
                at(boundary);
            }
        }
        if !self.was_before {
            at(bin + 1); // a crossing lasts one bin
        }
        if let Some(since) = self.since.filter(|_| self.level.hold_bins > 1) {
            let whole = since + self.level.hold_bins;
            at(if self.is_per_second() { ceil_second(whole) } else { whole - 1 });
        }
        next
    }

    fn fixed_amounts(&self) -> impl Iterator<Item = Amount> + use<> {
        let of = |bound: &Bound| match bound {
            Bound::Fixed(amount) => Some(*amount),
            Bound::OfMean { .. } => None,
        };
        let test = match &self.level.test {
            Test::Is(_, bound) | Test::Rises(bound) | Test::Falls(bound) => [of(bound), None],
            Test::Outside(least, most) => [Some(*least), Some(*most)],
        };
        let until = self.level.until.as_ref().and_then(|(_, bound)| of(bound));
        test.into_iter().chain([until]).flatten()
    }
}

impl Op {
    fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Op::Above => order.is_gt(),
            Op::AtLeast => order.is_ge(),
            Op::Below => order.is_lt(),
            Op::AtMost => order.is_le(),
            Op::Equal => order.is_eq(),
        }
    }
}

/// The second that a bin belongs to.
pub(crate) const fn second_of(bin: i64) -> i64 {
    bin.div_euclid(BINS_PER_SECOND)
}

/// The first begin of a second at or behind a bin.
const fn ceil_second(bin: i64) -> i64 {
    (bin + BINS_PER_SECOND - 1).div_euclid(BINS_PER_SECOND) * BINS_PER_SECOND
}

/// A condition, and how it stands.
#[derive(Clone, Debug)]
pub struct LevelState {
    condition: Arc<LevelCondition>,
    states: Vec<State>,
    /// Its first bin.
    begin: i64,
    /// The next bin that isn't evaluated.
    next: i64,
    /// It holds since this bin.
    holds: Option<i64>,
}

impl LevelState {
    /// Of a condition that is evaluated from `begin` on.
    pub fn new(condition: Arc<LevelCondition>, begin: i64) -> LevelState {
        let states = condition.levels.iter().map(State::new).collect();
        LevelState { condition, states, begin, next: begin, holds: None }
    }

    /// The condition.
    pub fn condition(&self) -> &Arc<LevelCondition> {
        &self.condition
    }

    /// Bins up to `to`, without it, have nothing.
    pub fn pass(&mut self, to: i64, crossings: &mut Vec<Crossing>) {
        while self.next < to {
            let bin = self.next;
            self.evaluate(bin, crossings);
            let changes = self.states.iter().filter_map(|state| state.next_change(bin, self.begin)).min();
            self.next = changes.map_or(to, |change| change.min(to));
        }
    }

    /// `bin` has these values, by the places of signals. Bins come in order.
    pub fn bin(&mut self, bin: i64, values: &[Pair], crossings: &mut Vec<Crossing>) {
        if bin < self.next {
            return; // from before it was evaluated
        }
        self.pass(bin, crossings);
        for state in &mut self.states {
            if !state.is_per_second() {
                state.take(bin, values[state.level.signal]);
            }
        }
        self.evaluate(bin, crossings);
        self.next = bin + 1;
    }

    /// `second` is over, and measures of seconds have these values, by the places of signals. Comes before the
    /// bins behind it; a second that has nothing needn't come.
    pub fn second(&mut self, second: i64, values: &[Pair], crossings: &mut Vec<Crossing>) {
        if second < second_of(self.begin) {
            return;
        }
        self.pass((second + 1) * BINS_PER_SECOND, crossings);
        for state in &mut self.states {
            if state.is_per_second() {
                state.take_second(second, values[state.level.signal].num);
            }
        }
    }

    fn evaluate(&mut self, bin: i64, crossings: &mut Vec<Crossing>) {
        let begin = self.begin;
        let since: Vec<Option<i64>> =
            self.states.iter_mut().map(|state| state.evaluate(bin, begin)).collect();
        let holds = self.condition.joined.since(&since);
        if let (None, Some(since_bin)) = (self.holds, holds) {
            let values = self.states.iter().map(|state| state.value(bin, begin)).collect();
            crossings.push(Crossing { since_bin, decided_bin: bin, values });
        }
        self.holds = holds;
    }
}

impl Joined {
    /// Since when it holds, where its levels hold since these bins.
    fn since(&self, levels: &[Option<i64>]) -> Option<i64> {
        match self {
            Joined::Level(at) => levels[*at],
            Joined::All(parts) => parts
                .iter()
                .map(|part| part.since(levels))
                .try_fold(i64::MIN, |latest, since| since.map(|since| latest.max(since))),
            Joined::Any(parts) => parts.iter().filter_map(|part| part.since(levels)).min(),
        }
    }
}

#[cfg(test)]
mod tests;
