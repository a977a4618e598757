//! Frames for the live rows: numbered UDP packets between two hosts, some of which are trigger packets; sent
//! at set moments.

use crate::traffic::length;
use crate::wirescope::Run;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::{Lab, RawSender};
use scope_testkit::traffic::frame::{on_link, udp};
use scope_testkit::traffic::{ETHERNET, Random};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The trigger of the live rows.
pub const TRIGGER: &str = "udp dst port 60000";
/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADER_BYTES: usize = 14 + 20 + 8;
/// The kernel's ring and the workers are given so long before the first packet and behind the last one.
const SETTLE: Duration = Duration::from_millis(200);

/// One packet to be sent.
#[derive(Clone, Debug)]
pub struct Shot {
    /// When, from the first one.
    pub at: Duration,
    /// Whether it is a trigger packet.
    pub is_trigger: bool,
}

/// The frame of packet `number`.
pub fn frame(number: u64, is_trigger: bool, random: &mut Random) -> Vec<u8> {
    let (from, to) =
        if is_trigger { ("10.0.1.1:5000", "10.0.1.2:60000") } else { ("10.0.0.1:4000", "10.0.0.2:5000") };
    let mut payload = number.to_be_bytes().to_vec();
    let rest = length(random) - HEADER_BYTES - payload.len();
    payload.extend(random.bytes(rest));
    on_link(ETHERNET, &[], &udp(from.parse().expect("an address"), to.parse().expect("an address"), &payload))
}

/// The number that [`frame`] wrote into a packet; `None` where it is none of those.
pub fn number_of(frame: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(frame.get(HEADER_BYTES..HEADER_BYTES + 8)?.try_into().ok()?))
}

/// Whether [`frame`] made a trigger packet of it.
pub fn is_trigger(frame: &[u8]) -> bool {
    frame.get(36..38) == Some(&60_000u16.to_be_bytes())
}

/// The wall clock, ns since the epoch: the clock of the kernel's time stamps.
fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// Starts a run with [`TRIGGER`] on `vb` inside the lab and waits until it captures.
///
/// # Errors
/// What it said.
pub fn start_on(lab: &Lab, workspace: &Workspace, arguments: &[&str]) -> Result<Run> {
    start_with(lab, workspace, &[&["--trigger", TRIGGER], arguments].concat())
}

/// The same with no triggers but those among the arguments.
///
/// # Errors
/// What it said.
pub fn start_with(lab: &Lab, workspace: &Workspace, arguments: &[&str]) -> Result<Run> {
    let mut run = Run::start(workspace, Some(lab.b()), &[&["-i", "vb"], arguments].concat())?;
    run.wait_started()?;
    std::thread::sleep(SETTLE);
    Ok(run)
}

/// Sends `shots` from `va`, each at its moment; returns when each was handed to the kernel, ns since the
/// epoch.
///
/// # Errors
/// The system's.
pub fn send(lab: &Lab, shots: &[Shot]) -> Result<Vec<i64>> {
    let sender = RawSender::open(lab.a(), "va").context("sending on va")?;
    let mut random = Random::new(1);
    let frames: Vec<Vec<u8>> =
        (0u64..).zip(shots).map(|(number, shot)| frame(number, shot.is_trigger, &mut random)).collect();
    let mut sent_ns = Vec::with_capacity(shots.len());
    let begun = Instant::now();
    for (shot, frame) in shots.iter().zip(&frames) {
        let wait = shot.at.saturating_sub(begun.elapsed());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        sent_ns.push(now_ns());
        let sent = sender.send(std::slice::from_ref(frame)).context("sending on va")?;
        ensure!(sent == 1, "packet {} was not sent", sent_ns.len());
    }
    std::thread::sleep(SETTLE);
    Ok(sent_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_bears_its_number_and_kind() {
        let mut random = Random::new(3);
        for (number, trigger) in [(0, false), (77, true), (1 << 40, false)] {
            let frame = frame(number, trigger, &mut random);
            assert!((60..=1514).contains(&frame.len()));
            assert_eq!((number_of(&frame), is_trigger(&frame)), (Some(number), trigger));
        }
        assert_eq!(number_of(&[0; 49]), None);
    }
}
