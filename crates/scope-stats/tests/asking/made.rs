//! Random rows of three days, written into one file and into a folder, and the rows themselves for naive answers.

use scope_flow::rows::{
    Amount, CommunityId, FlowRow, IntervalRow, LossRow, Owner, Proto, Reason, Role, Settled, Side, State,
    Sum, TrafficRow,
};
use scope_stats::asking::{Access, Bounds, Database, Watch};
use scope_stats::{Every, Options, RunFacts, Writer};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

pub const SECOND: i64 = 1_000_000_000;
pub const HOUR: i64 = 3600 * SECOND;
pub const DAY: i64 = 24 * HOUR;
/// 2026-11-20T22:00:00Z.
pub const T0: i64 = 1_795_212_000 * SECOND;
/// Length of intervals.
pub const LENGTH: i64 = 10 * SECOND;

pub const ADDRESSES: [&str; 6] =
    ["10.0.0.1", "10.0.0.2", "192.0.2.9", "198.51.100.250", "2001:db8::1", "2001:db8::ffff:9"];
const PORTS: [u16; 7] = [0, 22, 53, 443, 8080, 32768, 65535];
const PROTOCOLS: [u8; 6] = [6, 17, 1, 58, 47, 132];

/// Numbers that are the same each time.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn amount(&mut self) -> Amount {
        let packets = self.below(50);
        let ip_bytes = packets * (40 + self.below(1400));
        Amount { packets, bytes: ip_bytes + 14 * packets, ip_bytes }
    }

    fn side(&mut self, packets: u64) -> Side {
        let ip_bytes = packets * (40 + self.below(1400));
        Side {
            packets,
            ip_bytes,
            bytes: ip_bytes + 14 * packets,
            tcp_flags: self.below(64) as u8,
            len_min: 60,
            len_max: 1514,
            zero_windows: self.below(3),
            resent: self.below(3),
        }
    }
}

/// An address of the same family as all others of its flow.
fn ends(dice: &mut Dice) -> ((IpAddr, u16), (IpAddr, u16)) {
    loop {
        let [one, other] = [(); 2].map(|()| dice.one(&ADDRESSES).parse::<IpAddr>().unwrap());
        if one.is_ipv4() == other.is_ipv4() {
            return ((one, dice.one(&PORTS)), (other, dice.one(&PORTS)));
        }
    }
}

pub fn flow(dice: &mut Dice, end_ns: i64) -> FlowRow {
    let reason = dice.one(&[Reason::Idle, Reason::Active, Reason::End, Reason::Stop, Reason::Unwritten]);
    let ends = (reason != Reason::Unwritten).then(|| ends(dice));
    let proto = dice.one(&PROTOCOLS);
    let (forward, reverse) = (1 + dice.below(90), dice.below(90));
    FlowRow {
        start_ns: end_ns - dice.below(300 * SECOND as u64) as i64,
        end_ns,
        interface: Arc::from(dice.one(&["eth0", "eth1"])),
        interface_rev: (dice.below(4) == 0).then(|| Arc::from("tap1")),
        vlan: dice.one(&[0, 0, 5, 7]),
        proto,
        source: ends.map(|ends| ends.0),
        destination: ends.map(|ends| ends.1),
        forward: dice.side(forward),
        reverse: dice.side(reverse),
        rtt_server_ns: (dice.below(2) == 0).then(|| dice.below(1 << 30) as i64),
        rtt_client_ns: (dice.below(2) == 0).then(|| dice.below(1 << 30) as i64),
        state: (proto == 6).then(|| dice.one(&[State::Open, State::Closed, State::Reset])),
        community_id: CommunityId::new(if ends.is_some() { "1:abc=" } else { "" }).unwrap(),
        reason,
    }
}

/// What one interval of one interface has.
fn interval(dice: &mut Dice, ts_ns: i64, rows: &mut Settled) {
    for interface in ["eth0", "eth1"] {
        for vlan in [0, 5] {
            let mut all: BTreeMap<(Owner, Proto, u16, Role), (Amount, Amount)> = BTreeMap::new();
            for _ in 0..dice.below(6) {
                let owner = match dice.below(8) {
                    0 => Owner::Others,
                    1 => Owner::Folded,
                    _ => Owner::Address(dice.one(&ADDRESSES).parse().unwrap()),
                };
                let proto = dice.one(&[Proto::Tcp, Proto::Udp, Proto::Icmp, Proto::Other]);
                let key = (owner, proto, dice.one(&PORTS[..5]), dice.one(&[Role::Server, Role::Client]));
                all.insert(key, (dice.amount(), dice.amount()));
            }
            let sum =
                |which: fn(&Amount) -> u64| all.values().map(|(received, _)| which(received)).sum::<u64>();
            let (packets, bytes) = (sum(|amount| amount.packets), sum(|amount| amount.bytes));
            rows.intervals.push(IntervalRow {
                ts_ns,
                length_ns: LENGTH,
                interface: Arc::from(interface),
                vlan,
                packets: packets + 3,
                bytes: bytes + 180,
                ip_packets: packets,
                ip_bytes: sum(|amount| amount.ip_bytes),
                tcp: Sum { packets, bytes },
                lost_max: dice.below(20) / 18,
                ..IntervalRow::default()
            });
            rows.traffic.extend(all.into_iter().map(|((ip, proto, port, role), (received, sent))| {
                TrafficRow {
                    ts_ns,
                    interface: Arc::from(interface),
                    vlan,
                    ip,
                    proto,
                    port,
                    role,
                    received,
                    sent,
                }
            }));
        }
    }
}

/// Rows of three days: most in bursts around the begins of days and hours.
pub fn rows(seed: u64) -> Settled {
    let (mut dice, mut rows) = (Dice::new(seed), Settled::default());
    for begin in [T0, T0 + HOUR, T0 + 2 * HOUR - 30 * SECOND, T0 + DAY, T0 + 2 * DAY + HOUR] {
        for number in 0..12 {
            let ts_ns = begin + number * LENGTH;
            interval(&mut dice, ts_ns, &mut rows);
            for _ in 0..8 {
                let end_ns = ts_ns + dice.below(LENGTH as u64) as i64;
                rows.flows.push(flow(&mut dice, end_ns));
            }
        }
        // Some begin in the file of the day before.
        let from_ns = if begin >= T0 + DAY { begin - DAY } else { begin };
        rows.losses.push(LossRow {
            from_ns,
            to_ns: begin + SECOND,
            interface: (dice.below(2) == 0).then(|| Arc::from("eth0")),
            reason: "ring",
            packets: dice.below(100),
            late_until_ns: 0,
            filed_until_ns: 0,
        });
    }
    rows
}

pub fn facts() -> RunFacts {
    RunFacts {
        run: "0195f3a0-5c1e-7000-8000-000000000001".to_string(),
        host: "here".to_string(),
        version: "0.1.0".to_string(),
        begin_ns: T0,
        sources: vec!["eth0".to_string(), "a \"b\", c".to_string()],
        local: "any".to_string(),
    }
}

pub fn options(path: &Path) -> Options {
    Options {
        db: path.to_path_buf(),
        every: path.is_dir().then_some(Every::Day),
        interval_ns: LENGTH,
        keep: None,
        budget: None,
        min_free: None,
        flow_rows: true,
    }
}

pub fn writer(path: &Path) -> Writer {
    Writer::open(options(path), facts()).expect("nothing is wrong")
}

/// The same rows in one file and in a folder of a file a day, closed.
pub struct Made {
    pub root: TempDir,
    pub rows: Settled,
    pub file: PathBuf,
    pub folder: PathBuf,
}

pub fn made(seed: u64) -> Made {
    let root = tempfile::tempdir().unwrap();
    let (file, folder) = (root.path().join("x?.sqlite"), root.path().join("days#%"));
    std::fs::create_dir(&folder).unwrap();
    let rows = rows(seed);
    for path in [&file, &folder] {
        let mut writer = writer(path);
        writer.write(&mut rows.clone(), T0).unwrap();
        writer.close(T0 + 9 * DAY).unwrap();
    }
    Made { root, rows, file, folder }
}

impl Made {
    pub fn both(&self) -> [Database; 2] {
        [&self.file, &self.folder].map(|path| database(path))
    }
}

pub fn database(path: &Path) -> Database {
    Database::look(path, Access::Outside).unwrap()
}

pub fn stop() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

pub fn watch() -> Watch {
    Watch::of(&Bounds::OF_A_COMMAND, stop())
}
