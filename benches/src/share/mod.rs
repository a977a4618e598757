//! The part `share`: what other programs get of captured packets, against programs that do the same.
//!
//! | rows | module |
//! |---|---|
//! | what sharing costs its thread; rules and sets | `group_rows` |
//! | packets sent out of an interface: how many, and how exactly at their time | `send_rows` |
//! | reading in place, and how soon a packet is seen | `read_rows` |
//! | shares by weight, flows that stray | `flow_rows` |
//! | flows of a killed member | `takeover_row` |
//! | bad members beside a good one | `hostile_row` |
//! | packets that a run sends on | `forward_row` |
//! | capture and four programs, by a group and by themselves; what members cost capture | `live_rows` |
//!
//! Programs in C (`programs`) are members of a run's group (`shared`), or of one that the bench feeds itself (`door`). `spare` is the
//! clock of all work that a machine does.

mod attached;
mod bars;
mod door;
mod drawn;
mod flow_rows;
mod forward_row;
mod group_rows;
mod hostile_row;
mod live_rows;
mod programs;
mod read_rows;
mod send_rows;
mod served;
mod spare;
mod takeover_row;

use crate::Scale;
use crate::main_part;
use crate::record::Record;
use crate::table::{Key, Table};
use crate::workspace::Workspace;
use anyhow::Result;
pub use bars::NAMES;
use programs::Programs;

/// Rows that are measured.
#[derive(Clone, Copy)]
struct Wanted<'a>(&'a [String]);

impl Wanted<'_> {
    /// Whether the row of one of these is.
    fn any(self, keys: &[Key]) -> bool {
        self.0.is_empty() || keys.iter().any(|(name, _)| self.0.iter().any(|row| row == name))
    }
}

/// Measures the bars called `rows`, all where there are none, and adds them to `record`.
///
/// # Errors
/// The system's, before the first round. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, rows: &[String], record: &mut Record) -> Result<()> {
    let (mut table, wanted) = (Table::default(), Wanted(rows));
    let (lab, programs) =
        (main_part::lab(), Programs::build(workspace).map_err(|error| format!("{error:#}")));
    let sends = match &lab {
        Ok(lab) => Some(send_rows::Stand::new(workspace, lab, scale)?),
        Err(why) => {
            send_rows::leave_out(why, &mut table);
            None
        }
    };
    let live = match (&lab, &programs) {
        (Ok(lab), Ok(programs)) => Some(live_rows::Stand { workspace, lab, programs }),
        (Err(why), _) | (_, Err(why)) => {
            leave_out(&LIVE, why, &mut table);
            None
        }
    };
    if let Err(why) = &programs {
        leave_out(&READ, why, &mut table);
    }
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        if wanted.any(&GROUPS) {
            group_rows::round(scale, &mut table);
        }
        if let Some(stand) = sends.as_ref().filter(|_| wanted.any(&SENDS)) {
            stand.round(&mut table);
        }
        bench_round(workspace, programs.as_ref().ok(), scale, wanted, &mut table);
        if let Some(stand) = &live {
            live_round(stand, scale, wanted, &mut table);
        }
    }
    if let Some(stand) = live.as_ref().filter(|_| wanted.any(&[forward_row::FORWARD])) {
        table.begin_round(0);
        forward_row::measure(stand, scale, &mut table);
    }
    if let Some(stand) = live.as_ref().filter(|_| wanted.any(&[hostile_row::HOSTILE])) {
        eprintln!("bad members, {} s", scale.hostile.as_secs());
        table.begin_round(0);
        hostile_row::measure(stand, scale, &mut table);
    }
    record.bars.extend(bars::bars(&table).into_iter().filter(|bar| wanted.any(&[(bar.name, "")])));
    record.machine.insert("share".to_string(), settings());
    table.finish(record);
    Ok(())
}

/// Programs with their settings.
fn settings() -> serde_json::Value {
    let mut settings = send_rows::settings();
    for (name, words) in live_rows::SETTINGS {
        settings[name] = (*words).into();
    }
    settings
}

/// What is measured together.
const GROUPS: [Key<'static>; 4] = [group_rows::SMALL, group_rows::MIX, group_rows::RULES, group_rows::MANY];
const SENDS: [Key<'static>; 2] = [send_rows::RATE, send_rows::GAP];
/// What needs the veth pair and programs.
const LIVE: [Key<'static>; 12] = [
    live_rows::ALONE,
    live_rows::IN_PLACE,
    live_rows::GROUPED,
    live_rows::SOCKETS,
    live_rows::PIPED,
    live_rows::GIVEN,
    live_rows::TCPDUMPS,
    live_rows::MEMBERS,
    live_rows::NO_MEMBERS,
    takeover_row::TAKEOVER,
    hostile_row::HOSTILE,
    forward_row::FORWARD,
];
/// What needs programs alone.
const READ: [Key<'static>; 5] =
    [read_rows::OUTSIDE, read_rows::INSIDE, read_rows::PLAIN, read_rows::OF_RING, read_rows::OF_GROUP];

/// Says why rows aren't there.
fn leave_out(keys: &[Key<'static>], why: &str, table: &mut Table) {
    for (row, of) in keys {
        table.leave_out(row, of, "", why);
    }
}

/// What the bench feeds itself.
fn bench_round(
    workspace: &Workspace,
    programs: Option<&Programs>,
    scale: Scale,
    wanted: Wanted,
    table: &mut Table,
) {
    if let Some(programs) = programs.filter(|_| wanted.any(&[read_rows::OUTSIDE])) {
        read_rows::in_place(workspace, programs, scale, table);
    }
    if let Some(programs) = programs.filter(|_| wanted.any(&[read_rows::OF_RING])) {
        read_rows::seen(workspace, programs, scale, table);
    }
    if wanted.any(&[flow_rows::BALANCE]) {
        flow_rows::balance(table);
    }
    if wanted.any(&[flow_rows::STRAYS]) {
        flow_rows::strays(table);
    }
}

fn live_round(stand: &live_rows::Stand, scale: Scale, wanted: Wanted, table: &mut Table) {
    if wanted.any(&[live_rows::GROUPED]) {
        stand.sockets(scale, table);
    }
    if wanted.any(&[live_rows::PIPED]) {
        stand.tcpdumps(scale, table);
    }
    if wanted.any(&[live_rows::MEMBERS]) {
        stand.capture_cost(scale, table);
    }
    if wanted.any(&[takeover_row::TAKEOVER]) {
        takeover_row::round(stand, scale, table);
    }
}
