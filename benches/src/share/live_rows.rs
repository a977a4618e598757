//! Capture and four programs that have all packets, as members of a group or by themselves; and what members cost capture.
//!
//! ```text
//!  sender (namespace a) ──► va ═ vb ──► run ──► group, steer=all ──► 4 programs       against
//!                                  └──► run, and 4 programs with a socket of their own
//! ```
//! 512 B at 300 k packets/s. The sender sleeps where nothing is due, so that all that both cores do is work: it is counted by
//! `spare`, less that of the same packets where nobody listens. Nothing else may run. Our side must be sent as much as nobody is, and
//! count exactly that. Others may fall behind, be sent less, and lose: their time is divided by what was sent, which makes them
//! cheaper than they would be. What members cost capture is the worker's own time, by the scheduler's count.

use super::attached::{GROUP, Shared};
use super::group_rows::wait_until;
use super::programs::{Program, Programs};
use super::spare::Spare;
use crate::Scale;
use crate::clocks::undisturbed;
use crate::cores::cores;
use crate::figures::percentile;
use crate::live::listeners;
use crate::live::sender::{Pace, Sender, Sent};
use crate::table::{Key, Table};
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use scope_measure::{Packets, Sizes};
use scope_share::RING;
use scope_testkit::lab::{Lab, RawSender};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Capture and four members that count.
pub const GROUPED: Key<'static> = ("share_vs_sockets_4", "capture and 4 members that count");
/// Capture alone: what both sides have. No bar.
pub const ALONE: Key<'static> = ("share_vs_sockets_4", "capture alone");
/// Capture and four programs that read the ring in place: nothing is copied. No bar.
pub const IN_PLACE: Key<'static> = ("share_vs_sockets_4", "capture and 4 members of ring that count");
/// Capture and four sockets.
pub const SOCKETS: Key<'static> = ("share_vs_sockets_4", "capture and 4 sockets that count");
/// Capture and four times `wirescope tap` and tcpdump.
pub const PIPED: Key<'static> = ("share_tcpdump_4", "capture, 4 taps and tcpdumps");
/// Capture and four tcpdumps that `wirescope with` has started. No bar.
pub const GIVEN: Key<'static> = ("share_tcpdump_4", "capture and 4 tcpdumps by wirescope with");
/// Capture and four tcpdumps on the interface.
pub const TCPDUMPS: Key<'static> = ("share_tcpdump_4", "capture and 4 tcpdumps on the interface");
/// Four members, which share packets by flow.
pub const MEMBERS: Key<'static> = ("share_capture_cost", "4 members");
/// None.
pub const NO_MEMBERS: Key<'static> = ("share_capture_cost", "no members");

/// How many programs.
const MANY: usize = 4;
const PACE: Pace = Pace::PerSecond(300_000);
const BYTES: usize = 512;
/// Slices of each side of what members cost capture, and of what is sent to a side: what else the machine does only adds, and
/// not to most of them. The lower quartile counts.
const SLICES: usize = 5;
const QUARTILE: f64 = 25.0;
/// What a sender that sleeps can't send in time is sent later: a busy core, and the rate is another.
const RATES_DIFFER_MAX: f64 = 0.05;
/// Share of the processors that may be busy before anything is started.
const AT_REST_MAX: f64 = 0.1;
/// How long the sender sleeps where nothing is due.
const REST: Duration = Duration::from_micros(200);
/// Before the first packet, behind the last one, and behind that where a program's blocks have a long time-out.
const SETTLE: Duration = Duration::from_millis(300);
const SETTLE_BEHIND: Duration = Duration::from_millis(400);
const SETTLE_TCPDUMP: Duration = Duration::from_millis(900);
/// Programs hear packets within this time, and end within it; and others have left the processors.
const LIMIT: Duration = Duration::from_secs(20);

/// What is run, for the record.
pub const SETTINGS: &[(&str, &str)] = &[
    ("run", "wirescope run -i vb --ring 256MiB --attach SOCKET --group all,memory=32MiB,steer=all"),
    ("sockets", "4 times programs/sockets vb: TPACKET_V3, 64 blocks of 1 MiB, 60 ms"),
    ("taps", "4 times wirescope tap all -w - | tcpdump -n -r - -w /dev/null; memory=64MiB"),
    ("given", "wirescope with all*4 -- tcpdump -i wirescope -n -w /dev/null; memory=64MiB"),
    ("tcpdumps", "4 times tcpdump -i vb -n -B 65536 -w /dev/null"),
];

/// Where it happens.
pub struct Stand<'a> {
    /// Paths.
    pub workspace: &'a Workspace,
    /// The two namespaces.
    pub lab: &'a Lab,
    /// What is run.
    pub programs: &'a Programs,
}

/// Who reads.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Nobody,
    Alone,
    Grouped,
    InPlace,
    Sockets,
    Piped,
    Given,
    Tcpdumps,
}

impl Side {
    /// Whether it is what ours is held against.
    fn is_other(self) -> bool {
        matches!(self, Side::Sockets | Side::Tcpdumps)
    }
}

/// What one capture was.
#[derive(Clone, Copy)]
struct Load {
    sent: Sent,
    /// How busy all cores were for a packet.
    busy_ns: f64,
}

impl Stand<'_> {
    /// Counting programs, one side after the other.
    pub fn sockets(&self, scale: Scale, table: &mut Table) {
        let sides = [
            (Side::Grouped, GROUPED),
            (Side::Sockets, SOCKETS),
            (Side::InPlace, IN_PLACE),
            (Side::Alone, ALONE),
        ];
        self.compare(scale, table, &sides);
    }

    /// tcpdumps.
    pub fn tcpdumps(&self, scale: Scale, table: &mut Table) {
        self.compare(scale, table, &[(Side::Piped, PIPED), (Side::Given, GIVEN), (Side::Tcpdumps, TCPDUMPS)]);
    }

    /// Who begins changes from round to round.
    fn compare(&self, scale: Scale, table: &mut Table, sides: &[(Side, Key<'static>)]) {
        let nobody =
            undisturbed(|| self.load(Side::Nobody, scale.span)).map_err(|error| format!("nobody: {error:#}"));
        let mut sides = sides.to_vec();
        let first = table.round() % sides.len();
        sides.rotate_left(first);
        for (side, key) in sides {
            let value = nobody.clone().and_then(|nobody| {
                let load =
                    undisturbed(|| self.load(side, scale.span)).map_err(|error| format!("{error:#}"))?;
                let differ = (load.sent.per_second() / nobody.sent.per_second() - 1.0).abs();
                if differ > RATES_DIFFER_MAX && !side.is_other() {
                    let [this, other] = [load, nobody].map(|load| load.sent.per_second());
                    return Err(format!("{this:.0} packets/s sent, {other:.0} to nobody"));
                }
                let ns = load.busy_ns - nobody.busy_ns;
                // Whatever is captured costs something: else others took the processors while nobody listened.
                if ns > 0.0 { Ok(ns) } else { Err(format!("{ns:.0} ns a packet: others were busy")) }
            });
            table.put(key.0, key.1, "ns", value);
        }
    }

    /// Sends, and looks how busy the machine is meanwhile; each side has to have counted all.
    fn load(&self, side: Side, span: Duration) -> Result<Load> {
        at_rest()?;
        if side == Side::Nobody {
            let _deaf = RawSender::open(self.lab.b(), "vb")?;
            return self.send(span);
        }
        let memory =
            if matches!(side, Side::Piped | Side::Given | Side::Tcpdumps) { "64MiB" } else { "32MiB" };
        let shared = Shared::start(self.workspace, self.lab, &format!("memory={memory},steer=all"))?;
        match side {
            Side::Alone => {
                let load = self.send(span)?;
                shared.finish(load.sent.packets)?;
                Ok(load)
            }
            Side::Grouped | Side::InPlace => {
                let group = if side == Side::Grouped { GROUP } else { RING };
                let member = |_| shared.member_of(self.programs, group, "member", &[]);
                let members = (0..MANY).map(member).collect::<Result<Vec<_>>>()?;
                shared.wait_for_members_of(group, MANY)?;
                let load = self.send(span)?;
                shared.finish(load.sent.packets)?;
                for member in members {
                    let [packets, _, missed] = member.counted()?;
                    check(load, packets, missed)?;
                }
                Ok(load)
            }
            Side::Sockets => {
                let sockets = (0..MANY).map(|_| self.socket()).collect::<Result<Vec<_>>>()?;
                let load = self.send(span)?;
                shared.finish_beside(load.sent.packets)?;
                for socket in sockets {
                    socket.signal(libc::SIGINT)?;
                    let [packets, _, lost] = socket.counted()?;
                    check_other(load, packets, lost)?;
                }
                Ok(load)
            }
            Side::Piped => {
                let pipes = (0..MANY).map(|_| self.pipe(&shared)).collect::<Result<Vec<_>>>()?;
                shared.wait_for_members(MANY)?;
                let load = self.send(span)?;
                std::thread::sleep(SETTLE_TCPDUMP); // the tap writes at least once a second
                shared.finish(load.sent.packets)?;
                for (tap, mut tcpdump) in pipes {
                    let words = tap.finish_words()?;
                    ensure!(words.contains("nothing is missing"), "tap: {words}");
                    let packets = words.split_whitespace().nth(1).map(|word| word.replace(',', ""));
                    check(load, packets.context("no count")?.parse().context(words)?, 0)?;
                    ensure!(end_of(&mut tcpdump)?, "tcpdump failed on the pipe");
                }
                Ok(load)
            }
            Side::Given => {
                let words = [
                    "with",
                    &format!("{GROUP}*{MANY}"),
                    "--",
                    "tcpdump",
                    "-i",
                    "wirescope",
                    "-n",
                    "-w",
                    "/dev/null",
                ];
                let with = Program::start(shared.wirescope(self.workspace, &words)?)?;
                shared.wait_for_members(MANY)?;
                let load = self.send(span)?;
                std::thread::sleep(SETTLE_TCPDUMP);
                with.signal(libc::SIGINT)?;
                let words = with.finish_words()?;
                shared.finish(load.sent.packets)?;
                let counted = counts(&words, "packets captured");
                ensure!(counted.len() == MANY, "tcpdumps said: {words}");
                for (packets, lost) in counted.into_iter().zip(counts(&words, "packets dropped by kernel")) {
                    check(load, packets, lost)?;
                }
                Ok(load)
            }
            Side::Tcpdumps => {
                let tcpdumps = (0..MANY).map(|_| self.tcpdump()).collect::<Result<Vec<_>>>()?;
                std::thread::sleep(SETTLE);
                let load = self.send(span)?;
                std::thread::sleep(SETTLE_TCPDUMP);
                shared.finish_beside(load.sent.packets)?;
                for tcpdump in tcpdumps {
                    tcpdump.signal(libc::SIGINT)?;
                    let words = tcpdump.finish_words()?;
                    let of = |what| counts(&words, what).first().copied().context(words.clone());
                    check_other(load, of("packets captured")?, of("packets dropped by kernel")?)?;
                }
                Ok(load)
            }
            Side::Nobody => unreachable!("it is above"),
        }
    }

    /// Sends slice by slice.
    fn send(&self, span: Duration) -> Result<Load> {
        let slices = (0..SLICES).map(|_| self.send_slice(span / 2)).collect::<Result<Vec<_>>>()?;
        let busy: Vec<f64> = slices.iter().map(|slice| slice.busy_ns).collect();
        let sent = Sent {
            packets: slices.iter().map(|slice| slice.sent.packets).sum(),
            span: slices.iter().map(|slice| slice.sent.span).sum(),
        };
        Ok(Load { sent, busy_ns: percentile(&busy, QUARTILE).context("no slice")? })
    }

    /// How many packets are sent, and how busy all cores are from then until everybody has seen them.
    fn send_slice(&self, span: Duration) -> Result<Load> {
        let packets = Packets::new(Sizes::Fixed(BYTES));
        let mut sender = Sender::open(self.lab.a(), "va", &packets)?.urgent().resting(REST);
        std::thread::sleep(SETTLE);
        let spare = Spare::begin();
        let sent = sender.send_for(cores()[0], PACE, span)?;
        std::thread::sleep(SETTLE_BEHIND);
        let busy = spare.busy();
        ensure!(sent.packets > 0, "nothing was sent");
        Ok(Load { sent, busy_ns: busy.as_nanos() as f64 / sent.packets as f64 })
    }

    fn socket(&self) -> Result<Program> {
        let program = self.programs.path("sockets").display().to_string();
        let mut command = self.lab.b().command(&program);
        command.arg("vb").env("LD_LIBRARY_PATH", self.programs.libraries());
        let mut socket = Program::start(command)?;
        socket.wait_ready()?;
        Ok(socket)
    }

    /// `wirescope tap`, and the tcpdump that reads what it writes.
    fn pipe(&self, shared: &Shared) -> Result<(Program, Child)> {
        let (reads, writes) = std::io::pipe()?;
        let mut tcpdump = Command::new("tcpdump");
        tcpdump
            .args(["-n", "-r", "-", "-w", "/dev/null"])
            .stdin(reads)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let tcpdump = tcpdump.spawn().context("tcpdump")?;
        let tap = shared.wirescope(self.workspace, &["tap", GROUP, "-w", "-"])?;
        Ok((Program::start_into(tap, writes.into())?, tcpdump))
    }

    fn tcpdump(&self) -> Result<Program> {
        let mut command = self.lab.b().command("tcpdump");
        command.args(["-i", "vb", "-n", "-B", "65536", "-w", "/dev/null"]);
        let (begun, before) = (Instant::now(), listeners(self.lab.b()));
        let tcpdump = Program::start(command)?;
        while listeners(self.lab.b()) == before {
            ensure!(begun.elapsed() < LIMIT, "tcpdump doesn't capture");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(tcpdump)
    }

    /// Time of the worker for a packet, with members and without: in one run, whose members come and go, by turns.
    pub fn capture_cost(&self, scale: Scale, table: &mut Table) {
        let measured =
            undisturbed(|| self.worker_ns(scale.span, table.round())).map_err(|error| format!("{error:#}"));
        for (at, key) in [MEMBERS, NO_MEMBERS].into_iter().enumerate() {
            table.put(key.0, key.1, "ns", measured.clone().map(|ns| ns[at]));
        }
    }

    fn worker_ns(&self, span: Duration, round: usize) -> Result<[f64; 2]> {
        let shared = Shared::start(self.workspace, self.lab, "memory=32MiB")?;
        wait_until("the worker", || shared.run.thread_time("worker-0").is_ok())?;
        let (mut slices, mut sent): ([Vec<f64>; 2], u64) = Default::default();
        for slice in round..round + 2 * SLICES {
            let many = if slice % 2 == 0 { MANY } else { 0 };
            let member = |_| shared.member(self.programs, "member", &[]);
            let members = (0..many).map(member).collect::<Result<Vec<_>>>()?;
            shared.wait_for_members(many)?;
            let before = shared.run.thread_time("worker-0")?;
            let load = self.send_slice(span / 2)?;
            let used = shared.run.thread_time("worker-0")? - before;
            slices[slice % 2].push(used.as_nanos() as f64 / load.sent.packets as f64);
            sent += load.sent.packets;
            if many > 0 {
                let group = shared.group()?;
                let of_all = |key: &str| {
                    let members = group["members"].as_array().into_iter().flatten();
                    members.map(|member| member[key].as_u64().unwrap_or(0)).sum::<u64>()
                };
                let (read, missed) = (of_all("read"), of_all("missed"));
                let all = load.sent.packets;
                ensure!(read == all && missed == 0, "members read {read} and missed {missed} of {all}");
            }
            drop(members); // they are killed
            shared.wait_for_members(0)?;
        }
        shared.finish(sent)?;
        let quartiles = slices.map(|slices| percentile(&slices, QUARTILE));
        let [Some(with), Some(without)] = quartiles else { anyhow::bail!("no slice") };
        Ok([with, without])
    }
}

/// Waits until nothing else has the processors.
fn at_rest() -> Result<()> {
    let begun = Instant::now();
    loop {
        let rest = Spare::begin();
        std::thread::sleep(SETTLE);
        let busy = rest.busy().div_duration_f64(SETTLE * cores().len() as u32);
        if busy < AT_REST_MAX {
            return Ok(());
        }
        ensure!(begun.elapsed() < LIMIT, "others have the processors for {:.0} % of the time", busy * 100.0);
    }
}

fn check(load: Load, packets: u64, lost: u64) -> Result<()> {
    let sent = load.sent.packets;
    ensure!(packets == sent && lost == 0, "a program counted {packets} packets and lost {lost} of {sent}");
    Ok(())
}

/// Of others it is enough that they know of all, perhaps that they lost them.
fn check_other(load: Load, packets: u64, lost: u64) -> Result<()> {
    let sent = load.sent.packets;
    ensure!(packets + lost == sent, "a program counted {packets} packets and lost {lost} of {sent}");
    Ok(())
}

/// The numbers before these words.
fn counts(words: &str, what: &str) -> Vec<u64> {
    let number = |line: &str| line.trim().strip_suffix(what)?.trim().parse().ok();
    words.split(" / ").filter_map(number).collect()
}

/// Whether it ended well.
fn end_of(child: &mut Child) -> Result<bool> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_tcpdumps_said_is_read() {
        let words = "listening on wirescope / 7 packets captured / 9 packets received by filter / 0 packets dropped by \
            kernel / 8 packets captured / 2 packets dropped by kernel";
        assert_eq!(counts(words, "packets captured"), [7, 8]);
        assert_eq!(counts(words, "packets dropped by kernel"), [0, 2]);
    }
}
