//! `stages_cost`: what the packet path costs, held against another build of the program:
//! `BEFORE=PATH make bench BENCH=main`.
//!
//! Both run on generated traffic that was prepared beforehand, by turns, some tens of milliseconds each. Of
//! each the lower quartile counts: what else the machine does only adds, and not to most of them. Without
//! `BEFORE` there is no row.

use crate::figures::percentile;
use crate::file_rows::SIXTEEN;
use crate::record::{Bar, Limit, Record, Row};
use crate::wirescope::Run;
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::Duration;

const NAME: &str = "stages_cost";
/// Names the other build.
const BEFORE: &str = "BEFORE";
/// Packets of a run: enough for some tens of milliseconds.
const PACKETS: u64 = 1_000_000;
/// Runs of each build for each case.
const TURNS: usize = 25;
const LIMIT: Duration = Duration::from_secs(60);

/// Traffic and triggers.
const CASES: [(&str, &str, &[&str]); 4] = [
    ("64 B, 0 triggers", "64", &[]),
    ("64 B, 16 triggers", "64", SIXTEEN),
    ("mix, 0 triggers", "imix", &[]),
    ("mix, 16 triggers", "imix", SIXTEEN),
];

/// Measures both builds, if there is another one.
pub fn measure(workspace: &Workspace, turns: usize, record: &mut Record) {
    let Some(before) = std::env::var_os(BEFORE).map(PathBuf::from) else { return };
    let before =
        Workspace { wirescope: before, scratch: workspace.scratch.clone(), root: workspace.root.clone() };
    eprintln!("the packet path, against {}", before.wirescope.display());
    let mut worst: Option<f64> = None;
    let mut faults = Vec::new();
    for (what, size, filters) in CASES {
        let (mut then, mut now) = (row(format!("{what}, before")), row(format!("{what}, now")));
        for turn in 0..turns.clamp(1, TURNS) {
            let mut pair = [(&before, &mut then), (workspace, &mut now)];
            if turn % 2 == 1 {
                pair.reverse();
            }
            for (workspace, row) in pair {
                match ns_per_packet(workspace, size, filters) {
                    Ok(ns) => row.rounds.push(ns),
                    Err(fault) => row.faults.push(format!("{fault:#}")),
                }
            }
        }
        let quartile = |row: &Row| percentile(&row.rounds, 25.0);
        let ratio = quartile(&now).zip(quartile(&then)).map(|(now, then)| now / then);
        worst = ratio.map_or(worst, |ratio| Some(worst.map_or(ratio, |worst| worst.max(ratio))));
        faults.extend(then.faults.iter().chain(&now.faults).cloned());
        let ratio = Row {
            bar: NAME,
            what: format!("{what}, ratio of the lower quartiles"),
            unit: "x",
            rounds: ratio.into_iter().collect(),
            faults: Vec::new(),
        };
        record.rows.extend([then, now, ratio]);
    }
    record.bars.push(Bar { name: NAME, value: worst, limit: Limit::AtMost(1.03), faults });
}

fn row(what: String) -> Row {
    Row { bar: NAME, what, unit: "ns/packet", rounds: Vec::new(), faults: Vec::new() }
}

/// From the begin of capture to its end, checked. A run without triggers writes its small ring out, since it
/// would be refused else.
fn ns_per_packet(workspace: &Workspace, size: &str, filters: &[&str]) -> Result<f64> {
    let source = format!("synth:packets={PACKETS},size={size},pace=max");
    let mut arguments = vec!["--ring", "16MiB", "--source", &source];
    let out = workspace.out_folder()?;
    let ring_file = out.path().join("ring.pcapng").display().to_string();
    if filters.is_empty() {
        arguments.extend(["--ring-out", &ring_file]);
    }
    for filter in filters {
        arguments.extend(["--trigger", filter]);
    }
    let finished = Run::start(workspace, None, &arguments)?.finish(LIMIT)?;
    finished.check_packets(PACKETS)?;
    ensure!(finished.hits_total() == 0, "{} hits of triggers that nothing hits", finished.hits_total());
    let seconds = finished.seconds()?;
    ensure!(seconds > 0.0, "the run took {seconds} s by its own log");
    Ok(seconds * 1e9 / PACKETS as f64)
}
