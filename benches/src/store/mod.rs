//! The part `store`: what is stored on disk, how fast, at what cost, and what of it is there after a kill or
//! a loss of power.
//!
//! | rows | module |
//! |---|---|
//! | speed against fio and dd | `speed_rows` |
//! | processor time; what workers append beside a store | `cost_rows` |
//! | verification against hashing; bytes of the index | `read_rows` |
//! | live capture onto the disk against other programs | `crate::live::store_rows` |
//! | kills, losses of power | `kill_row`, `power_row` |
//!
//! Everything is written into one folder on the machine's own disk, which holds at most some 12 GiB at once
//! and is removed at the end. Each run's files are checked by `wirescope verify` before they count.

mod bars;
mod cost_rows;
mod kill_row;
mod place;
mod power_row;
mod read_rows;
mod speed_rows;
pub mod stored_run;
mod turns;

use crate::Scale;
use crate::live::store_rows;
use crate::record::Record;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;
use place::Place;
use serde_json::Value;

/// A share of the part, which can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Speed and cost on generated packets, verification, the index.
    Disk,
    /// Live capture.
    Live,
    /// Kills.
    Kill,
    /// Losses of power.
    Power,
}

/// All of them.
pub const ALL: &[Share] = &[Share::Disk, Share::Live, Share::Kill, Share::Power];

/// Measures `shares` and adds them to `record`.
///
/// # Errors
/// The system's, before the first row. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, shares: &[Share], record: &mut Record) -> Result<()> {
    let place = Place::make(workspace)?;
    let workspace = &place.workspace(workspace);
    let mut table = Table::default();
    for share in shares {
        match share {
            Share::Disk => disk(&place, workspace, scale, &mut table),
            Share::Live => store_rows::measure(workspace, scale, &mut table),
            Share::Kill => kill_row::measure(&place, workspace, scale.kills, &mut table),
            Share::Power => power_row::measure(workspace, &mut table),
        }
        record.bars.extend(bars::bars(*share, &table));
    }
    record.machine.insert("store".to_string(), settings(scale, shares));
    table.finish(record);
    Ok(())
}

/// Programs with their settings.
fn settings(scale: Scale, shares: &[Share]) -> Value {
    let of = |share: &Share| match share {
        Share::Disk => Some(("disk".to_string(), speed_rows::settings(scale.store_bytes))),
        Share::Live => Some(("live".to_string(), store_rows::settings())),
        Share::Kill | Share::Power => None,
    };
    Value::Object(shares.iter().filter_map(of).collect())
}

fn disk(place: &Place, workspace: &Workspace, scale: Scale, table: &mut Table) {
    let mut speed = speed_rows::Speed::default();
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        speed_rows::round(place, workspace, scale, &mut speed, table);
        cost_rows::round(place, workspace, scale, table);
    }
    eprintln!("verification");
    table.begin_round(0);
    read_rows::measure(place, workspace, scale, table);
}
