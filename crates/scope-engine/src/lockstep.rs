//! Workers that can wait run side by side in capture time, so that no lane turns the ring over while another is still behind.
//!
//! Each worker says the time of the batch that it is about to take in; it waits while that is more than [`STEP_NS`] ahead of
//! the slowest. The slowest never waits, so somebody always goes on.

use std::sync::atomic::{AtomicI64, Ordering};

/// How far one worker may be ahead of the slowest, ns of capture time.
pub const STEP_NS: i64 = 20_000_000;

/// The workers' places in capture time.
#[derive(Debug)]
pub struct Lockstep {
    next_ns: Vec<AtomicI64>,
}

impl Lockstep {
    /// For `workers` workers, all at the beginning.
    pub fn new(workers: usize) -> Lockstep {
        Lockstep { next_ns: (0..workers).map(|_| AtomicI64::new(0)).collect() }
    }

    /// `worker` is about to take in packets from `next_ns` on; it never goes back.
    pub fn step(&self, worker: u32, next_ns: i64) {
        self.next_ns[worker as usize].fetch_max(next_ns, Ordering::Release);
    }

    /// `worker` has ended: nobody waits for it.
    pub fn end(&self, worker: u32) {
        self.next_ns[worker as usize].store(i64::MAX, Ordering::Release);
    }

    /// Whether `worker` is too far ahead.
    pub fn ahead(&self, worker: u32) -> bool {
        if self.next_ns.len() < 2 {
            return false;
        }
        let own = self.next_ns[worker as usize].load(Ordering::Relaxed);
        let slowest = self.next_ns.iter().map(|next| next.load(Ordering::Acquire)).min().unwrap_or(own);
        own > slowest.saturating_add(STEP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_ahead_waits_and_an_ended_worker_holds_nobody_up() {
        let lockstep = Lockstep::new(2);
        lockstep.step(0, 5 * STEP_NS);
        assert!(lockstep.ahead(0) && !lockstep.ahead(1));
        lockstep.step(1, 4 * STEP_NS);
        assert!(!lockstep.ahead(0));
        lockstep.step(0, 50 * STEP_NS);
        assert!(lockstep.ahead(0));
        lockstep.end(1);
        assert!(!lockstep.ahead(0));
    }
}
