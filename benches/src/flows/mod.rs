//! The part `flows`: what flows and traffic statistics cost, against a map, memory and other programs; their bounds; how
//! late rows are, and what a kill leaves.
//!
//! | rows | module |
//! |---|---|
//! | the flow table against a map of hashbrown, and against memory | `table_rows` |
//! | what statistics cost a worker per packet | `worker_rows` |
//! | the longest time between two batches of a worker | `pause_row` |
//! | a capture file against nfpcapd and softflowd | `file_rows` |
//! | 1 Gbit/s live: processor time against softflowd, memory, losses | `live_rows` |
//! | ten times as many flows as there is room for | `bound_row` |
//! | how late rows are seen beside heavy readers | `late_row` |
//! | what 50 kills leave | `kill_row` |
//! | ... the peers, runs of `wirescope stats`, what a database says | `peers`, `stats_run`, `database` |

mod bars;
mod bound_row;
mod database;
mod file_rows;
mod kill_row;
mod late_row;
mod live_rows;
mod pause_row;
mod peers;
mod stats_run;
mod table_rows;
mod worker_rows;

use crate::Scale;
use crate::file_rows::traffic;
use crate::live::Stand;
use crate::main_part;
use crate::record::Record;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;
use scope_testkit::lab::Lab;

/// Of the link.
const MTU: &str = "1600";

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, before the first round. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let traffic = traffic(workspace, scale.file_bytes)?;
    let mut table = Table::default();
    let lab = main_part::lab();
    let stand = lab.as_ref().map_err(String::clone).and_then(|lab| {
        let stand = Stand::new(workspace, lab)?;
        take_long_frames(lab).map(|()| stand)
    });
    if let Err(why) = &stand {
        live_rows::leave_out(why, &mut table);
        late_row::leave_out(why, &mut table);
    }
    let mut lateness = late_row::Lateness::default();
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        table_rows::round(scale, &mut table);
        worker_rows::round(workspace, scale, &mut table);
        pause_row::round(workspace, scale, &mut table);
        file_rows::round(workspace, &traffic, &mut table);
        if let Ok(stand) = &stand {
            live_rows::round(stand, scale, &mut table);
            lateness.round(stand, scale, &mut table);
        }
    }
    table.begin_round(0);
    if stand.is_ok() {
        lateness.finish(&mut table);
    }
    eprintln!("{} flows", scale.flows);
    bound_row::measure(workspace, scale.flows, &mut table);
    kill_row::measure(workspace, scale.stats_kills, &mut table);
    record.bars.extend(bars::bars(&table));
    record.machine.insert("flows".to_string(), settings());
    table.finish(record);
    Ok(())
}

/// Lets frames of 1518 bytes through, which have more behind their addresses than a link takes by itself.
fn take_long_frames(lab: &Lab) -> Result<(), String> {
    lab.a().ip(&["link", "set", "va", "mtu", MTU])?;
    lab.b().ip(&["link", "set", "vb", "mtu", MTU])?;
    lab.wait_for_link("va", "vb")
}

/// Programs with their settings.
fn settings() -> serde_json::Value {
    let [ours, without, softflowd] = live_rows::command_lines();
    serde_json::json!({
        "ours": ours,
        "without statistics": without,
        "peer": softflowd,
        "packages": peers::versions(),
    })
}
