//! Conditions held against a reading that evaluates every bin by the letter, without any memory.

use super::*;
use crate::level::LevelCondition;
use crate::signal::{SignalSet, Written};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use scope_filter::VlanRule;
use scope_packet::LinkType;
use std::collections::BTreeMap;

/// Places: pps 0, bps 1, drops 2, a 3, mean 4, part 5, who 6, quiet 7, top 8.
fn signals() -> SignalSet {
    let texts = ["a=udp", "mean:size=udp", "part:share=udp", "who:hosts=", "quiet:gap=udp", "top:burst=udp"];
    SignalSet::read(&texts.map(Written::take_apart), VlanRule::Transparent, &[LinkType::ETHERNET]).unwrap()
}

fn condition(text: &str) -> Arc<LevelCondition> {
    Arc::new(LevelCondition::parse(text, &signals()).unwrap_or_else(|fault| panic!("{text}: {fault}")))
}

/// What comes in a bin: packets of `a`, and what the other signals make of that.
fn pairs(packets: u64) -> Vec<Pair> {
    let pair = |num, den| Pair { num, den };
    vec![
        pair(packets + 1, 0),
        pair((packets + 1) * 100, 0),
        pair(packets / 7, 0),
        pair(packets, 0),
        pair(packets * (60 + packets), packets),
        pair(packets, packets + 1),
        pair(0, 0),
        pair(packets, 0),
        pair(0, 0),
    ]
}

/// Values of measures of seconds: of the packets of their bins.
fn of_second(bins: &BTreeMap<i64, u64>, second: i64) -> Vec<Pair> {
    let of = second * BINS_PER_SECOND..(second + 1) * BINS_PER_SECOND;
    let (sum, most) = bins.range(of).fold((0, 0), |(sum, most), (_, n)| (sum + n, most.max(*n)));
    let mut pairs = vec![Pair::default(); 9];
    (pairs[6].num, pairs[8].num) = (sum % 50, most * 1000);
    pairs
}

/// As a run feeds it.
fn fed(condition: &Arc<LevelCondition>, bins: &BTreeMap<i64, u64>, begin: i64, end: i64) -> Vec<(i64, i64)> {
    let mut state = LevelState::new(condition.clone(), begin);
    let mut crossings = Vec::new();
    let mut second = second_of(begin);
    let seconds_up_to = |to: i64, second: &mut i64, state: &mut LevelState, crossings: &mut Vec<Crossing>| {
        while *second < to {
            let values = of_second(bins, *second);
            if values.iter().any(|pair| pair.num > 0) {
                state.second(*second, &values, crossings);
            }
            *second += 1;
        }
    };
    for (bin, packets) in bins {
        seconds_up_to(second_of(*bin), &mut second, &mut state, &mut crossings);
        state.bin(*bin, &pairs(*packets), &mut crossings);
    }
    seconds_up_to(second_of(end), &mut second, &mut state, &mut crossings);
    state.pass(end, &mut crossings);
    crossings.iter().map(|crossing| (crossing.since_bin, crossing.decided_bin)).collect()
}

/// The same by the letter.
struct Naive<'a> {
    bins: &'a BTreeMap<i64, u64>,
    begin: i64,
}

impl Naive<'_> {
    fn pair(&self, signal: usize, bin: i64) -> (f64, f64) {
        let pair = self.bins.get(&bin).map_or(Pair::default(), |packets| pairs(*packets)[signal]);
        (pair.num as f64, pair.den as f64)
    }

    fn of_bins(&self, level: &Level, bins: std::ops::Range<i64>) -> Option<f64> {
        let length = (bins.end - bins.start) as f64;
        let (num, den) = bins
            .map(|bin| self.pair(level.signal, bin))
            .fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        match level.measure {
            Measure::Bits => Some(num * 8000.0 / length),
            Measure::Size => (den > 0.0).then_some(num / den),
            Measure::Share => (den > 0.0).then_some(num * 100.0 / den),
            _ => Some(num * 1000.0 / length),
        }
    }

    fn value(&self, level: &Level, bin: i64) -> Option<f64> {
        if bin < self.begin {
            return None;
        }
        let second = second_of(bin);
        if level.measure.is_per_second() {
            let length = (level.window_bins / 1000).max(1);
            let seconds = second - length..second;
            (seconds.start >= second_of(self.begin)).then_some(())?;
            let sum: f64 = seconds.map(|at| of_second(self.bins, at)[level.signal].num as f64).sum();
            return Some(sum / length as f64);
        }
        if level.measure == Measure::Gap {
            let last = (self.begin..=bin).rev().find(|at| self.pair(level.signal, *at).0 > 0.0);
            return last.map(|last| (bin - last) as f64);
        }
        let from = bin + 1 - level.window_bins;
        (from >= self.begin).then_some(())?;
        self.of_bins(level, from..bin + 1)
    }

    fn bound(&self, level: &Level, bound: &Bound, bin: i64) -> Option<f64> {
        let (factor, seconds) = match bound {
            Bound::Fixed(amount) => return Some(amount.to_f64()),
            Bound::OfMean { factor, seconds } => (factor.to_f64(), *seconds),
        };
        let second = second_of(bin);
        if level.measure.is_per_second() {
            let from = (second - seconds).max(second_of(self.begin));
            let sum: f64 = (from..second).map(|at| of_second(self.bins, at)[level.signal].num as f64).sum();
            return (from < second).then(|| factor * sum / (second - from) as f64);
        }
        let from = ((second - seconds) * 1000).max(self.begin);
        (from < second * 1000).then_some(())?;
        Some(self.of_bins(level, from..second * 1000)? * factor)
    }

    /// What is compared differs by more than a machine's fraction may be wrong, or is the same.
    fn order(one: f64, other: f64) -> std::cmp::Ordering {
        if (one - other).abs() <= 1e-9 * one.abs().max(other.abs()) {
            std::cmp::Ordering::Equal
        } else {
            one.total_cmp(&other)
        }
    }

    fn test(&self, level: &Level, bin: i64) -> bool {
        let compared =
            |bound: &Bound, bin| Some(Naive::order(self.value(level, bin)?, self.bound(level, bound, bin)?));
        match &level.test {
            Test::Is(op, bound) => compared(bound, bin).is_some_and(|order| op.holds(order)),
            Test::Rises(bound) => {
                compared(bound, bin - 1).is_some_and(|order| order.is_lt())
                    && compared(bound, bin).is_some_and(|order| order.is_ge())
            }
            Test::Falls(bound) => {
                compared(bound, bin - 1).is_some_and(|order| order.is_gt())
                    && compared(bound, bin).is_some_and(|order| order.is_le())
            }
            Test::Outside(least, most) => self.value(level, bin).is_some_and(|value| {
                Naive::order(value, least.to_f64()).is_lt() || Naive::order(value, most.to_f64()).is_gt()
            }),
        }
    }

    /// Since when a level holds, in every bin from the begin to the end.
    fn level(&self, level: &Level, end: i64) -> Vec<Option<i64>> {
        let tests: Vec<bool> = (self.begin..end).map(|bin| self.test(level, bin)).collect();
        let per_second = level.measure.is_per_second();
        let held = |at: usize| {
            let since = (0..=at).rev().take_while(|at| tests[*at]).last()?;
            let (bin, mut since) = (self.begin + at as i64, self.begin + since as i64);
            let mut covered = bin + 1;
            if per_second {
                // Said of the second before.
                since = (second_of(since) - 1) * 1000;
                covered = second_of(bin) * 1000;
            }
            (covered - since >= level.hold_bins).then_some(since)
        };
        let mut latched = None;
        (0..tests.len())
            .map(|at| match &level.until {
                None => held(at),
                Some((op, bound)) => {
                    let bin = self.begin + at as i64;
                    let order = self.value(level, bin).zip(self.bound(level, bound, bin));
                    let ends = order.is_some_and(|(value, of)| op.holds(Naive::order(value, of)));
                    latched = if ends { None } else { latched.or_else(|| held(at)) };
                    latched
                }
            })
            .collect()
    }

    fn crossings(&self, condition: &LevelCondition, end: i64) -> Vec<(i64, i64)> {
        let levels: Vec<Vec<Option<i64>>> =
            condition.levels.iter().map(|level| self.level(level, end)).collect();
        let mut crossings = Vec::new();
        let mut before = None;
        for at in 0..(end - self.begin) as usize {
            let each: Vec<Option<i64>> = levels.iter().map(|level| level[at]).collect();
            let holds = condition.joined.since(&each);
            if let (None, Some(since)) = (before, holds) {
                crossings.push((since, self.begin + at as i64));
            }
            before = holds;
        }
        crossings
    }
}

fn check(text: &str, bins: &[(i64, u64)], end: i64, expected: &[(i64, i64)]) {
    let bins: BTreeMap<i64, u64> = bins.iter().copied().collect();
    let begin = *bins.keys().next().unwrap_or(&0);
    let condition = condition(text);
    assert_eq!(fed(&condition, &bins, begin, end), expected, "{text}");
    if end - begin < 20_000 {
        assert_eq!(
            Naive { bins: &bins, begin }.crossings(&condition, end),
            expected,
            "{text}, by the letter"
        );
    }
}

#[test]
fn a_level_fires_when_it_begins_to_hold_with_the_time_of_the_crossing() {
    let bins = [(0, 1), (1, 6), (2, 7), (3, 8), (4, 9), (5, 2), (6, 9)];
    check("signal(a) > 5000/s", &bins, 10, &[(1, 1), (6, 6)]);
    check("signal(a) > 5000/s for 3ms", &bins, 10, &[(1, 3)]);
    check("signal(a) > 5000/s until < 2000/s", &bins, 10, &[(1, 1)]);
    check("signal(a) > 5000/s until <= 2000/s", &bins, 10, &[(1, 1), (6, 6)]);
    check("signal(a) rises-through 8000/s", &bins, 10, &[(3, 3), (6, 6)]);
    check("signal(a) falls-through 1000/s", &bins, 10, &[(7, 7)]);
    check("signal(a) outside 2000/s..8000/s", &bins, 10, &[(0, 0), (4, 4), (6, 6)]);
    check("signal(a, 2ms) >= 7500/s", &bins, 10, &[(3, 3)]);
    check("signal(a) == 0 for 3ms", &bins, 10, &[(7, 9)]);
    check("signal(a) == 0 for 3ms", &bins, 9, &[]);
    check("signal(quiet) >= 2ms", &bins, 10, &[(8, 8)]);
    check("signal(mean) > 68B", &bins, 10, &[(4, 4), (6, 6)]);
    check("signal(a) > 5000/s and signal(a) > 7000/s", &bins, 10, &[(3, 3), (6, 6)]);
    check("signal(a) > 8000/s or signal(a) > 5000/s for 2ms", &bins, 10, &[(1, 2), (6, 6)]);
}

#[test]
fn measures_of_seconds_fire_with_the_begin_of_their_second() {
    let bins: Vec<(i64, u64)> = vec![(500, 5), (1200, 30), (1900, 10), (2100, 40), (3500, 1)];
    check("signal(who) >= 40/s", &bins, 9000, &[(1000, 2000)]);
    check("signal(who) >= 40/s for 2s", &bins, 9000, &[(1000, 3000)]);
    check("signal(who) >= 40/s for 2001ms", &bins, 9000, &[]);
    check("signal(top) > 30000/s", &bins, 9000, &[(2000, 3000)]);
    check("signal(who, 2s) > 30/s", &bins, 9000, &[(2000, 3000)]);
}

#[test]
fn a_mean_of_seconds_is_of_what_there_is_of_them() {
    let mut bins: Vec<(i64, u64)> = (0..3000).map(|bin| (bin, 2)).collect();
    bins.extend([(3100, 9), (3101, 8), (4100, 9)]);
    check("signal(a) > 4x mean(10s)", &bins, 6000, &[(3100, 3100), (4100, 4100)]);
    check("signal(a) > 4.5x mean(10s)", &bins, 6000, &[(4100, 4100)]);
}

#[test]
fn a_year_without_a_packet_is_passed_at_once_and_nothing_of_it_is_missed() {
    let year = 366 * 86_400 * 1000;
    let bins = [(0, 9), (5, 9), (year, 9), (year + 1, 9)];
    let texts = [
        "signal(a) == 0 for 1d",
        "signal(a, 1min) > 1000/s or signal(a, 1min) == 0 for 1h",
        "signal(a) > 2x mean(1h)",
        "signal(a) rises-through 9000/s and signal(pps) > 0",
        "signal(quiet) rises-through 1h or signal(a) falls-through 1x mean(1h)",
        "signal(who, 1min) < 1/s and signal(quiet) > 10min",
    ];
    for text in texts {
        let begun = std::time::Instant::now();
        let bins: BTreeMap<i64, u64> = bins.into_iter().collect();
        let crossings = fed_without_empty_seconds(&condition(text), &bins, year + 10);
        assert!(!crossings.is_empty(), "{text}");
        assert!(begun.elapsed().as_secs() < 60, "{text}");
    }
    check("signal(a) == 0 for 1d", &[(0, 9), (5, 9)], 90_000_000, &[(6, 86_400_005)]);
}

/// As [`fed`], where nothing is over a year long.
fn fed_without_empty_seconds(
    condition: &Arc<LevelCondition>,
    bins: &BTreeMap<i64, u64>,
    end: i64,
) -> Vec<Crossing> {
    let (mut state, mut crossings) = (LevelState::new(condition.clone(), 0), Vec::new());
    for (bin, packets) in bins {
        state.bin(*bin, &pairs(*packets), &mut crossings);
    }
    state.pass(end, &mut crossings);
    crossings
}

fn amount() -> impl Strategy<Value = String> {
    (0..12u64, prop::bool::ANY).prop_map(|(n, half)| format!("{}/s", if half { n * 500 } else { n * 1000 }))
}

fn bound() -> impl Strategy<Value = String> {
    prop_oneof![3 => amount(), 1 => (1..5u32, 1..4u32).prop_map(|(x, s)| format!("{x}x mean({s}s)"))]
}

fn level() -> impl Strategy<Value = String> {
    let op = || prop::sample::select(vec![">", ">=", "<", "<=", "=="]);
    let signal = prop::sample::select(vec!["a", "pps", "drops"]);
    let window = prop::option::of(prop::sample::select(vec![2, 3, 10, 100]));
    let test = prop_oneof![
        4 => (op(), bound()).prop_map(|(op, bound)| format!("{op} {bound}")),
        1 => bound().prop_map(|bound| format!("rises-through {bound}")),
        1 => bound().prop_map(|bound| format!("falls-through {bound}")),
        1 => (0..4000u32, 1..5000u32).prop_map(|(a, more)| format!("outside {a}/s..{}/s", a + more)),
    ];
    let hold = prop::option::of(prop::sample::select(vec![2, 3, 5, 20, 1000]));
    let until = prop::option::of((op(), bound()));
    let of_bins = (signal, window, test, hold, until).prop_map(|(signal, window, test, hold, until)| {
        let window = window.map_or(String::new(), |bins| format!(", {bins}ms"));
        let is_edge = test.contains("through");
        let hold = hold.filter(|_| !is_edge).map_or(String::new(), |bins| format!(" for {bins}ms"));
        let until = until.map_or(String::new(), |(op, bound)| format!(" until {op} {bound}"));
        format!("signal({signal}{window}) {test}{hold}{until}")
    });
    let of_seconds = (prop::sample::select(vec!["who", "who, 2s", "top"]), op(), 0..60u32, 0..3u32).prop_map(
        |(signal, op, amount, hold)| {
            let hold = if hold > 0 { format!(" for {}ms", hold * 700) } else { String::new() };
            let amount = if signal == "top" { amount * 200 } else { amount };
            format!("signal({signal}) {op} {amount}/s{hold}")
        },
    );
    let of_gap =
        (op(), 0..30u32, 0..5u32).prop_map(|(op, ms, tenth)| format!("signal(quiet) {op} {ms}.{tenth}ms"));
    let of_size = (op(), 60..75u32).prop_map(|(op, bytes)| format!("signal(mean, 3ms) {op} {bytes}B"));
    let of_part = (op(), 0..100u32).prop_map(|(op, share)| format!("signal(part) {op} {share}%"));
    prop_oneof![5 => of_bins, 1 => of_seconds, 1 => of_gap, 1 => of_size, 1 => of_part]
}

fn text() -> impl Strategy<Value = String> {
    let joined =
        |word: &'static str| vec(level(), 1..3).prop_map(move |levels| format!("({})", levels.join(word)));
    let any = prop_oneof![2 => level(), 1 => joined(" and "), 1 => joined(" or ")];
    vec(any, 1..3)
        .prop_map(|parts| parts.join(" and "))
        .prop_filter("begins with a level", |text| crate::level::is_level(text))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_condition_fires_exactly_when_a_reading_by_the_letter_says(
        text in text(),
        dense in btree_map(0..60i64, 0..12u64, 0..60),
        sparse in btree_map(0..5000i64, 0..12u64, 0..10),
        at in 0..3000i64,
    ) {
        let bins: BTreeMap<i64, u64> = dense.into_iter().chain(sparse).map(|(bin, n)| (bin + at, n)).collect();
        prop_assume!(!bins.is_empty());
        let begin = *bins.keys().next().unwrap();
        let end = bins.keys().last().unwrap() + 1500;
        let condition = condition(&text);
        let naive = Naive { bins: &bins, begin }.crossings(&condition, end);
        prop_assert_eq!(fed(&condition, &bins, begin, end), naive, "{}", text);
    }
}
