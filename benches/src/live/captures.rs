//! One capture of one program: what was sent, what it saw and lost, what it cost.

use super::link::{is_heard, processor_time, softirq};
use super::peers::{Output, Peer, PeerRun};
use super::sender::{Pace, Sender, Sent};
use super::{Counted, Stand};
use crate::cores::stay_on;
use crate::wirescope::{Finished, Run};
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::RawSender;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A program may take so long until it captures.
const START_LIMIT: Duration = Duration::from_secs(20);
/// It is given so long before the first packet.
const SETTLE_BEFORE: Duration = Duration::from_millis(200);
/// Ours is given so long behind the last packet: many times the time-out of its blocks.
const SETTLE_BEHIND: Duration = Duration::from_millis(200);
/// Ours: a ring, keys, one trigger; none of the packets is for this port.
const OURS: [&str; 6] = ["-i", "vb", "--ring", "256MiB", "--trigger", "udp dst port 9"];
/// The same with a store, which may hold half of the ring while its disk is slow.
const OURS_STORED: [&str; 8] =
    ["-i", "vb", "--ring", "256MiB", "--trigger", "udp dst port 9", "--store-behind", "50%"];
/// With a store: until what was flushed a second later is on the disk.
const SETTLE_STORED: Duration = Duration::from_millis(1300);
/// A run of ours may take so long to end.
pub const OUR_END_LIMIT: Duration = Duration::from_secs(30);

/// Our command line, for the record.
pub fn our_command_line() -> String {
    format!("wirescope run {}", OURS.join(" "))
}

/// The same with a store.
pub fn our_stored_command_line() -> String {
    format!("wirescope run {} --store FOLDER", OURS_STORED.join(" "))
}

/// What one capture yielded.
#[derive(Clone, Copy, Debug)]
pub struct Capture {
    /// What was sent while it ran.
    pub sent: Sent,
    /// What the program says it saw and lost.
    pub counted: Counted,
    /// Processor time of the program, and of all soft interrupts of the machine meanwhile.
    pub own: Duration,
    /// See `own`.
    pub softirq: Duration,
}

impl Capture {
    /// Whether what was seen and what was lost are what was sent.
    fn checked(self) -> Result<Capture> {
        let Counted { seen, lost } = self.counted;
        let sent = self.sent.packets;
        ensure!(seen + lost == sent, "{seen} packets seen and {lost} lost of {sent} sent");
        ensure!(seen > 0, "no packet seen");
        Ok(self)
    }

    /// Packets lost.
    pub fn lost(&self) -> u64 {
        self.counted.lost
    }

    /// Packets lost of those sent, %.
    pub fn loss_percent(&self) -> f64 {
        self.counted.lost as f64 / self.sent.packets as f64 * 100.0
    }

    /// The process's own processor time per packet seen, ns.
    pub fn own_ns_per_packet(&self) -> f64 {
        self.own.as_nanos() as f64 / self.counted.seen as f64
    }

    /// Processor time per packet seen, ns; `idle_ns` is what soft interrupts take per packet sent while
    /// nobody captures.
    pub fn ns_per_packet(&self, idle_ns: f64) -> f64 {
        let softirq = self.softirq.as_nanos() as f64 - idle_ns * self.sent.packets as f64;
        self.own_ns_per_packet() + softirq / self.counted.seen as f64
    }
}

/// What was sent, and what it cost.
struct Spent {
    sent: Sent,
    own: Duration,
    softirq: Duration,
}

impl Spent {
    fn of(self, counted: Counted) -> Capture {
        Capture { sent: self.sent, counted, own: self.own, softirq: self.softirq }
    }
}

/// Soft interrupts per packet while a socket is open that hears nothing, ns.
///
/// # Errors
/// The system's.
pub fn idle(stand: &Stand, sender: &mut Sender, pace: Pace, span: Duration) -> Result<(Sent, f64)> {
    let _idle = RawSender::open(stand.lab.b(), "vb")?;
    let before = softirq()?;
    let sent = sender.send_for(stand.sender_core, pace, span)?;
    let spent = softirq()? - before;
    ensure!(sent.packets > 0, "nothing was sent");
    Ok((sent, spent.as_nanos() as f64 / sent.packets as f64))
}

/// Ours, into its ring.
///
/// # Errors
/// What failed, and what doesn't add up.
pub fn ours(stand: &Stand, sender: &mut Sender, pace: Pace, span: Duration) -> Result<Capture> {
    ours_while(stand, sender, pace, span, |_, _| Ok(())).map(|(capture, ())| capture)
}

/// The same while `beside` goes on, in a thread of its own from before the first packet on: the flag says that the last one
/// was sent.
///
/// # Errors
/// What failed, and what doesn't add up.
pub fn ours_while<T: Send>(
    stand: &Stand,
    sender: &mut Sender,
    pace: Pace,
    span: Duration,
    beside: impl FnOnce(&Run, &AtomicBool) -> Result<T> + Send,
) -> Result<(Capture, T)> {
    let (spent, finished, beside) = our_run(stand, sender, pace, span, &OURS, SETTLE_BEHIND, beside)?;
    let counted = Counted { seen: finished.received(), lost: finished.dropped() };
    Ok((spent.of(counted).checked()?, beside))
}

/// Ours, into its ring and onto the disk, below `folder`: what isn't on the disk in the end is lost.
///
/// # Errors
/// What failed, and what doesn't add up.
pub fn ours_stored(
    stand: &Stand,
    sender: &mut Sender,
    pace: Pace,
    span: Duration,
    folder: &Path,
) -> Result<Capture> {
    let store = folder.to_str().context("the folder's path is no UTF-8")?;
    let arguments = [&OURS_STORED[..], &["--store", store]].concat();
    let (spent, finished, ()) = our_run(stand, sender, pace, span, &arguments, SETTLE_STORED, |_, _| Ok(()))?;
    let volume = &finished.summary["stores"][0];
    let [stored, missed] = ["stored", "missed"].map(|key| volume[key]["packets"].as_u64().unwrap_or(0));
    ensure!(
        stored + missed == finished.received(),
        "{stored} packets stored and {missed} missed of {} received",
        finished.received()
    );
    spent.of(Counted { seen: stored, lost: finished.dropped() + missed }).checked()
}

/// A run of ours with these arguments, while `beside` goes on; what it received, it had stored in its ring.
fn our_run<T: Send>(
    stand: &Stand,
    sender: &mut Sender,
    pace: Pace,
    span: Duration,
    arguments: &[&str],
    settle: Duration,
    beside: impl FnOnce(&Run, &AtomicBool) -> Result<T> + Send,
) -> Result<(Spent, Finished, T)> {
    let mut run = on_core(stand, || Run::start(stand.workspace, Some(stand.lab.b()), arguments))?;
    run.wait_started()?;
    let is_over = AtomicBool::new(false);
    let (spent, beside) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| beside(&run, &is_over));
        let spent = measured(stand, sender, pace, span, run.id(), settle);
        is_over.store(true, Ordering::Relaxed);
        let beside = beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (spent, beside)
    });
    let (spent, beside) = (spent?, beside?);
    run.interrupt()?;
    let finished = run.finish_worn(OUR_END_LIMIT)?; // a store that missed packets says so by its exit code
    ensure!(finished.hits_total() == 0, "{} hits of a trigger that must not fire", finished.hits_total());
    ensure!(
        finished.summary["stored"]["packets"] == finished.received(),
        "not every packet was stored: {}",
        finished.summary["stored"]
    );
    Ok((spent, finished, beside))
}

/// A peer's.
///
/// # Errors
/// What failed, and what doesn't add up.
pub fn of_peer(
    peer: &Peer,
    stand: &Stand,
    sender: &mut Sender,
    pace: Pace,
    span: Duration,
    output: Output,
) -> Result<Capture> {
    let start = || peer.start(stand.workspace, stand.lab.b(), stand.capture_core, output);
    let mut run = on_core(stand, start)?;
    wait_until_heard(stand, &mut run)?;
    let spent = measured(stand, sender, pace, span, run.id(), peer.settle)?;
    spent.of(run.finish()?).checked()
}

/// What is started here, and all its threads, stays on the capturing core.
///
/// # Errors
/// Those of `start`.
pub fn on_core<T: Send>(stand: &Stand, start: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let task = || {
        stay_on(stand.capture_core);
        start()
    };
    std::thread::scope(|scope| scope.spawn(task).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn wait_until_heard(stand: &Stand, run: &mut PeerRun) -> Result<()> {
    let begun = Instant::now();
    while !is_heard(stand.lab.b()) {
        run.check_alive()?;
        ensure!(begun.elapsed() < START_LIMIT, "it doesn't capture within {START_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Sends, and looks at the clocks: soft interrupts while packets are sent, the program until it has taken the
/// last ones.
fn measured(
    stand: &Stand,
    sender: &mut Sender,
    pace: Pace,
    span: Duration,
    pid: u32,
    settle: Duration,
) -> Result<Spent> {
    std::thread::sleep(SETTLE_BEFORE);
    let (own_before, softirq_before) = (processor_time(pid)?, softirq()?);
    let sent = sender.send_for(stand.sender_core, pace, span)?;
    let softirq = softirq()? - softirq_before;
    std::thread::sleep(settle);
    Ok(Spent { sent, own: processor_time(pid)? - own_before, softirq })
}
