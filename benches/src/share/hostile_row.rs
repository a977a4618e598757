//! `share_hostile`: members that stop, die and lie, and floods of the socket, beside capture and a good member that lose nothing.
//!
//! ```text
//! 100 k packets/s of 512 B ──► run ──► group, steer=all ──► good member: all
//!            stops    SIGSTOP for a second, SIGCONT, again        dies   SIGKILL after a moment, again
//!            lies     joins, writes garbage into its page         flood  connects without end, 2 s of 3: says nothing, garbage, greetings
//! ```
//! A door that refuses is no fault: those who flood have to have been refused, or there was no flood.

use super::attached::{GROUP, Shared, group_of};
use super::live_rows::Stand;
use crate::Scale;
use crate::cores::cores;
use crate::live::sender::{Pace, Sender};
use crate::table::{Key, Table};
use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::pwrite;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use scope_measure::{Packets, Sizes};
use scope_share::message::Greeting;
use scope_share::passing::say;
use scope_share::{Progress, join};
use scope_testkit::traffic::Random;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// 1: nothing was lost.
pub const HOSTILE: Key<'static> = ("share_hostile", "a good member beside bad ones");

const PACE: Pace = Pace::PerSecond(100_000);
const BYTES: usize = 512;
/// How long the sender sleeps where nothing is due.
const REST: Duration = Duration::from_micros(200);
/// Seats: enough that bad members don't fill them all.
const OPTIONS: &str = "steer=all,members-max=16,memory=32MiB";
const SETTLE: Duration = Duration::from_millis(500);
/// A member that stops stands still for so long, and goes on for so long.
const STOPPED: Duration = Duration::from_millis(1000);
/// One that dies lives so long.
const LIFE: Duration = Duration::from_millis(100);
/// One that lies writes so often into its page, and leaves then.
const LIES: u64 = 400;
const LIE_EVERY: Duration = Duration::from_millis(1);
/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;
/// A flood lasts so long, and pauses for so long: while it lasts, hardly anybody else gets in.
const FLOOD: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(1);
/// Between two tries to get in, and between two looks at whether a flood begins.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// Connections that a flood keeps at once.
const KEPT: usize = 64;

/// What bad ones did.
#[derive(Debug, Default)]
struct Deeds {
    stops: AtomicU64,
    deaths: AtomicU64,
    lies: AtomicU64,
    floods: AtomicU64,
}

/// Whether nothing was lost: once, for as long as the scale says.
pub fn measure(stand: &Stand, scale: Scale, table: &mut Table) {
    let value = lost_nothing(stand, scale.hostile).map(|()| 1.0).map_err(|error| format!("{error:#}"));
    table.put(HOSTILE.0, HOSTILE.1, "", value);
}

fn lost_nothing(stand: &Stand, span: Duration) -> Result<()> {
    let shared = Shared::start(stand.workspace, stand.lab, OPTIONS)?;
    let good = shared.member(stand.programs, "member", &[])?;
    shared.wait_for_members(1)?;
    let packets = Packets::new(Sizes::Fixed(BYTES));
    let mut sender = Sender::open(stand.lab.a(), "va", &packets)?.urgent().resting(REST);
    let (stop, deeds, socket) = (AtomicBool::new(false), Deeds::default(), shared.socket());
    let sent = std::thread::scope(|scope| {
        let bad = [
            scope.spawn(|| stop_and_go(stand, &shared, &stop, &deeds.stops)),
            scope.spawn(|| die(stand, &shared, &stop, &deeds.deaths)),
            scope.spawn(|| lie(&socket, &stop, &deeds.lies)),
            scope.spawn(|| flood(&socket, &stop, &deeds.floods)),
        ];
        std::thread::sleep(SETTLE);
        let sent = sender.send_for(cores()[0], PACE, span);
        stop.store(true, Ordering::Relaxed);
        for bad in bad {
            bad.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        sent
    })?;
    std::thread::sleep(SETTLE);
    let refused = shared.run.asked("groups")?["attach"]["refused"].to_string();
    let finished = shared.finish(sent.packets)?;
    let [seen, _, missed] = good.counted()?;
    ensure!(
        seen == sent.packets && missed == 0,
        "the good member saw {seen} and missed {missed} of {}",
        sent.packets
    );
    check_deeds(&deeds, span).with_context(|| format!("{deeds:?}, refused: {refused}"))?;
    let group = group_of(&finished.summary["groups"], GROUP)?;
    ensure!(group["missed"] == 0, "the group missed packets: {group}");
    eprintln!("share_hostile: {deeds:?}, refused: {refused}");
    Ok(())
}

/// Whether there was something to survive.
fn check_deeds(deeds: &Deeds, span: Duration) -> Result<()> {
    let least = span.as_secs() / 8;
    for (what, many) in
        [("stops", &deeds.stops), ("deaths", &deeds.deaths), ("lies", &deeds.lies), ("floods", &deeds.floods)]
    {
        let many = many.load(Ordering::Relaxed);
        ensure!(many > least, "only {many} {what}");
    }
    Ok(())
}

/// A member that stands still again and again.
fn stop_and_go(stand: &Stand, shared: &Shared, stop: &AtomicBool, stops: &AtomicU64) -> Result<()> {
    let member = shared.member(stand.programs, "member", &[])?;
    while !stop.load(Ordering::Relaxed) {
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            member.signal(signal)?;
            std::thread::sleep(STOPPED);
        }
        stops.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Members that are killed.
fn die(stand: &Stand, shared: &Shared, stop: &AtomicBool, deaths: &AtomicU64) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        if let Ok(member) = shared.member(stand.programs, "member", &[]) {
            std::thread::sleep(LIFE);
            drop(member); // kills it
            deaths.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Members that say of themselves what can't be so, in words that are some and in words that are none.
fn lie(socket: &Path, stop: &AtomicBool, lies: &AtomicU64) -> Result<()> {
    let mut random = Random::new(1);
    while !stop.load(Ordering::Relaxed) {
        // The flood may have the door's places.
        let Ok(joined) = join(socket, &Greeting::new(GROUP, "liar")) else {
            std::thread::sleep(TRY_EVERY);
            continue;
        };
        joined.page.write(&Progress::default())?;
        for _ in 0..LIES {
            let mut number = || random.below(u64::MAX) >> random.below(64);
            let lie = Progress {
                began: number(),
                read: number(),
                missed: number(),
                waits: number() % 2 == 0,
                done: std::array::from_fn(|_| number()),
            };
            let page = joined.page.as_fd();
            match number() % 3 {
                0 => joined.page.write(&lie)?,
                1 => drop(pwrite(page, &std::array::from_fn::<u8, 128, _>(|_| number() as u8), 0)?),
                // What isn't there reads as nothing.
                _ => fallocate(page, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, PAGE_BYTES)?,
            }
            lies.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(LIE_EVERY);
        }
    }
    Ok(())
}

/// Floods of connections as fast as they are taken: some say nothing, some garbage, some a greeting again and again.
fn flood(socket: &Path, stop: &AtomicBool, floods: &AtomicU64) -> Result<()> {
    let (mut random, address) = (Random::new(2), SocketAddrUnix::new(socket)?);
    let (mut kept, begun): (Vec<OwnedFd>, _) = (Vec::new(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        if begun.elapsed().as_millis() % (FLOOD + PAUSE).as_millis() >= FLOOD.as_millis() {
            kept.clear();
            std::thread::sleep(TRY_EVERY);
            continue;
        }
        let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let one = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, kind, None)?;
        if connect(&one, &address).is_err() {
            kept.clear(); // the queue is full: room for the next ones
            let moment = Timespec { tv_sec: 0, tv_nsec: 100_000 };
            poll(&mut [PollFd::new(&one, PollFlags::empty())], Some(&moment))?;
            continue;
        }
        let garbage: Vec<u8> = (0..random.below(2000)).map(|_| random.below(256) as u8).collect();
        let greeting = Greeting::new("nowhere", "flood").to_bytes();
        for _ in 0..random.below(20) {
            // It may be closed already, or full.
            let _ = say(&one, if random.below(2) == 0 { &garbage } else { &greeting }, &[]);
        }
        kept.push(one);
        if kept.len() > KEPT {
            kept.swap_remove(random.below(KEPT as u64) as usize);
        }
        floods.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
