//! What happens in a run, drawn by the dice before it begins: sources, traffic, ring, triggers, disk, and
//! what is done to them.

use crate::dice::Dice;
use crate::disk::DiskBehaviour;
use crate::packets::{BYTES_MIN, FILTERS, KINDS, LINK_TYPES, Sent};
use crate::stage::Wall;
use scope_dump::DumpFormat;
use scope_packet::LinkType;
use std::ops::Range;

const MS: i64 = 1_000_000;

/// Segments are as small as they can be.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;

/// One interface.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub worker: u32,
    pub link_type: LinkType,
    /// Spans in which it is down, ns since the begin of the run.
    pub down: Vec<Range<i64>>,
}

/// How a source hands over what has come.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// A block of packets is handed over when it is that old at least, and twice that at most, ns.
    pub block_ns: i64,
    /// Packets of a block, at most.
    pub block_packets: usize,
    /// Blocks of an interface.
    pub blocks: usize,
    /// Capture times may be this much older than the moment, ns.
    pub jitter_ns: i64,
}

/// Something that is done to the run from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// A fire by hand of this trigger.
    Fire(usize),
    /// All threads stand still.
    StandStill(i64),
    /// The triggers are replaced: other windows.
    Reload,
}

/// One trigger.
#[derive(Clone, Debug)]
pub(crate) struct TriggerScene {
    pub condition: usize,
    /// Of [`FILTERS`].
    pub filter: usize,
    pub before_ns: i64,
    pub after_ns: i64,
    pub holdoff_ns: i64,
}

/// A whole run.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    /// Else it reads files.
    pub live: bool,
    pub workers: u32,
    pub ports: Vec<Port>,
    pub kernel: Kernel,
    pub prefilter: bool,
    pub lanes: u32,
    pub segments: u64,
    pub packets: Vec<Sent>,
    pub wall: Wall,
    pub triggers: Vec<TriggerScene>,
    pub dumps_max: usize,
    pub patience_ns: i64,
    /// Into a pipe, which takes one dump, or all of them together.
    pub stream: bool,
    /// All windows are gathered, and become one file at the end.
    pub all: bool,
    pub format: DumpFormat,
    /// The first worker has so much of the ring for itself, in percent.
    pub share_percent: Option<u32>,
    pub disk: DiskBehaviour,
    /// A worker gets the turn up to so much later than it is due, ns.
    pub starved_ns: i64,
    /// So many of a hundred dumps get no thread.
    pub threadless: u64,
    /// By their times.
    pub acts: Vec<(i64, Act)>,
    /// A live run is stopped here.
    pub stop_ns: i64,
}

impl Scene {
    pub(crate) fn draw(dice: &mut Dice) -> Scene {
        let live = dice.chance(75);
        let workers = 1 + dice.below(3) as u32;
        let length_ns = dice.within(200 * MS..2500 * MS);
        let several_types = dice.chance(30);
        let ports = ports(dice, live, workers, several_types, length_ns);
        let mut lanes: Vec<(u32, LinkType)> =
            ports.iter().map(|port| (port.worker, port.link_type)).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let lanes = lanes.len() as u32;
        // Two groups of lanes have all segments that each of them needs, with a margin for what is rounded.
        let share_percent = (workers > 1 && dice.chance(25)).then(|| dice.within(35..66) as u32);
        let segments = u64::from(lanes) * 16 * if share_percent.is_some() { 3 } else { 1 } + dice.below(12);
        let block_ns = dice.pick(&[2 * MS, 10 * MS, 40 * MS]);
        let kernel = Kernel {
            block_ns,
            block_packets: dice.within(2..40) as usize,
            blocks: dice.within(2..12) as usize,
            jitter_ns: dice.pick(&[0, 0, MS, block_ns]),
        };
        let wall = if live && dice.chance(20) { wall(dice, length_ns) } else { Wall::default() };
        let packets = packets(dice, live, &ports, &kernel, segments, length_ns, &wall);
        let triggers =
            (0..1 + dice.below(2) as usize).map(|condition| trigger(dice, condition, length_ns)).collect();
        let stream = dice.chance(10);
        let all = dice.chance(15);
        let format = if dice.chance(15) { DumpFormat::Pcap } else { DumpFormat::Pcapng };
        let stop_ns = if dice.chance(50) {
            dice.within(length_ns / 2..length_ns)
        } else {
            length_ns + dice.within(0..500 * MS)
        };
        Scene {
            live,
            workers,
            prefilter: dice.chance(15),
            lanes,
            segments,
            packets,
            wall,
            triggers,
            share_percent,
            all,
            format,
            dumps_max: if stream && !all {
                1
            } else if live {
                dice.pick(&[1, 2, 4, 8, 16, 40])
            } else {
                1024
            },
            patience_ns: dice.within(20 * MS..1500 * MS),
            stream,
            disk: manner(dice, stream, length_ns),
            starved_ns: if dice.chance(25) { dice.within(10 * MS..1500 * MS) } else { 0 },
            threadless: if dice.chance(10) { 30 } else { 0 },
            acts: acts(dice, live, length_ns),
            stop_ns,
            ports,
            kernel,
        }
    }
}

/// The clock is set once. (Of two steps within one standstill nobody sees more than their sum.) Times of
/// different eras are so far from each other that no window holds both: so a time says to which it belongs.
fn wall(dice: &mut Dice, length_ns: i64) -> Wall {
    const APART_NS: i64 = 60_000 * MS;
    let size_ns =
        dice.pick(&[10 * MS, 500 * MS, 3000 * MS, 61_000 * MS, 61_000 * MS, 3_600_000 * MS, 3_600_000 * MS])
            + dice.within(0..MS);
    let is_back = size_ns > APART_NS && dice.chance(80);
    Wall { steps: vec![(dice.within(0..length_ns), if is_back { -size_ns } else { size_ns })] }
}

fn ports(dice: &mut Dice, live: bool, workers: u32, several_types: bool, length_ns: i64) -> Vec<Port> {
    let downs = live && dice.chance(20);
    let main = dice.pick(&LINK_TYPES);
    let mut ports = Vec::new();
    for worker in 0..workers {
        for _ in 0..1 + dice.below(3) {
            let link_type = if several_types { dice.pick(&LINK_TYPES) } else { main };
            let mut down = Vec::new();
            if downs && dice.chance(50) {
                let from = dice.within(0..length_ns);
                down.push(from..from + dice.within(MS..length_ns / 2));
            }
            ports.push(Port { worker, link_type, down });
        }
    }
    ports
}

/// Traffic that turns the ring from a part of once to a few times.
fn packets(
    dice: &mut Dice,
    live: bool,
    ports: &[Port],
    kernel: &Kernel,
    segments: u64,
    length_ns: i64,
    wall: &Wall,
) -> Vec<Sent> {
    let sizes = dice.pick(&[(60, 200), (400, 1500), (1000, 9000), (60, 12_000)]);
    let turns_percent = dice.pick(&[20u64, 80, 150, 300]);
    let mean = (sizes.0 + sizes.1) / 2;
    let count = (segments * SEGMENT_BYTES * turns_percent / 100 / mean).clamp(40, 1600);
    let hits_percent = dice.pick(&[1, 3, 10]);
    // A source of files hands over what is this much out of order; the grace is a second.
    let jitter_ns = if live { kernel.jitter_ns } else { dice.pick(&[0, 0, 5 * MS, 400 * MS]) };
    let quantum_ns = dice.pick(&[1, 1, MS, 20 * MS]);
    let mut moments: Vec<i64> = Vec::new();
    let bursts = dice.chance(40);
    while (moments.len() as u64) < count {
        let at = dice.within(0..length_ns);
        let burst = if bursts && dice.chance(20) { 1 + dice.below(60) } else { 1 };
        moments.extend((0..burst as i64).map(|nth| at + nth * 20_000));
    }
    moments.sort_unstable();
    let mut packets = Vec::with_capacity(moments.len());
    for arrives_ns in moments {
        let interface = dice.below(ports.len() as u64) as usize;
        let port = &ports[interface];
        if port.down.iter().any(|down| down.contains(&arrives_ns)) {
            continue;
        }
        let kind = if dice.chance(hits_percent) { 3 + dice.below(2) } else { dice.below(3) } as usize;
        let late_ns = dice.within(0..jitter_ns + 1);
        let time_ns =
            ((arrives_ns - late_ns).max(0) / quantum_ns * quantum_ns).max(arrives_ns - late_ns - jitter_ns);
        let stamped_ns = if quantum_ns > 1 && jitter_ns == 0 && !live {
            arrives_ns / quantum_ns * quantum_ns
        } else {
            time_ns
        };
        packets.push(Sent {
            number: packets.len() as u32,
            interface,
            link_type: port.link_type,
            kind: KINDS[kind],
            bytes: (dice.within(sizes.0 as i64..sizes.1 as i64) as u32).max(BYTES_MIN),
            arrives_ns,
            era: wall.era(stamped_ns),
            time_ns: wall.at(stamped_ns),
        });
    }
    packets
}

fn trigger(dice: &mut Dice, condition: usize, length_ns: i64) -> TriggerScene {
    let filter = if dice.chance(60) { 0 } else { dice.below(FILTERS.len() as u64) as usize };
    let long = dice.chance(30);
    let of = |dice: &mut Dice| if long { dice.within(0..length_ns) } else { dice.within(0..length_ns / 8) };
    TriggerScene {
        condition,
        filter,
        before_ns: of(dice),
        after_ns: of(dice),
        holdoff_ns: dice.pick(&[0, 0, 50 * MS, 300 * MS]),
    }
}

fn manner(dice: &mut Dice, stream: bool, length_ns: i64) -> DiskBehaviour {
    let span = |dice: &mut Dice| {
        let from = dice.within(0..length_ns);
        (from, from + dice.within(10 * MS..length_ns))
    };
    let mut manner = DiskBehaviour {
        act_ns: dice.pick(&[1000, MS, 20 * MS, 200 * MS]),
        frozen_ns: None,
        bytes_max: None,
        read_only_ns: None,
        failing_syncs: 0,
        reader_gone_ns: None,
    };
    match dice.below(10) {
        0 | 1 => manner.frozen_ns = Some(span(dice)),
        2 => manner.bytes_max = Some(dice.below(3 << 20)),
        3 => manner.read_only_ns = Some(span(dice)),
        4 => manner.failing_syncs = 40,
        5 if stream => manner.reader_gone_ns = Some(dice.within(0..length_ns)),
        _ => {}
    }
    manner
}

fn acts(dice: &mut Dice, live: bool, length_ns: i64) -> Vec<(i64, Act)> {
    let mut acts = Vec::new();
    for _ in 0..dice.below(4) {
        acts.push((dice.within(0..length_ns), Act::Fire(dice.below(2) as usize)));
    }
    if live && dice.chance(20) {
        acts.push((dice.within(0..length_ns), Act::StandStill(dice.within(10 * MS..3000 * MS))));
    }
    if dice.chance(15) {
        acts.push((dice.within(0..length_ns), Act::Reload));
    }
    acts.sort_unstable_by_key(|(at_ns, _)| *at_ns);
    acts
}
