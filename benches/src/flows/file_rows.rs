//! The capture file of the part `main`, read by `wirescope stats` and by its peers, each into what it writes: how many
//! packets a second, from the start of the process to its end.

use super::database::Database;
use super::peers::Peer;
use super::stats_run::{self, StatsRun};
use crate::table::Table;
use crate::traffic::Traffic;
use crate::workspace::Workspace;
use anyhow::{Result, ensure};
use std::time::Duration;

/// The bar, and its rows.
pub const BAR: &str = "stats_file_vs_peers";
/// What the row of ours is of.
pub const OURS: &str = "wirescope stats";
/// No run may take longer.
const LIMIT: Duration = Duration::from_secs(120);

/// Each program once; who begins changes from round to round.
pub fn round(workspace: &Workspace, traffic: &Traffic, table: &mut Table) {
    let mut programs: Vec<Option<Peer>> = vec![None];
    programs.extend(Peer::ALL.map(Some));
    let first = table.round() % programs.len();
    programs.rotate_left(first);
    for program in programs {
        let (of, took) = match program {
            None => (OURS, ours(workspace, traffic)),
            Some(peer) => (peer.name(), peer.read(workspace, &traffic.path, traffic.packets)),
        };
        let per_second = took.map(|took| traffic.packets as f64 / took.as_secs_f64());
        table.put(BAR, of, "packets/s", per_second.map_err(|error| format!("{error:#}")));
    }
}

fn ours(workspace: &Workspace, traffic: &Traffic) -> Result<Duration> {
    let folder = workspace.out_folder()?;
    let db = folder.path().join("x.sqlite");
    let source =
        format!("file:{}", traffic.path.display().to_string().replace('\\', "\\\\").replace(',', "\\,"));
    let (summary, took) = StatsRun::start(workspace, None, &db, &["--source", &source])?.finish(LIMIT)?;
    let counted = stats_run::received_and_dropped(&summary)?;
    ensure!(
        counted == (traffic.packets, 0),
        "{counted:?} packets received and dropped of {}",
        traffic.packets
    );
    stats_run::expect_untouched(&summary)?;
    let database = Database::open(&db)?;
    database.expect_packets(traffic.packets)?;
    let bytes = database.number("SELECT sum(bytes) FROM intervals")?;
    ensure!(bytes == traffic.bytes as i64, "{bytes} bytes in intervals of {}", traffic.bytes);
    Ok(took)
}
