//! The built-in traffic generator: the published FlowScope test, deterministic for a seed, paced or as fast
//! as it goes.
//!
//! Random flows inside 10.0.0.0/16 (the IPv6 share inside fd00::10.0.0.0/112), half of them UDP and half TCP,
//! both ports 1000 to 10000, packets in both directions, right checksums, text as payload. On request one
//! trigger packet: UDP over IPv4 to port 60000 with the words of [`TRIGGER_TEXT`] and its time. It is an
//! extra packet, not counted by `packets=`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`traffic`] | what packet n is |
//! | [`frame`] | its headers and checksums |
//! | [`schedule`] | its time |
//! | [`feed`] | where its bytes come from: a prepared pool (the default) or made afresh |
//!
//! Packet n has time start + n / rate, whatever the pace, and belongs to worker (flow of n) modulo workers.
//! So the same options with a start give the same bytes and times at every run, and k workers together feed
//! just what one feeds. The trigger packet is worker 0's. With a pool of p packets, packet n has the bytes of
//! packet n modulo p; `prepare=` changes nothing else, and no times.

pub mod feed;
pub mod frame;
pub mod schedule;
pub mod traffic;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use scope_fault::Fault;
use scope_packet::{Interface, LinkType, Packet, Sink, TimestampSource};

use crate::{Polled, Source, SourceCounters, SourceError, Timing};
use feed::{Feed, Share};
use scope_spelling::time::iso;
use scope_spelling::values::PPM;
use traffic::Traffic;

/// Packets/s where no rate is given.
pub const RATE_DEFAULT: u64 = 100_000;
/// Packets/s at most: one a nanosecond.
pub const RATE_MAX: u64 = 1_000_000_000;
/// Smallest frame, bytes without the checksum at its end.
pub const SIZE_MIN: u32 = 60;
/// Largest frame, bytes: what an IPv4 length still holds.
pub const SIZE_MAX: u32 = 65_535;
/// Flows at most.
pub const FLOWS_MAX: u32 = 1 << 20;
/// Workers of one source at most.
pub const WORKERS_MAX: u32 = 64;
/// A prepared pool's smallest limit, bytes.
pub const POOL_BYTES_MIN: u64 = 64 << 10;
/// A prepared pool's largest limit, bytes; `prepare=on` stops at a sixteenth of it.
pub const POOL_BYTES_MAX: u64 = 1 << 30;
/// `prepare=on` prepares so many packets, or four for each flow if that is more.
pub const POOL_PACKETS_MIN: u64 = 16_384;
/// Destination port of the trigger packet.
pub const TRIGGER_PORT: u16 = 60_000;
/// What the trigger packet's payload begins with; a blank and its time (ISO 8601) follow.
pub const TRIGGER_TEXT: &str = "wirescope trigger packet";

/// Packets handed over by one poll at most.
const POLL_PACKETS_MAX: usize = 4096;
/// The longest that a paced poll sleeps.
const NAP_MAX: Duration = Duration::from_millis(1);
const GRACE_PACED_NS: i64 = 10_000_000;
const GRACE_UNPACED_NS: i64 = 1_000_000_000;

/// Length of the frames as captured: Ethernet header and tag included, checksum at the end not. A frame is
/// never shorter than its headers need (78 bytes for tagged IPv6 TCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All the same, bytes.
    Fixed(u32),
    /// 64, 594 and 1518 bytes, drawn 7 : 4 : 1 (362 on average).
    Imix,
}

/// Which frames are made before the run and then fed again and again with new times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepare {
    /// A pool of 16384 packets or four for each flow, 64 MiB at most (the default).
    On,
    /// A pool of so many bytes. With fewer packets than flows in it, some flows don't appear.
    Bytes(u64),
    /// None: every packet is made when it is due and differs from all others.
    Off,
}

/// What to generate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynthOptions {
    /// Packets/s; [`RATE_DEFAULT`] where absent. With `pace_max` it still spaces the times.
    pub rate: Option<u64>,
    /// Length of the frames.
    pub size: Size,
    /// How many flows; each packet belongs to one of them at random.
    pub flows: u32,
    /// Share of the flows that carry an 802.1Q tag (identifiers 1 to 4094), parts per million.
    pub vlan_ppm: u32,
    /// Share of the flows that are IPv6, parts per million.
    pub ipv6_ppm: u32,
    /// Decides all that is random.
    pub seed: u64,
    /// How long, ns of capture time: the packets with times before start + this.
    pub time_ns: Option<i64>,
    /// How many packets, the trigger packet not counted.
    pub packets: Option<u64>,
    /// When the trigger packet is sent, ns after the start.
    pub trigger_at_ns: Option<i64>,
    /// Time of packet 0, ns since the epoch. Absent: now, at the first poll, with `pace_max` at opening.
    pub start_ns: Option<i64>,
    /// As fast as the worker can, instead of in real time.
    pub pace_max: bool,
    /// Which frames are made before the run.
    pub prepare: Prepare,
    /// How many sources share the traffic.
    pub workers: u32,
}

impl Default for SynthOptions {
    fn default() -> SynthOptions {
        SynthOptions {
            rate: None,
            size: Size::Imix,
            flows: 1000,
            vlan_ppm: 0,
            ipv6_ppm: 0,
            seed: 1,
            time_ns: None,
            packets: None,
            trigger_at_ns: None,
            start_ns: None,
            pace_max: false,
            prepare: Prepare::On,
            workers: 1,
        }
    }
}

impl SynthOptions {
    /// Packets/s.
    pub fn rate_or_default(&self) -> u64 {
        self.rate.unwrap_or(RATE_DEFAULT)
    }

    /// How many packets the run sends, the trigger packet not counted; `None`: it doesn't end by itself.
    pub fn packets_total(&self) -> Option<u64> {
        let by_time = self
            .time_ns
            .map(|span_ns| schedule::packets_before(span_ns.max(0) as u64, self.rate_or_default()));
        match (by_time, self.packets) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        }
    }

    /// All faults of the options of the source `spec`, each with what would be right.
    pub fn faults(&self, spec: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut within = |what: &str, value: u64, min: u64, max: u64| {
            if !(min..=max).contains(&value) {
                faults.push(
                    Fault::of_source(spec)
                        .cause(format!("{what} is {value}"))
                        .remedy(format!("it may be {min} to {max}")),
                );
            }
        };
        within("rate", self.rate_or_default(), 1, RATE_MAX);
        if let Size::Fixed(bytes) = self.size {
            within("size", bytes.into(), SIZE_MIN.into(), SIZE_MAX.into());
        }
        within("flows", self.flows.into(), 1, FLOWS_MAX.into());
        within("workers", self.workers.into(), 1, WORKERS_MAX.into());
        within("vlan, in parts per million,", self.vlan_ppm.into(), 0, PPM.into());
        within("ipv6, in parts per million,", self.ipv6_ppm.into(), 0, PPM.into());
        if let Prepare::Bytes(bytes) = self.prepare {
            within("prepare, in bytes,", bytes, POOL_BYTES_MIN, POOL_BYTES_MAX);
        }
        within("packets", self.packets.unwrap_or(1), 1, u64::MAX);
        within("time, in ns,", self.time_ns.map_or(1, |ns| ns.max(0) as u64), 1, i64::MAX as u64);
        within("start, in ns,", self.start_ns.map_or(0, |ns| ns.max(-1) as u64), 0, i64::MAX as u64);
        if self.flows < self.workers {
            let cause = format!("{} flows can't be split over {} workers", self.flows, self.workers);
            faults.push(Fault::of_source(spec).cause(cause).remedy("give at least as many flows"));
        }
        if self.pace_max && self.packets_total().is_none() {
            faults.push(
                Fault::of_source(spec).cause("synth with pace=max needs time= or packets=, e.g. time=30s"),
            );
        }
        if faults.is_empty() {
            faults.extend(self.fault_of_the_end(spec));
        }
        faults
    }

    /// What is wrong between options that are right each by itself.
    fn fault_of_the_end(&self, spec: &str) -> Option<Fault> {
        let fault = |cause: &str, remedy: &str| Some(Fault::of_source(spec).cause(cause).remedy(remedy));
        let trigger_at_ns = self.trigger_at_ns.unwrap_or(0);
        if trigger_at_ns < 0 {
            return fault("trigger-at lies before the start", "give a time after it, e.g. trigger-at=5s");
        }
        let span_ns =
            self.packets_total().map(|packets| schedule::offset_ns(packets, self.rate_or_default()));
        let span_ns = span_ns.map(|span_ns| span_ns.min(self.time_ns.map_or(u64::MAX, |ns| ns as u64)));
        if span_ns.is_some_and(|span_ns| self.trigger_at_ns.is_some() && trigger_at_ns as u64 >= span_ns) {
            return fault(
                "trigger-at lies behind the end of the traffic",
                "give an earlier time or a longer time=",
            );
        }
        let last_ns = i128::from(span_ns.unwrap_or(0)) + i128::from(self.start_ns.unwrap_or(0));
        match last_ns > i128::from(i64::MAX) {
            true => fault(
                "the traffic would end after the year 2262",
                "give fewer packets, a higher rate or an earlier start",
            ),
            false => None,
        }
    }
}

/// When the run began; the same for all its workers.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start_ns: i64,
    since: Instant,
}

impl Epoch {
    fn now(start_ns: Option<i64>) -> Epoch {
        let now_ns = || {
            let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX)
        };
        Epoch { start_ns: start_ns.unwrap_or_else(now_ns), since: Instant::now() }
    }

    fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The trigger packet that is still to come.
#[derive(Clone, Copy, Debug)]
struct Trigger {
    at_ns: u64,
    /// It goes before this background packet.
    before_number: u64,
}

/// How far a poll may go: packets with numbers below `number`, and the trigger packet up to `offset_ns`.
#[derive(Clone, Copy)]
struct Due {
    number: u64,
    offset_ns: u64,
}

/// One worker's part of the generated traffic.
#[derive(Debug)]
pub struct SynthSource {
    spec: String,
    interface: Interface,
    announced: bool,
    paced: bool,
    rate: u64,
    start_ns: Option<i64>,
    /// A paced run with `time=` lasts until it is over, ns after the start.
    lasts_ns: u64,
    /// How many packets all workers send.
    packets: u64,
    epoch: Arc<OnceLock<Epoch>>,
    traffic: Arc<Traffic>,
    feed: Feed,
    trigger: Option<Trigger>,
    sent: u64,
    stopped: bool,
}

/// Opens the generator as `options.workers` sources that share one traffic and one start; `spec` is what the
/// operator typed. Frames are prepared here, which takes about 0.2 us for each and worker.
///
/// Options that contradict each other or are out of bounds are refused, by the first [`SourceError::Spec`].
pub fn open(options: &SynthOptions, spec: &str) -> Result<Vec<SynthSource>, SourceError> {
    if let Some(fault) = options.faults(spec).into_iter().next() {
        return Err(SourceError::Spec(fault));
    }
    let traffic = Arc::new(Traffic::new(options));
    let epoch = Arc::new(OnceLock::new());
    let sources = (0..options.workers)
        .map(|worker| SynthSource::new(options, spec, worker, &traffic, &epoch))
        .collect();
    if options.pace_max {
        epoch.get_or_init(|| Epoch::now(options.start_ns));
    }
    Ok(sources)
}

impl SynthSource {
    fn new(
        options: &SynthOptions,
        spec: &str,
        worker: u32,
        traffic: &Arc<Traffic>,
        epoch: &Arc<OnceLock<Epoch>>,
    ) -> SynthSource {
        let rate = options.rate_or_default();
        let packets = options.packets_total().unwrap_or(u64::MAX);
        let trigger_at_ns = options.trigger_at_ns.filter(|_| worker == 0).map(|ns| ns as u64);
        let name = if options.workers == 1 { "synth".to_string() } else { format!("synth{worker}") };
        SynthSource {
            spec: spec.to_string(),
            interface: Interface {
                name,
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::Generator,
                part: 0,
            },
            announced: false,
            paced: !options.pace_max,
            rate,
            start_ns: options.start_ns,
            lasts_ns: options.time_ns.filter(|_| options.packets.is_none()).unwrap_or(0) as u64,
            packets,
            epoch: epoch.clone(),
            traffic: traffic.clone(),
            feed: Feed::new(traffic, options, packets, Share { worker, workers: options.workers }),
            trigger: trigger_at_ns
                .map(|at_ns| Trigger { at_ns, before_number: schedule::packets_before(at_ns, rate) }),
            sent: 0,
            stopped: false,
        }
    }

    fn exhausted(&self) -> bool {
        self.trigger.is_none() && self.feed.next_number() >= self.packets
    }

    /// When the next packet is due, ns after the start.
    fn next_offset_ns(&self) -> Option<u64> {
        let number = self.feed.next_number();
        let background = (number < self.packets).then(|| schedule::offset_ns(number, self.rate));
        let trigger = self.trigger.map(|trigger| trigger.at_ns);
        background.into_iter().chain(trigger).min()
    }

    fn poll_unpaced(&mut self, sink: &mut dyn Sink, epoch: Epoch) -> Polled {
        if self.exhausted() {
            return Polled::Ended;
        }
        self.push_due(sink, epoch.start_ns, Due { number: self.packets, offset_ns: u64::MAX });
        Polled::Packets
    }

    fn poll_paced(&mut self, sink: &mut dyn Sink, epoch: Epoch) -> Polled {
        if self.push_elapsed(sink, epoch, epoch.elapsed_ns()) {
            return Polled::Packets;
        }
        let elapsed_ns = epoch.elapsed_ns();
        if self.exhausted() && elapsed_ns >= self.lasts_ns {
            sink.idle(epoch.start_ns.saturating_add_unsigned(elapsed_ns));
            return Polled::Ended;
        }
        let wait_ns = self.next_offset_ns().unwrap_or(self.lasts_ns).saturating_sub(elapsed_ns);
        std::thread::sleep(Duration::from_nanos(wait_ns).min(NAP_MAX));
        let elapsed_ns = epoch.elapsed_ns();
        if self.push_elapsed(sink, epoch, elapsed_ns) {
            return Polled::Packets;
        }
        sink.idle(epoch.start_ns.saturating_add_unsigned(elapsed_ns));
        Polled::Nothing
    }

    /// Pushes what is due `elapsed_ns` after the start; returns whether that was anything.
    fn push_elapsed(&mut self, sink: &mut dyn Sink, epoch: Epoch, elapsed_ns: u64) -> bool {
        let number = schedule::packets_before(elapsed_ns.saturating_add(1), self.rate).min(self.packets);
        self.push_due(sink, epoch.start_ns, Due { number, offset_ns: elapsed_ns })
    }

    /// Pushes what is due, at most [`POLL_PACKETS_MAX`] packets, the trigger packet in its place; returns
    /// whether that was anything. What doesn't fit comes with the next poll: a slow worker gets everything,
    /// only later.
    fn push_due(&mut self, sink: &mut dyn Sink, start_ns: i64, due: Due) -> bool {
        let sent_before = self.sent;
        let mut room = POLL_PACKETS_MAX;
        while room > 0 {
            let bound = self.trigger.map_or(due.number, |trigger| trigger.before_number.min(due.number));
            if self.feed.next_number() < bound {
                let pushed = self.feed.push(sink, start_ns, bound, room);
                self.sent += pushed as u64;
                room -= pushed;
                continue;
            }
            match self.trigger {
                Some(trigger) if trigger.at_ns <= due.offset_ns => {
                    self.push_trigger(sink, start_ns, trigger.at_ns)
                }
                _ => break,
            }
        }
        self.sent > sent_before
    }

    fn push_trigger(&mut self, sink: &mut dyn Sink, start_ns: i64, at_ns: u64) {
        let time_ns = start_ns.saturating_add_unsigned(at_ns);
        let mut frame = Vec::new();
        self.traffic.write_trigger(format!("{TRIGGER_TEXT} {}", iso(time_ns)).as_bytes(), &mut frame);
        let original_len = frame.len() as u32;
        sink.batch(&[Packet { data: &frame, original_len, time_ns, interface: 0, flags: 0, lost_before: 0 }]);
        self.sent += 1;
        self.trigger = None;
    }
}

impl Source for SynthSource {
    fn name(&self) -> &str {
        &self.spec
    }

    fn timing(&self) -> Timing {
        if self.paced { Timing::Live } else { Timing::Waits }
    }

    fn grace_ns(&self) -> i64 {
        if self.paced { GRACE_PACED_NS } else { GRACE_UNPACED_NS }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if !self.announced {
            sink.interface(&self.interface);
            self.announced = true;
        }
        if self.stopped {
            return Ok(Polled::Ended);
        }
        let epoch = *self.epoch.get_or_init(|| Epoch::now(self.start_ns));
        Ok(if self.paced { self.poll_paced(sink, epoch) } else { self.poll_unpaced(sink, epoch) })
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters { received: self.sent, offered: self.sent, ..SourceCounters::default() }
    }

    fn next_time_ns(&mut self) -> Option<i64> {
        let start_ns = self.epoch.get().map(|epoch| epoch.start_ns).or(self.start_ns)?;
        Some(start_ns.saturating_add_unsigned(self.next_offset_ns()?))
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}
