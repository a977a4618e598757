//! The generator in real time: nothing early, nothing lost by a slow worker, idle clocks, stopping.

use std::time::{Duration, Instant, SystemTime};

use scope_packet::{Interface, Packet, Sink};
use scope_source::synth::{self, SynthOptions, SynthSource};
use scope_source::{Polled, Source, Timing};

const START_NS: i64 = 1_000_000_000_000_000_000;

/// Packets counted, the last time and the last idle clock seen.
#[derive(Default)]
struct Seen {
    packets: u64,
    last_ns: i64,
    clock_ns: i64,
}

impl Sink for Seen {
    fn interface(&mut self, _: &Interface) {}

    fn batch(&mut self, packets: &[Packet<'_>]) {
        for packet in packets {
            assert!(packet.time_ns >= self.clock_ns, "a packet older than the idle clock");
            assert!(packet.time_ns >= self.last_ns);
            self.last_ns = packet.time_ns;
        }
        self.packets += packets.len() as u64;
    }

    fn lost(&mut self, _: u32, _: u64, _: i64, _: i64) {}

    fn idle(&mut self, clock_ns: i64) {
        assert!(clock_ns >= self.clock_ns && clock_ns >= self.last_ns);
        self.clock_ns = clock_ns;
    }
}

fn open(options: SynthOptions) -> SynthSource {
    synth::open(&options, "synth:").expect("good options").remove(0)
}

fn paced(rate: u64) -> SynthOptions {
    SynthOptions { rate: Some(rate), start_ns: Some(START_NS), ..SynthOptions::default() }
}

#[test]
fn packets_come_in_real_time_and_never_early() {
    let mut source = open(SynthOptions { time_ns: Some(300_000_000), ..paced(100_000) });
    assert_eq!((source.timing(), source.grace_ns()), (Timing::Live, 10_000_000));
    let mut seen = Seen::default();
    let begin = Instant::now();
    loop {
        let polled = source.poll(&mut seen).expect("no failure");
        let elapsed_ns = begin.elapsed().as_nanos() as i64;
        assert!(seen.last_ns.max(seen.clock_ns) <= START_NS + elapsed_ns, "handed out early");
        match polled {
            Polled::Ended => break,
            Polled::Packets | Polled::Nothing => {}
        }
    }
    assert_eq!(seen.packets, 30_000);
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[test]
fn the_clock_goes_on_between_packets_and_to_the_end_of_the_time() {
    let mut source = open(SynthOptions { time_ns: Some(750_000_000), ..paced(2) });
    let mut seen = Seen::default();
    let mut nothing = 0;
    while match source.poll(&mut seen).expect("no failure") {
        Polled::Ended => false,
        Polled::Packets => true,
        Polled::Nothing => {
            nothing += 1;
            true
        }
    } {}
    assert_eq!(seen.packets, 2);
    assert!(nothing >= 2, "{nothing}");
    assert!(seen.clock_ns >= START_NS + 750_000_000, "{}", seen.clock_ns - START_NS);
}

#[test]
fn a_slow_worker_gets_everything_later_in_bounded_polls() {
    let mut source =
        open(SynthOptions { packets: Some(20_000), trigger_at_ns: Some(1_000_000), ..paced(1_000_000) });
    let mut seen = Seen::default();
    source.poll(&mut seen).expect("no failure");
    std::thread::sleep(Duration::from_millis(60));
    loop {
        let before = seen.packets;
        if source.poll(&mut seen).expect("no failure") == Polled::Ended {
            break;
        }
        assert!(seen.packets - before <= 4097);
    }
    assert_eq!(
        (seen.packets, source.counters().offered, source.counters().received),
        (20_001, 20_001, 20_001)
    );
}

#[test]
fn without_a_start_it_begins_now_and_all_workers_at_once() {
    let options = SynthOptions { start_ns: None, workers: 2, packets: Some(100), ..paced(100_000) };
    let mut sources = synth::open(&options, "synth:").expect("good");
    assert_eq!(sources[0].next_time_ns(), None);
    let now_ns =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos() as i64;
    let mut firsts = Vec::new();
    for source in &mut sources {
        let mut seen = Seen::default();
        while source.poll(&mut seen).expect("no failure") != Polled::Ended {}
        firsts.push(seen.last_ns);
    }
    // Packets 0 to 99 are 10 us apart: the last ones of both workers lie within a millisecond, though polled
    // one after another.
    assert!(firsts.iter().all(|ns| *ns >= now_ns && *ns < now_ns + 120_000_000_000));
    assert!(firsts[0].abs_diff(firsts[1]) < 1_000_000, "{firsts:?}");
}

#[test]
fn an_endless_run_ends_when_it_is_stopped() {
    let mut source = open(paced(1000));
    let mut seen = Seen::default();
    for _ in 0..20 {
        assert_ne!(source.poll(&mut seen).expect("no failure"), Polled::Ended);
    }
    source.stop();
    let sent = seen.packets;
    assert_eq!(source.poll(&mut seen).expect("no failure"), Polled::Ended);
    assert_eq!(seen.packets, sent);
}
