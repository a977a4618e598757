//! Live capture onto the disk, for the part `store`: processor time and loss against the programs of the part
//! `live`, by its rules; everybody writes all packets to the same disk.
//!
//! A packet counts as seen if it is on the disk in the end: of ours what the store says it stored, and lost
//! is what the kernel dropped and what the store missed. The files of others are counted by what they say.

use super::captures::{self, Capture};
use super::peers::{self, Output, PEERS, Peer};
use super::sender::{Pace, Sender};
use super::{Load, OURS, Stand, check_rates, row_of};
use crate::Scale;
use crate::main_part;
use crate::record::{Bar, Limit};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::Result;
use scope_measure::{Packets, Sizes};
use serde_json::{Value, json};
use std::time::Duration;

/// The rows.
const NS: &str = "live_store_ns";
const OWN_NS: &str = "live_store_own_ns";
const LOSS: &str = "live_store_loss";
const SENT: &str = "live_store_sent";
/// The peer of the bar on processor time: it alone indexes what it writes.
const INDEXES: &str = "stenotype";
/// Of the bars: the load with a rate, and those flat out; for so many spans as in the part `live`.
const PACED: Load = Load { bytes: 512, pace: Pace::PerSecond(300_000), spans: 3.0 };
const FLAT_OUT: [Load; 4] = [
    Load { bytes: 64, pace: Pace::FlatOut, spans: 0.5 },
    Load { bytes: 128, pace: Pace::FlatOut, spans: 0.25 },
    Load { bytes: 512, pace: Pace::FlatOut, spans: 1.0 },
    Load { bytes: 1500, pace: Pace::FlatOut, spans: 0.25 },
];

/// All rounds; where there is no lab, why.
pub fn measure(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let lab = main_part::lab();
    let stand = lab.as_ref().map_err(String::clone).and_then(|lab| Stand::new(workspace, lab));
    let stand = match stand {
        Ok(stand) => stand,
        Err(why) => return leave_out(&why, table),
    };
    for round in 0..scale.rounds {
        eprintln!("live, round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        let indexes = PEERS.iter().filter(|peer| peer.name == INDEXES).collect::<Vec<_>>();
        measure_load(&stand, &PACED, &indexes, scale, table);
        for load in &FLAT_OUT {
            measure_load(&stand, load, &PEERS.iter().collect::<Vec<_>>(), scale, table);
        }
    }
}

/// The bars, by what was measured.
pub fn bars(table: &Table) -> Vec<Bar> {
    let [ours, theirs] = [OURS, INDEXES].map(|of| row_of(&PACED, of));
    let keys = [(NS, ours.as_str()), (NS, theirs.as_str())];
    let cpu = Bar {
        name: "live_store_cpu_vs_stenotype_512",
        value: table.ratio(keys[0], keys[1]),
        limit: Limit::AtMost(0.9),
        faults: table.faults(&keys),
    };
    vec![cpu, loss(table)]
}

/// Of all sizes the worst: our loss less that of the peer that loses least, medians.
fn loss(table: &Table) -> Bar {
    let mut faults = Vec::new();
    let mut worst: Option<f64> = None;
    for load in &FLAT_OUT {
        let of = |name: &str| row_of(load, name);
        faults.extend(table.faults(&[(LOSS, &of(OURS))]));
        let peers = PEERS.iter().filter_map(|peer| table.median((LOSS, &of(peer.name))));
        let Some(best) = peers.min_by(f64::total_cmp) else {
            faults.push(format!("no peer was measured at {} B", load.bytes));
            continue;
        };
        if let Some(ours) = table.median((LOSS, &of(OURS))) {
            worst = Some(worst.map_or(ours - best, |worst| worst.max(ours - best)));
        }
    }
    Bar { name: "live_store_loss", value: worst, limit: Limit::AtMost(0.0), faults }
}

/// Programs with their settings.
pub fn settings() -> Value {
    let peers: Vec<String> = PEERS.iter().map(Peer::command_line).collect();
    json!({
        "ours": captures::our_stored_command_line(),
        "peers, with a file in the place of /dev/null": peers,
        "packages": peers::versions(),
    })
}

fn leave_out(why: &str, table: &mut Table) {
    for name in [OURS, INDEXES] {
        table.leave_out(NS, &row_of(&PACED, name), "ns", why);
    }
    for load in &FLAT_OUT {
        table.leave_out(LOSS, &row_of(load, OURS), "%", why);
    }
}

/// One load with nobody, with us and with `peers`; who begins changes from round to round.
fn measure_load(stand: &Stand, load: &Load, peers: &[&Peer], scale: Scale, table: &mut Table) {
    let span = scale.span.mul_f64(load.spans);
    let sender = Sender::open(stand.lab.a(), "va", &Packets::new(Sizes::Fixed(load.bytes)));
    let mut sender = match sender {
        Ok(sender) => sender,
        Err(error) => return table.put(NS, &row_of(load, OURS), "ns", Err(format!("{error:#}"))),
    };
    let idle = captures::idle(stand, &mut sender, load.pace, span).map_err(|error| format!("{error:#}"));
    let mut programs: Vec<Option<&Peer>> =
        std::iter::once(None).chain(peers.iter().map(|peer| Some(*peer))).collect();
    let first = table.round() % programs.len();
    programs.rotate_left(first);
    let capture = |program: Option<&Peer>, sender: &mut Sender| {
        let capture = match program {
            None => ours(stand, sender, load, span),
            Some(peer) => captures::of_peer(peer, stand, sender, load.pace, span, Output::Disk),
        };
        capture.map_err(|error| format!("{error:#}"))
    };
    let outcomes: Vec<(Option<&Peer>, Result<Capture, String>)> =
        programs.into_iter().map(|program| (program, capture(program, &mut sender))).collect();
    let ours =
        outcomes.iter().find(|(program, _)| program.is_none()).and_then(|(_, ours)| ours.as_ref().ok());
    for (program, outcome) in &outcomes {
        let of = row_of(load, program.map_or(OURS, |peer| peer.name));
        let figure = |figure: &dyn Fn(&Capture) -> f64| outcome.as_ref().map(figure).map_err(String::clone);
        let compared = ours.map_or(Ok(()), |ours| check_rates(load, ours, outcome.as_ref().ok()));
        let ns = compared
            .and(idle.clone())
            .and_then(|(_, idle_ns)| figure(&|capture| capture.ns_per_packet(idle_ns)));
        table.put(NS, &of, "ns", ns);
        table.put(OWN_NS, &of, "ns", figure(&Capture::own_ns_per_packet));
        table.put(LOSS, &of, "%", figure(&Capture::loss_percent));
        table.put(SENT, &of, "packets/s", figure(&|capture| capture.sent.per_second()));
    }
}

fn ours(stand: &Stand, sender: &mut Sender, load: &Load, span: Duration) -> Result<Capture> {
    let folder = stand.workspace.out_folder()?;
    captures::ours_stored(stand, sender, load.pace, span, folder.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_held_against_the_peer_that_loses_least_at_the_worst_size() {
        let mut table = Table::default();
        for (load, own) in FLAT_OUT.iter().zip([1.0, 2.0, 5.0, 9.0]) {
            for (name, loss) in [(OURS, own), ("dumpcap", 9.0), ("stenotype", 3.0)] {
                table.put(LOSS, &row_of(load, name), "%", Ok(loss));
            }
        }
        let bar = loss(&table);
        assert_eq!((bar.value, bar.holds()), (Some(6.0), false));
        assert!(bar.faults.is_empty());
    }
}
