//! Who reads a file's next bytes, a thread ahead of the worker or the worker itself: whichever is faster now.
//!
//! ```text
//!  one: TRIAL ─► the other: TRIAL ─► the faster one: STAY ─► the same: TRIAL ─► the other: TRIAL ─► ...
//! ```
//! A thread takes the copy of read(2) off the worker. Whether that pays depends on how fast cache lines go
//! from one core to the other, and that changes within seconds where a host moves virtual processors: 50 ns
//! a line when they share a cache, 200 ns when they don't. Nobody tells the guest. So both ways are tried
//! again and again, side by side, and the median of a few times decides. What is read is the same in any case.

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The thread, ahead of the worker.
    Thread,
    /// The worker, into a buffer that stays in its own cache.
    Worker,
}

/// Bytes that make one measurement, at least.
const MEASURED_BYTES: u64 = 1 << 20;
/// Measurements of one trial.
const TRIAL: usize = 5;
/// Bytes for which the faster reader stays before the other one is tried.
const STAY_BYTES: u64 = 64 << 20;

/// Decides who reads next.
#[derive(Debug)]
pub(super) struct Turns {
    reader: Reader,
    /// The trials of this time, ns per [`MEASURED_BYTES`]: of the thread, of the worker.
    taken_ns: [Option<u64>; 2],
    /// Bytes and ns of the measurement that has begun; `None`: what comes next isn't measured, since the
    /// reader has just changed.
    begun: Option<(u64, u64)>,
    trial: Vec<u64>,
    /// Bytes that are left before the next trial; 0: one is going on.
    stay_bytes: u64,
}

impl Turns {
    /// Begins with the thread.
    pub(super) fn new() -> Turns {
        let trial = Vec::with_capacity(TRIAL);
        Turns { reader: Reader::Thread, taken_ns: [None; 2], begun: None, trial, stay_bytes: 0 }
    }

    /// Notes that `reader` has read `bytes`, and that the worker was through with them `ns` after those before
    /// them. Returns who reads next. Bytes that the thread had read when the worker took over are no
    /// measurement.
    pub(super) fn note(&mut self, reader: Reader, bytes: u64, ns: u64) -> Reader {
        if reader != self.reader {
            return self.reader;
        }
        if self.stay_bytes > 0 {
            self.stay_bytes = self.stay_bytes.saturating_sub(bytes);
            if self.stay_bytes == 0 {
                (self.taken_ns, self.begun) = ([None; 2], Some((0, 0)));
            }
            return self.reader;
        }
        let Some((measured_bytes, measured_ns)) = &mut self.begun else {
            self.begun = Some((0, 0));
            return self.reader;
        };
        *measured_bytes += bytes;
        *measured_ns = measured_ns.saturating_add(ns);
        if *measured_bytes >= MEASURED_BYTES {
            self.trial.push(
                (u128::from(*measured_ns) * u128::from(MEASURED_BYTES) / u128::from(*measured_bytes)) as u64,
            );
            self.begun = Some((0, 0));
        }
        if self.trial.len() == TRIAL {
            self.decide();
        }
        self.reader
    }

    /// A trial is over.
    fn decide(&mut self) {
        self.trial.sort_unstable();
        self.taken_ns[self.reader as usize] = Some(self.trial[TRIAL / 2]);
        match self.taken_ns {
            [Some(thread_ns), Some(worker_ns)] => {
                self.change(if worker_ns < thread_ns { Reader::Worker } else { Reader::Thread });
                self.stay_bytes = STAY_BYTES;
            }
            _ => self.change(other(self.reader)),
        }
    }

    fn change(&mut self, reader: Reader) {
        self.reader = reader;
        self.begun = None;
        self.trial.clear();
    }
}

fn other(reader: Reader) -> Reader {
    match reader {
        Reader::Thread => Reader::Worker,
        Reader::Worker => Reader::Thread,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// Reads `mib` MiB, 256 KiB at a time; `ns_of` says how long one takes by reader and MiB. How many MiB each
    /// has read.
    fn read(turns: &mut Turns, mib: u64, ns_of: impl Fn(Reader, u64) -> u64) -> [u64; 2] {
        let (mut reader, mut read) = (turns.reader, [0; 2]);
        for at in 0..mib * 4 {
            read[reader as usize] += 1;
            reader = turns.note(reader, MIB / 4, ns_of(reader, at / 4) / 4);
        }
        read.map(|quarters| quarters / 4)
    }

    #[test]
    fn the_faster_reader_reads_nearly_all() {
        let fast_thread = read(&mut Turns::new(), 1000, |reader, _| [300, 430][reader as usize]);
        let fast_worker = read(&mut Turns::new(), 1000, |reader, _| [640, 430][reader as usize]);
        assert!(fast_thread[0] > 900 && fast_thread[1] > 20, "{fast_thread:?}");
        assert!(fast_worker[1] > 900 && fast_worker[0] > 20, "{fast_worker:?}");
    }

    #[test]
    fn what_changes_meanwhile_is_found_out_within_one_stay_and_two_trials() {
        let mut turns = Turns::new();
        let changed_at = 500;
        let ns_of = |reader, at: u64| match (reader, at < changed_at) {
            (Reader::Worker, _) => 430,
            (Reader::Thread, true) => 300,
            (Reader::Thread, false) => 700,
        };
        read(&mut turns, changed_at, ns_of);
        let bound = STAY_BYTES / MIB + 2 * (TRIAL as u64 + 1);
        read(&mut turns, bound, |reader, at| ns_of(reader, at + changed_at));
        let after = read(&mut turns, 60, |reader, at| ns_of(reader, at + changed_at));
        assert!(after[1] >= 50, "{after:?}");
    }

    #[test]
    fn one_time_that_is_far_off_decides_nothing() {
        let mut turns = Turns::new();
        let read = read(&mut turns, 1000, |reader, at| match at % 7 {
            0 => 100_000,
            _ => [300, 430][reader as usize],
        });
        assert!(read[0] > 850, "{read:?}");
    }

    #[test]
    fn what_the_thread_had_read_ahead_when_the_worker_took_over_is_no_measurement() {
        let mut turns = Turns::new();
        while turns.note(Reader::Thread, MIB, 10) == Reader::Thread {}
        for _ in 0..3 {
            assert_eq!(turns.note(Reader::Thread, MIB, 1_000_000), Reader::Worker);
        }
        assert!(turns.trial.is_empty() && turns.begun.is_none());
    }

    proptest! {
        /// Whatever the clock shows: no panic, and both are tried for good.
        #[test]
        fn no_clock_makes_it_stop(times in proptest::collection::vec((0..=u64::MAX, 0..=4 * MIB), 0..2000)) {
            let (mut turns, mut reader) = (Turns::new(), Reader::Thread);
            for (ns, bytes) in times {
                reader = turns.note(reader, bytes, ns);
                prop_assert!(turns.trial.len() < TRIAL);
            }
        }
    }
}
