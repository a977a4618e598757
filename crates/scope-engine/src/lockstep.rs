//! Workers that can wait run side by side in capture time, so that no lane turns the ring over while another
//! is still behind.
//!
//! Each worker says the moment of the batch that it is about to take in; it waits while that is more than
//! [`STEP_NS`] ahead of the slowest, or in a later era. The slowest never waits, so somebody always goes on.

use scope_packet::Moment;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How far one worker may be ahead of the slowest, ns of capture time.
pub const STEP_NS: i64 = 20_000_000;

/// The workers' places in capture time.
#[derive(Debug)]
pub struct Lockstep {
    next: Vec<Next>,
}

/// One worker's place. It alone writes it; read between two of its words it is at most further back than the
/// worker is.
#[derive(Debug, Default)]
struct Next {
    era: AtomicU64,
    time_ns: AtomicI64,
}

impl Next {
    fn get(&self) -> Moment {
        let era = self.era.load(Ordering::Acquire);
        Moment::new(era, self.time_ns.load(Ordering::Acquire))
    }
}

impl Lockstep {
    /// For `workers` workers, all at the beginning.
    pub fn new(workers: usize) -> Lockstep {
        Lockstep { next: (0..workers).map(|_| Next::default()).collect() }
    }

    /// `worker` is about to take in packets from `next` on; it never goes back.
    pub fn step(&self, worker: u32, next: Moment) {
        let place = &self.next[worker as usize];
        if next.era > place.era.load(Ordering::Relaxed) {
            place.time_ns.store(0, Ordering::Release);
            place.era.store(next.era, Ordering::Release);
        }
        place.time_ns.fetch_max(next.time_ns, Ordering::Release);
    }

    /// `worker` has ended: nobody waits for it.
    pub fn end(&self, worker: u32) {
        self.step(worker, Moment::END);
    }

    /// Whether `worker` is too far ahead.
    pub fn ahead(&self, worker: u32) -> bool {
        if self.next.len() < 2 {
            return false;
        }
        let own = self.next[worker as usize].get();
        let slowest = self.next.iter().map(Next::get).min().unwrap_or(own);
        own > slowest.plus(STEP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: i64) -> Moment {
        Moment::new(0, time_ns)
    }

    #[test]
    fn only_who_is_ahead_waits_and_an_ended_worker_holds_nobody_up() {
        let lockstep = Lockstep::new(2);
        lockstep.step(0, at(5 * STEP_NS));
        assert!(lockstep.ahead(0) && !lockstep.ahead(1));
        lockstep.step(1, at(4 * STEP_NS));
        assert!(!lockstep.ahead(0));
        lockstep.step(0, at(50 * STEP_NS));
        assert!(lockstep.ahead(0));
        lockstep.end(1);
        assert!(!lockstep.ahead(0));
    }

    #[test]
    fn who_comes_into_an_era_first_waits_for_the_others_whatever_the_time() {
        let lockstep = Lockstep::new(2);
        lockstep.step(0, at(50 * STEP_NS));
        lockstep.step(1, at(50 * STEP_NS));
        lockstep.step(0, Moment::new(1, 3));
        assert!(lockstep.ahead(0) && !lockstep.ahead(1));
        lockstep.step(1, Moment::new(1, 9));
        assert!(!lockstep.ahead(0) && !lockstep.ahead(1));
    }
}
