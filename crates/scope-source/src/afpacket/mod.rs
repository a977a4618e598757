//! Live capture: an AF_PACKET socket with a TPACKET_V3 ring per worker, blocks lent to the sink where the kernel wrote them.
//!
//! | file | what it holds |
//! |---|---|
//! | `socket` | the system calls, as safe methods |
//! | `ring` | the memory shared with the kernel, and who owns a block when |
//! | `block` | the walk through one block; stripped VLAN tags are put back in place |
//! | `gate` | the BPF programs that keep the ring shut before and after capture |
//! | `device` | the interface: link type, clock, down and up |
//! | `fanout` | dealing packets out to several workers |
//! | `intake` | from a block to the sink, and the counts |
//! | [`settings`] | the ring's size and the block timeout, chosen from the link's speed |
//! | `losses` | the kernel's counts, and where in capture time packets were lost |
//!
//! Law, at the end of every poll: `offered = kernel_dropped + waiting + received + unreadable`, where waiting is what lies in
//! the ring; after [`Source::stop`] and `Ended` nothing waits.

mod block;
mod device;
mod fanout;
mod gate;
mod intake;
pub(crate) mod losses;
mod ring;
pub mod settings;
mod socket;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use scope_filter::Filter;
use scope_packet::{Interface, LinkType, Sink, TimestampSource};

use crate::own_traffic::{self, Connection};
use crate::spec::AfPacketPlan;
use crate::{Polled, Source, SourceCounters, SourceError, Timing};
use block::{Rules, TAG_BYTES};
use device::{Device, LinkWatch};
use fanout::FanoutGroup;
use intake::Intake;
use losses::Losses;
use ring::BlockRing;
use socket::{Socket, Woken};

pub use fanout::FanoutMode;

/// Most workers of one interface.
pub const WORKERS_MAX: u32 = 64;
/// Most ring memory of one worker, bytes: the kernel's own bound lies near it.
pub const RING_BYTES_MAX: u64 = 2 << 30;
/// A poll returns after the block in which it reaches this many packets.
const POLL_PACKETS: u64 = 4096;
/// Longest that a poll waits.
const POLL_WAIT: Duration = Duration::from_millis(10);
/// Longest that a stopped source waits for packets that the kernel counted and has not handed over.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Snap length where none is asked for: more than any packet, and what other tools understand.
const SNAP_LEN_MAX: u32 = 256 << 10;

/// What is asked of live capture on one interface.
#[derive(Clone, Debug)]
pub struct AfPacketOptions {
    /// Name of the interface.
    pub interface: String,
    /// Sockets, each polled by a worker of its own; 1 to [`WORKERS_MAX`].
    pub workers: u32,
    /// Most bytes kept of a packet, a VLAN tag that is put back included; `None` or 0: all.
    pub snap_len: Option<u32>,
    /// Also packets that are addressed to other hosts.
    pub promiscuous: bool,
    /// Bytes of one block of the kernel's ring: a multiple of 4096 (rather: a power of two).
    pub block_bytes: u32,
    /// Blocks per worker, at least 2; with `block_bytes` the bound of the ring's memory.
    pub blocks: u32,
    /// Longest that the kernel keeps a block with packets for itself, ms; the greater part of the time from wire to trigger.
    pub block_timeout_ms: u32,
    /// How packets are dealt out to several workers.
    pub fanout: FanoutMode,
    /// The kernel may turn away what this filter doesn't take: whoever polls asks it again. See [`scope_filter::kernel`].
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
            snap_len: None,
            promiscuous: true,
            block_bytes: 1 << 20,
            blocks: 64,
            block_timeout_ms: 4,
            fanout: FanoutMode::Hash,
            prefilter: None,
            excluded: Vec::new(),
        }
    }

    /// As `plan` says; what it leaves open as in [`AfPacketOptions::new`].
    pub fn of(plan: &AfPacketPlan) -> AfPacketOptions {
        let default = AfPacketOptions::new(&plan.interface);
        AfPacketOptions {
            workers: plan.workers,
            snap_len: plan.snap_len,
            promiscuous: plan.promiscuous,
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

    /// Refuses what can't be, in words for the operator.
    fn check(&self) -> Result<(), String> {
        if self.workers == 0 || self.workers > WORKERS_MAX {
            return Err(format!("workers={} is not possible; 1 to {WORKERS_MAX} are", self.workers));
        }
        if self.block_bytes < 65536 || !self.block_bytes.is_multiple_of(4096) {
            return Err(format!("blocks of {} bytes are not possible; multiples of 4096 from 65536 on are", self.block_bytes));
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
            return Err(format!("a block timeout of {} ms is not possible; 1 to 1000 are", self.block_timeout_ms));
        }
        Ok(())
    }
}

/// Opens live capture; the sources are to be polled by one worker each. `spec` is what the operator typed.
///
/// Capture begins here, not at the first poll: what comes meanwhile waits in the kernel's ring.
///
/// # Errors
/// [`SourceError::Spec`] for options that can't be and interfaces whose link type isn't supported, `NoInterface`,
/// `NoPermission`, `System` for the rest.
pub fn open(options: &AfPacketOptions, spec: &str) -> Result<Vec<AfPacketSource>, SourceError> {
    options.check().map_err(|cause| SourceError::Spec { spec: spec.to_string(), cause })?;
    let known = socket::interface_names();
    if !known.contains(&options.interface) {
        return Err(SourceError::NoInterface { name: options.interface.clone(), known: known.join(", ") });
    }
    // The order is what keeps packets of other interfaces, and packets dealt out twice, from slipping in.
    // 1. Each worker's socket is opened mute (protocol 0): a fresh packet socket with a protocol hears every interface.
    // 2. It is made ready, its gate shut, and bound to the interface; then it listens, behind the shut gate.
    let group = (options.workers > 1).then(|| Arc::new(FanoutGroup::new(options.fanout)));
    let mut sources =
        (0..options.workers).map(|_| AfPacketSource::prepare(options, spec, group.clone())).collect::<Result<Vec<_>, _>>()?;
    // 3. All join the fan-out group. Older kernels let only sockets join that listen: on an interface that is down a later poll
    //    does it.
    for source in &mut sources {
        source.join_group()?;
    }
    // 4. All gates are opened; only now does the kernel count and keep packets.
    for source in &mut sources {
        source.open_gate()?;
    }
    Ok(sources)
}

/// One worker's share of a live interface.
pub struct AfPacketSource {
    spec: String,
    interface: Interface,
    announced: bool,
    device: Device,
    // The ring is unmapped before its socket is closed: fields are dropped in this order.
    ring: BlockRing,
    socket: Socket,
    snap_len: u32,
    prefilter: Option<Filter>,
    excluded: Vec<Connection>,
    /// What was decided while it was opened, in plain words.
    notes: Vec<String>,
    /// The group that is still to be joined, and the gate opened behind it.
    joining: Option<Arc<FanoutGroup>>,
    block_timeout: Duration,
    watch: LinkWatch,
    intake: Intake,
    /// Capture clock less ours, ns: 0 unless the card's clock stamps the packets.
    clock_ahead_ns: i64,
    kernel_times_told: bool,
    stopped: Option<Instant>,
    ended: bool,
}

impl AfPacketSource {
    fn prepare(options: &AfPacketOptions, spec: &str, group: Option<Arc<FanoutGroup>>) -> Result<AfPacketSource, SourceError> {
        let name = &options.interface;
        let fault = |doing: &'static str| move |cause| SourceError::System { place: format!("{doing} on {name}"), cause };
        let socket = Socket::open_mute().map_err(|cause| match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SourceError::no_permission(name),
            _ => fault("opening a packet socket")(cause),
        })?;
        let device = Device::look(&socket, name).map_err(fault("asking for the link type"))?.map_err(|kind| {
            let cause = format!("interface {name} is of kind {kind} (ARPHRD); supported are {}", device::SUPPORTED);
            SourceError::Spec { spec: spec.to_string(), cause }
        })?;
        socket.set_version(TAG_BYTES as u32).map_err(fault("asking for TPACKET_V3"))?;
        if device.timestamps == TimestampSource::Hardware {
            socket.ask_hardware_times().map_err(fault("asking for hardware timestamps"))?;
        }
        let ring_fault = |cause| SourceError::System {
            place: format!(
                "making a capture ring of {} MiB on {name} (fewer workers or a smaller ring need less)",
                (u64::from(options.block_bytes) * u64::from(options.blocks)) >> 20
            ),
            cause,
        };
        socket.make_ring(options.block_bytes, options.blocks, options.block_timeout_ms).map_err(ring_fault)?;
        let ring = BlockRing::map(socket.fd(), options.block_bytes as usize, options.blocks as usize).map_err(ring_fault)?;
        socket.set_filter(&gate::shut()).map_err(fault("attaching a filter"))?;
        socket.bind(device.index, 0).map_err(fault("binding"))?;
        if options.promiscuous {
            socket.set_promiscuous(device.index).map_err(fault("turning promiscuous mode on (promisc=off does without)"))?;
        }
        socket.bind(device.index, libc::ETH_P_ALL as u16).map_err(fault("binding"))?;
        let watch = LinkWatch::begin(&socket, name, device.index);
        // An interface that is down leaves ENETDOWN behind, which the watch has told already.
        socket.take_error().map_err(fault("binding"))?;
        let snap_len = options.snap_len();
        let interface = Interface {
            name: name.clone(),
            description: String::new(),
            link_type: device.link_type,
            snap_len: if snap_len == SNAP_LEN_MAX { 0 } else { snap_len },
            timestamps: device.timestamps,
            part: 0,
        };
        let rules = Rules { ethernet: device.link_type == LinkType::ETHERNET, snap_len: snap_len as usize };
        Ok(AfPacketSource {
            spec: spec.to_string(),
            interface,
            announced: false,
            ring,
            socket,
            snap_len,
            prefilter: options.prefilter.clone(),
            excluded: options.excluded.clone(),
            notes: Vec::new(),
            joining: group,
            block_timeout: Duration::from_millis(options.block_timeout_ms.into()),
            watch,
            intake: Intake::begin(rules, Losses::begin(realtime_ns(), i64::from(options.block_timeout_ms) * 1_000_000)),
            clock_ahead_ns: 0,
            kernel_times_told: false,
            stopped: None,
            ended: false,
            device,
        })
    }

    fn fault(&self, doing: &str, cause: io::Error) -> SourceError {
        SourceError::System { place: format!("{doing} on {}", self.interface.name), cause }
    }

    /// Joins the fan-out group if there is one. Where the kernel wants the interface to be up for that and it isn't, a later
    /// poll does it.
    fn join_group(&mut self) -> Result<(), SourceError> {
        let Some(group) = self.joining.take() else { return Ok(()) };
        match group.join(&self.socket) {
            Ok(()) => Ok(()),
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) && !self.watch.is_up() => {
                self.joining = Some(group);
                Ok(())
            }
            Err(cause) => Err(self.fault("joining a fan-out group", cause)),
        }
    }

    /// Lets packets in, unless the group has still to be joined: outside it the socket would get what its fellows get.
    fn open_gate(&mut self) -> Result<(), SourceError> {
        if self.joining.is_some() {
            return Ok(());
        }
        self.socket.take_counts().map_err(|cause| self.fault("reading the kernel's counts", cause))?;
        self.intake.losses.look_again_from(realtime_ns());
        self.notes.clear();
        let link = self.device.link_type;
        let excluded = own_traffic::dropping(&self.excluded, link).unwrap_or_else(|| {
            self.notes.push(format!("exclude-self: nothing can be left out on a link of type {}", link.name()));
            Vec::new()
        });
        if let Some(prefilter) = self.prefilter.clone() {
            match self.attach_prefilter(&prefilter, &excluded) {
                Ok(()) => {
                    self.notes.push("prefilter: in the kernel; frames with VLAN tags are asked in the worker".to_string());
                    return Ok(());
                }
                Err(why) => self.notes.push(format!("prefilter: in the worker, not in the kernel: {why}")),
            }
        }
        let program = gate::open(self.snap_len, self.device.loopback, &excluded, &[]);
        self.socket.set_filter(&program).map_err(|cause| self.fault("attaching a filter", cause))
    }

    /// Opens the gate for what `prefilter` takes, or says why the kernel isn't asked.
    fn attach_prefilter(&self, prefilter: &Filter, excluded: &[libc::sock_filter]) -> Result<(), String> {
        let program = prefilter.in_kernel(self.device.link_type, self.snap_len)?;
        let program = gate::open(self.snap_len, self.device.loopback, excluded, &program);
        self.socket.set_filter(&program).map_err(|cause| format!("the kernel refuses its program: {cause}"))
    }

    /// Pushes the blocks that are ready; returns the number of packets.
    fn take_blocks(&mut self, sink: &mut dyn Sink) -> u64 {
        let before = self.intake.counters;
        while self.intake.counters.received - before.received < POLL_PACKETS {
            let Some(block) = self.ring.take() else { break };
            self.intake.take_block(block, sink);
            self.ring.give_back();
        }
        let unreadable = self.intake.counters.unreadable - before.unreadable;
        if unreadable > 0 {
            self.watch.warn(format!("{}: {unreadable} packets of the kernel's ring are unreadable", self.spec));
        }
        self.intake.counters.received - before.received
    }

    /// Where the card stamps packets: how far its clock is ahead, and a word if some packets carry the other clock.
    fn compare_clocks(&mut self, clock_ns: i64) {
        self.clock_ahead_ns = self.intake.newest_ns - clock_ns;
        if self.intake.kernel_times > 0 && !self.kernel_times_told {
            self.kernel_times_told = true;
            self.watch.warn(format!("interface {}: some packets carry the kernel's time, not the card's", self.interface.name));
        }
    }

    /// Waits for a block. Interfaces that go down or come up are noticed here.
    fn wait(&mut self) -> Result<(), SourceError> {
        let woken = self.socket.wait(POLL_WAIT).map_err(|cause| self.fault("waiting for packets", cause))?;
        if woken == Woken::InterfaceDown {
            self.watch.went_down(&self.socket);
        }
        self.watch.look(&self.socket);
        if self.watch.is_up() && self.joining.is_some() {
            self.join_group()?;
            self.open_gate()?;
        }
        Ok(())
    }

    /// Reads the kernel's counts and reports what was lost.
    fn count_losses(&mut self, sink: &mut dyn Sink) -> Result<(), SourceError> {
        let counts = self.socket.take_counts().map_err(|cause| self.fault("reading the kernel's counts", cause))?;
        // The clock is read behind the count: what was counted was lost before that.
        self.intake.count(counts, realtime_ns() + self.clock_ahead_ns, sink);
        Ok(())
    }

    /// Whether a stopped source has handed over all that the kernel held. The last open block is closed by its timer: ending
    /// before that would lose the tail.
    fn is_drained(&mut self) -> bool {
        let Some(stopped) = self.stopped else { return false };
        if stopped.elapsed() < 2 * self.block_timeout || self.ring.is_ready() {
            return false;
        }
        if self.intake.waiting() > 0 && stopped.elapsed() < DRAIN_MAX {
            return false;
        }
        if self.intake.waiting() > 0 {
            self.watch.warn(format!("{}: the kernel did not hand over the last {} packets", self.spec, self.intake.waiting()));
        }
        true
    }
}

impl Source for AfPacketSource {
    fn name(&self) -> &str {
        &self.spec
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    /// Twice the block timeout: the kernel's timer closes a block at its second tick, at the latest.
    fn grace_ns(&self) -> i64 {
        2 * self.block_timeout.as_nanos() as i64
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
        let mut packets = self.take_blocks(sink);
        if packets == 0 {
            self.wait()?;
            // Before the look at the ring: what comes after this look is younger.
            clock_ns = realtime_ns();
            packets = self.take_blocks(sink);
        }
        let quiet = !self.ring.is_ready() && !self.ring.holds_packets();
        self.count_losses(sink)?;
        if packets > 0 {
            if self.device.timestamps == TimestampSource::Hardware {
                self.compare_clocks(clock_ns);
            }
            return Ok(Polled::Packets);
        }
        if self.is_drained() {
            self.ended = true;
            return Ok(Polled::Ended);
        }
        if self.stopped.is_none() && quiet && self.watch.gone_since().is_some_and(|gone| gone.elapsed() >= 2 * self.block_timeout)
        {
            self.ended = true;
            return Err(SourceError::Removed { interface: self.interface.name.clone() });
        }
        if quiet {
            sink.idle(clock_ns + self.clock_ahead_ns - self.grace_ns());
        }
        Ok(Polled::Nothing)
    }

    fn counters(&self) -> SourceCounters {
        self.intake.counters
    }

    fn stop(&mut self) {
        self.joining = None;
        // The ring stays as it is and is polled empty; what the shut gate turns away is not counted.
        if let Err(cause) = self.socket.set_filter(&gate::shut()) {
            self.watch.warn(format!("{}: capture could not be shut: {cause}", self.spec));
        }
        self.stopped = Some(Instant::now());
    }

    fn warnings(&mut self) -> Vec<String> {
        self.watch.take_warnings()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// The kernel's clock of packets, now: ns since the epoch.
fn realtime_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}
