//! What sharing costs the thread that does it: by flow to four members, against appending; rules and sets.
//!
//! One thread writes a burst as fast as it goes, the sharing thread follows; nobody reads what members get, whose pages say
//! at once that they are done. Counted is the processor time of the sharing thread, which is never without work within a
//! burst.

use super::drawn::{self, Drawn, Ends};
use super::served::{Seats, served};
use crate::Scale;
use crate::table::{Key, Table};
use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use scope_filter::{Filter, VlanRule};
use scope_group::rules::{Rule, RuleSet, Test};
use scope_group::sets::{Set, SetKind};
use scope_group::{Group, Newcomer, Phase, Sharing};
use scope_measure::{Feeder, Packets, Sizes};
use scope_ring::{Ring, Steering};
use scope_share::Progress;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The row of packets of 64 bytes.
pub const SMALL: Key<'static> = ("share_group_64", "by flow to 4 members");
/// The same, appended.
pub const SMALL_APPEND: Key<'static> = ("share_group_64", "append");
/// The row of a mix.
pub const MIX: Key<'static> = ("share_group_imix", "by flow to 4 members");
/// The same, appended.
pub const MIX_APPEND: Key<'static> = ("share_group_imix", "append");
/// With rules that don't hold.
pub const RULES: Key<'static> = ("share_rule_ns", "10 rules that don't hold");
/// Without.
pub const NO_RULES: Key<'static> = ("share_rule_ns", "none");
/// With a set of a million hosts.
pub const MANY: Key<'static> = ("share_set_million", "1 M hosts");
/// With one of ten.
pub const FEW: Key<'static> = ("share_set_million", "10 hosts");

/// Rules of the row.
pub const RULES_COUNT: f64 = 10.0;
const MEMBERS: u32 = 4;
/// Different frames with addresses drawn by chance.
const DRAWN: usize = 1 << 16;
/// Memory of a member, bytes: more than a burst gives it.
const MEMORY_BYTES: u64 = 256 << 20;
const LIMIT: Duration = Duration::from_secs(60);
/// Part of the ring that one burst takes.
const BURST_PART: u64 = 2;

/// Frames from and to addresses drawn by chance.
fn by_chance() -> impl Iterator<Item = [u8; drawn::BYTES]> {
    let mut random = 7u64;
    let mut draw = move || {
        random = Steering::spread(random);
        random as u32
    };
    (0..DRAWN).map(move |_| drawn::frame(Ends { hosts: (draw(), draw()), ports: (1024, 53) }))
}

/// One size or mix, with the ring and the group that share it.
struct Stand {
    ring: Arc<Ring>,
    feeder: Feeder,
    drawn: Option<Drawn>,
    packets: Packets,
    group: Arc<Group>,
    sharing: Sharing,
    /// Of the sharing thread.
    clock: libc::clockid_t,
    _connections: Vec<OwnedFd>,
    stop: Arc<AtomicBool>,
    pages: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(pages) = self.pages.take() {
            let _ = pages.join();
        }
        self.sharing.end();
    }
}

/// Waits until something is so.
///
/// # Errors
/// It isn't within a minute.
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is() {
        ensure!(begun.elapsed() < LIMIT, "{what}: not in time");
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// The clock of the thread of this name.
fn clock_of(name: &str) -> Result<libc::clockid_t> {
    for entry in std::fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        if std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name) {
            let number: i32 = path.file_name().and_then(|name| name.to_str()).context("a thread")?.parse()?;
            // As the kernel makes the number of a thread's processor clock: CPUCLOCK_SCHED of one thread.
            return Ok((!number << 3) | 6);
        }
    }
    anyhow::bail!("no thread {name}")
}

impl Stand {
    fn new(sizes: Sizes, scale: Scale, rules: RuleSet, is_drawn: bool) -> Result<Stand> {
        let ring = scope_measure::ring(scale.ring_bytes / 2, Some(2 << 20), 1)?;
        let feeder = Feeder::new(&ring, 0)?;
        let drawn = is_drawn.then(|| Drawn::new(&ring, by_chance())).transpose()?;
        let seats = Seats { many: MEMBERS, memory_bytes: MEMORY_BYTES.min(scale.ring_bytes / 4) };
        let (group, sharing) = served(&ring, "flow", rules, seats)?;
        let mut connections = Vec::new();
        for seat in group.seats() {
            let (one, other) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            connections.push(other);
            seat.enter(Newcomer { weight: 1, class: String::new(), connection: one });
            seat.page().write(&Progress::default())?;
        }
        sharing.ring();
        wait_until("members", || group.seats().iter().all(|seat| seat.phase() == Phase::Active))?;
        let clock = clock_of("share-0")?;
        // All that members are given is done with at once, so that their memories are never full.
        let (stop, of_pages) = (Arc::new(AtomicBool::new(false)), group.clone());
        let told = stop.clone();
        let pages = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                for seat in of_pages.seats() {
                    let next = |lane: u32| {
                        if lane < seat.memory().lanes() { seat.memory().lane_next(lane) } else { 0 }
                    };
                    let done = std::array::from_fn(|lane| next(lane as u32));
                    let _ = seat.page().write(&Progress { done, ..Progress::default() });
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let packets = Packets::new(sizes);
        let pages = Some(pages);
        let mut stand = Stand {
            ring,
            feeder,
            drawn,
            packets,
            group,
            sharing,
            clock,
            _connections: connections,
            stop,
            pages,
        };
        // All memory is resident from here on: each member has been given as much as it has room for.
        let burst_bytes = scale.ring_bytes / 2 / BURST_PART;
        for _ in 0..2 + seats.memory_bytes * u64::from(MEMBERS) / burst_bytes {
            stand.burst(scale)?;
        }
        Ok(stand)
    }

    fn cpu_ns(&self) -> Result<i64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` outlives the call; a clock of a thread that has gone is an error, and no more.
        let done = unsafe { libc::clock_gettime(self.clock, &mut time) };
        ensure!(done == 0, "the sharing thread has no clock");
        Ok(time.tv_sec * 1_000_000_000 + time.tv_nsec)
    }

    /// Time per packet of a burst: of appending, and of sharing, ns.
    fn burst(&mut self, scale: Scale) -> Result<(f64, f64)> {
        let bytes = (scale.ring_bytes / 2 / BURST_PART) as f64;
        let packets = (bytes / self.packets.stored_bytes_mean()) as u64;
        let before = (self.cpu_ns()?, self.given());
        let append_ns = match &mut self.drawn {
            Some(drawn) => {
                drawn.feed(packets);
                0.0 // another row's matter
            }
            None => {
                self.feeder.begin();
                self.feeder.feed(&self.packets, packets).ns_per_packet()
            }
        };
        let published = |ring: &Ring| ring.counters().lanes.iter().map(|lane| lane.packets).sum::<u64>();
        let group = self.group.clone();
        wait_until("the sharing thread", || group.status(published(&self.ring)).counts.behind == 0)?;
        let used = self.cpu_ns()? - before.0;
        let (given, missed) = self.given();
        ensure!(given - before.1.0 == packets && missed == before.1.1, "{given} given, {missed} missed");
        Ok((append_ns, used as f64 / packets as f64))
    }

    /// Packets that members were given, and that they or the thread missed.
    fn given(&self) -> (u64, u64) {
        let status = self.group.status(0);
        let sum = |of: fn(&scope_share::page::Standing) -> u64| {
            status.members.iter().map(|it| of(&it.standing)).sum::<u64>()
        };
        (sum(|it| it.given), sum(|it| it.missed) + status.counts.missed)
    }
}

/// One burst of each.
pub fn round(scale: Scale, table: &mut Table) {
    for (sizes, shared, appended) in [(Sizes::Fixed(64), SMALL, SMALL_APPEND), (Sizes::Imix, MIX, MIX_APPEND)]
    {
        let measured =
            Stand::new(sizes, scale, RuleSet::default(), false).and_then(|mut stand| stand.burst(scale));
        let measured = measured.map_err(|error| format!("{error:#}"));
        table.put(appended.0, appended.1, "ns", measured.clone().map(|(append, _)| append));
        table.put(shared.0, shared.1, "ns", measured.map(|(_, share)| share));
    }
    for (key, rules) in [
        (RULES, never(RULES_COUNT as usize)),
        (NO_RULES, Ok(Vec::new())),
        (MANY, hosts(1_000_000)),
        (FEW, hosts(10)),
    ] {
        let measured = rules.and_then(|rules| {
            let rules = RuleSet::new(rules, key.1.to_string());
            let is_drawn = key.0 == MANY.0;
            Ok(Stand::new(Sizes::Fixed(64), scale, rules, is_drawn)?.burst(scale)?.1)
        });
        table.put(key.0, key.1, "ns", measured.map_err(|error| format!("{error:#}")));
    }
}

/// Rules that never hold: no packet has such a port.
fn never(rules: usize) -> Result<Vec<Rule>> {
    let rule = |at: usize| {
        let when = Some(Filter::compile(&format!("udp dst port {}", 61_000 + at), VlanRule::default(), &[])?);
        Ok(Rule {
            name: at.to_string(),
            test: Test { when, ..Test::default() },
            actions: vec!["drop".parse()?],
        })
    };
    (0..rules).map(rule).collect()
}

/// A rule that asks a set of so many hosts drawn by chance; few packets come from one of them.
fn hosts(count: u32) -> Result<Vec<Rule>> {
    let mut text = String::new();
    let mut number = 1u32;
    for _ in 0..count {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        writeln!(text, "{}", Ipv4Addr::from_bits(number))?;
    }
    let set = Set::read(SetKind::Hosts, &text).map_err(|bad| anyhow::anyhow!("{bad:?}"))?;
    let test = Test { host_in: Some(Arc::new(set)), ..Test::default() };
    Ok(vec![Rule { name: "set".to_string(), test, actions: vec!["mark 1".parse()?] }])
}
