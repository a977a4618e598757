//! A clock of all work that a machine does: what it leaves over for threads that have the processor only when nobody else
//! wants it.
//!
//! ```text
//! core 0  │ send  │ spare │ softirq │ spare  ...    spare threads count rounds of arithmetic
//! core 1  │ spare │ worker │ spare │ member  ...    busy = time of all cores less rounds * time of one
//! ```
//! Ticks and the scheduler's times don't know what interrupts and soft interrupts take: here they are charged to nobody, and
//! missing all the same. A round's time is that of the fastest tenth of some hundred, met when nothing came in between: a core
//! that others make slower for a while, by its clock or by its other half, is not busy for that. Nor is what the host of a
//! guest took of its cores.

use crate::clocks::stolen;
use crate::cores::{cores, give_way, stay_on};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Steps of a round, each of which waits for the one before: some 20 us.
const STEPS: u32 = 12_000;
/// So many rounds are looked at together: 10 ms of a core that has nothing else to do.
const TOGETHER: usize = 500;
/// One in so many of these was undisturbed whatever happened.
const UNDISTURBED: usize = 10;

/// Spare threads that count, one on each core.
#[derive(Debug)]
pub struct Spare {
    begun: Instant,
    stolen: Duration,
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
        Spare { begun: Instant::now(), stolen: stolen(), stop, threads }
    }

    /// How long all cores together were busy since then.
    pub fn busy(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let whole = self.begun.elapsed() * self.threads.len() as u32;
        let stolen = stolen().saturating_sub(self.stolen);
        let left: Duration = self.threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum();
        whole.saturating_sub(left + stolen)
    }
}

/// Counts rounds until it is stopped: how long they would have taken undisturbed.
fn left_over(stop: &AtomicBool) -> Duration {
    let mut times = Vec::with_capacity(TOGETHER);
    let (mut left, mut number) = (Duration::ZERO, 1u64);
    let mut before = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..STEPS {
            number = black_box(number).wrapping_mul(6_364_136_223_846_793_005);
        }
        let now = Instant::now();
        times.push(now - before);
        before = now;
        if times.len() == TOGETHER {
            left += undisturbed(&mut times);
            times.clear();
        }
    }
    left + undisturbed(&mut times)
}

/// How long these rounds would have taken.
fn undisturbed(times: &mut [Duration]) -> Duration {
    let (rounds, at) = (times.len() as u32, times.len() / UNDISTURBED);
    if rounds == 0 {
        return Duration::ZERO;
    }
    *times.select_nth_unstable(at).1 * rounds
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
