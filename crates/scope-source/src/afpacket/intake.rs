//! From a block of the ring to the sink, in lent batches, and what is counted on the way.

use scope_packet::packet::FLAGS_OUTBOUND;
use scope_packet::{BATCH_PACKETS_MAX, Packet, Sink};

use super::block::{Frame, Rules, Walk};
use super::losses::{ClockReading, Losses};
use super::socket::KernelCounts;
use crate::SourceCounters;
use scope_machine::nic::SNAP_LEN_MAX;

const EMPTY: Packet<'static> =
    Packet { data: &[], original_len: 0, time_ns: 0, interface: 0, flags: 0, lost_before: 0 };

/// Counts and times of one socket's packets.
pub(super) struct Intake {
    /// The interface's number in its source, 0 before it has one.
    pub interface: u32,
    pub rules: Rules,
    pub losses: Losses,
    pub counters: SourceCounters,
    /// Largest capture time so far, ns.
    pub newest_ns: i64,
    /// Received packets that carry the kernel's time.
    pub kernel_times: u64,
    /// A packet that is longer on the wire, bytes, was joined or is still to be split.
    pub wire_bytes_max: u32,
}

impl Intake {
    pub(super) fn begin(rules: Rules, losses: Losses) -> Intake {
        let counters = SourceCounters::default();
        Intake {
            interface: 0,
            rules,
            losses,
            counters,
            newest_ns: 0,
            kernel_times: 0,
            wire_bytes_max: u32::MAX,
        }
    }

    /// Pushes all packets of `block`.
    pub(super) fn take_block(&mut self, block: &mut [u8], sink: &mut dyn Sink) {
        let mut walk = Walk::begin(block);
        let mut frames = [Frame::default(); BATCH_PACKETS_MAX];
        loop {
            let count = walk.next_frames(block, self.rules, &mut frames);
            if count == 0 {
                break;
            }
            self.lend(block, &frames[..count], sink);
        }
        self.counters.unreadable += u64::from(walk.unreadable());
    }

    fn lend(&mut self, block: &[u8], frames: &[Frame], sink: &mut dyn Sink) {
        let mut packets = [EMPTY; BATCH_PACKETS_MAX];
        for (packet, frame) in packets.iter_mut().zip(frames) {
            *packet = Packet {
                data: &block[frame.start..frame.start + frame.len],
                original_len: frame.original_len,
                time_ns: frame.time_ns,
                interface: self.interface,
                flags: if frame.outgoing { FLAGS_OUTBOUND } else { 0 },
                lost_before: self.losses.before_packet(frame.time_ns),
            };
            self.counters.stepped_back += u64::from(frame.time_ns < self.newest_ns);
            self.newest_ns = self.newest_ns.max(frame.time_ns);
            self.kernel_times += u64::from(!frame.hardware_time && !frame.outgoing);
            if (frame.original_len > self.wire_bytes_max)
                | (frame.original_len as usize > frame.len)
                | frame.unchecked
            {
                self.count_altered(frame);
            }
        }
        self.counters.received += frames.len() as u64;
        sink.batch(&packets[..frames.len()]);
    }

    #[cold]
    fn count_altered(&mut self, frame: &Frame) {
        let longer = frame.original_len > self.wire_bytes_max;
        let altered = &mut self.counters.altered;
        altered.joined += u64::from(longer && !frame.outgoing);
        altered.split += u64::from(longer && frame.outgoing);
        altered.unchecked += u64::from(frame.unchecked);
        altered.unchecked_sent += u64::from(frame.unchecked && frame.outgoing);
        let snap_len = Some(self.rules.snap_len).filter(|&bytes| bytes < SNAP_LEN_MAX as usize);
        altered.count_truncated(frame.original_len as usize, frame.len, snap_len);
    }

    /// Takes over the kernel's counts, read between `begun` and `look`, and reports what was lost.
    pub(super) fn count(
        &mut self,
        counts: KernelCounts,
        begun: ClockReading,
        look: ClockReading,
        sink: &mut dyn Sink,
    ) {
        self.counters.offered += counts.offered;
        self.counters.kernel_dropped += counts.dropped;
        if let Some((since_ns, until_ns)) = self.losses.counted(counts.dropped, begun, look) {
            sink.lost(self.interface, counts.dropped, since_ns, until_ns);
        }
    }

    /// Packets that the kernel has counted and not handed over yet.
    pub(super) fn waiting(&self) -> u64 {
        let known = self.counters.kernel_dropped + self.counters.received + self.counters.unreadable;
        self.counters.offered.saturating_sub(known)
    }
}
