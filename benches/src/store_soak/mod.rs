//! The part `store-soak`: a run that stores into two volumes with tiny budgets, while everything happens to their
//! disks that happens to disks.
//!
//! ```text
//! second of a minute   10 to 19   the first disk is frozen            25 to 33   it fails (EIO)
//!                      40 to 46   others have filled it               48 to 56   a hold keeps all of the second volume
//! ```
//! The first volume has a file system of its own, in a file on a loop device. Every second the room that both
//! folders take is looked at; accounting is checked in every `status` line of the log, so is that nothing was
//! deleted without need. A dump by hand every ten seconds shows that nothing of it reaches capture. In the end
//! all that was stored and not deleted has to be there, whole.

mod room;
mod scene;

use crate::Scale;
use crate::main_part;
use crate::record::{Bar, Limit, Record};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scene::{BUDGETS_MIB, FILE_MIB, Scene, Soaked};
use serde_json::Value;

/// Rows, and the bar of all of them.
const BAR: &str = "budget_soak";
const LAW: &str = "lines of the log in which every packet is accounted for";
const BUDGET: &str = "looks at the room that a volume takes, each within its budget";
const NEWEST: &str = "lines of the log in which the newest budget is there";
const STATES: &str = "states of volumes, each told";
const DUMPS: &str = "complete dumps";
const FILES: &str = "packets in the files, none fewer than stored and not deleted";
const ROWS: [(&str, &str); 6] = [
    (LAW, "lines"),
    (BUDGET, "looks"),
    (NEWEST, "lines"),
    (STATES, "states"),
    (DUMPS, "dumps"),
    (FILES, "packets"),
];
/// There must be a line for so many seconds at least.
const LINE_EVERY_S: u64 = 2;

/// Soaks, and adds what was seen to `record`.
///
/// # Errors
/// None but the system's while there is no run yet.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    let soaked = match main_part::needs_root() {
        true => Err("skipped: needs root".to_string()),
        false => Scene::play(workspace, scale.soak).map_err(|error| format!("{error:#}")),
    };
    match soaked {
        Ok(soaked) => judge(&soaked, &mut table),
        Err(why) => table.leave_out(BAR, LAW, "lines", &why),
    }
    record.bars.push(bar(&table));
    table.finish(record);
    Ok(())
}

fn judge(soaked: &Soaked, table: &mut Table) {
    let outcomes =
        [law(soaked), budget(soaked), newest(soaked), states(soaked), dumps(soaked), files(soaked)];
    for ((of, unit), outcome) in ROWS.into_iter().zip(outcomes) {
        table.put(BAR, of, unit, outcome.map_err(|error| format!("{error:#}")));
    }
}

fn count(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is no count"))
}

fn volumes(line: &Value) -> Result<&Vec<Value>> {
    line["stores"].as_array().context("no list of stores")
}

/// `published = stored + filtered + missed + behind` over all volumes, and nothing dropped in front of the ring.
fn check_law(line: &Value) -> Result<()> {
    for unit in ["packets", "bytes"] {
        let mut sum = 0;
        for volume in volumes(line)? {
            for key in ["stored", "filtered", "missed", "behind"] {
                sum += count(&volume[key][unit])?;
            }
        }
        let published = count(&line["stored"][unit])?;
        ensure!(sum == published, "{published} {unit} published, and {sum} in the volumes");
    }
    let dropped = line["dropped"].as_object().context("no reasons")?;
    for (reason, packets) in dropped {
        ensure!(count(packets)? == 0, "{packets} packets dropped: {reason}");
    }
    Ok(())
}

fn law(soaked: &Soaked) -> Result<f64> {
    let mut lines = 0;
    for status in soaked.finished.events("status") {
        check_law(status).with_context(|| format!("at {}", status["logged"]))?;
        lines += 1;
    }
    check_law(&soaked.finished.summary).context("at the end")?;
    ensure!(lines * LINE_EVERY_S >= soaked.seconds, "{lines} lines in {} s", soaked.seconds);
    Ok(lines as f64)
}

fn budget(soaked: &Soaked) -> Result<f64> {
    for (second, looks) in soaked.taken.iter().enumerate() {
        for (volume, taken) in looks.iter().enumerate() {
            let budget = BUDGETS_MIB[volume] << 20;
            ensure!(*taken <= budget, "second {second}: volume {volume} takes {taken} of {budget} bytes");
        }
    }
    for line in soaked.finished.events("status") {
        for volume in volumes(line)? {
            let (used, budget) = (count(&volume["used"])?, count(&volume["budget"])?);
            ensure!(used <= budget, "{used} bytes used of {budget} at {}", line["logged"]);
        }
    }
    Ok((soaked.taken.len() * BUDGETS_MIB.len()) as f64)
}

/// Where only the budget deletes, as in the second volume, it takes no more than a file more than it must: one
/// goes, and one is about to be begun.
fn newest(soaked: &Soaked) -> Result<f64> {
    let mut lines = 0;
    for line in soaked.finished.events("status") {
        let volume = volumes(line)?.get(1).context("no second volume")?;
        if count(&volume["deleted"]["packets"])? > 0 {
            let (used, budget) = (count(&volume["used"])?, count(&volume["budget"])?);
            let least = budget.saturating_sub(((2 * FILE_MIB) << 20) + (1 << 20));
            ensure!(used >= least, "only {used} bytes of {budget} are left at {}", line["logged"]);
            lines += 1;
        }
    }
    ensure!(lines > 0, "nothing was ever deleted");
    Ok(lines as f64)
}

/// Whatever happened was told, and the end of it.
fn states(soaked: &Soaked) -> Result<f64> {
    let told =
        |state: &str| soaked.finished.events("store_state").filter(|line| line["state"] == state).count();
    for (state, times) in &soaked.happened {
        let told = told(state);
        ensure!(told >= *times, "'{state}' happened {times} times, and was told {told} times");
    }
    for volume in volumes(&soaked.finished.summary)? {
        ensure!(
            volume["state"] == "writing",
            "{} ends {}: {}",
            volume["path"],
            volume["state"],
            volume["error"]
        );
    }
    Ok(soaked.finished.events("store_state").count() as f64)
}

fn dumps(soaked: &Soaked) -> Result<f64> {
    let dumps = soaked.finished.dumps();
    for dump in dumps {
        ensure!(dump["lost_max"] == 0, "a dump lacks packets: {dump}");
    }
    ensure!(!dumps.is_empty(), "no dump");
    Ok(soaked.finished.dump_total("dumps") as f64)
}

/// All that was stored and not deleted is in the files, and these are whole.
fn files(soaked: &Soaked) -> Result<f64> {
    let Soaked { verified, finished, .. } = soaked;
    for file in verified["files"].as_array().context("no list of files")? {
        let whole = file["damages"].as_array().is_some_and(Vec::is_empty) && file["unread"].is_null();
        ensure!(whole, "{}: {}", file["path"], file["damages"]);
        ensure!(file["state"] == "closed", "{} is {}", file["path"], file["state"]);
    }
    let (mut stored, mut deleted) = (soaked.added, 0);
    for volume in volumes(&finished.summary)? {
        stored += count(&volume["stored"]["packets"])?;
        deleted += count(&volume["deleted"]["packets"])?;
    }
    let there = count(&verified["packets"])?;
    ensure!(
        there + deleted >= stored,
        "{stored} packets were stored and {deleted} deleted, but {there} are in the files"
    );
    Ok(there as f64)
}

/// 1 where all of it holds.
fn bar(table: &Table) -> Bar {
    let faults = table.faults(&ROWS.map(|(of, _)| (BAR, of)));
    let value = if faults.is_empty() { 1.0 } else { 0.0 };
    Bar { name: BAR, value: Some(value), limit: Limit::AtLeast(1.0), faults }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_with_a_packet_more_or_less_or_dropped_is_none_that_holds() {
        let line = |stored: u64, behind: u64, dropped: u64| {
            let amount = |packets: u64| json!({"packets": packets, "bytes": packets * 100});
            let volume = json!({"stored": amount(stored), "filtered": amount(0), "missed": amount(3),
                "behind": amount(behind)});
            json!({"stores": [volume, volume], "stored": amount(100), "dropped": {"kernel": dropped}})
        };
        check_law(&line(40, 7, 0)).unwrap();
        assert!(check_law(&line(41, 7, 0)).is_err());
        assert!(check_law(&line(40, 7, 1)).is_err());
        assert!(check_law(&json!({})).is_err());
    }

    #[test]
    fn the_bar_falls_with_any_of_its_rows() {
        let mut table = Table::default();
        for (of, unit) in &ROWS[1..] {
            table.put(BAR, of, unit, Ok(1.0));
        }
        assert!(!bar(&table).holds());
        table.put(BAR, LAW, "lines", Ok(1.0));
        assert!(bar(&table).holds());
    }
}
