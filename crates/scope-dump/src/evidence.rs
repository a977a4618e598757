//! The evidence beside a dump's packets, for those who rely on it later: the host, its kernel, the state of
//! its clock, where the packets' times come from, and what the interfaces counted at the begin and the end
//! of the window.

use crate::annex::Annexes;
use scope_machine::ClockState;
use scope_packet::TimestampSource;
use scope_spelling::time::iso;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// Samples of the interfaces' counters that are kept; beyond, every second one of the older half is dropped.
const SAMPLES_MAX: usize = 512;
/// Interfaces in a sample at most; others have no counters in dumps.
pub const SAMPLED_MAX: usize = 64;
/// Rules that a dump's header shows; others are counted.
const RULES_MAX: usize = 16;
/// Interfaces whose counters a dump's header shows; others are counted.
const SHOWN_MAX: usize = 8;

/// What a run has beside its packets: the host, how things stood, and what capture files say of their
/// packets.
#[derive(Debug, Default)]
pub struct Evidence {
    /// What capture files say beside their packets.
    pub annexes: Annexes,
    host: Mutex<Host>,
    rules: Mutex<Teller>,
    samples: Mutex<VecDeque<(i64, Vec<InterfaceSample>)>>,
}

/// Says what rules in front of the ring have taken, a line for each.
pub type Rules = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Clone, Default)]
struct Teller(Option<Rules>);

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Teller").field(&self.0.is_some()).finish()
    }
}

#[derive(Clone, Debug, Default)]
struct Host {
    name: String,
    kernel: String,
    clock: Option<fn() -> ClockState>,
}

/// What one interface had counted at one time, since the run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSample {
    /// Its name.
    pub interface: Arc<str>,
    /// Counters by name: of the capture, then of the kernel.
    pub counts: Vec<(&'static str, u64)>,
}

/// The same, with the time at which they were read, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// When.
    pub at_ns: i64,
    /// What.
    pub counts: Vec<(&'static str, u64)>,
}

/// An interface's counters around a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedSpan {
    /// Its name.
    pub interface: Arc<str>,
    /// The last reading at or before the window's begin, else the first one inside.
    pub begin: Counted,
    /// The first reading at or behind its end, else the last one that there was when the dump was finished.
    pub end: Counted,
}

/// What a dump says of how things stood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Name of the host that made the dump.
    pub host: String,
    /// Its kernel.
    pub kernel: String,
    /// The state of its clock when the dump was finished.
    pub clock: ClockState,
    /// What rules in front of the ring had taken by then, a line for each.
    pub rules: Vec<String>,
    /// Where the times of the dump's packets come from.
    pub times: Vec<TimestampSource>,
    /// Counters of live interfaces, where they are had.
    pub counters: Vec<CountedSpan>,
}

impl Evidence {
    /// Who made the dumps, and who knows the state of the clock.
    pub fn set_host(&self, name: &str, kernel: &str, clock: fn() -> ClockState) {
        let host = Host { name: name.to_string(), kernel: kernel.to_string(), clock: Some(clock) };
        *self.host.lock().expect("no panic while held") = host;
    }

    /// Who says what rules in front of the ring have taken.
    pub fn set_rules(&self, rules: Rules) {
        *self.rules.lock().expect("no panic while held") = Teller(Some(rules));
    }

    /// Notes what the interfaces have counted by `at_ns`, the system's time.
    pub fn sample(&self, at_ns: i64, mut interfaces: Vec<InterfaceSample>) {
        interfaces.truncate(SAMPLED_MAX);
        let mut samples = self.samples.lock().expect("no panic while held");
        if interfaces.is_empty() {
            return;
        }
        if samples.len() >= SAMPLES_MAX {
            let mut at = 0;
            samples.retain(|_| {
                at += 1;
                at > SAMPLES_MAX / 2 || at % 2 == 1
            });
        }
        samples.push_back((at_ns, interfaces));
    }

    /// How things stand now, without the packets' part.
    pub(crate) fn now(&self) -> Circumstances {
        let host = self.host.lock().expect("no panic while held").clone();
        let clock = host.clock.map_or(ClockState::Unknown, |clock| clock());
        let Teller(rules) = self.rules.lock().expect("no panic while held").clone();
        let rules = rules.map(|rules| rules()).unwrap_or_default();
        Circumstances { host: host.name, kernel: host.kernel, clock, rules, ..Circumstances::default() }
    }

    /// The same, with what the interfaces counted around a window.
    pub(crate) fn around(&self, from_ns: i64, to_ns: i64, times: Vec<TimestampSource>) -> Circumstances {
        let samples = self.samples.lock().expect("no panic while held");
        let begin = samples.iter().rev().find(|sample| sample.0 <= from_ns).or(samples.front());
        let end = samples.iter().find(|sample| sample.0 >= to_ns).or(samples.back());
        let counted = |sample: Option<&(i64, Vec<InterfaceSample>)>, interface: &Arc<str>| {
            let (at_ns, all) = sample?;
            let own = all.iter().find(|one| one.interface == *interface)?;
            Some(Counted { at_ns: *at_ns, counts: own.counts.clone() })
        };
        let all = end.map(|(_, all)| all.as_slice()).unwrap_or_default().iter();
        let span = |one: &InterfaceSample| CountedSpan {
            interface: one.interface.clone(),
            begin: counted(begin, &one.interface).unwrap_or_default(),
            end: counted(end, &one.interface).unwrap_or_default(),
        };
        let counters = all.map(span).collect();
        drop(samples);
        Circumstances { times, counters, ..self.now() }
    }
}

impl Circumstances {
    /// Lines for a header: host, kernel, clock; where anything of it is known.
    pub(crate) fn host_lines(&self) -> String {
        if self.host.is_empty() {
            return String::new();
        }
        format!("host: {}\nkernel: {}\nclock: {}\n", self.host, self.kernel, self.clock.words())
    }

    /// Lines for a header: what rules in front of the ring have taken.
    pub(crate) fn rule_lines(&self) -> String {
        let mut text: String =
            self.rules.iter().take(RULES_MAX).fold(String::new(), |text, line| text + line + "\n");
        if self.rules.len() > RULES_MAX {
            let _ = writeln!(text, "and {} rules more", self.rules.len() - RULES_MAX);
        }
        text
    }

    /// Lines for a header: where times come from, what was counted.
    pub(crate) fn packet_lines(&self) -> String {
        let mut text = String::new();
        if !self.times.is_empty() {
            let words: Vec<&str> = self.times.iter().map(|source| source_words(*source)).collect();
            let _ = writeln!(text, "times: {}", words.join(", "));
        }
        for CountedSpan { interface, begin, end } in self.counters.iter().take(SHOWN_MAX) {
            for Counted { at_ns, counts } in [begin, end] {
                if !counts.is_empty() {
                    let counts: Vec<String> =
                        counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
                    let _ =
                        writeln!(text, "counters of {interface} at {}: {}", iso(*at_ns), counts.join(", "));
                }
            }
        }
        if self.counters.len() > SHOWN_MAX {
            let _ = writeln!(
                text,
                "counters of {} more interfaces are in the log",
                self.counters.len() - SHOWN_MAX
            );
        }
        text
    }
}

fn source_words(source: TimestampSource) -> &'static str {
    match source {
        TimestampSource::Hardware => "by the network card (hardware)",
        TimestampSource::Kernel => "by the kernel of this host (kernel)",
        TimestampSource::File => "as in the capture file (file)",
        TimestampSource::Generator => "made by the traffic generator (generator)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64) -> Vec<InterfaceSample> {
        vec![InterfaceSample { interface: "eth0".into(), counts: vec![("offered", count)] }]
    }

    #[test]
    fn a_window_has_the_readings_around_it_and_says_when_they_were_taken() {
        let evidence = Evidence::default();
        for at in 1..=9 {
            evidence.sample(at * 10, sample(at as u64));
        }
        let check = |from_ns: i64, to_ns: i64, expected: (i64, i64)| {
            let found = evidence.around(from_ns, to_ns, vec![TimestampSource::Kernel]);
            let CountedSpan { begin, end, .. } = &found.counters[0];
            assert_eq!((begin.at_ns, end.at_ns), expected);
            assert_eq!(begin.counts, [("offered", expected.0 as u64 / 10)]);
            assert!(
                found.packet_lines().contains("counters of eth0 at 1970-01-01T00:00:00.0000000"),
                "{}",
                found.packet_lines()
            );
        };
        check(35, 52, (30, 60));
        check(30, 60, (30, 60));
        check(5, 500, (10, 90));
        assert!(Evidence::default().around(0, 9, Vec::new()).counters.is_empty());
    }

    #[test]
    fn samples_are_bounded_and_the_newest_stay() {
        let evidence = Evidence::default();
        let all = 5 * SAMPLES_MAX as i64;
        for at in 0..all {
            evidence.sample(at, sample(at as u64));
        }
        let samples = evidence.samples.lock().unwrap();
        assert!(samples.len() <= SAMPLES_MAX && samples.iter().is_sorted_by_key(|sample| sample.0));
        assert!(
            samples
                .iter()
                .rev()
                .take(SAMPLES_MAX / 2)
                .enumerate()
                .all(|(at, sample)| sample.0 == all - 1 - at as i64)
        );
    }
}
