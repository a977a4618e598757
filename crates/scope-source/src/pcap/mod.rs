//! Live capture through libpcap: the fallback for systems and interfaces that the ring of AF_PACKET isn't there for.
//!
//! Packets are copied out of libpcap's memory, a batch at a time, and nothing is said of their direction: who can, uses
//! [`crate::afpacket`]. One worker. An interface that goes down is waited for as far as libpcap does.
//!
//! Law, at the end of every poll: `offered = kernel_dropped + waiting + received`; systems count differently, so offered is never
//! less than what was received and dropped. After [`Source::stop`] what is dated later isn't taken and isn't counted.

mod library;
mod wire;

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libc::{BPF_K, BPF_RET, sock_filter};
use scope_packet::{BATCH_PACKETS_MAX, Interface, LinkType, Packet, Sink, TimestampSource};

use crate::afpacket::losses::Losses;
use crate::own_traffic::{self, Connection};
use crate::spec::{PcapPlan, SNAP_LEN_MAX};
use crate::{InterfaceCounters, Polled, Source, SourceCounters, SourceError, Timing};
use library::{Capture, Counts, Refused, Wanted};
use wire::Wire;

/// Batches of one poll at most.
const POLL_BATCHES: usize = 64;
/// Longest that a poll waits.
const POLL_WAIT: Duration = Duration::from_millis(10);
/// How long a poll sleeps where the system has nothing to wait on.
const SLEEP: Duration = Duration::from_millis(1);
/// Longest that a stopped source waits for what the system holds back.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// A packet of the batch at hand: where its bytes stand in the copy.
#[derive(Clone, Copy, Default)]
struct Copied {
    start: usize,
    len: usize,
    original_len: u32,
    time_ns: i64,
}

/// Live capture on one interface through libpcap.
pub struct PcapSource {
    spec: String,
    capture: Capture,
    interface: Interface,
    announced: bool,
    snap_len: usize,
    wire: Wire,
    timeout: Duration,
    notes: Vec<String>,
    /// The bytes of the batch at hand.
    bytes: Vec<u8>,
    batch: Vec<Copied>,
    counters: SourceCounters,
    counted: Counts,
    losses: Losses,
    newest_ns: i64,
    stopped: Option<(Instant, i64)>,
    /// When the last packet came.
    heard: Instant,
    ended: bool,
}

/// Opens live capture; `excluded` are connections whose packets aren't captured. `spec` is what the operator typed.
///
/// # Errors
/// [`SourceError::NoInterface`], `NoPermission`, `System` with libpcap's words for the rest.
pub fn open(plan: &PcapPlan, excluded: &[Connection], spec: &str) -> Result<PcapSource, SourceError> {
    let name = &plan.interface;
    let snap_len = plan.snap_len.filter(|&bytes| bytes > 0);
    let wanted = Wanted {
        interface: name,
        snap_len: snap_len.unwrap_or(SNAP_LEN_MAX),
        promiscuous: plan.promiscuous,
        timeout_ms: plan.timeout_ms,
        buffer_bytes: plan.buffer_bytes,
    };
    let (mut capture, mut notes) = Capture::begin(&wanted).map_err(|refused| match refused {
        Refused::NoInterface => SourceError::NoInterface { name: name.clone(), known: library::interfaces().join(", ") },
        Refused::NoPermission => SourceError::no_permission(name),
        Refused::Other(words) => fault("beginning to capture", name, words),
    })?;
    let number = capture.link_number();
    let link_type = u16::try_from(number)
        .map(|number| LinkType(number).canonical())
        .map_err(|_| fault("asking for the link type", name, format!("libpcap's number {number} is none that files have")))?;
    leave_out(&mut capture, excluded, link_type, &mut notes).map_err(|words| fault("attaching a filter", name, words))?;
    let interface = Interface {
        name: name.clone(),
        description: String::new(),
        link_type,
        snap_len: snap_len.unwrap_or(0),
        timestamps: TimestampSource::Kernel,
        part: 0,
    };
    let slack_ns = i64::from(plan.timeout_ms) * 1_000_000;
    Ok(PcapSource {
        spec: spec.to_string(),
        capture,
        interface,
        announced: false,
        snap_len: wanted.snap_len as usize,
        wire: Wire::of(name, link_type),
        timeout: Duration::from_millis(plan.timeout_ms.into()),
        notes,
        bytes: Vec::new(),
        batch: Vec::with_capacity(BATCH_PACKETS_MAX),
        counters: SourceCounters::default(),
        counted: Counts::default(),
        losses: Losses::begin(realtime_ns(), slack_ns),
        newest_ns: 0,
        stopped: None,
        heard: Instant::now(),
        ended: false,
    })
}

impl PcapSource {
    /// Says where the prefilter runs, if there is one.
    pub fn with_prefilter(mut self, is_one: bool) -> PcapSource {
        let note =
            "prefilter: in the worker, not in the kernel: through libpcap all packets come here; afpacket: asks the kernel";
        self.notes.extend(is_one.then(|| note.to_string()));
        self
    }
}

/// Lets the packets of `excluded` not be captured.
fn leave_out(capture: &mut Capture, excluded: &[Connection], link: LinkType, notes: &mut Vec<String>) -> Result<(), String> {
    if excluded.is_empty() {
        return Ok(());
    }
    let Some(mut program) = own_traffic::dropping(excluded, link) else {
        notes.push(format!("exclude-self: nothing can be left out on a link of type {}", link.name()));
        return Ok(());
    };
    program.push(sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: SNAP_LEN_MAX });
    capture.set_filter(&program)
}

fn fault(doing: &str, interface: &str, words: String) -> SourceError {
    SourceError::System { place: format!("{doing} on {interface} through libpcap"), cause: io::Error::other(words) }
}

impl PcapSource {
    /// Copies packets that are there, at most a batch.
    fn take_batch(&mut self) -> Result<(), SourceError> {
        self.bytes.clear();
        self.batch.clear();
        while self.batch.len() < BATCH_PACKETS_MAX && !self.ended {
            let lent = match self.capture.next() {
                Ok(Some(lent)) => lent,
                Ok(None) => break,
                Err(words) if self.batch.is_empty() => return Err(fault("capturing", &self.interface.name, words)),
                // What came before is pushed first; the next look fails again.
                Err(_) => break,
            };
            if self.stopped.is_some_and(|(_, stopped_ns)| lent.time_ns > stopped_ns) {
                self.ended = true;
                break;
            }
            // A tag that libpcap puts back comes on top of the snap length.
            let data = &lent.data[..lent.data.len().min(self.snap_len)];
            self.batch.push(Copied {
                start: self.bytes.len(),
                len: data.len(),
                original_len: lent.original_len,
                time_ns: lent.time_ns,
            });
            self.bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn push_batch(&mut self, sink: &mut dyn Sink) {
        const EMPTY: Packet<'static> = Packet { data: &[], original_len: 0, time_ns: 0, interface: 0, flags: 0, lost_before: 0 };
        let mut packets = [EMPTY; BATCH_PACKETS_MAX];
        for (packet, copied) in packets.iter_mut().zip(&self.batch) {
            *packet = Packet {
                data: &self.bytes[copied.start..copied.start + copied.len],
                original_len: copied.original_len,
                time_ns: copied.time_ns,
                lost_before: self.losses.before_packet(copied.time_ns),
                ..EMPTY
            };
            self.wire.count(&mut self.counters.altered, copied, self.interface.snap_len);
            self.counters.stepped_back += u64::from(copied.time_ns < self.newest_ns);
            self.newest_ns = self.newest_ns.max(copied.time_ns);
        }
        self.counters.received += self.batch.len() as u64;
        sink.batch(&packets[..self.batch.len()]);
    }

    /// Pushes what is there; returns the number of packets.
    fn take_batches(&mut self, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        let mut packets = 0;
        for _ in 0..POLL_BATCHES {
            self.take_batch()?;
            if self.batch.is_empty() {
                break;
            }
            packets += self.batch.len();
            self.push_batch(sink);
        }
        Ok(packets)
    }

    /// Waits until packets are there, at most [`POLL_WAIT`].
    fn wait(&self) {
        let Some(fd) = self.capture.descriptor() else { return std::thread::sleep(SLEEP) };
        let mut waiting = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives through the call. An interrupted or failed wait is a short one: the next look says why.
        unsafe { libc::poll(&raw mut waiting, 1, POLL_WAIT.as_millis() as libc::c_int) };
    }

    /// Takes over the system's counts and reports what was lost.
    fn count_losses(&mut self, sink: &mut dyn Sink) -> Result<(), SourceError> {
        let counts = self.capture.counts().map_err(|words| fault("reading the counts", &self.interface.name, words))?;
        let dropped = u64::from(counts.dropped.wrapping_sub(self.counted.dropped));
        self.counters.kernel_dropped += dropped;
        self.counters.offered += u64::from(counts.received.wrapping_sub(self.counted.received));
        self.counters.offered = self.counters.offered.max(self.counters.received + self.counters.kernel_dropped);
        self.counted = counts;
        if let Some((since_ns, until_ns)) = self.losses.counted(dropped, realtime_ns()) {
            sink.lost(0, dropped, since_ns, until_ns);
        }
        Ok(())
    }

    /// Whether a stopped source has handed over all that the system held back.
    fn is_drained(&self) -> bool {
        let Some((stopped, _)) = self.stopped else { return false };
        let quiet = stopped.elapsed().min(self.heard.elapsed()) >= 4 * self.timeout;
        quiet || stopped.elapsed() >= DRAIN_MAX
    }
}

impl Source for PcapSource {
    fn name(&self) -> &str {
        &self.spec
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    /// Twice the timeout, as with the ring of AF_PACKET, and what a poll waits.
    fn grace_ns(&self) -> i64 {
        (2 * self.timeout + POLL_WAIT).as_nanos() as i64
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if !self.announced {
            sink.interface(&self.interface);
            self.announced = true;
        }
        if self.ended {
            return Ok(Polled::Ended);
        }
        let mut clock_ns = realtime_ns();
        let mut packets = self.take_batches(sink)?;
        if packets == 0 && !self.ended {
            self.wait();
            clock_ns = realtime_ns();
            packets = self.take_batches(sink)?;
        }
        self.count_losses(sink)?;
        if packets > 0 {
            self.heard = Instant::now();
            return Ok(Polled::Packets);
        }
        if self.ended || self.is_drained() {
            self.ended = true;
            // What came after the stop is not counted.
            self.counters.offered = self.counters.received + self.counters.kernel_dropped;
            return Ok(Polled::Ended);
        }
        sink.idle(clock_ns - self.grace_ns());
        Ok(Polled::Nothing)
    }

    fn counters(&self) -> SourceCounters {
        self.counters
    }

    fn interfaces(&self, into: &mut Vec<InterfaceCounters>) {
        match into.first_mut() {
            Some(entry) => entry.counters = self.counters,
            None => into.push(InterfaceCounters { interface: self.interface.name[..].into(), counters: self.counters }),
        }
    }

    fn stop(&mut self) {
        self.stopped = Some((Instant::now(), realtime_ns()));
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// The clock of packets, now: ns since the epoch.
fn realtime_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}
