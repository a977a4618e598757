//! Conditions on signals, read by the letter: every bin of a trace is evaluated, one after the other.
//!
//! It shares nothing with `scope-trigger`, which skips what can't change. What it is the letter of: issue 17 (items 1
//! and 2) and `docs/guide/signals.md`.
//!
//! ```text
//! value(bin)     of the last W bins, this one included; none before there were so many
//! test(bin)      value compared with its bound; none compares with nothing
//! since(bin)     first bin of those, up to this one, in which the test held in each
//! holds(bin)     since is `for` bins long, or it held and `until` isn't so yet
//! crossing       the condition holds in a bin, and did not in the bin before
//! ```
//! Of `burst` a second has one value, known behind it: a bin has that of the second before its own, and what began
//! there began with that second.

use super::trace::{Kind, MS, Of, Packet};
use std::cmp::Ordering;
use std::fmt::{self, Display};

/// Bins of a second.
const SECOND: i64 = 1000;

/// A fraction of whole numbers.
#[derive(Clone, Copy, Debug)]
pub struct Fraction(pub u128, pub u128);

impl Fraction {
    fn cmp(self, other: Fraction) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }

    fn times(self, other: Fraction) -> Fraction {
        Fraction(self.0 * other.0, self.1 * other.1)
    }
}

/// With one decimal, where there is one.
impl Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 / self.1)?;
        let rest = self.0 % self.1;
        if rest == 0 { Ok(()) } else { write!(f, ".{}", rest * 10 / self.1) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Packets,
    Bits,
    Size,
    Share(Of),
    Gap,
    Burst,
}

/// A signal of the traces.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    pub name: &'static str,
    pub of: Of,
    pub measure: Measure,
    /// As `--signal` has it; `None`: every run has it.
    pub flag: Option<&'static str>,
}

/// Those that every trace has.
pub const SIGNALS: [Signal; 10] = [
    Signal { name: "pps", of: Of::All, measure: Measure::Packets, flag: None },
    Signal { name: "bps", of: Of::All, measure: Measure::Bits, flag: None },
    signal("dns", Kind::Dns, Measure::Packets, "dns=udp port 53"),
    signal("syn", Kind::Syn, Measure::Packets, "syn=tcp[tcpflags] == tcp-syn"),
    signal("knock", Kind::Knock, Measure::Packets, "knock=udp dst port 7000"),
    signal("mean", Kind::Web, Measure::Size, "mean:size=tcp dst port 80"),
    signal("part", Kind::Syn, Measure::Share(Of::Only(Kind::Dns)), "part:share=syn/dns"),
    Signal { name: "tcp", of: Of::Tcp, measure: Measure::Share(Of::All), flag: Some("tcp:share=tcp") },
    signal("quiet", Kind::Knock, Measure::Gap, "quiet:gap=udp dst port 7000"),
    signal("peak", Kind::Dns, Measure::Burst, "peak:burst=udp port 53"),
];

const fn signal(name: &'static str, kind: Kind, measure: Measure, flag: &'static str) -> Signal {
    Signal { name, of: Of::Only(kind), measure, flag: Some(flag) }
}

impl Measure {
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Packets | Measure::Burst => "/s",
            Measure::Bits => "bit/s",
            Measure::Size => "B",
            Measure::Share(_) => "%",
            Measure::Gap => "ms",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
}

impl Op {
    pub fn text(self) -> &'static str {
        match self {
            Op::Above => ">",
            Op::AtLeast => ">=",
            Op::Below => "<",
            Op::AtMost => "<=",
            Op::Equal => "==",
        }
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Op::Above => order.is_gt(),
            Op::AtLeast => order.is_ge(),
            Op::Below => order.is_lt(),
            Op::AtMost => order.is_le(),
            Op::Equal => order.is_eq(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Fixed(Fraction),
    /// A factor of the mean over so many whole seconds before this one.
    OfMean(Fraction, i64),
}

#[derive(Clone, Copy, Debug)]
pub enum Test {
    Is(Op, Bound),
    Rises(Bound),
    Falls(Bound),
    Outside(Fraction, Fraction),
}

#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// Index in [`SIGNALS`].
    pub signal: usize,
    pub window: i64,
    pub test: Test,
    pub hold: i64,
    pub until: Option<(Op, Fraction)>,
}

#[derive(Clone, Debug)]
pub enum Condition {
    Level(Level),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

/// That a condition began to hold: bins since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    pub since: i64,
    pub certain: i64,
}

impl Level {
    fn measure(&self) -> Measure {
        SIGNALS[self.signal].measure
    }

    pub fn text(&self) -> String {
        let unit = self.measure().unit();
        let bound = |bound: &Bound| match bound {
            Bound::Fixed(amount) => format!("{amount}{unit}"),
            Bound::OfMean(factor, seconds) => format!("{factor}x mean({seconds}s)"),
        };
        let window = if self.window > 1 { format!(", {}ms", self.window) } else { String::new() };
        let test = match &self.test {
            Test::Is(op, of) => format!("{} {}", op.text(), bound(of)),
            Test::Rises(of) => format!("rises-through {}", bound(of)),
            Test::Falls(of) => format!("falls-through {}", bound(of)),
            Test::Outside(least, most) => format!("outside {least}{unit}..{most}{unit}"),
        };
        let hold = if self.hold > 1 { format!(" for {}ms", self.hold) } else { String::new() };
        let until =
            self.until.map_or(String::new(), |(op, amount)| format!(" until {} {amount}{unit}", op.text()));
        format!("signal({}{window}) {test}{hold}{until}", SIGNALS[self.signal].name)
    }

    fn is_of_seconds(&self) -> bool {
        self.measure() == Measure::Burst
    }
}

impl Condition {
    pub fn text(&self) -> String {
        let joined = |parts: &[Condition], word: &str| {
            let texts: Vec<String> = parts
                .iter()
                .map(|part| match part {
                    Condition::Level(level) => level.text(),
                    _ => format!("({})", part.text()),
                })
                .collect();
            texts.join(word)
        };
        match self {
            Condition::Level(level) => level.text(),
            Condition::All(parts) => joined(parts, " and "),
            Condition::Any(parts) => joined(parts, " or "),
        }
    }
}

/// What a trace has in each bin.
pub struct Course {
    /// The first bin, and the one behind the last.
    begin: i64,
    end: i64,
    /// Packets and bytes before each bin, by [`Of::index`].
    before: Vec<Vec<(u128, u128)>>,
    /// The largest bin of each second, scaled to a second, likewise.
    bursts: Vec<Vec<u128>>,
}

impl Course {
    /// Of packets in order of time, at least one.
    pub fn new(packets: &[Packet]) -> Course {
        let begin = packets[0].bin();
        let end = packets[packets.len() - 1].bin() + 1;
        let mut course = Course { begin, end, before: Vec::new(), bursts: Vec::new() };
        for of in Of::every() {
            let mut before = vec![(0, 0)];
            let mut rest = packets;
            for bin in begin..end {
                let own = rest.iter().take_while(|packet| packet.bin() == bin).count();
                let (in_bin, behind) = rest.split_at(own);
                rest = behind;
                let mut sum = before[before.len() - 1];
                for packet in in_bin.iter().filter(|packet| of.has(packet.kind)) {
                    sum = (sum.0 + 1, sum.1 + u128::from(packet.bytes));
                }
                before.push(sum);
            }
            course.before.push(before);
            let seconds = second_of(begin)..=second_of(end - 1);
            let bursts = seconds.map(|second| {
                let bins = second * SECOND..(second + 1) * SECOND;
                bins.map(|bin| course.count(of, bin, bin + 1) * SECOND as u128).max().unwrap_or(0)
            });
            let bursts = bursts.collect();
            course.bursts.push(bursts);
        }
        course
    }

    /// Packets and bytes of the bins from `from` up to `to`, without it, as far as they are there.
    fn sums(&self, of: Of, from: i64, to: i64) -> (u128, u128) {
        let before =
            |bin: i64| self.before[of.index()][(bin.clamp(self.begin, self.end) - self.begin) as usize];
        let (from, to) = (before(from), before(to));
        (to.0 - from.0, to.1 - from.1)
    }

    fn count(&self, of: Of, from: i64, to: i64) -> u128 {
        self.sums(of, from, to).0
    }

    fn bytes(&self, of: Of, from: i64, to: i64) -> u128 {
        self.sums(of, from, to).1
    }

    /// What a signal's bins from `from` up to `to` come to.
    fn over(&self, signal: &Signal, from: i64, to: i64) -> Option<Fraction> {
        let (of, bins, scale) = (signal.of, (to - from) as u128, SECOND as u128);
        if from >= to {
            return None;
        }
        let ratio = |part: u128, whole: u128| (whole > 0).then_some(Fraction(part, whole));
        match signal.measure {
            Measure::Packets => ratio(self.count(of, from, to) * scale, bins),
            Measure::Bits => ratio(self.bytes(of, from, to) * 8 * scale, bins),
            Measure::Size => ratio(self.bytes(of, from, to), self.count(of, from, to)),
            Measure::Share(whole) => ratio(self.count(of, from, to) * 100, self.count(whole, from, to)),
            Measure::Gap | Measure::Burst => None,
        }
    }

    /// The mean of the bursts of the seconds from `from` up to `to`.
    fn bursts(&self, of: Of, from: i64, to: i64) -> Option<Fraction> {
        let first = second_of(self.begin);
        let sum = (from..to).map(|second| self.bursts[of.index()][(second - first) as usize]).sum();
        (from < to).then_some(Fraction(sum, (to - from).max(1) as u128))
    }

    fn value(&self, level: &Level, bin: i64) -> Option<Fraction> {
        let signal = &SIGNALS[level.signal];
        match signal.measure {
            Measure::Gap => {
                let last = (self.begin..=bin).rev().find(|at| self.count(signal.of, *at, at + 1) > 0)?;
                Some(Fraction((bin - last) as u128, 1))
            }
            Measure::Burst => {
                let (second, seconds) = (second_of(bin), (level.window / SECOND).max(1));
                (second - seconds >= second_of(self.begin)).then_some(())?;
                self.bursts(signal.of, second - seconds, second)
            }
            _ => {
                let from = bin + 1 - level.window;
                (from >= self.begin).then_some(())?;
                self.over(signal, from, bin + 1)
            }
        }
    }

    fn amount(&self, level: &Level, bound: &Bound, bin: i64) -> Option<Fraction> {
        let (factor, seconds) = match bound {
            Bound::Fixed(amount) => return Some(*amount),
            Bound::OfMean(factor, seconds) => (*factor, *seconds),
        };
        let (signal, second) = (&SIGNALS[level.signal], second_of(bin));
        let mean = if level.is_of_seconds() {
            self.bursts(signal.of, (second - seconds).max(second_of(self.begin)), second)
        } else {
            self.over(signal, ((second - seconds) * SECOND).max(self.begin), second * SECOND)
        };
        Some(mean?.times(factor))
    }

    /// How the value compares with a bound.
    fn compared(&self, level: &Level, bound: &Bound, bin: i64) -> Option<Ordering> {
        Some(self.value(level, bin)?.cmp(self.amount(level, bound, bin)?))
    }

    fn holds(&self, level: &Level, bin: i64) -> bool {
        let was = |bound: &Bound| (bin > self.begin).then(|| self.compared(level, bound, bin - 1)).flatten();
        let is = |bound: &Bound| self.compared(level, bound, bin);
        match &level.test {
            Test::Is(op, bound) => is(bound).is_some_and(|order| op.holds(order)),
            Test::Rises(bound) => {
                was(bound).is_some_and(Ordering::is_lt) && is(bound).is_some_and(Ordering::is_ge)
            }
            Test::Falls(bound) => {
                was(bound).is_some_and(Ordering::is_gt) && is(bound).is_some_and(Ordering::is_le)
            }
            Test::Outside(least, most) => self
                .value(level, bin)
                .is_some_and(|value| value.cmp(*least).is_lt() || value.cmp(*most).is_gt()),
        }
    }

    /// For each bin since when a level holds there.
    fn level(&self, level: &Level) -> Vec<Option<i64>> {
        let (mut since, mut latched) = (None, None);
        let of_bin = |bin: i64| {
            let second_begin = second_of(bin) * SECOND;
            let (from, to) =
                if level.is_of_seconds() { (second_begin - SECOND, second_begin) } else { (bin, bin + 1) };
            since = self.holds(level, bin).then(|| since.unwrap_or(from));
            let long = since.filter(|since| to - since >= level.hold);
            let Some((op, amount)) = level.until else { return long };
            let ends = self.value(level, bin).is_some_and(|value| op.holds(value.cmp(amount)));
            latched = latched.or(long).filter(|_| !ends);
            latched
        };
        (self.begin..self.end).map(of_bin).collect()
    }

    fn condition(&self, condition: &Condition) -> Vec<Option<i64>> {
        let parts = |parts: &[Condition]| -> Vec<Vec<Option<i64>>> {
            parts.iter().map(|part| self.condition(part)).collect()
        };
        let joined = |parts: Vec<Vec<Option<i64>>>, join: &dyn Fn(&[Option<i64>]) -> Option<i64>| {
            let bins = 0..(self.end - self.begin) as usize;
            bins.map(|at| join(&parts.iter().map(|part| part[at]).collect::<Vec<_>>())).collect()
        };
        match condition {
            Condition::Level(level) => self.level(level),
            Condition::All(of) => joined(parts(of), &|since| {
                since.iter().copied().collect::<Option<Vec<i64>>>()?.into_iter().max()
            }),
            Condition::Any(of) => joined(parts(of), &|since| since.iter().flatten().copied().min()),
        }
    }

    /// When a condition begins to hold.
    pub fn crossings(&self, condition: &Condition) -> Vec<Crossing> {
        let mut held = false;
        let mut crossings = Vec::new();
        for (bin, since) in (self.begin..).zip(self.condition(condition)) {
            if let (false, Some(since)) = (held, since) {
                crossings.push(Crossing { since, certain: bin });
            }
            held = since.is_some();
        }
        crossings
    }
}

impl Crossing {
    /// Its time, and the last moment of the bin in which it was certain, ns.
    pub fn times_ns(self) -> (i64, i64) {
        (self.since * MS, (self.certain + 1) * MS - 1)
    }
}

fn second_of(bin: i64) -> i64 {
    bin.div_euclid(SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many packets of a kind in each bin of `counts`, from bin `begin` on.
    fn packets(begin: i64, of: &[(Kind, &[u64])]) -> Vec<Packet> {
        let mut packets = Vec::new();
        for (kind, counts) in of {
            for (bin, count) in (begin..).zip(*counts) {
                packets.extend((0..*count).map(|_| Packet::new(bin * MS, *kind, 1, 0, 10).0));
            }
        }
        packets.sort_by_key(|packet| packet.time_ns);
        packets
    }

    fn named(name: &str) -> usize {
        SIGNALS.iter().position(|signal| signal.name == name).unwrap()
    }

    fn level(name: &str, test: Test) -> Level {
        Level { signal: named(name), window: 1, test, hold: 1, until: None }
    }

    fn above(amount: u128) -> Test {
        Test::Is(Op::Above, Bound::Fixed(Fraction(amount, 1)))
    }

    fn check(packets: &[Packet], condition: Condition, text: &str, expected: &[(i64, i64)]) {
        assert_eq!(condition.text(), text);
        let found: Vec<(i64, i64)> = Course::new(packets)
            .crossings(&condition)
            .iter()
            .map(|crossing| (crossing.since, crossing.certain))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn levels_fire_when_they_begin_to_hold_and_again_only_after_they_did_not() {
        let packets = packets(100, &[(Kind::Dns, &[1, 3, 3, 0, 2, 2, 2, 0, 0, 0, 1])]);
        let dns = |test| level("dns", test);
        check(
            &packets,
            Condition::Level(dns(above(1000))),
            "signal(dns) > 1000/s",
            &[(101, 101), (104, 104)],
        );
        let long = Level { hold: 3, ..dns(above(1000)) };
        check(&packets, Condition::Level(long), "signal(dns) > 1000/s for 3ms", &[(104, 106)]);
        let silent = Level { hold: 2, ..dns(Test::Is(Op::Equal, Bound::Fixed(Fraction(0, 1)))) };
        check(&packets, Condition::Level(silent), "signal(dns) == 0/s for 2ms", &[(107, 108)]);
        let mean = Level { window: 2, ..dns(above(2500)) };
        check(&packets, Condition::Level(mean), "signal(dns, 2ms) > 2500/s", &[(102, 102)]);
        let early = Level { window: 3, ..dns(Test::Is(Op::AtLeast, Bound::Fixed(Fraction(0, 1)))) };
        check(&packets, Condition::Level(early), "signal(dns, 3ms) >= 0/s", &[(102, 102)]);
        let latched = Level { until: Some((Op::Below, Fraction(1000, 1))), ..dns(above(2000)) };
        check(&packets, Condition::Level(latched), "signal(dns) > 2000/s until < 1000/s", &[(101, 101)]);
        let rises = dns(Test::Rises(Bound::Fixed(Fraction(2000, 1))));
        check(
            &packets,
            Condition::Level(rises),
            "signal(dns) rises-through 2000/s",
            &[(101, 101), (104, 104)],
        );
        let falls = dns(Test::Falls(Bound::Fixed(Fraction(0, 1))));
        check(&packets, Condition::Level(falls), "signal(dns) falls-through 0/s", &[(103, 103), (107, 107)]);
        let outside = dns(Test::Outside(Fraction(1000, 1), Fraction(2000, 1)));
        check(
            &packets,
            Condition::Level(outside),
            "signal(dns) outside 1000/s..2000/s",
            &[(101, 101), (107, 107)],
        );
    }

    #[test]
    fn joined_levels_hold_together_and_a_hit_is_when_the_last_of_them_began() {
        let packets =
            packets(100, &[(Kind::Dns, &[1, 1, 1, 1, 1, 0, 1]), (Kind::Syn, &[0, 0, 1, 1, 0, 0, 1])]);
        let part = |name, hold| Condition::Level(Level { hold, ..level(name, above(0)) });
        check(
            &packets,
            Condition::All(vec![part("dns", 2), part("syn", 1)]),
            "signal(dns) > 0/s for 2ms and signal(syn) > 0/s",
            &[(102, 102)],
        );
        check(
            &packets,
            Condition::Any(vec![part("dns", 2), part("syn", 1)]),
            "signal(dns) > 0/s for 2ms or signal(syn) > 0/s",
            &[(100, 101), (106, 106)],
        );
    }

    #[test]
    fn measures_have_their_own_values_and_what_is_none_compares_with_nothing() {
        let packets = packets(
            1998,
            &[
                (Kind::Knock, &[0, 1, 0, 0, 0, 1]),
                (Kind::Dns, &[2, 1, 1, 1, 1, 3]),
                (Kind::Syn, &[1, 0, 0, 1]),
            ],
        );
        let gap = level("quiet", Test::Is(Op::AtLeast, Bound::Fixed(Fraction(2, 1))));
        check(&packets, Condition::Level(gap), "signal(quiet) >= 2ms", &[(2001, 2001)]);
        let share = level("part", above(60));
        check(&packets, Condition::Level(share), "signal(part) > 60%", &[(2001, 2001)]);
        let none = level("mean", Test::Is(Op::AtLeast, Bound::Fixed(Fraction(0, 1))));
        check(&packets, Condition::Level(none), "signal(mean) >= 0B", &[]);
        // The second before 2000 has 2 in its largest bin.
        let burst = level("peak", Test::Is(Op::AtLeast, Bound::Fixed(Fraction(2000, 1))));
        check(&packets, Condition::Level(burst), "signal(peak) >= 2000/s", &[(1000, 2000)]);
        // Of it there are two bins, with 1.5 packets on average.
        let of_mean = level("dns", Test::Is(Op::AtLeast, Bound::OfMean(Fraction(20, 10), 5)));
        check(&packets, Condition::Level(of_mean), "signal(dns) >= 2x mean(5s)", &[(2003, 2003)]);
        assert_eq!(Fraction(333, 10).to_string(), "33.3");
    }
}
