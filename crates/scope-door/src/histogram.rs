//! Histograms: how long something took and how much it was, counted by bounds that never change.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Bounds of what takes between milliseconds and minutes, seconds.
const WAITS_S: [f64; 14] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Bounds of answers, bytes: from 1 KiB to 16 GiB.
const SIZES_BYTES: [f64; 9] = [
    1024.0,
    16_384.0,
    262_144.0,
    1_048_576.0,
    16_777_216.0,
    134_217_728.0,
    1_073_741_824.0,
    4_294_967_296.0,
    17_179_869_184.0,
];

/// What was observed, by bucket. Its lock is taken for each observation, by threads of the door alone.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// One for each bound, and one for what is beyond them all.
    buckets: Vec<u64>,
    sum: f64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted {
    pub bounds: &'static [f64],
    /// Observations in each bucket alone; one more than there are bounds.
    pub buckets: Vec<u64>,
    pub sum: f64,
}

impl Histogram {
    /// `bounds` rise; an observation that is equal to one belongs below it.
    pub(crate) fn new(bounds: &'static [f64]) -> Histogram {
        let buckets = vec![0; bounds.len() + 1];
        Histogram { bounds, state: Mutex::new(State { buckets, sum: 0.0 }) }
    }

    pub(crate) fn observe(&self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.buckets[at] += 1;
        state.sum += value;
    }

    pub(crate) fn counted(&self) -> Counted {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Counted { bounds: self.bounds, buckets: state.buckets.clone(), sum: state.sum }
    }
}

impl Counted {
    /// All observations.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// What is measured of a run's answers.
#[derive(Debug)]
pub(crate) struct Measures {
    /// From a fire to the finished files of its dump, seconds.
    pub dump_s: Histogram,
    /// From a question for packets to the end of its answer, seconds.
    pub query_s: Histogram,
    /// Bytes of such an answer.
    pub query_bytes: Histogram,
}

impl Default for Measures {
    fn default() -> Measures {
        Measures {
            dump_s: Histogram::new(&WAITS_S),
            query_s: Histogram::new(&WAITS_S),
            query_bytes: Histogram::new(&SIZES_BYTES),
        }
    }
}

impl Measures {
    /// A dump is finished, so long after its fire.
    pub(crate) fn dump(&self, took: Duration) {
        self.dump_s.observe(took.as_secs_f64());
    }

    /// The answer to a question for packets has ended: how long it took, and how many bytes of it went out.
    pub(crate) fn query(&self, took: Duration, bytes: u64) {
        self.query_s.observe(took.as_secs_f64());
        self.query_bytes.observe(bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_observation_is_in_one_bucket() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.0, 1.0, 1.5, 2.5, 1e9] {
            histogram.observe(value);
        }
        let counted = histogram.counted();
        assert_eq!((&counted.buckets[..], counted.count()), (&[2, 1, 2][..], 5));
        assert_eq!(counted.sum, 1e9 + 5.0);
    }

    #[test]
    fn bounds_rise() {
        for bounds in [&WAITS_S[..], &SIZES_BYTES] {
            assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
        }
    }
}
