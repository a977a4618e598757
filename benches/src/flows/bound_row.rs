//! `flows_10m`: ten times as many flows as there is room for, through `wirescope stats` out of a pipe.
//!
//! ```text
//!  flow n: a packet each way, both at n microseconds; no flow comes again, none is ever idle or over
//!  places are taken up by the first tenth of the flows; from then on each flow that begins evicts another one
//! ```
//! So each flow has one record: all but the last tenth `evicted`, and those `stop`. Memory is looked at from when the
//! table has been full for a moment to the last packet: the most of its second half is held against the most of its first.

use super::database::Database;
use super::stats_run::{self, StatsRun};
use crate::table::{Key, Table};
use crate::wirescope::resident_kib;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_testkit::traffic::ETHERNET;
use scope_testkit::traffic::frame::{on_link, udp};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The bar's row.
pub const ROW: Key<'static> = ("flows_10m", "totals, evictions, memory");
const GROWTH: &str = "most memory in the second half over that in the first";
const RESIDENT: &str = "most memory";
/// Flows for each place.
const TIMES: u64 = 10;
/// Memory may grow by so much of it.
const GROWTH_MAX: f64 = 0.01;
const PAYLOAD_BYTES: usize = 18;
/// Ethernet, IPv4, UDP.
const HEADER_BYTES: usize = 14 + 20 + 8;
const FRAME_BYTES: usize = HEADER_BYTES + PAYLOAD_BYTES;
/// Time of the first flow: 2026-11-20T20:31:00Z.
const START_US: u64 = 1_795_206_660_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const START_LIMIT: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(900);

/// Once, with `flows` flows.
pub fn measure(workspace: &Workspace, flows: u64, table: &mut Table) {
    let outcome = run(workspace, flows);
    let figures = outcome.as_ref().ok().copied();
    table.put(ROW.0, ROW.1, "", outcome.map(|_| 1.0).map_err(|error| format!("{error:#}")));
    if let Some((growth, most_kib)) = figures {
        table.put(ROW.0, GROWTH, "%", Ok(growth * 100.0));
        table.put(ROW.0, RESIDENT, "MiB", Ok(most_kib as f64 / 1024.0));
    }
}

/// By how much memory grew, and the most of it.
fn run(workspace: &Workspace, flows: u64) -> Result<(f64, u64)> {
    let folder = workspace.out_folder()?;
    let (pipe, db) = (folder.path().join("pipe.pcap"), folder.path().join("x.sqlite"));
    make_pipe(&pipe)?;
    let (source, places) = (format!("file:{}", pipe.display()), flows / TIMES);
    let flows_max = places.to_string();
    let arguments = ["--source", &source, "--flows-max", &flows_max, "--db-interval", "1s"];
    let mut run = StatsRun::start(workspace, None, &db, &arguments)?;
    let pid = run.id();
    let file = opened(&pipe, || run.check_alive())?;
    let (written, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sent, looks) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| looks(pid, flows, &written, &is_over));
        let sent = write(file, flows, &written);
        is_over.store(true, Ordering::Relaxed);
        (sent, looks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (summary, _) = run.finish(LIMIT)?;
    sent?;
    let [first, second] = looks.map(|looks| looks.into_iter().max());
    let (first, second) = first.zip(second).context("memory wasn't looked at often enough")?;
    let packets = flows * 2;
    let counted = stats_run::received_and_dropped(&summary)?;
    ensure!(counted == (packets, 0), "{counted:?} packets received and dropped of {packets}");
    for (name, expected) in [("evicted", flows - places), ("unwritten", 0), ("late", 0), ("folded_flows", 0)]
    {
        let found = stats_run::figure(&summary, name)?;
        ensure!(found == expected, "{name}: {found}, not {expected}");
    }
    check(&db, flows, places)?;
    let growth = second as f64 / first as f64 - 1.0;
    ensure!(growth <= GROWTH_MAX, "memory grew by {:.1} %: {first} KiB, then {second}", growth * 100.0);
    Ok((growth, first.max(second)))
}

/// That each flow has its record, and that all adds up.
fn check(db: &Path, flows: u64, places: u64) -> Result<()> {
    let database = Database::open(db)?;
    let bytes = flows * 2 * FRAME_BYTES as u64;
    database.expect_packets(flows * 2)?;
    let of_reason = |reason| format!("SELECT count(*) FROM flows WHERE reason = '{reason}'");
    let each = "SELECT count(*) FROM flows WHERE packets_fwd = 1 AND packets_rev = 1 AND src_port < dst_port";
    for (question, expected) in [
        ("SELECT sum(bytes) FROM intervals", bytes),
        ("SELECT sum(bytes_fwd + bytes_rev) FROM flows", bytes),
        ("SELECT sum(new_flows) FROM intervals", flows),
        (each, flows),
        (&of_reason("evicted"), flows - places),
        (&of_reason("stop"), places),
    ] {
        let found = database.number(question)?;
        ensure!(found == expected as i64, "{found}, not {expected}: {question}");
    }
    Ok(())
}

/// Memory of the process from when its table has been full for a moment, KiB: in the first half of the rest, and in the
/// second.
fn looks(pid: u32, flows: u64, written: &AtomicU64, is_over: &AtomicBool) -> [Vec<u64>; 2] {
    let full = flows / TIMES + flows / TIMES / 2;
    let middle = full + (flows - full) / 2;
    let mut looks = [Vec::new(), Vec::new()];
    while !is_over.load(Ordering::Relaxed) {
        let now = written.load(Ordering::Relaxed);
        if let (true, Ok(kib)) = (now > full, resident_kib(pid)) {
            looks[usize::from(now > middle)].push(kib);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    looks
}

fn make_pipe(path: &Path) -> Result<()> {
    let name = std::ffi::CString::new(path.to_str().context("the folder's path is no UTF-8")?)?;
    // SAFETY: the name is a C string that lives through the call.
    let made = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
    ensure!(made == 0, "a pipe: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Opens the pipe for writing once it has a reader.
fn opened(path: &Path, mut check_alive: impl FnMut() -> Result<()>) -> Result<File> {
    let begun = Instant::now();
    loop {
        match File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Ok(file) => {
                // SAFETY: the descriptor is that of `file`; writing waits for room from here on.
                let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_WRONLY) };
                ensure!(result == 0, "the pipe: {}", std::io::Error::last_os_error());
                return Ok(file);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => check_alive()?,
            Err(error) => return Err(error).context("the pipe"),
        }
        ensure!(begun.elapsed() < START_LIMIT, "nobody reads the pipe within {START_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes all flows into the pipe, and says how many there are so far.
fn write(file: File, flows: u64, written: &AtomicU64) -> Result<()> {
    let mut pipe = BufWriter::with_capacity(1 << 20, file);
    pipe.write_all(&file_header())?;
    let (client, server): (SocketAddr, SocketAddr) = ("10.0.0.0:1000".parse()?, "192.0.2.1:4000".parse()?);
    let payload = [7; PAYLOAD_BYTES];
    let mut frames = [(client, server), (server, client)]
        .map(|(from, to)| on_link(ETHERNET, &[], &udp(from, to, &payload)));
    for flow in 0..flows {
        let time_us = START_US + flow;
        // 2^24 hosts: of both frames their address, in network byte order.
        let host = (0x0a00_0000 + flow as u32).to_be_bytes();
        frames[0][26..30].copy_from_slice(&host);
        frames[1][30..34].copy_from_slice(&host);
        for frame in &frames {
            pipe.write_all(&((time_us / 1_000_000) as u32).to_le_bytes())?;
            pipe.write_all(&((time_us % 1_000_000) as u32).to_le_bytes())?;
            pipe.write_all(&(FRAME_BYTES as u32).to_le_bytes())?;
            pipe.write_all(&(FRAME_BYTES as u32).to_le_bytes())?;
            pipe.write_all(frame)?;
        }
        if flow.is_multiple_of(1024) {
            written.store(flow, Ordering::Relaxed);
        }
    }
    pipe.flush()?;
    Ok(())
}

/// pcap with microseconds.
fn file_header() -> Vec<u8> {
    let mut header = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    header.extend([2, 0, 4, 0]);
    header.extend([0; 8]);
    header.extend(262_144u32.to_le_bytes());
    header.extend(u32::from(ETHERNET).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use scope_testkit::oracle;

    #[test]
    fn each_flow_has_a_packet_each_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcap");
        write(File::create(&path).unwrap(), 300, &AtomicU64::new(0)).unwrap();
        let packets = oracle::read(&path).unwrap().capture.packets;
        assert_eq!((packets.len(), packets[0].data.len()), (600, FRAME_BYTES));
        for (number, pair) in packets.chunks(2).enumerate() {
            let host = [10, 0, (number >> 8) as u8, number as u8];
            assert_eq!((&pair[0].data[26..30], &pair[1].data[30..34]), (&host[..], &host[..]));
            assert_eq!(pair[0].time_ns, (START_US as i64 + number as i64) * 1000);
        }
    }
}
