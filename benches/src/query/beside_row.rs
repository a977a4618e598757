//! Live capture with a store beside queries: what is lost at 60 % of the run's own best rate, with four queries that no
//! screen helps and without.

use super::asking::Asking;
use super::scan_rows::UNSCREENED_FILTER;
use crate::Scale;
use crate::live::captures::{self, Capture};
use crate::live::sender::{Pace, Sender};
use crate::live::{Stand, sender};
use crate::main_part;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use scope_measure::{Packets, Sizes};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rows, and what each is of.
pub const ROW: &str = "capture_beside_query";
pub const WITH: &str = "lost beside queries";
pub const WITHOUT: &str = "lost without queries";
const BEST: &str = "best rate";
const SENT_WITH: &str = "sent beside queries";
const SENT_WITHOUT: &str = "sent without queries";
const PASSED: &str = "what the queries read meanwhile";
/// Queries at once.
const QUERIES: usize = 4;
const PACKET_BYTES: usize = 512;
const SHARE: f64 = 0.6;
/// Of the pace, so much has to be sent: else less is lost only because less came.
const PACE_LEAST: f64 = 0.95;
/// The best rate is that of so long, the best of some runs.
const BEST_SPAN: Duration = Duration::from_secs(3);
const BEST_OF: usize = 3;
/// A query that is over is begun again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// All rounds; where there is no lab, why.
pub fn measure(asking: &Asking, scale: Scale, table: &mut Table) {
    let lab = main_part::lab();
    let stand = lab.as_ref().map_err(String::clone).and_then(|lab| Stand::new(asking.workspace, lab));
    let stand = match stand {
        Ok(stand) => stand,
        Err(why) => return leave_out(&why, table),
    };
    let packets = Packets::new(Sizes::Fixed(PACKET_BYTES));
    let sender = Sender::open(stand.lab.a(), "va", &packets).map(Sender::urgent);
    let (mut sender, best) = match sender.and_then(|mut sender| {
        let span = scale.query_beside.min(BEST_SPAN);
        let rates = (0..BEST_OF).map(|_| captured(&stand, &mut sender, Pace::FlatOut, span).map(rate));
        let rates = rates.collect::<Result<Vec<f64>>>()?;
        Ok((sender, rates.into_iter().fold(0.0, f64::max)))
    }) {
        Ok(both) => both,
        Err(error) => return leave_out(&format!("{error:#}"), table),
    };
    table.put(ROW, BEST, "packets/s", Ok(best));
    let pace = Pace::PerSecond((best * SHARE) as u32);
    let at_pace = |capture: Result<Capture>| {
        let capture = capture?;
        let sent = capture.sent.per_second();
        ensure!(
            sent >= best * SHARE * PACE_LEAST,
            "only {sent:.0} packets/s were sent of {:.0}",
            best * SHARE
        );
        Ok(capture)
    };
    for round in 0..scale.rounds {
        eprintln!("capture beside queries, round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        for beside in [round % 2 == 0, round % 2 != 0] {
            let mut capture = || captured(&stand, &mut sender, pace, scale.query_beside);
            match beside {
                true => {
                    let both = beside_queries(asking, capture);
                    let read = both.as_ref().map(|(_, read)| *read).map_err(|error| format!("{error:#}"));
                    put(table, WITH, SENT_WITH, &at_pace(both.map(|(capture, _)| capture)));
                    table.put(ROW, PASSED, "MB/s", read);
                }
                false => put(table, WITHOUT, SENT_WITHOUT, &at_pace(capture())),
            }
        }
    }
}

/// Packets per second that weren't lost.
fn rate(capture: Capture) -> f64 {
    capture.sent.per_second() * (1.0 - capture.loss_percent() / 100.0)
}

fn leave_out(why: &str, table: &mut Table) {
    table.leave_out(ROW, WITH, "%", why);
    table.leave_out(ROW, WITHOUT, "%", why);
}

fn put(table: &mut Table, lost: &str, sent: &str, capture: &Result<Capture>) {
    let figure =
        |figure: fn(&Capture) -> f64| capture.as_ref().map(figure).map_err(|error| format!("{error:#}"));
    table.put(ROW, lost, "%", figure(Capture::loss_percent));
    table.put(ROW, sent, "packets/s", figure(|capture| capture.sent.per_second()));
}

fn captured(stand: &Stand, sender: &mut sender::Sender, pace: Pace, span: Duration) -> Result<Capture> {
    let folder = stand.workspace.out_folder()?;
    captures::ours_stored(stand, sender, pace, span, folder.path())
}

/// A run beside queries, which begin before it and are killed behind it; with it, how much they read, MB/s.
fn beside_queries(asking: &Asking, run: impl FnOnce() -> Result<Capture>) -> Result<(Capture, f64)> {
    asking.cool()?;
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    let packets = asking.store.known.resets.packets;
    let ask = || asked_again(asking.command(&[UNSCREENED_FILTER, "--count", "--json"]), packets, &is_over);
    let (capture, read) = std::thread::scope(|scope| {
        let queries: Vec<_> = (0..QUERIES).map(|_| scope.spawn(ask)).collect();
        let capture = run();
        is_over.store(true, Ordering::Relaxed);
        let read: Vec<Result<u64>> = queries
            .into_iter()
            .map(|query| query.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        (capture, read)
    });
    // Queries that failed were none: then nothing was beside the run.
    let read = read.into_iter().collect::<Result<Vec<u64>>>()?;
    ensure!(read.iter().all(|&bytes| bytes > 0), "a query read nothing");
    Ok((capture?, read.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64() / 1e6))
}

/// Asks again and again until it is over; how many bytes were read, from the disk or the page cache.
fn asked_again(mut command: Command, packets: u64, is_over: &AtomicBool) -> Result<u64> {
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut read = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut child = command.spawn().context("wirescope query")?;
        let mut latest = 0;
        let ended = loop {
            latest = read_by(&child).unwrap_or(latest).max(latest);
            if child.try_wait()?.is_some() {
                break true;
            }
            if is_over.load(Ordering::Relaxed) {
                child.kill()?;
                break false;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        read += latest;
        let output = child.wait_with_output()?;
        if ended {
            let count: Value = serde_json::from_slice(&output.stdout).context("the object of a count")?;
            ensure!(count["packets"] == packets, "a query counts {}, not {packets}", count["packets"]);
        }
    }
    Ok(read)
}

/// Bytes that a process has read by now.
fn read_by(child: &Child) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).ok()?;
    let figure = |key: &str| io.lines().find_map(|line| line.strip_prefix(key))?.trim().parse::<u64>().ok();
    Some(figure("rchar:")?.max(figure("read_bytes:")?))
}
