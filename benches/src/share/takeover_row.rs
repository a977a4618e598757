//! `share_takeover_ms`: how long after a member was killed another one sees the first packet of a flow that was its.
//!
//! ```text
//! 64 flows, a packet of each every millisecond ──► run ──► group by flow, 4 members
//! epoch + 1 │ who has a flow in it, owns it │ SIGKILL │ flows of the killed one turn up at others: when │ a new member
//! ```
//! Each member notes in a file when it first sees a flow in an epoch; the file's first number is the epoch.

use super::attached::Shared;
use super::live_rows::Stand;
use super::programs::Program;
use crate::Scale;
use crate::clocks::monotonic_ns;
use crate::figures::percentile;
use crate::table::{Key, Table};
use anyhow::{Context, Result, ensure};
use scope_testkit::lab::RawSender;
use scope_testkit::lab::witness::numbered;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// 99th percentile.
pub const TAKEOVER: Key<'static> = ("share_takeover_ms", "killed members, flows that moved");

const MEMBERS: usize = 4;
const FLOWS: u64 = 64;
/// Between two packets of a flow.
const GAP: Duration = Duration::from_millis(1);
/// Kills of a round for each second of the scale's span.
const KILLS_A_SECOND: f64 = 10.0;
/// So long members have for a new epoch, and flows for finding a member.
const SETTLE: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a packet.
const BYTES: usize = 128;

/// A member, and the file in which it notes flows.
struct Noting {
    program: Program,
    file: File,
    _folder: TempDir,
}

impl Noting {
    fn start(stand: &Stand, shared: &Shared) -> Result<Noting> {
        let folder = stand.workspace.out_folder()?;
        let path = folder.path().join("flows");
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        file.set_len(8 + FLOWS * 16)?;
        let program = shared.member(stand.programs, "flows", &[&path.display().to_string()])?;
        Ok(Noting { program, file, _folder: folder })
    }

    fn begin(&self, epoch: u64) -> Result<()> {
        Ok(self.file.write_all_at(&epoch.to_le_bytes(), 0)?)
    }

    /// When it first saw each flow in this epoch.
    fn times_ns(&self, epoch: u64) -> Result<Vec<Option<i64>>> {
        let mut bytes = [0; 8 + FLOWS as usize * 16];
        self.file.read_exact_at(&mut bytes, 0)?;
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let of = |flow: &[u8]| (number(&flow[8..]) == epoch).then(|| number(&flow[..8]) as i64);
        Ok(bytes[8..].chunks_exact(16).map(of).collect())
    }
}

/// One go.
pub fn round(stand: &Stand, scale: Scale, table: &mut Table) {
    let kills = (scale.span.as_secs_f64() * KILLS_A_SECOND).ceil() as usize;
    let value = takeovers(stand, kills).and_then(|times| percentile(&times, 99.0).context("no flow moved"));
    table.put(TAKEOVER.0, TAKEOVER.1, "ms", value.map_err(|error| format!("{error:#}")));
}

/// How long each flow took that moved, ms.
fn takeovers(stand: &Stand, kills: usize) -> Result<Vec<f64>> {
    let shared = Shared::start(stand.workspace, stand.lab, "steer=flow")?;
    let sender = RawSender::open(stand.lab.a(), "va")?;
    let frames: Vec<Vec<u8>> = (0..FLOWS).map(|flow| numbered(flow, 2000 + flow as u16, BYTES)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| -> Result<u64> {
            let (begun, mut turns, mut sent) = (Instant::now(), 0, 0);
            while !stop.load(Ordering::Relaxed) {
                sent += sender.send(&frames)?;
                turns += 1;
                std::thread::sleep((GAP * turns).saturating_sub(begun.elapsed()));
            }
            Ok(sent)
        });
        let times = kill_each(stand, &shared, kills);
        stop.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        std::thread::sleep(SETTLE);
        let times = times?;
        shared.finish(sent)?;
        Ok(times)
    })
}

fn kill_each(stand: &Stand, shared: &Shared, kills: usize) -> Result<Vec<f64>> {
    let mut members = (0..MEMBERS).map(|_| Noting::start(stand, shared)).collect::<Result<Vec<_>>>()?;
    shared.wait_for_members(MEMBERS)?;
    let (mut times, mut epoch) = (Vec::new(), 0);
    for kill in 0..kills {
        epoch = new_epoch(&members, epoch)?;
        let killed = members.remove(kill % MEMBERS);
        let of_killed = killed.times_ns(epoch)?;
        let of_others = members.iter().map(|member| member.times_ns(epoch)).collect::<Result<Vec<_>>>()?;
        let moving: Vec<usize> = (0..FLOWS as usize).filter(|flow| of_killed[*flow].is_some()).collect();
        ensure!(
            moving.iter().all(|flow| of_others.iter().all(|times| times[*flow].is_none())),
            "a flow has two members"
        );
        ensure!(!moving.is_empty(), "a member has no flow");
        let killed_ns = monotonic_ns();
        killed.program.signal(libc::SIGKILL)?;
        times.extend(first_seen_ms(&members, epoch, &moving, killed_ns)?);
        drop(killed);
        shared.wait_for_members(MEMBERS - 1)?;
        members.push(Noting::start(stand, shared)?);
        shared.wait_for_members(MEMBERS)?;
    }
    Ok(times)
}

/// Begins the next epoch, and waits until each flow has been seen in it.
fn new_epoch(members: &[Noting], epoch: u64) -> Result<u64> {
    let (mut epoch, begun) = (epoch, Instant::now());
    loop {
        epoch += 1;
        members.iter().try_for_each(|member| member.begin(epoch))?;
        std::thread::sleep(SETTLE);
        let seen = members.iter().map(|member| member.times_ns(epoch)).collect::<Result<Vec<_>>>()?;
        let times = |flow: usize| seen.iter().filter(|times| times[flow].is_some()).count();
        // Where one has just joined, a flow may have been at two of them in an epoch.
        if (0..FLOWS as usize).all(|flow| times(flow) == 1) {
            return Ok(epoch);
        }
        ensure!(begun.elapsed() < LIMIT, "flows don't come to one member each");
    }
}

/// How long after the kill each of these flows was first seen at another member, ms.
fn first_seen_ms(members: &[Noting], epoch: u64, moving: &[usize], killed_ns: i64) -> Result<Vec<f64>> {
    let begun = Instant::now();
    loop {
        let seen = members.iter().map(|member| member.times_ns(epoch)).collect::<Result<Vec<_>>>()?;
        let first = |flow: &usize| seen.iter().filter_map(|times| times[*flow]).min();
        let first: Vec<i64> = moving.iter().filter_map(first).collect();
        if first.len() == moving.len() {
            return Ok(first.into_iter().map(|ns| (ns - killed_ns) as f64 / 1e6).collect());
        }
        ensure!(
            begun.elapsed() < LIMIT,
            "{} flows of {} have no member",
            moving.len() - first.len(),
            moving.len()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
