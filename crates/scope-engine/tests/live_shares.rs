//! A worker that feeds two shares of the ring: where one has no segment left, the other one loses nothing;
//! and what a worker says of the time for which it listened.

use scope_dump::{DumpOutput, Scans};
use scope_engine::dumps::{DumpSettings, Dumps};
use scope_engine::lockstep::Lockstep;
use scope_engine::report;
use scope_engine::threads::SystemThreads;
use scope_engine::triggers::Triggers;
use scope_engine::wiring::{Part, Shared};
use scope_engine::worker::{Feed, work};
use scope_events::Events;
use scope_filter::{Filter, FilterEngine, VlanRule};
use scope_packet::{
    DropReason, Gap, GapReason, Interface, LinkType, Packet, Sink, SystemClock, TimestampSource,
};
use scope_ring::{ClaimGroup, Ring, RingConfig, Share};
use scope_source::{Polled, Source, SourceCounters, SourceError, Timing};
use scope_trigger::{Condition, Places, Response, TriggerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

const BATCHES: i64 = 400;

/// Two interfaces, one for each part, whose packets come in turn.
struct Two {
    at: i64,
    fails: bool,
}

impl Source for Two {
    fn name(&self) -> &str {
        "two"
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    fn grace_ns(&self) -> i64 {
        0
    }

    fn listens_from_ns(&self) -> Option<i64> {
        Some(500)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if self.at == 0 {
            for part in 0..2 {
                sink.interface(&Interface {
                    name: format!("if{part}"),
                    description: String::new(),
                    link_type: LinkType::ETHERNET,
                    snap_len: 0,
                    timestamps: TimestampSource::Kernel,
                    part,
                });
            }
            let gap = Gap {
                from_ns: 600,
                to_ns: 700,
                reason: GapReason::InterfaceDown,
                lost_min: 0,
                lost_max: None,
            };
            sink.gap(1, gap);
            sink.lost(0, 3, 710, 720);
        }
        if self.at == BATCHES {
            let cause = std::io::ErrorKind::NotConnected.into();
            let error = SourceError::System { place: "a test".to_string(), cause };
            return if self.fails { Err(error) } else { Ok(Polled::Ended) };
        }
        self.at += 1;
        let data = [0xee; 1400];
        let packet = |interface| Packet {
            data: &data,
            original_len: 1400,
            time_ns: 1000 + self.at,
            interface,
            flags: 0,
            lost_before: 0,
        };
        sink.batch(&[packet(0), packet(1), packet(0), packet(1)]);
        Ok(Polled::Packets)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }

    fn stop(&mut self) {}
}

fn manual() -> TriggerConfig {
    TriggerConfig {
        name: "manual".to_string(),
        condition: Condition::Hand,
        response: Response { template: None, script: None, before_ns: 0, after_ns: 0, vlan: VlanRule::Exact },
        when: None,
        holdoff_ns: 0,
        holdoff_key: None,
        single: false,
        auto_ns: None,
    }
}

/// Runs a worker on `ring`; part 0 has the first share, if there is one.
fn run(ring: &Arc<Ring>, group: ClaimGroup, prefilter: Option<Filter>, fails: bool) {
    let folder = tempfile::tempdir().unwrap();
    let settings = DumpSettings {
        output: DumpOutput::in_folder(folder.path()).unwrap(),
        exec: None,
        patience: None,
        filter_engine: FilterEngine::Interpreter,
        past: None,
        clock: Arc::new(SystemClock::new()),
        threads: Arc::new(SystemThreads),
        scripts: None,
    };
    let events = Arc::new(Events::nowhere());
    let shared = Shared {
        source_rules: Arc::default(),
        attach: None,
        measuring: scope_engine::Measuring::unjoined(1),
        statistics: None,
        scripts: Arc::new(scope_engine::scripts::Scripts::none()),
        ring: ring.clone(),
        triggers: Triggers::new(&[], manual()),
        stores: None,
        dumps: Dumps::new(ring, &Places::new(1, 0, None), &events, &Scans::new(ring, None), settings, None),
        events,
        lockstep: Lockstep::new(1),
        steps: scope_engine::steps::Steps::default(),
        clock: Arc::new(SystemClock::new()),
        stop: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
        main: std::thread::current(),
    };
    let parts = vec![
        Part { group, prefilter: prefilter.clone(), ..Part::default() },
        Part { group: ClaimGroup::COMMON, prefilter, ..Part::default() },
    ];
    work(
        0,
        Feed { source: Box::new(Two { at: 0, fails }), parts, cpus: Vec::new() },
        &shared,
        report::begin().0,
    );
}

fn config() -> RingConfig {
    RingConfig {
        ring_bytes: 100 * (64 << 10),
        segment_bytes: Some(64 << 10),
        workers: 1,
        lanes: 2,
        run_id: [3; 16],
    }
}

#[test]
fn a_share_that_is_pinned_makes_no_other_share_drop_a_packet() {
    let ring = Ring::create_shared(&config(), &[Share { percent: 20, lanes: 1 }]).unwrap();
    let group = ClaimGroup::of_share(0);
    // All of the share is written, and held.
    let mut writer = ring.open_lane_in(group, 0, LinkType::ETHERNET).unwrap();
    let mut pins = Vec::new();
    while writer.claim() {
        pins.extend(ring.pin(ring.segment_id(writer.lane(), ring.lane_next(writer.lane()) - 1)));
        writer.seal();
    }
    assert_eq!(pins.len(), 20);
    run(&ring, group, None, false);
    let total = ring.counters().total();
    let of_part = 2 * BATCHES as u64;
    assert_eq!(
        (total.stored_packets, total.dropped.get(DropReason::RingPinned)),
        (of_part, of_part),
        "one half, not more"
    );
    let gaps: Vec<Gap> = ring
        .gaps_before(0, (0, i64::MAX))
        .into_iter()
        .filter(|gap| gap.reason == GapReason::RingPinned)
        .collect();
    assert_eq!(gaps.iter().map(|gap| gap.lost_min).sum::<u64>(), of_part, "{gaps:?}");
}

#[test]
fn what_no_share_has_being_pinned_makes_no_share_drop_a_packet() {
    let ring = Ring::create_shared(&config(), &[Share { percent: 16, lanes: 1 }]).unwrap();
    let mut writer = ring.open_lane_in(ClaimGroup::COMMON, 0, LinkType::ETHERNET).unwrap();
    let mut pins = Vec::new();
    while writer.claim() {
        pins.extend(ring.pin(ring.segment_id(writer.lane(), ring.lane_next(writer.lane()) - 1)));
        writer.seal();
    }
    assert_eq!(pins.len(), 84);
    run(&ring, ClaimGroup::of_share(0), None, false);
    let total = ring.counters().total();
    let of_part = 2 * BATCHES as u64;
    assert_eq!(
        (total.stored_packets, total.dropped.get(DropReason::RingPinned)),
        (of_part, of_part),
        "one half, not more"
    );
    assert!(of_part * 1400 > 16 * (64 << 10), "the share was full, and turned over");
}

#[test]
fn what_a_worker_knows_of_gaps_and_of_its_own_time_comes_to_the_ring() {
    let end_ns = 1000 + BATCHES;
    let gap = |from_ns, to_ns, reason| Gap { from_ns, to_ns, reason, lost_min: 0, lost_max: None };
    for (fails, end) in [(false, GapReason::CaptureEnd), (true, GapReason::InterfaceGone)] {
        for prefilter in
            [None, Some(Filter::compile("greater 100", VlanRule::Exact, &[LinkType::ETHERNET]).unwrap())]
        {
            let ring = Ring::create(&config()).unwrap();
            run(&ring, ClaimGroup::COMMON, prefilter.clone(), fails);
            let mut found = ring.gaps_before(0, (0, 9999));
            found.sort_by_key(|gap| gap.from_ns);
            // A prefilter might have refused what the kernel dropped.
            let lost_min = if prefilter.is_some() { 0 } else { 3 };
            let expected = [
                gap(0, 499, GapReason::NotStarted),
                gap(600, 700, GapReason::InterfaceDown),
                Gap { lost_min, lost_max: Some(3), ..gap(710, 720, GapReason::Kernel) },
                gap(end_ns + 1, 9999, end),
            ];
            assert_eq!(found, expected, "fails: {fails}");
            assert_eq!(ring.listened(0), Some((500, end_ns)));
        }
    }
}
