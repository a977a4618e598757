//! Waiting until a packet is due: asleep until shortly before, then awake, since a sleeper wakes late.
//!
//! How late is seen at each waking. Who woke late stays awake for longer before the next packets, within bounds:
//!
//! ```text
//! awake = late * 3/2, at least 255/256 of what it was, 100 us to 1 ms
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For so long at least a sender is awake before a packet is due, and no longer at most, ns.
const AWAKE_NS: std::ops::RangeInclusive<u64> = 100_000..=1_000_000;
/// A stop is noticed after so long at most, ns.
const NAP_MAX_NS: u64 = 20_000_000;

/// A clock that never goes back. A trait because tests don't wait.
pub trait Clock: Send {
    /// ns since whenever it began.
    fn now_ns(&self) -> u64;
    /// Sleeps for about this long.
    fn sleep(&self, ns: u64);
    /// Lets a moment pass, awake.
    fn spin(&self) {
        std::hint::spin_loop();
    }
}

/// The system's.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// Begins now. Copies of it show the same.
    pub fn begin() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sleep(&self, ns: u64) {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

/// Waits for one time after the other.
#[derive(Debug)]
pub(super) struct Waiter {
    /// For so long it is awake before the next one, ns.
    awake_ns: u64,
}

impl Default for Waiter {
    fn default() -> Waiter {
        Waiter { awake_ns: *AWAKE_NS.start() }
    }
}

impl Waiter {
    /// Waits until `due_ns`; the time then, or `None`: it was told to stop.
    pub(super) fn wait_until(&mut self, clock: &impl Clock, due_ns: u64, stop: &AtomicBool) -> Option<u64> {
        loop {
            let now_ns = clock.now_ns();
            let left_ns = due_ns.saturating_sub(now_ns);
            if left_ns == 0 {
                return Some(now_ns);
            }
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            if left_ns <= self.awake_ns {
                clock.spin();
                continue;
            }
            let nap_ns = (left_ns - self.awake_ns).min(NAP_MAX_NS);
            clock.sleep(nap_ns);
            self.has_slept(clock.now_ns().saturating_sub(now_ns + nap_ns));
        }
    }

    fn has_slept(&mut self, late_ns: u64) {
        let awake_ns = self.awake_ns - self.awake_ns / 256;
        self.awake_ns = awake_ns.max(late_ns.saturating_mul(3) / 2).clamp(*AWAKE_NS.start(), *AWAKE_NS.end());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A clock that only its own waiting moves: it oversleeps by 7 us and more, and a spin takes 100 ns.
    #[derive(Default)]
    pub struct FakeClock {
        pub now_ns: Cell<u64>,
        pub oversleeps_ns: Cell<u64>,
        pub slept: RefCell<Vec<u64>>,
        pub spun: Cell<u64>,
    }

    impl Clock for FakeClock {
        fn now_ns(&self) -> u64 {
            self.now_ns.get()
        }
        fn sleep(&self, ns: u64) {
            self.slept.borrow_mut().push(ns);
            self.now_ns.set(self.now_ns.get() + ns + 7_000 + self.oversleeps_ns.get());
        }
        fn spin(&self) {
            self.spun.set(self.spun.get() + 1);
            self.now_ns.set(self.now_ns.get() + 100);
        }
    }

    #[test]
    fn it_sleeps_until_shortly_before_and_never_past_the_time() {
        let (clock, stop, mut waiter) = (FakeClock::default(), AtomicBool::new(false), Waiter::default());
        assert_eq!(waiter.wait_until(&clock, 1_000_000, &stop), Some(1_000_000));
        assert_eq!(*clock.slept.borrow(), [900_000]);
        assert_eq!(clock.spun.get(), 930);
        assert_eq!(waiter.wait_until(&clock, 999, &stop), Some(1_000_000), "what is late doesn't wait");
    }

    #[test]
    fn who_wakes_late_stays_awake_for_longer_within_bounds() {
        let (clock, stop, mut waiter) = (FakeClock::default(), AtomicBool::new(false), Waiter::default());
        let mut wait = |oversleeps_ns| {
            clock.oversleeps_ns.set(oversleeps_ns);
            let due_ns = clock.now_ns() + 2_000_000;
            waiter.wait_until(&clock, due_ns, &stop).unwrap() - due_ns
        };
        assert_eq!(wait(193_000), 100_000, "the first time it is late");
        assert_eq!(wait(193_000), 0);
        assert_eq!(*clock.slept.borrow(), [1_900_000, 1_700_000]);
        for _ in 0..1000 {
            wait(0);
        }
        assert_eq!(*clock.slept.borrow().last().unwrap(), 1_900_000, "it forgets");
        wait(10_000_000);
        wait(0);
        assert_eq!(*clock.slept.borrow().last().unwrap(), 1_000_000, "it has a bound");
    }

    #[test]
    fn a_long_wait_is_many_naps_and_a_stop_ends_it() {
        let (clock, stop, mut waiter) = (FakeClock::default(), AtomicBool::new(false), Waiter::default());
        assert!(waiter.wait_until(&clock, 100_000_000, &stop).is_some());
        assert!(clock.slept.borrow().len() >= 5);
        assert!(clock.slept.borrow().iter().all(|&ns| ns <= NAP_MAX_NS));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(waiter.wait_until(&clock, 200_000_000, &stop), None);
    }
}
