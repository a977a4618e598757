//! What a trace has to come to: conditions that are drawn for it, their hits by the naive reading, and the windows
//! that these make.

use super::naive::{Bound, Condition, Course, Fraction, Level, Measure, Op, SIGNALS, Test};
use super::naive_patterns::{Key, Pattern};
use super::trace::{Kind, MS, Of, Packet, Trace};
use scope_testkit::traffic::Random;

/// Conditions of a trace at most.
const CONDITIONS_MAX: usize = 8;
/// How many are drawn for these.
const DRAWS: usize = 60;
/// Of these, how many that never fire.
const SILENT_MAX: usize = 2;
/// Hits of a trace at most: each of so many is listed in the log, however fast they come.
pub const HITS_MAX: usize = 90;

/// A condition, of whichever kind.
#[derive(Clone, Debug)]
pub enum Watched {
    Level(Condition),
    Pattern(Pattern),
}

/// A hit: its time, and when it was certain, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub time_ns: i64,
    pub certain_ns: i64,
}

/// A dump: when it fired, the window, and the packets of the trace in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dump {
    pub time_ns: i64,
    pub from_ns: i64,
    pub to_ns: i64,
    pub packets: u64,
}

/// What becomes of a trigger's hits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One for each hit that fired, in order.
    pub dumps: Vec<Dump>,
    /// Times of those that extended a window, in order, ns.
    pub extended_ns: Vec<i64>,
}

/// All that is asked of a run.
#[derive(Debug)]
pub struct Scene {
    pub trace: Trace,
    /// What triggers have, in their order.
    pub watched: Vec<Watched>,
    pub before_ns: i64,
    pub after_ns: i64,
    /// By trigger.
    pub outcomes: Vec<Outcome>,
}

impl Watched {
    pub fn text(&self) -> String {
        match self {
            Watched::Level(condition) => condition.text(),
            Watched::Pattern(pattern) => pattern.text(),
        }
    }

    fn hits(&self, course: &Course, packets: &[Packet]) -> Vec<Hit> {
        match self {
            Watched::Level(condition) => {
                let times = course.crossings(condition).into_iter().map(|crossing| crossing.times_ns());
                times.map(|(time_ns, certain_ns)| Hit { time_ns, certain_ns }).collect()
            }
            Watched::Pattern(pattern) => {
                let fires = pattern.fires(packets).into_iter();
                fires.map(|time_ns| Hit { time_ns, certain_ns: time_ns }).collect()
            }
        }
    }
}

impl Scene {
    /// The scene of a seed.
    pub fn new(seed: u64) -> Scene {
        let mut random = Random::new(seed);
        let trace = Trace::new(&mut random);
        let before_ns = random.pick(&[0, 0, 20, 300]) * MS;
        let after_ns = random.pick(&[0, 0, 5, 100, 1000, 60_000]) * MS;
        let course = Course::new(&trace.packets);
        let (mut watched, mut outcomes, mut hits, mut silent) = (Vec::new(), Vec::new(), 0, 0);
        for _ in 0..DRAWS {
            let one = condition(&mut random);
            let found = one.hits(&course, &trace.packets);
            let is_silent = found.is_empty();
            if hits + found.len() > HITS_MAX
                || watched.len() == CONDITIONS_MAX
                || (is_silent && silent == SILENT_MAX)
            {
                continue;
            }
            hits += found.len();
            silent += usize::from(is_silent);
            outcomes.push(outcome(&found, before_ns, after_ns, &trace.packets));
            watched.push(one);
        }
        Scene { trace, watched, before_ns, after_ns, outcomes }
    }

    /// Hits of all triggers.
    pub fn hits(&self) -> usize {
        self.outcomes.iter().map(|outcome| outcome.dumps.len() + outcome.extended_ns.len()).sum()
    }
}

/// Hits in the order in which they are certain: one that is certain before the window of those before it ends, and lies
/// behind its begin, extends it; every other one fires.
fn outcome(hits: &[Hit], before_ns: i64, after_ns: i64, packets: &[Packet]) -> Outcome {
    let mut outcome = Outcome::default();
    for hit in hits {
        let to_ns = hit.certain_ns + after_ns;
        match outcome
            .dumps
            .last_mut()
            .filter(|dump| hit.certain_ns <= dump.to_ns && hit.time_ns >= dump.from_ns)
        {
            Some(dump) => {
                dump.to_ns = dump.to_ns.max(to_ns);
                outcome.extended_ns.push(hit.time_ns);
            }
            None => {
                let dump = Dump { time_ns: hit.time_ns, from_ns: hit.time_ns - before_ns, to_ns, packets: 0 };
                outcome.dumps.push(dump);
            }
        }
    }
    for dump in &mut outcome.dumps {
        let is_inside = |packet: &&Packet| (dump.from_ns..=dump.to_ns).contains(&packet.time_ns);
        dump.packets = packets.iter().filter(is_inside).count() as u64;
    }
    outcome.dumps.sort_unstable();
    outcome.extended_ns.sort_unstable();
    outcome
}

fn condition(random: &mut Random) -> Watched {
    match random.below(10) {
        0..=3 => Watched::Level(Condition::Level(level(random))),
        4 | 5 => {
            let mut parts: Vec<Condition> =
                (0..2 + random.below(2)).map(|_| Condition::Level(level(random))).collect();
            if random.chance(30) {
                let inner = vec![Condition::Level(level(random)), Condition::Level(level(random))];
                parts.push(if random.chance(50) { Condition::Any(inner) } else { Condition::All(inner) });
            }
            Watched::Level(if random.chance(50) { Condition::All(parts) } else { Condition::Any(parts) })
        }
        6 | 7 => Watched::Pattern(Pattern::Count {
            of: of(random),
            key: random.pick(&Key::ALL),
            over: random.pick(&[1, 2, 4, 10, 30]),
            span_ms: random.pick(&[1, 10, 50, 200, 1000]),
        }),
        _ => Watched::Pattern(Pattern::Sequence {
            // A filter without words is no step.
            steps: (0..2 + random.below(2)).map(|_| Of::Only(random.pick(&Kind::ALL))).collect(),
            key: random.pick(&[Key::Everything, Key::Host]),
            within_ms: random.pick(&[1, 5, 40, 300, 1500]),
        }),
    }
}

fn of(random: &mut Random) -> Of {
    match random.below(8) {
        0 => Of::All,
        1 => Of::Tcp,
        _ => Of::Only(random.pick(&Kind::ALL)),
    }
}

fn level(random: &mut Random) -> Level {
    let signal = random.below(SIGNALS.len() as u64) as usize;
    let measure = SIGNALS[signal].measure;
    let is_burst = measure == Measure::Burst;
    let window = match measure {
        Measure::Gap => 1,
        Measure::Burst => random.pick(&[1, 1000, 2000]),
        _ => random.pick(&[1, 1, 1, 3, 10, 100]),
    };
    let amount = |random: &mut Random| {
        let tenths = match measure {
            Measure::Packets => random.pick(&[0, 0, 10, 100, 500, 1000, 2000, 5000]) * 10,
            Measure::Bits => random.pick(&[0, 48_000, 500_000, 1_000_000, 4_000_000]) * 10,
            Measure::Size => random.pick(&[540, 1000, 2005, 3000, 4250]),
            Measure::Share(_) => random.pick(&[0, 100, 333, 500, 1000]),
            Measure::Gap => random.pick(&[1, 2, 5, 20, 100, 700]) * 10,
            Measure::Burst => random.pick(&[1000, 2000, 4000, 6000]) * 10,
        };
        Fraction(tenths, 10)
    };
    let fixed = amount(random);
    let bound = if measure != Measure::Gap && random.chance(20) {
        Bound::OfMean(Fraction(random.pick(&[5, 10, 15, 20, 40]), 10), random.pick(&[1, 2, 5]))
    } else {
        Bound::Fixed(fixed)
    };
    let op = random.pick(&[Op::Above, Op::Above, Op::AtLeast, Op::Below, Op::AtMost, Op::Equal]);
    let test = match random.below(10) {
        0 => Test::Rises(bound),
        1 => Test::Falls(bound),
        2 => Test::Outside(fixed, Fraction(fixed.0 * 2 + 10, 10)),
        _ => Test::Is(op, bound),
    };
    let hold = match test {
        Test::Rises(_) | Test::Falls(_) => 1,
        _ if is_burst => random.pick(&[1, 1000, 1500, 2000]),
        _ => random.pick(&[1, 1, 2, 5, 40, 150, 700]),
    };
    // What ends it never holds together with it.
    let until = match (&test, random.chance(25)) {
        (Test::Is(Op::Above | Op::AtLeast, Bound::Fixed(of)), true) if of.0 > 0 => {
            Some((Op::Below, Fraction(of.0 / 2 / 10 * 10, 10)))
        }
        (Test::Is(Op::Below | Op::AtMost, Bound::Fixed(of)), true) => {
            Some((Op::Above, Fraction(of.0 * 2, 10)))
        }
        _ => None,
    };
    Level { signal, window, test, hold, until }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_extend_the_window_they_are_certain_in_and_else_fire() {
        let hit = |time_ns, certain_ns| Hit { time_ns, certain_ns };
        let packets: Vec<Packet> = (0..10).map(|at| Packet::new(at * 10, Kind::Dns, 1, 0, 1).0).collect();
        let found = outcome(&[hit(20, 25), hit(26, 30), hit(33, 40), hit(41, 60)], 5, 10, &packets);
        let dump = |time_ns, from_ns, to_ns, packets| Dump { time_ns, from_ns, to_ns, packets };
        assert_eq!(found.dumps, [dump(20, 15, 50, 4), dump(41, 36, 70, 4)]);
        assert_eq!(found.extended_ns, [26, 33]);
        // It began before the window.
        assert_eq!(outcome(&[hit(20, 25), hit(10, 30)], 5, 10, &packets).dumps.len(), 2);
    }

    #[test]
    fn scenes_ask_for_everything_and_for_no_more_hits_than_a_log_lists() {
        let (mut levels, mut counts, mut sequences, mut extended, mut fired) = (0, 0, 0, 0, 0);
        for seed in 0..60 {
            let scene = Scene::new(seed);
            assert!(scene.hits() <= HITS_MAX);
            for (watched, outcome) in scene.watched.iter().zip(&scene.outcomes) {
                fired += outcome.dumps.len();
                extended += outcome.extended_ns.len();
                let hits = outcome.dumps.len() + outcome.extended_ns.len();
                match watched {
                    Watched::Level(_) => levels += hits,
                    Watched::Pattern(Pattern::Count { .. }) => counts += hits,
                    Watched::Pattern(Pattern::Sequence { .. }) => sequences += hits,
                }
            }
        }
        assert!([levels, counts, sequences, extended, fired].iter().all(|number| *number > 50));
    }
}
