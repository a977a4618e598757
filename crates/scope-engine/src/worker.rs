//! One worker: a thread that polls its source until it ends. What comes goes through the packet path
//! (`path.rs`).

use crate::path::Path;
use crate::report::Reporter;
use crate::wiring::{Part, Shared};
use scope_machine::cpus::pin_this_thread;
use scope_packet::{GapReason, time};
use scope_source::{Polled, Source, Timing};
use scope_spelling::values::format_cpus;
use std::sync::atomic::Ordering;

/// A source, and what its packets may have of the ring.
pub struct Feed {
    /// One worker's.
    pub source: Box<dyn Source>,
    /// What the parts of the source are allowed; see [`Interface::part`].
    pub parts: Vec<Part>,
    /// CPUs that its worker runs on; empty: any.
    pub cpus: Vec<u32>,
}

/// Polls the source until it ends. `index` is the worker's number in the run; what it says of itself it says
/// to `reporter`.
pub fn work(index: u32, feed: Feed, shared: &Shared, mut reporter: Reporter) {
    let Feed { mut source, parts, cpus } = feed;
    let _ended = EndOnDrop { index, shared };
    let live = source.timing() == Timing::Live;
    if let Err(cause) = pin_this_thread(&cpus) {
        let warning = format!("worker {index} could not be pinned to CPUs {}: {cause}", format_cpus(&cpus));
        reporter.warn(warning);
    }
    shared.ring.set_grace(index, source.grace_ns());
    let mut path = Path::new(index, source.timing(), source.grace_ns(), parts, shared);
    let from_ns = source.listens_from_ns().unwrap_or_else(|| shared.clock.wall_ns());
    if live {
        shared.ring.begin_listening(index, from_ns, GapReason::NotStarted);
    }
    // By how much the clock that stamps packets is known to be ahead of the one that told this.
    let mut ahead_ns = 0;
    // When the run told it to stop, ns of the system's clock.
    let mut stopped_ns = None;
    loop {
        if stopped_ns.is_none() && (shared.stop.load(Ordering::Relaxed) || path.has_enough()) {
            let ahead_ns = Some(source.ahead_ns()).filter(|ahead_ns| ahead_ns.abs() >= time::STEP_NS);
            stopped_ns = Some(shared.clock.wall_ns().saturating_add(ahead_ns.unwrap_or(0)));
            source.stop();
        }
        let polled = source.poll(&mut path);
        path.commit();
        if live && path.era() == 0 && source.ahead_ns() >= ahead_ns + time::STEP_NS {
            ahead_ns = source.ahead_ns();
            shared.ring.begin_listening(index, from_ns.saturating_add(ahead_ns), GapReason::NotStarted);
        }
        let ended = !matches!(polled, Ok(Polled::Packets | Polled::Nothing));
        reporter.report(&mut *source);
        if ended {
            let failure = polled.err();
            let (to_ns, reason) = match (&failure, stopped_ns) {
                (Some(_), _) => (path.clock_ns(), GapReason::InterfaceGone),
                (None, Some(stopped_ns)) if live => (stopped_ns, GapReason::Stopped),
                (None, Some(_)) => (path.clock_ns(), GapReason::Stopped),
                (None, None) => (path.clock_ns(), GapReason::CaptureEnd),
            };
            shared.ring.end_listening(index, to_ns, reason);
            path.end();
            return reporter.end(failure);
        }
    }
}

/// However a worker ends, nobody waits for its clock any more.
struct EndOnDrop<'a> {
    index: u32,
    shared: &'a Shared,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.lockstep.end(self.index);
        self.shared.measuring.end(self.index);
        if let Some(statistics) = &self.shared.statistics {
            statistics.end(self.index);
        }
        // One that unwinds hasn't said it.
        let ring = &self.shared.ring;
        ring.end_listening(self.index, ring.clock_ns(self.index), GapReason::InterfaceGone);
        ring.end_clock(self.index);
        self.shared.ended.fetch_add(1, Ordering::Release);
        self.shared.main.unpark();
    }
}
