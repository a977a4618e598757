//! The stage that appends: packets of one interface that follow one another go into their lane together, and
//! what has no place there is dropped for a reason.

use scope_dump::HitPacket;
use scope_filter::FilterInput;
use scope_group::rules::TOGETHER;
use scope_packet::pcapng::PacketHead;
use scope_packet::{Clock, DropReason, Interface, Packet};
use scope_ring::{Arrivals, ClaimGroup, Incoming, LaneWriter, Ring, WorkerCounts};
use std::ops::Range;
use std::time::Duration;

/// How long a worker that waits sleeps between two looks.
pub(super) const WAIT_STEP: Duration = Duration::from_micros(100);

/// One lane.
pub(super) struct Lane {
    pub writer: LaneWriter,
    pub group: ClaimGroup,
    /// A claim failed in this batch: the next try comes with the next one. What one share hasn't got another
    /// one may have.
    claim_failed: bool,
}

/// One interface of the source.
pub(super) struct Port {
    pub interface: Interface,
    pub place: Attached,
    /// Its prefilter among the worker's.
    pub prefilter: Option<usize>,
    /// Packets lost here since the last one that was stored.
    lost: u64,
}

/// Where an interface's packets go.
#[derive(Clone, Copy)]
pub(super) enum Attached {
    /// Not decided before its first packet.
    NotYet,
    /// Into this lane, as this interface of it.
    Lane { lane: usize, index: usize },
    /// Nowhere: a bound was reached.
    Refused(DropReason),
}

/// Packets that were lost in front of the ring for one reason: how many, and the span of their times, ns.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    pub packets: u64,
    pub from_ns: i64,
    pub to_ns: i64,
}

/// The lanes of one worker, the interfaces that go into them, and what became of their packets.
pub(super) struct Append<'a> {
    ring: &'a Ring,
    clock: &'a dyn Clock,
    /// Its source can wait for a segment.
    waits: bool,
    /// One for each link type and claim group that has come.
    pub lanes: Vec<Lane>,
    pub ports: Vec<Port>,
    pub counts: WorkerCounts,
    /// What this batch lost in front of the ring, by reason.
    lost: [Option<Lost>; DropReason::ALL.len()],
}

impl<'a> Append<'a> {
    pub fn new(ring: &'a Ring, clock: &'a dyn Clock, waits: bool) -> Append<'a> {
        let (lanes, ports) = (Vec::new(), Vec::new());
        Append {
            ring,
            clock,
            waits,
            lanes,
            ports,
            counts: WorkerCounts::default(),
            lost: [None; DropReason::ALL.len()],
        }
    }

    /// The source has an interface more.
    pub fn interface(&mut self, interface: &Interface) {
        self.ports.push(Port {
            interface: interface.clone(),
            place: Attached::NotYet,
            prefilter: None,
            lost: 0,
        });
    }

    /// A lane more.
    pub fn open_lane(&mut self, writer: LaneWriter, group: ClaimGroup) {
        self.lanes.push(Lane { writer, group, claim_failed: false });
    }

    /// A batch begins: what failed in the last one may be tried again.
    #[inline]
    pub fn begin_batch(&mut self) {
        for lane in &mut self.lanes {
            lane.claim_failed = false;
        }
    }

    /// Counts a packet that a prefilter or a rule refused. What was lost before it, was lost before the next one that
    /// is stored.
    pub fn leave_out(&mut self, packet: &Packet<'_>) {
        self.counts.filtered_packets += 1;
        self.counts.filtered_bytes += packet.data.len() as u64;
        self.ports[packet.interface as usize].lost += packet.lost_before;
    }

    /// Appends a run of packets of one interface; the last one's place, or `None` where it had to be dropped.
    pub fn store(&mut self, run: &Run<'_>) -> Option<HitPacket> {
        let packets = run.packets;
        let port = packets.first()?.interface as usize;
        let Attached::Lane { lane, index } = self.ports[port].place else { return None };
        let kept_bytes_max = self.lanes[lane].writer.kept_bytes_max();
        let run = Run { lost: self.ports[port].lost, kept_bytes_max, ..*run };
        let mut stored = 0;
        while stored < packets.len() {
            stored += self.lanes[lane].writer.append_batch(index, &run, stored);
            if stored < packets.len() && !self.claim(lane) {
                break;
            }
        }
        let asked = (!self.waits).then_some(self.ports[port].interface.snap_len);
        for (at, packet) in packets[..stored].iter().enumerate() {
            let kept = run.kept(at);
            self.counts.stored_bytes += kept as u64;
            self.counts.cut_packets += u64::from(kept < wanted_bytes(packet, asked));
            self.counts.cut_by_segment_packets +=
                u64::from(kept < packet.data.len() && kept == kept_bytes_max);
        }
        self.counts.stored_packets += stored as u64;
        if stored > 0 {
            self.ports[port].lost = 0;
        }
        let writer = &mut self.lanes[lane].writer;
        if stored == packets.len() {
            return Some(HitPacket {
                lane: writer.lane(),
                packet: writer.next_packet() - 1,
                link_type: writer.link_type(),
            });
        }
        writer.count_dropped(index, DropReason::RingPinned, (packets.len() - stored) as u64);
        for packet in &packets[stored..] {
            self.drop_packet(packet, DropReason::RingPinned);
        }
        None
    }

    /// Gets a segment for `lane`: at once or not at all, or, for a worker that can wait, when it may have
    /// one.
    fn claim(&mut self, lane: usize) -> bool {
        let Lane { writer, claim_failed, .. } = &mut self.lanes[lane];
        if !self.waits {
            *claim_failed = *claim_failed || !writer.claim();
            return !*claim_failed;
        }
        while self.ring.must_wait(writer.lane()) || !writer.claim_unneeded() {
            self.clock.sleep(WAIT_STEP);
        }
        true
    }

    /// Has a lane say that a packet is lost which belongs into none: its first interface counts it.
    #[cold]
    pub fn tell_of_refused(&mut self, reason: DropReason) {
        let open = self.lanes.iter().position(|lane| lane.writer.is_open());
        let lane = self.lanes.get_mut(open.unwrap_or(0)).filter(|lane| lane.writer.has_interfaces());
        if let Some(lane) = lane {
            lane.writer.count_dropped(0, reason, 1);
        }
    }

    pub fn drop_packet(&mut self, packet: &Packet<'_>, reason: DropReason) {
        self.counts.dropped.add(reason, 1);
        self.ports[packet.interface as usize].lost += packet.lost_before + 1;
        let lost = &mut self.lost[reason as usize];
        *lost = Some(match *lost {
            None => Lost { packets: 1, from_ns: packet.time_ns, to_ns: packet.time_ns },
            Some(lost) => Lost {
                packets: lost.packets + 1,
                from_ns: lost.from_ns.min(packet.time_ns),
                to_ns: lost.to_ns.max(packet.time_ns),
            },
        });
    }

    /// What was lost in front of the ring since the last call, by reason.
    pub fn take_lost(&mut self) -> impl Iterator<Item = (DropReason, Lost)> + use<> {
        let lost = std::mem::replace(&mut self.lost, [None; DropReason::ALL.len()]);
        DropReason::ALL.into_iter().zip(lost).filter_map(|(reason, lost)| Some((reason, lost?)))
    }
}

/// Bytes of a packet that are wanted: of `asked` so many, 0 for all. `None`: what a file holds of one is all
/// there is of it.
#[inline]
fn wanted_bytes(packet: &Packet<'_>, asked: Option<u32>) -> usize {
    let most = match asked {
        None => 0,
        Some(0) => packet.original_len,
        Some(most) => packet.original_len.min(most),
    };
    packet.data.len().max(most as usize)
}

/// Packets on their way into the ring: those that [`Append::store`] gets are of one interface.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    packets: &'a [Packet<'a>],
    asked: &'a [FilterInput<'a>],
    /// Bytes of each at most, where rules say so.
    keep: Option<&'a [u32]>,
    /// Packets that were lost here before the first one, beside those that the source knows of.
    lost: u64,
    /// Bytes of any at most.
    kept_bytes_max: usize,
}

impl<'a> Run<'a> {
    /// Packets, what filters see of them, and, where rules say so, bytes of each at most; as many of each.
    pub fn new(
        packets: &'a [Packet<'a>],
        asked: &'a [FilterInput<'a>],
        keep: Option<&'a [u32; TOGETHER]>,
    ) -> Run<'a> {
        let keep = keep.map(|keep| &keep[..packets.len()]);
        Run { packets, asked, keep, lost: 0, kept_bytes_max: usize::MAX }
    }

    /// Some of them.
    #[inline]
    pub fn part(&self, range: Range<usize>) -> Run<'a> {
        Run {
            packets: &self.packets[range.clone()],
            asked: &self.asked[range.clone()],
            keep: self.keep.map(|keep| &keep[range]),
            ..*self
        }
    }

    /// Bytes of packet `index` that are recorded.
    #[inline(always)]
    fn kept(&self, index: usize) -> usize {
        let most =
            self.keep.map_or(self.kept_bytes_max, |keep| self.kept_bytes_max.min(keep[index] as usize));
        self.packets[index].data.len().min(most)
    }
}

impl Arrivals for Run<'_> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.packets.len()
    }

    #[inline(always)]
    fn packet(&self, index: usize) -> Incoming<'_> {
        let packet = &self.packets[index];
        let head = PacketHead {
            time_ns: packet.time_ns,
            original_len: packet.original_len,
            flags: packet.flags,
            lost_before: packet.lost_before + if index == 0 { self.lost } else { 0 },
            ..PacketHead::default()
        };
        Incoming { head, key: self.asked[index].key(), data: &packet.data[..self.kept(index)] }
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::{packets, udp};
    use super::*;
    use scope_packet::{LinkType, SystemClock, TimestampSource};
    use scope_ring::RingConfig;

    fn ring() -> std::sync::Arc<Ring> {
        let config = RingConfig {
            ring_bytes: 16 * (64 << 10),
            segment_bytes: Some(64 << 10),
            workers: 1,
            lanes: 1,
            run_id: [1; 16],
        };
        Ring::create(&config).unwrap()
    }

    /// A stage of a live worker with one lane, into which the interfaces 0 and 1 go.
    fn stage<'a>(ring: &'a std::sync::Arc<Ring>, clock: &'a SystemClock) -> Append<'a> {
        let mut append = Append::new(ring, clock, false);
        append.open_lane(ring.open_lane(0, LinkType::ETHERNET).unwrap(), ClaimGroup::default());
        for number in 0..3 {
            append.interface(&Interface {
                name: format!("eth{number}"),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::Kernel,
                part: 0,
            });
        }
        for number in 0..2 {
            let index = append.lanes[0].writer.add_interface(number);
            append.ports[number as usize].place = Attached::Lane { lane: 0, index };
        }
        append.ports[2].place = Attached::Refused(DropReason::Interfaces);
        append
    }

    #[test]
    fn packets_of_an_interface_go_into_its_lane_and_those_of_none_nowhere() {
        let (ring, clock) = (ring(), SystemClock::new());
        let mut append = stage(&ring, &clock);
        let frames = udp(&[1, 2, 3]);
        let asked = [FilterInput::default(); 3];
        let place = append.store(&Run::new(&packets(&frames, &[1]), &asked, None)).expect("stored");
        assert_eq!((place.packet, place.link_type), (2, LinkType::ETHERNET));
        assert!(append.store(&Run::new(&packets(&frames, &[2]), &asked, None)).is_none());
        assert!(append.store(&Run::new(&[], &[], None)).is_none());
        // Of one interface only so many bytes are wanted of each.
        let keep = [50; TOGETHER];
        append.store(&Run::new(&packets(&frames, &[0]), &asked, Some(&keep))).expect("stored");
        assert_eq!((append.counts.stored_packets, append.counts.stored_bytes), (6, 330));
        assert_eq!((append.counts.cut_packets, append.counts.cut_by_segment_packets), (3, 0));
        append.lanes[0].writer.commit();
        assert_eq!(append.take_lost().count(), 0);
    }

    #[test]
    fn what_finds_no_segment_is_dropped_with_its_span_until_the_next_batch() {
        let (ring, clock) = (ring(), SystemClock::new());
        let mut append = stage(&ring, &clock);
        let frames = udp(&[1; 64]);
        let mut batch = packets(&frames, &[0]);
        for (at, packet) in batch.iter_mut().enumerate() {
            packet.time_ns = 100 + at as i64;
        }
        let asked = [FilterInput::default(); 64];
        // Everything that is written stays held, so that the ring fills up.
        let mut held = Vec::new();
        while append.counts.dropped.get(DropReason::RingPinned) == 0 {
            append.begin_batch();
            append.store(&Run::new(&batch, &asked, None));
            append.lanes[0].writer.commit();
            held.extend(ring.segment_ids(0, held.len() as u64).filter_map(|id| ring.pin(id)));
            assert!(append.counts.stored_packets < 100_000, "the ring never fills up");
        }
        let dropped = append.counts.dropped.get(DropReason::RingPinned);
        let lost: Vec<_> =
            append.take_lost().map(|(reason, lost)| (reason, lost.packets, lost.to_ns)).collect();
        assert_eq!(lost, [(DropReason::RingPinned, dropped, 163)]);
        assert_eq!(append.take_lost().count(), 0, "told once");
        assert!(append.store(&Run::new(&batch, &asked, None)).is_none());
        drop(held);
        assert!(append.store(&Run::new(&batch, &asked, None)).is_none(), "not tried again in the same batch");
        append.begin_batch();
        assert!(append.store(&Run::new(&batch, &asked, None)).is_some());
    }
}
