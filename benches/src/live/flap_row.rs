//! `interface_flap_loss`: packets lost beyond those sent while the interface was down, in fifty times down
//! and up.
//!
//! 20 k packets/s go on while it goes down and stays down. They pause for the moment in which it comes up: in
//! between the kernel's marking it up and its handing packets to sockets, nobody can have them. What arrived
//! is what the kernel counts as received by the interface: it counts none while that is down.

use super::Stand;
use super::captures::{OUR_END_LIMIT, on_core};
use super::link::received;
use super::sender::{Pace, Quiet, Sender, while_sending};
use crate::wirescope::Run;
use anyhow::{Result, anyhow, ensure};
use scope_measure::{Packets, Sizes};
use std::time::Duration;

const FLAPS: usize = 50;
const RATE: u32 = 20_000;
/// How long it stays up and down.
const UP: Duration = Duration::from_millis(60);
const DOWN: Duration = Duration::from_millis(20);
const SETTLE: Duration = Duration::from_millis(300);

/// Takes `vb` down for a while and up again, while `quiet` keeps the sender from sending.
///
/// # Errors
/// What `ip` said.
pub fn flap(stand: &Stand, quiet: &Quiet) -> Result<()> {
    let set = |state| stand.lab.b().ip(&["link", "set", "vb", state]).map_err(|said| anyhow!(said));
    set("down")?;
    std::thread::sleep(DOWN);
    quiet.during(|| set("up"))
}

/// How many packets were lost.
///
/// # Errors
/// What failed, and what doesn't add up.
pub fn lost(stand: &Stand) -> Result<u64> {
    let mut run = on_core(stand, || {
        Run::start(stand.workspace, Some(stand.lab.b()), &["-i", "vb", "--ring", "256MiB"])
    })?;
    run.wait_started()?;
    std::thread::sleep(SETTLE);
    let before = received(stand.lab.b(), "vb")?;
    let mut sender = Sender::open(stand.lab.a(), "va", &Packets::new(Sizes::Fixed(128)))?;
    let quiet = Quiet::default();
    let ((), sent) = while_sending(&mut sender, stand.sender_core, Pace::PerSecond(RATE), &quiet, || {
        (0..FLAPS).try_for_each(|_| {
            std::thread::sleep(UP);
            flap(stand, &quiet)
        })?;
        std::thread::sleep(UP);
        Ok(())
    })?;
    std::thread::sleep(SETTLE);
    let arrived = received(stand.lab.b(), "vb")? - before;
    run.interrupt()?;
    let finished = run.finish(OUR_END_LIMIT)?;
    let least = (UP.as_secs_f64() * f64::from(RATE) * FLAPS as f64 * 0.8) as u64;
    ensure!(
        arrived <= sent.packets && arrived >= least,
        "{arrived} packets arrived of {} sent",
        sent.packets
    );
    let seen = finished.received();
    ensure!(seen <= arrived, "{seen} packets seen where {arrived} arrived");
    Ok(arrived - seen)
}
