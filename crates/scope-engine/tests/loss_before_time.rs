//! A loss is known before any time behind it counts as settled: a worker's clock waits for its source's word
//! on losses.

mod scripted;

use scope_engine::report;
use scope_engine::worker::{Feed, work};
use scope_packet::{Interface, LinkType, Moment, Packet, Sink, SystemClock, TimestampSource};
use scope_ring::{Ring, RingConfig};
use scope_source::{Polled, Source, SourceCounters, SourceError, Timing};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

const MS: i64 = 1_000_000;

/// What is settled, and how many packets are known to be lost, at one moment.
type Seen = (Moment, u64);

/// A live source that reads old packets while newer ones are lost, and learns of that at the end of its poll.
struct Slow {
    ring: Arc<Ring>,
    begin_ns: i64,
    polls: u32,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Slow {
    fn look(&self) {
        let lost = self.ring.gaps_before(0, (0, i64::MAX)).iter().filter_map(|gap| gap.lost_max).sum();
        self.seen.lock().unwrap().push((self.ring.settled(), lost));
    }
}

impl Source for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    fn grace_ns(&self) -> i64 {
        0
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        self.polls += 1;
        if self.polls > 1 {
            self.look();
            return Ok(Polled::Ended);
        }
        sink.interface(&Interface {
            name: "slow0".to_string(),
            description: String::new(),
            link_type: LinkType::ETHERNET,
            snap_len: 0,
            timestamps: TimestampSource::Kernel,
            part: 0,
        });
        sink.counted(self.begin_ns + 100 * MS);
        for n in 0..300 {
            let time_ns = self.begin_ns + n * MS;
            sink.batch(&[Packet {
                data: &[0; 60],
                original_len: 60,
                time_ns,
                interface: 0,
                flags: 0,
                lost_before: 0,
            }]);
        }
        self.look();
        sink.lost(0, 7, self.begin_ns + 100 * MS, self.begin_ns + 400 * MS);
        sink.counted(self.begin_ns + 400 * MS);
        Ok(Polled::Packets)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }

    fn stop(&mut self) {}
}

#[test]
fn no_time_is_settled_before_the_losses_up_to_it_are_known() {
    let config = RingConfig {
        ring_bytes: 2 << 20,
        segment_bytes: Some(64 << 10),
        workers: 1,
        lanes: 1,
        run_id: [5; 16],
    };
    let ring = Ring::create(&config).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shared = scripted::shared(&ring, folder.path(), Arc::new(SystemClock::new()), &[]);
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let begin_ns = now_ns - 60_000 * MS;
    let seen = Arc::new(Mutex::default());
    let source = Box::new(Slow { ring: ring.clone(), begin_ns, polls: 0, seen: seen.clone() });
    work(0, Feed { source, parts: Vec::new(), cpus: Vec::new() }, &shared, report::begin().0);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen, [(Moment::new(0, begin_ns + 100 * MS), 0), (Moment::new(0, begin_ns + 299 * MS), 7)]);
    assert_eq!(ring.settled(), Moment::END);
}
