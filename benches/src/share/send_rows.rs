//! Packets out of an interface: how many a second, against trafgen, and how exactly at their recorded gaps, against
//! tcpreplay.
//!
//! ```text
//!  wirescope send | trafgen | tcpreplay (namespace a) ──► va ═ vb ──► nobody; of gaps: a witness, with the kernel's times
//! ```
//! Each program has one thread that sends, and the same frames of 64 bytes. trafgen says itself how long it took, as
//! ours does; both have to have sent all, by the counters of `vb`. A gap's error is how much it differs from the recorded
//! one, of which the 99th percentile counts. Recorded times are whole microseconds, which is what tcpreplay reads.

use crate::Scale;
use crate::live::received;
use crate::table::{Key, Table};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::Lab;
use scope_testkit::lab::witness::{Witness, numbered};
use scope_testkit::traffic::{Capture, Precision, Random, Record, pcap};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;

/// Packets/s of ours.
pub const RATE: Key<'static> = ("send_vs_trafgen_64", "wirescope send");
/// And of the peer.
pub const RATE_PEER: Key<'static> = ("send_vs_trafgen_64", "trafgen");
/// 99th percentile of the errors of gaps, us, of ours.
pub const GAP: Key<'static> = ("send_gap_vs_tcpreplay", "wirescope send");
/// And of the peer.
pub const GAP_PEER: Key<'static> = ("send_gap_vs_tcpreplay", "tcpreplay");

/// Frames of the file that is sent at full speed, and how often it is for each 100 ms of [`Scale::span`].
const FRAMES: u64 = 20_000;
const LOOPS_A_SPAN: u64 = 5;
/// Different frames, as trafgen has them.
const KINDS: u64 = 100;
/// Packets whose gaps are measured, and the mean gap, us: some seconds.
const GAPS: u64 = 20_000;
const GAP_US: u64 = 200;
/// Bytes of a frame.
const BYTES: usize = 64;
/// 2026-01-01.
const BEGIN_NS: i64 = 1_767_225_600_000_000_000;
/// What was sent last has arrived by then.
const SETTLE: Duration = Duration::from_millis(200);

/// The files, and the link.
pub struct Stand<'a> {
    workspace: &'a Workspace,
    lab: &'a Lab,
    folder: TempDir,
    loops: u64,
    gaps_ns: Vec<i64>,
}

/// Says why there are no rows.
pub fn leave_out(why: &str, table: &mut Table) {
    for (key, unit) in [(RATE, "packets/s"), (RATE_PEER, "packets/s"), (GAP, "us"), (GAP_PEER, "us")] {
        table.leave_out(key.0, key.1, unit, why);
    }
}

/// Programs with their settings.
pub fn settings() -> serde_json::Value {
    serde_json::json!({
        "ours": "wirescope send --source file:full.pcap --loops N --to va; file:gaps.pcap,pace=1",
        "trafgen": "trafgen -c frames.cfg -o va -n N --cpus 1",
        "tcpreplay": "tcpreplay -q -i va gaps.pcap",
    })
}

impl<'a> Stand<'a> {
    /// Writes the files.
    ///
    /// # Errors
    /// The system's.
    pub fn new(workspace: &'a Workspace, lab: &'a Lab, scale: Scale) -> Result<Stand<'a>> {
        let folder = workspace.out_folder()?;
        let frame = |number: u64| numbered(number, 2000, BYTES);
        let mut full = Capture::ethernet("");
        full.packets = (0..FRAMES).map(|number| Record::new(BEGIN_NS, frame(number % KINDS))).collect();
        let (mut random, mut time_ns) = (Random::new(1), BEGIN_NS);
        let mut gaps = Capture::ethernet("");
        for number in 0..GAPS {
            gaps.packets.push(Record::new(time_ns, frame(number)));
            // Three draws: short and long ones, and none of some milliseconds.
            let us: u64 = (0..3).map(|_| random.below(2 * GAP_US / 3)).sum();
            time_ns += us as i64 * 1000;
        }
        let gaps_ns = gaps.packets.windows(2).map(|two| two[1].time_ns - two[0].time_ns).collect();
        let lines = (0..KINDS).map(|number| {
            let bytes: Vec<String> = frame(number).iter().map(|byte| format!("0x{byte:02x}")).collect();
            format!("{{ {} }}\n", bytes.join(", "))
        });
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("frames.cfg"), lines.collect::<String>())?;
        std::fs::write(path("full.pcap"), pcap(&full, Precision::Micro, false))?;
        std::fs::write(path("gaps.pcap"), pcap(&gaps, Precision::Micro, false))?;
        let loops = (scale.span.as_millis() as u64 / 100).max(1) * LOOPS_A_SPAN;
        Ok(Stand { workspace, lab, folder, loops, gaps_ns })
    }

    /// One go of each.
    pub fn round(&self, table: &mut Table) {
        let mut put = |key: Key<'static>, unit, value: Result<f64>| {
            table.put(key.0, key.1, unit, value.map_err(|error| format!("{error:#}")));
        };
        let (full, gaps) = (self.path("full.pcap"), self.path("gaps.pcap"));
        put(
            RATE,
            "packets/s",
            self.rate(|| self.ours(&[&format!("file:{full}"), "--loops", &self.loops.to_string()])),
        );
        put(RATE_PEER, "packets/s", self.rate(|| self.trafgen()));
        put(GAP, "us", self.gap(|| self.ours(&[&format!("file:{gaps},pace=1")]).map(drop)));
        put(GAP_PEER, "us", self.gap(|| self.run("tcpreplay", &["-q", "-i", "va", &gaps]).map(drop)));
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a program in namespace a; what it printed.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.lab.a().command(program);
        command.env("LD_LIBRARY_PATH", self.workspace.peers().join("usr/lib/x86_64-linux-gnu"));
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.with_context(|| program.to_string())?;
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{program}: {}", words(&output.stderr).trim());
        Ok(words(&output.stdout) + &words(&output.stderr))
    }

    /// Seconds that ours took, by its summary.
    fn ours(&self, source: &[&str]) -> Result<f64> {
        let program = self.workspace.wirescope.display().to_string();
        let said =
            self.run(&program, &[&["send", "--to", "va", "--summary", "json", "--source"], source].concat())?;
        let summary: serde_json::Value = serde_json::from_str(said.lines().next().unwrap_or_default())?;
        summary["seconds"].as_f64().context("no seconds in the summary")
    }

    /// Seconds that trafgen took, by its own words.
    fn trafgen(&self) -> Result<f64> {
        let fetched = self.workspace.peers().join("usr/sbin/trafgen");
        let program = if fetched.exists() { fetched.display().to_string() } else { "trafgen".to_string() };
        let count = (self.loops * FRAMES).to_string();
        let config = self.path("frames.cfg");
        let said = self.run(&program, &["-c", &config, "-o", "va", "-n", &count, "--cpus", "1"])?;
        trafgen_seconds(&said).with_context(|| format!("trafgen said: {}", said.trim()))
    }

    /// Packets/s of a program that says how long it took, all of whose packets have to come.
    fn rate(&self, seconds: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let (before, count) = (received(self.lab.b(), "vb")?, self.loops * FRAMES);
        let seconds = seconds()?;
        std::thread::sleep(SETTLE);
        let came = received(self.lab.b(), "vb")? - before;
        ensure!(came == count, "{came} packets came of {count}");
        Ok(count as f64 / seconds)
    }

    /// 99th percentile of the errors of gaps, us.
    fn gap(&self, send: impl FnOnce() -> Result<()>) -> Result<f64> {
        let witness = Witness::begin(self.lab.b(), "vb")?;
        let sent = send();
        std::thread::sleep(SETTLE);
        let seen = witness.end()?;
        sent?;
        ensure!(seen.len() as u64 == GAPS, "{} packets came of {GAPS}", seen.len());
        ensure!(seen.is_sorted_by_key(|packet| packet.number), "packets came in another order");
        let came = seen.windows(2).map(|two| two[1].time_ns - two[0].time_ns);
        let mut errors: Vec<u64> = came.zip(&self.gaps_ns).map(|(came, gap)| came.abs_diff(*gap)).collect();
        errors.sort_unstable();
        Ok(errors[errors.len() * 99 / 100] as f64 / 1000.0)
    }
}

/// The longest time among trafgen's last words: `3 sec, 843927 usec on CPU0 (2000000 packets)`.
fn trafgen_seconds(said: &str) -> Option<f64> {
    let seconds = said.lines().filter_map(|line| {
        let (seconds, rest) = line.trim().split_once(" sec, ")?;
        let (micros, _) = rest.split_once(" usec on CPU")?;
        Some(seconds.trim().parse::<f64>().ok()? + micros.trim().parse::<f64>().ok()? / 1e6)
    });
    seconds.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_trafgen_are_understood() {
        let said =
            "       1 packets to schedule\n\r            3 sec, 843927 usec on CPU0 (2000000 packets)\n";
        assert_eq!(trafgen_seconds(said), Some(3.843_927));
        assert_eq!(trafgen_seconds("killed"), None);
    }
}
