//! Settings of live capture on a veth pair of the test's own: what is cut in the kernel, and what libpcap's
//! counts say.
//!
//! Needs root; says so and passes without it, except in CI.

use scope_packet::{Interface, Packet, Sink};
use scope_source::afpacket::{self, AfPacketOptions};
use scope_source::pcap::{self, PcapSource};
use scope_source::spec::PcapPlan;
use scope_source::{Polled, Source, SourceCounters};
use scope_testkit::lab::{Lab, RawSender};
use std::time::{Duration, Instant};

/// Captured and original lengths, and what was lost.
#[derive(Default)]
struct Lengths {
    packets: Vec<(usize, u32)>,
    lost: u64,
}

impl Sink for Lengths {
    fn interface(&mut self, _: &Interface) {}
    fn batch(&mut self, packets: &[Packet<'_>]) {
        self.packets.extend(packets.iter().map(|packet| (packet.data.len(), packet.original_len)));
    }
    fn lost(&mut self, _: u32, packets: u64, _: i64, _: i64) {
        self.lost += packets;
    }
    fn idle(&mut self, _: i64) {}
}

/// Takes what has come, to the end.
fn drain(source: &mut dyn Source) -> (Lengths, SourceCounters) {
    let mut lengths = Lengths::default();
    source.stop();
    let begun = Instant::now();
    while source.poll(&mut lengths).unwrap() != Polled::Ended {
        assert!(begun.elapsed() < Duration::from_secs(120), "still not done: {:?}", source.counters());
    }
    (lengths, source.counters())
}

fn frames(count: usize, len: usize, tagged: bool) -> Vec<Vec<u8>> {
    let head: &[u8] = if tagged {
        &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 0x88, 0xb5]
    } else {
        &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]
    };
    (0..count).map(|number| [head, &vec![number as u8; len - head.len()]].concat()).collect()
}

#[test]
fn a_snap_length_cuts_in_the_kernel_and_the_original_length_stays() {
    let Some(lab) = Lab::or_skip() else { return };
    let sender = RawSender::open(lab.b(), "vb").unwrap();
    // 600 KB of frames and a ring of 192 KiB that nobody empties: only what is cut before it is copied finds
    // room.
    let tiny = AfPacketOptions {
        block_bytes: 64 << 10,
        blocks: 3,
        block_timeout_ms: 500,
        ..AfPacketOptions::new("va")
    };
    for (snap_len, tagged) in [(Some(64), false), (Some(64), true), (None, false)] {
        let options = AfPacketOptions { snap_len, ..tiny.clone() };
        let mut source = lab.a().enter(|| afpacket::open(&options, "afpacket:va")).unwrap().remove(0);
        sender.send(&frames(400, 1500, tagged)).unwrap();
        let (lengths, counters) = drain(&mut source);
        assert_eq!(counters.offered, 400, "{counters:?}");
        match snap_len {
            Some(bytes) => assert_eq!(lengths.packets, vec![(bytes as usize, 1500); 400]),
            None => {
                assert!(counters.kernel_dropped > 0, "whole packets can't all have found room: {counters:?}")
            }
        }
    }
}

/// Capture on `va` through libpcap, with so much of the system's memory.
fn open_pcap(lab: &Lab, buffer_bytes: u32) -> PcapSource {
    let plan = PcapPlan {
        interface: "va".to_string(),
        snap_len: None,
        promiscuous: true,
        timeout_ms: 4,
        buffer_bytes,
        exclude_self: false,
        only_in: false,
    };
    lab.a().enter(|| pcap::open(&plan, &[], "pcap:va")).unwrap()
}

#[test]
fn libpcap_s_drops_are_counted_and_add_up() {
    let Some(lab) = Lab::or_skip() else { return };
    let sender = RawSender::open(lab.b(), "vb").unwrap();
    let mut source = open_pcap(&lab, 256 << 10);
    let sent = sender.send(&frames(2000, 1500, false)).unwrap();
    let (lengths, counters) = drain(&mut source);
    assert!(counters.kernel_dropped > 0 && counters.received > 0, "{counters:?}");
    assert_eq!((counters.offered, counters.received + counters.kernel_dropped), (sent, sent), "{counters:?}");
    assert_eq!((lengths.lost, lengths.packets.len() as u64), (counters.kernel_dropped, counters.received));
    assert!(lengths.packets.iter().all(|&(len, original_len)| (len, original_len) == (1500, 1500)));
}

/// A worker that needs 5 ms for each batch: how many it took in all, and at most between two words of what is
/// counted.
#[derive(Default)]
struct Slow {
    batches: u32,
    uncounted: u32,
    uncounted_max: u32,
}

impl Sink for Slow {
    fn interface(&mut self, _: &Interface) {}
    fn batch(&mut self, _: &[Packet<'_>]) {
        std::thread::sleep(Duration::from_millis(5));
        self.batches += 1;
        self.uncounted += 1;
        self.uncounted_max = self.uncounted_max.max(self.uncounted);
    }
    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}
    fn counted(&mut self, _: i64) {
        self.uncounted = 0;
    }
    fn idle(&mut self, _: i64) {}
}

#[test]
fn a_slow_worker_s_clock_waits_for_counts_that_come_within_a_long_poll() {
    let Some(lab) = Lab::or_skip() else { return };
    let sender = RawSender::open(lab.b(), "vb").unwrap();
    let options = AfPacketOptions { block_bytes: 64 << 10, blocks: 32, ..AfPacketOptions::new("va") };
    let own = lab.a().enter(|| afpacket::open(&options, "afpacket:va")).unwrap().remove(0);
    let sources: [Box<dyn Source>; 2] = [Box::new(own), Box::new(open_pcap(&lab, 4 << 20))];
    sender.send(&frames(2000, 300, false)).unwrap();
    for mut source in sources {
        let mut slow = Slow::default();
        let begun = Instant::now();
        while slow.batches < 25 {
            source.poll(&mut slow).unwrap();
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "{}: {} batches",
                source.name(),
                slow.batches
            );
        }
        assert!(
            slow.uncounted_max <= 12,
            "{}: {} of {} batches",
            source.name(),
            slow.uncounted_max,
            slow.batches
        );
    }
}
