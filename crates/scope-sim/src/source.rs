//! The simulated sources: an interface with the kernel's blocks, which overflow, and a file.
//!
//! ```text
//!  arrivals ─► block of the port, open ─► closed when full or old ─► handed over at a poll, the oldest block first
//!                    │ no free block
//!                    └► dropped: reported by `lost` before later packets
//! ```

use crate::packets::Sent;
use crate::scene::{Kernel, Port};
use crate::stage::Stage;
use scope_packet::{BATCH_PACKETS_MAX, Gap, GapReason, Interface, Packet, Sink, TimestampSource};
use scope_source::afpacket::{ClockReading, Losses, block_order};
use scope_source::{Polled, Source, SourceCounters, SourceError, Timing};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

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
    /// When the last live source was stopped, ns since the begin of the run.
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
    fn announce(&self, timestamps: TimestampSource, sink: &mut dyn Sink) {
        for (number, port) in &self.ports {
            sink.interface(&Interface {
                name: format!("sim{number}"),
                description: String::new(),
                link_type: port.link_type,
                snap_len: 0,
                timestamps,
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
        self.stage.pause(if starved {
            self.stage.within(0..self.starved_ns)
        } else {
            self.stage.within(100_000..6_000_000)
        });
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
    losses: Option<Losses>,
    /// Up to here gaps of the interface have been reported, ns since the begin of the run.
    down_told_ns: i64,
}

/// Live capture.
pub(crate) struct LiveSource {
    supply: Supply,
    kernel: Kernel,
    rings: Vec<Ring>,
    /// What the source has promised, era and time: nothing older comes.
    promised: (usize, i64),
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
            promised: (0, 0),
            announced: false,
            stopped_ns: None,
        }
    }

    fn look(&self) -> ClockReading {
        let stage = &self.supply.stage;
        ClockReading { clock_ns: stage.wall_ns(), monotonic: Duration::from_nanos(stage.now_ns() as u64) }
    }

    /// The kernel receives all that has come up to `now_ns`.
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
                let closes_ns = packet.arrives_ns
                    + self.supply.stage.within(self.kernel.block_ns..2 * self.kernel.block_ns);
                ring.blocks.push_back(Block { packets: vec![packet], closes_ns, closed: false });
            } else {
                ring.dropped += 1;
                self.supply.fates.set(&packet, Fate::Dropped);
            }
        }
        for ring in &mut self.rings {
            close_old(ring, now_ns);
            if self.stopped_ns.is_some() {
                for block in &mut ring.blocks {
                    block.closed = true;
                }
            }
        }
    }

    /// Reports what was lost since the last look; this look was when the kernel received what had come.
    fn report_losses(&mut self, look: ClockReading, sink: &mut dyn Sink) {
        let slack_ns = 2 * self.kernel.jitter_ns;
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let dropped = std::mem::take(&mut ring.dropped);
            let losses = ring.losses.get_or_insert(Losses::begin(look, slack_ns));
            if let Some((since_ns, until_ns)) = losses.counted(dropped, look, look) {
                sink.lost(number as u32, dropped, since_ns, until_ns);
            }
        }
        sink.counted(look.clock_ns);
    }

    /// Tells of interfaces that are down, as far as they have been.
    fn report_downs(&mut self, now_ns: i64, sink: &mut dyn Sink) {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            for down in &self.supply.ports[number].1.down {
                let (from_ns, to_ns) = (down.start.max(ring.down_told_ns), down.end.min(now_ns));
                if from_ns >= to_ns {
                    continue;
                }
                let wall = self.supply.stage.wall();
                // Where the clock was set back meanwhile, nobody can say any more when it ended by the clock
                // of before.
                let to_ns =
                    if wall.era(to_ns) == wall.era(now_ns) { wall.at(to_ns) } else { wall.at(now_ns) };
                let from_ns = wall.at(from_ns);
                let gap =
                    Gap { from_ns, to_ns, reason: GapReason::InterfaceDown, lost_min: 0, lost_max: None };
                sink.gap(number as u32, gap);
            }
            ring.down_told_ns = now_ns;
        }
    }

    /// Hands over the closed blocks, the oldest first; `wall_ns` bounds the times that were stamped since the
    /// clock was set.
    fn take_blocks(&mut self, wall_ns: i64, sink: &mut dyn Sink) -> usize {
        let mut handed_over = 0;
        loop {
            let first_ns = |ring: &Ring| {
                ring.blocks.front().filter(|block| block.closed).map(|block| block.packets[0].time_ns)
            };
            let ready = self.rings.iter_mut().filter_map(|ring| Some((first_ns(ring)?, ring)));
            let oldest = ready.min_by_key(|(first_ns, _)| block_order(*first_ns, wall_ns));
            let Some((_, ring)) = oldest else { return handed_over };
            let block = ring.blocks.pop_front().expect("it was looked at");
            for packet in &block.packets {
                let late =
                    (packet.era, packet.time_ns) < (self.promised.0, self.promised.1 - self.grace_ns());
                self.supply.fates.set(packet, if late { Fate::Late } else { Fate::HandedOver });
                self.promised = self.promised.max((packet.era, packet.time_ns));
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
            self.supply.announce(TimestampSource::Kernel, sink);
            self.report_losses(self.look(), sink);
        }
        let draining = self.stopped_ns.is_some();
        self.supply.await_turn();
        let (now_ns, look) = (self.supply.stage.now_ns(), self.look());
        let wall_ns = look.clock_ns;
        self.arrive(now_ns);
        self.report_downs(now_ns, sink);
        let handed_over = self.take_blocks(wall_ns, sink);
        self.report_losses(look, sink);
        if handed_over > 0 {
            return Ok(Polled::Packets);
        }
        if draining {
            return Ok(Polled::Ended);
        }
        if self.rings.iter().all(|ring| ring.blocks.is_empty()) {
            let clock_ns = wall_ns - self.grace_ns();
            self.promised = self.promised.max((self.supply.stage.wall().era(now_ns), clock_ns));
            sink.idle(clock_ns);
        }
        Ok(Polled::Nothing)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }

    fn stop(&mut self) {
        self.stopped_ns = Some(self.supply.stage.now_ns());
        self.supply.fates.stopped_ns.fetch_max(self.supply.stage.now_ns(), Ordering::Relaxed);
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
            self.supply.announce(TimestampSource::File, sink);
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
