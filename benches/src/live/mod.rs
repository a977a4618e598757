//! The part `live`: loss and processor time per packet on a veth pair, against other programs that capture;
//! what reloads and an interface that goes down and up cost; and which rights are left.
//!
//! ```text
//!  sender, on the last core (namespace a)            capture, on the first core (namespace b)
//!  ring of 512 frames, send ──► va ═ vb ──► softirq: copy into the capture's ring ──► program
//! ```
//! Each round runs every load with every program, one at a time; who begins changes from round to round. A
//! program's time per packet is its own processor time and what `/proc/stat` shows as soft interrupts above a
//! run of the same load in which a socket is open that hears nothing, by the packets it saw. On veth the copy
//! into the kernel's ring is made on the sender's core and slows the sender down: what it achieved is a row,
//! too.

mod bars;
pub mod captures;
mod flap_row;
mod link;
mod peers;
mod reload_row;
mod rights_row;
pub mod sender;
pub mod store_rows;

use crate::Scale;
use crate::cores::cores;
use crate::main_part;
use crate::record::{Bar, Record};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use captures::Capture;
pub use flap_row::flap;
pub use link::{is_heard, listeners, processor_time, received};
pub use peers::candidate;
use peers::{Output, PEERS};
pub use reload_row::Config;
use scope_measure::{Packets, Sizes};
use scope_testkit::lab::Lab;
use sender::{Pace, Sender};
use serde_json::json;
use std::time::Duration;

/// Ours in the rows.
const OURS: &str = "wirescope";
/// The rows that are measured once.
const RELOAD: &str = "100 reloads at 200 k packets/s";
const FLAP: &str = "50 times down and up";
const RIGHTS: &str = "a run that captures";
/// Of what a program said, so many characters are repeated.
const WORDS_MAX: usize = 300;
/// Offered rates that are compared may differ by so much.
const RATES_DIFFER_MAX: f64 = 0.05;

/// What a program says it saw, and what it says it lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    seen: u64,
    lost: u64,
}

/// One kind of traffic.
struct Load {
    bytes: usize,
    pace: Pace,
    /// How long, by the scale's span: those with a bar take longer.
    spans: f64,
}

/// At a rate most of the time goes by idly, so soft interrupts, which the system samples, need longer than
/// flat out.
const LOADS: [Load; 8] = [
    Load { bytes: 64, pace: Pace::PerSecond(400_000), spans: 0.25 },
    Load { bytes: 64, pace: Pace::FlatOut, spans: 0.5 },
    Load { bytes: 128, pace: Pace::PerSecond(400_000), spans: 0.25 },
    Load { bytes: 128, pace: Pace::FlatOut, spans: 0.25 },
    Load { bytes: 512, pace: Pace::PerSecond(300_000), spans: 3.0 },
    Load { bytes: 512, pace: Pace::FlatOut, spans: 1.0 },
    Load { bytes: 1500, pace: Pace::PerSecond(200_000), spans: 0.25 },
    Load { bytes: 1500, pace: Pace::FlatOut, spans: 0.25 },
];

impl Load {
    fn is_flat_out(&self) -> bool {
        self.pace == Pace::FlatOut
    }
}

/// What a row of this load and program is of.
fn row_of(load: &Load, program: &str) -> String {
    match load.pace {
        Pace::FlatOut => format!("{} B flat out, {program}", load.bytes),
        Pace::PerSecond(rate) => format!("{} B at {} k/s, {program}", load.bytes, rate / 1000),
    }
}

/// Where it happens.
pub struct Stand<'a> {
    /// Paths.
    pub workspace: &'a Workspace,
    /// The two namespaces.
    pub lab: &'a Lab,
    /// The core that captures, and the one that sends.
    pub capture_core: usize,
    /// See `capture_core`.
    pub sender_core: usize,
}

impl<'a> Stand<'a> {
    /// The first core captures, the last one sends.
    pub fn new(workspace: &'a Workspace, lab: &'a Lab) -> Result<Stand<'a>, String> {
        match cores()[..] {
            [capture_core, .., sender_core] => Ok(Stand { workspace, lab, capture_core, sender_core }),
            _ => Err("skipped: needs two cores".to_string()),
        }
    }
}

/// Measures everything and adds it to `record`.
///
/// # Errors
/// The system's, before the first round. What goes wrong later is a fault of its row.
pub fn measure(workspace: &Workspace, scale: Scale, record: &mut Record) -> Result<()> {
    let lab = main_part::lab();
    match lab.as_ref().map_err(String::clone).and_then(|lab| Stand::new(workspace, lab)) {
        Ok(stand) => measure_on(&stand, scale, record),
        Err(why) => {
            leave_out(&why, record);
            Ok(())
        }
    }
}

fn measure_on(stand: &Stand, scale: Scale, record: &mut Record) -> Result<()> {
    let mut table = Table::default();
    for round in 0..scale.rounds {
        eprintln!("round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        for load in &LOADS {
            measure_load(stand, load, scale, &mut table).with_context(|| row_of(load, "sender"))?;
        }
    }
    eprintln!("reloads, flaps, rights");
    let put = |outcome: Result<u64>| outcome.map(|count| count as f64).map_err(|error| format!("{error:#}"));
    table.put("reload_loss", RELOAD, "packets", put(reload_row::lost(stand)));
    table.put("interface_flap_loss", FLAP, "packets", put(flap_row::lost(stand)));
    table.put("rights", RIGHTS, "", put(rights_row::hold(stand)));
    record.bars.extend(bars::bars(&table));
    record.machine.insert("live".to_string(), settings(stand));
    table.finish(record);
    Ok(())
}

fn leave_out(why: &str, record: &mut Record) {
    let bar = |bar: Bar| Bar { faults: vec![why.to_string()], ..bar };
    record.bars.extend(bars::bars(&Table::default()).into_iter().map(bar));
}

/// Programs with their versions and settings.
fn settings(stand: &Stand) -> serde_json::Value {
    let peers: Vec<String> = PEERS.iter().map(peers::Peer::command_line).collect();
    json!({
        "capture_core": stand.capture_core,
        "sender_core": stand.sender_core,
        "ours": captures::our_command_line(),
        "peers": peers,
        "packages": peers::versions(),
    })
}

/// One load with nobody, with us and with every peer.
fn measure_load(stand: &Stand, load: &Load, scale: Scale, table: &mut Table) -> Result<()> {
    let span = scale.span.mul_f64(load.spans);
    let mut sender = Sender::open(stand.lab.a(), "va", &Packets::new(Sizes::Fixed(load.bytes)))?;
    let idle = captures::idle(stand, &mut sender, load.pace, span).map_err(|error| format!("{error:#}"));
    table.put(
        "live_sent",
        &row_of(load, "nobody"),
        "packets/s",
        idle.clone().map(|(sent, _)| sent.per_second()),
    );
    table.put("live_ns", &row_of(load, "softirq, nobody"), "ns", idle.clone().map(|(_, idle_ns)| idle_ns));
    let mut programs: Vec<Program> =
        std::iter::once(Program::Ours).chain((0..PEERS.len()).map(Program::Peer)).collect();
    let first = table.round() % programs.len();
    programs.rotate_left(first);
    let outcomes: Vec<(Program, Result<Capture, String>)> = programs
        .into_iter()
        .map(|program| (program, program.capture(stand, &mut sender, load, span)))
        .collect();
    let ours = outcomes
        .iter()
        .find(|(program, _)| *program == Program::Ours)
        .and_then(|(_, outcome)| outcome.as_ref().ok());
    for (program, outcome) in &outcomes {
        let of = row_of(load, program.name());
        let figure = |figure: &dyn Fn(&Capture) -> f64| outcome.as_ref().map(figure).map_err(String::clone);
        let compared = ours.map_or(Ok(()), |ours| check_rates(load, ours, outcome.as_ref().ok()));
        let ns = compared
            .and(idle.clone())
            .and_then(|(_, idle_ns)| figure(&|capture| capture.ns_per_packet(idle_ns)));
        table.put("live_ns", &of, "ns", ns);
        table.put("live_own_ns", &of, "ns", figure(&Capture::own_ns_per_packet));
        table.put("live_loss", &of, "%", figure(&Capture::loss_percent));
        table.put("live_sent", &of, "packets/s", figure(&|capture| capture.sent.per_second()));
    }
    Ok(())
}

/// Times per packet are compared at the same rate only.
fn check_rates(load: &Load, ours: &Capture, other: Option<&Capture>) -> Result<(), String> {
    let Some(other) = other else { return Ok(()) };
    let differ = (other.sent.per_second() / ours.sent.per_second() - 1.0).abs();
    if load.is_flat_out() || differ <= RATES_DIFFER_MAX {
        return Ok(());
    }
    Err(format!(
        "offered rates differ by {:.0} %: {:.0} and {:.0} packets/s",
        differ * 100.0,
        other.sent.per_second(),
        ours.sent.per_second()
    ))
}

/// The capturing program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Ours,
    Peer(usize),
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::Ours => OURS,
            Program::Peer(index) => PEERS[index].name,
        }
    }

    fn capture(
        self,
        stand: &Stand,
        sender: &mut Sender,
        load: &Load,
        span: Duration,
    ) -> Result<Capture, String> {
        let capture = match self {
            Program::Ours => captures::ours(stand, sender, load.pace, span),
            Program::Peer(index) => {
                captures::of_peer(&PEERS[index], stand, sender, load.pace, span, Output::Nowhere)
            }
        };
        capture.map_err(|error| format!("{error:#}"))
    }
}
