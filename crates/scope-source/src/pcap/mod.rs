//! Live capture through libpcap: the fallback for systems and interfaces without AF_PACKET's ring.
//!
//! Packets are copied out of libpcap's memory, a batch at a time. Their direction is unknown. Where it works,
//! [`crate::afpacket`] is better. One worker.
//!
//! ```text
//!  capturing ─► removed: what the system still holds is read, the capture is closed
//!            ─► there again: opened again, which needs the rights of the start; without them the source ends, and says so at once
//! ```
//! Packet accounting, at the end of every poll: `offered = kernel_dropped + waiting + received`; systems
//! count differently, so offered is never less than what was received and dropped. After [`Source::stop`]
//! what is dated later isn't taken and isn't counted.

mod follow;
mod library;
mod wire;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libc::{BPF_K, BPF_RET, sock_filter};
use scope_packet::{BATCH_PACKETS_MAX, Interface, LinkType, Packet, Sink, TimestampSource};

use crate::afpacket::life::{EVENTS_MAX, StateChange};
use crate::afpacket::may_capture;
use crate::afpacket::socket::{is_forbidden, wait_any};
use crate::afpacket::{ClockReading, Losses};
use crate::own_traffic::{self, Connection};
use crate::plan::PcapPlan;
use crate::{
    InterfaceCounters, InterfaceEvent, InterfaceState, Polled, Source, SourceCounters, SourceError, Timing,
};
use follow::Follow;
use library::{Capture, CaptureOptions, Counts, Refused};
use scope_machine::nic::SNAP_LEN_MAX;
use wire::Wire;

/// Batches of one poll at most.
const POLL_BATCHES: usize = 64;
/// A poll that takes longer reads the counts in between, ns: a slow worker's clock waits for them.
const COUNT_EVERY_NS: i64 = 20_000_000;
/// Longest that a poll waits.
const POLL_WAIT: Duration = Duration::from_millis(10);
/// How long a poll sleeps where the system has nothing to wait on.
const SLEEP: Duration = Duration::from_millis(1);
/// Longest that a stopped source waits for what the system holds back, and one whose interface was removed.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// How long after libpcap has failed the system may say that the interface was removed or renamed: then it is
/// no failure.
const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);
/// Link types that the interface may have over its lives.
const LINK_TYPES_MAX: usize = 16;

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
    plan: PcapPlan,
    excluded: Vec<Connection>,
    name: Arc<str>,
    /// `None` while the interface is gone.
    capture: Option<Capture>,
    /// Reports changes of the interface; `None` where they are not seen.
    follow: Option<Follow>,
    /// The interface was removed then: what the system still holds is taken.
    left: Option<Instant>,
    /// The interface, once for each link type that it had; the packets of now are of the one at `number`.
    interfaces: Vec<Interface>,
    number: usize,
    /// Interfaces that the sink knows.
    announced: usize,
    wire: Wire,
    timeout: Duration,
    notes: Vec<String>,
    events: Vec<InterfaceEvent>,
    warnings: Vec<String>,
    /// The bytes of the batch at hand.
    bytes: Vec<u8>,
    batch: Vec<Copied>,
    counters: SourceCounters,
    counted: Counts,
    losses: Losses,
    newest_ns: i64,
    /// When capture began, ns.
    opened_ns: i64,
    stopped: Option<(Instant, i64)>,
    /// When the last packet came.
    heard: Instant,
    /// libpcap's last word is that it can't go on.
    complaint: Option<(Instant, String)>,
    /// Nothing can come any more.
    failure: Option<SourceError>,
    ended: bool,
}

/// Opens live capture; `excluded` are connections whose packets aren't captured. `spec` is what the operator
/// typed.
///
/// # Errors
/// [`SourceError::NoInterface`], `NoPermission`, `System` with libpcap's words for the rest.
pub fn open(plan: &PcapPlan, excluded: &[Connection], spec: &str) -> Result<PcapSource, SourceError> {
    // Following begins before the interface is opened, so that no change is missed.
    let followed = Follow::begin(&plan.interface, realtime_ns());
    let Begun { capture, interface, mut notes } = begin(plan, excluded)?;
    let mut follow = followed.unwrap_or_else(|cause| {
        notes.push(format!("changes of interface {} are not seen: {cause}", plan.interface));
        None
    });
    let opened_ns = realtime_ns();
    let down = follow.as_mut().and_then(|follow| follow.start(opened_ns));
    let wire = Wire::of(&plan.interface, interface.link_type);
    let slack_ns = i64::from(plan.timeout_ms) * 1_000_000;
    let mut source = PcapSource {
        spec: spec.to_string(),
        plan: plan.clone(),
        excluded: excluded.to_vec(),
        name: plan.interface[..].into(),
        capture: Some(capture),
        follow,
        left: None,
        interfaces: vec![interface],
        number: 0,
        announced: 0,
        wire,
        timeout: Duration::from_millis(plan.timeout_ms.into()),
        notes,
        events: Vec::new(),
        warnings: Vec::new(),
        bytes: Vec::new(),
        batch: Vec::with_capacity(BATCH_PACKETS_MAX),
        counters: SourceCounters::default(),
        counted: Counts::default(),
        losses: Losses::begin(ClockReading::now(0), slack_ns),
        newest_ns: 0,
        opened_ns,
        stopped: None,
        heard: Instant::now(),
        complaint: None,
        failure: None,
        ended: false,
    };
    if let Some(change) = down {
        source.report(change);
    }
    Ok(source)
}

/// A capture that has begun.
struct Begun {
    capture: Capture,
    interface: Interface,
    notes: Vec<String>,
}

/// Begins to capture, at the start and whenever the interface is back.
fn begin(plan: &PcapPlan, excluded: &[Connection]) -> Result<Begun, SourceError> {
    let name = &plan.interface;
    let wanted = CaptureOptions {
        interface: name,
        snap_len: snap_len(plan),
        promiscuous: plan.promiscuous,
        timeout_ms: plan.timeout_ms,
        buffer_bytes: plan.buffer_bytes,
        only_in: plan.only_in,
    };
    let (mut capture, mut notes) = Capture::begin(&wanted).map_err(|refused| match refused {
        Refused::NoInterface => {
            SourceError::NoInterface { name: name.clone(), known: library::interfaces().join(", ") }
        }
        Refused::NoPermission => SourceError::no_permission(name),
        Refused::Other(words) => fault("beginning to capture", name, words),
    })?;
    let number = capture.link_number();
    let link_type = u16::try_from(number).map(|number| LinkType(number).canonical()).map_err(|_| {
        fault("reading the link type", name, format!("capture files have no link type {number}"))
    })?;
    exclude(&mut capture, excluded, link_type, &mut notes)
        .map_err(|words| fault("attaching a filter", name, words))?;
    let interface = Interface {
        name: name.clone(),
        description: String::new(),
        link_type,
        snap_len: plan.snap_len.unwrap_or(0),
        timestamps: TimestampSource::Kernel,
        part: 0,
    };
    Ok(Begun { capture, interface, notes })
}

/// Most bytes kept of a packet.
fn snap_len(plan: &PcapPlan) -> u32 {
    plan.snap_len.filter(|&bytes| bytes > 0).unwrap_or(SNAP_LEN_MAX)
}

impl PcapSource {
    /// Says where the prefilter runs, if there is one.
    pub fn with_prefilter(mut self, is_one: bool) -> PcapSource {
        let note = "prefilter: in the worker, not in the kernel: libpcap brings all packets here; \
            afpacket: filters in the kernel";
        self.notes.extend(is_one.then(|| note.to_string()));
        self
    }
}

/// Excludes the packets of `excluded` from capture.
fn exclude(
    capture: &mut Capture,
    excluded: &[Connection],
    link: LinkType,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    if excluded.is_empty() {
        return Ok(());
    }
    let Some(mut program) = own_traffic::dropping(excluded, link) else {
        notes.push(format!("exclude-self: not possible on a link of type {}", link.name()));
        return Ok(());
    };
    program.push(sock_filter { code: (BPF_RET | BPF_K) as u16, jt: 0, jf: 0, k: SNAP_LEN_MAX });
    capture.set_filter(&program)
}

fn fault(doing: &str, interface: &str, words: String) -> SourceError {
    SourceError::System {
        place: format!("{doing} on {interface} through libpcap"),
        cause: io::Error::other(words),
    }
}

impl PcapSource {
    fn report(&mut self, (state, text): StateChange) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(InterfaceEvent { interface: self.name.to_string(), state, text });
        }
    }

    /// Reads changes of the interface, and follows them.
    fn follow_interface(&mut self) {
        let Some(follow) = &mut self.follow else { return };
        match follow.look(self.capture.as_ref().and_then(Capture::descriptor), realtime_ns) {
            Ok(changes) => {
                for change in changes {
                    match change.0 {
                        InterfaceState::Gone => self.interface_removed(change),
                        _ => self.report(change),
                    }
                }
            }
            Err(cause) => {
                let text = format!(
                    "changes of interface {} are no longer seen: {cause}; start again to follow them",
                    self.name
                );
                self.warnings.push(text);
                let gone = self.follow.take().is_some_and(|follow| follow.life.gone);
                self.failure =
                    self.failure.take().or(gone.then(|| fault("waiting", &self.name, cause.to_string())));
            }
        }
        if self.capture.is_none() && self.failure.is_none() && self.stopped.is_none() {
            self.begin_again();
        }
    }

    /// The interface was removed. Whether it can be opened again is known and reported at once: rights that
    /// are given up stay so.
    fn interface_removed(&mut self, (state, waiting): StateChange) {
        self.left = self.capture.is_some().then(Instant::now);
        match may_capture() {
            Err(cause) if is_forbidden(&cause) => {
                self.report((state, format!("interface {} was removed", self.name)));
                let error = SourceError::NotAgain { interface: self.name.to_string(), cause };
                self.report((InterfaceState::Refused, error.to_string()));
                self.failure = Some(error);
            }
            _ => self.report((state, waiting)),
        }
    }

    /// Captures the interface again, if one of its name is there and hasn't been tried as it is.
    fn begin_again(&mut self) {
        let Some(link) = self.follow.as_mut().and_then(Follow::comer) else { return };
        let begun =
            begin(&self.plan, &self.excluded).and_then(|begun| match self.number_of(&begun.interface) {
                Some(number) => Ok((number, begun)),
                None => Err(fault(
                    "capturing",
                    &self.name,
                    format!("it had {LINK_TYPES_MAX} other link types before"),
                )),
            });
        let (number, begun) = match begun {
            Ok(begun) => begun,
            // Gone again, which the system reports.
            Err(SourceError::NoInterface { .. }) => return,
            Err(error) => {
                self.report((
                    InterfaceState::Refused,
                    format!("interface {} is not captured: {error}", self.name),
                ));
                self.failure = matches!(error, SourceError::NoPermission { .. }).then_some(error);
                return;
            }
        };
        self.wire = Wire::of(&self.name, begun.interface.link_type);
        (self.number, self.capture, self.counted) = (number, Some(begun.capture), Counts::default());
        self.losses.look_again_from(ClockReading::now(0));
        let Some(follow) = &mut self.follow else { return };
        let (state, text) = follow.come_back(&link, realtime_ns());
        let notes: String = begun.notes.iter().map(|note| format!("; {note}")).collect();
        self.report((state, text + &notes));
    }

    /// The number of the interface, which is a new one if it has another link type than ever before; `None`:
    /// it had too many.
    fn number_of(&mut self, interface: &Interface) -> Option<usize> {
        if let Some(number) = self.interfaces.iter().position(|known| known == interface) {
            return Some(number);
        }
        if self.interfaces.len() >= LINK_TYPES_MAX {
            return None;
        }
        self.interfaces.push(interface.clone());
        Some(self.interfaces.len() - 1)
    }

    /// Closes the capture of an interface that was removed, once the system has handed over all that it held.
    fn close_drained(&mut self) {
        let Some(left) = self.left else { return };
        let waiting = self.counters.offered - self.counters.received - self.counters.kernel_dropped;
        let quiet = left.elapsed().min(self.heard.elapsed()) >= 4 * self.timeout;
        if !(quiet && waiting == 0) && left.elapsed() < DRAIN_MAX {
            return;
        }
        if waiting > 0 {
            self.warnings
                .push(format!("{}: the system did not hand over the last {waiting} packets", self.spec));
        }
        (self.capture, self.left) = (None, None);
    }

    /// libpcap can't go on: nothing new where the interface was removed. One that was renamed it looks for by
    /// its old name in vain, and captures it all the same.
    fn heed_complaint(&mut self) -> Result<(), SourceError> {
        let Some((since, _)) = &self.complaint else { return Ok(()) };
        let explained = self
            .follow
            .as_ref()
            .is_some_and(|follow| follow.life.gone || follow.life.called != follow.life.name);
        if !explained && self.follow.is_some() && since.elapsed() < EXPLAINED_WITHIN {
            return Ok(());
        }
        match self.complaint.take() {
            Some((_, words)) if !explained => Err(fault("capturing", &self.name, words)),
            _ => Ok(()),
        }
    }

    /// Copies packets that are there, at most a batch.
    fn take_batch(&mut self) {
        self.bytes.clear();
        self.batch.clear();
        let Some(capture) = &mut self.capture else { return };
        let snap_len = snap_len(&self.plan) as usize;
        while self.batch.len() < BATCH_PACKETS_MAX && !self.ended {
            let lent = match capture.next() {
                Ok(Some(lent)) => lent,
                Ok(None) => {
                    self.complaint = None;
                    break;
                }
                Err(words) => {
                    self.complaint.get_or_insert((Instant::now(), words));
                    break;
                }
            };
            self.complaint = None;
            if self.stopped.is_some_and(|(_, stopped_ns)| lent.time_ns > stopped_ns) {
                self.ended = true;
                break;
            }
            // A tag that libpcap puts back comes on top of the snap length.
            let data = &lent.data[..lent.data.len().min(snap_len)];
            self.batch.push(Copied {
                start: self.bytes.len(),
                len: data.len(),
                original_len: lent.original_len,
                time_ns: lent.time_ns,
            });
            self.bytes.extend_from_slice(data);
        }
    }

    fn push_batch(&mut self, sink: &mut dyn Sink) {
        const EMPTY: Packet<'static> =
            Packet { data: &[], original_len: 0, time_ns: 0, interface: 0, flags: 0, lost_before: 0 };
        let mut packets = [EMPTY; BATCH_PACKETS_MAX];
        for (packet, copied) in packets.iter_mut().zip(&self.batch) {
            *packet = Packet {
                data: &self.bytes[copied.start..copied.start + copied.len],
                original_len: copied.original_len,
                time_ns: copied.time_ns,
                interface: self.number as u32,
                lost_before: self.losses.before_packet(copied.time_ns),
                ..EMPTY
            };
            self.wire.count(&mut self.counters.altered, copied, self.interfaces[self.number].snap_len);
            self.counters.stepped_back += u64::from(copied.time_ns < self.newest_ns);
            self.newest_ns = self.newest_ns.max(copied.time_ns);
        }
        self.counters.received += self.batch.len() as u64;
        sink.batch(&packets[..self.batch.len()]);
    }

    /// Pushes what is there; returns the number of packets.
    fn take_batches(&mut self, sink: &mut dyn Sink) -> Result<usize, SourceError> {
        for interface in &self.interfaces[self.announced..] {
            sink.interface(interface);
        }
        self.announced = self.interfaces.len();
        if let Some(follow) = &mut self.follow {
            follow.outages.report(sink, |_| 0);
        }
        let mut packets = 0;
        let mut counted_ns = realtime_ns();
        for _ in 0..POLL_BATCHES {
            self.take_batch();
            if self.batch.is_empty() {
                break;
            }
            packets += self.batch.len();
            self.push_batch(sink);
            let now_ns = realtime_ns();
            if !(counted_ns..counted_ns + COUNT_EVERY_NS).contains(&now_ns) {
                counted_ns = now_ns;
                self.count_losses(sink)?;
            }
        }
        Ok(packets)
    }

    /// Waits for packets or a change of the interface, at most [`POLL_WAIT`].
    fn wait(&self) {
        let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let packets = match &self.capture {
            None => None,
            Some(capture) => match capture.descriptor() {
                Some(fd) => Some(fd.as_raw_fd()),
                None => return std::thread::sleep(SLEEP),
            },
        };
        let mut waiting: Vec<_> =
            packets.into_iter().chain(self.follow.as_ref().map(Follow::fd)).map(of).collect();
        // A failed wait is a short one: the next look says why.
        let _ = wait_any(&mut waiting, POLL_WAIT);
    }

    /// Takes over the system's counts and reports what was lost.
    fn count_losses(&mut self, sink: &mut dyn Sink) -> Result<(), SourceError> {
        let Some(capture) = &mut self.capture else {
            sink.counted(realtime_ns());
            return Ok(());
        };
        let begun = ClockReading::now(0);
        let counts = capture.counts().map_err(|words| fault("reading the counts", &self.name, words))?;
        let dropped = u64::from(counts.dropped.wrapping_sub(self.counted.dropped));
        self.counters.kernel_dropped += dropped;
        self.counters.offered += u64::from(counts.received.wrapping_sub(self.counted.received));
        self.counters.offered =
            self.counters.offered.max(self.counters.received + self.counters.kernel_dropped);
        self.counted = counts;
        if let Some((since_ns, until_ns)) = self.losses.counted(dropped, begun, ClockReading::now(0)) {
            sink.lost(self.number as u32, dropped, since_ns, until_ns);
        }
        sink.counted(self.losses.looked_ns());
        Ok(())
    }

    /// Whether a stopped source has handed over all that the system held back.
    fn is_drained(&self) -> bool {
        let Some((stopped, _)) = self.stopped else { return false };
        if self.capture.is_none() {
            return true;
        }
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
        if self.ended {
            return Ok(Polled::Ended);
        }
        self.follow_interface();
        sink.counted(self.losses.looked_ns());
        let mut clock_ns = realtime_ns();
        let mut packets = self.take_batches(sink)?;
        if packets == 0 && !self.ended {
            self.wait();
            self.follow_interface();
            clock_ns = realtime_ns();
            packets = self.take_batches(sink)?;
        }
        self.count_losses(sink)?;
        self.heed_complaint()?;
        if packets > 0 {
            self.heard = Instant::now();
            return Ok(Polled::Packets);
        }
        self.close_drained();
        if self.ended || self.is_drained() {
            self.ended = true;
            // What came after the stop is not counted.
            self.counters.offered = self.counters.received + self.counters.kernel_dropped;
            return Ok(Polled::Ended);
        }
        if self.capture.is_none()
            && let Some(failure) = self.failure.take()
        {
            self.ended = true;
            return Err(failure);
        }
        sink.idle(clock_ns - self.grace_ns());
        Ok(Polled::Nothing)
    }

    fn listens_from_ns(&self) -> Option<i64> {
        Some(self.opened_ns)
    }

    fn counters(&self) -> SourceCounters {
        self.counters
    }

    fn stop(&mut self) {
        self.stopped = Some((Instant::now(), realtime_ns()));
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn interface_counters(&mut self, into: &mut Vec<InterfaceCounters>, changed: &mut Vec<usize>) {
        let called = self.follow.as_ref().map_or(&self.name, |follow| &follow.life.called);
        let Some(entry) = into.first_mut() else {
            return into.push(InterfaceCounters {
                interface: self.name.clone(),
                called: called.clone(),
                counters: self.counters,
            });
        };
        entry.counters = self.counters;
        if entry.called != *called {
            entry.called = called.clone();
        }
        changed.push(0);
    }

    fn interface_events(&mut self) -> Vec<InterfaceEvent> {
        std::mem::take(&mut self.events)
    }
}

/// The clock of packets, now: ns since the epoch.
fn realtime_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}
