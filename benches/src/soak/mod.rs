//! The part `soak`: a run that goes on for half an hour while everything happens to it that happens to a
//! service.
//!
//! 20 k packets/s of 512 bytes over a veth pair, and every ten seconds the same: the configuration is read
//! again, the interface goes down and up, all threads stand still for a while, and the disk is full for two
//! seconds. Every second a dump of one host is fired, and twice in ten seconds one of everything, which holds
//! on to half the ring as long as its window lasts, so that readers are slow. Finished dumps are deleted,
//! as an operator would. Memory is looked at every second; packet accounting is checked in every `status`
//! line of the log.

mod accounting;
mod disk;
mod scene;

use crate::Scale;
use crate::live::Stand;
use crate::main_part;
use crate::record::{Bar, Limit, Record};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scene::{Scene, Soaked};

/// Growth of the process that is allowed, from the first quarter of the soak on, %.
const GROWTH_MAX: f64 = 1.0;
/// There must be a line whose packet accounting holds for so many seconds at least: they come each second
/// that the run isn't stopped in.
const LAW_EVERY_S: u64 = 2;
/// Rows, and the bar of all of them.
const BAR: &str = "service_soak";
const GROWTH: &str = "growth of memory";
const ACCOUNTED: &str = "lines of the log whose packet accounting holds";
const DUMPS: &str = "dumps";

/// Soaks, and adds what was seen to `record`.
///
/// # Errors
/// None but the system's while there is no run yet.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    let soaked = main_part::lab().and_then(|lab| {
        let stand = Stand::new(workspace, &lab)?;
        Scene::play(&stand, scale.soak).map_err(|error| format!("{error:#}"))
    });
    match soaked {
        Ok(soaked) => judge(&soaked, &mut table),
        Err(why) => table.leave_out(BAR, GROWTH, "%", &why),
    }
    record.bars.push(bar(&table));
    table.finish(record);
    Ok(())
}

fn judge(soaked: &Soaked, table: &mut Table) {
    let said = |outcome: Result<f64>| outcome.map_err(|error| format!("{error:#}"));
    table.put(BAR, GROWTH, "%", said(growth(&soaked.resident_kib)));
    table.put(BAR, ACCOUNTED, "lines", said(accounted_lines(soaked)));
    table.put(BAR, DUMPS, "dumps", said(dumps(soaked)));
}

/// How much the process grew behind the first quarter, by the most it had then.
fn growth(resident_kib: &[u64]) -> Result<f64> {
    let (first, rest) = resident_kib.split_at(resident_kib.len() / 4);
    let most = |part: &[u64]| part.iter().copied().max().context("too short for growth");
    let (before, behind) = (most(first)?, most(rest)?);
    let percent = (behind as f64 / before as f64 - 1.0) * 100.0;
    ensure!(percent <= GROWTH_MAX, "the process grew by {percent:.2} %, from {before} to {behind} KiB");
    Ok(percent)
}

/// Packet accounting at every moment that the log shows, and at the end against what the kernel gave the
/// interface.
fn accounted_lines(soaked: &Soaked) -> Result<f64> {
    let finished = &soaked.finished;
    let mut lines = 0;
    for status in finished.events("status") {
        accounting::check(status).with_context(|| format!("at {}", status["logged"]))?;
        lines += 1;
    }
    accounting::check(&finished.summary).context("at the end")?;
    let (seen, lost) = (finished.received(), accounting::kernel_dropped(&finished.summary));
    ensure!(
        seen + lost == soaked.arrived,
        "{seen} packets seen and {lost} lost of {} that arrived",
        soaked.arrived
    );
    let seconds = soaked.resident_kib.len() as u64;
    ensure!(lines * LAW_EVERY_S >= seconds, "{lines} lines in {seconds} s");
    Ok(lines as f64)
}

/// Every reload was done, both triggers made complete dumps, and the full disk spoilt some.
fn dumps(soaked: &Soaked) -> Result<f64> {
    let reloads = soaked.finished.events("reload").filter(|reload| reload["ok"] == true).count();
    ensure!(reloads == soaked.reloads, "{reloads} reloads of {}", soaked.reloads);
    let dumps = soaked.finished.dumps();
    for trigger in scene::TRIGGERS {
        let complete =
            dumps.iter().filter(|dump| dump["trigger"] == trigger && dump["lost_max"] == 0).count();
        ensure!(complete > 0, "trigger {trigger} made no complete dump of the last {}", dumps.len());
    }
    let all = soaked.finished.dump_total("dumps");
    ensure!(soaked.finished.dump_total("failed") > 0, "the full disk spoilt none of {all} dumps");
    Ok(all as f64)
}

/// 1 where all of it holds.
fn bar(table: &Table) -> Bar {
    let faults = table.faults(&[(BAR, GROWTH), (BAR, ACCOUNTED), (BAR, DUMPS)]);
    let value = if faults.is_empty() { 1.0 } else { 0.0 };
    Bar { name: BAR, value: Some(value), limit: Limit::AtLeast(1.0), faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_flat_where_it_stays_within_a_hundredth_of_its_first_quarter() {
        assert_eq!(
            growth(&[100_000, 100_500, 100_500, 100_100, 99_000, 100_500, 100_000, 100_000]).unwrap(),
            0.0
        );
        assert!(growth(&[100_000, 100_000, 100_000, 100_000, 100_000, 101_100, 100_000, 100_000]).is_err());
        assert!(growth(&[100_000]).is_err());
    }

    #[test]
    fn the_bar_falls_with_any_of_its_rows() {
        let mut table = Table::default();
        table.put(BAR, GROWTH, "%", Ok(0.1));
        table.put(BAR, ACCOUNTED, "lines", Ok(180.0));
        assert!(!bar(&table).holds());
        table.put(BAR, DUMPS, "dumps", Ok(100.0));
        assert!(bar(&table).holds());
    }
}
