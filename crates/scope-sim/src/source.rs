//! The simulated sources: an interface with the kernel's blocks, which overflow, and a file.
//!
//! ```text
//!  arrivals ─► block of the port, open ─► closed when full or old ─► handed over at a poll, the oldest block first
//!                    │ no free block
//!                    └► dropped: told by `lost` before what comes behind
//! ```

use crate::packets::Sent;
use crate::scene::{Kernel, Port};
use crate::stage::{Stage, WALL_BEGIN_NS};
use scope_packet::{BATCH_PACKETS_MAX, Gap, GapReason, Interface, Packet, Sink, TimestampSource};
use scope_source::{Polled, Source, SourceCounters, SourceError, Timing};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

/// What became of a packet before the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    /// It never came: the run had ended.
    NotSent = 0,
    /// Handed to the worker.
    HandedOver = 1,
    /// The kernel dropped it.
    Dropped = 2,
    /// Handed to the worker later than the source promises.
    Late = 3,
}

/// What becomes of a run's packets, and of its sources.
#[derive(Debug)]
pub(crate) struct Fates {
    /// By number.
    packets: Vec<AtomicU8>,
    /// When the last live source was told to stop, wall clock, ns.
    stopped_ns: AtomicI64,
}

impl Fates {
    pub(crate) fn new(packets: usize) -> Arc<Fates> {
        let packets = (0..packets).map(|_| AtomicU8::new(0)).collect();
        Arc::new(Fates { packets, stopped_ns: AtomicI64::new(0) })
    }

    fn set(&self, packet: &Sent, fate: Fate) {
        self.packets[packet.number as usize].store(fate as u8, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, packet: &Sent) -> Fate {
        match self.packets[packet.number as usize].load(Ordering::Relaxed) {
            1 => Fate::HandedOver,
            2 => Fate::Dropped,
            3 => Fate::Late,
            _ => Fate::NotSent,
        }
    }

    pub(crate) fn stopped_ns(&self) -> i64 {
        self.stopped_ns.load(Ordering::Relaxed)
    }
}

/// What both kinds of source have.
pub(crate) struct Supply {
    pub stage: Arc<Stage>,
    pub fates: Arc<Fates>,
    /// This worker's interfaces, with their numbers in the run.
    pub ports: Vec<(usize, Port)>,
    /// This worker's packets by arrival.
    pub packets: VecDeque<Sent>,
    /// A turn comes up to so much later, ns.
    pub starved_ns: i64,
}

impl Supply {
    fn announce(&self, sink: &mut dyn Sink) {
        for (number, port) in &self.ports {
            sink.interface(&Interface {
                name: format!("sim{number}"),
                description: String::new(),
                link_type: port.link_type,
                snap_len: 0,
                timestamps: TimestampSource::Generator,
                part: 0,
            });
        }
    }

    /// The source's own number of the interface.
    fn own_number(&self, packet: &Sent) -> u32 {
        self.ports.iter().position(|(number, _)| *number == packet.interface).unwrap_or(0) as u32
    }

    /// Hands packets over, a batch at a time; somebody else may have the turn in between.
    fn hand_over(&self, packets: &[Sent], sink: &mut dyn Sink) {
        for part in packets.chunks(BATCH_PACKETS_MAX) {
            let frames: Vec<Vec<u8>> = part.iter().map(Sent::frame).collect();
            let lent: Vec<Packet<'_>> = part
                .iter()
                .zip(&frames)
                .map(|(packet, frame)| Packet {
                    data: frame,
                    original_len: frame.len() as u32,
                    time_ns: packet.time_ns,
                    interface: self.own_number(packet),
                    flags: 0,
                    lost_before: 0,
                })
                .collect();
            sink.batch(&lent);
            if self.stage.within(0..100) < 20 {
                self.stage.pause(self.stage.within(0..2_000_000));
            }
        }
    }

    fn await_turn(&self) {
        let starved = self.starved_ns > 0 && self.stage.within(0..100) < 3;
        self.stage.pause(if starved { self.stage.within(0..self.starved_ns) } else { self.stage.within(100_000..6_000_000) });
    }
}

/// Packets of one interface that are handed over together.
#[derive(Debug)]
struct Block {
    packets: Vec<Sent>,
    /// When the kernel closes it at the latest, ns since the begin of the run.
    closes_ns: i64,
    closed: bool,
}

/// One interface in the kernel.
#[derive(Debug, Default)]
struct Ring {
    blocks: VecDeque<Block>,
    dropped: u64,
    /// Up to here gaps of the interface have been told, ns since the begin of the run.
    down_told_ns: i64,
}

/// Live capture.
pub(crate) struct LiveSource {
    supply: Supply,
    kernel: Kernel,
    rings: Vec<Ring>,
    /// The last look at the drops, wall clock.
    looked_ns: i64,
    /// What the source has promised: nothing older comes.
    promised_ns: i64,
    announced: bool,
    stopped_ns: Option<i64>,
}

impl LiveSource {
    pub(crate) fn new(supply: Supply, kernel: &Kernel) -> LiveSource {
        let rings = supply.ports.iter().map(|_| Ring::default()).collect();
        LiveSource {
            supply,
            kernel: kernel.clone(),
            rings,
            looked_ns: WALL_BEGIN_NS,
            promised_ns: 0,
            announced: false,
            stopped_ns: None,
        }
    }

    /// The kernel takes in all that has come up to `now_ns`.
    fn arrive(&mut self, now_ns: i64) {
        let until_ns = self.stopped_ns.map_or(now_ns, |stopped_ns| stopped_ns.min(now_ns));
        while let Some(packet) = self.supply.packets.pop_front_if(|packet| packet.arrives_ns <= until_ns) {
            let ring = &mut self.rings[self.supply.own_number(&packet) as usize];
            close_old(ring, packet.arrives_ns);
            let open = ring.blocks.back_mut().filter(|block| !block.closed);
            if let Some(open) = open {
                open.packets.push(packet);
                open.closed = open.packets.len() >= self.kernel.block_packets;
            } else if ring.blocks.len() < self.kernel.blocks {
                let closes_ns = packet.arrives_ns + self.supply.stage.within(self.kernel.block_ns..2 * self.kernel.block_ns);
                ring.blocks.push_back(Block { packets: vec![packet], closes_ns, closed: false });
            } else {
                ring.dropped += 1;
                self.supply.fates.set(&packet, Fate::Dropped);
            }
        }
        for ring in &mut self.rings {
            close_old(ring, now_ns);
            if self.stopped_ns.is_some() {
                ring.blocks.iter_mut().for_each(|block| block.closed = true);
            }
        }
    }

    /// Tells what was lost since the last look.
    fn tell_losses(&mut self, wall_ns: i64, sink: &mut dyn Sink) {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let dropped = std::mem::take(&mut ring.dropped);
            if dropped > 0 {
                sink.lost(number as u32, dropped, self.looked_ns - self.kernel.jitter_ns * 2, wall_ns);
            }
        }
        self.looked_ns = wall_ns;
    }

    /// Tells of interfaces that are down, as far as they have been.
    fn tell_downs(&mut self, now_ns: i64, sink: &mut dyn Sink) {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            for down in &self.supply.ports[number].1.down {
                let (from_ns, to_ns) = (down.start.max(ring.down_told_ns), down.end.min(now_ns));
                if from_ns < to_ns {
                    sink.gap(
                        number as u32,
                        Gap {
                            from_ns: WALL_BEGIN_NS + from_ns,
                            to_ns: WALL_BEGIN_NS + to_ns,
                            reason: GapReason::InterfaceDown,
                            lost_min: 0,
                            lost_max: None,
                        },
                    );
                }
            }
            ring.down_told_ns = now_ns;
        }
    }

    /// Hands over the closed blocks, the oldest first.
    fn take_blocks(&mut self, sink: &mut dyn Sink) -> usize {
        let mut handed_over = 0;
        loop {
            let first_ns = |ring: &Ring| ring.blocks.front().filter(|block| block.closed).map(|block| block.packets[0].time_ns);
            let oldest =
                self.rings.iter_mut().filter_map(|ring| Some((first_ns(ring)?, ring))).min_by_key(|(first_ns, _)| *first_ns);
            let Some((_, ring)) = oldest else { return handed_over };
            let block = ring.blocks.pop_front().expect("it was looked at");
            for packet in &block.packets {
                let late = packet.time_ns < self.promised_ns - self.grace_ns();
                self.supply.fates.set(packet, if late { Fate::Late } else { Fate::HandedOver });
                self.promised_ns = self.promised_ns.max(packet.time_ns);
            }
            handed_over += block.packets.len();
            self.supply.hand_over(&block.packets, sink);
        }
    }
}

fn close_old(ring: &mut Ring, now_ns: i64) {
    for block in &mut ring.blocks {
        block.closed |= block.closes_ns <= now_ns;
    }
}

impl Source for LiveSource {
    fn name(&self) -> &str {
        "sim"
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    fn grace_ns(&self) -> i64 {
        2 * self.kernel.block_ns + 2 * self.kernel.jitter_ns
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if !self.announced {
            self.announced = true;
            self.supply.announce(sink);
        }
        let draining = self.stopped_ns.is_some();
        self.supply.await_turn();
        let (now_ns, wall_ns) = (self.supply.stage.now_ns(), self.supply.stage.wall_ns());
        self.arrive(now_ns);
        self.tell_losses(wall_ns, sink);
        self.tell_downs(now_ns, sink);
        if self.take_blocks(sink) > 0 {
            return Ok(Polled::Packets);
        }
        if draining {
            return Ok(Polled::Ended);
        }
        if self.rings.iter().all(|ring| ring.blocks.is_empty()) {
            let clock_ns = wall_ns - self.grace_ns();
            self.promised_ns = self.promised_ns.max(clock_ns);
            sink.idle(clock_ns);
        }
        Ok(Polled::Nothing)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }

    fn stop(&mut self) {
        self.stopped_ns = Some(self.supply.stage.now_ns());
        self.supply.fates.stopped_ns.fetch_max(self.supply.stage.wall_ns(), Ordering::Relaxed);
    }
}

/// A capture file.
pub(crate) struct FileSource {
    pub supply: Supply,
    pub announced: bool,
    pub newest_ns: i64,
    pub stopped: bool,
}

/// How much older than the newest a packet of a file may be.
const FILE_GRACE_NS: i64 = 1_000_000_000;

impl Source for FileSource {
    fn name(&self) -> &str {
        "sim.pcap"
    }

    fn timing(&self) -> Timing {
        Timing::Waits
    }

    fn grace_ns(&self) -> i64 {
        FILE_GRACE_NS
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if !self.announced {
            self.announced = true;
            self.supply.announce(sink);
        }
        self.supply.await_turn();
        if self.stopped || self.supply.packets.is_empty() {
            return Ok(Polled::Ended);
        }
        let count = (1 + self.supply.stage.within(0..200) as usize).min(self.supply.packets.len());
        let packets: Vec<Sent> = self.supply.packets.drain(..count).collect();
        for packet in &packets {
            let late = packet.time_ns < self.newest_ns - FILE_GRACE_NS;
            self.supply.fates.set(packet, if late { Fate::Late } else { Fate::HandedOver });
            self.newest_ns = self.newest_ns.max(packet.time_ns);
        }
        self.supply.hand_over(&packets, sink);
        Ok(Polled::Packets)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }

    fn next_time_ns(&mut self) -> Option<i64> {
        self.supply.packets.front().map(|packet| packet.time_ns)
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}
