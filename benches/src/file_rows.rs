//! A capture file read as fast as possible, against tcpdump: one trigger, and sixteen. None of them ever
//! fires.

use crate::clocks::stolen;
use crate::figures::median;
use crate::record::{Bar, Limit, Record, Row};
use crate::traffic::Traffic;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use crate::{peer, traffic};
use anyhow::{Result, ensure};
use std::time::Duration;

/// The trigger of the row with one.
pub const ONE: &[&str] = &["udp port 60000 and host 192.0.2.1"];

/// Those of the row with sixteen, each of another kind.
pub const SIXTEEN: &[&str] = &[
    "udp port 60000 and host 192.0.2.1",
    "tcp dst port 60001",
    "icmp",
    "arp",
    "host 198.51.100.7",
    "src net 203.0.113.0/24",
    "dst net 192.0.2.0/24 and tcp",
    "udp portrange 61000-61999",
    "tcp[tcpflags] & (tcp-syn|tcp-rst) != 0",
    "ip6 and host 2001:db8::1",
    "ip6 and udp port 547",
    "ether host 02:de:ad:be:ef:01",
    "greater 1600",
    "sctp or proto 89",
    "host 192.0.2.10 or host 192.0.2.11 or host 192.0.2.12 or host 192.0.2.13",
    "udp port 53 and not net 10.0.0.0/8",
];

/// No run on the file may take longer.
const LIMIT: Duration = Duration::from_secs(600);

/// A run in which the host took more than this of the guest's processors is run again: it measured the host.
const STOLEN_MAX: Duration = Duration::from_millis(20);
/// So often at most is one of them run.
const TRIES: usize = 4;
/// Of a row of which each round counts, a round has so many runs of each program by turns, and is their medians:
/// one run alone lasts 0.3 s, and what the host does to it changes from one to the next.
const RUNS_EACH: usize = 5;

/// One row against its peer, round by round.
pub struct Race {
    name: &'static str,
    limit: f64,
    /// A second bar: its name, and what the lowest of the rounds' own ratios must reach.
    each: Option<(&'static str, f64)>,
    filters: &'static [&'static str],
    ours: Row,
    theirs: Row,
    /// Of rounds in which both have run.
    ratios: Vec<f64>,
    /// How often runs of each round were run again, since the host took the processors.
    again: Vec<f64>,
    /// Every single run, ours and theirs, where a round has several.
    singles: [Row; 2],
}

impl Race {
    /// No round is run yet.
    pub fn new(name: &'static str, limit: f64, filters: &'static [&'static str]) -> Race {
        let row =
            |what: String| Row { bar: name, what, unit: "packets/s", rounds: Vec::new(), faults: Vec::new() };
        let theirs = if filters.len() == 1 {
            "tcpdump".into()
        } else {
            format!("{} tcpdump, one after another", filters.len())
        };
        let singles = ["wirescope", &theirs].map(|program| row(format!("{program}, each run")));
        let (ours, theirs) = (row("wirescope".into()), row(theirs));
        Race {
            name,
            limit,
            each: None,
            filters,
            ours,
            theirs,
            ratios: Vec::new(),
            again: Vec::new(),
            singles,
        }
    }

    /// Also asks that each single round reaches `limit`.
    fn and_each(self, name: &'static str, limit: f64) -> Race {
        Race { each: Some((name, limit)), ..self }
    }

    /// Whether each round counts for itself.
    pub fn counts_each(&self) -> bool {
        self.each.is_some()
    }

    /// Whether tcpdump agrees that the file is what it is thought to be.
    pub fn check(&mut self, traffic: &Traffic) {
        if let Err(fault) = peer::check_file(&traffic.path, traffic.packets, self.filters) {
            self.theirs.faults.push(format!("{fault:#}"));
        }
    }

    /// Runs one round; who comes first changes from run to run. A fault in one run is one of the round.
    pub fn round(&mut self, number: usize, place: &Workspace, traffic: &Traffic) {
        let runs = if self.counts_each() { RUNS_EACH } else { 1 };
        let (mut packets_per_s, mut again) = ([Vec::new(), Vec::new()], 0);
        for run in number..number + runs {
            let (one, tries) = self.run_left_alone(run, place, traffic);
            again += tries - 1;
            for (all, one) in packets_per_s.iter_mut().zip(one) {
                all.extend(one);
            }
        }
        self.again.push(again as f64);
        if self.counts_each() {
            for (row, all) in self.singles.iter_mut().zip(&packets_per_s) {
                row.rounds.extend(all);
            }
        }
        let [ours, theirs] = packets_per_s.map(|all| median(&all).filter(|_| all.len() == runs));
        self.ours.rounds.extend(ours);
        self.theirs.rounds.extend(theirs);
        self.ratios.extend(ours.zip(theirs).map(|(ours, theirs)| ours / theirs));
    }

    /// Runs both, again where the host took the processors meanwhile: packets a second, ours and theirs, and the
    /// tries.
    fn run_left_alone(
        &mut self,
        number: usize,
        place: &Workspace,
        traffic: &Traffic,
    ) -> ([Option<f64>; 2], usize) {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = stolen();
            let packets_per_s = self.run_both(number, place, traffic);
            let was_left_alone = stolen().saturating_sub(before) <= STOLEN_MAX;
            if was_left_alone || tries == TRIES || packets_per_s.contains(&None) {
                return (packets_per_s, tries);
            }
        }
    }

    /// Packets a second, ours and theirs.
    fn run_both(&mut self, number: usize, place: &Workspace, traffic: &Traffic) -> [Option<f64>; 2] {
        let mut packets_per_s = [None; 2];
        for ours in [number.is_multiple_of(2), !number.is_multiple_of(2)] {
            let (row, at, seconds) = if ours {
                (&mut self.ours, 0, own_seconds(place, traffic, self.filters))
            } else {
                let took = peer::time(&traffic.path, self.filters);
                (&mut self.theirs, 1, took.map(|took| took.as_secs_f64()))
            };
            match seconds {
                Ok(seconds) => packets_per_s[at] = Some(traffic.packets as f64 / seconds),
                Err(fault) => row.faults.push(format!("round {}: {fault:#}", number + 1)),
            }
        }
        packets_per_s
    }

    /// Adds the rows and the bar.
    pub fn finish(self, record: &mut Record) {
        let value =
            median(&self.ours.rounds).zip(median(&self.theirs.rounds)).map(|(ours, theirs)| ours / theirs);
        let faults = [self.ours.faults.clone(), self.theirs.faults.clone()].concat();
        let lowest = self.ratios.iter().copied().reduce(f64::min);
        let row = |what: &str, unit, rounds| {
            let what = what.to_string();
            Row { bar: self.name, what, unit, rounds, faults: Vec::new() }
        };
        let ratio = row("ratio of each round", "x", self.ratios);
        let again = row("run again: the host took over 20 ms", "times", self.again);
        record.rows.extend([self.ours, self.theirs, ratio, again]);
        record.rows.extend(self.singles.into_iter().filter(|row| !row.rounds.is_empty()));
        record.bars.push(Bar {
            name: self.name,
            value,
            limit: Limit::AtLeast(self.limit),
            faults: faults.clone(),
        });
        if let Some((name, limit)) = self.each {
            record.bars.push(Bar { name, value: lowest, limit: Limit::AtLeast(limit), faults });
        }
    }
}

/// Both rows, interleaved by the caller.
pub fn races() -> [Race; 2] {
    [
        Race::new("file_vs_tcpdump", 1.0, ONE).and_each("file_vs_tcpdump_each", 1.2),
        Race::new("triggers16_vs_tcpdump16", 5.0, SIXTEEN),
    ]
}

/// The file, generated or found again.
///
/// # Errors
/// The system's.
pub fn traffic(place: &Workspace, file_bytes: u64) -> Result<Traffic> {
    traffic::prepare(&place.scratch, file_bytes)
}

/// How long the run takes from the end of its prefault, checked.
fn own_seconds(place: &Workspace, traffic: &Traffic, filters: &[&str]) -> Result<f64> {
    let source =
        format!("file:{}", traffic.path.display().to_string().replace('\\', "\\\\").replace(',', "\\,"));
    let mut arguments = vec!["--ring", "1GiB", "--source", &source];
    filters.iter().for_each(|filter| arguments.extend(["--trigger", filter]));
    let finished = Run::start(place, None, &arguments)?.finish(LIMIT)?;
    finished.check_packets(traffic.packets)?;
    let stored = &finished.summary["stored"]["bytes"];
    ensure!(*stored == traffic.bytes, "stored {stored} bytes of {}", traffic.bytes);
    ensure!(finished.hits_total() == 0, "{} hits of triggers that nothing hits", finished.hits_total());
    ensure!(finished.dumps().is_empty(), "{} dumps though nothing fired", finished.dumps().len());
    let seconds = finished.seconds()?;
    ensure!(seconds > 0.0, "the run took {seconds} s by its own log");
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_triggers_are_sixteen_different_ones() {
        let mut triggers = SIXTEEN.to_vec();
        triggers.sort_unstable();
        triggers.dedup();
        assert_eq!(triggers.len(), 16);
    }

    #[test]
    fn the_value_is_the_ratio_of_medians_and_a_fault_breaks_the_bar() {
        let run = |faults: &[&str]| {
            let mut race = Race::new("r", 1.0, ONE).and_each("each", 0.5);
            race.ours.rounds = vec![300.0, 100.0, 200.0];
            race.theirs.rounds = vec![100.0, 100.0, 400.0];
            race.ratios = vec![3.0, 1.0, 0.5];
            race.ours.faults = faults.iter().map(|fault| fault.to_string()).collect();
            let mut record = Record { machine: Default::default(), rows: Vec::new(), bars: Vec::new() };
            race.finish(&mut record);
            assert_eq!((record.bars[1].value, record.bars[1].holds()), (Some(0.5), faults.is_empty()));
            (record.bars[0].value, record.bars[0].holds(), record.rows[2].rounds.clone())
        };
        assert_eq!(run(&[]), (Some(2.0), true, vec![3.0, 1.0, 0.5]));
        assert!(!run(&["round 1: dropped 3 packets"]).1);
    }
}
