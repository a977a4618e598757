//! Clocks that step a little, or aren't the system's: every packet of a window is in its dump, which is
//! complete.

mod scripted;

use scope_dump::DumpReport;
use scope_engine::report;
use scope_engine::worker::{Feed, work};
use scope_packet::{Clock, GapReason, Interface, LinkType, Packet, Sink, TimestampSource};
use scope_ring::{Ring, RingConfig};
use scope_source::{Polled, Source, SourceCounters, SourceError, Timing};
use scope_testkit::lab::witness::{number_and_port, numbered};
use scope_testkit::oracle;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const MS: i64 = 1_000_000;
const BEGIN_NS: i64 = 1_800_000_000_000 * MS;
/// As of AF_PACKET with its usual timeout.
const GRACE_NS: i64 = 8 * MS;
/// A poll hands over what came in so many ms.
const POLL_MS: i64 = 4;
const HIT_PORT: u16 = 9;

/// Two clocks that the source moves on.
#[derive(Debug, Default)]
struct World {
    monotonic_ns: AtomicI64,
    wall_ns: AtomicI64,
}

impl Clock for World {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(Ordering::Relaxed) as u64)
    }

    fn wall_ns(&self) -> i64 {
        self.wall_ns.load(Ordering::Relaxed)
    }

    fn wait(&self, limit: Duration, wait: &dyn Fn(Duration)) {
        wait(limit.min(Duration::from_millis(1)));
    }
}

/// What happens: from so many ms on the system's clock is so many ms off.
#[derive(Clone)]
struct Story {
    steps: Vec<(i64, i64)>,
    /// One packet in each ms from here on.
    from_ms: i64,
    length_ms: i64,
    hits_ms: Vec<i64>,
    stamped: TimestampSource,
    /// How far the card's clock is ahead of the system's, ms.
    card_ms: i64,
}

impl Story {
    fn off_ms(&self, at_ms: i64) -> i64 {
        self.steps.iter().rev().find(|(from_ms, _)| *from_ms <= at_ms).map_or(0, |(_, off_ms)| *off_ms)
    }

    /// What stamps a packet that comes then.
    fn stamp_ns(&self, at_ms: i64) -> i64 {
        BEGIN_NS + (at_ms + self.off_ms(at_ms) + self.card_ms) * MS
    }

    fn packets(&self) -> impl Iterator<Item = i64> + '_ {
        self.from_ms..self.length_ms
    }
}

/// Plays it to its worker.
struct Player {
    story: Story,
    world: Arc<World>,
    look: Box<dyn FnMut() + Send>,
    at_ms: i64,
    announced: bool,
    met: bool,
}

impl Source for Player {
    fn name(&self) -> &str {
        "player"
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    fn grace_ns(&self) -> i64 {
        GRACE_NS
    }

    fn listens_from_ns(&self) -> Option<i64> {
        Some(BEGIN_NS)
    }

    fn ahead_ns(&self) -> i64 {
        if self.met { self.story.card_ms * MS } else { 0 }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if !self.announced {
            self.announced = true;
            sink.interface(&Interface {
                name: "play0".to_string(),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: self.story.stamped,
                part: 0,
            });
        }
        if self.at_ms >= self.story.length_ms {
            return Ok(Polled::Ended);
        }
        let from_ms = self.at_ms;
        self.at_ms += POLL_MS;
        let wall_ns = BEGIN_NS + (self.at_ms + self.story.off_ms(self.at_ms - 1)) * MS;
        self.world.wall_ns.store(wall_ns, Ordering::Relaxed);
        self.world.monotonic_ns.store(self.at_ms * MS, Ordering::Relaxed);
        (self.look)();
        let come: Vec<i64> =
            self.story.packets().filter(|at_ms| (from_ms..self.at_ms).contains(at_ms)).collect();
        let card_ns = self.ahead_ns();
        if come.is_empty() {
            sink.counted(wall_ns + card_ns);
            sink.idle(wall_ns + card_ns - GRACE_NS);
            return Ok(Polled::Nothing);
        }
        for at_ms in come {
            let port = if self.story.hits_ms.contains(&at_ms) { HIT_PORT } else { 7 };
            let data = numbered(at_ms as u64, port, 100);
            let time_ns = self.story.stamp_ns(at_ms);
            let original_len = data.len() as u32;
            sink.batch(&[Packet {
                data: &data,
                original_len,
                time_ns,
                interface: 0,
                flags: 0,
                lost_before: 0,
            }]);
        }
        self.met = true;
        sink.counted(wall_ns + self.ahead_ns());
        Ok(Polled::Packets)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }

    fn stop(&mut self) {}
}

/// Plays a story with triggers of these windows, ms before and after: what became of the dumps, each with its
/// packets.
fn play(story: &Story, windows: &[(i64, i64)]) -> Vec<(DumpReport, BTreeSet<i64>)> {
    let config = RingConfig {
        ring_bytes: 16 << 20,
        segment_bytes: Some(64 << 10),
        workers: 1,
        lanes: 1,
        run_id: [5; 16],
    };
    let ring = Ring::create(&config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let world = Arc::new(World::default());
    world.wall_ns.store(BEGIN_NS, Ordering::Relaxed);
    let triggers: Vec<_> = windows
        .iter()
        .map(|(before_ms, after_ms)| {
            let name = format!("w{before_ms}-{after_ms}");
            scripted::trigger(&name, "udp dst port 9", before_ms * MS, after_ms * MS)
        })
        .collect();
    let shared = Arc::new(scripted::shared(&ring, folder.path(), world.clone(), &triggers));
    // As the run's main thread does every 10 ms.
    let looked = shared.clone();
    let look = Box::new(move || {
        looked.steps.look(&*looked.clock);
    });
    let player = Player { story: story.clone(), world, look, at_ms: 0, announced: false, met: false };
    let feed = Feed { source: Box::new(player), parts: Vec::new(), cpus: Vec::new() };
    work(0, feed, &shared, report::begin().0);
    assert!(shared.dumps.wait(Duration::from_secs(120)));
    let packets = |report: &DumpReport| {
        let file = oracle::read(&report.paths[0]).unwrap();
        file.capture
            .packets
            .iter()
            .map(|packet| number_and_port(&packet.data).expect("a number").0 as i64)
            .collect()
    };
    shared.dumps.reports().kept().into_iter().map(|report| (report.clone(), packets(&report))).collect()
}

/// Every packet that came before its dump's window was over, and whose time lies in it, is there; so is what
/// came within `after` of the hit. Nothing else is, but packets that came later and whose times lie inside.
fn check(story: &Story, windows: &[(i64, i64)], dumps: &[(DumpReport, BTreeSet<i64>)]) {
    for (report, found) in dumps {
        let (_, after_ms) = windows.iter().find(|(b, a)| report.trigger == format!("w{b}-{a}")).unwrap();
        let (from_ns, to_ns) = report.asked;
        let (mut latest_ns, mut inside) = (0, BTreeSet::new());
        for at_ms in story.packets() {
            let time_ns = story.stamp_ns(at_ms);
            let is_inside = (from_ns..=to_ns).contains(&time_ns);
            let is_over = latest_ns - GRACE_NS > to_ns;
            assert!(!is_inside || is_over || found.contains(&at_ms), "{report:#?} lacks {at_ms}");
            inside.extend(is_inside.then_some(at_ms));
            latest_ns = latest_ns.max(time_ns);
        }
        assert!(found.is_subset(&inside), "{report:#?} has what isn't of it");
        // Unless the clock steps in between: then what is stamped with these times comes later.
        let steady = |hit_ms: &&i64| story.off_ms(**hit_ms) == story.off_ms(**hit_ms + after_ms);
        let taken_in = |hit_ms: &&i64| report.hits_ns.contains(&story.stamp_ns(**hit_ms));
        for hit_ms in story.hits_ms.iter().filter(steady).filter(taken_in) {
            let lacking = (*hit_ms..=hit_ms + after_ms).find(|at_ms| !found.contains(at_ms));
            assert_eq!(lacking, None, "after the hit at {hit_ms}: {report:#?}");
        }
    }
}

const WINDOWS: [(i64, i64); 4] = [(0, 0), (0, 50), (100, 20), (1000, 400)];

#[test]
fn a_dump_over_a_small_step_back_is_complete_and_has_all_of_its_window() {
    let at_ms = 2000;
    for back_ms in [10, 20, 50, 128, 300, 600, 999, 1000] {
        for hits_ms in [
            vec![1700, 1960, 1999],
            vec![2000],
            vec![2001, 2030, 2200],
            vec![2000 + back_ms / 2],
            vec![2000 + back_ms, 3300],
        ] {
            let story = Story {
                steps: vec![(at_ms, -back_ms)],
                from_ms: 0,
                length_ms: 4500,
                hits_ms,
                stamped: TimestampSource::Kernel,
                card_ms: 0,
            };
            let dumps = play(&story, &WINDOWS);
            assert!(dumps.len() >= WINDOWS.len(), "{}", dumps.len());
            check(&story, &WINDOWS, &dumps);
            for (report, _) in &dumps {
                assert!(report.complete, "{back_ms} ms back, hits at {:?}: {report:#?}", story.hits_ms);
            }
        }
    }
}

#[test]
fn steps_back_that_add_up_cut_windows_and_the_cut_is_stated() {
    let story = Story {
        steps: vec![(2000, -700), (2100, -1400)],
        from_ms: 0,
        length_ms: 5000,
        hits_ms: vec![1990, 2050, 2300, 4000],
        stamped: TimestampSource::Kernel,
        card_ms: 0,
    };
    let dumps = play(&story, &[(300, 100)]);
    assert_eq!(dumps.len(), 4, "{dumps:#?}");
    for (report, found) in &dumps {
        let hit_ms = story.hits_ms.iter().find(|hit_ms| report.time_ns == story.stamp_ns(**hit_ms)).unwrap();
        assert!(found.contains(hit_ms), "{report:#?}");
        // Before the second step, and behind it.
        let era = |at_ms: &i64| *at_ms >= 2100;
        assert!(found.iter().all(|at_ms| era(at_ms) == era(hit_ms)), "{report:#?}");
        let mut after = (*hit_ms..=hit_ms + 100).filter(|at_ms| era(at_ms) == era(hit_ms));
        assert!(*hit_ms < 2000 || after.all(|at_ms| found.contains(&at_ms)), "{report:#?}");
        let is_cut = report.gaps.iter().any(|gap| gap.reason == GapReason::ClockStep);
        assert_eq!(report.complete, !is_cut, "{report:#?}");
    }
    let complete: Vec<bool> = dumps.iter().map(|(report, _)| report.complete).collect();
    assert!(complete[3], "what doesn't reach there is complete: {complete:?}");
    assert!(!complete[2], "the time before the second step is not its: {:#?}", dumps[2].0);
}

#[test]
fn dumps_of_a_card_whose_clock_is_tai_are_complete_from_the_first_packet_on() {
    let story = Story {
        steps: Vec::new(),
        from_ms: 400,
        length_ms: 3000,
        hits_ms: vec![403, 1800],
        stamped: TimestampSource::Hardware,
        card_ms: 37_000,
    };
    let windows = [(300, 100), (1000, 50)];
    let dumps = play(&story, &windows);
    assert_eq!(dumps.len(), 4);
    check(&story, &windows, &dumps);
    for (report, found) in &dumps {
        let reasons: Vec<GapReason> = report.gaps.iter().map(|gap| gap.reason).collect();
        // The run listens for 403 ms when the first one fires.
        let begins_before = report.asked.0 < BEGIN_NS + story.card_ms * MS;
        assert_eq!(
            reasons,
            if begins_before { vec![GapReason::NotStarted] } else { Vec::new() },
            "{report:#?}"
        );
        assert!(found.len() > 50, "{report:#?}");
    }
    assert_eq!(dumps.iter().filter(|(report, _)| report.complete).count(), 3);
}

#[test]
fn a_card_whose_clock_was_never_set_has_windows_of_its_own_time() {
    let story = Story {
        steps: Vec::new(),
        from_ms: 400,
        length_ms: 3000,
        hits_ms: vec![403, 1800],
        stamped: TimestampSource::Hardware,
        card_ms: -1_700_000_000_000,
    };
    let windows = [(1000, 50)];
    let dumps = play(&story, &windows);
    assert_eq!(dumps.len(), 2);
    check(&story, &windows, &dumps);
    assert!(!dumps[0].0.complete && dumps[1].0.complete, "{dumps:#?}");
    assert_eq!(
        dumps[0].0.gaps.iter().map(|gap| gap.reason).collect::<Vec<_>>(),
        [GapReason::ClockStep],
        "before its first packet"
    );
}
