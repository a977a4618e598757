//! Runs of the program with scripts: what one that spins takes from capture, and what hostile ones do to it.
//!
//! ```text
//!  capture_beside_script   generated packets as fast as they are appended ─┬─ ring
//!                          a script that is busy with each ◄───────────────┘  packets/s, with it and without
//!  script_hostile          50 runs, each with a filter trigger, its dump, and a script that would do harm
//! ```
//! The flags of scripts, and what the summary says of them, are spelled here and nowhere else in the benches.

use super::hostile_scripts::{Fate, SCRIPTS};
use crate::Scale;
use crate::cores::cores;
use crate::table::Table;
use crate::wirescope::{Finished, Run};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The rows, and what they are of.
pub const BESIDE: &str = "capture_beside_script";
pub const ALONE: &str = "without a script";
pub const HOSTILE: &str = "script_hostile";
pub const WHOLE: &str = "scripts that left capture and dumps whole";
/// Scripts that spin: some 10 us with each packet, so that batches stay below their bound, and for good.
pub const SPINNING: [(&str, &str); 2] = [
    (
        "beside one that is always busy",
        "return function() local n = 0 for i = 1, 2000 do n = (n * 31 + i) % 65537 end return n < 0 end",
    ),
    ("beside one that never comes back", "return function() while true do end end"),
];
/// Packets per second that a live source offers: more than a worker appends.
const OFFERED: u64 = 50_000_000;
/// It is captured for so many times the scale's span.
const SPANS: u32 = 2;
/// Packets of a run with a hostile script, per second of capture time, and its length.
const HOSTILE_RATE: u64 = 20_000;
const HOSTILE_TIME: Duration = Duration::from_secs(2);
/// What a hostile script may take.
const MEMORY: &str = "32MiB";
const TIMEOUT: &str = "300ms";
/// No run may take longer.
const LIMIT: Duration = Duration::from_secs(120);
/// Of faults so many are named.
const NAMED_MAX: usize = 10;

/// Capture with each spinning script, and without one.
pub fn round(workspace: &Workspace, scale: Scale, table: &mut Table) {
    if cores().len() < 2 {
        let why = "skipped: needs a free core";
        SPINNING.iter().for_each(|(name, _)| table.leave_out(BESIDE, name, "packets/s", why));
        return table.leave_out(BESIDE, ALONE, "packets/s", why);
    }
    let mut order: Vec<(&str, Option<&str>)> = vec![(ALONE, None)];
    order.extend(SPINNING.map(|(name, text)| (name, Some(text))));
    let turns = table.round() % order.len();
    order.rotate_left(turns);
    for (name, script) in order {
        let outcome = appended(workspace, scale.span * SPANS, script).map_err(|error| format!("{error:#}"));
        table.put(BESIDE, name, "packets/s", outcome);
    }
}

/// Packets/s that a run appends.
fn appended(workspace: &Workspace, span: Duration, script: Option<&str>) -> Result<f64> {
    let folder = workspace.out_folder()?;
    let source = format!("synth:rate={OFFERED},size=64,seed=1,cpus={}", cores()[0]);
    let mut arguments = vec!["--source", &source, "--ring", "256MiB"];
    let given = given(&folder, script)?;
    arguments.extend(given.iter().map(String::as_str));
    let mut run = Run::start(workspace, None, &arguments)?;
    run.wait_started()?;
    // Generated times say nothing of speed, and behind the end a script still reads: the wall's clock up to the stop.
    let begun = Instant::now();
    std::thread::sleep(span);
    run.interrupt()?;
    let elapsed = begun.elapsed();
    let finished = run.finish_worn(LIMIT)?; // a script that is disabled makes it exit code 1
    let (received, stored) = (finished.received(), stored(&finished));
    ensure!(received == stored + finished.dropped(), "{received} packets received, {stored} stored");
    if script.is_some() {
        let of = only_script(&finished)?;
        let has_seen = number(of, "packets")? + number(of, "missed")?;
        ensure!(has_seen > 0 || !of["disabled"].is_null(), "the script had nothing to do: {of}");
    }
    ensure!(stored > 0, "nothing was appended");
    Ok(stored as f64 / elapsed.as_secs_f64())
}

fn stored(finished: &Finished) -> u64 {
    finished.summary["stored"]["packets"].as_u64().unwrap_or(0)
}

/// The flags of a script, whose file is put into `folder`.
fn given(folder: &tempfile::TempDir, script: Option<&str>) -> Result<Vec<String>> {
    let Some(text) = script else { return Ok(Vec::new()) };
    let path = folder.path().join("script.lua");
    std::fs::write(&path, text)?;
    let of_script = format!("{NAME}={}", path.display());
    Ok(["--trigger-script", &of_script, "--script-memory", MEMORY, "--script-timeout", TIMEOUT]
        .map(String::from)
        .to_vec())
}

/// The script's name in all runs.
const NAME: &str = "bad";

/// What the summary says of the run's only script.
fn only_script(finished: &Finished) -> Result<&Value> {
    let scripts = finished.summary["scripts"].as_array().context("no array 'scripts' in the summary")?;
    let [script] = &scripts[..] else { bail!("{} scripts in the summary", scripts.len()) };
    ensure!(script["name"] == NAME, "the script is called {}", script["name"]);
    Ok(script)
}

fn number(script: &Value, key: &str) -> Result<u64> {
    script[key].as_u64().with_context(|| format!("no number '{key}' in {script}"))
}

/// A run with each hostile script: whether all left it whole is the row.
pub fn hostile(workspace: &Workspace, table: &mut Table) {
    let mut faults = Vec::new();
    for (text, fate) in SCRIPTS {
        if let Err(fault) = meet(workspace, text, fate) {
            let fault = format!("{text}: {fault:#}");
            eprintln!("{fault}");
            faults.push(fault);
        }
    }
    let whole = (SCRIPTS.len() - faults.len()) as f64;
    table.put(HOSTILE, "runs that were whole", "", Ok(whole));
    let more = faults.len().saturating_sub(NAMED_MAX);
    let mut named = faults[..faults.len().min(NAMED_MAX)].join("; ");
    if more > 0 {
        named += &format!("; and {more} more");
    }
    table.put(HOSTILE, WHOLE, "", if faults.is_empty() { Ok(1.0) } else { Err(named) });
}

/// One run: its capture and its dump are whole, and the script is told of with its name and a count.
fn meet(workspace: &Workspace, text: &str, fate: Fate) -> Result<()> {
    let folder = workspace.out_folder()?;
    let packets = HOSTILE_RATE * HOSTILE_TIME.as_secs();
    let source = format!("synth:rate={HOSTILE_RATE},seed=1,time={}s,trigger-at=1s", HOSTILE_TIME.as_secs());
    let mut arguments =
        vec!["--source", &source, "--ring", "256MiB", "--before", "500ms", "--after", "500ms"];
    arguments.extend(["--trigger", "probe=udp dst port 60000", "--dump", ""]);
    let given = given(&folder, Some(text))?;
    arguments.extend(given.iter().map(String::as_str));
    let finished = Run::start(workspace, None, &arguments)?.finish_worn(LIMIT)?;
    // The trigger packet is one more than those of the rate.
    finished.check_packets(packets + 1)?;
    let whole =
        |dump: &&Value| dump["trigger"] == "probe" && dump["lost_max"] == 0 && dump["complete"] == true;
    ensure!(
        finished.dumps().iter().filter(whole).count() == 1,
        "the filter's dump isn't there, or not whole: {:?}",
        finished.dumps()
    );
    // Half a second before and behind.
    let held = finished.dumps().iter().find(whole).and_then(|dump| dump["packets"].as_u64()).unwrap_or(0);
    ensure!(held.abs_diff(HOSTILE_RATE) <= 2, "its dump holds {held} packets of {HOSTILE_RATE}");
    let script = only_script(&finished)?;
    let (errors, disabled) = (number(script, "errors")?, script["disabled"].as_str());
    let is_told = match fate {
        Fate::Harmless => errors == 0 && disabled.is_none(),
        Fate::Fails => errors > 0,
        Fate::Refused | Fate::Memory | Fate::Stuck => disabled.is_some(),
    };
    ensure!(is_told, "{fate:?}, but the summary says {script}");
    ensure!(number(script, "hits")? == 0, "it has hits: {script}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn hostile_scripts_differ_and_meet_every_fate() {
        let texts: BTreeSet<&str> = SCRIPTS.iter().map(|(text, _)| *text).collect();
        assert_eq!(texts.len(), 50);
        for fate in [Fate::Refused, Fate::Fails, Fate::Memory, Fate::Stuck, Fate::Harmless] {
            assert!(SCRIPTS.iter().any(|(_, of)| *of == fate), "{fate:?}");
        }
        assert!(!texts.iter().any(|text| text.contains("ffi")));
    }

    #[test]
    fn a_script_is_given_by_its_file_with_its_bounds() {
        let folder = tempfile::tempdir().unwrap();
        assert!(given(&folder, None).unwrap().is_empty());
        let words = given(&folder, Some("return 5")).unwrap();
        assert_eq!(words[0], "--trigger-script");
        let path = words[1].strip_prefix("bad=").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "return 5");
        assert_eq!(words[2..], ["--script-memory", "32MiB", "--script-timeout", "300ms"]);
    }
}
