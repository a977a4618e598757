//! What a signal handler or another thread may touch of a handle, without a lock: that its loop is to end, and its figures.

use crate::abi::Stat;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The signs of a handle.
pub struct Signs {
    is_broken: AtomicBool,
    received: AtomicU64,
    missed: AtomicU64,
    other_types: AtomicU64,
}

impl Signs {
    /// Those of a handle that is new.
    #[allow(clippy::new_without_default)] // a constant is made of it
    pub const fn new() -> Signs {
        Signs {
            is_broken: AtomicBool::new(false),
            received: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            other_types: AtomicU64::new(0),
        }
    }

    /// Has the loop end. May be called by a signal handler.
    pub fn break_loop(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether the loop is to end.
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Whether the loop is to end, which is done with that.
    pub fn take_break(&self) -> bool {
        self.is_broken.swap(false, Ordering::AcqRel)
    }

    /// The figures from now on.
    pub fn tell(&self, [received, missed, other_types]: [u64; 3]) {
        self.received.store(received, Ordering::Relaxed);
        self.missed.store(missed, Ordering::Relaxed);
        self.other_types.store(other_types, Ordering::Relaxed);
    }

    /// The figures. May be called by a signal handler. As with libpcap they begin again at 2^32.
    pub fn stat(&self) -> Stat {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed) as u32;
        Stat {
            received: of(&self.received),
            dropped: of(&self.missed),
            dropped_by_interface: of(&self.other_types),
        }
    }
}
