//! `kill_recovery`: runs that store are killed at random moments; what the next run recovers is held against
//! what the generator made, packet by packet.
//!
//! ```text
//! one to three runs, each killed at a random moment, into one store: each recovers what the ones before left
//! a run that ends by itself recovers the rest
//! then of each killed run    its packets are 0, 1, 2 ... without a gap, each as the generator makes it
//!                            everything that its log had said is stored is there
//!                            at most --store-flush and FLUSH_MAX of the time before the kill are missing
//!      of the store          no file grows, capinfos opens each, `wirescope verify` finds it whole
//! ```
//! The generator makes each packet from its number, so that each differs from all others.

use super::place::Place;
use super::stored_run::{self, Way};
use crate::table::Table;
use crate::wirescope::{Run, time_of};
use crate::workspace::Workspace;
use anyhow::{Context, Result, anyhow, ensure};
use scope_source::synth::schedule::offset_ns;
use scope_source::synth::traffic::Traffic;
use scope_source::synth::{Prepare, Size, SynthOptions};
use scope_testkit::oracle;
use scope_testkit::traffic::{Random, Record};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bar's row and others, and what each is of.
pub const ROW: &str = "kill_recovery";
pub const KILLED: &str = "killed runs";
const MISSING: &str = "kill_missing";
/// Decides all that is random.
const SEED: u64 = 14;
/// The longest that a flush may take: this much more than --store-flush may be missing.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// A kill comes so long behind the start at most.
const KILL_BEHIND_MS: u64 = 2_000;
/// The last run's packets.
const LAST_PACKETS: u64 = 10;

/// Kills `kills` runs.
pub fn measure(place: &Place, workspace: &Workspace, kills: usize, table: &mut Table) {
    let mut random = Random::new(SEED);
    let mut killed = 0;
    while killed < kills {
        eprintln!("kill {} of {kills}", killed + 1);
        let count = (1 + random.below(3) as usize).min(kills - killed);
        let plans: Vec<Plan> = (0..count).map(|_| Plan::new(&mut random)).collect();
        table.begin_round(killed);
        let outcome = kill_and_recover(place, workspace, &plans);
        for missing in outcome.iter().flatten() {
            table.put(MISSING, "time before a kill that is missing", "ms", Ok(missing.as_secs_f64() * 1e3));
        }
        let outcome = outcome.map(|_| 1.0).map_err(|error| format!("{error:#}; {plans:?}"));
        table.put(ROW, KILLED, "", outcome);
        killed += count;
    }
    if let Err(error) = place.empty("store") {
        table.put(ROW, KILLED, "", Err(format!("{error:#}")));
    }
}

/// One run that will be killed.
#[derive(Debug)]
struct Plan {
    rate: u64,
    bytes: u32,
    seed: u64,
    segment: &'static str,
    file: &'static str,
    flush: Duration,
    kill_after: Duration,
}

impl Plan {
    fn new(random: &mut Random) -> Plan {
        Plan {
            rate: random.pick(&[1_000, 20_000, 60_000]),
            bytes: random.pick(&[100, 500, 1_000]),
            seed: random.below(1_000_000),
            segment: random.pick(&["64KiB", "256KiB", "2MiB"]),
            file: random.pick(&["8MiB", "16MiB", "64MiB"]),
            flush: Duration::from_millis(random.pick(&[20, 100, 300])),
            kill_after: Duration::from_millis(random.below(KILL_BEHIND_MS)),
        }
    }

    fn source(&self) -> String {
        let Plan { rate, bytes, seed, .. } = self;
        format!("synth:rate={rate},size={bytes},seed={seed},prepare=off")
    }

    /// What the generator makes.
    fn traffic(&self) -> Traffic {
        Traffic::new(&SynthOptions {
            rate: Some(self.rate),
            size: Size::Fixed(self.bytes),
            seed: self.seed,
            prepare: Prepare::Off,
            ..SynthOptions::default()
        })
    }

    /// What may be missing.
    fn missing_max(&self) -> Duration {
        self.flush + FLUSH_MAX
    }
}

/// A run that was killed.
struct Killed<'a> {
    plan: &'a Plan,
    run_id: String,
    /// When, ns since the epoch.
    begun_ns: i64,
    killed_ns: i64,
    /// What its log said is stored.
    promised: u64,
}

/// Returns what each run lacks.
fn kill_and_recover(place: &Place, workspace: &Workspace, plans: &[Plan]) -> Result<Vec<Duration>> {
    let store = place.empty("store")?;
    let killed: Vec<Killed> =
        plans.iter().map(|plan| kill(workspace, &store, plan)).collect::<Result<_>>()?;
    let source = format!("synth:packets={LAST_PACKETS},pace=max");
    let arguments = ["--source", &source, "--ring", "64MiB"];
    let last = stored_run::start(workspace, &store, Way::Uring, &arguments)?.finish(stored_run::END_LIMIT)?;
    stored_run::check_all_stored(&last, LAST_PACKETS, Way::Uring)?;
    let files = stored_run::files(&store)?;
    check_opened(&files)?;
    let mut packets = LAST_PACKETS;
    let mut missing = Vec::new();
    for killed in &killed {
        let found = packets_of(&files, &killed.run_id)?;
        packets += found.len() as u64;
        missing.push(killed.check(&found).with_context(|| format!("the run {}", killed.run_id))?);
    }
    stored_run::check_whole(workspace, &store, packets)?;
    Ok(missing)
}

fn kill<'a>(workspace: &Workspace, store: &Path, plan: &'a Plan) -> Result<Killed<'a>> {
    let (source, flush) = (plan.source(), format!("{}ms", plan.flush.as_millis()));
    let arguments =
        ["--source", &source, "--ring", "64MiB", "--segment", plan.segment, "--store-file", plan.file];
    let arguments = [&arguments[..], &["--store-flush", &flush, "--status-every", "1s"]].concat();
    let mut run: Run = stored_run::start(workspace, store, Way::Uring, &arguments)?;
    run.wait_started()?;
    std::thread::sleep(plan.kill_after);
    let killed_ns = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64;
    run.kill()?;
    let log = run.log();
    let start = log.first().context("the log has no line")?;
    let stored = |line: &Value| line["stores"][0]["stored"]["packets"].as_u64();
    Ok(Killed {
        plan,
        run_id: start["run_id"].as_str().context("no 'run_id' in the log")?.to_string(),
        begun_ns: time_of(start, "logged")?,
        killed_ns,
        promised: log.iter().filter_map(stored).max().unwrap_or(0),
    })
}

/// Checks that capinfos opens all files.
fn check_opened(files: &[PathBuf]) -> Result<()> {
    let output =
        Command::new("capinfos").arg("-c").args(files).stdin(Stdio::null()).output().context("capinfos")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && words.trim().is_empty(),
        "capinfos ({}): {}",
        output.status,
        words.trim()
    );
    Ok(())
}

/// The packets of a run, in the order of its files.
fn packets_of(files: &[PathBuf], run_id: &str) -> Result<Vec<Record>> {
    let short = format!("_{}_", run_id.get(..8).context("a run id has 8 digits and more")?);
    let own = files.iter().filter(|file| file.to_string_lossy().contains(&short));
    let read =
        |file: &PathBuf| oracle::read(file).map(|read| read.capture.packets).map_err(|fault| anyhow!(fault));
    Ok(own.map(read).collect::<Result<Vec<_>>>()?.concat())
}

impl Killed<'_> {
    /// Checks its packets; how much of the time before the kill they lack.
    fn check(&self, found: &[Record]) -> Result<Duration> {
        let traffic = self.plan.traffic();
        let first_ns = found.first().map_or(self.begun_ns, |packet| packet.time_ns);
        let mut expected = Vec::new();
        for (number, packet) in (0u64..).zip(found) {
            expected.clear();
            traffic.write(number, &mut expected);
            ensure!(packet.data == expected, "packet {number} is another one than was generated");
            let time_ns = first_ns + offset_ns(number, self.plan.rate) as i64;
            ensure!(packet.time_ns == time_ns, "packet {number} has another time than was generated");
        }
        let count = found.len() as u64;
        ensure!(
            count >= self.promised,
            "{count} packets are there, {} had been reported as stored",
            self.promised
        );
        let last_ns = found.last().map_or(self.begun_ns, |packet| packet.time_ns);
        let missing = Duration::from_nanos((self.killed_ns - last_ns).max(0) as u64);
        let most = self.plan.missing_max();
        ensure!(missing <= most, "{missing:?} before the kill are missing, {most:?} may be");
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000;
    const BEGUN_NS: i64 = 1_000_000_000;

    fn plan() -> Plan {
        Plan {
            rate: RATE,
            bytes: 100,
            seed: 3,
            segment: "64KiB",
            file: "8MiB",
            flush: Duration::from_millis(100),
            kill_after: Duration::ZERO,
        }
    }

    fn packets(plan: &Plan, count: u64) -> Vec<Record> {
        let traffic = plan.traffic();
        let packet = |number| {
            let mut data = Vec::new();
            traffic.write(number, &mut data);
            Record::new(BEGUN_NS + offset_ns(number, RATE) as i64, data)
        };
        (0..count).map(packet).collect()
    }

    #[test]
    fn a_killed_run_has_each_packet_as_it_was_made_and_lacks_no_more_than_a_flush() {
        let plan = plan();
        let check = |found: &[Record], promised, killed_ms: i64, words: &str| {
            let killed_ns = BEGUN_NS + killed_ms * 1_000_000;
            let killed =
                Killed { plan: &plan, run_id: String::new(), begun_ns: BEGUN_NS, killed_ns, promised };
            let fault = killed.check(found).err().map(|fault| fault.to_string()).unwrap_or_default();
            assert!(fault.contains(words) && fault.is_empty() == words.is_empty(), "'{fault}'");
        };
        let whole = packets(&plan, 500);
        check(&whole, 500, 499, "");
        check(&whole, 400, 1599, "");
        check(&whole, 400, 1600, "1.101s before the kill are missing");
        check(&whole, 501, 499, "501 had been reported");
        check(&[], 0, 1100, "");
        check(&[], 0, 1101, "are missing");
        let without = [&whole[..100], &whole[101..]].concat();
        check(&without, 400, 499, "packet 100 is another");
        let mut changed = whole.clone();
        changed[7].data[60] ^= 1;
        check(&changed, 400, 499, "packet 7 is another");
        let mut shifted = whole.clone();
        shifted[499].time_ns += 1;
        check(&shifted, 400, 499, "packet 499 has another time");
    }
}
