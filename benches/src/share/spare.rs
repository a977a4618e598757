//! A clock of all work that a machine does: what it leaves over for threads that have the processor only when nobody else
//! wants it.
//!
//! ```text
//! core 0  │ send  │ spare │ softirq │ spare  ...    spare threads count rounds of arithmetic
//! core 1  │ spare │ worker │ spare │ member  ...    busy = time of all cores less rounds * time of one
//! ```
//! Ticks and the scheduler's times don't know what interrupts and soft interrupts take: here they are charged to nobody, and
//! missing all the same. A round's time is that of the fastest tenth, met when nothing came in between.

use crate::cores::{cores, give_way, stay_on};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Steps of a round, each of which waits for the one before: some 20 us.
const STEPS: u32 = 12_000;
/// Rounds of a second at most.
const ROUNDS_MAX: usize = 200_000;
/// This share of the rounds was undisturbed whatever happened.
const UNDISTURBED: usize = 10;

/// Spare threads that count, one on each core.
#[derive(Debug)]
pub struct Spare {
    begun: Instant,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
}

impl Spare {
    /// Begins to count.
    pub fn begin() -> Spare {
        let stop = Arc::new(AtomicBool::new(false));
        let count = |core: usize| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                stay_on(core);
                give_way();
                left_over(&stop)
            })
        };
        let threads = cores().into_iter().map(count).collect();
        Spare { begun: Instant::now(), stop, threads }
    }

    /// How long all cores together were busy since then.
    pub fn busy(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let whole = self.begun.elapsed() * self.threads.len() as u32;
        let left = self.threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum();
        whole.saturating_sub(left)
    }
}

/// Counts rounds until it is stopped: how long they would have taken undisturbed.
fn left_over(stop: &AtomicBool) -> Duration {
    let mut times = Vec::with_capacity(ROUNDS_MAX);
    let (mut rounds, mut number) = (0u32, 1u64);
    let mut before = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..STEPS {
            number = black_box(number).wrapping_mul(6_364_136_223_846_793_005);
        }
        let now = Instant::now();
        if times.len() < ROUNDS_MAX {
            times.push(now - before);
        }
        (before, rounds) = (now, rounds + 1);
    }
    if times.is_empty() {
        return Duration::ZERO;
    }
    let at = times.len() / UNDISTURBED;
    let (_, undisturbed, _) = times.select_nth_unstable(at);
    *undisturbed * rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_missing_from_what_is_left_over() {
        let spare = Spare::begin();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            std::hint::spin_loop();
        }
        // Whatever else the machine does, as much as this was busy; a core's speed isn't known to the last percent.
        assert!(spare.busy() > Duration::from_millis(200));
    }
}
