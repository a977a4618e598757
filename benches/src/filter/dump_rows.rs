//! One host's dump out of a full ring of which it is a thousandth, against evaluating the filter on every
//! packet in the ring.
//!
//! The dump is all that a dump does: pins, screen, search, filter, file, its sync and its name. The walk over
//! every packet only reads, parses and evaluates, and writes nothing: a dump without screening would take
//! longer.

use super::native;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result};
use scope_dump::{DumpOrder, DumpOutput, DumpReport, FirstPins, Progress, Scans, cut};
use scope_filter::{FILTER_INPUTS_MAX, Filter, FilterEngine, FilterInput, Predicate, VlanRule};
use scope_measure::{self as measure, Packets, SOURCES, Sizes};
use scope_packet::pcapng::PacketBlock;
use scope_packet::{Headers, Interface, KeyEntry, LinkType, SystemClock, TimestampSource};
use scope_ring::WorkerCounts;
use scope_ring::{Append, LaneWriter, Ring};
use scope_trigger::Window;
use std::sync::Arc;
use std::time::Instant;

/// The host, which no made packet has, and its filter.
const HOST: [u8; 4] = [10, 9, 9, 9];
const TEXT: &str = "host 10.9.9.9";
/// One packet in so many is of this host.
const EVERY: u64 = 1000;
/// Packets between two commits.
const COMMIT_EVERY: u64 = 256;
/// Made packets whose number is a multiple of this are IPv4.
const IPV4_EVERY: u64 = 10;
/// Where the source address stands in them.
const SOURCE_AT: usize = 26;

/// A full ring that nobody writes any more.
pub struct Full {
    ring: Arc<Ring>,
    /// First packet that is still there, and the one behind the last.
    first: u64,
    end: u64,
}

impl Full {
    /// Fills a ring of `ring_bytes`, a little more than once round.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn new(ring_bytes: u64) -> Result<Full> {
        let (available, _) = scope_machine::Machine::this().available(None);
        let ring_bytes = ring_bytes.min(available / 3);
        eprintln!("a ring of {} MiB to dump from", ring_bytes >> 20);
        let ring = measure::ring(ring_bytes, Some(2 << 20), 1).context("a ring to dump from")?;
        let source = Packets::new(Sizes::Imix);
        let end = (ring_bytes as f64 * 1.1 / source.stored_bytes_mean()) as u64;
        let mut writer = open(&ring)?;
        for number in 0..end {
            append(&mut writer, &source, number);
        }
        writer.commit();
        let counts = WorkerCounts { received_packets: end, stored_packets: end, ..WorkerCounts::default() };
        ring.publish_worker(0, &counts);
        ring.set_first(0, Packets::time_ns(0));
        ring.set_clock(0, Packets::time_ns(end));
        ring.end_clock(0);
        let mut living = ring.segment_ids(0, 0).filter_map(|id| ring.pin(id));
        let first = living.next().context("a segment of the full ring")?.first_packet();
        Ok(Full { ring, first, end })
    }

    /// The walk, and behind it the dump: the walk leaves nothing of the key column in a cache.
    ///
    /// # Errors
    /// A filter that doesn't compile, no folder.
    pub fn round(&self, workspace: &Workspace, table: &mut Table) -> Result<()> {
        let packets = self.end - self.first;
        let expected = self.end.div_ceil(EVERY) - self.first.div_ceil(EVERY);
        let predicate = native(TEXT)?;
        let begun = Instant::now();
        let found = walk(&self.ring, &predicate);
        let ns = begun.elapsed().as_nanos() as f64 / packets as f64;
        let outcome =
            if found == (packets, expected) { Ok(ns) } else { Err(format!("{found:?} packets and hits")) };
        table.put("dump_screened_ns", EVERY_PACKET, "ns/packet", outcome);

        let folder = workspace.out_folder()?;
        let filter = Filter::compile(TEXT, VlanRule::Transparent, &[LinkType::ETHERNET])
            .context("a filter of the bench")?;
        filter.make_native()?;
        let (from_ns, to_ns) = (Packets::time_ns(self.first), Packets::time_ns(self.end - 1));
        let begun = Instant::now();
        let window = Arc::new(Window::new(from_ns, to_ns, to_ns));
        let order = DumpOrder {
            id: 1,
            trigger: "bench".into(),
            why: "by the bench".into(),
            hit: None,
            time_ns: to_ns,
            filter,
            filter_engine: FilterEngine::Native,
            keep: None,
            window,
            pins: FirstPins::take(&self.ring, 0, from_ns, 1),
            output: DumpOutput::in_folder(folder.path())?,
            progress: Arc::new(Progress::default()),
            past: None,
            scans: Scans::new(&self.ring, None),
            patience: None,
            clock: Arc::new(SystemClock::new()),
            evidence: Arc::default(),
        };
        let report = cut(&self.ring, order);
        let ns = begun.elapsed().as_nanos() as f64 / packets as f64;
        table.put("dump_screened_ns", DUMP, "ns/packet", check(&report, expected).map(|()| ns));
        Ok(())
    }
}

/// What the two rows are of.
pub const EVERY_PACKET: &str = "every packet evaluated, nothing written";
pub const DUMP: &str = "a dump of one host";

fn open(ring: &Arc<Ring>) -> Result<LaneWriter> {
    let mut writer = ring.open_lane(0, LinkType::ETHERNET).context("a lane")?;
    let interface = Interface {
        name: "measured".into(),
        description: String::new(),
        link_type: LinkType::ETHERNET,
        snap_len: 0,
        timestamps: TimestampSource::Generator,
        part: 0,
    };
    let number = ring.register(writer.lane(), &interface).context("an interface")?;
    writer.add_interface(number);
    Ok(writer)
}

fn append(writer: &mut LaneWriter, source: &Packets, number: u64) {
    let of_host = number.is_multiple_of(EVERY);
    let frame_number = if of_host {
        number / EVERY * IPV4_EVERY % (SOURCES as u64 / IPV4_EVERY * IPV4_EVERY)
    } else {
        number
    };
    let mut data = source.frame(frame_number);
    let mut changed;
    if of_host {
        changed = data.to_vec();
        changed[SOURCE_AT..SOURCE_AT + HOST.len()].copy_from_slice(&HOST);
        data = &changed;
    }
    let mut head = source.head(frame_number);
    head.time_ns = Packets::time_ns(number);
    while writer.append(0, &head, Packets::key(data), data) == Append::NeedsSegment {
        while !writer.claim() {
            std::thread::yield_now();
        }
    }
    if number.is_multiple_of(COMMIT_EVERY) {
        writer.commit();
    }
}

/// All packets, and those of them that the filter matches.
fn walk(ring: &Arc<Ring>, predicate: &Predicate) -> (u64, u64) {
    let (mut packets, mut hits) = (0, 0);
    for pinned in ring.segment_ids(0, 0).filter_map(|id| ring.pin(id)) {
        let mut blocks = pinned.indexed(0, pinned.committed().packets);
        let mut batch = [FilterInput::default(); FILTER_INPUTS_MAX];
        loop {
            let mut count = 0;
            for (input, (_, block)) in batch.iter_mut().zip(blocks.by_ref()) {
                *input = input_of(&block);
                count += 1;
            }
            packets += count as u64;
            hits += u64::from(predicate.matches_batch(&batch[..count], u64::MAX).count_ones());
            if count < FILTER_INPUTS_MAX {
                break;
            }
        }
    }
    (packets, hits)
}

fn input_of<'a>(block: &PacketBlock<'a>) -> FilterInput<'a> {
    let data = block.data();
    FilterInput::new(
        &Headers::parse(LinkType::ETHERNET, data),
        KeyEntry::default(),
        data,
        block.original_len(),
    )
}

/// Whether the dump holds what it must.
fn check(report: &DumpReport, expected: u64) -> Result<(), String> {
    let complete = report.lost_max == 0 && report.packets == expected;
    if complete {
        Ok(())
    } else {
        Err(format!("{} packets instead of {expected}: {report:?}", report.packets))
    }
}
