//! Live runs in a laboratory: the binary captures at `vb` in one namespace what the test sends from the
//! other.
#![allow(dead_code)] // every test file takes what it needs

pub mod receiver;

use crate::run::summary::Summary;
use crate::run::{Done, LIMIT, Place, Started, is_finished_dump, wait_until};
use scope_testkit::lab::witness::{Seen, Witness, numbered};
use scope_testkit::lab::{Lab, Namespace, RawSender};
use scope_testkit::oracle::truth::{Came, Truth};
use scope_testkit::oracle::{self, VlanRule, difference, expected_dump};
use scope_testkit::traffic::frame::{self, Tag};
use scope_testkit::traffic::random::{Random, host};
use scope_testkit::traffic::{Capture, Conversations, DIRECTION_MASK, ETHERNET, Precision, Record, pcap};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A packet that leaves by the capturing interface says so in these flags.
pub const OUTGOING: u32 = 2;

/// A status in the log each second.
pub const OFTEN: [&str; 2] = ["--status-every", "1s"];

/// A laboratory and a folder.
pub struct Live {
    pub lab: Lab,
    pub place: Place,
}

/// The wall clock, ns since the epoch: what the kernel dates packets by.
pub fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_nanos() as i64
}

/// The same command inside a namespace.
pub fn inside(namespace: &Namespace, command: &Command) -> Command {
    let mut moved = namespace.command(command.get_program().to_str().expect("a plain path"));
    moved.args(command.get_args());
    moved
}

impl Live {
    /// `None`, and a word about it, where there can be no laboratory.
    pub fn or_skip() -> Option<Live> {
        Lab::or_skip().map(|lab| Live { lab, place: Place::new() })
    }

    /// Where the ring goes at the end of every run.
    pub fn ring_path(&self) -> PathBuf {
        self.place.path("ring.pcapng")
    }

    /// Starts a run in namespace b and waits until it captures.
    pub fn start(&self, arguments: &[&str]) -> Started {
        let ring = self.ring_path();
        let with_ring_out = [arguments, &["--ring-out", ring.to_str().expect("a plain path")]].concat();
        self.start_at(&self.place, &with_ring_out)
    }

    /// Starts a run with its files in `place`.
    pub fn start_at(&self, place: &Place, arguments: &[&str]) -> Started {
        let started = Started::new(inside(self.lab.b(), &place.command(arguments)));
        let log = place.out().join("wirescope.jsonl");
        wait_until("the log's first line", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains('\n'))
        });
        started
    }

    /// Waits until the kernel lets packets pass from `va` to `vb`, which it does a while after both were set
    /// up.
    pub fn wait_for_link(&self) {
        self.lab.wait_for_link("va", "vb").expect("both ends are there");
    }

    /// Waits until the log says this.
    pub fn wait_for_words(&self, words: &str) {
        self.place.wait_for_words(words);
    }

    /// Waits until the log's last status names so many packets, received or dropped by the kernel: none of
    /// them waits any more. For runs with [`OFTEN`].
    pub fn wait_for_packets(&self, sent: usize) {
        let counted = || -> Option<u64> {
            let log = self.place.log();
            let lines = log.lines().rev().filter(|line| line.contains("\"event\":\"status\""));
            let status: Value = lines.filter_map(|line| serde_json::from_str(line).ok()).next()?;
            Some(status["received"]["packets"].as_u64()? + status["dropped"]["kernel"].as_u64()?)
        };
        wait_until("all packets", || counted() >= Some(sent as u64));
    }

    /// Sends from the other end of `vb`.
    pub fn sender(&self) -> RawSender {
        RawSender::open(self.lab.a(), "va").expect("a packet socket on va")
    }

    /// Sends with tcpreplay from the other end of `vb`; `None`, and a word about it, where that isn't
    /// installed.
    pub fn replay(&self, frames: &[Vec<u8>], packets_per_second: u32) -> Option<()> {
        if !oracle::have("tcpreplay") {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "tcpreplay must be there in CI");
            return None;
        }
        let path = self.place.path("replayed.pcap");
        std::fs::write(&path, pcap(&as_capture(frames), Precision::Micro, false))
            .expect("a file in the test's own folder");
        let rate = format!("--pps={packets_per_second}");
        let output = self
            .lab
            .a()
            .command("tcpreplay")
            .args(["-q", &rate, "-i", "va"])
            .arg(path)
            .output()
            .expect("tcpreplay");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(())
    }

    /// How many dumps are finished.
    pub fn dumps(&self) -> usize {
        self.place.out_names().iter().filter(|name| is_finished_dump(name)).count()
    }

    pub fn wait_for_dumps(&self, count: usize) {
        wait_until("the dump", || self.dumps() >= count);
    }

    /// What the ring held at the end, in order of time.
    pub fn ring(&self) -> Capture {
        let mut ring = oracle::read(self.ring_path()).unwrap().capture;
        ring.packets.sort_by_key(|packet| packet.time_ns);
        ring
    }

    /// Checks the only dump of a run against what the ring held: `filter` is the substituted one, `hit` the
    /// frame that fired.
    pub fn check_only_dump(&self, summary: &Summary, filter: &str, hit: &[u8]) -> Capture {
        let ring = self.ring();
        let dump = summary.only_dump();
        let at = ring
            .packets
            .iter()
            .position(|packet| packet.data == hit)
            .expect("the packet that fired is in the ring");
        assert_eq!(dump.time_ns, ring.packets[at].time_ns);
        let (from_ns, to_ns) = (dump.from_ns, dump.to_ns);
        let expected =
            expected_dump(&ring, filter, from_ns, to_ns, Some(at), VlanRule::Transparent).expect("tcpdump");
        let found = oracle::read(&dump.path).unwrap().capture;
        assert_eq!(difference(&ring.subset(&expected), &found), None);
        assert!(dump.lost_nothing(), "{dump:?}");
        assert_eq!(dump.packets, expected.len() as u64);
        found
    }
}

/// Interrupts a run, which has to end in time, and well.
pub fn stop(started: Started) -> Done {
    started.signal(libc::SIGINT);
    let done = started.finish(LIMIT);
    let too_many = done.summary().hits.values().any(|hits| hits.too_many > 0);
    assert_eq!(done.code(), Some(i32::from(too_many)), "{}", done.stderr);
    done
}

/// Interrupts a run to which `sent` packets were sent; nothing may be lost.
pub fn stop_complete(started: Started, sent: usize) -> Summary {
    let done = stop(started);
    assert_offered(&done, sent);
    let summary = done.summary();
    assert_nothing_lost(&summary, sent);
    summary
}

/// The sources' side of the books: the kernel offered `sent` packets, and nothing waits any more.
pub fn assert_offered(done: &Done, sent: usize) {
    let summary: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let of_all = |key: &str| -> u64 {
        let sources = summary["sources"].as_array().expect("an array 'sources'");
        sources.iter().map(|source| source[key].as_u64().expect("a number")).sum()
    };
    let counts = [of_all("offered"), of_all("received"), of_all("kernel_dropped"), of_all("waiting")];
    assert_eq!(counts, [sent as u64, sent as u64, 0, 0], "{}", summary["sources"]);
    assert_eq!(summary["adds_up"], true);
}

pub fn assert_nothing_lost(summary: &Summary, sent: usize) {
    summary.assert_adds_up();
    assert_eq!(summary.received.packets, sent as u64, "{summary:?}");
    assert_eq!(summary.stored, summary.received);
    assert!(summary.dropped.values().all(|&packets| packets == 0), "{summary:?}");
}

/// `frames` as a capture, in their order.
pub fn as_capture(frames: &[Vec<u8>]) -> Capture {
    let mut capture = Capture::ethernet("vb");
    capture.packets = frames
        .iter()
        .enumerate()
        .map(|(at, data)| Record::new(at as i64 * 1_000_000, data.clone()))
        .collect();
    capture
}

/// How often each frame is there.
pub fn counted<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) -> BTreeMap<&'a [u8], u32> {
    let mut counts = BTreeMap::new();
    frames.into_iter().for_each(|frame| *counts.entry(&frame[..]).or_default() += 1);
    counts
}

/// Checks that a capture holds exactly `frames`, whole, by one interface, and that all came in.
pub fn assert_holds(capture: &Capture, frames: &[Vec<u8>]) {
    assert_eq!(capture.packets.len(), frames.len());
    assert!(
        counted(capture.packets.iter().map(|packet| &packet.data)) == counted(frames),
        "other bytes than those sent"
    );
    for packet in &capture.packets {
        assert_eq!(packet.original_len as usize, packet.data.len());
        let interface = &capture.interfaces[packet.interface];
        assert_eq!((interface.name.as_str(), interface.link_type), ("vb", ETHERNET));
        assert_ne!(packet.flags & DIRECTION_MASK, OUTGOING);
    }
}

/// The packet that fires: UDP from 10.0.0.1 to port 60000 of 10.0.0.2.
pub fn hit_frame(tags: &[Tag]) -> Vec<u8> {
    let ip = frame::udp(
        SocketAddr::new(host(1, false), 1000),
        SocketAddr::new(host(2, false), 60000),
        b"the one that fires",
    );
    frame::on_link(ETHERNET, tags, &ip)
}

/// `count` frames of six hosts, IPv4 and IPv6, TCP and UDP, untagged and with one or two tags; no two are the
/// same.
pub fn mixed_frames(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    (0..count).map(|number| mixed_frame(&mut random, (seed << 32) | number as u64)).collect()
}

/// Frames that are neither plain TCP nor UDP half of the time: ping, ARP, fragments, extension headers, no
/// IP, no payload at all.
pub fn odd_frames(seed: u64, packets: usize) -> Vec<Vec<u8>> {
    let odd = Conversations { seed, packets, oddities: 50, vlan: 40, snapped: 0, ..Conversations::default() };
    odd.capture().packets.into_iter().map(|packet| packet.data).collect()
}

fn mixed_frame(random: &mut Random, number: u64) -> Vec<u8> {
    let tags = match random.below(4) {
        0 => vec![Tag::q(5)],
        1 => vec![Tag::ad(7), Tag::q(9)],
        _ => Vec::new(),
    };
    let v6 = random.chance(25);
    let (a, b) = (random.below(6) as u8 + 1, random.below(6) as u8 + 1);
    let (from, to) =
        (SocketAddr::new(host(a, v6), 1000 + random.below(50) as u16), SocketAddr::new(host(b, v6), 443));
    let fill = random.below(160) as usize;
    let payload = [&number.to_be_bytes()[..], &random.bytes(fill)].concat();
    let ip = if random.chance(50) {
        frame::udp(from, to, &payload)
    } else {
        frame::tcp(from, to, number as u32, 24, &payload)
    };
    frame::on_link(ETHERNET, &tags, &ip)
}

/// Where most numbered packets go; nothing is triggered by it.
const PLAIN_PORT: u16 = 7;

/// A thread that sends numbered packets to `vb`, so many in a millisecond at most: one that was held up
/// doesn't catch up.
pub struct Numbers {
    orders: Arc<NumbersOrders>,
    bytes: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct NumbersOrders {
    stop: AtomicBool,
    /// Where the next packet goes, once; 0: nothing special.
    port: AtomicU16,
    per_ms: AtomicU64,
    sent: AtomicU64,
}

impl Numbers {
    /// Begins: packets of `bytes` bytes, `per_ms` in a millisecond at most.
    pub fn begin(live: &Live, per_ms: u64, bytes: usize) -> Numbers {
        let sender = live.sender();
        let orders = Arc::new(NumbersOrders::default());
        orders.per_ms.store(per_ms, Ordering::Relaxed);
        let given = orders.clone();
        let thread = std::thread::spawn(move || {
            let mut number = 0;
            while !given.stop.load(Ordering::Relaxed) {
                let first = match given.port.swap(0, Ordering::Relaxed) {
                    0 => PLAIN_PORT,
                    port => port,
                };
                let until = number + given.per_ms.load(Ordering::Relaxed);
                let port = |at: u64| if at == number { first } else { PLAIN_PORT };
                let frames: Vec<Vec<u8>> = (number..until).map(|at| numbered(at, port(at), bytes)).collect();
                sender.send(&frames).expect("va is up");
                number = until;
                given.sent.store(number, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Numbers { orders, bytes: bytes as u64, thread: Some(thread) }
    }

    /// The next packet goes to `port`.
    pub fn hit(&self, port: u16) {
        self.orders.port.store(port, Ordering::Relaxed);
        wait_until("the hit", || self.orders.port.load(Ordering::Relaxed) == 0);
    }

    /// From now on so many packets in a millisecond at most.
    pub fn set_rate(&self, per_ms: u64) {
        self.orders.per_ms.store(per_ms, Ordering::Relaxed);
    }

    /// Waits until so many bytes more are sent.
    pub fn pass(&self, bytes: u64) {
        let until = self.orders.sent.load(Ordering::Relaxed) + bytes / self.bytes;
        wait_until("the packets", || self.orders.sent.load(Ordering::Relaxed) >= until);
    }

    /// Ends; how many packets were sent.
    pub fn end(mut self) -> u64 {
        self.orders.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the sender failed");
        }
        self.orders.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Relaxed);
    }
}

/// What the witness saw.
pub fn came(witness: Witness) -> Vec<Came> {
    let seen = witness.end().expect("a witness that missed nothing");
    seen.iter().map(|&Seen { number, port, time_ns }| Came { number, port, time_ns, era: 0 }).collect()
}

/// What dumps say of themselves that isn't true, in words; `piped` is what went through a pipe.
pub fn faults(truth: &Truth, dumps: &[Value], piped: Option<&[u8]>) -> Vec<String> {
    dumps
        .iter()
        .flat_map(|dump| truth.check(dump, piped).unwrap_or_else(|e| panic!("{e:#}: {dump}")).1)
        .collect()
}
