//! Live capture: an AF_PACKET socket with a TPACKET_V3 ring per worker, blocks lent to the sink where the
//! kernel wrote them.
//!
//! | file | what it holds |
//! |---|---|
//! | `source` | one worker's interfaces, polled together; they may come and go |
//! | `opening` | from options to the workers' sources |
//! | `links` | the interfaces of this machine, as the kernel reports their changes |
//! | `life` | the state of one of them, and its changes in words |
//! | `pattern` | which of them are meant |
//! | `socket` | the system calls, as safe methods |
//! | `ring` | the memory shared with the kernel, and who owns a block when |
//! | `block` | the walk through one block; stripped VLAN tags are put back in place |
//! | `gate` | the BPF programs that keep the ring shut before and after capture |
//! | `device` | what of an interface stays as it is: link type, clock |
//! | `fanout` | dealing packets out to several workers |
//! | `intake` | from a block to the sink, and the counts |
//! | [`settings`] | the ring's size and the block timeout, chosen from the link's speed |
//! | `losses` | the kernel's counts, and where in capture time packets were lost |
//!
//! Packet accounting of each interface, at the end of every poll:
//! `offered = kernel_dropped + waiting + received + unreadable`, where waiting is what lies in the ring;
//! after [`stop`](crate::Source::stop) and `Ended` nothing waits. The ring of an interface that
//! is removed is drained before its socket serves another one.

pub(crate) mod block;
mod device;
mod fanout;
mod gate;
mod intake;
pub(crate) mod life;
pub(crate) mod links;
mod losses;
mod opening;
pub(crate) mod outages;
mod pattern;
mod ring;
pub mod settings;
pub(crate) mod socket;
mod source;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use scope_filter::Filter;
use scope_packet::time::STEP_NS;
use scope_packet::{Interface, LinkType, Sink, TimestampSource};

use crate::SourceError;
use crate::own_traffic::{self, Connection};
use crate::plan::AfPacketPlan;
use block::{Rules, TAG_BYTES};
use device::Device;
use fanout::FanoutGroup;
use intake::Intake;
use links::{Link, LinkState};
pub use losses::{ClockReading, Losses};
use ring::BlockRing;
use scope_machine::nic::{Altered, SNAP_LEN_MAX};
use scope_spelling::printable::shell_word;
use socket::Socket;

pub use fanout::FanoutMode;
pub use opening::{open, open_shared};
pub use pattern::Pattern;
pub use source::{AfPacketSource, INTERFACES_KNOWN_MAX, PORTS_MAX, block_order};

/// Most workers of one interface.
pub const WORKERS_MAX: u32 = 64;
/// Most spare sockets of one worker.
pub const SPARES_MAX: u32 = 64;
/// Spare sockets of a worker by default, for a source whose interfaces can't do without.
const SPARES: u32 = 4;
/// Most ring memory of one worker, bytes: the kernel's own bound lies near it.
pub const RING_BYTES_MAX: u64 = 2 << 30;
/// A poll that takes longer reads the kernel's counts in between, ns: a slow worker's clock waits for them.
const COUNT_EVERY_NS: i64 = 20_000_000;
/// Looks in a row at which a card's clock is apart from the system's, until that is reported.
const APART_LOOKS: u32 = 16;
/// A poll returns after the block in which it reaches this many packets.
const POLL_PACKETS: u64 = 4096;
/// Longest that a poll waits.
const POLL_WAIT: Duration = Duration::from_millis(10);
/// Longest that a stopped source waits for packets that the kernel counted and has not handed over.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Warnings of one socket that wait at once; more are not kept until these are fetched.
const WARNINGS_MAX: usize = 64;

/// Options of live capture on one interface, or on all that match a pattern.
#[derive(Clone, Debug)]
pub struct AfPacketOptions {
    /// Name of the interface, or a [`Pattern`].
    pub interface: String,
    /// Sockets of each interface, each polled by a worker of its own; 1 to [`WORKERS_MAX`]. 0 stands for one
    /// that polls what else has 0, too: see [`open_shared`].
    pub workers: u32,
    /// Sockets that each worker opens beforehand, for interfaces that come when the right to open any is
    /// given up; at most [`SPARES_MAX`]. `None`: none for a single socket, which serves again when its
    /// interface is back, else 4.
    pub spares: Option<u32>,
    /// Most bytes kept of a packet, a VLAN tag that is put back included; `None` or 0: all.
    pub snap_len: Option<u32>,
    /// Also packets that are addressed to other hosts.
    pub promiscuous: bool,
    /// Only packets that arrive: the kernel keeps those that leave out of the ring, uncounted.
    pub only_in: bool,
    /// Bytes of one block of the kernel's ring: a multiple of 4096 (rather: a power of two).
    pub block_bytes: u32,
    /// Blocks per worker, at least 2; with `block_bytes` the bound of the ring's memory.
    pub blocks: u32,
    /// Longest that the kernel keeps a block with packets for itself, ms; the greater part of the time from
    /// wire to trigger.
    pub block_timeout_ms: u32,
    /// How packets are dealt out to several workers.
    pub fanout: FanoutMode,
    /// The kernel may refuse packets that don't match this filter. The worker evaluates it again. See
    /// [`scope_filter::kernel`].
    pub prefilter: Option<Filter>,
    /// Connections whose packets the kernel drops, uncounted.
    pub excluded: Vec<Connection>,
}

impl AfPacketOptions {
    /// The defaults for `interface`: one worker, whole packets, promiscuous, 64 blocks of 1 MiB, 4 ms.
    pub fn new(interface: &str) -> AfPacketOptions {
        AfPacketOptions {
            interface: interface.to_string(),
            workers: 1,
            spares: None,
            snap_len: None,
            promiscuous: true,
            only_in: false,
            block_bytes: 1 << 20,
            blocks: 64,
            block_timeout_ms: 4,
            fanout: FanoutMode::Hash,
            prefilter: None,
            excluded: Vec::new(),
        }
    }

    /// As `plan` says; what it leaves open as in [`AfPacketOptions::new`], with a smaller ring for one of
    /// many interfaces.
    pub fn of(plan: &AfPacketPlan) -> AfPacketOptions {
        let default = AfPacketOptions::new(&plan.interface);
        let default = if settings::is_one_of_many(plan) { default.with_small_ring() } else { default };
        AfPacketOptions {
            workers: plan.workers,
            spares: plan.spares,
            snap_len: plan.snap_len,
            promiscuous: plan.promiscuous,
            only_in: plan.only_in,
            block_bytes: plan.block_bytes.unwrap_or(default.block_bytes),
            blocks: plan.blocks.unwrap_or(default.blocks),
            block_timeout_ms: plan.timeout_ms.unwrap_or(default.block_timeout_ms),
            ..default
        }
    }

    fn snap_len(&self) -> u32 {
        match self.snap_len {
            None | Some(0) => SNAP_LEN_MAX,
            Some(bytes) => bytes.min(SNAP_LEN_MAX),
        }
    }

    /// A smaller ring, as suits one of many interfaces: 8 MiB. As many blocks as ever: the timer closes them
    /// half empty, so their number is what a slow interface has until they are fetched.
    pub fn with_small_ring(self) -> AfPacketOptions {
        AfPacketOptions { block_bytes: 128 << 10, ..self }
    }

    /// Spare sockets of each worker.
    fn spares(&self) -> u32 {
        let needs_some = self.workers > 1 || Pattern::new(&self.interface).is_glob();
        self.spares.unwrap_or(if needs_some { SPARES } else { 0 })
    }

    /// Longest frame that fits whole into a block, bytes.
    fn frame_bytes_max(&self) -> u32 {
        self.block_bytes - block::OVERHEAD_BYTES
    }

    /// Refuses what is not possible, in words for the operator.
    fn check(&self) -> Result<(), String> {
        if self.workers > WORKERS_MAX {
            return Err(format!("workers={} is not possible; 0 to {WORKERS_MAX} are", self.workers));
        }
        if self.spares() > SPARES_MAX {
            return Err(format!("spare={} is not possible; 0 to {SPARES_MAX} are", self.spares()));
        }
        if self.block_bytes < 65536 || !self.block_bytes.is_multiple_of(4096) {
            return Err(format!(
                "blocks of {} bytes are not possible; multiples of 4096 from 65536 on are",
                self.block_bytes
            ));
        }
        let ring_bytes = u64::from(self.block_bytes) * u64::from(self.blocks);
        if self.blocks < 2 || ring_bytes > RING_BYTES_MAX {
            return Err(format!(
                "{} blocks are not possible; 2 to {} are",
                self.blocks,
                RING_BYTES_MAX / u64::from(self.block_bytes)
            ));
        }
        if self.block_timeout_ms == 0 || self.block_timeout_ms > 1000 {
            return Err(format!(
                "a block timeout of {} ms is not possible; 1 to 1000 are",
                self.block_timeout_ms
            ));
        }
        Ok(())
    }
}

/// The stage of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Bound to an interface that is there.
    Bound,
    /// Its interface was removed then: the worker drains what the kernel still holds.
    Leaving(Instant),
    /// Drained, ready for the next interface.
    Parked,
}

/// One socket with its ring: one worker's share of one interface.
struct Port {
    spec: String,
    interface: Interface,
    stage: Stage,
    device: Device,
    // The ring is unmapped before its socket is closed: fields are dropped in this order.
    ring: BlockRing,
    socket: Socket,
    snap_len: u32,
    promiscuous: bool,
    /// Packets that leave stay out, as they always do on a loopback interface.
    only_in: bool,
    /// With several workers: the socket belongs to this group for its life, and so to one interface.
    group: Option<Arc<FanoutGroup>>,
    /// The group is still to be joined, and the gate to be opened behind it.
    joining: bool,
    prefilter: Option<Filter>,
    excluded: Vec<Connection>,
    /// Decisions at the opening of its gate, in plain words.
    notes: Vec<String>,
    block_timeout: Duration,
    intake: Intake,
    /// Capture clock less ours, ns: 0 unless the card's clock stamps the packets.
    clock_ahead_ns: i64,
    /// Newest time of its packets when that was looked at, ns.
    compared_ns: i64,
    /// Looks in a row at which the two clocks were apart.
    apart: u32,
    kernel_times_reported: bool,
    warnings: Vec<String>,
}

/// What a socket is made ready for.
struct Assignment<'a> {
    link: &'a Link,
    device: Device,
    /// See [`Interface::part`].
    part: u32,
    group: Option<Arc<FanoutGroup>>,
}

impl Port {
    /// Makes `socket`, which may have served another interface, ready for this one, behind its shut gate.
    /// Needs no rights. With an error the socket comes back.
    fn prepare(
        socket: Socket,
        place: Assignment<'_>,
        options: &AfPacketOptions,
        spec: &str,
    ) -> Result<Port, (SourceError, Option<Socket>)> {
        let Assignment { link, device, part, group } = place;
        let ring = match ready(&socket, &link.name, device.timestamps, options) {
            Ok(ring) => ring,
            // With half a ring it is of no use.
            Err(error) => return Err((error, socket.drop_ring().is_ok().then_some(socket))),
        };
        let snap_len = options.snap_len();
        let interface = Interface {
            name: link.name.clone(),
            description: String::new(),
            link_type: device.link_type,
            snap_len: if snap_len == SNAP_LEN_MAX { 0 } else { snap_len },
            timestamps: device.timestamps,
            part,
        };
        let rules = Rules { ethernet: device.link_type == LinkType::ETHERNET, snap_len: snap_len as usize };
        let losses = Losses::begin(ClockReading::now(0), i64::from(options.block_timeout_ms) * 1_000_000);
        let mut intake = Intake::begin(rules, losses);
        intake.wire_bytes_max = device.wire_bytes_max(&socket, &link.name).unwrap_or(u32::MAX);
        let mut port = Port {
            spec: spec.to_string(),
            interface,
            stage: Stage::Bound,
            device,
            ring,
            socket,
            snap_len,
            promiscuous: options.promiscuous,
            only_in: options.only_in,
            joining: group.is_some(),
            group,
            prefilter: options.prefilter.clone(),
            excluded: options.excluded.clone(),
            notes: Vec::new(),
            block_timeout: Duration::from_millis(options.block_timeout_ms.into()),
            intake,
            clock_ahead_ns: 0,
            compared_ns: 0,
            apart: 0,
            kernel_times_reported: false,
            warnings: Vec::new(),
        };
        match port.bind() {
            Ok(()) => Ok(port),
            Err(error) => Err((error, port.into_socket().ok().flatten())),
        }
    }

    /// Binds to the device, in an order that keeps packets of other interfaces out.
    fn bind(&mut self) -> Result<(), SourceError> {
        let index = self.device.index;
        self.socket.bind(index, 0).map_err(|cause| self.fault("binding", cause))?;
        if self.promiscuous {
            let doing = "turning promiscuous mode on (promisc=off does without)";
            self.socket.set_promiscuous(index).map_err(|cause| self.fault(doing, cause))?;
        }
        self.socket.bind(index, libc::ETH_P_ALL as u16).map_err(|cause| self.fault("binding", cause))?;
        // An interface that is down leaves ENETDOWN behind, which the route socket reports, too.
        self.socket.take_error().map_err(|cause| self.fault("binding", cause))?;
        Ok(())
    }

    /// Goes on with an interface that has come back as `device`; what the ring still holds stays in it. The
    /// gate is open.
    fn bind_again(&mut self, device: Device) -> Result<(), SourceError> {
        self.device = device;
        self.bind()?;
        self.stage = Stage::Bound;
        Ok(())
    }

    /// Whether the socket served the interface `name`, which is gone, and can be bound again.
    fn can_serve_again(&self, name: &str) -> bool {
        self.stage != Stage::Bound && self.group.is_none() && self.interface.name == name
    }

    /// The socket, to be made ready for another interface; `None` where it belongs to a group.
    fn into_socket(self) -> io::Result<Option<Socket>> {
        let Port { ring, socket, group, joining, .. } = self;
        drop(ring);
        if group.is_some() && !joining {
            return Ok(None);
        }
        socket.set_filter(&gate::shut())?;
        socket.drop_ring()?;
        Ok(Some(socket))
    }

    fn warn(&mut self, text: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(text);
        }
    }

    fn fault(&self, doing: &str, cause: io::Error) -> SourceError {
        SourceError::System { place: format!("{doing} on {}", self.interface.name), cause }
    }

    /// Joins the fan-out group if there is one. Where the kernel wants the interface to be up for that and it
    /// isn't, it is done when the interface comes up.
    fn join_group(&mut self, state: LinkState) -> Result<(), SourceError> {
        let Some(group) = self.group.as_ref().filter(|_| self.joining) else { return Ok(()) };
        match group.join(&self.socket) {
            Ok(()) => self.joining = false,
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) && state == LinkState::Down => {}
            Err(cause) => return Err(self.fault("joining a fan-out group", cause)),
        }
        Ok(())
    }

    /// Lets packets in, unless the group has still to be joined: outside it the socket would get what the
    /// others of the group get. The programs depend on the link type, so they are made here for each
    /// interface. Needs no rights.
    fn open_gate(&mut self) -> Result<(), SourceError> {
        if self.joining {
            return Ok(());
        }
        self.socket.take_counts().map_err(|cause| self.fault("reading the kernel's counts", cause))?;
        self.intake.losses.look_again_from(ClockReading::now(0));
        self.notes.clear();
        let link = self.device.link_type;
        let excluded = own_traffic::dropping(&self.excluded, link).unwrap_or_else(|| {
            self.notes.push(format!("exclude-self: not possible on a link of type {}", link.name()));
            Vec::new()
        });
        if let Some(prefilter) = self.prefilter.clone() {
            match self.attach_prefilter(&prefilter, &excluded) {
                Ok(()) => {
                    self.notes
                        .push("prefilter: in the kernel; packets with VLAN tags in the worker".to_string());
                    return Ok(());
                }
                Err(why) => self.notes.push(format!("prefilter: in the worker, not in the kernel: {why}")),
            }
        }
        let opened = if gate::is_of_use(self.snap_len, self.takes_only_in(), &excluded) {
            self.socket.set_filter(&gate::open(self.snap_len, self.takes_only_in(), &excluded, &[]))
        } else {
            self.socket.drop_filter()
        };
        opened.map_err(|cause| self.fault("opening the gate", cause))
    }

    /// Whether packets that leave stay out: on a loopback interface each packet passes twice.
    fn takes_only_in(&self) -> bool {
        self.only_in || self.device.loopback
    }

    /// Opens the gate for packets that match `prefilter`, or says why the kernel can't filter.
    fn attach_prefilter(&self, prefilter: &Filter, excluded: &[libc::sock_filter]) -> Result<(), String> {
        let program = prefilter.in_kernel(self.device.link_type, self.snap_len)?;
        let program = gate::open(self.snap_len, self.takes_only_in(), excluded, &program);
        self.socket.set_filter(&program).map_err(|cause| format!("the kernel refuses its program: {cause}"))
    }

    /// Lets nothing in any more. The ring stays as it is and is drained; what the shut gate refuses is not
    /// counted.
    fn shut_gate(&mut self) {
        self.joining = false;
        if let Err(cause) = self.socket.set_filter(&gate::shut()) {
            self.warn(format!("{}: capture could not be stopped: {cause}", self.interface.name));
        }
    }

    /// Pushes the next block, which is ready; returns the number of packets.
    fn take_block(&mut self, sink: &mut dyn Sink) -> u64 {
        let before = self.intake.counters;
        if let Some(block) = self.ring.take() {
            self.intake.take_block(block, sink);
            self.ring.give_back();
        }
        self.look_at_long_packets(before.altered);
        let unreadable = self.intake.counters.unreadable - before.unreadable;
        if unreadable > 0 {
            self.warn(format!("{}: {unreadable} packets of the kernel's ring are unreadable", self.spec));
        }
        self.intake.counters.received - before.received
    }

    /// Whether the ring holds nothing, and nothing is being written there.
    fn is_quiet(&self) -> bool {
        !self.ring.is_ready() && !self.ring.holds_packets()
    }

    /// Packets longer than the MTU that was known: it may have grown since, then they are as they were on the
    /// wire.
    fn look_at_long_packets(&mut self, before: Altered) {
        let altered = &mut self.intake.counters.altered;
        if (altered.joined, altered.split) == (before.joined, before.split) {
            return;
        }
        if let Some(wire_bytes_max) = self.device.wire_bytes_max(&self.socket, &self.interface.name)
            && wire_bytes_max != self.intake.wire_bytes_max
        {
            (altered.joined, altered.split) = (before.joined, before.split);
            self.intake.wire_bytes_max = wire_bytes_max;
        }
    }

    /// Where the card stamps packets: how far its clock is ahead, and a word if some packets carry the other
    /// clock.
    fn compare_clocks(&mut self, clock_ns: i64) {
        let newest_ns = self.intake.newest_ns;
        // One to which nothing came says nothing of its clock.
        if self.device.timestamps != TimestampSource::Hardware || newest_ns == self.compared_ns {
            return;
        }
        self.compared_ns = newest_ns;
        self.clock_ahead_ns = newest_ns - clock_ns;
        // A worker that was held up meets old packets for a while.
        self.apart = if self.clock_ahead_ns.abs() >= STEP_NS { self.apart.saturating_add(1) } else { 0 };
        if self.apart == APART_LOOKS {
            self.warn(apart(&self.interface.name, self.clock_ahead_ns));
        }
        if self.intake.kernel_times > 0 && !self.kernel_times_reported {
            self.kernel_times_reported = true;
            self.warn(format!(
                "interface {}: some packets carry the kernel's time, not the card's",
                self.interface.name
            ));
        }
    }

    /// Reads the kernel's counts and reports what was lost.
    fn count_losses(&mut self, sink: &mut dyn Sink) -> Result<(), SourceError> {
        let begun = ClockReading::now(self.clock_ahead_ns);
        let counts =
            self.socket.take_counts().map_err(|cause| self.fault("reading the kernel's counts", cause))?;
        self.intake.count(counts, begun, ClockReading::now(self.clock_ahead_ns), sink);
        Ok(())
    }

    /// Whether a socket to which nothing comes since `ended` has handed over all that the kernel held. The
    /// last open block is closed by its timer: ending before that would lose the tail.
    fn is_drained(&mut self, ended: Instant) -> bool {
        if ended.elapsed() < 2 * self.block_timeout || self.ring.is_ready() {
            return false;
        }
        let waiting = self.intake.waiting();
        if waiting > 0 && ended.elapsed() < DRAIN_MAX {
            return false;
        }
        if waiting > 0 {
            self.warn(format!("{}: the kernel did not hand over the last {waiting} packets", self.spec));
        }
        true
    }
}

/// Gives `socket` its settings and its ring, behind a shut gate.
fn ready(
    socket: &Socket,
    name: &str,
    times: TimestampSource,
    options: &AfPacketOptions,
) -> Result<BlockRing, SourceError> {
    let fault =
        |doing: &'static str| move |cause| SourceError::System { place: format!("{doing} on {name}"), cause };
    socket.set_version(TAG_BYTES as u32).map_err(fault("setting TPACKET_V3"))?;
    socket.set_timestamps(times).map_err(fault("setting timestamps"))?;
    let ring_fault = |cause| SourceError::CaptureRing {
        mib: (u64::from(options.block_bytes) * u64::from(options.blocks)) >> 20,
        interface: name.to_string(),
        cause,
    };
    socket.set_filter(&gate::shut()).map_err(fault("attaching a filter"))?;
    socket.make_ring(options.block_bytes, options.blocks, options.block_timeout_ms).map_err(ring_fault)?;
    BlockRing::map(socket.fd(), options.block_bytes as usize, options.blocks as usize).map_err(ring_fault)
}

/// Whether this process may open packet sockets, found by opening one that receives nothing.
///
/// # Errors
/// The system's: EPERM without CAP_NET_RAW.
pub fn may_capture() -> io::Result<()> {
    Socket::open_mute().map(drop)
}

/// The warning of a card whose clock isn't the system's.
fn apart(interface: &str, ahead_ns: i64) -> String {
    let (seconds, side) =
        (ahead_ns.unsigned_abs() as f64 / 1e9, if ahead_ns > 0 { "ahead of" } else { "behind" });
    let tai = match ahead_ns / STEP_NS {
        36 | 37 => " (as TAI is, which PTP hands out)",
        _ => "",
    };
    format!(
        "interface {interface}: its card stamps packets by a clock of its own, {seconds:.1} s {side} the system's{tai}: dumps have its \
         times; to let it follow the system's clock: phc2sys -s CLOCK_REALTIME -c {} -O 0",
        shell_word(interface)
    )
}

/// The kernel's clock of packets, now: ns since the epoch.
fn realtime_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_whose_clock_is_apart_is_reported_with_cause_and_remedy() {
        let text = apart("eth0", 36_996_000_000);
        assert!(text.contains("37.0 s ahead of the system's (as TAI is"), "{text}");
        assert!(text.ends_with("phc2sys -s CLOCK_REALTIME -c eth0 -O 0"), "{text}");
        assert!(apart("eth0", -5 * STEP_NS).contains(" 5.0 s behind the system's: "));
    }
}
