//! `forward_loss`: packets that a run was to send out of another interface, and that didn't come.
//!
//! ```text
//! sender (namespace a) ──► va ═ vb ──► run ──► group, steer=all ──► forward ──► vb1 ═ va1: counted
//! ```

use super::attached::{GROUP, group_of};
use super::live_rows::Stand;
use crate::Scale;
use crate::cores::cores;
use crate::live::received;
use crate::live::sender::{Pace, Sender};
use crate::table::{Key, Table};
use crate::wirescope::Run;
use anyhow::{Context, Result, anyhow, ensure};
use scope_measure::{Packets, Sizes};
use std::time::Duration;

/// Packets.
pub const FORWARD: Key<'static> = ("forward_loss", "100 k/s of 512 B");

const PACE: Pace = Pace::PerSecond(100_000);
const BYTES: usize = 512;
/// How long the sender sleeps where nothing is due.
const REST: Duration = Duration::from_micros(200);
/// Spans of the scale.
const SPANS: u32 = 5;
const SETTLE: Duration = Duration::from_millis(500);
const END_LIMIT: Duration = Duration::from_secs(30);

/// How many were lost: once.
pub fn measure(stand: &Stand, scale: Scale, table: &mut Table) {
    let value = lost(stand, scale.span * SPANS).map_err(|error| format!("{error:#}"));
    table.put(FORWARD.0, FORWARD.1, "packets", value.map(|lost| lost as f64));
}

fn lost(stand: &Stand, span: Duration) -> Result<u64> {
    let (far, near) = stand.lab.another_link().map_err(|said| anyhow!(said))?;
    let to = format!("all={near}");
    let words = ["-i", "vb", "--ring", "256MiB", "--group", "all,steer=all", "--forward", &to];
    let mut run = Run::start(stand.workspace, Some(stand.lab.b()), &words)?;
    run.wait_started()?;
    let packets = Packets::new(Sizes::Fixed(BYTES));
    let mut sender = Sender::open(stand.lab.a(), "va", &packets)?.urgent().resting(REST);
    std::thread::sleep(SETTLE);
    let before = received(stand.lab.a(), &far)?;
    let sent = sender.send_for(cores()[0], PACE, span)?;
    std::thread::sleep(SETTLE);
    run.interrupt()?;
    let finished = run.finish(END_LIMIT)?;
    let came = received(stand.lab.a(), &far)? - before;
    let (seen, dropped) = (finished.received(), finished.dropped());
    ensure!(
        seen + dropped == sent.packets,
        "{seen} packets seen and {dropped} lost of {} sent",
        sent.packets
    );
    if came < sent.packets {
        let forwards = &group_of(&finished.summary["groups"], GROUP)?["forwards"];
        eprintln!(
            "forward_loss: {came} packets came of {}; {dropped} lost by capture; {forwards}",
            sent.packets
        );
    }
    sent.packets.checked_sub(came).with_context(|| format!("{came} packets came of {}", sent.packets))
}
