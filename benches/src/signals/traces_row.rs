//! `level_same_on_file`: generated traces with levels, absences, counts and sequences, each run as a file at full speed,
//! paced, and with several workers; every hit, window and dump held against the naive reading.
//!
//! ```text
//! seed ─► trace, conditions ─► naive reading ─► hits, windows, packets in them ┐
//!              └► wirescope run, six ways ────► log, summary ──────────────────┴► the same, or a fault
//! ```
//! `SEED=N` plays that seed alone, and prints what it is made of.

use super::expected::{Dump, HITS_MAX, Outcome, Scene, Watched};
use super::naive::SIGNALS;
use super::trace::MS;
use crate::table::Table;
use crate::wirescope::{Finished, Run, time_of};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use scope_testkit::traffic::{Precision, pcapng};
use std::time::Duration;

/// The row, and what it is of.
pub const ROW: &str = "level_same_on_file";
/// See [`ROW`].
pub const SAME: &str = "traces that fire as the naive reading says";
/// Of those that don't, so many are named.
const NAMED_MAX: usize = 10;
/// How long a paced run takes, about.
const PACED_MS: i64 = 250;
/// A hit that nobody waits for may be missing in the log of a run, counted: such a run is played again, so often.
const TRIES: usize = 6;
/// No run may take longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Traces of the seeds from 0 on, or the one that `SEED` names. Whether all were as they must be is the row.
pub fn measure(workspace: &Workspace, traces: u64, table: &mut Table) {
    let only = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let seeds: Vec<u64> = only.map_or_else(|| (0..traces).collect(), |seed| vec![seed]);
    let mut faults = Vec::new();
    let (mut runs, mut fired, mut extended) = (0, 0, 0);
    for &seed in &seeds {
        let scene = Scene::new(seed);
        if only.is_some() {
            describe(&scene);
        }
        for way in ways(&scene) {
            runs += 1;
            if let Err(fault) = play(workspace, &scene, &way) {
                let fault = format!("SEED={seed} with '{way}': {fault:#}");
                eprintln!("{fault}");
                faults.push(fault);
            }
        }
        fired += scene.outcomes.iter().map(|outcome| outcome.dumps.len()).sum::<usize>();
        extended += scene.outcomes.iter().map(|outcome| outcome.extended_ns.len()).sum::<usize>();
    }
    table.put(ROW, "runs", "", Ok(f64::from(runs)));
    table.put(ROW, "hits that fire, of all traces", "", Ok(fired as f64));
    table.put(ROW, "hits that extend a window", "", Ok(extended as f64));
    table.put(ROW, SAME, "", if faults.is_empty() { Ok(1.0) } else { Err(named(&faults)) });
}

/// The first faults, and how many there are.
fn named(faults: &[String]) -> String {
    let more = faults.len().saturating_sub(NAMED_MAX);
    let mut text = faults[..faults.len().min(NAMED_MAX)].join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text
}

/// What is put behind a source.
fn ways(scene: &Scene) -> Vec<String> {
    let pace = (scene.trace.span_ns() / MS / PACED_MS).max(1);
    let mut ways = ["", ",workers=2", ",workers=4"].map(String::from).to_vec();
    ways.extend([
        format!(",pace={pace}"),
        format!(",pace={pace},workers=2"),
        format!(",pace={pace},workers=4"),
    ]);
    ways
}

/// One run; an error says what was different.
fn play(workspace: &Workspace, scene: &Scene, way: &str) -> Result<()> {
    let folder = workspace.out_folder()?;
    let path = folder.path().join("trace.pcapng");
    std::fs::write(&path, pcapng(&scene.trace.capture, Precision::Nano, false))?;
    let path = path.display().to_string().replace('\\', "\\\\").replace(',', "\\,");
    let source = format!("file:{path}{way}");
    let words = words(scene, &source);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for _ in 0..TRIES {
        let finished = Run::start(workspace, None, &words)?.finish(LIMIT)?;
        let lists_all = finished.events("hits").next().is_none();
        compare(scene, &finished, lists_all)?;
        if lists_all {
            return Ok(());
        }
    }
    bail!("in {TRIES} runs some hits were not listed in the log; all else was as it must be")
}

fn words(scene: &Scene, source: &str) -> Vec<String> {
    let mut words: Vec<String> =
        ["--source", source, "--ring", "64MiB", "--holdoff", "0s", "--dump", ""].map(String::from).to_vec();
    let mut give = |flag: &str, value: String| words.extend([flag.to_string(), value]);
    give("--dumps-max", (HITS_MAX + 10).to_string());
    give("--before", format!("{}ms", scene.before_ns / MS));
    give("--after", format!("{}ms", scene.after_ns / MS));
    for flag in SIGNALS.iter().filter_map(|signal| signal.flag) {
        give("--signal", flag.to_string());
    }
    for (at, watched) in scene.watched.iter().enumerate() {
        give("--trigger", format!("{}={}", name(at), watched.text()));
    }
    words
}

/// Triggers are called by their place.
fn name(at: usize) -> String {
    format!("t{at}")
}

/// Where the log doesn't list all hits, those that it lists are some of those that must be.
fn compare(scene: &Scene, finished: &Finished, lists_all: bool) -> Result<()> {
    finished.check_packets(scene.trace.packets.len() as u64)?;
    for (at, (watched, expected)) in scene.watched.iter().zip(&scene.outcomes).enumerate() {
        let found = found(finished, &name(at))?;
        let is_same = if lists_all { found == *expected } else { is_part(&found, expected) };
        ensure!(is_same, "{} {}: {}", name(at), watched.text(), difference(expected, &found));
        let counts = &finished.summary["hits"][name(at)];
        let of = |verdict: &str| counts[verdict].as_u64().unwrap_or(0) as usize;
        ensure!(
            (of("fired"), of("extended")) == (expected.dumps.len(), expected.extended_ns.len()),
            "{} counts {counts}",
            name(at)
        );
    }
    let hits = finished.hits_total();
    ensure!(hits == scene.hits() as u64, "{hits} hits of all triggers, not {}", scene.hits());
    let lost = finished.dumps().iter().find(|dump| dump["lost_max"] != 0);
    ensure!(lost.is_none(), "a dump lacks packets: {}", lost.map_or(String::new(), ToString::to_string));
    Ok(())
}

/// Whether the same fired, and what extended is in order among what must.
fn is_part(found: &Outcome, expected: &Outcome) -> bool {
    let mut due = expected.extended_ns.iter();
    found.dumps == expected.dumps && found.extended_ns.iter().all(|time| due.any(|other| other == time))
}

/// What a run says of a trigger.
fn found(finished: &Finished, trigger: &str) -> Result<Outcome> {
    let of_trigger = |dump: &&serde_json::Value| dump["trigger"] == trigger;
    let dump = |dump: &serde_json::Value| -> Result<Dump> {
        Ok(Dump {
            time_ns: time_of(dump, "time")?,
            from_ns: time_of(&dump["asked"], "from")?,
            to_ns: time_of(&dump["asked"], "to")?,
            packets: dump["packets"].as_u64().context("no number of packets")?,
        })
    };
    let mut dumps: Vec<Dump> = finished.dumps().iter().filter(of_trigger).map(dump).collect::<Result<_>>()?;
    let listed =
        finished.events("hit").filter(|hit| hit["trigger"] == trigger && hit["verdict"] == "extended");
    let mut extended_ns: Vec<i64> = listed.map(|hit| time_of(hit, "time")).collect::<Result<_>>()?;
    dumps.sort_unstable();
    extended_ns.sort_unstable();
    Ok(Outcome { dumps, extended_ns })
}

/// What is in one and not in the other, in milliseconds of their second.
fn difference(expected: &Outcome, found: &Outcome) -> String {
    let shown = |ns: &i64| format!("{:.6}", (*ns % (100_000 * MS)) as f64 / MS as f64);
    let dumps = |one: &Outcome, other: &Outcome| -> Vec<String> {
        let only = one.dumps.iter().filter(|dump| !other.dumps.contains(dump));
        let text = |dump: &Dump| {
            format!(
                "{} ({}..{}, {} packets)",
                shown(&dump.time_ns),
                shown(&dump.from_ns),
                shown(&dump.to_ns),
                dump.packets
            )
        };
        only.map(text).collect()
    };
    let extended = |one: &Outcome, other: &Outcome| -> Vec<String> {
        one.extended_ns.iter().filter(|ns| !other.extended_ns.contains(ns)).map(shown).collect()
    };
    format!(
        "{} fired and {} extended, not {} and {}; only expected: fired {:?}, extended {:?}; only found: fired {:?}, \
         extended {:?}",
        found.dumps.len(),
        found.extended_ns.len(),
        expected.dumps.len(),
        expected.extended_ns.len(),
        dumps(expected, found),
        extended(expected, found),
        dumps(found, expected),
        extended(found, expected)
    )
}

/// Tells what a seed is made of.
fn describe(scene: &Scene) {
    let Scene { trace, before_ns, after_ns, .. } = scene;
    let begin_ns = trace.packets.first().map_or(0, |packet| packet.time_ns);
    eprintln!(
        "{} packets in {} ms from {begin_ns} ns on, {} ms before, {} ms after",
        trace.packets.len(),
        trace.span_ns() / MS,
        before_ns / MS,
        after_ns / MS
    );
    for (at, (watched, outcome)) in scene.watched.iter().zip(&scene.outcomes).enumerate() {
        let kind = match watched {
            Watched::Level(_) => "level",
            Watched::Pattern(_) => "pattern",
        };
        let (dumps, extended) = (outcome.dumps.len(), outcome.extended_ns.len());
        eprintln!("{} {kind} {}: {dumps} fire, {extended} extend", name(at), watched.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_with_its_seed_and_few_are_named() {
        let dump = |time_ns| Dump { time_ns, from_ns: time_ns, to_ns: time_ns + MS, packets: 3 };
        let expected = Outcome { dumps: vec![dump(MS), dump(5 * MS)], extended_ns: vec![2 * MS] };
        let found = Outcome { dumps: vec![dump(MS)], extended_ns: vec![2 * MS, 5 * MS] };
        let text = difference(&expected, &found);
        assert!(text.starts_with("1 fired and 2 extended, not 2 and 1"), "{text}");
        assert!(text.contains("5.000000 (5.000000..6.000000, 3 packets)"), "{text}");
        assert!(is_part(&Outcome { extended_ns: Vec::new(), ..expected.clone() }, &expected));
        assert!(!is_part(&found, &expected));
        assert!(!is_part(&Outcome { extended_ns: vec![2 * MS, 2 * MS], ..expected.clone() }, &expected));
        let faults: Vec<String> = (0..15).map(|seed| format!("SEED={seed}")).collect();
        assert!(named(&faults).ends_with("SEED=9; and 5 more"));
        assert_eq!(named(&faults[..1]), "SEED=0");
    }

    #[test]
    fn every_scene_is_run_at_full_speed_paced_and_with_more_workers() {
        let scene = Scene::new(1);
        let ways = ways(&scene);
        assert_eq!(ways.len(), 6);
        assert!(ways.iter().filter(|way| way.contains("pace=")).count() == 3);
        assert!(words(&scene, "file:a").windows(2).any(|pair| pair == ["--signal", "dns=udp port 53"]));
    }
}
