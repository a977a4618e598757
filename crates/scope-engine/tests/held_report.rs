//! A worker whose reports somebody looks at for as long as it runs: it comes to its end, and nothing of its
//! last report is missing.

mod scripted;

use scope_engine::report::{self, WorkerNews};
use scope_engine::worker::{Feed, work};
use scope_packet::{Interface, LinkType, Packet, Sink, SystemClock, TimestampSource};
use scope_ring::{Ring, RingConfig};
use scope_source::{Polled, Source, SourceCounters, SourceError, Timing};
use std::sync::Arc;

const POLLS: u64 = 2000;

/// A packet and a warning in each poll; then it fails.
struct Chatty(u64);

impl Source for Chatty {
    fn name(&self) -> &str {
        "chatty"
    }

    fn timing(&self) -> Timing {
        Timing::Live
    }

    fn grace_ns(&self) -> i64 {
        0
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Polled, SourceError> {
        if self.0 == POLLS {
            let cause = std::io::ErrorKind::NotConnected.into();
            return Err(SourceError::System { place: "a test".to_string(), cause });
        }
        if self.0 == 0 {
            sink.interface(&Interface {
                name: "if0".to_string(),
                description: String::new(),
                link_type: LinkType::ETHERNET,
                snap_len: 0,
                timestamps: TimestampSource::Kernel,
                part: 0,
            });
        }
        self.0 += 1;
        let time_ns = 1000 + self.0 as i64;
        let data = &[0; 60];
        sink.batch(&[Packet { data, original_len: 60, time_ns, interface: 0, flags: 0, lost_before: 0 }]);
        Ok(Polled::Packets)
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters { received: self.0, offered: self.0, ..SourceCounters::default() }
    }

    fn stop(&mut self) {}

    fn warnings(&mut self) -> Vec<String> {
        vec![format!("poll {}", self.0)]
    }
}

#[test]
fn a_worker_comes_to_its_end_while_somebody_stands_still_in_a_look_at_its_report() {
    let (ring_bytes, segment_bytes) = (2 << 20, Some(64 << 10));
    let ring = Ring::create(&RingConfig { ring_bytes, segment_bytes, workers: 1, lanes: 1, run_id: [5; 16] })
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shared = scripted::shared(&ring, folder.path(), Arc::new(SystemClock::new()), &[]);
    let (reporter, mut reader) = report::begin();
    let look = reader.look();
    // In this very thread: a worker that waited for the reader would wait for ever.
    work(0, Feed { source: Box::new(Chatty(0)), parts: Vec::new(), cpus: Vec::new() }, &shared, reporter);
    assert_eq!(look.counters, SourceCounters::default());
    drop(look);
    assert_eq!(ring.counters().total().stored_packets, POLLS);
    let last = reader.look();
    assert_eq!((last.counters.received, last.failure.is_some()), (POLLS, true));
    drop(last);
    let (news, forgotten) = reader.news();
    assert_eq!(news.len() as u64 + forgotten, POLLS + 1, "what wasn't kept is counted");
    let Some(WorkerNews::Warning(newest)) = news.last() else { panic!("{} events", news.len()) };
    assert_eq!(*newest, format!("poll {POLLS}"));
}
