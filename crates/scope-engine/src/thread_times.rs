//! How busy the workers are: what the scheduler says of their threads, read beside them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

/// How a worker's thread spent its time lately, as parts of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerTime {
    /// It ran.
    pub busy: f64,
    /// It was ready to run, but others had the processor.
    pub starved: f64,
}

/// Reads the times of the threads named `worker-0`, `worker-1` ...
pub(crate) struct ThreadTimes {
    /// One for each worker, held open.
    files: Vec<Option<File>>,
    /// Time run and time waited for a processor, ns, at the last look; 0 before the first.
    last: Vec<(u64, u64)>,
    looked: Instant,
}

impl ThreadTimes {
    /// Of a run with so many workers, which begin now; their threads are looked for when they are first asked
    /// for.
    pub(crate) fn new(workers: usize) -> ThreadTimes {
        ThreadTimes {
            files: (0..workers).map(|_| None).collect(),
            last: vec![(0, 0); workers],
            looked: Instant::now(),
        }
    }

    /// Since the last look; `None` where the kernel doesn't tell.
    pub(crate) fn look(&mut self) -> Vec<Option<WorkerTime>> {
        if self.files.iter().any(Option::is_none) {
            self.find();
        }
        let passed_ns = self.looked.elapsed().as_nanos().max(1) as f64;
        self.looked = Instant::now();
        let now = self.files.iter().map(|file| file.as_ref().and_then(read));
        let times = now.zip(&mut self.last).map(|(now, last)| {
            let now = now?;
            let before = std::mem::replace(last, now);
            let part = |now: u64, before: u64| (now.saturating_sub(before) as f64 / passed_ns).min(1.0);
            Some(WorkerTime { busy: part(now.0, before.0), starved: part(now.1, before.1) })
        });
        times.collect()
    }

    fn find(&mut self) {
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let path = task.path();
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            let index = name.trim().strip_prefix("worker-").and_then(|number| number.parse::<usize>().ok());
            if let Some(file) =
                index.and_then(|index| self.files.get_mut(index)).filter(|file| file.is_none())
            {
                *file = File::open(path.join("schedstat")).ok();
            }
        }
    }
}

/// `RUN_NS WAITED_NS SLICES`
fn read(file: &File) -> Option<(u64, u64)> {
    let mut bytes = [0; 96];
    let len = file.read_at(&mut bytes, 0).ok()?;
    let mut words = std::str::from_utf8(&bytes[..len]).ok()?.split_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_worker_that_spins_is_told_from_one_that_sleeps() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let spin = || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            };
            std::thread::Builder::new().name("worker-0".into()).spawn_scoped(scope, spin).unwrap();
            let sleep = || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5))
                }
            };
            std::thread::Builder::new().name("worker-1".into()).spawn_scoped(scope, sleep).unwrap();
            let mut times = ThreadTimes::new(3);
            let begun = Instant::now();
            while times.look().iter().flatten().count() < 2 && begun.elapsed() < Duration::from_secs(120) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(400));
            let told = times.look();
            stop.store(true, Ordering::Relaxed);
            let (spins, sleeps) = (told[0].expect("known"), told[1].expect("known"));
            assert!(spins.busy + spins.starved > 0.5, "{spins:?}");
            assert!(sleeps.busy < 0.3, "{sleeps:?}");
            assert_eq!(told[2], None, "there is no such worker");
        });
    }
}
