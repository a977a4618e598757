//! Live traffic of 1 Gbit/s: what `wirescope stats` takes of a processor, how much memory it has, and what is lost,
//! against softflowd, and against a run that counts nothing.
//!
//! ```text
//!  sender, on the last core (namespace a)            capture, on the first core (namespace b)
//!  512 frames, 98 hosts each ──► va ═ vb ──► softirq: copy into the capture's ring ──► program
//! ```
//! Frames of 64, 594 and 1518 bytes as 7:4:1, in [`FLOWS`] flows; which comes next is chosen by chance. A program's own
//! time is that of all its threads, from before the first packet to [`SETTLE_BEHIND`] behind the last one: a load is as
//! long as an interval of the statistics, so the end of one lies in it, and is written by then. Each program runs alone.

use super::database::Database;
use super::peers::Softflowd;
use super::stats_run::{self, StatsRun};
use crate::Scale;
use crate::live::captures::on_core;
use crate::live::sender::{Pace, Sender, Sent};
use crate::live::{Stand, is_heard, processor_time};
use crate::table::{Key, Table};
use crate::wirescope::Run;
use anyhow::{Context, Result, ensure};
use scope_measure::{Packets, SOURCES, Sizes};
use std::fs::read_to_string;
use std::path::Path;
use std::time::{Duration, Instant};

/// Own time, and that of the peer.
pub const OWN: Key<'static> = ("stats_1g_core_percent", "wirescope stats");
/// See [`OWN`].
pub const PEER: Key<'static> = ("stats_cpu_vs_softflowd", "softflowd");
/// Memory, the kernel's ring included.
pub const RESIDENT: Key<'static> = ("stats_resident_mib", "wirescope stats");
/// Of it, the kernel's ring.
const KERNEL: Key<'static> = ("stats_resident_mib", "of it the kernel's ring");
/// Packets lost with statistics, and without.
pub const LOST: Key<'static> = ("stats_loss", "wirescope stats");
/// See [`LOST`].
pub const LOST_WITHOUT: Key<'static> = ("stats_loss", "wirescope run, the same without --db");
const LOST_PEER: Key<'static> = ("stats_loss", "softflowd");
/// What was offered.
const SENT: &str = "stats_1g_sent";

/// Bits of frames in a second.
const BITS_PER_SECOND: f64 = 1e9;
/// A load that is slower than this part of it measures something else.
const RATE_MIN: f64 = 0.97;
/// Hosts that each frame comes from.
const HOSTS: u16 = 98;
/// As many flows as that makes.
const FLOWS: u64 = HOSTS as u64 * SOURCES as u64;
/// A program may take so long until it captures.
const START_LIMIT: Duration = Duration::from_secs(20);
/// It is given so long before the first packet, and behind the last one.
const SETTLE_BEFORE: Duration = Duration::from_millis(300);
/// See [`SETTLE_BEFORE`].
const SETTLE_BEHIND: Duration = Duration::from_millis(1500);
const END_LIMIT: Duration = Duration::from_secs(60);
/// What `wirescope stats` has by itself, in the words of a run: bytes kept of a packet, and the kernel's ring.
const SOURCE: &str = "afpacket:vb,block=256KiB,blocks=32,snaplen=256";
/// Its own ring.
const RING: [&str; 4] = ["--ring", "1MiB", "--segment", "64KiB"];

/// The programs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Stats,
    Peer,
    Without,
}

/// What one load yielded.
struct Load {
    sent: Sent,
    own: Duration,
    lost: u64,
    /// Of ours: the most memory, and the kernel's ring, MiB.
    resident: Option<(f64, f64)>,
}

/// Command lines, for the record.
pub fn command_lines() -> [String; 3] {
    [
        "wirescope stats -i vb --db FILE".to_string(),
        format!("wirescope run --source {SOURCE} {}", RING.join(" ")),
        Softflowd::command_line(),
    ]
}

/// Each program once; who begins changes from round to round.
pub fn round(stand: &Stand, scale: Scale, table: &mut Table) {
    let mut programs = [Program::Stats, Program::Peer, Program::Without];
    programs.rotate_left(table.round() % 3);
    for program in programs {
        let outcome = load(stand, program, scale.stats_span).map_err(|error| format!("{error:#}"));
        let figure = |figure: &dyn Fn(&Load) -> f64| outcome.as_ref().map(figure).map_err(String::clone);
        let percent = figure(&|load| load.own.as_secs_f64() / load.sent.span.as_secs_f64() * 100.0);
        let lost = figure(&|load| load.lost as f64);
        let put = |table: &mut Table, key: Key<'_>, unit, outcome| table.put(key.0, key.1, unit, outcome);
        table.put(SENT, LABELS[program as usize], "packets/s", figure(&|load| load.sent.per_second()));
        match program {
            Program::Stats => {
                put(table, OWN, "%", percent);
                put(table, LOST, "packets", lost);
                put(table, RESIDENT, "MiB", figure(&|load| load.resident.map_or(0.0, |(all, _)| all)));
                put(table, KERNEL, "MiB", figure(&|load| load.resident.map_or(0.0, |(_, kernel)| kernel)));
            }
            Program::Peer => {
                put(table, PEER, "%", percent);
                put(table, LOST_PEER, "packets", lost);
            }
            Program::Without => {
                table.put("stats_1g_without", LOST_WITHOUT.1, "%", percent);
                put(table, LOST_WITHOUT, "packets", lost);
            }
        }
    }
}

/// Of [`Program`], in their order.
const LABELS: [&str; 3] = [OWN.1, PEER.1, LOST_WITHOUT.1];

/// Says why there are no rows.
pub fn leave_out(why: &str, table: &mut Table) {
    for (row, of) in [OWN, PEER, RESIDENT, LOST, LOST_WITHOUT] {
        table.leave_out(row, of, "", why);
    }
}

fn load(stand: &Stand, program: Program, span: Duration) -> Result<Load> {
    let packets = Packets::new(Sizes::Imix);
    let rate = (BITS_PER_SECOND / 8.0 / packets.bytes_mean()).round() as u32;
    let mut sender = Sender::open(stand.lab.a(), "va", &packets)?.of_hosts(HOSTS, true).urgent();
    let mut send = |pid: u32| {
        std::thread::sleep(SETTLE_BEFORE);
        let before = processor_time(pid)?;
        let sent = sender.send_for(stand.sender_core, Pace::PerSecond(rate), span)?;
        std::thread::sleep(SETTLE_BEHIND);
        let own = processor_time(pid)? - before;
        ensure!(
            sent.per_second() >= f64::from(rate) * RATE_MIN,
            "only {:.0} packets/s could be sent, of {rate}",
            sent.per_second()
        );
        Ok((sent, own))
    };
    match program {
        Program::Stats => of_stats(stand, &mut send),
        Program::Peer => of_peer(stand, &mut send),
        Program::Without => of_run(stand, &mut send),
    }
}

/// Sends while a process captures: what was sent, and its own time.
type Send<'a> = dyn FnMut(u32) -> Result<(Sent, Duration)> + 'a;

fn of_stats(stand: &Stand, send: &mut Send<'_>) -> Result<Load> {
    let folder = stand.workspace.out_folder()?;
    let db = folder.path().join("x.sqlite");
    let start = || StatsRun::start(stand.workspace, Some(stand.lab.b()), &db, &["-i", "vb"]);
    let mut run = on_core(stand, start)?;
    wait_until_heard(stand, || run.check_alive())?;
    let (sent, own) = send(run.id())?;
    let resident = resident_mib(run.id())?;
    run.interrupt()?;
    let (summary, _) = run.finish(END_LIMIT)?;
    let (received, dropped) = stats_run::received_and_dropped(&summary)?;
    ensure!(received + dropped == sent.packets, "{received} + {dropped} packets of {} sent", sent.packets);
    stats_run::expect_untouched(&summary)?;
    check(&db, received, dropped)?;
    Ok(Load { sent, own, lost: dropped, resident: Some(resident) })
}

/// What the database says: all that was received, all that is lost, and each flow.
fn check(db: &Path, received: u64, dropped: u64) -> Result<()> {
    let database = Database::open(db)?;
    database.expect_packets(received)?;
    let lost = database.number("SELECT sum(packets) FROM losses")?;
    ensure!(lost == dropped as i64, "{lost} packets in losses, {dropped} are lost");
    let flows = database.number("SELECT sum(new_flows) FROM intervals")?;
    // Each comes 20 times and more in the shortest load: none is missing but by losses.
    ensure!(flows == FLOWS as i64 || dropped > 0, "{flows} flows of {FLOWS}");
    Ok(())
}

fn of_peer(stand: &Stand, send: &mut Send<'_>) -> Result<Load> {
    let mut run = on_core(stand, || Softflowd::start(stand.workspace, stand.lab.b()))?;
    wait_until_heard(stand, || run.check_alive())?;
    let (sent, own) = send(run.id())?;
    let counted = run.finish()?;
    // It doesn't look at what lies in the last block of libpcap's ring until that is full.
    let known = counted.packets + counted.dropped;
    ensure!(
        known <= sent.packets && known >= sent.packets - sent.packets / 1000,
        "{} packets seen and {} dropped of {} sent",
        counted.packets,
        counted.dropped,
        sent.packets
    );
    ensure!(
        counted.flows == FLOWS && counted.forced == 0 || counted.dropped > 0,
        "{counted:?} of {FLOWS} flows"
    );
    Ok(Load { sent, own, lost: counted.dropped, resident: None })
}

fn of_run(stand: &Stand, send: &mut Send<'_>) -> Result<Load> {
    let arguments = [&["--source", SOURCE][..], &RING].concat();
    let mut run = on_core(stand, || Run::start(stand.workspace, Some(stand.lab.b()), &arguments))?;
    run.wait_started()?;
    let (sent, own) = send(run.id())?;
    run.interrupt()?;
    let finished = run.finish(END_LIMIT)?;
    let (received, dropped) = (finished.received(), finished.dropped());
    ensure!(received + dropped == sent.packets, "{received} + {dropped} packets of {} sent", sent.packets);
    Ok(Load { sent, own, lost: dropped, resident: None })
}

fn wait_until_heard(stand: &Stand, mut check_alive: impl FnMut() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    while !is_heard(stand.lab.b()) {
        check_alive()?;
        ensure!(begun.elapsed() < START_LIMIT, "it doesn't capture within {START_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The most memory that a process has had, with the kernel's rings that it maps; and these, MiB. Where the kernel doesn't
/// count the pages of its rings as the process's, they are added.
fn resident_mib(pid: u32) -> Result<(f64, f64)> {
    let status = read_to_string(format!("/proc/{pid}/status"))?;
    let most = status.lines().find_map(|line| kib(line, "VmHWM:")).context("no 'VmHWM' of the process")?;
    let (kernel, counted) = kernel_rings_kib(&read_to_string(format!("/proc/{pid}/smaps"))?);
    ensure!(kernel > 0, "the process maps no ring of the kernel");
    Ok(((most + kernel - counted) as f64 / 1024.0, kernel as f64 / 1024.0))
}

/// Sizes of mappings of sockets, and what of them is counted as the process's, KiB.
fn kernel_rings_kib(smaps: &str) -> (u64, u64) {
    let (mut is_ring, mut size, mut counted) = (false, 0, 0);
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or("");
        if !first.ends_with(':') {
            is_ring = line.contains("socket:");
        } else if is_ring {
            size += kib(line, "Size:").unwrap_or(0);
            counted += kib(line, "Rss:").unwrap_or(0);
        }
    }
    (size, counted)
}

/// The number of a line `NAME N kB`.
fn kib(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_the_kernel_are_found_among_mappings() {
        let smaps = "7f0-7f8 rw-s 00000000 00:09 4242 socket:[4242]\nSize:  8192 kB\nRss:  128 kB\nPss: 1 kB\n\
                     7f9-7fa rw-p 00000000 00:00 0 [heap]\nSize:  100 kB\nRss:  50 kB\n\
                     7fb-7fc rw-s 00000000 00:09 4243 socket:[4243]\nSize:  1024 kB\nRss:  0 kB\n";
        assert_eq!(kernel_rings_kib(smaps), (9216, 128));
        assert_eq!(kernel_rings_kib(""), (0, 0));
    }
}
