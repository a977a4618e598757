//! The word by which a watchdog sees that a script doesn't come back, and by which both agree on whether it did.
//!
//! LuaJIT's hooks don't run in compiled code, so nothing can interrupt a script. A watchdog reads this word. If
//! the script has been in one batch for too long, the watchdog *abandons* it. Either the script leaves its batch
//! first, and nothing has happened, or the watchdog is first, and the script's thread learns at its return,
//! if that ever comes, that it is nobody's any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Outside of a batch.
const IDLE: u64 = 0;
/// Left behind. The highest value, so no time since the start reaches it.
const ABANDONED: u64 = u64::MAX;

/// Shared by a script's thread, which enters and leaves batches, and a watchdog.
#[derive(Debug)]
pub struct Watch {
    start: Instant,
    /// [`IDLE`], [`ABANDONED`], or ns from `start` to the begin of the batch, plus 1.
    since: AtomicU64,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { start: Instant::now(), since: AtomicU64::new(IDLE) }
    }
}

impl Watch {
    /// A watch of a script that is in no batch.
    pub fn new() -> Watch {
        Watch::default()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(ABANDONED - 2).min(ABANDONED - 2) + 1
    }

    /// The script enters a batch. `None`: it was abandoned.
    pub fn enter(&self) -> Option<u64> {
        let now_ns = self.now_ns();
        // AcqRel: what the batch before did is done before the watchdog sees this one.
        let entered = self.since.compare_exchange(IDLE, now_ns, Ordering::AcqRel, Ordering::Acquire);
        entered.is_ok().then_some(now_ns)
    }

    /// The script leaves the batch that it entered at `entered_ns`. `false`: it was abandoned before.
    pub fn leave(&self, entered_ns: u64) -> bool {
        self.since.compare_exchange(entered_ns, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// How long the script has been in its batch; `None`: it is in none, or was abandoned.
    pub fn in_batch(&self) -> Option<Duration> {
        match self.since.load(Ordering::Acquire) {
            IDLE | ABANDONED => None,
            since_ns => Some(Duration::from_nanos(self.now_ns().saturating_sub(since_ns))),
        }
    }

    /// Abandons the script if it has been in one batch for `timeout` or longer. `true`: it is left behind from
    /// now on, and this call did it.
    pub fn abandon_if_stuck(&self, timeout: Duration) -> bool {
        let since_ns = self.since.load(Ordering::Acquire);
        if matches!(since_ns, IDLE | ABANDONED) {
            return false;
        }
        let stuck = Duration::from_nanos(self.now_ns().saturating_sub(since_ns)) >= timeout;
        // Fails where the script left this batch meanwhile, even if it is in the next one.
        stuck && self.since.compare_exchange(since_ns, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the script was left behind.
    pub fn is_abandoned(&self) -> bool {
        self.since.load(Ordering::Acquire) == ABANDONED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_first_decides() {
        let watch = Watch::new();
        assert!(!watch.abandon_if_stuck(Duration::ZERO), "it is in no batch");
        let entered_ns = watch.enter().expect("it is idle");
        assert!(watch.in_batch().is_some());
        assert!(!watch.abandon_if_stuck(Duration::from_secs(3600)));
        assert!(watch.leave(entered_ns) && watch.in_batch().is_none());
        let entered_ns = watch.enter().expect("it is idle");
        assert!(watch.abandon_if_stuck(Duration::ZERO) && watch.is_abandoned());
        assert!(!watch.abandon_if_stuck(Duration::ZERO), "once only");
        assert!(!watch.leave(entered_ns), "what it returns is nobody's");
        assert_eq!((watch.enter(), watch.in_batch()), (None, None));
    }
}
