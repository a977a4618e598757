//! A live run under load of its clients: how long a status takes, and what capture lost and cost beside them and without.

use super::door::{Door, Tokens};
use super::{bare, clients, load};
use crate::Scale;
use crate::live::Stand;
use crate::live::captures::{self, Capture};
use crate::live::sender::{Pace, Sender};
use crate::main_part;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use clients::{Came, Ways};
use load::Answers;
use scope_measure::{Packets, Sizes};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Rows, and what each is of.
pub const STATUS: &str = "status_ms";
pub const P99: &str = "p99, beside slow and broken clients";
const MEDIAN: &str = "median, beside them";
const BARE_P99: &str = "p99, a bare server of the same library beside them";
pub const LOST: &str = "capture_beside_clients";
pub const LOST_BESIDE: &str = "packets lost beside clients";
pub const LOST_ALONE: &str = "packets lost without";
const OWN_BESIDE: &str = "processor time of the run beside clients";
const OWN_ALONE: &str = "processor time of the run without";
const CAME: &str = "connections of broken clients";
pub const MEMORY: &str = "client_memory_mib";
pub const GROWTH: &str = "growth of the run and of the door in front of it";
const PACKET_BYTES: usize = 512;
const PACE: Pace = Pace::PerSecond(50_000);
/// Where its state is asked for.
const STATUS_PATH: &str = "/api/v1/status";
/// Memory is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// As long as a status, some bytes.
const BODY_BYTES: usize = 4096;
/// The bare server is asked for so long at most: it is recorded only.
const BARE_SPAN: Duration = Duration::from_secs(20);
/// Clients are gone so long before the last packet.
const EARLIER: Duration = Duration::from_millis(500);

/// What is sent.
pub fn traffic() -> String {
    format!("veth, 50,000 packets/s of {PACKET_BYTES} B")
}

/// All rounds; where there is no lab, why.
pub fn measure(workspace: &Workspace, scale: Scale, table: &mut Table) {
    let lab = main_part::lab();
    let stand = lab.as_ref().map_err(String::clone).and_then(|lab| Stand::new(workspace, lab));
    let stand = match stand {
        Ok(stand) => stand,
        Err(why) => return leave_out(&why, table),
    };
    let packets = Packets::new(Sizes::Fixed(PACKET_BYTES));
    let mut sender = match Sender::open(stand.lab.a(), "va", &packets).map(Sender::urgent) {
        Ok(sender) => sender,
        Err(error) => return leave_out(&format!("{error:#}"), table),
    };
    for round in 0..scale.rounds {
        eprintln!("clients, round {} of {}", round + 1, scale.rounds);
        table.begin_round(round);
        for beside in [round % 2 == 0, round % 2 != 0] {
            match beside {
                true => put_beside(table, captured_beside(workspace, &stand, &mut sender, scale.api_span)),
                false => {
                    let capture =
                        captures::ours_while(&stand, &mut sender, PACE, scale.api_span, |_, _| Ok(()));
                    put_capture(table, LOST_ALONE, OWN_ALONE, &capture.map(|(capture, ())| capture));
                }
            }
        }
        let bare = bare_p99(workspace, scale.api_span.min(BARE_SPAN));
        table.put(STATUS, BARE_P99, "ms", bare.map_err(|error| format!("{error:#}")));
    }
}

fn leave_out(why: &str, table: &mut Table) {
    table.leave_out(STATUS, P99, "ms", why);
    table.leave_out(LOST, LOST_BESIDE, "packets", why);
    table.leave_out(LOST, LOST_ALONE, "packets", why);
    table.leave_out(MEMORY, GROWTH, "MiB", why);
}

/// What was seen of a run beside clients.
struct Beside {
    answers: Answers,
    came: Came,
    growth_mib: f64,
}

fn put_beside(table: &mut Table, both: Result<(Capture, Beside)>) {
    let beside = both.as_ref().map(|(_, beside)| beside).map_err(|error| format!("{error:#}"));
    let figure = |figure: &dyn Fn(&Beside) -> f64| beside.clone().map(figure);
    table.put(STATUS, P99, "ms", figure(&|beside| beside.answers.within_ms(0.99)));
    table.put(STATUS, MEDIAN, "ms", figure(&|beside| beside.answers.within_ms(0.5)));
    table.put(LOST, CAME, "", figure(&|beside| beside.came.broken as f64));
    table.put(MEMORY, GROWTH, "MiB", figure(&|beside| beside.growth_mib));
    put_capture(table, LOST_BESIDE, OWN_BESIDE, &both.map(|(capture, _)| capture));
}

fn put_capture(table: &mut Table, lost: &str, own: &str, capture: &Result<Capture>) {
    let figure =
        |figure: &dyn Fn(&Capture) -> f64| capture.as_ref().map(figure).map_err(|error| format!("{error:#}"));
    table.put(LOST, lost, "packets", figure(&|capture| capture.lost() as f64));
    table.put(LOST, own, "ns/packet", figure(&Capture::own_ns_per_packet));
}

fn captured_beside(
    workspace: &Workspace,
    stand: &Stand,
    sender: &mut Sender,
    span: Duration,
) -> Result<(Capture, Beside)> {
    let tokens = Tokens::new(workspace)?;
    let token = tokens.add(&["--role", "viewer", "--name", "slow"])?;
    captures::ours_while(stand, sender, PACE, span, |run, is_over| {
        let door = Door::open(workspace, &run.socket(), &tokens.path(), &[])?;
        let ways = Ways { socket: &run.socket(), door: Some((&door.address, &token)) };
        let both_kib = || Ok(run.resident_kib()? + door.resident_kib()?);
        let before = both_kib()?;
        let (answers, came, most) =
            under_load(ways, STATUS_PATH, span.saturating_sub(EARLIER), is_over, Some(&both_kib))?;
        let status: Value = serde_json::from_slice(&answers.last).context("the last status")?;
        ensure!(status["received"]["packets"].as_u64() > Some(0), "a status without packets: {status}");
        let growth_mib = most.saturating_sub(before) as f64 / 1024.0;
        Ok(Beside { answers, came, growth_mib })
    })
}

/// Asks beside all clients for so long; with it, the most memory that was seen, KiB.
fn under_load(
    ways: Ways<'_>,
    path: &str,
    span: Duration,
    is_over: &AtomicBool,
    memory_kib: Option<&(dyn Fn() -> Result<u64> + Sync)>,
) -> Result<(Answers, Came, u64)> {
    let is_asked = AtomicBool::new(false);
    let (begin, begun) = mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        let clients = scope.spawn(|| {
            clients::bother(ways, &is_asked, move || {
                let _ = begin.send(()); // who waits for it is there
            })
        });
        let memory = scope.spawn(|| {
            let mut most = 0;
            while let Some(memory_kib) = memory_kib.filter(|_| !is_asked.load(Ordering::Relaxed)) {
                most = most.max(memory_kib().unwrap_or(0));
                std::thread::sleep(LOOK_EVERY);
            }
            most
        });
        let answers = match begun.recv() {
            Ok(()) => load::ask(ways.socket, path, span),
            Err(_) => Err(anyhow::anyhow!("no client got in")),
        };
        let in_time = !is_over.load(Ordering::Relaxed) || memory_kib.is_none();
        is_asked.store(true, Ordering::Relaxed);
        let came = clients.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let most = memory.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let answers = answers?;
        let due = span.as_secs_f64() * f64::from(load::PER_SECOND);
        ensure!(answers.count() as f64 >= due - 1.0, "{} answers of {due}", answers.count());
        ensure!(in_time, "the load was longer than the traffic");
        ensure!(came.broken >= clients::BROKEN, "only {came:?}");
        Ok((answers, came, most))
    });
    outcome.context("the load")
}

/// The same load on a server that only answers.
fn bare_p99(workspace: &Workspace, span: Duration) -> Result<f64> {
    let folder = workspace.out_folder()?;
    let socket = folder.path().join("bare.sock");
    bare::during(&socket, vec![b' '; BODY_BYTES], || {
        let ways = Ways { socket: &socket, door: None };
        let (answers, ..) = under_load(ways, "/", span, &AtomicBool::new(false), None)?;
        Ok(answers.within_ms(0.99))
    })
}
